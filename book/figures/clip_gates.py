"""What a ratio may do: the surrogate and the weight of a token's gradient, by method."""

from asking import Ask
from figures import Choice, Figure, Mark, Panel, Reading, Slider

GSPO = {"3e-4 below, 4e-4 above": (3e-4, 4e-4), ".01": (0.01, 0.01), ".05": (0.05, 0.05), ".2": (0.2, 0.2)}
RATIOS = [round((i + 0.25) / 50, 4) for i in range(150)]  # neither here nor on the slider a place where a clip begins
EPSILONS = [0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9]
EPSILONS_HIGH = [0.1, 0.2, 0.28, 0.4, 0.6, 0.8, 1.0, 1.5, 2.0, 4.0]


def data():
    """The ratios at which the curves are computed."""
    return {"ratios": RATIOS, "ranges": GSPO}


def both(objective, ratios, advantage, tokens=1, **options):
    """Return value and weight over the advantage for each ratio of a completion's first token; its other ratios are 1."""
    import torch

    ratios = torch.tensor(ratios, dtype=torch.float64)
    logps = torch.zeros(len(ratios), tokens, dtype=torch.float64)
    logps[:, 0] = ratios.log()
    logps.requires_grad_()
    old = torch.zeros_like(logps)
    value = objective(logps, old, torch.full_like(old, advantage), torch.ones_like(old, dtype=torch.bool), **options)
    (slope,) = torch.autograd.grad(value[:, 0].sum(), logps)
    return (value[:, 0] / advantage).tolist(), (slope[:, 0] / advantage).tolist()


def oracle(data, state):
    """Values by the objectives of the library, weights by their derivatives in the token's log-probability."""
    from minirlhf.equations import policy_losses

    low, high = data["ranges"][state["gspo"]]
    above, tokens = state["epsilon_high"], state["tokens"]
    methods = {
        "free": (policy_losses.importance_weighted, {}),
        "ppo": (policy_losses.ppo_clip, {"epsilon": state["epsilon"], "epsilon_high": above}),
        "cispo": (policy_losses.cispo, {"epsilon_high": above}),
        "sapo": (policy_losses.sapo, {}),
        "gspo": (policy_losses.gspo, {"tokens": tokens, "epsilon": low, "epsilon_high": high}),
    }
    advantage = 1.0 if state["sign"] == "positive" else -1.0
    found, xs = {}, data["ratios"]
    for name, (objective, options) in methods.items():
        *value, one = both(objective, [*xs, 1.0], advantage, **options)[0]
        *weight, here = both(objective, [*xs, state["ratio"]], advantage, **options)[1]
        if name == "gspo":  # all tokens of the completion share its derivative
            weight, here = [tokens * w for w in weight], tokens * here
        if name == "sapo":
            value = [v - one + 1 for v in value]
        if name != "cispo":
            found[f"{name}_value"] = [xs, value]
        found[name] = [xs, weight]
        if name != "free":
            found |= {f"{name}_here": here, f"{name}_at": [[state["ratio"]], [here]]}
    return found


METHODS = ["PPO", "CISPO", "SAPO", "GSPO"]


def predicted(at):
    """Return whose weights rise with a wider upper range, under a negative advantage, and check the order of the methods."""
    import inspect

    from minirlhf.equations import policy_losses

    def weights(**changes):
        found = at(sign="negative", **changes)
        return {name: found[f"{name.lower()}_here"] for name in METHODS}

    ratio = 2.45
    default = inspect.signature(policy_losses.cispo).parameters["epsilon_high"].default
    narrow, wide, widest = (weights(ratio=ratio, epsilon_high=above) for above in (0.2, 1.0, default))
    moved = [name for name in METHODS if abs(wide[name] - narrow[name]) > 1e-9]
    for epsilon in EPSILONS:  # PPO's upper range does nothing to a negative advantage, at any ratio
        curves = [
            at(sign="negative", epsilon=epsilon, epsilon_high=above)[name]
            for above in EPSILONS_HIGH
            for name in ("ppo", "ppo_value")
        ]
        assert curves[::2] == curves[:1] * len(EPSILONS_HIGH) and curves[1::2] == curves[1:2] * len(EPSILONS_HIGH)
    for changes in [{"epsilon_high": above} for above in EPSILONS_HIGH] + [
        {"tokens": tokens, "gspo": name} for tokens in FIGURE.controls[3].values for name in GSPO
    ]:  # no weight exceeds PPO's: a weight depends on one of these two only
        found = weights(ratio=ratio, **changes)
        assert found["PPO"] == narrow["PPO"] and max(found.values()) <= narrow["PPO"] + 1e-9
    assert narrow["PPO"] > narrow["GSPO"] > narrow["SAPO"] > narrow["CISPO"] and wide["CISPO"] > wide["GSPO"]
    assert abs(widest["PPO"] - widest["CISPO"]) < 1e-9
    delta = 2.0
    dual = abs(both(policy_losses.ppo_clip, [ratio], -1.0, epsilon=0.2, epsilon_high=0.2, delta=delta)[1][0])
    assert dual == 0
    found = {name.lower(): weight for name, weight in narrow.items()} | {"ratio": ratio, "delta": delta, "dual": dual}
    found |= {"wide": wide["CISPO"], "default": default}
    start, fine = FIGURE.start, [i / 1000 for i in range(1, 3000)]
    found["high"] = 1 + start["epsilon_high"]
    found["edge"] = (1 + GSPO[start["gspo"]][1]) ** start["tokens"]
    found["top"] = max(zip(both(policy_losses.sapo, fine, 1.0)[1], fine, strict=True))[1]
    return {("PPO",): "PPO's alone", ("CISPO",): "CISPO's alone", ("PPO", "CISPO"): "PPO's and CISPO's"}[
        tuple(moved)
    ], found


