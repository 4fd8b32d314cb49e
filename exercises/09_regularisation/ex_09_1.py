# ---
# title: One token, three places
# kind: choice
# minutes: 6
# ---

# %% [statement]
# One token was sampled, with $\log\pi = -1$ and $\log\pi_\text{ref} = -2$. Let $\beta = 1$, with no other reward. Each question has one right answer: `q1 = "a"`.
#
# **`q1`** With $k_1$ in the *reward*, what does this sample do to the token's log-probability?\
# (a) raises it (b) lowers it (c) nothing
#
# **`q2`** With $k_1$ in the *loss*, on this sample?\
# (a) raises it (b) lowers it (c) nothing
#
# **`q3`** With $k_1$ in the *loss*, on average over all samples?\
# (a) raises tokens that the reference prefers (b) lowers tokens that the reference prefers (c) nothing
#
# **`q4`** Another token was sampled, with $\log\pi = -2$ and $\log\pi_\text{ref} = -1$. With $k_3$ in the *reward* and no baseline, what happens to its log-probability?\
# (a) it is raised, towards the reference (b) it is lowered, away from the reference (c) nothing
#
# **`q5`** The same token, with $k_3$ in the *loss*?\
# (a) it is raised, towards the reference (b) it is lowered, away from the reference (c) nothing
#
# **`q6`** A log shows a KL of −.03 for one batch, estimated by $k_1$. What is wrong?\
# (a) the sign of the KL (b) the reference has changed (c) nothing need be wrong

# %% [stub]
q1 = None
q2 = None
q3 = None
q4 = None
q5 = None
q6 = None

# %% [solution]
q1, q2, q3, q4, q5, q6 = "bbcbac"

# %% [tests]
import torch
from minirlhf_course.classroom.testing import fail, test


def push(logp, ref_logp, estimate, in_reward):
    """The direction in which one sample moves its log-probability, by autograd on the loss that is minimised."""
    x = torch.tensor(float(logp), dtype=torch.float64, requires_grad=True)
    k = estimate(x, ref_logp)
    loss = k.detach() * x if in_reward else k  # a penalty is a negative reward
    (slope,) = torch.autograd.grad(loss, x)
    return "b" if slope > 0 else "a" if slope < 0 else "c"


def k1(x, y):
    return x - y


def k3(x, y):
    return torch.exp(y - x) - 1 - (y - x)


def ask(sub, name, right, why):
    got = sub.choice(name, "abc")
    if got != right:
        fail(f"`{name}` is not {got!r}: {why.get(got, 'work out the gradient on the log-probability')}")


@test(
    points=1,
    rounds=1,
    hints=(
        "k₁ is 1 here. What does a penalty of 1 do to the sampled token?",
        "A reward of −1 times ∇log π: the log-probability goes down.",
    ),
)
def charged(sub, draw):
    "A penalised sample becomes less probable (`q1`)."
    ask(
        sub,
        "q1",
        push(-1, -2, k1, True),
        {"a": "a penalty is a negative reward", "c": "the reward is −1, and there is no other reward"},
    )


@test(
    points=2,
    rounds=1,
    hints=(
        "Differentiate log π − log π_ref in log π. Does the reference appear?",
        "The derivative is 1 for every sample. So every sampled token is lowered equally, and on average this is E[∇log π].",
    ),
)
def in_the_loss(sub, draw):
    "k₁ in the loss, on one sample and on average (`q2`, `q3`)."
    ask(
        sub,
        "q2",
        push(-1, -2, k1, False),
        {
            "a": "the derivative is 1, and the loss is minimised",
            "c": "this is so on average; one sample has a gradient of 1",
        },
    )
    p = torch.tensor([0.2, 0.3, 0.5], dtype=torch.float64).log().requires_grad_()
    mean = (p.softmax(-1).detach() * k1(p.log_softmax(-1), torch.tensor([-1.0, -2.0, -0.7]))).sum()
    (slope,) = torch.autograd.grad(mean, p)
    right = "c" if slope.abs().max() < 1e-12 else "a"
    ask(sub, "q3", right, dict.fromkeys("ab", "the reference's log-probability has no gradient"))


@test(
    points=2,
    rounds=1,
    hints=(
        "k₃ is never negative. What does it do as a penalty?",
        "In the reward any positive penalty lowers the sample, also one that the reference makes more probable. In the loss the derivative is 1 − π_ref/π.",
    ),
)
def two_places(sub, draw):
    "k₃ in the reward and in the loss (`q4`, `q5`)."
    ask(
        sub,
        "q4",
        push(-2, -1, k3, True),
        {"a": "k₃ is e − 2 > 0 here, and it is penalised", "c": "k₃ is e − 2 here, not 0"},
    )
    ask(
        sub,
        "q5",
        push(-2, -1, k3, False),
        {"b": "the derivative is 1 − e < 0, and the loss is minimised", "c": "the derivative is 1 − e, not 0"},
    )


@test(
    points=1,
    rounds=1,
    hints=(
        "Which of the three estimates can be negative on a sample?",
        "The mean of k₁ over a batch is a noisy estimate of a small positive number.",
    ),
)
def negative(sub, draw):
    "A negative k₁ (`q6`)."
    ask(
        sub,
        "q6",
        "c" if k1(-2.0, -1.0) < 0 else "a",
        {
            "a": "the estimate of a batch may be negative by chance",
            "b": "with the same reference k₁ is also negative wherever π < π_ref",
        },
    )


# %% [mutant] a charge is taken for a reward
# caught by: charged
# says: negative reward
q1 = "a"

# %% [mutant] the average is taken for the sample
# caught by: in_the_loss
# says: on average
q2 = "c"

# %% [mutant] k3 pulls to the reference wherever it stands
# caught by: two_places
# says: it is penalised
q4 = "a"

# %% [mutant] a negative KL is a bug
# caught by: negative
# says: by chance
q6 = "a"

# %% [partial] 1.5: the loss is understood, the reward is not
q4 = "a"
q6 = "b"
