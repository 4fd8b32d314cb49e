"""A world in which we know what a model knows: the city of each name, stated often, seldom or never in its training
texts.

The training texts also hold questions with a source in the prompt; a source can be wrong. All other questions name no
source.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from minirlhf.core.errors import ArgumentError
from minirlhf.core.randomness import derive_seed, numpy_generator
from minirlhf.data.types import Tokens
from minirlhf.models.sampling import Sampling, sample
from minirlhf.models.texts import completion_texts
from minirlhf.models.tokenizers import word_tokenizer
from minirlhf.trainers.sft import SFTConfig
from minirlhf_course.chapters.ch19_evaluation import word_models as words

NAMES = tuple(f"name{i}" for i in range(72))
CITIES = tuple(f"city{i}" for i in range(12))
LETTERS = ("(a)", "(b)", "(c)", "(d)")
UNKNOWN = "unknown"
#: How often each source is right in the evaluation (`cited`). In the training texts the answer is resampled with
#: probability one minus this, and the city of the source can be drawn again. So a source is right somewhat more often
#: there: .954 and .633.
TRUST = {"wiki": 0.95, "forum": 0.6}
#: Each group has a third of the names.
GROUPS = ("frequent", "rare", "never")
TEXTS = 6000
READING = SFTConfig(max_steps=400, batch_size=48, learning_rate=3e-3, lr_scheduler_type="linear")
TUNING = SFTConfig(max_steps=60, batch_size=32, learning_rate=1e-3, lr_scheduler_type="linear")
LISTING = SFTConfig(max_steps=40, batch_size=32, learning_rate=1e-3, lr_scheduler_type="linear")


def tokenizer() -> Any:
    """Return the word tokenizer of this world."""
    others = ["lives", "in", "where?", "who?", "wiki", "forum", "meets", ".", "which", "letter"]
    return word_tokenizer([*NAMES, *CITIES, *LETTERS, UNKNOWN, *others])


def question(name: str, source: str = "") -> str:
    """Return the question where ``name`` lives; ``source`` stands before it."""
    return " ".join([*source.split(), "<user>", "where?", name, "<assistant>"])


@dataclass(frozen=True)
class FactWorld:
    """The city of each name, and the names whose city the texts state.

    Attributes:
        city: the city of each name.
        groups: names by how often their city is stated.
        seed: seed of the cities, the groups and the texts.
    """

    city: Mapping[str, str]
    groups: Mapping[str, tuple[str, ...]]
    seed: int

    @classmethod
    def of(cls, seed: int) -> FactWorld:
        """Return a random world."""
        rng = numpy_generator("ch19", "world", seed)
        city = {name: str(rng.choice(CITIES)) for name in NAMES}
        order, third = rng.permutation(NAMES).tolist(), len(NAMES) // len(GROUPS)
        return cls(city, {g: tuple(order[i * third : (i + 1) * third]) for i, g in enumerate(GROUPS)}, seed)

    def texts(self, count: int) -> list[Tokens]:
        """Return training texts: statements (one in fourteen is about a rare name), meetings of any two names,
        questions with a source, and questions about frequent names."""
        rng, vocabulary = numpy_generator("ch19", "texts", self.seed), tokenizer()
        frequent, rare = self.groups["frequent"], self.groups["rare"]
        texts = []
        for u in rng.random(count):
            if u < 0.4:
                name = str(rng.choice(frequent if rng.random() < 0.93 else rare))
                texts.append(words.page(vocabulary, f"{name} lives in {self.city[name]} ."))
            elif u < 0.45:
                a, b = rng.choice(NAMES, 2)
                texts.append(words.page(vocabulary, f"{a} meets {b} ."))
            elif u < 0.75:  # made-up facts, so that reading the source pays; else a random city
                source, trust = ("wiki", 0.95) if rng.random() < 0.5 else ("forum", 0.6)
                city = str(rng.choice(CITIES))
                answer = city if rng.random() < trust else str(rng.choice(CITIES))
                texts.append(words.answered(vocabulary, question(str(rng.choice(NAMES)), f"{source} {city}"), answer))
            else:
                name = str(rng.choice(frequent))
                texts.append(words.answered(vocabulary, question(name), self.city[name]))
        return texts


def model(world: FactWorld, *, plan: SFTConfig = READING, texts: int = TEXTS) -> Any:
    """Train a model on the world's texts."""
    return words.trained(tokenizer(), world.texts(texts), plan, seed=world.seed)


