"""The preference losses as rows of one table: the loss, its quantities of the whole batch, and its hyperparameters.

A number is that of the paper, as given in TRL's documentation or the authors' scripts. Otherwise the row declares where
it comes from. Most papers tune the number on every model; one number for all rows compares losses rather than searches.

The losses are in :mod:`minirlhf.equations.preference_losses`. A loss of your own, declared with ``@Needs(...)`` as
there, becomes a row in one line.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, TypeAlias, cast

import torch
from torch import Tensor

from minirlhf.core.equation import Equation
from minirlhf.core.errors import UserError, unknown
from minirlhf.equations.preference_losses import divergences, lists, pairs, pointwise, reference_free, unpaired
from minirlhf.equations.preference_losses.records import ListLogps, Needs, PairLogps, UnpairedLogps
from minirlhf.losses import preference_loss
from minirlhf.recipes.options import ConfigurableRecipe, Deviation, Places, name_of

Record: TypeAlias = PairLogps | UnpairedLogps | ListLogps


@dataclass(frozen=True)
class OptimizerBatch:
    """A whole optimizer batch before it is split, for quantities that a loss takes from all of its examples.

    Attributes:
        record: log-probabilities of the batch, without gradient; computed when called.
        mismatched: ``(B,), (B,)``: log-probabilities, under policy and reference, of completions of other prompts; also
            without gradient and computed when called.
        margins: ``(B,)``, the margin of each chosen completion in the data, if the data have margins.
        scores: ``(B, K)``, the score of each listed completion in the data, if the data have scores.
        memory: scalars that are kept between steps (and stored in checkpoints).
    """

    record: Callable[[], Record]
    mismatched: Callable[[], tuple[Tensor, Tensor]]
    margins: Tensor | None
    scores: Tensor | None
    memory: dict[str, Tensor]


@dataclass(frozen=True)
class PreferenceRecipe(ConfigurableRecipe):
    """A method that learns from preferences without sampling. A loss without a declared record is a ``ValueError``.

    Attributes:
        loss: ``(record, *context, *, ...) -> (B,)``, minimised; declared by ``@Needs(...)``.
        context: ``(batch, *, ...) -> Tensor`` each, computed before the batch is split. A result ``(B, ...)`` is split with it.
    """

    PLACES: ClassVar[Places] = {
        "": ("name", "deviations", "loss", "context"),
        "loss": (
            *("beta", "label_smoothing", "length_normalised", "tau", "penalty", "nll_weight", "eta", "f_prime"),
            *("chosen_win_rate", "rejected_win_rate", "gamma", "alpha", "delta", "weight"),
            *("desirable_weight", "undesirable_weight"),
        ),
        "context": ("beta", "decay", "target_temperature"),
    }

    loss: Callable[..., Tensor]
    context: tuple[Callable[..., Tensor], ...] = ()

    def __post_init__(self) -> None:
        Needs.of(self.loss)

    @property
    def needs(self) -> Needs[Any]:
        """The declared inputs of the loss."""
        return Needs.of(self.loss)

    @property
    def per_token(self) -> bool:
        """Whether the implicit reward is a mean over tokens, by declaration of the loss or by ``length_normalised``."""
        return self.needs.per_token or bool(self.number("length_normalised", False))

    def number(self, name: str, otherwise: Any) -> Any:
        """Return a hyperparameter of the loss, bound or default; ``otherwise`` if the loss does not take it."""
        parameter = inspect.signature(self.loss).parameters.get(name)
        return otherwise if parameter is None else parameter.default

    @property
    def source(self) -> str:
        """The paper, as declared by the loss's ``@equation``."""
        return Equation.of(self.loss).source

    def _try(self) -> None:
        self.validate()

    def validate(self) -> bool:
        """Compute the loss of two synthetic examples, so that an invalid number is reported before anything is loaded.

        Returns:
            Whether the context needs completions of other prompts.

        Raises:
            UserError: the loss rejects a number; the message is that of the loss.
        """
        calls: list[bool] = []

        def mismatched() -> tuple[Tensor, Tensor]:
            calls.append(True)
            return -ones, -ones

        ones, lists_of_two = torch.ones(2), torch.ones(2, 2)
        examples: dict[type[Record], Record] = {
            PairLogps: PairLogps(-ones, -ones, -ones, -ones, ones, ones),
            UnpairedLogps: UnpairedLogps(-ones, -ones, ones, torch.tensor([True, False])),
            ListLogps: ListLogps(-lists_of_two, -lists_of_two, lists_of_two),
        }
        record, scores = examples[self.needs.record], torch.tensor([[1.0, 0.0], [1.0, 0.0]])
        batch = OptimizerBatch(lambda: record, mismatched, ones, scores, {})
        try:
            preference_loss(self.loss, record, *(part(batch) for part in self.context))
        except (ValueError, TypeError) as problem:
            raise UserError.about(f"{self.name}: {problem}", problem) from None
        return bool(calls)


