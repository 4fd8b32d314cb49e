"""Layer 8: two worlds in which the choices of group methods could matter, and recipes with eight updates on every rollout.

*Mixed difficulty*: lists of two to twelve digits to be sorted by a briefly trained model, from mostly right to hardly ever. *Long
replies*: the shell game with a hesitation of any length before the answer, which nothing rewards.

    sort 3 1 4 1 5                    ball b swaps ab cd ac bd ad bc
    1 1 3 4 5                         think b a a c c c b hm hm hm hm hm answer b
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache

import numpy as np
import torch

from minirlhf.chapters.ch13_group_relative_methods import group_family
from minirlhf.core.randomness import numpy_generator
from minirlhf.data import tasks
from minirlhf.data.formats import Problem
from minirlhf.data.tasks.base import Split, Task
from minirlhf.data.tasks.sort_digits import DIGITS
from minirlhf.equations.aggregation import token_mean
from minirlhf.equations.difficulty import maxrl
from minirlhf.equations.policy_losses import gspo, reinforce
from minirlhf.evidence.probe import brief
from minirlhf.feedback.rewards import task_problems, task_reward
from minirlhf.models.sampling import Sampling
from minirlhf.recipes import DAPO, DR_GRPO, GRPO, PPO, Recipe
from minirlhf.stages import pipeline
from minirlhf.stages.pipeline import RLPlan, SFTPlan, Trained
from minirlhf.trainers.evaluation import evaluate
from minirlhf.trainers.history import History
from minirlhf.trainers.online import OnlineConfig
from minirlhf.trainers.sft import SFTConfig

FEWEST, MOST = 2, 12
#: A hesitation is geometric with this mean, cut at three times as many words.
HESITATION = 10
_GAME = tasks.get("shell_game")


@cache
def _lists(split: Split) -> list[str]:
    rng = numpy_generator("mixed_lists", split)
    sizes = rng.integers(FEWEST, MOST + 1, size=4_000 if split == "train" else 800)
    return [f"sort {' '.join(str(digit) for digit in rng.integers(0, 10, size=size))}" for size in sizes]


class MixedLists:
    """Sorting two to twelve digits; a :class:`~minirlhf.data.tasks.base.Task`."""

    name = "mixed_lists"
    words = (*DIGITS, "sort")
    max_completion_length = MOST + 1 + 4  # the last four are what DAPO's soft punishment charges

    def prompts(self, split: Split) -> list[str]:
        """4,000 lists to train on, 800 to test on."""
        return list(_lists(split))

    def reference(self, prompt: str) -> str:
        """The digits in order."""
        return " ".join(sorted(prompt.split()[1:]))

    def demonstration(self, prompt: str, rng: np.random.Generator) -> str:
        """The right answer."""
        return self.reference(prompt)

    def grade(self, prompt: str, completion: str) -> float:
        """1 if the completion is exactly the sorted list, else 0."""
        return float(completion.split() == sorted(prompt.split()[1:]))


class HesitantGame:
    """The shell game, with a hesitation before the answer; a :class:`~minirlhf.data.tasks.base.Task`."""

    name = "hesitant_game"
    words = (*_GAME.words, "hm")
    max_completion_length = 48

    def prompts(self, split: Split) -> list[str]:
        """Those of the shell game."""
        return _GAME.prompts(split)

    def reference(self, prompt: str) -> str:
        """The chain of thought and the answer, at once."""
        return _GAME.reference(prompt)

    def demonstration(self, prompt: str, rng: np.random.Generator) -> str:
        """One of the shell game's, with "hm" so many times before the answer as a die says; always right."""
        *thought, word, cup = _GAME.demonstration(prompt, rng).split()
        hesitation = min(3 * HESITATION, int(rng.geometric(1 / (HESITATION + 1))) - 1)
        return " ".join([*thought, *["hm"] * hesitation, word, cup])

    def grade(self, prompt: str, completion: str) -> float:
        """1 if the completion ends in ``answer`` and the right cup, else 0."""
        return _GAME.grade(prompt, completion)


