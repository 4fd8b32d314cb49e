"""What chapter 21 asks its readers to predict; see ``book/_ext/asking.py``."""

import itertools
import math

import torch
from asking import Ask, Typed, compared, mean

from minirlhf.data import seven_words
from minirlhf.data.seven_words import Outcomes
from minirlhf.equations.overoptimization import tilt
from minirlhf_course.chapters.ch21_style_and_information import chain, chatty, markup
from minirlhf_course.chapters.ch21_style_and_information import equations as ch21


def _two_likings():
    left = lambda bias, std: ch21.biased_correlation(gold_std=1.0, style_std=std, covariance=0.0, bias=bias)
    words, lists = left(0.05, 20.0), left(0.5, 1.0)
    found = {"words": words, "lists": lists}
    if min(words, lists) > 0.99:
        return "neither costs any", found
    if abs(words - lists) < 0.02:
        return "both cost as much", found
    return "the one for words" if words < lists else "the one for list marks", found


two_likings = Ask(
    "The gold reward has a standard deviation of 1 and is uncorrelated with words and with list marks. One reward model has an excess reward of .05 per word, and lengths have a standard deviation of 20 words. Another has an excess of ½ per list mark, and their number has a standard deviation of 1. Which bias costs more of the possible gain in gold reward near the reference, at the same KL?",
    {
        "the one for words": "",
        "the one for list marks": "It is ten times as large per mark. But completions differ little in their marks. A completion one standard deviation above the mean gains ½ by its marks, and 1 by its words.",
        "neither costs any": "Words and marks do not lower the gold reward. But KL is spent on them and is missing elsewhere: {words:.2f} of the gain remains with the bias for words, {lists:.2f} with the bias for marks.",
    },
    _two_likings,
)


def _slope_removed():
    law = torch.tensor([0.3, 0.2, 0.2, 0.15, 0.1, 0.05], dtype=torch.float64)
    words = torch.tensor([1.0, 1.0, 2.0, 3.0, 3.0, 5.0], dtype=torch.float64)
    gold = torch.tensor([0.2, 0.9, 0.7, 1.4, 0.8, 1.9], dtype=torch.float64)
    centred = gold - law @ gold
    little, much = (ch21.residual_reward(law, gold + b * words, words) for b in (0.5, 5.0))
    if not torch.allclose(little, much):
        return "the gold reward and a part of the bias, which grows with b", {}
    if torch.allclose(little, centred):
        return "the gold reward", {}
    if torch.allclose(little, ch21.residual_reward(law, gold, words)):
        return "the gold reward without its own slope on length", {}
    return "something else", {}


slope_removed = Ask(
    "A reward is the gold reward plus b for each word, without other errors. Its slope on length is removed. What remains, up to a constant?",
    {
        "the gold reward": "This is so if the gold reward itself has no slope on length. The regression sees only the sum of the two, and removes whatever slope it finds.",
        "the gold reward and a part of the bias, which grows with b": "The slope of a sum is the sum of the slopes. So all of b is removed, however large b is.",
        "the gold reward without its own slope on length": "",
    },
    _slope_removed,
)


def _no_input_for_length():
    counts = [row for row in itertools.product(range(3), repeat=7) if 1 <= sum(row) <= 2]
    features = torch.tensor(counts, dtype=torch.float64)
    law = torch.linspace(1.0, 2.0, len(counts), dtype=torch.float64)
    overpaid = 0.5 * ch21.omitted_style_slopes(law / law.sum(), features, features.sum(-1))
    if not torch.allclose(overpaid, overpaid[:1]):
        raise ValueError(f"the seven words are overpaid differently: {overpaid.tolist()}")
    return round(float(overpaid[0]), 6), {}


no_input_for_length = Ask(
    "The labels reward each word by ½ too much. A reward model has a weight for the count of each of the seven words, and no input for length. It is fitted to the labels' reward by least squares over all completions. By how much does the bias raise the weight of one kind of word?",
    Typed(
        within=0.1,
        form=".1f",
        low="None of its inputs is called length. But every word adds 1 to the count of its kind, so ½ on each count is ½ per word. One seventh of this on each would be too little, since a word is in one count only.",
        high="Each of the seven counts gets the whole ½. Together this is ½ per word and not more, since a word is in one count only.",
    ),
    _no_input_for_length,
)


def _short_and_good():
    true, raw, controlled = (mean("ch21", f"lc_shorter_{name}") for name in ("true", "raw", "controlled"))
    world = seven_words.bags()
    style = chain.words(world)
    logps = chain.policy_at(world.ref_logps, world.gold - style, kl=0.5)
    shorter = Outcomes(world.texts, logps, world.gold, world.counts)
    flat, steep = (chain.slope(one, one.gold, style) for one in (world, shorter))
    found = {"true": true, "raw": raw, "flat": flat, "steep": steep}
    if controlled < 0.5:
        return "that it is worse than the reference", found
    said = {
        "smaller": "less than it truly is",
        "alike": "exactly as much as it truly is",
        "larger": "more than it truly is",
    }
    return f"that it is better, by {said[compared('ch21', 'lc_shorter_controlled', 'lc_shorter_true')]}", found


