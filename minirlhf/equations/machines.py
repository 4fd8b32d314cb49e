"""What a run costs on more than one machine: memory, messages, waiting, and how much an old sample is still worth.

A *machine* is one accelerator with memory of its own. Training is in mixed precision with Adam, as in :func:`training_bytes`.
"""

from __future__ import annotations

import torch
from torch import Tensor

from minirlhf.core.errors import ArgumentError
from minirlhf.core.validate import at_least, finite, takes

# Bytes per parameter: weights and gradients in 16 bits; a master copy and two moments in 32.
WEIGHTS, GRADIENTS, OPTIMIZER = 2, 2, 12

_SOME = finite("...", "(0, inf)")


# -- memory --------------------------------------------------------------------------------------------------------


def _stage(value: int) -> int:
    if value not in (0, 1, 2, 3):
        raise ArgumentError(
            f"stage = {value!r}; expected 0 (nothing is divided), 1, 2 or 3",
            argument="stage",
            value=value,
            expected=(0, 1, 2, 3),
        )
    return value


@takes(parameters=_SOME, machines=at_least(1))
def training_bytes(parameters: Tensor, *, machines: int, stage: int) -> Tensor:
    """Bytes on each of N machines that train one model together: 16ψ, and of its parts a share 1/N where they are divided. ``(...)``

    Stage 0 divides nothing; 1 the optimizer's 12 bytes per parameter; 2 the gradients' 2 as well; 3 the weights' 2 as well. Activations are
    not counted.

    Label: eq:sharded-memory
    Source: Rajbhandari et al. (2020), "ZeRO: Memory Optimizations Toward Training Trillion Parameter Models", section 3 and figure 1.
    Args:
        parameters: ψ.
    Raises:
        ValueError: a stage that is not 0, 1, 2 or 3.
    """
    parts = (WEIGHTS, GRADIENTS, OPTIMIZER)
    divided = parts[len(parts) - _stage(stage) :]
    return parameters * (sum(parts) - sum(divided) + sum(divided) / machines)


# -- messages and waiting ------------------------------------------------------------------------------------------


@takes(volume=_SOME, machines=at_least(1))
def all_reduce_bytes(volume: Tensor, *, machines: int) -> Tensor:
    """What each of N machines sends until all have the sum of their V bytes, around a ring: 2V(N − 1)/N. ``(...)``

    Label: eq:ring-all-reduce
    Source: Patarasuk and Yuan (2009), "Bandwidth optimal all-reduce algorithms for clusters of workstations".
    Args:
        volume: V, the bytes that each machine holds.
    """
    return 2 * volume * (machines - 1) / machines


@takes(stages=at_least(1), micro_batches=at_least(1))
def pipeline_bubble(stages: int, micro_batches: int) -> float:
    """The share of its time that a machine of a pipeline waits: (p − 1)/(m + p − 1).

    All p stages take equally long; m micro-batches go forward through all of them, then backward.

    Label: eq:pipeline-bubble
    Source: Huang et al. (2019), "GPipe: Efficient Training of Giant Neural Networks using Pipeline Parallelism".
    """
    return (stages - 1) / (micro_batches + stages - 1)


@takes(replies=at_least(1))
def expected_max_over_mean(replies: int) -> float:
    """How many times the mean length the longest of n replies is, if lengths are exponential: 1 + 1/2 + … + 1/n.

    Label: eq:longest-reply
    Source: Rényi (1953), "On the theory of order statistics".
    """
    return sum(1 / k for k in range(1, replies + 1))


@takes(sampling=_SOME, training=_SOME)
def sampling_share(sampling: Tensor, training: Tensor) -> Tensor:
    """The share of the machines that should sample while the others train, S/(S + U), so that none waits. ``(...)``

    Label: eq:split-machines
    Source: both sides finish together; elementary.
    Args:
        sampling, training: S and U, the work of a step in seconds of one machine.
    """
    return sampling / (sampling + training)


# -- old samples ---------------------------------------------------------------------------------------------------


@takes(spread=_SOME, tokens=at_least(1))
def effective_share(spread: Tensor, *, tokens: int) -> Tensor:
    """The share of samples that is left after weighting by the reply's ratio: (E w)²/E w² = exp(−T σ²). ``(...)``

    For log-ratios of T tokens that are independent and normal with standard deviation σ.

    Label: eq:effective-share
    Source: the effective sample size of Kong (1992), "A note on importance sampling using standardized weights", for log-normal weights.
    Args:
        spread: σ, of a token's log-ratio.
    """
    return torch.exp(-tokens * spread**2)
