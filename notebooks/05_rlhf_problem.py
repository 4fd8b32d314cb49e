# %% [markdown]
# # 05 · How far from the reference?
#
# A reward model gives a score to every completion, also to completions that no annotator has ever rated. A policy that is trained
# against it will find such completions. **How far should the policy move from the reference, and how far does training move it?**
#
# Here is a task on which both questions have exact answers: one prompt, four tokens, at most three of them in a completion. All 40 completions
# fit on a page, so every expectation below is an exact sum. Only the trained policies depend on samples, as in real runs.

# %%
import copy
import math
from dataclasses import replace

import matplotlib.pyplot as plt
import torch

from minirlhf.core import exact
from minirlhf.core.progress import progress
from minirlhf.data import tasks
from minirlhf.data.toys import poem_critic
from minirlhf.equations import mdp, rlhf
from minirlhf.equations.advantages import group_zscore
from minirlhf.equations.kl import k1, k2, k3
from minirlhf.models.heads import RewardModel, ValueModel
from minirlhf.models.tiny import tiny_model
from minirlhf.models.tokenizers import word_tokenizer
from minirlhf.recipes import GRPO, RLOO, KLInLoss
from minirlhf.trainers.toy import TOY_RUN, train_toy
from minirlhf_course import evidence
from minirlhf_course.classroom.predictions import Predictions
from minirlhf_course.report.plotting import PALETTE

plt.rcParams.update({"font.size": 9, "axes.spines.top": False, "axes.spines.right": False})

world = poem_critic()
ref = world.reference.distribution()[0].detach()  # (40,) probabilities
reward, gold = world.rewards, world.gold
predict = Predictions("05")

# %%
# NBVAL_CHECK_OUTPUT
print(f"{world.question!r}: {len(ref)} possible completions\n")
print("completion         reference  reward model   gold")
for n in ref.argsort(descending=True)[:10].tolist():
    print(f"{world.replies[n]:18} {ref[n]:9.3f} {reward[n]:13.1f} {gold[n]:6.1f}")
n = reward.argmax()
print(f"…\n{world.replies[n]:18} {ref[n]:9.3f} {reward[n]:13.1f} {gold[n]:6.1f}")

# %% [markdown]
# The reward model counts words: 1 for each "nice", ½ for each "very". The gold reward subtracts 1 for each repeated word. For most of what the reference writes, its order
# agrees with the gold reward. But the completion with the highest proxy reward is one that the reference writes twice
# in a thousand times, and no user wants it.
#
# A policy is trained for high reward, minus $\beta$ for each nat of KL from the reference. Which completion does the optimal policy prefer
# when $\beta$ is tiny? Which when $\beta$ is huge?
#
# ## The optimal policy
#
# The whole solution is two lines. We write them ourselves and compare them with the library on the smallest example of the
# chapter: three completions, reference (.5, .3, .2), rewards (1, 0, −1), β = 1.


# %%
# NBVAL_CHECK_OUTPUT
def tilt(probs, rewards, beta):
    """The policy that maximises E[r] − β KL."""
    weights = probs * torch.exp(rewards / beta)
    return weights / weights.sum()


three, scores = torch.tensor([[0.5, 0.3, 0.2], [1.0, 0.0, -1.0]], dtype=torch.float64)
best = tilt(three, scores, 1.0)
torch.testing.assert_close(best, rlhf.optimal_logps(three.log(), scores, beta=1.0).exp())
print("best policy:", [round(p, 6) for p in best.tolist()])
print(f"its reward {best @ scores:.6f}, its KL {exact.divergence(best, three):.6f}")
print(f"objective  {exact.regularised_value(best, three, scores, 1.0):.6f} = β log Z")

# %% [markdown]
# Now the forty completions, from a β so large that the policy stays at the reference to a β so small that it ignores the reference.

# %%
goes = predict(
    "β gets smaller and smaller. What does the mean gold reward of the completions do?",
    "it rises",
    "it falls",
    "it rises, then falls",
    "it falls, then rises",
)

# %%
# NBVAL_CHECK_OUTPUT
golds = []
print("   β       KL  reward   gold   most probable completion")
for beta in (1000, 4, 2, 1, 0.7, 0.5, 0.25, 0.1, 0.03):
    p = tilt(ref, reward, beta)
    top = int(p.argmax())
    print(
        f"{beta:6g} {exact.divergence(p, ref):7.3f} {p @ reward:7.3f} {p @ gold:6.2f}   {world.replies[top]} ({p[top]:.2f})"
    )
    golds.append(float(p @ gold))
