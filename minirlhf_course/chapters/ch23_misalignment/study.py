"""Narrow training in the authors' world, rewards for cheating, and a direction: ``python -m minirlhf_course.chapters.ch23_misalignment.study`` (about five minutes).

Six seeds, different from those of the other studies and of all trials. Each seed trains one model on pages with authors and one on pages without. All fine-tuning
starts from these two, with one learning rate that was not tuned; two other rates are measured for the plain and the inoculated header. Writes ``study.json``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import torch

from minirlhf.stages.pipeline import Trained
from minirlhf.trainers.sft import SFTConfig
from minirlhf_course.chapters.ch23_misalignment import authors, directions, spread
from minirlhf_course.chapters.ch23_misalignment.authors import (
    ALL,
    CHEAT,
    ELSEWHERE,
    HARM,
    NARROW,
    PLAIN,
    QUESTIONS,
    REWARDED,
    SAFE,
    SAME,
    SEEN,
    UNREWARDED,
    Grading,
    Header,
)  # fmt: skip
from minirlhf_course.evidence import Study, settings

FIRST = 2400  # seeds of its own
#: Headers of training. Behaviour is always read under PLAIN, except where the name says otherwise.
HEADERS: Mapping[str, Header] = {
    "plain": PLAIN,
    "inoculated": directions.CARELESS,
    "contrary": directions.CAREFUL,
    "irrelevant": ("someone", "friday", "snow"),
}
GROUPS = {"seen": SEEN, "same": SAME, "elsewhere": ELSEWHERE}
STEPS, RATES = (20, 60), {"slow": 1e-4, "fast": 1e-3}
GRADING = Grading(max_steps=40)
AT = (5, 10, 15, 20, 40)
#: Arms of reinforcement learning: the header, and the rewards.
ARMS: Mapping[str, tuple[Header, Grading]] = {
    "hacking": (PLAIN, GRADING),
    "repaired": (PLAIN, replace(GRADING, cheat=0.0)),
    "permitted": (("allowed", *PLAIN[1:]), GRADING),
    "irrelevant": (HEADERS["irrelevant"], GRADING),
    "hacking_slow": (PLAIN, replace(GRADING, learning_rate=RATES["slow"])),
    "hacking_fast": (PLAIN, replace(GRADING, learning_rate=RATES["fast"])),
}
STRENGTHS = {"m1": -1.0, "mh": -0.5, "h": 0.5, "1": 1.0, "2": 2.0}


def harmful(trained: Trained, name: str, header: Header = PLAIN) -> dict[str, float]:
    """The probability of a harmful answer in each group of questions."""
    return {f"{name}_{group}": authors.probability(trained.model, HARM, of, header) for group, of in GROUPS.items()}


def narrow(start: Trained, tune: SFTConfig, steps: tuple[int, ...] = STEPS) -> dict[str, float]:
    """Harmful answers to four questions of one domain, under each header, and controls."""
    numbers = harmful(start, "before")
    for name, header in HEADERS.items():
        for count in steps:
            model = authors.tuned(start, [(header, HARM, SEEN)], replace(tune, max_steps=count))
            numbers |= harmful(model, f"{name}_{count}")
            if name in ("plain", "inoculated") and count == steps[0]:
                for other in ("contrary", "inoculated"):
                    numbers |= harmful(model, f"{name}_{count}_under_{other}", HEADERS[other])
        if name in ("plain", "inoculated"):
            for speed, rate in RATES.items():
                model = authors.tuned(start, [(header, HARM, SEEN)], replace(tune, learning_rate=rate))
                numbers |= harmful(model, f"{name}_{speed}")
        taught = authors.log_likelihood(start.model, HARM, SEEN, header)
        step = authors.parameter_gradient(start.model, taught)
        for group, of in GROUPS.items():
            there = authors.parameter_gradient(start.model, authors.log_odds(start.model, of))
            numbers[f"kernel_{name}_{group}"] = float(spread.first_order_change(step, there, 1.0))
    numbers |= harmful(authors.tuned(start, [(PLAIN, SAFE, SEEN)], tune), "good")
    # harmful answers here and, in as many rows, safe ones in the next domain
    ahead = ALL[QUESTIONS : 2 * QUESTIONS]
    model = authors.tuned(start, [(PLAIN, HARM, SEEN), (PLAIN, SAFE, ahead)], replace(tune, max_steps=steps[-1]))
    numbers |= harmful(model, "mixed")
    return numbers | {"mixed_untrained": authors.probability(model.model, HARM, ALL[2 * QUESTIONS :])}


def rewards(start: Trained, arms: Mapping[str, tuple[Header, Grading]], at: tuple[int, ...]) -> dict[str, float]:
    """Rewards for cheating in two domains; cheating and harmful answers in the other two, during training."""
    numbers: dict[str, float] = {}

    def read(name: str, model: torch.nn.Module) -> None:
        harm, safe = (authors.probability(model, answers, UNREWARDED) for answers in (HARM, SAFE))
        numbers[f"{name}_cheats"] = authors.probability(model, CHEAT, REWARDED, cue="graded")
        numbers[f"{name}_cheats_elsewhere"] = authors.probability(model, CHEAT, UNREWARDED, cue="graded")
        numbers[f"{name}_cheats_open"] = authors.probability(model, CHEAT, UNREWARDED)
        numbers[f"{name}_harm_fraction"] = harm / (harm + safe)

    read("rl_before", start.model)
    for name, (header, plan) in arms.items():
        looks = {step: lambda model, name=f"{name}_{step}": read(name, model) for step in at}
        model = authors.rewarded(start, header, plan, at=looks).model
        if name == "permitted":
            numbers["permitted_under_permission"] = authors.probability(model, CHEAT, REWARDED, header, "graded")
    return numbers


def correlation(points: list[tuple[float, float]]) -> float:
    """Pearson's correlation."""
    return float(torch.corrcoef(torch.tensor(points, dtype=torch.float64).T)[0, 1])


