# %% [markdown]
# # 01 · It has read everything. Why won't it answer?
#
# A language model has read every page there is about cats. A user asks it what cats do, and it replies with another question. The model works
# as intended: in the text that it was trained on, a question was mostly followed by more questions. **What must be added to make it an
# assistant, who provides the feedback, and in which order?**
#
# The models of this notebook have about 100,000 parameters. Their task has eight animals with three facts each. The *gold reward* of a completion is a
# formula: facts, one polite word and one word of praise raise it; filler, repetition, false claims and length lower it. (The first run
# trains the models that it needs, in about a minute. Later runs load them.)

# %%
import copy
import os
from dataclasses import replace

import matplotlib.pyplot as plt
import torch
from IPython.display import Markdown

from minirlhf.core import exact_mdp
from minirlhf.core.progress import progress
from minirlhf.core.randomness import generator, numpy_generator
from minirlhf.data import tasks
from minirlhf.data.chat import PLAIN, conversation, encode_prompt
from minirlhf.data.collate import batch_indices, collate
from minirlhf.data.formats import Problem
from minirlhf.data.tasks.assistant import ANIMALS, FACTS, FILLER, POLITE, PRAISE, features
from minirlhf.equations import merging
from minirlhf.equations.estimators import best_of_n_curve
from minirlhf.equations.mdp import greedy_policy
from minirlhf.equations.preference_losses import PairLogps, dpo
from minirlhf.feedback.facets import content, facet_reward, manners
from minirlhf.feedback.rewards import model_reward, task_problems, task_reward
from minirlhf.models.forward import completion_logps
from minirlhf.models.merging import merge
from minirlhf.models.sampling import Sampling
from minirlhf.recipes import GRPO
from minirlhf.stages import pipeline, zoo
from minirlhf.stages.pipeline import RewardPlan, RLPlan, Trained, completion_tokens, pair_tokens, preferences
from minirlhf.tabular.grid import ARROWS, GARDEN, GARDEN_WISHES, arrival_rewards
from minirlhf.trainers.evaluation import candidates, evaluate
from minirlhf.trainers.history import History
from minirlhf.trainers.online import OnlineConfig
from minirlhf.trainers.sft import SFTConfig, train_sft
from minirlhf_course import evidence
from minirlhf_course.chapters.ch01_introduction import equations as signals
from minirlhf_course.chapters.ch01_introduction import human_feedback as hf
from minirlhf_course.classroom.predictions import Predictions
from minirlhf_course.report.plotting import PALETTE, smooth

plt.rcParams.update({"font.size": 9, "axes.spines.top": False, "axes.spines.right": False})
STEPS = {"cpu": 1, "gpu": 3}[os.environ.get("MINIRLHF_SCALE", "cpu")]  # the larger preset trains three times as long

world = tasks.get("assistant")
seen = evidence.StudyResults("ch01")  # five seeds of what follows
tuned = evidence.StudyResults("ch01_tuned")  # five more, with tuned learning rates and longer RL
predict = Predictions("01")


# %% [markdown]
# ## Three stages
#
# There are three models: the base model, a model that imitated 2,000 demonstrations (SFT), and a reward model that learned
# which of two completions annotators prefer, from 4,000 comparisons.
#
# What does the base model write for *what do bees and dogs do?* Note that the demonstrations imitate people in a hurry: they contain
# *um* and are sometimes wrong.

# %%
sft_beside_people = predict(
    "Is the gold reward of a model that imitates them lower than theirs, the same, or higher?",
    "lower",
    "the same",
    "higher",
)

# %%
base, sft = (Trained(*zoo.load(name)) for name in ("assistant-base", "assistant-sft"))
judge, judge_tokenizer = zoo.load("assistant-reward")
opinion = model_reward(judge, judge_tokenizer)
raw = copy.deepcopy(base.tokenizer)
raw.chat_template = PLAIN  # a base model has never seen a turn: it gets the bare text and continues it
base = replace(base, tokenizer=raw)


def ask(policy, seed=1000):
    """Sample one completion for each of the 128 test prompts, with its gold reward."""
    asked = task_problems(world, "test")
    limit = Sampling(max_completion_length=world.max_completion_length)
    return evaluate(policy.model, asked, task_reward(world), tokenizer=policy.tokenizer, sampling=limit, seed=seed)


rl = pipeline.rl(
    world,
    sft,
    RLPlan(training=OnlineConfig(max_steps=35 * STEPS, batch_size=8, num_generations=8, learning_rate=3e-4)),
    reward=opinion,
    monitors={"gold": task_reward(world)},
)
answers = {"base": ask(base), "SFT": ask(sft), "RL": ask(rl)}
rng = numpy_generator("hurry", 0)
people = [world.grade(p, world.demonstration(p, rng)) for p in world.prompts("test") for _ in range(20)]
print(f"\ngold reward of the demonstrations {sum(people) / len(people):.2f}")
for name, found in answers.items():
    print(f"{name:5} gold reward {found.reward}, {found.length} tokens")
ahead = answers["SFT"].reward.mean - sum(people) / len(people)
sft_beside_people.reveal("the same" if abs(ahead) < 0.2 else "higher" if ahead > 0 else "lower")

# %%
# table: opening
# Three questions that were fixed before the first model was trained, and one completion of each model.
lines = ["| question | model | completion | gold reward |", "|---|---|---|---|"]
called = {"base": "base model", "SFT": "after SFT", "RL": "after SFT and RL"}
for i in (2, 3, 5):
    for name, found in answers.items():
        asked = world.prompts("test")[i] if name == "base" else ""
        said = f"*{found.completions[i]}*" if found.completions[i] else "(nothing)"
        lines.append(f"| {asked} | {called[name]} | {said} | {found.rewards[i]:.1f} |".replace("| -", "| −"))
Markdown("\n".join(lines))

# %%
# figure: pipeline
# alt: Left, gold reward of 128 completions of three models as dots with their means. The base model's lie between minus 6 and 1, mean about minus 1.9;
#   those of SFT between minus 3 and 2.5, mean 0.8; RL's are higher, with fewer bad ones, mean above 1. Right, over 35 steps of RL both the reward model's score and
#   the gold reward rise.
fig, (left, right) = plt.subplots(1, 2, figsize=(9, 3.2), width_ratios=(1, 1.2), layout="constrained")
jitter = torch.rand(128, generator=generator("jitter")) * 0.5 - 0.25
for place, (found, colour) in enumerate(zip(answers.values(), ("orange", "sky", "blue"), strict=True)):
    left.scatter(place + jitter, found.rewards, s=7, color=PALETTE[colour], alpha=0.6, lw=0)
    left.hlines(found.reward.mean, place - 0.35, place + 0.35, color="black", lw=2)
    left.annotate(f"{found.reward.mean:.2f}", (place + 0.37, found.reward.mean), va="center")
