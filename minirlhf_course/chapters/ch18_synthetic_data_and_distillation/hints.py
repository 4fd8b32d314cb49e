"""Self-distillation from hints: a model that sees the answer teaches itself to do without it, compared with RL.

    sort 3 1 4 1 5 9                       the student's prompt
    sort 3 1 4 1 5 9 hint 1 1 3 4 5 9      the teacher's prompt: the same weights, with the answer after the question
    reverse 3 1 4                          a second skill, which appears in no training data after the base model's

The base model copies a hint and reverses well; without a hint it sorts two thirds of the rows.
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
ROW = 3  # digits to reverse


class Hinted:
    """A :class:`~minirlhf.data.tasks.base.Task` of rows of digits.

    Attributes:
        kinds: kinds of prompts, used in turn: to sort, to sort with the answer after the question, to reverse.
    """

    name = "hinted"
    words = (*SORTING.words, HINT, "reverse")
    max_completion_length = SORTING.max_completion_length

    def __init__(self, *kinds: str) -> None:
        self.kinds = kinds

    def prompts(self, split: Split) -> list[str]:
        """Return prompts with the kinds in turn; no list of digits appears in two kinds."""
        lists = SORTING.prompts(split)
        size = len(lists) // len(KINDS)
        pool = {kind: [self._asked(kind, x) for x in lists[i * size : (i + 1) * size]] for i, kind in enumerate(KINDS)}
        turns, used, mixed = size // max(map(self.kinds.count, self.kinds)), dict.fromkeys(KINDS, 0), []
        for kind in self.kinds * turns:
            mixed.append(pool[kind][used[kind]])
            used[kind] += 1
        return mixed

    def _asked(self, kind: str, prompt: str) -> str:
        if kind == "reverse":
            return " ".join(["reverse", *prompt.split()[1 : 1 + ROW]])
        return with_hint(prompt) if kind == "hinted" else prompt

    def reference(self, prompt: str) -> str:
        """Return the digits in order, or reversed."""
        verb, *digits = prompt.split(f" {HINT} ")[0].split()
        return " ".join(sorted(digits) if verb == "sort" else reversed(digits))

    def demonstration(self, prompt: str, rng: np.random.Generator) -> str:
        """Return the right answer."""
        return self.reference(prompt)

    def grade(self, prompt: str, completion: str) -> float:
        """Return 1 for exactly the right digits, else 0."""
        return float(completion.split() == self.reference(prompt).split())


def with_hint(prompt: str) -> str:
    """Return the prompt with its answer after it."""
    return f"{prompt} {HINT} {SORTING.reference(prompt)}"


SORTS, SHOWN, REVERSES = Hinted("sort"), Hinted("hinted"), Hinted("reverse")
#: Training data of the base model: one prompt in five asks to sort without a hint.
WORLD = Hinted("sort", "hinted", "reverse", "hinted", "reverse")


DECAY = "linear"  # of every rate


@dataclass(frozen=True)
class HintPlan:
    """Settings of the training: every method uses ``steps`` · ``answers`` completions.

    Attributes:
        base: training of the base model, from which all methods start.
        group: completions per prompt, for the method with group-relative rewards.
        measured: test prompts of each kind.
    """

    base: SFTPlan = SFTPlan(
        14_080, SFTConfig(max_steps=220, batch_size=64, learning_rate=3e-3, lr_scheduler_type="linear")
    )
    steps: int = 50
    answers: int = 64
    group: int = 4
    measured: int = 333

    def payment(self, rate: float, seed: int) -> OnlineConfig:
        """Return the settings of RL on right answers."""
        return OnlineConfig(
            max_steps=self.steps, batch_size=self.answers // self.group, num_generations=self.group,
            learning_rate=rate, lr_scheduler_type=DECAY, seed=seed,
        )  # fmt: skip


#: Distillation methods: a word-level KL in either direction, on the student's own completions or on those of the hinted
#: model; or only the words of the hinted model.
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
    """The base model of one seed, and the methods that train it."""

    def __init__(self, seed: int, plan: HintPlan) -> None:
        self.plan, self.seed = plan, seed
        self.base = pipeline.sft_from_scratch(WORLD, pipeline.with_seed(plan.base, seed), quiet=True)
        prompts = SORTS.prompts("train")[: plan.steps * plan.answers]
        tokens = lambda query, prompt: pipeline.completion_tokens(self.base.tokenizer, query, SORTING.reference(prompt))
        self.plain = [tokens(prompt, prompt) for prompt in prompts]
        self.told = [tokens(with_hint(prompt), prompt) for prompt in prompts]

    def taught(self, way: str, rate: float) -> Trained:
        """Train a copy of the base model with one method; its prompts have no hint."""
        if way == PAID:
            rl_config = self.plan.payment(rate, self.seed)
            return pipeline.rl(SORTS, self.base, RLPlan(DR_GRPO, rl_config, prompts=len(self.plain)), quiet=True)
        return self.distilled(TEACHING[way], rate)

    def distilled(self, method: Distillation, rate: float) -> Trained:
        """Train a copy of the base model by distillation from the hinted model, or on the data's answers."""
        plan, model, tokenizer = self.plan, copy.deepcopy(self.base.model), self.base.tokenizer
        config = DistillConfig(
            max_steps=plan.steps, batch_size=plan.answers, learning_rate=rate, lr_scheduler_type=DECAY, seed=self.seed,
            max_completion_length=SORTS.max_completion_length,
        )  # fmt: skip
        history = train_distill(
            model, self.base.model, self.plain, method, config, seen_by_teacher=self.told,
            eos_token_id=tokenizer.eos_token_id, pad_token_id=tokenizer.pad_token_id, quiet=True,
        )  # fmt: skip
        return Trained(model, tokenizer, history)


def right(policy: Trained, task: Hinted, count: int) -> float:
    """Return the fraction of right answers to test prompts, with one sample per prompt."""
    result = evaluate(
        policy.model, task_problems(task, "test")[:count], task_reward(task), tokenizer=policy.tokenizer,
        sampling=Sampling(max_completion_length=task.max_completion_length), seed=1000,
    )  # fmt: skip
    return result.reward.mean
