"""Preference losses: gradients, invariances, limits, number types, extremes, bad input, worked examples.

That each is smallest where its paper says is in the ledger (chapter 14); here is what holds for all or many of them.
"""

import functools
import inspect
import math
from dataclasses import FrozenInstanceError, fields, replace

import pytest
import torch

from minirlhf.core import exact
from minirlhf.equations import preference_losses as pl
from minirlhf.equations.preference_losses import ListLogps, Needs, PairLogps, UnpairedLogps
from minirlhf.ledger.registry import Draw
from minirlhf.recipes.offline import PREFERENCES

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
def draw(fresh_seed, request):
    """Random inputs, different in every run and in every test."""
    return Draw(fresh_seed, request.node.name)


# -- all of them -------------------------------------------------------------------------------------------------


def test_every_loss_is_in_the_table_above_or_has_a_row():
    for record, table in ((PairLogps, PAIRED), (UnpairedLogps, UNPAIRED), (ListLogps, LISTED)):
        assert Needs.losses(record) == sorted(table)


@every_loss
def test_one_number_per_example_of_the_same_type(name, draw):
    batch = batch_for(name, draw)
    loss = LOSSES[name](batch)
    assert loss.shape == (len(getattr(batch, policy_tensors(batch)[0])),)
    assert loss.dtype == torch.float64


@pytest.mark.parametrize("name", sorted(LOSSES.keys() - {"wpo"}))  # whose weight is data
def test_gradient_is_that_of_finite_differences(name, draw):
    batch, leaves = with_gradient(batch_for(name, draw))
    got = exact.gradient(LOSSES[name](batch).sum(), *leaves)
    numeric = [
        exact.finite_difference(lambda x, n=n: LOSSES[name](replace(batch, **{n: x})).sum().detach(), leaf).flatten()
        for n, leaf in zip(policy_tensors(batch), leaves, strict=True)
    ]
    torch.testing.assert_close(got, torch.cat(numeric), rtol=1e-7, atol=1e-8)


