"""Each grader is graded: replies that must pass, that must fail, and hostile ones that must neither break nor hold it up."""

import json
import math
import time
from fractions import Fraction

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from minirlhf.core.errors import UserError
from minirlhf.data.records import Problem
from minirlhf.equations.shaping import composite_reward
from minirlhf.feedback import graders, rewards
from minirlhf.feedback.graders import answers

DOUBLE = json.dumps(
    {
        "prompt": 'def double(x):\n    """Twice x."""\n',
        "entry_point": "double",
        "test": "def check(candidate):\n    assert candidate(2) == 4\n    assert candidate(-1) == -2\n",
    }
)

# (completion, reference, reward)
TABLE = {
    "exact": [
        (" 1 2  3\n", "1 2 3", 1),
        ("1 2", "1 2 3", 0),
        ("2 1", "1 2", 0),
        ("a", "A", 0),
        ("", "", 1),
    ],
    "contains": [
        ("The capital is  PARIS.", "paris", 1),
        ("in New\nYork City", "new york", 1),
        ("is it (a|b)?", "(a|b)", 1),  # no regular expressions
        ("72", "7", 0),
        ("concatenate", "cat", 0),
        ("text", "", math.nan),
    ],
    "edit": [
        ("kitten", "sitting", 1 - 3 / 7),
        ("ab", "ba", 0),
        ("", "abc", 0),
        ("a  b", "a b", 1),
        ("", "", 1),
        ("x" * 4000, "x" * 2000, 0.5),
    ],
    "numeric": [
        ("so 36 + 36 = 72.\n#### 72", "72", 1),
        ("#### 1,080", "1080", 1),
        ("#### $1080.00 a day", "#### 1,080", 1),
        ("it is .5", "1/2", 1),
        ("#### −3", "-3", 1),
        ("3 then 4", "4.0", 1),
        ("#### 7 because 3 + 4", "7", 1),
        ("1,2,3", "3", 1),
        ("first #### 5, no: #### 6", "6", 1),
        ("#### 20%", "20", 1),
        ("#### 20%", "0.2", 0),  # what stands around a number is not compared
        ("it takes 1 1/2 hours", "1.5", 1),
        ("-1 1/2", "-3/2", 1),
        ("2e3 people", "2000", 1),
        ("#### 12 km", "12", 1),
        ("€1,000,000", "1e6", 1),
        ("#### 72", "73", 0),
        ("72 #### no idea", "72", 0),  # marked, and no number there
        ("seventy-two", "72", 0),
        ("#### 720", "72", 0),
        ("#### 1/0", "0", 0),
        ("", "0", 0),
        ("1e999", "1", 0),
        ("1e" + "9" * 1000, "1", 0),
        ("nan", "0", 0),
        ("٧٢", "72", 0),  # digits of another script
        ("７２", "72", 0),
        ("#### 72", "no number", math.nan),
        ("9" * 31, "9" * 31, math.nan),  # too long to be a number
        ("1", "1/0", math.nan),
    ],
    "gsm8k": [("72", "72", 0), ("#### 72", "72", 1), ("#### 72", "none", math.nan), ("72", "none", math.nan)],
    "partial": [("#### 72", "72", 1), ("72", "72", 0.5), ("#### 73", "72", 0), ("72", "none", math.nan)],
    "maths": [
        (r"so \boxed{\frac{1}{2}}", "0.5", 1),
        (r"\boxed{\frac12}", r"$\frac{2}{4}$", 1),
        (r"\boxed{\dfrac{\frac{1}{2}}{3}}", "1/6", 1),
        (r"\boxed{(x+1)^2}", "x^2+2x+1", 1),
        (r"\boxed{2\sqrt 2}", r"\sqrt{8}", 1),
        (r"\boxed{\sqrt[3]{27}}", "3", 1),
        (r"\boxed{\{2, 1\}}", r"\{1,2\}", 1),
        (r"\boxed{(1, \frac{1}{2})}", "(1,0.5)", 1),
        (r"\boxed{10{,}000}", "10000", 1),
        (r"\boxed{5\text{ cm}}", "5", 1),
        (r"\boxed{90^\circ}", "90", 1),
        (r"\boxed{\$5.00}", "5", 1),
        (r"\boxed{€ 5}", "5", 1),
        (r"\boxed{ 5 .}", "5", 1),
        ("$x = 5$", "5", 1),
        ("<think>3</think><answer>$\\frac{3}{4}$</answer>", "0.75", 1),
        ("The answer is 7.", "7", 1),
        (r"\boxed{3} no: \boxed{4}", "4", 1),
        (r"\boxed{3} no: \boxed{4}", "3", 0),
        ("1.4142", r"\sqrt{2}", 0),
        (r"\boxed{(1, 2)}", "(2, 1)", 0),
        (r"\boxed{[0,1)}", "[0,1]", 0),
        (r"\boxed{x\le 3}", "3", 0),
        (r"\boxed{\sin^2 x}", "x", 0),
        (r"\boxed{9^{9^{9^{9}}}}", "3", 0),  # takes too long, in the box
        (r"\boxed{__import__('os').getpid()}", "3", 0),
        ("x.real", "x", 0),
        ("", "1", 0),
        ("1", "", math.nan),
    ],
    "think": [
        ("<think>2 and 2</think><answer>4</answer>", "", 1),
        ("\n<think>\na\n</think>\n\n<answer>4</answer> ", "", 1),
        ("<think>a</think>4", "", 0),
        ("<answer>4</answer><think>a</think>", "", 0),
        ("<think></think><answer>4</answer>", "", 0),
        ("<think>a</think><answer> </answer>", "", 0),
        ("<think>a<think>b</think></think><answer>4</answer>", "", 0),
        ("<think>a</think><answer>4</answer><answer>5</answer>", "", 0),
        ("so <think>a</think><answer>4</answer>", "", 0),
        ("<think>a</think> so <answer>4</answer>", "", 0),
        ("<think>a</think><answer>4</answer> done", "", 0),
        ("<THINK>a</THINK><answer>4</answer>", "", 0),
        ("<think>a<answer></think>4</answer>", "", 0),
    ],
    "constraints": [
        ("bees dance here", '{"min_words": 3, "max_words": 3, "keywords": ["bees"], "lower_case": true}', 1),
        ("Bees dance", '{"keywords": ["bee"], "max_words": 2}', 0.5),
        ("Bees dance", '{"lower_case": true}', 0),
        ("BEES", '{"upper_case": true, "forbidden": ["wasps"]}', 1),
        ('```json\n{"a": 1}\n```', '{"json": true}', 1),
        ('{"a": NaN}', '{"json": true}', 0),
        ("{'a': 1}", '{"json": true}', 0),
        ("One. Two! Three?", '{"sentences": 3, "no_commas": true}', 1),
        ("Dear all,\n\nYours", '{"starts_with": "Dear", "ends_with": "Yours", "no_commas": true}', 2 / 3),
        ("", '{"lower_case": true, "no_commas": true, "json": true, "min_words": 1}', 0),
        ("a", "{}", math.nan),
        ("a", '{"colour": "red"}', math.nan),
        ("a", '{"min_words": "three"}', math.nan),
        ("a", '{"min_words": true}', math.nan),
        ("a", '{"keywords": []}', math.nan),
        ("a", "no object", math.nan),
        ("a", "[" * 100_000, math.nan),
    ],
    "language": [
        ("all in English", "the bees", 1),
        ("half 一二三四", "the bees", 0.5),
        ("пчёлы", "мёд", 1),
        ("bees", "мёд", 0),
        ("12 + 3", "the bees", 1),
        ("", "the bees", 1),
        ("bees", "12", math.nan),
    ],
    "repetition": [
        ("every word is new here", "", 0),
        ("one two three", "", 0),
        ("", "", 0),
        ("a a a a a", "", -1 / 2),  # two 4-grams, one of them new
        ("so " * 103, "", 1 / 100 - 1),
    ],
    "tests": [
        ("    return 2 * x\n", DOUBLE, 1),
        ("```python\ndef double(x):\n    return x + x\n```", DOUBLE, 1),
        ("First\n```\ndef double(x):\n    return 0\n```\nno:\n```py\ndouble = lambda x: 2 * x\n```", DOUBLE, 1),
        ("    return 4\n", DOUBLE, 0),
        ("    return x * '2'\n", DOUBLE, 0),
        ("", DOUBLE, 0),
        ("I cannot do this.", DOUBLE, 0),
        ("    return 2 * x\n", "72", math.nan),
        ("    return 2 * x\n", DOUBLE.replace("def check", "def chekc"), math.nan),
        ("    return 2 * x\n", DOUBLE.replace("assert", "asert"), math.nan),
        ("    return 2 * x\n", DOUBLE.replace("candidate(", "abs("), math.nan),  # asks the program nothing
    ],
    "tests_share": [("    return 4\n", DOUBLE, 0.5), ("    return 2 * x\n", DOUBLE, 1), ("    1 / 0\n", DOUBLE, 0)],
}

