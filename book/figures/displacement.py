"""One pair, three answers: where DPO moves the probability, step by step, when answers share features."""

from asking import Ask
from figures import Figure, Mark, Panel, Reading, Slider

STEPS = 1000
RATE = 0.1
SHOWN = sorted({round(STEPS ** (i / 60)) for i in range(61)})


def data():
    """The chosen and the third answer's features; the reference says each of the three equally often."""
    return {"chosen": [1.0, 0.0], "third": [0.3, 1.0], "shown": SHOWN, "rate": RATE}


def features_of(data, state):
    """Of the chosen, the rejected and the third answer."""
    import torch

    return torch.tensor([data["chosen"], [state["along"], state["across"]], data["third"]], dtype=torch.float64)


def pair_of(logps, ref):
    """The chosen and the rejected answer, as the losses take them."""
    from minirlhf.equations.preference_losses.records import PairLogps

    return PairLogps(logps[:1], logps[1:2], ref[:1], ref[1:2])


def walk(data, state):
    """The three probabilities after every step of gradient descent, by the weight of the DPO gradient and the features' difference."""
    import torch

    from minirlhf.equations.preference_losses.pairs import dpo_gradient_weight

    features, theta, curves = features_of(data, state), torch.zeros(2, dtype=torch.float64), []
    ref = (features @ theta).log_softmax(-1)
    for _ in range(data["shown"][-1] + 1):
        logps = (features @ theta).log_softmax(-1)
        curves.append(logps.exp().tolist())
        weight = dpo_gradient_weight(pair_of(logps, ref), beta=state["beta"])[0]
        theta = theta + data["rate"] * weight * (features[0] - features[1])
    return curves


def oracle(data, state):
    """The walk at the steps that are shown, and the rates of the first step."""
    import torch

    from minirlhf.equations.preference_losses.pairs import dpo_displacement

    features = features_of(data, state)
    first = dpo_displacement(torch.zeros(3, dtype=torch.float64).log_softmax(-1), features, 0, 1)
    curves = walk(data, state)
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


def by_adam(data, state):
    """Steps of Adam on the DPO loss, at the same learning rate, until the third answer has half."""
    import torch

    from minirlhf.equations.preference_losses.pairs import dpo

    features, theta = features_of(data, state), torch.zeros(2, dtype=torch.float64, requires_grad=True)
    ref = (features @ theta).log_softmax(-1).detach()
    adam = torch.optim.Adam([theta], lr=data["rate"])
    for step in range(data["shown"][-1]):
        logps = (features @ theta).log_softmax(-1)
        if logps[2].exp() > 0.5:
            return step
        adam.zero_grad()
        dpo(pair_of(logps, ref), beta=state["beta"]).sum().backward()
        adam.step()
    raise ValueError("the third answer never has half")


def at_rest(data, state, wrong):
    """The three probabilities where the loss is lowest, if so large a share of the labels is wrong: cDPO is its mean."""
    import torch

    from minirlhf.equations.preference_losses.pairs import cdpo

    features = features_of(data, state)
    ref = torch.zeros(3, dtype=torch.float64).log_softmax(-1)

    def at(far):
        along = torch.tensor(far, dtype=torch.float64, requires_grad=True)
        logps = (features @ (features[0] - features[1]) * along).log_softmax(-1)
        loss = cdpo(pair_of(logps, ref), beta=state["beta"], label_smoothing=wrong).sum()
        return float(torch.autograd.grad(loss, along)[0]), logps.detach().exp().tolist()

    low, high = 0.0, 1e4
    assert at(low)[0] < 0 < at(high)[0]
    while high - low > 1e-6:
        middle = (low + high) / 2
        low, high = (middle, high) if at(middle)[0] < 0 else (low, middle)
    return at(low)[1]


def overtaken(data, state, large, small):
    """The first step after which the margin with ``small`` is the larger one."""
    import math

    squared = sum((a - b) ** 2 for a, b in zip(data["chosen"], (state["along"], state["across"]), strict=True))
    margins, step = [0.0, 0.0], 0
    while step == 0 or margins[1] <= margins[0]:
        margins = [
            h + data["rate"] * squared * beta / (1 + math.exp(beta * h))
            for h, beta in zip(margins, (large, small), strict=True)
        ]
        step += 1
    return step


