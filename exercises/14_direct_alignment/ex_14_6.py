# ---
# title: Bug hunt: a loss that starts at the right number
# kind: bughunt
# minutes: 25
# ---

# %% [statement]
# A team runs DPO. Chosen and rejected completions go through the model in one batch of `2B` rows: *the first `B` rows are the chosen completions, the next `B` the
# rejected ones, in the same order*. For each token they have its log-probability under policy and reference, and a mask that is True on the completion's
# tokens (prompt and padding: False; the numbers there have no meaning).
#
# The first logged loss is 0.6931, as it should be, and it falls. But the trained model ranks new pairs at chance level. The same pair has another loss
# when a longer completion is in its batch. And with Adam, which divides out the scale of a gradient, runs with $\beta = 0.05$ and with $\beta = 0.5$ give the same model.
#
# **There are three bugs. Find and fix them.** The loss should be DPO's, on *sums* of log-probabilities, averaged over the pairs.

# %% [given]
import torch
import torch.nn.functional as F


# %% [stub]
def dpo_loss(logps, ref_logps, mask, beta):
    """Return DPO's loss of a batch, one number. logps, ref_logps: (2B, T) per token. mask: (2B, T) bool."""
    policy = torch.where(mask, logps, 0.0).sum(-1)
    reference = torch.where(mask, ref_logps, 0.0).sum(-1)
    lengths = torch.full_like(policy, mask.shape[-1])
    ratios = (policy - reference) / lengths
    chosen, rejected = ratios[0::2], ratios[1::2]
    return -beta * F.logsigmoid(chosen - rejected).mean() + (beta - 1) * F.logsigmoid(torch.zeros(()))


# %% [solution]
def dpo_loss(logps, ref_logps, mask, beta):
    policy = torch.where(mask, logps, 0.0).sum(-1)
    reference = torch.where(mask, ref_logps, 0.0).sum(-1)
    chosen, rejected = (policy - reference).chunk(2)
    return -F.logsigmoid(beta * (chosen - rejected)).mean()


# %% [tests]
import torch
from minirlhf_course.classroom.testing import expect, test, tidy


def log_ratios(logps, ref, mask):
    """Return the log-ratios, one completion at a time."""
    return torch.tensor(
        [
            sum(float(a - b) for a, b, kept in zip(x, y, m, strict=True) if kept)
            for x, y, m in zip(logps, ref, mask, strict=True)
        ],
        dtype=torch.float64,
    )


def loss(margins):
    return (1 + (-margins).exp()).log().mean()


@test(
    points=2,
    hints=(
        "Make a batch of two pairs by hand and print which rows your code compares.",
        "First all chosen completions, then all rejected ones: `chunk(2)`, not every other row.",
    ),
)
def compares_the_right_rows(sub, draw):
    "Each chosen completion is compared with its own rejected one."
    value = tidy(draw.away_from([0.0], 4, low=-3.0, high=3.0, margin=0.4))
    value = value + torch.arange(4) * 0.7  # no two alike
    logps, ref, mask = value[:, None], torch.zeros(4, 1, dtype=torch.float64), torch.ones(4, 1, dtype=torch.bool)
    expect(
        sub.dpo_loss(logps, ref, mask, 1.0),
        loss(value[:2] - value[2:]),
        what="the loss of two pairs of one token at β = 1",
        given={"logps": logps, "ref_logps": ref, "mask": mask, "beta": 1.0},
        mistakes={
            "every other row is used: chosen completions are compared with chosen ones": loss(
                value[0::2] - value[1::2]
            ),
            "only the first pair is counted": loss(value[:1] - value[2:3]),
            "the pairs are added, not averaged": 2 * loss(value[:2] - value[2:]),
            "the margins are averaged, not the losses": loss((value[:2] - value[2:]).mean()),
            "chosen and rejected are swapped": loss(value[2:] - value[:2]),
        },
    )


@test(
    points=2,
    hints=(
        "Add a column of padding to a batch. Does the loss change? It must be a *sum* over the completion's tokens.",
        "Do not divide: neither by the completion's length nor by the width of the batch.",
    ),
)
def sums_over_tokens(sub, draw):
    "The loss uses sums over the completion's tokens, and only over these."
    mask = torch.ones(2, 4, dtype=torch.bool)
    mask[draw.integer(0, 1), draw.integer(2, 3) :] = False  # one completion is shorter
    logps, ref = tidy(draw.logps(2, 4)) * 0.5, tidy(draw.logps(2, 4)) * 0.5
    logps, ref = torch.where(mask, logps, -9.0), torch.where(mask, ref, -3.0)
    logps[0, 0] = logps[0, 0] - 0.6
    ratios = log_ratios(logps, ref, mask)
    means = ratios / mask.sum(-1)
    padded = (logps - ref).sum(-1)
    expect(
        sub.dpo_loss(logps, ref, mask, 1.0),
        loss(ratios[:1] - ratios[1:]),
        what="the loss of one pair at β = 1",
        given={"logps": logps, "ref_logps": ref, "mask": mask, "beta": 1.0},
        mistakes={
            "sums are divided by the width of the batch": loss((ratios[:1] - ratios[1:]) / 4),
            "sums are divided by each completion's length": loss(means[:1] - means[1:]),
            "padding is counted": loss(padded[:1] - padded[1:]),
        },
    )


