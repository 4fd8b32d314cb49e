"""The ledger of chapter 12: policy gradients for language models."""

from __future__ import annotations

import statistics
from collections.abc import Iterator

import torch
from torch import Tensor

from minirlhf.core import exact
from minirlhf.core.masking import last_index, zero_where_masked
from minirlhf.equations import advantages as adv
from minirlhf.equations import kl
from minirlhf.equations import policy_losses as pg
from minirlhf_course.ledger.inputs.rollouts import (
    Cases,
    clip_cases,
    expected_gradient,
    mean_over_group,
    reward_gradient,
)
from minirlhf_course.ledger.registry import Comparison, Draw, chain, check

# -- the objective of a fresh batch ------------------------------------------------------------------------------


@check(
    "eq:reinforce-objective",
    "expected gradient",
    "Averaged over all responses, the gradient of Σ_t r·log π(a_t) is the gradient of the expected reward.",
    of=pg.reinforce,
    against="∇J, J = Σ π(y) r(y) over every response",
    wrong={
        "π in place of log π": lambda logps, old, a, mask: zero_where_masked(a * logps.exp(), mask),
        "only the last token gets credit": lambda logps, old, a, mask: (
            a * logps * torch.nn.functional.one_hot(last_index(mask), mask.shape[1])
        ),
        "mean over the tokens of a response": lambda logps, old, a, mask: (
            pg.reinforce(logps, old, a, mask) / mask.sum(-1, keepdim=True)
        ),
    },
)
def _(reinforce, draw: Draw) -> Comparison:
    lm = draw.toy(3, 3)
    logps, mask = lm.completion_token_logps()[0], lm.completions().mask
    rewards = draw.normal(len(mask))
    objective = reinforce(logps, logps.detach(), rewards[:, None].expand(mask.shape), mask)
    chance = lm.distribution()[0].detach()
    return exact.gradient((chance[:, None] * objective).sum(), lm.table), reward_gradient(lm, rewards)


@check(
    "eq:ptx",
    "expected gradient",
    "The expected gradient of the pretraining term is −γ times that of the forward KL(texts‖π), so ascending it "
    "pulls the policy towards the texts.",
    of=pg.pretraining,
    against="−γ ∇KL(texts‖π) over every response",
    wrong={
        "texts unlearned": lambda logps, mask, *, ptx_coef: -pg.pretraining(logps, mask, ptx_coef=ptx_coef),
        "coefficient forgotten": lambda logps, mask, *, ptx_coef: pg.pretraining(logps, mask, ptx_coef=1.0),
        "mean over the tokens of a text": lambda logps, mask, *, ptx_coef: (
            pg.pretraining(logps, mask, ptx_coef=ptx_coef) / mask.sum(-1, keepdim=True)
        ),
        "only the last token": lambda logps, mask, *, ptx_coef: (
            pg.pretraining(logps, mask, ptx_coef=ptx_coef)
            * torch.nn.functional.one_hot(last_index(mask), mask.shape[1])
        ),
    },
)
def _(pretraining, draw: Draw) -> Comparison:
    lm, texts = draw.toy(3, 3), draw.toy(3, 3).distribution()[0].detach()
    gamma = float(draw.uniform(low=2.0, high=4.0))
    objective = pretraining(lm.completion_token_logps()[0], lm.completions().mask, ptx_coef=gamma)
    wanted = -gamma * exact.divergence(texts, lm.distribution()[0])
    return exact.gradient((texts[:, None] * objective).sum(), lm.table), exact.gradient(wanted, lm.table)


@check(
    "eq:token-advantage",
    "value",
    "With one advantage for all tokens the objectives of the tokens sum to A·log π(y); rows are prompt-major.",
    of=adv.broadcast_to_tokens,
    against="reward times log-probability of the whole response, by enumeration",
    wrong={
        "rows read sample-major": lambda a, mask: adv.broadcast_to_tokens(a.T.reshape(a.shape), mask),
        "shared out over the tokens": lambda a, mask: adv.broadcast_to_tokens(a, mask) / mask.sum(-1, keepdim=True),
    },
)
def _(broadcast_to_tokens, draw: Draw) -> Comparison:
    lm = draw.toy(2, 3, num_prompts=2)  # 4 responses to each of 2 prompts
    advantages, mask = draw.normal(2, 4), lm.completions().mask.repeat(2, 1)
    logps = lm.completion_token_logps().detach().flatten(0, 1)
    objective = pg.reinforce(logps, logps, broadcast_to_tokens(advantages, mask), mask)
    return objective.sum(-1).view(2, 4), advantages * lm.distribution().detach().log()


