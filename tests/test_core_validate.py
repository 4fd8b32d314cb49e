"""Bad input gives one clear error that names the argument."""

import inspect
import math
import re

import numpy as np
import pytest
import torch
from facts import raises, require

from minirlhf.core import validate
from minirlhf.core.errors import ArgumentError, UserError, unknown


def test_require_shapes_bind_their_letters():
    logps, rewards = torch.zeros(2, 3), torch.zeros(2)
    assert validate.require_shapes(logps=(logps, "B T"), rewards=(rewards, "B")) == {"B": 2, "T": 3}
    with raises(ArgumentError, argument="rewards", value=(2,), expected="(B, T)", problem="shape"):
        validate.require_shapes(logps=(logps, "B T"), rewards=(rewards, "B T"))
    with raises(ArgumentError, argument="rewards", value=(2,), expected="(T)"):
        validate.require_shapes(logps=(logps, "B T"), rewards=(rewards, "T"))
    with raises(ArgumentError, argument="mask", value=(2, 1)):
        validate.require_shapes(logps=(logps, "B T"), mask=(logps[:, :1], "B T"))
    with raises(ArgumentError, argument="logps", value=(2, 3), expected="(2, 4)"):
        validate.require_shapes(logps=(logps, "2 4"))


def test_require_finite_where_looks_under_the_mask_only():
    x = torch.tensor([[1.0, math.nan], [math.inf, 2.0]])
    with raises(ArgumentError, argument="x", value=2, problem="not finite"):
        validate.require_finite(x=x)
    validate.require_finite_where(torch.tensor([[1, 0], [0, 1]]), x=x)
    with raises(ArgumentError, argument="x", value=1, problem="not finite"):
        validate.require_finite_where(torch.tensor([[1, 0], [1, 1]]), x=x)


@pytest.mark.parametrize(
    ("mask", "value", "problem"),
    [
        (torch.ones(3), (3,), "shape"),
        (torch.tensor([[0, 2]]), None, None),
        (torch.tensor([[0.5, 1.0]]), None, None),
        (torch.tensor([[1, 1], [0, 0], [0, 0]]), [1, 2], "empty"),
        (torch.zeros(1, 2, dtype=torch.bool), [0], "empty"),
    ],
)
def test_require_mask_names_what_is_wrong(mask, value, problem):
    with raises(ArgumentError, argument="mask", value=value, problem=problem):
        validate.require_mask(mask)
    validate.require_mask(torch.tensor([[0, 1], [1, 1]]))


@pytest.mark.parametrize("value", [0.0, -1.0, math.inf, math.nan])
def test_require_positive_rejects(value):
    with raises(ArgumentError, argument="beta", value=value):
        validate.require_positive(beta=value)
    validate.require_positive(beta=0.1, gamma=3)


@pytest.mark.parametrize("value", [-0.1, 1.1, math.nan])
def test_require_range_rejects(value):
    with raises(ArgumentError, argument="lam", value=value, expected=(0, 1)):
        validate.require_range(0, 1, lam=value)
    validate.require_range(0, 1, gamma=0, lam=1.0)


def test_unknown_name_gets_the_nearest_one():
    problem = unknown("recipe", "grop", ["grpo", "ppo", "rloo"])
    assert isinstance(problem, UserError)
    require(problem, argument="recipe", value="grop", expected="grpo", problem="unknown")
    require(unknown("recipe", "zzz", ["rloo", "grpo"]), value="zzz", expected=["grpo", "rloo"])
    many = [f"eq:label-{i}" for i in range(100)]  # a long list is not printed where the nearest name is known
    assert "eq:label-7" in str(unknown("label", "eq:labl-7", many)) and "eq:label-99" not in str(
        unknown("label", "eq:labl-7", many)
    )


# -- what functions declare ----------------------------------------------------------------------------------------


@validate.takes(mask=validate.MASK, x=validate.under_mask(), rewards="B", gamma=validate.UNIT, n=validate.at_least(1))
def declared(x, rewards, mask, *, gamma=1.0, n=1, extra=None):
    """First line.

    Label: eq:made-up
    """
    return x, rewards, mask, gamma, n, extra


MASK = torch.tensor([[1, 1, 0], [1, 0, 0]])
X = torch.tensor([[1.0, 2.0, math.nan], [3.0, math.inf, 4.0]])


def test_takes_hands_arguments_on_as_they_were_given():
    arguments = X, torch.zeros(2), MASK
    for result in (declared(*arguments, gamma=0.5), declared(X, mask=MASK, rewards=arguments[1], gamma=0.5)):
        assert all(a is b for a, b in zip(result, (*arguments, 0.5, 1, None), strict=True))
    assert declared.__wrapped__(*arguments) == (*arguments, 1.0, 1, None)
    assert str(inspect.signature(declared)) == "(x, rewards, mask, *, gamma=1.0, n=1, extra=None)"
    with pytest.raises(TypeError, match="mask"):
        declared(X, rewards=torch.zeros(2))


