"""Losses of your own for ``minirlhf train``: a Python file and a function in it, ``my.py:fn``.

::

    def fn(pairs: PairLogps, beta=0.1):                       # train offline --loss my.py:fn
        return -torch.nn.functional.logsigmoid(beta * pairs.margins)

    def fn(logps, mask):                                      # train sft --loss-type my.py:fn
        return -logps

    def fn(chosen_rewards, rejected_rewards):                 # train reward --loss my.py:fn
        return torch.relu(1 - chosen_rewards + rejected_rewards)

A preference loss gets a record of :mod:`minirlhf.equations.preference_losses.records`, the one that its first parameter is
annotated with (:class:`PairLogps` without an annotation), and returns one number per example; its other parameters have
defaults and are hyperparameters. A loss of supervised fine-tuning gets the log-probability of each token, ``(b, T)``, and
which of them are learned; it returns a loss per token. A loss of a reward model gets the rewards of both completions,
``(b,)`` each, and returns one number per pair.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
from collections.abc import Callable
from functools import partial
from typing import Any

from torch import Tensor

from minirlhf.core.errors import ArgumentError, UserError
from minirlhf.equations.preference_losses import ListLogps, Needs, PairLogps, UnpairedLogps
from minirlhf.feedback import custom_rewards
from minirlhf.feedback.custom_losses import call_loss, is_custom
from minirlhf.recipes.offline import PreferenceRecipe
from minirlhf.trainers.sft import LOSSES
from minirlhf_cli.files import start

RECORDS: dict[str, type[Any]] = {kind.__name__: kind for kind in (PairLogps, UnpairedLogps, ListLogps)}


def identity(name: str) -> str:
    """Return a string that identifies a loss: its name, for your own also with the digest of its file."""
    if not is_custom(name):
        return name
    file, function = custom_rewards.parse_location(name, "loss")
    return f"{function} in a file with digest {start.file_digest(file)}"


def preference_recipe(named: str) -> PreferenceRecipe:
    """Return the recipe of the preference loss ``FILE.py:NAME``.

    Raises:
        UserError: there is no such function, or it does not take one record and hyperparameters with defaults.
    """
    file, function = custom_rewards.load_function(named, "loss")
    first, *others = inspect.signature(function).parameters.values() or (None,)
    if first is None or any(parameter.default is parameter.empty for parameter in others):
        raise UserError(
            f"loss {named!r}: expected a function of one record ({', '.join(RECORDS)}), whose other parameters have defaults",
            argument="loss",
            value=named,
            expected=list(RECORDS),
            problem="parameters",
            file=file,
        )
    kind = getattr(first.annotation, "__name__", str(first.annotation)).rpartition(".")[2]
    numbers = {parameter.name: parameter.default for parameter in others}

    with contextlib.suppress(ArgumentError):
        Needs.of(function)
        return PreferenceRecipe(function.__name__, partial(function, **numbers))

    @functools.wraps(function)
    def loss(record: Any, **kwargs: Any) -> Tensor:
        value = next(iter(vars(record).values()))
        return call_loss(named, function, record, shape=value.shape[:1], grad=value.requires_grad, **kwargs)

    declared = Needs[Any](RECORDS.get(kind, PairLogps))(loss)
    return PreferenceRecipe(function.__name__, partial(declared, **numbers))


def token_objective(name: str) -> Callable[[Tensor, Tensor], Tensor]:
    """Return what supervised fine-tuning maximises, ``(logps, mask) -> (b, T)``, by the name of the loss."""
    if not is_custom(name):
        return LOSSES[name]
    _, function = custom_rewards.load_function(name, "loss")
    return lambda logps, mask: -call_loss(name, function, logps, mask, shape=logps.shape, grad=logps.requires_grad)
