# ---
# title: Bug hunt: a vote that gets worse
# kind: bughunt
# minutes: 25
# ---

# %% [statement]
# A model answers questions with one of `V` answers, numbered 0 to V−1; a truncated completion has no answer and counts as −1. `show` prints the accuracy of the vote of the first $n$ completions. The curve is impossible: **the vote of one completion is right more often than one completion is**, as the first line
# prints it; **more completions make it worse**; and with the answers renumbered, **the same completions give another curve**.
#
# **There are three bugs, one in each function. Find and fix them.**
#
# * `tally(answers, V)`: the number of votes of each answer, for each question. A completion without an answer does not vote.
# * `winner(votes, answers)`: the answer with the most votes (votes may be weighted: `votes` decides, not how often an answer was given). In a tie it is the answer that was given first. An answer that no completion gave has no votes. If no completion has an answer it is −1.
# * `accuracy(answers, right, V, n)`: the fraction of questions for which the vote of the first `n` completions is the right answer. A question without an answer is not solved.

# %% [given]
import torch


def show(answers, right, V):
    """answers: (P, N). right: (P,)."""
    print(f"one completion is right {float((answers == right[:, None]).double().mean()):.3f} of the time")
    for n in (1, 2, 4, 8, 16):
        print(f"vote of {n:2}: {accuracy(answers, right, V, n):.3f}")


def replies(V, seed):
    """Completions of 400 questions: about a third right, nearly half truncated; and the right answers."""
    rng = torch.Generator().manual_seed(seed)
    right = torch.randint(V - 1, (400,), generator=rng)  # the last answer is never right
    luck = torch.rand(400, 16, generator=rng)
    wrong = torch.randint(V, (400, 16), generator=rng)
    return torch.where(luck < 0.3, right[:, None], torch.where(luck < 0.75, -1, wrong)), right


# %% [stub]
def tally(answers, V):
    """answers: (P, N) integers from -1 to V-1. Returns (P, V) integers."""
    votes = torch.zeros(len(answers), V, dtype=torch.long)
    for n in range(answers.shape[1]):
        votes[torch.arange(len(answers)), answers[:, n]] += 1
    return votes


def winner(votes, answers):
    """votes: (P, V). answers: (P, N). Returns (P,) integers."""
    best = votes.argmax(-1)
    return torch.where(votes.amax(-1) > 0, best, -1)


def accuracy(answers, right, V, n):
    """answers: (P, N). right: (P,). Returns a number."""
    some = answers[:, :n]
    found = winner(tally(some, V), some)
    answered = (some >= 0).any(-1)
    return float((found == right)[answered].double().mean())


# %% [solution]
def tally(answers, V):
    return (answers[..., None] == torch.arange(V)).sum(1)


def winner(votes, answers):
    best = torch.full((len(votes),), -1)
    most = votes.amax(-1)
    for n in reversed(range(answers.shape[1])):  # so the earliest of the tied answers is kept
        said = answers[:, n]
        leads = (said >= 0) & (votes.gather(1, said.clamp(min=0)[:, None])[:, 0] == most)
        best = torch.where(leads, said, best)
    return best


def accuracy(answers, right, V, n):
    some = answers[:, :n]
    return float((winner(tally(some, V), some) == right).double().mean())


# %% [tests]
import torch
from minirlhf_course.classroom.testing import expect, fail, test


def drawn(draw, questions, replies, V):
    """Replies (P, N), some of them cut off, and in row 0 all; the last answer is among the cut off rows' neighbours."""
    rows = [[draw.integer(-1, V - 1) for _ in range(replies)] for _ in range(questions)]
    rows[0] = [-1] * replies
    rows[1] = [-1] * (replies - 1) + [0]
    return torch.tensor(rows)


def counted(rows, V):
    return torch.tensor([[row.count(a) for a in range(V)] for row in rows.tolist()])


def chosen(rows):
    """By the definition, reply by reply: the most votes, and the earliest of these."""
    out = []
    for row in rows.tolist():
        given = [a for a in row if a >= 0]
        out.append(max(given, key=lambda a: (given.count(a), -given.index(a))) if given else -1)
    return torch.tensor(out)


@test(
    points=2,
    hints=(
        "Give `tally` one question with the answers −1, −1, 0. Which answers have votes?",
        "An index of −1 is the *last* position: every truncated completion votes for the last answer.",
    ),
)
def silent(sub, draw):
    "`tally` counts only completions with an answer."
    for questions, replies, V in ((4, 5, 3), (6, 3, 5), (2, 9, 2)):
        counts_all(sub, drawn(draw, questions, replies, V), V)


