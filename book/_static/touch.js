/* Figures that one can touch. Each is computed here from its data and what is set, as `book/figures/NAME.js` says, and only the shapes
   are drawn anew: axes and legends stand in the page. What Python finds at the same settings is loaded when the mark is opened. */
window.touch ??= (() => {
  "use strict";
  const compute = {}, waiting = {}; // waiting: for what Python found, by figure

  // -- mathematics that figures share -------------------------------------------------------------------------
  const sum = (values) => values.reduce((s, v) => s + v, 0);
  const dot = (a, b) => a.reduce((s, v, i) => s + v * b[i], 0);
  const range = (n, f = (i) => i) => Array.from({ length: n }, (_, i) => f(i));
  const linspace = (low, high, n) => range(n, (i) => low + ((high - low) * i) / (n - 1));
  const logsumexp = (values) => {
    const most = Math.max(...values);
    return most + Math.log(sum(values.map((v) => Math.exp(v - most))));
  };
  const softmax = (values) => {
    const whole = logsumexp(values);
    return values.map((v) => Math.exp(v - whole));
  };
  const sigmoid = (z) => 1 / (1 + Math.exp(-z));
  const divergence = (p, q) => sum(p.map((v, i) => (v > 0 ? v * Math.log(v / q[i]) : 0)));

  // -- drawing: `shape` is that of book/_ext/figures.py --------------------------------------------------------
  const place = (value, [low, high], log) =>
    !log ? (value - low) / (high - low)
      : value > 0 ? (Math.log(value) - Math.log(low)) / (Math.log(high) - Math.log(low)) : -1e6;

  function shape(panel, mark, value, { across, up, radius: r }) {
    const at = (xs, ys) => xs.map((x, i) => [
      across * place(x, panel.xlim, panel.log.includes("x")), up * (1 - place(ys[i], panel.ylim, panel.log.includes("y")))]);
    const n = (v) => v.toFixed(2);
    if (mark.kind === "bars") {
      const side = (0.4 * across) / (panel.xlim[1] - panel.xlim[0]);
      const base = up * (1 - place(Math.max(0, panel.ylim[0]), panel.ylim, false));
      return at(range(value.length), value)
        .map(([x, y]) => `M${n(x - side)} ${n(base)}V${n(y)}h${n(2 * side)}V${n(base)}z`).join("");
    }
    const found = at(...value);
    const cell = Math.min(across / (panel.xlim[1] - panel.xlim[0]), up / Math.abs(panel.ylim[1] - panel.ylim[0]));
    if (mark.kind === "squares") {
      return found.map(([x, y], i) => {
        const a = cell * value[2][i];
        return `M${n(x - a / 2)} ${n(y - a / 2)}h${n(a)}v${n(a)}h${n(-a)}z`;
      }).join("");
    }
    if (mark.kind === "arrows") {
      return found.map(([x, y], i) => {
        const [dx, dy] = [[0, -1], [1, 0], [0, 1], [-1, 0]][value[2][i]], head = 0.1 * cell;
        const [tx, ty] = [x + 0.42 * cell * dx, y + 0.42 * cell * dy];
        const side = (s) => `${n(tx - head * (dx + s * dy))} ${n(ty - head * (dy + s * dx))}`;
        return `M${n(x)} ${n(y)}L${n(tx)} ${n(ty)}M${side(1)}L${n(tx)} ${n(ty)}L${side(-1)}`;
      }).join("");
    }
    if (mark.kind === "points") {
      return found.map(([x, y]) => `M${n(x - r)} ${n(y)}a${r} ${r} 0 1 0 ${2 * r} 0a${r} ${r} 0 1 0 ${-2 * r} 0`).join("");
    }
    return found.map(([x, y], i) => `${i ? "L" : "M"}${n(x)} ${n(y)}`).join("");
  }

  // -- comparing ------------------------------------------------------------------------------------------------
  function distance(found, want) { // the largest difference of two values of the same form; words must be the same
    if (Array.isArray(want)) {
      if (!Array.isArray(found) || found.length !== want.length) return Infinity;
      return want.reduce((worst, w, i) => Math.max(worst, distance(found[i], w)), 0);
    }
    if (typeof want !== "number") return found === want ? 0 : Infinity;
    if (typeof found !== "number") return Infinity;
    const apart = Math.abs(found - want) / Math.max(1, Math.abs(want));
    return Number.isNaN(apart) ? Infinity : apart;
  }
  const apart = (found, want) => Object.keys(want).reduce((worst, key) => Math.max(worst, distance(found[key], want[key])), 0);

  // -- one figure on a page ---------------------------------------------------------------------------------------
  function start(root) {
    const name = root.dataset.figure, spec = JSON.parse(root.querySelector("script").textContent);
    if (!compute[name]) return; // its script is missing: the picture stays as it is printed, without controls
    const inputs = spec.controls.map(({ name: n }) => root.querySelector(`.touch-controls [name="${n}"]`));
    const state = { ...spec.start };
    function show() {
      const found = compute[name](spec.data, state);
      root.querySelectorAll(".touch-panel").forEach((panel, i) => {
        const paths = panel.querySelectorAll("[data-series]");
        spec.panels[i].marks.forEach((mark, j) => {
          paths[j].setAttribute("d", shape(spec.panels[i], mark, found[mark.series], spec.size));
        });
      });
      for (const [key, digits] of Object.entries(spec.digits)) {
        const value = found[key], place = root.querySelector(`[data-value="${key}"]`);
        const text = digits === null ? value : value.toFixed(digits);
        place.textContent = digits === null ? text : text.replace("-", Number(text) ? "\u2212" : "");
      }
    }
    const set = (input, control) => { // a slider gives the place of its value among the values
      const at = input.type === "range" ? Number(input.value) : control.values.indexOf(input.value);
      state[control.name] = control.values[at];
      if (input.type === "range") {
        input.parentElement.querySelector("output").textContent = control.texts[at];
        input.setAttribute("aria-valuetext", control.texts[at]);
      }
    };
    const panels = root.querySelector(".touch-panels"), description = panels.getAttribute("aria-label");
    const moved = () => { // who does not see the picture hears its numbers, and no longer what it was at the start
      show();
      const atStart = spec.controls.every(({ name: n }) => state[n] === spec.start[n]);
      const read = [...root.querySelectorAll(".touch-readings > div")].map((one) => [...one.children].map((e) => e.textContent).join(" "));
      panels.setAttribute("aria-label", atStart ? description : `As it is set now: ${read.join("; ")}.`);
    };
    inputs.forEach((input, i) => input.addEventListener("input", () => { set(input, spec.controls[i]); moved(); }));
    const go = (to) => {
      inputs.forEach((input, i) => {
        const control = spec.controls[i], at = control.values.indexOf(to[control.name]);
        input.value = input.type === "range" ? at : control.values[at];
        set(input, control);
      });
      moved();
    };
    root.querySelector(".touch-controls button").addEventListener("click", () => go(spec.start));
    root.addEventListener("asked", () => go({ ...spec.start, ...spec.shows }));
    const mark = root.querySelector(".touch-mark");
    mark.addEventListener("toggle", () => {
      if (!mark.open || mark.dataset.asked) return;
      mark.dataset.asked = "yes";
      (waiting[name] ??= []).push((told) => {
        const worst = Math.max(...told.map(([at, want]) => apart(compute[name](spec.data, at), want)));
        const good = worst <= spec.tolerance, count = told.length;
        mark.classList.add(good ? "passed" : "failed");
        mark.querySelector("summary").textContent =
          `${good ? "\u2713" : "\u2717"} held against Python at ${count} settings \u00b7 largest difference ${worst.toExponential(0)}`;
        mark.querySelector("p").textContent =
          "The library, in Python, computed every curve and every reading of this figure at the setting with which it starts and at " +
          `${count - 1} others, drawn when the page was built. Your browser has just computed the same; the largest difference, of any ` +
          `point of any curve or any number, is ${worst.toExponential(1)} (allowed: ${spec.tolerance.toExponential(0)}).`;
      });
      const script = document.createElement("script");
      script.src = `${root.dataset.folder}/${name}.held.js`;
      script.onerror = () => { delete mark.dataset.asked; mark.querySelector("p").textContent = "What Python found could not be loaded."; };
      document.head.append(script);
    });
    inputs.forEach((input, i) => set(input, spec.controls[i])); // a browser may have kept what was set before
    if (spec.controls.some(({ name: n }) => state[n] !== spec.start[n])) moved();
    else if (root.closest(".touch-whole.is-answered")) go({ ...spec.start, ...spec.shows });
    root.querySelector(".touch-controls").hidden = false;
    mark.hidden = false;
    root.touch = { state, show, shapes: () => [...root.querySelectorAll("[data-series]")].map((path) => path.getAttribute("d")) };
  }
  document.addEventListener("DOMContentLoaded", () => document.querySelectorAll(".touch[data-figure]").forEach(start));

  return { compute, held: (name, told) => waiting[name].splice(0).forEach((use) => use(told)), apart, math: { sum, dot, range, linspace, logsumexp, softmax, sigmoid, divergence } };
})();
