// Bradley–Terry by Newton's method on the expected wins, Elo by its update, game by game.
touch.compute.circle = ({ luck, lot, every, after }, { turn, lead, k, order }) => {
  const { sigmoid, range, sum } = touch.math;
  const pairs = [[0, 1], [1, 2], [2, 0]], strengths = [lead, 0, -lead];
  const odds = pairs.map(([a, b]) => strengths[a] - strengths[b] + turn), truth = odds.map(sigmoid);
  let x = 0, y = 0; // rewards of a and c; b stands at 0
  for (let step = 0; step < 60; step++) {
    const rewards = [x, 0, y], said = pairs.map(([a, b]) => sigmoid(rewards[a] - rewards[b]));
    const miss = truth.map((p, i) => p - said[i]), bend = said.map((p) => p * (1 - p));
    // slopes of the log-likelihood, and its matrix of second derivatives, in x and y
    const gx = miss[0] - miss[2], gy = miss[2] - miss[1];
    const xx = bend[0] + bend[2], yy = bend[1] + bend[2], xy = -bend[2];
    const size = xx * yy - xy * xy;
    x += (yy * gx - xy * gy) / size;
    y += (xx * gy - xy * gx) / size;
  }
  const rewards = [x, 0, y], model = pairs.map(([a, b]) => sigmoid(rewards[a] - rewards[b]));
  const ratings = [0, 0, 0], path = [[0, 0, 0]];
  luck.forEach((u, n) => {
    const pair = order === "drawn by lot" ? lot[n] : n % 3, [a, b] = pairs[pair];
    const gain = k * ((u < truth[pair] ? 1 : 0) - sigmoid(((ratings[a] - ratings[b]) * Math.LN10) / 400));
    ratings[a] += gain;
    ratings[b] -= gain;
    path.push([...ratings]);
  });
  const xs = range(Math.floor(luck.length / every) + 1, (i) => i * every), of = (i) => [xs, xs.map((n) => path[n][i])];
  return {
    truth,
    model,
    elo_a: of(0),
    elo_b: of(1),
    elo_c: of(2),
    cycle: sum(odds),
    found: (x - y) / 2,
    gap: sum(path.slice(after).map((now) => Math.max(...now) - Math.min(...now))) / (path.length - after),
    wrong: Math.max(...truth.map((p, i) => Math.abs(p - model[i]))),
  };
};
