"""`minirlhf explain`: its numbers against the recipe's definition, its table, page and figure, and wrong requests."""

import json
import re

import pytest
import torch
from facts import raises

from minirlhf import recipes
from minirlhf.core.errors import UserError
from minirlhf.data.chat import conversation
from minirlhf.data.formats import Problem
from minirlhf.models import checkpoints
from minirlhf.models.tiny import tiny_model
from minirlhf.models.tokenizers import word_tokenizer
from minirlhf.trainers import samples
from minirlhf.trainers.history import History
from minirlhf.trainers.online import OnlineConfig, train_online
from minirlhf_cli import dispatch
from minirlhf_course.report import explain

PROBLEMS = [Problem(conversation(text)) for text in ("go", "stop", "go one", "go two")]


def likes_two(problems, completions):
    return [float(text.split().count("two")) for text in completions]


def train(name, out, steps=3, **changes):
    tokenizer = word_tokenizer(("one", "two", "three", "go", "stop"))
    config = OnlineConfig(
        max_steps=steps,
        batch_size=2,
        num_generations=4,
        max_completion_length=5,
        learning_rate=2e-2,
        num_logged_samples=8,
    )
    recipe = recipes.get(name).with_(**changes)
    policy = tiny_model("nano", tokenizer, seed=1)
    history = train_online(policy, PROBLEMS, likes_two, recipe, config, tokenizer=tokenizer, out=out, quiet=True)
    return recipe, history


@pytest.fixture(scope="module")
def ppo(tmp_path_factory):
    """A run with several passes, fast enough to clip."""
    out = tmp_path_factory.mktemp("explain") / "ppo"
    recipe, history = train("ppo", out, num_iterations=3, num_minibatches=1, beta=0.1)
    return out, recipe, history


def columns(step, name):
    """One number of all kept samples, ``(B, T)``, padded with zeros."""
    width = max(len(s.tokens) for s in step.samples)
    return torch.tensor([getattr(s, name) + [0] * (width - len(s.tokens)) for s in step.samples], dtype=torch.float64)


def test_explain_shares_and_clips_follow_from_objective_of_ppo(ppo):
    """Once more from what was kept, with the whole batch at once: derivative of Σ w·objective by every log-probability."""
    out, recipe, history = ppo
    assert samples.steps(out) == [1, 2, 3]
    clipped_somewhere = False
    for number in samples.steps(out):
        step = samples.read(out, number)
        assert len(step.samples) == step.batch == 8 and step.num_generations == 4
        mask = torch.tensor([[t < len(s.tokens) for t in range(columns(step, "logps").shape[1])] for s in step.samples])
        logps = columns(step, "logps").requires_grad_()
        advantages = columns(step, "advantages")
        weights = recipe.update.weights(mask)
        torch.testing.assert_close(weights, columns(step, "weights"), rtol=1e-4, atol=1e-6)
        objective = recipe.update.objective(logps, columns(step, "old_logps"), advantages, mask)
        (push,) = torch.autograd.grad((weights * objective).sum(), logps)
        torch.testing.assert_close(columns(step, "shares"), push.abs() / push.abs().sum(), rtol=1e-3, atol=1e-5)
        assert sum(sum(s.shares) for s in step.samples) == pytest.approx(1, abs=1e-4)
        ratio = (logps.detach() - columns(step, "old_logps")).exp()
        rule = ((advantages > 0) & (ratio > 1.2) | (advantages < 0) & (ratio < 0.8)) & mask
        assert torch.equal(columns(step, "clipped").bool(), rule)
        clipped_somewhere |= bool(rule.any())
    assert clipped_somewhere
    assert history["clip_fraction"][-1] > 0


def test_explain_token_rewards_of_ppo_add_up_to_reward_less_kl(ppo):
    out, _, history = ppo
    step = samples.read(out, 1)  # the policy is its own reference here, so nothing is charged yet
    for sample in step.samples:
        assert sample.rewards == pytest.approx([0.0] * (len(sample.tokens) - 1) + [sample.reward], abs=1e-5)
        assert sample.values == [0.0] * len(sample.tokens)
    last = samples.read(out, 3)
    assert any(abs(sum(s.rewards) - s.reward) > 1e-4 for s in last.samples)
    assert sum(s.reward for s in last.samples) / 8 == pytest.approx(history["reward"][2])


