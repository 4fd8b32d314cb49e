// The student of a grid with the least β KL(teacher‖m) + (1 − β) KL(student‖m), m = β teacher + (1 − β) student.
touch.compute.modes = ({ places, means, widths, betas }, { beta, apart }) => {
  const { softmax, range } = touch.math;
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
  const found = betas.map(nearest), now = nearest(beta), of = (f) => [betas, found.map(f)];
  return {
    teacher_line: [places, teacher],
    student: [places, now.p],
    middle: of((s) => s.m),
    upper: of((s) => s.m + s.w),
    lower: of((s) => s.m - s.w),
    here: [[beta], [now.m]],
    mean: now.m,
    width: now.w,
    divergence: now.least,
  };
};
