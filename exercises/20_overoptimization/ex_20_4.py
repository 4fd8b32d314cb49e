# ---
# title: Decoupled approval: benefit and cost
# kind: implement
# minutes: 35
# ---

# %% [statement]
# An assistant samples one of $N$ actions from a softmax over `logits`. An overseer grades, but some actions write into the score sheet: `feedback[a, b]` is the grade of action $b$
# *in a round in which $a$ has been executed*, and `approval[b]` is the grade of $b$ with an untouched sheet.
#
# The chapter has both methods. *Coupled*: execute $a$ and make $a$ more probable by its own grade $F(a,a)$. *Decoupled*: execute $a$, sample a second action $b$ independently, and make
# $b$ more probable by $F(a,b)$. Their one-sample estimates of the gradient with respect to the logits are $F(a,a)\,\nabla\log\pi(a)$ and $F(a,b)\,\nabla\log\pi(b)$. Compute exactly, by
# summing over actions ($\nabla_\text{logits}\log\pi(b)$ is a one-hot vector minus a distribution):
#
# 1. `pulled(logits, feedback, approval, coupled)`: the expected step less the step of the untouched approval, $\sum_b \nabla\pi(b)\,A(b)$. This is the incentive to tamper. `coupled` is True or False;
# 2. `noise(logits, feedback, coupled)`: the variance of *one* sample's estimate, summed over the $N$ entries. Compare the two methods: decoupling has a cost;
# 3. `safe(feedback)`: True if, *for every policy*, the effect of the executed action on the grades cannot change the decoupled step. This holds if every action moves all grades by one
#    amount, compared with executing action 0. Allow for rounding in float64, relative to the largest grade, and for nothing more: $10^{-11}$ among grades around 1 is a difference.

# %% [given]
import torch


# %% [stub]
def pulled(logits, feedback, approval, coupled):
    """Expected step less that of the untouched approval. logits, approval: (N,). feedback: (N, N). Returns (N,)."""
    raise NotImplementedError


def noise(logits, feedback, coupled):
    """Total variance of one sample's estimate of the gradient. Returns one number."""
    raise NotImplementedError


def safe(feedback):
    """Does every action (row) only add a number of its own to all grades? Returns a bool."""
    raise NotImplementedError


# %% [solution]
def pulled(logits, feedback, approval, coupled):
    p = torch.softmax(logits, -1)
    lie = (feedback.diagonal() if coupled else p @ feedback) - approval
    return p * (lie - (p * lie).sum())


def noise(logits, feedback, coupled):
    p = torch.softmax(logits, -1)
    scores = torch.eye(len(p), dtype=p.dtype) - p  # (N, N): row b is ∇ log π(b)
    chance = torch.diag(p) if coupled else torch.outer(p, p)
    mean = (chance * feedback).sum(0) @ scores
    return ((chance * feedback**2).sum(0) * scores.square().sum(-1)).sum() - mean.square().sum()


def safe(feedback):
    moved = feedback - feedback[0]
    rounding = 16 * torch.finfo(feedback.dtype).eps * feedback.abs().max()
    return bool((moved - moved[:, :1]).abs().max() <= rounding)


# %% [tests]
import torch
from minirlhf_course.classroom.testing import expect, fail, test, tidy


def problem(draw, n):
    """Logits, approval, and a feedback matrix that depends on the executed action and is not symmetric."""
    approval = tidy(draw.normal(n)) + torch.arange(n)
    feedback = approval + tidy(draw.normal(n, n)) + 2 * torch.triu(torch.ones(n, n, dtype=torch.float64))
    return tidy(draw.normal(n)), feedback, approval


def samples(logits, feedback, coupled):
    """Every sample there is: its chance and its estimate, pair by pair."""
    weights = logits.exp()
    p = (weights / weights.sum()).tolist()
    found = []
    for a, pa in enumerate(p):
        for b, pb in enumerate(p):
            chance = (pa if a == b else 0.0) if coupled else pa * pb
            grade = float(feedback[a, b])
            found.append((chance, [grade * (float(k == b) - pk) for k, pk in enumerate(p)]))
    return found


