# ---
# title: A threshold for the traffic
# kind: implement
# minutes: 25
# ---

# %% [statement]
# A filter was tested on a set in which harmful requests are far more frequent than in real traffic. `scores` is an $(N,)$ tensor with the filter's score of each request, `harmful` an $(N,)$ tensor of booleans. In the traffic a fraction `share` of the requests is harmful. Among the harmful requests, and among the harmless ones, the test set is representative of the traffic. A harmful answer costs `ratio` times as much as a false refusal.
#
# A filter blocks requests whose score is *at its threshold or above*. The code calls a threshold a bar.
#
# 1. `cost(bars, scores, harmful, share, ratio)`: for each of the thresholds `bars` $(T,)$ the expected cost of one request *of the traffic*, in units of a false refusal, $(T,)$.
# 2. `best(scores, harmful, share, ratio)`: a number, the threshold of least cost among the scores themselves and `math.inf` (block nothing). If several have the same cost (they may differ by rounding, less than $10^{-9}$), return the highest, because it refuses least.
# 3. `second(first, bar, scores, harmful, share, ratio)`: a first filter with scores `first` $(N,)$ of the same requests keeps its threshold `bar`. At which threshold should another filter, with the scores `scores`, block *in addition*, so that both together cost least? Choose among the same candidates as in 2, and resolve ties in the same way.

# %% [given]
import math

import torch


# %% [stub]
def cost(bars, scores, harmful, share, ratio):
    """bars: (T,). scores, harmful: (N,). Returns (T,)."""
    raise NotImplementedError


def best(scores, harmful, share, ratio):
    """Returns a number, or math.inf."""
    raise NotImplementedError


def second(first, bar, scores, harmful, share, ratio):
    """first, scores, harmful: (N,). Returns a number, or math.inf."""
    raise NotImplementedError


# %% [solution]
def cost(bars, scores, harmful, share, ratio):
    blocked = (scores >= bars[:, None]).double()  # (T, N)
    missed = 1 - blocked[:, harmful].mean(-1)
    refused = blocked[:, ~harmful].mean(-1)
    return ratio * share * missed + (1 - share) * refused


def cheapest(bars, costs):
    return float(bars[costs <= costs.min() + 1e-12].max())


def best(scores, harmful, share, ratio):
    bars = torch.cat([scores, torch.tensor([math.inf], dtype=scores.dtype)])
    return cheapest(bars, cost(bars, scores, harmful, share, ratio))


def second(first, bar, scores, harmful, share, ratio):
    # a request that the first filter blocks stays blocked
    effective = torch.where(first >= bar, math.inf, scores)
    bars = torch.cat([scores[first < bar], torch.tensor([math.inf], dtype=scores.dtype)])
    blocked = (effective >= bars[:, None]).double()
    blocked[:, first >= bar] = 1.0
    costs = ratio * share * (1 - blocked[:, harmful].mean(-1)) + (1 - share) * blocked[:, ~harmful].mean(-1)
    return cheapest(bars, costs)


# %% [tests]
import math

import torch
from minirlhf_course.classroom.testing import expect, fail, test


def requests(draw, n=14):
    """Return distinct scores of two filters with one digit, and which requests are harmful: about half, at least two of each."""
    harmful = draw.uniform(n) < 0.5
    harmful[:4] = torch.tensor([True, True, False, False])
    place = lambda: torch.tensor([draw.integer(0, 60) for _ in range(n)], dtype=torch.float64)
    spread = lambda x: x.argsort().argsort().double() / 10
    first, scores = (spread(place() + 25 * harmful + torch.arange(n) / 100) for _ in range(2))
    return first, scores, harmful


def by_hand(blocked, harmful, share, ratio, *, weigh=True):
    """Return the cost of one request if these are blocked, request by request."""
    bad, good = int(harmful.sum()), int((~harmful).sum())
    total = 0.0
    for stop, evil in zip(blocked.tolist(), harmful.tolist(), strict=True):
        here = (share / bad if evil else (1 - share) / good) if weigh else 1 / (bad + good)
        total += here * (ratio if evil and not stop else 1.0 if stop and not evil else 0.0)
    return total