CASES = [pytest.param(name, *case, id=f"{name}-{i}") for name, cases in TABLE.items() for i, case in enumerate(cases)]
NOT_IN_A_BOX = [name for name in graders.GRADERS if name not in ("maths", "tests", "tests_share")]


@pytest.mark.parametrize(("name", "completion", "reference", "reward"), CASES)
def test_the_table(name, completion, reference, reward):
    assert graders.get(name)(completion, reference) == pytest.approx(reward, nan_ok=True)


def test_every_grader_stands_in_the_table_with_what_passes_and_what_fails():
    assert TABLE.keys() == graders.GRADERS.keys()
    for name, cases in TABLE.items():
        values = [reward for *_, reward in cases if not math.isnan(reward)]
        assert min(values) < max(values), name


@given(st.integers(-(10**12), 10**12), st.integers(0, 10**6))
def test_any_way_to_write_a_number(whole, millionths):
    value = abs(whole) + Fraction(millionths, 10**6)
    value = -value if whole < 0 else value
    sign = "-" if whole < 0 else ""
    for text in (f"{sign}{abs(whole):,}.{millionths:06d}", f"{sign}{abs(whole)}.{millionths:06d}0"):
        if millionths < 10**6:
            assert answers.answer_number(f"we get #### {text} in all") == value
    assert answers.answer_number(f"#### {whole:,}") == whole