@test(
    points=2,
    hints=(
        "A β that only scales the gradient multiplies the whole loss. What does β multiply in DPO?",
        "The margin: −log σ(β · margin). At the start every loss is ln 2 without an added constant.",
    ),
)
def beta_is_inside(sub, draw):
    "β scales the margin, not the loss."
    beta = [0.1, 0.3, 3.0][draw.integer(0, 2)]
    margin = tidy(draw.away_from([0.0], 1, low=-3.0, high=3.0, margin=0.6))
    logps = torch.cat([margin, torch.zeros(1, dtype=torch.float64)])[:, None]
    ref, mask = torch.zeros_like(logps), torch.ones(2, 1, dtype=torch.bool)
    zero = torch.zeros(1, dtype=torch.float64)
    expect(
        sub.dpo_loss(logps, ref, mask, beta),
        loss(beta * margin),
        what="the loss of one pair of one token",
        given={"logps": logps, "ref_logps": ref, "mask": mask, "beta": beta},
        mistakes={
            "β multiplies the loss": beta * loss(margin),
            "β multiplies the loss, and a constant makes it start at ln 2": beta * loss(margin)
            + (1 - beta) * loss(zero),
            "β is not used": loss(margin),
        },
    )


# %% [probes]
# no size: rows come in pairs; the tests take batches of several shapes
# no gradient of dpo_loss.ref_logps: data, cut off or not


# %% [mutant] still every other row
# caught by: compares_the_right_rows
# says: every other row
def dpo_loss(logps, ref_logps, mask, beta):
    ratios = torch.where(mask, logps - ref_logps, 0.0).sum(-1)
    return -F.logsigmoid(beta * (ratios[0::2] - ratios[1::2])).mean()


# %% [mutant] still divided by the width
# caught by: sums_over_tokens
# says: the width of the batch
def dpo_loss(logps, ref_logps, mask, beta):
    chosen, rejected = torch.where(mask, logps - ref_logps, 0.0).mean(-1).chunk(2)
    return -F.logsigmoid(beta * (chosen - rejected)).mean()


# %% [mutant] means per token
# caught by: sums_over_tokens
# says: each completion's length
def dpo_loss(logps, ref_logps, mask, beta):
    ratios = torch.where(mask, logps - ref_logps, 0.0).sum(-1) / mask.sum(-1)
    chosen, rejected = ratios.chunk(2)
    return -F.logsigmoid(beta * (chosen - rejected)).mean()


# %% [mutant] β still outside
# caught by: beta_is_inside
# says: a constant makes it start
def dpo_loss(logps, ref_logps, mask, beta):
    chosen, rejected = torch.where(mask, logps - ref_logps, 0.0).sum(-1).chunk(2)
    return -beta * F.logsigmoid(chosen - rejected).mean() + (beta - 1) * F.logsigmoid(torch.zeros(()))


# %% [mutant] the mask is lost
# caught by: sums_over_tokens
# says: padding is counted
def dpo_loss(logps, ref_logps, mask, beta):
    chosen, rejected = (logps - ref_logps).sum(-1).chunk(2)
    return -F.logsigmoid(beta * (chosen - rejected)).mean()


# %% [partial] 2: the right rows, the rest unchanged
def dpo_loss(logps, ref_logps, mask, beta):
    ratios = torch.where(mask, logps - ref_logps, 0.0).sum(-1) / mask.shape[-1]
    chosen, rejected = ratios.chunk(2)
    return -beta * F.logsigmoid(chosen - rejected).mean() + (beta - 1) * F.logsigmoid(torch.zeros(()))


# %% [partial] 4: rows and sums are right, β is not
def dpo_loss(logps, ref_logps, mask, beta):
    chosen, rejected = torch.where(mask, logps - ref_logps, 0.0).sum(-1).chunk(2)
    return -beta * F.logsigmoid(chosen - rejected).mean() + (beta - 1) * F.logsigmoid(torch.zeros(()))
