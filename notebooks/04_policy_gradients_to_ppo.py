# %% [markdown]
# # 04 · Which way is up?
#
# Chapter 03 computed the values of states. Now the policy is a function with parameters. In which direction should we move them? The answer is an expectation, and there are
# many ways to estimate it. **Which of them can you trust after a handful of episodes, and how far may one step go before the estimate describes another policy?** We begin with tasks in which we can
# list every episode, and end with CartPole, in which we cannot.

# %%
import math
from dataclasses import replace
from functools import partial

import matplotlib.pyplot as plt
import torch
from IPython.display import Markdown

from minirlhf.control import policy_optimisation as po
from minirlhf.core.progress import progress
from minirlhf.core.randomness import generator
from minirlhf.equations import mdp, returns
from minirlhf.equations import policy_gradient as pg
from minirlhf.equations import policy_losses as losses
from minirlhf.equations.advantages import whiten
from minirlhf.tabular.process import sample_episodes
from minirlhf_course import evidence
from minirlhf_course.chapters.ch04_policy_gradients_to_ppo import estimates, mistakes, poles, steps
from minirlhf_course.classroom.predictions import Predictions
from minirlhf_course.report.plotting import PALETTE

torch.set_num_threads(1)
plt.rcParams.update({"font.size": 9, "axes.spines.top": False, "axes.spines.right": False})

study = evidence.StudyResults("ch04")  # five seeds of the runs on CartPole
# the same seeds, with entropy bonuses and with gradients that are not clipped
coefficients = evidence.StudyResults("ch04_coefficients")
predict = Predictions("04")

# %% [markdown]
# ## Six estimators of one gradient
#
# The hill has three ledges. Each step costs 1, and the top gives 6. Within five steps there are 683 possible episodes, so we can list them all with their probabilities and their
# estimates of the gradient. This gives the exact mean and variance of every estimator, without sampling.
#
# All six have the same mean. Order them by variance: total return, reward-to-go, reward-to-go less the value, $Q$, advantage, TD residual.

# %%
factor = predict("What is the ratio of the largest to the smallest variance?", 2, 10, 50, 250)

# %%
# NBVAL_CHECK_OUTPUT
listed = estimates.list_episodes(estimates.hill(), torch.zeros(4, 2, dtype=torch.float64), horizon=5)
print(f"{len(listed.probs)} episodes, their probabilities add up to {float(listed.probs.sum()):.6f}")


def gradient(psi):
    """E[Σ_t Ψ_t ∇log π], by summing over all episodes."""
    each = (psi[..., None] * listed.scores * listed.mask[..., None]).sum(1)  # (N, D)
    return listed.probs @ each


truth = listed.gradient()
exact_variance = {}
print("Ψ                    same gradient   variance of one episode's estimate")
for name, psi in listed.choices().items():
    torch.testing.assert_close(gradient(psi), truth)
    bias, variance = listed.bias_and_variance(psi)
    exact_variance[name] = variance
    print(f"{name:20} {'yes' if bias < 1e-20 else 'no':^13} {variance:17.3f}")
factor.reveal(max(exact_variance.values()) / min(exact_variance.values()))

# %%
# figure: psi
# alt: The variance of six estimators of the same gradient as bars on a logarithmic axis. The total return has the largest variance, then reward-to-go, Q, reward-to-go less the value, the TD residual and the advantage.
#   Dots from four thousand sampled episodes agree with the exact bars.
rng = generator("notebook", 4)
sampled = {name: listed.sampled_variance(psi, count=4_000, rng=rng) for name, psi in listed.choices().items()}
fig, ax = plt.subplots(figsize=(6.4, 2.7), layout="constrained")
names = list(exact_variance)
ax.barh(names, list(exact_variance.values()), color=PALETTE["sky"], label="exact, over all episodes")
ax.plot(list(sampled.values()), names, "o", color=PALETTE["black"], ms=4, label="from 4,000 sampled episodes")
ax.set(xscale="log", xlabel="variance of one episode's estimate", xlim=(0.5, 100))
ax.invert_yaxis()
ax.legend(frameon=False)
plt.show()

# %%
assert all(abs(sampled[name] / exact_variance[name] - 1) < 0.25 for name in names)

# %% [markdown]
# An average over $K$ episodes has this variance divided by $K$. So a good $\Psi$ needs 49 times fewer episodes: this is the ratio of the first line to the fifth. Note what does *not* help. $Q$ has no
# noise, and its variance is still larger than for a noisy return less the value, because nearly all of its weights have the same sign.
#
# The last line is unbiased because the critic is the *true* value here. With another critic the TD residual has a bias; the return less the value has none:

# %%
# NBVAL_CHECK_OUTPUT
wrong = 0.5 * listed.values
for name, psi in {
    "TD residual, V": returns.gae(listed.rewards, listed.values, listed.mask, lam=0.0),
    "TD residual, V/2": returns.gae(listed.rewards, wrong, listed.mask, lam=0.0),
    "reward-to-go − V/2": returns.gae(listed.rewards, wrong, listed.mask, lam=1.0),
}.items():
    bias, variance = listed.bias_and_variance(psi)
    print(f"{name:19} squared bias {bias:6.3f}   variance {variance:6.3f}")

