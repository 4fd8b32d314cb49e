# %% [markdown]
# # 08 · What does a reward model know?
#
# A reward model gives a number to any completion. **What does the number mean, where in the completion does it come from, and when should we stop trusting it?**
#
# We begin with a question that needs no training, and with a bug that raises no error. Then four heads read the same completion token by token. Last, a model reads the same pairs too often.

# %%
import matplotlib.pyplot as plt
import torch

from minirlhf.core.progress import progress
from minirlhf.data import tasks
from minirlhf.data.tasks.running_sum import RUNNING_SUM, STEPS
from minirlhf.equations.reward_losses import bradley_terry_loss, gated_reward
from minirlhf.models.heads import RewardModel
from minirlhf.stages import zoo
from minirlhf.stages.pipeline import RewardPlan, Trained, completion_tokens, pair_tokens
from minirlhf_course import evidence
from minirlhf_course.chapters.ch08_reward_models.assistant_rewards import GradersPlan, epochs, labelled_pairs
from minirlhf_course.chapters.ch08_reward_models.per_token import (
    HeadsPlan,
    largest_drop,
    planted,
    readings,
    train_heads,
    write,
)
from minirlhf_course.classroom.predictions import Predictions
from minirlhf_course.report.plotting import PALETTE

plt.rcParams.update({"font.size": 9, "axes.spines.top": False, "axes.spines.right": False})
predict = Predictions("08")

# %% [markdown]
# ## Subtract five from every reward
#
# Here are three prompts, with a chosen and a rejected completion each, and the rewards that a model gives them. The loss is the negative log-likelihood of the annotators' choices, $-\log\sigma(r_c - r_r)$. We write it ourselves and compare it with the
# library.


# %%
def loss(chosen, rejected):
    """Surprise at each choice, in nats: (B,), (B,) -> (B,)."""
    return torch.log1p(torch.exp(rejected - chosen))


chosen, rejected = torch.tensor([1.2, -0.3, 2.0]), torch.tensor([0.4, 0.1, -1.0])
torch.testing.assert_close(loss(chosen, rejected), bradley_terry_loss(chosen, rejected))

# %%
same = predict(
    "Take 5 from both rewards of every prompt. What does the mean loss do?",
    "it grows by 5",
    "it stays the same",
    "it shrinks",
)

# %%
# NBVAL_CHECK_OUTPUT
before, after = loss(chosen, rejected).mean(), loss(chosen - 5, rejected - 5).mean()
print(f"mean loss {before:.6f}, after taking 5 from every reward {after:.6f}")
print("σ(reward) of the chosen completions before:", [round(x, 3) for x in chosen.sigmoid().tolist()])
print("                               after: ", [round(x, 3) for x in (chosen - 5).sigmoid().tolist()])
same.reveal("it stays the same" if abs(before - after) < 1e-6 else "it grows by 5" if after > before else "it shrinks")

# %% [markdown]
# The loss does not depend on the level. So nothing that depends on the level has a meaning: a reward of 1.2 does not mean "77 % good".
#
# ## Reading the wrong token
#
# The reward is read at the last token. A programmer computes its index as `attention_mask.sum(1) - 1`. This is right when rows are padded on the right. But generation pads on the left.

# %%
policy, tokenizer = zoo.load("assistant-sft")
task = tasks.get("assistant")
model = RewardModel.from_causal_lm(policy, seed=0)
prompts = task.prompts("test")[:64]
rows = [completion_tokens(tokenizer, p, task.reference(p)).input_ids for p in prompts]
width = max(map(len, rows))


def batch(side):
    """Rows padded on one side: (B, S), (B, S)."""
    pads = [[tokenizer.pad_token_id] * (width - len(row)) for row in rows]
    real = [[1] * len(row) for row in rows]
    empty = [[0] * len(pad) for pad in pads]
    order = (lambda a, b: a + b) if side == "right" else (lambda a, b: b + a)
    ids = [order(row, pad) for row, pad in zip(rows, pads, strict=True)]
    mask = [order(one, none) for one, none in zip(real, empty, strict=True)]
    return torch.tensor(ids), torch.tensor(mask)


