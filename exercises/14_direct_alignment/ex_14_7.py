# ---
# title: Your own DPO
# kind: implement
# minutes: 40
# uses: 02.6
# seconds: 30
# ---

# %% [statement]
# You train a policy on comparisons, and the optimum is known. There are six prompts with five completions each; the policy is a table of logits
# `(6, 5)`. Your `sample` (02.6) has sampled two completions of a prompt from the reference, thousands of times. People with a reward $r$ have preferred one of
# them, by Bradley–Terry. Your training should find the policy $\pi^*\propto\pi_\text{ref}\,e^{r/\beta}$, but you do not know $r$.
#
# 1. (five minutes) `margins(logps, ref_logps, prompts, chosen, rejected)`: for each pair the policy's log-ratio of the chosen completion minus the log-ratio of the rejected one,
#    $\log\frac{\pi(y_w)}{\pi_\text{ref}(y_w)} - \log\frac{\pi(y_l)}{\pi_\text{ref}(y_l)}$. `logps` and `ref_logps` are tables of log-probabilities, `(P, K)`; `prompts`, `chosen` and `rejected` hold numbers, `(N,)`.
# 2. `train(logits, prompts, chosen, rejected, beta, lr, steps)`: begin with `logits`, which are also the reference. Take `steps` gradient steps of size `lr` on DPO's
#    loss, averaged over all pairs. Return the new logits.
#
# How it is graded: about 4,000 pairs, 60 steps of `lr = 150` (the mean gradient of a table is small), $\beta = 0.5$, on six seeds. The score is
# $-\mathrm{KL}(\pi^*\|\pi)$ in nats, averaged over the prompts, exactly; 0 is the maximum. You pass if the lower end of the 95 % interval of (your score − ours) is above −0.08.
# A few steps with other β, `lr` and `steps` are also compared with the exact ones.

# %% [given]
import torch
import torch.nn.functional as F


# %% [stub]
def margins(logps, ref_logps, prompts, chosen, rejected):
    """logps, ref_logps: (P, K). prompts, chosen, rejected: (N,). Returns (N,)."""
    raise NotImplementedError


def train(logits, prompts, chosen, rejected, beta, lr, steps):
    """logits: (P, K), policy and reference at the beginning. Returns the trained logits, (P, K)."""
    raise NotImplementedError


# %% [solution]
def margins(logps, ref_logps, prompts, chosen, rejected):
    ratio = logps - ref_logps
    return ratio[prompts, chosen] - ratio[prompts, rejected]


def train(logits, prompts, chosen, rejected, beta, lr, steps):
    reference = logits.log_softmax(-1)
    for _ in range(steps):
        logits = logits.detach().clone().requires_grad_()
        h = margins(logits.log_softmax(-1), reference, prompts, chosen, rejected)
        (-F.logsigmoid(beta * h).mean()).backward()
        logits = logits - lr * logits.grad
    return logits.detach()


# %% [tests]
import torch
from minirlhf_course.classroom.testing import expect, test, tidy
from minirlhf_course.classroom.training import trains, weights_of


@test(
    points=1,
    hints=(
        "Four numbers per pair: two of the policy, two of the reference. Which of them have a minus sign?",
        "`table[prompts, completions]` picks one entry per pair. Policy minus reference for each completion, then chosen minus rejected.",
    ),
)
def four_numbers(sub, draw):
    "`margins` is the log-ratio of the chosen completion minus the log-ratio of the rejected one."
    policy, reference = (tidy(-draw.uniform(3, 4, low=0.2, high=3.0)) for _ in range(2))
    prompts = torch.cat([draw.permutation(3), torch.tensor([1])])
    chosen, rejected = draw.permutation(4), torch.tensor([0, 1, 2, 3])
    rejected = torch.where(rejected == chosen, (chosen + 1) % 4, rejected)
    p, r = policy.tolist(), reference.tolist()
    triples = list(zip(prompts.tolist(), chosen.tolist(), rejected.tolist(), strict=True))
    right = torch.tensor([p[x][w] - r[x][w] - p[x][l] + r[x][l] for x, w, l in triples], dtype=torch.float64)
    expect(
        sub.margins(policy, reference, prompts, chosen, rejected),
        right,
        what="the margins",
        given={
            "logps": policy,
            "ref_logps": reference,
            "prompts": prompts,
            "chosen": chosen,
            "rejected": rejected,
        },
        mistakes={
            "the reference is left out": torch.tensor([p[x][w] - p[x][l] for x, w, l in triples], dtype=torch.float64),
            "chosen and rejected are exchanged": -right,
            "the two log-ratios are added": torch.tensor(
                [p[x][w] - r[x][w] + p[x][l] - r[x][l] for x, w, l in triples], dtype=torch.float64
            ),
            "the rejected completion is left out": torch.tensor(
                [p[x][w] - r[x][w] for x, w, _ in triples], dtype=torch.float64
            ),
        },
    )


