"""Recipes in the options of verl (0.9.1).

We read its options and equations, and ``benchmarks/engines.py`` compares the equations on shared tensors. We never
started a run of verl.
"""

from __future__ import annotations

from typing import Any

from minirlhf.equations import advantages, aggregation, policy_losses, value_losses
from minirlhf.equations.kl import k1, k2, k3
from minirlhf.recipes import Recipe
from minirlhf.recipes.offline import PreferenceRecipe
from minirlhf.recipes.options import head, number
from minirlhf.recipes.parts import (
    GAE,
    GreedyBaseline,
    GroupAdvantage,
    KLInLoss,
    RewardToGo,
    masked_importance,
    penalize_overlong,
    sequence_importance,
    truncated_importance,
)
from minirlhf_cli.export.mapped import (
    ExportPlan,
    NoCounterpartError,
    RunSpec,
    raise_unsupported,
    refuse_filters,
    refuse_numbers,
    refuse_sft_settings,
    supported,
)

ENGINE, VERSION = "verl", "0.9.1"
TRAINER, SFT_TRAINER = "verl.trainer.main_ppo", "verl.trainer.sft_trainer"
ACTOR = "actor_rollout_ref.actor"

WEIGHTS = {
    aggregation.sequence_mean: "seq-mean-token-mean",
    aggregation.token_mean: "token-mean",
    aggregation.sequence_sum: "seq-mean-token-sum",
    aggregation.fixed_length: "seq-mean-token-sum-norm",
}
#: Objective -> ``loss_mode``, and its fixed aggregation; None: ``loss_agg_mode`` sets the aggregation.
OBJECTIVES: dict[Any, tuple[str, Any]] = {
    policy_losses.ppo_clip: ("vanilla", None),
    policy_losses.reinforce: ("gpg", None),
    policy_losses.gspo: ("gspo", None),
    policy_losses.gspo_token: ("gspo", None),
    policy_losses.cispo: ("cispo", None),
    policy_losses.sapo: ("sapo", aggregation.sequence_mean),
    policy_losses.gmpo: ("geo_mean", aggregation.sequence_mean),
}
ESTIMATORS = {k1: "kl", k2: "mse", k3: "low_var_kl"}
#: A bound that no ratio reaches: no bound.
NO_BOUND = 1e9


def online(recipe: Recipe, *, staleness: int = 0) -> ExportPlan:
    """Map an online recipe to verl.

    Raises:
        NoCounterpartError: names the part without a counterpart.
    """
    raise_unsupported(ENGINE, recipe, staleness=staleness, shapes=[penalize_overlong])
    update, collect = recipe.update, recipe.collect
    differs: list[str] = []
    options = {**_credit(recipe, differs), **_objective(recipe), **_kl(recipe, differs), **_corrections(recipe)}
    options[f"{ACTOR}.ppo_epochs"] = update.num_iterations
    refuse_filters(ENGINE, recipe)
    if collect.refill is not None:
        if isinstance(recipe.credit, GreedyBaseline):
            raise NoCounterpartError(ENGINE, recipe.name, "refill with greedy baselines", argument="refill")
        options |= {"algorithm.filter_groups.enable": True, "algorithm.filter_groups.metric": "acc"}
        differs.append("groups are sampled anew until the batch is full: max_resampling_rounds does not end it")
    for shape in collect.shape:
        options |= {
            "reward.reward_manager.name": "dapo",
            "+reward.reward_kwargs.max_resp_len": number(shape, "max_completion_length"),
            "+reward.reward_kwargs.overlong_buffer_cfg.enable": True,
            "+reward.reward_kwargs.overlong_buffer_cfg.len": number(shape, "soft_punish_cache"),
            "+reward.reward_kwargs.overlong_buffer_cfg.penalty_factor": 1.0,
            "+reward.reward_kwargs.overlong_buffer_cfg.log": False,
        }
    if update.keep is not None:
        differs.append("a reply that is cut off keeps its weight (no overlong filtering)")
    if update.num_minibatches > 1:
        differs.append("a minibatch is made of whole groups, in verl's own order")
    return ExportPlan(TRAINER, options, tuple(differs))


