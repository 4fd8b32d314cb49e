# %% [markdown]
# # 09 · How does a KL penalty keep a policy near its reference?
#
# The symbol $\beta\,\mathrm{KL}$ can be written in code in a dozen ways. **Which of them have the same effect, which have none, which have a different one, and does the penalty keep a model
# from forgetting?**
#
# We use two small tasks. One is the poem critic of chapter 05, whose forty completions are all known. In the other, two writers write letters of four words.

# %%
import statistics

import matplotlib.pyplot as plt
import torch

from minirlhf.core import exact
from minirlhf.core.progress import progress
from minirlhf.equations import kl, rlhf
from minirlhf_course import evidence
from minirlhf_course.chapters.ch09_regularisation import equations as regularisation
from minirlhf_course.chapters.ch09_regularisation.forgetting import LetterReader
from minirlhf_course.chapters.ch09_regularisation.poem import ARMS, Poem, SampledRun, Steering, at_kl, rest, train
from minirlhf_course.chapters.ch09_regularisation.speakers import Letters, imitate
from minirlhf_course.classroom.predictions import Predictions
from minirlhf_course.report.plotting import PALETTE

plt.rcParams.update({"font.size": 9, "axes.spines.top": False, "axes.spines.right": False})

poem = Poem()
ref = poem.law(poem.start)  # (40,) probabilities
reward, gold = poem.rewards, poem.world.gold
predict = Predictions("09")

# %% [markdown]
# ## Two directions
#
# There are two writers: "dear … sincerely" (60 %) and "hey … xoxo". A student that remembers only the last word imitates both, by minimising one KL or the other.

# %%
mixture = predict(
    "Which of the two KLs makes the student write 'dear … xoxo'?",
    "forward, KL(writers‖student)",
    "reverse, KL(student‖writers)",
)

# %%
letters = Letters()
shares = {how: letters.shares(imitate(letters, how, 0)) for how in progress(("forward", "reverse"), "students")}
for how, found in shares.items():
    print(f"{how:8}", {name: round(found[name], 2) for name in ("formal", "casual", "mixed")})
mixture.reveal(
    "forward, KL(writers‖student)"
    if shares["forward"]["mixed"] > shares["reverse"]["mixed"]
    else "reverse, KL(student‖writers)"
)

# %%
# figure: speakers
# alt: Fractions of formal, casual and mixed letters for four students. The two that minimise the forward KL, exactly or by supervised learning, write almost half of their letters mixed.
#   The two that minimise the reverse KL, exactly or by reinforcement learning, write two per cent mixed; over ten initialisations their formal and casual fractions are near 0 or near 95 per cent.
seen_speakers = evidence.StudyResults("ch09_speakers")
runs = {
    "forward": "forward KL",
    "sft": "supervised,\nfrom samples",
    "reverse": "reverse KL",
    "rl": "RL,\non-policy samples",
}
fig, axes = plt.subplots(1, 4, figsize=(9, 2.6), sharey=True, layout="constrained")
for ax, (name, title) in zip(axes, runs.items(), strict=True):
    for k, (what, colour) in enumerate((("formal", "blue"), ("casual", "green"), ("mixed", "red"))):
        values = seen_speakers.values(f"{name}_{what}")
        ax.bar(k, statistics.fmean(values), color=PALETTE[colour], alpha=0.35)
        ax.plot([k + 0.03 * (i - 4.5) for i in range(len(values))], values, ".", ms=5, color=PALETTE[colour])
    ax.set(xticks=range(3), xticklabels=["formal", "casual", "mixed"], title=title, ylim=(0, 1))
axes[0].set_ylabel("fraction of letters")
plt.show()

# %% [markdown]
# **What to notice.** In the two panels on the right the bars average runs that chose different writers. Each dot is near 0 or near 1.
#
# ## Three estimates of one number
#
# We take the optimal policy at β = ½, which is 1.095 nats from its reference, and sample one completion. What is the standard deviation of each estimate of this distance?

