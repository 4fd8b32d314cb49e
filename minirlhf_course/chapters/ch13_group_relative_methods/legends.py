"""Chapter 13: what the printed formulas are made of."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from math import comb
from typing import Any

import torch
from torch import Tensor

from minirlhf.equations import advantages, aggregation, difficulty, off_policy, shaping
from minirlhf.equations import policy_losses as losses
from minirlhf_course.chapters.ch13_group_relative_methods import equations
from minirlhf_course.ledger.formulas.legends import not_evaluated, symbols_of
from minirlhf_course.ledger.inputs.printed import Groups, clipped_tokens, groups
from minirlhf_course.ledger.registry import Draw

Legend = Mapping[str, Any]


# -- a completion against its group -----------------------------------------------------------------------------------


@symbols_of("eq:rloo-sum-form")
def _(draw: Draw) -> Legend:
    return groups(draw).legend


@symbols_of("eq:rloo-scaled-center")
def _(draw: Draw) -> Legend:
    return groups(draw).legend


@symbols_of("eq:drgrpo-advantage")
def _(draw: Draw) -> Legend:
    g = groups(draw)
    return g.legend | {"A_i": advantages.group_center(g.rewards).T}


@symbols_of("eq:grpo-advantage")
def _(draw: Draw) -> Legend:
    r = draw.normal(2, 5)
    legend = {"i": range(5), "j": range(5), "G": 5, "d": 1, r"\varepsilon": 0.1, "r_i": r.T, r"\bar r": r.mean(-1)}
    return legend | {r"\sigma": r.std(-1), "A_i": advantages.group_zscore(r, eps=0.1).T}


# -- what a pass rate does ---------------------------------------------------------------------------------------


def graded(draw: Draw) -> tuple[Groups, dict[str, Any]]:
    """Groups of three completions with rewards 0 and 1, and the chapter's symbols for their pass rates."""
    g = groups(draw, binary=True)
    p = g.legend["J"]
    chances = torch.stack([comb(2, k) * p**k * (1 - p) ** (2 - k) for k in range(3)]).detach()
    legend = g.legend | {"k": range(1, 3), "K": range(3), r"\E_K": ("K", chances), "p": p}
    return g, legend | {r"\hat p": g.rewards.mean(-1)}


def inverse_deviation(rate: Any) -> Tensor:
    """GRPO's weight of a pass rate, and 0 where the group is all alike."""
    rate = torch.as_tensor(rate, dtype=torch.float64)
    mixed = (rate > 0) & (rate < 1)
    return torch.where(mixed, torch.where(mixed, rate * (1 - rate), 0.25).rsqrt(), 0.0)


@symbols_of("eq:pass-rate-weighting")
def _(draw: Draw) -> Legend:
    g, legend = graded(draw)
    A = difficulty.pass_rate_weighting(g.rewards, weight=inverse_deviation)
    return legend | {"w(#)": inverse_deviation, "A_i": A.T}


@symbols_of("eq:difficulty-bias")
def _(draw: Draw) -> Legend:
    g, legend = graded(draw)
    A = advantages.group_zscore(g.rewards, ddof=0, eps=0.0)
    limit = r"\underset{G\to\infty}{\longrightarrow}\; w(p)\,\nabla p"
    return legend | {"w(#)": inverse_deviation, "A_i": A.T, limit: None}


@symbols_of("eq:maxrl-advantage")
def _(draw: Draw) -> Legend:
    g, legend = graded(draw)
    some = g.rewards.any(-1)  # a group in which none succeeds has no advantage, and no part in the expectation
    legend |= {"A_i": difficulty.maxrl(g.rewards).T, r"\hat p": legend[r"\hat p"].where(some, torch.ones(()).double())}
    return legend | {"r_i": g.rewards.where(some[:, None], torch.ones(()).double()).T}


