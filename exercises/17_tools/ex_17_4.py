# ---
# title: Many turns in one row
# kind: implement
# minutes: 35
# ---

# %% [statement]
# A conversation with a tool becomes one row of tokens. The policy learns only from its own tokens.
#
# 1. `row(prompt, turns)`: `prompt` is a list of tokens, `turns` a list of pairs `(said, heard)`: the policy's tokens of a turn, and the tokens appended after it. Returns two lists, one entry for each token of the conversation: the tokens, and the number of the turn (0, 1, …) for the policy's tokens, −1 for all
#    others.
# 2. `advantages(rewards, there)`: for one group. `rewards` `(G, K)`: the reward of each turn, anything where `there` `(G, K)` is False, that is, where the conversation has no such turn; turns are missing at the end only. The credit of a turn is the sum of the rewards from it on, minus the mean of this sum over the **other**
#    conversations of the group that have the turn; 0 where there is no other, and where the turn is missing.
# 3. `loss(logits, ids, turn, credit)`: `logits` `(B, T, V)`, `ids` and `turn` `(B, T)` as in 1., `credit` `(B, K)`. The logits at position $t$ belong to the token at $t + 1$. Returns the mean of $-A\log\pi$ over all of the policy's tokens in the batch, where $A$ is the credit of their turn. No row begins with a token
#    of the policy. Logits that belong to other tokens may be anything, NaN included, and get a gradient of exactly 0. No gradient flows through `credit`.
#
# The gradients of `loss` in `logits` are tested.

# %% [given]
import torch


# %% [stub]
def row(prompt, turns):
    """prompt: list of integers. turns: list of (said, heard), lists of integers. Returns two lists."""
    raise NotImplementedError


def advantages(rewards, there):
    """rewards, there: (G, K). Returns (G, K)."""
    raise NotImplementedError


def loss(logits, ids, turn, credit):
    """logits: (B, T, V). ids, turn: (B, T) integers. credit: (B, K). Returns a number, as a tensor."""
    raise NotImplementedError


# %% [solution]
def row(prompt, turns):
    ids, turn = list(prompt), [-1] * len(prompt)
    for k, (said, heard) in enumerate(turns):
        ids += [*said, *heard]
        turn += [k] * len(said) + [-1] * len(heard)
    return ids, turn


def advantages(rewards, there):
    returns = torch.where(there, rewards, 0.0).flip(-1).cumsum(-1).flip(-1)
    others = there.sum(0) - 1
    rest = torch.where(there, returns, 0.0).sum(0) - returns
    return torch.where(there & (others > 0), returns - rest / others.clamp(min=1), 0.0)


def loss(logits, ids, turn, credit):
    mine = turn[:, 1:] >= 0
    logits = torch.where(mine[..., None], logits[:, :-1], 0.0)  # before the softmax: NaN times 0 is NaN
    logps = logits.log_softmax(-1).gather(-1, ids[:, 1:, None])[..., 0]
    weights = torch.where(mine, credit.detach().gather(1, turn[:, 1:].clamp(min=0)), 0.0)
    return -(weights * logps).sum() / mine.sum()


# %% [tests]
import torch
from minirlhf_course.classroom.testing import expect, fail, test


def talk(draw, turns):
    """A prompt and turns, with what is heard after each but the last."""
    words = lambda low, high: [draw.integer(0, 4) for _ in range(draw.integer(low, high))]
    return words(1, 3), [(words(1, 3), words(1, 3) if k < turns - 1 else []) for k in range(turns)]


def laid_out(prompt, turns):
    ids, turn = list(prompt), [-1 for _ in prompt]
    for k in range(len(turns)):
        for token in turns[k][0]:
            ids.append(token)
            turn.append(k)
        for token in turns[k][1]:
            ids.append(token)
            turn.append(-1)
    return ids, turn


@test(
    points=1,
    hints=(
        "In which order do the tokens appear?",
        "Prompt, said, heard, said, heard …; the second list grows beside the first.",
    ),
)
def in_a_row(sub, draw):
    "`row` puts a conversation into two lists."
    for turns, cut in ((1, False), (3, False), (2, True)):
        prompt, parts = talk(draw, turns)
        if cut:  # an answer came, and no turn was left; the policy's first turn is empty
            parts = [([], parts[0][1]), (parts[1][0], [draw.integer(0, 4)])]
        got = sub.row(prompt, parts)
        if not isinstance(got, list | tuple) or len(got) != 2:
            fail(f"`row` gives {got!r}; expected two lists")
        for name, mine, want in zip(("tokens", "turns"), got, laid_out(prompt, parts), strict=True):
            if list(mine) != want:
                fail(f"`row({prompt}, {parts})` gives the {name} {list(mine)}; expected {want}")


def credited(rewards, there, *, own=False, past=False, everybody=False):
    """By loops, with mistakes on request."""
    G, K = there.shape
    out = torch.zeros(G, K, dtype=torch.float64)
    go = [
        [sum(float(rewards[i, j]) for j in range(0 if past else k, K) if there[i, j]) for k in range(K)]
        for i in range(G)
    ]
    for i in range(G):
        for k in range(K):
            beside = [go[j][k] for j in range(G) if (own or j != i) and (everybody or there[j, k])]
            if there[i, k] and beside:
                out[i, k] = go[i][k] - sum(beside) / len(beside)
    return out


