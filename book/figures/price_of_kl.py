"""Chapter 05's forty replies: the best policy at each price of KL, what it earns, and what that is worth."""

import itertools

from asking import Ask
from figures import Figure, Mark, Panel, Reading, Slider

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
        "levels": sorted(set(world.rewards.tolist())),
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

    def by_level(p):
        return [float(p[rewards == level].sum()) for level in data["levels"]]

    return {
        "reference": by_level(ref.exp()),
        "policy": by_level(p),
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


def predicted(at):
    """How the KL grows when a high price is halved; and where the worth is highest, and 0, between the prices of the curve."""
    import torch

    from minirlhf.equations import kl, rlhf

    ref, rewards, gold = (torch.tensor(data()[k], dtype=torch.float64) for k in ("ref_logps", "rewards", "gold"))

    def far(beta):
        logps = rlhf.optimal_logps(ref, rewards, beta=beta)
        return float(kl.reverse_kl(logps, ref)), float(logps.exp() @ gold)

    def lowest(f, low, high):  # by the golden section
        ratio = (5**0.5 - 1) / 2
        while high - low > 1e-6:
            a, b = high - ratio * (high - low), low + ratio * (high - low)
            low, high = (low, b) if f(a) < f(b) else (a, high)
        return low

    peak = lowest(lambda beta: -far(beta)[1], 0.3, 3.0)
    zero = lowest(lambda beta: abs(far(beta)[1]), 0.05, peak)
    assert abs(far(zero)[1]) < 1e-5 and max(at()["worths"][1]) <= far(peak)[1]
    mean = ref.exp() @ rewards
    var = float(ref.exp() @ (rewards - mean) ** 2)
    dear, half, cheap, cheaper = (at(beta=beta)["kl"] for beta in (4.0, 2.0, 0.5, 0.25))
    times = half / dear
    for beta in (4.0, 8.0, 16.0):  # the formula of small tilts comes ever nearer
        assert abs(far(beta)[0] / (var / (2 * beta**2)) - 1) < 0.25 / beta
    halved = [far(2.0**k)[0] / far(2.0 ** (k + 1))[0] for k in range(1, -5, -1)]
    assert all(b < a for a, b in itertools.pairwise(halved))
    best = float(ref[rewards.argmax()])
    found = {
        "dear": dear,
        "half": half,
        "times": times,
        "var": var,
        "formula": var / 8,
        "later": cheaper / cheap,
        "limit": -best,
    }
    found |= {"peak": far(peak)[1], "where": far(peak)[0], "zero": far(zero)[0]}
    start = at(beta=1.0)
    for name, of in (("ref_", start["reference"]), ("", start["policy"])):
        found |= {f"{name}low": sum(of[:2]), f"{name}high": sum(of[4:])}
    answer = (
        "about as large"
        if times < 1.3
        else "about twice"
        if times < 2.7
        else "about four times"
        if times < 6
        else "about ten times"
    )
    return answer, found


FIGURE = Figure(
    title="What does a nat cost? Set the price β, and the best policy follows",
    alt="Bars: what the forty replies of the poem earn. Of the reference's, {ref_low:.2f} earn less than 1 and {ref_high:.2f} earn 2 or more; of the best policy's for β = 1,"
    " {low:.2f} and {high:.2f}. Curves over the KL to the reference: what the best policy earns rises all the way, what it is worth rises to"
    " {peak:.2f} at {where:.1f} nats and falls below zero beyond {zero:.1f}.",
    controls=[Slider("beta", "β", BETAS, start=1.0, form=".3g")],
    panels=[
        Panel(
            "what the forty replies earn",
            "reward",
            "probability",
            (-0.7, 6.7),
            (0, 1),
            [
                Mark("policy", "the best policy for this β", "bars", 0),
                Mark("reference", "the reference", "bars", 5, dashed=True),
            ],
            names=["0", "½", "1", "1½", "2", "2½", "3"],
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
        "A high price is halved, from β = 4 to 2. How many times as large does the KL of the best policy become?",
        {
            "about twice": "The change of each log-probability doubles, nearly. But the KL is the mean of these changes, in which ups and downs nearly cancel; what is left grows with their square.",
            "about four times": "",
            "about ten times": "r/β stands in an exponent, but at these prices it is small, and the exponential of something small is nearly a straight line.",
        },
        predicted,
        "{times:.1f} times, from {dear:.3f} to {half:.3f} nats. Near the reference the KL is the variance of the reward under the reference over 2β²: {var:.2f} and β = 2 give {formula:.3f}. Further away the KL"
        " grows more slowly: {later:.1f} times from β = .5 to .25. It cannot exceed the {limit:.1f} nats at which the policy says nothing but the best reply.",
        shows={"beta": 2.0},
    ),
)
