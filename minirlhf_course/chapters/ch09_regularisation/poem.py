"""The poem critic of chapter 05 with the KL penalty in each usual place: sampled runs and exact stationary points.

The expected update is Σ_y π(y) [(r − β·charge) ∇log π(y) − β ∇loss(y)]. An *arm* defines charge and loss from a
completion's log-ratios. A run samples completions from π. At a stationary point the sum over all forty completions
is 0.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from torch import Tensor

from minirlhf.core import exact
from minirlhf.core.randomness import generator
from minirlhf.data.toys import Enumerable, poem_critic
from minirlhf.equations import kl
from minirlhf.equations.advantages import leave_one_out
from minirlhf_course.chapters.ch09_regularisation import equations

Estimator = Callable[[Tensor, Tensor], Tensor]


def nothing(logps: Tensor, ref_logps: Tensor) -> Tensor:
    """An estimator that is 0 for every token."""
    return torch.zeros_like(logps)


@dataclass(frozen=True)
class Arm:
    """Where the KL penalty enters.

    Attributes:
        reward: estimator per token, subtracted from the reward and held fixed.
        loss: estimator per token, added to the loss.
        reply: estimator of the completion's summed log-probabilities, added to the loss.
        full: whether the exact KLs at all positions of the completion are added to the loss.
    """

    reward: Estimator = nothing
    loss: Estimator = nothing
    reply: Estimator = nothing
    full: bool = False


ARMS = {
    "none": Arm(),
    "k1_reward": Arm(reward=kl.k1),
    "k3_reward": Arm(reward=kl.k3),
    "k1_loss": Arm(loss=kl.k1),
    "k2_loss": Arm(loss=kl.k2),
    "k3_loss": Arm(loss=kl.k3),
    "full_loss": Arm(full=True),
    "k2_reply": Arm(reply=kl.k2),
    "k3_reply": Arm(reply=kl.k3),
}


class Poem:
    """The forty completions as tensors: the row of the policy's table and the token at each step of each completion."""

    def __init__(self) -> None:
        self.world: Enumerable = poem_critic()
        lm = self.world.reference
        completions = lm.completions()
        self.mask, self.tokens = completions.mask, completions.tokens.masked_fill(~completions.mask, 0)
        prefix_ids: dict[tuple[int, ...], int] = {}
        self.prefixes = torch.zeros_like(self.tokens)  # (40, 3)
        rows = []
        for i, row in enumerate(completions.tokens.tolist()):
            for t in range(int(self.mask[i].sum())):
                self.prefixes[i, t] = prefix_ids.setdefault(tuple(row[:t]), len(prefix_ids))
        table = lm.table.detach()[0]
        for prefix in prefix_ids:
            index = 0
            for token in prefix:
                index = index * lm.vocab_size + token
            rows.append(table[lm.offsets[len(prefix)] + index])
        self.start = torch.stack(rows).log_softmax(-1)  # (13, 4)
        self.ref = self.token_logps(self.start)
        self.rewards = self.world.rewards

    def token_logps(self, table: Tensor) -> Tensor:
        """Return each completion's token log-probabilities ``(40, 3)`` under logits ``(13, 4)``; 0 after the end."""
        logps = table.log_softmax(-1)[self.prefixes, self.tokens]
        return torch.where(self.mask, logps, 0.0)

    def law(self, table: Tensor) -> Tensor:
        """Return the probabilities ``(40,)`` of the completions."""
        return self.token_logps(table).sum(-1).exp()

    def penalty(self, arm: Arm, table: Tensor, reference: Tensor) -> Tensor:
        """Return what an arm adds to the loss of each completion, ``(40,)``, before the factor β."""
        logps, ref = self.token_logps(table), self.token_logps(reference)
        penalty = torch.where(self.mask, arm.loss(logps, ref), 0.0).sum(-1) + arm.reply(logps.sum(-1), ref.sum(-1))
        if not arm.full:
            return penalty
        return penalty + kl.full_kl(table[self.prefixes], reference[self.prefixes], self.mask)

    def charge(self, arm: Arm, table: Tensor, reference: Tensor) -> Tensor:
        """Return what an arm subtracts from each completion's reward, ``(40,)``, before the factor β."""
        charges = arm.reward(self.token_logps(table), self.token_logps(reference))
        return torch.where(self.mask, charges, 0.0).sum(-1)

    def place(self, table: Tensor) -> dict[str, float]:
        """Return the exact expected reward and gold reward, and the exact KL from the initial policy."""
        law, initial = self.law(table.detach()), self.law(self.start)
        return {
            "reward": float(exact.expectation(law, self.rewards)),
            "gold": float(exact.expectation(law, self.world.gold)),
            "kl": float(exact.divergence(law, initial)),
        }


# -- sampled -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class SampledRun:
    """A sampled run: Adam with a learning rate that falls linearly to 0, unless ``constant``.

    Attributes:
        renewed_after: number of steps after which Adam's moments are cleared; never if None.
    """

    steps: int = 200
    replies: int = 64
    learning_rate: float = 0.1
    constant: bool = False
    renewed_after: int | None = None


