"""Chapter 12: what the printed formulas are made of."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from minirlhf.equations import advantages, aggregation, diagnostics, kl, off_policy, shaping, value_losses
from minirlhf.equations import policy_losses as losses
from minirlhf_course.ledger.formulas.legends import not_evaluated, symbols_of
from minirlhf_course.ledger.inputs.printed import clipped_tokens, groups, world
from minirlhf_course.ledger.inputs.rollouts import all_groups
from minirlhf_course.ledger.registry import Draw

Legend = Mapping[str, Any]


# -- weighting whole responses -----------------------------------------------------------------------------------


@symbols_of("eq:reinforce-objective")
def _(draw: Draw) -> Legend:
    w = world(draw)
    A = draw.normal(*w.mask.shape)
    objective = losses.reinforce(w.logps, w.logps, A, w.mask)
    legend = w.legend | {r"\pi(y)": w.probs.detach(), "J": (w.probs * w.rewards).sum()}
    return legend | {"A_t": A.T, r"\mathcal{L}_t": objective.T}


@symbols_of("eq:token-advantage")
def _(draw: Draw) -> Legend:
    mask, A = torch.arange(4) < torch.tensor([[1], [4], [2]]), draw.normal(1, 3)
    logps = draw.logps(3, 4) * mask
    legend = {"i": range(1, 4), "t": range(1, 5), "A_i": A[0], "|y_i|": mask.sum(-1)}
    legend |= {r"\pi(y_{i,t}\mid s_{i,t})": logps.exp(), r"\pi(y_i)": logps.sum(-1).exp()}
    return legend | {"A_{i,t}": advantages.broadcast_to_tokens(A, mask)}


@symbols_of("eq:reinforce-advantage")
def _(draw: Draw) -> Legend:
    r = draw.normal(2, 4)
    return {"i": range(4), "r_i": r.T, "A_i": advantages.raw_reward(r).T}


@symbols_of("eq:batch-baseline")
def _(draw: Draw) -> Legend:
    g = groups(draw)
    centred = torch.cat([advantages.batch_center(r[None]) for r in g.rewards])  # each group is a batch of its own
    legend = {"i": range(1, 4), "j": range(1, 4), "N": 3}
    return g.legend | legend | {"A_i": centred.T}


@symbols_of("eq:remax-advantage")
def _(draw: Draw) -> Legend:
    r, greedy = draw.normal(2, 4), draw.normal(2)
    legend = {"i": range(4), "r(y_i)": r.T, r"r(\hat y)": greedy, r"\hat y \text{ greedy.}": None}
    return legend | {"A_i": advantages.remax(r, greedy).T}


@symbols_of("eq:rloo-advantage")
def _(draw: Draw) -> Legend:
    g = groups(draw)
    return g.legend | {"A_i": advantages.leave_one_out(g.rewards).T}


@symbols_of("eq:reinforce-pp-advantage")
def _(draw: Draw) -> Legend:
    r = draw.normal(2, 4)
    legend = {"i": range(8), "r_i": r.flatten(), r"\operatorname{mean}_{\text{batch}}(r)": r.mean(), r"\epsilon": 0.1}
    legend |= {r"\operatorname{std}_{\text{batch}}(r)": r.std()}
    return legend | {"A_i": advantages.batch_zscore(r, eps=0.1).flatten()}


# -- the critic --------------------------------------------------------------------------------------------------


@symbols_of("eq:value-mse")
def _(draw: Draw) -> Legend:
    V, R, p = draw.normal(4).requires_grad_(), draw.normal(4, 3), draw.distribution(3)
    every = torch.ones(3, 4, dtype=torch.bool)
    loss = value_losses.value_mse(V.expand(3, 4), R.T, every)
    legend = {"t": range(4), r"\theta": V, "V(s_t)": V, "R_t": R, r"\E": p, r"\E[R_t\mid s_t]": R @ p}
    return legend | {"L^V_t": loss.T}


@symbols_of("eq:value-clip")
def _(draw: Draw) -> Legend:
    V, old, R = draw.normal(2, 6), draw.normal(2, 6), draw.normal(2, 6)
    loss = value_losses.value_clip(V, old, R, torch.ones(2, 6, dtype=torch.bool), cliprange_value=0.3)
    near = torch.clamp(V, old - 0.3, old + 0.3)
    return {"t": range(6), "V(s_t)": V.T, r"\bar V(s_t)": near.T, "R_t": R.T, "L^V_t": loss.T}


@symbols_of("eq:explained-variance")
def _(draw: Draw) -> Legend:
    V, R = draw.normal(2, 4), draw.normal(2, 4)
    mask = draw.mask(2, 4)
    share = torch.full((int(mask.sum()),), 1 / int(mask.sum()), dtype=torch.float64)
    return {"R": R[mask], "V": V[mask], r"\E": share, r"\text{EV}": diagnostics.explained_variance(V, R, mask)}


@symbols_of("eq:whitening")
def _(draw: Draw) -> Legend:
    x, mask = draw.normal(3, 4) + 2.0, draw.mask(3, 4)
    legend = {"x": x[mask], r"\bar x": x[mask].mean(), r"\sigma": x[mask].std(), r"\epsilon": 0.1}
    legend |= {r"\bar x, \sigma^2 \text{ over the sampled tokens only.}": None}
    return legend | {r"\tilde x": advantages.whiten(x, mask, eps=0.1)[mask]}


@symbols_of("eq:reinforce-pp-tokens")
def _(draw: Draw) -> Legend:
    r, n = draw.normal(4), torch.tensor([5, 2, 1, 3])
    mask = torch.arange(5)[None, :] < n[:, None]
    whitened = advantages.whiten(advantages.broadcast_to_tokens(r[:, None], mask), mask, eps=0.0)[:, 0]
    mean = (n * r).sum() / n.sum()
    deviation = ((n * (r - mean) ** 2).sum() / (n.sum() - 1)).sqrt()
    legend = {"i": range(4), "j": range(4), "r_i": r, "r_j": r, "|y_j|": n.double(), "m": mean, "s": deviation}
    return legend | {"A_{i,t}": whitened}


# -- what is added to the reward ---------------------------------------------------------------------------------


@symbols_of("eq:kl-shaped-rewards")
def _(draw: Draw) -> Legend:
    w = world(draw)
    paid = shaping.kl_shaped_token_rewards(w.rewards, w.logps, w.ref_logps, w.mask, beta=0.7, estimator=kl.k1)
    return w.legend | {r"\beta": 0.7, "n": w.mask.sum(-1), "r_t": paid.T}


@symbols_of("eq:missing-eos")
def _(draw: Draw) -> Legend:
    r, p, ended = draw.normal(6), draw.distribution(6), draw.permutation(6) < 4
    shaped = shaping.missing_eos_penalty(r, ended, penalty=1.3)
    legend = {"r": r, "r(y)": r, "p": 1.3, r"\E": p, r"y\text{ does not end}": ~ended}
    return legend | {r"P(\text{cut off})": p[~ended].sum(), "r'": shaped, "r'(y)": shaped}


@symbols_of("eq:length-penalty")
def _(draw: Draw) -> Legend:
    w = world(draw)
    n, p = w.mask.sum(-1), w.probs.detach()
    shaped = shaping.length_penalty(w.rewards, n, coefficient=0.2)
    legend = w.legend | {r"\alpha": 0.2, "|y|": n, r"\E": p, r"P(|y|\ge t)": lambda t: p[n >= t].sum()}
    return legend | {"r'": shaped, "r'(y)": shaped}


@symbols_of("eq:ptx")
def _(draw: Draw) -> Legend:
    theta, texts = draw.normal(5).requires_grad_(), draw.distribution(5)
    logps = theta.log_softmax(-1)
    terms = losses.pretraining(logps[:, None], torch.ones(5, 1, dtype=torch.bool), ptx_coef=0.6)[:, 0]
    legend = {r"\theta": theta, r"c_{\text{ptx}}": 0.6, r"\text{texts}": texts, r"\text{texts}(x)": texts}
    legend |= {r"\pi": logps.exp(), r"\pi(x)": logps.exp()}
    return legend | {r"\mathcal{L}^{\text{ptx}}": (texts * terms).sum()}


# -- the ratio ---------------------------------------------------------------------------------------------------


def one_token(draw: Draw) -> tuple[Tensor, Tensor, dict[str, Any]]:
    """Two policies over four tokens, the newer one differentiable, and the chapter's symbols for them."""
    theta, old, f = draw.normal(4).requires_grad_(), draw.distribution(4), draw.normal(4)
    pi = theta.softmax(-1)
    legend = {r"\theta": theta, "a": range(4), r"\pi": pi, r"\pi(a)": pi, r"\piold": old, r"\piold(a)": old}
    return pi, old, legend | {"f": f, "f(a)": f, "A": f}


