"""A world for broken runs: "which colour?", a transformer that trains in seconds, and every number that real runs log.

Three questions, five words: the end, three colours, and "please". A reply is right if it says the colour that was asked for once, no
other colour, and "please" at most once. Replies have at most six words; one of that length without an end is cut off.
"""

from __future__ import annotations

import copy
import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn
from transformers import LlamaConfig, LlamaForCausalLM

from minirlhf.core.randomness import derive_seed, generator
from minirlhf.data.types import Rollout, Tokens
from minirlhf.recipes import GRPO, Recipe
from minirlhf.recipes.parts import ScoredRollout
from minirlhf.trainers.config import OnlineConfig
from minirlhf.trainers.history import History
from minirlhf.trainers.online import train_in_env
from minirlhf.trainers.rollouts import RolloutEnv
from minirlhf.trainers.sft import SFTConfig, train_sft

WORDS = (".", "red", "green", "blue", "please")
END, PLEASE = 0, 4
QUESTIONS = [[len(WORDS) + i] for i in range(3)]
PAD = len(WORDS) + len(QUESTIONS)
LONGEST = 6
#: What the reference says first to each question: the right colour in .4, .3 and .1 of its replies. And after any word.
FIRST = ((0.05, 0.40, 0.15, 0.15, 0.25), (0.05, 0.25, 0.30, 0.15, 0.25), (0.05, 0.45, 0.15, 0.10, 0.25))
THEN = (0.50, 0.10, 0.10, 0.10, 0.20)

Grader = Callable[[int, Sequence[int]], float]


def gold(asked: int, reply: Sequence[int]) -> float:
    """1 if the colour that was asked for (0, 1 or 2) is said once, no other, and "please" at most once; else 0."""
    colours = [word for word in reply if word not in (END, PLEASE)]
    return float(colours == [asked + 1] and reply.count(PLEASE) <= 1)


def finished(asked: int, reply: Sequence[int]) -> float:
    """Right, and ended by its own end."""
    return gold(asked, reply) * (reply[-1] == END)


def polite(asked: int, reply: Sequence[int]) -> float:
    """What a reward model might have learned: right replies are good, and so is every "please"."""
    return gold(asked, reply) + 0.4 * reply.count(PLEASE)


def by_length(asked: int, reply: Sequence[int]) -> float:
    """Right replies are good, and so is every word."""
    return gold(asked, reply) + 0.4 * len(reply)


def written(count: int, seed: int) -> list[Tokens]:
    """Questions with replies as the reference writes them; an end is always said."""
    draws, found = generator("colours", seed), []
    for number in range(count):
        question = number % len(QUESTIONS)
        reply: list[int] = []
        while (not reply or reply[-1] != END) and len(reply) < LONGEST:
            chances = torch.tensor(THEN if reply else FIRST[question])
            reply.append(int(torch.multinomial(chances, 1, generator=draws)))
        found.append(Tokens(QUESTIONS[question] + reply, [False] + [True] * len(reply)))
    return found


def blank(seed: int = 0) -> nn.Module:
    """A transformer of 13,000 weights that knows nothing."""
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
    """The model that runs start from: it imitates :func:`written`."""
    return copy.deepcopy(_reference())


@dataclass(frozen=True)
class Setup:
    """An online run, all of it: a failure changes one field, or one number or function of the recipe or the settings.

    Attributes:
        recipe, config: the algorithm and its settings.
        grader: what is optimised; NaN means that it failed.
        end: the token that ends a reply.
        longest: after so many words a reply is cut off.
        prompts_first: whether rewards reach the recipe in the order of the completions, prompt by prompt.
        sampling_temperature: of the sampler, if it is not the trainer's.
        moving_reference: whether the reference is the policy itself.
    """

    recipe: Recipe
    config: OnlineConfig
    grader: Grader = gold
    end: int = END
    longest: int = LONGEST
    prompts_first: bool = True
    sampling_temperature: float | None = None
    moving_reference: bool = False

    def with_(self, **changes: Any) -> Setup:
        """The same run with other values: of these fields, of the settings, or of the recipe."""
        own = {k: v for k, v in changes.items() if k in self.__dataclass_fields__}
        config = {k: v for k, v in changes.items() if k in self.config.__dataclass_fields__ and k not in own}
        recipe = {k: v for k, v in changes.items() if k not in own and k not in config}
        changed = replace(self, config=replace(self.config, **config), **own)
        return replace(changed, recipe=changed.recipe.with_(**recipe)) if recipe else changed

    def run(self, seed: int) -> History:
        """Train; the metrics of every step, with the gold reward of the same replies beside what was optimised."""
        policy = reference()
        world = Colours(self)
        return train_in_env(
            policy,
            world,
            self.recipe,
            replace(self.config, seed=seed, max_completion_length=self.longest),
            ref_model=policy if self.moving_reference else None,
            quiet=True,
        )


#: Four updates per rollout, so that ratios and the clip have something to do.
BASE = Setup(
    GRPO.with_(num_iterations=2, num_minibatches=2, beta=0.02),
    OnlineConfig(max_steps=60, batch_size=9, num_generations=8, learning_rate=3e-3),
)


class Colours(RolloutEnv):
    """The three questions in turn."""

    timed = False

    def __init__(self, setup: Setup) -> None:
        super().__init__(QUESTIONS, eos_token_id=setup.end, pad_token_id=PAD)
        self.setup, self.seen = setup, math.nan

    def sample_prompts(self, count: int, step: int, seed: int) -> list[int]:
        """They take turns."""
        return [i % len(self.prompts) for i in range(count)]

    def grade(self, picked: Sequence[int], rollout: Rollout, watch: bool) -> tuple[Tensor, Tensor]:
        """By the setup's grader; the gold reward is noted."""
        replies = [row[kept].tolist() for row, kept in zip(rollout.completion_ids, rollout.mask, strict=True)]
        asked = [prompt for prompt in picked for _ in range(rollout.num_generations)]
        if watch:
            truth = [gold(prompt, reply) for prompt, reply in zip(asked, replies, strict=True)]
            self.seen = sum(truth) / len(truth)
        found = torch.tensor(
            [self.setup.grader(p, r) for p, r in zip(asked, replies, strict=True)], dtype=torch.float64
        )
        valid = found.isfinite()
        rewards = torch.where(valid, found, 0.0)
        if not self.setup.prompts_first:  # the k-th reward is taken for the k-th sample of the batch in another order
            rewards = rewards.view(rollout.num_generations, -1).t().flatten()
        return rollout.grouped(rewards), rollout.grouped(valid)

    def generate_and_score(self, policy: Any, config: Any, picked: Sequence[int], **which: Any) -> ScoredRollout:
        """As sampled; with another temperature than the trainer's, if the setup says so."""
        if self.setup.sampling_temperature is None:
            return super().generate_and_score(policy, config, picked, **which)
        return super().generate_and_score(
            policy, replace(config, temperature=self.setup.sampling_temperature), picked, **which
        )

    def metrics(self) -> dict[str, float]:
        """The gold reward of the last draw."""
        return {"gold": self.seen}
