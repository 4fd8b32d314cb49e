"""Chapter 24: monitors with a fine, weak labels and debates, against numerical optima, quadrature and enumeration."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import cache, partial
from itertools import product

import torch
from torch import Tensor

from minirlhf.core import exact
from minirlhf_course.chapters.ch24_oversight import debate, monitors, weak
from minirlhf_course.ledger.registry import Comparison, Draw, check


def optimum(ref: Tensor, earned: Tensor, beta: float) -> Tensor:
    """The best distribution, found numerically."""
    return exact.maximise(partial(exact.regularised_value, ref_probs=ref, rewards=earned, beta=beta), len(ref))


# -- monitors --------------------------------------------------------------------------------------------------------


@check(
    "eq:monitored-optimum",
    "value",
    "No policy has a larger mean of the reward minus the fines, minus β times the KL to the initial policy.",
    of=monitors.monitored_policy,
    against="a numerical search for the best policy",
    tolerance=1e-6,
    wrong={
        "the fine is paid for each completion": lambda ref_logps, rewards, flags, *, fine, beta: torch.log_softmax(
            ref_logps + (rewards - fine) / beta, -1
        ),
        "the fine is not divided by beta": lambda ref_logps, rewards, flags, *, fine, beta: torch.log_softmax(
            ref_logps + rewards / beta - fine * flags, -1
        ),
        "flagged completions are left out": lambda ref_logps, rewards, flags, *, fine, beta: torch.log_softmax(
            ref_logps + torch.log1p(-flags) + rewards / beta, -1
        ),
        "without the initial policy": lambda ref_logps, rewards, flags, *, fine, beta: torch.log_softmax(
            (rewards - fine * flags) / beta, -1
        ),
    },
)
def _(monitored_policy, draw: Draw) -> Iterator[Comparison]:
    for fine, beta in ((0.7, 0.6), (1.8, 1.1)):
        ref, rewards, flags = draw.distribution(4), draw.uniform(4), draw.uniform(4, low=0.05, high=0.95)
        best = optimum(ref, rewards - fine * flags, beta)
        yield monitored_policy(ref.log(), rewards, flags, fine=fine, beta=beta).exp(), best


@check(
    "eq:hide-odds",
    "value",
    "A fine multiplies the odds of the silent cheat against the spoken one by the exponential of the fine times "
    "the difference in visibility, over β.",
    of=monitors.silence_log_odds,
    against="the two cheats in a policy that is found numerically",
    tolerance=1e-5,
    wrong={
        "the visible cheat gains": lambda ref_logps, flags, *, fine, beta: (
            ref_logps[..., 1] - ref_logps[..., 0] - fine * (flags[..., 0] - flags[..., 1]) / beta
        ),
        "the silent cheat is never flagged": lambda ref_logps, flags, *, fine, beta: (
            ref_logps[..., 1] - ref_logps[..., 0] + fine * flags[..., 0] / beta
        ),
        "multiplied by beta": lambda ref_logps, flags, *, fine, beta: (
            ref_logps[..., 1] - ref_logps[..., 0] + fine * (flags[..., 0] - flags[..., 1]) * beta
        ),
    },
)
def _(silence_log_odds, draw: Draw) -> Iterator[Comparison]:
    for fine, beta in ((0.6, 0.5), (1.3, 0.8)):
        ref = draw.distribution(3)
        flags = torch.stack(
            [draw.uniform(low=0.0, high=0.2), draw.uniform(low=0.7, high=1), draw.uniform(low=0.1, high=0.4)]
        )
        gap = draw.uniform(low=0.3, high=0.7)
        earned = torch.stack([1 - gap, torch.ones_like(gap), torch.ones_like(gap)]) - fine * flags
        best = optimum(ref, earned, beta)
        yield silence_log_odds(ref[1:].log(), flags[1:], fine=fine, beta=beta), (best[2] / best[1]).log()


@check(
    "eq:stopping-fine",
    "value",
    "At this fine honest work and the cheat are equally probable. It is infinite if the cheat looks like honest work, "
    "and 0 if the initial policy and the penalty suffice.",
    of=monitors.stopping_fine,
    against="the policy at this fine, found numerically",
    tolerance=1e-6,
    wrong={
        "false positives forgotten": lambda ref_logps, flags, *, gain, beta: (
            max(0.0, gain - beta * float(ref_logps[0] - ref_logps[1])) / float(flags[1])
        ),
        "the initial policy forgotten": lambda ref_logps, flags, *, gain, beta: (
            gain / float(flags[1] - flags[0]) if float(flags[1] - flags[0]) else math.inf
        ),
        "the initial policy the other way round": lambda ref_logps, flags, *, gain, beta: monitors.stopping_fine(
            ref_logps.flip(0), flags, gain=gain, beta=beta
        ),
        "divided by beta": lambda ref_logps, flags, *, gain, beta: (
            monitors.stopping_fine(ref_logps, flags, gain=gain, beta=beta) / beta
        ),
    },
)
def _(stopping_fine, draw: Draw) -> Iterator[Comparison]:
    for gain, beta in ((0.6, 0.12), (0.9, 0.2)):
        cheat = draw.uniform(low=0.1, high=0.4)
        ref = torch.stack([1 - cheat, cheat])
        flags = torch.stack([draw.uniform(low=0.02, high=0.2), draw.uniform(low=0.4, high=0.9)])
        fine = stopping_fine(ref.log(), flags, gain=gain, beta=beta)
        best = optimum(ref, torch.tensor([0.0, gain], dtype=torch.float64) - fine * flags, beta)
        yield best[0], 0.5
        alike = flags[:1].expand(2)
        yield 1 / stopping_fine(ref.log(), alike, gain=gain, beta=beta), 0.0
    rare = torch.tensor([1 - 1e-4, 1e-4], dtype=torch.float64)  # 9 nats times β are more than the gain
    yield stopping_fine(rare.log(), flags, gain=0.6, beta=0.12), 0.0


@check(
    "eq:obfuscation-limit",
    "limit",
    "A large fine leaves this fraction of all completions as silent cheats, if the monitor sees no difference between a "
    "silent cheat and honest work.",
    of=monitors.obfuscated_share,
    against="the policy at a large fine, found numerically",
    tolerance=1e-6,
    wrong={
        "the initial policy forgotten": lambda ref_logps, *, gain, beta: torch.sigmoid(
            0 * ref_logps[..., 0] + gain / beta
        ),
        "multiplied by beta": lambda ref_logps, *, gain, beta: torch.sigmoid(
            ref_logps[..., 1] - ref_logps[..., 0] + gain * beta
        ),
        "odds and not a fraction": lambda ref_logps, *, gain, beta: (
            ref_logps[..., 1] - ref_logps[..., 0] + gain / beta
        ).exp(),
        "the fraction of honest work": lambda ref_logps, *, gain, beta: torch.sigmoid(
            ref_logps[..., 0] - ref_logps[..., 1] - gain / beta
        ),
    },
)
def _(obfuscated_share, draw: Draw) -> Iterator[Comparison]:
    for gain, beta in ((0.5, 0.6), (0.3, 0.4)):
        ref, false = draw.distribution(3), float(draw.uniform(low=0.02, high=0.2))
        flags = torch.tensor([false, 0.9, false], dtype=torch.float64)
        earned = torch.tensor([1 - gain, 1.0, 1.0], dtype=torch.float64) - 30 * flags
        best = optimum(ref, earned - earned[0], beta)  # a constant changes no policy
        yield obfuscated_share(ref[[0, 2]].log(), gain=gain, beta=beta), best[2]


def _share_after(time: float, share: float, gain: float, rate: float) -> Tensor:
    """The probability of the second of two completions after this many steps, by Runge and Kutta's method."""
    earned = torch.tensor([0.0, gain], dtype=torch.float64)

    def slope(logits: Tensor) -> Tensor:
        at = logits.detach().requires_grad_(True)
        return rate * exact.gradient(exact.expectation(at.softmax(-1), earned), at)

    logits, h = torch.tensor([1 - share, share], dtype=torch.float64).log(), time / 300
    for _ in range(300):
        a = slope(logits)
        b = slope(logits + h / 2 * a)
        c = slope(logits + h / 2 * b)
        logits = logits + h / 6 * (a + 2 * b + 2 * c + slope(logits + h * c))
    return logits.softmax(-1)[1]


