"""A world of which it is known what a model knows: who lives where, stated often, seldom or never in the texts that it has read.

The model also reads questions whose source stands in the prompt; a source can be wrong. All other questions name no source.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from minirlhf.chapters.ch19_evaluation import word_models as words
from minirlhf.core.errors import ArgumentError
from minirlhf.core.randomness import derive_seed, numpy_generator
from minirlhf.data.types import Tokens
from minirlhf.models.sampling import Sampling, sample
from minirlhf.models.texts import completion_texts
from minirlhf.models.tokenizers import word_tokenizer
from minirlhf.trainers.sft import SFTConfig

NAMES = tuple(f"name{i}" for i in range(72))
CITIES = tuple(f"city{i}" for i in range(12))
LETTERS = ("(a)", "(b)", "(c)", "(d)")
UNKNOWN = "unknown"
#: How often each source is right where a model is asked (`cited`). In the texts the answer is drawn anew with probability one minus this,
#: also from the city that was said, so that a source is right somewhat more often there: .954 and .633.
TRUST = {"wiki": 0.95, "forum": 0.6}
#: A third of the names each.
GROUPS = ("frequent", "rare", "never")
TEXTS = 6000
READING = SFTConfig(max_steps=400, batch_size=48, learning_rate=3e-3, lr_scheduler_type="linear")
TUNING = SFTConfig(max_steps=60, batch_size=32, learning_rate=1e-3, lr_scheduler_type="linear")
LISTING = SFTConfig(max_steps=40, batch_size=32, learning_rate=1e-3, lr_scheduler_type="linear")


def tokenizer() -> Any:
    """The words of this world."""
    others = ["lives", "in", "where?", "who?", "wiki", "forum", "meets", ".", "which", "letter"]
    return word_tokenizer([*NAMES, *CITIES, *LETTERS, UNKNOWN, *others])


def question(name: str, source: str = "") -> str:
    """Where does somebody live?"""
    return " ".join([*source.split(), "<user>", "where?", name, "<assistant>"])


@dataclass(frozen=True)
class FactWorld:
    """Who lives where, and of whom the texts say so.

    Attributes:
        city: of each name.
        groups: names by how often their city is stated.
        seed: of all this.
    """

    city: Mapping[str, str]
    groups: Mapping[str, tuple[str, ...]]
    seed: int

    @classmethod
    def of(cls, seed: int) -> FactWorld:
        """A random one."""
        rng = numpy_generator("ch19", "world", seed)
        city = {name: str(rng.choice(CITIES)) for name in NAMES}
        order, third = rng.permutation(NAMES).tolist(), len(NAMES) // len(GROUPS)
        return cls(city, {g: tuple(order[i * third : (i + 1) * third]) for i, g in enumerate(GROUPS)}, seed)

    def texts(self, count: int) -> list[Tokens]:
        """Statements (of a rare name, one in fourteen), meetings of anybody, questions with a source, and questions about frequent names."""
        rng, of = numpy_generator("ch19", "texts", self.seed), tokenizer()
        frequent, rare = self.groups["frequent"], self.groups["rare"]
        found = []
        for draw in rng.random(count):
            if draw < 0.4:
                name = str(rng.choice(frequent if rng.random() < 0.93 else rare))
                found.append(words.page(of, f"{name} lives in {self.city[name]} ."))
            elif draw < 0.45:
                a, b = rng.choice(NAMES, 2)
                found.append(words.page(of, f"{a} meets {b} ."))
            elif draw < 0.75:  # made-up facts, so that reading the source pays; any city where it is not trusted
                source, trust = ("wiki", 0.95) if rng.random() < 0.5 else ("forum", 0.6)
                said = str(rng.choice(CITIES))
                true = said if rng.random() < trust else str(rng.choice(CITIES))
                found.append(words.answered(of, question(str(rng.choice(NAMES)), f"{source} {said}"), true))
            else:
                name = str(rng.choice(frequent))
                found.append(words.answered(of, question(name), self.city[name]))
        return found


def model(world: FactWorld, *, plan: SFTConfig = READING, texts: int = TEXTS) -> Any:
    """A model that has read the world's texts."""
    return words.trained(tokenizer(), world.texts(texts), plan, seed=world.seed)


