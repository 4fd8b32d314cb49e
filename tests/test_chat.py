"""Chat templates and loss masks: which tokens the assistant wrote, in every turn, by whatever template."""

import re

import pytest
from facts import raises
from hypothesis import given, settings
from hypothesis import strategies as st

from minirlhf.core.errors import ArgumentError, UserError
from minirlhf.data import chat
from minirlhf.data.examples import TRAIN_ON, conversations
from minirlhf.data.loaders import Records
from minirlhf.data.records import Conversation
from minirlhf.models.tokenizers import train_tokenizer, word_tokenizer

TEXT = ["tell me about cats", "cats purr and nap", "User: hello\n\nAssistant: hello\n", "what do bees do?"]
IM = ("<|im_start|>", "<|im_end|>")


def without_marks(template):
    """The template as most of the world writes it: nothing says what the assistant wrote."""
    return re.sub(r"\{% (end)?generation %\}", "", template)


def make_tokenizers():
    """A tokenizer for each template, and the token that ends its assistant's turns."""
    words = word_tokenizer(sorted({word for text in TEXT for word in text.split()}))
    chatml = train_tokenizer(TEXT, 300, chat_template=chat.CHATML)
    chatml.add_special_tokens({"additional_special_tokens": list(IM)})
    return {
        "words": (words, chat.EOS),
        "turns": (train_tokenizer(TEXT, 300), chat.EOS),
        "chatml": (chatml, IM[1]),
        "transcript": (train_tokenizer(TEXT, 300, chat_template=chat.TRANSCRIPT), chat.EOS),
    }


TOKENIZERS = make_tokenizers()


@pytest.fixture(params=TOKENIZERS)
def case(request):
    return TOKENIZERS[request.param]


@pytest.fixture(params=["marks", "prefixes"])
def tokenizer_and_end(case, request):
    """With the template's own ``{% generation %}`` marks, and without, by rendering prefixes."""
    tokenizer, end = case
    template = tokenizer.chat_template
    if request.param == "prefixes":
        tokenizer.chat_template = without_marks(template)
    yield tokenizer, end
    tokenizer.chat_template = template


SYSTEM = {"role": "system", "content": "cats"}
MULTI_TURN = [SYSTEM, *chat.conversation(TEXT[0], TEXT[1], "what do bees do?", "nap", "me", "")]


def assistants(tokenizer, encoded):
    """The masked tokens, turn by turn, as text."""
    turns, inside = [], False
    for token, masked in zip(encoded.input_ids, encoded.loss_mask, strict=True):
        if masked and not inside:
            turns.append([])
        if masked:
            turns[-1].append(token)
        inside = masked
    return [tokenizer.decode(turn) for turn in turns]


def test_chat_templates_render_as_documented():
    messages = [{"role": "system", "content": "be kind"}, *chat.conversation("hi", "hello", "bye")]
    seen = {name: chat.render(tok, messages, add_generation_prompt=True) for name, (tok, _) in TOKENIZERS.items()}
    assert seen == {
        "words": "<system> be kind <user> hi <assistant> hello <eos> <user> bye <assistant>",
        "turns": "<system>be kind<user>hi<assistant>hello<eos><user>bye<assistant>",
        "chatml": "<|im_start|>system\nbe kind<|im_end|>\n<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\nhello"
        "<|im_end|>\n<|im_start|>user\nbye<|im_end|>\n<|im_start|>assistant\n",
        "transcript": "System: be kind\n\nUser: hi\n\nAssistant: hello<eos>\n\nUser: bye\n\nAssistant:",
    }


def test_chat_encode_mask_holds_every_assistant_turn_with_its_end(tokenizer_and_end):
    tokenizer, end = tokenizer_and_end
    encoded = chat.encode(tokenizer, MULTI_TURN)
    said = [text.replace(end, f" {end}").split() for text in assistants(tokenizer, encoded)]
    assert said == [[*TEXT[1].split(), end], ["nap", end], [end]]


def learned(name, tokenizer, messages, context=0):
    """What ``--train-on NAME`` learns of a conversation."""
    records = Records("made", "made", (Conversation(messages, context),))
    [encoded] = conversations(tokenizer, records, TRAIN_ON[name])
    return encoded


def test_train_on_last_learns_last_reply_with_its_end(tokenizer_and_end):
    tokenizer, end = tokenizer_and_end
    said = lambda encoded: [text.replace(end, f" {end}").split() for text in assistants(tokenizer, encoded)]
    assert said(learned("last", tokenizer, MULTI_TURN)) == [[end]]  # it is empty there
    assert said(learned("last", tokenizer, MULTI_TURN[:5])) == [["nap", end]]
    assert said(learned("assistant", tokenizer, MULTI_TURN[:5])) == [[*TEXT[1].split(), end], ["nap", end]]
    assert said(learned("assistant", tokenizer, MULTI_TURN[:5], context=3)) == [["nap", end]]  # the data's own context


