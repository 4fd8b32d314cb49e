"""Knights and knaves with a strict form: ``python -m minirlhf_course.chapters.ch16_reasoning.study_puzzles`` (about seven minutes of one core).

Five seeds, each with a fresh policy whose demonstrator is careless of the form in half of its replies, and three runs of 60 rollouts: paid for the
answer, for the form, and for both. Measured on the 238 puzzles kept for testing, and on as many of those trained on. The sizes and the rate are
those of the first try, on one other seed. Writes ``study_puzzles.json``.
"""

from minirlhf.stages import pipeline
from minirlhf.stages.pipeline import RLPlan, SFTPlan
from minirlhf_course.chapters.ch16_reasoning.puzzles import RL, RUNS, SFT, WORLD, measured, train
from minirlhf_course.evidence import Study, brief, settings, trace


def one_seed(seed: int, sft: SFTPlan = SFT, rl: RLPlan = RL, count: int = 238) -> dict[str, float]:
    """Every run with one seed."""
    begin = pipeline.sft_from_scratch(WORLD, pipeline.with_seed(sft, seed), quiet=True)
    policies = {"begin": begin} | {name: train(name, begin, seed, rl) for name in RUNS}
    numbers: dict[str, float] = {}
    for name, policy in policies.items():
        numbers |= {f"{name}_{key}": value for key, value in measured(policy, "test", count).items()}
        numbers[f"{name}_seen"] = measured(policy, "train", count)["right"]
    return numbers


def probe() -> dict[str, float | str]:
    """Three rollouts of each, from a start that is brief and yet earns something of every kind."""
    sft, rl = brief(SFT, 60, batch_size=32, demonstrations=640, learning_rate=6e-3), brief(RL, 3, batch_size=8)
    numbers = one_seed(1, sft, rl, 40)
    begin = pipeline.sft_from_scratch(WORLD, pipeline.with_seed(sft, 1), quiet=True)
    numbers["start_loss"] = begin.history.last["loss"]
    for name in RUNS:
        numbers |= trace(name, train(name, begin, 1, rl).history, "grad_norm", "reward")
    return numbers | settings(sft=SFT, rl=RL)


STUDY = Study(one_seed, probe, seeds=5)

if __name__ == "__main__":
    STUDY.main(__file__)
