"""What chapter 22 asks its readers to predict; see ``book/_ext/asking.py``."""

import itertools

import torch
from asking import Ask, Typed, compared, mean

from minirlhf.core.statistics import holm, sign_test
from minirlhf_course.chapters.ch22_character_and_product import equations as ch22


def _number(x: float) -> torch.Tensor:
    return torch.tensor(x, dtype=torch.float64)


def _friendly():
    plain, trait = (torch.tensor(p, dtype=torch.float64) for p in ((0.5, 0.3, 0.2), (0.1, 0.3, 0.6)))
    share = float(ch22.trait_policy(trait.log(), plain.log(), beta=0.2).exp()[1])
    weights = (trait**5 / plain**4).tolist()
    values = {"plain": weights[0], "friendly": weights[1], "gushing": weights[2]}
    if share < 0.05:
        return "hardly ever", values
    return "as often as before" if abs(share - 0.3) < 0.03 else "more often" if share > 0.3 else "less often", values


friendly = Ask(
    "“friendly” has probability .3 with the system prompt and without it. How often does the policy that is optimal for β = ⅕ say it?",
    {
        "as often as before": "Its score is 0, so its weight stays {friendly:.1f}. But weights must be normalised, and the weight of “gushing” has grown to .6⁵/.2⁴ = {gushing:.0f}.",
        "more often": "“plain” does lose nearly all its probability. At this β the probability goes to “gushing”, whose weight has grown to .6⁵/.2⁴ = {gushing:.0f}. “friendly” loses its probability to “gushing” too.",
        "hardly ever": "",
    },
    _friendly,
)


def _best_of_four():
    before = mean("ch22", "before_warm")
    return 100 * mean("ch22", "best_warm"), {
        "before": before,
        "percent": 100 * before,
        "one": 1 - (1 - before) ** 4,
        "cold": 1 - before,
    }


best_of_four = Ask(
    "Now the model samples four answers to each question and imitates the one that the ranking puts first. Before, {percent:.0f} % of its answers were warm. What percentage is warm after thirty steps?",
    Typed(
        within=12,
        unit="%",
        form=".0f",
        low="The model imitates answers that are warmer than its usual ones. If each answer is warm with probability {before:.2f}, independently, four answers include a warm one with probability 1 − {cold:.2f}⁴ = {one:.2f}. If questions differ, the probability is somewhat lower.",
        high="A ranking can only choose among the four samples. If each answer is warm with probability {before:.2f}, independently, four answers include a warm one with probability 1 − {cold:.2f}⁴ = {one:.2f}, and less if questions differ. Otherwise a cold answer is ranked first.",
    ),
    _best_of_four,
)


def _lost_prompts():
    corrected = lambda lost: holm([sign_test(0, lost)] + [1.0] * 5)[0]
    lost = next(n for n in itertools.count(1) if corrected(n) < 0.05)
    alone = next(n for n in itertools.count(1) if sign_test(0, n) < 0.05)
    return lost, {
        "alone": alone,
        "more": ["one", "two", "three", "four"][lost - alone - 1],
        "alone_p": sign_test(0, alone),
        "less": ["six", "seven", "eight"][lost - 7],
        "less_p": corrected(lost - 1),
    }


lost_prompts = Ask(
    "Six rules are checked on 128 prompts, with one completion of each and Holm's correction. On one rule prompts were lost and none gained; on the other five nothing changed. How many prompts must be lost until the rule turns red?",
    Typed(
        within=0.5,
        form=".0f",
        low="A single rule turns red from {alone} lost prompts on: 2/2⁶ = {alone_p:.3f}. With six rules, the correction multiplies the smallest p by six. With {less} lost prompts it is 6 · 2/2⁷ = {less_p:.3f}, which is still above 5 %.",
        high="The 128 prompts do not matter, because prompts on which both versions agree carry no information. {alone} coin flips with the same result are already rare, and {more} more are enough for the correction over six rules.",
    ),
    _lost_prompts,
)


def _one_in_a_hundred():
    blocked = lambda missed: float(ch22.false_refusals(_number(missed), _number(2.0)))
    middle = float(torch.special.ndtr(_number(-2.0)))
    return 100 * blocked(0.01), {
        "before": 100 * blocked(0.1),
        "middle": 100 * middle,
        "half": 100 * blocked(middle),
        "left": 100 * (1 - blocked(0.01)),
    }


one_in_a_hundred = Ask(
    "At d′ = 2 a filter that misses one harmful request in ten blocks {before:.0f} % of the harmless ones. We lower its threshold until it misses one in a hundred. What percentage of the harmless requests does it block now?",
    Typed(
        within=12,
        unit="%",
        form=".0f",
        low="With the threshold at the mean of the harmless scores, {half:.0f} % of the harmless requests are blocked. The harmful mean is two standard deviations higher, so {middle:.1f} % of the harmful requests still pass. For one in a hundred the threshold must be lower.",
        high="The threshold does go far down, but not below all harmless scores. 1 % of the harmful scores are more than 2.33 standard deviations below their mean. That point is .33 below the harmless mean, and {left:.0f} % of the harmless scores are lower still.",
    ),
    _one_in_a_hundred,
)


def _bar_for_a_coin():
    drawn, barred = mean("ch22_refusals", "alike_0"), mean("ch22_refusals", "alike_0_at_1")
    values = {"drawn": 100 * drawn, "harmful": 100 * mean("ch22_refusals", "harmful_0")}
    if barred < 0.05:
        return "hardly any", values
    moved = compared("ch22_refusals", "alike_0_at_1", "alike_0")
    return "more than two thirds" if moved == "larger" else "about two thirds, as before", values


bar_for_a_coin = Ask(
    "Without look-alikes in training, five models refuse on average {drawn:.0f} % of the look-alikes (third column) and {harmful:.0f} % of the harmful requests. In each of the five, nearly every harmful request has a higher probability of refusal than nearly every look-alike. Now put a threshold on the log-odds so that 1 % of the harmful test requests pass. How many of these look-alikes does it block?",
    {
        "more than two thirds": "On one curve this would be right: fewer misses mean more false refusals. But random refusal is not on the curve of its probabilities. Sampling refuses some requests with a low score and answers some with a high score.",
        "about two thirds, as before": "Two thirds is the mean of the probabilities. A threshold depends only on their order. If harmful requests have higher probabilities, it can lie between the two kinds, even if both are high.",
        "hardly any": "",
    },
    _bar_for_a_coin,
)


def _six_per_cent():
    pairs = lambda new: float(ch22.canary_pairs(_number(new), _number(0.05), rollback=20, ship=20))
    noise = lambda new: new * (1 - new) + 0.05 * 0.95
    smaller = noise(0.06) / noise(0.10)
    return pairs(0.06), {"ten": pairs(0.10), "noise": smaller, "fixed": smaller * (0.05 / 0.01) ** 2}


six_per_cent = Ask(
    "5 % complain about the old version. If 10 % complain about the new one, the canary ends after {ten:.0f} pairs on average. After how many does it end if 6 % complain?",
    Typed(
        within=1.5,
        factor=True,
        unit="pairs",
        form=",.0f",
        low="The distance of each from 5 matters, not the ratio of 6 and 10. A pair moves the count by .01 on average instead of .05, and the bound is equally far away.",
        high="A test on a fixed number of pairs would need about {fixed:.0f} times as many: 25 times as many for a fifth of the difference, multiplied by {noise:.2f} for the smaller variance. This count drifts to a fixed bound, at a fifth of the pace.",
    ),
    _six_per_cent,
)
