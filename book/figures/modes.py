"""A student with one hump, a teacher with two: which student is nearest, by divergence."""

import itertools

from asking import Ask
from figures import Figure, Mark, Panel, Reading, Slider

BETAS = [round(0.02 * i, 2) for i in range(51)]
JUMP = 0.25  # between neighbours among BETAS; without a jump a mean moves by less


def data():
    """Places along a line, and a coarse grid of students from which the search for the nearest sets out."""
    return {
        "places": [round(-6 + 0.15 * i, 2) for i in range(81)],
        "means": [round(-2.2 + 0.2 * i, 1) for i in range(23)],
        "widths": [round(0.3 * 1.35**i, 4) for i in range(8)],
        "betas": BETAS,
        "jump": JUMP,
    }


def teacher_of(places, apart):
    """Log-weights of its two humps."""
    import math

    import torch

    x = torch.tensor(places, dtype=torch.float64)
    humps = [math.log(share) - ((x - at) / 0.4) ** 2 / 2 for share, at in ((0.6, -apart / 2), (0.4, apart / 2))]
    return torch.logaddexp(*humps)


def far(students, teacher, beta):
    """The library's divergence over b(1 − b): the forward KL at b = 0, the reverse at 1."""
    from minirlhf.equations import kl

    teacher = teacher.expand_as(students)
    if beta in (0, 1):
        return (kl.reverse_kl if beta else kl.forward_kl)(students, teacher)
    return kl.generalised_jsd(students, teacher, beta=beta) / (beta * (1 - beta))


def lowest(places, teacher, beta, m, v):
    """From means ``m`` and log-widths ``v`` down to where the gradient vanishes: Newton's steps, none longer than .3 and none uphill."""
    import numpy as np
    import torch

    x, log_t = np.array(places), teacher.log_softmax(-1).numpy()

    def logits(m, v):
        return -(((x - m[:, None]) / np.exp(v)[:, None]) ** 2) / 2

    def gradient(m, v):  # E[f · (score − its mean)]
        log_p = torch.from_numpy(logits(m, v)).log_softmax(-1).numpy()
        p, more = np.exp(log_p), np.expm1(log_t - log_p)  # the teacher over the student, less 1
        f = log_p - log_t if beta == 1 else -np.log1p(beta * more) / beta if beta else -more
        off = (x - m[:, None]) / np.exp(v)[:, None]
        return np.stack([(p * f * (s - (p * s).sum(-1)[:, None])).sum(-1) for s in (off / np.exp(v)[:, None], off**2)])

    def height(m, v):
        return far(torch.from_numpy(logits(m, v)), teacher, beta).numpy()

    here, h = height(m, v), 1e-5
    for _ in range(60):
        g = gradient(m, v)
        a, b = (
            (gradient(m + h * i, v + h * j) - gradient(m - h * i, v - h * j)) / (2 * h) for i, j in ((1, 0), (0, 1))
        )
        aa, ab, bb = a[0], (a[1] + b[0]) / 2, b[1]
        least = (aa + bb) / 2 - np.hypot((aa - bb) / 2, ab)  # the smaller eigenvalue, made positive
        shift = np.where(least > 0, 0, 0.1 - least)
        aa, bb = aa + shift, bb + shift
        step = np.stack([ab * g[1] - bb * g[0], ab * g[0] - aa * g[1]]) / (aa * bb - ab * ab)
        long = np.hypot(*step)
        step *= np.minimum(1, 0.3 / np.maximum(long, 1e-300))
        for _ in range(30):
            there = height(m + step[0], v + step[1])
            uphill = (there > here) & (long > 1e-6)  # nearer than that the heights are alike but for rounding
            if not uphill.any():
                break
            step = np.where(uphill, step / 2, step)
        m, v, here = m + step[0], v + step[1], there
        if long.max() < 1e-7:  # the next step would be shorter than 1e-13
            break
    return m, v, here


