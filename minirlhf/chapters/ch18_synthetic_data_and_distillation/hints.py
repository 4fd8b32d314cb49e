"""A model that may be shown the answer teaches itself without it, beside a model that is paid for right answers.

    sort 3 1 4 1 5 9                       the student's prompt
    sort 3 1 4 1 5 9 hint 1 1 3 4 5 9      the teacher's: the same weights, and the answer beside the question
    reverse 3 1 4                          a second skill, of which no way of learning sees anything

The base model copies a hint and reverses well, and by itself sorts two rows of three.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass

import numpy as np

from minirlhf.data import tasks
from minirlhf.data.tasks.base import Split
from minirlhf.feedback.rewards import task_problems, task_reward
from minirlhf.models.sampling import Sampling
from minirlhf.recipes import DR_GRPO
from minirlhf.recipes.distill import DISTILLATIONS, Distillation
from minirlhf.stages import pipeline
from minirlhf.stages.pipeline import RLPlan, SFTPlan, Trained
from minirlhf.trainers.config import OnlineConfig
from minirlhf.trainers.distill import DistillConfig, train_distill
from minirlhf.trainers.evaluation import evaluate
from minirlhf.trainers.sft import SFTConfig

SORTING, HINT = tasks.get("sort_digits"), "hint"
KINDS = ("sort", "hinted", "reverse")
ROW = 3  # digits that are reversed


class Hinted:
    """A :class:`~minirlhf.data.tasks.base.Task` of rows of digits.

    Attributes:
        kinds: which prompts there are, in turn: to sort, to sort with the answer beside it, to reverse.
    """

    name = "hinted"
    words = (*SORTING.words, HINT, "reverse")
    max_completion_length = SORTING.max_completion_length

    def __init__(self, *kinds: str) -> None:
        self.kinds = kinds

    def prompts(self, split: Split) -> list[str]:
        """Kinds in turn; no list of digits is in two of them."""
        lists = SORTING.prompts(split)
        size = len(lists) // len(KINDS)
        of = {kind: [self._asked(kind, x) for x in lists[i * size : (i + 1) * size]] for i, kind in enumerate(KINDS)}
        turns, seen, found = size // max(map(self.kinds.count, self.kinds)), dict.fromkeys(KINDS, 0), []
        for kind in self.kinds * turns:
            found.append(of[kind][seen[kind]])
            seen[kind] += 1
        return found

    def _asked(self, kind: str, prompt: str) -> str:
        if kind == "reverse":
            return " ".join(["reverse", *prompt.split()[1 : 1 + ROW]])
        return with_hint(prompt) if kind == "hinted" else prompt

    def reference(self, prompt: str) -> str:
        """The digits in order, or the other way round."""
        verb, *digits = prompt.split(f" {HINT} ")[0].split()
        return " ".join(sorted(digits) if verb == "sort" else reversed(digits))

    def demonstration(self, prompt: str, rng: np.random.Generator) -> str:
        """The right answer."""
        return self.reference(prompt)

    def grade(self, prompt: str, completion: str) -> float:
        """1 for exactly the right digits, else 0."""
        return float(completion.split() == self.reference(prompt).split())


def with_hint(prompt: str) -> str:
    """The prompt with its answer beside it."""
    return f"{prompt} {HINT} {SORTING.reference(prompt)}"


SORTS, SHOWN, REVERSES = Hinted("sort"), Hinted("hinted"), Hinted("reverse")
#: What the base model learns from: one prompt in five is to be sorted without help.
WORLD = Hinted("sort", "hinted", "reverse", "hinted", "reverse")


DECAY = "linear"  # of every rate


@dataclass(frozen=True)
class HintPlan:
    """What is trained, and how much of it: every way of learning draws ``steps`` · ``answers`` answers.

    Attributes:
        base: the model that all ways begin with.
        group: answers to one prompt, where they are paid against each other.
        measured: prompts of each kind that a model is measured on.
    """

    base: SFTPlan = SFTPlan(
        14_080, SFTConfig(max_steps=220, batch_size=64, learning_rate=3e-3, lr_scheduler_type="linear")
    )
    steps: int = 50
    answers: int = 64
    group: int = 4
    measured: int = 333

    def payment(self, rate: float, seed: int) -> OnlineConfig:
        """How the answers are paid for."""
        return OnlineConfig(
            max_steps=self.steps, batch_size=self.answers // self.group, num_generations=self.group,
            learning_rate=rate, lr_scheduler_type=DECAY, seed=seed,
        )  # fmt: skip


#: Ways to learn from a hint: distributions compared word by word in either direction, on the student's own answers or on those of the hinted
#: model; or nothing but the words of the hinted model.
TEACHING: dict[str, Distillation] = {
    "own_reverse": DISTILLATIONS["on_policy_kd"],
    "own_forward": DISTILLATIONS["kd"].with_(own_answers=1.0),
    "given_reverse": DISTILLATIONS["on_policy_kd"].with_(own_answers=0.0, from_teacher=True),
    "given_forward": DISTILLATIONS["kd"].with_(from_teacher=True),
    "words": DISTILLATIONS["sequence_kd"],
}
PAID = "grpo"
WAYS = (*TEACHING, PAID)
#: The best of ``study_rates``.
RATES = {
    "own_reverse": 1e-3,
    "own_forward": 1e-3,
    "given_reverse": 1e-3,
    "given_forward": 1e-3,
    "words": 1e-3,
    PAID: 2e-4,
}


class Pupil:
    """The base model of one seed, and ways to teach it."""

    def __init__(self, seed: int, plan: HintPlan) -> None:
        self.plan, self.seed = plan, seed
        self.base = pipeline.sft_from_scratch(WORLD, pipeline.with_seed(plan.base, seed), quiet=True)
        prompts = SORTS.prompts("train")[: plan.steps * plan.answers]
        tokens = lambda asked, prompt: pipeline.reply_tokens(self.base.tokenizer, asked, SORTING.reference(prompt))
        self.plain = [tokens(prompt, prompt) for prompt in prompts]
        self.told = [tokens(with_hint(prompt), prompt) for prompt in prompts]

    def taught(self, way: str, rate: float) -> Trained:
        """A copy of the base model after learning in one way, without a hint."""
        plan = self.plan
        if way == PAID:
            payment = self.plan.payment(rate, self.seed)
            return pipeline.rl(SORTS, self.base, RLPlan(DR_GRPO, payment, prompts=len(self.plain)), quiet=True)
        model, tokenizer = copy.deepcopy(self.base.model), self.base.tokenizer
        config = DistillConfig(
            max_steps=plan.steps, batch_size=plan.answers, learning_rate=rate, lr_scheduler_type=DECAY, seed=self.seed,
            max_completion_length=SORTS.max_completion_length,
        )  # fmt: skip
        history = train_distill(
            model, self.base.model, self.plain, TEACHING[way], config, seen_by_teacher=self.told,
            eos_token_id=tokenizer.eos_token_id, pad_token_id=tokenizer.pad_token_id, quiet=True,
        )  # fmt: skip
        return Trained(model, tokenizer, history)


def right(policy: Trained, task: Hinted, count: int) -> float:
    """Share of right answers to test prompts, one sampled for each."""
    found = evaluate(
        policy.model, task_problems(task, "test")[:count], task_reward(task), tokenizer=policy.tokenizer,
        sampling=Sampling(max_completion_length=task.max_completion_length), seed=1000,
    )  # fmt: skip
    return found.reward.mean
