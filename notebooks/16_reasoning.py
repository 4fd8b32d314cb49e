# %% [markdown]
# # 16 · Reasoning: what a reward measures, and what a model learns
#
# A program can say whether an answer is right. **What does a model learn from such a reward? What does it learn from a reward without information? And what can be gained at inference instead of in training?**
#
# The task is the shell game of chapter 13. A small model has been fine-tuned on demonstrations. One in five has a chain of thought before the answer; the others are the direct answer. All are right, but a model that answers directly has to guess.

# %%
import matplotlib.pyplot as plt
import torch

from minirlhf.core.progress import progress
from minirlhf.equations.reasoning import compute_curve, vote_totals
from minirlhf.feedback import graders
from minirlhf.stages import zoo
from minirlhf.stages.pipeline import Trained
from minirlhf_course import evidence
from minirlhf_course.chapters.ch16_reasoning import shell, tables
from minirlhf_course.chapters.ch16_reasoning.asked_length import ASKED
from minirlhf_course.chapters.ch16_reasoning.inference import accuracy, pass_at, sample_tries
from minirlhf_course.classroom.predictions import Predictions
from minirlhf_course.report.plotting import PALETTE

plt.rcParams.update({"font.size": 9, "axes.spines.top": False, "axes.spines.right": False})

told, paid = (
    evidence.StudyResults("ch16_inference"),
    evidence.StudyResults("ch16_rewards"),
)  # several seeds of what runs below
lengths, exact = evidence.StudyResults("ch16_length"), evidence.StudyResults("ch16_narrowing")
predict = Predictions("16")
begin = Trained(*zoo.load("shell-game-sft"))


def mean(values):
    """Of a list."""
    return sum(values) / len(values)


# %% [markdown]
# ## What graders accept by mistake
#
# Five completions of "Ann has 12 apples and gives 5 away. How many are left?" The reference is 7.

# %%
which = predict(
    "Which grader accepts the completion that names several numbers, the right one among them?",
    "numeric",
    "contains",
    "gsm8k",
)

# %%
# NBVAL_CHECK_OUTPUT
replies = [
    "7",
    "12 - 5 = 7, so #### 7.00",
    "It is 6, or 7, or 8",
    "#### 7 apples",
    "<think>hm</think><answer>8</answer>",
]
names = ("exact", "contains", "numeric", "gsm8k", "think")
print(f"{'':36}" + "".join(f"{name:>10}" for name in names))
earned = {}
for reply in replies:
    earned[reply] = {name: graders.get(name)(reply, "7") for name in names}
    print(f"{reply:36}" + "".join(f"{grade:10g}" for grade in earned[reply].values()))
which.reveal(next(name for name in ("numeric", "contains", "gsm8k") if earned[replies[2]][name] == 1))

# %% [markdown]
# Each column is another grader. The last completion has the format of a thought, only *hm* in it, and the wrong answer. A grader accepts everything that it does not forbid.
#
# ## Test-time compute: votes and verifiers
#
# The model answers 60 games it has not seen, 32 times each. A vote takes the answer of most completions; `vote_totals` counts, with a weight for each completion.

# %%
best = predict(
    "32 completions of each game. Which choice has the highest accuracy?",
    "the majority of all completions",
    "the majority of completions with a chain of thought",
    "the most probable completion",
)

# %%
[tries] = [sample_tries(begin, "test", 0, 60, 32, 100) for _ in progress([1], "sampling")]
thinks = torch.tensor([[float(text.startswith("think")) for text in texts] for texts in tries.texts])
game = next(i for i, row in enumerate(thinks.mean(-1).tolist()) if 0 < row < 1)
print(f"{tries.prompts[game]}\n")
for aloud in (False, True):
    print(next(text for text in tries.texts[game] if text.startswith("think") == aloud))
print(f"\n{float(thinks.mean()):.0%} of the completions have a chain of thought")
print(
    f"right: {float(tries.right[thinks == 1].mean()):.2f} of these, {float(tries.right[thinks == 0].mean()):.2f} of the others\n"
)
ways = {
    "the majority of all completions": ("vote", torch.ones_like(thinks)),
    "the majority of completions with a chain of thought": ("vote", thinks),
    "the most probable completion": ("best", tries.logps),
}
print(f"{'accuracy, completions:':52}     1     4    32")
found = {}
for name, (how, values) in ways.items():
    found[name] = [accuracy(tries, values, count, how, 100, 100) for count in (1, 4, 32)]
    print(f"{name:52}" + "".join(f"{x:6.2f}" for x in found[name]))
