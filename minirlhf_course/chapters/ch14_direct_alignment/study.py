"""Which loss, when: ``python -m minirlhf_course.chapters.ch14_direct_alignment.study`` (about half an hour of one core).

The assistant world, five seeds, one learning rate. Every row of the chapter's table along one run, so that gold rewards can be compared at
equal KL; labels flipped; pairs that differ by little; a labeller who likes length; the β sweep and the learning-rate sweep; offline
against online against D2PO; quality tags. A run that never reaches a KL gives its end there (``_kl_1`` says so). Writes
``study.json``.
"""

import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from minirlhf.data import tasks
from minirlhf.data.preferences import SimulatedAnnotator, length_bias
from minirlhf.data.types import PreferenceExample
from minirlhf.stages import pipeline, zoo
from minirlhf.stages.pipeline import Trained
from minirlhf.trainers.history import History
from minirlhf_course.chapters.ch14_direct_alignment import direct
from minirlhf_course.evidence import Study, brief, initial_models, settings, trace

STOPS = (8, 15, 30, 60, 120)
FLIPS = (0.2, 0.4)  # labels without flips, and β = 0.1, are the main table's
BETAS = (0.02, 0.05, 0.3, 1.0)
RATES = (0.3, 3.0, 10.0, 30.0)  # multiples of the rate of all other runs
SHORT = 60  # steps on a quarter of the pairs
LIKES_LENGTH = SimulatedAnnotator(temperature=0.3, biases=(length_bias(0.3),))
CURES = {  # with the numbers of the losses' own table, not the weaker ones of the comparison
    "dpo": {},
    "dpo_nll": {"nll_weight": 1.0},
    "dpo_positive": {"penalty": 5.0},
    "cal_dpo": {"beta": 0.1},
    "ipo": {"beta": 0.1},
}


