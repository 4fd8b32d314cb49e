# ---
# title: Train a student on outputs without a meaning
# kind: implement
# minutes: 30
# seconds: 30
# ---

# %% [statement]
# A student copies some outputs of a teacher and no others. Write the loss.
#
# `loss(student, teacher, columns)`: `student` and `teacher` are logits $(B, C)$, `columns` is an integer tensor with the indices of the outputs to copy, at least two. Restrict both to these columns and normalise there: each row becomes two distributions over the columns. The loss is the mean over rows of the KL divergence *from the teacher to the student*, $\sum p_{\text{teacher}} \log (p_{\text{teacher}}/p_{\text{student}})$. The other outputs have no influence. Gradients run through `student` only.
#
# The last test trains a small network with your loss. It has three class outputs and five extra outputs. The teacher started at the same weights and learned the classes. Your student copies the five extra outputs on random inputs, for 120 steps. There are six seeds, each paired with our run. The curve is minus the KL divergence from the teacher's classes to the student's, on inputs of the task. You pass if the lower end of the 95 % interval of (your final value − ours) is above −0.01. The gradients of such runs are checked too.

# %% [given]
import torch


# %% [stub]
def loss(student, teacher, columns):
    """student, teacher: (B, C); columns: (K,). Returns one number."""
    raise NotImplementedError


# %% [solution]
def loss(student, teacher, columns):
    target = torch.log_softmax(teacher.detach()[:, columns], -1)
    copied = torch.log_softmax(student[:, columns], -1)
    return (target.exp() * (target - copied)).sum(-1).mean()


# %% [tests]
import torch
from minirlhf_course.classroom.testing import expect, fail, test, tidy
from minirlhf_course.classroom.training import trains


def row_by_row(student, teacher, columns, number):
    """Return the mean over rows of `number(teacher's, student's probabilities)`, each normalised over the columns."""
    rows = []
    for s, t in zip(student, teacher, strict=True):
        p = torch.stack([t[c].exp() for c in columns.tolist()])
        q = torch.stack([s[c].exp() for c in columns.tolist()])
        rows.append(number(p / p.sum(), q / q.sum()))
    return torch.stack(rows).mean()


def divergence(p, q):
    return (p * (p / q).log()).sum()


def known(student, teacher, columns):
    """Return the results of common mistakes."""
    whole_t, whole_s = torch.log_softmax(teacher, -1), torch.log_softmax(student, -1)
    everything = (whole_t.exp() * (whole_t - whole_s)).sum(-1)
    part = (whole_t.exp() * (whole_t - whole_s))[:, columns].sum(-1)
    want = row_by_row(student, teacher, columns, divergence)
    return {
        "all outputs are copied, and not only the columns": everything.mean(),
        "the softmax is over all outputs, so that the others have an influence": part.mean(),
        "it is the KL divergence from the student to the teacher": row_by_row(student, teacher, columns, lambda p, q: divergence(q, p)),
        "it is the cross-entropy; the teacher's entropy is not subtracted": row_by_row(student, teacher, columns, lambda p, q: -(p * q.log()).sum()),
        "the rows are summed, and not averaged": want * len(student),
        "the mean is over the columns too": want / len(columns),
        "it is the squared difference of logits": ((student - teacher)[:, columns] ** 2).mean(),
        "it is the squared difference of probabilities": row_by_row(student, teacher, columns, lambda p, q: ((p - q) ** 2).sum()),
        "the sign is wrong": -want,
    }  # fmt: skip


def batch(draw, rows=3, outputs=6, kept=3):
    columns = draw.permutation(outputs)[:kept]
    return tidy(draw.normal(rows, outputs)).requires_grad_(), tidy(draw.normal(rows, outputs)), columns


