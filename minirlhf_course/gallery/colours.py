"""A toy task for broken runs, "which colour?": a transformer that trains in seconds and logs all metrics of real runs.

There are three prompts and five words: the end, three colours, and "please". A completion is correct if it contains
the requested colour once, no other colour, and "please" at most once. Completions have at most six words; a completion
of six words without an end is truncated.
"""

from __future__ import annotations

import copy
import functools
import math
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn
from transformers import LlamaConfig, LlamaForCausalLM

from minirlhf.core.randomness import derive_seed, generator
from minirlhf.data.types import Rollout, Tokens
from minirlhf.models.sampling import sample
from minirlhf.recipes import GRPO, Recipe
from minirlhf.recipes.parts import ScoredRollout
from minirlhf.trainers.config import OnlineConfig
from minirlhf.trainers.history import History
from minirlhf.trainers.online import train_in_env
from minirlhf.trainers.rollouts import RolloutEnv
from minirlhf.trainers.sft import SFTConfig, train_sft

WORDS = (".", "red", "green", "blue", "please")
END, PLEASE = 0, 4
BLUE = 2  # the third question
QUESTIONS = [[len(WORDS) + i] for i in range(3)]
PAD = len(WORDS) + len(QUESTIONS)
LONGEST = 6
#: The reference's distribution of the first word for each prompt (correct colour: .4, .3, .1), and of later words.
FIRST = ((0.05, 0.40, 0.15, 0.15, 0.25), (0.05, 0.25, 0.30, 0.15, 0.25), (0.05, 0.45, 0.15, 0.10, 0.25))
THEN = (0.50, 0.10, 0.10, 0.10, 0.20)

Grader = Callable[[int, Sequence[int]], float]
Monitor = Callable[[Sequence[int]], bool]


def gold(asked: int, reply: Sequence[int]) -> float:
    """Return 1 if the requested colour (0, 1 or 2) occurs once, no other colour, and "please" at most once; else 0."""
    colours = [word for word in reply if word not in (END, PLEASE)]
    return float(colours == [asked + 1] and reply.count(PLEASE) <= 1)


def finished(asked: int, reply: Sequence[int]) -> float:
    """Return 1 if the completion is correct and ends by itself, else 0."""
    return gold(asked, reply) * (reply[-1] == END)


def polite(asked: int, reply: Sequence[int]) -> float:
    """Return the score of a plausible reward model: 1 for a correct completion, plus 0.4 for each "please"."""
    return gold(asked, reply) + 0.4 * reply.count(PLEASE)


def by_length(asked: int, reply: Sequence[int]) -> float:
    """Return 1 for a correct completion, plus 0.4 per word."""
    return gold(asked, reply) + 0.4 * len(reply)


def reads_all(reply: Sequence[int]) -> bool:
    """Flag a completion with more than one "please"."""
    return reply.count(PLEASE) > 1


def written(count: int, seed: int) -> list[Tokens]:
    """Sample prompts with completions from the reference's distribution; the end is a token of the completion."""
    rng, examples = generator("colours", seed), []
    for number in range(count):
        prompt = number % len(QUESTIONS)
        completion: list[int] = []
        while (not completion or completion[-1] != END) and len(completion) < LONGEST:
            probabilities = torch.tensor(THEN if completion else FIRST[prompt])
            completion.append(int(torch.multinomial(probabilities, 1, generator=rng)))
        examples.append(Tokens(QUESTIONS[prompt] + completion, [False] + [True] * len(completion)))
    return examples


def blank(seed: int = 0) -> nn.Module:
    """Return an untrained transformer of 13,000 weights."""
    config = LlamaConfig(
        vocab_size=PAD + 1, hidden_size=32, intermediate_size=88, num_hidden_layers=1, num_attention_heads=2,
        max_position_embeddings=32, initializer_range=0.06, tie_word_embeddings=True, bos_token_id=None, eos_token_id=END,
        pad_token_id=PAD,
    )  # fmt: skip
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(derive_seed("colours", seed))
        return LlamaForCausalLM(config)


@functools.lru_cache
def _reference() -> nn.Module:
    model = blank()
    train_sft(model, written(1200, 0), SFTConfig(max_steps=150, batch_size=64, learning_rate=1e-2,
              lr_scheduler_type="linear"), pad_token_id=PAD, quiet=True)  # fmt: skip
    return model


def reference() -> nn.Module:
    """Return the initial model of the runs, trained by SFT on :func:`written`."""
    return copy.deepcopy(_reference())


