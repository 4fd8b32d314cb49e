"""Online reinforcement learning on an enumerable model, with exact metrics in addition to the sampled ones.

Sampling, credit and update are the same as for any other model. The exact metrics show what a recipe converges to.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from minirlhf.core import exact
from minirlhf.core.errors import ArgumentError
from minirlhf.core.exact import ToyLM
from minirlhf.core.logprobs import sequence_logps
from minirlhf.core.validate import require_finite
from minirlhf.data.types import Rollout
from minirlhf.models.forward import completion_logps
from minirlhf.recipes.recipe import Recipe
from minirlhf.trainers.config import OnlineConfig
from minirlhf.trainers.history import History
from minirlhf.trainers.online import train_in_env
from minirlhf.trainers.rollouts import RolloutEnv

#: 120 rollouts of 8 groups of 8: about two seconds for a few dozen completions, and enough for a recipe to converge.
TOY_RUN = OnlineConfig(max_steps=120, batch_size=8, num_generations=8, learning_rate=0.1, lr_scheduler_type="linear")


def train_toy(
    policy: ToyLM,
    rewards: Tensor,
    recipe: Recipe,
    config: OnlineConfig = TOY_RUN,
    *,
    ref_model: ToyLM,
    monitors: Mapping[str, Tensor] | None = None,
    name: str | None = None,
    quiet: bool = True,
) -> History:
    """Train ``policy`` in place on its own samples; the prompts are used in rotation.

    Args:
        policy: a model with ``num_prompts`` prompts and ``N`` possible completions of each.
        rewards: ``(num_prompts, N)``, in the order of ``policy.completions()``.
        recipe: the algorithm.
        config: ``batch_size`` counts prompts; a prompt may occur several times, each time with its own group.
            ``max_completion_length`` is set to the policy's ``max_len``.
        ref_model: the reference; it is not changed.
        monitors: other values of every completion, ``(num_prompts, N)`` each; their exact mean is logged as
            ``exact_<name>``.

    Returns:
        The metrics of each step, with ``exact_reward`` and ``exact_kl`` (nats per completion, against ``ref_model``) of
        the policy after its update, averaged over the prompts.
    """
    config = dataclasses.replace(config, max_completion_length=policy.max_len)
    env = EnumerableEnv(policy, ref_model, {"reward": rewards, **(monitors or {})})
    return train_in_env(policy, env, recipe, config, ref_model=ref_model, name=name, quiet=quiet)


class EnumerableEnv(RolloutEnv):
    """All completions of an enumerable policy, with tables ``(num_prompts, N)``; the table ``reward`` is trained on."""

    timed = False

    def __init__(self, policy: ToyLM, ref_model: ToyLM, values: Mapping[str, Tensor]) -> None:
        prompts = [[policy.vocab_size + prompt] for prompt in range(policy.num_prompts)]
        eos_token_id, pad_token_id = policy.eos_token_id, policy.pad_token_id
        super().__init__(prompts, eos_token_id=eos_token_id, pad_token_id=pad_token_id, use_cache=False)
        responses = policy.completions()
        rows = zip(responses.tokens, responses.mask, strict=True)
        self.number = {tuple(row[mask].tolist()): index for index, (row, mask) in enumerate(rows)}
        self.policy, self.values = policy, values
        for key, table in values.items():
            require_finite(**{key: table})
            if table.shape != (policy.num_prompts, len(self.number)):
                raise ArgumentError(
                    f"{key} has shape {tuple(table.shape)}; expected {(policy.num_prompts, len(self.number))}",
                    argument=key,
                    value=tuple(table.shape),
                    expected=(policy.num_prompts, len(self.number)),
                    problem="shape",
                )
        self.reference = self.distribution(ref_model)

    def sample_prompts(self, count: int, step: int, seed: int) -> list[int]:
        """Return the prompt indices of a step, in rotation."""
        return [(step * count + i) % len(self.prompts) for i in range(count)]

    def grade(self, picked: Sequence[int], rollout: Rollout, watch: bool) -> tuple[Tensor, Tensor]:
        """Look up the reward of each row."""
        rows = zip(rollout.completion_ids, rollout.mask, strict=True)
        completion_indices = torch.tensor([self.number[tuple(row[mask].tolist())] for row, mask in rows])
        rewards = self.values["reward"][picked].gather(1, rollout.grouped(completion_indices))  # (P, G)
        return rewards, torch.ones_like(rewards, dtype=torch.bool)

    @torch.no_grad()
    def distribution(self, model: ToyLM) -> Tensor:
        """Return the probability of every completion, ``(num_prompts, N)``."""
        batches = [model.batch(prompt) for prompt in range(model.num_prompts)]
        logps = [completion_logps(model, b["input_ids"], b["attention_mask"], model.max_len) for b in batches]
        return torch.stack([sequence_logps(x, b["mask"]) for x, b in zip(logps, batches, strict=True)]).exp()

    def metrics(self) -> dict[str, float]:
        """Return the exact metrics of the current policy."""
        probs = self.distribution(self.policy)
        means = {f"exact_{key}": float(exact.expectation(probs, values).mean()) for key, values in self.values.items()}
        return {**means, "exact_kl": float(exact.divergence(probs, self.reference).mean())}