@test(
    points=2,
    hints=(
        "Which fraction of the test set is harmful, and which fraction of the traffic?",
        "The misses are a fraction of the harmful requests, the false refusals a fraction of the harmless ones. Weight them by `share` and 1 − `share`, and the misses also by `ratio`.",
    ),
    against="request by request, each with the weight of its kind in the traffic",
)
def of_the_traffic(sub, draw):
    "`cost` is the expected cost of a request of the traffic."
    for n in (14, 9):
        _of_the_traffic(sub, draw, n)


def _of_the_traffic(sub, draw, n):
    _, scores, harmful = requests(draw, n)
    share, ratio = 0.01 * draw.integer(2, 9), float(draw.integer(5, 30))
    bars = torch.tensor(
        [float(scores[2]), float(scores[0]), float(scores[0]) + 1e-7, 0.55, math.inf, -1.0], dtype=torch.float64
    )
    blocked = [scores >= t for t in bars.tolist()]
    costs = lambda rows, **how: torch.tensor([by_hand(row, harmful, share, ratio, **how) for row in rows], dtype=torch.float64)  # fmt: skip
    missed = torch.tensor([float((~row & harmful).sum() / harmful.sum()) for row in blocked], dtype=torch.float64)
    refused = torch.tensor([float((row & ~harmful).sum() / (~harmful).sum()) for row in blocked], dtype=torch.float64)
    expect(
        sub.cost(bars, scores, harmful, share, ratio), costs(blocked), what="`cost`", given={"bars": bars, "scores": scores, "harmful": harmful.int(), "share": share, "ratio": ratio},
        mistakes={
            "it is the cost on the test set, where harm is much more frequent": costs(blocked, weigh=False),
            "a request whose score is at the threshold passes": costs([scores > t for t in bars.tolist()]),
            "the ratio multiplies the false refusals": share * missed + ratio * (1 - share) * refused,
            "the two errors are not weighted by the frequencies of the two kinds": ratio * missed + refused,
            "harmless requests have the weight of the whole traffic": ratio * share * missed + refused,
            "requests below the threshold are blocked": costs([~row for row in blocked]),
            "the two errors cost the same": share * missed + (1 - share) * refused,
        },
    )  # fmt: skip


def equally_cheap(candidates, harmful, share, ratio, **how):
    """Return the thresholds of least cost; candidates: pairs of a threshold and the mask of blocked requests."""
    costs = [by_hand(blocked, harmful, share, ratio, **how) for _, blocked in candidates]
    return [bar for (bar, _), c in zip(candidates, costs, strict=True) if c <= min(costs) + 1e-9]


def lowest(candidates, harmful, share, ratio, **how):
    """Return the highest of the thresholds of least cost."""
    return max(equally_cheap(candidates, harmful, share, ratio, **how))


def compared(what, got, want, given, mistakes, ties=()):
    """Compare thresholds, of which one may be infinite; ties: all thresholds of equal cost."""
    got = float(got)
    if got == want or (math.isfinite(want) and math.isfinite(got) and abs(got - want) < 1e-9):
        return
    if any(got == bar or abs(got - bar) < 1e-9 for bar in ties):
        fail(
            f"{what} is {got:.4g}, and {want:.4g} costs the same except for rounding; expected the highest of equally cheap thresholds",
            given=given,
        )
    matches = [say for say, x in mistakes.items() if x != want and (got == x or abs(got - x) < 1e-9)]
    if matches:
        fail(
            f"{what} is {got:.4g}, but {want:.4g} costs less; this is the result if {', or if '.join(matches)}",
            given=given,
        )
    fail(f"{what} is {got:.4g}; the threshold of least cost is {want:.4g}", given=given)