ASKED = ["with β = 1", "with β = .1", "with both at the same step"]


def predicted(at):
    """With which of two β the third answer has half first; and what comes of it under other conditions."""
    import numpy as np

    given, large, small = data(), FIGURE.start | {"beta": 1.0}, FIGURE.start | {"beta": 0.1}
    walks = [np.array(walk(given, state)) for state in (large, small)]
    assert all((np.diff(w[:, 2]) > 0).all() for w in walks)
    beside = np.interp(walks[1][:, 2], walks[0][:, 2], walks[0][:, 0]) - walks[1][:, 0]
    assert np.abs(beside).max() < 1e-3  # the same way with both
    need = [int((w[:, 2] > 0.5).argmax()) for w in walks]
    adam = [by_adam(given, state) for state in (large, small)]
    assert abs(adam[0] - adam[1]) <= 1
    rest = [at_rest(given, state, wrong=0.2)[0] for state in (large, FIGURE.start | {"beta": 0.5})]
    assert rest[0] > 2 * rest[1]
    turn = overtaken(given, large, 1.0, 0.1)
    assert turn > STEPS
    answer = ASKED[0] if need[0] < 0.9 * need[1] else ASKED[1] if need[1] < 0.9 * need[0] else ASKED[2]
    found = {"large": need[0], "small": need[1], "adam_large": adam[0], "adam_small": adam[1], "turn": turn}
    start = walk(given, FIGURE.start)
    found |= {"rest": rest[0], "rest_small": rest[1], "rate": given["rate"], "no": start[-1][0], "sure": start[-1][2]}
    return answer, found


FIGURE = Figure(
    title="“No” over “never”: who gains? Move the rejected answer's features",
    alt="Left: the features of three answers in the plane; “never” lies close to “no”, a little below it, and “sure” far above. Right, over 1,000 steps of DPO on the one pair"
    " “no” over “never”: “no” and “never” fall, “no” to {no:.2f}, and “sure” rises to {sure:.2f}.",
    controls=[
        Slider("along", "“never”, first feature", [round(-1 + 0.1 * i, 1) for i in range(21)], start=0.9, form=".1f"),
        Slider(
            "across", "“never”, second feature", [round(-1 + 0.1 * i, 1) for i in range(21)], start=-0.3, form=".1f"
        ),
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
            "steps of gradient descent on the one pair",
            "probability",
            (1, 1.1 * STEPS),  # the last number of the axis needs room
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
        Reading("rate_chosen", "rate of “no” at the first step, per unit of weight"),
        Reading("rate_rejected", "rate of “never” at the first step, per unit of weight"),
        Reading("rate_third", "rate of “sure” at the first step, per unit of weight"),
        Reading("p_chosen", "probability of “no” now"),
        Reading("p_third", "probability of “sure” now"),
    ],
    data=data,
    oracle=oracle,
    ask=Ask(
        "Plain gradient descent at a rate of {rate:.1f} takes step after step on this one pair, whose label never errs. With which β does “sure”, which is not in the pair, come to half of the probability sooner?",
        {
            ASKED[0]: "",
            ASKED[
                1
            ]: "With a small price the policy may go far, and after {turn:,} steps the margin with .1 is the larger one. But each step is β times a σ that begins at ½ for every β: in the beginning the small β goes slowly.",
            ASKED[
                2
            ]: "With Adam it is so, within a step: that divides by the size of the gradient. Plain descent does not, and here the gradient is β times a σ that begins at ½ for every β.",
        },
        predicted,
        "With β = 1, after {large} steps; with .1 after {small}. The gradient is β times σ(−βh), which begins at ½. The way is the same with both: every step of θ is parallel to the dashed line, and the loss of one pair has no lowest point that way."
        " With β = 1 that σ fades sooner, so that after {turn:,} steps the margin with .1 is the larger one. All this belongs to plain descent, labels that never err and the features of the start. By Adam at the same rate “sure” has half after"
        " {adam_large} steps with β = 1 and {adam_small} with .1. And where labels are right four times in five, β sets the end: “no” comes to rest at {rest:.3f} with β = 1 and at {rest_small:.3f} with .5.",
        shows={"beta": 1.0, "step": 56},
    ),
)
