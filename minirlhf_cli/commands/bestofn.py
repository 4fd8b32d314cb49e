"""Best-of-n sampling for a file of prompts, with the expected score for each n.

  minirlhf evaluate bestofn runs/sft --data prompts.jsonl --reward-model runs/rm --num-generations 16 --out best.jsonl
  minirlhf evaluate bestofn runs/sft --data problems.jsonl --grader numeric --num-generations 8 --out best.jsonl

Each line of the output file holds a conversation that ends with the best-scoring completion, and its score. The file is
ready for `minirlhf train sft`. The table gives the expected best score for every n up to yours, from the same samples,
and an upper bound of the KL divergence between best-of-n and the model.
MODEL is a run, a model folder, a zoo entry or a hub name.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from minirlhf_cli.settings import add_answering


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments: a model, prompts, a scorer and sampling options."""
    add_answering(parser, num_generations=8)
    parser.add_argument("--out", type=Path, metavar="FILE", help="write the best completions as JSON lines")


def run(args: argparse.Namespace) -> int:
    """Sample and score completions, write the best ones, and print the table."""
    import dataclasses
    import json

    from minirlhf.core.errors import UserError
    from minirlhf.core.folders import write_text_atomic
    from minirlhf.equations.estimators import best_of_n_kl
    from minirlhf_cli.files.answering import GenerationRequest, Generator, best_of
    from minirlhf_cli.files.measure import Measurement

    if args.out is not None and args.out.exists():
        raise UserError(
            f"{args.out}: file exists; choose another name", argument="--out", value=args.out, problem="exists"
        )
    generated = Generator.load(
        GenerationRequest(**{field.name: getattr(args, field.name) for field in dataclasses.fields(GenerationRequest)})
    )
    best = best_of(generated)
    print(f"\n{len(generated.problems)} prompts, {args.num_generations} completions each; 95 % intervals over prompts")
    print("     n   expected best   interval             KL to the model (upper bound)")
    for n, scores in best.curve.items():
        estimate = Measurement.of("", scores, len(best.rows))
        interval = f"[{estimate.low:.3f}, {estimate.high:.3f}]"
        print(f"{n:6}   {estimate.value:13.3f}   {interval:<20} {best_of_n_kl(n):.3f} nats")
    if num_excluded := len(generated.problems) - len(best.rows):
        print(f"excluded: {num_excluded} prompts without any completion that could be graded")
    if args.out is not None:
        write_text_atomic(args.out, "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in best.rows))
        print(f"{len(best.rows)} conversations saved to {args.out}")
    return 0