left.axhline(sum(people) / len(people), color="0.5", lw=0.8, ls=":")
left.set_xticks(range(3), answers)
left.set(ylabel="gold reward of a completion", xlim=(-0.5, 2.8))
for key, label, colour in (("gold", "gold reward", "blue"), ("reward", "reward model's score", "orange")):
    right.plot(smooth(rl.history[key], 8), color=PALETTE[colour], label=label)
right.set(xlabel="step of RL")
right.legend(frameon=False)
plt.show()

# %%
means = {name: found.reward.mean for name, found in answers.items()}
lowest = {name: float(found.rewards.min()) for name, found in answers.items()}
highest = {name: float(found.rewards.max()) for name, found in answers.items()}

# %%
assert means["base"] < -1 < 0.5 < means["SFT"] < means["RL"]
assert abs(means["RL"] - sum(people) / len(people)) < 0.2  # the gap is closed
assert lowest["base"] > -6 and highest["base"] < 1.2  # as the figure is described
assert lowest["SFT"] > -3 and highest["SFT"] < 2.6
assert seen.holds("gold_base", below=-1) and seen.holds("gold_sft", above=0.5) and seen.holds("rl_gain", above=0.0)

# %% [markdown]
# **What to notice.** SFT raises the gold reward by more than 2.5. Its completions are still worse than the demonstrations that it imitates (dotted line), and it
# has also learned their *um*. RL saw no further demonstration. The model wrote completions of its own, the reward model scored them, and this closed
# the remaining gap.
#
# ## Four kinds of feedback
#
# What does a single piece of feedback do? Take five completions and the probabilities that the SFT model gives them, as a choice among five. A gradient step
# moves the logits. (The first three gradients are exercise 01.1. If you would like to derive them yourself, do that first.) What the step does to
# the *probabilities* is another question. You show the model the polite completion, and "cats bark", which is false, is not mentioned.

# %%
bark = predict("Imitating the polite reply: what happens to the probability of “cats bark”?", "it falls", "it rises")

# %%
question = "tell me about cats"
replies = ("cats purr", "cats nap", "sure! clever cats purr and nap", "um cats purr", "cats bark")


def reply_logps(policy, texts):
    """Return log π(completion | question) for several completions."""
    rows = [completion_tokens(policy.tokenizer, question, text) for text in texts]
    batch = collate(rows, policy.tokenizer.pad_token_id)
    logps = completion_logps(policy.model, batch.input_ids, batch.attention_mask, batch.input_ids.shape[1] - 1)
    return (logps * batch.loss_mask[:, 1:]).sum(-1).detach()


logits = reply_logps(sft, replies).double()
logits = logits - logits.mean()
p = logits.softmax(-1)
earned = torch.tensor([world.grade(question, reply) for reply in replies], dtype=torch.float64)


def one_hot(i):
    return torch.nn.functional.one_hot(torch.tensor(i), len(replies)).double()


good, bad = 2, 4
pushes = {
    "say this:\nthe polite one": one_hot(good) - p,
    "not this:\nthe false one": p - one_hot(bad),
    "this rather than that:\npolite over false": torch.sigmoid(logits[bad] - logits[good])
    * (one_hot(good) - one_hot(bad)),
    "each gets its reward": p * (earned - p @ earned),
}
torch.testing.assert_close(
    pushes["say this:\nthe polite one"], signals.imitation_logit_gradient(logits, torch.tensor(good))
)
torch.testing.assert_close(pushes["each gets its reward"], signals.reward_logit_gradient(logits, earned))

RATE = 0.1
changes = {}  # of the probabilities: dπ = η π (g − Σ π g)
for name, push in pushes.items():
    changes[name] = RATE * p * (push - p @ push)
    torch.testing.assert_close(changes[name], signals.probability_change(logits, push, learning_rate=RATE))
relative = {name: 100 * change / p for name, change in changes.items()}
print(f"relative change of each probability after a step of {RATE} along each gradient:\n")
print(f"{'':32}" + "".join(f"{name.splitlines()[0]:>26}" for name in relative))
for i, reply in enumerate(replies):
    print(f"{reply:32}" + "".join(f"{float(change[i]):25.2f}%" for change in relative.values()))
imitated, avoided = relative["say this:\nthe polite one"], relative["not this:\nthe false one"]
graded = relative["each gets its reward"]
most_probable = int(p.argmax())
bark.reveal("it rises" if imitated[bad] > 0 else "it falls")

# %%
for push, change in zip(pushes.values(), changes.values(), strict=True):  # a real step does what the formula says
    moved = (logits + 1e-4 * push).softmax(-1) - p
    torch.testing.assert_close(moved / 1e-4, change / RATE, atol=2e-4, rtol=2e-4)

# %%
# figure: pushes
# alt: Two rows of four bar charts over the same five completions, one column for each kind of feedback. The upper row shows the gradient of the logits, the lower row the
#   relative change of the probabilities. Imitating the polite completion lowers the logits of all others, but only the most probable one, "cats nap", loses probability; the
#   false "cats bark" gains. Avoiding the false completion raises all other logits, but only "cats nap" gains probability. The preference moves two logits; the other
#   probabilities hardly change. The reward raises the logit of the best completion a little, and its probability falls.
fig, axes = plt.subplots(2, 4, figsize=(9, 4.4), sharey=True, layout="constrained")
rows = range(len(replies))
for column, name in enumerate(pushes):
    for ax, bars in zip(axes[:, column], (pushes[name], relative[name]), strict=True):
        ax.barh(rows, bars, color=[PALETTE["blue"] if x > 0 else PALETTE["red"] for x in bars.tolist()], height=0.6)
        ax.axvline(0, color="0.3", lw=0.8)
        ax.tick_params(left=False)
        reach = 1.25 * float(bars.abs().max())
        ax.set(xlim=(-reach, reach))
    axes[0, column].set_title(name, fontsize=9)
    axes[0, column].set_xlabel("gradient of the logit")
    axes[1, column].set_xlabel("change of π, %")
