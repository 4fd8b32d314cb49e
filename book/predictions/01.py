"""What chapter 01 asks its readers to predict; see ``book/_ext/asking.py``."""

import torch
from asking import Ask, Typed, compared, mean, seeds

from minirlhf.equations.signals import compounding_mistakes, imitation_logit_gradient
from minirlhf_course import evidence


def _not_this():
    start = torch.tensor([0.45, 0.25, 0.15, 0.1, 0.05], dtype=torch.float64)
    logits, bad = start.log(), torch.tensor(4)
    for _ in range(1_000):
        logits = logits - 0.1 * imitation_logit_gradient(logits, bad)
    left = logits.softmax(-1)
    shared = start[:4] / start[:4].sum()
    if torch.allclose(left[:4], shared, atol=0.02):
        return "to all others, in proportion to what they had"
    return "to the most probable reply" if left[0] > 0.95 else "to the other rare replies" if left[3] > left[0] else "?"


not_this = Ask(
    "“Not this”: the loss is +log π(y) for a bad reply y, which is rare as it is. Plain gradient steps on the logits are repeated many times. Where does nearly all of the probability go?",
    {
        "to all others, in proportion to what they had": "That is what one gets by striking the reply out and dividing by the rest. A step on the logits raises each other logit by its own probability, so they gain by different factors.",
        "to the other rare replies": "Other rare replies gain when a rare one is imitated. To avoid one is the opposite push.",
        "to the most probable reply": "",
    },
    _not_this,
)


def _losers():
    moved = seeds("ch01", "losers_winner_fell")
    return "it falls" if max(moved) < -1 else "it rises" if min(moved) > 1 else "it hardly changes"


losers_alone = Ask(
    "Twenty-five steps push down the losers, and nothing else. What happens meanwhile to the log-probability of winners, in pairs that the model has not seen?",
    {
        "it rises": "In a table it might, at first: what the most probable word loses goes to all others, and the losers, which the model wrote itself, have many such words. But winners are made of the same words and fall with them. And once a loser's word has become rare, what it loses flows to the few most probable words alone.",
        "it hardly changes": "In a table a reply that nobody names moves only because all share one sum. In a network replies share weights besides, and winners and losers are made of the same words.",
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
        return "as much as those of that model", found
    worth = seeds("ch01", "dpo_base_gold")
    between = "more than silence, but less than those of that model"
    return "less than silence" if max(worth) < 0 else between if min(worth) > 0 else "?", found


dpo_without_imitation = Ask(
    "DPO on these pairs starts at the base model, which has imitated nobody. (An empty reply is worth 0.) It has then raised the winner more than the loser in {told:.0f} % of unseen pairs;"
    " a model that imitated before DPO has done so in {told_sft:.0f} %. What are the base’s own replies worth now?",
    {
        "as much as those of that model": "To raise the better of two given answers more than the other is one thing, and to say either of them is another.",
        "more than silence, but less than those of that model": "The pairs hold answers, and they say nothing for or against the texts that the base writes. Its replies are worth {gold:.1f}.",
        "less than silence": "",
    },
    _without_imitation,
)


def _lost():
    mistakes = float(compounding_mistakes(torch.tensor(0.01, dtype=torch.float64), steps=200))
    return mistakes, {"right": 200 - mistakes, "first": 1 / 0.01}


lost_copy = Ask(
    "A copy errs with probability .01 at each step on the path, and after its first mistake at every step. How many mistakes does it make in 200 steps, on average?",
    Typed(
        within=10,
        unit="mistakes",
        form=".1f",
        low="Put back on the path each time, the copy would make 2. On an endless way its first mistake would come at step {first:.0f} on average. But 200 − {first:.0f} is too few: for a copy whose first mistake would come after step 200, that difference is below 0, and the number of its mistakes is 0.",
        high="εT²/2 would be 200, mistakes all the way: that formula is for small εT, and here εT is 2. For {right:.0f} steps, on average, the copy is still on the path.",
    ),
    _lost,
)


def _half():
    both, *alone = (seeds("ch01", f"merged_{share}_gold") for share in (0.5, 0, 1))
    line = [(one + other) / 2 for one, other in zip(*alone, strict=True)]
    [pair] = evidence.differences({"merged": both, "line": line}).values()
    answer = (
        "as much as the mean"
        if not pair.significant
        else "more than the mean"
        if pair.mean > 0
        else "less than the mean"
    )
    return answer, {"merged": sum(both) / len(both), "line": sum(line) / len(line)}


half_and_half = Ask(
    "From one start, one model is trained for the content of its replies and another for their manners. Their weights are averaged, half and half."
    " How much is the merger worth, by the whole true reward, compared with the mean of what the two are worth?",
    {
        "less than the mean": "It can happen, also with one start: what either model finds impossible stays improbable, and if the two insist on different replies, those are lost. But a reply can have content and manners at once, so what one of these models insists on need not exclude what the other does.",
        "as much as the mean": "So it would be if each reply were written by one of the two, with equal chances. Compared with such a mixture, the"
        " merger favours replies about which the two agree, and it gains by that if these are good in both ways. It is worth {merged:.2f}, and the mean of the two is {line:.2f}.",
        "more than the mean": "",
    },
    _half,
)
