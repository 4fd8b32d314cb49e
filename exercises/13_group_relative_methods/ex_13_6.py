# ---
# title: GRPO, running
# kind: implement
# minutes: 45
# uses: 02.6, 13.1
# seconds: 90
# ---

# %% [statement]
# Your parts run together: your `sample` (02.6) samples the completions, your `advantages` (13.1) compare them within their groups, and here you write the update. The
# task is the small shell game of exercise 12.7 (`minirlhf.data.nano_shell`, one page). Here every game has a grader of its own, with rewards on another scale.
#
# 1. (five minutes) `share_clipped(ratio, mask, epsilon)`: the fraction of the tokens under the mask whose ratio is outside $[1-\varepsilon, 1+\varepsilon]$, one number. Logs
#    of GRPO runs show it, or the fraction of tokens that lose their gradient by the clip.
# 2. `update(weights, reference, games, tokens, mask, advantages, epochs, lr, epsilon, beta)`: `epochs` steps, one after the other, on *one* batch of completions. `weights`
#    sampled the batch, and `reference` are the weights of the initial policy. At each token the objective is
#    $\min(\rho A, \hat\rho A) - \beta k$, with the clipped ratio $\hat\rho = \mathrm{clip}(\rho, 1-\varepsilon, 1+\varepsilon)$ and the penalty
#    $k = e^u - 1 - u$, where $u = \log\pi_\text{ref} - \log\pi$. Average it over *all tokens* of the batch, as DAPO
#    does. Add `lr` times the gradient to the weights, and return the weights after the last step. `advantages` is `(P, G)`, the rows of `games`, `tokens` and `mask` are prompt-major, `(P·G, 4)`.
#
# How it is graded: 12 batches of 16 games with 8 completions each, and eight steps on each batch with `lr = 25`
# (so large that the clip matters), $\varepsilon = 0.2$ and $\beta = 0$, on six seeds, each paired with our run. The final fraction of games won is computed
# exactly. You pass if the lower end of the 95 % interval of (your fraction − ours) is above −0.15.

# %% [given]
import torch
from minirlhf.data.nano_shell import logps


# %% [stub]
def share_clipped(ratio, mask, epsilon):
    """ratio: (B, T). mask: (B, T) bool. Returns one number."""
    raise NotImplementedError


def update(weights, reference, games, tokens, mask, advantages, epochs, lr, epsilon, beta):
    """weights, reference: (12, 4). games, tokens, mask: (P·G, 4). advantages: (P, G). Returns new weights, (12, 4)."""
    raise NotImplementedError


# %% [solution]
def share_clipped(ratio, mask, epsilon):
    return ((ratio[mask] - 1).abs() > epsilon).double().mean()


def update(weights, reference, games, tokens, mask, advantages, epochs, lr, epsilon, beta):
    old, ref = logps(weights, games, tokens).detach(), logps(reference, games, tokens).detach()
    a = advantages.reshape(-1, 1)
    for _ in range(epochs):
        weights = weights.detach().clone().requires_grad_()
        new = logps(weights, games, tokens)
        ratio, u = (new - old).exp(), ref - new
        objective = torch.minimum(ratio * a, ratio.clamp(1 - epsilon, 1 + epsilon) * a) - beta * (u.exp() - 1 - u)
        objective[mask].mean().backward()
        weights = weights + lr * weights.grad
    return weights.detach()


# %% [tests]
import torch
from minirlhf.core import exact
from minirlhf.data import nano_shell
from minirlhf_course.classroom.testing import expect, fail, test, tidy
from minirlhf_course.classroom.training import trains, weights_of


