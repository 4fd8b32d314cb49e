"""Build the book: ``make book``. Site, one page and PDF in ``build/book``; with ``--fast`` the site alone, with ``--page NAME`` one page of it, with ``--epub`` an EPUB too.

MathJax is fetched once, from npm; after that no network is needed. The checks of the book's equations run on a fresh seed
at every build; MINIRLHF_SEED repeats one. Without Chromium there is no PDF, and the build says so.
"""

import argparse
import fcntl
import gc
import os
import re
import runpy
import secrets
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from html import unescape
from pathlib import Path

import epub
from vendored import MATHJAX, vendor

ROOT = Path(__file__).resolve().parents[1]
BOOK = ROOT / "book"

# New ones between two looks for garbage, in place of 700: most of what Sphinx makes stays.
OBJECTS = 100_000
PATIENCE = 1800  # seconds that Chromium may take to print, on a busy machine; nine chapters are a minute of computing
CHROMIUM = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
)


def vendor_mathjax(source: Path) -> None:
    """Put MathJax and its fonts into ``_static/mathjax``, once."""
    vendor(MATHJAX, source / "_static" / "mathjax")


def sphinx(source: Path, out: Path, builder: str, book: Path | None = None, pages: Sequence[str] = ()) -> None:
    """One Sphinx run in this process, so that site, one page and EPUB share what was read and what was checked.

    What was read lies beside ``book``, which is ``out`` unless it is given. With ``pages`` all is read and only these are written.
    """
    from sphinx.builders.html import StandaloneHTMLBuilder
    from sphinx.cmd.build import main as build

    StandaloneHTMLBuilder.search = not pages  # of some pages Sphinx makes none without a warning
    kept = book or out
    doctrees = kept.parent / f"{kept.name}.doctrees"
    arguments = ["-b", builder, "-n", "-W", "--keep-going", "-q", "-d", str(doctrees), str(source), str(out)]
    arguments += [str(source / f"{page}.md") for page in pages]
    if build(arguments) != 0:
        sys.exit(f"book: {builder} has warnings or errors (above); each is one to repair")


def print_pdf(page: Path, pdf: Path) -> None:
    """Print a page with headless Chromium; leave the PDF out if there is none."""
    chromium = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if chromium is None:
        print(f"book: no {pdf.name}, because Chromium is not installed")
        return
    with tempfile.TemporaryDirectory() as profile:
        printing = ("--virtual-time-budget=60000", "--no-pdf-header-footer", "--generate-pdf-document-outline")
        flags = (*CHROMIUM, f"--user-data-dir={profile}", *printing)
        command = [chromium, *flags, f"--print-to-pdf={pdf}", page.as_uri()]
        try:
            subprocess.run(command, check=True, capture_output=True, timeout=PATIENCE)
        except subprocess.TimeoutExpired:
            sys.exit(f"book: Chromium has not printed {pdf.name} after {PATIENCE} s")


def warn_of_missing_letters() -> None:
    """Say so where no font has Chinese letters: the glossary's second column would be printed as empty boxes."""
    if shutil.which("fc-list") is None:
        return
    if not subprocess.run(["fc-list", ":lang=zh"], capture_output=True, text=True).stdout.strip():
        print(
            "book: no font here has Chinese letters, so the PDF shows boxes for them; install one, such as fonts-wqy-microhei"
        )


def sheets(pdf: Path) -> dict[str, int]:
    """The sheet of each anchor that a link of the PDF leads to; nothing where pdfinfo is not installed."""
    if not pdf.is_file() or shutil.which("pdfinfo") is None:
        return {}
    done = subprocess.run(["pdfinfo", "-dests", str(pdf)], check=True, capture_output=True, text=True)
    return {name: int(number) for number, name in re.findall(r'^ *(\d+) \[.*\] "(.*)"$', done.stdout, re.MULTILINE)}


def print_book(page: Path, pdf: Path) -> None:
    """Print the one page twice: the second time with page numbers in the contents, which only the first print tells."""
    warn_of_missing_letters()
    print_pdf(page, pdf)
    at, html = sheets(pdf), page.read_text(encoding="utf-8")
    if not at:
        print(f"book: no page numbers in the contents of {pdf.name}, because Chromium or pdfinfo is not installed")
        return
    sheet = re.compile(r'(<span class="sheet" data-of="([^"]+)">)\d*')
    page.write_text(sheet.sub(lambda m: f"{m[1]}{at.get(unescape(m[2]), '')}", html), encoding="utf-8")
    print_pdf(page, pdf)


def put_slides(source: Path, out: Path) -> None:
    """The decks in ``slides`` beside the site, to which the chapters link."""
    from slides import Refused, decks  # it imports this module

    try:
        decks(source / "slides", out / "slides", "../_static/mathjax")
    except Refused as problem:
        sys.exit(f"book: {problem}")


def make_epub(source: Path, out: Path) -> None:
    """``minirlhf.epub`` beside the site: Sphinx's builder, then what a reading device asks for."""
    folder = out.parent / f"{out.name}.epub"
    shutil.rmtree(folder, ignore_errors=True)
    sphinx(source, folder, "epub", out)
    config = runpy.run_path(str(source / "conf.py"))["mathjax3_config"]
    try:
        epub.finish(folder, out / "minirlhf.epub", source / "_static" / "mathjax" / "tex-chtml-full.js", config)
    except epub.Failed as problem:
        sys.exit(f"book: {problem}")


def main() -> None:
    """Parse the arguments and build."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--fast", action="store_true", help="the site only, without the one page and the PDF")
    parser.add_argument(
        "--epub", action="store_true", help="also the book as EPUB, which needs Chromium for its formulas"
    )
    parser.add_argument(
        "--page",
        metavar="NAME",
        action="append",
        default=[],
        help="read all, write only this page and those that list it; may be repeated; implies --fast",
    )
    parser.add_argument("--source", type=Path, default=BOOK, help="folder with conf.py")
    parser.add_argument("--out", type=Path, default=ROOT / "build" / "book", help="where the site goes")
    args = parser.parse_args()
    start, out = time.perf_counter(), args.out.resolve()
    os.environ.setdefault("MINIRLHF_SEED", str(secrets.randbelow(2**31)))
    source = args.source.resolve()
    out.parent.mkdir(parents=True, exist_ok=True)
    lock = (out.parent / f"{out.name}.lock").open("w")
    fcntl.flock(lock, fcntl.LOCK_EX)  # a second build of the same book waits
    vendor_mathjax(source)
    gc.set_threshold(OBJECTS)
    sphinx(source, out, "html", pages=args.page)
    put_slides(source, out)
    if not args.fast and not args.page:
        sphinx(source, out, "singlehtml")
        print_book(out / "one-page.html", out / "minirlhf.pdf")
    elif (out / "minirlhf.pdf").is_file():
        print("book: one-page.html and minirlhf.pdf were left as an earlier build made them")
    if args.epub:
        make_epub(source, out)
    elif (out / "minirlhf.epub").is_file():
        print("book: minirlhf.epub was left as an earlier build made it")
    print(f"book: {out / 'index.html'}, {time.perf_counter() - start:.0f} s, seed {os.environ['MINIRLHF_SEED']}")


if __name__ == "__main__":
    main()
