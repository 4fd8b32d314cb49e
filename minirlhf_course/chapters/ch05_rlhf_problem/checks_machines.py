"""The page on many machines: memory, messages and waiting, counted piece by piece; old samples by quadrature."""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch
from torch import Tensor

from minirlhf.core import exact
from minirlhf.equations import machines as equations
from minirlhf_course.ledger.registry import Comparison, Draw, check

HALF, FULL = torch.bfloat16, torch.float32


def dealt(parameters: int, machines: int, stage: int) -> float:
    """Mean bytes of a machine: the tensors of Adam are made, and each is kept whole or dealt out like cards."""
    tensors = [(HALF, 3), (HALF, 2), (FULL, 1), (FULL, 1), (FULL, 1)]  # weights, gradients, master copy, two moments
    held = [0] * machines
    for dtype, dealt_from in tensors:
        every = torch.zeros(parameters, dtype=dtype)
        for machine in range(machines):
            kept = every[machine::machines] if stage >= dealt_from else every
            held[machine] += kept.numel() * kept.element_size()
    return sum(held) / machines


@check(
    "eq:sharded-memory",
    "value",
    "Two bytes for a weight and its gradient, four for a master copy and each moment; of what a stage shards, a "
    "machine holds 1/N.",
    of=equations.training_bytes,
    against="the tensors themselves, distributed over the machines and counted",
    wrong={
        "gradients before the optimizer": lambda parameters, *, machines, stage: (
            parameters * (16 if stage == 0 else [0, 14 + 2 / machines, 2 + 14 / machines, 16 / machines][stage])
        ),
        "everything divided at once": lambda parameters, *, machines, stage: parameters * 16 / machines,
        "no master copy": lambda parameters, *, machines, stage: (
            equations.training_bytes(parameters, machines=machines, stage=stage)
            - 4 * parameters / (machines if stage else 1)
        ),
    },
)
def _(training_bytes, draw: Draw) -> Iterator[Comparison]:
    for machines in (2, 3, 8):
        size = machines * draw.integer(20, 90)
        for stage in range(4):
            held = training_bytes(torch.tensor(float(size), dtype=torch.float64), machines=machines, stage=stage)
            yield held, torch.tensor(dealt(size, machines, stage), dtype=torch.float64)


def sent_around(rows: Tensor) -> tuple[Tensor, list[int]]:
    """All-reduce of ``rows`` (machines, N) around a ring, step by step: what each holds at the end, and what each has sent."""
    count = len(rows)
    held = [list(row.chunk(count)) for row in rows]
    sent = [0] * count
    for phase, steps in (("add", count - 1), ("copy", count - 1)):
        for step in range(steps):
            offset = -step if phase == "add" else 1 - step
            moving = [(m, (m + offset) % count) for m in range(count)]
            pieces = [held[m][at].clone() for m, at in moving]
            for (machine, at), piece in zip(moving, pieces, strict=True):
                after = (machine + 1) % count
                held[after][at] = held[after][at] + piece if phase == "add" else piece
                sent[machine] += piece.numel() * piece.element_size()
    return torch.stack([torch.cat(row) for row in held]), sent


@check(
    "eq:ring-all-reduce",
    "value",
    "The number of bytes that a machine has sent when every machine holds the sum.",
    of=equations.all_reduce_bytes,
    against="a simulated ring of machines that pass on pieces until all hold the sum",
    wrong={
        "one time around": lambda volume, *, machines: volume * (machines - 1) / machines,
        "to everybody": lambda volume, *, machines: volume * (machines - 1),
        "a whole volume per step": lambda volume, *, machines: 2 * volume * (machines - 1),
    },
)
def _(all_reduce_bytes, draw: Draw) -> Iterator[Comparison]:
    for machines in (2, 5):
        rows = draw.normal(machines, machines * draw.integer(2, 9))
        total, sent = sent_around(rows)
        yield total, rows.sum(0).expand_as(total)
        volume = torch.tensor(float(rows[0].numel() * rows.element_size()), dtype=torch.float64)
        yield all_reduce_bytes(volume, machines=machines), torch.tensor(sum(sent) / machines, dtype=torch.float64)


def pipelined(stages: int, micro_batches: int, forward: float, backward: float) -> float:
    """The share of time in which machines wait, from a schedule: each piece starts as soon as its machine and its input are ready."""
    free = [0.0] * stages
    done = 0.0
    for order, seconds in ((range(stages), forward), (range(stages - 1, -1, -1), backward)):
        for _ in range(micro_batches):
            ready = 0.0 if seconds == forward else done
            for stage in order:
                ready = free[stage] = max(free[stage], ready) + seconds
        done = max(free)
    return 1 - micro_batches * (forward + backward) / done


