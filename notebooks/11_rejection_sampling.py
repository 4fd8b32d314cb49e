# %% [markdown]
# # 11 · Rejection sampling and best-of-n
#
# A model writes sixteen completions and a reward model selects one. No weight has changed, and the selected completion is better. **Which reward do sixteen samples reach, how far is
# the result from the model, and what does a model become that imitates the selected completions?**
#
# The task is the poem critic of chapter 05: one prompt, forty possible completions, all probabilities known.

# %%
import copy
import math

import matplotlib.pyplot as plt
import torch

from minirlhf.core import exact
from minirlhf.core.progress import progress
from minirlhf.data import tasks
from minirlhf.data.toys import poem_critic
from minirlhf.equations import rlhf
from minirlhf.equations.estimators import best_of_n_curve, best_of_n_distribution, best_of_n_kl
from minirlhf.equations.selection import best_of_several_cdf, select_top_per_prompt, top_overall
from minirlhf.feedback.rewards import task_problems, task_reward
from minirlhf.models.sampling import Sampling
from minirlhf.stages import zoo
from minirlhf.stages.pipeline import Trained
from minirlhf.trainers.config import RejectionConfig
from minirlhf.trainers.evaluation import candidates, evaluate
from minirlhf.trainers.rejection import train_rejection
from minirlhf_course import evidence
from minirlhf_course.chapters.ch11_rejection_sampling import shell
from minirlhf_course.chapters.ch11_rejection_sampling.poem import ROUNDS, by_rejection, place
from minirlhf_course.chapters.ch11_rejection_sampling.study_shell import BUDGETS, RATES
from minirlhf_course.classroom.predictions import Predictions
from minirlhf_course.report.plotting import PALETTE

plt.rcParams.update({"font.size": 9, "axes.spines.top": False, "axes.spines.right": False})

world = poem_critic()
ref = world.reference.distribution()[0].detach()  # (40,) probabilities
reward, gold = world.rewards, world.gold
predict = Predictions("11")

# %% [markdown]
# ## Two ways to select
#
# Five prompts with four completions each. Before you run the cell, mark the best of each row and the best five of all.

# %%
same = predict("How many of the five completions do the two ways have in common?", 3, 4, 5)

# %%
# NBVAL_CHECK_OUTPUT
R = torch.tensor(
    [[0.7, 0.3, 0.5, 0.2], [0.4, 0.8, 0.6, 0.5], [0.9, 0.3, 0.4, 0.7], [0.2, 0.5, 0.8, 0.6], [0.5, 0.4, 0.3, 0.6]]
)
each, overall = select_top_per_prompt(R), top_overall(R, k=5)
print("best for each prompt, columns counted from 1:", (each + 1).tolist())
print("best five of all, indices counted from 0:    ", overall.tolist())
both = {int(i) * 4 + int(j) for i, j in enumerate(each)} & set(overall.tolist())
same.reveal(len(both))
print(
    f"mean reward of the kept completions: {R.gather(1, each[:, None]).mean():.2f} and {R.flatten()[overall].mean():.2f}"
)

# %% [markdown]
# The second way has the higher mean reward, and it keeps nothing for the fifth prompt.
#
# ## The distribution of the best of n
#
# The reward of the best of $n$ is at most $x$ if all $n$ rewards are. This gives the distribution of the best completion, and with it its reward, its gold reward and its KL. The table also shows
# the policy with the highest reward at the same KL, the tilt of chapter 05.

# %%
truth = predict(
    "The reward model counts 'nice'. How does the gold reward of the best of n change as n grows?",
    "it rises, more and more slowly",
    "it rises, then falls",
    "it falls",
)