@pytest.mark.parametrize(
    ("change", "facts"),
    [
        ({"x": X[:, :2]}, {"value": (2, 2), "expected": "(B, T)"}),
        ({"x": X.clone().fill_(math.nan)}, {"value": 3, "problem": "not finite"}),
        ({"rewards": torch.zeros(3)}, {"value": (3,), "expected": "(B)"}),
        ({"rewards": torch.tensor([0.0, math.inf])}, {"value": 1, "problem": "not finite"}),
        ({"mask": MASK * 0}, {"value": [0, 1], "problem": "empty"}),
        ({"gamma": 1.5}, {"value": 1.5, "expected": "[0, 1]"}),
        ({"gamma": math.nan}, {"value": math.nan}),
        ({"gamma": "0.5"}, {"value": "0.5", "expected": "[0, 1]"}),
        ({"x": X.tolist()}, {"value": "list", "expected": "(B, T)", "problem": "type"}),
        ({"rewards": 1.0}, {"value": "float", "problem": "type"}),
        ({"mask": MASK.numpy()}, {"value": "ndarray", "expected": "(B, T)", "problem": "type"}),
        ({"n": 0}, {"value": 0, "expected": 1}),
        ({"n": 2.5}, {"value": 2.5, "expected": 1}),
        ({"n": 2.0}, {"value": 2.0, "expected": 1}),
    ],
)
def test_takes_names_a_bad_argument(change, facts):
    (name,) = change
    with raises(ArgumentError, argument=name, **facts):
        declared(**{"x": X, "rewards": torch.zeros(2), "mask": MASK} | change)


def test_takes_ends_the_docstring_and_knows_its_arguments():
    assert declared.__doc__.splitlines()[:3] == ["First line.", "", "Label: eq:made-up"]
    rules = {"mask": "(B, T)", "x": "(B, T)", "rewards": "(B,)", "gamma": "[0, 1]", "n": "1"}
    *_, said = declared.__doc__.splitlines()
    assert all(re.search(rf"\b{name}: [^;]*{re.escape(rule)}", said) for name, rule in rules.items())
    assert declared.__rules__.keys() == rules.keys()
    with pytest.raises(TypeError, match="betta"):
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
    ("rule", "good", "bad", "facts"),
    [
        (validate.shape("... V"), torch.zeros(2, 3), torch.tensor(1.0), {"value": (), "expected": "(..., V)"}),
        (validate.shape("K ... V"), torch.zeros(4, 2), torch.zeros(4), {"value": (4,), "expected": "(K, ..., V)"}),
        (validate.finite("N", "[0, 1)"), torch.tensor([0.0, 0.9]), torch.tensor([1.0]), {"expected": "[0, 1)"}),
        (validate.finite("N", "(0, 1]"), torch.tensor([0.1, 1.0]), torch.tensor([0.0]), {"expected": "(0, 1]"}),
        (validate.distribution("S A"), torch.full((2, 2), 0.5), torch.eye(2) * 2, {"problem": "distribution"}),
        (
            validate.boolean("N"),
            torch.tensor([True]),
            torch.tensor([1]),
            {"value": torch.int64, "expected": torch.bool},
        ),
        (validate.number("(0, inf]"), math.inf, 0.0, {"value": 0.0, "expected": "(0, inf]"}),
        (validate.number("[0, 1)", "or else"), 0, 1, {"value": 1, "expected": "[0, 1)"}),
        (validate.POSITIVE, 1, 0, {"value": 0}),
        (validate.POSITIVE, torch.tensor(0.5), "a", {"value": "a"}),
        (validate.FINITE, np.float32(2), [1.0], {"value": [1.0]}),
        (validate.NOT_NEGATIVE, 0, math.inf, {"value": math.inf}),
        (validate.FINITE, -1, math.nan, {"value": math.nan}),
        (validate.DDOF, 1, 2, {"value": 2}),
    ],
)
def test_rules_take_what_is_right_and_name_what_is_wrong(rule, good, bad, facts):
    body = validate.takes(x=rule)(lambda x: x)
    assert body(good) is good and body(None) is None
    with raises(ArgumentError, argument="x", **facts):
        body(bad)


@pytest.mark.parametrize("n", [1, 7, True, torch.tensor(3)])
def test_at_least_takes_whatever_counts_as_an_integer(n):
    assert validate.takes(n=validate.at_least(1))(lambda n: n)(n) is n


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32, torch.float64])
def test_require_distributions_allow_rounding_and_no_more(dtype, suite_seed):
    """What was computed exactly and then stored passes in every precision; a hundredth too much, or .05 in the half ones, not."""
    rng = torch.Generator().manual_seed(suite_seed)
    for size in (2, 50, 5000):
        exact = (2 * torch.randn(20, size, dtype=torch.float64, generator=rng)).softmax(-1)
        validate.require_distributions(p=exact.to(dtype))
        too_much = 1.05 if dtype in (torch.bfloat16, torch.float16) else 1.01
        for off in (too_much, 1 / too_much):
            with raises(ArgumentError, argument="p", problem="distribution"):
                validate.require_distributions(p=(exact * off).to(dtype))


def test_takes_shares_leading_axes():
    body = validate.takes(a="... N", b=validate.shape("..."))(lambda a, b: None)
    body(torch.zeros(2, 3, 4), torch.zeros(2, 3))
    with raises(ArgumentError, argument="b", value=(2,), expected="(...)"):
        body(torch.zeros(2, 3, 4), torch.zeros(2))
