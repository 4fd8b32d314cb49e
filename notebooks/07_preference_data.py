# %% [markdown]
# # 07 · Preference data
#
# A reward model learns what its labels contain. **Whose noise, biases and disagreement are in them, and how can you measure this?** First you label 32 comparisons yourself, in about
# five minutes. A reward model is then trained on your labels within seconds. After that we use simulated annotators with known noise and biases, so that every estimate can be compared with the true value.

# %%
import matplotlib.pyplot as plt
import torch

from minirlhf.core.progress import progress
from minirlhf.data import elicitation
from minirlhf.equations import comparisons as worth
from minirlhf_course import evidence
from minirlhf_course.chapters.ch07_preference_data import equations as agreement
from minirlhf_course.chapters.ch07_preference_data import figures, labellers, reader
from minirlhf_course.classroom.labelling import Labelling
from minirlhf_course.classroom.predictions import Predictions

plt.rcParams.update({"font.size": 9, "axes.spines.top": False, "axes.spines.right": False})

results = evidence.StudyResults("ch07")  # ten seeds of simulated annotators
predict = Predictions("07")

# %% [markdown]
# ## You label
#
# Type `a` or `b`, `t` for a tie, `n` if neither is good. Enter stops, and a simulated annotator labels the rest. Your labels are stored for the next run; `labelling.forget()` deletes
# them. Eight of the pairs occur twice, in the other order. If the notebook runs where you cannot type, the simulated annotator labels everything.

# %%
labelling = Labelling("07", [item.shown for item in reader.items()], stand_in=reader.stand_in)
votes = labelling.ask()

# %%
verdict = reader.judge(votes)
print(f"the same completion won again in {verdict.same} of the {verdict.twice} pairs that were decided twice")
print(f"the first completion won {verdict.first} of {verdict.decided} times")
reply, lost = verdict.favourite(0)
print(f"\nCompletion of highest learned reward for the first prompt:\n\n{reply.text}\n")
print(f"Its gold reward is {lost:.1f} below the largest.")

# %%
# figure: reader
# alt: Seven weights with their 95 % intervals, learned from the labels: right, facts, length, markup, warm opening, agreement, first position. The
#   intervals are wide; only the interval of "right" is clearly above zero.
fig, ax = plt.subplots(figsize=(5.6, 2.9), layout="constrained")
figures.weights(ax, reader.COLUMNS, verdict.reward)
plt.show()

# %% [markdown]
# Look at the *width* of the intervals before you look at the points. Thirty-two labels show little about an annotator. How many labels are needed?
#
# ## Which biases does a test detect?
#
# First, annotators who label by the gold reward, with noise. Then the same annotators with one added bias: for length, for lists, for a warm opening, for agreement with the user, or for the completion
# that is shown first. Each gives three hundred labels.

# %%
alone = predict(
    "The annotators have no bias. The model that wrote the completions opens warmly more often where it is right. "
    "With 1,000 labels, how often does a test of the opening alone flag it at the level 5 %?",
    "in about 5 % of the data sets",
    "in most of them",
)

# %%
counted = predict(
    "And length, if the test includes correctness and the number of facts, but not padding, which has a negative gold reward?",
    "in about 5 % of the data sets",
    "in most of them",
)

# %%
runs = [labellers.detection(seed, count=300, draws=2) for seed in progress(range(5), "annotators")]
here = lambda name: sum(run[name] for run in runs) / 5
rate = lambda name: sum(results.values(name)) / 10
often = lambda x: "in most of them" if x > 0.5 else "in about 5 % of the data sets"
alone.reveal(often(rate("warm_opening_alarm_alone_1000")))
counted.reveal(often(rate("length_alarm_beside_counts_1000")))
for name in labellers.INJECTED:
    print(
        f"{name:14} detected in {here(name + ' found 300'):.0%} of 10 data sets, {here(name + ' predicted 300'):.0%} predicted"
    )

# %%
# figure: biases
# alt: Two panels for five attributes. Left, false alarms with 1,000 labels without any bias: a warm opening alone, and length beside correctness and facts, are flagged nearly always; beside
#   the gold reward every attribute is flagged about one time in twenty. Right, the fraction of data sets in which a bias is detected with 300 and 1,000 labels, and the prediction of the formula: they nearly agree.
fig, axes = plt.subplots(1, 2, figsize=(9.2, 3.2), layout="constrained")
figures.alarms(
    axes[0],
    {
        how: [rate(f"{s.replace(' ', '_')}_alarm_{how}_1000") for s in labellers.INJECTED]
        for how in ("alone", "beside_counts", "beside_gold")
    },
)
figures.power(
    axes[1],
    {
        n: [
            (rate(f"{s.replace(' ', '_')}_found_{n}"), rate(f"{s.replace(' ', '_')}_predicted_{n}"))
            for s in labellers.INJECTED
        ]
        for n in (300, 1000)
    },
)
plt.show()

