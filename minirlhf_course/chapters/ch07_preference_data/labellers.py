"""Simulated annotators with known noise and biases, and the models fitted to their labels."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from minirlhf.core.randomness import generator
from minirlhf.core.statistics import sign_test
from minirlhf.data.preferences import preference_probability
from minirlhf.equations import comparisons as worth
from minirlhf.feedback.annotators import dawid_skene, vote_fractions
from minirlhf.feedback.biases import fit_pairs
from minirlhf_course.chapters.ch07_preference_data.bank import SUSPECTS, bank

#: Weight of each trait in a biased annotator's logit, per doubling or for presence; "place" is the first position.
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
    """Pairs of completions of the same prompt.

    Attributes:
        suspects: ``(N, 5)``, :data:`~.bank.SUSPECTS` of the first completion minus those of the second, and a
            column of ones for the position.
        quality: ``(N, 2)``, first minus second.
        padding, gold: ``(N,)``, first minus second.
    """

    suspects: Tensor
    quality: Tensor
    padding: Tensor
    gold: Tensor

    @property
    def everything(self) -> Tensor:
        """``(N, 3)``: right, facts and padding, which determine the gold reward."""
        return torch.cat([self.quality, self.padding.unsqueeze(-1)], -1)


def draw_pairs(count: int, *keys: int | str, plain: bool = False) -> Drawn:
    """Sample pairs of completions, with prompts drawn uniformly; with ``plain``, only completions without padding.

    Right completions open warmly twice as often as wrong ones do, as those of a well-mannered model may.
    """
    pool, rng = bank(), generator("ch07", *keys)
    prompts = torch.randint(len(pool.gold), (count,), generator=rng)
    # The order of the completions differs between questions, so padding is looked up for each question.
    warm = pool.suspects[..., SUSPECTS.index("warm opening")]
    weights = torch.where(warm == pool.quality[..., 0], 2.0, 1.0) * ((pool.padding == 0) | (not plain))
    chosen = torch.multinomial(weights[prompts], 2, generator=rng)  # (N, 2), two different completions
    a, b = chosen.T

    def difference(table: Tensor) -> Tensor:
        return table[prompts, a] - table[prompts, b]

    ones = torch.ones(count, 1, dtype=torch.float64)
    return Drawn(
        torch.cat([difference(pool.suspects), ones], -1),
        difference(pool.quality),
        difference(pool.padding),
        difference(pool.gold),
    )


def label(drawn: Drawn, *keys: int | str, likes: Mapping[str, float] | None = None, flip: float = 0.0) -> Tensor:
    """Sample whether the first completion wins ``(N,)``: Bradley–Terry on gold reward plus the annotator's biases."""
    weights = torch.tensor([(likes or {}).get(name, 0.0) for name in (*SUSPECTS, "place")], dtype=torch.float64)
    probs = preference_probability(drawn.gold + drawn.suspects @ weights, 0 * drawn.gold, temperature=1.0, flip=flip)
    return torch.rand(len(probs), generator=generator("ch07 label", *keys), dtype=torch.float64) < probs


def detection(seed: int, count: int, draws: int) -> dict[str, float]:
    """Return how often each trait is flagged at the 5 % level: without any bias, and with an injected bias for it."""
    names = (*SUSPECTS, "place")
    rates: dict[str, float] = {}

    def add(name: str, value: float) -> None:
        rates[name] = rates.get(name, 0.0) + value / draws

    for repeat in range(draws):
        pairs = draw_pairs(count, "detection", seed, repeat)
        gold = pairs.gold.unsqueeze(-1)
        clean = label(pairs, "clean", seed, repeat)
        winner_traits = pairs.suspects * torch.where(clean, 1.0, -1.0).unsqueeze(-1)
        controls = {"counts": pairs.quality, "gold": gold}
        fits = {kind: fit_pairs(torch.cat([pairs.suspects, control], -1), clean) for kind, control in controls.items()}
        for j, name in enumerate(names):
            num_winners, num_losers = int((winner_traits[:, j] > 0).sum()), int((winner_traits[:, j] < 0).sum())
            add(f"{name} alarm alone {count}", sign_test(num_winners, num_losers) < LEVEL)
            for kind, fit in fits.items():
                add(f"{name} alarm beside {kind} {count}", float(abs(fit.weights[j] / fit.errors[j]) > 1.96))
            biased = label(pairs, "biased", seed, repeat, likes={name: INJECTED[name]})
            fit = fit_pairs(torch.cat([pairs.suspects, gold], -1), biased)
            add(f"{name} found {count}", float(abs(fit.weights[j] / fit.errors[j]) > 1.96))
            power = worth.detection_power(torch.tensor(INJECTED[name]).double(), fit.errors[j] ** -2)
            add(f"{name} predicted {count}", float(power))
    return rates


