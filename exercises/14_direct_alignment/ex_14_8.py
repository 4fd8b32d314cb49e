# ---
# title: Two losses without a reference
# kind: implement
# minutes: 30
# ---

# %% [statement]
# SimPO and ORPO need no reference model. Write both, as the chapter prints them. `chosen` and `rejected` hold the log-probabilities of the two completions of each pair, summed over their tokens, shape `(B,)`.
# `chosen_lengths` and `rejected_lengths` hold the numbers of these tokens, integers of shape `(B,)`, each at least 1.
#
# 1. `simpo(chosen, rejected, chosen_lengths, rejected_lengths, beta, gamma)`: the loss of each pair, `(B,)`. `gamma` is the margin $\gamma$ of the formula itself, in the units of the reward (and not the ratio $\gamma/\beta$ that some programs ask for).
# 2. `orpo(chosen, rejected, chosen_lengths, rejected_lengths, beta)`: the loss of each pair, `(B,)`. Here $\bar p$ is the geometric mean of the token probabilities of a completion and $o = \bar p/(1-\bar p)$.
# 3. `orpo_slopes(chosen, rejected, chosen_lengths, rejected_lengths, beta)`: the derivatives of the ORPO loss in `chosen` and in `rejected`, two tensors of shape `(B,)`. Derive a formula. Which of the two completions does the loss push harder
#    when both are nearly certain?
#
# Sums of log-probabilities are large: `simpo` is finite at sums of minus a hundred thousand. A mean log-probability per token goes from −1000 to $-10^{-15}$, and is never 0. `orpo` is right to five digits on all of this range. A test differentiates
# `simpo` and `orpo`.

# %% [given]
import torch
import torch.nn.functional as F


# %% [stub]
def simpo(chosen, rejected, chosen_lengths, rejected_lengths, beta, gamma):
    """The SimPO loss of each pair. Tensors (B,); beta, gamma: numbers. Returns (B,)."""
    raise NotImplementedError


def orpo(chosen, rejected, chosen_lengths, rejected_lengths, beta):
    """The ORPO loss of each pair. Tensors (B,); beta: a number. Returns (B,)."""
    raise NotImplementedError


def orpo_slopes(chosen, rejected, chosen_lengths, rejected_lengths, beta):
    """The derivatives of each pair's ORPO loss in chosen and in rejected. Returns two tensors (B,)."""
    raise NotImplementedError


# %% [solution]
def simpo(chosen, rejected, chosen_lengths, rejected_lengths, beta, gamma):
    return -F.logsigmoid(beta * (chosen / chosen_lengths - rejected / rejected_lengths) - gamma)


def _log_odds(mean):
    return mean - torch.log(-torch.expm1(mean))


def orpo(chosen, rejected, chosen_lengths, rejected_lengths, beta):
    mean_chosen, mean_rejected = chosen / chosen_lengths, rejected / rejected_lengths
    return -mean_chosen - beta * F.logsigmoid(_log_odds(mean_chosen) - _log_odds(mean_rejected))


def orpo_slopes(chosen, rejected, chosen_lengths, rejected_lengths, beta):
    mean_chosen, mean_rejected = chosen / chosen_lengths, rejected / rejected_lengths
    weight = beta * torch.sigmoid(_log_odds(mean_rejected) - _log_odds(mean_chosen))
    in_chosen = (-1 + weight / torch.expm1(mean_chosen)) / chosen_lengths
    return in_chosen, -weight / torch.expm1(mean_rejected) / rejected_lengths


# %% [tests]
import math

import torch

from minirlhf_course.classroom.testing import expect, fail, test, tidy


def pairs(draw):
    """Four pairs with unequal lengths: sums (4,) twice and lengths (4,) twice; each completion is ahead in some pair."""
    short, long = (torch.tensor([draw.integer(*ends) for _ in range(4)]) for ends in ((1, 3), (4, 7)))
    swap = torch.tensor([True, False, True, False])
    mean = tidy(-draw.uniform(2, 4, low=0.4, high=2.4))
    mean[0, :2] -= 1.1
    lengths = torch.where(swap, short, long), torch.where(swap, long, short)
    return mean[0] * lengths[0], mean[1] * lengths[1], *lengths


def shown(inputs, **more):
    return dict(zip(("chosen", "rejected", "chosen_lengths", "rejected_lengths"), inputs, strict=True)) | more


def each(loss, inputs, *numbers):
    """Apply a loss of four Python numbers to each pair."""
    rows = zip(*(x.tolist() for x in inputs), strict=True)
    return torch.tensor([loss(*row, *numbers) for row in rows], dtype=torch.float64)


