/* Predict, commit, reveal. A question of a notebook or of a chapter becomes a form; what came out opens when an answer is committed, and the paragraphs that
   tell it with it. To choose is not to commit, because with the keyboard one chooses on the way to another choice; a number is typed. What a wrong answer has
   to teach is told with the verdict. Answers are kept in this browser and go nowhere else; who only wants to read opens all. Without JavaScript question and
   result stand there as text. */
(() => {
  "use strict";
  const PLACE = "minirlhf-predicted"; // by question: the letter or number, whether it was right, whether the result was seen first
  const READS = "minirlhf-only-reads"; // "yes" for one who wants all results open
  const read = (place) => { try { return JSON.parse(localStorage.getItem(place)); } catch { return null; } };
  const save = (place, what) => { try { localStorage.setItem(place, JSON.stringify(what)); } catch { /* a browser that keeps nothing */ } };
  const make = (tag, words, attributes = {}) => Object.assign(document.createElement(tag), { textContent: words, ...attributes });
  const emphasised = (tag, words, attributes = {}) => { // a question is printed by a notebook, where *words* stand between stars
    const made = make(tag, "", attributes);
    words.split(/\*(\p{L}[\p{L}\d -]*)\*/u).forEach((part, i) => made.append(i % 2 ? make("em", part) : part));
    return made;
  };

  function fromNotebook(cell) { // the text that minirlhf_course.classroom.predictions has printed: a question, then lettered choices
    const found = [];
    for (const line of cell.textContent.split("\n")) {
      const choice = line.match(/^ {3}([a-j]) {2}(.*)$/);
      if (choice && found.length) found.at(-1).choices.push(choice.slice(1));
      else if (line.trim()) found.push({ question: line.trim(), choices: [], cell });
    }
    return found.filter((one) => one.choices.length > 1);
  }

  function fromChapter(block) {
    const letters = "abcdefghij", items = [...block.querySelectorAll(":scope > ol > li")], { answer, said, within, unit, factor } = block.dataset;
    const lessons = Object.fromEntries([...block.querySelectorAll(".predict-lessons > li")].map((item) => [item.dataset.chosen, item.querySelector("span").textContent]));
    return {
      question: block.querySelector(".predict-question").textContent.trim(),
      choices: items.map((item, i) => [letters[i], item.textContent.trim()]),
      cell: block.querySelector(":scope > :is(ol, .predict-typed)"),
      answer,
      lessons,
      typed: within && { answer: Number(answer), said, within: Number(within), unit, byFactor: factor !== undefined },
      result: block.querySelector("details"),
    };
  }

  const inItsUnit = ({ typed }, given) => { // where percents are asked for, .16 is 16 of them; where a number is, 16 % is .16
    const x = window.minirlhfNumber(given, typed.answer), percents = given.includes("%");
    if (typed.unit === "%") return !percents && Math.abs(x) < 1 && Math.abs(typed.answer) >= 10 ? 100 * x : x;
    return percents ? x / 100 : x;
  };
  function isRight({ answer, typed }, given) {
    if (!typed) return given === answer;
    const x = inItsUnit({ typed }, given), { within, byFactor } = typed;
    if (byFactor) return x * typed.answer > 0 && Math.abs(Math.log(x / typed.answer)) <= Math.log(within) * (1 + 1e-9);
    return Math.abs(x - typed.answer) <= within * (1 + 1e-9);
  }
  const inUnit = (words, unit) => (unit ? `${words} ${unit}` : words);
  const cameOut = ({ typed, choices, answer }) => (typed ? inUnit(typed.said, typed.unit) : choices.find(([letter]) => letter === answer)[1]);
  const lesson = ({ typed, lessons }, given) => (lessons ?? {})[!typed ? given : inItsUnit({ typed }, given) < typed.answer ? "low" : "high"] ?? "";

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
    const kept = read(PLACE) ?? {};
    const asked = [
      ...[...document.querySelectorAll("div.cell.tag_prediction")].flatMap(fromNotebook).map(answerOf).filter(Boolean),
      ...[...document.querySelectorAll(".predict[data-answer]")].map(fromChapter),
    ];
    if (!asked.length) return;
    for (const cell of document.querySelectorAll("div.cell")) { // the page has a tally of its own
      if (cell.querySelector(".cell_input")?.textContent.trim() === "predict.tally()") cell.hidden = true;
    }
    let onlyReads = read(READS) === "yes";
    const tally = make("div", "", { className: "predict-tally" });
    tally.setAttribute("aria-live", "polite");

    function count() {
      const done = asked.filter((one) => kept[one.question] && !kept[one.question].seen), right = done.filter((one) => kept[one.question].right), left = asked.filter((one) => !kept[one.question]).length;
      const everywhere = Object.values(kept).filter((one) => !one.seen), told = asked.length === 1 ? "One question on this page asks" : `${asked.length} questions on this page ask`;
      tally.replaceChildren(make("p", (done.length ? `You predicted ${right.length} of ${done.length}` +
        (left ? `; ${left} ${left === 1 ? "is" : "are"} still open.` : ".") : `${told} for a prediction.`) +
        (everywhere.length > done.length ? ` In the whole book so far: ${everywhere.filter((one) => one.right).length} of ${everywhere.length}.` : "")));
      Object.assign(tally.dataset, { asked: asked.length, predicted: done.length, right: right.length, left });
      const others = done.filter((one) => !kept[one.question].right);
      if (others.length) {
        const list = make("ul", "");
        for (const one of others) {
          const item = make("li", ""), link = emphasised("a", one.question, { href: `#${one.form.id}` }), taught = lesson(one, kept[one.question].letter);
          item.append(link, ` ${cameOut(one)}.${taught && ` ${taught}`}`);
          list.append(item);
        }
        tally.append(make("p", `What the ${right.length ? "rest" : "predictions"} taught:`), list);
      }
      if (asked.some((one) => kept[one.question])) {
        const forget = make("button", "forget my answers on this page", { type: "button" });
        forget.addEventListener("click", () => { asked.forEach((one) => { delete kept[one.question]; one.stand(null); }); save(PLACE, kept); count(); });
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
      if (one.typed) {
        const label = make("label", ""), input = make("input", "", { type: "text", inputMode: "decimal", size: 8, autocomplete: "off" });
        label.append(make("span", one.cell.textContent), " ", input);
        field.append(label);
      }
      const given = () => (one.typed ? field.querySelector("input").value.trim() : field.querySelector("input:checked")?.value ?? "");
      verdict.tabIndex = -1; // what came out has the focus that the button loses
      const give = make("button", "commit", { type: "submit", className: "predict-commit" });
      const again = make("button", "ask me again", { type: "button", className: "predict-again", hidden: true });
      form.append(field, give, verdict, again);
      one.form = form;
      one.cell.hidden = true;
      one.cell.before(form);
      const { folds, texts: later } = behind(one.result, asked.filter((other) => other.result !== one.result).map((other) => other.result));
      const show = () => later.forEach((paragraph) => { paragraph.hidden = false; });
      const whole = one.result.closest(".touch-whole"); // a figure that can be touched would answer; it waits
      let seen = false; // was the result opened before an answer was given? Then it is no prediction and does not count
      const stand = (letter) => { // as it stands with this answer, or with none
        const right = Boolean(letter) && isRight(one, letter), taught = letter && !right ? lesson(one, letter) : "";
        field.querySelectorAll("input").forEach((input) => {
          input.disabled = Boolean(letter);
          if (one.typed) { input.value = letter ?? ""; return; }
          input.checked = input.value === letter;
          input.parentElement.classList.toggle("came-out", Boolean(letter) && input.value === one.answer);
          input.parentElement.classList.toggle("was-mine", Boolean(letter) && input.value === letter && letter !== one.answer);
        });
        verdict.textContent = !letter ? "" : right ? (one.typed ? `\u2713 Near enough: ${cameOut(one)}.` : "\u2713 So it came out.") : `\u2717 It came out otherwise: ${cameOut(one)}.`;
        verdict.dataset.verdict = !letter ? "" : right ? "right" : "wrong";
        verdict.toggleAttribute("data-seen", Boolean(letter && kept[one.question]?.seen));
        if (taught) verdict.append(" ", make("span", taught, { className: "predict-lesson" }));
        if (letter && kept[one.question]?.seen) verdict.append(" (Seen first, so it does not count.)");
        verdict.classList.toggle("is-right", right);
        one.uncover?.(Boolean(letter) || onlyReads);
        whole?.classList.toggle("is-answered", Boolean(letter)); // touch.js, which starts later, then begins where it was asked
        give.hidden = Boolean(letter);
        again.hidden = !letter;
        [one.result, ...folds].forEach((fold) => { fold.open = Boolean(letter) || onlyReads; });
        if (letter || onlyReads) show(); else later.forEach((paragraph) => { paragraph.hidden = true; });
      };
      one.stand = stand;
      if (whole) {
        const note = make("p", "The figure stands here when you have answered, or opened what came out.", { className: "touch-covered" });
        whole.append(note);
        one.uncover = (bare) => { whole.classList.toggle("is-covered", !bare); note.hidden = bare; };
        one.result.addEventListener("toggle", () => { if (one.result.open) one.uncover(true); }); // to fold the result again hides no figure
        one.uncover(one.result.open);
      }
      form.addEventListener("submit", (event) => {
        event.preventDefault();
        const letter = given();
        if (one.typed ? Number.isNaN(window.minirlhfNumber(letter, one.typed.answer)) : !letter) { verdict.dataset.verdict = "missing"; verdict.textContent = one.typed ? "Type a number first, such as 0.5 or 1200." : "Choose an answer first."; return; }
        kept[one.question] = { letter, right: isRight(one, letter), seen };
        save(PLACE, kept);
        stand(letter);
        one.result.closest(".touch-whole")?.querySelector(".touch").dispatchEvent(new Event("asked")); // it goes to the setting of the question
        count();
        verdict.focus({ preventScroll: true });
      });
      again.addEventListener("click", () => {
        delete kept[one.question];
        save(PLACE, kept);
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
    const label = make("label", "", { className: "predict-only-reads" }), box = make("input", "", { type: "checkbox", checked: onlyReads });
    label.append(box, " I only want to read: open all results, on every page.");
    box.addEventListener("change", () => {
      onlyReads = box.checked;
      save(READS, onlyReads ? "yes" : "no");
      asked.forEach((one) => one.stand(kept[one.question]?.letter ?? null));
    });
    asked[0].form.after(label);
    if (onlyReads) asked.forEach((one) => one.stand(kept[one.question]?.letter ?? null));
    count();
    asked.at(-1).result.closest("article")?.append(tally);
    const reveal = () => { // a link to what lies in a result that is still closed
      const aim = location.hash.length > 1 && document.getElementById(decodeURIComponent(location.hash.slice(1))), fold = aim && aim.closest(".predict details:not([open])");
      if (fold) { fold.open = true; aim.scrollIntoView(); }
    };
    addEventListener("hashchange", reveal);
    reveal();
  }
  document.addEventListener("DOMContentLoaded", start);
})();
