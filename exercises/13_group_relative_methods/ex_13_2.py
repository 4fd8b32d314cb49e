# ---
# title: What DAPO adds
# kind: implement
# minutes: 35
# ---

# %% [statement]
# Three of DAPO's changes to GRPO decide which samples count, and how much.
#
# 1. **Soft punishment.** `soft_punishment(lengths, limit, cache)` is added to the reward of each completion. With a limit of $L$ tokens and a cache of $c$ tokens it is 0 up to
#    $L - c$ tokens, then falls on a straight line to $-1$ at $L$, and stays $-1$ beyond.
# 2. **Dynamic sampling.** A group whose rewards are all equal has no gradient. `refill(rounds, wanted)` receives several rounds of sampling, a list of reward
#    tensors `(P, G)`, in the order in which they would be sampled. It keeps groups with different rewards until it has `wanted` of them, and stops sampling
#    as early as it can. It returns `(kept, sampled)`: `kept` is the list of pairs `(round, row)`, at most `wanted` of them. `sampled` is the number
#    of groups that had to be sampled. A round is sampled as a whole or not at all. If all rounds together do not give enough groups, it returns those it has. `wanted` may be 0.
# 3. **Overlong filtering.** A truncated completion was not wrong, only long. `token_weights(mask, finished)` gives the weights of the token-level mean and leaves
#    completions that are not `finished` out of the sum *and* of the count. Every token of a finished completion weighs one over the number of such tokens; all other
#    tokens weigh 0. If no completion is finished, all weights are 0.

# %% [given]
import torch


# %% [stub]
def soft_punishment(lengths, limit, cache):
    """lengths: (B,) tokens. Returns (B,) between -1 and 0."""
    raise NotImplementedError


def refill(rounds, wanted):
    """rounds: a list of (P, G). Returns the list of (round, row) that are kept, and the number of sampled groups."""
    raise NotImplementedError


def token_weights(mask, finished):
    """mask: (B, T) bool. finished: (B,) bool. Returns (B, T) weights, 0 outside the mask."""
    raise NotImplementedError


# %% [solution]
def soft_punishment(lengths, limit, cache):
    return -((lengths - (limit - cache)) / cache).clamp(0.0, 1.0)


def refill(rounds, wanted):
    kept, sampled = [], 0
    for number, rewards in enumerate(rounds):
        if len(kept) >= wanted:
            break
        sampled += len(rewards)
        alive = rewards.amax(-1) > rewards.amin(-1)
        kept += [(number, row) for row in alive.nonzero().flatten().tolist()]
    return kept[:wanted], sampled


def token_weights(mask, finished):
    kept = (mask & finished[:, None]).double()
    return kept / kept.sum().clamp(min=1)


# %% [tests]
import torch
from minirlhf_course.classroom.testing import expect, fail, test


@test(
    points=2,
    hints=(
        "There are three pieces: flat at 0, a line, flat at −1. What is the slope of the line per token?",
        "Count the tokens beyond L − c, divide by c, and keep the result between 0 and 1 before you change its sign.",
    ),
)
def punishment(sub, draw):
    "`soft_punishment` is 0 up to L − c, falls by 1/c per token to −1 at L, and stays there."
    limit, cache = draw.integer(12, 20), draw.integer(3, 8)
    lengths = torch.arange(1, limit + 6).double()
    charged = [sum(limit - cache < t <= limit for t in range(1, n + 1)) for n in range(1, limit + 6)]
    over = lengths - (limit - cache)
    for tokens in (lengths, lengths.long()):
        expect(
            sub.soft_punishment(tokens, limit, cache),
            -torch.tensor(charged, dtype=torch.float64) / cache,
            what="the punishment",
            given={"lengths": tokens, "limit": limit, "cache": cache},
            mistakes={
                "it goes on falling beyond the limit": -(over / cache).clamp(min=0),
                "it begins one token too early": -((over + 1) / cache).clamp(0.0, 1.0),
                "short completions are rewarded": -(over / cache).clamp(max=1.0),
                "it begins at the first token": -(lengths / limit).clamp(max=1.0),
                "the line begins at the limit, but it should end there": -((lengths - limit) / cache).clamp(0.0, 1.0),
                "it is a reward: the sign is missing": (over / cache).clamp(0.0, 1.0),
                "the line has the slope of the limit, not of the cache": -(over.clamp(min=0) / limit).clamp(max=1.0),
            },
        )


