/* MathJax typesets what is in the window first; the rest follows, nearest first, whenever the page has nothing else to do. So a page can
   be read at once, and soon all of it can be read aloud. What is printed is typeset before. Without JavaScript the TeX is there. */
(() => {
  "use strict";
  if (!window.MathJax) return; // a page without formulas
  const AT_A_TIME = 12, PATIENCE = 200; // formulas; milliseconds that they wait for a page that is always busy
  let waiting = [];

  /* On a phone a formula that is wider than its column becomes a little smaller, or is broken: before its relations, then before its signs.
     What is wider still becomes smaller again. Signs are told by their code points, because MathJax writes no text. */
  const NARROW = matchMedia("screen and (max-width: 700px)"), A_LITTLE = 0.85, LEAST = 0.5, INDENT = 1; // the indent of broken lines is in em
  const RELATIONS = /^(3C|3D|3E|2192|21D2|21D4|27F9|27FA|221D|223C|2248|2261|2264|2265)$/, SIGNS = /^(2B|2212|22C5|D7|B1)$/;
  const width = (part) => part.getBoundingClientRect().width;
  const code = (part) => (part.localName === "mjx-mo" ? /mjx-c([0-9A-F]+)/.exec(part.querySelector("mjx-c")?.className)?.[1] ?? "" : "");

  function pieces(row, signs) { // the parts of a row, each but the first with a sign in front
    const groups = [];
    for (const part of [...row.childNodes]) {
      if (!groups.length || (groups.at(-1).length && signs.test(code(part)))) groups.push([]);
      groups.at(-1).push(part);
    }
    if (groups.length < 2) return [];
    return groups.map((parts) => {
      const piece = document.createElement("span");
      piece.className = "math-piece";
      parts[0].before(piece);
      piece.append(...parts);
      return piece;
    });
  }

  const rooms = new WeakMap(); // the width for which a formula was fitted
  function fit(formula, anew = false) {
    const box = formula.querySelector(":scope > mjx-container[display]"), room = NARROW.matches ? box?.clientWidth : 0;
    if (!box || (rooms.get(formula) ?? 0) === room && !anew) return;
    const math = box.querySelector("mjx-math");
    rooms.set(formula, room);
    box.dataset.size ??= box.style.fontSize || "100%";
    box.style.fontSize = box.dataset.size;
    for (let piece; (piece = math.querySelector(".math-piece"));) piece.replaceWith(...piece.childNodes);
    math.classList.remove("is-broken");
    let widest = width(math);
    if (!room || widest <= room) return;
    if (room < A_LITTLE * widest) {
      let row = math;
      while (row.children.length === 1 && /^mjx-(mrow|mstyle|texatom|mpadded)$/.test(row.firstElementChild.localName)) row = row.firstElementChild;
      const parts = pieces(row, RELATIONS);
      for (const part of parts.length ? parts : [row]) if (width(part) > room && pieces(part, SIGNS).length && part !== row) part.replaceWith(...part.childNodes);
      const broken = [...math.querySelectorAll(".math-piece")];
      if (broken.length) {
        math.classList.add("is-broken");
        widest = Math.max(...broken.map(width)) + INDENT * parseFloat(getComputedStyle(math).fontSize);
      }
    }
    const smaller = Math.max(LEAST, Math.min(1, (room - 2) / widest));
    if (smaller < 1) box.style.fontSize = `${parseFloat(box.dataset.size) * smaller}%`;
  }
  const sizes = new ResizeObserver((entries) => entries.forEach(({ target }) => fit(target))); // a fold is opened, a phone is turned
  document.fonts?.addEventListener("loadingdone", () => document.querySelectorAll("div.math").forEach((formula) => { if (NARROW.matches) fit(formula, true); })); // a formula is as wide as its letters, which come later

  function typeset(formulas) {
    const asked = new Set(formulas);
    waiting = waiting.filter((formula) => !asked.has(formula));
    if (!formulas.length) return;
    window.MathJax.typeset(formulas);
    for (const formula of formulas) if (formula.localName === "div") { fit(formula); sizes.observe(formula); }
    document.dispatchEvent(new CustomEvent("minirlhf:typeset", { detail: formulas }));
  }

  function away(formula) { // pixels between a formula and the window; what is folded away comes last
    const box = formula.getClientRects().length ? formula.getBoundingClientRect() : null;
    return box ? Math.max(0, box.top - innerHeight, -box.bottom) : Infinity;
  }

  function nearest() {
    const far = waiting.map((formula) => [away(formula), formula]).sort((a, b) => a[0] - b[0]);
    const seen = far.filter(([pixels]) => pixels === 0);
    return (seen.length ? seen : far.slice(0, AT_A_TIME)).map(([, formula]) => formula);
  }

  const idle = window.requestIdleCallback ?? ((work) => setTimeout(work, 20));
  function rest() {
    typeset(nearest());
    if (waiting.length) idle(rest, { timeout: PATIENCE });
  }

  /* All that waits, or what waits in one place, now. */
  window.minirlhfTypeset = (place = document) => typeset(waiting.filter((formula) => place.contains(formula)));
  window.MathJax.startup = {
    ...window.MathJax.startup,
    pageReady: () => { // MathJax's own promise is kept when what is in the window stands
      waiting = [...document.querySelectorAll(".math")];
      typeset(waiting.filter((formula) => away(formula) === 0));
      addEventListener("beforeprint", () => window.minirlhfTypeset());
      if (waiting.length) idle(rest, { timeout: PATIENCE });
    },
  };
})();