# %%
# NBVAL_CHECK_OUTPUT
rows = {}
print("     n   reward    gold       KL   formula    tilt at this KL: reward    gold")
for n in (1, 2, 4, 8, 16, 64, 256, 1024):
    law = best_of_n_distribution(ref, reward, n=n)
    rows[n] = best = place(world, law)
    line = f"{n:6} {best.reward:8.3f} {best.gold:7.3f} {best.kl:8.3f} {best_of_n_kl(n):9.3f}"
    if n > 1:
        beta = rlhf.beta_for_kl(ref.log(), reward, budget=best.kl)
        tilt = place(world, rlhf.optimal_logps(ref.log(), reward, beta=beta).exp())
        line += f" {tilt.reward:26.3f} {tilt.gold:7.3f}"
    print(line)
golds = [row.gold for row in rows.values()]
if max(golds) > max(golds[0], golds[-1]):
    truth.reveal("it rises, then falls")
else:
    truth.reveal("it falls" if golds[-1] < golds[0] else "it rises, more and more slowly")

# %% [markdown]
# ## The usual formula for the KL
#
# The usual formula says that best of $n$ has a KL of $\log n - (n-1)/n$ nats from the model. In the table above the formula is somewhat too large. Now take a model that is right half of the time; the reward is 1 or 0.

# %%
coin = predict("For n = 64 the formula gives 3.17 nats. What is the KL of the best of 64?", "3.17", "about 1.5", "0.69")

# %%
# NBVAL_CHECK_OUTPUT
right = torch.tensor([0.0, 1.0], dtype=torch.float64)
half = torch.tensor([0.5, 0.5], dtype=torch.float64)
print("     n   right       KL   formula")
for n in (2, 4, 16, 64):
    law = best_of_n_distribution(half, right, n=n)
    far = float(exact.divergence(law, half))
    print(f"{n:6} {law[1]:7.4f} {far:8.6f} {best_of_n_kl(n):9.6f}")
coin.reveal("0.69" if abs(far - math.log(2)) < 0.01 else "about 1.5" if far < 2 else "3.17")

# %% [markdown]
# When every completion is right, the distribution cannot move further. With tied rewards the formula is only a bound, and here it is a loose one.
#
# ## Two models, four samples
#
# One model solves sums with probability .9 and riddles with probability .1, another model the reverse. Half of the questions are sums.

# %%
mixed = predict(
    "Four samples from one model contain a right answer for 67 % of the questions. And two samples from each model?",
    "50 %",
    "67 %",
    "99 %",
)

# %%
# NBVAL_CHECK_OUTPUT
wrong = torch.tensor([[[0.1], [0.9]], [[0.9], [0.1]]], dtype=torch.float64)  # kind of question, model, F at "wrong"
for tries in ((4, 0), (2, 2)):
    solved = 1 - torch.stack([best_of_several_cdf(kind, counts=tries) for kind in wrong]).mean()
    print(f"{tries[0]} samples of the first model, {tries[1]} of the second: {solved:.4f}")
mixed.reveal("99 %" if solved > 0.95 else "67 %")

# %% [markdown]
# The second model helps because it fails on other questions.
#
# ## Temperature
#
# A higher temperature makes the samples more different. Does this help the selected completion?

# %%
warm = predict("At which temperature is the gold reward of the best of 16 highest?", "0.5", "1", "2")

# %%
# NBVAL_CHECK_OUTPUT
gold_rewards = {}
print("temperature   reward of the best of 16    gold")
for temperature in (0.5, 1.0, 2.0):
    model = copy.deepcopy(world.reference)
    with torch.no_grad():
        model.table.copy_(model.table.log_softmax(-1) / temperature)
    best = place(world, best_of_n_distribution(model.distribution()[0].detach(), reward, n=16))
    gold_rewards[f"{temperature:g}"] = best.gold
    print(f"{temperature:11.1f} {best.reward:26.3f} {best.gold:7.3f}")
warm.reveal(max(gold_rewards, key=gold_rewards.__getitem__))

# %% [markdown]
# ## Rounds of imitation
#
# A model is fine-tuned on the best of four until its distribution *is* the best of four. Then we repeat this from the new model. Which distribution do four rounds give?

# %%
rounds = predict(
    "Four rounds with the best of 4 give exactly the same distribution as one round with the best of …", 16, 32, 256
)

