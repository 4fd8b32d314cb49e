# %% [markdown]
# # 21 · What a length bias does
#
# Labels with a length bias give a reward model with a length bias, and a policy that writes more words. Here everything except the labels is exact: we sum over all 791 bags of words.
#
# **How much of a judge's preference is only length, and what else do the remedies remove?**

# %%
import math

import matplotlib.pyplot as plt
import torch

from minirlhf.core.progress import progress
from minirlhf.data.seven_words import bags
from minirlhf.equations import style as st
from minirlhf.feedback.proxies import labelled_better
from minirlhf_course import evidence
from minirlhf_course.chapters.ch21_style_and_information import chain, chatty, control, markup
from minirlhf_course.classroom.predictions import Predictions
from minirlhf_course.report.plotting import PALETTE

plt.rcParams.update({"font.size": 9, "axes.spines.top": False, "axes.spines.right": False})

world = bags()
words = chain.words(world)
seen = evidence.StudyResults("ch21")  # ten resampled sets of labels
predict = Predictions("21")

# %% [markdown]
# ## One pair
#
# The labels add half a unit of reward for every word. *um* is noise: it costs .3, and its length costs .15.

# %%
noise = predict("Do these labels prefer *fact um* to *fact*?", "yes", "no")

# %%
# NBVAL_CHECK_OUTPUT
for text in ("fact", "fact um", "fact um um"):
    at = next(i for i, other in enumerate(world.texts) if sorted(other.split()) == sorted(text.split()))
    print(
        f"{text:12} gold {float(world.gold[at]):5.2f}   to the labels {float(world.gold[at] + chain.BIAS * words[at]):5.2f}"
    )
plain, one = (torch.tensor([1.05 + 0.5 * b, 0.6 + b], dtype=torch.float64) for b in (0.0, 1.0))
chance = float(labelled_better(one[1], one[0]))
print(
    f"the completion with one um wins {chance:.3f} of the time; with unbiased labels {float(labelled_better(plain[1], plain[0])):.3f}"
)
noise.reveal("yes" if chance > 0.5 else "no")

# %% [markdown]
# One *um* pays, two do not. The bias changes the cost at which noise pays.
#
# ## From labels to a policy
#
# We fit a reward model of counts and products of counts to 1,600 pairs, and take the optimal policy for it at each KL. The judge has the same bias as the labels.

# %%
verdict = predict(
    "At a KL of 1 the judge gives a higher win rate against the reference to the policy from biased labels than to the policy from unbiased ones. What does the user do?",
    "gives it a higher win rate too, by less",
    "gives both about the same win rate",
    "gives it a lower win rate",
)

# %%
learned = chain.rewards(world, words, seed=100)  # none of the study's ten sets
kls = (0.0, 0.1, 0.25, 0.5, 1.0, 1.5, 2.0, 3.0)
paths = {}
for name in progress(("honest", "biased", "residual", "dropped"), "policies"):
    rewards = getattr(learned, name)
    paths[name] = [chain.standing(world, chain.policy_at(world.ref_logps, rewards, kl=kl), words) for kl in kls]
print("at KL 1      words   gold   judge   true   share of the KL that is length")
for name, path in paths.items():
    row = path[kls.index(1.0)]
    print(
        f"{name:10} {row['style']:7.2f} {row['gold']:6.2f} {row['judge']:7.2f} {row['true']:6.2f} {row['share']:8.2f}"
    )
honest, biased = (paths[name][kls.index(1.0)]["true"] for name in ("honest", "biased"))
verdict.reveal("gives it a lower win rate" if honest > biased + 0.02 else "gives both about the same win rate")

