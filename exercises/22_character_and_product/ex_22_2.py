# ---
# title: The same procedure once more
# kind: derive
# minutes: 30
# ---

# %% [statement]
# Train a trait from the model's own scores with strength $\beta$, exactly: the model $\pi(y)$ and the model under the system prompt, $q(y)$, give $\pi^*_\beta$ of the chapter. Then repeat it: the result is the new $\pi$ and the new reference, and it scores its own completions. The outcome depends on the effect of the first round on the model *under the system prompt*.
#
# 1. `frozen(beta, rounds)`: the prompted model has not changed, so $q$ is the same in every round. With which strength would **one** round reach the policy that `rounds` rounds of strength `beta` reach? `math.inf` if they end where they began. The answer may be negative.
# 2. `carried(beta, rounds)`: the change carries over to the prompted model. In every round it is multiplied by the same factors as the model itself (and normalised). Answer the same question.
# 3. `crest(logps, prompted_logps, which)`: over all exponents $\lambda = 1/\beta$, positive or not, find the one at which completion number `which` is most probable. Its score lies strictly between the lowest and the highest. `logps` and `prompted_logps` are $(N,)$ log-probabilities of all completions. Answer within $10^{-5}$; $|\lambda|$ is below 50.
#
# `beta` is at least 0.01 and `rounds` is from 1 to 100. All results are numbers.

# %% [given]
import math

import torch


# %% [stub]
def frozen(beta, rounds):
    """Returns a number, or math.inf."""
    raise NotImplementedError


def carried(beta, rounds):
    """Returns a number above 0."""
    raise NotImplementedError


def crest(logps, prompted_logps, which):
    """logps, prompted_logps: (N,). Returns a number."""
    raise NotImplementedError


# %% [solution]
def frozen(beta, rounds):
    # π ∝ π^(1 − λ) q^λ in each round: the exponent of π is multiplied by 1 − λ
    left = (1 - 1 / beta) ** rounds
    return math.inf if left == 1 else 1 / (1 - left)


def carried(beta, rounds):
    return beta / rounds


def crest(logps, prompted_logps, which):
    # d/dλ log π(y) = s(y) − E_λ[s], which falls in λ by the variance of s
    scores = prompted_logps - logps
    low, high = -50.0, 50.0
    for _ in range(60):
        middle = (low + high) / 2
        mean = float((torch.softmax(logps + middle * scores, -1) * scores).sum())
        low, high = (middle, high) if mean < float(scores[which]) else (low, middle)
    return low


# %% [tests]
import math

import torch
from minirlhf_course.classroom.testing import expect, fail, test


def laws(draw, n=4):
    """Return log-probabilities of a model and of the same model under a system prompt, with few digits."""
    weights = [
        torch.tensor([draw.integer(1, 9) for _ in range(n)], dtype=torch.float64) + 0.5 * k * torch.arange(n).double()
        for k in (0, 1)
    ]
    return [(w / w.sum()).log() for w in weights]


def one_round(logps, prompted, beta):
    """Return the optimal policy for the score with a KL penalty, completion by completion: weights π e^(s/β), in probabilities."""
    p, q = logps.exp(), prompted.exp()
    w = p * (q / p) ** (1 / beta)
    return (w / w.sum()).log()


def strength(start, end, prompted):
    """Return 1/λ of the one round that leads from start to end."""
    scores, moved = prompted - start, end - start
    scores, moved = scores - scores.mean(), moved - moved.mean()
    lam = float((scores * moved).sum() / (scores * scores).sum())
    return math.inf if abs(lam) < 1e-12 else 1 / lam


def asked(what, got, want, given, mistakes):
    if not isinstance(got, int | float | torch.Tensor):
        fail(f"{what} returns {got!r}; expected a number")
    if math.isinf(want) != math.isinf(float(got)):
        for say, x in mistakes.items():
            if math.isfinite(x) and abs(float(got) - x) < 1e-6:
                fail(f"{what} is wrong: {say}", given=given)
        if math.isinf(float(got)):
            fail(
                f"{what} is infinite, as if the policy ended where it began; the policy has moved, perhaps away from q",
                given=given,
            )
        fail(f"{what} is {float(got):.4g}; expected {want:.4g}", given=given)
    if math.isinf(want) and got < 0:
        fail(f"{what} is minus infinity; expected `math.inf` where the policies end where they began", given=given)
    if math.isfinite(want):
        expect(
            got, want, what=what, given=given, tolerance=1e-6,
            mistakes={say: x for say, x in mistakes.items() if math.isfinite(x) and abs(x - want) > 1e-4},
        )  # fmt: skip


