// The student with the least D over b(1 − b), D = b KL(teacher‖μ) + (1 − b) KL(student‖μ), μ = b teacher + (1 − b) student.
touch.compute.modes = ({ places, means, widths, betas, jump }, { beta, apart }) => {
  const { softmax, sum, dot } = touch.math;
  const bump = (x, at) => Math.exp(-(((x - at) / 0.4) ** 2) / 2);
  const t = softmax(places.map((x) => Math.log(0.6 * bump(x, -apart / 2) + 0.4 * bump(x, apart / 2))));
  const log_t = t.map(Math.log);
  const off = (m, v) => {
    const w = Math.exp(v);
    return places.map((x) => (x - m) / w);
  };
  function student(m, v) { // u: log of p over t
    const l = off(m, v).map((s) => -s * s / 2), e = l.map(Math.exp), whole = sum(e), log_whole = Math.log(whole);
    const p = e.map((s) => s / whole);
    return { p, u: l.map((s, i) => s - log_whole - log_t[i]), over: p.map((q, i) => q / t[i]) };
  }
  function far({ p, u, over }, b) {
    let total = 0;
    for (let i = 0; i < t.length; i++) {
      const mixed = b > 0 && b < 1 ? Math.log(b + (1 - b) * over[i]) : 0; // log μ/t
      total += b === 0 ? -t[i] * u[i] : b === 1 ? p[i] * u[i] : p[i] * (u[i] - mixed) / b - t[i] * mixed / (1 - b);
    }
    return total;
  }
  function gradient(m, v, b) { // E[f · (score − its mean)]
    const z = off(m, v), { p, u } = student(m, v), w = Math.exp(v);
    const pf = p.map((q, i) => q * (b === 1 ? u[i] : b ? -Math.log1p(b * Math.expm1(-u[i])) / b : -Math.expm1(-u[i])));
    return [z.map((s) => s / w), z.map((s) => s * s)].map((score) => {
      const mean = dot(p, score);
      return sum(score.map((s, i) => pf[i] * (s - mean)));
    });
  }
  function lowest(m, v, b) {
    const h = 1e-5, height = (x, y) => far(student(x, y), b);
    let here = height(m, v);
    for (let n = 0; n < 60; n++) {
      const [g, k] = gradient(m, v, b);
      const [A, B] = [[h, 0], [0, h]].map(([i, j]) => {
        const up = gradient(m + i, v + j, b), down = gradient(m - i, v - j, b);
        return up.map((s, q) => (s - down[q]) / (2 * h));
      });
      let aa = A[0], bb = B[1];
      const ab = (A[1] + B[0]) / 2, least = (aa + bb) / 2 - Math.hypot((aa - bb) / 2, ab);
      if (!(least > 0)) [aa, bb] = [aa + 0.1 - least, bb + 0.1 - least];
      let step = [ab * k - bb * g, ab * g - aa * k].map((s) => s / (aa * bb - ab * ab));
      const long = Math.hypot(...step), there = () => height(m + step[0], v + step[1]);
      if (long > 0.3) step = step.map((s) => s * 0.3 / long);
      for (let q = 0; q < 30 && long > 1e-6 && there() > here; q++) step = step.map((s) => s / 2);
      here = there();
      m += step[0];
      v += step[1];
      if (long < 1e-7) break; // the next step would be shorter than 1e-13
    }
    return { m, v, here };
  }
  const grid = means.map((m) => widths.map((w) => student(m, Math.log(w))));
  function nearest(b) {
    const at = grid.map((row) => row.map((one) => far(one, b)));
    const found = [];
    for (let i = 0; i < means.length; i++) for (let j = 0; j < widths.length; j++) {
      const around = [-1, 0, 1].flatMap((d) => [-1, 0, 1].map((e) => at[i + d]?.[j + e] ?? Infinity));
      if (at[i][j] <= Math.min(...around)) found.push(lowest(means[i], Math.log(widths[j]), b));
    }
    return found.reduce((best, one) => (one.here < best.here ? one : best));
  }
  const moments = (p) => {
    const mean = dot(p, places);
    return { mean, width: Math.sqrt(dot(p, places.map((x) => x * x)) - mean * mean) };
  };
  const all = betas.map((b) => {
    const { m, v, here } = nearest(b), { p } = student(m, v);
    return { p, here, ...moments(p) };
  });
  const n = all.findIndex((s, i) => i && Math.abs(s.mean - all[i - 1].mean) > jump), cut = n < 0 ? all.length : n;
  const now = all[betas.indexOf(beta)], given = moments(t), found = {};
  for (const [name, f] of Object.entries({ middle: (s) => s.mean, upper: (s) => s.mean + s.width, lower: (s) => s.mean - s.width })) {
    found[name] = [betas.slice(0, cut), all.slice(0, cut).map(f)];
    found[`${name}_on`] = [betas.slice(cut), all.slice(cut).map(f)];
  }
  return {
    ...found,
    teacher_line: [places, t],
    student: [places, now.p],
    here: [[beta], [now.mean]],
    mean: now.mean,
    width: now.width,
    teacher_mean: given.mean,
    teacher_width: given.width,
    divergence: now.here,
  };
};
