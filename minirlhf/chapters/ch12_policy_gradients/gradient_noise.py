"""Layer 7: mean and noise of policy-gradient estimators on an enumerable policy, both exact.

An estimator of the gradient is a random vector: what it says depends on which responses were sampled. On a :class:`ToyLM` every
group of responses can be listed, with its probability, so that mean and variance are sums and nothing has to be sampled.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from minirlhf.core import exact
from minirlhf.core.exact import ToyLM


@dataclass(frozen=True)
class Moments:
    """What an estimator of the gradient gives on average, and how far single estimates scatter around it.

    Attributes:
        mean: ``(K,)``, in the parameters of the policy.
        variance: mean squared distance of an estimate from the mean, the trace of its covariance.
    """

    mean: Tensor
    variance: float

    @property
    def noise(self) -> float:
        """Variance over the squared length of the mean: free of the scale of the advantages, which Adam divides out."""
        return self.variance / float(self.mean @ self.mean)

    def cosine(self, wanted: Tensor) -> float:
        """1 if the estimator points, on average, where ``wanted (K,)`` does."""
        return float(self.mean @ wanted / (self.mean.norm() * wanted.norm()))


def true_gradient(lm: ToyLM, rewards: Tensor) -> Tensor:
    """``(K,)``: the derivative of the expected reward, averaged over prompts. ``rewards (num_prompts, N)``."""
    return exact.gradient(exact.expectation(lm.distribution(), rewards).mean(), lm.table)


def token_scores(lm: ToyLM) -> Tensor:
    """``(num_prompts, N, L, K)``: the gradient of every token's log-probability, 0 at padding."""
    logps = lm.completion_token_logps()
    rows = [exact.gradient(x, lm.table) for x in logps.flatten()]
    return torch.stack(rows).view(*logps.shape, -1)


def of_groups(lm: ToyLM, rewards: Tensor, advantage: Callable[[Tensor], Tensor], *, num_generations: int) -> Moments:
    """The estimator ``mean_i A_i ∇log π(y_i)`` over ``G`` responses to each prompt.

    The groups of a prompt are listed as multisets, since their order does not matter; the batches of several prompts are all
    combinations of groups. Prompts share no parameter of a ToyLM.

    Args:
        rewards: ``(num_prompts, N)``.
        advantage: ``(P, G) -> (P, G)``, with all prompts of the batch in it.
    """
    probs = lm.distribution().detach()  # (P, N)
    scores = token_scores(lm).sum(2)  # (P, N, K)
    count = lm.num_prompts
    members = torch.combinations(torch.arange(probs.shape[1]), num_generations, with_replacement=True)  # (M, G)
    multiplicity = (members[:, :, None] == members[:, None, :]).sum(-1).double()  # (M, G)
    orders = math.lgamma(num_generations + 1) - (torch.lgamma(multiplicity + 1) / multiplicity).sum(-1)  # log, (M,)
    chance = torch.stack([(p.log()[members].sum(-1) + orders).exp() for p in probs])  # (P, M)

    batches = torch.cartesian_prod(*[torch.arange(len(members))] * count).view(-1, count)  # (C, P)
    likely = torch.stack([chance[p, batches[:, p]] for p in range(count)]).prod(0)  # (C,)
    picked = members[batches]  # (C, P, G)
    earned = torch.stack([rewards[p, picked[:, p]] for p in range(count)], 1)  # (C, P, G)
    factors = torch.stack([advantage(batch) for batch in earned]) if count > 1 else advantage(earned[:, 0])[:, None]
    factors = factors / (count * num_generations)  # (C, P, G)

    mean, second = torch.zeros(scores.shape[-1], dtype=torch.float64), 0.0
    for p in range(count):
        weighted = (likely[:, None] * factors[:, p]).flatten()
        mean += (
            torch.zeros(probs.shape[1], dtype=torch.float64).index_add(0, picked[:, p].flatten(), weighted) @ scores[p]
        )
        products = scores[p] @ scores[p].T  # (N, N)
        for i, j in itertools.product(range(num_generations), repeat=2):
            overlap = products[picked[:, p, i], picked[:, p, j]]
            second += float((likely * factors[:, p, i] * factors[:, p, j] * overlap).sum())
    return Moments(mean, second - float(mean @ mean))


def of_tokens(lm: ToyLM, advantages: Tensor, *, num_samples: int, sampler: Tensor | None = None) -> Moments:
    """The estimator ``mean_i Σ_t A_t ∇log π(y_t)`` over independent samples, where each token has an advantage of its own.

    Args:
        advantages: ``(N, L)`` of every token of every response to the one prompt; they depend on no other sample.
        sampler: ``(N,)``, how likely each response is where it is sampled; None: under ``lm`` itself.
    """
    estimates = (token_scores(lm)[0] * advantages[..., None]).sum(1)  # (N, K)
    probs = lm.distribution()[0].detach() if sampler is None else sampler
    mean = probs @ estimates
    single = float(probs @ (estimates - mean).square().sum(-1))
    return Moments(mean, single / num_samples)
