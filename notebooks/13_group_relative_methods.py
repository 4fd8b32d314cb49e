# %% [markdown]
# # 13 · Ask eight times
#
# A model plays the shell game. Four cups, a ball, six swaps: where is the ball? One demonstration in five wrote a chain of thought: where the ball is after each
# swap. The other four gave a direct answer. Now the model answers every question eight times, and a program says which answers are right.
#
# **Can it discover by itself that thinking pays? Which of the twenty methods that do this is best, and how would you know?**

# %%
import math
from dataclasses import replace
from functools import partial

import matplotlib.pyplot as plt
import torch

from minirlhf.core.progress import progress
from minirlhf.data import tasks
from minirlhf.data.chat import encode_prompt
from minirlhf.equations import advantages as adv
from minirlhf.equations import policy_losses as pg
from minirlhf.equations.aggregation import fixed_length, sequence_mean, token_mean
from minirlhf.equations.difficulty import maxrl, zero_variance_group_probability
from minirlhf.equations.kl import k3
from minirlhf.equations.off_policy import off_policy_keep
from minirlhf.feedback.rewards import task_problems, task_reward
from minirlhf.models.sampling import Sampling, sample
from minirlhf.models.texts import completion_texts
from minirlhf.recipes import DR_GRPO, KLInLoss
from minirlhf.recipes.parts import penalize_overlong
from minirlhf.stages import zoo
from minirlhf.stages.pipeline import Trained
from minirlhf_course import evidence
from minirlhf_course.chapters.ch13_group_relative_methods import group_family, two_worlds
from minirlhf_course.chapters.ch13_group_relative_methods.group_bias import (
    StoppingPolicy,
    expected_step,
    prompt_weight,
    sampled_step,
)
from minirlhf_course.classroom.predictions import Predictions
from minirlhf_course.report.plotting import PALETTE

plt.rcParams.update({"font.size": 9, "axes.spines.top": False, "axes.spines.right": False})
seen = evidence.StudyResults("ch13")  # several seeds of the runs of this notebook, and more
mixed, long_tasks = evidence.StudyResults("ch13_mixed"), evidence.StudyResults("ch13_own_rates")
predict = Predictions("13")
world = tasks.get("shell_game")
begin = Trained(*zoo.load("shell-game-sft"))

# %%
problems = task_problems(world, "train")


def ask(number, count):
    """Return completions of ``number`` questions, ``count`` each, and their rewards (number, count)."""
    asked = problems[:number]
    rollout = sample(
        begin.model,
        [encode_prompt(begin.tokenizer, problem.prompt) for problem in asked],
        sampling=Sampling(max_completion_length=16),
        num_generations=count,
        eos_token_id=begin.tokenizer.eos_token_id,
        pad_token_id=begin.tokenizer.pad_token_id,
        seed=3,
        step=0,
        policy_version=0,
    )
    texts = completion_texts(rollout, begin.tokenizer)
    repeated = [problem for problem in asked for _ in range(count)]
    return texts, torch.tensor(task_reward(world)(repeated, texts)).double().view(number, count)


texts, grades = ask(4, 8)
prompt = problems[0].prompt if isinstance(problems[0].prompt, str) else problems[0].prompt[-1]["content"]
print(prompt)
for text, grade in zip(texts[:8], grades[0].tolist(), strict=True):
    print(f"  {grade:.0f}   {text}")

# %% [markdown]
# ## One group, five advantages
#
# Four completions, one of them right. Each line is computed by our own code, and compared with the library.


# %%
# NBVAL_CHECK_OUTPUT
def centred(r):
    return r - r.mean(-1, keepdim=True)


group = torch.tensor([[1.0, 0.0, 0.0, 0.0]], dtype=torch.float64)
size = group.shape[1]
rows = {
    "Dr. GRPO   centred": (centred(group), adv.group_center(group)),
    "RLOO       against the leave-one-out mean": (centred(group) * size / (size - 1), adv.leave_one_out(group)),
    "GRPO       over the standard deviation (ddof 0)": (
        centred(group) / group.std(-1, correction=0, keepdim=True),
        adv.group_zscore(group, ddof=0, eps=0.0),
    ),
    "GRPO       over the standard deviation (ddof 1)": (
        centred(group) / group.std(-1, keepdim=True),
        adv.group_zscore(group, eps=0.0),
    ),
    "MaxRL      over the mean": (centred(group) / group.mean(-1, keepdim=True), maxrl(group)),
}
for name, (ours, library) in rows.items():
    torch.testing.assert_close(ours, library)
    print(f"{name:48}", "  ".join(f"{x:6.3f}" for x in ours[0].tolist()))

three = adv.group_center(torch.tensor([[1.0, 1.0, -1.0]], dtype=torch.float64))[0]
lengths = torch.tensor([2, 6, 6])
print("\nrewards 1, 1, -1, lengths 2, 6, 6:")
print(
    "per completion",
    [round(x, 4) for x in three.tolist()],
    " per token",
    [round(x, 4) for x in (three / lengths).tolist()],
)
print("a group of equal rewards:", adv.group_zscore(torch.ones(1, 4)).tolist()[0])

