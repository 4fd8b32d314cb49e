"""Failures of learning from given text (SFT) and given preferences (DPO), in the world of :mod:`.colours`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import nn

from minirlhf.core.randomness import generator
from minirlhf.data.collate import collate
from minirlhf.data.types import PreferenceExample, Tokens, pair
from minirlhf.gallery.colours import END, LONGEST, PAD, QUESTIONS, blank, gold, reference, written
from minirlhf.gallery.failure import BrokenRun
from minirlhf.models.sampling import Sampling, sample
from minirlhf.recipes.offline import PreferenceRecipe, get_preference
from minirlhf.trainers.history import History
from minirlhf.trainers.likelihood import marked_logps
from minirlhf.trainers.loop import TrainerCallback
from minirlhf.trainers.offline import EvalPreferences, OfflineConfig, train_offline
from minirlhf.trainers.sft import SFTConfig, train_sft

#: Examples that no run trains on.
HELD = written(240, 1)


@torch.no_grad()
def held_out_loss(model: nn.Module) -> float:
    """Nats per token of the replies that were kept apart."""
    batch = collate(HELD, PAD)
    return float(-marked_logps(model, batch)[batch.loss_mask[:, 1:]].mean())


def stops(model: nn.Module) -> float:
    """The share of 96 sampled replies that end by themselves."""
    rollout = sample(
        model, QUESTIONS, sampling=Sampling(max_completion_length=LONGEST), num_generations=32, eos_token_id=END, pad_token_id=PAD, seed=0
    )  # fmt: skip
    return float(rollout.terminated.float().mean())


@dataclass(frozen=True)
class Imitation:
    """Fine-tuning of a blank model on :func:`~minirlhf.gallery.colours.written`, watched on replies that were kept apart.

    Attributes:
        config: the trainer's settings.
        examples: how many.
        ends: whether the end of a reply is among the labels.
    """

    config: SFTConfig = SFTConfig(max_steps=120, batch_size=32, learning_rate=1e-2)
    examples: int = 1200
    ends: bool = True

    def with_(self, **changes: Any) -> Imitation:
        """The same run with other values, of these fields or of the settings."""
        own = {k: v for k, v in changes.items() if k in self.__dataclass_fields__}
        rest = {k: v for k, v in changes.items() if k not in own}
        return replace(self, config=replace(self.config, **rest), **own)

    def rows(self, seed: int) -> list[Tokens]:
        """What is trained on."""
        found = written(self.examples, seed + 2)
        return found if self.ends else [_endless(example) for example in found if len(example) > 2]

    def run(self, seed: int) -> History:
        """Train; every fifth step the held-out loss and the share of replies that end."""
        model = blank(seed)
        watch = TrainerCallback(5, lambda: {"held_out_loss": held_out_loss(model), "frac_terminated": stops(model)})
        return train_sft(
            model, self.rows(seed), replace(self.config, seed=seed), pad_token_id=PAD, watch=watch, quiet=True
        )


@dataclass(frozen=True)
class Preferences:
    """DPO on pairs of the reference's own replies, the right one chosen; watched on pairs that were kept apart, labelled rightly.

    Attributes:
        loss: a row of the table of losses, with its numbers.
        config: the trainer's settings.
        pairs: how many.
        swapped: the share of the labels that are exchanged.
        longer_wins: whether the longer reply is the chosen one, right or wrong.
        reference_is_start: whether the reference is the model that the run starts from; otherwise it is a blank one.
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
        own = {k: v for k, v in changes.items() if k in self.__dataclass_fields__}
        rest = {k: v for k, v in changes.items() if k not in own}
        return replace(self, config=replace(self.config, **rest), **own)

    def compared(self, count: int, seed: int, swapped: float, longer_wins: bool) -> list[PreferenceExample]:
        """Pairs of replies to one question, a right and a wrong one."""
        draws = generator("colours pairs", seed)
        right, wrong = _sorted_replies(seed)
        found = []
        for number in range(count):
            question = number % len(QUESTIONS)
            good, bad = (_one_of(some[question], draws) for some in (right, wrong))
            if float(torch.rand((), generator=draws)) < swapped or (longer_wins and len(bad) > len(good)):
                good, bad = bad, good
            found.append(pair(_tokens(question, good), _tokens(question, bad)))
        return found

    def run(self, seed: int) -> History:
        """Train; every fifth step the metrics on the pairs kept apart."""
        model = reference()
        ref_model = reference() if self.reference_is_start else blank(1)
        recipe: PreferenceRecipe = get_preference(self.loss).with_(beta=self.beta)
        held = EvalPreferences(self.compared(150, 10_001, 0.0, False), recipe, ref_model, pad_token_id=PAD)

        def measure() -> dict[str, float]:
            return {f"held_out_{name}": value for name, value in held.measure(model).items()}

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
    """The same, with nothing to be learned from its end."""
    kept = [inside and token != END for token, inside in zip(example.input_ids, example.loss_mask, strict=True)]
    return Tokens(example.input_ids, kept)


def _sorted_replies(seed: int) -> tuple[list[list[list[int]]], list[list[list[int]]]]:
    """Right and wrong replies that end, for each question."""
    right: list[list[list[int]]] = [[] for _ in QUESTIONS]
    wrong: list[list[list[int]]] = [[] for _ in QUESTIONS]
    for number, example in enumerate(written(1500, seed + 1_000)):
        question, reply = number % len(QUESTIONS), example.input_ids[1:]
        if reply[-1] == END and len(reply) < LONGEST:
            (right if gold(question, reply) else wrong)[question].append(reply)
    return right, wrong


def _one_of(replies: Sequence[list[int]], draws: torch.Generator) -> list[int]:
    return replies[int(torch.randint(len(replies), (), generator=draws))]


def _tokens(question: int, reply: list[int]) -> Tokens:
    return Tokens(QUESTIONS[question] + reply, [False] + [True] * len(reply))


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
