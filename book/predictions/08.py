"""What chapter 08 asks its readers to predict; see ``book/_ext/asking.py``."""

import torch
from asking import Ask, Typed, mean, seeds

from minirlhf.equations import kl, reward_losses, rlhf, social_choice
from minirlhf_course import evidence


def _pull():
    gaps = torch.tensor([-10.0, 0.0], dtype=torch.float64, requires_grad=True)
    losses = reward_losses.bradley_terry_loss(gaps, torch.zeros_like(gaps))
    wrong, undecided = torch.autograd.grad(losses.sum(), gaps)[0].tolist()
    return wrong / undecided, {"loss": (losses[0] / losses[1]).item(), "half": -undecided}


badly_wrong = Ask(
    "One pair is undecided, Δ = 0; another one the model has badly wrong, Δ = −10. How many times as hard does the second pull at its Δ, by the derivative of this loss?",
    Typed(
        within=0.2,
        form=".1f",
        low="A pair that is right and sure pulls less than an undecided one. One that is badly wrong pulls more: with a force of nearly 1, where the undecided pair has {half:.1f}.",
        high="The loss is {loss:.0f} times as large there, and a squared error would pull the harder the further it is. But the loss grows along a straight line there, and the steepness of the line is 1; where the pair is undecided, it is {half:.1f}.",
    ),
    _pull,
)


def _cleaner():
    worth, ref = (torch.tensor(x, dtype=torch.float64) for x in ([1.0, 0.0, -1.0], [0.5, 0.3, 0.2]))

    def distance(noise: float) -> float:
        chances = reward_losses.bradley_terry(*torch.broadcast_tensors(worth[:, None] / noise, worth / noise))
        fitted = social_choice.bradley_terry_fit(1000 * chances.masked_fill(torch.eye(3).bool(), 0.0))
        return float(kl.reverse_kl(rlhf.optimal_logps(ref.log(), fitted, beta=1.0), ref.log()))

    before, after = distance(1.0), distance(0.5)
    if abs(after / before - 1) < 0.05:
        return "as far as before", {}
    return "further than before" if after > before else "less far", {"before": before, "after": after}


cleaner_labels = Ask(
    "The annotators, who all have the same taste, are trained: what they feel has half the noise (its scale, as in chapter 6), and a new reward model learns from their labels. With the β of before, how far from the reference is the best policy now?",
    {
        "less far": "There are fewer errors to be exploited, but the distance does not know that. What is paid for the same replies has grown, and what is charged for a nat has not.",
        "as far as before": "The replies are worth what they were. But the rewards are log-odds of labels: with half the noise they are twice as large. From (.5, .3, .2) at β = 1 the best policy for rewards 1, 0, −1 goes {before:.2f} nats far, and for rewards 2, 0, −2 {after:.2f}.",
        "further than before": "",
    },
    _cleaner,
)


def _untold():
    right = seeds("ch08_aspects", "untold_differ")
    if all(abs(share - 0.5) < 1e-9 for share in right):
        answer = "in exactly half"
    else:
        answer = "in fewer than half" if sum(right) < 0.5 * len(right) else "in more than half"
    agree = [  # where the two labels name the same reply
        (everywhere - differ * there) / (1 - differ)
        for everywhere, differ, there in zip(
            seeds("ch08_aspects", "untold"), seeds("ch08_aspects", "differ"), right, strict=True
        )
    ]
    assert min(agree) > 0.5  # as a lesson says
    return answer, {"all": 100 * mean("ch08_aspects", "untold")}


not_told = Ask(
    "One model is trained on all these labels and is not told which aspect a label is for. On the held-out pairs whose two labels name different replies its choice is held against both labels. In how many of these comparisons is it right?",
    {
        "in fewer than half": "Labels that contradict each other make the model unsure. But the two labels of such a pair name different replies, so its one choice is right for exactly one of them.",
        "in exactly half": "",
        "in more than half": "On all held-out pairs it is, in {all:.0f} of 100 comparisons, since it is right more often than wrong where the two labels agree. Where they name different replies, its choice is right for one and wrong for the other.",
    },
    _untold,
)


