"""What RL makes of rewards that say little: ``python -m minirlhf_course.chapters.ch16_reasoning.study_rewards`` (about eight minutes of one core).

The shell game, five seeds, each with a fresh policy from supervised fine-tuning and seven runs of sixty rollouts from it: the right answer is paid;
the same with an entropy bonus, and learned at a fifth of the tokens; only the shape of a thought is paid; agreement with the majority of the
group; a coin with eight clipped updates on every rollout, and with eight that are not clipped. On the first, a sigmoid is fitted to a part of
the run and held against its end. Writes ``study_rewards.json``.
"""

from dataclasses import replace

import torch

from minirlhf.equations.reasoning import compute_curve
from minirlhf.stages import pipeline
from minirlhf.stages.pipeline import SHELL_GAME_SFT
from minirlhf.trainers.config import OnlineConfig
from minirlhf_course.chapters.ch16_reasoning.shell import RUNS, TRAINING, WORLD, at, fit_curve, train
from minirlhf_course.evidence import Study, brief, initial_models, settings, trace

AT, WINDOW = (5, 10, 20, 30, 40, 50, 60), 5
#: Shares of the run that a sigmoid is fitted to.
PARTS = (0.15, 0.3, 0.5)


def one_seed(
    seed: int, begin: pipeline.Trained | None = None, training: OnlineConfig = TRAINING, at_steps: tuple[int, ...] = AT
) -> dict[str, float]:
    """Every run with one seed."""
    if begin is None:
        begin = pipeline.sft_from_scratch(WORLD, pipeline.with_seed(SHELL_GAME_SFT, seed), quiet=True)
    numbers: dict[str, float] = {}
    for name in RUNS:
        history = train(name, begin, seed, training)
        for key in ("right", "thinks", "neg_logp"):
            numbers |= {f"{name}_{key}_{step}": at(history, key, step, WINDOW) for step in at_steps}
            numbers[f"{name}_{key}_start"] = float(history[key][0])
        numbers[f"{name}_right_best"] = max(
            at(history, "right", s, WINDOW) for s in range(WINDOW, training.max_steps + 1)
        )
        if name == "right":
            rewards, end = history["right"], at(history, "right", training.max_steps, WINDOW)
            for part in PARTS:
                curve = fit_curve(rewards, max(3, round(part * training.max_steps)))
                said = float(compute_curve(torch.tensor(float(training.max_steps)), **curve))
                numbers[f"sigmoid_error_{round(100 * part)}"] = abs(said - end)
                numbers[f"sigmoid_said_{round(100 * part)}"] = said
    return numbers


def probe() -> dict[str, float | str]:
    """Three rollouts of each, from a brief start."""
    begin, numbers = initial_models.shell_game()
    plan = brief(SHELL_GAME_SFT, demonstrations=128)
    fresh = pipeline.sft_from_scratch(WORLD, pipeline.with_seed(plan, 1), quiet=True)
    numbers |= trace("fresh", fresh.history)
    few = replace(TRAINING, max_steps=5, batch_size=4, num_generations=4)
    return numbers | one_seed(1, begin, few, (1, 2)) | settings(training=TRAINING, **RUNS)


STUDY = Study(one_seed, probe, seeds=5)

if __name__ == "__main__":
    STUDY.main(__file__)
