# %% [markdown]
# # 18 · Models that teach models
#
# Models write much of the data on which models are fine-tuned. **What does a teacher know that its text does not show? What does a student learn that cannot represent its teacher? What
# happens when models learn from models, again and again?**
#
# The tasks are small: three sayings of three words, and a distribution over fifty outcomes.

# %%
import matplotlib.pyplot as plt
import torch

from minirlhf.core.progress import progress
from minirlhf.equations import distillation as kd
from minirlhf.recipes.distill import DISTILLATIONS
from minirlhf_course import evidence
from minirlhf_course.chapters.ch18_synthetic_data_and_distillation import equations as synthetic
from minirlhf_course.chapters.ch18_synthetic_data_and_distillation import generations
from minirlhf_course.chapters.ch18_synthetic_data_and_distillation.sayings import Sayings, WordTable, distil, standing
from minirlhf_course.classroom.predictions import Predictions
from minirlhf_course.report.plotting import PALETTE

plt.rcParams.update({"font.size": 9, "axes.spines.top": False, "axes.spines.right": False})

predict = Predictions("18")


def mean(values):
    """Return the mean of a list."""
    return sum(values) / len(values)


# %% [markdown]
# ## A weak filter
#
# A score has a correlation of .3 with the quality of a text. We keep the texts with the best 10 % of the scores.

# %%
gain = predict(
    "Keeping the best 10 % by a perfect score gains 1.75 standard deviations. By this score?", "0.16", "0.53", "1.2"
)

# %%
# NBVAL_CHECK_OUTPUT
rho = torch.tensor([1.0, 0.3, 0.1], dtype=torch.float64)
print("fraction kept   perfect score   correlation .3   correlation .1")
for share in (0.5, 0.1, 0.01):
    found = synthetic.filter_gain(rho, torch.full_like(rho, share))
    print(f"{share:13.2f} {found[0]:15.3f} {found[1]:16.3f} {found[2]:16.3f}")
    if share == 0.1:
        gain.reveal("0.53" if abs(float(found[1]) - 0.53) < 0.01 else "0.16" if found[1] < 0.3 else "1.2")

# %% [markdown]
# A weak score gains in proportion to its correlation. Where texts are plentiful, keeping fewer of them compensates in part.
#
# ## Top-k distillation: two probabilities of a teacher
#
# A teacher has five tokens, and only its two most probable ones were stored. What are three losses of a student that puts 93 % on the other three?