# %%
wrong_share = predict(
    "Padded on the left: which of the rewards are wrong?",
    "none",
    "only the reward of the shortest",
    "all except the reward of the longest",
)

# %%
with torch.no_grad():
    right, left = model(*batch("right")), model(*batch("left"))
    ids, mask = batch("left")
    misread = model.token_scores(ids, mask).gather(1, mask.sum(1, keepdim=True) - 1).squeeze(1)
share = float(((misread - left).abs() > 1e-4).float().mean())
agree = float(torch.corrcoef(torch.stack([misread, left]))[0, 1])
print(f"largest difference of left and right padding, last real token: {float((right - left).abs().max()):.1e}")
print(
    f"by attention_mask.sum(1) - 1: {share:.0%} of the rewards are wrong; correlation with the right ones {agree:.2f}"
)
wrong_share.reveal(
    "none"
    if share == 0
    else "only the reward of the shortest"
    if share < 0.5
    else "all except the reward of the longest"
)

# %%
assert float((right - left).abs().max()) < 1e-4 and share > 0.5

# %% [markdown]
# Nothing crashed, and every number looked like a reward. The test that finds the bug is an invariance: the same completion has the same reward, with padding on either side.
#
# ## One completion, five readings
#
# The running sum: add seven numbers modulo 5, with one line for each of the six additions. A simulated writer makes an error at one step in ten and continues from what it wrote. One error makes the answer wrong, although all later steps are valid.

# %%
sums = Trained(*zoo.load("running-sum-sft"))
prompt = RUNNING_SUM.prompts("test")[0]
example = write(sums.tokenizer, prompt, (0, 0, 0, 3, 0, 0))  # an error in the fourth step
print("prompt:", prompt)
for number, line in enumerate(example.lines, 1):
    print(f"  step {number}:  {line}{'   <- wrong' if number == 4 else ''}")
print("the answer is", "right" if example.right else "wrong")

# %% [markdown]
# Four heads learn from the same completions, each with another label. *Reward:* which of two completions is better. *Outcome:* whether the answer will be right. *Process:* whether each step is valid. *Value:* the expected return. Every head also receives the policy's log-probability of each token.

# %%
recovers = predict(
    "One step after the error, which of these heads says again that all is well?",
    "process",
    "outcome",
    "value",
    "all of them",
)

# %%
heads = {}
for name in progress(("reward", "outcome", "process", "value"), "heads"):
    heads |= train_heads(sums, HeadsPlan(), only=(name,))
found = planted(sums.tokenizer, RUNNING_SUM.prompts("test")[:60], seed=0)
place = torch.tensor([at for at, _, _ in found])
bad = readings(sums, heads, [wrong for _, wrong, _ in found])
one = {name: scores[0] for name, scores in readings(sums, heads, [example]).items()}

# %%
print("step           1     2     3     4     5     6")
for name in ("process", "outcome", "value", "exact", "reward", "policy"):
    print(f"{name:10}", " ".join(f"{x:5.2f}" for x in one[name].tolist()))
inner = (place < STEPS - 1).nonzero().flatten()
later = {name: float(bad[name][inner, place[inner] + 1].mean()) for name in ("process", "outcome", "value")}
well = [name for name, value in later.items() if value > 0.5]
recovers.reveal(well[0] if len(well) == 1 else "all of them")