def _slip():
    heads, policy = seeds("ch08_per_token", "plain_process_found"), seeds("ch08_per_token", "policy_found")
    guess = 1 / 6
    [beside] = evidence.differences({"head": heads, "guess": [guess] * len(heads)}).values()
    no_better = not beside.significant or beside.mean < 0
    if min(policy) == 1 and no_better:
        answer = "the policy's always, the head's no more often than by a guess"
    elif min(policy) > 0.9 and min(heads) > 0.9:
        answer = "both nearly always"
    elif max(policy) < 0.1 and min(heads) > 0.9:
        answer = "the head's nearly always, the policy's hardly ever"
    else:
        raise ValueError(f"{heads} and {policy} are what no choice says")
    return answer, {"plain": sum(heads) / len(heads), "guess": guess, "seen": beside.minimum_detectable_effect}


who_sees = Ask(
    "A process head on our small transformer has learned for 120 steps from 3,000 replies which steps are valid; the frozen policy has only learned to write such replies. At the end of each of the six steps we read the head's probability and the policy's log-probability of the sum. Whose largest fall lies at the planted slip?",
    {
        "the head's nearly always, the policy's hardly ever": "Nobody has told the policy what a slip is. But it imitates a writer who adds rightly nine times in ten, so a wrong sum is a token that it finds unlikely. And the head's largest fall lies there in {plain:.2f} of the replies only.",
        "both nearly always": "The head stands on the policy's weights. But it has to find out whether the sum that was written follows from the line before, and that it does not learn in 120 steps: its largest fall lies at the slip in {plain:.2f} of the replies, where a guess has {guess:.2f} ({seen:.2f} more would have been found in four of five such studies).",
        "the policy's always, the head's no more often than by a guess": "",
    },
    _slip,
)


def _flattered():
    kept = [mean("ch08_assistant", f"{kind}_flattery_share") for kind in ("best", "usual")]
    if max(kept) < 0.3:
        answer = "the one with more praise, mostly"
    elif min(kept) > 0.7:
        answer = "the reply as it is, mostly"
    elif min(kept) > 0.4 and max(kept) < 0.6:
        answer = "each about as often"
    else:
        raise ValueError(f"shares of {kept} are what no choice says")
    return answer, {
        "more": 100 * mean("ch08_assistant", "praised_more"),
        "once": 100 * mean("ch08_assistant", "praised_once"),
    }


more_praise = Ask(
    "The first word of praise in a reply is worth .6, and each further one costs as much; of the replies that the model learned from {once:.0f} % have one word, and {more:.0f} % have more than one. Good replies get all the words of praise that they lack, and lose over a unit of gold by them on average. Which version does the model prefer, on average of ten seeds?",
    {
        "the reply as it is, mostly": "It has learned from replies of which {more:.0f} % show that praise can be too much, and {once:.0f} % that praise is good. What it has hardly ever seen it takes from what it has seen.",
        "the one with more praise, mostly": "",
        "each about as often": "So it would be if praise were nothing to the model. It has learned that praise is good, from {once:.0f} % of the replies, and goes on from there.",
    },
    _flattered,
)


def _words():
    [pair] = evidence.differences(
        {"first epoch": seeds("ch08_real", "accuracy_1"), "list": seeds("ch08_real", "words")}
    ).values()
    answer = ("the transformer" if pair.mean > 0 else "the list of words") if pair.significant else "neither of them"
    assert pair.mean < 0 and pair.below > pair.above  # as a lesson says
    return answer, {
        "transformer": mean("ch08_real", "accuracy_1"),
        "words": mean("ch08_real", "words"),
        "leads": ("none", "one", "two", "three", "four", "five")[pair.below],
        "size": pair.minimum_detectable_effect,
    }


order_of_words = Ask(
    "A linear reward, which sees only what words occur, learns from the same pairs. We hold it beside the transformer after its first epoch. Which of the two is right more often on the five held-out parts, by more than chance explains?",
    {
        "the transformer": "It could use the order of the words. But it begins with random weights, and what it knows of language it has from some 640 pairs: {transformer:.3f}, where the list of words has {words:.3f}.",
        "the list of words": "Its mean is the larger one, {words:.3f} and {transformer:.3f}, and it leads in {leads} of the five parts. But so it may come by chance: only a lead of {size:.2f} would have been found in four of five such studies.",
        "neither of them": "",
    },
    _words,
)
