"""Pages of rated words, a tiny model that continues them, and the effect of the examples in its prompt.

On a page a rating follows each word. All ratings of a page use one pair of labels ("good" and "bad", "yes" and "no",
"red" and "blue"), and only the page itself shows which pair. A clear word has the rating of its kind; a vague word has
it with probability 2/3. As on real pages the ratings are not shuffled: each page favours one side, and the last rating
is likely to be repeated.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from minirlhf.core.randomness import numpy_generator
from minirlhf.models.tokenizers import word_tokenizer
from minirlhf.trainers.sft import SFTConfig
from minirlhf_course.chapters.ch19_evaluation import word_models as words

PAIRS = (("bad", "good"), ("no", "yes"), ("blue", "red"))
KINDS = {"clear": 12, "vague": 12}  # number of words per side
NEUTRAL = 4
VAGUE, STAYS = 2 / 3, 0.5
PAGES, LINES = 3000, 7
TRAINING = SFTConfig(max_steps=250, batch_size=32, learning_rate=3e-3, lr_scheduler_type="linear")
#: Ratings of the six examples; the last example is the nearest to the question.
ORDERS: dict[str, Callable[[np.random.Generator], list[int]]] = {
    "balanced": lambda rng: [0, 1] * 3 if rng.random() < 0.5 else [1, 0] * 3,
    "mostly_good": lambda rng: rng.permutation([1] * 5 + [0]).tolist(),
    "mostly_bad": lambda rng: rng.permutation([0] * 5 + [1]).tolist(),
    "good_last": lambda rng: [0] * 3 + [1] * 3,
    "bad_last": lambda rng: [1] * 3 + [0] * 3,
}


def word(kind: str, side: int, number: int) -> str:
    """Return the name of a word."""
    return f"{kind}{'-+'[side]}{number}"


def tokenizer() -> Any:
    """Return the word tokenizer of these pages."""
    vocab = [word(kind, side, i) for kind, count in KINDS.items() for side in (0, 1) for i in range(count)]
    return word_tokenizer(
        [*vocab, *(f"neutral{i}" for i in range(NEUTRAL)), *(label for pair in PAIRS for label in pair), "->", ";"]
    )


def written(rng: np.random.Generator) -> str:
    """Return a random page."""
    pair, positive_rate = PAIRS[rng.integers(len(PAIRS))], rng.beta(1.5, 1.5)
    side, lines = int(rng.random() < positive_rate), []
    for _ in range(LINES):
        side = side if rng.random() < STAYS else int(rng.random() < positive_rate)
        kind = ("clear", "vague", "neutral")[rng.choice(3, p=[0.45, 0.4, 0.15])]
        if kind == "neutral":
            lines.append(f"neutral{rng.integers(NEUTRAL)} -> {pair[side]}")
            continue
        word_side = side if kind == "clear" or rng.random() < VAGUE else 1 - side
        lines.append(f"{word(kind, word_side, int(rng.integers(KINDS[kind])))} -> {pair[side]}")
    return " ; ".join(lines)


def model(*, seed: int, plan: SFTConfig = TRAINING, pages: int = PAGES) -> Any:
    """Train a model on random pages."""
    rng, vocabulary = numpy_generator("ch19", "pages", seed), tokenizer()
    return words.trained(vocabulary, [words.page(vocabulary, written(rng)) for _ in range(pages)], plan, seed=seed)


def prompts(ratings: Sequence[Sequence[int]], asked: Sequence[str], rng: np.random.Generator) -> list[str]:
    """Return one prompt for each word in ``asked``: clear examples with these ratings, then the word."""
    texts = []
    for sides, query in zip(ratings, asked, strict=True):
        shots = [f"{word('clear', side, int(rng.integers(KINDS['clear'])))} -> {PAIRS[0][side]}" for side in sides]
        texts.append(" ; ".join([*shots, f"{query} ->"]))
    return texts


def reading(of: Any, asked: Sequence[str]) -> tuple[Tensor, Tensor]:
    """Return for each prompt the log-odds of "good" against "bad" ``(N,)``, and whether the most probable word is
    one of these two ``(N,)``."""
    vocabulary = tokenizer()
    logps, (bad, good) = words.next_word(of, vocabulary, asked), words.numbers_of(vocabulary, PAIRS[0]).tolist()
    predicted = logps.argmax(-1)
    return logps[:, good] - logps[:, bad], (predicted == good) | (predicted == bad)


def by_count(of: Any, count: int, *, seed: int, questions: int = 200) -> dict[str, float]:
    """Ask for clear words after ``count`` examples, which are alternately good and bad.

    Returns:
        Fractions of questions: ``labelled``, the most probable word is a label of the pair; ``right``, it is the right
        label.
    """
    rng = numpy_generator("ch19", "shots", seed, count)
    sides = rng.integers(2, size=questions).tolist()
    query_words = [word("clear", side, int(rng.integers(KINDS["clear"]))) for side in sides]
    first_ratings = rng.integers(2, size=questions)
    log_odds, labelled = reading(
        of, prompts([[(first + i) % 2 for i in range(count)] for first in first_ratings.tolist()], query_words, rng)
    )
    correct = labelled & ((log_odds > 0) == torch.tensor(sides, dtype=torch.bool))
    return {"labelled": float(labelled.double().mean()), "right": float(correct.double().mean())}


def by_order(of: Any, order: str, *, seed: int, questions: int = 200) -> dict[str, float]:
    """Ask for vague words, half of them good, after six examples in this order.

    Returns:
        ``says_good``: fraction of words that are called good; ``right``: accuracy; ``calibrated``: accuracy after the
        log-odds of a neutral word in the same prompt are subtracted; ``neutral``: mean probability of "good", against
        "bad", for the neutral word.
    """
    rng = numpy_generator("ch19", "order", seed)  # the same questions for each order
    sides = torch.arange(questions) % 2 == 1
    query_words = [word("vague", int(side), int(rng.integers(KINDS["vague"]))) for side in sides]
    ratings = [ORDERS[order](rng) for _ in query_words]
    query_prompts = prompts(ratings, query_words, rng)
    neutral_prompts = [f"{text.rsplit(' ; ', 1)[0]} ; neutral{i % NEUTRAL} ->" for i, text in enumerate(query_prompts)]
    log_odds, neutral_log_odds = reading(of, query_prompts)[0], reading(of, neutral_prompts)[0]
    return {
        "says_good": float((log_odds > 0).double().mean()),
        "right": float(((log_odds > 0) == sides).double().mean()),
        "calibrated": float(((log_odds - neutral_log_odds > 0) == sides).double().mean()),
        "neutral": float(neutral_log_odds.sigmoid().mean()),
    }


def lottery(of: Any, *, seed: int, sets: int = 20, public: int = 40, private: int = 200) -> dict[str, Tensor]:
    """Return the accuracies ``(sets,)`` of prompts with four random examples each, on public and on private vague
    words. All prompts are scored on the same words."""
    rng = numpy_generator("ch19", "lottery", seed)
    sides = torch.arange(public + private) % 2 == 1
    query_words = [word("vague", int(side), int(rng.integers(KINDS["vague"]))) for side in sides]
    rows = []
    for _ in range(sets):
        shots = prompts([rng.integers(2, size=4).tolist()], ["{}"], rng)[0]
        log_odds, _ = reading(of, [shots.format(query) for query in query_words])
        rows.append(((log_odds > 0) == sides).double())
    correct = torch.stack(rows)  # (sets, questions)
    return {"public": correct[:, :public].mean(1), "private": correct[:, public:].mean(1)}
