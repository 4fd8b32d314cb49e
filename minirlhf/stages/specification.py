"""A model specification that runs: rules with the share of replies that must, or should, keep each, checked on sampled replies."""

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
from minirlhf.feedback.rewards import Reward, score_completions
from minirlhf.stages import start
from minirlhf.stages.answering import GenerationRequest, Generator
from minirlhf.stages.grading import grading
from minirlhf.stages.measure import Measurement, ModelPair, Replies, answers, as_json, compare, measure

#: What a rule that does not hold does: stop a release, or be weighed.
LEVELS = ("must", "should")
#: What checks a reply.
CHECKS = ("grader", "constraints")
#: A rule got worse where the p-value, corrected for all rules, is below this.
ALPHA = 0.05
_FULL = 1 - 1e-9  # a weighted sum of graders may miss 1 by rounding


@dataclass(frozen=True)
class SpecRule:
    """One rule.

    Attributes:
        level: one of :data:`LEVELS`.
        at_least: the share of replies that have to keep it.
        data: the prompts that it is checked on.
        grader: as :func:`~minirlhf.stages.grading.grading` takes it; a reply keeps the rule if its grade is 1 or more.
        constraints: in place of a grader, what :func:`minirlhf.feedback.graders.constraints` asks for.
    """

    name: str
    level: str
    at_least: float
    data: str
    grader: str | None = None
    constraints: str | None = None

    @classmethod
    def of(cls, name: str, said: Any, data: Any, where: str, beside: Path) -> SpecRule:
        """The rule as a file says it; files that it names lie in the folder ``beside``, if they are there.

        Raises:
            UserError: a setting that is not known, a level or a check missing or twice, a share outside (0, 1), no prompts.
        """
        place = f"{where}: rule {name!r}"
        if not isinstance(said, Mapping):
            raise UserError(
                f"{place}: holds {said!r}; expected settings such as {{must: 0.95, grader: rules.py:polite}}",
                argument="rule",
                value=said,
                expected=dict,
                file=where,
            )
        for setting in said:
            if setting not in (*LEVELS, *CHECKS, "data"):
                raise unknown("setting", str(setting), (*LEVELS, *CHECKS, "data"), file=where, place=place)
        level, check = (_one_of(said, names, place) for names in (LEVELS, CHECKS))
        share, given, data = said[level], said[check], said.get("data", data)
        if isinstance(share, bool) or not isinstance(share, int | float) or not 0 < share <= 1:
            raise UserError(
                f"{place}: {level} {share!r}; expected the share of replies that keep it, between 0 and 1",
                argument=level,
                value=share,
                expected="(0, 1)",
                file=where,
            )
        if share == 1:
            raise UserError(
                f"{place}: {level} 1; no number of replies shows that every reply keeps it; expected a share below 1, such as 0.99",
                argument=level,
                value=share,
                expected="(0, 1)",
                file=where,
            )
        if not isinstance(data, str):
            raise UserError(
                f"{place}: no prompts; expected data, in the rule or at the head of the file",
                argument="data",
                problem="missing",
                file=where,
            )
        prompts = _beside(data, beside)
        if check == "constraints":
            if not isinstance(given, Mapping) or not given:
                raise UserError(
                    f"{place}: constraints {given!r}; expected an object such as {{max_words: 20}}",
                    argument="constraints",
                    value=given,
                    expected=dict,
                    file=where,
                )
            for constraint, asked in given.items():
                if constraint not in forms.CONSTRAINTS:
                    raise unknown("constraint", str(constraint), forms.CONSTRAINTS, file=where, place=place)
                if not forms.can_be_asked(constraint, asked):
                    raise UserError(
                        f"{place}: {constraint} {asked!r}; expected a count of 0 or more, words, a text, or true",
                        argument=constraint,
                        value=asked,
                        file=where,
                    )
            return cls(name, level, float(share), prompts, constraints=json.dumps(given))
        if not isinstance(given, str):
            raise UserError(
                f"{place}: grader {given!r}; expected a name, or FILE.py:FUNCTION",
                argument="grader",
                value=given,
                expected=str,
                file=where,
            )
        if custom_rewards.is_named(given):
            file, _, function = given.rpartition(":")
            given = f"{_beside(file, beside)}:{function}"
        return cls(name, level, float(share), prompts, grader=given)

    def complies(self, problems: Sequence[Problem], completions: Sequence[Sequence[str]], seconds: float) -> Tensor:
        """Which replies keep it, ``(P, G)`` of 0 and 1, NaN where that cannot be said.

        Raises:
            UserError: it can be said of none.
        """
        asked = [p for p, some in zip(problems, completions, strict=True) for _ in some]
        if self.constraints is not None:
            asked = [dataclasses.replace(p, reference=self.constraints) for p in asked]
        grades, failure = score_completions(
            self._reward(seconds), asked, [text for some in completions for text in some]
        )
        found = torch.tensor(grades, dtype=torch.float64).view(len(problems), -1)
        if not bool(found.isfinite().any()):
            raise UserError(
                f"rule {self.name!r}: none of the replies could be graded; first: {failure}",
                argument="grader",
                value=failure,
                problem="not graded",
            )
        return torch.where(found.isfinite(), (found >= _FULL).double(), math.nan)

    def _reward(self, seconds: float) -> Reward:
        return grading(self.grader or "constraints", None, seconds=seconds, device=torch.device("cpu"))[0]


