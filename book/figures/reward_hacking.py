"""Seven words, a reward model learned from 400 comparisons, and the best policy for it at every price."""

import functools

from asking import Ask
from figures import Figure, Mark, Panel, Reading, Slider

STRENGTHS = [0.0, *(float(f"{2 ** (k / 4):.3g}") for k in range(-22, 33))]  # 0.0221 to 256, and all powers of 2 between
DRAWS = 5


@functools.cache
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


NUMBERS = ["none", "one", "two", "three", "four", "five"]


def predicted(at):
    """Whether reward models that were learned alike are hacked alike, in the limit in which only the bag of most reward is left."""
    import torch

    given, ends, peaks = data(), [], []
    counts = torch.tensor([list(map(int, row)) for row in given["counts"]], dtype=torch.float64)
    ref, gold = (torch.tensor(given[name], dtype=torch.float64) for name in ("ref_logps", "gold"))
    for draw, weights in enumerate(given["weights"], 1):
        proxy = counts @ torch.tensor(weights[:-1], dtype=torch.float64)
        best = int(proxy.argmax())
        ends.append((given["counts"][best], float(gold[best])))
        # Gold at its highest, between the settings of the slider, too; and that nothing moves any more at its end.
        worth = lambda strength, proxy=proxy: float((ref + strength * proxy).softmax(0) @ gold)
        top = max(range(len(STRENGTHS)), key=lambda i: worth(STRENGTHS[i]))
        low, high = STRENGTHS[top - 1], STRENGTHS[top + 1]
        for _ in range(40):
            left, right = low + (high - low) / 3, high - (high - low) / 3
            low, high = (left, high) if worth(left) < worth(right) else (low, right)
        peaks.append(worth(low))
        last = at(draw=draw, push=STRENGTHS[-1])
        words = " ".join(w for w, n in zip(given["words"], map(int, ends[-1][0]), strict=True) for _ in range(n))
        assert last["said"] == words and last["share"] > 0.999 and abs(last["worth"] - ends[-1][1]) < 1e-3
    # All five end at one of the two fact words, as often as a reply has room for it, and gold is the same for both.
    fact, detail = (given["words"].index(word) for word in ("fact", "detail"))
    most = {"fact" if bag[fact] == "5" else "detail" if bag[detail] == "5" else bag for bag, _ in ends}
    assert most == {"fact", "detail"} and len({worth for _, worth in ends}) == 1
    assert all(sorted(range(7), key=lambda i: w[i])[-2:] in ([fact, detail], [detail, fact]) for w in given["weights"])
    kinds, start = len({bag for bag, _ in ends}), at(push=0.0)
    facts = sum(bag[fact] == "5" for bag, _ in ends)
    found = {"facts": NUMBERS[facts], "details": NUMBERS[DRAWS - facts], "end": ends[0][1], "first": start["worth"]}
    assert ends[0][1] < start["worth"] < min(peaks)
    return NUMBERS[kinds], found | {"low": min(peaks), "high": max(peaks)}


FIGURE = Figure(
    title="Push, and watch the replies: over-optimisation of a learned reward",
    alt="Left, over the square root of the KL: the learned reward rises all the way; gold rises with it from {first:.2f}, peaks, and falls to {end:.2f}. Right, bars: how often each of seven"
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
        Reading("said", "likeliest bag of words", None),
        Reading("share", "its probability"),
    ],
    data=data,
    oracle=oracle,
    ask=Ask(
        "Five reward models, each from its own 400 comparisons, are pushed as far as they go, until each policy gives one bag of words only (words without their order). How many different bags are there among the five?",
        {
            "one": "They share what such a model cannot say: that one more of a good word is worth less. But which of the good words has the largest weight, luck decides; and the two fact words, “fact” and “detail”, are worth the same in truth.",
            "two": "",
            "five": "Each has errors of its own, but they have one in common: a model that counts words pays for a word each time. So all end at five times the word that they pay most for, and only two words come into question.",
        },
        predicted,
        "Two: “fact” five times for {facts} of them, and “detail” five times for {details}. The two words are worth the same in truth, and which has the larger weight is the luck of the comparisons. That one word is repeated to the end is no luck. Gold begins at"
        " {first:.2f}, is {low:.2f} to {high:.2f} at its highest, and ends at {end:.2f} with all five.",
        shows={"push": STRENGTHS[-1]},
    ),
)