# %%
assert results.holds("warm_opening_alarm_alone_1000", above=0.3) and results.holds(
    "length_alarm_beside_counts_1000", above=0.5
)
assert results.all_exceed("length_alarm_beside_counts_1000", "length_alarm_beside_gold_1000")

# %% [markdown]
# An attribute that is correlated with quality looks like a bias. If a part of quality is not measured, another attribute looks like a bias. The test answers only for the quality that you put beside it.
#
# ## Information in a ranking
#
# An annotator ranks K completions instead of two. This gives C(K, 2) pairs.

# %%
four = predict(
    "A ranking of 4 equally good completions gives 6 pairs. How many separate comparisons have the same information?",
    3,
    3.8,
    6,
)

# %%
# NBVAL_CHECK_OUTPUT
sizes = torch.arange(2, 10)
print("K   pairs   comparisons   fitted as pairs   standard errors too small by")
for k, w, p, f in zip(
    sizes, worth.ranking_worth(sizes), worth.all_pairs_worth(sizes), worth.error_bar_factor(sizes), strict=True
):
    print(f"{k}   {k * (k - 1) // 2:5}   {w:11.2f}   {p:15.2f}   {f:.2f}")
four.reveal(float(worth.ranking_worth(torch.tensor(4))))

# %%
# figure: worth
# alt: Left, number of pairs and information of a ranking against the number of completions: the number of pairs rises to 36 at nine completions, the information to 12 separate comparisons. Right, the Fisher information of one label
#   against the gap between two completions: with two levels it falls to less than a tenth at a gap of 4, with eight levels it stays far higher, and flipping one label in five costs more than half of it for a close pair.
fig, axes = plt.subplots(1, 2, figsize=(9.2, 3.0), layout="constrained")
figures.worth(axes, sizes)
plt.show()

# %%
# NBVAL_CHECK_OUTPUT
print("information of one label      gap 0    gap 2    gap 4")
gaps = torch.tensor([0.0, 2.0, 4.0], dtype=torch.float64)
at = {n: worth.graded_information(gaps, torch.arange(n - 1, dtype=torch.float64) - (n - 2) / 2) for n in (2, 3, 5, 8)}
for n, information in at.items():
    print(f"{n} levels, over two levels {' ':4}" + "".join(f"{x:9.2f}" for x in information / at[2]))

# %% [markdown]
# ## Several annotators
#
# Two annotators with an accuracy of 90 % agree on 82 % of the items. Their kappa also depends on the prevalence of the labels.

# %%
rare = predict(
    "One label is the true one for 95 % of the items. What is Cohen's kappa of these two annotators?", 0.2, 0.6, 0.8
)

# %%
weigh = predict(
    "Five annotators have the accuracies 92, 92, 50, 50 and 20 %. What is the accuracy of Dawid and Skene's model?",
    0.73,
    0.84,
    0.96,
)

# %%
# NBVAL_CHECK_OUTPUT
nine = torch.full((3,), 0.9, dtype=torch.float64)
prevalence = torch.tensor([0.5, 0.8, 0.95], dtype=torch.float64)
kappas = agreement.expected_kappa(nine, nine, prevalence)
for share, kappa in zip(prevalence, kappas, strict=True):
    print(f"prevalence {share:.0%}: raw agreement 82 %, kappa {kappa:.2f}")
rare.reveal(float(kappas[-1]))

# %%
teams = [labellers.consensus(seed) for seed in progress(range(3), "teams")]
weigh.reveal(rate("contrarian_model"))

# %%
# figure: consensus
# alt: Fraction of true labels recovered for three teams of five annotators. For five equal annotators, majority vote and model agree closely. For a mixed team the model is ten points better, with a contrarian more than twenty points.
fig, ax = plt.subplots(figsize=(5.2, 2.8), layout="constrained")
figures.teams(
    ax, {team: (results.values(f"{team}_majority"), results.values(f"{team}_model")) for team in labellers.TEAMS}
)
plt.show()

