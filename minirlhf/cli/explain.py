"""What one training step did to one sample: its tokens with reward, advantage, ratio, clipping, weight and share of the push.

minirlhf explain runs/grpo                            the last step that kept samples, its first sample
minirlhf explain runs/ppo --step 12 --sample 3 --html page.html
"""

from __future__ import annotations

import argparse
from pathlib import Path


def configure(parser: argparse.ArgumentParser) -> None:
    """A run, and which sample of it."""
    parser.add_argument("run", metavar="RUN", help="folder of an online run")
    parser.add_argument("--step", type=int, metavar="K", help="step, counted from 0 (default: the last)")
    parser.add_argument("--sample", type=int, default=0, metavar="I", help="sample, counted from 0 (default: 0)")
    parser.add_argument("--html", type=Path, metavar="FILE", help="write the page with the figure")
    parser.add_argument("--figure", type=Path, metavar="FILE", help="write the figure alone, as PNG")


def run(args: argparse.Namespace) -> int:
    """Print the table; write what is asked for."""
    from minirlhf.core.errors import UserError
    from minirlhf.report import explain
    from minirlhf.report.plotting import png
    from minirlhf.trainers import samples

    step = samples.read(args.run, args.step)
    print(explain.table(step, args.sample))
    if args.html is not None:
        explain.write_page(args.html, step, args.sample)
        print(f"\n{args.html}: written")
    if args.figure is not None:
        try:
            args.figure.write_bytes(png(explain.figure(step, args.sample)))
        except OSError as problem:
            raise UserError(
                f"{args.figure}: cannot be written ({problem.strerror})", problem="not writable", file=args.figure
            ) from None
        print(f"{args.figure}: written")
    return 0