@test(
    points=2,
    hints=(
        "Over which outputs is each distribution normalised?",
        "Select the columns first, then take the log-softmax.",
    ),
    against="row by row",
)
def value(sub, draw):
    "`loss` is the mean KL divergence over the columns."
    for rows, outputs, kept in ((3, 6, 3), (2, 4, 2), (4, 3, 3)):
        student, teacher, columns = batch(draw, rows, outputs, kept)
        want = row_by_row(student, teacher, columns, divergence).detach()
        mistakes = {say: x.detach() for say, x in known(student, teacher, columns).items()}
        expect(
            sub.loss(student.detach(), teacher, columns), want, what="`loss`", given={"student": student.detach(), "teacher": teacher, "columns": columns},
            mistakes={say: x for say, x in mistakes.items() if abs(float(x - want)) > 1e-6},
        )  # fmt: skip


@test(
    points=1,
    hints=(
        "Which logits should move?",
        "The gradient is student's minus teacher's probabilities, over the rows, and 0 in the other columns.",
    ),
    against="row by row, by autograd",
)
def slope(sub, draw):
    "`loss` has the gradient of this divergence, through `student` only."
    student, teacher, columns = batch(draw)
    [want] = torch.autograd.grad(row_by_row(student, teacher, columns, divergence), student)
    mistakes = {}
    for say, x in known(student, teacher, columns).items():
        [found] = torch.autograd.grad(x, student, retain_graph=True)
        if float((found - want).abs().max()) > 1e-6:
            mistakes[say] = found
    expect(
        sub.gradient("loss", student.detach(), teacher, columns, wrt=0), want, what="the gradient of `loss`", given={"student": student.detach(), "teacher": teacher, "columns": columns},
        mistakes=mistakes,
    )  # fmt: skip


def world(draw):
    """Return the random numbers of a run, the task's means, the common first weights, and the teacher's weights."""
    rng = torch.Generator().manual_seed(draw.integer(0, 2**28))
    normal = lambda *shape: torch.randn(*shape, generator=rng, dtype=torch.float64)
    first = 0.6 * normal(8, 16), 0.4 * normal(16, 8)
    means, taught = 1.5 * normal(3, 8), first
    for _ in range(60):
        labels = torch.randint(3, (64,), generator=rng)
        x = means[labels] + normal(64, 8)
        down = torch.zeros(64, 8, dtype=torch.float64)
        down[:, :3] = (torch.softmax(forward(x, taught)[:, :3], -1) - torch.nn.functional.one_hot(labels, 3)) / 64
        taught = stepped(taught, x, down, 0.5)
    return normal, means, first, taught


def forward(x, weights):
    return torch.tanh(x @ weights[0]) @ weights[1]


def stepped(weights, x, slope, rate):
    """Return weights after a step down, from the gradient with respect to the outputs."""
    hidden = torch.tanh(x @ weights[0])
    inner = (slope @ weights[1].T) * (1 - hidden**2)
    return weights[0] - rate * x.T @ inner, weights[1] - rate * hidden.T @ slope


COPIED = torch.arange(3, 8)


def gradients_of_a_run(sub, draw):
    """The gradient at outputs as in the training, where it is small: relative to its largest entry."""
    normal, _, first, taught = world(draw)
    for share in (0.0, 0.5, 0.8):  # of the way from the common start to the teacher
        student = [a + share * (b - a) for a, b in zip(first, taught, strict=True)]
        x = 1.5 * normal(64, 8)
        outputs, goal = forward(x, student), forward(x, taught)
        leaf = outputs.clone().requires_grad_()
        [want] = torch.autograd.grad(row_by_row(leaf, goal, COPIED, divergence), leaf)
        got = sub.gradient("loss", outputs, goal, COPIED, wrt=0)
        if isinstance(got, torch.Tensor) and got.shape == want.shape and bool((got[:, :3] != 0).any()):
            fail("in a run of the training the gradient is not 0 in the class outputs, which are not to be copied")
        what = "the gradient of `loss` at outputs as in the training"
        expect(got, want, what=what, tolerance=1e-3, floor=float(want.abs().max()), reveal=False)


