"""Preference losses: gradients, invariances, limits, number types, extremes, bad input, worked examples.

That each is smallest where its paper says is in the ledger (chapter 14); here is what holds for all or many of them.
"""

import functools
import inspect
import math
import re
from dataclasses import FrozenInstanceError, fields, replace

import pytest
import torch
from facts import called, raises

from minirlhf.core import exact
from minirlhf.core.errors import ArgumentError
from minirlhf.equations import preference_losses as pl
from minirlhf.equations.preference_losses import ListLogps, Needs, PairLogps, UnpairedLogps
from minirlhf.recipes.offline import PREFERENCES
from minirlhf_course.ledger.registry import Draw

BETA = 0.4
ONES = torch.ones(4, dtype=torch.float64)


def like(batch, value):
    """``(B,)`` of one value, of the type of the record."""
    x = batch.chosen if isinstance(batch, PairLogps) else batch.logps
    return torch.full_like(x, value)


def targets_of(batch):
    """Uneven target distributions over the lists."""
    return (0.7 * torch.arange(batch.logps.shape[1], dtype=batch.logps.dtype)).softmax(-1).expand_as(batch.logps)


PAIRED = {
    "aot": lambda b: pl.aot(b, like(b, 0.7), beta=BETA),
    "alpha_po": lambda b: pl.alpha_po(b, beta=2.0, alpha=0.25, gamma=0.5),
    "apo_down": lambda b: pl.apo_down(b, beta=BETA),
    "apo_zero": lambda b: pl.apo_zero(b, beta=BETA),
    "bco_pair": lambda b: pl.bco_pair(b, beta=BETA),
    "cal_dpo": lambda b: pl.cal_dpo(b, beta=BETA),
    "cdpo": lambda b: pl.cdpo(b, beta=BETA, label_smoothing=0.1),
    "cpo": lambda b: pl.cpo(b, beta=BETA),
    "dpo": lambda b: pl.dpo(b, beta=BETA),
    "dpo_length_normalised": lambda b: pl.dpo_length_normalised(b, beta=BETA),
    "dpo_nll": lambda b: pl.dpo_nll(b, beta=BETA, nll_weight=0.5),
    "dpo_positive": lambda b: pl.dpo_positive(b, beta=BETA, penalty=2.0),
    "exo_pair": lambda b: pl.exo_pair(b, beta=BETA, label_smoothing=0.1),
    "f_dpo": lambda b: pl.f_dpo(b, beta=BETA, f_prime=pl.f_prime_forward_kl),
    "hinge": lambda b: pl.hinge(b, beta=BETA),
    "ipo": lambda b: pl.ipo(b, beta=BETA),
    "likelihood_contrast": lambda b: pl.likelihood_contrast(b, weight=0.5),
    "nca_pair": lambda b: pl.nca_pair(b, beta=BETA),
    "odpo": lambda b: pl.odpo(b, like(b, 0.7), beta=BETA),
    "orpo": lambda b: pl.orpo(b, beta=BETA),
    "rebel": lambda b: pl.rebel(b, like(b, 0.7), beta=BETA),
    "robust_dpo": lambda b: pl.robust_dpo(b, beta=BETA, label_smoothing=0.1),
    "rpo": lambda b: pl.rpo(b, like(b, 0.7), beta=BETA, eta=1.5),
    "simpo": lambda b: pl.simpo(b, beta=2.0, gamma=0.5),
    "slic": lambda b: pl.slic(b, delta=1.0, nll_weight=0.1),
    "sppo": lambda b: pl.sppo(b, beta=BETA),
}
UNPAIRED = {
    "bco": lambda b: pl.bco(b, torch.tensor(0.3), beta=BETA),
    "kto": lambda b: pl.kto(b, torch.tensor(0.3), beta=BETA, undesirable_weight=1.3),
}
LISTED = {
    "exo": lambda b: pl.exo(b, targets_of(b), beta=BETA),
    "info_nca": lambda b: pl.info_nca(b, targets_of(b), beta=BETA),
    "info_nce": lambda b: pl.info_nce(b, beta=BETA),
    "nca": lambda b: pl.nca(b, targets_of(b), beta=BETA),
    "plackett_luce_dpo": lambda b: pl.plackett_luce_dpo(b, beta=BETA),
}
for record, table in ((PairLogps, PAIRED), (UnpairedLogps, UNPAIRED), (ListLogps, LISTED)):
    for row in PREFERENCES.values():  # one that was added since is tried as its row has it
        name = inspect.unwrap(getattr(row.loss, "func", row.loss)).__name__
        if row.needs.record is record and not row.context:
            table.setdefault(name, row.loss)
