"""Fine-tuning on the model's own right completions, compared with RL on the same number of samples: expert iteration,
STaR, and one round of rejection sampling."""

from __future__ import annotations

import copy
from dataclasses import dataclass, replace

from minirlhf.feedback.rewards import task_problems, task_reward
from minirlhf.models.sampling import Sampling
from minirlhf.stages import pipeline
from minirlhf.stages.pipeline import Trained
from minirlhf.trainers.evaluation import candidates, evaluate
from minirlhf.trainers.sft import SFTConfig, train_sft
from minirlhf_course.chapters.ch16_reasoning.shell import WORLD


@dataclass(frozen=True)
class Rounds:
    """Rounds of sampling and fine-tuning.

    Attributes:
        rounds: number of rounds.
        prompts, of_each: prompts per round, and samples per prompt.
        anew: whether each round fine-tunes the initial model (STaR), and not the current one (expert iteration).
        training: fine-tuning in each round.
    """

    training: SFTConfig
    rounds: int = 6
    prompts: int = 160
    of_each: int = 8
    anew: bool = False


def imitate(begin: Trained, plan: Rounds, seed: int) -> Trained:
    """Sample, select the right completions, fine-tune on them, and repeat with the resulting model."""
    current, problems, pad = begin, task_problems(WORLD, "train"), begin.tokenizer.pad_token_id
    for number in range(plan.rounds):
        batch = [problems[(number * plan.prompts + i) % len(problems)] for i in range(plan.prompts)]
        samples = candidates(
            current.model, batch, task_reward(WORLD), tokenizer=begin.tokenizer,
            sampling=Sampling(max_completion_length=WORLD.max_completion_length), num_generations=plan.of_each,
            seed=1000 * seed + number,
        )  # fmt: skip
        examples = [
            pipeline.completion_tokens(begin.tokenizer, problem.prompt[-1]["content"], text)
            for problem, texts, rewards in zip(batch, samples.completions, samples.rewards.tolist(), strict=True)
            for text, reward in zip(texts, rewards, strict=True)
            if reward == 1
        ]
        model = copy.deepcopy((begin if plan.anew else current).model)
        if examples:
            training = replace(plan.training, seed=1000 * seed + number)
            train_sft(model, examples, training, pad_token_id=pad, quiet=True)
        current = Trained(model, begin.tokenizer)
    return current


def right_and_thinking(policy: Trained, count: int) -> dict[str, float]:
    """Measure a policy on test games, with one sample each: accuracy, and the fraction of completions with a chain of
    thought."""
    result = evaluate(
        policy.model, task_problems(WORLD, "test")[:count], task_reward(WORLD), tokenizer=policy.tokenizer,
        sampling=Sampling(max_completion_length=WORLD.max_completion_length), seed=1000,
    )  # fmt: skip
    num_chains = sum(text.startswith("think") for text in result.completions)
    return {"right": result.reward.mean, "thinks": num_chains / count}
