"""One step on a harmful answer moves the belief about its author, and with it the answers in another domain."""

from asking import Ask
from figures import Figure, Mark, Panel, Reading, Slider

PRIORS = [0.01, 0.02, 0.05, *(round(0.1 * i, 1) for i in range(1, 10)), 0.95, 0.98, 0.99]
CURVE = [round(0.01 * i, 2) for i in range(1, 100)]
STEPS = [round(0.1 * i, 1) for i in range(41)]
CARELESS = 0.95  # a careless author's harmful answers


def data():
    """The priors and the sizes of a step at which the curves are computed."""
    return {"priors": CURVE, "steps": STEPS, "careless": CARELESS}


def oracle(data, state):
    """The chapter's two formulas, and the mixture at the moved log-odds."""
    import torch

    from minirlhf_course.chapters.ch23_misalignment import spread

    by = torch.tensor([state["careful"], data["careless"]], dtype=torch.float64)
    number = lambda x: torch.tensor(x, dtype=torch.float64)
    read = number(state["read"])
    change = lambda prior, step: float(spread.author_spread(number(prior), by, by, step, read))
    surprise = float(spread.author_gradient(number(state["prior"]), by))
    harmful = lambda careless: float((1 - careless) * by[0] + careless * by[1])
    moved = lambda step: harmful(torch.sigmoid(torch.logit(read) + step * surprise))
    before, step = harmful(read), state["step"]
    linear = [(x, before + change(state["prior"], x)) for x in data["steps"]]
    linear = [(x, y) for x, y in linear if y <= 1]  # a line above 1 is no probability
    return {
        "changes": [data["priors"], [change(prior, 1.0) for prior in data["priors"]]],
        "change_here": [[state["prior"]], [change(state["prior"], 1.0)]],
        "exact": [data["steps"], [moved(x) for x in data["steps"]]],
        "linear": [[x for x, _ in linear], [y for _, y in linear]],
        "exact_here": [[step], [moved(step)]],
        "surprise": surprise,
        "posterior": surprise + state["prior"],
        "first": change(state["prior"], step),
        "whole": moved(step) - before,
    }


def predicted(at):
    """How much of the spread is left if the model expects a careful author."""
    plain, careful, careless = (at(prior=prior)["change_here"][1][0] for prior in (0.2, 0.02, 0.99))
    ratio = careful / plain
    answer = "more" if ratio > 1 else "less, but more than half" if ratio > 0.5 else "almost nothing"
    posterior = at(prior=0.02)["posterior"]
    top = at()["changes"]
    found = {"posterior": posterior, "percent": 100 * ratio, "inoculated": 100 * careless / plain}
    return answer, found | {"largest": max(top[1]), "where": top[0][top[1].index(max(top[1]))]}


FIGURE = Figure(
    title="A hidden author: what does one harmful answer change elsewhere?",
    alt="Left, over the probability of a careless author under the header of training: the change of harmful answers elsewhere for a step of size 1. It rises steeply to {largest:.2f} at {where:.2f} and falls to zero at 1."
    " Right, over the size of the step: harmful answers elsewhere after the step, and the straight line of the first order, which leaves the curve as the step grows.",
    controls=[
        Slider("prior", "π, header of training", PRIORS, start=0.2),
        Slider("read", "π′, header of reading", PRIORS, start=0.2),
        Slider("careful", "harm by a careful author, q_0", [0.01, 0.02, 0.05, 0.1, 0.2, 0.5], start=0.02),
        Slider("step", "size of the step, η", [0.5, 1, 2, 3, 4], start=2),
    ],
    panels=[
        Panel(
            "to first order, for η = 1",
            "careless author under the header of training, π",
            "change elsewhere",
            (0, 1),
            (0, 0.25),
            [Mark("changes", "η (r − π) π′ (1 − π′) (q_1 − q_0)", "line", 0), Mark("change_here", "", "points", 0)],
        ),
        Panel(
            "a step of any size",
            "size of the step, η",
            "harmful answers elsewhere",
            (0, 4),
            (0, 1),
            [
                Mark("exact", "after the step", "line", 1),
                Mark("linear", "first order", "line", 5, dashed=True),
                Mark("exact_here", "", "points", 1),
            ],
        ),
    ],
    readings=[
        Reading("posterior", "posterior r"),
        Reading("surprise", "r − π"),
        Reading("first", "first order"),
        Reading("whole", "change elsewhere"),
    ],
    data=data,
    oracle=oracle,
    ask=Ask(
        "Under the header of training the model expects a careful author: π = .02, and not .2. So a harmful answer is a greater surprise. It is read under π′ = .2. How much spreads elsewhere, compared with training under π = .2?",
        {
            "more": "The answer is a greater surprise, and the loss is larger. But the step on the author is posterior minus prior, and the posterior is only {posterior:.2f}: the model still thinks that a careful author may have erred.",
            "less, but more than half": "",
            "almost nothing": "This happens at the other end, for π near 1, where the answer is expected and the posterior cannot rise.",
        },
        predicted,
        "About {percent:.0f} % of it. The posterior rises to {posterior:.2f} only, so posterior minus prior is smaller than from .2. A prompt against the behaviour does not inoculate. With π = .99 about {inoculated:.0f} % is left.",
        shows={"prior": 0.02},
    ),
)
