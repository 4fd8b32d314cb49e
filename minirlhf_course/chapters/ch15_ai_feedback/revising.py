"""Critique and revision: a model writes a completion of at most seven words, criticises it by a random principle, and
revises it.

    user       tell me about cats
    assistant  hello! some cats purr and bark hmm
    user       critique honest
    assistant  wrong
    user       revise
    assistant  hello! some cats purr and nap hmm

A completion can have four flaws, and each principle names one of them: a greeting that is not polite, no praise, a
false fact, a filler word at the end. The gold reward is the gold reward of the assistant task.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from minirlhf.core.randomness import derive_seed, numpy_generator
from minirlhf.data import tasks
from minirlhf.data.tasks.assistant import ANIMALS, FACTS, FILLER, Features, features
from minirlhf.data.tasks.base import Split
from minirlhf.stages.pipeline import Trained
from minirlhf.trainers.sft import SFTConfig
from minirlhf_course.chapters.ch15_ai_feedback.equations import remaining_flaws
from minirlhf_course.chapters.ch15_ai_feedback.talking import Taught, fresh, learnt, say

WORLD = tasks.get("assistant")
#: The flaw that each principle names, and the critique of a completion with this flaw.
FLAWS: Mapping[str, Callable[[Features], bool]] = {
    "polite": lambda f: f.polite == 0,
    "warm": lambda f: f.praise == 0,
    "honest": lambda f: f.facts < 2,
    "brief": lambda f: f.filler > 0,
}
CRITIQUES = {"polite": "curt", "warm": "cold", "honest": "wrong", "brief": "rambling"}
FINE, CRITIQUE, REVISE = "fine", "critique", "revise"
WORDS = (*WORLD.words, *FLAWS, *CRITIQUES.values(), FINE, CRITIQUE, REVISE)
LENGTH = 9  # of a completion, in tokens: seven words, the end token and one spare
ALL_FACTS = tuple(fact for facts in FACTS.values() for fact in facts)


@dataclass(frozen=True)
class RevisingPlan:
    """The number of training examples, the number of measured chains, and the fine-tuning on the last completions of
    chains."""

    lessons: int = 6000
    training: SFTConfig = SFTConfig(max_steps=500, batch_size=48, learning_rate=3e-3, lr_scheduler_type="linear")
    chains: int = 128
    rounds: int = 10
    kept: SFTConfig = SFTConfig(max_steps=60, batch_size=48, learning_rate=1e-3, lr_scheduler_type="linear")


def asked(split: Split) -> list[str]:
    """Return the assistant task's questions about one animal."""
    return [p for p in WORLD.prompts(split) if len(_animals(p)) == 1]


def in_turn(prompts: Sequence[str], count: int) -> list[str]:
    """Return ``count`` prompts, by going through the list again and again."""
    return [prompts[i % len(prompts)] for i in range(count)]


def _animals(prompt: str) -> set[str]:
    return {word for word in prompt.split() if word in ANIMALS}


def flaws(prompt: str, reply: str) -> dict[str, bool]:
    """Return which flaws a completion has; malformed texts are checked in the same way."""
    counts = features(prompt, reply)
    return {name: has_flaw(counts) for name, has_flaw in FLAWS.items()}


def written(prompt: str, rng: np.random.Generator, has: Mapping[str, bool] | None = None) -> str:
    """Return a completion with these flaws, by default each with probability ½."""
    has = has or {name: bool(rng.random() < 0.5) for name in FLAWS}
    [animal] = _animals(prompt)
    facts = rng.permutation(FACTS[animal]).tolist()[:2]
    if has["honest"]:
        false_facts = [fact for fact in ALL_FACTS if fact not in FACTS[animal]]
        facts[int(rng.integers(2))] = false_facts[int(rng.integers(len(false_facts)))]
    words = [
        "hello!" if has["polite"] else "sure!",
        "some" if has["warm"] else "clever",
        animal,
        facts[0],
        "and",
        facts[1],
    ]
    return " ".join([*words, FILLER[1]] if has["brief"] else words)


def repaired(prompt: str, reply: str, principle: str) -> str:
    """Return the completion, as by :func:`written`, without the flaw that the principle names: the target for training
    revisions."""
    words, [animal] = reply.split(), _animals(prompt)
    match principle:
        case "polite":
            words[0] = "sure!"
        case "warm":
            words[1] = "clever"
        case "honest":
            for position in (3, 5):
                if words[position] not in FACTS[animal]:
                    words[position] = next(fact for fact in FACTS[animal] if fact not in words)
        case "brief":
            words = words[:6]
    return " ".join(words)


def lessons(count: int, seed: int) -> list[Taught]:
    """Return training examples: half are completions, half are a critique and a revision of a completion by a random
    principle."""
    prompts, rng, examples = asked("train"), numpy_generator("lessons", seed), list[Taught]()
    for number in range(count):
        prompt = prompts[int(rng.integers(len(prompts)))]
        completion = written(prompt, rng)
        if number % 2:
            examples.append(((prompt, completion), 1))
            continue
        principle = str(rng.choice(list(FLAWS)))
        critique = CRITIQUES[principle] if flaws(prompt, completion)[principle] else FINE
        revision = repaired(prompt, completion, principle)
        examples.append(((prompt, completion, f"{CRITIQUE} {principle}", critique, REVISE, revision), 3))
    return examples


def taught(plan: RevisingPlan, seed: int) -> Trained:
    """Train a model that writes, criticises and revises."""
    return learnt(fresh(WORDS, seed), lessons(plan.lessons, seed), replace(plan.training, seed=seed))


