"""Advantages along one completion: the advantage of each token for each λ and γ, and the weights of its n-step parts."""

from asking import Ask
from figures import Choice, Figure, Mark, Panel, Reading, Slider

CHANCES = [0.50, 0.55, 0.60, 0.20, 0.25, 0.30, 0.70, 0.80, 0.90, 1.00]
CRITICS = {"right": 1.0, "too low by half": 0.5, "silent: 0 everywhere": 0.0}  # times the value of a right critic
TOKENS = len(CHANCES)


def data():
    """Return ten tokens with the probability of success before each, a reward of 1 after the last, and three critics.

    A right critic returns this probability, discounted by γ to the number of tokens between this one and the reward.
    """
    return {"chances": CHANCES, "critics": CRITICS, "rewards": [0.0] * (TOKENS - 1) + [1.0]}


def oracle(data, state):
    """Return the library's recursion, and the weights of its mixture."""
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
    # For the first token: the weight of each n-step advantage; the last carries the rest.
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
    """Return the sign of the third token's advantage at λ = 1."""
    third = lambda lam: at(lam=lam)["third"]
    every = [third(lam) for lam in FIGURE.controls[0].values]
    assert every == sorted(every) and every[0] < 0 < every[-1]  # the sign turns once
    # A right critic's residuals have the sign of the change in probability, for every γ: only the third token's is negative.
    for gamma in FIGURE.controls[1].values:
        steps = at(gamma=gamma)["residuals"][1]
        assert [t for t, step in enumerate(steps) if step < -1e-12] == [2]
    answer = "negative" if every[-1] < 0 else "positive" if every[-1] > 0 else "zero"
    values = {"end": every[-1], "step": every[0], "before": CHANCES[2], "after": CHANCES[3]}
    steps = at(lam=0.0)["residuals"][1]
    assert max(steps) == steps[5]
    return answer, values | {"most": steps[5]}


FIGURE = Figure(
    title="Which token gets the credit? Set λ, and observe the third token",
    alt="Left, bars over ten tokens: the advantage of each for λ = 0, which is its TD residual. After the third token the critic's value falls from {before:.1f} to {after:.1f},"
    " and its advantage is {step:.2f}; the sixth token has the largest, {most:.2f}. Right: the weights of one to ten steps in the first token's advantage, with all weight on one step.",
    controls=[
        Slider("lam", "λ", [round(0.05 * i, 2) for i in range(21)], start=0.0, form=".2f"),
        Slider("gamma", "γ", [round(0.8 + 0.02 * i, 2) for i in range(11)], start=1.0, form=".2f"),
        Choice("critic", "the critic is", list(CRITICS), "right"),
    ],
    panels=[
        Panel(
            "advantage of each token",
            "token",
            "advantage, or value",
            (-0.7, 9.7),
            (-0.6, 1.1),
            [
                Mark("credit", "advantage", "bars", 0),
                Mark("residuals", "TD residual (λ = 0)", "points", 1),
                Mark("values", "the critic's value before the token", "line", 5, dashed=True),
            ],
            names=[str(i + 1) for i in range(TOKENS)],
        ),
        Panel(
            "weights in the first token's advantage",
            "steps until the critic's value is used",
            "weight",
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
        "After the third token the probability of success falls from {before:.1f} to {after:.1f}, but the completion succeeds in the end. With γ = 1 and a right critic, what is the sign of this token's advantage for λ = 1?",
        {
            "negative": "This is the TD residual, with λ = 0: the probability fell. With λ = 1 a token is judged by the final result.",
            "positive": "",
            "zero": "The advantage is 0 if the result equals the expectation. The result was 1, and the critic expected {before:.1f}.",
        },
        predicted,
        "Positive, {end:.2f}: with λ = 1 the rest of the completion counts as its credit, and the result was 1 where the critic expected {before:.1f}. With λ = 0 its advantage is negative, {step:.2f}, because"
        " of its own step. Between 0 and 1 the sign changes once.",
        shows={"lam": 1.0},
    ),
)
