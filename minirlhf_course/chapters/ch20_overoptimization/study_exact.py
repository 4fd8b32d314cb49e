"""Over-optimisation in the seven-word world, 20 draws of the comparisons: ``python -m minirlhf_course.chapters.ch20_overoptimization.study_exact`` (about six minutes of one
core).

Everything is summed over all replies; seeds differ in the comparisons that the proxies learn from. Writes
``study_exact.json``.
"""

from functools import cache

import torch

from minirlhf.data.seven_words import bags, decisions, lifted, replies
from minirlhf.feedback.proxies import (
    CLASSES,
    compare,
    fit,
    fit_everything,
    with_flipped_tail,
    with_noise,
)
from minirlhf_course.chapters.ch20_overoptimization import leash, remedies
from minirlhf_course.chapters.ch20_overoptimization.curves import (
    POLICY_SIZES,
    along,
    best_of_n_curve,
    policy_gradient,
    tilt_curve,
    tilted,
)
from minirlhf_course.chapters.ch20_overoptimization.detector import detection
from minirlhf_course.chapters.ch20_overoptimization.errors import decompose
from minirlhf_course.chapters.ch20_overoptimization.fits import FORMS, fit_form, on_a_grid
from minirlhf_course.chapters.ch20_overoptimization.networks import DIFFERENCES, ensembles, members
from minirlhf_course.evidence import Study

SIZES = (50, 100, 200, 400, 1600)


def short(name: str) -> str:
    """A remedy's or a detector's name as a key."""
    for old, new in ((" ", "_"), (",", ""), (":", ""), ("+_", ""), ("−", "minus"), ("π", "pi"), ("/", "over")):
        name = name.replace(old, new)
    return name


@cache
def limits() -> dict[str, torch.Tensor]:
    """What each class of proxies learns from all comparisons that there could be."""
    return {proxy_class: fit_everything(bags(), proxy_class) for proxy_class in CLASSES}


def every_comparison() -> dict[str, float]:
    """What does not depend on the draw."""
    world, numbers = bags(), dict[str, float]()
    for name, proxy in {**limits(), "gold": world.gold, "flipped": with_flipped_tail(world)}.items():
        curve = tilt_curve(world.ref_logps, proxy, world.gold)
        numbers[f"all_{name}_peak"], numbers[f"all_{name}_fall"] = curve.peak[1], curve.fall
        numbers[f"all_{name}_end"] = float(curve.gold[-1])
    return numbers


def one_seed(seed: int) -> dict[str, float]:
    """All measurements on one draw of comparisons."""
    world, every = bags(), replies()
    numbers: dict[str, float] = {}

    def note(name, curve):
        numbers[f"{name}_peak"], numbers[f"{name}_fall"] = curve.peak[1], curve.fall
        numbers[f"{name}_place"], numbers[f"{name}_end"] = curve.peak[0], float(curve.gold[-1])

    for proxy_class in CLASSES:
        for size in SIZES if proxy_class != "triples" else SIZES[3:]:
            learned = fit(world, compare(world, size, seed=seed), proxy_class)
            note(f"{proxy_class}_{size}", tilt_curve(world.ref_logps, learned, world.gold))

    learned = fit(world, compare(world, 400, seed=seed), "counts")
    paths = {size: policy_gradient(every, decisions(), lifted(learned), size=size) for size in POLICY_SIZES}
    sizes = {size: along(path, every.ref_logps, lifted(learned), every.gold) for size, path in paths.items()}
    found = {
        "tilt": tilt_curve(world.ref_logps, learned, world.gold),
        "bon": best_of_n_curve(world.ref_logps, learned, world.gold),
        "pg": sizes["place"],
    }
    for name, curve in found.items():
        note(name, curve)
        numbers[f"{name}_gold_1.5"], numbers[f"{name}_gold_2.5"] = curve.gold_at(1.5), curve.gold_at(2.5)
        grid, gains = on_a_grid([curve])
        r2 = [fit_form(grid, gains[0], form).r2 for form in FORMS]
        numbers[f"{name}_r2_square"], numbers[f"{name}_r2_log"] = r2
        numbers[f"{name}_r2_apart"] = r2[0] - r2[1]
        near = grid <= 1.5  # fitted up to about the peak, what does each form say of the fall?
        for key, form in zip(("square", "log"), FORMS, strict=True):
            said = fit_form(grid[near], gains[0][near], form)(torch.tensor(2.5, dtype=torch.float64))
            numbers[f"{name}_foretold_{key}"] = float(said) - (curve.gold_at(2.5) - float(curve.gold[0]))
    for size, curve in sizes.items():
        note(f"policy_{size}", curve)
        numbers[f"policy_{size}_gold_1.5"] = curve.gold_at(1.5)

    noisy = tilt_curve(every.ref_logps, with_noise(every, std=0.8, seed=seed), every.gold)
    reached = noisy.distance <= 2.0  # beyond, one reply with lucky noise has all the mass
    numbers["noise_fall"] = float((noisy.gold[reached].cummax(0).values - noisy.gold[reached]).max())
    numbers["noise_gain"] = float(noisy.gold[reached][-1] - noisy.gold[0])

    for proxy_class, size in (("counts", 400), ("pairs", 200)):
        case = remedies.Evidence(world, compare(world, size, seed=seed), proxy_class, seed)
        curves = {name: remedies.curve_of(name, case) for name in remedies.REMEDIES}
        curves["constraints"] = remedies.constrained_curve(case)
        for name, curve in curves.items():
            numbers[f"{proxy_class}_{short(name)}_gold"] = curve.gold_by(2.0)
            numbers[f"{proxy_class}_{short(name)}_fall"] = curve.fall
        single, fresh = remedies.single(case), fit(world, compare(world, size, seed=500 + seed), proxy_class)
        path = policy_gradient(every, decisions(), lifted(single), steps=leash.STEPS)
        trained = along(path, every.ref_logps, lifted(single), every.gold)
        stops = {
            "tilt": leash.stop_where_another_turns(tilted(world.ref_logps, single), world, fresh),
            "pg": leash.stop_where_another_turns(path, every, lifted(fresh)),
        }
        for name, (place, gold) in stops.items():
            numbers[f"{proxy_class}_{name}_stop_place"], numbers[f"{proxy_class}_{name}_stop_gold"] = place, gold
        numbers[f"{proxy_class}_pg_peak"], numbers[f"{proxy_class}_pg_fall"] = trained.peak[1], trained.fall
        held = leash.leashed(every, lifted(single))
        for k, (beta, *ahead) in enumerate(zip(leash.BETAS, *leash.lead(held, trained), strict=True), 1):
            key = f"{proxy_class}_beta_{beta:g}"
            numbers[f"{key}_distance"], numbers[f"{key}_gold"] = float(held.distance[k]), float(held.gold[k])
            numbers[f"{key}_proxy_ahead"], numbers[f"{key}_gold_ahead"] = map(float, ahead)
        parts = decompose(world, limits()[proxy_class], single, trained, distance=1.5)
        for part in ("approximation", "estimation", "optimisation"):
            numbers[f"{proxy_class}_{part}"] = getattr(parts, part)
    few = remedies.Evidence(world, compare(world, 100, seed=seed), "counts", seed)
    for name, proxy in ensembles(few).items():
        curve = tilt_curve(world.ref_logps, proxy, world.gold)
        numbers[f"{short(name)}_gold"], numbers[f"{short(name)}_fall"] = curve.gold_by(2.0), curve.fall
    for kind in DIFFERENCES:
        numbers[f"{short(kind)}_apart"] = float(world.probs @ members(few, kind).std(0))
    alarm = detection(remedies.Evidence(world, compare(world, 400, seed=seed), "counts", seed))
    for name in alarm.scores:
        numbers[f"auc_{short(name)}"] = alarm.auc(name)
    return numbers | every_comparison()


