# %% [markdown]
# # 18 · Models that teach models
#
# Much of what a model is tuned on today was written by a model. **What does a teacher know that its text does not show, what does a student learn that cannot be its teacher, and what
# becomes of models that learn from models, again and again?**
#
# The worlds are small: three sayings of three words, and a table of fifty outcomes.

# %%
import matplotlib.pyplot as plt
import torch

from minirlhf.core.progress import progress
from minirlhf.equations import distillation as kd
from minirlhf.equations import synthetic
from minirlhf.recipes.distill import DISTILLATIONS
from minirlhf_course import evidence
from minirlhf_course.chapters.ch18_synthetic_data_and_distillation import generations
from minirlhf_course.chapters.ch18_synthetic_data_and_distillation.sayings import Sayings, WordTable, distil, standing
from minirlhf_course.classroom.predictions import Predictions
from minirlhf_course.report.plotting import PALETTE

plt.rcParams.update({"font.size": 9, "axes.spines.top": False, "axes.spines.right": False})

predict = Predictions("18")


def mean(values):
    """Of a list."""
    return sum(values) / len(values)


# %% [markdown]
# ## A weak filter
#
# A score says something about the quality of a text, but not much: its correlation with the quality is .3. One keeps the best tenth of the scores.

# %%
gain = predict(
    "Keeping the best tenth by a perfect score gains 1.75 standard deviations. By this one?", "0.16", "0.53", "1.2"
)

# %%
# NBVAL_CHECK_OUTPUT
rho = torch.tensor([1.0, 0.3, 0.1], dtype=torch.float64)
print("share kept   perfect score   correlation .3   correlation .1")
for share in (0.5, 0.1, 0.01):
    found = synthetic.filter_gain(rho, torch.full_like(rho, share))
    print(f"{share:10.2f} {found[0]:15.3f} {found[1]:16.3f} {found[2]:16.3f}")
    if share == 0.1:
        gain.reveal("0.53" if abs(float(found[1]) - 0.53) < 0.01 else "0.16" if found[1] < 0.3 else "1.2")

# %% [markdown]
# A weak score gains in proportion to its correlation. With plenty of text one keeps less of it, which makes up for a part.
#
# ## Two numbers of a teacher
#
# A teacher has five tokens, and only its two likeliest were kept. What do three losses say of a student that puts 93 % on the other three?

# %%
tail = predict(
    "The two numbers are normalised to 1 on both sides. What becomes of the student's other three tokens?",
    "they get the teacher's mass",
    "they get nothing",
    "the loss does not care",
)

# %%
# NBVAL_CHECK_OUTPUT
teacher = torch.tensor([0.5, 0.2, 0.15, 0.1, 0.05], dtype=torch.float64).log()[None, None]
one = torch.ones(1, 1, dtype=torch.bool)
spread = torch.tensor([0.05, 0.02, 0.31, 0.31, 0.31], dtype=torch.float64).log()[None, None]  # 93 % in the tail
lumped = float(kd.top_k_distillation(spread, teacher, one, k=2))
top = [x[..., :2].log_softmax(-1) for x in (spread, teacher)]
renormalised = float((top[1].exp() * (top[1] - top[0])).sum())
print(f"a student with 93 % in the tail: {lumped:.3f} nats with the tail as an outcome, {renormalised:.3f} normalised")
print(f"the whole forward KL:            {float(kd.forward_kl_distillation(spread, teacher, one)):.3f} nats")
tail.reveal("the loss does not care" if renormalised < 1e-9 else "they get nothing")

# %% [markdown]
# ## A student that cannot be its teacher
#
# The teacher says one of three sayings, three words each: the last word depends on the first. The student has forgotten the first word when it says the last. It learns from 25,600 sayings, by five rows of
# `minirlhf train distill`. How many of its sayings are clean, the last word fitting the first?

# %%
clean = predict(
    "The reverse KL seeks modes, the student writes its own sayings, and the loss is compared word by word. Share of clean sayings?",
    "about .4",
    "about .7",
    "above .9",
)

# %%
seen = evidence.StudyResults("ch18")  # ten seeds
rows = {
    "sequence_kd": "the teacher's words",
    "kd": "forward KL",
    "gkd": "JSD, half own sayings",
    "on_policy_kd": "reverse KL, own sayings",
    "minillm": "the same, later words credited",
}
world = Sayings()
now = {}
for name in progress(("on_policy_kd", "minillm"), "training"):
    student = WordTable(world, forgetful=True, seed=100)
    distil(student, DISTILLATIONS[name], seed=100)
    now[name] = standing(student)
