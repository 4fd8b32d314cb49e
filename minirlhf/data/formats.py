"""What rows of real data mean: one parser per format, and the rule that recognises it.

A row is a dictionary. A format names the fields that a row must have; **the first format in** :data:`FORMATS` **whose
fields are all present is the format of the data**. Its parser turns a row into one of the records of
:mod:`minirlhf.data.records`. A new format is a parser and a line in :data:`FORMATS`.

A row that is broken (a field missing or of the wrong type) is a :class:`~minirlhf.core.errors.UserError`. A row that is
well formed but of no use (two equal replies, an empty one) is :class:`~minirlhf.data.records.InvalidRecordError`: the loader drops and
counts it, two equal replies only when it is asked to.
"""

from __future__ import annotations

import difflib
import json
import re
import string
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from minirlhf.core.errors import UserError, unknown
from minirlhf.data.records import (
    ROLES,
    Comparison,
    Conversation,
    Example,
    IdenticalPairError,
    InvalidRecordError,
    Message,
    Problem,
    Ranking,
    Reply,
    StepLabeledCompletion,
    UnpairedPreference,
)

Row: TypeAlias = Mapping[str, Any]


@dataclass(frozen=True)
class Format:
    """A format: how it is recognised, how a row of it is read, and what it looks like."""

    name: str
    fields: tuple[str, ...]
    parse: Callable[[Row], Example]
    optional: tuple[str, ...] = ()


# -- the parsers ------------------------------------------------------------------------------------------------------


def parse_messages(row: Row) -> Conversation:
    """``{"messages": [{"role": "user", "content": "..."}, ...]}``"""
    return _to_imitate(_messages(row, "messages"), 0)


def parse_sharegpt(row: Row) -> Conversation:
    """``{"conversations": [{"from": "human", "value": "..."}, {"from": "gpt", "value": "..."}]}`` (ShareGPT).

    ``system`` beside them, as text, is the first message. Turns may also have ``role`` and ``content``, as messages do. A call of a
    tool (``function_call``) is a turn of the assistant, what the tool says (``observation``) one of the tool.
    """
    said = row["conversations"]
    plain = isinstance(said, list) and bool(said) and isinstance(said[0], Mapping) and "role" in said[0]
    turns = _messages(row, "conversations") if plain else _turns(said)
    opening = [] if row.get("system") in (None, "") else [{"role": "system", "content": _text(row, "system")}]
    return _to_imitate([*opening, *turns], 0)


def parse_alpaca(row: Row) -> Conversation:
    """``{"instruction": "...", "input": "...", "output": "..."}`` (Alpaca); a non-empty input follows the instruction, a line between."""
    said = _text(row, "instruction")
    if row.get("input") not in (None, ""):
        said += "\n\n" + _require_text(row["input"], "input")
    return _to_imitate([_user(said), {"role": "assistant", "content": _text(row, "output")}], 1)


def parse_prompt_completion(row: Row) -> Conversation:
    """``{"prompt": ..., "completion": ...}``, each a text or messages."""
    prompt = _prompt(row)
    return _to_imitate([*prompt, *_reply(row, "completion")], len(prompt))


def parse_preference(row: Row) -> Comparison:
    """``{"prompt": ..., "chosen": ..., "rejected": ...}``, each a text or messages; replies may repeat the prompt.

    How much better the chosen one is may stand in ``margin``, or as ``score_chosen`` and ``score_rejected``; ``subset`` names a
    kind of comparison, of which an evaluation reports each by itself.
    """
    prompt = _prompt(row)
    chosen, rejected = (_without(prompt, _reply(row, field)) for field in ("chosen", "rejected"))
    return _compare(prompt, chosen, rejected, row)


