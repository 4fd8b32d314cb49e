# ---
# title: A bar for the traffic
# kind: implement
# minutes: 25
# ---

# %% [statement]
# A filter was tested on a set of requests in which harmful ones are far more frequent than among real users. `scores` is an $(N,)$ tensor with the filter's score of each request, `harmful` an $(N,)$ tensor of booleans. Among users a share `share` of the requests is harmful; within the harmful and within the harmless ones the test set is what users send. A harmful answer costs `ratio` times what a false refusal costs.
#
# A filter blocks requests whose score is *at its bar or above*.
#
# 1. `cost(bars, scores, harmful, share, ratio)`: for each of the `bars` $(T,)$ the expected cost of one request *of the traffic*, in units of a false refusal, $(T,)$.
# 2. `best(scores, harmful, share, ratio)`: a number, the bar of least cost among the scores themselves and `math.inf` (block nothing). Of several with the same cost (they may differ by rounding, less than $10^{-9}$) the highest, since it refuses least.
# 3. `second(first, bar, scores, harmful, share, ratio)`: a first filter with scores `first` $(N,)$ of the same requests stays at its `bar`. At which bar should another one, with the scores `scores`, block *in addition*, so that both together cost least? As in 2.

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
    # what the first has blocked is blocked whatever the second says
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
    """Distinct scores of two filters with one digit, and which requests are harmful: about half, two of each at least."""
    harmful = draw.uniform(n) < 0.5
    harmful[:4] = torch.tensor([True, True, False, False])
    place = lambda: torch.tensor([draw.integer(0, 60) for _ in range(n)], dtype=torch.float64)
    spread = lambda x: x.argsort().argsort().double() / 10
    first, scores = (spread(place() + 25 * harmful + torch.arange(n) / 100) for _ in range(2))
    return first, scores, harmful


def by_hand(blocked, harmful, share, ratio, *, weigh=True):
    """The cost of one request when these are blocked, request by request."""
    bad, good = int(harmful.sum()), int((~harmful).sum())
    total = 0.0
    for stop, evil in zip(blocked.tolist(), harmful.tolist(), strict=True):
        here = (share / bad if evil else (1 - share) / good) if weigh else 1 / (bad + good)
        total += here * (ratio if evil and not stop else 1.0 if stop and not evil else 0.0)
    return total


@test(
    points=2,
    hints=(
        "Which share of the test set is harmful, and which of the traffic?",
        "The misses are a share of the harmful requests, the false refusals one of the harmless: weigh the two by `share` and by one less it, and the first by `ratio`.",
    ),
    against="request by request, each with the weight of its kind in the traffic",
)
def of_the_traffic(sub, draw):
    "`cost` is the expected cost of a request of the traffic."
    _, scores, harmful = requests(draw)
    share, ratio = 0.01 * draw.integer(2, 9), float(draw.integer(5, 30))
    bars = torch.tensor([float(scores[2]), float(scores[0]), 0.55, math.inf, -1.0], dtype=torch.float64)
    blocked = [scores >= t for t in bars.tolist()]
    costs = lambda rows, **how: torch.tensor([by_hand(row, harmful, share, ratio, **how) for row in rows], dtype=torch.float64)  # fmt: skip
    missed = torch.tensor([float((~row & harmful).sum() / harmful.sum()) for row in blocked], dtype=torch.float64)
    refused = torch.tensor([float((row & ~harmful).sum() / (~harmful).sum()) for row in blocked], dtype=torch.float64)
    expect(
        sub.cost(bars, scores, harmful, share, ratio), costs(blocked), what="`cost`", given={"bars": bars, "scores": scores, "harmful": harmful.int(), "share": share, "ratio": ratio},
        mistakes={
            "it is the cost on the test set, where harm is much more frequent": costs(blocked, weigh=False),
            "a request whose score is at the bar passes": costs([scores > t for t in bars.tolist()]),
            "the ratio is given to the false refusals": share * missed + ratio * (1 - share) * refused,
            "the two errors are not weighed by how frequent the two kinds are": ratio * missed + refused,
            "harmless requests are taken for the whole traffic": ratio * share * missed + refused,
            "one blocks what is below the bar": costs([~row for row in blocked]),
            "the two errors cost the same": share * missed + (1 - share) * refused,
        },
    )  # fmt: skip


def equally_cheap(candidates, harmful, share, ratio, **how):
    """The bars of least cost; candidates: pairs of a bar and what is blocked with it."""
    costs = [by_hand(blocked, harmful, share, ratio, **how) for _, blocked in candidates]
    return [bar for (bar, _), c in zip(candidates, costs, strict=True) if c <= min(costs) + 1e-9]


def lowest(candidates, harmful, share, ratio, **how):
    """The highest of the bars of least cost."""
    return max(equally_cheap(candidates, harmful, share, ratio, **how))


def compared(what, got, want, given, mistakes, ties=()):
    """Bars, of which one may be infinite; ties: all that cost as little."""
    got = float(got)
    if got == want or (math.isfinite(want) and math.isfinite(got) and abs(got - want) < 1e-9):
        return
    if any(got == bar or abs(got - bar) < 1e-9 for bar in ties):
        fail(
            f"{what} is {got:.4g}, and {want:.4g} costs the same but for rounding: of several with the same cost the highest is asked for",
            given=given,
        )
    matches = [say for say, x in mistakes.items() if x != want and (got == x or abs(got - x) < 1e-9)]
    if matches:
        fail(
            f"{what} is {got:.4g}, where {want:.4g} costs less; that comes out when {', or when '.join(matches)}",
            given=given,
        )
    fail(f"{what} is {got:.4g}; the bar of least cost is {want:.4g}", given=given)


