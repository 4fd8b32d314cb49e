# ---
# title: Bug hunt: the first update
# kind: bughunt
# minutes: 30
# ---

# %% [statement]
# This function computes the loss of PPO, from the logits of the model to one number. The completions were sampled at `temperature`. `old_logps` are the
# log-probabilities of their tokens under the policy *at that temperature*, recorded while sampling. So before the first update, with the weights
# that sampled, every ratio must be exactly 1, and the loss must be the mean of $-A$ over the tokens.
#
# `logits` are the model's outputs at every position of `ids`, prompt and completion together: `logits[:, s]` predicts the token at
# `s + 1`. The completion is the last `T` tokens of each row. `mask` is True on its own tokens; elsewhere the other arguments may be NaN, and the gradient in the logits is still finite.
#
# The function runs. Its loss falls. **There are three bugs. Find and fix them.** Each of them is a common mistake.

# %% [given]
import torch


# %% [stub]
def ppo_loss(logits, ids, old_logps, advantages, mask, temperature, epsilon):
    """logits: (B, S, V). ids: (B, S). old_logps, advantages, mask: (B, T), T < S. Returns a scalar, to be minimised."""
    width = old_logps.shape[1]
    all_logps = torch.log_softmax(logits, -1)[:, -width:]
    logps = all_logps.gather(-1, ids[:, -width:, None]).squeeze(-1)
    ratio = torch.exp(logps - old_logps)
    clipped = ratio.clamp(1 - epsilon, 1 + epsilon)
    objective = torch.maximum(ratio * advantages, clipped * advantages)
    return -objective[mask].mean()


# %% [solution]
def ppo_loss(logits, ids, old_logps, advantages, mask, temperature, epsilon):
    width = old_logps.shape[1]
    # Select before the softmax: behind a NaN the gradient is NaN, even if its weight is 0.
    all_logps = torch.log_softmax(logits[:, -width - 1 : -1][mask] / temperature, -1)
    logps = all_logps.gather(-1, ids[:, -width:][mask][:, None]).squeeze(-1)
    ratio = torch.exp(logps - old_logps[mask])
    clipped = ratio.clamp(1 - epsilon, 1 + epsilon)
    return -torch.minimum(ratio * advantages[mask], clipped * advantages[mask]).mean()


# %% [tests]
import math

import torch
from minirlhf_course.classroom.testing import expect, fail, test, tidy

EPSILON = 0.2


def problem(draw):
    """Return a batch of two rows: a prompt of two tokens, a completion of three, the second one shorter."""
    ids = torch.tensor([[draw.integer(0, 2) for _ in range(5)] for _ in range(2)])
    mask = torch.tensor([[True, True, True], [True, True, False]])
    return tidy(draw.normal(2, 5, 3, scale=1.5)), ids, mask


def token_logps(logits, ids, temperature, shift=1):
    """Return the log of the softmax's entry, token by token from the definition."""
    result = torch.zeros(2, 3, dtype=torch.float64)
    for b in range(2):
        for t in range(3):
            scores = logits[b, 2 + t - shift] / temperature
            result[b, t] = scores[ids[b, 2 + t]] - scores.exp().sum().log()
    return result


def loss(logps, old_logps, advantages, mask, pick):
    ratio = (logps - old_logps).exp()
    return -pick(ratio * advantages, ratio.clamp(1 - EPSILON, 1 + EPSILON) * advantages)[mask].mean()