@test(
    points=2,
    hints=(
        "Which exponent does π have in the result of one round? And of two?",
        "Each round multiplies the exponent of π by 1 − 1/β. The two exponents always add up to 1. What if β is ½?",
    ),
    against="rounds on a table of completions",
)
def the_prompt_stays(sub, draw):
    "`frozen` is the strength of one equivalent round if the prompted model does not change."
    start, prompted = laws(draw)
    while float((prompted - start).std()) < 0.2:
        start, prompted = laws(draw)
    options = [0.4, 0.8, 1.6, 2.5, 4.0]
    for beta, rounds in (
        (options[draw.integer(0, 4)], 1),
        (options[draw.integer(0, 4)], 2),
        (options[draw.integer(0, 4)], 3),
        (0.4, 3),
        (0.4, 2),
        (1.0, 2),
        (0.5, 2),
        (0.5, 1),
        (0.5, 3),
        (5e6, 2),
    ):
        end = start
        for _ in range(rounds):
            end = one_round(end, prompted, beta)
        lam = 1 / beta
        safe = lambda x: 1 / x if abs(x) > 1e-12 else math.nan
        asked(
            "`frozen`", sub.frozen(beta, rounds), strength(start, end, prompted), {"beta": beta, "rounds": rounds},
            {
                "the exponents are added, although each round starts from a policy that has moved towards q already": beta / rounds,
                "1/β is multiplied in each round; multiply the exponent of π instead": beta**rounds,
                "it is the strength of a single round": beta,
                "it is the exponent λ of q, and not 1/λ": 1 - (1 - lam) ** rounds,
                "it uses the final exponent of π, and not the exponent of q": safe((1 - lam) ** rounds),
                "the sign of 1 − 1/β is dropped": safe(1 - abs(1 - lam) ** rounds),
            },
        )  # fmt: skip


@test(
    points=1,
    hints=(
        "What is the score of a completion in the second round, if both models have been multiplied by the same factors?",
        "It is the same as before, up to a constant. So each round multiplies by e^{s/β}.",
    ),
    against="rounds on a table of completions",
)
def the_prompt_moves(sub, draw):
    "`carried` is that strength if the prompted model changes too."
    start, prompted = laws(draw)
    while float((prompted - start).std()) < 0.2:
        start, prompted = laws(draw)
    for rounds in (2, 3, 100):
        beta = [0.4, 0.8, 1.6, 2.5][draw.integer(0, 3)] * (50.0 if rounds == 100 else 1.0)
        end, moved = start, prompted
        for _ in range(rounds):
            new = one_round(end, moved, beta)
            end, moved = new, torch.log_softmax(moved + new - end, -1)
        left = (1 - 1 / beta) ** rounds
        asked(
            "`carried`", sub.carried(beta, rounds), strength(start, end, prompted), {"beta": beta, "rounds": rounds},
            {
                "the prompted model is held fixed": 1 / (1 - left) if abs(left - 1) > 1e-12 else math.nan,
                "β is multiplied by the number of rounds, although more rounds go further, which is a smaller β": beta * rounds,
                "the strengths are multiplied; the exponents add up instead": beta**rounds,
                "it is the strength of a single round": beta,
                "it is λ, and not 1/λ": rounds / beta,
            },
        )  # fmt: skip


def most_likely(start, prompted, which):
    """Return the exponent at which this completion is most probable, on a refined grid."""
    low, high = -60.0, 60.0
    for _ in range(12):
        grid = torch.linspace(low, high, 241, dtype=torch.float64)
        table = torch.log_softmax(start + grid[:, None] * (prompted - start), -1)[:, which]
        at, step = float(grid[int(table.argmax())]), float(grid[1] - grid[0])
        low, high = at - 2 * step, at + 2 * step
    return at


def one_step(start, scores, which):
    """Return where a single Newton step from λ = 0 ends, from the slope and the variance there; some scores differ, so the variance is not 0."""
    p = start.exp()
    mean = (p * scores).sum()
    return float((scores[which] - mean) / ((p * scores**2).sum() - mean**2))