# %% [markdown]
#
# ## The best baseline is not the value
#
# One decision, one logit: $\pi = (.9, .1)$, $Q = (1, 0)$. The value is .9.

# %%
value_or_none = predict("Which baseline gives the smaller variance?", "the value", "none", "both are equal")

# %%
pi, Q = torch.tensor([0.9, 0.1], dtype=torch.float64), torch.tensor([1.0, 0.0], dtype=torch.float64)
scores = torch.tensor([[0.1], [-0.9]], dtype=torch.float64)  # d log π / d logit of the first action
best = float(pg.optimal_baseline(pi, scores, Q))
baselines = {"none": 0.0, "best": best, "the value": float(pi @ Q)}
spread = {name: float(pg.gradient_variance(pi, scores * (Q - b)[:, None])) for name, b in baselines.items()}
for name, b in baselines.items():
    mean = float((pi[:, None] * scores * (Q - b)[:, None]).sum())
    print(f"{name:9} b = {b:.1f}: mean {mean:.4f}, variance {spread[name]:.4f}")
value_or_none.reveal("the value" if spread["the value"] < spread["none"] else "none")

# %%
# figure: baseline
# alt: The variance of the estimate as a function of the baseline is a parabola. Without a baseline the variance is small, at the value it is far larger, and at the best baseline it is zero.
grid = torch.linspace(-0.3, 1.0, 100, dtype=torch.float64)
fig, ax = plt.subplots(figsize=(5, 2.7), layout="constrained")
ax.plot(grid, [float(pg.gradient_variance(pi, scores * (Q - b)[:, None])) for b in grid], color=PALETTE["blue"])
for (name, b), (*shift, place) in zip(
    baselines.items(), ((0, 22, "right"), (7, 6, "left"), (-7, 6, "right")), strict=True
):
    ax.plot(b, spread[name], "o", color=PALETTE["red"])
    ax.annotate(f"{name}\n{spread[name]:.4f}", (b, spread[name]), xytext=shift, textcoords="offset points", ha=place)
ax.set(xlabel="baseline", ylabel="variance", ylim=(-0.002, 0.085))
plt.show()

# %% [markdown]
# The mean is .09 with every baseline. The rare action has the long score, −.9 against .1, and counts most in the best baseline. With $b = .1$ both actions give the same estimate, and no variance is left. The
# value is close to the $Q$ of the frequent action, whose score is short. In practice the value is often a good baseline, but no theorem says so.
#
# A third candidate is the mean of the batch. We list all $2^4$ batches of four samples:

# %%
own = predict(
    "The batch mean contains the sample itself. Is the estimate still unbiased?",
    "yes",
    "no, it is too short",
    "no, it is too long",
)

# %%
# NBVAL_CHECK_OUTPUT
batches = torch.cartesian_prod(*[torch.arange(2)] * 4)  # (16, 4)
chance, earned, score = pi[batches].prod(-1), Q[batches], scores[batches][..., 0]
others = (earned.sum(-1, keepdim=True) - earned) / 3
for name, b in (
    ("no baseline", 0.0),
    ("mean of the others", others),
    ("mean of all four", earned.mean(-1, keepdim=True)),
):
    mean = float((chance * ((earned - b) * score).mean(-1)).sum())
    print(f"{name:19} mean estimate {mean:.4f} = {mean / 0.09:.2f} of the gradient")
print("(K − 1)/K =", pg.group_mean_shrinkage(4))
own.reveal("yes" if math.isclose(mean, 0.09) else "no, it is too short" if mean < 0.09 else "no, it is too long")

# %% [markdown]
# ## REINFORCE if states look alike
#
# The short corridor has three cells. Each step costs 1, and in the second cell left and right are exchanged. The policy cannot distinguish the cells; it has one number, the probability $p$ of going right. A deterministic
# policy never arrives. What is the best $p$?


# %%
process = steps.corridor(3, {1})
alike = steps.alike(process)


def reinforce(weight, seed, updates=120, batch=10):
    """p after each update; the objective and the returns are the library's."""
    theta, trace = torch.tensor([math.log(0.2 / 0.8)], dtype=torch.float64), []
    draw = generator("corridor", seed)
    for _ in range(updates):
        policy = (alike @ theta).softmax(-1)
        episodes = sample_episodes(process, policy, count=batch, rng=draw, time_limit=100)
        at = theta.clone().requires_grad_()
        logps = (alike @ at).log_softmax(-1)[episodes.states[:, :-1], episodes.actions]
        objective = losses.reinforce(logps, logps.detach(), weight(episodes, policy), episodes.mask)
        (slope,) = torch.autograd.grad(objective.sum() / batch, at)
        theta = theta + 0.004 * slope
        trace.append(float(theta.sigmoid()))
    return trace