# %%
noisy = predict(
    "Which estimate has the smallest standard deviation?",
    "k1, summed over the tokens",
    "k3, summed over the tokens",
    "k3 of the whole completion",
    "the KLs of whole next-token distributions",
)

# %%
# NBVAL_CHECK_OUTPUT
table = poem.start
for beta in (8.0, 4.0, 2.0, 1.0, 0.7, 0.5):  # each point of rest leads to the next
    table, _ = rest(poem, ARMS["k1_reward"], beta, table)
law, logps, ref_logps = poem.law(table), poem.token_logps(table), poem.token_logps(poem.start)
estimates = {
    "k1, summed over the tokens": kl.k1(logps, ref_logps).sum(-1),
    "k2, summed over the tokens": kl.k2(logps, ref_logps).sum(-1),
    "k3, summed over the tokens": kl.k3(logps, ref_logps).sum(-1),
    "k3 of the whole completion": kl.k3(logps.sum(-1), ref_logps.sum(-1)),
    "the KLs of whole next-token distributions": kl.full_kl(table[poem.prefixes], poem.start[poem.prefixes], poem.mask),
}
deviations = {}
print("                                              mean  std. dev.")
for name, values in estimates.items():
    mean = exact.expectation(law, values)
    deviations[name] = float(exact.expectation(law, (values - mean) ** 2).sqrt())
    print(f"{name:42} {float(mean):7.3f} {deviations[name]:10.3f}")
noisy.reveal(min((name for name in deviations if not name.startswith("k2")), key=deviations.__getitem__))

# %% [markdown]
# ## The same estimate, in three places
#
# So far an estimate was logged. Now we train with it. We subtract k3 from the reward, token by token, at the β for which k1 converges to 1.1 nats, with 64 completions per step and 200 steps.

# %%
charge = predict(
    "How far does the policy go with k3 in the reward?", "about 1.1 nats", "a little further", "more than 3 nats"
)

# %%
seen = evidence.StudyResults("ch09")  # ten seeds
gone = {}
print("                     this run   ten seeds")
for name in progress(("k1_reward", "k3_reward", "k1_loss", "k3_loss"), "runs"):
    gone[name] = poem.place(train(poem, ARMS[name], Steering(0.5), SampledRun(), 0))["kl"]
    values = seen.values(f"{name}_kl")
    print(f"{name:18} {gone[name]:10.2f}   {min(values):.2f} to {max(values):.2f}")
charge.reveal(
    "more than 3 nats" if gone["k3_reward"] > 3 else "about 1.1 nats" if gone["k3_reward"] < 1.2 else "a little further"
)

# %%
assert abs(gone["k1_reward"] - 1.095) < 0.05 and gone["k3_reward"] > 2 and seen.holds("k3_reward_kl", above=2)
assert gone["k1_loss"] > 5.5 and seen.holds("k1_loss_kl", above=5.5)

# %% [markdown]
# In the reward, k3 penalises the *difference* of two KLs that agree near the reference. k1 in the loss does not limit the KL.
#
# ## Fixed points, and a comparison at equal KL
#
# Now we use no samples. Where is the *expected* update zero? For each variant we choose the β whose fixed point is exactly one nat from the reference.

# %%
fair = predict(
    "At one nat each: which variant has the highest reward?",
    "k1 in the reward",
    "k2 of tokens in the loss",
    "k3 of tokens in the loss",
)

# %%
# NBVAL_CHECK_OUTPUT
print("fixed point at one nat       beta  reward    gold")
earned = {}
places = {
    "k1 in the reward": ("k1_reward", 0.45),
    "k2 of tokens in the loss": ("k2_loss", 0.5),
    "k3 of tokens in the loss": ("k3_loss", 0.5),
}
for title, (name, low) in progress(places.items(), "places"):
    beta, table = at_kl(poem, ARMS[name], 1.0, high=1.0, low=low)
    found = poem.place(table)
    earned[title] = found["reward"]
    print(f"{title:26} {beta:6.3f} {found['reward']:7.3f} {found['gold']:7.3f}")
