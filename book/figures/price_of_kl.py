"""Chapter 05's forty replies: the best policy at each price of KL, what it earns, and what that is worth."""

from figures import Ask, Figure, Mark, Panel, Reading, Slider

# 0.0526 to 4, eight to an octave, ¼, ½, 1 and 2 among them; and in place of 0.771 the price of half a nat, of which the text speaks
BETAS = [0.7648 if k == -3 else float(f"{2 ** (k / 8):.3g}") for k in range(-34, 17)]


def data():
    """The replies, most probable first, with their log-probability, their reward and their worth."""
    from minirlhf.data.toys import poem_critic

    world = poem_critic()
    logps = world.reference.distribution()[0].detach().log()
    order = logps.argsort(descending=True)
    return {
        "replies": [world.replies[n] or "(nothing)" for n in order.tolist()],
        "ref_logps": logps[order].tolist(),
        "rewards": world.rewards[order].tolist(),
        "gold": world.gold[order].tolist(),
        "betas": BETAS,
    }


def oracle(data, state):
    """By the closed form of the optimum."""
    import torch

    from minirlhf.equations import kl, rlhf

    ref, rewards, gold = (torch.tensor(data[k], dtype=torch.float64) for k in ("ref_logps", "rewards", "gold"))

    def at(beta):
        logps = rlhf.optimal_logps(ref, rewards, beta=beta)
        p = logps.exp()
        return p, float(kl.reverse_kl(logps, ref)), float(p @ rewards), float(p @ gold)

    curve = [at(beta)[1:] for beta in data["betas"]]
    p, distance, reward, gold_now = at(state["beta"])
    kls = [point[0] for point in curve]
    return {
        "reference": ref.exp().tolist(),
        "policy": p.tolist(),
        "rewards": [kls, [point[1] for point in curve]],
        "worths": [kls, [point[2] for point in curve]],
        "reward_here": [[distance], [reward]],
        "worth_here": [[distance], [gold_now]],
        "kl": distance,
        "reward": reward,
        "worth": gold_now,
        "objective": float(rlhf.optimal_value(ref, rewards, beta=state["beta"])),
        "likeliest": data["replies"][int(p.argmax())],
    }


ASKED = ["what the reference likes best", "the reply with the most reward", "the reply that is worth most"]


def predicted(at):
    """What is said where KL costs least."""
    values = FIGURE.data()
    cheap = at(beta=FIGURE.controls[0].values[0])
    first, earns, worth = (
        values["replies"][max(range(len(column)), key=column.__getitem__)]
        for column in (values["ref_logps"], values["rewards"], values["gold"])
    )
    kinds = dict(zip(ASKED, (first, earns, worth), strict=True))
    [answer] = [kind for kind, reply in kinds.items() if reply == cheap["likeliest"]]
    return answer, {"said": cheap["likeliest"], "worth": cheap["worth"], "better": worth, "most": max(values["gold"])}


FIGURE = Figure(
    title="What does a nat cost? Set the price β, and the best policy follows",
    alt="Bars: the forty replies of the poem under the reference and under the best policy for β = 1, which has moved a little to replies with"
    " more reward. Curves over the KL to the reference: what the best policy earns rises all the way, what it is worth rises to about"
    " .72 at half a nat and falls below zero beyond three.",
    controls=[Slider("beta", "β", BETAS, start=1.0, form=".3g")],
    panels=[
        Panel(
            "how likely each reply is",
            "the forty replies, as the reference likes them",
            "probability",
            (-1, 40),
            (0, 1),
            [
                Mark("policy", "the best policy for this β", "bars", 0),
                Mark("reference", "the reference", "bars", 5, dashed=True),
            ],
            names=["1"] + [""] * 8 + ["10"] + [""] * 9 + ["20"] + [""] * 9 + ["30"] + [""] * 9 + ["40"],
        ),
        Panel(
            "what the best policy of each β earns",
            "KL to the reference, in nats",
            "per reply",
            (0, 7),
            (-1.5, 3),
            [
                Mark("rewards", "reward, which it was trained for", "line", 1, dashed=True),
                Mark("worths", "what it is worth in truth", "line", 2),
                Mark("reward_here", "", "points", 1),
                Mark("worth_here", "", "points", 2),
            ],
        ),
    ],
    readings=[
        Reading("kl", "KL in nats"),
        Reading("reward", "reward"),
        Reading("worth", "worth"),
        Reading("objective", "β log Z"),
        Reading("likeliest", "said most often", None),
    ],
    data=data,
    oracle=oracle,
    ask=Ask(
        "At the lowest price, at the left end: what does the best policy say most often?",
        ASKED,
        predicted,
        "“{said}”: the most reward, and a worth of {worth:.2f}. The reply that is worth most, “{better}” with {most:.2f}, is passed on the way there.",
    ),
)
