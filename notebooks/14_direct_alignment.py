# %% [markdown]
# # 14 · Without a reward model
#
# Chapter 5 has the best policy for a reward and a KL penalty. To use it you need a reward model, and then an RL algorithm.
# **Can you fit the policy to the comparisons directly, like a classifier? And which policy minimises each of the two dozen losses
# that were proposed for it?**
#
# We ask this where the answer is exact: the forty completions of *do you like my poem?* of chapter 5, whose probabilities can all be
# written down, then three completions, then two. "Trained" means here: the loss over *all* pairs, each with its probability as weight,
# minimised to convergence. This shows the loss itself, without sampling noise and without effects of an optimiser. After that comes a
# language model.

# %%
import math
from dataclasses import replace
from functools import partial
from itertools import permutations, product

import matplotlib.pyplot as plt
import torch

from minirlhf.core import exact
from minirlhf.core.progress import progress
from minirlhf.data import tasks
from minirlhf.data.preferences import SimulatedAnnotator, length_bias
from minirlhf.data.toys import poem_critic
from minirlhf.equations import preference_losses as pl
from minirlhf.equations import rlhf
from minirlhf.equations.preference_losses import ListLogps, PairLogps, UnpairedLogps
from minirlhf.models.reference import reference_logps
from minirlhf.stages import pipeline, zoo
from minirlhf_course import evidence
from minirlhf_course.chapters.ch14_direct_alignment import direct
from minirlhf_course.chapters.ch14_direct_alignment.displacement import ches_of
from minirlhf_course.classroom.predictions import Predictions
from minirlhf_course.report.plotting import PALETTE, smooth

plt.rcParams.update({"font.size": 9, "axes.spines.top": False, "axes.spines.right": False})
torch.set_num_threads(1)

predict = Predictions("14")
world = poem_critic()
ref = world.reference.distribution()[0].detach()  # (40,) probabilities
lengths = world.reference.completions().lengths
reward, gold = world.rewards, world.gold
three, rewards_3 = torch.tensor([[0.5, 0.3, 0.2], [1.0, 0.0, -1.0]], dtype=torch.float64)  # reference, rewards


def bradley_terry(rewards):
    """``(N, N)``: the probability that y is preferred to y'."""
    return torch.sigmoid(rewards[:, None] - rewards[None, :])


# %% [markdown]
# ## The loss, and where it is smallest
#
# DPO is three lines. We write them down and compare them with the library.


# %%
# NBVAL_CHECK_OUTPUT
def dpo(chosen, rejected, ref_chosen, ref_rejected, beta):
    """−log σ(β (log-ratio of the chosen − log-ratio of the rejected))"""
    margin = (chosen - ref_chosen) - (rejected - ref_rejected)
    return -torch.nn.functional.logsigmoid(beta * margin)


rng = torch.Generator().manual_seed(0)
four = [-5 * torch.rand(6, generator=rng, dtype=torch.float64) for _ in range(4)]
torch.testing.assert_close(dpo(*four, 0.1), pl.dpo(PairLogps(*four), beta=0.1))
same = pl.dpo(PairLogps(four[0], four[1], four[0], four[1]), beta=3.0)  # the policy is the reference
print("at the start, whatever β:", same.unique().item().__round__(6), "= ln 2 =", round(math.log(2), 6))


# %%
def minimise(loss, ref, start=None):
    """The policy at which a loss of its log-probabilities ``(N,)`` is smallest, from the reference or another start."""
    logits = (ref if start is None else start).log().clone().requires_grad_()
    optimiser = torch.optim.LBFGS(
        [logits],
        max_iter=400,
        history_size=40,
        tolerance_grad=1e-10,
        tolerance_change=1e-14,
        line_search_fn="strong_wolfe",
    )

    def closure():
        optimiser.zero_grad()
        value = loss(logits.log_softmax(-1))
        value.backward()
        return value

    optimiser.step(closure)
    return logits.detach().softmax(-1)


def over_pairs(loss, preferences, ref, lengths=None):
    """The expected loss of a policy: pairs drawn from the reference, labelled with these probabilities."""
    i, j = (~torch.eye(len(ref), dtype=torch.bool)).nonzero(as_tuple=True)
    weight = ref[i] * ref[j] * preferences[i, j]
    of = (None, None) if lengths is None else (lengths[i], lengths[j])
    return lambda logps: (weight * loss(PairLogps(logps[i], logps[j], ref.log()[i], ref.log()[j], *of))).sum()


# %%
# NBVAL_CHECK_OUTPUT
fitted = minimise(over_pairs(partial(pl.dpo, beta=1.0), bradley_terry(rewards_3), three), three)
print("three completions, DPO", [round(p, 4) for p in fitted.tolist()])
print(
    "the RLHF optimum      ", [round(p, 4) for p in rlhf.optimal_logps(three.log(), rewards_3, beta=1.0).exp().tolist()]
)
fitted = minimise(over_pairs(partial(pl.ipo, beta=1.0), bradley_terry(rewards_3), three), three)
print("three completions, IPO", [round(p, 4) for p in fitted.tolist()])
for name, psi in {"Ψ = logit": torch.logit, "Ψ = identity": lambda p: p}.items():
    best = pl.psi_po_optimum(three.log(), bradley_terry(rewards_3), three, beta=1.0, psi=psi).exp()
    print(f"ΨPO, {name:16}", [round(p, 4) for p in best.tolist()])

# %% [markdown]
# No reward model, no sampling, no reinforcement learning, and DPO reaches the optimum to the last digit. IPO has another minimum: it maximises
# the *win rate* with the same penalty, not the reward. Both are ΨPO.
#
# ## The minimiser of every loss
#
# Now the forty completions. The table has the policy that minimises each loss. Since β has another meaning in each loss, it also has how much less reward
# this policy has than the best policy *of the same KL*. People choose by Bradley–Terry with the rewards above.

# %%
stands = predict(
    "Where is DPO with β = ½ in the plot of chapter 5, reward against KL?",
    "on the frontier",
    "a little below it",
    "well below it",
)

# %%
preferences = bradley_terry(reward)


def place(p):
    """Return (KL, reward, gold reward) of a policy over the forty completions."""
    kl = exact.divergence(p.clamp(min=1e-300), ref)
    return float(kl), float(p @ reward), float(p @ gold)


def below_frontier(p):
    """Return how much more reward the best policy of the same KL has."""
    kl, earned, _ = place(p)
    if kl < 1e-6:
        return 0.0
    if kl > 6.2:  # −log of the reference's probability of the best completion: the largest possible KL
        return float(reward.max()) - earned
    beta = rlhf.beta_for_kl(ref.log(), reward, budget=kl)
    return float(rlhf.optimal_logps(ref.log(), reward, beta=beta).exp() @ reward) - earned


