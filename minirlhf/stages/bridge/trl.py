"""Recipes in the words of TRL (1.16).

"The same" means: on the same completions two whole optimizer steps have the same gradients (1e-5 of their norm), ratios away from 1.
``tests/test_bridge.py`` runs both; one step would not do, as several of TRL's switches act only when the ratio has left 1.
"""

from __future__ import annotations

from typing import Any

from minirlhf.equations import advantages, aggregation, policy_losses
from minirlhf.equations.kl import k1, k3
from minirlhf.equations.preference_losses import divergences, lists, pairs, pointwise, reference_free, unpaired
from minirlhf.recipes import Recipe
from minirlhf.recipes.offline import Preference
from minirlhf.recipes.parts import (
    Grouped,
    InLoss,
    InReward,
    cut_off,
    finished,
    not_left_behind,
    soft_overlong,
    token_cost,
)
from minirlhf.stages.bridge.mapped import Mapped, NoCounterpartError, head, number

ENGINE = "TRL"
GRPO_TRAINER, RLOO_TRAINER = "trl.GRPOTrainer", "trl.RLOOTrainer"

#: (objective, weights) -> ``loss_type`` and ``importance_sampling_level``.
OBJECTIVES: dict[tuple[Any, Any], dict[str, Any]] = {
    (policy_losses.ppo_clip, aggregation.sequence_mean): {"loss_type": "grpo"},
    (policy_losses.ppo_clip, aggregation.fixed_length): {"loss_type": "dr_grpo"},
    (policy_losses.ppo_clip, aggregation.token_mean): {"loss_type": "dapo"},
    (policy_losses.gspo, aggregation.sequence_mean): {"loss_type": "grpo", "importance_sampling_level": "sequence"},
    (policy_losses.gspo_token, aggregation.sequence_mean): {
        "loss_type": "grpo",
        "importance_sampling_level": "sequence",
    },
    (policy_losses.luspo, aggregation.sequence_mean): {"loss_type": "luspo", "importance_sampling_level": "sequence"},
    (policy_losses.sapo, aggregation.sequence_mean): {"loss_type": "sapo"},
    (policy_losses.cispo, aggregation.token_mean): {"loss_type": "cispo"},
}
#: An objective that says what another one does while the ratio is 1.
WHILE_ONE = {policy_losses.reinforce: policy_losses.ppo_clip}
ADVANTAGES = {advantages.group_zscore: "group", advantages.group_center: "none", advantages.lite_ppo: "batch"}
#: What can be done to rewards outside the trainer, by the exported grader, which sees each reply's tokens.
IN_THE_GRADER = (soft_overlong, cut_off, token_cost)


def online(recipe: Recipe, *, staleness: int = 0) -> Mapped:
    """An online recipe.

    Raises:
        NoCounterpartError: naming the part.
    """
    refuse = lambda part: NoCounterpartError(ENGINE, recipe.name, part)
    update, collect = recipe.update, recipe.collect
    differs: list[str] = []
    single = update.num_iterations * update.num_minibatches == 1
    if staleness or (update.decoupled and not single):
        raise refuse("a sampler that lags behind (staleness, decoupled) in one process")
    if not isinstance(recipe.credit, Grouped):
        raise refuse(f"the credit {recipe.credit.title}")
    for name in ("positive_coef", "ptx_coef"):
        if getattr(update, name):
            raise refuse(name)
    if collect.retain is not None:
        raise refuse("retain, which learns from some samples of a group")
    for shaped in collect.shape:
        if head(shaped) not in IN_THE_GRADER:
            raise refuse(f"shape={head(shaped).__name__}")
    if collect.refill is not None:
        differs.append("groups without a spread of rewards are not sampled anew: the batch is smaller by them")
    if update.num_minibatches > 1:
        differs.append("which replies meet in a minibatch: TRL shuffles a rollout in its own order")

    objective = head(update.objective)
    if head(recipe.credit.advantage) is advantages.leave_one_out:
        return _rloo(recipe, single, differs)
    if single:
        objective = WHILE_ONE.get(objective, objective)
    found = OBJECTIVES.get((objective, head(update.weights)))
    if found is None:
        raise refuse(f"{head(update.objective).__name__} with weights {head(update.weights).__name__}")
    options = {**found, **_clip(recipe, objective), "scale_rewards": _scale(recipe)}
    options |= {"beta": 0.0} if update.kl is None else _kl(recipe)
    options |= {"num_iterations": update.num_iterations, "steps_per_generation": update.num_minibatches}
    options["mask_truncated_completions"] = _keep(recipe)
    if not number(update.weights, "renormalise"):
        raise refuse("weights that count replies without weight (renormalise=False)")
    for correction in update.corrections:
        if head(correction) is not not_left_behind:
            raise refuse(f"the correction {head(correction).__name__}")
        options["off_policy_mask_threshold"] = number(correction, "off_policy_mask_threshold")
    return Mapped(GRPO_TRAINER, options, tuple(differs))


