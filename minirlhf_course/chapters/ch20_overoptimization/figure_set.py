"""The figures of a report beyond the curves themselves: data, remedies, errors, detectors, tampering, habits. Each
function adds its figures to ``found``, name -> matplotlib figure."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from minirlhf.data.seven_words import Outcomes, bags, decisions, lifted, replies
from minirlhf.equations.overoptimization import coupled_approval, decoupled_approval
from minirlhf.feedback.proxies import compare, fit, fit_everything
from minirlhf_course.chapters.ch20_overoptimization import figures, habits, leash, remedies, tampering
from minirlhf_course.chapters.ch20_overoptimization.curves import along, optimise, policy_gradient, tilt_curve
from minirlhf_course.chapters.ch20_overoptimization.detector import detect, detection
from minirlhf_course.chapters.ch20_overoptimization.errors import decompose
from minirlhf_course.chapters.ch20_overoptimization.networks import ensembles
from minirlhf_course.chapters.ch20_overoptimization.remedies import Evidence
from minirlhf_course.report.plotting import panels

DISTANCE = 2.0  # √KL at which remedies are compared
#: Replaces all possible comparisons in worlds where these cannot be summed over.
VERY_MANY = 30_000


def _on_replies(world: Outcomes, values: Tensor) -> tuple[Outcomes, Tensor]:
    """Return a world of single completions, and a reward on it."""
    return (replies(), lifted(values)) if world is bags() else (world, values)


def _leash(world: Outcomes, proxy: Tensor, other: Tensor | None) -> Any:
    figure, (ax,) = panels(1, 5.0, 3.4)
    outcomes, reward = _on_replies(world, proxy)
    path = policy_gradient(outcomes, decisions(), reward, steps=leash.STEPS)
    turn = None
    if other is not None:
        turn = leash.stop_where_another_turns(path, outcomes, _on_replies(world, other)[1])
    figures.leash(ax, along(path, outcomes.ref_logps, reward, outcomes.gold), leash.leashed(outcomes, reward), turn)
    return figure


def add_given(found: dict[str, Any], world: Outcomes, proxy: Tensor) -> None:
    """Add the figures of a given proxy. Nothing is learned, so there are no figures of data, ensembles or estimation
    error."""
    found["leash"] = _leash(world, proxy, None)
    try:
        detected = detect(world, proxy)
    except ValueError:  # the proxy overstates no completion by that much: there is nothing to detect
        return
    found["detector"], (ax,) = panels(1, 4.4, 3.6)
    figures.detector(ax, detected)


def add_learned(found: dict[str, Any], world: Outcomes, proxy_class: str, pairs: int, seeds: int) -> None:
    """Add the figures of a proxy that is learned from comparisons."""
    evidence = [Evidence(world, compare(world, pairs, seed=s), proxy_class, s) for s in range(seeds)]
    if world is bags():
        limit_name, limit = "all there could be", fit_everything(world, proxy_class)
    else:
        limit_name, limit = f"{VERY_MANY:,} comparisons", fit(world, compare(world, VERY_MANY, seed=-1), proxy_class)

    found["data"], (ax,) = panels(1, 4.4, 3.2)
    few = range(min(seeds, 4))
    by_size = {
        f"{size:,} comparisons": [
            tilt_curve(world.ref_logps, fit(world, compare(world, size, seed=s), proxy_class), world.gold) for s in few
        ]
        for size in (50, 200, 1600)
    }
    figures.gold_curves(ax, by_size | {limit_name: [tilt_curve(world.ref_logps, limit, world.gold)]})

    found["remedies"], (ax,) = panels(1, 5.6, 3.4)
    gold = {name: [remedies.curve_of(name, e).gold_by(DISTANCE) for e in evidence] for name in remedies.REMEDIES}
    gold["constraints"] = [remedies.constrained_curve(e).gold_by(DISTANCE) for e in evidence]
    oracle = tilt_curve(world.ref_logps, world.gold, world.gold).gold_by(DISTANCE)
    figures.remedies(ax, gold, oracle=oracle)
    ax.set_title(f"gold at √KL = {DISTANCE:g}")

    found["ensembles"], (ax,) = panels(1, 6.0, 3.6)
    nets = [ensembles(e) for e in evidence[:4]]
    net_gold = {n: [tilt_curve(world.ref_logps, net[n], world.gold).gold_by(DISTANCE) for net in nets] for n in nets[0]}
    figures.remedies(ax, net_gold, oracle=oracle)
    ax.set_title(f"networks: gold at √KL = {DISTANCE:g}")

    first = remedies.single(evidence[0])
    found["leash"] = _leash(world, first, fit(world, compare(world, pairs, seed=500), proxy_class))

    found["errors"], (ax,) = panels(1, 4.4, 3.2)
    trained = []
    for e in evidence[:3]:
        learned = remedies.single(e)
        outcomes, reward = _on_replies(world, learned)
        trained.append((learned, optimise("policy-gradient", outcomes, reward)))
    parts = {
        f"√KL = {d:g}": [decompose(world, limit, learned, run, distance=d) for learned, run in trained]
        for d in (1.0, 1.5, 2.0)
    }
    figures.errors(ax, parts)

    found["detector"], (ax,) = panels(1, 4.4, 3.6)
    figures.detector(ax, detection(evidence[0]))


def add_other_worlds(found: dict[str, Any]) -> None:
    """Add the figures of tampering and of two habits. They have worlds of their own, to which no given proxy or gold
    reward applies."""
    found["tampering"], axes = panels(2, 4.0, 2.9)
    sheet = tampering.score_sheet()
    runs = {
        "coupled": tampering.train_on_approval(sheet, coupled_approval),
        "decoupled": tampering.train_on_approval(sheet, decoupled_approval),
    }
    figures.tampering(axes, runs)
    found["habits"], axes = panels(2, 4.0, 3.0)
    figures.habit(axes[0], habits.over_refusal(), 2)
    figures.habit(axes[1], habits.sycophancy(), 0)