@symbols_of("eq:bnpo-advantage")
def _(draw: Draw) -> Legend:
    r = draw.uniform(3, 4)
    density = lambda x, a, b: torch.distributions.Beta(*torch.tensor([a, b], dtype=torch.float64)).log_prob(x).exp()
    legend = {"i": range(4), "r_i": r.T, r"\hat p": r.mean(-1), "u": 1.7, "v": 2.4}
    return legend | {r"\mathrm{Beta}(#;#,#)": density, "A_i": difficulty.bnpo(r, shape=(1.7, 2.4)).T}


@symbols_of("eq:bnpo-shape")
def _(draw: Draw) -> Legend:
    rates = draw.uniform(6, low=0.2, high=0.7)
    mean, variance = float(rates.mean()), float(rates.var())
    total = mean * (1 - mean) / variance - 1
    u, v = difficulty.bnpo_shape(rates)
    return {"a": total * mean, "b": total * (1 - mean), "u": u, "v": v}


not_evaluated("eq:bnpo-variance", "f6405e019194", "an integral; its check computes it by quadrature")


@symbols_of("eq:lite-ppo-advantage")
def _(draw: Draw) -> Legend:
    r = draw.normal(3, 4)
    legend = {"i": range(4), "r_i": r.T, r"\bar r_{\text{group}}": r.mean(-1), r"\varepsilon": 0.1}
    return legend | {r"\mathrm{std}_{\text{batch}}(r)": r.std(), "A_i": advantages.lite_ppo(r, eps=0.1).T}


@symbols_of("eq:reinforce-pp-baseline")
def _(draw: Draw) -> Legend:
    r = draw.normal(3, 4)
    spread = (r - r.mean(-1, keepdim=True)).std()
    legend = {"i": range(4), "r_i": r.T, r"\bar r_{\text{group}}": r.mean(-1), r"\varepsilon": 0.1}
    legend |= {r"\mathrm{std}_{\text{batch}}(r - \bar r_{\text{group}})": spread}
    return legend | {"A_i": advantages.reinforce_pp_baseline(r, eps=0.1).T}


@symbols_of("eq:group-size")
def _(draw: Draw) -> Legend:
    V, S, W = draw.uniform(3, 4, low=0.5, high=2.0)
    variance = equations.group_gradient_variance(V, S, W, num_prompts=3, num_generations=5)
    return {"V": V, "S": S, "W": W, "P": 3, "G": 5, r"\mathrm{Var}(\hat g)": variance}


@symbols_of("eq:best-group-size")
def _(draw: Draw) -> Legend:
    V, W = draw.uniform(2, 4, low=0.5, high=2.0)
    return {"V": V, "W": W, r"G^*": equations.best_group_size(V, W)}


@symbols_of("eq:token-covariance")
def _(draw: Draw) -> Legend:
    logps, A = draw.logps(2, 4), draw.normal(2, 4)
    mask = torch.ones(2, 4, dtype=torch.bool)
    legend = {"t": range(8), r"\pi(y_t)": logps.exp().flatten(), "A_t": A.flatten(), r"\bar A": A.mean()}
    return legend | {
        r"\overline{\log\pi}": logps.mean(),
        "c_t": equations.token_covariances(logps, A, mask).flatten(),
    }


# -- which groups and completions count ------------------------------------------------------------------------------


@symbols_of("eq:dead-group")
def _(draw: Draw) -> Legend:
    p = draw.uniform(4, low=0.1, high=0.9)
    return {"p": p, "G": 5, r"P(\text{dead})": difficulty.zero_variance_group_probability(p, num_generations=5)}


@symbols_of("eq:dynamic-sampling")
def _(draw: Draw) -> Legend:
    g, legend = graded(draw)
    kept = difficulty.nonzero_variance_groups(g.rewards)
    return legend | {r"\text{keep a group}": kept, r"P(\text{kept})": legend[r"\E"][kept].sum()}