losses = {
    "dpo": partial(pl.dpo, beta=0.5),
    "cdpo, ε = .1": partial(pl.cdpo, beta=0.5, label_smoothing=0.1),
    "robust_dpo, ε = .1": partial(pl.robust_dpo, beta=0.5, label_smoothing=0.1),
    "hinge": partial(pl.hinge, beta=0.5),
    "ipo, β = .1": partial(pl.ipo, beta=0.1),
    "exo_pair, ε = .1": partial(pl.exo_pair, beta=0.5, label_smoothing=0.1),
    "f_dpo, forward KL": partial(pl.f_dpo, beta=0.5, f_prime=pl.f_prime_forward_kl),
    "dpo_positive, λ = 5": partial(pl.dpo_positive, beta=0.5, penalty=5.0),
    "dpo_nll, weight .2": partial(pl.dpo_nll, beta=0.5, nll_weight=0.2),
    "nca_pair": partial(pl.nca_pair, beta=0.5),
    "bco_pair": partial(pl.bco_pair, beta=0.5),
    "apo_zero": partial(pl.apo_zero, beta=0.5),
    "cal_dpo": partial(pl.cal_dpo, beta=0.5),
    "sppo, β = .1": partial(pl.sppo, beta=0.1),
    "dpo_length_normalised, β = 2": partial(pl.dpo_length_normalised, beta=2.0),
    "simpo, β = 2, γ = ½": partial(pl.simpo, beta=2.0, gamma=0.5),
    "alpha_po, α = ¼": partial(pl.alpha_po, beta=2.0, alpha=0.25),
    "orpo": partial(pl.orpo, beta=0.5),
    "cpo": partial(pl.cpo, beta=0.5),
    "slic, δ = 1": partial(pl.slic, delta=1.0, nll_weight=0.1),
}
rest = {
    name: minimise(over_pairs(loss, preferences, ref, lengths), ref)
    for name, loss in progress(losses.items(), "losses")
}
print("                                 KL  reward   gold  below the frontier   most probable completion")
for name, p in rest.items():
    kl, earned, true = place(p)
    top = int(p.argmax())
    print(
        f"{name:30} {kl:5.2f}  {earned:6.2f} {true:6.2f}  {below_frontier(p):18.2f}   {world.replies[top]} ({p[top]:.2f})"
    )
star = rlhf.optimal_logps(ref.log(), reward, beta=0.5).exp()
short = below_frontier(rest["dpo"])
stands.reveal("on the frontier" if short < 0.005 else "a little below it" if short < 0.1 else "well below it")

# %%
assert torch.allclose(rest["dpo"], star, atol=1e-5)

# %%
# figure: frontier
# alt: Left, expected reward against KL. Four DPO policies lie exactly on the frontier, at the points of their betas. IPO's lie just below
#   it, and so do those of length-normalised DPO. Losses without a reference lie below, most of them clearly. Right, gold reward of the same policies.
betas = torch.logspace(2, -1.6, 120, dtype=torch.float64)
curve = torch.tensor([place(rlhf.optimal_logps(ref.log(), reward, beta=b).exp()) for b in betas.tolist()])
sweep = {
    ("DPO", "o", "blue"): [partial(pl.dpo, beta=b) for b in (2.0, 1.0, 0.5, 0.25)],
    ("IPO", "s", "orange"): [partial(pl.ipo, beta=b) for b in (0.4, 0.1, 0.05, 0.025)],
    ("SimPO", "v", "green"): [partial(pl.simpo, beta=b, gamma=0.5) for b in (1.0, 2.0, 4.0)],
    ("DPO per token", "D", "purple"): [partial(pl.dpo_length_normalised, beta=b) for b in (4.0, 2.0, 1.0, 0.5)],
}
fig, (left, right) = plt.subplots(1, 2, figsize=(9, 3.6), width_ratios=(3, 2), layout="constrained")
for ax, column in ((left, 1), (right, 2)):
    ax.plot(curve[:, 0], curve[:, column], color=PALETTE["black"], lw=1.2, label="exact frontier", zorder=1)
for (name, marker, colour), members in progress(sweep.items(), "sweeps"):
    at = torch.tensor([place(minimise(over_pairs(loss, preferences, ref, lengths), ref)) for loss in members])
    for ax, column in ((left, 1), (right, 2)):
        ax.scatter(at[:, 0], at[:, column], marker=marker, color=PALETTE[colour], s=34, label=name, zorder=2)
labels = {"orpo": (6, -3), "cpo": (6, -6), "slic, δ = 1": (6, 3), "hinge": (2, -12), "apo_zero": (-2, -22)}
for name, shift in labels.items():
    kl, earned, true = place(rest[name])
    left.annotate(name.split(",")[0], (kl, earned), shift, textcoords="offset points", color="0.35", fontsize=8)
    for ax, y in ((left, earned), (right, true)):
        ax.scatter(kl, y, color="0.5", s=14, zorder=2)
left.set(xlabel="KL from the reference, nats", ylabel="expected reward", xlim=(-0.1, 6.3))
right.set(xlabel="KL from the reference, nats", ylabel="gold reward", xlim=(-0.1, 6.3))
left.legend(frameon=False, loc="lower right")
plt.show()

# %% [markdown]
# **What to notice.** DPO is on the curve, exactly, at the point of its β. cDPO and EXO are also on it, to two digits, nearer to the start. Robust DPO, with an assumed noise that does
# not exist, goes much further. DPO-Positive seems not to move at all; we come back to it. Losses that fix the level of single completions
# lose a little reward at equal KL, and losses without a reference mostly lose more. This is no verdict on them: here DPO's assumption (people choose
# by Bradley–Terry with *this* reward) is true by construction, every pair is seen infinitely often, and the policy can represent anything. The rest of the
# notebook removes these assumptions one by one. On the right the dot of APO-zero lies well *above* the curve: less of a wrong reward can mean more gold reward (chapter 20).
#
# DPO-Positive's zero needs a second look. Its penalty has a kink at the reference, where our minimiser starts and where autograd returns the slope 0. It may have
# stopped there without being at a minimum. So we smooth the kink over a width, minimise, reduce the width again and again, and check whether the *exact* loss fell.


# %%
# NBVAL_CHECK_OUTPUT
def rounded(pair, width, penalty, beta=0.5):
    """DPO-Positive with a parabola of this width in place of the kink."""
    sunk = -pair.chosen_logratios
    soft = torch.where(sunk > width, sunk - width / 2, sunk.clamp(min=0) ** 2 / (2 * width))
    return -torch.nn.functional.logsigmoid(beta * (pair.margins - penalty * soft))


print("λ     nats   exact loss, minus the loss at the reference")
for penalty in (1.0, 3.0, 5.0):
    p, true = ref, over_pairs(partial(pl.dpo_positive, beta=0.5, penalty=penalty), preferences, ref)
    for width in (1.0, 0.1, 0.01, 1e-3, 1e-4, 1e-5):
        p = minimise(over_pairs(partial(rounded, width=width, penalty=penalty), preferences, ref), ref, start=p)
    print(f"{penalty:.0f} {place(p)[0]:9.4f} {round(float(true(p.log()) - true(ref.log())), 4) + 0.0:12.4f}")