# %% [markdown]
# ## Learning to think
#
# Dr. GRPO: centred rewards, a constant divisor, one update per rollout, no KL, no critic. The reward is 1 for a right answer and 0 otherwise. Training takes sixty rounds of
# 16 questions × 8 completions. How often will the model think?

# %%
right_after = predict(
    "What fraction of its answers is right after sixty rounds? (It begins at 0.44.)", 0.4, 0.6, 0.8, 1
)

# %%
thinker = group_family.train(begin, DR_GRPO, quiet=False)
before, after = group_family.play(begin), group_family.play(thinker)
for name, numbers in (("before", before), ("after", after)):
    print(f"{name:7} right {numbers['right']:.3f}   thinks {numbers['thinks']:.3f}   tokens {numbers['length']:.1f}")
right_after.reveal(after["right"])

# %%
# figure: learns
# alt: Fraction of right answers, fraction of completions with a chain of thought, and tokens per completion over sixty rounds of Dr. GRPO. Right answers rise from about 0.4 to
#   nearly 1, chains of thought from 0.2 to nearly 1, length from 5 to 11 tokens. The bands over seeds are narrow at the end and wide in the middle.
fig, axes = plt.subplots(1, 3, figsize=(9, 2.7), layout="constrained")
at = list(range(0, 60, 3))
titles = {"reward": "right answers", "thinks": "chain of thought", "completion_length": "tokens per completion"}
for ax, (key, title) in zip(axes, titles.items(), strict=True):
    band = torch.tensor([seen.values(f"dr_grpo_{key}_{step}") for step in at])  # (20, 5)
    middle = [step + 1 for step in at]
    ax.fill_between(
        middle, band.amin(1), band.amax(1), color=PALETTE["sky"], alpha=0.5, lw=0, label=f"{band.shape[1]} seeds"
    )
    ax.plot(thinker.history[key], color=PALETTE["blue"], lw=1, label="this run")
    ax.set(title=title, xlabel="round", ylim=(0, 12) if key == "completion_length" else (0, 1.02))
axes[0].legend(frameon=False, loc="lower right")
plt.show()

# %%
assert after["right"] > 0.95 and seen.holds("end_right", above=0.95)
assert before["right"] < 0.6 and seen.holds("start_right", below=0.6)
assert after["thinks"] > 0.9 and seen.holds("end_thinks", above=0.9)

# %% [markdown]
# No reward asked for a chain of thought. In most groups the completions with one were right more often, and the method compares only that.
#
# Would RLOO do better? Its advantage is $G/(G-1)$ = 8/7 times the one above. Both train for six rounds with the same seed.

# %%
twins_differ = predict(
    "How large is the difference between the two models, as a fraction of how far they moved?",
    "below 0.05",
    "about 1/7",
    "more than 0.3",
)

# %%
six = replace(group_family.RUN, max_steps=6)
twins = [
    group_family.train(begin, DR_GRPO.with_(advantage=a), six, quiet=False)
    for a in (adv.group_center, adv.leave_one_out)
]
pairs = list(zip(*(twin.model.parameters() for twin in twins), begin.model.parameters(), strict=True))
apart = max(float((a - b).detach().abs().max()) for a, b, _ in pairs)
moved = max(float((a - start).detach().abs().max()) for a, _, start in pairs)
print(f"rewards {[round(x, 3) for x in twins[0].history['reward']]}")
print(f"    and {[round(x, 3) for x in twins[1].history['reward']]}")
print(f"weights have moved by up to {moved:.4f} and differ by up to {apart:.1e}")
share = apart / moved
twins_differ.reveal("below 0.05" if share < 0.05 else "about 1/7" if share < 0.3 else "more than 0.3")

# %%
assert twins[0].history["reward"] == twins[1].history["reward"] and apart < 0.05 * moved

# %% [markdown]
# Adam divides by the size of the gradient. So the factor 8/7 disappears, except where a gradient is as small as Adam's ε. Two names, one method.
#
# ## Difficulty bias: which questions count
#
# Rewards are 0 and 1, the pass rate is $p$, and groups have eight completions. A method multiplies a question's gradient by a number, which is a sum of nine terms. GRPO
# divides each advantage by the standard deviation of its group.

# %%
favoured = predict(
    "Which questions get more weight by this division than questions with pass rate ½?",
    "easy ones",
    "hard ones",
    "both",
    "neither",
)

# %%
# NBVAL_CHECK_OUTPUT
methods = {
    "Dr. GRPO": adv.group_center,
    "GRPO": partial(adv.group_zscore, ddof=0, eps=0.0),
    "MaxRL": maxrl,
}
rates = torch.tensor([0.02, 0.1, 0.5, 0.9, 0.98], dtype=torch.float64)
weights = {name: prompt_weight(rates, method, num_generations=8) for name, method in methods.items()}
print("pass rate            " + "".join(f"{p:8.2f}" for p in rates.tolist()))
for name, weight in weights.items():
    print(f"weight of ∇p, {name:8}" + "".join(f"{w:8.3f}" for w in weight.tolist()))
print("\nGRPO over Dr. GRPO at pass rate .02:")
for size in (8, 16, 64):
    one, other = (prompt_weight(rates[:1], methods[name], num_generations=size) for name in ("GRPO", "Dr. GRPO"))
    print(f"  groups of {size:2}: {float(one / other):.2f} times")
