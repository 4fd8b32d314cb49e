"""The ledger of chapter 17: words that the policy did not say, turns, and the price of a call."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import torch

from minirlhf.equations import tools
from minirlhf.equations.returns import returns_to_go
from minirlhf.ledger.registry import Comparison, Draw, check


@check(
    "eq:heard-gradient",
    "value",
    of=tools.heard_gradient,
    against="the derivative of E[A log π] in the logits, by autograd",
    wrong={
        "π in place of P": lambda spoken, policy, advantages: tools.heard_gradient(policy, policy, advantages),
        "P − π whatever the advantages": lambda spoken, policy, advantages: spoken - policy,
        "π not weighted by the mean advantage": lambda spoken, policy, advantages: spoken * advantages - policy,
    },
)
def _(heard_gradient, draw: Draw) -> Iterator[Comparison]:
    "The environment draws the token, the policy's log-probability of it is pushed by the advantage."
    for shape in ((4,), (2, 3)):
        spoken, advantages = draw.distribution(*shape), draw.normal(*shape)
        logits = draw.normal(*shape).requires_grad_()
        objective = (spoken * advantages * logits.log_softmax(-1)).sum()
        (slope,) = torch.autograd.grad(objective, logits)
        yield heard_gradient(spoken, logits.detach().softmax(-1), advantages), slope


@check(
    "eq:heard-gradient",
    "rest",
    of=tools.heard_gradient,
    against="zero",
    wrong={"π forgotten": lambda spoken, policy, advantages: spoken * advantages},
)
def _(heard_gradient, draw: Draw) -> Comparison:
    "Where the policy already speaks like the tool, a common advantage adds nothing."
    spoken = draw.distribution(3, 4)
    return heard_gradient(spoken, spoken, draw.normal(3, 1).expand(3, 4)), torch.zeros(3, 4, dtype=torch.float64)


@check(
    "eq:turn-return",
    "value",
    of=tools.turn_returns,
    against="turns taken apart in plain Python and summed one by one",
    wrong={
        "to go from each token": lambda rewards, mask, *, gamma=1.0: returns_to_go(rewards, mask, gamma=gamma),
        "no discount": lambda rewards, mask, *, gamma=1.0: tools.turn_returns(rewards, mask),
        "the whole conversation's return": lambda rewards, mask, *, gamma=1.0: torch.where(
            mask, torch.where(mask, rewards, 0.0).sum(-1, keepdim=True), 0.0
        ),
    },
)
def _(turn_returns, draw: Draw) -> Iterator[Comparison]:
    "Every token of a turn has the discounted sum of this turn's rewards and of those of the turns after it."
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
    of=tools.turn_returns,
    against="the total return",
    wrong={
        "a turn later": lambda rewards, mask, *, gamma=1.0: (
            tools.turn_returns(rewards, mask) - torch.where(mask, rewards, 0.0)
        )
    },
)
def _(turn_returns, draw: Draw) -> Comparison:
    "With one reward on the last token and no discount, a turn's return is the trajectory's."
    mask, total = draw.holed_mask(3, 9), draw.normal(3, 1)
    rewards = torch.zeros(3, 9, dtype=torch.float64)
    rewards[:, -1:] = total
    return turn_returns(rewards, mask), torch.where(mask, total, 0.0)


@check(
    "eq:call-worth",
    "value",
    of=tools.call_worth,
    against="all outcomes of asking and of not asking, each with its reward",
    wrong={
        "a failure counts as a wrong answer": lambda read, head, *, fail, lie, cost: (
            (1 - fail - lie) * read - cost - head
        ),
        "lies are seen through": lambda read, head, *, fail, lie, cost: tools.call_worth(
            read, head, fail=fail + lie, cost=cost
        ),
        "the cost only when the tool works": lambda read, head, *, fail, lie, cost: tools.call_worth(
            read, head, fail=fail, lie=lie, cost=(1 - fail) * cost
        ),
    },
)
def _(call_worth, draw: Draw) -> Iterator[Comparison]:
    "The reward expected after a call, over everything the tool and the policy may do, less that of answering from the head."
    for _ in range(2):
        read, head = draw.uniform(3, low=0.6, high=0.95), draw.uniform(3, low=0.1, high=0.5)
        fail, lie, cost = (float(draw.uniform(low=low, high=low + 0.1)) for low in (0.1, 0.25, 0.05))
        outcomes = [(1 - fail - lie, read), (fail, head), (lie, torch.zeros(3, dtype=torch.float64))]
        asked = sum(p * (right * (1 - cost) + (1 - right) * (0 - cost)) for p, right in outcomes)
        yield call_worth(read, head, fail=fail, lie=lie, cost=cost), asked - head


@check(
    "eq:tokens-read-again",
    "value",
    of=tools.tokens_read_again,
    against="lists of tokens, read turn by turn",
    wrong={
        "each token once": lambda prompt, said, heard: prompt + (said + heard)[..., :-1].sum(-1),
        "the turn itself read too": lambda prompt, said, heard: (
            tools.tokens_read_again(prompt, said, heard) + said.sum(-1)
        ),
        "answers never read": lambda prompt, said, heard: tools.tokens_read_again(prompt, said, 0 * heard),
    },
)
def _(tokens_read_again, draw: Draw) -> Comparison:
    "Before it speaks, each turn reads the prompt and all that was said and heard before it."
    prompt = torch.tensor([float(draw.integer(3, 9)) for _ in range(2)], dtype=torch.float64)
    said, heard = (torch.tensor([[draw.integer(1, 5) for _ in range(4)] for _ in range(2)]).double() for _ in range(2))
    read = []
    for row in range(2):
        conversation, total = ["p"] * int(prompt[row]), 0
        for k in range(4):
            total += len(conversation)
            conversation += ["s"] * int(said[row, k]) + ["h"] * int(heard[row, k])
        read.append(total)
    return tokens_read_again(prompt, said, heard), torch.tensor(read, dtype=torch.float64)
