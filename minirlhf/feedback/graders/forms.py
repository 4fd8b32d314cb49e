"""Graders of a completion's form: tags, verifiable instructions, language and repetition."""

from __future__ import annotations

import json
import math
import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from minirlhf.feedback.graders.thoughts import THOUGHTS, ThoughtTags, answer_part

LONGEST = 100_000  # characters that are read
NGRAM = 4


def think(completion: str, reference: str, thoughts: ThoughtTags = THOUGHTS) -> float:
    """Return 1 for ``<think>…</think><answer>…</answer>`` and nothing else: each tag once, in this order, no part
    empty.

    The opening ``<think>`` may be missing, because many chat templates write it before the completion begins. White
    space between and around the parts is allowed. The reference is ignored: only the form is graded.

    Source: the format reward of DeepSeek-AI (2025), "DeepSeek-R1", with the template of its R1-Zero.
    """
    parts = split_reasoning(completion, thoughts)
    return float(parts is not None and all(part.strip() for part in parts))


def split_reasoning(completion: str, thoughts: ThoughtTags = THOUGHTS) -> tuple[str, str] | None:
    """Return the two parts of a completion of this form (see :func:`think`), or None."""
    opening, *tags = *thoughts, "<answer>", "</answer>"
    text = completion.strip().removeprefix(opening)
    if opening in text or any(text.count(tag) != 1 for tag in tags):
        return None
    thought, between, answer, after = re.split("|".join(map(re.escape, tags)), text)
    in_order = [text.index(tag) for tag in tags]
    return None if in_order != sorted(in_order) or between.strip() or after else (thought, answer)


def constraints(completion: str, reference: str, thoughts: ThoughtTags = THOUGHTS) -> float:
    """Return the fraction of constraints that the completion satisfies. The reference names them as a JSON object.

    ``{"min_words": 5, "max_words": 20, "keywords": ["bee"], "forbidden": ["wasp"], "lower_case": true, "upper_case": true, "json":
    true, "no_commas": true, "starts_with": "Dear", "ends_with": "Yours", "sentences": 3, "lines": 2}``; any subset.
    ``{"each_sentence": {"starts_with": "G"}}`` and ``{"each_line": {"max_words": 7}}`` ask the same of every sentence,
    and of every line that is not blank; a text without any does not satisfy them. There ``starts_with`` and
    ``ends_with`` ignore case, and marks around the words. NaN if the reference is no such object, or names an unknown
    constraint or an invalid value.

    Source: the kinds of verifiable instructions in Zhou et al. (2023), "Instruction-Following Evaluation for Large Language Models"
        (their instruction-level accuracy counts all instructions of all prompts together).
    """
    try:
        required = json.loads(reference)
    except (ValueError, RecursionError):
        return math.nan
    if not isinstance(required, Mapping) or not required:
        return math.nan
    if any(name not in CONSTRAINTS or not can_be_asked(name, value) for name, value in required.items()):
        return math.nan
    text = answer_part(completion, thoughts)[:LONGEST]
    return sum(CONSTRAINTS[name](text, value) for name, value in required.items()) / len(required)


def _has_word(text: str, word: str) -> bool:
    return re.search(rf"(?<!\w){re.escape(word.casefold())}(?!\w)", text.casefold()) is not None


def _is_json(text: str) -> bool:
    fenced = re.fullmatch(r"\s*```(?:json)?\n(.*)\n```\s*", text, re.DOTALL)

    def refuse(name: str) -> None:
        raise ValueError(f"{name} is no JSON")

    try:
        json.loads(fenced[1] if fenced else text, parse_constant=refuse)
    except (ValueError, RecursionError):
        return False
    return True


def _sentences(text: str) -> list[str]:
    """Split a text after ``.``, ``!`` and ``?`` before white space, and at blank lines."""
    parts = re.split(r"(?<=[.!?])[\"'”’)\]]*\s+|\n\s*\n", text)
    return [part.strip() for part in parts if part.strip()]


def _lines(text: str) -> list[str]:
    return [line.strip() for line in text.splitlines() if line.strip()]


def _each(parts: Sequence[str], required: Mapping[str, Any]) -> bool:
    return bool(parts) and all(_holds(name, part, value) for part in parts for name, value in required.items())


def _holds(name: str, part: str, value: Any) -> bool:
    """Return whether a sentence or line satisfies a constraint; it may begin with a capital, a bullet or a quote."""
    if name not in ("starts_with", "ends_with"):
        return CONSTRAINTS[name](part, value)
    bare = re.sub(r"^[\W_]+|[\W_]+$", "", part) if value.strip().isalnum() else part
    return CONSTRAINTS[name](bare.casefold(), value.casefold())


