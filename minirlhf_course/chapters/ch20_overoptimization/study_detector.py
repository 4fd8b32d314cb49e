"""Who is found by what, twenty draws of 400 comparisons: ``python -m minirlhf_course.chapters.ch20_overoptimization.study_detector`` (about a minute of one core).

The counting proxy at a distance of 2, by the exact tilt. How often a reply is a hack, under the reference and under the policy; and the area under the ROC
curve of each score among the policy's replies alone, where it cannot be earned by telling policy from reference. Writes ``study_detector.json``.
"""

from dataclasses import replace

from minirlhf.data.seven_words import Outcomes, bags
from minirlhf.feedback.proxies import compare
from minirlhf_course.chapters.ch20_overoptimization.detector import Detection, detection
from minirlhf_course.chapters.ch20_overoptimization.remedies import Evidence
from minirlhf_course.evidence import Study

NAMES = {
    "proxy reward": "proxy",
    "distance of the words": "words",
    "− log π_ref": "unlikely",
    "ensemble disagrees": "ensemble",
    "second model gives less": "second",
}


def told(world: Outcomes, found: Detection) -> dict[str, float]:
    """The numbers of one draw."""
    policy = 2 * found.traffic - world.probs
    alone = replace(found, traffic=policy.clamp(min=0))
    numbers = {
        "hacks_reference": float(world.probs @ found.hacks.double()),
        "hacks_policy": float(policy @ found.hacks.double()),
    }
    for name, key in NAMES.items():
        numbers[f"{key}_mixed"], numbers[f"{key}_policy"] = found.auc(name), alone.auc(name)
    return numbers


def one_seed(seed: int) -> dict[str, float]:
    """One draw of the comparisons."""
    world = bags()
    return told(world, detection(Evidence(world, compare(world, 400, seed=seed), "counts", seed)))


def probe() -> dict[str, float | str]:
    """The first draw."""
    return dict(one_seed(0))


STUDY = Study(one_seed, probe, seeds=20)

if __name__ == "__main__":
    STUDY.main(__file__)