TEAMS: Mapping[str, tuple[float, ...]] = {
    "alike": (0.75,) * 5,
    "mixed": (0.95, 0.8, 0.65, 0.55, 0.5),
    "contrarian": (0.92, 0.92, 0.5, 0.5, 0.2),
}


def consensus(seed: int, items: int = 500) -> dict[str, float]:
    """Estimate true labels from five annotators by majority and by Dawid and Skene; return the accuracies."""
    accuracy = {}
    for team, accuracies in TEAMS.items():
        rng = generator("ch07 team", team, seed)
        truth = torch.randint(2, (items,), generator=rng)
        correct = torch.rand(items, len(accuracies), generator=rng) < torch.tensor(accuracies)
        labels = torch.where(correct, truth[:, None], 1 - truth[:, None])
        posteriors = {"majority": vote_fractions(labels, 2), "model": dawid_skene(labels, 2).posterior}
        for method, posterior in posteriors.items():
            accuracy[f"{team} {method}"] = float((posterior.argmax(-1) == truth).double().mean())
    return accuracy


def noise(seed: int, count: int = 100) -> dict[str, float]:
    """Fit a linear reward to labels of which a fraction is flipped; return its accuracy and slope on gold reward."""
    results = {}
    train, test = draw_pairs(count, "noise", seed), draw_pairs(4000, "noise test", seed)
    decided = test.gold != 0
    for flip in (0.0, 0.2, 0.4):
        fit = fit_pairs(train.everything, label(train, "noise", seed, flip=flip))
        rewards = test.everything @ fit.weights
        results[f"accuracy {flip}"] = float(((rewards > 0) == (test.gold > 0))[decided].double().mean())
        results[f"slope {flip}"] = float(rewards @ test.gold / (test.gold @ test.gold))
    return results


def selection(seed: int, count: int = 1000) -> dict[str, float]:
    """Train on pairs without padding or on pairs of all kinds; return the padding of the completion of highest reward.

    Also return the weight of length. The reward model sees whether a completion is right, and its length.
    """
    pool, results = bank(), {}
    for name, plain in (("narrow", True), ("wide", False)):
        pairs = draw_pairs(count, "selection", seed, plain=plain)
        x = torch.cat([pairs.quality[:, :1], pairs.suspects[:, :1]], -1)
        fit = fit_pairs(x, label(pairs, "selection", seed))
        rewards = torch.cat([pool.quality[..., :1], pool.suspects[..., :1]], -1) @ fit.weights
        best = rewards.argmax(-1, keepdim=True)
        results[f"{name} padding"] = float(pool.padding.gather(-1, best).mean())
        results[f"{name} weight of length"] = float(fit.weights[1])
    return results


def confirmation(seed: int, rounds: int = 5, count: int = 60) -> dict[str, float]:
    """Compare an annotator biased by the model's score with one who does not see it, after the same first round."""
    results = {}
    test = draw_pairs(4000, "confirmation test", seed)
    for name, score_bias in (("blind", 0.0), ("sees the score", 1.5)):
        features, wins, weights = [], [], torch.zeros(7, dtype=torch.float64)
        for step in range(rounds):
            new_pairs = draw_pairs(count, "confirmation", seed, step)
            x = torch.cat([new_pairs.suspects[:, :4], new_pairs.everything], -1)
            win_probs = torch.sigmoid(new_pairs.gold + score_bias * (x @ weights))
            uniform = torch.rand(count, generator=generator("ch07 confirmation", seed, step), dtype=torch.float64)
            features.append(x)
            wins.append(uniform < win_probs)
            weights = fit_pairs(torch.cat(features), torch.cat(wins), prior_std=2.0).weights
        rewards = torch.cat([test.suspects[:, :4], test.everything], -1) @ weights
        decided = test.gold != 0
        results[f"{name} accuracy"] = float(((rewards > 0) == (test.gold > 0))[decided].double().mean())
        results[f"{name} size"] = float(rewards.std() / test.gold.std())
    return results


