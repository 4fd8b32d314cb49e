"""Recipes in the options of OpenRLHF (0.11.2).

We read its options and equations, and ``benchmarks/engines.py`` compares the equations on shared tensors. We never
started a run of OpenRLHF.
"""

from __future__ import annotations

from typing import Any

from minirlhf.equations import advantages, aggregation, policy_losses, value_losses
from minirlhf.equations.kl import k1, k2, k3
from minirlhf.equations.preference_losses import pairs
from minirlhf.recipes import Recipe
from minirlhf.recipes.offline import PreferenceRecipe
from minirlhf.recipes.options import head, number
from minirlhf.recipes.parts import (
    GAE,
    GroupAdvantage,
    KLInReward,
    RewardToGo,
    masked_importance,
    penalize_overlong,
    truncated_importance,
)
from minirlhf_cli.export.mapped import (
    ExportPlan,
    NoCounterpartError,
    RunSpec,
    raise_unsupported,
    refuse_filters,
    refuse_numbers,
    refuse_reward_settings,
    refuse_sft_settings,
    require_single_function,
    supported,
)

ENGINE, VERSION = "OpenRLHF", "0.11.2"
TRAINERS = {name: f"openrlhf.cli.train_{name}" for name in ("ppo_ray", "dpo", "rm", "sft")}

WEIGHTS = {aggregation.sequence_mean: "seq-mean-token-mean", aggregation.token_mean: "token-mean"}
ADVANTAGES = {
    advantages.group_zscore: "group_norm",
    advantages.group_center: "dr_grpo",
    advantages.leave_one_out: "rloo",
    advantages.batch_center: "flash_reinforce",
    advantages.reinforce_pp_baseline: "reinforce_baseline",
}
ESTIMATORS = {k1: "k1", k2: "k2", k3: "k3"}
#: Objectives that equal another objective while the ratio is 1.
WHILE_ONE = {policy_losses.reinforce: policy_losses.ppo_clip}


def online(recipe: Recipe, *, staleness: int = 0) -> ExportPlan:
    """Map an online recipe to OpenRLHF.

    Raises:
        NoCounterpartError: names the part without a counterpart.
    """
    raise_unsupported(ENGINE, recipe, staleness=staleness, shapes=[penalize_overlong])
    update, collect = recipe.update, recipe.collect
    differs: list[str] = []
    # By default rewards are clipped at ±10, after the baseline is subtracted.
    options: dict[str, Any] = {"reward.clip_range": (-1_000_000, 1_000_000), "train.max_epochs": update.num_iterations}
    options |= {**_credit(recipe, differs), **_objective(recipe), **_kl(recipe, differs), **_corrections(recipe)}
    refuse_filters(ENGINE, recipe)
    if collect.refill is not None:
        options |= {"algo.dynamic_filtering_enable": True, "algo.dynamic_filtering_range": (0, 1)}
        differs.append(
            "groups are kept whose mean reward lies between 0 and 1, and max_resampling_rounds does not end it"
        )
    for shape in collect.shape:
        options["reward.overlong_buffer_len"] = number(shape, "soft_punish_cache")
        options["reward.overlong_penalty_factor"] = 1.0
    if update.keep is not None:
        differs.append("a reply that is cut off keeps its weight (no overlong filtering)")
    if update.num_minibatches > 1:
        differs.append("which replies meet in a minibatch: it shuffles them in its own order")
    return ExportPlan(TRAINERS["ppo_ray"], options, tuple(differs))


