"""An executable model specification: rules, each with the fraction of completions that must or should comply.

The rules are checked on sampled completions.
"""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from minirlhf.core.errors import UserError, unknown
from minirlhf.core.statistics import holm, sign_flips
from minirlhf.data.records import Problem
from minirlhf.feedback import custom_rewards
from minirlhf.feedback.graders import forms
from minirlhf.feedback.graders.thoughts import THOUGHTS, ThoughtTags
from minirlhf.feedback.rewards import Reward, score_completions, with_generation_prompts
from minirlhf_cli.files import start
from minirlhf_cli.files.answering import GenerationRequest, Generator
from minirlhf_cli.files.grading import grading
from minirlhf_cli.files.measure import (
    Measurement,
    ModelPair,
    SampledCompletions,
    as_json,
    compare,
    measure,
    sample_completions,
)

#: The effect of a rule whose verdict is not "holds": "must" blocks a release, "should" does not block it.
LEVELS = ("must", "should")
#: How a completion is checked.
CHECKS = ("grader", "constraints")
#: A rule regressed if its p-value, corrected for all rules, is below this.
ALPHA = 0.05
_FULL = 1 - 1e-9  # a weighted sum of graders may miss 1 by rounding


@dataclass(frozen=True)
class SpecRule:
    """One rule.

    Attributes:
        level: one of :data:`LEVELS`.
        at_least: the fraction of completions that have to comply.
        data: the prompts on which the rule is checked.
        grader: as in :func:`~minirlhf_cli.files.grading.grading`; a completion complies if its grade is 1 or more.
        constraints: in place of a grader, constraints for :func:`minirlhf.feedback.graders.constraints`.
    """

    name: str
    level: str
    at_least: float
    data: str
    grader: str | None = None
    constraints: str | None = None

    @classmethod
    def of(cls, name: str, said: Any, data: Any, where: str, beside: Path) -> SpecRule:
        """Parse a rule from a specification file; paths are relative to the folder ``beside`` if they exist there.

        Raises:
            UserError: an unknown setting, no or two levels, no or two checks, a fraction outside (0, 1), or no prompts.
        """
        location = f"{where}: rule {name!r}"
        if not isinstance(said, Mapping):
            raise UserError(
                f"{location}: holds {said!r}; expected settings such as {{must: 0.95, grader: rules.py:polite}}",
                argument="rule",
                value=said,
                expected=dict,
                file=where,
            )
        for setting in said:
            if setting not in (*LEVELS, *CHECKS, "data"):
                raise unknown("setting", str(setting), (*LEVELS, *CHECKS, "data"), file=where, place=location)
        level, check = (_one_of(said, names, location) for names in (LEVELS, CHECKS))
        fraction, criterion, data = said[level], said[check], said.get("data", data)
        if isinstance(fraction, bool) or not isinstance(fraction, int | float) or not 0 < fraction <= 1:
            raise UserError(
                f"{location}: {level} {fraction!r}; expected the fraction of completions that comply, between 0 and 1",
                argument=level,
                value=fraction,
                expected="(0, 1)",
                file=where,
            )
        if fraction == 1:
            raise UserError(
                f"{location}: {level} 1; no finite sample shows that every completion complies; expected a fraction below 1, such as 0.99",
                argument=level,
                value=fraction,
                expected="(0, 1)",
                file=where,
            )
        if not isinstance(data, str):
            raise UserError(
                f"{location}: no prompts; expected `data`, in the rule or at the top of the file",
                argument="data",
                problem="missing",
                file=where,
            )
        prompts = _beside(data, beside)
        if check == "constraints":
            if not isinstance(criterion, Mapping) or not criterion:
                raise UserError(
                    f"{location}: constraints {criterion!r}; expected an object such as {{max_words: 20}}",
                    argument="constraints",
                    value=criterion,
                    expected=dict,
                    file=where,
                )
            for constraint, value in criterion.items():
                if constraint not in forms.CONSTRAINTS:
                    raise unknown("constraint", str(constraint), forms.CONSTRAINTS, file=where, place=location)
                if not forms.can_be_asked(constraint, value):
                    raise UserError(
                        f"{location}: {constraint} {value!r}; expected a count of 0 or more, words, a text, or true",
                        argument=constraint,
                        value=value,
                        file=where,
                    )
            return cls(name, level, float(fraction), prompts, constraints=json.dumps(criterion))
        if not isinstance(criterion, str):
            raise UserError(
                f"{location}: grader {criterion!r}; expected a name, or FILE.py:FUNCTION",
                argument="grader",
                value=criterion,
                expected=str,
                file=where,
            )
        if custom_rewards.is_named(criterion):
            file, _, function = criterion.rpartition(":")
            criterion = f"{_beside(file, beside)}:{function}"
        return cls(name, level, float(fraction), prompts, grader=criterion)

    def complies(
        self,
        problems: Sequence[Problem],
        completions: Sequence[Sequence[str]],
        seconds: float,
        thoughts: ThoughtTags = THOUGHTS,
    ) -> Tensor:
        """Return ``(P, G)``: 1 if the completion complies, 0 if not, NaN if grading failed.

        Raises:
            UserError: grading failed for all completions.
        """
        repeated = [p for p, texts in zip(problems, completions, strict=True) for _ in texts]
        if self.constraints is not None:
            repeated = [dataclasses.replace(p, reference=self.constraints) for p in repeated]
        grades, failure = score_completions(
            self._reward(seconds, thoughts), repeated, [text for texts in completions for text in texts]
        )
        scores = torch.tensor(grades, dtype=torch.float64).view(len(problems), -1)
        if not bool(scores.isfinite().any()):
            raise UserError(
                f"rule {self.name!r}: none of the completions could be graded; first failure: {failure}",
                argument="grader",
                value=failure,
                problem="not graded",
            )
        return torch.where(scores.isfinite(), (scores >= _FULL).double(), math.nan)

    def _reward(self, seconds: float, thoughts: ThoughtTags) -> Reward:
        device = torch.device("cpu")
        return grading(self.grader or "constraints", None, seconds=seconds, device=device, thoughts=thoughts)[0]