moved_bit = ref.clone()  # λ = 5: so little moves that one move shows it better
source, goal = (world.replies.index(name) for name in ("yes .", "nice nice nice"))
moved_bit[source], moved_bit[goal] = ref[source] - 1.3e-4, ref[goal] + 1.3e-4
print(
    f"λ = 5, a mass of 0.00013 from “yes .” to “nice nice nice”: {float(true(moved_bit.log()) - true(ref.log())):.1e}"
)

# %% [markdown]
# It had stopped before the minimum. A larger λ keeps the policy closer; at λ = 5 it hardly moves, but it moves.
#
# One more question about these optima, for later. The pairs are completions of the *reference*. At the optimum of DPO, have the chosen ones become more probable?

# %%
# NBVAL_CHECK_OUTPUT
meet = (ref[:, None] * ref[None, :]).fill_diagonal_(0.0)
wins = meet / meet.sum() * preferences * 2  # (chosen, rejected): how often this pair comes up with this label
print(
    "   β   mean log-ratio of the chosen   of the rejected   pairs whose chosen completion is less probable than before"
)
for b in (2.0, 1.0, 0.5, 0.25):
    ratio = rlhf.optimal_logps(ref.log(), reward, beta=b) - ref.log()
    fallen = float(wins[ratio < 0].sum())
    print(f"{b:4.2f}   {float(wins.sum(1) @ ratio):28.2f}   {float(wins.sum(0) @ ratio):15.2f}   {fallen:51.0%}")

# %% [markdown]
# ## Deterministic labels
#
# Two completions, equally probable at first; the first one always wins. DPO is trained with β = 0.1, ½ and 2.

# %%
holds = predict(
    "After 1,000 steps, how far from the reference is the policy with β = 2, against the one with β = 0.1?",
    "less than half as far in KL",
    "about as far",
)

# %%
two = torch.tensor([0.5, 0.5], dtype=torch.float64)
STEPS, BETAS = 1000, (0.1, 0.5, 2.0)


def labelled(loss, p):
    """Return the mean loss if the first completion wins with probability p."""

    def mean(x):
        pair = PairLogps(x[:1], x[1:], two[:1].log(), two[1:].log())
        return (p * loss(pair) + (1 - p) * loss(pair.swapped())).sum()

    return mean


def descend(losses, lr=0.1):
    """KL after every step of Adam (without momentum), for several losses of two log-probabilities; the rate falls to 0."""
    logits = torch.zeros(len(losses), 2, dtype=torch.float64, requires_grad=True)
    optimiser = torch.optim.Adam([logits], lr=lr, betas=(0.0, 0.999))
    schedule = torch.optim.lr_scheduler.LinearLR(optimiser, 1.0, 0.0, STEPS)
    kls = []
    for _ in range(STEPS):
        optimiser.zero_grad()
        sum(loss(row) for loss, row in zip(losses, logits.log_softmax(-1), strict=True)).backward()
        optimiser.step()
        schedule.step()
        kls.append([float(exact.divergence(row, two)) for row in logits.detach().softmax(-1)])
    return torch.tensor(kls).T  # (losses, steps)


KINDS = {
    "DPO, deterministic labels": lambda b: labelled(partial(pl.dpo, beta=b), 1.0),
    "DPO, random labels": lambda b: labelled(partial(pl.dpo, beta=b), 1 / (1 + math.exp(-1))),
    "IPO, deterministic labels": lambda b: labelled(partial(pl.ipo, beta=b), 1.0),
}
descents = {kind: descend([make(b) for b in BETAS]) for kind, make in progress(KINDS.items(), "descents")}
print(f"KL after {STEPS} steps")
for kind, kls in descents.items():
    print(f"{kind:22}", "  ".join(f"β = {b:g}: {float(k[-1]):.3f}" for b, k in zip(BETAS, kls, strict=True)))
small, large = (float(descents["DPO, deterministic labels"][k, -1]) for k in (0, 2))
holds.reveal("less than half as far in KL" if large <= 0.5 * small else "about as far")

# %%
# figure: hard
# alt: Three panels of the KL from the reference over training steps on a logarithmic axis, for beta 0.1, 0.5 and 2. With deterministic labels all three climb towards ln 2,
#   the smaller beta sooner. With labels from Bradley-Terry, and for IPO with deterministic labels, each settles at a level of its own.
fig, axes = plt.subplots(1, 3, figsize=(9, 2.8), sharey=True, layout="constrained")
for ax, (kind, kls) in zip(axes, descents.items(), strict=True):
    for b, row, colour in zip(BETAS, kls, ("blue", "green", "red"), strict=True):
        ax.plot(range(1, STEPS + 1), row, color=PALETTE[colour], label=f"β = {b:g}")
    ax.axhline(math.log(2), color="0.6", lw=0.8)
    ax.set(title=kind, xscale="log", xlabel="step")
axes[0].annotate("ln 2", (1.1, math.log(2)), (0, -11), textcoords="offset points", color="0.4")
axes[0].set_ylabel("KL from the reference, nats")
axes[0].legend(frameon=False, loc="center left", bbox_to_anchor=(0, 0.6))
plt.show()

# %%
assert (descents["DPO, deterministic labels"][:, -1] > 0.6).all()

# %% [markdown]
# With deterministic labels β sets the speed and not the final KL: all three runs go towards ln 2, where the second completion has probability 0. So β limits the KL only where
# people disagree. IPO's bound, $1/2\beta$, holds in both cases.
#
# ## Noisy labels
#
# A fraction ε of the labels is flipped by accident. cDPO and robust DPO are given ε.

# %%
unmoved = predict("Which loss still gives the policy of clean labels?", "DPO", "cDPO", "IPO", "robust DPO")

# %%
flips = (0.0, 0.1, 0.2, 0.3, 0.4)
noisy = {
    "dpo": lambda eps: partial(pl.dpo, beta=0.5),
    "cdpo, knows ε": lambda eps: partial(pl.cdpo, beta=0.5, label_smoothing=eps),
    "robust_dpo, knows ε": lambda eps: partial(pl.robust_dpo, beta=0.5, label_smoothing=eps),
    "ipo, β = .1": lambda eps: partial(pl.ipo, beta=0.1),
}
found = {
    name: [place(minimise(over_pairs(make(e), (1 - 2 * e) * preferences + e, ref, lengths), ref)) for e in flips]
    for name, make in progress(noisy.items(), "losses")
}
lost = {name: abs(rows[-1][1] - rows[0][1]) for name, rows in found.items()}  # reward, at 0.4 against none
unmoved.reveal(dict(zip(found, ("DPO", "cDPO", "robust DPO", "IPO"), strict=True))[min(lost, key=lost.get)])

# %%
# figure: noise
# alt: Expected reward against the fraction of flipped labels, from 0 to 40 %. DPO falls from 1.81 to less than half of that, cDPO faster, IPO slower from a lower start;
#   robust DPO is a horizontal line at the clean optimum.
fig, ax = plt.subplots(figsize=(4.8, 3), layout="constrained")
for (name, rows), colour in zip(found.items(), ("blue", "sky", "green", "orange"), strict=True):
    ax.plot(flips, [row[1] for row in rows], marker="o", color=PALETTE[colour], label=name)
