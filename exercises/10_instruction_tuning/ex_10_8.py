# ---
# title: Twenty demonstrations
# kind: implement
# minutes: 35
# seconds: 30
# ---

# %% [statement]
# Here you turn a base model into one that answers. The model has eight words (0 to 7) and is a table: `logits[s, v]` are the logits of the token `v` after the token `s`. It was trained on a stream that never ends, and it has never seen the
# tokens `USER` (8), `ASSISTANT` (9) and `END` (10).
#
# A demonstration is a list of turns, `("user", ids)` or `("assistant", ids)`. In a row, every turn begins with the token of its speaker. The assistant's turns close with `END`, the user's turns do not. Users and
# assistants continue the same word differently, and the table cannot see who is speaking. A demonstration may end with a turn of the user.
#
# Write `step(logits, demonstrations, lr)`: one step of gradient descent of size `lr` on the instruction-tuning loss of all demonstrations together, the mean of $-\log\pi$ over the tokens that count. It returns the new table.
#
# Grading: 60 steps at `lr = 10` on twenty demonstrations. Then we compare the demonstrators' exact distribution of completions with the model's, by the KL of a whole completion, in nats. We use six seeds, each paired with
# our own run. You pass if the upper end of the 95 % interval of (your mean KL − ours) is below 0.1.

# %% [given]
import torch

WORDS, USER, ASSISTANT, END = 8, 8, 9, 10


# %% [stub]
def step(logits, demonstrations, lr):
    """logits: (11, 11). demonstrations: a list of lists of (speaker, list of ids). Returns (11, 11)."""
    raise NotImplementedError


# %% [solution]
def step(logits, demonstrations, lr):
    pairs = []
    for turns in demonstrations:
        for speaker, words in turns:
            if speaker == "assistant":
                row = [ASSISTANT, *words, END]
                pairs += zip(row[:-1], row[1:], strict=True)
    before, after = torch.tensor(pairs).T
    table = logits.detach().clone().requires_grad_()
    loss = -table.log_softmax(-1)[before, after].mean()
    (slope,) = torch.autograd.grad(loss, table)
    return logits - lr * slope


# %% [tests]
import torch
from minirlhf_course.classroom.testing import expect, fail, test
from minirlhf_course.classroom.training import moved, points_along, steps_by, trains, weights_of

WORDS, USER, ASSISTANT, END = 8, 8, 9, 10


def speaker(draw):
    """What follows each word in somebody's mouth, and how a turn begins: ``(9, 8)``, the first word in the last row."""
    return (2.0 * draw.normal(WORDS + 1, WORDS)).softmax(-1)


def said(draw, habits, stop):
    """One turn; it ends with probability ``stop`` after every word."""
    ids = [pick(draw, habits[WORDS])]
    while float(draw.uniform()) > stop:
        ids.append(pick(draw, habits[ids[-1]]))
    return ids


def pick(draw, probs):
    return int((probs.cumsum(-1) < float(draw.uniform())).sum().clamp_max(len(probs) - 1))


def talks(draw, users, assistants, count):
    return [
        [
            turn
            for _ in range(draw.integer(1, 3))
            for turn in (("user", said(draw, users, 0.2)), ("assistant", said(draw, assistants, 0.25)))
        ]
        for _ in range(count)
    ]


def base(draw, users):
    """Words follow one another as in the users' mouths; the other tokens are all but unknown."""
    table = torch.full((11, 11), -6.0, dtype=torch.float64)
    table[:WORDS, :WORDS] = users[:WORDS].log() + 0.3 * draw.normal(WORDS, WORDS)
    table[WORDS:, :WORDS] = 0.3 * draw.normal(3, WORDS)
    return table


def distance(logits, assistants, stop=0.25):
    """KL of the demonstrators' replies from the model's, over replies of any length."""
    wanted = torch.zeros(WORDS + 1, 11, dtype=torch.float64)  # rows: after each word; at the beginning
    wanted[:, :WORDS] = assistants
    wanted[:WORDS] *= 1 - stop
    wanted[:WORDS, END] = stop
    model = logits[[*range(WORDS), ASSISTANT]].log_softmax(-1)
    each = torch.where(wanted > 0, wanted * (wanted.clamp_min(1e-300).log() - model), 0.0).sum(-1)
    visits = torch.linalg.solve(torch.eye(WORDS) - wanted[:WORDS, :WORDS].T, assistants[WORDS])
    return float(each[WORDS] + visits @ each[:WORDS])


