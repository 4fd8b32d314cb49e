# ---
# title: Bug hunt: it does not learn to ask
# kind: bughunt
# minutes: 30
# ---

# %% [statement]
# The task is to name a secret digit. The policy says a digit at once, which is right one time in six, or it says `ASK`; then the tool says the digit, and the policy says one more token. `show` trains for 320 steps and prints the policy's own probabilities of asking and of a right answer. A policy that asks could always be right. But at the end **it asks no more often than at the start**, and is right little more often than a policy that guesses. (One of the bugs does no harm while another is there.)
#
# The policy is tabular, with one row of logits for each context, plus a bias that all rows share; a step moves both along the gradient. **There are three bugs, one in each function. Find and fix them.**
#
# * `said(ids)`: which tokens are the policy's. `ids` `(N, 3)` has one conversation per row: `digit, −1, −1`, or `ASK, tool's digit, token`.
# * `credit(rewards, ids)`: for each token of the policy, the reward of its conversation minus the mean reward of all conversations; 0 at the other tokens.
# * `slopes(credits, ids, contexts, logits)`: the sum over all tokens of the credit times $\nabla\log\pi$, divided by the number of *conversations*, as a gradient in the logits: `(8, 7)`, a row for each context.

# %% [given]
import torch

ASK, V, CONTEXTS = (
    0,
    7,
    8,
)  # tokens: ASK and the digits 1 to 6; contexts: 0 the question, 1 to 6 the digit heard, 7 behind ASK


def converse(logits, n, rng):
    """n conversations: ids (N, 3), their contexts (N, 3), and 1.0 where the last token is the secret digit."""
    pi, secret = logits.softmax(-1), torch.randint(1, V, (n,), generator=rng)
    first = torch.multinomial(pi[0].expand(n, -1), 1, generator=rng)[:, 0]
    last = torch.multinomial(pi[secret], 1, generator=rng)[:, 0]
    asks = first == ASK
    none = torch.full((n,), -1)
    ids = torch.stack([first, torch.where(asks, secret, none), torch.where(asks, last, none)], 1)
    contexts = torch.stack([torch.zeros_like(secret), torch.full((n,), 7), secret], 1)
    return ids, contexts, (torch.where(asks, last, first) == secret).double()


def show(steps=320, n=256, rate=1.0, seed=0):
    """Train, and print the curve, with exact probabilities."""
    rng = torch.Generator().manual_seed(seed)
    table, bias = torch.zeros(CONTEXTS, V, dtype=torch.float64), torch.zeros(V, dtype=torch.float64)
    for step in range(steps + 1):
        logits = table + bias
        ids, contexts, rewards = converse(logits, n, rng)
        if step % 80 == 0:
            pi = logits.softmax(-1)
            right = (pi[0, 1:].sum() + pi[0, ASK] * pi[1:V].diagonal(1).sum()) / 6  # guessed, or asked and repeated
            print(f"step {step:3}: asks {float(pi[0, ASK]):.2f}, right {float(right):.2f}")
        push = slopes(credit(rewards, ids), ids, contexts, logits)
        table, bias = table + rate * push, bias + 0.5 * rate * push.sum(0)


# %% [stub]
def said(ids):
    """ids: (N, 3). Returns (N, 3), bool."""
    return ids >= 0


def credit(rewards, ids):
    """rewards: (N,). ids: (N, 3). Returns (N, 3)."""
    mine = said(ids)
    last = mine & ~torch.cat([mine[:, 1:], torch.zeros_like(mine[:, :1])], 1)  # the reward comes at the end
    return torch.where(last, (rewards - rewards.mean())[:, None], 0.0)


def slopes(credits, ids, contexts, logits):
    """credits, ids, contexts: (N, 3). logits: (8, 7). Returns (8, 7)."""
    chosen = torch.nn.functional.one_hot(ids.clamp(min=0), V).double()
    scores = credits[..., None] * (chosen - logits.softmax(-1)[contexts])
    out = torch.zeros_like(logits)
    return out.index_add(0, contexts.flatten(), scores.flatten(0, 1)) / (ids >= 0).sum()


# %% [solution]
def said(ids):
    there = ids >= 0
    there[:, 1] = False  # the middle one is the tool's
    return there


def credit(rewards, ids):
    return torch.where(said(ids), (rewards - rewards.mean())[:, None], 0.0)


def slopes(credits, ids, contexts, logits):
    chosen = torch.nn.functional.one_hot(ids.clamp(min=0), V).double()
    scores = credits[..., None] * (chosen - logits.softmax(-1)[contexts])
    out = torch.zeros_like(logits)
    return out.index_add(0, contexts.flatten(), scores.flatten(0, 1)) / len(ids)


# %% [tests]
import torch
from minirlhf_course.classroom.testing import expect, test


def talks(draw, n=6):
    """Conversations of both kinds, and their contexts."""
    ids, contexts = [], []
    for i in range(n):
        digit = draw.integer(1, 6)
        if i % 3 == 0:
            ids.append([digit, -1, -1])
        else:
            ids.append([0, digit, digit if i % 3 == 1 else draw.integer(0, 6)])
        contexts.append([0, 7, digit])
    order = draw.permutation(n)
    return torch.tensor(ids)[order], torch.tensor(contexts)[order]


def spoken(ids):
    return torch.tensor([[True, False, row[0] == 0] for row in ids.tolist()])


