"""Training on real files: a reward model on HH-RLHF pairs and an SFT run on GSM8K, from random weights.

    python benchmarks/real_data.py --hh FILE --gsm8k FILE

Writes ``benchmarks/real_data.json``. The files are 800 pairs of anthropics/hh-rlhf (harmless) and 1,000 problems of
openai/grade-school-math; they are not part of this repository.
"""

import argparse
import tempfile
from pathlib import Path

from minirlhf.trainers.reward import RewardConfig
from minirlhf.trainers.sft import SFTConfig
from minirlhf_cli.files import from_files, judges_from_files, sources
from minirlhf_course import evidence

RESULT = Path(__file__).with_suffix(".json")
SEEDS = 3


def one_seed(seed: int, hh: str, gsm8k: str) -> dict[str, float]:
    """Both runs with one seed; the held-out split changes with it."""
    with tempfile.TemporaryDirectory() as folder:
        judged = judges_from_files.run_reward(
            sources.RewardSource(
                out=f"{folder}/reward", data=hh, eval_fraction=0.25, context=512, vocab_size=1024, drop_long=True
            ),
            RewardConfig(max_steps=100, batch_size=16, learning_rate=5e-4, lr_scheduler_type="linear", seed=seed),
        )
        told = from_files.run_sft(
            sources.SFTSource(out=f"{folder}/sft", data=gsm8k, context=512, vocab_size=1024, drop_long=True),
            SFTConfig(max_steps=200, batch_size=16, learning_rate=3e-3, lr_scheduler_type="cosine", seed=seed),
        )
    return {
        "hh_held_out_pairs": judged["held_out"],
        "hh_accuracy": judged["accuracy"],
        "hh_interval_low": judged["interval"][0],
        "hh_interval_high": judged["interval"][1],
        "hh_longer_wins": judged["longer_wins"],
        "hh_train_accuracy": judged["train_accuracy"],
        "gsm8k_loss_before": told["held_out_loss_before"],
        "gsm8k_loss": told["held_out_loss"],
    }


def main() -> None:
    """Run all seeds."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hh", required=True, help="pairs of HH-RLHF transcripts, JSONL")
    parser.add_argument("--gsm8k", required=True, help="GSM8K problems, JSONL")
    args = parser.parse_args()
    seeds = {}
    for seed in range(SEEDS):
        seeds[seed] = one_seed(seed, args.hh, args.gsm8k)
        print(seed, {name: round(value, 3) for name, value in seeds[seed].items()}, flush=True)
    evidence.write(RESULT, {"command": "python benchmarks/real_data.py --hh FILE --gsm8k FILE"}, seeds)


if __name__ == "__main__":
    main()