def test_train_on_all_learns_every_token(tokenizer_and_end):
    tokenizer, _ = tokenizer_and_end
    encoded = learned("all", tokenizer, MULTI_TURN)
    assert encoded.input_ids == chat.encode(tokenizer, MULTI_TURN).input_ids
    assert all(encoded.loss_mask)


def test_train_on_learns_end_of_turn_of_assistant_only():
    """ChatML closes every speaker's turn by the same token, and writes a line break behind it that nobody says."""
    tokenizer, end = TOKENIZERS["chatml"]
    closing = tokenizer.convert_tokens_to_ids(end)
    roles = [message["role"] for message in MULTI_TURN]
    for name, speakers in {"assistant": ["assistant"], "last": [], "all": list(chat.ROLES)}.items():
        encoded = learned(name, tokenizer, MULTI_TURN)
        at = [i for i, token in enumerate(encoded.input_ids) if token == closing]
        expected = [role in speakers for role in roles]
        expected[-1] = True
        assert [encoded.loss_mask[i] for i in at] == expected
        assert [encoded.loss_mask[i + 1] for i in at] == [name == "all"] * len(roles)


def test_train_on_all_accepts_template_that_rewrites_turns():
    tokenizer = train_tokenizer(TEXT, 300, chat_template=without_marks(chat.TURNS))
    tokenizer.chat_template = tokenizer.chat_template.replace(
        "message['content']", "message['content'] ~ messages | length"
    )
    with raises(UserError, argument="chat_template", problem="rewrites"):
        learned("assistant", tokenizer, MULTI_TURN)
    assert tokenizer.decode(learned("all", tokenizer, MULTI_TURN).input_ids).startswith("<system>cats7<user>")


def test_chat_encode_equals_apply_chat_template(case):
    """The same ids and mask as ``apply_chat_template`` makes from the ``{% generation %}`` marks."""
    tokenizer, _ = case
    peer = tokenizer.apply_chat_template(MULTI_TURN, return_dict=True, return_assistant_tokens_mask=True)
    ours = chat.encode(tokenizer, MULTI_TURN)
    assert ours.input_ids == list(peer["input_ids"])
    assert ours.loss_mask == [bool(x) for x in peer["assistant_masks"]]


def test_encode_prompt_is_prefix_of_chat_encode(tokenizer_and_end):
    tokenizer, _ = tokenizer_and_end
    for turn in (2, 4, 6):
        prompt = chat.encode_prompt(tokenizer, MULTI_TURN[:turn])
        whole = chat.encode(tokenizer, MULTI_TURN[: turn + 1], first_turn=turn)
        assert whole.input_ids[: len(prompt)] == prompt
        assert whole.loss_mask.index(True) == len(prompt)
        assert not any(whole.loss_mask[: len(prompt)])


def test_chat_encode_first_turn_leaves_earlier_turns_out(case):
    tokenizer, _ = case
    all_turns, last_two = (chat.encode(tokenizer, MULTI_TURN, first_turn=first) for first in (0, 4))
    assert all_turns.input_ids == last_two.input_ids
    assert assistants(tokenizer, last_two) == assistants(tokenizer, all_turns)[1:]
    assert not any(chat.encode(tokenizer, MULTI_TURN, first_turn=len(MULTI_TURN)).loss_mask)


contents = st.text(alphabet="abc \n:.é🐱<>|", max_size=12)


@settings(max_examples=100, deadline=None)
@given(texts=st.lists(contents, min_size=2, max_size=7))
@pytest.mark.parametrize("name", ["turns", "chatml", "transcript"])
def test_chat_encode_by_marks_and_by_prefixes_agree(name, texts):
    """Any contents: marks and prefixes give the same mask, and the masked tokens decode to what was said."""
    tokenizer, end = TOKENIZERS[name]
    messages = chat.conversation(*texts)
    marked = chat.encode(tokenizer, messages)
    template = tokenizer.chat_template
    try:
        tokenizer.chat_template = without_marks(template)
        assert chat.encode(tokenizer, messages) == marked
    finally:
        tokenizer.chat_template = template
    said = tokenizer.decode([t for t, m in zip(marked.input_ids, marked.loss_mask, strict=True) if m])
    space = " " if name == "transcript" else ""
    assert said == "".join(f"{space}{text}{end}" for text in texts[1::2])


def test_conversation_alternates_roles():
    assert chat.conversation("a", "b", "c") == [
        {"role": "user", "content": "a"},
        {"role": "assistant", "content": "b"},
        {"role": "user", "content": "c"},
    ]


# -- bad input --------------------------------------------------------------------------------------------------------


