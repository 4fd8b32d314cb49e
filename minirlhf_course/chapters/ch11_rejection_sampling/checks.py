"""The ledger of chapter 11: rejection sampling and best-of-n."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Iterator

import torch
from torch import Tensor

from minirlhf.core import exact
from minirlhf.equations import estimators, selection
from minirlhf_course.chapters.ch11_rejection_sampling import equations
from minirlhf_course.ledger.registry import Comparison, Draw, chain, check

chain(
    "best-of-n",
    "The law of best-of-n and its KL",
    [
        "eq:best-of-n-cdf",
        "eq:best-of-n-law",
        "eq:best-of-n-density",
        "eq:best-of-n-kl",
        "eq:best-of-n-kl-bound",
    ],
    module=__name__,
)


def _tuples(probs: Tensor, n: int) -> Iterator[tuple[tuple[int, ...], Tensor]]:
    """Every way to draw n responses independently, with its probability."""
    for drawn in itertools.product(range(len(probs)), repeat=n):
        yield drawn, probs[list(drawn)].prod()


def _law_by_enumeration(probs: Tensor, rewards: Tensor, n: int) -> Tensor:
    """The distribution of the best of n draws; of several best ones the first."""
    law = torch.zeros_like(probs)
    for drawn, chance in _tuples(probs, n):
        law[max(drawn, key=lambda y: float(rewards[y]))] += chance
    return law


def cumulative(probs: Tensor, rewards: Tensor) -> tuple[Tensor, Tensor]:
    """F(r_y) and F(r_y−) of every response."""
    upto = torch.stack([probs[rewards <= r].sum() for r in rewards]).clamp(max=1.0)
    return upto, torch.stack([probs[rewards < r].sum() for r in rewards])


@check(
    "eq:best-of-n-cdf",
    "value",
    "The maximum of n rewards is at most x if all of them are.",
    of=estimators.best_of_n_cdf,
    against="all ways to draw n responses, summed",
    wrong={
        "smallest instead of largest": lambda cdf, *, n: 1 - (1 - cdf) ** n,
        "one draw too few": lambda cdf, *, n: cdf ** (n - 1),
        "n times": lambda cdf, *, n: (n * cdf).clamp(max=1.0),
    },
)
def _(best_of_n_cdf, draw: Draw) -> Comparison:
    probs, rewards, n = draw.distribution(4), draw.normal(4), draw.integer(2, 3)
    upto, _ = cumulative(probs, rewards)
    expected = torch.zeros(4, dtype=torch.float64)
    for drawn, chance in _tuples(probs, n):
        expected += chance * (max(rewards[list(drawn)]) <= rewards)
    return best_of_n_cdf(upto, n=n), expected


def _one_hot_of_best(probs: Tensor, rewards: Tensor, *, n: int) -> Tensor:
    return torch.nn.functional.one_hot(rewards.argmax(-1), rewards.shape[-1]).to(probs.dtype)


@check(
    "eq:best-of-n-law",
    "step",
    "The probability of an answer is the increase of the distribution function of the maximum at its reward.",
    of=estimators.best_of_n_distribution,
    against="the jumps of F^n at each reward, for distinct rewards",
    follows="eq:best-of-n-cdf",
    wrong={
        "tempered policy, π^n": lambda probs, rewards, *, n: (probs**n) / (probs**n).sum(-1, keepdim=True),
        "n F^(n−1) π, as if no answer had mass": lambda probs, rewards, *, n: (
            n * cumulative(probs, rewards)[0] ** (n - 1) * probs
        ),
        "always the best answer": _one_hot_of_best,
    },
)
def _(distribution, draw: Draw) -> Iterator[Comparison]:
    for size in (4, 5):
        probs, rewards, n = draw.distribution(size), draw.permutation(size).double(), draw.integer(2, 6)
        upto, below = cumulative(probs, rewards)
        jumps = estimators.best_of_n_cdf(upto, n=n) - estimators.best_of_n_cdf(below, n=n)
        yield distribution(probs, rewards, n=n), jumps


@check(
    "eq:best-of-n-law",
    "value",
    "Answers with equal rewards share the probability of this reward in proportion to π.",
    of=estimators.best_of_n_distribution,
    against="all ways to draw n responses, two of them tied; the first of the best is taken",
    wrong={
        "ties resolved by index among the candidates": lambda probs, rewards, *, n: estimators.best_of_n_distribution(
            probs, rewards - 1e-6 * torch.arange(rewards.shape[-1]), n=n
        ),
        "tied answers counted twice": lambda probs, rewards, *, n: (
            cumulative(probs, rewards)[0] ** n - cumulative(probs, rewards)[1] ** n
        ),
        "always the best answer": _one_hot_of_best,
    },
)
def _(distribution, draw: Draw) -> Iterator[Comparison]:
    probs, n = draw.distribution(4), draw.integer(2, 3)
    rewards = torch.tensor([0.0, 1.0, 1.0, 2.0], dtype=torch.float64)[draw.permutation(4)]
    yield distribution(probs, rewards, n=n), _law_by_enumeration(probs, rewards, n)
    # An answer of hardly any mass, and one of none, get n F^(n−1) times what they had.
    rare = torch.tensor([1e-30, 0.0, 0.0], dtype=torch.float64)
    law = distribution(torch.cat([probs, rare]), torch.cat([rewards, rewards.new_tensor([0.5, 1.5, 3.0])]), n=n)
    yield law[4] / rare[0], n * probs[rewards < 0.5].sum() ** (n - 1)
    yield law[:4], _law_by_enumeration(probs, rewards, n)
    yield law[5:], torch.zeros(2)


@check(
    "eq:best-of-n-density",
    "step",
    "Over the quantiles that it covers, F(r−) to F(r), every answer has the density n u^(n−1).",
    of=estimators.best_of_n_density_ratio,
    against="the exact law, each answer's mass as the integral of the density over its quantiles",
    follows="eq:best-of-n-law",
    wrong={
        "n u^n": lambda quantile, *, n: n * quantile**n,
        "u^(n−1), not normalised": lambda quantile, *, n: quantile ** (n - 1),
        "smallest instead of largest": lambda quantile, *, n: n * (1 - quantile) ** (n - 1),
    },
)
def _(density_ratio, draw: Draw) -> Comparison:
    probs, n = draw.distribution(4), draw.integer(2, 6)
    rewards = draw.permutation(4).double()
    upto, below = cumulative(probs, rewards)
    masses = [
        exact.integrate(lambda u: density_ratio(u, n=n), low, high, nodes=8)
        for low, high in zip(below.tolist(), upto.tolist(), strict=True)
    ]
    return torch.stack(masses), estimators.best_of_n_distribution(probs, rewards, n=n)


@check(
    "eq:best-of-n-kl",
    "step",
    "The KL of the density n u^(n−1) to the uniform one.",
    of=estimators.best_of_n_kl,
    against="∫ ρ log ρ over the quantiles, ρ = n u^(n−1), by quadrature in s = −log u",
    follows="eq:best-of-n-density",
    wrong={
        "log n": lambda n: math.log(n),
        "log n − 1": lambda n: math.log(n) - 1,
        "KL of the policy to best-of-n": lambda n: -math.log(n) + (n - 1),
    },
)
def _(best_of_n_kl, draw: Draw) -> Comparison:
    n = draw.integer(2, 50)

    def integrand(s: Tensor) -> Tensor:  # du = e^(−s) ds
        ratio = estimators.best_of_n_density_ratio((-s).exp(), n=n)
        return ratio * ratio.log() * (-s).exp()

    return best_of_n_kl(n), exact.integrate(integrand, 0.0, 40.0 / n, nodes=50)


@check(
    "eq:best-of-n-kl-bound",
    "step",
    "The formula exceeds the exact KL by a weighted sum of nonnegative KLs within the answers.",
    of=estimators.best_of_n_kl,
    against="the exact KL plus the KL within each answer, by quadrature",
    follows="eq:best-of-n-kl",
    wrong={"log n": lambda n: math.log(n), "log n − 1": lambda n: math.log(n) - 1},
)
def _(best_of_n_kl, draw: Draw) -> Iterator[Comparison]:
    probs, n = draw.distribution(4), draw.integer(2, 8)
    rewards = draw.permutation(4).double()
    law = estimators.best_of_n_distribution(probs, rewards, n=n)
    upto, below = cumulative(probs, rewards)
    lost = []
    for mass, low, high in zip(law, below.tolist(), upto.tolist(), strict=True):

        def inside(s: Tensor, mass: Tensor = mass, width: float = high - low) -> Tensor:
            # Relative to uniform quantiles within the answer, the best draw has density ρ = n u^(n−1) width / mass.
            ratio = n * (-s).exp() ** (n - 1) * width / mass
            return ratio * ratio.log() * (-s).exp() / width

        # The lowest answer reaches down to quantile 0, where u = e^(−s) needs s → ∞; e^(−40) is as good.
        end = -math.log(low) if low > 0 else 40.0 / n
        lost.append(mass * exact.integrate(inside, -math.log(high), end, nodes=50))
    inner = torch.stack(lost)
    yield best_of_n_kl(n), exact.divergence(law, probs) + inner.sum()
    yield inner.clamp(max=0.0), torch.zeros(4)


@check(
    "eq:best-of-n-kl-bound",
    "value",
    "For no set of answers is the KL of best-of-n larger than the formula.",
    of=estimators.best_of_n_kl,
    against="the exact KL of binary answers, from a coin with p = ½ (n = 4: .459356) to a fine grid",
    wrong={"log n − 1, its limit's constant taken too early": lambda n: math.log(n) - 1},
)
def _(best_of_n_kl, draw: Draw) -> Iterator[Comparison]:
    n = draw.integer(3, 8)
    for size in (2, 16, 256):
        probs = torch.full((size,), 1 / size, dtype=torch.float64)
        law = estimators.best_of_n_distribution(probs, draw.permutation(size).double(), n=n)
        yield (exact.divergence(law, probs) - best_of_n_kl(n)).clamp(min=0.0), 0.0


@check(
    "eq:best-of-n-win-rate",
    "value",
    "Each of n + 1 draws is the best with equal probability, and one of them is the opponent's.",
    of=equations.best_of_n_win_rate,
    against="∫ u · n u^(n−1) du, and all ways to draw one answer against n on a fine grid",
    tolerance=1e-9,
    wrong={
        "1 − 2^(−n)": lambda n: 1 - 0.5**n,
        "(n−1)/n": lambda n: (n - 1) / n,
        "n draws from the other side too": lambda n: 0.5,
    },
)
def _(win_rate, draw: Draw) -> Iterator[Comparison]:
    n = draw.integer(2, 8)
    yield win_rate(n), exact.integrate(lambda u: u * n * u ** (n - 1), 0.0, 1.0, nodes=10)
    orders = itertools.permutations(range(4))
    yield win_rate(3), sum(order[0] != 3 for order in orders) / 24


@check(
    "eq:best-of-n-estimator",
    "value",
    "Entry n is the mean over all subsets of size n of the value of their best-scored member.",
    of=estimators.best_of_n_curve,
    against="all subsets of the samples, ties shared evenly",
    wrong={
        "prefix maxima: the best of the first n": lambda scores, values: values[
            torch.stack([scores[: n + 1].argmax() for n in range(len(scores))])
        ],
        "with replacement": lambda scores, values: torch.stack(
            [
                (
                    estimators.best_of_n_distribution(torch.full_like(scores, 1 / len(scores)), scores, n=n + 1)
                    * values
                ).sum()
                for n in range(len(scores))
            ]
        ),
        "best value instead of best score": lambda scores, values: estimators.best_of_n_curve(values),
    },
)
def _(best_of_n_curve, draw: Draw) -> Iterator[Comparison]:
    scores = torch.tensor([0.0, 1.0, 1.0, 2.0, 2.0, 3.0], dtype=torch.float64)[draw.permutation(6)]
    values = draw.normal(6)
    means = []
    for n in range(1, 7):
        best = []
        for subset in itertools.combinations(range(6), n):
            index = torch.tensor(subset)
            best.append(values[index[scores[index] == scores[index].max()]].mean())
        means.append(torch.stack(best).mean())
    yield best_of_n_curve(scores, values), torch.stack(means)


@check(
    "eq:best-of-n-estimator",
    "unbiased",
    "On average over the N samples every entry is the expected value of best-of-n.",
    of=estimators.best_of_n_curve,
    against="value under the exact law, over all ways to draw the samples",
    wrong={
        "with replacement": lambda scores, values: torch.stack(
            [
                (
                    estimators.best_of_n_distribution(torch.full_like(scores, 1 / scores.shape[-1]), scores, n=n + 1)
                    * values
                ).sum(-1)
                for n in range(scores.shape[-1])
            ],
            -1,
        ),
        "best value instead of best score": lambda scores, values: estimators.best_of_n_curve(values),
    },
)
def _(best_of_n_curve, draw: Draw) -> Comparison:
    probs, size = draw.distribution(3), 4
    scores = draw.permutation(3).double()
    values = torch.tensor([0.0, 2.0, 1.0])[scores.long()] + draw.uniform(
        3, high=0.5
    )  # the best score is not worth most
    drawn = torch.tensor(list(itertools.product(range(3), repeat=size)))  # (81, 4)
    chance = probs[drawn].prod(-1)
    expected = [
        exact.expectation(estimators.best_of_n_distribution(probs, scores, n=n), values) for n in range(1, size + 1)
    ]
    return chance @ best_of_n_curve(scores[drawn], values[drawn]), torch.stack(expected)


# -- selection, rounds, imitation ----------------------------------------------------------------------------------


def _ranked(rewards: Tensor) -> list[int]:
    """Places of a flat reward matrix, best first, by exchanging neighbours until none is out of order."""
    places = list(range(rewards.numel()))
    flat = rewards.flatten().tolist()
    for _ in places:
        for i in range(len(places) - 1):
            if flat[places[i]] < flat[places[i + 1]]:
                places[i], places[i + 1] = places[i + 1], places[i]
    return places


_TABLE = torch.tensor(
    [[0.7, 0.3, 0.5, 0.2], [0.4, 0.8, 0.6, 0.5], [0.9, 0.3, 0.4, 0.7], [0.2, 0.5, 0.8, 0.6], [0.5, 0.4, 0.3, 0.6]],
    dtype=torch.float64,
)


def _matrices(draw: Draw) -> Iterator[Tensor]:
    """The chapter's own 5 × 4 matrix, and one with many ties."""
    yield _TABLE
    yield draw.permutation(15).reshape(3, 5).double() // 3


