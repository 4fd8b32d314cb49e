"""Simulated benchmarks and leaderboards whose truth is known: how often intervals hold it, and how often tests find a difference."""

from __future__ import annotations

import itertools
import math

import torch
from torch import Tensor

from minirlhf.core.randomness import generator
from minirlhf.core.statistics import sign_test
from minirlhf.equations import estimators, evaluation
from minirlhf.equations.reward_losses import elo_update
from minirlhf.equations.social_choice import bradley_terry_fit
from minirlhf.evidence import t_distribution

REACH = 1.959963984540054  # standard errors of a 95 % interval


def bootstrap_interval(successes: int, trials: int, *, alpha: float = 0.05) -> tuple[float, float]:
    """The percentile bootstrap of a share, without drawing: quantiles of its resampled values, whose law is known.

    A quantile q is the smallest value that the resampled share exceeds with probability at most 1 − q.
    """
    upto = evaluation.resampling_law(successes, trials).cumsum(-1)
    low, high = ((upto < q - 1e-12).sum().item() / trials for q in (alpha / 2, 1 - alpha / 2))
    return low, high


# -- exact -------------------------------------------------------------------------------------------------------


def coverages(trials: int, truth: float) -> dict[str, float]:
    """How often the 95 % intervals of Wald, the percentile bootstrap and Wilson hold a share; exact."""
    counts, n = torch.arange(trials + 1).double(), torch.full((trials + 1,), float(trials), dtype=torch.float64)
    resampled = torch.tensor([bootstrap_interval(s, trials) for s in range(trials + 1)], dtype=torch.float64)
    ends = {
        "wald": evaluation.wald_interval(counts, n),
        "bootstrap": (resampled[:, 0], resampled[:, 1]),
        "wilson": evaluation.wilson_interval(counts, n),
    }
    at = torch.tensor(truth, dtype=torch.float64)
    return {name: float(evaluation.coverage(low, high, at)) for name, (low, high) in ends.items()}


def pass_estimates(trials: int, k: int, chance: float) -> dict[str, float]:
    """What pass@k is for one problem, and mean and root mean squared error of two estimates of it; exact."""
    counts = torch.arange(trials + 1)
    law = torch.tensor(
        [math.comb(trials, c) * chance**c * (1 - chance) ** (trials - c) for c in range(trials + 1)]
    ).double()
    truth = 1 - (1 - chance) ** k
    estimates = {
        "unbiased": estimators.pass_at_k(trials, counts, k=k),
        "plug_in": 1 - (1 - counts.double() / trials) ** k,
    }
    found = {"truth": truth}
    for name, values in estimates.items():
        found[f"{name}_mean"] = float(law @ values)
        found[f"{name}_error"] = float((law @ (values - truth) ** 2).sqrt())
    return found


def vote(law: Tensor, voters: int) -> float:
    """How often the most frequent of so many fresh answers is answer 0, a tie broken by chance; exact."""
    found = 0.0
    for counts in itertools.product(range(voters + 1), repeat=len(law)):
        if sum(counts) == voters and counts[0] == max(counts):
            ways = math.factorial(voters) // math.prod(map(math.factorial, counts))
            chance = ways * math.prod(float(p) ** c for p, c in zip(law, counts, strict=True))
            found += chance / counts.count(max(counts))
    return found


def rankings() -> dict[str, float]:
    """Model A solves half of the problems nearly always and half nearly never, B each of them at .40. Wrong answers agree. Exact."""
    models, found = {"A": (0.95, 0.01), "B": (0.40, 0.40)}, {}
    for name, chances in models.items():
        found[f"{name}_pass_1"] = sum(chances) / 2
        found[f"{name}_pass_8"] = sum(1 - (1 - p) ** 8 for p in chances) / 2
        found[f"{name}_all_8"] = sum(p**8 for p in chances) / 2
        found[f"{name}_vote_9"] = sum(vote(torch.tensor([p, 1 - p]), 9) for p in chances) / 2
    return found


