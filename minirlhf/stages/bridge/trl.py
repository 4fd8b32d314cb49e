"""Recipes in the words of TRL (1.16).

"The same" means: on the same completions two whole optimizer steps have the same gradients (1e-5 of their norm), ratios away from 1.
``tests/test_bridge.py`` runs both; one step would not do, as several of TRL's switches act only when the ratio has left 1.
"""

from __future__ import annotations

import functools
from typing import Any

from minirlhf.equations import advantages, aggregation, policy_losses
from minirlhf.equations.kl import k1, k3
from minirlhf.equations.preference_losses import divergences, lists, pairs, pointwise, reference_free, unpaired
from minirlhf.recipes import Recipe
from minirlhf.recipes.offline import PreferenceRecipe, quantiles
from minirlhf.recipes.parts import (
    GroupAdvantage,
    KLInLoss,
    KLInReward,
    mask_truncated_completions,
    masked_importance,
    off_policy_sequence_mask,
    penalize_length,
    penalize_missing_eos,
    penalize_overlong,
    sequence_importance,
    truncated_importance,
)
from minirlhf.stages.bridge.mapped import (
    ExportPlan,
    NoCounterpartError,
    RunSpec,
    head,
    number,
    raise_unsupported,
    refuse_numbers,
    refuse_reward_settings,
    require_single_function,
)
from minirlhf.stages.sources import SFTSource
from minirlhf.trainers.sft import SFTConfig

ENGINE, VERSION = "TRL", "1.16"
GRPO_TRAINER, RLOO_TRAINER, GMPO_TRAINER = "trl.GRPOTrainer", "trl.RLOOTrainer", "trl.experimental.gmpo.GMPOTrainer"

#: (objective, weights) -> ``loss_type`` and ``importance_sampling_level``.
OBJECTIVES: dict[tuple[Any, Any], dict[str, Any]] = {
    (policy_losses.ppo_clip, aggregation.sequence_mean): {"loss_type": "grpo"},
    (policy_losses.ppo_clip, aggregation.fixed_length): {"loss_type": "dr_grpo"},
    (policy_losses.ppo_clip, aggregation.token_mean): {"loss_type": "dapo"},
    (policy_losses.ppo_clip, aggregation.sequence_sum): {
        "loss_type": "luspo"
    },  # of tokens: their sum, a reply's length or not
    (policy_losses.gspo, aggregation.sequence_mean): {"loss_type": "grpo", "importance_sampling_level": "sequence"},
    (policy_losses.gspo_token, aggregation.sequence_mean): {
        "loss_type": "grpo",
        "importance_sampling_level": "sequence",
    },
    (policy_losses.luspo, aggregation.sequence_mean): {"loss_type": "luspo", "importance_sampling_level": "sequence"},
    (policy_losses.sapo, aggregation.sequence_mean): {"loss_type": "sapo"},
    (policy_losses.cispo, aggregation.token_mean): {"loss_type": "cispo"},
    (policy_losses.vespo, aggregation.token_mean): {"loss_type": "vespo"},
    (policy_losses.gmpo, aggregation.sequence_mean): {},
}
#: An objective that says what another one does while the ratio is 1.
WHILE_ONE = {policy_losses.reinforce: policy_losses.ppo_clip}
ADVANTAGES = {advantages.group_zscore: "group", advantages.group_center: "none", advantages.lite_ppo: "batch"}
#: What can be done to rewards outside the trainer, by the exported grader, which sees each reply's tokens.
IN_THE_GRADER = (penalize_overlong, penalize_missing_eos, penalize_length)
#: Weights for replies of another policy, which TRL knows between vLLM and the model.
BETWEEN_VLLM = {
    truncated_importance: "token_truncate",
    masked_importance: "token_mask",
    sequence_importance: "sequence_truncate",
}


