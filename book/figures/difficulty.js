// The expectation over the number of successes among the other completions: a success's advantage minus a failure's.
touch.compute.difficulty = ({ rates }, { size, rate }) => {
  const { range, sum } = touch.math;
  const std = (k) => Math.sqrt((k / size) * (1 - k / size)) + 1e-4;
  const success = { // in a group with k successes
    grpo: (k) => (1 - k / size) / std(k),
    dr: (k) => 1 - k / size,
    maxrl: (k) => (1 - k / size) / (k / size),
  };
  const failure = { grpo: (k) => -(k / size) / std(k), dr: (k) => -k / size, maxrl: (k) => (k ? -1 : 0) };
  const logChoose = [0];
  for (let k = 1; k < size; k++) logChoose.push(logChoose[k - 1] + Math.log((size - k) / k));
  const others = (p) => range(size, (k) => Math.exp(logChoose[k] + k * Math.log(p) + (size - 1 - k) * Math.log1p(-p)));
  const weight = (p, name) => sum(others(p).map((chance, k) => chance * (success[name](k + 1) - failure[name](k))));
  const found = {};
  for (const name of ["grpo", "dr", "maxrl"]) {
    const weights = rates.map((p) => weight(p, name));
    found[`${name}_weight`] = [rates, weights];
    found[`${name}_speed`] = [rates, weights.map((w, i) => w * rates[i] * (1 - rates[i]))];
    found[`${name}_here`] = Math.round(weight(rate, name) * 1e12) / 1e12; // of .875 both write .88
  }
  const here = [found.grpo_here, found.dr_here, found.maxrl_here];
  return { ...found, alike: rate ** size + (1 - rate) ** size, here: [[rate, rate, rate], here] };
};
