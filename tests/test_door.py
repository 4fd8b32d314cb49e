"""What ``import minirlhf`` gives: names, their homes and examples; the losses that trainers call; lines of a notebook."""

import ast
import copy
import doctest
import importlib
import re
import runpy
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from facts import raises

import minirlhf as rl
from minirlhf import losses, notebook
from minirlhf.core.errors import ArgumentError, UserError
from minirlhf.data.records import Comparison, Problem
from minirlhf.data.tasks.assistant import ASSISTANT
from minirlhf.models.tiny import tiny_model
from minirlhf.models.tokenizers import word_tokenizer
from minirlhf.recipes import RECIPES
from minirlhf.recipes.offline import PREFERENCES

ROOT = Path(__file__).parents[1]
NAMES = [name for name in rl.__all__ if name != "__version__"]


@pytest.fixture
def untrained():
    """A model with random weights that knows the words of the assistant's world, and its tokenizer."""
    tokenizer = word_tokenizer(ASSISTANT.words)
    return tiny_model("nano", tokenizer, seed=0), tokenizer


# -- names -------------------------------------------------------------------------------------------------------


def test_import_minirlhf_loads_no_other_module():
    code = (
        "import sys, minirlhf; print([m for m in sys.modules if m.startswith('minirlhf.') or m in ('torch', 'numpy')])"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "[]"


def test_door_stub_says_what_the_door_gives():
    tree = ast.parse((ROOT / "minirlhf" / "__init__.pyi").read_text(encoding="utf-8"))
    said = {
        alias.asname: f"{node.module}.{alias.name}"
        for node in tree.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    assert said == {name: f"minirlhf.{rl._HOME_OF[name]}.{name}" for name in NAMES}


def test_door_names_are_those_of_their_homes_and_documented():
    for name in NAMES:
        value = getattr(rl, name)
        assert value is getattr(importlib.import_module(f"minirlhf.{rl._HOME_OF[name]}"), name)
        assert name in dir(rl) and value.__doc__, name


def test_door_has_every_recipe_and_every_loss():
    rows = {row.name.upper() for row in (*RECIPES.values(), *PREFERENCES.values())}
    public = {name for name, value in vars(losses).items() if getattr(value, "__module__", "") == losses.__name__}
    found = rows | {name for name in public if not name.startswith("_")} | set(notebook.__all__)
    assert found - set(NAMES) == set(), "give these a home in minirlhf/__init__.py and __init__.pyi"


def test_door_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="dpo_los"):
        _ = rl.dpo_los


@pytest.mark.parametrize("module", [losses, notebook])
def test_door_examples_in_docstrings_hold(module, untrained, capsys):
    """With an untrained model in place of the one that ``load`` would train first."""
    names = {name: getattr(rl, name) for name in NAMES} | {
        "torch": torch,
        "load": lambda name: copy.deepcopy(untrained),
    }
    tests = doctest.DocTestFinder(exclude_empty=False).find(module, extraglobs=names)
    public = {f"{module.__name__}.{name}" for name in NAMES if module.__name__ == f"minirlhf.{rl._HOME_OF[name]}"}
    assert public - {"minirlhf.notebook.task"} <= {test.name for test in tests if test.examples}
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS)
    with capsys.disabled():
        for test in tests:
            runner.run(test)
    assert runner.summarize().failed == 0


# -- losses ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["reinforce", "grpo", "dr_grpo", "dapo", "gspo", "cispo"])
def test_policy_loss_of_the_door_is_its_recipes(name, suite_seed):
    """On a ragged batch: the objective and the weights of the row of the same name."""
    draw = torch.Generator().manual_seed(suite_seed)
    logps, old_logps, ref_logps = (-torch.rand(3, 5, generator=draw, dtype=torch.float64) for _ in range(3))
    mask = torch.arange(5) < torch.tensor([[5], [2], [3]])
    advantages = torch.randn(3, 1, generator=draw, dtype=torch.float64).expand(3, 5)
    update = RECIPES[name].filled(max_completion_length=8).update
    weights = update.weights(mask)
    expected = -(weights * mask * update.objective(logps, old_logps, advantages, mask)).sum()
    given = {
        "dr_grpo": {"max_completion_length": 8},
        "grpo": {"ref_logps": ref_logps, "beta": update.kl and update.kl.beta},
    }
    if name == "grpo":
        expected += update.kl.beta * (weights * mask * ((ref_logps - logps).exp() - 1 - (ref_logps - logps))).sum()
    inputs = (logps, advantages, mask) if name == "reinforce" else (logps, old_logps, advantages, mask)
    found = getattr(rl, f"{name}_loss")(*inputs, **given.get(name, {}))
    assert found.shape == () and float(found) == pytest.approx(float(expected), rel=1e-12)


