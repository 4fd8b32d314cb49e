// A learned reward is a weight for each word; the best policy for it tilts the reference by exp(push · reward).
touch.compute.reward_hacking = ({ words, counts, ref_logps, gold, weights, strengths }, { push, draw }) => {
  const { softmax, divergence, dot, sum, range } = touch.math;
  const bags = counts.map((row) => [...row].map(Number)), model = weights[draw - 1];
  const proxy = bags.map((bag) => sum(bag.map((n, i) => n * model[i])) + model.at(-1));
  const ref = softmax(ref_logps);
  const place = (strength) => {
    const p = strength === 0 ? ref : softmax(ref_logps.map((logp, i) => logp + strength * proxy[i]));
    return { p, kl: Math.max(divergence(p, ref), 0), earned: dot(p, proxy), worth: dot(p, gold) };
  };
  const curve = strengths.map(place), here = place(push), distances = curve.map((c) => Math.sqrt(c.kl));
  const at = here.p.indexOf(Math.max(...here.p)), of = (p) => range(words.length, (i) => dot(p, bags.map((bag) => bag[i])));
  return {
    proxy: [distances, curve.map((c) => c.earned)],
    gold: [distances, curve.map((c) => c.worth)],
    here: [[Math.sqrt(here.kl), Math.sqrt(here.kl)], [here.earned, here.worth]],
    before: of(ref),
    now: of(here.p),
    kl: here.kl,
    earned: here.earned,
    worth: here.worth,
    said: bags[at].flatMap((n, i) => range(n, () => words[i])).join(" "),
    share: here.p[at],
  };
};