def _cased(text: str, predicate: Callable[[str], bool]) -> bool:
    letters = [c for c in text if c.isalpha() and c.lower() != c.upper()]
    return bool(letters) and all(map(predicate, letters))


#: Each maps ``(text, required value)`` to whether the text satisfies the constraint. The value false requires nothing.
CONSTRAINTS: dict[str, Callable[[str, Any], bool]] = {
    "min_words": lambda text, count: len(text.split()) >= count,
    "max_words": lambda text, count: len(text.split()) <= count,
    "sentences": lambda text, count: len(re.findall(r"[.!?]+(?=\s|$)", text)) == count,
    "lines": lambda text, count: len(_lines(text)) == count,
    "each_sentence": lambda text, required: _each(_sentences(text), required),
    "each_line": lambda text, required: _each(_lines(text), required),
    "keywords": lambda text, words: all(_has_word(text, word) for word in words),
    "forbidden": lambda text, words: not any(_has_word(text, word) for word in words),
    "lower_case": lambda text, on: not on or _cased(text, str.islower),
    "upper_case": lambda text, on: not on or _cased(text, str.isupper),
    "no_commas": lambda text, on: not on or bool(text.strip() and "," not in text),
    "json": lambda text, on: not on or _is_json(text),
    "starts_with": lambda text, start: text.lstrip().startswith(start),
    "ends_with": lambda text, end: text.rstrip().endswith(end),
}


def can_be_asked(name: str, value: Any) -> bool:
    """Return whether a constraint accepts this value: a count, words, a text, true or false, constraints of parts."""
    if name in ("each_sentence", "each_line"):
        inner = value.items() if isinstance(value, Mapping) else ()
        return bool(inner) and all(
            n in CONSTRAINTS and not n.startswith("each_") and can_be_asked(n, v) for n, v in inner
        )
    if name in ("min_words", "max_words", "sentences", "lines"):
        return type(value) is int and value >= 0
    if name in ("keywords", "forbidden"):
        return isinstance(value, list) and bool(value) and all(isinstance(w, str) and w.strip() for w in value)
    if name in ("starts_with", "ends_with"):
        return isinstance(value, str) and bool(value)
    return isinstance(value, bool)


def language(completion: str, reference: str) -> float:
    """Return the fraction of the completion's letters in the reference's script: latin, cyrillic, han, arabic, ….

    The script of a text is the script of most of its letters. Other characters do not count. A completion without
    letters has nothing in a foreign script, and gets 1.

    Source: the language-consistency reward of DeepSeek-AI (2025), "DeepSeek-R1", 2.3.2: the proportion of words of the target
        language in the chain of thought. Scripts tell Chinese from English, and not English from French;
        Chinese characters are of the language of a reference with kana, if these are a tenth or more.
    """
    expected = _scripts(reference)
    if not expected:
        return math.nan
    target = {expected.most_common(1)[0][0]}
    if sum(expected[s] for s in _KANA) >= sum(expected[s] for s in _JAPANESE) / 10 and target & _JAPANESE:
        target = _JAPANESE
    counts = _scripts(completion)
    return sum(counts[s] for s in target) / counts.total() if counts else 1.0


_KANA = {"HIRAGANA", "KATAKANA", "KATAKANA-HIRAGANA"}
_JAPANESE = _KANA | {"CJK"}
_SYMBOL = re.compile(r"(?<![\u0370-\u03ff\u1f00-\u1fff])[\u0370-\u03ff](?![\u0370-\u03ff\u1f00-\u1fff])")


def _scripts(text: str) -> Counter[str]:
    """Count the letters of each script: the first word of a letter's Unicode name, which is right for all but a few.

    Letters of formulas have no script: Greek letters without a Greek neighbour, and Unicode's mathematical letters.
    """
    letters = Counter(c for c in _SYMBOL.sub("", text[:LONGEST]) if c.isalpha())
    scripts: Counter[str] = Counter()
    for letter, count in letters.items():
        script = unicodedata.name(letter, "?").partition(" ")[0]
        if script != "MATHEMATICAL":
            scripts[script] += count
    return scripts


def repetition(completion: str, reference: str) -> float:
    """Return minus the fraction of repeated word 4-grams: 0 for a text without repetition, towards −1 for a loop.

    The reference is ignored. A text of fewer than four words has no 4-grams and gets 0.

    Source: the repetition penalty of Yeo et al. (2025), "Demystifying Long Chain-of-Thought Reasoning in LLMs", as one number for
        the reply (theirs is given to the repeated tokens).
    """
    words = completion[:LONGEST].split()
    grams = list(zip(*(words[i:] for i in range(NGRAM)), strict=False))
    return len(set(grams)) / len(grams) - 1 if grams else 0.0
