# %% [markdown]
# # 17 · When is it worth asking?
#
# A model can answer from its head, or ask a tool and read what it says. **When should it ask, does it find that out by itself, and what becomes of it if it learns the tool's words as if they were its own?**
#
# The world has five places. Each has a usual value, which the model knows; today's value is still the usual one with a probability of .1 to .9, place by place. A register knows today's value, and a call has a price.

# %%
import sys
from dataclasses import replace

import matplotlib.pyplot as plt
import torch

from minirlhf.core.progress import progress
from minirlhf.data import calls
from minirlhf.feedback.servers import ToolServer
from minirlhf.feedback.tools import Toolbox, calculator, run_python
from minirlhf.trainers.tools import ToolEnv
from minirlhf_course import evidence
from minirlhf_course.chapters.ch17_tools import adventure, facts, trail
from minirlhf_course.chapters.ch17_tools.calculators import LearnsAll
from minirlhf_course.chapters.ch17_tools.facts import STEADY
from minirlhf_course.classroom.predictions import Predictions
from minirlhf_course.report.plotting import PALETTE

plt.rcParams.update({"font.size": 9, "axes.spines.top": False, "axes.spines.right": False})

priced, unmasked, walked, player = map(
    evidence.StudyResults, ("ch17_cost", "ch17", "ch17_trail", "ch17_player")
)  # several seeds
predict = Predictions("17")


def mean(values):
    """Of a list."""
    return sum(values) / len(values)


# %% [markdown]
# ## A call is a text
#
# Of its tools a model knows what the system message says.

# %%
# NBVAL_CHECK_OUTPUT
tools = Toolbox([calculator, run_python])
print(calls.describe_tools(tools.schemas, "python"))

# %% [markdown]
# Whatever it writes has to be read. Here are four turns.

# %%
which = predict(
    "How many of these four turns make a call that is carried out?",
    1,
    2,
    3,
    4,
)

# %%
# NBVAL_CHECK_OUTPUT
turns = [
    calls.write_call("run_python", {"program": "def solve(): return 12 * 34"}, "json"),
    '<tool_call>calculator(expression="12*34")',
    '<think><tool_call>calculator(expression="12*34")</tool_call></think>It is 408.',
    "<tool_call>calculator(expression=12*34)</tool_call>",
]
made = 0
for turn in turns:
    reply = calls.read_calls(turn, tools.schemas)
    answers = [tools.execute(call) for call in reply.calls]
    made += sum(not answer.failed for answer in answers)
    print(turn, "\n   ", [answer.content for answer in answers] or f"no call; it says {reply.text!r}")
which.reveal(made)

# %% [markdown]
# A call within a thought is not made, a forgotten end mark is forgiven, and what would have to be evaluated is refused with a reason that the model can read.
#
# ## Tools of another program
#
# A *server* of the Model Context Protocol is a program of its own, which offers tools for a model to call, resources for an application to show, and prompts for a user to pick. This one is the register that knows today's values (`minirlhf_course/chapters/ch17_tools/register.py`). It is started here, and every line below went through its standard input and output.

# %%
lost = predict(
    "A model calls the server's tool for `attic`, of which the register knows nothing. What happens?",
    "the error ends this program",
    "the model is told in words that nothing is known",
    "the model gets an empty answer",
)

# %%
# NBVAL_CHECK_OUTPUT
with ToolServer([sys.executable, "-m", "minirlhf_course.chapters.ch17_tools.register"]) as server:
    box = server.toolbox()
    print(calls.describe_tools(box.schemas, "python"), "\n")
    print("resources:", server.resources(), "\n  which say:", server.read("register://places"))
    print("prompts:", server.prompts(), "\n  filled in:", server.prompt("find", place="gold"), "\n")
    for turn in ('<tool_call>lookup(place="gold")</tool_call>', '<tool_call>lookup(place="attic")</tool_call>'):
        [call] = calls.read_calls(turn, box.schemas).calls
        answer = box.execute(call)
        print(turn, "\n   ", answer.content)
said = "the model is told in words that nothing is known" if answer.content else "the model gets an empty answer"
lost.reveal(said)

# %% [markdown]
# What a tool of this file could do, a tool of another program can, by the same `Toolbox`: a failure becomes a sentence, and the program goes on. But the description above came from whoever wrote the server, and it stands in the model's system message.
#
# ## A thought that decides
#
# On a walk the sum of the digits so far, modulo 10, leads to the next name, and most names belong to two sums. Where nothing is known of a name, the next one in the list is asked.