print(f"{'one of them is right':52}" + "".join(f"{pass_at(tries, k):6.2f}" for k in (1, 4, 32)))
best.reveal(max(found, key=lambda name: found[name][-1]))

# %%
assert float(vote_totals(torch.tensor([7, 7, 3]), torch.tensor([0.2, 0.3, 0.9]))[2]) > 0.5  # the vote of the text
assert found["the majority of completions with a chain of thought"][-1] > 0.9
assert told.holds("vote_thinks_32", above=0.9)
assert told.all_exceed("vote_thinks_8", "vote_plain_8") and told.all_exceed("vote_thinks_32", "best_own_32")

# %% [markdown]
# The most probable completion is mostly a direct answer, which is a guess. The rule "does it have a chain of thought?" needs no training. The figure compares it, over five seeds, with a verifier that was trained on 2,000 graded completions and is used in two ways. The axis counts sampled tokens; the tokens that the verifier reads are not counted.

# %%
# figure: scaling
# alt: Accuracy against tokens per question, on a logarithmic axis, for one to 32 completions. The vote of completions with a chain of thought and the vote weighted by an outcome model
#   and the best by that model rise together from .38 to more than .9. The plain vote rises far more slowly to about .7, and the most probable completion falls on average, within wide seeds. A star at
#   eleven tokens and .98 is one completion after reinforcement learning.
fig, ax = plt.subplots(figsize=(6.4, 3.7), layout="constrained")
COUNTS = (1, 2, 4, 8, 16, 32)
each = mean(told.values("tokens_sft"))
looks = {
    "vote_thinks": ("vote, chain of thought only", "green", "o-"),
    "vote_outcome": ("vote, outcome model", "blue", "s-"),
    "best_outcome": ("best by the outcome model", "sky", "^--"),
    "vote_plain": ("plain vote", "orange", "D-"),
    "best_own": ("most probable completion", "red", "v--"),
}
for name, (label, colour, style) in looks.items():
    columns = [told.values(f"{name}_{count}") for count in COUNTS]
    cost = [each * count for count in COUNTS]
    if name in ("vote_thinks", "vote_plain", "best_own"):
        ax.fill_between(
            cost, [min(c) for c in columns], [max(c) for c in columns], color=PALETTE[colour], alpha=0.13, lw=0
        )
    ax.plot(cost, [mean(c) for c in columns], style, ms=4, color=PALETTE[colour], label=label)
after = (mean(told.values("tokens_rl")), mean(told.values("pass_rl_1")))
ax.plot(*after, "*", ms=13, color=PALETTE["black"])
ax.set_title("accuracy of votes and verifiers, before RL")
ax.annotate("one completion after RL", after, (9, -2), textcoords="offset points")
ax.set(xscale="log", xlabel="tokens per question", ylabel="accuracy", ylim=(0, 1.06), xticks=[5, 10, 20, 50, 100])
ax.set_xticks([], minor=True)
ax.set_xticklabels(["5", "10", "20", "50", "100"])
ax.legend(frameon=False, fontsize=8, loc="upper left", bbox_to_anchor=(1.0, 0.9))
plt.show()

# %% [markdown]
# **What to notice.** The trained verifier reaches about the accuracy of the rule: it has mostly learned to detect a chain of thought. After RL one completion reaches the same accuracy (the star). Training costs once, a vote costs at every question.
#
# ## Control: reward the format alone
#
# Now train. The reward is 1 for *think* at the beginning and any answer at the end, right or wrong. It does not depend on the position of the ball. Sixty rollouts.

# %%
end = predict(
    "The reward is the format of a thought alone. What happens to accuracy?",
    "it stays the same",
    "it rises and stays",
    "it rises and later falls",
    "it falls",
)

