"""Your submission: change `train`, then run `minirlhf challenge score mine.py --seed 0`.

This version tilts the reference towards the proxy, as far as the KL limit allows. It buys no labels.
"""

import torch


def train(*, ref_logps, counts, proxy, label, num_labels, kl_limit, seed):
    """Return a policy with much gold reward within the KL limit.

    Args:
        ref_logps: (791,), log-probabilities under the reference policy.
        counts: (791, 7), how often each word occurs in a completion.
        proxy: (791,), proxy rewards.
        label: `label([3, 3, 8])` returns a list of three noisy gold rewards.
        num_labels: how many `label` gives in all; more raise an error.
        kl_limit: the largest allowed KL divergence from the reference, in nats.
        seed: the seed of every random number that you use.

    Returns:
        (791,), the logits of your policy.
    """
    tilted = lambda strength: ref_logps + strength * proxy
    return within_limit(tilted, ref_logps, kl_limit)


def within_limit(policy, ref_logps, kl_limit):
    """Return `policy(strength)` at the largest strength whose KL is within the limit."""
    low, high = 0.0, 1000.0
    for _ in range(60):
        middle = (low + high) / 2
        inside = kl(policy(middle), ref_logps) <= kl_limit
        low, high = (middle, high) if inside else (low, middle)
    return policy(low)


def kl(logits, ref_logps):
    """Return KL(policy || reference) in nats."""
    logps = torch.log_softmax(logits, -1)
    return float((logps.exp() * (logps - ref_logps)).sum())
