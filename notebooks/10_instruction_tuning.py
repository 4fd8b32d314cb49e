# %% [markdown]
# # 10 · What makes a base model an assistant?
#
# A base model continues text. **How many conversations does it need until it answers, what do they teach it, and what happens if the mask is wrong?**
#
# We use two small tasks. One is the assistant of chapter 01, whose base model was trained on an endless stream of questions and chatter about animals. The other is a translator into three languages.

# %%
import math
import statistics
from dataclasses import replace

import matplotlib.pyplot as plt
import torch

from minirlhf.core.progress import progress
from minirlhf.equations import tuning
from minirlhf_course import evidence
from minirlhf_course.chapters.ch10_instruction_tuning import instruct, translator
from minirlhf_course.chapters.ch10_instruction_tuning.losses import LOOK, watched
from minirlhf_course.classroom.predictions import Predictions
from minirlhf_course.report.plotting import PALETTE

plt.rcParams.update({"font.size": 9, "axes.spines.top": False, "axes.spines.right": False})

predict = Predictions("10")
seen = evidence.StudyResults("ch10_assistant")  # ten seeds

# %% [markdown]
# ## A row, token by token
#
# This is one demonstration as the trainer receives it. The tokens in brackets are in the loss.

# %%
marks = predict("Which of these is in the loss?", "<assistant>", "the last word of the question", "<eos>")

# %%
# NBVAL_CHECK_OUTPUT
tokenizer = instruct.pipeline.fresh(instruct.WORLD, seed=0).tokenizer
[shown] = instruct.examples(tokenizer, 1, seed=5)
tokens = tokenizer.convert_ids_to_tokens(shown.input_ids)
print(*(f"[{token}]" if marked else token for token, marked in zip(tokens, shown.loss_mask, strict=True)))
marked = [token for token, inside in zip(tokens, shown.loss_mask, strict=True) if inside]
marks.reveal("<eos>" if "<eos>" in marked else "<assistant>")

# %% [markdown]
# ## Ten examples
#
# We compare the base model with the same model after a hundred steps on ten demonstrations. A completion *stops* if it ends within 24 words. This notebook runs one of the study's ten seeds: the one nearest to their means in a comparison below (the question in the loss).

# %%
stopping = predict(
    "Of a hundred completions, how many stop after ten demonstrations?", "fewer than 10", "about half", "more than 75"
)

# %%
trust = evidence.StudyResults("ch10_losses")  # ten seeds
gaps = [
    [a - b for a, b in zip(trust.values(f"everything_{what}"), trust.values(f"reply_{what}"), strict=True)]
    for what in ("few", "few_best")
]
far = lambda number: sum(abs(gap[number] - statistics.fmean(gap)) / statistics.stdev(gap) for gap in gaps)
seed = min(range(len(gaps[0])), key=far)
pretrain, tune = replace(instruct.BASE, seed=seed), replace(instruct.TUNE, seed=seed)
demonstrations = instruct.examples(tokenizer, 300, seed=seed)
makers = {
    "base": lambda: instruct.base_model(pretrain),
    "ten": lambda: instruct.tuned(models["base"], demonstrations[:10], tune),
}
models = {}
for name, make in progress(makers.items(), "models"):
    models[name] = make()
base, question = models["base"], instruct.WORLD.prompts("test")[0]
for name, trained in models.items():
    found = instruct.answers(trained, seed=seed)
    print(f"{name:5} stops {found.stops:.2f}, right {found.right:.2f}   {question} → {found.replies[0]}")
stopping.reveal("more than 75" if found.stops > 0.75 else "fewer than 10" if found.stops < 0.1 else "about half")

# %%
assert found.stops > 0.6 and seen.holds("stops_10", above=0.8) and seen.holds("stops_base", below=0.05)

# %% [markdown]
# The base model has seen the facts in its pretraining. Now we make a mistake on purpose. We train on 300 demonstrations whose closing token is *not* in the loss, because padding uses the same token and the mask excludes padding.

