// A mixture of a careful and a careless author; a step moves the log-odds of the careless one by posterior minus prior.
touch.compute.hidden_author = ({ priors, steps, careless }, { prior, read, careful, step }) => {
  const harmful = (p) => (1 - p) * careful + p * careless;
  const surprise = (p) => (p * careless) / harmful(p) - p;
  const change = (p, size) => size * surprise(p) * read * (1 - read) * (careless - careful);
  const odds = Math.log(read / (1 - read)), before = harmful(read), here = surprise(prior);
  const moved = (size) => harmful(touch.math.sigmoid(odds + size * here));
  const linear = steps.map((x) => [x, before + change(prior, x)]).filter(([, y]) => y <= 1);
  return {
    changes: [priors, priors.map((p) => change(p, 1))],
    change_here: [[prior], [change(prior, 1)]],
    exact: [steps, steps.map(moved)],
    linear: [linear.map(([x]) => x), linear.map(([, y]) => y)],
    exact_here: [[step], [moved(step)]],
    surprise: here,
    posterior: here + prior,
    first: change(prior, step),
    whole: moved(step) - before,
  };
};
