// The distribution of the best of n completions that may tie, and the policy with the highest reward at the same KL.
touch.compute.best_of = ({ ref, rewards, gold, levels, ns, betas }, { n }) => {
  const { sum, dot, softmax, divergence } = touch.math;
  const upto = (x) => sum(ref.filter((_, i) => rewards[i] <= x)), below = (x) => sum(ref.filter((_, i) => rewards[i] < x));
  const sides = rewards.map((r) => [Math.min(upto(r), 1), below(r)]);
  const law = (m) => ref.map((p, i) => {
    const [high, low] = sides[i];
    return (p * (high ** m - low ** m)) / (high - low);
  });
  const place = (p) => [divergence(p, ref), dot(p, rewards), dot(p, gold)];
  const byLevel = (p) => levels.map((level) => sum(p.filter((_, i) => rewards[i] === level)));
  const kept = law(n), here = place(kept);
  const best = ns.map((m) => place(law(m)));
  const tilts = betas.map((beta) => place(softmax(ref.map((p, i) => Math.log(p) + rewards[i] / beta))));
  const column = (rows, j) => rows.map((row) => row[j]);
  return {
    before: byLevel(ref),
    after: byLevel(kept),
    best: [column(best, 0), column(best, 1)],
    frontier: [column(tilts, 0), column(tilts, 1)],
    worths: [column(best, 0), column(best, 2)],
    here: [[here[0], here[0]], [here[1], here[2]]],
    kl: here[0],
    bound: Math.log(n) - (n - 1) / n,
    gap: Math.log(n) - (n - 1) / n - here[0],
    reward: here[1],
    worth: here[2],
  };
};