def total(episodes, policy):
    return returns.total_return(episodes.rewards, episodes.mask)


def centred(episodes, policy):
    V = mdp.policy_values(process.transitions, process.expected_rewards, policy, gamma=1.0)
    to_go = returns.returns_to_go(episodes.rewards, episodes.mask)
    return returns.subtract_baseline(to_go, V[episodes.states[:, :-1]], episodes.mask)


def without_noise(updates=120):
    """The same number of steps of the same size along the exact gradient."""
    theta, trace = torch.tensor([math.log(0.2 / 0.8)], dtype=torch.float64), []
    for _ in range(updates):
        at = theta.clone().requires_grad_()
        p = at.sigmoid()
        (slope,) = torch.autograd.grad((-2 * (2 - p) / (p * (1 - p))).sum(), at)
        theta = theta + 0.004 * slope
        trace.append(float(theta.sigmoid()))
    return trace


exact_climb = without_noise()
climbs = {}
for name, weight in progress({"total return": total, "reward-to-go − V": centred}.items(), "climbing"):
    climbs[name] = torch.tensor([reinforce(weight, seed) for seed in range(4)])
    last = climbs[name][:, -40:]
    print(
        f"{name:16} the last 40 updates: p = {float(last.mean()):.3f} ± {float(last.std()):.3f}; the best is {2 - math.sqrt(2):.3f}"
    )
print(f"exact gradient   the last 40 updates: p = {sum(exact_climb[-40:]) / 40:.3f}, and it is still climbing")

# %%
# figure: corridor
# alt: Left, the expected return as a function of the probability of going right, a curve with its maximum somewhat above one half. Right, this probability over 120 updates of REINFORCE
#   from a start at 0.2, mean and range of four runs each, beside the same steps along the exact gradient. Reward-to-go less the value follows the exact path in a narrow band and is still below the best probability after 120 updates.
#   The total return moves around it in a wide band.
fig, axes = plt.subplots(1, 2, figsize=(8, 2.8), layout="constrained")
p = torch.linspace(0.08, 0.95, 100, dtype=torch.float64)
axes[0].plot(p, -2 * (2 - p) / (p * (1 - p)), color=PALETTE["black"])
axes[0].plot(2 - math.sqrt(2), -11.6569, "o", color=PALETTE["red"])
axes[0].set(xlabel="probability of going right", ylabel="expected return", ylim=(-60, 0))
for (name, traces), colour in zip(climbs.items(), ("red", "blue"), strict=True):
    axes[1].plot(traces.mean(0), color=PALETTE[colour], label=name)
    axes[1].fill_between(range(120), traces.amin(0), traces.amax(0), color=PALETTE[colour], alpha=0.15, lw=0)
axes[1].plot(exact_climb, color=PALETTE["black"], lw=1, ls="--", label="exact gradient")
axes[1].axhline(2 - math.sqrt(2), color="0.5", ls=":")
axes[1].set(xlabel="update", ylabel="probability of going right", ylim=(0, 1))
axes[1].legend(frameon=False, loc="lower right")
plt.show()

# %% [markdown]
# Reward-to-go less the value follows the exact gradient closely. Neither has arrived after 120 updates, because the slope is small near the optimum. The total return moves up and down around the same path; two of these four runs end above the best $p$.
#
# One step of each method by hand. Two actions have probabilities .6 and .4. The second was taken and got the return 3, and the baseline is 1, so $A = 2$. The step size is .1, and PPO makes three passes over the same sample.

# %%
# NBVAL_CHECK_OUTPUT
z = torch.tensor([[0.6, 0.4]], dtype=torch.float64).log()
sampled, one_step = z.log_softmax(-1)[:, 1:], torch.ones(1, 1, dtype=torch.bool)
for step in (1, 2, 3):
    at = z.clone().requires_grad_()
    chosen = at.log_softmax(-1)[:, 1:]
    (slope,) = torch.autograd.grad(losses.ppo_clip(chosen, sampled, torch.full_like(chosen, 2.0), one_step).sum(), at)
    z = z + 0.1 * slope
    now = float(z.softmax(-1)[0, 1])
    pushed = ", ".join(f"{x:+.3f}" for x in (0.1 * slope[0]).tolist())
    print(f"pass {step}: logits move by {pushed}; probability {now:.3f}, ratio {now / 0.4:.3f}")

# %% [markdown]
# The first pass is REINFORCE's step. The second begins inside the clip range and ends outside. The clip removes the gradient of a ratio that *has* left the range; it does not keep the ratio inside. The third pass changes nothing.
#
# ## How far to rely on a critic: λ
#
# GAE mixes the TD residual (λ = 0), which relies on the critic, with the full return (λ = 1), which relies on the rewards. Give it a *wrong* critic, one that returns half of every value. How do
# bias and variance change from λ = 0 to λ = 1?

