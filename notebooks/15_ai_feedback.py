# %% [markdown]
# # 15 · Who judges, and what the judge likes
#
# A model can label a thousand pairs while a person reads one. **What does such a judge like besides good replies, what can be done about it, and what becomes of a policy that learns from it?**
#
# Two worlds. In the first a small language model judges replies of the assistant world by two letters. In the second there are 192 replies, counted by their facts, polite words, praise and filler, and every number is a sum over them.

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
    """Of a list."""
    return sum(values) / len(values)


# %% [markdown]
# ## Both orders
#
# The judge has been taught on 9,600 labelled pairs, each in both orders. We show it pairs of replies to questions that it has not seen, in both orders, and look at the log-odds of its two letters.

# %%
swap = predict("On how many of 100 pairs will both orders name the same reply?", 50, 70, 90, 100)

# %%
[pairs] = [judges.two_replies(writer, judges.WORLD.prompts("test") * 3, 100) for _ in progress([1], "replies")]
found = judges.leans(judge, pairs)
for (prompt, first, second), given, exchanged in list(
    zip(pairs, found.given.tolist(), found.exchanged.tolist(), strict=True)
)[:3]:
    print(
        f"{prompt}\n   {first}\n   {second}\n   leans {given:+.2f} to the first; exchanged {exchanged:+.2f} to the second\n"
    )
seen = judges.likings(found, writer)
print(f"both orders name the same reply: {seen['agree']:.2f} of {len(pairs)} pairs")
print(f"right: {seen['one_order']:.2f} in one order, {seen['both']:.2f} by the mean log-odds of both")
print(f"liking for the first place: {seen['place']:+.2f} nats on average, {seen['place_spread']:.2f} between pairs")
swap.reveal(100 * seen["agree"])

# %%
assert 0.5 < seen["agree"] < 0.95 and seen["both"] > 0.58
assert told.holds("both_3", above=0.58)

# %% [markdown]
# It is right on about two pairs of three; many pairs are nearly equal. Now five other judges in the middle of their school.

# %%
early = predict(
    "After a third of their lessons both orders agree on a quarter of the pairs, on average. Take the mean log-odds of both orders: how often is it right?",
    "half of the time, like a coin",
    "about halfway between a coin and the finished judge",
    "nearly as often as the finished judge",
)

# %%
# figure: ages
# alt: Shares after a third, two thirds and all of the judge's lessons, a line for each of five seeds. Pairs on which both orders agree rise from between none and a half to about seven in ten. A verdict in one order is right in a half to two
#   thirds of the cases at first, in two thirds later. The mean log-odds of both orders is right in about two of three cases from the beginning.
fig, axes = plt.subplots(1, 3, figsize=(9, 3.1), layout="constrained", sharey=True)
titles = {"agree": "both orders agree", "one_order": "right, one order", "both": "right, mean of both orders"}
for ax, (key, title), colour in zip(axes, titles.items(), ("orange", "red", "blue"), strict=True):
    for row in zip(*(told.values(f"{key}_{look}") for look in (1, 2, 3)), strict=True):
        ax.plot((150, 300, 450), row, "o-", ms=4, lw=1.2, alpha=0.6, color=PALETTE[colour])
    ax.axhline(0.5, ls=":", lw=1, color=PALETTE["black"])
    ax.set(title=title, xlabel="steps of training", ylim=(0, 1), xticks=(150, 300, 450))
axes[0].set_ylabel("share of pairs")
plt.show()
start, end = mean(told.values("both_1")), mean(told.values("both_3"))
part = (start - 0.5) / (end - 0.5)
early.reveal(
    "half of the time, like a coin"
    if part < 0.25
    else "about halfway between a coin and the finished judge"
    if part < 0.75
    else "nearly as often as the finished judge"
)

# %% [markdown]
# In some of the seeds a liking for a place is all that the verdicts show at first, and it covers up what the judge already knows. Where the liking is a constant, it cancels.
#
# ## Asking again
#
# In the counted world, exactly: a judge that sees gold and likes the first place. A single verdict; the majority of endlessly many in one order; both orders.

# %%
again = predict(
    "It likes the first place by 2 nats. What does the majority of endless draws in one order do to a single verdict's accuracy?",
    "it raises it",
    "it lowers it",
    "nothing",
)

# %%
# NBVAL_CHECK_OUTPUT
print("liking   one verdict   majority   both orders, one draw   both orders, majority")
table = {place: counted.judge_accuracies(place) for place in (0, 1, 2, 4)}
for place, row in table.items():
    print(f"{place:6} {row['one']:13.3f} {row['majority']:10.3f} {row['both']:23.3f} {row['both_majority']:23.3f}")