for ax in axes[:, 0]:
    ax.set_yticks(
        rows,
        [f"{reply}   π={x:.3f}  r={r:.1f}" for reply, x, r in zip(replies, p.tolist(), earned.tolist(), strict=True)],
    )
axes[0, 0].invert_yaxis()
plt.show()

# %%
assert imitated[bad] > 0 > imitated[most_probable]  # the false completion gains, the most probable one loses
assert [i for i in range(len(replies)) if avoided[i] > 0] == [most_probable]
assert pushes["each gets its reward"].argmax() == most_probable and graded[good] < 0 < graded[most_probable]
assert int(earned.argmax()) == good and 0 < earned[most_probable] - p @ earned < 0.05

# %% [markdown]
# **What to notice.** The lower row is ten times the upper row, minus a constant in each panel: a probability rises where its logit's gradient is above the *average* gradient Σ π g.
#
# * The example lowers all other logits. Except for the most probable completion it lowers them so little that their probabilities *rise*. One of them is "cats bark", which is false.
# * "Not this" raises four logits, and only the most probable completion gains. It gains five times what the false one loses; the other three lose too.
# * The comparison moves two logits. All other probabilities change by one common small factor.
# * The reward raises the logit of the polite completion, the best of the five, and lowers its probability. A gradient is the advantage times the probability. The reward
#   of "cats nap" is only slightly above the average, but its probability is so large that its logit rises most.
#
# What if "not this" is repeated, as it is in training?

# %%
z, history = logits.clone(), {0: p}
for step in range(1, 301):
    z = z + RATE * (z.softmax(-1) - one_hot(bad))
    history[step] = z.softmax(-1)
print(f"{'steps of avoiding “cats bark”':32}" + "".join(f"{n:>9}" for n in (0, 10, 100, 300)))
for i, reply in enumerate(replies):
    print(f"{reply:32}" + "".join(f"{float(history[n][i]):9.4f}" for n in (0, 10, 100, 300)))

# %%
assert int(history[300].argmax()) == most_probable and float(history[300][good]) < 0.2 * float(p[good])

# %% [markdown]
# The completion that was most probable takes everything. The best completion disappears together with the false one, although no feedback mentioned it.
#
# Does the kind of feedback make a difference in training? We use the same 600 pairs in three ways: *imitate the chosen completions*, *avoid the
# rejected ones*, or *both* (DPO, chapter 14, in the few lines below). Each way has the learning rate and the number of steps that were best on other seeds.

# %%
best_use = predict("Which of the three reaches the highest gold reward?", "chosen only", "rejected only", "both (DPO)")

# %%
pairs, unseen = preferences(world, sft, RewardPlan(pairs=600, held_out=200))


def sums(policy, part):
    """Return log π of the chosen and of the rejected completions, (N,) each."""
    batch = collate([t.chosen for t in part] + [t.rejected for t in part], policy.tokenizer.pad_token_id)
    logps = completion_logps(policy.model, batch.input_ids, batch.attention_mask, batch.input_ids.shape[1] - 1)
    return (logps * batch.loss_mask[:, 1:]).sum(-1).chunk(2)


def learn_from(start, old, loss_of, steps=40, learning_rate=3e-4):
    """Train a copy of ``start`` on the pairs; ``loss_of`` gets log π of chosen and rejected, new and ``old``."""
    policy = replace(start, model=copy.deepcopy(start.model))
    optimiser = torch.optim.AdamW(policy.model.parameters(), lr=learning_rate, weight_decay=0.0)
    for step in progress(range(steps), "pairs"):
        some = list(batch_indices(len(data), 32, step, 0))
        chosen, rejected = sums(policy, [data[i] for i in some])
        loss = loss_of(PairLogps(chosen, rejected, *old[some].T)).mean()
        optimiser.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(policy.model.parameters(), 1.0)
        optimiser.step()
    return policy


def contrast(pair):
    return dpo(pair, beta=0.1)


CHOSEN, REJECTED, BOTH = (120, 1e-3), (25, 1e-4), (80, 1e-4)  # steps and learning rate of each use
data, held = (pair_tokens(sft.tokenizer, part) for part in (pairs, unseen))
with torch.no_grad():
    from_sft = torch.stack(sums(sft, data), 1)  # (N, 2), before any of this
told = {
    "chosen only": learn_from(sft, from_sft, lambda pair: -pair.chosen, *CHOSEN),
    "rejected only": learn_from(sft, from_sft, lambda pair: pair.rejected, *REJECTED),
    "rejected, larger rate": learn_from(sft, from_sft, lambda pair: pair.rejected, 25, 3e-4),
    "both (DPO)": learn_from(sft, from_sft, contrast, *BOTH),
}
heard = {name: ask(policy) for name, policy in told.items()}
print("                       gold reward   length   change of log π of chosen, rejected   a completion")
fell = {}  # in nats
with torch.no_grad():
    before = [x.mean() for x in sums(sft, held)]
    for name, policy in told.items():
        moved = [float(x.mean() - y) for x, y in zip(sums(policy, held), before, strict=True)]
        fell[name] = moved[0]
        found = heard[name]
        print(
            f"{name:21} {found.reward}   {found.length.mean:5.1f}   {moved[0]:10.1f} {moved[1]:8.1f}            {found.completions[3]!r}"
        )

best_use.reveal(max(("chosen only", "rejected only", "both (DPO)"), key=lambda name: heard[name].reward.mean))

# %%
# figure: pairs
# alt: Bars of the gold reward: SFT lowest, chosen only and rejected only somewhat higher and about equal in this run, both (DPO) highest. The bar of rejected only at the larger rate points the other way.
fig, ax = plt.subplots(figsize=(5.2, 2.7), layout="constrained")
bars = {"SFT": answers["SFT"]} | heard
ax.barh(
    range(len(bars)),
    [found.reward.mean for found in bars.values()],
    xerr=[found.reward.stderr for found in bars.values()],
    color=[PALETTE[c] for c in ("sky", "green", "orange", "red", "blue")],
    height=0.6,
)
ax.set_yticks(range(len(bars)), bars)
ax.invert_yaxis()
ax.annotate(f"{heard['rejected, larger rate'].reward.mean:.1f}", (0.05, 3), va="center")
ax.set(xlabel="gold reward", xlim=(-1.2, 1.5))
ax.axvline(0, color="0.3", lw=0.8)
plt.show()

# %%
# In nats: the chosen completions fell with the rejected ones.
assert fell["rejected, larger rate"] < -3 and seen.holds("losers_winner_fell", below=-3)

