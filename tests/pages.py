"""List what is wrong with the pages of a folder: as they are written, and as a browser shows them."""

import contextlib
import functools
import re
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from html import unescape
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urldefrag

from browser import Browser

ROOT = Path(__file__).resolve().parents[1]

LOOK = r"""(() => {
  const raw = [];
  const inert = "code, pre, script, style, noscript, textarea, mjx-container";
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  const isMath = (node) => node && node.nodeType === 1 && node.classList.contains("math");
  while (walker.nextNode()) {
    const node = walker.currentNode, text = node.nodeValue;
    if (node.parentElement.closest(inert)) continue;
    const tex = /\\[a-zA-Z()[\]]|\$\$|\$[^$\n]*[\\^_{][^$\n]*\$/.test(text);
    const stray = (/\$$/.test(text) && isMath(node.nextSibling)) || (/^\$/.test(text) && isMath(node.previousSibling));
    const star = /(?<![\w*])\*\p{L}[\p{L}\d -]*\*(?![\w*])/u.test(text);
    if (tex || stray || star || /\{\{|\}\}/.test(text)) raw.push(text.trim().slice(0, 80));
  }
  for (const e of document.querySelectorAll("[title], [aria-label], meta[name=description], .equation-shown")) { // what is shown without being typeset
    const said = [e.title, e.getAttribute("aria-label"), e.content].filter((text) => typeof text === "string" && /\\[a-zA-Z]|\bfrac\b|\bsim pi\b/.test(text));
    if (!e.closest("mjx-container")) raw.push(...said.map((text) => text.slice(0, 80)));
  }
  const unknown = [...document.querySelectorAll("mjx-assistive-mml mtext")].filter((e) => e.textContent.includes("\\"));
  const errors = [...document.querySelectorAll("mjx-merror"), ...unknown];
  const images = [...document.querySelectorAll("img, svg[role=img]:not([aria-hidden=true])")];
  return {
    raw,
    math: errors.map((e) => e.dataset.mjxError || e.getAttribute("title") || e.textContent),
    blind: images.filter((i) => !(i.getAttribute("alt") || i.getAttribute("aria-label") || i.getAttribute("title") || "").trim()).map((i) => i.outerHTML),
    broken: [...document.images].filter((i) => i.complete && !i.naturalWidth).map((i) => i.src),
      links: [...document.querySelectorAll("a[href]")].map((a) => new URL(a.getAttribute("href"), document.baseURI).href),
    cut: [...document.querySelectorAll("div.math mjx-container, section > mjx-container")]
      .filter((e) => e.scrollWidth > e.clientWidth + 1)
      .map((e) => (e.closest("[id]") || document.body).id + ", by " + (e.scrollWidth - e.clientWidth) + " pixels"),
    scaffold: (document.querySelector("article")?.innerText ?? "").match(/NBVAL_CHECK_OUTPUT|^# (?:figure|alt|table): .*|\bTODO\b|\bFIXME\b|lorem ipsum|^\w+\.reveal\(|predict\.tally\(\)|No predictions were made/gm) ?? [],
    title: document.title,
  };
})()"""
# Nothing is cut at the width of a phone; the displayed formulas of the one page, which is made for print, scroll.
PHONE = r"""(() => {
  const block = "p, li, td, th, dd, dt, figcaption, summary, h1, h2, h3";
  const right = (e) => e.getBoundingClientRect().right;
  const inline = [...document.querySelectorAll("mjx-container:not([display=true])")]
    .filter((e) => e.getBoundingClientRect().width && e.closest(block) && right(e) > right(e.closest(block)) + 1)
    .map((e) => e.closest(block).textContent.trim().slice(0, 50));
  const displayed = !window.minirlhfTypeset ? [] : [...document.querySelectorAll("div.math > mjx-container")].filter((e) => e.scrollWidth > e.clientWidth + 1)
    .map((e) => (e.closest("[id]") || document.body).id + ", by " + (e.scrollWidth - e.clientWidth) + " pixels");
  return [...inline, ...displayed];
})()"""
# How a page is set: nothing is cut without a sign, no comma falls to the next line, a box's title is as wide as the box.
SET = r"""(() => {
  const found = [], start = (e) => e.textContent.trim().replace(/\s+/g, " ").slice(0, 50);
  for (const e of document.querySelectorAll("article *, .search-page *")) {
    if (e.scrollWidth <= e.clientWidth + 8 || !e.clientWidth || !/auto|scroll/.test(getComputedStyle(e).overflowX)) continue;
    if (e.scrollLeft + e.clientWidth < e.scrollWidth - 8 && !e.classList.contains("more-right")) found.push(`goes on to the right without a sign: ${e.tagName.toLowerCase()}.${e.className} ${start(e)}`);
  }
  for (const e of document.querySelectorAll("p span.math")) {
    const next = e.nextSibling;
    if (next?.nodeType === 3 && /^[.,;:!?)\]”’]/.test(next.nodeValue) && getComputedStyle(e.parentElement).whiteSpace !== "nowrap") found.push(`may fall to the next line: ${next.nodeValue.slice(0, 30)}`);
  }
  for (const e of document.querySelectorAll(".admonition > .admonition-title")) {
    const free = e.parentElement.clientWidth - e.getBoundingClientRect().width;
    if (e.clientWidth && free > 2) found.push(`title ends ${free.toFixed(0)} pixels before its box: ${start(e)}`);
  }
  return found.slice(0, 20);
})()"""
# Rules of accessibility for what is ours, the article, in either mode. What axe-core knows besides is asked by `violations`.
ACCESS = r"""(() => {
  const own = document.querySelector("article, .search-page") ?? document.body, found = [];
  const seen = (e) => e.checkVisibility({ checkOpacity: true, checkVisibilityCSS: true }) && e.getBoundingClientRect().width > 1;
  const all = (selector) => [...own.querySelectorAll(selector)].filter(seen);
  const name = (e) => [e.getAttribute("aria-label"), e.title, e.textContent, e.querySelector("[alt]")?.alt].some((text) => text?.trim());
  for (const e of all("input:not([type=hidden]), select, textarea")) if (!(e.labels?.[0]?.textContent || e.getAttribute("aria-label") || "").trim()) found.push(`control without a label: ${e.outerHTML.slice(0, 80)}`);
  for (const e of all("button, a[href], summary")) if (!name(e)) found.push(`nothing to read on it: ${e.outerHTML.slice(0, 80)}`);
  for (const e of all("th")) if (!e.textContent.trim()) found.push(`empty table header: ${e.closest("table").textContent.trim().replace(/\s+/g, " ").slice(0, 60)}`);
  let last = 0;
  for (const e of all("h1, h2, h3, h4, h5, h6")) {
    const level = Number(e.tagName[1]);
    if (level > last + 1) found.push(`heading of level ${level} after level ${last}: ${e.textContent.trim().slice(0, 60)}`);
    last = level;
  }
  const numbers = (c) => (c.match(/[\d.]+/g) ?? []).map(Number);
  const light = (c) => { const [r, g, b] = c.map((v) => v / 255).map((v) => (v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4)); return 0.2126 * r + 0.7152 * g + 0.0722 * b; };
  function ground(e) {
    for (let at = e; at; at = at.parentElement) {
      const c = numbers(getComputedStyle(at).backgroundColor);
      if (c.length === 3 || c[3] === 1) return c.slice(0, 3);
      if (c[3] > 0) return null; // half transparent: not computed
    }
    return [255, 255, 255];
  }
  const walker = document.createTreeWalker(own, NodeFilter.SHOW_TEXT), told = new Set();
  while (walker.nextNode()) {
    const e = walker.currentNode.parentElement;
    if (!walker.currentNode.nodeValue.trim() || told.has(e) || e.closest("svg, mjx-container, script, style, [disabled]") || !seen(e)) continue;
    told.add(e);
    const style = getComputedStyle(e), back = ground(e), front = numbers(style.color);
    if (!back || style.color.startsWith("color(") || (front.length > 3 && front[3] < 1)) continue;
    const [a, b] = [light(front.slice(0, 3)), light(back)].sort((x, y) => y - x), ratio = (a + 0.05) / (b + 0.05);
    const size = parseFloat(style.fontSize), large = size >= 24 || (size >= 18.66 && Number(style.fontWeight) >= 700);
    if (ratio < (large ? 3 : 4.5)) found.push(`contrast ${ratio.toFixed(2)}: ${e.tagName.toLowerCase()}.${e.className}`);
  }
  for (const e of all("svg text")) { const r = e.getBoundingClientRect(); if (r.height && r.height < 8) found.push(`letters of ${r.height.toFixed(1)} pixels in a drawing: ${e.textContent.slice(0, 40)}`); }
  return [...new Set(found)].slice(0, 20);
})()"""
# What can be focused in the article and does not show it: nothing round it, or under it, that was not there before.
FOCUS = r"""(() => {
  const own = document.querySelector("article, .search-page") ?? document.body, found = new Set();
  const look = (e) => { const s = getComputedStyle(e); return [s.outlineStyle === "none" ? "" : s.outlineWidth, s.boxShadow, s.border, s.backgroundColor].join(); };
  for (const e of own.querySelectorAll("a[href], button, input, select, textarea, summary, [tabindex]")) {
    if (e.disabled || !e.checkVisibility({ checkOpacity: true, checkVisibilityCSS: true })) continue;
    document.activeElement?.blur();
    const before = look(e);
    e.focus({ focusVisible: true, preventScroll: true });
    if (document.activeElement === e && look(e) === before) found.add(`focus is not seen: ${e.outerHTML.slice(0, 80)}`);
  }
  document.activeElement?.blur();
  return [...found].slice(0, 20);
})()"""
# A header that is a formula holds its MathML, which is read aloud; axe counts words only.
AXE = """axe.run(document, {resultTypes: ["violations"], runOnly: ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "best-practice"]})
  .then(({violations}) => violations.flatMap(({id, nodes}) => nodes
    .filter(({target}) => !(id === "empty-table-header" && document.querySelector(target[0])?.querySelector("math")))
    .map(({html}) => `${id}: ${html.slice(0, 120)}`)))"""
