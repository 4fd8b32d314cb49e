"""Explain one sample of a training step by token: reward, advantage, ratio, clipping, weight, share of the gradient.

minirlhf explain runs/grpo                            the last step with logged rollouts, its first sample
minirlhf explain runs/ppo --step 12 --sample 3 --html page.html
"""

from __future__ import annotations

import argparse
from pathlib import Path


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments: a run, a step and a sample."""
    parser.add_argument("run", metavar="RUN", help="folder of an online run")
    parser.add_argument("--step", type=int, metavar="K", help="step, counted from 1 (default: the last)")
    parser.add_argument("--sample", type=int, default=0, metavar="I", help="sample, counted from 0 (default: 0)")
    parser.add_argument("--html", type=Path, metavar="FILE", help="write an HTML page with the figure")
    parser.add_argument("--figure", type=Path, metavar="FILE", help="write the figure alone, as PNG")


def run(args: argparse.Namespace) -> int:
    """Print the table; write the page and the figure if requested."""
    from minirlhf.core.errors import UserError
    from minirlhf.trainers import samples
    from minirlhf_course.report import explain
    from minirlhf_course.report.plotting import png

    step = samples.read(args.run, args.step)
    print(explain.table(step, args.sample))
    if args.html is not None:
        explain.write_page(args.html, step, args.sample)
        print(f"\nsaved to {args.html}")
    if args.figure is not None:
        try:
            args.figure.write_bytes(png(explain.figure(step, args.sample)))
        except OSError as error:
            raise UserError(
                f"{args.figure}: cannot be written ({error.strerror})", problem="not writable", file=args.figure
            ) from None
        print(f"saved to {args.figure}")
    return 0