print(f"  the limit:    {1 / math.sqrt(0.02 * 0.98):.2f} times")
hard, _, half, _, easy = weights["GRPO"].tolist()
favoured.reveal(("neither", "hard ones", "easy ones", "both")[(hard > half) + 2 * (easy > half)])

# %%
# figure: difficulty
# alt: Left, the weight of a prompt's gradient against its pass rate: constant for Dr. GRPO, U-shaped for GRPO, falling from high values for MaxRL. Right, how
#   fast the logit of the pass rate rises: a parabola with its peak at one half for Dr. GRPO, an arch twice as high and broader for GRPO, a curve that peaks at small pass rates for MaxRL.
p = torch.linspace(0.005, 0.995, 199, dtype=torch.float64)
fig, (left, right) = plt.subplots(1, 2, figsize=(8, 2.9), layout="constrained")
for (name, method), colour in zip(methods.items(), ("blue", "red", "green"), strict=True):
    weight = prompt_weight(p, method, num_generations=8)
    left.plot(p, weight, color=PALETTE[colour], label=name)
    right.plot(p, weight * p * (1 - p), color=PALETTE[colour])
left.set(xlabel="pass rate", ylabel="weight of the prompt's gradient", ylim=(0, 7.5))
right.set(xlabel="pass rate", ylabel="speed of the logit")
left.legend(frameon=False)
plt.show()

# %% [markdown]
# GRPO gives most weight to questions at both ends: the difficulty bias. MaxRL favours only hard ones. With eight samples its weight stays bounded for questions that are practically never
# solved, because most of their groups contain no success.
#
# ## Length bias: which completions grow
#
# A policy with three numbers: the probability of being right, of going on when right, and of going on when wrong. The reward is 1 for being right, *whatever the length*. GRPO divides each completion's loss by
# its length. Expected steps are exact; dots are sampled groups through the library's own objective and weights.

# %%
longer = predict("Which completions become longer?", "right ones", "wrong ones", "both", "neither")

# %%
START = StoppingPolicy.start(0.3, 9.0)
RATE, STEPS = 3.0, 400


def flow(policy, per_token_mean):
    """Return the lengths of right and wrong completions along the expected steps."""
    places = []
    for step in range(STEPS + 1):
        if step % 10 == 0:
            places.append(policy.describe())
        policy = policy.moved(RATE * expected_step(policy, per_token_mean=per_token_mean, num_generations=8))
    return places


def samples(policy, weights, rate, seed=0):
    """Return the same with sampled groups."""
    generator, places = torch.Generator().manual_seed(seed), []
    for step in progress(range(STEPS + 1), "steps"):
        if step % 50 == 0:
            places.append(policy.describe())
        policy = policy.moved(rate * sampled_step(policy, weights=weights, generator=generator))
    return places


budget = START.budget
by_completion = flow(START, per_token_mean=True)
unbiased = flow(START, per_token_mean=False)  # Dr. GRPO's, but for a constant
blind = flow(StoppingPolicy.start(0.3, 9.0, sees_correctness=False), per_token_mean=True)
sampled = {
    "mean per completion": samples(START, sequence_mean, RATE),
    "mean over tokens": samples(START, token_mean, RATE),
    "constant divisor": samples(START, partial(fixed_length, max_completion_length=budget), RATE * budget / 9),
}
print("after 400 steps              right   wrong  (tokens)")
for name, places in {
    "mean per completion, exact": by_completion,
    "constant, exact": unbiased,
    "blind, exact": blind,
    **sampled,
}.items():
    print(f"{name:26} {places[-1]['length_right']:7.1f} {places[-1]['length_wrong']:7.1f}")
grew = [by_completion[-1][f"length_{which}"] > by_completion[0][f"length_{which}"] + 1 for which in ("right", "wrong")]
longer.reveal(("neither", "right ones", "wrong ones", "both")[grew[0] + 2 * grew[1]])

# %%
# figure: lengths
# alt: Left, tokens of right and wrong completions over 400 steps. With the mean per completion wrong completions grow from 9 to about 45 and right ones shrink to about 2; with a constant divisor the exact lines stay at 9, and
#   the dots of sampled groups stay near. Right, words of hesitation of a language model, a dot per seed, for completions with a chain of thought and for direct answers, under three normalisers.
fig, (left, right) = plt.subplots(1, 2, figsize=(8.4, 3), layout="constrained")
steps, few = range(0, STEPS + 1, 10), range(0, STEPS + 1, 50)
for name, places, style, marker in (
    ("mean per completion", by_completion, "-", "o"),
    ("constant divisor", unbiased, "--", "x"),
):
    for which, colour in (("wrong", "red"), ("right", "blue")):
        key = f"length_{which}"
        left.plot(steps, [x[key] for x in places], color=PALETTE[colour], ls=style, label=f"{which}, {name}")
        left.scatter(few, [x[key] for x in sampled[name]], s=14, marker=marker, color=PALETTE[colour])