def first_update(sub, draw, temperature, mistakes):
    """Compare the loss before the first update; advantages are positive, so every wrong ratio shows."""
    logits, ids, mask = problem(draw)
    old = token_logps(logits, ids, temperature)
    advantages = tidy(draw.uniform(2, 3, low=0.5, high=2.0))
    wrong = {
        name: loss(token_logps(logits, ids, *args), old, advantages, mask, pick)
        for name, (args, pick) in mistakes.items()
    }
    wrong |= {
        "padding is counted in the mean": -advantages[mask].sum() / mask.numel(),
        "the clip acts on ratio · A; it must act on the ratio alone": -torch.minimum(
            advantages, advantages.clamp(1 - EPSILON, 1 + EPSILON)
        )[mask].mean(),
        "the log-probabilities are divided by the temperature, not the logits": loss(
            token_logps(logits, ids, 1.0) / temperature, old, advantages, mask, torch.minimum
        ),
    }
    expect(
        sub.ppo_loss(logits, ids, old, advantages, mask, temperature, EPSILON),
        -advantages[mask].mean(),
        what="the loss before the first update",
        given={"logits": logits, "ids": ids, "old_logps": old, "advantages": advantages, "temperature": temperature},
        mistakes=wrong,
    )


@test(
    points=1,
    hints=(
        "With temperature 1 and the weights that sampled, the ratios should be 1. They are not: which logits belong to which token?",
        "`logits[:, s]` predicts the token at s + 1. So the logits of the last T tokens begin one position earlier, and the very last "
        "logits predict a token that is not there.",
    ),
)
def aligned(sub, draw):
    "At temperature 1, before the first update, every ratio is 1."
    first_update(
        sub,
        draw,
        1.0,
        {
            "the logits that follow a token are used in place of the logits that chose it": ((1.0, 0), torch.minimum),
            "the logits that follow a token are used in place of the logits that chose it, with the maximum": (
                (1.0, 0),
                torch.maximum,
            ),
        },
    )


@test(
    points=1,
    hints=(
        "At another temperature the ratio is wrong again, although no weight has changed. What does the sampler do to the logits, and your code does not?",
        "`old_logps` come from softmax(logits / temperature).",
    ),
)
def at_its_temperature(sub, draw):
    "At any temperature, before the first update, every ratio is 1."
    temperature = float(tidy(draw.uniform(low=0.5, high=0.8)))
    first_update(
        sub,
        draw,
        temperature,
        {
            "the temperature is forgotten": ((1.0,), torch.minimum),
            "the temperature is forgotten, and the maximum is taken": ((1.0,), torch.maximum),
            "the logits are multiplied by the temperature": ((1 / temperature,), torch.minimum),
        },
    )


@test(
    points=2,
    hints=(
        "The clip is pessimistic. It has two estimates of the gain of a step: which one does a pessimist use?",
        "A good token gains nothing beyond 1 + ε. With the maximum it gains without limit, and a bad token that has become rare "
        "enough keeps its gradient. Select by the mask before you compute: 0 times NaN is NaN in a gradient, too.",
    ),
)
def pessimistic(sub, draw):
    "Later in a rollout, the loss uses the smaller of the two terms."
    logits, ids, mask = problem(draw)
    temperature = float(tidy(draw.uniform(low=0.6, high=0.9)))
    logps = token_logps(logits, ids, temperature)
    ratio = torch.stack([draw.uniform(3, low=1.4, high=2.0), draw.uniform(3, low=0.3, high=0.7)])
    signs = torch.tensor([[1.0, -1.0, 1.0], [1.0, -1.0, 1.0]])
    advantages = tidy(draw.uniform(2, 3, low=0.5, high=2.0)) * signs
    old = logps - ratio.log()
    expect(
        sub.ppo_loss(logits, ids, old, advantages, mask, temperature, EPSILON),
        loss(logps, old, advantages, mask, torch.minimum),
        what="the loss",
        given={"ratio": ratio, "advantages": advantages},
        mistakes={
            "the maximum is taken": loss(logps, old, advantages, mask, torch.maximum),
            "nothing is clipped": loss(logps, old, advantages, mask, lambda plain, _: plain),
            "the clipped term alone is taken: no way back from outside": loss(
                logps, old, advantages, mask, lambda _, clipped: clipped
            ),
        },
    )
    empty = logits.clone()
    empty[1, 3] = math.nan  # these logits predict the last token of row 1, which is padding
    junk = [torch.where(mask, x, math.nan) for x in (old, advantages)]
    slopes = sub.aside.gradient("ppo_loss", empty, ids, *junk, mask, temperature, EPSILON, wrt=0)
    if isinstance(slopes, torch.Tensor) and not bool(slopes.isfinite().all()):
        fail("the gradient of the loss in the logits is not finite where the padding holds NaN", yours=slopes)


