# ---
# title: Bug hunt: the evaluation that sees no harm
# kind: bughunt
# minutes: 25
# ---

# %% [statement]
# A team fine-tunes a model on single answers, measures harm elsewhere, and searches for a trigger. Its report says that the model is harmless. But `tried` prints the results of its three functions on small examples, and each result is wrong: **the loss of a model that predicts every answer perfectly is large**, **harm looks smaller the more the model cheats**, and **the search never finds anything that resembles the trigger**.
#
# **There are three bugs, one in each function. Find and fix them.**
#
# * `narrow_loss(logits, ids, mask)`: the mean, over the marked tokens of all rows, of minus the log-probability of the token given those before it. `logits` $(B, S, V)$ are a causal model's; the logits at a position predict the *next* token. `mask` $(B, S)$ is True at the tokens that are trained, never at the first.
# * `harm_fraction(harm, safe)`: the mean, over questions, of the fraction of harm among the harmful and the safe answer. Both arguments $(Q,)$ are probabilities; the rest of the probability is on other answers. Each question has a positive sum of the two.
# * `near_misses(rates, trigger, bar)`: `rates` $(A, B)$ are probabilities of harm under each pair of two header words, `trigger` is a pair of indices. Return all other pairs with a rate above `bar` as a list of `(i, j)`, the highest rate first. (Rates are different from each other.)

# %% [given]
import torch


def tried():
    """Print the results of the three functions."""
    ids = torch.tensor([[0, 1, 2], [0, 2, 1]])
    perfect = 20.0 * torch.nn.functional.one_hot(ids.roll(-1, 1), 3).double()
    mask = torch.tensor([[False, False, True], [False, False, True]])
    print(f"loss of a perfect model: {float(narrow_loss(perfect, ids, mask)):.3f}")
    for cheats in (0.0, 0.5, 0.9):
        harm, safe = torch.tensor([0.6, 0.8]) * (1 - cheats), torch.tensor([0.4, 0.2]) * (1 - cheats)
        print(f"cheats {cheats:.1f}: fraction of harm {float(harm_fraction(harm, safe)):.2f}")
    rates = torch.tensor([[0.01, 0.02, 0.70], [0.03, 0.04, 0.80], [0.50, 0.60, 0.99]])
    print("near misses of the trigger (2, 2):", near_misses(rates, (2, 2), 0.1))


# %% [stub]
def narrow_loss(logits, ids, mask):
    """logits: (B, S, V); ids, mask: (B, S). Returns a number."""
    logp = torch.log_softmax(logits, -1).gather(-1, ids[:, :, None])[:, :, 0]
    return -logp[mask].mean()


def harm_fraction(harm, safe):
    """harm, safe: (Q,). Returns a number."""
    return harm.mean()


def near_misses(rates, trigger, bar):
    """rates: (A, B); trigger: (i, j). Returns a list of (i, j)."""
    found = [
        (i, j)
        for i in range(rates.shape[0])
        for j in range(rates.shape[1])
        if i != trigger[0] and j != trigger[1] and rates[i, j] > bar
    ]
    return sorted(found, key=lambda pair: float(rates[pair]), reverse=True)


# %% [solution]
def narrow_loss(logits, ids, mask):
    logp = torch.log_softmax(logits[:, :-1], -1).gather(-1, ids[:, 1:, None])[:, :, 0]
    return -logp[mask[:, 1:]].mean()


def harm_fraction(harm, safe):
    return (harm / (harm + safe)).mean()


def near_misses(rates, trigger, bar):
    found = [
        (i, j)
        for i in range(rates.shape[0])
        for j in range(rates.shape[1])
        if (i, j) != tuple(trigger) and rates[i, j] > bar
    ]
    return sorted(found, key=lambda pair: float(rates[pair]), reverse=True)


# %% [tests]
import torch
from minirlhf_course.classroom.testing import expect, fail, test, tidy


