# %% [markdown]
# # 19 · What is a score worth?
#
# A benchmark gives a number. **How sure is it, who has climbed and who has only been lucky, and is it about the model or about the prompt, the way of scoring and a leak?**
#
# Part of the answers is exact. For the others tiny models are trained here, in some seconds each, in three worlds of which everything is known. One seed each: how much other seeds differ, the chapter says.

# %%
import matplotlib.pyplot as plt
import torch

from minirlhf.core.progress import progress
from minirlhf.equations import evaluation
from minirlhf_course import evidence
from minirlhf_course.chapters.ch19_evaluation import examples_in_prompt as pages
from minirlhf_course.chapters.ch19_evaluation import experiments, facts, leaks
from minirlhf_course.classroom.predictions import Predictions
from minirlhf_course.report.plotting import PALETTE

plt.rcParams.update({"font.size": 9, "axes.spines.top": False, "axes.spines.right": False})

predict = Predictions("19")
SEED = 100


# %% [markdown]
# ## An interval that calls itself 95 %
#
# Thirty items, and a good model: it solves 97 % of such items. One takes the share that it solved, and goes 1.96 standard errors to each side.

# %%
held = predict("How often does that interval hold the true 97 %?", "95 %", "about 80 %", "about 60 %")

# %%
# NBVAL_CHECK_OUTPUT
at = experiments.coverages(30, 0.97)
for name, share in at.items():
    print(f"{name:10} holds the truth with probability {share:.3f}")
held.reveal("about 60 %" if at["wald"] < 0.7 else "about 80 %" if at["wald"] < 0.9 else "95 %")

# %%
# figure: coverage
# alt: Probability that a 95 % interval of thirty items holds the truth, against the truth from one half to .995. Wilson's stays near .95 and has .86 at the right end. Wald's and the bootstrap's saw up and down below it and fall
#   steeply from .9 on, to below .2 at the right end.
shares = torch.linspace(0.5, 0.995, 100).tolist()
found = [experiments.coverages(30, share) for share in shares]
fig, ax = plt.subplots(figsize=(6.5, 3), layout="constrained")
for name, colour in {"wald": "red", "bootstrap": "orange", "wilson": "blue"}.items():
    ax.plot(shares, [one[name] for one in found], color=PALETTE[colour], label=name.capitalize())
ax.axhline(0.95, ls=":", color=PALETTE["black"])
ax.set(
    xlabel="true share of solved items", ylabel="probability that the interval holds it", xlim=(0.5, 1), ylim=(0, 1.02)
)
ax.set_title("intervals that call themselves 95 %, thirty items", fontsize=10, loc="left")
ax.legend(frameon=False, loc="lower left")
plt.show()

# %%
assert at["wald"] < 0.65 < 0.9 < at["wilson"]

# %% [markdown]
# **What to notice.** The usual intervals fail where good models are: near a solved benchmark.
#
# ## Coin flips on a leaderboard
#
# A public test has 1,000 questions with two answers each. Somebody hands in coin flips, again and again, turns round every submission that scores below one half, and lets all of them vote.

# %%
climbed = predict("Public score of the vote of 500 submissions of coin flips?", "about .5", "about .7", "above .9")

# %%
boards = {count: experiments.climbing(SEED, count) for count in (10, 100, 500)}
print("submissions   public   private")
for count, board in boards.items():
    print(f"{count:11} {board['public']:8.3f} {board['private']:9.3f}")
public = boards[500]["public"]
climbed.reveal("above .9" if public > 0.9 else "about .7" if public > 0.6 else "about .5")

# %%
assert 0.65 < boards[500]["public"] < 0.8 and abs(boards[500]["private"] - 0.5) < 0.1

# %% [markdown]
# ## A test that has leaked
#
# An item is an operation and four numbers: the largest of them, or the last digit of their sum. In 300 steps a tiny model learns the first and not the second, so about half of the answers are right. Then one
# hundred test items get into the training data, ten times each. We know that they did. Could somebody see it who has the model and the test, and not the training data?

# %%
exposed = predict(
    "Which change of the test's items exposes the leak: on which do clean and leaked models score alike?",
    "the same numbers in another order",
    "one number changed, so that the answer is another",
    "both",
    "neither",
)