# %%
# NBVAL_CHECK_OUTPUT
law = ref
steps = [place(world, ref)]
print("round   reward    gold  entropy   total variation from the best of 4^k")
for k in range(1, 5):
    law = best_of_n_distribution(law, reward, n=4)
    steps.append(place(world, law))
    distance = (law - best_of_n_distribution(ref, reward, n=4**k)).abs().sum() / 2
    print(f"{k:5} {steps[-1].reward:8.3f} {steps[-1].gold:7.3f} {steps[-1].entropy:8.3f}   {float(distance):.9f}")
rounds.reveal(256 if distance < 1e-12 else 16)

# %%
# figure: price
# alt: Two panels over the KL from the model. Left, expected reward: the frontier of chapter 05 and just below it best-of-n for n from 1 to 1,024, with four crosses
#   on the same curve at n of 4, 16, 64 and 256. Right, gold reward: both curves rise to a peak within the first nat and fall below zero;
#   best-of-n lies above the tilt until the two meet at the right end. Only the first cross is near the peak.
ns = [1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024]
best = [place(world, best_of_n_distribution(ref, reward, n=n)) for n in ns]
betas = torch.logspace(1.5, -0.95, 120, dtype=torch.float64).tolist()
tilts = [place(world, rlhf.optimal_logps(ref.log(), reward, beta=beta).exp()) for beta in betas]
fig, axes = plt.subplots(1, 2, figsize=(9, 3.4), layout="constrained")
for ax, key, label in zip(axes, ("reward", "gold"), ("expected reward", "gold reward"), strict=True):
    ax.plot(
        [p.kl for p in tilts], [getattr(p, key) for p in tilts], color=PALETTE["black"], lw=1.5, label="tilt (frontier)"
    )
    ax.plot([p.kl for p in best], [getattr(p, key) for p in best], "o-", ms=3, color=PALETTE["blue"], label="best of n")
    ax.plot(
        [p.kl for p in steps[1:]],
        [getattr(p, key) for p in steps[1:]],
        "x",
        ms=10,
        mew=2,
        color=PALETTE["red"],
        label="four rounds, best of 4",
    )
    for n in (4, 16, 64, 256):
        at = rows[n]
        ax.annotate(f"{n}", (at.kl, getattr(at, key)), (4, -14), textcoords="offset points", color=PALETTE["red"])
    ax.set(xlabel="KL from the model, nats", ylabel=label)
axes[0].legend(frameon=False, loc="lower right")
plt.show()

# %% [markdown]
# **What to notice.** The reward rises in every round. The gold reward is highest after the first.
#
# ## Finite samples
#
# So far every sum ran over all completions. Now we sample 128 completions per round, in sixteen groups of eight. We keep the best of each group and take twenty steps on these sixteen. The control keeps sixteen at
# random. Look at the entropy of both.

# %%
diverse = predict(
    "The entropy after two rounds is 1.81 nats in the limit of infinitely many samples. And with 128 samples per round?",
    "about 1.8",
    "about 1.2",
    "about 0.3",
)

# %%
poem_results = evidence.StudyResults("ch11")  # ten seeds
trained = {
    name: by_rejection(RejectionConfig(**{**vars(ROUNDS), "selection": name}))
    for name in progress(("per_prompt", "random"), "rounds")
}
entropies = poem_results.values("per_prompt_entropy_2")
entropy = sum(entropies) / len(entropies)
diverse.reveal(
    min({"about 1.8": 1.8, "about 1.2": 1.2, "about 0.3": 0.3}.items(), key=lambda item: abs(item[1] - entropy))[0]
)
print(f"this run: {trained['per_prompt'][1].entropy:.2f}; mean over ten seeds: {entropy:.2f}")

