"""Two tasks in which the choices of group methods could matter, and recipes with eight updates per rollout.

*Mixed difficulty*: a briefly trained model sorts lists of two to twelve digits; it is mostly right on short lists and
hardly ever on long ones. *Long completions*: the shell game with a hesitation of any length before the answer, which
nothing rewards.

    sort 3 1 4 1 5                    ball b swaps ab cd ac bd ad bc
    1 1 3 4 5                         think b a a c c c b hm hm hm hm hm answer b
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache

import numpy as np
import torch

from minirlhf.core.randomness import numpy_generator
from minirlhf.data import tasks
from minirlhf.data.formats import Problem
from minirlhf.data.tasks.base import Split, Task
from minirlhf.data.tasks.sort_digits import DIGITS
from minirlhf.equations.aggregation import token_mean
from minirlhf.equations.difficulty import maxrl
from minirlhf.equations.policy_losses import gspo, reinforce
from minirlhf.feedback.rewards import task_problems, task_reward
from minirlhf.models.sampling import Sampling
from minirlhf.recipes import DAPO, DR_GRPO, GRPO, PPO, Recipe
from minirlhf.stages import pipeline
from minirlhf.stages.pipeline import RLPlan, SFTPlan, Trained
from minirlhf.trainers.evaluation import evaluate
from minirlhf.trainers.history import History
from minirlhf.trainers.online import OnlineConfig
from minirlhf.trainers.sft import SFTConfig
from minirlhf_course.chapters.ch13_group_relative_methods import group_family
from minirlhf_course.evidence.probe import brief

FEWEST, MOST = 2, 12
#: The length of a hesitation is geometric with this mean, cut at three times as many words.
HESITATION = 10
_GAME = tasks.get("shell_game")


@cache
def _lists(split: Split) -> list[str]:
    rng = numpy_generator("mixed_lists", split)
    sizes = rng.integers(FEWEST, MOST + 1, size=4_000 if split == "train" else 800)
    return [f"sort {' '.join(str(digit) for digit in rng.integers(0, 10, size=size))}" for size in sizes]


class MixedLists:
    """The task of sorting two to twelve digits; a :class:`~minirlhf.data.tasks.base.Task`."""

    name = "mixed_lists"
    words = (*DIGITS, "sort")
    max_completion_length = MOST + 1 + 4  # DAPO's soft penalty applies to the last four

    def prompts(self, split: Split) -> list[str]:
        """Return 4,000 lists for training or 800 for testing."""
        return list(_lists(split))

    def reference(self, prompt: str) -> str:
        """Return the digits in order."""
        return " ".join(sorted(prompt.split()[1:]))

    def demonstration(self, prompt: str, rng: np.random.Generator) -> str:
        """Return the right answer."""
        return self.reference(prompt)

    def grade(self, prompt: str, completion: str) -> float:
        """Return 1 if the completion is exactly the sorted list, else 0."""
        return float(completion.split() == sorted(prompt.split()[1:]))


class HesitantGame:
    """The shell game, with a hesitation before the answer; a :class:`~minirlhf.data.tasks.base.Task`."""

    name = "hesitant_game"
    words = (*_GAME.words, "hm")
    max_completion_length = 48

    def prompts(self, split: Split) -> list[str]:
        """Return the prompts of the shell game."""
        return _GAME.prompts(split)

    def reference(self, prompt: str) -> str:
        """Return the chain of thought and the answer, without a hesitation."""
        return _GAME.reference(prompt)

    def demonstration(self, prompt: str, rng: np.random.Generator) -> str:
        """Return a demonstration of the shell game with random hesitation before the answer; it is always right."""
        *thought, word, cup = _GAME.demonstration(prompt, rng).split()
        hesitation = min(3 * HESITATION, int(rng.geometric(1 / (HESITATION + 1))) - 1)
        return " ".join([*thought, *["hm"] * hesitation, word, cup])

    def grade(self, prompt: str, completion: str) -> float:
        """Return 1 if the completion ends in ``answer`` and the right cup, else 0."""
        return _GAME.grade(prompt, completion)


@dataclass(frozen=True)
class Contest:
    """One task, how its initial model is fine-tuned, and how that model is trained with each recipe.

    Attributes:
        rows: names of the recipes that are compared, see :func:`recipes`.
        refilled: number of rollouts of a recipe with dynamic sampling, which samples until no group of the batch has
            zero variance; the other recipes have ``training.max_steps``.
        at: numbers of sampled tokens at which rewards are compared.
        shares: metrics of every rollout by name, each a function ``(prompt, completion) -> number``.
        sequence_epsilon: GSPO's clip range. The paper's 3e-4 is for completions of thousands of tokens; this one was
            chosen among .01, .03 and .1 on a seed that no study uses.
    """

    task: Task
    rows: tuple[str, ...]
    sft: SFTPlan
    training: OnlineConfig
    refilled: int
    at: range
    shares: dict[str, Callable[[str, str], float]]
    sequence_epsilon: float


def _digits(prompt: str) -> int:
    return len(prompt.split()) - 1


_MIXED, _LONG = MixedLists(), HesitantGame()

#: Three classes of list lengths, from two digits to twelve.
CLASSES = {"short": range(2, 6), "middle": range(6, 9), "long": range(9, 13)}


def _of_class(sizes: range, *, right: bool) -> Callable[[str, str], float]:
    """Return a function that is 1 for prompts of these sizes (if ``right``: for right completions), else 0."""
    return lambda prompt, text: float(_digits(prompt) in sizes) * (_MIXED.grade(prompt, text) if right else 1.0)


def _length(*, right: bool) -> Callable[[str, str], float]:
    """Return a function that counts the words of right (or of wrong) completions; 0 for the others."""
    return lambda prompt, text: len(text.split()) * float((_LONG.grade(prompt, text) == 1.0) is right)


MIXED = Contest(
    _MIXED,
    ("clip", "no_ratio", "gspo", "dr_grpo", "maxrl", "dapo"),
    SFTPlan(demonstrations=7_680, training=SFTConfig(max_steps=120, batch_size=64, learning_rate=3e-3)),
    OnlineConfig(max_steps=19, batch_size=16, num_generations=8, learning_rate=1e-4),
    14,
    range(4_000, 16_001, 4_000),
    {f"{name}_right": _of_class(sizes, right=True) for name, sizes in CLASSES.items()}
    | {f"{name}_asked": _of_class(sizes, right=False) for name, sizes in CLASSES.items()},
    sequence_epsilon=0.03,
)
LONG = Contest(
    _LONG,
    ("clip", "by_token", "no_ratio", "gspo", "dr_grpo", "ppo"),
    SFTPlan(demonstrations=6_400, training=SFTConfig(max_steps=400, batch_size=64, learning_rate=3e-3)),
    OnlineConfig(max_steps=12, batch_size=16, num_generations=8, learning_rate=2e-4),
    12,
    range(4_000, 16_001, 4_000),
    {
        "thinks": lambda prompt, text: float(text.startswith("think")),
        "words_right": _length(right=True),
        "words_wrong": _length(right=False),
    },
    sequence_epsilon=0.03,
)


def recipes(contest: Contest) -> dict[str, Recipe]:
    """Return the contest's recipes, each with two passes of four minibatches: eight updates on every rollout.

    ``clip`` is GRPO without its KL term, ``by_token`` the same with the mean over all tokens. ``no_ratio`` and ``gspo``
    change the use of the ratio, ``dr_grpo`` and ``maxrl`` the advantage and the weights, ``dapo`` and ``ppo`` more.
    """
    clip = GRPO.with_(kl=None)
    rows = {
        "clip": clip,
        "by_token": clip.with_(weights=token_mean),
        "no_ratio": clip.with_(objective=reinforce),
        "gspo": clip.with_(objective=gspo, epsilon=contest.sequence_epsilon),
        "dr_grpo": DR_GRPO,
        "maxrl": DR_GRPO.with_(advantage=maxrl),
        "dapo": DAPO.with_(keep=None),
        "ppo": PPO.with_(kl=None),
    }
    return {name: rows[name].with_(num_iterations=2, num_minibatches=4) for name in contest.rows}


def start(contest: Contest) -> Trained:
    """Train the initial model that all seeds of a contest share."""
    return pipeline.sft_from_scratch(contest.task, contest.sft, quiet=True)


def train(contest: Contest, begin: Trained, recipe: Recipe, *, seed: int, prompts: int | None = None) -> Trained:
    """Train a copy of ``begin`` with a recipe; the contest's ``shares`` are monitored in every rollout."""
    steps = contest.refilled if recipe.collect.refill else contest.training.max_steps
    plan = RLPlan(recipe, replace(contest.training, seed=seed, max_steps=steps), prompts)
    monitors = {name: _monitor(count) for name, count in contest.shares.items()}
    return pipeline.rl(contest.task, begin, plan, monitors=monitors, quiet=True)


