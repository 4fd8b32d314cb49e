# %% [markdown]
# # 17 · When does a tool call pay?
#
# A model can answer from memory, or call a tool and read the result. **When should it call? Does training find this out? And what happens if the loss includes the tool's tokens?**
#
# The task has five places. Each has a usual value, which the model knows. Today's value is still the usual value with a probability of .1 to .9, place by place. A register knows today's value, and a call has a price.

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
    """Return the mean of a list."""
    return sum(values) / len(values)


# %% [markdown]
# ## A call is a text
#
# The system message contains everything that a model knows about its tools.

# %%
# NBVAL_CHECK_OUTPUT
tools = Toolbox([calculator, run_python])
print(calls.describe_tools(tools.schemas, "python"))

# %% [markdown]
# A reader must handle anything that the model writes. Here are four turns.

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
# The reader does not make a call inside a thought. It accepts a missing end mark. It refuses an argument that would need evaluation, and gives a reason that the model can read.
#
# ## MCP: tools of another program
#
# A *server* of the Model Context Protocol is a separate program. It offers tools for a model to call, resources for an application to show, and prompts for a user to choose. This one is the register that knows today's values (`minirlhf_course/chapters/ch17_tools/register.py`). We start it here, and every line below went through its standard input and output. Client and server speak the revisions of the protocol up to November 2025, which begin with a handshake.

