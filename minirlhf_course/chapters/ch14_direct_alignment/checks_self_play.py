"""Chapter 14, direct alignment: where one round of self-play rests, against demonstrations and against oneself."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from minirlhf.core import exact
from minirlhf.equations import preference_losses as pl
from minirlhf.equations.preference_losses import PairLogps
from minirlhf_course.ledger.inputs.preferences import policy_gradient, without_reference
from minirlhf_course.ledger.registry import check

N = 4
EACH, OTHER = torch.cartesian_prod(torch.arange(N), torch.arange(N)).unbind(-1)


def all_of(logps: Tensor, ref: Tensor) -> PairLogps:
    """Every ordered pair of N answers, an answer and itself among them."""
    return PairLogps(logps[EACH], logps[OTHER], ref.log()[EACH], ref.log()[OTHER])


@check(
    "eq:spin",
    "round",
    "With winners from p, losers from π_t and reference π_t, DPO's minimum is π_t (p/π_t)^(1/β), normalised; and "
    "p if that is π_t.",
    of=pl.dpo,
    against="the minimum over all policies, found numerically",
    tolerance=1e-7,
    wrong={
        "the reference forgotten": lambda pair, *, beta: pl.dpo(without_reference(pair), beta=beta),
        "β forgotten": lambda pair, *, beta: pl.dpo(pair, beta=1.0),
        "the model's own answer wins": lambda pair, *, beta: pl.dpo(pair.swapped(), beta=beta),
    },
)
def _(dpo, draw):
    people, policy = draw.distribution(N, scale=0.5), draw.distribution(N, scale=0.5)
    beta = float(draw.uniform(low=1.5, high=2.5))
    chance = people[EACH] * policy[OTHER]
    found = exact.maximise(lambda q: -(chance * dpo(all_of(q.log(), policy), beta=beta)).sum(), N)
    claimed = policy * (people / policy) ** (1 / beta)
    yield found, claimed / claimed.sum()
    settled = people[EACH] * people[OTHER]
    yield (
        policy_gradient(lambda x: (settled * dpo(all_of(x, people), beta=beta)).sum(), people.log()),
        torch.zeros(N),
    )


Loss = Callable[..., Tensor]


@check(
    "eq:dno",
    "round",
    "With pairs of π_t's own answers and win rates against π_t as rewards, RPO's minimum is the best response to "
    "π_t under β KL(π‖π_t).",
    of=pl.rpo,
    against="the largest win rate minus β KL, found numerically",
    tolerance=1e-7,
    wrong={
        "labels for win rates (DPO)": lambda pair, gap, *, beta, eta: pl.dpo(pair, beta=beta),
        "η forgotten": lambda pair, gap, *, beta, eta: pl.rpo(pair, gap, beta=beta),
        "the reference forgotten": lambda pair, gap, *, beta, eta: pl.rpo(
            without_reference(pair), gap, beta=beta, eta=eta
        ),
    },
)
def _(rpo, draw):
    policy, beta = draw.distribution(N, scale=0.5), float(draw.uniform(low=0.4, high=0.8))
    game = draw.uniform(N, N, low=0.1, high=0.9)
    game = torch.triu(game, 1) + torch.tril(1 - game.mT, -1) + 0.5 * torch.eye(N, dtype=torch.float64)
    wins = game @ policy
    eta = float(draw.uniform(low=1.5, high=2.5))  # rewards wins/η, times η
    chance, gap = policy[EACH] * policy[OTHER], wins[EACH] - wins[OTHER]
    loss = lambda q: (chance * rpo(all_of(q.log(), policy), gap / eta, beta=beta, eta=eta)).sum()
    best = exact.maximise(lambda q: (q * wins).sum() - beta * (q * (q / policy).log()).sum(), N)
    return exact.maximise(lambda q: -loss(q), N), best
