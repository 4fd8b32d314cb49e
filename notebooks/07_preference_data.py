# %% [markdown]
# # 07 · Preference data
#
# A reward model knows what its labels say. **Whose noise, whose taste and whose disagreement are in them, and can one find out?** First you label yourself: 32 comparisons, about
# five minutes, and in seconds you see a reward model that was trained on you. Then labellers whose noise and biases we know, so that everything can be held against the truth.

# %%
import matplotlib.pyplot as plt
import torch

from minirlhf.core.progress import progress
from minirlhf.data import elicitation
from minirlhf.equations import agreement
from minirlhf.equations import comparisons as worth
from minirlhf_course import evidence
from minirlhf_course.chapters.ch07_preference_data import figures, labellers, reader
from minirlhf_course.classroom.labelling import Labelling
from minirlhf_course.classroom.predictions import Predictions

plt.rcParams.update({"font.size": 9, "axes.spines.top": False, "axes.spines.right": False})

seen = evidence.StudyResults("ch07")  # ten draws of the made-up labellers
predict = Predictions("07")

# %% [markdown]
# ## You label
#
# Type `a` or `b`, `t` for a tie, `n` if neither is good; Enter stops, and somebody else labels the rest. Your answers are kept for the next run; `labelling.forget()` asks
# everything again. Eight of the pairs come twice, the other way round. If you run this without a screen, a made-up labeller stands in for all of it.

# %%
labelling = Labelling("07", [item.shown for item in reader.items()], stand_in=reader.stand_in)
votes = labelling.ask()

# %%
verdict = reader.judge(votes)
print(f"the same reply won again in {verdict.same} of the {verdict.twice} pairs that were decided twice")
print(f"the first reply won {verdict.first} of {verdict.decided} times")
reply, lost = verdict.favourite(0)
print(f"\nWhat a policy that is trained on these labels would say to the first question:\n\n{reply.text}\n")
print(f"It lacks {lost:.1f} of what the best reply is worth.")

# %%
# figure: reader
# alt: Seven weights with their intervals, learned from the labels: right, facts, length, markup, warm opening, agreement, first place. The
#   intervals are wide; only that of "right" lies clearly above zero.
fig, ax = plt.subplots(figsize=(5.6, 2.9), layout="constrained")
figures.weights(ax, reader.COLUMNS, verdict.reward)
plt.show()

# %% [markdown]
# Look at the *width* of the intervals before you look at the points. What 32 labels can show about a person is little; the next question is how many it takes.
#
# ## Which biases does a test find?
#
# Labellers who judge by the truth, with noise; then the same labellers with one liking added: for length, for lists, for a warm opening, for being agreed with, or for the reply
# that is shown first. Three hundred labels each.

# %%
alone = predict(
    "The labellers have no bias at all. The model that wrote the replies opens warmly more often where it is right. "
    "Over 1,000 labels, how often does a test of the opening alone raise an alarm at 5 %?",
    "in about 5 % of the data sets",
    "in most of them",
)

# %%
counted = predict(
    "And length, if the test knows whether a reply is right and how many facts it has, but not that padding is worth less than nothing?",
    "in about 5 % of the data sets",
    "in most of them",
)

# %%
runs = [labellers.detection(seed, count=300, draws=2) for seed in progress(range(5), "labellers")]
here = lambda name: sum(run[name] for run in runs) / 5
rate = lambda name: sum(seen.values(name)) / 10
often = lambda x: "in most of them" if x > 0.5 else "in about 5 % of the data sets"
alone.reveal(often(rate("warm_opening_alarm_alone_1000")))
counted.reveal(often(rate("length_alarm_beside_counts_1000")))
for name in labellers.INJECTED:
    print(
        f"{name:14} found in {here(name + ' found 300'):.0%} of 10 data sets, {here(name + ' predicted 300'):.0%} expected"
    )

# %%
# figure: biases
# alt: Two panels for five suspects. Left, false alarms among 1,000 labels without any bias: a warm opening alone and length beside counts of what is right raise alarms nearly always, everything
#   beside the true quality about one time in twenty. Right, the share of biases found with 300 and 1,000 labels beside the share that the formula predicts: they nearly agree.
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
assert seen.holds("warm_opening_alarm_alone_1000", above=0.3) and seen.holds(
    "length_alarm_beside_counts_1000", above=0.5
)
assert seen.all_exceed("length_alarm_beside_counts_1000", "length_alarm_beside_gold_1000")

# %% [markdown]
# A trait that goes with quality looks like a bias, and a quality that nobody measures makes a bias of something else. The test answers the question "beside *what*?", and only that.
#
# ## What is a ranking worth?
#
# Instead of two replies a labeller ranks K. That gives C(K, 2) pairs.

# %%
four = predict(
    "A ranking of 4 equally good replies gives 6 pairs. How many separate comparisons is it worth?", 3, 3.8, 6
)

# %%
# NBVAL_CHECK_OUTPUT
sizes = torch.arange(2, 10)
print("K   pairs   worth   fitted as pairs   error bars too small by")
for k, w, p, f in zip(
    sizes, worth.ranking_worth(sizes), worth.all_pairs_worth(sizes), worth.error_bar_factor(sizes), strict=True
):
    print(f"{k}   {k * (k - 1) // 2:5}   {w:5.2f}   {p:15.2f}   {f:.2f}")