def simple(w, l, n, m, beta, gamma):
    return math.log1p(math.exp(-(beta * w / n - beta * l / m - gamma)))


def odds_loss(w, l, n, m, beta):
    odds = [math.exp(x) ** (1 / k) / (1 - math.exp(x) ** (1 / k)) for x, k in ((w, n), (l, m))]
    return -w / n + beta * math.log1p(odds[1] / odds[0])


def log1p_ratio(p, q):
    """−log σ(log p − log q)."""
    return math.log1p(q / p)


def simpo_mistakes(w, l, n, m, beta, gamma):
    right = simple(w, l, n, m, beta, gamma)
    return {
        "the log-probabilities are not divided by the lengths": simple(w, l, 1, 1, beta, gamma),
        "γ is added: the chosen completion may then be worse": simple(w, l, n, m, beta, -gamma),
        "γ is multiplied by β: it is taken for the ratio γ/β": simple(w, l, n, m, beta, beta * gamma),
        "γ is left out": simple(w, l, n, m, beta, 0.0),
        "β is left out": simple(w, l, n, m, 1.0, gamma),
        "both sums are divided by the length of the chosen completion": simple(w, l, n, n, beta, gamma),
        "both sums are divided by the sum of the lengths": simple(w, l, n + m, n + m, beta, gamma),
        "both sums are divided by the mean of the lengths": simple(w, l, (n + m) / 2, (n + m) / 2, beta, gamma),
        "chosen and rejected are swapped": simple(l, w, m, n, beta, gamma),
        "that is σ, but −log σ is required": math.exp(-right),
        "a hinge max(0, γ − …) takes the place of −log σ": max(0.0, gamma - beta * (w / n - l / m)),
        "γ is outside of σ": simple(w, l, n, m, beta, 0.0) + gamma,
    }


def orpo_mistakes(w, l, n, m, beta):
    term = odds_loss(w, l, n, m, 1.0) + w / n  # −log σ of the log odds ratio
    p, q = math.exp(w / n), math.exp(l / m)
    return {
        "these are the odds of the whole completion: p̄ is the geometric mean of its token probabilities": -w / n
        + odds_loss(w, l, 1, 1, beta)
        + w,
        "the negative log-likelihood is a sum over tokens, but it should be a mean": -w + beta * term,
        "probabilities are compared, not odds": -w / n + beta * log1p_ratio(p, q),
        "the negative log-likelihood is missing": beta * term,
        "β weighs the negative log-likelihood": -beta * w / n + term,
        "β is inside of σ": -w / n + log1p_ratio(1.0, math.expm1(term) ** beta),
        "β is left out": -w / n + term,
        "the odds ratio is upside down": -w / n + beta * (odds_loss(l, w, m, n, 1.0) + l / m),
        "the odds are p̄/(1 + p̄)": -w / n + beta * log1p_ratio(p / (1 + p), q / (1 + q)),
        "the likelihood of both completions is used": -w / n - l / m + beta * term,
    }


def slope(w, l, n, m, beta, which, step=1e-5):
    """The derivative of the ORPO loss in chosen (0) or rejected (1), by a central difference."""
    there, back = (odds_loss(w + h * (which == 0), l + h * (which == 1), n, m, beta) for h in (step, -step))
    return (there - back) / (2 * step)


def slope_mistakes(w, l, n, m, beta, which):
    p, q = math.exp(w / n), math.exp(l / m)
    odds_ratio = p / (1 - p) * (1 - q) / q
    weight, other = beta / (1 + odds_ratio), beta * odds_ratio / (1 + odds_ratio)
    mean, third = "that is the derivative in the mean, not in the sum", "the length is the other completion's"
    one, inverse = "the slope of the log odds, 1/(1 − p̄), is missing", "the slope of the log odds is 1/p̄, not 1/(1 − p̄)"
    sure, free = "the weight is the weight of a pair in the right order: σ(log ratio)", "β is left out"
    if which == 1:
        return {
            mean: weight / (1 - q),
            third: weight / (1 - q) / n,
            one: weight / m,
            inverse: weight / q / m,
            sure: other / (1 - q) / m,
            free: weight / beta / (1 - q) / m,
            "the odds of the chosen completion are differentiated": weight / (1 - p) / m,
        }
    return {
        mean: -(1 + weight / (1 - p)),
        third: -(1 + weight / (1 - p)) / m,
        one: -(1 + weight) / n,
        inverse: -(1 + weight / p) / n,
        sure: -(1 + other / (1 - p)) / n,
        free: -(1 + weight / beta / (1 - p)) / n,
        "the likelihood's own slope is missing": -weight / (1 - p) / n,
        "β weighs the likelihood, too": -(beta + weight / (1 - p)) / n,
    }


