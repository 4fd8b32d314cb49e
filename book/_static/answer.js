/* Exercises that are answered in the page: letters and numbers. The verdicts come from the tests of `minirlhf check`, run when the book was built; each is
   encrypted with the answer that it belongs to (minirlhf_course/classroom/in_page.py). Answers stay in this browser, or in the learning platform that
   `window.minirlhfStore` writes to. Without JavaScript the command remains. */
(() => {
  "use strict";
  const PLACE = "minirlhf-answers"; // by exercise: what was typed, by name
  const store = () => window.minirlhfStore ?? localStorage;
  const read = () => { try { return JSON.parse(store().getItem(PLACE)) ?? {}; } catch { return {}; } };
  const save = (all) => { try { store().setItem(PLACE, JSON.stringify(all)); } catch { /* a browser that keeps nothing */ } };
  const make = (tag, words = "", attributes = {}) => Object.assign(document.createElement(tag), { textContent: words, ...attributes });

  // The same steps as fnv, digest and encrypt of in_page.py.
  const bytes = (text) => new TextEncoder().encode(text);
  const fnv = (text) => bytes(text).reduce((value, byte) => Math.imul(value ^ byte, 0x01000193) >>> 0, 0x811c9dc5);
  const digest = (key) => [1, 2].map((n) => fnv(`${key}|${n}`).toString(16).padStart(8, "0")).join("");
  const decrypt = (key, hex) => new TextDecoder().decode(Uint8Array.from(hex.match(/../g), (pair, i) => parseInt(pair, 16) ^ ((fnv(`${key}|+${i}`) >>> 8) & 0xff)));

  function verdictOn(id, name, { options, verdicts, otherwise, unit, large }, typed) { // [passed, message, is it no answer?], or null where nothing was typed
    const given = (typed ?? "").trim();
    if (!given) return null;
    if (options.length) {
      const key = `${id}|${name}|${given}`, found = verdicts[digest(key)];
      return found ? JSON.parse(decrypt(key, found)) : [false, ""];
    }
    const percent = given.endsWith("%"), plain = window.minirlhfNumber(percent ? given.slice(0, -1) : given, 1000);
    const x = unit !== "%" ? plain / (percent ? 100 : 1) : !percent && large && Math.abs(plain) < 1 ? 100 * plain : plain; // as predict.js reads percents
    if (Number.isNaN(x)) return [false, "This is no number; write it as 0.25, 12 or 3e-4", true];
    for (const exponent of new Set(Object.keys(verdicts).map((one) => one.split(":")[0]))) {
      const key = `${id}|${name}|${exponent}:${Math.floor(x / 2 ** exponent)}`, found = verdicts[`${exponent}:${digest(key)}`];
      if (!found) continue;
      const [low, high, passed, message] = JSON.parse(decrypt(key, found));
      if (low <= x && x <= high) return [passed, message];
    }
    return [false, otherwise];
  }

  /* The tests' verdicts on these answers and the points: what `minirlhf check` says. */
  function judge(data, typed) {
    const tests = data.tests.map((test) => {
      const found = test.names.map((name) => verdictOn(data.id, name, data.answers[name], typed[name]));
      const missing = found.includes(null), wrong = found.find((one) => one && !one[0]);
      return { ...test, missing, passed: !missing && !wrong, message: wrong ? wrong[1] : "", answered: !missing && !wrong?.[2] };
    });
    const sum = (chosen) => chosen.reduce((total, test) => total + test.points, 0);
    const lost = data.penalty * sum(tests.filter((test) => !test.passed && !test.missing));
    return { tests, points: Math.max(0, sum(tests.filter((test) => test.passed)) - lost), most: sum(tests), answered: tests.every((test) => test.answered) };
  }
  window.minirlhfJudge = judge;

  function code(words) { // "`beta` is wrong": what stands between backticks is code
    const line = make("span");
    words.split("`").forEach((part, i) => line.append(i % 2 ? make("code", part) : part));
    return line;
  }

  function build(place) {
    const data = JSON.parse(place.textContent), all = read(), kept = all[data.id] ?? {};
    const form = make("form", "", { className: "answer-form" }), results = make("div", "", { className: "answer-results" });
    form.setAttribute("aria-label", `Your answers to ${data.id}`);
    results.setAttribute("role", "status");
    if (data.printed) form.append(make("p", "Your numbers here, and in the notebook until you set STUDENT:"), make("pre", data.printed));
    const inputs = {};
    for (const [name, { options, texts, unit }] of Object.entries(data.answers)) {
      if (texts) { // choices in words, one below the other
        const field = make("fieldset"), buttons = options.map((value) => make("input", "", { type: "radio", name: data.id, value }));
        field.setAttribute("aria-label", "Your prediction");
        buttons.forEach((button, i) => { const label = make("label"); label.append(button, ` ${texts[i]}`); field.append(label); });
        inputs[name] = { get value() { return buttons.find((one) => one.checked)?.value ?? ""; }, set value(kept) { buttons.forEach((one) => { one.checked = one.value === kept; }); } };
        inputs[name].value = kept[name] ?? "";
        form.append(field);
        continue;
      }
      const label = make("label"), input = options.length ? make("select") : make("input", "", { type: "text", inputMode: "text", size: 12, autocomplete: "off" });
      for (const option of options.length ? ["", ...options] : []) input.append(make("option", option, { value: option }));
      label.append(unit === undefined ? make("code", name) : "Your number:", " ", input, unit ? ` ${unit}` : "");
      input.value = kept[name] ?? "";
      inputs[name] = input;
      form.append(label);
    }
    form.append(make("button", "check", { type: "submit" }), results);
    const show = () => {
      const typed = Object.fromEntries(Object.entries(inputs).map(([name, input]) => [name, input.value]));
      const { tests, points, most, answered } = judge(data, typed);
      const list = make("ul");
      for (const test of tests) {
        const item = make("li", "", { className: test.passed ? "is-right" : test.missing ? "is-open" : "is-wrong" });
        item.append(test.passed ? "\u2713 " : test.missing ? "\u00b7 " : "\u2717 ", code(test.asks));
        if (test.missing) item.append(" Not answered yet.");
        if (!test.passed && !test.missing) {
          if (test.message) item.append(make("br"), code(`${test.message}.`.replace(/([.?!])\.$/, "$1")));
          test.hints.forEach((hint, i) => {
            const fold = make("details");
            fold.append(make("summary", `hint ${i + 1} of ${test.hints.length}`), code(hint));
            item.append(fold);
          });
        }
        list.append(item);
      }
      results.replaceChildren(make("p", `${points} of ${most} points`), list);
      results.dataset.points = points;
      if (data.once && answered) form.querySelectorAll("input, button").forEach((one) => { one.disabled = true; }); // a prediction, once it was judged
      return { id: data.id, typed, points, most, answered };
    };
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      save({ ...read(), [data.id]: Object.fromEntries(Object.entries(inputs).map(([name, input]) => [name, input.value])) });
      document.dispatchEvent(new CustomEvent("answered", { detail: show() }));
    });
    place.after(form);
    if (Object.values(kept).some(Boolean)) show();
  }
  document.addEventListener("DOMContentLoaded", () => document.querySelectorAll("script.answer-data").forEach(build));
})();
