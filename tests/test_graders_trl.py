"""Each named grader pays in TRL's GRPOTrainer what it pays here, through the file that an export writes."""

import importlib.util
import math
import os

import pytest
import transformers
from test_graders import DOUBLE, TABLE

from minirlhf.feedback import graders
from minirlhf.models.tokenizers import train_tokenizer
from minirlhf_cli.export import grader as exported

pytestmark = pytest.mark.slow

if importlib.util.find_spec("trl") is None and not os.environ.get("MINIRLHF_CI"):
    pytest.skip("needs the extra 'peers': TRL, whose trainer takes our graders", allow_module_level=True)


#: Bare bodies, as HumanEval asks for: their indentation must arrive.
PROGRAMS = [("    return x + x", DOUBLE, 1), ("    return 4", DOUBLE, 0)]


def two_cases(name):
    """Of the table that grades the graders: the reply with the highest reward, and one that earns less for the same reference."""
    table = PROGRAMS if name in ("tests", "tests_share") else TABLE[name]
    rows = [row for row in table if not math.isnan(row[2]) and 0 < len(row[0].strip()) < 2000]
    good, reference, _ = max(rows, key=lambda row: row[2])
    others = ["no", *(completion.strip() for completion, wanted, _ in rows if wanted == reference)]
    good = good if table is PROGRAMS else good.strip()
    return reference, good, min(others, key=lambda text: graders.get(name)(text, reference))


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    """A tokenizer that writes every text, a model of one layer, and the folder of an export with both."""
    folder = tmp_path_factory.mktemp("exported")
    tokenizer = train_tokenizer(["say seven"] * 3, 300)
    config = transformers.LlamaConfig(
        vocab_size=len(tokenizer), hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16,
        max_position_embeddings=2048, pad_token_id=tokenizer.pad_token_id, eos_token_id=tokenizer.eos_token_id,
    )  # fmt: skip
    tokenizer.save_pretrained(folder / "model")
    return folder, tokenizer, config


@pytest.mark.parametrize("name", graders.GRADERS)
def test_graders_pay_in_trl_what_they_pay_here(name, small, tmp_path, monkeypatch):
    import trl
    from datasets import Dataset

    folder, tokenizer, config = small
    path = folder / f"grader_{name}.py"
    made = f"rewards.reference_reward(graders.get({name!r}))"
    path.write_text(exported.GRADER.format(made=made, shape="()") + exported.TRL, encoding="utf-8")
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)

    reference, good, bad = two_cases(name)
    wanted = [graders.get(name)(text, reference) for text in (good, bad)]
    assert wanted[0] > wanted[1]
    settings = trl.GRPOConfig(
        output_dir=str(tmp_path), per_device_train_batch_size=2, num_generations=2, max_completion_length=1500, max_steps=1,
        report_to=[], use_cpu=True, bf16=False, save_strategy="no", logging_steps=1, disable_tqdm=True,
    )  # fmt: skip
    rows = [{"prompt": [{"role": "user", "content": "say seven"}], "reference": reference}] * 2
    trainer = trl.GRPOTrainer(
        transformers.LlamaForCausalLM(config), args=settings, processing_class=tokenizer, reward_funcs=module.trl_reward,
        train_dataset=Dataset.from_list(rows),
    )  # fmt: skip

    def spoken(*_, **__):
        """What a policy would say, in place of an untrained one."""
        ids = [tokenizer(text, add_special_tokens=False)["input_ids"] for text in (good, bad)]
        return [[*row, tokenizer.eos_token_id] for row in ids], None

    monkeypatch.setattr(trainer, "_generate_single_turn", spoken)
    trainer.train()
    [logged] = [entry for entry in trainer.state.log_history if "reward" in entry]
    assert logged["reward"] == pytest.approx(sum(wanted) / 2, abs=1e-5)
    assert logged["reward_std"] == pytest.approx((wanted[0] - wanted[1]) / math.sqrt(2), abs=1e-5)
