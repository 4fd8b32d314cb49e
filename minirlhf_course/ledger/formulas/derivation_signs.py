"""The signs of a derivation beside those of one policy: a pair of completions, a group, an episode, a decision process.

A formula selects its family: the steps of an episode if it prints the index ``t``, a decision process if it prints states
and actions without ``t``, and a group of samples otherwise. What a family defines is computed by the library.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from minirlhf.core.exact import ToyLM
from minirlhf_course.ledger.formulas.reader import Term
from minirlhf_course.ledger.registry import Draw

GROUP, STEPS, STATES, ACTIONS = 4, 4, 3, 2
#: The two completions of a pair, as indices: :mod:`.spellings` makes them from ``y_w``, ``y_1``, ``y^+``, ….
PAIR = (r"\yw", r"\yl")

#: Numbers of the families that a derivation may define anew.
FREE = {"b", "c", "n", "N", "K", "G", "T", r"\gamma", r"\lambda", r"\epsilon", r"\varepsilon", r"\tau", r"\mu"}


def inputs(draw: Draw, lm: ToyLM) -> dict[str, Any]:
    """Draw what the families need; policies depend on the parameters of ``lm``."""
    theta = lm.table.flatten()
    near = lambda *shape: torch.tensordot(draw.normal(*shape, len(theta)), theta, 1)
    numbers = {name: float(draw.uniform(low=low, high=high)) for name, low, high in (
        ("gamma", 0.5, 0.9), ("lambda", 0.4, 0.9), ("epsilon", 0.1, 0.3), ("tau", 0.5, 1.5),
    )}  # fmt: skip
    return numbers | {
        "group": draw.normal(GROUP), "step_rewards": draw.normal(STEPS), "values": draw.normal(STEPS),
        "step_policy": near(STEPS).sigmoid(), "step_old": draw.normal(STEPS).sigmoid(),
        "step_ref": draw.normal(STEPS).sigmoid(), "choice": near(STATES, ACTIONS).softmax(-1),
        "moves": draw.normal(STATES, ACTIONS, STATES).softmax(-1), "pays": draw.normal(STATES, ACTIONS, STATES),
        "first": draw.normal(STATES).softmax(-1),
    }  # fmt: skip


def signs(space: Mapping[str, Any], printed: Sequence[str]) -> dict[str, Any]:
    """The symbol definitions that a formula with these tokens may use beside those of one policy."""
    drawn = space["_inputs"]
    found = _pair(space) | {r"\binom{#}{#}": lambda n, k: float(math.comb(int(n), int(k)))}
    for names, key in (
        ((r"\gamma",), "gamma"),
        ((r"\lambda",), "lambda"),
        ((r"\epsilon", r"\varepsilon"), "epsilon"),
        ((r"\tau",), "tau"),
    ):
        found |= dict.fromkeys(names, drawn[key])
    if "t" in printed:
        found |= _episode(drawn)
    elif "a" in printed and ("s" in printed or "s'" in printed):
        found |= _decisions(drawn)
    else:
        found |= _group(drawn)
    text = " ".join(printed)
    if re.search(r"(?<!\S)r _ \S+ \(", text):  # a reward of the writer's own, such as r_2(y)
        found.pop("r_i", None)
    # A number that has no meaning of its own is the writer's to define.
    return {
        name: x
        for name, x in found.items()
        if name not in FREE or not re.search(rf"(?:^|,|quad) ?{re.escape(name)} =", text)
    }


def _pair(space: Mapping[str, Any]) -> dict[str, Any]:
    """Two completions, their implicit rewards, and the losses of a pair whose names everybody knows."""
    ratio = space["policy"].log() - space["reference"].log()
    implicit = space["beta"] * ratio
    order = space["rewards"][:, None] >= space["rewards"]
    below, strictly = (
        reference.sum(-1) for reference in (order * space["reference"], (order & ~order.mT) * space["reference"])
    )
    best = below**GROUP - strictly**GROUP
    indices: dict[str, Any] = {name: range(len(space["policy"])) for name in PAIR}
    margin = lambda x: Term(lambda env: x[env[PAIR[0]]] - x[env[PAIR[1]]], frozenset(PAIR))
    of = lambda f, term: Term(lambda env: f(term.value(env)), term.free)
    dpo = of(lambda m: -torch.nn.functional.logsigmoid(m), margin(implicit))
    comparison = lambda a, b: (space["rewards"][int(a)] - space["rewards"][int(b)]).sigmoid()
    return indices | {
        r"\hat r": implicit, r"\hat r(y)": implicit, r"p(#\succ #)": comparison, r"\mathcal{L}_{\text{DPO}}": dpo,
        r"\pibon": best, r"\pibon(y)": best,
    }  # fmt: skip


def _group(drawn: Mapping[str, Any]) -> dict[str, Any]:
    """``G`` samples of one prompt with rewards ``r_i``."""
    rewards = drawn["group"]
    found: dict[str, Any] = {name: range(1, GROUP + 1) for name in ("i", "j", "k", "m", "l")}
    found |= dict.fromkeys(("G", "K", "N", "n"), GROUP) | {"c": 2, "b": drawn["tau"], "r_i": rewards}
    mean = rewards.mean()
    return found | {r"\bar r": mean, r"\mu": mean, r"\sigma_r": rewards.std()}


def _episode(drawn: Mapping[str, Any]) -> dict[str, Any]:
    """An episode of ``T`` steps; behind its end rewards and values are 0 and ratios 1."""
    from minirlhf.equations.returns import gae, returns_to_go

    rewards, values, mask = drawn["step_rewards"], drawn["values"], torch.ones(1, STEPS, dtype=torch.bool)
    following = torch.cat([values[1:], torch.zeros(1, dtype=values.dtype)])
    residuals = rewards + drawn["gamma"] * following - values
    advantages = gae(rewards[None], values[None], mask, gamma=drawn["gamma"], lam=drawn["lambda"])[0]
    to_go = returns_to_go(rewards[None], mask, gamma=drawn["gamma"])[0]
    policy, old, ref = (drawn[f"step_{name}"] for name in ("policy", "old", "ref"))
    found: dict[str, Any] = {name: range(STEPS) for name in ("t", "k", "l", "j")}
    for name, x in (
        ("r_t", rewards),
        ("V(s_t)", values),
        (r"\delta_t", residuals),
        ("A_t", advantages),
        ("G_t", to_go),
    ):
        found[name] = _behind(x, 0.0)
    ratio = policy / old
    for name, x in ((r"\pi", policy), (r"\piold", old), (r"\piref", ref)):
        found[rf"{name}(a_t\mid s_t)"] = _behind(x, 1.0)
    return found | {
        r"\rho_t": _behind(ratio, 1.0),
        "T": STEPS,
        r"\E_t": ("t", torch.full((STEPS,), 1 / STEPS).double()),
    }


def _behind(x: Tensor, end: float) -> Callable[[Any], Tensor]:
    """``x`` by its step, and ``end`` behind the last one."""
    return lambda t: x[int(t)] if int(t) < len(x) else torch.tensor(end, dtype=x.dtype)


def _decisions(drawn: Mapping[str, Any]) -> dict[str, Any]:
    """A Markov decision process: values of the policy and of the best one, and discounted visits."""
    policy, moves, pays, gamma = drawn["choice"], drawn["moves"], drawn["pays"], drawn["gamma"]
    rewards = (moves * pays).sum(-1)
    chain, identity = torch.einsum("sa,sat->st", policy, moves), torch.eye(STATES, dtype=moves.dtype)
    values = torch.linalg.solve(identity - gamma * chain, (policy * rewards).sum(-1))
    quality = rewards + gamma * moves @ values
    visits = torch.linalg.solve((identity - gamma * chain).mT, drawn["first"])
    best = torch.zeros(STATES, dtype=moves.dtype)
    for _ in range(600):  # a contraction by γ < 0.9
        best = (rewards + gamma * moves @ best).amax(-1)
    found: dict[str, Any] = {"s": range(STATES), "s'": range(STATES), "a": range(ACTIONS), "a'": range(ACTIONS)}
    given = lambda x: lambda b, a, *rest: x[(int(a), *map(int, rest), int(b))]
    found |= {r"\pi(a\mid s)": given(policy), r"P(s'\mid s,a)": given(moves), r"p(s'\mid s,a)": given(moves)}
    found |= {"r(s,a)": rewards, "R(s,a)": rewards, "R(s,a,s')": pays, "r(s,a,s')": pays, "V(s)": values}
    found |= {"Q(s,a)": quality, "A(s,a)": quality - values[:, None], "d(s)": visits, "V^*(s)": best}
    return found | {"Q^*(s,a)": rewards + gamma * moves @ best}
