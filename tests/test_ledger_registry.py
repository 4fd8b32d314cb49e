"""The check registry refuses what proves nothing and reports what fails."""

import math

import pytest
import torch
from facts import raises

from minirlhf_course.ledger import registry
from minirlhf_course.ledger.pages import outcome
from minirlhf_course.ledger.registry import Draw, Ledger, chain, check, discrepancy, evaluate, run, run_wrong


def double(x):
    return 2 * x


def register(ledger, label="eq:double", claim="value", compare=None, **changes):
    """A good check of :func:`double`, with one thing changed."""

    def sound(f, draw):
        x = draw.normal(3)
        return f(x), x + x

    options = {
        "statement": "Doubling is adding to itself.",
        "of": double,
        "against": "addition",
        "wrong": {"tripled": lambda x: 3 * x},
        "ledger": ledger,
    }
    check(label, claim, **(options | changes))(compare or sound)
    return ledger.checks[label, claim]


@pytest.fixture
def ledger():
    return Ledger()


# -- registration ------------------------------------------------------------------------------------------------


def test_run_passes_a_sound_check_and_rejects_its_wrong_variant(ledger, suite_seed):
    entry = register(ledger)
    assert run(entry, suite_seed).passed
    assert evaluate(entry, entry.wrong["tripled"], suite_seed) > 1000 * entry.tolerance
    assert entry.key == ("eq:double", "value")
    assert entry.statement == "Doubling is adding to itself."


def test_check_key_is_used_once(ledger):
    register(ledger)
    register(ledger, claim="gradient")
    with raises(ValueError, argument="check", value=("eq:double", "value"), problem="duplicate"):
        register(ledger)


def test_check_without_wrong_variant_or_statement_is_refused(ledger):
    with raises(ValueError, argument="wrong", problem="empty"):
        register(ledger, wrong={})
    with raises(ValueError, argument="statement", problem="empty"):
        register(ledger, statement="")


@pytest.mark.parametrize(
    "label", ["double", "eq:", "eq:Double", "eq:two words", "eq:a--b", "eq:-a", "eq:a-", "Eq:a", "eq:ü"]
)
def test_check_label_of_another_form_is_refused(ledger, label):
    with raises(ValueError, argument="label", value=label):
        register(ledger, label=label)


def test_check_chapter_is_read_from_the_module(ledger):
    def compare(f, draw):
        """A statement."""
        return 1.0, 1.0

    compare.__module__ = "minirlhf_course.chapters.ch13_group_relative_methods.checks"
    assert register(ledger, compare=compare).chapter == 13
    assert (
        chain(
            "a",
            "A derivation",
            ["eq:a", "eq:b"],
            module="minirlhf_course.chapters.ch07_preference_data.checks",
            ledger=ledger,
        ).chapter
        == 7
    )
    with raises(ValueError, argument="chain", value="a", problem="duplicate"):
        chain("a", "Another", ["eq:a"], module="minirlhf_course.chapters.ch07_preference_data.checks", ledger=ledger)


def test_ledger_select_by_label_and_by_chapter(ledger):
    register(ledger)
    register(ledger, claim="gradient")
    register(ledger, label="eq:twice")
    assert ledger.labels() == ["eq:double", "eq:twice"]
    assert len(ledger.select()) == 3
    assert [c.key for c in ledger.select(["eq:double"])] == [("eq:double", "value"), ("eq:double", "gradient")]
    assert ledger.select(chapter=5) == []


# -- results -----------------------------------------------------------------------------------------------------


def test_run_error_depends_on_seed_and_claim(ledger):
    entry = register(ledger, of=lambda x: 2 * x + 1e-3 * x.abs())
    assert run(entry, 1).error == run(entry, 1).error
    assert run(entry, 1).error != run(entry, 2).error
    other = register(ledger, claim="another", of=entry.of)
    assert run(other, 1).error != run(entry, 1).error, "each claim draws inputs of its own"


def test_run_with_exception_fails_and_keeps_its_seed(ledger):
    def broken(x):
        raise RuntimeError("no luck")

    result = run(register(ledger, of=broken), 77)
    assert not result.passed
    assert result.error == math.inf
    assert result.seed == 77
    assert result.message == "RuntimeError: no luck"


@pytest.mark.parametrize(
    "of",
    [
        pytest.param(lambda x: x * math.nan, id="nan"),
        pytest.param(lambda x: x / 0, id="infinite"),
        pytest.param(lambda x: 2 * x[:2], id="shorter"),
        pytest.param(lambda x: (2 * x)[None], id="one axis more"),
        pytest.param(lambda x: 2 * x[:1], id="would broadcast"),
        pytest.param(lambda x: 2 * x + 1e-6, id="slightly off"),
    ],
)
def test_run_fails_on_unequal_values(ledger, of):
    assert not run(register(ledger, of=of), 0).passed


def test_run_error_is_the_worst_of_several_comparisons(ledger):
    def compare(f, draw):
        """Three times the same."""
        for shift in (0.0, 0.5, 0.1):
            yield f(torch.ones(2)), torch.full((2,), 2.0) + shift

    assert run(register(ledger, compare=compare), 0).error == pytest.approx(0.5 / 2.5)


