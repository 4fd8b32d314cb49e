"""Distillation as rows of one table: the loss against the teacher, and the source of the completions.

A row chooses three things: a loss per token, the fraction of steps in which the student samples the completions, and
the source of the other completions, which is the data or the teacher.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass, replace
from typing import ClassVar, Protocol

import torch
from torch import Tensor

from minirlhf.core.errors import UserError
from minirlhf.core.logprobs import next_token_logps
from minirlhf.core.options import option
from minirlhf.equations import distillation as kd
from minirlhf.equations.aggregation import sequence_sum, token_mean
from minirlhf.equations.kl import with_prefix_credit
from minirlhf.recipes.options import ConfigurableRecipe, Deviation, Places, filled, name_of


@dataclass(frozen=True)
class DistillationBatch:
    """The logits of both models on a batch of completions.

    Attributes:
        student_logits, teacher_logits: ``(B, T, V)``, the teacher's without gradient.
        ids: ``(B, T)``, the tokens of the completions.
        mask: ``(B, T)``, True on these tokens.
        sampled_at: the temperature at which the completions were sampled, if they were sampled.
    """

    student_logits: Tensor
    teacher_logits: Tensor
    ids: Tensor
    mask: Tensor
    sampled_at: float = 1.0

    def logps(self, temperature: float = 1.0) -> Tensor:
        """Return the log-probabilities ``(B, T)`` of the completions under the student; undefined outside the mask."""
        return next_token_logps(self.student_logits, torch.where(self.mask, self.ids, 0), temperature)


class TokenLoss(Protocol):
    """``(batch) -> (B, T)``, minimised, 0 outside the mask.

    Attributes:
        needs_student_completions: whether it is valid only on completions that the student sampled.
        asks_teacher: whether it uses the teacher's probabilities; otherwise the teacher acts only through its
            completions.
    """

    needs_student_completions: bool
    asks_teacher: bool

    def __call__(self, seen: DistillationBatch) -> Tensor: ...


@dataclass(frozen=True)
class FullDistributionLoss:
    """Compare the distributions of both models at every token of the completion.

    Attributes:
        divergence: ``(student_logits, teacher_logits, mask, *, temperature, ...) -> (B, T)``; the run's temperature, if none is bound.
    """

    divergence: Callable[..., Tensor]
    needs_student_completions = False
    asks_teacher = True

    def __call__(self, seen: DistillationBatch) -> Tensor:
        return self.divergence(seen.student_logits, seen.teacher_logits, seen.mask)


@dataclass(frozen=True)
class PolicyGradientDistillation(FullDistributionLoss):
    """The same loss plus a policy gradient: each sampled token gets credit for the divergences of later tokens.

    Valid only on completions that the student sampled.
    """

    needs_student_completions = True

    def __call__(self, seen: DistillationBatch) -> Tensor:
        return with_prefix_credit(super().__call__(seen), seen.logps(seen.sampled_at), seen.mask)


@dataclass(frozen=True)
class Sampled:
    """A loss on the tokens of the completion only, without the teacher's probabilities.

    Attributes:
        loss: ``(logps, mask) -> (B, T)``.
    """

    loss: Callable[..., Tensor]
    needs_student_completions = False
    asks_teacher = False

    def __call__(self, seen: DistillationBatch) -> Tensor:
        return self.loss(seen.logps(), seen.mask)


@dataclass(frozen=True)
class Distillation(ConfigurableRecipe):
    """A method that learns from a teacher with the same vocabulary.

    Attributes:
        source: the paper.
        compared: the loss of each token.
        weights: ``(mask) -> (B, T)``, how tokens are averaged.
    """

    PLACES: ClassVar[Places] = {
        "": ("name", "source", "deviations", "compared", "weights", "own_answers", "from_teacher"),
        "compared": ("divergence", "loss"),
        "compared.divergence": ("temperature", "beta", "k"),
    }

    _: KW_ONLY
    source: str
    compared: TokenLoss
    weights: Callable[[Tensor], Tensor] = token_mean
    own_answers: float = option(
        0.0,
        "fraction of steps in which the student samples the completions (on-policy), in [0, 1]; no gradient flows "
        "through the sampling itself",
    )
    from_teacher: bool = option(
        False,
        "in the other steps the teacher samples the completions; False: they come from the data",
    )

    def resolved(self, *, temperature: float) -> Distillation:
        """Return this recipe with the run's temperature for a divergence that has none bound; also its row."""
        if not isinstance(self.compared, FullDistributionLoss):
            return self
        divergence = filled(self.compared.divergence, temperature=temperature)
        row = self.row and self.row.resolved(temperature=temperature)
        return replace(self, row=row, compared=replace(self.compared, divergence=divergence))

    def _try(self) -> None:
        self.resolved(temperature=1.0).validate()

    def validate(self, vocabulary: int = 1000) -> None:
        """Compute the loss of a synthetic completion, so that an invalid number is reported before anything is trained.

        Args:
            vocabulary: number of tokens in the synthetic vocabulary.

        Raises:
            UserError: the loss rejects a number (the message is that of the loss), or the loss does not fit
                ``own_answers``.
        """
        if not 0.0 <= self.own_answers <= 1.0:
            raise UserError(
                f"{self.name}: own_answers = {self.own_answers!r}; expected a fraction from 0 to 1",
                argument="own_answers",
                value=self.own_answers,
                expected="[0, 1]",
            )
        if self.compared.needs_student_completions and self.own_answers < 1:
            raise UserError(
                f"{self.name}: own_answers = {self.own_answers:g}; this loss needs completions "
                "that the student sampled; expected 1",
                argument="own_answers",
                value=self.own_answers,
                expected=1,
            )
        if self.own_answers > 0 and not self.compared.asks_teacher:
            raise UserError(
                f"{self.name}: own_answers = {self.own_answers:g}; this loss does not use the teacher's probabilities; expected 0",
                argument="own_answers",
                value=self.own_answers,
                expected=0,
            )
        logits = torch.arange(float(vocabulary)).view(1, 1, -1) / vocabulary
        batch = DistillationBatch(
            logits, -logits, torch.zeros(1, 1, dtype=torch.long), torch.ones(1, 1, dtype=torch.bool)
        )
        try:
            self.compared(batch)
        except (ValueError, TypeError) as problem:
            raise UserError.about(f"{self.name}: {problem}", problem) from None

    @property
    def samples(self) -> bool:
        """Whether the student or the teacher samples completions."""
        return self.own_answers > 0 or self.from_teacher


