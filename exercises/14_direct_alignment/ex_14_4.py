# ---
# title: Binary feedback with loss aversion
# kind: implement
# minutes: 30
# ---

# %% [statement]
# KTO's loss is a weight minus a weighted *value* of the completion's log-ratio $\rho = \log\frac{\pi(y)}{\pi_\text{ref}(y)}$, relative to a reference point $z_0$. The chapter's value function is logistic, and treats gains and losses alike. In prospect theory losses
# weigh more. Kahneman and Tversky's value function is a power of the gain or loss and has no bound. Here is a bounded function with their loss aversion, where $x$ is the distance from the reference point:
#
# $$v(x) = \begin{cases} 1 - e^{-x} & x \ge 0 \\ -\lambda\,(1 - e^{x}) & x < 0. \end{cases}$$
#
# It has a kink at 0: a loss hurts $\lambda > 1$ times as much as a gain of the same size pleases. For a completion with a thumb up $x = \beta(\rho - z_0)$, with a thumb down $x = \beta(z_0 - \rho)$. The loss of a
# completion is $-v(x)$. (The weights of both thumbs are 1.)
#
# 1. `losses(logps, ref_logps, up, point, beta, aversion)`: the loss of each completion, `(B,)`; `point` is $z_0$, one number, `aversion` is $\lambda$;
# 2. `pushes(logps, ref_logps, up, point, beta, aversion)`: minus the derivative of each completion's loss in its own log-probability, the direction of a step of gradient descent. Write a formula;
# 3. `batch_loss(logps, ref_logps, up, beta, aversion)`: the mean loss of a batch. All went through the model together: the first `B` of the `B + M` log-probabilities belong to the completions, the rest to
#    *mismatched* completions, which give $z_0$ as in the chapter. No gradient flows through $z_0$. A test differentiates.
#
# Then look at 2: which completions get the largest gradient, and on which side of the reference point is it $\lambda$ times as large?

# %% [given]
import torch


# %% [stub]
def losses(logps, ref_logps, up, point, beta, aversion):
    """Return -v of each completion, (B,). logps, ref_logps: (B,). up: (B,) bool. point, beta, aversion: numbers."""
    raise NotImplementedError


def pushes(logps, ref_logps, up, point, beta, aversion):
    """Return minus the derivative of each loss in its own logps, (B,)."""
    raise NotImplementedError


def batch_loss(logps, ref_logps, up, beta, aversion):
    """Return the mean loss of the first B of (B + M,) completions, one number; the rest give the reference point."""
    raise NotImplementedError


# %% [solution]
def _distance(logps, ref_logps, up, point, beta):
    return torch.where(up, 1.0, -1.0).to(logps.dtype) * beta * (logps - ref_logps - point)


def losses(logps, ref_logps, up, point, beta, aversion):
    x = _distance(logps, ref_logps, up, point, beta)
    bounded = 1 - torch.exp(-x.abs())
    return torch.where(x >= 0, -bounded, aversion * bounded)


def pushes(logps, ref_logps, up, point, beta, aversion):
    x = _distance(logps, ref_logps, up, point, beta)
    size = beta * torch.exp(-x.abs()) * torch.where(x >= 0, 1.0, aversion).to(x.dtype)
    return torch.where(up, size, -size)


def batch_loss(logps, ref_logps, up, beta, aversion):
    size = len(up)
    point = (logps[size:] - ref_logps[size:]).mean().clamp(min=0).detach()
    return losses(logps[:size], ref_logps[:size], up, point, beta, aversion).mean()


# %% [tests]
import math

import torch
from minirlhf.core import exact
from minirlhf_course.classroom.testing import expect, test, tidy


def answers(draw):
    """Return eight completions: each thumb twice on each side of the reference point, at least 0.3 from it."""
    up = torch.tensor([True, True, True, True, False, False, False, False])
    far = tidy(draw.uniform(8, low=0.3, high=1.5)) * torch.tensor([1, 1, -1, -1, 1, 1, -1, -1], dtype=torch.float64)
    point = [0.4, 0.7, 1.0][draw.integer(0, 2)]
    ref = tidy(-draw.uniform(8, low=2.0, high=5.0))
    order = draw.permutation(8)
    beta, aversion = [0.5, 2.0][draw.integer(0, 1)], [1.5, 1.8, 3.0][draw.integer(0, 2)]
    return (ref + far + point)[order], ref[order], up[order], point, beta, aversion


def shown(*args):
    return dict(zip(("logps", "ref_logps", "up", "point", "beta", "aversion"), args, strict=True))


def one_by_one(logps, ref_logps, up, point, beta, aversion, value=None):
    """Return the loss, completion by completion, with numbers."""

    def curve(x):
        return 1 - math.exp(-x) if x >= 0 else -aversion * (1 - math.exp(x))

    rows = []
    for policy, reference, good in zip(logps.tolist(), ref_logps.tolist(), up.tolist(), strict=True):
        x = beta * (policy - reference - point) * (1 if good else -1)
        rows.append(-(value or curve)(x))
    return torch.tensor(rows, dtype=torch.float64)