@check(
    "eq:time-to-hide",
    "value",
    "The time at which the gradient flow of the expected reward has raised the cheat's probability to one half.",
    of=monitors.steps_to_majority,
    against="the flow itself, with gradients from autograd",
    tolerance=1e-6,
    wrong={
        "the natural gradient's": lambda share, *, gain, rate=1.0: math.log((1 - share) / share) / (rate * gain),
        "a logistic curve": lambda share, *, gain, rate=1.0: 2 * math.log((1 - share) / share) / (rate * gain),
        "one over the share": lambda share, *, gain, rate=1.0: 1 / (2 * rate * gain * share),
        "one logit moves": lambda share, *, gain, rate=1.0: 2 * monitors.steps_to_majority(share, gain=gain, rate=rate),
    },
)
def _(steps_to_majority, draw: Draw) -> Iterator[Comparison]:
    for gain, rate in ((0.4, 0.5), (0.7, 2.0)):
        share = float(draw.uniform(low=0.05, high=0.3))
        yield _share_after(steps_to_majority(share, gain=gain, rate=rate), share, gain, rate), 0.5


# -- weak labels -----------------------------------------------------------------------------------------------------


def agreement(deviation: Tensor) -> Tensor:
    """The probability that u and u plus an independent normal error of this deviation have one sign."""
    density = lambda u: (-(u**2) / 2).exp() / math.sqrt(2 * math.pi)
    return 2 * exact.integrate(lambda u: density(u) * torch.special.ndtr(u / deviation), 0.0, 10.0)


