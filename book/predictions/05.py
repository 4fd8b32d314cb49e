"""What chapter 05 asks its readers to predict; see ``book/_ext/asking.py``."""

import torch
from asking import Ask, Typed

from minirlhf.data.toys import poem_critic
from minirlhf.equations import rlhf

POEM = poem_critic()
REF = POEM.reference.distribution()[0].detach()


def _further():
    golds = [
        float(rlhf.optimal_logps(REF.log(), POEM.rewards, beta=2.0 ** (-k / 4)).exp() @ POEM.gold)
        for k in range(-24, 25)
    ]
    first, last, peak = golds[0], golds[-1], max(golds)
    up, down = peak > first + 0.1, last < first - 0.1
    answer = {
        (True, True): "it rises, then falls below its initial value",
        (True, False): "it rises with the proxy reward",
        (False, True): "it falls from the beginning",
    }[up, down]
    return answer, {"first": first, "peak": peak, "last": last}


further = Ask(
    "The proxy reward of a completion about the poem is 1 for each “nice” and ½ for each “very”. A policy moves further and further from the initial model, and at each KL it maximises this reward. The gold reward measures how much users like the completions. What does the gold reward do?",
    {
        "it rises with the proxy reward": "The reward model is a fair summary of what it was shown, but no annotator has rated its favourite completion. The gold reward is 1 for one “nice”, and each repeated word costs 1. At the largest KL the expected gold reward is {last:.2f}.",
        "it rises, then falls below its initial value": "",
        "it falls from the beginning": "The first steps make “yes .” rarer and “very nice .” more frequent, and users want that too. The gold reward rises from {first:.2f} to {peak:.2f} before it falls.",
    },
    _further,
)


def _levelled():
    best = rlhf.optimal_logps(REF.log(), POEM.rewards, beta=0.5)
    left = POEM.rewards - 0.5 * (best - REF.log())
    if float(left.max() - left.min()) < 1e-9:
        return "none: all have the same difference"
    return (
        "those with the highest reward"
        if left.argmax() == POEM.rewards.argmax()
        else "those that are most probable under the reference"
    )


levelled = Ask(
    "At the optimum, subtract from each completion's reward β times its log-ratio to the reference. Which completions have the largest difference?",
    {
        "those with the highest reward": "Their reward is higher, but so is their penalty. The penalty grows with the reward at the same rate.",
        "those that are most probable under the reference": "The penalty depends on the ratio of the two probabilities, and not on the probability under the reference alone.",
        "none: all have the same difference": "",
    },
    _levelled,
)


def _cache():
    layers, heads, width, size = 32, 8, 128, 2
    token = 2 * layers * heads * width * size
    return token * 512 * 1_024 / 1e9, {"half": token * 512 * 1_024 / 2e9, "weights": 8 * size}


cache = Ask(
    "A model of 8 billion parameters has 32 layers with 8 key-value heads of width 128; its weights take {weights} GB. It samples 512 completions of 1,024 tokens at once. How many GB do their keys and values take?",
    Typed(
        within=1.15,
        factor=True,
        unit="GB",
        form=".0f",
        low="One token takes 131 thousand bytes, and there are half a million tokens. With the keys alone it would be {half:.0f} GB.",
        high="Each number takes 2 bytes, and a layer has 8 heads of 128 numbers, once for the keys and once for the values. With 32 layers that is 131 thousand bytes per token. The {weights} GB of the weights are not part of it.",
    ),
    _cache,
)

THREE = torch.tensor([0.5, 0.3, 0.2], dtype=torch.float64).log(), torch.tensor([1.0, 0.0, -1.0], dtype=torch.float64)


def _following():
    logps, rewards = THREE
    for _ in range(5):
        logps = rlhf.optimal_logps(logps, rewards, beta=1.0)
    # in one round the odds of the first completion to the last grow by the factor e^((1 − (−1))/β)
    beta = float((rewards[0] - rewards[2]) / ((logps[0] - logps[2]) - (THREE[0][0] - THREE[0][2])))
    assert torch.allclose(rlhf.optimal_logps(*THREE, beta=beta), logps)
    return beta


following = Ask(
    "After each round the policy is copied into the reference. Each of five rounds finds the optimum for β = 1. For which β does a single round, with the first reference, end at the same policy?",
    Typed(
        within=0.02,
        low="Each round adds the same r to the exponent, so after five rounds the exponent is 5r = r/.2. A sixth round would end at β = ⅙. If each round after the first doubled the exponent, β would be 1/16.",
        high="β = 1 keeps each round near the policy of the round before, not near the first reference. The terms r/β add up over the rounds, to 5r = r/.2. The values of β do not add up.",
    ),
    _following,
)