OVERFLOW = "document.documentElement.scrollWidth - document.documentElement.clientWidth"


class Quiet(SimpleHTTPRequestHandler):
    """Says nothing, and has no icon to offer without calling that an error."""

    def log_message(self, *args: object) -> None:
        """Say nothing."""


@contextlib.contextmanager
def served(folder: Path) -> Iterator[str]:
    """The address of a folder, served on a free port of this machine."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=str(folder)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/"
    finally:
        server.shutdown()
        server.server_close()


def pages_of(folder: Path) -> list[str]:
    """All pages below a folder; a theme's templates are no pages, and the slides of a book have their own tests."""
    found = [path.relative_to(folder).as_posix() for path in sorted(folder.rglob("*.html"))]
    return [page for page in found if not page.startswith(("_static/", "slides/"))]


def faults(browser: Browser, base: str, folder: Path, pages: Sequence[str]) -> dict[str, list[str]]:
    """What is wrong with each of these pages of ``folder``, which ``base`` serves; pages without a fault are left out."""
    found: dict[str, list[str]] = {}
    for page in pages:
        browser.resize(1280, 900)
        heard = browser.open(base + page)
        look, badly = browser.ask(LOOK), browser.ask(SET)
        browser.resize(390, 844)
        overflow = browser.ask(OVERFLOW)
        found[page] = _of_one(look, heard.complaints, heard.requests, base, overflow)
        found[page] += [f"formula wider than a phone: {text}" for text in browser.ask(PHONE)]
        found[page] += badly + [f"on a phone: {text}" for text in browser.ask(SET)]
        found[page] += _links(look, base, folder)
        browser.resize(1280, 900)
        found[page] += browser.ask(ACCESS) + browser.ask(FOCUS)
    return {page: sorted(set(texts)) for page, texts in found.items() if texts}


