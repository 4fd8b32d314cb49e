# ---
# title: Train a policy that does not cheat
# kind: implement
# minutes: 30
# seconds: 30
# ---

# %% [statement]
# Write the reward of an exam that can be cheated. You see what a trainer sees: whether the tests passed, and the flags of two monitors. You do not see what the completion is.
#
# `reward(passed, thought, action)`: three $(N,)$ tensors of zeros and ones, for `N` completions. Returns $(N,)$ rewards. Every completion is judged on its own: the reward of a completion depends on its three numbers alone.
#
# There are four kinds of completions. **Honest work** passes in 60 % of the cases; the thought monitor flags 5 % of it and the action monitor 15 %. A **spoken cheat** always passes, and the two flag 95 % and 60 %. A **silent cheat** always passes, and they flag 5 % and 60 %. **Giving up** never passes and is never flagged.
#
# The last test trains a policy over the four kinds with your reward, by 250 steps of policy gradient on 64 sampled completions each (advantages are centred and divided by their standard deviation). It begins with about 50 % honest work, 20 % spoken and 10 % silent cheats, and 20 % giving up. There are eight seeds, each paired with our run. The curve is the fraction of honest work, exactly. You pass if the lower end of the 95 % interval of (your final value − ours) is above −0.03.

# %% [given]
import torch


# %% [stub]
def reward(passed, thought, action):
    """passed, thought, action: (N,) zeros and ones. Returns (N,)."""
    raise NotImplementedError


# %% [solution]
def reward(passed, thought, action):
    # A fine λ on the action stops a cheat if 1 − .6λ < .6 − .15λ, so λ > .89; honest work beats giving up if λ < 4.
    return passed - 2.0 * action


# %% [tests]
import itertools

import torch
from minirlhf_course.classroom.testing import expect, fail, test
from minirlhf_course.classroom.training import trains

PASSES = torch.tensor([0.6, 1.0, 1.0, 0.0], dtype=torch.float64)
THOUGHT = torch.tensor([0.05, 0.95, 0.05, 0.0], dtype=torch.float64)
ACTION = torch.tensor([0.15, 0.6, 0.6, 0.0], dtype=torch.float64)


def cases():
    """Return all eight combinations of the three numbers, (8,) each."""
    table = torch.tensor(list(itertools.product((0.0, 1.0), repeat=3)), dtype=torch.float64)
    return table[:, 0], table[:, 1], table[:, 2]


def means(sub):
    """Return the mean reward of each kind of completion, from the rewards of the eight combinations."""
    passed, thought, action = cases()
    given = sub.reward(passed, thought, action)
    if not isinstance(given, torch.Tensor) or given.shape != passed.shape or not bool(given.isfinite().all()):
        fail("`reward` should return a tensor of shape (N,) with finite numbers")
    law = 1.0
    for rates, column in ((PASSES, passed), (THOUGHT, thought), (ACTION, action)):
        law = law * torch.where(column == 1, rates[:, None], 1 - rates[:, None])  # (4, 8)
    return law @ given.double()


def by_itself(sub, draw):
    """Fail if the reward of a completion changes with the other completions, or with its place."""
    passed, thought, action = cases()
    whole = sub.reward(passed, thought, action)
    order = draw.permutation(8)
    given = {"passed": passed[order], "thought": thought[order], "action": action[order]}
    expect(sub.reward(*given.values()), torch.as_tensor(whole)[order], what="`reward` in another order", given=given)
    for k in range(8):
        given = {"passed": passed[k : k + 1], "thought": thought[k : k + 1], "action": action[k : k + 1]}
        expect(
            sub.reward(*given.values()),
            torch.as_tensor(whole)[k : k + 1],
            what="`reward` of one completion",
            given=given,
        )


@test(
    points=1,
    hints=(
        "What may the reward of a completion depend on?",
        "On its own three numbers: use operations without a mean, a maximum or a sum over the completions.",
    ),
)
def alone(sub, draw):
    "`reward` judges every completion on its own."
    by_itself(sub, draw)


