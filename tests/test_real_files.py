"""Files, tokenizers and templates as users of other libraries bring them: the right value of each."""

import importlib.util
import json
import math
import os
import re
from itertools import groupby
from operator import itemgetter
from pathlib import Path

import numpy as np
import pytest
import torch
from facts import raises
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from minirlhf.core.errors import UserError
from minirlhf.data import chat
from minirlhf.data.chat import conversation
from minirlhf.data.examples import conversations
from minirlhf.data.inspection import survey
from minirlhf.data.loaders import Scan, load
from minirlhf.data.records import Conversation, Problem
from minirlhf.data.types import pair
from minirlhf.feedback import graders
from minirlhf.feedback.rewards import reference_reward, score
from minirlhf.models import checkpoints
from minirlhf.models.loading import load_folder
from minirlhf.models.tiny import tiny_model
from minirlhf.models.tokenizers import (
    complete_tokenizer,
    find_unknown_tokens,
    find_unread_arguments,
    load_tokenizer,
    set_template_arguments,
    train_tokenizer,
    word_tokenizer,
)
from minirlhf.recipes import GRPO
from minirlhf.trainers.online import OnlineConfig, train_online
from minirlhf.trainers.reward import RewardConfig, train_reward
from minirlhf_cli import dispatch
from minirlhf_cli.export import write
from minirlhf_cli.files.choices import choose
from minirlhf_cli.files.grading import grading

SPECIAL = ("<|end|>", "<|begin|>", "<sop>", "<|im_start|>", "<|im_end|>", "<think>", "</think>")


def bytes_tokenizer(template=None, before=("<|begin|>",), bos="<|begin|>"):
    """One token per byte, and the special tokens; called plainly it puts ``before`` in front of a text."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    core = Tokenizer(models.BPE({token: i for i, token in enumerate([*SPECIAL, *alphabet])}, []))
    core.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    core.decoder = decoders.ByteLevel()
    if before:
        core.post_processor = processors.TemplateProcessing(
            single=f"{' '.join(before)} $A", special_tokens=[(token, SPECIAL.index(token)) for token in before]
        )
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=core, eos_token="<|end|>", bos_token=bos, extra_special_tokens=list(SPECIAL[2:])
    )
    tokenizer.chat_template = template
    return tokenizer


def save_model(folder, tokenizer, context=256):
    """A random Llama with this tokenizer, as ``save_pretrained`` writes it."""
    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
    config = LlamaConfig(**sizes, vocab_size=len(tokenizer), max_position_embeddings=context, eos_token_id=0)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = LlamaForCausalLM(config)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def write_rows(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


# -- the token at the beginning ---------------------------------------------------------------------------------------

BARE = "{% for m in messages %}{{ m['role'] ~ ':' ~ m['content'] ~ eos_token }}{% endfor %}"
BEGINS = {
    "base": (None, ("<|begin|>",), "<|begin|>"),
    "template lacks it": (BARE, ("<|begin|>",), "<|begin|>"),
    "template writes it": ("{{ bos_token }}" + BARE, ("<|begin|>",), "<|begin|>"),
    "template writes it as text": ("<|begin|>" + BARE, ("<|begin|>",), "<|begin|>"),
    "two tokens": (None, ("<|begin|>", "<sop>"), "<|begin|>"),
    "no bos_token": (None, ("<sop>",), None),
    "never": (None, (), "<|begin|>"),
    "never, in the template": ("{{ bos_token }}" + BARE, (), "<|begin|>"),
}


@pytest.mark.parametrize("name", BEGINS)
def test_encode_begins_as_tokenizer_called_plainly(name, tmp_path):
    template, before, bos = BEGINS[name]
    bytes_tokenizer(template, before, bos).save_pretrained(tmp_path)
    tokenizer = load_tokenizer(tmp_path, complete=True)
    written = tuple("<|begin|>" for _ in [0] if template not in (None, BARE))
    expected = [SPECIAL.index(token) for token in before or written]
    body = "User: what is" if template is None else "user:what is<|end|>"
    text = tokenizer(body, add_special_tokens=False)["input_ids"]
    prompt, whole = conversation("what is"), conversation("what is", "so")
    assert tokenizer(body)["input_ids"] == [*(SPECIAL.index(token) for token in before), *text]
    for ids in (
        chat.encode_prompt(tokenizer, prompt),
        chat.encode(tokenizer, whole).input_ids,
        chat.encode_whole(tokenizer, whole).input_ids,
        tokenizer.apply_chat_template(whole, tokenize=True, return_dict=False),
    ):
        assert ids[: len(expected) + len(text)] == [*expected, *text]
    learned = chat.encode(tokenizer, whole)
    said = " so<|end|>" if template is None else "assistant:so<|end|>"
    assert tokenizer.decode([i for i, m in zip(learned.input_ids, learned.loss_mask, strict=True) if m]) == said
    assert complete_tokenizer(tokenizer) == [], "a second time nothing is added"


def test_train_and_multiple_choice_give_base_model_its_beginning(tmp_path, capsys, monkeypatch):
    folder = save_model(tmp_path / "base", bytes_tokenizer())
    data = write_rows(tmp_path / "d.jsonl", [{"prompt": f"q {i}", "completion": "so"} for i in range(8)])
    assert dispatch(["train", "sft", "--data", str(data), "--model", str(folder), "--out", str(tmp_path / "run"),
                     "--max-steps", "1", "--batch-size", "2"]) == 0  # fmt: skip
    banner = capsys.readouterr().out
    assert "TRANSCRIPT" in banner and "texts begin with <|begin|>" in banner
    saved = load_tokenizer(tmp_path / "run/model")
    whole = saved.apply_chat_template(conversation("q", "a"), tokenize=True, return_dict=False)
    assert whole.count(SPECIAL.index("<|begin|>")) == 1 and whole[0] == SPECIAL.index("<|begin|>")

    model, tokenizer = load_folder(folder, complete_tokenizer=True)
    firsts = []
    forward = LlamaForCausalLM.forward
    monkeypatch.setattr(LlamaForCausalLM, "forward", lambda self, *args, **kwargs: (
        firsts.extend(kwargs["input_ids"][:, 0].tolist()), forward(self, *args, **kwargs))[1])  # fmt: skip
    choose(model, tokenizer, [Problem(conversation("is it"), "yes", choices=("yes", "no"))])
    assert firsts and set(firsts) == {SPECIAL.index("<|begin|>")}


# -- training on every row --------------------------------------------------------------------------------------------

GRADER = "def f(completion):\n    return float(len(completion) % 2)\n"
PAIRS = [{"prompt": f"q {i}", "chosen": "yes it is", "rejected": "no"} for i in range(6)]
#: A trainer, its rows, and further flags.
EVERY_ROW = {
    "sft": ([{"prompt": f"q {i}", "completion": "so"} for i in range(6)], ()),
    "reward": (PAIRS, ()),
    "dpo": (PAIRS, ()),
    "orm": ([{"prompt": f"q {i}", "completion": "so", "label": bool(i % 2)} for i in range(6)], ()),
    "prm": ([{"prompt": f"q {i}", "completions": ["so", "it is"], "labels": [True, False]} for i in range(6)], ()),
    "judge": (PAIRS, ()),
    "grpo": ([{"prompt": f"q {i}"} for i in range(6)], ("--max-completion-length", "4", "--num-generations", "2")),
    "rs": ([{"prompt": f"q {i}"} for i in range(6)], ("--max-completion-length", "4", "--num-generations", "2")),
}


@pytest.mark.parametrize("how", ["held out 0", "one row"])
@pytest.mark.parametrize("trainer", EVERY_ROW)
def test_train_holds_nothing_out(trainer, how, tmp_path, capsys):
    rows, flags = EVERY_ROW[trainer]
    data = write_rows(tmp_path / "d.jsonl", rows)
    grader = tmp_path / "g.py"
    grader.write_text(GRADER, encoding="utf-8")
    graded = ("--grader", f"{grader}:f") if trainer in ("grpo", "rs") else ()
    few = ("--eval-fraction", "0") if how == "held out 0" else ("--limit", "1")
    assert dispatch(["train", trainer, "--data", str(data), "--out", str(tmp_path / "run"), "--max-steps", "1",
                     "--batch-size", "2", "--eval-steps", "1", *few, *flags, *graded]) == 0  # fmt: skip
    result = json.loads((tmp_path / "run/result.json").read_text())
    examples = 2 if trainer == "judge" else 1  # both orders of a pair
    assert (result["train"], result["held_out"]) == (6 * examples if how == "held out 0" else examples, 0)
    assert str(data) in capsys.readouterr().out


# -- what templates write -----------------------------------------------------------------------------------------------

Q, TOOL = {"role": "user", "content": "q"}, {"role": "tool", "name": "look", "content": "sun"}
LOOK = {"type": "function", "function": {"name": "look", "arguments": {"place": "Rome"}}}
DESCRIBED = {"name": "look", "description": "look at a place", "parameters": {"type": "object", "properties": {}}}


def says(content, **more):
    return {"role": "assistant", "content": content, **more}


def learned_texts(tokenizer, messages, first_turn=0):
    """The text of each run of learned tokens."""
    tokens = chat.encode(tokenizer, messages, first_turn=first_turn)
    runs = [list(run) for marked, run in groupby(zip(*vars(tokens).values(), strict=True), itemgetter(1)) if marked]
    return [tokenizer.decode([token for token, _ in run]) for run in runs]


def every_special(template):
    """A tokenizer of bytes that has this template's control tokens."""
    pattern = r"<[|｜][^<>'\"]{1,40}?[|｜]>|</?think>|</?tool_call>"
    special = ["<|end|>", *sorted({*re.findall(pattern, template)} - {"<|end|>"})]
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    core = Tokenizer(models.BPE({token: i for i, token in enumerate([*special, *alphabet])}, []))
    core.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    core.decoder = decoders.ByteLevel()
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=core, eos_token="<|end|>", bos_token="<|end|>", extra_special_tokens=special[1:]
    )
    tokenizer.chat_template = template
    return tokenizer


