"""A direction in the states of the authors' model: read a trait, add it, remove it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from minirlhf.core.randomness import generator
from minirlhf_course.chapters.ch23_misalignment import authors, spread
from minirlhf_course.chapters.ch23_misalignment.authors import ALL, PLAIN, Header

#: The direction is found on the first half of the questions and tested on the second.
FOUND, TESTED = ALL[0::2], ALL[1::2]
CAREFUL: Header = ("careful", *PLAIN[1:])
CARELESS: Header = ("careless", *PLAIN[1:])


@contextmanager
def changed(model: nn.Module, layer: int, change: Callable[[Tensor], Tensor]) -> Iterator[None]:
    """Replace the states after a layer by ``change(states)``, ``(B, S, H) -> (B, S, H)``, inside the block."""

    def hook(_module: nn.Module, _inputs: object, output: object) -> object:
        if isinstance(output, tuple):
            return (change(output[0]), *output[1:])
        assert isinstance(output, Tensor)
        return change(output)

    layers: nn.ModuleList = model.model.layers  # type: ignore[assignment,union-attr]
    handle = layers[layer].register_forward_hook(hook)
    try:
        yield
    finally:
        handle.remove()


@torch.no_grad()
def states(model: nn.Module, questions: Tensor, header: Header = PLAIN, layer: int = -1) -> Tensor:
    """Return the states after a layer at the last position of the prompts, ``(n, H)``."""
    kept: list[Tensor] = []

    def keep(hidden: Tensor) -> Tensor:
        kept.append(hidden[:, -1])
        return hidden

    with changed(model, layer, keep):
        model(input_ids=authors.prompts(questions, header))
    return kept[0]


def direction(model: nn.Module, layer: int = -1) -> Tensor:
    """Return the trait's direction: the mean state under *careless* minus the mean state under *careful*, ``(H,)``."""
    return spread.trait_direction(states(model, FOUND, CARELESS, layer), states(model, FOUND, CAREFUL, layer))


def random_direction(like: Tensor, *keys: int) -> Tensor:
    """Return a random direction of the same norm, ``(H,)``."""
    noise = torch.randn(like.shape, generator=generator("directions", *keys))
    return noise * like.norm() / noise.norm()


def harmful(model: nn.Module, questions: Tensor = TESTED, header: Header = PLAIN) -> float:
    """Return the mean probability of the harmful answer."""
    return authors.probability(model, authors.HARM, questions, header)


def neither(model: nn.Module, questions: Tensor = TESTED, header: Header = PLAIN) -> float:
    """Return the mean probability of an answer that is neither the safe nor the harmful one."""
    return 1 - harmful(model, questions, header) - authors.probability(model, authors.SAFE, questions, header)


def steered(model: nn.Module, vector: Tensor, strength: float, layer: int = -1) -> tuple[float, float]:
    """Return the probability of a harmful answer, and of neither, with ``strength`` times the direction added."""
    with changed(model, layer, lambda hidden: hidden + strength * vector):
        return harmful(model), neither(model)


def ablated(model: nn.Module, vector: Tensor, target: float, questions: Tensor) -> float:
    """Return the probability of a harmful answer with every state's component along the direction set to ``target``."""
    with changed(model, -1, lambda hidden: spread.set_component(hidden, vector, target)):
        return harmful(model, questions)


def component(model: nn.Module, vector: Tensor, questions: Tensor, header: Header = PLAIN) -> float:
    """Return the mean component of the states along the direction."""
    return float((states(model, questions, header) @ (vector / vector.norm())).mean())
