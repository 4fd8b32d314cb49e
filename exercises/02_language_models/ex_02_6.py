# ---
# title: A sampler of your own
# kind: implement
# minutes: 40
# ---

# %% [statement]
# This is the first piece of a pipeline that you write yourself: the function that samples tokens. In the exercises 05.6, 11.7, 12.7, 13.6 and 14.7 policies sample
# their completions with *your* `sample`.
#
# 1. (five minutes) `token_probs(logits, temperature, top_k, top_p)` returns the sampling distribution, `(B, V)`. Divide by the temperature. Keep
#    the `top_k` most probable tokens (all of them if it is 0 or above V) and *renormalise*. Of these, keep the smallest set of most probable tokens whose mass reaches `top_p`, the token
#    that crosses the line included (1 keeps all). Renormalise again.
#    Among equally probable tokens keep any, but not one more than the two rules say.
# 2. `sample(logits, seed, temperature, top_k, top_p)` samples one token for each row of `logits`, `(B, V) -> (B,)`, integers. Rows are independent of each other.
#    The same seed gives the same tokens, and another seed gives independent ones. Do not touch any other random state: use a `torch.Generator`
#    of your own.
# 3. `generate(table, starts, length, seed, temperature, top_k, top_p)` samples whole texts. The model is a table: `table[x]` holds the logits `(V,)` of the token after
#    token `x`. From each start token in `starts`, `(B,)`, sample `length` further tokens, one after the other: `(B, length)`. The given code has such a
#    model, counted from two sentences. `read(generate(TABLE, …))` prints its texts.
#
# How your answer is tested: the test counts thousands of your tokens and compares the counts with the exact distribution by an exact test. A right
# sampler fails it in one of a million tests at most.

# %% [given]
import torch

TEXT = [
    "the",
    "cat",
    "saw",
    "the",
    "dog",
    "and",
    "the",
    "dog",
    "saw",
    "the",
    "cat",
    ".",
    "the",
    "cat",
    "ran",
    "and",
    "the",
    "dog",
    "ran",
    ".",
]
WORDS = sorted(set(TEXT))
COUNTS = torch.full((len(WORDS), len(WORDS)), 0.1, dtype=torch.float64)
for before, after in zip(TEXT, TEXT[1:] + TEXT[:1], strict=True):
    COUNTS[WORDS.index(before), WORDS.index(after)] += 1
TABLE = COUNTS.log()  # (V, V): the logits of the next word, for each word


def read(tokens):
    """Return B lines of text. tokens: (B, T)."""
    return [" ".join(WORDS[t] for t in row) for row in tokens.tolist()]


# %% [stub]
def token_probs(logits, temperature=1.0, top_k=0, top_p=1.0):
    """Return the sampling distribution. logits: (B, V). Returns (B, V); rows sum to 1."""
    raise NotImplementedError


def sample(logits, seed, temperature=1.0, top_k=0, top_p=1.0):
    """Sample one token per row. logits: (B, V). Returns (B,) integers."""
    raise NotImplementedError


def generate(table, starts, length, seed, temperature=1.0, top_k=0, top_p=1.0):
    """Sample texts. table: (V, V) logits. starts: (B,). Returns (B, length) integers, without the start."""
    raise NotImplementedError


# %% [solution]
def token_probs(logits, temperature=1.0, top_k=0, top_p=1.0):
    scaled = logits / temperature
    weights = (scaled - scaled.amax(-1, keepdim=True)).exp()
    probs = weights / weights.sum(-1, keepdim=True)
    ranked, order = probs.sort(dim=-1, descending=True, stable=True)
    if top_k:
        ranked = ranked * (torch.arange(ranked.shape[-1]) < top_k)
        ranked = ranked / ranked.sum(-1, keepdim=True)
    if top_p < 1:
        before = ranked.cumsum(-1) - ranked
        ranked = torch.where(before < top_p, ranked, 0.0)
    kept = torch.zeros_like(probs).scatter(-1, order, ranked)
    return kept / kept.sum(-1, keepdim=True)