ON_POLICY = "Agarwal et al. (2024), On-Policy Distillation of Language Models: Learning from Self-Generated Mistakes, arXiv:2306.13649"
DISTILLATIONS: dict[str, Distillation] = {
    row.name: row
    for row in (
        Distillation(
            "kd",
            source="Hinton, Vinyals & Dean (2015), Distilling the Knowledge in a Neural Network, arXiv:1503.02531",
            compared=FullDistributionLoss(kd.forward_kl_distillation),
            deviations=(
                Deviation("without the paper's additional loss on hard labels", "compared"),
                Deviation(
                    "the gradient is not multiplied by temperature², because there is no second loss term", "compared"
                ),
            ),
        ),
        Distillation(
            "top_k_kd",
            source="the forward KL over the teacher's k likeliest tokens and their tail; chapter 18",
            compared=FullDistributionLoss(kd.top_k_distillation),
        ),
        Distillation(
            "sequence_kd",
            source="Kim & Rush (2016), Sequence-Level Knowledge Distillation, arXiv:1606.07947",
            compared=Sampled(kd.sequence_level),
            from_teacher=True,
            deviations=(
                Deviation(
                    "the teacher's completions are sampled; the paper takes the best of a beam search", "from_teacher"
                ),
            ),
        ),
        Distillation(
            "gkd",
            source=ON_POLICY,
            compared=FullDistributionLoss(kd.jsd_distillation),
            own_answers=0.5,
            deviations=(
                Deviation(
                    "β and own_answers are TRL's defaults; the paper tries several values", "beta", "own_answers"
                ),
            ),
        ),
        Distillation(
            "on_policy_kd",
            source=ON_POLICY,
            compared=FullDistributionLoss(kd.reverse_kl_distillation),
            own_answers=1.0,
        ),
        Distillation(
            "minillm",
            source="Gu et al. (2024), MiniLLM: Knowledge Distillation of Large Language Models, arXiv:2306.08543",
            compared=PolicyGradientDistillation(kd.reverse_kl_distillation),
            weights=sequence_sum,
            own_answers=1.0,
            deviations=(
                Deviation(
                    "the student alone samples the completions; the paper's sampler mixes in the teacher", "own_answers"
                ),
                Deviation(
                    "the sum over later tokens is not divided by their number, and there is no language modelling loss",
                    "compared",
                ),
                Deviation(
                    "divergences of later tokens are sums over the vocabulary; the paper uses the sampled tokens' log-ratios",
                    "compared",
                ),
            ),
        ),
    )
}


def describe_distillation(row: Distillation) -> str:
    """Return a header for a run: source, choices, and every known deviation from the paper."""
    others = "sampled by the teacher" if row.from_teacher else "from the data"
    answers = (
        f"sampled by the student in {row.own_answers:.0%} of the steps, else {others}" if row.own_answers else others
    )
    lines = {"compared": name_of(row.compared), "weights": name_of(row.weights), "answers": answers}
    header = row.heading(row.source) + [f"  {name:16} {text}" for name, text in lines.items()]
    return "\n".join(header + [f"  {line}" for line in row.known_deviations()])
