"""Over-optimisation of a trained language model, five seeds: ``python studies/ch20_language.py`` (about five minutes of one core).

The assistant world: RLOO without a leash, best-of-n and DPO against a reward model from 1,600 comparisons, and against gold. Writes
``studies/ch20_language.json``.
"""

from pathlib import Path

from minirlhf import evidence, zoo
from minirlhf.data import tasks
from minirlhf.overoptimization.language_dpo import dpo
from minirlhf.overoptimization.language_model import LanguagePlan, best_of_n, language_world, reinforce
from minirlhf.pipeline import Trained
from minirlhf.trainers.history import History

RESULT = Path(__file__).with_suffix(".json")


def one_seed(seed: int) -> dict[str, float]:
    """A reward model and what three optimisers make of it."""
    start, plan = Trained(*zoo.load("assistant-sft", quiet=True), History()), LanguagePlan().with_seed(seed)
    world = language_world(tasks.get("assistant"), start, plan)
    numbers = {"accuracy": world.accuracy, "start": float(world.drawn[1].mean())}
    for name, curve in {
        "rl": reinforce(world, plan)[0],
        "bon": best_of_n(world),
        "dpo": dpo(world, seed=seed),
    }.items():
        numbers[f"{name}_peak"], numbers[f"{name}_place"] = curve.peak[1], curve.peak[0]
        numbers[f"{name}_end"], numbers[f"{name}_fall"] = float(curve.gold[-1]), curve.fall
        numbers[f"{name}_reach"], numbers[f"{name}_proxy_end"] = float(curve.distance[-1]), float(curve.proxy[-1])
        numbers[f"{name}_rise"] = curve.peak[1] - numbers["start"]
        numbers[f"{name}_gold_1.5"] = curve.gold_at(1.5)
    numbers["bon_over_rl"] = numbers["bon_gold_1.5"] - numbers["rl_gold_1.5"]
    return numbers


if __name__ == "__main__":
    modules = ["minirlhf.overoptimization.language_dpo", "minirlhf.overoptimization.language_model"]
    evidence.run_study(one_seed, RESULT, modules=modules)
