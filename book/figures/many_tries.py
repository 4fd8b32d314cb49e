"""One problem, 24 replies, some of them right: at least one, all, or a vote of k."""

import itertools
import math

from asking import Ask
from figures import Figure, Mark, Panel, Reading, Slider

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


ASKED = {"none": 0.0, "a tenth": 0.1, "four tenths": 0.4}


def fresh(rates, tries):
    """How often the vote of fresh replies is right: over all ways in which they can fall, the first answer being the right one."""
    won = 0.0
    for cuts in itertools.combinations(range(tries + len(rates) - 1), len(rates) - 1):
        counts = [b - a - 1 for a, b in itertools.pairwise((-1, *cuts, tries + len(rates) - 1))]
        if counts[0] == max(counts):
            ways = math.factorial(tries) / math.prod(map(math.factorial, counts))
            chance = ways * math.prod(rate**count for rate, count in zip(rates, counts, strict=True))
            won += chance / counts.count(counts[0])
    return won


def predicted(at):
    """What the end of the vote's curve says of a model, where all wrong replies agree."""
    right = FIGURE.start["correct"]
    vote = {kinds: at(kinds=kinds)["vote_curve"][1] for kinds in (1, 3)}
    again = {kinds: fresh([n / SAMPLES for n in votes(SAMPLES, right, kinds)], SAMPLES) for kinds in vote}
    answer = min(ASKED, key=lambda words: abs(ASKED[words] - again[1]))
    found = {"last": vote[1][-1], "alike": again[1], "last_spread": vote[3][-1], "spread": again[3]}
    found |= {"first": vote[3][0], "right": right, "wrong": SAMPLES - right}
    assert vote[1][-1] == 0 and vote[3][-1] == 1 and at()["some_curve"][1][-1] == 1 and at()["every_curve"][1][-1] == 0
    assert abs(at(correct=12, kinds=1)["vote_curve"][1][-1] - 0.5) < 1e-12  # a tie
    return answer, found


FIGURE = Figure(
    title="Some reply, every reply, or the vote: which is it that you report?",
    alt="Left, bars: of 24 replies {right} give the right answer, and the wrong ones are spread over three answers, five each. Right, curves over k: among all choices of k of these replies"
    " the share in which one is right rises from {first:.2f} to 1, that in which all are right falls to 0, and that in which the vote is right rises from {first:.2f} to {last_spread:.0f}.",
    controls=[
        Slider("correct", "right replies of 24", list(range(SAMPLES + 1)), start=9),
        Slider("kinds", "different wrong answers, at most", list(range(1, 9)), start=3),
        Slider("k", "of these 24, k are drawn", list(range(1, SAMPLES + 1)), start=8),
    ],
    panels=[
        Panel(
            "what these 24 replies say",
            "the right answer, and wrong ones by number",
            "replies",
            (-0.7, 8.7),
            (0, SAMPLES),
            [Mark("counts", "", "bars", 5)],
            names=["right", *"12345678"],
        ),
        Panel(
            "with k of these 24 replies",
            "k, drawn of these 24",
            "share of all choices",
            (1, SAMPLES),
            (0, 1),
            [
                Mark("some_curve", "some reply is right: pass@k", "line", 0, wide=True),
                Mark("every_curve", "every reply is right: pass^k", "line", 1),
                Mark("vote_curve", "the vote is right, a tie in part: maj@k", "line", 2, dashed=True),
                Mark("here", "", "points", 5),
            ],
        ),
    ],
    readings=[Reading("some", "pass@k"), Reading("vote", "maj@k"), Reading("every", "pass^k")],
    data=data,
    oracle=oracle,
    ask=Ask(
        "Of 24 replies {right} are right, and the {wrong} wrong ones agree, so that the vote of all 24 is wrong. The model is right at just this rate, and gives 24 fresh replies,"
        " and 24 more, and so on. In what share of these sets is the vote right?",
        {
            "none": "It is wrong with the 24 that are here, and these are all that there is to choose if k is 24. Of fresh ones there are sometimes more right ones, sometimes fewer.",
            "four tenths": "That is the rate of a single reply. A vote does not keep it: with 24 of them the rarer answer seldom wins.",
            "a tenth": "",
        },
        predicted,
        "The share is {alike:.2f}. Each curve is the share of all choices of k of *these* replies. At k = 24 there is one choice, and the vote's curve ends at {last:.0f}. Where the wrong replies are spread"
        " over three answers it ends at {last_spread:.0f}, and 24 fresh replies, whose wrong answers are as likely as one another, vote for the right one with a probability of only {spread:.2f}. Near k = 24 the curve is about these replies, and no longer about the model.",
        shows={"kinds": 1},
    ),
)
