/* MathJax typesets what is in the window first; the rest follows, nearest first, whenever the page has nothing else to do. So a page can
   be read at once, and soon all of it can be read aloud. What is printed is typeset before. Without JavaScript the TeX is there. */
(() => {
  "use strict";
  if (!window.MathJax) return; // a page without formulas
  const AT_A_TIME = 12, PATIENCE = 200; // formulas; milliseconds that they wait for a page that is always busy
  let waiting = [];

  function typeset(formulas) {
    const asked = new Set(formulas);
    waiting = waiting.filter((formula) => !asked.has(formula));
    if (!formulas.length) return;
    window.MathJax.typeset(formulas);
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
