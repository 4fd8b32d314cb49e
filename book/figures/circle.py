"""Three players, each of whom beats the next: what Bradley–Terry and Elo make of it."""

import functools
import random

from asking import Ask
from figures import Choice, Figure, Mark, Panel, Reading, Slider

GAMES = 600
EVERY = 5
AFTER = 100  # games until the ratings have spread
PAIRS = ((0, 1), (1, 2), (2, 0))
ORDERS = ["drawn by lot", "a–b, b–c, c–a, by turns"]
TURNS = [round(0.05 * i, 2) for i in range(41)]
STEP = 32  # of Elo, where the figure starts and in its question
MANY = 10_000  # tournaments


def data():
    """One tournament: a pair that is drawn by lot for each game, and a number in [0, 1)."""
    generator = random.Random("circle")
    luck = [round(generator.random(), 6) for _ in range(GAMES)]
    return {"luck": luck, "lot": [generator.randrange(3) for _ in range(GAMES)], "every": EVERY, "after": AFTER}


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
        pair = data["lot"][n] if state["order"] == ORDERS[0] else n % 3
        a, b = PAIRS[pair]
        score = torch.tensor(float(luck < chances[pair]), dtype=torch.float64)
        ratings[a], ratings[b] = reward_losses.elo_update(ratings[a], ratings[b], score, k=state["k"])
        path.append([float(rating) for rating in ratings])
    xs = list(range(0, len(data["luck"]) + 1, data["every"]))
    of = {f"elo_{'abc'[i]}": [xs, [path[x][i] for x in xs]] for i in range(3)}
    return of | {
        "truth": chances.tolist(),
        "model": said,
        "cycle": float(odds.sum()),
        "found": float(fitted[0] - fitted[2]) / 2,
        "gap": sum(max(now) - min(now) for now in path[data["after"] :]) / (len(path) - data["after"]),
        "wrong": max(abs(x - y) for x, y in zip(said, chances.tolist(), strict=True)),
    }


@functools.cache
def spreads():
    """How far apart Elo's ratings are on average from game 100 on, by order and turn: mean over many tournaments, and its standard error."""
    import torch

    from minirlhf.equations import reward_losses

    # Each tournament has its own luck, and its own order where that is drawn by lot.
    cases = [(order, turn) for order in ORDERS for turn in (0.0, TURNS[-1])]
    generator = torch.Generator().manual_seed(6)
    pairs, shape = torch.tensor(PAIRS), (len(cases), MANY)
    by_turns = torch.tensor([order == ORDERS[1] for order, _ in cases])[:, None]
    chance = torch.tensor([turn for _, turn in cases], dtype=torch.float64).sigmoid()[:, None]
    ratings, gaps = torch.zeros(*shape, 3, dtype=torch.float64), torch.zeros(shape, dtype=torch.float64)
    for n in range(GAMES):
        played = pairs[torch.where(by_turns, n % 3, torch.randint(3, shape, generator=generator))]
        score = (torch.rand(shape, generator=generator, dtype=torch.float64) < chance).double()
        new = reward_losses.elo_update(*ratings.gather(2, played).unbind(2), score, k=float(STEP))
        ratings.scatter_(2, played, torch.stack(new, 2))
        if n + 1 >= AFTER:
            gaps += (ratings.amax(2) - ratings.amin(2)) / (GAMES - AFTER + 1)
    means, errors = gaps.mean(1).tolist(), (gaps.std(1) / MANY**0.5).tolist()
    return {case: (mean, error) for case, mean, error in zip(cases, means, errors, strict=True)}


ASKED = ["nearer together", "as far apart", "further apart"]