@check(
    "eq:top-per-prompt",
    "value",
    "In every row the first of the best replies; [1, 2, 1, 3, 4] in the book's example, counted from 1.",
    of=selection.select_top_per_prompt,
    against="each row searched from left to right",
    wrong={
        "over the prompts": lambda rewards: rewards[:, :3].argmax(0).repeat(2)[: len(rewards)],
        "the worst reply": lambda rewards: rewards.argmin(-1),
        "counted from 1": lambda rewards: rewards.argmax(-1) + 1,
    },
)
def _(select_top_per_prompt, draw: Draw) -> Iterator[Comparison]:
    for rewards in _matrices(draw):
        expected = []
        for row in rewards.tolist():
            best = 0
            for j, reward in enumerate(row):
                best = j if reward > row[best] else best
            expected.append(best)
        yield select_top_per_prompt(rewards), torch.tensor(expected)
    yield select_top_per_prompt(_TABLE) + 1, torch.tensor([1, 2, 1, 3, 4])


@check(
    "eq:top-overall",
    "value",
    "The k best replies in order, ties by position; [8, 5, 14, 0, 11] in the book's example.",
    of=selection.top_overall,
    against="exchange of neighbours until none is out of order",
    wrong={
        "the last of an ascending order, as printed with argsort": lambda rewards, *, k: rewards.flatten().argsort(
            stable=True
        )[-k:],
        "of equal ones the last": lambda rewards, *, k: (
            rewards.numel() - 1 - rewards.flatten().flip(0).argsort(descending=True, stable=True)[:k]
        ),
        "the best of each prompt": lambda rewards, *, k: (
            rewards.argmax(-1) + torch.arange(len(rewards)) * rewards.shape[1]
        ).repeat(k)[:k],
    },
)
def _(top_overall, draw: Draw) -> Iterator[Comparison]:
    for rewards in _matrices(draw):
        k = draw.integer(4, 9)
        yield top_overall(rewards, k=k), torch.tensor(_ranked(rewards)[:k])
    yield top_overall(_TABLE, k=5), torch.tensor([8, 5, 14, 0, 11])


