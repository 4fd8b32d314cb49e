"""Chapter 19: what the printed formulas are made of."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from statistics import NormalDist
from typing import Any

import torch
from torch import Tensor

from minirlhf.core import statistics
from minirlhf.equations import estimators, evaluation
from minirlhf.equations.reward_losses import bradley_terry
from minirlhf_course.chapters.ch19_evaluation import equations
from minirlhf_course.ledger.formulas.legends import symbols_of
from minirlhf_course.ledger.registry import Draw

Legend = Mapping[str, Any]

BINOMIAL = {r"\binom{#}{#}": lambda a, b: float(math.comb(int(a), int(b)))}


# -- tries -------------------------------------------------------------------------------------------------------


@symbols_of("eq:pass-at-k")
def _(draw: Draw) -> Legend:
    n, k = draw.integer(7, 9), draw.integer(2, 3)
    c = draw.integer(2, n - k)
    return BINOMIAL | {"n": n, "k": k, "c": c, r"u_k": estimators.pass_at_k(n, c, k=k)}


@symbols_of("eq:pass-hat-k")
def _(draw: Draw) -> Legend:
    n, k = draw.integer(7, 9), draw.integer(2, 3)
    c = draw.integer(k + 1, n - 1)
    return BINOMIAL | {"n": n, "k": k, "c": c, r"v_k": estimators.pass_hat_k(n, c, k=k)}


@symbols_of("eq:maj-at-k")
def _(draw: Draw) -> Legend:
    counts, k = [3, 2, 2], draw.integer(2, 4)
    samples = [answer for answer, count in enumerate(counts) for _ in range(count)]
    leaders = []
    for subset in itertools.combinations(samples, k):
        most = max(subset.count(answer) for answer in subset)
        leaders.append(frozenset(answer for answer in subset if subset.count(answer) == most))
    return BINOMIAL | {
        "S": range(len(leaders)),
        "n": 7,
        "k": k,
        "a": 0,
        "T_S": lambda S: leaders[int(S)],
        "t_S": torch.tensor([float(len(x)) for x in leaders], dtype=torch.float64),
        "m_k": estimators.maj_at_k(torch.tensor(counts), correct=0, k=k),
    }


# -- one share ---------------------------------------------------------------------------------------------------


def share(draw: Draw) -> tuple[Tensor, Tensor, dict[str, Any]]:
    """Successes, trials, and the chapter's symbols for them."""
    n = draw.integer(8, 15)
    counts, trials = torch.tensor([1.0, 3.0, 6.0]).double(), torch.full((3,), float(n), dtype=torch.float64)
    return counts, trials, {"n": n, r"\hat p": counts / n, "z": NormalDist().inv_cdf(0.95)}


@symbols_of("eq:wald-interval")
def _(draw: Draw) -> Legend:
    counts, trials, legend = share(draw)
    ends = torch.cat(evaluation.wald_interval(counts, trials, alpha=0.1))
    return legend | {r"p_{\text{end}}": ends, r"\hat p": legend[r"\hat p"].repeat(2)}


@symbols_of("eq:wilson-interval")
def _(draw: Draw) -> Legend:
    counts, trials, legend = share(draw)
    ends = torch.cat(evaluation.wilson_interval(counts, trials, alpha=0.1))
    return legend | {r"p_{\text{end}}": ends, r"\hat p": legend[r"\hat p"].repeat(2)}


@symbols_of("eq:win-rate-interval")
def _(draw: Draw) -> Legend:
    counts = [(draw.integer(2, 5), draw.integer(3, 6), draw.integer(2, 5)) for _ in range(2)]
    votes = torch.tensor(counts, dtype=torch.float64)
    ends = torch.cat(evaluation.win_rate_interval(*votes.T, alpha=0.1))
    shares = [likeliest(2 * float(end) - 1, *counts[i % 2]) for i, end in enumerate(ends)]
    return {
        r"\mu_{\text{end}}": ends,
        r"\bar x": ((votes[:, 0] + votes[:, 1] / 2) / votes.sum(-1)).repeat(2),
        "w": torch.tensor([w for w, _ in shares], dtype=torch.float64),
        "l": torch.tensor([lost for _, lost in shares], dtype=torch.float64),
        "n": votes.sum(-1).repeat(2),
        "z": NormalDist().inv_cdf(0.95),
    }


def likeliest(apart: float, wins: int, ties: int, losses: int) -> tuple[float, float]:
    """Shares of wins and losses that are so far apart, where the log-likelihood stops rising with both."""
    low, high = max(0.0, -apart), (1 - apart) / 2
    for _ in range(100):
        lost = (low + high) / 2
        rises = wins / (lost + apart) + losses / lost > 2 * ties / (1 - 2 * lost - apart)
        low, high = (lost, high) if rises else (low, lost)
    return low + apart, low


