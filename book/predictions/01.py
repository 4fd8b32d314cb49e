"""What chapter 01 asks its readers to predict; see ``book/_ext/asking.py``."""

import torch
from asking import Ask, Typed, compared, mean, seeds

from minirlhf_course import evidence
from minirlhf_course.chapters.ch01_introduction.equations import compounding_mistakes, imitation_logit_gradient


def _not_this():
    start = torch.tensor([0.45, 0.25, 0.15, 0.1, 0.05], dtype=torch.float64)
    logits, bad = start.log(), torch.tensor(4)
    for _ in range(1_000):
        logits = logits - 0.1 * imitation_logit_gradient(logits, bad)
    left = logits.softmax(-1)
    shared = start[:4] / start[:4].sum()
    if torch.allclose(left[:4], shared, atol=0.02):
        return "to all others, in proportion to their probabilities"
    return (
        "to the most probable completion"
        if left[0] > 0.95
        else "to the other rare completions"
        if left[3] > left[0]
        else "?"
    )


not_this = Ask(
    "“Not this”: the loss is +log π(y) for a bad completion y, which is already rare. Plain gradient steps on the logits are repeated many times. Where does nearly all of the probability go?",
    {
        "to all others, in proportion to their probabilities": "This would be the result of removing the completion and renormalising. A step on the logits raises each other logit by its own probability, so the others gain by different factors.",
        "to the other rare completions": "Other rare completions gain when a rare one is imitated. Avoidance moves the logits in the opposite direction.",
        "to the most probable completion": "",
    },
    _not_this,
)


def _losers():
    moved = seeds("ch01", "losers_winner_fell")
    return "it falls" if max(moved) < -1 else "it rises" if min(moved) > 1 else "it hardly changes"


losers_alone = Ask(
    "A model is trained for 25 steps to lower the log-probability of the rejected completions, and nothing else. What happens to the log-probability of the chosen completions of pairs that it has not seen?",
    {
        "it rises": "In a table of logits it might rise at first: the most probable words lose, all others gain, and the rejected completions, which the model wrote itself, contain many probable words. But the chosen completions consist of the same words and fall with them. Once a word has become rare, the probability that it loses goes to the few most probable words only.",
        "it hardly changes": "In a table of logits, a completion in no pair moves only because all probabilities sum to one. In a network, completions also share weights, and chosen and rejected completions consist of the same words.",
        "it falls": "",
    },
    _losers,
)


def _without_imitation():
    found = {
        "gold": mean("ch01", "dpo_base_gold"),
        "told": 100 * mean("ch01", "dpo_base_accuracy"),
        "told_sft": 100 * mean("ch01", "dpo_sft_accuracy"),
    }
    if compared("ch01", "dpo_base_gold", "both_gold") != "smaller":
        return "the same as after SFT and DPO", found
    rewards = seeds("ch01", "dpo_base_gold")
    between = "above 0, but lower than after SFT and DPO"
    return "below 0" if max(rewards) < 0 else between if min(rewards) > 0 else "?", found


dpo_without_imitation = Ask(
    "DPO on these pairs starts from the base model, without SFT. Afterwards the chosen completion has gained more log-probability than the rejected one in {told:.0f} % of unseen pairs;"
    " after SFT and DPO the figure is {told_sft:.0f} %. What is the mean gold reward of the completions of the run without SFT? (An empty completion has 0.)",
    {
        "the same as after SFT and DPO": "Ordering two given answers is one skill, and writing one of them is another.",
        "above 0, but lower than after SFT and DPO": "The pairs contain answers. They carry no information for or against the texts that the base model writes. The mean gold reward of its completions is {gold:.1f}.",
        "below 0": "",
    },
    _without_imitation,
)


def _lost():
    mistakes = float(compounding_mistakes(torch.tensor(0.01, dtype=torch.float64), steps=200))
    return mistakes, {"right": 200 - mistakes, "first": 1 / 0.01}


lost_copy = Ask(
    "A copy errs with probability .01 at each step on the path, and after its first error at every step. How many errors does it make in 200 steps, on average?",
    Typed(
        within=10,
        unit="errors",
        form=".1f",
        low="If the copy were put back on the path each time, it would make 2. Without an end, its first error would come at step {first:.0f} on average. But 200 − {first:.0f} is too few: for a copy whose first error would come after step 200, this difference is negative, and its number of errors is 0.",
        high="εT²/2 would be 200, an error at every step. That formula is for small εT, and here εT is 2. The copy is still on the path for {right:.0f} steps on average.",
    ),
    _lost,
)


def _half():
    both, *alone = (seeds("ch01", f"merged_{share}_gold") for share in (0.5, 0, 1))
    line = [(one + other) / 2 for one, other in zip(*alone, strict=True)]
    [pair] = evidence.differences({"merged": both, "line": line}).values()
    answer = (
        "the same as the mean"
        if not pair.significant
        else "higher than the mean"
        if pair.mean > 0
        else "lower than the mean"
    )
    return answer, {"merged": sum(both) / len(both), "line": sum(line) / len(line)}


half_and_half = Ask(
    "From one initial model, one specialist is trained for the content of its completions and another for their politeness. Their weights are averaged, half and half."
    " How does the gold reward of the merged model compare with the mean of the two specialists’ gold rewards?",
    {
        "lower than the mean": "It can happen, also with one initial model: completions that either model finds impossible stay improbable, so if the two prefer different completions, those are lost. But a completion can have content and be polite, so these two preferences do not exclude each other.",
        "the same as the mean": "So it would be if each completion were written by one of the two, chosen with equal probability. Compared with such a mixture, the"
        " merged model favours completions on which the two agree, and this helps if those are good in both respects. Its gold reward is {merged:.2f}, and the mean of the two is {line:.2f}.",
        "higher than the mean": "",
    },
    _half,
)