def far(draw, sign):
    """Return two scores that nearly agree and a distant one of the most probable completion: the exponent is beyond 10."""
    rare = -10.0 - draw.integer(0, 4)
    start = torch.tensor([0.0, rare, rare], dtype=torch.float64).log_softmax(-1)
    scores = sign * torch.tensor([-1.0, 0.0, 0.05], dtype=torch.float64)
    return start, (start + scores).log_softmax(-1), 1


@test(
    points=2,
    hints=(
        "How does log π(y) change with λ? It has two terms: the completion's own score, and the change of the normaliser.",
        "The derivative is s(y) minus the mean score under the policy at λ. The mean grows with λ. Find by bisection the λ at which it equals s(y).",
    ),
    against="a grid of exponents, refined",
)
def highest(sub, draw):
    "`crest` is the exponent at which a completion is most probable."
    cases = [far(draw, sign) for sign in (1, -1)]
    for below in (True, False):  # the exponent is below 0, then above
        for _ in range(500):
            start, prompted = laws(draw, 5)
            scores = prompted - start
            which = int(scores.argsort()[draw.integer(1, 3)])
            gaps = (scores - scores[which]).abs()
            alone = float(gaps[gaps > 0].min()) > 0.15 and int((gaps == 0).sum()) == 1
            if not alone or (float(scores[which]) < float((start.exp() * scores).sum())) != below:
                continue
            at, plain = most_likely(start, prompted, which), one_step(start, scores, which)
            if abs(plain - at) > 0.01:
                break
        cases.append((start, prompted, which))
    for start, prompted, which in reversed(cases):
        at, plain = most_likely(start, prompted, which), one_step(start, prompted - start, which)
        got = sub.crest(start, prompted, which)
        if not isinstance(got, int | float | torch.Tensor):
            fail(f"`crest` returns {got!r}; expected a number")
        expect(
            got, at, what="`crest`", given={"logps": start, "prompted_logps": prompted, "which": which}, tolerance=2e-5,
            mistakes={
                say: x
                for say, x in {
                    "it is the strength β, but λ is required": 1 / at if abs(at) > 1e-9 else math.nan,
                    "it is λ of the prompted model, although the completion may be most probable elsewhere": 1.0,
                    "it is λ of the model without the prompt": 0.0,
                    "it is one Newton step, from the slope and the variance at λ = 0": plain,
                    "the search begins at 0, although λ may be below": 1e-6 if at < 0 else math.nan,
                    "the score has the wrong sign: the log-probability without the trait minus the one with it": -at,
                    **{
                        f"the search ends at {edge}, and λ may be larger in size": math.copysign(edge, at)
                        for edge in (3.0, 5.0, 10.0)
                        if abs(at) > edge
                    },
                }.items()
                if x == x and abs(x - at) > 1e-3
            },
        )  # fmt: skip


# %% [edges]
# the_prompt_stays: The answer may be negative
# the_prompt_stays: `math.inf` if they end where they began
# highest: positive or not


# %% [probes]
# no integers, size, values, float32, gradient, keywords, nan: the results are numbers, not tensors


# %% [mutant] the exponents add up
# caught by: the_prompt_stays
# says: moved towards q already
def frozen(beta, rounds):
    return beta / rounds


# %% [mutant] without the sign
# caught by: the_prompt_stays
# says: sign of
def frozen(beta, rounds):
    left = abs(1 - 1 / beta) ** rounds
    return math.inf if left == 1 else 1 / (1 - left)


# %% [mutant] as if it stayed
# caught by: the_prompt_moves
# says: prompted model is held fixed
def carried(beta, rounds):
    left = (1 - 1 / beta) ** rounds
    return math.inf if left == 1 else 1 / (1 - left)


# %% [mutant] one Newton step
# caught by: highest
# says: one Newton step
def crest(logps, prompted_logps, which):
    scores = prompted_logps - logps
    p = logps.exp()
    mean = (p * scores).sum()
    return float((scores[which] - mean) / ((p * scores**2).sum() - mean**2))


# %% [mutant] the strength
# caught by: highest
# says: but λ is required
def crest(logps, prompted_logps, which):
    scores = prompted_logps - logps
    low, high = -50.0, 50.0
    for _ in range(60):
        middle = (low + high) / 2
        mean = float((torch.softmax(logps + middle * scores, -1) * scores).sum())
        low, high = (middle, high) if mean < float(scores[which]) else (low, middle)
    return 1 / low


# %% [partial] 3: without the crest
def crest(logps, prompted_logps, which):
    return 1.0