# %%
mute = instruct.tuned(base, [instruct.without_end(e) for e in demonstrations], tune)
found = instruct.answers(mute, seed=seed)
print(f"without the end in the loss: stops {found.stops:.2f}")
print(f"{question} → {found.replies[0]}")

# %%
assert found.stops < 0.1 and seen.holds("stops_no_end", below=0.1)

# %% [markdown]
# ## The question in the loss
#
# We train on thirty demonstrations for a hundred steps. In one run only the completions count, in the other every token.

# %%
helps = predict(
    "With the questions in the loss, the held-out loss of completions after a hundred steps is, in the run below (as in seven of ten seeds), …",
    "lower: questions teach the model something",
    "higher: the assistant does not need the questions",
    "lower, but only because both were trained too long",
)

# %%
held = instruct.examples(tokenizer, 100, seed=seed + 1000)
few = demonstrations[:30]
curves = {
    name: watched(base, examples, held, tune)
    for name, examples in progress(
        {"completions": few, "everything": [instruct.all_in_loss(e) for e in few]}.items(), "losses"
    )
}
for name, losses in curves.items():
    best = min(range(len(losses)), key=losses.__getitem__)
    print(f"{name:11} lowest {losses[best]:.2f} after {LOOK * (best + 1):3} steps, after a hundred {losses[-1]:.2f}")
late = curves["everything"][-1] < curves["completions"][-1]
gain = min(curves["completions"]) - min(curves["everything"])
helps.reveal(
    "higher: the assistant does not need the questions"
    if not late
    else "lower, but only because both were trained too long"
    if gain < 0.15
    else "lower: questions teach the model something"
)

# %%
# figure: prompt
# alt: Held-out loss of completions over a hundred steps on thirty demonstrations. Both curves reach their minimum after about fifteen steps and then rise. With the questions in the loss
#   the minimum is a little higher than with the completions alone, and the end a little lower.
fig, ax = plt.subplots(figsize=(6.5, 2.8), layout="constrained")
for (name, losses), colour in zip(curves.items(), ("blue", "red"), strict=True):
    title = "completions in the loss" if name == "completions" else "questions too"
    ax.plot([LOOK * (i + 1) for i in range(len(losses))], losses, color=PALETTE[colour], label=title)
ax.set(xlabel="step", ylabel="held-out loss, nats per token")
ax.legend(frameon=False)
plt.show()

# %% [markdown]
# ## Several conversations in one row
#
# Each row has six documents: *translate cat*, in one of three languages that no question names. On a document alone, no model can do better than log 3 = 1.099 nats.

# %%
# NBVAL_CHECK_OUTPUT
numbers = torch.tensor([[0, 0, 0, 1, 1, 2, 2, 2]])
print("positions", tuning.packed_positions(numbers)[0].tolist())
for row in tuning.packed_mask(numbers)[0].int():
    print(*("■" if x else "·" for x in row))

# %%
leak = predict(
    "Six documents of one language, no mask between them. The training loss goes to about …", "1.1", "0.55", "0.2"
)

# %%
runs = {
    "one language, masked": (True, True),
    "one language, no mask": (True, False),
    "any language, no mask": (False, False),
}
packing = evidence.StudyResults("ch10_packing")  # five seeds
losses, looks = {}, {}
for name, (related, masked) in progress(runs.items(), "packings"):
    trained = translator.fresh(0)
    losses[name] = translator.packed(trained, translator.PACK, related=related, masked=masked)["loss"]
    looks[name] = translator.looked_at(trained, 0, related=related, masked=masked)
    print(f"{name:23}", {what: round(value, 3) for what, value in looks[name].items()})
last = statistics.fmean(losses["one language, no mask"][-20:])
leak.reveal("0.2" if last < 0.35 else "0.55" if last < 0.8 else "1.1")

# %%
# figure: packing
# alt: Training loss over two hundred steps. With the mask, and without it for documents in any language, the loss converges just above the dotted line at log 3.
#   Without the mask and with one language per row it falls below that line within thirty steps and ends just above a second dotted line at log 3 divided by six.
fig, ax = plt.subplots(figsize=(6.5, 3.0), layout="constrained")
for (name, values), colour in zip(losses.items(), ("blue", "red", "green"), strict=True):
    ax.plot(values, color=PALETTE[colour], label=name, lw=1.2)