# %%
tail = predict(
    "The two probabilities are normalised to 1 on both sides. What does the loss do to the student's other three tokens?",
    "it gives them the teacher's mass",
    "it takes their mass away",
    "it ignores them",
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
tail.reveal("it ignores them" if renormalised < 1e-9 else "it takes their mass away")

# %% [markdown]
# ## A student that cannot represent its teacher
#
# The teacher says one of three sayings of three words. The last word depends on the first. The student cannot see the first word when it says the last. It learns from 25,600 sayings, by five methods of
# `minirlhf train distill`. What fraction of its sayings is clean, so that the last word fits the first?

# %%
clean = predict(
    "The reverse KL seeks modes. The student writes its own sayings, and the loss compares word by word. What fraction of its sayings is clean?",
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
    "minillm": "the same, credit for later words",
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
# alt: Fraction of clean sayings for five methods of distillation, ten seeds each as dots. The four methods that compare word by word lie together near four in ten; the reverse KL with credit for later words
#   is alone above nine in ten, at the teacher's dotted line.
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
    xlabel="fraction of clean sayings",
    xlim=(0, 1),
    ylim=(4.5, -0.7),
    title="a forgetful student, ten seeds",
)
plt.show()

# %%
assert now["minillm"]["clean"] > 0.8 > 0.5 > now["on_policy_kd"]["clean"]
assert seen.holds("minillm_clean", above=0.8) and seen.holds("on_policy_kd_clean", below=0.5)

# %% [markdown]
# **What to notice.** The direction of the divergence hardly mattered. Credit for later words did: only the last method makes the first word responsible for a disagreement two words later. The column of the
# forward KL shows the price.
#
# ## Exposure bias: errors after the student's own words
#
# Small transformers reproduce 24 words of a circle. They learned the distributions of a teacher of at least their width along sequences without errors. The teacher's own training had injected errors. Tested after right words, the student of half the teacher's width gets about 0.25 of the 24 words wrong.

# %%
own_words = predict("How many are wrong when it continues from its own words?", "0.3 words", "1 word", "3 words")

# %%
reciting = evidence.StudyResults("ch18_slips")
print("mean of five seeds       wrong of 24: tested  predicted   sampled   nats after right, own words")
for name, label in {
    "right_16": "width 16",
    "right_32": "width 32",
    "right_64": "width 64",
    "slips_32": "width 32, errors",
}.items():
    values = [mean(reciting.values(f"{name}_{key}")) for key in ("shown", "foretold", "wrong", "kl_right", "kl_own")]
    print(f"{label:24} {values[0]:19.2f} {values[1]:10.1f} {values[2]:9.1f} {values[3]:20.3f} {values[4]:10.3f}")
found = mean(reciting.values("right_32_wrong"))
own_words.reveal("3 words" if found > 2 else "1 word" if found > 0.6 else "0.3 words")

# %%
assert reciting.difference("right_32_wrong", "right_32_shown").significant
assert reciting.difference("right_32_kl_own", "slips_32_kl_own").significant

# %% [markdown]
# **What to notice.** After one error nearly every word is wrong, and the formula for compounding errors predicts how many. The exception is the last row, whose student recovers now and then. The teacher continues better after an error of its own. In four of five seeds its next word is mostly wrong, too, but it recovers some words later. Only the student of the last row learned what the teacher says after an error.
#
# ## A hint, a label or a reward?
#
# A small transformer sorts six digits, not always rightly. With the sorted row in its prompt it can copy. It learns from itself with that hint, or by fine-tuning on the sorted row, or from rewards for right rows by Dr. GRPO. Every method uses 3,200 completions, Dr. GRPO four for each of 800 prompts. Fine-tuning has
# the learning rate 0.001 of the methods with hints; Dr. GRPO has its own best rate. Ten seeds.

# %%
better = predict(
    "Which method sorts the most rows rightly at the end, without a hint in the prompt?",
    "the hint",
    "the reward",
    "fine-tuning on the sorted row, or no significant difference between it and the hint",
)

# %%
hinted, control = evidence.StudyResults("ch18_hints"), evidence.StudyResults("ch18_labels")
ways = {
    "base": "before",
    "grpo": "rewards: Dr. GRPO",
    "words": "hinted model's words",
    "given_forward": "its completions, forward KL",
    "given_reverse": "its completions, reverse KL",
    "own_forward": "on-policy, forward KL",
    "own_reverse": "on-policy, reverse KL",
    "labels_1000": "fine-tuning on the sorted row",
}


def rows_of(name, key):
    """Return the fractions of ten seeds."""
    return (control if name.startswith("labels") else hinted).values(f"{name}_{key}")


print("mean of ten seeds              sorted   reversed")
for name, label in ways.items():
    print(f"{label:30} {mean(rows_of(name, 'right')):6.3f} {mean(rows_of(name, 'other')):10.3f}")
apart = hinted.difference("own_reverse_right", "grpo_right")
plain = control.difference("labels_1000_right", "own_reverse_1000_right")
for text, found in {
    "on-policy with the hint − Dr. GRPO": apart,
    "fine-tuning − on-policy with the hint": plain,
}.items():
    low, high = found.interval
    print(f"{text:38} {found.mean:+.3f} [{low:+.3f}, {high:+.3f}]")
hint_alone = apart.mean > 0 and plain.significant and plain.mean < 0
better.reveal(
    "the hint"
    if hint_alone
    else "fine-tuning on the sorted row, or no significant difference between it and the hint"
    if apart.mean > 0
    else "the reward"
)

# %%
# figure: hints
# alt: Left, fraction of rows sorted rightly, ten seeds each as dots with their mean as a bar: lowest before, a little more by rewards, then on-policy with the forward KL, then the hinted model's words and
#   its completions with the forward KL, and most with the reverse KL on either kind of completions and by fine-tuning on the sorted row. Right, the fraction of rows reversed rightly, which no method practises:
#   nearly all before and by rewards, fewer and with wide ranges for the five methods with a hint, and fewest by fine-tuning.
fig, axes = plt.subplots(1, 2, figsize=(9, 3.4), layout="constrained", sharey=True)
for ax, key, title in zip(
    axes, ("right", "other"), ("sorting, which is trained", "reversing, which is not"), strict=True
):
    for place, name in enumerate(ways):
        values = rows_of(name, key)
        colour = PALETTE[{"base": "black", "grpo": "orange", "labels_1000": "green"}.get(name, "blue")]
        ax.plot(values, [place] * len(values), "o", ms=5, alpha=0.4, color=colour)
        ax.plot([mean(values)], [place], "|", ms=16, mew=2, color=colour)
    ax.set(xlabel="fraction of 333 rows", ylim=(7.6, -0.6), title=title)
axes[0].set(yticks=range(len(ways)), yticklabels=list(ways.values()))
plt.show()

# %%
assert apart.significant and apart.mean > 0
assert not (plain.significant and plain.mean < 0)
assert not hinted.difference("own_reverse_other", "words_other").significant
assert hinted.difference("own_reverse_right", "own_forward_right").significant

# %% [markdown]
# **What to notice.** The hint teaches more than the reward. A likely reason is that the hint has an answer for every digit. But fine-tuning on the sorted row itself sorts no fewer rows than any method with a hint. So these runs give no evidence for an advantage of self-distillation. (The second interval is uncorrected. Corrected for all pairs of the page's six arms it contains 0.) Now compare the methods that use distributions. On-policy, the reverse KL is better than the forward KL. On the hinted model's completions this difference is barely significant. In the right panel, all methods with a hint or a label forget some of the skill that they do not practise. The
# page compares fine-tuning with the on-policy hint method: a smaller learning rate reduces this forgetting more than the choice between the two.
#
# ## Model collapse, generation after generation
#
# There are fifty outcomes, the $v$-th with a probability like $1/v$. A model counts a hundred samples. The next model counts a hundred samples of *this model*. No step is biased.

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
# alt: Left, diversity relative to the original distribution over twenty generations of a hundred samples. Three laws as lines with the means of simulated families as dots on them: replacing falls steadily to about .82, a tenth of
#   fresh data levels off near .95, accumulating stays near .98. Right, how many of fifty outcomes are left: replacing falls from 32 to 7, fresh data to 20, accumulating stays at 32.
fig, axes = plt.subplots(1, 2, figsize=(9, 3.3), layout="constrained")
steps = range(1, generations.GENERATIONS + 1)
whole = float(generations.diversity(generations.truth()))
laws = {
    "accumulate": lambda g: synthetic.diversity_accumulated(n=generations.DRAWS, generation=g),
    "fresh": lambda g: synthetic.diversity_retained(n=generations.DRAWS, generation=g, fresh=generations.FRESH),
    "replace": lambda g: synthetic.diversity_retained(n=generations.DRAWS, generation=g),
}
names = {"accumulate": "everything is kept", "fresh": "10 % fresh data", "replace": "everything is replaced"}
for (way, law), colour in zip(laws.items(), ("green", "orange", "blue"), strict=True):
    axes[0].plot(steps, [law(g) for g in steps], color=PALETTE[colour], label=names[way])
    axes[0].plot(steps, generations.diversity(families[way]).mean(1) / whole, "o", ms=3.5, color=PALETTE[colour])
    axes[1].plot(
        steps, (families[way] > 0).sum(-1).double().mean(1), "o-", ms=3.5, color=PALETTE[colour], label=names[way]
    )
axes[0].set(xticks=range(0, 21, 5), xlabel="generation", ylabel="fraction of the original diversity", ylim=(0.75, 1.01))
axes[0].set_title("lines: the laws; dots: simulated")
axes[1].set(xticks=range(0, 21, 5), xlabel="generation", ylabel="outcomes, of 50", ylim=(0, 35))
axes[1].set_title("outcomes with a probability above 0")
axes[0].legend(frameon=False, loc="lower left")
plt.show()

# %%
assert abs(float(generations.diversity(families["replace"][-1]).mean()) / whole - laws["replace"](20)) < 0.04
assert seen.holds("replace_outcomes_20", below=10)

# %% [markdown]
# ## Collapse of small transformers
#
# Each transformer is trained from new weights: on 400 pages that the last one wrote, or on all pages so far, or on the 400 of 1,200 pages that the last one finds most probable per token. There are eight generations and five seeds. A fourth line, in the table only, reads as many pages as the second line, all written by the last model.

# %%
typical = predict(
    "Which line of models passes on the fewest distinct trigrams after eight generations?",
    "the last one's pages",
    "all pages",
    "the most probable pages",
)

# %%
lines = evidence.StudyResults("ch18_language")
kinds = {"accumulate": "all pages are kept", "replace": "the last one's pages", "typical": "its most probable pages"}
last = generations.GENERATIONS_OF_MODELS - 1
for way, label in {**kinds, "larger": "more of the last one's"}.items():
    nats, runs = (mean(lines.values(f"{way}_{key}_{last}")) for key in ("nats", "triples"))
    print(f"{label:23} {nats:5.2f} nats per real token, {runs:4.2f} of the trigrams of real pages")
fewest = min(kinds, key=lambda way: mean(lines.values(f"{way}_triples_{last}")))
typical.reveal(
    {"replace": "the last one's pages", "accumulate": "all pages", "typical": "the most probable pages"}[fewest]
)

# %%
# figure: pages
# alt: Two panels over eight generations, with bands over five seeds. Left, nats per token of real pages on a logarithmic axis: with all pages kept about one and a half throughout, with the last one's pages rising slowly to about one and three quarters, with its
#   most probable pages climbing past seven. Right, trigrams relative to real pages: about one for the first two, and from about a half to nearly none for the third.
fig, axes = plt.subplots(1, 2, figsize=(9, 3.3), layout="constrained")
steps = range(1, generations.GENERATIONS_OF_MODELS + 1)
for (way, label), colour in zip(kinds.items(), ("green", "blue", "red"), strict=True):
    for ax, key in zip(axes, ("nats", "triples"), strict=True):
        columns = [lines.values(f"{way}_{key}_{g - 1}") for g in steps]
        ax.fill_between(
            steps, [min(c) for c in columns], [max(c) for c in columns], color=PALETTE[colour], alpha=0.2, lw=0
        )
        ax.plot(steps, [mean(c) for c in columns], "o-", ms=3.5, color=PALETTE[colour], label=label)
axes[0].set(xlabel="generation", ylabel="nats per token of real pages", title="loss on real pages")
axes[0].set(yscale="log", yticks=(1.5, 2, 3, 4, 6, 8), yticklabels=("1.5", "2", "3", "4", "6", "8"), ylim=(1.35, 8.5))
axes[0].minorticks_off()
axes[1].set(xlabel="generation", ylabel="trigrams, relative to real pages", ylim=(0, None))
axes[1].set_title("pages that are passed on")
axes[0].legend(frameon=False)
plt.show()

# %% [markdown]
# ## A mean that hides the collapse
#
# A normal distribution is fitted to twenty of its own samples, fifty times. The variance estimate is unbiased.

# %%
middle = predict(
    "The expectation of the variance stays 1. What is its median over many families?", "near 1", "near .5", "below .1"
)

# %%
last = generations.variances(seed=100)[-1]
print(
    f"mean {float(last.mean()):.2f}, median {float(last.median()):.3f}; the law's typical value {2.718281828 ** (50 * synthetic.log_variance_drift(n=20)):.3f}"
)
middle.reveal("below .1" if last.median() < 0.15 else "near .5" if last.median() < 0.7 else "near 1")

# %% [markdown]
# The mean over four hundred families is far from 1 as well. Nearly all of the expectation comes from a few rare families, and a sample may contain none of them.

# %%
predict.tally()

# %% [markdown]
# ## Now you
#
# * Let the forgetful student learn by `minillm` from another initialisation (`seed`). Which saying wins?
# * Add a filter for the most probable outcomes: change `generations.families` so that each generation drops the outcomes that it sampled once. How fast is diversity lost now?
# * Mix two methods: half of the steps with `minillm`, then `kd`. Does the student stay clean?
#
# The graded exercises of this chapter: `minirlhf check 18`.
