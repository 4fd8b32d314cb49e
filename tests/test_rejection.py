"""Rejection sampling: what is kept, what is imitated, rounds against the exact best-of-n, resume, and the command."""

import copy
import json
import math
import os
import signal

import pytest
import torch
from facts import raises

from minirlhf.core import exact
from minirlhf.core.errors import UserError
from minirlhf.data import loaders
from minirlhf.data.chat import conversation, end_tokens
from minirlhf.data.collate import batch_indices
from minirlhf.data.records import Problem
from minirlhf.data.toys import poem_critic
from minirlhf.equations.estimators import best_of_n_distribution
from minirlhf.models import checkpoints
from minirlhf.models.heads import RewardModel
from minirlhf.models.loading import load_folder
from minirlhf.models.tiny import tiny_model
from minirlhf.models.tokenizers import word_tokenizer
from minirlhf.recipes.parts import ScoredRollout
from minirlhf.trainers import rejection
from minirlhf.trainers.config import RejectionConfig
from minirlhf.trainers.loop import TrainingLoop
from minirlhf.trainers.online import PromptDataset
from minirlhf.trainers.rejection import select_best, train_rejection, train_rejection_in_env
from minirlhf.trainers.toy import EnumerableEnv
from minirlhf_cli import dispatch, main

WORDS = word_tokenizer(["cats", "dogs", "birds", "say", "purr"])
PROBLEMS = [Problem(conversation(f"say {name}"), name) for name in ("cats", "dogs", "birds", "purr")]
SHORT = RejectionConfig(
    max_steps=6, steps_per_round=3, num_prompts=4, num_generations=4, batch_size=4, max_completion_length=4
)


def length(problems, completions):
    return [float(len(c.split())) for c in completions]


class Table:
    """A rollout of which only the number of completions to a prompt matters."""

    def __init__(self, rewards):
        self.num_generations = rewards.shape[1]


def graded(rewards, valid=None):
    rewards = torch.tensor(rewards)
    return ScoredRollout(
        Table(rewards), rewards, torch.ones_like(rewards, dtype=torch.bool) if valid is None else valid
    )


def chosen(selection, found, **more):
    return select_best(
        found, RejectionConfig(num_prompts=2, num_generations=3, selection=selection, **more), 0
    ).tolist()


def test_kept_selects_per_prompt_overall_or_random():
    table = graded([[0.0, 2.0, 2.0], [5.0, 4.0, 3.0]])
    assert chosen("per_prompt", table) == [1, 3]
    assert chosen("overall", table) == [3, 4]
    assert chosen("overall", table, keep=4) == [3, 4, 5, 1]
    random = chosen("random", table, keep=6)
    assert sorted(random) == list(range(6)) and chosen("random", table, keep=6) == random


def test_kept_leaves_out_ungraded():
    valid = torch.tensor([[False, False, False], [True, False, True]])
    table = graded([[9.0, 9.0, 9.0], [-7.0, 9.0, -8.0]], valid)
    assert chosen("per_prompt", table) == [3], "a prompt without a graded reply has no best one"
    assert chosen("overall", table, keep=5) == [3, 5]
    assert set(chosen("random", table, keep=6)) == {3, 5}
    assert len(chosen("random", table, keep=2)) == 2, "the control keeps as many as it is compared with"
    with raises(UserError, argument="rewards", problem="empty"):
        chosen("overall", graded([[1.0]], torch.tensor([[False]])))


