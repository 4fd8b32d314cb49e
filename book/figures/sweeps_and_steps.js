// Bellman's optimality equation for all cells at once, or one cell and action at a time where the walker went.
touch.compute.sweeps_and_steps = ({ to, rewards, walked, steps, most }, { way, work, gamma, alpha }) => {
  const { range } = touch.math;
  const best = (q) => q.map((row) => Math.max(...row));
  const backup = (v) => to.map((row, s) => row.map((next, a) => rewards[s][a] + gamma * v[next]));
  let truth = to.map(() => 0);
  for (let sweep = 0; sweep < 1500; sweep++) truth = best(backup(truth));
  const zero = () => to.map((row) => row.map(() => 0)), tables = [zero()];
  if (way.startsWith("value")) {
    let v = to.map(() => 0);
    for (let sweep = 0; sweep < most; sweep++) {
      tables.push(backup(v));
      v = best(tables.at(-1));
    }
  } else {
    const q = zero();
    walked.forEach((code, n) => {
      const s = Math.floor(code / 4), a = code % 4;
      q[s][a] += alpha * (rewards[s][a] + gamma * Math.max(...q[to[s][a]]) - q[s][a]);
      if ((n + 1) % steps === 0) tables.push(q.map((row) => [...row]));
    });
  }
  const errors = tables.map((q) => Math.max(...best(q).map((v, s) => Math.abs(v - truth[s]))));
  const now = tables[work], values = best(now), top = Math.max(...truth);
  const cells = range(to.length), column = (s) => 1 + (s % 5), row = (s) => 1 + Math.floor(s / 5);
  const arrows = cells.flatMap((s) => range(4).filter((a) => now[s][a] >= values[s] - 1e-9).map((a) => [column(s), row(s), a]));
  return {
    size: [cells.map(column), cells.map(row), values.map((v) => 0.95 * Math.min(1, Math.max(0, v) / top))],
    policy: [0, 1, 2].map((i) => arrows.map((arrow) => arrow[i])),
    errors: [range(most + 1), errors],
    here: [[work], [errors[work]]],
    corner: values.at(-1),
    truth: truth.at(-1),
    error: errors[work],
  };
};
