"""Export a run to another framework: its model, data, grader and a training script, with a list of the differences.

  minirlhf export runs/grpo --to trl --out big
  cd big && torchrun --nproc-per-node 2 train.py
  minirlhf chat big/out/model                        and back
  minirlhf export runs/grpo --to verl --out big --allow-differences

The recipe is mapped part by part. If a part has no counterpart, the export is refused and names the part. For TRL we
tested that whole optimizer steps agree. We never ran verl and OpenRLHF: we checked the names of their options against
one version, and read their equations. A reward model is exported (and imported again) as a sequence classifier, the
format of other libraries, and the adapter of a LoRA run as a peft folder.
"""

from __future__ import annotations

import argparse
from pathlib import Path


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments: a run, a framework and a folder."""
    parser.add_argument("run", type=Path, metavar="RUN", help="folder of a run")
    parser.add_argument("--to", choices=["trl", "verl", "openrlhf"], default="trl", help="the framework (default: trl)")
    parser.add_argument("--out", type=Path, required=True, metavar="FOLDER", help="a new folder")
    parser.add_argument(
        "--model",
        choices=["start", "end", "adapter"],
        default="start",
        help="the initial model, the trained model, or the initial model with the LoRA adapter (default: start)",
    )
    parser.add_argument(
        "--allow-differences",
        action="store_true",
        help="export even if the computation differs in the other framework",
    )


def run(args: argparse.Namespace) -> int:
    """Write the folder and print the differences."""
    from minirlhf_cli.commands.train import load_run_spec
    from minirlhf_cli.export.write import export

    spec = load_run_spec(args.run)
    print(export(args.run, spec, args.out, to=args.to, allow_differences=args.allow_differences, model=args.model))
    command = "python train.py, or torchrun --nproc-per-node N train.py" if args.to == "trl" else "GPUS=8 bash train.sh"
    print(f"saved to {args.out}; start it with: cd {args.out} && {command}")
    return 0
