"""Seven words, a reward model learned from 400 comparisons, and the best policy for it at every price."""

from figures import Ask, Figure, Mark, Panel, Reading, Slider

STRENGTHS = [0.0, *(float(f"{2 ** (k / 4):.3g}") for k in range(-22, 21))]  # 0.0221 to 32, and all powers of 2 between
DRAWS = 5


def data():
    """The 791 bags of words, and five reward models: a weight for each word, each from its own 400 comparisons."""
    import torch

    from minirlhf.data.seven_words import WORDS, bags
    from minirlhf.feedback.proxies import compare, fit

    world = bags()
    counts = torch.cat([world.counts.double(), torch.ones(len(world.gold), 1, dtype=torch.float64)], -1)
    models = [fit(world, compare(world, 400, seed=seed), "counts").double() for seed in range(DRAWS)]
    weights = [torch.linalg.lstsq(counts, model[:, None]).solution[:, 0] for model in models]
    assert all(torch.allclose(counts @ w, model, atol=1e-4) for w, model in zip(weights, models, strict=True))
    return {
        "words": list(WORDS),
        "counts": ["".join(map(str, row)) for row in world.counts.long().tolist()],
        "ref_logps": [round(x, 6) for x in world.ref_logps.tolist()],
        "gold": [round(x, 6) for x in world.gold.tolist()],
        "weights": [[round(x, 6) for x in w.tolist()] for w in weights],
        "strengths": STRENGTHS,
    }


def oracle(data, state):
    """By the closed form of the optimum."""
    import torch

    from minirlhf.core import exact
    from minirlhf.equations import rlhf

    counts = torch.tensor([list(map(int, row)) for row in data["counts"]], dtype=torch.float64)
    ref = torch.tensor(data["ref_logps"], dtype=torch.float64).log_softmax(-1)
    gold = torch.tensor(data["gold"], dtype=torch.float64)
    weights = torch.tensor(data["weights"][state["draw"] - 1], dtype=torch.float64)
    proxy = counts @ weights[:-1] + weights[-1]

    def place(strength):
        logps = ref if strength == 0 else rlhf.optimal_logps(ref, proxy, beta=1 / strength)
        p = logps.exp()
        return p, max(float(exact.divergence(p, ref.exp())), 0.0), float(p @ proxy), float(p @ gold)

    curve = [place(s)[1:] for s in data["strengths"]]
    p, kl, earned, worth = place(state["push"])
    at = int(p.argmax())
    said = " ".join(word for word, n in zip(data["words"], data["counts"][at], strict=True) for _ in range(int(n)))
    distances = [c[0] ** 0.5 for c in curve]
    return {
        "proxy": [distances, [c[1] for c in curve]],
        "gold": [distances, [c[2] for c in curve]],
        "here": [[kl**0.5] * 2, [earned, worth]],
        "before": (ref.exp() @ counts).tolist(),
        "now": (p @ counts).tolist(),
        "kl": kl,
        "earned": earned,
        "worth": worth,
        "said": said,
        "share": float(p[at]),
    }


ASKED = ["the same reply from all five", "fewer than five replies, some of them shared", "five different replies"]


def predicted(at):
    """Whether reward models that were learned alike are hacked alike."""
    ends = [at(draw=draw, push=STRENGTHS[-1]) for draw in range(1, DRAWS + 1)]
    said = [end["said"] for end in ends]
    peaks = [max(at(draw=draw)["gold"][1]) for draw in range(1, DRAWS + 1)]
    kinds = len(set(said))
    worth = [end["worth"] for end in ends]
    found = {
        "first": at(push=0.0)["worth"],
        "kinds": kinds,
        "low": min(peaks),
        "high": max(peaks),
        "worst": min(worth),
        "best": max(worth),
    }
    return ASKED[0 if kinds == 1 else 2 if kinds == DRAWS else 1], found


FIGURE = Figure(
    title="Push, and watch the replies: over-optimisation of a learned reward",
    alt="Left, over the square root of the KL: the learned reward rises all the way; gold rises with it, peaks, and falls. Right, bars: how often each of seven"
    " words is in a reply, under the reference and under the policy.",
    controls=[
        Slider("push", "push, 1/β", STRENGTHS, start=0.707, form=".3g"),
        Slider("draw", "reward model", list(range(1, DRAWS + 1)), start=2),
    ],
    panels=[
        Panel(
            "what the policy earns, and what it is worth",
            "√KL to the reference, in √nats",
            "per reply",
            (0, 4.5),
            (-1, 5),
            [
                Mark("proxy", "learned reward", "line", 1, dashed=True),
                Mark("gold", "gold", "line", 2),
                Mark("here", "", "points", 5),
            ],
        ),
        Panel(
            "words in a reply",
            "word",
            "of each, on average",
            (-0.7, 6.7),
            (0, 5),
            [Mark("now", "policy", "bars", 0), Mark("before", "reference", "bars", 5, dashed=True)],
            names=["ok", "um", "please", "thanks", "fact", "detail", "great"],
        ),
    ],
    readings=[
        Reading("kl", "KL in nats", 2),
        Reading("earned", "learned reward", 2),
        Reading("worth", "gold", 2),
        Reading("said", "likeliest words, in any order", None),
        Reading("share", "with probability"),
    ],
    data=data,
    oracle=oracle,
    ask=Ask(
        "Five reward models, each from its own 400 comparisons, are pushed to the end. What is said most in the end?",
        ASKED,
        predicted,
        "{kinds} different ones: which words are overrated is the luck of the comparisons. That gold falls is not: it begins at {first:.2f}, is {low:.2f} to {high:.2f} at its"
        " highest, and {worst:.2f} to {best:.2f} in the end.",
    ),
)