def counts_all(sub, answers, V):
    """Compare the votes of these answers."""
    want = counted(answers, V)
    last = want.clone()
    last[:, -1] += (answers == -1).sum(-1)
    expect(
        sub.tally(answers, V).double(), want.double(), what="`tally`", given={"answers": answers, "V": V},
        mistakes={"completions without an answer have voted for the last answer": last.double(), "each answer has at most one vote here; count all its votes": (want > 0).double()},
    )  # fmt: skip


@test(
    points=2,
    hints=(
        "Two answers have two votes each. Which one does `argmax` take?",
        "The one with the smaller number, not the one that was given first. Go through the completions in order, and take the first whose answer has the most votes.",
    ),
)
def ties(sub, draw):
    "`winner` breaks ties by the first completion."
    for V in (4, 6):
        _ties(sub, draw, V)


def _ties(sub, draw, V):
    some = draw.permutation(V).tolist()
    low, high, third = sorted(some[:3])
    answers = torch.tensor(
        [
            [high, low, low, high, -1],
            [low, high, high, low, -1],
            [-1, high, -1, low, -1],
            [third, low, low, high, -1],
            [-1] * 5,
        ]
    )
    votes, want = counted(answers, V), chosen(answers)
    smallest = torch.where(votes.amax(-1) > 0, votes.argmax(-1), -1)
    flipped = torch.where(votes.amax(-1) > 0, V - 1 - votes.flip(-1).argmax(-1), -1)
    expect(
        sub.winner(votes, answers).double(), want.double(), what="`winner`", given={"votes": votes, "answers": answers},
        mistakes={
            "in a tie it takes the answer with the smallest number": smallest.double(),
            "in a tie it takes the answer with the largest number": flipped.double(),
            "without any answer there is no winner: −1 was expected": torch.where(want < 0, 0, want).double(),
            "it takes the first answer, however many votes it has": torch.tensor([next((a for a in row if a >= 0), -1) for row in answers.tolist()]).double(),
        },
    )  # fmt: skip
    answers = torch.tensor(
        [[low, low, high], [high, third, third], [-1, third, -1], [third, high, -1], [low, third, high]]
    )
    votes = torch.zeros(5, V)  # in two rows every answer weighs nothing, and there are answers all the same
    votes[0, [low, high]] = torch.tensor([0.5, 0.9])
    votes[1, [high, third]] = torch.tensor([1.2, 0.4])
    votes[4, [low, high]] = torch.tensor([0.8999, 0.9])
    expect(
        sub.winner(votes, answers).double(), torch.tensor([high, high, third, third, high]).double(), what="`winner`", given={"votes": votes, "answers": answers},
        mistakes={
            "it counts the answers again, but `votes` has weights": torch.tensor([low, third, third, third, low]).double(),
            "weights are rounded to whole numbers, but 0.9 is more than 0.5": torch.tensor([low, high, third, third, low]).double(),
            "an answer with weight 0 is ignored; it was given and can win": torch.tensor([high, high, -1, -1, high]).double(),
        },
    )  # fmt: skip
    answers = torch.tensor([[third, high, high, -1], [high, low, low, low]])
    votes = torch.zeros(2, V)
    votes[0, [third, high]] = votes[1, [high, low]] = 0.75
    expect(
        sub.aside.winner(votes, answers).double(), torch.tensor([third, high]).double(), what="`winner` of equal weights", given={"votes": votes, "answers": answers},
        mistakes={"with equal weights it takes the answer that was given more often": torch.tensor([high, low]).double()},
    )  # fmt: skip


@test(
    points=2,
    hints=(
        "Over how many questions is the mean, with one completion for each?",
        "Over all of them: a question without an answer is not solved.",
    ),
)
def all_questions(sub, draw):
    "`accuracy` is a fraction of all questions."
    V = 4
    answers = torch.tensor(
        [
            [-1, -1, -1, -1, -1],
            [-1, -1, -1, 2, 2],
            [-1, -1, -1, 2, 0],
            [1, 0, 0, 1, 1],
            [1, 0, 0, 1, 1],
            [2, 1, 1, 2, 2],
            [2, 3, -1, 2, 3],
            [3, -1, -1, 0, 0],
            [-1, 3, 1, 3, 1],
            [draw.integer(-1, V - 1) for _ in range(5)],
        ]
    )
    right = torch.tensor([1, 1, 1, 0, 0, 2, 3, 3, 3, draw.integer(0, V - 1)])
    for n in (3, 1, 5):
        solves(sub, answers, right, V, n)
    few = torch.tensor([[4, 5, 5, 4], [5, -1, 4, 4]])
    solves(sub, few, torch.tensor([4, 5]), 6, 2)


