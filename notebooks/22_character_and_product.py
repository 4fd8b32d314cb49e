# %% [markdown]
# # 22 · A character, a rule and a canary
#
# A small assistant answers questions about animals. It ranks its own answers by its own score of warmth, and learns from this ranking. Then a specification shows what else has changed, and a canary decides about the release.
#
# **Can a model teach itself a trait, and how do you notice what came with it?**

# %%
from dataclasses import replace

import matplotlib.pyplot as plt
import torch

from minirlhf.data.tasks.assistant import ASSISTANT
from minirlhf.recipes.offline import PREFERENCES
from minirlhf.stages import pipeline
from minirlhf_course import evidence
from minirlhf_course.chapters.ch22_character_and_product import character
from minirlhf_course.chapters.ch22_character_and_product import equations as release
from minirlhf_course.classroom.predictions import Predictions
from minirlhf_course.report.plotting import PALETTE

plt.rcParams.update({"font.size": 9, "axes.spines.top": False, "axes.spines.right": False})

SEED = 200  # not one of the study's ten seeds
study = evidence.StudyResults("ch22")
predict = Predictions("22")

# %% [markdown]
# ## How strong does the character become?
#
# Three completions, with and without the trait in the system prompt. The chapter's formula gives the optimal policy for every strength β.

# %%
gushing = predict("At which β is *gushing* about as probable as under the system prompt?", "0.2", "1", "5")

# %%
# NBVAL_CHECK_OUTPUT
plain, trait = (torch.tensor(p, dtype=torch.float64).log() for p in ((0.5, 0.3, 0.2), (0.1, 0.3, 0.6)))
print("   β   plain  friendly  gushing")
for beta in (5.0, 2.0, 1.0, 0.5, 0.2):
    p = release.trait_policy(trait, plain, beta=beta).exp().tolist()
    print(f"{beta:4.1f}   {p[0]:5.3f}  {p[1]:8.3f}  {p[2]:7.3f}")
gushing.reveal("1")

# %%
# figure: strength
# alt: Probabilities of three completions against one over beta, from 0 to 5. Plain falls at once. Friendly rises a little to about a third at one half and then falls towards zero. Gushing rises from a fifth to nearly one.
#   A dashed line at 1 marks the model under its system prompt.
inverse = torch.linspace(0.01, 5, 200, dtype=torch.float64).tolist()
probabilities = torch.stack([release.trait_policy(trait, plain, beta=1 / x).exp() for x in inverse])
fig, ax = plt.subplots(figsize=(4.6, 2.8), layout="constrained")
colours = {"plain": "black", "friendly": "blue", "gushing": "red"}
for (completion, colour), column in zip(colours.items(), probabilities.T, strict=True):
    ax.plot(inverse, column, color=PALETTE[colour], label=completion)
ax.axvline(1, color=PALETTE["black"], lw=0.8, ls="--")
ax.text(1.05, 0.93, "as under the system prompt", fontsize=8)
ax.set(xlabel="1/β", ylabel="probability of the completion", ylim=(0, 1), title="strength of the character")
ax.legend(frameon=False, fontsize=8, loc="center right")
plt.show()

# %% [markdown]
# ## Trait, queries, completions, ranking
#
# The assistant has learned from demonstrations with and without the system prompt *be warm*. We ask 256 questions without it and sample four answers to each. The score of an answer is the increase of its log-probability under *be warm*.

# %%
start = character.base(replace(character.BASE, seed=SEED), quiet=False)
ranking = character.ranked(start, seed=SEED)
print(ranking.prompts[0])
for score, answer in sorted(zip(ranking.scores[0].tolist(), ranking.answers[0], strict=True), reverse=True):
    print(f"{score:7.1f} nats   {answer}")

# %%
better = predict(
    "There are two ways to learn the trait: DPO on this ranking, or imitation of answers that were written under the system prompt. Which gets the higher gold reward after thirty steps?",
    "DPO on the ranking",
    "imitation",
    "no difference",
)

# %%
recipe = PREFERENCES["dpo"].with_(beta=character.BETA)
plan = pipeline.AlignPlan(recipe, replace(character.DPO, seed=SEED))
imitate = replace(character.IMITATE, seed=SEED)
models = {
    "before": start,
    "self-ranked": pipeline.align(start, ranking.pairs(start.tokenizer, ranking.scores), plan),
    "prompted": character.imitated(start, character.prompted(start, ranking.prompts, seed=SEED + 1), imitate),
}
prompts = ASSISTANT.prompts("test")
answers = {name: [y for [y] in character.replies(model, prompts, seed=SEED)] for name, model in models.items()}
metrics = {name: character.measured(prompts, texts) for name, texts in answers.items()}
print("                 warm   gold   no false claim   at most one polite word")
for name, row in metrics.items():
    print(f"{name:14} {row['warm']:6.2f} {row['gold']:6.2f} {row['no_wrong']:16.2f} {row['one_polite']:25.2f}")
mean = lambda name: sum(study.values(name)) / 10
print(f"mean of the study's ten seeds: gold {mean('self_gold'):.2f} by DPO, {mean('prompted_gold'):.2f} by imitation")
better.reveal("imitation" if mean("prompted_gold") > mean("self_gold") else "DPO on the ranking")

# %%
assert study.holds("prompted_warm", above=0.9) and study.holds("before_warm", below=0.3)

# %% [markdown]
# ## A rule turns red
#
# We check six rules on the same questions before and after training. The gold reward has increased.