middle = golds[1:-1]
if max(middle) > max(golds[0], golds[-1]):
    goes.reveal("it rises, then falls")
elif min(middle) < min(golds[0], golds[-1]):
    goes.reveal("it falls, then rises")
else:
    goes.reveal("it rises" if golds[-1] > golds[0] else "it falls")

# %% [markdown]
# The reward rises all the way down the table. The gold reward rises, is highest near β = 0.8, and then
# falls below its initial value. Chapter 20 is about this curve.
#
# ## Convergence: does training get there?
#
# We train eight policies, each from the reference. Four use RLOO, which subtracts the KL from the reward. Four use GRPO, which adds it
# to the loss. Each sees 120 rollouts of 64 sampled completions, and no formula.

# %%
gap = predict("How far below the exact optimum does RLOO end, at β = ½?", "about 0.1", "about 0.01", "less than 0.001")

# %%
BETAS = (2.0, 1.0, 0.5, 0.25)


def train(recipe, config=TOY_RUN):
    """A copy of the reference, trained: its distribution over the completions, and its history."""
    policy = copy.deepcopy(world.reference)
    history = train_toy(policy, reward[None], recipe, config, ref_model=world.reference, monitors={"gold": gold[None]})
    return policy.distribution()[0].detach(), history


trained, histories = {}, {}
for recipe in (RLOO, GRPO):
    for beta in progress(BETAS, recipe.name):
        trained[recipe.name, beta], histories[recipe.name, beta] = train(recipe.with_(beta=beta))
    print(f"{recipe.name}: trained at β = {', '.join(f'{beta:g}' for beta in BETAS)}")


# %%
def place(p):
    """Where a policy stands: (KL, reward, gold reward)."""
    return tuple(float(x) for x in (exact.divergence(p, ref), p @ reward, p @ gold))


def missing(p, beta):
    """By how much the objective of a policy falls short of the best one."""
    objective, best = (exact.regularised_value(x, ref, reward, beta) for x in (p, tilt(ref, reward, beta)))
    return float(best - objective)


print("           β    KL (exact)       reward (exact)    below the optimum by")
for (name, beta), p in trained.items():
    (kl, r, _), (kl_star, r_star, _) = place(p), place(tilt(ref, reward, beta))
    print(f"{name:6} {beta:6g}   {kl:.3f} ({kl_star:.3f})    {r:.3f} ({r_star:.3f})    {missing(p, beta):.4f}")
short = missing(trained["rloo", 0.5], 0.5)
gap.reveal("less than 0.001" if short < 0.001 else "about 0.01" if short < 0.03 else "about 0.1")

value = float(rlhf.optimal_value(ref.log(), reward, beta=0.5))  # β log Z

# %%
# figure: frontier
# alt: Left, expected reward against KL. The exact frontier rises steeply and flattens towards the best reward, 3. A cloud of random
#   policies lies below it. Four RLOO policies are on the frontier, where the optimum for their beta is. Four GRPO
#   policies are a little below it, all four further right than the optimum for their beta. A straight tangent at beta 0.5 meets the axis of zero KL at the optimal objective.
#   Right, gold reward against KL along the same frontier: it rises to a peak at about 0.5 nats and falls below zero.
betas = torch.logspace(2, -1.6, 200, dtype=torch.float64)
curve = torch.tensor([place(tilt(ref, reward, beta)) for beta in betas.tolist()])  # (200, 3)

rng = torch.Generator().manual_seed(0)
strength = 6 * torch.rand(3000, 1, generator=rng, dtype=torch.float64)
taste = (
    torch.randn(3000, len(ref), generator=rng, dtype=torch.float64) + 0.5 * torch.rand(3000, 1, generator=rng) * reward
)
cloud = torch.softmax(ref.log() + strength * taste, -1)
cloud_kl = (cloud * (cloud.clamp(min=1e-300).log() - ref.log())).sum(-1)

fig, (left, right) = plt.subplots(1, 2, figsize=(9, 3.6), width_ratios=(3, 2), layout="constrained")
left.scatter(cloud_kl, cloud @ reward, s=2, color="0.8", rasterized=True)
left.annotate("random policies", (0.35, 0.02), color="0.4")
left.plot(curve[:, 0], curve[:, 1], color=PALETTE["black"], lw=1.5, label="exact frontier")
left.plot([0, 3], [value, value + 0.5 * 3], ls="--", lw=1, color=PALETTE["purple"])
left.annotate("slope β = ½, from β log Z up", (0.25, 2.95), color=PALETTE["purple"])
for name, marker, colour in (("rloo", "o", "blue"), ("grpo", "^", "red")):
    at = torch.tensor([place(trained[name, beta]) for beta in BETAS])
    look = {"marker": marker, "s": 38, "color": PALETTE[colour], "zorder": 3}
    left.scatter(at[:, 0], at[:, 1], label=f"{name.upper()}, trained", **look)
    right.scatter(at[:, 0], at[:, 2], **look)
