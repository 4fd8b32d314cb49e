"""Critique and revise: a model of seven words that writes a reply, criticises it by a principle that was drawn, and revises it.

    user       tell me about cats
    assistant  hello! some cats purr and bark hmm
    user       critique honest
    assistant  wrong
    user       revise
    assistant  hello! some cats purr and nap hmm

A reply has four places for a flaw, and each principle names one of them: a greeting that is not polite, no praise, a false fact, a hum at the end.
Gold is the assistant world's.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from minirlhf.chapters.ch15_ai_feedback.talking import Taught, fresh, learnt, say
from minirlhf.core.randomness import derive_seed, numpy_generator
from minirlhf.data import tasks
from minirlhf.data.tasks.assistant import ANIMALS, FACTS, FILLER, Features, features
from minirlhf.data.tasks.base import Split
from minirlhf.equations.ai_feedback import remaining_flaws
from minirlhf.stages.pipeline import Trained
from minirlhf.trainers.sft import SFTConfig

WORLD = tasks.get("assistant")
#: What each principle finds wrong, by its name; and what a critique of it says.
FLAWS: Mapping[str, Callable[[Features], bool]] = {
    "polite": lambda f: f.polite == 0,
    "warm": lambda f: f.praise == 0,
    "honest": lambda f: f.facts < 2,
    "brief": lambda f: f.filler > 0,
}
CRITIQUES = {"polite": "curt", "warm": "cold", "honest": "wrong", "brief": "rambling"}
FINE, CRITIQUE, REVISE = "fine", "critique", "revise"
WORDS = (*WORLD.words, *FLAWS, *CRITIQUES.values(), FINE, CRITIQUE, REVISE)
LENGTH = 9  # of a reply, in tokens: seven words and the end, and one more
ALL_FACTS = tuple(fact for facts in FACTS.values() for fact in facts)


@dataclass(frozen=True)
class RevisingPlan:
    """How much is taught, how many chains are measured, and the fine-tuning on what they end in."""

    lessons: int = 6000
    training: SFTConfig = SFTConfig(max_steps=500, batch_size=48, learning_rate=3e-3, lr_scheduler_type="linear")
    chains: int = 128
    rounds: int = 10
    kept: SFTConfig = SFTConfig(max_steps=60, batch_size=48, learning_rate=1e-3, lr_scheduler_type="linear")


def asked(split: Split) -> list[str]:
    """The assistant world's questions about one animal."""
    return [p for p in WORLD.prompts(split) if len(_animals(p)) == 1]


def in_turn(prompts: Sequence[str], count: int) -> list[str]:
    """So many of them, each as often as the others."""
    return [prompts[i % len(prompts)] for i in range(count)]


def _animals(prompt: str) -> set[str]:
    return {word for word in prompt.split() if word in ANIMALS}


def flaws(prompt: str, reply: str) -> dict[str, bool]:
    """Which flaws a reply has; a text that is no reply has flaws like any other."""
    counts = features(prompt, reply)
    return {name: wrong(counts) for name, wrong in FLAWS.items()}


def written(prompt: str, rng: np.random.Generator, has: Mapping[str, bool] | None = None) -> str:
    """A reply with these flaws, by default each with probability ½."""
    has = has or {name: bool(rng.random() < 0.5) for name in FLAWS}
    [animal] = _animals(prompt)
    facts = rng.permutation(FACTS[animal]).tolist()[:2]
    if has["honest"]:
        others = [fact for fact in ALL_FACTS if fact not in FACTS[animal]]
        facts[int(rng.integers(2))] = others[int(rng.integers(len(others)))]
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
    """The reply, as :func:`written`, without the flaw that the principle names: what a revision is taught by."""
    words, [animal] = reply.split(), _animals(prompt)
    match principle:
        case "polite":
            words[0] = "sure!"
        case "warm":
            words[1] = "clever"
        case "honest":
            for place in (3, 5):
                if words[place] not in FACTS[animal]:
                    words[place] = next(fact for fact in FACTS[animal] if fact not in words)
        case "brief":
            words = words[:6]
    return " ".join(words)


def lessons(count: int, seed: int) -> list[Taught]:
    """Half of them replies, half a critique and a revision of a reply by a principle that was drawn."""
    prompts, rng, found = asked("train"), numpy_generator("lessons", seed), list[Taught]()
    for number in range(count):
        prompt = prompts[int(rng.integers(len(prompts)))]
        reply = written(prompt, rng)
        if number % 2:
            found.append(((prompt, reply), 1))
            continue
        principle = str(rng.choice(list(FLAWS)))
        said = CRITIQUES[principle] if flaws(prompt, reply)[principle] else FINE
        better = repaired(prompt, reply, principle)
        found.append(((prompt, reply, f"{CRITIQUE} {principle}", said, REVISE, better), 3))
    return found


