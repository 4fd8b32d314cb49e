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
    """Return the distribution of the best of n on the poem task, each token sampled at a temperature."""
    model = poem_critic().reference
    with torch.no_grad():
        model.table.copy_(model.table.log_softmax(-1) / temperature)
    return best_of_n_distribution(model.distribution()[0].detach(), POEM.rewards, n=n)


def _best(n: int, temperature: float = 1.0) -> tuple[float, float]:
    """Return the reward and the gold reward of the best of n."""
    law = _law(n, temperature)
    return float(law @ POEM.rewards), float(law @ POEM.gold)


def _overrated(n: int, temperature: float = 1.0) -> float:
    """Return the probability that the reward of the best of n exceeds its gold reward by more than 1."""
    return float(_law(n, temperature)[POEM.rewards - POEM.gold > 1].sum())


def _more_tries():
    (few, few_worth), (many, many_worth) = _best(4), _best(16)
    worth = [_best(n)[1] for n in range(1, 17)]
    peak = worth.index(max(worth)) + 1
    assert worth[:peak] == sorted(worth[:peak])  # as a lesson says
    if abs(many - few) < 0.1 and abs(many_worth - few_worth) < 0.1:
        answer = "neither changes much"
    elif many > few:
        answer = "both rise" if many_worth > few_worth else "proxy reward rises, gold reward falls"
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
    "On the poem task, the reward model selects the best of 16 completions instead of the best of 4. How do the proxy reward (its score) and the gold reward of the selected completion change?",
    {
        "both rise": "This holds up to {peak} samples here. Among sixteen samples the selected one is more often a completion that the reward model overrates. The probability that its proxy reward exceeds its gold reward by more than 1 is {many_overrated:.2f}, and {few_overrated:.2f} with four samples. So the gold reward falls from {few_worth:.2f} to {many_worth:.2f}.",
        "proxy reward rises, gold reward falls": "",
        "neither changes much": "The best of sixteen is further from the model than the best of four. Its proxy reward is {many:.2f} instead of {few:.2f}, and its gold reward {many_worth:.2f} instead of {few_worth:.2f}.",
    },
    _more_tries,
)


def _coin():
    coin = torch.tensor([0.5, 0.5], dtype=torch.float64)
    law = best_of_n_distribution(coin, torch.tensor([0.0, 1.0], dtype=torch.float64), n=64)
    return float(exact.divergence(law, coin)), {"formula": best_of_n_kl(64), "sure": math.log(2)}


best_of_coins = Ask(
    "A completion is right with probability ½, and the reward is 1 if it is right, else 0. What is the KL of the best of 64 from the model, in nats?",
    Typed(
        within=0.1,
        unit="nats",
        low="The best of 64 is almost certainly right, and a distribution that is always right has a KL of log 2 = {sure:.2f} nats from the model.",
        high="The formula gives {formula:.2f}, but it holds only without ties. Here all right completions tie, and so do all wrong ones. The KL cannot exceed log 2, the KL of always right from right half of the time.",
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
    same = {}  # each plan is the best of how many completions of the first model: the sum of the numbers, or their product
    for words, plan in plans.items():
        [same[words]] = [
            n
            for n in {sum(plan), math.prod(plan)}
            if torch.allclose(laws[words], best_of_n_distribution(REF, POEM.rewards, n=n), atol=1e-9)
        ]
    if max(earned.values()) - min(earned.values()) < 0.05:
        return "all three are equal", {}
    one, uneven, even = plans
    return max(earned, key=earned.__getitem__), {
        "one": same[one],
        "uneven": same[uneven],
        "even": same[even],
        "least": earned[one],
        "most": earned[even],
    }


twenty_replies = Ask(
    "A model samples twenty completions per prompt, in one round or divided over two. After each round it imitates the distribution of the selected completion exactly. After which plan is its reward highest, by the reward model that selects?",
    {
        "one round with the best of twenty": "It compares all twenty at once. But the second of two rounds samples from a model that has already improved: two rounds with the best of ten give the best of {even:.0f} completions of the first model, and one round gives the best of {one:.0f}.",
        "a round with the best of sixteen, then one with the best of four": "Its first round selects harder than either round of ten. But rounds multiply, 16 · 4 = {uneven:.0f}, and of two numbers with the same sum the equal ones have the largest product, 10 · 10.",
        "two rounds with the best of ten": "",
        "all three are equal": "They would be equal if the numbers added up. But the second round samples from a model that has already improved. On the poem task the reward is {least:.2f} after one round of twenty, and {most:.2f} after two of ten.",
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
    "On the poem task, the model samples sixteen completions at temperature ½, 1 or 2, and the reward model selects one. At which temperature is the gold reward of the selected completion highest?",
    {
        "temperature ½": "",
        "temperature 1": "This holds with two samples: {few_one:.2f} at temperature 1, and {few_cold:.2f} at ½. Among sixteen the reward model finds completions that it overrates, and the gold reward is {one:.2f}. At ½ such completions are rarer, and the gold reward is {cold:.2f}. A still lower temperature is not better: at ¼ the gold reward is {coldest:.2f}.",
        "temperature 2": "If the completions differ more, the best has a higher proxy reward. But its gold reward is only {two:.2f}, because this reward model overrates unusual completions.",
    },
    _temperatures,
)