def sample(logits, seed, temperature=1.0, top_k=0, top_p=1.0):
    rng = torch.Generator().manual_seed(seed)
    probs = token_probs(logits, temperature, top_k, top_p)
    return torch.multinomial(probs, 1, generator=rng)[:, 0]


def generate(table, starts, length, seed, temperature=1.0, top_k=0, top_p=1.0):
    rng = torch.Generator().manual_seed(seed)
    token, said = starts, []
    for _ in range(length):
        probs = token_probs(table[token], temperature, top_k, top_p)
        token = torch.multinomial(probs, 1, generator=rng)[:, 0]
        said.append(token)
    return torch.stack(said, 1)


# %% [tests]
import torch
from minirlhf_course.classroom.chance import expect_draws, expect_independent, expect_independent_rows
from minirlhf_course.classroom.testing import expect, fail, test, tidy

DRAWS = 1000


def written_out(logits, temperature, top_k, top_p, renormalised=True, crossing=True, ends=True):
    """Return the distribution by the definition, token by token."""
    rows = []
    for row in (logits / temperature).exp().tolist():
        order = sorted(range(len(row)), key=lambda i: -row[i])[: top_k or len(row)]
        total = sum(row[i] for i in (order if renormalised else range(len(row))))
        kept, mass = [], 0.0
        for i in order:
            if kept and (mass >= top_p or (not crossing and mass + row[i] / total > top_p)):
                break
            kept.append(i)
            mass += row[i] / total
        whole = sum(row[i] for i in kept) if ends else total
        rows.append([row[i] / whole if i in kept else 0.0 for i in range(len(row))])
    return torch.tensor(rows, dtype=torch.float64)


def settings(draw):
    """Return logits of two rows, and settings that all change the result."""
    chances = torch.tensor([0.38, 0.27, 0.17, 0.1, 0.06, 0.02], dtype=torch.float64)
    logits = torch.stack([tidy(chances.log() * s, 2)[draw.permutation(6)] for s in (1.0, 0.7)])
    return logits, [0.5, 2.0][draw.integer(0, 1)], draw.integer(3, 4), [0.55, 0.8][draw.integer(0, 1)]


@test(
    points=1,
    hints=(
        "Apply three rules in this order: temperature, top-k, top-p. Try a row of three tokens by hand.",
        "Sort, and look at the mass *above* each token: a token is kept while that mass is below `top_p`. Renormalise after top-k and again at the end.",
    ),
)
def truncates(sub, draw):
    "`token_probs` is the distribution after temperature, top-k and top-p."
    logits, temperature, top_k, top_p = settings(draw)
    drawn = [(temperature, k, p) for k, p in ((0, 1.0), (top_k, 1.0), (0, top_p), (top_k, top_p))]
    for temperature, k, p in [*drawn, (2.0, 3, 0.55)]:  # the last: settings for which the order of the two cuts matters
        given = {"logits": logits, "temperature": temperature, "top_k": k, "top_p": p}
        expect(
            sub.token_probs(logits, temperature, k, p),
            written_out(logits, temperature, k, p),
            what="the distribution",
            given=given,
            mistakes={
                "the temperature multiplies": written_out(logits, 1 / temperature, k, p),
                "the token that crosses the line is dropped": written_out(logits, temperature, k, p, crossing=False),
                "the tokens that top-k keeps are not renormalised before top-p, or top-p comes before top-k": written_out(
                    logits, temperature, k, p, False
                ),
                "the kept tokens are not renormalised at the end": written_out(logits, temperature, k, p, ends=False),
                "the temperature comes last": written_out(
                    (written_out(logits, 1.0, k, p) + 1e-300).log(), temperature, 0, 1.0
                ),
            },
        )
    expect(
        sub.aside.token_probs(logits, temperature, logits.shape[-1] + 3, 1.0),
        written_out(logits, temperature, 0, 1.0),
        what="the distribution with a `top_k` above V",
    )
    equal = torch.zeros(1, 8, dtype=torch.float64)  # each probability is exactly 1/8
    for k, p, kept in ((3, 1.0, 3), (0, 0.5, 4), (4, 0.5, 2)):
        got = sub.aside.token_probs(equal, temperature, k, p)
        alike = lambda n: torch.tensor([[1 / n] * n + [0.0] * (8 - n)], dtype=torch.float64)
        expect(
            got.sort(-1, descending=True).values if isinstance(got, torch.Tensor) else got,
            alike(kept),
            what="the distribution over eight equally probable tokens, sorted,",
            given={"logits": equal, "top_k": k, "top_p": p},
            mistakes={
                "all tokens are kept that are as probable as the last one kept": alike(8),
                "one token more is kept, although the mass has reached `top_p`": alike(kept + 1),
            },
        )