def parse_transcripts(row: Row) -> Comparison:
    """``{"chosen": "\\n\\nHuman: ...\\n\\nAssistant: ...", "rejected": ...}`` (HH-RLHF), or both as messages.

    What the two have in common is the prompt, up to the last user turn.
    """
    chosen, rejected = (
        transcript(row[field], field) if isinstance(row[field], str) else _messages(row, field, "text or ")
        for field in ("chosen", "rejected")
    )
    _require_different(chosen, rejected)
    shared = 0
    while shared < min(len(chosen), len(rejected)) and chosen[shared] == rejected[shared]:
        shared += 1
    while shared and (shared == min(len(chosen), len(rejected)) or chosen[shared - 1]["role"] != "user"):
        shared -= 1
    if not shared:
        raise InvalidRecordError(
            "chosen and rejected have no user turn in common that a reply follows", argument="prompt", problem="missing"
        )
    return _compare(chosen[:shared], chosen[shared:], rejected[shared:], row)


def parse_judgement(row: Row) -> UnpairedPreference:
    """``{"prompt": ..., "completion": ..., "label": true}`` (KTO): one reply, and whether it is a good one."""
    prompt = _prompt(row)
    completion = _without(prompt, _reply(row, "completion"))
    _require_answer(completion, "completion")
    return UnpairedPreference(prompt, completion, _truth(row, "label"))


def parse_steps(row: Row) -> StepLabeledCompletion:
    """``{"prompt": ..., "completions": ["step", ...], "labels": [true, ...]}`` (TRL's stepwise supervision).

    A label is 1 or true for a valid step, -1 or false for a wrong one, 0 for one that is neither.
    """
    prompt = _prompt(row)
    steps = [_require_text(s, f"completions[{i}]").strip() for i, s in enumerate(_list(row, "completions", "steps"))]
    labels = _list(row, "labels", "labels")
    if len(labels) != len(steps):
        raise UserError(
            f"field 'labels' has {len(labels)} labels for {len(steps)} steps; expected as many",
            argument="labels",
            value=len(labels),
            expected=len(steps),
        )
    for i, label in enumerate(labels):
        if not isinstance(label, bool | int) or label not in (-1, 0, 1):
            where = f"labels[{i}]"
            raise _wrong(where, label, "true, false, 1, 0 or -1", expected="label")
    if not steps or not all(steps):
        raise InvalidRecordError("a step is empty" if steps else "no steps", argument="completions", problem="empty")
    return StepLabeledCompletion(prompt, steps, tuple((1 if x else -1) if isinstance(x, bool) else x for x in labels))


def parse_ranking(row: Row) -> Ranking:
    """``{"prompt": ..., "responses": [...]}``, each a text or messages, the best first.

    In any order with ``scores`` (the higher the better) or ``ranks`` (1 is the best); equal ones are ties.
    """
    prompt = _prompt(row)
    responses = _list(row, "responses")
    replies = [_without(prompt, _reply({f"responses[{i}]": r}, f"responses[{i}]")) for i, r in enumerate(responses)]
    scores, ranks = (_numbers(row, field, len(replies)) for field in ("scores", "ranks"))
    if scores and ranks:
        said = "fields 'scores' and 'ranks' are both there; expected one of them"
        raise UserError(said, argument="ranks", expected="scores", problem="exclusive")
    if scores:
        return _rank(prompt, replies, scores, keep_scores=True)
    order = ranks or [float(i) for i in range(len(replies))]
    return _rank(prompt, replies, [-rank for rank in order], keep_scores=False)


def parse_ultrafeedback(row: Row) -> Ranking:
    """``{"instruction": "...", "completions": [{"response": "...", "fine-grained_score": 4.5}, ...]}`` (UltraFeedback).

    Its ``fine-grained_score`` is the mean of four ratings; ``overall_score`` is taken where that is missing. A completion
    without either is left out.
    """
    prompt = [_user(_text(row, "instruction"))]
    replies, scores = [], []
    for i, completion in enumerate(_list(row, "completions")):
        where = f"completions[{i}]"
        if not isinstance(completion, Mapping) or "response" not in completion:
            said = f"{where} is {_kind(completion)}; expected an object with response and a score"
            raise UserError(said, argument=where, value=completion, expected=["response", "score"])
        named = {f"{where}.{key}": value for key, value in completion.items()}
        score = next((s for key in _SCORES if (s := _number(named, f"{where}.{key}")) is not None), None)
        if score is not None:
            replies.append([{"role": "assistant", "content": _text(named, f"{where}.response")}])
            scores.append(score)
    return _rank(prompt, replies, scores, keep_scores=True)


