# ---
# title: Gradients of imitation, avoidance and preference
# kind: derive
# minutes: 30
# ---

# %% [statement]
# A model chooses among $n$ completions with probabilities $p = \mathrm{softmax}(z)$. One step of gradient descent on a loss moves the
# logits $z$ along $-\partial\,\text{loss}/\partial z$. This vector is the *update direction*. Three kinds of feedback give three losses:
#
# | feedback | loss |
# |---|---|
# | "write this", completion $g$ | $-\log p_g$ |
# | "do not write this", completion $b$ | $+\log p_b$ |
# | "this, $c$, rather than that, $r$" | $-\log \sigma(\log p_c - \log p_r)$, with $\sigma(x) = 1/(1+e^{-x})$ |
#
# **Derive the three update directions** and write them as functions of the logits. Each returns a vector of the shape of `logits`.
#
# 1. `imitate(logits, good)`
# 2. `avoid(logits, bad)`
# 3. `prefer(logits, chosen, rejected)`
#
# Then look at what each direction does to the logit of a completion that the feedback does not mention. A completion whose logit falls can become
# *more probable*, if other logits fall faster. Which completions gain when a rare one is imitated?

# %% [given]
import torch


# %% [stub]
def imitate(logits, good):
    """Return −∂/∂z of the loss −log p[good]. logits: (n,). good: an index. Returns (n,)."""
    raise NotImplementedError


def avoid(logits, bad):
    """Return −∂/∂z of the loss +log p[bad]. Returns (n,)."""
    raise NotImplementedError


def prefer(logits, chosen, rejected):
    """Return −∂/∂z of the loss −log σ(log p[chosen] − log p[rejected]). Returns (n,)."""
    raise NotImplementedError


# %% [solution]
def one_hot(index, logits):
    return torch.nn.functional.one_hot(torch.tensor(index), len(logits)).to(logits.dtype)


def imitate(logits, good):
    return one_hot(good, logits) - torch.softmax(logits, -1)


def avoid(logits, bad):
    return torch.softmax(logits, -1) - one_hot(bad, logits)


def prefer(logits, chosen, rejected):
    loser_prob = torch.sigmoid(logits[rejected] - logits[chosen])
    return loser_prob * (one_hot(chosen, logits) - one_hot(rejected, logits))


# %% [tests]
import torch
from minirlhf.core import exact
from minirlhf_course.classroom.testing import expect, test, tidy


def problem(draw):
    """Return four logits, and two different completions."""
    first, second = draw.permutation(4)[:2].tolist()
    return tidy(draw.normal(4)), first, second


def log_p(z, i):
    return z[i] - z.exp().sum().log()


def unit(*pairs):
    vector = torch.zeros(4, dtype=torch.float64)
    for index, value in pairs:
        vector[index] += value
    return vector


@test(
    points=2,
    against="finite differences of the loss",
    hints=(
        "log p_g is z_g minus the logarithm of a sum of exponentials. Differentiate both parts. The derivative of the "
        "second part is something familiar.",
        "The derivative of log Σ exp(z) in z_i is p_i. So every logit falls by its own probability, and one of them also rises "
        "by 1.",
    ),
)
def imitation(sub, draw):
    "`imitate` raises the logit of the demonstrated completion and lowers all other logits."
    z, good, _ = problem(draw)
    right = exact.finite_difference(lambda x: log_p(x, good), z)
    p = z.softmax(-1)
    expect(
        sub.imitate(z, good),
        right,
        what="the update direction",
        given={"logits": z, "good": good},
        tolerance=1e-6,
        mistakes={
            "the gradient is followed uphill: the loss would rise": -right,
            "the other completions do not move": unit((good, 1.0)),
            "only the good completion's own logit is moved": unit((good, float(1 - p[good]))),
            "the derivative of p is taken, not of log p": p[good] * right,
        },
    )