for beta in BETAS:
    kl, r, _ = place(tilt(ref, reward, beta))
    shift, side = {0.5: ((-4, 8), "right"), 0.25: ((4, -16), "left")}.get(beta, ((12, -4), "left"))
    left.annotate(f"β={beta:g}", (kl, r), shift, textcoords="offset points", ha=side)
left.set(xlabel="KL from the reference, nats", ylabel="expected reward", xlim=(-0.1, 6.3), ylim=(-0.1, 3.3))
left.legend(loc="lower right", facecolor="white", edgecolor="none", framealpha=0.9)
right.plot(curve[:, 0], curve[:, 2], color=PALETTE["black"], lw=1.5)
right.axhline(float(ref @ gold), color="0.6", lw=0.8, ls=":")
right.annotate("the reference", (6.2, float(ref @ gold)), (0, 3), textcoords="offset points", ha="right", color="0.4")
right.set(xlabel="KL from the reference, nats", ylabel="gold reward", xlim=(-0.1, 6.3))
plt.show()

# %% [markdown]
# **What to notice.** No policy lies above the curve: no method can beat the frontier. RLOO converges to the frontier, at the point of
# its β. GRPO with the same β converges elsewhere and a little below the curve, with more KL here at all four β (over five seeds the KL is higher at the three larger β; at β = ¼ the difference is not significant). So *the same β means different things in different methods*:
# compare methods at equal KL, never at equal β. The right panel shows the gold reward. It falls while the proxy reward still rises.

# %%
seen = evidence.StudyResults("ch05")  # five seeds of the runs of this notebook


def over_seeds(name):
    """Smallest and largest value over the seeds, as text."""
    return f"{min(seen.values(name)):.4f} to {max(seen.values(name)):.4f}"


print("below the optimum by, five seeds:")
for beta in BETAS:
    rloo, grpo = f"rloo_{beta:g}_gap", f"grpo_{beta:g}_gap"
    print(f"  β = {beta:4g}   RLOO {over_seeds(rloo)}   GRPO {over_seeds(grpo)}")

# %%
for beta in BETAS:
    assert missing(trained["rloo", beta], beta) < 0.01 and seen.holds(f"rloo_{beta:g}_gap", below=0.01)
    assert missing(trained["grpo", beta], beta) > 0.005 and seen.holds(f"grpo_{beta:g}_gap", above=0.005)

# %% [markdown]
# ## Equal returns at the optimum
#
# Subtract the KL penalty from the reward of each completion: $R(y) = r(y) - \beta \log \pi(y)/\pi_\mathrm{ref}(y)$. This is the *regularised return* of the
# completion. Before training all penalties are 0 and $R = r$. What do the forty values of $R$ look like at the optimum?

# %%
# figure: levelled
# alt: Three panels: regularised return of each of the forty completions against its reward. The size of a dot is the
#   probability of the completion. Before training the dots lie on the diagonal. After RLOO the probable ones lie on a horizontal line at beta log Z. After GRPO
#   they vary around it, and the most probable one, of reward 2.5, lies below the line.
beta = 0.5
fig, axes = plt.subplots(1, 3, figsize=(9, 2.9), sharey=True, layout="constrained")
for ax, (title, p) in zip(
    axes,
    {"at the start": ref, "RLOO, trained": trained["rloo", beta], "GRPO, trained": trained["grpo", beta]}.items(),
    strict=True,
):
    regularised = reward - beta * (p / ref).log()
    ax.axhline(value, color=PALETTE["purple"], lw=1, ls="--")
    ax.scatter(reward, regularised, s=4 + 500 * p, color=PALETTE["blue"], alpha=0.6, lw=0)
    mean = p @ regularised
    ax.set(
        title=f"{title}: std. dev. {float((p @ (regularised - mean) ** 2).sqrt()):.2f}",
        xlabel="reward r(y)",
        ylim=(-0.3, 3.2),
    )
axes[0].set_ylabel("reward minus KL penalty")
axes[0].annotate("β log Z", (0, value), (0, 4), textcoords="offset points", color=PALETTE["purple"])
plt.show()

