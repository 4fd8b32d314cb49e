/* A chapter as a lecture: its own sections, formulas, tables and figures slide by slide, with the first sentence of each paragraph above them
   and the paragraphs as notes for the speaker. Nothing is copied to another file, so that figures still move and questions still wait for an
   answer. `lecture` below the title begins it, or `?lecture` at the end of the address; arrows turn, N shows the notes, Escape ends it. */
(() => {
  "use strict";
  const LEFT_OUT = /^(names-elsewhere|references|exercises)/;
  const FURNITURE = ".section-end, .proof-marks, .chapter-links, .run-fold, script, .derived-in, h1, h2, h3, h4, p:has(> button:only-child)";
  const POINTS = 4; // sentences above a block, or on a slide without one
  const GOES_ON = /^\p{Ll}/u; // a paragraph in which a sentence goes on behind a formula: a note, no point
  const SHORT = 30; // letters: a shorter sentence is taken with the next
  const make = (tag, name, words = "") => Object.assign(document.createElement(tag), { className: name, textContent: words });

  function firstSentence(paragraph) { // it ends with a full stop and a capital behind it, outside of formulas and of what is printed bold to lead
    const range = document.createRange(), walker = document.createTreeWalker(paragraph, NodeFilter.SHOW_TEXT);
    range.selectNodeContents(paragraph);
    for (let text; (text = walker.nextNode());) {
      if (text.parentElement.closest(".math, mjx-container, code") || text.parentElement.matches("p > :is(strong, em):first-child")) continue;
      for (const end of text.data.matchAll(/(?<!\b(?:e\.g|i\.e|al|vs|Fig|Eq))[.!?][”"’)]?(?=\s+\p{Lu}|\s*$)/gu)) {
        range.setEnd(text, end.index + end[0].length);
        if (range.toString().length >= SHORT) return range.cloneContents();
      }
    }
    range.selectNodeContents(paragraph);
    return range.cloneContents();
  }

  function blocks(section, title) { // what stands in a section and in those within it, in its order
    return [...section.children].flatMap((part) => {
      if (part.matches("section")) return LEFT_OUT.test(part.id) ? [] : blocks(part, part.querySelector(":scope > h2, :scope > h3, :scope > h4") ?? title);
      return part.matches(FURNITURE) || (!part.matches("p") && !part.offsetHeight) ? [] : [{ part, title }];
    });
  }

  function cut(article) { // slides: a title, paragraphs, and at most one block; a last paragraph of a section joins the slide before it
    const slides = [];
    for (const { part, title } of blocks(article, article.querySelector("h1"))) {
      let slide = slides.at(-1);
      const text = part.matches("p"), goesOn = text && GOES_ON.test(part.textContent), formula = (one) => one?.matches("div.math"), next = slide?.parts.length === 1 && formula(slide.parts[0]) && formula(part);
      const full = slide && !goesOn && (text ? slide.parts.length || slide.texts.length === POINTS : slide.parts.length && !next);
      if (!slide || slide.title !== title || full) {
        const before = slides.at(-2);
        if (slide?.texts.length === 1 && !slide.parts.length && before?.title === slide.title && slide.title !== title && before.texts.length < POINTS) before.texts.push(...slides.pop().texts);
        slides.push(slide = { title, texts: [], parts: [] });
      }
      slide[text ? "texts" : "parts"].push(part);
    }
    return slides;
  }

  const plain = (node) => { // a copy has no names of its own
    for (const part of node.querySelectorAll("[id]")) part.removeAttribute("id");
    for (const part of node.querySelectorAll(".headerlink, .copy-button")) part.remove();
    return node;
  };

  function prepare(slide) {
    const head = make("div", "slide-head in-lecture"), title = make("p", "slide-title");
    title.append(...plain(slide.title.cloneNode(true)).childNodes);
    head.append(title);
    const points = slide.texts.filter((text) => !GOES_ON.test(text.textContent)).map(firstSentence);
    if (points.length) {
      const list = make("ul", "slide-points");
      for (const point of points) {
        const item = document.createElement("li");
        item.append(plain(point));
        list.append(item);
      }
      head.append(list);
    }
    const notes = make("aside", "slide-notes in-lecture");
    notes.append(...slide.texts.map((text) => plain(text.cloneNode(true))));
    for (const part of slide.parts) part.classList.add("in-lecture");
    (slide.texts[0] ?? slide.parts[0]).before(head);
    (slide.parts.at(-1) ?? slide.texts.at(-1)).after(notes);
    Object.assign(slide, { head, notes });
  }

  let slides = null, at = 0, bar, panel;
  const article = () => document.querySelector("article.bd-article > section");
  function show(to) {
    at = Math.max(0, Math.min(to, slides.length - 1));
    slides.forEach((slide, i) => [slide.head, ...slide.parts].forEach((part) => part.classList.toggle("on-slide", i === at)));
    bar.firstChild.textContent = `${at + 1} of ${slides.length}`;
    panel.replaceChildren(...slides[at].notes.cloneNode(true).childNodes);
    dispatchEvent(new Event("resize")); // figures and formulas measure their place, and fit() the slide
    scrollTo(0, 0);
  }
  function fit() { // a slide that is too tall becomes smaller, to half its size; what is taller still scrolls
    const page = article(), room = innerHeight - bar.offsetHeight - panel.offsetHeight - 40;
    for (let size = 1; size >= 0.5; size -= 0.05) {
      page.style.zoom = size;
      if (page.getBoundingClientRect().height <= room) break;
    }
  }
  function begin() {
    if (slides) return;
    window.minirlhfTypeset?.();
    slides = cut(article());
    slides.forEach(prepare);
    bar = make("div", "lecture-bar");
    bar.append(make("span", "lecture-count"));
    for (const [words, label, act] of [["←", "previous slide", () => show(at - 1)], ["→", "next slide", () => show(at + 1)], ["notes", "notes for the speaker", notes], ["end", "end the lecture", end]]) {
      const button = make("button", "", words);
      button.type = "button";
      button.setAttribute("aria-label", label);
      button.addEventListener("click", act);
      bar.append(button);
    }
    panel = make("aside", "lecture-panel");
    panel.setAttribute("aria-label", "notes for the speaker");
    document.body.append(panel, bar);
    document.body.classList.add("lecture");
    addEventListener("keydown", keys);
    addEventListener("resize", fit);
    show(0);
  }
  function notes() {
    document.body.classList.toggle("lecture-notes");
    fit();
  }
  function end() {
    removeEventListener("keydown", keys);
    removeEventListener("resize", fit);
    document.body.classList.remove("lecture", "lecture-notes");
    article().style.zoom = "";
    const place = slides[at].title;
    for (const slide of slides) [slide.head, slide.notes].forEach((part) => part.remove());
    document.querySelectorAll(".in-lecture").forEach((part) => part.classList.remove("in-lecture", "on-slide"));
    bar.remove();
    panel.remove();
    slides = null;
    place.scrollIntoView();
  }
  function keys(event) {
    if (event.altKey || event.ctrlKey || event.metaKey || event.target.closest?.("input, select, textarea, [role=slider]")) return;
    const step = { ArrowRight: 1, PageDown: 1, ArrowLeft: -1, PageUp: -1 }[event.key];
    if (step) show(at + step);
    else if (event.key === "n" || event.key === "N") notes();
    else if (event.key === "Escape") end();
    else return;
    event.preventDefault();
  }

  document.addEventListener("DOMContentLoaded", () => {
    const [links, another] = document.querySelectorAll("article .chapter-links");
    if (!links || another) return; // the page of one chapter
    const place = make("span", "lecture-link", " · "), button = make("button", "", "lecture");
    button.type = "button";
    button.addEventListener("click", begin);
    place.append(button);
    links.append(place);
    if (new URLSearchParams(location.search).has("lecture")) addEventListener("load", () => Promise.resolve(window.MathJax?.startup?.promise).then(begin));
  });
})();
