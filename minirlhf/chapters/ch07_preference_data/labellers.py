"""Made-up labellers whose noise and biases are known, and what is learned from them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from minirlhf.chapters.ch07_preference_data.bank import SUSPECTS, bank
from minirlhf.core.randomness import generator
from minirlhf.core.statistics import sign_test
from minirlhf.data.preferences import preference_probability
from minirlhf.equations import comparisons as worth
from minirlhf.feedback.annotators import dawid_skene, vote_shares
from minirlhf.feedback.biases import fit_pairs

#: What a biased labeller adds to the logit, per unit of the trait: per doubling, or if it is there. The place is the first one.
INJECTED: Mapping[str, float] = {
    "length": 0.5,
    "markup": 0.4,
    "warm opening": 0.6,
    "agreement": 0.8,
    "place": 0.4,
}
LEVEL = 0.05


@dataclass(frozen=True)
class Drawn:
    """Pairs of replies to the same question.

    Attributes:
        suspects: ``(N, 5)``, :data:`~.bank.SUSPECTS` of the first reply less the second, and a column of ones, the place.
        quality: ``(N, 2)``, likewise.
        padding, gold: ``(N,)``, likewise.
    """

    suspects: Tensor
    quality: Tensor
    padding: Tensor
    gold: Tensor

    @property
    def everything(self) -> Tensor:
        """``(N, 3)``: right, facts and padding, from which gold follows."""
        return torch.cat([self.quality, self.padding.unsqueeze(-1)], -1)


def draw_pairs(count: int, *keys: int | str, plain: bool = False) -> Drawn:
    """Pairs of replies to questions taken evenly; ``plain`` ones never pad.

    The model that wrote them opens warmly twice as often where it is right as where it is wrong, as a well-mannered one may.
    """
    replies, rng = bank(), generator("ch07", *keys)
    prompts = torch.randint(len(replies.gold), (count,), generator=rng)
    # All questions have their replies in an order of their own; those that never pad are looked up in each.
    warm = replies.suspects[..., SUSPECTS.index("warm opening")]
    often = torch.where(warm == replies.quality[..., 0], 2.0, 1.0) * ((replies.padding == 0) | (not plain))
    chosen = torch.multinomial(often[prompts], 2, generator=rng)  # (N, 2), two different replies
    a, b = chosen.T

    def apart(table: Tensor) -> Tensor:
        return table[prompts, a] - table[prompts, b]

    ones = torch.ones(count, 1, dtype=torch.float64)
    return Drawn(
        torch.cat([apart(replies.suspects), ones], -1),
        apart(replies.quality),
        apart(replies.padding),
        apart(replies.gold),
    )


def label(drawn: Drawn, *keys: int | str, likes: Mapping[str, float] | None = None, flip: float = 0.0) -> Tensor:
    """Which first replies win ``(N,)``: Bradley–Terry on gold and on what the labeller likes besides."""
    weights = torch.tensor([(likes or {}).get(name, 0.0) for name in (*SUSPECTS, "place")], dtype=torch.float64)
    chance = preference_probability(drawn.gold + drawn.suspects @ weights, 0 * drawn.gold, temperature=1.0, flip=flip)
    return torch.rand(len(chance), generator=generator("ch07 label", *keys), dtype=torch.float64) < chance


def detection(seed: int, count: int, draws: int) -> dict[str, float]:
    """How often each suspect raises an alarm, at a level of 5 %, without and with a bias of its own."""
    names = (*SUSPECTS, "place")
    found: dict[str, float] = {}

    def add(name: str, value: float) -> None:
        found[name] = found.get(name, 0.0) + value / draws

    for turn in range(draws):
        drawn = draw_pairs(count, "detection", seed, turn)
        gold = drawn.gold.unsqueeze(-1)
        clean = label(drawn, "clean", seed, turn)
        towards = drawn.suspects * torch.where(clean, 1.0, -1.0).unsqueeze(-1)
        beside = {"counts": drawn.quality, "gold": gold}
        fits = {how: fit_pairs(torch.cat([drawn.suspects, q], -1), clean) for how, q in beside.items()}
        for j, name in enumerate(names):
            more, less = int((towards[:, j] > 0).sum()), int((towards[:, j] < 0).sum())
            add(f"{name} alarm alone {count}", sign_test(more, less) < LEVEL)
            for how, fit in fits.items():
                add(f"{name} alarm beside {how} {count}", float(abs(fit.weights[j] / fit.errors[j]) > 1.96))
            biased = label(drawn, "biased", seed, turn, likes={name: INJECTED[name]})
            fit = fit_pairs(torch.cat([drawn.suspects, gold], -1), biased)
            add(f"{name} found {count}", float(abs(fit.weights[j] / fit.errors[j]) > 1.96))
            power = worth.detection_power(torch.tensor(INJECTED[name]).double(), fit.errors[j] ** -2)
            add(f"{name} predicted {count}", float(power))
    return found


TEAMS: Mapping[str, tuple[float, ...]] = {
    "alike": (0.75,) * 5,
    "mixed": (0.95, 0.8, 0.65, 0.55, 0.5),
    "contrarian": (0.92, 0.92, 0.5, 0.5, 0.2),
}


def consensus(seed: int, items: int = 500) -> dict[str, float]:
    """Truth from five annotators: by majority and by Dawid and Skene."""
    found = {}
    for team, accuracies in TEAMS.items():
        rng = generator("ch07 team", team, seed)
        truth = torch.randint(2, (items,), generator=rng)
        right = torch.rand(items, len(accuracies), generator=rng) < torch.tensor(accuracies)
        labels = torch.where(right, truth[:, None], 1 - truth[:, None])
        both = {"majority": vote_shares(labels, 2), "model": dawid_skene(labels, 2).posterior}
        for how, posterior in both.items():
            found[f"{team} {how}"] = float((posterior.argmax(-1) == truth).double().mean())
    return found


def noise(seed: int, count: int = 100) -> dict[str, float]:
    """A linear reward from labels of which a share was turned round: how steep, and how often right."""
    found = {}
    drawn, test = draw_pairs(count, "noise", seed), draw_pairs(4000, "noise test", seed)
    decided = test.gold != 0
    for flip in (0.0, 0.2, 0.4):
        fit = fit_pairs(drawn.everything, label(drawn, "noise", seed, flip=flip))
        rewards = test.everything @ fit.weights
        found[f"accuracy {flip}"] = float(((rewards > 0) == (test.gold > 0))[decided].double().mean())
        found[f"slope {flip}"] = float(rewards @ test.gold / (test.gold @ test.gold))
    return found


def selection(seed: int, count: int = 1000) -> dict[str, float]:
    """Pairs that never pad against pairs of all kinds: what is the reply of highest reward then worth?

    The reward model sees whether a reply is right, and its length.
    """
    replies, found = bank(), {}
    for name, plain in (("narrow", True), ("wide", False)):
        drawn = draw_pairs(count, "selection", seed, plain=plain)
        x = torch.cat([drawn.quality[:, :1], drawn.suspects[:, :1]], -1)
        fit = fit_pairs(x, label(drawn, "selection", seed))
        rewards = torch.cat([replies.quality[..., :1], replies.suspects[..., :1]], -1) @ fit.weights
        best = rewards.argmax(-1, keepdim=True)
        found[f"{name} padding"] = float(replies.padding.gather(-1, best).mean())
        found[f"{name} weight of length"] = float(fit.weights[1])
    return found


def confirmation(seed: int, rounds: int = 5, count: int = 60) -> dict[str, float]:
    """A labeller who sees the model's score and leans towards it, against one who does not, after the same first round."""
    found = {}
    test = draw_pairs(4000, "confirmation test", seed)
    for name, lean in (("blind", 0.0), ("sees the score", 1.5)):
        pairs, wins, weights = [], [], torch.zeros(7, dtype=torch.float64)
        for turn in range(rounds):
            drawn = draw_pairs(count, "confirmation", seed, turn)
            x = torch.cat([drawn.suspects[:, :4], drawn.everything], -1)
            chance = torch.sigmoid(drawn.gold + lean * (x @ weights))
            coin = torch.rand(count, generator=generator("ch07 confirmation", seed, turn), dtype=torch.float64)
            pairs.append(x)
            wins.append(coin < chance)
            weights = fit_pairs(torch.cat(pairs), torch.cat(wins), prior_std=2.0).weights
        rewards = torch.cat([test.suspects[:, :4], test.everything], -1) @ weights
        decided = test.gold != 0
        found[f"{name} accuracy"] = float(((rewards > 0) == (test.gold > 0))[decided].double().mean())
        found[f"{name} size"] = float(rewards.std() / test.gold.std())
    return found