LOSSES = PAIRED | UNPAIRED | LISTED
every_loss = pytest.mark.parametrize("name", sorted(LOSSES))
every_paired = pytest.mark.parametrize("name", sorted(PAIRED))


def pairs(draw, size=4):
    """Random pairs, complete, at least 0.02 away from the kinks of the losses above."""
    while True:
        sums = [-draw.uniform(size, low=1.0, high=6.0) for _ in range(4)]
        lengths = [torch.tensor([draw.integer(1, 5) for _ in range(size)]) for _ in range(2)]
        pair = PairLogps(*sums, *lengths)
        kinks = [1 - BETA * pair.margins, 1.0 - pair.chosen + pair.rejected, pair.chosen_logratios]
        if min(float(k.abs().min()) for k in kinks) > 0.02:
            return pair


def batch_for(name, draw):
    """A random record that this loss takes."""
    pair = pairs(draw)
    if name in PAIRED:
        return pair
    if name in UNPAIRED:
        return pair.unpaired()
    return ListLogps(-draw.uniform(3, 4, low=1.0, high=6.0), -draw.uniform(3, 4, low=1.0, high=6.0))


def mapped(batch, function):
    """The record with ``function`` applied to its floating-point tensors."""
    changed = {f.name: getattr(batch, f.name) for f in fields(batch)}
    changed = {n: function(x) for n, x in changed.items() if x is not None and x.is_floating_point()}
    return replace(batch, **changed)


def rows(batch, index):
    """The record of some rows."""
    tensors = {f.name: getattr(batch, f.name) for f in fields(batch)}
    return replace(batch, **{n: x[index] for n, x in tensors.items() if x is not None})


def policy_tensors(batch):
    """Names of the tensors that belong to the policy."""
    return ["chosen", "rejected"] if isinstance(batch, PairLogps) else ["logps"]


def with_gradient(batch):
    """The record with leaves for the policy, and these leaves."""
    leaves = {n: getattr(batch, n).clone().requires_grad_() for n in policy_tensors(batch)}
    return replace(batch, **leaves), list(leaves.values())


@pytest.fixture
def draw(suite_seed, request):
    """Random inputs, different in every run and in every test."""
    return Draw(suite_seed, request.node.name)


# -- all of them -------------------------------------------------------------------------------------------------


def test_needs_lists_every_preference_loss():
    for record, table in ((PairLogps, PAIRED), (UnpairedLogps, UNPAIRED), (ListLogps, LISTED)):
        assert Needs.losses(record) == sorted(table)


@every_loss
def test_preference_losses_give_one_number_per_example(name, draw):
    batch = batch_for(name, draw)
    loss = LOSSES[name](batch)
    assert loss.shape == (len(getattr(batch, policy_tensors(batch)[0])),)
    assert loss.dtype == torch.float64


@every_loss
def test_preference_losses_of_an_example_do_not_depend_on_the_batch(name, draw):
    """With batch statistics passed in, any split of the batch gives the same losses."""
    batch = batch_for(name, draw)
    whole = LOSSES[name](batch)
    cut = draw.integer(1, len(whole) - 1)
    parts = [LOSSES[name](rows(batch, slice(*ends))) for ends in ((0, cut), (cut, len(whole)))]
    torch.testing.assert_close(torch.cat(parts), whole, rtol=1e-12, atol=1e-12)


# -- at the reference ----------------------------------------------------------------------------------------------


@every_paired
def test_preference_losses_at_the_reference_pull_the_chosen_answer_up(name, draw):
    """At the reference every loss pulls the chosen answer up, except APO-down, which leaves it alone, and DiscoPOP.

    With its paper's τ it pushes a pair that is not told apart yet the wrong way (the check of eq:discopop has the slope).
    """
    pair = pairs(draw)
    start = replace(pair, chosen=pair.rejected, ref_chosen=pair.rejected, ref_rejected=pair.rejected)
    start = replace(start, rejected_lengths=pair.chosen_lengths)
    batch, (chosen, _) = with_gradient(start)
    (slope,) = torch.autograd.grad(PAIRED[name](batch).sum(), chosen)
    expected = {"apo_down": slope.abs() < 1e-12, "discopop": slope > 0}.get(name, slope < 0)
    assert bool(expected.all())


