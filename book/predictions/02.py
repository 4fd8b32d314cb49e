"""The prediction questions of chapter 02; see ``book/_ext/asking.py``."""

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
    "In the same head, what is the output of position 2?",
    Typed(
        within=0.4,
        form=".2f",
        low="With the weights .6 and .3 of position 3 the result is {third:.0f}, as there. But these two weights do not sum to one. Each position divides by the sum over the positions that it sees.",
        high="{even:.0f} would be the plain mean of both values. But the first value has twice the weight of the second.",
    ),
    _second_position,
)


def _blind_at_once():
    right, blind = torch.tensor([1.0, 0, 0, 0], dtype=torch.float64), torch.full((4,), 0.25, dtype=torch.float64)
    cup = float(exact.divergence(right, blind))
    entropy = -sum(p * math.log(p) for p in (0.2, 0.8))  # whether a demonstration thinks
    return 0.8 * cup, {"cup": cup, "entropy": entropy, "loss": 0.8 * cup + entropy}


blind_at_once = Ask(
    "Suppose that a model has learned everything about these demonstrations except one thing: in a direct answer it does not know under which cup the ball is."
    " By how many nats per demonstration does it diverge from them?",
    Typed(
        within=0.12,
        unit="nats",
        low="Four demonstrations in five answer directly, and each of them costs a guess among four cups.",
        high="A guess among four cups costs log 4 = {cup:.2f} nats. One demonstration in five writes a chain of thought, which costs nothing here. The loss is {loss:.2f} nats, because it includes the demonstrations' entropy of {entropy:.2f}.",
    ),
    _blind_at_once,
)

tail = Ask(
    "Suppose that at each position the wrong words have 5 % of the probability together. With what probability does a completion of twenty tokens contain at least one of them?",
    Typed(
        within=0.08,
        low="5 % is the probability at one position. There are twenty positions, and one wrong word is enough.",
        high="Twenty times 5 % is one wrong word per completion on average. Some completions have two or three, so others have none.",
    ),
    lambda: 1 - math.prod([0.95] * 20),
)

SETTINGS = {
    "low (T = .3), top-p .5": "T0.3_p0.5",
    "low (T = .3), no truncation": "T0.3_p1.0",
    "the model itself (T = 1), no truncation": "T1.0_p1.0",
    "high (T = 1.5), no truncation": "T1.5_p1.0",
    "high (T = 1.5), top-p .5": "T1.5_p0.5",
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
    assert max(found["itself_mean"], found["hot_mean"]) < found["right_mean"]  # as the explanations say
    return answer, found


best_of_eight = Ask(
    "We sample eight completions of each question in the assistant task and keep only the best, by the gold reward. At which of five settings is the best of eight highest?",
    {
        "low (T = .3), top-p .5": "At a low temperature with truncation the completions differ least: the gap between worst and best is {cut_gap:.1f}, compared with {right_gap:.1f}. The best has a gold reward of {cut_best:.2f}.",
        "low (T = .3), no truncation": "At a low temperature the completions differ less: the gap between worst and best is {cold_gap:.1f}, compared with {right_gap:.1f}. The best has a gold reward of {cold_best:.2f}.",
        "the model itself (T = 1), no truncation": "The tail of bad words remains. It lowers the average completion to {itself_mean:.2f}, compared with {right_mean:.2f}. The wider gap between worst and best ({itself_gap:.1f}, compared with {right_gap:.1f}) does not compensate for this. The best has a gold reward of {itself_best:.2f}.",
        "high (T = 1.5), no truncation": "A high temperature makes completions differ, but it also lets nonsense in, and eight samples do not compensate for this. The average completion has {hot_mean:.2f}, compared with {right_mean:.2f}, and the best has {hot_best:.2f}.",
        "high (T = 1.5), top-p .5": "",
    },
    _best_of_eight,
)
