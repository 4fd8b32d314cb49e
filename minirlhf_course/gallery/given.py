"""Failures of SFT and of DPO, on the toy task of :mod:`.colours`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import nn

from minirlhf.core.randomness import generator
from minirlhf.data.collate import collate
from minirlhf.data.types import PreferenceExample, Tokens, pair
from minirlhf.models.sampling import Sampling, sample
from minirlhf.recipes.offline import PreferenceRecipe, get_preference
from minirlhf.trainers.history import History
from minirlhf.trainers.likelihood import marked_logps
from minirlhf.trainers.loop import TrainerCallback
from minirlhf.trainers.offline import EvalPreferences, OfflineConfig, train_offline
from minirlhf.trainers.sft import SFTConfig, train_sft
from minirlhf_course.gallery.colours import END, LONGEST, PAD, QUESTIONS, blank, gold, reference, written
from minirlhf_course.gallery.failure import BrokenRun

#: Held-out examples: no run trains on them.
HELD = written(240, 1)


@torch.no_grad()
def held_out_loss(model: nn.Module) -> float:
    """Return the loss on held-out completions, in nats per token."""
    batch = collate(HELD, PAD)
    return float(-marked_logps(model, batch)[batch.loss_mask[:, 1:]].mean())


def stops(model: nn.Module) -> float:
    """Return the fraction of 96 sampled completions that are not truncated."""
    rollout = sample(
        model, QUESTIONS, sampling=Sampling(max_completion_length=LONGEST), num_generations=32, eos_token_id=END, pad_token_id=PAD, seed=0
    )  # fmt: skip
    return float(rollout.terminated.float().mean())


@dataclass(frozen=True)
class Imitation:
    """SFT of an untrained model on :func:`~minirlhf_course.gallery.colours.written`, evaluated on held-out completions.

    Attributes:
        config: the trainer's settings.
        examples: number of examples.
        ends: whether the end token is trained on.
    """

    config: SFTConfig = SFTConfig(max_steps=120, batch_size=32, learning_rate=1e-2)
    examples: int = 1200
    ends: bool = True

    def with_(self, **changes: Any) -> Imitation:
        """The same run with other values, of these fields or of the settings."""
        field_changes = {k: v for k, v in changes.items() if k in self.__dataclass_fields__}
        config_changes = {k: v for k, v in changes.items() if k not in field_changes}
        return replace(self, config=replace(self.config, **config_changes), **field_changes)

    def rows(self, seed: int) -> list[Tokens]:
        """Return the training examples."""
        examples = written(self.examples, seed + 2)
        return examples if self.ends else [_endless(example) for example in examples if len(example) > 2]

    def run(self, seed: int) -> History:
        """Train; log the held-out loss and the fraction of completions that end every fifth step."""
        model = blank(seed)
        watch = TrainerCallback(5, lambda: {"held_out_loss": held_out_loss(model), "frac_terminated": stops(model)})
        return train_sft(
            model, self.rows(seed), replace(self.config, seed=seed), pad_token_id=PAD, watch=watch, quiet=True
        )


@dataclass(frozen=True)
class Preferences:
    """DPO on pairs of the reference's completions, the correct one chosen; evaluated on correct held-out pairs.

    Attributes:
        loss: name of a preference loss.
        config: the trainer's settings.
        pairs: number of pairs.
        swapped: the fraction of flipped labels.
        longer_wins: whether the longer completion is chosen, correct or not.
        reference_is_start: whether the reference is the initial model; otherwise it is an untrained model.
    """

    loss: str = "dpo"
    beta: float = 0.1
    config: OfflineConfig = OfflineConfig(max_steps=80, batch_size=32, learning_rate=1e-3)
    pairs: int = 600
    swapped: float = 0.0
    longer_wins: bool = False
    reference_is_start: bool = True

    def with_(self, **changes: Any) -> Preferences:
        """The same run with other values, of these fields or of the settings."""
        field_changes = {k: v for k, v in changes.items() if k in self.__dataclass_fields__}
        config_changes = {k: v for k, v in changes.items() if k not in field_changes}
        return replace(self, config=replace(self.config, **config_changes), **field_changes)

    def compared(self, count: int, seed: int, swapped: float, longer_wins: bool) -> list[PreferenceExample]:
        """Return pairs of a correct and a wrong completion for one prompt."""
        rng = generator("colours pairs", seed)
        right, wrong = _sorted_replies(seed)
        pairs = []
        for number in range(count):
            prompt = number % len(QUESTIONS)
            chosen, rejected = (_one_of(completions[prompt], rng) for completions in (right, wrong))
            if float(torch.rand((), generator=rng)) < swapped or (longer_wins and len(rejected) > len(chosen)):
                chosen, rejected = rejected, chosen
            pairs.append(pair(_tokens(prompt, chosen), _tokens(prompt, rejected)))
        return pairs

    def run(self, seed: int) -> History:
        """Train; log the metrics on the held-out pairs every fifth step."""
        model = reference()
        ref_model = reference() if self.reference_is_start else blank(1)
        recipe: PreferenceRecipe = get_preference(self.loss).with_(beta=self.beta)
        eval_pairs = EvalPreferences(self.compared(150, 10_001, 0.0, False), recipe, ref_model, pad_token_id=PAD)

        def measure() -> dict[str, float]:
            return {f"held_out_{name}": value for name, value in eval_pairs.measure(model).items()}

        return train_offline(
            model,
            self.compared(self.pairs, seed, self.swapped, self.longer_wins),
            recipe,
            replace(self.config, seed=seed),
            pad_token_id=PAD,
            ref_model=ref_model,
            watch=TrainerCallback(5, measure),
            quiet=True,
        )


def _endless(example: Tokens) -> Tokens:
    """Return the same example with the end token masked in the loss."""
    mask = [trained and token != END for token, trained in zip(example.input_ids, example.loss_mask, strict=True)]
    return Tokens(example.input_ids, mask)


def _sorted_replies(seed: int) -> tuple[list[list[list[int]]], list[list[list[int]]]]:
    """Return the correct and the wrong completions that end, for each prompt."""
    right: list[list[list[int]]] = [[] for _ in QUESTIONS]
    wrong: list[list[list[int]]] = [[] for _ in QUESTIONS]
    for number, example in enumerate(written(1500, seed + 1_000)):
        prompt, completion = number % len(QUESTIONS), example.input_ids[1:]
        if completion[-1] == END and len(completion) < LONGEST:
            (right if gold(prompt, completion) else wrong)[prompt].append(completion)
    return right, wrong


def _one_of(completions: Sequence[list[int]], rng: torch.Generator) -> list[int]:
    return completions[int(torch.randint(len(completions), (), generator=rng))]


def _tokens(prompt: int, completion: list[int]) -> Tokens:
    return Tokens(QUESTIONS[prompt] + completion, [False] + [True] * len(completion))


IMITATION, PAIRS = Imitation(), Preferences()

FAILURES = (
    BrokenRun(
        "sft_learning_rate", IMITATION, ("learning_rate", 0.3), ("loss", "held_out_loss", "grad_norm"), ("loss_jumps",)
    ),
    BrokenRun("memorised", IMITATION, ("examples", 24), ("loss", "held_out_loss", "grad_norm"), ("memorises",)),
    BrokenRun("no_end", IMITATION, ("ends", False), ("loss", "held_out_loss", "frac_terminated"), ("never_ends",)),
    BrokenRun("swapped", PAIRS, ("swapped", 1.0), ("accuracy", "held_out_accuracy", "margin"), ("labels_swapped",)),
    BrokenRun(
        "longer_wins",
        PAIRS,
        ("longer_wins", True),
        ("accuracy", "held_out_accuracy", "chosen_reward"),
        ("labels_swapped",),
    ),
    BrokenRun("coin_flips", PAIRS, ("swapped", 0.5), ("loss", "accuracy", "grad_norm"), ("coin_toss",)),
    BrokenRun(
        "wrong_reference",
        PAIRS,
        ("reference_is_start", False),
        ("chosen_reward", "rejected_reward", "loss"),
        ("start_disagrees",),
    ),
    BrokenRun(
        "preference_rate_low",
        PAIRS,
        ("learning_rate", 1e-6),
        ("loss", "margin", "accuracy"),
        ("steps_too_small",),
    ),
    BrokenRun(
        "pushed_apart", PAIRS, ("learning_rate", 0.03), ("margin", "rejected_logp", "chosen_reward"), ("pushes_apart",)
    ),
)