@every_loss
def test_examples_do_not_see_each_other(name, draw):
    """With batch statistics passed in, any split of the batch gives the same losses."""
    batch = batch_for(name, draw)
    whole = LOSSES[name](batch)
    cut = draw.integer(1, len(whole) - 1)
    parts = [LOSSES[name](rows(batch, slice(*ends))) for ends in ((0, cut), (cut, len(whole)))]
    torch.testing.assert_close(torch.cat(parts), whole, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("name", sorted(n for n in LOSSES if Needs.of(getattr(pl, n)).reference))
def test_the_reference_gets_no_gradient(name, draw):
    batch = mapped(batch_for(name, draw), lambda x: x.clone().requires_grad_())
    LOSSES[name](batch).sum().backward()
    refs = [getattr(batch, f.name) for f in fields(batch) if f.name.startswith("ref")]
    assert refs
    assert all(x.grad is None for x in refs)


@pytest.mark.parametrize(
    "name", sorted(n for n in LOSSES if Needs.of(getattr(pl, n)).reference and n not in ("dpo_nll", "wpo", "aot"))
)
def test_only_the_ratio_to_the_reference_counts(name, draw):
    batch = batch_for(name, draw)
    shifts = {}
    for policy in policy_tensors(batch):
        ref = "ref_logps" if policy == "logps" else f"ref_{policy}"
        shift = draw.normal(*getattr(batch, policy).shape)
        shifts |= {policy: getattr(batch, policy) + shift, ref: getattr(batch, ref) + shift}
    torch.testing.assert_close(LOSSES[name](replace(batch, **shifts)), LOSSES[name](batch), rtol=1e-10, atol=1e-10)


# -- what a loss leaves open -------------------------------------------------------------------------------------

MARGIN_ONLY = ["cdpo", "dpo", "exo_pair", "hinge", "ipo", "odpo", "rebel", "robust_dpo", "rpo"]
LEVEL_TOO = [
    "alpha_po",
    "apo_down",
    "apo_zero",
    "bco_pair",
    "cal_dpo",
    "cpo",
    "dpo_nll",
    "dpo_positive",
    "f_dpo",
    "nca_pair",
    "orpo",
    "slic",
    "sppo",
]


@pytest.mark.parametrize("name", MARGIN_ONLY)
def test_a_common_shift_of_both_answers_changes_nothing(name, draw):
    """This is why DPO may lower the likelihood of both."""
    pair, shift = pairs(draw), draw.normal(4, scale=3.0)
    moved = replace(pair, chosen=pair.chosen + shift, rejected=pair.rejected + shift)
    torch.testing.assert_close(PAIRED[name](moved), PAIRED[name](pair), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("name", LEVEL_TOO)
def test_a_common_shift_of_both_answers_is_noticed(name):
    chosen, rejected = (torch.tensor([x], dtype=torch.float64) for x in (-3.0, -4.0))
    pair = PairLogps(chosen, rejected, chosen - 1.5, rejected + 1.0, ONES[:1] * 2, ONES[:1] * 3)
    moved = replace(pair, chosen=chosen - 3.0, rejected=rejected - 3.0)
    assert float((PAIRED[name](moved) - PAIRED[name](pair)).abs()) > 0.01


@pytest.mark.parametrize("name", ["exo", "info_nca", "nca"])
def test_lists_with_targets_have_no_order(name, draw):
    batch, order = batch_for(name, draw), draw.permutation(4)
    shuffled = ListLogps(batch.logps[:, order], batch.ref_logps[:, order])
    loss = getattr(pl, name)
    torch.testing.assert_close(
        loss(shuffled, targets_of(batch)[:, order], beta=BETA), loss(batch, targets_of(batch), beta=BETA)
    )


@pytest.mark.parametrize("name", ["exo", "info_nca", "info_nce", "plackett_luce_dpo"])
def test_a_common_shift_of_a_list_changes_nothing(name, draw):
    batch = batch_for(name, draw)
    moved = replace(batch, logps=batch.logps + draw.normal(3, 1, scale=3.0))
    torch.testing.assert_close(LISTED[name](moved), LISTED[name](batch), rtol=1e-9, atol=1e-9)


# -- swapped labels ----------------------------------------------------------------------------------------------


def test_swapped_labels_cost_the_margin(draw):
    pair = pairs(draw)
    torch.testing.assert_close(pl.dpo(pair.swapped(), beta=BETA) - pl.dpo(pair, beta=BETA), BETA * pair.margins)
    torch.testing.assert_close(pl.ipo(pair.swapped(), beta=BETA) - pl.ipo(pair, beta=BETA), 2 * pair.margins / BETA)
    both = pl.preference_probability(pair, beta=BETA) + pl.preference_probability(pair.swapped(), beta=BETA)
    torch.testing.assert_close(both, ONES)


def test_labels_that_are_flips_of_a_coin_say_nothing(draw):
    pair = pairs(draw)
    torch.testing.assert_close(
        pl.cdpo(pair.swapped(), beta=BETA, label_smoothing=0.5), pl.cdpo(pair, beta=BETA, label_smoothing=0.5)
    )


@every_paired
def test_a_larger_margin_by_a_better_chosen_answer_never_costs_near_the_start(name, draw):
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


def test_per_token_twice_is_once(draw):
    pair = pairs(draw).per_token()
    again = pair.per_token()
    for field in fields(pair):
        assert torch.equal(getattr(pair, field.name), getattr(again, field.name))


def test_per_token_of_longer_copies_is_the_same(draw):
    pair = pairs(draw)
    doubled = mapped(pair, lambda x: 2 * x)
    doubled = replace(doubled, chosen_lengths=2 * pair.chosen_lengths, rejected_lengths=2 * pair.rejected_lengths)
    for name in ("dpo_length_normalised", "simpo", "alpha_po", "orpo"):
        torch.testing.assert_close(PAIRED[name](doubled), PAIRED[name](pair))
    torch.testing.assert_close(
        pl.ipo(doubled, beta=BETA, length_normalised=True), pl.ipo(pair, beta=BETA, length_normalised=True)
    )
    assert float((pl.dpo(doubled, beta=BETA) - pl.dpo(pair, beta=BETA)).abs().max()) > 1e-3


def test_views_hold_the_same_answers(draw):
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
)
def test_special_cases_are_dpo(special, draw):
    pair = pairs(draw)
    torch.testing.assert_close(special(pair), pl.dpo(pair, beta=BETA), rtol=1e-7, atol=1e-7)


def test_smoothed_targets_are_conservative_dpo(draw):
    pair = pairs(draw)
    targets = torch.tensor([[0.8, 0.2]], dtype=torch.float64).expand(4, 2)
    expected = pl.cdpo(pair, beta=BETA, label_smoothing=0.2)
    torch.testing.assert_close(pl.info_nca(pair.ranked(), targets, beta=BETA), expected)
    torch.testing.assert_close(pl.rpo(pair, like(pair, math.log(4.0)), beta=BETA) - expected, -exact.entropy(targets))


def test_special_cases_of_others(draw):
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


def test_beta_to_zero_forgets_the_margin(draw):
    pair = pairs(draw)
    torch.testing.assert_close(pl.dpo(pair, beta=1e-12), ONES * math.log(2.0))


def test_a_larger_reference_point_makes_gains_harder(draw):
    batch = pairs(draw).unpaired()
    near, far = (pl.kto(batch, torch.tensor(z, dtype=torch.float64), beta=BETA) for z in (0.1, 2.0))
    assert bool(((far > near) == batch.desirable).all())


def test_kto_saturates_where_bco_does_not():
    """An answer that is hopelessly wrong is given up by KTO and pulled with full force by BCO."""
    logps = torch.tensor([-200.0, -5.0], dtype=torch.float64, requires_grad=True)
    batch = UnpairedLogps(logps, torch.tensor([-5.0, -5.0], dtype=torch.float64), None, torch.tensor([True, True]))
    given_up = exact.gradient(pl.kto(batch, torch.tensor(0.0), beta=BETA).sum(), logps)
    pulled = exact.gradient(pl.bco(batch, torch.tensor(0.0), beta=BETA).sum(), logps)
    assert abs(float(given_up[0])) < 1e-30
    assert float(pulled[0]) == pytest.approx(-BETA)


def test_moving_mean_of_delta(draw):
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
def test_narrow_types_stay_within_the_stated_error(name, dtype, error, draw):
    """``|loss − float64 loss| ≤ error · max(1, |loss|)`` on the same, already rounded, inputs."""
    narrow = mapped(batch_for(name, draw), lambda x: x.to(dtype))
    got, expected = LOSSES[name](narrow), LOSSES[name](mapped(narrow, torch.Tensor.double))
    assert got.dtype == dtype
    assert float(((got.double() - expected).abs() / expected.abs().clamp(min=1)).max()) <= error


@every_loss
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_extreme_log_probabilities_stay_finite(name, dtype, draw):
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
def test_certain_answers_have_finite_odds(dtype):
    """A mean log-probability of exactly 0 would have infinite odds."""
    zero, lengths = torch.zeros(1, dtype=dtype, requires_grad=True), torch.ones(1)
    for pair in (
        PairLogps(zero, zero - 1, chosen_lengths=lengths, rejected_lengths=lengths),
        PairLogps(zero - 1, zero, chosen_lengths=lengths, rejected_lengths=lengths),
    ):
        loss = pl.orpo(pair, beta=BETA)
        assert bool(loss.isfinite().all()) and bool(exact.gradient(loss.sum(), zero).isfinite().all())
    assert bool(pl.unlikelihood(zero[None], torch.ones(1, 1, dtype=torch.bool)).isfinite().all())


def test_padding_does_not_reach_unlikelihood(draw):
    logps, mask = draw.logps(3, 4), draw.mask(3, 4)
    expected = pl.unlikelihood(logps, mask)
    dirty = torch.where(mask, logps, torch.nan).requires_grad_()
    loss = pl.unlikelihood(dirty, mask)
    torch.testing.assert_close(loss, expected)
    assert bool(exact.gradient(loss.sum(), dirty).isfinite().all())


# -- worked examples ---------------------------------------------------------------------------------------------

REF = torch.tensor([0.5, 0.3, 0.2], dtype=torch.float64)
REWARDS = torch.tensor([1.0, 0.0, -1.0], dtype=torch.float64)


@pytest.mark.parametrize(
    ("psi", "expected"), [(torch.logit, [0.7844, 0.1731, 0.0425]), (lambda p: p, [0.5712, 0.2765, 0.1524])]
)
def test_psi_po_with_logit_and_identity(psi, expected):
    """Chapter 05's example, β = 1, the opponent drawn from the reference."""
    preferences = torch.sigmoid(REWARDS[:, None] - REWARDS[None, :])
    got = pl.psi_po_optimum(REF.log(), preferences, REF, beta=1.0, psi=psi).exp()
    torch.testing.assert_close(got, torch.tensor(expected, dtype=torch.float64), rtol=0, atol=5e-5)


def test_plackett_luce_of_two_one_zero():
    scores = torch.tensor([[2.0, 1.0, 0.0]], dtype=torch.float64)
    batch = ListLogps(scores / BETA, torch.zeros_like(scores))
    assert float(pl.ranking_probability(batch, beta=BETA)) == pytest.approx(0.486330, abs=5e-7)


def test_conservative_dpo_stops_at_log_nine():
    margin = torch.tensor([math.log(9.0) / BETA], dtype=torch.float64, requires_grad=True)
    zero = torch.zeros(1, dtype=torch.float64)
    loss = pl.cdpo(PairLogps(margin, zero, zero, zero), beta=BETA, label_smoothing=0.1)
    assert float(exact.gradient(loss.sum(), margin)) == pytest.approx(0.0, abs=1e-12)


def test_dpo_starts_at_log_two_with_half_of_beta_as_weight(draw):
    pair = pairs(draw)
    start = replace(pair, chosen=pair.ref_chosen, rejected=pair.ref_rejected)
    torch.testing.assert_close(pl.dpo(start, beta=BETA), ONES * 0.6931471805599453)
    torch.testing.assert_close(pl.dpo_gradient_weight(start, beta=BETA), ONES * BETA / 2)


def test_certain_labels_ignore_beta():
    """Whatever β is, the population loss of labels that never flip falls for ever: no KL is reached and kept."""
    zero = torch.zeros(1, dtype=torch.float64)
    for beta in (0.01, 0.1, 1.0):
        losses = [
            float(pl.dpo(PairLogps(zero + h / beta, zero, zero, zero), beta=beta)) for h in (0.0, 5.0, 20.0, 40.0)
        ]
        assert losses == sorted(losses, reverse=True) and losses[-1] < 1e-15


# -- bad input ---------------------------------------------------------------------------------------------------

X = torch.zeros(3)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: PairLogps(X, torch.zeros(4)), r"rejected has shape \(4,\); expected \(B\) with B = 3"),
        (lambda: PairLogps(X[:, None], X), r"chosen has shape \(3, 1\); expected \(B\)"),
        (lambda: PairLogps(X, X, X, X[:1]), r"ref_rejected has shape \(1,\)"),
        (lambda: PairLogps(X, X, ref_chosen=X), "one of ref_chosen and ref_rejected but not the other"),
        (lambda: PairLogps(X, X, rejected_lengths=X + 1), "one of chosen_lengths and rejected_lengths"),
        (lambda: PairLogps(X + torch.nan, X), r"chosen of shape \(3,\) holds 3 non-finite"),
        (lambda: PairLogps(X, X, chosen_lengths=X + 1, rejected_lengths=X), "rejected_lengths .* a length below 1"),
        (lambda: UnpairedLogps(X, X, None, X), "desirable .* expected bool"),
        (lambda: UnpairedLogps(X, torch.zeros(2), None, X > 0), r"ref_logps has shape \(2,\)"),
        (lambda: ListLogps(X), r"logps has shape \(3,\); expected \(B, K\)"),
        (lambda: ListLogps(X[:, None]), r"logps has shape \(3, 1\).* K ≥ 2"),
        (lambda: ListLogps(torch.zeros(3, 2), torch.zeros(2, 3)), r"ref_logps has shape \(2, 3\)"),
    ],
)
def test_records_refuse(make, message):
    with pytest.raises(ValueError, match=message):
        make()


