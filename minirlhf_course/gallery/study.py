"""The gallery over five seeds: the doctor's diagnosis of every broken run, and its false alarms on healthy runs.

``python -m minirlhf_course.gallery.study`` writes ``study.json`` (about ten minutes on one core). The rules' thresholds were
set on seeds 0 to 2; these five are held out. Healthy runs are the counterparts of the broken runs, the control of
``temperature``, and every online recipe on the same task, if it learns the task. Runs with exactly the same numbers as
another run (``masked_grpo`` masks nothing here and equals ``grpo``) are counted once.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Mapping
from dataclasses import replace
from itertools import pairwise
from typing import Any

from minirlhf.recipes import RECIPES
from minirlhf.recipes.offline import get_preference
from minirlhf.recipes.parts import ProcessSupervision
from minirlhf.trainers.history import History
from minirlhf_course.evidence import Study, settings
from minirlhf_course.gallery.catalogue import beside, gallery
from minirlhf_course.gallery.colours import BASE, Setup
from minirlhf_course.gallery.failure import BrokenRun
from minirlhf_course.gallery.given import IMITATION, PAIRS
from minirlhf_course.report.diagnosis import Curves, diagnose

#: Number of points of a downsampled curve, for the figures.
POINTS = 12

#: Runs whose fifth step is not part of the probe: their steps are so large that a rounding error leads to another
#: policy. With AVX-512 and AVX2 on one processor the KL was .077 and .126 in the first run, .099 and .065 in the
#: second, and 0.5 % apart in the last. In all other runs no number changed by more than 1e-4.
AMPLIFIED = ("broken_learning_rate_high", "broken_many_updates", "broken_no_clip", "healthy_no_clip")

#: The control of ``temperature``: the same low temperature in the sampler and the trainer.
BOTH_COLDER = BASE.with_(temperature=gallery()["temperature"].change[1])


def thinned(history: History, name: str) -> list[float]:
    """Return a curve as ``POINTS`` means of neighbouring values."""
    values = [x for x in history[name] if math.isfinite(x)]
    bounds = [round(i * len(values) / POINTS) for i in range(POINTS + 1)]
    return [sum(part) / len(part) for a, b in pairwise(bounds) if (part := values[a : max(b, a + 1)])]


def curves(prefix: str, history: History, failure: BrokenRun) -> dict[str, float]:
    """Return the downsampled metrics of the failure's panel."""
    return {
        f"{prefix}_{metric}_{i:02d}": value
        for metric in failure.panel
        for i, value in enumerate(thinned(history, metric))
    }


def lengths(seed: int) -> dict[str, float]:
    """Return statistics of the pairs of ``longer_wins`` before the longer completion is chosen.

    These are the fraction of pairs of equal length, the fraction whose correct completion is shorter (these are
    swapped), and the latter fraction among pairs of different length.
    """
    pairs = PAIRS.compared(PAIRS.pairs, seed, swapped=0.0, longer_wins=False)
    right, wrong = ([len(p.completions[which].input_ids) for p in pairs] for which in (0, 1))
    ties, shorter = (sum(map(compare, right, wrong)) for compare in (operator.eq, operator.lt))
    return {
        "pairs_of_equal_length": ties / len(pairs),
        "pairs_right_is_shorter": shorter / len(pairs),
        "unequal_right_is_shorter": shorter / (len(pairs) - ties),
    }


def one_seed(seed: int, most: int | None = None) -> dict[str, float]:
    """Run every failure, its healthy run, and every recipe, for at most ``most`` steps each."""
    numbers: dict[str, float] = {}
    healthy: dict[Any, History] = {}
    for failure in gallery().values():
        broken = _shortened(failure.broken, most).run(seed)
        if failure.healthy not in healthy:
            healthy[failure.healthy] = _shortened(failure.healthy, most).run(seed)
        findings = {finding.name for finding in diagnose(broken)}
        numbers[f"named_{failure.name}"] = float(bool(findings & set(failure.findings)))
        numbers[f"besides_{failure.name}"] = float(len(findings - set(failure.findings)))
        numbers |= curves(f"broken_{failure.name}", broken, failure)
        numbers |= curves(f"healthy_{beside(failure)}", healthy[failure.healthy], failure)
    for name, recipe in RECIPES.items():
        if not isinstance(recipe.credit, ProcessSupervision):  # the task has no step-level grader
            healthy[name] = _shortened(Setup(recipe, BASE.config), most).run(seed)
    healthy["both at .6"] = _shortened(BOTH_COLDER, most).run(seed)
    numbers["both_colder_reward"] = Curves(healthy["both at .6"]).last("reward")
    numbers["both_colder_kl"] = healthy["both at .6"]["kl"][0]
    distinct = {repr(history.rows): history for history in healthy.values()}.values()
    numbers["copies"] = float(len(healthy) - len(distinct))
    learned, stuck = ([h for h in distinct if _stuck(h) == is_stuck] for is_stuck in (False, True))
    numbers["healthy_runs"] = float(len(learned))
    numbers["accused"] = float(sum(bool(diagnose(history)) for history in learned))
    numbers["stuck_runs"] = float(len(stuck))
    numbers["accused_stuck"] = float(sum(bool(diagnose(history)) for history in stuck))
    return numbers | lengths(seed)


def _shortened(run: Any, most: int | None) -> Any:
    return run if most is None else replace(run, config=replace(run.config, max_steps=min(most, run.config.max_steps)))


def _stuck(history: History) -> bool:
    """Return whether an online run ends with less than 90 % correct completions: a finding is then no false alarm."""
    return "gold" in history.rows[0] and Curves(history).last("gold") < 0.9


def probe() -> Mapping[str, float | str]:
    """Run five steps of all runs: each failure's line, first and last values of its panel, the doctor's findings."""
    numbers: dict[str, float | str] = {f"line_{f.name}": f.line for f in gallery().values()}
    plans = {"online": BASE, "critic": gallery()["critic_frozen"].healthy, "stale": gallery()["stale"].broken}
    plans |= {"sft": IMITATION, "pairs": PAIRS}
    numbers |= settings(**{name: run.config for name, run in plans.items()})
    numbers |= settings(
        base=BASE.recipe, critic_recipe=plans["critic"].recipe, dpo=get_preference(PAIRS.loss), **RECIPES
    )
    last = POINTS - 2  # of five steps, keep the first and the last
    inner = tuple(f"_{i:02d}" for i in range(1, POINTS) if i != last)
    return numbers | {
        name: value
        for name, value in one_seed(5, most=5).items()
        if not name.endswith(inner) and not (name.startswith(AMPLIFIED) and name.endswith(f"_{last:02d}"))
    }


STUDY = Study(one_seed, probe, first_seed=5)

if __name__ == "__main__":
    STUDY.main(__file__)