low, high = 0.5, 4.0  # k3 of the whole completion has a formula
for _ in range(60):
    beta = (low * high) ** 0.5
    covering = regularisation.forward_kl_optimal_logps(ref.log(), reward, beta=beta)
    low, high = (beta, high) if float(kl.reverse_kl(covering, ref.log())) > 1 else (low, beta)
print(f"{'k3 of the completion, loss':26} {beta:6.3f} {covering.exp() @ reward:7.3f} {covering.exp() @ gold:7.3f}")
fair.reveal(max(earned, key=earned.__getitem__))
covering = regularisation.forward_kl_optimal_logps(ref.log(), reward, beta=1.0)
print(f"... and that one at beta = 1: {kl.reverse_kl(covering, ref.log()):.3f} nats, gold {covering.exp() @ gold:.3f}")

# %%
# figure: places
# alt: Two panels over the KL from the reference. Left, proxy reward: the frontier of k1 in the reward is highest; k2 and k3 of tokens in the loss are slightly below it; k3 of the whole completion is clearly below.
#   Right, gold reward: all four rise at first. The frontier is highest and turns down after half a nat; k2 of tokens is below, k3 of tokens further below; k3 of the completion turns first, falls fastest and is negative before two nats.
betas = torch.logspace(1, -0.6, 60, dtype=torch.float64).tolist()
curves = {
    "k1 in the reward": [rlhf.optimal_logps(ref.log(), reward, beta=b).exp() for b in betas],
    "k3 of the completion, loss": [
        regularisation.forward_kl_optimal_logps(ref.log(), reward, beta=b).exp() for b in betas
    ],
}
tokens = (("k2_loss", "k2 of tokens, loss"), ("k3_loss", "k3 of tokens, loss"))
for name, title in progress(tokens, "curves"):
    curves[title], table = [], poem.start
    for beta in (8.0, 4.0, 2.0, 1.4, 1.0, 0.8, 0.65, 0.55, 0.5):
        table, _ = rest(poem, ARMS[name], beta, table)
        curves[title].append(poem.law(table))
colours = ("black", "red", "blue", "orange")
fig, axes = plt.subplots(1, 2, figsize=(9, 3.2), layout="constrained")
for ax, worth, label in zip(axes, (reward, gold), ("proxy reward", "gold reward"), strict=True):
    for (title, laws), colour in zip(curves.items(), colours, strict=True):
        laws = [p for p in laws if float(exact.divergence(p, ref)) < 3]
        ax.plot(
            [float(exact.divergence(p, ref)) for p in laws],
            [float(p @ worth) for p in laws],
            color=PALETTE[colour],
            label=title,
        )
    ax.set(xlabel="KL from the reference, nats", ylabel=label)
axes[0].legend(frameon=False, loc="lower right")
plt.show()

# %% [markdown]
# ## An adaptive coefficient β
#
# A controller moves β so that the KL becomes half a nat. If the policy is always at its optimum, the loop is exact, and the chapter's factor says whether it converges.

# %%
swings = predict(
    "Gain 1.1, factor below −1. What does the KL do?", "converges to .5", "oscillates indefinitely", "diverges"
)

# %%
# NBVAL_CHECK_OUTPUT
price = rlhf.beta_for_kl(ref.log(), reward, budget=0.5)
print("gain  factor   KL in the last updates of 60")
for gain in (0.1, 1.0, 1.1, 2.0):
    beta, spent = 0.5, []
    for _ in range(60):
        spent.append(float(kl.reverse_kl(rlhf.optimal_logps(ref.log(), reward, beta=beta), ref.log())))
        beta = kl.adaptive_kl_beta(beta, spent[-1], target=0.5, horizon=1 / gain)
    factor = float(regularisation.adaptive_kl_factor(ref.log(), reward, beta=price, rate=gain))
    print(f"{gain:4.1f} {factor:7.3f}  ", *(f"{x:.2f}" for x in spent[-5:]))
    if gain == 1.1:
        wide = max(spent[-6:]) - min(spent[-6:])
        swings.reveal("converges to .5" if wide < 0.05 else "oscillates indefinitely" if wide < 2 else "diverges")

