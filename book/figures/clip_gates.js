// Surrogates and gradient weights over a token's ratio, both over A. GSPO's ratio is the geometric mean over the completion, with a range of its own.
touch.compute.clip_gates = ({ ratios, ranges }, { sign, epsilon, epsilon_high, tokens, gspo, ratio }) => {
  const { sigmoid } = touch.math;
  const [below, above] = ranges[gspo];
  const up = sign === "positive", tau = up ? 1 : 1.05;
  const clip = (r, low, high) => (up ? Math.min(r, high) : Math.max(r, low)); // the smaller of r A and the clipped one, over A
  const gate = (r, low, high) => ((up ? r < high : r > low) ? r : 0); // where it still moves
  const soft = (r) => sigmoid(tau * (r - 1)), root = (r) => r ** (1 / tokens);
  const curve = {
    free_value: (r) => r,
    ppo_value: (r) => clip(r, 1 - epsilon, 1 + epsilon_high),
    sapo_value: (r) => (4 / tau) * (soft(r) - 0.5) + 1,
    gspo_value: (r) => clip(root(r), 1 - below, 1 + above),
    free: (r) => r,
    ppo: (r) => gate(r, 1 - epsilon, 1 + epsilon_high),
    cispo: (r) => Math.min(r, 1 + epsilon_high),
    sapo: (r) => 4 * soft(r) * (1 - soft(r)) * r,
    gspo: (r) => gate(root(r), 1 - below, 1 + above),
  };
  const found = {};
  for (const [name, f] of Object.entries(curve)) found[name] = [ratios, ratios.map(f)];
  for (const name of ["ppo", "cispo", "sapo", "gspo"]) {
    found[`${name}_here`] = curve[name](ratio);
    found[`${name}_at`] = [[ratio], [found[`${name}_here`]]];
  }
  return found;
};