four.reveal(float(worth.ranking_worth(torch.tensor(4))))

# %%
# figure: worth
# alt: Left, pairs and worth of a ranking against the number of replies: the number of pairs bends up to 36 at nine replies, the worth of the ranking reaches 12. Right, the information of one label
#   against the gap between two replies: two levels fall to less than a tenth at a gap of 4, eight levels stay far above, and a flip of one label in five costs more than half where the call is close.
fig, axes = plt.subplots(1, 2, figsize=(9.2, 3.0), layout="constrained")
figures.worth(axes, sizes)
plt.show()

# %%
# NBVAL_CHECK_OUTPUT
print("information of one label      gap 0    gap 2    gap 4")
gaps = torch.tensor([0.0, 2.0, 4.0], dtype=torch.float64)
at = {n: worth.graded_information(gaps, torch.arange(n - 1, dtype=torch.float64) - (n - 2) / 2) for n in (2, 3, 5, 8)}
for n, found in at.items():
    print(f"{n} levels, over two levels {' ':4}" + "".join(f"{x:9.2f}" for x in found / at[2]))

# %% [markdown]
# ## Several people
#
# Two labellers, each right nine times in ten, agree on 82 % of the items. Their kappa depends on something else besides.

# %%
rare = predict("One label is right for 95 % of the items. What is Cohen's kappa of these two?", 0.2, 0.6, 0.8)

# %%
weigh = predict(
    "Five labellers, right in 92, 92, 50, 50 and 20 of 100. How often is a model of who is good right?",
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
# alt: Share of labels recovered for three teams of five. With five equals majority and model are alike. With a mixed team the model lies ten points higher, with a contrarian more than twenty.
fig, ax = plt.subplots(figsize=(5.2, 2.8), layout="constrained")
figures.teams(ax, {team: (seen.values(f"{team}_majority"), seen.values(f"{team}_model")) for team in labellers.TEAMS})
plt.show()

# %%
assert seen.all_exceed("contrarian_model", "contrarian_majority") and seen.all_exceed("mixed_model", "mixed_majority")
assert all(one["contrarian model"] > one["contrarian majority"] for one in teams)

# %% [markdown]
# The model never sees the truth. It sees who agrees with whom: somebody who errs four times in five is as useful as somebody who is right four times in five, once turned round. With equals there is nothing to weigh and nothing to gain.
#
# ## A failure on purpose
#
# The labels below are unbiased. But all of them compare replies of one model that never pads. The reward model sees whether a reply is right, and its length.

# %%
padded = predict("The reply of highest reward has how many sentences of padding, of two?", 0, 1, 2)

# %%
narrow = labellers.selection(seed=0)
print(
    f"weight of length: {narrow['narrow weight of length']:+.2f} from pairs that never pad, {narrow['wide weight of length']:+.2f} from all kinds"
)
padded.reveal(narrow["narrow padding"])

# %%
assert seen.holds("narrow_padding", above=1.5)

# %% [markdown]
# Where length meant facts, length was rightly liked. The labels were noisy and unbiased; the pairs that would have told were never asked for.
#
# ## Four small experiments
#
# Judging and writing, flipped labels, ties, and a labeller who sees the model's score. One draw of each, beside the means of ten.

# %%
flatter = predict(
    "A fifth of the labels is turned round. What happens to the slope of the learned reward?",
    "little",
    "it halves",
    "its sign turns",
)

# %%
rows = {
    "worth of an own reply": "written",
    "worth of the best of 4 as seen with noise ½": "judged_0.5",
    "worth of the best of 4 as seen with noise 2": "judged_2.0",
    "slope, labels as they are": "slope_0.0",
    "slope, a fifth of them flipped": "slope_0.2",
    "slope, ties left out": "slope_without_ties",
    "slope, ties as halves": "slope_with_halves",
    "slope, ties as a level": "slope_with_a_level",
    "accuracy, labeller blind": "blind_accuracy",
    "accuracy, labeller sees the score": "sees_the_score_accuracy",
}
one = {}
for experiment in progress((labellers.judging, labellers.noise, labellers.ties, labellers.confirmation), "labellers"):
    one |= {name.replace(" ", "_"): value for name, value in experiment(0).items()}
for words, name in rows.items():
    print(f"{words:45} {one[name]:5.2f}   {rate(name):5.2f}")
kept = rate("slope_0.2") / rate("slope_0.0")
flatter.reveal("little" if kept > 0.8 else "it halves" if kept > 0 else "its sign turns")

# %%
assert seen.all_exceed("judged_0.5", "written") and seen.all_exceed("slope_0.0", "slope_0.2")
assert seen.all_exceed("slope_without_ties", "slope_with_a_level")

# %% [markdown]
# ## From what people do to rows of data
#
# A vote, a grade, a tree, a constraint, a session in a chat window.

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
# * Label again tomorrow (`labelling.forget()`): how many of your votes stay the same? Then try to like long replies on purpose. Can the intervals tell?
# * Your own file: `minirlhf data biases pairs.jsonl`.
#
# The graded exercises of this chapter: `minirlhf check 07`.
