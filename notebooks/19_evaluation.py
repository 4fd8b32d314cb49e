# %% [markdown]
# # 19 · Evaluation: what does a score measure?
#
# A benchmark gives a number. **What is its error? Is a high rank skill or luck? Does the score depend on the model, or on the prompt, the scoring rule and a leak?**
#
# Some of the answers are exact. For the others we train tiny models here, in some seconds each, in three toy tasks that are fully known. One seed each; the chapter has the range across seeds.

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
# ## Coverage of a nominal 95 % interval
#
# Thirty items, and a good model: it solves 97 % of such items. Wald's interval takes the fraction that it solved, and goes 1.96 standard errors to each side.

# %%
held = predict("How often does that interval contain the true 97 %?", "95 %", "about 80 %", "about 60 %")

# %%
# NBVAL_CHECK_OUTPUT
at = experiments.coverages(30, 0.97)
for name, share in at.items():
    print(f"{name:10} contains the true value with probability {share:.3f}")
held.reveal("about 60 %" if at["wald"] < 0.7 else "about 80 %" if at["wald"] < 0.9 else "95 %")

# %%
# figure: coverage
# alt: Coverage of 95 % intervals for thirty items, against the true fraction from one half to .995. Wilson's stays near .95 and has .86 at the right end. Wald's and the bootstrap's oscillate below it and fall
#   steeply from .9 on, to below .2 at the right end.
shares = torch.linspace(0.5, 0.995, 100).tolist()
found = [experiments.coverages(30, share) for share in shares]
fig, ax = plt.subplots(figsize=(6.5, 3), layout="constrained")
for name, colour in {"wald": "red", "bootstrap": "orange", "wilson": "blue"}.items():
    ax.plot(shares, [one[name] for one in found], color=PALETTE[colour], label=name.capitalize())
ax.axhline(0.95, ls=":", color=PALETTE["black"])
ax.set(xlabel="true fraction of solved items", ylabel="coverage", xlim=(0.5, 1), ylim=(0, 1.02))
ax.set_title("coverage of nominal 95 % intervals, thirty items", fontsize=10, loc="left")
ax.legend(frameon=False, loc="lower left")
plt.show()

# %%
assert at["wald"] < 0.65 < 0.9 < at["wilson"]

# %% [markdown]
# **What to notice.** The usual intervals fail near a solved benchmark, where good models are.
#
# ## Selection on a public score: coin flips on a leaderboard
#
# A public test has 1,000 questions with two answers each. We submit coin flips, again and again, invert every submission that scores below one half, and let all of them vote.

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
# ## Contamination: a test in the training data
#
# An item is an operation and four numbers: the largest of them, or the last digit of their sum. In 300 steps a tiny model learns the first and not the second, so about half of the answers are right. Then one
# hundred test items get into the training data, ten times each. Could an evaluator detect it with the model and the test, but without the training data?

# %%
exposed = predict(
    "Which change of the test's items exposes the leak: on which is the leaked model not better than the clean one?",
    "the same numbers in another order",
    "one number changed, so that the answer changes",
    "both",
    "neither",
)

# %%
test = leaks.items(leaks.TEST, "test", SEED)
scores = {}
for leak in progress(("none", "copies"), "training"):
    model, seen = leaks.saw(leak, test, seed=SEED)
    scores[leak] = leaks.standing(model, seen, test, seed=SEED)
print("trained on       the test   shuffled   variants    new   variants answered as the original")
for leak, label in {"none": "other items", "copies": "and the test"}.items():
    row = scores[leak]
    print(
        f"{label:14} {row['test']:10.2f} {row['shuffled']:10.2f} {row['twins']:10.2f} {row['new']:6.2f} {row['memory']:13.2f}"
    )
seeds = evidence.StudyResults("ch19_models")  # the same with ten seeds
gain = {way: seeds.difference(f"leak_copies_{way}", f"leak_none_{way}") for way in ("shuffled", "twins")}
for way, found in gain.items():
    print(
        f"ten seeds, {({'twins': 'variants'}).get(way, way)}: the leak adds {found.mean:+.2f} ({found.interval[0]:+.2f} to {found.interval[1]:+.2f})"
    )
