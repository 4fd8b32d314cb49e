# ---
# title: Bug hunt: a loss below zero
# kind: bughunt
# minutes: 25
# ---

# %% [statement]
# Six prompts with five possible answers each, and a policy that is a table of logits `(6, 5)`. The code below samples answers, keeps the best answer for each prompt and imitates the kept answers, for several
# rounds. It runs without an error. `rounds` prints three curves, and each shows a fault. The loss, a mean of $-\log\pi$, falls **below zero**. The mean reward of the policy **hardly rises**, although it imitates the
# best of eight every time. After these two are repaired, answers sampled at temperature 2 are **less** diverse than at 1.
#
# **There are three bugs, one in each function. Find and fix them.**
#
# * `replies(logits, size, temperature, seed)`: samples `size` answers for each prompt from $\mathrm{softmax}(\text{logits} / \text{temperature})$, all independent. The same seed gives
#   the same answers, another seed gives others. Returns two tensors of $P\cdot\text{size}$ integers: the prompt
#   and the answer of each row, first all rows of prompt 0, then all rows of prompt 1, and so on.
# * `kept(rewards, size)`: rewards `(P·size,)` in the same order. Returns the **rows** `(P,)` of the best answer for each prompt; among equal rewards the first.
# * `imitate(logits, prompts, answers, lr, steps)`: `steps` steps of gradient descent on the mean of $-\log\pi(\text{answer}\mid\text{prompt})$. Returns the new logits and the list of the losses before each step.

# %% [given]
import torch
import torch.nn.functional as F


def rounds(rewards, seed=0, size=8, temperature=1.0):
    """Eight rounds on a reward table (P, K): prints the loss, the exact mean reward, and how many different answers were drawn per prompt."""
    logits = torch.zeros_like(rewards)
    for number in range(8):
        prompts, answers = replies(logits, size, temperature, seed + number)
        rows = kept(rewards[prompts, answers], size)
        logits, losses = imitate(logits, prompts[rows], answers[rows], 4.0, 10)
        different = sum(len(a.unique()) for a in answers.view(len(rewards), size)) / len(rewards)
        reward = float((logits.softmax(-1) * rewards).sum(-1).mean())
        print(f"round {number + 1}   loss {losses[-1]:7.3f}   reward {reward:6.3f}   different answers {different:.1f}")


# %% [stub]
def replies(logits, size, temperature, seed):
    """logits: (P, K). Returns prompts (P·size,) and answers (P·size,)."""
    prompts = torch.arange(len(logits)).repeat_interleave(size)
    probs = F.softmax(logits[prompts] * temperature, -1)
    rng = torch.Generator().manual_seed(seed)
    return prompts, torch.multinomial(probs, 1, generator=rng)[:, 0]


def kept(rewards, size):
    """rewards: (P·size,). Returns (P,) rows."""
    return rewards.view(-1, size).argmax(-1)


def imitate(logits, prompts, answers, lr, steps):
    """prompts, answers: (N,). Returns the new logits (P, K) and the losses, a list."""
    losses = []
    for _ in range(steps):
        logits = logits.detach().clone().requires_grad_()
        loss = F.nll_loss(logits[prompts], answers)
        losses.append(loss.item())
        loss.backward()
        logits = logits - lr * logits.grad
    return logits.detach(), losses


# %% [solution]
def replies(logits, size, temperature, seed):
    prompts = torch.arange(len(logits)).repeat_interleave(size)
    probs = F.softmax(logits[prompts] / temperature, -1)
    rng = torch.Generator().manual_seed(seed)
    return prompts, torch.multinomial(probs, 1, generator=rng)[:, 0]


def kept(rewards, size):
    table = rewards.view(-1, size)
    best = (table == table.amax(-1, keepdim=True)).byte().argmax(-1)
    return torch.arange(len(table)) * size + best


def imitate(logits, prompts, answers, lr, steps):
    losses = []
    for _ in range(steps):
        logits = logits.detach().clone().requires_grad_()
        loss = F.cross_entropy(logits[prompts], answers)
        losses.append(loss.item())
        loss.backward()
        logits = logits - lr * logits.grad
    return logits.detach(), losses


# %% [tests]
import math

import torch
from minirlhf_course.classroom.chance import expect_draws, expect_independent
from minirlhf_course.classroom.testing import expect, fail, test, tidy


