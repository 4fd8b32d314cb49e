# ---
# title: Thumbs up, thumbs down
# kind: implement
# minutes: 25
# ---

# %% [statement]
# KTO learns from single answers with a thumb. With the log-ratio $\rho = \log\frac{\pi(y)}{\pi_\text{ref}(y)}$ and a reference point $z_0$,
#
# $$\ell = \begin{cases} \lambda_D\,[1 - \sigma(\beta(\rho - z_0))] & \text{thumb up} \\
# \lambda_U\,[1 - \sigma(\beta(z_0 - \rho))] & \text{thumb down.} \end{cases}$$
#
# $z_0$ stands for $\mathrm{KL}(\pi\|\pi_\text{ref})$. It is estimated from *mismatched* answers, each paired with somebody else's prompt: the mean of
# their log-ratios over the *whole* batch, 0 if that is negative, and no gradient flows through it.
#
# 1. `reference_point(logps, ref_logps)`: $z_0$ from the log-probabilities `(M,)` of mismatched answers. One number.
# 2. `kto_loss(logps, ref_logps, up, beta, weight_up, weight_down)`: the loss of each answer, `(B,)`. All went through the model together: of the `B + M`
#    log-probabilities the first `B` are the answers', the others are mismatched. `up` is `(B,)` bool.
#
# The last test asks how hard your loss pushes on each answer, and whether it leaves the mismatched ones alone.

# %% [given]
import torch


# %% [stub]
def reference_point(logps, ref_logps):
    """KTO's z₀ from mismatched answers, (M,) each. Returns one number, without gradient."""
    raise NotImplementedError


def kto_loss(logps, ref_logps, up, beta, weight_up, weight_down):
    """KTO's loss of each answer. logps, ref_logps: (B + M,), answers first. up: (B,) bool. Returns (B,)."""
    raise NotImplementedError


# %% [solution]
def reference_point(logps, ref_logps):
    return (logps - ref_logps).mean().clamp(min=0).detach()


def kto_loss(logps, ref_logps, up, beta, weight_up, weight_down):
    size = len(up)
    point = reference_point(logps[size:], ref_logps[size:])
    excess = beta * (logps[:size] - ref_logps[:size] - point)
    return torch.where(up, weight_up * torch.sigmoid(-excess), weight_down * torch.sigmoid(excess))


# %% [tests]
import math

import torch

from minirlhf.classroom.testing import expect, test, tidy


def batch(draw):
    """Two answers of each kind, mismatched ones with a positive mean log-ratio, and the numbers of the loss."""
    logps, ref = tidy(-draw.uniform(4, low=1.0, high=5.0)), tidy(-draw.uniform(4, low=1.0, high=5.0))
    other_ref = tidy(-draw.uniform(3, low=2.0, high=5.0))
    other = other_ref + tidy(draw.uniform(3, low=0.4, high=1.5))
    up = torch.tensor([True, False, True, False])[draw.permutation(4)]
    return (
        logps,
        ref,
        up,
        other,
        other_ref,
        [0.3, 0.5, 2.0][draw.integer(0, 2)],
        1.0,
        [1.3, 1.5, 2.0][draw.integer(0, 2)],
    )


def asked(logps, ref, up, other, other_ref, *numbers):
    """The arguments of `kto_loss`, and the same by name."""
    args = (torch.cat([logps, other]), torch.cat([ref, other_ref]), up, *numbers)
    return args, dict(zip(("logps", "ref_logps", "up", "beta", "weight_up", "weight_down"), args, strict=True))


def value(args, point):
    """The loss of each answer, one at a time."""
    logps, ref, up, _, _, beta, weight_up, weight_down = args
    rows = []
    for policy, reference, good in zip(logps.tolist(), ref.tolist(), up.tolist(), strict=True):
        gain = beta * (policy - reference - point) * (1 if good else -1)
        rows.append((weight_up if good else weight_down) * (1 - 1 / (1 + math.exp(-gain))))
    return torch.tensor(rows, dtype=torch.float64)


@test(
    points=2,
    hints=(
        "A KL divergence is never negative; an estimate of it from few samples may be.",
        "Mean of the log-ratios, policy minus reference, then `clamp(min=0)`.",
    ),
)
def the_point(sub, draw):
    "`reference_point` is the mean log-ratio, and 0 if that is negative."
    _, _, _, other, other_ref, *_ = batch(draw)
    given = {"logps": other, "ref_logps": other_ref}
    expect(
        sub.reference_point(other, other_ref),
        (other - other_ref).sum() / 3,
        what="the reference point",
        given=given,
        mistakes={
            "it is a sum, not a mean": (other - other_ref).sum(),
            "policy and reference are swapped": 0.0,
        },
    )
    expect(
        sub.reference_point(other_ref, other),
        0.0,
        what="the reference point of answers that the policy likes less than the reference does",
        given={"logps": other_ref, "ref_logps": other},
        mistakes={"it is not held at 0": -(other - other_ref).mean()},
    )