def _rloo(recipe: Recipe, single: bool, differs: list[str]) -> Mapped:
    """RLOO has a trainer of its own: sums over sequences, the KL estimate in the reward."""
    update = recipe.update
    kl = update.kl
    if head(update.objective) is not policy_losses.reinforce or head(update.weights) is not aggregation.sequence_sum:
        raise NoCounterpartError(
            ENGINE, recipe.name, "leave_one_out with another loss than REINFORCE's over whole replies"
        )
    if not single:
        raise NoCounterpartError(ENGINE, recipe.name, "several updates per rollout without a clip")
    if kl is not None and not (isinstance(kl, InReward) and head(kl.estimator) is k1):
        raise NoCounterpartError(ENGINE, recipe.name, f"the KL term {kl}")
    options = {"beta": 0.0 if kl is None else kl.beta, "num_iterations": 1, "mask_truncated_completions": _keep(recipe)}
    return Mapped(RLOO_TRAINER, options, tuple(differs))


def _clip(recipe: Recipe, objective: Any) -> dict[str, Any]:
    """The numbers of the objective; those of one that stands in while the ratio is 1 do nothing."""
    given = recipe.update.objective
    if objective is not head(given):
        return {}
    if objective is policy_losses.sapo:
        options = {name: number(given, name) for name in ("sapo_temperature_pos", "sapo_temperature_neg")}
        return options | _level(given)
    if objective is policy_losses.cispo:
        if number(given, "epsilon") is not None:
            raise NoCounterpartError(ENGINE, recipe.name, "a lower bound of CISPO's weight (epsilon)")
        return {"epsilon_high": 1.0 + number(given, "epsilon_high"), **_level(given)}  # there it is the bound itself
    return {name: number(given, name) for name in ("epsilon", "epsilon_high", "delta")}


def _level(objective: Any) -> dict[str, str]:
    """Whether the ratio is a token's or a reply's."""
    return {"importance_sampling_level": "sequence"} if number(objective, "per_sequence") else {}


def _scale(recipe: Recipe) -> str:
    given = recipe.credit.advantage  # type: ignore[attr-defined]
    function = head(given)
    if function not in ADVANTAGES:
        raise NoCounterpartError(ENGINE, recipe.name, f"the advantage {function.__name__}")
    if function is not advantages.group_center and (number(given, "ddof"), number(given, "eps")) != (1, 1e-4):
        raise NoCounterpartError(ENGINE, recipe.name, "ddof and eps of the advantage other than 1 and 1e-4")
    return ADVANTAGES[function]


def _kl(recipe: Recipe) -> dict[str, Any]:
    kl = recipe.update.kl
    if not (isinstance(kl, InLoss) and head(kl.estimator) is k3):
        raise NoCounterpartError(ENGINE, recipe.name, f"the KL term {kl}")
    # TRL's default weighs the estimate with the ratio: another gradient as soon as the policy has moved.
    return {"beta": kl.beta, "use_bias_correction_kl": False}


def _keep(recipe: Recipe) -> bool:
    keep = recipe.update.keep
    if keep is None:
        return False
    if head(keep) is not finished:
        raise NoCounterpartError(ENGINE, recipe.name, f"keep={head(keep).__name__}")
    return True


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
    pointwise.sppo: (DPO_TRAINER, lambda f: {"loss_type": ["sppo_hard"], "beta": number(f, "beta")}),
    unpaired.bco_pair: (DPO_TRAINER, lambda f: {"loss_type": ["bco_pair"], "beta": number(f, "beta")}),
    lists.nca_pair: (DPO_TRAINER, lambda f: {"loss_type": ["nca_pair"], "beta": number(f, "beta")}),
    lists.exo_pair: (DPO_TRAINER, lambda f: {"loss_type": ["exo_pair"], **_both(f)}),
    divergences.f_dpo: (DPO_TRAINER, lambda f: _f_dpo(f)),
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
    if number(loss, "f_prime") is not divergences.f_prime_jensen_shannon:
        raise NoCounterpartError(ENGINE, "f_dpo", f"f_prime={number(loss, 'f_prime').__name__}")
    return {"loss_type": ["sigmoid"], "f_divergence_type": "js_divergence", "beta": number(loss, "beta") / 2}


def offline(recipe: Preference) -> Mapped:
    """A preference loss.

    Raises:
        NoCounterpartError: TRL has no loss that is the same.
    """
    loss = head(recipe.loss)
    if loss not in _LOSSES or recipe.context:
        raise NoCounterpartError(ENGINE, recipe.name, f"the loss {loss.__name__}")
    trainer, options = _LOSSES[loss]
    return Mapped(trainer, options(recipe.loss))
