"""Bad input gives one clear error that names the argument."""

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
