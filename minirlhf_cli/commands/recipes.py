"""The online algorithms as a table: the functions that each one consists of, and its options."""

from __future__ import annotations

import argparse


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the argument: an optional name."""
    parser.add_argument(
        "name", nargs="?", metavar="NAME", help="show one recipe with its source, options and deviations"
    )


def run(args: argparse.Namespace) -> int:
    """Print the table, or one recipe."""
    from minirlhf import recipes
    from minirlhf_cli.settings import meaning

    if args.name:
        recipe = recipes.get(args.name)
        options = recipe.numbers().values()
        name_width, value_width = (max(len(str(o[i])) for o in options) for i in (0, 1))
        print(recipes.describe(recipe), f"\n\n{'option'.ljust(name_width)}  {'default'.ljust(value_width)}  meaning")
        for option in options:
            print(f"{option.name:{name_width}}  {option.value!s:{value_width}}  {meaning(option)}")
        return 0
    table = [recipes.summary(recipe) for recipe in recipes.RECIPES.values()]
    rows = [tuple(table[0]), *(tuple(row.values()) for row in table)]
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    for row in rows:
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())
    return 0
