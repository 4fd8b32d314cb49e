"""One pair, three answers: where DPO moves the probability, step by step, when answers share features."""

from figures import Ask, Figure, Mark, Panel, Reading, Slider

STEPS = 1000
RATE = 0.1
SHOWN = sorted({round(STEPS ** (i / 60)) for i in range(61)})


def data():
    """The chosen and the third answer's features; the reference says each of the three equally often."""
    return {"chosen": [1.0, 0.0], "third": [0.3, 1.0], "shown": SHOWN, "rate": RATE}


def oracle(data, state):
    """Gradient descent on the library's DPO loss, by its gradient's weight and the features' difference."""
    import torch

    from minirlhf.equations.preference_losses.pairs import dpo_displacement, dpo_gradient_weight
    from minirlhf.equations.preference_losses.records import PairLogps

    features = torch.tensor([data["chosen"], [state["along"], state["across"]], data["third"]], dtype=torch.float64)
    theta = torch.zeros(2, dtype=torch.float64)
    ref = (features @ theta).log_softmax(-1)
    first = dpo_displacement(ref, features, 0, 1)
    curves = []
    for _ in range(data["shown"][-1] + 1):
        logps = (features @ theta).log_softmax(-1)
        curves.append(logps.exp().tolist())
        pair = PairLogps(logps[:1], logps[1:2], ref[:1], ref[1:2])
        weight = dpo_gradient_weight(pair, beta=state["beta"])[0]
        theta = theta + data["rate"] * weight * (features[0] - features[1])
    steps, now = data["shown"], curves[state["step"]]
    chosen, rejected, third = ([curves[step][i] for step in steps] for i in range(3))
    return {
        "chosen": [steps, chosen],
        "rejected": [steps, rejected],
        "third": [steps, third],
        "here": [[state["step"]] * 3, now],
        "features_chosen": [[data["chosen"][0]], [data["chosen"][1]]],
        "features_rejected": [[state["along"]], [state["across"]]],
        "features_third": [[data["third"][0]], [data["third"][1]]],
        "direction": [[state["along"], data["chosen"][0]], [state["across"], data["chosen"][1]]],
        "rate_chosen": float(first[0]),
        "rate_rejected": float(first[1]),
        "rate_third": float(first[2]),
        "p_chosen": now[0],
        "p_third": now[2],
    }


ASKED = ["the way that is walked", "how fast the way is walked", "where the way ends"]


def predicted(at):
    """What a smaller β changes: the way, as pairs of two probabilities, its end, or only how soon one is where on it."""
    import numpy as np

    start, small = at(beta=1.0), at(beta=0.1)
    third, chosen = (np.array(start[name][1]) for name in ("third", "chosen"))
    assert (np.diff(third) > 0).all()
    beside = np.abs(np.interp(small["third"][1], third, chosen) - small["chosen"][1]).max()
    need = [next(n for n, p in zip(*v["third"], strict=True) if p > 0.5) for v in (start, small)]
    answer = ASKED[0] if beside > 0.005 else ASKED[1] if need[1] > 2 * need[0] else ASKED[2]
    return answer, {"large": need[0], "small": need[1], "end": small["third"][1][-1]}


FIGURE = Figure(
    title="“No” over “never”: who gains? Move the rejected answer's features",
    alt="Left: the features of three answers in the plane; “never” lies close to “no”, a little below it, and “sure” far above. Right, over 1,000 steps of DPO on the one pair"
    " “no” over “never”: “no” and “never” fall, “sure” rises and has nearly all the probability in the end.",
    controls=[
        Slider("along", "“never”, first feature", [round(-1 + 0.1 * i, 1) for i in range(21)], start=0.9, form=".1f"),
        Slider("across", "second feature", [round(-1 + 0.1 * i, 1) for i in range(21)], start=-0.3, form=".1f"),
        Slider("beta", "β", [0.05, 0.1, 0.2, 0.5, 1.0, 2.0], start=0.5),
        Slider("step", "step", SHOWN, start=STEPS),
    ],
    panels=[
        Panel(
            "features of the three answers",
            "first feature",
            "second feature",
            (-1.2, 1.2),
            (-1.2, 1.2),
            [
                Mark("direction", "the direction of the step", "line", 5, dashed=True),
                Mark("features_chosen", "“no”, chosen", "points", 0),
                Mark("features_rejected", "“never”, rejected", "points", 4),
                Mark("features_third", "“sure”, not in the pair", "points", 1),
            ],
        ),
        Panel(
            "probability of each",
            "steps of DPO on the one pair",
            "probability",
            (1, STEPS),
            (0, 1),
            [
                Mark("chosen", "“no”", "line", 0),
                Mark("rejected", "“never”", "line", 4, dashed=True),
                Mark("third", "“sure”", "line", 1),
                Mark("here", "", "points", 5),
            ],
            log="x",
        ),
    ],
    readings=[
        Reading("rate_chosen", "at the first step the log-probability changes as: “no”"),
        Reading("rate_rejected", "“never”"),
        Reading("rate_third", "“sure”"),
        Reading("p_chosen", "probability of “no” now"),
        Reading("p_third", "“sure” now"),
    ],
    data=data,
    oracle=oracle,
    ask=Ask(
        "With β = 1, “sure”, which no pair mentions, ends with nearly all of the probability. What does β = .1 change?",
        ASKED,
        predicted,
        "How fast. Every step lies along the same dashed line, and the loss of one pair has no lowest point on it. “Sure” has half of the probability after {large} steps"
        " with β = 1 and after {small} with .1, and {end:.2f} after 1,000.",
    ),
)
