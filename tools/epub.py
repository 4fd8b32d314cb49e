"""The book as EPUB: what Sphinx's builder wrote, with formulas as MathML and without scripts: ``tools/book.py --epub``.

A reading device runs no script. So MathJax turns every formula into MathML once, here, in a Chromium without a window, and what
only a script can use (sliders, forms, copy buttons) is taken out; the figures that can be touched stay as pictures.
"""

import html
import json
import posixpath
import re
import shutil
import subprocess
import tempfile
import zipfile
from pathlib import Path
from xml.etree import ElementTree

MATH = re.compile(r'<(span|div) class="math notranslate nohighlight"([^>]*)>(.*?)</\1>', re.S)
TEX = re.compile(r"\\\((.*)\\\)|\\\[(.*)\\\]", re.S)
CONVERT = """<!doctype html><meta charset="utf-8"><script>MathJax = {config}; MathJax.startup = {{typeset: false}};</script>
<script src="{mathjax}"></script><script type="application/json" id="asked">{asked}</script><pre id="told"></pre><script>
MathJax.startup.promise.then(() => {{
  const asked = JSON.parse(document.getElementById("asked").textContent);
  document.getElementById("told").textContent = JSON.stringify(asked.map(([tex, display]) => MathJax.tex2mml(tex, {{display}})));
}});
</script>"""
# What only a script brings to life; innermost first.
SCRIPTED = [
    re.compile(rf"<({tag})\b[^>]*>.*?</\1>", re.S)
    for tag in ("script", "noscript", "button", "select", "output", "label", "form")
]
INPUT = re.compile(r"<input\b[^>]*>")
TAG = re.compile(r"<([a-z]+)\b((?:[^<>\"']|\"[^\"]*\"|'[^']*')*)>")
ATTRIBUTE = re.compile(r"""([^\s=/>"']+)(\s*=\s*(?:"[^"]*"|'[^']*'|[^\s>"']+))?""")
EMPTY = {"br", "hr", "img", "meta", "link", "wbr", "col", "source"}
ENTITY = re.compile(r"&(?!amp;|lt;|gt;|quot;|#)([A-Za-z]+;)?")


class Failed(Exception):
    """The EPUB cannot be finished, and why."""


def mathml(formulas: list[tuple[str, bool]], chromium: str, mathjax: Path, config: dict) -> list[str]:
    """Formulas in TeX, each with whether it stands in a line of its own, as MathML.

    Raises:
        Failed: Chromium says nothing, or a formula has an error in it.
    """
    asked = json.dumps(formulas).replace("<", r"\u003c")
    with tempfile.TemporaryDirectory() as folder:
        page = Path(folder) / "formulas.html"
        page.write_text(CONVERT.format(config=json.dumps(config), mathjax=mathjax.as_uri(), asked=asked), "utf-8")
        flags = ("--headless", "--no-sandbox", "--disable-gpu", "--allow-file-access-from-files")
        command = [chromium, *flags, f"--user-data-dir={folder}/profile", "--virtual-time-budget=600000", "--dump-dom"]
        done = subprocess.run([*command, page.as_uri()], capture_output=True, text=True, timeout=1800)
    told = re.search(r'<pre id="told">(.+?)</pre>', done.stdout, re.S)
    if told is None:
        raise Failed("Chromium has turned no formula into MathML")
    found = json.loads(html.unescape(told[1]))
    wrong = [tex for (tex, _), one in zip(formulas, found, strict=True) if "<merror" in one]
    if wrong:
        raise Failed(f"not a formula that MathJax can read: {wrong[0]}")
    return [re.sub(r">\s+<", "><", re.sub(r' data-mjx-[a-z-]+="[^"]*"', "", one)) for one in found]


def tex_of(inside: str) -> tuple[str, bool] | None:
    """The formula of a math element of Sphinx's, and whether it stands in a line of its own."""
    found = TEX.search(html.unescape(inside))
    return found and ((found[1], False) if found[1] is not None else (found[2], True))


def with_mathml(text: str, known: dict[tuple[str, bool], str]) -> str:
    """A page whose formulas are MathML; the number of an equation stays where it was."""

    def one(match: re.Match[str]) -> str:
        tag, attributes, inside = match.groups()
        tex = tex_of(inside)
        number = re.search(r'<span class="eqno">.*?</span>', inside, re.S)
        return f'<{tag} class="math"{attributes}>{number[0] if number else ""}{known[tex] if tex else inside}</{tag}>'

    return MATH.sub(one, text)