@functools.cache
def axe_core() -> str:
    """Its code, fetched once as MathJax is."""
    folder = ROOT / "build" / "axe"
    fetch = f"from vendored import AXE, vendor; from pathlib import Path; vendor(AXE, Path({str(folder)!r}))"
    subprocess.run([sys.executable, "-c", fetch], cwd=ROOT / "tools", check=True)
    return (folder / "axe.min.js").read_text(encoding="utf-8")


def violations(browser: Browser, address: str) -> list[str]:
    """What axe-core says against a page as it stands after typesetting, at the width of a small window."""
    browser.resize(800, 600)
    browser.open(address)
    browser.call("Runtime.evaluate", expression=axe_core())
    return sorted(set(browser.ask(AXE)))


@functools.cache
def anchors(page: Path) -> frozenset[str]:
    """Where links may lead on a page."""
    return frozenset(map(unescape, re.findall(r"""\bid=["']?([^"'\s>]+)""", page.read_text(encoding="utf-8"))))


# -- what can be seen without a browser --------------------------------------------------------------------------

MATH = re.compile(r"""<(span|div) class="math\b.*?</\1>""", re.S)
INERT = re.compile(r"<(script|style|pre|code|textarea|noscript|svg)\b.*?</\1>", re.S)
RAW = re.compile(
    r"\\[a-zA-Z()\[\]]|\$\$|\$[^$\n<>]*[\\^_{][^$\n<>]*\$|\{\{|\}\}|(?<![\w*])\*[A-Za-z][\w -]*\*(?![\w*])"
)
SHOWN = re.compile(r"""\b(?:title|aria-label)="([^"]*)"|<meta[^>]*\bname="description"[^>]*>""")
TEX = re.compile(
    r"\\[A-Za-z]+|\b(?:frac|mathrm|mathbb|operatorname|piref|piold)\b|\b(?:sim|mid|cdot) (?:pi|theta|beta)\b"
)