# -- baselines that need no group --------------------------------------------------------------------------------


@check(
    "eq:reinforce-advantage",
    "expected gradient",
    "With the reward as advantage the expected gradient is the true gradient.",
    of=adv.raw_reward,
    against="∇J over every pair of responses",
    wrong={
        "mean of the group subtracted": adv.group_center,
        "scaled by the deviation of the group": adv.group_zscore,
    },
)
def _(raw_reward, draw: Draw) -> Comparison:
    lm = draw.toy(3, 2)
    rewards = draw.normal(len(lm.completions().tokens))
    return expected_gradient(lm, rewards, 2, mean_over_group(raw_reward)), reward_gradient(lm, rewards)


@check(
    "eq:batch-baseline",
    "expected gradient",
    "A batch mean that includes the own reward scales the expected gradient by (N − 1)/N.",
    of=adv.batch_center,
    against="(N − 1)/N · ∇J over every batch of three responses",
    wrong={
        "no baseline": adv.raw_reward,
        "mean of the others": adv.leave_one_out,
        "median of the batch": lambda r: r - r.median(),
    },
)
def _(batch_center, draw: Draw) -> Comparison:
    lm = draw.toy(2, 2)
    rewards = draw.normal(len(lm.completions().tokens))

    def each_batch(groups: Tensor) -> Tensor:
        return torch.cat([batch_center(group[None]) for group in groups])

    got = expected_gradient(lm, rewards, 3, mean_over_group(each_batch))
    return got, reward_gradient(lm, rewards) * 2 / 3


@check(
    "eq:remax-advantage",
    "expected gradient",
    "The greedy response is not sampled, so subtracting its reward does not change the expected gradient.",
    of=adv.remax,
    against="∇J over every pair of responses",
    wrong={
        "the best sample as the baseline": lambda r, greedy: r - r.max(-1, keepdim=True).values,
        "mean of the samples and the greedy response": lambda r, greedy: (
            r - (r.sum(-1, keepdim=True) + greedy[:, None]) / (r.shape[-1] + 1)
        ),
    },
)
def _(remax, draw: Draw) -> Comparison:
    lm = draw.toy(3, 2)
    rewards = draw.normal(len(lm.completions().tokens))
    greedy = rewards[lm.distribution()[0].argmax()]
    got = expected_gradient(lm, rewards, 2, mean_over_group(lambda r: remax(r, greedy.expand(len(r)))))
    return got, reward_gradient(lm, rewards)


@check(
    "eq:remax-advantage",
    "value",
    "Each graded response gets its reward minus that of the most probable response to its prompt.",
    of=adv.remax,
    against="the most probable response of an enumerable model, prompt by prompt",
    wrong={
        "baseline of another prompt": lambda r, greedy, valid: zero_where_masked(r - greedy.roll(1)[:, None], valid),
        "sign reversed": lambda r, greedy, valid: zero_where_masked(greedy[:, None] - r, valid),
        "mean of the samples": lambda r, greedy, valid: adv.group_center(r, valid),
    },
)
def _(remax, draw: Draw) -> Iterator[Comparison]:
    lm, prompts = draw.toy(3, 2, num_prompts=3), range(3)
    grade = draw.normal(3, len(lm.completions().tokens))  # of every response to every prompt
    best = [max(range(grade.shape[1]), key=lm.distribution()[p].tolist().__getitem__) for p in prompts]
    greedy = torch.stack([grade[p, best[p]] for p in prompts])
    for valid in (torch.ones_like(grade).bool(), grade > grade.median()):
        expected = [[float(grade[p, i] - grade[p, best[p]]) * float(valid[p, i]) for i in range(7)] for p in prompts]
        got = remax(torch.where(valid, grade, torch.nan), torch.where(valid.any(-1), greedy, torch.nan), valid)
        yield got, torch.tensor(expected, dtype=torch.float64)


