"""Three players, each of whom beats the next: what Bradley–Terry and Elo make of it."""

import random

from figures import Ask, Figure, Mark, Panel, Reading, Slider

GAMES = 600
EVERY = 5
PAIRS = ((0, 1), (1, 2), (2, 0))


def data():
    """Who plays whom in turn, and a number in [0, 1) for each game."""
    generator = random.Random("circle")
    return {"luck": [round(generator.random(), 6) for _ in range(GAMES)], "every": EVERY}


def oracle(data, state):
    """Bradley–Terry by the library's fit to the expected wins, Elo by its update game by game."""
    import torch

    from minirlhf.equations import reward_losses, social_choice

    # The log-odds of a pair: a difference of strengths, which a rating can say, and a turn of the circle, which none can.
    strengths = [state["lead"], 0.0, -state["lead"]]
    odds = torch.tensor([strengths[a] - strengths[b] + state["turn"] for a, b in PAIRS], dtype=torch.float64)
    chances = odds.sigmoid()
    wins = torch.zeros(3, 3, dtype=torch.float64)
    for (a, b), chance in zip(PAIRS, chances.tolist(), strict=True):
        wins[a, b], wins[b, a] = chance, 1 - chance
    fitted = social_choice.bradley_terry_fit(1000 * wins, tolerance=1e-13)
    said = [float(reward_losses.bradley_terry(fitted[a], fitted[b])) for a, b in PAIRS]
    ratings = [torch.zeros((), dtype=torch.float64) for _ in range(3)]
    path = [[0.0] * 3]
    for n, luck in enumerate(data["luck"]):
        a, b = PAIRS[n % 3]
        score = torch.tensor(float(luck < chances[n % 3]), dtype=torch.float64)
        ratings[a], ratings[b] = reward_losses.elo_update(ratings[a], ratings[b], score, k=state["k"])
        path.append([float(rating) for rating in ratings])
    xs = list(range(0, len(data["luck"]) + 1, data["every"]))
    of = {f"elo_{'abc'[i]}": [xs, [path[x][i] for x in xs]] for i in range(3)}
    return of | {
        "truth": chances.tolist(),
        "model": said,
        "cycle": float(odds.sum()),
        "found": float(fitted[0] - fitted[2]) / 2,
        "gap": max(path[-1]) - min(path[-1]),
        "wrong": max(abs(x - y) for x, y in zip(said, chances.tolist(), strict=True)),
    }


ASKED = ["nearly nine of ten", "one half", "something between"]


def predicted(at):
    """What the fit says of a full circle, and whether ratings notice it."""
    full, none = at(turn=FIGURE.controls[0].values[-1]), at(turn=0.0)
    said, truth = full["model"][0], full["truth"][0]
    answer = ASKED[1] if abs(said - 0.5) < 0.01 else ASKED[0] if abs(said - truth) < 0.05 else ASKED[2]
    return answer, {"truth": truth, "said": said, "gap": full["gap"], "flat": none["gap"]}


FIGURE = Figure(
    title="A circle that no rating can say",
    alt="Left, bars: a beats b, b beats c and c beats a in seven of ten games each; Bradley–Terry says one half for every pair. Right: Elo ratings of"
    " the three over 600 games wander within about a hundred points of zero.",
    controls=[
        Slider(
            "turn", "turn of the circle, in log-odds", [round(0.05 * i, 2) for i in range(41)], start=0.85, form=".2f"
        ),
        Slider("lead", "real lead of a over b over c", [round(0.1 * i, 1) for i in range(16)], start=0.0, form=".1f"),
        Slider("k", "Elo's step", [4, 8, 16, 32, 64], start=32),
    ],
    panels=[
        Panel(
            "who beats whom",
            "pair",
            "share of games won",
            (-0.6, 2.6),
            (0, 1),
            [Mark("truth", "in truth", "bars", 0), Mark("model", "by the fitted rewards", "bars", 1, dashed=True)],
            names=["a beats b", "b beats c", "c beats a"],
        ),
        Panel(
            "Elo ratings",
            "games",
            "points",
            (0, GAMES),
            (-450, 450),
            [Mark("elo_a", "a", "line", 0), Mark("elo_b", "b", "line", 1, dashed=True), Mark("elo_c", "c", "line", 2)],
        ),
    ],
    readings=[
        Reading("cycle", "log-odds around the circle"),
        Reading("wrong", "largest error of the fit"),
        Reading("found", "lead that the fit finds", 2),
        Reading("gap", "Elo, best less worst", 0),
    ],
    data=data,
    oracle=oracle,
    ask=Ask(
        "Turn the circle as far as it goes: each player beats the next in {truth:.2f} of the games. What does the fit of Bradley–Terry say of a against b?",
        ASKED,
        predicted,
        "{said:.2f}, of each pair: everybody wins as often as they lose, and a difference of strengths can say nothing else. Elo does not notice either: the"
        " ratings end {gap:.0f} points apart, and {flat:.0f} where every game is a coin's.",
    ),
    tolerance=1e-7,  # the fit of Bradley–Terry ends at a tolerance of its own
)
