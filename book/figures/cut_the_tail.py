"""One next token: what temperature, top-k, top-p and min-p leave of twelve words."""

from figures import Ask, Figure, Mark, Panel, Reading, Slider

WORDS = ["red", "blue", "grey", "tan", "dark", "big", "wet", "near", "late", "ten", "soup", "of"]
LOGITS = [3.1, 2.83, 2.37, 1.62, 1.09, 0.71, 0.13, -0.37, -1.04, -1.71, -2.46, -3.02]


def data():
    """A made-up model behind "the door was painted": words and logits, the likeliest first."""
    return {"words": WORDS, "logits": LOGITS}


def oracle(data, state):
    """By the library's functions, in the order in which samplers apply them."""
    import torch

    from minirlhf.core import exact
    from minirlhf.equations import language

    logits = torch.tensor(data["logits"], dtype=torch.float64)
    heated = logits / state["temperature"]
    cut = language.top_k_logits(heated, top_k=state["top_k"])
    cut = language.top_p_logits(cut, top_p=state["top_p"])
    cut = language.min_p_logits(cut, min_p=state["min_p"])
    probs = cut.softmax(-1)
    return {
        "model": logits.softmax(-1).tolist(),
        "sampled": probs.tolist(),
        "tokens": int((probs > 0).sum()),
        "mass": float(language.kept_mass(heated, cut)),
        "entropy": float(exact.entropy(probs[probs > 0])),
        "first": float(probs[0]),
    }


def predicted(at):
    """Whether the same top-p leaves as many words when it is hotter."""
    cool, hot = (at(temperature=t, top_p=0.9)["tokens"] for t in (1.0, 2.0))
    answer = "as many" if hot == cool else "more" if hot > cool else "fewer"
    return answer, {"cool": cool, "hot": hot, "narrow": at(temperature=2.0, min_p=0.1)["tokens"]}


FIGURE = Figure(
    title="Heat it, then cut it: what is left to sample from",
    alt="Bars: the probabilities of twelve words to follow “the door was painted”, from red, .36, down to of. At temperature 1 and without a cut, both sets"
    " of bars are the same.",
    controls=[
        Slider("temperature", "temperature", [round(0.1 * i, 1) for i in range(1, 31)], start=1.0, form=".1f"),
        Slider("top_k", "top-k", list(range(1, 13)), start=12),
        Slider("top_p", "top-p", [round(0.05 * i, 2) for i in range(1, 21)], start=1.0, form=".2f"),
        Slider("min_p", "min-p", [round(0.02 * i, 2) for i in range(26)], start=0.0, form=".2f"),
    ],
    panels=[
        Panel(
            "“the door was painted …”",
            "next word",
            "probability",
            (-0.7, 11.7),
            (0, 1),
            [
                Mark("sampled", "what is sampled from", "bars", 0),
                Mark("model", "the model at temperature 1", "bars", 5, dashed=True),
            ],
            names=WORDS,
        ),
    ],
    readings=[
        Reading("tokens", "words left", 0),
        Reading("mass", "probability that they had"),
        Reading("entropy", "entropy in nats"),
        Reading("first", "probability of the first"),
    ],
    data=data,
    oracle=oracle,
    ask=Ask(
        "At temperature 1 a top-p of .9 leaves {cool} of the twelve words. How many does the same top-p leave at temperature 2?",
        ["fewer", "as many", "more"],
        predicted,
        "{hot}. Heat moves probability into the tail, so that more words are needed for nine tenths of it. Min-p at .1, whose bar falls with the"
        " likeliest word's probability, leaves {narrow}.",
    ),
)