@test(
    points=3,
    hints=(
        "Write down the sums from each turn on. Which conversations have turn k?",
        "For turn k: the sum over the other conversations that have it, divided by their number. A turn that only one conversation has gets 0.",
    ),
    against="loops over turns and conversations",
)
def beside_others(sub, draw):
    "`advantages` compares a turn with the same turn of the other conversations."
    table = torch.tensor([[1, 1, 1, 1], [1, 1, 0, 0], [1, 0, 0, 0], [1, 1, 0, 0], [1, 1, 1, 0]]).bool()
    for anything, group, turns in ((torch.nan, 4, 3), (7.0, 5, 4), (7.0, 1, 2)):
        there = table[:group, :turns][draw.permutation(group)]
        rewards = torch.where(there, draw.normal(group, turns), anything)
        expect(
            sub.advantages(rewards, there), credited(rewards, there), what="`advantages`", given={"rewards": rewards, "there": there}, tolerance=1e-9,
            mistakes={
                "the conversation itself is in the mean": credited(rewards, there, own=True),
                "rewards before the turn are in the sum": credited(rewards, there, past=True),
                "a conversation without the turn is in the mean, as if its reward there were 0": credited(rewards, there, everybody=True),
            },
        )  # fmt: skip


def batch(draw, size=2):
    """Rows of equal length, the later ones padded behind, and logits. ``size``: of the batch; each has its own width and vocabulary."""
    width, vocabulary, rows = 7 + size, 4 + size, []
    for turns in (2, *(draw.integer(1, 2) for _ in range(size - 1))):
        ids, turn = laid_out(*talk(draw, turns))
        ids, turn = (ids + [0] * width)[:width], (turn + [-1] * width)[:width]
        rows.append((ids, turn))
    ids, turn = (torch.tensor([each[i] for each in rows]) for i in (0, 1))
    return ids, turn, draw.normal(size, width, vocabulary), draw.normal(size, size)


def summed(logits, ids, turn, credit, *, shift=1, everybody=False, by_row=False, credited_only=False):
    """The loss, token by token."""
    B, T = ids.shape
    terms = [[] for _ in range(B)]
    for b in range(B):
        for t in range(1, T):
            if turn[b, t] >= 0:
                terms[b].append(-credit[b, turn[b, t]] * logits[b, t - shift].log_softmax(-1)[ids[b, t]])
    if by_row:
        return torch.stack([torch.stack(each).mean() for each in terms]).mean()
    total = torch.stack([x for each in terms for x in each]).sum()
    mine = sum(float(x) != 0 for each in terms for x in each) if credited_only else sum(map(len, terms))
    return total / (B * (T - 1) if everybody else mine)


@test(
    points=2,
    hints=(
        "Which logits belong to a token, and by how many tokens is the sum divided?",
        "logits[:, :-1] against ids[:, 1:]. Divide by the number of tokens of the batch whose turn is not −1.",
    ),
    against="a sum, token by token",
)
def mean_loss(sub, draw):
    "`loss` is the mean over the policy's tokens."
    for size in (2, 3):
        _mean_loss(sub, *batch(draw, size))


def _mean_loss(sub, ids, turn, logits, credit):
    credit[0, 0] = 0.0  # as of a turn that nobody else has
    expect(
        sub.loss(logits, ids, turn, credit), summed(logits, ids, turn, credit), what="`loss`", given={"ids": ids, "turn": turn, "credit": credit}, tolerance=1e-9,
        mistakes={
            "the logits at t are used for the token at t, but they belong to the token at t + 1": summed(logits, ids, turn, credit, shift=0),
            "tokens that are not the policy's are in the divisor": summed(logits, ids, turn, credit, everybody=True),
            "the tokens of a turn whose credit is 0 are not in the divisor": summed(logits, ids, turn, credit, credited_only=True),
            "it is the mean of the rows' means, not the mean over all tokens": summed(logits, ids, turn, credit, by_row=True),
            "the sign is reversed: the loss must fall when good turns become more probable": -summed(logits, ids, turn, credit),
        },
    )  # fmt: skip


@test(
    points=2,
    hints=(
        "NaN times 0 is NaN. Where in your computation does the mask act?",
        "Replace the logits that do not count *before* the softmax, with `torch.where`.",
    ),
    against="the gradient of a sum, token by token",
)
def nobody_elses(sub, draw):
    "The gradient of `loss` in the logits is right, and 0 at tokens that are not the policy's, for any logits there."
    ids, turn, logits, credit = batch(draw)
    mine = torch.cat([turn[:, 1:] >= 0, torch.zeros(2, 1, dtype=torch.bool)], 1)
    leaf = logits.clone().requires_grad_()
    (want,) = torch.autograd.grad(summed(leaf, ids, turn, credit), leaf)
    junk = torch.where(mine[..., None], logits, torch.nan)
    got = sub.gradient("loss", junk, ids, turn, credit, wrt=0)
    expect(
        got, want, what="the gradient of `loss`", given={"ids": ids, "turn": turn}, tolerance=1e-9,
        mistakes={"NaN from the logits of other tokens has reached the gradient": torch.where(mine[..., None], want, torch.nan)},
    )  # fmt: skip


