"""What chapter 21 asks its readers to predict; see ``book/_ext/asking.py``."""

import itertools
import math

import torch
from asking import Ask, Typed, compared, mean

from minirlhf.data import seven_words
from minirlhf.data.seven_words import Outcomes
from minirlhf.equations import style
from minirlhf.equations.overoptimization import tilt
from minirlhf_course.chapters.ch21_style_and_information import chain, chatty, markup


def _two_likings():
    left = lambda bias, std: style.biased_correlation(gold_std=1.0, style_std=std, covariance=0.0, bias=bias)
    words, lists = left(0.05, 20.0), left(0.5, 1.0)
    found = {"words": words, "lists": lists}
    if min(words, lists) > 0.99:
        return "neither costs any", found
    if abs(words - lists) < 0.02:
        return "both cost as much", found
    return "the one for words" if words < lists else "the one for list marks", found


two_likings = Ask(
    "Gold has a standard deviation of 1 and is correlated with neither words nor list marks. One reward model overpays each word by .05, and lengths have a standard deviation of 20 words; another overpays each list mark by ½, and their number has one of 1. Which liking costs more of the gold that can be gained near the reference, at the same KL?",
    {
        "the one for words": "",
        "the one for list marks": "It is ten times as large for each mark. But replies differ little in their marks: a reply one deviation above the mean earns ½ by its marks, and 1 by its words.",
        "neither costs any": "Words and marks do not lower gold. But KL is spent on them and is missing elsewhere: {words:.2f} of the gain is left with the one liking, {lists:.2f} with the other.",
    },
    _two_likings,
)


def _slope_removed():
    law = torch.tensor([0.3, 0.2, 0.2, 0.15, 0.1, 0.05], dtype=torch.float64)
    words = torch.tensor([1.0, 1.0, 2.0, 3.0, 3.0, 5.0], dtype=torch.float64)
    gold = torch.tensor([0.2, 0.9, 0.7, 1.4, 0.8, 1.9], dtype=torch.float64)
    centred = gold - law @ gold
    little, much = (style.residual_reward(law, gold + b * words, words) for b in (0.5, 5.0))
    if not torch.allclose(little, much):
        return "gold and a rest of the liking, which grows with b", {}
    if torch.allclose(little, centred):
        return "gold", {}
    if torch.allclose(little, style.residual_reward(law, gold, words)):
        return "gold without its own slope on length", {}
    return "something else", {}


slope_removed = Ask(
    "A reward is gold plus b for each word, without other errors, and its slope on length is removed. What is left, up to a constant?",
    {
        "gold": "So it is where gold itself has no slope on length. The regression sees only the sum of the two, and takes out whatever slope it finds.",
        "gold and a rest of the liking, which grows with b": "The slope of a sum is the sum of the slopes, so that all of b is in what is taken out, however large b is.",
        "gold without its own slope on length": "",
    },
    _slope_removed,
)


def _no_input_for_length():
    counts = [row for row in itertools.product(range(3), repeat=7) if 1 <= sum(row) <= 2]
    features = torch.tensor(counts, dtype=torch.float64)
    law = torch.linspace(1.0, 2.0, len(counts), dtype=torch.float64)
    overpaid = 0.5 * style.omitted_style_slopes(law / law.sum(), features, features.sum(-1))
    if not torch.allclose(overpaid, overpaid[:1]):
        raise ValueError(f"the seven words are overpaid differently: {overpaid.tolist()}")
    return round(float(overpaid[0]), 6), {}


no_input_for_length = Ask(
    "The labels pay ½ too much for each word. A reward model has a weight for the count of each of the seven words, and no input for length; it is fitted to the labels' reward by least squares over all replies. By how much does the liking raise the weight of one kind of word?",
    Typed(
        within=0.1,
        form=".1f",
        low="Nothing in it is called length. But every word adds 1 to the count of its kind, so that ½ on each count is ½ a word. A seventh of that on each would be too little: a word is in one count only.",
        high="Each of the seven counts has the whole of ½, and together that is ½ a word and not more: a word is in one count only.",
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
        return "that it is behind the reference", found
    said = {"smaller": "less than is true", "alike": "just what is true", "larger": "more than is true"}
    return f"that it is ahead, by {said[compared('ch21', 'lc_shorter_controlled', 'lc_shorter_true')]}", found


short_and_good = Ask(
    "A policy is the best at a KL of ½ for gold less one point for each word. It is better than the reference, with a true win rate of {true:.2f}, but being short has cost it content. A judge who likes length gives it {raw:.2f}. What does the win rate at equal length say?",
    {
        "that it is behind the reference": "The liking has put it there, and the liking is what the control takes out.",
        "that it is ahead, by less than is true": "That would come out if its length had been a gain for this policy: if its replies were longer and better for it, or shorter and better for it. Here being short was a loss, and the control takes the loss out.",
        "that it is ahead, by just what is true": "The liking is gone. But with it goes all that quality owes to length, and here that was a loss. With a word gold hardly rises among the reference's replies, by {flat:.2f} on average, but among this policy's by {steep:.2f}.",
        "that it is ahead, by more than is true": "",
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
    "Without the limit of forty words there is in this world a strength λ from which on the weights of ever longer replies no longer add up to a finite number. Which?",
    Typed(
        within=0.2,
        low="With the reference each further word halves a reply's weight, and the judge's liking has to double it again: at λ = 2 the judge's ¼ multiplies it by e^(λ/4) = 1.65 only.",
        high="A reply with a further word need not have more weight than the one without it. It is enough that it has as much: ½ · e^(λ/4) = 1.",
    ),
    _runs_away,
)


def _once_more():
    law = torch.tensor([0.01, 0.99], dtype=torch.float64)
    marked = torch.tensor([True, False])
    share = lambda strength: float(
        torch.special.expit(
            style.markup_odds(
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
    "Markup goes with no particular content. With some strength the share of replies with a list has risen from 1 % to 10 %. The strength is doubled. What is the share?",
    Typed(
        within=7,
        unit="%",
        form=".0f",
        low="It is the log-odds that grow in a straight line, and not the share: from 1/99 to 1/9 the odds have grown to {times:.0f} times as much, and they do so once more.",
        high="A share that grew tenfold twice would be 100 %, and some plain replies are left at every strength. It is the odds that grow to {times:.0f} times as much twice, from 1/99 to 1/9 and from there to 11/9.",
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
    "Of the reference's lists {pointless:.0f} % have fewer than two facts. Take the policy that is best for gold itself at one nat (λ = {strength:.1f}). Two facts or more are in {plain:.0f} % of its plain replies, and in {plain_before:.0f} % of the reference's. How often does that policy write a list, compared with the reference's {before:.0f} %?",
    {
        "less often": "So it is near the reference: the reference's lists do harm on average, {mean:.2f} each, and up to a KL of {until:.2f} fewer are written, {least:.1f} % at the lowest. Farther on there is something to list in many more replies, and there a list gains.",
        "as often": "That is what becomes of bold, which is worth nothing anywhere: {bold:.0f} % before and after. A list is worth something in some replies, and these the policy writes more often.",
        "more often": "",
    },
    _best_lists,
)