def best_student(inside: float, outside: float) -> Tensor:
    """The weights of the signal and of the misleading feature that minimise the logistic loss over all inputs."""
    points = torch.linspace(-7, 7, 141, dtype=torch.float64)  # a trapezium rule converges fast for smooth integrands
    signal, other = torch.meshgrid(points, points, indexing="ij")
    mass = (-(signal**2 + other**2) / 2).exp() / (2 * math.pi) * 0.1**2
    positive = torch.special.ndtr((signal + math.sqrt(inside) * other) / math.sqrt(outside))
    softplus = torch.nn.functional.softplus

    def loss(w: Tensor) -> Tensor:
        score = w[0] * signal + w[1] * other
        return (mass * (positive * softplus(-score) + (1 - positive) * softplus(score))).sum()

    w = torch.zeros(2, dtype=torch.float64)
    for _ in range(12):
        slope, curvature = torch.autograd.functional.jacobian(loss, w), torch.autograd.functional.hessian(loss, w)
        w = w - torch.linalg.solve(curvature, slope)
    return w


@check(
    "eq:weak-to-strong",
    "value",
    "The weak supervisor's accuracy, and that of the student that minimises the logistic loss on its labels.",
    of=weak.linear_accuracies,
    against="quadrature, and Newton's method on the loss over all inputs",
    tolerance=1e-6,
    wrong={
        "the student copies": lambda *, inside, outside: (
            (weak.linear_accuracies(inside=inside, outside=outside)[0],) * 2
        ),
        "inside and outside exchanged": lambda *, inside, outside: weak.linear_accuracies(
            inside=outside, outside=inside
        ),
        "deviations add": lambda *, inside, outside: (
            1 - math.atan(math.sqrt(inside) + math.sqrt(outside)) / math.pi,
            1 - math.atan(math.sqrt(inside)) / math.pi,
        ),
        "a variance as a deviation": lambda *, inside, outside: (
            1 - math.atan(inside + outside) / math.pi,
            1 - math.atan(inside) / math.pi,
        ),
    },
)
def _(linear_accuracies, draw: Draw) -> Iterator[Comparison]:
    for low in (0.2, 0.8):
        inside = float(draw.uniform(low=low, high=low + 0.5))
        outside = float(draw.uniform(low=0.5, high=1.2))
        w = best_student(inside, outside)
        wanted = (agreement(torch.tensor(inside + outside).double().sqrt()), agreement((w[1] / w[0]).abs()))
        yield torch.tensor(linear_accuracies(inside=inside, outside=outside), dtype=torch.float64), torch.stack(wanted)


def _normal_density(u: Tensor) -> Tensor:
    return (-(u**2) / 2).exp() / math.sqrt(2 * math.pi)