PAIR = PairLogps(X - 1, X - 2, X - 1, X - 2, X + 2, X + 3)
SINGLE = PAIR.unpaired()
LIST = PAIR.ranked()


@every_loss
def test_the_wrong_record_names_the_losses_that_take_it(name):
    right = Needs.of(getattr(pl, name)).record
    for wrong, example in ((PAIR, "dpo"), (SINGLE, "kto"), (LIST, "plackett_luce_dpo")):
        if type(wrong) is right:
            continue
        with pytest.raises(
            TypeError, match=rf"{name} takes {right.__name__}, not {type(wrong).__name__}.*\b{example}\b"
        ):
            LOSSES[name](wrong) if name not in LISTED else getattr(pl, name)(wrong, beta=BETA)
    with pytest.raises(TypeError, match=f"{name} takes {right.__name__}, not Tensor"):
        getattr(pl, name)(X, beta=BETA)


@pytest.mark.parametrize("name", sorted(n for n in PAIRED if Needs.of(getattr(pl, n)).reference))
def test_a_missing_reference_names_the_losses_that_need_none(name):
    bare = replace(PAIR, ref_chosen=None, ref_rejected=None)
    with pytest.raises(ValueError, match=rf"{name} needs the reference.*\bsimpo\b"):
        PAIRED[name](bare)


