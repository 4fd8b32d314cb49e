"""What a step learns from: which policy samples, and how often, until the batch is what the recipe wants."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import replace

import torch
from torch import nn

from minirlhf.core.randomness import derive_seed
from minirlhf.models.forward import completion_logps
from minirlhf.recipes import Graded, Recipe
from minirlhf.trainers.config import OnlineConfig
from minirlhf.trainers.loop import Loop


class Sampler:
    """The policy that samples: the learner itself or, with ``staleness`` above 0, the learner as it was so many steps ago.

    An asynchronous system samples on other machines with weights that lag behind. Here both take turns in one process; the lag
    is the same at every step (less at the first ones), and a resumed run ends with the same bits.
    """

    def __init__(self, loop: Loop, staleness: int) -> None:
        self._loop, self._staleness = loop, staleness
        self._lagging = copy.deepcopy(loop.model) if staleness else loop.model

    def policy(self) -> tuple[nn.Module, int]:
        """The sampling policy of the present step, and the number of steps that it has learned from."""
        step, memory = self._loop.step, self._loop.memory
        version = max(0, step - self._staleness)
        if self._staleness:
            for i, parameter in enumerate(_trained(self._loop.model)):
                memory[f"version.{step}.{i}"] = parameter.detach().clone()
                memory.pop(f"version.{version - 1}.{i}", None)
            with torch.no_grad():
                for i, parameter in enumerate(_trained(self._lagging)):
                    parameter.copy_(memory[f"version.{version}.{i}"])
        return self._lagging, version


def _trained(model: nn.Module) -> list[nn.Parameter]:
    return [parameter for parameter in model.parameters() if parameter.requires_grad]


def collect(
    draw: Callable[[int], Graded], recipe: Recipe, config: OnlineConfig, *, pad_token_id: int
) -> tuple[Graded, Graded, float | None]:
    """Sample and grade, again while the recipe's refill asks for it.

    Args:
        draw: ``(seed) -> Graded``: a batch of other prompts and samples for every seed.

    Returns:
        All that was sampled; what to learn from (as many groups as one draw has, or fewer); and its share of the groups, 0 if no
        group is to be learned from, None if the recipe does not refill.
    """
    rounds = [draw(config.seed)]
    refill = recipe.collect.refill
    if refill is None:
        return rounds[0], rounds[0], None

    def kept(graded: Graded) -> torch.Tensor:
        """``(number kept,)`` indices of groups."""
        return refill.keep_groups(graded.rewards, graded.valid).nonzero().flatten()

    wanted = len(rounds[0].rewards)
    found = len(kept(rounds[0]))
    while found < wanted and len(rounds) <= refill.max_refills:
        rounds.append(draw(derive_seed("refill", config.seed, len(rounds))))
        found += len(kept(rounds[-1]))
    everything = Graded.join(rounds, pad_token_id)
    picked = kept(everything)[:wanted]
    share = len(picked) / len(everything.rewards)
    return everything, everything.groups(picked) if share else rounds[0], share


@torch.no_grad()
def decouple(graded: Graded, model: nn.Module, temperature: float) -> Graded:
    """The rollout with the learner's own log-probabilities as ``old_logps``."""
    rollout = graded.rollout
    logps = completion_logps(model, rollout.input_ids, rollout.attention_mask, rollout.mask.shape[1], temperature)
    old_logps = torch.where(rollout.mask, logps, 0.0)
    return replace(graded, rollout=replace(rollout, old_logps=old_logps))
