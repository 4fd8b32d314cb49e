"""Check a model against a specification: rules that replies must or should keep, with intervals, and what got worse against another model.

  minirlhf spec rules.yaml runs/dpo                             every rule on sampled replies; status 1 if a must is not shown to hold
  minirlhf spec rules.yaml runs/dpo --against runs/sft          and what got worse, in pairs on the same prompts
  minirlhf spec rules.yaml runs/dpo --report page.html          one page: the rules, the changes, replies that break them

A specification is a YAML file, such as examples/specification/rules.yaml. Files that it names lie beside it::

  data: prompts.jsonl
  num_generations: 4
  max_completion_length: 24
  rules:
    claims nothing false:    {must: 0.95, grader: rules.py:no_false_claim}
    at most ten words:       {should: 0.9, constraints: {max_words: 10}}
    polite to the impolite:  {should: 0.9, grader: rules.py:polite, data: rude.jsonl}

The number is the share of replies that have to keep the rule. It holds if its whole 95 % interval is there or above, it fails if it is below, and
else it is open. Against another model a rule got worse if fewer replies keep it and the signs of the prompts' differences, tossed as coins, would bring
so large a sum in less than one of twenty tries, corrected for all rules; with one reply to a prompt that is the sign test. A must stops a release unless it holds, did not get worse, and every reply could be graded. A grader is one of `minirlhf evaluate`; a reply keeps the rule if its grade is 1 or more. Besides these a file may set temperature, top_p, limit
and grader_seconds.
"""

from __future__ import annotations

import argparse
from pathlib import Path


def configure(parser: argparse.ArgumentParser) -> None:
    """A file of rules, one model, and perhaps another to compare it with."""
    places = "a run, a model folder, a zoo entry or a hub name"
    parser.add_argument("spec", metavar="FILE", help="the rules, a YAML file")
    parser.add_argument("model", metavar="MODEL", help=places)
    parser.add_argument("--against", metavar="MODEL", help="another model on the same prompts: which rules got worse?")
    parser.add_argument("--seed", type=int, default=0, help="the same seed gives the same replies (default: 0)")
    parser.add_argument("--device", help="where to compute (default: the first GPU, else the CPU)")
    parser.add_argument("--batch-size", type=int, default=64, metavar="N", help="prompts at once (default: 64)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the numbers")
    parser.add_argument("--report", type=Path, metavar="FILE", help="write one HTML page")


def run(args: argparse.Namespace) -> int:
    """Check, print; write what is asked for. Status 1 if a *must* is not shown to hold, got worse, or has replies that could not be graded."""
    import json

    from minirlhf.cli.settings import from_mapping, read_yaml
    from minirlhf.core.errors import UserError
    from minirlhf.core.folders import require_writable, write_text_atomic
    from minirlhf.report import specification as page
    from minirlhf.stages import start
    from minirlhf.stages.specification import RulesRequest, Specification, check

    for file in (args.json, args.report):
        if file is not None:
            require_writable(file)
    if args.against == args.model:
        raise UserError(
            f"--against {args.against}: the model itself; expected another one",
            argument="--against",
            value=args.against,
        )
    spec = Specification.of(read_yaml(args.spec), Path(args.spec))
    how = {"model": args.model, "seed": args.seed, "device": args.device, "batch_size": args.batch_size}
    found, digests = check(spec, from_mapping(RulesRequest, {**spec.asked, **how}, args.spec), against=args.against)
    width = max(len(f.clause.name) for f in found)
    print(f"\n{len(found)} rules; 95 % intervals over prompts")
    for f in found:
        rate, left = f.rate, f"   {f.ungraded} replies not graded" if f.ungraded else ""
        print(
            f"  {f.clause.level:<6} {f.clause.name:<{width}}  {rate.value:.3f} [{rate.low:.3f}, {rate.high:.3f}]  "
            f"asked for {f.clause.at_least:g}: {f.verdict}{left}"
        )
    if args.against is not None:
        print(
            f"\nagainst {args.against}, on the same prompts; p of the share of replies, corrected for all rules (Holm)"
        )
        for f in found:
            if f.change is not None:
                print(
                    f"  {f.clause.name:<{width}}  {f.change.difference.value:+.3f}   better on {f.change.better}, worse on "
                    f"{f.change.worse}, p = {f.change.p_value:.3f}{'   got worse' if f.regressed else ''}"
                )
    stops = [f.clause.name for f in found if f.blocks_release]
    musts = any(f.clause.level == "must" for f in found)
    said = "every must holds" if musts else "no rule is a must: nothing here stops a release"
    print(f"\nnot fit to ship: {'; '.join(stops)}" if stops else f"\n{said}")
    if args.json is not None:
        on = {
            "spec": start.file_digest(args.spec), "digests": digests, "against": args.against, "seed": args.seed,
            "versions": start.versions(),
        }  # fmt: skip
        result = {"model": args.model, "rules": [f.as_json() for f in found], "stops": stops, "measured on": on}
        write_text_atomic(args.json, json.dumps(result, indent=2) + "\n")
        print(f"{args.json}: written")
    if args.report is not None:
        page.write(args.report, Path(args.spec).stem, args.model, args.against, found)
        print(f"{args.report}: written")
    return 1 if stops else 0