def test_chat_render_unknown_role_is_error(case):
    with pytest.raises(UserError, match="critic"):
        chat.render(case[0], [{"role": "critic", "content": "42"}])


def test_encode_prompt_without_chat_template_is_error():
    tokenizer = train_tokenizer(TEXT, 300)
    tokenizer.chat_template = None
    with raises(UserError, argument="chat_template", problem="missing"):
        chat.encode_prompt(tokenizer, chat.conversation("hi"))


BROKEN_TEMPLATES = {
    "typo": ("{% for m in messags %}{{ m.content }}{% endfor %}", {"problem": "empty"}),
    "no turn marked": (
        "{% for m in messages %}{% if m.role == 'robot' %}{% generation %}{{ m.content }}{% endgeneration %}{% endif %}"
        "{{ m.content }}{% endfor %}",
        {"value": 0, "expected": 1, "problem": "marks"},
    ),
    "nothing of the assistant": ("hello", {"problem": "silent"}),
    "refusal": ("{{ raise_exception('must alternate') }}", {"problem": "refuses"}),
    "syntax": ("{% for m in messages %}", {"problem": "refuses"}),
    "surrogate": (r"{{ '\ud800' }}", {"value": "UnicodeEncodeError", "problem": "fails"}),
    "no text": ("{{ messages[0].content + 1 }}", {"value": "TypeError", "problem": "fails"}),
    "endless": ("{% macro a() %}{{ a() }}{% endmacro %}{{ a() }}", {"value": "RecursionError", "problem": "fails"}),
}


@pytest.mark.parametrize(("template", "facts"), BROKEN_TEMPLATES.values(), ids=BROKEN_TEMPLATES)
def test_chat_encode_broken_template_is_error(template, facts):
    tokenizer = train_tokenizer(TEXT, 300, chat_template=template)
    with raises(UserError, argument="chat_template", **facts) as caught:
        chat.encode(tokenizer, chat.conversation("hi", "hello"))
    assert "\n" not in str(caught.value)
    assert facts["problem"] != "refuses" or template.startswith("{% for") or "must alternate" in str(caught.value)


def test_chat_encode_template_that_writes_more_in_last_turn_learns_every_turn():
    """As some reasoning models' do, which open a thought in the last turn only."""
    template = (
        "{% for m in messages %}<{{ m.role }}>{{ 'thought ' if loop.last and m.role == 'assistant' }}{{ m.content }}<eos>"
        "{% endfor %}{{ '<assistant>' if add_generation_prompt }}"
    )
    tokenizer = train_tokenizer(TEXT, 300, chat_template=template)
    assert assistants(tokenizer, chat.encode(tokenizer, chat.conversation("a", "b"))) == ["thought b<eos>"]
    spoken = chat.encode(tokenizer, chat.conversation("a", "b", "c", "d"))
    assert assistants(tokenizer, spoken) == ["b<eos>", "thought d<eos>"]


@pytest.mark.parametrize("change", ["[:1]", " | upper", " ~ loop.length"])
def test_chat_encode_template_that_rewrites_turns_is_error(change):
    """Earlier turns are not what they were when they came last: no wrong mask, an error."""
    rewriting = (
        "{% for m in messages %}<{{ m.role }}>"
        f"{{{{ m.content if loop.last else (m.content{change}) }}}}<eos>"
        "{% endfor %}{{ '<assistant>' if add_generation_prompt }}"
    )
    tokenizer = train_tokenizer(TEXT, 300, chat_template=rewriting)
    chat.encode(tokenizer, chat.conversation("a", "bc"))
    with raises(UserError, argument="chat_template", value=2):
        chat.encode(tokenizer, chat.conversation("a", "bc", "c", "d"))


def test_chat_encode_template_without_closing_token_learns_white_space():
    """Then the white space that ends the turn is all there is to learn when to stop."""
    plain = (
        "{% for m in messages %}{{ m.role ~ ': ' ~ m.content ~ '\n' }}{% endfor %}"
        "{{ 'assistant: ' if add_generation_prompt }}"
    )
    tokenizer = train_tokenizer(TEXT, 300, chat_template=plain)
    assert assistants(tokenizer, chat.encode(tokenizer, chat.conversation("a", "b", "c", "d"))) == ["b\n", "d\n"]


def test_conversation_refuses_a_prompt_that_is_messages_already():
    with raises(ArgumentError, argument="contents", expected=str):
        chat.conversation(chat.conversation("how are you"), "well")


@pytest.mark.parametrize("written", ["see a/think/b", "see a/b"])
def test_require_rendered_passes_a_switch_that_is_written_or_read(written):
    chat.rendering.require_rendered(written, chat.conversation("see a/think/b"))
    with raises(UserError, problem="leaves out"):
        chat.rendering.require_rendered(written.replace("see", ""), chat.conversation("see a/think/b"))
