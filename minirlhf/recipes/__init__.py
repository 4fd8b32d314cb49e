"""The algorithms as rows of tables. A recipe is a choice of functions; nothing here computes.

A row is a frozen dataclass: it names the functions, and ``functools.partial`` binds their numbers. Most rows are another
row with ``dataclasses.replace``. ``GRPO.with_(weights=token_mean, epsilon_high=0.28)`` is a variant, named "GRPO with …":
it sets fields and numbers by name, where ``PLACES`` of the recipe says; any other name is an error. With a ``name`` and a
``source`` the result is a new row.

==================  ==============================================================================
here                the table: REINFORCE, PPO, RLOO, GRPO, DAPO, GSPO and their relatives
:mod:`.recipe`      the definition, description and validation of a recipe
:mod:`.parts`       the parts of a recipe: collect, credit, update
:mod:`.offline`     DPO and all other preference losses
:mod:`.options`     options by name: variants, their names, and what they change
==================  ==============================================================================
"""

from dataclasses import replace
from functools import partial

from minirlhf.core.errors import unknown
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
from minirlhf.equations.policy_losses import cispo, gmpo, gspo, gspo_token, luspo, ppo_clip, reinforce, sapo, vespo
from minirlhf.equations.returns import length_adaptive_lambda
from minirlhf.recipes.options import Deviation
from minirlhf.recipes.parts import (
    GAE,
    Critic,
    DynamicSampling,
    GreedyBaseline,
    GroupAdvantage,
    KLInLoss,
    KLInReward,
    PolicyUpdate,
    ProcessSupervision,
    RewardToGo,
    RolloutProcessing,
    gfpo_shortest,
    mask_truncated_completions,
    off_policy_sequence_mask,
    penalize_overlong,
    truncated_importance,
)
from minirlhf.recipes.recipe import Recipe, describe, summary

__all__ = ["RECIPES", "Recipe", "describe", "get", "summary"]  # and every row and part

UPDATES = ("num_iterations", "num_minibatches")
ONE_UPDATE = Deviation("the row makes one update per rollout; the paper's number was not found", *UPDATES)
NO_NUMBERS = Deviation(
    "the row makes one update per rollout, and the KL term weighs 0.01; the paper makes several updates and gives neither number",
    *UPDATES,
    "beta",
)

