"""Over-optimisation of a trained language model, five seeds: ``python -m minirlhf_course.chapters.ch20_overoptimization.study_language`` (about five minutes of one core).

The assistant world: RLOO without a KL penalty and best-of-n against a reward model from 1,600 comparisons, and against gold; then two
remedies, RLOO with a penalty and best-of-n by the worst case of three reward models. Writes ``study_language.json``. DPO has a study of
its own, ``study_language_dpo``.
"""

from dataclasses import replace

import torch

from minirlhf.data import tasks
from minirlhf.equations.estimators import best_of_n_curve
from minirlhf.equations.overoptimization import worst_case
from minirlhf.recipes import RLOO
from minirlhf.stages import zoo
from minirlhf.stages.pipeline import Trained
from minirlhf.trainers.history import History
from minirlhf_course.chapters.ch20_overoptimization.language_ensemble import more_grades
from minirlhf_course.chapters.ch20_overoptimization.language_model import LanguagePlan, best_of_n, language_world, rloo
from minirlhf_course.evidence import Study, brief, initial_models, settings, trace


def one_seed(seed: int) -> dict[str, float]:
    """A reward model and what three optimisers make of it; then two remedies."""
    start, plan = Trained(*zoo.load("assistant-sft", quiet=True), History()), LanguagePlan().with_seed(seed)
    world = language_world(tasks.get("assistant"), start, plan)
    numbers = {"accuracy": world.accuracy, "start": float(world.drawn[1].mean())}
    curves = {
        "rl": rloo(world, plan)[0],
        "bon": best_of_n(world),
        "held": rloo(world, plan, beta=0.1)[0],
    }
    for name, curve in curves.items():
        numbers[f"{name}_peak"], numbers[f"{name}_place"] = curve.peak[1], curve.peak[0]
        numbers[f"{name}_end"], numbers[f"{name}_fall"] = float(curve.gold[-1]), curve.fall
        numbers[f"{name}_reach"], numbers[f"{name}_proxy_end"] = float(curve.distance.max()), float(curve.proxy[-1])
        numbers[f"{name}_rise"] = curve.peak[1] - numbers["start"]
        for distance in (1.25, 1.5, 2.5):
            numbers[f"{name}_gold_{distance:g}"] = curve.gold_by(distance)
    numbers["bon_over_rl"] = numbers["bon_gold_1.5"] - numbers["rl_gold_1.5"]
    numbers["held_over_rl"] = numbers["held_gold_1.25"] - numbers["rl_gold_1.25"]

    scores = torch.cat([world.drawn[0][None], more_grades(world, plan)])  # (3, P, M)
    numbers["members_apart"] = float(scores.std(0).mean())
    best = best_of_n_curve(worst_case(scores), world.drawn[1]).mean(0)
    numbers["careful_bon_end"] = float(best[-1])
    numbers["careful_bon_over_bon"] = float(best[-1]) - numbers["bon_end"]
    return numbers


def probe() -> dict[str, float | str]:
    """A reward model of two steps, three steps of every optimiser, and two more reward models, from a brief start."""
    _, sft, numbers = initial_models.assistant()
    plan = LanguagePlan(prompts=8, draws=16).with_seed(0)
    short = replace(plan.rl, max_steps=3, batch_size=2, num_generations=8)
    plan = replace(plan, reward=brief(plan.reward, batch_size=16, pairs=48, held_out=16), rl=short)
    world = language_world(tasks.get("assistant"), sft, plan)
    curves = {"bon": best_of_n(world)}
    for name, beta in (("rl", 0.0), ("held", 0.1)):
        curves[name], history, _ = rloo(world, plan, beta=beta)
        numbers |= trace(name, history)
    for name, curve in curves.items():
        numbers |= {f"{name}_{key}": float(x[-1]) for key, x in vars(curve).items()}
        numbers |= {f"{name}_peak": curve.peak[1], f"{name}_fall": curve.fall, f"{name}_by": curve.gold_by(0.1)}
    scores = torch.cat([world.drawn[0][None], more_grades(world, plan)])
    numbers["worst_case"] = float(worst_case(scores).mean())
    numbers |= {"accuracy": world.accuracy, "start": float(world.drawn[1].mean())}
    return numbers | settings(plan=LanguagePlan(), rloo=RLOO)


STUDY = Study(one_seed, probe)

if __name__ == "__main__":
    STUDY.main(__file__)
