# %% [markdown]
# # 15 · Who judges, and which biases the judge has
#
# A model can label a hundred pairs while a person compares one. **Which biases does such a judge have, how can they be removed, and what happens to a policy that learns from its labels?**
#
# There are two environments. In the first, a small language model compares two completions of the assistant task and answers with one of two letters. The second has only 192 completions, each described by its numbers of facts, polite words, words of praise and filler words. There every result is an exact sum over all completions.

# %%
import matplotlib.pyplot as plt
import numpy as np

from minirlhf.core.progress import progress
from minirlhf.stages import zoo
from minirlhf.stages.pipeline import Trained
from minirlhf_course import evidence
from minirlhf_course.chapters.ch15_ai_feedback import counted, judges
from minirlhf_course.chapters.ch15_ai_feedback.revising import FLAWS
from minirlhf_course.classroom.predictions import Predictions
from minirlhf_course.report.plotting import PALETTE

plt.rcParams.update({"font.size": 9, "axes.spines.top": False, "axes.spines.right": False})

exact, told = evidence.StudyResults("ch15"), evidence.StudyResults("ch15_judges")  # several seeds of what runs below
revised, itself = evidence.StudyResults("ch15_revising"), evidence.StudyResults("ch15_itself")
predict = Predictions("15")
writer = Trained(*zoo.load("assistant-sft"))
judge = Trained(*zoo.load("assistant-judge"))


def mean(values):
    """Return the mean of a list."""
    return sum(values) / len(values)


# %% [markdown]
# ## Both presentation orders
#
# The judge was trained on 9,600 labelled pairs, each in both orders. We show it pairs of completions to new questions, in both orders, and look at the log-odds of its two letters.

# %%
swap = predict("On how many of 100 pairs will both orders name the same completion?", 50, 70, 90, 100)

# %%
[pairs] = [judges.two_replies(writer, judges.WORLD.prompts("test") * 3, 100) for _ in progress([1], "completions")]
found = judges.leans(judge, pairs)
for (prompt, first, second), given, exchanged in list(
    zip(pairs, found.given.tolist(), found.exchanged.tolist(), strict=True)
)[:3]:
    print(
        f"{prompt}\n   {first}\n   {second}\n   log-odds {given:+.2f} for the first; exchanged {exchanged:+.2f} for the second\n"
    )
seen = judges.likings(found, writer)
print(f"both orders name the same completion: {seen['agree']:.2f} of {len(pairs)} pairs")
print(f"right: {seen['one_order']:.2f} in one order, {seen['both']:.2f} by the mean log-odds of both")
print(f"position bias: {seen['place']:+.2f} nats on average, standard deviation {seen['place_spread']:.2f} over pairs")
swap.reveal(100 * seen["agree"])

# %%
assert 0.5 < seen["agree"] < 0.95 and seen["both"] > 0.58
assert told.holds("both_3", above=0.58)

# %% [markdown]
# It is right on about two of three pairs; many pairs are nearly equal. Now look at five other judges in the middle of their training.

# %%
early = predict(
    "After one third of their training both orders agree on one quarter of the pairs, on average. Take the mean log-odds of both orders: how often is it right?",
    "half of the time, which is chance",
    "about halfway between chance and the trained judge",
    "nearly as often as the trained judge",
)

# %%
# figure: ages
# alt: Fractions after one third, two thirds and all of the judge's training, a line for each of five seeds. Pairs on which both orders agree rise from between none and a half to about seven in ten. A verdict in one order is right in one half to two
#   thirds of the cases at first, in two thirds later. The mean log-odds of both orders is right in about two of three cases from the beginning.
fig, axes = plt.subplots(1, 3, figsize=(9, 3.1), layout="constrained", sharey=True)
titles = {"agree": "both orders agree", "one_order": "right, one order", "both": "right, mean of both orders"}
for ax, (key, title), colour in zip(axes, titles.items(), ("orange", "red", "blue"), strict=True):
    for row in zip(*(told.values(f"{key}_{look}") for look in (1, 2, 3)), strict=True):
        ax.plot((150, 300, 450), row, "o-", ms=4, lw=1.2, alpha=0.6, color=PALETTE[colour])
    ax.axhline(0.5, ls=":", lw=1, color=PALETTE["black"])
    ax.set(title=title, xlabel="steps of training", ylim=(0, 1), xticks=(150, 300, 450))
