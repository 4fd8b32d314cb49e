/* Small helps for reading: code can be copied, an equation or a term is shown where it is referred to, and a section can be ticked off.
   Ticks are kept in this browser and go nowhere else; without JavaScript none of this is there, and nothing is missing. */
(() => {
  "use strict";
  const PLACE = "minirlhf-sections";
  const load = () => { try { return JSON.parse(localStorage.getItem(PLACE)) ?? {}; } catch { return {}; } };
  const save = (kept) => { try { localStorage.setItem(PLACE, JSON.stringify(kept)); } catch { /* a browser that keeps nothing */ } };
  const button = (name, words, label) => {
    const made = document.createElement("button");
    Object.assign(made, { type: "button", className: name, textContent: words });
    if (label) made.setAttribute("aria-label", label);
    return made;
  };

  function copies(part) { // navigator.clipboard is missing where a page was opened from a file
    for (const block of part.querySelectorAll("div.highlight > pre, p.run-this > code")) {
      if (block.closest(".output")) continue;
      const words = block.textContent, copy = button("copy-button", "copy", "copy this code");
      copy.addEventListener("click", async () => {
        try {
          await navigator.clipboard.writeText(words.trimEnd());
          copy.textContent = "copied";
        } catch {
          getSelection().selectAllChildren(block);
          copy.textContent = "selected";
        }
        setTimeout(() => { copy.textContent = "copy"; }, 1500);
      });
      if (block.matches("code")) {
        copy.setAttribute("aria-label", `copy ${words}`);
        block.after(copy);
        continue;
      }
      block.parentElement.classList.add("can-be-copied");
      block.parentElement.append(copy);
    }
  }

  /* What a proof mark holds stands in a script beside the page, because it weighs more than the page; a script is what a page may load from a folder too. */
  const waiting = new Map();
  window.minirlhfKept = (page, inside) => { waiting.get(page)?.resolve(inside); };
  function kept(place) {
    const page = place.dataset.from.match(/proofs\/\w+\/(.*)\.js$/)[1];
    if (!waiting.has(page)) {
      const one = {};
      one.promise = new Promise((yes, no) => { Object.assign(one, { resolve: yes, reject: no }); });
      waiting.set(page, one);
      const script = document.createElement("script");
      script.src = place.dataset.from;
      script.addEventListener("error", () => { waiting.delete(page); one.reject(new Error(`${place.dataset.from} is not there`)); });
      document.head.append(script);
    }
    return waiting.get(page).promise;
  }
  function marks() {
    document.addEventListener("toggle", async (event) => {
      const place = event.target.open && event.target.querySelector(":scope > .proof-kept:empty");
      if (!place) return;
      try {
        place.innerHTML = (await kept(place))[place.dataset.key];
        copies(place);
        await window.MathJax?.typesetPromise?.([place]);
      } catch (problem) {
        place.textContent = `${problem.message}. The command below shows the same.`;
      }
    }, true);
  }

  /* What a link to an equation or to a term leads to, beside the link: under the mouse, at the focus of the keyboard, and at the first touch
     of a finger, whose second follows the link. Equations of other pages stand in a script that is loaded when the first is asked for. */
  const HERE = document.currentScript.src;
  let others;
  function elsewhere() {
    others ??= new Promise((yes, no) => {
      const script = document.createElement("script");
      script.src = new URL("equations.js", HERE).href;
      script.addEventListener("load", () => yes(window.minirlhfEquations));
      script.addEventListener("error", () => { others = undefined; no(new Error("equations.js is not there")); });
      document.head.append(script);
    });
    return others;
  }
  async function inside(link, meaning) { // what is shown; nothing where there is nothing
    if (meaning) return [Object.assign(document.createElement("p"), { textContent: meaning })];
    const place = link.getAttribute("href");
    if (place.startsWith("#")) {
      const equation = document.getElementById(place.slice(1));
      if (equation) window.minirlhfTypeset?.(equation);
      const target = equation?.querySelector("mjx-container");
      return target && [target.cloneNode(true)];
    }
    const tex = window.MathJax?.typeset && (await elsewhere())[link.href.slice(new URL("../", HERE).href.length)];
    if (!tex) return undefined;
    const formula = Object.assign(document.createElement("div"), { className: "math", textContent: tex });
    document.body.append(formula); // MathJax measures what stands on the page
    window.MathJax.typeset([formula]);
    formula.remove();
    return [...formula.children];
  }
  function popovers() {
    const shown = document.createElement("div");
    Object.assign(shown, { className: "equation-shown", hidden: true, id: "equation-shown" });
    shown.setAttribute("role", "tooltip");
    document.body.append(shown);
    let at = null, leaving;
    const hide = () => {
      clearTimeout(leaving);
      at?.removeAttribute("aria-describedby");
      at = null;
      shown.hidden = true;
    };
    const leave = () => { clearTimeout(leaving); leaving = setTimeout(hide, 200); }; // time to reach what is shown, and to scroll it
    const put = (link, parts) => {
      shown.replaceChildren(...parts);
      shown.hidden = false;
      link.setAttribute("aria-describedby", shown.id);
      beside(link);
    };
    const beside = (link) => {
      const box = link.getBoundingClientRect();
      shown.style.left = `${Math.max(8, Math.min(box.left, innerWidth - shown.offsetWidth - 8))}px`;
      shown.style.top = box.bottom + shown.offsetHeight + 12 < innerHeight ? `${box.bottom + 6}px` : `${box.top - shown.offsetHeight - 6}px`;
    };
    for (const link of document.querySelectorAll('article a[href*="#equation-"]:not(.headerlink), article a[href*="glossary.html#term-"][title]')) {
      const meaning = link.title; // the browser's own would stand beside ours
      link.removeAttribute("title");
      const show = async () => {
        clearTimeout(leaving);
        if (at === link) return;
        hide();
        at = link;
        const parts = await inside(link, meaning).catch(() => undefined);
        if (at === link && parts) put(link, parts);
      };
      link.addEventListener("mouseenter", show);
      link.addEventListener("focus", show);
      link.addEventListener("mouseleave", leave);
      link.addEventListener("blur", leave);
      let finger = false, open = false;
      link.addEventListener("pointerdown", (event) => { finger = event.pointerType === "touch"; open = at === link && !shown.hidden; });
      link.addEventListener("click", (event) => {
        if (!finger || open) return;
        event.preventDefault();
        show();
      });
    }
    shown.addEventListener("mouseenter", () => clearTimeout(leaving));
    shown.addEventListener("mouseleave", leave);
    shown.addEventListener("pointerdown", () => setTimeout(() => clearTimeout(leaving)));
    addEventListener("pointerdown", (event) => { if (at && !shown.contains(event.target) && !at.contains(event.target)) hide(); });
    addEventListener("keydown", (event) => { if (event.key === "Escape") hide(); });
    addEventListener("scroll", () => { // the keyboard scrolls to what it reaches
      const box = at?.getBoundingClientRect();
      if (!box || shown.hidden) return;
      if (box.bottom < 0 || box.top > innerHeight) hide(); else beside(at);
    }, { passive: true });
  }

  function ticks() {
    const furniture = /^(summary|common-bugs|names-elsewhere|exercises|references)/; // what every chapter ends with is looked up
    const sections = [...document.querySelectorAll("article section > section[id]")].filter((s) => s.querySelector(":scope > h2") && !furniture.test(s.id));
    const page = document.querySelector("article section[id]")?.id;
    if (!/^\/?.*\d\d-[\w-]+\.html$/.test(location.pathname) || sections.length < 2) return; // chapters only
    const kept = load(), name = (section) => `${page}#${section.id}`, file = location.pathname.split("/").pop();
    const whole = () => { // a chapter whose sections are all read has a tick itself, in the sidebar and on its card
      const read = sections.every((section) => kept[name(section)]);
      if (read === Boolean(kept[file])) return;
      if (read) kept[file] = true; else delete kept[file];
      save(kept);
      chapters(kept);
    };
    for (const section of sections) {
      const tick = button("section-tick", ""), link = document.querySelector(`nav.page-toc a[href="#${CSS.escape(section.id)}"], #pst-page-toc-nav a[href="#${section.id}"]`);
      const show = () => {
        const read = Boolean(kept[name(section)]);
        tick.textContent = read ? "\u2713 read" : "mark as read";
        tick.setAttribute("aria-pressed", String(read));
        link?.classList.toggle("is-read", read);
      };
      tick.addEventListener("click", () => {
        if (kept[name(section)]) delete kept[name(section)]; else kept[name(section)] = true;
        save(kept);
        show();
        whole();
      });
      const end = document.createElement("p");
      end.className = "section-end";
      end.append(tick);
      section.append(end);
      show();
    }
    whole();
  }
  function chapters(kept = load()) {
    for (const link of document.querySelectorAll(".bd-sidebar-primary .toctree-l1 > a, .card-title a")) {
      link.classList.toggle("is-read", Boolean(kept[link.href.split("#")[0].split("/").pop()]));
    }
  }
  function inSight() { // the theme scrolls the sidebar to where it was on the page before
    const bar = document.querySelector(".bd-sidebar-primary"), here = bar?.querySelector("li.current.active > a, a.current");
    if (!here) return;
    const box = here.getBoundingClientRect(), frame = bar.getBoundingClientRect();
    if (box.top < frame.top + 40 || box.bottom > Math.min(frame.bottom, innerHeight) - 40) bar.scrollTop += box.top - frame.top - frame.height / 3;
  }

  function scrolls() { // what scrolls across is reached by the keyboard, too, and fades where it goes on
    const WIDE = "div.math > mjx-container, div.highlight > pre, .figure-across, figure.map, .recipe-table, .pst-scrollable-table-container";
    const edges = (part) => {
      const left = part.scrollLeft > 1, right = part.scrollLeft + part.clientWidth < part.scrollWidth - 1;
      part.classList.toggle("more-left", left);
      part.classList.toggle("more-right", right);
      const tight = part.matches("mjx-container") && part.firstElementChild?.getBoundingClientRect().width > part.clientWidth - 24; // with other letters it may scroll
      if (left || right || tight) part.tabIndex = 0; else if (part.matches("mjx-container")) part.removeAttribute("tabindex");
    };
    const EQUATION = "section > div.math:has(> .eqno):has(+ .proof-marks)";
    const numbers = (place) => { // the number of an equation that leaves no room for it in the column stands below, at the column's edge
      const found = [...place.querySelectorAll(EQUATION), ...(place.matches?.(EQUATION) ? [place] : [])];
      found.forEach((e) => e.classList.remove("past-column"));
      const past = innerWidth > 700 ? found.filter((e) => e.querySelector("mjx-container") && e.offsetWidth > e.nextElementSibling.offsetWidth + 1) : [];
      past.forEach((e) => e.classList.add("past-column"));
    };
    const all = (place = document) => {
      numbers(place);
      [...place.querySelectorAll(WIDE)].forEach(edges);
    };
    document.addEventListener("minirlhf:typeset", (event) => event.detail.filter((e) => e.matches("div")).forEach((e) => all(e))); // mathematics.js
    document.fonts?.addEventListener("loadingdone", () => all()); // a formula is as wide as its letters, which come later
    document.addEventListener("toggle", (event) => all(event.target), true);
    document.addEventListener("scroll", ({ target }) => { if (target.matches?.(WIDE)) edges(target); }, { capture: true, passive: true });
    window.MathJax?.startup?.promise?.then(() => all()); // on the one page
    addEventListener("resize", () => all());
    all();
  }

  function panels() { // phone_figures.py says where a wide figure is cut; the style sheet shows the parts on a phone and the whole elsewhere
    for (const whole of document.querySelectorAll("img.wide")) {
      const at = [...whole.classList].filter((name) => name.startsWith("cut-")).map((name) => Number(name.slice(4)) / 1000);
      if (!at.length) {
        const across = document.createElement("div"), shown = whole.closest("figure > a") ?? whole;
        across.className = "figure-across";
        shown.replaceWith(across);
        across.append(shown);
        continue;
      }
      const parts = document.createElement("span");
      parts.className = "figure-panels";
      parts.setAttribute("aria-hidden", "true"); // the whole is still there for those who hear it
      const cut = () => {
        const asked = /^(\d+)(?:px)?$/.exec(whole.style.width || whole.getAttribute("width") || ""), wide = asked ? Number(asked[1]) : whole.naturalWidth;
        [0, ...at].forEach((from, i) => {
          const share = (at[i] ?? 1) - from, part = document.createElement("span");
          const rows = [...whole.classList].find((name) => name.startsWith(`rows-${i}-`)), [top, end] = rows ? rows.split("-").slice(2).map((n) => n / 1000) : [0, 1];
          const tall = end - top;
          part.className = `figure-panel ${whole.classList.contains("as-drawn") ? "as-drawn" : ""}`;
          Object.assign(part.style, {
            maxWidth: `${1.3 * share * wide}px`, aspectRatio: `${share * whole.naturalWidth} / ${tall * whole.naturalHeight}`,
            backgroundImage: `url("${whole.src}")`, backgroundSize: `${100 / share}% ${100 / tall}%`,
            backgroundPosition: `${(100 * from) / (1 - share)}% ${tall < 1 ? (100 * top) / (1 - tall) : 0}%`,
          });
          parts.append(part);
        });
        whole.after(parts);
      };
      if (whole.complete) cut(); else whole.addEventListener("load", cut);
    }
  }

  function unfold() { // a link to an exercise opens it
    const target = document.getElementById(decodeURIComponent(location.hash.slice(1)));
    if (target?.localName === "details") target.open = true;
  }
  addEventListener("hashchange", unfold);
  document.addEventListener("DOMContentLoaded", () => { unfold(); panels(); copies(document.querySelector("article") ?? document.body); marks(); popovers(); ticks(); });
  addEventListener("load", () => { scrolls(); chapters(); inSight(); });
})();