@functools.cache
def article(page: Path) -> str:
    """The HTML of a page's own text."""
    text = page.read_text(encoding="utf-8")
    return text[text.index("<article") : text.rindex("</article>")] if "<article" in text else text


def static_faults(folder: Path, pages: Sequence[str]) -> dict[str, list[str]]:
    """What is wrong with pages as they are written; pages without a fault are left out."""
    found = {page: _written(folder, page) for page in pages}
    return {page: sorted(set(texts)) for page, texts in found.items() if texts}


def _written(folder: Path, page: str) -> list[str]:
    path = folder / page
    text = path.read_text(encoding="utf-8")
    said = re.sub(r"<[^>]*>", "\n", INERT.sub("", MATH.sub("", article(path))))
    texts = [f"raw TeX, template or Markdown: {m[0][:80]}" for m in RAW.finditer(said)]
    texts += [f"raw TeX in a title: {m[0][:80]}" for m in SHOWN.finditer(text) if TEX.search(unescape(m[0]))]
    texts += [f"scaffolding: {m[0]}" for m in re.finditer("NBVAL_CHECK_OUTPUT|# (?:figure|alt|table): ", article(path))]
    texts += [
        f"no alternative text: {m[0][:120]}"
        for m in re.finditer(r"<img\b[^>]*>", text)
        if not re.search(r'\balt="[^"]', m[0])
    ]
    ids = re.findall(r'\sid="([^"]+)"', INERT.sub("", text))
    texts += (
        [f"id stands twice: {one}" for one in {one for one in ids if ids.count(one) > 1}]
        if len(ids) > len(set(ids))
        else []
    )
    levels = [int(level) for level in re.findall(r"<h([1-6])\b", article(path))]
    texts += [f"heading of level {b} after level {a}" for a, b in zip([0, *levels], levels, strict=False) if b > a + 1]
    if not re.search(r"<title>[^<]*\w", text):
        texts.append("no title")
    for tag, kind, address in re.findall(
        r'<(\w+)\b[^>]*\b(href|src)="([^"]*)"', MATH.sub("", re.sub(r"<(script)>.*?</script>", "", text, flags=re.S))
    ):
        outside = re.match(r"[a-z]+:|//", address)
        if outside and (kind == "src" or tag == "link") and not address.startswith("data:"):
            texts.append(f"leaves the site: {address}")
        if outside:
            continue
        target, anchor = urldefrag(unescape(address))
        aim = (path.parent / unquote(target.split("?")[0])).resolve() if target else path
        aim = aim / "index.html" if aim.is_dir() else aim
        if not aim.is_file():
            texts.append(f"broken link: {address}")
        elif anchor and aim.suffix == ".html" and unquote(anchor) not in anchors(aim):
            texts.append(f"broken anchor: {address}")
    return texts


def _of_one(look: dict[str, Any], complaints: list[str], requests: list[str], base: str, overflow: int) -> list[str]:
    texts = [f"raw TeX, template or Markdown: {t}" for t in look["raw"]]
    texts += [f"MathJax error: {t}" for t in look["math"]]
    texts += [f"no alternative text: {src[:120]}" for src in look["blind"]]
    texts += [f"broken image: {src[:120]}" for src in look["broken"]]
    texts += [f"formula wider than its column: {t}" for t in look["cut"]]
    texts += [f"scaffolding: {t}" for t in look["scaffold"]]
    texts += [f"complaint: {t}" for t in complaints]
    texts += [f"leaves the site: {url}" for url in requests if not url.startswith((base, "data:", "blob:"))]
    if not look["title"].strip():
        texts.append("no title")
    if overflow > 0:
        texts.append(f"wider than a phone by {overflow} pixels")
    return texts


def _links(look: dict[str, Any], base: str, folder: Path) -> list[str]:
    texts = []
    for link in look["links"]:
        if not link.startswith(base):
            continue
        address, anchor = urldefrag(link.removeprefix(base))
        target = unquote(address.split("?")[0])
        target += "index.html" if target.endswith("/") or not target else ""
        if not (folder / target).is_file():
            texts.append(f"broken link: {target}")
        elif anchor and target.endswith(".html") and unquote(anchor) not in anchors(folder / target):
            texts.append(f"broken anchor: {target}#{anchor}")
    return texts