def judging(seed: int, count: int = 2000) -> dict[str, float]:
    """Compare writing with judging: one random completion, or the best of four as an annotator with noise judges it.

    The annotator writes as well as the model does.
    """
    pool, rng = bank(), generator("ch07 judging", seed)
    prompts = torch.randint(len(pool.gold), (count,), generator=rng)
    candidates = pool.gold[prompts].gather(-1, torch.randint(pool.gold.shape[1], (count, 4), generator=rng))
    mean_gold = {"written": float(candidates[:, 0].mean())}
    for noise_std in (0.5, 2.0):
        perceived = candidates + noise_std * torch.randn(count, 4, generator=rng, dtype=torch.float64)
        mean_gold[f"judged {noise_std}"] = float(candidates.gather(-1, perceived.argmax(-1, keepdim=True)).mean())
    return mean_gold


def ties(seed: int, count: int = 2000, undecided: float = 1.0) -> dict[str, float]:
    """Fit a slope, truly 1, to labels with ties: ties left out, counted as ½, or modelled as a separate level."""
    rng = generator("ch07 ties", seed)
    x = 1.5 * torch.randn(count, 1, generator=rng, dtype=torch.float64)
    utility = x[:, 0] + torch.rand(count, generator=rng, dtype=torch.float64).logit()
    is_tie, first_wins = utility.abs() < undecided, utility > 0
    results = {"tied": float(is_tie.double().mean())}
    results["slope without ties"] = float(fit_pairs(x[~is_tie], first_wins[~is_tie]).weights)
    results["slope with halves"] = float(fit_pairs(x, torch.where(is_tie, 0.5, first_wins.double())).weights)
    level = torch.where(is_tie, 1, torch.where(first_wins, 2, 0))
    slope, width = (torch.zeros((), dtype=torch.float64, requires_grad=True) for _ in range(2))
    optimiser = torch.optim.LBFGS([slope, width], max_iter=50, line_search_fn="strong_wolfe")

    def loss() -> Tensor:
        optimiser.zero_grad()
        threshold = width.exp()
        probs = worth.graded_preference(slope * x[:, 0], torch.stack([-threshold, threshold]))
        nll = -probs.gather(-1, level.unsqueeze(-1)).log().mean()
        nll.backward()
        return nll

    optimiser.step(loss)
    results["slope with a level"] = float(slope.detach())
    return results


def _same_order(a: Tensor, b: Tensor) -> float:
    """Return Kendall's τ of two lists."""
    i, j = torch.triu_indices(len(a), len(a), 1)
    return float((torch.sign(a[i] - a[j]) * torch.sign(b[i] - b[j])).mean())


def ratings(seed: int, offset: float = 1.0) -> dict[str, float]:
    """Compare ratings with comparisons for twenty completions and forty annotators who read ten of them each.

    They give five-point ratings, with an offset per annotator, or five comparisons. Return Kendall's τ with the truth.
    """
    rng = generator("ch07 ratings", seed)
    truth = torch.randn(20, generator=rng, dtype=torch.float64)
    assigned = torch.stack([torch.randperm(20, generator=rng)[:10] for _ in range(40)])  # (40, 10)
    utilities = truth[assigned] + torch.randn(40, 10, generator=rng, dtype=torch.float64)
    offsets = offset * torch.randn(40, 1, generator=rng, dtype=torch.float64)
    stars = (1.2 * (utilities + offsets) + 3).round().clamp(1, 5)
    taus = {}
    for name, scores in (("mean rating", stars), ("centred rating", stars - stars.mean(-1, keepdim=True))):
        total = torch.zeros(20, dtype=torch.float64).index_add(0, assigned.flatten(), scores.flatten())
        num_ratings = torch.bincount(assigned.flatten(), minlength=20).clamp(min=1)
        taus[name] = _same_order(total / num_ratings, truth)
    first, second = assigned[:, ::2].flatten(), assigned[:, 1::2].flatten()
    eye = torch.eye(20, dtype=torch.float64)
    first_wins = utilities[:, ::2].flatten() > utilities[:, 1::2].flatten()
    taus["comparisons"] = _same_order(fit_pairs(eye[first] - eye[second], first_wins, prior_std=3.0).weights, truth)
    return taus