for level, title in ((math.log(3), "log 3"), (math.log(3) / 6, "log 3 / 6")):
    ax.axhline(level, ls=":", color=PALETTE["black"])
    ax.text(201, level + 0.1, title, ha="right")
ax.set(xlabel="step", ylabel="loss of an answer, nats", ylim=(0, 3.2))
ax.legend(frameon=False)
plt.show()

# %%
assert looks["one language, masked"]["off"] < 1e-4 and looks["one language, no mask"]["off"] > 1
assert last < 0.3 and packing.holds("related_leaking_train", below=0.3)
assert packing.holds("related_leaking_alone", above=1.0)

# %% [markdown]
# **What to notice.** Without the mask, the sixth document of one language costs almost nothing. On a document alone, that model is no better than the others. The green curve has the same bug, and it is invisible.
#
# ## The instruction hierarchy
#
# *System: speak French. User: speak German.* We train on 1,500 exchanges in which the two never disagree, then with 15 or 60 more in which they do and the system message is obeyed. Half of the words occur in these conflicts. We test the other half.

# %%
wins = predict(
    "Without any example of a conflict, who is obeyed?", "the system message", "the user", "each half the time"
)

# %%
hierarchy = evidence.StudyResults("ch10_hierarchy")
user = statistics.fmean(hierarchy.values("user_0"))
last = statistics.fmean(hierarchy.values("last_system_0"))
print(f"conflicts that the user wins, ten seeds: {user:.0%}")
print(f"conflicts that the system wins if its message is the last one: {last:.0%}")
wins.reveal("the user" if user > 0.7 else "the system message" if user < 0.3 else "each half the time")

# %%
# figure: hierarchy
# alt: Fraction of conflicts about held-out words that the system message wins, over ten seeds, for 0, 15 and 60 examples of a conflict beside 1,500 others. In a known form it rises from about one in ten over nine in ten to nearly all;
#   in a new form from nearly none over eight in ten to nearly all. Without examples of a conflict the seeds range from none to a third.
fig, ax = plt.subplots(figsize=(6.5, 2.8), layout="constrained")
for shift, (key, title, colour) in zip(
    (-0.12, 0.12),
    (("system", "known form", "blue"), ("attack", "new form", "red")),
    strict=True,
):
    for k, count in enumerate((0, 15, 60)):
        values = hierarchy.values(f"{key}_{count}")
        ax.bar(k + shift, statistics.fmean(values), 0.22, color=PALETTE[colour], alpha=0.35, label=None if k else title)
        spread = [k + shift + 0.015 * (i - 4.5) for i in range(len(values))]
        ax.plot(spread, values, ".", ms=4, color=PALETTE[colour])
ax.set(
    xticks=range(3),
    xticklabels=["0", "15", "60"],
    xlabel="examples of a conflict, beside 1,500 others",
    ylabel="system message wins",
    ylim=(0, 1.05),
)
ax.legend(frameon=False, loc="upper left")
plt.show()

# %%
assert hierarchy.holds("system_60", above=0.9) and hierarchy.difference("system_15", "system_0").below == 0

# %% [markdown]
# ## An adapter's first step, and four bits
#
# We take a layer of 64 × 64, a gradient, and an adapter of rank 4 whose $B$ is zero. What does one step of plain gradient descent change, compared with full fine-tuning?

# %%
smaller = predict(
    "Rank 4 of 64, α = 8. At the same rate, the adapter's first step is as long as … of the full one",
    "all",
    "a third",
    "a tenth",
    "less",
)