@check(
    "eq:reinforce-pp-advantage",
    "value",
    "One mean and one deviation for the whole batch; invalid rewards are excluded.",
    of=adv.batch_zscore,
    against="mean and standard deviation of the list of valid rewards (Python's statistics)",
    wrong={
        "statistics of each group": adv.group_zscore,
        "other divisor of the variance": lambda r, valid, *, ddof, eps: adv.batch_zscore(
            r, valid, ddof=1 - ddof, eps=eps
        ),
        "invalid rewards counted as 0": lambda r, valid, *, ddof, eps: adv.batch_zscore(
            torch.where(valid, r, 0.0), None, ddof=ddof, eps=eps
        ),
        "no centring": lambda r, valid, *, ddof, eps: torch.where(valid, r / r[valid].std(), 0.0),
    },
)
def _(batch_zscore, draw: Draw) -> Iterator[Comparison]:
    rewards, valid = 2 + draw.normal(3, 4), torch.tensor([[1, 1, 1, 1], [1, 0, 1, 1], [0, 1, 0, 0]]).bool()
    rewards[~valid] = torch.nan
    kept = rewards[valid].tolist()
    for ddof, eps, deviation in ((0, 0.1, statistics.pstdev(kept)), (1, 0.03, statistics.stdev(kept))):
        expected = torch.where(valid, (rewards - statistics.fmean(kept)) / (deviation + eps), 0.0)
        yield batch_zscore(rewards, valid, ddof=ddof, eps=eps), expected


@check(
    "eq:whitening",
    "value",
    "Over the sampled tokens the variance becomes var/(var + ε), nearly 1, and the mean 0, or unchanged with "
    "shift_mean=False.",
    of=adv.whiten,
    against="mean and variance of the list of sampled tokens (Python's statistics)",
    wrong={
        "padding counted": lambda x, mask, **o: adv.whiten(zero_where_masked(x, mask), torch.ones_like(mask), **o),
        "mean always removed": lambda x, mask, *, shift_mean, **o: adv.whiten(x, mask, **o),
        "not scaled": lambda x, mask, *, shift_mean, **_: zero_where_masked(
            x - x[mask].mean() if shift_mean else x, mask
        ),
        "other divisor of the variance": lambda x, mask, *, ddof, **o: adv.whiten(x, mask, ddof=1 - ddof, **o),
    },
)
def _(whiten, draw: Draw) -> Iterator[Comparison]:
    mask = torch.arange(6)[None, :] < torch.tensor([6, 3, draw.integer(1, 5)])[:, None]
    x = torch.where(mask, 3 + draw.normal(3, 6), torch.nan)
    x[mask] += torch.linspace(-1, 1, int(mask.sum()), dtype=torch.float64)
    mean = statistics.fmean(x[mask].tolist())
    for shift_mean, kept_mean in ((True, 0.0), (False, mean)):
        for ddof, eps, variance in ((0, 0.1, statistics.pvariance), (1, 0.02, statistics.variance)):
            white = whiten(x, mask, shift_mean=shift_mean, ddof=ddof, eps=eps)
            left = variance(x[mask].tolist())
            yield statistics.fmean(white[mask].tolist()), kept_mean
            yield variance(white[mask].tolist()), left / (left + eps)
            yield white[~mask], torch.zeros(int((~mask).sum()))


# -- RLOO --------------------------------------------------------------------------------------------------------


@check(
    "eq:rloo-advantage",
    "value",
    "r_i minus the mean of the other valid rewards of its group; a group with one valid reward drops out.",
    of=adv.leave_one_out,
    against="the mean of the others, listed one by one",
    wrong={
        "own reward in the mean": adv.group_center,
        "divided by G": lambda r, valid: adv.leave_one_out(r, valid) * (r.shape[1] - 1) / r.shape[1],
        "invalid rewards counted as 0": lambda r, valid: adv.leave_one_out(torch.where(valid, r, 0.0)),
    },
)
def _(leave_one_out, draw: Draw) -> Comparison:
    rewards, valid = 1 + draw.normal(3, 4), torch.tensor([[1, 1, 1, 1], [1, 0, 1, 1], [0, 1, 0, 0]]).bool()
    rewards[~valid] = torch.nan
    expected = torch.zeros(3, 4, dtype=torch.float64)
    for p in range(2):
        for i in valid[p].nonzero().flatten().tolist():
            others = [float(rewards[p, j]) for j in range(4) if j != i and valid[p, j]]
            expected[p, i] = float(rewards[p, i]) - statistics.fmean(others)
    return leave_one_out(rewards, valid), expected


@check(
    "eq:rloo-advantage",
    "expected gradient",
    "The mean of the others is independent of the own response, so the expected gradient is the true one.",
    of=adv.leave_one_out,
    against="∇J over every group of three responses",
    wrong={
        "own reward in the mean": adv.group_center,
        "scaled by the deviation": adv.group_zscore,
        "best of the others as the baseline, own included": lambda r: r - r.max(-1, keepdim=True).values,
    },
)
def _(leave_one_out, draw: Draw) -> Comparison:
    lm = draw.toy(2, 2)
    rewards = 10 * draw.normal(len(lm.completions().tokens))
    return expected_gradient(lm, rewards, 3, mean_over_group(leave_one_out)), reward_gradient(lm, rewards)


