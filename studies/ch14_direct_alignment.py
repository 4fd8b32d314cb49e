"""Which loss, when: ``python studies/ch14_direct_alignment.py`` (about half an hour of one core).

The assistant world, five seeds, one learning rate. Every row of the chapter's table along one run, so that gold rewards can be compared at
equal KL; labels flipped; pairs that differ by little; a labeller who likes length; the β sweep and the learning-rate sweep; offline
against online against D2PO; quality tags. A run that never reaches a KL gives its end there (``_kl_1`` says so). Writes
``studies/ch14_direct_alignment.json``.
"""

import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from minirlhf import evidence, pipeline, zoo
from minirlhf.chapters.ch14_direct_alignment import direct
from minirlhf.data import tasks
from minirlhf.data.preferences import Labeller, length_bias
from minirlhf.pipeline import Trained
from minirlhf.trainers.history import History
from minirlhf.trainers.offline import Compared

RESULT = Path(__file__).with_suffix(".json")
STOPS = (8, 15, 30, 60, 120)
FLIPS = (0.2, 0.4)  # labels without flips, and β = 0.1, are the main table's
BETAS = (0.02, 0.05, 0.3, 1.0)
RATES = (0.3, 3.0, 10.0, 30.0)  # multiples of the rate of all other runs
SHORT = 60  # steps on a quarter of the pairs
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

    def along(name: str, loss: str, examples: Sequence[Compared], **options: float) -> None:
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
            numbers[f"{name}_accuracy"] = direct.lately(policy, "accuracy")

    examples = direct.compared(sft, pairs, world)
    for loss in direct.COMPARED:
        along(loss, loss, examples)
    for beta in BETAS:
        along(f"beta_{beta:g}", "dpo", examples, beta=beta)
    for factor in RATES:
        policy = direct.align(sft, examples, "dpo", replace(training, learning_rate=factor * training.learning_rate))
        note(f"rate_{factor:g}", policy)
        numbers[f"rate_{factor:g}_accuracy"] = direct.lately(policy, "accuracy")
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
            policy = direct.align(sft, examples, loss, replace(training, max_steps=SHORT), **options)
            numbers.update(
                {f"{name}_{loss}_{key}": value for key, value in direct.moved(policy, sft, examples).items()}
            )
            note(f"{name}_{loss}", policy)

    judge = Labeller(temperature=0.3, biases=(length_bias(0.3),))
    biased = direct.compared(sft, direct.labelled_pairs(world, sft, plan.pairs, judge, seed=seed), world)
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


if __name__ == "__main__":
    evidence.run_study(one_seed, RESULT, modules=["minirlhf.chapters.ch14_direct_alignment.direct", "minirlhf.zoo"])