@symbols_of("eq:gfpo-filter")
def _(draw: Draw) -> Legend:
    r, s, k = draw.normal(1, 5), draw.normal(1, 5), 3
    kept = difficulty.gfpo_filter(s, num_kept=k)
    A = advantages.group_zscore(r, kept, eps=0.1)[0]
    sets = [frozenset(c) for n in range(6) for c in itertools.combinations(range(5), n)]
    legend = {"i": range(5), "S'": sets, "|S'|": len, "k": k, "m_i": s[0], "r_i": r[0], r"\varepsilon": 0.1}
    legend |= {r"\bar r_S": r[kept].mean(), r"\sigma_S": r[kept].std()}
    return legend | {"S": frozenset(kept[0].nonzero()[:, 0].tolist()), "A_i": A}


@symbols_of("eq:dapo-overlong")
def _(draw: Draw) -> Legend:
    n = torch.arange(3, 131, 4)
    found = shaping.soft_overlong(n.double(), max_completion_length=100, soft_punish_cache=20)
    return {"|y|": n, "L": 100, "L_c": 20, r"r_{\text{length}}(y)": found}


@symbols_of("eq:most-uncertain")
def _(draw: Draw) -> Legend:
    H = draw.uniform(1, 10, low=0.0, high=2.0)
    everything = torch.ones_like(H, dtype=torch.bool)
    w = aggregation.high_entropy_weights(aggregation.token_mean(everything), H, everything, top_entropy_quantile=0.3)[0]
    return {"t": range(1, 11), "u": range(1, 11), r"\tau": H[0].sort().values[-3], "H_t": H[0], "w_t": w}


# -- ratios ------------------------------------------------------------------------------------------------------


@symbols_of("eq:clip-higher")
def _(draw: Draw) -> Legend:
    inputs, legend = clipped_tokens(draw)
    objective = losses.ppo_clip(*inputs, epsilon=0.2, epsilon_high=0.3)
    slopes = torch.autograd.grad(objective.sum(), legend[r"\theta"])[0]
    return legend | {r"\nabla_{\log\pi}\mathcal{L}_t": slopes}


@symbols_of("eq:cispo")
def _(draw: Draw) -> Legend:
    inputs, legend = clipped_tokens(draw)
    return legend | {r"\mathcal{L}_t": losses.cispo(*inputs, epsilon=0.2, epsilon_high=0.3)[0]}


@symbols_of("eq:sapo")
def _(draw: Draw) -> Legend:
    inputs, legend = clipped_tokens(draw)
    objective = losses.sapo(*inputs, sapo_temperature_pos=1.3, sapo_temperature_neg=1.3)
    return legend | {r"\tau": 1.3, r"\mathcal{L}_t": objective[0]}


def completions(draw: Draw, epsilon: float, epsilon_high: float) -> tuple[Any, dict[str, Any]]:
    """Twelve completions of four tokens (hidden in the last axis), on both sides of the clip with either sign; differentiable."""
    old = draw.logps(12, 4)
    drift = torch.linspace(-0.4, 0.4, 6, dtype=torch.float64).repeat(2)[:, None]
    theta = (old + drift + draw.normal(12, 4, scale=0.02)).requires_grad_()
    A = (draw.uniform(12, 1, low=0.5, high=2.0) * torch.tensor([[1.0]] * 6 + [[-1.0]] * 6)).expand(12, 4)
    mask = torch.ones(12, 4, dtype=torch.bool)
    s = losses.sequence_ratio(theta, old, mask)[:, 0]
    legend = {r"\theta": theta, "t": range(4), "s": s, "s(y)": s, "A": A[:, 0], "|y|": 4}
    legend |= {r"\rho_t": (theta - old).exp().T, r"\pi(y_t)": theta.exp().T, r"\pi(y_t \mid y_{<t})": theta.exp().T}
    legend |= {r"\pi(y)": theta.sum(-1).exp(), r"\piold(y)": old.sum(-1).exp()}
    options = {"epsilon": epsilon, "epsilon_high": epsilon_high}
    return ((theta, old, A, mask), options), legend | {r"\epsilon": epsilon, r"\epsilon_{\text{high}}": epsilon_high}


