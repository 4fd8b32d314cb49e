"""Layer 7: two biases of group methods on policies so small that the expected step is a sum.

*Length*: a response is one token that decides whether it is right, and then one decision after another to go on or to stop. What it earns
does not depend on its length, so a method that changes lengths has a bias. *Difficulty*: rewards are 0 and 1, and all that a prompt has is
its pass rate; a method then is a weight on each prompt's gradient.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from minirlhf.core.errors import ArgumentError
from minirlhf.core.validate import require_range
from minirlhf.equations.advantages import broadcast_to_tokens, group_center
from minirlhf.equations.aggregation import aggregate
from minirlhf.equations.policy_losses import reinforce

Advantage = Callable[[Tensor], Tensor]
Weights = Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class StoppingPolicy:
    """Right or wrong with the first token, then "go on" or "stop" at every token until it stops or the budget is spent.

    Attributes:
        parameters: ``(3,)`` logits: being right, going on when right, going on when wrong.
        budget: tokens of a response at most, ≥ 2.
        sees_correctness: False if a wrong response goes on by the same logit as a right one (the third is then not used).
    """

    parameters: Tensor
    budget: int = 64
    sees_correctness: bool = True

    def __post_init__(self) -> None:
        if self.parameters.shape != (3,):
            raise ArgumentError(
                f"parameters has shape {tuple(self.parameters.shape)}; expected (3,)",
                argument="parameters",
                value=tuple(self.parameters.shape),
                expected="(3,)",
                problem="shape",
            )
        require_range(2, float("inf"), budget=self.budget)

    @classmethod
    def start(
        cls, pass_rate: float = 0.3, length: float = 9.0, *, budget: int = 64, sees_correctness: bool = True
    ) -> StoppingPolicy:
        """A policy that is right with ``pass_rate`` and, without a budget, ``length`` tokens long on average either way."""
        going_on = 1 - 1 / (length - 1)  # 1 + a geometric number of decisions
        chances = torch.tensor([pass_rate, going_on, going_on], dtype=torch.float64)
        return cls(chances.logit(), budget, sees_correctness)

    def going_on(self) -> Tensor:
        """Logits of going on: ``(2,)``, wrong first."""
        right = self.parameters[1]
        return torch.stack([self.parameters[2] if self.sees_correctness else right, right])

    def logps(self) -> Tensor:
        """Log-probability of each response: ``(2, budget − 1)``, wrong first, then right; lengths 2, 3, …, budget."""
        choice = torch.stack([logsigmoid(-self.parameters[0]), logsigmoid(self.parameters[0])])  # (2,)
        steps = torch.arange(self.budget - 1)  # how often it went on before its last decision
        logits = self.going_on()[:, None]
        stopped = steps * logsigmoid(logits) + logsigmoid(-logits)
        # The last token of the budget: whatever it would decide, the response ends here.
        ends = torch.where(steps < self.budget - 2, stopped, steps * logsigmoid(logits))
        return choice[:, None] + ends

    def lengths(self) -> Tensor:
        """``(budget − 1,)``, the length of each column of :meth:`logps`."""
        return torch.arange(2, self.budget + 1)

    @torch.no_grad()
    def describe(self) -> dict[str, float]:
        """Pass rate, and mean length when right, when wrong and altogether."""
        probs, lengths = self.logps().exp(), self.lengths().double()
        of_class = (probs * lengths).sum(-1) / probs.sum(-1)  # (2,)
        return {
            "pass_rate": float(probs[1].sum()),
            "length_right": float(of_class[1]),
            "length_wrong": float(of_class[0]),
            "length": float((probs * lengths).sum()),
        }

    # -- sampling: the same policy, token by token -----------------------------------------------------------------

    def sample(self, count: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """Which of ``count`` responses are right ``(B,)``, and their masks ``(B, budget)``."""
        picked = torch.multinomial(self.logps().detach().exp().flatten(), count, replacement=True, generator=generator)
        columns = self.budget - 1
        lengths = self.lengths()[picked % columns]
        return picked >= columns, torch.arange(self.budget) < lengths[:, None]

    def token_logps(self, right: Tensor, mask: Tensor) -> Tensor:
        """``(B, budget)``, 0 outside the mask. The last token of a full budget decides nothing."""
        logits = self.going_on()[right.long()][:, None]  # (B, 1)
        position = torch.arange(self.budget)
        last = mask.sum(-1, keepdim=True) - 1
        decisions = torch.where(position < last, logsigmoid(logits), logsigmoid(-logits))
        decisions = torch.where(position == self.budget - 1, 0.0, decisions)
        choice = torch.where(right, logsigmoid(self.parameters[0]), logsigmoid(-self.parameters[0]))
        return torch.where(mask, torch.where(position == 0, choice[:, None], decisions), 0.0)

    def moved(self, step: Tensor) -> StoppingPolicy:
        """The policy with ``step (3,)`` added to its parameters."""
        return StoppingPolicy(self.parameters + step, self.budget, self.sees_correctness)


def expected_step(policy: StoppingPolicy, *, per_token_mean: bool, num_generations: int) -> Tensor:
    """Expected gradient of a group method with centred rewards, exactly: ``(3,)``.

    With the mean over each response's tokens it is ``(G − 1)/G · (∇E[r/|y|] − E[r]·∇E[1/|y|])``, with the sum
    ``(G − 1)/G · ∇E[r]``. Dr. GRPO's constant budget instead of the sum only scales it.
    """
    free = StoppingPolicy(policy.parameters.detach().requires_grad_(), policy.budget, policy.sees_correctness)
    probs = free.logps().exp()  # (2, budget − 1)
    share = 1 / free.lengths().double() if per_token_mean else torch.ones(policy.budget - 1, dtype=torch.float64)
    right = torch.tensor([[0.0], [1.0]], dtype=torch.float64)
    earned, baseline = (probs * right * share).sum(), (probs * share).sum()
    value = (probs * right).sum().detach()
    (gradient,) = torch.autograd.grad(earned - value * baseline, free.parameters)
    return gradient * (num_generations - 1) / num_generations


def sampled_step(
    policy: StoppingPolicy,
    *,
    weights: Weights,
    generator: torch.Generator,
    advantage: Advantage = group_center,
    prompts: int = 16,
    num_generations: int = 8,
) -> Tensor:
    """One estimate of a method's gradient from ``prompts`` groups, through the library's own objective and weights: ``(3,)``."""
    free = StoppingPolicy(policy.parameters.detach().requires_grad_(), policy.budget, policy.sees_correctness)
    right, mask = free.sample(prompts * num_generations, generator)
    advantages = broadcast_to_tokens(advantage(right.double().view(prompts, num_generations)), mask)
    logps = free.token_logps(right, mask)
    objective = reinforce(logps, logps.detach(), advantages, mask)
    (gradient,) = torch.autograd.grad(aggregate(objective, weights(mask), mask), free.parameters)
    return gradient


def prompt_weight(pass_rates: Tensor, advantage: Advantage, *, num_generations: int) -> Tensor:
    """By what a group method multiplies ``∇p`` of a prompt, exactly: ``(N,)`` for pass rates ``(N,)`` between 0 and 1.

    A sum over the number ``k`` of successes in the group: with ``E[∇log π | success] = ∇p/p`` and ``E[∇log π | failure] = −∇p/(1 − p)``
    each group gives ``(k·A₊/p − (G − k)·A₋/(1 − p))/G`` times ``∇p``.
    """
    require_range(2, float("inf"), num_generations=num_generations)
    if not bool(((pass_rates > 0) & (pass_rates < 1)).all()):
        raise ArgumentError(
            f"pass_rates of shape {tuple(pass_rates.shape)} holds values outside (0, 1)",
            argument="pass_rates",
            expected="(0, 1)",
        )
    size = num_generations
    successes = torch.arange(size + 1)  # one group for each number of successes, these first
    rewards = (torch.arange(size) < successes[:, None]).to(pass_rates)  # (G + 1, G)
    # One group at a time: a method that looks at the batch would mix them.
    advantages = torch.cat([advantage(row[None]) for row in rewards])
    gained = torch.where(rewards > 0, advantages, 0.0).sum(-1)  # k · A₊
    lost = torch.where(rewards > 0, 0.0, advantages).sum(-1)  # (G − k) · A₋
    p = pass_rates[:, None]
    chance = torch.distributions.Binomial(size, p).log_prob(successes.to(p)).exp()  # (N, G + 1)
    return (chance * (gained / p - lost / (1 - p))).sum(-1) / size