# -- views of a record -------------------------------------------------------------------------------------------


def test_pair_logps_per_token_twice_is_once(draw):
    pair = pairs(draw).per_token()
    again = pair.per_token()
    for field in fields(pair):
        assert torch.equal(getattr(pair, field.name), getattr(again, field.name))


def test_per_token_losses_ignore_the_length_of_equal_means(draw):
    pair = pairs(draw)
    doubled = mapped(pair, lambda x: 2 * x)
    doubled = replace(doubled, chosen_lengths=2 * pair.chosen_lengths, rejected_lengths=2 * pair.rejected_lengths)
    for name in ("dpo_length_normalised", "simpo", "alpha_po", "orpo"):
        torch.testing.assert_close(PAIRED[name](doubled), PAIRED[name](pair))
    torch.testing.assert_close(
        pl.ipo(doubled, beta=BETA, length_normalised=True), pl.ipo(pair, beta=BETA, length_normalised=True)
    )
    assert float((pl.dpo(doubled, beta=BETA) - pl.dpo(pair, beta=BETA)).abs().max()) > 1e-3


def test_pair_logps_views_hold_the_same_answers(draw):
    pair = pairs(draw)
    single, ranked = pair.unpaired(), pair.ranked()
    assert torch.equal(single.logps[single.desirable], pair.chosen)
    assert torch.equal(single.logratios[~single.desirable], pair.rejected_logratios)
    assert torch.equal(ranked.logratios, torch.stack([pair.chosen_logratios, pair.rejected_logratios], -1))
    assert torch.equal(ranked.lengths[:, 1], pair.rejected_lengths)
    bare = PairLogps(pair.chosen, pair.rejected)
    assert bare.unpaired().ref_logps is None and bare.ranked().lengths is None


# -- limits ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "special",
    [
        lambda p: pl.cdpo(p, beta=BETA, label_smoothing=0.0),
        lambda p: pl.robust_dpo(p, beta=BETA, label_smoothing=0.0),
        lambda p: pl.odpo(p, like(p, 0.0), beta=BETA),
        lambda p: pl.dpo_positive(p, beta=BETA, penalty=0.0),
        lambda p: pl.dpo_nll(p, beta=BETA, nll_weight=0.0),
        lambda p: pl.rpo(p, like(p, 60.0), beta=BETA),
        lambda p: pl.f_dpo(p, beta=BETA, f_prime=pl.f_prime_reverse_kl),
        lambda p: pl.f_dpo(p, beta=BETA, f_prime=lambda u: pl.f_prime_alpha(u, alpha=1e-9)),
        lambda p: pl.dpo_length_normalised(replace(p, chosen_lengths=ONES, rejected_lengths=ONES), beta=BETA),
        lambda p: pl.plackett_luce_dpo(p.ranked(), beta=BETA),
        lambda p: pl.info_nce(p.ranked(), beta=BETA),
        lambda p: pl.info_nca(p.ranked(), torch.tensor([[1.0, 0.0]], dtype=torch.float64).expand(4, 2), beta=BETA),
    ],
    ids=called,
)
def test_special_cases_of_preference_losses_are_dpo(special, draw):
    pair = pairs(draw)
    torch.testing.assert_close(special(pair), pl.dpo(pair, beta=BETA), rtol=1e-7, atol=1e-7)


def test_special_cases_of_preference_losses_are_other_losses(draw):
    pair = pairs(draw)
    torch.testing.assert_close(pl.alpha_po(pair, beta=2.0, alpha=0.0, gamma=0.5), pl.simpo(pair, beta=2.0, gamma=0.5))
    torch.testing.assert_close(
        pl.f_prime_alpha(pair.margins, alpha=1.0), 1 + pl.f_prime_forward_kl(pair.margins), rtol=1e-9, atol=1e-9
    )
    zeros = torch.zeros_like(pair.chosen)
    uniform = replace(pair, ref_chosen=zeros, ref_rejected=zeros)
    torch.testing.assert_close(pl.cpo(pair, beta=BETA, nll_weight=0.0), pl.dpo(uniform, beta=BETA))
    one_hot = pl.reward_targets(torch.tensor([[1.0, 3.0, 2.0]]), temperature=1e-3)
    assert torch.equal(one_hot, torch.tensor([[0.0, 1.0, 0.0]]))