# %%
runs = {name: shell.train(name, begin, 100) for name in progress(("right", "shape"), "training")}
print("accuracy at rollout         1    10    20    30    40    50    60   (all except the first are means of five)")
for name, label in (("right", "reward: answer"), ("shape", "reward: format")):
    history = runs[name]
    print(
        f"{label:22}{history['right'][0]:7.2f}"
        + "".join(f"{shell.at(history, 'right', s, 5):6.2f}" for s in range(10, 61, 10))
    )
first, top, last = runs["shape"]["right"][0], max(runs["shape"]["right"]), shell.at(runs["shape"], "right", 60, 5)
if top > first + 0.1:
    end.reveal("it rises and later falls" if last < top - 0.1 else "it rises and stays")
else:
    end.reveal("it falls" if last < first - 0.1 else "it stays the same")

# %%
# figure: shape
# alt: Two panels over sixty rollouts, thin lines for the seeds of the study and a thick one for the run above. Left, the fraction of chains of thought rises from below 30 % to nearly all in every run when the format of a
#   thought is rewarded. Right, accuracy in the same runs rises with it, in a few runs nearly to the level of the run with a reward for answers, a dashed line near .98, in others less far, and falls in most runs, down to about 25 %, which is guessing.
fig, axes = plt.subplots(1, 2, figsize=(9, 3.3), layout="constrained", sharey=True)
steps = (5, 10, 20, 30, 40, 50, 60)
for ax, key, title in zip(axes, ("thinks", "right"), ("chains of thought", "accuracy"), strict=True):
    for row in zip(*(paid.values(f"shape_{key}_{s}") for s in ("start", *steps)), strict=True):
        ax.plot((1, *steps), row, lw=0.9, alpha=0.6, color=PALETTE["red"])
    run = runs["shape"][key]
    ax.plot(range(1, 61), run, lw=2, color=PALETTE["red"], label="reward: format, this run")
    ax.plot(range(1, 61), runs["right"][key], "--", lw=1.3, color=PALETTE["blue"], label="reward: answer, this run")
    ax.set(xlabel="rollout", title=title, ylim=(0, 1.03))
axes[1].axhline(0.25, ls=":", lw=1, color=PALETTE["black"])
axes[1].annotate("guessing", (1, 0.25), (0, -11), textcoords="offset points")
axes[0].legend(frameon=False, loc="lower right")
plt.show()

# %%
assert top > first + 0.15 and paid.all_exceed("shape_right_best", "shape_right_start")
assert runs["shape"]["thinks"][-1] > 0.9 and paid.holds("shape_thinks_60", above=0.9)
assert runs["right"]["right"][-1] > 0.9 and paid.holds("right_right_60", above=0.9)

# %% [markdown]
# The reward rises to 1 and stays there. Accuracy rises with it, while the model begins to write chains of thought, which it could do already. Then nothing ties a chain to the game, and in most runs accuracy falls. If you stop at the best moment, you report a gain from a reward that says nothing about the answer.
#
# ## Can the final reward be predicted?
#
# We fit a sigmoid in the logarithm of the rollouts to the beginning of the run with a reward for answers. One fit has a ceiling of at most 1, as accuracy has. The other one has any ceiling up to 3, as for a reward with an unknown limit.

# %%
early = predict(
    "Fitted to the first 9 of the 60 rollouts of this run (ceiling at most 1): how large is the error at the end?",
    "by less than .02",
    "by .02 to .2",
    "by more than .2",
)

# %%
rewards, finish = runs["right"]["right"], shell.at(runs["right"], "right", 60, 5)
fits = {count: shell.fit_curve(rewards, count) for count in (9, 18, 30)}
grid = torch.arange(1, 61, dtype=torch.float64)
print(
    f"the run ends at {finish:.2f}\nfitted to   ceiling   predicted end   error       (seeds of the study)   without the bound: ceiling, error"
)
misses, missed = {}, {}
for (count, curve), part in zip(fits.items(), (15, 30, 50), strict=True):
    says = float(compute_curve(grid[-1], **curve))
    misses[count] = abs(says - finish)
    seeds = paid.values(f"sigmoid_error_{part}")
    free = shell.fit_curve(rewards, count, torch.linspace(0.05, 3.0, 296, dtype=torch.float64).numpy())
    missed[count] = abs(float(compute_curve(grid[-1], **free)) - finish)
    print(
        f"{count:6} {curve['ceiling']:12.2f} {says:15.2f} {misses[count]:15.3f}   ({min(seeds):.3f} to {max(seeds):.3f}) "
        f"{free['ceiling']:19.2f} {missed[count]:17.3f}"
    )
