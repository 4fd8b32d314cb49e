"""The bibliography: every entry is whole and cited, every key says who and when, and no work stands there twice."""

import collections
import importlib
import re
import unicodedata
from pathlib import Path

import pytest
from pybtex.database import parse_file

ROOT = Path(__file__).resolve().parents[1]
ENTRY = re.compile(r"^@(\w+)\{([^,]+),\n(.*?)^\}", re.M | re.S)
FIELD = re.compile(r"^\s*(\w+)\s*=\s*\{(.*)\},?$", re.M)
TEXT = (ROOT / "book" / "references.bib").read_text(encoding="utf-8")
ENTRIES = {key: {name.lower(): value for name, value in FIELD.findall(body)} for _, key, body in ENTRY.findall(TEXT)}
CITED = re.compile(r"\{cite(?::\w+)?\}`([^`]+)`")


def plain(text):
    """Letters only, without accents and TeX."""
    bare = unicodedata.normalize("NFKD", re.sub(r"\\[a-zA-Z]+(?=[{\s])|[{}\\\"'`~^]", "", text))
    return re.sub("[^a-z]", "", bare.encode("ascii", "ignore").decode().lower())


def faults(key, entry):
    """What is wrong with one."""
    found = [f"no {name}" for name in ("author", "title", "year") if not entry.get(name)]
    author, year = re.split(r",| and ", entry.get("author", ""))[0], entry.get("year", "0")
    surnames = plain(author), plain(author.split()[-1] if author.split() else "")  # van den Oord is oord as well
    form = re.fullmatch(r"([a-z]+)(\d{4})([a-z0-9]+)", key)
    if not form:
        return [*found, "the key has not the form firstauthorYEARword"]
    if not any(name.startswith(form[1]) for name in surnames):
        found.append(f"the key says {form[1]}, the first author is {surnames[0]}")
    if abs(int(form[2]) - int(year)) > 1:  # a preprint comes out before its proceedings
        found.append(f"the key says {form[2]}, the entry {year}")
    eprint = entry.get("eprint")
    if eprint is not None:
        number = re.fullmatch(r"(\d{2})(0[1-9]|1[0-2])\.(\d{4,5})", eprint)
        if not number or len(number[3]) != (5 if int(number[1]) >= 15 else 4):
            found.append(f"{eprint} is no number of arXiv")
        elif 2000 + int(number[1]) > int(year):
            found.append(f"{eprint} is later than {year}")
        if entry.get("archiveprefix") != "arXiv":
            found.append("an eprint without archivePrefix")
    if "doi" in entry and not re.fullmatch(r"10\.\d{4,9}/\S+", entry["doi"]):
        found.append(f"{entry['doi']} is no DOI")
    places = ("booktitle", "publisher", "school", "institution", "howpublished", "url", "isbn")
    told = any(entry.get(name) for name in (*places, "doi", "eprint"))
    if not told and not all(entry.get(name) for name in ("journal", "volume")):
        found.append("neither an identifier nor where it appeared")
    return found


def test_bibliography_entries_are_read_and_have_no_faults():
    assert len(ENTRIES) == len(re.findall(r"^@", TEXT, re.M)) > 300
    assert {key: found for key, entry in ENTRIES.items() if (found := faults(key, entry))} == {}


def test_bibliography_keys_equal_citations():
    pages = [*(ROOT / "book").rglob("*.md"), *(ROOT / "notebooks").glob("*.py"), *ROOT.glob("minirlhf*/**/*.toml")]
    cited = {
        key.strip()
        for page in pages
        for keys in CITED.findall(page.read_text(encoding="utf-8"))
        for key in keys.split(",")
    }
    assert (cited - ENTRIES.keys(), ENTRIES.keys() - cited) == (set(), set())


def test_bibliography_has_no_duplicates():
    for name in ("doi", "eprint", "title"):
        seen = collections.Counter(
            re.sub(r"\W", "", entry[name].lower()) for entry in ENTRIES.values() if name in entry
        )
        assert [value for value, count in seen.items() if count > 1] == []


@pytest.mark.parametrize(
    ("key", "change", "says"),
    [
        ("kaelbling1996reinforcement", {}, "first author is doe"),
        ("doe2021word", {}, "the entry 2024"),
        ("Doe:2024", {}, "form firstauthorYEARword"),
        ("doe2024word", {"eprint": "2413.12345", "archiveprefix": "arXiv"}, "no number of arXiv"),
        ("doe2024word", {"eprint": "2501.12345", "archiveprefix": "arXiv"}, "later than 2024"),
        ("doe2024word", {"doi": "doi.org/10.1/x"}, "no DOI"),
        ("doe2024word", {"title": ""}, "no title"),
        ("doe2024word", {"volume": ""}, "neither an identifier"),
    ],
)
def test_bibliography_faults_are_found(key, change, says):
    entry = {"author": "Doe, Jane", "title": "A title", "year": "2024", "journal": "A journal", "volume": "1"}
    assert faults("doe2024word", entry) == []
    assert any(says in fault for fault in faults(key, entry | change))


def test_bibliography_names_of_citations_on_page_differ(monkeypatch):
    """Authors and year, and a letter where these are the same."""
    monkeypatch.syspath_prepend(str(ROOT / "book" / "_ext"))
    citations = importlib.import_module("citations")
    entries = dict(parse_file(ROOT / "book" / "references.bib").entries.items())
    pages = {path.name: path.read_text(encoding="utf-8") for path in (ROOT / "book").glob("*.md")}
    letters = citations.letters(entries, pages.values())
    assert letters["liu2025tricks"] != letters["liu2025understanding"] and "ouyang2022training" not in letters
    for name, text in pages.items():
        cited = {key.strip() for keys in CITED.findall(text) for key in keys.split(",")} & entries.keys()
        names = collections.Counter((*citations.called(entries[key]), letters.get(key, "")) for key in cited)
        assert [one for one, times in names.items() if times > 1] == [], name
