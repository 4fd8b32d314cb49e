"""Bad input gives one clear error that names the argument."""

import inspect
import math

import pytest
import torch

from minirlhf.core import validate
from minirlhf.core.errors import UserError, unknown


def test_shapes_bind_their_letters():
    logps, rewards = torch.zeros(2, 3), torch.zeros(2)
    assert validate.require_shapes(logps=(logps, "B T"), rewards=(rewards, "B")) == {"B": 2, "T": 3}
    with pytest.raises(ValueError, match=r"rewards has shape \(2,\); expected \(B, T\)"):
        validate.require_shapes(logps=(logps, "B T"), rewards=(rewards, "B T"))
    with pytest.raises(ValueError, match=r"rewards has shape \(2,\); expected \(T\) with T = 3 \(as in logps\)"):
        validate.require_shapes(logps=(logps, "B T"), rewards=(rewards, "T"))
    with pytest.raises(ValueError, match=r"mask has shape \(2, 1\)"):
        validate.require_shapes(logps=(logps, "B T"), mask=(logps[:, :1], "B T"))
    with pytest.raises(ValueError, match=r"logps has shape \(2, 3\); expected \(2, 4\) with 4 = 4 \(fixed\)"):
        validate.require_shapes(logps=(logps, "2 4"))


def test_finite_under_the_mask_only():
    x = torch.tensor([[1.0, math.nan], [math.inf, 2.0]])
    with pytest.raises(ValueError, match=r"x of shape \(2, 2\) holds 2 non-finite"):
        validate.require_finite(x=x)
    validate.require_finite_where(torch.tensor([[1, 0], [0, 1]]), x=x)
    with pytest.raises(ValueError, match="holds 1 non-finite value"):
        validate.require_finite_where(torch.tensor([[1, 0], [1, 1]]), x=x)


@pytest.mark.parametrize(
    ("mask", "message"),
    [
        (torch.ones(3), r"shape \(3,\); expected \(B, T\)"),
        (torch.tensor([[0, 2]]), "values other than 0 and 1"),
        (torch.tensor([[0.5, 1.0]]), "values other than 0 and 1"),
        (torch.tensor([[1, 1], [0, 0], [0, 0]]), r"no sampled token in row\(s\) \[1, 2\]"),
        (torch.zeros(1, 2, dtype=torch.bool), r"no sampled token in row\(s\) \[0\]"),
    ],
)
def test_masks(mask, message):
    with pytest.raises(ValueError, match=message):
        validate.require_mask(mask)
    validate.require_mask(torch.tensor([[0, 1], [1, 1]]))


@pytest.mark.parametrize("value", [0.0, -1.0, math.inf, math.nan])
def test_positive_numbers(value):
    with pytest.raises(ValueError, match="beta = "):
        validate.require_positive(beta=value)
    validate.require_positive(beta=0.1, gamma=3)


@pytest.mark.parametrize("value", [-0.1, 1.1, math.nan])
def test_ranges(value):
    with pytest.raises(ValueError, match=r"lam = .*expected a number in \[0, 1\]"):
        validate.require_range(0, 1, lam=value)
    validate.require_range(0, 1, gamma=0, lam=1.0)


def test_an_unknown_name_gets_the_nearest_one():
    problem = unknown("recipe", "grop", ["grpo", "ppo", "rloo"])
    assert isinstance(problem, UserError)
    assert str(problem) == "unknown recipe 'grop': did you mean 'grpo'? known: grpo, ppo, rloo"
    assert str(unknown("recipe", "zzz", ["grpo"])) == "unknown recipe 'zzz': known: grpo"
    many = [f"eq:label-{i}" for i in range(100)]  # a long list is not printed where the nearest name is known
    assert str(unknown("label", "eq:labl-7", many)) == "unknown label 'eq:labl-7': did you mean 'eq:label-7'?"


# -- what functions declare ----------------------------------------------------------------------------------------


@validate.takes(mask=validate.MASK, x=validate.under_mask(), rewards="B", gamma=validate.UNIT, n=validate.at_least(1))
def declared(x, rewards, mask, *, gamma=1.0, n=1, extra=None):
    """First line.

    Label: eq:made-up
    """
    return x, rewards, mask, gamma, n, extra


MASK = torch.tensor([[1, 1, 0], [1, 0, 0]])
X = torch.tensor([[1.0, 2.0, math.nan], [3.0, math.inf, 4.0]])


def test_declared_arguments_arrive_as_they_were_given():
    arguments = X, torch.zeros(2), MASK
    for result in (declared(*arguments, gamma=0.5), declared(X, mask=MASK, rewards=arguments[1], gamma=0.5)):
        assert all(a is b for a, b in zip(result, (*arguments, 0.5, 1, None), strict=True))
    assert declared.__wrapped__(*arguments) == (*arguments, 1.0, 1, None)
    assert str(inspect.signature(declared)) == "(x, rewards, mask, *, gamma=1.0, n=1, extra=None)"
    with pytest.raises(TypeError, match="missing 1 required positional argument: 'mask'"):
        declared(X, rewards=torch.zeros(2))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"x": X[:, :2]}, r"x has shape \(2, 2\); expected \(B, T\) with T = 3 \(as in mask\)"),
        ({"x": X.clone().fill_(math.nan)}, r"x of shape \(2, 3\) holds 3 non-finite value\(s\) under the mask"),
        ({"rewards": torch.zeros(3)}, r"rewards has shape \(3,\); expected \(B\) with B = 2 \(as in mask\)"),
        ({"rewards": torch.tensor([0.0, math.inf])}, r"rewards of shape \(2,\) holds 1 non-finite"),
        ({"mask": MASK * 0}, "no sampled token"),
        ({"gamma": 1.5}, r"gamma = 1.5; expected a number in \[0, 1\]"),
        ({"gamma": math.nan}, "gamma = nan"),
        ({"n": 0}, "n = 0; expected an integer of at least 1"),
        ({"n": 2.5}, "n = 2.5; expected an integer of at least 1"),
        ({"n": 2.0}, "n = 2.0; expected an integer of at least 1"),
    ],
)
def test_what_is_declared_holds_or_the_error_names_it(change, message):
    with pytest.raises(ValueError, match=message):
        declared(**{"x": X, "rewards": torch.zeros(2), "mask": MASK} | change)


