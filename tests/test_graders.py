"""Graders of free text: what counts as the right answer, and that no text breaks them."""

from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from minirlhf.core.errors import UserError
from minirlhf.feedback import graders


@pytest.mark.parametrize(
    ("completion", "reference"),
    [
        ("so 36 + 36 = 72.\n#### 72", "72"),
        ("#### 1,080", "1080"),
        ("#### $1080.00 a day", "#### 1,080"),
        ("it is .5", "1/2"),
        ("#### −3", "-3"),
        ("3 then 4", "4.0"),
        ("#### 7 because 3 + 4", "7"),
        ("1,2,3", "3"),
        ("first #### 5, no: #### 6", "6"),
    ],
)
def test_equal_numbers(completion, reference):
    assert graders.numeric(completion, reference) == 1.0


@pytest.mark.parametrize(
    ("completion", "reference"),
    [
        ("#### 72", "73"),
        ("72 #### no idea", "72"),  # marked, and no number there
        ("seventy-two", "72"),
        ("#### 720", "72"),
        ("#### 1/0", "0"),
        ("", "0"),
        ("no number", "none either"),  # two missing answers are not equal answers
        ("9" * 31, "9" * 31),  # too long to be a number
    ],
)
def test_unequal_numbers(completion, reference):
    assert graders.numeric(completion, reference) == 0.0


def test_gsm8k_wants_the_mark():
    assert graders.gsm8k("72", "72") == 0.0
    assert graders.gsm8k("#### 72", "72") == graders.numeric("72", "72") == 1.0


def test_exact_compares_words():
    assert graders.exact(" 1 2  3\n", "1 2 3") == 1.0
    assert graders.exact("1 2", "1 2 3") == graders.exact("2 1", "1 2") == graders.exact("a", "A") == 0.0


def test_contains_whole_words():
    assert graders.contains("The capital is  PARIS.", "paris") == 1.0
    assert graders.contains("in New\nYork City", "new york") == 1.0
    assert graders.contains("72", "7") == graders.contains("concatenate", "cat") == graders.contains("text", "") == 0.0
    assert graders.contains("is it (a|b)?", "(a|b)") == 1.0  # no regular expressions


@given(st.integers(-(10**12), 10**12), st.integers(0, 10**6))
def test_any_way_to_write_a_number(whole, millionths):
    value = abs(whole) + Fraction(millionths, 10**6)
    value = -value if whole < 0 else value
    sign = "-" if whole < 0 else ""
    for text in (f"{sign}{abs(whole):,}.{millionths:06d}", f"{sign}{abs(whole)}.{millionths:06d}0"):
        if millionths < 10**6:
            assert graders.answer_number(f"we get #### {text} in all") == value
    assert graders.answer_number(f"#### {whole:,}") == whole


texts = st.one_of(st.text(), st.text(alphabet="0123456789.,-/#$ \n−", max_size=60))


@settings(max_examples=300)
@given(texts, texts, st.sampled_from(sorted(graders.GRADERS)))
def test_no_text_breaks_a_grader(completion, reference, name):
    assert graders.get(name)(completion, reference) in (0.0, 1.0)


@pytest.mark.parametrize("long", ["1" * 100_000, "1,111" * 20_000, "#" * 100_000, "-." * 50_000, "1/" * 50_000])
def test_long_texts(long):
    for grader in graders.GRADERS.values():
        assert grader(long, "7") == 0.0


def test_unknown_grader_names_the_nearest():
    with pytest.raises(UserError, match="numeric"):
        graders.get("numerik")
