"""A map of 25 cells: values by sweeps if the laws are known, and by an agent's steps if they are not."""

import itertools
import math
import random

from asking import Ask
from figures import Choice, Figure, Mark, Panel, Reading, Slider

SIZE, MOST, STEPS = 5, 60, 50
WAYS = ("value iteration: sweeps", "Q-learning: fifties of steps")


def data():
    """Return the next state and reward of each action, and the steps of an agent with the uniform policy."""
    from minirlhf.tabular import worlds

    process = worlds.five_by_five().process
    generator, state, walked = random.Random("sweeps and steps"), 12, []
    to = process.transitions.argmax(-1)
    for _ in range(MOST * STEPS):
        action = generator.randrange(4)
        walked.append(4 * state + action)
        state = int(to[state, action])
    return {
        "to": to.tolist(),
        "rewards": process.expected_rewards.tolist(),
        "walked": walked,
        "steps": STEPS,
        "most": MOST,
    }


def oracle(data, state):
    """Compute the figure by the library's Bellman equations and its target of Q-learning."""
    import torch

    from minirlhf.equations import mdp, value_learning
    from minirlhf.tabular import planning, worlds

    process, gamma = worlds.five_by_five().process, state["gamma"]
    rewards = process.expected_rewards
    truth = planning.value_iteration(process, gamma=gamma, tolerance=1e-12).values
    table = torch.zeros(SIZE * SIZE, 4, dtype=torch.float64)
    tables = [table.clone()]
    if state["way"] == WAYS[0]:
        values = torch.zeros(SIZE * SIZE, dtype=torch.float64)
        for _ in range(data["most"]):
            tables.append(mdp.action_values(process.transitions, rewards, values, gamma=gamma))
            values = mdp.bellman_optimality(process.transitions, rewards, values, gamma=gamma)
    else:
        alive = torch.zeros(1, dtype=torch.bool)
        for n, code in enumerate(data["walked"], 1):
            at, action = divmod(code, 4)
            after = table[data["to"][at][action]][None]
            target = value_learning.q_learning_target(rewards[at, action][None], after, alive, gamma=gamma)[0]
            table[at, action] += state["alpha"] * (target - table[at, action])
            if n % data["steps"] == 0:
                tables.append(table.clone())
    errors = [float((t.amax(-1) - truth).abs().max()) for t in tables]
    now = tables[state["work"]]
    values = now.amax(-1)
    most = float(truth.max())
    cells = [(1 + s % SIZE, 1 + s // SIZE) for s in range(SIZE * SIZE)]  # column and row, from 1, as the page counts
    arrows = [(*cells[s], a) for s in range(SIZE * SIZE) for a in range(4) if now[s, a] >= values[s] - 1e-9]
    columns, rows = (list(of) for of in zip(*cells, strict=True))
    work = list(range(data["most"] + 1))
    return {
        "size": [columns, rows, [0.95 * min(1.0, max(0.0, float(v)) / most) for v in values]],
        "policy": [list(x) for x in zip(*arrows, strict=True)],
        "errors": [work, errors],
        "here": [[state["work"]], [errors[state["work"]]]],
        "corner": float(values[-1]),
        "truth": float(truth[-1]),
        "error": errors[state["work"]],
    }


def predicted(at):
    """Return the answer on the number of sweeps at a smaller discount, with the numbers of the explanation."""
    gammas = [gamma for gamma in FIGURE.controls[2].values if gamma <= 0.9]  # with .93 sixty sweeps are too few
    errors = {gamma: at(gamma=gamma)["errors"][1] for gamma in gammas}
    sweeps = {gamma: next(n for n, error in enumerate(e) if error < 0.1) for gamma, e in errors.items()}
    for gamma, e in errors.items():
        assert all(b <= gamma * a + 1e-12 for a, b in itertools.pairwise(e))
        assert abs(e[20] / e[15] / gamma**5 - 1) < 0.01  # in the long run it is no less
    times = [n * -math.log(gamma) for gamma, n in sweeps.items()]
    assert max(times) < 1.25 * min(times)  # so that sweeps go about as one over −log γ
    assert all(a[0] < b[0] for a, b in itertools.pairwise(errors.values())) and 0.9**6 > 0.5
    far, needed, pace = errors[0.9], [sweeps[gamma] for gamma in (0.9, 0.5)], [-math.log(gamma) for gamma in (0.9, 0.5)]
    share = needed[1] / needed[0]
    answer = "nearly as many" if share > 0.75 else "about half as many" if share > 0.35 else "a quarter or fewer"
    # As the page says of the agent: nearly all of its best actions are right when a value is still wrong by more than half of its error.
    actions = lambda v: {(x, y, a) for x, y, a in zip(*v["policy"], strict=True)}
    walked, best = at(way=WAYS[1], work=30), actions(at(work=MOST))
    assert len({cell[:2] for cell in actions(walked) - best}) <= 1 and walked["error"] > far[0] / 2
    largest = max(range(SIZE * SIZE), key=lambda s: at()["size"][2][s])
    assert largest == 1  # the second cell of the top row
    found = {"far": needed[0], "near": needed[1], "near_pace": pace[1], "far_pace": pace[0], "first": far[0]}
    assert found["near_pace"] > found["far_pace"]
    return answer, found


FIGURE = Figure(
    title="The value of a cell, sweep by sweep or step by step",
    alt="Left: a map of five by five cells; squares show the value of each after six sweeps, largest in the second cell of the top row, and arrows the best actions."
    " Right: the largest error falls from {first:.0f} towards 0 over sixty sweeps.",
    controls=[
        Choice("way", "method", list(WAYS), WAYS[0]),
        Slider("work", "sweeps, or fifties of steps", list(range(MOST + 1)), start=6),
        Slider("gamma", "γ", [round(0.5 + 0.05 * i, 2) for i in range(9)] + [0.93], start=0.9, form=".2f"),
        Slider(
            "alpha",
            "learning rate (Q-learning only)",
            [round(0.1 * i, 1) for i in range(1, 11)],
            start=0.5,
            form=".1f",
        ),
    ],
    panels=[
        Panel(
            "values and best actions",
            "column",
            "row",
            (0.5, 5.5),
            (5.5, 0.5),
            [
                Mark(
                    "size", "value, by the side of the square: the largest true value would fill its cell", "squares", 0
                ),
                Mark("policy", "best action", "arrows", 5),
            ],
        ),
        Panel(
            "largest error of a value",
            "sweeps, or fifties of steps",
            "error",
            (0, MOST),
            (0, 36),
            [Mark("errors", "", "line", 1), Mark("here", "", "points", 5)],
        ),
    ],
    readings=[
        Reading("corner", "cell at the bottom right, now", 2),
        Reading("truth", "its true value", 2),
        Reading("error", "largest error"),
    ],
    data=data,
    oracle=oracle,
    ask=Ask(
        "With γ = .9 it takes {far} sweeps until no cell is further than .1 from its value. How many does it take with γ = .5?",
        {
            "nearly as many": "The paths through the grid are as long as before. But with γ = .5 distant rewards have little weight, and each sweep at least halves the error.",
            "about half as many": "In the long run each sweep multiplies the error by about γ, and six sweeps with .9 reduce it less than one sweep with .5.",
            "a quarter or fewer": "",
        },
        predicted,
        "{near} sweeps. A sweep multiplies the largest error by at most γ, so the number of sweeps is about proportional to 1/(−log γ). Here −log γ is {near_pace:.2f} for γ = .5 and"
        " {far_pace:.2f} for γ = .9. The first error is also smaller.",
        shows={"gamma": 0.5, "work": 7},
    ),
)