_SCORES = ("fine-grained_score", "overall_score")


def parse_mmlu(row: Row) -> Problem:
    """``{"question": "...", "choices": ["...", "..."], "answer": 1}`` (MMLU): the right choice by its number, from 0 on, its letter or its text."""
    listed, right = choices_of(row, "choices"), row["answer"]
    if isinstance(right, bool) or not isinstance(right, int | str):
        raise _wrong(
            argument="answer", value=right, words="a choice, its number from 0 on or its letter", expected="choice"
        )
    if isinstance(right, int) and not 0 <= right < len(listed):
        said = f"field 'answer' is {right}; expected the number of one of {len(listed)} choices, from 0 on"
        raise UserError(said, argument="answer", value=right, expected=len(listed))
    named = listed[right] if isinstance(right, int) else choice_named(right, listed)
    return Problem([_user(_text(row, "question").strip())], named, choices=listed)


def parse_gsm8k(row: Row) -> Problem:
    """``{"question": "...", "answer": "working\\n#### 72"}`` (GSM8K); the annotations ``<<48/2=24>>`` are taken out."""
    answer = _text(row, "answer")
    final = final_answer(answer)
    if final is None:
        raise UserError(
            "field 'answer' has no '#### number' at its end, as GSM8K has; a question with a plain answer is read from the fields "
            "'prompt' and 'answer', one with answers to choose from from 'question', 'choices' and 'answer'",
            argument="answer",
            expected="####",
        )
    return Problem([_user(_text(row, "question").strip())], final, re.sub(r"<<[^<>]*>>", "", answer).strip())


def parse_human_eval(row: Row) -> Problem:
    """``{"prompt": "def f(x): ...", "entry_point": "f", "test": "def check(candidate): ..."}`` (HumanEval), for the grader ``tests``.

    With ``canonical_solution``, what goes on from the prompt, there is also something to imitate.
    """
    given = {name: _text(row, name) for name in ("prompt", "entry_point", "test")}
    if not given["entry_point"].isidentifier():
        raise _wrong(argument="entry_point", value=row["entry_point"], words="the name of a function", expected="name")
    solution = row.get("canonical_solution")
    code = None if solution in (None, "") else given["prompt"] + _require_text(solution, "canonical_solution")
    return Problem(
        [_user(given["prompt"])], json.dumps(given), None if code is None else f"```python\n{code.rstrip()}\n```"
    )


def parse_problem(row: Row) -> Problem:
    """``{"prompt": ...}``, a text or messages, with the answer for a grader in ``reference`` if there is one.

    The answer may also stand in ``answer`` or ``ground_truth``, as other libraries call it.
    """
    named = [name for name in ANSWERS if row.get(name) not in (None, "")]
    if len({str(row[name]) for name in named}) > 1:
        said = f"fields {' and '.join(map(repr, named))} differ; expected one answer"
        raise UserError(said, argument="answer", value=named, problem="mismatch")
    reference = row[named[0]] if named else None
    if isinstance(reference, int | float) and not isinstance(reference, bool):
        reference = str(reference)
    return Problem(_prompt(row), None if reference in (None, "") else _require_text(reference, named[0]))


#: Where the answer to a problem may stand.
ANSWERS = ("reference", "answer", "ground_truth")
#: Other names of roles, in messages.
SAME_ROLE = {"developer": "system"}
#: The names of roles in ShareGPT's conversations.
SPEAKERS = {
    "system": "system",
    "human": "user",
    "user": "user",
    "gpt": "assistant",
    "assistant": "assistant",
    "chatgpt": "assistant",
    "function_call": "assistant",
    "observation": "tool",
    "tool": "tool",
}