def _one_of(settings: Mapping[str, Any], names: Sequence[str], location: str) -> str:
    present = [name for name in names if name in settings]
    if len(present) != 1:
        raise UserError(
            f"{location}: has {' and '.join(present) or 'neither'}; expected either {' or '.join(names)}",
            argument=names[0],
            value=present,
            expected=names,
        )
    return present[0]


def _beside(name: str, folder: Path) -> str:
    return str(folder / name) if (folder / name).exists() else name


@dataclass(frozen=True)
class Specification:
    """A file of rules.

    Attributes:
        where: the name of the file.
        clauses: the rules, in the order of the file.
        settings: the sampling settings in the file: fields of :class:`RulesRequest`.
    """

    where: str
    clauses: tuple[SpecRule, ...]
    settings: Mapping[str, Any]

    @classmethod
    def of(cls, values: Mapping[str, Any], file: Path) -> Specification:
        """Parse the contents of a specification file.

        Raises:
            UserError: no rules, an invalid rule (:meth:`SpecRule.of`), or an unknown setting.
        """
        rules, data = values.get("rules"), values.get("data")
        if not isinstance(rules, Mapping) or not rules:
            raise UserError(
                f"{file}: no rules; expected 'rules:' with a name and settings for each rule",
                argument="rules",
                problem="missing",
                file=file,
            )
        known = (
            "num_generations",
            "max_completion_length",
            "temperature",
            "top_p",
            "limit",
            "grader_timeout",
            "thought_tags",
        )
        for name in values:
            if name not in (*known, "rules", "data"):
                raise unknown("setting", name, (*known, "rules", "data"), file=file)
        clauses = tuple(SpecRule.of(str(name), rule, data, str(file), file.parent) for name, rule in rules.items())
        return cls(str(file), clauses, {name: values[name] for name in known if name in values})