print("mean of ten seeds                  clean   commonest   forward KL   reverse KL")
for name, label in rows.items():
    values = [mean(seen.values(f"{name}_{key}")) for key in ("clean", "favourite", "forward", "reverse")]
    print(f"{label:32} {values[0]:7.2f} {values[1]:11.2f} {values[2]:12.2f} {values[3]:12.2f}")
found = mean(seen.values("on_policy_kd_clean"))
clean.reveal("above .9" if found > 0.9 else "about .7" if found > 0.55 else "about .4")

# %%
# figure: gap
# alt: Share of clean sayings for five ways to distil, ten seeds each as dots. Four of them, whatever is compared word by word, lie together near four in ten; the reverse KL with credit for later words
#   stands alone above nine in ten, at the teacher's dotted line.
fig, ax = plt.subplots(figsize=(6.5, 2.8), layout="constrained")
for place, name in enumerate(rows):
    values = seen.values(f"{name}_clean")
    ax.plot(values, [place] * len(values), "o", ms=5, alpha=0.5, color=PALETTE["red" if name == "minillm" else "blue"])
share = float(sum(world.law[style].sum() for style in world.styles))
ax.axvline(share, ls=":", color=PALETTE["black"])
ax.annotate("teacher", (share, -0.45), (-4, 0), textcoords="offset points", ha="right")
ax.set(
    yticks=range(len(rows)),
    yticklabels=list(rows.values()),
    xlabel="share of clean sayings",
    xlim=(0, 1),
    ylim=(4.5, -0.7),
    title="a forgetful student, ten seeds",
)
plt.show()

# %%
assert now["minillm"]["clean"] > 0.8 > 0.5 > now["on_policy_kd"]["clean"]
assert seen.holds("minillm_clean", above=0.8) and seen.holds("on_policy_kd_clean", below=0.5)

# %% [markdown]
# **What to notice.** The direction of the divergence hardly mattered. What the first word *leads to* did: only the last row makes it answer for the trouble two words later. What the student pays is in the column of the
# forward KL.
#
# ## After one's own words
#
# Small transformers recite 24 words of a circle. They have learned from another one, wider than they are or as wide, that had practised with slips, along recitations in which there was none. Tested after right words, the one of half its width gets about a quarter of one word of the 24 wrong.

# %%
own_words = predict("And when it goes on from its own words?", "0.3 words", "1 word", "3 words")

# %%
reciting = evidence.StudyResults("ch18_slips")
print("mean of five seeds       wrong of 24: tested   foretold   sampled   nats after right, own words")
for name, label in {
    "right_16": "width 16",
    "right_32": "width 32",
    "right_64": "width 64",
    "slips_32": "width 32, with slips",
}.items():
    values = [mean(reciting.values(f"{name}_{key}")) for key in ("shown", "foretold", "wrong", "kl_right", "kl_own")]
    print(f"{label:24} {values[0]:19.2f} {values[1]:10.1f} {values[2]:9.1f} {values[3]:20.3f} {values[4]:10.3f}")
found = mean(reciting.values("right_32_wrong"))
own_words.reveal("3 words" if found > 2 else "1 word" if found > 0.6 else "0.3 words")

# %%
assert reciting.difference("right_32_wrong", "right_32_shown").significant
assert reciting.difference("right_32_kl_own", "slips_32_kl_own").significant

# %% [markdown]
# **What to notice.** After one slip nearly every word is wrong, and the formula for errors that feed on themselves foretells how many, but for the last row, whose student finds back now and then. The teacher goes on better after a slip of its own, but in four of five seeds the next word is mostly wrong, too; it is back some words later. What it says after a slip was asked for in the last row only.
#
# ## A hint, or a reward?
#
# A small transformer sorts six digits, not always rightly. With the sorted row in its prompt it can copy. It may learn from itself with that hint, or from rewards for right rows by Dr. GRPO, 3,200 answers in either case and
# each at its best learning rate. Ten seeds.

# %%
better = predict(
    "Which of the two sorts more rows rightly in the end, without a hint?",
    "the hint",
    "the reward",
    "they cannot be told apart",
)

# %%
hinted = evidence.StudyResults("ch18_hints")
ways = {
    "base": "before",
    "grpo": "rewards: Dr. GRPO",
    "words": "hinted model's words",
    "given_forward": "its answers, forward KL",
    "given_reverse": "its answers, reverse KL",
    "own_forward": "own answers, forward KL",
    "own_reverse": "own answers, reverse KL",
}
print("mean of ten seeds            sorted   reversed")
for name, label in ways.items():
    print(f"{label:28} {mean(hinted.values(f'{name}_right')):6.3f} {mean(hinted.values(f'{name}_other')):10.3f}")