# %%
red = predict(
    "Which rule is satisfied significantly less often than before?",
    "no false claim",
    "at most one polite word",
    "none",
)

# %%
before = character.kept(prompts, answers["before"])
after = character.kept(prompts, answers["prompted"])
alarms = character.alarms(before, after)
for rule in before:
    lost, won = int((before[rule] & ~after[rule]).sum()), int((~before[rule] & after[rule]).sum())
    print(f"{rule:12} lost {lost:3d}   won {won:3d}   {'got worse' if alarms[rule] else ''}")
red.reveal("at most one polite word" if mean("prompted_red_one_polite") > 0.5 else "none")

# %%
# figure: rules
# alt: Six rules, each with two dots joined by a line, before and after, means of ten seeds. Warm rises from about a fifth to nearly all answers, and no filler rises. At most one polite word falls from above nine tenths to about seven tenths,
#   at most ten words falls a little, and the two rules of correctness hardly change.
fig, ax = plt.subplots(figsize=(6.4, 2.8), layout="constrained")
names = {
    "no_wrong": "claims nothing false",
    "answers": "answers the question",
    "one_polite": "at most one polite word",
    "no_filler": "no filler",
    "ten_words": "at most ten words",
    "warm": "warm",
}
for row, rule in enumerate(names):
    ends = [mean(f"{which}_{rule}") for which in ("before", "prompted")]
    ax.plot(ends, [row, row], color=PALETTE["red"] if ends[1] < ends[0] - 0.1 else PALETTE["blue"], lw=2)
    ax.plot(ends[0], row, "o", mfc="white", mec=PALETTE["black"], label="before" if not row else None)
    ax.plot(ends[1], row, "o", color=PALETTE["black"], label="after" if not row else None)
ax.set(
    yticks=range(6),
    yticklabels=list(names.values()),
    xlim=(0, 1.02),
    xlabel="fraction of answers that satisfy the rule",
    title="side effects of the trait",
)
ax.invert_yaxis()
ax.legend(frameon=False, fontsize=8, loc="lower left")
plt.show()

# %% [markdown]
# ## A threshold, and its cost
#
# The separation of the scores determines a filter's curve. The dots show the cheapest threshold of each filter, if two requests in a hundred are harmful and harm costs 10, 30 or 100 times as much as a false refusal.

# %%
# figure: refusals
# alt: False refusals against misses for three filters. Each curve falls from the upper left to the lower right, and a larger separation is nearer to the origin. On each curve the three dots move to the left and up as harm becomes more
#   expensive: fewer misses, more false refusals.
missed = torch.linspace(0.005, 0.995, 200, dtype=torch.float64)
fig, ax = plt.subplots(figsize=(4.6, 3.2), layout="constrained")
for separation, colour in ((1.0, "red"), (2.0, "orange"), (3.0, "blue")):
    d = torch.full_like(missed, separation)
    ax.plot(missed, release.false_refusals(missed, d), color=PALETTE[colour], label=f"separation {separation:.0f}")
    costs = torch.tensor([10.0, 30.0, 100.0], dtype=torch.float64)
    bars = release.filter_threshold(torch.full_like(costs, separation), torch.full_like(costs, 0.02), costs)
    ax.plot(torch.special.ndtr(bars - separation), torch.special.ndtr(-bars), "o", ms=4, color=PALETTE[colour])
ax.set(xlabel="harmful requests that pass", ylabel="harmless requests that are blocked", title="one filter, one curve")
ax.legend(frameon=False, fontsize=8)
plt.show()

# %% [markdown]
# ## A failure on purpose: a test that is repeated every day
#
# Two versions are equally good, with 5 % complaints about each. Once a day, after fifty more pairs of users, we run a test at the 5 % level on all pairs so far, and stop if it is red. The canary of the chapter may look after every pair.

# %%
daily = predict("How often does the daily test turn red within forty days?", "about 5 %", "about 10 %", "20 % or more")

# %%
rng = torch.Generator().manual_seed(SEED)
days, pairs, canaries = 40, 50, 2000
complaints = torch.rand(2, canaries, days * pairs, generator=rng) < 0.05
moves = complaints[0].int() - complaints[1].int()
count, counted = moves.cumsum(1)[:, pairs - 1 :: pairs], moves.abs().cumsum(1)[:, pairs - 1 :: pairs]
red_days = count.abs() > 1.96 * counted.clamp(min=1).sqrt()
ever = float(red_days.any(1).double().mean())
print(f"red on the last day {float(red_days[:, -1].double().mean()):.2f}, on some day {ever:.2f}")
daily.reveal("20 % or more" if ever >= 0.2 else "about 10 %" if ever > 0.075 else "about 5 %")

# %%
# NBVAL_CHECK_OUTPUT
one = torch.tensor(0.05, dtype=torch.float64)
for new in (0.05, 0.06, 0.1):
    p = torch.tensor(new, dtype=torch.float64)
    chance, users = (f(p, one, rollback=20, ship=20) for f in (release.rollback_probability, release.canary_pairs))
    print(
        f"{new:.0%} complain: the canary rolls back with probability {float(chance):.3f}, after {float(users):,.0f} pairs"
    )

# %%
assert ever > 0.15

# %%
predict.tally()

# %% [markdown]
# ## Now you
#
# * Make β ten times larger, or ten times smaller. What does the chapter's formula promise, and what do thirty steps do?
# * Write the six rules as a file and let `minirlhf evaluate spec` check them on one of your models.
# * With which bounds does the canary roll back an equal version in only one case of ten? How many users does this need?