def mean_of(found):
    return torch.tensor([sum(c * g[k] for c, g in found) for k in range(len(found[0][1]))], dtype=torch.float64)


def spread_of(found):
    """Half the expected squared distance of two independent samples."""
    total = 0.0
    for c, g in found:
        for d, h in found:
            total += 0.5 * c * d * sum((x - y) ** 2 for x, y in zip(g, h, strict=True))
    return total


@test(
    points=2,
    hints=(
        "An expected step is linear in the grades. So on which difference of grades does the difference of two steps depend?",
        "Coupled, action b's grade is off by F(b,b) − A(b); decoupled, by the mean over a of F(a,b), less A(b). Entry k of the step is π(k) times (the error of k minus the mean error under π).",
    ),
)
def reward_of_tampering(sub, draw):
    "`pulled` is the expected step less the step of the untouched approval."
    for n, coupled in ((3, True), (4, False)):
        logits, feedback, approval = problem(draw, n)
        p = torch.softmax(logits, -1)
        step = mean_of(samples(logits, feedback, coupled))
        other = mean_of(samples(logits, feedback, not coupled))
        honest = mean_of(samples(logits, approval.expand(n, n), True))
        lie = (feedback.diagonal() if coupled else p @ feedback) - approval
        expect(
            sub.pulled(logits, feedback, approval, coupled),
            step - honest,
            what=f"the incentive to tamper, {'coupled' if coupled else 'decoupled'},",
            given={"logits": logits, "feedback": feedback, "approval": approval},
            mistakes={
                "this is the step itself; the step of the approval is not subtracted": step,
                "coupled and decoupled are exchanged": other - honest,
                "the mean is not subtracted: ∇log π is one-hot minus π": p * lie,
                "it is the error of the grades, not its effect on the logits": lie,
                "the executed action is made more probable, not the action whose grade was requested": mean_of(
                    samples(logits, feedback.T, False)
                )
                - honest,
                "the columns are averaged with equal weights, not by the policy": p
                * (feedback.mean(0) - approval - (p * (feedback.mean(0) - approval)).sum()),
            },
        )


@test(
    points=2,
    hints=(
        "Variance is the mean of squares less the square of the mean. Over which samples is the mean taken in each method?",
        "Coupled there are N samples, with probability π(a); decoupled N², with probability π(a)π(b). A sample's square is F² times the squared length of one-hot(b) − π.",
    ),
)
def price_of_decoupling(sub, draw):
    "`noise` is the variance of one sample's estimate, summed over the entries."
    for n, coupled in ((3, True), (4, False)):
        logits, feedback, _ = problem(draw, n)
        p = torch.softmax(logits, -1)
        found = samples(logits, feedback, coupled)
        squares = sum(c * sum(x * x for x in g) for c, g in found)
        scores = torch.eye(n, dtype=torch.float64) - p
        averaged = [(float(p[b]), (float((p @ feedback)[b]) * scores[b]).tolist()) for b in range(n)]
        expect(
            sub.noise(logits, feedback, coupled),
            spread_of(found),
            what=f"the variance, {'coupled' if coupled else 'decoupled'},",
            given={"logits": logits, "feedback": feedback},
            mistakes={
                "the square of the mean is not subtracted": squares,
                "coupled and decoupled are exchanged": spread_of(samples(logits, feedback, not coupled)),
                "it is the root, a standard deviation": spread_of(found) ** 0.5,
                "grades are averaged over the executed actions before they are squared": spread_of(averaged),
                "the entries are averaged, not summed": spread_of(found) / n,
                "it is the variance of the grade, not of the estimate": (
                    float(p @ feedback.diagonal() ** 2 - (p @ feedback.diagonal()) ** 2)
                    if coupled
                    else float(p @ feedback**2 @ p - (p @ feedback @ p) ** 2)
                ),
            },
        )


