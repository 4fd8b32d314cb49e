// Temperature first, then top-k, top-p and min-p, each on what the one before has left. The words stand in order of their logits.
touch.compute.cut_the_tail = ({ logits }, { temperature, top_k, top_p, min_p }) => {
  const { softmax, sum } = touch.math;
  const heated = logits.map((z) => z / temperature), heat = softmax(heated);
  let kept = heated.map((z, i) => (i < top_k ? z : -Infinity));
  if (top_p < 1) {
    let before = 0;
    kept = softmax(kept).map((p, i) => {
      const keep = before < top_p;
      before += p;
      return keep ? kept[i] : -Infinity;
    });
  }
  if (min_p > 0) kept = kept.map((z) => (z - Math.max(...kept) < Math.log(min_p) ? -Infinity : z));
  const probs = softmax(kept);
  return {
    model: softmax(logits),
    sampled: probs,
    tokens: probs.filter((p) => p > 0).length,
    mass: sum(heat.filter((_, i) => kept[i] > -Infinity)),
    entropy: -sum(probs.map((p) => (p > 0 ? p * Math.log(p) : 0))),
    first: probs[0],
  };
};