# %%
assert results.all_exceed("contrarian_model", "contrarian_majority")
assert results.all_exceed("mixed_model", "mixed_majority")
assert all(one["contrarian model"] > one["contrarian majority"] for one in teams)

# %% [markdown]
# The model never sees the true labels. It sees who agrees with whom. An annotator who is wrong four times in five is as useful as one who is right four times in five, because the model reverses their labels. With equal annotators there is nothing to weigh.
#
# ## A failure on purpose
#
# The labels below are unbiased. But all of them compare completions of one model that never pads. The reward model sees only whether a completion is right, and its length.

# %%
padded = predict("How many of the two sentences of padding does the completion of highest reward have?", 0, 1, 2)

# %%
narrow = labellers.selection(seed=0)
print(
    f"weight of length: {narrow['narrow weight of length']:+.2f} from pairs that never pad, {narrow['wide weight of length']:+.2f} from all kinds"
)
padded.reveal(narrow["narrow padding"])

# %%
assert results.holds("narrow_padding", above=1.5)

# %% [markdown]
# In these pairs length indicates facts, so a positive weight fits them. The labels are noisy and unbiased. The pairs with padding, in which length does not indicate facts, were never labelled.
#
# ## Four small experiments
#
# Judging and writing, flipped labels, ties, and an annotator who sees the model's score. One seed of each, beside the means of ten.

# %%
flatter = predict(
    "A fifth of the labels is flipped. How does the slope of the learned reward change?",
    "little",
    "it halves",
    "its sign changes",
)

# %%
rows = {
    "gold reward, one written completion": "written",
    "gold reward, best of 4 chosen with noise ½": "judged_0.5",
    "gold reward, best of 4 chosen with noise 2": "judged_2.0",
    "slope, no labels flipped": "slope_0.0",
    "slope, a fifth of the labels flipped": "slope_0.2",
    "slope, ties left out": "slope_without_ties",
    "slope, ties as halves": "slope_with_halves",
    "slope, ties as a level": "slope_with_a_level",
    "accuracy, blind annotator": "blind_accuracy",
    "accuracy, annotator sees the score": "sees_the_score_accuracy",
}
one = {}
for experiment in progress((labellers.judging, labellers.noise, labellers.ties, labellers.confirmation), "experiments"):
    one |= {name.replace(" ", "_"): value for name, value in experiment(0).items()}
for words, name in rows.items():
    print(f"{words:45} {one[name]:5.2f}   {rate(name):5.2f}")
ratio = rate("slope_0.2") / rate("slope_0.0")
flatter.reveal("little" if ratio > 0.8 else "it halves" if ratio > 0 else "its sign changes")

# %%
assert results.all_exceed("judged_0.5", "written") and results.all_exceed("slope_0.0", "slope_0.2")
assert results.all_exceed("slope_without_ties", "slope_with_a_level")

# %% [markdown]
# ## From votes to rows of data
#
# A vote, a grade, a tree, a constraint, and a session in a chat window.

# %%
# NBVAL_CHECK_OUTPUT
q = elicitation.as_prompt("Name a fruit.")
tree = elicitation.Branching(
    "Name a fruit.", ("Pear.", "Car."), elicitation.Branching("Another?", ("Plum.", "Pear.", "No.", "?"))
)
print("both bad      ", [type(x).__name__ for x in elicitation.from_vote(q, "Car.", "No.", "both bad")])
print("5 levels, 3   ", elicitation.from_grade(q, "Pear.", "Plum.", 3, levels=5))
print("8 levels, 2   ", elicitation.from_grade(q, "Pear.", "Plum.", 2, levels=8).margin)
print("a tree        ", [len(r.comparisons()) for r in elicitation.unroll(tree)], "pairs per turn")
print(
    "a constraint  ",
    elicitation.from_constraint("Name a fruit.", "Use capitals.", "PEAR", "Pear.").prompt[0]["content"],
)
print("closed        ", elicitation.from_session(q, [("Pear.", "closed")]))
print(
    "asked again   ",
    [type(x).__name__ for x in elicitation.from_session(q, [("Car.", "regenerated"), ("Pear.", "copied")])],
)

# %%
predict.tally()

# %% [markdown]
# ## Now you
#
# * Label again tomorrow (`labelling.forget()`): how many of your votes stay the same? Then prefer long completions on purpose. Do the intervals show it?
# * Test your own file: `minirlhf data biases pairs.jsonl`.
#
# The graded exercises of this chapter: `minirlhf check 07`.