# %%
# NBVAL_CHECK_OUTPUT
walk = trail.Walk("red", 3, {"red": "4", "gold": "9", "blue": "5", "pink": "0", "grey": "0"})
for message in trail.talk(walk, "thinks"):
    print(f"{message['role']:10} {message['content']}")

# %% [markdown]
# Small models were shown such conversations with these thoughts and without (five seeds). Then a wrong sum was written into the first thought of those that think.

# %%
led = predict(
    "The thought says a wrong sum, which leads to another name. Where does the next call go, mostly?",
    "where the right sum leads",
    "where the wrong sum leads",
    "somewhere else",
)

# %%
# figure: walks
# alt: Two panels, means of five seeds as bars and each seed as a dot. Left, how many walks of three digits are right so far: with the sum so far as a thought two calls and three are right in all walks and the answer in nearly all;
#   with nothing before an act two calls are right in nearly all, three in about two of five, the answer in about one of seven. Right, where the next call goes after a falsified thought: never where the right sum leads,
#   always where the wrong sum leads.
ways = {"thinks": "the sum so far", "acts": "nothing"}
looks = {"call_2": "two calls", "call_3": "three calls", "right": "answer"}
fig, axes = plt.subplots(1, 2, figsize=(9.4, 2.9), layout="constrained", width_ratios=(3, 1), sharey=True)
for i, (way, colour) in enumerate(zip(ways, ("blue", "red"), strict=True)):
    for at, look in enumerate(looks):
        found = walked.values(f"{way}_3_{look}")
        axes[0].bar(
            at + 0.32 * (i - 0.5), mean(found), 0.3, color=PALETTE[colour], label=ways[way] if at == 0 else None
        )
        axes[0].plot([at + 0.32 * (i - 0.5)] * len(found), found, "o", ms=3, color=PALETTE["black"], alpha=0.6)
axes[0].set(title="share of walks of three digits that are right so far", xticks=range(3), xticklabels=looks.values())
axes[0].legend(frameon=False, title="before each act", loc="center left", bbox_to_anchor=(1, 0.5))
went = {"right sum": walked.values("thinks_3_keeps"), "wrong sum": walked.values("thinks_3_follows")}
axes[1].bar(range(2), [mean(values) for values in went.values()], 0.5, color=PALETTE["blue"])
for at, values in enumerate(went.values()):
    axes[1].plot([at] * len(values), values, "o", ms=3, color=PALETTE["black"], alpha=0.6)
axes[1].set(title="where a falsified thought leads", xticks=range(2), xticklabels=went)
axes[0].set_ylim(0, 1.03)
plt.show()
right, wrong = (mean(values) for values in went.values())
shares = {"where the right sum leads": right, "where the wrong sum leads": wrong, "somewhere else": 1 - right - wrong}
led.reveal(max(shares, key=shares.get))

# %% [markdown]
# With thoughts nearly all is found. Without them the second call is right, too, as the digit just read is enough for it; the third needs more, the sum so far, and that nobody has written down. (Name and digit just read would be enough in three of four walks; acting alone has not learnt even that. Both were shown as many walks, in as many steps; with more, acting alone might do better.) The thought is not decoration: what it says is what is done.
#
# ## Set the price
#
# A right answer earns 1, and a call costs `COST`, whatever the answer. From its head the model is right at a place as often as the usual value still holds. Choose a price, and say at which places a trained model will ask.

# %%
COST = 0.6

# %%
asks_at = predict(
    "A call costs .6. After training, at which places does the model ask in more than a tenth of the cases?",
    "all of them",
    "none of them",
    "those whose usual value is right in fewer than four cases of ten",
    "those whose usual value is right in more than four cases of ten",
)

# %%
# The model has been shown answers from the head and answers after a call, at each place in a mixture of its own.
[begin] = [facts.imitator(0) for _ in progress([0], "demonstrations")]
[trained] = [facts.improved(begin, COST, 0) for _ in progress([0], "reinforcement learning")]
before, after = (facts.measured(model, COST) for model in (begin, trained))
print("usual value right    worth of a call    asks before    after")
for place, steady in sorted(STEADY.items(), key=lambda item: item[1]):
    print(f"{steady:12.1f} {1 - COST - steady:18.1f} {before.asks(place):16.2f} {after.asks(place):10.2f}")