@check(
    "eq:top-k-density",
    "value",
    "The integral of the density over a band of quantiles is the expected fraction of the kept replies, the k "
    "best of n, that lie in it.",
    of=equations.top_k_density_ratio,
    against="all ways to draw n of five equally likely bands of quantiles, those that meet in a band ranked in all orders, by quadrature",
    wrong={
        "the best one alone": lambda quantile, *, n, k: n * quantile ** (n - 1),
        "cut off at the share that is kept, as with infinitely many": lambda quantile, *, n, k: (
            n / k * (quantile > 1 - k / n).to(quantile.dtype)
        ),
        "not divided by k": lambda quantile, *, n, k: k * equations.top_k_density_ratio(quantile, n=n, k=k),
        "the k worst": lambda quantile, *, n, k: equations.top_k_density_ratio(1 - quantile, n=n, k=k),
    },
)
def _(top_k_density_ratio, draw: Draw) -> Iterator[Comparison]:
    bands, n = 5, draw.integer(3, 4)
    for k in (draw.integer(2, n - 1), 1, n):
        share = torch.zeros(bands, dtype=torch.float64)
        for drawn in itertools.product(range(bands), repeat=n):
            for place in sorted(drawn, reverse=True)[:k]:
                share[place] += 1 / (k * bands**n)
        edges = [i / bands for i in range(bands + 1)]
        masses = [
            exact.integrate(functools.partial(top_k_density_ratio, n=n, k=k), low, high, nodes=8)
            for low, high in itertools.pairwise(edges)
        ]
        yield torch.stack(masses), share
    u = draw.uniform(3, low=0.1, high=0.9)
    yield top_k_density_ratio(u, n=n, k=1), estimators.best_of_n_density_ratio(u, n=n)
    yield top_k_density_ratio(u, n=n, k=n), torch.ones(3)


