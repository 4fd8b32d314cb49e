"""Preference losses: from the log-probabilities of completions to a loss per example, without a reward model.

============================================  ==========================================================================
:mod:`.records`                               the inputs of the losses, and which loss takes which record
:mod:`.pairs`                                 the derivation of DPO, and losses of the margin
:mod:`.pointwise`                             losses with a separate target for each completion of a pair
:mod:`.divergences`                           f-DPO
:mod:`.psi_po`                                ΨPO, which has DPO and IPO as special cases, and its game
:mod:`.lists`                                 rankings, explicit rewards, contrastive estimation
:mod:`.unpaired`                              binary feedback on single completions
:mod:`.reference_free`                        losses without a reference model
============================================  ==========================================================================
"""

# ruff: noqa: F401

from minirlhf.equations.preference_losses.divergences import (
    f_dpo,
    f_prime_alpha,
    f_prime_chi_po,
    f_prime_forward_kl,
    f_prime_jensen_shannon,
    f_prime_reverse_kl,
)
from minirlhf.equations.preference_losses.lists import (
    exo,
    exo_pair,
    info_nca,
    info_nce,
    nca,
    nca_pair,
    plackett_luce_dpo,
    ranking_probability,
    reward_targets,
)
from minirlhf.equations.preference_losses.pairs import (
    aot,
    cdpo,
    ches,
    discopop,
    dpo,
    dpo_displacement,
    dpo_gradient_weight,
    dpo_length_normalised,
    dpo_nll,
    dpo_positive,
    hinge,
    ipo,
    matched_quantiles,
    odpo,
    preference_probability,
    rebel,
    reward_of_optimum,
    robust_dpo,
    rpo,
    wpo,
)
from minirlhf.equations.preference_losses.pointwise import apo_down, apo_zero, cal_dpo, sppo
from minirlhf.equations.preference_losses.psi_po import (
    ipo_target,
    nash_md,
    psi_po_objective,
    psi_po_optimum,
    psi_reward,
)
from minirlhf.equations.preference_losses.records import ListLogps, Needs, PairLogps, UnpairedLogps
from minirlhf.equations.preference_losses.reference_free import (
    alpha_po,
    cpo,
    likelihood_contrast,
    orpo,
    simpo,
    slic,
    unlikelihood,
)
from minirlhf.equations.preference_losses.unpaired import bco, bco_delta, bco_pair, kto, kto_reference_point