FIGURE = Figure(
    title="Clips, gates and their gradients: what a ratio may do",
    alt="Left, over the ratio from 0 to 3, for a positive advantage: PPO's surrogate rises to {high:.1f} and stays there, GSPO's bends and stays at the same height, SAPO's bends slowly, and the unclipped surrogate is a straight line."
    " Right, the weight of the gradient: PPO's drops to 0 at {high:.1f}, CISPO's stays there, SAPO's is largest at about {top:.1f} and fades, GSPO's, for a completion of two tokens and times two, follows the root of the ratio and drops to 0 at {edge:.2f}.",
    controls=[
        Choice("sign", "advantage", ["positive", "negative"], "positive"),
        Slider("epsilon", "ε below (PPO)", EPSILONS, start=0.2, form=".1f"),
        Slider("epsilon_high", "ε above (PPO, CISPO)", EPSILONS_HIGH, start=0.2, form=".2f"),
        Slider("tokens", "tokens of the completion (GSPO)", [1, 2, 4, 16, 64, 256, 1024, 4096], start=2),
        Choice("gspo", "ε of GSPO", list(GSPO), ".2"),
        Slider("ratio", "a token at ratio", [round(0.05 + 0.1 * i, 2) for i in range(30)], start=1.55, form=".2f"),
    ],
    panels=[
        Panel(
            "surrogate over A (CISPO has a gradient only)",
            "ratio of the token, new over old",
            "surrogate / A",
            (0, 3),
            (0, 3),
            [
                Mark("free_value", "no clip", "line", 5, wide=True),
                Mark("ppo_value", "PPO", "line", 0),
                Mark("sapo_value", "SAPO, moved to 1 at ratio 1", "line", 1),
                Mark("gspo_value", "GSPO, the other tokens at 1", "line", 3),
            ],
        ),
        Panel(
            "weight of the token's gradient",
            "ratio of the token, new over old",
            "factor before A ∇ log π",
            (0, 3),
            (0, 3),
            [
                Mark("free", "no clip", "line", 5, wide=True),
                Mark("ppo", "PPO", "line", 0),
                Mark("cispo", "CISPO", "line", 2, dashed=True),
                Mark("sapo", "SAPO", "line", 1),
                Mark("gspo", "GSPO, times the completion's length", "line", 3),
                *(
                    Mark(f"{name}_at", "", "points", colour)
                    for name, colour in (("ppo", 0), ("cispo", 2), ("sapo", 1), ("gspo", 3))
                ),
            ],
        ),
    ],
    readings=[
        Reading("ppo_here", "weight in PPO"),
        Reading("cispo_here", "weight in CISPO"),
        Reading("sapo_here", "weight in SAPO"),
        Reading("gspo_here", "weight in GSPO, times the completion's length"),
    ],
    data=data,
    oracle=oracle,
    ask=Ask(
        "A token with a negative advantage has reached a ratio of {ratio:.2f}. Now ε above is widened from .2 to 1. Which methods' weights at the token change?",
        {
            "PPO's alone": "PPO takes the smaller of two surrogates, and with a negative advantage above 1 the one without a clip is the smaller: ε above is for positive ones.",
            "CISPO's alone": "",
            "PPO's and CISPO's": "CISPO's does. PPO takes the smaller of two surrogates, and with a negative advantage above 1 the one without a clip is the smaller.",
        },
        predicted,
        "CISPO's alone, from {cispo:.2f} to {wide:.2f}: it truncates its weight at the same bound for both signs. PPO's weight is the ratio itself, {ppo:.2f}, and no other weight can be larger. The ranges decide which method comes second. With all ranges at .2, and two tokens,"
        " it is GSPO with {gspo:.2f} (times the completion's length), before SAPO with {sapo:.2f} and CISPO. Now it is CISPO; at {default:.0f}, the library's default, CISPO equals PPO."
        " PPO is first unless a clip is added that is not drawn here: the dual clip bounds PPO's ratio for negative advantages, and at δ = {delta:.0f} PPO's weight is {dual:.0f}.",
        shows={"sign": "negative", "epsilon_high": 1.0, "ratio": 2.45},
    ),
)
