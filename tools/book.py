"""Build the book: ``make book``. Site, one page and PDF in ``build/book``; with ``--fast`` the site alone.

MathJax is fetched once, from npm; after that no network is needed. The checks of the book's equations run on a fresh seed
at every build; MINIRLHF_SEED repeats one. Without Chromium there is no PDF, and the build says so.
"""

import argparse
import base64
import fcntl
import hashlib
import io
import os
import secrets
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
import urllib.request
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
BOOK = ROOT / "book"

MATHJAX = "mathjax-3.2.2.tgz"
MATHJAX_SHA512 = "Bt+SSVU8eBG27zChVewOicYs7Xsdt40qm4+UpHyX7k0/O9NliPc+x77k1/FEsPsjKPZGJvtRZM1vO+geW0OhGw=="
MATHJAX_FILES = ("package/es5/tex-chtml-full.js", "package/es5/output/chtml/fonts/woff-v2/", "package/LICENSE")

PATIENCE = 1800  # seconds that Chromium may take to print, on a busy machine; nine chapters are a minute of computing
CHROMIUM = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
)


def fetch_mathjax() -> bytes:
    """The package as npm serves it, through npm if it is there (it knows a mirror), otherwise from the registry."""
    if shutil.which("npm"):
        with tempfile.TemporaryDirectory() as folder:
            name, version = MATHJAX.removesuffix(".tgz").split("-")
            command = ["npm", "pack", "--silent", f"{name}@{version}"]
            subprocess.run(command, cwd=folder, check=True, stdout=subprocess.DEVNULL)
            return (Path(folder) / MATHJAX).read_bytes()
    with urllib.request.urlopen(f"https://registry.npmjs.org/mathjax/-/{MATHJAX}") as response:
        return response.read()


def vendor_mathjax(source: Path) -> None:
    """Put MathJax and its fonts into ``_static/mathjax``, once."""
    target = source / "_static" / "mathjax"
    if (target / "LICENSE").is_file():
        return
    package = fetch_mathjax()
    if base64.b64encode(hashlib.sha512(package).digest()).decode() != MATHJAX_SHA512:
        sys.exit(f"book: {MATHJAX} is not the file that was pinned; nothing was installed")
    with tarfile.open(fileobj=io.BytesIO(package)) as archive:
        for member in archive:
            if member.isfile() and member.name.startswith(MATHJAX_FILES):
                path = target / member.name.removeprefix("package/").removeprefix("es5/")
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(archive.extractfile(member).read())  # LICENSE is written last: it is in no folder


def sphinx(source: Path, out: Path, builder: str) -> None:
    """One Sphinx run in this process, so that the site and the one page share what was read and what was checked."""
    from sphinx.cmd.build import main as build

    doctrees = out.parent / f"{out.name}.doctrees"
    arguments = ["-b", builder, "-n", "-W", "--keep-going", "-q", "-d", str(doctrees), str(source), str(out)]
    if build(arguments) != 0:
        sys.exit(f"book: {builder} has warnings or errors (above); each is one to repair")


def print_pdf(page: Path, pdf: Path) -> None:
    """Print a page with headless Chromium; leave the PDF out if there is none."""
    chromium = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if chromium is None:
        print(f"book: no {pdf.name}, because Chromium is not installed")
        return
    with tempfile.TemporaryDirectory() as profile:
        flags = (*CHROMIUM, f"--user-data-dir={profile}", "--virtual-time-budget=60000", "--no-pdf-header-footer")
        command = [chromium, *flags, f"--print-to-pdf={pdf}", page.as_uri()]
        try:
            subprocess.run(command, check=True, capture_output=True, timeout=PATIENCE)
        except subprocess.TimeoutExpired:
            sys.exit(f"book: Chromium has not printed {pdf.name} after {PATIENCE} s")


def main() -> None:
    """Parse the arguments and build."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--fast", action="store_true", help="the site only, without the one page and the PDF")
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
    sphinx(source, out, "html")
    if not args.fast:
        sphinx(source, out, "singlehtml")
        print_pdf(out / "one-page.html", out / "minirlhf.pdf")
    print(f"book: {out / 'index.html'}, {time.perf_counter() - start:.0f} s, seed {os.environ['MINIRLHF_SEED']}")


if __name__ == "__main__":
    main()