def published(name):
    """A published template, from the copies that TRL carries; without TRL the test is left out."""
    if importlib.util.find_spec("trl") is None and not os.environ.get("MINIRLHF_CI"):
        pytest.skip("TRL is not installed")
    import trl

    return every_special((Path(trl.__file__).parent / f"chat_templates/{name}.jinja").read_text(encoding="utf-8"))


PLAIN_TALK = [Q, says("it is 2"), Q, says("yes it is")]
THOUGHT = [Q, says("<think>\nhm so\n</think>\n\ntwo")]
EMPTY = "<think>\n\n</think>\n\n"
CALLED = [
    {**Q, "tools": [{"type": "function", "function": DESCRIBED}]},
    says("", tool_calls=[LOOK]),
    TOOL,
    says("sunny"),
]
QWEN_CALL = "<tool_call>\n<function=look>\n<parameter=place>\nRome\n</parameter>\n</function>\n</tool_call>"
#: A published template, a conversation, and what is learned of it: the text after each header, to the closing token.
PUBLISHED = [
    ("qwen3", PLAIN_TALK, ["it is 2<|im_end|>", f"{EMPTY}yes it is<|im_end|>"]),
    ("qwen3", THOUGHT, ["<think>\nhm so\n</think>\n\ntwo<|im_end|>"]),
    ("qwen3", CALLED, ['<tool_call>\n{"name": "look", "arguments": {"place": "Rome"}}\n</tool_call><|im_end|>',
                       f"{EMPTY}sunny<|im_end|>"]),
    ("qwen3_5_think", PLAIN_TALK, ["it is 2<|im_end|>", "\n</think>\n\nyes it is<|im_end|>"]),
    ("qwen3_5_nothink", PLAIN_TALK, ["it is 2<|im_end|>", "yes it is<|im_end|>"]),
    ("qwen3_5_nothink", THOUGHT, ["<think>\nhm so\n</think>\n\ntwo<|im_end|>"]),
    ("qwen3_6", PLAIN_TALK, ["it is 2<|im_end|>", "\n</think>\n\nyes it is<|im_end|>"]),
    ("qwen3_6", CALLED, [f"\n</think>\n\n{QWEN_CALL}<|im_end|>", "\n</think>\n\nsunny<|im_end|>"]),
    ("qwen3_8", THOUGHT, ["hm so\n</think>\n\ntwo<|im_end|>"]),
    ("phi3", PLAIN_TALK, ["it is 2<|end|>", "yes it is<|end|>\n<|end|>"]),
    ("phi3_training", PLAIN_TALK, ["it is 2<|end|>\n", "yes it is<|end|>\n<|end|>"]),
    ("phi3_5_training", PLAIN_TALK, ["it is 2<|end|>\n", "yes it is<|end|>\n<|end|>"]),
    ("gptoss", PLAIN_TALK, ["<|channel|>final<|message|>it is 2<|end|>", "<|channel|>final<|message|>yes it is<|return|>"]),
    ("gptoss", THOUGHT, ["<|channel|>analysis<|message|>hm so<|end|><|start|>assistant<|channel|>final<|message|>two"
                         "<|return|>"]),
    ("gptoss", CALLED, [' to=functions.look<|channel|>commentary json<|message|>{"place": "Rome"}<|call|>',
                        "<|channel|>final<|message|>sunny<|return|>"]),
    ("deepseek_r1_distill", PLAIN_TALK, ["it is 2<｜end▁of▁sentence｜>", "yes it is<｜end▁of▁sentence｜>"]),
    ("deepseekv3", PLAIN_TALK, ["it is 2<｜end▁of▁sentence｜>", "yes it is<｜end▁of▁sentence｜>"]),
    ("nemotron_3_nano", PLAIN_TALK, ["<think></think>it is 2<|im_end|>", "<think></think>yes it is<|im_end|>"]),
    ("nemotron_3_super", PLAIN_TALK, ["<think></think>it is 2<|im_end|>", "<think></think>yes it is<|im_end|>"]),
    ("smolvlm", PLAIN_TALK, [" it is 2<end_of_utterance>", " yes it is<end_of_utterance>"]),
    ("idefics3_training", PLAIN_TALK, [" it is 2<end_of_utterance>\n", " yes it is<end_of_utterance>\n"]),
    ("glm4moe", THOUGHT, ["\n<think>hm so</think>\ntwo"]),
]  # fmt: skip


@pytest.mark.parametrize(
    ("name", "messages", "expected"), PUBLISHED, ids=lambda value: value if isinstance(value, str) else ""
)
def test_encode_learns_turns_of_published_template(name, messages, expected):
    assert learned_texts(published(name), messages) == expected
    if messages is THOUGHT:
        separate = [Q, says("two", reasoning_content="hm so")]
        assert learned_texts(published(name), separate) == expected


#: A published template, a conversation of which it leaves a part out, the message, and the part.
LEFT_OUT = [
    ("deepseekv3_training", THOUGHT, 2, "reasoning_content"),
    ("deepseek_r1_distill", THOUGHT, 2, "reasoning_content"),
    ("llama3", [Q, says("two", reasoning_content="hm so")], 2, "reasoning_content"),
    ("qwen3", [*THOUGHT, *THOUGHT], 2, "reasoning_content"),
    ("lfm2", CALLED, 2, "tool_calls"),
    ("phi3", CALLED, "look", "tools"),
]


@pytest.mark.parametrize(
    ("name", "messages", "value", "part"), LEFT_OUT, ids=lambda value: value if isinstance(value, str) else ""
)
def test_encode_refuses_published_template_that_leaves_a_part_out(name, messages, value, part):
    with raises(UserError, argument="chat_template", value=value, expected=part, problem="leaves out"):
        chat.encode(published(name), messages)
    if name == "qwen3":
        assert learned_texts(published(name), messages, first_turn=3) == ["<think>\nhm so\n</think>\n\ntwo<|im_end|>"]


