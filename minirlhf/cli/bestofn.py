"""Answer a file of prompts with the best of n replies, and say what n is worth.

  minirlhf bestofn runs/sft --data prompts.jsonl --reward-model runs/rm --num-generations 16 --out best.jsonl
  minirlhf bestofn runs/sft --data problems.jsonl --grader numeric --num-generations 8 --out best.jsonl

Each line of the file is a conversation with the reply that scored best, ready for `minirlhf train sft`, and its score. The table gives
the expected best score for every n up to yours, from the same samples, and how far best-of-n is from the model at most.
MODEL is a run, a model folder, a zoo entry or a hub name.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from minirlhf.cli.settings import add_answering


def configure(parser: argparse.ArgumentParser) -> None:
    """A model, prompts, what scores, and how to sample."""
    add_answering(parser, num_generations=8)
    parser.add_argument("--out", type=Path, metavar="FILE", help="write the best replies, one line of JSON each")


def run(args: argparse.Namespace) -> int:
    """Sample, score, keep the best; print the table."""
    import dataclasses
    import json

    from minirlhf.core.errors import UserError
    from minirlhf.core.folders import write_text_atomic
    from minirlhf.equations.estimators import best_of_n_kl
    from minirlhf.stages.answering import GenerationRequest, Generator, best_of
    from minirlhf.stages.measure import Measurement

    if args.out is not None and args.out.exists():
        raise UserError(
            f"{args.out}: is there already; name another file", argument="--out", value=args.out, problem="exists"
        )
    found = Generator.load(
        GenerationRequest(**{field.name: getattr(args, field.name) for field in dataclasses.fields(GenerationRequest)})
    )
    best = best_of(found)
    print(f"\n{len(found.problems)} prompts, {args.num_generations} replies each; 95 % intervals over prompts")
    print("     n   expected best   interval             KL to the model, at most")
    for n, measured in best.curve.items():
        number = Measurement.of("", measured, len(best.rows))
        bounds = f"[{number.low:.3f}, {number.high:.3f}]"
        print(f"{n:6}   {number.value:13.3f}   {bounds:<20} {best_of_n_kl(n):.3f} nats")
    if lost := len(found.problems) - len(best.rows):
        print(f"left out: {lost} prompts of which no reply could be graded")
    if args.out is not None:
        write_text_atomic(args.out, "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in best.rows))
        print(f"{args.out}: {len(best.rows)} conversations written")
    return 0