@test(
    points=1,
    hints=(
        "Count tokens, not completions. Which tokens of the batch are real?",
        "`ratio[mask]` are the real tokens. Count those further than ε from 1, on either side.",
    ),
)
def counts(sub, draw):
    "`share_clipped` is the fraction of tokens under the mask whose ratio is outside the interval."
    mask = torch.arange(5) < torch.tensor([5, 1, draw.integer(2, 3)])[:, None]
    ratio = 1.003 + tidy(draw.away_from([-0.2, 0.2], 3, 5, low=-0.5, high=0.5, margin=0.06), 2)
    ratio[0, :2] = torch.tensor([0.62, 1.41], dtype=torch.float64)  # one on each side
    ratio[1, 0] = 1.04
    rows = [row[:n] for row, n in zip(ratio.tolist(), mask.sum(-1).tolist(), strict=True)]
    out = [[abs(x - 1) > 0.2 for x in row] for row in rows]
    flat = [x for row in out for x in row]
    everything = [abs(x - 1) > 0.2 for x in ratio.flatten().tolist()]
    expect(
        sub.share_clipped(torch.where(mask, ratio, torch.nan), mask, 0.2),
        sum(flat) / len(flat),
        what="the fraction",
        given={"ratio": ratio, "mask": mask, "epsilon": 0.2},
        mistakes={
            "only ratios above 1 + ε count": sum(x > 1.2 for row in rows for x in row) / len(flat),
            "padding is counted as tokens": sum(flat) / len(everything),
            "it is the mean over completions": sum(sum(row) / len(row) for row in out) / len(out),
        },
    )
    edge = torch.tensor([[0.75, 1.25, 1.5, 1.0]], dtype=torch.float64)  # 0.75 and 1.25 lie in the interval
    got = sub.aside.share_clipped(edge, torch.ones(1, 4, dtype=torch.bool), 0.25)
    slips = {"a ratio of exactly 1 ± ε is counted, but it lies in the interval": 0.75}
    expect(got, 0.25, what="the fraction", given={"ratio": edge, "epsilon": 0.25}, mistakes=slips)


def played(sub, draw, weights, groups=16, size=8):
    """Return completions of a few games, by the student's own sampler."""
    games = nano_shell.GAMES[draw.permutation(81)[:groups]].repeat_interleave(size, 0)
    tokens, mask, earned = nano_shell.play(weights, games, sub.part("02.6").sample, draw.integer(0, 2**28))
    return games, tokens, mask, earned.reshape(groups, size)


def by_hand(weights, reference, games, tokens, mask, a, epochs, lr, epsilon, beta, mean=None):
    """Return the weights after the update, step by step."""
    mean = mean or (lambda x: x[mask].mean())
    old, ref = (nano_shell.logps(w, games, tokens) for w in (weights, reference))
    for _ in range(epochs):
        w = weights.clone().requires_grad_()
        new = nano_shell.logps(w, games, tokens)
        rho, u = (new - old).exp(), ref - new
        gain = torch.minimum(rho * a.reshape(-1, 1), rho.clamp(1 - epsilon, 1 + epsilon) * a.reshape(-1, 1))
        [slope] = torch.autograd.grad(mean(gain - beta * (u.exp() - 1 - u)), w)
        weights = weights + lr * slope
    return weights


@test(
    points=1,
    hints=(
        "All advantages are 0 here, so only the penalty is left. Towards which policy should it move the weights?",
        "u = log π_ref − log π, with the *reference* policy, not the behaviour policy. The penalty is subtracted from what you maximise.",
    ),
)
def pulls_back(sub, draw):
    "With β and without advantages, `update` brings the policy nearer to the reference; with neither, the policy does not change; padding does not count."
    reference = nano_shell.beginner(torch.zeros(12, 4, dtype=torch.float64))
    weights = reference + tidy(draw.uniform(12, 4, low=-1, high=1))
    games, tokens, mask, _ = played(sub, draw, weights, groups=16)
    nothing = torch.zeros(16, 8, dtype=torch.float64)
    asked = (weights, reference, games, tokens, mask, nothing, 5, 4.0, 0.2)
    still = weights_of(sub.update(*asked, 0.0), weights)
    expect(still.softmax(-1), weights.softmax(-1), what="the policy after an update without advantages and penalty")
    near = weights_of(sub.update(*asked, 0.5), weights)
    visited = nano_shell.rows(games, tokens)[mask].unique()
    before, after = (exact.divergence(w.softmax(-1), reference.softmax(-1))[visited].mean() for w in (weights, near))
    if after > 0.9 * before:
        fail(
            f"the penalty should bring the policy nearer to the reference: the KL was {before:.3f} nats per token and is {after:.3f} after five "
            "steps with β = 0.5"
        )
    noise = torch.where(mask, tokens, draw.integer(1, 2))
    again = weights_of(sub.update(weights, reference, games, noise, mask, nothing, 5, 4.0, 0.2, 0.5), weights)
    expect(again, near, what="the update with other tokens after the ends of the completions", reveal=False)
    over_replies = lambda x: (x.masked_fill(~mask, 0.0).sum(-1) / mask.sum(-1)).mean()
    expect(
        near,
        by_hand(*asked, 0.5),
        what="the weights after five steps with the penalty alone",
        reveal=False,
        mistakes={
            "the mean is taken over completions, not over all tokens": by_hand(*asked, 0.5, mean=over_replies),
            "padding is averaged as well": by_hand(*asked, 0.5, mean=torch.mean),
        },
    )


