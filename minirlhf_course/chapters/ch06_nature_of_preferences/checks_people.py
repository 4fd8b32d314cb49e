"""The ledger of chapter 06: what the comparisons of many people add up to."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator

import torch
from torch import Tensor

from minirlhf.core import exact
from minirlhf.equations import social_choice
from minirlhf_course.chapters.ch06_nature_of_preferences import equations
from minirlhf_course.ledger.registry import Comparison, Draw, chain, check

chain(
    "borda",
    "What a Bradley–Terry model fitted to many people estimates",
    ["eq:bradley-terry-fit", "eq:borda"],
    module=__name__,
)


def some_wins(draw: Draw, size: int = 4) -> Tensor:
    """How often each answer beat each other one; nobody reads the diagonal."""
    return draw.uniform(size, size, low=1.0, high=9.0)


def log_likelihood(wins: Tensor, rewards: Tensor) -> Tensor:
    """Of all comparisons under Bradley–Terry, one after the other."""
    size = len(rewards)
    terms = [
        wins[a, b] * (rewards[a] - torch.logaddexp(rewards[a], rewards[b]))
        for a, b in itertools.permutations(range(size), 2)
    ]
    return torch.stack(terms).sum()


def _centred(rewards: Tensor) -> Tensor:
    return rewards - rewards.mean(-1, keepdim=True)


def by_newton(wins: Tensor) -> Tensor:
    """The rewards of greatest likelihood, mean 0, by the slope and the curvature of the likelihood."""
    nobody = torch.eye(len(wins), dtype=torch.bool)
    wins, fitted = wins.masked_fill(nobody, 0.0), torch.zeros(len(wins), dtype=torch.float64)
    for _ in range(60):
        p = torch.sigmoid(fitted[:, None] - fitted[None, :])
        bend = (wins + wins.T) * p * (1 - p)  # it does not see a common shift, hence the + 1
        fitted = fitted + torch.linalg.solve(bend.sum(-1).diag() - bend + 1, (wins - (wins + wins.T) * p).sum(-1))
    return fitted


@check(
    "eq:bradley-terry-balance",
    "gradient",
    "The gradient of the log-likelihood is the number of wins minus the expected number of wins.",
    of=social_choice.bradley_terry_balance,
    against="finite differences of the log-likelihood of all comparisons",
    tolerance=1e-7,
    wrong={
        "wins and losses confused": lambda wins, rewards: social_choice.bradley_terry_balance(wins.mT, rewards),
        "wins less losses": lambda wins, rewards: (wins - wins.mT).sum(-1),
        "expected of the wins only": lambda wins, rewards: (
            wins * (1 - torch.sigmoid(rewards[..., :, None] - rewards[..., None, :]))
        ).sum(-1),
    },
)
def _(balance, draw: Draw) -> Comparison:
    wins, rewards = some_wins(draw), draw.normal(4)
    return balance(wins, rewards), exact.finite_difference(lambda r: log_likelihood(wins, r), rewards)


@check(
    "eq:bradley-terry-fit",
    "value",
    "No other rewards have a larger likelihood; exact win rates return their rewards, up to the mean.",
    of=social_choice.bradley_terry_fit,
    against="the rewards that produced the win rates, and Newton's method where there are none",
    tolerance=1e-8,
    wrong={
        "log-odds of all wins": lambda wins, *, tolerance, max_steps: _centred((wins.sum(-1) / wins.sum(-2)).log()),
        "a single step": lambda wins, *, tolerance, max_steps: _centred(
            social_choice.zermelo_step(wins, torch.zeros_like(wins[..., 0]))
        ),
        "losses for wins": lambda wins, *, tolerance, max_steps: social_choice.bradley_terry_fit(
            wins.mT, tolerance=tolerance, max_steps=max_steps
        ),
    },
)
def _(bradley_terry_fit, draw: Draw) -> Iterator[Comparison]:
    rewards = draw.uniform(4, low=-1.0, high=1.0) + torch.arange(4)
    rates = torch.sigmoid(rewards[:, None] - rewards[None, :])
    yield bradley_terry_fit(rates, tolerance=1e-12, max_steps=9_000), _centred(rewards)
    wins = some_wins(draw)
    yield bradley_terry_fit(wins, tolerance=1e-13, max_steps=8_000), by_newton(wins)
    ring = draw.uniform(4, low=0.2, high=0.9).diag().roll(1, dims=-1)  # each has beaten the next one, and nobody else
    yield bradley_terry_fit(ring, tolerance=1e-13, max_steps=8_000), by_newton(ring)


@check(
    "eq:zermelo",
    "value",
    "By log x ≤ log y + x/y − 1 the likelihood is nowhere below a bound; the step maximises this bound.",
    of=social_choice.zermelo_step,
    against="finite differences: the step is a maximum of the bound, which touches the likelihood from below",
    tolerance=1e-6,
    wrong={
        "losses for wins": lambda wins, rewards: social_choice.zermelo_step(wins.mT, rewards),
        "odds of wins to losses": lambda wins, rewards: (wins.sum(-1) / wins.sum(-2)).log(),
        "both sides of a game counted as the answer's own": lambda wins, rewards: (
            social_choice.zermelo_step(wins, rewards) + math.log(2)
        ),
    },
)
def _(zermelo_step, draw: Draw) -> Iterator[Comparison]:
    wins, rewards = some_wins(draw), draw.normal(4)

    def bound(r: Tensor) -> Tensor:
        terms = []
        for a, b in itertools.permutations(range(4), 2):
            here = rewards[a].exp() + rewards[b].exp()
            terms.append(wins[a, b] * (r[a] - here.log() - (r[a].exp() + r[b].exp()) / here + 1))
        return torch.stack(terms).sum()

    step = zermelo_step(wins, rewards)
    yield exact.finite_difference(bound, step), torch.zeros(4)
    expected = torch.sigmoid(rewards[:, None] - rewards[None, :])
    yield zermelo_step(7 * expected, rewards), rewards  # at the maximum it rests


@check(
    "eq:cycle-log-odds",
    "value",
    "Σ (r_a − r_{a+1} + c) around K answers is K c, whatever the rewards.",
    of=social_choice.cycle_log_odds,
    against="rewards, which cancel, and a constant that is added to each log-odds around the cycle",
    wrong={
        "the last leg forgotten": lambda probs: torch.logit(
            probs[..., range(probs.shape[-1] - 1), range(1, probs.shape[-1])]
        ).sum(-1),
        "probabilities instead of log-odds": lambda probs: (
            probs[..., range(probs.shape[-1]), [*range(1, probs.shape[-1]), 0]] - 0.5
        ).sum(-1),
        "backwards": lambda probs: social_choice.cycle_log_odds(probs.mT),
    },
)
def _(cycle_log_odds, draw: Draw) -> Iterator[Comparison]:
    for size in (3, 5):
        rewards, push = draw.normal(size), 0.3 + float(draw.uniform())
        odds = rewards[:, None] - rewards[None, :]
        ahead = torch.arange(size)
        odds[ahead, ahead.roll(-1)] += push
        odds[ahead.roll(-1), ahead] -= push
        yield cycle_log_odds(torch.sigmoid(odds)), size * push


def some_groups(draw: Draw) -> tuple[Tensor, Tensor]:
    """Three groups' rewards of four answers, far apart, and their shares."""
    return 2 * draw.normal(3, 4), torch.tensor([0.2, 0.3, 0.5], dtype=torch.float64)[draw.permutation(3)]


