# %% [markdown]
# # 02 · What else could the model have said?
#
# Ask a language model a question twice, and it gives two different completions. It stores none of them. It gives a
# probability to *every* possible completion, and you saw one sample. **What is in that distribution, and how do the
# settings change it: temperature, top-p, the examples in the prompt, a word like "think"?**
#
# The models here have 0.1 million parameters and solve toy tasks, so that we know their ideal predictions exactly. The
# first run trains them (two minutes). After that they come from a cache.

# %%
import copy
import itertools
import math
import os

import matplotlib.pyplot as plt
import torch
import torch.nn.functional as F
from IPython.display import Markdown

from minirlhf.core.logprobs import token_entropies, token_logps
from minirlhf.core.progress import progress
from minirlhf.core.randomness import numpy_generator
from minirlhf.data import tasks
from minirlhf.data.chat import PLAIN, conversation, encode, encode_prompt
from minirlhf.data.tasks.assistant import POLITE
from minirlhf.data.tasks.phrasebook import ENGLISH, LANGUAGES, predictive
from minirlhf.data.types import Tokens
from minirlhf.equations import language, transformer
from minirlhf.feedback.rewards import task_problems, task_reward
from minirlhf.models.forward import completion_logps
from minirlhf.models.heads import RewardModel, ValueModel
from minirlhf.models.sampling import Sampling, sample
from minirlhf.models.tiny import num_parameters
from minirlhf.stages import pipeline, zoo
from minirlhf.trainers.evaluation import candidates
from minirlhf.trainers.sft import SFTConfig, train_sft
from minirlhf_course import evidence
from minirlhf_course.chapters.ch02_language_models import byte_pairs
from minirlhf_course.classroom.predictions import Predictions
from minirlhf_course.report.plotting import PALETTE

plt.rcParams.update({"font.size": 9, "axes.spines.top": False, "axes.spines.right": False})
PROMPTS = {"cpu": 64, "gpu": 128}[os.environ.get("MINIRLHF_SCALE", "cpu")]  # test prompts in the sampling experiments

world = tasks.get("assistant")
model, tokenizer = zoo.load("assistant-sft")
model.eval()
seen = evidence.StudyResults("ch02")  # five seeds of everything below
predict = Predictions("02")


# %% [markdown]
# ## From words to a distribution
#
# A model reads numbers. This tokenizer has one number per word, and a few numbers for special tokens.

# %%
# NBVAL_CHECK_OUTPUT
exchange = encode(tokenizer, conversation("tell me about cats", "clever cats purr and nap"))
for i, (word, mine) in enumerate(
    zip(tokenizer.convert_ids_to_tokens(exchange.input_ids), exchange.loss_mask, strict=True)
):
    print(f"{i:3} {exchange.input_ids[i]:4}  {word:12} {'the policy chose it' if mine else ''}")
print(f"vocabulary {len(tokenizer)}; end of sequence is {tokenizer.eos_token_id}, padding is {tokenizer.pad_token_id}")

# %% [markdown]
# Large models have to represent far more words, so they use *pieces* of words. Which pieces? Byte-pair encoding begins with single letters and
# repeatedly merges the two neighbours that occur together most often. Nine words, one of them twice, are enough to see it.

# %%
# table: merges
corpus = ["bark", "barks", "barking", "barking", "nap", "naps", "napping", "purring", "sing", "singing"]
learned = byte_pairs.learn(corpus, 8)
merges = [merge for merge, _ in learned]
rows = [
    f"| {n} | {a} + {b} → **{a}{b}** | {count} | {' · '.join(byte_pairs.cut('barking', merges[:n]))} |"
    for n, ((a, b), count) in enumerate(learned, 1)
]
Markdown("\n".join(["| merge | pair | times | *barking* is now |", "|---|---|---|---|", *rows]))

# %%
# NBVAL_CHECK_OUTPUT
for word in ("barking", "napkin", "purrs"):  # the second is not in the corpus, the third neither
    print(f"{word:8}", " · ".join(byte_pairs.cut(word, merges)))

# %% [markdown]
# A frequent word is one piece. A new word is composed of known pieces. No word is unknown if its letters are known.
#
# ## Inside the model
#
# We compute one **attention head** by hand. Each position has a query, a key and a value. A position compares its query with the keys of all
# positions up to itself. It takes a mean of their values, weighted by e to the power of query times key.

# %%
# NBVAL_CHECK_OUTPUT
key = torch.tensor([[6.0], [3.0], [1.0]], dtype=torch.float64).log()  # log 6, log 3, log 1
value = torch.tensor([[10.0], [20.0], [0.0]], dtype=torch.float64)
query = torch.ones(3, 1, dtype=torch.float64)
past = torch.ones(3, 3).tril()
weight = past * (query @ key.T).exp()
weight = weight / weight.sum(-1, keepdim=True)
for t in range(3):
    print(
        f"position {t + 1} weighs",
        [round(w, 3) for w in weight[t].tolist()],
        "and gathers",
        round(float((weight @ value)[t]), 3),
    )
torch.testing.assert_close(weight @ value, transformer.attention(query, key, value))

# %% [markdown]
# Now we write the whole model by hand: everything between the ids and the logits. It is short enough to read. In each of the two layers a position
# reads from itself and from *earlier* positions (the triangle `past`). The matrix that turned ids into vectors also turns vectors back into scores.


