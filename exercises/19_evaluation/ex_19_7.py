# ---
# title: Trained to say "I do not know"
# kind: implement
# minutes: 30
# seconds: 30
# ---

# %% [statement]
# A model is asked about 24 facts. Each question has four possible answers, 0 to 3, and the model may say 4, "I do not know". Of some facts one answer is nearly always right, of others hardly one more than the others; which, the model has to find out. Every time that a fact is asked about, the right
# answer is drawn anew with that fact's chances.
#
# 1. (five minutes) `grades(replies, truths, penalty)`: a right answer earns 1, a wrong one costs `penalty`, "I do not know" earns nothing. `replies` and `truths` are `(N,)` integers. Returns `(N,)`, floating-point numbers.
# 2. `update(logits, facts, replies, earned, lr)`: one step of training from `N` questions. `logits` `(24, 5)` has a row for each fact, `facts` `(N,)` says which was asked about, `replies` `(N,)` what the model said, drawn from the softmax of that row, and `earned` `(N,)`
#    the grades by your function. Returns new logits `(24, 5)`. A step of policy gradient on the mean grade, without a baseline, is enough.
#
# How it is judged: 30 steps of 512 questions at `lr = 40`, with a penalty of 3, on four seeds, each beside our run. The curve is the exact expected grade of a reply. Its mean may lie 0.05 below ours in the end, with the whole of its 95 % interval. Whoever always gives the
# best answer ends below 0 here, and whoever never answers at 0. A check shows both curves.

# %% [given]
import torch


# %% [stub]
def grades(replies, truths, penalty):
    """replies, truths: (N,) integers; 4 is "I do not know". Returns (N,)."""
    raise NotImplementedError


def update(logits, facts, replies, earned, lr):
    """logits: (24, 5). facts, replies: (N,) integers. earned: (N,). Returns new logits, (24, 5)."""
    raise NotImplementedError


# %% [solution]
def grades(replies, truths, penalty):
    answered = replies != 4
    return torch.where(replies == truths, 1.0, -float(penalty)) * answered


def update(logits, facts, replies, earned, lr):
    push = torch.nn.functional.one_hot(replies, 5) - logits.softmax(-1)[facts]  # (N, 5): ∇ log π(reply | fact)
    return logits + lr * torch.zeros_like(logits).index_add(0, facts, push * earned[:, None]) / len(facts)


# %% [tests]
import torch

from minirlhf.classroom.testing import expect, test
from minirlhf.classroom.training import trains, weights_of

FACTS, PENALTY, STEPS = 24, 3.0, 30


@test(
    points=1,
    hints=(
        "Write down what each of the three kinds of replies earns.",
        "`torch.where(replies == truths, 1, -penalty)`, and 0 where the reply is 4.",
    ),
)
def priced(sub, draw):
    "`grades` gives 1, −penalty or 0."
    replies, truths = torch.arange(5).repeat(4), torch.arange(4).repeat_interleave(5)
    order = draw.permutation(20)
    replies, truths, penalty = replies[order], truths[order], [0.5, 1.5, 3.0][draw.integer(0, 2)]
    pairs = list(zip(replies.tolist(), truths.tolist(), strict=True))

    def scored(right, wrong, silent):
        return torch.tensor([silent if r == 4 else right if r == t else wrong for r, t in pairs], dtype=torch.float64)

    got = sub.grades(replies, truths, penalty)
    expect(
        got.double() if isinstance(got, torch.Tensor) else got,
        scored(1.0, -penalty, 0.0),
        what="the grades",
        given={"replies": replies, "truths": truths, "penalty": penalty},
        mistakes={
            '"I do not know" is graded as a wrong answer': scored(1.0, -penalty, -penalty),
            "a wrong answer costs nothing": scored(1.0, 0.0, 0.0),
            "the penalty is paid out": scored(1.0, penalty, 0.0),
            '"I do not know" is graded as a right answer': scored(1.0, -penalty, 1.0),
        },
    )


def world(draw):
    """The chances of the four answers to each fact: a third is well known, a third half, a third not at all."""
    best = torch.tensor([0.94, 0.55, 0.28], dtype=torch.float64).repeat(FACTS // 3)
    chances = ((1 - best) / 3)[:, None].repeat(1, 4)
    chances[torch.arange(FACTS), (4 * draw.uniform(FACTS)).long()] = best
    return chances[draw.permutation(FACTS)]


def worth(logits, chances):
    """The expected grade of a reply."""
    answered = logits.double().softmax(-1)[:, :4]
    return float((answered * (chances - PENALTY * (1 - chances))).sum(-1).mean())


@trains(
    points=4,
    hints=(
        "Look at your curve: where does it end? Which replies does your step make likelier, and which less likely?",
        "The gradient of the mean grade: the mean of earned · ∇ log π(reply | fact), with the log-probability taken from the fact's own row, and a step *up*. Wrong answers must count, with their negative grades.",
    ),
    seeds=4,
    bar=0.05,
    what="the expected grade",
)
def learns_to_abstain(sub, draw):
    "In 30 steps the model answers what it knows and nothing else: four runs, each beside ours."
    chances, logits = world(draw), torch.zeros(FACTS, 5, dtype=torch.float64)
    curve, rng = [worth(logits, chances)], torch.Generator().manual_seed(draw.integer(0, 2**28))
    for number in range(1, STEPS + 1):
        facts = torch.randint(FACTS, (512,), generator=rng)
        replies = torch.multinomial(logits.softmax(-1)[facts], 1, generator=rng)[:, 0]
        truths = torch.multinomial(chances[facts], 1, generator=rng)[:, 0]
        earned = sub.grades(replies, truths, PENALTY)
        logits = weights_of(sub.update(logits, facts, replies, earned, 40.0), logits)
        if number % 5 == 0:
            curve.append(worth(logits, chances))
    return curve


# %% [probes]
# no inputs, integers, keywords, size, values, float32, gradient of update: any update that learns is right
# no values of grades: a reply that is varied is another answer


# %% [mutant] silence is wrong
# caught by: priced
# says: graded as a wrong answer
def grades(replies, truths, penalty):
    return torch.where(replies == truths, 1.0, -float(penalty))


# %% [mutant] mistakes are free
# caught by: priced
# says: costs nothing
def grades(replies, truths, penalty):
    return (replies == truths).double()


# %% [mutant] only successes teach
# caught by: learns_to_abstain
# says: below ours
def update(logits, facts, replies, earned, lr):
    push = torch.nn.functional.one_hot(replies, 5) - logits.softmax(-1)[facts]
    return logits + lr * torch.zeros_like(logits).index_add(0, facts, push * earned.clamp(min=0)[:, None]) / len(facts)


# %% [mutant] downwards
# caught by: learns_to_abstain
# says: below ours
def update(logits, facts, replies, earned, lr):
    push = torch.nn.functional.one_hot(replies, 5) - logits.softmax(-1)[facts]
    return logits - lr * torch.zeros_like(logits).index_add(0, facts, push * earned[:, None]) / len(facts)


# %% [mutant] every fact moves alike
# caught by: learns_to_abstain
# says: below ours
def update(logits, facts, replies, earned, lr):
    push = torch.nn.functional.one_hot(replies, 5) - logits.softmax(-1)[facts]
    return logits + lr * (push * earned[:, None]).mean(0) / 24


# %% [mutant] always silent
# caught by: learns_to_abstain
# says: below ours
def update(logits, facts, replies, earned, lr):
    new = logits.clone()
    new[:, 4] += lr
    return new


# %% [partial] 1: the grades
def update(logits, facts, replies, earned, lr):
    raise NotImplementedError