def every_argument(sub, draw):
    """The update with other numbers for all its arguments, with advantages and the penalty together."""
    reference = nano_shell.beginner(torch.zeros(12, 4, dtype=torch.float64))
    weights = reference + 0.5 * draw.normal(12, 4)
    games, tokens, mask, _ = played(sub, draw, weights)
    for epsilon in (0.1, 0.35):
        numbers = (draw.integer(2, 4), float(draw.uniform(1, low=8, high=16)), epsilon, 0.3)
        asked = (weights, reference, games, tokens, mask, draw.normal(16, 8), *numbers)
        names = ("epochs", "lr", "epsilon", "beta")
        given = dict(zip(names, numbers, strict=True))
        expect(sub.update(*asked), by_hand(*asked), what="the weights after an update", given=given, reveal=False)


@trains(
    points=3,
    hints=(
        "All eight steps use the same completions. With which policy does the clip compare the current one at the fifth step?",
        "Compute the old log-probabilities once, before the loop, and detach them (`.detach()`). Take the minimum of the clipped and the unclipped term, "
        "over the tokens in the mask, all with equal weight. Add the gradient: this is an objective.",
    ),
    seeds=6,
    bar=0.15,
    what="the fraction of games won",
    also=(every_argument,),
    fixed=("update",),
)
def learns(sub, draw):
    "In 12 batches the policy learns the game: six runs, each paired with ours."
    reference = weights = nano_shell.beginner(draw.normal(12, 4, scale=0.2))
    curve = [nano_shell.accuracy(weights)[0]]
    for number in range(1, 13):
        games, tokens, mask, earned = played(sub, draw, weights)
        marks = draw.uniform(16, 1, low=-2, high=2) + draw.uniform(16, 1, low=0.6, high=1.6) * earned
        a = sub.part("13.1").advantages(marks)
        new = sub.update(weights, reference, games, tokens, mask, a, 8, 25.0, 0.2, 0.0)
        weights = weights_of(new, weights)
        if number % 2 == 0:
            curve.append(nano_shell.accuracy(weights)[0])
    return curve


# %% [edges]
# counts: is outside $[1-\varepsilon, 1+\varepsilon]$


# %% [probes]
# no varied of update.games, update.tokens, update.mask, update.advantages: sixteen games and eight completions, as the statement says
# no keywords, size, values, float32, gradient of update: any update that learns is right
# no gradient: fractions are counted, and an update is not differentiated


# %% [mutant] one side only
# caught by: counts
# says: only ratios above
def share_clipped(ratio, mask, epsilon):
    return (ratio[mask] > 1 + epsilon).double().mean()


# %% [mutant] padding counts
# caught by: counts
# says: padding
def share_clipped(ratio, mask, epsilon):
    return (((ratio - 1).abs() > epsilon) & mask).double().mean()


# %% [mutant] the penalty is added
# caught by: pulls_back
# says: nearer to the reference
def update(weights, reference, games, tokens, mask, advantages, epochs, lr, epsilon, beta):
    old, ref = logps(weights, games, tokens).detach(), logps(reference, games, tokens).detach()
    a = advantages.reshape(-1, 1)
    for _ in range(epochs):
        weights = weights.detach().clone().requires_grad_()
        new = logps(weights, games, tokens)
        ratio, u = (new - old).exp(), ref - new
        objective = torch.minimum(ratio * a, ratio.clamp(1 - epsilon, 1 + epsilon) * a) + beta * (u.exp() - 1 - u)
        objective[mask].mean().backward()
        weights = weights + lr * weights.grad
    return weights.detach()