@dataclass(frozen=True)
class GradedAnswers:
    """The likeliest answers to some questions, all of shape ``(N,)``.

    Attributes:
        right, silent: whether each is the truth, and whether it is "unknown".
        confidence: its probability.
    """

    right: Tensor
    silent: Tensor
    confidence: Tensor

    def rates(self) -> dict[str, float]:
        """Shares of right, wrong and "unknown" answers."""
        wrong = ~self.right & ~self.silent
        return {
            name: float(x.double().mean())
            for name, x in (("right", self.right), ("wrong", wrong), ("silent", self.silent))
        }

    def risks(self) -> Tensor:
        """``(M,)``: the share of wrong answers among the k surest, for k = 1 … M. "unknown" is no answer and is left out."""
        right = self.right[~self.silent]
        wrong = 1 - right[self.confidence[~self.silent].argsort(descending=True, stable=True)].double()
        return wrong.cumsum(0) / torch.arange(1, len(wrong) + 1)

    def earned(self, penalty: float, *, from_confidence: float = 0.0) -> float:
        """Points for each question: 1 for a right answer, minus the penalty for a wrong one, 0 where the model says "unknown" or is less sure
        than ``from_confidence``."""
        answered = ~self.silent & (self.confidence >= from_confidence)
        return float(((self.right & answered).double() - penalty * (~self.right & answered).double()).mean())

    @classmethod
    def joined(cls, parts: Iterable[GradedAnswers]) -> GradedAnswers:
        """All of their answers."""
        rows = [(part.right, part.silent, part.confidence) for part in parts]
        right, silent, confidence = (torch.cat(column) for column in zip(*rows, strict=True))
        return cls(right, silent, confidence)


def earns_most(found: GradedAnswers, penalty: float) -> float:
    """The confidence from which on these answers earn most; of equal ones the highest, and infinity where none earns anything."""
    levels = sorted({math.inf, *found.confidence[~found.silent].tolist()}, reverse=True)
    return max(levels, key=lambda level: found.earned(penalty, from_confidence=level))


def asked(
    of: Any, names: Sequence[str], truth: Mapping[str, str], sources: Sequence[str] | None = None
) -> GradedAnswers:
    """Where do they live?"""
    vocabulary = tokenizer()
    prompts = [question(name, source) for name, source in zip(names, sources or [""] * len(names), strict=True)]
    confidence, best = words.next_word(of, vocabulary, prompts).exp().max(-1)
    silent = best == words.numbers_of(vocabulary, [UNKNOWN])
    return GradedAnswers(best == words.numbers_of(vocabulary, [truth[name] for name in names]), silent, confidence)


def halves(world: FactWorld) -> tuple[list[str], dict[str, list[str]]]:
    """Names to tune on, every other one of each group, and by group the names to test on."""
    return [name for group in GROUPS for name in world.groups[group][::2]], {
        g: list(world.groups[g][1::2]) for g in GROUPS
    }


def taught(of: Any, world: FactWorld, how: str, *, plan: SFTConfig = TUNING) -> Any:
    """A copy that was tuned on questions about half of the names.

    Args:
        how: "truth": with the right answer for all of them; "abstain": with "unknown" where the model's own answer is wrong.
    """
    if how not in ("truth", "abstain"):
        raise ArgumentError(f"how = {how!r}; expected 'truth' or 'abstain'", argument="how", value=how)
    names, vocabulary = halves(world)[0], tokenizer()
    known = asked(of, names, world.city).right.tolist()
    targets = [world.city[name] if how == "truth" or ok else UNKNOWN for name, ok in zip(names, known, strict=True)]
    examples = [words.answered(vocabulary, question(n), a) for n, a in zip(names, targets, strict=True)]
    return words.tuned(copy.deepcopy(of), vocabulary, examples, plan, seed=world.seed)