#: What may be said of a pair.
BESIDE_A_PAIR = ("margin", "score_chosen", "score_rejected", "subset")

#: From the most specific to the least: the first whose fields are all there is taken.
FORMATS: dict[str, Format] = {
    form.name: form
    for form in (
        Format(
            "preference",
            ("prompt", "chosen", "rejected"),
            parse_preference,
            BESIDE_A_PAIR,
        ),
        Format("hh-rlhf", ("chosen", "rejected"), parse_transcripts, BESIDE_A_PAIR),
        Format("stepwise", ("prompt", "completions", "labels"), parse_steps),
        Format("kto", ("prompt", "completion", "label"), parse_judgement),
        Format("ranking", ("prompt", "responses"), parse_ranking, ("scores", "ranks")),
        Format("ultrafeedback", ("instruction", "completions"), parse_ultrafeedback),
        Format("prompt-completion", ("prompt", "completion"), parse_prompt_completion),
        Format("messages", ("messages",), parse_messages),
        Format("sharegpt", ("conversations",), parse_sharegpt, ("system",)),
        Format("alpaca", ("instruction", "output"), parse_alpaca, ("input",)),
        Format("mmlu", ("question", "choices", "answer"), parse_mmlu),
        Format("gsm8k", ("question", "answer"), parse_gsm8k),
        Format("human-eval", ("prompt", "entry_point", "test"), parse_human_eval, ("canonical_solution", "task_id")),
        Format("problem", ("prompt",), parse_problem, ANSWERS),
    )
}


def get(name: str) -> Format:
    """The format of this name; an unknown one is a ``UserError`` with the nearest."""
    if name not in FORMATS:
        raise unknown("format", name, FORMATS)
    return FORMATS[name]


def detect(found: Iterable[str]) -> Format:
    """The format of data with these fields; none is a ``UserError`` that says what each format needs."""
    names = set(found)
    for form in FORMATS.values():
        if names.issuperset(form.fields):
            return form
    needs = "; ".join(f"{form.name}: {', '.join(form.fields)}" for form in FORMATS.values())
    close = _misspelt(names)
    raise UserError(
        f"unknown format: found the fields {', '.join(sorted(map(str, names))) or '(none)'}; known are {needs}"
        + (
            f"; did you mean {' and '.join(f'{right!r} by {name!r}' for name, right in close.items())}?"
            if close
            else ""
        ),
        argument="format",
        value=sorted(map(str, names)),
        expected=close or list(FORMATS),
        problem="unknown",
    )


def _misspelt(names: Iterable[str]) -> dict[str, str]:
    """The known field that is meant by each that nearly has its name: ``{"Answers": "answer"}``."""
    known = sorted({field for form in FORMATS.values() for field in form.fields})
    near = {
        name: difflib.get_close_matches(str(name).lower(), known, n=1, cutoff=0.75) for name in sorted(map(str, names))
    }
    return {name: close[0] for name, close in near.items() if close and close[0] != name}


# -- answers to choose from ---------------------------------------------------------------------------------------------

#: As many as there are letters.
MOST_CHOICES = len(string.ascii_uppercase)


def choices_of(row: Row, field: str) -> tuple[str, ...]:
    """The answers that a field lists; of fewer than two, or of two that are equal, none could be the right one."""
    listed = row.get(field)
    if not isinstance(listed, list | tuple) or not all(isinstance(one, str) and one.strip() for one in listed):
        said = f"field {field!r}, its choices, is {str(listed)[:40]!r}; expected a list of texts"
        raise UserError(said, argument=field, value=listed, expected="list")
    if not 2 <= len(listed) <= MOST_CHOICES or len(set(listed)) < len(listed):
        said = f"field {field!r} lists {len(listed)} choices; expected 2 to {MOST_CHOICES} different ones"
        raise UserError(said, argument=field, value=len(listed), expected=(2, MOST_CHOICES))
    return tuple(listed)