def test_bco_delta_is_a_moving_mean_without_gradient(draw):
    batch = pairs(draw).unpaired()
    now = pl.bco_delta(batch, beta=BETA)
    before = torch.tensor(1.0, dtype=torch.float64)
    torch.testing.assert_close(pl.bco_delta(batch, beta=BETA, previous=before, decay=0.75), 0.75 * before + 0.25 * now)
    good = rows(batch, batch.desirable)
    torch.testing.assert_close(pl.bco_delta(good, beta=BETA), BETA * good.logratios.mean())
    assert not now.requires_grad


# -- number types and extremes -----------------------------------------------------------------------------------


@every_loss
@pytest.mark.parametrize(("dtype", "error"), [(torch.float32, 1e-5), (torch.bfloat16, 0.06)])
def test_preference_losses_in_narrow_types_stay_within_their_error(name, dtype, error, draw):
    """``|loss − float64 loss| ≤ error · max(1, |loss|)`` on the same, already rounded, inputs."""
    narrow = mapped(batch_for(name, draw), lambda x: x.to(dtype))
    got, expected = LOSSES[name](narrow), LOSSES[name](mapped(narrow, torch.Tensor.double))
    assert got.dtype == dtype
    assert float(((got.double() - expected).abs() / expected.abs().clamp(min=1)).max()) <= error


@every_loss
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_preference_losses_of_extreme_log_probabilities_are_finite(name, dtype, draw):
    batch = batch_for(name, draw)
    far, near = -1e4, -1e-6
    for policy, ref in ((far, near), (near, far), (far, far), (near, near)):
        extreme = mapped(batch, lambda x: x.to(dtype))
        names = policy_tensors(batch)
        extreme = mapped(extreme, lambda x, v=ref: torch.full_like(x, v))
        extreme = replace(extreme, **{names[0]: torch.full_like(getattr(extreme, names[0]), policy)})
        extreme, leaves = with_gradient(extreme)
        loss = LOSSES[name](extreme)
        assert bool(loss.isfinite().all())
        assert bool(exact.gradient(loss.sum(), *leaves).isfinite().all())


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_orpo_and_unlikelihood_of_certain_answers_are_finite(dtype):
    """A mean log-probability of exactly 0 would have infinite odds."""
    zero, lengths = torch.zeros(1, dtype=dtype, requires_grad=True), torch.ones(1)
    for pair in (
        PairLogps(zero, zero - 1, chosen_lengths=lengths, rejected_lengths=lengths),
        PairLogps(zero - 1, zero, chosen_lengths=lengths, rejected_lengths=lengths),
    ):
        loss = pl.orpo(pair, beta=BETA)
        assert bool(loss.isfinite().all()) and bool(exact.gradient(loss.sum(), zero).isfinite().all())
    assert bool(pl.unlikelihood(zero[None], torch.ones(1, 1, dtype=torch.bool)).isfinite().all())


# -- bad input ---------------------------------------------------------------------------------------------------

X = torch.zeros(3)


@pytest.mark.parametrize(
    ("make", "argument", "value"),
    [
        (lambda: PairLogps(X, torch.zeros(4)), "rejected", (4,)),
        (lambda: PairLogps(X[:, None], X), "chosen", (3, 1)),
        (lambda: PairLogps(X, X, X, X[:1]), "ref_rejected", (1,)),
        (lambda: PairLogps(X, X, ref_chosen=X), "ref_chosen", None),
        (lambda: PairLogps(X, X, rejected_lengths=X + 1), "chosen_lengths", None),
        (lambda: PairLogps(X + torch.nan, X), "chosen", 3),
        (lambda: PairLogps(X, X, chosen_lengths=X + 1, rejected_lengths=X), "rejected_lengths", None),
        (lambda: UnpairedLogps(X, X, None, X), "desirable", torch.float32),
        (lambda: UnpairedLogps(X, torch.zeros(2), None, X > 0), "ref_logps", (2,)),
        (lambda: ListLogps(X), "logps", (3,)),
        (lambda: ListLogps(X[:, None]), "logps", (3, 1)),
        (lambda: ListLogps(torch.zeros(3, 2), torch.zeros(2, 3)), "ref_logps", (2, 3)),
    ],
    ids=called,
)
def test_records_name_a_bad_field(make, argument, value):
    with raises(ArgumentError, argument=argument, value=value):
        make()


