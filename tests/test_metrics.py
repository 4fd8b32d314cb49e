"""The glossary of metrics and what the trainers really log are the same; the command reads it."""

import json
from dataclasses import fields

import pytest
import torch
from facts import raises

from minirlhf.core import provenance
from minirlhf.core.errors import UserError
from minirlhf.core.exact import ToyLM
from minirlhf.data.chat import WORDS_AND_TOOLS, conversation, encode, encode_steps
from minirlhf.data.records import Problem
from minirlhf.data.types import Stepped, labelled, pair
from minirlhf.models.heads import RewardModel, ValueModel
from minirlhf.models.tiny import tiny_model
from minirlhf.models.tokenizers import word_tokenizer
from minirlhf.recipes import DAPO, GRPO, PPO
from minirlhf.recipes.distill import DISTILLATIONS
from minirlhf.recipes.offline import get_preference
from minirlhf.trainers.config import RejectionConfig
from minirlhf.trainers.distill import DistillConfig, train_distill
from minirlhf.trainers.offline import OfflineConfig, train_offline
from minirlhf.trainers.online import OnlineConfig, train_in_env, train_online
from minirlhf.trainers.rejection import train_rejection
from minirlhf.trainers.reward import RewardConfig, train_reward
from minirlhf.trainers.sft import SFTConfig, train_sft
from minirlhf.trainers.tools import ToolEnv
from minirlhf.trainers.toy import train_toy
from minirlhf.trainers.verifiers import OutcomeConfig, ProcessConfig, train_outcome, train_process
from minirlhf_cli import dispatch
from minirlhf_course.report import metrics

WORDS = word_tokenizer(["hi", "cats", "dogs"])
TINY = {"max_steps": 1, "batch_size": 2}
SAMPLED = OnlineConfig(**TINY, num_generations=2, max_completion_length=4)


def tokens(reply):
    return encode(WORDS, conversation("hi", reply))


def run_sft():
    return train_sft(tiny_model("nano", WORDS), [tokens("cats")], SFTConfig(**TINY), pad_token_id=0, quiet=True)


def run_reward():
    model = RewardModel.from_causal_lm(tiny_model("nano", WORDS), seed=0)
    pairs = [pair(tokens("cats"), tokens("dogs"))]
    return train_reward(model, pairs, RewardConfig(**TINY), pad_token_id=0, quiet=True)


def run_reward_with_likelihood():
    lm = tiny_model("nano", WORDS)
    model = RewardModel.from_causal_lm(lm, share=True)
    config = RewardConfig(**TINY, nll_coefficient=0.1)
    pairs = [pair(tokens("cats"), tokens("dogs"))]
    return train_reward(model, pairs, config, pad_token_id=0, language_model=lm, quiet=True)


def run_outcome():
    model = ValueModel.from_causal_lm(tiny_model("nano", WORDS))
    return train_outcome(model, [labelled(tokens("cats"), True)], OutcomeConfig(**TINY), pad_token_id=0, quiet=True)


def run_process():
    model = ValueModel.from_causal_lm(tiny_model("nano", WORDS))
    steps = Stepped(*encode_steps(WORDS, conversation("hi"), ["cats", "dogs"]), (1, -1))
    return train_process(model, [steps], ProcessConfig(**TINY), pad_token_id=0, quiet=True)


def run_offline():
    pairs = [pair(tokens("cats"), tokens("dogs"))]
    return train_offline(
        tiny_model("nano", WORDS), pairs, get_preference("dpo"), OfflineConfig(**TINY), pad_token_id=0, quiet=True
    )


def lengths_of(problems, completions):
    return [float(len(text)) for text in completions]


def run_online(recipe, *prompts):
    problems = [Problem(conversation(prompt)) for prompt in prompts or ("hi",)]
    return train_online(tiny_model("nano", WORDS), problems, lengths_of, recipe, SAMPLED, tokenizer=WORDS, quiet=True)


def run_tools():
    examples = [{"prompt": conversation("hi")}]
    words = word_tokenizer(["hi", "cats", "dogs", "<tool>"], chat_template=WORDS_AND_TOOLS)
    world = ToolEnv(examples, Silent, words, grade=lambda *_: 0.0)
    return train_in_env(tiny_model("nano", words), world, GRPO, SAMPLED, quiet=True)


class Silent:
    """An environment with a tool that says nothing."""

    def reset(self, **example):
        """Begins."""

    def silence(self) -> str:
        """Says nothing."""
        return ""


