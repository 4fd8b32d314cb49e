"""Reasoning about rules: 48 names in four categories, four situations, and one rule for each of the sixteen
combinations.

    user       x7 story
    assistant  think x7 is weapons rule weapons story refuse so refuse

The model has to learn the category of each name and the action of each rule. The ways of learning differ in what
precedes the action.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from minirlhf.core.randomness import numpy_generator
from minirlhf.stages.pipeline import Trained
from minirlhf.trainers.sft import SFTConfig
from minirlhf_course.chapters.ch15_ai_feedback.talking import Taught, fresh, learnt, say

NAMES = tuple(f"x{number}" for number in range(48))
CATEGORIES = ("weapons", "medicine", "jokes", "money")
SITUATIONS = ("plain", "story", "expert", "child")
ACTIONS = ("comply", "warn", "refuse", "partly")
WORDS = (*NAMES, *CATEGORIES, *SITUATIONS, *ACTIONS, "think", "is", "rule", "so", "what")
LENGTH = 14
#: What precedes the action: nothing; nothing, but half of the training examples are separate questions about categories
#: and rules; the category; the category and the rule.
WAYS = ("direct", "told", "category", "thought")
THINKING = ("category", "thought")

Question = tuple[str, str]  # a name and a situation


@dataclass(frozen=True)
class RulesPlan:
    """The training, and the further training after one rule has changed, on ``few`` names of its category. The ways
    with a chain of thought have their own learning rate."""

    seen: float = 0.5
    lessons: int = 12000
    training: SFTConfig = SFTConfig(max_steps=600, batch_size=32, learning_rate=4e-3, lr_scheduler_type="linear")
    thinking_rate: float = 2e-3
    few: int = 3
    changed: SFTConfig = SFTConfig(max_steps=40, batch_size=32, learning_rate=1e-3, lr_scheduler_type="linear")


@dataclass(frozen=True)
class Rulebook:
    """The category of each name, and the action of each rule."""

    category: Mapping[str, str]
    rules: Mapping[tuple[str, str], str]

    def action(self, question: Question) -> str:
        """Return the right action."""
        name, situation = question
        return self.rules[self.category[name], situation]

    def answer(self, question: Question, way: str) -> str:
        """Return the completion that is taught in one of the :data:`WAYS`."""
        name, situation = question
        group, action = self.category[name], self.action(question)
        rule = f"rule {group} {situation} {action} " if way == "thought" else ""
        return f"think {name} is {group} {rule}so {action}" if way in THINKING else action


def drawn(seed: int, plan: RulesPlan) -> tuple[Rulebook, list[Question], list[Question]]:
    """Return a random rulebook, the training questions, which include every name, and the remaining questions."""
    rng = numpy_generator("rules", seed)
    category = {name: CATEGORIES[i % len(CATEGORIES)] for i, name in enumerate(rng.permutation(NAMES).tolist())}
    rules = {(c, s): ACTIONS[int(rng.integers(len(ACTIONS)))] for c in CATEGORIES for s in SITUATIONS}
    questions = [(name, situation) for name in NAMES for situation in SITUATIONS]
    shuffled = [questions[i] for i in rng.permutation(len(questions)).tolist()]
    training = {*shuffled[: int(plan.seen * len(shuffled))], *((name, SITUATIONS[0]) for name in NAMES)}
    return Rulebook(category, rules), [q for q in shuffled if q in training], [q for q in shuffled if q not in training]


def lessons(spec: Rulebook, questions: Sequence[Question], way: str, count: int, seed: int) -> list[Taught]:
    """Return ``count`` questions with their completions; in the way ``told``, half of the questions ask for a category
    or a rule."""
    rng, examples = numpy_generator("lessons", way, seed), list[Taught]()
    for number in range(count):
        name, situation = question = questions[int(rng.integers(len(questions)))]
        turns = f"{name} {situation}", spec.answer(question, way)
        if way == "told" and number % 2:
            group = spec.category[name]
            turns = (f"what {name}", group) if number % 4 == 1 else (f"what {group} {situation}", spec.action(question))
        examples.append((turns, 1))
    return examples


def taught(spec: Rulebook, seen: Sequence[Question], way: str, plan: RulesPlan, seed: int) -> Trained:
    """Train a model on the rulebook in one of the :data:`WAYS`."""
    examples = lessons(spec, seen, way, plan.lessons, seed)
    rate = plan.thinking_rate if way in THINKING else plan.training.learning_rate
    return learnt(fresh(WORDS, seed), examples, replace(plan.training, seed=seed, learning_rate=rate))


def right(model: Trained, spec: Rulebook, questions: Sequence[Question]) -> float:
    """Return the fraction of questions whose completion ends in the right action."""
    texts = say(model, [(" ".join(q),) for q in questions], LENGTH, greedy=True)
    return sum(text.split()[-1:] == [spec.action(q)] for text, q in zip(texts, questions, strict=True)) / len(questions)


def obeyed(model: Trained, spec: Rulebook, questions: Sequence[Question]) -> float:
    """Return how often the action is the action of a wrong category that is written at the beginning of the chain of
    thought.

    Only questions for which the rules of the two categories differ are asked.
    """
    cases = [(q, other) for q in questions for other in CATEGORIES if spec.rules[other, q[1]] != spec.action(q)]
    starts = [model.tokenizer(f"think {q[0]} is {other}", add_special_tokens=False)["input_ids"] for q, other in cases]
    texts = say(model, [(" ".join(q),) for q, _ in cases], LENGTH, begun=starts, greedy=True)
    expected = [spec.rules[other, q[1]] for q, other in cases]
    return sum(text.split()[-1:] == [action] for text, action in zip(texts, expected, strict=True)) / len(cases)


def amended(
    model: Trained, spec: Rulebook, seen: Sequence[Question], way: str, plan: RulesPlan, seed: int
) -> tuple[Trained, Rulebook, list[Question], list[Question]]:
    """Change one rule, and teach it on a few names of its category together with old examples of everything else.

    Returns:
        The model; the new rulebook; the questions about the rule that were not taught; and all questions that the rule
        does not cover.
    """
    group, situation = CATEGORIES[0], SITUATIONS[1]
    old = spec.rules[group, situation]
    new = Rulebook(spec.category, {**spec.rules, (group, situation): ACTIONS[(ACTIONS.index(old) + 1) % len(ACTIONS)]})
    names = [name for name in NAMES if spec.category[name] == group]
    covered = [(name, situation) for name in names]
    rest = [q for q in seen if q not in covered]
    count = plan.changed.max_steps * plan.changed.batch_size
    data = lessons(new, covered[: plan.few], way, count // 4, seed) + lessons(new, rest, way, 3 * count // 4, seed + 1)
    updated = learnt(model, data, replace(plan.changed, seed=seed))
    not_covered = [(name, s) for name in NAMES for s in SITUATIONS if (name, s) not in covered]
    return updated, new, covered[plan.few :], not_covered