@check(
    "eq:pipeline-bubble",
    "value",
    "The idle fraction of the pipeline, for any durations of the forward and the backward pass.",
    of=equations.pipeline_bubble,
    against="a schedule, simulated piece by piece",
    wrong={
        "over the work, not the time": lambda stages, micro_batches: (stages - 1) / micro_batches,
        "one machine more": lambda stages, micro_batches: stages / (micro_batches + stages),
        "stages and micro-batches swapped": lambda stages, micro_batches: equations.pipeline_bubble(
            micro_batches, stages
        ),
    },
)
def _(pipeline_bubble, draw: Draw) -> Iterator[Comparison]:
    for stages in (2, 5):
        micro_batches = draw.integer(6, 20)
        forward, backward = float(draw.uniform(low=0.5, high=1.0)), float(draw.uniform(low=1.1, high=2.0))
        yield pipeline_bubble(stages, micro_batches), pipelined(stages, micro_batches, forward, backward)


@check(
    "eq:longest-reply",
    "value",
    "The expected maximum is the integral of the probability that some reply is not finished.",
    of=equations.expected_max_over_mean,
    against="the probability that some reply is still running, integrated over time",
    wrong={
        "the logarithm": lambda replies: math.log(replies),
        "as many as replies": lambda replies: float(replies),
        "one term less": lambda replies: equations.expected_max_over_mean(replies) - 1 / replies,
    },
)
def _(expected_max_over_mean, draw: Draw) -> Iterator[Comparison]:
    for replies in (draw.integer(2, 9), draw.integer(20, 90)):
        running = lambda t, n=replies: 1 - (1 - (-t).exp()) ** n
        yield expected_max_over_mean(replies), float(exact.integrate(running, 0.0, 45.0, nodes=400))


def trisected(sampling: float, training: float) -> float:
    """The share at which the slower side is fastest, by cutting an interval."""
    slower = lambda share: max(sampling / share, training / (1 - share))
    low, high = 1e-6, 1 - 1e-6
    for _ in range(300):
        left, right = low + (high - low) / 3, high - (high - low) / 3
        low, high = (low, right) if slower(left) < slower(right) else (left, high)
    return (low + high) / 2


@check(
    "eq:split-machines",
    "value",
    "No other split of the machines makes the slower side faster.",
    of=equations.sampling_share,
    against="a search for the shortest step",
    wrong={
        "the other side's share": lambda sampling, training: training / (sampling + training),
        "one half": lambda sampling, training: torch.full_like(sampling, 0.5),
        "work over work": lambda sampling, training: sampling / training,
    },
)
def _(sampling_share, draw: Draw) -> Comparison:
    sampling, training = draw.uniform(4, low=1.0, high=9.0), draw.uniform(4, low=10.0, high=30.0)
    searched = [trisected(*pair) for pair in zip(sampling.tolist(), training.tolist(), strict=True)]
    return sampling_share(sampling, training), torch.tensor(searched, dtype=torch.float64)


def share_left(spread: float) -> Tensor:
    """(E w)² / E w² of one token's weight, by quadrature over its normal log-ratio, whatever the mean of that is."""
    mean = 0.3
    law = lambda x: (-((x - mean) ** 2) / (2 * spread**2)).exp() / (spread * math.sqrt(2 * math.pi))
    moment = lambda k: exact.integrate(lambda x: (k * x).exp() * law(x), mean - 14 * spread, mean + 14 * spread)
    return moment(1) ** 2 / moment(2)


@check(
    "eq:effective-share",
    "value",
    "Tokens are independent, so moments of the product of their weights are products of moments.",
    of=equations.effective_share,
    against="two moments of a token's weight by quadrature, multiplied over the tokens",
    wrong={
        "the spread, not its square": lambda spread, *, tokens: torch.exp(-tokens * spread),
        "half the exponent": lambda spread, *, tokens: torch.exp(-tokens * spread**2 / 2),
        "errors that do not add up": lambda spread, *, tokens: torch.exp(-(spread**2)),
    },
)
def _(effective_share, draw: Draw) -> Iterator[Comparison]:
    for tokens in (3, 40):
        spread = draw.uniform(3, low=0.05, high=0.25)
        left = torch.stack([share_left(s) ** tokens for s in spread.tolist()])
        yield effective_share(spread, tokens=tokens), left