@pytest.mark.parametrize("name", ["dpo", "ipo", "simpo", "orpo", "kto"])
def test_preference_loss_of_the_door_is_its_recipes(name, suite_seed):
    draw = torch.Generator().manual_seed(suite_seed)
    logps = [-5 - 5 * torch.rand(4, generator=draw, dtype=torch.float64) for _ in range(4)]
    lengths, up = torch.tensor([3, 5, 4, 6]), torch.tensor([True, False, True, True])
    row = PREFERENCES[name].loss
    if name == "kto":
        point = torch.tensor(0.3, dtype=torch.float64)
        expected, found = row(rl.UnpairedLogps(*logps[:2], None, up), point), rl.kto_loss(*logps[:2], up, point)
    elif name in ("simpo", "orpo"):
        pair = rl.PairLogps(*logps[:2], chosen_lengths=lengths, rejected_lengths=lengths + 1)
        expected, found = row(pair), getattr(rl, f"{name}_loss")(*logps[:2], lengths, lengths + 1)
    else:
        expected, found = row(rl.PairLogps(*logps)), getattr(rl, f"{name}_loss")(*logps)
    assert found.shape == () and float(found) == pytest.approx(float(expected.mean()), rel=1e-12)


def test_losses_of_a_split_batch_add_up(suite_seed):
    draw = torch.Generator().manual_seed(suite_seed)
    logps, advantages = -torch.rand(4, 3, generator=draw), torch.randn(4, 3, generator=draw)
    mask = torch.arange(3) < torch.tensor([[3], [1], [2], [3]])
    weights = torch.rand(4, 3, generator=draw)
    halves = [slice(0, 1), slice(1, 4)]
    of = lambda rows: rl.grpo_loss(logps[rows], logps[rows] - 0.1, advantages[rows], mask[rows], weights=weights[rows])
    assert float(sum(of(rows) for rows in halves)) == pytest.approx(float(of(slice(0, 4))), rel=1e-5)
    parts = [rl.reward_loss(logps[rows, 0], logps[rows, 1], batch_size=4) for rows in halves]
    assert float(sum(parts)) == pytest.approx(float(rl.reward_loss(logps[:, 0], logps[:, 1])), rel=1e-5)


def test_policy_loss_without_what_a_coefficient_needs_raises():
    x, mask = torch.zeros(1, 2), torch.ones(1, 2, dtype=torch.bool)
    with raises(ArgumentError, argument="ref_logps", problem="missing"):
        rl.grpo_loss(x, x, x, mask, beta=0.1)
    with raises(ArgumentError, argument="entropies", problem="missing"):
        rl.policy_loss(x, x, x, mask, entropy_coef=0.1)


def test_policy_loss_entropy_bonus_is_subtracted():
    x, mask = torch.zeros(1, 2), torch.tensor([[True, True]])
    assert float(rl.policy_loss(x, x, x, mask, entropies=torch.ones(1, 2), entropy_coef=0.1)) == pytest.approx(-0.1)


# -- a notebook, a README, a page -------------------------------------------------------------------------------------------------


def shortened(monkeypatch, untrained, folder):
    """What stands on pages, run with an untrained model and for three steps."""
    train = rl.train
    monkeypatch.chdir(folder)
    monkeypatch.setattr(rl, "load", lambda name: copy.deepcopy(untrained))
    monkeypatch.setattr(
        rl, "train", lambda *given, **settings: train(*given, **{**settings, "max_steps": 3}, quiet=True)
    )


@pytest.mark.slow
@pytest.mark.parametrize("name", ["own_loss", "own_reward"])
def test_example_of_ones_own_runs(name, monkeypatch, untrained, tmp_path):
    shortened(monkeypatch, untrained, tmp_path)
    text = (ROOT / "examples" / f"{name}.py").read_text(encoding="utf-8")
    code = [line for line in text.splitlines() if line.strip() and not line.strip().startswith(("#", '"""'))]
    assert len(code) <= 25
    runpy.run_path(str(ROOT / "examples" / f"{name}.py"))
    assert (tmp_path / f"{name}.png").stat().st_size > 10_000


@pytest.mark.slow
def test_readme_python_runs(monkeypatch, untrained, tmp_path):
    shortened(monkeypatch, untrained, tmp_path)
    names = {}
    for block in re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(encoding="utf-8"), re.S):
        exec(block, names)
    assert len(names["history"]) == 3


@rl.Needs(rl.PairLogps)
def squared(pair, *, beta=0.1):
    """A loss of a reader's own: half the squared distance of the scaled margin from 1."""
    return 0.5 * (beta * pair.margins - 1) ** 2


@pytest.mark.slow
def test_train_own_preference_loss_beside_dpo(untrained, suite_seed):
    pairs = rl.sample_pairs(rl.task("assistant"), 32, seed=suite_seed)
    model, tokenizer = untrained
    runs = {
        name: rl.train(copy.deepcopy(model), tokenizer, pairs, loss, max_steps=4, batch_size=32, quiet=True)
        for name, loss in {"DPO": rl.DPO, "mine": squared}.items()
    }
    assert runs["mine"]["loss"][0] == pytest.approx(0.5, rel=1e-5) and runs["mine"]["loss"][-1] < 0.49
    figure = rl.plot(runs, "accuracy", "margin")
    assert [ax.get_title() for ax in figure.axes] == ["accuracy", "margin"]
    assert [len(ax.lines) for ax in figure.axes] == [2, 2]


