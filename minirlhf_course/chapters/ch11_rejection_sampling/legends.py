"""Chapter 11: what the printed formulas are made of."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from minirlhf.core import exact
from minirlhf.equations import estimators, selection
from minirlhf_course.chapters.ch11_rejection_sampling import equations
from minirlhf_course.chapters.ch11_rejection_sampling.checks import cumulative
from minirlhf_course.ledger.formulas.legends import not_evaluated, symbols_of
from minirlhf_course.ledger.registry import Draw

Legend = Mapping[str, Any]


not_evaluated("eq:top-per-prompt", "be43db34e459", "an arg max is a place, not a number; its check searches each row")
not_evaluated(
    "eq:top-overall", "bd9124acca05", "an order of places; its check exchanges neighbours until none is out of order"
)


def replies(draw: Draw) -> tuple[Tensor, Tensor, int]:
    """π over four replies of which two tie, their rewards, n."""
    rewards = torch.tensor([0.0, 1.0, 1.0, 2.0], dtype=torch.float64)[draw.permutation(4)]
    return draw.distribution(4), rewards, draw.integer(2, 5)


@symbols_of("eq:best-of-n-cdf")
def _(draw: Draw) -> Legend:
    cdf, n = draw.uniform(low=0.2, high=0.9), draw.integer(2, 5)
    return {"F(x)": cdf, "n": n, r"P(\max_{i\le n}r(y_i)\le x)": estimators.best_of_n_cdf(cdf, n=n)}


@symbols_of("eq:best-of-n-law")
def _(draw: Draw) -> Legend:
    probs, rewards, n = replies(draw)
    upto, below = cumulative(probs, rewards)
    law = estimators.best_of_n_distribution(probs, rewards, n=n)
    return {"y": range(4), "n": n, r"\pi(y)": probs, r"\pi_n(y)": law, "F(r_y)": upto, "F(r_y^-)": below}


@symbols_of("eq:best-of-n-density")
def _(draw: Draw) -> Legend:
    u, n, prob = draw.uniform(low=0.2, high=0.9), draw.integer(3, 6), float(draw.uniform(low=0.01, high=0.1))
    return {"u": u, "n": n, r"\pi(y)": prob, r"\pi_n(y)": prob * estimators.best_of_n_density_ratio(u, n=n)}


@symbols_of("eq:best-of-n-kl")
def _(draw: Draw) -> Legend:
    n = draw.integer(2, 8)

    def integrand(s: Tensor) -> Tensor:  # u = e^(−s)
        ratio = n * (-s).exp() ** (n - 1)
        return ratio * ratio.log() * (-s).exp()

    by_quadrature = exact.integrate(integrand, 0.0, 40.0 / n, nodes=50)
    return {
        "n": n,
        r"\KL(\pi_n\|\pi)": estimators.best_of_n_kl(n),
        r"\int_0^1nu^{n-1}\log(nu^{n-1})du": by_quadrature,
    }


@symbols_of(
    "eq:best-of-n-kl-bound",
    harmless=dict.fromkeys((r"\log n +", r"\le n -", "n - 2"), "a larger number is a bound as well"),
)
def _(draw: Draw) -> Legend:
    probs, rewards, n = replies(draw)
    law = estimators.best_of_n_distribution(probs, rewards, n=n)
    return {"n": n, r"\KL(\pi_n\|\pi)": exact.divergence(law, probs)}


@symbols_of("eq:best-of-n-win-rate")
def _(draw: Draw) -> Legend:
    n = draw.integer(2, 9)
    return {"n": n, r"P(\text{best of }n\text{ wins})": equations.best_of_n_win_rate(n)}


@symbols_of("eq:best-of-several")
def _(draw: Draw) -> Legend:
    cdfs, counts = draw.uniform(3, low=0.2, high=0.9), (1, 2, 4)
    found = selection.best_of_several_cdf(cdfs[:, None], counts=counts)[0]
    return {"s": range(3), "F_s(x)": cdfs, "n_s": torch.tensor(counts).double(), r"P(\text{best}\le x)": found}


@symbols_of("eq:top-k-density")
def _(draw: Draw) -> Legend:
    u, n, prob = draw.uniform(low=0.3, high=0.8), draw.integer(5, 7), float(draw.uniform(low=0.01, high=0.1))
    k = draw.integer(2, 3)
    return {
        "u": u,
        "i": range(1, n + 1),
        "N": n,
        "K": k,
        r"\binom{#}{#}": lambda a, b: float(math.comb(int(a), int(b))),
        r"\pi(y)": prob,
        r"\pi_{K:N}(y)": prob * equations.top_k_density_ratio(u, n=n, k=k),
    }


@symbols_of("eq:best-of-n-estimator")
def _(draw: Draw) -> Legend:
    scores, values, n = draw.permutation(6).double(), draw.normal(6), draw.integer(2, 4)
    ranked = values[scores.argsort()]
    return {
        "i": range(1, 7),
        "N": 6,
        "n": n,
        "v_{(i)}": lambda i: ranked[int(i) - 1],
        r"\binom{#}{#}": lambda a, b: float(math.comb(int(a), int(b))),
        r"\widehat{V}_n": estimators.best_of_n_curve(scores, values)[n - 1],
    }


@symbols_of("eq:rejection-loss")
def _(draw: Draw) -> Legend:
    probs, rewards, n = replies(draw)
    logps, law = draw.normal(4).log_softmax(-1), estimators.best_of_n_distribution(probs, rewards, n=n)
    return {
        "y": range(4),
        r"\pi_n(y)": law,
        r"\pi_\theta(y)": logps.exp(),
        r"L(\theta)": equations.rejection_loss(logps, probs, rewards, n=n),
        r"H(\pi_n)": exact.entropy(law),
        r"\KL(\pi_n\|\pi_\theta)": exact.divergence(law, logps.exp()),
    }


@symbols_of("eq:best-of-n-rounds")
def _(draw: Draw) -> Legend:
    probs, rewards, n = replies(draw)
    m = draw.integer(2, 4)
    once = estimators.best_of_n_distribution(probs, rewards, n=n)
    twice = estimators.best_of_n_distribution(once, rewards, n=m)
    return {
        "n": n,
        "m": m,
        r"(\pi_n)_m": twice,
        r"\pi_{#}": lambda k: estimators.best_of_n_distribution(probs, rewards, n=int(k)),
    }


@symbols_of(
    "eq:rejection-gradient",
    harmless=dict.fromkeys((") } + 1", ") } ) \\nabla", ") } - 2"), "any constant may be subtracted from the weights"),
)
def _(draw: Draw) -> Legend:
    _, rewards, n = replies(draw)
    leaf = draw.normal(4).requires_grad_()
    probs = leaf.detach().softmax(-1)
    return {
        "y": range(4),
        r"\theta": leaf,
        r"\pi_\theta(y)": leaf.softmax(-1),
        r"\pi(y)": probs,
        r"\pi_n(y)": estimators.best_of_n_distribution(probs, rewards, n=n),
        r"\E_{\pi}": ("y", probs),
        "L": equations.rejection_loss(leaf.log_softmax(-1), probs, rewards, n=n),
    }