def test_explain_grpo_has_one_advantage_per_sample_and_no_values(tmp_path, capsys):
    train("grpo", tmp_path / "run", steps=2)
    step = samples.read(tmp_path / "run")
    assert step.step == 2 and step.recipe == "grpo"
    for sample in step.samples:
        assert len(set(sample.advantages)) == 1 and sample.values is None and not any(sample.clipped)
    assert dispatch(["explain", str(tmp_path / "run"), "--sample", "2"]) == 0
    shown = capsys.readouterr().out
    assert " value " not in shown.splitlines()[3]
    rows = shown.splitlines()[4:]
    assert [row.split()[0] for row in rows] == [t.strip() for t in step.samples[2].tokens]
    assert [float(re.search(r"\s([+-]\d\.\d{3})\s+1\.000", row).group(1)) for row in rows] == pytest.approx(
        step.samples[2].advantages, abs=1e-3
    )


def test_steps_are_numbered_alike_in_metrics_samples_checkpoints_and_messages(tmp_path, capsys):
    rows, out = tmp_path / "rows.jsonl", tmp_path / "run"
    rows.write_text("".join(json.dumps({"prompt": f"say {w}", "answer": "1"}) + "\n" for w in ("a", "b", "c")))
    argv = ["train", "grpo", "--data", str(rows), "--grader", "numeric", "--out", str(out), "--max-steps", "2"]
    argv += ["--batch-size", "2", "--num-generations", "2", "--max-completion-length", "4", "--save-steps", "1"]
    assert dispatch(argv) == 0
    assert "step 1 of 2" in capsys.readouterr().err
    assert History.read(out)["step"] == [1, 2] == samples.steps(out) == checkpoints.steps(out)
    assert dispatch(["explain", str(out), "--step", "2"]) == 0
    assert capsys.readouterr().out.startswith("Step 2,")


def test_explain_page_is_self_contained(ppo, tmp_path, capsys):
    out, _, _ = ppo
    page, picture = tmp_path / "page.html", tmp_path / "figure.png"
    assert dispatch(["explain", str(out), "--step", "2", "--html", str(page), "--figure", str(picture)]) == 0
    assert picture.read_bytes()[:4] == b"\x89PNG"
    text = page.read_text(encoding="utf-8")
    assert not re.search(r'(src|href)="(?!data:)', text)
    sample = samples.read(out, 2).samples[0]
    assert text.count("<tr") == 1 + len(sample.tokens)
    for name in ("value", "advantage", "ratio", "clipped", "weight", "share"):
        assert f">{name}</th>" in text
    for row in explain.rows(sample):
        assert row["share"] in text


def test_explain_summary_of_ungraded_sample_differs(ppo):
    step = samples.read(ppo[0], 1)
    sample = samples.Sample(**{**vars(step.samples[0]), "valid": False})
    changed = samples.StepSamples(step.step, step.recipe, step.batch, step.num_generations, [sample])
    assert explain.summary(changed, 0) != explain.summary(step, 0)


@pytest.mark.parametrize(
    ("argv", "facts"),
    [
        (["RUN", "--step", "7"], {"argument": "step", "value": 7, "expected": (1, 3)}),
        (["RUN", "--sample", "8"], {"argument": "--sample", "value": 8, "expected": (0, 7)}),
        (["RUN", "--sample", "-1"], {"argument": "--sample", "value": -1}),
        (["nowhere"], {"argument": "num_logged_samples", "problem": "missing", "file": "nowhere"}),
        (["RUN", "--figure", "no/such/folder.png"], {"problem": "not writable", "file": "no/such/folder.png"}),
    ],
)
def test_explain_bad_request_raises_user_error(ppo, argv, facts):
    with raises(UserError, **facts):
        dispatch(["explain", *(str(ppo[0]) if a == "RUN" else a for a in argv)])


def test_samples_read_damaged_record_raises_user_error(tmp_path):
    path = samples.file_of(tmp_path, 3)
    path.parent.mkdir()
    for text in ("{", json.dumps({"step": 3}), json.dumps([1])):
        path.write_text(text)
        with raises(UserError, problem="unreadable", file=str(path)):
            samples.read(tmp_path)