@pytest.mark.slow
def test_train_own_reward_with_grpo_raises_it(untrained):
    model, tokenizer = untrained
    says_cats = lambda problems, completions: [float("cats" in text.split()) for text in completions]
    prompts = ["tell me about cats", "tell me about dogs"]
    settings = {"max_steps": 12, "batch_size": 4, "learning_rate": 3e-3, "max_completion_length": 6}
    before = rl.evaluate(model, tokenizer, prompts, says_cats, max_completion_length=6)
    history = rl.train(model, tokenizer, prompts, rl.GRPO, says_cats, num_generations=16, quiet=True, **settings)
    assert len(history) == 12 and before.rewards.shape == (2,)
    assert sum(history["reward"][-3:]) / 3 > 0.5 > history["reward"][0]


@pytest.mark.parametrize(
    ("recipe", "data"),
    [
        (rl.sft_loss, [{"prompt": "say dogs", "completion": "dogs"}]),
        (rl.dpo_loss, [{"prompt": "say dogs", "chosen": "dogs", "rejected": "cats"}]),
        (rl.KTO, [{"prompt": "say dogs", "completion": w, "label": w == "dogs"} for w in ("dogs", "cats")]),
        (rl.DPO, [Comparison(*([{"role": r, "content": t}] for r, t in (("user", "say"), ("assistant", "a"), ("assistant", "i"))))]),
        (rl.grpo_loss, ASSISTANT),
        (rl.RLOO.with_(beta=0.1), ASSISTANT),
    ],
    ids=["sft_loss", "dpo_loss", "KTO", "DPO", "grpo_loss", "RLOO"],
)  # fmt: skip
def test_train_takes_recipe_and_data(recipe, data, untrained):
    settings = {} if isinstance(data, list) else {"num_generations": 2}
    history = rl.train(*untrained, data, recipe, max_steps=1, batch_size=2, quiet=True, **settings)
    assert len(history) == 1


def test_train_writes_its_run(untrained, tmp_path):
    rl.train(
        *untrained, [{"prompt": "say dogs", "completion": "dogs"}], rl.sft_loss, max_steps=1, out=tmp_path, quiet=True
    )
    assert (tmp_path / "metrics.jsonl").is_file()


ROWS = [{"prompt": "say dogs", "chosen": "dogs", "rejected": "cats"}]


@pytest.mark.parametrize(
    ("given", "error", "facts"),
    [
        ((["say dogs"], rl.GRPO), UserError, {"argument": "reward", "problem": "missing"}),
        ((ASSISTANT, rl.DPO), UserError, {"argument": "data", "value": "assistant"}),
        ((ROWS, rl.DPO, len), UserError, {"argument": "reward", "value": "dpo"}),
        ((ROWS, "dpo"), ArgumentError, {"argument": "recipe", "value": "dpo"}),
        ((ROWS, torch.mean), ArgumentError, {"argument": "loss", "problem": "not declared"}),
        (([{"prompt": "say dogs", "chosen": "dogs"}], rl.DPO), UserError, {"argument": "format"}),
        (([], rl.DPO), UserError, {"argument": "rows", "problem": "empty"}),
    ],
    ids=["no reward", "prompts for DPO", "reward for DPO", "a text", "a function", "half a pair", "no rows"],
)
def test_train_says_what_is_wrong(given, error, facts, untrained):
    with raises(error, **facts):
        rl.train(*untrained, *given, quiet=True)


def test_train_unknown_setting_names_the_nearest(untrained):
    with raises(UserError, value="max_step", expected="max_steps"):
        rl.train(*untrained, ROWS, rl.DPO, max_step=3)
    with raises(UserError, value="temperatur", expected="temperature"):
        rl.generate(*untrained, "say dogs", temperatur=0.5)


def test_generate_gives_a_list_for_each_prompt(untrained):
    one = rl.generate(*untrained, "say dogs", num_generations=3, max_completion_length=4, seed=1)
    several = rl.generate(*untrained, ["say dogs", "say cats"], num_generations=3, max_completion_length=4, seed=1)
    assert len(one) == 3 and several[0] == one and len(several) == 2
    assert one == rl.generate(*untrained, "say dogs", num_generations=3, max_completion_length=4, seed=1)


def test_evaluate_task_measures_test_prompts(untrained):
    model, tokenizer = untrained
    measured = rl.evaluate(model, tokenizer, rl.task("assistant"), limit=5, ref_model=model)
    assert [problem.prompt[0]["content"] for problem in measured.problems] == ASSISTANT.prompts("test")[:5]
    assert measured.divergence.mean == pytest.approx(0.0, abs=1e-6)
    with raises(UserError, argument="reward", problem="missing"):
        rl.evaluate(model, tokenizer, [Problem([{"role": "user", "content": "say dogs"}])])


def test_verify_unknown_label_names_the_nearest():
    with raises(UserError, value="eq:k33"):
        rl.verify("eq:k33")
