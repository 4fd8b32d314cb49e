# ---
# title: Reading a run that looks well
# kind: numeric
# minutes: 20
# ---

# %% [statement]
# A policy has exactly three answers to one prompt. It was trained by DPO on one pair: the first answer over the second. `log(STUDENT)` is the run's log, one row
# per logging step: `[step, loss, chosen_logp, rejected_logp]`. The first row is the start, where the policy is the reference. (The numbers are yours
# alone; put your student id into `STUDENT` at the top of the notebook.) Somebody has forgotten to write down $\beta$.
#
# The loss falls at every step, accuracy is 100 % from the second row on, and the team is happy. Answer with numbers, right to 1 %:
#
# 1. `margin`: $h$ in the last row, $\log\frac{\pi(y_w)}{\pi_\text{ref}(y_w)} - \log\frac{\pi(y_l)}{\pi_\text{ref}(y_l)}$.
# 2. `beta`: which $\beta$ was the run trained with? Loss and margin of any row but the first will tell.
# 3. `lost`: how much probability has the *chosen* answer lost since the start (positive: it has become less likely)?
# 4. `third`: what is the probability of the third answer in the end? No pair ever mentioned it.

# %% [given]
import torch

from minirlhf.ledger.registry import Draw


def _features(student):
    """The three answers' features: the first two lie close together."""
    draw = Draw("14.5", student)
    tilt = float(draw.uniform(low=0.8, high=1.2))
    return torch.tensor([[1.0, 0.0], [0.9, -0.3], [0.3, tilt]], dtype=torch.float64), draw


def log(student):
    """(9, 4): step, loss, log-probability of the chosen and of the rejected answer."""
    features, draw = _features(student)
    beta = float(draw.uniform(low=0.3, high=0.8))
    start = draw.uniform(3, low=-0.2, high=0.2)
    start[1] = start[0] - float(draw.uniform(low=0.3, high=0.6))
    theta, rows = torch.zeros(2, dtype=torch.float64), []
    ref = start.log_softmax(-1)
    for step in range(401):
        logps = (start + features @ theta).log_softmax(-1)
        margin = (logps[0] - ref[0]) - (logps[1] - ref[1])
        if step % 50 == 0:
            rows.append([step, float(torch.log1p((-beta * margin).exp())), float(logps[0]), float(logps[1])])
        weight = beta * torch.sigmoid(-beta * margin)
        theta = theta + 0.3 * weight * (features[0] - features[1])
    return torch.tensor(rows, dtype=torch.float64)


# %% [stub]
for step, loss, chosen, rejected in log(STUDENT).tolist():
    print(f"step {step:4.0f}   loss {loss:.5f}   chosen {chosen:.5f}   rejected {rejected:.5f}")

margin = None
beta = None
lost = None
third = None

# %% [solution]
rows = log(STUDENT)
first, last = rows[0], rows[-1]
margin = (last[2] - first[2]) - (last[3] - first[3])
beta = -torch.log(torch.exp(last[1]) - 1) / margin
lost = first[2].exp() - last[2].exp()
third = 1 - last[2].exp() - last[3].exp()

# %% [tests]
import math

from minirlhf.classroom.testing import expect, test


def ends(student):
    """First and last row as numbers."""
    rows = log(student).tolist()
    return rows[0], rows[-1]


def beta_of(student):
    """The β that the run was made with."""
    _, draw = _features(student)
    return float(draw.uniform(low=0.3, high=0.8))


def within(want):
    """One percent, as a tolerance of `expect`."""
    return 0.01 * abs(want) / max(1.0, abs(want))


@test(
    points=1,
    rounds=1,
    hints=(
        "The reference is the policy at the start, so its log-probabilities stand in the first row.",
        "(chosen at the end − chosen at the start) − (rejected at the end − rejected at the start).",
    ),
)
def its_margin(sub, draw):
    "`margin` is the difference of the two log-ratios in the last row."
    first, last = ends(sub.student)
    want = (last[2] - first[2]) - (last[3] - first[3])
    expect(
        sub.number("margin"),
        want,
        what="`margin`",
        tolerance=within(want),
        reveal=False,
        mistakes={
            "the reference is left out": last[2] - last[3],
            "it is the implicit reward, β times the margin": beta_of(sub.student) * want,
        },
    )


@test(
    points=2,
    rounds=1,
    hints=(
        "The loss is −log σ(βh) = log(1 + e^(−βh)). You know the loss and h.",
        "e^loss − 1 = e^(−βh). Take the logarithm and divide by −h.",
    ),
)
def its_beta(sub, draw):
    "`beta` is the β of the loss."
    first, last = ends(sub.student)
    h = (last[2] - first[2]) - (last[3] - first[3])
    want = beta_of(sub.student)
    expect(
        sub.number("beta"),
        want,
        what="`beta`",
        tolerance=within(want),
        reveal=False,
        mistakes={
            "it is β times the margin": want * h,
            "it is upside down": 1 / want,
            "the loss was read as a probability": -math.log(last[1]) / h,
        },
    )


@test(
    points=1,
    rounds=1,
    hints=(
        "Probabilities, not logarithms: exponentiate first.",
        "e^(chosen at the start) − e^(chosen at the end). A positive number is a loss.",
    ),
)
def chosen_falls(sub, draw):
    "`lost` is the probability that the chosen answer has lost."
    first, last = ends(sub.student)
    want = math.exp(first[2]) - math.exp(last[2])
    expect(
        sub.number("lost"),
        want,
        what="`lost`",
        tolerance=within(want),
        reveal=False,
        mistakes={
            "it is in nats, not in probability": first[2] - last[2],
            "it is the rejected answer's loss": math.exp(first[3]) - math.exp(last[3]),
        },
    )


@test(
    points=1,
    rounds=1,
    hints=(
        "The three probabilities sum to one.",
        "1 − e^chosen − e^rejected, in the last row.",
    ),
)
def third_rises(sub, draw):
    "`third` is where the probability went."
    first, last = ends(sub.student)
    want = 1 - math.exp(last[2]) - math.exp(last[3])
    expect(
        sub.number("third"),
        want,
        what="`third`",
        tolerance=within(want),
        reveal=False,
        mistakes={
            "it is the third answer's gain, not its probability": want - (1 - math.exp(first[2]) - math.exp(first[3]))
        },
    )


# %% [mutant] no reference
# caught by: its_margin
# says: the reference is left out
margin = last[2] - last[3]

# %% [mutant] β times the margin
# caught by: its_beta
# says: β times the margin
beta = -torch.log(torch.exp(last[1]) - 1)

# %% [mutant] nats
# caught by: chosen_falls
# says: in nats
lost = first[2] - last[2]

# %% [mutant] the gain
# caught by: third_rises
# says: gain
third = third - (1 - first[2].exp() - first[3].exp())

# %% [partial] 3: all but the β
beta = None

# %% [partial] 1: only the margin
beta, lost, third = None, None, None
