"""What chapter 19 asks its readers to predict; see ``book/_ext/asking.py``."""

import math

import torch
from asking import Ask, Typed, compared, mean

from minirlhf_course.chapters.ch19_evaluation import equations as ch19
from minirlhf_course.chapters.ch19_evaluation import experiments


def _number(x: float) -> torch.Tensor:
    return torch.tensor(x, dtype=torch.float64)


WAYS = {"pass_1": "pass@1", "pass_8": "pass@8", "all_8": "pass^8", "vote_9": "the vote"}


def _b_ahead():
    found = experiments.rankings()
    ahead = [words for way, words in WAYS.items() if found[f"B_{way}"] > found[f"A_{way}"]]
    return " and ".join(ahead), found


b_ahead = Ask(
    "By which of the four, pass@1, pass@8, pass^8 and a vote of nine, does model B score higher than A?",
    {
        "pass@8": "",
        "the vote": "A vote helps where the right answer is the most frequent one. B's wrong answers agree and have probability .60: its vote has accuracy {B_vote_9:.2f}, A's vote {A_vote_9:.2f}. But at least one of eight completions is right with probability 1 − .6⁸ = {B_pass_8:.2f} for B, and {A_pass_8:.2f} for A.",
        "pass@8 and pass^8": "pass^8 needs eight right completions of eight. At .40 this is very rare; A has .95⁸ = .66 on half of the problems.",
        "pass@1 and pass@8": "By pass@8 B is better. But pass@1 is the mean probability of a single completion: {A_pass_1:.2f} for A, the mean of .95 and .01, and {B_pass_1:.2f} for B.",
    },
    _b_ahead,
)


def _five_to_a_passage():
    effect = float(ch19.design_effect(_number(5.0), _number(0.4)))
    return 150 / effect, {"sum": 5 * effect}


five_to_a_passage = Ask(
    "A test has 150 items, five about each passage, and the grades of two items about one passage correlate by .4. How many independent items have the same information?",
    Typed(
        within=2,
        unit="items",
        form=".0f",
        low="Thirty, the number of passages, would be right if all five items of a passage always had the same grade. They correlate by .4 and not by 1. Fifty is too few as well: an item is not its own partner, so it has four partners and not five.",
        high="Each item has four partners, with one covariance each. The sum of five has the variance of {sum:.0f} independent items, 5 + 5 · 4 · .4, and not of 5.",
    ),
    _five_to_a_passage,
)


def _found_at_all():
    error = math.sqrt((0.70 * 0.30 + 0.75 * 0.25) / 300)
    return 100 * mean("ch19", "power_300_unpaired"), {"error": error, "errors": 0.05 / error}


found_at_all = Ask(
    "Two models are right with probability .70 and .75, and each answers 300 items of its own. What is the power of a two-sided test at the level .05?",
    Typed(
        within=9,
        unit="%",
        form=".0f",
        low="About 5 % is the rate of false alarms, without a difference. Here there is one, of {errors:.1f} standard errors.",
        high="The level is the rate of false alarms, and not the power. This difference is {errors:.1f} of its standard errors of {error:.3f}, and the test needs 1.96, so chance has to add the rest.",
    ),
    _found_at_all,
)


def _five_seeds_pooled():
    one, five, level = (mean("ch19", f"alarm_{name}") for name in ("1_items", "5_items", "5_seeds"))
    moved = compared("ch19", "alarm_5_items", "alarm_1_items")
    if moved == "alike":
        return "about as often as with one seed", {"one": one, "level": 100 * level}
    if moved == "larger":
        return "more often than with one seed", {}
    return "in about 5 %, as the level says" if five < 0.06 else "less often, but in more than 5 %", {}


five_seeds_pooled = Ask(
    "Now five seeds of each recipe are trained, each of the ten models answers 2,000 items of its own, and the test takes all 10,000 items of a recipe together. How often does it find a “significant” difference?",
    {
        "in about 5 %, as the level says": "Five seeds do reduce the variance of the seeds. But the test still counts the variance of the items alone. A t test over the five differences finds one in {level:.0f} % of the comparisons.",
        "less often, but in more than 5 %": "The variance from the seeds is divided by five. The variance that the test uses is divided by five too, since there are five times the items: their ratio has not changed.",
        "about as often as with one seed": "",
        "more often than with one seed": "With the items of five seeds the test does expect a smaller variance. But the mean of five seeds has a smaller variance too, by the same factor, and the two cancel.",
    },
    _five_seeds_pooled,
)


def _kept_prompt():
    public, private, drawn = (
        mean("ch19_models", name) for name in ("chosen_public", "chosen_private", "drawn_private")
    )
    found = {name: mean("ch19_models", f"drawn_{name}") for name in ("lowest", "highest")}
    if compared("ch19_models", "chosen_private", "drawn_private") != "larger":
        return "hardly anything", found
    left = (private - drawn) / (public - mean("ch19_models", "drawn_public"))
    return "most of it" if left > 0.7 else "about half of it" if left > 0.3 else "hardly anything", found


kept_prompt = Ask(
    "Of twenty prompts we keep the one with the highest accuracy on 40 public questions. There it exceeds a random prompt. On average over ten models, how much of this lead remains on 200 other questions?",
    {
        "hardly anything": "This holds for submissions of coin flips, which are all equally good. These prompts are not: on the 200 questions the worst of the twenty has accuracy {lowest:.2f} and the best {highest:.2f}, on average over the models.",
        "about half of it": "About 40 % would be lost if each score had the variance of 40 coin tosses. But with most of these prompts the model gives every word the same answer. Half of the words are good, so this has accuracy .5 without any variance. The other prompts have about half the variance of coins, since most of them nearly do the same.",
        "most of it": "",
    },
    _kept_prompt,
)
