// DPO on one pair: θ moves along the difference of the two answers' features, by a weight that shrinks as the margin grows.
touch.compute.displacement = ({ chosen, third, shown, rate }, { along, across, beta, step }) => {
  const { softmax, sigmoid, dot } = touch.math;
  const features = [chosen, [along, across], third];
  const difference = chosen.map((v, i) => v - features[1][i]);
  const first = softmax([0, 0, 0]); // θ = 0
  const mean = [0, 1].map((i) => dot(first, features.map((f) => f[i])));
  const rates = features.map((f) => dot(f.map((v, i) => v - mean[i]), difference));
  let theta = [0, 0];
  const curves = [];
  for (let n = 0; n <= shown.at(-1); n++) {
    curves.push(softmax(features.map((f) => dot(f, theta))));
    const weight = beta * sigmoid(-beta * dot(theta, difference)); // the margin: the reference has none
    theta = theta.map((v, i) => v + rate * weight * difference[i]);
  }
  const now = curves[step], of = (i) => [shown, shown.map((n) => curves[n][i])];
  return {
    chosen: of(0),
    rejected: of(1),
    third: of(2),
    here: [[step, step, step], now],
    features_chosen: chosen.map((v) => [v]),
    features_rejected: [[along], [across]],
    features_third: third.map((v) => [v]),
    direction: [[along, chosen[0]], [across, chosen[1]]],
    rate_chosen: rates[0],
    rate_rejected: rates[1],
    rate_third: rates[2],
    p_chosen: now[0],
    p_third: now[2],
  };
};