@pytest.mark.parametrize("role", ["system", "user", "tool"])
def test_encode_refuses_template_that_leaves_out_what_others_say(role):
    talk = [
        {**Q, "role": "system", "content": "be kind"},
        {**Q, "content": "what is it"},
        says("", tool_calls=[LOOK]),
        TOOL,
        says("so"),
    ]
    template = chat.CHATML.replace(
        "message['content'] ~ '<|im_end|>'",
        f"(message['content'] if message['role'] != '{role}' else '') ~ '<|im_end|>'",
    )
    turn = 1 + next(i for i, message in enumerate(talk) if message["role"] == role)
    for encoded, messages in ((chat.encode_prompt, talk[:-1]), (chat.encode, talk), (chat.encode_whole, talk)):
        encoded(every_special(chat.CHATML), messages)
        with raises(UserError, argument="chat_template", value=turn, expected="content", problem="leaves out"):
            encoded(every_special(template), messages)


#: A template that writes the header of a turn before each of them, one that writes it behind each user turn, and one that
#: writes its own system message if there is none.
SEPARATED = "{% for m in messages %}{{ '<|im_start|>' ~ m.role ~ '<sep>' ~ m.content ~ '<|im_end|>' }}{% endfor %}{{ '<|im_start|>assistant<sep>' if add_generation_prompt }}"
BEHIND_USER = "{% for m in messages %}{{ '<|im_start|>' ~ m.role ~ '<sep>' if m.role != 'assistant' }}{{ m.content ~ '<|im_end|>' }}{{ '<|im_start|>assistant<sep>' if m.role == 'user' }}{% endfor %}"
OWN_SYSTEM = "{{ '<|im_start|>system\nbe kind<|im_end|>' if messages[0].role != 'system' }}" + SEPARATED
#: Whether the answer opens with a thought is a switch, and a thought is left out where it is off.
SWITCHED = "{% for m in messages %}{% if m.role == 'assistant' %}{{ '<|Assistant|>' ~ ('<think>' if thinking else '</think>') ~ (m.content if thinking else m.content.split('</think>')[-1]) ~ '<|end|>' }}{% else %}{{ '<|User|>' ~ m.content }}{% endif %}{% endfor %}{{ '<|Assistant|>' ~ ('<think>' if thinking else '</think>') if add_generation_prompt }}"
#: The tools stand before the last user turn, the system message inside of it; calls have ids of nine characters.
BRACKETS = (
    "{% set system = messages[0].content if messages[0].role == 'system' else '' %}{% for m in messages %}{% if m.role == 'user' %}"
    "{{ '[TOOLS]' ~ (tools | tojson) ~ '[/TOOLS]' if tools and FIRST }}{{ '[INST] ' ~ (system ~ '\n\n' if system and loop.last) ~ m.content ~ '[/INST]' }}"
    "{% elif m.role == 'tool' %}{{ '[RESULTS]' ~ m.content ~ '[/RESULTS]' }}{% elif m.tool_calls %}{{ '[CALLS]' }}{% for c in m.tool_calls %}"
    "{{ raise_exception('nine characters') if (c.id or '') | length != 9 }}{{ {'name': c.function.name, 'arguments': c.function.arguments} | tojson }}"
    "{% endfor %}{{ '<|end|>' }}{% elif m.role == 'assistant' %}{{ m.content ~ '<|end|>' }}{% endif %}{% endfor %}"
)
NINE = [{**CALLED[0]}, says("", tool_calls=[{**LOOK, "id": "abcdefghi"}]), TOOL, says("sunny")]
BE = {"role": "system", "content": "be kind"}
#: A template of a family without a published copy here, a conversation, and what is learned of it, or the facts of the error.
FAMILIES = {
    "a separator": (SEPARATED, PLAIN_TALK, ["it is 2<|im_end|>", "yes it is<|im_end|>"]),
    "the header behind the user": (BEHIND_USER, PLAIN_TALK, ["it is 2<|im_end|>", "yes it is<|im_end|>"]),
    "a system message of its own": (OWN_SYSTEM, PLAIN_TALK, ["it is 2<|im_end|>", "yes it is<|im_end|>"]),
    "a system message of the row": (OWN_SYSTEM, [BE, Q, says("a")], ["a<|im_end|>"]),
    "no thought": (SWITCHED, PLAIN_TALK, ["it is 2<|end|>", "yes it is<|end|>"]),
    "a thought left out": (SWITCHED, THOUGHT, {"expected": "reasoning_content", "problem": "leaves out"}),
    "a thought switched on": (SWITCHED, [{**Q, "chat_template_kwargs": {"thinking": True}}, says("hm so</think>two")],
                              ["hm so</think>two<|end|>"]),
    "brackets": (BRACKETS, PLAIN_TALK, ["it is 2<|end|>", "yes it is<|end|>"]),
    "brackets, a system message that goes": (BRACKETS, [BE, Q, says("a")], {"value": 1, "expected": "content", "problem": "leaves out"}),
    "brackets, a call": (BRACKETS.replace("FIRST", "loop.first"), NINE,
                         ['[CALLS]{"name": "look", "arguments": {"place": "Rome"}}<|end|>', "sunny<|end|>"]),
    "brackets, a call without id": (BRACKETS.replace("FIRST", "loop.first"), CALLED, {"problem": "refuses"}),
    "brackets, tools that go": (BRACKETS.replace("FIRST", "loop.last"), NINE, {"value": "look", "problem": "leaves out"}),
}  # fmt: skip


@pytest.mark.parametrize("name", FAMILIES)
def test_encode_learns_or_refuses_turns_of_family(name):
    template, messages, expected = FAMILIES[name]
    if isinstance(expected, list):
        assert learned_texts(every_special(template), messages) == expected
    else:
        with raises(UserError, argument="chat_template", **expected):
            chat.encode(every_special(template), messages)


def test_encode_accepts_switch_that_template_reads():
    switched = chat.CHATML.replace(
        "message['content'] ~ '<|im_end|>'", "message['content'] | replace('/no_think', '') ~ '<|im_end|>'"
    )
    assert chat.encode(every_special(switched), [{"role": "system", "content": "/no_think"}, Q, says("a")]).loss_mask


def test_encode_with_templates_by_name_needs_the_default():
    tokenizer = every_special(chat.CHATML)
    tokenizer.chat_template = {"rag": chat.CHATML, "default": chat.CHATML}
    assert learned_texts(tokenizer, [Q, says("a")]) == ["a<|im_end|>"]
    tokenizer.chat_template = {"rag": chat.CHATML}
    with raises(UserError, argument="chat_template", value=["rag"], problem="missing"):
        chat.encode_prompt(tokenizer, [Q])


@pytest.mark.parametrize("marks", [True, False])
@pytest.mark.parametrize("content", ["''", "m.content[:3]", "m.content | upper", "m.content | replace('7', '8')"])
def test_encode_refuses_template_that_changes_the_reply(content, marks):
    marked = ("{% generation %}", "{% endgeneration %}") if marks else ("", "")
    template = (
        "{% for m in messages %}{{ m.role ~ ':' }}{% if m.role == 'assistant' %}" + marked[0]
        + f"{{{{ {content} ~ '<|end|>' }}}}" + marked[1] + "{% else %}{{ m.content }}{% endif %}{% endfor %}"
        "{{ 'assistant:' if add_generation_prompt }}"
    )  # fmt: skip
    with raises(UserError, argument="chat_template", value=2, expected="content", problem="leaves out"):
        chat.encode(every_special(template), [Q, says("the sum is 7")])


def test_train_reward_refuses_replies_that_the_template_makes_equal():
    same = (
        "{% for m in messages %}{{ m.role ~ ':' }}{% generation %}{{ m.content | trim }}{% endgeneration %}{% endfor %}"
    )
    tokenizer = every_special(same)
    examples = [
        pair(
            chat.encode(tokenizer, [Q, says("so")], first_turn=1),
            chat.encode(tokenizer, [Q, says("so ")], first_turn=1),
        )
    ]
    for fitted in ("bradley_terry", "plackett_luce"):
        with raises(UserError, argument="answers", line=1, problem="duplicate"):
            train_reward(None, examples, RewardConfig(loss=fitted), pad_token_id=0)


# -- thoughts, tools and calls in rows ------------------------------------------------------------------------------------

