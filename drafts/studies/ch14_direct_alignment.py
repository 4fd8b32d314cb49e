"""Which loss, when: ``python studies/ch14_direct_alignment.py`` (long: give it an hour and one thread; ``--only`` takes some rows).

The assistant world, five seeds. Every row of the chapter's table along one run (gold reward at equal KL); labels flipped, 0 to 40 %; a labeller who likes length; offline against online against D2PO; the β sweep; quality
tags. A row that never reaches a KL has its end there (``_kl_1`` says so). Writes ``studies/ch14_direct_alignment.json``.
"""

import argparse
import tempfile
from dataclasses import replace
from pathlib import Path

import torch

from minirlhf import direct, evidence, pipeline, zoo
from minirlhf.data import tasks
from minirlhf.data.preferences import Labeller, length_bias
from minirlhf.pipeline import Trained
from minirlhf.trainers.history import History
from minirlhf.trainers.sft import SFTConfig

RESULT = Path(__file__).with_suffix(".json")
STOPS = (25, 50, 100, 200, 400)
FLIPS = (0.0, 0.1, 0.2, 0.3, 0.4)
BETAS = (0.02, 0.05, 0.1, 0.3, 1.0)
#: Losses whose scale makes steps of another size: they are run at this multiple of the learning rate.
RATES = {"simpo": 0.5, "cpo": 0.5, "slic": 0.5, "likelihood_contrast": 0.2, "kto": 3.0, "apo_zero": 3.0, "bco": 1.0}


def one_seed(seed: int, only: set[str], small: bool) -> dict[str, float]:
    """Every run with one seed."""
    world = tasks.get("assistant")
    sft = Trained(*zoo.load("assistant-sft", quiet=True), History())
    plan = pipeline.with_seed(direct.PAIRS, seed)
    stops, training = STOPS, replace(direct.TRAINING, seed=seed)
    if small:
        plan, stops = replace(plan, pairs=64, held_out=16, training=replace(plan.training, max_steps=4)), (2, 4)
        training = replace(training, batch_size=8, max_steps=4)
    pairs, _ = pipeline.preferences(world, sft, plan)
    numbers: dict[str, float] = {}

    def note(name: str, place: direct.Placed) -> None:
        numbers.update({f"{name}_gold": place.gold, f"{name}_kl": place.kl, f"{name}_length": place.length})

    def wanted(part: str) -> bool:
        return not only or part in only

    start = direct.measure(world, sft, sft)
    numbers |= {"sft_gold": start.gold, "sft_length": start.length}

    def along(name: str, loss: str, examples: list, **options: float) -> None:
        """One run of a loss, at equal KL and at its end."""
        config = replace(training, learning_rate=training.learning_rate * RATES.get(loss, 1.0))
        with tempfile.TemporaryDirectory() as folder:
            places, policy = direct.path(world, sft, examples, loss, config, stops, Path(folder) / "run", **options)
        note(name, places[-1])
        numbers[f"{name}_best"] = max(place.gold for place in places)
        for kl in (1, 2, 3):
            there = direct.at_kl(places, kl)
            numbers.update(
                {
                    f"{name}_gold_{kl}": there.gold,
                    f"{name}_length_{kl}": there.length,
                    f"{name}_kl_{kl}": there.kl,
                }
            )
        window = policy.history.rows[-10:]
        numbers[f"{name}_accuracy"] = (
            sum(row["accuracy"] for row in window) / len(window) if "accuracy" in window[0] else 0.5
        )
        numbers[f"{name}_chosen_logp"] = sum(row["chosen_logp"] for row in window) / len(window)
        numbers[f"{name}_chosen_logp_start"] = policy.history.rows[0]["chosen_logp"]

    if wanted("losses"):
        for loss in direct.COMPARED:
            along(loss, loss, pairs)
    if wanted("betas"):
        for beta in BETAS:
            along(f"beta_{beta:g}", "dpo", pairs, beta=beta)
    if wanted("rates"):
        for factor in (0.3, 1.0, 3.0, 10.0, 30.0):
            config = replace(training, max_steps=stops[-2], learning_rate=factor * training.learning_rate)
            policy = direct.align(sft, pairs, "dpo", config)
            note(f"rate_{factor:g}", direct.measure(world, policy, sft))
            window = policy.history["accuracy"][-20:]
            numbers[f"rate_{factor:g}_accuracy"] = sum(window) / len(window)
    if wanted("noise"):
        for flip in FLIPS:
            noisy, _ = pipeline.preferences(world, sft, replace(plan, flip=flip))
            options = {"label_smoothing": max(flip, 1e-3)}
            for loss in ("dpo", "ipo"):
                along(f"flip_{flip:g}_{loss}", loss, noisy)
            for loss in ("cdpo", "robust_dpo"):
                along(f"flip_{flip:g}_{loss}", loss, noisy, **options)
    if wanted("length"):
        judge = Labeller(temperature=0.3, biases=(length_bias(0.3),))
        biased = direct.labelled_pairs(world, sft, plan.pairs, judge, seed=seed)
        for loss in ("dpo", "dpo_length_normalised", "simpo", "ipo"):
            along(f"long_{loss}", loss, biased)
    if wanted("online"):
        config = replace(training, max_steps=stops[-2])
        note("offline", direct.measure(world, direct.align(sft, pairs, "dpo", config), sft))
        for name, moving in (("online", False), ("moving", True)):
            policy = direct.rounds(world, sft, plan, "dpo", config, count=2 if small else 4, moving=moving)
            note(name, direct.measure(world, policy, sft))
        for name, loss in (("online_ipo", "ipo"), ("self_play", "sppo")):
            policy = direct.rounds(world, sft, plan, loss, config, count=2 if small else 4, moving=loss == "sppo")
            note(name, direct.measure(world, policy, sft))
        policy = direct.with_discriminator(world, sft, plan, "dpo", config, count=2 if small else 4)
        note("d2po", direct.measure(world, policy, sft))
    if wanted("tags"):
        config = SFTConfig(
            max_steps=stops[-2], batch_size=32, learning_rate=1e-3, lr_scheduler_type="linear", seed=seed
        )
        policy = direct.tagged(sft, pairs, config)
        for name, tag in (("good", direct.GOOD), ("bad", direct.BAD)):
            place = direct.measure_tagged(world, policy, tag)
            numbers |= {f"tag_{name}_gold": place.gold, f"tag_{name}_length": place.length}
    return numbers


def main() -> None:
    """Run all seeds and write down their numbers; with ``--small`` only see that everything runs."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--only", nargs="*", default=[], help="losses betas rates noise length online tags")
    parser.add_argument("--small", action="store_true", help="a smoke test: nothing is written")
    args = parser.parse_args()
    torch.set_num_threads(1)
    seeds = {}
    for seed in range(args.seeds):
        seeds[seed] = one_seed(seed, set(args.only), args.small)
        print(
            seed,
            {k: round(v, 2) for k, v in seeds[seed].items() if k.endswith(("gold", "gold_1", "gold_3"))},
            flush=True,
        )
    if args.small or args.only:
        return
    modules = ["minirlhf.direct", "minirlhf.zoo"]
    evidence.write(RESULT, command="python studies/ch14_direct_alignment.py", modules=modules, seeds=seeds)
    for name, (mean, deviation, low, high) in evidence.summary(evidence.read(RESULT)).items():
        print(f"{name:40} {mean:9.4f} ± {deviation:.4f} between seeds, {low:.4f} to {high:.4f}")


if __name__ == "__main__":
    main()