print(f"\nreward {before.reward:.2f} before, {after.reward:.2f} after")
print(
    f"best for each place {mean([max(1 - COST, p) for p in STEADY.values()]):.2f}, one answer for all places {max(1 - COST, mean(STEADY.values())):.2f}"
)
asked = [steady for place, steady in STEADY.items() if after.asks(place) > 0.1]
if len(asked) in (0, len(STEADY)):
    asks_at.reveal("all of them" if asked else "none of them")
else:
    asks_at.reveal(
        f"those whose usual value is right in {'fewer' if max(asked) < 0.5 else 'more'} than four cases of ten"
    )

# %% [markdown]
# Worths and best rewards are those of a policy that reads without error. Now the same at four prices, five seeds each. Asking pays at a place while $p_{\text{read}} - c$ exceeds how often its usual value is right. How well a policy reads is seen where nearly all ask, at a price of .2.

# %%
cheap = predict(
    "A call costs .2, so that it pays at four places of five. What does training from these demonstrations lead to, mostly?",
    "asking at these four and not at the fifth",
    "asking everywhere",
    "asking nowhere",
)

# %%
# figure: asking
# alt: Share of conversations with a call after training, against how often the usual value is right, at prices of .2, .4, .6 and .8, one panel each; thin lines for five seeds, a thick line for their mean, and a
#   dashed vertical line at the break-even, the share that is read right less the price. At .2 every run asks at every place, also beyond the break-even. At .4 three runs fall from asking to not asking between the
#   places on either side of the line, and two ask everywhere. At .6 no run asks to the right of the line, and to its left some do. At .8 hardly any run asks anywhere.
fig, axes = plt.subplots(1, 4, figsize=(9.4, 2.9), layout="constrained", sharey=True)
levels = sorted(STEADY.values())
reads = mean(priced.values("cost20_right"))
for ax, cost in zip(axes, (0.2, 0.4, 0.6, 0.8), strict=True):
    columns = [priced.values(f"cost{round(100 * cost)}_asks_{round(100 * p)}") for p in levels]
    for row in zip(*columns, strict=True):
        ax.plot(levels, row, lw=0.9, alpha=0.6, color=PALETTE["sky"])
    ax.plot(levels, [mean(column) for column in columns], "o-", lw=2, ms=4, color=PALETTE["blue"])
    ax.axvline(reads - cost, ls="--", lw=1.2, color=PALETTE["red"])
    ax.set(title=f"price {cost:.1f}", xlabel="usual value right", xticks=levels, ylim=(-0.03, 1.03))
axes[0].set_ylabel("asks")
plt.show()
everywhere = sum(
    min(row) > 0.5 for row in zip(*(priced.values(f"cost20_asks_{round(100 * p)}") for p in levels), strict=True)
)
placed = sum(x == 5 for x in priced.values("cost20_as_predicted"))
cheap.reveal("asking everywhere" if everywhere > placed else "asking at these four and not at the fifth")

# %%
assert priced.all_exceed("cost20_asks", "cost80_asks") and priced.holds("cost80_asks", below=0.5)

# %% [markdown]
# **What to notice.** The price decides whether the model asks at all. Place by place it is slower: the worth of a call, averaged over places, moves all of them at once, and where a policy always asks, or never does, nothing more is tried. What the prediction says of each place is where the reward would be highest, not where sixty steps lead.
#
# ## A tool that lies
#
# This register guesses in two of five calls, and nine of ten guesses are wrong; calls are free. At a place whose usual value is right nine times in ten one can answer from the head, ask once and believe, or ask twice, believe what agrees and otherwise take the usual value.

# %%
liar = predict("Which earns most at this place?", "head", "once", "twice")

# %%
# NBVAL_CHECK_OUTPUT
print("usual value right     head     once     twice")
for steady in sorted(STEADY.values()):
    worths = facts.worths(steady, lie=0.4)
    print(f"{steady:12.1f}      " + "".join(f"{worth:9.3f}" for worth in worths))
liar.reveal(facts.WAYS[max(range(3), key=lambda i: worths[i])])

# %% [markdown]
# Believing once is worse here than not asking. Asking twice is better than either, though only just: two lies seldom agree, so that what agrees is nearly always true, and the head is there for the rest.
#
# ## On purpose: the tool's words as one's own
#
# The mask of a rollout is 1 where the policy spoke. Leave it out, and the policy is trained to *say* what the tool says, too.

# %%
worse = predict(
    "Twenty-five steps, free calls, with the mask and without: which of these differs most between the two runs, as a share of what it is with the mask?",
    "how often the model asks",
    "how often it is right",
    "how much the tool's words surprise it",
)

