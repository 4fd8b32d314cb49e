"""What chapter 07 asks its readers to predict; see ``book/_ext/asking.py``."""

import torch
from asking import Ask, Typed, compared, mean

from minirlhf.equations import comparisons


def _number(x: float) -> torch.Tensor:
    return torch.tensor(x, dtype=torch.float64)


def _readings():
    [found] = {compared("ch07", rating, "comparisons") for rating in ("mean_rating", "centred_rating")}
    answer = {"larger": "the ten ratings", "smaller": "the five comparisons", "alike": "both alike"}[found]
    return answer, {n: mean("ch07", n) for n in ("mean_rating", "comparisons")}


ratings_or_pairs = Ask(
    "Forty people read ten of twenty replies each. What they feel at a reading is off by as much as the replies differ, and their scales are shifted against each other by as much again. Each gives ten ratings from 1 to 5, or five comparisons of the same ten replies: from which do we learn the order of the twenty better?",
    {
        "the five comparisons": "A comparison is free of its reader's shift. But five of them are five bits about ten readings, and ten ratings are ten numbers; with readings as noisy as these that counts for more. Kendall's τ with the truth is {comparisons:.2f}, in place of {mean_rating:.2f}.",
        "the ten ratings": "",
        "both alike": "Shifts do cost the ratings something. But some twenty people have read each reply, and the mean of their shifts is much smaller than one of them: Kendall's τ is {mean_rating:.2f} with the ratings as they are, and {comparisons:.2f} with comparisons.",
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
    return "to a close call" if close > easy else "to an easy call", {"close": close, "easy": easy}


finer_scale = Ask(
    "Eight levels, with cuts one nat apart, in place of two: to which labels does the finer scale add more information, as a multiple of what two levels give?",
    {
        "to a close call": "There two levels are at their best already, and no scale of any fineness can give more than 4/3 of it. The eight levels give {close:.2f} times as much.",
        "to an easy call": "",
        "by about the same factor for both": "Two levels say the same about an easy call nearly every time, and so next to nothing. “Much better” or “a little better” is news there: eight levels give {easy:.0f} times as much at a gap of 4, and {close:.2f} times as much at 0.",
    },
    _scale,
)


def _flipped():
    clean, turned = (float(comparisons.flipped_information(_number(0.0), flip=flip)) for flip in (0.0, 0.2))
    left = (turned / clean) ** 0.5
    return clean / turned, {"fifth": 1 / 0.8, "once": 1 / left, "left": left}


flipped_fifth = Ask(
    "A fifth of the labels is turned round by chance. How many times as many labels does it take to know as much as before about two replies that are equally good?",
    Typed(
        within=0.15,
        form=".1f",
        low="{fifth:.2f} times as many would replace a fifth that is missing, and {once:.2f} times as many two fifths. But a turned label pulls the other way: {left:.1f} of what the labels would show is left, and information goes with its square.",
        high="Each turned label cancels a good one, so that {left:.1f} of what the labels would show is left. Information goes with the square of that, and with no higher power.",
    ),
    _flipped,
)


def _teams():
    teams = {
        "all five are right in .75": "alike",
        "five different ones, .95 to .5": "mixed",
        "one of the five is mostly wrong, .2": "contrarian",
    }
    gain = {words: mean("ch07", f"{team}_model") - mean("ch07", f"{team}_majority") for words, team in teams.items()}
    found = {team: gain[words] for words, team in teams.items()}
    return max(gain, key=gain.__getitem__), found


who_gains = Ask(
    "Three teams of five label the same 500 items: accuracies .75 each; .95, .8, .65, .55, .5; and .92, .92, .5, .5, .2. In which team does Dawid and Skene's model gain most over the majority?",
    {
        "all five are right in .75": "There the majority is right most often of all three, but nothing is left to weigh: with 500 items the model says what the majority says, or nearly so.",
        "five different ones, .95 to .5": "There it gains {mixed:.2f}. But none of the five is worse than a coin, and a vote that is nearly a coin's harms the majority less than one that is mostly wrong.",
        "one of the five is mostly wrong, .2": "",
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
    "In each of 100 pairs, all of them close calls, one reply has more of a trait than the other. With what probability must the labeller prefer the one with more, so that at a level of 5 % four of five such studies find the liking, by the formula?",
    Typed(
        within=1.2,
        unit="%",
        form=".0f",
        low="The share among 100 pairs has a standard error of 5 points. To be found it must lie two of them above one half, and by chance it often lies lower than the probability: at 60 % only {few:.0f} of 100 studies find the liking. For four of five it takes nearly one more.",
        high="With a probability of 70 % it would be found, by the formula, in {many:.0f} of 100 studies. Four of five ask for less: two standard errors of 5 points for the test, and .84 of one so that it mostly succeeds.",
    ),
    _noticed,
)


def _sees():
    right = compared("ch07", "sees_the_score_accuracy", "blind_accuracy")
    sure = compared("ch07", "sees_the_score_size", "blind_size")
    answer = {
        ("smaller", "larger"): "right less often, and surer",
        ("smaller", "smaller"): "right less often, and less sure",
        ("alike", "larger"): "right as often, and surer",
    }[right, sure]
    names = {"seen": "sees_the_score", "blind": "blind"}
    return answer, {f"{k}_{w}": mean("ch07", f"{v}_{w}") for k, v in names.items() for w in ("accuracy", "size")}


sees_the_score = Ask(
    "One labeller sees the reward model's score, which then weighs 1.5 times what the truth does; another is blind, and both label five rounds of 60 pairs. How does the reward model of the one who sees compare with that of the blind one (right: on clean pairs; surer: its rewards lie further apart)?",
    {
        "right less often, and surer": "",
        "right less often, and less sure": "Its labels are led astray, but they agree with what the model says already: each round's labels lean towards the score of the round before. So its rewards spread {seen_size:.1f} times as far as the true ones, those of the other {blind_size:.1f} times.",
        "right as often, and surer": "It is surer. But the first round has few labels, and where its model is wrong, the labels of the next round lean towards the error: {seen_accuracy:.3f} of clean pairs are right, in place of {blind_accuracy:.3f}.",
    },
    _sees,
)