@symbols_of("eq:bootstrap-law")
def _(draw: Draw) -> Legend:
    n, successes = 5, draw.integer(1, 4)
    law = equations.resampling_law(successes, n)
    return BINOMIAL | {"s": range(n + 1), "n": n, r"\hat p": successes / n, "P(s)": law}


@symbols_of("eq:interval-coverage")
def _(draw: Draw) -> Legend:
    n, p = 5, float(draw.uniform(low=0.45, high=0.55))
    low = torch.tensor([0.0, 0.0, 0.1, 0.6, 0.2, 0.8], dtype=torch.float64)
    high = torch.tensor([0.2, 0.3, 0.7, 0.8, 0.9, 0.95], dtype=torch.float64)
    found = equations.coverage(low, high, torch.tensor(p, dtype=torch.float64))
    return BINOMIAL | {"s": range(n + 1), "n": n, "p": p, "l_s": low, "h_s": high, "c(p)": found}


# -- noise of a mean ---------------------------------------------------------------------------------------------


@symbols_of("eq:sign-test")
def _(draw: Draw) -> Legend:
    b, c = draw.integer(5, 7), draw.integer(2, 3)
    return BINOMIAL | {"j": range(c + 1), "b": b, "c": c, "P": statistics.sign_test(b, c)}


@symbols_of("eq:paired-variance")
def _(draw: Draw) -> Legend:
    ours, theirs = draw.normal(2, 5)
    both = torch.stack([ours, theirs]).cov()
    return {
        "i": range(5),
        "n": 5,
        "d_i": ours - theirs,
        r"\bar d": (ours - theirs).mean(),
        "s_A": both[0, 0].sqrt(),
        "s_B": both[1, 1].sqrt(),
        "s_{AB}": both[0, 1],
        "V": equations.paired_variance(ours, theirs),
    }


@symbols_of("eq:clustered-variance")
def _(draw: Draw) -> Legend:
    clusters = torch.tensor([0, 1, 0, 2, 1, 0])
    scores = draw.normal(6)
    members = [frozenset(i for i in range(6) if clusters[i] == c) for c in range(3)]
    return {
        "i": range(6),
        "c": range(3),
        "n": 6,
        "C_c": lambda c: members[int(c)],
        "s_i": scores,
        r"\bar s": scores.mean(),
        r"V_{\text{cluster}}": evaluation.clustered_variance(scores, clusters),
    }


@symbols_of("eq:design-effect")
def _(draw: Draw) -> Legend:
    m, rho = draw.integer(3, 6), draw.uniform(low=0.2, high=0.8)
    return {"m": m, r"\rho": rho, "D": equations.design_effect(torch.tensor(float(m)).double(), rho)}


def sources(draw: Draw) -> dict[str, Any]:
    """Standard deviations of seeds, items and replies, and how many there are of each."""
    tau, omega, sigma = draw.uniform(3, low=0.5, high=1.5).tolist()
    return {r"\tau": tau, r"\omega": omega, r"\sigma": sigma, "S": 5, "K": 3}


@symbols_of("eq:three-sources")
def _(draw: Draw) -> Legend:
    legend = sources(draw)
    squares = [torch.tensor(legend[key] ** 2, dtype=torch.float64) for key in (r"\tau", r"\omega", r"\sigma")]
    return legend | {"n": 7, r"V_\Delta": evaluation.difference_variance(*squares, seeds=5, items=7, replies=3)}


@symbols_of("eq:items-needed")
def _(draw: Draw) -> Legend:
    legend = sources(draw)
    tau, omega, sigma = (legend[key] ** 2 for key in (r"\tau", r"\omega", r"\sigma"))
    effect = float(draw.uniform(low=3.0, high=4.0))
    found = evaluation.items_needed(effect, seed=tau, item=omega, reply=sigma, seeds=5, replies=3, alpha=0.1, power=0.7)
    z = NormalDist().inv_cdf
    return legend | {r"\delta": effect, r"z_{1-\alpha/2}": z(0.95), r"z_{\text{power}}": z(0.7), "n": found}


# -- leaderboards ------------------------------------------------------------------------------------------------


def board(draw: Draw) -> tuple[Tensor, Tensor, dict[str, Any]]:
    """Games and rewards of three models."""
    games = draw.uniform(3, 3, low=1.0, high=9.0).triu(1)
    games, r = games + games.mT, draw.normal(3)
    p = bradley_terry(r[:, None].expand(3, 3), r[None, :].expand(3, 3))
    return (
        games,
        r,
        {"a": range(3), "b": range(3), "c": range(3), "n_{ab}": games, "p_{ab}": p, "n_{ac}": games, "p_{ac}": p},
    )