# %%
def hidden_states(weights, config, ids):
    """Return the last hidden states (1, S, D) of a decoder-only transformer for ids (1, S), and each layer's attention."""
    length, width = ids.shape[1], config.hidden_size // config.num_attention_heads

    def norm(x, scale):
        return scale * x / (x.square().mean(-1, keepdim=True) + config.rms_norm_eps).sqrt()

    turns = torch.arange(length)[:, None] / 10_000 ** (torch.arange(0, width, 2) / width)  # (S, width/2) angles

    def rotate(x):  # positions enter here, as a rotation of pairs of coordinates
        a, b = x.chunk(2, -1)
        return torch.cat([a * turns.cos() - b * turns.sin(), b * turns.cos() + a * turns.sin()], -1)

    past = torch.ones(length, length, dtype=torch.bool).tril()
    attended = []
    h = weights["model.embed_tokens.weight"][ids]
    for layer in range(config.num_hidden_layers):
        w = {k.split(".", 3)[3]: v for k, v in weights.items() if k.startswith(f"model.layers.{layer}.")}
        x = norm(h, w["input_layernorm.weight"])
        q, k, v = (
            (x @ w[f"self_attn.{name}_proj.weight"].T).view(1, length, -1, width).transpose(1, 2) for name in "qkv"
        )
        scores = rotate(q) @ rotate(k).transpose(2, 3) / math.sqrt(width)  # (1, heads, S, S)
        attended.append(scores.masked_fill(~past, -math.inf).softmax(-1)[0])  # (heads, S, S)
        gathered = attended[-1] @ v
        h = h + gathered.transpose(1, 2).flatten(2) @ w["self_attn.o_proj.weight"].T
        x = norm(h, w["post_attention_layernorm.weight"])
        gate, up = x @ w["mlp.gate_proj.weight"].T, x @ w["mlp.up_proj.weight"].T
        h = h + (F.silu(gate) * up) @ w["mlp.down_proj.weight"].T
    return norm(h, weights["model.norm.weight"]), attended


ids = torch.tensor([exchange.input_ids])
weights = model.state_dict()
hidden, attended = hidden_states(weights, model.config, ids)
logits = hidden @ weights["model.embed_tokens.weight"].T  # (1, S, V)
with torch.no_grad():
    torch.testing.assert_close(logits, model(input_ids=ids).logits, atol=1e-4, rtol=1e-4)
print(f"{num_parameters(model):,} parameters, and thirty lines give the same logits {tuple(logits.shape)}")
words = tokenizer.convert_ids_to_tokens(ids[0].tolist())
asked, about = words.index("clever"), words.index("cats")
for layer, heads in enumerate(attended, 1):
    shares = ", ".join(f"{float(head[asked, about]):.2f}" for head in heads)
    print(f"layer {layer}, at “clever”: its heads give the animal in the question the weights {shares}")

# %%
# figure: heads
# alt: A heat map for each attention head of the two layers: rows are the positions of the queries, columns the positions of the keys. All weight is on and below the diagonal. In the first
#   layer the largest weight of most rows is on the position itself. In the second layer both heads, in the row of the word before the animal's name, attend to the animal in the question.
fig, axes = plt.subplots(1, 4, figsize=(9, 3.1), sharey=True, layout="constrained")
maps = {f"layer {layer}, head {n}": m for layer, heads in enumerate(attended, 1) for n, m in enumerate(heads, 1)}
for ax, (title, weight_map) in zip(axes, maps.items(), strict=True):
    ax.imshow(weight_map, cmap="Blues", vmin=0, vmax=1)
    ax.set(title=title)
    ax.set_xticks(range(len(words)), words, rotation=90, fontsize=8)
    ax.set_yticks(range(len(words)), words, fontsize=8)
plt.show()

# %% [markdown]
# Only the step from hidden states to logits produces words. With another matrix in its place, the same body does another job. The two new
# heads are untrained here. Chapters 8 and 12 train them.

# %%
# NBVAL_CHECK_OUTPUT
attention_mask = torch.ones_like(ids)
reward_model, critic = (kind.from_causal_lm(model, share=True) for kind in (RewardModel, ValueModel))
for name, out in {
    "language model": logits,
    "reward model": reward_model(ids, attention_mask),
    "critic": critic(ids, attention_mask),
}.items():
    print(f"{name:15} (1, {ids.shape[1]}, {model.config.hidden_size}) -> {tuple(out.shape)}")

# %% [markdown]
# ## The log-probability of a completion
#
# The logits at position $t$ are about the token at $t+1$. So we drop the last row of logits and the first id, take the log-softmax, and pick the entry of the
# token that came next. This takes three lines, and the library's function agrees.


# %%
def shift_and_gather(logits, ids):
    """Return the log-probability of every token except the first: (B, S, V), (B, S) -> (B, S − 1)."""
    log_probs = logits[:, :-1].log_softmax(-1)
    return log_probs.gather(-1, ids[:, 1:, None]).squeeze(-1)


torch.testing.assert_close(shift_and_gather(logits, ids), token_logps(logits, ids))

# %% [markdown]
# A user asks `tell me about cats`. Here are five completions. Which one does the model find most probable, and which least? And which one would
# *you* like best?

# %%
question = "tell me about cats"
completions = (
    "cats nap",
    "cats bark",
    "clever cats purr and nap",
    "sure! clever cats purr and nap and pounce",
    "cats nap nap nap",
)

# %%
likely = predict("Which completion of “tell me about cats” does the model find most probable?", *completions)


# %%
def scored(completion):
    """Return the tokens of a completion and the log-probability of each."""
    tokens = encode(tokenizer, conversation(question, completion))
    ids, chosen = torch.tensor([tokens.input_ids]), torch.tensor(tokens.loss_mask)
    with torch.no_grad():
        logps = shift_and_gather(model(input_ids=ids).logits, ids)[0]
    return tokenizer.convert_ids_to_tokens(ids[0, chosen].tolist()), logps[chosen[1:]].tolist()


scores = {completion: scored(completion) for completion in completions}
total = {completion: sum(logps) for completion, (_, logps) in scores.items()}
likely.reveal(max(total, key=total.get))

