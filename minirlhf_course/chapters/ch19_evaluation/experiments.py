"""Simulated benchmarks and leaderboards with known true values: coverage of intervals, power and false alarms of
tests."""

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
from minirlhf_course.chapters.ch19_evaluation import equations
from minirlhf_course.evidence import t_distribution

REACH = 1.959963984540054  # standard errors of a 95 % interval


def bootstrap_interval(successes: int, trials: int, *, alpha: float = 0.05) -> tuple[float, float]:
    """Return the percentile bootstrap interval of a proportion, without sampling: the distribution of the resampled
    proportion is known.

    A quantile q is the smallest value that the resampled proportion exceeds with probability at most 1 − q.
    """
    cdf = equations.resampling_law(successes, trials).cumsum(-1)
    low, high = ((cdf < q - 1e-12).sum().item() / trials for q in (alpha / 2, 1 - alpha / 2))
    return low, high


# -- exact -------------------------------------------------------------------------------------------------------


def coverages(trials: int, truth: float) -> dict[str, float]:
    """Return the exact coverage of the 95 % intervals of Wald, the percentile bootstrap and Wilson for a proportion."""
    counts, n = torch.arange(trials + 1).double(), torch.full((trials + 1,), float(trials), dtype=torch.float64)
    resampled = torch.tensor([bootstrap_interval(s, trials) for s in range(trials + 1)], dtype=torch.float64)
    intervals = {
        "wald": evaluation.wald_interval(counts, n),
        "bootstrap": (resampled[:, 0], resampled[:, 1]),
        "wilson": evaluation.wilson_interval(counts, n),
    }
    true_rate = torch.tensor(truth, dtype=torch.float64)
    return {name: float(equations.coverage(low, high, true_rate)) for name, (low, high) in intervals.items()}


def pass_estimates(trials: int, k: int, chance: float) -> dict[str, float]:
    """Return the exact pass@k of one problem, and the mean and root mean squared error of two estimators of it."""
    counts = torch.arange(trials + 1)
    pmf = torch.tensor(
        [math.comb(trials, c) * chance**c * (1 - chance) ** (trials - c) for c in range(trials + 1)]
    ).double()
    truth = 1 - (1 - chance) ** k
    estimates = {
        "unbiased": estimators.pass_at_k(trials, counts, k=k),
        "plug_in": 1 - (1 - counts.double() / trials) ** k,
    }
    result = {"truth": truth}
    for name, values in estimates.items():
        result[f"{name}_mean"] = float(pmf @ values)
        result[f"{name}_error"] = float((pmf @ (values - truth) ** 2).sqrt())
    return result


def vote(law: Tensor, voters: int) -> float:
    """Return the exact probability that the most frequent of ``voters`` independent answers is answer 0; ties are
    broken at random."""
    probability = 0.0
    for counts in itertools.product(range(voters + 1), repeat=len(law)):
        if sum(counts) == voters and counts[0] == max(counts):
            orderings = math.factorial(voters) // math.prod(map(math.factorial, counts))
            count_probability = orderings * math.prod(float(p) ** c for p, c in zip(law, counts, strict=True))
            probability += count_probability / counts.count(max(counts))
    return probability


def rankings() -> dict[str, float]:
    """Return the exact scores of two models under four metrics. Model A solves half of the problems nearly always
    and half nearly never; model B solves each with probability .40. Wrong answers agree."""
    models, scores = {"A": (0.95, 0.01), "B": (0.40, 0.40)}, {}
    for name, solve_rates in models.items():
        scores[f"{name}_pass_1"] = sum(solve_rates) / 2
        scores[f"{name}_pass_8"] = sum(1 - (1 - p) ** 8 for p in solve_rates) / 2
        scores[f"{name}_all_8"] = sum(p**8 for p in solve_rates) / 2
        scores[f"{name}_vote_9"] = sum(vote(torch.tensor([p, 1 - p]), 9) for p in solve_rates) / 2
    return scores