short = st.text(alphabet="abc", max_size=7)


@given(short, short, short)
def test_the_edit_distance_is_a_distance(one, other, third):
    distance = answers.distance
    assert distance(one, other) == distance(other, one)
    assert (distance(one, other) == 0) == (one == other)
    assert distance(one, third) <= distance(one, other) + distance(other, third)
    assert abs(len(one) - len(other)) <= distance(one, other) <= max(len(one), len(other))


def _by_definition(one, other):
    if not one or not other:
        return len(one) + len(other)
    replaced = _by_definition(one[1:], other[1:]) + (one[0] != other[0])
    return min(replaced, _by_definition(one[1:], other) + 1, _by_definition(one, other[1:]) + 1)


@settings(max_examples=50, deadline=None)
@given(st.text(alphabet="abc", max_size=5), st.text(alphabet="abc", max_size=5))
def test_the_edit_distance_by_its_definition(one, other):
    assert answers.distance(one, other) == _by_definition(one, other)


def test_a_weighted_sum_is_that_of_the_equation():
    grade = graders.get("gsm8k*0.7+think*0.2+repetition")
    for completion in ("#### 72", "<think>a</think><answer>#### 72</answer>", "a a a a a #### 72"):
        parts = [graders.get(name)(completion, "72") for name in ("gsm8k", "think", "repetition")]
        expected = composite_reward(torch.tensor([parts]), torch.tensor([0.7, 0.2, 1.0]))
        assert grade(completion, "72") == pytest.approx(expected.item())
    assert math.isnan(grade("#### 72", "no number"))


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("numerik", "numeric"),
        ("numeric+thing", "think"),
        ("numeric*x", "expected names with weights"),
        ("numeric*-1", "expected names with weights"),
        ("numeric++think", "expected names with weights"),
        ("*", "expected names with weights"),
    ],
)
def test_unknown_graders(name, says):
    with pytest.raises(UserError, match=says):
        graders.get(name)


def test_graders_of_the_form_alone_need_no_reference():
    problem = Problem([{"role": "user", "content": "2 + 2?"}])
    text = "<think>a</think><answer>4</answer>"
    assert rewards.reference_reward(graders.get("think"))([problem], [text]) == [1.0]
    with pytest.raises(UserError, match="no reference"):
        rewards.reference_reward(graders.get("exact"))([problem], [text])


# -- hostile texts ------------------------------------------------------------------------------------------------------

texts = st.one_of(st.text(), st.text(alphabet="0123456789.,-/#$eE \n−", max_size=60), st.text(alphabet="<>/thinkaswer\\{}", max_size=60))  # fmt: skip


@settings(max_examples=300)
@given(texts, texts, st.sampled_from(NOT_IN_A_BOX))
def test_no_text_breaks_a_grader(completion, reference, name):
    value = graders.get(name)(completion, reference)
    assert -1 <= value <= 1 or math.isnan(value)
    assert math.isnan(value) == math.isnan(graders.get(name)("", reference)), "NaN is the reference's fault alone"


HOSTILE = {
    "long": "1" * 10**6,
    "words": "ab " * 333_333,
    "groups": "1,111" * 20_000,
    "marks": "#" * 10**6,
    "signs": "-." * 50_000,
    "slashes": "1/" * 50_000,
    "exponents": "1e" * 50_000,
    "tags": "<think>" * 100_000,
    "nested": "<think><answer>" * 1000 + "</answer></think>" * 1000,
    "boxes": "\\boxed{" * 50_000,
    "fractions": "\\boxed{" + "\\frac{" * 40 + "}" * 90,
    "roots": "\\boxed{" + "sqrt{" * 55,
    "dollars": "$" * 100_001,
    "tower": "\\boxed{" + "9^" * 60 + "9}",
    "brackets": "\\boxed{" + "(" * 280 + "}",
    "commas": "\\boxed{(" + "1," * 140 + ")}",
    "fences": "```python\n" * 50_000,
    "deep program": "    return " + "(" * 50_000,
    "nul": "\x00" * 1000,
    "surrogates": "\ud800" * 1000,
    "right to left": "\u202e" * 1000,
    "combining": "a" + "\u0301" * 100_000,
    "white": " " * 10**6,
    "lines": "\n" * 10**6,
}


@pytest.mark.parametrize("name", graders.GRADERS)
@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE)
def test_hostile_texts(name, text):
    """None earns a mark as if it were right, none takes long."""
    reference = {
        "constraints": '{"keywords": ["bee"], "json": true}', "tests": DOUBLE, "tests_share": DOUBLE, "language": "the bees",
    }.get(name, "7")  # fmt: skip
    start = time.process_time()
    value = graders.get(name)(text, reference)
    assert time.process_time() - start < 5
    least = {"repetition": 0.0, "language": 1.0}.get(name, 0.01)
    assert -1 <= value <= least
    assert isinstance(graders.get(name)("7", text), float)
