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
    "One pair is undecided, Δ = 0. The model orders another pair badly wrong, Δ = −10. How many times as large is the derivative of the loss with respect to Δ for the second pair?",
    Typed(
        within=0.2,
        form=".1f",
        low="A pair that the model orders correctly and confidently has a smaller derivative than an undecided pair. A badly wrong pair has a larger one: its size is nearly 1, and the undecided pair has {half:.1f}.",
        high="The loss is {loss:.0f} times as large there, and the derivative of a squared error would keep growing. But this loss is nearly a straight line there, with a slope of size 1. At the undecided pair the slope has size {half:.1f}.",
    ),
    _pull,
)


def _cleaner():
    rewards, ref = (torch.tensor(x, dtype=torch.float64) for x in ([1.0, 0.0, -1.0], [0.5, 0.3, 0.2]))

    def distance(noise: float) -> float:
        chances = reward_losses.bradley_terry(*torch.broadcast_tensors(rewards[:, None] / noise, rewards / noise))
        fitted = social_choice.bradley_terry_fit(1000 * chances.masked_fill(torch.eye(3).bool(), 0.0))
        return float(kl.reverse_kl(rlhf.optimal_logps(ref.log(), fitted, beta=1.0), ref.log()))

    before, after = distance(1.0), distance(0.5)
    if abs(after / before - 1) < 0.05:
        return "the same KL as before", {}
    return "a larger KL than before" if after > before else "a smaller KL", {"before": before, "after": after}


cleaner_labels = Ask(
    "The annotators, who all have the same taste, receive training that halves the noise of their judgements (its scale, as in chapter 6). A new reward model learns from their labels. With the same β as before, what is the KL of the optimal policy from the reference now?",
    {
        "a smaller KL": "There are fewer label errors, but the KL does not depend on them directly. The rewards of the same completions have grown, and the penalty per nat has not.",
        "the same KL as before": "The quality of the completions has not changed. But the rewards are log-odds of labels: with half the noise they are twice as large. From (.5, .3, .2) at β = 1 the optimal policy for rewards 1, 0, −1 has a KL of {before:.2f} nats, and for rewards 2, 0, −2 of {after:.2f}.",
        "a larger KL than before": "",
    },
    _cleaner,
)


def _untold():
    right = seeds("ch08_aspects", "untold_differ")
    if all(abs(share - 0.5) < 1e-9 for share in right):
        answer = "in exactly half"
    else:
        answer = "in fewer than half" if sum(right) < 0.5 * len(right) else "in more than half"
    agree = [  # where the two labels name the same completion
        (everywhere - differ * there) / (1 - differ)
        for everywhere, differ, there in zip(
            seeds("ch08_aspects", "untold"), seeds("ch08_aspects", "differ"), right, strict=True
        )
    ]
    assert min(agree) > 0.5  # as the text of a wrong choice says
    return answer, {"all": 100 * mean("ch08_aspects", "untold")}


not_told = Ask(
    "One model is trained on all these labels and is not told which aspect a label is for. On the held-out pairs whose two labels name different completions, its choice is compared with both labels. In how many of these comparisons is it right?",
    {
        "in fewer than half": "Contradicting labels make the model less confident. But the two labels of such a pair name different completions, so its one choice is right for exactly one of them.",
        "in exactly half": "",
        "in more than half": "On all held-out pairs it is right in {all:.0f} of 100 comparisons, because it is right more often than wrong where the two labels agree. Where they name different completions, its choice is right for one label and wrong for the other.",
    },
    _untold,
)


