"""TRL's counterpart of each method of this library: the lines of the table, as comparisons that can be run."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from types import SimpleNamespace
from typing import Any, NamedTuple, TypeAlias

import torch
from torch import Tensor

from minirlhf.core.logprobs import next_token_logps, sequence_logps
from minirlhf.equations import advantages as adv
from minirlhf.equations import aggregation as agg
from minirlhf.equations import distillation as kd
from minirlhf.equations import kl, off_policy, rlhf
from minirlhf.equations import policy_losses as po
from minirlhf.equations import preference_losses as pl
from minirlhf.equations.preference_losses import PairLogps
from minirlhf.equations.reward_losses import bradley_terry_loss, centring_penalty
from minirlhf_course.ledger.peers.adapter import (
    Answers,
    PolicyBatch,
    answers,
    batch,
    texts,
    trl_cpo,
    trl_dpo,
    trl_jsd,
    trl_kto,
    trl_online_dpo,
    trl_orpo,
    trl_policy,
    trl_reward,
    trl_rloo,
    trl_sampled_token,
    trl_scores,
    trl_top_k,
)
from minirlhf_course.ledger.registry import Draw


class PeerComparison(NamedTuple):
    """The same quantity by this library and by TRL, both computed from ``leaf``."""

    leaf: Tensor
    ours: Tensor
    theirs: Tensor


Compare: TypeAlias = Callable[[Draw], PeerComparison]


@dataclass(frozen=True)
class LibraryCounterpart:
    """One line of the table: a function of this library and its counterpart in TRL.

    Attributes:
        method: name of the function in this library.
        peer: the trainer and settings in TRL; empty if TRL has no counterpart.
        agree: a comparison whose sides must agree.
        convention: the difference and the setting that removes it, or the reason why there is no peer.
        differ: the same without the setting, which must not agree; None if no setting is needed.
    """

    method: str
    peer: str = ""
    agree: Compare | None = None
    convention: str = ""
    differ: Compare | None = None


# -- kinds of comparison -----------------------------------------------------------------------------------------

BETA = 0.3


def on_pairs(
    ours: Callable[[PairLogps], Tensor], theirs: Callable[[Any], Tensor], make: Callable[..., Any] = answers, **how: Any
) -> Compare:
    """The mean loss of a batch of pairs."""

    def compare(draw: Draw) -> PeerComparison:
        a = make(draw, **how)
        return PeerComparison(a.leaf, ours(a.record()).mean(), theirs(a))

    return compare


def on_mismatched(loss: Callable[[PairLogps, Tensor], Tensor], **settings: Any) -> Compare:
    """A loss of single completions; it also takes log-ratios of mismatched completions, ``(5,)``."""

    def compare(draw: Draw) -> PeerComparison:
        a, mismatched = answers(draw), draw.uniform(5, low=-0.3, high=1.0)
        return PeerComparison(
            a.leaf, loss(a.record(), mismatched).mean(), trl_kto(a, mismatched, beta=BETA, **settings)
        )

    return compare


def on_tokens(
    objective: Callable[..., Tensor],
    weights: Callable[[Tensor], Tensor],
    theirs: Callable[[PolicyBatch], Tensor],
    make: Callable[[Draw], PolicyBatch] = batch,
) -> Compare:
    """A policy objective, aggregated."""

    def compare(draw: Draw) -> PeerComparison:
        b = make(draw)
        return PeerComparison(b.leaf, -agg.aggregate(objective(*b.inputs), weights(b.mask), b.mask), theirs(b))

    return compare


def on_rewards(ours: Callable[[Tensor], Tensor], *, holes: bool = False, **settings: Any) -> Compare:
    """An advantage; advantages are data, so there is no gradient to compare. With ``holes`` some are NaN (ungraded)."""

    def compare(draw: Draw) -> PeerComparison:
        rewards = draw.normal(3, 4)
        if holes:
            rewards[0, 1], rewards[1, 1:] = torch.nan, torch.nan
        return PeerComparison(rewards, ours(rewards).flatten(), trl_scores(rewards, **settings)["advantages"])

    return compare


def on_scores(ours: Callable[[Tensor, Tensor], Tensor], theirs: Callable[[Tensor], Tensor]) -> Compare:
    """The mean loss of a reward model on three pairs."""

    def compare(draw: Draw) -> PeerComparison:
        scores = draw.normal(6).requires_grad_()
        return PeerComparison(scores, ours(*scores.chunk(2)).mean(), theirs(scores))

    return compare


def on_logits(ours: Callable[..., Tensor], **settings: float) -> Compare:
    """A distillation loss, mean over tokens."""

    def compare(draw: Draw) -> PeerComparison:
        student, teacher, mask = draw.normal(2, 4, 5).requires_grad_(), draw.normal(2, 4, 5), draw.mask(2, 4)
        loss = agg.aggregate(ours(student, teacher, mask), agg.token_mean(mask), mask)
        return PeerComparison(student, loss, trl_jsd(student, teacher, mask, **settings))

    return compare


def on_top_k(*, k: int, same: bool) -> Compare:
    """The k most probable tokens of five; with ``same`` they are equal for student and teacher."""

    def compare(draw: Draw) -> PeerComparison:
        student, teacher, mask = draw.normal(2, 4, 5), draw.normal(2, 4, 5), draw.mask(2, 4)
        if same:
            student, teacher = (x.sort(-1).values for x in (student, teacher))
        student.requires_grad_()
        loss = agg.aggregate(kd.top_k_distillation(student, teacher, mask, k=k), agg.token_mean(mask), mask)
        return PeerComparison(student, loss, trl_top_k(student, teacher, mask, k=k))

    return compare


def on_sampled(draw: Draw) -> PeerComparison:
    """Each sampled token is credited with its own reward only: a surrogate with the value of TRL's loss.

    Only its gradient has a meaning.
    """
    student, teacher, mask = draw.normal(2, 4, 5).requires_grad_(), draw.normal(2, 4, 5), draw.mask(2, 4)
    ids = (draw.uniform(2, 4) * 5).long()
    logps, teacher_logps = (next_token_logps(x, ids) for x in (student, teacher))
    rewards = kd.on_policy_reward(logps.detach(), teacher_logps, mask)
    loss = agg.aggregate(-rewards * logps, agg.token_mean(mask), mask)
    return PeerComparison(student, loss, trl_sampled_token(student, teacher, ids, mask))


# -- pairs -------------------------------------------------------------------------------------------------------


def dpo_trainer(loss: Callable[..., Tensor], loss_type: str | list[str], how: Any = None, **settings: Any) -> Compare:
    """A loss against ``DPOTrainer``."""
    return on_pairs(loss, partial(trl_dpo, loss_type=loss_type, beta=BETA, **settings), **(how or {}))


def _one_pair_at_a_time(a: Answers) -> Tensor:
    half = len(a.leaf) // 2
    single_pairs = [Answers(a.leaf[i::half], a.mask[i::half], a.ref[i::half]) for i in range(half)]
    return torch.stack([trl_dpo(x, "aot", beta=BETA, label_smoothing=0.1) for x in single_pairs]).mean()


def _mean_length(pair: PairLogps) -> Tensor:
    assert pair.chosen_lengths is not None
    return pair.chosen_lengths.double().mean()


def _batch_nll(pair: PairLogps) -> Tensor:
    length = _mean_length(pair).expand(len(pair.chosen))
    return pl.dpo_nll(replace(pair, chosen_lengths=length), beta=BETA, nll_weight=0.5)


def _bco(pair: PairLogps, delta: float) -> Tensor:
    return pl.bco(pair.unpaired(), torch.tensor(delta), beta=BETA).view(2, -1).sum(0)


def pairs() -> Iterator[LibraryCounterpart]:
    """Losses on pairs with a reference."""
    for name, loss in {
        "sigmoid": pl.dpo,
        "sigmoid_norm": pl.dpo_length_normalised,
        "hinge": pl.hinge,
        "nca_pair": pl.nca_pair,
        "bco_pair": pl.bco_pair,
        "sppo_hard": pl.sppo,
        "apo_zero": pl.apo_zero,
        "apo_down": pl.apo_down,
    }.items():
        yield LibraryCounterpart(loss.__name__, f"DPOTrainer {name}", dpo_trainer(partial(loss, beta=BETA), name))
    for name, loss in {"sigmoid": pl.dpo, "ipo": pl.ipo}.items():
        theirs = partial(trl_online_dpo, loss_type=name, beta=BETA)
        yield LibraryCounterpart(loss.__name__, f"OnlineDPOTrainer {name}", on_pairs(partial(loss, beta=BETA), theirs))
    for name, smoothed in {"robust": pl.robust_dpo, "exo_pair": pl.exo_pair}.items():
        ours = partial(smoothed, beta=BETA, label_smoothing=0.1)
        yield LibraryCounterpart(smoothed.__name__, f"DPOTrainer {name}", dpo_trainer(ours, name, label_smoothing=0.1))
    discopop = partial(pl.discopop, beta=BETA, tau=0.2)
    yield LibraryCounterpart(
        "discopop", "DPOTrainer discopop", dpo_trainer(discopop, "discopop", args=SimpleNamespace(discopop_tau=0.2))
    )
    matched = lambda p: pl.aot(p, pl.matched_quantiles(p), beta=BETA)
    for method in ("aot", "matched_quantiles"):
        yield LibraryCounterpart(method, "DPOTrainer aot", dpo_trainer(matched, "aot", label_smoothing=0.0))
    conservative = partial(pl.cdpo, beta=BETA, label_smoothing=0.1)
    yield LibraryCounterpart(
        "cdpo",
        "DPOTrainer aot",
        on_pairs(conservative, _one_pair_at_a_time, contrary=True),
        "AOT sorts the margins of a batch first: one pair per batch",
        dpo_trainer(conservative, "aot", {"contrary": True}, label_smoothing=0.1),
    )
    yield LibraryCounterpart(
        "ipo",
        "DPOTrainer ipo",
        dpo_trainer(partial(pl.ipo, beta=BETA, length_normalised=True), "ipo"),
        "means over tokens where the paper has sums: length_normalised=True",
        dpo_trainer(partial(pl.ipo, beta=BETA), "ipo"),
    )
    both, weights = ["sigmoid", "sft"], [1.0, 0.5]
    yield LibraryCounterpart(
        "dpo_nll",
        "DPOTrainer sigmoid, sft",
        dpo_trainer(_batch_nll, both, loss_weights=weights),
        "the NLL is a mean over all tokens of the batch: chosen_lengths = their mean",
        dpo_trainer(partial(pl.dpo_nll, beta=BETA, nll_weight=0.5), both, loss_weights=weights),
    )
    forward = partial(pl.f_dpo, beta=BETA, f_prime=pl.f_prime_forward_kl)
    yield LibraryCounterpart(
        "f_dpo", "DPOTrainer forward_kl", dpo_trainer(forward, "sigmoid", f_divergence_type="forward_kl")
    )
    shannon = partial(pl.f_dpo, f_prime=pl.f_prime_jensen_shannon)
    yield LibraryCounterpart(
        "f_dpo",
        "DPOTrainer js_divergence",
        dpo_trainer(partial(shannon, beta=2 * BETA), "sigmoid", f_divergence_type="js_divergence"),
        "the divergence lacks its factor ½: beta twice as large",
        dpo_trainer(partial(shannon, beta=BETA), "sigmoid", f_divergence_type="js_divergence"),
    )
    alpha = lambda a: partial(pl.f_dpo, beta=BETA, f_prime=partial(pl.f_prime_alpha, alpha=a))
    setting = {"f_divergence_type": "alpha_divergence", "f_alpha_divergence_coef": 0.8}
    narrow = {"dtype": torch.float32}  # TRL does not support float64 here
    yield LibraryCounterpart(
        "f_dpo",
        "DPOTrainer alpha_divergence",
        dpo_trainer(alpha(0.2), "sigmoid", narrow, **setting),
        "the coefficient is 1 − alpha of the paper",
        dpo_trainer(alpha(0.8), "sigmoid", narrow, **setting),
    )


def single_answers() -> Iterator[LibraryCounterpart]:
    """Losses on single completions labelled desirable or undesirable."""
    point = lambda m: pl.kto_reference_point(m, torch.zeros_like(m))
    for method, weight in (("kto", 1.3), ("kto_reference_point", 1.0)):
        ours = lambda p, m, w=weight: pl.kto(p.unpaired(), point(m), beta=BETA, undesirable_weight=w)
        yield LibraryCounterpart(method, "KTOTrainer kto", on_mismatched(ours, undesirable_weight=weight))
    yield LibraryCounterpart(
        "apo_zero",
        "KTOTrainer apo_zero_unpaired",
        on_mismatched(lambda p, _: pl.apo_zero(p, beta=BETA) / 2, loss_type="apo_zero_unpaired"),
        "the mean over answers is half the mean over pairs",
        on_mismatched(lambda p, _: pl.apo_zero(p, beta=BETA), loss_type="apo_zero_unpaired"),
    )
    yield LibraryCounterpart(
        "bco",
        "DPOTrainer bco_pair",
        dpo_trainer(partial(_bco, delta=0.0), "bco_pair"),
        "pairs only, without a shift: delta = 0, both answers added",
        dpo_trainer(partial(_bco, delta=0.5), "bco_pair"),
    )


def reference_free() -> Iterator[LibraryCounterpart]:
    """Losses without a reference."""
    simpo: dict[str, Any] = {"loss_type": "simpo", "beta": 2.0, "simpo_gamma": 0.5}
    yield LibraryCounterpart(
        "simpo", "CPOTrainer simpo", on_pairs(partial(pl.simpo, beta=2.0, gamma=0.5), partial(trl_cpo, **simpo), texts)
    )
    bent = partial(pl.alpha_po, beta=2.0, alpha=0.25, gamma=0.5)
    yield LibraryCounterpart(
        "alpha_po", "CPOTrainer simpo, alpha", on_pairs(bent, partial(trl_cpo, alpha=0.25, **simpo), texts)
    )
    cpo = partial(trl_cpo, loss_type="sigmoid", beta=BETA, cpo_alpha=1.0)
    yield LibraryCounterpart(
        "cpo",
        "CPOTrainer sigmoid",
        on_pairs(lambda p: pl.cpo(p, beta=BETA, nll_weight=float(1 / _mean_length(p))), cpo, texts),
        "the NLL is a mean over all tokens of the batch: nll_weight = cpo_alpha / mean length",
        on_pairs(partial(pl.cpo, beta=BETA), cpo, texts),
    )
    hinge = partial(trl_cpo, loss_type="hinge", beta=BETA)
    yield LibraryCounterpart(
        "slic",
        "CPOTrainer hinge",
        on_pairs(lambda p: BETA * pl.slic(p, delta=1 / BETA, nll_weight=0.0), hinge, texts),
        "the margin is 1 after scaling by β: delta = 1/beta, and the loss times beta",
        on_pairs(partial(pl.slic, delta=1.0, nll_weight=0.0), hinge, texts),
    )
    orpo, theirs = partial(pl.orpo, beta=BETA), partial(trl_orpo, beta=BETA)
    yield LibraryCounterpart(
        "orpo",
        "ORPOTrainer",
        on_pairs(orpo, theirs, texts, prompt=1, one_length=True),
        "the NLL is a mean over all tokens of the batch, prompts too: one-token prompts, equal lengths",
        on_pairs(orpo, theirs, texts),
    )


# -- policy objectives and advantages ----------------------------------------------------------------------------


def _as_one_action(logps: Tensor, old_logps: Tensor, advantages: Tensor, mask: Tensor) -> Tensor:
    """PPO-clip on whole completions, ``(B, 1)``: log-probabilities summed, one action each."""
    one_action = torch.ones(len(mask), 1, dtype=torch.bool)
    logp, old_logp = (sequence_logps(x, mask)[:, None] for x in (logps, old_logps))
    return po.ppo_clip(logp, old_logp, advantages[:, :1], one_action)


def _fresh_praise(draw: Draw) -> PolicyBatch:
    """A batch sampled by the current policy, with positive advantages only."""
    b = batch(draw)
    return b._replace(old=b.leaf.detach(), advantages=b.advantages.abs())


def _masked_rows(draw: Draw) -> PeerComparison:
    b = batch(draw)
    b = b._replace(old=b.old + 0.4 * torch.tensor([0, 1, 0, 0, 0, 1])[:, None])  # two with A < 0 became less probable
    keep = off_policy.off_policy_keep(*b.inputs, off_policy_mask_threshold=0.2)
    weights = agg.sequence_mean(b.mask, keep=keep, renormalise=False)
    loss = -agg.aggregate(po.ppo_clip(*b.inputs), weights, b.mask)
    return PeerComparison(b.leaf, loss, trl_policy(b, "grpo", off_policy_mask_threshold=0.2))


def _kl_in_loss(draw: Draw) -> PeerComparison:
    b = batch(draw)
    objective = po.ppo_clip(*b.inputs) - BETA * torch.where(b.mask, kl.k3(b.leaf, b.ref), 0.0)
    loss = -agg.aggregate(objective, agg.sequence_mean(b.mask), b.mask)
    return PeerComparison(b.leaf, loss, trl_policy(b, "grpo", beta=BETA))


def _kl_in_reward(draw: Draw) -> PeerComparison:
    b, rewards = batch(draw), draw.normal(2, 3)
    returns = rlhf.regularised_return(b.old, b.ref, rewards.flatten(), b.mask, beta=BETA)
    trl_advantages = trl_scores(rewards, b, rloo=True, beta=BETA)["advantages"]
    return PeerComparison(rewards, adv.leave_one_out(returns.view(2, 3)).flatten(), trl_advantages)


def _sampler_correction(
    draw: Draw, *, weight: Callable[..., Tensor], mode: str, low: float | None = None
) -> PeerComparison:
    b, sampling = batch(draw), draw.logps(6, 5)
    scale = 0.2 if mode.startswith("sequence") else 0.5  # ratios, and their products, fall on both sides of the bounds
    sampling = b.old + scale * (sampling - sampling.mean())
    weights = torch.where(b.mask, weight(b.old, sampling, b.mask, importance_sampling_cap=1.5), 0.0)
    settings: dict[str, Any] = {
        "use_vllm": True,
        "vllm_importance_sampling_correction": True,
        "vllm_importance_sampling_mode": mode,
        "vllm_importance_sampling_clip_min": low,
        "vllm_importance_sampling_clip_max": 1.5,
    }
    trl_weights = trl_scores(torch.zeros(2, 3), b, sampling_logps=sampling, **settings)["importance_sampling_ratio"]
    return PeerComparison(sampling, weights, torch.where(b.mask, trl_weights, 0.0))


def objectives() -> Iterator[LibraryCounterpart]:
    """Policy objectives and how they are aggregated."""
    mean, grpo = agg.sequence_mean, partial(trl_policy, loss_type="grpo")
    yield LibraryCounterpart("ppo_clip", "GRPOTrainer grpo", on_tokens(po.ppo_clip, mean, grpo))
    dual: dict[str, Any] = {"epsilon_high": 0.28, "delta": 1.4}
    yield LibraryCounterpart(
        "ppo_clip",
        "GRPOTrainer grpo, delta",
        on_tokens(partial(po.ppo_clip, epsilon=0.2, **dual), mean, partial(trl_policy, loss_type="grpo", **dual)),
    )
    yield LibraryCounterpart(
        "ppo_clip",
        "RLOOTrainer",
        on_tokens(_as_one_action, mean, trl_rloo),
        "a response is one action: log-probabilities summed to (B, 1) first",
        on_tokens(po.ppo_clip, mean, trl_rloo),
    )
    fixed = partial(agg.fixed_length, max_completion_length=5)
    for rule, weights, name, note in (
        ("sequence_mean", mean, "grpo", ""),
        ("token_mean", agg.token_mean, "dapo", ""),
        ("token_mean", agg.token_mean, "bnpo", "in one micro-batch; over several, TRL averages their means"),
        ("fixed_length", fixed, "dr_grpo", ""),
    ):
        theirs = partial(trl_policy, loss_type=name)
        yield LibraryCounterpart(rule, f"GRPOTrainer {name}", on_tokens(po.ppo_clip, weights, theirs), note)
    wide = partial(trl_policy, loss_type="grpo", epsilon_low=1e9, epsilon_high=1e9)
    yield LibraryCounterpart(
        "importance_weighted",
        "GRPOTrainer grpo",
        on_tokens(po.importance_weighted, mean, wide),
        "with a clip range that nothing reaches",
    )
    yield LibraryCounterpart(
        "reinforce",
        "GRPOTrainer grpo, fresh batch",
        on_tokens(po.importance_weighted, mean, grpo, _fresh_praise),
        "the gradient is the same, the value is the mean of ρA: importance_weighted",
        on_tokens(po.reinforce, mean, grpo, _fresh_praise),
    )
    cispo = partial(trl_policy, loss_type="cispo", epsilon_high=1.3)
    yield LibraryCounterpart(
        "cispo",
        "GRPOTrainer cispo",
        on_tokens(partial(po.cispo, epsilon_high=0.3), agg.token_mean, cispo),
        "epsilon_high is the bound of the weight itself: 1 + epsilon_high of ours",
        on_tokens(partial(po.cispo, epsilon_high=1.3), agg.token_mean, cispo),
    )
    soft: dict[str, Any] = {"sapo_temperature_pos": 1.0, "sapo_temperature_neg": 1.05}
    sapo = on_tokens(partial(po.sapo, **soft), mean, partial(trl_policy, loss_type="sapo", **soft))
    yield LibraryCounterpart("sapo", "GRPOTrainer sapo", sapo)
    level: dict[str, Any] = {"importance_sampling_level": "sequence"}
    whole_sapo = partial(trl_policy, loss_type="sapo", **soft, **level)
    yield LibraryCounterpart(
        "sapo", "GRPOTrainer sapo, sequence", on_tokens(partial(po.sapo, per_sequence=True, **soft), mean, whole_sapo)
    )
    bounded = on_tokens(
        partial(po.cispo, epsilon_high=0.05, per_sequence=True),
        agg.token_mean,
        partial(trl_policy, loss_type="cispo", **level | {"epsilon_high": 1.05}),
    )
    yield LibraryCounterpart(
        "cispo", "GRPOTrainer cispo, sequence", bounded, "epsilon_high is the bound of the weight itself"
    )
    whole: dict[str, Any] = {"importance_sampling_level": "sequence", "epsilon_low": 0.05, "epsilon_high": 0.08}
    for objective, name, note in (
        (po.gspo, "grpo", ""),
        (po.gspo_token, "grpo", "with one advantage per response"),
        (po.luspo, "luspo", ""),
    ):
        ours, theirs = partial(objective, epsilon=0.05, epsilon_high=0.08), partial(trl_policy, loss_type=name, **whole)
        yield LibraryCounterpart(
            objective.__name__, f"GRPOTrainer {name}, sequence", on_tokens(ours, mean, theirs), note
        )
        ours, theirs = partial(ours, delta=1.1), partial(theirs, delta=1.1)
        yield LibraryCounterpart(
            objective.__name__, f"GRPOTrainer {name}, sequence, delta", on_tokens(ours, mean, theirs), note
        )
    module: dict[str, Any] = {"module": "experimental.gmpo.gmpo_trainer", "name": "GMPOTrainer"}
    gmpo = partial(trl_policy, loss_type="grpo", epsilon_high=0.3, **module)
    yield LibraryCounterpart(
        "gmpo", "GMPOTrainer", on_tokens(partial(po.gmpo, epsilon=0.2, epsilon_high=0.3), mean, gmpo)
    )
    yield LibraryCounterpart("off_policy_keep", "GRPOTrainer off_policy_mask", _masked_rows, "with renormalise=False")
    floor = partial(off_policy.masked_importance_weight, importance_sampling_floor=0.7)
    for method, mode, weight, low in (
        ("truncated_importance_weight", "token_truncate", off_policy.truncated_importance_weight, None),
        ("sequence_importance_weight", "sequence_truncate", off_policy.sequence_importance_weight, None),
        ("masked_importance_weight", "token_mask", floor, 0.7),
    ):
        yield LibraryCounterpart(
            method, f"GRPOTrainer {mode}", partial(_sampler_correction, weight=weight, mode=mode, low=low)
        )
    kernel: dict[str, Any] = {f"vespo_{k}": x for k, x in (("k_pos", 1.5), ("lambda_pos", 2.5), ("k_neg", 2.0))}
    kernel |= {"vespo_lambda_neg": 1.2}
    vespo = on_tokens(partial(po.vespo, **kernel), agg.token_mean, partial(trl_policy, loss_type="vespo", **kernel))
    yield LibraryCounterpart("vespo", "GRPOTrainer vespo", vespo)
    yield LibraryCounterpart("k3", "GRPOTrainer beta", _kl_in_loss, "in the loss")
    yield LibraryCounterpart("k1", "RLOOTrainer beta", _kl_in_reward, "in the reward, summed over the response")


def advantages() -> Iterator[LibraryCounterpart]:
    """Advantages of groups of four."""
    for function, scale in ((adv.group_zscore, "group"), (adv.group_center, "none"), (adv.lite_ppo, "batch")):
        yield LibraryCounterpart(
            function.__name__, f"GRPOTrainer scale_rewards={scale}", on_rewards(function, scale_rewards=scale)
        )
    graded = lambda function: lambda r: function(r, ~r.isnan())
    yield LibraryCounterpart(
        "group_zscore", "GRPOTrainer unscorable", on_rewards(graded(adv.group_zscore), holes=True), "NaN is valid=False"
    )
    yield LibraryCounterpart(
        "leave_one_out", "RLOOTrainer", on_rewards(graded(adv.leave_one_out), holes=True, rloo=True)
    )
    normalised = {"rloo": True, "normalize_advantages": True}
    yield LibraryCounterpart(
        "batch_zscore",
        "RLOOTrainer normalize_advantages",
        on_rewards(lambda r: adv.batch_zscore(adv.leave_one_out(r), eps=1e-4), **normalised),
        "of leave-one-out advantages, with eps=1e-4",
    )
    yield LibraryCounterpart(
        "reinforce_pp_baseline",
        "RLOOTrainer normalize_advantages",
        on_rewards(partial(adv.reinforce_pp_baseline, eps=0.75e-4), **normalised),
        "leave-one-out is G/(G − 1) times centred: eps = 1e-4·(G − 1)/G",
    )


# -- reward models, distillation, and the rest -------------------------------------------------------------------


def models() -> Iterator[LibraryCounterpart]:
    """Losses of reward models and of students."""
    yield LibraryCounterpart("bradley_terry_loss", "RewardTrainer", on_scores(bradley_terry_loss, trl_reward))
    margin = torch.tensor([0.5, 1.0, 2.0], dtype=torch.float64)
    wider = on_scores(partial(bradley_terry_loss, margin=margin), partial(trl_reward, margin=margin))
    yield LibraryCounterpart("bradley_terry_loss", "RewardTrainer margin", wider)
    centred = lambda c, r: bradley_terry_loss(c, r) + 0.1 * centring_penalty(c, r)
    yield LibraryCounterpart(
        "centring_penalty", "RewardTrainer center_rewards", on_scores(centred, partial(trl_reward, coefficient=0.1))
    )
    mixed: dict[str, Any] = {"beta": 0.3, "temperature": 2.0}
    yield LibraryCounterpart(
        "jsd_distillation", "GKDTrainer", on_logits(partial(kd.jsd_distillation, **mixed), **mixed)
    )
    yield LibraryCounterpart(
        "jsd_distillation",
        "GKDTrainer beta=0",
        on_logits(kd.forward_kl_distillation, beta=0.0),
        "jumps to the forward KL at β = 0, where the divergence itself is 0: forward_kl_distillation",
        on_logits(partial(kd.jsd_distillation, beta=1e-9), beta=0.0),
    )
    for beta, student in ((0.0, kd.forward_kl_distillation), (1.0, kd.reverse_kl_distillation)):
        compare = on_logits(partial(student, temperature=2.0), beta=beta, temperature=2.0)
        yield LibraryCounterpart(student.__name__, f"GKDTrainer beta={beta:.0f}", compare)
    yield LibraryCounterpart(
        "top_k_distillation",
        "SDPOTrainer topk_logits with its tail",
        on_top_k(k=2, same=True),
        "TRL takes the student's k likeliest tokens, here the teacher's: equal where both have the same",
        on_top_k(k=2, same=False),
    )
    yield LibraryCounterpart("on_policy_reward", "SDPOTrainer sampled_token", on_sampled)


NO_PEER = {
    **dict.fromkeys(["cal_dpo", "dpo_positive", "odpo", "rebel", "rpo"], "not in TRL"),
    **dict.fromkeys(["exo", "info_nca", "info_nce", "nca", "plackett_luce_dpo"], "TRL has pairs only, no lists"),
    "wpo": "TRL's weights (use_weighting) are aligned, which takes the probabilities of all tokens",
    "high_entropy_weights": "TRL's top_entropy_quantile selects by a quantile of the batch, interpolated, and keeps its denominator",
    **dict.fromkeys(["likelihood_contrast", "unlikelihood"], "a baseline, not in TRL"),
    **dict.fromkeys(["batch_center", "maxrl", "process_zscore", "raw_reward", "remax"], "not in TRL"),
    "bnpo": "TRL's loss_type='bnpo' is something else: the token mean",
    "process_loss": "not in TRL 1.16; an older PRMTrainer had two logits per token",
    "whiten": "TRL normalises per response, see batch_zscore",
    **dict.fromkeys(["k2", "ppo_penalty", "sequence_sum"], "not in TRL"),
    **dict.fromkeys(
        ["max_entropy_irl_loss", "outcome_loss", "pair_weights", "regression_loss"], "not in TRL's RewardTrainer"
    ),
    **dict.fromkeys(["value_clip", "value_mse"], "TRL 1.16 has no PPO"),
    "soft_cross_entropy": "not in TRL as a function",
    "sequence_level": "supervised fine-tuning on the teacher's answers",
}

TRL_ONLY = (
    "DPOTrainer aot_unpaired (chosen and rejected answers sorted apart)",
    "weights per tail token (ld_alpha)",
    "TPO",
    "GRPOTrainer normalize_then_sum, use_bias_correction_kl",
)

PEERS: tuple[LibraryCounterpart, ...] = (
    *pairs(),
    *single_answers(),
    *reference_free(),
    *objectives(),
    *advantages(),
    *models(),
    *(LibraryCounterpart(method, convention=reason) for method, reason in NO_PEER.items()),
)