# %%
# figure: finite
# alt: Left, expected reward over eight rounds. With the best of each eight it rises steeply for two rounds and then hardly; with random selection it varies widely across seeds, on
#   average a little below its initial value. Right, entropy: with the best of each eight it changes little in the first round and then falls fast, below the dotted curve of infinitely many samples in the
#   first two rounds. The dotted curve rises first and reaches zero in the fourth round. With random selection the entropy falls at once and then more slowly.
at = (1, 2, 4, 8)
fig, axes = plt.subplots(1, 2, figsize=(9, 3.2), layout="constrained")
ideal = [place(world, best_of_n_distribution(ref, reward, n=8**k)) for k in range(5)]
for ax, key in zip(axes, ("reward", "entropy"), strict=True):
    start = getattr(steps[0], key)
    ax.plot(range(5), [getattr(p, key) for p in ideal], ":", color=PALETTE["black"], label="infinitely many samples")
    for name, colour, label in (
        ("per_prompt", "blue", "best of each eight"),
        ("random", "orange", "sixteen at random"),
    ):
        values = [poem_results.values(f"{name}_{key}_{k}") for k in at]
        low, high = ([start, *(pick(v) for v in values)] for pick in (min, max))
        middle = [start, *(sum(v) / len(v) for v in values)]
        ax.fill_between([0, *at], low, high, color=PALETTE[colour], alpha=0.2, lw=0)
        ax.plot([0, *at], middle, "o-", ms=4, color=PALETTE[colour], label=label)
    ax.set(xlabel="round", ylabel={"reward": "expected reward", "entropy": "entropy, nats"}[key], ylim=(0, None))
axes[0].legend(frameon=False, loc="center right", bbox_to_anchor=(1, 0.62))
plt.show()

# %%
assert trained["per_prompt"][3].reward > 1.8 and poem_results.holds("per_prompt_reward_4", above=1.8)
assert trained["random"][3].reward < 1.75 and poem_results.holds("random_reward_4", below=1.75)

# %% [markdown]
# ## Rejection sampling and GRPO at equal sampled tokens
#
# The shell game: one in five demonstrations of the initial model contained a chain of thought, and training should discover that a chain of thought leads to right answers. Rejection sampling keeps the best of each eight completions and takes eight steps on these. GRPO takes one update on all 128, or
# eight. With a large model, sampling is a large part of the cost, so we compare at equal numbers of sampled tokens.

# %%
cheap = predict(
    "After 4,000 sampled tokens: which method has the highest reward over ten seeds?",
    "rejection sampling",
    "GRPO, one update on a rollout",
    "GRPO, eight updates on a rollout",
    "rejection sampling and GRPO with eight updates do not differ significantly",
)

# %%
shell_results = evidence.StudyResults("ch11_shell")  # ten seeds
names = {
    "raft": "rejection sampling",
    "grpo": "GRPO, one update on a rollout",
    "grpo_eight": "GRPO, eight updates on a rollout",
}
means = {}
print("sampled tokens".ljust(34) + "".join(f"{budget:>8,}" for budget in BUDGETS))
for name, label in names.items():
    columns = [shell_results.values(f"{name}_reward_{budget}") for budget in BUDGETS]
    means[name] = [sum(column) / len(column) for column in columns]
    print(label.ljust(34) + "".join(f"{mean:8.2f}" for mean in means[name]))
first = max(means, key=lambda name: means[name][0])
lead = shell_results.difference("raft_reward_4000", "grpo_eight_reward_4000")
alike = "rejection sampling and GRPO with eight updates do not differ significantly"
cheap.reveal(alike if first != "grpo" and not lead.significant else names[first])

# %%
begin = Trained(*zoo.load("shell-game-sft"))
few = RejectionConfig(**{**vars(shell.REJECTION), "max_steps": 56, "learning_rate": RATES["raft"]})
[one] = [shell.by_rejection(begin, config) for config in progress([few], "training")]
print("one run: " + ", ".join(f"{reward:.2f}" for reward in one["reward"]))

