"""What users of other libraries ask `minirlhf train` for: epochs, truncation, the best checkpoint, dropout, other names."""

import json
import math

import pytest
import torch
from facts import raises

from minirlhf.core.errors import UserError
from minirlhf.data.types import Stepped, Tokens, labelled, pair
from minirlhf.trainers.config import RejectionConfig, TrainerConfig
from minirlhf.trainers.loop import number_to_compare
from minirlhf.trainers.reward import RewardConfig
from minirlhf.trainers.sft import SFTConfig
from minirlhf_cli import dispatch
from minirlhf_cli.commands.train import TRAINERS, load_run_spec
from minirlhf_cli.foreign_options import COUNTERPARTS

SMALL = ["--batch-size", "4", "--vocab-size", "300", "--context", "64", "--eval-fraction", "0.25"]


def write(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return str(path)


@pytest.fixture
def chats(tmp_path):
    rows = [{"prompt": f"say {n}", "completion": f"{n} it is{' so' * i}"} for i, n in enumerate("abcdefghijkl")]
    return write(tmp_path / "chats.jsonl", rows)


def train(trainer, data, out, *flags):
    assert dispatch(["train", trainer, "--data", data, "--out", str(out), *SMALL, *flags]) == 0
    return json.loads((out / "result.json").read_text()), [
        json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()
    ]


# -- epochs ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("epochs", "count", "steps"), [(1, 9, 3), (2, 9, 5), (0.5, 9, 2), (1, 8, 2), (0.1, 10, 1)])
def test_epochs_are_as_many_steps_as_see_that_many_examples(epochs, count, steps):
    assert TrainerConfig(epochs=epochs, batch_size=4).for_examples(count).max_steps == steps
    assert TrainerConfig(max_steps=7).for_examples(count).max_steps == 7


def test_epochs_of_rejection_sampling_count_prompts():
    config = RejectionConfig(epochs=2, num_prompts=4, steps_per_round=5)
    assert config.for_examples(8).max_steps == 4 * 5


@pytest.mark.parametrize("epochs", [0, -1, math.inf, math.nan])
def test_epochs_refuses_what_is_no_number_of_passes(epochs):
    with raises(UserError, argument="epochs"):
        TrainerConfig(epochs=epochs)


@pytest.mark.slow
def test_train_epochs_counts_training_rows_and_resumes(chats, tmp_path):
    out = tmp_path / "run"
    result, rows = train("sft", chats, out, "--epochs", "1")
    assert (result["train"], len(rows)) == (9, 3)
    assert load_run_spec(out).config.max_steps == 3
    assert len(train("sft", chats, out, "--epochs", "2", "--resume")[1]) == 5


# -- truncation --------------------------------------------------------------------------------------------------

FIVE = Tokens([1, 2, 3, 4, 5], [False, False, True, True, True])


@pytest.mark.parametrize(
    ("mode", "length", "ids"),
    [("keep_start", 4, [1, 2, 3, 4]), ("keep_end", 4, [2, 3, 4, 5]), ("keep_start", 9, [1, 2, 3, 4, 5])],
)
def test_tokens_truncated_keeps_one_end(mode, length, ids):
    cut = FIVE.truncated(length, mode)
    assert cut is not None and cut.input_ids == ids
    assert cut.loss_mask == [i > 2 for i in ids]


def test_truncated_example_is_none_without_anything_to_learn():
    assert FIVE.truncated(2, "keep_start") is None
    other = Tokens([1, 2, 3, 4, 6], FIVE.loss_mask)
    assert pair(FIVE, other).truncated(4, "keep_start") is None  # the two became the same
    assert pair(FIVE, other).truncated(4, "keep_end").completions[1].input_ids == [2, 3, 4, 6]
    assert labelled(FIVE, True).truncated(2, "keep_start") is None


def test_stepped_truncated_keeps_steps_whose_end_is_left():
    steps = Stepped(FIVE, (2, 4), (1, -1))
    assert steps.truncated(4, "keep_start") == Stepped(FIVE.truncated(4, "keep_start"), (2,), (1,))
    assert steps.truncated(2, "keep_end") == Stepped(FIVE.truncated(2, "keep_end"), (1,), (-1,))
    assert Stepped(FIVE, (4,), (1,)).truncated(4, "keep_start") is None


@pytest.mark.slow
def test_train_max_length_refuses_drops_or_cuts(chats, tmp_path):
    with raises(UserError, argument="--max-length", expected=16, problem="too long"):
        train("sft", chats, tmp_path / "refused", "--max-length", "16", "--max-steps", "1")
    assert not (tmp_path / "refused").exists()
    flags = ["--max-length", "16", "--epochs", "1"]
    result, rows = train("sft", chats, tmp_path / "cut", *flags, "--truncation-mode", "keep_start")
    assert (result["train"], result["held_out"]) == (9, 3)
    whole = train("sft", chats, tmp_path / "whole", "--epochs", "1")[1]
    assert 0 < sum(row["tokens"] for row in rows) < sum(row["tokens"] for row in whole)
    with raises(UserError, argument="--max-length", problem="empty"):
        train("sft", chats, tmp_path / "none", "--max-length", "3", "--truncation-mode", "keep_start")
    with raises(UserError, argument="drop_long", problem="exclusive"):
        train("sft", chats, tmp_path / "none", *flags, "--truncation-mode", "keep_end", "--drop-long", "true")
    with raises(UserError, argument="truncation_mode", value="left"):
        train("sft", chats, tmp_path / "none", *flags, "--truncation-mode", "left")


# -- the best checkpoint -----------------------------------------------------------------------------------------


@pytest.mark.slow
def test_train_load_best_model_at_end_keeps_the_best_measurement(chats, tmp_path):
    flags = ["--max-steps", "9", "--learning-rate", "0.2", "--eval-steps", "1"]
    last, rows = train("sft", chats, tmp_path / "last", *flags)
    losses = [row["held_out_loss"] for row in rows]
    assert min(losses) < losses[-1], "at this learning rate the loss rises again"
    best, _ = train("sft", chats, tmp_path / "best", *flags, "--load-best-model-at-end", "true")
    assert best["best_step"] == losses.index(min(losses)) + 1
    assert best["held_out_loss"] == pytest.approx(min(losses), rel=1e-6)
    assert last["held_out_loss"] == pytest.approx(losses[-1], rel=1e-6)


def test_number_to_compare_prefers_the_loss_and_less_of_it():
    assert number_to_compare({"held_out_accuracy": 0.5, "held_out_loss": 2.0}) == ("held_out_loss", -2.0)
    assert number_to_compare({"held_out_margin": 1.0, "held_out_reward": 0.5}) == ("held_out_reward", 0.5)
    with raises(UserError, argument="load_best_model_at_end"):
        number_to_compare({"held_out_kl": 1.0})


def test_train_load_best_model_at_end_needs_measurements(chats, tmp_path):
    with raises(UserError, argument="eval_steps", problem="missing"):
        train("sft", chats, tmp_path / "run", "--load-best-model-at-end", "true")


# -- dropout -----------------------------------------------------------------------------------------------------


def test_disable_dropout_has_the_defaults_of_trl():
    trl = pytest.importorskip("trl", reason="needs the extra 'trl'")
    assert RewardConfig().disable_dropout is trl.RewardConfig.__dataclass_fields__["disable_dropout"].default
    assert "disable_dropout" not in trl.SFTConfig.__dataclass_fields__ and not SFTConfig().disable_dropout


@pytest.mark.slow
@pytest.mark.parametrize("trainer", ["sft", "reward"])
def test_train_micro_batch_size_changes_nothing_without_dropout(trainer, tmp_path, capsys):
    from transformers import GPT2Config, GPT2LMHeadModel

    from minirlhf.data.chat import TURNS
    from minirlhf.models import checkpoints
    from minirlhf.models.tokenizers import train_tokenizer

    rows = [{"prompt": f"q{n}", "chosen": f"good {n}", "rejected": f"bad {n}"} for n in range(8)]
    data = write(tmp_path / "pairs.jsonl", rows)
    tokenizer = train_tokenizer([str(row) for row in rows], 300)
    assert tokenizer.chat_template == TURNS
    torch.manual_seed(0)
    config = GPT2Config(vocab_size=len(tokenizer), n_positions=64, n_embd=16, n_layer=1, n_head=2, resid_pdrop=0.5)
    checkpoints.save(tmp_path / "gpt2", GPT2LMHeadModel(config), tokenizer)

    def loss(*flags):
        out = tmp_path / "-".join(("with", *flags))
        start = ["--model", str(tmp_path / "gpt2"), "--max-steps", "1", "--disable-dropout"]
        argv = ["train", trainer, "--data", data, "--out", str(out), "--eval-fraction", "0", *start, *flags]
        assert dispatch(argv) == 0
        return json.loads((out / "metrics.jsonl").read_text())["loss"]

    without = loss("true")
    assert without == pytest.approx(loss("true", "--micro-batch-size", "1"), rel=1e-5)
    capsys.readouterr()
    assert loss("false") != pytest.approx(without, rel=1e-5)
    assert "dropout" not in capsys.readouterr().out
    loss("false", "--micro-batch-size", "1")
    assert "random numbers depend on micro_batch_size" in capsys.readouterr().out


# -- options of other libraries ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("option", "here"),
    [
        ("--lr", "--learning-rate"),
        ("--gradient-accumulation-steps", "--micro-batch-size"),
        ("--num-train-epochs", "--epochs"),
        ("--use-vllm", None),
        ("--output-dir=x", "--out"),
        ("--input-key", "--prompt-field"),
        ("--mixed-precision", "--bf16"),
        ("--flash-attn", None),
        ("--quux", None),
    ],
)
def test_cli_names_the_counterpart_of_an_option_of_another_library(option, here):
    with raises(UserError, value=option.split("=")[0], expected=here, problem="unknown"):
        dispatch(["train", "sft", option, "1"])