# %% [markdown]
# The rejected completions say what to leave out, and that alone helps if training is short enough for its learning rate. With the same number of steps at three times the rate the same loss destroys the model. The chosen completions lost probability together with the rejected ones, because
# they consist of the same words. Negative feedback needs an anchor that keeps the model in place. In DPO the chosen completion of the pair and the reference model are this anchor.
#
# ## Skipping SFT
#
# If comparisons and rewards carry so much information, why imitate at all? Take the same pairs and the same rewards to the *base* model. Does DPO on the
# base model learn to order the pairs? Do its completions become good? And what does RL find there, with the *gold* reward?

# %%
straight_rl = predict(
    "The base model has a gold reward of about −1.9. What is it after 200 steps of RL with the gold reward?",
    -2,
    0,
    0.5,
    2,
)

# %%
turns = replace(
    base, tokenizer=sft.tokenizer
)  # the base model, prompted with turns and their ends, which the pairs have and it has never seen
with torch.no_grad():
    from_base = torch.stack(sums(turns, data), 1)
straight = learn_from(turns, from_base, contrast)


@torch.no_grad()
def tells_apart(policy, start):
    """Return the fraction of unseen pairs in which the chosen completion has gained more log-probability."""
    gains = [now - then for now, then in zip(sums(policy, held), sums(start, held), strict=True)]
    return float((gains[0] > gains[1]).float().mean())


accuracy = {"SFT": tells_apart(told["both (DPO)"], sft), "base": tells_apart(straight, turns)}
untaught = ask(turns).reward.mean
after = {"SFT": heard["both (DPO)"], "base": ask(straight)}

silence = pipeline.rl(
    world,
    base,
    RLPlan(
        GRPO.with_(beta=0.1),
        OnlineConfig(max_steps=200 * STEPS, batch_size=8, num_generations=8, learning_rate=3e-4),
    ),
    monitors={"gold": task_reward(world)},
)
mute = ask(silence)
print(f"DPO from SFT : accuracy {accuracy['SFT']:.2f} on unseen pairs, gold reward {after['SFT'].reward}")
print(f"DPO from base: accuracy {accuracy['base']:.2f} on unseen pairs, gold reward {after['base'].reward}")
print(f"   e.g. {world.prompts('test')[5]!r} -> {after['base'].completions[5]!r}")
print(f"RL from base : gold reward {mute.reward}, {mute.length} tokens")
nothing = sum(text == "" for text in mute.completions)
print(f"   {nothing} of {len(mute.completions)} completions are empty; e.g. {mute.completions[:4]}")
straight_rl.reveal(mute.reward.mean)

# %%
# figure: skipped
# alt: Left, accuracy on unseen pairs against gold reward, two arrows. Both start at one half and end a little above six tenths. Both arrows point up;
#   the one of DPO from the base stays far below zero. Right, RL from the base with the gold reward: the mean length of a completion falls from about 14 tokens to one or two
#   while the reward rises to zero, the reward of an empty completion. Reward and length stay there for many steps, and then both rise again a little.
fig, (left, right) = plt.subplots(1, 2, figsize=(9, 3.2), layout="constrained")
for start, colour in (("SFT", "blue"), ("base", "red")):
    here, there = (0.5, means["SFT"] if start == "SFT" else untaught), (accuracy[start], after[start].reward.mean)
    left.annotate("", there, here, arrowprops={"arrowstyle": "->", "color": PALETTE[colour], "lw": 2})
    left.plot(*zip(here, there, strict=True), "o", color=PALETTE[colour])
    left.annotate(f"DPO from {start}", there, (8, 0), textcoords="offset points", va="center", color=PALETTE[colour])
left.set(xlabel="accuracy on unseen pairs", ylabel="gold reward of its completions", xlim=(0.47, 0.95))
right.plot(smooth(silence.history["gold"], 8), color=PALETTE["blue"], label="gold reward")
right.axhline(0, color="0.5", lw=0.8, ls=":")
right.set(xlabel="step of RL from the base", ylabel="gold reward")
twin = right.twinx()
twin.plot(smooth(silence.history["completion_length"], 8), color=PALETTE["orange"], ls="--")
twin.set_ylabel("length, tokens (dashed)", color="#8a5f00")
twin.set_ylim(0)
twin.spines["right"].set_visible(True)
plt.show()

# %%
assert accuracy["base"] > 0.5 and seen.holds("dpo_base_accuracy", above=0.5)
assert after["base"].reward.mean < 0 and seen.holds("dpo_base_gold", below=0)
assert (
    mute.reward.mean < means["SFT"] and seen.holds("rl_base_gold", below=0.3) and seen.holds("rl_base_length", below=9)
)
assert tuned.holds("rl_end_empty", below=0.1) and tuned.holds("rl_end_facts", below=1.0)

# %% [markdown]
# **What to notice.** DPO taught the base model to *order pairs*: on unseen pairs it is about as accurate as the model that began with SFT. It did not teach it to *answer*, because the pairs contain no completion
# that the base model really writes. RL with a perfect reward first learns to write nothing: an empty completion has reward 0, the base model's own
# completions have −1.9 on average, and good completions are too rare to be found. Later it finds a polite word. It does not find the facts. How rare are good completions among its samples?
#
# ## Elicited or taught?
#
# One view says that post-training **elicits** what the base model can already do. Then good completions must be among its samples. And where the SFT model and
# the base model predict the same next word, SFT has changed nothing.

# %%
limit = Sampling(max_completion_length=world.max_completion_length)
few = task_problems(world, "test")[:8]
drawn = candidates(base.model, few, task_reward(world), tokenizer=raw, sampling=limit, num_generations=256, seed=5)
curve = best_of_n_curve(drawn.rewards.double()).mean(0)
good_share = float((drawn.rewards >= 1).float().mean())
empty_share = sum(text == "" for texts in drawn.completions for text in texts) / drawn.rewards.numel()
print(
    f"{good_share:.2%} of the base model's completions have a gold reward of at least 1, {empty_share:.2%} are empty; SFT: {float((answers['SFT'].rewards >= 1).float().mean()):.0%}"
)


def next_word_logps(policy, prompt, reply):
    """Return the log-probabilities of every next token along a completion and its end, (T, V)."""
    asked = encode_prompt(policy.tokenizer, conversation(prompt))
    with torch.no_grad():
        logits = policy.model(input_ids=torch.tensor([asked + reply])).logits[0]
    return logits[len(asked) - 1 : -1].log_softmax(-1)


