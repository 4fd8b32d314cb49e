"""Imitating one's own right replies, beside RL on as many samples: expert iteration, STaR, and one round of rejection sampling."""

from __future__ import annotations

import copy
from dataclasses import dataclass, replace

from minirlhf.chapters.ch16_reasoning.shell import WORLD
from minirlhf.feedback.rewards import task_problems, task_reward
from minirlhf.models.sampling import Sampling
from minirlhf.stages import pipeline
from minirlhf.stages.pipeline import Trained
from minirlhf.trainers.evaluation import candidates, evaluate
from minirlhf.trainers.sft import SFTConfig, train_sft


@dataclass(frozen=True)
class Rounds:
    """Rounds of sampling and imitation.

    Attributes:
        rounds: how many.
        prompts, of_each: what a round samples.
        anew: whether each round fine-tunes the first model (STaR), and not the present one (expert iteration).
        training: of each round.
    """

    training: SFTConfig
    rounds: int = 6
    prompts: int = 160
    of_each: int = 8
    anew: bool = False


def imitate(begin: Trained, plan: Rounds, seed: int) -> Trained:
    """Sample, keep what is right, fine-tune on it, and again from what came out."""
    present, problems, pad = begin, task_problems(WORLD, "train"), begin.tokenizer.pad_token_id
    for number in range(plan.rounds):
        asked = [problems[(number * plan.prompts + i) % len(problems)] for i in range(plan.prompts)]
        drawn = candidates(
            present.model, asked, task_reward(WORLD), tokenizer=begin.tokenizer,
            sampling=Sampling(max_completion_length=WORLD.max_completion_length), num_generations=plan.of_each,
            seed=1000 * seed + number,
        )  # fmt: skip
        kept = [
            pipeline.reply_tokens(begin.tokenizer, problem.prompt[-1]["content"], text)
            for problem, texts, grades in zip(asked, drawn.completions, drawn.rewards.tolist(), strict=True)
            for text, grade in zip(texts, grades, strict=True)
            if grade == 1
        ]
        model = copy.deepcopy((begin if plan.anew else present).model)
        if kept:
            training = replace(plan.training, seed=1000 * seed + number)
            train_sft(model, kept, training, pad_token_id=pad, quiet=True)
        present = Trained(model, begin.tokenizer)
    return present


def right_and_thinking(policy: Trained, count: int) -> dict[str, float]:
    """On games that it has not seen: right answers, and replies that think aloud; one sample each."""
    result = evaluate(
        policy.model, task_problems(WORLD, "test")[:count], task_reward(WORLD), tokenizer=policy.tokenizer,
        sampling=Sampling(max_completion_length=WORLD.max_completion_length), seed=1000,
    )  # fmt: skip
    thinking = sum(text.startswith("think") for text in result.completions)
    return {"right": result.reward.mean, "thinks": thinking / count}
