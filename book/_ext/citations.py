"""Papers of the same people and year that one page cites are told apart by a letter behind the year: "Liu et al., 2025a"."""

import re
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from pybtex.database import Entry
from pybtex.plugin import find_plugin, register_plugin
from sphinx.application import Sphinx

CITED = re.compile(r"\{cite:\w+\}`([^`]+)`")


def called(entry: Entry) -> tuple[str, str]:
    """Authors and year as a text gives them."""
    names = [" ".join(person.last_names) for person in entry.persons.get("author", [])]
    authors = " and ".join(names) if len(names) < 3 else f"{names[0]} et al."
    return authors, re.sub(r"[a-z]$", "", entry.fields.get("year", ""))


def letters(entries: dict[str, Entry], pages: Iterable[str]) -> dict[str, str]:
    """The letter of each paper that shares a page with one of the same name, by its key: in the order of the keys, the same on every page."""
    alike = defaultdict(list)
    for key, entry in sorted(entries.items()):
        alike[called(entry)].append(key)
    cited = [{key.strip() for keys in CITED.findall(text) for key in keys.split(",")} for text in pages]
    meet = {
        key
        for keys in alike.values()
        for page in cited
        if len(page.intersection(keys)) > 1
        for key in page.intersection(keys)
    }
    return {
        key: chr(ord("a") + number)
        for keys in alike.values()
        for number, key in enumerate(key for key in keys if key in meet)
    }


def tell_apart(app: Sphinx) -> None:
    """Before a page is read."""
    entries = app.env.get_domain("cite").bibdata.data.entries  # type: ignore[attr-defined]
    pages = [path.read_text(encoding="utf-8") for path in sorted(Path(app.srcdir).glob("*.md"))]
    for key, letter in letters(entries, pages).items():
        entries[key].fields["year"] = called(entries[key])[1] + letter


def keep_plugin(app: Sphinx) -> None:
    """Look the backend for the citations' titles up once; pybtex would search all installed packages for it at every citation."""
    register_plugin("pybtex.backends", "plaintext", find_plugin("pybtex.backends", "plaintext"), force=True)


def setup(app: Sphinx) -> dict[str, Any]:
    """Listen."""
    app.connect("builder-inited", keep_plugin)
    app.connect("builder-inited", tell_apart)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
