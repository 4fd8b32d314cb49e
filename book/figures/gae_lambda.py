"""Credit along one reply: what each token is told for each λ and γ, and what the answer is made of."""

from asking import Ask
from figures import Choice, Figure, Mark, Panel, Reading, Slider

CHANCES = [0.50, 0.55, 0.60, 0.20, 0.25, 0.30, 0.70, 0.80, 0.90, 1.00]
CRITICS = {"right": 1.0, "too low by half": 0.5, "silent: 0 everywhere": 0.0}  # times what a right critic says
TOKENS = len(CHANCES)


def data():
    """Ten tokens with the chance of success before each, a reward of 1 behind the last, and three critics.

    A right critic says the chance discounted by γ to the number of tokens between this one and the reward.
    """
    return {"chances": CHANCES, "critics": CRITICS, "rewards": [0.0] * (TOKENS - 1) + [1.0]}


def oracle(data, state):
    """By the library's recursion, and the weights of its mixture."""
    import torch

    from minirlhf.equations import returns

    rewards = torch.tensor([data["rewards"]], dtype=torch.float64)
    chances = torch.tensor([data["chances"]], dtype=torch.float64)
    left = torch.arange(TOKENS, dtype=torch.float64).flip(0)  # tokens after this one
    values = data["critics"][state["critic"]] * state["gamma"] ** left * chances
    mask = torch.ones_like(rewards, dtype=torch.bool)
    settings = {"gamma": state["gamma"]}
    credit = returns.gae(rewards, values, mask, lam=state["lam"], **settings)[0]
    residuals = returns.td_residuals(rewards, values, mask, **settings)[0]
    places = list(range(TOKENS))
    lam = torch.tensor(state["lam"], dtype=torch.float64)
    steps = torch.arange(1, TOKENS + 1)
    # From the first token: how much of the n-step advantage there is in it; the last carries the rest.
    shares = torch.where(steps < TOKENS, (1 - lam) * lam ** (steps - 1), lam ** (TOKENS - 1))
    each = [returns.n_step_advantages(rewards, values, mask, n=n, **settings)[0, 0] for n in steps.tolist()]
    assert torch.allclose((shares * torch.stack(each)).sum(), credit[0])
    return {
        "credit": credit.tolist(),
        "residuals": [places, residuals.tolist()],
        "values": [places, values[0].tolist()],
        "shares": shares.tolist(),
        "third": float(credit[2]),
        "sixth": float(credit[5]),
        "spread": float(credit.std(correction=0)),
    }


def predicted(at):
    """What the third token is told where only the end counts."""
    third = lambda lam: at(lam=lam)["third"]
    every = [third(lam) for lam in FIGURE.controls[0].values]
    assert every == sorted(every) and every[0] < 0 < every[-1]  # the sign turns once
    # A right critic's steps have the sign with which the chance moves, for every γ: only the third token's is blamed.
    for gamma in FIGURE.controls[1].values:
        steps = at(gamma=gamma)["residuals"][1]
        assert [t for t, step in enumerate(steps) if step < -1e-12] == [2]
    answer = "blame" if every[-1] < 0 else "praise" if every[-1] > 0 else "nothing"
    found = {"end": every[-1], "step": every[0], "before": CHANCES[2], "after": CHANCES[3]}
    steps = at(lam=0.0)["residuals"][1]
    assert max(steps) == steps[5]
    return answer, found | {"most": steps[5]}


FIGURE = Figure(
    title="Who gets the credit? Set λ, and look at the third token",
    alt="Left, bars over ten tokens: the credit of each for λ = 0, which is that of its own step. After the third token the critic's value falls from {before:.1f} to {after:.1f},"
    " and it is told {step:.2f}; the sixth gets the most, {most:.2f}. Right: the shares of one to ten steps in the first token's advantage, all of it at one.",
    controls=[
        Slider("lam", "λ", [round(0.05 * i, 2) for i in range(21)], start=0.0, form=".2f"),
        Slider("gamma", "γ", [round(0.8 + 0.02 * i, 2) for i in range(11)], start=1.0, form=".2f"),
        Choice("critic", "the critic is", list(CRITICS), "right"),
    ],
    panels=[
        Panel(
            "what each token is told",
            "token",
            "advantage, or value",
            (-0.7, 9.7),
            (-0.6, 1.1),
            [
                Mark("credit", "advantage", "bars", 0),
                Mark("residuals", "from one step only: λ = 0", "points", 1),
                Mark("values", "the critic's value before the token", "line", 5, dashed=True),
            ],
            names=[str(i + 1) for i in range(TOKENS)],
        ),
        Panel(
            "what the first token's advantage is made of",
            "steps until the critic is asked",
            "share",
            (-0.7, 9.7),
            (0, 1),
            [Mark("shares", "", "bars", 2)],
            names=[*(str(i + 1) for i in range(TOKENS - 1)), "10+"],
        ),
    ],
    readings=[
        Reading("third", "third token"),
        Reading("sixth", "sixth token"),
        Reading("spread", "standard deviation over the tokens"),
    ],
    data=data,
    oracle=oracle,
    ask=Ask(
        "After the third token the chance of success falls from {before:.1f} to {after:.1f}; in the end all goes well. With γ = 1, what does a right critic tell this token for λ = 1?",
        {
            "blame": "That is what its own step says, with λ = 0: the chance fell. With λ = 1 a token is judged by how it all ended.",
            "praise": "",
            "nothing": "It would be told nothing if what was expected had come. 1 came, and {before:.1f} was expected.",
        },
        predicted,
        "Praise, {end:.2f}: with λ = 1 the whole rest of the reply is its credit, and 1 came where {before:.1f} was expected. With λ = 0 it is blamed, {step:.2f}, for the"
        " step that it made. On the way from 0 to 1 the sign turns once.",
        shows={"lam": 1.0},
    ),
)
