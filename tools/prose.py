"""How hard a page of the book is to read: ``python tools/prose.py [PAGE ...]``, without arguments all of them.

One row per page and per deck of slides: words, sentences, words per sentence (mean, 95th percentile), decimals per 100 words, private
phrases per 1,000 words, parentheses that hold another one, parentheses of ``LONG`` words or more. With pages named (``01``,
``glossary``) it also prints the longest sentences, and every private phrase and such parenthesis with its line. A page that holds the
comment ``% prose: held`` is held to ``LIMITS``, with its deck, and the exit status is 1 if it exceeds one; other pages are reported.
More than ``MANY_WORDS`` words is a warning and nothing else.

``PAGE --same [REVISION]`` checks an edit of words alone: the page has the same roles, citations, equations and labels as in that
revision (HEAD, if none is named). It proves no meaning; it finds a number, a source or a formula that was lost or invented.

Running text is paragraphs, lists and captions: no tables, programs or displayed formulas. A formula is one word; ``{measured}`` and
``{quoted}`` count as what they print. Phrases are counted in every sense; the old names that an entry of the glossary gives after "Also"
are left out.
"""

import argparse
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
BOOK = ROOT / "book"
sys.path.insert(0, str(BOOK / "_ext"))

from measured import told  # noqa: E402

HELD = "% prose: held"
LIMITS = {"decimals": 1.5, "p95": 36, "private": 3.0, "nested": 0, "long": 0}
LONG = 15  # words of a parenthesis
MANY_WORDS = 5500
SHOWN = 15  # sentences of a page that is asked for

#: Words of this book for which the field, or plain English, has another one.
PRIVATE = """
(?:gold|truth)\\b(?! (?:reward|standard|label|model|score)) | \\bworth\\b | \\bliking | \\bleans?\\b(?! on) | \\bthinks? aloud | \\bearn
who(?:ever|soever)\\b | (?:some|no)body\\b | repl(?:y|ies)\\b | courses?\\b | dead group | \\bschool(?:ed|ing) | \\bforeto?l[dl] | \\bforesee | \\bshall\\b
mends?\\b | mend(?:ed|ing) | likel(?:ier|iest) | (?:told|tell .{1,20}) (?:apart|from) | cannot be told | (?<!nat )(?<!nats )apart\\b(?! from)
allow\\w* for (?:the|their|all|these)\\b | number (?:is |are )?allowed for | would have been (?:found|seen) | does? not (?:yet )?(?:say|tell|show)\\b
by seed\\b | as far as .{1,20} (?:seeds|tell) | how (?:good|much|far|large|many|long) [^?.,;:]{3,60}(?:, (?:is|are|was)| depends)
(?:that|those) of\\b | the (?:former|latter) | nor (?:do|does|is|are|was|did|has|have|can)\\b | but (?:for|as)\\b | nothing but\\b | all but\\b
besides\\b | namely\\b | hence\\b | (?:there|where)(?:by|of|in)\\b | upon\\b | dear(?:er)?\\b | ill\\b | nought\\b | amidst\\b | whilst\\b | ere\\b | albeit\\b
one (?:sees|reads|asks|has|can|may|must|wants|looks|maximises|would|sometimes|pays|knows|learns|needs|gets|takes|should|might|does|is left) | one's\\b
(?:is|was|be|are) (?:said|told|had|asked|held|seen|found) (?:by|of|that|to|in|at|with) | (?:can|to) be had\\b | is had\\b | has it\\b | have it that
comes? (?:to rest|of|off|out)\\b | goes along with | makes? up for | finds? back | sells | charges?\\b | (?:turn|turns|turned) round | pushe?[ds]? | push\\b
(?:go|goes|going|went) on (?:from|without) | a (?:tenth|twelfth|twentieth|fiftieth|hundredth|thousandth)\\b | two (?:thirds|fifths) of
a (?:third|fourth|fifth|sixth|seventh|eighth|ninth)(?= (?:of|less|more|in|here|each|the|leaves|or|and|if|as)\\b|[.,;:?]|$) | share of\\b | in proportion\\b(?! to)
(?:taken?|takes) off\\b | held back | behind (?:it|the|a|an|its|their|which|that|one|every|as many)\\b | manners\\b | slips?\\b | so much | as many
stands? (?:in|at|before|behind|there|here|for|beside|next|between|below|above|elsewhere)\\b | at all\\b | (?:of|by) (?:itself|themselves)\\b | of its own\\b | the own\\b
in vain\\b | far(?:e|es|ed) (?:better|worse|as|no)\\b | reckon | grant(?:s|ed)?\\b | forbid | sounds\\b | the more so\\b | give or take | words only\\b | in the end\\b
the (?:price|toll) of\\b | (?<!condorcet )winners?\\b(?!'s curse) | plant(?:s|ed)?\\b | follow(?:s|ed)? it\\b | table (?:that|learns|can|takes)\\b | says? nothing\\b
we have not (?:looked|found out|run|tested|tried|measured|separated)\\b | end(?:s|ed)? (?:up )?(?:where|below|near) (?:it|they)\\b | on an? average\\b | on such\\b
leaves? (?:it|them|the \\w+) (?:alone|be)\\b | brings? along | a say in\\b | is (?:its|their|the|an?) (?:\\w+ )?(?:affair|business|doing)\\b | got hold of | (?-i:^Who)(?= [^?]+[.;])
"""
PHRASES = re.compile("|".join(rf"(?:\b{p.strip()})" for line in PRIVATE.split("\n") for p in line.split(" | ") if p.strip()), re.I)  # fmt: skip
ROLE = re.compile(r"\{([\w:]+)\}`([^`]*)`")
CAPTIONS = {"predict", "nbfigure", "figure", "touch", "note", "tip", "warning", "important", "glossary"}