def tables(mistakes, inputs, *numbers):
    """Apply mistakes of four Python numbers to each pair: the results (4,) by the mistake's words."""
    rows = [mistakes(*row, *numbers) for row in zip(*(x.tolist() for x in inputs), strict=True)]
    return {say: torch.tensor([row[say] for row in rows], dtype=torch.float64) for say in rows[0]}


@test(
    points=2,
    against="the formula, pair by pair",
    hints=(
        "What is the reward of a completion in SimPO? Compute it for one completion of four tokens, and for one of two.",
        "The reward is β times the mean log-probability per token. γ is subtracted from the difference of the two rewards, inside σ, and is not multiplied by β.",
    ),
)
def margins(sub, draw):
    "`simpo` compares means per token, with a margin."
    inputs = pairs(draw)
    for beta, gamma in ((2.0, 0.5), (0.7, 1.6)):
        expect(
            sub.simpo(*inputs, beta, gamma),
            each(simple, inputs, beta, gamma),
            what="the SimPO loss",
            given=shown(inputs, beta=beta, gamma=gamma),
            mistakes=tables(simpo_mistakes, inputs, beta, gamma),
        )


@test(
    points=1,
    against="the loss far out, where it is a straight line",
    hints=(
        "What is σ of −2000 as a float, and its logarithm?",
        "Do not take the logarithm of a probability that has been rounded to 0. `F.logsigmoid` computes both in one step.",
    ),
)
def far_out(sub, draw):
    "`simpo` is finite at large sums."
    gap = 100_000.0 - 1000.0 * draw.integer(0, 9)
    chosen, rejected = (
        torch.tensor([-gap, -10.0], dtype=torch.float64),
        torch.tensor([-10.0, -gap], dtype=torch.float64),
    )
    lengths = torch.tensor([2, 5]), torch.tensor([5, 2])
    expect(
        sub.aside.simpo(chosen, rejected, *lengths, 2.0, 0.5),
        torch.tensor([2.0 * (gap / 2 - 2.0) + 0.5, 0.0], dtype=torch.float64),
        what="the SimPO loss",
        given=shown((chosen, rejected, *lengths), beta=2.0, gamma=0.5),
    )


@test(
    points=2,
    against="the formula, pair by pair, from the odds themselves",
    hints=(
        "Write the odds of one completion down: what is p̄, from the sum and the length? Then the ratio of the two odds.",
        "p̄ is the exponential of the mean log-probability. The loss is minus the mean log-probability of the chosen completion, plus β times −log σ of the log of the odds ratio. β weighs the second term only.",
    ),
)
def odds(sub, draw):
    "`orpo` adds the negative log-likelihood and the weighted term of the odds ratio."
    inputs = pairs(draw)
    for beta in (0.3, 2.0):
        expect(
            sub.orpo(*inputs, beta),
            each(odds_loss, inputs, beta),
            what="the ORPO loss",
            given=shown(inputs, beta=beta),
            mistakes=tables(orpo_mistakes, inputs, beta),
        )


def log_odds(mean):
    """The log odds by a series near certainty, and by the definition elsewhere; mean < 0."""
    return -math.log(-mean) + mean / 2 if mean > -1e-5 else mean - math.log(1 - math.exp(mean))


@test(
    points=1,
    against="a series near certainty",
    hints=(
        "What is 1 − exp(−10⁻¹⁵) on your machine? And the logarithm of exp(−1000)?",
        "Stay with logarithms: log o = x − log(1 − eˣ), where x is the mean log-probability. `torch.expm1` computes eˣ − 1 without losing digits.",
    ),
)
def at_both_ends(sub, draw):
    "`orpo` at mean log-probabilities from −1000 to −10⁻¹⁵."
    tiny = 1e-15 * draw.integer(1, 9)
    means = torch.tensor([[-tiny, -1000.0, -800.0, -2.0], [-1000.0, -tiny, -1000.0, -tiny]], dtype=torch.float64)
    lengths = torch.tensor([[2, 3, 1, 4], [4, 1, 2, 2]])
    inputs = (*(means * lengths), *lengths)
    want = []
    for w, l in means.T.tolist():
        ahead = log_odds(w) - log_odds(l)
        want.append(-w + (math.log1p(math.exp(-ahead)) if ahead > 0 else -ahead + math.log1p(math.exp(ahead))))
    expect(
        sub.aside.orpo(*inputs, 1.0),
        torch.tensor(want, dtype=torch.float64),
        what="the ORPO loss",
        given={"mean log-probabilities of chosen": means[0], "of rejected": means[1], "beta": 1.0},
    )