@test(
    points=2,
    hints=(
        "Plot v. Put one completion of each thumb on each side of the reference point, and compute its x by hand.",
        "With b = 1 − exp(−|x|) the value is b on the side of gains and −λ b on the side of losses; the loss is minus the value. A thumb reverses the sign of x, not the sign of the loss.",
    ),
)
def four_cases(sub, draw):
    "`losses` is minus the value, for both thumbs on both sides of the reference point."
    args = answers(draw)
    logps, ref, up, point, beta, aversion = args
    expect(
        sub.losses(*args),
        one_by_one(*args),
        what="the losses",
        given=shown(*args),
        mistakes={
            "this is the value, not the loss": -one_by_one(*args),
            "losses hurt no more than gains please": one_by_one(logps, ref, up, point, beta, 1.0),
            "λ is 2.25, whatever is given": one_by_one(logps, ref, up, point, beta, 2.25),
            "λ weights the gains": one_by_one(
                *args, value=lambda x: aversion * (1 - math.exp(-x)) if x >= 0 else -(1 - math.exp(x))
            ),
            "λ weights thumbs down, not losses": torch.where(up, 1.0, aversion)
            * one_by_one(logps, ref, up, point, beta, 1.0),
            "both thumbs are treated alike": one_by_one(logps, ref, torch.ones_like(up), point, beta, aversion),
            "the thumb reverses the value; it must reverse the distance": torch.where(up, 1.0, -1.0)
            * one_by_one(logps, ref, torch.ones_like(up), point, beta, aversion),
            "the thumbs are exchanged": one_by_one(logps, ref, ~up, point, beta, aversion),
            "the reference point is left out": one_by_one(logps, ref, up, 0.0, beta, aversion),
            "β multiplies the log-ratio only": one_by_one(logps, ref, up, point / beta, beta, aversion),
            "β is left out": one_by_one(logps, ref, up, point, 1.0, aversion),
            "the value function is the chapter's logistic": one_by_one(*args, value=lambda x: 1 / (1 + math.exp(-x))),
            "the loss is a weight minus the value; here it is minus the value": 1 + one_by_one(*args),
        },
    )


@test(
    points=2,
    against="finite differences",
    hints=(
        "v' is e^(−x) for gains and λ e^x for losses: never negative. What is the effect of the thumb?",
        "The result is ± β e^(−|x|), times λ where x < 0; plus for a thumb up, minus for a thumb down.",
    ),
)
def a_formula(sub, draw):
    "`pushes` is minus the derivative of each loss in its own log-probability."
    args = answers(draw)
    logps, ref, up, point, beta, aversion = args
    slope = exact.finite_difference(lambda x: one_by_one(x, ref, up, point, beta, aversion).sum(), logps)
    x = torch.where(up, 1.0, -1.0) * beta * (logps - ref - point)
    plain = beta * (-x.abs()).exp()
    expect(
        sub.pushes(*args),
        -slope,
        what="the negative derivatives",
        given=shown(*args),
        mistakes={
            "this is the derivative of the loss: a step of descent goes the other way": slope,
            "every sign is positive, also for a thumb down": slope.abs(),
            "λ is missing on the side of losses": torch.where(up, plain, -plain),
            "λ is on the side of gains": torch.where(up, 1.0, -1.0) * plain * torch.where(x >= 0, aversion, 1.0),
            "λ is on the thumbs down, not on losses": torch.where(up, plain, -aversion * plain),
            "the factor β is lost": -slope / beta,
            "the exponential grows on the side of losses": torch.where(up, 1.0, -1.0)
            * beta
            * torch.where(x >= 0, 1.0, aversion)
            * (-x).exp(),
            "this is the value's distance from its bound, without the thumb's sign and β": -slope.abs() / beta,
        },
    )