axes[0].set_ylabel("fraction of pairs")
plt.show()
start, end = mean(told.values("both_1")), mean(told.values("both_3"))
part = (start - 0.5) / (end - 0.5)
early.reveal(
    "half of the time, which is chance"
    if part < 0.25
    else "about halfway between chance and the trained judge"
    if part < 0.75
    else "nearly as often as the trained judge"
)

# %% [markdown]
# In some of the seeds the verdicts show only a position bias at first, and it hides what the judge already knows. A constant bias cancels in the mean of both orders.
#
# ## Asking again
#
# In the enumerable environment this is exact. A judge sees the gold reward and has a position bias. We compare a single verdict, the majority in one order in the limit of many verdicts, and both orders.

# %%
again = predict(
    "The judge has a position bias of 2 nats. How does the majority vote in one order, in the limit of many verdicts, change the accuracy of a single verdict?",
    "it raises it",
    "it lowers it",
    "it does not change it",
)

# %%
# NBVAL_CHECK_OUTPUT
print("bias     one verdict   majority   both orders, 1 sample   both orders, majority")
table = {place: counted.judge_accuracies(place) for place in (0, 1, 2, 4)}
for place, row in table.items():
    print(f"{place:6} {row['one']:13.3f} {row['majority']:10.3f} {row['both']:23.3f} {row['both_majority']:23.3f}")
gain = table[2]["majority"] - table[2]["one"]
again.reveal("it raises it" if gain > 0.005 else "it lowers it" if gain < -0.005 else "it does not change it")

# %%
# figure: again
# alt: Fraction of pairs judged correctly against the position bias from 0 to 5 nats. Both orders are a horizontal line at .81, and at 1 in the limit of many verdicts. The majority in one order falls from 1 and crosses the falling
#   line of a single verdict between 1 and 2 nats; both end near one half.
fig, ax = plt.subplots(figsize=(6, 3.4), layout="constrained")
places = np.linspace(0, 5, 41)
rows = [counted.judge_accuracies(float(place)) for place in places]
looks = {
    "both_majority": ("both orders, majority", "blue", "--"),
    "both": ("both orders, one sample", "blue", "-"),
    "majority": ("one order, majority", "red", "--"),
    "one": ("one verdict", "red", "-"),
}
for key, (label, colour, style) in looks.items():
    ax.plot(places, [row[key] for row in rows], style, lw=1.8, color=PALETTE[colour], label=label)
ax.set(
    xlabel="position bias (nats)",
    ylabel="right verdicts",
    ylim=(0.5, 1.02),
    title="more samples do not remove a bias",
)
ax.legend(frameon=False)
plt.show()

# %%
assert table[2]["majority"] < table[2]["one"] and table[1]["majority"] > table[1]["one"]

# %% [markdown]
# ## One budget, three ways
#
# Human labels cost ten units and are noisy; the AI's cost one, and the AI has a length bias of .3 gold reward per word. A reward is fitted to the labels, and the reference policy is tilted until it is one nat away.

# %%
spend = predict(
    "With a budget of 32,000 units: which labels give the best policy?",
    "human labels",
    "the AI's",
    "half of each, in one pool",
)

# %%
runs = counted.budgets(100, 0.3)
ways = {
    "human": "human labels",
    "ai": "the AI",
    "pool": "half of each, pooled",
    "corrected": "half of each, AI corrected",
}
print(f"{'gold reward at one nat, by budget':38}" + "".join(f"{size:8,}" for size in counted.BUDGETS))
for way, label in ways.items():
    print(f"{label:38}" + "".join(f"{runs[f'{way}_{size}']:8.2f}" for size in counted.BUDGETS))
last = {
    "human labels": runs["human_32000"],
    "the AI's": runs["ai_32000"],
    "half of each, in one pool": runs["pool_32000"],
}
spend.reveal(max(last, key=last.get))

# %%
# figure: budgets
# alt: Gold reward at one nat against the budget on a logarithmic axis, four lines with bands over ten seeds. The AI's labels and half of each in a pool begin highest, near one and a half, and
#   stay nearly flat, the pool a little higher from 2,000 on. Human labels begin far lower and cross both before 2,000. The AI corrected by human labels is as high as human labels alone at 2,000 and beyond, with a wide band at 500.
fig, ax = plt.subplots(figsize=(6.4, 3.6), layout="constrained")
looks = {"human": ("blue", "o-"), "ai": ("red", "s-"), "pool": ("orange", "D--"), "corrected": ("green", "^-.")}
for way, (colour, style) in looks.items():
    columns = [exact.values(f"bias_0.3_{way}_{size}") for size in counted.BUDGETS]
    ax.fill_between(
        counted.BUDGETS, [min(c) for c in columns], [max(c) for c in columns], color=PALETTE[colour], alpha=0.12, lw=0
    )
    ax.plot(counted.BUDGETS, [mean(c) for c in columns], style, ms=4, color=PALETTE[colour], label=ways[way])