def choice_named(right: str, listed: Sequence[str]) -> str:
    """The choice that is meant by its text, its number from 0 on, or its letter from A on; what may mean two of them is refused."""
    names = dict(zip(string.ascii_uppercase, listed, strict=False)) | {str(i): one for i, one in enumerate(listed)}
    if right in listed and names.get(right, right) != right:
        raise UserError(
            f"the answer {right!r} is one of the choices, and the number or the letter of another ({names[right][:40]!r}); expected "
            "its letter where choices are numbers, and its number where they are letters",
            argument="answer",
            value=right,
            problem="ambiguous",
        )
    answer = right if right in listed else names.get(right)
    if answer is None:
        raise UserError(
            f"the answer {right[:40]!r} is none of the choices; expected one of them, its number from 0 on or its letter",
            argument="answer",
            value=right,
            expected=list(listed),
        )
    return answer


# -- their parts ------------------------------------------------------------------------------------------------------

_TURN = re.compile(r"(?:\A|\n\n)(Human|Assistant):")


def transcript(text: str, field: str = "text") -> list[Message]:
    """The messages of an HH-RLHF transcript; two turns in a row by the same speaker become one."""
    _require_text(text, field)
    opening, *rest = _TURN.split(text)
    if opening.strip() or not rest:
        raise UserError(
            f"field {field!r} is no transcript: it should begin with '\\n\\nHuman:', it begins {text[:30]!r}; a pair of "
            "replies has its question in the field 'prompt'",
            argument=field,
            value=text[:30],
            expected="transcript",
        )
    messages: list[Message] = []
    for speaker, said in zip(rest[::2], rest[1::2], strict=True):
        role = "user" if speaker == "Human" else "assistant"
        if messages and messages[-1]["role"] == role:
            messages[-1]["content"] = f"{messages[-1]['content']}\n\n{said.strip()}".strip()
        else:
            messages.append({"role": role, "content": said.strip()})
    return messages


def final_answer(text: str) -> str | None:
    """The line that follows the last ``####`` of a text, as GSM8K ends; None if there is no such end."""
    _, mark, last = text.rpartition("####")
    last = last.strip()
    return last if mark and last and "\n" not in last else None


def _user(content: str) -> Message:
    return {"role": "user", "content": content}


def _require_text(value: object, field: str) -> str:
    if not isinstance(value, str):
        raise _wrong(field, value, "text", expected="text")
    try:
        value.encode()
    except UnicodeEncodeError as problem:
        said = f"field {field!r} holds half of a surrogate pair, which is no valid Unicode"
        raise UserError(said, argument=field, problem="surrogate") from problem
    return value


def _text(row: Row, field: str) -> str:
    """A field that must hold text; blank text is of no use."""
    value = _require_text(row[field], field)
    if not value.strip():
        raise InvalidRecordError(f"{field} is empty", argument=field, problem="empty")
    return value


def _messages(row: Row, field: str, or_text: str = "") -> list[Message]:
    """A field that must hold a list of messages with known roles."""
    value = row[field]
    if not isinstance(value, list):
        raise _wrong(field, value, f"{or_text}a list of messages with role and content", expected="messages")
    messages = []
    for turn, message in enumerate(value):
        where = f"{field}[{turn}]"
        if not isinstance(message, Mapping) or not {"role", "content"} <= message.keys():
            said = f"{where} is {_kind(message)}; expected a message with role and content"
            raise UserError(said, argument=where, value=message, expected=["role", "content"])
        role = SAME_ROLE.get(str(message["role"]), message["role"])
        if role not in ROLES:
            said = f"{where} has the role {role!r}; expected one of {', '.join((*ROLES, *SAME_ROLE))}"
            raise UserError(said, argument=where, value=role, expected=[*ROLES, *SAME_ROLE])
        if message.get("tool_calls"):
            raise UserError(
                f"{where} has tool_calls, which no trainer here learns; expected the call as text, in content",
                argument=where,
                value="tool_calls",
                expected="content",
            )
        messages.append({"role": role, "content": _require_text(message["content"], f"{where}.content")})
    if not messages:
        raise InvalidRecordError(f"{field} is empty", argument=field, problem="empty")
    return messages