def _credit(recipe: Recipe, differs: list[str]) -> dict[str, Any]:
    """Return ``algorithm.adv_estimator`` and its options."""
    match recipe.credit:
        case GroupAdvantage(advantage):
            return _grouped(recipe, head(advantage), advantage, differs)
        case GreedyBaseline():
            # Only the older trainer samples greedy completions.
            return {"algorithm.adv_estimator": "remax", "trainer.use_v1": False}
        case RewardToGo(gamma, whiten_advantages=True):
            return {"algorithm.adv_estimator": "reinforce_plus_plus", "algorithm.gamma": gamma}
        case GAE(critic, gamma, lam, critic_lam, whiten_rewards=False, whiten_advantages=True) if (
            not callable(lam) and critic_lam in (None, lam) and not critic.shared
        ):
            differs += [
                "the critic's gradient is clipped by itself, and its optimizer divides vf_coef out",
                "the critic's head starts at random, here at 0",
            ]
            clipped = head(critic.value_loss) is value_losses.value_clip
            return {
                "algorithm.adv_estimator": "gae", "algorithm.gamma": gamma, "algorithm.lam": lam,
                "critic.cliprange_value": number(critic.value_loss, "cliprange_value") if clipped else NO_BOUND,
                "trainer.critic_warmup": critic.critic_warmup,
            }  # fmt: skip
    raise NoCounterpartError(
        ENGINE, recipe.name, f"the credit {_described(recipe)}", argument="credit", value=recipe.credit.title
    )


def _described(recipe: Recipe) -> str:
    """Describe the credit assignment, with the options that verl and OpenRLHF do not support."""
    credit = recipe.credit
    if isinstance(credit, GAE):
        reasons = {
            "λ by length": callable(credit.lam), "critic_lam": credit.critic_lam not in (None, credit.lam),
            "a shared critic": credit.critic.shared, "whiten_rewards": credit.whiten_rewards,
            "whiten_advantages=False": not credit.whiten_advantages,
        }  # fmt: skip
        return f"gae with {', '.join(name for name, applies in reasons.items() if applies)}"
    return credit.title if not isinstance(credit, RewardToGo) else "to go without whitening"


def _grouped(recipe: Recipe, function: Any, advantage: Any, differs: list[str]) -> dict[str, Any]:
    if function is advantages.group_center:
        return {"algorithm.adv_estimator": "grpo", "algorithm.norm_adv_by_std_in_grpo": False}
    if function is advantages.leave_one_out:
        return {"algorithm.adv_estimator": "rloo"}
    if function is advantages.group_zscore and number(advantage, "ddof") == 1:
        if number(advantage, "eps") != 1e-6:
            differs.append(f"1e-6 is added to a group's deviation, here {number(advantage, 'eps'):g}")
        return {"algorithm.adv_estimator": "grpo", "algorithm.norm_adv_by_std_in_grpo": True}
    if function is advantages.reinforce_pp_baseline:
        refuse_numbers(ENGINE, recipe.name, advantage, ddof=1, eps=1e-8)
        differs.append("the deviation is that of the batch's tokens, here of its replies")
        return {"algorithm.adv_estimator": "reinforce_plus_plus_baseline"}
    part = f"the advantage {function.__name__} (its register_adv_est can teach it one)"
    raise NoCounterpartError(ENGINE, recipe.name, part, argument="advantage", value=function.__name__)


def _objective(recipe: Recipe) -> dict[str, Any]:
    """Return ``policy_loss.loss_mode``, its hyperparameters, and the aggregation."""
    bound_objective, weights = recipe.update.objective, recipe.update.weights
    function = supported(OBJECTIVES, ENGINE, recipe, "the objective {}", "objective", bound_objective)
    mode, fixed_weights = OBJECTIVES[function]
    if head(weights) not in WEIGHTS or (fixed_weights is not None and head(weights) is not fixed_weights):
        raise NoCounterpartError(
            ENGINE,
            recipe.name,
            f"{function.__name__} with weights {head(weights).__name__}",
            argument="weights",
            value=head(weights).__name__,
        )
    options: dict[str, Any] = {
        f"{ACTOR}.policy_loss.loss_mode": mode, f"{ACTOR}.loss_agg_mode": WEIGHTS[head(weights)],
    }  # fmt: skip
    if head(weights) is aggregation.fixed_length:
        options[f"{ACTOR}.loss_scale_factor"] = number(weights, "max_completion_length")
    if function in (policy_losses.cispo, policy_losses.sapo) and number(bound_objective, "per_sequence"):
        raise NoCounterpartError(
            ENGINE,
            recipe.name,
            f"{function.__name__} of whole replies (per_sequence)",
            argument="per_sequence",
            value=True,
        )
    if function is policy_losses.sapo:
        temperatures = {"tau_pos": "sapo_temperature_pos", "tau_neg": "sapo_temperature_neg"}
        return options | {
            f"{ACTOR}.{engine_name}": number(bound_objective, name) for engine_name, name in temperatures.items()
        }
    return options | ({} if function is policy_losses.reinforce else _clip(recipe, function))