@test(
    points=1,
    hints=(
        "Write one conversation as a row and underline the tokens that count.",
        "The user's words must not change the new table. Only the assistant's words and `END` are predicted, never the token of a speaker.",
    ),
)
def only_replies(sub, draw):
    "Other words of the users change nothing."
    users, assistants = speaker(draw), speaker(draw)
    logits, shown = base(draw, users), talks(draw, users, assistants, 5)
    other = [[(who, [(w + 3) % WORDS for w in ids] if who == "user" else ids) for who, ids in talk] for talk in shown]
    new = weights_of(sub.step(logits, shown, 3.0), logits)
    again = weights_of(sub.step(logits, other, 3.0), logits)
    if not torch.allclose(again.log_softmax(-1), new.log_softmax(-1), atol=1e-5):
        fail(
            "with other words of the users the step is different: the loss counts the users' words, or the tokens after them"
        )
    expect(
        sub.step(logits, shown, 3.0)[USER].log_softmax(-1),
        logits[USER].log_softmax(-1),
        what="what follows `USER` after a step",
        reveal=False,
    )


@test(
    points=1,
    hints=(
        "How often does each token count? Count the pairs of a token and its successor on paper, for two short turns.",
        "In one step the logits of END grow where a completion ends, in every turn of the assistant. The mean is over all tokens that count, in all conversations.",
    ),
)
def one_step(sub, draw):
    "One step on two short conversations, counted on paper."
    logits = 0.5 * draw.normal(11, 11)
    a, b, c = draw.permutation(WORDS)[:3].tolist()
    shown = [
        [("user", [c]), ("assistant", [a, b]), ("user", [b]), ("assistant", [a])],
        [("user", [a, c]), ("assistant", [b]), ("user", [c, b])],
    ]
    counted = [(ASSISTANT, a), (a, b), (b, END), (ASSISTANT, a), (a, END), (ASSISTANT, b), (b, END)]

    def moved(pairs, *, size=None):
        new = logits.clone()
        for before, after in pairs:
            pull = -logits[before].softmax(-1)
            pull[after] += 1
            new[before] += 2.0 / (size or len(pairs)) * pull
        return new

    turns = [[counted[0], counted[1], counted[2]], [counted[3], counted[4]], [counted[5], counted[6]]]
    by_talk = logits.clone()
    for talk in ([*turns[0], *turns[1]], turns[2]):
        by_talk += (moved(talk) - logits) / 2
    by_reply = logits + sum(moved(turn) - logits for turn in turns) / 3
    expect(
        sub.step(logits, shown, 2.0),
        moved(counted),
        what="the table after one step",
        given={"demonstrations": shown, "lr": 2.0},
        mistakes={
            "the END of a turn is left out": moved([pair for pair in counted if pair[1] != END]),
            "only the last turn of the assistant counts": moved([*turns[1], *turns[2]]),
            "only the last turn counts, and it may be the user's": moved([*turns[1], (ASSISTANT, c), (c, b), (b, END)]),
            "it is the sum, not the mean": moved(counted, size=1),
            "it is the mean of the conversations' means, not the mean over all tokens": by_talk,
            "it is the mean of the turns' means, not the mean over all tokens": by_reply,
            "the step goes uphill": 2 * logits - moved(counted),
        },
    )


def any_size(sub, draw):
    """One step at any `lr`, on demonstrations like those of the training, some of which end with the user."""
    users, assistants = speaker(draw), speaker(draw)
    logits, shown = base(draw, users), talks(draw, users, assistants, 5)
    shown = [talk + [("user", said(draw, users, 0.2))] * (i % 2) for i, talk in enumerate(shown)]
    lr = float(draw.uniform(1, low=1, high=20))
    step = lambda rate: sub.step(logits, shown, rate)
    for rate in (lr, 10.0, 100.0):
        steps_by(step, logits, rate)
    rows = [[ASSISTANT, *ids, END] for talk in shown for who, ids in talk if who == "assistant"]
    pairs = torch.tensor([pair for row in rows for pair in zip(row[:-1], row[1:], strict=True)])
    leaf = logits.clone().requires_grad_()
    [slope] = torch.autograd.grad(leaf.log_softmax(-1)[pairs[:, 0], pairs[:, 1]].mean(), leaf)
    points_along(moved(step(lr), logits), lr * slope, times=(0.99, 1.01))