# %%
test = leaks.items(leaks.TEST, "test", SEED)
scores = {}
for leak in progress(("none", "copies"), "training"):
    model, seen = leaks.saw(leak, test, seed=SEED)
    scores[leak] = leaks.standing(model, seen, test, seed=SEED)
print("trained on       the test   shuffled   twins    new   twins answered as the original")
for leak, label in {"none": "other items", "copies": "and the test"}.items():
    row = scores[leak]
    print(
        f"{label:14} {row['test']:10.2f} {row['shuffled']:10.2f} {row['twins']:7.2f} {row['new']:6.2f} {row['memory']:13.2f}"
    )
seeds = evidence.StudyResults("ch19_models")  # the same with ten seeds
gain = {way: seeds.difference(f"leak_copies_{way}", f"leak_none_{way}") for way in ("shuffled", "twins")}
for way, found in gain.items():
    print(f"ten seeds, {way}: the leak adds {found.mean:+.2f} ({found.interval[0]:+.2f} to {found.interval[1]:+.2f})")
exposed.reveal(
    {
        (True, True): "both",
        (True, False): "the same numbers in another order",
        (False, True): "one number changed, so that the answer is another",
        (False, False): "neither",
    }[not gain["shuffled"].significant, not gain["twins"].significant]
)

# %%
# figure: leak
# alt: Scores of two models, a clean and one whose training data held the test, on four sets of a hundred items. On the test and on the same items with the numbers in another order the leaked model is far above the
#   clean one; on twins with another answer and on new items both score alike, near one half.
fig, ax = plt.subplots(figsize=(6.5, 2.9), layout="constrained")
sets = {"test": "the test", "shuffled": "in another order", "twins": "twins, other answers", "new": "new items"}
for shift, (leak, label, colour) in zip(
    (-0.2, 0.2), (("none", "clean", "blue"), ("copies", "leaked, ten copies", "red")), strict=True
):
    values = torch.tensor([scores[leak][name] for name in sets])
    low, high = evaluation.wilson_interval(values * leaks.TEST, torch.full_like(values, leaks.TEST))
    places = [i + shift for i in range(len(sets))]
    ax.bar(places, values, 0.38, color=PALETTE[colour], label=label)
    ax.errorbar(places, values, torch.stack([values - low, high - values]), fmt="none", color=PALETTE["black"], lw=1)
ax.set(xticks=range(len(sets)), xticklabels=list(sets.values()), ylabel="share of right answers", ylim=(0, 1.18))
ax.set_title("a leak is remembered in any order; a twin finds it out", fontsize=10, loc="left")
ax.legend(frameon=False, ncols=2, loc="upper right")
plt.show()

# %%
assert gain["shuffled"].significant and gain["shuffled"].mean > 0.1 and not gain["twins"].significant
assert scores["copies"]["test"] > scores["copies"]["new"]

# %% [markdown]
# **What to notice.** The memory knows the numbers in any order. A twin with another *answer* finds it out, as new items do.
#
# ## Examples in the prompt
#
# A model has read pages: words, each with a rating, "good" and "bad" on one page, "yes" and "no" on another. On a real page ratings come in runs, and here they do. We ask for words, half of them good, after
# six examples, all six of them correct.

# %%
[reader] = [pages.model(seed=SEED) for _ in progress(range(1), "reading pages")]
print("examples   says a label of the page   right")
for count in (0, 1, 6):
    row = pages.by_count(reader, count, seed=SEED)
    print(f"{count:8} {row['labelled']:26.2f} {row['right']:7.2f}")

# %% [markdown]
# Without an example the model does not know how it should answer. With one it does; these words are clear. Now vaguer words, which on its pages had the rating of their kind two times of three.

# %%
last = predict(
    "Three good and three bad examples; the good ones come last. How many of the words, half of them good, does it call good?",
    "about half",
    "about two thirds",
    "above .9",
)

# %%
orders = {order: pages.by_order(reader, order, seed=SEED) for order in progress(pages.ORDERS, "asking")}
print("examples        called good   right   right, calibrated")
for order, row in orders.items():
    print(f"{order:14} {row['says_good']:12.2f} {row['right']:7.2f} {row['calibrated']:12.2f}")