early.reveal("by less than .02" if misses[9] < 0.02 else "by .02 to .2" if misses[9] < 0.2 else "by more than .2")

# %%
# figure: sigmoid
# alt: Left, accuracy of one run over sixty rollouts on a logarithmic axis, and three sigmoids fitted to the first 9, 18 and 30 of them. The last two end where the run ends; the first levels off somewhat lower. Right,
#   the errors of the fits of all seeds at the end: after 15 percent of the run up to more than one third, after 30 and 50 percent a few hundredths at most.
fig, axes = plt.subplots(1, 2, figsize=(9, 3.3), width_ratios=(3, 2), layout="constrained")
axes[0].plot(grid, rewards, "o", ms=3, color="0.6", label="the run")
for (count, curve), colour, style in zip(fits.items(), ("red", "orange", "blue"), ("--", "-.", "-"), strict=True):
    axes[0].plot(
        grid, compute_curve(grid, **curve), style, lw=1.6, color=PALETTE[colour], label=f"fitted to {count} rollouts"
    )
axes[0].set(xscale="log", xlabel="rollout", ylabel="accuracy", ylim=(0.2, 1.02), xticks=(1, 3, 10, 30, 60))
axes[0].set_title("this run, ceiling at most 1")
axes[1].set_title("all runs, ceiling at most 1")
axes[0].set_xticks([], minor=True)
axes[0].set_xticklabels(["1", "3", "10", "30", "60"])
axes[0].legend(frameon=False, loc="lower right")
for place, part in enumerate((15, 30, 50)):
    errors = paid.values(f"sigmoid_error_{part}")
    axes[1].plot([place] * len(errors), errors, "o", ms=5, alpha=0.5, color=PALETTE[("red", "orange", "blue")[place]])
axes[1].set(
    xticks=range(3),
    xlim=(-0.5, 2.5),
    ylim=(0, None),
    xlabel="fitted fraction of the run",
    ylabel="error at the end",
)
axes[1].set_xticklabels(["15 %", "30 %", "50 %"])
plt.show()

# %%
assert misses[30] < 0.15 and paid.holds("sigmoid_error_50", below=0.15)
assert missed[18] > misses[18]

# %% [markdown]
# With a ceiling of at most 1, a fit predicts the end once the curve has bent; but the bound alone already predicts it. Without the bound the same rollouts do not determine the ceiling. And a sigmoid is monotone: no fit would have warned of the fall in the run above, with a reward for the format.
#
# ## Does RL teach anything new?
#
# There are forty-eight strategies and 300 problems, each solved by some of the strategies. The policy chooses one strategy per try, and is trained by RL on right answers. pass@k is then exact.

# %%
more = predict(
    "256 tries for each problem: which policy solves more problems?",
    "the policy before RL",
    "the policy after RL",
    "both the same",
)

# %%
plan = tables.Narrowing(steps=1200)
table = tables.solved_by(100, plan)
policies = {"before": torch.zeros(plan.strategies, dtype=torch.float64)}
labels = {"rl": "RL", "kl": "RL with a KL term", "sole": "only a sole success is rewarded"}
for name, label in progress(labels.items(), "policies"):
    policies[label] = tables.ARMS[name].improve(table, 100, plan)
print("pass@k, k =                        1      8     64    256")
for name, logits in policies.items():
    print(f"{name:31}" + "".join(f"{tables.pass_at(logits, table, k):7.2f}" for k in (1, 8, 64, 256)))
gap = tables.pass_at(policies["before"], table, 256) - tables.pass_at(policies["RL"], table, 256)
more.reveal("both the same" if abs(gap) < 0.01 else "the policy before RL" if gap > 0 else "the policy after RL")

