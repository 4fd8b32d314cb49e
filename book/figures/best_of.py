"""Best-of-n on the poem: its exact law, and what it costs beside the best policy of the same distance."""

from figures import Ask, Figure, Mark, Panel, Reading, Slider

NS = [1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024]
BETAS = [round(0.05 * 200 ** (i / 60), 4) for i in range(61)]


def data():
    """The replies by what they earn, probabilities, rewards, worths, and the settings of the curves."""
    from minirlhf.data.toys import poem_critic

    world = poem_critic()
    order = world.rewards.argsort(stable=True)
    return {
        "ref": world.reference.distribution()[0].detach()[order].tolist(),
        "rewards": world.rewards[order].tolist(),
        "gold": world.gold[order].tolist(),
        "levels": sorted(set(world.rewards.tolist())),
        "ns": NS,
        "betas": BETAS,
    }


def oracle(data, state):
    """By the law of best-of-n and the closed form of the optimum."""
    import torch

    from minirlhf.core import exact
    from minirlhf.equations import rlhf
    from minirlhf.equations.estimators import best_of_n_distribution, best_of_n_kl

    ref, rewards, gold = (torch.tensor(data[k], dtype=torch.float64) for k in ("ref", "rewards", "gold"))

    def place(p):
        return float(exact.divergence(p, ref)), float(p @ rewards), float(p @ gold)

    def by_level(p):
        return [float(p[rewards == level].sum()) for level in data["levels"]]

    law = best_of_n_distribution(ref, rewards, n=state["n"])
    best = [place(best_of_n_distribution(ref, rewards, n=n)) for n in data["ns"]]
    tilts = [place(rlhf.optimal_logps(ref.log(), rewards, beta=beta).exp()) for beta in data["betas"]]
    distance, reward, worth = place(law)
    return {
        "before": by_level(ref),
        "after": by_level(law),
        "best": [[b[0] for b in best], [b[1] for b in best]],
        "frontier": [[t[0] for t in tilts], [t[1] for t in tilts]],
        "worths": [[b[0] for b in best], [b[2] for b in best]],
        "here": [[distance] * 2, [reward, worth]],
        "kl": distance,
        "bound": best_of_n_kl(state["n"]),
        "gap": best_of_n_kl(state["n"]) - distance,
        "reward": reward,
        "worth": worth,
    }


def predicted(at):
    """Which n is worth most, and what the most tries earn."""
    by_n = {n: at(n=n) for n in NS}
    best = max(NS, key=lambda n: by_n[n]["worth"])
    found = {"worth": by_n[best]["worth"], "reward": by_n[best]["reward"], "best": best}
    return f"{best:,}", found | {"last": by_n[NS[-1]]["worth"], "most": by_n[NS[-1]]["reward"]}


FIGURE = Figure(
    title="The best of n: the law of the reply that is kept",
    alt="Bars over the reward: of single replies most earn 0 or 1; of the best of four most earn 1 or 1.5. Curves over the KL: the reward of best-of-n runs just below"
    " the frontier and rises all the way; what the replies are worth rises to .90 at half a nat, and then falls below zero.",
    controls=[Slider("n", "n", NS, start=4)],
    panels=[
        Panel(
            "what the reply earns that is kept",
            "reward",
            "probability",
            (-0.7, 6.7),
            (0, 1),
            [Mark("after", "best of n", "bars", 0), Mark("before", "a single reply", "bars", 5, dashed=True)],
            names=["0", "½", "1", "1½", "2", "2½", "3"],
        ),
        Panel(
            "what distance buys",
            "KL to the policy, in nats",
            "per reply",
            (0, 6.5),
            (-1, 3),
            [
                Mark("frontier", "the highest reward at this KL", "line", 5, dashed=True),
                Mark("best", "reward of best-of-n", "line", 1),
                Mark("worths", "its worth in truth", "line", 2),
                Mark("here", "", "points", 5),
            ],
        ),
    ],
    readings=[
        Reading("kl", "KL in nats"),
        Reading("bound", "log n − (n − 1)/n"),
        Reading("gap", "more than the KL by"),
        Reading("reward", "reward"),
        Reading("worth", "worth"),
    ],
    data=data,
    oracle=oracle,
    ask=Ask(
        "Which n is worth most?",
        ["1", "4", "32", "1,024"],
        predicted,
        "{best}, with {worth:.2f}. From there to 1,024 the reward rises from {reward:.2f} to {most:.2f}, and the worth falls to {last:.2f}.",
    ),
)