def probe() -> dict[str, float]:
    """Every proxy, optimiser and remedy once, with fewer steps; of the limits the cheapest."""
    world, every = bags(), replies()
    numbers, limit = {}, fit_everything(world, "counts")

    def note(name, curve):
        middle = len(curve.gold) // 2
        numbers.update({f"{name}_distance": float(curve.distance[-1]), f"{name}_proxy": float(curve.proxy[-1])})
        numbers.update({f"{name}_gold": float(curve.gold[-1]), f"{name}_gold_between": float(curve.gold[middle])})
        numbers.update({f"{name}_peak": curve.peak[1], f"{name}_fall": curve.fall, f"{name}_by": curve.gold_by(0.3)})

    for proxy_class in CLASSES:
        learned = fit(world, compare(world, 400, seed=0), proxy_class)
        note(proxy_class, tilt_curve(world.ref_logps, learned, world.gold))
    note("limit", tilt_curve(world.ref_logps, limit, world.gold))
    note("flipped", tilt_curve(world.ref_logps, with_flipped_tail(world), world.gold))
    case = remedies.Evidence(world, compare(world, 100, seed=0), "counts", 0)
    single = remedies.single(case)
    paths = {size: policy_gradient(every, decisions(), lifted(single), size=size, steps=5) for size in POLICY_SIZES}
    paths["leash"] = policy_gradient(every, decisions(), lifted(single), beta=leash.BETAS[1], steps=5)
    walked = {size: along(path, every.ref_logps, lifted(single), every.gold) for size, path in paths.items()}
    noisy = tilt_curve(every.ref_logps, with_noise(every, std=0.8, seed=0), every.gold)
    curves = walked | {"noise": noisy, "bon": best_of_n_curve(world.ref_logps, single, world.gold)}
    curves |= {short(name): remedies.curve_of(name, case) for name in remedies.REMEDIES}
    curves["constraints"] = remedies.constrained_curve(case)
    for name, curve in curves.items():
        note(name, curve)
    grid, gains = on_a_grid([curves["bon"]])
    for key, form in zip(("square", "log"), FORMS, strict=True):
        fitted = fit_form(grid, gains[0], form)
        numbers |= {f"r2_{key}": fitted.r2, f"foretold_{key}": float(fitted(grid[-1]))}
    held = leash.leashed(every, lifted(single), leash.BETAS[1:2], steps=5)
    numbers["proxy_ahead"], numbers["gold_ahead"] = (float(ahead[0]) for ahead in leash.lead(held, walked["place"]))
    stop = leash.stop_where_another_turns(tilted(world.ref_logps, single), world, fit(world, case.pairs, "pairs"))
    numbers["stop_place"], numbers["stop_gold"] = stop
    parts = decompose(world, limit, single, curves["bon"], distance=0.5)
    numbers |= {part: getattr(parts, part) for part in ("approximation", "estimation", "optimisation")}
    for kind in DIFFERENCES:
        numbers[f"{short(kind)}_apart"] = float(world.probs @ members(case, kind, count=2).std(0))
    for name, proxy in ensembles(case).items():
        note(short(name), tilt_curve(world.ref_logps, proxy, world.gold))
    alarm = detection(case)
    return numbers | {f"auc_{short(name)}": alarm.auc(name) for name in alarm.scores}


STUDY = Study(one_seed, probe, seeds=20)

if __name__ == "__main__":
    STUDY.main(__file__)