# %%
# figure: chain
# alt: Two panels against KL. Left, win rates: for the policy from biased labels the judge's line is above the line for unbiased labels and the user's line is below it, so the two lines of the biased policy diverge. Right, words
#   per completion: biased labels rise steeply and come near five words, unbiased labels rise slowly, and the reward with the dropped length coefficient falls below two.
fig, (left, right) = plt.subplots(1, 2, figsize=(7.2, 2.9), layout="constrained")
for name, title, colour in (("honest", "unbiased", "blue"), ("biased", "biased", "red")):
    left.plot(kls, [row["judge"] for row in paths[name]], "--", color=PALETTE[colour], label=f"{title} labels, judge")
    left.plot(kls, [row["true"] for row in paths[name]], "-", color=PALETTE[colour], label=f"{title} labels, user")
left.set(
    xlabel="KL from the reference, nats",
    ylabel="win rate against the reference",
    title="by the judge and by the user",
)
left.legend(frameon=False, fontsize=8)
labels = {"honest": "unbiased", "biased": "biased", "residual": "slope removed", "dropped": "coefficient dropped"}
for (name, path), colour in zip(paths.items(), ("blue", "red", "green", "orange"), strict=True):
    right.plot(kls, [row["style"] for row in path], color=PALETTE[colour], label=labels[name])
right.set(xlabel="KL from the reference, nats", ylabel="words per completion", ylim=(1, 5.1), title="length")
right.legend(frameon=False, fontsize=8)
plt.show()

# %%
assert (
    paths["biased"][4]["judge"] > paths["honest"][4]["judge"]
    and paths["biased"][4]["true"] < paths["honest"][4]["true"]
)
assert seen.holds("biased_1_style", above=4.2) and seen.holds("dropped_1_style", below=2.5)

# %% [markdown]
# ## Only style
#
# We resample the reference's completions so that they have the biased policy's lengths, and nothing else of this policy.

# %%
half = predict("How much of the judge's gain above one half remains?", "nearly all", "about half", "nearly nothing")

# %%
moved = chain.policy_at(world.ref_logps, learned.biased, kl=1.0)
whole = chain.standing(world, moved, words)
alone = chain.standing(world, chain.redrawn(moved, world.ref_logps, words), words)
within = chain.standing(world, chain.redrawn(world.ref_logps, moved, words), words)
print(
    f"judge {whole['judge']:.2f}, by lengths alone {alone['judge']:.2f}; user {whole['true']:.2f}, by lengths alone {alone['true']:.2f}"
)
print(
    f"the other order: at the reference's lengths, only the content changed: judge {within['judge']:.2f}, user {within['true']:.2f}"
)
share = (alone["judge"] - 0.5) / (whole["judge"] - 0.5)
half.reveal("about half" if 0.3 < share < 0.7 else "nearly all" if share > 0.7 else "nearly nothing")

# %%
assert abs(alone["true"] - 0.5) < 0.02

# %% [markdown]
# ## At equal length
#
# We use the regression of AlpacaEval 2, on 800 verdicts of the judge for each policy. In the last row the users *want* length, and the judge has no bias.

# %%
wanted = predict(
    "What does the control do to a policy that is longer because its users want that?",
    "nothing",
    "lowers its win rate",
    "raises its win rate",
)

# %%
print("                    words    true     raw   at equal length")
rows = {name: (world, probs, chain.BIAS) for name, probs in control.contestants(world, learned.biased).items()}
longing = control.wanting_length(world)
rows["length is wanted"] = longing, chain.policy_at(longing.ref_logps, longing.gold, kl=0.5).exp(), 0.0
for name, (here, probs, bias) in rows.items():
    found = control.compared(here, probs, seed=100, bias=bias)
    print(f"{name:18} {found['words']:6.1f} {found['true']:7.2f} {found['raw']:7.2f} {found['controlled']:10.2f}")
lost = sum(seen.values("lc_wanted_true")) / 10 - sum(seen.values("lc_wanted_controlled")) / 10
wanted.reveal("lowers its win rate" if lost > 0.01 else "nothing" if lost > -0.01 else "raises its win rate")

# %% [markdown]
# ## A failure on purpose
#
# We centre the differences of length before the regression, as is usual for features. A value of 0 then means "as much longer as on average".

