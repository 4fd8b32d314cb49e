"""A run exported to TRL makes the same steps there, also where the chat template writes a newline behind a turn."""

import importlib.util
import json
import re
import sys
from pathlib import Path

import pytest
import torch
from facts import raises
from patience import finished

from minirlhf.core.errors import UserError
from minirlhf_cli import dispatch

pytest.importorskip("trl", reason="needs the extra 'peers'")
SPEC = importlib.util.spec_from_file_location(
    "foreign_models", Path(__file__).parents[1] / "benchmarks/foreign_models.py"
)
assert SPEC is not None and SPEC.loader is not None
foreign_models = importlib.util.module_from_spec(SPEC)
sys.modules[SPEC.name] = foreign_models
SPEC.loader.exec_module(foreign_models)

WORDS = ("two", "five", "six", "one", "four", "nine")
PAIRS = [{"prompt": f"what is {w}", "chosen": f"it is {w} and one", "rejected": "no"} for w in WORDS]
LABELS = [{"prompt": f"what is {w}", "completion": f"it is {w}", "label": i % 2 == 0} for i, w in enumerate(WORDS)]


def both(trainer, model, rows, folder, *flags):
    """Loss and gradient norm of two steps on all rows, here and in the exported script."""
    data, out = folder / "rows.jsonl", folder / "run"
    data.write_text("".join(json.dumps(row) + "\n" for row in rows))
    argv = ["train", trainer, "--data", str(data), "--model", str(model), "--out", str(out), "--eval-fraction", "0"]
    argv += ["--batch-size", str(len(rows)), "--max-steps", "2", "--bf16", "false", "--learning-rate", "1e-3"]
    assert dispatch(argv) == 0
    assert dispatch(["export", str(out), "--to", "trl", "--out", str(folder / "trl"), *flags]) == 0
    ran = finished([sys.executable, "train.py"], usually=30, cwd=folder / "trl")
    found = re.findall(r"'loss': '([^']+)', 'grad_norm': '([^']+)'", ran.stdout)
    assert len(found) == 2, ran.stdout[-2000:]
    here = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    return [(row["loss"], row["grad_norm"]) for row in here], [tuple(map(float, row)) for row in found]


CASES = [
    pytest.param(name, trainer, marks=[] if (name, trainer) == ("Qwen3", "dpo") else pytest.mark.release)
    for name in ("Qwen3", "Gemma3", "SmolLM3", "Phi3", "OLMo2", "Llama", "Mistral")
    for trainer in ("dpo", "sft")
]


@pytest.mark.slow
@pytest.mark.parametrize(("name", "trainer"), CASES)
def test_exported_script_makes_the_same_steps_for_the_templates_of_many_families(name, trainer, tmp_path):
    model = foreign_models.stranger(tmp_path / name, name, torch.float32)
    here, there = both(trainer, model, PAIRS, tmp_path)
    assert here == [pytest.approx(row, rel=1e-3) for row in there]  # TRL prints four digits


@pytest.mark.slow
@pytest.mark.release
def test_kto_goes_to_trl_with_the_same_first_step(tmp_path):
    model = foreign_models.stranger(tmp_path / "Qwen3", "Qwen3", torch.float32)
    here, there = both("kto", model, LABELS, tmp_path, "--allow-differences")
    assert here[0] == pytest.approx(there[0], rel=1e-3)


@pytest.mark.slow
def test_kto_names_its_reference_point_as_different(tmp_path):
    data = tmp_path / "rows.jsonl"
    data.write_text("".join(json.dumps(row) + "\n" for row in LABELS))
    out = tmp_path / "run"
    small = ["--vocab-size", "300", "--context", "64", "--max-steps", "1"]
    assert dispatch(["train", "kto", "--data", str(data), "--out", str(out), *small]) == 0
    with raises(UserError, argument="--allow-differences"):
        dispatch(["export", str(out), "--to", "trl", "--out", str(tmp_path / "trl")])