def solves(sub, answers, right, V, n):
    """Compare the accuracy of the vote of the first `n` answers."""
    some = answers[:, :n]
    solved = (chosen(some) == right).double()
    kept = solved[(some >= 0).any(-1)].mean()
    whole = (chosen(answers) == right).double().mean()
    given_first = torch.tensor([next((a for a in row if a >= 0), -1) for row in some.tolist()])
    others = {
        "questions without an answer were left out": kept,
        "it votes with all completions, not with the first n": whole,
        "it votes with the last n completions": (chosen(answers[:, -n:]) == right).double().mean(),
        "it takes the first completion, not the majority": (given_first == right).double().mean(),
        "that is the fraction in which one of the n is right, not the vote": (some == right[:, None])
        .any(-1)
        .double()
        .mean(),
        "a question without an answer is counted as solved": (solved + (some < 0).all(-1)).mean(),
    }
    got = sub.accuracy(answers, right, V, n)
    if not isinstance(got, float) and not (isinstance(got, torch.Tensor) and got.numel() == 1):
        fail("the result of `accuracy` is not a number")
    expect(
        got, float(solved.mean()), what="`accuracy`", given={"answers": answers, "right": right, "n": n},
        mistakes={say: float(x) for say, x in others.items() if n == 3 and abs(float(x) - float(solved.mean())) > 1e-9},
    )  # fmt: skip


# %% [edges]
# ties: `votes` decides, not how often an answer was given
# ties: In a tie it is the answer that was given first
# ties: If no completion has an answer it is −1
# silent: A completion without an answer does not vote
# all_questions: A question without an answer is not solved


# %% [probes]
# no integers, values, float32, gradient, keywords: whole numbers in which -1 has a meaning
# no size of winner, accuracy: votes belong to answers


# %% [mutant] truncated completions vote for the last answer
# caught by: silent
# says: for the last answer
def tally(answers, V):
    votes = torch.zeros(len(answers), V, dtype=torch.long)
    for n in range(answers.shape[1]):
        votes[torch.arange(len(answers)), answers[:, n]] += 1
    return votes


# %% [mutant] the smallest number
# caught by: ties
# says: smallest number
def winner(votes, answers):
    return torch.where(votes.amax(-1) > 0, votes.argmax(-1), -1)


# %% [mutant] there is always a winner
# caught by: ties
# says: no winner
def winner(votes, answers):
    best = torch.zeros(len(votes), dtype=torch.long)
    most = votes.amax(-1)
    for n in reversed(range(answers.shape[1])):
        said = answers[:, n]
        leads = (said >= 0) & (votes.gather(1, said.clamp(min=0)[:, None])[:, 0] == most)
        best = torch.where(leads, said, best)
    return best


# %% [mutant] counts anew
# caught by: ties
# says: weights
def winner(votes, answers):
    out = []
    for row in answers.tolist():
        given = [a for a in row if a >= 0]
        out.append(max(given, key=lambda a: (given.count(a), -given.index(a))) if given else -1)
    return torch.tensor(out)


# %% [mutant] the first completion decides
# caught by: all_questions
# says: the first completion
def accuracy(answers, right, V, n):
    first = torch.tensor([next((a for a in row if a >= 0), -1) for row in answers[:, :n].tolist()])
    return float((first == right).double().mean())


# %% [mutant] of those that were answered
# caught by: all_questions
# says: left out
def accuracy(answers, right, V, n):
    some = answers[:, :n]
    answered = (some >= 0).any(-1)
    return float((winner(tally(some, V), some) == right)[answered].double().mean())


# %% [mutant] with all completions
# caught by: all_questions
# says: not with the first n
def accuracy(answers, right, V, n):
    return float((winner(tally(answers, V), answers) == right).double().mean())


# %% [mutant] equal weights, and the more frequent answer
# caught by: ties
# says: more often
def winner(votes, answers):
    best = torch.full((len(votes),), -1)
    for p, row in enumerate(answers.tolist()):
        given = [a for a in row if a >= 0]
        if given:
            best[p] = max(given, key=lambda a: (float(votes[p, a]), given.count(a), -given.index(a)))
    return best


# %% [partial] 4: the mean is still over the answered questions
def accuracy(answers, right, V, n):
    some = answers[:, :n]
    answered = (some >= 0).any(-1)
    return float((winner(tally(some, V), some) == right)[answered].double().mean())
