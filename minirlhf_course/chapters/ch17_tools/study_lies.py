"""Tools with silent errors or reported failures: ``python -m minirlhf_course.chapters.ch17_tools.study_lies`` (three minutes of one core).

Five seeds. The places of :mod:`.facts`. A policy that by habit answers from memory, calls once, or calls twice and compares is trained by Dr. GRPO with three
tools: silent errors in 40 % of calls, free; the same at a price of .2 per call; and reported failures in half of the calls at that price.
Writes ``study_lies.json``.
"""

from dataclasses import replace
from typing import Any

from minirlhf.recipes import DR_GRPO
from minirlhf.trainers.config import OnlineConfig
from minirlhf.trainers.sft import SFTConfig
from minirlhf_course.chapters.ch17_tools.facts import (
    IMPROVE,
    SHOWN,
    STEADY,
    THREE_WAYS,
    WAYS,
    best,
    imitator,
    improved,
    measured,
    worths,
)
from minirlhf_course.evidence import Study, settings

TOOLS: dict[str, dict[str, float]] = {
    "lies_free": {"cost": 0.0, "lie": 0.4},
    "lies_priced": {"cost": 0.2, "lie": 0.4},
    "fails_priced": {"cost": 0.2, "fail": 0.5},
}


def one_seed(seed: int, plan: SFTConfig = SHOWN, run: OnlineConfig = IMPROVE, each: int = 80) -> dict[str, float]:
    """Return the measurements with all tools from one initial model."""
    start, numbers = imitator(seed, THREE_WAYS, plan), {}
    for way in WAYS:
        numbers[f"before_{way}"] = measured(start, 0.0, each=each).mean(way)
    for name, options in TOOLS.items():
        tool: dict[str, Any] = dict(options)
        cost = tool.pop("cost")
        found, should = measured(improved(start, cost, seed, run, **tool), cost, each=each, **tool), best(cost, **tool)
        for number, way in enumerate(WAYS):
            numbers[f"{name}_{way}"] = found.mean(way)
            numbers[f"{name}_should_{way}"] = sum(each == way for each in should.values()) / len(should)
            for place, steady in STEADY.items():
                numbers[f"{name}_{way}_{round(100 * steady)}"] = found.ways[place][number]
        numbers[f"{name}_as_predicted"] = sum(found.ways[p][WAYS.index(way)] for p, way in should.items()) / len(should)
        numbers[f"{name}_right"], numbers[f"{name}_reward"] = found.right, found.reward
        every = [worths(steady, cost=cost, **tool) for steady in STEADY.values()]
        numbers[f"{name}_best"] = sum(map(max, every)) / len(every)
        for way, column in zip(WAYS, zip(*every, strict=True), strict=True):
            numbers[f"{name}_always_{way}"] = sum(column) / len(column)
    return numbers


def probe() -> dict[str, float | str]:
    """Run a few steps with each tool."""
    few, short = replace(SHOWN, max_steps=30), replace(IMPROVE, max_steps=3, batch_size=4)
    start = imitator(1, THREE_WAYS, few)
    history = improved(start, 0.6, 1, short, fail=0.3, lie=0.3).history
    numbers = {f"{key}_{i}": x for key in ("loss", "grad_norm", "reward") for i, x in enumerate(history[key])}
    return numbers | one_seed(0, few, short, 4) | settings(plan=SHOWN, run=IMPROVE, recipe=DR_GRPO)


STUDY = Study(one_seed, probe, seeds=5)

if __name__ == "__main__":
    STUDY.main(__file__)
