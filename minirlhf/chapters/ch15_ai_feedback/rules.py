"""Rules that are thought about: 48 names in four categories, four situations, and a rule for each of the sixteen combinations.

    user       x7 story
    assistant  think x7 is weapons rule weapons story refuse so refuse

Which category a name is in, and what the rules say, has to be learnt. The ways of learning differ in what stands before the action.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from minirlhf.chapters.ch15_ai_feedback.talking import Taught, fresh, learnt, say
from minirlhf.core.randomness import numpy_generator
from minirlhf.stages.pipeline import Trained
from minirlhf.trainers.sft import SFTConfig

NAMES = tuple(f"x{number}" for number in range(48))
CATEGORIES = ("weapons", "medicine", "jokes", "money")
SITUATIONS = ("plain", "story", "expert", "child")
ACTIONS = ("comply", "warn", "refuse", "partly")
WORDS = (*NAMES, *CATEGORIES, *SITUATIONS, *ACTIONS, "think", "is", "rule", "so", "what")
LENGTH = 14
#: What stands before the action: nothing; nothing, but categories and rules are also taught by questions of their own, in half of the lessons;
#: the category; category and rule.
WAYS = ("direct", "told", "category", "thought")
THINKING = ("category", "thought")

Question = tuple[str, str]  # a name and a situation


@dataclass(frozen=True)
class RulesPlan:
    """How much is taught, and how much again when a rule has changed on ``few`` names of its category; the learning rate where thoughts are taught is another."""

    seen: float = 0.5
    lessons: int = 12000
    training: SFTConfig = SFTConfig(max_steps=600, batch_size=32, learning_rate=4e-3, lr_scheduler_type="linear")
    thinking_rate: float = 2e-3
    few: int = 3
    changed: SFTConfig = SFTConfig(max_steps=40, batch_size=32, learning_rate=1e-3, lr_scheduler_type="linear")


@dataclass(frozen=True)
class Rulebook:
    """Who is in which category, and what each rule says."""

    category: Mapping[str, str]
    rules: Mapping[tuple[str, str], str]

    def action(self, question: Question) -> str:
        """What is to be done."""
        name, situation = question
        return self.rules[self.category[name], situation]

    def answer(self, question: Question, way: str) -> str:
        """As it is taught in one of the :data:`WAYS`."""
        name, situation = question
        group, action = self.category[name], self.action(question)
        rule = f"rule {group} {situation} {action} " if way == "thought" else ""
        return f"think {name} is {group} {rule}so {action}" if way in THINKING else action


def drawn(seed: int, plan: RulesPlan) -> tuple[Rulebook, list[Question], list[Question]]:
    """A rulebook; the questions that are taught, among them every name once; and the others."""
    rng = numpy_generator("rules", seed)
    category = {name: CATEGORIES[i % len(CATEGORIES)] for i, name in enumerate(rng.permutation(NAMES).tolist())}
    rules = {(c, s): ACTIONS[int(rng.integers(len(ACTIONS)))] for c in CATEGORIES for s in SITUATIONS}
    questions = [(name, situation) for name in NAMES for situation in SITUATIONS]
    mixed = [questions[i] for i in rng.permutation(len(questions)).tolist()]
    seen = {*mixed[: int(plan.seen * len(mixed))], *((name, SITUATIONS[0]) for name in NAMES)}
    return Rulebook(category, rules), [q for q in mixed if q in seen], [q for q in mixed if q not in seen]


def lessons(spec: Rulebook, questions: Sequence[Question], way: str, count: int, seed: int) -> list[Taught]:
    """``count`` questions with their answers; in the way ``told`` half of them ask what a category or a rule is."""
    rng, found = numpy_generator("lessons", way, seed), list[Taught]()
    for number in range(count):
        name, situation = question = questions[int(rng.integers(len(questions)))]
        said = f"{name} {situation}", spec.answer(question, way)
        if way == "told" and number % 2:
            group = spec.category[name]
            said = (f"what {name}", group) if number % 4 == 1 else (f"what {group} {situation}", spec.action(question))
        found.append((said, 1))
    return found


def taught(spec: Rulebook, seen: Sequence[Question], way: str, plan: RulesPlan, seed: int) -> Trained:
    """A model that has learnt the policy in one of the :data:`WAYS`."""
    said = lessons(spec, seen, way, plan.lessons, seed)
    rate = plan.thinking_rate if way in THINKING else plan.training.learning_rate
    return learnt(fresh(WORDS, seed), said, replace(plan.training, seed=seed, learning_rate=rate))


def right(model: Trained, spec: Rulebook, questions: Sequence[Question]) -> float:
    """Share of the questions whose answer ends in the right action."""
    said = say(model, [(" ".join(q),) for q in questions], LENGTH, greedy=True)
    return sum(text.split()[-1:] == [spec.action(q)] for text, q in zip(said, questions, strict=True)) / len(questions)


def obeyed(model: Trained, spec: Rulebook, questions: Sequence[Question]) -> float:
    """Another category is written into the beginning of the thought: share of the answers whose action is that category's.

    Asked where the two categories' rules differ.
    """
    found = [(q, other) for q in questions for other in CATEGORIES if spec.rules[other, q[1]] != spec.action(q)]
    begun = [model.tokenizer(f"think {q[0]} is {other}", add_special_tokens=False)["input_ids"] for q, other in found]
    said = say(model, [(" ".join(q),) for q, _ in found], LENGTH, begun=begun, greedy=True)
    want = [spec.rules[other, q[1]] for q, other in found]
    return sum(text.split()[-1:] == [action] for text, action in zip(said, want, strict=True)) / len(found)


def amended(
    model: Trained, spec: Rulebook, seen: Sequence[Question], way: str, plan: RulesPlan, seed: int
) -> tuple[Trained, Rulebook, list[Question], list[Question]]:
    """One rule is changed, and taught on few names of its category among old lessons on everything else.

    Returns:
        The model; the new rulebook; the questions on the rule that were not taught; and all that the rule is not about.
    """
    group, situation = CATEGORIES[0], SITUATIONS[1]
    old = spec.rules[group, situation]
    new = Rulebook(spec.category, {**spec.rules, (group, situation): ACTIONS[(ACTIONS.index(old) + 1) % len(ACTIONS)]})
    names = [name for name in NAMES if spec.category[name] == group]
    about = [(name, situation) for name in names]
    rest = [q for q in seen if q not in about]
    count = plan.changed.max_steps * plan.changed.batch_size
    said = lessons(new, about[: plan.few], way, count // 4, seed) + lessons(new, rest, way, 3 * count // 4, seed + 1)
    after = learnt(model, said, replace(plan.changed, seed=seed))
    others = [(name, s) for name in NAMES for s in SITUATIONS if (name, s) not in about]
    return after, new, about[plan.few :], others
