"""Best-of-n on the poem: its exact law, and what it costs beside the best policy of the same distance."""

import itertools
import math

from asking import Ask
from figures import Figure, Mark, Panel, Reading, Slider

NS = [1, 2, 3, 4, 5, 6, *(m * 2**k for k in range(2, 12) for m in (2, 3)), 8192]
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
    """Whether best-of-n is still worth more than the policy with the most reward at its distance where neither can go further."""
    import torch

    from minirlhf.core import exact
    from minirlhf.equations import rlhf

    ref, rewards, gold = (torch.tensor(data()[k], dtype=torch.float64) for k in ("ref", "rewards", "gold"))

    def tilt(push):
        p = rlhf.optimal_logps(ref.log(), rewards, beta=1 / push).exp()
        return float(exact.divergence(p, ref)), float(p @ gold)

    def beside(kl):  # what the best policy at this KL is worth
        low, high = 1e-6, 200.0
        for _ in range(60):
            middle = (low + high) / 2
            low, high = (middle, high) if tilt(middle)[0] < kl else (low, middle)
        return tilt(low)[1]

    by_n = {n: at(n=n) for n in NS}
    few, last = by_n[4], by_n[8192]
    # Both ends: the replies of most reward and no others, each as often as before.
    top = ref * (rewards == rewards.max())
    limit, worth = -math.log(float(top.sum())), float(top @ gold / top.sum())
    assert int((top > 0).sum()) == 1
    ends = (last["kl"], last["worth"]), tilt(200.0)
    assert all(abs(kl - limit) < 1e-3 for kl, _ in ends)
    apart = ends[0][1] - ends[1][1]
    answer = "neither" if abs(apart) < 1e-2 else "best-of-n" if apart > 0 else "the other one"
    # The formula goes on: what it has too much grows with each doubling, by log 2 in the end.
    later = [at(n=2**k) for k in range(11, 18)]
    steps = [b["gap"] - a["gap"] for a, b in itertools.pairwise(later)]
    assert min(steps) > 0 and abs(steps[-1] - math.log(2)) < 1e-5
    assert by_n[1]["gap"] == 0 < min(by_n[n]["gap"] for n in NS[1:])
    share = {n: 100 * by_n[n]["gap"] / by_n[n]["kl"] for n in NS[1:]}
    found = {"few": few["worth"], "few_tilt": beside(few["kl"]), "limit": limit, "last": worth, "kl": few["kl"]}
    found |= {"two": share[2], "least": min(share.values()), "most": share[8192], "gap": last["gap"]}
    lead = {n: by_n[n]["worth"] - beside(by_n[n]["kl"]) for n in NS[1:] if n <= 1024}
    assert min(lead.values()) > 0, lead  # as the lesson says
    found |= {"lead": lead[256], "later": lead[512]}
    every = [at(n=n) for n in range(1, 33)]  # for those who do not see the picture: where the worth is highest
    peak = max(every, key=lambda v: v["worth"])
    assert all(a["reward"] < b["reward"] + 1e-9 for a, b in itertools.pairwise([*every, *later]))
    assert max(v["worth"] for v in later) < min(v["worth"] for v in every) < peak["worth"] and peak is not every[-1]
    words = {"start": by_n[1]["worth"], "peak": peak["worth"], "place": peak["kl"]}
    return answer, found | words | {"zero": by_n[1]["before"][0] + by_n[1]["before"][2]}


FIGURE = Figure(
    title="The best of n: the law of the reply that is kept",
    alt="Left, bars over the reward: of single replies {zero:.2f} earn 0 or 1, and with one try the reply that is kept is any of them. Right, curves over the KL: the reward"
    " of best-of-n runs just below the frontier and rises all the way; what the replies are worth rises from {start:.2f} to {peak:.2f} at a KL of {place:.2f}, and then falls to {last:.2f}.",
    controls=[Slider("n", "n, the number of tries", NS, start=1, form="d")],
    panels=[
        Panel(
            "what the kept reply earns",
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
        Reading("gap", "log n − (n − 1)/n, less the KL"),
        Reading("reward", "reward"),
        Reading("worth", "worth"),
    ],
    data=data,
    oracle=oracle,
    ask=Ask(
        "The best of 4 lies {kl:.2f} nats from the model and is worth {few:.2f}, where the policy with the highest reward at this KL is worth {few_tilt:.2f}. Let n grow without end, and for the other policy let β go to 0. Which of the two is worth more in the end?",
        {
            "best-of-n": "On the way it is worth more, by {lead:.2f} at n = 256 and by {later:.2f} at 512, since n caps the factor by which a reply can become likelier. But this cap rises with n. In the end the reply with the most reward is kept every time, whatever it is worth, and the lead is gone.",
            "neither": "",
            "the other one": "It has the higher reward at each KL, but a reward is no worth; and in the end both give the reply with the most reward and no other.",
        },
        predicted,
        "Neither: both become the same policy, which gives the reply with the most reward and no other, and this one is worth {last:.2f}. Its KL, −log π of this reply, is {limit:.2f} nats, and no further try goes beyond it. The formula"
        " log n − (n − 1)/n does, as log n has no end: at n = 8,192 it is {gap:.2f} nats too large. It is an upper bound, and the KL itself only if no two tries can tie. Here it is too large by {two:.0f} % at n = 2, by {most:.0f} % at 8,192,"
        " and by {least:.0f} % or more at every n between them that can be set.",
        shows={"n": NS[-1]},
    ),
)
