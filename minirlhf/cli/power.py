"""How many items tell two models apart, and which difference so many items find.

  minirlhf power --accuracy 0.7 --effect 0.05
  minirlhf power --accuracy 0.7 --items 500
  minirlhf power --results pilot.json --effect 0.02 --replies 4
  minirlhf power --results pilot.json --effect 0.02 --seeds 5 --seed-sd 0.01

What has to be known is the noise. --accuracy takes that of right and wrong answers, each model on items of its own.
--results estimates it from a pilot: two models that `minirlhf evaluate A B --json pilot.json` has measured on the same items, where
what both find hard drops out. With one reply to each item in the pilot, what more replies would help is not known. --seed-sd is by how much the difference of two *recipes* varies from seed to seed.
"""

from __future__ import annotations

import argparse
from pathlib import Path


def configure(parser: argparse.ArgumentParser) -> None:
    """What is looked for, what is known, and what is done."""
    parser.add_argument("--effect", type=float, metavar="DELTA", help="the difference that shall be found")
    parser.add_argument("--items", type=int, metavar="N", help="items that there are")
    parser.add_argument("--accuracy", type=float, metavar="P", help="accuracy of the weaker model")
    parser.add_argument("--results", type=Path, nargs="+", metavar="FILE", help="of evaluate --json; two models in all")
    parser.add_argument("--replies", type=int, default=1, metavar="K", help="replies to each item (default: 1)")
    parser.add_argument("--seeds", type=int, default=1, metavar="S", help="seeds of each recipe (default: 1)")
    parser.add_argument(
        "--seed-sd",
        type=float,
        default=0.0,
        metavar="SD",
        help="of the difference between seeds (default: 0, two models)",
    )
    parser.add_argument("--alpha", type=float, default=0.05, help="level of the two-sided test (default: 0.05)")
    parser.add_argument("--power", type=float, default=0.8, help="how often it shall be found (default: 0.8)")


def run(args: argparse.Namespace) -> int:
    """Print what is needed, and what a few numbers of items would find."""
    import math

    from minirlhf.core.errors import UserError
    from minirlhf.stages.power import VarianceComponents, grades

    _check(args)
    seed = args.seed_sd**2
    if args.results is None:
        noise = VarianceComponents.of_shares(args.accuracy, args.effect or 0.0, seed)
    else:
        found = grades(args.results)
        if len(found) != 2:
            raise UserError(
                f"--results: {len(found)} models ({', '.join(found)}); expected two",
                argument="--results",
                value=list(found),
                expected=2,
            )
        ours, theirs = found.values()
        whole = (ours.isfinite() & theirs.isfinite()).all(1)
        if int(whole.sum()) < 2:
            raise UserError(
                "--results: less than two items of which all replies were graded; expected more",
                argument="--results",
                expected=2,
                problem="too few",
            )
        noise = VarianceComponents.measured(ours[whole], theirs[whole], seed)
        mean = float((ours[whole] - theirs[whole]).mean())
        print(f"{' − '.join(found)}: {mean:+.3f} in the pilot, which is not the difference that is looked for")
    how = {"seeds": args.seeds, "replies": args.replies, "alpha": args.alpha, "power": args.power}
    print(f"noise of {noise.known}")
    each = (
        f"of items {noise.item:.4f}, of a reply {noise.reply:.4f}"
        if noise.reply
        else f"of items with their replies {noise.item:.4f}"
    )
    print(f"  variance {each}, between seeds {noise.seed:.6f}")
    print(f"level {args.alpha:g}, power {args.power:g}; seeds {args.seeds}, replies to each item {args.replies}")
    sizes = {100, 300, 1000, 3000, 10000} if args.items is None else {args.items}
    if args.effect is not None:
        needed = noise.items(args.effect, **how)
        if math.isinf(needed):
            level = {"alpha": args.alpha, "power": args.power}
            fewest, by_t = noise.seeds(args.effect, **level), noise.seeds_by_t(args.effect, **level)
            raise UserError(
                f"--seeds {args.seeds}: seeds that differ by {args.seed_sd:g} hide a difference of {args.effect:g}, however many "
                f"items there are; expected at least {fewest} seeds, or {by_t} for a t test over them and infinitely many items",
                argument="--seeds",
                value=args.seeds,
                expected=(fewest, by_t),
            )
        print(f"\nitems needed for a difference of {args.effect:g}: {math.ceil(needed):,}")
    print("\n  items   smallest difference that is found")
    for items in sorted(sizes):
        print(f"{items:7,}   {noise.minimum_detectable_effect(items, **how):.4f}")
    if seed > 0:
        least = noise.effect_by_t(seeds=args.seeds, alpha=args.alpha, power=args.power)
        print(
            "\nThe spread between seeds is taken as known. One seed cannot measure it."
            if args.seeds == 1
            else f"\nThe spread between seeds is taken as known. A t test over {args.seeds} differences measures it, and finds "
            f"{least:.4f} at best, with infinitely many items. It speaks of other items only if each seed has items of its own."
        )
    return 0


def _check(args: argparse.Namespace) -> None:
    from minirlhf.core.errors import UserError

    def refuse(words: str, *, argument: str, expected: object) -> UserError:
        value = getattr(args, argument.replace("-", "_"))
        said = f"--{argument} {value:g}: expected {words}"
        return UserError(said, argument=f"--{argument}", value=value, expected=expected)

    if (args.accuracy is None) == (args.results is None):
        raise UserError(
            "expected either --accuracy or --results, which say how large the noise is",
            argument="--accuracy",
            expected=("--accuracy", "--results"),
        )
    if args.effect is None and args.items is None:
        raise UserError(
            "expected --effect, the difference to find, or --items, how many there are",
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
        above = f"more than half of --alpha {args.alpha:g}, which a test finds where there is nothing"
        raise refuse(above, argument="power", expected=f"({args.alpha / 2:g}, 1)")
    if args.effect is not None and not 0 < args.effect < float("inf"):
        raise refuse("a number above 0", argument="effect", expected="(0, inf)")
    if not 0 <= args.seed_sd < float("inf"):
        raise refuse("0 or a number above", argument="seed-sd", expected="[0, inf)")
    if args.accuracy is not None and args.accuracy + (args.effect or 0) > 1:
        most = f"{1 - args.accuracy:g}"
        raise refuse(
            f"at most {most}, so that the other accuracy is no more than 1", argument="effect", expected=f"(0, {most}]"
        )
    if args.accuracy is not None and args.replies > 1:
        raise UserError(
            "--replies: what more of them are worth depends on the items; expected --results of a pilot",
            argument="--replies",
            expected="--results",
        )
