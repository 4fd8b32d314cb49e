# ---
# title: Bug hunt: a completion ends once
# kind: bughunt
# minutes: 25
# ---

# %% [statement]
# Many tokenizers have no token for padding, so it is common to write `pad_token = eos_token`. A sampled batch then looks like this, with
# 0 for both:
#
# ```
# 5 7 2 0 0 0        a completion of four tokens: 5 7 2 and its end
# 4 0 0 0 0 0        a completion of two tokens
# 3 6 6 1 5 2        truncated at the greatest length: no end
# ```
#
# The function below prepares such a batch for PPO. It returns three things:
#
# * `mask`, True on the tokens that the policy chose, with the end-of-sequence token and without padding;
# * `terminated`, True for the completions that ended by themselves;
# * `token_rewards`: the reward of each completion on its last token, minus `penalty` if it was truncated; 0 elsewhere.
#
# **There are three bugs. Find and fix them.** In supervised fine-tuning the first bug makes models generate without end.

# %% [given]
import torch


# %% [stub]
def prepare(tokens, rewards, eos, penalty):
    """tokens: (B, T), padded on the right with eos. rewards: (B,). Returns mask (B, T), terminated (B,), token_rewards (B, T)."""
    mask = tokens != eos
    terminated = tokens[:, -1] != eos
    token_rewards = torch.zeros(tokens.shape, dtype=rewards.dtype)
    token_rewards[:, -1] = rewards - penalty * (~terminated)
    return mask, terminated, token_rewards


# %% [solution]
def prepare(tokens, rewards, eos, penalty):
    ends = tokens == eos
    mask = ends.cumsum(-1) - ends.long() == 0
    terminated = ends.any(-1)
    token_rewards = torch.zeros(tokens.shape, dtype=rewards.dtype)
    last = mask.sum(-1) - 1
    token_rewards[torch.arange(len(tokens)), last] = rewards - penalty * (~terminated)
    return mask, terminated, token_rewards


# %% [tests]
import torch
from minirlhf_course.classroom.testing import expect, fail, test, tidy


def problem(draw):
    """Return five completions: of one token, of some, of all except one, one that ends in the last column, and one truncated."""
    eos, width = draw.integer(0, 3), 6
    length = torch.tensor([1, draw.integer(2, 4), 5, 6, 6])
    body = torch.tensor([[eos + 1 + draw.integer(0, 5) for _ in range(width)] for _ in range(5)])
    tokens = torch.where(torch.arange(width)[None, :] < length[:, None] - 1, body, eos)
    tokens[4] = body[4]
    order = draw.permutation(5)
    rewards = tidy(draw.away_from([0.0], 5, low=-2, high=2, margin=0.2))
    return tokens[order], rewards, eos, float(tidy(draw.uniform(low=2.5, high=4.0)))


def read(tokens, eos):
    """Return for each row the number of tokens until the first end, and whether there is one."""
    found = []
    for row in tokens.tolist():
        found.append((row.index(eos) + 1, True) if eos in row else (len(row), False))
    return found


def as_mask(lengths, width):
    return torch.tensor([[float(t < n) for t in range(width)] for n in lengths])


def answer(sub, draw):
    tokens, rewards, eos, penalty = problem(draw)
    got = sub.prepare(tokens, rewards, eos, penalty)
    if not isinstance(got, list | tuple) or len(got) != 3:
        fail("the result is not three tensors")
    given = {"tokens": tokens, "rewards": rewards, "eos": eos, "penalty": penalty}
    return got, given, read(tokens, eos)


@test(
    points=2,
    hints=(
        "Which token ends the completion, and does your mask train it?",
        "Keep everything up to and including the *first* end: tokens with no end strictly before them. A cumulative sum counts the "
        "ends so far.",
    ),
)
def keeps_its_end(sub, draw):
    "`mask` holds every token of the completion, its end included, and no padding."
    (mask, _, _), given, replies = answer(sub, draw)
    tokens, eos = given["tokens"], given["eos"]
    expect(
        torch.as_tensor(mask).double(),
        as_mask([n for n, _ in replies], 6),
        what="the mask",
        given=given,
        mistakes={
            "every end is treated as padding: the policy never learns to stop": (tokens != eos).double(),
            "padding counts as well": torch.ones(5, 6),
        },
    )