# %%
# figure: tokens
# alt: Reward of the samples against sampled tokens in the shell game, ten seeds. After 4,000 tokens rejection sampling is right nine times in ten, with a wide band that begins
#   below seven in ten; GRPO with eight updates is a little lower, in a narrower band, and GRPO with one update is lowest. From 8,000 tokens on, the means of rejection
#   sampling and of GRPO with eight updates are close; after 12,000 tokens all three are above nine in ten.
fig, ax = plt.subplots(figsize=(5.5, 3.4), layout="constrained")
for (name, label), colour in zip(names.items(), ("blue", "orange", "green"), strict=True):
    columns = [shell_results.values(f"{name}_reward_{budget}") for budget in BUDGETS]
    ax.fill_between(
        BUDGETS, [min(c) for c in columns], [max(c) for c in columns], color=PALETTE[colour], alpha=0.2, lw=0
    )
    ax.plot(BUDGETS, means[name], "o-", ms=4, color=PALETTE[colour], label=label)
sampled = torch.tensor(one["sampled_tokens"]).cumsum(0)
ax.plot(sampled, one["reward"], ":", color=PALETTE["black"], label="rejection sampling, this run")
ax.set(xlabel="sampled tokens", ylabel="reward of the samples", ylim=(0, 1.02))
ax.legend(frameon=False, loc="lower right")
plt.show()

# %%
assert max(one["reward"]) > 0.5 and shell_results.holds("raft_reward_4000", above=0.5)

# %% [markdown]
# **What to notice.** After 4,000 tokens the large difference is between one step and eight steps per rollout. Rejection sampling and GRPO with eight updates do not differ significantly in reward. Look at the width of the bands.

# %% [markdown]
# ## A language model
#
# The fine-tuned assistant of chapter 01. First best-of-n: 64 prompts with sixteen completions each, and from the *same* completions the reward of the best of $n$ for every $n$ up to sixteen.

# %%
task = tasks.get("assistant")
model, tokenizer = zoo.load("assistant-sft")
problems, grade = task_problems(task, "test")[:64], task_reward(task)
sampling = Sampling(max_completion_length=task.max_completion_length)
sampled_completions = candidates(model, problems, grade, tokenizer=tokenizer, sampling=sampling, num_generations=16)
curve = best_of_n_curve(sampled_completions.rewards).mean(0)
print("   n   best of n")
for n in (1, 2, 4, 8, 16):
    print(f"{n:4} {curve[n - 1]:11.2f}")

# %% [markdown]
# Now training: three rounds of 64 prompts with eight completions each, twenty steps per round. This is one seed at one learning rate. The gold reward itself selects, so there is no reward model to exploit.

# %%
learned = predict(
    "After three rounds, one completion of the trained model has the mean reward of the best of how many completions of the initial model?",
    "2",
    "4 to 8",
    "more than 16",
)

# %%
config = RejectionConfig(learning_rate=1e-3, max_completion_length=task.max_completion_length)
after = {}
for name in ("per_prompt", "random"):
    copied = copy.deepcopy(model)
    training = RejectionConfig(**{**vars(config), "selection": name})
    train_rejection(copied, task_problems(task, "train"), grade, training, tokenizer=tokenizer)
    result = evaluate(copied, problems, grade, tokenizer=tokenizer, sampling=sampling, ref_model=model)
    after[name] = float(result.reward.mean)
    print(f"{name:11} gold reward {result.reward}   KL {result.divergence} nats   e.g. {result.completions[0]!r}")
reached = int((curve < after["per_prompt"]).sum())  # the largest n whose best has a lower reward
learned.reveal("2" if reached < 3 else "4 to 8" if reached < 12 else "more than 16")

# %%
predict.tally()

# %% [markdown]
# ## Now you
#
# * Keep the best of all instead of the best for each prompt (`selection="overall"`). Look at `prompts_kept`: for which prompts is nothing kept?
# * On the poem task, start each round from the first model, and fine-tune on the kept completions of *all* rounds. Does the entropy fall more slowly?
# * Replace the reward by a proxy, such as the number of words, and choose $n$ by the gold reward. How much proxy reward do you give up?
#
# The graded exercises of this chapter: `minirlhf check 11`.