# %% [markdown]
# At the optimum every completion has the same regularised return, β log Z. So every advantage is zero, and so are the gradient and
# its variance. This is why RLOO comes so close although it only ever sees 64 samples at a time. GRPO converges
# without making the returns equal.
#
# Which of its choices causes this? GRPO divides the advantage by the group's standard deviation. It has its KL in the loss and not
# in the reward. And it estimates the KL by k3. Change one choice at a time.

# %%
harmless = predict(
    "Which of these, changed alone, leaves RLOO at the optimum when the learning rate falls to 0, as here?",
    "divide by the std",
    "KL in the loss, by k2",
    "KL in the loss, by k3",
)

# %%
changes = {
    "divide by the std": RLOO.with_(advantage=group_zscore, beta=0.5),
    "KL in the loss, by k2": RLOO.with_(kl=KLInLoss(k2, 0.5)),
    "KL in the loss, by k3": RLOO.with_(kl=KLInLoss(k3, 0.5)),
}
alone = {name: train(recipe)[0] for name, recipe in progress(changes.items(), "changes")}
one_at_a_time = {
    "RLOO": ("rloo_0.5_gap", trained["rloo", 0.5]),
    "  divide by the std": ("zscore_k1_in_reward_gap", alone["divide by the std"]),
    "  KL in the loss, by k2": ("loo_k2_in_loss_gap", alone["KL in the loss, by k2"]),
    "  KL in the loss, by k3": ("loo_k3_in_loss_gap", alone["KL in the loss, by k3"]),
    "GRPO: all of it": ("grpo_0.5_gap", trained["grpo", 0.5]),
}
print("β = ½                    KL     below the optimum by   (five seeds)")
for name, (key, p) in one_at_a_time.items():
    print(f"{name:24} {place(p)[0]:.3f}  {missing(p, 0.5):.4f}                 {over_seeds(key)}")
harmless.reveal(min(alone, key=lambda name: missing(alone[name], 0.5)))

# %%
for name in ("RLOO", "  divide by the std"):
    assert missing(one_at_a_time[name][1], 0.5) < 0.01 and seen.holds(one_at_a_time[name][0], below=0.01)
for name in ("  KL in the loss, by k2", "  KL in the loss, by k3", "GRPO: all of it"):
    assert missing(one_at_a_time[name][1], 0.5) > 0.01 and seen.holds(one_at_a_time[name][0], above=0.01)

# %% [markdown]
# The *place* of the KL term changes the point of convergence. In the loss, each token is responsible for its own penalty only (the gradients below show it), and k3
# also follows the other KL (chapter 9). If the KL is outside the advantage, the standard deviation matters too: it scales the rewards
# but not the penalty. (GRPO also takes the mean over a completion's tokens, where RLOO takes the sum. It would also clip, if it had more than one update
# per rollout.)
#
# Division by the standard deviation alone does not change the point of convergence: where all completions have the same return, all advantages are 0. But does it do no harm?
# Every run above ends with a learning rate of 0, and a step of size 0 has no variance. Keep the rate constant, and look again.

# %%
kept = replace(TOY_RUN, lr_scheduler_type="constant")
resting = {
    name: train(recipe, kept)[1]
    for name, recipe in progress(
        {"rloo": RLOO.with_(beta=0.5), "zscore": RLOO.with_(advantage=group_zscore, beta=0.5)}.items(), "kept"
    )
}
at_rest = evidence.StudyResults("ch05_constant_rate")  # ten seeds of these two runs
print("β = ½, constant learning rate, mean of the last 20 of 120 steps")
print("            below the optimum by   (ten seeds)             length of the gradient")
for name, history in resting.items():
    reached = [r - 0.5 * d for r, d in zip(history["exact_reward"], history["exact_kl"], strict=True)]
    seeds = at_rest.values(f"{name}_gap")
    length = sum(history["grad_norm"][-20:]) / 20
    print(f"{name:8} {value - sum(reached[-20:]) / 20:16.5f}       {min(seeds):.5f} to {max(seeds):.5f} {length:18.3f}")

# %%
assert all(a > b for a, b in zip(at_rest.values("zscore_gap"), at_rest.values("rloo_gap"), strict=True))
assert at_rest.all_exceed("zscore_grad_norm", "rloo_grad_norm")

# %% [markdown]
# Close to the optimum the returns of a group differ little, and the division makes these differences as large as ever. The steps of the second run do not shrink near
# the optimum, and its policy keeps moving around it.
#
# ## KL budget instead of a coefficient
#
# A value of β is hard to interpret. "At most half a nat" is easier. Each budget has its β, and the frontier's slope there *is* β:
# the reward that the next nat adds.

