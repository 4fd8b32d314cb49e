"""Exact mean and noise of policy-gradient estimators on an enumerable policy.

An estimator of the gradient is a random vector, because it depends on the sampled completions. On a :class:`ToyLM`
every group of completions can be listed with its probability. Mean and variance are then sums, and nothing has to be
sampled.
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
    """The mean of a gradient estimator, and the spread of single estimates around it.

    Attributes:
        mean: ``(K,)``, with respect to the policy's parameters.
        variance: mean squared distance of an estimate from the mean, the trace of its covariance.
    """

    mean: Tensor
    variance: float

    @property
    def noise(self) -> float:
        """Variance over the squared norm of the mean: free of the advantages' scale, which Adam divides out."""
        return self.variance / float(self.mean @ self.mean)

    def cosine(self, wanted: Tensor) -> float:
        """Return the cosine between the mean estimate and ``wanted (K,)``."""
        return float(self.mean @ wanted / (self.mean.norm() * wanted.norm()))


def true_gradient(lm: ToyLM, rewards: Tensor) -> Tensor:
    """Return the gradient of the expected reward, averaged over prompts, ``(K,)``; ``rewards (num_prompts, N)``."""
    return exact.gradient(exact.expectation(lm.distribution(), rewards).mean(), lm.table)


def token_scores(lm: ToyLM) -> Tensor:
    """Return the gradient of every token's log-probability, ``(num_prompts, N, L, K)``; 0 at padding."""
    logps = lm.completion_token_logps()
    rows = [exact.gradient(x, lm.table) for x in logps.flatten()]
    return torch.stack(rows).view(*logps.shape, -1)


def of_groups(lm: ToyLM, rewards: Tensor, advantage: Callable[[Tensor], Tensor], *, num_generations: int) -> Moments:
    """Return the moments of the estimator ``mean_i A_i ∇log π(y_i)`` over ``G`` completions of each prompt.

    The groups of a prompt are listed as multisets, because their order does not matter. The batches of several prompts
    are all combinations of groups. Prompts share no parameter of a ToyLM.

    Args:
        rewards: ``(num_prompts, N)``.
        advantage: ``(P, G) -> (P, G)``, for all prompts of a batch at once.
    """
    probs = lm.distribution().detach()  # (P, N)
    scores = token_scores(lm).sum(2)  # (P, N, K)
    count = lm.num_prompts
    members = torch.combinations(torch.arange(probs.shape[1]), num_generations, with_replacement=True)  # (M, G)
    multiplicity = (members[:, :, None] == members[:, None, :]).sum(-1).double()  # (M, G)
    log_orders = math.lgamma(num_generations + 1) - (torch.lgamma(multiplicity + 1) / multiplicity).sum(-1)  # log, (M,)
    group_probs = torch.stack([(p.log()[members].sum(-1) + log_orders).exp() for p in probs])  # (P, M)

    batches = torch.cartesian_prod(*[torch.arange(len(members))] * count).view(-1, count)  # (C, P)
    batch_probs = torch.stack([group_probs[p, batches[:, p]] for p in range(count)]).prod(0)  # (C,)
    indices = members[batches]  # (C, P, G)
    returns = torch.stack([rewards[p, indices[:, p]] for p in range(count)], 1)  # (C, P, G)
    factors = torch.stack([advantage(batch) for batch in returns]) if count > 1 else advantage(returns[:, 0])[:, None]
    factors = factors / (count * num_generations)  # (C, P, G)

    mean, second_moment = torch.zeros(scores.shape[-1], dtype=torch.float64), 0.0
    for p in range(count):
        weighted = (batch_probs[:, None] * factors[:, p]).flatten()
        mean += (
            torch.zeros(probs.shape[1], dtype=torch.float64).index_add(0, indices[:, p].flatten(), weighted) @ scores[p]
        )
        products = scores[p] @ scores[p].T  # (N, N)
        for i, j in itertools.product(range(num_generations), repeat=2):
            overlap = products[indices[:, p, i], indices[:, p, j]]
            second_moment += float((batch_probs * factors[:, p, i] * factors[:, p, j] * overlap).sum())
    return Moments(mean, second_moment - float(mean @ mean))


def of_tokens(lm: ToyLM, advantages: Tensor, *, num_samples: int, sampler: Tensor | None = None) -> Moments:
    """Return the moments of ``mean_i Σ_t A_t ∇log π(y_t)`` over independent samples, with one advantage per token.

    Args:
        advantages: ``(N, L)``, of every token of every completion of the single prompt; they depend on no other sample.
        sampler: ``(N,)``, probabilities of the completions under the behaviour policy; None: ``lm`` itself.
    """
    estimates = (token_scores(lm)[0] * advantages[..., None]).sum(1)  # (N, K)
    probs = lm.distribution()[0].detach() if sampler is None else sampler
    mean = probs @ estimates
    variance = float(probs @ (estimates - mean).square().sum(-1))
    return Moments(mean, variance / num_samples)
