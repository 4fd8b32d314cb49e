/* The search. Its index (search-data.js, a script so that a page opened from a folder may load it) holds every section of every page:
   [page, kind, [[anchor, title, text, terms that it links and names in italics, names], …]]. An entry of the glossary, a frequent question, an equation and an
   exercise are results of their own; a page is as good as its best section. Chapters count three times, and a section loses by every word that it lacks, most by
   a rare one. A query that is a name of the glossary is also told its meaning; a Chinese name, an abbreviation or an old word is looked for by the name that the
   chapters use. A query that is close to a phrase that users type when a run goes wrong is answered by the question of this phrase first. */
(() => {
  "use strict";
  const WORTH = { chapter: 3, question: 1, appendix: 1, term: 0.3, equation: 0.4, exercise: 0.4, notebook: 0.6, library: 0.5 }, LISTS = { "run-it": 3, terms: 0.2, ledger: 0.3 };
  const HEADINGS = { chapter: "Chapters", question: "Frequent questions", appendix: "Guides and appendices", term: "Glossary", equation: "Equations", exercise: "Exercises", notebook: "Notebooks", library: "Library" };
  const AFTER = ["equation", "exercise", "notebook", "library"]; // kinds that come after all others, in this order
  const SINGLE = { "question-": "question", "term-": "term", "equation-": "equation", "exercise-": "exercise" }; // results of their own, by their anchors
  const SHOWN = { chapter: 8, question: 4 }, OTHERS = 4, SECTIONS = 3, LETTERS = 160, MEANINGS = 4; // results of a kind before the fold
  const OFTEN = 3; // how many times as often the chapters must use another name of what is asked, to look for that one
  const CLOSE = 0.6; // the similarity of a query and a phrase of a question from which on the question is shown first
  const LESS = { exercises: 0.2, references: 0.2, "common bugs": 0.6, "names elsewhere": 0.5, summary: 0.7 }, OPENING = 0.6; // sections that repeat or ask, or say what one should know before
  const COVERED = 3, NEARLY = 0.6; // how much a section loses by words that it lacks, and the part of the most covered one with which a page is still shown
  // Words of a question that say nothing about its subject.
  const EMPTY = new Set("a an and are as at be but by can could did difference do does during for from get gets getting give go goes happen happening happens has have how i if in into is it its make makes me mean means my need of off on one or our pick should so some tell that the their them there this to up use used using was we what when where which who why will with without would you your vs versus about between choose explain work works".split(" "));
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
  const spelled = (word) => word.replace(/^(over|under|self|pre|post|non|multi|off|on|inter)(?=[a-z]{4})/, "$1-?").replace(/is(?=(?:e|es|ed|ing|ation|ations)?$)/, "i[sz]").replace(/iz(?=(?:e|es|ed|ing|ation|ations)?$)/, "i[sz]")
    .replace(/ou?r(?=s?$)/, (end) => (word.length > 4 ? "ou?r" : end));
  const singular = (word) => (word.length > 4 ? word.replace(/(?<=[^s])s$/, "") : word);
  const stem = (word) => { // "clipping" and "clipped" find "clip", "derivation" finds "derive"
    const one = singular(word), root = one.replace(/(?:ation|ing|ed)$/, "");
    return root === one || root.length < 4 ? one : root.replace(/([bdgmnprt])\1$/, "$1");
  };
  // From three letters on, a word is found by its beginning; a word that is typed in full, or in the plural, counts more.
  const pattern = (word) => (HAN.test(word) ? new RegExp(escaped(word), "g")
    : new RegExp(`(?<![a-z0-9\u03b1-\u03c9])(?:${spelled(escaped(stem(word)))}${word.length < 3 ? "(?![a-z0-9])" : "[a-z]*"}${GREEK[word] ? `|${GREEK[word]}` : ""})`, "g"));
  const together = (words) => new RegExp(`(?<![a-z0-9])${words.map((word) => `${spelled(escaped(singular(word)))}s?`).join("[\\s-]+(?:(?:of|the|a|in)\\s+)?")}(?![a-z0-9])`, "g");
  const whole = (found, word) => found === GREEK[word] || found.length <= stem(word).length + 1 || HAN.test(word) || stem(found) === stem(word);
  const bare = (text) => allWords(text).map(singular).join(" "); // names are compared without hyphens, plurals, capitals
  const named = (text) => (HAN.test(text) ? fold(text).replace(/\s+/g, "") : bare(text));

  function index(pages) {
    return pages.flatMap(([page, place, sections]) => sections.map(([anchor, title, text, terms = [], names = []], at) => {
      const kind = (at && SINGLE[Object.keys(SINGLE).find((start) => anchor.startsWith(start))]) || place;
      return {
        page, kind, anchor, title, text, at, terms, names, name: sections[0][1], weight: WORTH[kind] * (LISTS[page] ?? 1), low: fold(text), top: fold(title), titled: wordsOf(title).length, length: text.length,
        worth: LESS[fold(title)] ?? (at || (kind !== "chapter" && !(LISTS[page] > 1)) ? 1 : OPENING), key: kind === place ? page : `${page}#${anchor}`,
      };
    }));
  }

  /* The entries of the glossary that are asked for: by a name, or, in Chinese, by a part of one or with more around it. */
  function meanings(entries, query) {
    const asked = named(wordsOf(query).join(" ")), typed = named(query), known = entries.filter((e) => e.kind === "term");
    const exact = known.filter((e) => e.names.some((name) => [asked, typed].includes(named(name)) || [asked, typed].includes(named(name.replace(/ \(.*| (?:model|equation|law)$/i, "")))));
    if (exact.length || !HAN.test(query)) return exact;
    const near = known.flatMap((e) => e.names.filter((name) => HAN.test(name)).map(named)
      .filter((name) => typed.includes(name) || name.includes(typed)).map((name) => [Math.abs(name.length - typed.length), e]));
    return [...new Set(near.sort((a, b) => a[0] - b[0]).map(([, e]) => e))];
  }

  /* The questions with a phrase that is close to the query, the closest first; a rare word counts more than a common one. */
  function symptoms(entries, query) {
    const { stop = [], same = {} } = window.minirlhfWords ?? {}, empty = new Set(stop.filter((word) => word !== "not")), asked = entries.filter((e) => e.kind === "question");
    const bag = (text) => {
      const all = [...new Set(allWords(text.replaceAll("_", " ")).map((word) => same[word] ?? word))], kept = all.filter((word) => !empty.has(word));
      return kept.length ? kept : all;
    };
    const met = (word, other) => word === other || (Math.min(word.length, other.length) >= 4 && (other.startsWith(word) || (word.startsWith(other) && word.length - other.length <= 3)));
    const phrases = asked.map((e) => e.names.map(bag)), weights = new Map();
    const weight = (word) => { // of a word, by the questions that have it
      const has = phrases.filter((all) => all.some((phrase) => phrase.some((other) => met(word, other)))).length;
      if (!weights.has(word)) weights.set(word, (has ? 1 : 2) * Math.log(1 + asked.length / Math.max(1, has))); // a word of no question asks for something else
      return weights.get(word);
    };
    const sum = (list) => list.reduce((total, word) => total + weight(word), 0), words = bag(query);
    const close = (phrase) => {
      const both = words.filter((word) => phrase.some((other) => met(word, other)));
      return both.length > 1 || both.length === Math.max(words.length, phrase.length) ? 2 * sum(both) / (sum(words) + sum(phrase)) : 0;
    };
    return asked.map((e, i) => [Math.max(...phrases[i].map(close)), e]).filter(([similarity]) => similarity >= CLOSE).sort((x, y) => y[0] - x[0]).map(([, e]) => e);
  }

  /* The equation whose number or name is asked for: "13.5", "eq. (13.5)", "grpo objective". */
  function equations(entries, query) {
    const asked = bare(query.replace(/^eq(?:uation)?\b\.?/i, ""));
    return entries.filter((e) => e.kind === "equation" && /^\((.*?)\) (.*)$/.exec(e.title)?.slice(1).some((name) => bare(name) === asked));
  }

  /* What has several names, one of them Chinese perhaps, is looked for by the one that the chapters use most; so is a name inside a longer query. */
  function search(entries, query) {
    const told = meanings(entries, query), anchors = new Set(told.map((e) => e.anchor)), chapters = entries.filter((e) => e.kind === "chapter" && e.worth > 0.5);
    const used = (name) => chapters.reduce((sum, e) => sum + (e.low.match(together(wordsOf(name)))?.length ?? 0), 0);
    const best = (names) => names.map((name) => [used(name), name]).sort((x, y) => y[0] - x[0])[0];
    const english = (e) => e.names.filter((name) => !HAN.test(name));
    let words = query;
    if (told.length) {
      const own = best([...(HAN.test(query) && english(told[0]).length ? [] : [query]), ...english(told[0])]);
      const next = own[0] ? undefined : entries.find((e) => e.kind === "term" && told[0].terms.includes(e.anchor)); // no chapter uses the name, but perhaps one of its meaning
      words = next ? best(english(next))[1] : own[1];
    } else {
      const inside = (name) => ` ${bare(words)} `.includes(` ${bare(name)} `);
      for (const e of entries.filter((one) => one.kind === "term" && english(one).length > 1)) {
        for (const name of english(e).filter((one) => bare(one) && inside(one))) {
          const [most, other] = best(english(e));
          if (most > OFTEN * used(name) && !inside(other)) words = bare(words).replace(bare(name), other);
        }
      }
    }
    return ranked(entries, words, anchors).sort((x, y) => y.score - x.score);
  }

  function ranked(entries, query, anchors) {
    const known = entries.flatMap((e) => (e.kind === "term" ? e.names.map(bare) : []));
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
      const one = pages.get(e.key) ?? { page: e.page, kind: e.kind, name: e.name, said: words.map(() => 0), sections: [] };
      pages.set(e.key, one);
      counts[k].forEach(([n], i) => { one.said[i] += n; if (e.kind === "chapter") totals[i] += n; });
    });
    let spoken = 0;
    const longer = known.filter((name) => name !== bare(query) && ` ${name} `.includes(` ${bare(query)} `)); // "inverse reinforcement learning" is another subject
    const longerNames = longer.map((name) => together(name.split(" ")));
    const introduced = new Set(); // the first section that links an entry introduces it
    entries.forEach((e, k) => {
      const one = pages.get(e.key), cover = counts[k].reduce((sum, [n, top], i) => sum + (n + top > 0 ? rarity[i] : 0), 0) / heavy;
      const said = counts[k].reduce((sum, [n], i) => sum + rarity[i] * (n / (n + 1 + e.length / 3000)), 0);
      const other = longer.some((name) => bare(e.title).includes(name));
      const alike = other ? 0 : counts[k].reduce((sum, [, top]) => sum + top, 0) / Math.sqrt(words.length * Math.max(words.length, e.titled)); // of title and question
      const titled = alike * counts[k].reduce((sum, [, top], i) => sum + rarity[i] * top, 0);
      let linked = 1;
      for (const term of e.terms) {
        if (bare(term) === bare(query) && e.kind === "chapter") linked = Math.max(linked, 2);
        if (!anchors.has(term)) continue;
        linked = Math.max(linked, introduced.has(term) || e.kind !== "chapter" ? 1.2 : 2.5);
        if (e.kind === "chapter") introduced.add(term);
      }
      if (anchors.size && e.kind === "chapter" && !other && phrase.test(e.top)) linked = Math.max(linked, 2.5);
      phrase.lastIndex = 0;
      if (!said && !titled) return;
      const others = longerNames.reduce((sum, name) => sum + (e.low.match(name) ?? []).length, 0);
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
      const name = wordsOf(one.name), alike = patterns.filter((p) => fold(one.name).search(p) >= 0).length / Math.sqrt(words.length * Math.max(words.length, name.length));
      one.score = one.sections[0].score * (1 + 2 * share) * (1 + alike); // share: of all that the chapters say of it; alike: of the chapter's title
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

  /* The words of titles and names that are spelled nearly like a word which stands nowhere. */
  function spelledNearly(entries, query) {
    const missing = wordsOf(query).filter((word) => word.length > 3 && !HAN.test(word) && !entries.some((e) => e.low.search(pattern(word)) >= 0 || e.top.search(pattern(word)) >= 0));
    const known = new Map();
    for (const e of entries) for (const word of allWords(`${e.title} ${e.kind === "term" ? e.names.join(" ") : ""}`)) known.set(word, (known.get(word) ?? 0) + 1);
    const near = missing.map((word) => [word, [...known].map(([other, count]) => [distance(word, other), -count, other]).filter(([away]) => away <= (word.length > 6 ? 2 : 1))
      .sort((x, y) => x[0] - y[0] || x[1] - y[1])[0]?.[2]]).filter(([, other]) => other);
    return near.reduce((text, [word, other]) => text.replace(word, other), near.length ? fold(query) : "");
  }

  function distance(a, b) { // letters to insert, to leave out, to change, or to exchange with their neighbour
    if (Math.abs(a.length - b.length) > 2) return 3;
    const rows = [[...Array(b.length + 1).keys()]];
    for (let i = 1; i <= a.length; i += 1) {
      rows.push([i]);
      for (let j = 1; j <= b.length; j += 1) {
        const costs = [rows[i - 1][j] + 1, rows[i][j - 1] + 1, rows[i - 1][j - 1] + (a[i - 1] === b[j - 1] ? 0 : 1)];
        if (i > 1 && j > 1 && a[i - 1] === b[j - 2] && a[i - 2] === b[j - 1]) costs.push(rows[i - 2][j - 2] + 1);
        rows[i].push(Math.min(...costs));
      }
    }
    return rows[a.length][b.length];
  }

  /* Results by kind: the kind with the best result first, equations, exercises, notebooks and the library last. */
  function grouped(found, asked, told, words) {
    const close = new Set([...asked, ...told].map((e) => e.key));
    const all = [...asked.map((e) => ({ kind: e.kind, page: e.page, name: e.name, sections: [{ ...e, words }] })), ...found.filter((one) => !close.has(one.sections[0].key))];
    const groups = Map.groupBy ? Map.groupBy(all, (one) => one.kind) : all.reduce((map, one) => map.set(one.kind, [...(map.get(one.kind) ?? []), one]), new Map());
    const rank = (kind) => (asked[0]?.kind === kind ? -2 : AFTER.indexOf(kind));
    return [...groups].sort(([x], [y]) => rank(x) - rank(y)); // stable: the others stand as they were found
  }

  function shown(one) {
    const item = document.createElement("li"), heading = document.createElement("p"), [first] = one.sections;
    const number = one.page.match(/^(\d\d)-/), name = `${number ? `${Number(number[1])} · ` : ""}${one.name}`;
    item.append(heading);
    if (Object.values(SINGLE).includes(one.kind)) {
      heading.append(link(first, first.title), number ? ` in ${name}` : "");
      item.append(snippet(first));
      return item;
    }
    heading.append(link({ ...first, at: 0 }, name));
    for (const section of one.sections.slice(0, one.kind === "chapter" || LISTS[one.page] > 1 ? SECTIONS : 1)) {
      const part = document.createElement("div");
      if (section.at) part.append(link(section, section.title));
      part.append(snippet(section));
      item.append(part);
    }
    return item;
  }

  function group([kind, results]) {
    const part = document.createElement("section"), heading = document.createElement("h2"), at = SHOWN[kind] ?? OTHERS;
    heading.textContent = HEADINGS[kind];
    part.dataset.kind = kind;
    const list = (some) => { const made = document.createElement("ol"); made.append(...some.map(shown)); return made; };
    part.append(heading, list(results.slice(0, at)));
    if (results.length > at) {
      const rest = document.createElement("details"), words = document.createElement("summary");
      words.textContent = `${results.length - at} more`;
      rest.append(words);
      rest.addEventListener("toggle", () => { if (rest.children.length < 2) rest.append(list(results.slice(at))); });
      part.append(rest);
    }
    return part;
  }

  /* Where to look if nothing was found. */
  function nextSteps() {
    const line = document.createElement("p");
    const steps = [["glossary.html", "the glossary"], ["questions.html", "frequent questions"], ["map.html", "the map of the chapters"], ["one-page.html", "the whole book on one page"]];
    line.append("Try another word, or look into ", ...steps.flatMap(([href, words], i) => [i ? (i < steps.length - 1 ? ", " : ", or ") : "", Object.assign(document.createElement("a"), { href, textContent: words })]), ".");
    return line;
  }

  let entries;
  function show(query) {
    entries ??= index(window.minirlhfPages);
    const words = wordsOf(query).length, told = words ? meanings(entries, query) : [], found = search(entries, query), near = words ? spelledNearly(entries, query) : "";
    const asked = words && !told.length ? [...equations(entries, query), ...symptoms(entries, query)] : [], count = new Set([...found.map((one) => one.sections[0].key), ...asked.map((e) => e.key)]).size;
    document.getElementById("search-words").value = query;
    const status = document.getElementById("search-told");
    status.dataset.found = count;
    status.textContent = !words ? "" : `${count || "No"} ${count === 1 ? "result" : "results"} for “${query}”${HAN.test(query) && told.length ? ` (${told[0].names[0]})` : ""}.`;
    if (near) {
      const other = Object.assign(document.createElement("a"), { href: `?q=${encodeURIComponent(near)}`, textContent: near });
      status.append(" Did you mean ", other, "?");
    }
    document.getElementById("search-meaning").replaceChildren(...told.slice(0, MEANINGS).map((entry) => {
      const line = document.createElement("p");
      line.append(link(entry, entry.title), `: ${entry.text}`);
      return line;
    }));
    document.getElementById("search-found").replaceChildren(...(count ? grouped(found, asked, told, wordsOf(query)).map(group) : words ? [nextSteps()] : []));
  }

  window.minirlhfSearch = show;
  addEventListener("DOMContentLoaded", () => {
    const query = new URLSearchParams(location.search).get("q") ?? "";
    show(query);
    document.getElementById("search-words").focus();
  });
})();