# %%
plan = replace(facts.IMPROVE, max_steps=25)
runs = {
    name: facts.measured(facts.improved(begin, 0.0, 0, plan, kind=kind), 0.0)
    for name, kind in progress({"masked": ToolEnv, "all words": LearnsAll}.items(), "training")
}
free = facts.measured(begin, 0.0)
print("              asks    right    −log π of the tool's words")
for name, found in (("before", free), *runs.items()):
    print(f"{name:12}{1 - found.mean('head'):6.2f}{found.right:9.2f}{found.surprise:14.2f} nats")
looks = {
    "how often the model asks": lambda found: 1 - found.mean("head"),
    "how often it is right": lambda found: found.right,
    "how much the tool's words surprise it": lambda found: found.surprise,
}
gap = {name: abs(1 - look(runs["all words"]) / look(runs["masked"])) for name, look in looks.items()}
worse.reveal(max(gap, key=gap.get))

# %%
# figure: unmasked
# alt: Three panels from the study with the calculator, five seeds. Left, the share of conversations with a call over the steps of training: under the mask nearly all ask after ten steps in every seed, with all words learned
#   after twenty. Middle, the share of right answers: under the mask two in three after eight steps, with all words learned fewer than half in every seed; at the end of both nearly nine in ten. Right, surprise of the
#   tool's words in nats per token: between five and a half and seven and a half before and under the mask, near two when all words are learned.
fig, axes = plt.subplots(1, 3, figsize=(9.4, 2.9), layout="constrained", width_ratios=(3, 3, 2))
BLOCK, ways = 4, {"masked": ("masked", "blue"), "all": ("all words", "red")}
for ax, what, title in ((axes[0], "call", "share that ask"), (axes[1], "right", "share of right answers")):
    for way, (label, colour) in ways.items():
        curves = [unmasked.values(f"{way}_{what}_{step}") for step in range(1, 37)]  # step by step, the seeds of each
        blocks = [[mean(seed) for seed in zip(*curves[i : i + BLOCK], strict=True)] for i in range(0, 36, BLOCK)]
        middles = [i + (BLOCK + 1) / 2 for i in range(0, 36, BLOCK)]
        ax.plot(middles, blocks, lw=0.9, alpha=0.5, color=PALETTE[colour])
        ax.plot(middles, [mean(block) for block in blocks], lw=2, color=PALETTE[colour], label=label)
    ax.set(title=title, xlabel="step", ylim=(0, 1.03))
axes[1].legend(frameon=False, loc="lower right")
names = ("sft_surprise", "masked_surprise", "all_surprise")
for row in zip(*(unmasked.values(name) for name in names), strict=True):
    axes[2].plot(range(3), row, "o-", ms=4, lw=1, color=PALETTE["black"], alpha=0.5)
axes[2].set(title="surprise of the tool's words", ylabel="nats per token", xlim=(-0.3, 2.3), ylim=(0, None))
axes[2].set_xticks(range(3), ["before", "masked", "all words"])
plt.show()

# %%
assert unmasked.all_exceed("masked_early", "all_early") and unmasked.all_exceed("masked_surprise", "all_surprise")
assert runs["all words"].surprise < runs["masked"].surprise

# %% [markdown]
# In the world of the calculator, where a call says three or four digits that nobody can guess, the lesson that nobody needs costs time: asking, and with it right answers, comes later (left and middle panel).
#
# ## What a turn has earned
#
# A text adventure: fetch the key, open the door, take the treasure, in at most seven turns. With a bonus of .3 for key and door, each turn may be credited with the whole course or with what comes from it on, and compared with the mean of the group or with that of the same turn. All $4^7$ courses can be listed, so that the variance of each estimate of the gradient is exact.

# %%
for bonus in progress([0.0, adventure.BONUS], "every course is played"):
    adventure.courses(bonus)

# %%
calm = predict(
    "Which has the smallest variance?",
    "whole course, mean of the group",
    "from the turn on, mean of the group",
    "from the turn on, mean of the same turn",
)

# %%
# NBVAL_CHECK_OUTPUT
credits = {
    "whole course, mean of the group": (False, adventure.mean_of_group),
    "from the turn on, mean of the group": (True, adventure.mean_of_group),
    "from the turn on, mean of the same turn": (True, adventure.mean_of_turn),
}
policy, variance = adventure.taught(), {}
print(f"{'':42}reward at the end    with bonuses")
for name, (by_turn, baseline) in credits.items():
    both = [adventure.credit(policy, bonus, by_turn=by_turn, baseline=baseline) for bonus in (0.0, adventure.BONUS)]
    variance[name] = float(both[1]["variance"])
    print(f"{name:42}{float(both[0]['variance']):12.4f}{variance[name]:18.4f}")