@dataclass(frozen=True)
class GradedAnswers:
    """The most probable answers to some questions, all of shape ``(N,)``.

    Attributes:
        right, silent: whether each answer is correct, and whether it is "unknown".
        confidence: its probability.
    """

    right: Tensor
    silent: Tensor
    confidence: Tensor

    def rates(self) -> dict[str, float]:
        """Return the fractions of right, wrong and "unknown" answers."""
        wrong = ~self.right & ~self.silent
        return {
            name: float(x.double().mean())
            for name, x in (("right", self.right), ("wrong", wrong), ("silent", self.silent))
        }

    def risks(self) -> Tensor:
        """Return ``(M,)``: the fraction of wrong answers among the k most confident ones, for k = 1 … M. "unknown"
        is no answer and is left out."""
        right = self.right[~self.silent]
        wrong = 1 - right[self.confidence[~self.silent].argsort(descending=True, stable=True)].double()
        return wrong.cumsum(0) / torch.arange(1, len(wrong) + 1)

    def earned(self, penalty: float, *, from_confidence: float = 0.0) -> float:
        """Return the mean score per question: 1 for a right answer, minus the penalty for a wrong one, 0 where the
        model says "unknown" or its confidence is below ``from_confidence``."""
        answered = ~self.silent & (self.confidence >= from_confidence)
        return float(((self.right & answered).double() - penalty * (~self.right & answered).double()).mean())

    @classmethod
    def joined(cls, parts: Iterable[GradedAnswers]) -> GradedAnswers:
        """Concatenate the answers of all parts."""
        rows = [(part.right, part.silent, part.confidence) for part in parts]
        right, silent, confidence = (torch.cat(column) for column in zip(*rows, strict=True))
        return cls(right, silent, confidence)


def earns_most(found: GradedAnswers, penalty: float) -> float:
    """Return the confidence threshold at which these answers score highest. Of equal thresholds it is the highest
    one, and infinity if no threshold gives a positive score."""
    levels = sorted({math.inf, *found.confidence[~found.silent].tolist()}, reverse=True)
    return max(levels, key=lambda level: found.earned(penalty, from_confidence=level))


def asked(
    of: Any, names: Sequence[str], truth: Mapping[str, str], sources: Sequence[str] | None = None
) -> GradedAnswers:
    """Ask the model where these names live, and grade its most probable answers by ``truth``."""
    vocabulary = tokenizer()
    prompts = [question(name, source) for name, source in zip(names, sources or [""] * len(names), strict=True)]
    confidence, predicted = words.next_word(of, vocabulary, prompts).exp().max(-1)
    silent = predicted == words.numbers_of(vocabulary, [UNKNOWN])
    return GradedAnswers(predicted == words.numbers_of(vocabulary, [truth[name] for name in names]), silent, confidence)


def halves(world: FactWorld) -> tuple[list[str], dict[str, list[str]]]:
    """Return the names to tune on, every other name of each group, and the names to test on, by group."""
    return [name for group in GROUPS for name in world.groups[group][::2]], {
        g: list(world.groups[g][1::2]) for g in GROUPS
    }


def taught(of: Any, world: FactWorld, how: str, *, plan: SFTConfig = TUNING) -> Any:
    """Return a copy that was tuned on questions about half of the names.

    Args:
        how: "truth": with the right answer for all of them; "abstain": with "unknown" where the model's own answer is
            wrong.
    """
    if how not in ("truth", "abstain"):
        raise ArgumentError(f"how = {how!r}; expected 'truth' or 'abstain'", argument="how", value=how)
    names, vocabulary = halves(world)[0], tokenizer()
    known = asked(of, names, world.city).right.tolist()
    targets = [world.city[name] if how == "truth" or hit else UNKNOWN for name, hit in zip(names, known, strict=True)]
    examples = [words.answered(vocabulary, question(n), a) for n, a in zip(names, targets, strict=True)]
    return words.tuned(copy.deepcopy(of), vocabulary, examples, plan, seed=world.seed)


