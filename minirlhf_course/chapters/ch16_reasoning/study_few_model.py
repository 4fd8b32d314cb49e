"""RL on tens of graded examples: ``python -m minirlhf_course.chapters.ch16_reasoning.study_few_model`` (about two minutes of one core).

The shell game, five seeds: RL on 4 and on 16 training prompts, over and over, and on prompts that are new in every update, with as many updates and
samples each; and fine-tuning on the same few prompts with their bare answers, which is all that a grader's reference holds. Measured on the prompts
trained on and on 500 others. Rates were looked for on two other seeds. Writes ``study_few_model.json``.
"""

import copy
from dataclasses import replace

from minirlhf.data.tasks.shell_game import positions
from minirlhf.feedback.rewards import task_problems, task_reward
from minirlhf.models.sampling import Sampling
from minirlhf.stages import pipeline
from minirlhf.stages.pipeline import SHELL_GAME_RL, SHELL_GAME_SFT, RLPlan, Trained
from minirlhf.trainers.evaluation import candidates
from minirlhf.trainers.sft import SFTConfig, train_sft
from minirlhf_course.chapters.ch16_reasoning.imitation import right_and_thinking
from minirlhf_course.chapters.ch16_reasoning.shell import WORLD
from minirlhf_course.evidence import Study, brief, initial_models, settings, trace

PROMPTS = (4, 16)
ANSWERS = SFTConfig(max_steps=60, batch_size=16, learning_rate=3e-3, lr_scheduler_type="linear")


def answered(begin: Trained, count: int, training: SFTConfig) -> Trained:
    """Fine-tuned on the bare answers of the first prompts."""
    rows = [
        pipeline.completion_tokens(begin.tokenizer, prompt, f"answer {positions(prompt)[-1]}")
        for prompt in WORLD.prompts("train")[:count]
    ]
    model = copy.deepcopy(begin.model)
    training = replace(training, batch_size=min(training.batch_size, count))
    train_sft(model, rows, training, pad_token_id=begin.tokenizer.pad_token_id, quiet=True)
    return Trained(model, begin.tokenizer)


def reinforced(begin: Trained, count: int, rl: RLPlan) -> Trained:
    """RL on the first prompts; fewer than a batch have larger groups, so that an update has as many samples."""
    training = rl.training
    fewer = min(training.batch_size, count)
    group = training.num_generations * training.batch_size // fewer
    few = replace(rl, prompts=count, training=replace(training, batch_size=fewer, num_generations=group))
    return pipeline.rl(WORLD, begin, few, quiet=True)


def seen(policy: Trained, count: int, samples: int = 512) -> float:
    """Right answers on the first training prompts, of so many samples in all."""
    drawn = candidates(
        policy.model, task_problems(WORLD, "train")[:count], task_reward(WORLD), tokenizer=policy.tokenizer,
        sampling=Sampling(max_completion_length=WORLD.max_completion_length), num_generations=samples // count, seed=1000,
    )  # fmt: skip
    return drawn.average.mean


def one_seed(
    seed: int,
    begin: Trained | None = None,
    rl: RLPlan = SHELL_GAME_RL,
    answers: SFTConfig = ANSWERS,
    count: int = 500,
    prompts: tuple[int, ...] = PROMPTS,
) -> dict[str, float]:
    """Every arm with one seed."""
    if begin is None:
        begin = pipeline.sft_from_scratch(WORLD, pipeline.with_seed(SHELL_GAME_SFT, seed), quiet=True)
    rl, answers = pipeline.with_seed(rl, seed), replace(answers, seed=seed)
    numbers = right_and_thinking(begin, count)
    always_new = right_and_thinking(pipeline.rl(WORLD, begin, rl, quiet=True), count)
    numbers = {f"begin_{key}": value for key, value in numbers.items()}
    numbers |= {f"new_{key}": value for key, value in always_new.items()}
    for few in prompts:
        numbers[f"begin_{few}_seen"] = seen(begin, few)
        for name, policy in {"rl": reinforced(begin, few, rl), "answers": answered(begin, few, answers)}.items():
            numbers |= {f"{name}_{few}_{key}": value for key, value in right_and_thinking(policy, count).items()}
            numbers[f"{name}_{few}_seen"] = seen(policy, few)
    return numbers


def probe() -> dict[str, float | str]:
    """A little of each, from a brief start."""
    begin, numbers = initial_models.shell_game()
    plan = brief(SHELL_GAME_SFT, demonstrations=128)
    fresh = pipeline.sft_from_scratch(WORLD, pipeline.with_seed(plan, 1), quiet=True)
    numbers |= trace("fresh", fresh.history)
    rl = brief(SHELL_GAME_RL, batch_size=4, num_generations=4)
    numbers |= one_seed(1, begin, rl, replace(ANSWERS, max_steps=3, batch_size=4), 40, (2, 8))
    return numbers | settings(rl=SHELL_GAME_RL, answers=ANSWERS)


STUDY = Study(one_seed, probe, seeds=5)

if __name__ == "__main__":
    STUDY.main(__file__)