@dataclass
class Steering:
    """What changes during a run besides the policy. The reference moves by ``rate`` once every ``every`` steps."""

    beta: float
    target: float | None = None
    gain: float = 0.1
    rate: float = 0.0
    every: int = 1
    betas: list[float] = field(default_factory=list)
    kls: list[float] = field(default_factory=list)

    def after(self, step: int, observed: float, table: Tensor, reference: Tensor) -> Tensor:
        """Update β and its history; return the next reference."""
        if self.target is not None:
            self.beta = kl.adaptive_kl_beta(self.beta, observed, target=self.target, horizon=1 / self.gain)
        self.betas.append(self.beta)
        if self.rate and (step + 1) % self.every == 0:
            return equations.moving_average(reference, table, rate=self.rate)
        return reference


def train(poem: Poem, arm: Arm, steering: Steering, plan: SampledRun, seed: int) -> Tensor:
    """Return the policy's table after a run; the baseline of a sampled completion is the mean of the others."""
    rng = generator("ch09", "poem", seed)
    table = poem.start.clone().requires_grad_()
    reference = poem.start
    optimiser = torch.optim.Adam([table], lr=plan.learning_rate)
    for step in range(plan.steps):
        indices = torch.multinomial(poem.law(table.detach()), plan.replies, True, generator=rng)
        charge = poem.charge(arm, table.detach(), reference)
        advantages = leave_one_out((poem.rewards - steering.beta * charge)[indices][None])[0]
        objective = advantages * poem.token_logps(table).sum(-1)[indices]
        loss = (steering.beta * poem.penalty(arm, table, reference)[indices] - objective).mean()
        if not plan.constant:
            optimiser.param_groups[0]["lr"] = plan.learning_rate * (1 - step / plan.steps)
        if step == plan.renewed_after:
            optimiser.state.clear()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        estimate = (poem.token_logps(table.detach()) - poem.ref).sum(-1)[indices].mean()
        reference = steering.after(step, float(estimate), table.detach(), reference)
        steering.kls.append(float(exact.divergence(poem.law(table.detach()), poem.law(poem.start))))
    return table.detach()


# -- exact stationary points -------------------------------------------------------------------------------------


def drift(poem: Poem, arm: Arm, beta: float, table: Tensor) -> Tensor:
    """Return the expected update ``(13, 4)`` at a policy, differentiable with respect to the policy."""
    variable = table.clone()  # only this copy is differentiated; elsewhere the policy is a constant
    net_rewards = poem.rewards - beta * poem.charge(arm, table, poem.start)
    objective = net_rewards * poem.token_logps(variable).sum(-1) - beta * poem.penalty(arm, variable, poem.start)
    (update,) = torch.autograd.grad(poem.law(table) @ objective, variable, create_graph=True)
    return update


def rest(poem: Poem, arm: Arm, beta: float, start: Tensor, most: int = 100) -> tuple[Tensor, float]:
    """Find a stationary point of the expected update by Newton's method from a nearby table.

    A completion of probability 0 is not updated either. Such points do not count, because the update follows whatever
    brings the completion back.

    Returns:
        The table, and the largest real part of the eigenvalues of the update's Jacobian there, apart from
        one 0 per row.

    Raises:
        RuntimeError: no point was found at which every completion keeps some of its probability.
    """
    table = start.log_softmax(-1)
    for _ in range(most):
        leaf = table.clone().requires_grad_()
        update = drift(poem, arm, beta, leaf)
        jac = torch.autograd.functional.jacobian(lambda x: drift(poem, arm, beta, x), table).view(table.numel(), -1)
        if (
            float(update.detach().abs().max()) < 1e-11
            and float((poem.law(table) / poem.law(poem.start)).log().min()) > -15
        ):
            eigenvalues = torch.linalg.eigvals(jac).real.sort(descending=True).values
            # One eigenvalue per row is 0, because adding a constant to its logits changes nothing.
            return table, float(eigenvalues[len(table)])
        step = -torch.linalg.lstsq(jac, update.detach().flatten(), driver="gelsd").solution.view_as(table)
        step_size = min(1.0, 1.0 / float(step.abs().max()))
        table = (table + step_size * step).log_softmax(-1)
    raise RuntimeError(f"no point of rest for beta = {beta}")


def at_kl(poem: Poem, arm: Arm, budget: float, high: float, low: float) -> tuple[float, Tensor]:
    """Find by bisection the β in [low, high] at which an arm's stationary point has a KL of ``budget`` nats.

    Returns:
        β, and the policy's table.
    """
    table = poem.start
    for beta in (8.0, 4.0, 2.0, high):
        table = rest(poem, arm, beta, table)[0]
    for _ in range(16):
        middle = (low * high) ** 0.5
        candidate = rest(poem, arm, middle, table)[0]
        if poem.place(candidate)["kl"] > budget:
            low = middle
        else:
            high, table = middle, candidate
    return high, table
