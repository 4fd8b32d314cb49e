"""Thoughts are no answers: what a grader reads of a completion that thinks."""

import dataclasses
import math

import pytest
from facts import raises
from test_graders import DOUBLE

from minirlhf.core.errors import UserError
from minirlhf.data import chat
from minirlhf.data.records import Problem
from minirlhf.feedback import graders, rewards
from minirlhf.feedback.graders.thoughts import answer_part, parse_tags
from minirlhf.models.tokenizers import word_tokenizer

#: For each grader of answers: a right and a wrong completion for a reference.
RIGHT_WRONG = {
    **dict.fromkeys(("exact", "numeric", "contains", "edit"), ("7", "4", "7")),
    **dict.fromkeys(("gsm8k", "partial"), ("#### 7", "#### 4", "7")),
    "maths": ("\\boxed{7}", "\\boxed{4}", "7"),
    "constraints": ("seven bees", "four wasps", '{"keywords": ["bees"], "forbidden": ["wasps"]}'),
    **dict.fromkeys(("tests", "tests_share"), ("    return 2 * x\n", "    return None\n", DOUBLE)),
}
OTHER_TAGS = ("[THINK]", "[/THINK]")


def test_thoughts_cases_have_every_grader_of_answers():
    assert RIGHT_WRONG.keys() == graders.GRADERS.keys() - {"think", "language", "repetition"}


@pytest.mark.parametrize("name", RIGHT_WRONG)
@pytest.mark.parametrize("tags", [graders.THOUGHTS, OTHER_TAGS], ids=["default", "other"])
def test_graders_read_what_stands_after_last_thought(name, tags):
    right, wrong, reference = RIGHT_WRONG[name]
    opening, closing = tags
    grade = graders.get(name, tags)
    plain, worst = grade(right, reference), grade(wrong, reference)
    assert plain == 1 > worst
    for thought in (f"{opening}{wrong}{closing}", f"{wrong}{closing}", f"{opening}a{closing}{opening}{wrong}{closing}"):
        assert grade(f"{thought}\n{right}", reference) == 1
    for thought in (f"{opening}{right}{closing}", f"{right}\n{closing}"):
        assert grade(f"{thought}\n{wrong}", reference) == worst


@pytest.mark.parametrize("name", RIGHT_WRONG)
@pytest.mark.parametrize("text", ["<think>{}", "{} <think>hm", "<think>a</think>b<think>{}", "<think>{}</think>"])
def test_graders_unfinished_thought_and_thought_alone_have_no_answer(name, text):
    right, _, reference = RIGHT_WRONG[name]
    if name == "constraints":
        reference = '{"keywords": ["bees"]}'
    assert graders.get(name)(text.format(right), reference) == 0
    vote = graders.votes(name)
    assert vote is None or not vote(text.format(right))


def test_graders_votes_ignore_thoughts():
    for name, texts in {"exact": ("7", "<think>8</think> 7"), "gsm8k": ("#### 7", "#### 8</think>#### 7.0")}.items():
        vote = graders.votes(name)
        assert vote(texts[0]) == vote(texts[1]) is not None
    assert graders.votes("numeric", OTHER_TAGS)("[THINK]7[/THINK] 8") == 8
    assert graders.votes("contains") is None


def test_graders_whole_read_thoughts():
    assert graders.get("language")("<think>一二三四</think>four", "the bees") < 1
    assert graders.get("repetition")("<think>" + "so " * 103 + "</think>four", "") < -0.9


def test_graders_weighted_sum_takes_tags():
    grade = graders.get("exact*0.5+think*0.5", OTHER_TAGS)
    assert grade("[THINK]a[/THINK]<answer>4</answer>", "<answer>4</answer>") == 1
    assert grade("<think>a</think><answer>4</answer>", "<answer>4</answer>") == 0


@pytest.mark.parametrize("reference", ["<think>8 or 9</think>\n7", "8\n</think>7"])
def test_graders_reference_with_thoughts_is_its_answer(reference):
    for name in ("exact", "contains", "numeric", "maths"):
        assert graders.get(name)("7", reference) == 1 and graders.get(name)("8", reference) == 0


@pytest.mark.parametrize("text", ["", "<a>", "<a>,", ",<a>", "<a>,<a>", "<a>,<b>,<c>"])
def test_thought_tags_of_other_form_are_refused(text):
    with raises(UserError, argument="thought_tags", value=text):
        parse_tags(text)
    assert parse_tags(" <a> , </a>") == ("<a>", "</a>")


OPENS = chat.CHATML.replace("assistant\n' if", "assistant\n<think>\n' if")
OPENS_AND_CLOSES = chat.CHATML.replace("assistant\n' if", "assistant\n<think>\n\n</think>\n\n' if")


@pytest.mark.parametrize(
    ("template", "text", "grade"),
    [
        (OPENS, "it is 7", 0),  # cut off within the thought that the template opened
        (OPENS, "8? </think> 7", 1),
        (OPENS, "7 </think> 8", 0),
        (OPENS_AND_CLOSES, "it is 7", 1),
        (chat.CHATML, "it is 7", 1),
    ],
)
def test_reference_reward_knows_thought_that_template_opened(template, text, grade):
    tokenizer = word_tokenizer(["what"], chat_template=template)
    problems = rewards.with_generation_prompts(tokenizer, [Problem(chat.conversation("what"), "7")])
    for name in ("numeric", "maths", "contains"):
        assert rewards.reference_reward(graders.get(name))(problems, [text]) == [grade]
    assert rewards.reference_reward(graders.get("language"))([dataclasses.replace(problems[0], reference="мёд")], ["мёд"]) == [1]  # fmt: skip


def test_think_grades_completion_of_template_that_opens_thought():
    tokenizer = word_tokenizer(["what"], chat_template=OPENS)
    problems = rewards.with_generation_prompts(tokenizer, [Problem(chat.conversation("what"))] * 2)
    texts = ["hm</think><answer>4</answer>", "hm <answer>4</answer>"]
    assert rewards.reference_reward(graders.get("think"))(problems, texts) == [1, 0]


def test_answer_part_of_text_without_tags_is_all_of_it():
    assert answer_part(" 7\n") == " 7\n" and answer_part("a</think> b") == " b"
    assert math.isnan(graders.get("numeric")("7", "<think>7")), "a reference that is a thought cannot be used"