def _one_of(said: Mapping[str, Any], names: Sequence[str], place: str) -> str:
    given = [name for name in names if name in said]
    if len(given) != 1:
        raise UserError(
            f"{place}: says {' and '.join(given) or 'neither'}; expected either {' or '.join(names)}",
            argument=names[0],
            value=given,
            expected=names,
        )
    return given[0]


def _beside(name: str, folder: Path) -> str:
    return str(folder / name) if (folder / name).exists() else name


@dataclass(frozen=True)
class Specification:
    """A file of rules.

    Attributes:
        where: its name.
        clauses: the rules, in their order.
        asked: how replies are drawn, as it stands there: fields of :class:`RulesRequest`.
    """

    where: str
    clauses: tuple[SpecRule, ...]
    asked: Mapping[str, Any]

    @classmethod
    def of(cls, values: Mapping[str, Any], file: Path) -> Specification:
        """What was read from a file.

        Raises:
            UserError: no rules, or one that is not one (:meth:`Clause.of`), or a setting that is not known.
        """
        rules, data = values.get("rules"), values.get("data")
        if not isinstance(rules, Mapping) or not rules:
            raise UserError(
                f"{file}: no rules; expected 'rules:' and under it a name and settings for each",
                argument="rules",
                problem="missing",
                file=file,
            )
        known = ("num_generations", "max_completion_length", "temperature", "top_p", "limit", "grader_seconds")
        for name in values:
            if name not in (*known, "rules", "data"):
                raise unknown("setting", name, (*known, "rules", "data"), file=file)
        clauses = tuple(SpecRule.of(str(name), said, data, str(file), file.parent) for name, said in rules.items())
        return cls(str(file), clauses, {name: values[name] for name in known if name in values})


@dataclass(frozen=True)
class RuleResult:
    """What became of a rule.

    Attributes:
        rate: of replies that keep it, with its interval over prompts.
        ungraded: replies of which it cannot be said.
        broken: prompts and the first of their replies that does not keep it, the first few.
        change: against another model on the same prompts; its chance is that of the *share* of replies (:func:`~minirlhf.core.statistics.sign_flips`),
            which with one reply to a prompt is the sign test, corrected for all rules. None without another.
    """

    clause: SpecRule
    rate: Measurement
    ungraded: int
    broken: tuple[tuple[Problem, str], ...]
    change: ModelPair | None = None

    @property
    def verdict(self) -> str:
        """``holds`` if the whole interval is at the share that is asked for or above, ``fails`` if it is below, else ``open``."""
        bar = self.clause.at_least
        return "holds" if self.rate.low >= bar else "fails" if self.rate.high < bar else "open"

    @property
    def regressed(self) -> bool:
        """Whether fewer replies keep it than those of the other model, by more than chance explains."""
        return self.change is not None and self.change.difference.value < 0 and self.change.p_value < ALPHA

    @property
    def blocks_release(self) -> bool:
        """Whether it stops a release: a *must* that is not shown to hold, that got worse, or of which some replies could not be graded."""
        return self.clause.level == "must" and (self.verdict != "holds" or self.regressed or self.ungraded > 0)

    def as_json(self) -> dict[str, Any]:
        """Everything but the replies."""
        found = {
            "rule": self.clause.name, self.clause.level: self.clause.at_least, **as_json([self.rate]), "verdict": self.verdict,
            "not graded": self.ungraded,
        }  # fmt: skip
        if self.change is not None:
            found |= {
                **as_json([self.change.difference]), "better": self.change.better, "worse": self.change.worse,
                "p": self.change.p_value, "got worse": self.regressed,
            }  # fmt: skip
        return found


