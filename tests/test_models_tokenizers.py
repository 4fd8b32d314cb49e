"""Tokenizers: exact round trips of text, through chat templates, through files; foreign ones that lack something."""

import pytest
from facts import raises
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from minirlhf.core.errors import UserError
from minirlhf.data import chat
from minirlhf.models.tokenizers import (
    SMALLEST,
    complete_tokenizer,
    load_tokenizer,
    require_usable,
    train_tokenizer,
    word_tokenizer,
)

WORDS = ["tell", "me", "about", "cats", "sleep", "a", "lot", ".", "7"]
TEXTS = [f"The number {i} is about {i * 37 % 101}, she said: don't. " * 2 for i in range(200)]
MESSAGES = chat.conversation("tell me about cats", "cats sleep a lot .")


@pytest.fixture(scope="module")
def trained():
    return train_tokenizer(TEXTS, vocab_size=400)


def foreign(**special):
    """A tokenizer as it might come from elsewhere."""
    core = Tokenizer(models.WordLevel({"<unk>": 0, "</s>": 1, "hi": 2}, unk_token="<unk>"))
    core.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return PreTrainedTokenizerFast(tokenizer_object=core, unk_token="<unk>", **special)


# -- words -------------------------------------------------------------------------------------------------------


def test_word_tokenizer_ids_are_special_tokens_then_words():
    tokenizer = word_tokenizer(WORDS)
    names = [*chat.SPECIAL_TOKENS, *WORDS]
    assert tokenizer.convert_tokens_to_ids(names) == list(range(len(names)))
    assert len(tokenizer) == len(names)
    assert tokenizer.pad_token_id != tokenizer.eos_token_id


@given(st.lists(st.sampled_from(WORDS), max_size=20))
@settings(deadline=None, max_examples=30)
def test_word_tokenizer_round_trip(words):
    tokenizer = word_tokenizer(WORDS)
    text = " ".join(words)
    ids = tokenizer(text)["input_ids"]
    assert len(ids) == len(words) and tokenizer.decode(ids) == text


def test_word_tokenizer_other_word_is_unknown_token():
    tokenizer = word_tokenizer(WORDS)
    assert tokenizer("cats zebras")["input_ids"] == [tokenizer.convert_tokens_to_ids("cats"), tokenizer.unk_token_id]


@pytest.mark.parametrize("words", [["a", "a"], ["a b"], [""], ["<eos>"]])
def test_word_tokenizer_unusable_words_are_error(words):
    with raises(ValueError, argument="words"):
        word_tokenizer(words)


# -- bytes -------------------------------------------------------------------------------------------------------


@given(st.text(max_size=60).filter(lambda text: not any(s in text for s in chat.SPECIAL_TOKENS)))
@settings(deadline=None, max_examples=200)
def test_train_tokenizer_round_trip_of_any_text(text):
    tokenizer = _shared_trained()
    ids = tokenizer(text)["input_ids"]
    assert tokenizer.decode(ids) == text
    assert tokenizer.unk_token_id not in ids


_CACHE: list[PreTrainedTokenizerFast] = []


def _shared_trained():
    if not _CACHE:
        _CACHE.append(train_tokenizer(TEXTS, vocab_size=400))
    return _CACHE[0]


def test_train_tokenizer_finds_common_words_and_is_repeatable(trained):
    assert SMALLEST < len(trained) <= 400
    assert len(trained("The number")["input_ids"]) < len("The number") / 2
    assert trained.get_vocab() == train_tokenizer(reversed(TEXTS), vocab_size=400).get_vocab()


def test_train_tokenizer_splits_numbers_into_digits(trained):
    assert [trained.decode([i]) for i in trained("2048")["input_ids"]] == list("2048")


def test_train_tokenizer_special_tokens_are_one_id_each(trained):
    assert trained("<user>hi<eos>")["input_ids"][0] == trained.convert_tokens_to_ids("<user>")
    assert trained("<user>hi<eos>")["input_ids"][-1] == trained.eos_token_id
    assert trained.pad_token_id != trained.eos_token_id


def test_train_tokenizer_bad_input_is_error():
    with raises(UserError, argument="vocab_size", value=SMALLEST - 1, expected=SMALLEST):
        train_tokenizer(TEXTS, vocab_size=SMALLEST - 1)
    with raises(UserError, argument="texts", problem="empty"):
        train_tokenizer(["", ""])


# -- files -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("make", [lambda: word_tokenizer(WORDS), _shared_trained], ids=["words", "bytes"])
def test_load_tokenizer_returns_what_was_saved(make, tmp_path):
    tokenizer = make()
    tokenizer.save_pretrained(tmp_path)
    loaded = load_tokenizer(tmp_path)
    assert loaded.get_vocab() == tokenizer.get_vocab()
    assert loaded.chat_template == tokenizer.chat_template
    assert loaded.special_tokens_map == tokenizer.special_tokens_map
    assert loaded.padding_side == tokenizer.padding_side == "left"
    coded, again = chat.encode(tokenizer, MESSAGES), chat.encode(loaded, MESSAGES)
    assert again == coded
    assert loaded.decode(coded.input_ids) == tokenizer.decode(coded.input_ids)
    assert loaded.decode(coded.input_ids, skip_special_tokens=True) == tokenizer.decode(
        coded.input_ids, skip_special_tokens=True
    )


@pytest.mark.parametrize(
    "special, template, lacks, problem",
    [
        ({}, "x", ["eos_token"], "missing"),
        ({"eos_token": "</s>"}, "x", ["pad_token"], "missing"),
        ({"eos_token": "</s>", "pad_token": "</s>"}, "x", ["pad_token"], "duplicate"),
        ({"eos_token": "</s>", "pad_token": "<unk>"}, None, ["chat_template"], "missing"),
        ({"eos_token": "</s>"}, None, ["pad_token", "chat_template"], "missing"),
    ],
)
def test_load_tokenizer_names_what_foreign_tokenizer_lacks(special, template, lacks, problem, tmp_path):
    tokenizer = foreign(**special)
    tokenizer.chat_template = template
    tokenizer.save_pretrained(tmp_path)
    with raises(UserError, argument="tokenizer", value=lacks, problem=problem):
        load_tokenizer(tmp_path)


def test_load_tokenizer_completes_foreign_tokenizer(tmp_path):
    foreign(eos_token="</s>", pad_token="</s>").save_pretrained(tmp_path)
    tokenizer = load_tokenizer(tmp_path, complete=True)
    assert tokenizer.pad_token == "<pad>" and tokenizer.pad_token_id == 3 and tokenizer.eos_token == "</s>"
    assert tokenizer.chat_template == chat.TRANSCRIPT
    assert complete_tokenizer(tokenizer) == [], "a second time there is nothing to add"


def test_complete_tokenizer_reports_what_it_adds():
    tokenizer = foreign(eos_token="</s>")
    added = complete_tokenizer(tokenizer)
    assert len(added) == 2 and "<pad>" in added[0] and "TRANSCRIPT" in added[1]
    require_usable(tokenizer)


def test_load_tokenizer_folder_without_tokenizer_is_error(tmp_path):
    with raises(UserError, argument="tokenizer", file=str(tmp_path), problem="missing"):
        load_tokenizer(tmp_path)