def judging(seed: int, count: int = 2000) -> dict[str, float]:
    """Somebody who writes as well as the model does, and sees differences with noise: own reply, or the best of four as they see it."""
    replies, rng = bank(), generator("ch07 judging", seed)
    prompts = torch.randint(len(replies.gold), (count,), generator=rng)
    four = replies.gold[prompts].gather(-1, torch.randint(replies.gold.shape[1], (count, 4), generator=rng))
    found = {"written": float(four[:, 0].mean())}
    for spread in (0.5, 2.0):
        felt = four + spread * torch.randn(count, 4, generator=rng, dtype=torch.float64)
        found[f"judged {spread}"] = float(four.gather(-1, felt.argmax(-1, keepdim=True)).mean())
    return found


def ties(seed: int, count: int = 2000, undecided: float = 1.0) -> dict[str, float]:
    """The slope of a reward whose true slope is 1, from labels with ties: left out, as halves, and as a level of their own."""
    rng = generator("ch07 ties", seed)
    x = 1.5 * torch.randn(count, 1, generator=rng, dtype=torch.float64)
    felt = x[:, 0] + torch.rand(count, generator=rng, dtype=torch.float64).logit()
    tied, won = felt.abs() < undecided, felt > 0
    found = {"tied": float(tied.double().mean())}
    found["slope without ties"] = float(fit_pairs(x[~tied], won[~tied]).weights)
    found["slope with halves"] = float(fit_pairs(x, torch.where(tied, 0.5, won.double())).weights)
    level = torch.where(tied, 1, torch.where(won, 2, 0))
    slope, width = (torch.zeros((), dtype=torch.float64, requires_grad=True) for _ in range(2))
    optimiser = torch.optim.LBFGS([slope, width], max_iter=50, line_search_fn="strong_wolfe")

    def loss() -> Tensor:
        optimiser.zero_grad()
        cut = width.exp()
        chances = worth.graded_preference(slope * x[:, 0], torch.stack([-cut, cut]))
        value = -chances.gather(-1, level.unsqueeze(-1)).log().mean()
        value.backward()
        return value

    optimiser.step(loss)
    found["slope with a level"] = float(slope.detach())
    return found


