# ---
# title: RL for abstention
# kind: implement
# minutes: 30
# seconds: 30
# ---

# %% [statement]
# A model is asked about 24 facts. Each question has four possible answers, 0 to 3, and the model may say 4, "I do not know". There are three equal groups of facts. In the first group one answer is nearly always right, in the second one answer is right a little more often than not, and in the third no answer is right much more often than the others. The model must learn which. At every question the right
# answer is sampled anew with that fact's probabilities.
#
# 1. (five minutes) `grades(replies, truths, penalty)`: the grade is 1 for a right answer, −`penalty` for a wrong one and 0 for "I do not know". `replies` and `truths` are `(N,)` integers. Returns `(N,)`, floating-point numbers.
# 2. `update(logits, facts, replies, earned, lr)`: one step of training from `N` questions. `logits` `(24, 5)` has a row for each fact, `facts` `(N,)` says which was asked about, `replies` `(N,)` are the model's answers, sampled from the softmax of that row, and `earned` `(N,)`
#    the grades by your function. Returns new logits `(24, 5)`: to the old ones add `lr` times the policy gradient of the mean grade, that is the gradient of the mean of $e_i \log\pi(r_i \mid f_i)$ over the `N` questions, where answer $r_i$ to fact $f_i$
#    has the grade $e_i$. A baseline is allowed and not required; do not divide the grades by anything.
#
# How it is judged: 30 steps of 512 questions at `lr = 40`, with a penalty of 3, on four seeds, each paired with our run. The curve is the exact expected grade of an answer. You pass if the lower end of the 95 % interval of (your grade − ours) at the end is at least −0.05. A model that always gives the
# best answer ends below 0 here, and a model that never answers ends at 0. A check shows both curves.
# One step is also compared with the exact gradient, on a table of unequal probabilities in which the frequency of each answer equals its probability, so a baseline makes no difference. The tolerance is 5 %.

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
from minirlhf_course.classroom.testing import expect, fail, test
from minirlhf_course.classroom.training import moved, points_along, steps_by, trains, weights_of

FACTS, PENALTY, STEPS = 24, 3.0, 30


