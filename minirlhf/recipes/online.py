"""The online algorithms as rows of one table. A recipe is a choice of functions; nothing here computes."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from minirlhf.core.errors import UserError, unknown
from minirlhf.data.types import Rollout
from minirlhf.equations import policy_losses
from minirlhf.equations.advantages import (
    batch_center,
    group_center,
    group_zscore,
    leave_one_out,
    lite_ppo,
    reinforce_pp_baseline,
)
from minirlhf.equations.aggregation import fixed_length, sequence_mean, sequence_sum, token_mean
from minirlhf.equations.difficulty import bnpo, maxrl
from minirlhf.equations.kl import k1, k2, k3
from minirlhf.equations.policy_losses import cispo, gmpo, gspo, gspo_token, luspo, ppo_clip, reinforce, sapo
from minirlhf.equations.returns import length_adaptive_lambda
from minirlhf.recipes.binding import Bindable, name_of
from minirlhf.recipes.parts import (
    AgainstGreedy,
    Collect,
    Credit,
    Critic,
    Gae,
    Graded,
    Grouped,
    InLoss,
    InReward,
    OnDemand,
    Process,
    Refill,
    ToGo,
    Update,
    finished,
    not_left_behind,
    shortest,
    soft_overlong,
    truncated_importance,
)


@dataclass(frozen=True)
class Recipe(Bindable):
    """An online algorithm.

    Attributes:
        name: as on the command line.
        source: the paper.
        credit: ``(graded, kl) -> (B, T)``.
        update: how a step is taken.
        collect: what is sampled, and what happens to rewards before credit.
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

    def advantages(self, graded: Graded) -> Tensor:
        """``(B, T)``: credit for every sampled token.

        Raises:
            UserError: the recipe cannot work with these rewards, in the function's own words.
        """
        try:
            return self.credit(graded, self.update.kl)
        except ValueError as problem:
            raise UserError(f"{self.name}: {problem}") from None

    def try_out(self, num_generations: int = 2) -> None:
        """Go through a made-up rollout, so that a number that a function refuses is one clear error at once.

        Raises:
            UserError: with the function's own words.
        """
        count = 2 * num_generations
        mask, logps = torch.ones(count, 2, dtype=torch.bool), torch.full((count, 2), -1.0)
        ids = torch.zeros(count, 3, dtype=torch.long)
        rollout = Rollout(ids, ids + 1, mask, logps, logps, ids[:, 1:], mask[:, 0], num_generations)
        rewards = torch.arange(float(count)).remainder(2).view(2, -1)
        valid, steps = torch.ones_like(rewards, dtype=torch.bool), torch.tensor([math.nan, 1.0]).expand(count, 2)
        firsts = rollout.select(torch.tensor([0, num_generations]))
        greedy = Graded(replace(firsts, num_generations=1), rewards[:, :1], valid[:, :1], logps[:2])
        graded = Graded(rollout, rewards, valid, logps, logps)
        update = self.update
        try:
            for name in ("num_iterations", "num_minibatches"):
                if getattr(update, name) < 1:
                    raise ValueError(f"{name} = {getattr(update, name)!r}; expected at least 1")
            if update.kl is not None and not 0 <= update.kl.beta < math.inf:
                raise ValueError(f"beta = {update.kl.beta!r}; expected a finite number ≥ 0")
            if (refill := self.collect.refill) is not None:
                refill.keep_groups(rewards, valid)
                if refill.max_refills < 0:
                    raise ValueError(f"max_refills = {refill.max_refills!r}; expected at least 0")
            complete = self.credit.complete(graded, OnDemand(lambda: greedy, lambda: steps))
            advantages = self.credit(self.collect(complete), update.kl)
            update.objective(logps, logps, advantages, mask)
            update.row_weights(rollout)
            for correction in update.corrections:
                correction(logps, rollout, advantages)
            policy_losses.pretraining(logps, mask, ptx_coef=update.positive_coef)
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
REMAX = Recipe(
    name="remax",
    source="Li et al. (2023), ReMax: A Simple, Effective, and Efficient Reinforcement Learning Method for Aligning Large Language "
    "Models, arXiv:2310.10505",
    credit=AgainstGreedy(),
    update=Update(reinforce, sequence_sum, kl=InReward(k1)),
)
REINFORCE_PP = Recipe(
    name="reinforce_pp",
    source="Hu et al. (2025), REINFORCE++: Stabilizing Critic-Free Policy Optimization with Global Advantage Normalization, "
    "arXiv:2501.03262",
    credit=ToGo(),
    update=Update(ppo_clip, token_mean, kl=InReward(k1, 0.01)),
)
REINFORCE_PP_BASELINE = REINFORCE_PP.with_(
    name="reinforce_pp_baseline", credit=Grouped(reinforce_pp_baseline), kl=InLoss(k2, 0.01)
)
VAPO = PPO.with_(
    name="vapo",
    source="Yue et al. (2025), VAPO: Efficient and Reliable Reinforcement Learning for Advanced Reasoning Tasks, arXiv:2504.05118",
    credit=Gae(Critic(critic_warmup=10), lam=length_adaptive_lambda, critic_lam=1.0),
    kl=None,
    epsilon_high=0.28,
    positive_coef=0.1,
    deviations=(
        "the critic starts as a copy of the policy, not of a reward model, and its warm-up is 10 rollouts, not 50 steps on data of "
        "its own",
        "correct means a reward above 0",
    ),
)
RLOO = Recipe(
    name="rloo",
    source="Ahmadian et al. (2024), Back to Basics: Revisiting REINFORCE Style Optimization, arXiv:2402.14740",
    credit=Grouped(leave_one_out),
    update=Update(reinforce, sequence_sum, kl=InReward(k1)),
)
GRPO = Recipe(
    name="grpo",
    source="Shao et al. (2024), DeepSeekMath, arXiv:2402.03300",
    credit=Grouped(group_zscore),
    update=Update(ppo_clip, sequence_mean, kl=InLoss(k3)),
)
GRPO_PROCESS = GRPO.with_(name="grpo_process", credit=Process())
DR_GRPO = GRPO.with_(
    name="dr_grpo",
    source="Liu et al. (2025), Understanding R1-Zero-Like Training: A Critical Perspective, arXiv:2503.20783",
    advantage=group_center,
    weights=fixed_length,
    kl=None,
)
DAPO = GRPO.with_(
    name="dapo",
    source="Yu et al. (2025), DAPO: An Open-Source LLM Reinforcement Learning System at Scale, arXiv:2503.14476",
    epsilon_high=0.28,
    weights=token_mean,
    kl=None,
    refill=Refill(),
    shape=(soft_overlong,),
    keep=finished,
    deviations=(
        "refilling ends after max_refills rounds, and a batch that is not full by then is learned from as it is",
        "the groups that are left over once the batch is full are thrown away",
    ),
)
GSPO = GRPO.with_(
    name="gspo",
    source="Zheng et al. (2025), Group Sequence Policy Optimization, arXiv:2507.18071",
    objective=gspo,
    epsilon=3e-4,
    epsilon_high=4e-4,
    kl=None,
)
GSPO_TOKEN = GSPO.with_(name="gspo_token", objective=gspo_token, epsilon=3e-4, epsilon_high=4e-4)
LUSPO = GSPO.with_(
    name="luspo",
    source="Liu et al. (2026), Length-Unbiased Sequence Policy Optimization: Revealing and Controlling Response Length Variation in "
    "RLVR, arXiv:2602.05261",
    objective=luspo,
    epsilon=3e-4,
    epsilon_high=4e-4,
)
CISPO = GRPO.with_(
    name="cispo",
    source="MiniMax (2025), MiniMax-M1: Scaling Test-Time Compute Efficiently with Lightning Attention, arXiv:2506.13585",
    objective=cispo,
    weights=token_mean,
    kl=None,
)
SAPO = GRPO.with_(
    name="sapo",
    source="Gao et al. (2025), Soft Adaptive Policy Optimization, arXiv:2511.20347",
    objective=sapo,
    kl=None,
)
GMPO = GRPO.with_(
    name="gmpo",
    source="Zhao et al. (2025), Geometric-Mean Policy Optimization, arXiv:2507.20673",
    objective=gmpo,
    kl=None,
)
BNPO = GRPO.with_(
    name="bnpo",
    source="Xiao, Zhang & Cao (2025), BNPO: Beta Normalization Policy Optimization, arXiv:2506.02864",
    advantage=bnpo,
    kl=None,
    deviations=("the Beta density is fitted to the pass rates of one batch",),
)
MAXRL = DR_GRPO.with_(
    name="maxrl", source="Tajwar et al. (2026), Maximum Likelihood Reinforcement Learning", advantage=maxrl
)
GFPO = GRPO.with_(
    name="gfpo",
    source="Shrivastava et al. (2025), Sample More to Think Less: Group Filtered Policy Optimization for Concise Reasoning, "
    "arXiv:2508.09726",
    weights=token_mean,
    retain=shortest,
    deviations=("the tokens of samples that are not retained still count in the mean, with advantage 0",),
)
LITE_PPO = GRPO.with_(
    name="lite_ppo",
    source="Liu et al. (2025), Part I: Tricks or Traps? A Deep Dive into RL for LLM Reasoning, arXiv:2508.08221",
    advantage=lite_ppo,
    weights=token_mean,
    kl=None,
)
MASKED_GRPO = GRPO.with_(
    name="masked_grpo",
    source="DeepSeek-AI (2025), DeepSeek-V3.2: off-policy sequence masking",
    corrections=(not_left_behind,),
    deviations=(
        "only the masking of sequences: the paper's unbiased KL estimate and its masks for routing and sampling are left out",
    ),
)
DECOUPLED_PPO = DR_GRPO.with_(
    name="decoupled_ppo",
    source="Fu et al. (2025), AReaL: A Large-Scale Asynchronous Reinforcement Learning System for Language Reasoning, "
    "arXiv:2505.24298, with the truncated weight of Yao et al. (2025)",
    corrections=(truncated_importance,),
    decoupled=True,
    deviations=(
        "without a critic: the advantages are those of Dr. GRPO",
        "one policy version samples a whole completion",
    ),
)