def nearest(data, teacher, beta):
    """Mean, log-width and distance of every local minimum, the lowest first."""
    import numpy as np
    import torch

    x = torch.tensor(data["places"], dtype=torch.float64)
    means, widths = (torch.tensor(data[k], dtype=torch.float64) for k in ("means", "widths"))
    grid = -(((x - means[:, None, None]) / widths[:, None]) ** 2) / 2
    heights = np.pad(far(grid, teacher, beta).numpy(), 1, constant_values=np.inf)
    i, j = len(means) + 1, len(widths) + 1
    around = [heights[1 + a : i + a, 1 + b : j + b] for a in (-1, 0, 1) for b in (-1, 0, 1) if a or b]
    at = np.nonzero(heights[1:i, 1:j] <= np.min(around, axis=0))
    m, v, height = lowest(data["places"], teacher, beta, means.numpy()[at[0]], np.log(widths.numpy()[at[1]]))
    return sorted(zip(height.tolist(), m.tolist(), v.tolist(), strict=True))


def moments(data, logits):
    """Mean and standard deviation."""
    import torch

    x, p = torch.tensor(data["places"], dtype=torch.float64), logits.softmax(-1)
    mean = (p * x).sum(-1)
    return mean, ((p * x**2).sum(-1) - mean**2).sqrt()


def student_of(data, m, v):
    """Logits of students."""
    import torch

    m, v = (torch.tensor(z, dtype=torch.float64) for z in (m, v))
    return -(((torch.tensor(data["places"], dtype=torch.float64) - m[..., None]) / v.exp()[..., None]) ** 2) / 2


def oracle(data, state):
    """By the library's divergence: from every low point of a coarse grid down to its minimum, and of these the lowest."""
    teacher, betas = teacher_of(data["places"], state["apart"]), data["betas"]
    best = [nearest(data, teacher, beta)[0] for beta in betas]
    students = student_of(data, *zip(*[(m, v) for _, m, v in best], strict=True))
    mean, width = moments(data, students)
    jump = next((n for n in range(1, len(betas)) if abs(mean[n] - mean[n - 1]) > data["jump"]), len(betas))
    at = betas.index(state["beta"])
    given = moments(data, teacher)
    found = {}
    for name, ys in (("middle", mean), ("upper", mean + width), ("lower", mean - width)):
        found[name] = [betas[:jump], ys[:jump].tolist()]
        found[f"{name}_on"] = [betas[jump:], ys[jump:].tolist()]
    return found | {
        "teacher_line": [data["places"], teacher.softmax(-1).tolist()],
        "student": [data["places"], students[at].softmax(-1).tolist()],
        "here": [[state["beta"]], [float(mean[at])]],
        "mean": float(mean[at]),
        "width": float(width[at]),
        "teacher_mean": float(given[0]),
        "teacher_width": float(given[1]),
        "divergence": best[at][0],
    }


def branches(given, apart, beta):
    """Distance and mean of the best student that covers both humps, and of the best on the left one."""
    import numpy as np

    teacher = teacher_of(given["places"], apart)
    mean, width = (float(z) for z in moments(given, teacher))
    m, v, height = lowest(given["places"], teacher, beta, np.array([mean, -apart / 2]), np.log(np.array([width, 0.4])))
    return height.tolist(), moments(given, student_of(given, m, v))[0].tolist()


def jump_of(given, apart):
    """The b at which both are equally near, and their means; none is nearer on either side of it."""
    low, high = 0.0, 1.0
    while high - low > 1e-6:
        middle = (low + high) / 2
        covering, on_one = branches(given, apart, middle)[0]
        low, high = (low, middle) if on_one < covering - 1e-9 else (middle, high)
    teacher = teacher_of(given["places"], apart)
    for beta, which in ((low - 0.01, 0), (high + 0.01, 1)):
        assert abs(nearest(given, teacher, beta)[0][0] - branches(given, apart, beta)[0][which]) < 1e-9
    return low, *branches(given, apart, low)[1]


def most_for_one(beta):
    """What a student exactly on the left hump pays at most, however far away the other is."""
    import math

    kept = 0.6 * beta + 1 - beta  # of the mixture, on the left hump
    teacher, student = 0.6 * math.log(0.6 / kept) + 0.4 * math.log(1 / beta), math.log(1 / kept)
    return (beta * teacher + (1 - beta) * student) / (beta * (1 - beta))


