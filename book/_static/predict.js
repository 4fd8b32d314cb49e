/* Predict, commit, reveal. A question of a notebook or of a chapter becomes a form; what came out opens when an answer is committed, and the paragraphs that
   tell it with it. To choose is not to commit, because with the keyboard one chooses on the way to another choice. Answers are kept in this browser and go nowhere else. Without JavaScript question and result stand there as text. */
(() => {
  "use strict";
  const PLACE = "minirlhf-predicted"; // by question: the letter, whether it was right, whether the result was seen first
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

  function behind(result, others) { // what else tells the result: the folds round it, but for another question's, and the text behind them
    const folds = [], texts = [], cell = result.closest("div.cell");
    const more = (one) => one?.matches("div.cell.tag_predicted") && !others.some((other) => one.contains(other));
    for (let one = cell?.previousElementSibling; more(one); one = one.previousElementSibling) folds.push(...one.querySelectorAll("details"));
    let next = cell?.nextElementSibling;
    for (; more(next); next = next.nextElementSibling) folds.push(...next.querySelectorAll("details"));
    for (; ["P", "UL", "OL"].includes(next?.tagName); next = next.nextElementSibling) texts.push(next);
    if (texts.length > 1 && next?.matches("div.cell.tag_prediction, .predict-form")) texts.pop(); // it leads up to the next question
    texts.forEach((one) => one.classList.add("predict-after"));
    return { folds, texts };
  }

  function start() {
    const kept = load();
    const asked = [
      ...[...document.querySelectorAll("div.cell.tag_prediction")].flatMap(fromNotebook).map(answerOf).filter(Boolean),
      ...[...document.querySelectorAll(".predict[data-answer]")].map(fromChapter),
    ];
    if (!asked.length) return;
    for (const cell of document.querySelectorAll("div.cell")) { // the page has a tally of its own
      if (cell.querySelector(".cell_input")?.textContent.trim() === "predict.tally()") cell.hidden = true;
    }
    const tally = make("div", "", { className: "predict-tally" });
    tally.setAttribute("aria-live", "polite");

    function count() {
      const done = asked.filter((one) => kept[one.question] && !kept[one.question].seen), right = done.filter((one) => kept[one.question].right), left = asked.filter((one) => !kept[one.question]).length;
      const everywhere = Object.values(kept).filter((one) => !one.seen), told = asked.length === 1 ? "One question on this page asks" : `${asked.length} questions on this page ask`;
      tally.replaceChildren(make("p", (done.length ? `You predicted ${right.length} of ${done.length}` +
        (left ? `; ${left} ${left === 1 ? "is" : "are"} still open.` : ".") : `${told} for a prediction.`) +
        (everywhere.length > done.length ? ` In the whole book so far: ${everywhere.filter((one) => one.right).length} of ${everywhere.length}.` : "")));
      const others = done.filter((one) => !kept[one.question].right);
      if (others.length) {
        const list = make("ul", "");
        for (const one of others) {
          const item = make("li", ""), link = emphasised("a", one.question, { href: `#${one.form.id}` });
          item.append(link, ` ${one.choices.find(([letter]) => letter === one.answer)[1]}`);
          list.append(item);
        }
        tally.append(make("p", "What came out otherwise:"), list);
      }
      if (asked.some((one) => kept[one.question])) {
        const forget = make("button", "forget my answers on this page", { type: "button" });
        forget.addEventListener("click", () => { asked.forEach((one) => { delete kept[one.question]; one.stand(null); }); save(kept); count(); });
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
      verdict.tabIndex = -1; // what came out has the focus that the button loses
      const give = make("button", "commit", { type: "submit", className: "predict-commit" });
      const again = make("button", "ask me again", { type: "button", className: "predict-again", hidden: true });
      form.append(field, give, verdict, again);
      one.form = form;
      one.cell.hidden = true;
      one.cell.before(form);
      const { folds, texts: later } = behind(one.result, asked.filter((other) => other.result !== one.result).map((other) => other.result));
      const show = () => later.forEach((paragraph) => { paragraph.hidden = false; });
      let seen = false; // was the result opened before an answer was given? Then it is no prediction and does not count
      const stand = (letter) => { // as it stands with this answer, or with none
        const [, right] = one.choices.find(([l]) => l === one.answer);
        form.querySelectorAll("input").forEach((input) => {
          input.disabled = Boolean(letter);
          input.checked = input.value === letter;
          input.parentElement.classList.toggle("came-out", Boolean(letter) && input.value === one.answer);
        });
        verdict.textContent = (!letter ? "" : letter === one.answer ? "\u2713 So it came out." : `\u2717 It came out otherwise: ${right}.`) +
          (letter && kept[one.question]?.seen ? " (Seen first, so it does not count.)" : "");
        verdict.classList.toggle("is-right", letter === one.answer);
        give.hidden = Boolean(letter);
        again.hidden = !letter;
        [one.result, ...folds].forEach((fold) => { fold.open = Boolean(letter); });
        if (letter) show(); else later.forEach((paragraph) => { paragraph.hidden = true; });
      };
      one.stand = stand;
      form.addEventListener("submit", (event) => {
        event.preventDefault();
        const letter = form.querySelector("input:checked")?.value;
        if (!letter) { verdict.textContent = "Choose an answer first."; return; }
        kept[one.question] = { letter, right: letter === one.answer, seen };
        save(kept);
        stand(letter);
        count();
        verdict.focus({ preventScroll: true });
      });
      again.addEventListener("click", () => {
        delete kept[one.question];
        save(kept);
        stand(null);
        count();
        form.querySelector("input").focus({ preventScroll: true });
      });
      one.result.addEventListener("toggle", () => {
        if (!one.result.open) return;
        show();
        seen ||= !kept[one.question];
      });
      if (kept[one.question]) stand(kept[one.question].letter);
      else if (!one.result.open) later.forEach((paragraph) => { paragraph.hidden = true; });
    });
    count();
    asked.at(-1).result.closest("article")?.append(tally);
  }
  document.addEventListener("DOMContentLoaded", start);
})();
