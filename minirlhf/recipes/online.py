"""The online algorithms as rows of one table. A recipe is a choice of functions; nothing here computes."""

from __future__ import annotations

from dataclasses import dataclass

from minirlhf.core.errors import unknown
from minirlhf.equations.advantages import batch_center, group_center, group_zscore, leave_one_out
from minirlhf.equations.aggregation import fixed_length, sequence_mean, token_mean
from minirlhf.equations.kl import k1, k3
from minirlhf.equations.policy_losses import ppo_clip, reinforce
from minirlhf.recipes.binding import Bindable, name_of
from minirlhf.recipes.parts import Collect, Credit, Gae, Grouped, InLoss, InReward, Update


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