left.set(xlabel="step", ylabel="tokens per completion", ylim=(0, 50))
left.legend(frameon=False, fontsize=8)
divided = {"clip": "mean per\ncompletion", "by_token": "mean over\ntokens", "dr_grpo": "Dr. GRPO"}
kinds = {"hm_direct_wrong": ("direct, wrong", "red", -0.15), "hm_thinks": ("chain of thought", "blue", 0.15)}
for key, (label, colour, shift) in kinds.items():
    for place, name in enumerate(divided):
        words = long_tasks.values(f"{name}_{key}")
        right.scatter([place + shift] * len(words), words, s=16, color=PALETTE[colour], alpha=0.7, lw=0)
        right.scatter(place + shift, sum(words) / len(words), marker="_", s=200, color=PALETTE["black"])
    right.scatter([], [], s=16, color=PALETTE[colour], label=label)
stop = 1 / (two_worlds.HESITATION + 1)  # the demonstrations' hesitation is geometric, and cut
right.axhline((1 - stop) / stop * (1 - (1 - stop) ** (3 * two_worlds.HESITATION)), color="0.6", lw=0.8)
right.set(xticks=range(3), xticklabels=divided.values(), ylabel="words of hesitation", xlim=(-0.5, 2.5))
right.legend(frameon=False, fontsize=8)
plt.show()

# %%
assert by_completion[-1]["length_wrong"] > 40 and by_completion[-1]["length_right"] < 3
assert abs(unbiased[-1]["length_wrong"] - unbiased[0]["length_wrong"]) < 1e-6
assert abs(blind[-1]["length_wrong"] - blind[0]["length_wrong"]) < 1e-6

# %% [markdown]
# A wrong completion reduces its penalty by being long, a right one increases its reinforcement by being short; the reward asked for neither. The drift needs a policy that can *see* something: the blind one does not drift. On the right is a language
# model that may hesitate before it answers (seven seeds, one learning rate). It can see whether it wrote a chain of thought, and completions with one are mostly right.
#
# ## Zero-variance groups
#
# If all eight answers are right, or all wrong, there is nothing to compare, and the group has no gradient. The supervised model is right in 40 % of its completions.

# %%
dead_share = predict("What fraction of its groups of eight has zero variance?", 0.02, 0.1, 0.25, 0.5)

# %%
_, grades = ask(96, 64)
pass_rates = grades.mean(1)
sizes = (2, 4, 8, 16, 32)
counted, own, average = [], [], []
for count in sizes:
    cut = grades.view(96, -1, count)
    counted.append(float((cut.amax(-1) == cut.amin(-1)).double().mean()))
    own.append(float(zero_variance_group_probability(pass_rates, num_generations=count).mean()))
    average.append(float(zero_variance_group_probability(pass_rates.mean(), num_generations=count)))
print(
    f"mean pass rate {float(pass_rates.mean()):.2f}, between questions {float(pass_rates.min()):.2f} to {float(pass_rates.max()):.2f}"
)
for count, a, b, c in zip(sizes, counted, own, average, strict=True):
    print(
        f"G = {count:2}   counted {a:.3f}   from each question's own estimated rate {b:.3f}   from the mean rate {c:.3f}"
    )
dead_share.reveal(counted[sizes.index(8)])

# %%
# figure: dead
# alt: Left, fraction of zero-variance groups against the group size, falling from about one half at two completions towards zero. Counted fractions are close to both predictions, which hardly differ: the one
#   from each question's own estimated rate is a little above the one from the mean rate. Right, over sixty rounds of training the fraction of zero-variance groups rises towards one.
fig, (left, right) = plt.subplots(1, 2, figsize=(8, 2.8), layout="constrained")
left.plot(sizes, own, color=PALETTE["blue"], label="from each question's own estimated rate")
left.plot(sizes, average, color=PALETTE["orange"], ls="--", label="from the mean rate")
left.scatter(sizes, counted, color=PALETTE["black"], s=16, zorder=3, label="counted")
left.set(xscale="log", xlabel="completions per group", ylabel="zero-variance groups", xticks=sizes, xticklabels=sizes)
left.minorticks_off()
left.legend(frameon=False)
dead = torch.tensor(thinker.history["frac_reward_zero_std"])
right.plot(dead, color=PALETTE["blue"], lw=1)
right.set(xlabel="round of Dr. GRPO", ylabel="zero-variance groups", ylim=(0, 1.02))
plt.show()
late = float(dead[-10:].mean())
print(
    f"last ten rounds: {late:.2f} of the groups have zero variance; dynamic sampling would need {1 / (1 - late):.1f} groups for one with a gradient"
)

# %% [markdown]
# ## Where a clip stops a gradient, and what it does not stop

# %%
# NBVAL_CHECK_OUTPUT
print("a good token (A > 0) has a gradient until its probability is")
for high in (0.2, 0.28):
    print(f"  ε_high = {high:4}:  {0.01 * (1 + high):.4f} from .01,  {0.9 * (1 + high):.3f} from .9")

theta = torch.tensor(math.log(0.01 / 0.99), dtype=torch.float64, requires_grad=True)  # one token, one logit
old = torch.nn.functional.logsigmoid(theta.detach()).view(1, 1)
objective = pg.ppo_clip(
    torch.nn.functional.logsigmoid(theta).view(1, 1), old, torch.ones(1, 1), torch.ones(1, 1).bool(), epsilon=0.2
)
(gradient,) = torch.autograd.grad(objective.sum(), theta)
moved = torch.sigmoid(theta.detach() + 2.0 * gradient)
print(f"one step of size 2: probability .01 -> {moved:.4f}, ratio {moved / 0.01:.1f}; the clip was at 1.2")

