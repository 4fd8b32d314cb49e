// Backwards over the reply: A_t = δ_t + γ λ A_{t+1}.
touch.compute.gae_lambda = ({ chances, critics, rewards }, { lam, gamma, critic }) => {
  const { sum, range } = touch.math;
  const T = rewards.length, values = chances.map((p, t) => critics[critic] * gamma ** (T - 1 - t) * p);
  const residuals = rewards.map((r, t) => r + gamma * (t + 1 < T ? values[t + 1] : 0) - values[t]);
  const credit = range(T, () => 0);
  for (let t = T - 1; t >= 0; t--) credit[t] = residuals[t] + gamma * lam * (t + 1 < T ? credit[t + 1] : 0);
  const mean = sum(credit) / T;
  return {
    credit,
    residuals: [range(T), residuals],
    values: [range(T), values],
    shares: range(T, (i) => (i + 1 < T ? (1 - lam) * lam ** i : lam ** (T - 1))),
    third: credit[2],
    sixth: credit[5],
    spread: Math.sqrt(sum(credit.map((a) => (a - mean) ** 2)) / T),
  };
};
