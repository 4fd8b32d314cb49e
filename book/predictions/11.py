"""What chapter 11 asks its readers to predict; see ``book/_ext/asking.py``."""

import math

import torch
from asking import Ask, Typed

from minirlhf.core import exact
from minirlhf.data.toys import poem_critic
from minirlhf.equations.estimators import best_of_n_distribution, best_of_n_kl

POEM = poem_critic()
REF = POEM.reference.distribution()[0].detach()


def _law(n: int, temperature: float = 1.0) -> torch.Tensor:
    """Of the best of n on the poem, each token sampled at a temperature."""
    model = poem_critic().reference
    with torch.no_grad():
        model.table.copy_(model.table.log_softmax(-1) / temperature)
    return best_of_n_distribution(model.distribution()[0].detach(), POEM.rewards, n=n)


def _best(n: int, temperature: float = 1.0) -> tuple[float, float]:
    """Reward and true worth of the best of n."""
    law = _law(n, temperature)
    return float(law @ POEM.rewards), float(law @ POEM.gold)


def _overrated(n: int, temperature: float = 1.0) -> float:
    """How often the best of n earns over 1 more than it is worth."""
    return float(_law(n, temperature)[POEM.rewards - POEM.gold > 1].sum())


def _more_tries():
    (few, few_worth), (many, many_worth) = _best(4), _best(16)
    worth = [_best(n)[1] for n in range(1, 17)]
    peak = worth.index(max(worth)) + 1
    assert worth[:peak] == sorted(worth[:peak])  # as a lesson says
    if abs(many - few) < 0.1 and abs(many_worth - few_worth) < 0.1:
        answer = "neither changes much"
    elif many > few:
        answer = "more of both" if many_worth > few_worth else "more reward, less worth"
    else:
        raise ValueError(f"rewards of {few} and {many} are what no choice says")
    return answer, {
        "few": few,
        "many": many,
        "peak": ("one", "two", "three", "four", "five", "six", "seven", "eight")[peak - 1],
        "few_worth": few_worth,
        "many_worth": many_worth,
        "few_overrated": _overrated(4),
        "many_overrated": _overrated(16),
    }


best_of_sixteen = Ask(
    "In this world the reward model picks the best of 16 replies in place of the best of 4. What do the replies earn, and what are they worth in truth?",
    {
        "more of both": "So it is up to {peak} tries here. But of sixteen tries the one that is picked is more often a reply that the reward model overrates. In {many_overrated:.2f} of the draws its reward exceeds its worth by more than 1, and with four tries in {few_overrated:.2f}; so worth falls from {few_worth:.2f} to {many_worth:.2f}.",
        "more reward, less worth": "",
        "neither changes much": "The best of sixteen lies further out than the best of four: here it earns {many:.2f} in place of {few:.2f}, and is worth {many_worth:.2f} in place of {few_worth:.2f}.",
    },
    _more_tries,
)


def _coin():
    coin = torch.tensor([0.5, 0.5], dtype=torch.float64)
    law = best_of_n_distribution(coin, torch.tensor([0.0, 1.0], dtype=torch.float64), n=64)
    return float(exact.divergence(law, coin)), {"formula": best_of_n_kl(64), "sure": math.log(2)}


best_of_coins = Ask(
    "A reply is right with probability ½, and the reward says only whether it is right. How far, in nats, is the best of 64 from the model?",
    Typed(
        within=0.1,
        unit="nats",
        low="The best of 64 is all but certainly right, and a certain side of a coin is log 2 = {sure:.2f} nats from the coin.",
        high="The formula has {formula:.2f}, but it holds without ties. Here all right replies tie, and all wrong ones, like the two sides of a coin; and no coin lies further from a fair one than log 2.",
    ),
    _coin,
)


def _plans():
    plans = {
        "one round with the best of twenty": (20,),
        "a round with the best of sixteen, then one with the best of four": (16, 4),
        "two rounds with the best of ten": (10, 10),
    }
    laws = {}
    for words, plan in plans.items():
        assert sum(plan) == 20  # as the question says
        laws[words] = REF
        for n in plan:
            laws[words] = best_of_n_distribution(laws[words], POEM.rewards, n=n)
    earned = {words: float(law @ POEM.rewards) for words, law in laws.items()}
    same = {}  # of how many replies of the first model each gives the best: as many as the sum, or the product?
    for words, plan in plans.items():
        [same[words]] = [
            n
            for n in {sum(plan), math.prod(plan)}
            if torch.allclose(laws[words], best_of_n_distribution(REF, POEM.rewards, n=n), atol=1e-9)
        ]
    if max(earned.values()) - min(earned.values()) < 0.05:
        return "all three alike", {}
    one, uneven, even = plans
    return max(earned, key=earned.__getitem__), {
        "one": same[one],
        "uneven": same[uneven],
        "even": same[even],
        "least": earned[one],
        "most": earned[even],
    }


twenty_replies = Ask(
    "A model samples twenty replies to a prompt, in one round or divided over two, and comes to imitate, exactly, what is selected in each. After which plan does it earn most, by the reward that selects?",
    {
        "one round with the best of twenty": "It compares all twenty at once. But the second of two rounds picks from a model that picks already: two rounds with the best of ten give the best of {even:.0f} replies of the first model, and one round no more than the best of {one:.0f}.",
        "a round with the best of sixteen, then one with the best of four": "Its first round selects harder than either round of ten. But rounds multiply, 16 · 4 = {uneven:.0f}, and of two numbers with the same sum the equal ones have the largest product, 10 · 10.",
        "two rounds with the best of ten": "",
        "all three alike": "So it would be if the numbers added up. But the second round picks from a model that picks already: on the poem one round of twenty earns {least:.2f}, and two of ten {most:.2f}.",
    },
    _plans,
)


def _temperatures():
    worth = {f"temperature {words}": _best(16, t)[1] for words, t in (("½", 0.5), ("1", 1.0), ("2", 2.0))}
    few = {f"few_{name}": _best(2, t)[1] for name, t in (("cold", 0.5), ("one", 1.0), ("hot", 2.0))}
    assert max(few, key=few.__getitem__) == "few_one" and _overrated(16, 0.5) < _overrated(16)  # as a lesson says
    coldest = _best(16, 0.25)[1]
    assert coldest < 0.8 * worth["temperature ½"]  # likewise
    return max(worth, key=worth.__getitem__), few | {
        "cold": worth["temperature ½"],
        "one": worth["temperature 1"],
        "two": worth["temperature 2"],
        "coldest": coldest,
    }


hot_or_cold = Ask(
    "In the world of the poem, sixteen replies are sampled at temperature ½, 1 or 2, and the reward model picks one. At which temperature is that reply worth most in truth?",
    {
        "temperature ½": "",
        "temperature 1": "With two tries it would be so: {few_one:.2f} there, and {few_cold:.2f} at ½. With sixteen the reward model finds what it has wrong, {one:.2f}; colder sampling keeps such replies rarer, and the best of sixteen is worth {cold:.2f}. But not the colder the better: at ¼ it is worth {coldest:.2f}.",
        "temperature 2": "The more the replies differ, the more the best one earns; but it is worth only {two:.2f} here: oddities are what the reward model has wrong.",
    },
    _temperatures,
)
