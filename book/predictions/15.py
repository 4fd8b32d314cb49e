"""What chapter 15 asks its readers to predict; see ``book/_ext/asking.py``."""

import torch
from asking import Ask, Typed, mean, seeds

from minirlhf.equations import ai_feedback
from minirlhf_course import evidence


def _number(x: float) -> torch.Tensor:
    return torch.tensor(x, dtype=torch.float64)


def _swap():
    right, wrong = ai_feedback.swap_outcomes(_number(0.7), _number(0.0))
    both, neither = 100 * float(right), 100 * float(wrong)
    return both + neither, {"single": 100 * float(_number(0.7).sigmoid()), "both": both, "neither": neither}


no_liking = Ask(
    "A judge has no liking for a place. It finds one reply better by .7 nats, so that a single draw names it in {single:.0f} % of the cases. What percentage of such pairs passes the swap test, with one draw in each order?",
    Typed(
        within=5.0,
        unit="%",
        form=".0f",
        low="Both draws name the better reply in {both:.0f} % of the cases. In another {neither:.0f} % both name the worse one, and then they agree as well.",
        high="Nothing but chance sets the two orders apart here, but they are two draws. Each of them goes wrong by itself in a third of the cases.",
    ),
    _swap,
)


def _own_hand():
    ahead = torch.tensor([2.0, 0.5], dtype=torch.float64)  # by how much preferred replies are: its own, and others'
    true, own = torch.tensor([True, True]), torch.tensor([True, False])
    mine, theirs = ahead.sigmoid().tolist()
    return float(ai_feedback.self_preference(ahead.sigmoid(), true, own)), {"own": mine, "others": theirs}


own_hand = Ask(
    "A judge without any self-preference sees the better of two replies with probability σ(d). Among the replies that people preferred, its own are ahead of their rivals by d = 2, those of others by .5. What is s (a number between −1 and 1)?",
    Typed(
        within=0.06,
        low="The judge is fair, but its own replies are ahead by more, and easier to be right about: in {own:.2f} of the cases, where the others' are seen in {others:.2f}.",
        high="s is a difference of two shares: the judge prefers {own:.2f} of its own replies that people preferred, and {others:.2f} of the others'.",
    ),
    _own_hand,
)


def _split():
    """The AI's sum in the best mixture of a small and of a large budget: of all splits in steps of one unit."""
    best = []
    for budget in (1_000, 100_000):
        ai = torch.arange(1.0, budget, dtype=torch.float64)
        people = ai_feedback.label_error(budget - ai, torch.zeros_like(ai), cost=10.0, information=0.09)
        biased = ai_feedback.label_error(ai, torch.full_like(ai, 0.3), cost=1.0, information=0.25)
        best.append(float(ai[ai_feedback.mixed_error(people, biased).argmin()]))
    small, large = best
    if abs(large - small) <= 2:
        return "the sum stays as it is"
    return "the sum grows with the budget" if large > small else "the sum shrinks to nothing"


split = Ask(
    "In the example, with b = .3, a budget C is split at best between the cheap, biased AI and dear, unbiased people. What becomes of the sum for the AI as C grows from 1,000 units?",
    {
        "the sum grows with the budget": "So it would be if the AI's error went on falling like 1/C: then all of the money would go to it. But that error does not fall below b², so that each further label of the AI brings less, and at some point less than the same money brings with people.",
        "the sum stays as it is": "",
        "the sum shrinks to nothing": "On a large budget people alone beat the AI alone. But in a mixture the AI's first labels still bring more for their money than people's do.",
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
        return "as large as at first", found
    return (
        "smaller than a coin's" if below.significant and below.mean < 0 else "smaller, but no smaller than a coin's",
        found,
    )


people_label = Ask(
    "In other runs people label 400 pairs of each round, and the judge learns from them and not from itself. At first it orders {first:.2f} of the policy's pairs rightly. Which share does it order rightly after twelve rounds, when the policy is {far:.1f} nats from the reference (means of ten seeds)?",
    {
        "smaller than a coin's": "",
        "smaller, but no smaller than a coin's": "After seven rounds it is so, {seven:.2f}; after twelve it is {people:.2f}, below one half in {below} of 10 seeds. The policy is paid by this judge: it states {facts:.2f} facts of three, which the judge has right, so that {manners:.0f} % of its pairs with different gold differ in polite words and praise alone, and of these the judge orders {manners_right:.2f} rightly.",
        "as large as at first": "The labels are of the new pairs, but the judge cannot hold what they say: it has one weight for all polite words, and in gold the first one earns and the second costs.",
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
        return "about half way between them", found
    near = "nearer to the second" if above.mean > 0 else "nearer to the first"
    return near, found | {"seeds": above.above, "of": above.seeds}


told = Ask(
    "On questions not seen, a model that answers at once is right in {direct:.2f} of the cases, one that first names the category and cites the rule in {thought:.2f}. A third answers at once, too, but half of its lessons ask only what a category or a rule is. Where is it?",
    {
        "nearer to the first": "What the first one lacks is mostly to be told which category a name is in and what the rules are. A model that is told this in other lessons uses it without writing it down.",
        "about half way between them": "Only half of its lessons are about the questions. But what the other half tells, each name's category and the sixteen rules, is all that a thought tells. Being told closes {share:.0f} % of the gap, and in {seeds} of {of} seeds more than half of it.",
        "nearer to the second": "",
    },
    _told,
)