ax.set(
    xscale="log",
    xlabel="budget (labels of the AI)",
    ylabel="gold reward at one nat",
    title="noise averages out, bias does not",
    xticks=counted.BUDGETS,
)
ax.set_xticks([], minor=True)
ax.set_xticklabels([f"{size:,}" for size in counted.BUDGETS])
ax.legend(frameon=False, fontsize=8)
plt.show()

# %%
assert runs["human_32000"] > runs["ai_32000"] and exact.all_exceed("bias_0.3_human_32000", "bias_0.3_ai_32000")

# %% [markdown]
# And with language models? A budget of 2,000 units buys 200 human labels, 2,000 of the judge above (each seed has its own), or half of the budget for each. Then comes DPO on the labels. The figure shows the gold reward where the policy is one nat from the initial model.

# %%
# figure: arms
# alt: Gold reward of the policy at one nat for five ways to spend the labels, five seeds as dots joined by thin lines, and the initial model as a dashed line below them. All five ways lie close together, well above the initial model; ten times the budget for human labels lies highest.
fig, ax = plt.subplots(figsize=(6.4, 3.4), layout="constrained")
arms = {
    "people": "200\nhuman",
    "ai": "2,000 by\nthe judge",
    "ai_agreed": "of these, where\nboth orders agree",
    "mixed": "100 human,\n1,000 by the judge",
    "people_all": "2,000 human\n(ten times the budget)",
}
for row in zip(*(told.values(f"{arm}_gold_1") for arm in arms), strict=True):
    ax.plot(range(len(arms)), row, "-", lw=0.7, color="0.7")
for at, (arm, colour) in enumerate(zip(arms, ("blue", "red", "sky", "orange", "green"), strict=True)):
    ax.plot([at] * len(told.values(f"{arm}_gold_1")), told.values(f"{arm}_gold_1"), "o", color=PALETTE[colour])
ax.axhline(mean(told.values("start_gold")), ls="--", lw=1, color=PALETTE["black"])
ax.annotate("initial model", (0, mean(told.values("start_gold"))), (0, 4), textcoords="offset points")
ax.set(xticks=range(len(arms)), ylabel="gold reward at one nat", title="one budget, DPO in the assistant environment")
ax.set_xticklabels(arms.values(), fontsize=8)
plt.show()

# %% [markdown]
# ## One principle too many
#
# There are six principles. Their scores are 1.5 nats a fact; 2 for a polite word and 2 for a word of praise; −1.5 for each further one of these; −.8 for each word of length (a fact has two); −1.5 for each filler word. The label is their mean preference, in the limit of infinitely many pairs. Then someone writes one of them a second time, in other words.

# %%
twice = predict("Which of the six lowers the gold reward most if it is listed twice?", *counted.PRINCIPLES)

# %%
# NBVAL_CHECK_OUTPUT
every = tuple(counted.PRINCIPLES)
six = counted.constitution(every)
print(f"gold reward with the six: {six:.2f}\n{'':16}left out   twice")
left_out, doubled = {}, {}
for name in every:
    left_out[name] = counted.constitution(tuple(other for other in every if other != name))
    doubled[name] = counted.constitution((*every, name))
    print(f"{name:16}{left_out[name]:8.2f}{doubled[name]:8.2f}")
twice.reveal(min(doubled, key=doubled.get))

# %%
assert doubled["be brief"] < six < left_out["be brief"] and min(doubled.values()) == doubled["be brief"]

# %% [markdown]
# "Be brief" is too strong already with its single vote: it costs 1.6 nats per fact, and a fact gains 1.5. Both the votes of a constitution and the strengths of its principles matter.

# %% [markdown]
# ## Critique and revise
#
# A model of the assistant environment writes a completion of seven words, samples a principle, criticises the completion by it and revises it, for ten rounds. Four flaws are possible: no polite word, no praise, a false or repeated fact, a hum at the end.

# %%
flaw = predict("Which flaw is most frequent after ten rounds?", *(f"not {name}" for name in FLAWS))