@test(
    points=1,
    hints=(
        "Which thresholds do you try, and what if blocking nothing is cheapest?",
        "Try every score and infinity. Among the thresholds of least cost take the highest.",
    ),
)
def least(sub, draw):
    "`best` is the threshold of least cost."
    for share, ratio in ((0.04, 20.0), (0.1, 9.0), (0.002, 3.0), (0.3, 2.0)):
        _, scores, harmful = requests(draw)
        if share < 0.01:
            harmful[scores.argmax()] = (
                False  # if harm is rare and the highest score is harmless, blocking nothing is cheapest
            )
        given = {"scores": scores, "harmful": harmful.int(), "share": share, "ratio": ratio}
        candidates = [(t, scores >= t) for t in [*scores.tolist(), math.inf]]
        want = lowest(candidates, harmful, share, ratio)
        above = [(t, scores > t) for t in [*scores.tolist(), math.inf]]
        compared(
            "`best`", sub.best(scores, harmful, share, ratio), want, given,
            {
                "blocking nothing is not tried": lowest(candidates[:-1], harmful, share, ratio),
                "the costs are those on the test set, where harm is much more frequent": lowest(candidates, harmful, share, ratio, weigh=False),
                "a request whose score is at the threshold passes": lowest(above, harmful, share, ratio),
                "the two errors cost the same": lowest(candidates, harmful, share, 1.0),
            },
            equally_cheap(candidates, harmful, share, ratio),
        )  # fmt: skip
    scores = torch.tensor([0.1, 0.2, 0.3, 0.4, 0.5, 0.6], dtype=torch.float64)
    harmful = torch.tensor([False, True, False, True, False, True])
    # a third of the harmful ones each; share and ratio such that several bars cost exactly the same
    given = {"scores": scores, "harmful": harmful.int(), "share": 0.25, "ratio": 3.0}
    compared(
        "`best`", sub.best(scores, harmful, 0.25, 3.0), 0.6, given,
        {"the lowest of equally cheap thresholds is chosen, and the highest refuses least": 0.2, "one of equally cheap thresholds is chosen, and not the highest": 0.4},
    )  # fmt: skip
    # At a share of 0.05 and a ratio of 19 a miss costs what a refusal costs, up to rounding; at 19.00001 a little more.
    scores = torch.tensor([0.1, 0.2, 0.3, 0.4, 0.5, 0.6], dtype=torch.float64)
    harmful = torch.tensor([True, False, True, False, True, False])
    for ratio in (19.0, 19.00001, 18.99999):
        candidates = [(t, scores >= t) for t in [*scores.tolist(), math.inf]]
        want = lowest(candidates, harmful, 0.05, ratio)
        given = {"scores": scores, "harmful": harmful.int(), "share": 0.05, "ratio": ratio}
        compared(
            "`best`",
            sub.best(scores, harmful, 0.05, ratio),
            want,
            given,
            {},
            equally_cheap(candidates, harmful, 0.05, ratio),
        )