def test_cli_names_the_counterpart_of_a_setting_in_a_file(chats, tmp_path):
    (tmp_path / "config.yaml").write_text("per_device_train_batch_size: 4\n")
    with raises(UserError, value="per_device_train_batch_size", expected="--micro-batch-size"):
        train("sft", chats, tmp_path / "run", "--config", str(tmp_path / "config.yaml"))


def test_counterparts_are_options_that_there_are_and_their_names_are_none():
    import argparse

    from minirlhf_cli.commands import data, evaluate
    from minirlhf_cli.commands import train as training

    options = set()
    for module in (training, evaluate, data):
        parser = argparse.ArgumentParser()
        module.configure(parser)
        parsers = [parser]
        for found in parsers:
            for action in found._actions:
                options.update(action.option_strings)
                if isinstance(action, argparse._SubParsersAction):
                    parsers += action.choices.values()
    named = {text.split()[0].rstrip(",:;") for texts in COUNTERPARTS.values() for text in texts}
    assert {name for name in named if name.startswith("--")} <= options
    every_option = {option.removeprefix("--").replace("-", "_") for option in options}
    everywhere = [name for name in COUNTERPARTS if name in every_option]
    assert set(everywhere) <= {"loss_type", "loss", "num_epochs", "n"}, (
        "an option of some trainers may be foreign to the others"
    )
    assert TRAINERS