@check(
    "eq:best-of-several",
    "value",
    "The maximum over all draws is at most x if those of every model are.",
    of=selection.best_of_several_cdf,
    against="all ways to draw from both models, summed",
    wrong={
        "the mean of the models, drawn as often": lambda cdfs, *, counts: cdfs.mean(0) ** sum(counts),
        "counts exchanged": lambda cdfs, *, counts: selection.best_of_several_cdf(cdfs, counts=counts[::-1]),
    },
)
def _(best_of_several_cdf, draw: Draw) -> Iterator[Comparison]:
    models, rewards = draw.distribution(2, 4), draw.normal(4)
    cdfs = torch.stack([cumulative(probs, rewards)[0] for probs in models])
    for counts in ((1, 2), (1, 3)):
        expected = torch.zeros(4, dtype=torch.float64)
        for first, chance in _tuples(models[0], counts[0]):
            for second, other in _tuples(models[1], counts[1]):
                expected += chance * other * (max(rewards[[*first, *second]]) <= rewards)
        yield best_of_several_cdf(cdfs, counts=counts), expected


@check(
    "eq:best-of-n-rounds",
    "value",
    "The best of m draws from best-of-n is best-of-nm, with or without ties.",
    of=estimators.best_of_n_distribution,
    against="best of n·m draws from the first model, all ways to draw them summed",
    wrong={
        "best of n + m": lambda probs, rewards, *, n: estimators.best_of_n_distribution(probs, rewards, n=n + 1),
        "tempered policy, π^n": lambda probs, rewards, *, n: (probs**n) / (probs**n).sum(-1, keepdim=True),
    },
)
def _(distribution, draw: Draw) -> Comparison:
    probs, n, m = draw.distribution(4), 2, draw.integer(2, 3)
    rewards = torch.tensor([0.0, 1.0, 1.0, 2.0], dtype=torch.float64)[draw.permutation(4)]
    return distribution(distribution(probs, rewards, n=n), rewards, n=m), _law_by_enumeration(probs, rewards, n * m)