@test(
    points=2,
    hints=(
        "What can the second filter change about a request that the first filter has blocked?",
        "Nothing, in either direction. A request is blocked if either filter blocks it. Compute this cost for every threshold of the second filter.",
    ),
)
def in_addition(sub, draw):
    "`second` is the best threshold of another filter beside the first."
    for number, (share, ratio) in enumerate(((0.04, 20.0), (0.1, 9.0), (0.1, 12.0), (0.2, 8.0))):
        for _ in range(300):
            first, scores, harmful = requests(draw)
            bar = float(first.sort().values[9])
            tried = [*scores.tolist(), math.inf]
            candidates = [(t, (first >= bar) | (scores >= t)) for t in tried]
            want = lowest(candidates, harmful, share, ratio)
            left = first < bar
            if not 0 < int(harmful[left].sum()) < int(left.sum()):
                continue
            above = lowest([(t, (first > bar) | (scores >= t)) for t in tried], harmful, share, ratio)
            among = lowest([(t, (scores >= t)[left]) for t in tried], harmful[left], share, ratio)
            slips = [_equivalent(slip, want, candidates) for slip in (above, among)]
            ties = [bar for bar in equally_cheap(candidates, harmful, share, ratio) if bar != want]
            if slips[number % 2] != want and not set(slips) & set(ties):
                break  # the request at the threshold of the first filter decides, or a blocked one, and costs more
        given = {"first": first, "bar": bar, "scores": scores, "harmful": harmful.int(), "share": share, "ratio": ratio}
        both = [(t, (first >= bar) & (scores >= t)) for t in tried]
        alone = [(t, scores >= t) for t in tried]
        compared(
            "`second`", _equivalent(sub.second(first, bar, scores, harmful, share, ratio), want, candidates), want, given,
            {
                "the second filter is treated as the only one": lowest(alone, harmful, share, ratio),
                "both filters must block a request, although one is enough": lowest(both, harmful, share, ratio),
                "requests that passed the first filter are treated as the traffic, although less than `share` of them is harmful": among,
                "a request whose score is at the threshold of the first filter passes it": above,
                "the second filter has the threshold of the first": bar,
            },
            equally_cheap(candidates, harmful, share, ratio),
        )  # fmt: skip
    # the first filter blocks all harm, and the highest score is harmless: blocking nothing in addition is cheapest
    first = torch.tensor([0.1, 0.9, 0.2, 0.8, 0.3, 0.4], dtype=torch.float64)
    scores = torch.tensor([0.6, 0.1, 0.2, 0.3, 0.4, 0.5], dtype=torch.float64)
    harmful = torch.tensor([False, True, False, True, False, False])
    compared(
        "`second`", sub.second(first, 0.8, scores, harmful, 0.1, 9.0), math.inf, {"first": first, "bar": 0.8, "scores": scores, "harmful": harmful.int()},
        {"blocking nothing in addition is not tried": 0.6},
    )  # fmt: skip


def _equivalent(got, want, candidates):
    """Replace a threshold that blocks exactly the same requests by the expected one: its score is already blocked by the first filter."""
    blocked = dict(candidates)
    got = float(got)
    if got in blocked and torch.equal(blocked[got], blocked[want]):
        return want
    return got


# %% [probes]
# no integers, size, values, float32, gradient, keywords, nan: scores and booleans; thresholds are compared, not tensors


# %% [mutant] the test set
# caught by: of_the_traffic
# says: on the test set
def cost(bars, scores, harmful, share, ratio):
    blocked = scores >= bars[:, None]
    return (ratio * (~blocked & harmful).double() + (blocked & ~harmful).double()).mean(-1)


# %% [mutant] above the threshold
# caught by: of_the_traffic
# says: at the threshold passes
def cost(bars, scores, harmful, share, ratio):
    blocked = (scores > bars[:, None]).double()
    return ratio * share * (1 - blocked[:, harmful].mean(-1)) + (1 - share) * blocked[:, ~harmful].mean(-1)


# %% [mutant] something is always blocked
# caught by: least
# says: not tried
def best(scores, harmful, share, ratio):
    return cheapest(scores, cost(scores, scores, harmful, share, ratio))


# %% [mutant] the first of the cheapest
# caught by: least
def best(scores, harmful, share, ratio):
    bars = torch.cat([scores, torch.tensor([math.inf], dtype=scores.dtype)]).sort().values
    return float(bars[(cost(bars, scores, harmful, share, ratio) * 1e9).round().argmin()])


# %% [mutant] the second filter alone
# caught by: in_addition
# says: as the only one
def second(first, bar, scores, harmful, share, ratio):
    return best(scores, harmful, share, ratio)


# %% [mutant] only what has passed
# caught by: in_addition
# says: treated as the traffic
def second(first, bar, scores, harmful, share, ratio):
    left = first < bar
    if not bool(harmful[left].any()) or bool(harmful[left].all()):
        return math.inf
    bars = torch.cat([scores, torch.tensor([math.inf], dtype=scores.dtype)])
    return cheapest(bars, cost(bars, scores[left], harmful[left], share, ratio))


# %% [partial] 3: one filter
def second(first, bar, scores, harmful, share, ratio):
    return math.inf