# -- quantities of the whole batch ------------------------------------------------------------------------------


def kto_batch_reference_point(batch: OptimizerBatch) -> Tensor:
    """Return KTO's reference point z₀, a scalar."""
    return unpaired.kto_reference_point(*batch.mismatched())


def bco_running_delta(batch: OptimizerBatch, *, beta: float = 0.1, decay: float = 0.9) -> Tensor:
    """Return BCO's δ, a scalar: a moving mean over the steps.

    Args:
        decay: decay of the moving average, the weight of its previous value, in [0, 1].
    """
    record = cast(UnpairedLogps, batch.record())
    batch.memory["delta"] = unpaired.bco_delta(record, beta=beta, previous=batch.memory.get("delta"), decay=decay)
    return batch.memory["delta"]


def margins(batch: OptimizerBatch) -> Tensor:
    """Return ``(B,)``, the margin of each chosen completion in the data."""
    if batch.margins is None:
        raise UserError(
            "this loss needs a margin for every pair; at least one pair of the data has none",
            argument="margin",
            problem="missing",
        )
    return batch.margins


def targets(batch: OptimizerBatch, *, target_temperature: float = 1.0) -> Tensor:
    """Return ``(B, K)``, the target distribution over the listed completions: the softmax of their scores.

    Args:
        target_temperature: temperature of the softmax of the scores, > 0, in units of the scores.
    """
    if batch.scores is None:
        raise UserError(
            "this loss needs a score for every listed completion; at least one of the data has none",
            argument="score",
            problem="missing",
        )
    return lists.reward_targets(batch.scores, temperature=target_temperature)


def quantiles(batch: OptimizerBatch) -> Tensor:
    """Return ``(B,)`` for AOT: the difference under the reference that has the same rank as the pair's difference."""
    return pairs.matched_quantiles(cast(PairLogps, batch.record()))


# -- the table ---------------------------------------------------------------------------------------------------

OURS = "the value of most losses here; the paper's value was not found"


def _beta(text: str) -> tuple[Deviation, ...]:
    return (Deviation(f"beta is {text}", "beta"),)