def _label_times_input(error: float) -> tuple[Tensor, Tensor]:
    """The mean ``(2,)`` and the covariance ``(2, 2)`` of label × (input across the true direction, input along it)."""

    def mean(f: Callable[[Tensor, Tensor], Tensor]) -> Tensor:
        total = torch.zeros((), dtype=torch.float64)
        for p, right in ((1 - error, 1.0), (error, -1.0)):
            for low, high, sign in ((-10.0, 0.0, -1.0), (0.0, 10.0, 1.0)):
                y = right * sign
                part = lambda w: exact.integrate(lambda u: _normal_density(u) * f(y * w, y * u), low, high, nodes=40)  # noqa: B023
                # Three nodes are exact for polynomials of degree five.
                total = total + p * exact.gaussian_expectation(lambda w: torch.stack([part(x) for x in w]), nodes=3)  # noqa: B023
        return total

    across, along = mean(lambda a, s: a), mean(lambda a, s: s)
    both = mean(lambda a, s: (a - across) * (s - along))
    squares = mean(lambda a, s: (a - across) ** 2), mean(lambda a, s: (s - along) ** 2)
    return torch.stack([across, along]), torch.stack([squares[0], both, both, squares[1]]).reshape(2, 2)


def _disagreement(labels: float, error: float) -> Tensor:
    """How often the rule along the mean of many labels × inputs is wrong: the mean of its angle, over π."""
    mean, covariance = _label_times_input(error)
    root = torch.linalg.cholesky(covariance / labels)  # by the central limit theorem the mean is normal

    def angle(z: Tensor) -> Tensor:
        across, along = mean[0] + root[0, 0] * z, mean[1] + root[1, 0] * z
        return exact.gaussian_expectation(lambda other: torch.atan2(across.abs(), along + root[1, 1] * other), nodes=8)

    weighted = lambda z: _normal_density(z) * torch.stack([angle(x) for x in z])
    halves = [exact.integrate(weighted, low, low + 10, nodes=60) for low in (-10.0, 0.0)]  # |across| has an edge at 0
    return torch.stack(halves).sum() / math.pi


@check(
    "eq:noisy-labels",
    "limit",
    "For many labels the mean of label times input has the accuracy of this number of correct labels.",
    of=weak.equivalent_labels,
    against="the accuracy of this mean, a normal variable whose mean and covariance come from quadrature",
    tolerance=1e-6,
    wrong={
        "not squared": lambda labels, *, error: labels * (1 - 2 * error),
        "the variance along the direction": lambda labels, *, error: (
            labels * (1 - 2 * error) ** 2 * (1 - 2 / math.pi) / (1 - (1 - 2 * error) ** 2 * 2 / math.pi)
        ),
        "wrong labels thrown away": lambda labels, *, error: labels * (1 - error),
        "a wrong label cancels a right one": lambda labels, *, error: labels * (1 - error) ** 2,
    },
)
def _(equivalent_labels, draw: Draw) -> Iterator[Comparison]:
    for labels in (1e8, 7e8):  # the accuracies differ by a fraction of the order 1 / labels
        error = float(draw.uniform(low=0.1, high=0.4))
        true = _disagreement(equivalent_labels(labels, error=error), 0.0)
        yield math.sqrt(labels) * true, math.sqrt(labels) * _disagreement(labels, error)


# -- debate ----------------------------------------------------------------------------------------------------------


def pure(leaves: list[int]) -> float:
    """The best result of the honest debater over its strategies, each against the liar's best answer, by enumeration."""
    depth = round(math.log2(len(leaves)))
    # The value of the root by its definition, as a formula over the leaves.
    truth = int(any(all(leaves[2 * i : 2 * i + 2]) for i in range(2)) if depth == 2 else _deep(leaves))
    nodes = [(level, place) for level in range(depth) for place in range(2**level)]
    own = [node for node in nodes if (node[0] % 2 == 0) == (truth == 1)]
    other = [node for node in nodes if node not in own]

    def result(choices: dict[tuple[int, int], int]) -> float:
        place = 0
        for level in range(depth):
            place = 2 * place + choices[level, place]
        return float(leaves[place] == truth)

    plans = lambda whose: [dict(zip(whose, picks, strict=True)) for picks in product((0, 1), repeat=len(whose))]
    return max(min(result(mine | theirs) for theirs in plans(other)) for mine in plans(own))


def _deep(leaves: list[int]) -> bool:
    return any(
        all(any(all(leaves[8 * a + 4 * b + 2 * c : 8 * a + 4 * b + 2 * c + 2]) for c in (0, 1)) for b in (0, 1))
        for a in (0, 1)
    )


