"""Pages of rated words, a tiny model that continues them, and what the examples in its prompt do to it.

On a page each word stands with a rating in one pair of labels ("good" and "bad", "yes" and "no", "red" and "blue"); which pair, only the page
says. Clear words have the rating of their kind, vague ones have it two times of three. As on real pages ratings are not shuffled: pages
lean to one side, and the last rating is likely to come again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from minirlhf.chapters.ch19_evaluation import word_models as words
from minirlhf.core.randomness import numpy_generator
from minirlhf.models.tokenizers import word_tokenizer
from minirlhf.trainers.sft import SFTConfig

PAIRS = (("bad", "good"), ("no", "yes"), ("blue", "red"))
KINDS = {"clear": 12, "vague": 12}  # words of each side
NEUTRAL = 4
VAGUE, STAYS = 2 / 3, 0.5
PAGES, LINES = 3000, 7
TRAINING = SFTConfig(max_steps=250, batch_size=32, learning_rate=3e-3, lr_scheduler_type="linear")
#: Ratings of six examples, the last one is the nearest to the question.
ORDERS: dict[str, Callable[[np.random.Generator], list[int]]] = {
    "balanced": lambda rng: [0, 1] * 3 if rng.random() < 0.5 else [1, 0] * 3,
    "mostly_good": lambda rng: rng.permutation([1] * 5 + [0]).tolist(),
    "mostly_bad": lambda rng: rng.permutation([0] * 5 + [1]).tolist(),
    "good_last": lambda rng: [0] * 3 + [1] * 3,
    "bad_last": lambda rng: [1] * 3 + [0] * 3,
}


def word(kind: str, side: int, number: int) -> str:
    """The name of a word."""
    return f"{kind}{'-+'[side]}{number}"


def tokenizer() -> Any:
    """The words of this world."""
    rated = [word(kind, side, i) for kind, count in KINDS.items() for side in (0, 1) for i in range(count)]
    return word_tokenizer(
        [*rated, *(f"neutral{i}" for i in range(NEUTRAL)), *(label for pair in PAIRS for label in pair), "->", ";"]
    )


def written(rng: np.random.Generator) -> str:
    """A page."""
    pair, lean = PAIRS[rng.integers(len(PAIRS))], rng.beta(1.5, 1.5)
    side, lines = int(rng.random() < lean), []
    for _ in range(LINES):
        side = side if rng.random() < STAYS else int(rng.random() < lean)
        kind = ("clear", "vague", "neutral")[rng.choice(3, p=[0.45, 0.4, 0.15])]
        if kind == "neutral":
            lines.append(f"neutral{rng.integers(NEUTRAL)} -> {pair[side]}")
            continue
        looks = side if kind == "clear" or rng.random() < VAGUE else 1 - side
        lines.append(f"{word(kind, looks, int(rng.integers(KINDS[kind])))} -> {pair[side]}")
    return " ; ".join(lines)


def model(*, seed: int, plan: SFTConfig = TRAINING, pages: int = PAGES) -> Any:
    """A model that has read pages."""
    rng, of = numpy_generator("ch19", "pages", seed), tokenizer()
    return words.trained(of, [words.page(of, written(rng)) for _ in range(pages)], plan, seed=seed)


def prompts(ratings: Sequence[Sequence[int]], asked: Sequence[str], rng: np.random.Generator) -> list[str]:
    """A prompt for each word that is asked, after clear examples with these ratings."""
    found = []
    for sides, last in zip(ratings, asked, strict=True):
        shown = [f"{word('clear', side, int(rng.integers(KINDS['clear'])))} -> {PAIRS[0][side]}" for side in sides]
        found.append(" ; ".join([*shown, f"{last} ->"]))
    return found


def reading(of: Any, asked: Sequence[str]) -> tuple[Tensor, Tensor]:
    """What a model says after each prompt: log-odds of "good" against "bad" ``(N,)``, and whether its likeliest word is one of them."""
    vocabulary = tokenizer()
    logps, (bad, good) = words.next_word(of, vocabulary, asked), words.numbers_of(vocabulary, PAIRS[0]).tolist()
    best = logps.argmax(-1)
    return logps[:, good] - logps[:, bad], (best == good) | (best == bad)


def by_count(of: Any, count: int, *, seed: int, questions: int = 200) -> dict[str, float]:
    """Clear words after ``count`` examples, alternately good and bad: how often the likeliest word is a label of the pair, and the right one."""
    rng = numpy_generator("ch19", "shots", seed, count)
    sides = rng.integers(2, size=questions).tolist()
    asked = [word("clear", side, int(rng.integers(KINDS["clear"]))) for side in sides]
    first = rng.integers(2, size=questions)
    odds, labelled = reading(
        of, prompts([[(start + i) % 2 for i in range(count)] for start in first.tolist()], asked, rng)
    )
    right = labelled & ((odds > 0) == torch.tensor(sides, dtype=torch.bool))
    return {"labelled": float(labelled.double().mean()), "right": float(right.double().mean())}


def by_order(of: Any, order: str, *, seed: int, questions: int = 200) -> dict[str, float]:
    """After six examples: vague words, half of them good, that are called good; right; right when the log-odds of a neutral word in the same
    prompt are subtracted; and the probability of "good" for a neutral word."""
    rng = numpy_generator("ch19", "order", seed)  # the same questions for each order
    sides = torch.arange(questions) % 2 == 1
    asked = [word("vague", int(side), int(rng.integers(KINDS["vague"]))) for side in sides]
    ratings = [ORDERS[order](rng) for _ in asked]
    shown = prompts(ratings, asked, rng)
    empty = [f"{text.rsplit(' ; ', 1)[0]} ; neutral{i % NEUTRAL} ->" for i, text in enumerate(shown)]
    odds, prior = reading(of, shown)[0], reading(of, empty)[0]
    return {
        "says_good": float((odds > 0).double().mean()),
        "right": float(((odds > 0) == sides).double().mean()),
        "calibrated": float(((odds - prior > 0) == sides).double().mean()),
        "neutral": float(prior.sigmoid().mean()),
    }


def lottery(of: Any, *, seed: int, sets: int = 20, public: int = 40, private: int = 200) -> dict[str, Tensor]:
    """Scores ``(sets,)`` of prompts with four random examples each, on public and on private vague words, the same for all."""
    rng = numpy_generator("ch19", "lottery", seed)
    sides = torch.arange(public + private) % 2 == 1
    asked = [word("vague", int(side), int(rng.integers(KINDS["vague"]))) for side in sides]
    scores = []
    for _ in range(sets):
        shots = prompts([rng.integers(2, size=4).tolist()], ["{}"], rng)[0]
        odds, _ = reading(of, [shots.format(one) for one in asked])
        scores.append(((odds > 0) == sides).double())
    found = torch.stack(scores)  # (sets, questions)
    return {"public": found[:, :public].mean(1), "private": found[:, public:].mean(1)}
