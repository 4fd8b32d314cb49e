"""One model from several: the mean of their weights."""

from __future__ import annotations

import copy
from collections.abc import Sequence

import torch
from torch import nn

from minirlhf.core.errors import ArgumentError, UserError
from minirlhf.equations.merging import weight_average


@torch.no_grad()
def merge(models: Sequence[nn.Module], weights: Sequence[float]) -> nn.Module:
    """A new model whose weights are the weighted mean of the models', which are left as they are.

    It makes sense for models that were fine-tuned from one ancestor. Two that were not may have the same shape and speak
    a different language inside; nothing here can see that.

    Args:
        models: at least one, all of one architecture.
        weights: one per model, with sum 1. A negative one takes a model's influence away.

    Raises:
        UserError: the models do not have the same weights, by name and shape.
        ValueError: not one weight per model, or they do not sum to 1.
    """
    if len(models) != len(weights) or not models:
        said = f"{len(models)} models and {len(weights)} weights; expected as many, at least one"
        raise ArgumentError(said, argument="weights", value=len(weights), expected=len(models))
    states = [model.state_dict() for model in models]
    for number, state in enumerate(states[1:], 2):
        _require_alike(states[0], state, number)
    shares = torch.tensor(list(weights), dtype=torch.float64)
    merged = copy.deepcopy(models[0])
    merged.load_state_dict(
        {
            name: weight_average(torch.stack([state[name] for state in states]), shares.to(tensor.device))
            if tensor.is_floating_point()
            else tensor  # counters and indices are no weights
            for name, tensor in states[0].items()
        }
    )
    return merged


def _require_alike(first: dict[str, torch.Tensor], other: dict[str, torch.Tensor], number: int) -> None:
    if odd := sorted(first.keys() ^ other.keys()):
        said = f"models 1 and {number} cannot be merged: only one of them has the weight {odd[0]!r}"
        raise UserError(said, argument=odd[0], value=number, problem="missing")
    for name, tensor in first.items():
        if tensor.shape != other[name].shape:
            raise UserError(
                f"models 1 and {number} cannot be merged: {name!r} has shape {tuple(tensor.shape)} in one and "
                f"{tuple(other[name].shape)} in the other",
                argument=name,
                value=tuple(other[name].shape),
                expected=tuple(tensor.shape),
                problem="shape",
            )