THINK, CALL = (
    "<think>\nhm so\n</think>\n\n",
    '<tool_call>\n{"name": "look", "arguments": {"place": "Rome"}}\n</tool_call>',
)
WITH_ARGUMENTS_AS_TEXT = {
    "id": "c1",
    "type": "function",
    "function": {"name": "look", "arguments": '{"place": "Rome"}'},
}
#: Rows as other libraries write them, and what a preset's template learns of each.
ROWS = {
    "reasoning_content": ([Q, says("two", reasoning_content="hm so")], [THINK + "two"]),
    "reasoning": ([Q, says("two", reasoning="hm so")], [THINK + "two"]),
    "thinking": ([Q, says("two", thinking="hm so")], [THINK + "two"]),
    "empty thought": ([Q, says("two", reasoning_content="")], ["two"]),
    "thoughts of two turns": (
        [Q, says("two", reasoning_content="hm so"), Q, says("yes")], [THINK + "two", "yes"]
    ),
    "parts": ([{"role": "user", "content": [{"type": "text", "text": "q"}]},
               says([{"type": "text", "text": "two "}, {"type": "text", "text": "of them"}])], ["two of them"]),
    "OpenAI": ([Q, says(None, tool_calls=[WITH_ARGUMENTS_AS_TEXT]), TOOL, says("sunny")], [CALL, "sunny"]),
    "no content": ([Q, {"role": "assistant", "tool_calls": [LOOK]}, TOOL, says("sunny")], [CALL, "sunny"]),
    "content and two calls": ([Q, says("I look", tool_calls=[LOOK, LOOK])], [f"I look\n{CALL}\n{CALL}"]),
    "function_call": ([Q, says(None, function_call=LOOK["function"]), {**TOOL, "role": "function"}, says("sunny")],
                      [CALL, "sunny"]),
    "textbook": ([{**Q, "function_calls": None, "functions": None},
                  says(None, function_calls="look(place='Rome')\nlook(place='Rome')", functions=None),
                  {"role": "environment", "content": "sun"}, says("sunny", function_calls=None)],
                 [f"{CALL}\n{CALL}", "sunny"]),
    "calls in another language": ([Q, says(None, function_calls="look at Rome")], ["look at Rome"]),
}  # fmt: skip


@pytest.mark.parametrize("name", ROWS)
def test_load_messages_learns_thoughts_and_calls(name):
    messages, expected = ROWS[name]
    tokenizer = train_tokenizer(["what is it"], 300)
    for row in (
        {"messages": messages},
        {"prompt": messages[:1], "completion": messages[1:]},
        {"conversations": messages},
    ):
        records = load([row])
        [tokens] = conversations(tokenizer, records)
        text = tokenizer.decode([i for i, m in zip(tokens.input_ids, tokens.loss_mask, strict=True) if m])
        assert text == "".join(part + chat.EOS for part in expected)
        assert not records.ignored or name == "textbook"


def test_load_sharegpt_learns_function_calls():
    call = json.dumps(LOOK["function"])
    turns = [("human", "q"), ("function_call", call), ("observation", "sun"), ("gpt", "sunny")]
    row = {"conversations": [{"from": who, "value": text} for who, text in turns], "tools": json.dumps([DESCRIBED])}
    [tokens] = conversations(tokenizer := train_tokenizer(["what is it"], 300), load([row]))
    assert tokenizer.decode(tokens.input_ids) == (
        f"<system>Tools:\n{json.dumps({'type': 'function', 'function': DESCRIBED})}"
        f"<user>q<assistant>{CALL}<eos><tool>sun<assistant>sunny<eos>"
    )
    records = load([{**row, "tools": "[]"}])
    assert records.conversations()[0].messages[1]["tool_calls"] == [LOOK]


@pytest.mark.parametrize("template", [chat.TURNS, chat.CHATML, chat.TRANSCRIPT], ids=["turns", "chatml", "transcript"])
def test_template_of_ours_writes_thoughts_tools_and_calls(template):
    tokenizer = every_special(template)
    messages = [{**CALLED[0]}, says("", tool_calls=[LOOK], reasoning_content="hm so"), TOOL, says("sunny")]
    text = chat.render(tokenizer, messages)
    assert json.dumps({"type": "function", "function": DESCRIBED}) in text and "sun" in text
    marked = learned_texts(tokenizer, messages)
    tokenizer.chat_template = re.sub(r"\{% (end)?generation %\}", "", template)
    assert learned_texts(tokenizer, messages) == marked
    end = "<|im_end|>" if template == chat.CHATML else "<|end|>"
    assert [part.removesuffix(end).strip() for part in marked] == [THINK + CALL, "sunny"]


def test_load_preference_rows_that_differ_in_thought_or_call_only():
    row = {"prompt": [Q], "chosen": [says("two", reasoning_content="hm so")], "rejected": [says("two")]}
    [found] = load([row, {**row, "chosen": [says(None, tool_calls=[LOOK])], "rejected": [says("look")]}]).comparisons()[
        :1
    ]
    assert found.chosen[0]["reasoning_content"] == "hm so"


PARTS = {
    "Responses API": ([{"type": "output_text", "text": "so"}], says("so")),
    "a thought": ([{"type": "thinking", "thinking": "hm"}, {"type": "text", "text": "so"}], says("so", reasoning_content="hm")),
    "a thought beside text": ([{"type": "thinking", "text": "hm"}, "so"], says("so", reasoning_content="hm")),
}  # fmt: skip


@pytest.mark.parametrize("name", PARTS)
def test_load_content_in_parts(name):
    content, expected = PARTS[name]
    [found] = load([{"messages": [Q, says(content)]}]).conversations()
    assert found.messages == [Q, expected]


@pytest.mark.parametrize("output", [{"degrees": 4}, [{"town": "Rome"}]])
def test_load_tool_output_that_is_data_is_written_as_json(output):
    tool = {"role": "tool", "content": output}
    [found] = load([{"messages": [Q, says(None, tool_calls=[{"name": "look"}]), tool, says("so")]}]).conversations()
    assert json.loads(found.messages[2]["content"]) == output


BE_KIND = {"role": "system", "content": "be kind"}
#: A row as another library writes it, and the same with messages.
SAME_ROWS = {
    "Alpaca with history": ({"instruction": "q", "input": "", "output": "c", "system": "be kind", "history": [["a", "b"]]},
                            {"messages": [BE_KIND, *conversation("a", "b", "q", "c")]}),
    "system beside a pair": ({"system": "be kind", "prompt": "q", "chosen": "a", "rejected": "b"},
                             {"prompt": [BE_KIND, Q], "chosen": [says("a")], "rejected": [says("b")]}),
    "system beside messages": ({"system": "be rude", "messages": [BE_KIND, Q, says("a")]}, {"messages": [BE_KIND, Q, says("a")]}),
    "LLaMA-Factory's pair": ({"conversations": [{"from": "human", "value": "q"}], "chosen": {"from": "gpt", "value": "a"},
                              "rejected": {"from": "gpt", "value": "b"}}, {"prompt": [Q], "chosen": says("a"), "rejected": says("b")}),
    "LLaMA-Factory's label": ({"messages": [Q, says("a")], "label": False}, {"prompt": [Q], "completion": says("a"), "label": False}),
    "label of ShareGPT": ({"conversations": [{"from": "human", "value": "q"}, {"from": "gpt", "value": "a"}], "label": True},
                          {"prompt": [Q], "completion": says("a"), "label": True}),
    "fields missing in pandas": ({"instruction": "q", "input": math.nan, "output": "a", "system": math.nan, "tools": math.nan},
                                 {"prompt": [Q], "completion": "a"}),
    "the same thought in two places": ({"messages": [Q, says("<think>hm</think> a", reasoning_content="hm")]},
                                       {"messages": [Q, says("a", reasoning_content="hm")]}),
    "tools as texts in a list": ({"messages": [Q, says("a")], "tools": [json.dumps(DESCRIBED)]},
                                 {"messages": [Q, says("a")], "tools": [DESCRIBED]}),
    "label of another kind": ({"messages": [Q, says("a")], "label": "maths"}, {"messages": [Q, says("a")]}),
    "messages as JSON": ({"messages": json.dumps([Q, says("a")])}, {"messages": [Q, says("a")]}),
    "messages as Python prints them": ({"prompt": str([BE_KIND, Q]), "completion": str([says("it's")])},
                                       {"prompt": [BE_KIND, Q], "completion": [says("it's")]}),
    "a text in brackets": ({"prompt": '[{"a": 1}]', "completion": "b"}, {"prompt": [{**Q, "content": '[{"a": 1}]'}], "completion": "b"}),
    "transcripts of Windows": ({"chosen": "\r\n\r\nHuman: q\r\n\r\nAssistant: a", "rejected": "\r\n\r\nHuman: q\r\n\r\nAssistant: b"},
                               {"prompt": [Q], "chosen": [says("a")], "rejected": [says("b")]}),
    "prompt ends with a tool": ({"prompt": [Q, says(None, tool_calls=[LOOK]), TOOL], "completion": "a"},
                                {"messages": [Q, says("", tool_calls=[LOOK], weight=0), TOOL, says("a")]}),
    "weight 0 in front": ({"messages": [Q, says("a", weight=0), Q, says("b", weight=1)]},
                          {"prompt": conversation("q", "a", "q"), "completion": "b"}),
    "weight 0 at the end": ({"messages": [Q, says("a"), Q, says("b", weight=0)]}, {"messages": [Q, says("a")]}),
    "loss false": ({"conversations": [{"from": "human", "value": "q", "loss": None}, {"from": "gpt", "value": "a", "loss": False},
                                      {"from": "human", "value": "q"}, {"from": "gpt", "value": "b", "loss": True}]},
                   {"prompt": conversation("q", "a", "q"), "completion": "b"}),
}  # fmt: skip