# -- ratios, PPO -------------------------------------------------------------------------------------------------


@check(
    "eq:policy-ratio",
    "value",
    "The expectation under π_old of f weighted by ρ is the expectation of f under π: Σ π_old ρ f = Σ π f.",
    of=pg.policy_ratio,
    against="expectation under π, summed over the vocabulary",
    wrong={
        "ratio upside down": lambda logps, old, mask: pg.policy_ratio(old, logps, mask),
        "log-ratio": lambda logps, old, mask: zero_where_masked(logps - old, mask),
    },
)
def _(policy_ratio, draw: Draw) -> Comparison:
    new, old, f = draw.distribution(3, 5), draw.distribution(3, 5), draw.normal(3, 5)
    ratio = policy_ratio(new.log(), old.log(), torch.ones(3, 5, dtype=torch.bool))
    return exact.expectation(old, ratio * f), exact.expectation(new, f)


@check(
    "eq:importance-weighted",
    "gradient",
    "Averaged over samples of π_old, the gradient of ρA is the policy gradient of π, not of π_old.",
    of=pg.importance_weighted,
    against="∇Σ π A over the vocabulary, while the samples come from π_old",
    wrong={
        "no ratio: stale samples as if fresh": pg.reinforce,
        "clipped": pg.ppo_clip,
        "ratio without gradient": lambda logps, old, a, mask: logps * 0 + (logps.detach() - old).exp() * a,
    },
)
def _(importance_weighted, draw: Draw) -> Comparison:
    logits = (torch.tensor([[1.0, 0.5, 0.0, -0.5]]) + draw.uniform(1, 4, high=0.2)).requires_grad_()
    old, a = logits.detach().flip(-1).softmax(-1), draw.uniform(1, 4, low=0.5, high=1.5)  # the first ratio is above 1.2
    objective = importance_weighted(logits.log_softmax(-1), old.log(), a, torch.ones(1, 4, dtype=torch.bool))
    wanted = (logits.softmax(-1) * a).sum()
    return exact.gradient((old * objective).sum(), logits), exact.gradient(wanted, logits)


def _clipped_ratio(cases: Cases, ratio: float, advantage: float) -> float:
    low, high, most = 1 - cases.clip["epsilon"], 1 + cases.clip["epsilon_high"], cases.clip["delta"]
    if advantage > 0:
        return high if ratio > high else ratio
    return low if ratio < low else most if ratio > most else ratio


def _without_minimum(logps, old, a, mask, *, epsilon, epsilon_high, delta):
    ratio = pg.policy_ratio(logps, old, mask).clamp(1 - epsilon, 1 + epsilon_high)
    return ratio * zero_where_masked(a, mask)


def _maximum(logps, old, a, mask, *, epsilon, epsilon_high, delta):
    return -pg.ppo_clip(logps, old, -a, mask, epsilon=epsilon, epsilon_high=epsilon_high)


def _ppo(**changed):
    return lambda *inputs, **options: pg.ppo_clip(*inputs, **{**options, **changed})


@check(
    "eq:ppo-clip",
    "value",
    "The objective of good actions is at most (1 + ε_high)A, that of bad ones at most (1 − ε)A and at least δA.",
    of=pg.ppo_clip,
    against="the cases of the sign of A and the place of ρ, written out",
    wrong={
        "clip without the minimum": _without_minimum,
        "maximum in place of the minimum": _maximum,
        "upper range ignored": _ppo(epsilon_high=None),
        "two-sided bound ignored": _ppo(delta=None),
    },
)
def _(ppo_clip, draw: Draw) -> Comparison:
    cases = clip_cases(draw)
    return ppo_clip(*cases.inputs, **cases.clip), cases.table(lambda ratio, a: _clipped_ratio(cases, ratio, a) * a)


@check(
    "eq:ppo-clip-gradient",
    "gradient",
    "ρA·∇log π where the clip is inactive, exactly 0 where it is active: in each of the six cases, and beyond δ.",
    of=pg.ppo_clip,
    against="finite differences of the cases",
    wrong={
        "clip without the minimum: no way back": _without_minimum,
        "maximum in place of the minimum": _maximum,
        "no clip": lambda logps, old, a, mask, **_: pg.importance_weighted(logps, old, a, mask),
    },
    tolerance=1e-7,
    follows="eq:ppo-clip",
)
def _(ppo_clip, draw: Draw) -> Comparison:
    cases = clip_cases(draw)

    def written_out(log_ratio: Tensor) -> Tensor:
        pairs = zip(log_ratio.exp().flatten().tolist(), cases.advantages[:, :-1].flatten().tolist(), strict=True)
        return torch.tensor(sum(_clipped_ratio(cases, ratio, a) * a for ratio, a in pairs), dtype=torch.float64)

    expected = exact.finite_difference(written_out, cases.ratios.log())
    return cases.gradient(ppo_clip, **cases.clip)[:, :-1], expected


