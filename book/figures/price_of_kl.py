"""Chapter 05's forty completions: the optimal policy for each KL coefficient, its reward and its gold reward."""

import itertools

from asking import Ask
from figures import Figure, Mark, Panel, Reading, Slider

# 0.0526 to 4, eight to an octave, ¼, ½, 1 and 2 among them; and in place of 0.771 the coefficient of half a nat, which the text mentions
BETAS = [0.7648 if k == -3 else float(f"{2 ** (k / 8):.3g}") for k in range(-34, 17)]


def data():
    """The completions, most probable first, with their log-probability, reward and gold reward."""
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
    """How the KL grows when a large coefficient is halved; and where the gold reward is highest, and 0, between the coefficients of the curve."""
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
    title="The optimal policy for each KL coefficient β",
    alt="Bars: the reward of the forty completions of the poem. Under the reference a fraction {ref_low:.2f} has a reward below 1 and {ref_high:.2f} a reward of 2 or more; under the optimal policy for β = 1 it is"
    " {low:.2f} and {high:.2f}. Curves over the KL to the reference: the reward of the optimal policy rises all the way, its gold reward rises to"
    " {peak:.2f} at {where:.1f} nats and falls below zero beyond {zero:.1f}.",
    controls=[Slider("beta", "β", BETAS, start=1.0, form=".3g")],
    panels=[
        Panel(
            "reward of the forty completions",
            "reward",
            "probability",
            (-0.7, 6.7),
            (0, 1),
            [
                Mark("policy", "the optimal policy for this β", "bars", 0),
                Mark("reference", "the reference", "bars", 5, dashed=True),
            ],
            names=["0", "½", "1", "1½", "2", "2½", "3"],
        ),
        Panel(
            "the optimal policy of each β",
            "KL to the reference, in nats",
            "mean reward",
            (0, 7),
            (-1.5, 3),
            [
                Mark("rewards", "proxy reward, which it maximises", "line", 1, dashed=True),
                Mark("worths", "gold reward", "line", 2),
                Mark("reward_here", "", "points", 1),
                Mark("worth_here", "", "points", 2),
            ],
        ),
    ],
    readings=[
        Reading("kl", "KL in nats"),
        Reading("reward", "reward"),
        Reading("worth", "gold reward"),
        Reading("objective", "β log Z"),
        Reading("likeliest", "most probable", None),
    ],
    data=data,
    oracle=oracle,
    ask=Ask(
        "A large coefficient is halved, from β = 4 to 2. By which factor does the KL of the optimal policy grow?",
        {
            "about twice": "The change of each log-probability nearly doubles. But the KL is the mean of these changes. Positive and negative changes nearly cancel, and the remainder grows with their square.",
            "about four times": "",
            "about ten times": "r/β is an exponent, but for these β it is small, and the exponential of a small number is nearly linear.",
        },
        predicted,
        "By a factor of {times:.1f}, from {dear:.3f} to {half:.3f} nats. Near the reference the KL is the variance of the reward under the reference over 2β²: {var:.2f} and β = 2 give {formula:.3f}. Further away the KL"
        " grows more slowly: by a factor of {later:.1f} from β = .5 to .25. It cannot exceed {limit:.1f} nats, where the policy writes only the best completion.",
        shows={"beta": 2.0},
    ),
)
