"""The ledger of chapter 15: what judges say, one by one and together."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from minirlhf.equations import ai_feedback
from minirlhf_course.chapters.ch15_ai_feedback import equations
from minirlhf_course.ledger.registry import Comparison, Draw, check


def _first_wins(first: float, second: float, liking: float) -> float:
    """The chance that the reply shown first wins, if the first place is worth ``liking``."""
    a, b = math.exp(first + liking), math.exp(second)
    return a / (a + b)


def _lean(first: float, second: float, liking: float) -> float:
    """Log-odds of the same."""
    p = _first_wins(first, second, liking)
    return math.log(p / (1 - p))


# -- letters -----------------------------------------------------------------------------------------------------


@check(
    "eq:letter-preference",
    "value", "The probability of the first letter, given that a reply begins with one of the two letters.",
    of=equations.letter_preference,
    against="all replies of a toy model that begin with one of the two letters",
    wrong={
        "the letter's own probability": lambda logits, *, first, second: logits.softmax(-1)[..., first],
        "letters exchanged": lambda logits, *, first, second: equations.letter_preference(
            logits, first=second, second=first
        ),
        "ratio of logits": lambda logits, *, first, second: logits[..., first] / (logits[..., first] + logits[..., second]),
    },
)  # fmt: skip
def _(preference, draw: Draw) -> Iterator[Comparison]:
    for first, second in ((1, 2), (3, 1)):
        toy = draw.toy(vocab_size=4, max_len=2)
        begin, chance = toy.completions().tokens[:, 0], toy.distribution()[0].detach()
        a, b = (float(chance[begin == letter].sum()) for letter in (first, second))
        logits = toy(torch.tensor([[toy.vocab_size]])).logits[0, -1, : toy.vocab_size].detach()
        yield preference(logits, first=first, second=second), a / (a + b)


@check(
    "eq:constitutional-preference",
    "value",
    "The mean preference for the first reply over labels that each use a random principle.",
    of=equations.constitutional_preference,
    against="all draws of a principle and of its label",
    wrong={
        "not clamped": lambda probabilities, *, clamp: probabilities.mean(-1),
        "clamped after the mean": lambda probabilities, *, clamp: probabilities.mean(-1).clamp(clamp, 1 - clamp),
        "votes counted": lambda probabilities, *, clamp: (probabilities > 0.5).double().mean(-1),
        "principles must all agree": lambda probabilities, *, clamp: probabilities.clamp(clamp, 1 - clamp).prod(-1),
    },
)
def _(preference, draw: Draw) -> Iterator[Comparison]:
    chances = torch.cat(
        [draw.uniform(1, low=0.02, high=0.1), draw.uniform(2, low=0.5, high=0.6), draw.uniform(1, low=0.9)]
    )
    for clamp in (0.2, 0.4):
        kept = [sorted((clamp, p, 1 - clamp))[1] for p in chances.tolist()]
        share = 0.0
        for one, two in itertools.product(range(4), repeat=2):
            for labels in itertools.product((0, 1), repeat=2):
                chance = math.prod(
                    kept[k] if label else 1 - kept[k] for k, label in zip((one, two), labels, strict=True)
                )
                share += chance / 16 * sum(labels) / 2
        yield preference(chances, clamp=clamp), share


# -- places ------------------------------------------------------------------------------------------------------


def _judged(draw: Draw) -> tuple[Tensor, Tensor, list[float], list[float]]:
    """The leans on four pairs as given and exchanged; the differences of the rewards, and how much the first place is liked."""
    firsts, seconds, likings = (
        draw.normal(4).tolist(),
        draw.normal(4).tolist(),
        draw.uniform(4, low=0.5, high=2.0).tolist(),
    )
    pairs = list(zip(firsts, seconds, likings, strict=True))
    given = torch.tensor([_lean(a, b, c) for a, b, c in pairs], dtype=torch.float64)
    exchanged = torch.tensor([_lean(b, a, c) for a, b, c in pairs], dtype=torch.float64)
    return given, exchanged, [a - b for a, b, _ in pairs], likings


_WRONG_ORDERS = {
    "one order": lambda given, exchanged: (given, given),
    "the second answer about the same reply": lambda given, exchanged: (
        (given + exchanged) / 2,
        (given - exchanged) / 2,
    ),
    "not halved": lambda given, exchanged: (given - exchanged, given + exchanged),
    "mean of the probabilities": lambda given, exchanged: (
        torch.logit((torch.sigmoid(given) + torch.sigmoid(-exchanged)) / 2),
        torch.logit((torch.sigmoid(given) + torch.sigmoid(exchanged)) / 2),
    ),
}


@check(
    "eq:both-orders",
    "value",
    "Verdicts in both orders give the reward difference, whatever the position bias.",
    of=ai_feedback.split_position_bias,
    against="the rewards of a judge with a bias for the first position",
    wrong=_WRONG_ORDERS,
)
def _(split_position_bias, draw: Draw) -> Comparison:
    given, exchanged, differences, _ = _judged(draw)
    return split_position_bias(given, exchanged)[0], torch.tensor(differences, dtype=torch.float64)


@check(
    "eq:place-bias",
    "value",
    "Verdicts in both orders give the position bias, whatever the rewards.",
    of=ai_feedback.split_position_bias,
    against="the bias of the judge",
    wrong=_WRONG_ORDERS,
)
def _(split_position_bias, draw: Draw) -> Comparison:
    given, exchanged, _, likings = _judged(draw)
    return split_position_bias(given, exchanged)[1], torch.tensor(likings, dtype=torch.float64)


def _outcomes(difference: float, liking: float) -> dict[tuple[str, str], float]:
    """The chance of each pair of verdicts, in words of the replies; the better one is shown first, then second."""
    first, second = _first_wins(difference, 0.0, liking), _first_wins(0.0, difference, liking)
    return {
        (one, two): (first if one == "better" else 1 - first) * (second if two == "worse" else 1 - second)
        for one, two in itertools.product(("better", "worse"), repeat=2)
    }


_WRONG_SWAPS = {
    "one order": lambda difference, bias: (torch.sigmoid(difference + bias), torch.sigmoid(-difference - bias)),
    "the second order like the first": lambda difference, bias: (
        torch.sigmoid(difference + bias) ** 2,
        torch.sigmoid(-difference - bias) ** 2,
    ),
    "no liking for a place": lambda difference, bias: (
        torch.sigmoid(difference) ** 2,
        torch.sigmoid(-difference) ** 2,
    ),
    "right and wrong exchanged": lambda difference, bias: equations.swap_outcomes(difference, bias)[::-1],
}


@check(
    "eq:swap-right",
    "value",
    "The probability that both verdicts name the better reply.",
    of=equations.swap_outcomes,
    against="the four pairs of verdicts",
    wrong=_WRONG_SWAPS,
)
def _(swap_outcomes, draw: Draw) -> Comparison:
    difference, liking = draw.uniform(4, low=0.3, high=2.0), draw.uniform(4, low=0.5, high=2.0)
    expected = [_outcomes(d, b)["better", "better"] for d, b in zip(difference.tolist(), liking.tolist(), strict=True)]
    return swap_outcomes(difference, liking)[0], torch.tensor(expected, dtype=torch.float64)


@check(
    "eq:swap-wrong",
    "value",
    "The probability that both verdicts name the worse reply.",
    of=equations.swap_outcomes,
    against="the four pairs of verdicts",
    wrong=_WRONG_SWAPS,
)
def _(swap_outcomes, draw: Draw) -> Comparison:
    difference, liking = draw.uniform(4, low=0.3, high=2.0), draw.uniform(4, low=0.5, high=2.0)
    expected = [_outcomes(d, b)["worse", "worse"] for d, b in zip(difference.tolist(), liking.tolist(), strict=True)]
    return swap_outcomes(difference, liking)[1], torch.tensor(expected, dtype=torch.float64)


# -- one's own ---------------------------------------------------------------------------------------------------


@check(
    "eq:self-preference",
    "value",
    "The difference is the self-preference, however often the judge's own replies are better.",
    of=equations.self_preference,
    against="a judge with a known probability of recognising the better reply, plus a known preference for its own",
    wrong={
        "win rate of its own replies against others'": lambda judged, gold, own: (
            judged[own].mean() - judged[~own].mean()
        ),
        "against what people say of its own": lambda judged, gold, own: (judged - gold.to(judged))[own].mean(),
        "worse replies too": lambda judged, gold, own: judged[own].mean() - judged[gold & ~own].mean(),
        "others minus own": lambda judged, gold, own: -equations.self_preference(judged, gold, own),
    },
)
def _(self_preference, draw: Draw) -> Iterator[Comparison]:
    seen, liking = float(draw.uniform(low=0.3, high=0.5)), float(draw.uniform(low=0.2, high=0.4))
    missed = float(draw.uniform(low=0.05, high=0.2))
    for better_own, worse_own, better_other, worse_other in ((5, 2, 2, 4), (1, 3, 4, 1)):
        rows = [(seen + liking, True, True)] * better_own + [(missed + liking, False, True)] * worse_own
        rows += [(seen, True, False)] * better_other + [(missed, False, False)] * worse_other
        judged, gold, own = zip(*(rows[i] for i in draw.permutation(len(rows)).tolist()), strict=True)
        yield (
            self_preference(torch.tensor(judged, dtype=torch.float64), torch.tensor(gold), torch.tensor(own)),
            liking,
        )


# -- judges of judges, and tournaments ---------------------------------------------------------------------------


@check(
    "eq:meta-judge",
    "value",
    "The odds of an accepted verdict are its odds before, times the ratio of acceptance rates of correct and "
    "wrong verdicts.",
    of=equations.meta_judge_precision,
    against="log-odds plus the log-likelihood ratio of the meta-judge's verdict",
    wrong={
        "all right verdicts that are kept": lambda accuracy, keeps_right, keeps_wrong: accuracy * keeps_right,
        "the meta-judge's own accuracy": lambda accuracy, keeps_right, keeps_wrong: (keeps_right + 1 - keeps_wrong) / 2,
        "the judge forgotten": lambda accuracy, keeps_right, keeps_wrong: keeps_right / (keeps_right + keeps_wrong),
    },
)
def _(screened, draw: Draw) -> Comparison:
    p, t, f = (
        draw.uniform(4, low=0.4, high=0.8),
        draw.uniform(4, low=0.7, high=0.95),
        draw.uniform(4, low=0.1, high=0.5),
    )
    return screened(p, t, f), torch.sigmoid(torch.logit(p) + t.log() - f.log())


def _bracket(players: Sequence[int], winner: dict[tuple[int, int], int], played: list[tuple[int, int]]) -> int:
    """Who wins a bracket, if ``winner`` says who wins each game; the games that were played are noted."""
    if len(players) == 1:
        return players[0]
    half = len(players) // 2
    game = (_bracket(players[:half], winner, played), _bracket(players[half:], winner, played))
    played.append(game)
    return winner[game]


def _champions(wins: Tensor) -> Tensor:
    """The chance of each player, from every way in which all games that could be played may end."""
    size = len(wins)
    games = list(itertools.combinations(range(size), 2))
    found = torch.zeros(size, dtype=torch.float64)
    for ends in itertools.product((0, 1), repeat=len(games)):
        winner = {game: game[end] for game, end in zip(games, ends, strict=True)}
        found[_bracket(range(size), winner, [])] += math.prod(
            float(wins[game[end], game[1 - end]]) for game, end in zip(games, ends, strict=True)
        )
    return found


def _pairwise(draw: Draw, size: int) -> Tensor:
    """Chances that sum to 1 for both orders, and belong to no ranking."""
    upper = draw.uniform(size, size, low=0.1, high=0.9).triu(1)
    return upper + (1 - upper.mT).tril(-1)


@check(
    "eq:knockout",
    "value",
    "The probability that each reply wins the tournament.",
    of=equations.knockout,
    against="all outcomes of the games between all pairs",
    wrong={
        "all pairs meet": lambda wins: (wins - wins.diag().diag()).sum(-1) / math.comb(len(wins), 2),
        "no loss at all": lambda wins: wins.clone().fill_diagonal_(1.0).prod(-1),
        "the half is won by whoever is likeliest to": lambda wins: equations.knockout(wins.round()),
        "losers go on": lambda wins: equations.knockout(wins.mT),
    },
)
def _(knockout, draw: Draw) -> Iterator[Comparison]:
    for size in (2, 4):
        wins = _pairwise(draw, size)
        yield knockout(wins), _champions(wins)


@check(
    "eq:knockout",
    "halves",
    "The strong reply of one half reaches the final, where it meets each of the other half with probability 1/4.",
    of=equations.knockout,
    against="eight replies, of which one never loses within its half, while all other games are fair coins",
    wrong={
        "all pairs meet": lambda wins: (wins - wins.diag().diag()).sum(-1) / math.comb(len(wins), 2),
        "losers go on": lambda wins: equations.knockout(wins.mT),
    },
)
def _(knockout, draw: Draw) -> Comparison:
    star = draw.integer(0, 3)
    wins = torch.full((8, 8), 0.5, dtype=torch.float64)
    wins[star, :4], wins[:4, star] = 1.0, 0.0
    finals = draw.uniform(4, low=0.6, high=0.9)
    wins[star, 4:], wins[4:, star] = finals, 1 - finals
    expected = torch.zeros(8, dtype=torch.float64)
    expected[star], expected[4:] = finals.mean(), (1 - finals) / 4
    return knockout(wins), expected