REINFORCE = Recipe(
    name="reinforce",
    source="Williams (1992), Simple statistical gradient-following algorithms for connectionist reinforcement learning",
    credit=GroupAdvantage(batch_center),
    update=PolicyUpdate(reinforce, token_mean),
    deviations=(
        Deviation("the baseline is the mean reward of the batch, where the paper has a running average", "advantage"),
        Deviation("the mean over tokens replaces the sum: a factor that is constant within a batch", "weights"),
    ),
)
REMAX = Recipe(
    name="remax",
    source="Li et al. (2023), ReMax: A Simple, Effective, and Efficient Reinforcement Learning Method for Aligning Large Language "
    "Models, arXiv:2310.10505",
    credit=GreedyBaseline(),
    update=PolicyUpdate(reinforce, sequence_sum, kl=KLInReward(k1)),
    deviations=(
        Deviation(
            "the KL estimate of a whole reply is taken off its reward, sampled or greedy; the authors' code charges each token its "
            "own estimate and nothing for the greedy reply",
            "estimator",
        ),
        Deviation(
            "the sum over a reply's tokens, as in the paper, where the authors' code has the mean over the batch's",
            "weights",
        ),
    ),
)
REINFORCE_PP = Recipe(
    name="reinforce_pp",
    source="Hu et al. (2025), REINFORCE++: Stabilizing Critic-Free Policy Optimization with Global Advantage Normalization, "
    "arXiv:2501.03262",
    credit=RewardToGo(),
    update=PolicyUpdate(ppo_clip, token_mean, kl=KLInReward(k1, 0.01)),
    deviations=(NO_NUMBERS,),
)
REINFORCE_PP_BASELINE = replace(
    REINFORCE_PP,
    name="reinforce_pp_baseline",
    source=REINFORCE_PP.source,
    credit=GroupAdvantage(reinforce_pp_baseline),
    update=replace(REINFORCE_PP.update, kl=KLInLoss(k2, 0.01)),
    deviations=(NO_NUMBERS,),
)
CLIPPED_AND_WHITENED = Deviation(
    "the value loss is clipped and advantages are whitened, as in most implementations but in no paper of the row's",
    "value_loss",
    "whiten_advantages",
)
PPO = Recipe(
    name="ppo",
    source="Schulman et al. (2017), Proximal Policy Optimization Algorithms, arXiv:1707.06347; for language models Ouyang et al. "
    "(2022), Training language models to follow instructions with human feedback, arXiv:2203.02155",
    credit=GAE(),
    update=PolicyUpdate(ppo_clip, token_mean, kl=KLInReward(k1), num_iterations=2, num_minibatches=2),
    deviations=(
        Deviation(
            "the critic starts as a copy of the policy with a head of zeros; Ouyang et al. start it as the reward model (the "
            "trainer takes one that is made from it)",
            "shared",
        ),
        Deviation("the entropy bonus of Schulman et al. is left out, as in Ouyang et al.", "entropy_coef"),
        Deviation(
            "two passes of two minibatches over each rollout, where Ouyang et al. make one pass of eight",
            *UPDATES,
        ),
        Deviation("the KL term weighs 0.05, where Ouyang et al. have 0.02", "beta"),
        CLIPPED_AND_WHITENED,
    ),
)
VAPO = replace(
    PPO,
    name="vapo",
    source="Yue et al. (2025), VAPO: Efficient and Reliable Reinforcement Learning for Advanced Reasoning Tasks, arXiv:2504.05118",
    credit=GAE(Critic(critic_warmup=10), lam=length_adaptive_lambda, critic_lam=1.0),
    update=PolicyUpdate(
        partial(ppo_clip, epsilon_high=0.28),
        token_mean,
        positive_coef=0.1,
        num_minibatches=16,  # 512 prompts × 16 completions in minibatches of 512
    ),
    deviations=(
        Deviation(
            "λ = 1 − 1/(0.05 l) is negative for replies of fewer than 20 tokens; it is 0 for them", "lam", "alpha"
        ),
        Deviation(
            "of DAPO it has what the paper takes over: the wider upper clip and the token mean; no refilling, no filter, no "
            "punishment of length",
            *("epsilon_high", "weights", "refill", "keep", "shape"),
        ),
        CLIPPED_AND_WHITENED,
        Deviation(
            "the critic starts as a copy of the policy, not of a reward model, and its warm-up is 10 rollouts, not 50 steps on data "
            "of its own",
            *("shared", "critic_warmup"),
        ),
        Deviation("correct means a reward above 0", "positive_coef"),
        Deviation(
            "the critic learns at the policy's rate, where the paper has twice that, for it to keep pace",
            "critic_learning_rate_ratio",
        ),
    ),
)
RLOO = Recipe(
    name="rloo",
    source="Ahmadian et al. (2024), Back to Basics: Revisiting REINFORCE Style Optimization, arXiv:2402.14740",
    credit=GroupAdvantage(leave_one_out),
    update=PolicyUpdate(reinforce, sequence_sum, kl=KLInReward(k1)),
    deviations=(
        Deviation(
            "the row makes one update per rollout, and the KL term weighs 0.05; TRL's documentation reads two minibatches and 0.03 "
            "in the paper's appendix C, which was not at hand",
            *UPDATES,
            "beta",
        ),
    ),
)
GRPO = Recipe(
    name="grpo",
    source="Shao et al. (2024), DeepSeekMath, arXiv:2402.03300",
    credit=GroupAdvantage(group_zscore),
    update=PolicyUpdate(ppo_clip, sequence_mean, kl=KLInLoss(k3)),
)
GRPO_PROCESS = replace(GRPO, name="grpo_process", credit=ProcessSupervision())
DR_GRPO = replace(
    GRPO,
    name="dr_grpo",
    source="Liu et al. (2025), Understanding R1-Zero-Like Training: A Critical Perspective, arXiv:2503.20783",
    credit=GroupAdvantage(group_center),
    update=replace(GRPO.update, weights=fixed_length, kl=None),
    deviations=(
        Deviation(
            "the row makes one update per rollout, where the authors' script makes eight (1,024 replies in minibatches of 128)",
            *UPDATES,
        ),
    ),
)
DAPO = replace(
    GRPO,
    name="dapo",
    source="Yu et al. (2025), DAPO: An Open-Source LLM Reinforcement Learning System at Scale, arXiv:2503.14476",
    collect=RolloutProcessing(shape=(penalize_overlong,), refill=DynamicSampling()),
    update=PolicyUpdate(
        partial(ppo_clip, epsilon_high=0.28),
        token_mean,
        keep=mask_truncated_completions,
        num_minibatches=16,  # section 4.1: 512 prompts × 16 completions in minibatches of 512
    ),
    deviations=(
        Deviation(
            "overlong filtering and the soft punishment are both on, as in the paper's table 1; the authors' released recipe leaves "
            "the filter out, because with it the punished replies have no weight: they count in their group's mean only",
            *("keep", "shape"),
        ),
        Deviation(
            "refilling ends after max_resampling_rounds rounds, and a batch that is not full by then is learned from as it is",
            "refill",
        ),
        Deviation("the groups that are left over once the batch is full are thrown away", "refill"),
        Deviation(
            "the soft punishment covers the last 4 tokens, where section 4.1 has 4,096 of 20,480", "soft_punish_cache"
        ),
    ),
)
HIGH_ENTROPY = replace(
    DAPO,
    name="high_entropy",
    source="Wang et al. (2025), Beyond the 80/20 Rule: High-Entropy Minority Tokens Drive Effective Reinforcement Learning for LLM "
    "Reasoning, arXiv:2506.01939",
    update=replace(DAPO.update, top_entropy_quantile=0.2, keep=None),
    deviations=(
        *DAPO.deviations[1:],
        Deviation(
            "the threshold is that of an optimizer batch, where the paper says (micro-)batch", "top_entropy_quantile"
        ),
    ),
)
GSPO = replace(
    GRPO,
    name="gspo",
    source="Zheng et al. (2025), Group Sequence Policy Optimization, arXiv:2507.18071",
    update=PolicyUpdate(
        partial(gspo, epsilon=3e-4, epsilon_high=4e-4),
        sequence_mean,
        num_minibatches=4,  # section 5.1
    ),
)
GSPO_TOKEN = replace(
    GSPO,
    name="gspo_token",
    update=replace(GSPO.update, objective=partial(gspo_token, epsilon=3e-4, epsilon_high=4e-4)),
)
LUSPO = replace(
    GSPO,
    name="luspo",
    source="Liu et al. (2026), Length-Unbiased Sequence Policy Optimization: Revealing and Controlling Response Length Variation in "
    "RLVR, arXiv:2602.05261",
    update=replace(GSPO.update, objective=partial(luspo, epsilon=3e-4, epsilon_high=4e-4)),
    deviations=(
        Deviation(
            "clip range and minibatches are GSPO's; the paper's own were not found", "epsilon", "epsilon_high", *UPDATES
        ),
    ),
)
CISPO = replace(
    GRPO,
    name="cispo",
    source="MiniMax (2025), MiniMax-M1: Scaling Test-Time Compute Efficiently with Lightning Attention, arXiv:2506.13585",
    update=PolicyUpdate(cispo, token_mean, num_minibatches=16),  # section 3.1
    deviations=(
        Deviation(
            "without DAPO's dynamic sampling and length penalty, which the paper uses beside it (`refill`, `shape`)",
            *("refill", "shape"),
        ),
        Deviation("the paper's 16 rounds of updates on each batch are taken to be 16 minibatches", *UPDATES),
        Deviation(
            "the paper gives no upper bound of the weight; 1 + 4 is that of ScaleRL (Khatri et al., 2025, arXiv:2510.13786)",
            "epsilon_high",
        ),
    ),
)
VESPO = replace(
    GRPO,
    name="vespo",
    source="Shen et al. (2026), VESPO: Variational Sequence-level Soft Policy Optimization for Off-Policy LLM Training, "
    "arXiv:2602.10693",
    update=PolicyUpdate(vespo, token_mean, num_minibatches=8),  # section 4.1, where the paper compares 4 to 64
    deviations=(
        Deviation(
            "the mean over tokens is TRL's; the paper writes a sum over a reply's tokens and leaves the aggregation open in its "
            "listing",
            "weights",
        ),
        Deviation(
            "advantages are GRPO's, divided by the group's standard deviation; the paper subtracts the group's mean only",
            "advantage",
        ),
    ),
)
SAPO = replace(
    GRPO,
    name="sapo",
    source="Gao et al. (2025), Soft Adaptive Policy Optimization, arXiv:2511.20347",
    update=PolicyUpdate(sapo, sequence_mean, num_minibatches=4),  # section 5.1; 2 for Qwen3-VL
)
GMPO = replace(
    GRPO,
    name="gmpo",
    source="Zhao et al. (2025), Geometric-Mean Policy Optimization, arXiv:2507.20673",
    update=PolicyUpdate(
        gmpo, sequence_mean, num_minibatches=8
    ),  # the authors' script: 1,024 completions in minibatches of 128
)
BNPO = replace(
    GRPO,
    name="bnpo",
    source="Xiao, Zhang & Cao (2025), BNPO: Beta Normalization Policy Optimization, arXiv:2506.02864",
    credit=GroupAdvantage(bnpo),
    update=replace(GRPO.update, kl=None),
    deviations=(
        Deviation("the Beta density is fitted to the pass rates of one batch", "advantage"),
        ONE_UPDATE,
    ),
)
MAXRL = replace(
    DR_GRPO,
    name="maxrl",
    source="Tajwar et al. (2026), Maximum Likelihood Reinforcement Learning",
    credit=GroupAdvantage(maxrl),
    deviations=(ONE_UPDATE,),
)
GFPO = replace(
    GRPO,
    name="gfpo",
    source="Shrivastava et al. (2025), Sample More to Think Less: Group Filtered Policy Optimization for Concise Reasoning, "
    "arXiv:2508.09726",
    update=replace(
        GRPO.update, weights=token_mean
    ),  # eq. 2: over the tokens of all samples, also of those not retained
    collect=RolloutProcessing(sample_filter=gfpo_shortest),
    deviations=(
        Deviation(
            "the KL term weighs 0.04 and there is no entropy bonus, where section 4 has 0.001 for both",
            "beta",
            "entropy_coef",
        ),
        Deviation(
            "the clip is PPO's; the paper uses a version of it, modified against large ratios at negative advantages, that it does not "
            "print",
            *("objective", "epsilon", "epsilon_high", "delta"),
        ),
        Deviation("the KL term is that to the reference, where the paper prints the old policy", "beta"),
        ONE_UPDATE,
    ),
)
LITE_PPO = replace(
    GRPO,
    name="lite_ppo",
    source="Liu et al. (2025), Part I: Tricks or Traps? A Deep Dive into RL for LLM Reasoning, arXiv:2508.08221",
    credit=GroupAdvantage(lite_ppo),
    update=PolicyUpdate(
        ppo_clip,
        token_mean,
        num_minibatches=8,  # by TRL's documentation of the paper: 128 × 8 completions in batches of 128
    ),
)
MASKED_GRPO = replace(
    GRPO,
    name="masked_grpo",
    source="DeepSeek-AI (2025), DeepSeek-V3.2: off-policy sequence masking",
    update=replace(GRPO.update, corrections=(off_policy_sequence_mask,)),
    deviations=(
        Deviation(
            "the row makes one update per rollout, where the paper makes several; a sequence is masked only if sampler and learner "
            "differ (`staleness`)",
            *UPDATES,
        ),
        Deviation(
            "only the masking of sequences: the paper's unbiased KL estimate and its masks for routing and sampling are left out",
            *("estimator", "corrections"),
        ),
    ),
)
DECOUPLED_PPO = replace(
    DR_GRPO,
    name="decoupled_ppo",
    source="Fu et al. (2025), AReaL: A Large-Scale Asynchronous Reinforcement Learning System for Language Reasoning, "
    "arXiv:2505.24298, with the truncated weight of Yao et al. (2025)",
    update=replace(DR_GRPO.update, corrections=(truncated_importance,), decoupled=True),
    deviations=(
        Deviation("without a critic: the advantages are those of Dr. GRPO", "credit"),
        Deviation(
            "the row makes one update per rollout: the ratio to the learner at the step's start is 1, and nothing but the capped "
            "weight is left",
            *UPDATES,
        ),
        Deviation("one policy version samples a whole completion"),
    ),
)

#: In the order of the definitions above.
RECIPES: dict[str, Recipe] = {row.name: row for row in list(vars().values()) if isinstance(row, Recipe)}


def get(name: str) -> Recipe:
    """Return the recipe of this name; a :class:`UserError` names the nearest one if there is none."""
    if name not in RECIPES:
        raise unknown("recipe", name, RECIPES)
    return RECIPES[name]