def shown(role: re.Match[str]) -> str:
    """What a role prints, as far as it matters here."""
    name, text = role.groups()
    known = {"quoted": text.partition(" ")[2], "term": text.partition("<")[0].strip(), "cite:p": ""}
    return told(text) if name == "measured" else known.get(name, "reference")


def paragraphs(markdown: str) -> Iterator[tuple[int, str]]:
    """The paragraphs, items and captions of running text, each with the number of its first line."""
    inside: list[tuple[str, bool]] = []  # open fences, and whether their content is prose
    lines: list[str] = []
    formula, start = False, 0
    for number, line in enumerate([*markdown.splitlines(), ""], 1):
        bare = line.strip()
        fence = re.match(r"(`{3,}|:{3,})(?:\{([\w-]+)\})?", bare)
        skipped = formula or any(not prose for _, prose in inside)
        dollars = bare.count("$$")
        starts = re.match(r"(?:[*-]|\d+\.) ", bare)
        ends = fence or dollars or not bare or starts or bare[:1] in "|%#" or re.match(r":[\w-]+:|\([\w-]+\)=$", bare)
        if lines and ends:
            yield start, " ".join(lines)
            lines = []
        if dollars and not any(not prose for _, prose in inside):
            formula = formula != (dollars % 2 == 1)
        elif fence and not formula:
            if inside and bare == inside[-1][0]:
                inside.pop()
            else:
                inside.append((fence[1], fence[2] in CAPTIONS))
        elif not skipped and (not ends or starts):
            start = start if lines else number
            lines.append(re.sub(r"^(?:[*-]|\d+\.) ", "", bare))


def plain(paragraph: str) -> str:
    """A paragraph without its marks."""
    text = re.sub(r"\$[^$]+\$|(?<!\})`[^`]+`", "X", ROLE.sub(shown, paragraph))
    return " ".join(re.sub(r"[*_]{1,3}|!?\[(?=[^\]]*\]\()|\]\([^)]*\)", "", text).split())


def sentences(text: str) -> list[str]:
    """A plain paragraph, cut into sentences."""
    return re.split(r"(?<=[.?!])[\"”')]*\s+(?=[\"“'(]?[A-Z0-9])", text)


def parentheses(text: str) -> dict[str, list[str]]:
    """The parentheses of a plain paragraph that hold another one, and the long ones."""
    whole = re.findall(r"\((?:[^()]|\([^()]*\))*\)", text)
    return {"nested": [one for one in whole if "(" in one[1:]], "long": [one for one in whole if length(one) >= LONG]}


def length(sentence: str) -> int:
    """Its words; a number is one."""
    return len(re.findall(r"[\w−.,'’–-]*\w[\w'’.,–-]*", sentence))


def measure(markdown: str) -> tuple[dict[str, float], list[tuple[int, str]]]:
    """The measures of a page, and its sentences with their lines."""
    texts = [(line, plain(text)) for line, text in paragraphs(markdown)]
    said = [(line, one) for line, text in texts for one in sentences(text) if length(one) and not one.startswith("Also ")]  # fmt: skip
    sizes = sorted(length(one) for _, one in said) or [0]
    words = max(1, sum(sizes))
    decimals = sum(len(re.findall(r"(?<![\w.])\d*\.\d+", one)) for _, one in said)
    found = {
        "words": words,
        "sentences": len(said),
        "mean": words / max(1, len(said)),
        "p95": sizes[int(0.95 * (len(sizes) - 1))],
        "decimals": 100 * decimals / words,
        "private": 1000 * sum(len(PHRASES.findall(one)) for _, one in said) / words,
    }
    found.update({kind: sum(len(parentheses(text)[kind]) for _, text in texts) for kind in ("nested", "long")})
    return found, said


