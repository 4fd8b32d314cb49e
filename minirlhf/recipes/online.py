"""The online algorithms as rows of one table. A recipe is a choice of functions; nothing here computes."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch

from minirlhf.core.errors import UserError, unknown
from minirlhf.data.types import Rollout
from minirlhf.equations import policy_losses
from minirlhf.equations.advantages import batch_center, group_center, group_zscore, leave_one_out
from minirlhf.equations.aggregation import fixed_length, sequence_mean, token_mean
from minirlhf.equations.kl import k1, k3
from minirlhf.equations.policy_losses import ppo_clip, reinforce
from minirlhf.recipes.binding import Bindable, name_of
from minirlhf.recipes.parts import Collect, Credit, Gae, Graded, Grouped, InLoss, InReward, Update


@dataclass(frozen=True)
class Recipe(Bindable):
    """An online algorithm.

    Attributes:
        name: as on the command line.
        source: the paper.
        credit: ``(graded, kl) -> (B, T)``.
        update: how a step is taken.
        collect: what happens to rewards before credit.
        deviations: in what this implementation differs from the paper, a sentence each.
    """

    name: str
    source: str
    credit: Credit
    update: Update
    collect: Collect = Collect()
    deviations: tuple[str, ...] = ()

    @property
    def needs_reference(self) -> bool:
        """True if a frozen reference policy must be evaluated."""
        return self.update.kl is not None

    def try_out(self, num_generations: int = 2) -> None:
        """Go through a made-up rollout, so that a number that a function refuses is one clear error at once.

        Raises:
            UserError: with the function's own words.
        """
        count = 2 * num_generations
        mask, logps = torch.ones(count, 2, dtype=torch.bool), torch.full((count, 2), -1.0)
        ids = torch.zeros(count, 3, dtype=torch.long)
        rollout = Rollout(ids, ids + 1, mask, logps, logps, ids[:, 1:], mask[:, 0], num_generations)
        rewards = torch.arange(float(count)).view(2, -1)
        graded = Graded(rollout, rewards, torch.ones_like(rewards, dtype=torch.bool), logps, logps)
        update = self.update
        try:
            for name in ("num_iterations", "num_minibatches"):
                if getattr(update, name) < 1:
                    raise ValueError(f"{name} = {getattr(update, name)!r}; expected at least 1")
            if update.kl is not None and not 0 <= update.kl.beta < math.inf:
                raise ValueError(f"beta = {update.kl.beta!r}; expected a finite number ≥ 0")
            advantages = self.credit(self.collect(graded), update.kl)
            update.objective(logps, logps, advantages, mask)
            update.weights(mask)
            policy_losses.pretraining(logps, mask, ptx_coef=update.ptx_coef)
            if self.credit.critic is not None:
                self.credit.critic.value_loss(logps, logps, logps, mask)
        except (ValueError, TypeError) as problem:
            raise UserError(f"{self.name}: {problem}") from None


REINFORCE = Recipe(
    name="reinforce",
    source="Williams (1992), Simple statistical gradient-following algorithms for connectionist reinforcement learning",
    credit=Grouped(batch_center),
    update=Update(reinforce, token_mean),
    deviations=(
        "the baseline is the mean reward of the batch, where the paper has a running average",
        "the mean over tokens replaces the sum: a factor that is constant within a batch",
    ),
)
PPO = Recipe(
    name="ppo",
    source="Schulman et al. (2017), Proximal Policy Optimization Algorithms, arXiv:1707.06347; for language models Ouyang et al. "
    "(2022), Training language models to follow instructions with human feedback, arXiv:2203.02155",
    credit=Gae(),
    update=Update(ppo_clip, token_mean, kl=InReward(k1), num_iterations=2, num_minibatches=2),
    deviations=(
        "the critic starts as a copy of the policy with a head of zeros; Ouyang et al. start it as the reward model (pass that as "
        "`critic` to the trainer)",
        "the entropy bonus of Schulman et al. is left out, as in Ouyang et al.",
    ),
)
RLOO = Recipe(
    name="rloo",
    source="Ahmadian et al. (2024), Back to Basics: Revisiting REINFORCE Style Optimization, arXiv:2402.14740",
    credit=Grouped(leave_one_out),
    update=Update(reinforce, sequence_mean, kl=InReward(k1)),
)
GRPO = Recipe(
    name="grpo",
    source="Shao et al. (2024), DeepSeekMath, arXiv:2402.03300",
    credit=Grouped(group_zscore),
    update=Update(ppo_clip, sequence_mean, kl=InLoss(k3)),
)
DR_GRPO = GRPO.with_(
    name="dr_grpo",
    source="Liu et al. (2025), Understanding R1-Zero-Like Training: A Critical Perspective, arXiv:2503.20783",
    advantage=group_center,
    weights=fixed_length,
    kl=None,
)

RECIPES: dict[str, Recipe] = {recipe.name: recipe for recipe in (REINFORCE, PPO, RLOO, GRPO, DR_GRPO)}


def get(name: str) -> Recipe:
    """The recipe of this name; a :class:`UserError` with the nearest one otherwise."""
    if name not in RECIPES:
        raise unknown("recipe", name, RECIPES)
    return RECIPES[name]


def choices(recipe: Recipe) -> dict[str, str]:
    """The recipe's choices as text."""
    update = recipe.update
    return {
        "shape": name_of(recipe.collect.shape),
        "credit": name_of(recipe.credit),
        "critic": name_of(recipe.credit.critic),
        "objective": name_of(update.objective),
        "weights": name_of(update.weights),
        "kl": name_of(update.kl),
        "num_iterations": str(update.num_iterations),
        "num_minibatches": str(update.num_minibatches),
    }


def describe(recipe: Recipe) -> str:
    """A header for a run: source, choices, options, and every deviation from the paper."""
    lines = [f"{recipe.name}: {recipe.source}"]
    lines += [f"  {key:16} {value}" for key, value in choices(recipe).items()]
    lines.append("  options          " + ", ".join(f"{k}={v}" for k, v in recipe.numbers().items()))
    lines += [f"  deviates: {sentence}" for sentence in recipe.deviations] or ["  deviates: in nothing that we know of"]
    return "\n".join(lines)