@test(
    points=1,
    hints=(
        "Which bars are tried, and what if blocking nothing is cheapest?",
        "Try every score and infinity; of those of least cost take the highest.",
    ),
)
def least(sub, draw):
    "`best` is the bar of least cost."
    for share, ratio in ((0.04, 20.0), (0.1, 9.0), (0.002, 3.0), (0.3, 2.0)):
        _, scores, harmful = requests(draw)
        if share < 0.01:
            harmful[scores.argmax()] = (
                False  # where harm is rare and the highest score is harmless, nothing is worth blocking
            )
        given = {"scores": scores, "harmful": harmful.int(), "share": share, "ratio": ratio}
        candidates = [(t, scores >= t) for t in [*scores.tolist(), math.inf]]
        want = lowest(candidates, harmful, share, ratio)
        above = [(t, scores > t) for t in [*scores.tolist(), math.inf]]
        compared(
            "`best`", sub.best(scores, harmful, share, ratio), want, given,
            {
                "blocking nothing is not tried": lowest(candidates[:-1], harmful, share, ratio),
                "the test set's costs are taken, where harm is much more frequent": lowest(candidates, harmful, share, ratio, weigh=False),
                "a request whose score is at the bar passes": lowest(above, harmful, share, ratio),
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
        {"the lowest of several with the same cost is taken, and the highest refuses least": 0.2, "one of several with the same cost is taken, and not the highest": 0.4},
    )  # fmt: skip
    # At a share of 0.05 and a ratio of 19 a miss costs what a refusal costs, up to rounding; at 19.001 a little more.
    scores = torch.tensor([0.1, 0.2, 0.3, 0.4, 0.5, 0.6], dtype=torch.float64)
    harmful = torch.tensor([True, False, True, False, True, False])
    for ratio in (19.0, 19.001, 18.999):
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
        "What can the second filter still change about a request that the first has blocked?",
        "Nothing, in neither direction. A request is blocked if either filter blocks it: compute the cost of that for every bar of the second.",
    ),
)
def in_addition(sub, draw):
    "`second` is the best bar of another filter beside the first."
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
                break  # the request at the first one's bar decides, or what the first has blocked, and costs more
        given = {"first": first, "bar": bar, "scores": scores, "harmful": harmful.int(), "share": share, "ratio": ratio}
        both = [(t, (first >= bar) & (scores >= t)) for t in tried]
        alone = [(t, scores >= t) for t in tried]
        compared(
            "`second`", _equivalent(sub.second(first, bar, scores, harmful, share, ratio), want, candidates), want, given,
            {
                "the second filter is taken by itself": lowest(alone, harmful, share, ratio),
                "both filters have to block a request, where one is enough": lowest(both, harmful, share, ratio),
                "what has passed the first filter is taken for the traffic, although less than `share` of it is harmful": among,
                "a request whose score is at the first one's bar passes it": above,
                "the second filter has the first one's bar": bar,
            },
            equally_cheap(candidates, harmful, share, ratio),
        )  # fmt: skip
    # the first has found all harm, and the highest score is a harmless one's: nothing is worth blocking in addition
    first = torch.tensor([0.1, 0.9, 0.2, 0.8, 0.3, 0.4], dtype=torch.float64)
    scores = torch.tensor([0.6, 0.1, 0.2, 0.3, 0.4, 0.5], dtype=torch.float64)
    harmful = torch.tensor([False, True, False, True, False, False])
    compared(
        "`second`", sub.second(first, 0.8, scores, harmful, 0.1, 9.0), math.inf, {"first": first, "bar": 0.8, "scores": scores, "harmful": harmful.int()},
        {"blocking nothing in addition is not tried": 0.6},
    )  # fmt: skip


def _equivalent(got, want, candidates):
    """The right bar in place of one of the tried bars that blocks the very same requests: a score that the first filter has blocked anyway."""
    blocked = dict(candidates)
    got = float(got)
    if got in blocked and torch.equal(blocked[got], blocked[want]):
        return want
    return got


# %% [probes]
# no integers, size, values, float32, gradient, keywords, nan: scores and booleans; bars are compared, not tensors


# %% [mutant] the test set
# caught by: of_the_traffic
# says: on the test set
def cost(bars, scores, harmful, share, ratio):
    blocked = scores >= bars[:, None]
    return (ratio * (~blocked & harmful).double() + (blocked & ~harmful).double()).mean(-1)


# %% [mutant] above the bar
# caught by: of_the_traffic
# says: at the bar passes
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


# %% [mutant] by itself
# caught by: in_addition
# says: by itself
def second(first, bar, scores, harmful, share, ratio):
    return best(scores, harmful, share, ratio)


# %% [mutant] only what has passed
# caught by: in_addition
# says: taken for the traffic
def second(first, bar, scores, harmful, share, ratio):
    left = first < bar
    if not bool(harmful[left].any()) or bool(harmful[left].all()):
        return math.inf
    bars = torch.cat([scores, torch.tensor([math.inf], dtype=scores.dtype)])
    return cheapest(bars, cost(bars, scores[left], harmful[left], share, ratio))


# %% [partial] 3: one filter
def second(first, bar, scores, harmful, share, ratio):
    return math.inf
