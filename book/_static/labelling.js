/* Labelling on the page, without a kernel: pairs, votes, and a reward that is trained on them in the browser. The same items and the same
   fit as in the notebook; a test holds its numbers to Python's. Nothing leaves the page. */
function labellingWidget(root, data) {
  "use strict";
  const LETTERS = { a: "a", b: "b", t: "tie", n: "both bad" };
  const votes = [];
  const part = (name) => root.querySelector(`[data-part="${name}"]`);

  function solve(matrix, right) { // Gaussian elimination with pivots
    const n = right.length, m = matrix.map((row, i) => [...row, right[i]]);
    for (let c = 0; c < n; c++) {
      let best = c;
      for (let r = c + 1; r < n; r++) if (Math.abs(m[r][c]) > Math.abs(m[best][c])) best = r;
      [m[c], m[best]] = [m[best], m[c]];
      for (let r = 0; r < n; r++) {
        if (r === c) continue;
        const f = m[r][c] / m[c][c];
        for (let k = c; k <= n; k++) m[r][k] -= f * m[c][k];
      }
    }
    return m.map((row, i) => row[n] / row[i]);
  }

  function fit(rows, won, priorStd) { // P(first wins) = sigmoid(w . x), a normal prior in units of each column's root mean square
    const n = rows[0].length, index = [...Array(n).keys()];
    const scale = index.map((j) => Math.sqrt(rows.reduce((s, x) => s + x[j] * x[j], 0) / rows.length) || 1);
    const z = rows.map((x) => x.map((v, j) => v / scale[j]));
    let w = index.map(() => 0), information;
    const look = () => {
      information = index.map((i) => index.map((j) => (i === j ? 1 / (priorStd * priorStd) : 0)));
      const slope = w.map((v) => -v / (priorStd * priorStd));
      z.forEach((x, k) => {
        const p = 1 / (1 + Math.exp(-x.reduce((s, v, j) => s + v * w[j], 0)));
        for (const i of index) {
          slope[i] += x[i] * (won[k] - p);
          for (const j of index) information[i][j] += p * (1 - p) * x[i] * x[j];
        }
      });
      return slope;
    };
    for (let step = 0; step < 40; step++) {
      const slope = look(), change = solve(information, slope);
      const shrink = Math.min(1, 2 / Math.max(...change.map(Math.abs)));
      w = w.map((v, j) => v + shrink * change[j]);
    }
    look();
    const errors = index.map((i) => Math.sqrt(solve(information, index.map((j) => Number(i === j)))[i]) / scale[i]);
    return { weights: w.map((v, j) => v / scale[j]), errors };
  }

  function judge(said) {
    const kept = said.map((vote, k) => [data.items[k], vote]).filter(([, vote]) => vote !== "both bad");
    const won = kept.map(([, vote]) => ({ a: 1, b: 0, tie: 0.5 })[vote]);
    const found = fit(kept.map(([item]) => item.x), won, data.prior);
    const twice = said.map((vote, k) => [said[data.items[k].repeats], vote]).slice(0, said.length)
      .filter(([before, now]) => (before === "a" || before === "b") && (now === "a" || now === "b"));
    const score = (x) => x.reduce((s, v, j) => s + v * found.weights[j], 0);
    const best = data.replies.reduce((top, reply) => (score(reply.x) > score(top.x) ? reply : top));
    return {
      ...found,
      same: twice.filter(([before, now]) => before !== now).length,
      twice: twice.length,
      first: said.filter((vote) => vote === "a").length,
      decided: said.filter((vote) => vote === "a" || vote === "b").length,
      favourite: best.text,
    };
  }

  function rows(said) { // what `minirlhf data biases FILE` reads
    return said.map((vote, k) => [data.items[k], vote]).filter(([, vote]) => vote === "a" || vote === "b").map(([item, vote]) =>
      JSON.stringify({ prompt: item.prompt, chosen: vote === "a" ? item.a : item.b, rejected: vote === "a" ? item.b : item.a }) + "\n").join("");
  }

  function show() {
    const done = votes.length === data.items.length;
    part("ask").hidden = done;
    part("undo").disabled = votes.length === 0;
    part("finish").disabled = votes.length < 8 || done;
    part("count").textContent = done ? "All labelled." : `${votes.length + 1} of ${data.items.length}`;
    if (done) return report();
    const item = data.items[votes.length];
    part("prompt").textContent = item.prompt;
    part("a").textContent = item.a;
    part("b").textContent = item.b;
  }

  function report() {
    const found = judge(votes), body = part("weights");
    part("result").hidden = false;
    part("noise").textContent = `You decided ${found.decided} pairs; the first completion won ${found.first} of them.` +
      (found.twice ? ` Of the ${found.twice} that you decided twice, the same completion won again in ${found.same}.` : "");
    body.replaceChildren(...data.columns.map((name, j) => {
      const row = document.createElement("tr");
      const low = found.weights[j] - 1.96 * found.errors[j], high = found.weights[j] + 1.96 * found.errors[j];
      for (const text of [name, found.weights[j].toFixed(2), `${low.toFixed(2)} to ${high.toFixed(2)}`]) {
        row.append(Object.assign(document.createElement("td"), { textContent: text }));
      }
      return row;
    }));
    part("favourite").textContent = found.favourite;
    part("save").href = "data:application/jsonl;charset=utf-8," + encodeURIComponent(rows(votes));
    part("noise").focus();
  }

  function vote(letter) {
    if (votes.length < data.items.length) votes.push(LETTERS[letter]);
    part("result").hidden = votes.length < data.items.length;
    show();
  }

  root.querySelectorAll("button[data-vote]").forEach((button) => button.addEventListener("click", () => vote(button.dataset.vote)));
  root.addEventListener("keydown", (event) => {
    if (event.key in LETTERS && !event.ctrlKey && !event.metaKey && !event.altKey) vote(event.key);
  });
  part("undo").addEventListener("click", () => { votes.pop(); part("result").hidden = true; show(); });
  part("finish").addEventListener("click", report);
  root.hidden = false;
  show();
  window.labelling = { judge, rows, votes };
}