# -- losses of one's own -----------------------------------------------------------------------------------------

OWN = """
import torch
from minirlhf.equations.preference_losses import UnpairedLogps

def margin(pairs, beta=0.1):
    return -torch.nn.functional.logsigmoid(beta * pairs.margins)

def single(record: UnpairedLogps, *, beta: float = 0.1):
    return -beta * record.logratios * (2 * record.desirable.float() - 1)

def mean(pairs):
    return pairs.margins.mean()

def broken(pairs):
    return pairs.nothing

def two(pairs, beta):
    return pairs.margins

def tokens(logps, mask):
    return -logps

def hinge(chosen, rejected):
    return torch.relu(1 - chosen + rejected)

def logistic(chosen, rejected):
    return -torch.nn.functional.logsigmoid(chosen - rejected)

def constant(chosen, rejected):
    return torch.zeros(len(chosen))

def grade(completion, reference):
    return float(completion.split()[:1] == reference.split()[:1])
"""


@pytest.fixture
def pairs(tmp_path):
    rows = [{"prompt": f"q{n}", "chosen": f"good {n}", "rejected": f"bad {n}"} for n in range(12)]
    return write(tmp_path / "pairs.jsonl", rows)


@pytest.fixture
def own(tmp_path):
    (tmp_path / "own.py").write_text(OWN)
    return lambda name: f"{tmp_path / 'own.py'}:{name}"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("trainer", "loss", "standard"),
    [
        ("offline", ("--loss", "margin"), ("--loss", "dpo")),
        ("sft", ("--loss-type", "tokens"), ("--loss-type", "nll")),
        ("reward", ("--loss", "logistic"), ("--loss", "bradley_terry")),
    ],
)
def test_train_custom_loss_that_is_a_standard_one_gives_the_same_run(trainer, loss, standard, pairs, own, tmp_path):
    flag, name = loss
    _, rows = train(trainer, pairs, tmp_path / "own", flag, own(name), "--max-steps", "2")
    _, expected = train(trainer, pairs, tmp_path / "standard", *standard, "--max-steps", "2")
    assert [row["loss"] for row in rows] == pytest.approx([row["loss"] for row in expected], rel=1e-6)
    assert [row["grad_norm"] for row in rows] == pytest.approx([row["grad_norm"] for row in expected], rel=1e-6)