# %% [markdown]
# Now we use samples, with three initial coefficients. Then we let the reference move instead of keeping it fixed.

# %%
follow = predict(
    "With a fixed reference the policy converges to 1.1 nats. With a moving average of 3 % per step, after 200 steps it is at …",
    "about 1.1",
    "about 2",
    "more than 5",
)

# %%
controlled, refreshed = {}, {}
steerings = {f"from β = {b:g}": Steering(b, target=0.5) for b in (0.1, 0.5, 3.0)} | {
    "target 8 nats": Steering(0.5, target=8.0)
}
for name, steering in progress(steerings.items(), "controllers"):
    train(poem, ARMS["k1_reward"], steering, SampledRun(steps=300, constant=name.startswith("target")), 0)
    controlled[name] = steering
references = {
    "fixed": Steering(0.5),
    "copied every 40 steps": Steering(0.5, rate=1.0, every=40),
    "average, 3 % per step": Steering(0.5, rate=0.03),
    "average, 0.3 % per step": Steering(0.5, rate=0.003),
}
for name, steering in progress(references.items(), "references"):
    train(poem, ARMS["k1_reward"], steering, SampledRun(), 0)
    refreshed[name] = steering
    print(f"{name:22} {steering.kls[-1]:5.2f} nats from the initial reference")
far = refreshed["average, 3 % per step"].kls[-1]
follow.reveal("about 1.1" if far < 1.5 else "about 2" if far < 3 else "more than 5")

# %%
# figure: control
# alt: Left, KL over 300 steps: three runs under a controller with a target of half a nat meet at the target; the run that starts at β = 0.1 first passes four nats. A fourth run, with a target of eight nats, rises to more than six and stays below its target.
#   Right, KL from the initial reference over 200 steps: flat at little more than one nat with a fixed reference; with a copy every 40 steps it rises in stairs to between five and six, with an average of three per cent smoothly as far, with a tenth of that rate steadily to two.
fig, axes = plt.subplots(1, 2, figsize=(9, 3.2), layout="constrained")
for ax, group in zip(axes, (controlled, refreshed), strict=True):
    for (name, steering), colour in zip(group.items(), ("blue", "green", "orange", "red"), strict=True):
        ax.plot(steering.kls, color=PALETTE[colour], label=name)
    ax.set(xlabel="step", ylabel="KL from the initial reference, nats", ylim=(0, 7))
axes[0].axhline(0.5, ls=":", color=PALETTE["black"])
axes[0].legend(frameon=False, loc="center right")
axes[1].legend(frameon=False, loc="upper left")
plt.show()

# %%
assert abs(controlled["from β = 0.1"].kls[-1] - 0.5) < 0.2 and seen.holds("adaptive_0.1_late_kl", above=0.3, below=0.7)
assert far > 4 and seen.holds("refresh_average_kl", above=4)

# %% [markdown]
# ## Forgetting
#
# A small network names letters. It learns a new task, in which any digit of the right parity is right, until 95 % of its answers are right. The answers that it is taught come from different sources. (This run has one base model, at the higher of the figure's two learning rates; the figure has ten.)

# %%
keeps = predict(
    "Which method keeps more letters?",
    "RL",
    "the nearest right policy, imitated",
    "the true digit, imitated",
    "RL and the true digit do not differ significantly",
)

# %%
pupil = LetterReader(0)
print("                   letters kept   KL from base   updates")
for way in progress(("rl", "nearest", "true", "one", "one_with_letters"), "pupils"):
    kept = pupil.taught(getattr(pupil, way), 3e-3)
    print(f"{way:18} {kept.old:12.2f} {kept.kl:14.2f} {kept.steps:9}")
learned = evidence.StudyResults("ch09_forgetting")
WAYS = ("rl", "nearest", "own", "true", "any")
kept = {way: learned.values(f"{way}_slow_old") for way in (*WAYS, "one", "one_with_letters")}
best = learned.difference("rl_slow_old", "true_slow_old")
keeps.reveal(
    "RL and the true digit do not differ significantly"
    if not best.significant
    else "RL"
    if best.mean > 0
    else "the true digit, imitated"
)