def _clip(recipe: Recipe, function: Any) -> dict[str, Any]:
    """Return the clip range: both bounds, because ``clip_ratio`` would replace a missing one."""
    bound_objective = recipe.update.objective
    low, high = number(bound_objective, "epsilon"), number(bound_objective, "epsilon_high")
    if function is policy_losses.cispo:
        low = 1.0 if low is None else low  # importance weights are never below 0
    high = low if high is None else high
    options = {f"{ACTOR}.clip_ratio_low": low, f"{ACTOR}.clip_ratio_high": high}
    if function not in (policy_losses.ppo_clip, policy_losses.gspo, policy_losses.gspo_token):
        return options
    delta = number(bound_objective, "delta")
    if function is not policy_losses.ppo_clip:
        if delta is not None:
            raise NoCounterpartError(
                ENGINE, recipe.name, f"delta of {function.__name__}", argument="delta", value=delta
            )
        return options
    # verl's default, 3, is a second bound that is always active.
    return options | {f"{ACTOR}.clip_ratio_c": NO_BOUND if delta is None else delta}


def _kl(recipe: Recipe, differs: list[str]) -> dict[str, Any]:
    """Return the options of the KL term, in the loss or in the reward."""
    kl = recipe.update.kl
    off = {f"{ACTOR}.use_kl_loss": False, "algorithm.use_kl_in_reward": False}
    if kl is None:
        return off
    estimator = ESTIMATORS[supported(ESTIMATORS, ENGINE, recipe, "the KL estimator {}", "estimator", kl.estimator)]
    if isinstance(kl, KLInLoss):
        return off | {
            f"{ACTOR}.use_kl_loss": True, f"{ACTOR}.kl_loss_type": estimator, f"{ACTOR}.kl_loss_coef": kl.beta,
        }  # fmt: skip
    if isinstance(recipe.credit, GreedyBaseline):
        differs.append("the KL term is charged to every token, and not to the greedy reply")
    return off | {
        "algorithm.use_kl_in_reward": True, "algorithm.kl_penalty": estimator, "algorithm.kl_ctrl.kl_coef": kl.beta,
    }  # fmt: skip


def _corrections(recipe: Recipe) -> dict[str, Any]:
    """Return the options of importance weights for off-policy completions; in verl, for the sampling engine."""
    if not recipe.update.corrections:
        return {}
    prefix = "algorithm.rollout_correction."
    if len(recipe.update.corrections) > 1:
        raise NoCounterpartError(ENGINE, recipe.name, "two corrections at once", argument="corrections")
    [correction] = recipe.update.corrections
    levels = {truncated_importance: "token", masked_importance: "token", sequence_importance: "sequence"}
    level = levels[supported(levels, ENGINE, recipe, "the correction {}", "corrections", correction)]
    cap: Any = number(correction, "importance_sampling_cap")
    if head(correction) is masked_importance:  # two bounds: weights outside become 0
        cap = f"{number(correction, 'importance_sampling_floor'):g}_{cap:g}"
    return {f"{prefix}rollout_is": level, f"{prefix}rollout_is_threshold": cap}


def offline(recipe: PreferenceRecipe) -> ExportPlan:
    """Refuse a preference loss: verl has none.

    Raises:
        NoCounterpartError: always.
    """
    raise NoCounterpartError(ENGINE, recipe.name, "learning from given preferences", argument="loss", value=recipe.name)


def sft(spec: RunSpec) -> ExportPlan:
    """Map supervised fine-tuning to verl.

    Raises:
        NoCounterpartError: another loss, packed rows, or learned tokens other than the assistant's.
    """
    refuse_sft_settings(ENGINE, spec, "assistant")
    differs = (
        "every reply of the assistant is learned from, here those behind the context",
        f"the order of the rows is the same for every seed (here: {spec.config.seed})",
    )
    return ExportPlan(SFT_TRAINER, {}, differs)


def reward(spec: RunSpec) -> ExportPlan:
    """Refuse a reward model: verl trains none.

    Raises:
        NoCounterpartError: always.
    """
    raise NoCounterpartError(ENGINE, "reward", "training a reward model", argument="trainer", value="reward")