def run_rejection():
    config = RejectionConfig(**TINY, num_prompts=2, num_generations=2, max_completion_length=4)
    problems = [Problem(conversation("hi")), Problem(conversation("cats"))]
    return train_rejection(tiny_model("nano", WORDS), problems, lengths_of, config, tokenizer=WORDS, quiet=True)


def run_distill():
    return train_distill(
        tiny_model("nano", WORDS), tiny_model("nano", WORDS, seed=1), [tokens("cats")], DISTILLATIONS["kd"],
        DistillConfig(**TINY), eos_token_id=WORDS.eos_token_id, pad_token_id=0, quiet=True,
    )  # fmt: skip


def run_toy():
    lm = ToyLM()
    return train_toy(lm, torch.rand(1, len(lm.completions().tokens)), GRPO, SAMPLED, ref_model=ToyLM(), quiet=True)


# Module of the trainer -> runs that together log everything that it can.
RUNS = {
    "sft": [run_sft],
    "reward": [run_reward, run_reward_with_likelihood],
    "verifiers": [run_outcome, run_process],
    "offline": [run_offline],
    "online": [
        lambda: run_online(GRPO),
        lambda: run_online(GRPO, "hi bees", "hi"),
        lambda: run_online(PPO),
        lambda: run_online(PPO.with_(critic_warmup=1)),
        lambda: run_online(DAPO.with_(shape=())),
        run_tools,
    ],
    "rejection": [run_rejection],
    "distill": [run_distill],
    "toy": [run_toy],
}


def logged(trainer):
    return {name for run in RUNS[trainer] for row in run() for name in row}


def explained(*trainers):
    return {m.name for m in metrics.METRICS.values() if set(trainers) & set(m.trainers)}


def test_metrics_runs_cover_every_trainer_that_logs():
    logs = {
        p.stem
        for p in (provenance.ROOT / "minirlhf" / "trainers").glob("*.py")
        if "loop.log(" in p.read_text(encoding="utf-8")
    } - {"loop"}
    assert logs | {"toy"} == set(RUNS), "add a run to RUNS, and its metrics to minirlhf_course/report/metrics.py"


@pytest.mark.parametrize("trainer", ["sft", "reward", "verifiers", "offline", "online", "rejection", "distill"])
def test_metrics_glossary_equals_what_trainer_logs(trainer):
    assert logged(trainer) == explained(trainer)


def test_metrics_glossary_holds_exact_metrics():
    found = logged("toy")
    assert found - {"exact_reward"} <= explained("online", "toy")
    assert {"exact_reward", "exact_kl"} <= found
    assert metrics.get("exact_gold") is metrics.METRICS["exact_<name>"]


def test_metrics_entries_are_complete():
    trainers = {t for m in metrics.METRICS.values() for t in m.trainers}
    assert trainers == set(RUNS)
    for metric in metrics.METRICS.values():
        for part in fields(metric):
            assert getattr(metric, part.name), (metric.name, part.name)
    assert metrics.unexplained(["kl", "gold", "exact_gold", "gold", "held_out_kl", "held_out_gold"]) == [
        "gold",
        "held_out_gold",
    ]
    assert metrics.get("held_out_kl") is metrics.get("kl")


def test_cli_metrics_prints_list_entry_and_run(capsys, tmp_path):
    assert dispatch(["doctor", "metrics"]) == 0
    everything = capsys.readouterr().out
    assert all(name in everything for name in metrics.METRICS)
    assert dispatch(["doctor", "metrics", "kl"]) == 0
    one = " ".join(capsys.readouterr().out.split())
    assert all(text in one for text in (metrics.METRICS["kl"].definition, metrics.METRICS["kl"].bad))
    rows = [{"step": 0, "kl": 0.0, "gold": 1.5, "loss": float("nan")}, {"step": 1, "kl": 0.25, "gold": 2.5}]
    (tmp_path / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert dispatch(["doctor", "metrics", str(tmp_path)]) == 0
    of_run = [line.split() for line in capsys.readouterr().out.splitlines() if line[:1].strip()]
    assert [line[0] for line in of_run] == ["kl", "gold", "loss"]
    assert of_run[0][1:4] == ["0", "→", "0.25"] and of_run[1][1:4] == ["1.5", "→", "2.5"] and "→" not in of_run[2][:4]
    with raises(UserError, argument="metric", value="klx", expected="kl"):
        dispatch(["doctor", "metrics", "klx"])