@pytest.mark.parametrize("name", sorted(UNPAIRED) + sorted(LISTED))
def test_a_missing_reference_of_other_records(name):
    bare = replace(SINGLE if name in UNPAIRED else LIST, ref_logps=None)
    with pytest.raises(ValueError, match=f"{name} needs the reference.*do without: none"):
        LOSSES[name](bare)


@pytest.mark.parametrize("name", sorted(n for n in PAIRED if Needs.of(getattr(pl, n)).lengths))
def test_missing_lengths(name):
    bare = replace(PAIR, chosen_lengths=None, rejected_lengths=None)
    with pytest.raises(ValueError, match=f"{name} needs the answers' lengths"):
        PAIRED[name](bare)


def test_ipo_needs_lengths_only_to_normalise():
    bare = replace(PAIR, chosen_lengths=None, rejected_lengths=None)
    assert pl.ipo(bare, beta=BETA).shape == (3,)
    with pytest.raises(ValueError, match="chosen_lengths is missing"):
        pl.ipo(bare, beta=BETA, length_normalised=True)


def test_reference_free_losses_need_no_reference():
    bare = replace(PAIR, ref_chosen=None, ref_rejected=None)
    free = Needs.losses(PairLogps, reference=False)
    assert free == ["alpha_po", "cpo", "likelihood_contrast", "orpo", "simpo", "slic"]
    for name in free:
        torch.testing.assert_close(PAIRED[name](bare), PAIRED[name](PAIR))


