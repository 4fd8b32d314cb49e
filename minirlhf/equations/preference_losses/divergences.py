"""f-DPO: DPO with another divergence than the reverse KL as its regulariser.

The optimum of ``E[r] − β D_f(π‖π_ref)`` satisfies ``r = β f'(π/π_ref) + const``, so the implicit reward is ``β f'(t)``
at the ratio t. Each ``f_prime_*`` is the derivative, in t, of the f of the same name in :mod:`minirlhf.equations.kl`,
written as a function of the log-ratio, of any shape.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from minirlhf.core.equation import equation
from minirlhf.core.errors import ArgumentError
from minirlhf.core.validate import POSITIVE, takes
from minirlhf.equations.preference_losses.records import Needs, PairLogps
from minirlhf.equations.reward_losses import bradley_terry_loss

# exp(80) ≈ 6e34 is still a float32 number.
EXPONENT_LIMIT = 80.0


@Needs(PairLogps)
@takes(beta=POSITIVE)
@equation(
    "eq:f-dpo",
    source='Wang et al. (2024), "Beyond reverse KL: generalizing direct preference optimization with diverse '
    'divergence constraints".',
)
def f_dpo(pair: PairLogps, *, beta: float, f_prime: Callable[[Tensor], Tensor]) -> Tensor:
    """f-DPO ``−log σ(β f'(t_w) − β f'(t_l))`` with t the ratio ``π/π_ref`` of a completion.

    Args: f_prime, one of ``f_prime_*``: log-ratios ``(B,) -> (B,)``.
    """
    return bradley_terry_loss(beta * f_prime(pair.chosen_logratios), beta * f_prime(pair.rejected_logratios))


@equation("eq:f-prime-reverse-kl", source="Wang et al. (2024), table 1.")
def f_prime_reverse_kl(log_ratio: Tensor) -> Tensor:
    """``f'(t) = log t + 1``: DPO itself."""
    return log_ratio + 1


@equation("eq:f-prime-forward-kl", source="Wang et al. (2024), table 1.")
def f_prime_forward_kl(log_ratio: Tensor) -> Tensor:
    """``f'(t) = −1/t``: the reward of a completion goes to −∞ as its ratio goes to 0. 1/t is capped at exp(80)."""
    return -(-log_ratio).clamp(max=EXPONENT_LIMIT).exp()


@equation(
    "eq:f-prime-jensen-shannon",
    source="Wang et al. (2024), table 1, for the divergence with its usual factor ½.",
)
def f_prime_jensen_shannon(log_ratio: Tensor) -> Tensor:
    """``f'(t) = ½ log(2t/(1 + t))``: rewards are bounded above by ``½ log 2``.

    The paper and TRL omit the ½: here, use twice their β.
    """
    return 0.5 * (math.log(2.0) + logsigmoid(log_ratio))


@equation("eq:f-prime-alpha", source="Wang et al. (2024), table 1.")
def f_prime_alpha(log_ratio: Tensor, *, alpha: float) -> Tensor:
    """``f'(t) = (1 − t^(−α))/α``: between the reverse KL (α → 0) and the forward KL (α → 1).

    TRL's coefficient is 1 − α.
    """
    if not math.isfinite(alpha) or alpha == 0.0:
        raise ArgumentError(
            f"alpha = {alpha!r}; expected a finite number other than 0; for 0, use the reverse KL",
            argument="alpha",
            value=alpha,
        )
    return -torch.expm1((-alpha * log_ratio).clamp(max=EXPONENT_LIMIT)) / alpha


@equation(
    "eq:f-prime-chi-po",
    source='Huang et al. (2025), "Correcting the mythos of KL-regularization: direct alignment without '
    'overoptimization via chi-squared preference optimization", their φ.',
)
def f_prime_chi_po(log_ratio: Tensor) -> Tensor:
    """``f'(t) = t + log t``, of f(t) = ½ (t − 1)² + t log t: χPO, with rewards β(t + log t). t is capped at exp(80).

    The χ² term penalises large ratios. The KL term keeps f'(0) = −∞. The paper also clips the difference of rewards;
    the losses here do not.
    """
    return log_ratio.clamp(max=EXPONENT_LIMIT).exp() + log_ratio