def carried(markdown: str) -> Counter[tuple[str, str]]:
    """Everything on a page that an edit of words alone keeps."""
    roles = [(name, re.sub(r".*<(.*)>$", r"\1", text)) for name, text in ROLE.findall(markdown)]
    kept = Counter((name, key.strip()) for name, text in roles for key in (text.split(",") if "cite" in name else [text]))  # fmt: skip
    kept.update(("equation", re.sub(r"\s+", "", one)) for one in re.findall(r"\$\$(.*?)\$\$", markdown, re.S))
    kept.update(
        ("label", one) for one in re.findall(r"^(?:\$\$ ?\(eq:[\w-]+\)|:name: \S+|\([\w-]+\)=)$", markdown, re.M)
    )
    return kept


def same(page: Path, revision: str) -> bool:
    """Whether a page carries what it carried in a revision; what differs is printed."""
    place = f"{revision}:{page.relative_to(ROOT).as_posix()}"
    old = subprocess.run(["git", "show", place], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    before, now = carried(old), carried(page.read_text(encoding="utf-8"))
    for what, gone in (("lost", before - now), ("new", now - before)):
        for (kind, text), count in sorted(gone.items()):
            print(f"{page.stem}: {what} {kind} {text}" + (f" ({count} times)" if count > 1 else ""))
    return before == now


def pages() -> list[Path]:
    """The pages of the book, then the decks."""
    return sorted(BOOK.glob("*.md")) + sorted((BOOK / "slides").glob("*.md"))


def held(page: Path) -> bool:
    """Whether a page is held to the limits; a deck is if its chapter is."""
    chapter = page if page.parent == BOOK else next(BOOK.glob(f"{page.stem}-*.md"))
    return HELD in chapter.read_text(encoding="utf-8")


def main() -> int:
    """Print the table, and what was asked for."""
    cli = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    cli.add_argument("pages", nargs="*", metavar="PAGE", help="number of a chapter or name of a page (default: all)")
    cli.add_argument("--same", nargs="?", const="HEAD", metavar="REVISION", help="compare roles, citations, equations and labels")  # fmt: skip
    args = cli.parse_args()
    known = pages()
    wanted = [page for page in known if not args.pages or any(page.stem == name or page.stem.startswith(f"{name}-") for name in args.pages)]  # fmt: skip
    if not wanted:
        cli.error(f"no page {', '.join(args.pages)}; expected one of {', '.join(page.stem for page in known)}")
    if args.same:
        return int(bool([page for page in wanted if not same(page, args.same)]))
    fine = True
    print(
        f"{'page':36}{'words':>7}{'sentences':>11}{'mean':>7}{'p95':>6}{'decimals':>10}{'private':>9}{'nested':>8}{'long':>6}"
    )
    for page in wanted:
        text = page.read_text(encoding="utf-8")
        found, said = measure(text)
        over = [name for name, most in LIMITS.items() if found[name] > most]
        fine = fine and not (held(page) and over)
        notes = [f"over: {', '.join(over)}"] * bool(over) + ["warning: long"] * (found["words"] > MANY_WORDS)
        name = page.relative_to(BOOK).with_suffix("").as_posix()
        print(f"{name:36}{found['words']:7.0f}{found['sentences']:11.0f}{found['mean']:7.1f}{found['p95']:6.0f}{found['decimals']:10.2f}{found['private']:9.1f}{found['nested']:8}{found['long']:6}  {'held  ' * held(page)}{'; '.join(notes)}")  # fmt: skip
        if args.pages:
            for line, one in sorted(said, key=lambda entry: -length(entry[1]))[:SHOWN]:
                print(f"  {line}: {length(one)} words: {one}")
            for line, one in said:
                for phrase in PHRASES.finditer(one):
                    print(f"  {line}: “{phrase[0]}” in: {one[:110]}")
            for line, one in paragraphs(text):
                for kind, all_of_kind in parentheses(plain(one)).items():
                    print("".join(f"  {line}: {kind} parenthesis: {each}\n" for each in all_of_kind), end="")
    return int(not fine)


if __name__ == "__main__":
    sys.exit(main())