# %%
# figure: surprise
# alt: Five completions of "tell me about cats", one per row, each token a cell shaded by its surprise in nats. Expected words
#   are pale; "bark" after "cats" and each repeated "nap" are dark, with surprises of 6 to 10 nats. At the right are
#   the total log-probability and the gold reward: the short "cats nap" is most probable by far, the long polite completion has the highest
#   reward, and "cats bark" is about as probable as "clever cats purr and nap".
fig, ax = plt.subplots(figsize=(9, 2.6), layout="constrained")
shade = plt.get_cmap("cividis_r")
for row, (completion, (words, logps)) in enumerate(scores.items()):
    for t, (word, logp) in enumerate(zip(words, logps, strict=True)):
        depth = min(-logp / 8, 1.0)
        ax.add_patch(plt.Rectangle((t, -row - 0.42), 0.96, 0.84, color=shade(depth)))
        colour = "white" if depth > 0.55 else "black"
        ax.text(t + 0.48, -row + 0.13, word, ha="center", va="center", color=colour)
        ax.text(t + 0.48, -row - 0.22, f"{-logp:.2f}", ha="center", va="center", color=colour, fontsize=7)
    ax.text(10.1, -row, f"{sum(logps):.2f}", ha="right", va="center")
    ax.text(11.4, -row, f"{world.grade(question, completion):.2f}", ha="right", va="center", fontweight="bold")
ax.text(10.1, 0.65, "log π(y|x)", ha="right")
ax.text(11.4, 0.65, "gold reward", ha="right", fontweight="bold")
ax.set(xlim=(0, 11.5), ylim=(-4.5, 1))
ax.axis("off")
plt.show()

# %% [markdown]
# **What to notice.** Each cell is one factor of the chain rule, as surprise in nats, and the row adds up. Length costs: each further word lowers
# the probability of the text so far, and the shortest completion is the most probable by far. A completion must also *end*. An end in an unusual position costs more than
# two expected words, as the last lines below show. Probability is not quality: the model finds a false claim, `cats bark`, as probable as a good
# answer. It predicts what people *write* in this task. The rest of the book makes it say what people *want*.

# %%
assert max(total, key=total.get) == "cats nap" and min(total, key=total.get) == "cats nap nap nap"

# %%
for completion, (_, logps) in scores.items():
    row = torch.tensor([logps])
    print(
        f"perplexity {float(language.perplexity(row, torch.ones_like(row, dtype=torch.bool))):7.1f} per token   {completion}"
    )
stopped, went_on = (sum(scored(completion)[1]) for completion in ("clever", "clever cats purr"))
print(f"log π of clever: {stopped:.1f}; of clever cats purr: {went_on:.1f}".replace("-", "−"))

# %%
assert stopped < went_on - 2  # the longer completion is the more probable one

# %% [markdown]
# ## What the loss is made of
#
# The shell game: a ball is under one of four cups, six swaps follow, where is it? One demonstration in five writes the path of the ball
# (`think b a a c c c b answer b`). The others answer directly. The model was trained on 6,400 demonstrations, by teacher forcing.
#
# What is its loss on new demonstrations, in nats per completion? Predict it before you look. (1) No model can know whether a demonstration writes a chain of thought
# or answers directly. What does this choice, with probability ⅕, cost? (2) Suppose the model cannot follow six swaps without writing. What does the direct answer
# cost? (3) And the chain?

# %%
game = tasks.get("shell_game")
player, game_tokenizer = zoo.load("shell-game-sft")
player.eval()
games = game.prompts("test")[:300]
chains = [game.reference(p) for p in games]
kinds = {"think": chains, "answer": [f"answer {chain.split()[-1]}" for chain in chains]}

losses = {}
for first, texts in kinds.items():
    rows = [encode(game_tokenizer, conversation(p, r)) for p, r in zip(games, texts, strict=True)]  # of one length
    ids = torch.tensor([row.input_ids for row in rows])
    with torch.no_grad():
        logps = token_logps(player(input_ids=ids).logits, ids)
    losses[first] = -logps[:, -sum(rows[0].loss_mask) :].mean(0)  # one number per position in the completion
    words = [*texts[0].split(), "<eos>"]
    print("  ".join(f"{word} {nats:.2f}" for word, nats in zip(words, losses[first].tolist(), strict=True)))

share = game.thinking_share
entropy = -share * math.log(share) - (1 - share) * math.log(1 - share)
nll = share * float(losses["think"].sum()) + (1 - share) * float(losses["answer"].sum())
print(f"\nloss {nll:.3f} = entropy of the demonstrations {entropy:.3f} + divergence {nll - entropy:.3f}")
print(
    f"a model with correct chains and random direct answers diverges by 4/5 · log 4 = {(1 - share) * math.log(4):.3f}"
)

# %%
assert seen.holds("kl_from_demonstrations", below=1.25) and seen.holds("kl_from_demonstrations", above=1.05)
assert 1.05 < nll - entropy < 1.25

# %% [markdown]
# The loss *is* the entropy of the data plus the divergence of the model from them, and both parts are visible here. No training removes the first
# half nat. Nearly all the rest is at one token, the cup after a direct `answer`: e^1.4 ≈ 4 cups to choose from. In a chain the
# same token costs nothing, because the model has just written the position. We return to this model at the end. Two of the five models of the study write a chain only
# half as often as their demonstrations, so their first word costs more.
#
# ## Temperature
#
# Take one distribution over 63 words. What is its entropy as $T \to 0$? As $T \to \infty$? Is the curve a straight line? Does it have a
# plateau? Can it fall?

# %%
# NBVAL_CHECK_OUTPUT
example = torch.tensor([4.0, 3.0, 1.0, 0.0], dtype=torch.float64)
for temperature in (0, 0.1, 0.5, 1, 2, 10, math.inf):
    probs = language.temperature_softmax(example, temperature=temperature)
    entropy = 0.0 - float(torch.special.xlogy(probs, probs).sum())
    print(f"T = {temperature:4}: {' '.join(f'{p:.3f}' for p in probs.tolist())}   entropy {entropy:.3f}")

temperature, step = 1.3, 1e-4
slope = (token_entropies(example, temperature + step) - token_entropies(example, temperature - step)) / (2 * step)
probs = (example / temperature).softmax(-1)
variance = probs @ example**2 - (probs @ example) ** 2
print(f"\ndH/dT at {temperature}: {slope:.6f}, Var(z)/T³: {variance / temperature**3:.6f}")
torch.testing.assert_close(variance / temperature**3, language.entropy_slope(example, temperature=temperature))