def predicted(at):
    """What a full circle does to Elo's ratings, beside coins."""
    found = {"error": max(error for _, error in spreads().values()), "many": MANY, "games": GAMES, "after": AFTER}
    for order, name in zip(ORDERS, ("lot", "turns"), strict=True):
        (coins, one), (circle, other) = (spreads()[order, turn] for turn in (0.0, TURNS[-1]))
        sure = abs(circle - coins) > 4 * (one**2 + other**2) ** 0.5
        found[name] = ASKED[1] if not sure else ASKED[0] if circle < coins else ASKED[2]
        found |= {f"{name}_circle": circle, f"{name}_coins": coins}
    # Three of the four are told as one number.
    alike = [found["lot_circle"], found["lot_coins"], found["turns_coins"]]
    assert found["lot"] == ASKED[1] and max(alike) - min(alike) < 5 * found["error"] < 1
    found["by_lot"] = (found["lot_circle"] + found["lot_coins"]) / 2
    start, full = at(), at(turn=TURNS[-1])
    for order, name in zip(ORDERS, ("lot", "turns"), strict=True):
        found |= {
            f"one_{name}_{turn}": at(order=order, turn=to)["gap"] for turn, to in (("coins", 0.0), ("circle", 2.0))
        }
    # By turns a player meets the one whom it beats and the one who beats it, one after the other.
    p = full["truth"][0]
    found["back"] = p * p + (1 - p) * (1 - p)
    reach = max(abs(y) for player in "abc" for y in start[f"elo_{player}"][1])
    assert all(abs(said - 0.5) < 1e-9 for said in start["model"] + full["model"])
    return found["turns"], found | {"truth": full["truth"][0], "first": start["truth"][0], "reach": reach}


FIGURE = Figure(
    title="A circle that no rating can say",
    alt="Left, bars: a beats b, b beats c and c beats a with probability {first:.2f} each; Bradley–Terry says one half for every pair. Right: in one tournament of 600 games the"
    " Elo ratings of the three wander, up to {reach:.0f} points from zero.",
    controls=[
        Slider("turn", "turn of the circle, in log-odds", TURNS, start=0.85, form=".2f"),
        Slider(
            "lead",
            "lead a–b and b–c, in log-odds",
            [round(0.1 * i, 1) for i in range(16)],
            start=0.0,
            form=".1f",
        ),
        Slider("k", "Elo's step η", [4, 8, 16, 32, 64], start=STEP),
        Choice("order", "who plays whom", ORDERS, ORDERS[0]),
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
            "Elo ratings in one tournament",
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
        Reading("found", "lead in the fit, half of a less c", 2),
        Reading("gap", "Elo, best less worst, mean from game 100 on", 0),
    ],
    data=data,
    oracle=oracle,
    ask=Ask(
        "Suppose the circle is turned so far that each beats the next in {truth:.2f} of the games, and they play by turns: a–b, b–c, c–a, and again. With a step of 32, how far apart are Elo's best and worst"
        " rating on average, from game {after} to {games} and over many tournaments, beside three players who toss coins?",
        {
            ASKED[
                2
            ]: "Surer results do not drive ratings apart by themselves. Whoever wins nine games of ten against one loses nine of ten to the other, so that nobody is driven in one direction.",
            ASKED[
                1
            ]: "So it is if each pair is drawn by lot: {by_lot:.0f} points with the circle and with coins. A player's next game is then as likely a win as a loss, whatever the last one was. By turns it is not.",
            ASKED[0]: "",
        },
        predicted,
        "Nearer: {turns_circle:.0f} points, where coins leave them {turns_coins:.0f} apart (means of {many:,} tournaments, with standard errors of {error:.1f}). By turns {back:.2f} of a player's wins are followed by a loss,"
        " which takes them back, in place of one half, and luck adds up less. With pairs drawn by lot the circle makes no difference that so many tournaments show: {by_lot:.0f} points with it and with coins."
        " The figure draws one tournament. In it these means are {one_turns_circle:.0f} and, with coins, {one_turns_coins:.0f}; by lot, where the difference is luck, {one_lot_circle:.0f} and {one_lot_coins:.0f}.",
        shows={"turn": TURNS[-1], "order": ORDERS[1]},
    ),
)