exposed.reveal(
    {
        (True, True): "both",
        (True, False): "the same numbers in another order",
        (False, True): "one number changed, so that the answer changes",
        (False, False): "neither",
    }[not gain["shuffled"].significant, not gain["twins"].significant]
)

# %%
# figure: leak
# alt: Scores of two models, a clean one and one with the test in its training data, on four sets of a hundred items. On the test and on the same items with the numbers in another order the leaked model is far above the
#   clean one; on variants with another answer and on new items both are near one half.
fig, ax = plt.subplots(figsize=(6.5, 2.9), layout="constrained")
sets = {"test": "the test", "shuffled": "in another order", "twins": "variants, other answers", "new": "new items"}
for shift, (leak, label, colour) in zip(
    (-0.2, 0.2), (("none", "clean", "blue"), ("copies", "leaked, ten copies", "red")), strict=True
):
    values = torch.tensor([scores[leak][name] for name in sets])
    low, high = evaluation.wilson_interval(values * leaks.TEST, torch.full_like(values, leaks.TEST))
    places = [i + shift for i in range(len(sets))]
    ax.bar(places, values, 0.38, color=PALETTE[colour], label=label)
    ax.errorbar(places, values, torch.stack([values - low, high - values]), fmt="none", color=PALETTE["black"], lw=1)
ax.set(xticks=range(len(sets)), xticklabels=list(sets.values()), ylabel="accuracy", ylim=(0, 1.18))
ax.set_title("a leak raises the score in any order, not on variants", fontsize=10, loc="left")
ax.legend(frameon=False, ncols=2, loc="upper right")
plt.show()

# %%
assert gain["shuffled"].significant and gain["shuffled"].mean > 0.1 and not gain["twins"].significant
assert scores["copies"]["test"] > scores["copies"]["new"]

# %% [markdown]
# **What to notice.** The model remembers the numbers in any order. A variant with another *answer* exposes this, as new items do.
#
# ## Few-shot prompts: bias of the examples
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
# Without an example the model does not know which labels to use. With one it does; these words are clear. Now vaguer words, which on its pages had the rating of their kind in two of three cases.

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
# alt: For five orders of six correct examples, the accuracy on vague words as it is and after calibration by a neutral word. As they are, all five are near one half, chance level; calibrated,
#   all five are near one.
fig, ax = plt.subplots(figsize=(6.5, 2.7), layout="constrained")
labels = {
    "balanced": "alternating",
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
    xlabel="accuracy on vague words",
    xlim=(0.4, 1.02),
    ylim=(4.5, -1.2),
)
ax.legend(frameon=False, ncols=2, loc="upper center")
ax.set_title("six correct examples, before and after calibration", fontsize=10, loc="left")
plt.show()

# %%
assert orders["good_last"]["says_good"] > orders["bad_last"]["says_good"] + 0.3
assert min(row["calibrated"] for row in orders.values()) > 0.85

# %% [markdown]
# **What to notice.** The model does distinguish the words. But its expectation after such examples is stronger. A neutral word in the same prompt measures this expectation, and its log-odds are subtracted.
#
# ## Scoring rules, calibration and abstention
#
# Seventy-two persons in twelve cities, in three groups. The texts state the facts of one group often, of one group seldom, and of one group never. So we know which facts the model can know.

# %%
letters = predict(
    "Four cities under the letters (a) to (d), about facts that the model knows. It has never seen such a list. How often is the most probable letter the right one?",
    "nearly always",
    "about half of the time",
    "at chance level",
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
    "at chance level" if row["letter"] < 0.4 else "about half of the time" if row["letter"] < 0.75 else "nearly always"
)

# %% [markdown]
# The same knowledge, two scores. Now the model may learn to say "unknown". Half of the names of each group are used for tuning: with the right answer for all of them, or with "unknown" wherever the model's own answer is
# wrong. We ask about the other half.

