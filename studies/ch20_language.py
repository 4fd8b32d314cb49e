"""Over-optimisation of a trained language model, five seeds: ``python studies/ch20_language.py`` (about five minutes of one core).

The assistant world: RLOO without a leash, best-of-n and DPO against a reward model from 1,600 comparisons, and against gold; then two
remedies, RLOO on a leash and best-of-n by the worst case of three reward models. Writes ``studies/ch20_language.json``.
"""

from pathlib import Path

import torch

from minirlhf import evidence, zoo
from minirlhf.chapters.ch20_overoptimization.language_dpo import dpo
from minirlhf.chapters.ch20_overoptimization.language_ensemble import more_grades
from minirlhf.chapters.ch20_overoptimization.language_model import LanguagePlan, best_of_n, language_world, reinforce
from minirlhf.data import tasks
from minirlhf.equations.estimators import best_of_n_curve
from minirlhf.equations.overoptimization import worst_case
from minirlhf.pipeline import Trained
from minirlhf.trainers.history import History

RESULT = Path(__file__).with_suffix(".json")


def one_seed(seed: int) -> dict[str, float]:
    """A reward model and what three optimisers make of it; then two remedies."""
    start, plan = Trained(*zoo.load("assistant-sft", quiet=True), History()), LanguagePlan().with_seed(seed)
    world = language_world(tasks.get("assistant"), start, plan)
    numbers = {"accuracy": world.accuracy, "start": float(world.drawn[1].mean())}
    curves = {
        "rl": reinforce(world, plan)[0],
        "bon": best_of_n(world),
        "dpo": dpo(world, seed=seed),
        "held": reinforce(world, plan, beta=0.1)[0],
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


if __name__ == "__main__":
    modules = [f"minirlhf.chapters.ch20_overoptimization.language_{name}" for name in ("dpo", "ensemble", "model")]
    evidence.run_study(one_seed, RESULT, modules=modules)