# %% [markdown]
# One completion of two tokens, ratios 2 and .4, once good and once bad. Which factors does each method leave to the two gradients?

# %%
# NBVAL_CHECK_OUTPUT
rho, mask = torch.tensor([[2.0, 0.4]], dtype=torch.float64), torch.ones(1, 2).bool()
zeros, ones = torch.zeros_like(rho), torch.ones_like(rho)
ALL = {
    "no clip": pg.importance_weighted,
    "PPO, GRPO, ε = .2": partial(pg.ppo_clip, epsilon=0.2),
    "clip-higher, .2 and .28": partial(pg.ppo_clip, epsilon=0.2, epsilon_high=0.28),
    "CISPO, bound 1.28": partial(pg.cispo, epsilon_high=0.28),
    "SAPO": pg.sapo,
    "GSPO, ε = .2": partial(pg.gspo, epsilon=0.2),
    "GSPO, the paper's range": partial(pg.gspo, epsilon=3e-4, epsilon_high=4e-4),
    "GSPO-token, ε = .2": partial(pg.gspo_token, epsilon=0.2),
    "LUSPO, ε = .2": partial(pg.luspo, epsilon=0.2),
    "GMPO, ε = .4": pg.gmpo,
}


def left_of(method, logps, sign):
    """Return the factors before A ∇log π: |y| times the gradient of the method's mean over the completion."""
    leaf = logps.clone().requires_grad_()
    value = method(leaf, torch.zeros_like(leaf), torch.full_like(leaf, sign), torch.ones_like(leaf).bool())
    (slope,) = torch.autograd.grad(value.mean(), leaf)
    return (slope * leaf.shape[1] / sign)[0]


print("ratios 2 and .4                 A = 1            A = −1")
for name, method in ALL.items():
    good, bad = left_of(method, rho.log(), 1.0), left_of(method, rho.log(), -1.0)
    print(f"{name:26} " + "   ".join("{:6.3f} {:6.3f}".format(*(x + 0.0).tolist()) for x in (good, bad)))
whole = float(rho.prod())
vespo = [whole**k * math.exp(lam * (1 - whole)) for k, lam in ((2, 3), (3, 2))]
print(f"{'VESPO':26} " + "   ".join(f"{x:6.3f} {x:6.3f}" for x in vespo))
print(
    f"\nobjectives for A = 1, ε = .2: GRPO {pg.ppo_clip(rho.log(), zeros, ones, mask, epsilon=0.2).mean():.3f}, "
    f"GSPO {pg.gspo(rho.log(), zeros, ones, mask, epsilon=0.2).item():.3f}"
)

# %% [markdown]
# A mixture of experts: of a hundred tokens one is routed to another expert and loses 1.5 nats. How many tokens keep a gradient?

# %%
kept = predict(
    "The completion is bad (A < 0). How many of its 100 tokens still have a gradient under GSPO with its paper's range?",
    0,
    1,
    99,
    100,
)

# %%
# NBVAL_CHECK_OUTPUT
flipped = torch.zeros(1, 100, dtype=torch.float64)
flipped[0, 40] = -1.5
print(f"ratio of the token {math.exp(-1.5):.2f}, of the completion {math.exp(-1.5 / 100):.3f}")
for sign, name in ((1.0, "good"), (-1.0, "bad")):
    for method in ("PPO, GRPO, ε = .2", "GSPO, the paper's range"):
        factors = left_of(ALL[method], flipped, sign)
        teaches = int((factors != 0).sum())
        print(
            f"{name:5} {method:24} {teaches:4} tokens with a gradient, the flipped one {float(factors[40]) + 0.0:.2f}"
        )
kept.reveal(int((left_of(ALL["GSPO, the paper's range"], flipped, -1.0) != 0).sum()))

# Off-policy sequence masking: two completions have drifted by .3 nats per token, two have not.
drift = torch.tensor([[0.3], [0.0], [0.3], [0.0]], dtype=torch.float64).expand(4, 5)
verdict = torch.tensor([[1.0], [1.0], [-1.0], [-1.0]], dtype=torch.float64).expand(4, 5)
sampled_logps = torch.full((4, 5), -1.0, dtype=torch.float64)
keep = off_policy_keep(
    sampled_logps - drift, sampled_logps, verdict, torch.ones(4, 5).bool(), off_policy_mask_threshold=0.1
)
print("\ngood and stale, good, bad and stale, bad: kept", keep.tolist())