def one_seed(seed: int) -> dict[str, float]:
    """Every run with one seed."""
    world = tasks.get("assistant")
    sft = Trained(*zoo.load("assistant-sft", quiet=True), History())
    plan, training = pipeline.with_seed(direct.PAIRS, seed), replace(direct.TRAINING, seed=seed)
    pairs, _ = pipeline.preferences(world, sft, plan)
    start = direct.measure(world, sft, sft)
    numbers = {"sft_gold": start.gold, "sft_length": start.length}

    def note(name: str, policy: Trained) -> None:
        place = direct.measure(world, policy, sft)
        numbers.update({f"{name}_gold": place.gold, f"{name}_kl": place.kl, f"{name}_length": place.length})

    def along(name: str, loss: str, examples: Sequence[PreferenceExample], **options: float) -> None:
        """One run of a loss, at equal KL and at its end."""
        with tempfile.TemporaryDirectory() as folder:
            places, policy = direct.path(
                world, sft, examples, loss, training, STOPS, Path(folder) / "run", first=start, **options
            )
        for end, place in {"": places[-1], "_1": direct.at_kl(places, 1.0), "_2": direct.at_kl(places, 2.0)}.items():
            numbers.update(
                {f"{name}_gold{end}": place.gold, f"{name}_kl{end}": place.kl, f"{name}_length{end}": place.length}
            )
        if "accuracy" in policy.history.last:  # thumbs have none
            numbers[f"{name}_accuracy"] = direct.last_mean(policy, "accuracy")

    examples = direct.compared(sft, pairs, world)
    for loss in direct.COMPARED:
        along(loss, loss, examples)
    for beta in BETAS:
        along(f"beta_{beta:g}", "dpo", examples, beta=beta)
    for factor in RATES:
        policy = direct.learn(sft, examples, "dpo", replace(training, learning_rate=factor * training.learning_rate))
        note(f"rate_{factor:g}", policy)
        numbers[f"rate_{factor:g}_accuracy"] = direct.last_mean(policy, "accuracy")
    for flip in FLIPS:
        noisy = direct.compared(sft, pipeline.preferences(world, sft, replace(plan, flip=flip))[0], world)
        for loss in ("dpo", "ipo"):
            along(f"flip_{flip:g}_{loss}", loss, noisy)
        for loss in ("cdpo", "robust_dpo"):
            along(f"flip_{flip:g}_{loss}", loss, noisy, label_smoothing=flip)

    near, far = direct.alike(pairs)
    for name, chosen, losses in (("near", near, CURES), ("far", far, {"dpo": {}})):
        examples = direct.compared(sft, chosen)
        for loss, options in losses.items():
            policy = direct.learn(sft, examples, loss, replace(training, max_steps=SHORT), **options)
            numbers.update(
                {f"{name}_{loss}_{key}": value for key, value in direct.moved(policy, sft, examples).items()}
            )
            note(f"{name}_{loss}", policy)

    biased = direct.compared(sft, direct.labelled_pairs(world, sft, plan.pairs, LIKES_LENGTH, seed=seed), world)
    for loss in ("dpo", "dpo_length_normalised", "simpo"):
        along(f"long_{loss}", loss, biased)

    note("online", direct.rounds(world, sft, plan, "dpo", training))
    note("moving", direct.rounds(world, sft, plan, "dpo", training, moving=True))
    note("self_play", direct.rounds(world, sft, plan, "sppo", training, moving=True))
    note("d2po", direct.with_discriminator(world, sft, plan, "dpo", training))
    note("few", direct.rounds(world, sft, replace(plan, pairs=plan.pairs // 4), "dpo", training))  # D2PO's labels alone
    policy = direct.tagged(sft, pairs, replace(direct.TAGGING, seed=seed))
    for name, tag in (("good", direct.GOOD), ("bad", direct.BAD)):
        place = direct.measure_tagged(world, policy, sft, tag)
        numbers |= {f"tag_{name}_gold": place.gold, f"tag_{name}_kl": place.kl, f"tag_{name}_length": place.length}
    return numbers


def probe() -> dict[str, float | str]:
    """Two steps of every loss, of the rounds and of the tagged imitation, from a brief start."""
    world, (_, sft, numbers) = tasks.get("assistant"), initial_models.assistant()
    plan, training = (
        brief(direct.PAIRS, batch_size=8, pairs=48, held_out=8),
        replace(direct.TRAINING, max_steps=2, batch_size=8),
    )
    pairs, _ = pipeline.preferences(world, sft, plan)
    examples = direct.compared(sft, pairs, world)
    runs = [(loss, loss, {}) for loss in direct.COMPARED]
    runs += [(f"cure_{loss}", loss, options) for loss, options in CURES.items()]
    runs += [(f"flip_{loss}", loss, {"label_smoothing": FLIPS[0]}) for loss in ("cdpo", "robust_dpo")]
    for name, loss, options in runs:
        numbers |= trace(name, direct.learn(sft, examples, loss, training, **options).history)
    near, _ = direct.alike(pairs)
    liked = direct.labelled_pairs(world, sft, 32, LIKES_LENGTH)
    policies = {
        "near": direct.learn(sft, direct.compared(sft, near), "dpo", training),
        "long": direct.learn(sft, direct.compared(sft, liked, world), "dpo", training),
        "online": direct.rounds(world, sft, plan, "dpo", training, count=2),
        "moving": direct.rounds(world, sft, plan, "sppo", training, count=2, moving=True),
        "d2po": direct.with_discriminator(world, sft, plan, "dpo", training, count=2),
        "tagged": direct.tagged(sft, pairs, replace(direct.TAGGING, max_steps=2)),
    }
    for name, policy in policies.items():
        numbers |= trace(name, policy.history)
        numbers |= {f"{name}_{key}": x for key, x in direct.moved(policy, sft, examples).items() if key != "accuracy"}
    with tempfile.TemporaryDirectory() as folder:
        passed, walked = direct.path(world, sft, examples, "dpo", training, (1, 2), Path(folder) / "run")
    numbers["path_accuracy"] = direct.last_mean(walked, "accuracy")
    between = direct.at_kl(passed, sum(place.kl for place in passed[-2:]) / 2)
    places = {
        "_between": between,
        "": direct.measure(world, policies["online"], sft, replies=1),
        "_tagged": direct.measure_tagged(world, policies["tagged"], sft, direct.GOOD, replies=1),
    }
    numbers |= {f"{key}{name}": x for name, place in places.items() for key, x in vars(place).items()}
    said = {name: direct.row(loss, **options) for name, loss, options in runs} | {"sppo_moving": direct.row("sppo")}
    return numbers | settings(pairs=direct.PAIRS, training=direct.TRAINING, tagging=direct.TAGGING, **said)


STUDY = Study(one_seed, probe)

if __name__ == "__main__":
    STUDY.main(__file__)
