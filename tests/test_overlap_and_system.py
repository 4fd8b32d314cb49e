"""`minirlhf data overlap`: contamination of evaluation by training data; and templates without a system role."""

import json

import pytest
from facts import raises

from minirlhf.core.errors import UserError
from minirlhf.data import loaders
from minirlhf.data.chat import assistant_spans, encode, encode_prompt, render
from minirlhf.data.inspection import tokens
from minirlhf.models.tokenizers import describe_template, train_tokenizer
from minirlhf_cli import dispatch
from minirlhf_cli.files.overlap import overlap_with_training, words

TRAIN = [
    {"prompt": "How many apples are in a basket of twelve?", "completion": "There are twelve apples."},
    {"prompt": "Name a colour.", "completion": "Red is a colour that many people like to wear in summer."},
]
TEST = [
    {"question": "How many apples are in a basket, of TWELVE?", "answer": "#### 12"},  # the same words
    {"question": "How many pears are in a basket of twelve?", "answer": "#### 12"},  # one word differs
    {"question": "Which colour do people wear in winter?", "answer": "#### 1"},
    {"question": "Why?", "answer": "Red is a colour that many people like\n#### 2"},
]


def test_overlap_counts_the_ngrams_of_each_prompt():
    items = overlap_with_training(loaders.load(TEST), loaders.load(TRAIN), n=4)
    assert [item.overlap for item in items] == [1.0, pytest.approx(3 / 6), 0.0, None]
    assert items[1].shared == "are in a basket"
    whole = overlap_with_training(loaders.load(TEST), loaders.load(TRAIN), n=4, whole=True)
    assert whole[3].overlap and whole[3].shared == "red is a colour"


def test_words_ignore_case_and_punctuation():
    assert words("It's  Ärger, no?\n7.5") == ["it", "s", "ärger", "no", "7", "5"]


def test_overlap_finds_short_texts_that_are_the_same():
    test, train = (
        loaders.load([{"prompt": text, "answer": "1"} for text in texts])
        for texts in (["Say one", "Say two"], ["say one!"])
    )
    assert [item.overlap for item in overlap_with_training(test, train, n=8)] == [1.0, None]


def test_cli_data_overlap_writes_every_item(tmp_path, capsys):
    files = {}
    for name, rows in (("test", TEST), ("train", TRAIN)):
        files[name] = str(tmp_path / f"{name}.jsonl")
        (tmp_path / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    argv = ["data", "overlap", files["test"], files["train"], "--n", "4"]
    assert dispatch([*argv, "--json", str(tmp_path / "out.json")]) == 0
    found = json.loads((tmp_path / "out.json").read_text())
    assert [item["number"] for item in found["items"] if item["overlap"]] == [1, 2]
    with raises(UserError, argument="--n", value=0):
        dispatch([*argv[:-1], "0"])
    with raises(UserError, problem="missing"):
        dispatch(["data", "overlap", files["test"], str(tmp_path / "nowhere.jsonl")])


#: As Gemma 1 and 2 do: no system role, the assistant is called model.
GEMMA = (
    "{{ bos_token }}{% if messages[0]['role'] == 'system' %}{{ raise_exception('System role not supported') }}{% endif %}"
    "{% for m in messages %}{{ '<start_of_turn>' ~ ('model' if m['role'] == 'assistant' else m['role']) ~ '\n' "
    "~ m['content'] ~ '<end_of_turn>\n' }}{% endfor %}{{ '<start_of_turn>model\n' if add_generation_prompt }}"
)
ROW = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "Who are you?"},
    {"role": "assistant", "content": "A model."},
]


@pytest.fixture
def gemma():
    tokenizer = train_tokenizer(["Be brief. Who are you? A model. <start_of_turn> user model <end_of_turn>"], 300)
    tokenizer.chat_template = GEMMA
    return tokenizer


def test_template_without_a_system_role_gets_it_in_front_of_the_first_user_turn(gemma):
    folded = [{"role": "user", "content": "Be brief.\n\nWho are you?"}, ROW[2]]
    assert render(gemma, ROW) == render(gemma, folded)
    assert encode_prompt(gemma, ROW[:2]) == encode_prompt(gemma, folded[:1])
    assert encode(gemma, ROW, first_turn=2) == encode(gemma, folded, first_turn=1)
    text, [(start, end)] = assistant_spans(gemma, ROW)
    assert text[start:end] == "A model.<end_of_turn>"
    assert describe_template(gemma)
    shown = tokens(gemma, ROW, 2)
    assert [token.trained for token in shown] == encode(gemma, ROW, first_turn=2).loss_mask


def test_template_with_a_system_role_keeps_it(gemma):
    gemma.chat_template = GEMMA.replace("raise_exception('System role not supported')", "''")
    assert "<start_of_turn>system\nBe brief.<end_of_turn>" in render(gemma, ROW)


def test_template_that_refuses_a_later_system_message_still_does(gemma):
    with raises(UserError, argument="chat_template", problem="refuses"):
        render(gemma, [ROW[0], ROW[2]])
