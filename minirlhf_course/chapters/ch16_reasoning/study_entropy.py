"""What slows the fall of entropy: ``python -m minirlhf_course.chapters.ch16_reasoning.study_entropy`` (about five minutes of one core).

The shell game, five seeds, each with a fresh policy from supervised fine-tuning and runs of sixty rollouts from it, all paid for right answers:
one update on every rollout, without and with two entropy bonuses; and eight updates, clipped as in PPO, clipped higher above, not clipped at all,
and without the tokens of largest covariance. The rates, the bonuses and the share were chosen on seeds 90 and 91. Writes ``study_entropy.json``.
"""

from dataclasses import replace

from minirlhf.stages import pipeline
from minirlhf.stages.pipeline import SHELL_GAME_SFT, Trained
from minirlhf.trainers.config import OnlineConfig
from minirlhf_course.chapters.ch16_reasoning.entropy import ARMS, told, train
from minirlhf_course.chapters.ch16_reasoning.shell import TRAINING, WORLD
from minirlhf_course.evidence import Study, brief, initial_models, settings, trace

AT, WINDOW, GOAL = (10, 20, 40, 60), 5, 0.9


def one_seed(
    seed: int, begin: Trained | None = None, training: OnlineConfig = TRAINING, at_steps: tuple[int, ...] = AT
) -> dict[str, float]:
    """Every arm with one seed."""
    if begin is None:
        begin = pipeline.sft_from_scratch(WORLD, pipeline.with_seed(SHELL_GAME_SFT, seed), quiet=True)
    numbers: dict[str, float] = {}
    for name, arm in ARMS.items():
        history = train(arm, begin, seed, training)
        numbers |= {f"{name}_{key}": value for key, value in told(history, at_steps, WINDOW, GOAL).items()}
    return numbers


def probe() -> dict[str, float | str]:
    """Five rollouts of each, from a brief start."""
    begin, numbers = initial_models.shell_game()
    plan = brief(SHELL_GAME_SFT, demonstrations=128)
    numbers |= trace("fresh", pipeline.sft_from_scratch(WORLD, pipeline.with_seed(plan, 1), quiet=True).history)
    few = replace(TRAINING, max_steps=5, batch_size=4, num_generations=4)
    recipes = {name: recipe for name, (recipe, _) in ARMS.items()}
    return numbers | one_seed(1, begin, few, (1, 2)) | settings(training=TRAINING, **recipes)


STUDY = Study(one_seed, probe, seeds=5)

if __name__ == "__main__":
    STUDY.main(__file__)