ax.set(xlabel="fraction of labels flipped", ylabel="expected reward", ylim=(0.6, 2))
ax.legend(frameon=False)
plt.show()

# %%
# NBVAL_CHECK_OUTPUT
print("flipped   " + "   ".join(f"{name:>20}" for name in found) + "      (reward at KL)")
for k, e in enumerate(flips):
    print(f"{e:7.1f}   " + "   ".join(f"{rows[k][1]:10.2f} at {rows[k][0]:6.2f}" for rows in found.values()))

# %% [markdown]
# Flipped labels move every margin towards 0: DPO keeps its direction and stays nearer to the reference. cDPO stays nearer still, because it assumes *more* noise than the labels
# already have. Robust DPO removes the noise, exactly, at any ε, if it is given ε and infinite data.
#
# Conversely, noise keeps DPO near the reference when labels are otherwise deterministic:

# %%
# NBVAL_CHECK_OUTPUT
certain = 0.5 * (1 + torch.sign(reward[:, None] - reward[None, :]))
print("flipped   DPO, β = ½, labels deterministic except for the flips:  KL, reward, gold reward")
for e in (0.05, 0.1, 0.2, 0.4):
    kl, earned, true = place(
        minimise(over_pairs(partial(pl.dpo, beta=0.5), (1 - 2 * e) * certain + e, ref, lengths), ref)
    )
    print(f"{e:7.2f}   {kl:.2f}, {earned:.2f}, {true:.2f}")

# %% [markdown]
# ## Which pairs? Best and worst of n
#
# Preference data are often made by sampling n completions and keeping the best and the worst. On the three completions, with rankings by Plackett–Luce:


# %%
# NBVAL_CHECK_OUTPUT
def ranking_chance(rewards):
    """Return the probability that Plackett–Luce ranks these rewards in this order."""
    return math.prod(float(rewards[k].exp() / rewards[k:].exp().sum()) for k in range(len(rewards)))


def best_and_worst(n):
    """Return the probability that y is the best and y' the worst of n completions: a table (chosen, rejected)."""
    table = torch.zeros(3, 3, dtype=torch.float64)
    for drawn in product(range(3), repeat=n):
        for order in permutations(drawn):
            chance = math.prod(float(three[y]) for y in drawn) * ranking_chance(rewards_3[list(order)])
            table[order[0], order[-1]] += chance
    return table


def fit_table(table):
    """Return the policy of least DPO loss, at β = 1, for pairs with these probabilities."""
    i, j = (~torch.eye(3, dtype=torch.bool)).nonzero(as_tuple=True)
    pair = lambda x: PairLogps(x[i], x[j], three.log()[i], three.log()[j])
    return minimise(lambda x: (table[i, j] * pl.dpo(pair(x), beta=1.0)).sum(), three)


for n in (2, 3, 4):
    p = fit_table(best_and_worst(n))
    first, second = (-(p / three).log().diff()).tolist()
    print(
        f"best and worst of {n}: {[round(v, 3) for v in p.tolist()]}   KL {exact.divergence(p, three):.3f}"
        f"   margins of neighbours {first:.2f} and {second:.2f}"
    )

# %% [markdown]
# The same β, the same people, the same completions: with more samples the policy goes further. Choosing extremes makes labels more certain than human labels. It is not the same as a smaller β: the rewards are one
# apart, so for any β the two margins would be equal. A reference that follows the policy from round to round, on the other hand, is exactly a smaller β:

# %%
# NBVAL_CHECK_OUTPUT
following = three.log()
for _ in range(5):
    following = rlhf.optimal_logps(following, rewards_3, beta=1.0)
fifth = rlhf.optimal_logps(three.log(), rewards_3, beta=0.2)
print("five rounds of β = 1:", [round(v, 3) for v in following.exp().tolist()])
print("one of β = 1/5:      ", [round(v, 3) for v in fifth.exp().tolist()])

# %% [markdown]
# ## Lists and thumbs
#
# Rankings of three, explicit rewards, and single completions with a thumb each (up with probability σ(r)), all on the three completions at β = 1.

# %%
# NBVAL_CHECK_OUTPUT
orders = torch.tensor(list(permutations(range(3))))
chance = torch.tensor([ranking_chance(rewards_3[order]) for order in orders], dtype=torch.float64)
targets = pl.reward_targets(rewards_3[None], temperature=1.0)
all_three = lambda x: ListLogps(x[None], three.log()[None])
triples = torch.tensor(list(product(range(3), repeat=3)))
best = rlhf.optimal_logps(three.log(), rewards_3, beta=1.0).exp()
positive = best[triples[:, 0]] * three[triples[:, 1]] * three[triples[:, 2]]
on_lists = {
    "plackett_luce_dpo": lambda x: (
        chance * pl.plackett_luce_dpo(ListLogps(x[orders], three.log()[orders]), beta=1.0)
    ).sum(),
    "info_nca": lambda x: pl.info_nca(all_three(x), targets, beta=1.0).sum(),
    "exo": lambda x: pl.exo(all_three(x), targets, beta=1.0).sum(),
    "nca, each once": lambda x: pl.nca(all_three(x), targets, beta=1.0).sum(),
    "info_nce": lambda x: (positive * pl.info_nce(ListLogps(x[triples], three.log()[triples]), beta=1.0)).sum(),
}
print(f"{'RLHF optimum':18}", [round(v, 3) for v in best.tolist()])
for name, loss in on_lists.items():
    print(f"{name:18}", [round(v, 3) for v in minimise(loss, three).tolist()])


# %%
# NBVAL_CHECK_OUTPUT
def drawn_lists(loss, size):
    """Return the first completion's probability at the minimum, and its mean target, for lists of ``size`` samples of the reference."""
    lists = torch.tensor(list(product(range(3), repeat=size)))
    chance, aims = three[lists].prod(-1), pl.reward_targets(rewards_3[lists], temperature=1.0)
    rest = minimise(lambda x: (chance * loss(ListLogps(x[lists], three.log()[lists]), aims, beta=1.0)).sum(), three)
    return float(rest[0]), float((chance[:, None] * aims * (lists == 0)).sum())


print("K samples of the reference: the first completion's probability at the minimum")
print("K   InfoNCA     EXO     NCA   its mean target")
for size in (2, 3, 4, 8):
    rests = [drawn_lists(loss, size) for loss in (pl.info_nca, pl.exo, pl.nca)]
    print(f"{size} {rests[0][0]:9.4f} {rests[1][0]:7.4f} {rests[2][0]:7.4f} {rests[2][1]:17.4f}")

# %%
# NBVAL_CHECK_OUTPUT
up = torch.sigmoid(rewards_3)  # fraction of thumbs up