def test_run_fails_when_nothing_is_compared(ledger):
    def no_pairs(f, draw):
        """Nothing follows."""
        return []

    def no_entries(f, draw):
        """Empty tensors."""
        return torch.zeros(0), torch.zeros(0)

    for claim, compare in (("pairs", no_pairs), ("entries", no_entries)):
        result = run(register(ledger, claim=claim, compare=compare), 0)
        assert result.error == math.inf and result.message.startswith("ValueError")


def test_discrepancy_is_relative_above_one_and_absolute_below():
    assert discrepancy(101.0, 100.0) == pytest.approx(0.01)
    assert discrepancy(0.02, 0.01) == pytest.approx(0.01)
    assert discrepancy(torch.tensor([1.0, 4.0]), torch.tensor([1.0, 2.0])) == 1.0
    assert discrepancy(1.0, math.nan) == math.inf
    assert discrepancy(math.inf, math.inf) == math.inf, "two infinities prove nothing"


@pytest.mark.parametrize(
    ("variant", "error", "message"),
    [
        pytest.param(lambda x: 3 * x, 0.5, "", id="a finite wrong value"),
        pytest.param(lambda x: 2 * x, 0.0, "", id="the right value"),
        pytest.param(lambda x: x / 0 if x[0] == 1 else 3 * x, 0.5, "", id="infinite in one comparison only"),
        pytest.param(lambda x: x / 0, math.inf, "ValueError", id="infinite"),
        pytest.param(lambda x: 2 * x[:1], math.inf, "ValueError", id="another shape"),
        pytest.param(lambda x: undefined, math.inf, "NameError", id="an exception"),  # noqa: F821
    ],
)
def test_run_wrong_judges_a_variant_by_its_finite_values(ledger, variant, error, message):
    def compare(f, draw):
        """Twice."""
        yield f(torch.ones(2)), torch.full((2,), 2.0)
        yield f(torch.full((2,), 2.0)), torch.full((2,), 4.0)

    result = run_wrong(register(ledger, compare=compare), variant, 0)
    assert result.error == error
    assert result.message.partition(":")[0] == message


def test_outcome_asks_an_accepted_variant_on_two_more_seeds(ledger):
    """Where the first inputs do not show a fault by chance, the next do; a variant that is right stays accepted."""
    drawn = []

    def compare(f, draw):
        """Inputs that are 0 on the first seed."""
        drawn.append(float(draw.normal()))
        x = torch.ones(2) * float(drawn[-1] != drawn[0])
        yield f(x), 2 * x

    entry = register(ledger, compare=compare, wrong={"tripled": lambda x: 3 * x, "right": lambda x: x + x})
    found = outcome(entry, 5)
    assert found.accepted == ["right"]
    assert [found.wrong[name].seed for name in ("tripled", "right")] == [6, 7]


# -- inputs ------------------------------------------------------------------------------------------------------


def test_draw_methods_return_what_they_name(suite_seed):
    draw = Draw(suite_seed)
    for _ in range(50):
        p = draw.distribution(3, 4)
        assert torch.allclose(p.sum(-1), torch.ones(3, dtype=p.dtype)) and p.min() > 0.002
        assert draw.logps(20).min() >= -4 and draw.logps(20).max() <= -0.05
        assert 2 <= draw.integer(2, 4) <= 4
        assert sorted(draw.permutation(5).tolist()) == [0, 1, 2, 3, 4]
        mask = draw.mask(3, 5)
        assert mask.any(-1).all() and mask.all(-1).any()
        assert (mask[:, 1:] <= mask[:, :-1]).all(), "padded on the right"
        assert draw.holed_mask(3, 5)[:, -1].all()
        for shape in ((2, 2), (3, 5)):  # two of two columns are all valid in every fourth draw, without the rule
            assert not draw.mask(*shape).all() and not draw.holed_mask(*shape).all()
        x = draw.away_from([0.8, 1.2], 30, low=0.5, high=1.5, margin=0.05)
        assert min((x - 0.8).abs().min(), (x - 1.2).abs().min()) >= 0.05
        assert x.min() >= 0.5 and x.max() < 1.5
    assert draw.integer(1, 1) == 1
    assert all(t.dtype == torch.float64 for t in (draw.uniform(1), draw.normal(1), draw.distribution(2), draw.logps(1)))


def test_draw_away_from_without_room_is_refused():
    with raises(ValueError, argument="margin", value=0.6):
        Draw(0).away_from([0.5], 3, low=0, high=1, margin=0.6)


def test_draw_repeats_from_its_keys():
    assert torch.equal(Draw(3, "a").normal(4), Draw(3, "a").normal(4))
    assert not torch.equal(Draw(3, "a").normal(4), Draw(3, "b").normal(4))
    assert torch.equal(Draw(3).toy().table, Draw(3).toy().table)
    assert registry.LABEL.fullmatch("eq:k3-gradient")
