"""The group-relative family on the shell game: same initial model, prompts and number of sampled tokens.

``minirlhf_course/chapters/ch13_group_relative_methods/study.py`` repeats this code over seeds; the notebook of chapter 13 runs
it once.
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

#: A chain of thought and its answer take 11 tokens. The rest is headroom, to which DAPO's soft penalty does not apply.
RUN = replace(pipeline.SHELL_GAME_RL.training, max_completion_length=16)

#: Recipes that are compared with one update per rollout. The ratio is then 1, so the recipes differ in credit, weights,
#: KL and sampling. Recipes that then equal another row by definition are left out: GSPO, SAPO and GMPO take the steps
#: of GRPO without KL, masked GRPO takes those of GRPO, and decoupled PPO those of Dr. GRPO.
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
    """Return the recipes of :data:`ON_POLICY`, each with one update per rollout."""
    return {name: get(name).with_(num_iterations=1, num_minibatches=1) for name in ON_POLICY}


def off_policy() -> dict[str, Recipe]:
    """Return recipes with four updates per rollout and without KL, which differ in the limits on the ratio.

    Each of them changes one thing in GRPO's clip.
    """
    clip = get("grpo").with_(kl=None)
    rows = {
        "clip": clip,
        "clip_higher": clip.with_(epsilon_high=0.28),
        "clip_much_higher": clip.with_(epsilon_high=1.0),
        "gspo": get("gspo"),
    }
    return {name: recipe.with_(num_iterations=4, num_minibatches=1) for name, recipe in rows.items()}


def start(seed: int, *, plan: SFTPlan = SHELL_GAME_SFT, quiet: bool = True) -> Trained:
    """Fine-tune a new policy on demonstrations; it then writes a chain of thought in one completion of five."""
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
    """Train a copy of ``begin`` on a reward for right answers alone.

    A recipe of process rewards is trained on right positions of the ball. If ``games`` is given, only the first
    ``games`` training games are used.
    """
    task = tasks.get("shell_game")
    plan = pipeline.RLPlan(recipe, replace(config, seed=seed), games, config.max_completion_length)
    return pipeline.rl(task, begin, plan, monitors={"thinks": thinks}, quiet=quiet)


def play(policy: Trained, *, games: int = 400, greedy: bool = False) -> dict[str, float]:
    """Return a policy's fractions of right answers and of chains of thought, and its mean length, on unseen games."""
    task = tasks.get("shell_game")
    sampling = Sampling(max_completion_length=RUN.max_completion_length, greedy=greedy)
    result = evaluate(
        policy.model,
        task_problems(task, "test")[:games],
        task_reward(task),
        tokenizer=policy.tokenizer,
        sampling=sampling,
        seed=1000,
    )
    has_thought = thinks(result.problems, result.completions)
    return {"right": result.reward.mean, "thinks": sum(has_thought) / len(has_thought), "length": result.length.mean}


def thinks(problems: Sequence[Problem], completions: Sequence[str]) -> list[float]:
    """Return 1 for each completion that begins with a chain of thought, else 0. It is monitored, never rewarded."""
    return [float(text.startswith("think")) for text in completions]


def tokens(history: History) -> torch.Tensor:
    """Return the cumulative number of sampled tokens after each step, ``(steps,)``, discarded groups included."""
    return torch.tensor(history["sampled_tokens"]).cumsum(0)


def curve(history: History, at: Sequence[float], *, key: str = "reward", window: int = 5) -> list[float]:
    """Return a metric at given numbers of sampled tokens: the mean over the last ``window`` rollouts at each of them.

    Raises:
        ValueError: the run ended before it had sampled so many tokens.
    """
    total_tokens, values = tokens(history), history[key]
    result = []
    for num_tokens in at:
        if total_tokens[-1] < num_tokens:
            raise ArgumentError(
                f"the run ended after {int(total_tokens[-1])} sampled tokens; expected {num_tokens} at least",
                argument="at",
                value=num_tokens,
                expected=int(total_tokens[-1]),
            )
        last = int((total_tokens < num_tokens).sum())  # the rollout that reaches it
        recent = values[max(0, last - window + 1) : last + 1]
        result.append(sum(recent) / len(recent))
    return result