def _monitor(count: Callable[[str, str], float]) -> Callable[[Sequence[Problem], Sequence[str]], list[float]]:
    return lambda problems, texts: [
        count(problem.prompt[-1]["content"], text) for problem, text in zip(problems, texts, strict=True)
    ]


def measured(contest: Contest, history: History) -> dict[str, float]:
    """Return the metrics of a run.

    ``area`` is the mean reward over the contest's numbers of sampled tokens. ``clip_fraction`` and
    ``policy_log_ratio_max`` are means over the run. The other metrics are means over the eight rollouts up to the last
    of these numbers.
    """
    rewards = group_family.curve(history, contest.at)
    metrics = {"area": sum(rewards) / len(rewards)}
    for key in ("reward", "neg_logp", "completion_length", "frac_reward_zero_std", *contest.shares):
        metrics[key] = group_family.curve(history, contest.at[-1:], key=key, window=8)[0]
    if "words_right" in contest.shares:  # so far means over all completions; now over the right and the wrong ones
        metrics["length_right"] = metrics.pop("words_right") / metrics["reward"]
        metrics["length_wrong"] = metrics.pop("words_wrong") / (1 - metrics["reward"])
    for key in ("clip_fraction", "policy_log_ratio_max"):
        # NaN marks a step without an update: all of its groups have zero variance.
        updates = [x for x in history[key] if x == x]
        metrics[key] = sum(updates) / len(updates)
    return metrics