def sampling(draw):
    """Return rounds of three groups, of which one or two have different rewards; the other ones are all right or all wrong."""
    rounds = []
    for n in range(4):
        rewards = torch.zeros(3, 4, dtype=torch.float64)
        rewards[1] = 1.0
        rewards[2, : draw.integer(1, 3)] = 1.0
        if n % 2:
            rewards[0, draw.integer(0, 3)] = 1.0
        rounds.append(rewards[draw.permutation(3)])
    return rounds


def signal(rewards):
    return [n for n, row in enumerate(rewards.tolist()) if len(set(row)) > 1]


@test(
    points=2,
    hints=(
        "Which groups have no gradient: those that all fail, those that all succeed, or both?",
        "A group has a gradient if its largest reward exceeds its smallest. Keep the pairs in order, and cut the list at `wanted`.",
    ),
)
def kept(sub, draw):
    "`refill` keeps the first `wanted` groups whose rewards differ."
    rounds, wanted = sampling(draw), draw.integer(2, 4)
    alive = [(n, row) for n, rewards in enumerate(rounds) for row in signal(rewards)]
    got, _ = sub.refill(rounds, wanted)
    got = [tuple(int(x) for x in pair) for pair in got]
    if got == alive[:wanted]:
        return
    some = [(n, row) for n, rewards in enumerate(rounds) for row, r in enumerate(rewards.tolist()) if sum(r) > 0]
    why = "they are not the first groups whose rewards differ"
    if len(got) > wanted:
        why = f"there are {len(got)}, more than wanted"
    elif got == some[:wanted]:
        why = "groups in which every completion succeeds are kept, but they have no gradient"
    fail(
        f"the kept groups are wrong: {why}",
        **{f"round {n}": r for n, r in enumerate(rounds)},
        wanted=wanted,
        yours=str(got),
    )


@test(
    points=1,
    hints=(
        "When do you know that you have enough? Look before you sample another round.",
        "A whole round counts, with its zero-variance groups and those that came too late. Rounds that were never sampled do not count.",
    ),
)
def no_more_than_needed(sub, draw):
    "`refill` counts the groups of the rounds that it needed, and returns all kept groups if there are too few."
    rounds = sampling(draw)
    for wanted in (0, 1, 2, 3, 4, 5, 99):
        needed, have = 0, 0
        for rewards in rounds:
            if have < wanted:
                needed, have = needed + len(rewards), have + len(signal(rewards))
        got, sampled = sub.refill(rounds, wanted)
        if int(sampled) != needed or len(got) != min(wanted, have):
            everything = 3 * len(rounds)
            why = ""
            if int(sampled) == everything and needed < everything:
                why = ": all rounds are sampled although fewer are enough"
            elif int(sampled) == min(wanted, have):
                why = ": the zero-variance groups were sampled too, and paid for"
            fail(
                f"{int(sampled)} groups are reported as sampled and {len(got)} kept, where {needed} and {min(wanted, have)} are right{why}",
                **{f"round {n}": r for n, r in enumerate(rounds)},
                wanted=wanted,
            )


