"""Merge several models into one by averaging their weights."""

from __future__ import annotations

import copy
from collections.abc import Sequence

import torch
from torch import nn

from minirlhf.core.errors import ArgumentError, UserError
from minirlhf.equations.merging import weight_average


@torch.no_grad()
def merge(models: Sequence[nn.Module], weights: Sequence[float]) -> nn.Module:
    """Return a new model whose weights are the weighted mean of the models' weights. The models themselves do not
    change.

    Merging makes sense for models that were fine-tuned from one initial model. Two unrelated models can have the same
    shapes and different internal representations; this function cannot detect that.

    Args:
        models: at least one, all of one architecture.
        weights: one per model, with sum 1. A negative weight subtracts a model's influence.

    Raises:
        UserError: the models do not have the same weights, by name and shape.
        ValueError: the number of weights is not the number of models, or the weights do not sum to 1.
    """
    if len(models) != len(weights) or not models:
        message = f"{len(models)} models and {len(weights)} weights; expected as many, at least one"
        raise ArgumentError(message, argument="weights", value=len(weights), expected=len(models))
    states = [model.state_dict() for model in models]
    for number, state in enumerate(states[1:], 2):
        _require_alike(states[0], state, number)
    coefficients = torch.tensor(list(weights), dtype=torch.float64)
    merged = copy.deepcopy(models[0])
    merged.load_state_dict(
        {
            name: weight_average(torch.stack([state[name] for state in states]), coefficients.to(tensor.device))
            if tensor.is_floating_point()
            else tensor  # counters and indices are not averaged
            for name, tensor in states[0].items()
        }
    )
    return merged


def _require_alike(first: dict[str, torch.Tensor], other: dict[str, torch.Tensor], number: int) -> None:
    if unmatched := sorted(first.keys() ^ other.keys()):
        message = f"models 1 and {number} cannot be merged: only one of them has the weight {unmatched[0]!r}"
        raise UserError(message, argument=unmatched[0], value=number, problem="missing")
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