def _turns(value: object) -> list[Message]:
    """ShareGPT's turns as messages."""
    if not isinstance(value, list):
        raise _wrong(
            argument="conversations", value=value, words="a list of turns with from and value", expected="turns"
        )
    messages = []
    for turn, said in enumerate(value):
        where = f"conversations[{turn}]"
        if not isinstance(said, Mapping) or not {"from", "value"} <= said.keys():
            wrong = f"{where} is {_kind(said)}; expected a turn with from and value"
            raise UserError(wrong, argument=where, value=said, expected=["from", "value"])
        if said["from"] not in SPEAKERS:
            wrong = f"{where} is from {said['from']!r}; expected one of {', '.join(SPEAKERS)}"
            raise UserError(wrong, argument=where, value=said["from"], expected=list(SPEAKERS))
        messages.append({"role": SPEAKERS[said["from"]], "content": _require_text(said["value"], f"{where}.value")})
    if not messages:
        raise InvalidRecordError("conversations is empty", argument="conversations", problem="empty")
    return messages


def _prompt(row: Row) -> list[Message]:
    """The field ``prompt``: messages that end with the user's, or a text, which becomes the user's."""
    if isinstance(row["prompt"], str):
        return [_user(_text(row, "prompt"))]
    messages = _messages(row, "prompt", "text or ")
    if messages[-1]["role"] != "user":
        raise InvalidRecordError("the prompt does not end with a user turn", argument="prompt", problem="last turn")
    return messages


def _reply(row: Row, field: str) -> list[Message]:
    """A reply: messages, or a text, which becomes the assistant's."""
    if isinstance(row[field], str):
        return [{"role": "assistant", "content": _text(row, field)}]
    return _messages(row, field, "text or ")


def _without(prompt: list[Message], reply: Reply) -> Reply:
    """The reply without a repetition of the prompt, up to white space around what is said."""
    return reply[len(prompt) :] if _said(reply[: len(prompt)]) == _said(prompt) else reply


def _to_imitate(messages: list[Message], context: int) -> Conversation:
    while len(messages) > context and messages[-1]["role"] != "assistant":
        messages = messages[:-1]  # an unanswered question
    if len(messages) == context:
        raise InvalidRecordError("no assistant turn", argument="assistant", problem="missing")
    if not messages[-1]["content"].strip():
        raise InvalidRecordError("the last reply is empty", argument="assistant", problem="empty")
    return Conversation(messages, context)


def _compare(prompt: list[Message], chosen: list[Message], rejected: list[Message], row: Row) -> Comparison:
    for field, reply in (("chosen", chosen), ("rejected", rejected)):
        _require_answer(reply, field)
    _require_different(chosen, rejected)
    subset = row.get("subset")
    return Comparison(
        prompt, chosen, rejected, _margin(row), subset=None if subset in (None, "") else _require_text(subset, "subset")
    )


def _require_answer(reply: Reply, field: str) -> None:
    if not reply or reply[0]["role"] != "assistant" or reply[-1]["role"] != "assistant":
        raise InvalidRecordError(f"{field} has no assistant turn after the prompt", argument=field, problem="missing")
    if not reply[-1]["content"].strip():
        raise InvalidRecordError(f"the last reply of {field} is empty", argument=field, problem="empty")


def _said(messages: Sequence[Message]) -> list[tuple[str, str]]:
    return [(m["role"], m["content"].strip()) for m in messages]