share = orders["good_last"]["says_good"]
last.reveal("above .9" if share > 0.85 else "about two thirds" if share > 0.6 else "about half")

# %%
# figure: exemplars
# alt: For five orders of six correct examples, the share of right answers about vague words as it is and after calibration by a neutral word. As they are, all five lie near one half, a coin's score; calibrated,
#   all five lie near one.
fig, ax = plt.subplots(figsize=(6.5, 2.7), layout="constrained")
labels = {
    "balanced": "in turns",
    "mostly_good": "5 good, 1 bad",
    "mostly_bad": "1 good, 5 bad",
    "good_last": "3 bad, then 3 good",
    "bad_last": "3 good, then 3 bad",
}
for place, order in enumerate(labels):
    row = orders[order]
    ax.plot([row["right"], row["calibrated"]], [place] * 2, color="0.8", zorder=0)
    ax.plot(row["right"], place, "o", color=PALETTE["red"], label="as it is" if place == 0 else None)
    ax.plot(row["calibrated"], place, "s", color=PALETTE["blue"], label="calibrated" if place == 0 else None)
ax.axvline(0.5, ls=":", color=PALETTE["black"])
ax.set(
    yticks=range(len(labels)),
    yticklabels=list(labels.values()),
    xlabel="share of right answers about vague words",
    xlim=(0.4, 1.02),
    ylim=(4.5, -1.2),
)
ax.legend(frameon=False, ncols=2, loc="upper center")
ax.set_title("what six correct examples do, and what a neutral word undoes", fontsize=10, loc="left")
plt.show()

# %%
assert orders["good_last"]["says_good"] > orders["bad_last"]["says_good"] + 0.3
assert min(row["calibrated"] for row in orders.values()) > 0.85

# %% [markdown]
# **What to notice.** The model does tell the words apart. What it says is drowned by what it expects after such examples. A neutral word in the same prompt measures the expectation, and its log-odds are subtracted.
#
# ## What a model knows
#
# Seventy-two persons in twelve cities. The texts state a third of the facts often, a third seldom, a third never. We know what can be known.

# %%
letters = predict(
    "Four cities under the letters (a) to (d), about facts that the model knows. It has never seen such a list. How often is the likeliest letter the right one?",
    "nearly always",
    "about half of the time",
    "like a guess",
)

# %%
world = facts.FactWorld.of(SEED)
[knower] = [facts.model(world) for _ in progress(range(1), "reading")]
row = facts.multiple_choice(knower, world)
print(f"right by the letter: {row['letter']:.2f}; by the likelihood of the answer's text: {row['text']:.2f}")
print(
    f"a false source is repeated: wiki {facts.by_source(knower, world, 'wiki'):.2f}, forum {facts.by_source(knower, world, 'forum'):.2f}"
)
cites = evidence.StudyResults("ch19_facts")
bare, sourced, wiki, forum = (
    sum(found) / len(found)
    for found in (cites.values(f"cited_{key}") for key in ("bare_right", "right", "wrong_wiki", "wrong_forum"))
)
print("a copy that cites, about what its texts never stated, mean of ten seeds:")
print(
    f"  right without a source {bare:.2f}, with one {sourced:.2f}; wrong if it cites the wiki {wiki:.2f}, the forum {forum:.2f}"
)
letters.reveal(
    "like a guess" if row["letter"] < 0.4 else "about half of the time" if row["letter"] < 0.75 else "nearly always"
)

# %% [markdown]
# The same knowledge, two scores. Now the model may learn to say "unknown". Half of the names of each group are used for tuning: with the truth for all of them, or with "unknown" wherever the model's own answer is
# wrong. The other half is asked.

# %%
guessed = predict(
    "Tuned with the true city of every name: how many of the never stated facts are answered wrongly, of those it was not tuned on?",
    "fewer than half",
    "most of them",
)

# %%
taught = {"as it is": knower}
for how in progress(("truth", "abstain"), "tuning"):
    taught[how] = facts.taught(knower, world, how)
answers = {
    how: {group: facts.asked(of, names, world.city) for group, names in facts.halves(world)[1].items()}
    for how, of in taught.items()
}
print("                  right / wrong / unknown")
for how, groups in answers.items():
    cells = [
        f"{group} {r['right']:.2f} {r['wrong']:.2f} {r['silent']:.2f}"
        for group, r in ((g, a.rates()) for g, a in groups.items())
    ]
    print(f"{how:10}", "   ".join(cells))
