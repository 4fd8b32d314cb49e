"""When a call pays: ``python -m minirlhf_course.chapters.ch17_tools.study_cost`` (three minutes of one core).

Five seeds. The usual value of five places is right in 10 % to 90 % of cases. A policy that calls by habit is trained by Dr. GRPO at each of four prices of a call.
Learning rates were tried in an environment of ten such places, on seeds 100 and 101: 5e-4, which is used, and 1e-3 had the same reward, 2e-3 less.
Writes ``study_cost.json``.
"""

from dataclasses import replace

from minirlhf.recipes import DR_GRPO
from minirlhf.trainers.config import OnlineConfig
from minirlhf.trainers.sft import SFTConfig
from minirlhf_course.chapters.ch17_tools.facts import IMPROVE, SHOWN, STEADY, best, imitator, improved, measured, worths
from minirlhf_course.evidence import Study, settings

COSTS = (0.2, 0.4, 0.6, 0.8)


def one_seed(
    seed: int, plan: SFTConfig = SHOWN, run: OnlineConfig = IMPROVE, costs: tuple[float, ...] = COSTS, each: int = 80
) -> dict[str, float]:
    """Return the measurements at all prices from one initial model."""
    start, numbers = imitator(seed, plan=plan), {}
    before = measured(start, 0.0, each=each)
    for place, steady in STEADY.items():
        numbers[f"before_asks_{round(100 * steady)}"] = before.asks(place)
    numbers["before_asks"] = 1 - before.mean("head")
    for cost in costs:
        trained, name = improved(start, cost, seed, run), f"cost{round(100 * cost)}"
        found, should = measured(trained, cost, each=each), best(cost)
        for place, steady in STEADY.items():
            numbers[f"{name}_asks_{round(100 * steady)}"] = found.asks(place)
        numbers[f"{name}_asks"] = 1 - found.mean("head")
        numbers[f"{name}_as_predicted"] = sum((found.asks(p) > 0.5) == (way != "head") for p, way in should.items())
        numbers[f"{name}_right"], numbers[f"{name}_reward"] = found.right, found.reward
        numbers[f"{name}_best"] = sum(max(worths(steady, cost=cost)) for steady in STEADY.values()) / len(STEADY)
        numbers[f"{name}_one_for_all"] = max(1 - cost, sum(STEADY.values()) / len(STEADY))
    return numbers


def probe() -> dict[str, float | str]:
    """Run a few steps at one price."""
    few, short = replace(SHOWN, max_steps=30), replace(IMPROVE, max_steps=3, batch_size=4)
    start = imitator(1, plan=few)
    history = improved(start, 0.6, 1, short).history
    numbers = {f"{key}_{i}": x for key in ("loss", "grad_norm", "reward") for i, x in enumerate(history[key])}
    return numbers | one_seed(0, few, short, (0.4,), 4) | settings(plan=SHOWN, run=IMPROVE, recipe=DR_GRPO)


STUDY = Study(one_seed, probe, seeds=5)

if __name__ == "__main__":
    STUDY.main(__file__)
