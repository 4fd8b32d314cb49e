// Temperature first, then top-k, top-p and min-p in the order that is set, each on what the one before has left. The words stand in order of their logits.
touch.compute.cut_the_tail = ({ named, logits }, { temperature, top_k, top_p, min_p, order }) => {
  const { softmax, sum } = touch.math;
  const heated = logits.map((z) => z / temperature), heat = softmax(heated);
  const cuts = {
    "top-k": (kept) => kept.map((z, i) => (i < top_k ? z : -Infinity)),
    "top-p": (kept) => {
      if (top_p === 1) return kept;
      let before = 0;
      return softmax(kept).map((p, i) => {
        const keep = before < top_p;
        before += p;
        return keep ? kept[i] : -Infinity;
      });
    },
    "min-p": (kept) => {
      const most = Math.max(...kept);
      return kept.map((z) => (z - most < Math.log(min_p) ? -Infinity : z));
    },
  };
  const kept = order.split(", ").reduce((left, rule) => cuts[rule](left), heated);
  const probs = softmax(kept), bars = (p) => [...p.slice(0, named), sum(p.slice(named))];
  return {
    model: bars(softmax(logits)),
    sampled: bars(probs),
    tokens: probs.filter((p) => p > 0).length,
    mass: sum(heat.filter((_, i) => kept[i] > -Infinity)),
    entropy: -sum(probs.map((p) => (p > 0 ? p * Math.log(p) : 0))),
    first: probs[0],
  };
};