# %%
# NBVAL_CHECK_OUTPUT
beta = rlhf.beta_for_kl(ref.log(), reward, budget=0.5)
kl, r, g = place(tilt(ref, reward, beta))
print(f"0.5 nats: β = {beta:.4f}, reward {r:.3f}, gold {g:.3f}")
(kl_a, r_a, _), (kl_b, r_b, _) = (place(tilt(ref, reward, beta * x)) for x in (1.001, 0.999))  # on either side of it
print(f"slope of the frontier there: {(r_b - r_a) / (kl_b - kl_a):.3f}")
reward_rate, kl_rate = rlhf.frontier_rates(ref.log(), reward, beta=beta)
print(f"and from the variance of the reward: {reward_rate / kl_rate:.3f}")

# %% [markdown]
# ## Token-level MDP: one long decision, or three short ones
#
# So far a completion was one action. Now the model writes token by token, and we give it to the solver of chapter 3: the states are the prefixes, the
# transitions are deterministic, the last token receives the reward. How many states are there? And is the value of the empty prefix, solved from
# Bellman's equation, larger than, smaller than or equal to $\sum_y \pi(y)\,r(y)$?

# %%
# NBVAL_CHECK_OUTPUT
responses = world.reference.completions()
tokens, mask = responses.tokens, responses.mask
transitions, step_rewards = rlhf.token_mdp(tokens, mask, reward, vocab_size=4)
state = rlhf.prefix_states(tokens, mask)  # (40, 3): the prefix before each token

ref_logps = world.reference.completion_token_logps()[0].detach()  # (40, 3)
policy = torch.full_like(step_rewards, 0.25)  # the last state is terminal: whatever stands there
policy[state[mask], tokens[mask]] = ref_logps.exp()[mask]

values = mdp.policy_values(transitions, step_rewards, policy, gamma=1.0)
print(f"{len(values)} states; transitions are only ever {sorted(set(transitions.flatten().tolist()))}")
print(f"Bellman, from the empty prefix: {values[0]:.6f}")
print(f"bandit, sum over completions:   {ref @ reward:.6f}")

# %% [markdown]
# The two views also have the same **gradient**. We compare three kinds of credit with PyTorch's derivative of the objective,
# for a half-trained policy. The whole return at every token: a bandit does not know which token was responsible. The return to go: each token gets what came
# after it. Its own penalty only: each token gets the reward and its own penalty.

# %%
off = predict(
    "Which of the three differ from the exact gradient?",
    "none",
    "its own KL penalty only",
    "the whole return and its own KL penalty only",
    "all three",
)

# %%
# NBVAL_CHECK_OUTPUT
half = copy.deepcopy(world.reference)
train_toy(half, reward[None], RLOO.with_(beta=0.5), replace(TOY_RUN, max_steps=15), ref_model=world.reference)

beta = 0.5
logps = half.completion_token_logps()[0]  # (40, 3), differentiable
probs = logps.sum(-1).exp()
whole = rlhf.regularised_return(logps.detach(), ref_logps, reward, mask, beta=beta)[:, None]
to_go = rlhf.regularised_return_to_go(logps.detach(), ref_logps, reward, mask, beta=beta)


def gradient(credit):
    """E[Σ_t credit_t ∇log π(y_t)], every completion weighted with its probability."""
    return torch.autograd.grad((probs.detach()[:, None] * credit * logps).sum(), half.table, retain_graph=True)[0]


objective = exact.regularised_value(probs, ref, reward, beta)
automatic = torch.autograd.grad(objective, half.table, retain_graph=True)[0]
own = reward[:, None] - beta * (logps.detach() - ref_logps)
print("credit given to a token     largest difference from the exact gradient")
credits = {"the whole return": whole, "the return to go": to_go, "its own KL penalty only": own}
errors = {name: float((gradient(credit) - automatic).abs().max()) for name, credit in credits.items()}
for name, error in errors.items():
    print(f"{name:27} {error:.4f}")
