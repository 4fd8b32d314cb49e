"""REINFORCE on the proxy with a KL penalty, from samples, until the KL limit is reached. It buys no labels."""

import torch

STEPS, BATCH, LEARNING_RATE, BETA = 400, 64, 0.5, 0.1


def train(*, ref_logps, counts, proxy, label, num_labels, kl_limit, seed):
    """Return the logits (791,) of the last policy within the KL limit."""
    generator = torch.Generator().manual_seed(seed)
    # The correction is linear in three properties of each word, as in a small network: it occurs, how often, and twice.
    inputs = torch.cat([counts.clamp(max=1), counts, (counts >= 2).double()], 1)
    weights = torch.zeros(inputs.shape[1], dtype=torch.float64)
    logps = ref_logps
    for _ in range(STEPS):
        probs = logps.exp()
        samples = torch.multinomial(probs, BATCH, replacement=True, generator=generator)
        rewards = proxy[samples] - BETA * (logps - ref_logps)[samples]
        advantages = rewards - rewards.mean()
        grad_logps = inputs[samples] - probs @ inputs  # of log pi(sample), in the weights
        weights = weights + LEARNING_RATE * (advantages[:, None] * grad_logps).mean(0)
        candidate = torch.log_softmax(ref_logps + inputs @ weights, -1)
        if float((candidate.exp() * (candidate - ref_logps)).sum()) > kl_limit:
            break
        logps = candidate
    return logps