def pair(got, what):
    if not isinstance(got, list | tuple) or len(got) != 2:
        fail(f"the result of `{what}` is not a pair")
    return got


@test(
    points=2,
    hints=(
        "How does a temperature of 2 change the differences between logits? And a temperature of ½?",
        "Logits are *divided* by the temperature. The list of prompts was already right.",
    ),
)
def diverse(sub, draw):
    "`replies` samples from softmax(logits / temperature), prompt after prompt."
    logits, temperature, size = tidy(draw.uniform(2, 4, low=-1.2, high=1.2)), [0.5, 2.0][draw.integer(0, 1)], 3000
    logits[:, 0] += 1.0  # far from uniform
    law = (logits / temperature).softmax(-1)
    over = torch.softmax(logits / temperature, 0).sum(-1, keepdim=True)
    seed = draw.integer(0, 2**28)
    prompts, answers = pair(sub.replies(logits, size, temperature, seed), "replies")
    expect(prompts, torch.arange(2).repeat_interleave(size), what="the list of prompts")
    for i in range(2):
        expect_draws(
            answers[i * size : (i + 1) * size],
            (logits[i] / temperature).softmax(-1),
            size,
            f"answers to prompt {i} at temperature {temperature:g}",
            mistakes={
                "the logits are multiplied by the temperature": (logits[i] * temperature).softmax(-1),
                "the temperature is not used": logits[i].softmax(-1),
                "all answers are equally probable": torch.full((4,), 0.25, dtype=torch.float64),
                "these are the answers of the other prompt": (logits[1 - i] / temperature).softmax(-1),
                "the softmax goes over the prompts": (torch.softmax(logits / temperature, 0) / over)[i],
            },
        )
    few = pair(sub.aside.replies(logits, 5, temperature, seed), "replies")
    expect(few[0], torch.arange(2).repeat_interleave(5), what="the list of prompts, with five answers for each")
    if not isinstance(few[1], torch.Tensor) or few[1].shape != (10,):
        fail("`replies` should return ten answers, five for each of two prompts")
    sure = torch.full((3, 6), -40.0, dtype=torch.float64)  # three prompts, each with one answer that is certain
    certain = draw.permutation(6)[:3]
    sure[torch.arange(3), certain] = 0.0
    got = pair(sub.aside.replies(sure, 2, 1.0, seed), "replies")
    for one, right, what in zip(got, (torch.arange(3), certain), ("prompts", "answers"), strict=True):
        expect(one, right.repeat_interleave(2), what=f"the list of {what}, of three prompts")
    agree = float((law[0] * law[1]).sum())
    expect_independent(answers[:size], answers[size:], agree, "the answers to the two prompts")
    if not torch.equal(pair(sub.replies(logits, size, temperature, seed), "replies")[1], answers):
        fail("the same seed gives other answers: is `seed` used?")
    _, others = pair(sub.replies(logits, size, temperature, seed + 1), "replies")
    expect_independent(
        others[:size], answers[:size], float((law[0] ** 2).sum()), "the answers of two neighbouring seeds"
    )
    _, others = pair(sub.aside.replies(logits, size, temperature, seed + 8_192_000), "replies")
    expect_independent(  # the distance is a multiple of 1,000 and of 2^16
        others[:size], answers[:size], float((law[0] ** 2).sum()), "the answers of two seeds that are 8,192,000 apart"
    )


def best_rows(rewards, size):
    """Return for each group the row of the first of the largest rewards."""
    values, found = rewards.tolist(), []
    for begin in range(0, len(values), size):
        group = values[begin : begin + size]
        found.append(begin + group.index(max(group)))
    return found


def kept_otherwise(rewards):
    """Return the rows that mistakes keep, for three prompts with four answers each."""
    places = torch.tensor(best_rows(rewards, 4)) % 4
    return {
        "these are indices within a group, so all rows belong to prompt 0": places,
        "among equal rewards the last is kept": torch.tensor(
            [4 * i + 3 - int(row.flip(0).argmax()) for i, row in enumerate(rewards.view(3, 4))]
        ),
        "the groups are taken along the wrong axis": rewards.view(4, 3).argmax(0),
        "the groups are taken along the wrong axis: every third row for one prompt": 3 * rewards.view(4, 3).argmax(0)
        + torch.arange(3),
        "the group of prompt i is taken to begin at row i": places + torch.arange(3),
        "the group of prompt i is taken to begin at row i times the number of prompts": places + 3 * torch.arange(3),
        "the worst is kept": torch.tensor(best_rows(-rewards, 4)),
        "the best rows of all are kept, instead of the best for each prompt": rewards.argsort(
            descending=True, stable=True
        )[:3],
    }