@test(
    points=2,
    hints=(
        "Which tokens are in the sum? The same ones belong in the count.",
        "A token counts if it is under the mask and its row is finished. Divide by the number of such tokens; if there are none, avoid 0/0.",
    ),
)
def filtered(sub, draw):
    "`token_weights` gives the tokens of finished completions equal weights, and truncated completions weight 0."
    mask = torch.arange(6) < torch.tensor([2, 6, draw.integer(3, 5), 6])[:, None]
    finished = torch.tensor([True, False, True, draw.integer(0, 1) == 1])
    right = torch.zeros(4, 6, dtype=torch.float64)
    places = [(i, t) for i in range(4) for t in range(6) if finished[i] and mask[i, t]]
    for place in places:
        right[place] = 1 / len(places)
    kept = mask & finished[:, None]
    per_row = kept.double() / (mask.sum(-1, keepdim=True) * finished.sum())
    expect(
        sub.token_weights(mask, finished),
        right,
        what="the weights",
        given={"mask": mask, "finished": finished},
        mistakes={
            "truncated completions still count in the divisor": kept.double() / mask.sum(),
            "truncated completions are still in the sum": mask.double() / mask.sum(),
            "this is the mean per completion": per_row,
            "padding counts as tokens": kept.double() / (6 * finished.sum()),
        },
    )
    none = sub.token_weights(mask, torch.zeros(4, dtype=torch.bool))
    expect(none, torch.zeros(4, 6, dtype=torch.float64), what="the weights when nothing is finished")


# %% [edges]
# no_more_than_needed: `wanted` may be 0
# kept: at most `wanted` of them
# no_more_than_needed: If all rounds together do not give enough groups, it returns those it has
# filtered: If no completion is finished, all weights are 0


# %% [probes]
# no gradient: rewards and weights are data
# no values of soft_punishment.lengths: a length is a whole number


# %% [mutant] no floor
# caught by: punishment
# says: goes on falling
def soft_punishment(lengths, limit, cache):
    return -((lengths - (limit - cache)) / cache).clamp(min=0.0)


# %% [mutant] a bonus for the short
# caught by: punishment
# says: short completions are rewarded
def soft_punishment(lengths, limit, cache):
    return -((lengths - (limit - cache)) / cache).clamp(max=1.0)


# %% [mutant] only hopeless groups are dropped
# caught by: kept
# says: every completion succeeds
def refill(rounds, wanted):
    kept, sampled = [], 0
    for number, rewards in enumerate(rounds):
        if len(kept) >= wanted:
            break
        sampled += len(rewards)
        kept += [(number, row) for row in (rewards.sum(-1) > 0).nonzero().flatten().tolist()]
    return kept[:wanted], sampled


# %% [mutant] everything is sampled
# caught by: no_more_than_needed
# says: all rounds are sampled
def refill(rounds, wanted):
    kept, sampled = [], 0
    for number, rewards in enumerate(rounds):
        sampled += len(rewards)
        alive = rewards.amax(-1) > rewards.amin(-1)
        kept += [(number, row) for row in alive.nonzero().flatten().tolist()]
    return kept[:wanted], sampled


# %% [mutant] only what is kept is counted
# caught by: no_more_than_needed
# says: paid for
def refill(rounds, wanted):
    kept = []
    for number, rewards in enumerate(rounds):
        if len(kept) >= wanted:
            break
        alive = rewards.amax(-1) > rewards.amin(-1)
        kept += [(number, row) for row in alive.nonzero().flatten().tolist()]
    return kept[:wanted], len(kept[:wanted])


# %% [mutant] the divisor counts what was dropped
# caught by: filtered
# says: still count in the divisor
def token_weights(mask, finished):
    return (mask & finished[:, None]).double() / mask.sum()


# %% [mutant] one round, wanted or not
# caught by: no_more_than_needed
def refill(rounds, wanted):
    kept, sampled = [], 0
    for number, rewards in enumerate(rounds):
        sampled += len(rewards)
        alive = rewards.amax(-1) > rewards.amin(-1)
        kept += [(number, row) for row in alive.nonzero().flatten().tolist()]
        if len(kept) >= wanted:
            break
    return kept[:wanted], sampled


# %% [partial] 2: the punishment
def refill(rounds, wanted):
    raise NotImplementedError


def token_weights(mask, finished):
    raise NotImplementedError


# %% [partial] 5: no filtering
def token_weights(mask, finished):
    return mask.double() / mask.sum()