# %%
# NBVAL_CHECK_OUTPUT
def together(what, ways):
    """Correlation of the letters kept with something else, over ways and seeds, without each seed's mean."""
    xs = torch.tensor([learned.values(f"{way}_slow_{what}") for way in ways], dtype=torch.float64)
    ys = torch.tensor([kept[way] for way in ways], dtype=torch.float64)
    xs, ys = xs - xs.mean(0), ys - ys.mean(0)
    return float((xs * ys).sum() / (xs.square().sum() * ys.square().sum()).sqrt())


SIX = (*WAYS, "one")
print("letters kept, correlated over ways and ten seeds")
print("                    KL(π‖base)  KL(base‖π)     updates")
for title, ways in (("all six ways", SIX), *((f"without {out}", [w for w in SIX if w != out]) for out in SIX)):
    print(f"{title:18}", *(f"{together(what, ways):11.2f}" for what in ("kl", "forward", "steps")))
print("within one way, over ten base models, from ... to ...")
for what, title in (("kl", "KL(π‖base)"), ("steps", "number of updates")):
    within = [
        float(torch.corrcoef(torch.tensor([learned.values(f"{way}_slow_{what}"), kept[way]]))[0, 1]) for way in WAYS
    ]
    print(f"  {title:18} {min(within):6.2f} {max(within):6.2f}")

# %%
# figure: forgetting
# alt: Fraction of letters still named correctly against KL from the base model on the new task, ten seeds, two learning rates. Without letters mixed in, RL and the true digit keep most, though they are not the closest. The nearest
#   right policy and the base model's right answers are furthest left and keep less. Random right answers, a little further than the true digit, keep about half; always 0 or 1, far to the right, keeps least. The same with letters mixed in, equally far to the right, keeps nearly all.
titles = {
    "rl": ("RL", "red"),
    "true": ("true digit", "blue"),
    "nearest": ("nearest right policy", "green"),
    "own": ("base's right answers", "sky"),
    "any": ("any right answer", "orange"),
    "one": ("always 0 or 1", "purple"),
    "one_with_letters": ("0 or 1, letters mixed in", "black"),
}
fig, ax = plt.subplots(figsize=(7.5, 3.6), layout="constrained")
for way, (title, colour) in titles.items():
    for rate, marker in (("slow", "o"), ("fast", "^")):
        xs, ys = learned.values(f"{way}_{rate}_kl"), learned.values(f"{way}_{rate}_old")
        ax.plot(xs, ys, marker, ms=3, alpha=0.4, color=PALETTE[colour])
        label = title if rate == "slow" else None
        ax.plot(statistics.fmean(xs), statistics.fmean(ys), marker, ms=8, color=PALETTE[colour], label=label)
ax.set(xscale="log", xlabel="KL from the base model on the new task, nats", ylabel="letters kept", ylim=(0, 1.03))
ax.set_xticks([0.3, 0.5, 1, 2], labels=["0.3", "0.5", "1", "2"])
ax.minorticks_off()
ax.legend(frameon=False, loc="center left", bbox_to_anchor=(1, 0.5))
plt.show()

# %%
for more, less in (("rl", "nearest"), ("rl", "any"), ("one_with_letters", "one")):
    assert learned.difference(f"{more}_slow_old", f"{less}_slow_old").above == 10

# %% [markdown]
# **What to notice.** Circles are the lower learning rate, triangles the higher. From left to right the KL on the new task grows, but the fraction of letters does not simply fall. In the table of correlations, which quantity predicts forgetting better depends on which way is left out. So six ways cannot decide between them.

# %%
predict.tally()

# %% [markdown]
# ## Now you
#
# * Use whole distributions with the term that the loss of tokens lacks (`kl.full_kl_with_score`). Where does it converge?
# * Give the controller a horizon ten times as long. What happens to the run that starts at β = .1?
# * Teach the network with half true digits and half random right answers. Is forgetting an average of the two?
#
# The graded exercises of this chapter: `minirlhf check 09`.