def _selected(draw: Draw) -> tuple[Tensor, Tensor, Tensor, int]:
    """Logits of an imitating model, π, rewards with a tie, n."""
    rewards = torch.tensor([0.0, 1.0, 1.0, 2.0], dtype=torch.float64)[draw.permutation(4)]
    return draw.normal(4), draw.distribution(4), rewards, draw.integer(2, 3)


@check(
    "eq:rejection-loss",
    "value",
    "The expected negative log-likelihood of the best of n.",
    of=equations.rejection_loss,
    against="−log π_θ of the first best one, averaged over all ways to draw n replies",
    wrong={
        "all n replies imitated": lambda logps, probs, rewards, *, n: -(probs * logps).sum(),
        "the best reply of all": lambda logps, probs, rewards, *, n: -logps[rewards.argmax()],
        "weights n u^(n−1) without regard to mass": lambda logps, probs, rewards, *, n: (
            -(probs * estimators.best_of_n_density_ratio(cumulative(probs, rewards)[0], n=n) * logps).sum()
        ),
    },
)
def _(rejection_loss, draw: Draw) -> Comparison:
    logits, probs, rewards, n = _selected(draw)
    logps, expected = logits.log_softmax(-1), torch.zeros((), dtype=torch.float64)
    for drawn, chance in _tuples(probs, n):
        expected -= chance * logps[max(drawn, key=lambda y: float(rewards[y]))]
    return rejection_loss(logps, probs, rewards, n=n), expected