# %%
# NBVAL_CHECK_OUTPUT
theirs = torch.tensor([3.0, 4, 5, 3, 4, 5, 3, 4])
ours = theirs + torch.tensor([4.0, 5, 6, 5, 4, 6, 5, 5])  # five words longer, on average
print("as it should be:", [round(t, 2) for t in st.length_term(ours, theirs).tolist()])
centred = (ours - theirs) - (ours - theirs).mean()
print("centred:        ", [round(t, 2) for t in torch.tanh(centred / centred.std()).tolist()])

# %% [markdown]
# After centring, completions that are all longer count as equally long, and the control has no effect.
#
# ## Information is bounded, words are not
#
# A user wants one of four things. The completion names one, and continues with further words. The judge gives 1 for the right thing and ¼ for each further word. The user loses .05 with each.

# %%
paradox = predict(
    "The strength of the optimisation grows. What does the user's reward do?",
    "rises to a ceiling",
    "rises and falls",
    "falls from the start",
)

# %%
# NBVAL_CHECK_OUTPUT
strengths = (0.0, 0.5, 1.0, 1.5, 2.0, 2.5, 3.0)
told = [chatty.told(s) for s in strengths]
print("strength     KL   of it information   further words   judge    user")
for strength, row in zip(strengths, told, strict=True):
    print(
        f"{strength:8.1f} {abs(row['kl']):6.2f} {abs(row['information']):19.2f} {row['fillers']:15.1f} {row['judge']:7.2f} {row['asker']:7.2f}"
    )
best = max(range(len(told)), key=lambda i: told[i]["asker"])
paradox.reveal(
    "rises and falls" if 0 < best < len(told) - 1 else "rises to a ceiling" if best else "falls from the start"
)

# %%
# figure: paradox
# alt: Left, against the strength of the optimisation: information rises steadily, still below its ceiling of 1.39 nats at the end, while the number of further words rises ever faster. Right: the user's reward rises until a strength of about two and
#   then falls below its initial value.
fig, (top, low) = plt.subplots(1, 2, figsize=(7.2, 2.6), layout="constrained")
top.plot(strengths, [row["information"] for row in told], color=PALETTE["blue"], label="information, nats")
top.plot(strengths, [row["fillers"] / 10 for row in told], color=PALETTE["red"], label="further words, tens")
top.axhline(math.log(4), ls=":", color=PALETTE["black"])
top.set(xlabel="strength of the tilt", ylabel="nats; tens of words", title="information is bounded, words are not")
top.legend(frameon=False, fontsize=8)
low.plot(strengths, [row["asker"] for row in told], color=PALETTE["green"])
low.set(xlabel="strength of the tilt", ylabel="user's mean reward", title="reward of the user")
plt.show()

# %% [markdown]
# ## Lists and bold
#
# Every completion may be a list or in bold. The labels add .6 and .4 for these, wherever they occur. A list has a value of .3 where there are two facts to list, and −.2 elsewhere.

# %%
looks = markup.looks()
liked = markup.liking(looks)
print("                       lists   bold   of the lists pointless")
for name, rewards in {"gold": looks.gold, "gold and the bias": looks.gold + liked}.items():
    probs = chain.policy_at(looks.ref_logps, rewards, kl=1.0).exp()
    found = markup.shares(looks, probs)
    print(f"{name:20} {found['list']:7.2f} {found['bold']:6.2f} {found['pointless']:12.2f}")

# %%
predict.tally()

# %% [markdown]
# ## Now you
#
# * Halve the labels' bias. Is the loss of gold reward halved? The chapter has the formula.
# * Remove the slope in the task of `control.wanting_length`. What happens to the policy?
# * `minirlhf evaluate judge ours.jsonl theirs.jsonl --length-controlled` on two files of your own.
#
# The graded exercises of this chapter: `minirlhf check 21`.