def thumbs(loss, context, steps):
    """Return the policy after gradient descent on single completions; their reference level is computed anew at every step."""
    logits = three.log().clone().requires_grad_()
    optimiser = torch.optim.Adam([logits], lr=0.01)
    weight = torch.cat([three * up, three * (1 - up)])
    for _ in range(steps):
        x = logits.log_softmax(-1)
        batch = UnpairedLogps(x.repeat(2), three.log().repeat(2), None, torch.arange(6) < 3)
        optimiser.zero_grad()
        (weight * loss(batch, context(x.detach()), beta=1.0)).sum().backward()
        optimiser.step()
    return logits.detach().softmax(-1)


point = lambda x: (x.exp() * (x - three.log())).sum()  # KTO: the KL itself
whole = torch.cat([three * up, three * (1 - up)])  # all completions, each with its thumbs


def halfway(x):
    """Return BCO's shift: halfway between the mean implicit rewards of thumbs up and of thumbs down."""
    ups, downs = ((w * (x - three.log())).sum() / w.sum() for w in whole.split(3))
    return (ups + downs) / 2


fitting = -(three * up / (1 - up)).sum().log()  # the one shift at which fractions and normalisation agree
fits = lambda x: fitting
hurts = lambda lost: 2.25 * lost**0.88  # Tversky and Kahneman (1992)
print(f"the first hundred lost weighs {hurts(100):.1f}, the second {hurts(200) - hurts(100):.1f}")
for steps in (200, 1000):
    print(f"kto, {steps:4} steps             ", [round(v, 2) for v in thumbs(pl.kto, point, steps).tolist()])
print("fractions of thumbs up       ", [round(v, 3) for v in up.tolist()])
for name, context in (("its own shift", halfway), ("the fitting shift", fits)):
    p = thumbs(pl.bco, context, 3000)
    said = torch.sigmoid((p / three).log() - context(p.log()))
    print(f"bco, {name:17} rests at {[round(v, 3) for v in p.tolist()]}, says {[round(v, 3) for v in said.tolist()]}")

# %% [markdown]
# Plackett–Luce, InfoNCA and EXO reach the optimum, from lists of any of these sizes. NCA gives each completion the target that it receives on average; with a larger list this is nearer to
# the optimum. (With each completion once in the list, its noise is uniform while the reference is not.) With thumbs, KTO never converges: for each completion it learns the *majority*, with ever larger
# confidence. BCO aims at the fractions, but probabilities must sum to one, and its own shift does not allow both.
#
# ## Coverage
#
# Three completions, and only the first two are ever compared. Three policies with the same margin between these two:

# %%
coverage = predict(
    "One completion has probability .0004 under the reference, and the pairs overrate its reward by 5. What is its probability under DPO with β = ½?",
    0.001,
    0.05,
    0.6,
)


# %%
# NBVAL_CHECK_OUTPUT
def two_compared(logps):
    """Return the mean DPO loss, β = 1, if only the first two completions are compared."""
    pair = PairLogps(logps[:1], logps[1:2], three.log()[:1], three.log()[1:2])
    return (up[0] * pl.dpo(pair, beta=1.0) + (1 - up[0]) * pl.dpo(pair.swapped(), beta=1.0)).sum()


odds = 0.5 / 0.3 * math.e
print("policy                      loss     reward")
for third in (1e-9, float(best[2]), 0.9):
    p = torch.tensor([(1 - third) * odds, 1 - third, third * (1 + odds)], dtype=torch.float64) / (1 + odds)
    print(f"{[round(v, 3) for v in p.tolist()]!s:24} {float(two_compared(p.log())):8.4f} {float(p @ rewards_3):8.2f}")
print(f"\ncoverage E[π/μ] of the optimum: {float(rlhf.coverage(best.log(), three.log())):.3f}")
print("forty completions, the optimum:", end="")
for b in (1.0, 0.5, 0.25):
    print(f"  β = {b:g}: {float(rlhf.coverage(rlhf.optimal_logps(ref.log(), reward, beta=b), ref.log())):.1f}", end="")
print()


# %%
# NBVAL_CHECK_OUTPUT
def fitted(f_prime, rewards, ref, beta=0.5):
    """Return the policy that minimises f-DPO on infinitely many Bradley–Terry pairs of these rewards."""
    return minimise(over_pairs(partial(pl.f_dpo, beta=beta, f_prime=f_prime), bradley_terry(rewards), ref), ref)


chi_squared = lambda log_ratio: log_ratio.exp() - 1
print("χ² alone, three completions, β = 1. Its optimum: [0.8125, 0.1875, 0]; the minimum of f-DPO:", end=" ")
print([round(v, 4) for v in fitted(chi_squared, rewards_3, three, beta=1.0).tolist()])
rare = int(ref.argmin())
wrong = reward.clone()
wrong[rare] += 5
print(f"\n{world.replies[rare]!r}, probability {float(ref[rare]):.4f}, overrated by 5")
for name, f_prime in {"DPO": pl.f_prime_reverse_kl, "χPO": pl.f_prime_chi_po}.items():
    p, clean = fitted(f_prime, wrong, ref), fitted(f_prime, reward, ref)
    print(
        f"{name}: its probability {float(p[rare]):.3f}, reward without the error {float(p @ reward):.2f} at {place(p)[0]:.2f} nats; "
        f"trained without it {float(clean @ reward):.2f} at {place(clean)[0]:.2f}"
    )
    if name == "DPO":
        coverage.reveal(float(p[rare]))

# %% [markdown]
# The loss is the same for all three policies, so it does not determine completions that are never compared. And for completions that are rarely compared it can be far off. DPO penalises only the *logarithm* of a ratio;
# χPO penalises the ratio itself. This protects it here, and costs reward where there is no error.
#
# ## Likelihood displacement
#
# *May I copy your homework?* A model has three completions, "no", "never" and "sure", equally probable, and a softmax over features in which the two refusals
# are close together. One pair: "no" is better than "never". DPO's loss falls at each of 1,000 steps.

# %%
sure = predict(
    "What is the probability of “sure” after 1,000 steps of DPO? (It begins at 0.33.)", 0.02, 0.15, 0.35, 0.95
)

# %%
features = torch.tensor([[1.0, 0.0], [0.9, -0.3], [0.3, 1.0]], dtype=torch.float64)
WORDS = ("no", "never", "sure")


def one_pair(loss, steps=1000, lr=0.1):
    """Probabilities ``(steps, 3)`` under gradient descent on the pair (no, never)."""
    theta, path = torch.zeros(2, dtype=torch.float64, requires_grad=True), []
    start = torch.full((1,), -math.log(3), dtype=torch.float64)
    length = torch.ones(1)
    for _ in range(steps):
        x = (features @ theta).log_softmax(-1)
        path.append(x.detach().exp())
        (slope,) = torch.autograd.grad(loss(PairLogps(x[:1], x[1:2], start, start, length, length)).sum(), theta)
        theta = (theta - lr * slope).detach().requires_grad_()
    return torch.stack(path)