@check(
    "eq:ppo-first-step",
    "gradient",
    "On the first step of a batch ρ = 1: nothing is clipped, and PPO's gradient is A·∇log π, REINFORCE's.",
    of=pg.ppo_clip,
    against="gradient of the clipped objective at ρ = 1, and of REINFORCE",
    wrong={
        "ratio without gradient": lambda logps, old, a, mask: pg.ppo_clip(logps.detach(), old, a, mask) + 0 * logps,
        "ratio of log-probabilities": lambda logps, old, a, mask: zero_where_masked(logps / old * a, mask),
        "log-probability clipped": lambda logps, old, a, mask: zero_where_masked(logps.clamp(min=-0.04) * a, mask),
    },
    follows="eq:ppo-clip-gradient",
)
def _(ppo_clip, draw: Draw) -> Iterator[Comparison]:
    mask = draw.mask(3, 4)
    old, a = draw.logps(3, 4), draw.normal(3, 4)
    logps = old.clone().requires_grad_()
    got = exact.gradient(ppo_clip(logps, old, a, mask).sum(), logps)
    yield got, exact.gradient(pg.reinforce(logps, old, a, mask).sum(), logps)
    yield got, (1.0 * a * mask).flatten()


@check(
    "eq:ppo-no-clip",
    "limit",
    "For ε → ∞ the clip has no effect: ρA, the importance-weighted policy gradient.",
    of=pg.ppo_clip,
    against="probability ratio times advantage, from the probabilities",
    wrong={
        "range cut at 1": lambda *inputs, epsilon: pg.ppo_clip(*inputs, epsilon=min(epsilon, 1.0)),
        "default range": lambda *inputs, epsilon: pg.ppo_clip(*inputs),
    },
)
def _(ppo_clip, draw: Draw) -> Comparison:
    cases = clip_cases(draw)
    return ppo_clip(*cases.inputs, epsilon=1e6), cases.table(lambda ratio, a: ratio * a)


chain(
    "ppo-first-step",
    "From PPO's clip to REINFORCE: the first gradient step",
    ["eq:ppo-clip", "eq:ppo-clip-gradient", "eq:ppo-first-step"],
    module=__name__,
)


@check(
    "eq:ppo-penalty",
    "expected value",
    "The expectation of the penalty under π_old is β·KL(π_old‖π).",
    of=pg.ppo_penalty,
    against="Σ π A − β KL(π_old‖π) over the vocabulary",
    wrong={
        "KL the other way round": lambda logps, old, a, mask, *, beta: (
            pg.importance_weighted(logps, old, a, mask)
            - zero_where_masked(beta * (logps - old).exp() * kl.k3(logps, old), mask)
        ),
        "penalty added": lambda logps, old, a, mask, *, beta: (
            2 * pg.importance_weighted(logps, old, a, mask) - pg.ppo_penalty(logps, old, a, mask, beta=beta)
        ),
        "halved squared log-ratio": lambda logps, old, a, mask, *, beta: (
            pg.importance_weighted(logps, old, a, mask) - zero_where_masked(beta * 0.5 * (logps - old) ** 2, mask)
        ),
    },
)
def _(ppo_penalty, draw: Draw) -> Iterator[Comparison]:
    new, old = draw.distribution(3, 4), draw.distribution(3, 4, scale=1.5)
    a, beta = draw.normal(3, 4), float(draw.uniform(low=0.5, high=2.0))
    # The outcomes stand on the sampled tokens; what the mask hides between them is no number.
    shown = torch.tensor([True, False, True, True, False, True])
    spread = lambda x: torch.full((3, 6), torch.nan, dtype=torch.float64).masked_scatter(shown.expand(3, 6), x)
    objective = ppo_penalty(spread(new.log()), spread(old.log()), spread(a), shown.expand(3, 6), beta=beta)
    weights = torch.zeros(3, 6, dtype=torch.float64).masked_scatter(shown.expand(3, 6), old)
    yield exact.expectation(weights, objective), exact.expectation(new, a) - beta * exact.divergence(old, new)
    yield objective[:, ~shown], torch.zeros(3, 2)
