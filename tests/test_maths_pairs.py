r"""Pairs of a reference and an answer in \boxed{}, written anew: the right verdict, math-verify's, and who is right.

``samples/maths_pairs.tsv`` has the verdicts of math-verify 0.9.0, so that it need not be installed; where it is (``pip
install math-verify[antlr4_9_3]==0.9.0``), they are checked.
"""

import csv
from collections import Counter
from pathlib import Path

import pytest

from minirlhf.feedback import graders

FILE = Path(__file__).parent / "samples" / "maths_pairs.tsv"
with FILE.open(encoding="utf-8", newline="") as _file:
    ROWS = list(csv.DictReader(_file, delimiter="\t", quoting=csv.QUOTE_NONE))
with FILE.with_name("maths_completions.tsv").open(encoding="utf-8", newline="") as _file:
    WHOLE = list(csv.DictReader(_file, delimiter="\t", quoting=csv.QUOTE_NONE))
with FILE.with_name("maths_by_hand.tsv").open(encoding="utf-8", newline="") as _file:
    BY_HAND = list(csv.DictReader(_file, delimiter="\t", quoting=csv.QUOTE_NONE))
KINDS = list(dict.fromkeys(row["kind"] for row in ROWS))


def answer(row):
    return rf"So the answer is \boxed{{{row['answer']}}}."


def test_maths_pairs_are_many_and_judged():
    assert len(ROWS) == len({(row["reference"], row["answer"]) for row in ROWS}) == 482
    assert sum(row["right"] == row["math_verify"] for row in ROWS) == 371  # both as chapter 16 says
    assert {row["right"] for row in ROWS} == {row["math_verify"] for row in ROWS} == {"0", "1"}
    for row in ROWS:
        assert bool(row["judged"]) == (row["right"] != row["math_verify"]), row
    wrong = Counter(row["kind"] for row in ROWS if row["right"] == "0")
    assert len(KINDS) >= 20 and sum(wrong.values()) >= 100


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_maths_grader_agrees_with_judgement(kind):
    mistaken = [
        (row["reference"], row["answer"], row["right"])
        for row in ROWS
        if row["kind"] == kind and graders.maths(answer(row), row["reference"]) != float(row["right"])
    ]
    assert not mistaken


@pytest.mark.parametrize("right", ["1", "0"])
def test_maths_grader_agrees_with_judgement_before_the_run(right):
    """Pairs that were judged before the grader saw them; what is wrong is wrong in both directions."""
    pairs = [(row["reference"], row["answer"]) for row in BY_HAND if row["right"] == right]
    pairs += [(answer, reference) for reference, answer in pairs] if right == "0" else []
    mistaken = [
        pair for pair in pairs if graders.maths(rf"So the answer is \boxed{{{pair[1]}}}.", pair[0]) != float(right)
    ]
    assert len(pairs) > 100 and not mistaken


@pytest.mark.parametrize(
    ("completion", "reference", "right"),
    [
        ("So \\boxed{x > E}.\n\n**Answer: D**", "D", 1),
        ("So \\boxed{x > E}.\n\n**Answer: D**", "E", 0),
        ("First \\boxed{5}.\nFinal answer: 7", "7", 1),
        ("First \\boxed{5}.\nFinal answer: 7", "5", 0),
        ("Final answer: \\boxed{5}\nThe answer is correct.", "5", 1),
        ("Answer: A\nNo.\nAnswer: C", "C", 1),
        ("The answer is B because a car moves.", "B", 1),
        ("The answer is B because a car moves.", "A", 0),
        ("The answer is B. Note that A is a distractor.", "A", 0),
    ],
)
def test_maths_grader_takes_the_answer_that_is_named_last(completion, reference, right):
    assert graders.maths(completion, reference) == right


@pytest.mark.slow
def test_maths_grader_reads_whole_completions():
    """Where the answer stands in a completion, and how it is announced."""
    mistaken = [row for row in WHOLE if graders.maths(row["completion"], row["reference"]) != float(row["right"])]
    assert len(WHOLE) > 70 and not mistaken


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_maths_grader_pays_none_with_roles_exchanged(kind):
    """What is no answer to a reference is none to it as a reference, except where half of a quantity is missing."""
    one_sided = {"5\\text{ ft }3\\text{ in}", "12\\text{ dozen}", "7\\text{ million}"}
    paid = [
        (row["answer"], row["reference"])
        for row in ROWS
        if row["kind"] == kind and row["right"] == "0" and not one_sided & {row["answer"], row["reference"]}
        if graders.maths(rf"\boxed{{{row['reference']}}}", row["answer"]) == 1
    ]
    assert not paid


@pytest.mark.slow
def test_maths_pairs_have_verdicts_of_math_verify():
    peer = pytest.importorskip("math_verify", reason="math-verify is not installed")
    readers = [peer.LatexExtractionConfig(), peer.ExprExtractionConfig()]
    mistaken = []
    for row in ROWS:
        texts = rf"\boxed{{{row['reference']}}}", answer(row)
        gold, given = (peer.parse(text, extraction_config=readers, parsing_timeout=None) for text in texts)
        if int(bool(peer.verify(gold, given, timeout_seconds=None))) != int(row["math_verify"]):
            mistaken.append((row["reference"], row["answer"]))
    assert not mistaken
