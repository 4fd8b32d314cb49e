# ---
# title: A student with another start
# kind: implement
# minutes: 25
# ---

# %% [statement]
# The chapter's theorem needs a common start. Write what happens without it, to first order.
#
# * `trait_change(jacobian, student, teacher, trait_gradient, lr)`: the student minimises the mean, over $N$ inputs, of the KL divergence from the teacher's probabilities to its own. It takes one gradient step of size `lr`. Return the first-order change of the trait's loss, a number. `jacobian` $(N, Y, P)$ holds the derivatives of the student's *logits* with respect to its weights; `student` and `teacher` $(N, Y)$ are probabilities; `trait_gradient` $(P,)$ is the gradient of the trait's loss at the student's weights.
# * `blocked(step, trait_gradient)`: a defence. `step` $(P,)$ is the change of the weights. If it would lower the trait's loss to first order, return the step without its component along the trait's gradient. Otherwise return the step as it is. The trait's gradient is never zero.

# %% [given]
import torch


# %% [stub]
def trait_change(jacobian, student, teacher, trait_gradient, lr):
    """jacobian: (N, Y, P); student, teacher: (N, Y); trait_gradient: (P,). Returns a number."""
    raise NotImplementedError


def blocked(step, trait_gradient):
    """step, trait_gradient: (P,). Returns (P,)."""
    raise NotImplementedError


# %% [solution]
def trait_change(jacobian, student, teacher, trait_gradient, lr):
    # minus the gradient of the KL with respect to the logits is teacher − student
    step = torch.einsum("ny,nyp->p", teacher - student, jacobian) / len(student)
    return lr * (step @ trait_gradient)


def blocked(step, trait_gradient):
    along = step @ trait_gradient
    if along >= 0:
        return step
    return step - along / (trait_gradient @ trait_gradient) * trait_gradient


# %% [tests]
import torch
from minirlhf_course.classroom.testing import expect, test, tidy


@test(
    points=2,
    hints=(
        "What is the gradient of the KL with respect to the student's logits?",
        "It is student − teacher. Descend: the step is lr times the mean over inputs of (teacher − student) times the Jacobian.",
    ),
    against="autograd on the KL of a linear student",
)
def another_start(sub, draw):
    "`trait_change` is the first-order change of the trait's loss."
    for inputs, outcomes, weights in ((3, 4, 5), (2, 3, 4)):
        jacobian, trait = tidy(draw.normal(inputs, outcomes, weights)), tidy(draw.normal(weights))
        offset = draw.normal(inputs, outcomes)
        teacher, lr = draw.distribution(inputs, outcomes), [0.2, 0.5, 1.5][draw.integer(0, 2)]
        theta = torch.zeros(weights, dtype=torch.float64, requires_grad=True)
        logp = torch.log_softmax(offset + jacobian @ theta, -1)
        kl = (teacher * (teacher.log() - logp)).sum(-1).mean()
        [gradient] = torch.autograd.grad(kl, theta)
        student = logp.detach().exp()
        want = float(-lr * gradient @ trait)
        direct = lambda weight, j=jacobian, t=trait: float(torch.einsum("ny,nyp,p->", weight, j, t))
        expect(
            sub.trait_change(jacobian, student, teacher, trait, lr), want, what="`trait_change`", given={"student": student, "teacher": teacher, "lr": lr},
            mistakes={
                "it is the change after a step *up* the KL": -want,
                "the inputs are summed, not averaged": want * inputs,
                "the student's probabilities are missing; these derivatives are of logits, not of log-probabilities": lr * direct(teacher) / inputs,
                "the mean is over outcomes too": want / outcomes,
                "the learning rate is missing": want / lr,
                "it is the reverse KL": lr * direct(student * ((teacher / student).log() - (student * (teacher / student).log()).sum(-1, keepdim=True))) / inputs,
            },
        )  # fmt: skip
        near = (student.log() + 1e-5 * offset).softmax(-1)  # nearly the student
        want = lr * direct(near - student) / inputs
        got = sub.aside.trait_change(jacobian, student, near, trait, lr)
        expect(got, want, what="`trait_change` for a teacher that is nearly the student", tolerance=1e-3, floor=1e-7)


@test(
    points=1,
    hints=(
        "What is the sign of step · gradient if the loss falls?",
        "If step · gradient is negative, subtract (step · g)/(g · g) g.",
    ),
)
def defence(sub, draw):
    "`blocked` removes a component that lowers the trait's loss, and no other."
    for falls in (True, False):
        step, trait = tidy(draw.normal(4)), tidy(draw.normal(4))
        while float(trait @ trait) < 0.5 or abs(float(step @ trait)) < 0.2:
            step, trait = tidy(draw.normal(4)), tidy(draw.normal(4))
        if (float(step @ trait) < 0) != falls:
            step = -step
        system = torch.stack([trait])  # the nearest step that leaves the loss unchanged
        projected = step - torch.linalg.lstsq(system.T, step[:, None]).solution[0] * trait
        expect(
            sub.blocked(step, trait), projected if falls else step, what="`blocked`", given={"step": step, "trait_gradient": trait},
            mistakes={
                "a step that lowers the trait's loss is left as it is": step,
                "a step that raises the trait's loss is changed too": projected,
                "the component is divided by the length of the gradient; it must be the squared length": (step - (step @ trait) / trait.norm() * trait) if falls else step,
                "the component is not divided by the squared length of the gradient": (step - (step @ trait) * trait) if falls else step,
                "the component is reversed, not removed": (2 * projected - step) if falls else step,
                "the whole step is dropped": torch.zeros(4, dtype=torch.float64) if falls else step,
            },
        )  # fmt: skip
    still = torch.zeros(4, dtype=torch.float64)
    expect(sub.aside.blocked(still, trait), still, what="`blocked` for a step of zero", given={"trait_gradient": trait})
    crosswise = torch.tensor([1.0, -2.0, 0.0, 0.0]), torch.tensor([2.0, 1.0, 0.0, 0.0])
    expect(
        sub.aside.blocked(*crosswise), crosswise[0], what="`blocked` for a step that does not change the trait's loss"
    )


# %% [probes]
# no gradient: only the numbers are required
# no values of trait_change.student, trait_change.teacher: probabilities
# no single of blocked: the one entry of a gradient may be zero


# %% [mutant] up the KL
# caught by: another_start
# says: *up* the KL
def trait_change(jacobian, student, teacher, trait_gradient, lr):
    step = torch.einsum("ny,nyp->p", student - teacher, jacobian) / len(student)
    return lr * (step @ trait_gradient)


# %% [mutant] a sum over inputs
# caught by: another_start
# says: summed, not averaged
def trait_change(jacobian, student, teacher, trait_gradient, lr):
    return lr * (torch.einsum("ny,nyp->p", teacher - student, jacobian) @ trait_gradient)


# %% [mutant] without the student
# caught by: another_start
# says: derivatives are of logits
def trait_change(jacobian, student, teacher, trait_gradient, lr):
    return lr * (torch.einsum("ny,nyp->p", teacher, jacobian) / len(student) @ trait_gradient)


# %% [mutant] always projected
# caught by: defence
# says: is changed too
def blocked(step, trait_gradient):
    return step - (step @ trait_gradient) / (trait_gradient @ trait_gradient) * trait_gradient


# %% [mutant] never projected
# caught by: defence
# says: is left as it is
def blocked(step, trait_gradient):
    return step


# %% [partial] 2: no defence
def blocked(step, trait_gradient):
    return step
