"""Numbers that are typed in a chapter's words, and what vouches for each: ``python tools/typed_numbers.py [--open] [CHAPTER ...]``.

The words are the text and its appendix, their captions, the notebook's alt texts, the hints of the exercises and the slides. What ``{measured}`` and ``{quoted}`` print
is not typed. A typed number is vouched for if

* its sentence cites a paper (``cited``),
* it is a setting of the chapter's studies, or stands in their code, the lab or the notebook's code and is no digit by itself (``setting``),
* likewise, in a check or a test of the chapter (``check``),
* the executed notebook has printed it (``output``), three digits of it: with two, some number would fit by chance,
* or it is allowed, with the reason, in ``book/typed_numbers.toml`` (``allowed``).

Everything else is ``open``, and the file says how many there are of each kind in each chapter: a number that may fall and not rise.
Years and whole numbers up to ten are left out, but not counts of runs ("four of five seeds"). In formulas of a line only numbers
of three digits count; a formula by itself is the ledger's.
"""

from __future__ import annotations

import argparse
import ast
import json
import re
import tomllib
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
LIST = ROOT / "book" / "typed_numbers.toml"
PLACES = ("text", "caption", "alt", "hint", "slide")
VOUCHERS = ("cited", "setting", "check", "output", "allowed", "open")

#: Directives whose body is prose; of others nothing is read.
CAPTIONS = {"nbfigure", "figure"}
PROSE = {"note", "tip", "warning", "important", "admonition", "dropdown", "seealso", "hint", "predict"}
NUMBER = re.compile(r"(?<![\w.])(?:(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d+)?|\.\d+)(?:e[-−]?\d+)?(?![\w])")
WORDS = "none|one|two|three|four|five|six|seven|eight|nine|ten|eleven|twelve|all|\\d+"
COUNT = re.compile(
    rf"\b(?:{WORDS})(?: to (?:{WORDS}))? of (?:the )?(?:{WORDS}|twenty)\s+(?:seeds|runs|draws|studies)\b", re.I
)
#: Words before a number that is a name or a place.
NAMES = re.compile(
    r"(?:\w[-–]|\b(?:TRL|Llama|GPT|Gemma|Qwen|Claude|Phi|OLMo|Tülu|section|table|figure|page|pages|chapter|appendix|seed|exercise) )$",
    re.I,
)
CITED, RUN = "⟦cited⟧", "⟦run⟧"


@dataclass(frozen=True)
class Typed:
    """A number or count that somebody has typed.

    Attributes:
        said: as it stands there.
        place: one of :data:`PLACES`.
        sentence: in which it stands.
    """

    said: str
    place: str
    sentence: str

    @property
    def values(self) -> set[float]:
        """What it may stand for: "8 %" is .08 as well. Empty for a count in words."""
        if not NUMBER.fullmatch(self.said.removesuffix("%").strip()):
            return set()
        value = float(self.said.removesuffix("%").replace(",", "").replace("−", "-"))
        return {value, value / 100} if self.said.endswith("%") else {value}

    @property
    def is_particular(self) -> bool:
        """Not one of those that stand everywhere, like .5 and 2."""
        return self.digits >= 2 or any(value > 10 for value in self.values)

    @property
    def digits(self) -> int:
        """Significant digits."""
        return len(re.sub(r"e.*|\D", "", self.said).strip("0")) or 1


# -- reading -----------------------------------------------------------------------------------------------------


def blocks(markdown: str) -> Iterator[tuple[str, str]]:
    """``(place, paragraph)`` of a page's prose and captions."""
    fences: list[tuple[int, str]] = []  # how many backticks, and what is read inside: a place, or nothing
    lines: list[str] = []
    markdown = re.sub(r"\A---\n.*?\n---\n", "", markdown, flags=re.DOTALL)
    markdown = re.sub(r"<!--.*?-->|\$\$.*?\$\$(?: ?\([\w:-]+\))?", "", markdown, flags=re.DOTALL)
    for line in [*markdown.splitlines(), ""]:
        here = fences[-1][1] if fences else "text"
        fence = re.match(r"\s*(`{3,}|:{3,})(\{([\w:-]+)\})?(.*)", line)
        item = re.match(r"\s*(?:[*+-]|\d+\.|\|) ?", line)
        if (fence or item or not line.strip()) and lines:
            yield (fences[-1][1] if fences else "text"), " ".join(lines)
            lines = []
        if fence:
            size, name = len(fence[1]), fence[3]
            if fences and size >= fences[-1][0] and not name and not fence[4].strip():
                fences.pop()
            else:
                inside = (
                    "caption" if name in CAPTIONS else here if name in PROSE or (name or "").startswith("prf:") else ""
                )
                fences.append((size, inside if here else ""))
        elif here and line.strip() and not re.match(r"\s*:[\w-]+:", line):
            lines.append(line[item.end() :] if item else line)


