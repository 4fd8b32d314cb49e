/* Predict, commit, reveal. A question of a notebook or of a chapter becomes a form; what came out opens when an answer is chosen, and the paragraphs that
   tell it with it. Answers are kept in this browser and go nowhere else. Without JavaScript question and result stand there as text. */
(() => {
  "use strict";
  const PLACE = "minirlhf-predictions";
  const load = () => { try { return JSON.parse(localStorage.getItem(PLACE)) ?? {}; } catch { return {}; } };
  const save = (kept) => { try { localStorage.setItem(PLACE, JSON.stringify(kept)); } catch { /* a browser that keeps nothing */ } };
  const make = (tag, words, attributes = {}) => Object.assign(document.createElement(tag), { textContent: words, ...attributes });
  const emphasised = (tag, words, attributes = {}) => { // a question is printed by a notebook, where *words* stand between stars
    const made = make(tag, "", attributes);
    words.split(/\*(\p{L}[\p{L}\d -]*)\*/u).forEach((part, i) => made.append(i % 2 ? make("em", part) : part));
    return made;
  };

  function fromNotebook(cell) { // the text that minirlhf.classroom.predictions has printed: a question, then lettered choices
    const found = [];
    for (const line of cell.textContent.split("\n")) {
      const choice = line.match(/^ {3}([a-j]) {2}(.*)$/);
      if (choice && found.length) found.at(-1).choices.push(choice.slice(1));
      else if (line.trim()) found.push({ question: line.trim(), choices: [], cell });
    }
    return found.filter((one) => one.choices.length > 1);
  }

  function fromChapter(block) {
    const letters = "abcdefghij", items = [...block.querySelectorAll(":scope > ol > li")];
    return {
      question: block.querySelector(".predict-question").textContent.trim(),
      choices: items.map((item, i) => [letters[i], item.textContent.trim()]),
      cell: block.querySelector("ol"),
      answer: block.dataset.answer,
      result: block.querySelector("details"),
    };
  }

  function answerOf(one) { // in the output in which the question is repeated
    for (const output of document.querySelectorAll("div.cell.tag_predicted details")) {
      const lines = output.textContent.split("\n").map((line) => line.trim());
      const at = lines.indexOf(one.question);
      const said = at < 0 ? null : lines[at + 1]?.match(/^Answer: (?:.* nearest to )?([a-j]) {2}/);
      if (said) return { ...one, answer: said[1], result: output };
    }
    return null;
  }

  function hidden(result) { // the paragraphs directly behind the result, which tell it
    const found = [];
    const cell = result.closest("div.cell, .predict");
    for (let next = cell?.nextElementSibling; next?.tagName === "P" && cell.matches("div.cell"); next = next.nextElementSibling) {
      next.classList.add("predict-after");
      found.push(next);
    }
    return found;
  }

  function start() {
    const kept = load();
    const asked = [
      ...[...document.querySelectorAll("div.cell.tag_prediction")].flatMap(fromNotebook).map(answerOf).filter(Boolean),
      ...[...document.querySelectorAll(".predict[data-answer]")].map(fromChapter),
    ];
    if (!asked.length) return;
    const tally = make("div", "", { className: "predict-tally" });
    tally.setAttribute("aria-live", "polite");

    function count() {
      if (asked.length < 2) return;
      const done = asked.filter((one) => kept[one.question]), right = done.filter((one) => kept[one.question] === one.answer);
      tally.replaceChildren(make("p", done.length ? `You predicted ${right.length} of ${done.length}` +
        (done.length < asked.length ? `; ${asked.length - done.length} are still open.` : ".") : `${asked.length} questions on this page ask for a prediction.`));
      const others = done.filter((one) => kept[one.question] !== one.answer);
      if (others.length) {
        const list = make("ul", "");
        for (const one of others) {
          const item = make("li", ""), link = emphasised("a", one.question, { href: `#${one.form.id}` });
          item.append(link, ` ${one.choices.find(([letter]) => letter === one.answer)[1]}`);
          list.append(item);
        }
        tally.append(make("p", "What came out otherwise:"), list);
      }
      if (done.length) {
        const forget = make("button", "forget my answers", { type: "button" });
        forget.addEventListener("click", () => { asked.forEach((one) => delete kept[one.question]); save(kept); location.reload(); });
        tally.append(forget);
      }
    }

    asked.forEach((one, number) => {
      const form = make("form", "", { className: "predict-form", id: `prediction-${number + 1}` });
      const field = make("fieldset", ""), verdict = make("p", "", { className: "predict-verdict" });
      verdict.setAttribute("role", "status");
      field.append(emphasised("legend", one.question));
      for (const [letter, words] of one.choices) {
        const label = make("label", ""), input = make("input", "", { type: "radio", name: form.id, value: letter });
        label.append(input, ` ${words}`);
        field.append(label);
      }
      form.append(field, verdict);
      one.form = form;
      one.cell.hidden = true;
      one.cell.before(form);
      const later = hidden(one.result);
      const show = () => later.forEach((paragraph) => { paragraph.hidden = false; });
      function commit(letter) {
        const [, right] = one.choices.find(([l]) => l === one.answer);
        form.querySelectorAll("input").forEach((input) => { input.disabled = true; input.checked = input.value === letter; });
        verdict.textContent = letter === one.answer ? "So it came out." : `It came out otherwise: ${right}.`;
        one.result.open = true;
        show();
        count();
      }
      form.addEventListener("change", (event) => { kept[one.question] = event.target.value; save(kept); commit(event.target.value); });
      one.result.addEventListener("toggle", () => { if (one.result.open) show(); });
      if (kept[one.question]) commit(kept[one.question]);
      else if (!one.result.open) later.forEach((paragraph) => { paragraph.hidden = true; });
    });
    count();
    asked.at(-1).result.closest("article")?.append(tally);
  }
  document.addEventListener("DOMContentLoaded", start);
})();
