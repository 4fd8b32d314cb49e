"""Compare two files of answers to the same prompts, by a language model that judges each pair in both orders.

  minirlhf judge ours.jsonl theirs.jsonl                          the tiny judge, which knows the assistant world only
  minirlhf judge ours.jsonl theirs.jsonl --judge runs/judge       a run of `minirlhf train judge`, a model folder, a hub name
  minirlhf judge ours.jsonl theirs.jsonl --judge NAME --written --max-completion-length 400     it may reason first
  minirlhf judge ours.jsonl theirs.jsonl --length-controlled      also what it would say if the answers were equally long

A file holds one conversation per line, as `minirlhf bestofn --out` writes them; the last answer of each is judged. By default the
judge writes nothing: what counts is how likely "[[A]]" is against "[[B]]". A pair is won where both orders are for OURS, lost where
both are for THEIRS, else a tie. The table says how much the judge likes the first place, and the longer answer.
"""

from __future__ import annotations

import argparse
from pathlib import Path


def configure(parser: argparse.ArgumentParser) -> None:
    """Two files, a judge, and how it is asked."""
    parser.add_argument("ours", metavar="OURS", help="a file of conversations that end with an answer")
    parser.add_argument("theirs", metavar="THEIRS", help="other answers to the same prompts")
    parser.add_argument(
        "--judge", default="assistant-judge", metavar="MODEL",
        help="a run, a model folder, a zoo entry or a hub name (default: assistant-judge)",
    )  # fmt: skip
    parser.add_argument(
        "--ask",
        type=Path,
        metavar="FILE",
        help="the question to the judge, with {question}, {first} and {second} in it",
    )
    parser.add_argument("--written", action="store_true", help="let the judge write its verdicts, greedily")
    parser.add_argument(
        "--max-completion-length",
        type=int,
        metavar="N",
        help="with --written: tokens of a verdict and its reasons (default: 8)",
    )
    parser.add_argument(
        "--length-controlled",
        action="store_true",
        help="also the win rate at equal length, by a regression of the verdicts on the difference in characters",
    )
    parser.add_argument("--limit", type=int, metavar="N", help="judge this many pairs at most")
    parser.add_argument("--device", help="where to compute (default: the first GPU, else the CPU)")
    parser.add_argument("--batch-size", type=int, default=64, metavar="N", help="questions read at once (default: 64)")
    parser.add_argument(
        "--out", type=Path, metavar="FILE", help="write each pair and its verdicts, one line of JSON each"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the numbers, and what they were measured on")


def run(args: argparse.Namespace) -> int:
    """Match, judge, print; write what is asked for."""
    import json

    from minirlhf.core.errors import UserError
    from minirlhf.core.folders import require_writable, write_text_atomic
    from minirlhf.data import loaders
    from minirlhf.feedback.judge import Judge, require_ask
    from minirlhf.models.tiny import num_parameters
    from minirlhf.stages import named, start
    from minirlhf.stages.judge_files import compare, match
    from minirlhf.stages.measure import as_json

    for name in ("limit", "batch_size", "max_completion_length"):
        if (value := getattr(args, name)) is not None and value < 1:
            raise UserError(
                f"--{name.replace('_', '-')} {value}: expected at least 1",
                argument=f"--{name.replace('_', '-')}",
                value=value,
                expected=1,
            )
    if args.max_completion_length is not None and not args.written:
        raise UserError(
            "--max-completion-length: the judge writes nothing; expected --written with it",
            argument="--max-completion-length",
            expected="--written",
        )
    if args.out is not None and args.out.exists():
        raise UserError(f"{args.out}: is there already; name another file")
    if args.json is not None:
        require_writable(args.json)
    ask = None if args.ask is None else require_ask(args.ask)
    files = [loaders.load(name) for name in (args.ours, args.theirs)]
    for records in files:
        print(records)
    matched = match(*files)
    pairs = matched.pairs[: args.limit]
    model, tokenizer = named.model_by_name(args.judge)
    device = start.device_of(args.device)
    judge = Judge.of(
        model.to(device).eval(),
        tokenizer,
        ask=ask,
        max_completion_length=args.max_completion_length or 8,
        batch_size=args.batch_size,
    )
    print(f"{args.judge}: {num_parameters(model):,} parameters on {device}")
    found = compare(judge, pairs, written=args.written)
    alone = f"; {matched.alone} answers have no partner in the other file" if matched.alone else ""
    print(f"\n{len(pairs)} pairs{alone}; 95 % intervals over prompts")
    numbers = [*found.numbers(), *(found.length_controlled() if args.length_controlled else [])]
    print("\n".join(f"  {number}" for number in numbers))
    ties = len(found.pairs) - found.won - found.lost
    print(
        f"  won {found.won}, lost {found.lost}, the two orders disagree or neither wins {ties}, equal answers {len(found.equal)}; a split "
        f"of the prompts at least as uneven has chance {found.sign_test_p:.3f} if the answers are equally good"
    )
    if found.verdicts.unreadable:
        print(f"  without a verdict: {found.verdicts.unreadable:.3f} of what the judge wrote")
    if args.out is not None:
        write_text_atomic(args.out, "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in found.rows()))
        print(f"{args.out}: {len(found.pairs)} pairs written")
    if args.json is not None:
        asked = {name: str(value) for name, value in vars(args).items() if name != "json" and value is not None}
        on = {
            "pairs": start.digest(pairs), "judge": start.model_digest(model), "question": judge.ask, "asked": asked,
            "versions": start.versions(),
        }  # fmt: skip
        counts = {"won": found.won, "lost": found.lost, "tied": ties, "equal": len(found.equal), "alone": matched.alone}
        result = {"numbers": as_json(numbers), "pairs": counts, "sign_test": found.sign_test_p, "measured on": on}
        write_text_atomic(args.json, json.dumps(result, indent=2) + "\n")
        print(f"{args.json}: written")
    return 0