# %%
# figure: gates
# alt: Two panels of the factor of a token's gradient against its ratio, from 0 to 3. For positive advantages PPO's clip follows the ratio and drops to zero at 1.2,
#   clip-higher at 1.28, CISPO follows it to 2, SAPO rises and fades smoothly; GSPO, for a completion of two tokens whose other ratio is 1, follows the square root and drops to zero at 1.44, GMPO at 1.49. For negative advantages PPO's
#   clip is zero below 0.8 and follows the ratio above, without bound; GSPO is zero below 0.64 and GMPO below 0.67.
ratio = torch.linspace(0.02, 3, 400, dtype=torch.float64)[:, None]
curves = {
    "clip, ε = .2": (partial(pg.ppo_clip, epsilon=0.2), "blue", "-"),
    "clip-higher, .28": (partial(pg.ppo_clip, epsilon=0.2, epsilon_high=0.28), "sky", "--"),
    "CISPO (bound 2)": (partial(pg.cispo, epsilon_high=1.0), "green", "-"),
    "SAPO": (pg.sapo, "red", "-"),
    "GSPO, ε = .2": (partial(pg.gspo, epsilon=0.2), "black", ":"),
    "GMPO, ε = .4": (pg.gmpo, "orange", "-."),
}
fig, axes = plt.subplots(1, 2, figsize=(8, 2.9), sharey=True, layout="constrained")
for ax, sign, title in ((axes[0], 1.0, "A > 0"), (axes[1], -1.0, "A < 0")):
    for name, (f, colour, style) in curves.items():
        logps = torch.cat([ratio.log(), torch.zeros_like(ratio)], 1).requires_grad_()  # the other token's ratio is 1
        value = f(logps, torch.zeros_like(logps), torch.full_like(logps, sign), torch.ones_like(logps).bool())
        (slope,) = torch.autograd.grad(value.sum() * (2 / value.shape[1] if value.shape[1] == 1 else 1), logps)
        slope = slope[:, 0]
        ax.plot(ratio, slope / sign, color=PALETTE[colour], ls=style, label=name)
    ax.set(title=title, xlabel="ratio of the token")
axes[0].set(ylabel="factor of the gradient")
axes[0].legend(frameon=False)
plt.show()

# %% [markdown]
# Four updates on every rollout, so that clips can act. DAPO raises the upper clip to protect entropy. Does the run with the higher upper clip have more
# entropy than PPO's clip when both have sampled 6,000 tokens?

# %%
names = {
    "clip": ("clip, both .2", "blue", "o"),
    "clip_higher": ("upper .28", "sky", "^"),
    "clip_much_higher": ("upper 1", "purple", "^"),
    "gspo": ("GSPO, paper's range", "red", "D"),
}
print("all seeds                  reward while learning    entropy near 6,000   clipped")
for name, (label, _, _) in names.items():
    spread = [seen.values(f"four_{name}_{key}") for key in ("area", "neg_logp", "clip_fraction")]
    print(f"{label:22}" + "".join(f"   {min(x):8.3f} to {max(x):.3f}" for x in spread))

# %%
# figure: entropy
# alt: Entropy per token over the five rollouts up to 6,000 sampled tokens for clips of three widths and for GSPO with its paper's range, four updates per rollout. Five lines, one for each seed: most fall a little from the narrowest clip to the widest,
#   and all rise to GSPO, which has learned least.
fig, ax = plt.subplots(figsize=(6.4, 3.2), layout="constrained")
for column in zip(*(seen.values(f"four_{name}_neg_logp") for name in names), strict=True):
    ax.plot(range(len(names)), column, "o-", ms=4, lw=1, color=PALETTE["blue"], alpha=0.8)
ax.set(
    xticks=range(len(names)),
    xticklabels=[label for label, _, _ in names.values()],
    ylabel="entropy up to 6,000 tokens, nats per token",
)
plt.show()
for other in ("clip_higher", "clip_much_higher"):
    pairs = list(zip(seen.values(f"four_{other}_neg_logp"), seen.values("four_clip_neg_logp"), strict=True))
    print(f"{other:17} less entropy than the clip at .2 in {sum(a < b for a, b in pairs)} of {len(pairs)} seeds")

# %%
assert seen.holds("four_gspo_clip_fraction", above=0.3)
assert seen.all_exceed("four_gspo_neg_logp", "four_clip_neg_logp") and seen.all_exceed(
    "four_clip_area", "four_gspo_area"
)

# %% [markdown]
# ## Recipes compared: which one is best?
#
# First the shell game, with one update per rollout. The initial model, the questions and the learning rate are the same, and so is the number of *sampled tokens*: a recipe that discards groups has paid for them. Seventeen recipes, five seeds.

# %%
family = {name: seen.values(f"{name}_area") for name in group_family.ON_POLICY}
order = sorted(family, key=lambda name: sum(family[name]))

# %%
# figure: family
# alt: Mean reward over the first 12,000 sampled tokens of seventeen recipes, a dot per seed. Thirteen overlap widely. ReMax is a little lower, and DAPO, which pays for discarded
#   groups, clearly lower. GFPO, which learns from short completions only, and VAPO, whose critic trains alone at first, are lowest.
fig, ax = plt.subplots(figsize=(7, 5.2), layout="constrained")
for place, name in enumerate(order):
    ax.scatter(family[name], [place] * len(family[name]), s=22, color=PALETTE["blue"], alpha=0.6, lw=0)
    ax.scatter(sum(family[name]) / len(family[name]), place, marker="|", s=180, color=PALETTE["black"])
ax.set(xlabel="mean reward over the first 12,000 sampled tokens", yticks=range(len(order)), yticklabels=order)
ax.grid(axis="y", alpha=0.3)
plt.show()