def online(recipe: Recipe, *, staleness: int = 0) -> ExportPlan:
    """An online recipe.

    Raises:
        NoCounterpartError: naming the part.
    """
    raise_unsupported(ENGINE, recipe, staleness=staleness, shapes=IN_THE_GRADER)
    refused = functools.partial(NoCounterpartError, ENGINE, recipe.name)
    update, collect = recipe.update, recipe.collect
    differs: list[str] = []
    if not isinstance(recipe.credit, GroupAdvantage):
        raise refused(f"the credit {recipe.credit.title}", argument="credit", value=recipe.credit.title)
    if collect.refill is not None:
        differs.append("groups without a spread of rewards are not sampled anew: the batch is smaller by them")
    if update.num_minibatches > 1:
        differs.append("which replies meet in a minibatch: TRL shuffles a rollout in its own order")
    sums = head(update.objective) is policy_losses.reinforce and head(update.weights) is aggregation.sequence_sum
    plain = sums and require_single_function(recipe) and collect.sample_filter is None
    others = head(recipe.credit.advantage) is advantages.leave_one_out
    if isinstance(update.kl, KLInReward) or (update.kl is None and plain and others and not update.corrections):
        return _rloo(recipe, sums and others, differs)

    objective = head(update.objective)
    if require_single_function(recipe):
        objective = WHILE_ONE.get(objective, objective)
    found = OBJECTIVES.get((objective, head(update.weights)))
    if found is None:
        raise refused(
            f"{head(update.objective).__name__} with weights {head(update.weights).__name__}",
            argument="weights",
            value=head(update.weights).__name__,
        )
    scale, own = _scale(recipe)
    options = {**found, **_clip(recipe, objective), "scale_rewards": scale}
    options |= {"beta": 0.0} if update.kl is None else _kl(recipe)
    options |= {"num_iterations": update.num_iterations, "steps_per_generation": update.num_minibatches}
    options["mask_truncated_completions"] = _keep(recipe)
    for correction in update.corrections:
        options |= _correction(recipe, correction, differs)
    geometric = objective is policy_losses.gmpo
    if geometric and update.corrections:
        raise refused("corrections of gmpo", argument="corrections")
    if collect.sample_filter is not None and update.keep is not None:
        raise refused("sample_filter together with keep", argument="sample_filter")
    if collect.sample_filter is not None:
        _shipped(recipe, collect.sample_filter)
        own = own or recipe.credit.advantage
    trainer = GMPO_TRAINER if geometric else GRPO_TRAINER
    return ExportPlan(trainer, options, tuple(differs), advantage=own, sample_filter=collect.sample_filter)


def _rloo(recipe: Recipe, as_rloo: bool, differs: list[str]) -> ExportPlan:
    """The KL estimate in the reward is RLOO's only: sums over sequences, and one update."""
    update, kl = recipe.update, recipe.update.kl
    refused = functools.partial(NoCounterpartError, ENGINE, recipe.name)
    if not as_rloo:
        raise refused("a KL term in the reward with another loss than RLOO's", argument="kl", value="reward")
    if not require_single_function(recipe):
        raise refused(
            "several updates per rollout without a clip", argument="num_iterations", value=update.num_iterations
        )
    if kl is not None and head(kl.estimator) is not k1:
        raise refused(
            f"the KL estimator {head(kl.estimator).__name__} in the reward",
            argument="estimator",
            value=head(kl.estimator).__name__,
        )
    if recipe.collect.sample_filter is not None:
        raise refused("sample_filter with a KL term in the reward", argument="sample_filter")
    if update.corrections:
        raise refused(
            f"the correction {head(update.corrections[0]).__name__} of RLOO",
            argument="corrections",
            value=head(update.corrections[0]).__name__,
        )
    options = {"beta": 0.0 if kl is None else kl.beta, "num_iterations": 1, "mask_truncated_completions": _keep(recipe)}
    return ExportPlan(RLOO_TRAINER, options, tuple(differs))


