"""What chapter 15 asks its readers to predict; see ``book/_ext/asking.py``."""

import torch
from asking import Ask, Typed, mean, seeds

from minirlhf_course import evidence
from minirlhf_course.chapters.ch15_ai_feedback import equations as ch15


def _number(x: float) -> torch.Tensor:
    return torch.tensor(x, dtype=torch.float64)


def _swap():
    right, wrong = ch15.swap_outcomes(_number(0.7), _number(0.0))
    both, neither = 100 * float(right), 100 * float(wrong)
    return both + neither, {"single": 100 * float(_number(0.7).sigmoid()), "both": both, "neither": neither}


no_liking = Ask(
    "A judge has no position bias. It prefers one completion by .7 nats, so a single sampled verdict names it in {single:.0f} % of the cases. What percentage of such pairs passes the swap test, with one sampled verdict in each presentation order?",
    Typed(
        within=5.0,
        unit="%",
        form=".0f",
        low="Both verdicts name the better completion in {both:.0f} % of the cases. In another {neither:.0f} % both name the worse one, and then they agree as well.",
        high="The two orders differ only by chance here, but they are two samples. Each of them is wrong in one third of the cases, independently of the other.",
    ),
    _swap,
)


def _own_hand():
    ahead = torch.tensor([2.0, 0.5], dtype=torch.float64)  # by how much preferred replies are: its own, and others'
    true, own = torch.tensor([True, True]), torch.tensor([True, False])
    mine, theirs = ahead.sigmoid().tolist()
    return float(ch15.self_preference(ahead.sigmoid(), true, own)), {"own": mine, "others": theirs}


own_hand = Ask(
    "A judge without self-preference names the better of two completions with probability σ(d). Among the completions that annotators preferred, its own lead their rivals by d = 2, those of others by .5. What is s (a number between −1 and 1)?",
    Typed(
        within=0.06,
        low="The judge has no self-preference, but its own completions have a larger lead and are easier to judge: it is right about them in {own:.2f} of the cases, and about the others' in {others:.2f}.",
        high="s is a difference of two fractions. Of the completions that annotators preferred, the judge prefers {own:.2f} of its own and {others:.2f} of the others'.",
    ),
    _own_hand,
)


def _split():
    """Return the AI's sum in the best mixture for a small and a large budget, over all splits in steps of one unit."""
    best = []
    for budget in (1_000, 100_000):
        ai = torch.arange(1.0, budget, dtype=torch.float64)
        people = ch15.label_error(budget - ai, torch.zeros_like(ai), cost=10.0, information=0.09)
        biased = ch15.label_error(ai, torch.full_like(ai, 0.3), cost=1.0, information=0.25)
        best.append(float(ai[ch15.mixed_error(people, biased).argmin()]))
    small, large = best
    if abs(large - small) <= 2:
        return "the sum stays as it is"
    return "the sum grows with the budget" if large > small else "the sum shrinks to zero"


split = Ask(
    "In the example, with b = .3, a budget C is split optimally between the cheap, biased AI and expensive, unbiased annotators. How does the sum for the AI change as C grows from 1,000 units?",
    {
        "the sum grows with the budget": "This would be right if the AI's error continued to fall like 1/C: then the whole budget would go to the AI. But that error does not fall below b². Each further AI label brings less, and at some point less than the same money brings as human labels.",
        "the sum stays as it is": "",
        "the sum shrinks to zero": "With a large budget human labels alone are better than AI labels alone. But in a mixture the AI's first labels still bring more for their cost than human labels do.",
    },
    _split,
)


def _people_label():
    end, start, coin = seeds("ch15", "people_accuracy_12"), seeds("ch15", "people_accuracy_0"), [0.5] * 10
    [fallen] = evidence.differences({"end": end, "start": start}).values()
    [below] = evidence.differences({"end": end, "coin": coin}).values()
    found = {
        "first": mean("ch15", "people_accuracy_0"),
        "seven": mean("ch15", "people_accuracy_7"),
        "people": mean("ch15", "people_accuracy_12"),
        "far": mean("ch15", "people_far_12"),
        "below": below.below,
        "facts": mean("ch15", "people_facts"),
        "manners": 100 * mean("ch15", "people_manners"),
        "manners_right": mean("ch15", "people_manners_right"),
    }
    if not (fallen.significant and fallen.mean < 0):
        return "as high as at first", found
    return (
        "below chance" if below.significant and below.mean < 0 else "lower, but not below chance",
        found,
    )


people_label = Ask(
    "In other runs annotators label 400 pairs of each round, and the judge learns from these labels and not from its own. At first it orders {first:.2f} of the policy's pairs correctly. What fraction does it order correctly after twelve rounds, when the policy is {far:.1f} nats from the reference policy (means of ten seeds)?",
    {
        "below chance": "",
        "lower, but not below chance": "This holds after seven rounds, {seven:.2f}. After twelve rounds it is {people:.2f}, below one half in {below} of 10 seeds. The policy follows the reward of this judge, which is right about facts, and states {facts:.2f} facts of three. So {manners:.0f} % of its pairs with different gold reward differ in polite words and praise alone, and of these the judge orders {manners_right:.2f} correctly.",
        "as high as at first": "The labels are for the new pairs, but the judge cannot represent them: it has one weight for all polite words, whereas the gold reward pays for the first one and subtracts for the second.",
    },
    _people_label,
)


def _told():
    ways = {way: seeds("ch15_rules", f"{way}_unseen") for way in ("direct", "told", "thought")}
    middle = [(first + second) / 2 for first, second in zip(ways["direct"], ways["thought"], strict=True)]
    [above] = evidence.differences({"told": ways["told"], "middle": middle}).values()
    direct, told, thought = (sum(of) / len(of) for of in ways.values())
    found = {"direct": direct, "thought": thought, "share": 100 * (told - direct) / (thought - direct)}
    if not above.significant:
        return "about halfway between them", found
    near = "nearer to the second" if above.mean > 0 else "nearer to the first"
    return near, found | {"seeds": above.above, "of": above.seeds}


told = Ask(
    "On unseen questions, a model that gives the action directly is right in {direct:.2f} of the cases. A model that first names the category and cites the rule is right in {thought:.2f}. A third model gives the action directly, but half of its training examples ask only for a category or a rule. Where is its accuracy?",
    {
        "nearer to the first": "The first model mostly lacks the category of each name and the rules. A model that learns them from other examples uses them without writing them down.",
        "about halfway between them": "Only half of its training examples are about the questions. But the other half contains each name's category and the sixteen rules, which is all the information in a chain of thought. These examples close {share:.0f} % of the gap, and in {seeds} of {of} seeds more than half of it.",
        "nearer to the second": "",
    },
    _told,
)