@test(
    points=2,
    hints=(
        "There are P·size rows. What is the range of the numbers that `kept` returns?",
        "An index within a group is not a row: the group of prompt i begins at row i · size. Among equal rewards take the first.",
    ),
)
def one_each(sub, draw):
    "`kept` returns the row of the best answer for each prompt, among equal rewards the first."
    for most, ties in ((2, False), (4, True)):
        while True:
            rewards = draw.permutation(12).double()
            rewards = rewards // most if ties else tidy(rewards / most)
            right, slips = torch.tensor(best_rows(rewards, 4)), kept_otherwise(rewards)
            wrong = [value.tolist() for value in slips.values() if not torch.equal(value, right)]
            if len(wrong) == len(slips) - (not ties) and all(wrong.count(value) == 1 for value in wrong):
                break  # each mistake shows, and none can be taken for another
        expect(
            sub.kept(rewards, 4),
            right,
            what="the result of `kept`",
            given={"rewards": rewards, "size": 4},
            mistakes=slips,
        )


def slope(logits, chosen):
    """The gradient of the mean of −log π(answer | prompt) in the logits."""
    found = torch.zeros_like(logits)
    for p, a in chosen:
        found[p] += logits[p].softmax(-1) / len(chosen)
        found[p, a] -= 1 / len(chosen)
    return found


def surprise(row, answer):
    return math.log(sum(math.exp(x) for x in row)) - row[answer]


@test(
    points=2,
    hints=(
        "A probability is at most 1. Which sign does −log of it have? And what does `nll_loss` expect as its input?",
        "`F.nll_loss` expects log-probabilities and does not check its input. Apply `log_softmax` first, or use `F.cross_entropy`.",
    ),
)
def learns(sub, draw):
    "`imitate` minimises the mean of −log π of the kept answers."
    logits, lr = tidy(draw.normal(3, 4)), 0.5
    prompts, answers = torch.tensor([0, 1, 2, 1]), draw.permutation(4)
    chosen = list(zip(prompts.tolist(), answers.tolist(), strict=True))
    table, losses, bare, whole = logits.tolist(), [], [], []
    for _ in range(3):
        losses.append(sum(surprise(table[p], a) for p, a in chosen) / len(chosen))
        whole.append(sum(surprise(table[p], a) for p, a in chosen))
        new = [list(row) for row in table]
        for p, a in chosen:
            total = sum(math.exp(x) for x in table[p])
            for k in range(4):
                new[p][k] -= lr / len(chosen) * (math.exp(table[p][k]) / total - (k == a))
        table = new
    bare = -sum(logits[p, a] for p, a in chosen) / len(chosen)
    given = {"logits": logits, "prompts": prompts, "answers": answers, "lr": lr, "steps": 3}
    new, said = pair(sub.imitate(logits, prompts, answers, lr, 3), "imitate")
    if not isinstance(said, list | tuple) or len(said) != 3:
        fail("the losses are not a list of one number for each step")
    expect(
        torch.tensor([float(x) for x in said], dtype=torch.float64)[:1],
        torch.tensor(losses[:1], dtype=torch.float64),
        what="the first loss",
        given=given,
        mistakes={
            "logits are used as log-probabilities, so the loss has no lower bound": bare[None],
            "the softmax goes over the prompts, not over the answers": -logits.log_softmax(0)[prompts, answers]
            .mean()
            .reshape(1),
            "probabilities are used where log-probabilities belong": -logits.softmax(-1)[prompts, answers]
            .mean()
            .reshape(1),
            "it is the sum, not the mean": torch.tensor(whole[:1], dtype=torch.float64),
            "it is the loss after the step": torch.tensor(losses[1:2], dtype=torch.float64),
            "the sum is divided by the number of prompts instead of the number of rows": torch.tensor(
                whole[:1]
            ).double()
            / 3,
        },
    )
    summed, up, gathered = logits.clone(), logits.clone(), torch.zeros_like(logits)
    for _ in range(3):
        gathered = gathered + slope(summed, chosen)
        summed, up = summed - lr * gathered, up + lr * slope(up, chosen)
    expect(
        new,
        torch.tensor(table, dtype=torch.float64),
        what="the table of new logits",
        given=given,
        tolerance=1e-6,
        mistakes={"gradients of earlier steps are not set to zero": summed, "the steps increase the loss": up},
    )
    expect(
        torch.tensor([float(x) for x in said], dtype=torch.float64),
        torch.tensor(losses, dtype=torch.float64),
        what="the list of losses before each step",
        given=given,
        tolerance=1e-6,
    )