def revise(
    model: Trained,
    prompts: Sequence[str],
    replies: Sequence[str],
    principles: Sequence[str],
    seed: int,
    *,
    critic: bool = True,
) -> tuple[list[str], list[str]]:
    """Return the critiques and the revisions; with ``critic`` False every critique is the true one."""
    turns = [(p, y, f"{CRITIQUE} {k}") for p, y, k in zip(prompts, replies, principles, strict=True)]
    if critic:
        verdicts = say(model, turns, 2, seed=derive_seed("critique", seed))
    else:
        has_flaw = [flaws(p, y)[k] for p, y, k in zip(prompts, replies, principles, strict=True)]
        verdicts = [CRITIQUES[k] if wrong else FINE for k, wrong in zip(principles, has_flaw, strict=True)]
    return verdicts, say(
        model, [(*t, c, REVISE) for t, c in zip(turns, verdicts, strict=True)], LENGTH, seed=derive_seed("revise", seed)
    )


@dataclass(frozen=True)
class Chains:
    """Chains of revisions: the completions of each round, and the principles that led to them."""

    prompts: list[str]
    replies: list[list[str]]
    principles: list[list[str]]

    def gold(self, number: int) -> float:
        """Return the mean gold reward after a round."""
        return float(np.mean([WORLD.grade(p, y) for p, y in zip(self.prompts, self.replies[number], strict=True)]))

    def flaws(self, number: int) -> dict[str, float]:
        """Return the fraction of completions that have each flaw."""
        flaw_sets = [flaws(p, y) for p, y in zip(self.prompts, self.replies[number], strict=True)]
        return {name: float(np.mean([has[name] for has in flaw_sets])) for name in FLAWS}


def chains(model: Trained, prompts: Sequence[str], rounds: int, seed: int, *, critic: bool = True) -> Chains:
    """Sample y₀ … yₙ; a principle is drawn for every completion in every round."""
    rng = numpy_generator("principles", seed)
    texts, choices = [say(model, [(p,) for p in prompts], LENGTH, seed=derive_seed("first", seed))], list[list[str]]()
    for number in range(rounds):
        choices.append([str(name) for name in rng.choice(list(FLAWS), len(prompts))])
        round_seed = derive_seed("round", number, seed)
        texts.append(revise(model, prompts, texts[-1], choices[-1], round_seed, critic=critic)[1])
    return Chains(list(prompts), texts, choices)


def changes(found: Sequence[tuple[str, str, str, str]]) -> dict[str, dict[str, float]]:
    """Return, by flaw, how often a revision by the principle of this flaw repairs it (``repair``) and how often it
    introduces it (``harm``), from ``(prompt, completion, principle, revision)``; 0 if there is no such case."""
    outcomes: dict[str, dict[str, list[bool]]] = {flaw: {"repair": [], "harm": []} for flaw in FLAWS}
    for prompt, reply, principle, revision in found:
        before, after = flaws(prompt, reply)[principle], flaws(prompt, revision)[principle]
        outcomes[principle]["repair" if before else "harm"].append(after != before)
    return {
        flaw: {change: float(np.mean(outcome)) if outcome else 0.0 for change, outcome in counts.items()}
        for flaw, counts in outcomes.items()
    }


def rates(
    model: Trained, prompts: Sequence[str], replies: Sequence[str], seed: int, *, critic: bool = True
) -> dict[str, dict[str, float]]:
    """Return :func:`changes` for one revision of each completion by every principle, without chains."""
    cases = [(p, y, name) for p, y in zip(prompts, replies, strict=True) for name in FLAWS]
    repeated_prompts, texts, principles = (list(column) for column in zip(*cases, strict=True))
    _, revised = revise(model, repeated_prompts, texts, principles, derive_seed("rates", seed), critic=critic)
    return changes([(*t, y) for t, y in zip(cases, revised, strict=True)])


def predicted(rate: Mapping[str, float], start: float, rounds: int) -> float:
    """Predict the fraction of flaws after the rounds, by eq:flaws-left with these rates."""
    return remaining_flaws(start=start, rounds=rounds, principles=len(FLAWS), repair=rate["repair"], harm=rate["harm"])


def critiques_right(model: Trained, prompts: Sequence[str], replies: Sequence[str], seed: int) -> dict[str, float]:
    """Return the fraction of critiques that are correct, by principle."""
    accuracies = {}
    for name in FLAWS:
        critiques, _ = revise(model, prompts, replies, [name] * len(prompts), seed)
        expected = [CRITIQUES[name] if flaws(p, y)[name] else FINE for p, y in zip(prompts, replies, strict=True)]
        accuracies[name] = float(np.mean([a == b for a, b in zip(critiques, expected, strict=True)]))
    return accuracies


def kept(model: Trained, prompts: Sequence[str], replies: Sequence[str], plan: RevisingPlan, seed: int) -> Trained:
    """Fine-tune on prompts and completions only, without principles."""
    pairs: list[Taught] = [(pair, 1) for pair in zip(prompts, replies, strict=True)]
    return learnt(model, pairs, replace(plan.kept, seed=seed))


def plain_gold(model: Trained, prompts: Sequence[str], seed: int) -> float:
    """Return the mean gold reward of completions of plain questions."""
    completions = say(model, [(p,) for p in prompts], LENGTH, seed=derive_seed("plain", seed))
    return float(np.mean([WORLD.grade(p, y) for p, y in zip(prompts, completions, strict=True)]))