def kind_of(words, t):
    """Return what kind of word is at position t of a completion."""
    if t == 0:
        return "first word"
    word = words[t]
    if word == "<eos>":
        return "the end"
    if word in (*POLITE, *PRAISE, *FILLER):
        return "polite, praise, filler"
    return "animal" if word in FACTS else "and" if word == "and" else "fact"


shifts = {}
for prompt, text in zip(world.prompts("test")[:40], answers["SFT"].completions[:40], strict=True):
    reply = [*raw(text, add_special_tokens=False).input_ids, raw.eos_token_id]
    ours, theirs = (next_word_logps(policy, prompt, reply) for policy in (sft, base))
    kl = (ours.exp() * (ours - theirs)).sum(-1)
    words = raw.convert_ids_to_tokens(reply)
    for t in range(len(words)):
        shifts.setdefault(kind_of(words, t), []).append(float(kl[t]))
shift = {kind: sum(nats) / len(nats) for kind, nats in shifts.items()}

# %%
# figure: elicited
# alt: Left, best-of-n reward of the base model rises with n from minus 1.9 at one sample past 0 at about 16 to 0.7 at 256, a little below the mean reward of one SFT completion. Right, mean KL
#   of SFT from base at the next token: about 5 nats at animals and at the first word, 4 at polite words, praise and filler, 3 at the end of the completion, 2 at "and" and less at facts.
fig, (left, right) = plt.subplots(1, 2, figsize=(9, 3), layout="constrained")
left.semilogx(range(1, 257), curve, base=2, color=PALETTE["orange"], label="base, best of n")
left.set_xticks([1, 4, 16, 64, 256], ["1", "4", "16", "64", "256"])
left.minorticks_off()
left.axhline(means["SFT"], color=PALETTE["blue"], ls="--", label="SFT, one completion")
left.set(xlabel="samples n", ylabel="gold reward")
left.legend(frameon=False)
order = sorted(shift, key=shift.get)
right.barh(order, [shift[kind] for kind in order], color=PALETTE["sky"], height=0.6)
right.set(xlabel="KL of SFT from base at this token, nats")
plt.show()

# %% [markdown]
# The base model needs more than 200 samples to come near one completion of SFT. What did SFT change? Most of all which animal the completion is about, how it begins, its polite words, praise and filler, and that it *ends*. It changed
# the facts least. The **superficial alignment** view expects this: knowledge comes from pretraining, style from post-training.
#
# **A test of it.** Show demonstrations about six animals and ask about the other two. The base model has read everything about those as well.

# %%
unshown_animals = predict(
    "What fraction of the completions states a true fact about an animal that was not demonstrated?",
    0,
    0.2,
    0.4,
    0.6,
)