@check(
    "eq:rejection-loss",
    "minimum",
    "The loss minus the entropy of best-of-n is a KL: 0 if the model is best-of-n, and positive otherwise.",
    of=equations.rejection_loss,
    against="the entropy of best-of-n plus its KL to the imitating model, by enumeration",
    wrong={
        "all n replies imitated": lambda logps, probs, rewards, *, n: -(probs * logps).sum(),
        "mean over the kept replies of the reward instead": lambda logps, probs, rewards, *, n: (
            -(estimators.best_of_n_distribution(probs, rewards, n=n) * rewards * logps).sum()
        ),
    },
)
def _(rejection_loss, draw: Draw) -> Iterator[Comparison]:
    logits, probs, rewards, n = _selected(draw)
    logps, law = logits.log_softmax(-1), _law_by_enumeration(probs, rewards, n)
    yield rejection_loss(logps, probs, rewards, n=n), exact.entropy(law) + exact.divergence(law, logps.exp())
    yield rejection_loss(law.log(), probs, rewards, n=n), exact.entropy(law)


@check(
    "eq:rejection-gradient",
    "gradient",
    "At the sampling policy, imitating the best of n is a policy gradient whose advantage depends on the rank only.",
    of=equations.rejection_loss,
    against="the policy gradient Σ π (π_n/π − 1) ∇log π, summed over the replies",
    wrong={
        "all n replies imitated": lambda logps, probs, rewards, *, n: -(probs * logps).sum(),
        "the reward as advantage": lambda logps, probs, rewards, *, n: -(probs * rewards * logps).sum(),
    },
)
def _(rejection_loss, draw: Draw) -> Comparison:
    logits, _, rewards, n = _selected(draw)
    logits.requires_grad_()
    probs = logits.detach().softmax(-1)
    (got,) = torch.autograd.grad(rejection_loss(logits.log_softmax(-1), probs, rewards, n=n), logits)
    advantage = _law_by_enumeration(probs, rewards, n) / probs - 1
    score = torch.eye(4, dtype=torch.float64) - probs  # row y: ∇ log π(y)
    return got, -(probs * advantage) @ score