gain = table[2]["majority"] - table[2]["one"]
again.reveal("it raises it" if gain > 0.005 else "it lowers it" if gain < -0.005 else "nothing")

# %%
# figure: again
# alt: Share of pairs judged rightly against the liking for the first place from 0 to 5 nats. Both orders are a horizontal line at .81, with endless draws at 1. The majority in one order falls from 1 and crosses the falling
#   line of a single verdict between 1 and 2 nats; both end near one half.
fig, ax = plt.subplots(figsize=(6, 3.4), layout="constrained")
places = np.linspace(0, 5, 41)
rows = [counted.judge_accuracies(float(place)) for place in places]
looks = {
    "both_majority": ("both orders, majority", "blue", "--"),
    "both": ("both orders, one draw", "blue", "-"),
    "majority": ("one order, majority", "red", "--"),
    "one": ("one verdict", "red", "-"),
}
for key, (label, colour, style) in looks.items():
    ax.plot(places, [row[key] for row in rows], style, lw=1.8, color=PALETTE[colour], label=label)
ax.set(
    xlabel="liking for the first place (nats)",
    ylabel="right verdicts",
    ylim=(0.5, 1.02),
    title="more of the same is not more of the truth",
)
ax.legend(frameon=False)
plt.show()

# %%
assert table[2]["majority"] < table[2]["one"] and table[1]["majority"] > table[1]["one"]

# %% [markdown]
# ## One budget, three ways
#
# People's labels cost ten and are noisy; the AI's cost one, and it likes every word of length by .3 of gold. A reward is fitted to the labels, and the reference is tilted until it is one nat away.

# %%
spend = predict(
    "With 32,000 units to spend: whose labels make the best policy?",
    "people's",
    "the AI's",
    "half of each, in one pool",
)

# %%
runs = counted.budgets(100, 0.3)
ways = {
    "human": "people",
    "ai": "the AI",
    "pool": "half of each, pooled",
    "corrected": "half of each, AI corrected by people",
}
print(f"{'gold at one nat, by budget':38}" + "".join(f"{size:8,}" for size in counted.BUDGETS))
for way, label in ways.items():
    print(f"{label:38}" + "".join(f"{runs[f'{way}_{size}']:8.2f}" for size in counted.BUDGETS))
last = {"people's": runs["human_32000"], "the AI's": runs["ai_32000"], "half of each, in one pool": runs["pool_32000"]}
spend.reveal(max(last, key=last.get))

# %%
# figure: budgets
# alt: Gold at one nat against the budget on a logarithmic axis, four lines with bands over ten seeds. The AI's labels and half of each in a pool begin highest, near one and a half, and
#   stay nearly flat, the pool a little higher from 2,000 on. People's begin far lower and cross both before 2,000. The AI corrected by people is as high as people at 2,000 and beyond, with a wide band at 500.
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
    ylabel="gold of the policy at one nat",
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
# And with language models? Two thousand units: 200 labels of people, 2,000 of the judge above (each seed has its own), or half of the money for each; DPO on them. Gold where the policy is one nat from its start.

# %%
# figure: arms
# alt: Gold of the policy at one nat for five ways to spend the labels, five seeds as dots joined by thin lines, and the start as a dashed line below them. All five ways lie close together, well above the start; ten times the money for people lies highest.
fig, ax = plt.subplots(figsize=(6.4, 3.4), layout="constrained")
arms = {
    "people": "200 by\npeople",
    "ai": "2,000 by\nthe judge",
    "ai_agreed": "of these, where\nboth orders agree",
    "mixed": "100 by people,\n1,000 by the judge",
    "people_all": "2,000 by people\n(ten times the money)",
}
for row in zip(*(told.values(f"{arm}_gold_1") for arm in arms), strict=True):
    ax.plot(range(len(arms)), row, "-", lw=0.7, color="0.7")
for at, (arm, colour) in enumerate(zip(arms, ("blue", "red", "sky", "orange", "green"), strict=True)):
    ax.plot([at] * len(told.values(f"{arm}_gold_1")), told.values(f"{arm}_gold_1"), "o", color=PALETTE[colour])
ax.axhline(mean(told.values("start_gold")), ls="--", lw=1, color=PALETTE["black"])
ax.annotate("the start", (0, mean(told.values("start_gold"))), (0, 4), textcoords="offset points")
ax.set(xticks=range(len(arms)), ylabel="gold at one nat", title="one budget, DPO in the assistant world")
ax.set_xticklabels(arms.values(), fontsize=8)
plt.show()

# %% [markdown]
# ## One principle too many
#
# Six principles, and what each finds better: 1.5 nats a fact; 2 for a polite word and 2 for a word of praise; −1.5 for each further one of these; −.8 for each word of length (a fact has two); −1.5 for each filler word. The label is their mean preference; labels are endless and exact. Then somebody writes one of them a second time, in other words.