def _clip(recipe: Recipe, objective: Any) -> dict[str, Any]:
    """The numbers of the objective; those of one that stands in while the ratio is 1 do nothing."""
    given = recipe.update.objective
    if objective is not head(given):
        return {}
    if objective is policy_losses.sapo:
        options = {name: number(given, name) for name in ("sapo_temperature_pos", "sapo_temperature_neg")}
        return options | _level(given)
    if objective is policy_losses.vespo:
        names = ("vespo_k_pos", "vespo_lambda_pos", "vespo_k_neg", "vespo_lambda_neg")
        return {name: number(given, name) for name in names}
    if objective is policy_losses.cispo:
        if number(given, "epsilon") is not None:
            raise NoCounterpartError(
                ENGINE,
                recipe.name,
                "a lower bound of CISPO's weight (epsilon)",
                argument="epsilon",
                value=number(given, "epsilon"),
            )
        return {"epsilon_high": 1.0 + number(given, "epsilon_high"), **_level(given)}  # there it is the bound itself
    more = {} if objective is policy_losses.gmpo else {"delta": number(given, "delta")}
    return {"epsilon": number(given, "epsilon"), "epsilon_high": number(given, "epsilon_high"), **more}


def _level(objective: Any) -> dict[str, str]:
    """Whether the ratio is a token's or a reply's."""
    return {"importance_sampling_level": "sequence"} if number(objective, "per_sequence") else {}


def _scale(recipe: Recipe) -> tuple[str, Any]:
    """``scale_rewards``, and the advantage itself where that cannot say it."""
    given = recipe.credit.advantage  # type: ignore[attr-defined]
    function = head(given)
    centred = function is advantages.group_center
    if function in ADVANTAGES and (centred or (number(given, "ddof"), number(given, "eps")) == (1, 1e-4)):
        return ADVANTAGES[function], None
    return "none", _shipped(recipe, given)


def _shipped(recipe: Recipe, function: Any) -> Any:
    """A function that the exported script can import: one of the library."""
    plain = head(function)
    if plain.__module__.partition(".")[0] != "minirlhf":
        named = f"{plain.__module__}.{plain.__name__}"
        part = f"{named}, which is no function of the package"
        raise NoCounterpartError(ENGINE, recipe.name, part, argument="function", value=named)
    return function


def _kl(recipe: Recipe) -> dict[str, Any]:
    kl = recipe.update.kl
    if not (isinstance(kl, KLInLoss) and head(kl.estimator) is k3):
        estimator = head(kl.estimator).__name__  # type: ignore[union-attr]
        raise NoCounterpartError(ENGINE, recipe.name, f"{estimator} in the loss", argument="estimator", value=estimator)
    # TRL's default weighs the estimate with the ratio: its gradient is that of k2, on policy too.
    return {"beta": kl.beta, "use_bias_correction_kl": False}


def _keep(recipe: Recipe) -> bool:
    """``mask_truncated_completions``. Its means over replies count the masked ones, its means over tokens do not."""
    keep, weights = recipe.update.keep, recipe.update.weights
    if keep is None:
        return False
    if head(keep) is not mask_truncated_completions:
        raise NoCounterpartError(
            ENGINE, recipe.name, f"keep={head(keep).__name__}", argument="keep", value=head(keep).__name__
        )
    if number(weights, "renormalise") is not (head(weights) is aggregation.token_mean):
        renormalised = number(weights, "renormalise")
        counted = "does not count" if renormalised else "counts"
        part = f"a {head(weights).__name__} that {counted} replies without weight (renormalise)"
        raise NoCounterpartError(ENGINE, recipe.name, part, argument="renormalise", value=renormalised)
    return True