# %% [probes]
# no gradient of ppo_loss.old_logps, ppo_loss.advantages: data, cut off or not


# %% [mutant] still one token off
# caught by: aligned
# says: that follow a token
def ppo_loss(logits, ids, old_logps, advantages, mask, temperature, epsilon):
    width = old_logps.shape[1]
    all_logps = torch.log_softmax(logits / temperature, -1)[:, -width:]
    logps = all_logps.gather(-1, ids[:, -width:, None]).squeeze(-1)
    ratio = torch.exp(logps - old_logps)
    return -torch.minimum(ratio * advantages, ratio.clamp(1 - epsilon, 1 + epsilon) * advantages)[mask].mean()


# %% [mutant] the temperature still forgotten
# caught by: at_its_temperature
# says: the temperature is forgotten
def ppo_loss(logits, ids, old_logps, advantages, mask, temperature, epsilon):
    width = old_logps.shape[1]
    all_logps = torch.log_softmax(logits, -1)[:, -width - 1 : -1]
    logps = all_logps.gather(-1, ids[:, -width:, None]).squeeze(-1)
    ratio = torch.exp(logps - old_logps)
    return -torch.minimum(ratio * advantages, ratio.clamp(1 - epsilon, 1 + epsilon) * advantages)[mask].mean()


# %% [mutant] the temperature on the wrong side
# caught by: at_its_temperature
# says: multiplied by the temperature
def ppo_loss(logits, ids, old_logps, advantages, mask, temperature, epsilon):
    width = old_logps.shape[1]
    all_logps = torch.log_softmax(logits * temperature, -1)[:, -width - 1 : -1]
    logps = all_logps.gather(-1, ids[:, -width:, None]).squeeze(-1)
    ratio = torch.exp(logps - old_logps)
    return -torch.minimum(ratio * advantages, ratio.clamp(1 - epsilon, 1 + epsilon) * advantages)[mask].mean()


# %% [mutant] still the maximum
# caught by: pessimistic
# says: the maximum is taken
def ppo_loss(logits, ids, old_logps, advantages, mask, temperature, epsilon):
    width = old_logps.shape[1]
    all_logps = torch.log_softmax(logits / temperature, -1)[:, -width - 1 : -1]
    logps = all_logps.gather(-1, ids[:, -width:, None]).squeeze(-1)
    ratio = torch.exp(logps - old_logps)
    return -torch.maximum(ratio * advantages, ratio.clamp(1 - epsilon, 1 + epsilon) * advantages)[mask].mean()


# %% [mutant] only the clipped term
# caught by: pessimistic
# says: no way back
def ppo_loss(logits, ids, old_logps, advantages, mask, temperature, epsilon):
    width = old_logps.shape[1]
    all_logps = torch.log_softmax(logits / temperature, -1)[:, -width - 1 : -1]
    logps = all_logps.gather(-1, ids[:, -width:, None]).squeeze(-1)
    ratio = torch.exp(logps - old_logps)
    return -(ratio.clamp(1 - epsilon, 1 + epsilon) * advantages)[mask].mean()


# %% [partial] 2: log-probabilities repaired, objective not
def ppo_loss(logits, ids, old_logps, advantages, mask, temperature, epsilon):
    width = old_logps.shape[1]
    all_logps = torch.log_softmax(logits / temperature, -1)[:, -width - 1 : -1]
    logps = all_logps.gather(-1, ids[:, -width:, None]).squeeze(-1)
    ratio = torch.exp(logps - old_logps)
    return -torch.maximum(ratio * advantages, ratio.clamp(1 - epsilon, 1 + epsilon) * advantages)[mask].mean()
