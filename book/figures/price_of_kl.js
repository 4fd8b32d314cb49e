// The optimal policy for a coefficient β: the reference, tilted by exp(reward / β).
touch.compute.price_of_kl = (data, { beta }) => {
  const { softmax, logsumexp, divergence, dot } = touch.math;
  const ref = data.ref_logps.map(Math.exp);
  const tilted = (b) => data.ref_logps.map((logp, i) => logp + data.rewards[i] / b);
  const at = (b) => {
    const p = softmax(tilted(b));
    return { p, kl: divergence(p, ref), reward: dot(p, data.rewards), worth: dot(p, data.gold) };
  };
  const byLevel = (p) => data.levels.map((level) => p.reduce((s, v, i) => s + (data.rewards[i] === level ? v : 0), 0));
  const curve = data.betas.map(at), kls = curve.map((c) => c.kl), here = at(beta);
  return {
    reference: byLevel(ref),
    policy: byLevel(here.p),
    rewards: [kls, curve.map((c) => c.reward)],
    worths: [kls, curve.map((c) => c.worth)],
    reward_here: [[here.kl], [here.reward]],
    worth_here: [[here.kl], [here.worth]],
    kl: here.kl,
    reward: here.reward,
    worth: here.worth,
    objective: beta * logsumexp(tilted(beta)),
    likeliest: data.replies[here.p.indexOf(Math.max(...here.p))],
  };
};
