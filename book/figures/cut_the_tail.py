"""One next token: what temperature, top-k, top-p and min-p leave of twelve words and a tail of 300 others."""

from asking import Ask
from figures import Choice, Figure, Mark, Panel, Reading, Slider

WORDS = ["red", "blue", "grey", "tan", "dark", "big", "wet", "near", "late", "ten", "soup", "of"]
ORDERS = ["top-k, top-p, min-p", "min-p, top-k, top-p"]
TAIL = [round(-4 - 0.005 * i, 3) for i in range(300)]  # 300 other words, each of them unlikely
LOGITS = [3.1, 2.83, 2.37, 1.62, 1.09, 0.71, 0.13, -0.37, -1.04, -1.71, -2.46, -3.02]


def data():
    """A made-up model behind "the door was painted": the logits of all words, the most probable first; the first twelve are named."""
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
    """Return the answer for two rules in the other order, with the counts that the explanation prints."""
    hot, both = 2.0, {"top_p": 0.9, "min_p": 0.1}
    left = {order: at(temperature=hot, order=order, **both)["tokens"] for order in ORDERS}
    alone = {name: at(temperature=hot, **{name: value})["tokens"] for name, value in both.items()}
    for t in FIGURE.controls[0].values:  # the claims about the order, and the page's claims about both rules
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
    title="Temperature, then truncation: the tokens that can be sampled",
    alt="Bars: the probabilities of twelve words to follow “the door was painted”, from “red”, {red:.2f}, down to “of”, and one bar for 300 other words, which have {tail:.2f} together."
    " At temperature 1 and without truncation, both sets of bars are the same.",
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
                Mark("sampled", "sampling distribution", "bars", 0),
                Mark("model", "the model at temperature 1", "bars", 5, dashed=True),
            ],
            names=[*WORDS, "others"],
        ),
    ],
    readings=[
        Reading("tokens", "words left", 0),
        Reading("mass", "their probability at this temperature, before truncation"),
        Reading("entropy", "entropy in nats"),
        Reading("first", "probability of the first"),
    ],
    data=data,
    oracle=oracle,
    ask=Ask(
        "At temperature 2, top-p is .9 and min-p is .1. If top-p comes first and min-p second, {first} words are left. How many are left if min-p comes first?",
        {
            ASKED[
                2
            ]: "Min-p first does remove the whole tail. But no word comes back: top-p then keeps 90 % of the remaining probability, and that cannot be more words.",
            ASKED[0]: "",
            ASKED[
                1
            ]: "That would be so if both rules compared each word with the most probable one, as min-p does. Top-p compares sums, and 90 % of the remaining probability is less than 90 % of all.",
        },
        predicted,
        "Fewer: {second}. At this temperature the 300 others have {hot:.2f} together. So top-p, first or alone, leaves {top} words, and min-p then reduces them to {first}. If min-p comes first, top-p"
        " keeps 90 % of the remaining probability only. The number can never be larger: both rules keep the most probable words, and 90 % of a part ends no later than 90 % of all.",
        shows={"temperature": 2.0, "top_p": 0.9, "min_p": 0.1, "order": ORDERS[1]},
    ),
)