@test(
    points=2,
    hints=(
        "Count how often each token occurs in a few thousand identical rows. Which distribution do the tokens come from?",
        "`torch.multinomial(probs, 1, generator=rng)` with the probabilities of `token_probs`; `rng` is a new `torch.Generator` that the function seeds with `seed` in each call.",
    ),
    rounds=1,
)
def draws(sub, draw):
    "`sample` samples every row from its distribution, independently, and the result depends only on the arguments."
    logits, temperature, top_k, top_p = settings(draw)
    seed = draw.integer(0, 10**6)
    for k, p in ((0, 1.0), (0, top_p), (top_k, top_p)):
        probs = written_out(logits, temperature, k, p)
        rows = logits[:1].repeat(DRAWS, 1)
        got = sub.sample(rows, seed, temperature, k, p)
        plain = written_out(logits, 1.0, 0, 1.0)[0]
        known = {"only the logits matter: no temperature, no truncation": plain}
        expect_draws(got, probs[0], DRAWS, "the tokens", known)
        again, next_seed = sub.sample(rows, seed, temperature, k, p), sub.sample(rows, seed + 1, temperature, k, p)
        if not torch.equal(got, again):
            fail("the same seed gives other tokens at the second call")
        expect_draws(next_seed, probs[0], DRAWS, "the tokens of another seed", known)
        expect_independent(got, next_seed, float((probs[0] ** 2).sum()), "the tokens of two neighbouring seeds")
        expect_independent_rows(got, float((probs[0] ** 2).sum()), "the rows of one call")
    coins = [sub.aside.sample(torch.zeros(2, 2, dtype=torch.float64), seed + i) for i in range(60)]
    expect_independent(*torch.stack(coins).long().T, 0.5, "the two rows of sixty calls")
    whole, far = written_out(logits, temperature, 0, 1.0)[0], sub.aside.sample(rows, seed + 8_192_000, temperature)
    near = sub.aside.sample(rows, seed, temperature)  # the distance is a multiple of 1,000 and of 2^16
    expect_independent(near, far, float((whole**2).sum()), "the tokens of two seeds that are 8,192,000 apart")
    rare = torch.tensor([0.6, 0.3996, 0.0004], dtype=torch.float64)
    expect_draws(
        sub.aside.sample(rare.log().repeat(50_000, 1), seed),
        rare,
        50_000,
        "tokens of which one has a probability of 0.0004",
    )
    mixed = sub.sample(logits.repeat(DRAWS, 1), seed, temperature, 0, 1.0)
    for i, row in enumerate(written_out(logits, temperature, 0, 1.0)):
        expect_draws(mixed[i::2], row, DRAWS, f"rows {i}, {i + 2}, {i + 4}, … of a mixed batch")


