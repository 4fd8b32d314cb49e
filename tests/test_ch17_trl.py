"""Chapter 17: the text adventure runs in TRL's GRPOTrainer as it stands, and earns there what it earns here."""

import importlib.util
import json
import os
from pathlib import Path

import pytest
import transformers

from minirlhf.models.tokenizers import train_tokenizer
from minirlhf_course.chapters.ch17_tools.adventure import WAY, Adventure, State

if importlib.util.find_spec("trl") is None and not os.environ.get("MINIRLHF_CI"):
    pytest.skip("needs the extra 'peers': TRL, whose trainer takes our environments", allow_module_level=True)

CALLS = {"west": ("go", {"direction": "west"}), "east": ("go", {"direction": "east"}), "take": ("take", {}), "open": ("open_door", {})}  # fmt: skip


def written(action):
    """A turn that calls, as Qwen's template has it."""
    name, arguments = CALLS[action]
    return f"<tool_call>\n{json.dumps({'name': name, 'arguments': arguments})}\n</tool_call><|im_end|>"


@pytest.mark.slow
def test_adventure_environment_runs_in_trl_grpo_trainer(tmp_path, monkeypatch):
    """Two rows of one step: one finds the treasure in six calls, the other walks into a locked door and gives up."""
    import trl
    from datasets import Dataset

    monkeypatch.setenv("TRL_EXPERIMENTAL_SILENCE", "1")
    way, state = [], State()
    while not state.treasure:
        way.append(WAY[state.number])
        state = state.after(way[-1])

    tokenizer = train_tokenizer(["You are in the hall. A door to the east is locked."] * 3, 400)
    tokenizer.add_special_tokens({"additional_special_tokens": ["<|im_start|>", "<|im_end|>"]})
    tokenizer.eos_token = "<|im_end|>"
    tokenizer.chat_template = (Path(trl.__file__).parent / "chat_templates" / "qwen2_5.jinja").read_text(
        encoding="utf-8"
    )
    config = transformers.LlamaConfig(
        vocab_size=len(tokenizer), hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16,
        max_position_embeddings=8192, pad_token_id=tokenizer.pad_token_id, eos_token_id=tokenizer.eos_token_id,
    )  # fmt: skip
    settings = trl.GRPOConfig(
        output_dir=str(tmp_path), per_device_train_batch_size=2, num_generations=2, max_completion_length=4000, max_steps=1,
        report_to=[], use_cpu=True, bf16=False, save_strategy="no", logging_steps=1, disable_tqdm=True,
    )  # fmt: skip
    trainer = trl.GRPOTrainer(
        transformers.LlamaForCausalLM(config), args=settings, processing_class=tokenizer, environment_factory=Adventure,
        train_dataset=Dataset.from_list([{"prompt": [{"role": "user", "content": "Find the treasure. "}], "bonus": 0.3}] * 2),
    )  # fmt: skip
    seen = []

    def spoken(prompt_ids, *_, **__):
        """What a policy would say, in place of an untrained one."""
        texts = [tokenizer.decode(ids) for ids in prompt_ids]
        seen.extend(texts)
        turns = []
        for row, text in enumerate(texts):
            done = text.count("<tool_response>")
            lost = row == 1 if not done else '{"name": "go", "arguments": {"direction": "east"}}' in text and done == 1
            script = ["east"] if lost else way
            turns.append(written(script[done]) if done < len(script) else "Done.<|im_end|>")
        return [tokenizer(turn, add_special_tokens=False)["input_ids"] for turn in turns], None

    monkeypatch.setattr(trainer, "_generate_single_turn", spoken)
    trainer.train()

    first = seen[0]
    assert "You are in the hall." in first, "what reset says stands behind the user's message"
    assert all(f'"name": "{name}"' in first for name in ("go", "take", "open_door")) and "get_reward" not in first
    assert any("You have the treasure." in text for text in seen) and any("Nothing happens." in text for text in seen)
    [logged] = [entry for entry in trainer.state.log_history if "reward" in entry]
    assert logged["reward"] == pytest.approx((1.6 + 0.0) / 2), "treasure, key and door; and nothing"