def play(leaves: list[int], truth: int, level: int, chances: tuple[float, float], misread: float) -> float:
    """The honest debater's chance, move by move: the one whose turn it is takes the child it likes with its chance."""
    if len(leaves) == 1:
        return 1 - misread if leaves[0] == truth else misread
    half = len(leaves) // 2
    worth = [play(part, truth, level + 1, chances, misread) for part in (leaves[:half], leaves[half:])]
    honest_turn = (level % 2 == 0) == (truth == 1)
    liked = worth.index(max(worth)) if honest_turn else worth.index(min(worth))
    chance = chances[0] if honest_turn else chances[1]
    return chance * worth[liked] + (1 - chance) * worth[1 - liked]


def _always(leaves: Tensor, **keywords: float) -> Tensor:
    return debate.debate_value(leaves, **keywords)


VALUE_MISTAKES = {
    "the liar is taken for perfect": lambda leaves, *, honest=1.0, liar=1.0, misread=0.0: _always(
        leaves, honest=honest, misread=misread
    ),
    "both have the honest debater's skill": lambda leaves, *, honest=1.0, liar=1.0, misread=0.0: _always(
        leaves, honest=honest, liar=honest, misread=misread
    ),
    "misread at every level": lambda leaves, *, honest=1.0, liar=1.0, misread=0.0: (
        (1 - misread) ** debate.depth_of(leaves) * _always(leaves, honest=honest, liar=liar)
    ),
    "a leaf at random": lambda leaves, *, honest=1.0, liar=1.0, misread=0.0: (
        (1 - 2 * misread) * (leaves == debate.root(leaves)[..., None]).double().mean(-1) + misread
    ),
}


@check(
    "eq:debate-value",
    "value",
    "The honest debater's probability of winning, computed node by node.",
    of=debate.debate_value,
    against="the game played move by move with numbers",
    wrong=VALUE_MISTAKES,
)
def _(debate_value, draw: Draw) -> Iterator[Comparison]:
    for size in (4, 16):
        bits = (draw.uniform(6, size) < 0.55).double()
        honest, liar, misread = (float(draw.uniform(low=lo, high=lo + 0.3)) for lo in (0.55, 0.6, 0.05))
        played = [
            play(row, int(truth), 0, (honest, liar), misread)
            for row, truth in zip(bits.long().tolist(), debate.root(bits).tolist(), strict=True)
        ]
        yield debate_value(bits, honest=honest, liar=liar, misread=misread), torch.tensor(played, dtype=torch.float64)


@check(
    "eq:debate-value",
    "truth wins",
    "If both play optimally, the honest debater wins on every input, with a judge who reads one leaf.",
    of=debate.debate_value,
    against="all pure strategies of both debaters, on all inputs of four leaves and some of sixteen",
    wrong={name: VALUE_MISTAKES[name] for name in ("a leaf at random",)}
    | {
        "the liar chooses at every node": lambda leaves, **_: (
            leaves.eq(debate.root(leaves)[..., None]).double().amin(-1)
        )
    },
)
def _(debate_value, draw: Draw) -> Iterator[Comparison]:
    small, large = debate.all_inputs(2), (draw.uniform(1, 16) < 0.55).double()
    for bits in (small, large):
        found = [pure(row) for row in bits.long().tolist()]
        yield debate_value(bits), torch.tensor(found, dtype=torch.float64)


@cache
def _everything(depth: int) -> Tensor:
    return debate.all_inputs(depth)


@check(
    "eq:debate-skill",
    "value",
    "Over all inputs, the honest debater wins with at least this probability against the best liar, and on some "
    "inputs with exactly this.",
    of=debate.skill_bound,
    against="the smallest value over all inputs of four and of sixteen leaves",
    wrong={
        "one choice": lambda depth, *, honest: honest,
        "a choice at every level": lambda depth, *, honest: honest**depth,
        "the mean of its choices": lambda depth, *, honest: 1 - depth // 2 * (1 - honest),
    },
)
def _(skill_bound, draw: Draw) -> Iterator[Comparison]:
    for depth in (2, 4):
        honest = float(draw.uniform(low=0.55, high=0.9))
        yield skill_bound(depth, honest=honest), debate.debate_value(_everything(depth), honest=honest).min()