@test(
    points=1,
    hints=(
        "Which token is in the last column of a completion that ended, and which in one that was truncated?",
        "Padding is also the end token: the last column is `eos` exactly if the completion has ended.",
    ),
)
def ended(sub, draw):
    "`terminated` is True where the completion contains its end."
    (_, terminated, _), given, replies = answer(sub, draw)
    right = torch.tensor([float(done) for _, done in replies])
    full = torch.tensor([float(n < 6) for n, _ in replies])
    expect(
        torch.as_tensor(terminated).double(),
        right,
        what="`terminated`",
        given=given,
        mistakes={
            "True and False are exchanged": 1 - right,
            "a completion that ends in the last column is treated as truncated": full,
        },
    )


@test(
    points=1,
    hints=(
        "In which column is the reward of a short completion now, and does the mask keep it?",
        "The last *sampled* token of a row is at `mask.sum(-1) - 1`.",
    ),
)
def paid_at_the_end(sub, draw):
    "The reward, minus the penalty, is on the last token of the completion."
    (_, _, token_rewards), given, replies = answer(sub, draw)
    rewards, penalty = given["rewards"], given["penalty"]
    right, in_column, unpunished, replaced, everybody = (torch.zeros(5, 6, dtype=torch.float64) for _ in range(5))
    for i, (n, done) in enumerate(replies):
        right[i, n - 1] = rewards[i] - (0.0 if done else penalty)
        in_column[i, 5] = right[i, n - 1]
        unpunished[i, n - 1] = rewards[i]
        replaced[i, n - 1] = rewards[i] if done else -penalty
        everybody[i, n - 1] = rewards[i] - penalty
    expect(
        token_rewards,
        right,
        what="the token rewards",
        given=given,
        mistakes={
            "the reward is in the last column, also where this is padding": in_column,
            "the penalty replaces the reward": replaced,
            "completions that have ended are penalised, too": everybody,
            "truncated completions are not penalised": unpunished,
        },
    )


# %% [probes]
# no gradient: masks and rewards are data
# no keywords of prepare.eos: the padding is made of it


# %% [mutant] the end is still padding
# caught by: keeps_its_end
# says: never learns to stop
def prepare(tokens, rewards, eos, penalty):
    terminated = (tokens == eos).any(-1)
    mask = tokens != eos
    token_rewards = torch.zeros(tokens.shape, dtype=rewards.dtype)
    last = (mask.sum(-1) - 1 + terminated).clamp(min=0)
    token_rewards[torch.arange(len(tokens)), last] = rewards - penalty * (~terminated)
    return mask, terminated, token_rewards


# %% [mutant] padding counts
# caught by: keeps_its_end
# says: padding counts as well
def prepare(tokens, rewards, eos, penalty):
    terminated = (tokens == eos).any(-1)
    token_rewards = torch.zeros(tokens.shape, dtype=rewards.dtype)
    token_rewards[:, -1] = rewards - penalty * (~terminated)
    return torch.ones_like(tokens).bool(), terminated, token_rewards


# %% [mutant] ended and truncated exchanged
# caught by: ended
# says: exchanged
def prepare(tokens, rewards, eos, penalty):
    ends = tokens == eos
    mask = ends.cumsum(-1) - ends.long() == 0
    terminated = ~ends.any(-1)
    token_rewards = torch.zeros(tokens.shape, dtype=rewards.dtype)
    token_rewards[torch.arange(len(tokens)), mask.sum(-1) - 1] = rewards - penalty * terminated
    return mask, terminated, token_rewards


# %% [mutant] a full row is treated as truncated
# caught by: ended
# says: ends in the last column
def prepare(tokens, rewards, eos, penalty):
    ends = tokens == eos
    mask = ends.cumsum(-1) - ends.long() == 0
    terminated = ~mask.all(-1)
    token_rewards = torch.zeros(tokens.shape, dtype=rewards.dtype)
    token_rewards[torch.arange(len(tokens)), mask.sum(-1) - 1] = rewards - penalty * (~terminated)
    return mask, terminated, token_rewards


# %% [mutant] the reward in the last column
# caught by: paid_at_the_end
# says: in the last column
def prepare(tokens, rewards, eos, penalty):
    ends = tokens == eos
    mask = ends.cumsum(-1) - ends.long() == 0
    terminated = ends.any(-1)
    token_rewards = torch.zeros(tokens.shape, dtype=rewards.dtype)
    token_rewards[:, -1] = rewards - penalty * (~terminated)
    return mask, terminated, token_rewards


# %% [partial] 3: mask and ends are repaired, the reward is not
def prepare(tokens, rewards, eos, penalty):
    ends = tokens == eos
    mask = ends.cumsum(-1) - ends.long() == 0
    terminated = ends.any(-1)
    token_rewards = torch.zeros(tokens.shape, dtype=rewards.dtype)
    token_rewards[:, -1] = rewards - penalty * (~terminated)
    return mask, terminated, token_rewards