apart = hinted.difference("own_reverse_right", "grpo_right")
low, high = apart.interval
print(f"own answers with the hint less the reward: {apart.mean:+.3f} ({low:+.3f} to {high:+.3f})")
better.reveal("they cannot be told apart" if not apart.significant else "the hint" if apart.mean > 0 else "the reward")

# %%
# figure: hints
# alt: Left, share of rows sorted rightly, ten seeds each as dots with their mean as a bar: lowest before, a little more by rewards, then by own answers with the forward KL, then by
#   the hinted model's words and by its answers with the forward KL, and most with the reverse KL, whoever wrote. Right, the share of rows reversed rightly, which nobody practises: nearly all before and by rewards,
#   fewer and with wide spreads in all five ways with a hint.
fig, axes = plt.subplots(1, 2, figsize=(9, 3.4), layout="constrained", sharey=True)
for ax, key, title in zip(
    axes, ("right", "other"), ("sorting, which is practised", "reversing, which is not"), strict=True
):
    for place, name in enumerate(ways):
        values = hinted.values(f"{name}_{key}")
        colour = PALETTE[{"base": "black", "grpo": "orange"}.get(name, "blue")]
        ax.plot(values, [place] * len(values), "o", ms=5, alpha=0.4, color=colour)
        ax.plot([mean(values)], [place], "|", ms=16, mew=2, color=colour)
    ax.set(xlabel="right rows, share of 333", ylim=(6.6, -0.6), title=title)
axes[0].set(yticks=range(len(ways)), yticklabels=list(ways.values()))
plt.show()

# %%
assert apart.significant and apart.mean > 0
assert not hinted.difference("own_reverse_other", "words_other").significant
assert hinted.difference("own_reverse_right", "own_forward_right").significant

# %% [markdown]
# **What to notice.** At equal answers the hint teaches more than the reward, since it speaks of every digit. Of the four ways that compare distributions, the reverse KL is better than the forward on own answers; on the hinted model's it is so at the edge of what ten seeds show. On the right, all ways with a hint forget some of what nobody practises; that the answers are the student's own does not prevent it.
#
# ## Generation after generation
#
# Fifty outcomes, the $v$-th with a probability like $1/v$. A model counts a hundred draws; the next one counts a hundred draws of *it*. No step is biased.

# %%
left = predict(
    "How many of the fifty outcomes are left after twenty generations, on average?", "about 30", "about 20", "about 7"
)

# %%
families = {way: generations.families(way, seed=100) for way in generations.WAYS}
for way, models in families.items():
    outcomes = (models > 0).sum(-1).double().mean(1)
    print(f"{way:11} outcomes after 1, 10 and 20 generations: {outcomes[0]:.1f}, {outcomes[9]:.1f}, {outcomes[19]:.1f}")
seldom = float((families["replace"][-1] > 0).sum(-1).double().mean())
left.reveal("about 7" if seldom < 12 else "about 20" if seldom < 25 else "about 30")

# %%
# figure: collapse
# alt: Left, diversity relative to the truth over twenty generations of a hundred draws. Three laws as lines with the means of simulated families as dots on them: replacing falls steadily to about .82, a tenth of
#   fresh data levels off near .95, accumulating stays near .98. Right, how many of fifty outcomes are left: replacing falls from 32 to 7, fresh data to 20, accumulating stays at 32.
fig, axes = plt.subplots(1, 2, figsize=(9, 3.3), layout="constrained")
steps = range(1, generations.GENERATIONS + 1)
whole = float(generations.diversity(generations.truth()))
laws = {
    "accumulate": lambda g: synthetic.diversity_accumulated(n=generations.DRAWS, generation=g),
    "fresh": lambda g: synthetic.diversity_retained(n=generations.DRAWS, generation=g, fresh=generations.FRESH),
    "replace": lambda g: synthetic.diversity_retained(n=generations.DRAWS, generation=g),
}
names = {"accumulate": "everything is kept", "fresh": "a tenth is fresh", "replace": "everything is replaced"}
for (way, law), colour in zip(laws.items(), ("green", "orange", "blue"), strict=True):
    axes[0].plot(steps, [law(g) for g in steps], color=PALETTE[colour], label=names[way])
    axes[0].plot(steps, generations.diversity(families[way]).mean(1) / whole, "o", ms=3.5, color=PALETTE[colour])
    axes[1].plot(
        steps, (families[way] > 0).sum(-1).double().mean(1), "o-", ms=3.5, color=PALETTE[colour], label=names[way]
    )