# %%
lost = predict(
    "A model calls the server's tool for `attic`, which the register does not know. What happens?",
    "the error ends this program",
    "the model gets a sentence that says so",
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
said = "the model gets a sentence that says so" if answer.content else "the model gets an empty answer"
lost.reveal(said)

# %% [markdown]
# With the same `Toolbox`, a tool of another program works like a tool of this file: a failure becomes a sentence, and the program continues. But the author of the server wrote the description above, and it becomes part of the model's system message.
#
# ## Does the thought decide the action?
#
# On a walk the sum of the digits so far, modulo 10, leads to the next name, and most names belong to two sums. If a name is unknown, the next name in the list is looked up.

# %%
# NBVAL_CHECK_OUTPUT
walk = trail.Walk("red", 3, {"red": "4", "gold": "9", "blue": "5", "pink": "0", "grey": "0"})
for message in trail.talk(walk, "thinks"):
    print(f"{message['role']:10} {message['content']}")

# %% [markdown]
# We trained small models on such conversations with these thoughts and without (five seeds). More than half of the test walks have the same names and digits as a training walk, for both. Then we wrote a wrong sum into the first thought of the models with thoughts.

# %%
led = predict(
    "The thought contains a wrong sum, which leads to another name. Where do most of the next calls go?",
    "where the right sum leads",
    "where the wrong sum leads",
    "somewhere else",
)

# %%
# figure: walks
# alt: Two panels, means of five seeds as bars and each seed as a dot. Left, the fraction of walks of three digits that are right so far: with the sum so far as a thought two calls and three are right in all walks and the answer in nearly all;
#   with nothing before an action two calls are right in nearly all, three in about two of five, the answer in about one of seven. Right, where the next call goes after a falsified thought: never where the right sum leads,
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
axes[0].set(title="fraction of walks of three digits, right so far", xticks=range(3), xticklabels=looks.values())
axes[0].legend(frameon=False, title="before each action", loc="center left", bbox_to_anchor=(1, 0.5))
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
# With thoughts nearly all walks are right. Without thoughts the second call is right, too, since it needs only the digit just read. The third call needs the sum so far, which is written nowhere. The name and the digit just read would be enough in three of four walks, and acting alone has not learned even that. Both arms had the same number of walks and steps; with more, acting alone might do better. The thought decides the action.
#
# ## Set the price of a call
#
# A right answer gets a reward of 1, and a call costs `COST`. From memory the model is right at a place as often as the usual value still holds. Choose a price, and predict at which places a trained model will call.

# %%
COST = 0.6

# %%
asks_at = predict(
    "A call costs .6. After training, at which places does the model call in more than 10 % of cases?",
    "all of them",
    "none of them",
    "those whose usual value is right in fewer than four cases of ten",
    "those whose usual value is right in more than four cases of ten",
)

# %%
# The demonstrations contain answers from memory and answers after a call, in another mixture at each place.
[begin] = [facts.imitator(0) for _ in progress([0], "demonstrations")]
[trained] = [facts.improved(begin, COST, 0) for _ in progress([0], "reinforcement learning")]
before, after = (facts.measured(model, COST) for model in (begin, trained))
print("usual value right    value of a call   calls before    after")
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
# The values and the best rewards hold for a policy that reads without error. Now the same at four prices, five seeds each. A call pays at a place while $p_{\text{read}} - c$ exceeds the probability that its usual value is right. We take $p_{\text{read}}$ from the runs at a price of .2, where nearly all conversations call.

# %%
cheap = predict(
    "A call costs .2, so that it pays at four places of five. What do most runs learn from these demonstrations?",
    "calling at these four and not at the fifth",
    "calling everywhere",
    "calling nowhere",
)

# %%
# figure: asking
# alt: Fraction of conversations with a call after training, against the probability that the usual value is right, at prices of .2, .4, .6 and .8, one panel each; thin lines for five seeds, a thick line for their mean, and a
#   dashed vertical line at the break-even, the probability of a right answer after reading minus the price. At .2 every run calls at every place, also beyond the break-even. At .4 three runs fall from calling to not calling between the
#   places on either side of the line, and two call everywhere. At .6 no run calls to the right of the line, and to its left some do. At .8 hardly any run calls anywhere.
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
axes[0].set_ylabel("calls")
plt.show()
everywhere = sum(
    min(row) > 0.5 for row in zip(*(priced.values(f"cost20_asks_{round(100 * p)}") for p in levels), strict=True)
)
placed = sum(x == 5 for x in priced.values("cost20_as_predicted"))
cheap.reveal("calling everywhere" if everywhere > placed else "calling at these four and not at the fifth")

# %%
assert priced.all_exceed("cost20_asks", "cost80_asks") and priced.holds("cost80_asks", below=0.5)

# %% [markdown]
# **What to notice.** The price decides whether the model calls at all. The individual places follow more slowly. A likely reading: the shared weights follow the value of a call averaged over places, and a policy that always or never calls tries nothing else. The formula gives the optimum for each place, not the result of sixty steps.
#
# ## A tool with silent errors
#
# This register guesses in 40 % of calls, and 90 % of the guesses are wrong. Calls are free. Take a place whose usual value is right in 90 % of cases. The policy can answer from memory, call once and believe, or call twice, believe agreement and otherwise take the usual value.

# %%
liar = predict("Which has the highest expected reward at this place?", "head", "once", "twice")

# %%
# NBVAL_CHECK_OUTPUT
print("usual value right     head     once     twice")
for steady in sorted(STEADY.values()):
    worths = facts.worths(steady, lie=0.4)
    print(f"{steady:12.1f}      " + "".join(f"{worth:9.3f}" for worth in worths))
liar.reveal(facts.WAYS[max(range(3), key=lambda i: worths[i])])

# %% [markdown]
# Calling once is worse here than not calling. Calling twice is better than both, by a small margin. Two wrong values seldom agree, so an agreement is nearly always right, and the usual value covers the rest.
#
# ## On purpose: a loss without the mask
#
# The mask of a rollout is 1 at the policy's tokens. Without the mask, the policy is also trained to *say* the tool's tokens.

# %%
worse = predict(
    "We train for twenty-five steps with free calls, with the mask and without. Which of these differs most between the two runs, relative to its value with the mask?",
    "how often the model calls",
    "how often it is right",
    "the surprise of the tool's tokens",
)

# %%
plan = replace(facts.IMPROVE, max_steps=25)
runs = {
    name: facts.measured(facts.improved(begin, 0.0, 0, plan, kind=kind), 0.0)
    for name, kind in progress({"masked": ToolEnv, "all tokens": LearnsAll}.items(), "training")
}
free = facts.measured(begin, 0.0)
print("             calls    right    −log π of the tool's tokens")
for name, found in (("before", free), *runs.items()):
    print(f"{name:12}{1 - found.mean('head'):6.2f}{found.right:9.2f}{found.surprise:14.2f} nats")
looks = {
    "how often the model calls": lambda found: 1 - found.mean("head"),
    "how often it is right": lambda found: found.right,
    "the surprise of the tool's tokens": lambda found: found.surprise,
}
gap = {name: abs(1 - look(runs["all tokens"]) / look(runs["masked"])) for name, look in looks.items()}
worse.reveal(max(gap, key=gap.get))

# %%
# figure: unmasked
# alt: Three panels from the study with the calculator, five seeds. Left, the fraction of conversations with a call over the steps of training: with the mask nearly all call after ten steps in every seed, with all tokens learned
#   after twenty. Middle, the fraction of right answers: with the mask two in three after eight steps, with all tokens learned fewer than half in every seed; at the end of both nearly nine in ten. Right, surprise of the
#   tool's tokens in nats per token: between five and a half and seven and a half before and with the mask, near two when all tokens are learned.
fig, axes = plt.subplots(1, 3, figsize=(9.4, 2.9), layout="constrained", width_ratios=(3, 3, 2))
BLOCK, ways = 4, {"masked": ("masked", "blue"), "all": ("all tokens", "red")}
for ax, what, title in ((axes[0], "call", "fraction with a call"), (axes[1], "right", "fraction of right answers")):
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
axes[2].set(title="surprise of the tool's tokens", ylabel="nats per token", xlim=(-0.3, 2.3), ylim=(0, None))
axes[2].set_xticks(range(3), ["before", "masked", "all tokens"])
plt.show()

# %%
assert unmasked.all_exceed("masked_early", "all_early") and unmasked.all_exceed("masked_surprise", "all_surprise")
assert runs["all tokens"].surprise < runs["masked"].surprise

# %% [markdown]
# In the calculator task a call returns three or four digits that the model cannot guess. With all tokens in the loss, calls and with them right answers come later (left and middle panel). We did not separate two possible causes: updates that imitate the digits, and Adam's scale.
#
# ## Turn-level credit
#
# In a text adventure the policy fetches the key, opens the door and takes the treasure, in at most seven turns. With a bonus of .3 for key and door, each turn may get the return of the whole episode or the return from this turn on. The baseline may be the mean of the group or of the same turn. We list all $4^7$ episodes and take the exact means as baselines. So the variance of each gradient estimate is exact in the limit of a large group.

# %%
for bonus in progress([0.0, adventure.BONUS], "listing all episodes"):
    adventure.courses(bonus)

# %%
calm = predict(
    "Which estimate has the smallest variance?",
    "whole episode, mean of the group",
    "from the turn on, mean of the group",
    "from the turn on, mean of the same turn",
)

# %%
# NBVAL_CHECK_OUTPUT
credits = {
    "whole episode, mean of the group": (False, adventure.mean_of_group),
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
# All three have the same mean. With one reward at the end the first two are the same number. With bonuses the right return with the wrong baseline has a higher variance than the whole episode.
#
# Does a language model that plays the adventure learn faster? From the study, eight seeds: it imitates episodes of which one in twenty-five succeeds, and learns by Dr. GRPO from 32 episodes per step.

# %%
# figure: player
# alt: Two panels, the fraction of episodes that find the treasure over the steps, a thin line for each of eight seeds and a thick one for their mean. Left, at the smaller learning rate, both credit-assignment methods rise from nearly none to more than four
#   in five; turn credit is higher on the way, and one run of trajectory credit finds no treasure in its first ten steps. Right, at the larger rate, both rise faster; one run of trajectory credit is below the others and collapses after step 20, from about four in five to less than one in five,
#   and ends at two in five; one run of turn credit falls to a third for a single step.
fig, axes = plt.subplots(1, 2, figsize=(8.4, 3.1), layout="constrained", sharey=True)
for ax, (pace, rate) in zip(axes, {"slow": ".001", "fast": ".002"}.items(), strict=True):
    for arm, label, colour in (("course", "trajectory credit", "red"), ("turn", "turn credit", "blue")):
        curves = [player.values(f"{arm}_{pace}_{step}") for step in range(1, 25)]  # step by step, the seeds of each
        ax.plot(range(1, 25), curves, lw=0.6, alpha=0.35, color=PALETTE[colour])
        ax.plot(range(1, 25), [mean(seeds) for seeds in curves], lw=2, color=PALETTE[colour], label=label)
    ax.set(title=f"learning rate {rate}", xlabel="step", ylim=(0, 1.03))
axes[0].set_ylabel("fraction with the treasure")
axes[0].legend(frameon=False, loc="upper left")
plt.show()

# %% [markdown]
# At equal rates turn credit is higher on the way in seven of eight runs, but the difference is not significant after correction for six comparisons. (At .001 it would be, uncorrected.) One bad run of trajectory credit accounts for 1/3 of the difference at .001: it finds no treasure in its first ten steps. Another accounts for half of the difference at .002. It is slow (.31 at step 10, the others .47 to .84) and collapses after step 20, from .78 to .16 within two steps.
#
# The third row below compares rates that were chosen on two other seeds, .001 for trajectory credit and .002 for turn credit. This difference is twice as large, and significant. But the choice was wrong for trajectory credit: on these eight seeds it does better at .002 in seven runs. So the third row measures the choice of the rate as much as the credit. It is no evidence for turn credit.

# %%
arms = [f"{arm}_{pace}_mean" for arm in ("turn", "course") for pace in ("slow", "fast")]
lead = player.differences(arms)  # all six pairs, as one family
for label, pair in {
    "both at .001": ("turn_slow_mean", "course_slow_mean"),
    "both at .002": ("turn_fast_mean", "course_fast_mean"),
    "turn credit at .002, trajectory credit at .001": ("turn_fast_mean", "course_slow_mean"),
}.items():
    low, high = lead[pair].interval
    print(
        f"turn credit − trajectory credit {lead[pair].mean:.2f} [{low:+.2f}, {high:+.2f}], higher in {lead[pair].above} of 8 runs: {label}"
    )

# %%
assert lead["turn_fast_mean", "course_slow_mean"].significant
assert not lead["turn_slow_mean", "course_slow_mean"].significant
assert not lead["turn_fast_mean", "course_fast_mean"].significant

# %%
predict.tally()

# %% [markdown]
# ## Now you
#
# * Set `COST` to .5, where a call has on average the value 0. Does the model distinguish the places better or worse than at .2?
# * Give `facts.improved` a tool with silent errors (`lie=0.4`) and begin with `facts.imitator(0, facts.THREE_WAYS)`. Does it learn to call twice? And at a price of .2?
# * In the adventure, double `BONUS`. How much variance does turn credit remove now?
#
# The graded exercises of this chapter: `minirlhf check 17`.