# %% [mutant] near the behaviour policy
# caught by: pulls_back
# says: nearer to the reference
def update(weights, reference, games, tokens, mask, advantages, epochs, lr, epsilon, beta):
    old = logps(weights, games, tokens).detach()
    a = advantages.reshape(-1, 1)
    for _ in range(epochs):
        weights = weights.detach().clone().requires_grad_()
        new = logps(weights, games, tokens)
        ratio, u = (new - old).exp(), old - new
        objective = torch.minimum(ratio * a, ratio.clamp(1 - epsilon, 1 + epsilon) * a) - beta * (u.exp() - 1 - u)
        objective[mask].mean().backward()
        weights = weights + lr * weights.grad
    return weights.detach()


# %% [mutant] nothing is clipped
# caught by: learns
# says: below ours
def update(weights, reference, games, tokens, mask, advantages, epochs, lr, epsilon, beta):
    old, ref = logps(weights, games, tokens).detach(), logps(reference, games, tokens).detach()
    for _ in range(epochs):
        weights = weights.detach().clone().requires_grad_()
        new = logps(weights, games, tokens)
        u = ref - new
        objective = (new - old).exp() * advantages.reshape(-1, 1) - beta * (u.exp() - 1 - u)
        objective[mask].mean().backward()
        weights = weights + lr * weights.grad
    return weights.detach()


# %% [mutant] the old policy moves along
# caught by: learns
# says: below ours
def update(weights, reference, games, tokens, mask, advantages, epochs, lr, epsilon, beta):
    ref = logps(reference, games, tokens).detach()
    a = advantages.reshape(-1, 1)
    for _ in range(epochs):
        weights = weights.detach().clone().requires_grad_()
        new = logps(weights, games, tokens)
        ratio, u = (new - new.detach()).exp(), ref - new
        objective = torch.minimum(ratio * a, ratio.clamp(1 - epsilon, 1 + epsilon) * a) - beta * (u.exp() - 1 - u)
        objective[mask].mean().backward()
        weights = weights + lr * weights.grad
    return weights.detach()


# %% [mutant] downhill
# caught by: learns
# says: it gets worse as it trains
def update(weights, reference, games, tokens, mask, advantages, epochs, lr, epsilon, beta):
    old, ref = logps(weights, games, tokens).detach(), logps(reference, games, tokens).detach()
    a = advantages.reshape(-1, 1)
    for _ in range(epochs):
        weights = weights.detach().clone().requires_grad_()
        new = logps(weights, games, tokens)
        ratio, u = (new - old).exp(), ref - new
        objective = torch.minimum(ratio * -a, ratio.clamp(1 - epsilon, 1 + epsilon) * -a) - beta * (u.exp() - 1 - u)
        objective[mask].mean().backward()
        weights = weights + lr * weights.grad
    return weights.detach()


# %% [mutant] rows taken sample-major
# caught by: learns
# says: below ours
def update(weights, reference, games, tokens, mask, advantages, epochs, lr, epsilon, beta):
    old, ref = logps(weights, games, tokens).detach(), logps(reference, games, tokens).detach()
    a = advantages.T.reshape(-1, 1)
    for _ in range(epochs):
        weights = weights.detach().clone().requires_grad_()
        new = logps(weights, games, tokens)
        ratio, u = (new - old).exp(), ref - new
        objective = torch.minimum(ratio * a, ratio.clamp(1 - epsilon, 1 + epsilon) * a) - beta * (u.exp() - 1 - u)
        objective[mask].mean().backward()
        weights = weights + lr * weights.grad
    return weights.detach()


# %% [mutant] the ends of the interval count
# caught by: counts
# says: exactly 1 ± ε
def share_clipped(ratio, mask, epsilon):
    return ((ratio[mask] - 1).abs() >= epsilon).double().mean()


# %% [partial] 1: the fraction
def update(weights, reference, games, tokens, mask, advantages, epochs, lr, epsilon, beta):
    raise NotImplementedError