@pytest.mark.parametrize("name", SAME_ROWS)
def test_load_reads_other_layout_as_the_same_record(name):
    found, expected = (load([row]).examples[0] for row in SAME_ROWS[name])
    if isinstance(found, Conversation):
        tokenizer = every_special(chat.CHATML)
        texts = [
            (chat.render(tokenizer, e.messages), learned_texts(tokenizer, e.messages, e.context))
            for e in (found, expected)
        ]
        assert texts[0] == texts[1]
    else:
        assert found == expected
    assert not load([SAME_ROWS[name][0]]).ignored


def test_load_rows_of_pandas_in_memory():
    messages = np.array([Q, says("a")], dtype=object)
    assert load([{"messages": messages}]).examples == load([{"messages": [Q, says("a")]}]).examples
    row = {"prompt": "q", "completion": "a", "label": np.bool_(True)}
    assert load([row]).judgements()[0].desirable
    assert load([{"prompt": "q", "answer": np.int64(4)}]).problems()[0].answers == ("4",)


def test_load_weights_that_cannot_be_followed_are_refused():
    silent, learned = says("a", weight=0), says("b")
    with raises(UserError, argument="messages[3]", problem="weight"):
        load([{"messages": [Q, learned, Q, silent, Q, learned]}])
    with raises(UserError, argument="messages[1].weight", value=0.5):
        load([{"messages": [Q, says("a", weight=0.5)]}])
    with raises(UserError, argument="messages", problem="weight"):
        load([{"messages": [Q, silent]}])


def test_load_completions_that_are_one_message():
    [found] = load([{"prompt": "q", "chosen": says("a"), "rejected": says("b")}]).comparisons()
    assert (found.prompt, found.chosen, found.rejected) == ([Q], [says("a")], [says("b")])


#: A row, and (argument, value, expected) of the error about it.
BROKEN = {
    "a thought of the user": ([{"role": "user", "content": [{"type": "thinking", "thinking": "x"}]}, says("so")],
                              ("messages[0].content[0]", "thinking", "text")),
    "a picture": ([Q, says([{"type": "image", "url": "x"}])], ("messages[1].content[0]", "image", "text")),
    "a call without a name": ([Q, says(None, tool_calls=[{"arguments": {}}])],
                              ("messages[1].tool_calls[0]", {"arguments": {}}, ["name", "arguments"])),
    "arguments that are no JSON": ([Q, says(None, tool_calls=[{"name": "f", "arguments": "{"}])],
                                   ("messages[1].tool_calls[0].arguments", "{", "json")),
    "a thought that is no text": ([Q, says("so", reasoning_content=3)], ("messages[1].reasoning_content", 3, "text")),
    "neither content nor calls": ([Q, says(None)], ("messages[1].content", None, "text")),
}  # fmt: skip


@pytest.mark.parametrize(("messages", "facts"), BROKEN.values(), ids=BROKEN)
def test_load_broken_message_names_part(messages, facts):
    with raises(UserError, **dict(zip(("argument", "value", "expected"), facts, strict=True))):
        load([{"messages": messages}])


def test_chat_template_kwargs_of_row_and_of_run(tmp_path):
    tokenizer = published("qwen3")
    thinking, fast = chat.encode_prompt(tokenizer, [Q]), {"enable_thinking": False}
    [problem] = load([{"prompt": "q", "chat_template_kwargs": fast}]).problems()
    of_row = chat.encode_prompt(tokenizer, problem.prompt)
    assert tokenizer.decode(of_row) == tokenizer.decode(thinking) + EMPTY
    set_template_arguments(tokenizer, json.dumps(fast))
    assert chat.encode_prompt(tokenizer, [Q]) == of_row
    slow = {**Q, "chat_template_kwargs": {"enable_thinking": True}}
    assert chat.encode_prompt(tokenizer, [slow]) == thinking, "the row has precedence"
    several = {**Q, "chat_template_kwargs": {"enable_thoughts": True, **fast}}
    assert chat.encode_prompt(tokenizer, [several]) == of_row, "as in transformers, the template takes what it reads"
    assert find_unread_arguments(tokenizer, [[several], [slow], [several]]) == {"enable_thoughts": 2}
    for arguments, facts in (("{", {"expected": "object"}), ('{"enable_thoughts": 1}', {"problem": "unknown"})):
        with raises(UserError, argument="chat_template_kwargs", **facts):
            set_template_arguments(tokenizer, arguments)


@pytest.mark.parametrize("kwargs", [{"enable_thinking": False}, {}])
def test_train_evaluate_and_inspect_tell_arguments_that_no_template_reads(kwargs, tmp_path, capsys):
    rows = [{"prompt": f"q {i}", "completion": "so", "answer": "so", "chat_template_kwargs": kwargs} for i in range(4)]
    data, run = str(write_rows(tmp_path / "d.jsonl", rows)), str(tmp_path / "run")
    answered = ["--grader", "exact", "--max-completion-length", "4"]
    for command in (["train", "sft", "--data", data, "--out", run, "--max-steps", "1"],
                    ["evaluate", run, "--data", data, *answered], ["data", "inspect", data]):  # fmt: skip
        assert dispatch(command) == 0
        assert ("enable_thinking" in capsys.readouterr().out) == bool(kwargs)


# -- transcripts and texts beside a prompt column ---------------------------------------------------------------------------

HUMAN, BOT = "\n\nHuman: a\n\nAssistant:", "\n\nHuman: a\n\nAssistant: b\n\nHuman: c\n\nAssistant:"
#: A prompt and a completion as texts, the roles and contents of the prompt, and those of the completion.
TRANSCRIPTS = {
    "prompt ends in Assistant": (HUMAN, " so", "user:a", "assistant:so"),
    "several turns": (BOT, "so\n", "user:a assistant:b user:c", "assistant:so"),
    "completion repeats the transcript": (BOT, f"{BOT} so", "user:a assistant:b user:c", "assistant:so"),
    "completion of several turns": (HUMAN, " so\n\nHuman: d\n\nAssistant: e", "user:a", "assistant:so user:d assistant:e"),
    "prompt without Assistant": ("\n\nHuman: a", "\n\nAssistant: so", "user:a", "assistant:so"),
    "prompt without Assistant, plain completion": ("\n\nHuman: a", "so", "user:a", "assistant:so"),
    "no blank lines at the beginning": ("Human: a\n\nAssistant:", " so", "user:a", "assistant:so"),
    "single line breaks": ("Human: a\nAssistant: b\nHuman: c\nAssistant:", " so", "user:a assistant:b user:c", "assistant:so"),
    "system message in front": (f"Be kind.{HUMAN}", " so", "system:Be_kind. user:a", "assistant:so"),
    "plain prompt, transcript as completion": ("a", "\n\nHuman: a\n\nAssistant: so", "user:a", "assistant:so"),
    "a colon alone is no transcript": ("What does Human: mean", "so", "user:What_does_Human:_mean", "assistant:so"),
    "a quoted transcript": ("Explain:\n\nHuman: a", "so", "user:Explain:__Human:_a", "assistant:so"),
}  # fmt: skip


