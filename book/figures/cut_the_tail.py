"""One next token: what temperature, top-k, top-p and min-p leave of twelve words and a tail of 300 others."""

from asking import Ask
from figures import Choice, Figure, Mark, Panel, Reading, Slider

WORDS = ["red", "blue", "grey", "tan", "dark", "big", "wet", "near", "late", "ten", "soup", "of"]
ORDERS = ["top-k, top-p, min-p", "min-p, top-k, top-p"]
TAIL = [round(-4 - 0.005 * i, 3) for i in range(300)]  # 300 other words, each of them unlikely
LOGITS = [3.1, 2.83, 2.37, 1.62, 1.09, 0.71, 0.13, -0.37, -1.04, -1.71, -2.46, -3.02]


def data():
    """A made-up model behind "the door was painted": the logits of all words, the likeliest first; of twelve the name is told."""
    return {"named": len(WORDS), "logits": LOGITS + TAIL}


def oracle(data, state):
    """By the library's functions, in either of the orders in which samplers apply them, the temperature first."""
    import torch

    from minirlhf.core import exact
    from minirlhf.equations import language

    logits = torch.tensor(data["logits"], dtype=torch.float64)
    heated = logits / state["temperature"]
    cuts = {
        "top-k": lambda kept: language.top_k_logits(kept, top_k=state["top_k"]),
        "top-p": lambda kept: language.top_p_logits(kept, top_p=state["top_p"]),
        "min-p": lambda kept: language.min_p_logits(kept, min_p=state["min_p"]),
    }
    cut = heated
    for rule in state["order"].split(", "):
        cut = cuts[rule](cut)
    probs, model, named = cut.softmax(-1), logits.softmax(-1), data["named"]
    return {
        "model": [*model[:named].tolist(), float(model[named:].sum())],
        "sampled": [*probs[:named].tolist(), float(probs[named:].sum())],
        "tokens": int((probs > 0).sum()),
        "mass": float(language.retained_mass(heated, cut)),
        "entropy": float(exact.entropy(probs[probs > 0])),
        "first": float(probs[0]),
    }


ASKED = ["fewer", "as many", "more"]


def predicted(at):
    """What becomes of two cuts where the other one comes first."""
    hot, both = 2.0, {"top_p": 0.9, "min_p": 0.1}
    left = {order: at(temperature=hot, order=order, **both)["tokens"] for order in ORDERS}
    alone = {name: at(temperature=hot, **{name: value})["tokens"] for name, value in both.items()}
    for t in FIGURE.controls[0].values:  # what is told of the order, and by the page of its two rules
        before, after = (at(temperature=t, order=order, **both)["tokens"] for order in ORDERS)
        top, low = (at(temperature=t, **{name: value})["tokens"] for name, value in both.items())
        assert after <= before == min(top, low)
        if t >= 1.5:  # top-p lets the tail in, min-p does not
            assert top - len(WORDS) > 100 and low <= len(WORDS)
    first, second = (left[order] for order in ORDERS)
    start = at()
    found = {"first": first, "second": second, "top": alone["top_p"]}
    found |= {"red": start["first"], "tail": start["model"][-1], "hot": at(temperature=hot)["sampled"][-1]}
    assert first == alone["min_p"] < alone["top_p"]
    return ASKED[0 if second < first else 1 if second == first else 2], found


FIGURE = Figure(
    title="Heat it, then cut it: what is left to sample from",
    alt="Bars: the probabilities of twelve words to follow “the door was painted”, from “red”, {red:.2f}, down to “of”, and one bar for 300 other words, which have {tail:.2f} together."
    " At temperature 1 and without a cut, both sets of bars are the same.",
    controls=[
        Slider("temperature", "temperature", [round(0.1 * i, 1) for i in range(1, 31)], start=1.0, form=".1f"),
        Slider("top_k", "top-k", [*range(1, 13), 20, 50, 100, 200, 312], start=312),
        Slider("top_p", "top-p", [round(0.05 * i, 2) for i in range(1, 21)], start=1.0, form=".2f"),
        Slider("min_p", "min-p", [round(0.02 * i, 2) for i in range(26)], start=0.0, form=".2f"),
        Choice("order", "order, after the temperature", ORDERS, start=ORDERS[0]),
    ],
    panels=[
        Panel(
            "“the door was painted …”",
            "next word; others: 300 of them together",
            "probability",
            (-0.7, 12.7),
            (0, 1),
            [
                Mark("sampled", "what is sampled from", "bars", 0),
                Mark("model", "the model at temperature 1", "bars", 5, dashed=True),
            ],
            names=[*WORDS, "others"],
        ),
    ],
    readings=[
        Reading("tokens", "words left", 0),
        Reading("mass", "probability that they had at this temperature, before the cut"),
        Reading("entropy", "entropy in nats"),
        Reading("first", "probability of the first"),
    ],
    data=data,
    oracle=oracle,
    ask=Ask(
        "At temperature 2 both top-p at .9 and min-p at .1 are set. Top-p cuts first, then min-p, and {first} words are left. If min-p cuts first, how many are left?",
        {
            ASKED[
                2
            ]: "Min-p first does take the whole tail away. But nothing comes back by that: top-p then takes nine tenths of what min-p has left, and that cannot be more words.",
            ASKED[0]: "",
            ASKED[
                1
            ]: "So it would be if both rules held each word against the likeliest one, as min-p does. Top-p looks at sums, and nine tenths of what min-p has left are less than nine tenths of all.",
        },
        predicted,
        "Fewer: {second}. Heat has given the 300 others {hot:.2f} together, so that top-p, first or alone, leaves {top} words, and min-p cuts them to {first}. If min-p comes first, what it leaves is all that"
        " there is, and top-p takes nine tenths of that. It can never be more: both rules keep the likeliest words, and nine tenths of a part end no later than nine tenths of all.",
        shows={"temperature": 2.0, "top_p": 0.9, "min_p": 0.1, "order": ORDERS[1]},
    ),
)
