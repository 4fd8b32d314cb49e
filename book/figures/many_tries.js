// At least one, all, or the vote of k of the replies: sums over all choices, by counts.
touch.compute.many_tries = ({ samples }, { correct, kinds, k }) => {
  const { range } = touch.math;
  const choose = (n, m) => {
    if (m < 0 || m > n) return 0;
    let ways = 1;
    for (let i = 1; i <= m; i++) ways = Math.round((ways * (n - m + i)) / i);
    return ways;
  };
  const wrong = samples - correct;
  const others = range(kinds, (i) => Math.floor(wrong / kinds) + (i < wrong % kinds ? 1 : 0));
  function vote(n) { // for m votes of the right answer: the ways in which nobody has more, by votes given and by how many tie
    let won = 0;
    for (let m = 1; m <= Math.min(n, correct); m++) {
      let ways = new Map([["0 0", 1]]);
      for (const other of others) {
        const longer = new Map();
        for (const [state, count] of ways) {
          const [given, tied] = state.split(" ").map(Number);
          for (let extra = 0; extra <= Math.min(other, m, n - m - given); extra++) {
            const next = `${given + extra} ${tied + (extra === m ? 1 : 0)}`;
            longer.set(next, (longer.get(next) ?? 0) + count * choose(other, extra));
          }
        }
        ways = longer;
      }
      for (const [state, count] of ways) {
        const [given, tied] = state.split(" ").map(Number);
        if (given === n - m) won += (choose(correct, m) * count) / (1 + tied);
      }
    }
    return won / choose(samples, n);
  }
  const ks = range(samples, (i) => i + 1);
  const some = ks.map((n) => 1 - choose(wrong, n) / choose(samples, n));
  const every = ks.map((n) => choose(correct, n) / choose(samples, n));
  const votes = ks.map(vote), now = [some[k - 1], every[k - 1], votes[k - 1]];
  const counts = [correct, ...others];
  return {
    counts: [...counts, ...range(9 - counts.length, () => 0)],
    some_curve: [ks, some],
    every_curve: [ks, every],
    vote_curve: [ks, votes],
    here: [[k, k, k], now],
    some: now[0],
    every: now[1],
    vote: now[2],
  };
};
