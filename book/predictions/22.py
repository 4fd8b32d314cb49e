"""What chapter 22 asks its readers to predict; see ``book/_ext/asking.py``."""

import itertools

import torch
from asking import Ask, Typed, compared, mean

from minirlhf.core.statistics import holm, sign_test
from minirlhf.equations import release


def _number(x: float) -> torch.Tensor:
    return torch.tensor(x, dtype=torch.float64)


def _friendly():
    plain, trait = (torch.tensor(p, dtype=torch.float64) for p in ((0.5, 0.3, 0.2), (0.1, 0.3, 0.6)))
    share = float(release.trait_policy(trait.log(), plain.log(), beta=0.2).exp()[1])
    weights = (trait**5 / plain**4).tolist()
    found = {"plain": weights[0], "friendly": weights[1], "gushing": weights[2]}
    if share < 0.05:
        return "hardly ever", found
    return "as often as before" if abs(share - 0.3) < 0.03 else "more often" if share > 0.3 else "less often", found


friendly = Ask(
    "The system prompt makes “friendly” neither likelier nor less likely: .3 with it and without. How often does the policy that is optimal for β = ⅕ say it?",
    {
        "as often as before": "Its score is 0, so its weight stays {friendly:.1f}. But probabilities are shares, and the weight of “gushing” has grown to .6⁵/.2⁴ = {gushing:.0f}.",
        "more often": "“plain” does lose nearly all that it had. At this β it goes to “gushing”, whose weight has grown to .6⁵/.2⁴ = {gushing:.0f}, and so does what “friendly” had.",
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
    "Now the model imitates, for each question, that one of its own four answers which the ranking puts first. Before, {percent:.0f} % of its answers were warm. What share is warm after thirty steps?",
    Typed(
        within=12,
        unit="%",
        form=".0f",
        low="What it imitates is warmer than what it usually says: if each answer is warm with probability {before:.2f}, independently of the others, there is a warm one among four with 1 − {cold:.2f}⁴ = {one:.2f}; where questions differ, with somewhat less.",
        high="A ranking chooses among what is there. If each answer is warm with probability {before:.2f}, independently of the others, there is a warm one among four with 1 − {cold:.2f}⁴ = {one:.2f}, and with less where questions differ; otherwise it puts a cold one first.",
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
    "Six rules are checked on 128 prompts, one reply to each, and corrected for together (Holm). On one rule prompts were lost and none won; the other five are kept as before. How many must be lost until the rule turns red?",
    Typed(
        within=0.5,
        form=".0f",
        low="A rule by itself turns red from {alone} on: 2/2⁶ = {alone_p:.3f}. Where six rules are corrected for, the smallest p is multiplied by six: with {less} it is 6 · 2/2⁷ = {less_p:.3f}, which is still too much.",
        high="It is not counted against the 128: prompts on which both versions do the same say nothing. That {alone} tosses all fall one way is rare already, and {more} more make up for six rules.",
    ),
    _lost_prompts,
)


def _one_in_a_hundred():
    blocked = lambda missed: float(release.false_refusals(_number(missed), _number(2.0)))
    middle = float(torch.special.ndtr(_number(-2.0)))
    return 100 * blocked(0.01), {
        "before": 100 * blocked(0.1),
        "middle": 100 * middle,
        "half": 100 * blocked(middle),
        "left": 100 * (1 - blocked(0.01)),
    }


one_in_a_hundred = Ask(
    "At d′ = 2 a filter that misses one harmful request in ten blocks {before:.0f} % of the harmless ones. Its bar is moved until it misses one in a hundred. What share of the harmless does it block now?",
    Typed(
        within=12,
        unit="%",
        form=".0f",
        low="With the bar at the mean of the harmless scores {half:.0f} % of these are blocked, and {middle:.1f} % of the harmful ones, two deviations higher, still pass. For one in a hundred it has to be lower than that.",
        high="The bar does go far down, but not below all harmless scores: 1 % of the harmful ones lie more than 2.33 deviations below their mean. That is .33 below the harmless mean, and {left:.0f} % of the harmless lie lower still.",
    ),
    _one_in_a_hundred,
)


def _bar_for_a_coin():
    drawn, barred = mean("ch22_refusals", "alike_0"), mean("ch22_refusals", "alike_0_at_1")
    found = {"drawn": 100 * drawn, "harmful": 100 * mean("ch22_refusals", "harmful_0")}
    if barred < 0.05:
        return "hardly any", found
    moved = compared("ch22_refusals", "alike_0_at_1", "alike_0")
    return "more than two thirds" if moved == "larger" else "about two thirds, as before", found


bar_for_a_coin = Ask(
    "Shown no look-alike, five models refuse on average {drawn:.0f} % of the look-alikes (third column) and {harmful:.0f} % of the harmful requests; in each of the five, nearly every harmful request has a higher chance of a refusal than nearly every look-alike. Now a bar on the log-odds is put where 1 % of the harmful test requests pass. What share of these look-alikes does it block?",
    {
        "more than two thirds": "So it would be on one curve, where fewer misses are paid for by more false refusals. But a coin is not on the curve of its chances: whoever draws refuses some requests with a low score and answers some with a high one.",
        "about two thirds, as before": "Two thirds is the mean of the chances. A bar asks for their order only: where harmful requests have the higher chances, it can lie between the two, however high both are.",
        "hardly any": "",
    },
    _bar_for_a_coin,
)


def _six_per_cent():
    pairs = lambda new: float(release.canary_pairs(_number(new), _number(0.05), rollback=20, ship=20))
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
        low="What counts is not how 6 compares with 10 but how far each is above 5: a pair moves the count by .01 on average in place of .05, towards a bound as far away.",
        high="A test on a fixed number of pairs would need about {fixed:.0f} times as many (25 for a fifth of the difference, {noise:.2f} of that for the smaller variance). This count drifts to a fixed bound, at a fifth of the pace.",
    ),
    _six_per_cent,
)
