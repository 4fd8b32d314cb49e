"""Falling winners and their cures: ``python -m minirlhf_course.chapters.ch14_direct_alignment.study_displacement`` (about eight minutes of one core).

The assistant world, five seeds. Each cure on the quarter of the pairs whose replies are most alike, against DPO on the same pairs
*at the KL where the cure ends*; then DPO on the quarters of highest and of lowest CHES and on a quarter drawn at random, on the quarters of the
longest and the shortest completions, and on all pairs but the quarter of highest CHES, or but a random one. Writes ``study_displacement.json``.
"""

import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import torch

from minirlhf.core.randomness import generator
from minirlhf.data import tasks
from minirlhf.data.types import PreferencePair
from minirlhf.stages import pipeline, zoo
from minirlhf.stages.pipeline import Trained
from minirlhf.trainers.history import History
from minirlhf_course.chapters.ch14_direct_alignment import direct, displacement
from minirlhf_course.evidence import Study, brief, initial_models, settings

STOPS = (3, 6, 10, 15, 20, 30, 45, 60)
LONG = 120
CURES = {  # the loss, and its numbers: those of its own row, and the weaker ones of the large comparison
    "nll": ("dpo_nll", {"nll_weight": 1.0}),
    "nll_weak": ("dpo_nll", {"nll_weight": 0.1}),
    "positive": ("dpo_positive", {"penalty": 5.0}),
    "positive_weak": ("dpo_positive", {"penalty": 0.1}),
    "cal": ("cal_dpo", {"beta": 0.1}),
    "ipo": ("ipo", {"beta": 0.1}),
}


def quarters(
    sft: Trained, pairs: Sequence[PreferencePair], seed: int
) -> tuple[dict[str, list[PreferencePair]], dict[str, float]]:
    """Quarters of the pairs by CHES, by length and at random, and the three quarters that are left; how CHES goes with being alike
    and with length."""
    scores = displacement.ches_of(sft, direct.compared(sft, pairs))
    high, low = displacement.ends_by(scores, pairs)
    size, order = len(high), torch.randperm(len(pairs), generator=generator("quarter", seed)).tolist()
    chosen = {"high": high, "low": low, "random": [pairs[i] for i in order[:size]]}
    dropped = set(map(id, high))
    chosen["without_high"] = [pair for pair in pairs if id(pair) not in dropped]
    chosen["without_random"] = [pairs[i] for i in order[size:]]
    words = torch.tensor([float(len(pair.chosen.split()) + len(pair.rejected.split())) for pair in pairs])
    chosen["long"], chosen["short"] = displacement.ends_by(words, pairs)
    near, far = direct.alike(pairs)
    others = {"near": near, "far": far, "long": chosen["long"], "short": chosen["short"]}
    shared = {
        f"high_{name}": sum(id(pair) in set(map(id, some)) for pair in high) / size for name, some in others.items()
    }
    return chosen, shared


def one_seed(seed: int) -> dict[str, float]:
    """Every run with one seed."""
    world, sft = tasks.get("assistant"), Trained(*zoo.load("assistant-sft", quiet=True), History())
    training = replace(direct.TRAINING, seed=seed, max_steps=STOPS[-1])
    pairs, _ = pipeline.preferences(world, sft, pipeline.with_seed(direct.PAIRS, seed))
    start, numbers = direct.measure(world, sft, sft), dict[str, float]()
    near = direct.compared(sft, direct.alike(pairs)[0])

    with tempfile.TemporaryDirectory() as folder:
        walk = lambda name, loss, **options: direct.path(
            world, sft, near, loss, training, STOPS, Path(folder) / name, first=start, **options
        )
        plain, policy = walk("dpo", "dpo")
        numbers["dpo_chosen"], numbers["dpo_kl"] = direct.moved(policy, sft, near)["chosen"], plain[-1].kl
        for name, (loss, options) in CURES.items():
            places, policy = walk(name, loss, **options)
            end = places[-1]
            numbers[f"{name}_chosen"] = direct.moved(policy, sft, near)["chosen"]
            numbers[f"{name}_gold"], numbers[f"{name}_kl"] = end.gold, end.kl
            numbers[f"{name}_dpo_gold"] = direct.at_kl(plain, end.kl).gold  # DPO on its way there

    groups, shared = quarters(sft, pairs, seed)
    numbers |= shared
    for name, some in groups.items():
        steps = LONG if name.startswith("without") else STOPS[-1]
        examples = direct.compared(sft, some)
        policy = direct.learn(sft, examples, "dpo", replace(training, max_steps=steps))
        change, place = direct.moved(policy, sft, examples), direct.measure(world, policy, sft)
        numbers[f"{name}_chosen"], numbers[f"{name}_rejected"] = change["chosen"], change["rejected"]
        numbers[f"{name}_gold"], numbers[f"{name}_kl"] = place.gold, place.kl
    return numbers


def probe() -> dict[str, float | str]:
    """Two steps on a quarter by CHES and on pairs that are alike, from a brief start."""
    world, (_, sft, numbers) = tasks.get("assistant"), initial_models.assistant()
    plan = brief(direct.PAIRS, batch_size=8, pairs=48, held_out=8)
    pairs, _ = pipeline.preferences(world, sft, plan)
    training = replace(direct.TRAINING, max_steps=2, batch_size=8)
    groups, shared = quarters(sft, pairs, 0)
    scores = displacement.ches_of(sft, direct.compared(sft, pairs))
    numbers |= shared | {f"ches_{k}": float(scores[k]) for k in range(8)}
    examples = direct.compared(sft, groups["high"])
    with tempfile.TemporaryDirectory() as folder:
        places, policy = direct.path(world, sft, examples, "dpo", training, (1, 2), Path(folder) / "run")
    between = direct.at_kl(places, places[-1].kl / 2)
    numbers |= direct.moved(policy, sft, examples) | {f"between_{key}": x for key, x in vars(between).items()}
    said = {name: direct.row(loss, **options) for name, (loss, options) in CURES.items()} | {"dpo": direct.row("dpo")}
    return numbers | settings(pairs=direct.PAIRS, training=direct.TRAINING, **said)


STUDY = Study(one_seed, probe)

if __name__ == "__main__":
    STUDY.main(__file__)