def poem(config):
    """The distribution over the replies after each round."""
    world = poem_critic()
    policy = copy.deepcopy(world.reference)
    laws = []
    for rounds in range(1, config.max_steps // config.steps_per_round + 1):
        policy = copy.deepcopy(world.reference)
        played = EnumerableEnv(policy, world.reference, {"reward": world.rewards[None]})
        few = RejectionConfig(**{**vars(config), "max_steps": rounds * config.steps_per_round})
        train_rejection_in_env(policy, played, few, quiet=True)
        laws.append(policy.distribution()[0].detach())
    return world, laws


@pytest.mark.slow
def test_rejection_rounds_approach_best_of_n_of_power():
    """With many samples a round; three seeds would do, as the distance is a tenth of the step between two rounds."""
    config = RejectionConfig(
        max_steps=80, steps_per_round=40, num_prompts=2_000, num_generations=4, batch_size=2_000, learning_rate=0.1,
        max_completion_length=3,
    )  # fmt: skip
    world, laws = poem(config)
    ref = world.reference.distribution()[0].detach()
    for law, n in zip(laws, (4, 16), strict=True):
        exactly = best_of_n_distribution(ref, world.rewards, n=n)
        assert float(exact.expectation(law, world.rewards)) == pytest.approx(
            float(exact.expectation(exactly, world.rewards)), abs=0.08
        )
        assert float((law - exactly).abs().sum() / 2) < 0.1 < float((law - ref).abs().sum() / 2)


def test_rejection_loss_is_mean_over_kept_tokens():
    def first_is_best(problems, completions):
        return [float(i % 4 == 0) for i in range(len(completions))]

    config = RejectionConfig(**{**vars(SHORT), "max_steps": 1})
    policy = tiny_model("nano", WORDS, seed=0)
    world = PromptDataset(PROBLEMS, first_is_best, WORDS, {}, 0.0, end_tokens(WORDS, policy))
    drawn = world.generate_and_score(policy, config, world.sample_prompts(4, 0, 0), step=0, seed=0, version=0).rollout
    first = drawn.select(torch.arange(0, 16, 4))
    history = train_rejection(policy, PROBLEMS, first_is_best, config, tokenizer=WORDS, quiet=True)
    assert history.last["loss"] == pytest.approx(float(-first.old_logps.sum() / first.mask.sum()), rel=1e-5)
    assert history.last["tokens"] == int(first.mask.sum())
    assert (history.last["reward"], history.last["reward_kept"], history.last["prompts_kept"]) == (0.25, 1.0, 4)


def watched_run(monkeypatch, problems, **changed):
    """What a run without learning has picked, drawn and kept, round by round, and the version of the model that drew."""
    seen = {"picked": [], "drawn": [], "kept": [], "versions": [], "batches": []}

    class Watched(PromptDataset):
        def sample_prompts(self, *asked):
            seen["picked"].append(super().sample_prompts(*asked))
            return seen["picked"][-1]

        def generate_and_score(self, *asked, **more):
            found = super().generate_and_score(*asked, **more)
            seen["versions"].append(more["version"])
            seen["drawn"].append(found.rollout.completion_ids.tolist())
            return found

    def noted(*asked):
        rows = select_best(*asked)
        seen["kept"].append(rows.tolist())
        return rows

    def batch(*asked):
        rows = batch_indices(*asked)
        seen["batches"].append(rows.tolist())
        return rows

    monkeypatch.setattr(rejection, "select_best", noted)
    monkeypatch.setattr(rejection, "batch_indices", batch)
    policy = tiny_model("nano", WORDS, seed=0)
    world = Watched(problems, length, WORDS, {}, 0.0, end_tokens(WORDS, policy))
    settings = {"max_steps": 4, "steps_per_round": 2, "num_generations": 16, "learning_rate": 1e-9, **changed}
    train_rejection_in_env(policy, world, RejectionConfig(**{**vars(SHORT), **settings}), quiet=True)
    return seen


def test_rejection_rounds_take_each_prompt_once(monkeypatch):
    seen = watched_run(monkeypatch, PROBLEMS, num_prompts=2)
    assert [len(picked) for picked in seen["picked"]] == [2, 2]
    assert sorted([*seen["picked"][0], *seen["picked"][1]]) == [0, 1, 2, 3]
    assert seen["versions"] == [0, 2], "the optimizer steps before the round"


def test_rejection_rounds_sample_and_select_anew(monkeypatch):
    """The same prompt in all places, and a model that stays as it is: rounds differ in their draws only."""
    seen = watched_run(monkeypatch, PROBLEMS[:1] * 4, num_prompts=4, selection="random", keep=32)
    assert seen["drawn"][0] != seen["drawn"][1]
    assert seen["kept"][0] != seen["kept"][1], "two choices of 32 out of 64"
    assert seen["batches"][0] != seen["batches"][2], "the first steps of both rounds"


def test_rejection_exact_metrics_follow_update_for_any_micro_batch():
    world = poem_critic()
    config = RejectionConfig(
        max_steps=1,
        steps_per_round=1,
        num_prompts=8,
        num_generations=4,
        batch_size=8,
        learning_rate=0.1,
        max_completion_length=3,
    )
    ended = []
    for micro in (None, 1):
        policy = copy.deepcopy(world.reference)
        played = EnumerableEnv(policy, world.reference, {"reward": world.rewards[None]})
        small = RejectionConfig(**{**vars(config), "micro_batch_size": micro})
        history = train_rejection_in_env(policy, played, small, quiet=True)
        law = policy.distribution()[0].detach()
        assert history.last["exact_reward"] == pytest.approx(float(exact.expectation(law, world.rewards)), abs=1e-6)
        ended.append(law)
    torch.testing.assert_close(*ended)


@pytest.mark.parametrize(
    ("changed", "facts"),
    [
        ({"selection": "best"}, {"argument": "selection", "problem": "unknown"}),
        ({"keep": 3}, {"argument": "keep", "value": 3, "expected": 0}),
        ({"keep": 99, "selection": "overall"}, {"argument": "keep", "expected": 16}),
        ({"steps_per_round": 0}, {"argument": "steps_per_round", "expected": 1}),
        ({"num_prompts": 0}, {"argument": "num_prompts", "expected": 1}),
    ],
)
def test_rejection_config_refuses_bad_settings(changed, facts):
    with raises(UserError, **facts):
        RejectionConfig(**{**vars(SHORT), **changed})


@pytest.mark.slow
def test_cli_train_rs_writes_metrics_of_rounds(tmp_path):
    out = tmp_path / "run"
    argv = ["train", "rs", "--task", "sort_digits", "--out", str(out), "--max-steps", "2", "--steps-per-round", "1"]
    argv += ["--num-prompts", "4", "--batch-size", "4", "--num-generations", "2"]
    assert main(argv) == 0
    rows = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    assert len(rows) == 2 and all(math.isfinite(row["reward_kept"]) for row in rows)
    with raises(UserError, argument="keep"):
        dispatch([*argv, "--keep", "3"])


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """A model, a reward model, a file of prompts with answers, and a grader of one's own."""
    where = tmp_path_factory.mktemp("rs")
    checkpoints.save(where / "model", tiny_model("nano", WORDS, seed=0), WORDS)
    checkpoints.save(where / "judge", RewardModel(tiny_model("nano", WORDS, seed=1)), WORDS)
    names = ("cats", "dogs", "birds", "purr") * 3
    rows = [{"prompt": f"say {name} {'say ' * i}", "answer": name} for i, name in enumerate(names)]
    (where / "prompts.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (where / "mine.py").write_text("def words(completion, reference):\n    return float(len(completion.split()))\n")
    return where


@pytest.mark.slow
@pytest.mark.parametrize(("ends", "judged_by"), [("is interrupted", "--grader"), ("dies", "--reward-model")])
def test_cli_train_rs_resumes_within_round_to_same_bits(files, tmp_path, monkeypatch, ends, judged_by):
    """Rounds of three steps; the run is stopped after the fifth, in the middle of the second round."""
    judge = {"--grader": f"{files}/mine.py:words", "--reward-model": str(files / "judge")}[judged_by]

    def train(out, *more):
        asked = ["train", "rs", "--model", f"{files}/model", "--data", f"{files}/prompts.jsonl", judged_by, judge]
        size = {"max-steps": 8, "steps-per-round": 3, "num-prompts": 4, "num-generations": 4, "batch-size": 2,
                "max-completion-length": 4, "learning-rate": 0.01, "save-steps": 2}  # fmt: skip
        flags = [word for key, value in size.items() for word in (f"--{key}", str(value))]
        return main([*asked, *flags, "--out", str(tmp_path / out), *more])

    def outcome(out):
        model, _ = load_folder(tmp_path / out / "model")
        rows = [json.loads(line) for line in (tmp_path / out / "metrics.jsonl").read_text().splitlines()]
        return model.state_dict(), rows

    assert train("whole") == 0
    update = TrainingLoop.update

    def stopped(self, *losses, **more):
        if self.step == 4 and ends == "dies":
            raise RuntimeError("the power went")
        if self.step == 4:
            os.kill(os.getpid(), signal.SIGINT)
        return update(self, *losses, **more)

    with monkeypatch.context() as patched:
        patched.setattr(TrainingLoop, "update", stopped)
        if ends == "dies":
            with pytest.raises(RuntimeError):
                train("parts")
        else:
            assert train("parts") == 130
    assert not (tmp_path / "parts" / "model").exists()
    assert train("parts", "--resume") == 0
    (weights, rows), (again, others) = outcome("whole"), outcome("parts")
    assert weights.keys() == again.keys() and all(torch.equal(weights[key], again[key]) for key in weights)
    assert rows == others and [row["step"] for row in rows if "reward_kept" in row] == [1, 4, 7]
    first, _ = load_folder(files / "model")
    assert any(not torch.equal(weights[key], value) for key, value in first.state_dict().items())


# -- best of n of a file -------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A model, prompts and a grader that fails on one prompt."""
    where = tmp_path_factory.mktemp("bestofn")
    checkpoints.save(where / "model", tiny_model("nano", WORDS, seed=0), WORDS)
    rows = [{"prompt": f"say {name}", "answer": name} for name in ("cats", "dogs", "birds")]
    (where / "prompts.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (where / "mine.py").write_text(
        "def words(completion, reference):\n"
        "    if reference == 'birds':\n        raise ValueError('no birds')\n"
        "    return float(len(completion.split()))\n"
    )
    return where


def bestofn(folder, *more):
    data = str(folder / "prompts.jsonl")
    return dispatch(
        ["evaluate", "bestofn", str(folder / "model"), "--data", data, "--max-completion-length", "4", *more]
    )


def test_cli_bestofn_writes_best_replies_and_curve(folder, capsys, tmp_path):
    out = tmp_path / "best.jsonl"
    argv = ("--grader", f"{folder}/mine.py:words", "--num-generations", "3", "--out", str(out))
    assert bestofn(folder, *argv) == 0
    printed = [line.split() for line in capsys.readouterr().out.splitlines()]
    rows = [json.loads(line) for line in out.read_text().splitlines()]
    assert [row["messages"][0]["content"] for row in rows] == ["say cats", "say dogs"]  # birds cannot be graded
    for row in rows:
        assert row["score"] == len(row["messages"][1]["content"].split()) >= row["mean_score"]
    curve = {words[0]: words for words in printed if words and words[0] in ("1", "2", "3") and len(words) > 4}
    assert float(curve["1"][1]) == pytest.approx(sum(row["mean_score"] for row in rows) / 2, abs=1e-3)
    assert float(curve["3"][1]) == pytest.approx(sum(row["score"] for row in rows) / 2, abs=1e-3)  # n = N is the best
    assert "0.432" in curve["3"]  # log 3 − 2/3 nats
    with raises(UserError, argument="--out", problem="exists"):
        bestofn(folder, *argv)
    assert loaders.load(str(out)).conversations(), "what is written can be learned from"


@pytest.mark.parametrize(
    ("more", "facts"),
    [
        (("--num-generations", "0"), {"argument": "--num-generations", "value": 0, "expected": 1}),
        (("--temperature", "0"), {"argument": "--num-generations", "value": 8, "expected": 1}),
        ((), {"argument": "--grader"}),
    ],
)
def test_cli_bestofn_refuses_bad_options(folder, more, facts):
    with raises(UserError, **facts):
        bestofn(folder, *more)