def pass_rates(begin: Trained, *, seed: int, prompts: int = 400) -> dict[str, float]:
    """Return the fraction of unseen lists of each class that a model sorts correctly."""
    result = evaluate(
        begin.model,
        task_problems(_MIXED, "test")[:prompts],
        task_reward(_MIXED),
        tokenizer=begin.tokenizer,
        sampling=Sampling(max_completion_length=_MIXED.max_completion_length),
        seed=1000 + seed,
    )
    sizes = torch.tensor([_digits(problem.prompt[-1]["content"]) for problem in result.problems])
    classes = {name: (sizes >= span.start) & (sizes < span.stop) for name, span in CLASSES.items()}
    return {f"start_{name}": float(result.rewards[in_class].mean()) for name, in_class in classes.items()}


def one_seed(contest: Contest, begin: Trained, seed: int) -> dict[str, float]:
    """Train every recipe from the same initial model, on the same prompts in the same order; return the metrics."""
    metrics: dict[str, float] = {}
    for name, recipe in recipes(contest).items():
        history = train(contest, begin, recipe, seed=seed).history
        metrics |= {f"{name}_{key}": value for key, value in measured(contest, history).items()}
    return metrics


def brief_contest(contest: Contest) -> Contest:
    """Return a contest that takes a few seconds, for a probe."""
    training = replace(contest.training, max_steps=4, batch_size=4, num_generations=4, learning_rate=5e-4)
    sft = brief(contest.sft, 30, demonstrations=64 * 30)
    return replace(contest, sft=sft, training=training, refilled=3, at=range(100, 201, 100))
