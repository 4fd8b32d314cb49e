"""The ledger of chapter 19: leaderboards, what a model says about its own answers, given answers, and leaks."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator

import torch
from torch import Tensor

from minirlhf.core import exact
from minirlhf.equations import evaluation
from minirlhf.equations.social_choice import bradley_terry_balance
from minirlhf_course.chapters.ch19_evaluation import equations
from minirlhf_course.ledger.registry import Comparison, Draw, check


def _games(draw: Draw, size: int, most: int) -> Tensor:
    """How often each pair met, 1 to ``most`` times; NaN-free and symmetric."""
    games = torch.zeros(size, size, dtype=torch.float64)
    for a, b in itertools.combinations(range(size), 2):
        games[a, b] = games[b, a] = draw.integer(1, most)
    return games


# -- leaderboards ------------------------------------------------------------------------------------------------


@check(
    "eq:leaderboard-information",
    "value",
    "The information is the covariance, over future games, of each model's wins minus its expected wins.",
    of=equations.leaderboard_information,
    against="the covariance of wins minus expected wins, over all outcomes of all games",
    wrong={
        "sign of the pairs": lambda games, rewards: equations.leaderboard_information(games, rewards).abs(),
        "each game worth ¼": lambda games, rewards: equations.leaderboard_information(games, 0 * rewards),
        "every pair met once": lambda games, rewards: equations.leaderboard_information((games > 0).to(games), rewards),
    },
)
def _(information, draw: Draw) -> Comparison:
    games = _games(draw, 3, 2) + torch.tensor([[0, 1, 0], [1, 0, 0], [0, 0, 0]], dtype=torch.float64)
    rewards = torch.tensor([0.0, 0.8, -0.7], dtype=torch.float64) + draw.uniform(3, low=-0.2, high=0.2)
    met = [(a, b) for a, b in itertools.combinations(range(3), 2) for _ in range(int(games[a, b]))]
    expected = torch.zeros(3, 3, dtype=torch.float64)
    for outcome in itertools.product([0, 1], repeat=len(met)):
        chance, beyond = 1.0, [0.0] * 3
        for (a, b), a_wins in zip(met, outcome, strict=True):
            p = 1 / (1 + math.exp(float(rewards[b] - rewards[a])))
            chance *= p if a_wins else 1 - p
            beyond[a] += a_wins - p
            beyond[b] -= a_wins - p
        x = torch.tensor(beyond, dtype=torch.float64)
        expected = expected + chance * x[:, None] * x[None, :]
    return information(games, rewards), expected


@check(
    "eq:leaderboard-information",
    "curvature",
    "It is also the curvature of the log-likelihood, whatever the outcomes.",
    of=equations.leaderboard_information,
    against="finite differences of the gradient of the log-likelihood",
    wrong={
        "sign of the pairs": lambda games, rewards: equations.leaderboard_information(games, rewards).abs(),
        "each game worth ¼": lambda games, rewards: equations.leaderboard_information(games, 0 * rewards),
    },
    tolerance=1e-7,
)
def _(information, draw: Draw) -> Comparison:
    games = _games(draw, 4, 9)
    boards = torch.tensor([-1.5, -0.5, 0.5, 1.5], dtype=torch.float64) + draw.uniform(2, 4, low=-0.2, high=0.2)
    wins = _split(games, games * draw.uniform(4, 4))
    expected = []
    for rewards in boards:
        columns = []
        for b in range(4):
            step = torch.zeros(4, dtype=torch.float64)
            step[b] = 1e-4
            rise = bradley_terry_balance(wins, rewards + step) - bradley_terry_balance(wins, rewards - step)
            columns.append(-rise / 2e-4)
        expected.append(torch.stack(columns, -1))
    return information(games.expand(2, 4, 4), boards), torch.stack(expected)


def _split(games: Tensor, share: Tensor) -> Tensor:
    """Wins of a against b and of b against a that make up the games."""
    upper = share.triu(1)
    return upper + (games.triu(1) - upper).mT


@check(
    "eq:leaderboard-variance",
    "value",
    "With one reward fixed, the variances of the others are those of their differences from it.",
    of=equations.leaderboard_variance,
    against="the inverse of the information when the last model's reward is held fixed",
    wrong={
        "one's own games alone": lambda games, rewards: _from_diagonal(games, rewards),
        "covariance forgotten": lambda games, rewards: _of_two(games, rewards, 0.0),
        "covariance once": lambda games, rewards: _of_two(games, rewards, 1.0),
        "direct games alone": lambda games, rewards: torch.where(
            games > 0, -1 / equations.leaderboard_information(games, rewards), 0.0
        ),
    },
)
def _(variance, draw: Draw) -> Comparison:
    games, rewards = _games(draw, 4, 9), draw.uniform(4, low=-1.0, high=1.0)
    information = torch.zeros(4, 4, dtype=torch.float64)
    for a, b in itertools.combinations(range(4), 2):
        p = 1 / (1 + math.exp(float(rewards[b] - rewards[a])))
        tie = torch.zeros(4, dtype=torch.float64)
        tie[a], tie[b] = 1.0, -1.0
        information = information + games[a, b] * p * (1 - p) * tie[:, None] * tie[None, :]
    expected = torch.zeros(4, 4, dtype=torch.float64)
    for fixed in range(4):
        others = [a for a in range(4) if a != fixed]
        inverse = torch.linalg.inv(information[others][:, others])
        for place, a in enumerate(others):
            expected[a, fixed] = inverse[place, place]
    return variance(games, rewards), expected


def _from_diagonal(games: Tensor, rewards: Tensor) -> Tensor:
    own = 1 / equations.leaderboard_information(games, rewards).diagonal(dim1=-2, dim2=-1)
    return (own[..., :, None] + own[..., None, :]) * (1 - torch.eye(games.shape[-1], dtype=games.dtype))


def _of_two(games: Tensor, rewards: Tensor, counted: float) -> Tensor:
    inverse = torch.linalg.pinv(equations.leaderboard_information(games, rewards))
    own = inverse.diagonal(dim1=-2, dim2=-1)
    return own[..., :, None] + own[..., None, :] - counted * inverse


@check(
    "eq:leaderboard-variance",
    "chain",
    "The variance of the difference of two models that met only through others is the sum of the variances along "
    "the chain.",
    of=equations.leaderboard_variance,
    against="1/(n p(1 − p)) of each pair that met, summed along the chain",
    wrong={
        "one's own games alone": lambda games, rewards: _from_diagonal(games, rewards),
        "covariance forgotten": lambda games, rewards: _of_two(games, rewards, 0.0),
    },
)
def _(variance, draw: Draw) -> Comparison:
    rewards = draw.uniform(4, low=-1.0, high=1.0)
    games, links = torch.zeros(4, 4, dtype=torch.float64), []
    for a in range(3):
        games[a, a + 1] = games[a + 1, a] = draw.integer(3, 9)
        p = 1 / (1 + math.exp(float(rewards[a + 1] - rewards[a])))
        links.append(1 / (float(games[a, a + 1]) * p * (1 - p)))
    expected = [[sum(links[min(a, b) : max(a, b)]) for b in range(4)] for a in range(4)]
    return variance(games, rewards), torch.tensor(expected, dtype=torch.float64)


# -- what is said about one's own answer -------------------------------------------------------------------------


@check(
    "eq:brier-score",
    "decisions", "Twice the mean regret of acting, at a cost t and for a gain of 1 if it comes true, whenever the probability "
    "exceeds t, integrated over all t.",
    of=equations.brier_score,
    against="the regret of all threshold decisions, integrated over their thresholds",
    wrong={
        "absolute error": lambda probabilities, outcomes: (probabilities - outcomes).abs().mean(-1),
        "surprise": lambda probabilities, outcomes: -torch.where(outcomes > 0.5, probabilities, 1 - probabilities).log().mean(-1),
        "both outcomes counted": lambda probabilities, outcomes: 2 * ((probabilities - outcomes) ** 2).mean(-1),
        "sum": lambda probabilities, outcomes: ((probabilities - outcomes) ** 2).sum(-1),
    },
)  # fmt: skip
def _(score, draw: Draw) -> Comparison:
    said, happened = draw.uniform(2, 4, low=0.1, high=0.9), torch.tensor([[1.0, 0, 1, 1], [0, 0, 1, 0]]).double()
    lost = []
    for p, o in zip(said.flatten().tolist(), happened.flatten().tolist(), strict=True):
        # The right decision is to act if it comes true. Where p > t one acts.
        regret = exact.integrate(lambda t: 1 - t, p, 1.0) if o else exact.integrate(lambda t: t, 0.0, p)
        lost.append(2 * float(regret))
    return score(said, happened), torch.tensor(lost, dtype=torch.float64).view(2, 4).mean(-1)


@check(
    "eq:brier-score",
    "proper",
    "The expected score is best at the true probability.",
    of=equations.brier_score,
    against="derivative 0 at the true probability, of the expected score",
    wrong={
        "absolute error": lambda probabilities, outcomes: (probabilities - outcomes).abs().mean(-1),
        "fourth power": lambda probabilities, outcomes: ((probabilities - outcomes) ** 4).mean(-1),
    },
)
def _(score, draw: Draw) -> Comparison:
    truth = float(draw.away_from([0.5], low=0.2, high=0.8, margin=0.1))
    said = torch.tensor([truth], dtype=torch.float64, requires_grad=True)
    right, wrong = torch.ones_like(said), torch.zeros_like(said)
    return exact.gradient(truth * score(said, right) + (1 - truth) * score(said, wrong), said), torch.zeros_like(said)


@check(
    "eq:brier-parts",
    "sum",
    "Reliability minus resolution plus uncertainty is the Brier score.",
    of=equations.brier_parts,
    against="the mean squared error of all answers",
    wrong={
        "resolution added": lambda p, o: _changed(p, o, second=-1.0),
        "uncertainty left out": lambda p, o: _changed(p, o, third=0.0),
        "reliability halved": lambda p, o: _changed(p, o, first=0.5),
    },
)
def _(parts, draw: Draw) -> Comparison:
    said, happened = _forecasts(draw)
    reliability, resolution, uncertainty = parts(said, happened)
    return reliability - resolution + uncertainty, sum(
        (p - o) ** 2 for p, o in zip(said.tolist(), happened.tolist(), strict=True)
    ) / len(said)


@check(
    "eq:brier-parts",
    "each",
    "The distance of groups from their forecasts, the distance between groups, and the variance of the outcomes.",
    of=equations.brier_parts,
    against="groups of equal forecasts, one by one",
    wrong={
        "groups weighted equally": lambda p, o: _grouped(p, o, weighted=False),
        "reliability and resolution exchanged": lambda p, o: _exchanged(p, o),
    },
)
def _(parts, draw: Draw) -> Iterator[Comparison]:
    said, happened = _forecasts(draw)
    yield from zip(parts(said, happened), _grouped(said, happened, weighted=True), strict=True)


def _changed(p: Tensor, o: Tensor, first: float = 1.0, second: float = 1.0, third: float = 1.0) -> tuple[Tensor, ...]:
    """The parts, each multiplied by something."""
    return tuple(part * by for part, by in zip(equations.brier_parts(p, o), (first, second, third), strict=True))


def _exchanged(p: Tensor, o: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    reliability, resolution, uncertainty = equations.brier_parts(p, o)
    return resolution, reliability, uncertainty


def _forecasts(draw: Draw) -> tuple[Tensor, Tensor]:
    levels = torch.tensor([0.15, 0.5, 0.8], dtype=torch.float64) + draw.uniform(3, low=0.0, high=0.1)
    said = levels[[0, 1, 2, 0, 2, 2, 1, 0, 0, 2]]
    return said, torch.tensor([0, 1, 1, 1, 1, 0, 0, 0, 0, 1], dtype=torch.float64)


def _grouped(said: Tensor, happened: Tensor, *, weighted: bool) -> tuple[Tensor, Tensor, Tensor]:
    overall = sum(happened.tolist()) / len(happened)
    levels, totals = sorted(set(said.tolist())), [0.0, 0.0]
    for level in levels:
        group = [o for p, o in zip(said.tolist(), happened.tolist(), strict=True) if p == level]
        weight = len(group) / len(said) if weighted else 1 / len(levels)
        true = sum(group) / len(group)
        totals[0] += weight * (level - true) ** 2
        totals[1] += weight * (true - overall) ** 2
    first, second = (torch.tensor(x, dtype=torch.float64) for x in totals)
    return first, second, torch.tensor(overall - overall**2, dtype=torch.float64)


@check(
    "eq:answering-gain",
    "value",
    "The expected score: 1 for a correct answer, minus the penalty for a wrong one.",
    of=equations.answering_gain,
    against="both outcomes with their points",
    wrong={
        "no price for errors": lambda confidence, *, penalty: confidence,
        "penalty for every answer": lambda confidence, *, penalty: confidence - penalty,
        "right answers pay too": lambda confidence, *, penalty: confidence * penalty - (1 - confidence),
    },
)
def _(gain, draw: Draw) -> Iterator[Comparison]:
    for penalty in (0.5, 3.0):
        p = draw.uniform(4, low=0.1, high=0.9)
        law, points = torch.stack([p, 1 - p], -1), torch.tensor([1.0, -penalty], dtype=torch.float64)
        yield gain(p, penalty=penalty), exact.expectation(law, points)


@check(
    "eq:abstention-threshold",
    "value",
    "At this probability of being correct the expected score of an answer is 0.",
    of=equations.answering_gain,
    against="as many correct answers as the penalty to each wrong one: the points sum to zero",
    wrong={
        "no price for errors": lambda confidence, *, penalty: confidence,
        "penalty for every answer": lambda confidence, *, penalty: confidence - penalty,
    },
)
def _(gain, draw: Draw) -> Iterator[Comparison]:
    for penalty in (draw.integer(2, 4), draw.integer(5, 9)):
        right, wrong = penalty, 1
        confidence = torch.tensor(right / (right + wrong), dtype=torch.float64)
        yield gain(confidence, penalty=float(penalty)), 0.0


# -- given answers -----------------------------------------------------------------------------------------------


@check(
    "eq:normalised-score",
    "value",
    "The score times a power of the length is the log-probability of the answer.",
    of=evaluation.normalised_scores,
    against="the answer's probability, recovered from its score",
    wrong={
        "exponent forgotten": lambda logps, lengths, *, exponent: logps / lengths,
        "multiplied": lambda logps, lengths, *, exponent: logps * lengths**exponent,
        "plain sum": lambda logps, lengths, *, exponent: logps,
    },
)
def _(scores, draw: Draw) -> Iterator[Comparison]:
    for exponent in (0.5, 2.0):
        tokens = [draw.uniform(2, n, low=0.1, high=0.9) for n in (2, 3, 5)]
        lengths = torch.tensor([[2.0, 3.0, 5.0]] * 2, dtype=torch.float64)
        found = scores(torch.stack([p.log().sum(-1) for p in tokens], -1), lengths, exponent=exponent)
        for at, p in enumerate(tokens):
            yield found[:, at] * math.exp(exponent * math.log(p.shape[-1])), p.prod(-1).log()


@check(
    "eq:pointwise-information",
    "Bayes",
    "If the empty prompt gives answers their overall frequency, the score ranks answers by the likelihood of the "
    "question given the answer.",
    of=evaluation.pointwise_information,
    against="the likelihood of the question given the answer, in a joint table of questions and answers",
    wrong={
        "likelihood alone": lambda logps, prior_logps: logps,
        "sum": lambda logps, prior_logps: logps + prior_logps,
        "half of the prior": lambda logps, prior_logps: logps - 0.5 * prior_logps,
    },
)
def _(information, draw: Draw) -> Comparison:
    joint = draw.distribution(12).view(3, 4)  # questions, answers
    question, answer = joint.sum(1), joint.sum(0)
    got = information((joint / question[:, None]).log(), answer.log().expand(3, 4))
    return got + question.log()[:, None], (joint / answer).log()


# -- leaks -------------------------------------------------------------------------------------------------------


@check(
    "eq:ngram-overlap",
    "value", "The fraction of an item's n-grams that occur in the training text.",
    of=evaluation.ngram_overlap,
    against="n-grams searched in the training text, letter by letter",
    wrong={
        "any hit counts as all": lambda tokens, seen, *, n: float(any(r in seen for r in evaluation.ngrams(tokens, n=n))),
        "tokens instead of runs": lambda tokens, seen, *, n: sum(
            any(t in run for run in seen) for t in tokens
        ) / len(tokens),
        "each run once": lambda tokens, seen, *, n: (
            lambda runs: sum(r in seen for r in runs) / len(runs)
        )(set(evaluation.ngrams(tokens, n=n))),
        "divided by the number of tokens": lambda tokens, seen, *, n: (
            evaluation.ngram_overlap(tokens, seen, n=n) * (len(tokens) - n + 1) / len(tokens)
        ),
    },
)  # fmt: skip
def _(overlap, draw: Draw) -> Iterator[Comparison]:
    for n in (2, 3):
        text = "".join("abcd"[int(i)] for i in draw.permutation(4)) + "".join(
            "abcd"[draw.integer(0, 3)] for _ in range(12)
        )
        start = draw.integer(0, 6)
        item = text[start : start + 5] + "z" + text[start : start + 5] + "zab"
        pieces = [item[i : i + n] for i in range(len(item) - n + 1)]
        yield overlap(item, set(evaluation.ngrams(text, n=n)), n=n), sum(p in text for p in pieces) / len(pieces)


@check(
    "eq:selected-score",
    "value",
    "The expected score of the best of several submissions, on the items by which it was selected.",
    of=equations.selected_score,
    against="the maximum over all outcomes of all submissions, enumerated",
    wrong={
        "one submission": lambda chance, *, items, tries: chance,
        "right if any of them is": lambda chance, *, items, tries: 1 - (1 - chance) ** tries,
        "one try fewer": lambda chance, *, items, tries: equations.selected_score(
            chance, items=items, tries=max(tries - 1, 1)
        ),
        "one item more": lambda chance, *, items, tries: equations.selected_score(chance, items=items + 1, tries=tries),
    },
)
def _(score, draw: Draw) -> Iterator[Comparison]:
    p = draw.uniform(2, low=0.2, high=0.8)
    for items, tries in ((3, 2), (2, 4), (4, 2)):
        expected = []
        for chance in p.tolist():
            total = 0.0
            for outcome in itertools.product([0, 1], repeat=items * tries):
                best = max(sum(outcome[k * items : (k + 1) * items]) for k in range(tries)) / items
                total += best * math.prod(chance if x else 1 - chance for x in outcome)
            expected.append(total)
        yield score(p, items=items, tries=tries), torch.tensor(expected, dtype=torch.float64)