# %%
# NBVAL_CHECK_OUTPUT
example = {
    "rewards": torch.tensor([[0.0, 0, 1]]),
    "values": torch.tensor([[0.5, 0.6, 0.7]]),
    "mask": torch.ones(1, 3, dtype=torch.bool),
}
for lam in (0.0, 0.95, 1.0):
    print(f"λ = {lam:4}: advantages", [round(x, 5) for x in returns.gae(**example, gamma=1.0, lam=lam)[0].tolist()])


def gae(rewards, values, gamma, lam):
    """A_t = δ_t + γλ A_{t+1}, from the end; one row, nothing after its last step."""
    advantages, following, after = [], 0.0, 0.0
    for r, v in zip(rewards[::-1], values[::-1], strict=True):
        following = r + gamma * after - v + gamma * lam * following
        advantages.insert(0, following)
        after = v
    return advantages


mine = gae([0.0, 0, 1], [0.5, 0.6, 0.7], 1.0, 0.95)
torch.testing.assert_close(torch.tensor([mine]), returns.gae(**example, gamma=1.0, lam=0.95))

# %%
lams = torch.linspace(0, 1, 201).tolist()
pairs = [
    listed.bias_and_variance(returns.gae(listed.rewards, 0.5 * listed.values, listed.mask, lam=lam)) for lam in lams
]
bias, variance = (torch.tensor(x) for x in zip(*pairs, strict=True))
least = {episodes: lams[int((bias + variance / episodes).argmin())] for episodes in (16, 64, 1000)}
print(
    f"least error with 64 episodes at λ = {least[64]:.2f}, with 16 at {least[16]:.2f}, with 1,000 at {least[1000]:.2f}"
)

# %%
# figure: lambda
# alt: Squared bias and variance of the gradient estimate against lambda, with a critic that returns half of every value. The variance rises with lambda, and the squared bias falls to zero.
#   Their sum, the squared error of an average of 64 episodes, has its minimum between the middle and the right end.
fig, ax = plt.subplots(figsize=(5.4, 2.8), layout="constrained")
ax.plot(lams, bias, color=PALETTE["red"], label="squared bias")
ax.plot(lams, variance / 64, color=PALETTE["blue"], ls="--", label="variance, mean of 64 episodes")
ax.plot(lams, bias + variance / 64, color=PALETTE["black"], lw=2, label="error: their sum")
ax.set(xlabel="λ", ylabel="squared error of the gradient", ylim=(0, 0.32))
ax.legend(frameon=False, loc="upper center")
plt.show()

# %% [markdown]
# With few episodes a small λ is better, with many a large λ, because noise averages out and the critic's error does not. Language models use λ from .95 to 1.
#
# ## Old samples
#
# A batch is used several times, so most updates change a policy that did not sample it. Importance weights repair the mean. Take two policies with probabilities $(.6,.4)$ and $(.5,.5)$ in every step. After one step
# the second moment of the weight is 1.04.

# %%
moment = predict("What is the second moment of the weight after 100 steps?", 1.5, 5, 50, 5000)

# %%
# NBVAL_CHECK_OUTPUT
new, old = torch.tensor([0.6, 0.4], dtype=torch.float64), torch.tensor([0.5, 0.5], dtype=torch.float64)
per_step = float((new**2 / old).sum())
for length in (1, 10, 100, 1000):
    print(f"{length:5} steps: E[w²] = {per_step**length:.4g}")
flips = torch.cartesian_prod(*[torch.arange(2)] * 10)
weights = returns.importance_weights(new.log()[flips], old.log()[flips], torch.ones_like(flips, dtype=torch.bool))[
    :, -1
]
print(
    f"   10 steps, all 1,024 sequences listed: mean {float((old[flips].prod(-1) * weights).sum()):.4f}, E[w²] {float((old[flips].prod(-1) * weights**2).sum()):.4f}"
)
moment.reveal(per_step**100)

# %% [markdown]
# PPO drops the product over steps and keeps each step's own ratio. It accepts a bias for a variance that does not explode. The clip then removes the gain of moving a ratio far from 1.
#
# ## The clip, in six cases
#
# Advantage positive or negative; ratio below, inside or above $[.8, 1.2]$.

# %%
flat = predict("In how many of the six cases is the slope of PPO's objective zero?", 0, 1, 2, 3, 4)

# %%
slopes = {}
for A in (1.0, -1.0):
    for r in (0.6, 1.0, 1.5):
        at = torch.tensor([[math.log(r)]], requires_grad=True)
        one, zero = torch.ones(1, 1, dtype=torch.bool), torch.zeros(1, 1)
        (slope,) = torch.autograd.grad(losses.ppo_clip(at, zero, torch.full((1, 1), A), one).sum(), at)
        slopes[A, r] = float(slope)
        print(f"A = {A:+.0f}, ρ = {r}: gradient in log π {float(slope):+.1f}")
flat.reveal(sum(slope == 0 for slope in slopes.values()))