# %% [markdown]
# The dots of a row vary because the supervised models differ. So compare seed by seed. Seventeen rows make 136 pairs, and among so many some differ by chance: the comparison corrects for their number.

# %%
pairs = seen.differences([f"{name}_area" for name in order])
apart_pairs = [(a.removesuffix("_area"), b.removesuffix("_area")) for (a, b), gap in pairs.items() if gap.significant]
print(f"{len(apart_pairs)} of {len(pairs)} pairs differ significantly; those without DAPO or VAPO: ", end="")
print([pair for pair in apart_pairs if not {"dapo", "vapo"} & set(pair)] or "none")
hidden = [gap.minimum_detectable_effect for gap in pairs.values() if not gap.significant]
print(f"minimum detectable difference of the other pairs (80 % power): {min(hidden):.3f} to {max(hidden):.3f}")
below = [name for name in order if all(a < b for a, b in zip(family["ppo"], family[name], strict=True))]
print(f"PPO is below {len(below)} of the sixteen others in all five seeds: {', '.join(below)}")

# %% [markdown]
# The rows that differ pay for something: DAPO for discarded groups, VAPO for a critic that trains alone at first. GFPO varies too much to be significant among 136 pairs. Otherwise the game leaves little room for a difference: its questions are
# equally hard, and its completions have two lengths.
#
# Two tasks with more room: lists of two to twelve digits to be sorted, some mostly right, some hardly ever; and a player that hesitates before it answers, with words that do not matter. Eight
# updates on every rollout. The first task has ten seeds and one learning rate. The second has seven seeds, and each row has the learning rate that was best on two other seeds. Each row against GRPO's clip:

# %%
larger_gain = predict(
    "In the task with long completions: which of these two changes to GRPO's clip has the larger mean gain over seven seeds?",
    "no ratio at all",
    "a mean over all tokens instead of one per completion",
    "none",
)

# %%
contests = {
    "mixed difficulty": (mixed, ["no_ratio", "gspo", "dr_grpo", "maxrl", "dapo"]),
    "long completions": (long_tasks, ["by_token", "no_ratio", "gspo", "dr_grpo", "ppo"]),
}
gains = {}
for title, (found, others) in contests.items():
    names = [f"{name}_area" for name in ("clip", *others)]
    print(f"{title}: clip {sum(found.values('clip_area')) / len(found.values('clip_area')):.3f}")
    for (name, _), gap in found.differences(names, [(name, "clip_area") for name in names[1:]]).items():
        row = name.removesuffix("_area")
        gains[title, row] = gap
        low, high = gap.interval
        verdict = "significant" if gap.significant else f"detectable {gap.minimum_detectable_effect:.2f}"
        print(f"  {row:13} {gap.mean:+.3f} [{low:+.3f}, {high:+.3f}]   above in {gap.above} of {gap.seeds}   {verdict}")
by_token, without = (gains["long completions", name] for name in ("by_token", "no_ratio"))
more = max((by_token, without), key=lambda gap: gap.mean)
larger_gain.reveal(
    "none"
    if not (more.significant and more.mean > 0)
    else "no ratio at all"
    if more is without
    else "a mean over all tokens instead of one per completion"
)

# %%
# figure: worlds
# alt: Paired differences of mean reward to GRPO's clip over the first 16,000 sampled tokens, a dot for each seed and a 95 percent interval. Mixed difficulty: the row without a ratio is lower in every seed, the other rows
#   are at zero or a little below. Long completions, each row at its own learning rate: GSPO, Dr. GRPO and the mean over tokens are above zero, PPO mostly too, and the row without a ratio is at zero.
fig, axes = plt.subplots(1, 2, figsize=(8.4, 2.8), layout="constrained")
for ax, (title, (found, others)) in zip(axes, contests.items(), strict=True):
    for place, name in enumerate(reversed(others)):
        dots = [a - b for a, b in zip(found.values(f"{name}_area"), found.values("clip_area"), strict=True)]
        gap = gains[title, name]
        ax.scatter(dots, [place] * len(dots), s=14, color=PALETTE["blue"], alpha=0.5, lw=0)
        ax.errorbar(gap.mean, place, xerr=gap.interval[1] - gap.mean, fmt="|", ms=9, color=PALETTE["black"], capsize=3)
    ax.axvline(0, color="0.6", lw=0.8)
    ax.locator_params(axis="x", nbins=5)
    ax.set(yticks=range(len(others)), yticklabels=others[::-1], title=title, xlabel="mean reward, minus the clip's")
plt.show()

# %%
assert gains["mixed difficulty", "no_ratio"].significant and gains["mixed difficulty", "no_ratio"].mean < 0
assert gains["long completions", "by_token"].significant and gains["long completions", "by_token"].mean > 0
assert gains["long completions", "dr_grpo"].significant and gains["long completions", "dr_grpo"].mean > 0

# %% [markdown]
# (The interval of a row holds for all rows of its panel together. Holm's test asks less of a row once the clearer rows have passed, so a row can be significant although its interval
# includes 0.)
#
# With eight updates on a rollout, leaving out the ratio loses reward on the lists, at the one learning rate that was tried there. In the long completions each row has its own rate, and the row without a ratio
# does not differ significantly. There the mean per completion holds GRPO back: the mean over tokens raises the reward and changes nothing else. MaxRL and Dr. GRPO, which differ in the weight of a prompt alone, do not differ significantly.
#
# ## Metrics to monitor
#
# Dr. GRPO again, with four updates on each rollout, and with the KL measured (its coefficient is 0, so there is no penalty).