def equal_tokens(budget: int = 16) -> dict[str, float]:
    """One long reply against the vote of many short ones: a short one costs 1 and is right at .45, a long one 4 and .60. Exact.

    Wrong answers are three, of which a short reply gives each with .55/3; or all the same one.
    """
    spread, alike = torch.tensor([0.45, 0.55 / 3, 0.55 / 3, 0.55 / 3]), torch.tensor([0.45, 0.55])
    long = torch.tensor([0.60, 0.40 / 3, 0.40 / 3, 0.40 / 3])
    return {
        "short_one": 0.45,
        "long_one": 0.60,
        "short_vote_spread": vote(spread, budget),
        "short_vote_alike": vote(alike, budget),
        "long_vote": vote(long, budget // 4),
    }


# -- simulated ---------------------------------------------------------------------------------------------------


def cluster_coverage(
    seed: int, benchmarks: int = 4000, clusters: int = 30, size: int = 5, shared: float = 0.4
) -> dict[str, float]:
    """How often intervals hold the mean of a benchmark whose items share passages, with and without regard to these.

    Each item is right at .6; with probability √``shared`` it copies its passage's coin, so that two of a passage correlate by ``shared``.
    """
    rng = generator("clusters", seed)
    own = (torch.rand(benchmarks, clusters, size, generator=rng) < 0.6).double()
    common = (torch.rand(benchmarks, clusters, 1, generator=rng) < 0.6).double()
    copied = torch.rand(benchmarks, clusters, size, generator=rng) < math.sqrt(shared)
    scores = torch.where(copied, common, own).flatten(1)
    place = torch.arange(clusters).repeat_interleave(size)
    off = (scores.mean(-1) - 0.6).abs()
    naive = (scores.var(-1, correction=0) / scores.shape[-1]).sqrt()
    minding = torch.stack([evaluation.clustered_variance(row, place) for row in scores]).sqrt()
    return {
        "naive": float((off <= REACH * naive).double().mean()),
        "clustered": float((off <= REACH * minding).double().mean()),
    }


def _difficulties(rng: torch.Generator, *shape: int) -> tuple[Tensor, Tensor]:
    """Chances of two models on items of very different difficulty; .70 and .75 on average, to within 1e-4."""
    ease = 2.0 * torch.randn(*shape, generator=rng, dtype=torch.float64)
    return torch.sigmoid(ease + 1.3842), torch.sigmoid(ease + 1.7827)


def power(seed: int, items: int, benchmarks: int = 1000) -> dict[str, float]:
    """How often .70 against .75 is found: other items for each model (two shares), or the same, by the interval of a mean of pairs
    or by the sign test on differing items."""
    rng = generator("power", seed, items)
    found = {"unpaired": 0, "interval": 0, "paired": 0}
    for _ in range(benchmarks):
        a, b = _difficulties(rng, items)
        other = _difficulties(rng, items)[0]
        ours, theirs, apart = (torch.rand(items, generator=rng) < p for p in (b, a, other))
        both = (ours.double().mean() + apart.double().mean()) / 2
        error = math.sqrt(float(2 * both * (1 - both) / items))
        found["unpaired"] += float((ours.double().mean() - apart.double().mean()).abs()) > REACH * error
        pairs = float(evaluation.paired_variance(ours.double(), theirs.double()))
        found["interval"] += abs(float(ours.double().mean() - theirs.double().mean())) > REACH * math.sqrt(pairs)
        found["paired"] += sign_test(int((ours & ~theirs).sum()), int((theirs & ~ours).sum())) < 0.05
    return {name: count / benchmarks for name, count in found.items()}


def false_alarms(
    seed: int, seeds: int, spread: float = 0.01, items: int = 2000, benchmarks: int = 2000
) -> dict[str, float]:
    """Two recipes that are equally good on average; each seed of each is ``spread`` better or worse. How often are they told apart?

    By the items alone, as if the models were the recipes; or, of several, by the differences of the seeds (Student's t).
    """
    rng = generator("alarms", seed, seeds)
    by_items, by_seeds = 0, 0
    for _ in range(benchmarks):
        levels = 0.7 + spread * torch.randn(2, seeds, generator=rng, dtype=torch.float64)
        right = torch.binomial(torch.full_like(levels, float(items)), levels, generator=rng) / items
        difference = right[0] - right[1]
        error = math.sqrt(2 * 0.7 * 0.3 / (items * seeds))
        by_items += abs(float(difference.mean())) > REACH * error
        if seeds > 1:
            t = float(difference.mean()) / float(difference.std()) * math.sqrt(seeds)
            by_seeds += t_distribution.two_sided(t, seeds - 1) < 0.05
    found = {"items": by_items / benchmarks}
    return found | {"seeds": by_seeds / benchmarks} if seeds > 1 else found


def leaderboard(seed: int, games: int, boards: int = 60, models: int = 8, step: float = 35.0) -> dict[str, float]:
    """Eight models, each 35 Elo points above the next. How often does the fit of so many games crown the right one, and how often
    does the 95 % interval of the difference of the two best hold the truth? Of several who share the first place each is crowned in part.

    Everybody meets everybody equally often, so that the fit orders them by their wins, which are whole numbers and can be equal.
    """
    rng = generator("board", seed, games)
    unit = 400 / math.log(10)
    truth = -torch.arange(models, dtype=torch.float64) * step / unit
    each = games / (models * (models - 1) // 2)  # of every pair
    met = torch.full((models, models), each, dtype=torch.float64).fill_diagonal_(0.0)
    chances = torch.sigmoid(truth[:, None] - truth[None, :]).triu(1)
    crowned, held, fitted = 0.0, 0, 0
    for _ in range(boards):
        wins = torch.binomial(met.triu(1), chances, generator=rng)
        wins = wins + (met.triu(1) - wins).mT
        try:
            found = bradley_terry_fit(wins, tolerance=1e-8)
        except ValueError:
            continue  # somebody has won or lost everything: no finite fit
        fitted += 1
        leading = wins.sum(1) == wins.sum(1).max()
        crowned += float(leading[0]) / int(leading.sum())
        error = math.sqrt(float(evaluation.leaderboard_variance(met, found)[0, 1]))
        held += abs(float(found[0] - found[1] - (truth[0] - truth[1]))) <= REACH * error
    return {"crowned": crowned / fitted, "held": held / fitted, "fitted": fitted / boards}


def elo_spread(seed: int, orders: int = 20, models: int = 8, games: int = 1000) -> float:
    """Standard deviation, in points, of a model's online Elo rating over orders of the same games; the mean over models."""
    rng = generator("elo", seed)
    truth = -torch.arange(models, dtype=torch.float64) * 35.0 * math.log(10) / 400
    pairs = list(itertools.combinations(range(models), 2))
    played = []
    for place in torch.randint(len(pairs), (games,), generator=rng).tolist():
        a, b = pairs[place]
        played.append((a, b, float(torch.rand((), generator=rng) < torch.sigmoid(truth[a] - truth[b]))))
    order = torch.stack([torch.randperm(games, generator=rng) for _ in range(orders)])  # (orders, games)
    first, second, score = torch.tensor(played, dtype=torch.float64).T
    ratings, row = torch.full((orders, models), 1000.0, dtype=torch.float64), torch.arange(orders)
    for at in order.T:
        a, b = first[at].long(), second[at].long()
        ratings[row, a], ratings[row, b] = elo_update(ratings[row, a], ratings[row, b], score[at], k=16.0)
    return float(ratings.std(0).mean())


def climbing(seed: int, submissions: int, items: int = 1000) -> dict[str, float]:
    """Submissions of coin flips, each turned round if its public score is below one half, then the majority of all."""
    rng = generator("climb", seed, submissions)
    answers = (torch.rand(submissions, 2 * items, generator=rng) < 0.5).double() * 2 - 1
    truth = (torch.rand(2 * items, generator=rng) < 0.5).double() * 2 - 1
    agreement = (answers[:, :items] * truth[:items]).mean(-1)
    final = (agreement.sign()[:, None] * answers).sum(0)
    right = (final * truth > 0).double() + 0.5 * (final == 0).double()
    best = int(agreement.argmax())
    return {
        "public": float(right[:items].mean()),
        "private": float(right[items:].mean()),
        "best_public": float((1 + agreement[best]) / 2),
        "best_private": float((1 + (answers[best, items:] * truth[items:]).mean()) / 2),
    }
