"""Layer 7: the group-relative family on the shell game: the same start, the same prompts, the same number of sampled tokens.

Everything that ``minirlhf/chapters/ch13_group_relative_methods/study.py`` repeats over seeds and that the notebook of chapter 13 runs once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch

from minirlhf.core.errors import ArgumentError
from minirlhf.data import tasks
from minirlhf.data.formats import Problem
from minirlhf.feedback.rewards import task_problems, task_reward
from minirlhf.models.sampling import Sampling
from minirlhf.recipes import Recipe, get
from minirlhf.stages import pipeline
from minirlhf.stages.pipeline import SHELL_GAME_SFT, SFTPlan, Trained
from minirlhf.trainers.evaluation import evaluate
from minirlhf.trainers.history import History
from minirlhf.trainers.online import OnlineConfig

#: A thought and its answer take 11 tokens; the rest is room for DAPO's soft punishment to leave alone.
RUN = replace(pipeline.SHELL_GAME_RL.training, max_completion_length=16)

#: Compared with one update per rollout: the ratio is 1, so what differs is credit, weights, KL and what is sampled. Left out are
#: those that are then another row by definition: GSPO, SAPO and GMPO take the steps of GRPO without KL, masked GRPO those of GRPO,
#: decoupled PPO those of Dr. GRPO.
ON_POLICY: tuple[str, ...] = (
    "reinforce",
    "remax",
    "reinforce_pp",
    "reinforce_pp_baseline",
    "ppo",
    "vapo",
    "rloo",
    "grpo",
    "grpo_process",
    "dr_grpo",
    "dapo",
    "luspo",
    "cispo",
    "bnpo",
    "maxrl",
    "gfpo",
    "lite_ppo",
)


def on_policy() -> dict[str, Recipe]:
    """The recipes of :data:`ON_POLICY`, each with one update per rollout."""
    return {name: get(name).with_(num_iterations=1, num_minibatches=1) for name in ON_POLICY}


def off_policy() -> dict[str, Recipe]:
    """Four updates on each rollout, without KL: what differs is what a ratio may do. One change at a time from GRPO's clip."""
    clip = get("grpo").with_(kl=None)
    rows = {
        "clip": clip,
        "clip_higher": clip.with_(epsilon_high=0.28),
        "clip_much_higher": clip.with_(epsilon_high=1.0),
        "gspo": get("gspo"),
    }
    return {name: recipe.with_(num_iterations=4, num_minibatches=1) for name, recipe in rows.items()}


def start(seed: int, *, plan: SFTPlan = SHELL_GAME_SFT, quiet: bool = True) -> Trained:
    """A fresh policy after supervised fine-tuning, which thinks aloud one time in five."""
    return pipeline.sft_from_scratch(tasks.get("shell_game"), pipeline.with_seed(plan, seed), quiet=quiet)


def train(
    begin: Trained,
    recipe: Recipe,
    config: OnlineConfig = RUN,
    *,
    seed: int = 0,
    games: int | None = None,
    quiet: bool = True,
) -> Trained:
    """A copy of ``begin``, improved on right answers alone (a recipe of process rewards: on right positions of the ball).

    Of the training games only the first ``games`` are played, if that is given.
    """
    world = tasks.get("shell_game")
    plan = pipeline.RLPlan(recipe, replace(config, seed=seed), games, config.max_completion_length)
    return pipeline.rl(world, begin, plan, monitors={"thinks": thinks}, quiet=quiet)


def play(policy: Trained, *, games: int = 400, greedy: bool = False) -> dict[str, float]:
    """How a policy plays on games that it has not seen: share of right answers, of thoughts, and tokens per reply."""
    world = tasks.get("shell_game")
    sampling = Sampling(max_completion_length=RUN.max_completion_length, greedy=greedy)
    result = evaluate(
        policy.model,
        task_problems(world, "test")[:games],
        task_reward(world),
        tokenizer=policy.tokenizer,
        sampling=sampling,
        seed=1000,
    )
    thought = thinks(result.problems, result.completions)
    return {"right": result.reward.mean, "thinks": sum(thought) / len(thought), "length": result.length.mean}


def thinks(problems: Sequence[Problem], completions: Sequence[str]) -> list[float]:
    """1 for each completion that begins with a chain of thought. Watched, never rewarded."""
    return [float(text.startswith("think")) for text in completions]


def tokens(history: History) -> torch.Tensor:
    """Sampled tokens up to and with each step, ``(steps,)``, groups that were thrown away included."""
    return torch.tensor(history["sampled_tokens"]).cumsum(0)


def curve(history: History, at: Sequence[float], *, key: str = "reward", window: int = 5) -> list[float]:
    """A metric at given numbers of sampled tokens: the mean over the ``window`` rollouts up to there.

    Raises:
        ValueError: the run ended before.
    """
    counted, values = tokens(history), history[key]
    result = []
    for wanted in at:
        if counted[-1] < wanted:
            raise ArgumentError(
                f"the run ended after {int(counted[-1])} sampled tokens; expected {wanted} at least",
                argument="at",
                value=wanted,
                expected=int(counted[-1]),
            )
        last = int((counted < wanted).sum())  # the rollout that reaches it
        part = values[max(0, last - window + 1) : last + 1]
        result.append(sum(part) / len(part))
    return result