# %%
# figure: narrowing
# alt: pass@k against the number of tries from 1 to 256 on a logarithmic axis. Before RL it rises from a fifth to 1. After RL it begins far higher and hardly rises; the two lines cross near eight tries. With a
#   KL term it begins almost as high and rises to nearly 1. When only a group's sole success is rewarded it begins lower, is above the others from four tries on and reaches 1.
fig, ax = plt.subplots(figsize=(6, 3.5), layout="constrained")
counts = [2**i for i in range(9)]
for (name, logits), colour, style in zip(
    policies.items(), ("black", "red", "blue", "green"), ("--", "-", "-", "-."), strict=True
):
    ax.plot(
        counts, [tables.pass_at(logits, table, k) for k in counts], style, lw=1.8, color=PALETTE[colour], label=name
    )
ax.set(xscale="log", xlabel="tries k", ylabel="problems solved, pass@k", ylim=(0, 1.03), xticks=counts[::2])
ax.set_title("pass@k, before and after RL")
ax.set_xticks([], minor=True)
ax.set_xticklabels([str(k) for k in counts[::2]])
ax.legend(frameon=False, loc="lower right")
plt.show()

# %%
assert (
    tables.pass_at(policies["RL"], table, 1) > 0.4
    and exact.holds("pass_rl_1", above=0.4)
    and exact.all_exceed("pass_rl_1", "pass_before_1")
)
assert (
    tables.pass_at(policies["RL"], table, 256) < 0.999
    and exact.difference("pass_before_256", "pass_rl_256").significant
)

# %% [markdown]
# One strategy gets nearly all the probability, in most runs the one that solves most problems, which is the optimum for one try. What it does not solve is hardly tried any more: even 256 tries do not recover what the policy solved before RL.
#
# ## The price of a token
#
# Length on request: the last word of the prompt requests a number of steps of thought. The reward is 1 for a right answer, minus α for every step too many or too few. The first step gains hardly any accuracy, the second about .25, the third about .1, the fourth less.

# %%
price = predict("At α = .1, with no step requested: how many steps does the trained model take?", 0, 1, 2, 4, 6)

# %%
# figure: price
# alt: Left, steps of thought taken against steps requested, five seeds each. At a price of .3 a step the points lie near the diagonal, except for one run that takes more than requested at one and two; at .1 they lie between two and a half and six for every request. Right, accuracy against steps requested: at .1 always
#   above .9, at .3 from about a half when none is requested to nearly 1 at five and six.
fig, axes = plt.subplots(1, 2, figsize=(9, 3.3), layout="constrained")
for name, label, colour in (("exact", "α = .3", "blue"), ("cheap", "α = .1", "red")):
    for ax, key in zip(axes, ("steps", "right"), strict=True):
        columns = [lengths.values(f"{name}_{key}_{asked}") for asked in ASKED]
        for asked, column in zip(ASKED, columns, strict=True):
            ax.plot([asked] * len(column), column, "o", ms=3, alpha=0.4, color=PALETTE[colour])
        ax.plot(ASKED, [mean(c) for c in columns], lw=1.6, color=PALETTE[colour], label=label)
axes[0].plot(ASKED, ASKED, ":", color=PALETTE["black"], label="as requested")
axes[0].set(xlabel="steps requested", ylabel="steps taken", title="steps of thought")
axes[1].set(xlabel="steps requested", ylabel="accuracy", ylim=(0, 1.03), title="accuracy")
axes[0].legend(frameon=False)
plt.show()
price.reveal(mean(lengths.values("cheap_steps_0")))

# %%
assert lengths.holds("cheap_steps_0", above=1.0) and lengths.holds("exact_steps_0", below=1.0)

# %% [markdown]
# At the low price the model takes between three and four steps on average when none is requested. The first step gains less than it costs and the second gains more, so several steps together decide. By the mean accuracies, two, three and four steps have nearly the same reward. A model could do better than any fixed number with more steps where there are more swaps; we did not test whether it does this.

# %%
predict.tally()

# %% [markdown]
# ## Now you
#
# * Train on `"majority"` and on `"coin"` (`shell.RUNS`). Which of them can you distinguish from the reward for right answers by the reward curve alone?
# * Reward the format *and* the answer (`graders.weighted` has the pattern; write a reward as in `shell.shape_of_thought`). Does the fall disappear? How small may the weight of the answer be?
# * In the table, let `beta` grow from 0 to .2 and draw pass@1 against pass@64. Where would you stop?
#
# The graded exercises of this chapter: `minirlhf check 16`.
