"""What chapter 06 asks its readers to predict; see ``book/_ext/asking.py``."""

import torch
from asking import Ask, Typed, mean

from minirlhf_course.chapters.ch06_nature_of_preferences import equations as ch06
from minirlhf_course.chapters.ch06_nature_of_preferences import groups
from minirlhf_course.chapters.ch06_nature_of_preferences.equations import majority_accuracy


def _number(x: float) -> torch.Tensor:
    return torch.tensor(x, dtype=torch.float64)


def _orders():
    wrong = mean("ch06", "orders_wrong")
    answer = "in fewer than 1 %" if wrong < 0.01 else "in 1 to 10 %" if wrong <= 0.1 else "in more than 10 %"
    spread = mean("ch06", "orders_sd")
    return answer, {"spread": spread, "apart": (8 / 3) ** 0.5 * spread}  # four alike whose sum is constant


other_orders = Ask(
    "Four players have strengths 100 points apart. Elo processes their 1,000 games in 200 different orders, with η = 32. What fraction of the orders ends in a wrong ranking?",
    {
        "in fewer than 1 %": "The games are the same, and a fit to all of them at once does not depend on their order. Elo does: it takes one step per game, and the last games have the largest weight.",
        "in 1 to 10 %": "A thousand games would be enough for a fit to all of them. But Elo's step size is constant. Over the orders, each final rating has a standard deviation of {spread:.0f} points, so the difference of two has one of about {apart:.0f}. Neighbours are 100 points apart, and each of the three pairs of neighbours can end in the wrong order.",
        "in more than 10 %": "",
    },
    _orders,
)


def _jury():
    one, three, many = (100 * float(majority_accuracy(_number(0.6), voters=n)) for n in (1, 3, 101))
    said = {f"about {n}": n for n in (60, 65, 98)}
    answer = min(said, key=lambda words: abs(said[words] - many))
    assert abs(said[answer] - many) < 1
    return answer, {"one": one, "three": three}


majority_of_many = Ask(
    "60 % of all people prefer the short completion. Each label is the majority vote of 101 randomly chosen people. How many of 100 labels say “short”?",
    {
        "about 60": "This holds if one person gives each label; then the 40 % are represented. In a majority vote of many people they almost disappear.",
        "about 65": "This is the majority vote of three people, {three:.0f} of 100. The fraction among 101 people is rarely so far from 60 % that it falls below one half.",
        "about 98": "",
    },
    _jury,
)


def _careless():
    def highest(noise: float) -> str:
        fitted = groups.pooled_reward(groups.MILD_AND_STRONG, groups.shares(0.6), noise=noise)
        return groups.REPLIES[int(fitted.argmax())]

    def share(first: str, second: str, noise: float) -> float:
        a, b = map(groups.REPLIES.index, (first, second))
        each = torch.sigmoid((groups.MILD_AND_STRONG[:, a] - groups.MILD_AND_STRONG[:, b]) / noise)
        return 100 * float(groups.shares(0.6) @ each)

    careful, careless = highest(0.05), highest(0.5)
    assert highest(0.1) == highest(0.25) == "middle"  # as the lessons say
    likes, strong = groups.MILD_AND_STRONG
    said = {
        "mild": 100 * float(torch.sigmoid((likes[0] - likes[-1]) / 0.5)),
        "least": 100 * float(torch.sigmoid(-likes.diff().max() / 0.05)),  # from short to long each is liked less
        "short_long": share("short", "long", 0.05),
        "short_middle": share("short", "middle", 0.05),
        "long_middle": share("long", "middle", 0.5),
    }
    assert float(torch.sigmoid((strong[0] - strong[-1]) / 0.5)) < 0.02
    if careful == careless:
        return f"{careful} with both", said
    return f"{careful} with careful labels, {careless} with careless ones", said


careless_labels = Ask(
    "For 60 % of the people a short, a middle and a long completion have the utilities .25, .1 and −.25, for the others −1.5, .1 and 1.5. One reward is fitted to all labels. "
    "Which completion has the highest reward if the labels are careful (noise .05), and which if they are careless (noise ½)?",
    {
        "short with both": "This holds for careful labels. With noise ½ the 60 % prefer short to long in only {mild:.0f} of 100 labels, because their difference in utility is small. The other group still prefers long in nearly all of its labels.",
        "long with both": "The 40 % have stronger preferences. But a careful label says which completion is better and not by how much. Then each person counts once, and {short_long:.0f} of 100 labels prefer short to long, {short_middle:.0f} short to middle.",
        "middle with both": "This holds for noise between these two values, at .1 and .25. With noise .05, {short_middle:.0f} of 100 labels prefer short to middle, and with noise ½, {long_middle:.0f} of 100 prefer long to middle.",
        "short with careful labels, long with careless ones": "",
        "long with careful labels, short with careless ones": "Careful labels count persons: even a small preference of the 60 % decides {least:.0f} of 100 of their labels. The strength of a preference affects the labels only if they are noisy.",
    },
    _careless,
)


def _told():
    def coin(z: float, gamma: float) -> float:
        return float(ch06.probability_weight(_number(0.5), gamma=gamma) * ch06.prospect_value(_number(z)))

    sure, gamble = float(ch06.prospect_value(_number(-1.0))), coin(-2.0, 0.69)
    first = "the sure thing" if float(ch06.prospect_value(_number(1.0))) > coin(2.0, 0.61) else "the coin"
    assert first == "the sure thing"  # as the question says
    answer = "either" if abs(sure - gamble) < 0.01 else "the sure thing again" if sure > gamble else "the coin"
    twice = float(ch06.prospect_value(_number(-2.0))) / sure
    return answer, {"twice": twice, "weight": float(ch06.probability_weight(_number(0.5), gamma=0.69))}


told_two = Ask(
    "Now the person has been told that they have 2. They may end with 1 for sure, or with 2 or nothing by a coin flip. Which do they take, by the two formulas?",
    {
        "the sure thing again": "Losses weigh more than twice as much as gains, but now both offers are losses, and both are multiplied by 2.25. The value of losing 2 is {twice:.2f} times the value of losing 1, and the probability ½ has the weight {weight:.2f}. The product is a smaller loss than the sure one.",
        "the coin": "",
        "either": "This would hold for a person who uses amounts and probabilities without transformation. Here both are transformed, and the value function changes from concave to convex at the reference point.",
    },
    _told,
)


def _asking():
    gain = float(ch06.deference_gain(_number(1.0)[None], _number(0.5)[None], noise=1.0))
    assert gain < 0  # as the lessons say
    passes = float(torch.sigmoid(_number(0.5)))
    return 0.5 + gain, {"passes": passes, "stops": 1 - passes, "loss": -gain}


asking_who_errs = Ask(
    "A machine is certain that its plan has the utility .5. It may act, or ask a person who allows the plan with probability σ(.5). What is the value of asking?",
    Typed(
        within=0.03,
        low="Asking has the value 0 if the person stops every plan. This person allows it with probability σ(.5) = {passes:.2f}. Compared with acting, asking loses {loss:.2f}; this difference is not the value of asking.",
        high="Acting, or asking an infallible person, has the value ½. This person stops the plan with probability {stops:.2f}, and then its value is 0.",
    ),
    _asking,
)