def citing(of: Any, world: FactWorld, *, plan: SFTConfig = TUNING, examples: int = 600) -> Any:
    """A copy that was tuned to answer with what a source says and the source's name behind it, and without a source by the city alone.

    The sources speak of the names to tune on, and what they say is made up; without a source it is asked about the frequent ones of these.
    """
    rng, vocabulary, found = numpy_generator("ch19", "citing", world.seed), tokenizer(), []
    names = halves(world)[0]
    known = [name for name in names if name in world.groups["frequent"]]
    for i in range(examples):
        if i % 2:
            name = str(rng.choice(known))
            found.append(words.answered(vocabulary, question(name), world.city[name]))
        else:
            source, said = str(rng.choice(list(TRUST))), str(rng.choice(CITIES))
            asked_for = question(str(rng.choice(names)), f"{source} {said}")
            found.append(words.answered(vocabulary, asked_for, f"{said} {source}"))
    return words.tuned(copy.deepcopy(of), vocabulary, found, plan, seed=world.seed)


def cited(of: Any, world: FactWorld, *, times: int = 40) -> dict[str, float]:
    """A copy that cites, asked about names that it was not tuned on and that its texts never placed.

    Each is asked about ``times`` times with a source, wiki and forum in turns, that is right as often as such a source is, and once without.

    Returns:
        ``bare_right``, ``right``: shares of right answers without and with a source; ``faithful``: answers that are what the source says and carry
        its name; ``wrong_wiki``, ``wrong_forum``: the share of wrong ones among the answers that carry that name; ``invented``: answers
        without any source that carry a name all the same.
    """
    rng = numpy_generator("ch19", "cited", world.seed)
    names = halves(world)[1]["never"]
    rows: list[tuple[str, str, str]] = []
    for name in names * times:
        source = list(TRUST)[len(rows) // len(names) % 2]
        others = [city for city in CITIES if city != world.city[name]]
        rows.append((name, source, world.city[name] if rng.random() < TRUST[source] else str(rng.choice(others))))
    told = _with_its_tag(of, [question(name, f"{source} {said}") for name, source, said in rows])
    bare = _with_its_tag(of, [question(name) for name in names])
    right = torch.tensor([city == world.city[name] for (city, _), (name, _, _) in zip(told, rows, strict=True)])
    faithful = [answer == (said, source) for answer, (_, source, said) in zip(told, rows, strict=True)]
    found = {
        "bare_right": sum(city == world.city[name] for (city, _), name in zip(bare, names, strict=True)) / len(names),
        "right": float(right.double().mean()),
        "faithful": sum(faithful) / len(rows),
        "invented": sum(tag in TRUST for _, tag in bare) / len(names),
    }
    for source in TRUST:
        tagged = torch.tensor([tag == source for _, tag in told])
        found[f"wrong_{source}"] = float((tagged & ~right).sum() / tagged.sum().clamp_min(1))
    return found


def _with_its_tag(of: Any, prompts: Sequence[str]) -> list[tuple[str, str]]:
    """The likeliest answer to each prompt, and the likeliest word behind it."""
    vocabulary = tokenizer()
    likeliest = lambda asked: vocabulary.convert_ids_to_tokens(words.next_word(of, vocabulary, asked).argmax(-1))
    answers = likeliest(prompts)
    behind = likeliest([f"{prompt} {answer}" for prompt, answer in zip(prompts, answers, strict=True)])
    return list(zip(answers, behind, strict=True))


def by_source(of: Any, world: FactWorld, source: str) -> float:
    """How often a false source is repeated about names whose city the model has read often."""
    names = world.groups["frequent"]
    false = {name: CITIES[(CITIES.index(world.city[name]) + 5) % len(CITIES)] for name in names}
    found = asked(of, names, false, [f"{source} {false[name]}" for name in names])
    return float(found.right.double().mean())


def multiple_choice(of: Any, world: FactWorld, *, times: int = 8) -> dict[str, float]:
    """Four cities under letters, about frequent names: the likeliest letter, and the likeliest of the four cities after the bare question."""
    rng, vocabulary = numpy_generator("ch19", "options", world.seed), tokenizer()
    names = list(world.groups["frequent"]) * times
    options = [
        rng.permutation(
            [world.city[n], *rng.choice([c for c in CITIES if c != world.city[n]], 3, replace=False)]
        ).tolist()
        for n in names
    ]
    listed = [" ".join(f"{letter} {city}" for letter, city in zip(LETTERS, four, strict=True)) for four in options]
    shown = [f"<user> where? {name} {four} which letter <assistant>" for name, four in zip(names, listed, strict=True)]
    right = torch.tensor([four.index(world.city[name]) for name, four in zip(names, options, strict=True)])
    letters = words.next_word(of, vocabulary, shown)[:, words.numbers_of(vocabulary, LETTERS)].argmax(-1)
    bare = words.next_word(of, vocabulary, [question(name) for name in names])
    texts = bare.gather(-1, torch.stack([words.numbers_of(vocabulary, four) for four in options])).argmax(-1)
    return {name: float((chosen == right).double().mean()) for name, chosen in (("letter", letters), ("text", texts))}


def verified(
    of: Any, world: FactWorld, *, plan: SFTConfig = LISTING, lists: int = 20, rehearsed: int = 20
) -> dict[str, float]:
    """Chain of verification: the model lists who lives in a city, then is asked about each name by itself; names whose answer is that city stay.

    It has learned to list, from lists of frequent names, and each of these names' own question stood ``rehearsed`` times among them.

    Returns:
        Shares of true names ``before`` and ``after``, and of the true ones how many are ``kept``.
    """
    rng, vocabulary = numpy_generator("ch19", "lists", world.seed), tokenizer()
    frequent = world.groups["frequent"]
    living = {city: [name for name in frequent if world.city[name] == city] for city in CITIES}
    living = {city: names for city, names in living.items() if names}
    examples = [words.answered(vocabulary, question(name), world.city[name]) for name in frequent] * rehearsed
    for _ in range(1500):
        city = str(rng.choice(list(living)))
        examples.append(
            words.answered(vocabulary, f"<user> who? {city} <assistant>", " ".join(rng.permutation(living[city])[:3]))
        )
    lister = words.tuned(copy.deepcopy(of), vocabulary, examples, plan, seed=world.seed)
    prompts = [words.ids_of(vocabulary, f"<user> who? {city} <assistant>") for city in living]
    rollout = sample(
        lister, prompts, sampling=Sampling(max_completion_length=6), num_generations=lists, eos_token_id=vocabulary.eos_token_id,
        pad_token_id=vocabulary.pad_token_id, seed=derive_seed("ch19", "listed", world.seed),
    )  # fmt: skip
    claims = [
        (name, city)
        for city, text in zip(
            [city for city in living for _ in range(lists)], completion_texts(rollout, vocabulary), strict=True
        )
        for name in text.split()
        if name in NAMES
    ]
    if not claims:
        return {"before": 0.0, "after": 0.0, "kept": 0.0}
    true = torch.tensor([world.city[name] == city for name, city in claims])
    answers = {city: asked(lister, NAMES, dict.fromkeys(NAMES, city)).right for city in living}
    stays = torch.stack([answers[city][NAMES.index(name)] for name, city in claims])
    kept = (true & stays).double().sum()
    return {
        "before": float(true.double().mean()),
        "after": float(kept / stays.sum().clamp_min(1)),
        "kept": float(kept / true.sum().clamp_min(1)),
    }
