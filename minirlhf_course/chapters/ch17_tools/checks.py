"""The ledger of chapter 17: words that the policy did not say, turns, the price of a call and of a check, what is read."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import torch

from minirlhf.equations.returns import returns_to_go
from minirlhf_course.chapters.ch17_tools import equations
from minirlhf_course.ledger.registry import Comparison, Draw, check


@check(
    "eq:heard-gradient",
    "value",
    "The environment samples the token, and its log-probability under the policy is multiplied by the advantage.",
    of=equations.observation_gradient,
    against="the derivative of E[A log π] with respect to the logits, by autograd",
    wrong={
        "π in place of P": lambda spoken, policy, advantages: equations.observation_gradient(
            policy, policy, advantages
        ),
        "P − π whatever the advantages": lambda spoken, policy, advantages: spoken - policy,
        "π not weighted by the mean advantage": lambda spoken, policy, advantages: spoken * advantages - policy,
    },
)
def _(observation_gradient, draw: Draw) -> Iterator[Comparison]:
    for shape in ((4,), (2, 3)):
        spoken, advantages = draw.distribution(*shape), draw.normal(*shape)
        logits = draw.normal(*shape).requires_grad_()
        objective = (spoken * advantages * logits.log_softmax(-1)).sum()
        (slope,) = torch.autograd.grad(objective, logits)
        yield observation_gradient(spoken, logits.detach().softmax(-1), advantages), slope


@check(
    "eq:heard-gradient",
    "rest",
    "If the policy has the distribution of the tool, an advantage that is equal for all tokens has no gradient.",
    of=equations.observation_gradient,
    against="zero",
    wrong={"π forgotten": lambda spoken, policy, advantages: spoken * advantages},
)
def _(observation_gradient, draw: Draw) -> Comparison:
    spoken = draw.distribution(3, 4)
    return observation_gradient(spoken, spoken, draw.normal(3, 1).expand(3, 4)), torch.zeros(3, 4, dtype=torch.float64)


@check(
    "eq:turn-return",
    "value",
    "Every token of a turn has the discounted sum of the rewards of this turn and of later ones.",
    of=equations.turn_returns,
    against="turns separated in plain Python and summed one by one",
    wrong={
        "to go from each token": lambda rewards, mask, *, gamma=1.0: returns_to_go(rewards, mask, gamma=gamma),
        "no discount": lambda rewards, mask, *, gamma=1.0: equations.turn_returns(rewards, mask),
        "the whole conversation's return": lambda rewards, mask, *, gamma=1.0: torch.where(
            mask, torch.where(mask, rewards, 0.0).sum(-1, keepdim=True), 0.0
        ),
    },
)
def _(turn_returns, draw: Draw) -> Iterator[Comparison]:
    mask = draw.holed_mask(4, 12)
    mask[0, 4:9] = torch.tensor([True, True, False, True, True])  # at least two turns, one of several tokens
    rewards = torch.where(mask, draw.normal(4, 12), torch.nan)
    for gamma in (float(draw.uniform(low=0.3, high=0.6)), float(draw.uniform(low=0.7, high=0.9))):
        expected = torch.zeros(4, 12, dtype=torch.float64)
        for row in range(4):
            runs = [list(run) for said, run in itertools.groupby(range(12), lambda t: bool(mask[row, t])) if said]  # noqa: B023
            totals = [sum(float(rewards[row, t]) for t in run) for run in runs]
            for k, run in enumerate(runs):
                expected[row, run] = sum(gamma ** (j - k) * totals[j] for j in range(k, len(runs)))
        yield turn_returns(rewards, mask, gamma=gamma), expected


@check(
    "eq:turn-return",
    "one reward at the end",
    "With one reward on the last token and no discount, a turn's return is that of the trajectory.",
    of=equations.turn_returns,
    against="the total return",
    wrong={
        "a turn later": lambda rewards, mask, *, gamma=1.0: (
            equations.turn_returns(rewards, mask) - torch.where(mask, rewards, 0.0)
        )
    },
)
def _(turn_returns, draw: Draw) -> Comparison:
    mask, total = draw.holed_mask(3, 9), draw.normal(3, 1)
    rewards = torch.zeros(3, 9, dtype=torch.float64)
    rewards[:, -1:] = total
    return turn_returns(rewards, mask), torch.where(mask, total, 0.0)


@check(
    "eq:turn-advantage",
    "value", "Each turn's return minus the mean over those members of its group that have this turn.",
    of=equations.turn_advantages,
    against="loops over the conversations of a group that have the turn",
    wrong={
        "a missing turn counts as one that earned nothing": lambda returns, mask, *, num_generations: torch.where(
            mask,
            torch.where(mask, returns, 0.0)
            - torch.where(mask, returns, 0.0).view(-1, num_generations, 4).mean(1).repeat_interleave(num_generations, 0),
            0.0,
        ),
        "the mean of all turns of the group": lambda returns, mask, *, num_generations: torch.where(
            mask,
            returns
            - torch.stack(
                [row[kept].mean() for row, kept in zip(returns.split(num_generations), mask.split(num_generations), strict=True)]
            ).repeat_interleave(num_generations)[:, None],
            0.0,
        ),
        "groups of all rows": lambda returns, mask, *, num_generations: equations.turn_advantages(
            returns, mask, num_generations=len(mask)
        ),
    },
)  # fmt: skip
def _(turn_advantages, draw: Draw) -> Iterator[Comparison]:
    for size in (3, 2):
        mask = draw.mask(6, 4)
        mask[:, 0] = True
        mask[0, :3] = mask[1, :3] = True  # a turn that some have and another lacks
        mask[2] = torch.arange(4) < 2
        returns = torch.where(mask, draw.normal(6, 4), torch.nan)
        expected = torch.zeros(6, 4, dtype=torch.float64)
        for i, k in mask.nonzero().tolist():
            first = i // size * size
            beside = [float(returns[j, k]) for j in range(first, first + size) if mask[j, k]]
            expected[i, k] = returns[i, k] - sum(beside) / len(beside)
        yield turn_advantages(returns, mask, num_generations=size), expected


@check(
    "eq:call-worth",
    "value",
    "The expected reward after a call, over all outcomes of tool and policy, minus that of answering from memory.",
    of=equations.tool_call_value,
    against="all outcomes with a call and without, each with its reward",
    wrong={
        "a failure counts as a wrong answer": lambda read, head, *, fail, lie, cost: (
            (1 - fail - lie) * read - cost - head
        ),
        "lies are seen through": lambda read, head, *, fail, lie, cost: equations.tool_call_value(
            read, head, fail=fail + lie, cost=cost
        ),
        "the cost only when the tool works": lambda read, head, *, fail, lie, cost: equations.tool_call_value(
            read, head, fail=fail, lie=lie, cost=(1 - fail) * cost
        ),
    },
)
def _(tool_call_value, draw: Draw) -> Iterator[Comparison]:
    for _ in range(2):
        read, head = draw.uniform(3, low=0.6, high=0.95), draw.uniform(3, low=0.1, high=0.5)
        fail, lie, cost = (float(draw.uniform(low=low, high=low + 0.1)) for low in (0.1, 0.25, 0.05))
        outcomes = [(1 - fail - lie, read), (fail, head), (lie, torch.zeros(3, dtype=torch.float64))]
        asked = sum(p * (right * (1 - cost) + (1 - right) * (0 - cost)) for p, right in outcomes)
        yield tool_call_value(read, head, fail=fail, lie=lie, cost=cost), asked - head


@check(
    "eq:check-worth",
    "value", "The expected reward with a check, over all outcomes of tool and check, minus that without one.",
    of=equations.verification_value,
    against="all outcomes with the check and without, each with its reward",
    wrong={
        "a false alarm costs nothing": lambda read, fallback, *, lie, caught, alarm, cost: equations.verification_value(
            read, fallback, lie=lie, caught=caught, cost=cost
        ),
        "every lie is caught": lambda read, fallback, *, lie, caught, alarm, cost: equations.verification_value(
            read, fallback, lie=lie, caught=1.0, alarm=alarm, cost=cost
        ),
        "after an alarm the right output is found": lambda read, fallback, *, lie, caught, alarm, cost: equations.verification_value(
            read, read, lie=lie, caught=caught, alarm=alarm, cost=cost
        ),
    },
)  # fmt: skip
def _(verification_value, draw: Draw) -> Iterator[Comparison]:
    for _ in range(2):
        read, fallback = draw.uniform(3, low=0.7, high=0.95), draw.uniform(3, low=0.2, high=0.5)
        lie, caught, alarm, cost = (float(draw.uniform(low=low, high=low + 0.1)) for low in (0.2, 0.6, 0.1, 0.02))
        checked = torch.zeros(3, dtype=torch.float64)
        for output, p_output, p_alarm in (("right", 1 - lie, alarm), ("wrong", lie, caught)):
            for alarmed, p in ((True, p_alarm), (False, 1 - p_alarm)):
                right = fallback if alarmed else read if output == "right" else 0 * read
                checked = checked + p_output * p * (right - cost)
        yield (
            verification_value(read, fallback, lie=lie, caught=caught, alarm=alarm, cost=cost),
            checked - (1 - lie) * read,
        )


@check(
    "eq:tokens-read-again",
    "value",
    "Without a cache each turn processes the prompt, all earlier turns and all earlier answers of the tools.",
    of=equations.prefill_tokens_without_cache,
    against="lists of tokens, processed turn by turn",
    wrong={
        "each token once": lambda prompt, said, heard: prompt + (said + heard)[..., :-1].sum(-1),
        "the turn itself read too": lambda prompt, said, heard: (
            equations.prefill_tokens_without_cache(prompt, said, heard) + said.sum(-1)
        ),
        "answers never read": lambda prompt, said, heard: equations.prefill_tokens_without_cache(
            prompt, said, 0 * heard
        ),
    },
)
def _(prefill_tokens_without_cache, draw: Draw) -> Comparison:
    prompt = torch.tensor([float(draw.integer(3, 9)) for _ in range(2)], dtype=torch.float64)
    said, heard = (torch.tensor([[draw.integer(1, 5) for _ in range(4)] for _ in range(2)]).double() for _ in range(2))
    read = []
    for row in range(2):
        conversation, total = ["p"] * int(prompt[row]), 0
        for k in range(4):
            total += len(conversation)
            conversation += ["s"] * int(said[row, k]) + ["h"] * int(heard[row, k])
        read.append(total)
    return prefill_tokens_without_cache(prompt, said, heard), torch.tensor(read, dtype=torch.float64)


@check(
    "eq:tokens-read-on",
    "value", "With a cache each turn processes the tokens of the conversation that are not in the cache.",
    of=equations.prefill_tokens_with_cache,
    against="a cache of tokens that grows as they are computed, sampled ones with the token after them",
    wrong={
        "the end of a turn is never read": lambda prompt, heard: prompt + heard[..., :-1].sum(-1),
        "the last answer is read too": lambda prompt, heard: equations.prefill_tokens_with_cache(prompt, heard) + 1 + heard[..., -1],
        "the prompt in each turn": lambda prompt, heard: equations.prefill_tokens_with_cache(prompt, heard) + prompt * (heard.shape[-1] - 1),
    },
)  # fmt: skip
def _(prefill_tokens_with_cache, draw: Draw) -> Comparison:
    prompt = torch.tensor([float(draw.integer(3, 9)) for _ in range(2)], dtype=torch.float64)
    said, heard = (torch.tensor([[draw.integer(1, 5) for _ in range(4)] for _ in range(2)]).double() for _ in range(2))
    read = []
    for row in range(2):
        conversation, cached, total = int(prompt[row]), 0, 0
        for k in range(4):
            total, cached = total + conversation - cached, conversation
            for _ in range(int(said[row, k]) - 1):
                cached += 1  # the token before it has been put in
            conversation += int(said[row, k]) + int(heard[row, k])
        read.append(total)
    return prefill_tokens_with_cache(prompt, heard), torch.tensor(read, dtype=torch.float64)