wrong = answers["truth"]["never"].rates()["wrong"]
guessed.reveal("most of them" if wrong > 0.5 else "fewer than half")

# %%
assert row["letter"] < 0.45 and row["text"] > 0.9
assert answers["abstain"]["never"].rates()["wrong"] < 0.35 < 0.5 < wrong

# %% [markdown]
# **What to notice.** A copy that was taught the right answers about other names still guesses about these. Abstention has a price, too: look at the rare facts.
#
# Does the model know what it does not know? Let it answer only the questions of which it is surest, and count what is wrong among these.

# %%
# figure: risk
# alt: Two panels. Left: the share of wrong answers against the share of questions answered, the surest first. For the model as it is it stays at 0 until more than half of the questions are answered, for the one that was
#   taught the truth it rises earlier; both reach one third when all are answered. For the one that was taught to abstain it stays low, and ends where about two thirds are answered. Right: confidence and share of right answers
#   of the model as it is, by how often a fact was read: alike for frequent and rare facts, while about facts that were never stated the confidence is above one half and next to no answer is right.
as_it_is = facts.GradedAnswers.joined(answers["as it is"].values()).risks()
fig, (left, right) = plt.subplots(1, 2, figsize=(6.5, 2.9), layout="constrained", width_ratios=(3, 2))
for how, (label, colour) in {
    "as it is": ("as it is", "blue"),
    "truth": ("taught the truth", "orange"),
    "abstain": ("taught to abstain", "green"),
}.items():
    risks = facts.GradedAnswers.joined(answers[how].values()).risks()
    asked_in_all = sum(len(found.right) for found in answers[how].values())
    left.plot(torch.arange(1, len(risks) + 1) / asked_in_all, risks, color=PALETTE[colour], label=label)
left.set(xlabel="share of questions answered", ylabel="share of wrong answers", xlim=(0, 1.02), ylim=(-0.02, 0.5))
left.set_title("answering only what is surest", fontsize=10, loc="left")
left.legend(frameon=False, loc="upper left")
groups = {group: facts.asked(knower, world.groups[group], world.city) for group in facts.GROUPS}
for name, shift, colour, value in (
    ("confidence", -0.2, "blue", lambda found: found.confidence),
    ("right", 0.2, "black", lambda found: found.right),
):
    heights = [float(value(found).double().mean()) for found in groups.values()]
    right.bar([i + shift for i in range(3)], heights, 0.38, color=PALETTE[colour], label=name)
right.set(
    xticks=range(3), xticklabels=facts.GROUPS, xlabel="how often the fact was read", ylabel="mean, share", ylim=(0, 1.3)
)
right.set_title("said and true", fontsize=10, loc="left")
right.legend(frameon=False, ncols=2, loc="upper center", columnspacing=0.8, handlelength=1.2)
plt.show()

# %%
assert as_it_is[len(as_it_is) // 3 - 1] < 0.1 < 0.2 < as_it_is[-1]
assert groups["never"].confidence.mean() > groups["never"].right.double().mean() + 0.2

# %% [markdown]
# **What to notice.** The order of its confidences is good, their size is not.
#
# Last, a chain of verification: the model lists the inhabitants of a city, then each name is asked about by itself, and a name stays if the answer is that city.

# %%
checked = facts.verified(knower, world)
print(
    f"true names of all listed: {checked['before']:.2f}; of those that stay: {checked['after']:.2f}; true ones kept: {checked['kept']:.2f}"
)

# %%
assert checked["after"] > checked["before"] + 0.3

# %%
predict.tally()

# %% [markdown]
# ## Now you
#
# * How many copies does a leak need? Change `leaks.COPIES` to 1, 3, 30 and draw the score on the test and on the twins.
# * A leak of reworded items: `leaks.saw("shuffled", …)`. What does `standing` say of `overlap` now, and what of the score?
# * Let six examples be wrong, all of them. Does the reader believe its pages or its prompt?
# * Grade the knower with a penalty (`evaluation.answering_gain`): from which confidence on should it answer?
#
# The graded exercises of this chapter: `minirlhf check 19`.