@test(
    points=2,
    hints=(
        "If the reference point moves with the policy, moving *it* can lower the loss. Which line must not be differentiated?",
        "Mean log-ratio of the mismatched completions, not below 0, `detach()`. Then the gradient is minus part 2 over B for the completions, and 0 for the mismatched ones.",
    ),
)
def still(sub, draw):
    "`batch_loss` averages the losses of the completions, and keeps the reference point fixed."
    logps, ref, up, middle, beta, aversion = answers(draw)
    other_ref = tidy(-draw.uniform(3, low=2.0, high=5.0))
    for shift, said in (
        (0.0, ""),
        (-2.0, ", with mismatched completions that are less probable under the policy than under the reference,"),
    ):
        gaps = torch.tensor([1.5, -0.4, 0.8], dtype=torch.float64) + tidy(draw.uniform(3, high=0.2)) + shift
        other = other_ref + gaps
        point, raw = max(0.0, float(gaps.mean())), float(gaps.mean())
        sent = (torch.cat([logps, other]), torch.cat([ref, other_ref]), up, beta, aversion)
        given = dict(zip(("logps", "ref_logps", "up", "beta", "aversion"), sent, strict=True))

        def mean(z):
            return one_by_one(logps, ref, up, z, beta, aversion).mean()

        everybody = float((sent[0] - sent[1]).mean().clamp(min=0))
        expect(
            sub.batch_loss(*sent),
            mean(point),
            what=f"the mean loss{said}",
            given=given,
            mistakes={
                "the reference point is not held at 0": mean(raw),
                "the reference point is a sum, not a mean": mean(max(0.0, 3 * raw)),
                "every log-ratio is clamped at 0 individually": mean(float(gaps.clamp(min=0).mean())),
                "the reference point is the mean over all completions": mean(everybody),
                "there is no reference point": mean(0.0),
                "the losses are added, not averaged": 8 * mean(point),
            },
        )
    gaps = middle + torch.tensor([0.25, -0.15, -0.1], dtype=torch.float64)  # no completion is at the kink
    sent = (torch.cat([logps, other_ref + gaps]), torch.cat([ref, other_ref]), up, beta, aversion)
    near = exact.finite_difference(lambda x: one_by_one(x, ref, up, middle, beta, aversion).mean(), logps)
    expect(
        sub.gradient("batch_loss", *sent, wrt=0),
        torch.cat([near, torch.zeros(3, dtype=torch.float64)]),
        what="the gradient of the mean loss in the log-probabilities",
        given=dict(zip(("logps", "ref_logps", "up", "beta", "aversion"), sent, strict=True)),
        mistakes={
            "a gradient flows through the reference point": torch.cat([near, (-near.sum() / 3).expand(3)]),
        },
    )
    far = (torch.cat([logps - 2000.0 / beta, other_ref]), torch.cat([ref, other_ref]), up, beta, aversion)
    flat = torch.zeros(len(far[0]), dtype=torch.float64)
    expect(sub.gradient("batch_loss", *far, wrt=0), flat, what="the gradient of the mean loss, far from the kink")


# %% [probes]
# no gradient: a test differentiates `batch_loss`; the others are formulas


# %% [mutant] losses do not hurt more
# caught by: four_cases
# says: no more than gains please
def losses(logps, ref_logps, up, point, beta, aversion):
    x = _distance(logps, ref_logps, up, point, beta)
    return -torch.sign(x) * (1 - torch.exp(-x.abs()))


# %% [mutant] aversion to thumbs down
# caught by: four_cases
# says: weights thumbs down
def losses(logps, ref_logps, up, point, beta, aversion):
    x = _distance(logps, ref_logps, up, point, beta)
    return -torch.where(up, 1.0, aversion) * torch.sign(x) * (1 - torch.exp(-x.abs()))


# %% [mutant] the chapter's value
# caught by: four_cases
# says: logistic
def losses(logps, ref_logps, up, point, beta, aversion):
    return -torch.sigmoid(_distance(logps, ref_logps, up, point, beta))


# %% [mutant] every sign is positive
# caught by: a_formula
# says: also for a thumb down
def pushes(logps, ref_logps, up, point, beta, aversion):
    x = _distance(logps, ref_logps, up, point, beta)
    return beta * torch.exp(-x.abs()) * torch.where(x >= 0, 1.0, aversion)


# %% [mutant] the factor β lost
# caught by: a_formula
# says: the factor β is lost
def pushes(logps, ref_logps, up, point, beta, aversion):
    x = _distance(logps, ref_logps, up, point, beta)
    return torch.where(up, 1.0, -1.0) * torch.exp(-x.abs()) * torch.where(x >= 0, 1.0, aversion)


# %% [mutant] clamped one by one
# caught by: still
# says: individually
def batch_loss(logps, ref_logps, up, beta, aversion):
    size = len(up)
    point = (logps[size:] - ref_logps[size:]).clamp(min=0).mean().detach()
    return losses(logps[:size], ref_logps[:size], up, point, beta, aversion).mean()


# %% [mutant] the reference point learns
# caught by: still
# says: flows through
def batch_loss(logps, ref_logps, up, beta, aversion):
    size = len(up)
    point = (logps[size:] - ref_logps[size:]).mean().clamp(min=0)
    return losses(logps[:size], ref_logps[:size], up, point, beta, aversion).mean()


# %% [partial] 4: right, but the reference point is not fixed
def batch_loss(logps, ref_logps, up, beta, aversion):
    size = len(up)
    point = (logps[size:] - ref_logps[size:]).mean().clamp(min=0)
    return losses(logps[:size], ref_logps[:size], up, point, beta, aversion).mean()


# %% [partial] 2: only the losses
def pushes(logps, ref_logps, up, point, beta, aversion):
    raise NotImplementedError


def batch_loss(logps, ref_logps, up, beta, aversion):
    raise NotImplementedError
