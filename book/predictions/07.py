"""What chapter 07 asks its readers to predict; see ``book/_ext/asking.py``."""

import torch
from asking import Ask, Typed, compared, mean

from minirlhf.equations import comparisons
from minirlhf_course.chapters.ch07_preference_data import equations as ch07


def _number(x: float) -> torch.Tensor:
    return torch.tensor(x, dtype=torch.float64)


def _readings():
    [found] = {compared("ch07", rating, "comparisons") for rating in ("mean_rating", "centred_rating")}
    answer = {"larger": "the ten ratings", "smaller": "the five comparisons", "alike": "both are equal"}[found]
    return answer, {n: mean("ch07", n) for n in ("mean_rating", "comparisons")}


ratings_or_pairs = Ask(
    "Forty annotators read ten of twenty completions each. Each reading has noise, with the same standard deviation as the quality of the completions, and each annotator's scale has an offset of the same size. Each gives ten ratings from 1 to 5, or five comparisons of the same ten completions. Which labels recover the order of the twenty better?",
    {
        "the five comparisons": "A comparison does not depend on the annotator's offset. But five comparisons are five bits about ten readings, and ten ratings are ten numbers. With this much noise the second effect is larger: Kendall's τ with the true order is {comparisons:.2f} with comparisons and {mean_rating:.2f} with ratings.",
        "the ten ratings": "",
        "both are equal": "The offsets make the ratings worse. But about twenty annotators have read each completion, and the mean of their offsets is much smaller than a single one. Kendall's τ is {mean_rating:.2f} with ratings and {comparisons:.2f} with comparisons.",
    },
    _readings,
)


def _scale():
    cuts = torch.arange(-3, 4, dtype=torch.float64)

    def gain(gap: float) -> float:
        levels, two = (comparisons.graded_information(_number(gap), c) for c in (cuts, 0 * cuts[:1]))
        return float(levels / two)

    close, easy = gain(0.0), gain(4.0)
    if abs(close / easy - 1) < 0.1:
        return "by about the same factor for both", {}
    return "to a close pair" if close > easy else "to an easy pair", {"close": close, "easy": easy}


finer_scale = Ask(
    "A scale has eight levels, with thresholds one nat apart, instead of two. For which pairs does the finer scale multiply the information of a label more?",
    {
        "to a close pair": "For a close pair two levels are most informative, and the limit of a continuous scale is 4/3 of their information. Eight levels give {close:.2f} times as much.",
        "to an easy pair": "",
        "by about the same factor for both": "For an easy pair, two levels give nearly always the same label, so it contains almost no information. “Much better” or “a little better” still does: eight levels give {easy:.0f} times as much information at a gap of 4, and {close:.2f} times as much at 0.",
    },
    _scale,
)


def _flipped():
    clean, turned = (float(ch07.flipped_information(_number(0.0), flip=flip)) for flip in (0.0, 0.2))
    left = (turned / clean) ** 0.5
    return clean / turned, {"fifth": 1 / 0.8, "once": 1 / left, "left": left}


flipped_fifth = Ask(
    "A random fifth of the labels is flipped. By which factor must the number of labels grow, to have the same information about two equally good completions?",
    Typed(
        within=0.15,
        form=".1f",
        low="A factor of {fifth:.2f} would replace a fifth that is missing, and {once:.2f} would replace two fifths. But a flipped label points the wrong way: the mean effect of a label is {left:.1f} of its value without flips, and the information is proportional to the square.",
        high="Each flipped label cancels a right one, so the mean effect of a label is {left:.1f} of its value without flips. The information is proportional to the square of this, not to a higher power.",
    ),
    _flipped,
)


def _teams():
    teams = {
        "five equal ones, .75": "alike",
        "five different ones, .95 to .5": "mixed",
        "one of the five mostly wrong, .2": "contrarian",
    }
    gain = {words: mean("ch07", f"{team}_model") - mean("ch07", f"{team}_majority") for words, team in teams.items()}
    found = {team: gain[words] for words, team in teams.items()}
    return max(gain, key=gain.__getitem__), found


who_gains = Ask(
    "Three teams of five annotators label the same 500 items. Their accuracies are .75 each; .95, .8, .65, .55, .5; and .92, .92, .5, .5, .2. In which team is the gain of Dawid and Skene's model over the majority vote largest?",
    {
        "five equal ones, .75": "The majority vote of this team is the most accurate of the three, but annotators with equal accuracies get equal weights. With 500 items the model gives nearly the same labels as the majority.",
        "five different ones, .95 to .5": "There the gain is {mixed:.2f}. But no annotator of this team is below chance, and a vote near chance harms the majority less than a vote that is mostly wrong.",
        "one of the five mostly wrong, .2": "",
    },
    _teams,
)


def _noticed():
    information = _number(100 / 4)
    share = torch.sigmoid(comparisons.smallest_effect(information))

    def power(at: float) -> float:
        return 100 * float(comparisons.detection_power(_number(at).logit(), information))

    return 100 * float(share), {"few": power(0.6), "many": power(0.7)}


noticed = Ask(
    "In each of 100 close pairs, one completion has more of a trait than the other. With what probability must the annotator prefer the one with more, so that a test at the level 5 % has a power of 80 %, by the formula?",
    Typed(
        within=1.2,
        unit="%",
        form=".0f",
        low="The fraction among 100 pairs has a standard error of 5 points. It is significant if it is two standard errors above one half, and by chance the fraction is often lower than the probability: at a probability of 60 % the power is only {few:.0f} %. For a power of 80 % the probability must be nearly one standard error higher.",
        high="At a probability of 70 % the power is {many:.0f} %, by the formula. A power of 80 % needs less: two standard errors of 5 points for the test, and .84 standard errors more.",
    ),
    _noticed,
)


def _sees():
    right = compared("ch07", "sees_the_score_accuracy", "blind_accuracy")
    sure = compared("ch07", "sees_the_score_size", "blind_size")
    answer = {
        ("smaller", "larger"): "less accurate, and its rewards are larger",
        ("smaller", "smaller"): "less accurate, and its rewards are smaller",
        ("alike", "larger"): "equally accurate, and its rewards are larger",
    }[right, sure]
    names = {"seen": "sees_the_score", "blind": "blind"}
    return answer, {f"{k}_{w}": mean("ch07", f"{v}_{w}") for k, v in names.items() for w in ("accuracy", "size")}


sees_the_score = Ask(
    "One annotator sees the reward model's score, and the score has 1.5 times the weight of the gold reward in the label. Another annotator is blind. Both label five rounds of 60 pairs. Compare the reward model of the first with the reward model of the second: accuracy on clean pairs, and the size (standard deviation) of its rewards.",
    {
        "less accurate, and its rewards are larger": "",
        "less accurate, and its rewards are smaller": "Its labels are wrong more often, but they agree with the model: the labels of each round follow the score of the previous round. So the standard deviation of its rewards is {seen_size:.1f} times as large as for the gold reward. With the blind annotator it is {blind_size:.1f} times as large.",
        "equally accurate, and its rewards are larger": "Its rewards are larger. But the first round has few labels, and where its model is wrong, the labels of the next round follow the error. The accuracy on clean pairs is {seen_accuracy:.3f}, and {blind_accuracy:.3f} with the blind annotator.",
    },
    _sees,
)