# %%
def next_logits(text, begun=""):
    """Return the logits (V,) of the word that follows the beginning of a completion."""
    ids = encode_prompt(tokenizer, conversation(text)) + tokenizer(begun, add_special_tokens=False).input_ids
    with torch.no_grad():
        return model(input_ids=torch.tensor([ids])).logits[0, -1]


places = {
    "the first word": next_logits(question),
    'after "cats"': next_logits(question, "cats"),
    'after "clever"': next_logits(question, "clever"),
}

temperatures = torch.logspace(-4, 2.5, 250).tolist()
curves = {name: [float(token_entropies(z, temperature)) for temperature in temperatures] for name, z in places.items()}

# %%
for curve in curves.values():
    assert all(a <= b + 1e-5 for a, b in itertools.pairwise(curve))  # it never falls

# %%
# figure: temperature
# alt: Entropy of the next word against temperature on a logarithmic axis, for three positions in a completion. All three curves rise
#   from 0 at low temperature to the dotted line log 63 at high temperature. At temperature 1 they differ: 2.2 nats at
#   the first word, 1.6 after "cats", 0.3 after "clever". The curve after "cats" has a long plateau at log 3.
fig, ax = plt.subplots(figsize=(6.5, 3.2), layout="constrained")
for (name, z), colour in zip(places.items(), ("blue", "red", "green"), strict=True):
    ax.plot(temperatures, curves[name], color=PALETTE[colour], label=name)
    ax.plot(1.0, float(token_entropies(z)), "o", color=PALETTE[colour], ms=4)
ax.axhline(math.log(len(tokenizer)), color="0.4", lw=0.8, ls=":")
ax.text(1.2e-4, math.log(len(tokenizer)) - 0.08, "log 63: uniform", va="top", color="0.3")
ax.text(7e-4, math.log(3) + 0.05, "log 3: purr, nap or pounce", color=PALETTE["red"])
ax.axvline(1.0, color="0.7", lw=0.8)
ax.set(xscale="log", xlabel="temperature", ylabel="entropy, nats")
ax.legend(frameon=False, loc="center left", bbox_to_anchor=(0, 0.68))
plt.show()

# %% [markdown]
# The entropy never falls, because its slope is a variance over $T^3$. One temperature has different effects at different positions: at $T = 1$ the model is
# undecided at the first word and nearly certain after `clever`. The plateau: after `cats` three words have nearly equal logits, so over a factor of ten in
# temperature the model chooses among exactly these three. One of them wins only when the temperature is below the differences between their logits.
#
# ## Truncation: top-k, top-p and min-p
#
# At any position most of the 63 words are nonsense, and together they are not negligible. Three rules remove them. Here they are at
# a position where the model is undecided and at one where it is nearly certain.

# %%
# figure: truncation
# alt: Two bar charts of next-word probabilities, sorted, with bars above them that span the words which top-k 5,
#   top-p 0.9 and min-p 0.1 keep. At the first word of the completion, where the probability is spread out, they keep 5, 8 and 9 words. After
#   "clever", where "cats" has 96 percent, top-p and min-p keep that one word, while top-k keeps 5, four of them nonsense.
rules = {
    "top-k 5": lambda z: language.top_k_logits(z, top_k=5),
    "top-p 0.9": lambda z: language.top_p_logits(z, top_p=0.9),
    "min-p 0.1": lambda z: language.min_p_logits(z, min_p=0.1),
}
fig, axes = plt.subplots(1, 2, figsize=(9, 3.2), layout="constrained")
for ax, name in zip(axes, ("the first word", 'after "clever"'), strict=True):
    z = places[name]
    order = z.argsort(descending=True)[:12]
    ax.bar(range(12), z.softmax(-1)[order], color="0.75", width=0.7)
    peak = float(z.softmax(-1).max())
    for row, ((rule, cut), colour) in enumerate(zip(rules.items(), ("blue", "red", "green"), strict=True)):
        kept = int(cut(z).isfinite().sum())
        mass = float(language.retained_mass(z, cut(z)))
        height = peak * (1.65 - 0.22 * row)
        ax.plot([-0.4, kept - 0.6], [height] * 2, color=PALETTE[colour], lw=3, solid_capstyle="butt")
        ax.text(-0.4, height + 0.04 * peak, f"{rule} keeps {kept}, mass {mass:.3f}", color=PALETTE[colour], va="bottom")
    ax.set_ylim(0, 1.85 * peak)
    ax.set_yticks([tick for tick in ax.get_yticks() if tick <= 1.1 * peak])
    ax.set_xticks(range(12), tokenizer.convert_ids_to_tokens(order.tolist()), rotation=60)
    ax.set(title=name, ylabel="probability")
plt.show()

# %% [markdown]
# Top-k ignores the shape of the distribution: where the model is nearly certain, it still admits four absurd words. The other two rules adapt.
#
# **How does truncation change log-probabilities?** A kept word was sampled with probability π/π(K), where π(K) is the probability of the kept set K. Training code
# that uses π instead weights each word by π/π_trunc.

# %%
weight = predict("What is the mean of that weight over the sampled words?", "below 1", "1", "above 1")

# %%
# NBVAL_CHECK_OUTPUT
probs = torch.tensor([0.5, 0.25, 0.125, 0.0625, 0.0625], dtype=torch.float64)
cut = language.top_p_logits(probs.log(), top_p=0.8)
truncated = cut.softmax(-1)
kept = truncated > 0
print("sampled from:", [round(p, 4) for p in truncated.tolist()])
print("log π − log π_trunc:", [round(x, 4) for x in (probs.log() - truncated.log())[kept].tolist()])
print("log π(K):", round(float(language.retained_mass(probs.log(), cut).log()), 4))
mean_weight = float((truncated * probs / truncated)[kept].sum())
print("mean weight:", mean_weight, "= π(K) =", float(language.retained_mass(probs.log(), cut)))
weight.reveal("1" if math.isclose(mean_weight, 1.0) else "below 1" if mean_weight < 1 else "above 1")