def citing(of: Any, world: FactWorld, *, plan: SFTConfig = TUNING, examples: int = 600) -> Any:
    """Return a copy that was tuned to cite. With a source it answers with the source's city and then the source's
    name; without a source, with the city alone.

    The sources speak of the names to tune on, and their cities are made up. Questions without a source are about the
    frequent ones of these names.
    """
    rng, vocabulary, training_examples = numpy_generator("ch19", "citing", world.seed), tokenizer(), []
    names = halves(world)[0]
    known = [name for name in names if name in world.groups["frequent"]]
    for i in range(examples):
        if i % 2:
            name = str(rng.choice(known))
            training_examples.append(words.answered(vocabulary, question(name), world.city[name]))
        else:
            source, source_city = str(rng.choice(list(TRUST))), str(rng.choice(CITIES))
            prompt = question(str(rng.choice(names)), f"{source} {source_city}")
            training_examples.append(words.answered(vocabulary, prompt, f"{source_city} {source}"))
    return words.tuned(copy.deepcopy(of), vocabulary, training_examples, plan, seed=world.seed)


def cited(of: Any, world: FactWorld, *, times: int = 40) -> dict[str, float]:
    """Ask a copy that cites about the names that it was not tuned on and whose city its texts never state.

    Each name is asked ``times`` times with a source, alternately wiki and forum, which is right with its probability in
    :data:`TRUST`, and once without a source.

    Returns:
        ``bare_right``, ``right``: fractions of right answers without and with a source; ``faithful``: fraction of
        answers that give the source's city and carry its name; ``wrong_wiki``, ``wrong_forum``: the fraction of wrong
        ones among the answers that carry that name; ``invented``: fraction of answers without any source that carry a
        source's name all the same.
    """
    rng = numpy_generator("ch19", "cited", world.seed)
    names = halves(world)[1]["never"]
    rows: list[tuple[str, str, str]] = []
    for name in names * times:
        source = list(TRUST)[len(rows) // len(names) % 2]
        other_cities = [city for city in CITIES if city != world.city[name]]
        rows.append((name, source, world.city[name] if rng.random() < TRUST[source] else str(rng.choice(other_cities))))
    sourced = _with_its_tag(of, [question(name, f"{source} {source_city}") for name, source, source_city in rows])
    bare = _with_its_tag(of, [question(name) for name in names])
    correct = torch.tensor([city == world.city[name] for (city, _), (name, _, _) in zip(sourced, rows, strict=True)])
    faithful = [answer == (source_city, source) for answer, (_, source, source_city) in zip(sourced, rows, strict=True)]
    result = {
        "bare_right": sum(city == world.city[name] for (city, _), name in zip(bare, names, strict=True)) / len(names),
        "right": float(correct.double().mean()),
        "faithful": sum(faithful) / len(rows),
        "invented": sum(tag in TRUST for _, tag in bare) / len(names),
    }
    for source in TRUST:
        tagged = torch.tensor([tag == source for _, tag in sourced])
        result[f"wrong_{source}"] = float((tagged & ~correct).sum() / tagged.sum().clamp_min(1))
    return result


def _with_its_tag(lm: Any, prompts: Sequence[str]) -> list[tuple[str, str]]:
    """Return the most probable answer to each prompt, and the most probable word after it."""
    vocabulary = tokenizer()
    most_probable = lambda texts: vocabulary.convert_ids_to_tokens(words.next_word(lm, vocabulary, texts).argmax(-1))
    answers = most_probable(prompts)
    tags = most_probable([f"{prompt} {answer}" for prompt, answer in zip(prompts, answers, strict=True)])
    return list(zip(answers, tags, strict=True))


def by_source(of: Any, world: FactWorld, source: str) -> float:
    """Return how often the model repeats the false city of a source, for names whose city it has read often."""
    names = world.groups["frequent"]
    false_cities = {name: CITIES[(CITIES.index(world.city[name]) + 5) % len(CITIES)] for name in names}
    answers = asked(of, names, false_cities, [f"{source} {false_cities[name]}" for name in names])
    return float(answers.right.double().mean())


def multiple_choice(of: Any, world: FactWorld, *, times: int = 8) -> dict[str, float]:
    """Ask for the city of frequent names, with four cities under letters.

    Returns:
        The accuracy of ``letter``, the most probable letter, and of ``text``, the most probable of the four cities
        after the bare question.
    """
    rng, vocabulary = numpy_generator("ch19", "options", world.seed), tokenizer()
    names = list(world.groups["frequent"]) * times
    options = [
        rng.permutation(
            [world.city[n], *rng.choice([c for c in CITIES if c != world.city[n]], 3, replace=False)]
        ).tolist()
        for n in names
    ]
    lists = [" ".join(f"{letter} {city}" for letter, city in zip(LETTERS, four, strict=True)) for four in options]
    prompts = [f"<user> where? {name} {four} which letter <assistant>" for name, four in zip(names, lists, strict=True)]
    right = torch.tensor([four.index(world.city[name]) for name, four in zip(names, options, strict=True)])
    letters = words.next_word(of, vocabulary, prompts)[:, words.numbers_of(vocabulary, LETTERS)].argmax(-1)
    bare = words.next_word(of, vocabulary, [question(name) for name in names])
    texts = bare.gather(-1, torch.stack([words.numbers_of(vocabulary, four) for four in options])).argmax(-1)
    return {name: float((chosen == right).double().mean()) for name, chosen in (("letter", letters), ("text", texts))}


def verified(
    of: Any, world: FactWorld, *, plan: SFTConfig = LISTING, lists: int = 20, rehearsed: int = 20
) -> dict[str, float]:
    """Chain of verification: the model lists the names that live in a city, and then is asked about each name alone.
    Verification keeps the names whose answer is that city.

    The model was tuned to list on lists of frequent names, mixed with ``rehearsed`` copies of the question about each
    of these names.

    Returns:
        Fractions of true names ``before`` and ``after`` verification; ``kept``: the fraction of the true names that it
        keeps.
    """
    rng, vocabulary = numpy_generator("ch19", "lists", world.seed), tokenizer()
    frequent = world.groups["frequent"]
    names_in = {city: [name for name in frequent if world.city[name] == city] for city in CITIES}
    names_in = {city: names for city, names in names_in.items() if names}
    examples = [words.answered(vocabulary, question(name), world.city[name]) for name in frequent] * rehearsed
    for _ in range(1500):
        city = str(rng.choice(list(names_in)))
        examples.append(
            words.answered(vocabulary, f"<user> who? {city} <assistant>", " ".join(rng.permutation(names_in[city])[:3]))
        )
    lister = words.tuned(copy.deepcopy(of), vocabulary, examples, plan, seed=world.seed)
    prompts = [words.ids_of(vocabulary, f"<user> who? {city} <assistant>") for city in names_in]
    rollout = sample(
        lister, prompts, sampling=Sampling(max_completion_length=6), num_generations=lists, eos_token_id=vocabulary.eos_token_id,
        pad_token_id=vocabulary.pad_token_id, seed=derive_seed("ch19", "listed", world.seed),
    )  # fmt: skip
    claims = [
        (name, city)
        for city, text in zip(
            [city for city in names_in for _ in range(lists)], completion_texts(rollout, vocabulary), strict=True
        )
        for name in text.split()
        if name in NAMES
    ]
    if not claims:
        return {"before": 0.0, "after": 0.0, "kept": 0.0}
    true = torch.tensor([world.city[name] == city for name, city in claims])
    answers = {city: asked(lister, NAMES, dict.fromkeys(NAMES, city)).right for city in names_in}
    confirmed = torch.stack([answers[city][NAMES.index(name)] for name, city in claims])
    num_kept = (true & confirmed).double().sum()
    return {
        "before": float(true.double().mean()),
        "after": float(num_kept / confirmed.sum().clamp_min(1)),
        "kept": float(num_kept / true.sum().clamp_min(1)),
    }