PAIR = PairLogps(X - 1, X - 2, X - 1, X - 2, X + 2, X + 3)
SINGLE = PAIR.unpaired()
LIST = PAIR.ranked()


@every_loss
def test_preference_losses_given_the_wrong_record_name_losses_that_take_it(name):
    right = Needs.of(getattr(pl, name)).record
    for wrong, example in ((PAIR, "dpo"), (SINGLE, "kto"), (LIST, "plackett_luce_dpo")):
        if type(wrong) is right:
            continue
        with pytest.raises(TypeError) as caught:
            LOSSES[name](wrong) if name not in LISTED else getattr(pl, name)(wrong, beta=BETA)
        assert {name, right.__name__, type(wrong).__name__, example} <= set(re.findall(r"\w+", str(caught.value)))
    with pytest.raises(TypeError) as caught:
        getattr(pl, name)(X, beta=BETA)
    assert {name, right.__name__, "Tensor"} <= set(re.findall(r"\w+", str(caught.value)))


@pytest.mark.parametrize("name", sorted(n for n in PAIRED if Needs.of(getattr(pl, n)).reference))
def test_paired_losses_without_a_reference_name_losses_that_need_none(name):
    bare = replace(PAIR, ref_chosen=None, ref_rejected=None)
    with raises(ArgumentError, argument="reference", value=name, expected=Needs.losses(PairLogps, reference=False)):
        PAIRED[name](bare)


@pytest.mark.parametrize("name", sorted(UNPAIRED) + sorted(LISTED))
def test_unpaired_and_listed_losses_reject_a_missing_reference(name):
    bare = replace(SINGLE if name in UNPAIRED else LIST, ref_logps=None)
    with raises(ArgumentError, argument="reference", value=name, expected=[]):
        LOSSES[name](bare)


@pytest.mark.parametrize("name", sorted(n for n in PAIRED if Needs.of(getattr(pl, n)).lengths))
def test_paired_losses_reject_missing_lengths(name):
    bare = replace(PAIR, chosen_lengths=None, rejected_lengths=None)
    with raises(ArgumentError, argument="lengths", value=name):
        PAIRED[name](bare)


def test_ipo_needs_lengths_only_to_normalise():
    bare = replace(PAIR, chosen_lengths=None, rejected_lengths=None)
    assert pl.ipo(bare, beta=BETA).shape == (3,)
    with raises(ArgumentError, argument="chosen_lengths", problem="missing"):
        pl.ipo(bare, beta=BETA, length_normalised=True)


def test_reference_free_losses_need_no_reference():
    bare = replace(PAIR, ref_chosen=None, ref_rejected=None)
    free = Needs.losses(PairLogps, reference=False)
    assert free == ["alpha_po", "cpo", "likelihood_contrast", "orpo", "simpo", "slic"]
    for name in free:
        torch.testing.assert_close(PAIRED[name](bare), PAIRED[name](PAIR))


@pytest.mark.parametrize("name", sorted(n for n in LOSSES if "beta" in inspect.signature(getattr(pl, n)).parameters))
@pytest.mark.parametrize("beta", [0.0, math.nan, math.inf])
def test_preference_losses_reject_beta_that_is_not_positive(name, beta):
    """Every other argument is a valid one, so that it is β that is refused."""
    loss = getattr(pl, name)
    fill = {
        "label_smoothing": 0.1,
        "nll_weight": 0.1,
        "penalty": 1.0,
        "gamma": 0.1,
        "alpha": 0.1,
        "f_prime": pl.f_prime_reverse_kl,
        "offset": X,
        "reward_margin": X,
        "delta": torch.tensor(0.0),
        "reference_point": torch.tensor(0.0),
        "targets": torch.full((3, 2), 0.5),
    }
    wanted = {n: fill[n] for n in inspect.signature(loss).parameters if n in fill}
    batch = {PairLogps: PAIR, UnpairedLogps: SINGLE, ListLogps: LIST}[Needs.of(loss).record]
    with raises(ArgumentError, argument="beta", value=beta):
        loss(batch, beta=beta, **wanted)