def test_a_declaration_ends_the_docstring_and_knows_its_arguments():
    assert declared.__doc__.splitlines()[:3] == ["First line.", "", "Label: eq:made-up"]
    assert declared.__doc__.splitlines()[-1] == (
        "Raises: ValueError unless mask: (B, T) of zeros and ones, no row empty; x: (B, T), finite under the mask; "
        "rewards: (B,), finite; gamma: in [0, 1]; n: an integer of at least 1."
    )
    with pytest.raises(TypeError, match="f has no argument betta"):
        validate.takes(betta=validate.POSITIVE)(f)


def f(beta):
    return beta


@pytest.mark.parametrize("gradient", [True, False])
def test_sampled_gives_zeros_outside_the_mask_and_a_gradient_only_if_asked(gradient):
    x = X.clone().requires_grad_()
    body = validate.takes(mask=validate.MASK, x=validate.sampled(gradient=gradient))(lambda x, mask: x)
    got = body(x, MASK)
    assert got.tolist() == [[1.0, 2.0, 0.0], [3.0, 0.0, 0.0]] and got.requires_grad is gradient
    if gradient:
        got.sum().backward()
        assert x.grad.tolist() == MASK.tolist()


@pytest.mark.parametrize(
    ("rule", "good", "bad", "message"),
    [
        (validate.shape("... V"), torch.zeros(2, 3), torch.tensor(1.0), r"x has shape \(\); expected \(..., V\)"),
        (validate.shape("K ... V"), torch.zeros(4, 2), torch.zeros(4), r"expected \(K, ..., V\)"),
        (validate.finite("N", "[0, 1)"), torch.tensor([0.0, 0.9]), torch.tensor([1.0]), r"outside \[0, 1\)"),
        (validate.finite("N", "(0, 1]"), torch.tensor([0.1, 1.0]), torch.tensor([0.0]), r"outside \(0, 1\]"),
        (validate.distribution("S A"), torch.full((2, 2), 0.5), torch.eye(2) * 2, "no probability distribution"),
        (validate.boolean("N"), torch.tensor([True]), torch.tensor([1]), "has dtype torch.int64; expected bool"),
        (validate.number("(0, inf]"), math.inf, 0.0, r"x = 0.0; expected a number in \(0, inf\]"),
        (validate.number("[0, 1)", "or else"), 0, 1, r"x = 1; expected a number in \[0, 1\), or else"),
        (validate.POSITIVE, 1, 0, "x = 0; expected a finite number > 0"),
        (validate.NOT_NEGATIVE, 0, math.inf, "x = inf; expected a finite number ≥ 0"),
        (validate.FINITE, -1, math.nan, "x = nan; expected a finite number"),
        (validate.DDOF, 1, 2, "x = 2; expected 0 or 1"),
    ],
)
def test_rules(rule, good, bad, message):
    body = validate.takes(x=rule)(lambda x: x)
    assert body(good) is good and body(None) is None
    with pytest.raises(ValueError, match=message):
        body(bad)


@pytest.mark.parametrize("n", [1, 7, True, torch.tensor(3)])
def test_whatever_counts_is_an_integer(n):
    assert validate.takes(n=validate.at_least(1))(lambda n: n)(n) is n


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32, torch.float64])
def test_a_distribution_may_miss_1_by_rounding_and_by_no_more(dtype, fresh_seed):
    """What was computed exactly and then stored passes in every precision; a hundredth too much, or .05 in the half ones, not."""
    rng = torch.Generator().manual_seed(fresh_seed)
    for size in (2, 50, 5000):
        exact = (2 * torch.randn(20, size, dtype=torch.float64, generator=rng)).softmax(-1)
        validate.require_distributions(p=exact.to(dtype))
        too_much = 1.05 if dtype in (torch.bfloat16, torch.float16) else 1.01
        for off in (too_much, 1 / too_much):
            with pytest.raises(ValueError, match="no probability distribution"):
                validate.require_distributions(p=(exact * off).to(dtype))


def test_leading_axes_are_shared():
    body = validate.takes(a="... N", b=validate.shape("..."))(lambda a, b: None)
    body(torch.zeros(2, 3, 4), torch.zeros(2, 3))
    with pytest.raises(ValueError, match=r"b has shape \(2,\); expected \(\.\.\.\) with \.\.\. = \(2, 3\) \(as in a\)"):
        body(torch.zeros(2, 3, 4), torch.zeros(2))
