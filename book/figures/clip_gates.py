"""What a ratio may do: the surrogate and the weight of a token's gradient, by method."""

from figures import Ask, Choice, Figure, Mark, Panel, Reading, Slider

GSPO = {"3e-4 below, 4e-4 above": (3e-4, 4e-4), ".01": (0.01, 0.01), ".05": (0.05, 0.05), ".2": (0.2, 0.2)}
RATIOS = [round((i + 0.25) / 50, 4) for i in range(150)]  # never exactly where a clip begins


def data():
    """The ratios at which the curves are computed."""
    return {"ratios": RATIOS, "ranges": GSPO}


def oracle(data, state):
    """Values by the objectives of the library, weights by their derivatives in the token's log-probability."""
    import torch

    from minirlhf.equations import policy_losses

    advantage = 1.0 if state["sign"] == "positive" else -1.0
    bounds = {"epsilon": state["epsilon"], "epsilon_high": state["epsilon_high"]}
    ratios = torch.tensor([*data["ratios"], state["ratio"]], dtype=torch.float64)

    def both(objective, tokens=1, **options):
        """A reply for each ratio, which its first token has; the others stand at 1."""
        logps = torch.zeros(len(ratios), tokens, dtype=torch.float64)
        logps[:, 0] = ratios.log()
        logps.requires_grad_()
        old = torch.zeros_like(logps)
        value = objective(
            logps, old, torch.full_like(old, advantage), torch.ones_like(old, dtype=torch.bool), **options
        )
        (slope,) = torch.autograd.grad(value[:, 0].sum(), logps)
        return value[:, 0].tolist(), slope[:, 0].tolist()

    free, ppo, sapo = (
        both(policy_losses.importance_weighted),
        both(policy_losses.ppo_clip, **bounds),
        both(policy_losses.sapo),
    )
    cispo = both(policy_losses.cispo, epsilon_high=state["epsilon_high"])
    low, high = data["ranges"][state["gspo"]]
    gspo = both(policy_losses.gspo, tokens=state["tokens"], epsilon=low, epsilon_high=high)
    found = {"free_value": free[0], "ppo_value": ppo[0], "sapo_value": sapo[0]}
    found |= {
        "free": free[1],
        "ppo": ppo[1],
        "sapo": sapo[1],
        "cispo": cispo[1],
        "gspo": [state["tokens"] * weight for weight in gspo[1]],
    }
    here = {f"{name}_here": found[name][-1] for name in ("ppo", "cispo", "sapo", "gspo")}
    points = {f"{name}_at": [[state["ratio"]], [found[name][-1]]] for name in ("ppo", "cispo", "sapo", "gspo")}
    return {name: [data["ratios"], values[:-1]] for name, values in found.items()} | here | points


METHODS = ["PPO", "CISPO", "SAPO", "GSPO"]


def predicted(at):
    """Who pushes hardest at a token that is far too likely and told off."""
    ratio = min(FIGURE.controls[-1].values, key=lambda r: abs(r - 2.5))
    pulls = {name: at(sign="negative", ratio=ratio)[f"{name.lower()}_here"] for name in METHODS}
    return min(METHODS, key=pulls.__getitem__), {name.lower(): pull for name, pull in pulls.items()}


LIMIT = 4
FIGURE = Figure(
    title="What may a ratio do? Clips, gates and their gradients",
    alt="Left, over the ratio from 0 to 3, for a positive advantage: PPO's surrogate rises to 1.2 and stays there, SAPO's bends slowly, the unclipped one is a straight line."
    " Right, the weight of the gradient: PPO's drops to 0 at 1.2, CISPO's stays at 1.2, SAPO's is largest at about 2 and fades, GSPO's, for a reply of two tokens, follows the root of the ratio and drops to 0 at 1.44.",
    controls=[
        Choice("sign", "advantage", ["positive", "negative"], "positive"),
        Slider("epsilon", "ε below", [round(0.05 * i, 2) for i in range(1, 19)], start=0.2, form=".2f"),
        Slider("epsilon_high", "ε above", [round(0.05 * i, 2) for i in range(1, 31)], start=0.2, form=".2f"),
        Slider("tokens", "tokens of the reply (GSPO)", [1, 2, 4, 16, 64, 256, 1024, 4096], start=2),
        Choice("gspo", "ε of GSPO", list(GSPO), ".2"),
        Slider("ratio", "a token at ratio", [round(0.01 + 0.1 * i, 2) for i in range(30)], start=1.51, form=".2f"),
    ],
    panels=[
        Panel(
            "what is maximised, at an advantage of ±1",
            "ratio π/π_old of the token",
            "surrogate",
            (0, 3),
            (-LIMIT, LIMIT),
            [
                Mark("free_value", "no clip", "line", 5, dashed=True),
                Mark("ppo_value", "PPO", "line", 0),
                Mark("sapo_value", "SAPO, where only the slope matters", "line", 1),
            ],
        ),
        Panel(
            "how it pulls at the token",
            "ratio π/π_old of the token",
            "weight of ∇ log π",
            (0, 3),
            (-LIMIT, LIMIT),
            [
                Mark("free", "no clip", "line", 5, dashed=True),
                Mark("ppo", "PPO", "line", 0),
                Mark("cispo", "CISPO", "line", 2),
                Mark("sapo", "SAPO", "line", 1),
                Mark("gspo", "GSPO, the other tokens at 1", "line", 3),
                *(
                    Mark(f"{name}_at", "", "points", colour)
                    for name, colour in (("ppo", 0), ("cispo", 2), ("sapo", 1), ("gspo", 3))
                ),
            ],
        ),
    ],
    readings=[
        Reading("ppo_here", "weight in PPO"),
        Reading("cispo_here", "CISPO"),
        Reading("sapo_here", "SAPO"),
        Reading("gspo_here", "GSPO"),
    ],
    data=data,
    oracle=oracle,
    ask=Ask(
        "A token with a negative advantage has come to a ratio of 2.5. Which method pushes it down hardest?",
        METHODS,
        predicted,
        "PPO, with {ppo:.2f}: it takes the smaller of both surrogates, and here that is the one without a clip. CISPO's weight stops at {cispo:.2f},"
        " SAPO's gate leaves {sapo:.2f}, and GSPO takes the root, in a reply of two: {gspo:.2f}.",
    ),
)