# %%
twice = predict("Which of the six does most harm to gold if it stands there twice?", *counted.PRINCIPLES)

# %%
# NBVAL_CHECK_OUTPUT
every = tuple(counted.PRINCIPLES)
six = counted.constitution(every)
print(f"gold with the six: {six:.2f}\n{'':16}left out   twice")
left_out, doubled = {}, {}
for name in every:
    left_out[name] = counted.constitution(tuple(other for other in every if other != name))
    doubled[name] = counted.constitution((*every, name))
    print(f"{name:16}{left_out[name]:8.2f}{doubled[name]:8.2f}")
twice.reveal(min(doubled, key=doubled.get))

# %%
assert doubled["be brief"] < six < left_out["be brief"] and min(doubled.values()) == doubled["be brief"]

# %% [markdown]
# "Be brief" is too strong with its single vote: a fact costs 1.6 nats by it and earns 1.5. The votes of a constitution count, and so do the strengths of what it says.

# %% [markdown]
# ## Critique and revise
#
# A model of the assistant world writes a reply of seven words, draws a principle, criticises the reply by it and revises it, ten rounds long. Four flaws are possible: no polite word, no praise, a false or repeated fact, a hum at the end.

# %%
flaw = predict("Which flaw is still there after ten rounds?", *(f"not {name}" for name in FLAWS))

# %%
# figure: revising
# alt: Left, the share of replies with each of four flaws over ten rounds, means of five seeds as dots, and lines of the law. Three fall from a half to a few hundredths; the facts hardly change. Right, gold by round rises and levels off.
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
axes[0].set(xlabel="round", ylabel="share of replies", ylim=(0, 0.8), title="flaws that are left, and the law")
axes[0].legend(frameon=False, fontsize=8, ncols=2)
for row in zip(*(revised.values(f"gold_{n}") for n in rounds), strict=True):
    axes[1].plot(rounds, row, lw=1, alpha=0.6, color=PALETTE["blue"])
axes[1].set(xlabel="round", ylabel="gold", title="gold of the revisions, five seeds")
plt.show()
flaw.reveal("not " + max(FLAWS, key=lambda name: mean(revised.values(f"{name}_10"))))

# %% [markdown]
# ## A model that rewards itself
#
# Back to the counted world: 100 labels by people, then in each of twelve rounds the judge labels 400 pairs of the newest policy, learns from all labels so far, and the policy is tilted by its reward.

# %%
alone = predict(
    "Beside it: keep the first judge as it is, ask for no more labels, tilt as often. Where is gold after twelve rounds?",
    "lower by more than .1",
    "within .1 of the self-rewarding run",
    "higher by more than .1",
)

# %%
own, kept = counted.self_rewarding(100, 12), counted.self_rewarding(100, 12, learns=False)
print("round                " + "".join(f"{n:7}" for n in range(0, 13, 2)))
for run, label in ((own, "rewards itself"), (kept, "first judge kept")):
    print(f"{label + ', gold':22}" + "".join(f"{run[f'gold_{n}']:7.2f}" for n in range(0, 13, 2)))
print(f"{'pairs it orders rightly':22}" + "".join(f"{own[f'accuracy_{n}']:7.2f}" for n in range(0, 13, 2)))
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
# alt: Left, gold over twelve rounds, ten seeds each: the model that rewards itself and the one whose first judge is kept lie nearly on one another, rise for some seven rounds and level off. Right, the share of its policy's pairs that the judge
#   orders rightly sinks from about .8 to below one half in all but one seed; with labels of people in each round, in all but two.
fig, axes = plt.subplots(1, 2, figsize=(9, 3.3), layout="constrained")
steps = range(13)
looks = {"self": ("rewards itself", "red", "-"), "kept": ("first judge kept", "blue", "--")}
for key, (label, colour, style) in looks.items():
    for i, row in enumerate(zip(*(exact.values(f"{key}_gold_{n}") for n in steps), strict=True)):
        axes[0].plot(steps, row, style, lw=1, alpha=0.6, color=PALETTE[colour], label=label if i == 0 else None)
looks = {"self": ("rewards itself", "red", "-"), "people": ("people label each round", "green", "-.")}
for key, (label, colour, style) in looks.items():
    for i, row in enumerate(zip(*(exact.values(f"{key}_accuracy_{n}") for n in steps), strict=True)):
        axes[1].plot(steps, row, style, lw=1, alpha=0.6, color=PALETTE[colour], label=label if i == 0 else None)