def _correction(recipe: Recipe, given: Any, differs: list[str]) -> dict[str, Any]:
    function = head(given)
    if function is off_policy_sequence_mask:
        return {"off_policy_mask_threshold": number(given, "off_policy_mask_threshold")}
    if function not in BETWEEN_VLLM:
        raise NoCounterpartError(
            ENGINE, recipe.name, f"the correction {function.__name__}", argument="corrections", value=function.__name__
        )
    differs.append("the weight is that of the model against vLLM, which samples; without use_vllm=True there is none")
    floor = (
        {"vllm_importance_sampling_clip_min": number(given, "importance_sampling_floor")}
        if function is masked_importance
        else {}
    )
    return {
        "vllm_importance_sampling_correction": True, "vllm_importance_sampling_mode": BETWEEN_VLLM[function],
        "vllm_importance_sampling_clip_max": number(given, "importance_sampling_cap"), **floor,
    }  # fmt: skip


# -- preferences -------------------------------------------------------------------------------------------------

DPO_TRAINER, CPO_TRAINER, KTO_TRAINER = "trl.DPOTrainer", "trl.experimental.cpo.CPOTrainer", "trl.KTOTrainer"

#: Loss -> trainer, and its options as functions of our loss with its numbers bound.
_LOSSES: dict[Any, tuple[str, Any]] = {
    pairs.dpo: (DPO_TRAINER, lambda f: {"loss_type": ["sigmoid"], "beta": number(f, "beta")}),
    pairs.dpo_length_normalised: (DPO_TRAINER, lambda f: {"loss_type": ["sigmoid_norm"], "beta": number(f, "beta")}),
    pairs.robust_dpo: (DPO_TRAINER, lambda f: {"loss_type": ["robust"], **_both(f)}),
    pairs.hinge: (DPO_TRAINER, lambda f: {"loss_type": ["hinge"], "beta": number(f, "beta")}),
    pairs.cdpo: (DPO_TRAINER, lambda f: _cdpo(**_both(f))),
    pointwise.apo_zero: (DPO_TRAINER, lambda f: {"loss_type": ["apo_zero"], "beta": number(f, "beta")}),
    pointwise.apo_down: (DPO_TRAINER, lambda f: {"loss_type": ["apo_down"], "beta": number(f, "beta")}),
    pointwise.sppo: (DPO_TRAINER, lambda f: _sppo(f)),
    unpaired.bco_pair: (DPO_TRAINER, lambda f: {"loss_type": ["bco_pair"], "beta": number(f, "beta")}),
    lists.nca_pair: (DPO_TRAINER, lambda f: {"loss_type": ["nca_pair"], "beta": number(f, "beta")}),
    lists.exo_pair: (DPO_TRAINER, lambda f: {"loss_type": ["exo_pair"], **_both(f)}),
    divergences.f_dpo: (DPO_TRAINER, lambda f: _f_dpo(f)),
    pairs.ipo: (DPO_TRAINER, lambda f: _ipo(f)),
    pairs.discopop: (
        DPO_TRAINER,
        lambda f: {"loss_type": ["discopop"], "beta": number(f, "beta"), "discopop_tau": number(f, "tau")},
    ),
    pairs.aot: (DPO_TRAINER, lambda f: {"loss_type": ["aot"], "beta": number(f, "beta")}),
    reference_free.simpo: (
        CPO_TRAINER,
        lambda f: {"loss_type": "simpo", "beta": number(f, "beta"), "simpo_gamma": number(f, "gamma"), "cpo_alpha": 0.0},
    ),
    reference_free.alpha_po: (
        CPO_TRAINER,
        lambda f: {
            "loss_type": "alphapo", "beta": number(f, "beta"), "simpo_gamma": number(f, "gamma"), "alpha": number(f, "alpha"),
            "cpo_alpha": 0.0,
        },
    ),
}  # fmt: skip


def _both(loss: Any) -> dict[str, float]:
    return {name: number(loss, name) for name in ("beta", "label_smoothing")}