# %%
# NBVAL_CHECK_OUTPUT
rng = torch.Generator().manual_seed(0)
drawn = lambda *shape: torch.randn(*shape, generator=rng, dtype=torch.float64)
weight, slope = drawn(64, 64) / 8, drawn(64, 64)
down = ((torch.rand(4, 64, generator=rng, dtype=torch.float64) * 2 - 1) / 8).requires_grad_()  # variance 1/(3·64)
up = torch.zeros(64, 4, dtype=torch.float64, requires_grad=True)
(slope * tuning.lora_weight(weight, down, up, lora_alpha=8.0)).sum().backward()
moved = tuning.lora_weight(weight, down, -up.grad, lora_alpha=8.0) - weight
share = float((moved.norm() / slope.norm()).detach())
print(f"length of the step: {share:.3f} of the full one; gradient of A: {float(down.grad.abs().max()):.1f}")
smaller.reveal("all" if share > 0.7 else "a third" if share > 0.2 else "a tenth" if share > 0.06 else "less")

# %%
# NBVAL_CHECK_OUTPUT
levels = tuning.nf4_levels()
print("sixteen levels:", *(f"{x:.2f}" for x in levels.tolist()))
blocks = weight.view(-1, 64)
even = torch.linspace(-1, 1, 17, dtype=torch.float64)[1:]
for name, table in (("normal quantiles", levels), ("evenly spaced", even)):
    error = (blocks - tuning.absmax_quantised(blocks, table)).square().mean().sqrt() / blocks.square().mean().sqrt()
    print(f"{name:17} error {float(error):.3f} of the weights' own size")

# %% [markdown]
# The error is about a tenth of the weights' own size (root mean square), in little more than a quarter of the memory of 16 bits. The kernels that make this fast run on GPUs.
#
# ## Dynamic fine-tuning
#
# Imitation moves a token's logit at the speed $1 - p$, dynamic fine-tuning (DFT) at $p(1 - p)$. A token's probability should rise from one in ten thousand to one half.

# %%
slow = predict("How many times longer does DFT take?", "2", "10", "1,000", "a million")

# %%
# NBVAL_CHECK_OUTPUT
half = torch.tensor(0.5, dtype=torch.float64)
for start in (0.1, 0.01, 0.001, 0.0001):
    begin = torch.tensor(start, dtype=torch.float64)
    imitation, trusting = (float(f(begin, half)) for f in (tuning.imitation_time, tuning.dynamic_imitation_time))
    print(f"from {start:<6} imitation {imitation:6.2f}   DFT {trusting:9.2f}")
ratio = trusting / imitation
slow.reveal(
    min(
        ("2", "10", "1,000", "a million"),
        key=lambda x: abs(math.log(ratio / float({"a million": "1e6"}.get(x, x.replace(",", ""))))),
    )
)

# %% [markdown]
# So imitate first, and use DFT afterwards. But when? In ten seeds, DFT begins after twenty steps of imitation, or after a hundred:

# %%
for name, title in (
    ("before", "twenty steps of imitation"),
    ("dft_after", "  and eighty of DFT"),
    ("imitated", "a hundred steps of imitation"),
    ("dft_late", "  and eighty of DFT"),
    ("imitated_longer", "  or eighty more of imitation"),
):
    stops, right = (statistics.fmean(trust.values(f"{what}_{name}")) for what in ("stops", "right"))
    print(f"{title:32} stops {stops:.2f}, right {right:.2f}")

# %%
assert trust.holds("stops_dft", below=0.1) and trust.difference("stops_dft_after", "stops_before").above == 0
assert sorted(trust.values("stops_dft_late"))[1] > 0.9  # all but one

# %% [markdown]
# **What to notice.** After twenty steps three completions in four stop. DFT then makes the model forget the end, probably because it hardly knows yet *after which* word a completion ends. After a hundred steps of imitation nine of the ten seeds keep the end, and more of their completions are right. The tenth seed forgets the end.

# %%
predict.tally()

# %% [markdown]
# ## Now you
#
# * Ask the fine-tuned model in another layout (`instruct.answers(models["ten"], seed=seed, layout=instruct.MISTAKES["plain"])`).
# * Pack two documents in a row instead of six (`translator.packed(..., together=2)`). Which loss is impossible now?
# * How few conflicts are enough? `translator.obedient(conflicts=5, ...)` trains one more translator.
#
# The graded exercises of this chapter: `minirlhf check 10`.