def told(messages):
    return " ".join(f"{m['role']}:{m['content'].replace(' ', '_').replace(chr(10), '_')}" for m in messages)


@pytest.mark.parametrize("name", TRANSCRIPTS)
def test_load_transcripts_beside_a_prompt_are_turns(name):
    prompt, completion, asked, answered = TRANSCRIPTS[name]
    # "no" is a completion that differs, in the same form.
    [p] = load([{"prompt": prompt, "chosen": completion, "rejected": completion.replace("so", "no")}]).comparisons()
    assert (told(p.prompt), told(p.chosen), told(p.rejected)) == (asked, answered, answered.replace("so", "no"))
    [c] = load([{"prompt": prompt, "completion": completion}]).conversations()
    assert told(c.messages) == f"{asked} {answered}"
    [j] = load([{"prompt": prompt, "completion": completion, "label": True}]).judgements()
    assert (told(j.prompt), told(j.completion)) == (asked, answered)
    [problem] = load([{"prompt": prompt, "answer": "so"}]).problems()
    assert told(problem.prompt) == asked


def test_load_prompt_that_ends_in_a_reply_is_dropped():
    with raises(UserError, argument="prompt", problem="last turn"):
        load([{"prompt": f"{HUMAN} b", "chosen": "c", "rejected": "d"}])


REPEATED = [
    {"prompt": f"what is {i}", "chosen": f"what is {i} a yes", "rejected": f"what is {i}\nno"} for i in range(3)
]
OTHER = {"prompt": "what is 9", "chosen": "yes", "rejected": "what is 9? no"}
#: Rows, and the completions of each: the prompt is removed if all rows repeat it.
REPEATS = {
    "all": (REPEATED, ["a yes", "no"]),
    "one row": (REPEATED[:1], ["a yes", "no"]),
    "not all": ([*REPEATED[:2], OTHER], ["what is 0 a yes", "what is 0\nno"]),
    "a greeting": ([{"prompt": "Hello", "chosen": "Hello there", "rejected": "Hello, what?"}], ["Hello there", "Hello, what?"]),
    "a longer number": ([{"prompt": "what is 1", "chosen": "what is 12 a", "rejected": "what is 1 b"}],
                        ["what is 12 a", "what is 1 b"]),
}  # fmt: skip


@pytest.mark.parametrize("name", REPEATS)
def test_load_texts_that_repeat_the_prompt(name):
    rows, expected = REPEATS[name]
    records = load(rows)
    first = records.comparisons()[0]
    assert [m["content"].strip() for m in (*first.chosen, *first.rejected)] == expected
    assert records.repeated == (name in ("all", "one row")) == ("repeat" in str(records))
    for label in ({"label": True}, {}):
        alone = [
            {"prompt": r["prompt"], "completion": r[field], **label} for r in rows for field in ("chosen", "rejected")
        ]
        assert load(alone).conversations()[0].messages[-1]["content"].strip() == expected[0]
    ranking = load([{"prompt": r["prompt"], "responses": [r["chosen"], r["rejected"]]} for r in rows]).rankings()[0]
    assert [reply[0]["content"].strip() for reply in ranking.strict()] == expected