def _credit(recipe: Recipe, differs: list[str]) -> dict[str, Any]:
    """Return ``algo.advantage.estimator`` and its options."""
    match recipe.credit:
        case GroupAdvantage(advantage):
            name = ADVANTAGES[supported(ADVANTAGES, ENGINE, recipe, "the advantage {}", "advantage", advantage)]
            if head(advantage) is advantages.group_zscore:
                refuse_numbers(ENGINE, recipe.name, advantage, ddof=1)
                differs.append(f"1e-9 is added to a group's deviation, here {number(advantage, 'eps'):g}")
            if head(advantage) is advantages.reinforce_pp_baseline:
                refuse_numbers(ENGINE, recipe.name, advantage, ddof=1, eps=1e-8)
                differs.append("the deviation is that of the batch's tokens, here of its replies")
            return {"algo.advantage.estimator": name}
        case RewardToGo(gamma, whiten_advantages=whitened):
            if whitened:
                differs.append("the variance of advantages is divided by the number of tokens, here by one less")
            unnormalised = {} if whitened else {"algo.advantage.no_std_norm": True}
            if not whitened:
                differs.append("the mean advantage is taken off")
            return {"algo.advantage.estimator": "reinforce", "algo.advantage.gamma": gamma, **unnormalised}
        case GAE(critic, gamma, lam, critic_lam, whiten_rewards=False, whiten_advantages=True) if (
            not callable(lam) and critic_lam in (None, lam) and not critic.shared
        ):
            differs += [
                "the variance of advantages is divided by the number of tokens, here by one less",
                "the critic's gradient is clipped by itself, and its optimizer divides vf_coef out",
                "the critic's head starts at random, here at 0",
            ]
            clipped = head(critic.value_loss) is value_losses.value_clip
            return {
                "algo.advantage.estimator": "gae", "algo.advantage.gamma": gamma, "algo.advantage.lambd": lam,
                "critic.value_clip": number(critic.value_loss, "cliprange_value") if clipped else 1_000_000,
                **({"critic.freezing_steps": critic.critic_warmup} if critic.critic_warmup else {}),
            }  # fmt: skip
        case GAE():
            raise NoCounterpartError(
                ENGINE,
                recipe.name,
                "gae with λ by length, critic_lam or a shared critic",
                argument="credit",
                value="gae",
            )
    raise NoCounterpartError(
        ENGINE, recipe.name, f"the credit {recipe.credit.title}", argument="credit", value=recipe.credit.title
    )


def _objective(recipe: Recipe) -> dict[str, Any]:
    """Return ``actor.policy_loss_type``, its clip range, and the aggregation."""
    bound_objective, weights = recipe.update.objective, head(recipe.update.weights)
    function = (
        WHILE_ONE.get(head(bound_objective), head(bound_objective))
        if require_single_function(recipe)
        else head(bound_objective)
    )
    loss_types = {policy_losses.ppo_clip: "ppo", policy_losses.gspo: "gspo"}
    if require_single_function(recipe) or weights is aggregation.sequence_mean:
        loss_types[policy_losses.gspo_token] = "gspo"
    supported(loss_types, ENGINE, recipe, "the objective {}", "objective", function)
    if weights not in WEIGHTS or (loss_types[function] == "gspo" and weights is not aggregation.sequence_mean):
        raise NoCounterpartError(
            ENGINE,
            recipe.name,
            f"{head(bound_objective).__name__} with weights {weights.__name__}",
            argument="weights",
            value=weights.__name__,
        )
    options: dict[str, Any] = {"actor.policy_loss_type": loss_types[function], "actor.loss_agg_mode": WEIGHTS[weights]}
    if function is not head(bound_objective):
        return options  # a substitute objective, used while the ratio is 1, needs no clip range
    low, high, delta = (number(bound_objective, name) for name in ("epsilon", "epsilon_high", "delta"))
    options["actor.eps_clip_low_high"] = (low, low if high is None else high)
    return options | ({} if delta is None else {"actor.dual_clip": delta})


def _kl(recipe: Recipe, differs: list[str]) -> dict[str, Any]:
    """Return the options of the KL term, in the loss or in the reward."""
    kl = recipe.update.kl
    if kl is None:
        return {"algo.kl.init_coef": 0}
    estimator = supported(ESTIMATORS, ENGINE, recipe, "the KL estimator {}", "estimator", kl.estimator)
    options = {"algo.kl.init_coef": kl.beta, "algo.kl.estimator": ESTIMATORS[estimator]}
    if isinstance(kl, KLInReward):
        if isinstance(recipe.credit, GroupAdvantage):
            differs.append(
                "each token is charged the KL estimates from it on, after the baseline; here the whole reply's, before"
            )
        return options
    if head(recipe.update.weights) is not aggregation.token_mean:
        differs.append("the KL term is a mean over the batch's tokens, whatever the weights of the objective")
    return options | {"algo.kl.use_loss": True}


