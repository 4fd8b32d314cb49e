"""Credit along one reply: what each token is told for each λ and γ, and what the answer is made of."""

from figures import Ask, Choice, Figure, Mark, Panel, Reading, Slider

CRITICS = {
    "right": [0.50, 0.55, 0.60, 0.20, 0.25, 0.30, 0.70, 0.80, 0.90, 1.00],
    "too low by half": [0.25, 0.275, 0.30, 0.10, 0.125, 0.15, 0.35, 0.40, 0.45, 0.50],
    "says nothing": [0.0] * 10,
}
TOKENS = 10


def data():
    """Ten tokens, a reward of 1 behind the last, and what three critics say before each token."""
    return {"critics": CRITICS, "rewards": [0.0] * (TOKENS - 1) + [1.0]}


def oracle(data, state):
    """By the library's recursion, and the weights of its mixture."""
    import torch

    from minirlhf.equations import returns

    rewards = torch.tensor([data["rewards"]], dtype=torch.float64)
    values = torch.tensor([data["critics"][state["critic"]]], dtype=torch.float64)
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
    credit = {lam: at(lam=lam)["third"] for lam in FIGURE.controls[0].values}
    last = max(lam for lam, told in credit.items() if told < 0)
    answer = "blame" if credit[1.0] < 0 else "praise" if credit[1.0] > 0 else "nothing"
    return answer, {"end": credit[1.0], "step": credit[0.0], "last": last}


FIGURE = Figure(
    title="Who gets the credit? Set λ, and look at the third token",
    alt="Left, bars over ten tokens: the credit of each for λ = .95. Behind the third token the critic's value falls from .6 to .2, and yet it is told +.27; its step"
    " alone says −.4. The fourth token gets the most, .70. Right: the shares of one to ten steps in the first token's advantage, most of it at ten.",
    controls=[
        Slider("lam", "λ", [round(0.05 * i, 2) for i in range(21)], start=0.95, form=".2f"),
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
        Reading("spread", "spread over the tokens"),
    ],
    data=data,
    oracle=oracle,
    ask=Ask(
        "Behind the third token the chance of success falls from .6 to .2; in the end all goes well. What does a right critic tell this token for λ = 1?",
        ["blame", "praise", "nothing"],
        predicted,
        "Praise, {end:.2f}: with λ = 1 the whole rest of the reply is its credit, and 1 came where .6 was expected. With λ = 0 it is blamed, {step:.2f}, for the"
        " step that it made. Up to λ = {last:.2f} blame wins.",
    ),
)
