"""Recipes in the options of TRL (1.16).

"The same" means: on the same completions, two whole optimizer steps have the same gradients (within 1e-5 of their
norm), with ratios away from 1. ``tests/test_bridge.py`` runs both. One step is not enough, because several options of
TRL have an effect only when the ratio is not 1.
"""

from __future__ import annotations

import functools
from typing import Any

from minirlhf.core import provenance
from minirlhf.equations import advantages, aggregation, policy_losses
from minirlhf.equations.kl import k1, k3
from minirlhf.equations.preference_losses import divergences, lists, pairs, pointwise, reference_free, unpaired
from minirlhf.feedback.custom_losses import is_custom
from minirlhf.recipes import Recipe
from minirlhf.recipes.offline import PreferenceRecipe, kto_batch_reference_point, quantiles
from minirlhf.recipes.options import head, number
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
from minirlhf.trainers.sft import SFTConfig
from minirlhf_cli.export.mapped import (
    ExportPlan,
    NoCounterpartError,
    RunSpec,
    raise_unsupported,
    refuse_numbers,
    refuse_reward_settings,
    refuse_settings,
    require_single_function,
    supported,
)
from minirlhf_cli.files.sources import SFTSource

ENGINE, VERSION = "TRL", "1.16"
GRPO_TRAINER, RLOO_TRAINER, GMPO_TRAINER = "trl.GRPOTrainer", "trl.RLOOTrainer", "trl.experimental.gmpo.GMPOTrainer"