@symbols_of(
    "eq:leaderboard-information",
    harmless={"n _ { b c }": "it stands in the case a = b", "p _ { b c }": "it stands in the case a = b"},
)
def _(draw: Draw) -> Legend:
    games, r, legend = board(draw)
    words = {r"\text{if }": None, r"\text{otherwise.}": None}
    return legend | words | {"I_{ab}": equations.leaderboard_information(games, r)}


@symbols_of("eq:leaderboard-variance")
def _(draw: Draw) -> Legend:
    games, r, legend = board(draw)
    inverse = torch.linalg.pinv(equations.leaderboard_information(games, r))
    own = {"I^+_{aa}": inverse.diagonal(), "I^+_{bb}": inverse.diagonal(), "I^+_{ab}": inverse}
    return {key: legend[key] for key in ("a", "b")} | own | {r"v_{ab}": equations.leaderboard_variance(games, r)}


# -- what is said about one's own answer -------------------------------------------------------------------------


@symbols_of("eq:brier-score")
def _(draw: Draw) -> Legend:
    said, happened = draw.uniform(2, 5)
    return {"i": range(5), "N": 5, "p_i": said, "o_i": happened, "B": equations.brier_score(said, happened)}


@symbols_of("eq:brier-parts")
def _(draw: Draw) -> Legend:
    levels = torch.tensor([0.2, 0.5, 0.8], dtype=torch.float64) + draw.uniform(3, low=0.0, high=0.1)
    said, happened = levels[[0, 1, 0, 2, 2, 2, 0, 2]], torch.tensor([0, 1, 1, 1, 0, 1, 0, 1]).double()
    parts = equations.brier_parts(said, happened)
    return {
        "v": range(3),
        "N": 8,
        "n_v": torch.tensor([3.0, 1.0, 4.0]),
        "q_v": levels,
        r"\bar o_v": torch.tensor([1 / 3, 1.0, 3 / 4], dtype=torch.float64),
        r"\bar o": 5 / 8,
        "B": parts[0] - parts[1] + parts[2],
    }


@symbols_of("eq:answering-gain")
def _(draw: Draw) -> Legend:
    p = draw.uniform(4, low=0.1, high=0.9)
    return {"p": p, r"\lambda": 1.7, "g(p)": equations.answering_gain(p, penalty=1.7)}


@symbols_of("eq:abstention-threshold")
def _(draw: Draw) -> Legend:
    penalty = float(draw.uniform(low=0.5, high=4.0))
    none, sure = equations.answering_gain(torch.tensor([0.0, 1.0]).double(), penalty=penalty)
    return {r"\lambda": penalty, "p^*": none / (none - sure)}


# -- given answers -----------------------------------------------------------------------------------------------


@symbols_of("eq:normalised-score")
def _(draw: Draw) -> Legend:
    probs, lengths = draw.distribution(4), torch.tensor([2.0, 3.0, 5.0, 4.0], dtype=torch.float64)
    found = evaluation.normalised_scores(probs.log(), lengths, exponent=0.7)
    return {r"\pi(a\mid x)": probs, r"\ell_a": lengths, r"\kappa": 0.7, r"s_\kappa(a)": found}


@symbols_of("eq:pointwise-information")
def _(draw: Draw) -> Legend:
    probs, prior = draw.distribution(2, 4)
    found = evaluation.pointwise_information(probs.log(), prior.log())
    return {r"\pi(a\mid x)": probs, r"\pi(a\mid x_0)": prior, r"s_{\text{PMI}}(a)": found}


# -- leaks -------------------------------------------------------------------------------------------------------


@symbols_of("eq:ngram-overlap")
def _(draw: Draw) -> Legend:
    item = [draw.integer(0, 1) for _ in range(9)]
    seen, number = {(0, 1), (1, 1)}, lambda run: 2 * run[0] + run[1]  # for the ink a run is a number
    runs = torch.tensor([float(number(run)) for run in evaluation.ngrams(item, n=2)], dtype=torch.float64)
    return {
        "j": range(1, 9),
        "M": 8,
        "g_j": runs,
        "G": frozenset(map(number, seen)),
        r"\omega(x)": evaluation.ngram_overlap(item, seen, n=2),
    }


@symbols_of("eq:selected-score")
def _(draw: Draw) -> Legend:
    n, tries, p = 5, 3, float(draw.uniform(low=0.3, high=0.7))
    law = torch.tensor([math.comb(n, s) * p**s * (1 - p) ** (n - s) for s in range(n + 1)], dtype=torch.float64)
    found = equations.selected_score(torch.tensor(p, dtype=torch.float64), items=n, tries=tries)
    upto = law.cumsum(-1)
    return {"s": range(1, n + 1), "n": n, "K": tries, "F(#)": lambda x: upto[int(x)], "A_K": found}
