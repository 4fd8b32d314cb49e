"""Over-optimisation by DPO, five seeds: ``python -m minirlhf_course.chapters.ch20_overoptimization.study_language_dpo`` (about twelve minutes of one core).

The assistant world, ten passes over 1,600 comparisons at chapter 14's learning rate and at five times of it, measured every five steps while
the policy moves fast. The proxy is the policy's own implicit reward. Writes ``study_language_dpo.json``.
"""

from minirlhf.data import tasks
from minirlhf.recipes.offline import get_preference
from minirlhf.stages import pipeline, zoo
from minirlhf.stages.pipeline import Trained
from minirlhf.trainers.history import History
from minirlhf_course.chapters.ch20_overoptimization.language_dpo import STOPS, dpo
from minirlhf_course.chapters.ch20_overoptimization.language_model import LanguagePlan
from minirlhf_course.evidence import Study, brief, initial_models, settings

RATES = {"slow": 2e-4, "fast": 1e-3}
ONE_PASS = 1 + STOPS.index(50)  # the curve's point after fifty steps of 32 comparisons


def one_seed(seed: int) -> dict[str, float]:
    """One set of comparisons, and DPO at both rates."""
    task, start = tasks.get("assistant"), Trained(*zoo.load("assistant-sft", quiet=True), History())
    pairs, _ = pipeline.preferences(task, start, LanguagePlan().with_seed(seed).reward)
    numbers = {}
    for name, rate in RATES.items():
        curve = dpo(task, start, pairs, learning_rate=rate, seed=seed)
        numbers["start"] = float(curve.gold[0])
        numbers[f"{name}_peak"], numbers[f"{name}_place"] = curve.peak[1], curve.peak[0]
        numbers[f"{name}_end"], numbers[f"{name}_fall"] = float(curve.gold[-1]), curve.fall
        numbers[f"{name}_rise"] = curve.peak[1] - numbers["start"]
        numbers[f"{name}_lost"] = numbers["start"] - float(curve.gold[-1])
        numbers[f"{name}_first"], numbers[f"{name}_reach"] = float(curve.distance[1]), float(curve.distance.max())
        numbers[f"{name}_end_distance"] = float(curve.distance[-1])
        numbers[f"{name}_pass_gold"] = float(curve.gold[ONE_PASS])
        numbers[f"{name}_pass_distance"] = float(curve.distance[ONE_PASS])
        numbers[f"{name}_gold_2"], numbers[f"{name}_proxy_2"] = (
            curve.gold_at(2.0),
            curve.proxy_at(2.0),
        )  # both were measured before
        numbers[f"{name}_proxy_peak"] = float(curve.proxy[int(curve.gold.argmax())])
        numbers[f"{name}_proxy_end"] = float(curve.proxy[-1])
    return numbers


def probe() -> dict[str, float | str]:
    """Four steps from a brief start, measured twice."""
    task, (_, sft, numbers) = tasks.get("assistant"), initial_models.assistant()
    plan = brief(LanguagePlan().reward, batch_size=16, pairs=48, held_out=0)
    pairs, _ = pipeline.preferences(task, sft, plan)
    curve = dpo(task, sft, pairs, stops=(2, 4), batch_size=8, replies=2, learning_rate=1e-3)
    numbers |= {f"{key}_{k}": float(x) for key, row in vars(curve).items() for k, x in enumerate(row)}
    numbers |= {"peak": curve.peak[1], "fall": curve.fall, "at": curve.gold_at(float(curve.distance[1]) / 2)}
    numbers["proxy_at"] = curve.proxy_at(float(curve.distance[1]) / 2)
    return numbers | settings(plan=LanguagePlan().with_seed(0).reward, dpo=get_preference("dpo"))


STUDY = Study(one_seed, probe, seeds=5)

if __name__ == "__main__":
    STUDY.main(__file__)