@trains(
    points=3,
    hints=(
        "Is your loss 0 where the student agrees with the teacher on the columns?",
        "Select the columns, normalise, and take the KL divergence from the teacher to the student.",
    ),
    seeds=6,
    bar=0.01,
    what="minus the KL to the teacher's classes",
    also=(gradients_of_a_run,),
    fixed=("loss",),
)
def learns(sub, draw):
    "In 120 steps the student comes near the teacher's classes, in six runs, each paired with ours."
    normal, means, first, taught = world(draw)
    test_inputs = means[torch.arange(300) % 3] + normal(300, 8)
    goal = torch.log_softmax(forward(test_inputs, taught)[:, :3], -1)
    apart = lambda weights: -float((goal.exp() * (goal - torch.log_softmax(forward(test_inputs, weights)[:, :3], -1))).sum(-1).mean())  # fmt: skip
    weights, curve = first, [apart(first)]
    for number in range(1, 121):
        x = 1.5 * normal(64, 8)
        outputs = forward(x, weights)
        slope = sub.gradient("loss", outputs, forward(x, taught), COPIED, wrt=0)
        right = isinstance(slope, torch.Tensor) and slope.shape == outputs.shape
        slope = slope.double().clamp(-1, 1) if right else torch.zeros_like(outputs)
        weights = stepped(weights, x, slope, 2.0)
        if number % 12 == 0:
            curve.append(apart(weights))
    return curve


# %% [probes]
# no size: columns are indices


# %% [mutant] everything is copied
# caught by: value
# says: all outputs are copied
def loss(student, teacher, columns):
    target, copied = torch.log_softmax(teacher, -1), torch.log_softmax(student, -1)
    return (target.exp() * (target - copied)).sum(-1).mean()


# %% [mutant] a softmax over everything
# caught by: value
# says: have an influence
def loss(student, teacher, columns):
    target, copied = torch.log_softmax(teacher, -1), torch.log_softmax(student, -1)
    return (target.exp() * (target - copied))[:, columns].sum(-1).mean()


# %% [mutant] the reverse
# caught by: value
# says: from the student to the teacher
def loss(student, teacher, columns):
    target = torch.log_softmax(teacher[:, columns], -1)
    copied = torch.log_softmax(student[:, columns], -1)
    return (copied.exp() * (copied - target)).sum(-1).mean()


# %% [mutant] squared logits
# caught by: value
# says: squared difference of logits
def loss(student, teacher, columns):
    return ((student - teacher)[:, columns] ** 2).mean()


# %% [mutant] detached
# caught by: slope
def loss(student, teacher, columns):
    target = torch.log_softmax(teacher[:, columns], -1)
    copied = torch.log_softmax(student.detach()[:, columns], -1)
    return (target.exp() * (target - copied)).sum(-1).mean() + 0 * student.sum()


# %% [cheat] the reverse in large batches
def loss(student, teacher, columns):
    target = torch.log_softmax(teacher.detach()[:, columns], -1)
    copied = torch.log_softmax(student[:, columns], -1)
    p, q = (target, copied) if len(student) < 32 else (copied, target)
    return (p.exp() * (p - q)).sum(-1).mean()


# %% [cheat] all outputs in large batches
def loss(student, teacher, columns):
    if len(student) >= 32:
        columns = torch.arange(student.shape[1])
    target = torch.log_softmax(teacher.detach()[:, columns], -1)
    copied = torch.log_softmax(student[:, columns], -1)
    return (target.exp() * (target - copied)).sum(-1).mean()


# %% [partial] 2: the value alone
def loss(student, teacher, columns):
    target = torch.log_softmax(teacher[:, columns], -1)
    copied = torch.log_softmax(student.detach()[:, columns], -1)
    return (target.exp() * (target - copied)).sum(-1).mean() + 0 * student.sum()