RECIPES: dict[str, Recipe] = {
    recipe.name: recipe
    for recipe in (
        REINFORCE,
        REMAX,
        REINFORCE_PP,
        REINFORCE_PP_BASELINE,
        PPO,
        VAPO,
        RLOO,
        GRPO,
        GRPO_PROCESS,
        DR_GRPO,
        DAPO,
        GSPO,
        GSPO_TOKEN,
        LUSPO,
        CISPO,
        SAPO,
        GMPO,
        BNPO,
        MAXRL,
        GFPO,
        LITE_PPO,
        MASKED_GRPO,
        DECOUPLED_PPO,
    )
}


def get(name: str) -> Recipe:
    """The recipe of this name; a :class:`UserError` with the nearest one otherwise."""
    if name not in RECIPES:
        raise unknown("recipe", name, RECIPES)
    return RECIPES[name]


def choices(recipe: Recipe) -> dict[str, str]:
    """The recipe's choices as text."""
    collect, update = recipe.collect, recipe.update
    return {
        "refill": name_of(collect.refill),
        "shape": name_of(collect.shape),
        "retain": name_of(collect.retain),
        "credit": name_of(recipe.credit),
        "critic": name_of(recipe.credit.critic),
        "objective": name_of(update.objective),
        "weights": name_of(update.weights),
        "kl": name_of(update.kl),
        "keep": name_of(update.keep),
        "corrections": name_of(update.corrections) + (", decoupled" if update.decoupled else ""),
        "num_iterations": str(update.num_iterations),
        "num_minibatches": str(update.num_minibatches),
    }