# %% [markdown]
# It is below 1, and exactly the kept mass: no weight can restore a word that is never sampled. Over a whole completion the factors multiply. A `Rollout` therefore stores
# both: `old_logps` without truncation and `behavior_logps` with it.


# %%
def ask(num_generations, seed=0, prompts=PROMPTS, **how):
    """Sample completions of test prompts and grade them by the gold reward."""
    return candidates(
        model,
        task_problems(world, "test")[:prompts],
        task_reward(world),
        tokenizer=tokenizer,
        sampling=Sampling(max_completion_length=world.max_completion_length, **how),
        num_generations=num_generations,
        seed=1000 + seed,
    )


def reread(rollout, temperature=1.0):
    """Return the log-probabilities of the sampled tokens from a second forward pass."""
    with torch.no_grad():
        return completion_logps(model, rollout.input_ids, rollout.attention_mask, rollout.mask.shape[1], temperature)


rollout = ask(8, top_p=0.9).rollout
gap = torch.where(rollout.mask, rollout.old_logps - rollout.behavior_logps, 0.0)
print(
    f"top-p 0.9: mean weight of a token {float(gap.exp()[rollout.mask].mean()):.3f}, of a completion {float(gap.sum(-1).exp().mean()):.3f}"
)
torch.testing.assert_close(reread(rollout)[rollout.mask], rollout.old_logps[rollout.mask], atol=1e-3, rtol=1e-3)

# %%
assert seen.holds("ratio_cut", below=0.95) and float(gap.exp()[rollout.mask].mean()) < 0.95

# %% [markdown]
# The completions that the sampler cannot produce have together more than 40 % of the model's probability. No reweighting of the others can show this.
#
# ## A failure on purpose: the temperature forgotten
#
# Sample at $T = 1.5$. Run a second forward pass over the same tokens with the same weights, and forget to divide by the temperature. The policy has not changed, so
# every ratio π_new/π_old should be 1. Would your dashboard show the mistake?

# %%
average = predict("What is the mean of these wrong ratios?", "below 0.9", "between 0.9 and 1.1", "above 1.1")

# %%
rollout = ask(8, temperature=1.5).rollout
right, wrong = ((reread(rollout, t) - rollout.old_logps)[rollout.mask].exp() for t in (1.5, 1.0))
outside = float(((wrong - 1).abs() > 0.2).float().mean())
print(f"temperature applied:   mean {right.mean():.4f}, smallest {right.min():.4f}, largest {right.max():.4f}")
print(f"temperature forgotten: mean {wrong.mean():.4f}, smallest {wrong.min():.1g}, largest {wrong.max():.2f}")
print(f"outside 1 ± 0.2, where PPO would clip: {outside:.0%} of the tokens")
mean = float(wrong.mean())
average.reveal("below 0.9" if mean < 0.9 else "above 1.1" if mean > 1.1 else "between 0.9 and 1.1")

# %%
assert (
    seen.holds("outside_hot", above=0.3) and seen.holds("ratio_hot", above=0.94) and seen.holds("ratio_hot", below=1.06)
)
assert outside > 0.3 and abs(float(wrong.mean()) - 1) < 0.06

# %%
# figure: forgotten
# alt: Histogram of the ratio of a policy to itself over some thousand tokens. With the temperature applied, all ratios are 1.
#   With the temperature forgotten they range from 0 to above 2, with a peak near 1.3; a shaded band marks the clipping range
#   0.8 to 1.2, and three quarters of the tokens are outside. A dashed line marks their mean, at 1.
fig, ax = plt.subplots(figsize=(6.5, 2.8), layout="constrained")
bins = torch.linspace(0, 2.2, 56).numpy()
ax.axvspan(0.8, 1.2, color="0.92", label="clipping range, ε = 0.2")
ax.hist(right.numpy(), bins, color=PALETTE["blue"], alpha=0.35, label="temperature applied")
ax.hist(wrong.numpy(), bins, color=PALETTE["red"], label="temperature forgotten")
ax.axvline(float(wrong.mean()), color=PALETTE["black"], lw=1, ls="--", label="mean, temperature forgotten")
ax.set(xlabel="ratio of the policy to itself", ylabel="tokens", yscale="log")
ax.legend(frameon=False, fontsize=8)
plt.show()

# %% [markdown]
# The mean does not show the mistake: it is 1 in expectation for *any* two distributions with the same support. The largest ratio shows it: on the first
# update it must be 1 up to rounding.
#
# **Why only up to rounding?** Floating-point addition is not associative. An inference engine and a trainer can add the same numbers in another order, and the
# order can depend on the size of the batch. Here are three numbers in bfloat16.

# %%
# NBVAL_CHECK_OUTPUT
large, one = torch.tensor(256, dtype=torch.bfloat16), torch.tensor(1, dtype=torch.bfloat16)
print(f"(256 + 1) + 1 = {float((large + one) + one):.0f}")
print(f"256 + (1 + 1) = {float(large + (one + one)):.0f}")

# %% [markdown]
# So two correct programs can give the same token different log-probabilities.
#
# ## Sampling several completions
#
# Preference pairs, best-of-n and RL all need *several* completions of a prompt, good ones and different ones. Here are eight
# completions per prompt. Which corner of the grid (temperature × top-p) has the best *average* completion? Which has the best *best-of-8*? Which has the largest
# gap between best and worst? Is greedy decoding best for anything?

# %%
warmth = predict("Where is the best average completion?", "greedy", "T = 0.3", "T = 0.6 or 1", "T = 1.5")

