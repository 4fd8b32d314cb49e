"""The stages and measurements of the tour; ``minirlhf_course/tour/study.py`` repeats them over seeds."""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from minirlhf.core.randomness import threads
from minirlhf.data import tasks
from minirlhf.data.chat import PLAIN
from minirlhf.data.formats import Problem
from minirlhf.feedback.rewards import model_reward, task_problems, task_reward
from minirlhf.models.sampling import Sampling
from minirlhf.models.tiny import num_parameters
from minirlhf.stages import pipeline
from minirlhf.stages.pipeline import AlignPlan, PretrainPlan, RewardPlan, RLPlan, SFTPlan, Trained, with_seed
from minirlhf.trainers.evaluation import Estimate, Evaluation, evaluate, win_rate
from minirlhf.trainers.history import History
from minirlhf.trainers.reward import pair_accuracy

Say = Callable[[str], None]

#: The three methods that start from the SFT model.
IMPROVED = ("GRPO", "PPO", "DPO")


@dataclass(frozen=True)
class Stage:
    """One column of the assistant's table.

    Attributes:
        gold: gold reward of the completions on held-out prompts.
        proxy: the reward model's score of the same completions.
        wins: win rate against the SFT model by gold reward, over prompts.
        kl: KL divergence from the SFT model, in nats per completion.
        length: tokens per completion.
        ended: fraction of completions that are not truncated.
    """

    name: str
    gold: Estimate
    proxy: Estimate
    wins: Estimate
    kl: Estimate
    length: Estimate
    ended: float
    evaluation: Evaluation


@dataclass(frozen=True)
class Game:
    """Measurements of a policy in the shell game, on held-out prompts."""

    name: str
    sampled: Estimate
    greedy: Estimate
    thinks: Estimate
    length: Estimate
    evaluation: Evaluation


@dataclass
class Tour:
    """The contents of the report.

    Attributes:
        seconds: wall time of each part.
        histories: metrics of each training run, by name.
        judge_accuracy: accuracy of the reward model on held-out pairs; ``judge_ceiling`` is that of the gold reward.
    """

    seed: int
    parameters: int = 0
    seconds: dict[str, float] = field(default_factory=dict)
    histories: dict[str, History] = field(default_factory=dict)
    judge_accuracy: float = 0.0
    judge_ceiling: float = 0.0
    judge_pairs: int = 0
    assistant: list[Stage] = field(default_factory=list)
    game: list[Game] = field(default_factory=list)

    @contextmanager
    def timed(self, part: str) -> Iterator[None]:
        """Record the wall time of the block as ``part``."""
        start = time.perf_counter()
        yield
        self.seconds[part] = time.perf_counter() - start

    def numbers(self) -> dict[str, float]:
        """Return the numbers that the tour makes claims about, by name."""
        before, after = self.game
        numbers = {f"gold_{stage.name.lower()}": stage.gold.mean for stage in self.assistant}
        for stage in self.assistant:
            if stage.name in IMPROVED:
                key = stage.name.lower()
                numbers |= {f"win_rate_{key}": stage.wins.mean, f"kl_{key}": stage.kl.mean}
            if stage.name != "base":
                numbers[f"length_{stage.name.lower()}"] = stage.length.mean
        return {
            **numbers,
            "judge_accuracy": self.judge_accuracy,
            "dpo_margin": self.histories["dpo"].last["margin"],
            "game_sampled_sft": before.sampled.mean,
            "game_sampled_rl": after.sampled.mean,
            "game_greedy_sft": before.greedy.mean,
            "game_greedy_rl": after.greedy.mean,
            "game_thinks_sft": before.thinks.mean,
            "game_thinks_rl": after.thinks.mean,
            "game_length_rl": after.length.mean,
        }


@dataclass(frozen=True)
class Plans:
    """The settings of every stage; :func:`run` sets their seed."""

    pretrain: PretrainPlan = PretrainPlan()
    sft: SFTPlan = SFTPlan()
    reward: RewardPlan = RewardPlan()
    grpo: RLPlan = RLPlan()
    ppo: RLPlan = pipeline.ASSISTANT_PPO
    dpo: AlignPlan = AlignPlan()
    game_sft: SFTPlan = pipeline.SHELL_GAME_SFT
    game_rl: RLPlan = pipeline.SHELL_GAME_RL


def run(seed: int = 0, plans: Plans = Plans(), *, say: Say = print, quiet: bool = False) -> Tour:
    """Run the whole tour on one thread; the same seed gives the same numbers on one machine."""
    plans = replace(plans, **{name: with_seed(plan, seed) for name, plan in vars(plans).items()})
    tour = Tour(seed)
    with threads(1), tour.timed("total"):
        _assistant(tour, plans, say, quiet)
        _shell_game(tour, plans, say, quiet)
    return tour


