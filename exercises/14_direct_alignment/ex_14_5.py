# ---
# title: Reading a run that looks good
# kind: numeric
# minutes: 20
# ---

# %% [statement]
# A policy has exactly three completions of one prompt. It was trained by DPO on one pair: the first completion over the second. `log(STUDENT)` is the run's log, one row
# per logging step: `[step, loss, chosen_logp, rejected_logp]`. The first row is the start, where the policy is the reference. (The numbers are your own;
# put your student id into `STUDENT` at the top of the notebook.) The team did not record $\beta$.
#
# The loss falls at every step, accuracy is 100 % from the second row on, and the team is happy. Give numbers with an error of at most 1 %:
#
# 1. `margin`: $h$ in the last row, $\log\frac{\pi(y_w)}{\pi_\text{ref}(y_w)} - \log\frac{\pi(y_l)}{\pi_\text{ref}(y_l)}$.
# 2. `beta`: the $\beta$ of the run. Use the loss and the margin of any row except the first.
# 3. `lost`: the probability that the *chosen* completion has lost since the start (positive: it has become less probable).
# 4. `third`: the probability of the third completion at the end. No pair ever mentioned it.

# %% [given]
import torch
from minirlhf_course.ledger.registry import Draw

# Runs of 400 steps: loss, chosen and rejected log-probability at the start and after every 100 steps.
RUNS = [
    "0.693147 -0.880925 -1.320737 0.575546 -1.562622 -2.596165 0.485191 -2.626995 -4.180983 0.415085 -3.714673 -5.727115 0.359976 -4.717275 -7.136208",
    "0.693147 -1.073315 -1.446442 0.524773 -2.124454 -3.207445 0.411430 -3.416085 -5.081588 0.332932 -4.574885 -6.725261 0.276723 -5.572090 -8.132840",
    "0.693147 -0.952501 -1.344478 0.604837 -1.496601 -2.403215 0.531990 -2.343252 -3.717283 0.471647 -3.258254 -5.057707 0.421365 -4.140687 -6.328488",
    "0.693147 -0.940609 -1.438841 0.414917 -2.221958 -3.628998 0.280334 -3.588432 -5.628550 0.206663 -4.663183 -7.172314 0.161743 -5.513907 -8.389578",
    "0.693147 -1.071827 -1.409634 0.573743 -2.043113 -2.979172 0.482414 -3.336927 -4.796218 0.411838 -4.576984 -6.496255 0.356554 -5.695548 -8.021954",
    "0.693147 -0.943013 -1.453810 0.519163 -1.804534 -3.036837 0.403826 -2.931253 -4.751112 0.324937 -3.965150 -6.271056 0.268988 -4.859383 -7.574696",
    "0.693147 -1.113133 -1.421642 0.605650 -1.618668 -2.439444 0.533334 -2.335554 -3.622043 0.473323 -3.097622 -4.808361 0.423235 -3.833993 -5.932332",
    "0.693147 -0.890611 -1.471247 0.388573 -1.888968 -3.418842 0.253928 -2.956320 -5.118869 0.184002 -3.795213 -6.414521 0.142635 -4.456182 -7.427168",
    "0.693147 -1.109333 -1.420666 0.512106 -2.367991 -3.415199 0.394411 -3.847591 -5.488258 0.315156 -5.132791 -7.260585 0.259612 -6.220542 -8.756236",
    "0.693147 -0.969552 -1.454366 0.611577 -1.626202 -2.605645 0.543216 -2.589345 -4.021604 0.485736 -3.606592 -5.454073 0.437175 -4.581446 -6.810579",
    "0.693147 -0.963819 -1.436057 0.506780 -1.998995 -3.217756 0.387413 -3.297205 -5.113565 0.307973 -4.447235 -6.751260 0.252786 -5.423603 -8.134196",
    "0.693147 -0.872690 -1.350967 0.533468 -1.903206 -3.072895 0.423424 -3.341220 -5.084962 0.345720 -4.664820 -6.891024 0.289229 -5.813539 -8.451174",
    "0.693147 -0.886533 -1.463217 0.615328 -1.533387 -2.593203 0.549539 -2.521112 -4.025153 0.493761 -3.580601 -5.493677 0.446274 -4.602226 -6.892718",
    "0.693147 -0.913891 -1.267616 0.585067 -1.633464 -2.556434 0.500052 -2.768901 -4.196746 0.432667 -3.933242 -5.810588 0.378701 -5.011827 -7.291453",
    "0.693147 -1.040805 -1.465079 0.589229 -1.959099 -2.941572 0.506654 -3.203786 -4.683853 0.440591 -4.426688 -6.351839 0.387245 -5.549688 -7.874811",
    "0.693147 -1.055567 -1.370250 0.607394 -1.756942 -2.578766 0.536228 -2.772660 -4.056484 0.476942 -3.827398 -5.532907 0.427283 -4.827975 -6.919424",
    "0.693147 -1.019755 -1.410039 0.474289 -2.166258 -3.364746 0.346683 -3.502145 -5.318088 0.267570 -4.628905 -6.931296 0.215331 -5.558447 -8.256297",
    "0.693147 -0.887409 -1.461894 0.583001 -1.512982 -2.662114 0.496799 -2.442574 -4.100084 0.428789 -3.404242 -5.513328 0.374543 -4.303557 -6.815959",
    "0.693147 -0.940133 -1.500409 0.437891 -1.746389 -3.178197 0.304836 -2.677667 -4.739381 0.228476 -3.461136 -6.000511 0.180551 -4.101963 -7.020004",
    "0.693147 -1.044890 -1.410340 0.427287 -2.282408 -3.536839 0.293350 -3.597249 -5.483475 0.218154 -4.643483 -7.003639 0.171599 -5.478090 -8.211431",
    "0.693147 -0.977123 -1.377641 0.503770 -1.832894 -2.985881 0.383500 -2.943687 -4.696496 0.303987 -3.945303 -6.185983 0.249021 -4.800584 -7.447008",
    "0.693147 -0.959609 -1.488185 0.536831 -1.612765 -2.825478 0.428131 -2.493016 -4.276292 0.350798 -3.340706 -5.605308 0.294241 -4.096548 -6.772833",
    "0.693147 -0.981281 -1.339025 0.498209 -1.688660 -2.809727 0.376345 -2.634493 -4.359276 0.296758 -3.500634 -5.713481 0.242231 -4.244176 -6.861125",
    "0.693147 -1.007324 -1.513118 0.412600 -2.501952 -3.920208 0.277940 -3.989497 -6.040964 0.204574 -5.137970 -7.657466 0.159963 -6.041942 -8.926706",
]