# %%
guessed = predict(
    "Tuned with the true city of every name: how many of the never stated facts are answered wrongly, for names that it was not tuned on?",
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
# **What to notice.** A copy that was tuned on the right answers about other names still guesses about these. Abstention has a price, too: look at the rare facts.
#
# Is the model's confidence informative? Let it answer only the questions of which it is most confident, and count the wrong answers among these.

# %%
# figure: risk
# alt: Two panels. Left: the fraction of wrong answers against the fraction of questions answered, the most confident first. For the untuned model it stays at 0 until more than half of the questions are answered, for the one that was
#   tuned on right answers it rises earlier; both reach one third when all are answered. For the one that was tuned to abstain it stays low, and ends where about two thirds are answered. Right: confidence and accuracy
#   of the untuned model, by how often a fact was read: close to each other for frequent and rare facts, while for facts that were never stated the confidence is above one half and next to no answer is right.
as_it_is = facts.GradedAnswers.joined(answers["as it is"].values()).risks()
fig, (left, right) = plt.subplots(1, 2, figsize=(6.5, 2.9), layout="constrained", width_ratios=(3, 2))
for how, (label, colour) in {
    "as it is": ("untuned", "blue"),
    "truth": ("tuned on right answers", "orange"),
    "abstain": ("tuned to abstain", "green"),
}.items():
    risks = facts.GradedAnswers.joined(answers[how].values()).risks()
    asked_in_all = sum(len(found.right) for found in answers[how].values())
    left.plot(torch.arange(1, len(risks) + 1) / asked_in_all, risks, color=PALETTE[colour], label=label)
left.set(xlabel="fraction of questions answered", ylabel="fraction of wrong answers", xlim=(0, 1.02), ylim=(-0.02, 0.5))
left.set_title("risk, most confident first", fontsize=10, loc="left")
left.legend(frameon=False, loc="upper left")
groups = {group: facts.asked(knower, world.groups[group], world.city) for group in facts.GROUPS}
for name, shift, colour, value in (
    ("confidence", -0.2, "blue", lambda found: found.confidence),
    ("right", 0.2, "black", lambda found: found.right),
):
    heights = [float(value(found).double().mean()) for found in groups.values()]
    right.bar([i + shift for i in range(3)], heights, 0.38, color=PALETTE[colour], label=name)
right.set(xticks=range(3), xticklabels=facts.GROUPS, xlabel="how often the fact was read", ylabel="mean", ylim=(0, 1.3))
right.set_title("confidence and accuracy", fontsize=10, loc="left")
right.legend(frameon=False, ncols=2, loc="upper center", columnspacing=0.8, handlelength=1.2)
plt.show()

# %%
assert as_it_is[len(as_it_is) // 3 - 1] < 0.1 < 0.2 < as_it_is[-1]
assert groups["never"].confidence.mean() > groups["never"].right.double().mean() + 0.2

# %% [markdown]
# **What to notice.** Its confidences are ordered well, and they are too large.
#
# Last, a chain of verification: the model lists the inhabitants of a city, then each name is asked about separately, and a name stays if the answer is that city.

# %%
checked = facts.verified(knower, world)
print(
    f"right among all listed names: {checked['before']:.2f}; among those that stay: {checked['after']:.2f}; right ones that stay: {checked['kept']:.2f}"
)

# %%
assert checked["after"] > checked["before"] + 0.3

# %%
predict.tally()

# %% [markdown]
# ## Now you
#
# * How many copies does a leak need? Change `leaks.COPIES` to 1, 3, 30 and plot the score on the test and on the variants.
# * A leak of reworded items: `leaks.saw("shuffled", …)`. What are `overlap` and the score in the result of `standing` now?
# * Let all six examples be wrong. Does the model follow its pages or its prompt?
# * Grade the untuned model with a penalty (`evaluation.answering_gain`): from which confidence on should it answer?
#
# The graded exercises of this chapter: `minirlhf check 19`.
