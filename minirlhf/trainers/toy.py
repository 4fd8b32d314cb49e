"""Online reinforcement learning on an enumerable model: the same sampling, credit and update as on any other, and beside
the sampled metrics the exact ones, so that one can see where a recipe really goes."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from functools import partial

import torch
from torch import Tensor

from minirlhf.core import exact
from minirlhf.core.exact import ToyLM
from minirlhf.core.logprobs import sequence_logps
from minirlhf.core.validate import require_finite
from minirlhf.data.types import Rollout
from minirlhf.models.forward import completion_logps
from minirlhf.models.sampling import sample
from minirlhf.recipes import Graded, OnDemand, Recipe
from minirlhf.trainers.collecting import Sampler, collect, decouple
from minirlhf.trainers.history import History
from minirlhf.trainers.improve import improve
from minirlhf.trainers.loop import Loop
from minirlhf.trainers.online import OnlineConfig, for_run, observe, with_opinions

#: 120 rollouts of 8 groups of 8: about two seconds for a few dozen responses, and enough for a recipe to come to rest.
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
    """Improve ``policy`` in place on its own samples; prompts take turns.

    Args:
        policy: with ``num_prompts`` prompts and ``N`` possible responses to each.
        rewards: ``(num_prompts, N)``, in the order of ``policy.responses()``.
        recipe: the algorithm.
        config: ``batch_size`` counts prompts; the same prompt may come several times, each with a group of its own.
            ``max_completion_length`` is the policy's own.
        ref_model: the reference; it is not changed.
        monitors: other values of every response, ``(num_prompts, N)`` each, whose exact mean is logged as ``exact_<name>``.

    Returns:
        The metrics of each step, with ``exact_reward`` and ``exact_kl`` (nats per response, against ``ref_model``) of the policy
        after its update, averaged over the prompts.
    """
    config = dataclasses.replace(config, max_completion_length=policy.max_len)
    recipe = for_run(recipe, config)
    responses = policy.responses()
    number = {
        tuple(row[kept].tolist()): n for n, (row, kept) in enumerate(zip(responses.tokens, responses.mask, strict=True))
    }
    watched = {"reward": rewards, **(monitors or {})}
    for key, values in watched.items():
        require_finite(**{key: values})
        if values.shape != (policy.num_prompts, len(number)):
            raise ValueError(f"{key} has shape {tuple(values.shape)}; expected {(policy.num_prompts, len(number))}")
    batches = [policy.batch(prompt) for prompt in range(policy.num_prompts)]

    @torch.no_grad()
    def distribution(model: ToyLM) -> Tensor:
        """``(num_prompts, N)``"""
        every = [completion_logps(model, b["input_ids"], b["attention_mask"], policy.max_len) for b in batches]
        return torch.stack([sequence_logps(x, b["mask"]) for x, b in zip(every, batches, strict=True)]).exp()

    reference = distribution(ref_model)
    loop = Loop(name or recipe.name, policy, config, quiet=quiet)
    sampler = Sampler(loop, config.staleness)

    def draw(seed: int, num_generations: int = config.num_generations, greedy: bool = False) -> Graded:
        sampling_policy, version = sampler.policy()
        asked = [(loop.step * config.batch_size + i) % policy.num_prompts for i in range(config.batch_size)]
        rollout = sample(
            sampling_policy,
            [[policy.vocab_size + prompt] for prompt in asked],
            sampling=dataclasses.replace(config.sampling(), greedy=greedy),
            num_generations=num_generations,
            eos_token_id=policy.eos_token_id,
            pad_token_id=policy.pad_token_id,
            seed=seed,
            step=loop.step,
            policy_version=version,
            use_cache=False,
        )
        graded = _grade(rollout, rewards[asked], number)
        return graded if greedy else recipe.credit.complete(graded, OnDemand(partial(draw, seed, 1, greedy=True)))

    for _ in loop:
        everything, graded, share = collect(draw, recipe, config, pad_token_id=policy.pad_token_id)
        if recipe.update.decoupled:
            graded = decouple(graded, policy, config.temperature)
        graded = with_opinions(graded, ref_model, None, config)
        metrics = improve(loop, recipe.collect(graded), recipe, config)[0] if share != 0 else {}
        now = distribution(policy)
        sums = {f"exact_{key}": float(exact.expectation(now, values).mean()) for key, values in watched.items()}
        loop.log(
            **observe(everything, graded, share),
            **sums,
            exact_kl=float(exact.divergence(now, reference).mean()),
            **metrics,
        )
    return loop.history


def _grade(rollout: Rollout, rewards: Tensor, number: Mapping[tuple[int, ...], int]) -> Graded:
    """Look the reward of each row up in its prompt's ``rewards (P, N)``."""
    rows = zip(rollout.completion_ids, rollout.mask, strict=True)
    picked = rollout.grouped(torch.tensor([number[tuple(row[kept].tolist())] for row, kept in rows]))  # (P, G)
    return Graded(rollout, rewards.gather(1, picked), torch.ones_like(picked, dtype=torch.bool))