# %% [probes]
# range 1e-4 to 100 of imitate: libraries of distributions clamp probabilities
# no random of replies: it draws by its seed, from whichever generator
# no values, keywords, size, float32 of replies: any sampler of the right distribution is right
# no gradient: indices, samples and trained weights; no test differentiates them


# %% [mutant] times the temperature
# caught by: diverse
# says: multiplied by the temperature
def replies(logits, size, temperature, seed):
    prompts = torch.arange(len(logits)).repeat_interleave(size)
    probs = F.softmax(logits[prompts] * temperature, -1)
    rng = torch.Generator().manual_seed(seed)
    return prompts, torch.multinomial(probs, 1, generator=rng)[:, 0]


# %% [mutant] the temperature divides the probabilities
# caught by: diverse
# says: the temperature is not used
def replies(logits, size, temperature, seed):
    prompts = torch.arange(len(logits)).repeat_interleave(size)
    probs = F.softmax(logits[prompts], -1) / temperature
    rng = torch.Generator().manual_seed(seed)
    return prompts, torch.multinomial(probs, 1, generator=rng)[:, 0]


# %% [mutant] one noise for all seeds
# caught by: diverse
# says: two neighbouring seeds
def replies(logits, size, temperature, seed):
    prompts = torch.arange(len(logits)).repeat_interleave(size)
    probs = F.softmax(logits[prompts] / temperature, -1)
    return prompts, torch.multinomial(probs, 1, generator=torch.Generator().manual_seed(0))[:, 0]


# %% [mutant] one noise for all prompts
# caught by: diverse
# says: the two prompts
def replies(logits, size, temperature, seed):
    law = (logits / temperature).softmax(-1)
    draws = [torch.multinomial(p, size, True, generator=torch.Generator().manual_seed(seed)) for p in law]
    return torch.arange(len(logits)).repeat_interleave(size), torch.cat(draws)


# %% [mutant] places within the group
# caught by: one_each
# says: all rows belong to prompt 0
def kept(rewards, size):
    return rewards.view(-1, size).argmax(-1)


# %% [mutant] the last of equal ones
# caught by: one_each
# says: the last is kept
def kept(rewards, size):
    table = rewards.view(-1, size)
    last = size - 1 - (table.flip(-1) == table.amax(-1, keepdim=True)).byte().argmax(-1)
    return torch.arange(len(table)) * size + last


# %% [mutant] logits as log-probabilities
# caught by: learns
# says: no lower bound
def imitate(logits, prompts, answers, lr, steps):
    losses = []
    for _ in range(steps):
        logits = logits.detach().clone().requires_grad_()
        loss = F.nll_loss(logits[prompts], answers)
        losses.append(loss.item())
        loss.backward()
        logits = logits - lr * logits.grad
    return logits.detach(), losses


# %% [mutant] the absolute value of the loss
# caught by: learns
def imitate(logits, prompts, answers, lr, steps):
    losses = []
    for _ in range(steps):
        logits = logits.detach().clone().requires_grad_()
        loss = F.nll_loss(logits[prompts], answers).abs()
        losses.append(loss.item())
        loss.backward()
        logits = logits - lr * logits.grad
    return logits.detach(), losses


# %% [partial] 4: the loss still sinks below zero
def imitate(logits, prompts, answers, lr, steps):
    losses = []
    for _ in range(steps):
        logits = logits.detach().clone().requires_grad_()
        loss = F.nll_loss(logits[prompts], answers)
        losses.append(loss.item())
        loss.backward()
        logits = logits - lr * logits.grad
    return logits.detach(), losses