# %%
# figure: revising
# alt: Left, the fraction of completions with each of four flaws over ten rounds, means of five seeds as dots, and lines of the law. Three fall from one half to a few hundredths; errors in the facts fall only from about .6 to .5. Right, the gold reward by round rises and levels off.
fig, axes = plt.subplots(1, 2, figsize=(9, 3.3), layout="constrained")
rounds = range(11)
for name, colour, style in zip(FLAWS, ("blue", "orange", "red", "green"), ("o", "s", "D", "^"), strict=True):
    axes[0].plot(
        rounds,
        [mean(revised.values(f"{name}_{n}")) for n in rounds],
        style,
        ms=4,
        color=PALETTE[colour],
        label=f"not {name}",
    )
    axes[0].plot(rounds, [mean(revised.values(f"law_{name}_{n}")) for n in rounds], "-", lw=1, color=PALETTE[colour])
axes[0].set(xlabel="round", ylabel="fraction of completions", ylim=(0, 0.8), title="flaws that are left, and the law")
axes[0].legend(frameon=False, fontsize=8, ncols=2)
for row in zip(*(revised.values(f"gold_{n}") for n in rounds), strict=True):
    axes[1].plot(rounds, row, lw=1, alpha=0.6, color=PALETTE["blue"])
axes[1].set(xlabel="round", ylabel="gold reward", title="gold reward of the revisions, five seeds")
plt.show()
flaw.reveal("not " + max(FLAWS, key=lambda name: mean(revised.values(f"{name}_10"))))

# %% [markdown]
# ## Self-rewarding
#
# Back to the enumerable environment. We take 100 human labels. Then in each of twelve rounds the judge labels 400 pairs of the current policy, learns from all labels so far, and the policy is tilted by its reward.

# %%
alone = predict(
    "As a control: freeze the initial judge, ask for no more labels, tilt the same number of times. What is the gold reward after twelve rounds?",
    "lower by more than .1",
    "within .1 of the self-rewarding run",
    "higher by more than .1",
)

# %%
own, kept = counted.self_rewarding(100, 12), counted.self_rewarding(100, 12, learns=False)
print("round                " + "".join(f"{n:7}" for n in range(0, 13, 2)))
for run, label in ((own, "self-rewarding"), (kept, "frozen judge")):
    print(f"{label + ', gold':22}" + "".join(f"{run[f'gold_{n}']:7.2f}" for n in range(0, 13, 2)))
print(f"{'pairs ordered correctly':22}" + "".join(f"{own[f'accuracy_{n}']:7.2f}" for n in range(0, 13, 2)))
gap = kept["gold_12"] - own["gold_12"]
alone.reveal(
    "lower by more than .1"
    if gap < -0.1
    else "higher by more than .1"
    if gap > 0.1
    else "within .1 of the self-rewarding run"
)

# %%
# figure: self
# alt: Left, the gold reward over twelve rounds, ten seeds each: the self-rewarding model and the one with a frozen judge lie nearly on one another, rise for some seven rounds and level off. Right, the fraction of its policy's pairs that the judge
#   orders correctly falls from about .8 to below one half in all but one seed; with human labels in each round, in all but two.
fig, axes = plt.subplots(1, 2, figsize=(9, 3.3), layout="constrained")
steps = range(13)
looks = {"self": ("self-rewarding", "red", "-"), "kept": ("frozen judge", "blue", "--")}
for key, (label, colour, style) in looks.items():
    for i, row in enumerate(zip(*(exact.values(f"{key}_gold_{n}") for n in steps), strict=True)):
        axes[0].plot(steps, row, style, lw=1, alpha=0.6, color=PALETTE[colour], label=label if i == 0 else None)
looks = {"self": ("self-rewarding", "red", "-"), "people": ("human labels each round", "green", "-.")}
for key, (label, colour, style) in looks.items():
    for i, row in enumerate(zip(*(exact.values(f"{key}_accuracy_{n}") for n in steps), strict=True)):
        axes[1].plot(steps, row, style, lw=1, alpha=0.6, color=PALETTE[colour], label=label if i == 0 else None)
axes[0].set(xlabel="round", ylabel="gold reward", title="its own labels teach it nothing")
axes[1].set(xlabel="round", ylabel="fraction of pairs", title="pairs that the judge orders correctly")
axes[1].axhline(0.5, ls=":", lw=1, color=PALETTE["black"])
axes[1].annotate("chance", (0, 0.5), (0, 3), textcoords="offset points")
for ax in axes:
    ax.legend(frameon=False, fontsize=8)
