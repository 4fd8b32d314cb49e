/* The search. Its index (search-data.js, a script so that a page opened from a folder may load it) holds every section of every page:
   [page, kind, [[anchor, title, text, terms that it links and names in italics, names], …]]; an entry of the glossary is a section with names. A page is as good
   as its best section, chapters count three times, and a section loses by every word that it lacks, most by a rare one. What is asked by a name of the glossary is also told
   what it means; a Chinese name is looked for in the chapters by the English one. */
(() => {
  "use strict";
  const WORTH = { chapter: 3, appendix: 1, notebook: 0.6, library: 0.5 }, LISTS = { glossary: 0.3, terms: 0.2, ledger: 0.3 };
  const SHOWN = 25, SECTIONS = 3, LETTERS = 160, MEANINGS = 4;
  const LESS = { exercises: 0.2, references: 0.2, "common bugs": 0.6, "names elsewhere": 0.5, summary: 0.7 }, OPENING = 0.6; // sections that repeat or ask, or say what one should know before
  const COVERED = 3, NEARLY = 0.6; // how much a section loses by words that it lacks, and the part of the most covered one with which a page is still shown
  // Words of a question that say nothing about its subject.
  const EMPTY = new Set("a an and are as at be but by can could did difference do does during for from get give go goes happen happening happens has have how i if in is it its make makes me mean means my need of off on or our pick should so some tell that the their them there this to up use used using was we what when where which who why will with without would you your vs versus about between choose explain work works".split(" "));
  const GREEK = { alpha: "\u03b1", beta: "\u03b2", gamma: "\u03b3", delta: "\u03b4", epsilon: "\u03b5", lambda: "\u03bb", mu: "\u03bc", pi: "\u03c0", rho: "\u03c1", sigma: "\u03c3", tau: "\u03c4", theta: "\u03b8" };
  const HAN = /[\u4e00-\u9fff]/;
  const fold = (text) => text.normalize("NFD").replace(/[\u0300-\u036f]/g, "").replace(/[\u2010-\u2015\u2212]/g, "-")
    .replace(/[\u2080-\u2089]/g, (c) => String(c.charCodeAt(0) - 0x2080)).replace(/\u2019/g, "'").toLowerCase();
  const allWords = (text) => fold(text).replace(/'s\b/g, "").match(/[a-z0-9\u03b1-\u03c9]+(?:@[a-z0-9]+)?|[\u4e00-\u9fff]+/g) ?? [];
  const wordsOf = (text) => {
    const all = [...new Set(allWords(text))], kept = all.filter((word) => !EMPTY.has(word));
    return kept.length ? kept : all;
  };
  const escaped = (text) => text.replace(/[.*+?^${}()|[\]\\]/g, "\\$&");
  const spelled = (word) => word.replace(/^(over|under|self|pre|post|non|multi|off|on|inter)(?=[a-z]{4})/, "$1-?").replace(/is(?=(?:e|es|ed|ing|ation|ations)$)/, "i[sz]").replace(/iz(?=(?:e|es|ed|ing|ation|ations)$)/, "i[sz]")
    .replace(/ou?r(?=s?$)/, (end) => (word.length > 4 ? "ou?r" : end));
  const stem = (word) => (word.length > 4 ? word.replace(/(?<=[^s])s$/, "") : word);
  // From three letters on, a word is found by its beginning; a word that is typed in full, or in the plural, counts more.
  const pattern = (word) => (HAN.test(word) ? new RegExp(escaped(word), "g")
    : new RegExp(`(?<![a-z0-9\u03b1-\u03c9])(?:${spelled(escaped(stem(word)))}${word.length < 3 ? "(?![a-z0-9])" : "[a-z]*"}${GREEK[word] ? `|${GREEK[word]}` : ""})`, "g"));
  const together = (words) => new RegExp(`(?<![a-z0-9])${words.map((word) => `${spelled(escaped(stem(word)))}s?`).join("[\\s-]+(?:(?:of|the|a|in)\\s+)?")}(?![a-z0-9])`, "g");
  const whole = (found, word) => found === GREEK[word] || found.length <= stem(word).length + 1 || HAN.test(word);
  const bare = (text) => allWords(text).map(stem).join(" "); // names are compared without hyphens, plurals, capitals
  const named = (text) => (HAN.test(text) ? fold(text).replace(/\s+/g, "") : bare(text));

  function index(pages) {
    return pages.flatMap(([page, kind, sections]) => sections.map(([anchor, title, text, terms = [], names = []], at) => ({
      page, kind, anchor, title, text, at, terms, names, name: sections[0][1], weight: WORTH[kind] * (LISTS[page] ?? 1), low: fold(text), top: fold(title), length: text.length,
      worth: LESS[fold(title)] ?? (at || kind !== "chapter" ? 1 : OPENING),
    })));
  }

  /* The entries of the glossary that are asked for: by a name, or, in Chinese, by a part of one or with more around it. */
  function meanings(entries, query) {
    const asked = named(wordsOf(query).join(" ")), typed = named(query), known = entries.filter((e) => e.names.length);
    const exact = known.filter((e) => e.names.some((name) => [asked, typed].includes(named(name)) || [asked, typed].includes(named(name.replace(/ \(.*| (?:model|equation|law)$/i, "")))));
    if (exact.length || !HAN.test(query)) return exact;
    const near = known.flatMap((e) => e.names.filter((name) => HAN.test(name)).map(named)
      .filter((name) => typed.includes(name) || name.includes(typed)).map((name) => [Math.abs(name.length - typed.length), e]));
    return [...new Set(near.sort((a, b) => a[0] - b[0]).map(([, e]) => e))];
  }

  /* What has several names, one of them Chinese perhaps, is looked for by the one that the chapters use most. */
  function search(entries, query) {
    const told = meanings(entries, query), anchors = new Set(told.map((e) => e.anchor)), chapters = entries.filter((e) => e.kind === "chapter");
    const names = told.slice(0, 1).flatMap((e) => e.names.filter((name) => !HAN.test(name)));
    const used = (name) => chapters.reduce((sum, e) => sum + (e.low.match(together(wordsOf(name)))?.length ?? 0), 0);
    const asked = [...(HAN.test(query) && names.length ? [] : [query]), ...names].map((name) => [used(name), name]);
    return ranked(entries, asked.sort((x, y) => y[0] - x[0])[0][1], anchors).sort((x, y) => y.score - x.score);
  }

  function ranked(entries, query, anchors) {
    const known = entries.flatMap((e) => e.names.map(bare));
    const words = wordsOf(query), asks = allWords(query).includes("why");
    if (!words.length) return [];
    const patterns = words.map(pattern), phrase = together(words);
    const counts = entries.map((e) => patterns.map((p, i) => {
      let n = 0, top = 0;
      for (const [found] of e.low.matchAll(p)) n += whole(found, words[i]) ? 1 : 0.5;
      for (const [found] of e.top.matchAll(p)) top = Math.max(top, whole(found, words[i]) ? 1 : 0.6);
      return [n, top];
    }));
    const rarity = words.map((_, i) => Math.log(1 + entries.length / (1 + counts.filter((c) => c[i][0] + c[i][1] > 0).length)));
    const heavy = rarity.reduce((sum, r) => sum + r, 0);
    const totals = words.map(() => 0), pages = new Map();
    entries.forEach((e, k) => {
      const one = pages.get(e.page) ?? { page: e.page, kind: e.kind, name: e.name, said: words.map(() => 0), sections: [] };
      pages.set(e.page, one);
      counts[k].forEach(([n], i) => { one.said[i] += n; if (e.kind === "chapter") totals[i] += n; });
    });
    let spoken = 0;
    const longer = known.filter((name) => name !== bare(query) && ` ${name} `.includes(` ${bare(query)} `)); // "inverse reinforcement learning" is another subject
    const introduced = new Set(); // the first section that links an entry introduces it
    entries.forEach((e, k) => {
      const one = pages.get(e.page), cover = counts[k].reduce((sum, [n, top], i) => sum + (n + top > 0 ? rarity[i] : 0), 0) / heavy;
      const said = counts[k].reduce((sum, [n], i) => sum + rarity[i] * (n / (n + 1 + e.length / 3000)), 0);
      const other = longer.some((name) => bare(e.title).includes(name));
      const alike = other ? 0 : counts[k].reduce((sum, [, top]) => sum + top, 0) / Math.max(1, wordsOf(e.title).length, words.length); // of title and question
      const titled = alike * counts[k].reduce((sum, [, top], i) => sum + rarity[i] * top, 0);
      let linked = 1;
      for (const term of e.terms) {
        if (bare(term) === bare(query) && e.kind === "chapter") linked = Math.max(linked, 2);
        if (!anchors.has(term)) continue;
        linked = Math.max(linked, introduced.has(term) || e.kind !== "chapter" ? 1.2 : 2.5);
        if (e.kind === "chapter") introduced.add(term);
      }
      if (!said && !titled) return;
      const others = longer.reduce((sum, name) => sum + (e.low.match(together(name.split(" "))) ?? []).length, 0);
      const phrases = words.length > 1 ? Math.max(0, (e.low.match(phrase) ?? []).length - others / 2) + (other ? 0 : 2) * (e.top.match(phrase) ?? []).length : 0;
      const why = asks && patterns.every((p) => new RegExp(`\\bwhy\\b.{0,100}${p.source}`).test(e.low)) ? 2.5 : 1;
      const score = (said + 2 * titled) * (1 + 2 * phrases / (phrases + 1)) * linked * why * cover ** COVERED * e.worth * e.weight;
      one.cover = Math.max(one.cover ?? 0, cover);
      one.phrases = (one.phrases ?? 0) + phrases;
      if (e.kind === "chapter") spoken += phrases;
      one.sections.push({ ...e, score, words });
    });
    const found = [...pages.values()].filter((one) => one.sections.length);
    for (const one of found) {
      one.sections.sort((a, b) => b.score - a.score);
      if (one.kind !== "chapter") { one.score = one.sections[0].score; continue; }
      const share = spoken > 2 ? one.phrases / spoken : one.said.reduce((sum, n, i) => sum + rarity[i] * n / (1 + totals[i]), 0) / heavy;
      one.score = one.sections[0].score * (1 + 2 * share); // of all that the chapters say of it
    }
    const most = Math.max(...found.map((one) => one.cover));
    return found.filter((one) => one.cover >= NEARLY * most);
  }

  function snippet(section) { // the words round the first place where most of them stand
    const patterns = section.words.map(pattern);
    const hits = patterns.flatMap((p, i) => [...section.low.matchAll(p)].map((m) => [m.index, i])).sort((a, b) => a[0] - b[0]);
    let at = section.text.length, most = 0;
    hits.forEach(([place], k) => {
      const near = new Set(hits.slice(k).filter(([other]) => other < place + LETTERS / 2).map(([, i]) => i)).size;
      if (near > most) [at, most] = [place, near];
    });
    const begin = most ? Math.max(0, at - LETTERS / 3) : 0;
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

  let entries;
  function show(query) {
    entries ??= index(window.minirlhfPages);
    const list = document.getElementById("search-found");
    const told = wordsOf(query).length ? meanings(entries, query) : [], found = search(entries, query);
    document.getElementById("search-words").value = query;
    document.getElementById("search-told").dataset.found = found.length;
    document.getElementById("search-told").textContent = !wordsOf(query).length ? "" : found.length
      ? `${found.length} ${found.length === 1 ? "page" : "pages"} about ${query}${HAN.test(query) && told.length ? ` (${told[0].names[0]})` : ""}${found.length > SHOWN ? `; the first ${SHOWN}` : ""}:`
      : `No page speaks of ${query}.`;
    document.getElementById("search-meaning").replaceChildren(...told.slice(0, MEANINGS).map((entry) => {
      const line = document.createElement("p");
      line.append(link(entry, entry.title), `: ${entry.text}`);
      return line;
    }));
    list.replaceChildren(...found.slice(0, SHOWN).map((one) => {
      const item = document.createElement("li"), heading = document.createElement("p");
      const number = one.page.match(/^(\d\d)-/);
      heading.append(link({ ...one, at: 0 }, `${number ? `${Number(number[1])} · ` : ""}${one.name}`), one.kind === "chapter" || one.kind === "appendix" ? "" : `, ${one.kind}`);
      item.append(heading);
      for (const section of one.sections.slice(0, one.kind === "chapter" ? SECTIONS : 1)) {
        const part = document.createElement("div");
        if (section.at) part.append(link(section, section.title));
        part.append(snippet(section));
        item.append(part);
      }
      return item;
    }));
  }

  window.minirlhfSearch = show;
  addEventListener("DOMContentLoaded", () => {
    const query = new URLSearchParams(location.search).get("q") ?? "";
    show(query);
    document.getElementById("search-words").focus();
  });
})();