axes[0].set(xticks=range(0, 21, 5), xlabel="generation", ylabel="diversity, share of the truth's", ylim=(0.75, 1.01))
axes[0].set_title("lines: the laws; dots: simulated")
axes[1].set(xticks=range(0, 21, 5), xlabel="generation", ylabel="outcomes, of 50", ylim=(0, 35))
axes[1].set_title("outcomes that are still said")
axes[0].legend(frameon=False, loc="lower left")
plt.show()

# %%
assert abs(float(generations.diversity(families["replace"][-1]).mean()) / whole - laws["replace"](20)) < 0.04
assert seen.holds("replace_outcomes_20", below=10)

# %% [markdown]
# ## Models that write for models
#
# The same with small transformers: each is trained from new weights on 400 pages that the last one wrote; or on all pages that there ever were; or on the third of what the last one wrote that it finds likeliest. Eight generations, five seeds. (A fourth line, in the table only, reads as many pages as the second, all of the last model.)

# %%
typical = predict(
    "Which line of models hands on the fewest different runs of three words after eight generations?",
    "the last one's pages",
    "all pages",
    "the likeliest third",
)

# %%
lines = evidence.StudyResults("ch18_language")
kinds = {"accumulate": "all pages are kept", "replace": "the last one's pages", "typical": "its likeliest third"}
last = generations.GENERATIONS_OF_MODELS - 1
for way, label in {**kinds, "larger": "as many, the last one's"}.items():
    nats, runs = (mean(lines.values(f"{way}_{key}_{last}")) for key in ("nats", "triples"))
    print(f"{label:23} {nats:5.2f} nats on a real token, {runs:4.2f} of the runs of real pages")
fewest = min(kinds, key=lambda way: mean(lines.values(f"{way}_triples_{last}")))
typical.reveal({"replace": "the last one's pages", "accumulate": "all pages", "typical": "the likeliest third"}[fewest])

# %%
# figure: pages
# alt: Two panels over eight generations, bands over five seeds. Left, nats per token of real pages on a logarithmic axis: where all pages are kept about one and a half throughout, with the last one's pages rising slowly to about one and three quarters, with its
#   likeliest third climbing past seven. Right, runs of three words relative to real pages: about one for the first two, and from about a half to nearly none for the third.
fig, axes = plt.subplots(1, 2, figsize=(9, 3.3), layout="constrained")
steps = range(1, generations.GENERATIONS_OF_MODELS + 1)
for (way, label), colour in zip(kinds.items(), ("green", "blue", "red"), strict=True):
    for ax, key in zip(axes, ("nats", "triples"), strict=True):
        columns = [lines.values(f"{way}_{key}_{g - 1}") for g in steps]
        ax.fill_between(
            steps, [min(c) for c in columns], [max(c) for c in columns], color=PALETTE[colour], alpha=0.2, lw=0
        )
        ax.plot(steps, [mean(c) for c in columns], "o-", ms=3.5, color=PALETTE[colour], label=label)
axes[0].set(xlabel="generation", ylabel="nats per token of real pages", title="what a model expects of real pages")
axes[0].set(yscale="log", yticks=(1.5, 2, 3, 4, 6, 8), yticklabels=("1.5", "2", "3", "4", "6", "8"), ylim=(1.35, 8.5))
axes[0].minorticks_off()
axes[1].set(xlabel="generation", ylabel="runs of three words, share of real pages'", ylim=(0, None))
axes[1].set_title("what it hands on")
axes[0].legend(frameon=False)
plt.show()

# %% [markdown]
# ## A mean that hides everything
#
# A normal distribution is fitted to twenty of its own draws, fifty times. The variance estimate is unbiased.

# %%
middle = predict(
    "The expectation of the variance stays 1. And its median over many families?", "near 1", "near .5", "below .1"
)

# %%
last = generations.variances(seed=100)[-1]
print(
    f"mean {float(last.mean()):.2f}, median {float(last.median()):.3f}; the law's typical value {2.718281828 ** (50 * synthetic.log_variance_drift(n=20)):.3f}"
)
middle.reveal("below .1" if last.median() < 0.15 else "near .5" if last.median() < 0.7 else "near 1")

# %% [markdown]
# The mean over four hundred families is far from 1 as well: nearly all of the expectation lies in a few families, and a sample may have none of them.

# %%
predict.tally()

# %% [markdown]
# ## Now you
#
# * Let the forgetful student learn by `minillm` from another first table (`seed`). Which saying wins?
# * A filter that keeps what the model finds likeliest: change `generations.families` so that each generation drops the outcomes seen once. How fast is diversity lost now?
# * Mix: half of the steps of `minillm`, then `kd`. Does the student stay clean?
#
# The graded exercises of this chapter: `minirlhf check 18`.