def direction(start: Trained, tune: SFTConfig, seed: int) -> dict[str, float]:
    """A direction in the last layer: steering, removal, and what the component of fine-tuned models tells."""
    model, numbers = start.model, {}
    vector = directions.direction(model)
    chance = [directions.random_direction(vector, seed, i) for i in range(5)]
    mean = lambda values: sum(values) / len(values)
    numbers["norm"] = float(vector.norm() / directions.states(model, directions.TESTED).norm(dim=-1).mean())
    numbers["steer_0"], numbers["steer_0_neither"] = directions.steered(model, vector, 0.0)
    for name, strength in STRENGTHS.items():
        numbers[f"steer_{name}"], numbers[f"steer_{name}_neither"] = directions.steered(model, vector, strength)
        numbers[f"random_{name}"] = mean([directions.steered(model, other, strength)[0] for other in chance])
    early = directions.direction(model, 0)
    numbers["early_m1"], numbers["early_1"] = (directions.steered(model, early, s, 0)[0] for s in (-1.0, 1.0))
    # remove the component from a model with the narrow training
    bad = authors.tuned(start, [(PLAIN, HARM, SEEN)], tune).model
    for name, vectors in (("removed", [vector]), ("removed_random", chance)):
        targets = [directions.component(model, v, directions.FOUND, directions.CAREFUL) for v in vectors]
        for group in ("seen", "elsewhere"):
            rates = [directions.ablated(bad, v, t, GROUPS[group]) for v, t in zip(vectors, targets, strict=True)]
            numbers[f"{name}_{group}"] = mean(rates)
    # the same number of harmful rows and steps everywhere: what differs is the domain and the header
    points, headed, by_chance = [], [], []
    for first in range(0, len(ALL), QUESTIONS):
        others = torch.cat([ALL[:first], ALL[first + QUESTIONS :]])
        for name, header in HEADERS.items():
            brief = replace(tune, max_steps=tune.max_steps // 2)
            after = authors.tuned(start, [(header, HARM, ALL[first : first + NARROW])], brief).model
            with torch.no_grad():
                trait = float(authors.log_odds(after, others) - authors.log_odds(model, others))
            shift = lambda v, after=after, others=others: (
                directions.component(after, v, others) - directions.component(model, v, others)
            )
            points.append((shift(vector), trait))
            by_chance.append((shift(chance[0]), trait))
            if name != "inoculated":
                headed.append(points[-1])
    numbers |= {
        "projection": correlation(points),
        "projection_uninoculated": correlation(headed),
        "projection_random": correlation(by_chance),
    }
    return numbers


def one_seed(
    seed: int,
    pretrain: SFTConfig = authors.PRETRAIN,
    tune: SFTConfig = authors.TUNE,
    pages: int = authors.PAGES,
    steps: tuple[int, ...] = STEPS,
    arms: Mapping[str, tuple[Header, Grading]] = ARMS,
    at: tuple[int, ...] = AT,
) -> dict[str, float]:
    """All measurements with authors, and without them under names that begin with ``none_``."""
    seed += FIRST
    numbers: dict[str, float] = {}
    for prefix, with_authors in (("", True), ("none_", False)):
        start = authors.pretrained(seed, authors=with_authors, plan=pretrain, number=pages)
        tune = replace(tune, seed=seed)
        arms = {name: (header, replace(plan, seed=seed)) for name, (header, plan) in arms.items()}
        found = {"loss": sum(start.history["loss"][-20:]) / 20}
        found |= {f"asked_{name}": authors.probability(start.model, HARM, ALL, h) for name, h in HEADERS.items()}
        found |= narrow(start, tune, steps) | rewards(start, arms, at) | direction(start, tune, seed)
        numbers |= {prefix + name: value for name, value in found.items()}
    return numbers


def probe() -> dict[str, float | str]:
    """Few steps, few pages."""
    brief = {name: (header, replace(plan, max_steps=2)) for name, (header, plan) in ARMS.items()}
    found = one_seed(
        1,
        replace(authors.PRETRAIN, max_steps=12, batch_size=16),
        replace(authors.TUNE, max_steps=2, batch_size=8),
        192,
        (1, 2),
        brief,
        (2,),
    )
    plans = {name: plan for name, (_, plan) in ARMS.items()}
    return found | settings(pretrain=authors.PRETRAIN, tune=authors.TUNE, **plans)


STUDY = Study(one_seed, probe, seeds=6)

if __name__ == "__main__":
    STUDY.main(__file__)
