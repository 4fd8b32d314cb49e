"""What an equation, a loss or a recipe still lacks before its tests pass: ``python tools/lacking.py eq:k3``, ``… dpo``, ``… GRPO``.

One line per item: where it is, or where to add it. CONTRIBUTING.md says how. The exit status is 1 if something is lacking.
"""

from __future__ import annotations

import ast
import functools
import json
import re
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import minirlhf
from minirlhf.core.errors import UserError, unknown
from minirlhf.recipes import RECIPES, Recipe
from minirlhf.recipes.offline import PREFERENCES, PreferenceRecipe
from minirlhf.recipes.options import head
from minirlhf_course.chapters import load_checks, load_legends
from minirlhf_course.ledger import pages
from minirlhf_course.ledger.formulas.displays import displays
from minirlhf_course.ledger.peers.catalogue import PEERS

ROOT = Path(__file__).resolve().parents[1]
#: Modules of ``minirlhf.equations`` whose functions have an entry among the peers, if a row uses them; modules of losses, which
#: are on the cheat sheet.
WITH_PEERS = {"advantages", "aggregation", "distillation", "off_policy", "policy_losses", "preference_losses", "reward_losses", "value_losses"}  # fmt: skip
ON_SHEET = {"distillation", "policy_losses", "preference_losses", "reward_losses", "value_losses"}


@dataclass(frozen=True)
class Item:
    """Something that the tests require.

    Attributes:
        name: what it is.
        found: where it is; empty if it is lacking.
        add: where to add it.
    """

    name: str
    found: str
    add: str


def lines(items: Iterable[Item]) -> Iterator[str]:
    """One line per item."""
    for item in items:
        yield f"  {item.name:<32}{item.found or f'LACKING: {item.add}'}"


# -- equations ---------------------------------------------------------------------------------------------------


def of_equation(label: str) -> Iterator[Item]:
    """Its function, checks, symbols and page, and a line of the cheat sheet if its function is a loss."""
    checks = load_checks().select([label])
    functions = pages.homes().get(label, ()) or pages.implementations(checks)
    yield Item("function", ", ".join(pages.source(f)[0] for f in functions), f'@equation("{label}") on a function of minirlhf/equations, or of a chapter\'s equations.py')  # fmt: skip
    yield Item("checks", ", ".join(check.claim for check in checks), f'@check("{label}", "value", …) in the checks.py of its chapter')  # fmt: skip
    wrong = sum(len(check.wrong) for check in checks)
    yield Item("wrong variants", f"{wrong}" if wrong else "", "wrong={…} of a check")
    printings = load_legends()
    symbols = "symbols" if label in printings.legends else "pinned" if label in printings.pins else ""
    yield Item("printed formula", symbols, f'@symbols_of("{label}") in the legends.py of its chapter')
    yield Item("page", _page(label), f"$$ … $$ ({label}) on the page of its chapter in book/")
    modules = {part for f in functions for part in _equation_module(f)}
    if modules & ON_SHEET:
        yield Item("cheat sheet", _on_sheet(label), "book/cheat-sheet.md, or NOT_LOSSES in tests/test_cheat_sheet.py")


def _equation_module(function: Callable[..., Any]) -> set[str]:
    """``{"policy_losses"}`` for a function of ``minirlhf.equations.policy_losses``; nothing for one that lies elsewhere."""
    found = re.match(r"minirlhf\.equations\.(\w+)", function.__module__)
    return {found[1]} if found else set()


def _page(label: str) -> str:
    """The page that prints the label."""
    return _pages().get(label, "")


@functools.cache
def _pages() -> dict[str, str]:
    """The page of each label that the book prints."""
    return {
        display.label: f"book/{path.name}"
        for path in sorted((ROOT / "book").glob("*.md"))
        for display in displays(path.read_text(encoding="utf-8"))
        if display.label
    }


def _on_sheet(label: str) -> str:
    name = re.escape(label.removeprefix("eq:"))
    for path in (ROOT / "book/cheat-sheet.md", ROOT / "tests/test_cheat_sheet.py"):
        if re.search(rf"(?<![\w-]){name}(?![\w-])", path.read_text(encoding="utf-8")):
            return str(path.relative_to(ROOT))
    return ""


def _peer(function: Callable[..., Any]) -> Item:
    name = function.__name__
    found = next((peer.peer or f"none: {peer.convention}" for peer in PEERS if peer.method == name), "")
    return Item(
        f"peer of {name}",
        found,
        f"a line for {name} in minirlhf_course/ledger/peers/catalogue.py, or a reason in NO_PEER",
    )


# -- rows --------------------------------------------------------------------------------------------------------


def of_recipe(row: Recipe) -> Iterator[Item]:
    """Its name at the door, its transcription, its equivalents elsewhere, and all that its functions lack."""
    yield _door(row.name)
    yield _in_table(row.name, "transcription", "tests/test_whole_recipes.py", "OBJECTIVES")
    yield _in_table(row.name, "steps as TRL's", "tests/test_bridge.py", "ONLINE", optional=True)
    gradients = json.loads((ROOT / "benchmarks/engines.json").read_text(encoding="utf-8"))["gradient"]
    engines = [engine for engine, distances in gradients.items() if row.name in distances]
    yield Item("distance to engines", ", ".join(engines) or "none measured", "benchmarks/engines.py")
    yield from _of_functions(row)