@test(
    points=2,
    hints=(
        "Which row of the table gives the distribution of the third token? And where do its random numbers come from?",
        "Make one generator for the whole text before the loop. In the loop, use the row of the last sampled token: `table[token]`.",
    ),
    rounds=1,
)
def speaks(sub, draw):
    "`generate` samples whole texts from the model, each token given the token before it."
    chances = torch.tensor([[0.6, 0.3, 0.1], [0.15, 0.25, 0.6], [0.3, 0.6, 0.1]], dtype=torch.float64)
    table = tidy(chances[draw.permutation(3)].log(), 2)
    start, seed, temperature = draw.integer(0, 2), draw.integer(0, 10**6), 0.8
    got = sub.generate(table, torch.full((DRAWS,), start), 3, seed, temperature, 0, 0.95)
    if not isinstance(got, torch.Tensor) or got.shape != (DRAWS, 3):
        fail(f"expected a tensor of shape ({DRAWS}, 3), three tokens for each start")
    if got.is_floating_point() or int(got.min()) < 0 or int(got.max()) > 2:
        fail("expected tokens: integers from 0 to 2")
    step = written_out(table, temperature, 0, 0.95)
    whole = (step[start][:, None, None] * step[:, :, None] * step[None, :, :]).reshape(-1)
    stuck = (step[start][:, None, None] * step[start][None, :, None] * step[start]).reshape(-1)
    expect_draws(
        got[:, 0] * 9 + got[:, 1] * 3 + got[:, 2],
        whole,
        DRAWS,
        "texts (numbered in base 3)",
        {"every token follows the start, not the token before": stuck},
    )
    expect_independent_rows(got[:, 0], float((step[start] ** 2).sum()), "the first tokens")
    chances = torch.tensor([0.4, 0.3, 0.2, 0.1], dtype=torch.float64)
    wider = torch.stack([chances[draw.permutation(4)].log() for _ in range(4)])
    other, top_k, starts = [0.5, 1.5][draw.integer(0, 1)], draw.integer(2, 3), torch.arange(4).repeat(DRAWS)
    pairs = sub.aside.generate(wider, starts, 2, seed, other, top_k, 1.0)
    if not isinstance(pairs, torch.Tensor) or pairs.shape != (4 * DRAWS, 2):
        fail(f"expected a tensor of shape ({4 * DRAWS}, 2), two tokens for each start")
    step_k = written_out(wider, other, top_k, 1.0)
    for first in range(4):
        both = (step_k[first][:, None] * step_k).reshape(-1)
        expect_draws(
            pairs[first::4, 0] * 4 + pairs[first::4, 1],
            both,
            DRAWS,
            f"texts of two tokens that begin at {first}, at another temperature and with `top_k` (numbered in base 4)",
        )
    again = sub.generate(table, torch.full((DRAWS,), start), 3, seed, temperature, 0, 0.95)
    if not torch.equal(got, again):
        fail("the same seed gives other texts at the second call")
    other = sub.generate(table, torch.full((DRAWS,), start), 3, seed + 1, temperature, 0, 0.95)
    agree = float((whole**2).sum())
    expect_independent(
        (got * torch.tensor([9, 3, 1])).sum(-1),
        (other * torch.tensor([9, 3, 1])).sum(-1),
        agree,
        "the texts of two seeds",
    )
    alike = table[:1].repeat(3, 1)  # all rows are the same, so all tokens are independent
    first, second = (sub.aside.generate(alike, torch.full((DRAWS,), start), 3, seed + i) for i in (0, 1))
    agree = float((alike[0].softmax(-1) ** 2).sum())
    for a, b in ((first, second), (second, first)):
        expect_independent(
            a[:, 1:].flatten(), b[:, :-1].flatten(), agree, "the tokens of two neighbouring seeds, one step apart"
        )


# %% [edges]
# truncates: all of them if it is 0 or above V
# truncates: Among equally probable tokens keep any
# truncates: the token
# draws: Rows are independent of each other
# draws: Do not touch any other random state


# %% [shared]
# 0.1: the given table counts words, and the test samples tokens: neither constrains the other


# %% [probes]
# no gradient: tokens are sampled, not differentiated
# no keywords, size, values, float32 of sample: any right sampler has its own random numbers; the tests count
# no keywords, size, values, float32 of generate: the same
# no keywords of token_probs.top_k: 0 is not a number of tokens; it keeps all
# no ties of token_probs.logits: which of several equally likely tokens are kept is left open


