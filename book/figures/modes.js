// The student of a grid with the least β KL(teacher‖m) + (1 − β) KL(student‖m), m = β teacher + (1 − β) student.
touch.compute.modes = ({ places, means, widths, betas }, { beta, apart }) => {
  const { softmax, dot } = touch.math;
  const bump = (x, at) => Math.exp(-(((x - at) / 0.4) ** 2) / 2);
  const teacher = softmax(places.map((x) => Math.log(0.6 * bump(x, -apart / 2) + 0.4 * bump(x, apart / 2))));
  const grid = means.flatMap((m) => widths.map((w) => ({ m, w, p: softmax(places.map((x) => -(((x - m) / w) ** 2) / 2)) })));
  const against = (p, q) => (p > 0 ? p * Math.log(p / q) : 0);
  function far({ p }, b) {
    let total = 0;
    for (let i = 0; i < p.length; i++) {
      const m = b * teacher[i] + (1 - b) * p[i];
      total += b * against(teacher[i], m) + (1 - b) * against(p[i], m);
    }
    return total;
  }
  function nearest(b) {
    let best = grid[0], least = Infinity;
    for (const student of grid) {
      const distance = far(student, b);
      if (distance < least) [best, least] = [student, distance];
    }
    return { ...best, least };
  }
  const moments = (p) => {
    const mean = dot(p, places);
    return { mean, width: Math.sqrt(dot(p, places.map((x) => x * x)) - mean * mean) };
  };
  const found = betas.map((b) => moments(nearest(b).p)), at = nearest(beta), now = moments(at.p), given = moments(teacher), of = (f) => [betas, found.map(f)];
  return {
    teacher_line: [places, teacher],
    student: [places, at.p],
    middle: of((s) => s.mean),
    upper: of((s) => s.mean + s.width),
    lower: of((s) => s.mean - s.width),
    here: [[beta], [now.mean]],
    mean: now.mean,
    width: now.width,
    teacher_mean: given.mean,
    teacher_width: given.width,
    divergence: at.least / (beta * (1 - beta)),
  };
};