@check(
    "eq:mixture-preference",
    "value",
    "A person is drawn, and then an answer with that person's probabilities.",
    of=social_choice.mixture_preference,
    against="the sum over persons, each of whom chooses with probability proportional to e^r",
    wrong={
        "Bradley–Terry on the mean rewards": lambda rewards, weights: torch.sigmoid(
            (weights @ rewards)[:, None] - (weights @ rewards)[None, :]
        ),
        "groups counted alike": lambda rewards, weights: social_choice.mixture_preference(
            rewards, torch.full_like(weights, 1 / len(weights))
        ),
        "arguments of the pair swapped": lambda rewards, weights: social_choice.mixture_preference(-rewards, weights),
    },
)
def _(mixture_preference, draw: Draw) -> Comparison:
    rewards, weights = some_groups(draw)
    want = torch.zeros(4, 4, dtype=torch.float64)
    for a, b in itertools.product(range(4), repeat=2):
        for share, r in zip(weights.tolist(), rewards.tolist(), strict=True):
            want[a, b] += share / (1 + math.exp(r[b]) / math.exp(r[a]))
    return mixture_preference(rewards, weights), want


_WRONG_BORDA = {
    "pairs won, as Copeland counts": lambda probs: (
        (probs > 0.5).double().masked_fill(torch.eye(probs.shape[-1], dtype=torch.bool), 0.0).sum(-1)
        / (probs.shape[-1] - 1)
    ),
    "the mean chance to lose": lambda probs: social_choice.borda_scores(probs.mT),
    "divided by K": lambda probs: social_choice.borda_scores(probs) * (probs.shape[-1] - 1) / probs.shape[-1],
}