def _same_order(a: Tensor, b: Tensor) -> float:
    """Kendall's τ of two lists."""
    i, j = torch.triu_indices(len(a), len(a), 1)
    return float((torch.sign(a[i] - a[j]) * torch.sign(b[i] - b[j])).mean())


def ratings(seed: int, offset: float = 1.0) -> dict[str, float]:
    """Twenty replies, forty people who read ten each: five-point ratings, with an offset per person, or five comparisons."""
    rng = generator("ch07 ratings", seed)
    truth = torch.randn(20, generator=rng, dtype=torch.float64)
    read = torch.stack([torch.randperm(20, generator=rng)[:10] for _ in range(40)])  # (40, 10)
    felt = truth[read] + torch.randn(40, 10, generator=rng, dtype=torch.float64)
    shift = offset * torch.randn(40, 1, generator=rng, dtype=torch.float64)
    stars = (1.2 * (felt + shift) + 3).round().clamp(1, 5)
    found = {}
    for name, numbers in (("mean rating", stars), ("centred rating", stars - stars.mean(-1, keepdim=True))):
        total = torch.zeros(20, dtype=torch.float64).index_add(0, read.flatten(), numbers.flatten())
        often = torch.bincount(read.flatten(), minlength=20).clamp(min=1)
        found[name] = _same_order(total / often, truth)
    one, other = read[:, ::2].flatten(), read[:, 1::2].flatten()
    eye = torch.eye(20, dtype=torch.float64)
    won = felt[:, ::2].flatten() > felt[:, 1::2].flatten()
    found["comparisons"] = _same_order(fit_pairs(eye[one] - eye[other], won, prior_std=3.0).weights, truth)
    return found
