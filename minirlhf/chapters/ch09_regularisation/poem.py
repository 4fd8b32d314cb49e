"""The poem critic of chapter 05 with the KL in every place where people put it: sampled runs, and the exact points of rest.

What an update follows is Σ_y π(y) [(r − β·charge) ∇log π(y) − β ∇loss(y)], where charge and loss are what an *arm* makes of a
reply's log-ratios. A run draws replies from π; the point of rest is where the sum over all forty is 0.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from torch import Tensor

from minirlhf.core import exact
from minirlhf.core.randomness import generator
from minirlhf.data.toys import Enumerable, poem_critic
from minirlhf.equations import kl, regularisation
from minirlhf.equations.advantages import leave_one_out

Estimator = Callable[[Tensor, Tensor], Tensor]


def nothing(logps: Tensor, ref_logps: Tensor) -> Tensor:
    """An estimator that charges nothing."""
    return torch.zeros_like(logps)


@dataclass(frozen=True)
class Arm:
    """Where the KL stands.

    Attributes:
        reward: estimator of a token, taken off the reward, held fixed.
        loss: estimator of a token, added to the loss.
        reply: estimator of the whole reply's summed log-probabilities, added to the loss.
        full: the KLs of all positions of the reply, added to the loss.
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
    """The forty replies as tensors: which row of the policy's table and which token each step of each reply reads."""

    def __init__(self) -> None:
        self.world: Enumerable = poem_critic()
        lm = self.world.reference
        responses = lm.responses()
        self.mask, self.tokens = responses.mask, responses.tokens.masked_fill(~responses.mask, 0)
        numbers: dict[tuple[int, ...], int] = {}
        self.prefixes = torch.zeros_like(self.tokens)  # (40, 3)
        rows = []
        for i, row in enumerate(responses.tokens.tolist()):
            for t in range(int(self.mask[i].sum())):
                self.prefixes[i, t] = numbers.setdefault(tuple(row[:t]), len(numbers))
        table = lm.table.detach()[0]
        for prefix in numbers:
            number = 0
            for token in prefix:
                number = number * lm.vocab_size + token
            rows.append(table[lm.offsets[len(prefix)] + number])
        self.start = torch.stack(rows).log_softmax(-1)  # (13, 4)
        self.ref = self.token_logps(self.start)
        self.rewards = self.world.rewards

    def token_logps(self, table: Tensor) -> Tensor:
        """Log-probabilities ``(40, 3)`` of each reply's tokens under a table ``(13, 4)`` of logits; 0 behind the end."""
        every = table.log_softmax(-1)[self.prefixes, self.tokens]
        return torch.where(self.mask, every, 0.0)

    def law(self, table: Tensor) -> Tensor:
        """Probabilities ``(40,)`` of the replies."""
        return self.token_logps(table).sum(-1).exp()

    def penalty(self, arm: Arm, table: Tensor, reference: Tensor) -> Tensor:
        """What an arm adds to the loss of each reply, ``(40,)``, before β."""
        logps, ref = self.token_logps(table), self.token_logps(reference)
        found = torch.where(self.mask, arm.loss(logps, ref), 0.0).sum(-1) + arm.reply(logps.sum(-1), ref.sum(-1))
        if not arm.full:
            return found
        return found + kl.full_kl(table[self.prefixes], reference[self.prefixes], self.mask)

    def charge(self, arm: Arm, table: Tensor, reference: Tensor) -> Tensor:
        """What an arm takes off the reward of each reply, ``(40,)``, before β."""
        charges = arm.reward(self.token_logps(table), self.token_logps(reference))
        return torch.where(self.mask, charges, 0.0).sum(-1)

    def place(self, table: Tensor) -> dict[str, float]:
        """Reward, true worth and KL from the first reference, exactly."""
        law, first = self.law(table.detach()), self.law(self.start)
        return {
            "reward": float(exact.expectation(law, self.rewards)),
            "gold": float(exact.expectation(law, self.world.gold)),
            "kl": float(exact.divergence(law, first)),
        }


# -- sampled -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class SampledRun:
    """A sampled run: Adam with a rate that falls linearly to 0, unless ``constant``."""

    steps: int = 200
    replies: int = 64
    learning_rate: float = 0.1
    constant: bool = False