ONE = torch.ones(1, 4, dtype=torch.bool)


@symbols_of("eq:policy-ratio")
def _(draw: Draw) -> Legend:
    pi, old, legend = one_token(draw)
    rho = losses.policy_ratio(pi.log()[None], old.log()[None], ONE)[0]
    legend |= {"t": range(3), r"\pi(y_t\mid s_t)": pi, r"\piold(y_t\mid s_t)": old}
    return legend | {r"\rho_t": rho, r"\rho": rho}


@symbols_of("eq:importance-weighted")
def _(draw: Draw) -> Legend:
    pi, old, legend = one_token(draw)
    weighted = losses.importance_weighted(pi.log()[None], old.log()[None], legend["A"][None], ONE)[0]
    return legend | {r"\rho A": weighted, r"\E_{\piold}": old, r"\E_\pi": pi.detach()}


@symbols_of("eq:ppo-clip")
def _(draw: Draw) -> Legend:
    inputs, legend = clipped_tokens(draw)
    return legend | {r"\mathcal{L}^{\text{clip}}_t": losses.ppo_clip(*inputs, epsilon=0.2)[0]}


@symbols_of("eq:ppo-clip-gradient")
def _(draw: Draw) -> Legend:
    inputs, legend = clipped_tokens(draw)
    return legend | {r"\mathcal{L}^{\text{clip}}_t": losses.ppo_clip(*inputs, epsilon=0.2)[0]}