def taught(plan: RevisingPlan, seed: int) -> Trained:
    """A model that writes, criticises and revises."""
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
    """The critiques and the revisions; with ``critic`` False every critique says what the truth is."""
    told = [(p, y, f"{CRITIQUE} {k}") for p, y, k in zip(prompts, replies, principles, strict=True)]
    if critic:
        said = say(model, told, 2, seed=derive_seed("critique", seed))
    else:
        truth = [flaws(p, y)[k] for p, y, k in zip(prompts, replies, principles, strict=True)]
        said = [CRITIQUES[k] if wrong else FINE for k, wrong in zip(principles, truth, strict=True)]
    return said, say(
        model, [(*t, c, REVISE) for t, c in zip(told, said, strict=True)], LENGTH, seed=derive_seed("revise", seed)
    )


@dataclass(frozen=True)
class Chains:
    """Chains of revisions: of each round the replies, and the principle that led to them."""

    prompts: list[str]
    replies: list[list[str]]
    principles: list[list[str]]

    def gold(self, number: int) -> float:
        """Mean gold after a round."""
        return float(np.mean([WORLD.grade(p, y) for p, y in zip(self.prompts, self.replies[number], strict=True)]))

    def flaws(self, number: int) -> dict[str, float]:
        """Share of the replies that have each flaw."""
        found = [flaws(p, y) for p, y in zip(self.prompts, self.replies[number], strict=True)]
        return {name: float(np.mean([has[name] for has in found])) for name in FLAWS}


def chains(model: Trained, prompts: Sequence[str], rounds: int, seed: int, *, critic: bool = True) -> Chains:
    """y₀ … yₙ, with a principle drawn for every reply in every round."""
    rng = numpy_generator("principles", seed)
    replies, drawn = [say(model, [(p,) for p in prompts], LENGTH, seed=derive_seed("first", seed))], list[list[str]]()
    for number in range(rounds):
        drawn.append([str(name) for name in rng.choice(list(FLAWS), len(prompts))])
        round_ = derive_seed("round", number, seed)
        replies.append(revise(model, prompts, replies[-1], drawn[-1], round_, critic=critic)[1])
    return Chains(list(prompts), replies, drawn)


def changes(found: Sequence[tuple[str, str, str, str]]) -> dict[str, dict[str, float]]:
    """How often a revision repairs a flaw that it was asked about, and how often it puts it in, by flaw, from
    ``(prompt, reply, principle, revision)``; 0 where nothing was seen."""
    seen: dict[str, dict[str, list[bool]]] = {flaw: {"repair": [], "harm": []} for flaw in FLAWS}
    for prompt, reply, principle, revision in found:
        before, after = flaws(prompt, reply)[principle], flaws(prompt, revision)[principle]
        seen[principle]["repair" if before else "harm"].append(after != before)
    return {
        flaw: {change: float(np.mean(all_)) if all_ else 0.0 for change, all_ in counts.items()}
        for flaw, counts in seen.items()
    }


def rates(
    model: Trained, prompts: Sequence[str], replies: Sequence[str], seed: int, *, critic: bool = True
) -> dict[str, dict[str, float]]:
    """:func:`changes` of one revision of these replies by every principle, before any chain."""
    told = [(p, y, name) for p, y in zip(prompts, replies, strict=True) for name in FLAWS]
    asked_, said, principles = (list(column) for column in zip(*told, strict=True))
    _, revised = revise(model, asked_, said, principles, derive_seed("rates", seed), critic=critic)
    return changes([(*t, y) for t, y in zip(told, revised, strict=True)])


def predicted(rate: Mapping[str, float], start: float, rounds: int) -> float:
    """eq:flaws-left with these rates."""
    return remaining_flaws(start=start, rounds=rounds, principles=len(FLAWS), repair=rate["repair"], harm=rate["harm"])


def critiques_right(model: Trained, prompts: Sequence[str], replies: Sequence[str], seed: int) -> dict[str, float]:
    """Share of critiques that say what is so, by principle."""
    found = {}
    for name in FLAWS:
        said, _ = revise(model, prompts, replies, [name] * len(prompts), seed)
        truth = [CRITIQUES[name] if flaws(p, y)[name] else FINE for p, y in zip(prompts, replies, strict=True)]
        found[name] = float(np.mean([a == b for a, b in zip(said, truth, strict=True)]))
    return found


def kept(model: Trained, prompts: Sequence[str], replies: Sequence[str], plan: RevisingPlan, seed: int) -> Trained:
    """Fine-tuned on plain answers: questions and replies, no principle."""
    pairs: list[Taught] = [(pair, 1) for pair in zip(prompts, replies, strict=True)]
    return learnt(model, pairs, replace(plan.kept, seed=seed))


def plain_gold(model: Trained, prompts: Sequence[str], seed: int) -> float:
    """Mean gold of its answers to plain questions."""
    said = say(model, [(p,) for p in prompts], LENGTH, seed=derive_seed("plain", seed))
    return float(np.mean([WORLD.grade(p, y) for p, y in zip(prompts, said, strict=True)]))