@dataclass
class Steering:
    """What moves during a run beside the policy. A rate of the reference is per refresh, every so many steps."""

    beta: float
    target: float | None = None
    gain: float = 0.1
    rate: float = 0.0
    every: int = 1
    betas: list[float] = field(default_factory=list)
    kls: list[float] = field(default_factory=list)

    def after(self, step: int, observed: float, table: Tensor, reference: Tensor) -> Tensor:
        """The next reference; β and the histories are renewed."""
        if self.target is not None:
            self.beta = kl.adaptive_kl_beta(self.beta, observed, target=self.target, horizon=1 / self.gain)
        self.betas.append(self.beta)
        if self.rate and (step + 1) % self.every == 0:
            return regularisation.moving_average(reference, table, rate=self.rate)
        return reference


def train(poem: Poem, arm: Arm, steering: Steering, plan: SampledRun, seed: int) -> Tensor:
    """The table of the policy after a run; every step draws replies, and each is compared with the mean of the others."""
    rng = generator("ch09", "poem", seed)
    table = poem.start.clone().requires_grad_()
    reference = poem.start
    optimiser = torch.optim.Adam([table], lr=plan.learning_rate)
    for step in range(plan.steps):
        drawn = torch.multinomial(poem.law(table.detach()), plan.replies, True, generator=rng)
        charge = poem.charge(arm, table.detach(), reference)
        advantages = leave_one_out((poem.rewards - steering.beta * charge)[drawn][None])[0]
        objective = advantages * poem.token_logps(table).sum(-1)[drawn]
        loss = (steering.beta * poem.penalty(arm, table, reference)[drawn] - objective).mean()
        if not plan.constant:
            optimiser.param_groups[0]["lr"] = plan.learning_rate * (1 - step / plan.steps)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        estimate = (poem.token_logps(table.detach()) - poem.ref).sum(-1)[drawn].mean()
        reference = steering.after(step, float(estimate), table.detach(), reference)
        steering.kls.append(float(exact.divergence(poem.law(table.detach()), poem.law(poem.start))))
    return table.detach()


# -- exact points of rest ----------------------------------------------------------------------------------------


def drift(poem: Poem, arm: Arm, beta: float, table: Tensor) -> Tensor:
    """The expected update ``(13, 4)`` at a policy, differentiable in it."""
    live = table.clone()  # what is differentiated; in all other places the policy is a number
    earned = poem.rewards - beta * poem.charge(arm, table, poem.start)
    objective = earned * poem.token_logps(live).sum(-1) - beta * poem.penalty(arm, live, poem.start)
    (found,) = torch.autograd.grad(poem.law(table) @ objective, live, create_graph=True)
    return found


def rest(poem: Poem, arm: Arm, beta: float, start: Tensor, most: int = 100) -> tuple[Tensor, float]:
    """Where the expected update is 0, by Newton's method from a table nearby, and the largest real part of its eigenvalues there.

    A reply of probability 0 is not moved either; such points are no rest, since whatever brings the reply back is followed.

    Raises:
        RuntimeError: no point was found at which every reply keeps some of its probability.
    """
    table = start.log_softmax(-1)
    for _ in range(most):
        leaf = table.clone().requires_grad_()
        now = drift(poem, arm, beta, leaf)
        slopes = torch.autograd.functional.jacobian(lambda x: drift(poem, arm, beta, x), table).view(table.numel(), -1)
        if (
            float(now.detach().abs().max()) < 1e-11
            and float((poem.law(table) / poem.law(poem.start)).log().min()) > -15
        ):
            values = torch.linalg.eigvals(slopes).real.sort(descending=True).values
            return table, float(
                values[len(table)]
            )  # one 0 for each row: a constant added to its logits changes nothing
        step = -torch.linalg.lstsq(slopes, now.detach().flatten(), driver="gelsd").solution.view_as(table)
        size = min(1.0, 1.0 / float(step.abs().max()))
        table = (table + size * step).log_softmax(-1)
    raise RuntimeError(f"no point of rest for beta = {beta}")


def at_kl(poem: Poem, arm: Arm, budget: float, high: float, low: float) -> tuple[float, Tensor]:
    """The β between ``low`` and ``high`` at which an arm rests at a KL of ``budget`` nats, and the policy; by bisection."""
    table = poem.start
    for beta in (8.0, 4.0, 2.0, high):
        table = rest(poem, arm, beta, table)[0]
    for _ in range(16):
        middle = (low * high) ** 0.5
        found = rest(poem, arm, middle, table)[0]
        if poem.place(found)["kl"] > budget:
            low = middle
        else:
            high, table = middle, found
    return high, table