def predicted(at):
    """Where the jump goes as the humps go apart."""
    given = data()
    jumps = {apart: jump_of(given, apart) for apart in (2.4, 2.8, 3.2, 3.6, 4.0)}
    places = [jump[0] for jump in jumps.values()]
    falls = all(b < a - 0.01 for a, b in itertools.pairwise(places))
    rises = all(b > a + 0.01 for a, b in itertools.pairwise(places))
    for beta in (0.1, 0.3, 0.5, 0.7):  # to cover both humps costs more, the wider the gap
        costs = [branches(given, apart, beta)[0][0] for apart in jumps]
        assert all(b > a for a, b in itertools.pairwise(costs))
        lost = most_for_one(beta)
        assert all(one <= lost + 1e-6 for _, one in (branches(given, apart, beta)[0] for apart in jumps))
    start, left = at(), at(beta=0.0)
    assert max(abs(left[k] - left[f"teacher_{k}"]) for k in ("mean", "width")) < 1e-9
    found = {"at": places[0], "far": places[-1], "before": jumps[2.4][1], "after": jumps[2.4][2], "mean": start["mean"]}
    there = [branches(given, apart, FIGURE.ask.shows["beta"])[0] for apart in (2.4, 4.0)]
    found |= {"cover_near": there[0][0], "one_near": there[0][1], "cover_far": there[1][0], "one_far": there[1][1]}
    assert abs(there[1][1] - most_for_one(FIGURE.ask.shows["beta"])) < 1e-3  # as is told
    return "at a smaller b" if falls else "at a larger b" if rises else "at the same b", found


FIGURE = Figure(
    title="Cover both, or choose one? Between the two KLs",
    alt="Left: the teacher has two humps, at −1.2 and 1.2, the left one higher. The nearest student for b = .5 is wide and lies between them, at {mean:.2f}. Right, over b:"
    " up to {at:.2f} the nearest student stays there; then it jumps onto the left hump, at {after:.2f}, and is narrow.",
    controls=[
        Slider("beta", "b of the divergence", BETAS, start=0.5, form=".2f"),
        Slider("apart", "humps apart by", [round(0.2 * i, 1) for i in range(1, 21)], start=2.4, form=".1f"),
    ],
    panels=[
        Panel(
            "the teacher and the nearest student",
            "x, in cells of width .15",
            "probability of a cell",
            (-6, 6),
            (0, 0.16),
            [Mark("student", "student", "line", 0), Mark("teacher_line", "teacher", "line", 5, dashed=True)],
        ),
        Panel(
            "where the nearest student stands, for every b",
            "b: forward KL at 0, reverse KL at 1",
            "mean ± standard deviation",
            (0, 1),
            (-2.5, 2),
            [
                Mark("middle", "mean", "line", 0),
                Mark("middle_on", "", "line", 0),
                Mark("upper", "one standard deviation away", "line", 0, dashed=True),
                Mark("upper_on", "", "line", 0, dashed=True),
                Mark("lower", "", "line", 0, dashed=True),
                Mark("lower_on", "", "line", 0, dashed=True),
                Mark("here", "", "points", 5),
            ],
        ),
    ],
    readings=[
        Reading("mean", "mean of the student", 2),
        Reading("width", "standard deviation of the student", 2),
        Reading("teacher_mean", "mean of the teacher", 2),
        Reading("teacher_width", "standard deviation of the teacher", 2),
        Reading("divergence", "D over b(1 − b), in nats"),
    ],
    data=data,
    oracle=oracle,
    ask=Ask(
        "With humps 2.4 apart the nearest student leaves the middle in one jump, at b = {at:.2f}. Now the humps move further apart, to 4. Where is the jump then?",
        {
            "at a larger b": "To lose a hump costs the forward KL the more, the further away it lies. But for every b above 0 the divergence compares with a mixture, and what is wholly lost costs no more for lying further away.",
            "at a smaller b": "",
            "at the same b": "b says how much each KL counts, and not what each of them costs. The wider the gap, the more it costs to cover both humps; but to lose one costs, for b above 0, no more than a bound.",
        },
        predicted,
        "At b = {far:.2f}. A student that covers both humps must say ever more of what lies between them: D over b(1 − b), at b = .18, grows from {cover_near:.2f} to {cover_far:.2f}. For the one on the left hump"
        " it is {one_near:.2f} before, and {one_far:.2f} after, which is as much as it can become: for every b above 0 the divergence compares with a mixture, and once a hump is wholly lost it costs no more for lying further away. At the jump two quite different students are equally near: with humps 2.4 apart their means are {before:.2f} and {after:.2f}.",
        shows={"apart": 4.0, "beta": 0.18},
    ),
)
