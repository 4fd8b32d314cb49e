"""Check a model against rules that completions must or should satisfy, with intervals and regressions.

  minirlhf evaluate spec rules.yaml runs/dpo                             every rule on samples; status 1 unless every must holds
  minirlhf evaluate spec rules.yaml runs/dpo --baseline-model runs/sft          also regressions: paired comparison on the same prompts
  minirlhf evaluate spec rules.yaml runs/dpo --report page.html          HTML page: rules, changes, completions that violate them

A specification is a YAML file, such as examples/specification/rules.yaml. Paths in it are relative to
the file::

  data: prompts.jsonl
  num_generations: 4
  max_completion_length: 24
  rules:
    claims nothing false:    {must: 0.95, grader: rules.py:no_false_claim}
    at most ten words:       {should: 0.9, constraints: {max_words: 10}}
    polite to the impolite:  {should: 0.9, grader: rules.py:polite, data: rude.jsonl}

The number is the required fraction of completions that satisfy the rule. A rule holds if its whole 95 % interval is at
or above the number, it fails if the whole interval is below, and else it is open. Against another model, a rule got
worse if fewer completions satisfy it and a sign-flip permutation test on the prompts' differences has p < 0.05,
corrected for all rules; with one completion per prompt this is the sign test. A must blocks a release unless it holds,
did not get worse, and every completion could be graded. A grader is one of `minirlhf evaluate`; a completion satisfies
the rule if its score is 1 or more. A file may also set temperature, top_p, limit and grader_timeout.
"""

from __future__ import annotations

import argparse
from pathlib import Path


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments: a file of rules, a model, and an optional baseline model."""
    places = "a run, a model folder, a zoo entry or a hub name"
    parser.add_argument("spec", metavar="FILE", help="the rules, a YAML file")
    parser.add_argument("model", metavar="MODEL", help=places)
    parser.add_argument("--baseline-model", metavar="MODEL", help="baseline model: which rules got worse?")
    parser.add_argument("--seed", type=int, default=0, help="random seed of sampling (default: 0)")
    parser.add_argument("--device", help="device (default: the first CUDA GPU, else the CPU)")
    parser.add_argument("--batch-size", type=int, default=64, metavar="N", help="prompts per batch (default: 64)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the numbers as JSON")
    parser.add_argument("--report", type=Path, metavar="FILE", help="write an HTML page")


def run(args: argparse.Namespace) -> int:
    """Check and print; return 1 if a *must* fails or is open, got worse, or has completions that could not be graded."""
    import json

    from minirlhf.core.errors import UserError
    from minirlhf.core.folders import require_writable, write_text_atomic
    from minirlhf_cli.files import start
    from minirlhf_cli.files.measure import p_text
    from minirlhf_cli.files.specification import RulesRequest, Specification, check
    from minirlhf_cli.reports import specification as page
    from minirlhf_cli.settings import from_mapping, read_yaml

    for file in (args.json, args.report):
        if file is not None:
            require_writable(file)
    if args.baseline_model == args.model:
        raise UserError(
            f"--baseline-model {args.baseline_model}: this is the model itself; expected another model",
            argument="--baseline-model",
            value=args.baseline_model,
        )
    spec = Specification.of(read_yaml(args.spec), Path(args.spec))
    cli = {"model": args.model, "seed": args.seed, "device": args.device, "batch_size": args.batch_size}
    rules, digests = check(
        spec, from_mapping(RulesRequest, {**spec.settings, **cli}, args.spec), against=args.baseline_model
    )
    width = max(len(r.clause.name) for r in rules)
    print(f"\n{len(rules)} rules; 95 % intervals over prompts")
    for r in rules:
        rate, ungraded = r.rate, f"   {r.ungraded} replies not graded" if r.ungraded else ""
        print(
            f"  {r.clause.level:<6} {r.clause.name:<{width}}  {rate.value:.3f} [{rate.low:.3f}, {rate.high:.3f}]  "
            f"required {r.clause.at_least:g}: {r.verdict}{ungraded}"
        )
    if args.baseline_model is not None:
        print(
            f"\nagainst {args.baseline_model}, on the same prompts; p of the difference of fractions (Holm, all rules)"
        )
        for r in rules:
            if r.change is not None:
                print(
                    f"  {r.clause.name:<{width}}  {r.change.difference.value:+.3f}   better on {r.change.better}, worse on "
                    f"{r.change.worse}, {p_text(r.change.p_value)}{'   got worse' if r.regressed else ''}"
                )
    blocking = [r.clause.name for r in rules if r.blocks_release]
    has_must = any(r.clause.level == "must" for r in rules)
    verdict = "every must holds" if has_must else "no rule is a must: nothing here stops a release"
    print(f"\nrelease blocked by: {'; '.join(blocking)}" if blocking else f"\n{verdict}")
    if args.json is not None:
        meta = {
            "spec": start.file_digest(args.spec), "digests": digests, "against": args.baseline_model, "seed": args.seed,
            "versions": start.versions(),
        }  # fmt: skip
        record = {"model": args.model, "rules": [r.as_json() for r in rules], "stops": blocking, "measured on": meta}
        write_text_atomic(args.json, json.dumps(record, indent=2) + "\n")
        print(f"saved to {args.json}")
    if args.report is not None:
        page.write(args.report, Path(args.spec).stem, args.model, args.baseline_model, rules)
        print(f"saved to {args.report}")
    return 1 if blocking else 0