@pytest.mark.slow
def test_train_custom_loss_takes_hyperparameters_and_single_completions(pairs, own, tmp_path):
    runs = [
        train("offline", pairs, tmp_path / beta, "--loss", own("single"), "--beta", beta, "--max-steps", "1")[1][0]
        for beta in ("0.1", "0.2")
    ]
    assert runs[1]["grad_norm"] == pytest.approx(2 * runs[0]["grad_norm"], rel=1e-5)
    assert load_run_spec(tmp_path / "0.2").recipe.options()["beta"] == 0.2


@pytest.mark.parametrize(
    ("name", "facts"),
    [
        ("mean", {"problem": "shape", "value": ()}),
        ("broken", {"problem": "fails", "value": "AttributeError", "line": 15}),
        ("two", {"problem": "parameters"}),
        ("nothing", {"problem": "unknown", "value": "nothing"}),
    ],
)
def test_train_custom_loss_is_refused_before_anything_is_written(name, facts, pairs, own, tmp_path):
    with raises(UserError, **facts):
        train("offline", pairs, tmp_path / "run", "--loss", own(name))
    assert not (tmp_path / "run").exists()


@pytest.mark.slow
def test_train_reward_custom_loss_without_a_gradient_is_refused(pairs, own, tmp_path):
    with raises(UserError, argument="loss", problem="no gradient"):
        train("reward", pairs, tmp_path / "run", "--loss", own("constant"), "--max-steps", "1")


# -- toy tasks ---------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_toy_task_with_a_grader_of_ones_own_and_evaluation_by_name(own, tmp_path):
    argv = ["train", "grpo", "--task", "shell_game", "--max-steps", "1", "--batch-size", "2", "--out"]
    assert dispatch([*argv, str(tmp_path / "run"), "--grader", own("grade")]) == 0
    graded = json.loads((tmp_path / "run" / "config.json").read_text())["depends"]["grader"]
    assert graded.startswith("grade in a file")
    out = tmp_path / "numbers.json"
    assert (
        dispatch(["evaluate", str(tmp_path / "run"), "--task", "shell-game", "--limit", "8", "--json", str(out)]) == 0
    )
    numbers = json.loads(out.read_text())
    assert len(numbers["grades"]) == 8 and numbers["measured on"]["grader"] == "shell_game"
    with raises(UserError, argument="--data", problem="exclusive"):
        dispatch(["evaluate", str(tmp_path / "run"), "--task", "shell_game", "--data", "x"])
    with raises(UserError, argument="task", value="shell_gama", expected="shell_game"):
        dispatch(["evaluate", str(tmp_path / "run"), "--task", "shell_gama"])