def _as_xml(match: re.Match[str]) -> str:
    """A tag with a value for each attribute, closed if it is empty; folds are open, because a reader may have no way to open one."""
    name, inside = match.groups()
    given = [(key, value) for key, value in ATTRIBUTE.findall(inside) if not (key.startswith("on") and value)]
    attributes = [key + (value or f'="{key}"') for key, value in given]
    if name == "details" and "open" not in inside:
        attributes.append('open="open"')
    closed = " /" if name in EMPTY or inside.rstrip().endswith("/") else ""
    return f"<{' '.join([name, *attributes])}{closed}>"


def without_scripts(text: str) -> str:
    """A page as well-formed XML, without what needs a script.

    Raises:
        Failed: it is not well-formed.
    """
    for scripted in SCRIPTED:
        text = scripted.sub("", text)
    text = TAG.sub(_as_xml, INPUT.sub("", text))
    text = ENTITY.sub(lambda m: html.unescape(m[0]) if m[1] else "&amp;", text)
    try:
        ElementTree.fromstring(text)
    except ElementTree.ParseError as problem:
        raise Failed(f"not well-formed: {problem}") from None
    return text


def without_missing_styles(page: str, text: str, listed: set[str]) -> str:
    """A page without the style sheets that extensions ask for, but that are not in the EPUB."""

    def one(match: re.Match[str]) -> str:
        return match[0] if posixpath.normpath(posixpath.join(posixpath.dirname(page), match[1])) in listed else ""

    return re.sub(r'<link rel="stylesheet"[^>]*href="([^"?]+)[^"]*"[^>]*/>', one, text)


def with_links_inside(page: str, text: str, listed: set[str]) -> str:
    """A page whose links lead to pages of the EPUB; what only the site has (the PDF, data) is named without a link."""

    def one(match: re.Match[str]) -> str:
        before, address, after, words = match.groups()
        if re.match(r"[a-z]+:|#", address):
            return match[0]
        name, mark, anchor = address.partition("#")
        for target in (name, re.sub(r"\.html$", ".xhtml", name)):
            if posixpath.normpath(posixpath.join(posixpath.dirname(page), target)) in listed:
                return f'<a{before}href="{target}{mark}{anchor}"{after}>{words}</a>'
        return words

    return re.sub(r'<a\b([^>]*?)href="([^"]*)"([^>]*)>(.*?)</a>', one, text, flags=re.S)


def manifest(text: str, pages: dict[str, str], left_out: set[str]) -> str:
    """The list of the files, without those that are left out; it says which pages hold MathML or drawings."""

    def one(match: re.Match[str]) -> str:
        name = html.unescape(match[1])
        holds = [kind for kind, tag in (("mathml", "<math"), ("svg", "<svg")) if tag in pages.get(name, "")]
        says = f' properties="{" ".join(holds)}"' if holds and "properties=" not in match[0] else ""
        return "" if name in left_out else match[0].replace("<item ", f"<item{says} ", 1)

    return re.sub(r'<item [^>]*href="([^"]+)"[^>]*/>', one, text)


def pack(folder: Path, listed: list[str], target: Path) -> None:
    """The files as a zip, the kind of file first and not compressed, as the standard asks."""
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as epub:
        epub.write(folder / "mimetype", "mimetype", zipfile.ZIP_STORED)
        for name in listed:
            epub.write(folder / name, name)


def finish(folder: Path, target: Path, mathjax: Path, config: dict) -> None:
    """Turn what Sphinx wrote to ``folder`` into ``target``.

    Raises:
        Failed: a formula that cannot be read, a page that is not well-formed, or no Chromium.
    """
    chromium = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if chromium is None:
        raise Failed("formulas of an EPUB are made by Chromium, which is not installed")
    (made,) = folder.glob("*.epub")
    with zipfile.ZipFile(made) as epub:
        held = [name for name in epub.namelist() if name != "mimetype"]
    left_out = {name for name in held if name.endswith(".js") or name.startswith("_static/mathjax/")}
    listed = [name for name in held if name not in left_out]
    pages = {name: (folder / name).read_text(encoding="utf-8") for name in listed if name.endswith(".xhtml")}
    asked = sorted({tex for text in pages.values() for m in MATH.finditer(text) if (tex := tex_of(m[3]))})
    known = dict(zip(asked, mathml(asked, chromium, mathjax, config), strict=True))
    for name, text in pages.items():
        try:
            alone = with_links_inside(name, without_missing_styles(name, text, set(listed)), set(listed))
            pages[name] = without_scripts(with_mathml(alone, known))
        except Failed as problem:
            raise Failed(f"{name}: {problem}") from None
        (folder / name).write_text(pages[name], encoding="utf-8")
    listing = folder / "content.opf"
    listing.write_text(manifest(listing.read_text(encoding="utf-8"), pages, left_out), encoding="utf-8")
    pack(folder, listed, target)
