"""What a user-defined grader is called with: its parameters, bound by their names."""

from __future__ import annotations

import copy
import inspect
import re
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Any

from minirlhf.core.errors import UserError
from minirlhf.data.records import Problem

#: The places of a function whose parameters all have other names than these: ``fn(a, b, c)``.
PLACES = ("completion", "reference", "messages")
#: Words of a parameter's name that say what it is. The words of an earlier row decide: a *gold completion* is a
#: reference, a *predicted answer* a completion.
_WORDS: tuple[tuple[str, str], ...] = (
    ("data_source", "data_source data_sources"),
    ("extra_info", "extra_info extra_infos"),
    ("completion", "solution_str solution_strs predict_str predict predicts"),
    (
        "reference",
        "correct expected gold golden ground ground_truth ground_truths gt ref refs reference references target targets true truth",
    ),
    ("completion", "candidate generated hypothesis hypotheses hyp model pred prediction predictions predicted student"),
    ("reference", "answer answers label labels solution solutions"),
    ("messages", "conversation conversations messages prompt prompts"),
    ("question", "input inputs instruction instructions problem problems query queries question questions"),
    (
        "completion",
        "completion completions generation generations output outputs replies reply resp response responses text texts",
    ),
)
#: Columns that the data's format turns into the prompt and the reference, which are passed in their place.
_OURS = frozenset(("completion", "prompt", "messages", "reference", "answer", "ground_truth"))
#: The columns of verl's rows that a row of another layout does not have.
_MISSING: Mapping[str, Any] = {"data_source": None, "extra_info": None}


#: Words that make a setting or a measure of a name: ``max_completion_length``, ``correct_reward``, ``model_name``.
_MEASURES = frozenset(
    [
        "count",
        "file",
        "format",
        "id",
        "ids",
        "index",
        "len",
        "length",
        "lengths",
        "lower",
        "mask",
        "max",
        "method",
        "min",
        "mode",
        "name",
        "num",
        "path",
        "reward",
        "rewards",
        "score",
        "scale",
        "scores",
        "size",
        "threshold",
        "tokens",
        "type",
        "upper",
        "version",
        "weight",
        "weights",
    ]
)


def role_of(name: str) -> str | None:
    """Return what a parameter of this name is: one of :data:`PLACES`, ``question``, ``data_source``, ``extra_info``.

    None: no name that is known here.
    """
    words = {name.lower(), *name.lower().split("_")}
    if _is_measure(name):
        return None
    return next((role for role, known in _WORDS if words & set(known.split())), None)


@dataclass(frozen=True)
class Signature:
    """The parameters of a grader.

    Attributes:
        roles: the role of each parameter that is passed, by name; None for a column of the data.
        positional: the parameters that can only be passed by position.
        optional: the parameters with a default.
        is_batch: whether the function takes lists and grades all completions at once, as in TRL.
        takes_columns: whether it takes ``**columns``.
    """

    roles: Mapping[str, str | None]
    positional: tuple[str, ...]
    optional: frozenset[str]
    is_batch: bool
    takes_columns: bool

    @classmethod
    def of(cls, function: Callable[..., Any], named: str) -> Signature:
        """Bind the parameters of a function.

        Names that are known decide. If none is known, the places do: completion, reference, messages.

        Raises:
            UserError: the function takes no completion, or a parameter without a default cannot be bound.
        """
        parameters = _parameters(function, named)
        takes_columns = any(p.kind is p.VAR_KEYWORD for p in parameters)
        given = [p for p in parameters if p.kind not in (p.VAR_KEYWORD, p.VAR_POSITIONAL)]
        optional = frozenset(p.name for p in given if p.default is not p.empty)
        # A default with a value is a setting of the function's own: target=200, model="large".
        settings = {p.name for p in given if p.name in optional and not _is_open(p.default)}
        roles = {p.name: None if p.name in settings else role_of(p.name) for p in given}
        roles = _of_one_completion(roles, optional, named)
        if given and not any(roles.values()):
            places = [p for p in given if p.kind is not p.KEYWORD_ONLY and p.default in (p.empty, None)]
            if len(places) > len(PLACES):
                raise _refused(named, f"{len(places)} parameters, none with a known name", list(roles))
            roles |= {p.name: role for p, role in zip(places, PLACES, strict=False)}
        is_batch = _is_batch(roles, takes_columns, named)
        if "completion" not in roles.values() and not (takes_columns and not given):
            raise _refused(named, f"({', '.join(roles)}): no parameter is the completion", list(roles))
        positional = tuple(p.name for p in given if p.kind is p.POSITIONAL_ONLY)
        return cls(roles, positional, optional, is_batch, takes_columns)

    def arguments(self, problem: Problem, completion: str, named: str) -> tuple[list[Any], dict[str, Any]]:
        """Return the arguments for one completion, by position and by name.

        Raises:
            UserError: a parameter without a default is no column of the problem's row.
        """
        values: dict[str, Any] = {}
        for name, role in self.roles.items():
            if name in problem.columns and (role is None or name not in _OURS):
                if name not in self.optional or not _is_measure(name):  # score=1.0 is verl's setting
                    values[name] = problem.columns[name]
            elif role in ("completion", "reference", "messages", "question"):
                values[name] = _value("question" if name == "prompt_str" else role, problem, completion)
            elif name in self.optional:
                continue
            elif role is not None:
                values[name] = _MISSING[role]
            else:
                raise _no_column(named, name, problem)
        if self.takes_columns:
            more = {"reference": problem.reference, "messages": problem.prompt} | problem.columns
            values |= {name: value for name, value in more.items() if name not in values and name not in self.roles}
        return self._apart(values)

    def batch_arguments(
        self, problems: Sequence[Problem], completions: Sequence[str], named: str
    ) -> tuple[list[Any], dict[str, Any]]:
        """Return the arguments for all completions at once: lists, by position and by name.

        A parameter that has the name of a column is this column, as in TRL. Completions are texts; if the column
        ``prompt`` of the data is a list of messages, so is each completion.

        Raises:
            UserError: a parameter without a default is no column of the data.
        """
        columns = dict.fromkeys(name for problem in problems for name in problem.columns)
        values: dict[str, Any] = {}
        for name, role in self.roles.items():
            if role == "completion" and name.endswith(
                "strs"
            ):  # verl's solution_strs are texts, whatever the prompts are
                values[name] = list(completions)
            elif role in ("completion", "messages"):
                values[name] = [_as_in_trl(role, *one) for one in zip(problems, completions, strict=True)]
            elif name in columns:
                values[name] = [problem.columns.get(name) for problem in problems]
            elif role in ("reference", "question"):
                values[name] = [_value(role, *one) for one in zip(problems, completions, strict=True)]
            elif name in self.optional and role not in columns:
                continue
            elif role is not None:
                values[name] = [problem.columns.get(role, _MISSING[role]) for problem in problems]
            else:
                raise _no_column(named, name, problems[0])
        if self.takes_columns:
            more = {name: [problem.columns.get(name) for problem in problems] for name in columns if name != "prompt"}
            for name, role in (("completions", "completion"), ("prompts", "messages")):
                more[name] = [_as_in_trl(role, *one) for one in zip(problems, completions, strict=True)]
            more.setdefault("reference", [problem.reference for problem in problems])
            values |= {name: value for name, value in more.items() if name not in values and name not in self.roles}
        return self._apart(values)

    def _apart(self, values: Mapping[str, Any]) -> tuple[list[Any], dict[str, Any]]:
        """Return copies of the values, which a function may change, by position and by name."""
        copies = {
            name: [copy.deepcopy(item) for item in value] if isinstance(value, list) else copy.deepcopy(value)
            for name, value in values.items()
        }
        return [copies.pop(name) for name in self.positional if name in copies], copies


