"""Expert iteration and STaR beside RL on as many samples: ``python -m minirlhf_course.chapters.ch16_reasoning.study_imitation`` (four minutes of one core).

The shell game, five seeds; 7,680 samples for each arm. The rates were chosen on one other seed: RL's from .00025, .0005 and .001, the others' from
.0003, .001 and .003 (RL and expert iteration hardly differ between their two best). Measured on 500 games, one sample each. Writes ``study_imitation.json``.
"""

from dataclasses import replace

from minirlhf.stages import pipeline
from minirlhf.stages.pipeline import SHELL_GAME_RL, SHELL_GAME_SFT, RLPlan, Trained
from minirlhf.trainers.sft import SFTConfig
from minirlhf_course.chapters.ch16_reasoning.imitation import Rounds, imitate, right_and_thinking
from minirlhf_course.chapters.ch16_reasoning.shell import WORLD
from minirlhf_course.evidence import Study, brief, initial_models, settings, trace

ITERATION = Rounds(SFTConfig(max_steps=30, batch_size=64, learning_rate=1e-3))


def one_seed(
    seed: int, begin: Trained | None = None, rl: RLPlan = SHELL_GAME_RL, rounds: Rounds = ITERATION, count: int = 500
) -> dict[str, float]:
    """Every arm with one seed."""
    if begin is None:
        begin = pipeline.sft_from_scratch(WORLD, pipeline.with_seed(SHELL_GAME_SFT, seed), quiet=True)
    policies = {
        "begin": begin,
        "rl": pipeline.rl(WORLD, begin, pipeline.with_seed(rl, seed), quiet=True),
        "iteration": imitate(begin, rounds, seed),
        "star": imitate(begin, replace(rounds, anew=True), seed),
    }
    return {
        f"{name}_{key}": value
        for name, policy in policies.items()
        for key, value in right_and_thinking(policy, count).items()
    }


def probe() -> dict[str, float | str]:
    """A little of each, from a brief start."""
    begin, numbers = initial_models.shell_game()
    plan = brief(SHELL_GAME_SFT, demonstrations=128)
    fresh = pipeline.sft_from_scratch(WORLD, pipeline.with_seed(plan, 1), quiet=True)
    numbers |= trace("fresh", fresh.history)
    few = replace(
        ITERATION, rounds=2, prompts=8, of_each=4, training=replace(ITERATION.training, max_steps=3, batch_size=4)
    )
    numbers |= one_seed(1, begin, brief(SHELL_GAME_RL, batch_size=4, num_generations=4), few, 40)
    return numbers | settings(rounds=ITERATION, rl=SHELL_GAME_RL)


STUDY = Study(one_seed, probe, seeds=5)

if __name__ == "__main__":
    STUDY.main(__file__)