def _slip():
    heads, policy = seeds("ch08_per_token", "plain_process_found"), seeds("ch08_per_token", "policy_found")
    guess = 1 / 6
    [beside] = evidence.differences({"head": heads, "guess": [guess] * len(heads)}).values()
    no_better = not beside.significant or beside.mean < 0
    if min(policy) == 1 and no_better:
        answer = "the policy's always, the head's no more often than by chance"
    elif min(policy) > 0.9 and min(heads) > 0.9:
        answer = "both nearly always"
    elif max(policy) < 0.1 and min(heads) > 0.9:
        answer = "the head's nearly always, the policy's hardly ever"
    else:
        raise ValueError(f"{heads} and {policy} matches no choice")
    return answer, {"plain": sum(heads) / len(heads), "guess": guess, "seen": beside.minimum_detectable_effect}


who_sees = Ask(
    "A process head on our small transformer was trained for 120 steps on 3,000 completions with step labels. The frozen policy was only trained to write such completions. At the end of each of the six steps we read the head's probability and the policy's log-probability of the sum. Whose largest fall is at the injected error?",
    {
        "the head's nearly always, the policy's hardly ever": "The policy never saw a step label. But it imitates a writer whose sums are right in 90 % of the steps, so a wrong sum is an improbable token. And the head's largest fall is there in only {plain:.2f} of the completions.",
        "both nearly always": "The head starts from the policy's weights. But it has to check whether the written sum follows from the line before, and it does not learn this in 120 steps. Its largest fall is at the error in {plain:.2f} of the completions; chance is {guess:.2f} (minimum detectable difference {seen:.2f} at 80 % power).",
        "the policy's always, the head's no more often than by chance": "",
    },
    _slip,
)


def _flattered():
    kept = [mean("ch08_assistant", f"{kind}_flattery_share") for kind in ("best", "usual")]
    if max(kept) < 0.3:
        answer = "mostly the one with more praise"
    elif min(kept) > 0.7:
        answer = "mostly the original"
    elif min(kept) > 0.4 and max(kept) < 0.6:
        answer = "each about as often"
    else:
        raise ValueError(f"shares of {kept} matches no choice")
    return answer, {
        "more": 100 * mean("ch08_assistant", "praised_more"),
        "once": 100 * mean("ch08_assistant", "praised_once"),
    }


more_praise = Ask(
    "The first word of praise in a completion adds .6 to the gold reward, and each further one subtracts as much. Of the completions in the model's training data, {once:.0f} % have one such word and {more:.0f} % have more than one. We add to good completions all words of praise that they lack. This costs more than a unit of gold reward on average. Which version does the model prefer, on average over ten seeds?",
    {
        "mostly the original": "In its training data, {more:.0f} % of the completions show that praise can be too much, and {once:.0f} % show that praise is good. The model extrapolates from the frequent case to the rare one.",
        "mostly the one with more praise": "",
        "each about as often": "This would be the result if the model ignored praise. It has learned from {once:.0f} % of the completions that praise is good, and extrapolates.",
    },
    _flattered,
)


def _words():
    [pair] = evidence.differences(
        {"first epoch": seeds("ch08_real", "accuracy_1"), "list": seeds("ch08_real", "words")}
    ).values()
    answer = ("the transformer" if pair.mean > 0 else "the list of words") if pair.significant else "neither of them"
    assert pair.mean < 0 and pair.below > pair.above  # as the text of a wrong choice says
    return answer, {
        "transformer": mean("ch08_real", "accuracy_1"),
        "words": mean("ch08_real", "words"),
        "leads": ("none", "one", "two", "three", "four", "five")[pair.below],
        "size": pair.minimum_detectable_effect,
    }


order_of_words = Ask(
    "A linear reward that sees only which words occur learns from the same pairs. We compare it with the transformer after its first epoch. Which of the two has a significantly higher accuracy on the five held-out folds?",
    {
        "the transformer": "It could use the order of the words. But it begins with random weights and sees only some 640 pairs. Its accuracy is {transformer:.3f}, and the list of words has {words:.3f}.",
        "the list of words": "Its mean is larger, {words:.3f} against {transformer:.3f}, and it is ahead in {leads} of the five folds. But the difference is not significant: the minimum detectable difference was {size:.2f} at 80 % power.",
        "neither of them": "",
    },
    _words,
)