def every_argument(sub, draw):
    """Compare a few steps with other numbers for all arguments, by the definition."""
    reference, prompts = draw.normal(6, 5, scale=0.7), (6 * draw.uniform(300)).long()
    chosen = (5 * draw.uniform(300)).long()
    rejected = (chosen + 1 + (4 * draw.uniform(300)).long()) % 5
    for beta, steps in ((float(draw.uniform(1, low=0.05, high=0.3)), 1), (2.0, draw.integer(2, 4)), (1.0, 0)):
        lr, table = float(draw.uniform(1, low=10, high=40)), reference
        for _ in range(steps):
            leaf = table.clone().requires_grad_()
            ratio = leaf.log_softmax(-1) - reference.log_softmax(-1)
            h = ratio[prompts, chosen] - ratio[prompts, rejected]
            [slope] = torch.autograd.grad(torch.log1p((-beta * h).exp()).mean(), leaf)
            table = table - lr * slope
        new = weights_of(sub.train(reference, prompts, chosen, rejected, beta, lr, steps), reference)
        given = {"beta": beta, "lr": lr, "steps": steps}
        expect(new.softmax(-1), table.softmax(-1), what="the policy", given=given, reveal=False)


@trains(
    points=4,
    hints=(
        "The score measures the distance of the policy from π_ref e^{r/β}. Is the reference of the last step still the reference of the first? What does β multiply?",
        "Keep the log-probabilities of the first logits before the loop. The loss is −log σ(β · margin), averaged; return `logits - lr * gradient`.",
    ),
    seeds=6,
    bar=0.08,
    what="minus the KL from the best policy, in nats,",
    also=(every_argument,),
    fixed=("train",),
)
def arrives(sub, draw):
    "`train` brings the policy near the optimum for this reward and β: six runs, each paired with ours."
    reference, rewards, beta = draw.normal(6, 5, scale=0.7), draw.uniform(6, 5, low=-1, high=1), 0.5
    prompts = (6 * draw.uniform(6000)).long()
    sample = sub.part("02.6").sample
    one, other = (sample(reference[prompts], draw.integer(0, 2**28)) for _ in range(2))
    prompts, one, other = (x[one != other] for x in (prompts, one, other))
    wins = draw.uniform(len(prompts)) < (rewards[prompts, one] - rewards[prompts, other]).sigmoid()
    chosen, rejected = torch.where(wins, one, other), torch.where(wins, other, one)
    best = (reference.log_softmax(-1) + rewards / beta).softmax(-1)
    # from log-probabilities: the KL of a policy that diverged is large, and not infinite
    score = lambda logits: (best * (logits.log_softmax(-1) - best.log())).sum(-1).mean()
    new = weights_of(sub.train(reference, prompts, chosen, rejected, beta, 150.0, 60), reference)
    return [score(reference), score(new)]


# %% [probes]
# no gradient of train, margins.prompts, margins.chosen, margins.rejected: no test differentiates a training, or the number of a completion
# no keywords, size, values, float32 of train: any training that reaches the optimum is right
# no gradient of margins.ref_logps: the reference, cut off or not


# %% [mutant] no reference in the margin
# caught by: four_numbers
# says: the reference is left out
def margins(logps, ref_logps, prompts, chosen, rejected):
    return logps[prompts, chosen] - logps[prompts, rejected]


# %% [mutant] chosen and rejected exchanged
# caught by: four_numbers
# says: exchanged
def margins(logps, ref_logps, prompts, chosen, rejected):
    ratio = logps - ref_logps
    return ratio[prompts, rejected] - ratio[prompts, chosen]


# %% [mutant] the reference follows the policy
# caught by: arrives
# says: below ours
def train(logits, prompts, chosen, rejected, beta, lr, steps):
    for _ in range(steps):
        reference = logits.detach().log_softmax(-1)
        logits = logits.detach().clone().requires_grad_()
        h = margins(logits.log_softmax(-1), reference, prompts, chosen, rejected)
        (-F.logsigmoid(beta * h).mean()).backward()
        logits = logits - lr * logits.grad
    return logits.detach()


# %% [mutant] β is 1
# caught by: arrives
# says: below ours
def train(logits, prompts, chosen, rejected, beta, lr, steps):
    reference = logits.log_softmax(-1)
    for _ in range(steps):
        logits = logits.detach().clone().requires_grad_()
        h = margins(logits.log_softmax(-1), reference, prompts, chosen, rejected)
        (-F.logsigmoid(h).mean()).backward()
        logits = logits - lr * logits.grad
    return logits.detach()


# %% [mutant] the comparison is made without the reference
# caught by: arrives
# says: below ours
def train(logits, prompts, chosen, rejected, beta, lr, steps):
    for _ in range(steps):
        logits = logits.detach().clone().requires_grad_()
        logps = logits.log_softmax(-1)
        (-F.logsigmoid(beta * (logps[prompts, chosen] - logps[prompts, rejected])).mean()).backward()
        logits = logits - lr * logits.grad
    return logits.detach()


# %% [mutant] up the loss
# caught by: arrives
# says: it gets worse as it trains
def train(logits, prompts, chosen, rejected, beta, lr, steps):
    reference = logits.log_softmax(-1)
    for _ in range(steps):
        logits = logits.detach().clone().requires_grad_()
        h = margins(logits.log_softmax(-1), reference, prompts, chosen, rejected)
        (-F.logsigmoid(beta * h).mean()).backward()
        logits = logits + lr * logits.grad
    return logits.detach()


# %% [mutant] one step only
# caught by: arrives
# says: below ours
def train(logits, prompts, chosen, rejected, beta, lr, steps):
    reference = logits.log_softmax(-1)
    for _ in range(steps):
        new = logits.detach().clone().requires_grad_()
        h = margins(new.log_softmax(-1), reference, prompts, chosen, rejected)
        (-F.logsigmoid(beta * h).mean()).backward()
    return (new - 0.01 * lr * new.grad).detach()


# %% [partial] 1: the margins
def train(logits, prompts, chosen, rejected, beta, lr, steps):
    raise NotImplementedError
