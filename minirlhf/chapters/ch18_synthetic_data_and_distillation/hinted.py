"""A model that teaches itself what it could do with a hint, on its own answers: sorting, with the sorted list as the hint.

    sort 3 1 4 1 5 9                            the student sees this
    sort 3 1 4 1 5 9 hint 1 1 3 4 5 9           and its teacher, the same model as it was at the beginning, that

Beside it stand what else one can do with as many answers: imitate the hints, or learn from right and wrong.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import Any

from minirlhf.data.chat import conversation, encode
from minirlhf.data.formats import Problem
from minirlhf.data.tasks.sort_digits import SORT_DIGITS
from minirlhf.data.types import Tokens
from minirlhf.feedback.rewards import task_problems, task_reward
from minirlhf.models.sampling import Sampling
from minirlhf.models.tiny import tiny_model
from minirlhf.models.tokenizers import word_tokenizer
from minirlhf.recipes import DR_GRPO
from minirlhf.recipes.distill import DISTILLATIONS
from minirlhf.stages.pipeline import Trained
from minirlhf.trainers.config import OnlineConfig
from minirlhf.trainers.distill import DistillConfig, train_distill
from minirlhf.trainers.evaluation import evaluate
from minirlhf.trainers.online import train_online
from minirlhf.trainers.sft import SFTConfig, train_sft

HINT = "hint"
#: Half of the lists come with a hint, so that the model learns to read one, and cannot sort well without.
BASE = SFTConfig(max_steps=130, batch_size=64, learning_rate=3e-3)
FEW, MANY, ASKED, DIGITS = 6000, 6000, 300, 6
#: 50 steps of 64 answers each, in every run. GRPO has eight answers to each of eight lists.
DISTILL = DistillConfig(max_steps=50, batch_size=64, learning_rate=5e-4, max_completion_length=7)
IMITATE = SFTConfig(max_steps=50, batch_size=64, learning_rate=5e-4)
ONLINE = OnlineConfig(max_steps=50, batch_size=8, num_generations=8, learning_rate=2e-4, max_completion_length=7)


def with_hint(prompt: str) -> str:
    """The prompt as the teacher sees it."""
    return f"{prompt} {HINT} {SORT_DIGITS.reference(prompt)}"


def _examples(tokenizer: Any, prompts: list[str], hinted: bool) -> list[Tokens]:
    said = [(with_hint(p) if hinted else p, SORT_DIGITS.reference(p)) for p in prompts]
    return [encode(tokenizer, conversation(*both)) for both in said]


@dataclass(frozen=True)
class Lists:
    """The lists to learn from, as the student and as its teacher sees them."""

    plain: list[Tokens]
    hinted: list[Tokens]


def base(plan: SFTConfig = BASE) -> Trained:
    """A model that can copy a hint and can sort a little."""
    tokenizer = word_tokenizer((*SORT_DIGITS.words, HINT))
    prompts = SORT_DIGITS.prompts("train")
    examples = _examples(tokenizer, prompts[:FEW], False) + _examples(tokenizer, prompts[FEW : FEW + MANY], True)
    model = tiny_model("nano", tokenizer, seed=plan.seed)
    return Trained(model, tokenizer, train_sft(model, examples, plan, pad_token_id=tokenizer.pad_token_id, quiet=True))


def lists(tokenizer: Any) -> Lists:
    """Those that the base model was not trained on."""
    rest = SORT_DIGITS.prompts("train")[FEW + MANY :]
    return Lists(_examples(tokenizer, rest, False), _examples(tokenizer, rest, True))


@dataclass(frozen=True)
class Answered:
    """How a model answers test lists, one sampled answer each.

    Attributes:
        right: share that is right.
        errors: mean number of wrong digits of the six.
        error: share of wrong digits after a right one, or at the beginning.
        recovery: share of right digits after a wrong one.
    """

    right: float
    errors: float
    error: float
    recovery: float


def answered(trained: Trained, *, hint: bool = False, asked: int = ASKED, seed: int = 0) -> Answered:
    """Ask the first test lists, with a hint or without."""
    prompts = SORT_DIGITS.prompts("test")[:asked]
    problems = [Problem([{"role": "user", "content": with_hint(p) if hint else p}]) for p in prompts]
    grade = lambda _, texts: [SORT_DIGITS.grade(p, text) for p, text in zip(prompts, texts, strict=True)]
    sampling = Sampling(max_completion_length=SORT_DIGITS.max_completion_length)
    result = evaluate(trained.model, problems, grade, tokenizer=trained.tokenizer, sampling=sampling, seed=seed)
    errors, after = 0, {False: [0, 0], True: [0, 0]}  # by whether the digit before was wrong: digits, wrong ones
    for prompt, text in zip(prompts, result.completions, strict=True):
        said, before = text.split(), False
        for place, digit in enumerate(SORT_DIGITS.reference(prompt).split()):
            wrong = place >= len(said) or said[place] != digit
            after[before][0] += 1
            after[before][1] += wrong
            errors, before = errors + wrong, wrong
    (sound, slips), (lost, stays) = after[False], after[True]
    return Answered(result.reward.mean, errors / asked, slips / sound, 1 - stays / lost if lost else 1.0)


def distilled(start: Trained, row: str, config: DistillConfig = DISTILL) -> Trained:
    """Learns what it said with the hint at the beginning; ``kd`` on the right answers, the others on its own."""
    seen, end = lists(start.tokenizer), start.tokenizer.eos_token_id
    student, teacher = copy.deepcopy(start.model), copy.deepcopy(start.model)
    history = train_distill(
        student, teacher, seen.plain, DISTILLATIONS[row], config, seen_by_teacher=seen.hinted,
        eos_token_id=end, pad_token_id=start.tokenizer.pad_token_id, quiet=True,
    )  # fmt: skip
    return Trained(student, start.tokenizer, history)


def imitated(start: Trained, config: SFTConfig = IMITATE) -> Trained:
    """Fine-tuned on the hints themselves."""
    model = copy.deepcopy(start.model)
    plain = lists(start.tokenizer).plain
    history = train_sft(model, plain, config, pad_token_id=start.tokenizer.pad_token_id, quiet=True)
    return Trained(model, start.tokenizer, history)


def rewarded(start: Trained, config: OnlineConfig = ONLINE) -> Trained:
    """Dr. GRPO on right and wrong."""
    model = copy.deepcopy(start.model)
    problems = task_problems(SORT_DIGITS, "train")[FEW + MANY :]
    grade = task_reward(SORT_DIGITS)
    history = train_online(model, problems, grade, DR_GRPO, config, tokenizer=start.tokenizer, quiet=True)
    return Trained(model, start.tokenizer, history)