cures = {
    "DPO": partial(pl.dpo, beta=0.5),
    "IPO": partial(pl.ipo, beta=0.5),
    "DPO-Positive, λ = 5": partial(pl.dpo_positive, beta=0.5, penalty=5.0),
    "DPO + NLL": partial(pl.dpo_nll, beta=0.5, nll_weight=1.0),
    "Cal-DPO": partial(pl.cal_dpo, beta=0.5),
    "BCO on the pair": partial(pl.bco_pair, beta=0.5),
}
paths = {name: one_pair(loss) for name, loss in progress(cures.items(), "losses")}
sure.reveal(float(paths["DPO"][-1, WORDS.index("sure")]))

# %%
# figure: displacement
# alt: Six panels of the probabilities of no, never and sure over 1,000 gradient steps. Under DPO sure rises to nearly one while no, the chosen completion,
#   falls; under IPO the same, and it stops sooner. Under DPO-Positive no stays where it was. With a likelihood term or with Cal-DPO no rises. Under BCO on the pair sure rises first, then no.
fig, axes = plt.subplots(2, 3, figsize=(9, 4.4), sharex=True, sharey=True, layout="constrained")
for ax, (name, path) in zip(axes.flat, paths.items(), strict=True):
    for k, (word, colour) in enumerate(zip(WORDS, ("blue", "orange", "red"), strict=True)):
        ax.plot(range(1, 1001), path[:, k], color=PALETTE[colour], label=word)
    ax.set(title=name, xscale="log", ylim=(0, 1))
axes[0, 0].legend(frameon=False)
axes[1, 1].set_xlabel("step")
axes[0, 0].set_ylabel("probability")
axes[1, 0].set_ylabel("probability")
plt.show()

# %%
# NBVAL_CHECK_OUTPUT
start = torch.full((3,), -math.log(3), dtype=torch.float64)
rates = pl.dpo_displacement(start, features, 0, 1)
print("first step, d log π ∝", {w: round(r, 3) for w, r in zip(WORDS, rates.tolist(), strict=True)})
print("\nafter 1,000 steps        no  never  sure")
for name, path in paths.items():
    print(f"{name:20} " + "  ".join(f"{v:.2f}" for v in path[-1].tolist()))

# %% [markdown]
# The pair was about politeness. The model learned from it to say "sure", which no pair mentions. DPO's loss fell at every step.
#
# ## Cyclic preferences
#
# Three completions beat one another like rock, paper and scissors (nine times in ten). The reference prefers the first, and β = 0.1. No reward explains such
# preferences.

# %%
win, beta = 0.9, 0.1
circle = torch.tensor([[0.5, win, 1 - win], [1 - win, 0.5, win], [win, 1 - win, 0.5]], dtype=torch.float64)
home = torch.tensor([0.6, 0.25, 0.15], dtype=torch.float64)
identity = lambda p: p
by = {
    "DPO": minimise(over_pairs(partial(pl.dpo, beta=beta), circle, home), home),
    "IPO": pl.psi_po_optimum(home.log(), circle, home, beta=beta, psi=identity).exp(),
}
swinging, settling = [home.log()], [home.log()]
for _ in range(120):
    swinging.append(pl.psi_po_optimum(home.log(), circle, swinging[-1].exp(), beta=beta, psi=identity))
    settling.append(pl.nash_md(settling[-1], home.log(), circle, beta=beta, step=0.5))
nash = home.log()
for _ in range(400):
    nash = (0.9 * nash + 0.1 * pl.psi_po_optimum(home.log(), circle, nash.exp(), beta=beta, psi=identity)).log_softmax(
        -1
    )
by |= {"Nash-MD": settling[-1].exp(), "equilibrium": nash.exp()}

# %%
# NBVAL_CHECK_OUTPUT
for name, p in by.items():
    against = [round(v, 2) for v in (p @ circle).tolist()]
    print(f"{name:12} {[round(v, 2) for v in p.tolist()]!s:20} win rates against the three completions {against}")
net = circle @ nash.exp() + beta * home.log()  # a policy with one completion has the KL −log home
print(
    "payoff of the three completions against the equilibrium, win rate − β KL:",
    [round(v, 2) for v in net.tolist()],
    end="; ",
)
print(f"the equilibrium itself {0.5 - beta * float(exact.divergence(nash.exp(), home)):.2f}")

# %%
# figure: game
# alt: Two panels. Left, repeated best responses without mixing: the probability of the first completion oscillates between nearly 0 and nearly 1. Nash-MD converges
#   within a hundred rounds. Right, the worst win rate against any single completion: lowest for DPO, about twice that for IPO, highest for Nash-MD and the equilibrium, which are alike and below one half.
fig, (left, right) = plt.subplots(1, 2, figsize=(8, 2.9), width_ratios=(3, 2), layout="constrained")
left.plot([float(x[0].exp()) for x in swinging[:31]], color=PALETTE["orange"], label="best response, each round")
left.plot([float(x[0].exp()) for x in settling], color=PALETTE["blue"], label="Nash-MD, η = ½")
left.axhline(float(nash[0].exp()), color="0.6", lw=0.8, ls=":")
left.set(xlabel="round", ylabel="probability of the first completion", ylim=(0, 1.05))
left.legend(frameon=False, loc="center right", bbox_to_anchor=(1, 0.75))
right.barh(list(by), [float((p @ circle).min()) for p in by.values()], color=PALETTE["sky"], height=0.6)
right.axvline(0.5, color="0.6", lw=0.8)
right.invert_yaxis()
right.set_xlabel("win rate against its worst opponent")
plt.show()

# %% [markdown]
# The equilibrium is its own best response *with the KL penalty*. In wins alone the third completion beats it, in 57 games of 100.

# %% [markdown]
# ## Quality conditioning
#
# A simple method: label each completion "good" or "bad", put the word in front, train by imitation, and ask for "good". With infinite
# data this gives $\pi(y \mid \text{good}) \propto \pi_\text{ref}(y)\,p(\text{good} \mid y)$.

# %%
# NBVAL_CHECK_OUTPUT
good = torch.sigmoid(2 * (reward - 1.5))
tagged = ref * good / (ref * good).sum()
as_optimum = rlhf.optimal_logps(ref.log(), good.log(), beta=1.0).exp()
print("it is an RLHF optimum, of reward log p(good):", torch.allclose(tagged, as_optimum))
for name, p in (("reference", ref), ("tag", tagged), ("DPO, β = ½", rest["dpo"])):
    kl, earned, true = place(p)
    print(f"{name:12} KL {kl:.2f}  reward {earned:.2f}  gold {true:.2f}  below the frontier {below_frontier(p):.2f}")

# %% [markdown]
# This is the optimum of *another* reward, at a fixed β. No completion becomes less probable through its own label, nothing is unstable, and there is nothing to tune.
#
# ## On a language model
#
# From here on we cannot sum over all completions. The assistant task of chapter 1: a model of 100,000 parameters, pairs of its own completions, labels by the
# gold reward with noise. The fraction of pairs in the right order rises.

# %%
falls = predict(
    "What happens to the log-probabilities of the chosen completions?",
    "they rise",
    "they stay within 1 nat",
    "they fall",
)