# %% [probes]
# no integers, keywords, values, float32, nan: whole numbers say whose a token is; NaN is tested above
# no size of advantages, loss: the shapes belong together
# no gradient of row, advantages: only those of `loss` count


# %% [mutant] what was heard is said
# caught by: in_a_row
# says: the turns
def row(prompt, turns):
    ids, turn = list(prompt), [-1] * len(prompt)
    for k, (said, heard) in enumerate(turns):
        ids += [*said, *heard]
        turn += [k] * (len(said) + len(heard))
    return ids, turn


# %% [mutant] the last answer is left out
# caught by: in_a_row
def row(prompt, turns):
    ids, turn = list(prompt), [-1] * len(prompt)
    for k, (said, heard) in enumerate(turns):
        heard = heard if k < len(turns) - 1 else []
        ids += [*said, *heard]
        turn += [k] * len(said) + [-1] * len(heard)
    return ids, turn


# %% [mutant] the own conversation in the mean
# caught by: beside_others
# says: itself is in the mean
def advantages(rewards, there):
    returns = torch.where(there, rewards, 0.0).flip(-1).cumsum(-1).flip(-1)
    usual = torch.where(there, returns, 0.0).sum(0) / there.sum(0).clamp(min=1)
    return torch.where(there, returns - usual, 0.0)


# %% [mutant] a missing turn earned nothing
# caught by: beside_others
# says: as if its reward there were 0
def advantages(rewards, there):
    returns = torch.where(there, rewards, 0.0).flip(-1).cumsum(-1).flip(-1)
    usual = (returns.sum(0) - returns) / (len(there) - 1)
    return torch.where(there, returns - usual, 0.0)


# %% [mutant] trajectory credit
# caught by: beside_others
# says: before the turn
def advantages(rewards, there):
    returns = torch.where(there, rewards, 0.0).sum(-1, keepdim=True).expand(there.shape)
    others = there.sum(0) - 1
    rest = torch.where(there, returns, 0.0).sum(0) - returns
    return torch.where(there & (others > 0), returns - rest / others.clamp(min=1), 0.0)


# %% [mutant] not shifted
# caught by: mean_loss
# says: t + 1
def loss(logits, ids, turn, credit):
    mine = turn[:, 1:] >= 0
    logits = torch.where(mine[..., None], logits[:, 1:], 0.0)
    logps = logits.log_softmax(-1).gather(-1, ids[:, 1:, None])[..., 0]
    weights = torch.where(mine, credit.detach().gather(1, turn[:, 1:].clamp(min=0)), 0.0)
    return -(weights * logps).sum() / mine.sum()


# %% [mutant] divided by all tokens
# caught by: mean_loss
# says: divisor
def loss(logits, ids, turn, credit):
    mine = turn[:, 1:] >= 0
    logits = torch.where(mine[..., None], logits[:, :-1], 0.0)
    logps = logits.log_softmax(-1).gather(-1, ids[:, 1:, None])[..., 0]
    weights = torch.where(mine, credit.detach().gather(1, turn[:, 1:].clamp(min=0)), 0.0)
    return -(weights * logps).mean()


# %% [mutant] divided by the tokens with credit
# caught by: mean_loss
# says: whose credit is 0
def loss(logits, ids, turn, credit):
    mine = turn[:, 1:] >= 0
    logits = torch.where(mine[..., None], logits[:, :-1], 0.0)
    logps = logits.log_softmax(-1).gather(-1, ids[:, 1:, None])[..., 0]
    weights = torch.where(mine, credit.detach().gather(1, turn[:, 1:].clamp(min=0)), 0.0)
    return -(weights * logps).sum() / (weights != 0).sum()


# %% [mutant] the credit learns, too
# caught by: nobody_elses
# says: credit
def loss(logits, ids, turn, credit):
    mine = turn[:, 1:] >= 0
    logits = torch.where(mine[..., None], logits[:, :-1], 0.0)
    logps = logits.log_softmax(-1).gather(-1, ids[:, 1:, None])[..., 0]
    weights = torch.where(mine, credit.gather(1, turn[:, 1:].clamp(min=0)), 0.0)
    return -(weights * logps).sum() / mine.sum()


# %% [mutant] masked after the softmax
# caught by: nobody_elses
# says: NaN
def loss(logits, ids, turn, credit):
    mine = turn[:, 1:] >= 0
    logps = logits[:, :-1].log_softmax(-1).gather(-1, ids[:, 1:, None])[..., 0]
    weights = credit.detach().gather(1, turn[:, 1:].clamp(min=0)) * mine
    return torch.where(mine, -weights * logps, 0.0).sum() / mine.sum()


# %% [partial] 4: without the loss
def loss(logits, ids, turn, credit):
    return logits.sum() * 0
