"""Errata of code and of worked numbers."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F

from minirlhf.core import exact
from minirlhf.equations import advantages, aggregation, returns
from minirlhf_course.errata.erratum import Found, erratum


@erratum("nine_called_ten")
def _() -> Found:
    first, second = [1.0] * 4 + [10.0], [1.0] * 8 + [10.0]  # the text says that the second has ten tokens
    printed = 2.27
    mask = torch.arange(9) < torch.tensor([[5], [9]])
    losses = torch.tensor([[*first, 0, 0, 0, 0], second])
    right = (aggregation.token_mean(mask) * losses).sum()
    return Found(
        "mean over all tokens of the two completions as listed", printed, float(right), sum(first + second) / 14
    )


@erratum("advantages_dropped")
def _() -> Found:
    ratio = torch.ones(2, 7, requires_grad=True)
    advantages, mask = torch.full((2, 7), 2.0), torch.arange(7) < torch.tensor([[4], [7]])
    printed = (ratio * mask).sum() / mask.sum()
    right = (ratio * advantages * mask).sum() / mask.sum()
    a, b = (float(exact.gradient(mean, ratio)[0]) for mean in (printed, right))
    return Found("gradient of a token's ratio, advantage 2, eleven tokens", a, b, 2 / 11)


@erratum("fifth_best")
def _() -> Found:
    rewards = torch.tensor([[.7, .3, .5, .2], [.4, .8, .6, .5], [.9, .3, .4, .7], [.2, .5, .8, .6], [.5, .4, .3, .6]])  # fmt: skip
    printed = rewards.flatten()[19]
    right = rewards[3 - 1, 4 - 1]  # completion 4 of prompt 3, which has the flat index 11
    return Found(
        "reward of the fifth best of twenty", float(printed), float(right), sorted(rewards.flatten().tolist())[-5]
    )


@erratum("last_token")
def _() -> Found:
    mask = torch.tensor([[0, 0, 1, 1, 1]])  # a prompt of three tokens, padded on the left as for generation
    printed = mask.sum(1) - 1
    right = (mask * torch.arange(5)).argmax(1)
    return Found(
        "column of the last token", float(printed[0]), float(right[0]), float(max(i for i in range(5) if mask[0, i]))
    )


@erratum("outside_the_mask")
def _() -> Found:
    logits, labels = (
        torch.tensor([0.3, -0.2, 1.0, 2.0]),
        torch.tensor([-100, -100, 1, 1]),
    )  # two tokens of the prompt, two of a right completion
    mask = labels != -100
    printed = F.binary_cross_entropy_with_logits(logits[~mask], labels[~mask].float())
    right = F.binary_cross_entropy_with_logits(logits[mask], labels[mask].float())
    by_hand = [math.log1p(math.exp(-x)) for x in (1.0, 2.0)]
    return Found(
        "loss of an outcome reward model on a right completion", float(printed), float(right), sum(by_hand) / 2
    )


@erratum("samples_first")
def _() -> Found:
    groups = torch.tensor([[1.0, 0.0, 0.0], [1.0, 1.0, 0.0]])  # three completions for each of two prompts
    rewards = groups.flatten()  # prompt-major order: all completions of the first prompt come first
    columns = rewards.reshape(3, -1)
    printed = (columns - (columns.sum(0) - columns) / 2).flatten()[0]
    right = advantages.leave_one_out(groups)[0, 0]
    return Found(
        "advantage of the first prompt's right completion", float(printed), float(right), 1.0 - (0.0 + 0.0) / 2
    )


@erratum("cut_is_not_ended")
def _() -> Found:
    rewards, values, next_values = torch.zeros(1, 2), torch.tensor([[0.5, 0.6]]), torch.tensor([0.7])
    mask, lam = torch.ones(1, 2, dtype=torch.bool), 0.95
    printed = returns.gae(rewards, values, mask, lam=lam)
    right = returns.gae(rewards, values, mask, lam=lam, bootstrap=next_values)
    n_step = [0.6 - 0.5, 0.7 - 0.5]  # advantages of the first token after one step and after two
    return Found("advantage of the first of two tokens of a truncated completion", float(printed[0, 0]), float(right[0, 0]), (1 - lam) * n_step[0] + lam * n_step[1])  # fmt: skip


@erratum("pooled_padding")
def _() -> Found:
    hidden = torch.tensor([[1.0, 3.0, 100.0, 100.0]])  # two tokens; the values at padding are arbitrary
    mask = torch.tensor([[1, 1, 0, 0]])
    printed = hidden.mean(1)
    right = (hidden * mask).sum(1) / mask.sum(1)
    unpadded = hidden[:, :2].mean(1)  # the same completion in a batch without padding
    return Found("pooled feature of a completion of two tokens", float(printed), float(right), float(unpadded))


@erratum("kl_div_arguments")
def _() -> Found:
    policy, ref = torch.tensor([0.7, 0.2, 0.1]), torch.tensor([0.2, 0.3, 0.5])
    printed = F.kl_div(ref.log()[None], policy.log()[None], reduction="batchmean")
    right = F.kl_div(ref.log()[None], policy.log()[None], reduction="batchmean", log_target=True)
    return Found(
        "KL of the policy from its reference", float(printed), float(right), float(exact.divergence(policy, ref))
    )


@erratum("reward_less_value")
def _() -> Found:
    logit = torch.tensor(
        0.0, requires_grad=True
    )  # the first of two tokens is good with probability σ(logit); the reward comes at the second token
    p, value = logit.sigmoid(), 0.5
    printed = p.detach() * p.log() * (0.0 - value) + (1 - p.detach()) * (1 - p).log() * (0.0 - value)
    right = p.detach() * p.log() * (1.0 - value) + (1 - p.detach()) * (1 - p).log() * (0.0 - value)
    a, b = (float(exact.gradient(x, logit)) for x in (printed, right))
    return Found("expected gradient of the first token's logit", a, b, float(exact.gradient(p, logit)))
