"""A student with one hump, a teacher with two: which student is nearest, by divergence."""

from figures import Ask, Figure, Mark, Panel, Reading, Slider

BETAS = [round(0.02 + 0.04 * i, 2) for i in range(25)]  # 0.02 to 0.98
MEANS = [round(-2.24 + 0.08 * i, 2) for i in range(57)]
WIDTHS = [round(0.3 * 1.12**i, 4) for i in range(20)]


def data():
    """Places along a line, and the students among whom the nearest is looked for."""
    return {
        "places": [round(-6 + 0.15 * i, 2) for i in range(81)],
        "means": MEANS,
        "widths": WIDTHS,
        "betas": BETAS,
    }


def oracle(data, state):
    """By the library's divergence, for every student of a grid."""
    import torch

    from minirlhf.equations import kl

    x = torch.tensor(data["places"], dtype=torch.float64)
    half = state["apart"] / 2
    teacher = (0.6 * torch.exp(-(((x + half) / 0.4) ** 2) / 2) + 0.4 * torch.exp(-(((x - half) / 0.4) ** 2) / 2)).log()
    grid = [(m, w) for m in data["means"] for w in data["widths"]]
    students = torch.stack([-(((x - m) / w) ** 2) / 2 for m, w in grid])

    def nearest(beta):
        far = kl.generalised_jsd(students, teacher.expand_as(students), beta=beta)
        at = int(far.argmin())
        return at, float(far[at])

    def moments(p):
        mean = (p * x).sum(-1)
        return mean, ((p * x**2).sum(-1) - mean**2).sqrt()

    found = [nearest(beta)[0] for beta in data["betas"]]
    at, least = nearest(state["beta"])
    means, widths = (part.tolist() for part in moments(students.softmax(-1)))
    mean, width = moments(teacher.softmax(-1))
    return {
        "teacher_line": [data["places"], teacher.softmax(-1).tolist()],
        "student": [data["places"], students[at].softmax(-1).tolist()],
        "middle": [data["betas"], [means[n] for n in found]],
        "upper": [data["betas"], [means[n] + widths[n] for n in found]],
        "lower": [data["betas"], [means[n] - widths[n] for n in found]],
        "here": [[state["beta"]], [means[at]]],
        "mean": means[at],
        "width": widths[at],
        "teacher_mean": float(mean),
        "teacher_width": float(width),
        "divergence": least / (state["beta"] * (1 - state["beta"])),
    }


def predicted(at):
    """How the nearest student passes from one KL to the other, at two distances of the humps."""
    far, near = at(apart=2.4)["middle"], at(apart=2.0)["middle"]
    steps = [abs(b - a) for a, b in zip(far[1], far[1][1:], strict=False)]
    large = [n for n, step in enumerate(steps) if step > 0.4 * sum(steps)]
    answer = {0: "little by little", 1: "in one jump", 2: "in two jumps, one for each hump"}[len(large)]
    found = {"jump": max(steps), "low": far[0][large[0]], "high": far[0][large[0] + 1]} if large else {}
    return answer, found | {"near": max(near[1]) - min(near[1])}


FIGURE = Figure(
    title="Cover both, or choose one? Between the two KLs",
    alt="Left: the teacher has two humps, at −1.2 and 1.2, the left one higher. The nearest student for b = .5 is wide and lies between them, at −.24. Right, over b:"
    " up to about .7 the nearest student stays there; then it jumps onto the left hump and is narrow.",
    controls=[
        Slider("beta", "b of the divergence", BETAS, start=0.5, form=".2f"),
        Slider("apart", "humps apart by", [round(0.2 * i, 1) for i in range(1, 21)], start=2.4, form=".1f"),
    ],
    panels=[
        Panel(
            "the teacher and the nearest student",
            "what is said",
            "probability",
            (-6, 6),
            (0, 0.16),
            [Mark("student", "student", "line", 0), Mark("teacher_line", "teacher", "line", 5, dashed=True)],
        ),
        Panel(
            "where the nearest student stands, for every b",
            "b: forward KL at 0, reverse KL at 1",
            "mean ± deviation",
            (0, 1),
            (-4, 4),
            [
                Mark("middle", "mean", "line", 0),
                Mark("upper", "one deviation away", "line", 0, dashed=True),
                Mark("lower", "", "line", 0, dashed=True),
                Mark("here", "", "points", 5),
            ],
        ),
    ],
    readings=[
        Reading("mean", "student: mean", 2),
        Reading("width", "deviation", 2),
        Reading("teacher_mean", "teacher: mean", 2),
        Reading("teacher_width", "deviation", 2),
        Reading("divergence", "D_b / b(1 − b), in nats"),
    ],
    data=data,
    oracle=oracle,
    ask=Ask(
        "The humps stand 2.4 apart. From one KL to the other, how does the nearest student pass from the middle onto one hump?",
        ["little by little", "in one jump", "in two jumps, one for each hump"],
        predicted,
        "In one jump of {jump:.1f}, between {low:.2f} and {high:.2f}: two quite different students are equally near there. With humps"
        " 2.0 apart nothing jumps: the place of the nearest moves by {near:.0f}.",
    ),
)