# %%
TEMPERATURES, TOP_PS = (0.3, 0.6, 1.0, 1.5), (0.5, 0.8, 0.95, 1.0)
corners = list(itertools.product(TEMPERATURES, TOP_PS))
grid = {(t, p): ask(8, temperature=t, top_p=p) for t, p in progress(corners, "sampling")}
greedy = ask(1, greedy=True)
print(f"greedy: gold reward {greedy.average}; e.g. {greedy.completions[0][0]!r}")
for name, samples in {"greedy": greedy, "T = 1, top-p 0.5": grid[1.0, 0.5]}.items():
    texts = [text.split() for row in samples.completions for text in row]
    repeated = sum(any(words.count(word) > 1 for word in words if word != "and") for words in texts) / len(texts)
    polite = sum(any(word in POLITE for word in words) for words in texts) / len(texts)
    print(f"{name}: {repeated:.0%} of the completions repeat a word, {polite:.0%} are polite")
for t in (0.3, 1.0, 1.5):
    print(f"T = {t}: {grid[t, 1.0].completions[0][:3]}")
warmest, _ = max(corners, key=lambda corner: grid[corner].average.mean)
where = {0.3: "T = 0.3", 0.6: "T = 0.6 or 1", 1.0: "T = 0.6 or 1", 1.5: "T = 1.5"}[warmest]
warmth.reveal("greedy" if greedy.average.mean > max(found.average.mean for found in grid.values()) else where)

# %%
# figure: grid
# alt: Three heat maps over four temperatures and four values of top-p, for eight completions per prompt. The average gold reward
#   is highest, about 1.2, at temperature 1 with top-p 0.5, and falls to about 0 at temperature 1.5 without truncation. The
#   best of eight is highest, about 2, at temperature 1.5 with top-p 0.5 and nearly as high on a diagonal from there to temperature 0.6
#   with top-p 1. The gap between best and worst grows steadily towards high temperature and top-p 1.
fig, axes = plt.subplots(1, 3, figsize=(9, 3.0), layout="constrained")
titles = {"average": "average completion", "best": "best of eight", "gap": "best minus worst"}
for ax, (what, title) in zip(axes, titles.items(), strict=True):
    table = torch.tensor([[getattr(grid[t, p], what).mean for p in TOP_PS] for t in TEMPERATURES])
    ax.imshow(table, cmap="cividis", aspect="auto", origin="lower")
    middle = float(table.max() + table.min()) / 2
    for i, row in enumerate(table.tolist()):
        for j, value in enumerate(row):
            ax.text(j, i, f"{value:.2f}", ha="center", va="center", color="black" if value > middle else "white")
    ax.set_xticks(range(len(TOP_PS)), TOP_PS)
    ax.set_yticks(range(len(TEMPERATURES)), TEMPERATURES)
    ax.set(title=title, xlabel="top-p")
    ax.spines[:].set_visible(False)
axes[0].set_ylabel("temperature")
plt.show()

# %% [markdown]
# **What to notice.** The three maps have three different optima. The most probable completions are not the best on average, because they repeat more words and fewer are polite. So a little
# randomness *helps*. With too much randomness, improbable words spoil the completion. A high temperature with truncation (T = 1.5, p = 0.5) differs from a low temperature without it. Do not maximise the gap alone:
# without truncation it still grows at T = 1 and 1.5, where both the best and the worst get worse. Five models from five seeds agree on the best cell for best-of-eight and for the
# gap. They do not agree for the average, whose optimum is flat.

# %%
assert seen.holds("mean_at_T0.6_p0.8", above=0.8) and seen.holds("mean_at_T1.5_p1.0", below=0.2)
assert grid[0.6, 0.8].average.mean > 0.8 and grid[1.5, 1.0].average.mean < 0.2
assert seen.all_exceed("best_at_T1.5_p0.5", "best_at_T0.3_p1.0")
assert grid[1.5, 0.5].best.mean > grid[0.3, 1.0].best.mean
assert seen.holds("gap_at_T1.5_p1.0", above=3.0) and seen.holds("gap_at_T0.3_p1.0", below=2.2)
assert grid[1.5, 1.0].gap.mean > 3.0 and grid[0.3, 1.0].gap.mean < 2.2

# %% [markdown]
# A **ladder** takes two completions from each of four temperatures, so that no temperature has to be chosen. The control also needs no choice: eight completions at T = 1.

# %%
rungs = [ask(2, seed=1 + i, temperature=t).rewards for i, t in enumerate(TEMPERATURES)]
ladder = torch.cat(rungs, 1)  # (P, 8)
print("            average  best of 8  gap")
for name, r in {**{f"T = {t}": grid[t, 1.0].rewards for t in TEMPERATURES}, "ladder": ladder}.items():
    print(f"{name:10} {r.mean():8.2f} {r.amax(1).mean():9.2f} {(r.amax(1) - r.amin(1)).mean():7.2f}")

# %%
assert seen.holds("best_ladder", above=1.6) and float(ladder.amax(1).mean()) > 1.6

# %% [markdown]
# Over the five seeds of the study, the ladder's best of eight does not differ significantly from T = 1. It is below T = 0.6 and above T = 1.5. So the ladder had no benefit here.
#
# **Seeds.** A sample in this library depends only on (seed, step, prompt, sample, position). So a run can be repeated in any batch, and a
# second sample of the same prompt is a different one.

# %%
first, again, other = (ask(2, seed=s, prompts=n).completions for s, n in ((0, 8), (0, 3), (5, 3)))
print("same seed, smaller batch: same completions", first[:3] == again)
print("two samples of one prompt:", first[0])
print("another seed:             ", other[0])

# %%
assert first[:3] == again and first[:3] != other

# %% [markdown]
# **One temperature for all prompts?** Take three kinds of prompt: a translation with one right answer, a shell game with a chain of thought, and
# an open question. Does the score rise with temperature, fall, or have a maximum?

# %%
book, book_tokenizer = zoo.load("phrasebook-base")
book_tokenizer = copy.deepcopy(book_tokenizer)
book_tokenizer.chat_template = PLAIN  # a base model: it continues the text and was not trained on turns
phrases = tasks.get("phrasebook")


