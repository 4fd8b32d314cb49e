"""Costs of a run on several machines: memory, communication, waiting, and the effective sample size of old samples.

A *machine* is one accelerator with its own memory. Training is in mixed precision with Adam, as in
:func:`training_bytes`.
"""

from __future__ import annotations

import torch
from torch import Tensor

from minirlhf.core.equation import equation
from minirlhf.core.errors import ArgumentError
from minirlhf.core.validate import at_least, finite, takes

# Bytes per parameter: weights and gradients in 16 bits; a master copy and two moments in 32.
WEIGHTS, GRADIENTS, OPTIMIZER = 2, 2, 12

_SOME = finite("...", "(0, inf)")


# -- memory --------------------------------------------------------------------------------------------------------


def _stage(value: int) -> int:
    if value not in (0, 1, 2, 3):
        raise ArgumentError(
            f"stage = {value!r}; expected 0 (nothing is sharded), 1, 2 or 3",
            argument="stage",
            value=value,
            expected=(0, 1, 2, 3),
        )
    return value


@takes(parameters=_SOME, machines=at_least(1))
@equation(
    "eq:sharded-memory",
    source='Rajbhandari et al. (2020), "ZeRO: Memory Optimizations Toward Training Trillion Parameter Models", '
    "section 3 and figure 1.",
)
def training_bytes(parameters: Tensor, *, machines: int, stage: int) -> Tensor:
    """Bytes ``(...)`` on each of N machines that train one model: 16ψ, where each sharded part counts 1/N.

    Stage 0 shards nothing; stage 1 shards the optimizer's 12 bytes per parameter, stage 2 also the gradients' 2, stage
    3 also the weights' 2. Activations are not counted.

    Args:
        parameters: ψ, number of parameters.
    Raises:
        ValueError: a stage that is not 0, 1, 2 or 3.
    """
    parts = (WEIGHTS, GRADIENTS, OPTIMIZER)
    sharded = parts[len(parts) - _stage(stage) :]
    return parameters * (sum(parts) - sum(sharded) + sum(sharded) / machines)


# -- communication and waiting -------------------------------------------------------------------------------------


@takes(volume=_SOME, machines=at_least(1))
@equation(
    "eq:ring-all-reduce",
    source='Patarasuk and Yuan (2009), "Bandwidth optimal all-reduce algorithms for clusters of workstations".',
)
def all_reduce_bytes(volume: Tensor, *, machines: int) -> Tensor:
    """Bytes ``(...)`` that each of N machines sends in a ring all-reduce of V bytes: 2V(N − 1)/N.

    Args:
        volume: V, the bytes that each machine holds.
    """
    return 2 * volume * (machines - 1) / machines


@takes(stages=at_least(1), micro_batches=at_least(1))
@equation(
    "eq:pipeline-bubble",
    source='Huang et al. (2019), "GPipe: Efficient Training of Giant Neural Networks using Pipeline Parallelism".',
)
def pipeline_bubble(stages: int, micro_batches: int) -> float:
    """The fraction of time that a machine of a pipeline waits: (p − 1)/(m + p − 1).

    All p stages take equally long; m micro-batches go forward through all stages, then backward.
    """
    return (stages - 1) / (micro_batches + stages - 1)


@takes(replies=at_least(1))
@equation("eq:longest-reply", source='Rényi (1953), "On the theory of order statistics".')
def expected_max_over_mean(replies: int) -> float:
    """Expected maximum length of n completions over the mean length, for exponential lengths: 1 + 1/2 + … + 1/n."""
    return sum(1 / k for k in range(1, replies + 1))


@takes(sampling=_SOME, training=_SOME)
@equation("eq:split-machines", source="both sides finish together; elementary.")
def sampling_share(sampling: Tensor, training: Tensor) -> Tensor:
    """Fraction ``(...)`` of machines that should sample while the other machines train, so that none waits: S/(S + U).

    Args:
        sampling, training: S and U, the work of a step, in seconds on one machine.
    """
    return sampling / (sampling + training)


# -- old samples ---------------------------------------------------------------------------------------------------


@takes(spread=_SOME, tokens=at_least(1))
@equation(
    "eq:effective-share",
    source='the effective sample size of Kong (1992), "A note on importance sampling using standardized weights", '
    "for log-normal weights.",
)
def effective_share(spread: Tensor, *, tokens: int) -> Tensor:
    """Effective fraction ``(...)`` of the samples after weighting by completion ratios: (E w)²/E w² = exp(−T σ²).

    For log-ratios of T tokens that are independent and normal with standard deviation σ.

    Args:
        spread: σ, of a token's log-ratio.
    """
    return torch.exp(-tokens * spread**2)