def _is_open(default: object) -> bool:
    """Return whether a default leaves the value open, as None and an empty text do."""
    return default is None or (isinstance(default, str | list | tuple | dict) and not default)


def _is_measure(name: str) -> bool:
    return bool({name.lower(), *name.lower().split("_")} & _MEASURES)


def _of_one_completion(roles: Mapping[str, str | None], optional: Set[str], named: str) -> dict[str, str | None]:
    """Return the roles with one completion: of several, the one without a default."""
    completions = [name for name, role in roles.items() if role == "completion"]
    required = [name for name in completions if name not in optional] or completions[:1]
    if len(required) > 1 and not any(_is_plural(name) for name in required):
        raise _refused(named, f"({', '.join(roles)}): two of them are the completion", list(roles))
    return {name: None if name in completions and name not in required else role for name, role in roles.items()}


def _parameters(function: Callable[..., Any], named: str) -> list[inspect.Parameter]:
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):
        raise _refused(named, "a function whose parameters cannot be seen", []) from None
    if not any(p.kind is not p.VAR_POSITIONAL for p in parameters):
        raise _refused(named, "a function without parameters", [])
    return parameters


def _is_batch(roles: Mapping[str, str | None], takes_columns: bool, named: str) -> bool:
    """Return whether the completions are asked for in the plural; so must be then what else is in the plural."""
    completions = [name for name, role in roles.items() if role == "completion"]
    is_batch = any(_is_plural(name) for name in completions) or (takes_columns and not roles)
    mixed = any(_is_plural(name) != is_batch for name in completions)
    plural = [name for name, role in roles.items() if role is not None and _is_plural(name) and name != "messages"]
    if mixed or (plural and not is_batch):
        raise _refused(named, f"({', '.join(roles)}): one completion or all of them?", list(roles))
    return is_batch


def _is_plural(name: str) -> bool:
    return re.search(r"(?:completion|generation|output|response|text|prediction|prompt|reference|answer|label|solution|question|problem|"
        r"input|instruction|target|ref|conversation|data_source|extra_info|str|predict)s$|(?:replies|queries)$", name.lower()) is not None  # fmt: skip


def _value(role: str, problem: Problem, completion: str) -> Any:
    match role:
        case "completion":
            return completion
        case "reference":
            # Rows with several right answers: the function compares with all of them, as their list in the data.
            return list(problem.answers) if problem.alternatives else problem.reference
        case "messages":
            return problem.prompt
    return problem.prompt[-1]["content"]


def _as_in_trl(role: str, problem: Problem, completion: str) -> Any:
    prompt = problem.columns.get("prompt", problem.prompt)
    if role == "messages":
        return prompt
    is_conversation = not isinstance(prompt, str) and "prompt" in problem.columns
    return [{"role": "assistant", "content": completion}] if is_conversation else completion


def _refused(named: str, found: str, names: list[str]) -> UserError:
    return UserError(
        f"grader {named!r}: {found}; expected (completion, reference, messages) or some of them by name, TRL's (completions, "
        "**columns), or verl's (data_source, solution_str, ground_truth, extra_info)",
        argument="grader",
        value=names,
        expected=list(PLACES),
        problem="parameters",
    )


def _no_column(named: str, name: str, problem: Problem) -> UserError:
    columns = sorted(problem.columns)
    return UserError(
        f"grader {named!r}: the parameter {name!r} is no column of the data ({', '.join(columns) or 'none'}), and no other name "
        f"of {', '.join(PLACES)}",
        argument=name,
        value=name,
        expected=[*PLACES, *columns],
        problem="parameters",
    )