# %% [mutant] the temperature multiplies
# caught by: truncates
# says: the temperature multiplies
def token_probs(logits, temperature=1.0, top_k=0, top_p=1.0):
    probs = (logits * temperature).softmax(-1)
    if top_k:
        probs = torch.where(probs >= probs.topk(top_k, -1).values[:, -1:], probs, 0.0)
        probs = probs / probs.sum(-1, keepdim=True)
    ranked, order = probs.sort(-1, descending=True)
    ranked = torch.where(ranked.cumsum(-1) - ranked < top_p, ranked, 0.0)
    kept = torch.zeros_like(probs).scatter(-1, order, ranked)
    return kept / kept.sum(-1, keepdim=True)


# %% [mutant] the crossing token is dropped
# caught by: truncates
# says: crosses the line is dropped
def token_probs(logits, temperature=1.0, top_k=0, top_p=1.0):
    probs = (logits / temperature).softmax(-1)
    if top_k:
        probs = torch.where(probs >= probs.topk(top_k, -1).values[:, -1:], probs, 0.0)
        probs = probs / probs.sum(-1, keepdim=True)
    ranked, order = probs.sort(-1, descending=True)
    if top_p < 1:
        keep = ranked.cumsum(-1) <= top_p
        keep[:, 0] = True
        ranked = torch.where(keep, ranked, 0.0)
    kept = torch.zeros_like(probs).scatter(-1, order, ranked)
    return kept / kept.sum(-1, keepdim=True)


# %% [mutant] the settings are forgotten
# caught by: draws
# says: only the logits matter
def sample(logits, seed, temperature=1.0, top_k=0, top_p=1.0):
    rng = torch.Generator().manual_seed(seed)
    return torch.multinomial(logits.softmax(-1), 1, generator=rng)[:, 0]


# %% [mutant] the seed is not used
# caught by: draws
# says: the same seed gives other tokens
def sample(logits, seed, temperature=1.0, top_k=0, top_p=1.0):
    return torch.multinomial(token_probs(logits, temperature, top_k, top_p), 1)[:, 0]


# %% [mutant] one random number for all rows
# caught by: draws
def sample(logits, seed, temperature=1.0, top_k=0, top_p=1.0):
    rng = torch.Generator().manual_seed(seed)
    u = torch.rand(1, generator=rng, dtype=logits.dtype)
    cumulative = token_probs(logits, temperature, top_k, top_p).cumsum(-1)
    return (cumulative < u).sum(-1).clamp(max=logits.shape[-1] - 1)


# %% [mutant] the most probable token
# caught by: draws
def sample(logits, seed, temperature=1.0, top_k=0, top_p=1.0):
    return logits.argmax(-1)


# %% [mutant] the start stays
# caught by: speaks
# says: every token follows the start
def generate(table, starts, length, seed, temperature=1.0, top_k=0, top_p=1.0):
    rng = torch.Generator().manual_seed(seed)
    probs = token_probs(table[starts], temperature, top_k, top_p)
    return torch.multinomial(probs, length, replacement=True, generator=rng)


# %% [mutant] the same seed at every token
# caught by: speaks
# says: texts
def generate(table, starts, length, seed, temperature=1.0, top_k=0, top_p=1.0):
    token, said = starts, []
    for _ in range(length):
        token = sample(table[token], seed, temperature, top_k, top_p)
        said.append(token)
    return torch.stack(said, 1)


# %% [partial] 1: the distribution
def sample(logits, seed, temperature=1.0, top_k=0, top_p=1.0):
    raise NotImplementedError


def generate(table, starts, length, seed, temperature=1.0, top_k=0, top_p=1.0):
    raise NotImplementedError


# %% [partial] 3: one token at a time
def generate(table, starts, length, seed, temperature=1.0, top_k=0, top_p=1.0):
    raise NotImplementedError