# %%
seen = evidence.StudyResults("ch14")  # five seeds of the runs of this notebook, and more
assistant = tasks.get("assistant")
sft = pipeline.Trained(*zoo.load("assistant-sft"))
pairs, _ = pipeline.preferences(assistant, sft, direct.PAIRS)
examples = direct.compared(sft, pairs)
aligned = direct.learn(sft, examples, "dpo", quiet=False)
before, after = (direct.measure(assistant, policy, sft) for policy in (sft, aligned))
print(
    f"{len(pairs)} pairs; gold {before.gold:.2f} → {after.gold:.2f}, KL {after.kl:.2f} nats, "
    f"length {before.length:.1f} → {after.length:.1f}"
)
chosen = smooth(aligned.history["chosen_logp"], 10)
change = chosen[-1] - chosen[0]
falls.reveal("they rise" if change > 1 else "they fall" if change < -1 else "they stay within 1 nat")

# %%
assert after.gold > before.gold + 0.3 and seen.holds("dpo_gold", above=before.gold + 0.3)

# %%
# figure: curves
# alt: Four panels over the steps of a DPO run: the loss falls from ln 2; implicit rewards of chosen and rejected completions both fall, the rejected one further;
#   the fraction of pairs in the right order rises; log-probabilities of both chosen and rejected completions fall.
history = aligned.history
fig, axes = plt.subplots(2, 2, figsize=(9, 4.8), sharex=True, layout="constrained")
axes, steps = axes.ravel(), history["step"]
axes[0].plot(steps, smooth(history["loss"], 10), color=PALETTE["black"])
axes[0].axhline(math.log(2), color="0.6", lw=0.8, ls=":")
axes[0].set_title("loss")
for which, colour in (("chosen", "blue"), ("rejected", "orange")):
    axes[1].plot(steps, smooth(history[f"{which}_reward"], 10), color=PALETTE[colour], label=which)
    axes[3].plot(steps, smooth(history[f"{which}_logp"], 10), color=PALETTE[colour], label=which)
axes[1].plot(steps, smooth(history["margin"], 10), color=PALETTE["green"], label="margin")
axes[1].set_title("implicit reward")
axes[1].legend(frameon=False, fontsize=8, loc="center right", bbox_to_anchor=(1, 0.62))
axes[2].plot(steps, smooth(history["accuracy"], 10), color=PALETTE["purple"])
axes[2].set_title("fraction in the right order")
axes[3].set_title("log-probability of a completion, nats")
for ax in axes[2:]:
    ax.set_xlabel("step")
plt.show()

# %% [markdown]
# ## Similar pairs
#
# From the 1,600 pairs we take the quarter whose two completions are most similar, such as *sure! mice squeak and owls hoot* and *mice squeak and owls hoot*, and the quarter
# whose completions are least similar.

# %%
sinks = predict(
    "Under DPO, with which pairs do the chosen completions lose more log-probability?", "most similar", "least similar"
)

# %%
near, far = direct.alike(pairs)
short = replace(direct.TRAINING, max_steps=60)
runs = {
    "least similar: DPO": (far, "dpo", {}),
    "most similar: DPO": (near, "dpo", {}),
    "most similar: DPO + NLL": (near, "dpo_nll", {"nll_weight": 1.0}),
    "most similar: DPO-Positive": (near, "dpo_positive", {"penalty": 5.0}),
}
moved = {}
print("                            log-ratio, nats         right   gold")
print("                            chosen   rejected       order  reward     KL")
for name, (some, loss, options) in runs.items():
    rows = direct.compared(sft, some)
    policy = direct.learn(sft, rows, loss, short, quiet=False, **options)
    moved[name] = direct.moved(policy, sft, rows)
    m = direct.measure(assistant, policy, sft)
    print(
        f"{name:26} {moved[name]['chosen']:+7.2f} {moved[name]['rejected']:+10.2f} {moved[name]['accuracy']:11.2f} "
        f"{m.gold:7.2f} {m.kl:6.2f}"
    )
cal = seen.values("near_cal_dpo_chosen")
print(f"most similar: Cal-DPO, in the study's five seeds: chosen {min(cal):+.2f} to {max(cal):+.2f}")
sinks.reveal(min(("most similar", "least similar"), key=lambda which: moved[f"{which}: DPO"]["chosen"]))

# %%
assert moved["most similar: DPO"]["chosen"] < moved["least similar: DPO"]["chosen"] < 0
assert seen.all_exceed("far_dpo_chosen", "near_dpo_chosen") and seen.holds("far_dpo_chosen", below=0.0)
for name, (_, loss, _) in list(runs.items())[2:]:
    assert moved[name]["chosen"] > 0 and seen.holds(f"near_{loss}_chosen", above=0.0)
assert seen.holds("near_cal_dpo_chosen", above=0.0)

# %%
# figure: sinking
# alt: Bars for four runs of sixty steps: by how many nats the log-probability of chosen and of rejected completions changed. With DPO on the most similar pairs both fall
#   by several nats; on the least similar pairs the chosen ones fall by about one; with a likelihood term or DPO-Positive the chosen ones rise a little.
fig, ax = plt.subplots(figsize=(7, 3), layout="constrained")
for which, colour, shift in (("chosen", "blue", -0.2), ("rejected", "orange", 0.2)):
    places = [k + shift for k in range(len(moved))]
    ax.barh(places, [m[which] for m in moved.values()], height=0.36, color=PALETTE[colour], label=which)
ax.set(yticks=range(len(moved)), yticklabels=list(moved), xlabel="change of the log-probability of a completion, nats")
ax.invert_yaxis()
ax.axvline(0, color="0.4", lw=0.8)
ax.legend(frameon=False, loc="lower left")
plt.show()

# %% [markdown]
# **What to notice.** With similar pairs the easiest way to a margin is to make *both* completions less probable, the rejected one more so. The fraction in the right order does not show it; the
# log-probability of the chosen completions does. The remedies keep it up, and their policies stay nearer to the reference. The study compares them with DPO *at the same KL*.
#
# Can we predict which pairs cause this? CHES computes a score from the hidden states of the model before any training. Here are all pairs of the first run, in four groups by score. By how many nats did
# the log-probability of their chosen completions change?

# %%
scores = ches_of(sft, examples)
winners = [pair.chosen for pair in examples]
then, now = (reference_logps(p.model, winners, pad_token_id=sft.tokenizer.pad_token_id) for p in (sft, aligned))
fallen = now - then
print("CHES of the pairs   chosen, nats     among the quarter most similar in words")
alike_ones = set(map(id, near))
for k, group in enumerate(scores.argsort(descending=True).chunk(4)):
    share = sum(id(pairs[i]) in alike_ones for i in group.tolist()) / len(group)
    name = ("highest quarter", "second", "third", "lowest quarter")[k]
    print(f"{name:16} {float(fallen[group].mean()):+15.2f} {share:20.0%}")

# %%
assert fallen[scores.topk(400).indices].mean() < fallen[scores.topk(400, largest=False).indices].mean() - 0.5

# %% [markdown]
# In this run the log-probability falls further with a higher score. Whether the score is useful as a filter is another question, which needs several seeds:

# %%
by_quarter = evidence.StudyResults("ch14_displacement")
for name, key in (("highest CHES", "high"), ("lowest CHES", "low"), ("at random", "random")):
    golds, kls = (by_quarter.values(f"{key}_{what}") for what in ("gold", "kl"))
    print(f"DPO on the quarter {name:16} gold {sum(golds) / len(golds):5.2f}   KL {sum(kls) / len(kls):.1f}")
print("and on the other three quarters, without")
for name, key in (("highest CHES", "without_high"), ("a random one", "without_random")):
    golds = by_quarter.values(f"{key}_gold")
    print(f"                   {name:16} gold {sum(golds) / len(golds):5.2f}")

# %% [markdown]
# As the only training data, the pairs of highest CHES give the lowest gold reward and the largest KL. Together with three times as many other pairs they make no significant difference over five seeds.
#
# ## An annotator with a length bias
#
# This annotator adds .3 to the reward for every word; in the gold reward each word costs .1. What happens to the length, and to the gold reward?

# %%
likes_length = SimulatedAnnotator(temperature=0.3, biases=(length_bias(0.3),))
biased = direct.compared(sft, direct.labelled_pairs(assistant, sft, direct.PAIRS.pairs, likes_length))
long = {}
print("                         length   gold     KL")
print(f"{'SFT':22} {before.length:8.1f} {before.gold:6.2f}")
for loss in ("dpo", "dpo_length_normalised"):
    policy = direct.learn(sft, biased, loss, short, quiet=False)
    long[loss] = m = direct.measure(assistant, policy, sft)
    print(f"{loss:22} {m.length:8.1f} {m.gold:6.2f} {m.kl:6.2f}   {direct.reply(assistant, policy)!r}")

# %%
for loss, m in long.items():
    assert m.length > before.length + 2 and seen.holds(f"long_{loss}_length_1", above=before.length + 2)

# %%
assert seen.all_exceed("long_dpo_length_normalised_length", "long_dpo_length")

# %% [markdown]
# Means per token are no remedy. They remove the advantage that a long completion has in the *loss*, but they also weaken the limit on distance: a completion of n tokens may go n times as far from the
# reference.
#
# ## Offline and online
#
# The same number of labels and of steps. Offline: all pairs are completions of the SFT model (the run above). Online: four rounds, each with the next block of prompts and 400 pairs of completions
# of the *current* policy; the reference is the policy at the beginning of the round. Pairs, updates and sampling all differ
# from the offline run, so one run of each decides little. The last lines are over five seeds.

# %%
by_rounds = evidence.StudyResults("ch14_online")  # five seeds
online = direct.rounds(assistant, sft, direct.PAIRS, "dpo", moving=True, disjoint=True, quiet=False)
m = direct.measure(assistant, online, sft)
print(f"offline  gold {after.gold:.2f}  KL {after.kl:.2f}  length {after.length:.1f}")
print(f"online   gold {m.gold:.2f}  KL {m.kl:.2f}  length {m.length:.1f}")
for name, key in (("reference follows", "moving"), ("reference fixed", "fixed")):
    higher = [x > y for x, y in zip(by_rounds.values(f"{key}_gold"), by_rounds.values("offline_gold"), strict=True)]
    print(f"{name}: gold reward above offline in {sum(higher)} of {len(higher)} seeds")

# %%
assert by_rounds.all_exceed("moving_gold", "offline_gold")

# %% [markdown]
# ## Which loss, when
#
# Five seeds of every loss at one learning rate, each measured along its run: gold reward where the run crosses 1 and 2 nats (a dash where a seed never does), and at
# the end. At one rate, a slower loss has trained on more pairs when it reaches the same KL. The chapter shows what other rates change.


# %%
def mean_and_std(name):
    """Return mean and standard deviation over the seeds."""
    values = torch.tensor(seen.values(name))
    return f"{values.mean():5.2f} ± {values.std():.2f}"


print("                        gold at 1 nat   at 2 nats      at the end     KL there       tokens")
for loss in direct.COMPARED:
    cells = []
    for kl in (1, 2):
        reached = min(seen.values(f"{loss}_kl_{kl}")) > kl - 1e-6
        cells.append(mean_and_std(f"{loss}_gold_{kl}") if reached else f"{'—':^12}")
    cells += [mean_and_std(f"{loss}_{key}") for key in ("gold", "kl", "length")]
    print(f"{loss:22}  " + "   ".join(cells))

# %% [markdown]
# SLiC, at our numbers, is an exception. Its hinge requires that the chosen completion is *more probable* than the rejected one, whatever the reference's probabilities are. At the start it trains on these pairs:

# %%
logps = reference_logps(
    sft.model,
    [completion for pair in examples for completion in pair.completions],
    pad_token_id=sft.tokenizer.pad_token_id,
).view(-1, 2)
counts = logps[:, 0] - logps[:, 1] < 1.0  # the hinge is not satisfied yet
longer = torch.tensor([len(p.chosen.split()) > len(p.rejected.split()) for p in pairs])
share, of_all = float(longer[counts].double().mean()), float(longer.double().mean())
print(
    f"{counts.double().mean():.0%} of the pairs have a gradient; the winner is the longer completion in {share:.0%} of these, in {of_all:.0%} of all"
)

# %%
assert share > 0.6 and of_all < 0.45 and seen.all_exceed("slic_length_1", "dpo_length_1")

# %% [markdown]
# ## A failure on purpose: too large a step
#
# Thirty times the learning rate. What happens to the accuracy on the pairs, and to the gold reward?

# %%
hot = replace(short, learning_rate=30 * direct.TRAINING.learning_rate)
diverged = direct.learn(sft, examples, "dpo", hot, quiet=False)
m = direct.measure(assistant, diverged, sft)
for name, policy in (("as above", aligned), ("× 30", diverged)):
    share = direct.last_mean(policy, "accuracy")
    print(f"{name:9} accuracy on its pairs {share:.2f}   {direct.reply(assistant, policy)!r}")
print(f"gold {after.gold:.2f} → {m.gold:.2f}, KL {after.kl:.1f} → {m.kl:.1f} nats")

# %%
assert m.gold < 0 and m.kl > 30 and max(seen.values("rate_30_gold")) < 0 and seen.holds("rate_30_kl", above=30)

# %% [markdown]
# Accuracy is a poor metric for DPO: the diverged model loses a few points of accuracy, and writes nonsense. Watch the KL and the log-probability of the chosen completions, and
# read what the model writes.

# %%
predict.tally()

# %% [markdown]
# ## Now you
#
# * Give "no" and "never" in the homework model features that are orthogonal. Which rates change their signs?
# * Draw the frontier figure for labels by *gold* instead of the reward model. Where is the right-hand plot's peak now?
# * A reference that moves makes four rounds of β a single one of β/4, if each round finds its optimum. Run `direct.learn(sft, examples, "dpo", beta=0.025)` and compare: where does it differ?
#
# The graded exercises of this chapter: `minirlhf check 14`.