@dataclass(frozen=True)
class Contest:
    """One world, how its models are fine-tuned, and how they are improved.

    Attributes:
        rows: the recipes that are compared in it, see :func:`recipes`.
        refilled: rollouts of a recipe that samples groups until the batch is full of live ones; the others: ``training.max_steps``.
        at: sampled tokens at which rewards are compared.
        shares: counted in every rollout: ``(prompt, completion) -> number`` each, by name.
        sequence_epsilon: GSPO's range. The paper's, 3e-4, belongs to replies of thousands of tokens; this one was chosen among .01, .03 and
            .1 on a seed that no study uses.
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

#: From two digits to twelve, in three classes.
CLASSES = {"short": range(2, 6), "middle": range(6, 9), "long": range(9, 13)}


def _of_class(sizes: range, *, right: bool) -> Callable[[str, str], float]:
    """1 for a prompt of these sizes; if ``right``, only if it was answered rightly."""
    return lambda prompt, text: float(_digits(prompt) in sizes) * (_MIXED.grade(prompt, text) if right else 1.0)


def _length(*, right: bool) -> Callable[[str, str], float]:
    """Words of a reply that is right, or wrong; 0 for the others."""
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
    """The contest's rows, each with two passes of four minibatches: eight updates on every rollout.

    ``clip`` is GRPO without its KL term, ``by_token`` the same with the mean over all tokens. The next two change what a ratio does, ``dr_grpo`` and ``maxrl`` the advantage and the weights,
    ``dapo`` and ``ppo`` more.
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
    """The one model that all seeds of a contest start from."""
    return pipeline.sft_from_scratch(contest.task, contest.sft, quiet=True)


def train(contest: Contest, begin: Trained, recipe: Recipe, *, seed: int, prompts: int | None = None) -> Trained:
    """A copy of ``begin``, improved; the shares of the contest are counted in every rollout."""
    steps = contest.refilled if recipe.collect.refill else contest.training.max_steps
    plan = RLPlan(recipe, replace(contest.training, seed=seed, max_steps=steps), prompts)
    monitors = {name: _monitor(count) for name, count in contest.shares.items()}
    return pipeline.rl(contest.task, begin, plan, monitors=monitors, quiet=True)


def _monitor(count: Callable[[str, str], float]) -> Callable[[Sequence[Problem], Sequence[str]], list[float]]:
    return lambda problems, texts: [
        count(problem.prompt[-1]["content"], text) for problem, text in zip(problems, texts, strict=True)
    ]


def measured(contest: Contest, history: History) -> dict[str, float]:
    """The mean reward at the contest's numbers of sampled tokens, and at the last of them everything else, over eight rollouts."""
    reward = group_family.curve(history, contest.at)
    numbers = {"area": sum(reward) / len(reward)}
    for key in ("reward", "neg_logp", "completion_length", "frac_reward_zero_std", *contest.shares):
        numbers[key] = group_family.curve(history, contest.at[-1:], key=key, window=8)[0]
    if "words_right" in contest.shares:  # of all replies; now of the right ones, and of the wrong ones
        numbers["length_right"] = numbers.pop("words_right") / numbers["reward"]
        numbers["length_wrong"] = numbers.pop("words_wrong") / (1 - numbers["reward"])
    for key in ("clip_fraction", "policy_log_ratio_max"):
        known = [x for x in history[key] if x == x]  # a step without a single mixed group has no update
        numbers[key] = sum(known) / len(known)
    return numbers


def pass_rates(begin: Trained, *, seed: int, prompts: int = 400) -> dict[str, float]:
    """How often a model sorts lists of each class rightly, on lists that it has not seen."""
    result = evaluate(
        begin.model,
        task_problems(_MIXED, "test")[:prompts],
        task_reward(_MIXED),
        tokenizer=begin.tokenizer,
        sampling=Sampling(max_completion_length=_MIXED.max_completion_length),
        seed=1000 + seed,
    )
    sizes = torch.tensor([_digits(problem.prompt[-1]["content"]) for problem in result.problems])
    classes = {name: (sizes >= some.start) & (sizes < some.stop) for name, some in CLASSES.items()}
    return {f"start_{name}": float(result.rewards[rows].mean()) for name, rows in classes.items()}


def one_seed(contest: Contest, begin: Trained, seed: int) -> dict[str, float]:
    """Every row from the same start, on the same prompts in the same order."""
    numbers: dict[str, float] = {}
    for name, recipe in recipes(contest).items():
        history = train(contest, begin, recipe, seed=seed).history
        numbers |= {f"{name}_{key}": value for key, value in measured(contest, history).items()}
    return numbers


def brief_contest(contest: Contest) -> Contest:
    """The contest in a few seconds, for a probe."""
    training = replace(contest.training, max_steps=4, batch_size=4, num_generations=4, learning_rate=5e-4)
    sft = brief(contest.sft, 30, demonstrations=64 * 30)
    return replace(contest, sft=sft, training=training, refilled=3, at=range(100, 201, 100))