# %%
# figure: readings
# alt: Four panels over the six steps of one completion with an error at step four. Process: at 1, falls to 0 at the error, back to 1. Outcome and
#   value, with the exact probability dotted: rise to about three quarters, fall to nearly zero at the error and stay there. Reward before the end:
#   goes up and down, with its largest fall at the last step and not at the error. The policy's log-probability: near zero, very low at the error, near zero again.
fig, axes = plt.subplots(1, 4, figsize=(9.6, 2.6), layout="constrained")
steps = range(1, STEPS + 1)
panels = (
    ("process: this step is valid", ("process",), (-0.05, 1.05)),
    ("outcome, value: it will end right", ("outcome", "value", "exact"), (-0.05, 1.05)),
    ("reward, asked too early", ("reward",), None),
    ("the policy's own log π, nats", ("policy",), None),
)
looks = {
    "process": (PALETTE["blue"], "o-"), "outcome": (PALETTE["red"], "s-"), "value": (PALETTE["green"], "^-"),
    "exact": ("black", ":"), "reward": (PALETTE["purple"], "o-"), "policy": ("0.3", "o-"),
}  # fmt: skip
for ax, (title, names, limits) in zip(axes, panels, strict=True):
    ax.axvspan(3.6, 4.4, color="0.9", lw=0)
    for name in names:
        colour, style = looks[name]
        ax.plot(steps, one[name], style, color=colour, ms=4, lw=1.4, label=name)
    ax.set(title=title, xlabel="step (error: 4)", xticks=list(steps))
    ax.title.set_fontsize(9)
    if limits:
        ax.set_ylim(*limits)
    if len(names) > 1:
        ax.legend(frameon=False, loc="upper right", fontsize=8)
plt.show()

# %% [markdown]
# **What to notice.** The process head recovers: the step after the error follows from what was written. Outcome and value do not recover: they forecast the answer, and are close to the exact probability. The reward model was trained at the last token only. What it
# gives before the end was not trained and has no defined meaning.
#
# What finds the error? Every head received the policy's log-probabilities, and the policy finds the wrong sum improbable. Without them, a process head of this size finds the error no more often than by chance (last line of the next table). So the figure shows what the labels mean. It does not show that process labels find errors.

# %%
seen = evidence.StudyResults("ch08_per_token")  # five seeds
print("largest fall at the error           here   five seeds")
for name in ("process", "outcome", "value", "policy", "reward"):
    here = float((largest_drop(bad[name]) == place).float().mean())
    values = seen.values(f"{name}_found")
    print(f"  {name:32} {here:5.2f}   {min(values):.2f} to {max(values):.2f}")
values = seen.values("plain_process_found")
print(f"  {'process, without log-probabilities':32}         {min(values):.2f} to {max(values):.2f}")

# %%
for name in ("process", "outcome", "value", "policy"):
    assert float((largest_drop(bad[name]) == place).float().mean()) > 0.8 and seen.holds(f"{name}_found", above=0.8)

# %% [markdown]
# ## Overfitting: the same pairs again and again
#
# A reward model for the assistant task reads 256 labelled pairs, eight times. The labels are noisy. After one, two, four and eight epochs we evaluate it on 200 held-out pairs: the accuracy, and the negative log-likelihood (NLL) of the choices (chance: 0.69 nats).

# %%
plan = GradersPlan(pairs=RewardPlan(pairs=256, held_out=200))
start = Trained(policy, tokenizer)
said, held_out = labelled_pairs(start, plan, seed=0)
train, held = pair_tokens(tokenizer, said), pair_tokens(tokenizer, held_out)

# %%
worse = predict(
    "From the first epoch to the eighth, what gets much worse on held-out pairs?",
    "the accuracy",
    "the NLL",
    "both",
    "neither",
)

# %%
looks = epochs(start, train, held, plan, seed=0, after=(1, 2, 4, 8), quiet=False)
print("epoch   accuracy seen   accuracy held out   NLL held out")
for epoch, row in looks.items():
    print(f"{epoch:5} {row['seen_accuracy']:15.2f} {row['held_accuracy']:19.2f} {row['held_nll']:19.2f}")
falls = looks[1]["held_accuracy"] - looks[8]["held_accuracy"] > 0.1
rises = looks[8]["held_nll"] - looks[1]["held_nll"] > 0.1
worse.reveal(
    {(True, True): "both", (True, False): "the accuracy", (False, True): "the NLL"}.get((falls, rises), "neither")
)

# %% [markdown]
# Does the model memorise the noise of the labels? Then labels by gold reward, which have no noise, would not overfit. Or is repetition the cause? Then the same number of steps on pairs that occur once would not overfit.