@dataclass(frozen=True)
class RulesRequest(GenerationRequest):
    """A request whose replies are drawn first, and checked by every rule afterwards. Its prompts are those of the rules."""

    data: str = ""

    def scored_by(self, device: torch.device) -> tuple[Reward, str]:
        """See :meth:`GenerationRequest.scored_by`; nothing is graded yet."""
        return lambda problems, texts: [0.0] * len(texts), "the rules"


#: Replies that break a rule and are shown.
SHOWN = 3


def check(
    spec: Specification, asked: RulesRequest, *, against: str | None = None
) -> tuple[list[RuleResult], dict[str, str]]:
    """Draw replies to each file of prompts once, and check every rule on them; the same for the model ``against``, with the same random numbers.

    Returns:
        What became of each rule, and what tells the models, their prompts and files of graders from others: digests by name.
    """
    digests: dict[str, str] = {}
    drawn: dict[tuple[str, str], tuple[list[Problem], Replies]] = {}

    def replies(name: str, clause: SpecRule) -> tuple[list[Problem], Replies]:
        if (name, clause.data) not in drawn:
            loaded = Generator.load(dataclasses.replace(asked, model=name, data=clause.data))
            said = answers(
                loaded.model, loaded.tokenizer, loaded.problems, loaded.reward, asked.sampling,
                num_generations=asked.num_generations, seed=asked.seed, batch_size=asked.batch_size,
            )  # fmt: skip
            drawn[name, clause.data] = loaded.problems, said
            digests[name], digests[clause.data] = start.model_digest(loaded.model), start.digest(loaded.problems)
        problems, said = drawn[name, clause.data]
        kept = clause.complies(problems, said.completions, asked.grader_seconds)
        return problems, dataclasses.replace(said, rewards=kept)

    found = []
    for clause in spec.clauses:
        if clause.grader is not None and custom_rewards.is_named(clause.grader):
            file = clause.grader.rpartition(":")[0]
            digests[file] = start.file_digest(file)
        problems, ours = replies(asked.model, clause)
        rate = dataclasses.replace(measure(ours)[0], name="kept")
        broken = [
            (p, next(text for text, held in zip(texts, kept, strict=True) if held == 0))
            for p, texts, kept in zip(problems, ours.completions, ours.rewards, strict=True)
            if bool((kept == 0).any())
        ]
        change = None
        if against is not None:
            theirs = replies(against, clause)[1]
            [change] = compare({asked.model: ours, against: theirs})
            apart = ours.rewards.double().nanmean(1) - theirs.rewards.double().nanmean(1)
            change = dataclasses.replace(change, p_value=sign_flips(apart[apart.isfinite()].tolist()))
        ungraded = int((~ours.rewards.isfinite()).sum())
        found.append(RuleResult(clause, rate, ungraded, tuple(broken[:SHOWN]), change))
    return _corrected(found), digests


def _corrected(found: list[RuleResult]) -> list[RuleResult]:
    """With p-values that say what they say although so many rules were looked at."""
    changes = [f.change for f in found if f.change is not None]
    if not changes:
        return found
    chances = holm([change.p_value for change in changes])
    return [
        dataclasses.replace(f, change=dataclasses.replace(change, p_value=p))
        for f, change, p in zip(found, changes, chances, strict=True)
    ]