plt.show()

# %% [markdown]
# The judge samples its labels from its own preferences. The judge alone determines them, so a fit to them returns the same judge. The rise comes from the first hundred labels: the policy moves further and further in the direction that they give.

# %%
assert abs(gap) < 0.3 and not exact.all_exceed("self_gold_12", "kept_gold_12")
assert exact.all_exceed("self_accuracy_0", "self_accuracy_12") and own["accuracy_12"] < own["accuracy_0"]

# %% [markdown]
# And a language model? A small one, trained to write and to judge with the same weights, labels 640 pairs of its own in each of six rounds and learns from them by DPO. The controls are a frozen initial judge and low-noise human labels. The numbers are those of the study with five seeds.

# %%
helps = predict(
    "With its own current weights as the judge, after which round is the gold reward highest, on average over the seeds?",
    "before the first",
    "after one to three",
    "after four or five",
    "after the sixth",
)

# %%
ways = {"itself": ("current judge", "red", "-"), "kept": ("frozen judge", "blue", "--"), "people": ("human labels", "green", "-.")}  # fmt: skip
golds = {way: [mean(itself.values(f"{way}_gold_{n}")) for n in range(7)] for way in ways}
print("gold reward by round  " + "".join(f"{n:7}" for n in range(7)))
for way, (label, *_) in ways.items():
    print(f"{label:22}" + "".join(f"{gold:7.2f}" for gold in golds[way]))
top = golds["itself"].index(max(golds["itself"]))
options = ["before the first", *["after one to three"] * 3, *["after four or five"] * 2, "after the sixth"]
helps.reveal(options[top])

# %%
# figure: itself
# alt: Left, the gold reward against the KL from the initial weights over six rounds, five seeds each. With the current or with the frozen judge, the runs rise for two or three nats and then fall, most of them below their initial value.
#   With human labels the runs are higher at the same KL, go less far and still rise at the end. Right, the fraction of the policy's own pairs that are ordered correctly, by round: it falls to near one half for both judges.
fig, axes = plt.subplots(1, 2, figsize=(9, 3.4), layout="constrained")
for way, (label, colour, style) in ways.items():
    columns = {key: [itself.values(f"{way}_{key}_{n}") for n in range(7)] for key in ("gold", "kl", "right")}
    for i, (gold, kl, right) in enumerate(zip(*(zip(*columns[key], strict=True) for key in columns), strict=True)):
        looks = {"lw": 1, "alpha": 0.7, "color": PALETTE[colour], "label": label if i == 0 else None}
        axes[0].plot(kl, gold, f"o{style}", ms=3, **looks)
        if way != "people":
            axes[1].plot(range(7), right, f"o{style}", ms=3, **looks)
axes[0].set(xlabel="KL from the initial weights (nats)", ylabel="gold reward", title="gold reward, round by round")
axes[1].set(xlabel="round", ylabel="fraction of its policy's pairs", title="pairs ordered correctly")
axes[1].axhline(0.5, ls=":", lw=1, color=PALETTE["black"])
axes[1].annotate("chance", (0, 0.5), (0, 3), textcoords="offset points")
for ax in axes:
    ax.legend(frameon=False, fontsize=8)
plt.show()

# %%
assert itself.all_exceed("people_best", "itself_best") and itself.all_exceed("itself_best", "itself_gold_0")
assert all(itself.difference(f"{way}_right_0", f"{way}_right_6").significant for way in ("itself", "kept"))

# %% [markdown]
# A few rounds help, with either judge, and then the gold reward falls. At their best the two judges do not differ significantly. The further the policy goes, the more errors its judge makes: of the first round's pairs it orders seven in ten correctly, of the last ones hardly more than half. (The policy need not seek these errors. In the run with human labels the judge gives no label, and on that run's pairs it also makes more errors as the KL grows, though fewer than on its own policy's pairs at the same KL.) With human labels the gold reward is still rising at the end.

# %%
predict.tally()

# %% [markdown]
# ## Now you
#
# * Flip no human label: set `counted.FLIP = 0` and call `counted.budgets(100, 0.3)` again. Where does the crossover move, and does the formula of the text predict it?
# * In `counted.self_rewarding`, let people label one tenth of each round (`fresh=40`). What fraction of the gain from 400 labels do 40 give?
# * `minirlhf evaluate judge` compares two files of completions with a judge of your choice. Write two files that differ only in length. What does it report?
#
# The graded exercises of this chapter: `minirlhf check 15`.
