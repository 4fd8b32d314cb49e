"""What chapter 02 asks its readers to predict; see ``book/_ext/asking.py``."""

import math

import torch
from asking import Ask, Typed, mean, seeds

from minirlhf.core import exact
from minirlhf.equations.transformer import attention


def _second_position():
    keys = torch.tensor([6.0, 3.0, 1.0], dtype=torch.float64).log()[:, None]
    values = torch.tensor([10.0, 20.0, 0.0], dtype=torch.float64)[:, None]
    gathered = attention(torch.ones_like(keys), keys, values)[:, 0]
    return float(gathered[1]), {"third": float(gathered[2]), "even": float(values[:2].mean())}


second_position = Ask(
    "In the same head, what does position 2 gather?",
    Typed(
        within=0.4,
        form=".2f",
        low="With the weights .6 and .3 of position 3 one has {third:.0f} again. But these two do not sum to one, and each position divides by the sum over what it sees.",
        high="{even:.0f} would be the plain mean of both values. The first key still counts twice as much as the second.",
    ),
    _second_position,
)


def _blind_at_once():
    right, blind = torch.tensor([1.0, 0, 0, 0], dtype=torch.float64), torch.full((4,), 0.25, dtype=torch.float64)
    cup = float(exact.divergence(right, blind))
    entropy = -sum(p * math.log(p) for p in (0.2, 0.8))  # whether a demonstration thinks
    return 0.8 * cup, {"cup": cup, "entropy": entropy, "loss": 0.8 * cup + entropy}


blind_at_once = Ask(
    "Suppose that a model has learned all about these demonstrations but one thing: when it answers at once, it does not know under which cup the ball is."
    " By how many nats per demonstration does it diverge from them?",
    Typed(
        within=0.12,
        unit="nats",
        low="Four demonstrations in five answer at once, and at each of these the model pays for a blind guess among four cups.",
        high="log 4 = {cup:.2f} nats is what a blind guess among four cups costs. One demonstration in five thinks first, and there the model pays nothing. {loss:.2f} nats is the loss: it has the demonstrations' entropy of {entropy:.2f} in it.",
    ),
    _blind_at_once,
)

tail = Ask(
    "Say that at each place the wrong words have a twentieth of the probability together. With what probability does at least one of them come in a reply of twenty tokens?",
    Typed(
        within=0.08,
        low="A twentieth is the chance at one place. There are twenty places, and one wrong word is enough.",
        high="Twenty twentieths make one wrong word per reply on average. Some replies have two or three, and so others have none.",
    ),
    lambda: 1 - math.prod([0.95] * 20),
)

SETTINGS = {
    "cold (T = .3), top-p .5": "T0.3_p0.5",
    "cold (T = .3), nothing cut": "T0.3_p1.0",
    "the model itself (T = 1), nothing cut": "T1.0_p1.0",
    "hot (T = 1.5), nothing cut": "T1.5_p1.0",
    "hot (T = 1.5), top-p .5": "T1.5_p0.5",
}


def _best_of_eight():
    worth = {words: seeds("ch02", f"best_at_{setting}") for words, setting in SETTINGS.items()}
    [answer] = {max(worth, key=lambda words: worth[words][seed]) for seed in range(len(next(iter(worth.values()))))}
    names = ("cut", "cold", "itself", "hot", "right")
    found = {
        f"{name}_{what}": mean("ch02", f"{what}_at_{setting}")
        for name, setting in zip(names, SETTINGS.values(), strict=True)
        for what in ("best", "gap", "mean")
    }
    assert found["cut_gap"] < found["cold_gap"] < found["right_gap"] < min(found["itself_gap"], found["hot_gap"])
    assert max(found["itself_mean"], found["hot_mean"]) < found["right_mean"]  # as the lessons say
    return answer, found


best_of_eight = Ask(
    "Of eight replies to a question in the assistant world only the best one counts, by the true reward. At which of five settings is it worth most?",
    {
        "cold (T = .3), top-p .5": "Cold and cut, the replies differ least: from the worst of eight to the best it is {cut_gap:.1f} points, in place of {right_gap:.1f}. The best is worth {cut_best:.2f}.",
        "cold (T = .3), nothing cut": "Cold replies differ less in what they are worth: from the worst of eight to the best it is {cold_gap:.1f} points, in place of {right_gap:.1f}. The best is worth {cold_best:.2f}.",
        "the model itself (T = 1), nothing cut": "The worst words are not cut: the average reply is worth {itself_mean:.2f}, in place of {right_mean:.2f}, and a wider gap from the worst of eight to the best ({itself_gap:.1f} in place of {right_gap:.1f}) does not make up for that. The best is worth {itself_best:.2f}.",
        "hot (T = 1.5), nothing cut": "Heat makes replies differ, but it also lets nonsense in, and eight tries do not make up for that: the average reply is worth {hot_mean:.2f}, in place of {right_mean:.2f}, and the best {hot_best:.2f}.",
        "hot (T = 1.5), top-p .5": "",
    },
    _best_of_eight,
)