# %%
cause = predict(
    "Which of the two changes takes the overfitting away?",
    "labels without noise",
    "new pairs in each step",
    "either",
    "neither of them",
)

# %%
many = evidence.StudyResults("ch08_assistant")  # ten seeds
grows = {
    arm: many.difference(f"{arm}held_nll_8", f"{arm}held_nll_1").interval[0] > 0 for arm in ("", "clean_", "fresh_")
}
cause.reveal(
    {
        (True, True): "neither of them",
        (True, False): "new pairs in each step",
        (False, True): "labels without noise",
    }.get((grows["clean_"], grows["fresh_"]), "either")
)

# %%
# figure: epochs
# alt: Two panels over the training steps of one, two, four and eight epochs of 256 pairs. Left, the NLL of held-out pairs: for noisy labels
#   and for labels by gold reward it grows far above the dotted line of chance; for pairs that occur once it stays a little below the line. Right, the
#   accuracy on held-out pairs: near .6 in all three; for the 256 pairs it dips a little at the end, for pairs that occur once it rises.
fig, axes = plt.subplots(1, 2, figsize=(8.4, 3.0), layout="constrained")
arms = (
    ("", "256 pairs, noisy labels", PALETTE["blue"], "o-"),
    ("clean_", "256 pairs, labels by gold", PALETTE["orange"], "s-"),
    ("fresh_", "new pairs in each step, noisy labels", PALETTE["green"], "^-"),
)
seen_after = (1, 2, 4, 8)
for ax, (what, title) in zip(axes, (("nll", "NLL, nats"), ("accuracy", "accuracy")), strict=True):
    for arm, label, colour, style in arms:
        values = torch.tensor([many.values(f"{arm}held_{what}_{epoch}") for epoch in seen_after])
        mean, spread = values.mean(1), values.std(1)
        ax.plot(seen_after, mean, style, color=colour, ms=4, lw=1.4, label=label)
        ax.fill_between(seen_after, mean - spread, mean + spread, color=colour, alpha=0.15, lw=0)
    ax.axhline(0.6931 if what == "nll" else 0.5, color="0.3", lw=0.8, ls=":")
    ax.set(title=f"{title}, held-out pairs", xlabel="steps, in epochs of 256 pairs", xticks=seen_after)
    ax.title.set_fontsize(9)
axes[0].legend(frameon=False, fontsize=8, loc="upper left")
plt.show()

# %% [markdown]
# **What to notice.** The accuracy does not show it (a fall in the run above is chance: over ten seeds it is .59 after one epoch and .60 after eight). The NLL does show it, and repetition is the cause here: with labels that contain no noise the NLL grows as well, and without repetition it does not.

# %%
assert rises and grows == {"": True, "clean_": True, "fresh_": False}

# %% [markdown]
# ## Two models, one number
#
# A helpfulness model and a safety model score four completions. Should we add the scores, or let the safety model decide first?

# %%
# NBVAL_CHECK_OUTPUT
helpful, safe = torch.tensor([0.95, 0.40, 0.80, 0.10]), torch.tensor([0.05, 0.50, 0.16, 0.14])
gated = gated_reward(helpful, safe, threshold=0.15)
print("helpful  safe   sum   gated")
for row in torch.stack([helpful, safe, helpful + safe, gated], -1).tolist():
    print("{:7.2f} {:5.2f} {:5.2f} {:7.2f}".format(*row))

# %% [markdown]
# By the sum, the most harmful completion is the best. The gate puts it last. But the gate has an edge: the third completion is barely safe and keeps its whole helpfulness score.

# %%
predict.tally()

# %% [markdown]
# ## Now you
#
# * Two errors that cancel: `write(sums.tokenizer, prompt, (0, 3, 0, 2, 0, 0))`. The answer is right. Which of the heads fall, and at which steps?
# * Move the gate's threshold from 0.15 to 0.17. Which reward does the third completion have now? Write a gate without such an edge. Is the most harmful completion still last?
#
# The graded exercises of this chapter: `minirlhf check 08`.