@test(
    points=1,
    against="finite differences of the loss",
    hints=(
        "Compare this loss with the first one. You have already done the work.",
        "The loss has the opposite sign, so the direction has too. Every other logit rises by its completion's probability. The probability itself "
        "mostly goes to the most probable of the others, because its logit rises fastest.",
    ),
)
def avoidance(sub, draw):
    "`avoid` lowers the logit of the bad completion and raises all other logits."
    z, bad, _ = problem(draw)
    right = -exact.finite_difference(lambda x: log_p(x, bad), z)
    expect(
        sub.avoid(z, bad),
        right,
        what="the update direction",
        given={"logits": z, "bad": bad},
        tolerance=1e-6,
        mistakes={
            "the bad completion's own logit is raised, too": z.softmax(-1) + unit((bad, 1.0)),
            "the bad completion is imitated": -right,
            "the other completions do not move": unit((bad, -1.0)),
        },
    )


@test(
    points=2,
    against="finite differences of the loss",
    hints=(
        "In log p_c − log p_r the sum of exponentials cancels. What is left is a difference of two logits.",
        "The derivative of log σ(x) is σ(−x): large if the model prefers the rejected completion, nearly zero if it already agrees. "
        "Two logits move in opposite directions, and no third logit moves.",
    ),
)
def preference(sub, draw):
    "`prefer` raises the chosen logit and lowers the rejected one, by an amount that grows with the model's disagreement."
    z, chosen, rejected = problem(draw)
    right = exact.finite_difference(lambda x: -torch.log1p((log_p(x, rejected) - log_p(x, chosen)).exp()), z)
    margin = z[chosen] - z[rejected]
    apart = unit((chosen, 1.0), (rejected, -1.0))
    expect(
        sub.prefer(z, chosen, rejected),
        right,
        what="the update direction",
        given={"logits": z, "chosen": chosen, "rejected": rejected},
        tolerance=1e-6,
        mistakes={
            "the gradient is followed uphill: the loss would rise": -right,
            "the strength is σ of the margin: it is largest where the model already agrees": torch.sigmoid(margin)
            * apart,
            "the strength is always one, however certain the model is": apart,
            "the rejected completion falls like all others": torch.sigmoid(-margin)
            * (unit((chosen, 1.0)) - z.softmax(-1)),
            "only the chosen completion is moved": unit((chosen, float(torch.sigmoid(-margin)))),
        },
    )


# %% [probes]
# range 1e-4 to 100: gradients are the subject, and a plain exponential is right
# no offset: the same
# no gradient: a formula is asked for, in whatever library


# %% [mutant] uphill
# caught by: imitation
# says: uphill
def imitate(logits, good):
    return torch.softmax(logits, -1) - one_hot(good, logits)


# %% [mutant] the other completions do not move
# caught by: imitation
# says: do not move
def imitate(logits, good):
    return one_hot(good, logits)


# %% [mutant] avoiding only the one completion
# caught by: avoidance
# says: do not move
def avoid(logits, bad):
    return -one_hot(bad, logits)


# %% [mutant] the derivative of p instead of log p
# caught by: imitation
# says: the derivative of p is taken
def imitate(logits, good):
    p = torch.softmax(logits, -1)
    return p[good] * (one_hot(good, logits) - p)


# %% [mutant] strongest where the model already agrees
# caught by: preference
# says: already agrees
def prefer(logits, chosen, rejected):
    return torch.sigmoid(logits[chosen] - logits[rejected]) * (one_hot(chosen, logits) - one_hot(rejected, logits))


# %% [mutant] a constant strength
# caught by: preference
# says: always one
def prefer(logits, chosen, rejected):
    return one_hot(chosen, logits) - one_hot(rejected, logits)


# %% [partial] 3: single completions are right, pairs are not
def prefer(logits, chosen, rejected):
    return imitate(logits, chosen) + avoid(logits, rejected)


# %% [partial] 2: only imitation
def avoid(logits, bad):
    raise NotImplementedError


def prefer(logits, chosen, rejected):
    raise NotImplementedError