# %%
# figure: clip
# alt: Two panels, PPO's objective against the ratio for advantage plus one and minus one. With plus one it rises to the upper end of the clip range and is flat beyond. With minus one it is flat below the lower end and falls without bound above.
#   Dashed lines show the maximum in place of the minimum: flat if the ratio has moved in the wrong direction, and sloped where it should be flat.
fig, axes = plt.subplots(1, 2, figsize=(7.4, 2.7), layout="constrained")
ratio = torch.linspace(0.3, 1.9, 161)
for ax, A in zip(axes, (1.0, -1.0), strict=True):
    column = ratio.log()[:, None]
    inputs = (column, torch.zeros_like(column), torch.full_like(column, A), torch.ones_like(column, dtype=torch.bool))
    ax.axvspan(0.8, 1.2, color="0.93")
    ax.plot(ratio, losses.ppo_clip(*inputs), color=PALETTE["blue"], lw=2, label="minimum: PPO")
    ax.plot(ratio, mistakes.maximum(*inputs), color=PALETTE["red"], ls="--", label="maximum: a bug")
    ax.set(title=f"advantage {'+1' if A > 0 else '−1'}", xlabel="ratio ρ", ylabel="objective")
axes[0].legend(frameon=False)
plt.show()

# %% [markdown]
# In two of the six the slope is zero: the action is better than average and already 20 % more probable, or worse and already 20 % less probable. If a ratio has moved in the *wrong* direction, the slope stays and pulls it back. The maximum reverses
# all of this.
#
# ## How far may a step go?
#
# The surrogate assumes that the new policy visits the same states as the old policy. In the short corridor this is badly wrong: at $p = .2$, "right" looks good in most states that the policy visits. What does the surrogate advise?

# %%
short = steps.Exact(process, steps.alike(process), 0.95)


def logit(x):
    return torch.tensor([math.log(x / (1 - x))], dtype=torch.float64)


here = logit(0.2)
long_corridor = steps.corridor(7, {2, 5})
world = steps.Exact(long_corridor, steps.place(long_corridor, scale=3.0), 0.95)
start = torch.zeros(2, dtype=torch.float64)
(slope,) = torch.autograd.grad(world.surrogate(start, at := start.clone().requires_grad_()), at)
paths = {
    "gradient, ever larger steps": [start + s * slope for s in torch.logspace(-2, 0.3, 40)],
    "natural gradient (TRPO's step)": [
        start + world.natural_step(start, max_kl=k) for k in torch.logspace(-4, -0.3, 40).tolist()
    ],
}
for name, objective in {
    "no clip, 300 passes": losses.importance_weighted,
    "PPO-clip, 300 passes": losses.ppo_clip,
    "PPO-penalty, β = 1": partial(losses.ppo_penalty, beta=1.0),
}.items():
    paths[name] = world.ascend(start, objective, passes=300, learning_rate=0.03)[1:]
walked = {}
for name, thetas in paths.items():
    kls, gains = (
        [float(f) for f in column]
        for column in zip(*[(world.kl(start, t), world.value(t) - world.value(start)) for t in thetas], strict=True)
    )
    walked[name] = kls, gains
    print(
        f"{name:31} ends at KL {kls[-1]:.3f}, gain {gains[-1]:+.2f}; best gain on the way {max(gains):+.2f}, surrogate at the end {float(world.surrogate(start, thetas[-1])):+.2f}"
    )


def gain_at(direction, max_kl):
    """True gain and surrogate of the step in this direction whose KL is ``max_kl``."""
    low, high = 0.0, 10.0
    for _ in range(50):
        middle = (low + high) / 2
        low, high = (middle, high) if float(world.kl(start, start + middle * direction)) < max_kl else (low, middle)
    there = start + low * direction
    return float(world.value(there) - world.value(start)), float(world.surrogate(start, there))


# %%
# table: same-kl
angles = torch.linspace(-math.pi, math.pi, 73, dtype=torch.float64)
compass = [torch.stack([a.cos(), a.sin()]) for a in angles]
natural = world.natural_step(start, max_kl=1e-6)
rows = [
    "| KL | plain gradient | natural gradient | best direction | surrogate of the natural step |",
    "|---|---|---|---|---|",
]
for max_kl in (0.0001, 0.001, 0.01, 0.05, 0.2):
    cells = [gain_at(direction / direction.norm(), max_kl) for direction in (slope, natural)]
    best_gain = max(gain_at(direction, max_kl)[0] for direction in compass)
    row = f"| {max_kl:g} | {cells[0][0]:.2f} | {cells[1][0]:.2f} | {best_gain:.2f} | {cells[1][1]:.2f} |"
    rows.append(row.replace("-", "−"))
Markdown("\n".join(rows))

