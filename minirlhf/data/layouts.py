"""Layouts of public data sets: each is a function that rewrites a row in the fields of one of our formats.

:data:`minirlhf.data.formats.FORMATS` names the layout and the format beside it. A row whose annotator found the two
completions equally good raises :class:`~minirlhf.data.records.InvalidRecordError`, so that the loader drops and counts it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, TypeAlias

from minirlhf.core.errors import UserError
from minirlhf.data.messages import kind, require_text, wrong
from minirlhf.data.records import InvalidRecordError

Row: TypeAlias = Mapping[str, Any]
Rewrite: TypeAlias = Callable[[Row], dict[str, Any]]
#: The fields that mean the same in every format.
KEPT = ("system", "tools", "chat_template_kwargs", "margin", "score_chosen", "score_rejected", "subset")
#: By how much the first of two completions is better: negative if the second one is, 0 for a tie.
Verdict: TypeAlias = Callable[[Row], float]


@dataclass(frozen=True)
class RowLayout:
    """A layout: an example of a row, in the words of the help, and the function that rewrites a row."""

    example: str
    rewrite: Rewrite


# -- two completions and a verdict -------------------------------------------------------------------------------------


def named(field: str, first: Sequence[str], second: Sequence[str], ties: Sequence[str] = ()) -> Verdict:
    """Return a verdict that a field names by one of these values."""

    def verdict(row: Row) -> float:
        value = row[field]
        whole = isinstance(value, int) or (isinstance(value, float) and value.is_integer())
        told = str(int(value) if whole else value).strip().lower().removesuffix(".0")
        for names, better in ((first, 1.0), (second, -1.0), (ties, 0.0)):
            if told in names:
                return better
        expected = [*first, *second, *ties]
        raise UserError(
            f"field {field!r} is {kind(value)}; expected one of {', '.join(expected)}",
            argument=field,
            value=value,
            expected=expected,
        )

    return verdict


def number(row: Row, field: str) -> float:
    """Return a field that must hold a finite number; in a CSV file it is text."""
    value = row[field]
    with suppress(TypeError, ValueError, OverflowError):
        if not isinstance(value, bool) and abs(float(value)) < float("inf"):
            return float(value)
    raise wrong(field, value, "a finite number", expected="number")


def second_by(field: str) -> Verdict:
    """Return a verdict from a number that is positive if the second completion is better."""
    return lambda row: -number(row, field)


def flagged(first: str, second: str, tie: str) -> Verdict:
    """Return a verdict from three fields of which exactly one is 1."""

    def verdict(row: Row) -> float:
        values = {name: int(row[name]) if isinstance(row[name], bool) else row[name] for name in (first, second, tie)}
        flags = [number(values, name) for name in values]
        if sorted(flags) != [0, 0, 1]:
            message = (
                f"fields {first!r}, {second!r} and {tie!r} are {flags}; expected one of them to be 1, the others 0"
            )
            raise UserError(message, argument=first, value=flags, expected=1)
        return flags[0] - flags[1]

    return verdict


def two(
    replies: Callable[[Row], tuple[Any, Any]],
    verdict: Verdict,
    prompt: Callable[[Row], Any] | None,
    margin: bool = False,
) -> Rewrite:
    """Return the rewriting to ``prompt``, ``chosen``, ``rejected``; without a prompt the replies are conversations.

    ``margin``: the verdict is a strength, which becomes the margin.
    """

    def rewrite(row: Row) -> dict[str, Any]:
        better = verdict(row)
        if better == 0:
            raise InvalidRecordError("the two completions are tied", argument="rejected", problem="tied")
        chosen, rejected = replies(row) if better > 0 else replies(row)[::-1]
        asked = {} if prompt is None else {"prompt": prompt(row)}
        strength = {"margin": abs(better)} if margin else {}
        return {**_kept(row), **asked, "chosen": chosen, "rejected": rejected, **strength}

    return rewrite


def at(*fields: str) -> Callable[[Row], Any]:
    """Return a function that reads one field, or several as a tuple."""
    return lambda row: row[fields[0]] if len(fields) == 1 else tuple(row[field] for field in fields)


def renamed(**fields: str) -> Rewrite:
    """Return the rewriting that reads each field from another one: ``renamed(prompt="question")``."""
    return lambda row: {**{name: row.get(theirs) for name, theirs in fields.items()}, **_kept(row)}


def _kept(row: Row) -> dict[str, Any]:
    """Return the fields that mean the same in every format."""
    return {name: row[name] for name in KEPT if name in row}


def instruction(row: Row) -> str:
    """Return the fields ``instruction`` and ``input`` as one text."""
    more = row.get("input")
    text = require_text(row["instruction"], "instruction")
    return text if more in (None, "") else f"{text}\n\n{require_text(more, 'input')}"


# -- other layouts -----------------------------------------------------------------------------------------------------


def listed(prompt: str, text: str, **numbers: str) -> Rewrite:
    """Return the rewriting of the objects in ``answers`` to ``responses`` with their ``ranks`` or ``scores``."""

    def rewrite(row: Row) -> dict[str, Any]:
        answers = row["answers"]
        expected = [text, *numbers.values()]
        if not isinstance(answers, list):
            raise wrong("answers", answers, "a list of objects", expected="list")
        for i, answer in enumerate(answers):
            if not isinstance(answer, Mapping) or not answer.keys() >= {*expected}:
                error = f"answers[{i}] is {kind(answer)}; expected an object with {' and '.join(expected)}"
                raise UserError(error, argument=f"answers[{i}]", value=answer, expected=expected)
        columns = {name: [answer[field] for answer in answers] for name, field in numbers.items()}
        return {**_kept(row), "prompt": row[prompt], "responses": [answer[text] for answer in answers], **columns}

    return rewrite


def arena_texts(row: Row) -> tuple[Any, Any]:
    """Return two conversations from lists of texts, which may stand in a text as JSON: prompts, and replies of each."""
    asked, *answered = (_texts(row[name], name) for name in ("prompt", "response_a", "response_b"))
    for name, replies in zip(("response_a", "response_b"), answered, strict=True):
        if len(replies) != len(asked):
            message = f"field {name!r} has {len(replies)} texts for {len(asked)} prompts; expected as many"
            raise UserError(message, argument=name, value=len(replies), expected=len(asked))
    first, second = (
        [
            {"role": role, "content": text}
            for pair in zip(asked, replies, strict=True)
            for role, text in zip(("user", "assistant"), pair, strict=True)
        ]
        for replies in answered
    )
    return first, second


def _texts(value: Any, field: str) -> list[Any]:
    read = value
    if isinstance(value, str):
        with suppress(ValueError, RecursionError):
            read = json.loads(value)
    if not isinstance(read, list):
        raise wrong(field, value, "a list of texts", expected="list")
    if not all(isinstance(text, str) for text in read):
        raise InvalidRecordError(f"{field} has an empty text", argument=field, problem="empty")
    return read


def post(row: Row) -> str:
    """Return the text to summarise of a row of ``summarize_from_feedback``, as its paper lays it out."""
    info = row["info"]
    if not isinstance(info, Mapping):
        raise wrong("info", info, "an object with post or article", expected="object")
    if info.get("post"):
        named = (("SUBREDDIT: r/", "subreddit"), ("TITLE: ", "title"), ("POST: ", "post"))
        lines = [f"{label}{require_text(info[name], f'info.{name}')}" for label, name in named if info.get(name)]
        return "\n".join([*lines, "TL;DR:"])
    if info.get("article"):
        return require_text(info["article"], "info.article") + "\n\nTL;DR:"
    raise InvalidRecordError("info has neither post nor article", argument="info", problem="empty")


def summaries(row: Row) -> tuple[Any, Any]:
    """Return the two summaries."""
    found = row["summaries"]
    if not (isinstance(found, list) and len(found) == 2 and all(isinstance(s, Mapping) and "text" in s for s in found)):
        raise wrong("summaries", found, "a list of two objects with text", expected="text")
    return found[0]["text"], found[1]["text"]


def rated_summary(row: Row) -> dict[str, Any]:
    """Return one summary with its overall rating."""
    summary = row["summary"]
    axes = summary.get("axes") if isinstance(summary, Mapping) else None
    if not isinstance(summary, Mapping) or "text" not in summary or not isinstance(axes, Mapping):
        raise wrong("summary", summary, "an object with text and axes", expected="axes")
    return {"prompt": post(row), "completion": summary["text"], "rating": axes.get("overall")}


def question_text(row: Row) -> Any:
    """Return the question, which may be an object with ``full_text``."""
    asked = row["question"]
    return asked.get("full_text") if isinstance(asked, Mapping) else asked


def calls(row: Row) -> dict[str, Any]:
    """Return a question and the tool calls that answer it as messages."""
    answer = {"role": "assistant", "content": None, "tool_calls": row["answers"]}
    return {**_kept(row), "messages": [{"role": "user", "content": row["query"]}, answer]}


def tool_prompt(row: Row) -> dict[str, Any]:
    """Return the only turn of a question of the Berkeley Function Calling Leaderboard, with its tools."""
    turns = row["question"]
    if not isinstance(turns, list) or not turns or not all(isinstance(turn, list) for turn in turns):
        raise wrong("question", turns, "a list of turns, each a list of messages", expected="list")
    if len(turns) > 1:
        raise UserError(
            f"field 'question' has {len(turns)} user turns, each for a run of its own; expected one",
            argument="question",
            value=len(turns),
            expected=1,
        )
    return {"prompt": turns[0], "tools": row["function"]}


def turns_of(row: Row) -> dict[str, Any]:
    """Return the field ``conversation`` as turns: messages, or objects with ``input`` and ``output``."""
    value = row["conversation"]
    turns = value if isinstance(value, list) else []
    if turns and all(isinstance(turn, Mapping) and turn.keys() >= {"input", "output"} for turn in turns):
        roles = (("user", "input"), ("assistant", "output"))
        value = [{"role": role, "content": turn[field]} for turn in turns for role, field in roles]
    return {"conversations": value, **_kept(row)}


def preferred(row: Row) -> dict[str, Any]:
    """Return the messages and tools of an input, and the two outputs."""
    asked = row["input"]
    if not isinstance(asked, Mapping) or "messages" not in asked:
        raise wrong("input", asked, "an object with messages", expected="messages")
    tools = {"tools": asked["tools"]} if asked.get("tools") else {}
    return {
        **_kept(row),
        **tools,
        "prompt": asked["messages"],
        "chosen": row["preferred_output"],
        "rejected": row["non_preferred_output"],
    }


def lettered(row: Row) -> dict[str, Any]:
    """Return choices with their labels, and the label of the right one, as choices and its index."""
    choices, key = row["choices"], row["answerKey"]
    texts, labels = (choices.get(name) if isinstance(choices, Mapping) else None for name in ("text", "label"))
    if not isinstance(texts, list) or not isinstance(labels, list) or len(texts) != len(labels):
        raise wrong("choices", choices, "an object with as many labels as texts (text and label)", expected="object")
    if key in (None, ""):
        raise InvalidRecordError("answerKey is empty", argument="answerKey", problem="empty")
    if key not in labels:
        message = f"field 'answerKey' is {kind(key)}; expected one of {', '.join(map(str, labels))}"
        raise UserError(message, argument="answerKey", value=key, expected=labels)
    return {"question": row["question"], "choices": texts, "answer": labels.index(key)}


def optional_choices(row: Row) -> dict[str, Any]:
    """Return options, a list or an object with the letter of each, as choices."""
    options = row["options"]
    return {
        "question": row["question"],
        "choices": list(options.values()) if isinstance(options, Mapping) else options,
        "answer": row["answer"],
    }


def replaced_reply(row: Row) -> dict[str, Any]:
    """Return messages that end with the chosen completion, and the rejected one, as a pair."""
    turns = row["messages"]
    if not isinstance(turns, list) or len(turns) < 2:
        raise wrong("messages", turns, "a list of messages that ends with the chosen completion", expected="messages")
    return {**_kept(row), "prompt": turns[:-1], "chosen": turns[-1:], "rejected": row["rejected_response"]}


def ending(row: Row) -> dict[str, Any]:
    """Return the beginning of a text and the numbered endings as a question with choices."""
    if row["label"] in (None, ""):
        raise InvalidRecordError("label is empty", argument="label", problem="empty")
    return {"question": row["ctx"], "choices": row["endings"], "answer": int(number(row, "label"))}


_A, _B = ("model_a", "a", "response_a", "assistant_a"), ("model_b", "b", "response_b", "assistant_b")
_TIES = ("tie", "tie (bothbad)", "both_bad", "bothbad", "tie (both bad)", "both")

SHP = RowLayout(
    '``{"history": "...", "human_ref_A": "...", "human_ref_B": "...", "labels": 1}`` (SHP): 1 if A is better, 0 if B is.',
    two(at("human_ref_A", "human_ref_B"), named("labels", ["1"], ["0"]), at("history")),
)
SAFE_RLHF, SAFE_RLHF_SAFER = (
    RowLayout(
        f'``{{"prompt": "...", "response_0": "...", "response_1": "...", "{field}": 1}}`` (PKU-SafeRLHF): the number of '
        f"the {what} completion.{more}",
        two(at("response_0", "response_1"), named(field, ["0"], ["1"]), at("prompt")),
    )
    for field, what, more in (
        (
            "better_response_id",
            "more helpful",
            "\n\n``--format safe-rlhf-safer`` reads ``safer_response_id`` in its place.",
        ),
        ("safer_response_id", "safer", ""),
    )
)
SAFETY = RowLayout(
    '``{"prompt": "...", "response": "...", "is_safe": true}`` (BeaverTails): a safe completion is desirable.',
    renamed(prompt="prompt", completion="response", label="is_safe"),
)
HELPSTEER = RowLayout(
    '``{"prompt": "...", "response": "...", "helpfulness": 3, "correctness": 4, ...}`` (HelpSteer, HelpSteer2).\n\n'
    "The rating is ``helpfulness``, or another attribute that ``--rating-field`` names.",
    renamed(prompt="prompt", completion="response", rating="helpfulness"),
)
RATED_RESPONSE = RowLayout(
    '``{"prompt": "...", "response": "...", "rating": 4}``, a completion and a number for it.',
    renamed(prompt="prompt", completion="response", rating="rating"),
)
HELPSTEER2_PREFERENCE = RowLayout(
    '``{"prompt": "...", "response_1": "...", "response_2": "...", "preference_strength": -2}`` (HelpSteer2): negative if '
    "the first is better.\n\nThe margin is the strength. 0 is a tie.",
    two(at("response_1", "response_2"), second_by("preference_strength"), at("prompt"), margin=True),
)
HELPSTEER3 = RowLayout(
    '``{"context": [...], "response1": "...", "response2": "...", "overall_preference": -2}`` (HelpSteer3): negative if '
    "the first is better.\n\nThe margin is the strength. 0 is a tie.",
    two(at("response1", "response2"), second_by("overall_preference"), at("context"), margin=True),
)
ARENA = RowLayout(
    '``{"conversation_a": [...], "conversation_b": [...], "winner": "model_a"}`` (Chatbot Arena, MT-bench); ties are '
    "dropped.",
    two(at("conversation_a", "conversation_b"), named("winner", _A, _B, _TIES), None),
)
ARENA_TEXTS = RowLayout(
    '``{"prompt": "[...]", "response_a": "[...]", "response_b": "[...]", "winner_model_a": 1, "winner_model_b": 0, '
    '"winner_tie": 0}`` (LMSYS).\n\nPrompts and responses are lists of texts, one for each turn.',
    two(arena_texts, flagged("winner_model_a", "winner_model_b", "winner_tie"), None),
)
A_OR_B = RowLayout(
    '``{"prompt": ..., "response_a": "...", "response_b": "...", "winner": "a"}``; ties are dropped.',
    two(at("response_a", "response_b"), named("winner", _A, _B, _TIES), at("prompt")),
)
SUMMARIES = RowLayout(
    '``{"info": {"post": "...", "title": "..."}, "summaries": [{"text": "..."}, {"text": "..."}], "choice": 0}`` '
    "(summarize_from_feedback): the number of the better summary.",
    two(summaries, named("choice", ["0"], ["1"]), post),
)
SUMMARY = RowLayout(
    '``{"info": {"post": "..."}, "summary": {"text": "...", "axes": {"overall": 6}}}`` (summarize_from_feedback).',
    rated_summary,
)
WEBGPT = RowLayout(
    '``{"question": {"full_text": "..."}, "answer_0": "...", "answer_1": "...", "score_0": 0.5, "score_1": -0.5}`` (WebGPT).'
    "\n\nThe margin is the difference of the scores.",
    two(
        at("answer_0", "answer_1"),
        lambda row: number(row, "score_0") - number(row, "score_1"),
        question_text,
        margin=True,
    ),
)
QUESTION_PAIR, INPUT_PAIR = (
    RowLayout(
        f'``{{"system": "...", "{field}": "...", "chosen": "...", "rejected": "..."}}``{who}.',
        renamed(prompt=field, chosen="chosen", rejected="rejected"),
    )
    for field, who in (("question", " (Orca DPO pairs)"), ("input", " (Axolotl)"))
)
ALPACA_PAIR = RowLayout(
    '``{"instruction": "...", "input": "...", "chosen": "...", "rejected": "..."}`` (LLaMA-Factory).',
    lambda row: {**_kept(row), "prompt": instruction(row), "chosen": row["chosen"], "rejected": row["rejected"]},
)
ALPACA_TAG = RowLayout(
    '``{"instruction": "...", "input": "...", "output": "...", "kto_tag": true}`` (LLaMA-Factory\'s KTO).',
    lambda row: {**_kept(row), "prompt": instruction(row), "completion": row["output"], "label": row["kto_tag"]},
)
TURNS_TAG = RowLayout(
    '``{"conversations": [...], "kto_tag": true}`` (LLaMA-Factory\'s KTO).',
    renamed(conversations="conversations", label="kto_tag"),
)
NECTAR = RowLayout(
    '``{"prompt": "\\n\\nHuman: ...", "answers": [{"answer": "...", "rank": 1}, ...]}`` (Nectar); rank 1 is the best.',
    listed("prompt", "answer", ranks="rank"),
)
STACK_EXCHANGE = RowLayout(
    '``{"question": "...", "answers": [{"text": "...", "pm_score": 3}, ...]}`` (Stack Exchange preferences).',
    listed("question", "text", scores="pm_score"),
)
XLAM = RowLayout(
    '``{"query": "...", "answers": [{"name": "...", "arguments": {...}}], "tools": [...]}`` (xLAM): tool calls to imitate.',
    calls,
)
BFCL = RowLayout(
    '``{"question": [[{"role": "user", ...}]], "function": [{"name": ..., "parameters": {...}}]}`` (BFCL): a prompt with '
    "tools.",
    tool_prompt,
)
CONVERSATION = RowLayout(
    '``{"conversation": [{"input": "...", "output": "..."}]}`` (Capybara), or messages (LMSYS-Chat, WildChat).',
    turns_of,
)
DOLLY = RowLayout(
    '``{"instruction": "...", "context": "...", "response": "..."}`` (Dolly).',
    renamed(instruction="instruction", input="context", output="response"),
)
ORCA = RowLayout(
    '``{"system_prompt": "...", "question": "...", "response": "..."}`` (OpenOrca).',
    renamed(system="system_prompt", prompt="question", completion="response"),
)
#: The names of two columns, a question and its answer.
ANSWERED = (("question", "response"), ("query", "response"), ("prompt", "response"), ("input", "output"))
ANSWERS = {
    f"{asked}-{answered}": RowLayout(
        f'``{{"{asked}": "...", "{answered}": "..."}}``, a question and the completion to imitate.',
        renamed(prompt=asked, completion=answered),
    )
    for asked, answered in ANSWERED
}
INSTRUCTED = RowLayout(
    '``{"instruction": "...", "input": "...", "response": "..."}``.',
    lambda row: {**_kept(row), "prompt": instruction(row), "completion": row["response"]},
)
OPENAI_PREFERENCE = RowLayout(
    '``{"input": {"messages": [...], "tools": [...]}, "preferred_output": [...], "non_preferred_output": [...]}`` (OpenAI).',
    preferred,
)
ARC = RowLayout(
    '``{"question": "...", "choices": {"text": [...], "label": ["A", ...]}, "answerKey": "A"}`` (ARC, CommonsenseQA).',
    lettered,
)
QUESTION_ANSWER = RowLayout(
    '``{"question": "...", "answer": "72"}``, the answer for a grader, which is also the completion to imitate.',
    lambda row: {**_kept(row), "prompt": row["question"], "answer": row["answer"], "solution": str(row["answer"])},
)
OPTIONS = RowLayout(
    '``{"question": "...", "options": ["...", "..."], "answer": "B"}`` (MMLU-Pro), or options by letter (MedQA).',
    optional_choices,
)
SWIFT = RowLayout(
    '``{"messages": [...], "rejected_response": "..."}`` (ms-swift): the last message is the chosen completion.',
    replaced_reply,
)
HELLASWAG = RowLayout('``{"ctx": "...", "endings": [...], "label": 2}`` (HellaSwag).', ending)
