"""The tour over five seeds: ``python -m minirlhf_course.tour.study`` writes ``study.json`` (about ten minutes on one core).

The settings of the tour were chosen on seeds 0 to 4; these five are held out, so that the choice does not bias the
results.
"""

from minirlhf_course.evidence import Study, brief, settings
from minirlhf_course.tour import stages


def one_seed(seed: int) -> dict[str, float]:
    """Run the whole tour; return its numbers."""
    return stages.run(seed, say=lambda text: None, quiet=True).numbers()


def probe() -> dict[str, float | str]:
    """The whole tour with two steps per training run, and enough SFT in the shell game that some answers are right."""
    full, few = stages.Plans(), {"batch_size": 4, "num_generations": 4}
    plans = stages.Plans(
        pretrain=brief(full.pretrain, documents=64),
        sft=brief(full.sft, demonstrations=64),
        reward=brief(full.reward, batch_size=16, pairs=48, held_out=8),
        grpo=brief(full.grpo, **few),
        ppo=brief(full.ppo, **few),
        dpo=brief(full.dpo, batch_size=8),
        game_sft=brief(full.game_sft, 20, batch_size=16, demonstrations=320),
        game_rl=brief(full.game_rl, **few),
    )
    tour = stages.run(5, plans, say=lambda text: None, quiet=True)
    numbers = settings(**vars(full))
    for name, history in tour.histories.items():
        numbers |= {f"{name}_{key}": history.last[key] for key in ("loss", "grad_norm")}
    return numbers | tour.numbers()


STUDY = Study(one_seed, probe, first_seed=5)

if __name__ == "__main__":
    STUDY.main(__file__)