def _cdpo(beta: float, label_smoothing: float) -> dict[str, Any]:
    """TRL has no conservative DPO; its robust loss is (1 − ε) of it less ε of the flipped one, so two weights make it."""
    return {
        "loss_type": ["sigmoid", "robust"], "beta": beta, "label_smoothing": label_smoothing,
        "loss_weights": [2 * (1 - label_smoothing), -(1 - 2 * label_smoothing)],
    }  # fmt: skip


def _f_dpo(loss: Any) -> dict[str, Any]:
    """TRL's Jensen–Shannon has twice the slope of ours, so β is half."""
    if (f_prime := number(loss, "f_prime")) is not divergences.f_prime_jensen_shannon:
        name = f_prime.__name__
        raise NoCounterpartError(ENGINE, "f_dpo", f"f_prime={name}", argument="f_prime", value=name)
    return {"loss_type": ["sigmoid"], "f_divergence_type": "js_divergence", "beta": number(loss, "beta") / 2}


def _sppo(loss: Any) -> dict[str, Any]:
    """TRL's chosen answer always wins."""
    refuse_numbers(ENGINE, "sppo", loss, chosen_win_rate=1.0, rejected_win_rate=0.0)
    return {"loss_type": ["sppo_hard"], "beta": number(loss, "beta")}


def _ipo(loss: Any) -> dict[str, Any]:
    """TRL's IPO is of means over tokens."""
    if not number(loss, "length_normalised"):
        raise NoCounterpartError(
            ENGINE, "ipo", "sums over tokens (length_normalised=False)", argument="length_normalised", value=False
        )
    return {"loss_type": ["ipo"], "beta": number(loss, "beta")}


#: What a loss takes from the whole batch, where TRL takes the same.
_CONTEXT = {pairs.aot: (quantiles,)}


def offline(recipe: PreferenceRecipe) -> ExportPlan:
    """A preference loss.

    Raises:
        NoCounterpartError: TRL has no loss that is the same.
    """
    loss = head(recipe.loss)
    if loss not in _LOSSES or recipe.context != _CONTEXT.get(loss, ()):
        raise NoCounterpartError(ENGINE, recipe.name, f"the loss {loss.__name__}", argument="loss", value=loss.__name__)
    trainer, options = _LOSSES[loss]
    notes = ("each process, and each micro-batch, ranks its own pairs",) if recipe.context else ()
    return ExportPlan(trainer, options(recipe.loss), notes=notes)


#: What holds of packed rows there.
NOT_BY_POSITION = ("OPT", "Falcon", "MPT", "Bloom")
BY_POSITION = (
    "packed sequences are told apart by their positions: Llama's kin and flash attention understand them, but in transformers 5.23 "
    f"{', '.join(NOT_BY_POSITION[:-1])} and {NOT_BY_POSITION[-1]} then see the sequences before"
)


def sft(told: RunSpec) -> ExportPlan:
    """Supervised fine-tuning; the script says which replies of a conversation are learned, and how long a packed row is."""
    source, config = told.source, told.config
    assert isinstance(source, SFTSource) and isinstance(config, SFTConfig)
    options = {"completion_only_loss": source.train_on != "all", "loss_type": source.loss_type}
    if not config.packing:
        return ExportPlan("trl.SFTTrainer", options)
    return ExportPlan("trl.SFTTrainer", {**options, "packing": True, "packing_strategy": "bfd"}, notes=(BY_POSITION,))


def reward(told: RunSpec) -> ExportPlan:
    """A reward model.

    Raises:
        NoCounterpartError: another loss than Bradley–Terry's with the data's margins.
    """
    config = told.config
    refuse_reward_settings(ENGINE, config)
    coefficient = getattr(config, "center_rewards_coefficient", 0.0) or None
    bias = "from the second step on, the head there has no bias that could keep the rewards' mean at 0, and here it has"
    return ExportPlan("trl.RewardTrainer", {"center_rewards_coefficient": coefficient}, (bias,) if coefficient else ())