def _corrections(recipe: Recipe) -> dict[str, Any]:
    """Return the options of importance weights for off-policy completions; in OpenRLHF, for the sampling engine."""
    if not recipe.update.corrections:
        return {}
    if len(recipe.update.corrections) > 1:
        raise NoCounterpartError(ENGINE, recipe.name, "two corrections at once", argument="corrections")
    [correction] = recipe.update.corrections
    if head(recipe.update.objective) is policy_losses.gspo:
        raise NoCounterpartError(
            ENGINE, recipe.name, "a correction of gspo", argument="corrections", value=head(correction).__name__
        )
    known = (truncated_importance, masked_importance)
    supported(known, ENGINE, recipe, "the correction {}", "corrections", correction)
    cap, masks = number(correction, "importance_sampling_cap"), head(correction) is masked_importance
    return {
        "algo.advantage.is_correction_level": "token",
        "algo.advantage.is_correction_mode": "mask" if masks else "clip",
        "algo.advantage.is_correction_threshold": (number(correction, "importance_sampling_floor"), cap)
        if masks
        else (cap,),
    }


# -- preferences -------------------------------------------------------------------------------------------------

_LOSSES: dict[Any, Any] = {
    pairs.dpo: lambda f: {},
    pairs.cdpo: lambda f: {"model.label_smoothing": number(f, "label_smoothing")},
    pairs.ipo: lambda f: {"model.ipo_enable": True},
    pairs.dpo_nll: lambda f: {"model.nll_loss_coef": number(f, "nll_weight")},
}
#: A difference of OpenRLHF's reader of pairs from our trainers.
TEXTS = "a reply that does not end with the tokenizer's end of sequence is given a blank and one"


def offline(recipe: PreferenceRecipe) -> ExportPlan:
    """Map a preference loss to OpenRLHF.

    Raises:
        NoCounterpartError: OpenRLHF has no equal loss.
    """
    loss = head(recipe.loss)
    supported(() if recipe.context else _LOSSES, ENGINE, recipe, "the loss {}", "loss", loss)
    if loss is pairs.ipo and number(recipe.loss, "length_normalised"):
        raise NoCounterpartError(
            ENGINE,
            recipe.name,
            "ipo of means over tokens (length_normalised)",
            argument="length_normalised",
            value=True,
        )
    options = {"model.beta": number(recipe.loss, "beta"), **_LOSSES[loss](recipe.loss)}
    return ExportPlan(TRAINERS["dpo"], options, (TEXTS,))


def sft(spec: RunSpec) -> ExportPlan:
    """Map supervised fine-tuning to OpenRLHF.

    Raises:
        NoCounterpartError: another loss, packed rows, or ``train_on`` "all".
    """
    refuse_sft_settings(ENGINE, spec, "assistant", "last")
    return ExportPlan(TRAINERS["sft"], {}, (TEXTS,))


def reward(spec: RunSpec) -> ExportPlan:
    """Map a reward model to OpenRLHF.

    Raises:
        NoCounterpartError: another loss than Bradley–Terry's with the data's margins.
    """
    config = spec.config
    refuse_reward_settings(ENGINE, config, "disable_dropout")
    differs = [TEXTS, "the head starts at random"]
    if getattr(config, "center_rewards_coefficient", 0.0):
        differs.append("no term that keeps the rewards' mean at 0 (center_rewards_coefficient)")
    return ExportPlan(TRAINERS["rm"], {"model.loss_type": "sigmoid", "model.margin_loss_enable": True}, tuple(differs))