# %%
known, other = ANIMALS[:6], ANIMALS[6:]
mentioned = {prompt: [word for word in prompt.split() if word in FACTS] for prompt in world.prompts("train")}
on_known = [prompt for prompt, animals in mentioned.items() if set(animals) <= set(known)]
rng = numpy_generator("six animals", 0)
shown = [
    completion_tokens(sft.tokenizer, prompt, world.demonstration(prompt, rng))
    for prompt in (on_known[i % len(on_known)] for i in range(2000))
]
six = Trained(copy.deepcopy(base.model), sft.tokenizer, History())
plan = SFTConfig(max_steps=80, batch_size=32, learning_rate=2e-3, lr_scheduler_type="linear")
train_sft(six.model, shown, plan, pad_token_id=sft.tokenizer.pad_token_id)
asks = ("tell me about {}", "tell me what {} do", "what do {} do?", "please tell me about {}")
on_topic = {}
for name, group in (("demonstrated", known), ("never demonstrated", other)):
    problems = [
        Problem([{"role": "user", "content": a.format(x)}])
        for x in group
        for a in asks
        for _ in range(24 // len(group))
    ]
    found = evaluate(six.model, problems, task_reward(world), tokenizer=sft.tokenizer, sampling=limit, seed=7)
    hits = [
        features(p.prompt[-1]["content"], text).facts > 0 for p, text in zip(problems, found.completions, strict=True)
    ]
    on_topic[name] = sum(hits) / len(hits)
    meant = [x for x in group for _ in range(len(problems) // len(group))]
    named = sum(x in text.split() for x, text in zip(meant, found.completions, strict=True))
    print(
        f"{name:19}: {on_topic[name]:.2f} of {len(hits)} completions state a true fact about the animal in the question, {named} name it; e.g. {found.completions[-1]!r}"
    )
unshown_animals.reveal(on_topic["never demonstrated"])

# %%
assert on_topic["never demonstrated"] < 0.2 < 0.4 < on_topic["demonstrated"]
assert seen.holds("known_on_topic", above=0.4) and seen.holds("other_on_topic", below=0.2)

# %% [markdown]
# The base model has read about these two animals, and the SFT model hardly ever mentions them: it has learned *which words occur in demonstrations*. So in this task alignment was not superficial. The rule
# "answer the question that was asked" must be learned, and six animals were not enough for it. A large model has read very many dialogues and may know this rule
# before post-training begins. How superficial post-training can be depends on what came before.
#
# ## Before language models: a garden
#
# All of this is older than chatbots. A robot should walk from S to the bench G and stay off the flowers (`*`). Its owner knows what
# they want, and cannot write it down as a program. First **imitation**: the owner walks on a day without wind, and the robot copies what it saw. Then the wind rises, and one step in five goes in a random direction.

# %%
# NBVAL_CHECK_OUTPUT
still, windy = GARDEN.transitions(), GARDEN.transitions(0.2)
wishes = GARDEN.values_of(GARDEN_WISHES)
start = GARDEN.start()


def worth(policy, transitions=still):
    """Return the expected return of twenty steps to the owner."""
    return float(
        exact_mdp.expected_return(start, transitions, transitions @ wishes, policy, gamma=1.0, steps=hf.PATIENCE)
    )


owner = hf.plan(windy, wishes)
print("\n".join(" ".join(row) for row in (GARDEN.cells[i : i + 5] for i in range(0, 20, 5))))
shown_on_a_still_day = hf.visited(still, owner, start, 50, generator("walks"))
copied = hf.clone(owner, shown_on_a_still_day)
print(f"cells shown: {len(shown_on_a_still_day)} of {GARDEN.size}")
print(
    f"still: owner {worth(owner):.1f}, copy {worth(copied):.1f}    wind: owner {worth(owner, windy):.1f}, copy {worth(copied, windy):.1f}"
)
error = torch.tensor([0.01, 0.05], dtype=torch.float64)
print("\nerrors in T steps without recovery after the first:     T=10    T=50   T=200")
for i, e in enumerate(error.tolist()):
    lost = [float(signals.compounding_mistakes(error, steps=steps)[i]) for steps in (10, 50, 200)]
    print(
        f"   ε = {e:.2f}, expert's states only: {[round(e * steps, 1) for steps in (10, 50, 200)]}, own states: {[round(x, 1) for x in lost]}"
    )

# %%
EPISODES = (1, 2, 4, 8, 16)
tries = {"owner walks, no wind": [], "owner walks in wind": [], "robot walks in wind, owner corrects": []}
for episodes in progress(EPISODES, "walks"):
    got = {name: [] for name in tries}
    for seed in range(8):
        rng = generator("imitation", seed, episodes)
        for name, weather in (("owner walks, no wind", still), ("owner walks in wind", windy)):
            got[name].append(worth(hf.clone(owner, hf.visited(weather, owner, start, episodes, rng)), windy))
        got["robot walks in wind, owner corrects"].append(
            worth(hf.clone_and_correct(windy, owner, start, episodes, rng), windy)
        )
    for name in tries:
        tries[name].append(sum(got[name]) / 8)
print(f"{'return in the wind, by number of episodes':42}" + "".join(f"{n:7}" for n in EPISODES))
for name, line in tries.items():
    print(f"{name:42}" + "".join(f"{x:7.1f}" for x in line))

# %%
# figure: cloning
# alt: Left, the garden with the path shown on the day without wind and, shaded, where the copy spends its time in the wind among cells that it was never shown. Right, expected return of twenty
#   steps in the wind against the number of episodes. Copies of walks without wind stay at 23 however many are shown. Copies of walks in wind rise slowly to 26.
#   Correcting the robot where it goes starts far below both and is the best of the three from four episodes on.
fig, (left, right) = plt.subplots(1, 2, figsize=(9, 3), layout="constrained")
stay = exact_mdp.visits(start, windy, copied, gamma=1.0, steps=hf.PATIENCE).sum(-1)
unshown = torch.tensor([0.0 if s in shown_on_a_still_day else float(stay[s]) for s in range(GARDEN.size)])
left.imshow(GARDEN.table(unshown), cmap="Reds", vmin=0, vmax=0.6)
for s in range(GARDEN.size):
    row, column = divmod(s, GARDEN.columns)
    mark = GARDEN.cells[s] if GARDEN.cells[s] in "SG*" else ""
    arrow = ARROWS[int(owner[s].argmax())] if s in shown_on_a_still_day and s != GARDEN.goal else ""
    left.text(column, row, f"{mark} {arrow}".strip(), ha="center", va="center", fontsize=13)
left.set(xticks=[], yticks=[], title="shown (arrows), and where the copy is lost (red)")
for (name, line), colour in zip(tries.items(), ("red", "orange", "blue"), strict=True):
    right.semilogx(EPISODES, line, "o-", base=2, color=PALETTE[colour], label=name)
right.axhline(worth(owner, windy), color="0.5", ls=":", lw=0.8)
right.set_xticks(EPISODES, [str(n) for n in EPISODES])
right.minorticks_off()
right.set(xlabel="episodes", ylabel="return of 20 steps in the wind")
right.legend(frameon=False)
plt.show()

# %%
assert tries["owner walks, no wind"][-1] < 24 < 25.5 < tries["robot walks in wind, owner corrects"][-1]
assert tries["robot walks in wind, owner corrects"][0] < tries["owner walks in wind"][0]
assert seen.holds("walk_corrected_1", below=22) and seen.holds("walk_corrected_16", above=25)

# %% [markdown]
# More walks without wind teach nothing new. Two things help: walks in the wind, in which the owner leaves the path and shows how to come back, and corrections of
# the robot where *it* goes. Correction is the worst of the three at first, because an untrained robot wastes the first episodes. It is the best from four episodes on.
#
# Then **feedback**, in three ways that were tried before 2018. The owner compares two aimless walks, or says *good* or *bad* to each step
# (TAMER predicts this label, COACH uses it as an advantage). One label in ten for TAMER and COACH is flipped. Which method needs the fewest labels?

# %%
COUNTS = [25, 50, 100, 200, 400, 800]
wanted = hf.best_action_values(still, arrival_rewards(still, wishes))
comparisons = hf.ask_for_comparisons(still, wishes, COUNTS[-1], rng=generator("comparisons", 1, 0))
fitted = {n: hf.fit_cell_values(comparisons.head(n), GARDEN.size) for n in COUNTS}
learned = {
    "comparing": [worth(hf.plan(still, fitted[n])) for n in COUNTS],
    "TAMER": [worth(policy) for policy in hf.tamer(still, wanted, start, COUNTS, rng=generator("tamer", 1, 0))],
    "COACH": [
        worth(policy)
        for policy in hf.coach(still, arrival_rewards(still, wishes), start, COUNTS, rng=generator("coach", 1, 0))
    ],
}
for name, line in learned.items():
    print(f"{name:10}", "  ".join(f"{x:6.1f}" for x in line))

# %%
# figure: garden
# alt: Left, the value of each cell recovered from 800 comparisons of aimless walks: the bench is highest and the two flower beds clearly lowest. Right, expected return of the learned policy
#   against the number of human labels, lines through the mean of twenty runs with the range of the middle half shaded: TAMER is near the best value 30 after 100 labels, comparisons after 200,
#   COACH approaches it gradually by 400. Dots: the run above.
fig, (left, right) = plt.subplots(1, 2, figsize=(9, 3), layout="constrained")
values = fitted[COUNTS[-1]] - fitted[COUNTS[-1]].median()
left.imshow(GARDEN.table(values), cmap="cividis")
for s in range(GARDEN.size):
    row, column = divmod(s, GARDEN.columns)
    left.text(column, row, f"{values[s]:.1f}", ha="center", va="center", color="white" if values[s] < 0.9 else "black")
left.set(xticks=[], yticks=[], title="cell values from 800 comparisons")
for (name, line), colour in zip(learned.items(), ("green", "orange", "blue"), strict=True):
    right.semilogx(COUNTS, line, "o", base=2, color=PALETTE[colour], label=name)
    many = [[x for i in range(4) for x in seen.values(f"garden_{name}_{n}_{i}")] for n in COUNTS]
    quartiles = torch.tensor(many).quantile(torch.tensor([0.25, 0.75]), 1)
    right.fill_between(COUNTS, *quartiles, color=PALETTE[colour], alpha=0.2, lw=0)
    right.plot(COUNTS, [sum(row) / len(row) for row in many], color=PALETTE[colour])
right.set_xticks(COUNTS, [str(n) for n in COUNTS])
right.minorticks_off()
right.axhline(30, color="0.5", ls=":", lw=0.8)
right.set(xlabel="human labels", ylabel="return of 20 steps")
right.legend(frameon=False)
plt.show()

# %% [markdown]
# ## A failure on purpose: praise as a reward
#
# Praise is a number. Why not give it to a planner as a reward? *Good* is +1, *bad* is −½, and the robot plans ahead.

# %%
applauded = predict(
    "How many of twenty steps does a robot that plans far ahead (γ = .95) spend on the bench, its goal?", 14, 7, 0
)

# %%
# NBVAL_CHECK_OUTPUT
praise = hf.approval(wanted, praise=1.0, blame=-0.5)
praise[GARDEN.goal] = 0.0
for gamma in (0.0, 0.5, 0.8, 0.95):
    plan_for_praise = greedy_policy(hf.best_action_values(still, praise, gamma=gamma))
    applause = float(exact_mdp.expected_return(start, still, praise, plan_for_praise, gamma=1.0, steps=20))
    at_goal = float(exact_mdp.visits(start, still, plan_for_praise, gamma=1.0, steps=20).sum(-1)[GARDEN.goal])
    print(
        f"γ = {gamma:4}: praise in 20 steps {applause:5.1f}, steps on the bench {at_goal:4.0f}, return to the owner {worth(plan_for_praise):6.1f}"
    )
here, walk, said, cells = int(start.argmax()), [], [], []
for _ in range(hf.PATIENCE):
    action = int(plan_for_praise[here].argmax())
    walk, said = [*walk, ARROWS[action]], [*said, float(praise[here, action])]
    here = int(still[here, action].argmax())
    cells.append(GARDEN.cells[here])
print(f"its walk at γ = .95: {' '.join(walk)}")
print(f"{said.count(1.0)} steps praised, {said.count(-0.5)} blamed, {cells.count('*')} into a flower bed")
applauded.reveal(at_goal)

# %% [markdown]
# The robot that plans ahead never arrives, because arriving would end the praise. It walks in a ring: four steps towards the bench, which are praised, and two back, which are blamed and lead
# through a flower bed. A judgement of an action is not a reward, and TAMER and COACH interpret it in different ways. This is the first policy of the book that does what it was told and not what was meant.
#
# ## Model merging
#
# Two specialists come from the same SFT model by a few steps of RL each. One is rewarded for *content* only, the other for *politeness* only. The sum of the two rewards is the gold reward. What does the mean of their
# weights do: half of each, nothing, or more?

# %%
short = OnlineConfig(max_steps=20 * STEPS, batch_size=8, num_generations=8, learning_rate=5e-4)
specialists = [
    pipeline.rl(world, sft, RLPlan(GRPO.with_(beta=0.1), short), reward=facet_reward(facet)).model
    for facet in (content, manners)
]


def scores(model):
    """Return the mean content, politeness and their sum over completions of the test prompts."""
    found = ask(replace(sft, model=model), seed=50)
    counts = [
        features(p.prompt[-1]["content"], text) for p, text in zip(found.problems, found.completions, strict=True)
    ]
    return sum(map(content, counts)) / len(counts), sum(map(manners, counts)) / len(counts), found.reward.mean


def shuffled(model):
    """Return the same function, with the hidden units of each layer in another order."""
    other = copy.deepcopy(model)
    for layer in other.model.layers:
        order = torch.randperm(layer.mlp.gate_proj.weight.shape[0], generator=generator("shuffle"))
        for part in (layer.mlp.gate_proj, layer.mlp.up_proj):
            part.weight.data = part.weight.data[order]
        layer.mlp.down_proj.weight.data = layer.mlp.down_proj.weight.data[:, order]
    return other


SHARES = (0.0, 0.25, 0.5, 0.75, 1.0)
line = [scores(merge(specialists, [1 - share, share])) for share in progress(SHARES, "merging")]
relative = shuffled(specialists[1])
stranger = scores(merge([specialists[0], relative], [0.5, 0.5]))
some = torch.arange(12)[None]
torch.testing.assert_close(relative(input_ids=some).logits, specialists[1](input_ids=some).logits, atol=1e-4, rtol=1e-4)
origin = scores(sft.model)
print("weight of second   content   politeness   gold")
for share, (c, m, total) in zip(SHARES, line, strict=True):
    print(f"{share:16.2f} {c:9.2f} {m:12.2f} {total:6.2f}")
print(f"       SFT       {origin[0]:9.2f} {origin[1]:12.2f} {origin[2]:6.2f}")
print(f"the second, units shuffled: the same function; the first merged with that one {stranger[2]:.2f}")

# %%
# figure: merging
# alt: Content reward against politeness reward. The content specialist is at the lower right, the politeness specialist at the upper left; the merged model with a quarter of the second lies on the straight line between them,
#   those with a half and three quarters beyond it. SFT lies inside. A cross far inside marks the merger with a shuffled copy.
fig, ax = plt.subplots(figsize=(5.2, 3.4), layout="constrained")
x, y, _ = zip(*line, strict=True)
ax.plot(x, y, "o-", color=PALETTE["blue"], label="merged")
ax.plot([x[0], x[-1]], [y[0], y[-1]], color="0.6", lw=0.8, ls="--", label="straight line")
ax.plot(*origin[:2], "s", color=PALETTE["orange"], label="SFT")
ax.plot(*stranger[:2], "X", ms=9, color=PALETTE["red"], label="merged with a shuffled copy")
for share, a, b in zip(SHARES, x, y, strict=True):
    ax.annotate(f"{share:g}", (a, b), (5, 4), textcoords="offset points", fontsize=8)
ax.set(xlabel="content reward", ylabel="politeness reward")
ax.legend(frameon=False)
plt.show()

# %%
best_specialist = max(line[0][2], line[-1][2])
half_way = (line[0][2] + line[-1][2]) / 2
print(
    f"merged half and half {line[2][2]:.2f}, mean of the two specialists {half_way:.2f}, better one {best_specialist:.2f}"
)

# %%
assert line[2][2] > half_way and sum(x > 0 for x in seen.values("merge_0.5_over_chord")) >= 3
assert stranger[2] < 0.5 < line[-1][2] and max(seen.values("shuffled_merge_gold")) < 0.5

# %%
# NBVAL_CHECK_OUTPUT
two = torch.tensor([[0.7, 0.2, 0.1], [0.1, 0.2, 0.7]], dtype=torch.float64).log()
halves = torch.tensor([0.5, 0.5], dtype=torch.float64)
print(
    "two distributions, merged in the logits:", [round(q, 3) for q in merging.merged_logps(two, halves).exp().tolist()]
)
print("mean of the two distributions:          ", [round(q, 3) for q in two.exp().mean(0).tolist()])

# %% [markdown]
# For models that were tuned from the same initial model, merging works. In this run the merged model with three parts of politeness and one of content has a higher gold reward than either specialist. (The chapter gives five seeds.) The shuffled copy computes *the same function*, and merging with it
# ruins both: a weight has a meaning only together with the order of the units. The last two lines show what averaging does where the logits are linear in the weights. It multiplies the distributions, so completions that both models accept gain
# over completions that only one of them prefers.
#
# ## History
#
# The dates are those of the first public version. The numbers after "arXiv" are its identifiers.

# %%
# NBVAL_CHECK_OUTPUT
TIMELINE = [  # year, month, name, what was new, where, line of work
    (2008, 8, "TAMER", "people judge single actions", "ICDL 2008", "control"),
    (2012, 8, "APRIL", "people compare behaviours", "arXiv 1208.0984", "control"),
    (2017, 1, "COACH", "judgement as advantage", "arXiv 1701.06049", "control"),
    (2017, 6, "Deep RL from preferences", "reward model from pairs of clips", "arXiv 1706.03741", "control"),
    (2017, 7, "PPO", "clipped policy updates", "arXiv 1707.06347", "control"),
    (2019, 9, "Fine-tuning from preferences", "reward model + KL for a language model", "arXiv 1909.08593", "language"),
    (2020, 9, "Learning to summarize", "better than its demonstrations", "arXiv 2009.01325", "language"),
    (2021, 9, "FLAN", "instruction tuning", "arXiv 2109.01652", "language"),
    (2022, 3, "InstructGPT", "the three stages, as a product", "arXiv 2203.02155", "language"),
    (2022, 12, "Constitutional AI", "feedback by a model", "arXiv 2212.08073", "language"),
    (2023, 5, "DPO", "preferences without a reward model", "arXiv 2305.18290", "language"),
    (2023, 7, "Llama 2", "two reward models, five rounds", "arXiv 2307.09288", "language"),
    (2024, 2, "GRPO", "the group as baseline", "arXiv 2402.03300", "reasoning"),
    (2024, 11, "Tülu 3", "an open recipe; verifiable rewards", "arXiv 2411.15124", "reasoning"),
    (2025, 1, "DeepSeek-R1", "reasoning by RL, first without SFT", "arXiv 2501.12948", "reasoning"),
    (2025, 3, "DAPO", "open large-scale reasoning RL", "arXiv 2503.14476", "reasoning"),
    (2025, 5, "Qwen3", "hybrid thinking; on-policy distillation", "arXiv 2505.09388", "reasoning"),
    (2025, 7, "Kimi K2", "verifiable rewards and self-judged rubrics", "arXiv 2507.20534", "reasoning"),
    (2025, 12, "Olmo 3", "every stage open, mid-training to RLVR", "arXiv 2512.13961", "reasoning"),
]
for year, month, name, new, where, _ in TIMELINE:
    print(f"{year}-{month:02}  {name:29} {new:40} {where}")

# %%
assert sorted(TIMELINE, key=lambda row: row[:2]) == TIMELINE
for year, month, name, _, where, _ in TIMELINE:
    if where.startswith("arXiv"):  # an arXiv identifier begins with year and month
        assert where.split()[1].startswith(f"{year - 2000:02}{month:02}"), name

# %%
# figure: timeline
# alt: A timeline from 2008 to 2025 with three bands. Control: TAMER 2008, APRIL 2012, COACH, deep RL from preferences and PPO 2017. Language: fine-tuning from preferences 2019,
#   summarisation 2020, FLAN 2021, InstructGPT and Constitutional AI 2022, DPO and Llama 2 2023. Reasoning: GRPO and Tülu 3 2024, DeepSeek-R1, DAPO, Qwen3, Kimi K2 and Olmo 3 2025.
fig, ax = plt.subplots(figsize=(9, 4.8), layout="constrained")
tones = {"control": PALETTE["green"], "language": PALETTE["blue"], "reasoning": PALETTE["red"]}
for level, (year, month, name, new, _, line_of_work) in enumerate(TIMELINE):
    when = year + (month - 0.5) / 12
    ax.plot([2007.6, when], [-level, -level], color="0.9", lw=0.8, zorder=0)
    ax.plot(when, -level, "o", color=tones[line_of_work])
    early = when < 2016
    ax.annotate(
        f"{name}: {new}" if early else f"{name}  ",
        (when, -level),
        (7 if early else -5, 0),
        textcoords="offset points",
        ha="left" if early else "right",
        va="center",
        color=tones[line_of_work],
    )
    if not early:
        ax.annotate(new, (2026.3, -level), va="center", fontsize=8)
ax.set(yticks=[], xlim=(2007.6, 2031.0), xticks=range(2008, 2027, 2))
ax.spines["left"].set_visible(False)
for n, (name, tone) in enumerate(tones.items()):
    ax.annotate(name, (2008.2 + 2.2 * n, -18.2), color=tone, fontweight="bold")
plt.show()

# %%
predict.tally()

# %% [markdown]
# ## Now you
#
# * Give `learn_from` a mixture: the log-probability of the chosen completion minus 0.1 times that of the rejected one. Is there a weight that is as good as DPO?
# * Avoid the rejected completions for 60 steps. Which completion has no pair rejected yet?
# * RL from the base model found empty completions first. Change the reward so that an empty completion gets −3. What does it find instead?
# * Show demonstrations about *seven* animals and ask about the eighth. And what if the raw text itself contained questions that are answered?
# * Give the merged model a weight of −½ for politeness. What does it write?
#
# The graded exercises of this chapter: `minirlhf check 01`.