@test(
    points=2,
    hints=(
        "Print `said` for a conversation with a call. Whose token is the one in the middle?",
        "The tool's. Only the first token and, after a call, the third are the policy's.",
    ),
)
def whose(sub, draw):
    "`said` marks the policy's tokens, and only these."
    ids, _ = talks(draw, draw.integer(3, 9))
    expect(
        sub.said(ids).double(), spoken(ids).double(), what="`said`", given={"ids": ids},
        mistakes={
            "the tool's token is marked": (ids >= 0).double(),
            "the call itself is not marked, but it is the policy's, too": (spoken(ids) & (ids != 0)).double(),
            "the token that comes after the tool's token is not marked, but it is the policy's": (spoken(ids) & torch.tensor([True, False, False])).double(),
        },
    )  # fmt: skip


@test(
    points=2,
    hints=(
        "Which tokens led to the reward?",
        "All of the policy's tokens, the call first of all: each has the reward of its conversation minus the mean.",
    ),
)
def credited(sub, draw):
    "`credit` gives every token of the policy its advantage."
    ids, _ = talks(draw, draw.integer(5, 9))
    rewards = torch.tensor([float(draw.integer(0, 1)) for _ in range(len(ids))], dtype=torch.float64)
    rewards[:2] = torch.tensor([0.0, 1.0])
    centred = (rewards - rewards.mean())[:, None]
    mine = spoken(ids)
    last = torch.tensor([[row[0] != 0, False, row[0] == 0] for row in ids.tolist()])
    longest = last | (mine & (ids[:, :1] != 0))
    expect(
        sub.credit(rewards, ids), torch.where(mine, centred, 0.0), what="`credit`", given={"rewards": rewards, "ids": ids}, tolerance=1e-9,
        mistakes={
            "only the last token has credit, so that nothing rewards the call": torch.where(longest, centred, 0.0),
            "the tool's token has credit": torch.where(ids >= 0, centred, 0.0),
            "the mean is not subtracted": torch.where(mine, rewards[:, None], 0.0),
        },
    )  # fmt: skip


@test(
    points=2,
    hints=(
        "By which number is the sum divided, in the code and in the text?",
        "By the number of conversations: `len(ids)`. A divisor that counts tokens makes a batch with many calls learn less from each.",
    ),
    against="autograd",
)
def slope(sub, draw):
    "`slopes` is the gradient of the mean over conversations."
    for count in (6, 9):
        _slope(sub, draw, count)


def _slope(sub, draw, count):
    ids, contexts = talks(draw, count)
    credits = torch.where(spoken(ids), draw.normal(len(ids), 3), 0.0)
    credits[draw.integer(0, len(ids) - 1)] = 0.0  # one conversation earned just the mean
    logits = draw.normal(8, 7)
    leaf = logits.clone().requires_grad_()
    logps = leaf.log_softmax(-1)
    total = sum(
        credits[i, t] * logps[contexts[i, t], ids[i, t]] for i in range(len(ids)) for t in range(3) if ids[i, t] >= 0
    )
    (want,) = torch.autograd.grad(total / len(ids), leaf)
    had, some = (credits != 0).sum(), (credits != 0).any(1).sum()
    expect(
        sub.slopes(credits, ids, contexts, logits), want, what="`slopes`", given={"ids": ids, "credits": credits}, tolerance=1e-9,
        mistakes={
            "it is divided by the number of tokens, not of conversations": want * len(ids) / spoken(ids).sum(),
            "it is divided by the number of tokens that have credit, not of conversations": want * len(ids) / had,
            "it is divided by the number of tokens, the tool's included, not of conversations": want * len(ids) / (ids >= 0).sum(),
            "it is divided by the size of the table of tokens": want / 3,
            "it is a sum, divided by nothing": want * len(ids),
            "it is divided by the number of conversations that have credit, not of all": want * len(ids) / some,
        },
    )  # fmt: skip


# %% [probes]
# no integers, values, float32, gradient, keywords, size, nan: whole numbers in which -1 has a meaning


# %% [mutant] whatever is there
# caught by: whose
# says: tool's token
def said(ids):
    return ids >= 0


# %% [mutant] the first token only
# caught by: whose
# says: comes after
def said(ids):
    there = ids >= 0
    there[:, 1:] = False
    return there


# %% [mutant] the reward comes at the end
# caught by: credited
# says: nothing rewards the call
def credit(rewards, ids):
    mine = said(ids)
    last = mine.clone()
    last[:, 0] &= ~mine[:, 2]
    return torch.where(last, (rewards - rewards.mean())[:, None], 0.0)


# %% [mutant] no baseline
# caught by: credited
# says: not subtracted
def credit(rewards, ids):
    return torch.where(said(ids), rewards[:, None], 0.0)


# %% [mutant] by the number of tokens
# caught by: slope
# says: number of tokens, not
def slopes(credits, ids, contexts, logits):
    chosen = torch.nn.functional.one_hot(ids.clamp(min=0), V).double()
    scores = credits[..., None] * (chosen - logits.softmax(-1)[contexts])
    out = torch.zeros_like(logits)
    return out.index_add(0, contexts.flatten(), scores.flatten(0, 1)) / said(ids).sum()


# %% [mutant] by the number of tokens that have credit
# caught by: slope
# says: tokens that have credit
def slopes(credits, ids, contexts, logits):
    chosen = torch.nn.functional.one_hot(ids.clamp(min=0), V).double()
    scores = credits[..., None] * (chosen - logits.softmax(-1)[contexts])
    out = torch.zeros_like(logits)
    return out.index_add(0, contexts.flatten(), scores.flatten(0, 1)) / (credits != 0).sum()


# %% [partial] 4: the divisor is left
def slopes(credits, ids, contexts, logits):
    chosen = torch.nn.functional.one_hot(ids.clamp(min=0), V).double()
    scores = credits[..., None] * (chosen - logits.softmax(-1)[contexts])
    out = torch.zeros_like(logits)
    return out.index_add(0, contexts.flatten(), scores.flatten(0, 1)) / (ids >= 0).sum()
