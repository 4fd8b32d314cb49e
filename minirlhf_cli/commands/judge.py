"""Compare two files of completions for the same prompts by a language-model judge, in both presentation orders.

  minirlhf evaluate judge ours.jsonl theirs.jsonl                          the tiny judge, for the assistant task only
  minirlhf evaluate judge ours.jsonl theirs.jsonl --judge runs/judge       a run of `minirlhf train judge`, a model folder, a hub name
  minirlhf evaluate judge ours.jsonl theirs.jsonl --judge NAME --generate-verdict --max-completion-length 400     with reasoning
  minirlhf evaluate judge ours.jsonl theirs.jsonl --length-controlled      also the win rate at equal length

A file holds one conversation per line, as `minirlhf evaluate bestofn --out` writes them; the last completion of each is judged.
By default the judge generates nothing: the verdict compares the probabilities of "[[A]]" and "[[B]]". A pair is won if
CANDIDATE wins in both orders, lost if BASELINE wins in both orders, and else a tie. The table also reports the judge's
position bias and length bias.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from minirlhf_cli.settings import require_at_least


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments: two files, a judge and its prompt."""
    parser.add_argument("candidate", metavar="CANDIDATE", help="a file of conversations that end with a completion")
    parser.add_argument("baseline", metavar="BASELINE", help="other completions for the same prompts")
    parser.add_argument(
        "--judge", default="assistant-judge", metavar="MODEL",
        help="a run, a model folder, a zoo entry or a hub name (default: assistant-judge)",
    )  # fmt: skip
    parser.add_argument(
        "--ask",
        type=Path,
        metavar="FILE",
        help="the judge's prompt, with the fields {question}, {first} and {second}",
    )
    parser.add_argument("--generate-verdict", action="store_true", help="generate the verdicts by greedy decoding")
    parser.add_argument(
        "--max-completion-length",
        type=int,
        metavar="N",
        help="with --generate-verdict: maximum tokens of a verdict with its reasons (default: 8)",
    )
    parser.add_argument(
        "--length-controlled",
        action="store_true",
        help="also the win rate at equal length (regression of the verdicts on the length difference in characters)",
    )
    parser.add_argument("--limit", type=int, metavar="N", help="judge at most N pairs")
    parser.add_argument("--device", help="device (default: the first CUDA GPU, else the CPU)")
    parser.add_argument("--batch-size", type=int, default=64, metavar="N", help="prompts per batch (default: 64)")
    parser.add_argument("--out", type=Path, metavar="FILE", help="write each pair and its verdicts as JSON lines")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the numbers and their provenance as JSON")


def run(args: argparse.Namespace) -> int:
    """Match the files, judge the pairs, print the results; write the files that are requested."""
    import json

    from minirlhf.core.errors import UserError
    from minirlhf.core.folders import require_writable, write_text_atomic
    from minirlhf.data import loaders
    from minirlhf.feedback.judge import Judge, require_ask
    from minirlhf.models.tiny import num_parameters
    from minirlhf.stages import named
    from minirlhf_cli.files import start
    from minirlhf_cli.files.judge_files import compare, match
    from minirlhf_cli.files.measure import as_json, p_text

    require_at_least(1, args, "limit", "batch_size", "max_completion_length")
    if args.max_completion_length is not None and not args.generate_verdict:
        raise UserError(
            "--max-completion-length needs --generate-verdict: without it the judge generates nothing",
            argument="--max-completion-length",
            expected="--generate-verdict",
        )
    if args.out is not None and args.out.exists():
        raise UserError(f"{args.out}: file exists; choose another name")
    if args.json is not None:
        require_writable(args.json)
    ask = None if args.ask is None else require_ask(args.ask)
    files = [loaders.load(name) for name in (args.candidate, args.baseline)]
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
    tally = compare(judge, pairs, written=args.generate_verdict)
    unmatched = f"; {matched.alone} answers have no partner in the other file" if matched.alone else ""
    print(f"\n{len(pairs)} pairs{unmatched}; 95 % intervals over prompts")
    numbers = [*tally.numbers(), *(tally.length_controlled() if args.length_controlled else [])]
    print("\n".join(f"  {number}" for number in numbers))
    ties = len(tally.pairs) - tally.won - tally.lost
    print(
        f"  won {tally.won}, lost {tally.lost}, tied (the two orders disagree or neither wins) {ties}, identical "
        f"completions {len(tally.equal)}; sign test over prompts: {p_text(tally.sign_test_p)}"
    )
    if tally.verdicts.unreadable:
        print(f"  fraction of outputs without a readable verdict: {tally.verdicts.unreadable:.3f}")
    if args.out is not None:
        write_text_atomic(args.out, "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in tally.rows()))
        print(f"{len(tally.pairs)} pairs saved to {args.out}")
    if args.json is not None:
        arguments = {name: str(value) for name, value in vars(args).items() if name != "json" and value is not None}
        meta = {
            "pairs": start.digest(pairs), "judge": start.model_digest(model), "question": judge.ask, "asked": arguments,
            "versions": start.versions(),
        }  # fmt: skip
        counts = {"won": tally.won, "lost": tally.lost, "tied": ties, "equal": len(tally.equal), "alone": matched.alone}
        result = {"numbers": as_json(numbers), "pairs": counts, "sign_test": tally.sign_test_p, "measured on": meta}
        write_text_atomic(args.json, json.dumps(result, indent=2) + "\n")
        print(f"saved to {args.json}")
    return 0