@pytest.mark.parametrize(
    ("call", "argument", "value"),
    [
        (lambda: pl.cdpo(PAIR, beta=BETA, label_smoothing=0.6), "label_smoothing", 0.6),
        (lambda: pl.robust_dpo(PAIR, beta=BETA, label_smoothing=0.5), "label_smoothing", 0.5),
        (lambda: pl.exo_pair(PAIR, beta=BETA, label_smoothing=0.0), "label_smoothing", 0.0),
        (lambda: pl.simpo(PAIR, beta=BETA, gamma=-1.0), "gamma", -1.0),
        (lambda: pl.alpha_po(PAIR, beta=BETA, alpha=math.inf), "alpha", math.inf),
        (lambda: pl.f_prime_alpha(X, alpha=0.0), "alpha", 0.0),
        (lambda: pl.dpo_positive(PAIR, beta=BETA, penalty=-1.0), "penalty", -1.0),
        (lambda: pl.dpo_nll(PAIR, beta=BETA, nll_weight=-1.0), "nll_weight", -1.0),
        (lambda: pl.slic(PAIR, delta=0.0, nll_weight=0.1), "delta", 0.0),
        (lambda: pl.likelihood_contrast(PAIR, weight=-1.0), "weight", -1.0),
        (lambda: pl.odpo(PAIR, X[:2], beta=BETA), "margin", (2,)),
        (lambda: pl.rpo(PAIR, X[:2], beta=BETA), "reward_margin", (2,)),
        (lambda: pl.rebel(PAIR, X + torch.nan, beta=BETA), "reward_margin", 3),
        (lambda: pl.kto(SINGLE, X, beta=BETA), "reference_point", (3,)),
        (lambda: pl.kto(SINGLE, X[0], beta=BETA, desirable_weight=0.0), "desirable_weight", 0.0),
        (lambda: pl.kto_reference_point(X[:0], X[:0]), "logps", (0,)),
        (lambda: pl.bco(SINGLE, X, beta=BETA), "delta", (3,)),
        (lambda: pl.bco_delta(SINGLE, beta=BETA, decay=2.0), "decay", 2.0),
        (lambda: pl.info_nca(LIST, torch.ones(3, 2), beta=BETA), "targets", None),
        (lambda: pl.nca(LIST, torch.full((3, 3), 1 / 3), beta=BETA), "targets", (3, 3)),
        (lambda: pl.exo(LIST, torch.eye(2)[[0, 0, 1]], beta=BETA), "targets", None),
        (lambda: pl.orpo(replace(PAIR, chosen=X + 1), beta=BETA), "chosen", None),
        (lambda: pl.unlikelihood(X[None], torch.zeros(1, 3)), "mask", [0]),
        (lambda: pl.psi_reward(torch.full((3, 3), 0.6), X, psi=torch.logit), "preferences", None),
        (lambda: pl.psi_po_optimum(X, torch.full((3, 3), 0.5), X[:2], beta=1.0, psi=torch.logit), "opponent", (2,)),
        (lambda: pl.reward_targets(X, temperature=1.0), "rewards", (3,)),
        (lambda: pl.nash_md(X, X, torch.full((3, 3), 0.5), beta=0.5, step=3.0), "step_times_beta", 1.5),
        (lambda: pl.nash_md(X, X[:2], torch.full((3, 3), 0.5), beta=0.5, step=1.0), "ref_logps", (2,)),
        (lambda: pl.dpo_displacement(X, torch.eye(2), 0, 1), "features", (2, 2)),
        (lambda: Needs.of(torch.sigmoid), "loss", "sigmoid"),
    ],
    ids=called,
)
def test_preference_losses_name_a_bad_argument(call, argument, value):
    with raises(ArgumentError, argument=argument, value=value):
        call()


def test_needs_of_a_partial_is_that_of_its_loss():
    loss = functools.partial(functools.partial(pl.simpo, beta=2.0), gamma=0.5)
    assert Needs.of(loss) == Needs(PairLogps, reference=False, lengths=True, per_token=True)
    assert Needs.of(pl.kto) == Needs(UnpairedLogps, reference=True, lengths=False)


def test_records_are_frozen():
    one = torch.zeros(1)
    records = PairLogps(one, one), UnpairedLogps(one, None, None, one.bool()), ListLogps(torch.zeros(1, 2))
    for record in records:
        with pytest.raises(FrozenInstanceError):
            record.chosen = one
