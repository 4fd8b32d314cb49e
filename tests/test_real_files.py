"""Files, tokenizers and templates as users of other libraries bring them: the right value of each."""

import json

import pytest
import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from minirlhf.data import chat
from minirlhf.data.chat import conversation
from minirlhf.data.records import Problem
from minirlhf.models.loading import load_folder
from minirlhf.models.tokenizers import complete_tokenizer, load_tokenizer
from minirlhf_cli import dispatch
from minirlhf_cli.files.choices import choose

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
