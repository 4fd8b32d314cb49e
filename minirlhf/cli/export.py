"""Take a run to a big engine: its model, data, grader, and a script for `torchrun`, with what is the same and what is not.

  minirlhf export runs/grpo --to trl --out big
  cd big && torchrun --nproc-per-node 2 train.py
  minirlhf chat big/out/model                        and back

The recipe is mapped part by part; one that has no counterpart is refused, with the part's name. A reward model goes (and comes back) as a
sequence classifier, as other libraries keep it.
"""

from __future__ import annotations

import argparse
from pathlib import Path


def configure(parser: argparse.ArgumentParser) -> None:
    """A run, an engine and a folder."""
    parser.add_argument("run", type=Path, metavar="RUN", help="folder of a run")
    parser.add_argument("--to", choices=["trl"], default="trl", help="the engine (default: trl)")
    parser.add_argument("--out", type=Path, required=True, metavar="FOLDER", help="a new folder")
    parser.add_argument(
        "--model",
        choices=["start", "end"],
        default="start",
        help="what the run began with, or what came out (default: start)",
    )
    parser.add_argument("--accept-differences", action="store_true", help="also what is not quite the same over there")


def run(args: argparse.Namespace) -> int:
    """Write the folder and say what differs."""
    from minirlhf.cli.train import told
    from minirlhf.stages.bridge.write import export

    print(export(args.run, told(args.run), args.out, accept_differences=args.accept_differences, model=args.model))
    print(f"{args.out}: written; cd {args.out} && python train.py, or torchrun --nproc-per-node N train.py")
    return 0