@test(
    points=2,
    against="finite differences of the formula",
    hints=(
        "Differentiate the log odds x − log(1 − eˣ) in x first. What happens to the derivative as p̄ goes to 1?",
        "The log odds have the slope 1/(1 − p̄). The outer factor is β σ(−log(o_w/o_l)), and each mean has the slope 1 over its length in the sum. The chosen completion has the likelihood's −1 in addition.",
    ),
)
def slopes(sub, draw):
    "`orpo_slopes` are the derivatives in the two sums."
    inputs = pairs(draw)
    for beta in (0.4, 1.5):
        got = sub.orpo_slopes(*inputs, beta)
        if not isinstance(got, list | tuple) or len(got) != 2:
            fail("`orpo_slopes` does not return two tensors")
        for which, name in enumerate(("chosen", "rejected")):
            expect(
                got[which],
                each(slope, inputs, beta, which),
                what=f"the slope in {name}",
                given=shown(inputs, beta=beta),
                mistakes=tables(slope_mistakes, inputs, beta, which),
                tolerance=1e-6,
            )


# %% [edges]
# far_out: `simpo` is finite at sums of minus a hundred thousand
# at_both_ends: goes from −1000 to $-10^{-15}$


# %% [probes]
# no gradient of orpo_slopes: a formula is asked for, in whatever library


# %% [mutant] sums, not means
# caught by: margins
# says: not divided by the lengths
def simpo(chosen, rejected, chosen_lengths, rejected_lengths, beta, gamma):
    return -F.logsigmoid(beta * (chosen - rejected) - gamma)


# %% [mutant] the margin times β
# caught by: margins
# says: taken for the ratio
def simpo(chosen, rejected, chosen_lengths, rejected_lengths, beta, gamma):
    return -F.logsigmoid(beta * (chosen / chosen_lengths - rejected / rejected_lengths - gamma))


# %% [mutant] the logarithm of a sigmoid
# caught by: far_out
def simpo(chosen, rejected, chosen_lengths, rejected_lengths, beta, gamma):
    return -torch.sigmoid(beta * (chosen / chosen_lengths - rejected / rejected_lengths) - gamma).log()


# %% [mutant] the odds of the whole completion
# caught by: odds
# says: the geometric mean
def orpo(chosen, rejected, chosen_lengths, rejected_lengths, beta):
    return -chosen / chosen_lengths - beta * F.logsigmoid(_log_odds(chosen) - _log_odds(rejected))


# %% [mutant] probabilities for odds
# caught by: odds
# says: not odds
def orpo(chosen, rejected, chosen_lengths, rejected_lengths, beta):
    mean_chosen, mean_rejected = chosen / chosen_lengths, rejected / rejected_lengths
    return -mean_chosen - beta * F.logsigmoid(mean_chosen - mean_rejected)


# %% [mutant] probabilities first
# caught by: at_both_ends
def orpo(chosen, rejected, chosen_lengths, rejected_lengths, beta):
    p, q = (chosen / chosen_lengths).exp(), (rejected / rejected_lengths).exp()
    return -chosen / chosen_lengths - beta * F.logsigmoid((p / (1 - p)).log() - (q / (1 - q)).log())


# %% [mutant] the derivative in the mean
# caught by: slopes
# says: in the mean
def orpo_slopes(chosen, rejected, chosen_lengths, rejected_lengths, beta):
    mean_chosen, mean_rejected = chosen / chosen_lengths, rejected / rejected_lengths
    weight = beta * torch.sigmoid(_log_odds(mean_rejected) - _log_odds(mean_chosen))
    return -1 + weight / torch.expm1(mean_chosen), -weight / torch.expm1(mean_rejected)


# %% [mutant] the slope of the log odds is 1
# caught by: slopes
# says: 1/(1 − p̄), is missing
def orpo_slopes(chosen, rejected, chosen_lengths, rejected_lengths, beta):
    mean_chosen, mean_rejected = chosen / chosen_lengths, rejected / rejected_lengths
    weight = beta * torch.sigmoid(_log_odds(mean_rejected) - _log_odds(mean_chosen))
    return (-1 - weight) / chosen_lengths, weight / rejected_lengths


# %% [partial] 6: the slopes not begun
def orpo_slopes(chosen, rejected, chosen_lengths, rejected_lengths, beta):
    raise NotImplementedError


# %% [partial] 3: SimPO alone
def orpo(chosen, rejected, chosen_lengths, rejected_lengths, beta):
    raise NotImplementedError


def orpo_slopes(chosen, rejected, chosen_lengths, rejected_lengths, beta):
    raise NotImplementedError
