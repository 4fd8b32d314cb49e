"""What chapter 05 asks its readers to predict; see ``book/_ext/asking.py``."""

import torch
from asking import Ask, Typed

from minirlhf.data.toys import poem_critic
from minirlhf.equations import rlhf

POEM = poem_critic()
REF = POEM.reference.distribution()[0].detach()


def _further():
    worth = [
        float(rlhf.optimal_logps(REF.log(), POEM.rewards, beta=2.0 ** (-k / 4)).exp() @ POEM.gold)
        for k in range(-24, 25)
    ]
    first, last, peak = worth[0], worth[-1], max(worth)
    up, down = peak > first + 0.1, last < first - 0.1
    answer = {
        (True, True): "more at first, in the end less than at the start",
        (True, False): "more and more, as the reward says",
        (False, True): "less and less, from the first step on",
    }[up, down]
    return answer, {"first": first, "peak": peak, "last": last}


further = Ask(
    "The reward of replies about the poem is 1 for each “nice” and ½ for each “very”. A policy may go further and further from the model, and at each distance it earns as much of this reward as it can: what are its replies worth to people?",
    {
        "more and more, as the reward says": "The reward sums up fairly what the reward model was shown, and no person has rated the reply that it likes best. To people one “nice” is worth 1, and each word that is said again costs 1: in the end the replies are worth {last:.2f}.",
        "more at first, in the end less than at the start": "",
        "less and less, from the first step on": "The first steps make “yes .” rarer and “very nice .” more frequent, and people want that too. The worth rises from {first:.2f} to {peak:.2f} before it falls.",
    },
    _further,
)


def _levelled():
    best = rlhf.optimal_logps(REF.log(), POEM.rewards, beta=0.5)
    left = POEM.rewards - 0.5 * (best - REF.log())
    if float(left.max() - left.min()) < 1e-9:
        return "none: they all have the same left"
    return (
        "those with the highest reward"
        if left.argmax() == POEM.rewards.argmax()
        else "those that the reference says most"
    )


levelled = Ask(
    "At the optimum, every reply pays β times its log-ratio to the reference out of its reward. Which replies have most left?",
    {
        "those with the highest reward": "They earn more and pay more: what is paid grows with the reward, and as fast.",
        "those that the reference says most": "What is paid depends on how much more often the policy says a reply than the reference, and not on how often the reference says it.",
        "none: they all have the same left": "",
    },
    _levelled,
)


def _cache():
    layers, heads, width, size = 32, 8, 128, 2
    token = 2 * layers * heads * width * size
    return token * 512 * 1_024 / 1e9, {"half": token * 512 * 1_024 / 2e9, "weights": 8 * size}


cache = Ask(
    "A model of 8 billion parameters has 32 layers with 8 key-value heads of width 128; its weights take {weights} GB. It writes 512 replies of 1,024 tokens at once. How many GB do their keys and values take?",
    Typed(
        within=1.15,
        factor=True,
        unit="GB",
        form=".0f",
        low="One token takes 131 thousand bytes, and there are half a million tokens. With the keys alone it would be {half:.0f} GB.",
        high="Each number takes 2 bytes, and a layer has 8 heads of 128 numbers, once for the keys and once for the values: that is 131 thousand bytes per token in all. The {weights} GB of the weights are not part of it.",
    ),
    _cache,
)

THREE = torch.tensor([0.5, 0.3, 0.2], dtype=torch.float64).log(), torch.tensor([1.0, 0.0, -1.0], dtype=torch.float64)


def _following():
    logps, rewards = THREE
    for _ in range(5):
        logps = rlhf.optimal_logps(logps, rewards, beta=1.0)
    # in one round the odds of the first reply to the last grow by the factor e^((1 − (−1))/β)
    beta = float((rewards[0] - rewards[2]) / ((logps[0] - logps[2]) - (THREE[0][0] - THREE[0][2])))
    assert torch.allclose(rlhf.optimal_logps(*THREE, beta=beta), logps)
    return beta


following = Ask(
    "After each round the policy is copied into the reference. Each of five rounds finds the optimum for β = 1. With which β would a single round, with the first reference, end at the same policy?",
    Typed(
        within=0.02,
        low="Each round adds r to the exponent, and no more than the round before: after five it is 5r = r/.2. A sixth round would end at β = ⅙; if each round after the first doubled the exponent, β would be 1/16.",
        high="β = 1 holds each round near the policy of the round before, and not near the first reference. What adds up over the rounds is r/β, to 5r = r/.2, and not the β.",
    ),
    _following,
)
