"""Best-of-n on the poem task: its exact distribution, beside the policy with the highest reward at the same KL."""

import itertools
import math

from asking import Ask
from figures import Figure, Mark, Panel, Reading, Slider

NS = [1, 2, 3, 4, 5, 6, *(m * 2**k for k in range(2, 12) for m in (2, 3)), 8192]
BETAS = [round(0.05 * 200 ** (i / 60), 4) for i in range(61)]


def data():
    """Return the completions in order of reward: probabilities, rewards, gold rewards, and the settings of the curves."""
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
    """Compute the readings from the distribution of best-of-n and the closed form of the optimum."""
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
    """Return which policy has the higher gold reward in the limits, and the numbers of the texts."""
    import torch

    from minirlhf.core import exact
    from minirlhf.equations import rlhf

    ref, rewards, gold = (torch.tensor(data()[k], dtype=torch.float64) for k in ("ref", "rewards", "gold"))

    def tilt(push):
        p = rlhf.optimal_logps(ref.log(), rewards, beta=1 / push).exp()
        return float(exact.divergence(p, ref)), float(p @ gold)

    def beside(kl):  # gold reward of the policy with the highest reward at this KL
        low, high = 1e-6, 200.0
        for _ in range(60):
            middle = (low + high) / 2
            low, high = (middle, high) if tilt(middle)[0] < kl else (low, middle)
        return tilt(low)[1]

    by_n = {n: at(n=n) for n in NS}
    few, last = by_n[4], by_n[8192]
    # Both limits: the completions with the highest reward and no others, in the same proportions as before.
    top = ref * (rewards == rewards.max())
    limit, worth = -math.log(float(top.sum())), float(top @ gold / top.sum())
    assert int((top > 0).sum()) == 1
    ends = (last["kl"], last["worth"]), tilt(200.0)
    assert all(abs(kl - limit) < 1e-3 for kl, _ in ends)
    apart = ends[0][1] - ends[1][1]
    answer = "neither" if abs(apart) < 1e-2 else "best-of-n" if apart > 0 else "the tilt"
    # The formula keeps growing: its error grows with each doubling of n, by log 2 in the limit.
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
    every = [at(n=n) for n in range(1, 33)]  # for the alt text: where the gold reward is highest
    peak = max(every, key=lambda v: v["worth"])
    assert all(a["reward"] < b["reward"] + 1e-9 for a, b in itertools.pairwise([*every, *later]))
    assert max(v["worth"] for v in later) < min(v["worth"] for v in every) < peak["worth"] and peak is not every[-1]
    words = {"start": by_n[1]["worth"], "peak": peak["worth"], "place": peak["kl"]}
    return answer, found | words | {"zero": by_n[1]["before"][0] + by_n[1]["before"][2]}


FIGURE = Figure(
    title="The best of n: distribution of the selected completion",
    alt="Left, bars over the reward: a fraction {zero:.2f} of single completions have a reward of 0 or 1, and with n = 1 the selected completion has the same distribution. Right, curves over the KL: the reward"
    " of best-of-n lies just below the frontier and rises everywhere; its gold reward rises from {start:.2f} to {peak:.2f} at a KL of {place:.2f}, and then falls to {last:.2f}.",
    controls=[Slider("n", "n, the number of samples", NS, start=1, form="d")],
    panels=[
        Panel(
            "reward of the selected completion",
            "reward",
            "probability",
            (-0.7, 6.7),
            (0, 1),
            [Mark("after", "best of n", "bars", 0), Mark("before", "a single completion", "bars", 5, dashed=True)],
            names=["0", "½", "1", "1½", "2", "2½", "3"],
        ),
        Panel(
            "reward and gold reward against KL",
            "KL from the model, nats",
            "expected value",
            (0, 6.5),
            (-1, 3),
            [
                Mark("frontier", "the highest reward at this KL", "line", 5, dashed=True),
                Mark("best", "reward of best-of-n", "line", 1),
                Mark("worths", "its gold reward", "line", 2),
                Mark("here", "", "points", 5),
            ],
        ),
    ],
    readings=[
        Reading("kl", "KL in nats"),
        Reading("bound", "log n − (n − 1)/n"),
        Reading("gap", "log n − (n − 1)/n minus the KL"),
        Reading("reward", "reward"),
        Reading("worth", "gold reward"),
    ],
    data=data,
    oracle=oracle,
    ask=Ask(
        "The best of 4 has a KL of {kl:.2f} nats from the model and a gold reward of {few:.2f}. The policy with the highest proxy reward at this KL, the tilt, has a gold reward of {few_tilt:.2f}. Let n grow without limit, and let β of the tilt go to 0. Which of the two has the higher gold reward in the limit?",
        {
            "best-of-n": "At finite n it has the higher gold reward, by {lead:.2f} at n = 256 and by {later:.2f} at 512, because a probability can grow by a factor of n at most. But this limit rises with n. In the end the completion with the highest proxy reward is selected every time, and the advantage is zero.",
            "neither": "",
            "the tilt": "It has the higher proxy reward at each KL, but not the higher gold reward. In the limit both give only the completion with the highest proxy reward.",
        },
        predicted,
        "Neither: both converge to the same policy, which gives only the completion with the highest proxy reward. Its gold reward is {last:.2f}. Its KL, −log π of this completion, is {limit:.2f} nats, and more samples cannot exceed it. The formula"
        " log n − (n − 1)/n grows without limit: at n = 8,192 it is {gap:.2f} nats too large. It is an upper bound, and equals the KL only if no two samples can tie. Here it is too large by {two:.0f} % at n = 2, by {most:.0f} % at 8,192,"
        " and by at least {least:.0f} % at every other n of the slider.",
        shows={"n": NS[-1]},
    ),
)