@test(
    points=1,
    hints=(
        "Write down the grade of each of the three kinds of answers.",
        "`torch.where(replies == truths, 1, -penalty)`, and 0 where the answer is 4.",
    ),
)
def priced(sub, draw):
    "`grades` gives 1, −penalty or 0."
    replies, truths = torch.arange(5).repeat(4), torch.arange(4).repeat_interleave(5)
    order = draw.permutation(20)
    replies, truths = replies[order], truths[order]
    pairs = list(zip(replies.tolist(), truths.tolist(), strict=True))

    def scored(right, wrong, silent):
        return torch.tensor([silent if r == 4 else right if r == t else wrong for r, t in pairs], dtype=torch.float64)

    for penalty in (0.5, 1.5, 3.0):
        got = sub.grades(replies, truths, penalty)
        expect(
            got.double() if isinstance(got, torch.Tensor) else got,
            scored(1.0, -penalty, 0.0),
            what="the grades",
            given={"replies": replies, "truths": truths, "penalty": penalty},
            mistakes={
                '"I do not know" is graded as a wrong answer': scored(1.0, -penalty, -penalty),
                "a wrong answer costs nothing": scored(1.0, 0.0, 0.0),
                "the penalty has the wrong sign": scored(1.0, penalty, 0.0),
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


def unequal(draw):
    """A table, and what 64 questions on each of its facts bring: every reply as often as its probability says.

    Returns the logits, the chances and the mean grades of the replies to each fact, ``(24, 5)`` each, and facts, replies and grades of the questions.
    """
    logits, chances, mean = (torch.zeros(FACTS, 5, dtype=torch.float64) for _ in range(3))
    asked = []
    for fact in range(FACTS):
        often = torch.tensor([32, 16, 8, 4, 4])[draw.permutation(5)]
        logits[fact], chances[fact] = (often / 64).double().log() + float(draw.uniform(low=-1, high=1)), often / 64
        best, quarters = draw.integer(0, 3), draw.integer(1, 4)  # how many quarters of the best answer's are right
        for reply, count in enumerate(often.tolist()):
            right = count * quarters // 4 if reply == best else 0
            grades = [0.0] * count if reply == 4 else [1.0] * right + [-PENALTY] * (count - right)
            mean[fact, reply] = sum(grades) / count
            asked += [(fact, reply, grade) for grade in grades]
    facts, replies, earned = zip(*(asked[i] for i in draw.permutation(len(asked)).tolist()), strict=True)
    return (
        logits,
        chances,
        mean,
        torch.tensor(facts),
        torch.tensor(replies),
        torch.tensor(earned, dtype=torch.float64),
    )


def any_size(sub, draw):
    """One step at any `lr` is one step, and as long as it should be; test `one_step` holds its direction."""
    logits, chances, mean, facts, replies, earned = unequal(draw)
    lr = float(draw.uniform(1, low=1, high=60))
    steps_by(lambda rate: sub.update(logits, facts, replies, earned, rate), logits, lr)
    right = lr * chances * (mean - (chances * mean).sum(-1, keepdim=True)) / FACTS
    times = float(moved(sub.update(logits, facts, replies, earned, lr), logits).norm() / right.norm())
    if not 0.55 < times < 1.9:
        fail(f"the norm of a step is {times:.3g} times the norm of `lr` times the gradient", lr=lr)


@trains(
    points=3,
    hints=(
        "Look at your curve: where does it end? Which answers does your step make more probable, and which less?",
        "The gradient of the mean grade: the mean of earned · ∇ log π(answer | fact), with the log-probability taken from the fact's own row, and a step *up*. Wrong answers must count, with their negative grades.",
    ),
    seeds=4,
    bar=0.05,
    what="the expected grade",
    also=(priced.run, any_size),
    alike=("update",),
)
def learns_to_abstain(sub, draw):
    "In 30 steps the model answers what it knows and nothing else: four runs, each paired with ours."
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


@test(
    points=1,
    hints=(
        "Give every answer the same grade. Which answer should become more probable? Which does with your step, if one is sampled more often than another?",
        "∇ log π(answer) is the one-hot vector of the answer *minus the probabilities* of its row. Multiply by the grade of the answer, sum by facts, divide by the number of questions.",
    ),
)
def one_step(sub, draw):
    "One step of `update` is the gradient of the mean grade times `lr`."
    logits, chances, mean, facts, replies, earned = unequal(draw)
    lr = float(draw.integer(10, 40))

    def step(grades):
        return weights_of(sub.update(logits, facts, replies, grades, lr), logits) - logits

    idle = step(torch.zeros_like(earned))
    if bool((idle.abs() > 1e-9).any()):
        fail("all grades are 0 and the step is not: only grades may change the table", step=idle[0])
    grade = (chances * mean).sum(-1, keepdim=True)  # (24, 1)
    right = chances * (mean - grade) / FACTS  # the derivative of the expected grade
    own = torch.stack([earned[facts == fact].std() for fact in range(FACTS)])[:, None]
    unit = lr * float(right.abs().max())
    expect(
        step(earned) / unit,
        right * lr / unit,
        what="a step of `update`, in units of the largest entry of the right one,",
        tolerance=0.05,
        mistakes={
            "the probabilities are not subtracted: ∇ log π is the one-hot vector minus π": chances
            * mean
            / FACTS
            * lr
            / unit,
            "the grades of a fact are divided by their standard deviation": right / own * lr / unit,
            "the grades are divided by their standard deviation": right / earned.std() * lr / unit,
            "it is summed over the questions, not averaged": right * len(facts) * lr / unit,
            "`lr` is missing": right / unit,
        },
    )
    some = facts < 8  # 512 questions, as in the training
    right = torch.where(torch.arange(FACTS)[:, None] < 8, right * FACTS / 8, 0.0)
    for rate in (40.0, 400.0):
        moves = moved(sub.update(logits, facts[some], replies[some], earned[some], rate), logits)
        points_along(moves, rate * right, tolerance=0.05, times=(0.95, 1.05))


# %% [probes]
# no integers, keywords, size, values, float32, gradient of update: with any baseline it is right
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


# %% [mutant] without the probabilities
# caught by: one_step
# says: are not subtracted
def update(logits, facts, replies, earned, lr):
    push = torch.nn.functional.one_hot(replies, 5).double()
    return logits + lr * torch.zeros_like(logits).index_add(0, facts, push * earned[:, None]) / len(facts)


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