calm.reveal(min(variance, key=variance.get))

# %%
first, second, third = (
    adventure.credit(policy, adventure.BONUS, by_turn=by_turn, baseline=baseline)["mean"]
    for by_turn, baseline in credits.values()
)
torch.testing.assert_close(first, second, rtol=0, atol=1e-12)
torch.testing.assert_close(first, third, rtol=0, atol=1e-12)

# %% [markdown]
# All three have the same mean. With one reward at the end the first two are the same number. With bonuses the right return against the wrong baseline is worse than the whole course.
#
# And does a language model that plays it learn faster? From the study, eight seeds: it imitates courses of which one in twenty-five succeeds, and learns by Dr. GRPO from 32 courses a step.

# %%
# figure: player
# alt: Two panels, the share of courses that find the treasure over the steps, a thin line for each of eight seeds and a thick one for their mean. Left, at the smaller learning rate, both kinds of credit rise from nearly none to more than four
#   in five; turns are ahead on the way, and one run of whole courses finds no treasure in its first ten steps. Right, at the larger one, both rise faster; one run of whole courses is behind the others and breaks down after step 20, from about four in five to less than one in five,
#   and ends at two in five; one of turns falls as low as a third for a single step.
fig, axes = plt.subplots(1, 2, figsize=(8.4, 3.1), layout="constrained", sharey=True)
for ax, (pace, rate) in zip(axes, {"slow": ".001", "fast": ".002"}.items(), strict=True):
    for arm, label, colour in (("course", "whole courses", "red"), ("turn", "turns", "blue")):
        curves = [player.values(f"{arm}_{pace}_{step}") for step in range(1, 25)]  # step by step, the seeds of each
        ax.plot(range(1, 25), curves, lw=0.6, alpha=0.35, color=PALETTE[colour])
        ax.plot(range(1, 25), [mean(seeds) for seeds in curves], lw=2, color=PALETTE[colour], label=label)
    ax.set(title=f"credit at a learning rate of {rate}", xlabel="step", ylim=(0, 1.03))
axes[0].set_ylabel("share that find the treasure")
axes[0].legend(frameon=False, loc="upper left")
plt.show()

# %% [markdown]
# Turns are ahead on the way at either rate, in seven of eight runs, by less than eight seeds resolve among six comparisons (the lead at .001, looked at by itself, would be told apart). And one run of whole courses each makes a third of the lead at .001, where it finds no treasure in its first ten steps, and half of that at .002, where it is slow (.31 at step 10, the others .47 to .84) and breaks down after step 20, from .78 to .16 within two steps.
#
# How much of the lead one sees depends on the rates: where each has the one that was better for it on two other seeds, .001 for whole courses and .002 for turns, it is twice as large, and told apart among the six.

# %%
arms = [f"{arm}_{pace}_mean" for arm in ("turn", "course") for pace in ("slow", "fast")]
lead = player.differences(arms)  # all six pairs, as one family
for label, pair in {
    "both at .001": ("turn_slow_mean", "course_slow_mean"),
    "both at .002": ("turn_fast_mean", "course_fast_mean"),
    "turns at .002, whole courses at .001": ("turn_fast_mean", "course_slow_mean"),
}.items():
    low, high = lead[pair].interval
    print(f"turns lead by {lead[pair].mean:.2f} ({low:+.2f} to {high:+.2f}), in {lead[pair].above} of 8 runs: {label}")

# %%
assert lead["turn_fast_mean", "course_slow_mean"].significant
assert not lead["turn_slow_mean", "course_slow_mean"].significant
assert not lead["turn_fast_mean", "course_fast_mean"].significant

# %%
predict.tally()

# %% [markdown]
# ## Now you
#
# * Set `COST` to .5, where asking is worth on average as much as not asking. Does the model tell the places apart better or worse than at .2?
# * Give `facts.improved` a tool that lies (`lie=0.4`) and begin with `facts.imitator(0, facts.THREE_WAYS)`. Does it learn to ask twice? And at a price of .2?
# * In the adventure, double `BONUS`. How much variance does turn credit now save?
#
# The graded exercises of this chapter: `minirlhf check 17`.
