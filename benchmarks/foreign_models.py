"""Every trainer on models that are not ours: small random ones of many architectures, with the templates of their kin.

    python benchmarks/foreign_models.py --json benchmarks/foreign_models.json      all of them, some minutes
    python benchmarks/foreign_models.py Qwen2 Gemma3                               these

A model is saved as a stranger would find it (``save_pretrained``, byte-level BPE, a template without marks), and trained for two steps
through the command line. What is looked at: the run ends well, replies that end are seen to end, log-probabilities equal those of an
unpadded pass, every weight is finite, and something was learned (a weight changed).
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import math
import tempfile
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import torch
import transformers
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

from minirlhf.data.chat import end_tokens
from minirlhf.models.forward import completion_logps
from minirlhf.models.loading import load_folder
from minirlhf.models.sampling import Sampling, sample
from minirlhf_cli import main as command


@dataclass(frozen=True)
class Layout:
    """How a family writes conversations: its special tokens, its end of sequence, and what stands around a message."""

    eos: str
    special: tuple[str, ...]
    template: str | None


def _around(before: str, after: str, assistant: str = "assistant", sequence_start: str = "") -> str:
    """A template of the form ``before role after-newline content after``, without marks, as most published ones are."""
    role = f"(message['role'] if message['role'] != 'assistant' else '{assistant}')"
    return (
        (f"{{{{ '{sequence_start}' }}}}" if sequence_start else "")
        + "{% for message in messages %}{{ '" + before.replace("ROLE", "' ~ " + role + " ~ '") + "' }}"
        + "{{ message['content'] ~ '" + after + "' }}{% endfor %}"
        + "{{ '" + before.replace("ROLE", assistant) + "' if add_generation_prompt }}"
    )  # fmt: skip


CHATML = Layout(
    "<|endoftext|>", ("<|im_start|>", "<|im_end|>"), _around("<|im_start|>ROLE\\n", "<|im_end|>\\n")
)  # the end of sequence is not what ends a reply
THINKING = Layout(  # takes thoughts out of earlier turns
    "<|endoftext|>",
    ("<|im_start|>", "<|im_end|>", "<think>", "</think>"),
    "{% for message in messages %}{{ '<|im_start|>' ~ message['role'] ~ '\\n' }}"
    "{% if message['role'] == 'assistant' and not loop.last %}{{ message['content'].split('</think>')[-1] }}"
    "{% else %}{{ message['content'] }}{% endif %}{{ '<|im_end|>\\n' }}{% endfor %}"
    "{{ '<|im_start|>assistant\\n' if add_generation_prompt }}",
)
HEADERS = Layout(
    "<|end_of_text|>",
    ("<|begin_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"),
    _around("<|start_header_id|>ROLE<|end_header_id|>\\n\\n", "<|eot_id|>", sequence_start="<|begin_of_text|>"),
)
TURNS = Layout(
    "<eos>",
    ("<bos>", "<start_of_turn>", "<end_of_turn>"),
    _around("<start_of_turn>ROLE\\n", "<end_of_turn>\\n", "model", "<bos>"),
)
INSTRUCT = Layout(
    "</s>",
    ("<s>", "[INST]", "[/INST]"),
    "{{ '<s>' }}{% for message in messages %}{% if message['role'] == 'assistant' %}{{ ' ' ~ message['content'] ~ '</s>' }}"
    "{% else %}{{ '[INST] ' ~ message['content'] ~ ' [/INST]' }}{% endif %}{% endfor %}",
)
ROLES = Layout("<|endoftext|>", ("<|user|>", "<|assistant|>", "<|end|>"), _around("<|ROLE|>\\n", "<|end|>\\n"))
NONE = Layout("<|endoftext|>", (), None)  # a base model: no template at all

SIZES: dict[str, Any] = {
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 24,
    "max_position_embeddings": 128,
    "initializer_range": 0.1,
}
GROUPED = {**SIZES, "num_key_value_heads": 1, "head_dim": 8}
SLIDING = {"sliding_window": 8, "layer_types": ["sliding_attention", "full_attention"]}
EXPERTS = {"num_local_experts": 3, "num_experts_per_tok": 2}

#: Architecture -> (class of the configuration, its sizes, the layout of its kin).
ARCHITECTURES: dict[str, tuple[str, dict[str, Any], Layout]] = {
    "GPT2": (
        "GPT2Config",
        {"n_embd": 16, "n_layer": 2, "n_head": 2, "n_positions": 128, "initializer_range": 0.1},
        NONE,
    ),
    "Llama": ("LlamaConfig", GROUPED, HEADERS),
    "Qwen2": ("Qwen2Config", GROUPED, CHATML),
    "Qwen3": ("Qwen3Config", GROUPED, THINKING),
    "Gemma2": ("Gemma2Config", {**GROUPED, **SLIDING, "query_pre_attn_scalar": 8}, TURNS),
    "Gemma3": ("Gemma3TextConfig", {**GROUPED, **SLIDING, "query_pre_attn_scalar": 8}, TURNS),
    "Mistral": ("MistralConfig", {**GROUPED, "sliding_window": 8}, INSTRUCT),
    "Mixtral": ("MixtralConfig", {**GROUPED, **EXPERTS}, INSTRUCT),
    "Phi": ("PhiConfig", SIZES, NONE),
    "Phi3": ("Phi3Config", {**SIZES, "original_max_position_embeddings": 128}, ROLES),
    "OLMo2": ("Olmo2Config", SIZES, ROLES),
    "SmolLM3": ("SmolLM3Config", {**GROUPED, "no_rope_layers": [1, 0]}, THINKING),
    "NeoX": ("GPTNeoXConfig", SIZES, NONE),
    "Bloom": ("BloomConfig", {"hidden_size": 16, "n_layer": 2, "n_head": 2, "initializer_range": 0.1}, NONE),
}
TRAINERS = ("sft", "reward", "dpo", "grpo", "ppo")

WORDS = [
    "what",
    "is",
    "the",
    "sum",
    "of",
    "one",
    "two",
    "three",
    "four",
    "five",
    "six",
    "seven",
    "eight",
    "nine",
    "and",
    "ten",
    "it",
    "makes",
    "I",
    "think",
    "so",
    "yes",
    "no",
]
ROWS = [
    {
        "prompt": [
            {"role": "user", "content": f"what is {a} and {b}"},
            {"role": "assistant", "content": "<think>let me see</think>say it again"},
            {"role": "user", "content": "the sum I said"},
        ],
        "chosen": f"<think>{a} and {b}</think>it makes {a + b}",
        "rejected": f"no {a}",
    }
    for a, b in product(range(1, 5), range(3))
]


def stranger(folder: Path, name: str, dtype: torch.dtype) -> Path:
    """A random model of this architecture with the tokenizer of its kin, saved in ``folder`` in this number format."""
    kind, sizes, layout = ARCHITECTURES[name]
    core = Tokenizer(models.BPE())
    core.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    core.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=330,
        special_tokens=[layout.eos, *layout.special],
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    core.train_from_iterator([" ".join(WORDS)] * 4, trainer)
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=core, eos_token=layout.eos, extra_special_tokens=list(layout.special)
    )  # no padding token, as so often
    tokenizer.chat_template = layout.template
    ids = {"vocab_size": len(tokenizer), "pad_token_id": None, "bos_token_id": None, "eos_token_id": 0}
    config = getattr(transformers, kind)(**sizes, **ids)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = transformers.AutoModelForCausalLM.from_config(config).to(dtype)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def trained(folder: Path, name: str, trainer: str, dtype: torch.dtype, *, lora: bool, bf16: bool = False) -> str:
    """Two steps of this trainer on such a model; an empty text, or what went wrong."""
    model = stranger(folder / "model", name, dtype)
    data = folder / "rows.jsonl"
    rows = [{"messages": [*row["prompt"], {"role": "assistant", "content": row["chosen"]}]} for row in ROWS]
    if trainer == "sft":
        rows = [{"prompt": row["prompt"], "completion": row["chosen"]} for row in ROWS]
    elif trainer in ("reward", "dpo"):
        rows = ROWS
    else:
        rows = [{"prompt": row["prompt"]} for row in ROWS]
    data.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    grader = folder / "grader.py"  # some replies are better than others, whatever a random model says
    grader.write_text("def even(completion):\n    return float(sum(map(ord, completion)) % 2 == 0)\n", encoding="utf-8")
    online = ["--grader", f"{grader}:even", "--max-completion-length", "12", "--num-generations", "2"]
    argv = [
        "train",
        trainer,
        "--data",
        str(data),
        "--model",
        str(model),
        "--out",
        str(folder / "run"),
        "--max-steps",
        "2",
    ]
    argv += ["--batch-size", "4", "--eval-fraction", "0.3", "--learning-rate", "1e-2"] + (
        online if trainer in ("grpo", "ppo") else []
    )
    argv += (["--lora-r", "2"] if lora else []) + (["--bf16", "true"] if bf16 else [])
    said = io.StringIO()
    try:
        with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
            status = command(argv)
    except Exception as problem:  # a traceback is what this looks for
        return f"{type(problem).__name__}: {problem}"
    if status:
        return said.getvalue().strip().splitlines()[-1]
    if "nan" in (folder / "run" / "metrics.jsonl").read_text().lower().replace('"', ""):
        return "a metric is not a number"
    if trainer == "reward":
        return ""
    before, tokenizer = load_folder(model, complete_tokenizer=True)
    after, _ = load_folder(folder / "run" / "model")
    moved = max(
        float((a - b).detach().abs().max()) for a, b in zip(before.parameters(), after.parameters(), strict=True)
    )
    if not 0 < moved < math.inf:
        return f"the largest change of a weight is {moved}"
    return endings(after, tokenizer) or unpadded(after, tokenizer)


def endings(model: Any, tokenizer: Any) -> str:
    """Does a reply end where the template ends it? The model is made to say so: its closing token gets the highest score."""
    ends = end_tokens(tokenizer, model)
    closing = next(iter(ends.found))
    head = model.get_output_embeddings()
    bias = torch.nn.Parameter(torch.zeros(head.weight.shape[0]))
    bias.data[closing] = 1e4
    kept, head.bias = head.bias, bias
    try:
        rollout = sample(
            model, [[5, 6, 7]], sampling=Sampling(max_completion_length=4), num_generations=2, eos_token_id=ends.ids,
            pad_token_id=tokenizer.pad_token_id, seed=0, use_cache=False,
        )  # fmt: skip
    finally:
        head.bias = kept
    if not (bool(rollout.terminated.all()) and rollout.mask.shape[1] == 1):
        return f"a reply that ends in {ends.names[closing]} does not end"
    return ""


@torch.no_grad()
def unpadded(model: Any, tokenizer: Any) -> str:
    """Log-probabilities of a padded batch against one row at a time, without padding."""
    model.eval()
    rows = [[5, 6, 7, 8, 9, 10, 11], [12, 13, 14, 15], [16, 17, 18, 19, 20]]
    width, size = max(map(len, rows)), 3
    ids = torch.tensor([[tokenizer.pad_token_id] * (width - len(row)) + row for row in rows])
    mask = torch.tensor([[0] * (width - len(row)) + [1] * len(row) for row in rows])
    ours = completion_logps(model, ids, mask, size)
    worst = 0.0
    for row, found in zip(rows, ours, strict=True):
        logits = model(input_ids=torch.tensor([row])).logits[0, :-1].double()
        plain = logits.log_softmax(-1).gather(-1, torch.tensor(row[1:])[:, None])[-size:, 0]
        worst = max(worst, float((found.double() - plain).abs().max()))
    return "" if worst < 1e-4 else f"log-probabilities are {worst:.1e} from those of an unpadded pass"


def cases(names: list[str]) -> list[tuple[str, str, torch.dtype, bool]]:
    """Every architecture with every trainer, saved in float32 and bfloat16, with adapters and without."""
    return list(product(names, TRAINERS, (torch.float32, torch.bfloat16), (False, True)))


def main() -> None:
    """Run them and say which failed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="ARCHITECTURE", help=f"of {', '.join(ARCHITECTURES)}")
    parser.add_argument("--json", type=Path, help="write what was found")
    args = parser.parse_args()
    transformers.logging.disable_progress_bar()
    found = {}
    for name, trainer, dtype, lora in cases(args.names or list(ARCHITECTURES)):
        with tempfile.TemporaryDirectory() as folder:
            key = f"{name} {trainer} {str(dtype).removeprefix('torch.')}{' lora' if lora else ''}"
            found[key] = trained(Path(folder), name, trainer, dtype, lora=lora)
        print(f"{key}: {found[key] or 'ok'}", flush=True)
    failed = {key: reason for key, reason in found.items() if reason}
    print(f"{len(found) - len(failed)} of {len(found)} run")
    if args.json is not None:
        versions = {"torch": torch.__version__, "transformers": transformers.__version__}
        args.json.write_text(json.dumps({"runs": len(found), "failed": failed, **versions}, indent=1) + "\n")


if __name__ == "__main__":
    main()
