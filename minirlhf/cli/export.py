"""Take a run to a big engine: its model, data, grader, and a script to start, with what is the same and what is not.

  minirlhf export runs/grpo --to trl --out big
  cd big && torchrun --nproc-per-node 2 train.py
  minirlhf chat big/out/model                        and back
  minirlhf export runs/grpo --to verl --out big --accept-differences

The recipe is mapped part by part; one that has no counterpart is refused, with the part's name. TRL is held to whole optimizer steps; verl
and OpenRLHF were never started by us: the names of their options are held to a version's, and their equations were read. A reward model
goes (and comes back) as a sequence classifier, as other libraries keep it, and what a LoRA run learned as a folder of peft.
"""

from __future__ import annotations

import argparse
from pathlib import Path


def configure(parser: argparse.ArgumentParser) -> None:
    """A run, an engine and a folder."""
    parser.add_argument("run", type=Path, metavar="RUN", help="folder of a run")
    parser.add_argument("--to", choices=["trl", "verl", "openrlhf"], default="trl", help="the engine (default: trl)")
    parser.add_argument("--out", type=Path, required=True, metavar="FOLDER", help="a new folder")
    parser.add_argument(
        "--model",
        choices=["start", "end", "adapter"],
        default="start",
        help="what the run began with, what came out, or both: the first and the adapter of a LoRA run (default: start)",
    )
    parser.add_argument("--accept-differences", action="store_true", help="also what is not quite the same over there")


def run(args: argparse.Namespace) -> int:
    """Write the folder and say what differs."""
    from minirlhf.cli.train import load_run_spec
    from minirlhf.stages.bridge.write import export

    asked = load_run_spec(args.run)
    print(export(args.run, asked, args.out, to=args.to, accept_differences=args.accept_differences, model=args.model))
    start = "python train.py, or torchrun --nproc-per-node N train.py" if args.to == "trl" else "GPUS=8 bash train.sh"
    print(f"{args.out}: written; cd {args.out} && {start}")
    return 0
