"""Two biases of group methods, on policies so small that the expected step is a sum.

*Length*: the first token of a completion decides whether it is right. Each later token decides to continue or to stop.
The reward does not depend on the length, so a method that changes lengths has a bias. *Difficulty*: rewards are 0 and
1, and a prompt is described by its pass rate alone. A method is then a weight on each prompt's gradient.
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
    """A policy whose first token is right or wrong, and whose later tokens continue or stop, up to a budget.

    Attributes:
        parameters: ``(3,)`` logits: of being right, of continuing when right, of continuing when wrong.
        budget: maximal number of tokens of a completion, ≥ 2.
        sees_correctness: False if wrong completions use the continuing logit of right ones (the third is unused).
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
        """Return a policy with this pass rate; without a budget, right and wrong completions have this mean length."""
        going_on = 1 - 1 / (length - 1)  # the length is 1 + a geometric number of decisions
        probs = torch.tensor([pass_rate, going_on, going_on], dtype=torch.float64)
        return cls(probs.logit(), budget, sees_correctness)

    def going_on(self) -> Tensor:
        """Return the logits of continuing, ``(2,)``, wrong first."""
        right = self.parameters[1]
        return torch.stack([self.parameters[2] if self.sees_correctness else right, right])

    def logps(self) -> Tensor:
        """Return completions' log-probabilities ``(2, budget − 1)``, wrong first; the lengths are 2, 3, …, budget."""
        choice = torch.stack([logsigmoid(-self.parameters[0]), logsigmoid(self.parameters[0])])  # (2,)
        steps = torch.arange(self.budget - 1)  # number of continuations before the last decision
        logits = self.going_on()[:, None]
        stopped = steps * logsigmoid(logits) + logsigmoid(-logits)
        # At the last token of the budget the completion ends, whatever the decision.
        ends = torch.where(steps < self.budget - 2, stopped, steps * logsigmoid(logits))
        return choice[:, None] + ends

    def lengths(self) -> Tensor:
        """Return the length of each column of :meth:`logps`, ``(budget − 1,)``."""
        return torch.arange(2, self.budget + 1)

    @torch.no_grad()
    def describe(self) -> dict[str, float]:
        """Return the pass rate, and the mean length of right, of wrong and of all completions."""
        probs, lengths = self.logps().exp(), self.lengths().double()
        class_lengths = (probs * lengths).sum(-1) / probs.sum(-1)  # (2,)
        return {
            "pass_rate": float(probs[1].sum()),
            "length_right": float(class_lengths[1]),
            "length_wrong": float(class_lengths[0]),
            "length": float((probs * lengths).sum()),
        }

    # -- sampling: the same policy, token by token -----------------------------------------------------------------

    def sample(self, count: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """Sample ``count`` completions; return which are right, ``(B,)``, and their masks, ``(B, budget)``."""
        indices = torch.multinomial(self.logps().detach().exp().flatten(), count, replacement=True, generator=generator)
        columns = self.budget - 1
        lengths = self.lengths()[indices % columns]
        return indices >= columns, torch.arange(self.budget) < lengths[:, None]

    def token_logps(self, right: Tensor, mask: Tensor) -> Tensor:
        """Return token log-probabilities ``(B, budget)``; 0 outside the mask and at the last token of a full budget."""
        logits = self.going_on()[right.long()][:, None]  # (B, 1)
        position = torch.arange(self.budget)
        last = mask.sum(-1, keepdim=True) - 1
        decisions = torch.where(position < last, logsigmoid(logits), logsigmoid(-logits))
        decisions = torch.where(position == self.budget - 1, 0.0, decisions)
        choice = torch.where(right, logsigmoid(self.parameters[0]), logsigmoid(-self.parameters[0]))
        return torch.where(mask, torch.where(position == 0, choice[:, None], decisions), 0.0)

    def moved(self, step: Tensor) -> StoppingPolicy:
        """Return the policy with ``step (3,)`` added to its parameters."""
        return StoppingPolicy(self.parameters + step, self.budget, self.sees_correctness)


def expected_step(policy: StoppingPolicy, *, per_token_mean: bool, num_generations: int) -> Tensor:
    """Return the exact expected gradient of a group method with centred rewards, ``(3,)``.

    With the mean over each completion's tokens it is ``(G − 1)/G · (∇E[r/|y|] − E[r]·∇E[1/|y|])``, with the sum
    ``(G − 1)/G · ∇E[r]``. Dr. GRPO divides the sum by a constant budget, which only scales it.
    """
    leaf = StoppingPolicy(policy.parameters.detach().requires_grad_(), policy.budget, policy.sees_correctness)
    probs = leaf.logps().exp()  # (2, budget − 1)
    scale = 1 / leaf.lengths().double() if per_token_mean else torch.ones(policy.budget - 1, dtype=torch.float64)
    is_right = torch.tensor([[0.0], [1.0]], dtype=torch.float64)
    weighted_reward, mean_weight = (probs * is_right * scale).sum(), (probs * scale).sum()
    value = (probs * is_right).sum().detach()
    (gradient,) = torch.autograd.grad(weighted_reward - value * mean_weight, leaf.parameters)
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
    """Estimate a method's gradient ``(3,)`` from ``prompts`` groups, with the library's own objective and weights."""
    leaf = StoppingPolicy(policy.parameters.detach().requires_grad_(), policy.budget, policy.sees_correctness)
    is_right, mask = leaf.sample(prompts * num_generations, generator)
    advantages = broadcast_to_tokens(advantage(is_right.double().view(prompts, num_generations)), mask)
    logps = leaf.token_logps(is_right, mask)
    objective = reinforce(logps, logps.detach(), advantages, mask)
    (gradient,) = torch.autograd.grad(aggregate(objective, weights(mask), mask), leaf.parameters)
    return gradient


def prompt_weight(pass_rates: Tensor, advantage: Advantage, *, num_generations: int) -> Tensor:
    """Return the exact factor of ``∇p`` of a prompt in a group method, ``(N,)``, for pass rates ``(N,)`` in (0, 1).

    It is a sum over the number ``k`` of successes in the group. With ``E[∇log π | success] = ∇p/p`` and
    ``E[∇log π | failure] = −∇p/(1 − p)`` each group gives ``(k·A₊/p − (G − k)·A₋/(1 − p))/G`` times ``∇p``.
    """
    require_range(2, float("inf"), num_generations=num_generations)
    if not bool(((pass_rates > 0) & (pass_rates < 1)).all()):
        raise ArgumentError(
            f"pass_rates of shape {tuple(pass_rates.shape)} holds values outside (0, 1)",
            argument="pass_rates",
            expected="(0, 1)",
        )
    group_size = num_generations
    successes = torch.arange(group_size + 1)  # one group for each number of successes, the successes first
    rewards = (torch.arange(group_size) < successes[:, None]).to(pass_rates)  # (G + 1, G)
    # One group per call, because a method with statistics of the batch would mix the groups.
    advantages = torch.cat([advantage(row[None]) for row in rewards])
    success_sum = torch.where(rewards > 0, advantages, 0.0).sum(-1)  # k · A₊
    failure_sum = torch.where(rewards > 0, 0.0, advantages).sum(-1)  # (G − k) · A₋
    p = pass_rates[:, None]
    probs = torch.distributions.Binomial(group_size, p).log_prob(successes.to(p)).exp()  # (N, G + 1)
    return (probs * (success_sum / p - failure_sum / (1 - p))).sum(-1) / group_size