@symbols_of("eq:ppo-first-step")
def _(draw: Draw) -> Legend:
    (logps, _, A, mask), legend = clipped_tokens(draw)
    old = logps.detach()
    rho = losses.policy_ratio(logps, old, mask)[0]
    return legend | {
        r"\rho_t": rho,
        r"\mathcal{L}^{\text{clip}}_t": losses.ppo_clip(logps, old, A, mask, epsilon=0.2)[0],
    }


@symbols_of("eq:ppo-no-clip")
def _(draw: Draw) -> Legend:
    inputs, legend = clipped_tokens(draw)
    unclipped = losses.ppo_clip(*inputs, epsilon=1e9)[0]
    return legend | {r"\epsilon\to\infty": None, r"\mathcal{L}^{\text{clip}}_t": unclipped}


@symbols_of("eq:ppo-penalty")
def _(draw: Draw) -> Legend:
    inputs, legend = clipped_tokens(draw)
    pi, old, _ = one_token(draw)
    legend |= {r"\rho": pi / old, r"\pi": pi, r"\piold": old, r"\beta": 0.3}
    return legend | {r"\mathcal{L}^{\text{KL}}_t": losses.ppo_penalty(*inputs, beta=0.3)[0]}


@symbols_of("eq:clip-fraction")
def _(draw: Draw) -> Legend:
    inputs, legend = clipped_tokens(draw)
    inputs[2][0, ::4] = 0.0  # no gradient to begin with: not the clip's doing
    slopes = torch.autograd.grad(losses.ppo_clip(*inputs, epsilon=0.2).sum(), legend[r"\theta"])[0]
    legend = {"t": range(8), "A_t": inputs[2][0], r"\mathcal{T}": frozenset(range(8)), r"|\mathcal{T}|": 8}
    legend |= {r"\nabla\mathcal{L}^{\text{clip}}_t": slopes}
    return legend | {r"\text{clip fraction}": diagnostics.clip_fraction(*inputs, epsilon=0.2)}


@symbols_of("eq:approx-kl")
def _(draw: Draw) -> Legend:
    pi, old, legend = one_token(draw)
    drawn = all_groups(4, 2)  # both tokens of a response of two, (16, 2)
    seen = (pi.detach().log()[drawn], old.log()[drawn])
    every = [diagnostics.approx_kl(a[None], b[None], ONE[:, :2]) for a, b in zip(*seen, strict=True)]
    legend |= {
        "t": range(2),
        r"\mathcal{T}": frozenset(range(2)),
        r"|\mathcal{T}|": 2,
        r"\E_{\piold}": old[drawn].prod(-1),
    }
    return legend | {r"\rho_t": (seen[0] - seen[1]).exp().T, r"\widehat{\KL}": torch.stack(every)}


@symbols_of("eq:truncated-importance-weight")
def _(draw: Draw) -> Legend:
    mu, old, legend = one_token(draw)
    mu = mu.detach()
    w = off_policy.truncated_importance_weight(old.log()[None], mu.log()[None], ONE, importance_sampling_cap=1.2)[0]
    legend |= {"t": range(4), r"\piold(y_t\mid s_t)": old, r"\mu(y_t\mid s_t)": mu, r"\mu(a)": mu, r"\mu": mu}
    return legend | {"C": 1.2, "w_t": w, "w": w}


