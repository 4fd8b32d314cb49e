"""A monitor and a fine: the optimal policy over honest work, a spoken and a silent cheat, and what a dashboard shows of it."""

from asking import Ask
from figures import Figure, Mark, Panel, Reading, Slider

FINES = [round(0.05 * i, 2) for i in range(41)]
#: The chapter's example: honest work passes with .6; the monitor flags it with .05, a spoken cheat with .9.
PASSES, SPOKEN, FALSE, SEEN = 0.6, 0.2, 0.05, 0.9


def data():
    """The example's numbers, and the fines at which the curves are computed."""
    return {"fines": FINES, "passes": PASSES, "spoken": SPOKEN, "false": FALSE, "seen": SEEN}


def tensors(data, silent, flagged):
    """Return log-probabilities, rewards and flag rates of honest work, spoken and silent cheat."""
    import torch

    ref = torch.tensor([1 - data["spoken"] - silent, data["spoken"], silent], dtype=torch.float64).log()
    rewards = torch.tensor([data["passes"], 1.0, 1.0], dtype=torch.float64)
    return ref, rewards, torch.tensor([data["false"], data["seen"], flagged], dtype=torch.float64)


def stopping(data, silent, flagged, beta):
    """Return the chapter's smallest fine that makes honest work as probable as a silent cheat."""
    from minirlhf_course.chapters.ch24_oversight import monitors

    ref, _, flags = tensors(data, silent, flagged)
    return monitors.stopping_fine(ref[[0, 2]], flags[[0, 2]], gain=1 - data["passes"], beta=beta)


def oracle(data, state):
    """By the closed form of the optimum."""
    import torch

    from minirlhf_course.chapters.ch24_oversight import monitors

    ref, rewards, flags = tensors(data, state["silent"], state["flagged"])
    policy = lambda fine: monitors.monitored_policy(ref, rewards, flags, fine=fine, beta=state["beta"]).exp()
    recall = lambda p: p[..., 1:] @ flags[1:] / p[..., 1:].sum(-1)
    curve, here = torch.stack([policy(fine) for fine in data["fines"]]), policy(state["fine"])
    over = lambda values: [data["fines"], values.tolist()]
    needed = stopping(data, state["silent"], state["flagged"], state["beta"])
    return {
        "honest_line": over(curve[:, 0]),
        "spoken_line": over(curve[:, 1]),
        "silent_line": over(curve[:, 2]),
        "here": [[state["fine"]] * 3, here.tolist()],
        "flags_line": over(curve @ flags),
        "recall_line": over(recall(curve)),
        "cheats_line": over(curve[:, 1:].sum(-1)),
        "honest": float(here[0]),
        "spoken": float(here[1]),
        "silent": float(here[2]),
        "flags": float(here @ flags),
        "recall": float(recall(here)),
        "needed": f"{needed:.2f}" if needed < float("inf") else "none",
    }


def predicted(at):
    """How the fine that stops a silent cheat grows as the monitor sees it less often."""
    start = at()
    half, tenth = (stopping(data(), 0.001, flagged, 0.05) for flagged in (0.5, 0.1))
    times = tenth / half
    answer = "twice as large" if times < 3 else "five times as large" if times < 7 else "nine times as large"
    assert start["needed"] == "none" and at(flagged=0.5)["silent"] < 0.5 < start["silent"]
    found = {"half": half, "tenth": tenth, "times": times, "silent": start["silent"], "flags": start["flags"]}
    return answer, found | {"recall": start["recall"], "first": start["recall_line"][1][0]}


FIGURE = Figure(
    title="A fine for each flag: does the policy stop, or hide?",
    alt="Left, over the fine: the spoken cheat falls from nearly one to zero, and the silent cheat, which the monitor flags as rarely as honest work, rises to {silent:.2f} and stays."
    " Right: the flags fall to {flags:.2f} and the monitor's recall from {first:.2f} to {recall:.2f}, while most completions still cheat.",
    controls=[
        Slider("fine", "fine, λ", FINES, start=1.0, form="g"),
        Slider("flagged", "flags of a silent cheat, d_Q", [0.05, 0.1, 0.2, 0.3, 0.5, 0.7, 0.9], start=0.05),
        Slider("silent", "silent cheats before RL", [0.0001, 0.001, 0.01, 0.1], start=0.001),
        Slider("beta", "KL coefficient, β", [0.05, 0.1, 0.2, 0.4], start=0.05),
    ],
    panels=[
        Panel(
            "the optimal policy",
            "fine, λ",
            "probability",
            (0, 2),
            (0, 1),
            [
                Mark("honest_line", "honest work", "line", 0),
                Mark("spoken_line", "spoken cheat", "line", 1, dashed=True),
                Mark("silent_line", "silent cheat", "line", 2),
                Mark("here", "", "points", 5),
            ],
        ),
        Panel(
            "the dashboard, and the truth",
            "fine, λ",
            "fraction",
            (0, 2),
            (0, 1),
            [
                Mark("flags_line", "flags per completion", "line", 3),
                Mark("recall_line", "the monitor's recall", "line", 4, dashed=True),
                Mark("cheats_line", "completions that cheat", "line", 5, wide=True),
            ],
        ),
    ],
    readings=[
        Reading("honest", "honest"),
        Reading("spoken", "spoken"),
        Reading("silent", "silent"),
        Reading("flags", "flags"),
        Reading("recall", "recall"),
        Reading("needed", "smallest fine that stops it", None),
    ],
    data=data,
    oracle=oracle,
    ask=Ask(
        "A monitor flags a silent cheat with probability .5 and honest work with .05. Then its view gets worse, and it flags a silent cheat with probability .1. How much larger must the fine be to make honest work as probable as a silent cheat?",
        {
            "twice as large": "The fine is divided by the difference between two flag rates. This difference becomes much smaller: the false positives stay.",
            "five times as large": "The monitor sees a fifth of what it saw. But honest work pays fines too. What counts is the flag rate of a silent cheat minus the rate of false positives.",
            "nine times as large": "",
        },
        predicted,
        "It rises from {half:.2f} to {tenth:.2f}, by a factor of {times:.1f}: the difference between the two flag rates falls from .5 − .05 to .1 − .05. At equal rates no fine is enough.",
        shows={"flagged": 0.1},
    ),
)
