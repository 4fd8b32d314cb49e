// Two tokens, so every mean is a sum of two terms. log r = log π_ref − log π.
touch.compute.kl_estimators = ({ logits }, { ref, logit }) => {
  const { sigmoid } = touch.math;
  const kinds = {
    kl: { value: (log_r) => -log_r, slope: (log_r) => -log_r }, // E[∇ log π · log(π/π_ref)], the score function
    k1: { value: (log_r) => -log_r, slope: () => 1 },
    k2: { value: (log_r) => (log_r * log_r) / 2, slope: (log_r) => -log_r },
    k3: { value: (log_r) => Math.expm1(log_r) - log_r, slope: (log_r) => 1 - Math.exp(log_r) },
  };
  const at = (z, kind) => { // value and mean slope: d log π(yes)/dz = π(no), d log π(no)/dz = −π(yes)
    const p = sigmoid(z), q = sigmoid(-z);
    const yes = Math.log(ref) + Math.log1p(Math.exp(-z)), no = Math.log(1 - ref) + Math.log1p(Math.exp(z));
    return [p * kind.value(yes) + q * kind.value(no), p * q * (kind.slope(yes) - kind.slope(no))];
  };
  const found = {}, here = {};
  for (const [name, kind] of Object.entries(kinds)) {
    const all = logits.map((z) => at(z, kind));
    found[`${name}_value`] = [logits, all.map(([value]) => value)];
    found[`${name}_slope`] = [logits, all.map(([, slope]) => slope)];
    here[name] = at(logit, kind);
    found[`${name}_slope_here`] = here[name][1];
  }
  return {
    ...found,
    other_slope: [logits, logits.map((z) => sigmoid(z) - ref)], // of KL(π_ref‖π)
    kl_here: here.kl[0],
    k2_here: here.k2[0],
    value_here: [[logit, logit], [here.kl[0], here.k2[0]]],
    slope_here: [[logit, logit, logit, logit], ["kl", "k1", "k2", "k3"].map((name) => here[name][1])],
  };
};
