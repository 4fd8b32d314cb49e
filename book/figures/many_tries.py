"""One problem, 24 replies, some of them right: at least one, all, or a vote of k."""

from figures import Ask, Figure, Mark, Panel, Reading, Slider

SAMPLES = 24


def data():
    """How many replies there are; the rest is set."""
    return {"samples": SAMPLES}


def votes(samples, correct, kinds):
    """How many replies gave each answer, the right one first: the wrong ones are spread as evenly as they can be."""
    wrong = samples - correct
    return [correct, *(wrong // kinds + (i < wrong % kinds) for i in range(kinds))]


def oracle(data, state):
    """By the estimators over all choices of k."""
    import torch

    from minirlhf.equations import estimators

    samples, correct, k = data["samples"], state["correct"], state["k"]
    counts = torch.tensor(votes(samples, correct, state["kinds"]))
    ks = list(range(1, samples + 1))
    some = [float(estimators.pass_at_k(samples, correct, k=n)) for n in ks]
    every = [float(estimators.pass_hat_k(samples, correct, k=n)) for n in ks]
    vote = [estimators.maj_at_k(counts, correct=0, k=n) for n in ks]
    here = {"some": some[k - 1], "every": every[k - 1], "vote": vote[k - 1]}
    curves = {"some_curve": [ks, some], "every_curve": [ks, every], "vote_curve": [ks, vote]}
    return curves | here | {"here": [[k] * 3, list(here.values())], "counts": counts.tolist() + [0] * (9 - len(counts))}


ASKED = ["it rises towards 1", "it stays about where it is", "it falls towards 0"]


def predicted(at):
    """What becomes of the vote where all wrong replies agree."""
    alike, spread = at(kinds=1)["vote_curve"][1], at(kinds=3)["vote_curve"][1]
    answer = ASKED[0] if alike[-1] > 0.9 else ASKED[2] if alike[-1] < 0.1 else ASKED[1]
    need = next(c for c in range(SAMPLES + 1) if at(kinds=1, correct=c)["vote_curve"][1][-1] > 0.5)
    return answer, {"first": alike[0], "last": alike[-1], "spread": spread[-1], "need": need}


FIGURE = Figure(
    title="Some reply, every reply, or the vote: which is it that you report?",
    alt="Left, bars: of 24 replies nine give the right answer, and the wrong ones are spread over three answers, five each. Right, curves over k: the chance that"
    " one of k replies is right rises from .38 to 1, that all are right falls to 0, and the vote rises from .38 to 1.",
    controls=[
        Slider("correct", "right replies of 24", list(range(SAMPLES + 1)), start=9),
        Slider("kinds", "different wrong answers, at most", list(range(1, 9)), start=3),
        Slider("k", "replies that are used, k", list(range(1, SAMPLES + 1)), start=8),
    ],
    panels=[
        Panel(
            "what the 24 replies say",
            "the right answer, and wrong ones by number",
            "replies",
            (-0.7, 8.7),
            (0, SAMPLES),
            [Mark("counts", "", "bars", 5)],
            names=["right", *"12345678"],
        ),
        Panel(
            "with k of them",
            "k",
            "chance",
            (1, SAMPLES),
            (0, 1),
            [
                Mark("some_curve", "some reply is right: pass@k", "line", 0),
                Mark("vote_curve", "the vote is right: maj@k", "line", 2, dashed=True),
                Mark("every_curve", "every reply is right: pass^k", "line", 1),
                Mark("here", "", "points", 5),
            ],
        ),
    ],
    readings=[Reading("some", "pass@k"), Reading("vote", "maj@k"), Reading("every", "pass^k")],
    data=data,
    oracle=oracle,
    ask=Ask(
        "Nine of 24 replies are right, and now all 15 wrong ones agree. What becomes of the vote as k grows?",
        ASKED,
        predicted,
        "It falls from {first:.2f} to {last:.2f}: a vote finds what is said most. Spread over three answers the same wrong replies leave it {spread:.2f} of all 24. Where they"
        " agree it needs {need} right ones.",
    ),
)