@test(
    points=1,
    hints=(
        "If a adds the number Δ(a) to all grades, how do the rows of `feedback` differ from each other?",
        "Subtract the first row from every row: the result must be constant along each row, and may differ between rows.",
    ),
)
def when_it_is_safe(sub, draw):
    "`safe` is True if each action moves all grades by one amount, and False if it changes their differences."
    n = draw.integer(3, 4)
    _, feedback, _ = problem(draw, n)
    alike = feedback[0][None, :] + tidy(draw.normal(n))[:, None]
    cases = [(alike, True), (feedback[:1].expand(n, n).clone(), True)]
    for action in range(n):
        for liked in range(n):  # executing one action changes the grade of one action
            praise = alike.clone()
            praise[action, liked] += [1.0, -1.0][draw.integer(0, 1)]
            cases.append((praise, False))
        hidden = alike.clone()
        hidden[action] += torch.arange(n) - (n - 1) / 2  # its mean is what it was
        cases.append((hidden, False))
    cases.append((1e-3 * praise, False))
    barely = alike.clone()
    barely[1, 2] += 2e-11
    cases += [(barely, False), (1e5 + alike, True)]  # the sums of large grades are rounded
    for grades, want in cases:
        got = sub.safe(grades)
        if bool(got) is not want:
            fail(f"`safe` says {bool(got)}, and it should be {want}", feedback=grades)


# %% [probes]
# no gradient: a formula is asked for, in whatever library
# no float32 of safe: what is equal up to rounding depends on the dtype


# %% [mutant] the step itself
# caught by: reward_of_tampering
# says: not subtracted
def pulled(logits, feedback, approval, coupled):
    p = torch.softmax(logits, -1)
    grade = feedback.diagonal() if coupled else p @ feedback
    return p * (grade - (p * grade).sum())


# %% [mutant] decoupled in name only
# caught by: reward_of_tampering
# says: are exchanged
def pulled(logits, feedback, approval, coupled):
    p = torch.softmax(logits, -1)
    lie = feedback.diagonal() - approval
    return p * (lie - (p * lie).sum())


# %% [mutant] the wrong axis is averaged
# caught by: reward_of_tampering
# says: the executed action is made more probable
def pulled(logits, feedback, approval, coupled):
    p = torch.softmax(logits, -1)
    lie = (feedback.diagonal() if coupled else feedback @ p) - approval
    return p * (lie - (p * lie).sum())


# %% [mutant] the mean of squares
# caught by: price_of_decoupling
# says: not subtracted
def noise(logits, feedback, coupled):
    p = torch.softmax(logits, -1)
    scores = torch.eye(len(p), dtype=p.dtype) - p
    chance = torch.diag(p) if coupled else torch.outer(p, p)
    return ((chance * feedback**2).sum(0) * scores.square().sum(-1)).sum()


# %% [mutant] averaged before it is squared
# caught by: price_of_decoupling
# says: before they are squared
def noise(logits, feedback, coupled):
    p = torch.softmax(logits, -1)
    scores = torch.eye(len(p), dtype=p.dtype) - p
    grade = feedback.diagonal() if coupled else p @ feedback
    mean = (p * grade) @ scores
    return (p * grade**2 * scores.square().sum(-1)).sum() - mean.square().sum()


# %% [mutant] safe only if nothing is touched at all
# caught by: when_it_is_safe
# says: it should be True
def safe(feedback):
    return bool(torch.allclose(feedback, feedback[:1].expand_as(feedback)))


# %% [mutant] always safe
# caught by: when_it_is_safe
# says: it should be False
def safe(feedback):
    return True


# %% [partial] 2: only the incentive to tamper
def noise(logits, feedback, coupled):
    raise NotImplementedError


def safe(feedback):
    raise NotImplementedError


# %% [partial] 4: reward and noise
def safe(feedback):
    raise NotImplementedError