@dataclass(frozen=True)
class Setup:
    """A complete definition of an online run. A failure changes one field, or one value of the recipe or settings.

    Attributes:
        recipe, config: the algorithm and its settings.
        grader: the optimised reward, before the fine; NaN means that the grader failed.
        monitor, fine: each completion that the monitor flags costs this fine.
        asked: the questions of training.
        costs: whether the costs are logged.
        end: the token that ends a completion.
        longest: the maximum number of words; longer completions are truncated.
        prompts_first: whether rewards reach the recipe in the order of the completions, prompt by prompt.
        sampling_temperature: the temperature of the sampler, if it differs from the trainer's.
        moving_reference: whether the reference is the policy itself.
    """

    recipe: Recipe
    config: OnlineConfig
    grader: Grader = gold
    monitor: Monitor = reads_all
    fine: float = 0.0
    asked: tuple[int, ...] = (0, 1, 2)
    costs: bool = False
    end: int = END
    longest: int = LONGEST
    prompts_first: bool = True
    sampling_temperature: float | None = None
    moving_reference: bool = False

    def with_(self, **changes: Any) -> Setup:
        """Return the same run with other values of its fields, of the settings, or of the recipe."""
        field_changes = {k: v for k, v in changes.items() if k in self.__dataclass_fields__}
        config = {k: v for k, v in changes.items() if k in self.config.__dataclass_fields__ and k not in field_changes}
        recipe = {k: v for k, v in changes.items() if k not in field_changes and k not in config}
        changed = replace(self, config=replace(self.config, **config), **field_changes)
        return replace(changed, recipe=changed.recipe.with_(**recipe)) if recipe else changed

    def run(self, seed: int) -> History:
        """Train; return the metrics of every step, which include the gold reward of the same completions."""
        policy = reference()
        env = Colours(self)
        return train_in_env(
            policy,
            env,
            self.recipe,
            replace(self.config, seed=seed, max_completion_length=self.longest),
            ref_model=policy if self.moving_reference else None,
            quiet=True,
        )


#: Four updates per rollout, so that ratios differ from 1 and the clip has an effect.
BASE = Setup(
    GRPO.with_(num_iterations=2, num_minibatches=2, beta=0.02),
    OnlineConfig(max_steps=60, batch_size=9, num_generations=8, learning_rate=3e-3),
)


class Colours(RolloutEnv):
    """An environment that gives the prompts of training in turn.

    It logs the gold reward and, if the setup says so, three costs: the fractions of the completions that the monitor
    flags (``cost_flags``) and that have more than one "please" (``cost_please``), and the latter fraction for the third
    question (``cost_blue``). If training does not ask this question, additional completions are sampled.
    """

    timed = False

    def __init__(self, setup: Setup) -> None:
        super().__init__(QUESTIONS, eos_token_id=setup.end, pad_token_id=PAD)
        self.setup, self.seen = setup, dict[str, float]()

    def sample_prompts(self, count: int, step: int, seed: int) -> list[int]:
        """Return the indices 0, 1, 2, 0, ... of the prompts."""
        return [self.setup.asked[i % len(self.setup.asked)] for i in range(count)]

    def grade(self, picked: Sequence[int], rollout: Rollout, watch: bool) -> tuple[Tensor, Tensor]:
        """Grade by the setup's grader and monitor; if ``watch``, record the gold reward and the costs."""
        completions = _completions(rollout)
        prompts = [prompt for prompt in picked for _ in range(rollout.num_generations)]
        if watch:
            self.seen = {"gold": statistics.fmean(map(gold, prompts, completions))}
        if watch and self.setup.costs:
            blue = [reads_all(r) for p, r in zip(prompts, completions, strict=True) if p == BLUE]
            self.seen |= {
                "cost_flags": statistics.fmean(map(self.setup.monitor, completions)),
                "cost_please": statistics.fmean(map(reads_all, completions)),
                "cost_blue": statistics.fmean(blue) if blue else math.nan,
            }
        fines = [self.setup.fine * self.setup.monitor(completion) for completion in completions]
        scores = torch.tensor(
            [self.setup.grader(p, r) - fine for p, r, fine in zip(prompts, completions, fines, strict=True)],
            dtype=torch.float64,
        )
        valid = scores.isfinite()
        rewards = torch.where(valid, scores, 0.0)
        if not self.setup.prompts_first:  # rewards are assigned to samples in a wrong order
            rewards = rewards.view(rollout.num_generations, -1).t().flatten()
        return rollout.grouped(rewards), rollout.grouped(valid)

    def generate_and_score(self, policy: Any, config: Any, picked: Sequence[int], **which: Any) -> ScoredRollout:
        """Generate and score; at ``sampling_temperature`` if the setup has one."""
        if self.setup.sampling_temperature is not None:
            config = replace(config, temperature=self.setup.sampling_temperature)
        scored = super().generate_and_score(policy, config, picked, **which)
        if self.setup.costs and BLUE not in picked:
            others = sample(
                policy, [self.prompts[BLUE]], sampling=config.sampling(), num_generations=3 * config.num_generations,
                eos_token_id=self.eos_token_id, pad_token_id=self.pad_token_id, seed=which["seed"], step=which["step"],
            )  # fmt: skip
            self.seen["cost_blue"] = statistics.fmean(map(reads_all, _completions(others)))
        return scored

    def metrics(self) -> dict[str, float]:
        """Return the gold reward of the last rollout, and the costs."""
        return self.seen


def _completions(rollout: Rollout) -> list[list[int]]:
    return [row[mask].tolist() for row, mask in zip(rollout.completion_ids, rollout.mask, strict=True)]