@test(
    points=2,
    hints=(
        "Work out one answer of each kind by hand. Which of the two should have the smaller loss when its log-ratio grows?",
        "1 − σ(u) = σ(−u). β multiplies the whole difference of log-ratio and z₀, and each kind has its own weight.",
    ),
)
def the_loss(sub, draw):
    "`kto_loss` is the weight minus the weighted value, for both kinds."
    args = batch(draw)
    logps, ref, up, other, other_ref, beta, weight_up, weight_down = args
    point = float((other - other_ref).mean())
    swapped = (logps, ref, ~up, other, other_ref, beta, weight_down, weight_up)
    sent, given = asked(*args)
    expect(
        sub.kto_loss(*sent),
        value(args, point),
        what="the loss",
        given=given,
        mistakes={
            "the reference point is left out": value(args, 0.0),
            "β is on the log-ratio only": value(args, point / beta),
            "thumbs up are treated as thumbs down": value(swapped, point),
            "both kinds have one weight": value((*args[:7], weight_up), point),
        },
    )


@test(
    points=2,
    against="the logistic density",
    hints=(
        "If the reference point moves with the policy, the loss can be lowered by moving *it*. The paper holds it still.",
        "`detach()` the reference point. Then the slope in each log-probability is ∓β times weight times σ(1 − σ) at its own gain.",
    ),
)
def still(sub, draw):
    "The reference point is held still, and answers far from it are hardly pushed."
    args = batch(draw)
    logps, ref, up, other, other_ref, beta, weight_up, weight_down = args
    sent, given = asked(*args)
    slope = sub.gradient("kto_loss", *sent, wrt=0)
    gain = beta * (logps - ref - (other - other_ref).mean())
    push = torch.where(up, -weight_up, weight_down) * beta / (4 * torch.cosh(gain / 2) ** 2)
    expect(
        slope,
        torch.cat([push, torch.zeros(3, dtype=torch.float64)]),
        what="the slope of the loss in the log-probabilities",
        given=given,
        mistakes={
            "a gradient flows through the reference point": torch.cat([push, (-push.sum() / 3).expand(3)]),
        },
    )


# %% [probes]
# no gradient of reference_point: `kto_loss` may cut it off, a test looks there
# no gradient of kto_loss.ref_logps: data, cut off or not


# %% [mutant] not clamped
# caught by: the_point
# says: not held at 0
def reference_point(logps, ref_logps):
    return (logps - ref_logps).mean().detach()


# %% [mutant] a sum
# caught by: the_point
# says: a sum
def reference_point(logps, ref_logps):
    return (logps - ref_logps).sum().clamp(min=0).detach()


# %% [mutant] no reference point
# caught by: the_loss
# says: left out
def kto_loss(logps, ref_logps, up, beta, weight_up, weight_down):
    excess = beta * (logps - ref_logps)[: len(up)]
    return torch.where(up, weight_up * torch.sigmoid(-excess), weight_down * torch.sigmoid(excess))


# %% [mutant] β on one term
# caught by: the_loss
# says: log-ratio only
def kto_loss(logps, ref_logps, up, beta, weight_up, weight_down):
    size = len(up)
    excess = beta * (logps[:size] - ref_logps[:size]) - reference_point(logps[size:], ref_logps[size:])
    return torch.where(up, weight_up * torch.sigmoid(-excess), weight_down * torch.sigmoid(excess))


# %% [mutant] one weight
# caught by: the_loss
# says: one weight
def kto_loss(logps, ref_logps, up, beta, weight_up, weight_down):
    size = len(up)
    point = reference_point(logps[size:], ref_logps[size:])
    excess = beta * (logps[:size] - ref_logps[:size] - point)
    return weight_up * torch.where(up, torch.sigmoid(-excess), torch.sigmoid(excess))


# %% [mutant] gradient through the reference point
# caught by: still
# says: flows through
def reference_point(logps, ref_logps):
    return (logps - ref_logps).mean().clamp(min=0)


# %% [partial] 4: right, but the reference point is not held still
def reference_point(logps, ref_logps):
    return (logps - ref_logps).mean().clamp(min=0)


# %% [partial] 2: only the reference point
def kto_loss(logps, ref_logps, up, beta, weight_up, weight_down):
    raise NotImplementedError