def _assistant(tour: Tour, plans: Plans, say: Say, quiet: bool) -> None:
    task = tasks.get("assistant")
    say("\n1 · Pretraining: a language model of raw text about animals")
    with tour.timed("pretrain"):
        base = pipeline.pretrain(task, plans.pretrain, quiet=quiet)
    tour.parameters = num_parameters(base.model)
    say("2 · Supervised fine-tuning on demonstrations of mediocre quality")
    with tour.timed("sft"):
        sft = pipeline.sft(task, base, plans.sft, quiet=quiet)
    say("3 · Preferences and reward model: which of two replies is better?")
    with tour.timed("reward"):
        pairs, held_out = pipeline.preferences(task, sft, plans.reward)
        reward_model = pipeline.reward_model(sft, pairs, plans.reward, quiet=quiet)
        eval_pairs = pipeline.pair_tokens(sft.tokenizer, held_out)
        tour.judge_accuracy = pair_accuracy(reward_model.model, eval_pairs, pad_token_id=sft.tokenizer.pad_token_id)
    gaps = [task.grade(p.prompt, p.chosen) - task.grade(p.prompt, p.rejected) for p in held_out]
    tour.judge_ceiling = sum((gap > 0) + 0.5 * (gap == 0) for gap in gaps) / len(gaps)
    tour.judge_pairs = len(pairs)
    say(f"    held-out accuracy {tour.judge_accuracy:.2f}; the gold reward itself gets {tour.judge_ceiling:.2f}")
    say("4 · Reinforcement learning (GRPO) against the reward model, with a KL penalty")
    proxy = model_reward(reward_model.model, reward_model.tokenizer)
    rl_options: dict[str, Any] = {"reward": proxy, "monitors": {"gold": task_reward(task)}, "quiet": quiet}
    with tour.timed("grpo"):
        grpo = pipeline.rl(task, sft, plans.grpo, **rl_options)
    say("5 · The same with PPO: a value model estimates the advantage of each token")
    with tour.timed("ppo"):
        ppo = pipeline.rl(task, sft, plans.ppo, **rl_options)
    say("6 · The same preferences without a reward model and without sampling (DPO)")
    with tour.timed("dpo"):
        dpo = pipeline.align(sft, pipeline.pair_tokens(sft.tokenizer, pairs), plans.dpo, quiet=quiet)
    say("7 · Evaluation on held-out prompts")
    with tour.timed("evaluation"):
        plain = copy.deepcopy(base.tokenizer)
        plain.chat_template = PLAIN
        tour.assistant = _compare(
            {"base": replace(base, tokenizer=plain), "SFT": sft, "GRPO": grpo, "PPO": ppo, "DPO": dpo}, sft, proxy
        )
    stages = {"pretrain": base, "sft": sft, "reward": reward_model, "grpo": grpo, "ppo": ppo, "dpo": dpo}
    for name, trained in stages.items():
        tour.histories[name] = trained.history


def _compare(policies: dict[str, Trained], reference: Trained, proxy: Any) -> list[Stage]:
    task = tasks.get("assistant")
    problems = task_problems(task, "test")
    sampling = Sampling(max_completion_length=task.max_completion_length)
    evaluations = {
        name: evaluate(
            policy.model,
            problems,
            task_reward(task),
            tokenizer=policy.tokenizer,
            sampling=sampling,
            # The base model gets the question without a chat template, so its KL from the SFT model is not defined.
            ref_model=None if policy.tokenizer.chat_template == PLAIN else reference.model,
            seed=1000,
        )
        for name, policy in policies.items()
    }
    baseline_rewards = evaluations["SFT"].rewards
    return [
        Stage(
            name,
            e.reward,
            Estimate.of(torch.tensor(proxy(e.problems, e.completions))),
            win_rate(e.rewards, baseline_rewards),
            e.divergence,
            e.length,
            float(e.terminated.float().mean()),
            e,
        )
        for name, e in evaluations.items()
    ]


def _shell_game(tour: Tour, plans: Plans, say: Say, quiet: bool) -> None:
    task = tasks.get("shell_game")
    say("\n8 · The shell game: SFT on one chain of thought for every four direct answers")
    with tour.timed("game_sft"):
        sft = pipeline.sft_from_scratch(task, plans.game_sft, quiet=quiet)
    say("9 · Reinforcement learning with a reward for correct answers only (Dr. GRPO)")
    with tour.timed("game_rl"):
        rl = pipeline.rl(task, sft, plans.game_rl, monitors={"thinks": _thinks}, quiet=quiet)
    with tour.timed("game_evaluation"):
        tour.game = [_play("SFT", sft), _play("RL", rl)]
    tour.histories["game_sft"], tour.histories["game_rl"] = sft.history, rl.history


def _play(name: str, policy: Trained) -> Game:
    task = tasks.get("shell_game")
    problems = task_problems(task, "test")[:400]
    sampled, greedy = (
        evaluate(
            policy.model,
            problems,
            task_reward(task),
            tokenizer=policy.tokenizer,
            sampling=Sampling(max_completion_length=task.max_completion_length, greedy=greedy),
            seed=1000,
        )
        for greedy in (False, True)
    )
    thinks = Estimate.of(torch.tensor(_thinks(sampled.problems, sampled.completions)))
    return Game(name, sampled.reward, greedy.reward, thinks, sampled.length, sampled)


def _thinks(problems: Sequence[Problem], completions: Sequence[str]) -> list[float]:
    """Return 1 for each completion that begins with a chain of thought. It is monitored, never rewarded."""
    return [float(text.startswith("think")) for text in completions]
