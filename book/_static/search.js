/* The search. Its index (search-data.js, a script so that a page opened from a folder may load it) holds every section of every page:
   [page, kind, page's title, [[anchor, title, text], …]]. A page is as good as its best section, chapters count three times, and every word has to be there. */
(() => {
  "use strict";
  const WORTH = { chapter: 3, appendix: 1, notebook: 0.6, library: 0.5 };
  const SHOWN = 25, SECTIONS = 3, LETTERS = 160;
  const fold = (text) => text.normalize("NFD").replace(/[\u0300-\u036f]/g, "").replace(/[\u2010-\u2015\u2212]/g, "-").toLowerCase();
  const wordsOf = (text) => fold(text).match(/[a-z0-9\u03b1-\u03c9\u4e00-\u9fff]+(?:@[a-z0-9]+)?/g) ?? [];
  const escaped = (text) => text.replace(/[.*+?^${}()|[\]\\]/g, "\\$&");
  // From three letters on, a word is found by its beginning; a word that is typed in full counts more.
  const pattern = (word) => new RegExp(`(?<![a-z0-9\u03b1-\u03c9])${escaped(word)}${word.length < 3 ? "(?![a-z0-9])" : "[a-z]*"}`, "g");

  function index(pages) {
    return pages.flatMap(([page, kind, sections]) => sections.map(([anchor, title, text], at) => ({
      page, kind, anchor, title, text, at, name: sections[0][1], low: fold(text), top: fold(title), length: text.length,
    })));
  }

  function search(entries, query) {
    const words = [...new Set(wordsOf(query))];
    if (!words.length) return [];
    const patterns = words.map(pattern), phrase = fold(query.trim());
    const counts = entries.map((e) => patterns.map((p, i) => {
      let n = 0;
      for (const [found] of e.low.matchAll(p)) n += found === words[i] ? 1 : 0.5;
      let top = 0;
      for (const [found] of e.top.matchAll(p)) top = Math.max(top, found === words[i] ? 1 : 0.6);
      return [n, top];
    }));
    const rarity = words.map((_, i) => Math.log(1 + entries.length / (1 + counts.filter((c) => c[i][0] + c[i][1] > 0).length)));
    const pages = new Map();
    entries.forEach((e, k) => {
      const all = counts[k].every(([n, top]) => n + top > 0);
      const some = counts[k].reduce((sum, [n, top], i) => sum + rarity[i] * (n / (n + 1 + e.length / 3000) + 1.5 * top), 0);
      if (!some) return;
      const exact = words.length > 1 && (e.low.includes(phrase) || e.top.includes(phrase)) ? 1.5 : 1;
      const score = some * exact * (all ? 1 : 0.2) * WORTH[e.kind];
      const one = pages.get(e.page) ?? { page: e.page, kind: e.kind, name: e.name, all: false, mentions: 0, sections: [] };
      one.all ||= all;
      one.mentions += counts[k].reduce((sum, [n]) => sum + n, 0);
      one.sections.push({ ...e, score, all });
      pages.set(e.page, one);
    });
    const found = [...pages.values()];
    const whole = found.filter((one) => one.all);
    for (const one of found) {
      one.sections.sort((a, b) => b.score - a.score);
      one.score = one.sections[0].score * (1 + 0.25 * Math.log1p(one.mentions));
    }
    return (whole.length ? whole : found).sort((a, b) => b.score - a.score);
  }

  function snippet(section, query) { // the words round the first place where most of them stand
    const patterns = [...new Set(wordsOf(query))].map(pattern);
    const at = patterns.map((p) => section.low.search(p)).filter((n) => n >= 0);
    const begin = Math.max(0, Math.min(...at, section.text.length) - LETTERS / 3);
    const from = begin ? section.text.indexOf(" ", begin) + 1 : 0, end = section.text.indexOf(" ", from + LETTERS);
    const text = section.text.slice(from, end < 0 ? undefined : end);
    const line = document.createElement("p");
    const low = fold(text), places = low.length === text.length ? patterns.flatMap((p) => [...low.matchAll(p)].map((m) => [m.index, m.index + m[0].length])) : [];
    let last = 0;
    line.append(from ? "… " : "");
    for (const [a, b] of places.sort((x, y) => x[0] - y[0])) {
      if (a < last) continue;
      const mark = document.createElement("mark");
      mark.textContent = text.slice(a, b);
      line.append(text.slice(last, a), mark);
      last = b;
    }
    line.append(text.slice(last), end < 0 ? "" : " …");
    return line;
  }

  function link(section, words) {
    const a = document.createElement("a");
    a.href = `${section.page}.html${section.at ? `#${section.anchor}` : ""}`;
    a.textContent = words;
    return a;
  }

  function show(query) {
    const found = search(index(window.minirlhfPages), query), list = document.getElementById("search-found");
    document.getElementById("search-words").value = query;
    document.getElementById("search-told").textContent = !wordsOf(query).length ? "" : found.length
      ? `${found.length} ${found.length === 1 ? "page" : "pages"} about ${query}${found.length > SHOWN ? `; the first ${SHOWN}` : ""}:`
      : `No page speaks of ${query}.`;
    list.replaceChildren(...found.slice(0, SHOWN).map((one) => {
      const item = document.createElement("li"), heading = document.createElement("p");
      const number = one.page.match(/^(\d\d)-/);
      heading.append(link({ ...one, at: 0 }, `${number ? `${Number(number[1])} · ` : ""}${one.name}`), one.kind === "chapter" || one.kind === "appendix" ? "" : `, ${one.kind}`);
      item.append(heading);
      for (const section of one.sections.filter((s) => s.all === one.all).slice(0, one.kind === "chapter" ? SECTIONS : 1)) {
        const part = document.createElement("div");
        if (section.at) part.append(link(section, section.title));
        part.append(snippet(section, query));
        item.append(part);
      }
      return item;
    }));
  }

  window.minirlhfSearch = search;
  addEventListener("DOMContentLoaded", () => {
    const query = new URLSearchParams(location.search).get("q") ?? "";
    show(query);
    document.getElementById("search-words").focus();
  });
})();