axes[0].set(xlabel="round", ylabel="gold", title="its own labels teach it nothing")
axes[1].set(xlabel="round", ylabel="share of pairs", title="pairs that the judge orders rightly")
axes[1].axhline(0.5, ls=":", lw=1, color=PALETTE["black"])
axes[1].annotate("a coin", (0, 0.5), (0, 3), textcoords="offset points")
for ax in axes:
    ax.legend(frameon=False, fontsize=8)
plt.show()

# %% [markdown]
# The judge's labels are drawn from its own preferences. Whoever knows the judge could have written them, and a fit to them gives the same judge back. All that rises is the use that is made of the first hundred labels.

# %%
assert abs(gap) < 0.3 and not exact.all_exceed("self_gold_12", "kept_gold_12")
assert exact.all_exceed("self_accuracy_0", "self_accuracy_12") and own["accuracy_12"] < own["accuracy_0"]

# %% [markdown]
# And a language model? A small one, taught to write and to judge by the same weights, labels 640 pairs of its own in each of six rounds, and learns from them by DPO. Beside it: the same with its first weights as the judge, and with careful people. Five seeds, a minute and a half each, from the study.

# %%
helps = predict(
    "Rewarded by its own newest weights, after which round is gold highest, on average over the seeds?",
    "before the first",
    "after one to three",
    "after four or five",
    "after the sixth",
)

# %%
ways = {"itself": ("newest weights", "red", "-"), "kept": ("first weights", "blue", "--"), "people": ("people", "green", "-.")}  # fmt: skip
golds = {way: [mean(itself.values(f"{way}_gold_{n}")) for n in range(7)] for way in ways}
print("gold after round      " + "".join(f"{n:7}" for n in range(7)))
for way, (label, *_) in ways.items():
    print(f"{label:22}" + "".join(f"{gold:7.2f}" for gold in golds[way]))
top = golds["itself"].index(max(golds["itself"]))
options = ["before the first", *["after one to three"] * 3, *["after four or five"] * 2, "after the sixth"]
helps.reveal(options[top])

# %%
# figure: itself
# alt: Left, gold against the distance from the first weights over six rounds, five seeds each. Judged by the newest weights or by the first, the runs rise for two or three nats and then fall, most of them below where
#   they began. With people's labels the runs are higher at the same distance, go less far and still rise at the end. Right, the share of the policy's own pairs that are ordered rightly, by round: it falls to near one half for both judges.
fig, axes = plt.subplots(1, 2, figsize=(9, 3.4), layout="constrained")
for way, (label, colour, style) in ways.items():
    columns = {key: [itself.values(f"{way}_{key}_{n}") for n in range(7)] for key in ("gold", "kl", "right")}
    for i, (gold, kl, right) in enumerate(zip(*(zip(*columns[key], strict=True) for key in columns), strict=True)):
        looks = {"lw": 1, "alpha": 0.7, "color": PALETTE[colour], "label": label if i == 0 else None}
        axes[0].plot(kl, gold, f"o{style}", ms=3, **looks)
        if way != "people":
            axes[1].plot(range(7), right, f"o{style}", ms=3, **looks)
axes[0].set(xlabel="nats from the first weights", ylabel="gold", title="gold, round by round")
axes[1].set(xlabel="round", ylabel="share of its policy's pairs", title="what the judge orders rightly")
axes[1].axhline(0.5, ls=":", lw=1, color=PALETTE["black"])
axes[1].annotate("a coin", (0, 0.5), (0, 3), textcoords="offset points")
for ax in axes:
    ax.legend(frameon=False, fontsize=8)
plt.show()

# %%
assert itself.all_exceed("people_best", "itself_best") and itself.all_exceed("itself_best", "itself_gold_0")
assert all(itself.difference(f"{way}_right_0", f"{way}_right_6").significant for way in ("itself", "kept"))

# %% [markdown]
# A few rounds help, with either judge, and then gold falls; the two cannot be told apart. The further the policy goes, the more its judge errs: of pairs like those of the first round the judge orders seven in ten rightly, of the last ones hardly more than half. (It need not be that the policy seeks its errors: on the pairs of the run with people's labels, of which it gives none, it errs nearly as often at the same distance.) People, who see what is there, are still gaining at the end.

# %%
predict.tally()

# %% [markdown]
# ## Now you
#
# * Let people turn no label round: set `counted.FLIP = 0` and call `counted.budgets(100, 0.3)` again. Where does the crossover move, and does the formula of the text say so?
# * In `counted.self_rewarding`, let people label a tenth of each round (`fresh=40`). How much of what 400 labels buy do 40 buy?
# * `minirlhf evaluate judge` compares two files of answers with a judge of yours. Write two files that differ in length alone. What does it say?
#
# The graded exercises of this chapter: `minirlhf check 15`.