# %%
# figure: region
# alt: Left, true gain and surrogate gain against the new probability of going right, starting from 0.2. They touch at 0.2. The surrogate is a straight line that rises to the right edge. The true gain bends, has a far lower peak past the middle, and
#   becomes negative. Right, true gain against KL for steps in a longer corridor on a logarithmic axis. Up to a few hundredths of a nat the natural gradient gains most. Beyond, it is the first of the three paths to fall, and all
#   fall far below zero. The penalty and the clip end at a KL of a few hundredths with gains near 1.
fig, axes = plt.subplots(1, 2, figsize=(9, 3.2), layout="constrained")
grid = torch.linspace(0.02, 0.99, 98).tolist()
axes[0].plot(
    grid,
    [float(short.value(logit(x)) - short.value(here)) for x in grid],
    color=PALETTE["black"],
    lw=2,
    label="true gain",
)
axes[0].plot(
    grid, [float(short.surrogate(here, logit(x))) for x in grid], color=PALETTE["red"], ls="--", label="surrogate"
)
inside = [x for x in grid if float(short.kl(here, logit(x))) < 0.02]
axes[0].axvspan(min(inside), max(inside), color=PALETTE["sky"], alpha=0.3, lw=0, label="KL < .02")
axes[0].set(xlabel="new probability of going right", ylabel="gain", ylim=(-8, 20))
axes[0].legend(frameon=False)

lines = {"gradient, ever larger steps": ("orange", "-"), "natural gradient (TRPO's step)": ("blue", "-")}
lines["no clip, 300 passes"] = ("red", "--")
for name, (colour, style) in lines.items():
    axes[1].plot(*walked[name], color=PALETTE[colour], ls=style, label=name)
for name, colour, mark in (("PPO-clip, 300 passes", "green", "*"), ("PPO-penalty, β = 1", "purple", "D")):
    kls, gains = walked[name]
    axes[1].plot(kls[-1], gains[-1], mark, color=PALETTE[colour], ms=9, mfc="none", label=f"{name}: end point")
axes[1].axhline(0, color="0.7", lw=0.8)
axes[1].set(xscale="log", xlabel="KL(old‖new)", xlim=(3e-4, 4), ylim=(-4, 1.8), ylabel="true gain")
axes[1].legend(frameon=False, fontsize=8, loc="lower left")
plt.show()

# %%
assert walked["PPO-clip, 300 passes"][1][-1] > 0.5 > 0 > walked["no clip, 300 passes"][1][-1]

# %% [markdown]
# The surrogate promises more with every pass, +5.2 at the end, while the policy has become far worse than at the start. The table compares directions at the same KL. For small steps the natural gradient is the best of all directions. At a KL of .05 it is worse than the plain gradient: it climbs the
# *surrogate* fastest, and at this distance the surrogate is wrong. A natural direction without a small region gives no protection. Clip and penalty end at a KL of a few hundredths.
#
# ## CartPole
#
# Now with networks and samples. A pole stands on a cart, and each step gives 1 until it falls or 500 steps are over. The functions are the same as in chapters 12 and 13: `gae`, `whiten`, `ppo_clip`, `value_mse`. An episode is a row, a step takes the
# place of a token. The figure shows six of the chapter's seven methods; PPO-penalty is left out. Which of the six score 475 in all five seeds?

# %%
config = po.ControlConfig(seed=0)
run = po.train_policy(poles.cartpole, po.PPO, config)
for k in range(4, len(run.returns), 10):
    ended = [x for part in run.returns[k - 4 : k + 1] for x in part]
    print(
        f"after {run.steps[k]:6} steps: mean return {sum(ended) / len(ended):5.1f}, KL of the last update {run.kls[k]:.4f}"
    )
reached = poles.score(run)
print(f"trained policy, 100 new episodes: {reached:.1f}")

# %%
assert reached >= 475
assert study.holds("ppo_score", above=475) and study.holds("ppo_seconds", below=60)

# %%
METHODS = {
    "reinforce": "REINFORCE",
    "reinforce_with_baseline": "REINFORCE, learned baseline",
    "actor_critic": "actor-critic (λ = 0)",
    "a2c": "A2C (λ = .95)",
    "trpo": "TRPO",
    "ppo": "PPO",
}


# %%
# figure: methods
# alt: Six panels, mean return against steps on CartPole with the range of five seeds: REINFORCE without and with a learned baseline, actor-critic, A2C, TRPO and PPO. PPO ends at the maximal return in all seeds, with
#   a narrow band. The other methods reach lower returns, later, or not in all seeds.
def draw_bands(ax, name, colour, scale=1.0, label=None):
    """Draw mean and range over the study's seeds; without a study, nothing."""
    curves = torch.tensor([study.values(f"{name}_{i:02}") for i in range(poles.BINS)]) * scale  # (20, seeds)
    if curves.numel():
        x = (torch.arange(poles.BINS) + 0.5) * 100 / poles.BINS
        ax.plot(x, curves.mean(1), color=colour, label=label)
        ax.fill_between(x, curves.amin(1), curves.amax(1), color=colour, alpha=0.2, lw=0)
    ax.set(ylim=(0, 520), xlim=(0, 100))