# %%
watched = group_family.train(
    begin,
    DR_GRPO.with_(kl=KLInLoss(k3, 0.0), num_iterations=4),
    replace(group_family.RUN, max_steps=16),
)

# %%
# figure: panel
# alt: Six metrics over sixteen rounds. Entropy falls from 0.35 nats per token towards zero, KL rises to more than one and a half nats per completion and then varies below that, the clip fraction is a few percent at first, the
#   length rises from 5 to 11 tokens, truncation stays below one percent, and the fraction of zero-variance groups rises.
metrics = {
    "neg_logp": "entropy, nats per token",
    "kl": "KL to the initial model, nats",
    "clip_fraction": "fraction of tokens clipped",
    "completion_length": "tokens per completion",
    "frac_terminated": "fraction truncated",
    "frac_reward_zero_std": "zero-variance groups",
}
fig, axes = plt.subplots(2, 3, figsize=(9, 4), sharex=True, layout="constrained")
for ax, (key, title) in zip(axes.flat, metrics.items(), strict=True):
    values = [1 - x for x in watched.history[key]] if key == "frac_terminated" else watched.history[key]
    ax.plot(values, color=PALETTE["blue"])
    ax.set(title=title, ylim=(0, max(0.05, 1.1 * max(values))))
for ax in axes[1]:
    ax.set(xlabel="round")
plt.show()

# %% [markdown]
# Read the metrics in pairs. Entropy falls *while* zero-variance groups appear, so it falls because questions are solved. If it fell while the reward did not change, that would be a collapse.
#
# ## A failure on purpose: a length rule that punishes thinking
#
# DAPO's soft punishment: the last four tokens of the budget cost ¼ each. The budget is 11 tokens, exactly what a chain of thought and its answer take.

# %%
punished_right = predict(
    "What fraction of its answers is right after eighteen rounds? (It begins at 0.44.)", 0.25, 0.45, 0.7, 1
)

# %%
punishment = DR_GRPO.with_(shape=(penalize_overlong,), soft_punish_cache=4)
tight = replace(group_family.RUN, max_steps=18, max_completion_length=11)
punished = group_family.train(begin, punishment, tight, quiet=False)
score = group_family.play(punished)
print("after eighteen rounds")
print(f"right {score['right']:.3f}   thinks {score['thinks']:.3f}   tokens {score['length']:.1f}")
punished_right.reveal(score["right"])

# %%
# figure: punished
# alt: Left, over eighteen rounds the optimised, shaped reward rises slowly from about 0.2, with noise, while the fraction of right answers falls from 0.4 to about 0.3 and meets it. Right, tokens per completion fall from 5 to 3.
fig, (left, right) = plt.subplots(1, 2, figsize=(8, 2.6), layout="constrained")
left.plot(punished.history["reward"], color=PALETTE["blue"], label="right answers")
left.plot(punished.history["shaped_reward"], color=PALETTE["red"], label="shaped reward, optimised")
left.set(xlabel="round", xticks=range(0, 18, 5), ylim=(0, 0.6))
left.legend(frameon=False)
right.plot(punished.history["completion_length"], color=PALETTE["blue"])
right.set(xlabel="round", xticks=range(0, 18, 5), ylabel="tokens per completion", ylim=(0, 6))
plt.show()

# %%
assert score["thinks"] < 0.1 and seen.holds("punished_end_thinks", below=0.1)
assert score["right"] < 0.4 and seen.holds("punished_end_right", below=0.4)

# %% [markdown]
# A right answer after a chain of thought nets 1 − 1 = 0, a lucky guess nets 1. The optimised curve rises to meet the other one, and the policy has unlearned what it could do. The method works as intended; the length rule
# also covers the chain of thought.
#
# A second failure is silent: an engine returns rows sample-major, and the code reads them prompt-major. The test that finds it takes one line: give each question a constant reward, and all
# advantages must be 0.

# %%
# NBVAL_CHECK_OUTPUT
level = torch.tensor([0.0, 1.0, 2.0], dtype=torch.float64)  # one constant reward per question
sample_major = level.repeat(4)  # four samples: 0 1 2 0 1 2 ...
print("read prompt-major: ", [round(x, 2) for x in adv.group_center(sample_major.view(3, 4)).flatten().tolist()])
print("read sample-major: ", adv.group_center(sample_major.view(4, 3).T).flatten().tolist())

# %%
predict.tally()

# %% [markdown]
# ## Now you
#
# * Fine-tune for 240 steps instead of 400 (`pipeline.SHELL_GAME_SFT`) and run Dr. GRPO on the result with three seeds. Look at the accuracy of completions with a chain of thought before RL. What can a group not teach?
# * Give the punished run a budget of 15 tokens. At which cache does it begin to unlearn the chain of thought?
# * Run `get("dapo")` for sixty rounds and plot its reward against rounds, and against `group_family.tokens(history)`.
#
# The graded exercises of this chapter: `minirlhf check 13`.