@symbols_of("eq:sequence-importance-weight")
def _(draw: Draw) -> Legend:
    old, mu, f = draw.distribution(3), draw.distribution(3), draw.normal(9)
    pairs = torch.cartesian_prod(torch.arange(3), torch.arange(3))
    whole_old, whole_mu = old[pairs].prod(-1), mu[pairs].prod(-1)
    w = off_policy.sequence_importance_weight(
        old.log()[pairs], mu.log()[pairs], torch.ones(9, 2, dtype=torch.bool), importance_sampling_cap=1.2
    )[:, 0]
    legend = {"y": range(9), r"\piold(y)": whole_old, r"\mu(y)": whole_mu, r"\E_\mu": whole_mu}
    return legend | {"f": f, "f(y)": f, "C": 1.2, "w(y)": w, "w": w}


@symbols_of("eq:masked-importance-weight")
def _(draw: Draw) -> Legend:
    mu, old, legend = one_token(draw)
    mu = mu.detach()
    ratio = losses.policy_ratio(old.log()[None], mu.log()[None], ONE)[0]
    w = off_policy.masked_importance_weight(
        old.log()[None], mu.log()[None], ONE, importance_sampling_cap=1.2, importance_sampling_floor=0.8
    )[0]
    legend |= {"t": range(4), r"\piold(y_t\mid s_t)": old, r"\mu(y_t\mid s_t)": mu, r"\mu(a)": mu, r"\mu": mu}
    return legend | {"C": 1.2, "c": 0.8, r"\rho^{\mu}_t": ratio, "w_t": w, "w": w}


not_evaluated("eq:decision-noise", "822d4dd19009", "a sum over pairs of tokens of expectations of squared lengths")


# -- weights of tokens -------------------------------------------------------------------------------------------


def weights(draw: Draw) -> Legend:
    """Three responses of different lengths and all their weights, at the first token, which each of them has."""
    mask = draw.mask(3, 5)
    legend = {"i": range(3), "j": range(3), "t": range(1), "B": 3, "L": 7, "|y_i|": mask.sum(-1)}
    for name, found in (
        ("seq", aggregation.sequence_mean(mask)),
        ("tok", aggregation.token_mean(mask)),
        ("fix", aggregation.fixed_length(mask, max_completion_length=7)),
        ("sum", aggregation.sequence_sum(mask)),
    ):
        legend |= {rf"w^{{\text{{{name}}}}}_{{i,t}}": found[:, :1]}
    return legend


symbols_of("eq:sequence-mean")(weights)
for label in ("eq:token-mean", "eq:fixed-length", "eq:sequence-sum"):
    symbols_of(
        label, harmless={"_ { t , t }": "it weighs all tokens alike", "_ { j , t }": "it weighs all tokens alike"}
    )(weights)


@symbols_of("eq:length-bias")
def _(draw: Draw) -> Legend:
    w, G = world(draw), 2
    drawn = all_groups(len(w.mask), G)  # (P, G)
    each = torch.stack([aggregation.sequence_mean(w.mask[pair]) for pair in drawn])  # (P, G, T)
    r = w.rewards[drawn]
    A = advantages.group_center(r)
    legend = {r"\theta": w.legend[r"\theta"], "i": range(G), "t": range(1, w.mask.shape[1] + 1), "G": G}
    legend |= {r"w^{\text{seq}}_{i,t}": each.permute(1, 2, 0), "A_i": A.T, "J": (w.probs * w.rewards).sum().detach()}
    legend |= {r"\pi(y_{i,t}\mid s_{i,t})": w.logps.exp()[drawn].permute(1, 2, 0), r"\E": w.probs[drawn].prod(-1)}
    return legend | {"r": r[:, 0], "|y|": w.mask.sum(-1)[drawn[:, 0]]}  # on average over groups, the first of each


@symbols_of("eq:aggregate")
def _(draw: Draw) -> Legend:
    mask, w, objective = draw.mask(3, 4), draw.uniform(3, 4), draw.normal(3, 4)
    legend = {"i": range(3), "t": range(4), "m": [frozenset({0, 2}), frozenset({1})], "w_{i,t}": w * mask}
    return legend | {r"\mathcal{L}_{i,t}": objective, r"\mathcal{L}": aggregation.aggregate(objective, w, mask)}