def plain(paragraph: str) -> str:
    """Without what is printed, code, links' targets and short numbers of formulas."""
    text = re.sub(r"\{(cite:?\w*)\}`[^`]*`", CITED, paragraph)
    text = re.sub(r"\{(measured|quoted)\}`[^`]*`", RUN, text)
    text = re.sub(r"\{[\w:-]+\}`[^`]*`|`+[^`]*`+|https?://\S+", " ", text)
    text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", text)
    return re.sub(r"\$([^$]*)\$", _of_formula, text)


def _of_formula(match: re.Match[str]) -> str:
    """A formula that is a number, or the numbers of three digits in another."""
    formula = match[1].strip().lstrip("+-−").replace("\\%", "%")
    if NUMBER.fullmatch(formula.removesuffix("%").strip()):
        return formula
    return " ".join(f" {x} " for x in NUMBER.findall(formula) if Typed(x, "text", "").digits >= 3)


def typed(text: str, place: str) -> Iterator[Typed]:
    """The numbers of a paragraph."""
    for sentence in re.split(r"(?<=[.!?;])\s+(?=[\"*(⟦]?[A-Z⟦])", plain(text)):
        counts = [m.span() for m in COUNT.finditer(sentence)]
        yield from (Typed(sentence[a:b], place, sentence) for a, b in counts)
        for match in NUMBER.finditer(sentence):
            percent = re.match(r"\s?(?:%|per cent|percent)", sentence[match.end() :])
            said = match[0] + (" %" if percent else "")
            whole = match[0].isdigit() and not percent
            if (whole and (int(match[0]) <= 10 or 1900 <= int(match[0]) < 2100)) or NAMES.search(
                sentence[: match.start()]
            ):
                continue
            if not any(a <= match.start() < b for a, b in counts):
                yield Typed(said, place, sentence)


def hints(source: str) -> Iterator[str]:
    """The hints of an exercise."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.keyword) and node.arg == "hints":
            yield from (
                part.value
                for part in ast.walk(node.value)
                if isinstance(part, ast.Constant) and isinstance(part.value, str)
            )


def pages(number: str, root: Path = ROOT) -> list[Path]:
    """A chapter's page, and the appendix that belongs to it."""
    source = ast.parse((ROOT / "book" / "_ext" / "numbering.py").read_text(encoding="utf-8"))
    [appendices] = [
        ast.literal_eval(node.value)
        for node in source.body
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "APPENDICES"
    ]
    named = [root / "book" / f"{page}.md" for page, (_, chapter) in appendices.items() if chapter == int(number)]
    return [*sorted((root / "book").glob(f"{number}-*.md")), *(page for page in named if page.is_file())]


def of_chapter(number: str, root: Path = ROOT) -> list[Typed]:
    """Every typed number of a chapter's words."""
    found: list[Typed] = []
    for page in pages(number, root):
        for place, paragraph in blocks(page.read_text(encoding="utf-8")):
            found += typed(paragraph, place)
    for notebook in sorted((root / "notebooks").glob(f"{number}_*.py")):
        for alt in re.findall(r"^# alt: (.*(?:\n#   .*)*)", notebook.read_text(encoding="utf-8"), flags=re.MULTILINE):
            found += typed(alt.replace("\n#  ", " "), "alt")
    for deck in sorted((root / "book" / "slides").glob(f"{number}.md")):
        for _, paragraph in blocks(deck.read_text(encoding="utf-8")):
            found += typed(paragraph, "slide")
    for exercise in sorted((root / "exercises").glob(f"{number}_*/ex_*.py")):
        for hint in hints(exercise.read_text(encoding="utf-8")):
            found += typed(hint, "hint")
    return found


# -- what vouches ------------------------------------------------------------------------------------------------


def literals(paths: Iterable[Path]) -> set[float]:
    """The numbers that stand in some sources."""
    nodes = (node for path in paths for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))))
    return {
        float(node.value)
        for node in nodes
        if isinstance(node, ast.Constant) and isinstance(node.value, int | float) and not isinstance(node.value, bool)
    }