@dataclass(frozen=True)
class RuleResult:
    """The result of checking one rule.

    Attributes:
        rate: the fraction of completions that comply, with its interval over prompts.
        ungraded: the number of completions that could not be graded.
        broken: the first few prompts with a violation, each with its first completion that does not comply.
        change: the comparison with another model on the same prompts; None without another model. Its p-value tests the
            *fraction* of completions (:func:`~minirlhf.core.statistics.sign_flips`) and is corrected for all rules.
            With one completion per prompt this is the sign test.
    """

    clause: SpecRule
    rate: Measurement
    ungraded: int
    broken: tuple[tuple[Problem, str], ...]
    change: ModelPair | None = None

    @property
    def verdict(self) -> str:
        """``holds`` if the whole interval is at or above ``at_least``, ``fails`` if it is below, else ``open``."""
        bar = self.clause.at_least
        return "holds" if self.rate.low >= bar else "fails" if self.rate.high < bar else "open"

    @property
    def regressed(self) -> bool:
        """Whether significantly fewer completions comply than those of the other model."""
        return self.change is not None and self.change.difference.value < 0 and self.change.p_value < ALPHA

    @property
    def blocks_release(self) -> bool:
        """Whether it blocks a release: a *must* that fails or is open, that regressed, or with ungraded completions."""
        return self.clause.level == "must" and (self.verdict != "holds" or self.regressed or self.ungraded > 0)

    def as_json(self) -> dict[str, Any]:
        """Return all fields except the completions."""
        row = {
            "rule": self.clause.name, self.clause.level: self.clause.at_least, **as_json([self.rate]), "verdict": self.verdict,
            "not graded": self.ungraded,
        }  # fmt: skip
        if self.change is not None:
            row |= {
                **as_json([self.change.difference]), "better": self.change.better, "worse": self.change.worse,
                "p": self.change.p_value, "got worse": self.regressed,
            }  # fmt: skip
        return row


@dataclass(frozen=True)
class RulesRequest(GenerationRequest):
    """A request whose completions are sampled first and checked by every rule afterwards.

    The rules name the prompts.
    """

    data: str = ""

    def scored_by(self, device: torch.device) -> tuple[Reward, str]:
        """See :meth:`GenerationRequest.scored_by`; at this point nothing is graded."""
        return lambda problems, texts: [0.0] * len(texts), "the rules"


#: Number of violations shown per rule.
SHOWN = 3


def check(
    spec: Specification, request: RulesRequest, *, against: str | None = None
) -> tuple[list[RuleResult], dict[str, str]]:
    """Sample completions for each file of prompts once, and check every rule on them.

    The model ``against`` is sampled and checked with the same random numbers.

    Returns:
        The result of each rule, and the digests of models, prompts and grader files, by name.
    """
    digests: dict[str, str] = {}
    samples: dict[tuple[str, str], tuple[list[Problem], SampledCompletions]] = {}

    def checked(name: str, clause: SpecRule) -> tuple[list[Problem], SampledCompletions]:
        if (name, clause.data) not in samples:
            loaded = Generator.load(dataclasses.replace(request, model=name, data=clause.data))
            completions = sample_completions(
                loaded.model, loaded.tokenizer, loaded.problems, loaded.reward, request.sampling,
                num_generations=request.num_generations, seed=request.seed, batch_size=request.batch_size,
            )  # fmt: skip
            samples[name, clause.data] = with_generation_prompts(loaded.tokenizer, loaded.problems), completions
            digests[name], digests[clause.data] = start.model_digest(loaded.model), start.digest(loaded.problems)
        problems, completions = samples[name, clause.data]
        compliance = clause.complies(problems, completions.completions, request.grader_timeout, request.thoughts)
        return problems, dataclasses.replace(completions, rewards=compliance)

    results = []
    for clause in spec.clauses:
        if clause.grader is not None and custom_rewards.is_named(clause.grader):
            file = clause.grader.rpartition(":")[0]
            digests[file] = start.file_digest(file)
        problems, candidate = checked(request.model, clause)
        rate = dataclasses.replace(measure(candidate)[0], name="kept")
        broken = [
            (p, next(text for text, complied in zip(texts, compliance, strict=True) if complied == 0))
            for p, texts, compliance in zip(problems, candidate.completions, candidate.rewards, strict=True)
            if bool((compliance == 0).any())
        ]
        change = None
        if against is not None:
            baseline = checked(against, clause)[1]
            [change] = compare({request.model: candidate, against: baseline})
            differences = candidate.rewards.double().nanmean(1) - baseline.rewards.double().nanmean(1)
            change = dataclasses.replace(change, p_value=sign_flips(differences[differences.isfinite()].tolist()))
        ungraded = int((~candidate.rewards.isfinite()).sum())
        results.append(RuleResult(clause, rate, ungraded, tuple(broken[:SHOWN]), change))
    return _corrected(results), digests


def _corrected(results: list[RuleResult]) -> list[RuleResult]:
    """Correct the p-values for the number of rules (Holm)."""
    changes = [result.change for result in results if result.change is not None]
    if not changes:
        return results
    p_values = holm([change.p_value for change in changes])
    return [
        dataclasses.replace(result, change=dataclasses.replace(change, p_value=p))
        for result, change, p in zip(results, changes, p_values, strict=True)
    ]