def _require_different(chosen: Reply, rejected: Reply) -> None:
    """Up to white space around what is said."""
    if _said(chosen) == _said(rejected):
        raise IdenticalPairError("chosen and rejected are equal", argument="rejected", problem="duplicate")


def _rank(prompt: list[Message], replies: list[Reply], scores: list[float], *, keep_scores: bool) -> Ranking:
    """Tiers of equal score, the highest first. A reply that comes twice with one score counts once."""
    for i, reply in enumerate(replies):
        _require_answer(reply, f"reply {i + 1}")
    tiers: dict[float, list[Reply]] = {score: [] for score in sorted(set(scores), reverse=True)}
    of_reply: dict[str, float] = {}
    for reply, score in zip(replies, scores, strict=True):
        if of_reply.setdefault(str(_said(reply)), score) != score:
            raise IdenticalPairError(
                "two replies of different rank are equal", argument="responses", problem="duplicate"
            )
        if _said(reply) not in map(_said, tiers[score]):
            tiers[score].append(reply)
    if len(tiers) < 2:
        few = len(replies) < 2
        said = "fewer than two replies" if few else "all replies are tied"
        raise InvalidRecordError(said, argument="responses", value=len(replies), problem="too few" if few else "tied")
    return Ranking(prompt, list(tiers.values()), tuple(tiers) if keep_scores else None)


def _list(row: Row, field: str, of: str = "replies") -> list[Any]:
    if not isinstance(row[field], list):
        raise _wrong(field, row[field], f"a list of {of}", expected="list")
    return row[field]


def _numbers(row: Row, field: str, count: int) -> list[float]:
    """An optional list of as many numbers as there are replies; empty where it is missing."""
    if row.get(field) is None:
        return []
    values = _list(row, field)
    if len(values) != count:
        said = f"field {field!r} has {len(values)} numbers for {count} replies; expected as many"
        raise UserError(said, argument=field, value=len(values), expected=count)
    found = [_number({f"{field}[{i}]": value}, f"{field}[{i}]") for i, value in enumerate(values)]
    if None in found:
        where = f"{field}[{found.index(None)}]"
        raise _wrong(where, None, "a finite number", expected="number")
    return [number for number in found if number is not None]


def _truth(row: Row, field: str) -> bool:
    """true or false, also as a CSV file or a table has them."""
    value = str(row[field]).strip().lower() if isinstance(row[field], bool | int | str) else ""
    if value not in ("true", "false", "1", "0"):
        raise _wrong(field, row[field], "true or false", expected="bool")
    return value in ("true", "1")


def _margin(row: Row) -> float | None:
    """The optional field ``margin``, or the difference of ``score_chosen`` and ``score_rejected``."""
    chosen, rejected = _number(row, "score_chosen"), _number(row, "score_rejected")
    if row.get("margin") in (None, "") and chosen is not None and rejected is not None:
        return chosen - rejected
    return _number(row, "margin")


def _number(row: Row, field: str) -> float | None:
    """An optional field that must hold a finite number; a CSV file has it as text."""
    value = row.get(field)
    if value is None or value == "":
        return None
    try:
        number = float("nan") if isinstance(value, bool) else float(value)
    except (TypeError, ValueError, OverflowError):
        number = float("nan")
    if not abs(number) < float("inf"):
        raise _wrong(field, value, "a finite number", expected="number")
    return number


def _wrong(argument: str, value: object, words: str, *, expected: str) -> UserError:
    """The error for a field that holds something else than is expected, in words and as the name of a type."""
    said = f"field {argument!r} is {_kind(value)}; expected {words}"
    return UserError(said, argument=argument, value=value, expected=expected)


def _kind(value: object) -> str:
    """What a value is, in the words of a JSON file."""
    names = {dict: "an object", list: "a list", str: "text", bool: "a truth value", int: "a number", float: "a number"}
    return "missing (null)" if value is None else f"{names.get(type(value), type(value).__name__)}: {str(value)[:40]!r}"