fig, axes = plt.subplots(2, 3, figsize=(9, 4), sharex=True, sharey=True, layout="constrained")
for ax, (name, title) in zip(axes.flat, METHODS.items(), strict=True):
    draw_bands(ax, name, PALETTE["blue"])
    ax.axhline(475, color="0.6", ls=":", lw=0.8)
    scores = study.values(f"{name}_score")
    ax.set(title=f"{title}\nscore {min(scores):.0f} to {max(scores):.0f}" if scores else title)
for ax in axes[1]:
    ax.set(xlabel="thousand steps")
for ax in axes[:, 0]:
    ax.set(ylabel="return")
plt.show()

# %%
# table: settings
rows = ["| | rollout | updates per rollout | step size | entropy bonus |", "|---|---|---|---|---|"]
named = METHODS | {"ppo_adaptive": "PPO-penalty, adaptive"}
for name, (method, settings) in poles.COMPARED.items():
    steps_each = f"{settings.num_envs} × {settings.num_steps} steps"
    rollout = steps_each if settings.num_steps else f"{settings.num_envs} whole episodes"
    updates = method.num_iterations * method.num_minibatches
    rows.append(f"| {named[name]} | {rollout} | {updates} | {settings.learning_rate:g} | {method.entropy_coef:g} |")
rows.append(f"| TRPO | {config.num_envs} × {config.num_steps} steps | 1, and 20 of the critic | by the KL | 0 |")
Markdown("\n".join(rows))

# %% [markdown]
# All of them whiten Ψ over the rollout, so REINFORCE has a baseline too: the rollout's mean. With a learned baseline it is *worse*. A baseline does not change the mean of the gradient, so look for another cause first. What else does the critic share with the actor? (Look at `ControlConfig` before you read on.)

# %%
joint = study.values("reinforce_with_baseline_score")
without_clip = po.train_policy(
    poles.cartpole, po.REINFORCE_WITH_BASELINE, replace(poles.EPISODES, max_grad_norm=1e9, seed=10)
)
print(f"clipped, not clipped, seed 10: {joint[0]:.0f}, {poles.score(without_clip):.0f}")
print("five seeds, gradients of both clipped to a common norm of .5:", ", ".join(f"{x:.0f}" for x in joint))
print("five seeds, not clipped:", ", ".join(f"{x:.0f}" for x in coefficients.values("unclipped_score")))
print("five seeds, no learned baseline:", ", ".join(f"{x:.0f}" for x in study.values("reinforce_score")))

# %% [markdown]
# The critic's error is of the order of the return, so its gradient dominates the common norm, and the policy's gradient becomes short. (Adam would undo a constant factor. This factor varies, and Adam's ε of 10⁻⁵ may add to the effect; we did not store a study of it.)
#
# ## The entropy bonus
#
# We add $c_H$ times the entropy of the next action to PPO's objective, five seeds each. We measure the final entropy in the states that the policy visits. A uniform policy over two actions has log 2 = .69 nats.

# %%
# table: bonus
rows = ["| $c_H$ | score, five seeds | entropy of the trained policy, nats |", "|---|---|---|"]
for bonus in ("0", "0.01", "0.1", "1"):
    scores, nats = coefficients.values(f"bonus_{bonus}_score"), coefficients.values(f"bonus_{bonus}_entropy")
    rows.append(f"| {bonus} | {', '.join(f'{x:.0f}' for x in sorted(scores))} | {min(nats):.2f} to {max(nats):.2f} |")
Markdown("\n".join(rows))

# %% [markdown]
# ## Many passes over one rollout
#
# We make 64 passes over one rollout of 2,048 steps, instead of 8, with and without the clip.

# %%
apart = predict("How many times larger is the KL after 64 passes without the clip?", 1, 10, 100, 300)


# %%
def passes_over_one_rollout(objective, passes):
    """KL(old‖new) after each pass over the same rollout, from the same start, with the same shuffles."""
    draw = generator("passes", 0)
    crowd, fresh = po.begin(poles.cartpole, config, draw)
    rollout = crowd.collect(fresh.policy, config.num_steps)
    weights = [*fresh.policy.parameters(), *fresh.critic.parameters()]
    optimiser = torch.optim.Adam(weights, lr=config.learning_rate)
    method = po.Method(objective=objective, num_iterations=1)
    with torch.no_grad():
        before = fresh.policy(rollout.observations[rollout.mask]).log_softmax(-1)
    advantages, values = po.credit(rollout, fresh.critic, gamma=0.99, lam=0.95)
    advantages = whiten(advantages, rollout.mask)
    columns = (rollout.actions, rollout.logps, values, advantages, advantages + values)
    data = po.Minibatch(rollout.observations[rollout.mask], *(x[rollout.mask][:, None] for x in columns))
    kls = []
    for _ in range(passes):
        for rows in torch.randperm(len(data.actions), generator=draw).chunk(8):
            optimiser.zero_grad()
            po.loss(fresh, method, po.Minibatch(*(x[rows] for x in data))).backward()
            optimiser.step()
        with torch.no_grad():
            after = fresh.policy(rollout.observations[rollout.mask]).log_softmax(-1)
        kls.append(float((before.exp() * (before - after)).sum(-1).mean()))
    return kls