@symbols_of("eq:gspo-ratio")
def _(draw: Draw) -> Legend:
    return completions(draw, 0.15, 0.2)[1]


@symbols_of("eq:vespo")
def _(draw: Draw) -> Legend:
    (inputs, _), legend = completions(draw, 0.15, 0.2)
    kernel: dict[str, Any] = {
        f"vespo_{name}_{sign}": x for name, x in (("k", 1.5), ("lambda", 2.5)) for sign in ("pos", "neg")
    }
    w = legend[r"\pi(y)"] / legend[r"\piold(y)"]
    return legend | {"w": w, "k": 1.5, r"\lambda": 2.5, r"\mathcal{L}_t": losses.vespo(*inputs, **kernel).T}


@symbols_of("eq:gspo-objective")
def _(draw: Draw) -> Legend:
    (inputs, options), legend = completions(draw, 0.15, 0.2)
    return legend | {r"\mathcal{L}(y)": losses.gspo(*inputs, **options)[:, 0]}


@symbols_of("eq:gspo-gradient")
def _(draw: Draw) -> Legend:
    (inputs, options), legend = completions(draw, 0.9, 9.0)  # nothing is clipped
    return legend | {r"\mathcal{L}(y)": losses.gspo(*inputs, **options)[:, 0]}


@symbols_of("eq:gspo-token")
def _(draw: Draw) -> Legend:
    (inputs, options), legend = completions(draw, 0.15, 0.2)
    A = draw.normal(12, 4)
    objective = losses.gspo_token(inputs[0], inputs[1], A, inputs[3], **options)
    return legend | {"A_t": A.T, r"\mathcal{L}_t": objective.T}


@symbols_of("eq:luspo")
def _(draw: Draw) -> Legend:
    (inputs, options), legend = completions(draw, 0.15, 0.2)
    return legend | {r"\mathcal{L}(y)": losses.luspo(*inputs, **options)[:, 0]}


@symbols_of("eq:gmpo")
def _(draw: Draw) -> Legend:
    (inputs, _), legend = completions(draw, 0.1, 0.1)
    theta, old, A, _ = inputs
    kept = torch.where(A > 0, (theta - old).clamp(max=0.1), (theta - old).clamp(min=-0.1))
    legend |= {r"\hat\rho_t": kept.exp().T, r"\mathcal{L}(y)": losses.gmpo(*inputs, epsilon=0.1)[:, 0]}
    return legend


@symbols_of("eq:off-policy-mask")
def _(draw: Draw) -> Legend:
    (inputs, _), legend = completions(draw, 0.15, 0.2)
    theta, mu, A, mask = inputs
    kept = off_policy.off_policy_keep(theta, mu, A, mask, off_policy_mask_threshold=0.12)
    return legend | {r"\mu(y_t)": mu.exp().T, r"\delta": 0.12, r"\text{drop } y": ~kept}


not_evaluated(
    "eq:grpo-objective", "c4ff660e28e8", "a sum over completions of different lengths; its check is that sum in loops"
)
not_evaluated("eq:length-drift", "7b86439e7a1a", "the classes of completions and what moves are named in words")


@symbols_of("eq:entropy-covariance")
def _(draw: Draw) -> Legend:
    logits, a = draw.normal(5), draw.normal(5)
    pi = logits.softmax(-1)
    a = a - pi @ a  # E_π[A] = 0
    legend = {"a": range(5), r"\pi_a": pi, "A_a": a, r"\pi": pi, "A": a, r"\E_\pi": pi}
    return legend | {r"\frac{dH}{d\eta}\Big|_{\eta=0}": equations.entropy_rate(logits, a)}


not_evaluated("eq:grpo-process", "8f11d92cb08e", "the steps that are summed are named in words")