short_and_good = Ask(
    "A policy is optimal, at a KL of ½, for the gold reward minus one point per word. It is better than the reference, with a true win rate of {true:.2f}, but being short has cost it content. A judge with a length bias gives it {raw:.2f}. What does the length-controlled win rate say?",
    {
        "that it is worse than the reference": "The judge's bias puts it there, and the control removes this bias.",
        "that it is better, by less than it truly is": "This would be so if the length of its completions had been a gain for this policy. Here being short was a loss, and the control removes the loss.",
        "that it is better, by exactly as much as it truly is": "The bias is removed. But so is the part of quality that length explains, and here it was a loss. Per word the gold reward hardly rises among the reference's completions, by {flat:.2f} on average, but among this policy's by {steep:.2f}.",
        "that it is better, by more than it truly is": "",
    },
    _short_and_good,
)


def _runs_away():
    world = chatty.replies()
    paid = chatty.PER_WORD * world.fillers

    def grows(strength: float) -> bool:
        logps = tilt(world.ref_logps, paid, strength=strength)
        return float(logps[1] - logps[0]) > 0

    low, high = 0.0, 20.0
    for _ in range(40):
        middle = (low + high) / 2
        low, high = (low, middle) if grows(middle) else (middle, high)
    return low, {}


runs_away = Ask(
    "Without the limit of forty words there is a strength λ in this task from which on the weights of all completions have no finite sum. Which?",
    Typed(
        within=0.2,
        low="With the reference each further word halves a completion's weight, and the judge's bias has to double it again. At λ = 2 the judge's ¼ multiplies it by e^(λ/4) = 1.65 only.",
        high="A completion with a further word need not have more weight than the completion without it. Equal weight is enough: ½ · e^(λ/4) = 1.",
    ),
    _runs_away,
)


def _once_more():
    law = torch.tensor([0.01, 0.99], dtype=torch.float64)
    marked = torch.tensor([True, False])
    share = lambda strength: float(
        torch.special.expit(
            ch21.markup_odds(
                law.log(), torch.zeros(2, dtype=torch.float64), marked, liking=1.0, strength=strength
            ).log()
        )
    )
    low, high = 0.0, 20.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (low, middle) if share(middle) > 0.1 else (middle, high)
    return 100 * share(2 * low), {"times": math.exp(low)}


once_more = Ask(
    "Markup is independent of content. At some strength the percentage of completions with a list has risen from 1 % to 10 %. The strength is doubled. What is the percentage?",
    Typed(
        within=7,
        unit="%",
        form=".0f",
        low="The log-odds grow linearly, not the percentage. From 1/99 to 1/9 the odds have grown by a factor of {times:.0f}, and they do so once more.",
        high="A percentage that grew tenfold twice would be 100 %, and some plain completions remain at every strength. The odds grow by a factor of {times:.0f} twice, from 1/99 to 1/9 and from there to 11/9.",
    ),
    _once_more,
)


def _best_lists():
    before, best = (mean("ch21", f"looks_{name}_list") for name in ("reference", "gold"))
    bold, pointless = mean("ch21", "looks_gold_bold"), mean("ch21", "looks_reference_pointless")
    world = markup.looks()
    many, plain = markup.facts(world) >= 2, world.counts[:, 7] == 0
    farther = chain.policy_at(world.ref_logps, world.gold, kl=1.0)
    lean, worst, top = farther - world.ref_logps, int(world.gold.argmin()), int(world.gold.argmax())
    steps = [tilt(world.ref_logps, world.gold, strength=0.1 * i) for i in range(1, 20)]
    path = [(float(one.exp() @ (one - world.ref_logps)), float(one.exp() @ world.counts[:, 7])) for one in steps]
    found = {
        "strength": float((lean[top] - lean[worst]) / (world.gold[top] - world.gold[worst])),
        "plain_before": 100 * float(world.probs @ (many & plain).double() / (world.probs @ plain.double())),
        "plain": 100 * float(farther.exp() @ (many & plain).double() / (farther.exp() @ plain.double())),
        "until": max(kl for kl, share in path if share < before),
        "least": 100 * min(share for _, share in path),
        "before": 100 * before,
        "pointless": 100 * pointless,
        "bold": 100 * bold,
        "mean": 0.3 * (1 - pointless) - 0.2 * pointless,
    }
    way = "as often" if abs(best - before) < 0.002 else "less often" if best < before else "more often"
    return way, found


best_lists = Ask(
    "Of the reference's lists {pointless:.0f} % have fewer than two facts. Take the policy that is optimal for the gold reward at one nat (λ = {strength:.1f}). Of its plain completions {plain:.0f} % have two facts or more, of the reference's {plain_before:.0f} %. How often does this policy write a list, compared with the reference's {before:.0f} %?",
    {
        "less often": "This is so near the reference. The reference's lists are harmful on average, {mean:.2f} each, and up to a KL of {until:.2f} the policy writes fewer, {least:.1f} % at the lowest. Farther away many more completions have something to list, and there a list helps.",
        "as often": "This is so for bold, which has no value anywhere: {bold:.0f} % before and after. A list has value in some completions, and the policy writes these more often.",
        "more often": "",
    },
    _best_lists,
)