@check(
    "eq:borda",
    "step",
    "If all pairs are compared equally often, the fitted rewards reproduce each answer's mean win rate.",
    of=social_choice.borda_scores,
    against="Bradley–Terry fitted to all comparisons by Newton's method",
    follows="eq:bradley-terry-fit",
    tolerance=1e-8,
    wrong=_WRONG_BORDA,
)
def _(borda_scores, draw: Draw) -> Comparison:
    probs = social_choice.mixture_preference(*some_groups(draw))
    fitted = by_newton(probs)
    reproduced = [
        sum(1 / (1 + math.exp(b - a)) for j, b in enumerate(fitted.tolist()) if j != i) / 3
        for i, a in enumerate(fitted.tolist())
    ]
    return borda_scores(probs), torch.tensor(reproduced, dtype=torch.float64)


@check(
    "eq:borda",
    "points",
    "The Borda count of ballots, per voter and per other answer.",
    of=social_choice.borda_scores,
    against="points: each voter gives an answer one point for every answer ranked below it",
    wrong=_WRONG_BORDA,
)
def _(borda_scores, draw: Draw) -> Comparison:
    ballots = [draw.permutation(4).tolist() for _ in range(5)]
    probs, points = torch.zeros(4, 4, dtype=torch.float64), torch.zeros(4, dtype=torch.float64)
    for ballot in ballots:
        for place, answer in enumerate(ballot):
            points[answer] += 3 - place
            probs[answer, ballot[place + 1 :]] += 1 / 5
    return borda_scores(probs), points / 15


@check(
    "eq:reward-spread",
    "value",
    "Mean and standard deviation of the reward over people.",
    of=equations.reward_spread,
    against="every pair of people: the mean of their squared differences is twice the variance",
    wrong={
        "groups counted alike": lambda rewards, weights: (rewards.mean(0), rewards.std(0, correction=0)),
        "variance for deviation": lambda rewards, weights: (
            weights @ rewards,
            weights @ (rewards - weights @ rewards) ** 2,
        ),
        "spread of the answers, not of the people": lambda rewards, weights: (
            weights @ rewards,
            (rewards.std(-1, correction=0) * weights).sum().expand(rewards.shape[-1]),
        ),
    },
)
def _(reward_spread, draw: Draw) -> Iterator[Comparison]:
    rewards, weights = some_groups(draw)
    mean, spread = reward_spread(rewards, weights)
    people = list(zip(weights.tolist(), rewards, strict=True))
    pairs = [(p * q / 2) * (r - s) ** 2 for (p, r), (q, s) in itertools.product(people, repeat=2)]
    yield mean, sum(p * r for p, r in people)
    yield spread**2, torch.stack(pairs).sum(0)
    yield spread.sign(), torch.ones(4)


@check(
    "eq:jury",
    "value",
    "The probability that a majority of independent votes is correct.",
    of=equations.majority_accuracy,
    against="all 2^n outcomes of the votes",
    wrong={
        "one voter's accuracy": lambda accuracy, *, voters: accuracy,
        "a unanimous vote": lambda accuracy, *, voters: accuracy**voters,
        "orders of the votes not counted": lambda accuracy, *, voters: torch.stack(
            [accuracy**k * (1 - accuracy) ** (voters - k) for k in range(voters // 2 + 1, voters + 1)]
        ).sum(0),
    },
)
def _(majority_accuracy, draw: Draw) -> Iterator[Comparison]:
    accuracy = draw.away_from([0.5], 3, low=0.2, high=0.9, margin=0.05)
    for voters in (3, 5):
        want = torch.zeros(3, dtype=torch.float64)
        for votes in itertools.product((True, False), repeat=voters):
            chance = torch.ones(3, dtype=torch.float64)
            for right in votes:
                chance = chance * (accuracy if right else 1 - accuracy)
            want += chance * (sum(votes) > voters / 2)
        yield majority_accuracy(accuracy, voters=voters), want


@check(
    "eq:mixture-preference",
    "limit",
    "For deterministic choices the preference probability does not depend on the size of rewards, only on the "
    "number of people.",
    of=social_choice.mixture_preference,
    against="the fraction of people who prefer a",
    wrong={
        "Bradley–Terry on the mean rewards": lambda rewards, weights: torch.sigmoid(
            (weights @ rewards)[:, None] - (weights @ rewards)[None, :]
        ),
        "groups counted alike": lambda rewards, weights: social_choice.mixture_preference(
            rewards, torch.full_like(weights, 1 / len(weights))
        ),
    },
)
def _(mixture_preference, draw: Draw) -> Comparison:
    rewards, weights = some_groups(draw)
    rewards[1] = -rewards[0]  # so that there is something to vote on
    sure = 200 * (rewards.argsort(-1).argsort(-1).double() + 0.1 * rewards.sigmoid())  # orders kept, far apart
    votes = ((rewards[:, :, None] > rewards[:, None, :]) * weights[:, None, None]).sum(0)
    return mixture_preference(sure, weights), votes + 0.5 * torch.eye(4)