def play(first="", prompts=games, **how):
    """Return the fraction of shell games won when the completion must begin with ``first``."""
    begun = game_tokenizer(first, add_special_tokens=False).input_ids
    rollout = sample(
        player,
        [encode_prompt(game_tokenizer, conversation(p)) + begun for p in prompts],
        sampling=Sampling(max_completion_length=game.max_completion_length, **how),
        eos_token_id=game_tokenizer.eos_token_id,
        pad_token_id=game_tokenizer.pad_token_id,
        seed=7,
    )
    texts = game_tokenizer.batch_decode(rollout.completion_ids, skip_special_tokens=True)
    return sum(game.grade(p, f"{first} {text}") for p, text in zip(prompts, texts, strict=True)) / len(prompts)


def translate(**how):
    """Return the fraction of right translations."""
    return candidates(
        book,
        task_problems(phrases, "test")[:300],
        task_reward(phrases),
        tokenizer=book_tokenizer,
        sampling=Sampling(max_completion_length=1, **how),
        num_generations=1,
    ).average.mean


heat = (0.2, 0.4, 0.6, 0.8, 1.0, 1.25, 1.5, 2.0)
kinds_of_prompt = {
    "translation: right": [translate(temperature=t) for t in progress(heat, "translating")],
    "shell game, chain: right": [play("think", games[:150], temperature=t) for t in progress(heat, "playing")],
    "open question: gold reward": [ask(4, temperature=t).average.mean for t in progress(heat, "asking")],
}

# %%
# figure: kinds
# alt: Three small panels of score against temperature from 0.2 to 2. Translation accuracy falls from 1 steadily. The shell game
#   with a chain of thought stays near 1 up to temperature 1 and then falls. The gold reward of open questions rises to a maximum near 0.6 and then
#   falls below zero.
fig, axes = plt.subplots(1, 3, figsize=(9, 2.6), layout="constrained")
for ax, (name, values), colour in zip(axes, kinds_of_prompt.items(), ("blue", "green", "red"), strict=True):
    ax.plot(heat, values, "o-", ms=4, color=PALETTE[colour])
    ax.set(title=name, xlabel="temperature")
plt.show()

# %%
thinking = dict(zip(heat, kinds_of_prompt["shell game, chain: right"], strict=True))

# %%
assert seen.holds("right_thinks_sampled", above=0.95) and seen.holds("right_thinks_hot", below=0.85)
assert thinking[1.0] > 0.95 and thinking[1.5] < 0.85

# %% [markdown]
# If there is one right answer, a high temperature only harms. If there are many, the coldest completion is not the best. So choose the temperature by the kind of
# prompt: low for facts and arithmetic, middle for open questions, and high only with truncation and if a reliable grader chooses among the completions afterwards.
#
# ## In-context learning and chain of thought
#
# From here on the weights stay fixed. First, **examples**. The phrasebook's pages are in Spanish, French or German and do not name the language. One word in six
# comes from another language by mistake. How often does the model translate correctly after 0 examples? And what would a
# Bayes-optimal reader achieve?

# %%
one_example = predict("What fraction of its translations is right after one example?", 0.35, 0.5, 0.65, 0.8, 0.95)

# %%
for prompt in (
    "night >",
    "cat > chat , night >",
    "cat > chat , milk > leche , night >",
    "cat > chat , milk > leche , dog > chien , night >",
):
    ids = torch.tensor([book_tokenizer(prompt).input_ids])
    with torch.no_grad():
        probs = book(input_ids=ids).logits[0, -1].softmax(-1)
    perfect = predictive(prompt)
    shown = "  ".join(f"{w} {probs[book_tokenizer.convert_tokens_to_ids(w)]:.2f} ({q:.2f})" for w, q in perfect.items())
    print(f"{prompt:52} {shown}")
print("in parentheses: exact probabilities by Bayes' rule")

# %%
rng = numpy_generator("pages", 0)
pages, languages = zip(*(phrases.page(rng) for _ in range(1000)), strict=True)
ids = torch.tensor([book_tokenizer(page).input_ids for page in pages])
with torch.no_grad():
    page_logits = book(input_ids=ids).logits
page_logps = token_logps(page_logits, ids)
surprise, perfect, correct = [], [], []
for examples in range(8):
    place = 4 * examples + 1  # of the ">" that asks
    surprise.append(float(-page_logps[:, place].mean()))
    words = [page.split() for page in pages]
    perfect.append(-sum(math.log(predictive(" ".join(w[: place + 1]))[w[place + 1]]) for w in words) / len(words))
    guesses = book_tokenizer.convert_ids_to_tokens(page_logits[:, place].argmax(-1).tolist())
    correct.append(
        sum(
            LANGUAGES[lang][ENGLISH.index(w[place - 1])] == g
            for lang, w, g in zip(languages, words, guesses, strict=True)
        )
        / len(words)
    )
print("examples   right")
for n in (0, 1, 2, 4, 7):
    print(f"{n:8} {correct[n]:7.2f}")
one_example.reveal(correct[1])

# %%
assert seen.holds("right_after_0", below=0.45) and seen.holds("right_after_7", above=0.95)
assert correct[0] < 0.45 and correct[7] > 0.95

# %%
# figure: context
# alt: Two panels against the number of examples in the prompt, 0 to 7. Left, surprise at the next word: it falls from 1.1 nats, log 3,
#   to about 0.6, and the model's curve lies just above the curve of the Bayes-optimal reader. Right, fraction of right
#   translations: from ⅓ without examples to nearly one.
fig, (left, right_panel) = plt.subplots(1, 2, figsize=(9, 2.9), layout="constrained")
left.plot(range(8), surprise, "o-", color=PALETTE["blue"], ms=4, label="the model")
left.plot(range(8), perfect, "--", color=PALETTE["black"], label="Bayes-optimal reader")
left.axhline(math.log(3), color="0.6", lw=0.8, ls=":")
left.text(7, math.log(3) - 0.02, "log 3", ha="right", va="top", color="0.4")
left.set(xlabel="examples in the prompt", ylabel="surprise at the next word, nats", ylim=(0.45, 1.15))
left.legend(frameon=False)
right_panel.plot(range(8), correct, "o-", color=PALETTE["blue"], ms=4)
right_panel.axhline(1 / 3, color="0.6", lw=0.8, ls=":")
right_panel.set(xlabel="examples in the prompt", ylabel="right translations", ylim=(0, 1.03))
plt.show()