in_the_end = {}
objectives = {"clip": losses.ppo_clip, "no clip": losses.importance_weighted}
for name, objective in progress(objectives.items(), "passes"):
    kls = passes_over_one_rollout(objective, 64)
    in_the_end[name] = kls[-1]
    print(f"{name:8} KL after 1, 8, 64 passes: " + ", ".join(f"{kls[k - 1]:.4f}" for k in (1, 8, 64)))
apart.reveal(in_the_end["no clip"] / in_the_end["clip"])

# %% [markdown]
# ## A gallery of mistakes
#
# Each mistake changes one line of PPO. Which of them would you notice?
#
# 1. *Bootstrap forgotten:* at a truncation the future is set to 0 (`bootstrap = 0`).
# 2. *Done mask forgotten:* GAE treats the next episode as the future of a fall.
# 3. *Maximum for minimum* in the clip.
# 4. *Baseline not detached:* the policy's loss also trains the critic.
# 5. *Baseline not detached*, with rewards of .01 per step, so that values are of order 1, as for a language model.

# %%
# figure: gallery
# alt: Five panels with the returns of correct PPO in grey and of a mistake in red, means and ranges over five seeds: no bootstrap, no done mask, maximum for minimum, baseline not detached, and the last one with small
#   rewards. Without the done mask, and with the undetached baseline at small rewards, the mean return falls below twenty and stays there. With the maximum the mean stays low, while single seeds rise for a while and fall again. Without bootstrap it learns more slowly. Undetached, it learns like correct PPO.
GALLERY = {
    "no_bootstrap": ("bootstrap forgotten", "ppo", 1.0),
    "ends_forgotten": ("done mask forgotten", "ppo", 1.0),
    "maximum": ("maximum for minimum", "ppo", 1.0),
    "undetached": ("baseline not detached", "ppo", 1.0),
    "small_undetached": ("… and small rewards", "small_rewards", 100.0),
}
fig, axes = plt.subplots(1, 5, figsize=(11, 2.5), sharey=True, layout="constrained")
for ax, (name, (title, right, scale)) in zip(axes, GALLERY.items(), strict=True):
    draw_bands(ax, right, "0.55", scale)
    draw_bands(ax, name, PALETTE["red"], scale)
    ax.set(title=title, xlabel="thousand steps" if scale == 1 else "% of 60,000 steps")
axes[0].set(ylabel="return")
plt.show()
for name in ("ppo", *list(GALLERY)[:4], "small_rewards", "small_undetached", "ppo_value_clip"):
    scores, values = study.values(f"{name}_score"), study.values(f"{name}_value")
    if scores:
        print(
            f"{name:17} scores {', '.join(f'{x:5.0f}' for x in scores)}   critic's value of a still pole {min(values):7.1f} to {max(values):.1f}"
        )

# %%
assert study.holds("ends_forgotten_score", below=100) and study.holds("small_undetached_score", below=100)

# %% [markdown]
# Two of them learn to fall, and the maximum hardly learns. The other two learn well, one of them more slowly: without the correct curve for comparison you would not notice. But some numbers have a known right value. A pole that stands still
# has a value of about $1/(1-\gamma) = 100$; the critic that never bootstraps returns about half of it. The baseline that is not detached lowers every value. At a value of 80 this does no harm, because a fall still counts 0. At a value of −5 it is fatal, because then 0 is an improvement.
#
# We can predict the half of 100. Rollouts are stretches of 128 steps, and the critic is trained on the λ-return with λ = .95. With $n$ steps left before the truncation this return is $G_1 = 1$ and $G_n = 1 + \gamma[(1-\lambda)v + \lambda G_{n-1}]$, where $v$ is the critic's value. The critic learns the mean, $v = \frac{1}{128}\sum_n G_n$.


# %%
# NBVAL_CHECK_OUTPUT
def mean_stretch(v, lam, gamma=0.99, length=128):
    """Return the mean λ-return of a stretch without a future, for a critic whose value is v."""
    G = [1.0]
    while len(G) < length:
        G.append(1 + gamma * ((1 - lam) * v + lam * G[-1]))
    return sum(G) / length


for lam in (0.95, 1.0):
    at_zero = mean_stretch(0.0, lam)
    fixed = at_zero / (1 - (mean_stretch(1.0, lam) - at_zero))  # it is linear in v
    print(f"λ = {lam}: v = {fixed:.1f}")

# %%
predict.tally()

# %% [markdown]
# ## Now you
#
# * In the hill, use the mean return of the batch as the baseline instead of the true value. What is its rank among the six?
# * Start the long corridor's PPO again from the policy where it stopped, several times. Does it reach the best gain that the unclipped passes had on their way?
# * Give PPO rewards of 100 per step. What does `max_grad_norm` do to the critic?
#
# The graded exercises of this chapter: `minirlhf check 04`.
