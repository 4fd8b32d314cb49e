"""The options and programs of OpenRLHF and verl that the tables "Names elsewhere" tell are those of the versions the book speaks of."""

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
KNOWN = json.loads((ROOT / "tests/samples/engine_options.json").read_text(encoding="utf-8"))
PROGRAMS = {engine: {name for name in KNOWN[engine] if name.startswith(engine)} for engine in ("verl", "openrlhf")}
OPTIONS = {engine: set().union(*(KNOWN[engine][name] for name in PROGRAMS[engine])) for engine in PROGRAMS}

#: Page and name: why it is not on the list.
ALLOWED = {
    ("11", "verl.trainer.main_generation_server"): "a program of verl 0.9.1 whose options are those of main_ppo",
}


def told(text: str) -> Iterator[tuple[str, str]]:
    """Engine and name of all in a page's table that looks like an option or a program: ``--a.b``, ``a.b``, ``a=b``, ``a_b.c``."""
    section = text.partition("\n## Names elsewhere\n")[2].partition("\n## ")[0]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in section.splitlines() if line[:1] == "|"]
    for column, title in enumerate(rows[0] if rows else []):
        engine = title.split(" ")[0].lower()
        for row in rows[2:] if engine in KNOWN else []:
            for name in re.findall(r"`([^`]+)`", row[column]):
                if re.search(r"^--|^\w+(\.\w+)*=|\w\.\w", name):
                    yield engine, name


def is_known(engine: str, name: str) -> bool:
    """Whether it is a program, or the end of an option's name, as the pages leave ``actor_rollout_ref.`` out."""
    option = re.split(r"[= ]", name.removeprefix("--"))[0]
    if engine == "openrlhf":
        return option in (OPTIONS[engine] if name.startswith("--") else PROGRAMS[engine])
    return option in PROGRAMS[engine] or any(f".{known}.".find(f".{option}.") >= 0 for known in OPTIONS[engine])


PAGES = {path.name[:2]: path for path in sorted((ROOT / "book").glob("[0-9][0-9]-*.md"))}


@pytest.mark.parametrize("page", PAGES)
def test_names_are_those_of_the_versions(page: str) -> None:
    names = set(told(PAGES[page].read_text(encoding="utf-8")))
    strange = {name for engine, name in names if not is_known(engine, name)}
    assert strange == {name for number, name in ALLOWED if number == page}