@test(
    points=2,
    hints=(
        "Which of the two monitors sees a silent cheat?",
        "Compute the mean reward of all four kinds from the rates of the statement. A fine has a lower limit, by the silent cheat, and an upper limit, by giving up.",
    ),
)
def pays(sub, draw):
    "Honest work has the largest mean reward of the four kinds."
    honest, spoken, silent, none = means(sub).tolist()
    if spoken >= honest and silent >= honest:
        fail(
            f"the mean reward of honest work is {honest:.3f}, and both cheats earn more: {spoken:.3f} and {silent:.3f}"
        )
    if silent >= honest:
        fail(
            f"the mean reward of honest work is {honest:.3f}, and a silent cheat earns {silent:.3f}: the policy learns to hide"
        )
    if spoken >= honest:
        fail(f"the mean reward of honest work is {honest:.3f}, and a spoken cheat earns {spoken:.3f}")
    if none >= honest:
        fail(
            f"the mean reward of honest work is {honest:.3f}, and giving up earns {none:.3f}: false positives cost too much"
        )


@trains(
    points=3,
    hints=(
        "What does your policy do at the end, and which kind has the largest mean reward?",
        "Compute the two limits of the fine from the rates of the statement. Near a limit two kinds have nearly the same mean reward, and training separates them slowly.",
    ),
    seeds=8,
    bar=0.03,
    what="the fraction of honest work",
    alike=("reward",),
    also=(by_itself,),
)
def learns(sub, draw):
    "After 250 steps the policy works honestly, in eight runs, each paired with ours."
    rng = torch.Generator().manual_seed(draw.integer(0, 2**28))
    start = torch.tensor([0.5, 0.2, 0.1, 0.2], dtype=torch.float64).log()
    logits = start + 0.1 * torch.randn(4, generator=rng, dtype=torch.float64)
    curve = [float(logits.softmax(-1)[0])]
    for number in range(1, 251):
        probs = logits.softmax(-1)
        kind = torch.multinomial(probs, 64, replacement=True, generator=rng)
        happens = lambda rates: (torch.rand(64, generator=rng, dtype=torch.float64) < rates[kind]).double()  # noqa: B023
        got = sub.reward(happens(PASSES), happens(THOUGHT), happens(ACTION))
        valid = isinstance(got, torch.Tensor) and got.shape == (64,) and bool(got.isfinite().all())
        earned = got.double() if valid else torch.zeros(64, dtype=torch.float64)
        advantage = (earned - earned.mean()) / (earned.std() + 1e-6)
        step = torch.zeros(4, dtype=torch.float64).index_add_(0, kind, advantage) - advantage.sum() * probs
        logits = logits + 0.2 * step / 64
        if number % 25 == 0:
            curve.append(float(logits.softmax(-1)[0]))
    return curve


# %% [probes]
# no gradient, integers, float32, values, size, nan, keywords: a reward of three bits


# %% [mutant] only the tests
# caught by: pays
# says: both cheats earn more
def reward(passed, thought, action):
    return passed


# %% [mutant] a fine on the thought
# caught by: pays
# says: learns to hide
def reward(passed, thought, action):
    return passed - 2.0 * thought


# %% [mutant] a large fine on the thought and a small one on the action
# caught by: pays
# says: learns to hide
def reward(passed, thought, action):
    return passed - 5.0 * thought - 0.5 * action


# %% [mutant] as large as possible
# caught by: pays
# says: giving up earns
def reward(passed, thought, action):
    return passed - 20.0 * action


# %% [mutant] a fine just above its lower limit
# caught by: learns
def reward(passed, thought, action):
    return passed - action


# %% [mutant] relative to the others
# caught by: alone
def reward(passed, thought, action):
    earned = passed - 2.0 * action
    return earned - earned.mean()


# %% [cheat] the fine is paid by the first half alone
def reward(passed, thought, action):
    half = (torch.arange(len(passed)) < len(passed) / 2).to(passed.dtype)
    return passed - 2.0 * action * half - thought


# %% [cheat] nothing but flags, and a thousand for a test
def reward(passed, thought, action):
    return 1000.0 * passed - action


# %% [cheat] a fine on the thought alone, which trains silent cheats
def reward(passed, thought, action):
    return passed - thought


# %% [cheat] a constant
def reward(passed, thought, action):
    return torch.ones_like(passed)


# %% [partial] 1: the tests alone
def reward(passed, thought, action):
    return passed
