// Surrogates and gradient weights over a token's ratio. GSPO's ratio is the geometric mean over the reply, its range one of its own.
touch.compute.clip_gates = ({ ratios, ranges }, { sign, epsilon, epsilon_high, tokens, gspo, ratio }) => {
  const { sigmoid } = touch.math;
  const [below, above] = ranges[gspo];
  const A = sign === "positive" ? 1 : -1, tau = A > 0 ? 1 : 1.05;
  const clip = (x, low, high) => Math.min(Math.max(x, low), high);
  const gate = (r, low, high) => (A > 0 ? r < high : r > low) ? r * A : 0; // where the minimum still moves
  const soft = (r) => sigmoid(tau * (r - 1));
  const curve = {
    free_value: (r) => r * A,
    ppo_value: (r) => Math.min(r * A, clip(r, 1 - epsilon, 1 + epsilon_high) * A),
    sapo_value: (r) => (4 / tau) * soft(r) * A,
    free: (r) => r * A,
    ppo: (r) => gate(r, 1 - epsilon, 1 + epsilon_high),
    cispo: (r) => Math.min(r, 1 + epsilon_high) * A,
    sapo: (r) => 4 * soft(r) * (1 - soft(r)) * r * A,
    gspo: (r) => gate(r ** (1 / tokens), 1 - below, 1 + above),
  };
  const found = {};
  for (const [name, f] of Object.entries(curve)) found[name] = [ratios, ratios.map(f)];
  for (const name of ["ppo", "cispo", "sapo", "gspo"]) {
    found[`${name}_here`] = curve[name](ratio);
    found[`${name}_at`] = [[ratio], [found[`${name}_here`]]];
  }
  return found;
};
