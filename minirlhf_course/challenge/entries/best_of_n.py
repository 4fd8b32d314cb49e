"""Best-of-n on the proxy: sample n completions, keep the best, with the largest n within the KL limit.

The distribution of the best of n samples is computed exactly. It buys no labels.
"""

import torch


def train(*, ref_logps, counts, proxy, label, num_labels, kl_limit, seed):
    """Return the logits (791,) of the best of n samples."""
    policy, n = ref_logps, 1
    while True:
        candidate = best_of(n + 1, ref_logps.exp(), proxy)
        if kl(candidate, ref_logps) > kl_limit:
            return policy.log()
        policy, n = candidate, n + 1


def best_of(n, probs, proxy):
    """Return the distribution (791,) of the sample with the largest proxy among n; a tie is won in proportion to `probs`.

    The maximum is at most r with probability P(proxy <= r)^n.
    """
    levels, level_of = torch.unique(proxy, return_inverse=True)  # ascending
    mass = torch.zeros(len(levels), dtype=torch.float64).index_add(0, level_of, probs)
    at_most = mass.cumsum(0).clamp(max=1) ** n
    level_probs = torch.diff(at_most, prepend=torch.zeros(1, dtype=torch.float64))
    return (level_probs / mass)[level_of] * probs


def kl(probs, ref_logps):
    """Return KL(policy || reference) in nats."""
    return float((torch.xlogy(probs, probs) - probs * ref_logps).sum())