def log(student):
    """Return (5, 4): step, loss, log-probability of the chosen and of the rejected completion."""
    run = RUNS[Draw("14.5", student).integer(0, len(RUNS) - 1)]
    rows = torch.tensor([float(x) for x in run.split()], dtype=torch.float64).reshape(5, 3)
    return torch.cat([100.0 * torch.arange(5)[:, None], rows], -1)


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

from minirlhf_course.classroom.testing import expect, test
from minirlhf_course.ledger.registry import Draw

BETAS = [  # of each of RUNS
    0.422580,
    0.522571,
    0.359827,
    0.731788,
    0.426281,
    0.533260,
    0.358000,
    0.784528,
    0.546653,
    0.344480,
    0.556729,
    0.505909,
    0.335744,
    0.402767,
    0.393948,
    0.354055,
    0.617961,
    0.407107,
    0.687137,
    0.707620,
    0.562413,
    0.499430,
    0.572903,
    0.736354,
]


def ends(student):
    """Return the first and the last row as numbers."""
    rows = log(student).tolist()
    return rows[0], rows[-1]


def beta_of(student):
    """Return the β of the run."""
    return BETAS[Draw("14.5", student).integer(0, len(BETAS) - 1)]


def within(want):
    """Return 1 % as a tolerance of `expect`."""
    return 0.01 * abs(want) / max(1.0, abs(want))


@test(
    points=1,
    rounds=1,
    hints=(
        "The reference is the policy at the start, so its log-probabilities are in the first row.",
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
            "the first loss, ln 2, is divided by the margin": math.log(2) / h,
            "this is 1/β": 1 / want,
            "the loss is divided by the margin, without a logarithm": last[1] / h,
            "the loss is used as a probability": -math.log(last[1]) / h,
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
    "`lost` is the probability that the chosen completion has lost."
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
            "it is the rejected completion's loss": math.exp(first[3]) - math.exp(last[3]),
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
    "`third` is the probability of the completion that no pair mentions."
    first, last = ends(sub.student)
    want = 1 - math.exp(last[2]) - math.exp(last[3])
    expect(
        sub.number("third"),
        want,
        what="`third`",
        tolerance=within(want),
        reveal=False,
        mistakes={
            "it is the third completion's gain, not its probability": want
            - (1 - math.exp(first[2]) - math.exp(first[3])),
            "it is read from the first row": 1 - math.exp(first[2]) - math.exp(first[3]),
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

# %% [partial] 3: all except β
beta = None

# %% [partial] 1: only the margin
beta, lost, third = None, None, None