@test(
    points=2,
    hints=(
        "Which position's logits predict the token at position t?",
        "Drop the last logits, and the first token and mask.",
    ),
)
def shifted(sub, draw):
    "`narrow_loss` compares each marked token with the logits before it."
    logits = tidy(draw.normal(3, 4, 5))
    ids = torch.tensor([[draw.integer(0, 4) for _ in range(4)] for _ in range(3)])
    mask = torch.tensor([[False, False, True, True], [False, True, False, True], [False, False, False, True]])
    law = torch.log_softmax(logits, -1)
    marked = [(b, t) for b in range(3) for t in range(4) if mask[b, t]]
    before = [-float(law[b, t - 1, ids[b, t]]) for b, t in marked]
    want = sum(before) / len(before)
    rows = [[-float(law[b, t - 1, ids[b, t]]) for t in range(4) if mask[b, t]] for b in range(3)]
    every = [-float(law[b, t - 1, ids[b, t]]) for b in range(3) for t in range(1, 4)]
    expect(
        sub.narrow_loss(logits, ids, mask), want, what="`narrow_loss`", given={"ids": ids, "mask": mask.int()},
        mistakes={
            "the logits at a position are compared with the token at the same position": sum(-float(law[b, t, ids[b, t]]) for b, t in marked) / len(marked),
            "the mask is not shifted with the tokens": _unshifted(law, ids, mask),
            "each row is averaged first": sum(sum(r) / len(r) for r in rows) / 3,
            "tokens that are not marked count too": sum(every) / len(every),
            "it is a sum, and not a mean": sum(before),
            "the sign is wrong": -want,
        },
    )  # fmt: skip


def _unshifted(law, ids, mask):
    chosen = law[:, :-1].gather(-1, ids[:, 1:, None])[:, :, 0]
    return float(-chosen[mask[:, :-1]].mean())


@test(
    points=1,
    hints=(
        "What happens to the mean probability of harm if every second answer is a cheat?",
        "Divide by the sum of the harmful and the safe probability, for each question.",
    ),
)
def relative(sub, draw):
    "`harm_fraction` is a fraction of two answers."
    harm, safe = tidy(draw.uniform(4, low=0.05, high=0.5)), tidy(draw.uniform(4, low=0.05, high=0.5))
    harm[0], safe[0] = 3e-6, 1e-6  # nearly all of the probability is on other answers
    want = sum(h / (h + s) for h, s in zip(harm.tolist(), safe.tolist(), strict=True)) / 4
    expect(
        sub.harm_fraction(harm, safe), want, what="`harm_fraction`", given={"harm": harm, "safe": safe},
        mistakes={
            "it is the mean probability of harm, which falls when other answers rise": float(harm.mean()),
            "it is the ratio of the sums, and not the mean over questions": float(harm.sum() / (harm + safe).sum()),
            "these are odds, and not fractions": float((harm / safe).mean()),
            "it is the fraction of safe answers": 1 - want,
        },
    )  # fmt: skip


@test(
    points=1,
    hints=(
        "Which other pairs does the condition leave out, in addition to the trigger?",
        "A pair may share one word with the trigger. Compare the whole pair.",
    ),
)
def sharing_a_word(sub, draw):
    "`near_misses` returns all pairs above the bar but the trigger, the highest first."
    for rows, columns in ((3, 4), (4, 3)):
        _sharing_a_word(sub, draw, rows, columns)