@pytest.mark.parametrize("name", sorted(n for n in LOSSES if "beta" in inspect.signature(getattr(pl, n)).parameters))
@pytest.mark.parametrize("beta", [0.0, -0.1, math.nan, math.inf])
def test_beta_must_be_positive(name, beta):
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
    with pytest.raises(ValueError, match="beta = "):
        loss(batch, beta=beta, **wanted)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: pl.cdpo(PAIR, beta=BETA, label_smoothing=0.6), "label_smoothing = 0.6"),
        (lambda: pl.robust_dpo(PAIR, beta=BETA, label_smoothing=0.5), "label_smoothing = 0.5"),
        (lambda: pl.exo_pair(PAIR, beta=BETA, label_smoothing=0.0), "label_smoothing = 0.0"),
        (lambda: pl.simpo(PAIR, beta=BETA, gamma=-1.0), "gamma = -1.0"),
        (lambda: pl.alpha_po(PAIR, beta=BETA, alpha=math.inf), "alpha = inf"),
        (lambda: pl.f_prime_alpha(X, alpha=0.0), "alpha = 0.0"),
        (lambda: pl.dpo_positive(PAIR, beta=BETA, penalty=-1.0), "penalty = -1.0"),
        (lambda: pl.dpo_nll(PAIR, beta=BETA, nll_weight=-1.0), "nll_weight = -1.0"),
        (lambda: pl.slic(PAIR, delta=0.0, nll_weight=0.1), "delta = 0.0"),
        (lambda: pl.likelihood_contrast(PAIR, weight=-1.0), "weight = -1.0"),
        (lambda: pl.odpo(PAIR, X[:2], beta=BETA), r"margin has shape \(2,\)"),
        (lambda: pl.rpo(PAIR, X[:2], beta=BETA), r"reward_margin has shape \(2,\)"),
        (lambda: pl.rebel(PAIR, X + torch.nan, beta=BETA), r"reward_margin of shape \(3,\) holds 3 non-finite"),
        (lambda: pl.kto(SINGLE, X, beta=BETA), r"reference_point has shape \(3,\)"),
        (lambda: pl.kto(SINGLE, X[0], beta=BETA, desirable_weight=0.0), "desirable_weight = 0.0"),
        (lambda: pl.kto_reference_point(X[:0], X[:0]), r"logps has shape \(0,\)"),
        (lambda: pl.bco(SINGLE, X, beta=BETA), r"delta has shape \(3,\)"),
        (lambda: pl.bco_delta(SINGLE, beta=BETA, decay=2.0), "decay = 2.0"),
        (lambda: pl.info_nca(LIST, torch.ones(3, 2), beta=BETA), "sum to 1"),
        (lambda: pl.nca(LIST, torch.full((3, 3), 1 / 3), beta=BETA), r"targets has shape \(3, 3\)"),
        (lambda: pl.exo(LIST, torch.eye(2)[[0, 0, 1]], beta=BETA), "hold a zero"),
        (lambda: pl.orpo(replace(PAIR, chosen=X + 1), beta=BETA), "chosen .* above 0"),
        (lambda: pl.unlikelihood(X[None], torch.zeros(1, 3)), "no sampled token"),
        (lambda: pl.psi_reward(torch.full((3, 3), 0.6), X, psi=torch.logit), "must be 1"),
        (lambda: pl.psi_po_optimum(X, torch.full((3, 3), 0.5), X[:2], beta=1.0, psi=torch.logit), "opponent has shape"),
        (lambda: pl.reward_targets(X, temperature=1.0), r"rewards has shape \(3,\)"),
        (lambda: pl.nash_md(X, X, torch.full((3, 3), 0.5), beta=0.5, step=3.0), "step_times_beta = 1.5"),
        (lambda: pl.nash_md(X, X[:2], torch.full((3, 3), 0.5), beta=0.5, step=1.0), "ref_logps has shape"),
        (lambda: pl.dpo_displacement(X, torch.eye(2), 0, 1), "features has shape"),
        (lambda: Needs.of(torch.sigmoid), "no preference loss"),
    ],
)
def test_bad_arguments_are_named(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_needs_looks_through_partials():
    loss = functools.partial(functools.partial(pl.simpo, beta=2.0), gamma=0.5)
    assert Needs.of(loss) == Needs(PairLogps, reference=False, lengths=True, per_token=True)
    assert Needs.of(pl.kto) == Needs(UnpairedLogps, reference=True, lengths=False)


def test_in_a_table_the_chosen_answer_always_rises_and_nothing_is_created(draw):
    logps = draw.distribution(5).log()
    rates = pl.dpo_displacement(logps, torch.eye(5, dtype=torch.float64), 0, 1)
    assert rates[0] > 0 > rates[1]
    similar = pl.dpo_displacement(logps, draw.normal(5, 2), 0, 1)
    torch.testing.assert_close((logps.exp() * similar).sum(), torch.zeros((), dtype=torch.float64), atol=1e-12, rtol=0)


def test_small_steps_of_nash_md_lead_to_the_policy_that_is_its_own_best_response():
    """Where preferences go in circles; the error is of the order of the step."""
    circle = torch.tensor([[0.5, 0.9, 0.1], [0.1, 0.5, 0.9], [0.9, 0.1, 0.5]], dtype=torch.float64)
    ref, errors = torch.tensor([0.6, 0.25, 0.15], dtype=torch.float64).log(), []
    for step in (0.4, 0.1):
        x = ref
        for _ in range(int(400 / step)):
            x = pl.nash_md(x, ref, circle, beta=0.2, step=step)
        response = pl.psi_po_optimum(ref, circle, x.exp(), beta=0.2, psi=lambda p: p)
        errors.append(float((response.exp() - x.exp()).abs().max()))
    assert errors[1] < 0.4 * errors[0] < 0.05


def test_records_cannot_be_changed():
    one = torch.zeros(1)
    records = PairLogps(one, one), UnpairedLogps(one, None, None, one.bool()), ListLogps(torch.zeros(1, 2))
    for record in records:
        with pytest.raises(FrozenInstanceError):
            record.chosen = one