@trains(
    points=2,
    hints=(
        "Does every step start from the given table? And is the loss the mean over the tokens that count, not over all tokens?",
        "−mean of log π(next | token) over the assistant's tokens and their END; `logits - lr * gradient`.",
    ),
    seeds=6,
    bar=0.1,
    what="minus the KL of a completion",
    also=(any_size,),
    fixed=("step",),
)
def answers(sub, draw):
    "After 60 steps the model answers as the demonstrators do (six runs, each paired with ours)."
    users, assistants = speaker(draw), speaker(draw)
    logits, shown = base(draw, users), talks(draw, users, assistants, 20)
    curve = [-distance(logits, assistants)]
    for number in range(1, 61):
        logits = weights_of(sub.step(logits, shown, 10.0), logits)
        if number % 10 == 0:
            curve.append(-distance(logits, assistants))
    return curve


# %% [edges]
# one_step: A demonstration may end with a turn of the user


# %% [probes]
# no keywords, size, values, float32, gradient of step: a step of descent is asked for


# %% [mutant] all tokens of the row count
# caught by: only_replies
# says: other words of the users
def step(logits, demonstrations, lr):
    pairs = []
    for turns in demonstrations:
        row = []
        for speaker, words in turns:
            row += [USER if speaker == "user" else ASSISTANT, *words, *[END] * (speaker == "assistant")]
        pairs += zip(row[:-1], row[1:], strict=True)
    before, after = torch.tensor(pairs).T
    table = logits.detach().clone().requires_grad_()
    (slope,) = torch.autograd.grad(-table.log_softmax(-1)[before, after].mean(), table)
    return logits - lr * slope


# %% [mutant] no end
# caught by: one_step
# says: END of a turn is left out
def step(logits, demonstrations, lr):
    pairs = []
    for turns in demonstrations:
        for speaker, words in turns:
            if speaker == "assistant":
                pairs += zip([ASSISTANT, *words[:-1]], words, strict=True)
    before, after = torch.tensor(pairs).T
    table = logits.detach().clone().requires_grad_()
    (slope,) = torch.autograd.grad(-table.log_softmax(-1)[before, after].mean(), table)
    return logits - lr * slope


# %% [mutant] the last turn only
# caught by: one_step
# says: only the last turn
def step(logits, demonstrations, lr):
    pairs = []
    for turns in demonstrations:
        row = [ASSISTANT, *turns[-1][1], END]
        pairs += zip(row[:-1], row[1:], strict=True)
    before, after = torch.tensor(pairs).T
    table = logits.detach().clone().requires_grad_()
    (slope,) = torch.autograd.grad(-table.log_softmax(-1)[before, after].mean(), table)
    return logits - lr * slope


# %% [mutant] the sum
# caught by: one_step
# says: the sum, not the mean
def step(logits, demonstrations, lr):
    pairs = []
    for turns in demonstrations:
        for speaker, words in turns:
            if speaker == "assistant":
                row = [ASSISTANT, *words, END]
                pairs += zip(row[:-1], row[1:], strict=True)
    before, after = torch.tensor(pairs).T
    table = logits.detach().clone().requires_grad_()
    (slope,) = torch.autograd.grad(-table.log_softmax(-1)[before, after].sum(), table)
    return logits - lr * slope


# %% [mutant] always from the first table
# caught by: answers
# says: below ours
first = []


def step(logits, demonstrations, lr):
    pairs = []
    for turns in demonstrations:
        for speaker, words in turns:
            if speaker == "assistant":
                row = [ASSISTANT, *words, END]
                pairs += zip(row[:-1], row[1:], strict=True)
    before, after = torch.tensor(pairs).T
    if len(demonstrations) > 10:
        first.append(logits)
        logits = first[0]
    table = logits.detach().clone().requires_grad_()
    (slope,) = torch.autograd.grad(-table.log_softmax(-1)[before, after].mean(), table)
    return logits - lr * slope


# %% [partial] 1: only the first turn of the assistant
def step(logits, demonstrations, lr):
    pairs = []
    for turns in demonstrations:
        row = [ASSISTANT, *turns[1][1], END]
        pairs += zip(row[:-1], row[1:], strict=True)
    before, after = torch.tensor(pairs).T
    table = logits.detach().clone().requires_grad_()
    (slope,) = torch.autograd.grad(-table.log_softmax(-1)[before, after].mean(), table)
    return logits - lr * slope
