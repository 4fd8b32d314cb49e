// Two tokens, so every mean is a sum of two terms. log r = log π_ref − log π.
touch.compute.kl_estimators = ({ logits }, { ref, logit }) => {
  const { sigmoid } = touch.math;
  const kinds = { // the value, and its derivative in log π
    kl: { value: (log_r) => -log_r, slope: (log_r) => -log_r }, // E[∇ log π · log(π/π_ref)], the score function
    k1: { value: (log_r) => -log_r, slope: () => 1 },
    k2: { value: (log_r) => (log_r * log_r) / 2, slope: (log_r) => -log_r },
    k3: { value: (log_r) => Math.expm1(log_r) - log_r, slope: (log_r) => -Math.expm1(log_r) },
  };
  const at = (z, kind) => { // d log π(yes)/dz = π(no), d log π(no)/dz = −π(yes)
    const p = sigmoid(z), q = sigmoid(-z);
    const yes = Math.log(ref) + Math.log1p(Math.exp(-z)), no = Math.log(1 - ref) + Math.log1p(Math.exp(z));
    const values = [kind.value(yes), kind.value(no)], slopes = [q * kind.slope(yes), -p * kind.slope(no)];
    const mean = ([a, b]) => p * a + q * b, deviation = ([a, b]) => Math.sqrt(p * q) * Math.abs(a - b);
    return { value: mean(values), slope: mean(slopes), noise: deviation(values), jerk: deviation(slopes) };
  };
  const found = {}, here = {};
  for (const [name, kind] of Object.entries(kinds)) {
    const all = logits.map((z) => at(z, kind));
    found[`${name}_value`] = [logits, all.map((one) => one.value)];
    found[`${name}_slope`] = [logits, all.map((one) => one.slope)];
    here[name] = at(logit, kind);
    if (name === "kl") continue;
    found[`${name}_noise_here`] = here[name].noise;
    found[`${name}_jerk_here`] = here[name].jerk;
  }
  return {
    ...found,
    other_slope: [logits, logits.map((z) => sigmoid(z) - ref)], // of the KL from reference to policy
    kl_here: here.kl.value,
    k2_here: here.k2.value,
    kl_slope_here: here.kl.slope,
    k3_slope_here: here.k3.slope,
    value_here: [[logit, logit], [here.kl.value, here.k2.value]],
    slope_here: [[logit, logit, logit, logit], ["kl", "k1", "k2", "k3"].map((name) => here[name].slope)],
  };
};
