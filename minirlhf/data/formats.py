"""Formats of real data: one parser per format, and the rule that detects the format.

A row is a dictionary. A format names the fields that a row must have; **the first format in** :data:`FORMATS` **whose
fields are all present is the format of the data**. Its parser turns a row into one of the records of
:mod:`minirlhf.data.records`. To add a format, write a parser and a line in :data:`FORMATS`.

A broken row (a field missing or of the wrong type) raises a :class:`~minirlhf.core.errors.UserError`. A row that is
well formed but useless (two equal completions, an empty one) raises :class:`~minirlhf.data.records.InvalidRecordError`:
the loader drops and counts it. It drops two equal completions only on request.
"""

from __future__ import annotations

import difflib
import itertools
import json
import re
import string
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, TypeAlias

from minirlhf.core.errors import UserError, unknown
from minirlhf.data import layouts, trees
from minirlhf.data.layouts import RowLayout
from minirlhf.data.messages import is_empty, kind, learned_part, read_messages, read_turns, require_text, said, wrong
from minirlhf.data.readers import Rows
from minirlhf.data.records import (
    VERBATIM,
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
from minirlhf.data.transcripts import dialogue, transcript, turn_pattern

Row: TypeAlias = Mapping[str, Any]


@dataclass(frozen=True)
class Format:
    """A format.

    Attributes:
        name: for ``--format``.
        fields: the fields that detect it, also one of an object or of the objects in a list (``answers.rank``), and
            ``answer.####`` for a text with this mark; those in ``nullable`` may be null in a row.
        parse: the parser of a row.
        optional: further fields that are read.
        layout: how a row is rewritten before it is parsed; the parser reads the fields that the layout writes.
        gather: what brings together rows that belong together, before any of them is parsed.
        templated: whether a chat template writes the rows.
    """

    name: str
    fields: tuple[str, ...]
    parse: Callable[[Row], Example]
    optional: tuple[str, ...] = ()
    nullable: tuple[str, ...] = ()
    layout: RowLayout | None = None
    gather: Callable[[Rows], Rows] | None = None
    templated: bool = True

    @property
    def columns(self) -> tuple[str, ...]:
        """The fields of a row without those inside of objects."""
        return tuple(dict.fromkeys(field.partition(".")[0] for field in self.fields))

    @property
    def example(self) -> str:
        """An example of a row, and what is said about it."""
        return self.layout.example if self.layout else self.parse.__doc__ or ""

    def rewritten(self, row: Row) -> Row:
        """Return the row in the fields that the parser reads.

        Raises:
            UserError: a field holds something else.
            InvalidRecordError: nothing can be learned from the row.
        """
        return row if self.layout is None else self.layout.rewrite(row)


# -- the parsers ------------------------------------------------------------------------------------------------------


def parse_messages(row: Row) -> Conversation | Problem:
    """``{"messages": [{"role": "user", "content": "..."}, ...]}``

    Content may be a list of parts of text. An assistant turn may have a thought (``reasoning_content``) and calls of
    functions (``tool_calls``, ``function_call`` or ``function_calls``); a turn of the role ``tool`` is what a function
    returned. An assistant turn with ``weight`` 0 or ``loss`` false is not learned. In every format the chat template also
    gets the fields ``tools`` and ``chat_template_kwargs`` of the row, the text in the field ``system`` is the system
    message, and the answer for a grader may stand in ``reference``, ``answer`` or ``ground_truth``.
    """
    return _conversation(row, "messages")


def parse_sharegpt(row: Row) -> Conversation | Problem:
    """``{"conversations": [{"from": "human", "value": "..."}, {"from": "gpt", "value": "..."}]}`` (ShareGPT).

    Turns may also have ``role`` and ``content``, as messages do. A tool call (``function_call``, JSON with name and
    arguments) is an assistant turn, the output of a tool (``observation``) a tool turn.
    """
    return _conversation(row, "conversations")


def parse_alpaca(row: Row) -> Conversation:
    """``{"instruction": "...", "input": "...", "output": "..."}`` (Alpaca).

    A non-empty input follows the instruction after a blank line. ``history`` lists earlier turns as pairs,
    ``[["question", "answer"], ...]``.
    """
    prompt = _text(row, "instruction")
    if row.get("input") not in (None, ""):
        prompt += "\n\n" + require_text(row["input"], "input")
    pairs = [] if row.get("history") in (None, "") else _list(row, "history", "pairs of texts")
    if not all(isinstance(pair, list | tuple) and len(pair) == 2 for pair in pairs):
        raise wrong("history", pairs, "a list of pairs of texts", expected="pairs")
    said = [require_text(text, "history") for pair in pairs for text in pair]
    earlier = [{"role": ("user", "assistant")[i % 2], "content": text} for i, text in enumerate(said)]
    return _to_imitate([*earlier, _user(prompt), {"role": "assistant", "content": _text(row, "output")}], 1)


def parse_prompt_completion(row: Row) -> Conversation:
    """``{"prompt": ..., "completion": ...}``, each a text or messages."""
    prompt = _prompt(row)
    return _to_imitate([*prompt, *_without(prompt, _reply(row, "completion", row["prompt"]))], len(prompt))


def parse_preference(row: Row) -> Comparison | Ranking:
    """``{"prompt": ..., "chosen": ..., "rejected": ...}``, each a text or messages; completions may repeat the prompt.

    Texts may be transcripts, as in hh-rlhf. That texts repeat the prompt is seen from the first rows.
    ``margin`` is by how much the chosen completion is better; if it is missing, ``score_chosen − score_rejected`` is used.
    ``subset`` names a kind of comparison; an evaluation reports each subset separately. Lists of texts are several chosen
    or rejected completions (RewardBench 2, RM-Bench), of which each pair is compared.
    """
    prompt = _prompt(row)
    if any(_is_texts(row[field]) for field in ("chosen", "rejected")):
        return _of_lists(prompt, row)
    replies = [_reply(row, field, row["prompt"]) for field in ("chosen", "rejected")]
    prompt = _with_system_of(prompt, replies)
    chosen, rejected = (_without(prompt, reply) for reply in replies)
    return _compare(prompt, chosen, rejected, row)


def parse_preference_messages(row: Row) -> Comparison | Ranking:
    """``{"messages": [...], "chosen": ..., "rejected": ...}``: messages that both completions follow.

    Where ``chosen`` and ``rejected`` are whole conversations, ``messages`` is not read.
    """
    whole = [value for value in (row["chosen"], row["rejected"]) if isinstance(value, list) and value]
    if any(isinstance(value[0], Mapping) and value[0].get("role") != "assistant" for value in whole):
        return parse_transcripts(row)
    return parse_preference({**row, "prompt": row["messages"]})


def parse_transcripts(row: Row) -> Comparison:
    """``{"chosen": "\\n\\nHuman: ...\\n\\nAssistant: ...", "rejected": ...}`` (HH-RLHF), or both as messages.

    The prompt is the common beginning of the two, up to its last user turn.
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
            "chosen and rejected share no user turn that a completion follows", argument="prompt", problem="missing"
        )
    return _compare(chosen[:shared], chosen[shared:], rejected[shared:], row)


def parse_judgement(row: Row) -> UnpairedPreference:
    """``{"prompt": ..., "completion": ..., "label": true}`` (KTO): one completion and its label, desirable or not."""
    prompt = _prompt(row)
    completion = _without(prompt, _reply(row, "completion", row["prompt"]))
    _require_answer(completion, "completion")
    return UnpairedPreference(prompt, completion, _truth(row, "label"))


def parse_rated(row: Row) -> Ranking:
    """``{"prompt": ..., "completion": ..., "rating": 4.5}``, or with ``score``: one completion and a number for it.

    ``train reward --loss regression`` learns the number.
    """
    prompt = _prompt(row)
    completion = _without(prompt, _reply(row, "completion", row["prompt"]))
    name = "rating" if row.get("rating") is not None else "score"
    rating = _number(row, name)
    if rating is None:
        raise InvalidRecordError(f"{name} is empty", argument=name, problem="empty")
    return _rank(prompt, [completion], [rating], keep_scores=True, alone=True)


def parse_preference_turns(row: Row) -> Comparison:
    """``{"conversations": [...], "chosen": {"from": "gpt", "value": "..."}, "rejected": {...}}`` (LLaMA-Factory).

    The completions may also be messages.
    """
    if not all(isinstance(row[field], Mapping) for field in ("chosen", "rejected")):
        return parse_transcripts(row)  # whole conversations
    prompt = _turns(row, "conversations")
    chosen, rejected = (_turns({"conversations": [row[field]]}, "conversations") for field in ("chosen", "rejected"))
    return _compare(prompt, chosen, rejected, row)


def parse_judged_turns(row: Row) -> Conversation | Problem | UnpairedPreference:
    """``{"messages": [...], "label": true}``, or with ``conversations``: the last turn and its label (LLaMA-Factory's KTO).

    A label that is not true or false is of another kind, and is not read.
    """
    field = "messages" if row.get("messages") is not None else "conversations"
    if not isinstance(row.get("label"), bool):
        return _conversation(row, field)
    turns = _turns(row, field)
    _require_answer(turns[-1:], field)
    return UnpairedPreference(turns[:-1], turns[-1:], row["label"])


def parse_steps(row: Row) -> StepLabeledCompletion:
    """``{"prompt": ..., "completions": ["step", ...], "labels": [true, ...]}`` (TRL's stepwise supervision).

    A label is 1 or true for a valid step, -1 or false for a wrong step, 0 for a step that is neither.
    """
    prompt = _prompt(row)
    steps = [require_text(s, f"completions[{i}]").strip() for i, s in enumerate(_list(row, "completions", "steps"))]
    labels = _list(row, "labels", "labels")
    if len(labels) != len(steps):
        raise UserError(
            f"field 'labels' has {len(labels)} labels for {len(steps)} steps; expected one per step",
            argument="labels",
            value=len(labels),
            expected=len(steps),
        )
    for i, label in enumerate(labels):
        if not isinstance(label, bool | int | float) or label not in (-1, 0, 1):
            where = f"labels[{i}]"
            raise wrong(where, label, "true, false, 1, 0 or -1", expected="label")
    if not steps or not all(steps):
        raise InvalidRecordError("a step is empty" if steps else "no steps", argument="completions", problem="empty")
    return StepLabeledCompletion(
        prompt, steps, tuple((1 if x else -1) if isinstance(x, bool) else int(x) for x in labels)
    )


def parse_ranking(row: Row) -> Ranking:
    """``{"prompt": ..., "responses": [...]}``, each a text or messages, the best first.

    With ``scores`` (the higher the better) or ``ranks`` (1 is the best) the order is free; equal values are ties.
    """
    prompt = _prompt(row)
    completions = _responses(row, prompt)
    scores, ranks = (_numbers(row, field, len(completions)) for field in ("scores", "ranks"))
    if scores and ranks:
        message = "fields 'scores' and 'ranks' are both there; expected one of them"
        raise UserError(message, argument="ranks", expected="scores", problem="exclusive")
    if scores:
        return _rank(prompt, completions, scores, keep_scores=True, alone=True)
    order = ranks or [float(i) for i in range(len(completions))]
    return _rank(prompt, completions, [-rank for rank in order], keep_scores=False)


def parse_thread(row: Row) -> Ranking:
    """``{"message_id": "...", "parent_id": "...", "role": "prompter", "text": "...", "rank": 0}`` (OpenAssistant).

    The messages of a tree, one in each row, or whole trees (``{"message_tree_id": ..., "prompt": {..., "replies":
    [...]}}``): the replies to each question are ranked, 0 is the best. Deleted messages, and all below them, are dropped.
    A question with one reply is for ``train sft`` only.
    """
    trees.require_usable(row)
    prompt = _prompt(row)
    completions = _responses(row, prompt)
    ranks = _numbers(row, "ranks", len(completions)) or [0.0] * len(completions)
    return _rank(prompt, completions, [-rank for rank in ranks], keep_scores=False, alone=True)


def parse_text(row: Row) -> Conversation:
    """``{"text": "..."}``: a text for ``train sft``, learned whole, as it is.

    No chat template is written around it, and the end-of-sequence token follows it. Marks of turns in it are text.
    """
    return Conversation([{"role": "assistant", "content": _text(row, "text"), VERBATIM: True}])


def parse_ultrafeedback(row: Row) -> Ranking:
    """``{"instruction": "...", "completions": [{"response": "...", "fine-grained_score": 4.5}, ...]}`` (UltraFeedback).

    ``fine-grained_score`` is the mean of four ratings; if it is missing, ``overall_score`` is used. A completion without
    either score is left out.
    """
    prompt = [_user(_text(row, "instruction"))]
    completions, scores = [], []
    for i, completion in enumerate(_list(row, "completions")):
        where = f"completions[{i}]"
        if not isinstance(completion, Mapping) or "response" not in completion:
            message = f"{where} is {kind(completion)}; expected an object with response and a score"
            raise UserError(message, argument=where, value=completion, expected=["response", "score"])
        fields = {f"{where}.{key}": value for key, value in completion.items()}
        score = next((s for key in _SCORES if (s := _number(fields, f"{where}.{key}")) is not None), None)
        if score is not None:
            completions.append([{"role": "assistant", "content": _text(fields, f"{where}.response")}])
            scores.append(score)
    return _rank(prompt, completions, scores, keep_scores=True)


_SCORES = ("fine-grained_score", "overall_score")


def parse_mmlu(row: Row) -> Problem:
    """``{"question": "...", "choices": ["...", "..."], "answer": 1}`` (MMLU).

    The right choice is named by its index from 0, its letter or its text.
    """
    options, answer = choices_of(row, "choices"), row["answer"]
    if isinstance(answer, bool) or not isinstance(answer, int | str):
        raise wrong(
            argument="answer", value=answer, words="a choice, its number from 0 on or its letter", expected="choice"
        )
    if isinstance(answer, int) and not 0 <= answer < len(options):
        message = f"field 'answer' is {answer}; expected the number of one of {len(options)} choices, from 0 on"
        raise UserError(message, argument="answer", value=answer, expected=len(options))
    reference = options[answer] if isinstance(answer, int) else choice_named(answer, options)
    return Problem([_user(_text(row, "question").strip())], reference, choices=options)


def parse_gsm8k(row: Row) -> Problem:
    """``{"question": "...", "answer": "working\\n#### 72"}`` (GSM8K); the annotations ``<<48/2=24>>`` are removed."""
    answer = _text(row, "answer")
    final = final_answer(answer)
    if final is None:
        raise UserError(
            "field 'answer' does not end in '#### number', the format of GSM8K; for a plain answer use the fields 'prompt' "
            "and 'answer' (--prompt-field question), for multiple choice 'question', 'choices' and 'answer'",
            argument="answer",
            expected="####",
        )
    return Problem([_user(_text(row, "question").strip())], final, re.sub(r"<<[^<>]*>>", "", answer).strip())


def parse_human_eval(row: Row) -> Problem:
    """``{"prompt": "def f(x): ...", "entry_point": "f", "test": "def check(candidate): ..."}`` (HumanEval), for the grader ``tests``.

    With ``canonical_solution``, the code that continues the prompt, the problem also has a solution to imitate.
    """
    fields = {name: _text(row, name) for name in ("prompt", "entry_point", "test")}
    if not fields["entry_point"].isidentifier():
        raise wrong(argument="entry_point", value=row["entry_point"], words="the name of a function", expected="name")
    solution = row.get("canonical_solution")
    code = None if solution in (None, "") else fields["prompt"] + require_text(solution, "canonical_solution")
    return Problem(
        [_user(fields["prompt"])], json.dumps(fields), None if code is None else f"```python\n{code.rstrip()}\n```"
    )


def parse_problem(row: Row) -> Problem:
    """``{"prompt": ...}``, a text or messages, with the optional answer for a grader in ``reference``.

    The answer may also be in ``answer`` or ``ground_truth``, the names that other libraries use. A list holds several
    right answers. Without any of them a grader reads ``solution``, which is also a completion to imitate.
    """
    reference, more = right_answers(row)
    worked = row.get("solution")
    if reference is None:
        reference, more = _right_answers(worked, "solution")
    return Problem(
        _prompt(row), reference, worked if isinstance(worked, str) and worked.strip() else None, alternatives=more
    )


def parse_rlvr(row: Row) -> Problem:
    """``{"messages": [...], "ground_truth": "72"}`` (open-instruct): the messages may end with a solution to imitate.

    ``ground_truth`` is the answer for a grader, or a list of right answers; ``dataset`` names the grader of the row
    (``--grader field:dataset``).
    """
    prompt, solution = _prompt_and_solution(_messages(row, "messages"), "messages")
    reference, more = _right_answers(row.get("ground_truth"), "ground_truth")
    return Problem(prompt, reference, solution, alternatives=more)


def parse_verl(row: Row) -> Problem:
    """``{"prompt": [...], "reward_model": {"ground_truth": "72"}}`` (verl), also as ``export --to verl`` writes it.

    ``data_source`` names the grader of the row (``--grader field:data_source``).
    """
    value = row["reward_model"]
    try:
        value = json.loads(value) if isinstance(value, str) else value
    except (ValueError, RecursionError):
        value = None
    if not isinstance(value, Mapping) or "ground_truth" not in value:
        raise wrong("reward_model", row["reward_model"], "an object with ground_truth", expected="ground_truth")
    truth = value["ground_truth"]
    if isinstance(truth, Mapping) and set(truth) == {"target"}:
        truth = truth["target"]
    if isinstance(truth, str) and truth.startswith('["'):  # one answer as a list in JSON, as in Skywork-OR1
        with suppress(ValueError, RecursionError):
            [truth] = json.loads(truth)
    reference, more = _right_answers(truth, "reward_model.ground_truth")
    return Problem(_prompt(row), reference, alternatives=more)


def parse_worked(row: Row) -> Problem:
    """``{"problem": "...", "solution": "...", "answer": "72"}`` (NuminaMath, OpenR1, MATH); one of the last two suffices.

    Without ``answer`` a grader reads the solution. With ``messages`` the prompt and the solution to imitate are theirs.
    """
    worked = row.get("solution")
    worked = None if worked in (None, "") else require_text(worked, "solution")
    reference, more = _right_answers(row.get("answer"), "answer")
    prompt, solution = [_user(_text(row, "problem").strip())], worked
    if row.get("messages"):
        prompt, of_messages = _prompt_and_solution(_messages(row, "messages"), "messages")
        solution = of_messages or worked
    return Problem(prompt, worked if reference is None else reference, solution, alternatives=more)


def _prompt_and_solution(messages: list[Message], field: str) -> tuple[list[Message], str | None]:
    """Split messages into the prompt, up to the last user turn, and the reply to it, if there is one."""
    users = [i for i, message in enumerate(messages) if message["role"] == "user"]
    if not users:
        raise InvalidRecordError(f"{field} has no user turn", argument=field, problem="last turn")
    reply = messages[-1] if messages[-1]["role"] == "assistant" and not is_empty(messages[-1]) else None
    if reply is None or len(messages) != users[-1] + 2:
        return messages[: users[-1] + 1], None
    thought = reply.get("reasoning_content")
    return messages[: users[-1] + 1], (f"<think>\n{thought}\n</think>\n\n" if thought else "") + reply["content"]


def right_answers(row: Row) -> tuple[str | None, tuple[str, ...]]:
    """Return the right answer that a row names beside a prompt and a completion, and further ones.

    Raises:
        UserError: two fields name different answers, or one holds something else.
    """
    present = [name for name in ANSWERS if row.get(name) not in (None, "")]
    if len({str(row[name]) for name in present}) > 1:
        message = f"fields {' and '.join(map(repr, present))} differ; expected one answer"
        raise UserError(message, argument="answer", value=present, problem="mismatch")
    return _right_answers(row[present[0]], present[0]) if present else (None, ())


def _right_answers(value: object, field: str) -> tuple[str | None, tuple[str, ...]]:
    """Return the right answer and further ones: a text or a number, or a list of them."""
    values = value if isinstance(value, list | tuple) else [value]
    # In a table that has a missing number, 72 is 72.0.
    whole = [int(item) if isinstance(item, float) and item.is_integer() else item for item in values]
    texts = [
        str(item) if isinstance(item, int | float) and not isinstance(item, bool) else require_text(item, field)
        for item in whole
        if item not in (None, "")
    ]
    return (texts[0], tuple(dict.fromkeys(texts[1:]))) if texts else (None, ())


#: The fields that may hold the answer to a problem.
ANSWERS = ("reference", "answer", "ground_truth")
#: The roles of the messages that a completion follows.
MAY_BE_ANSWERED = ("user", "tool")
#: The optional fields of a pair.
BESIDE_A_PAIR = ("margin", "score_chosen", "score_rejected", "subset")

#: The fields of a message in a tree that are read, and those that :func:`~minirlhf.data.trees.threads` adds.
IN_A_TREE = ("rank", "deleted", "lang", "message_tree_id", "prompt", "responses", "ranks")


def _as(name: str, fields: str, parse: Callable[[Row], Example], layout: RowLayout, *optional: str) -> Format:
    """Return the format of a layout whose fields stand in one text."""
    return Format(name, tuple(fields.split()), parse, optional, layout=layout)


#: From the most specific to the least specific: the first format whose fields are all present is used.
FORMATS: dict[str, Format] = {
    form.name: form
    for form in (
        Format("oasst", ("message_id", "parent_id", "role", "text"), parse_thread, IN_A_TREE, ("parent_id",),
               gather=trees.threads),
        Format("oasst-trees", ("message_tree_id", "prompt"), parse_thread, ("message_id", "role", "text", *IN_A_TREE),
               nullable=("prompt",), gather=trees.threads_of_trees),
        Format(
            "preference",
            ("prompt", "chosen", "rejected"),
            parse_preference,
            BESIDE_A_PAIR,
        ),
        Format("messages-preference", ("messages", "chosen", "rejected"), parse_preference_messages, BESIDE_A_PAIR),
        _as("swift-preference", "messages rejected_response", parse_preference, layouts.SWIFT),
        Format("sharegpt-preference", ("conversations", "chosen", "rejected"), parse_preference_turns, BESIDE_A_PAIR),
        _as("question-preference", "question chosen rejected", parse_preference, layouts.QUESTION_PAIR, *BESIDE_A_PAIR),
        _as("alpaca-preference", "instruction chosen rejected", parse_preference, layouts.ALPACA_PAIR, "input"),
        _as("input-preference", "input chosen rejected", parse_preference, layouts.INPUT_PAIR, *BESIDE_A_PAIR),
        Format("hh-rlhf", ("chosen", "rejected"), parse_transcripts, BESIDE_A_PAIR),
        _as(
            "openai-preference",
            "input preferred_output non_preferred_output",
            parse_preference,
            layouts.OPENAI_PREFERENCE,
        ),
        _as("shp", "history human_ref_A human_ref_B labels", parse_preference, layouts.SHP),
        _as("safe-rlhf", "prompt response_0 response_1 better_response_id", parse_preference, layouts.SAFE_RLHF),
        _as("safe-rlhf-safer", "prompt response_0 response_1 safer_response_id", parse_preference, layouts.SAFE_RLHF_SAFER),
        _as("helpsteer2-preference", "prompt response_1 response_2 preference_strength", parse_preference,
            layouts.HELPSTEER2_PREFERENCE),
        _as("helpsteer3", "context response1 response2 overall_preference", parse_preference, layouts.HELPSTEER3),
        _as("arena", "conversation_a conversation_b winner", parse_transcripts, layouts.ARENA),
        _as("arena-texts", "prompt response_a response_b winner_model_a winner_model_b winner_tie", parse_transcripts,
            layouts.ARENA_TEXTS),
        _as("a-or-b", "prompt response_a response_b winner", parse_preference, layouts.A_OR_B),
        _as("summaries", "info summaries choice", parse_preference, layouts.SUMMARIES),
        _as("webgpt", "question answer_0 answer_1 score_0 score_1", parse_preference, layouts.WEBGPT),
        _as("summary", "info summary.axes", parse_rated, layouts.SUMMARY),
        _as("response-rating", "prompt response rating", parse_rated, layouts.RATED_RESPONSE),
        _as("helpsteer", "prompt response helpfulness", parse_rated, layouts.HELPSTEER),
        _as("safety", "prompt response is_safe", parse_judgement, layouts.SAFETY),
        _as("alpaca-kto", "instruction output kto_tag", parse_judgement, layouts.ALPACA_TAG, "input"),
        _as("sharegpt-kto", "conversations kto_tag", parse_judged_turns, layouts.TURNS_TAG),
        _as("nectar", "prompt answers.rank", parse_ranking, layouts.NECTAR),
        _as("stack-exchange", "question answers.pm_score", parse_ranking, layouts.STACK_EXCHANGE),
        _as("xlam", "query answers tools", parse_messages, layouts.XLAM),
        _as("bfcl", "question function", parse_problem, layouts.BFCL),
        Format("stepwise", ("prompt", "completions", "labels"), parse_steps),
        Format("kto", ("prompt", "completion", "label"), parse_judgement),
        Format("rated", ("prompt", "completion", "rating"), parse_rated),
        Format("scored", ("prompt", "completion", "score"), parse_rated),
        Format("ranking", ("prompt", "responses"), parse_ranking, ("scores", "ranks")),
        Format("ultrafeedback", ("instruction", "completions"), parse_ultrafeedback),
        Format("prompt-completion", ("prompt", "completion"), parse_prompt_completion),
        Format("rlvr", ("messages", "ground_truth"), parse_rlvr, ("dataset",), nullable=("ground_truth",)),
        Format("worked", ("problem", "answer"), parse_worked, ("solution", "messages"), nullable=("answer",)),
        Format("worked-solution", ("problem", "solution"), parse_worked, ("messages",)),
        Format("kto-messages", ("messages", "label"), parse_judged_turns, nullable=("label",)),
        Format("kto-sharegpt", ("conversations", "label"), parse_judged_turns, nullable=("label",)),
        Format("messages", ("messages",), parse_messages),
        Format("sharegpt", ("conversations",), parse_sharegpt),
        _as("conversation", "conversation", parse_sharegpt, layouts.CONVERSATION),
        Format("alpaca", ("instruction", "output"), parse_alpaca, ("input", "history")),
        _as("dolly", "instruction context response", parse_alpaca, layouts.DOLLY),
        _as("orca", "system_prompt question response", parse_prompt_completion, layouts.ORCA),
        _as("instruction-response", "instruction response", parse_prompt_completion, layouts.INSTRUCTED, "input"),
        Format("mmlu", ("question", "choices", "answer"), parse_mmlu),
        _as("arc", "question choices answerKey", parse_mmlu, layouts.ARC),
        _as("hellaswag", "ctx endings label", parse_mmlu, layouts.HELLASWAG),
        _as("mmlu-pro", "question options answer", parse_mmlu, layouts.OPTIONS),
        Format("gsm8k", ("question", "answer", "answer.####"), parse_gsm8k),
        _as("question-answer", "question answer", parse_problem, layouts.QUESTION_ANSWER),
        Format("human-eval", ("prompt", "entry_point", "test"), parse_human_eval, ("canonical_solution", "task_id")),
        Format("verl", ("prompt", "reward_model"), parse_verl, ("data_source", "ability", "extra_info")),
        *(
            _as(name, name.replace("-", " "), parse_prompt_completion, layout)
            for name, layout in layouts.ANSWERS.items()
        ),
        Format("problem", ("prompt",), parse_problem, (*ANSWERS, "solution")),
        Format("text", ("text",), parse_text, templated=False),
    )
}  # fmt: skip


def renamed(row: Any, fields: Mapping[str, str], *, required: bool = False) -> Any:
    """Return the row with the fields of the formats under their own names, see :func:`~minirlhf.data.loaders.load`."""
    if not fields or not isinstance(row, Mapping):
        return row
    found: dict[str, Any] = {}
    for name, theirs in fields.items():
        value: Any = row
        for key in [theirs] if theirs in row else theirs.split("."):
            value = value.get(key) if isinstance(value, Mapping) else None
        if value is None and required and theirs not in row:
            raise UserError(
                f"there is no field {theirs!r}, which was named for {name}; found {', '.join(map(str, row))}",
                argument=f"{name}_field",
                value=theirs,
                expected=sorted(map(str, row)),
                problem="missing",
            )
        found[name] = value
    used = {*fields.values()}
    return {**{key: value for key, value in row.items() if key not in used}, **found}


def get(name: str) -> Format:
    """Return the format of this name; an unknown name is a ``UserError`` with the nearest name."""
    if name not in FORMATS:
        raise unknown("format", name, FORMATS)
    return FORMATS[name]


def detect(found: Iterable[str]) -> Format:
    """Return the format of data with these fields; if none matches, a ``UserError`` names the nearest formats."""
    names = set(found)
    for form in FORMATS.values():
        if names.issuperset(form.fields):
            return form
    present = {name for name in names if "." not in str(name)}
    corrections = _misspelt(present)
    shared = lambda form: len({*present, *corrections.values()} & {*form.columns}) / len(form.columns)
    near = [form for form in sorted(FORMATS.values(), key=shared, reverse=True) if shared(form)][:3]
    needs = "; ".join(f"{form.name}: {', '.join(form.fields)}" for form in near)
    raise UserError(
        f"unknown format: found the fields {', '.join(sorted(map(str, present))) or '(none)'}; name them by --prompt-field "
        f"and kin, or use a known format ({f'the nearest: {needs}; ' if near else ''}minirlhf data formats lists all)"
        + (
            f"; did you mean {' and '.join(f'{right!r} instead of {name!r}' for name, right in corrections.items())}?"
            if corrections
            else ""
        ),
        argument="format",
        value=sorted(map(str, present)),
        expected=corrections or list(FORMATS),
        problem="unknown",
    )


def _misspelt(names: Iterable[str]) -> dict[str, str]:
    """Return the known field for each name that is nearly equal to it: ``{"Answers": "answer"}``."""
    known = sorted({field for form in FORMATS.values() for field in form.columns})
    matches = {
        name: difflib.get_close_matches(str(name).lower(), known, n=1, cutoff=0.75) for name in sorted(map(str, names))
    }
    return {name: match[0] for name, match in matches.items() if match and match[0] != name}


# -- multiple choice ---------------------------------------------------------------------------------------------------

#: The number of letters.
MOST_CHOICES = len(string.ascii_uppercase)


def choices_of(row: Row, field: str) -> tuple[str, ...]:
    """Return the choices that a field lists: at least two, all different, otherwise none could be the right one."""
    texts = row.get(field)
    if not isinstance(texts, list | tuple) or not all(isinstance(text, str) and text.strip() for text in texts):
        message = f"field {field!r}, its choices, is {str(texts)[:40]!r}; expected a list of texts"
        raise UserError(message, argument=field, value=texts, expected="list")
    if not 2 <= len(texts) <= MOST_CHOICES or len(set(texts)) < len(texts):
        message = f"field {field!r} lists {len(texts)} choices; expected 2 to {MOST_CHOICES} different ones"
        raise UserError(message, argument=field, value=len(texts), expected=(2, MOST_CHOICES))
    return tuple(texts)


def choice_named(right: str, listed: Sequence[str]) -> str:
    """Return the choice named by its text, its index from 0 or its letter from A; an ambiguous name is refused."""
    names = dict(zip(string.ascii_uppercase, listed, strict=False)) | {str(i): text for i, text in enumerate(listed)}
    if right in listed and names.get(right, right) != right:
        raise UserError(
            f"the answer {right!r} is ambiguous: it is a choice, and the number or letter of another ({names[right][:40]!r})"
            "; expected a letter if the choices are numbers, and a number if they are letters",
            argument="answer",
            value=right,
            problem="ambiguous",
        )
    answer = right if right in listed else names.get(right)
    if answer is None:
        raise UserError(
            f"the answer {right[:40]!r} is not one of the choices; expected one of them, its number from 0 or its letter",
            argument="answer",
            value=right,
            expected=list(listed),
        )
    return answer


# -- parts of rows ----------------------------------------------------------------------------------------------------


def final_answer(text: str) -> str | None:
    """Return the line after the last ``####`` of a text, as GSM8K ends; None if the text does not end so."""
    _, marker, answer = text.rpartition("####")
    answer = answer.strip()
    return answer if marker and answer and "\n" not in answer else None


def _user(content: str) -> Message:
    return {"role": "user", "content": content}


def _text(row: Row, field: str) -> str:
    """Return a field that must hold text; blank text is an :class:`InvalidRecordError`."""
    value = require_text(row[field], field)
    if not value.strip():
        raise InvalidRecordError(f"{field} is empty", argument=field, problem="empty")
    return value


def _messages(row: Row, field: str, or_text: str = "") -> list[Message]:
    """Return a field that must hold a list of messages with known roles."""
    return read_messages(row[field], field, or_text)


def _turns(row: Row, field: str) -> list[Message]:
    """Return a field that must hold messages, or turns as in ShareGPT."""
    value = row[field]
    is_turns = isinstance(value, list) and bool(value) and isinstance(value[0], Mapping) and "role" not in value[0]
    return read_turns(value) if is_turns and field == "conversations" else _messages(row, field)


def _conversation(row: Row, field: str) -> Conversation | Problem:
    """Return a conversation to imitate; a prompt with an answer for a grader, if no completion follows it."""
    turns = _turns(row, field)
    start, end = learned_part(row[field], field)
    if turns[-1]["role"] in MAY_BE_ANSWERED:
        answer, more = right_answers(row)
        if answer is not None:
            return Problem(turns, answer, alternatives=more)
    return _to_imitate(turns[:end], start)


def _prompt(row: Row) -> list[Message]:
    """Return the field ``prompt``: messages that end with a user turn or what a tool returned, or a text.

    A text becomes a user turn; a transcript with turns of ``Human:`` and ``Assistant:`` becomes messages.
    """
    if isinstance(row["prompt"], str):
        text = _text(row, "prompt")
        turn = turn_pattern(text)
        if turn is None:
            return [_user(text)]
        messages = dialogue(text, turn)
        if messages[-1:] == [{"role": "assistant", "content": ""}]:
            messages = messages[:-1]
    elif isinstance(row["prompt"], Mapping) and "role" in row["prompt"]:
        messages = read_messages([row["prompt"]], "prompt")
    else:
        messages = _messages(row, "prompt", "text or ")
    if not messages or messages[-1]["role"] not in MAY_BE_ANSWERED:
        raise InvalidRecordError("the prompt does not end with a user turn", argument="prompt", problem="last turn")
    return messages


def _reply(row: Row, field: str, prompt: object) -> list[Message]:
    """Return a completion: messages, or a text, which becomes an assistant turn, or turns if it goes on a transcript.

    ``prompt`` is the value of the field ``prompt``.
    """
    if isinstance(row[field], Mapping):
        return read_messages([row[field]], field)
    if not isinstance(row[field], str):
        return _messages(row, field, "text or ")
    text = _text(row, field)
    turn = turn_pattern(prompt) if isinstance(prompt, str) else None
    if turn is not None and isinstance(prompt, str) and not text.startswith(("\n\nHuman:", prompt.rstrip())):
        begun = dialogue(prompt, turn)
        begun = begun[:-1] if begun[-1:] == [{"role": "assistant", "content": ""}] else begun
        gap = "" if prompt.rstrip().endswith("Assistant:") or turn.match(text) else "\n\nAssistant:"
        return dialogue(f"{prompt.rstrip()}{gap}{text}", turn)[len(begun) :]
    whole = turn or turn_pattern(text)
    if whole is not None and "Assistant" in whole.split(text)[1::2]:
        return dialogue(text, whole)
    return [{"role": "assistant", "content": text}]


def _without(prompt: list[Message], completion: Reply) -> Reply:
    """Return the completion without a repeated prompt, with or without its system message.

    White space around each content is ignored when comparing.
    """
    for repeated in (prompt, prompt[1:] if prompt[0]["role"] == "system" else prompt):
        if repeated and said(completion[: len(repeated)]) == said(repeated):
            return completion[len(repeated) :]
    return completion


def _with_system_of(prompt: list[Message], completions: Sequence[Reply]) -> list[Message]:
    """Return the prompt with the system message in front that all completions have before the prompt that they repeat."""
    if not all(completions):
        return prompt
    firsts = [completion[0] for completion in completions]
    repeats = all(said(completion[1 : len(prompt) + 1]) == said(prompt) for completion in completions)
    shared = all(first["role"] == "system" and said([first]) == said(firsts[:1]) for first in firsts)
    return [firsts[0], *prompt] if repeats and shared and prompt[0]["role"] != "system" else prompt


def _to_imitate(messages: list[Message], context: int) -> Conversation:
    while len(messages) > context and messages[-1]["role"] != "assistant":
        messages = messages[:-1]  # an unanswered question
    if len(messages) == context:
        raise InvalidRecordError("no assistant turn", argument="assistant", problem="missing")
    if is_empty(messages[-1]):
        raise InvalidRecordError("the last assistant turn is empty", argument="assistant", problem="empty")
    return Conversation(messages, context)


def _is_texts(value: object) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(item, str) for item in value)


def _of_lists(prompt: list[Message], row: Row) -> Ranking:
    """Return a ranking in two tiers, all chosen completions before all rejected ones."""
    tiers: list[list[Reply]] = []
    for field in ("chosen", "rejected"):
        values = row[field] if _is_texts(row[field]) else [row[field]]
        fields = {f"{field}[{i}]": value for i, value in enumerate(values)}
        tiers.append([_without(prompt, _reply(fields, name, row["prompt"])) for name in fields])
        for name, completion in zip(fields, tiers[-1], strict=True):
            _require_answer(completion, name)
    for chosen, rejected in itertools.product(*tiers):
        _require_different(chosen, rejected)
    return Ranking(prompt, tiers, subset=_subset(row))


def _subset(row: Row) -> str | None:
    subset = row.get("subset")
    return None if subset in (None, "") else require_text(subset, "subset")


def _compare(prompt: list[Message], chosen: list[Message], rejected: list[Message], row: Row) -> Comparison:
    for field, completion in (("chosen", chosen), ("rejected", rejected)):
        _require_answer(completion, field)
    _require_different(chosen, rejected)
    return Comparison(prompt, chosen, rejected, _margin(row), subset=_subset(row))


def _require_answer(completion: Reply, field: str) -> None:
    if not completion or completion[0]["role"] != "assistant" or completion[-1]["role"] != "assistant":
        raise InvalidRecordError(f"{field} has no assistant turn after the prompt", argument=field, problem="missing")
    if is_empty(completion[-1]):
        raise InvalidRecordError(f"the last assistant turn of {field} is empty", argument=field, problem="empty")


def _require_different(chosen: Reply, rejected: Reply) -> None:
    """Raise an error if the two are equal up to white space around each content."""
    if said(chosen) == said(rejected):
        raise IdenticalPairError("chosen and rejected are equal", argument="rejected", problem="duplicate")


def _rank(
    prompt: list[Message], completions: list[Reply], scores: list[float], *, keep_scores: bool, alone: bool = False
) -> Ranking:
    """Return tiers of equal score, the highest first. A completion that occurs twice with one score counts once.

    ``alone``: a single completion with its score is kept, for a regression.
    """
    for i, completion in enumerate(completions):
        _require_answer(completion, f"reply {i + 1}")
    tiers: dict[float, list[Reply]] = {score: [] for score in sorted(set(scores), reverse=True)}
    score_of: dict[str, float] = {}
    for completion, score in zip(completions, scores, strict=True):
        if score_of.setdefault(str(said(completion)), score) != score:
            raise IdenticalPairError(
                "two completions of different rank are equal", argument="responses", problem="duplicate"
            )
        if said(completion) not in map(said, tiers[score]):
            tiers[score].append(completion)
    if len(tiers) < 2 and not (alone and len(completions) == 1):
        few = len(completions) < 2
        reason = "fewer than two replies" if few else "all replies are tied"
        raise InvalidRecordError(
            reason, argument="responses", value=len(completions), problem="too few" if few else "tied"
        )
    return Ranking(prompt, list(tiers.values()), tuple(tiers) if keep_scores else None)


def _list(row: Row, field: str, items: str = "replies") -> list[Any]:
    if not isinstance(row[field], list):
        raise wrong(field, row[field], f"a list of {items}", expected="list")
    return row[field]


def _responses(row: Row, prompt: list[Message]) -> list[Reply]:
    fields = {f"responses[{i}]": response for i, response in enumerate(_list(row, "responses"))}
    return [_without(prompt, _reply(fields, field, row["prompt"])) for field in fields]


def _numbers(row: Row, field: str, count: int) -> list[float]:
    """Return an optional list of one number per completion; empty if the field is missing."""
    if row.get(field) is None:
        return []
    values = _list(row, field)
    if len(values) != count:
        message = f"field {field!r} has {len(values)} numbers for {count} replies; expected as many"
        raise UserError(message, argument=field, value=len(values), expected=count)
    numbers = [_number({f"{field}[{i}]": value}, f"{field}[{i}]") for i, value in enumerate(values)]
    if None in numbers:
        where = f"{field}[{numbers.index(None)}]"
        raise wrong(where, None, "a finite number", expected="number")
    return [number for number in numbers if number is not None]


def _truth(row: Row, field: str) -> bool:
    """Return true or false; text and 0 or 1, as in a CSV file or a table, are accepted."""
    value = str(row[field]).strip().lower() if isinstance(row[field], bool | int | float | str) else ""
    if value not in ("true", "false", "1", "0", "1.0", "0.0"):
        raise wrong(field, row[field], "true or false", expected="bool")
    return value in ("true", "1", "1.0")


def _margin(row: Row) -> float | None:
    """Return the optional field ``margin``, or the difference of ``score_chosen`` and ``score_rejected``."""
    chosen, rejected = _number(row, "score_chosen"), _number(row, "score_rejected")
    if row.get("margin") in (None, "") and chosen is not None and rejected is not None:
        return chosen - rejected
    return _number(row, "margin")


def _number(row: Row, field: str) -> float | None:
    """Return an optional field that must hold a finite number; in a CSV file it is text."""
    value = row.get(field)
    if value is None or value == "":
        return None
    try:
        number = float("nan") if isinstance(value, bool) else float(value)
    except (TypeError, ValueError, OverflowError):
        number = float("nan")
    if not abs(number) < float("inf"):
        raise wrong(field, value, "a finite number", expected="number")
    return number