def of_loss(row: PreferenceRecipe) -> Iterator[Item]:
    """Its function, exports and transcription, the source of its numbers, and all that its function lacks."""
    function = head(row.loss)
    package = "minirlhf.equations.preference_losses"
    exported = function.__module__.startswith(package) and hasattr(sys.modules[package], function.__name__)
    yield Item("exported function", f"{package}.{function.__name__}" if exported else "", f"{package}/__init__.py")
    yield _door(row.name)
    tables = [_in_table(row.name, "transcription", "tests/test_whole_losses.py", t) for t in ("PAIRS", "BATCHES", "LISTS", "THUMBS")]  # fmt: skip
    yield next((item for item in tables if item.found), tables[0])
    numbers = {"beta", "weight", "delta"} & row.numbers().keys()
    known = _keys("tests/test_recipes.py", "GIVEN").get(row.name, set()) | {option for d in row.deviations for option in d.options}  # fmt: skip
    if numbers:
        yield Item("source of numbers", "" if numbers - known else ", ".join(sorted(numbers)), f"{', '.join(sorted(numbers - known))} in GIVEN of tests/test_recipes.py, or a Deviation of the row")  # fmt: skip
    yield from _of_functions(row)


def _of_functions(row: Recipe | PreferenceRecipe) -> Iterator[Item]:
    """What a row's functions lack, and their equations; one line for each equation that lacks nothing."""
    chosen = (
        {name: option.value for name, option in row.choices().items()}
        if isinstance(row, Recipe)
        else {"loss": row.loss}
    )
    functions = {pages.unwrapped(value): name for name, value in chosen.items() if callable(value)}
    homes = {pages.unwrapped(home): label for label, things in pages.homes().items() for home in things}
    for function, name in functions.items():
        if name in ("loss", "objective", "advantage") and function not in homes:
            yield Item(f"equation of {function.__name__}", "", "@equation(…) on it, and what `python tools/lacking.py eq:…` then lists")  # fmt: skip
        if _equation_module(function) & WITH_PEERS or name in ("loss", "objective", "advantage"):
            yield _peer(function)
    for label, things in pages.homes().items():
        if functions.keys() & {pages.unwrapped(home) for home in things}:
            lacking = [replace(item, name=f"{label}: {item.name}") for item in of_equation(label) if not item.found]
            yield from lacking or [Item(label, "complete", "")]


def _door(row: str) -> Item:
    stub = (ROOT / "minirlhf/__init__.pyi").read_text(encoding="utf-8")
    is_there = row.upper() in minirlhf._HOME_OF and re.search(rf"\b{row.upper()}\b", stub)
    return Item(
        "name at the door", f"minirlhf.{row.upper()}" if is_there else "", "minirlhf/__init__.py and __init__.pyi"
    )


def _in_table(row: str, name: str, file: str, table: str, *, optional: bool = False) -> Item:
    found = f"{file}, {table}" if row in _keys(file, table) else "no (needed only if there is an equivalent)" * optional
    return Item(name, found, f"{row!r} in {table} of {file}")


def _keys(file: str, table: str) -> dict[str, set[str]]:
    """The keys of a table in a test file, with the keys of their values, read without running the tests."""
    for node in ast.parse((ROOT / file).read_text(encoding="utf-8")).body:
        if isinstance(node, ast.Assign | ast.AnnAssign) and isinstance(node.value, ast.Dict):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            if table in [target.id for target in targets if isinstance(target, ast.Name)]:
                return {
                    key: set(_strings(value))
                    for key, value in zip(_strings(node.value), node.value.values, strict=True)
                }
    raise UserError(f"{file} has no table {table}", argument=table, problem="missing", file=file)


def _strings(node: ast.AST) -> list[str]:
    """The string keys of a dictionary; another key as its source."""
    keys = node.keys if isinstance(node, ast.Dict) else []
    return [key.value if isinstance(key, ast.Constant) else ast.unparse(key) for key in keys if key is not None]


def of(name: str) -> Iterator[Item]:
    """What is required of a label, a recipe or a preference loss.

    Raises:
        UserError: no row has this name.
    """
    if name.startswith("eq:"):
        return of_equation(name)
    if name.lower() in RECIPES:
        return of_recipe(RECIPES[name.lower()])
    if name.lower() in PREFERENCES:
        return of_loss(PREFERENCES[name.lower()])
    raise unknown("recipe, loss or label", name, [*RECIPES, *PREFERENCES])


def main() -> int:
    """Print the items of each name; 1 if something is lacking."""
    if not sys.argv[1:]:
        print(__doc__)
        return 2
    lacking = 0
    for name in sys.argv[1:]:
        try:
            items = list(of(name))
        except UserError as problem:
            print(problem, file=sys.stderr)
            return 2
        print(name, *lines(items), sep="\n")
        lacking += sum(not item.found for item in items)
    return int(lacking > 0)


if __name__ == "__main__":
    raise SystemExit(main())