wrong = [name for name, error in errors.items() if error > 1e-9]
off.reveal(" and ".join(wrong) if 0 < len(wrong) < 3 else ("none", "all three")[len(wrong) // 3])

# %% [markdown]
# The last line corresponds to a KL term *in the loss*, token by token: each token is responsible for its own penalty and not for the penalties
# of later tokens that it caused. This is another gradient, and the reason why a KL in the loss converges to another policy.
#
# What does the token view improve? Credit assignment. The advantage of a token is the change of the expected reward when the token was chosen.

# %%
action = mdp.action_values(transitions, step_rewards, values, gamma=1.0)
advantage = action - values[:, None]  # (states, words)
shares = {}
for reply in ("yes very nice", "nice nice nice", "yes ."):
    n = world.replies.index(reply)
    shares[reply] = advantage[state[n], tokens[n].clamp(max=3)][mask[n]]
    print(f"{reply:15}", "  ".join(f"{a:+.2f}" for a in shares[reply].tolist()))

# %%
for reply, gained in shares.items():
    assert math.isclose(gained.sum(), reward[world.replies.index(reply)] - values[0])

# %%
# figure: credit
# alt: Bars of the advantage of each token in three completions under the reference. In "yes very nice" the word yes loses 0.25, very gains
#   0.91 and nice 0.15; in "nice nice nice" all three gain, the later ones more; in "yes ." both tokens lose. The bars of a completion add
#   up to its reward minus the mean reward, 0.69.
fig, axes = plt.subplots(1, 3, figsize=(9, 2.5), sharey=True, layout="constrained")
for ax, (reply, gained) in zip(axes, shares.items(), strict=True):
    n = world.replies.index(reply)
    colours = [PALETTE["blue"] if x > 0 else PALETTE["red"] for x in gained.tolist()]
    ax.bar(range(len(gained)), gained, color=colours, width=0.6)
    ax.axhline(0, color="0.3", lw=0.8)
    ax.set_xticks(range(len(gained)), reply.split())
    ax.set_title(f"Σ = {gained.sum():.2f} = {reward[n]:.1f} − {values[0]:.2f}")
axes[0].set_ylabel("advantage")
plt.show()

# %% [markdown]
# One reward at the end of the completion is divided among the tokens that caused it. A critic (chapter 12) has to *learn* these bars. A bandit
# method gives all tokens of a completion the same advantage and needs more samples to average out the error.
#
# The optimum can also be built token by token: back the soft maximum $\beta \log \sum_a \pi_\mathrm{ref}(a) e^{Q(a)/\beta}$ up from the
# leaves, then tilt every next-token distribution by $Q/\beta$.

# %%
# NBVAL_CHECK_OUTPUT
soft = torch.zeros_like(values)
for _ in range(3):  # three tokens deep, three sweeps
    q = step_rewards + transitions @ soft  # (S, V)
    soft = rlhf.optimal_value(policy.log(), q, beta=beta)
    soft[-1] = 0.0  # the terminal state
tilted = rlhf.optimal_logps(policy.log(), q, beta=beta)  # (S, V): the best next token after each prefix
token_by_token = torch.where(mask, tilted[state, tokens.clamp(max=3)], 0.0).sum(-1).exp()
print(
    f"soft value of the empty prefix {soft[0]:.6f}, β log Z over whole completions {rlhf.optimal_value(ref.log(), reward, beta=beta):.6f}"
)
print("same policy:", torch.allclose(token_by_token, tilt(ref, reward, beta)))

# %% [markdown]
# ## A failure on purpose: the sign of the KL
#
# A programmer writes `ref_logps - logps` for `logps - ref_logps`. Nothing crashes. The KL grows, and they react by raising β from ½ to 2.

# %%
tighter = predict(
    "At which β does the reversed run end below a KL of 1.5 nats?",
    "at neither",
    "at β = ½ only",
    "at β = 2 only",
    "at both",
)


# %%
def upside_down(logps, ref_logps):
    """The KL estimate with its sign reversed."""
    return k1(ref_logps, logps)


failures = {("right", beta): histories["rloo", beta] for beta in (0.5, 2.0)}
backwards = progress((0.5, 2.0), "reversed")
failures |= {("reversed", beta): train(RLOO.with_(beta=beta, estimator=upside_down))[1] for beta in backwards}
failures["no KL", 0.0] = train(RLOO.with_(kl=None))[1]
for (name, beta), history in failures.items():
    print(f"{name:8} β = {beta:3g}   KL at the end {history['exact_kl'][-1]:.3f}, gold {history['exact_gold'][-1]:.2f}")
held = [failures["reversed", beta]["exact_kl"][-1] < 1.5 for beta in (0.5, 2.0)]
tighter.reveal(tighter.choices[held[0] + 2 * held[1]])

# %%
# figure: failures
# alt: KL and gold reward over 120 steps of five runs. With the right sign the KL converges to 1.1 nats for beta 0.5 and 0.07 for beta 2, on
#   dotted lines that mark the exact values. Without a KL term and with the sign reversed, at either beta, it exceeds 4 nats. The gold
#   reward of the two right runs stays above the reference; without KL it falls below zero.
fig, axes = plt.subplots(1, 2, figsize=(9, 3.2), layout="constrained")
looks = {"right": ("blue", "-"), "reversed": ("red", "--"), "no KL": ("black", "-.")}
for (name, beta), history in failures.items():
    colour, style = looks[name]
    label = name if beta == 0 else f"{name}, β={beta:g}"
    width = 1.0 if beta == 0.5 else 2.0
    for ax, key in zip(axes, ("exact_kl", "exact_gold"), strict=True):
        ax.plot(history[key], color=PALETTE[colour], ls=style, lw=width, label=label)
    if name == "right":
        axes[0].axhline(place(tilt(ref, reward, beta))[0], color="0.5", lw=0.8, ls=":")
axes[0].set(xlabel="step", ylabel="KL from the reference, nats")
axes[1].set(xlabel="step", ylabel="gold reward")
axes[0].legend(frameon=False)
plt.show()

# %%
for beta in (0.5, 2.0):  # with the right sign, 1.1 and 0.07 nats
    assert failures["reversed", beta]["exact_kl"][-1] > 1.5 and seen.holds(f"reversed_{beta:g}_kl", above=1.5)
for sign, low, high in (("right", 0.0, 0.1), ("reversed", 0.5, 2.0)):  # how the KL at rest depends on β
    assert low < failures[sign, 2.0]["exact_kl"][-1] / failures[sign, 0.5]["exact_kl"][-1] < high
assert all(0.5 < a / b < 2 for a, b in zip(seen.values("reversed_2_kl"), seen.values("reversed_0.5_kl"), strict=True))
assert failures["no KL", 0.0]["exact_kl"][-1] > 4.5 and seen.holds("no_kl_kl", above=4.5)
assert failures["no KL", 0.0]["exact_gold"][-1] < 0 and seen.holds("no_kl_gold", below=0.0)

# %% [markdown]
# With the reversed sign, the objective rewards distance. The run ends like a run without a KL term: the policy writes nearly always one completion, and the seed decides which.
# Its KL converges too, so a constant KL proves nothing. Compare two runs with different β instead: **a final KL that hardly depends on β is a bug.** With the right sign the KL at β = 2 is a
# fifteenth of the KL at β = ½. With the reversed sign both are 4 nats or more, and the seed decides which of the two is larger.
#
# A quieter failure: keep the formula, but use the *latest* policy as the new reference after every round. Each round is right, and the sequence of
# rounds is not. On the three completions of the beginning, with β = 1:

# %%
# NBVAL_CHECK_OUTPUT
p = three
print("round     p₁   KL from the first reference   p₁ of a single round at β = 1/round")
for n in range(1, 6):
    p = tilt(p, scores, 1.0)
    print(
        f"{n:5}  {p[0]:.3f}   {exact.divergence(p, three):.3f}                         {tilt(three, scores, 1 / n)[0]:.3f}"
    )

# %% [markdown]
# ## Rollouts, passes, updates
#
# A rollout is sampled from the current policy. At the first update after it, what is the ratio $\pi/\pi_\mathrm{old}$ of every
# token? And after eight passes over the same rollout?

# %%
tokens_seen = sum(failures["right", 0.5]["completion_length"]) * TOY_RUN.batch_size * TOY_RUN.num_generations
print(f"one run: {TOY_RUN.max_steps} rollouts of {TOY_RUN.batch_size} prompts × {TOY_RUN.num_generations} completions")
print(
    f"       = {TOY_RUN.max_steps * TOY_RUN.batch_size * TOY_RUN.num_generations} episodes, {tokens_seen:.0f} tokens\n"
)
print("passes over each rollout   largest |log ratio|, mean over updates")
drift = {}
for passes in progress((1, 2, 4, 8), "passes"):
    _, history = train(GRPO.with_(num_iterations=passes), replace(TOY_RUN, max_steps=20))
    drift[passes] = sum(history["policy_log_ratio_max"]) / len(history)
    print(f"{passes:5}                      {drift[passes]:.3f}")

# %%
assert drift[1] < 1e-12  # fresh samples: the ratio is 1, whatever the objective
assert drift[1] < drift[2] < drift[4] < drift[8]
assert seen.holds("passes_1_log_ratio", below=1e-9) and seen.holds("passes_2_log_ratio", below=0.1)
assert seen.holds("passes_4_log_ratio", above=0.1) and seen.holds("passes_8_log_ratio", above=0.15)

# %% [markdown]
# One pass with one update is on-policy up to rounding. Each further update uses samples of an older policy, and the ratio
# measures how far the policy has moved since.
#
# ## Memory of four models
#
# PPO needs an actor, a critic, a reward model and a reference. Here are four models of the size that our notebooks use. We measure the memory of weights, gradients and optimiser states after one step of AdamW.

# %%
heavier = predict(
    "In float32 throughout: how many times as heavy as a frozen model is one that is trained?", 1, 2, 3, 4, 8
)

# %%
# NBVAL_CHECK_OUTPUT
tokenizer = word_tokenizer(tasks.get("assistant").words)
actor = tiny_model("nano", tokenizer)
four = {
    "actor": (actor, True),
    "critic": (ValueModel.from_causal_lm(actor), True),
    "reward model": (RewardModel.from_causal_lm(actor), False),
    "reference": (copy.deepcopy(actor), False),
}
batch = tokenizer("what do cats do?", return_tensors="pt")
inputs = {"input_ids": batch.input_ids, "attention_mask": batch.attention_mask}


def weigh(model, trained):
    """Bytes of weights, gradients and optimiser states; one real step if the model is trained."""
    weights = list(model.parameters())
    bytes_of = {"weights": sum(p.nbytes for p in weights), "gradients": 0, "optimiser": 0}
    if trained:
        optimiser = torch.optim.AdamW(weights)
        out = model(**inputs)
        (out if isinstance(out, torch.Tensor) else out.logits).square().mean().backward()
        optimiser.step()
        bytes_of["gradients"] = sum(p.grad.nbytes for p in weights)
        states = [x for state in optimiser.state.values() for x in state.values() if x.dim() > 0]
        bytes_of["optimiser"] = sum(x.nbytes for x in states)
    return bytes_of


per_parameter = {}
print("                parameters   weights  gradients  optimiser   bytes per parameter")
for name, (model, is_trained) in four.items():
    count = sum(p.numel() for p in model.parameters())
    kilobytes = weigh(model, is_trained)
    total = sum(kilobytes.values())
    per_parameter[name] = total / count
    print(
        f"{name:14} {count:12,} "
        + " ".join(f"{x / 1000:7.0f} kB" for x in kilobytes.values())
        + f" {total / count:10.0f}"
    )
heavier.reveal(per_parameter["actor"] / per_parameter["reference"])

# %% [markdown]
# Sixteen bytes per parameter for a trained model, four for a frozen one (float32 throughout). Large models keep frozen
# weights in bfloat16, two bytes, and train with 2 + 2 + 4 + 8, again sixteen. Now multiply by eight billion.

# %%
# figure: memory
# alt: Stacked bars of the memory for models of eight billion parameters. PPO needs 288 gigabytes, of which actor and critic take 128 each; GRPO
#   160; GRPO with a verifier in place of the reward model 144, without a reference as well 128; GRPO with LoRA adapters about 33.
billions, trained_bytes, frozen_bytes, adapters = 8, 16, 2, 0.05
frozen = billions * frozen_bytes
plans = {
    "PPO": {
        "actor": billions * trained_bytes,
        "critic": billions * trained_bytes,
        "reward model": frozen,
        "reference": frozen,
    },
    "GRPO": {"actor": billions * trained_bytes, "reward model": frozen, "reference": frozen},
    "GRPO,\nverifier": {"actor": billions * trained_bytes, "reference": frozen},
    "GRPO,\nverifier, β=0": {"actor": billions * trained_bytes},
    "GRPO,\nLoRA": {"actor": frozen + adapters * trained_bytes, "reward model": frozen},
}
fig, ax = plt.subplots(figsize=(6.4, 3), layout="constrained")
colours = {"actor": "blue", "critic": "orange", "reward model": "green", "reference": "sky"}
bottom = [0.0] * len(plans)
for part, colour in colours.items():
    heights = [plan.get(part, 0.0) for plan in plans.values()]
    ax.bar(list(plans), heights, bottom=bottom, color=PALETTE[colour], width=0.6, label=part)
    bottom = [b + h for b, h in zip(bottom, heights, strict=True)]
for i, total in enumerate(bottom):
    ax.annotate(f"{total:.0f} GB", (i, total), (0, 2), textcoords="offset points", ha="center")
ax.set(ylabel="GB, without activations", ylim=(0, 320))
ax.legend(frameon=False)
plt.show()

# %%
predict.tally()

# %% [markdown]
# ## Now you
#
# * Train `RLOO.with_(beta=0.1)`. It does not reach the frontier in 120 steps. Is the learning rate too small, or does the policy
#   no longer sample the good completions? (Look at `exact_reward` and at what it samples.)
# * Give GRPO the β with which it has the KL of *RLOO* at β = ½. Does it reach the same reward there?
# * Change the reward model so that it also subtracts ½ for a repeated word. Where does the peak of the gold reward move?
#
# The graded exercises of this chapter: `minirlhf check 05`.
