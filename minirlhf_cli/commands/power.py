"""Sample size to compare two models, or the minimum detectable effect of a number of items.

  minirlhf evaluate power --accuracy 0.7 --effect 0.05
  minirlhf evaluate power --accuracy 0.7 --items 500
  minirlhf evaluate power --results pilot.json --effect 0.02 --replies 4
  minirlhf evaluate power --results pilot.json --effect 0.02 --seeds 5 --seed-sd 0.01

The calculation needs a variance. --accuracy takes the variance of right and wrong answers, with separate items for each
model. --results estimates the variance from a pilot: two models that `minirlhf evaluate A B --json pilot.json` measured
on the same items, so that the difficulty of an item cancels. If the pilot has one completion per item, the gain of more
completions is unknown. --seed-sd is the standard deviation across seeds of the difference between two *recipes*.
"""

from __future__ import annotations

import argparse
from pathlib import Path


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments: the effect, the variance and the design."""
    parser.add_argument("--effect", type=float, metavar="DELTA", help="the difference to detect")
    parser.add_argument("--items", type=int, metavar="N", help="number of items")
    parser.add_argument("--accuracy", type=float, metavar="P", help="accuracy of the weaker model")
    parser.add_argument("--results", type=Path, nargs="+", metavar="FILE", help="evaluate --json of two models")
    parser.add_argument("--replies", type=int, default=1, metavar="K", help="completions per item (default: 1)")
    parser.add_argument("--seeds", type=int, default=1, metavar="S", help="seeds of each recipe (default: 1)")
    parser.add_argument(
        "--seed-sd",
        type=float,
        default=0.0,
        metavar="SD",
        help="standard deviation of the difference across seeds (default: 0, two models)",
    )
    parser.add_argument("--alpha", type=float, default=0.05, help="level of the two-sided test (default: 0.05)")
    parser.add_argument("--power", type=float, default=0.8, help="statistical power (default: 0.8)")


def run(args: argparse.Namespace) -> int:
    """Print the number of items needed, and the minimum detectable effect for several numbers of items."""
    import math

    from minirlhf.core.errors import UserError
    from minirlhf_cli.files.power import VarianceComponents, grades

    _check(args)
    seed_variance = args.seed_sd**2
    if args.results is None:
        noise = VarianceComponents.of_shares(args.accuracy, args.effect or 0.0, seed_variance)
    else:
        scores = grades(args.results)
        if len(scores) != 2:
            raise UserError(
                f"--results: {len(scores)} models ({', '.join(scores)}); expected two",
                argument="--results",
                value=list(scores),
                expected=2,
            )
        candidate, baseline = scores.values()
        complete = (candidate.isfinite() & baseline.isfinite()).all(1)
        if int(complete.sum()) < 2:
            raise UserError(
                "--results: fewer than two items whose completions were all graded; expected more",
                argument="--results",
                expected=2,
                problem="too few",
            )
        noise = VarianceComponents.measured(candidate[complete], baseline[complete], seed_variance)
        mean = float((candidate[complete] - baseline[complete]).mean())
        print(f"{' − '.join(scores)}: {mean:+.3f} in the pilot, which is not the difference to detect")
    design = {"seeds": args.seeds, "replies": args.replies, "alpha": args.alpha, "power": args.power}
    print(f"variance of {noise.known}")
    components = (
        f"of items {noise.item:.4f}, of a reply {noise.reply:.4f}"
        if noise.reply
        else f"of items with their replies {noise.item:.4f}"
    )
    print(f"  variance {components}, between seeds {noise.seed:.6f}")
    print(f"level {args.alpha:g}, power {args.power:g}; seeds {args.seeds}, completions per item {args.replies}")
    sizes = {100, 300, 1000, 3000, 10000} if args.items is None else {args.items}
    if args.effect is not None:
        needed = noise.items(args.effect, **design)
        if math.isinf(needed):
            level = {"alpha": args.alpha, "power": args.power}
            min_seeds, min_seeds_t = noise.seeds(args.effect, **level), noise.seeds_by_t(args.effect, **level)
            raise UserError(
                f"--seeds {args.seeds}: a standard deviation of {args.seed_sd:g} across seeds hides a difference of "
                f"{args.effect:g} for any number of items; expected at least {min_seeds} seeds, or {min_seeds_t} "
                f"for a t test over seeds with infinitely many items",
                argument="--seeds",
                value=args.seeds,
                expected=(min_seeds, min_seeds_t),
            )
        print(f"\nitems needed for a difference of {args.effect:g}: {math.ceil(needed):,}")
    print("\n  items   minimum detectable effect")
    for items in sorted(sizes):
        print(f"{items:7,}   {noise.minimum_detectable_effect(items, **design):.4f}")
    if seed_variance > 0:
        min_effect_t = noise.effect_by_t(seeds=args.seeds, alpha=args.alpha, power=args.power)
        print(
            "\nThe standard deviation across seeds is assumed to be known. One seed cannot measure it."
            if args.seeds == 1
            else f"\nThe standard deviation across seeds is assumed to be known. A t test over {args.seeds} differences "
            f"estimates it; with infinitely many items, its minimum detectable effect is {min_effect_t:.4f}. "
            f"The test generalises to other items only if each seed has its own items."
        )
    return 0


def _check(args: argparse.Namespace) -> None:
    from minirlhf.core.errors import UserError

    def refuse(requirement: str, *, argument: str, expected: object) -> UserError:
        value = getattr(args, argument.replace("-", "_"))
        message = f"--{argument} {value:g}: expected {requirement}"
        return UserError(message, argument=f"--{argument}", value=value, expected=expected)

    if (args.accuracy is None) == (args.results is None):
        raise UserError(
            "expected either --accuracy or --results, which determine the variance",
            argument="--accuracy",
            expected=("--accuracy", "--results"),
        )
    if args.effect is None and args.items is None:
        raise UserError(
            "expected --effect, the difference to detect, or --items, the number of items",
            argument="--effect",
            expected=("--effect", "--items"),
        )
    for name in ("replies", "seeds", "items"):
        if getattr(args, name) is not None and getattr(args, name) < 1:
            raise refuse("at least 1", argument=name, expected=1)
    for name in ("alpha", "power", "accuracy"):
        value = getattr(args, name)
        if value is not None and not 0 < value < 1:
            raise refuse("a number between 0 and 1", argument=name, expected="(0, 1)")
    if args.power <= args.alpha / 2:
        requirement = f"more than half of --alpha {args.alpha:g}, which a test finds where there is nothing"
        raise refuse(requirement, argument="power", expected=f"({args.alpha / 2:g}, 1)")
    if args.effect is not None and not 0 < args.effect < float("inf"):
        raise refuse("a number above 0", argument="effect", expected="(0, inf)")
    if not 0 <= args.seed_sd < float("inf"):
        raise refuse("0 or a number above", argument="seed-sd", expected="[0, inf)")
    if args.accuracy is not None and args.accuracy + (args.effect or 0) > 1:
        top = f"{1 - args.accuracy:g}"
        raise refuse(
            f"at most {top}, so that the other accuracy is no more than 1", argument="effect", expected=f"(0, {top}]"
        )
    if args.accuracy is not None and args.replies > 1:
        raise UserError(
            "--replies: the gain of more completions depends on the items; expected --results of a pilot",
            argument="--replies",
            expected="--results",
        )