#: (objective, weights) -> ``loss_type`` and ``importance_sampling_level``.
OBJECTIVES: dict[tuple[Any, Any], dict[str, Any]] = {
    (policy_losses.ppo_clip, aggregation.sequence_mean): {"loss_type": "grpo"},
    (policy_losses.ppo_clip, aggregation.fixed_length): {"loss_type": "dr_grpo"},
    (policy_losses.ppo_clip, aggregation.token_mean): {"loss_type": "dapo"},
    (policy_losses.ppo_clip, aggregation.sequence_sum): {
        "loss_type": "luspo"
    },  # with token ratios: their sum; the length is not used
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
#: Objectives that equal another objective while the ratio is 1.
WHILE_ONE = {policy_losses.reinforce: policy_losses.ppo_clip}
ADVANTAGES = {advantages.group_zscore: "group", advantages.group_center: "none", advantages.lite_ppo: "batch"}
#: Reward shaping that the exported grader can apply outside the trainer, because it gets each completion's tokens.
IN_THE_GRADER = (penalize_overlong, penalize_missing_eos, penalize_length)
#: Importance weights for off-policy completions; TRL has them for vLLM against the model.
BETWEEN_VLLM = {
    truncated_importance: "token_truncate",
    masked_importance: "token_mask",
    sequence_importance: "sequence_truncate",
}


def online(recipe: Recipe, *, staleness: int = 0) -> ExportPlan:
    """Map an online recipe to TRL.

    Raises:
        NoCounterpartError: names the part without a counterpart.
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
    sum_loss = head(update.objective) is policy_losses.reinforce and head(update.weights) is aggregation.sequence_sum
    single_update = sum_loss and require_single_function(recipe) and collect.sample_filter is None
    leave_one_out = head(recipe.credit.advantage) is advantages.leave_one_out
    if isinstance(update.kl, KLInReward) or (
        update.kl is None and single_update and leave_one_out and not update.corrections
    ):
        return _rloo(recipe, sum_loss and leave_one_out, differs)

    objective = head(update.objective)
    if require_single_function(recipe):
        objective = WHILE_ONE.get(objective, objective)
    loss_options = OBJECTIVES.get((objective, head(update.weights)))
    if loss_options is None:
        raise refused(
            f"{head(update.objective).__name__} with weights {head(update.weights).__name__}",
            argument="weights",
            value=head(update.weights).__name__,
        )
    scale, advantage = _scale(recipe)
    options = {**loss_options, **_clip(recipe, objective), "scale_rewards": scale}
    options |= {"beta": 0.0} if update.kl is None else _kl(recipe)
    options |= {"num_iterations": update.num_iterations, "steps_per_generation": update.num_minibatches}
    options["mask_truncated_completions"] = _keep(recipe)
    for correction in update.corrections:
        options |= _correction(recipe, correction, differs)
    is_gmpo = objective is policy_losses.gmpo
    if objective in (policy_losses.gmpo, policy_losses.vespo) and update.corrections:
        # TRL's VESPO adds the correction's log-weight to its own inside the kernel; here it is a factor on the objective
        raise refused(f"corrections of {objective.__name__}", argument="corrections")
    if not is_gmpo:  # with vLLM, TRL corrects by default
        options.setdefault("vllm_importance_sampling_correction", False)
    if collect.sample_filter is not None and update.keep is not None:
        raise refused("sample_filter together with keep", argument="sample_filter")
    if collect.sample_filter is not None:
        _shipped(recipe, collect.sample_filter)
        advantage = advantage or recipe.credit.advantage
    trainer = GMPO_TRAINER if is_gmpo else GRPO_TRAINER
    return ExportPlan(trainer, options, tuple(differs), advantage=advantage, sample_filter=collect.sample_filter)


def _rloo(recipe: Recipe, rloo_loss: bool, differs: list[str]) -> ExportPlan:
    """Map to RLOO, the only trainer with a KL estimate in the reward: sums over sequences, and one update."""
    update, kl = recipe.update, recipe.update.kl
    refused = functools.partial(NoCounterpartError, ENGINE, recipe.name)
    if not rloo_loss:
        raise refused("a KL term in the reward with another loss than RLOO's", argument="kl", value="reward")
    if not require_single_function(recipe):
        raise refused(
            "several updates per rollout without a clip", argument="num_iterations", value=update.num_iterations
        )
    if kl is not None:
        supported([k1], ENGINE, recipe, "the KL estimator {} in the reward", "estimator", kl.estimator)
    if recipe.collect.sample_filter is not None:
        raise refused("sample_filter with a KL term in the reward", argument="sample_filter")
    for correction in update.corrections:
        supported([], ENGINE, recipe, "the correction {} of RLOO", "corrections", correction)
    options = {"beta": 0.0 if kl is None else kl.beta, "num_iterations": 1, "mask_truncated_completions": _keep(recipe)}
    return ExportPlan(RLOO_TRAINER, options, tuple(differs))


def _clip(recipe: Recipe, objective: Any) -> dict[str, Any]:
    """Return the hyperparameters of the objective.

    A substitute objective, used while the ratio is 1, has none: they have no effect.
    """
    bound_objective = recipe.update.objective
    if objective is not head(bound_objective):
        return {}
    if objective is policy_losses.sapo:
        options = {name: number(bound_objective, name) for name in ("sapo_temperature_pos", "sapo_temperature_neg")}
        return options | _level(bound_objective)
    if objective is policy_losses.vespo:
        names = ("vespo_k_pos", "vespo_lambda_pos", "vespo_k_neg", "vespo_lambda_neg")
        return {name: number(bound_objective, name) for name in names}
    if objective is policy_losses.cispo:
        if number(bound_objective, "epsilon") is not None:
            raise NoCounterpartError(
                ENGINE,
                recipe.name,
                "a lower bound of CISPO's weight (epsilon)",
                argument="epsilon",
                value=number(bound_objective, "epsilon"),
            )
        return {
            "epsilon_high": 1.0 + number(bound_objective, "epsilon_high"),
            **_level(bound_objective),
        }  # in TRL it is the bound itself
    extras = {} if objective is policy_losses.gmpo else {"delta": number(bound_objective, "delta")}
    return {
        "epsilon": number(bound_objective, "epsilon"),
        "epsilon_high": number(bound_objective, "epsilon_high"),
        **extras,
    }


def _level(objective: Any) -> dict[str, str]:
    """Return the option for ratios per token or per sequence."""
    return {"importance_sampling_level": "sequence"} if number(objective, "per_sequence") else {}


def _scale(recipe: Recipe) -> tuple[str, Any]:
    """Return ``scale_rewards``, and the advantage function if no value of ``scale_rewards`` expresses it."""
    advantage = recipe.credit.advantage  # type: ignore[attr-defined]
    function = head(advantage)
    centred = function is advantages.group_center
    if function in ADVANTAGES and (centred or (number(advantage, "ddof"), number(advantage, "eps")) == (1, 1e-4)):
        return ADVANTAGES[function], None
    return "none", _shipped(recipe, advantage)


def _shipped(recipe: Recipe, function: Any) -> Any:
    """Return the function if the exported script can import it, that is, if the library defines it."""
    unbound = head(function)
    if not provenance.is_ours(unbound.__module__):
        qualified_name = f"{unbound.__module__}.{unbound.__name__}"
        part = f"{qualified_name}, which is no function of these packages"
        raise NoCounterpartError(ENGINE, recipe.name, part, argument="function", value=qualified_name)
    return function


def _kl(recipe: Recipe) -> dict[str, Any]:
    kl = recipe.update.kl
    assert kl is not None
    supported([k3] if isinstance(kl, KLInLoss) else [], ENGINE, recipe, "{} in the loss", "estimator", kl.estimator)
    # TRL's default multiplies the estimate by the ratio: its gradient is that of k2, also on policy.
    return {"beta": kl.beta, "use_bias_correction_kl": False}


def _keep(recipe: Recipe) -> bool:
    """Return ``mask_truncated_completions``.

    TRL's means over completions count the masked completions, its means over tokens do not.
    """
    keep, weights = recipe.update.keep, recipe.update.weights
    if keep is None:
        return False
    supported([mask_truncated_completions], ENGINE, recipe, "keep={}", "keep", keep)
    if number(weights, "renormalise") is not (head(weights) is aggregation.token_mean):
        renormalised = number(weights, "renormalise")
        counted = "does not count" if renormalised else "counts"
        part = f"a {head(weights).__name__} that {counted} replies without weight (renormalise)"
        raise NoCounterpartError(ENGINE, recipe.name, part, argument="renormalise", value=renormalised)
    return True


def _correction(recipe: Recipe, correction: Any, differs: list[str]) -> dict[str, Any]:
    function = head(correction)
    if function is off_policy_sequence_mask:
        return {"off_policy_mask_threshold": number(correction, "off_policy_mask_threshold")}
    supported(BETWEEN_VLLM, ENGINE, recipe, "the correction {}", "corrections", correction)
    differs.append("the weight is that of the model against vLLM, which samples; without use_vllm=True there is none")
    floor = (
        {"vllm_importance_sampling_clip_min": number(correction, "importance_sampling_floor")}
        if function is masked_importance
        else {}
    )
    return {
        "vllm_importance_sampling_correction": True, "vllm_importance_sampling_mode": BETWEEN_VLLM[function],
        "vllm_importance_sampling_clip_max": number(correction, "importance_sampling_cap"), **floor,
    }  # fmt: skip


# -- preferences -------------------------------------------------------------------------------------------------

DPO_TRAINER, CPO_TRAINER, KTO_TRAINER = "trl.DPOTrainer", "trl.experimental.cpo.CPOTrainer", "trl.KTOTrainer"

#: Loss -> trainer, and a function from our loss, with its hyperparameters bound, to the options.
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
    unpaired.kto: (
        KTO_TRAINER,
        lambda f: {"loss_type": "kto", **{name: number(f, name) for name in ("beta", "desirable_weight", "undesirable_weight")}},
    ),
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
    """Express conservative DPO, which TRL lacks, as a weighted sum of its sigmoid and robust losses.

    TRL's robust loss is (1 − ε) times the sigmoid loss minus ε times the flipped loss.
    """
    return {
        "loss_type": ["sigmoid", "robust"], "beta": beta, "label_smoothing": label_smoothing,
        "loss_weights": [2 * (1 - label_smoothing), -(1 - 2 * label_smoothing)],
    }  # fmt: skip


def _f_dpo(loss: Any) -> dict[str, Any]:
    """Halve β, because TRL's Jensen–Shannon loss has twice the slope of ours."""
    if (f_prime := number(loss, "f_prime")) is not divergences.f_prime_jensen_shannon:
        name = f_prime.__name__
        raise NoCounterpartError(ENGINE, "f_dpo", f"f_prime={name}", argument="f_prime", value=name)
    return {"loss_type": ["sigmoid"], "f_divergence_type": "js_divergence", "beta": number(loss, "beta") / 2}


def _sppo(loss: Any) -> dict[str, Any]:
    """In TRL the chosen completion always wins."""
    refuse_numbers(ENGINE, "sppo", loss, chosen_win_rate=1.0, rejected_win_rate=0.0)
    return {"loss_type": ["sppo_hard"], "beta": number(loss, "beta")}


def _ipo(loss: Any) -> dict[str, Any]:
    """TRL's IPO uses means over tokens."""
    if not number(loss, "length_normalised"):
        raise NoCounterpartError(
            ENGINE, "ipo", "sums over tokens (length_normalised=False)", argument="length_normalised", value=False
        )
    return {"loss_type": ["ipo"], "beta": number(loss, "beta")}


#: Batch statistics of a loss that TRL computes in the same way.
_CONTEXT: dict[Any, tuple[Any, ...]] = {pairs.aot: (quantiles,), unpaired.kto: (kto_batch_reference_point,)}
#: KTO's reference point is 0 while policy and reference are equal; from the second step on its estimates differ.
REFERENCE_POINT = (
    "KTO's reference point is estimated there from the completions of the neighbours in the batch, and here from those "
    "of other rows of the data"
)

OWN_NEIGHBOURS = (
    "each process, and each micro-batch, needs at least two completions, whose neighbours it takes for KTO's reference "
    "point: several processes make the first step of one process; after it, two differed by less than 1 % of the gradient"
)


def offline(recipe: PreferenceRecipe) -> ExportPlan:
    """Map a preference loss to TRL.

    Raises:
        NoCounterpartError: TRL has no equal loss.
    """
    loss = head(recipe.loss)
    known = _LOSSES if recipe.context == _CONTEXT.get(loss, ()) else ()
    supported(known, ENGINE, recipe, "the loss {}", "loss", loss)
    trainer, options = _LOSSES[loss]
    notes = {
        pairs.aot: ("each process, and each micro-batch, ranks its own pairs",),
        unpaired.kto: (OWN_NEIGHBOURS,),
    }.get(loss, ())
    differs = (REFERENCE_POINT,) if loss is unpaired.kto else ()
    return ExportPlan(trainer, options(recipe.loss), differs, notes=notes)


#: Limits of packed rows in TRL.
NOT_BY_POSITION = ("OPT", "Falcon", "MPT", "Bloom")
BY_POSITION = (
    "packed sequences are told apart by their positions: Llama's kin and flash attention understand them, but in transformers 5.23 "
    f"{', '.join(NOT_BY_POSITION[:-1])} and {NOT_BY_POSITION[-1]} then see the sequences before"
)


def sft(spec: RunSpec) -> ExportPlan:
    """Map supervised fine-tuning to TRL; the script sets the learned turns and the length of a packed row."""
    source, config = spec.source, spec.config
    assert isinstance(source, SFTSource) and isinstance(config, SFTConfig)
    refuse_settings(ENGINE, spec.name, disable_dropout=config.disable_dropout)
    refuse_settings(ENGINE, spec.name, loss_type=source.loss_type if is_custom(source.loss_type) else "")
    options = {"completion_only_loss": source.train_on != "all", "loss_type": source.loss_type}
    if not config.packing:
        return ExportPlan("trl.SFTTrainer", options)
    return ExportPlan("trl.SFTTrainer", {**options, "packing": True, "packing_strategy": "bfd"}, notes=(BY_POSITION,))


def reward(spec: RunSpec) -> ExportPlan:
    """Map a reward model to TRL.

    Raises:
        NoCounterpartError: another loss than Bradley–Terry's with the data's margins.
    """
    config = spec.config
    refuse_reward_settings(ENGINE, config)
    coefficient = getattr(config, "center_rewards_coefficient", 0.0) or None
    bias = "from the second step on, the head there has no bias that could keep the rewards' mean at 0, and here it has"
    return ExportPlan("trl.RewardTrainer", {"center_rewards_coefficient": coefficient}, (bias,) if coefficient else ())