# %% [markdown]
# The model learns from the prompt with frozen weights, nearly as fast as Bayes' rule allows. Its training did not aim at this. It was trained to predict pages, and
# predicting a page well *requires* inferring its language.
#
# Second, **chain of thought**. We return to the shell game, with the same model and the same games. We choose only the first word of the completion: it must begin
# with `answer`, or with `think`, or the model may choose.

# %%
free = predict(
    "The model decodes greedily and may choose its first word. What fraction of the games does it win?",
    0.25,
    0.5,
    0.75,
    1,
)

# %%
results = {
    name: (play(first, greedy=True), play(first))
    for name, first in (("must answer directly", "answer"), ("may choose", ""), ("must think first", "think"))
}
print("                      greedy  sampled")
for name, (g, s) in results.items():
    print(f"{name:22} {g:5.2f} {s:8.2f}")
free.reveal(results["may choose"][0])

# %%
assert seen.holds("right_blurts_greedy", below=0.35) and seen.holds("right_thinks_greedy", above=0.9)
assert results["must answer directly"][0] < 0.35 and results["must think first"][0] > 0.9

# %%
# figure: thinking
# alt: Left, bars of the fraction of shell games won, greedy and sampled. When the model must answer directly: a quarter, the level of
#   chance. When it may choose: a quarter greedy, more sampled. When it must think first: nearly all. Right, surprise
#   at each word of the right completion, on a logarithmic scale: about log 4 nats at the cup of a direct answer; at most about 0.01 nats at every step of the chain.
fig, (left, right_panel) = plt.subplots(1, 2, figsize=(9, 2.9), width_ratios=(3, 4), layout="constrained")
for offset, way, colour in ((-0.2, 0, "blue"), (0.2, 1, "sky")):
    left.bar(
        [i + offset for i in range(3)],
        [v[way] for v in results.values()],
        width=0.38,
        color=PALETTE[colour],
        label=("greedy", "sampled")[way],
    )
left.axhline(0.25, color="0.4", lw=0.8, ls=":")
left.set_xticks(range(3), ["answer\ndirectly", "may\nchoose", "think\nfirst"])
left.set(ylabel="games won", ylim=(0, 1.05))
left.legend(frameon=False, loc="upper left")
step_names = kinds["think"][0].split()
bars = losses["think"][1:-1].tolist()
at_once = float(losses["answer"][1])
floor = min(bars) / 3
right_panel.vlines(range(len(bars)), floor, bars, color=PALETTE["green"], lw=2)
right_panel.plot(range(len(bars)), bars, "o", color=PALETTE["green"], label="chain of thought")
right_panel.vlines([len(bars)], floor, [at_once], color=PALETTE["red"], lw=2)
right_panel.plot([len(bars)], [at_once], "s", color=PALETTE["red"], label="direct answer")
names = ["start", *(f"swap {i}" for i in range(1, 7)), "answer", "cup", "cup, direct"]
right_panel.set_xticks(range(len(bars) + 1), names, rotation=60)
right_panel.set(ylabel="surprise at the right word, nats", yscale="log", ylim=(floor, 5))
right_panel.axhline(math.log(4), color="0.4", lw=0.8, ls=":")
right_panel.text(0, 0.9 * math.log(4), "log 4: chance", va="top", color="0.4")
right_panel.legend(frameon=False, loc="center left")
plt.show()

# %% [markdown]
# One word makes the difference between chance and near certainty. Two layers did not learn to follow six swaps in one pass. In a chain of thought, each swap has a pass of its own. Greedy decoding
# does worse than sampling: a direct answer is the more *probable* beginning (more than three to one), so greedy decoding always answers directly. In chapter 13
# reinforcement learning learns that thinking pays.
#
# ## A second failure on purpose: the end is padding
#
# A tokenizer has no padding token, so someone sets `pad_token = eos_token`, and the collator removes padding from the labels. How does the
# loss compare with the loss of a correct run, and what do the completions look like?

# %%
base, _ = zoo.load("assistant-base")
shown = pipeline.demonstrations(world, tokenizer, 1280, seed=0)
blind = [
    Tokens(
        x.input_ids, [mine and i != tokenizer.eos_token_id for i, mine in zip(x.input_ids, x.loss_mask, strict=True)]
    )
    for x in shown
]
settings = SFTConfig(max_steps=40, batch_size=32, learning_rate=2e-3, lr_scheduler_type="linear")
ended = {}
for name, examples in {"end labelled": shown, "end treated as padding": blind}.items():
    tuned = copy.deepcopy(base)
    history = train_sft(tuned, examples, settings, pad_token_id=tokenizer.pad_token_id)
    drawn = candidates(
        tuned,
        task_problems(world, "test")[:PROMPTS],
        task_reward(world),
        tokenizer=tokenizer,
        sampling=Sampling(max_completion_length=world.max_completion_length),
        num_generations=1,
    )
    ended[name] = float(drawn.rollout.terminated.float().mean())
    loss = sum(history["loss"][-10:]) / 10
    print(f"{name}: loss {loss:.2f}, ended by itself {ended[name]:.0%}\n   {drawn.completions[0][0]}")

# %%
assert seen.holds("ended_labelled", above=0.9) and seen.holds("ended_unlabelled", below=0.4)
assert ended["end labelled"] > 0.9 and ended["end treated as padding"] < 0.4

# %% [markdown]
# The loss is a little higher than it should be, but in a real run we do not know its right value. The lengths of the completions and the fraction that end by themselves show the mistake. Plot both in every run.

# %%
predict.tally()

# %% [markdown]
# ## Now you
#
# * The most probable completion is `cats nap`. Find the next two: by how many nats are they less probable?
# * Plot entropy against temperature after `cats purr and`. Where is its plateau, and why there?
# * Give the run with the mistake a longer length limit. Does any of its completions ever end?
#
# The graded exercises of this chapter: `minirlhf check 02`.