def test_scan_reports_broken_line_after_the_rows_before_it(tmp_path):
    file = tmp_path / "d.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in REPEATED) + "{", encoding="utf-8")
    found = survey(Scan(file))
    assert len(found.rows) == 3 and found.broken


# -- problems with a right answer -------------------------------------------------------------------------------------------

ASKED = [{"role": "user", "content": "q"}]
#: A row, its format, and the right answers, the solution to imitate.
PROBLEMS = {
    "open-instruct": ({"messages": ASKED, "ground_truth": "0", "dataset": "math"}, "rlvr", ("0",), None),
    "open-instruct with a reply": ({"messages": [*ASKED, says("It is 5.")], "ground_truth": "0"}, "rlvr", ("0",), "It is 5."),
    "open-instruct, list": ({"messages": ASKED, "ground_truth": ["0", "zero"]}, "rlvr", ("0", "zero"), None),
    "verl": ({"data_source": "openai/gsm8k", "prompt": ASKED, "ability": "math", "extra_info": {"index": 3},
              "reward_model": {"style": "rule", "ground_truth": "72"}}, "verl", ("72",), None),
    "verl, targets": ({"prompt": ASKED, "reward_model": {"ground_truth": {"target": ["a", "b"]}}}, "verl", ("a", "b"), None),
    "verl, text": ({"prompt": ASKED, "reward_model": '{"ground_truth": 7}'}, "verl", ("7",), None),
    "OpenR1": ({"problem": "p", "solution": "so \\boxed{4}", "answer": "4", "messages": [*ASKED, says("long \\boxed{4}")],
                "uuid": "x"}, "worked", ("4",), "long \\boxed{4}"),
    "OpenR1, messages of null": ({"problem": "q", "solution": "so 4", "answer": 4, "messages": None}, "worked", ("4",), "so 4"),
    "MATH": ({"problem": "q", "solution": "so \\boxed{4}"}, "worked-solution", ("so \\boxed{4}",), "so \\boxed{4}"),
    "answer only": ({"problem": "q", "answer": "4"}, "worked", ("4",), None),
    "several answers": ({"prompt": "q", "answer": [4, "four", "four"]}, "problem", ("4", "four"), None),
    "no answer": ({"prompt": "q", "answer": []}, "problem", ("",), None),
    "TRL's solution": ({"prompt": ASKED, "solution": "$4$"}, "problem", ("$4$",), "$4$"),
    "answer and solution": ({"prompt": "q", "answer": "4", "solution": "2 + 2 = 4"}, "problem", ("4",), "2 + 2 = 4"),
    "Skywork": ({"prompt": ASKED, "reward_model": {"ground_truth": '["34"]'}}, "verl", ("34",), None),
    "verl, an interval": ({"prompt": ASKED, "reward_model": {"ground_truth": "[0, 1]"}}, "verl", ("[0, 1]",), None),
    "a number of pandas": ({"prompt": "q", "answer": 72.0}, "problem", ("72",), None),
    "one message as prompt": ({"prompt": ASKED[0], "answer": "4"}, "problem", ("4",), None),
    "beside a completion": ({"prompt": "q", "completion": "so 4", "answer": "4"}, "prompt-completion", ("4",), "so 4"),
    "beside messages": ({"messages": [*ASKED, says("so 4")], "answer": 4}, "messages", ("4",), "so 4"),
    "beside ShareGPT": ({"conversations": [{"from": "human", "value": "q"}, {"from": "gpt", "value": "so 4"}],
                         "ground_truth": "4"}, "sharegpt", ("4",), "so 4"),
    "beside Alpaca": ({"instruction": "q", "output": "so B", "answer": "B"}, "alpaca", ("B",), "so B"),
    "beside a prompt in messages": ({"messages": ASKED, "answer": "4"}, "messages", ("4",), None),
    "beside a pair": ({"prompt": "q", "chosen": "so 4", "rejected": "5", "answer": "4"}, "preference", ("4",), None),
    "a solution that is no text": ({"prompt": "q", "answer": "4", "solution": ["4"]}, "problem", ("4",), None),
}  # fmt: skip


@pytest.mark.parametrize("name", PROBLEMS)
def test_load_problem_with_right_answers(name):
    row, form, answers, solution = PROBLEMS[name]
    records = load([row])
    [problem] = records.problems()
    assert (records.format, problem.answers, problem.solution) == (form, answers, solution)
    assert problem.prompt == ASKED and problem.columns == row and not {"answer", "ground_truth"} & {*records.ignored}
    if solution is not None:
        assert records.conversations()[0].messages == [*ASKED, says(solution)]


NULLS = {
    "an answer": ([{"messages": [*ASKED, says("5")], "ground_truth": None}, {"messages": ASKED, "ground_truth": "4"}],
                  [("",), ("4",)]),
    "a number of pandas": ([{"prompt": "q", "answer": math.nan}, {"prompt": "q", "answer": 4.0}], [("",), ("4",)]),
    "an answer that is not there": ([{"messages": ASKED}, {"messages": ASKED, "ground_truth": "4"}], [("",), ("4",)]),
    "an answer with a solution": ([{"problem": "q", "solution": "so 4", "answer": "4"},
                                   {"problem": "q", "solution": "so 5", "answer": None}], [("4",), ("so 5",)]),
}  # fmt: skip


@pytest.mark.parametrize("name", NULLS)
def test_load_answer_that_is_null_in_some_rows(name):
    rows, answers = NULLS[name]
    for order in (1, -1):
        assert [problem.answers for problem in load(rows[::order]).problems()] == answers[::order]


def test_load_detects_format_from_the_first_rows_together():
    with raises(UserError, argument="completion", line=1, problem="missing"):
        load([{"prompt": "q", "completion": None}, {"prompt": "q", "completion": "a"}])


def test_reward_of_several_right_answers_is_of_the_best():
    [problem] = load([{"prompt": "q", "answer": ["0", "7"]}]).problems()
    reward = reference_reward(graders.get("numeric"))
    assert reward([problem] * 4, ["so 0", "so 7", "so 5", "no"]) == [1.0, 1.0, 0.0, 0.0]
    words = load([{"prompt": "q", "answer": answers} for answers in (["zero", "0"], ["0", "zero"], ["zero", "nil"])])
    first, second, third = (reward([problem], ["so 0"])[0] for problem in words.problems())
    assert first == second == 1.0 and math.isnan(third)  # a word is no number to compare with


def test_score_failure_names_the_reference_that_cannot_be_compared():
    problems = load([{"prompt": "q", "answer": "none"}]).problems()
    assert "'none'" in str(score(reference_reward(graders.get("numeric")), problems, ["7"]).failure)


def test_reward_without_a_reference_names_the_fields_of_the_row():
    problems = load([{"prompt": "q", "target": "4"}]).problems()
    with raises(UserError, argument="reference", problem="missing") as refused:
        reference_reward(graders.get("numeric"))(problems, ["4"])
    assert "target" in str(refused.value)


def test_grader_of_each_row_is_named_by_its_field():
    rows = [("gsm8k", "the answer is 72"), (["math"], "so \\boxed{72}"), ("exact", "72"), ("numeric", "73")]
    problems = load([{"messages": ASKED, "ground_truth": "72", "dataset": name} for name, _ in rows]).problems()
    reward, identity = grading("field:dataset", None, seconds=1, device=torch.device("cpu"))
    assert list(reward(problems, [text for _, text in rows])) == [1.0, 1.0, 1.0, 0.0] and "dataset" in identity
    [strict] = load([{"prompt": "q", "data_source": "openai/gsm8k", "reward_model": {"ground_truth": "72"}}]).problems()
    by_source, _ = grading("field:data_source", None, seconds=1, device=torch.device("cpu"))
    assert list(by_source([strict] * 2, ["the answer is 72", "#### 72"])) == [0.0, 1.0]
    for value, facts in (
        (["math", "code"], {"argument": "dataset"}),
        (None, {"argument": "dataset"}),
        ("cod", {"value": "cod"}),
    ):
        [problem] = load([{"messages": ASKED, "ground_truth": "72", "dataset": value}]).problems()
        with raises(UserError, **facts):
            reward([problem], ["72"])


def test_load_named_fields():
    row = {"id": 1, "query": "q", "prompt": "old", "out": {"right": "4"}}
    [problem] = load([row], fields={"prompt": "query", "answer": "out.right"}).problems()
    assert (problem.prompt, problem.reference) == (ASKED, "4")
    [pair_] = load(
        [{"q": "q", "good": "a", "bad": "b"}], fields={"prompt": "q", "chosen": "good", "rejected": "bad"}
    ).comparisons()
    assert (pair_.chosen, pair_.rejected) == ([says("a")], [says("b")])
    with raises(UserError, argument="prompt_field", value="qeury", problem="missing"):
        load([row], fields={"prompt": "qeury"})


def test_train_and_evaluate_read_verl_rows_by_field(tmp_path, capsys):
    row = {"question": [*ASKED], "reward_model": {"ground_truth": "7"}, "data_source": "numeric"}
    data = write_rows(tmp_path / "d.jsonl", [row] * 3)
    flags = [
        "--data",
        str(data),
        "--prompt-field",
        "question",
        "--grader",
        "field:data_source",
        "--max-completion-length",
        "4",
    ]
    assert dispatch(["train", "grpo", *flags, "--out", str(tmp_path / "run"), "--max-steps", "1", "--batch-size", "2",
                     "--num-generations", "2"]) == 0  # fmt: skip
    assert dispatch(["evaluate", str(tmp_path / "run"), *flags]) == 0
    assert "3 rows in format verl" in capsys.readouterr().out


# -- words that the model does not know --------------------------------------------------------------------------------------

KNOWN = word_tokenizer(["what", "is", "one", "two", "so"])


def test_find_unknown_tokens_counts_prompts_and_completions():
    talk = [{"role": "system", "content": "is"}, *conversation("what is seven", "so nine ten", "what is", "so")]
    found = find_unknown_tokens(KNOWN, [talk], "m")
    assert found.shares == {"prompts": 1 / 6, "completions": 2 / 4}
    assert found.words == ("seven", "nine", "ten") and "16.7%" in str(found)
    assert find_unknown_tokens(KNOWN, [conversation("what is", "one")], "m") is None
    assert find_unknown_tokens(train_tokenizer(["a b"], 300), [conversation("what is", "one")], "m") is None
    for prompt, answer in (("ten nine what", "so"), ("what", "ten nine so")):
        with raises(UserError, argument="model", problem="unknown tokens", expected=0.5) as caught:
            find_unknown_tokens(KNOWN, [conversation(prompt, answer)], "m")
        assert max(caught.value.facts["value"].values()) == pytest.approx(2 / 3)


def test_train_evaluate_and_doctor_tell_unknown_words(tmp_path, capsys):
    model = tmp_path / "model"
    checkpoints.save(model, tiny_model("nano", KNOWN, seed=0), KNOWN)
    grader = tmp_path / "g.py"
    grader.write_text("def f(completion):\n    return 0.0\n", encoding="utf-8")
    flags = ["--grader", f"{grader}:f", "--max-completion-length", "4"]
    learn = ["--model", str(model), "--max-steps", "2", "--batch-size", "2", "--num-generations", "2"]
    few = write_rows(
        tmp_path / "few.jsonl", [{"prompt": f"what is one {word}"} for word in ("two", "six", "ten", "one")]
    )
    assert (
        dispatch(
            [
                "train",
                "grpo",
                "--data",
                str(few),
                *flags,
                *learn,
                "--eval-fraction",
                "0",
                "--out",
                str(tmp_path / "run"),
            ]
        )
        == 0
    )
    assert "12.5% of the prompts" in capsys.readouterr().out
    rows = [json.loads(line) for line in (tmp_path / "run/metrics.jsonl").read_text().splitlines()]
    assert all(0 < row["frac_unknown"] < 0.125 + 0.5 for row in rows)
    assert dispatch(["doctor", str(tmp_path / "run")]) == 1
    assert "reward_std is 0 in all 2 rows" in capsys.readouterr().out
    assert dispatch(["evaluate", str(model), "--data", str(few), *flags]) == 0
    assert "12.5% of the prompts" in capsys.readouterr().out

    foreign = write_rows(tmp_path / "foreign.jsonl", [{"prompt": f"roll a die {i}"} for i in range(4)])
    for command in (["train", "grpo", *learn, "--out", str(tmp_path / "no")], ["evaluate", str(model)]):
        with raises(UserError, argument="model", value={"prompts": 1.0}, problem="unknown tokens"):
            dispatch([*command, "--data", str(foreign), *flags])
    assert not (tmp_path / "no").exists()


def test_train_online_logs_no_unknown_share_where_all_words_are_known():
    problems, reward = [Problem(conversation("what is"))], lambda problems, completions: [1.0] * len(completions)
    config = OnlineConfig(max_steps=1, batch_size=1, num_generations=2, max_completion_length=3)
    history = train_online(tiny_model("nano", KNOWN), problems, reward, GRPO, config, tokenizer=KNOWN, quiet=True)
    assert "frac_unknown" not in history.rows[0]


def test_train_on_all_refuses_template_that_leaves_the_reply_out():
    only_users = "{% for m in messages %}{{ m.role ~ ':' ~ (m.content if m.role == 'user' else '') }}{% endfor %}"
    with raises(UserError, argument="chat_template", value=2, expected="content", problem="leaves out"):
        chat.encode_whole(every_special(only_users), [Q, says("two")])
    kept = chat.encode_whole(published("qwen3"), [*THOUGHT, *THOUGHT])
    assert published("qwen3").decode(kept.input_ids).count("hm so") == 1, "a thought of an earlier turn may go"


def test_encode_of_a_sampled_completion_accepts_what_a_template_drops():
    tokenizer, malformed = published("qwen3"), [Q, says("</think>a<think>b</think>c")]
    with raises(UserError, problem="leaves out"):
        chat.encode(tokenizer, malformed)
    assert chat.encode(tokenizer, malformed, strict=False).loss_mask[-2]


def test_data_inspect_shows_mask_of_a_chat_template(tmp_path, capsys):
    template = tmp_path / "t.jinja"
    template.write_text(BARE.replace("{{ m['role']", "{{ '[' ~ m['role']"), encoding="utf-8")
    data = write_rows(tmp_path / "d.jsonl", [{"messages": [Q, says("so it is")]}])
    assert dispatch(["data", "inspect", str(data), "--chat-template", str(template)]) == 0
    assert "[" in capsys.readouterr().out.rpartition("conversation")[2]


def test_load_verl_rows_that_export_writes(tmp_path):
    problems = [Problem(ASKED, "72"), Problem([{"role": "user", "content": "r"}], "7")]
    write._parquet(tmp_path, problems)
    records = load(tmp_path / "data.parquet")
    assert records.format == "verl" and not records.ignored
    assert [(p.prompt, p.reference) for p in records.problems()] == [(p.prompt, p.reference) for p in problems]


SYSTEM = {"role": "system", "content": "be kind"}


@pytest.mark.parametrize("prompt", [[SYSTEM, Q], [Q]], ids=["prompt has it", "prompt lacks it"])
@pytest.mark.parametrize("before", [[], [Q], [SYSTEM, Q]], ids=["reply alone", "question", "system and question"])
def test_load_preference_system_message_in_prompt_or_completions(prompt, before):
    row = {"prompt": prompt, "chosen": [*before, says("a")], "rejected": [*before, says("b")]}
    [found] = load([row]).comparisons()
    assert found.prompt == ([SYSTEM, Q] if SYSTEM in (*prompt, *before) else [Q])
    assert (found.chosen, found.rejected) == ([says("a")], [says("b")])


def test_train_tells_what_is_odd_about_the_rows(tmp_path, capsys):
    pairs = [{**PAIRS[i], "score_chosen": 1.0, "score_rejected": 3.0 if i else 0.5} for i in range(6)]
    single = [{"prompt": f"q {i}", "completion": "so<eos>" if i == 2 else "so", "label": 1.0} for i in range(6)]
    told = []
    for trainer, rows in (("reward", pairs), ("kto", single)):
        data = write_rows(tmp_path / f"{trainer}.jsonl", rows)
        flags = [
            "--data",
            str(data),
            "--eval-data",
            str(data),
            "--out",
            str(tmp_path / trainer),
            "--max-steps",
            "1",
            "--batch-size",
            "2",
        ]
        assert dispatch(["train", trainer, *flags]) == 0
        told.append(capsys.readouterr().out)
    assert "5 of 6 margins are negative" in told[0] and "margins" not in told[1]
    assert "every label is True" in told[1] and "label" not in told[0]
    assert "2 of 24 messages contain an end token" in told[1] and "end token in" not in told[0]
    assert all("the eval set is the training data" in text for text in told)
    assert (
        loaders_notes([{**PAIRS[0], "margin": 1}])
        == loaders_notes([{"prompt": "q", "completion": str(n), "label": n} for n in (0, 1)])
        == []
    )


def loaders_notes(rows):
    return load(rows).notes()


@pytest.mark.parametrize(
    ("prompt", "mark"),
    [
        ("<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n", "<|im_start|>"),
        ("[INST] hi [/INST]", "[INST]"),
        ("### Instruction:\nhi\n\n### Response:", "### Instruction"),
        ("### Human: hi\n### Assistant:", "### Human"),
        ("User: hi\n\nAssistant:", "User: hi"),
        ("What does [INSTALL] mean, and <|end|>? A: nothing", ""),
        ("The user: asked\n\n# Instruction\n", ""),
        ("\n\nHuman: hi\n\nAssistant:", ""),
    ],
)
def test_records_notes_name_marks_of_turns_in_prompts(prompt, mark):
    notes = loaders_notes([{"prompt": prompt, "chosen": "a", "rejected": "b"}] * 2)
    assert len(notes) == bool(mark) and all(mark in note and "2 of 2 prompts" in note for note in notes)


@pytest.mark.parametrize(("labels", "told"), [([1.0, 0.0], 1), ([True, False], 0), ([1, 0, -1], 0), ([1, 1], 1)])
def test_records_notes_name_steps_without_a_wrong_one(labels, told):
    row = {"prompt": "q", "completions": ["a"] * len(labels), "labels": labels}
    assert len(loaders_notes([row])) == told


def test_records_notes_name_contradictions_and_empty_turns():
    pair, silent = {"prompt": "q", "chosen": "a", "rejected": "b"}, [Q, says(""), Q, says("so")]
    assert len(loaders_notes([pair, {**pair, "chosen": "b", "rejected": "a"}])) == 1
    assert loaders_notes([pair, {**pair, "prompt": "r", "chosen": "b", "rejected": "a"}]) == []
    assert len(loaders_notes([{"prompt": "q", "completion": "a", "label": label} for label in (True, False)])) == 1
    assert len(loaders_notes([{"messages": silent}])) == 1
    assert loaders_notes([{"prompt": silent[:3], "completion": silent[3:]}]) == []  # it is not learned


def test_train_tells_rows_that_are_in_both_sets(tmp_path, capsys):
    data, other = (
        write_rows(tmp_path / name, rows) for name, rows in (("a.jsonl", PAIRS[:4]), ("b.jsonl", PAIRS[3:6]))
    )
    flags = ["--data", str(data), "--eval-data", str(other), "--max-steps", "1", "--batch-size", "2"]
    assert dispatch(["train", "dpo", *flags, "--out", str(tmp_path / "run")]) == 0
    assert "1 of 3 rows are also training data" in capsys.readouterr().out


def test_encode_textbook_rows_with_a_template_of_their_layout():
    """The fields ``functions`` and ``function_calls`` reach a template that writes them as they are."""
    template = (
        (
            "{% for m in messages %}{{ m.role ~ ':' ~ (m.content or '') }}"
            "{{ ' <functions>' ~ m.functions ~ '</functions>' if m.functions }}{% generation %}"
            "{{ m.function_calls if m.function_calls }}{{ '<|end|>' if m.role == 'assistant' }}{% endgeneration %}{% endfor %}"
        )
        .replace("{% generation %}", "{% if m.role == 'assistant' %}{% generation %}")
        .replace("{% endgeneration %}", "{% endgeneration %}{% endif %}")
    )
    calls, functions = "look(place='Rome')\nlook(place='Oslo')", json.dumps([DESCRIBED])
    row = [
        {**SYSTEM, "functions": functions, "function_calls": None},
        {**Q, "functions": None},
        says(None, function_calls=calls, functions=None),
    ]
    [found] = load([{"messages": row}]).conversations()
    tokenizer = every_special(template)
    assert (
        chat.render(tokenizer, found.messages)
        == f"system:be kind <functions>{functions}</functions>user:qassistant:{calls}<|end|>"
    )
    assert learned_texts(tokenizer, found.messages) == [f"{calls}<|end|>"]
    assert [call["function"]["arguments"] for call in found.messages[-1]["tool_calls"]] == [
        {"place": "Rome"},
        {"place": "Oslo"},
    ]
