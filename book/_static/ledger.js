/* The ledger's page: its equations by chapter and by words. Without JavaScript all of them are shown. */
addEventListener("DOMContentLoaded", () => {
  "use strict";
  const whole = document.querySelector(".ledger-entries");
  if (!whole) return;
  const chapterOf = (entry) => Number([...entry.classList].find((name) => name.startsWith("of-chapter-")).slice("of-chapter-".length));
  const entries = [...whole.children].map((entry) => ({ entry, chapter: chapterOf(entry), words: entry.textContent.toLowerCase() }));
  const make = (tag, properties) => Object.assign(document.createElement(tag), properties);
  const form = make("form", { className: "ledger-filter" }), told = make("output", {});
  const chapter = make("select", { id: "ledger-chapter" }), words = make("input", { id: "ledger-words", type: "search" });
  chapter.append(make("option", { value: "0", textContent: "all" }),
    ...[...new Set(entries.map((e) => e.chapter))].sort((a, b) => a - b).map((n) => make("option", { value: n, textContent: n })));
  form.append(make("label", { htmlFor: chapter.id, textContent: "Chapter" }), chapter, make("label", { htmlFor: words.id, textContent: "Words" }), words, told);
  const show = () => {
    const asked = words.value.toLowerCase().split(/\s+/).filter(Boolean), only = Number(chapter.value);
    let shown = 0;
    for (const e of entries) {
      const fits = (!only || e.chapter === only) && asked.every((word) => e.words.includes(word));
      e.entry.hidden = !fits;
      shown += fits;
    }
    told.textContent = `${shown} of ${entries.length} equations`;
  };
  form.addEventListener("input", show);
  form.addEventListener("submit", (event) => event.preventDefault());
  whole.before(form);
  show();
});