def summary(recipe: Recipe) -> dict[str, str]:
    """The recipe as a row of a table: what most of them differ in, and under ``beside`` what only some have."""
    credit, update, collect = recipe.credit, recipe.update, recipe.collect
    kl = {InLoss: "in loss", InReward: "in reward"}
    beside = [
        name_of(part) for part in (*collect.shape, collect.retain, update.keep, *update.corrections) if part is not None
    ]
    if collect.refill is not None:
        beside.append("refill")
    if update.decoupled:
        beside.append("decoupled")
    if update.positive_coef:
        beside.append(f"positive_coef={update.positive_coef:g}")
    if isinstance(credit, Gae) and callable(credit.lam):
        beside.append(name_of(credit.lam))
    return {
        "recipe": recipe.name,
        "credit": name_of(credit.advantage) if isinstance(credit, Grouped | Process) else name_of(credit).split(":")[0],
        "objective": name_of(update.objective),
        "weights": name_of(update.weights),
        "KL": "none" if update.kl is None else f"{name_of(update.kl.estimator)} {kl[type(update.kl)]}",
        "beside": ", ".join(beside),
    }


def describe(recipe: Recipe) -> str:
    """A header for a run: source, choices, options, and every deviation from the paper."""
    lines = [f"{recipe.name}: {recipe.source}"]
    lines += [f"  {key:16} {value}" for key, value in choices(recipe).items()]
    lines.append("  options          " + ", ".join(f"{k}={v}" for k, v in recipe.numbers().items()))
    lines += [f"  deviates: {sentence}" for sentence in recipe.deviations] or ["  deviates: in nothing that we know of"]
    return "\n".join(lines)
