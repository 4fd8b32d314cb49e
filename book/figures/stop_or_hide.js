// The initial policy, tilted by the reward minus the expected fine.
touch.compute.stop_or_hide = (data, { fine, flagged, silent, beta }) => {
  const { dot, softmax } = touch.math;
  const ref = [1 - data.spoken - silent, data.spoken, silent], rewards = [data.passes, 1, 1];
  const flags = [data.false, data.seen, flagged];
  const policy = (price) => softmax(ref.map((p, i) => Math.log(p) + (rewards[i] - price * flags[i]) / beta));
  const cheats = (p) => p[1] + p[2], recall = (p) => (p[1] * flags[1] + p[2] * flags[2]) / cheats(p);
  const curve = data.fines.map(policy), here = policy(fine);
  const over = (f) => [data.fines, curve.map(f)];
  const missing = Math.max(0, 1 - data.passes - beta * Math.log(ref[0] / ref[2])), sight = flagged - data.false;
  return {
    honest_line: over((p) => p[0]),
    spoken_line: over((p) => p[1]),
    silent_line: over((p) => p[2]),
    here: [[fine, fine, fine], here],
    flags_line: over((p) => dot(p, flags)),
    recall_line: over(recall),
    cheats_line: over(cheats),
    honest: here[0],
    spoken: here[1],
    silent: here[2],
    flags: dot(here, flags),
    recall: recall(here),
    needed: missing === 0 ? "0.00" : sight > 0 ? (missing / sight).toFixed(2) : "none",
  };
};