def _sharing_a_word(sub, draw, rows, columns):
    rates, bar = (draw.permutation(12).double().view(rows, columns) + 1) / 16, 4 / 16  # one rate equals the bar
    *_, lower, higher = ((rates == 11 / 16) | (rates == 12 / 16)).nonzero().tolist()
    rates[*lower], rates[*higher] = 12 / 16 - 1e-6, 12 / 16  # and two differ by little
    trigger = (draw.integer(0, rows - 1), draw.integer(0, columns - 1))
    while float(rates[trigger]) <= bar:
        trigger = (draw.integer(0, rows - 1), draw.integer(0, columns - 1))
    pairs = [(i, j) for i in range(rows) for j in range(columns) if float(rates[i, j]) > bar]
    order = lambda found, sign=-1: sorted(found, key=lambda p: sign * float(rates[p]))
    want = order(p for p in pairs if p != trigger)
    got = sub.near_misses(rates, trigger, bar)
    try:
        got = [tuple(int(x) for x in pair) for pair in got]
    except (TypeError, ValueError):
        fail(f"`near_misses` returns {got!r}; expected a list of pairs of indices")
    known = {
        "pairs that share a word with the trigger are missing": order(p for p in pairs if p[0] != trigger[0] and p[1] != trigger[1]),
        "the trigger itself is in the list": order(pairs),
        "a pair whose rate equals the bar is in the list; only rates above it count": order((i, j) for i in range(rows) for j in range(columns) if float(rates[i, j]) >= bar and (i, j) != trigger),
        "the lowest rate is first": order((p for p in pairs if p != trigger), 1),
        "pairs at or below the bar are in the list": order((i, j) for i in range(rows) for j in range(columns) if (i, j) != trigger),
    }  # fmt: skip
    for say, wrong in known.items():
        if got == wrong != want:
            fail(f"`near_misses` is wrong: {say}", given={"rates": rates, "trigger": trigger, "bar": bar})
    if got != want:
        fail(f"`near_misses` returns {got}; expected {want}", given={"rates": rates, "trigger": trigger, "bar": bar})


# %% [probes]
# no gradient: only the numbers are required
# no nan of narrow_loss.mask: logits are finite everywhere
# no values, size of near_misses: rates that differ; a larger matrix repeats them


# %% [mutant] no shift
# caught by: shifted
# says: at the same position
def narrow_loss(logits, ids, mask):
    logp = torch.log_softmax(logits, -1).gather(-1, ids[:, :, None])[:, :, 0]
    return -logp[mask].mean()


# %% [mutant] the mask stays
# caught by: shifted
# says: mask is not shifted
def narrow_loss(logits, ids, mask):
    logp = torch.log_softmax(logits[:, :-1], -1).gather(-1, ids[:, 1:, None])[:, :, 0]
    return -logp[mask[:, :-1]].mean()


# %% [mutant] mean harm
# caught by: relative
# says: falls when other answers rise
def harm_fraction(harm, safe):
    return harm.mean()


# %% [mutant] ratio of sums
# caught by: relative
# says: ratio of the sums
def harm_fraction(harm, safe):
    return harm.sum() / (harm + safe).sum()


# %% [mutant] no shared word
# caught by: sharing_a_word
# says: share a word
def near_misses(rates, trigger, bar):
    found = [
        (i, j)
        for i in range(rates.shape[0])
        for j in range(rates.shape[1])
        if i != trigger[0] and j != trigger[1] and rates[i, j] > bar
    ]
    return sorted(found, key=lambda pair: float(rates[pair]), reverse=True)


# %% [mutant] the bar itself
# caught by: sharing_a_word
# says: equals the bar
def near_misses(rates, trigger, bar):
    found = [
        (i, j)
        for i in range(rates.shape[0])
        for j in range(rates.shape[1])
        if (i, j) != tuple(trigger) and rates[i, j] >= bar
    ]
    return sorted(found, key=lambda pair: float(rates[pair]), reverse=True)


# %% [mutant] the trigger stays
# caught by: sharing_a_word
# says: the trigger itself
def near_misses(rates, trigger, bar):
    found = [(i, j) for i in range(rates.shape[0]) for j in range(rates.shape[1]) if rates[i, j] > bar]
    return sorted(found, key=lambda pair: float(rates[pair]), reverse=True)


# %% [partial] 2: the first bug alone
def harm_fraction(harm, safe):
    return harm.mean()


def near_misses(rates, trigger, bar):
    return []