# pairs, with a reference
DPO = PreferenceRecipe("dpo", partial(pairs.dpo, beta=0.1))
DPO_LENGTH_NORMALISED = PreferenceRecipe(
    "dpo_length_normalised",
    partial(pairs.dpo_length_normalised, beta=2.0),
    deviations=_beta("2; the authors' script has 5"),
)
CDPO = PreferenceRecipe("cdpo", partial(pairs.cdpo, beta=0.1, label_smoothing=0.1), deviations=_beta(OURS))
ROBUST_DPO = PreferenceRecipe(
    "robust_dpo",
    partial(pairs.robust_dpo, beta=0.1, label_smoothing=0.1),
    deviations=_beta("0.1; TRL's documentation gives 0.01 for the paper"),
)
IPO = PreferenceRecipe("ipo", partial(pairs.ipo, beta=0.1), deviations=_beta(OURS))
HINGE = PreferenceRecipe("hinge", partial(pairs.hinge, beta=0.1), deviations=_beta(OURS))
DISCOPOP = PreferenceRecipe(
    "discopop", partial(pairs.discopop, beta=0.05, tau=0.05)
)  # the paper's numbers; see the loss on τ
WPO = PreferenceRecipe(
    "wpo",
    partial(pairs.wpo, beta=0.1),
    deviations=(
        Deviation("the weights are not aligned to the policy's own samples", "loss"),
        *_beta(OURS),
    ),
)
AOT = PreferenceRecipe("aot", partial(pairs.aot, beta=0.1), (quantiles,), deviations=_beta(OURS))
DPO_POSITIVE = PreferenceRecipe(
    "dpo_positive",
    partial(pairs.dpo_positive, beta=0.1, penalty=5.0),
    deviations=(Deviation("beta and penalty are our choice; the paper's values were not found", "beta", "penalty"),),
)
DPO_NLL = PreferenceRecipe(
    "dpo_nll",
    partial(pairs.dpo_nll, beta=0.1, nll_weight=1.0),
    deviations=(
        Deviation("beta and nll_weight are our choice; we did not have the paper's values", "beta", "nll_weight"),
    ),
)
ODPO = PreferenceRecipe("odpo", partial(pairs.odpo, beta=0.1), (margins,), deviations=_beta(OURS))
RPO = PreferenceRecipe("rpo", partial(pairs.rpo, beta=0.1), (margins,), deviations=_beta(OURS))
REBEL = PreferenceRecipe("rebel", partial(pairs.rebel, beta=0.1), (margins,), deviations=_beta(OURS))
F_DPO = PreferenceRecipe(
    "f_dpo",
    partial(divergences.f_dpo, beta=0.1, f_prime=divergences.f_prime_jensen_shannon),
    deviations=_beta(OURS),
)
APO_ZERO = PreferenceRecipe("apo_zero", partial(pointwise.apo_zero, beta=0.1))
APO_DOWN = PreferenceRecipe("apo_down", partial(pointwise.apo_down, beta=0.1))
SPPO = PreferenceRecipe(
    "sppo",
    partial(pointwise.sppo, beta=0.1),
    deviations=_beta("0.1; the authors' script has 0.001. The targets of the log-ratios are ±5 nats, not ±500"),
)
CAL_DPO = PreferenceRecipe("cal_dpo", partial(pointwise.cal_dpo, beta=0.1), deviations=_beta(OURS))
BCO_PAIR = PreferenceRecipe(
    "bco_pair",
    partial(unpaired.bco_pair, beta=0.1),
    deviations=_beta("0.1; TRL's documentation gives 0.01 for the paper"),
)
NCA_PAIR = PreferenceRecipe(
    "nca_pair",
    partial(lists.nca_pair, beta=0.1),
    deviations=_beta("0.1; TRL's documentation gives 0.01 for the paper"),
)
EXO_PAIR = PreferenceRecipe("exo_pair", partial(lists.exo_pair, beta=0.1, label_smoothing=1e-3))
# pairs, without a reference
SIMPO = PreferenceRecipe("simpo", partial(reference_free.simpo, beta=2.0, gamma=1.0))  # for Llama-3-Base
ALPHA_PO = PreferenceRecipe(
    "alpha_po",
    partial(reference_free.alpha_po, beta=2.0, alpha=0.25, gamma=0.1),
    deviations=_beta("2; TRL's documentation gives 2.5 for the paper, with the same alpha and gamma"),
)
ORPO = PreferenceRecipe("orpo", partial(reference_free.orpo, beta=0.1), deviations=_beta(OURS))
CPO = PreferenceRecipe("cpo", partial(reference_free.cpo, beta=0.1), deviations=_beta(OURS))
SLIC = PreferenceRecipe(
    "slic",
    partial(reference_free.slic, delta=1.0, nll_weight=0.1),
    deviations=(
        Deviation("delta and nll_weight are our choice; the paper's values were not found", "delta", "nll_weight"),
    ),
)
LIKELIHOOD_CONTRAST = PreferenceRecipe(
    "likelihood_contrast",
    partial(reference_free.likelihood_contrast, weight=0.1),
    deviations=(Deviation("the weight is our choice; the paper's value was not found", "weight"),),
)
# thumbs
KTO = PreferenceRecipe("kto", partial(unpaired.kto, beta=0.1), (kto_batch_reference_point,))
BCO = PreferenceRecipe(
    "bco",
    partial(unpaired.bco, beta=0.1),
    (bco_running_delta,),
    deviations=_beta("0.1; TRL's documentation gives 0.01 for the paper"),
)
# lists
PLACKETT_LUCE_DPO = PreferenceRecipe(
    "plackett_luce_dpo", partial(lists.plackett_luce_dpo, beta=0.1), deviations=_beta(OURS)
)
INFO_NCE = PreferenceRecipe("info_nce", partial(lists.info_nce, beta=0.1), deviations=_beta(OURS))
INFO_NCA = PreferenceRecipe(
    "info_nca",
    partial(lists.info_nca, beta=0.1),
    (targets,),
    deviations=_beta("0.1; TRL's documentation gives 0.01 for the paper"),
)
NCA = PreferenceRecipe(
    "nca",
    partial(lists.nca, beta=0.1),
    (targets,),
    deviations=_beta("0.1; TRL's documentation gives 0.01 for the paper"),
)
EXO = PreferenceRecipe("exo", partial(lists.exo, beta=0.1), (targets,))

#: In the order of the table above.
PREFERENCES: dict[str, PreferenceRecipe] = {
    row.name: row for row in list(vars().values()) if isinstance(row, PreferenceRecipe)
}


def get_preference(name: str) -> PreferenceRecipe:
    """Return the row of this name; a :class:`UserError` names the nearest one if there is none."""
    if name not in PREFERENCES:
        raise unknown("loss", name, PREFERENCES)
    return PREFERENCES[name]


def describe_preference(row: PreferenceRecipe) -> str:
    """Return a header for a run: source, inputs of the loss, options."""
    needs, kinds = row.needs, {PairLogps: "pairs", UnpairedLogps: "single completions with a label", ListLogps: "lists"}
    takes = [kinds[needs.record], "a reference" if needs.reference else "no reference"] + ["lengths"] * needs.lengths
    lines = {
        "takes": ", ".join(takes),
        "loss": name_of(row.loss),
        "context": name_of(row.context),
    }
    header = row.heading(row.source) + [f"  {name:16} {text}" for name, text in lines.items()]
    return "\n".join(header + [f"  {line}" for line in row.known_deviations()])