class Vouchers:
    """What is known of the numbers of a chapter."""

    def __init__(self, number: str, root: Path = ROOT) -> None:
        [folder] = (root / "minirlhf_course" / "chapters").glob(f"ch{number}_*")
        checks = [*folder.glob("checks*.py"), *(root / "tests").glob(f"test_ch{number}_*.py")]
        notebooks = sorted((root / "notebooks").glob(f"{number}_*.py"))
        self.code = literals([*(path for path in folder.glob("*.py") if path not in checks), *notebooks])
        self.settings: set[float] = set()
        for result in folder.glob("study*.json"):
            study = json.loads(result.read_text(encoding="utf-8"))
            self.settings |= {
                float(x) for key, x in study["probe"].items() if ": " in key and isinstance(x, int | float)
            }
            self.settings.add(float(len(study["seeds"])))
        self.checks = literals(checks)
        printed = " ".join(outputs(path.with_suffix(".ipynb")) for path in notebooks)
        self.printed = {float(x.replace(",", "").replace("−", "-")) for x in NUMBER.findall(printed)}
        allowed = tomllib.loads((root / "book" / "typed_numbers.toml").read_text(encoding="utf-8")).get("allowed", [])
        self.allowed = [one["text"] for one in allowed if one["chapter"] == number]

    def of(self, number: Typed) -> str:
        """Which of :data:`VOUCHERS` a number has."""
        if CITED in number.sentence:
            return "cited"
        if number.values & self.settings or (number.is_particular and number.values & self.code):
            return "setting"
        if number.is_particular and number.values & self.checks:
            return "check"
        if number.digits >= 3 and number.values & self.printed:
            return "output"
        if any(text in number.sentence and number.said in text for text in self.allowed):
            return "allowed"
        return "open"


def outputs(notebook: Path) -> str:
    """What the cells of an executed notebook have printed."""
    cells = json.loads(notebook.read_text(encoding="utf-8"))["cells"]
    said = [out for cell in cells for out in cell.get("outputs", [])]
    texts = [out.get("text") or out.get("data", {}).get("text/plain") or "" for out in said]
    return "\n".join("".join(text) for text in texts)


def chapters(root: Path = ROOT) -> list[str]:
    """Those that have a page."""
    return sorted(path.name[:2] for path in (root / "book").glob("[0-9][0-9]-*.md"))


def table(number: str, root: Path = ROOT) -> Counter[tuple[str, str]]:
    """``(place, voucher)`` -> how many."""
    vouchers = Vouchers(number, root)
    return Counter((one.place, vouchers.of(one)) for one in of_chapter(number, root))


def over(number: str, root: Path = ROOT) -> dict[str, tuple[int, int]]:
    """``{place: (open, listed)}`` where more numbers of a chapter are open than ``book/typed_numbers.toml`` lists."""
    listed = tomllib.loads((root / "book" / "typed_numbers.toml").read_text(encoding="utf-8"))
    most = listed["open"][number] | {"slide": listed["slides"][number]}
    counts = table(number, root)
    return {place: (n, most[place]) for place in PLACES if (n := counts[place, "open"]) > most[place]}


def main() -> None:
    """Print the table, or what is open."""
    parser = argparse.ArgumentParser(description="Typed numbers in the chapters' words, and what vouches for them.")
    parser.add_argument("chapters", nargs="*", default=chapters(), metavar="CHAPTER", help="like 05; all by default")
    parser.add_argument(
        "--open", action="store_true", help="print each number that nothing vouches for, and its sentence"
    )
    args = parser.parse_args()
    print(f"{'':10} typed " + " ".join(f"{name:>8}" for name in VOUCHERS) + "   open in " + ", ".join(PLACES))
    for number in args.chapters:
        counts = table(number)
        by_voucher = [sum(n for (_, voucher), n in counts.items() if voucher == name) for name in VOUCHERS]
        left = ", ".join(str(counts[place, "open"]) for place in PLACES)
        print(f"chapter {number} {counts.total():5} " + " ".join(f"{n:8}" for n in by_voucher) + f"   {left}")
        if args.open:
            vouchers = Vouchers(number)
            for one in of_chapter(number):
                if vouchers.of(one) == "open":
                    print(f"    {one.place:8} {one.said:12} {one.sentence.strip()[:150]}")


if __name__ == "__main__":
    main()