def equal_tokens(budget: int = 16) -> dict[str, float]:
    """Compare one long completion with the majority vote of many short ones at an equal number of tokens. Exact.

    A short completion costs 1 and is right with probability .45; a long one costs 4 and is right with probability .60.
    There are three wrong answers. A short completion gives each with probability .55/3, or always the same one.
    """
    spread_errors, same_error = torch.tensor([0.45, 0.55 / 3, 0.55 / 3, 0.55 / 3]), torch.tensor([0.45, 0.55])
    long = torch.tensor([0.60, 0.40 / 3, 0.40 / 3, 0.40 / 3])
    return {
        "short_one": 0.45,
        "long_one": 0.60,
        "short_vote_spread": vote(spread_errors, budget),
        "short_vote_alike": vote(same_error, budget),
        "long_vote": vote(long, budget // 4),
    }


# -- simulated ---------------------------------------------------------------------------------------------------


def cluster_coverage(
    seed: int, benchmarks: int = 4000, clusters: int = 30, size: int = 5, shared: float = 0.4
) -> dict[str, float]:
    """Return the coverage of intervals for the mean of a benchmark whose items share passages, without and with a
    cluster-robust variance.

    Each item is right with probability .6. With probability √``shared`` it copies the coin flip of its passage, so that
    two items of a passage have correlation ``shared``.
    """
    rng = generator("clusters", seed)
    own = (torch.rand(benchmarks, clusters, size, generator=rng) < 0.6).double()
    common = (torch.rand(benchmarks, clusters, 1, generator=rng) < 0.6).double()
    copied = torch.rand(benchmarks, clusters, size, generator=rng) < math.sqrt(shared)
    scores = torch.where(copied, common, own).flatten(1)
    cluster_ids = torch.arange(clusters).repeat_interleave(size)
    deviation = (scores.mean(-1) - 0.6).abs()
    naive_error = (scores.var(-1, correction=0) / scores.shape[-1]).sqrt()
    clustered_error = torch.stack([evaluation.clustered_variance(row, cluster_ids) for row in scores]).sqrt()
    return {
        "naive": float((deviation <= REACH * naive_error).double().mean()),
        "clustered": float((deviation <= REACH * clustered_error).double().mean()),
    }


def _difficulties(rng: torch.Generator, *shape: int) -> tuple[Tensor, Tensor]:
    """Return the success probabilities of two models on items of very different difficulty; their means are .70 and
    .75, to within 1e-4."""
    ease = 2.0 * torch.randn(*shape, generator=rng, dtype=torch.float64)
    return torch.sigmoid(ease + 1.3842), torch.sigmoid(ease + 1.7827)


def power(seed: int, items: int, benchmarks: int = 1000) -> dict[str, float]:
    """Return the power of three tests to detect .70 against .75.

    ``unpaired``: the models answer different items (two proportions). ``interval``: the same items, by the interval of
    the mean paired difference. ``paired``: the same items, by the sign test on the items where the models differ.
    """
    rng = generator("power", seed, items)
    rejections = {"unpaired": 0, "interval": 0, "paired": 0}
    for _ in range(benchmarks):
        a, b = _difficulties(rng, items)
        other_items = _difficulties(rng, items)[0]
        better, worse, unpaired = (torch.rand(items, generator=rng) < p for p in (b, a, other_items))
        pooled = (better.double().mean() + unpaired.double().mean()) / 2
        std_error = math.sqrt(float(2 * pooled * (1 - pooled) / items))
        rejections["unpaired"] += float((better.double().mean() - unpaired.double().mean()).abs()) > REACH * std_error
        var = float(equations.paired_variance(better.double(), worse.double()))
        rejections["interval"] += abs(float(better.double().mean() - worse.double().mean())) > REACH * math.sqrt(var)
        rejections["paired"] += sign_test(int((better & ~worse).sum()), int((worse & ~better).sum())) < 0.05
    return {name: count / benchmarks for name, count in rejections.items()}


def false_alarms(
    seed: int, seeds: int, spread: float = 0.01, items: int = 2000, benchmarks: int = 2000
) -> dict[str, float]:
    """Return how often two recipes with equal mean accuracy are declared different. The accuracies of their seeds
    have standard deviation ``spread``.

    ``items``: by the items alone, as if the trained models were the recipes. ``seeds``: with several seeds, by
    Student's t on the differences between seeds.
    """
    rng = generator("alarms", seed, seeds)
    by_items, by_seeds = 0, 0
    for _ in range(benchmarks):
        accuracies = 0.7 + spread * torch.randn(2, seeds, generator=rng, dtype=torch.float64)
        scores = torch.binomial(torch.full_like(accuracies, float(items)), accuracies, generator=rng) / items
        difference = scores[0] - scores[1]
        std_error = math.sqrt(2 * 0.7 * 0.3 / (items * seeds))
        by_items += abs(float(difference.mean())) > REACH * std_error
        if seeds > 1:
            t = float(difference.mean()) / float(difference.std()) * math.sqrt(seeds)
            by_seeds += t_distribution.two_sided(t, seeds - 1) < 0.05
    rates = {"items": by_items / benchmarks}
    return rates | {"seeds": by_seeds / benchmarks} if seeds > 1 else rates


def leaderboard(seed: int, games: int, boards: int = 60, models: int = 8, step: float = 35.0) -> dict[str, float]:
    """Simulate leaderboards of eight models, each 35 Elo points above the next, with ``games`` games per board.

    All pairs play equally often, so the fit orders the models by their wins. These are whole numbers and can be equal.

    Returns:
        ``crowned``: how often the fit ranks the best model first; models that share the first place count in equal
        parts. ``held``: coverage of the 95 % interval of the difference of the two best models. ``fitted``: fraction of
        boards with a finite fit.
    """
    rng = generator("board", seed, games)
    unit = 400 / math.log(10)
    true_ratings = -torch.arange(models, dtype=torch.float64) * step / unit
    games_per_pair = games / (models * (models - 1) // 2)  # for every pair
    num_games = torch.full((models, models), games_per_pair, dtype=torch.float64).fill_diagonal_(0.0)
    win_probs = torch.sigmoid(true_ratings[:, None] - true_ratings[None, :]).triu(1)
    crowned, held, fitted = 0.0, 0, 0
    for _ in range(boards):
        wins = torch.binomial(num_games.triu(1), win_probs, generator=rng)
        wins = wins + (num_games.triu(1) - wins).mT
        try:
            ratings = bradley_terry_fit(wins, tolerance=1e-8)
        except ValueError:
            continue  # a model has won or lost all its games: no finite fit exists
        fitted += 1
        leaders = wins.sum(1) == wins.sum(1).max()
        crowned += float(leaders[0]) / int(leaders.sum())
        std_error = math.sqrt(float(equations.leaderboard_variance(num_games, ratings)[0, 1]))
        held += abs(float(ratings[0] - ratings[1] - (true_ratings[0] - true_ratings[1]))) <= REACH * std_error
    return {"crowned": crowned / fitted, "held": held / fitted, "fitted": fitted / boards}


def elo_spread(seed: int, orders: int = 20, models: int = 8, games: int = 1000) -> float:
    """Return the standard deviation, in points, of a model's online Elo rating over orders of the same games, as a
    mean over models."""
    rng = generator("elo", seed)
    true_ratings = -torch.arange(models, dtype=torch.float64) * 35.0 * math.log(10) / 400
    pairs = list(itertools.combinations(range(models), 2))
    results = []
    for pair_index in torch.randint(len(pairs), (games,), generator=rng).tolist():
        a, b = pairs[pair_index]
        results.append((a, b, float(torch.rand((), generator=rng) < torch.sigmoid(true_ratings[a] - true_ratings[b]))))
    order = torch.stack([torch.randperm(games, generator=rng) for _ in range(orders)])  # (orders, games)
    first, second, score = torch.tensor(results, dtype=torch.float64).T
    ratings, row = torch.full((orders, models), 1000.0, dtype=torch.float64), torch.arange(orders)
    for game in order.T:
        a, b = first[game].long(), second[game].long()
        ratings[row, a], ratings[row, b] = elo_update(ratings[row, a], ratings[row, b], score[game], k=16.0)
    return float(ratings.std(0).mean())


def climbing(seed: int, submissions: int, items: int = 1000) -> dict[str, float]:
    """Simulate submissions of coin flips to a public leaderboard. A submission with a public score below one half is
    inverted; the final answers are the majority vote of all submissions."""
    rng = generator("climb", seed, submissions)
    answers = (torch.rand(submissions, 2 * items, generator=rng) < 0.5).double() * 2 - 1
    truth = (torch.rand(2 * items, generator=rng) < 0.5).double() * 2 - 1
    agreement = (answers[:, :items] * truth[:items]).mean(-1)
    final = (agreement.sign()[:, None] * answers).sum(0)
    correct = (final * truth > 0).double() + 0.5 * (final == 0).double()
    best = int(agreement.argmax())
    return {
        "public": float(correct[:items].mean()),
        "private": float(correct[items:].mean()),
        "best_public": float((1 + agreement[best]) / 2),
        "best_private": float((1 + (answers[best, items:] * truth[items:]).mean()) / 2),
    }
