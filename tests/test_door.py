"""What ``import minirlhf`` gives: names, their homes and examples; the losses that trainers call; lines of a notebook."""

import ast
import copy
import doctest
import importlib
import math
import re
import runpy
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest
import torch
from facts import raises
from torch.nn.functional import softplus

import minirlhf as rl
import minirlhf_course.notebook
from minirlhf import losses, notebook
from minirlhf.core.errors import ArgumentError, UserError
from minirlhf.data.records import Comparison, Problem
from minirlhf.data.tasks.assistant import ASSISTANT
from minirlhf.data.types import PreferencePair
from minirlhf.equations.preference_losses import records
from minirlhf.models.tiny import tiny_model
from minirlhf.models.tokenizers import word_tokenizer
from minirlhf.recipes import RECIPES
from minirlhf.recipes.offline import PREFERENCES
from minirlhf.trainers.history import History

ROOT = Path(__file__).parents[1]
NAMES = [name for name in rl.__all__ if name != "__version__"]


@pytest.fixture
def untrained():
    """A model with random weights that knows the words of the assistant's world, and its tokenizer."""
    tokenizer = word_tokenizer(ASSISTANT.words)
    return tiny_model("nano", tokenizer, seed=0), tokenizer


@pytest.fixture(autouse=True)
def declared_here_only(monkeypatch):
    """What a test declares as a loss is none of the library's when the next one asks for all of them."""
    monkeypatch.setattr(records, "_DECLARED", dict(records._DECLARED))


def own(loss):
    """A loss of a reader's own, declared as on the book's page."""
    return rl.Needs(rl.PairLogps)(loss)


# -- names -------------------------------------------------------------------------------------------------------


def test_import_minirlhf_loads_no_other_module():
    code = "import sys, minirlhf; print([m for m in sys.modules if m.startswith(('minirlhf.', 'minirlhf_')) or m in ('torch', 'numpy')])"
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
    assert said == {name: f"{rl._HOME_OF[name]}.{name}" for name in NAMES}


def test_door_names_are_those_of_their_homes_and_documented():
    for name in NAMES:
        value = getattr(rl, name)
        assert value is getattr(importlib.import_module(rl._HOME_OF[name]), name)
        assert name in dir(rl) and value.__doc__, name


def test_door_has_every_recipe_and_every_loss():
    rows = {row.name.upper() for row in (*RECIPES.values(), *PREFERENCES.values())}
    public = {name for name, value in vars(losses).items() if getattr(value, "__module__", "") == losses.__name__}
    homeless = (
        rows
        | {name for name in public if not name.startswith("_")}
        | set(notebook.__all__)
        | set(minirlhf_course.notebook.__all__)
    )
    assert homeless - set(NAMES) == set(), "give these a home in minirlhf/__init__.py and __init__.pyi"


def test_door_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError) as caught:
        _ = rl.dpo_los
    assert (caught.value.name, caught.value.obj) == ("dpo_los", rl)  # by which Python finds the nearest
    assert set(dir(rl)) == {"__version__", "losses", "notebook", "recipes", *NAMES}


@pytest.mark.parametrize("module", [losses, notebook, minirlhf_course.notebook])
def test_door_examples_in_docstrings_hold(module, untrained, capsys):
    """With an untrained model in place of the one that ``load`` would train first."""
    names = {name: getattr(rl, name) for name in NAMES} | {
        "torch": torch,
        "load": lambda name: copy.deepcopy(untrained),
    }
    tests = doctest.DocTestFinder(exclude_empty=False).find(module, extraglobs=names)
    public = {f"{module.__name__}.{name}" for name in NAMES if module.__name__ == rl._HOME_OF[name]}
    assert public <= {test.name for test in tests if test.examples}
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS)
    with capsys.disabled():
        for test in tests:
            runner.run(test)
    assert runner.summarize().failed == 0


# -- losses ------------------------------------------------------------------------------------------------------
# Each is written out once more, with loops, and compared in value and gradient at two settings of every keyword.


def by_hand(logps, old, advantages, mask, clipped, weight, ref=None, beta=0.0):
    """``Σ w (−objective + β·k3)`` over the sampled tokens, one after the other."""
    total = 0.0
    for i, row in enumerate(mask.tolist()):
        for t in [t for t, sampled in enumerate(row) if sampled]:
            objective = clipped(torch.exp(logps[i, t] - old[i, t]), advantages[i, t], logps[i, t])
            away = 0.0 if ref is None else ref[i, t] - logps[i, t]
            kl = 0.0 if ref is None else torch.exp(away) - 1 - away
            total = total + weight(mask, i) * (beta * kl - objective)
    return total


def clip(low, high):
    return lambda ratio, a, logp: torch.minimum(ratio * a, ratio.clamp(1 - low, 1 + high) * a)


def over_tokens(mask, i):
    return 1 / int(mask.sum())


def over_sequences(mask, i):
    return 1 / (len(mask) * int(mask[i].sum()))


def gspo_by_hand(logps, old, advantages, mask, low, high):
    total = 0.0
    for i in range(len(mask)):
        ratio = torch.exp((logps[i] - old[i])[mask[i]].mean())
        total = total - torch.minimum(ratio * advantages[i, 0], ratio.clamp(1 - low, 1 + high) * advantages[i, 0])
    return total / len(mask)


def cispo_by_hand(low, high):
    return lambda ratio, a, logp: ratio.detach().clamp(1 - low, 1 + high) * a * logp


#: name, keywords -> the same by hand of (logps, old_logps, advantages, mask, ref_logps).
POLICY = [
    ("reinforce", {}, lambda l, o, a, m, r: by_hand(l, o, a, m, lambda ratio, a, logp: a * logp, over_tokens)),
    ("grpo", {}, lambda l, o, a, m, r: by_hand(l, o, a, m, clip(0.2, 0.2), over_sequences)),
    ("grpo", {"epsilon": 0.1, "epsilon_high": 0.4, "beta": 0.3}, lambda l, o, a, m, r: by_hand(l, o, a, m, clip(0.1, 0.4), over_sequences, r, 0.3)),
    ("grpo", {"beta": 0.04}, lambda l, o, a, m, r: by_hand(l, o, a, m, clip(0.2, 0.2), over_sequences, r, 0.04)),
    ("dr_grpo", {"max_completion_length": 9, "epsilon": 0.3}, lambda l, o, a, m, r: by_hand(l, o, a, m, clip(0.3, 0.3), lambda m, i: 1 / (len(m) * 9))),
    ("dr_grpo", {"max_completion_length": 5, "epsilon_high": 0.5}, lambda l, o, a, m, r: by_hand(l, o, a, m, clip(0.2, 0.5), lambda m, i: 1 / (len(m) * 5))),
    ("dapo", {}, lambda l, o, a, m, r: by_hand(l, o, a, m, clip(0.2, 0.28), over_tokens)),
    ("dapo", {"epsilon": 0.1, "epsilon_high": 0.5}, lambda l, o, a, m, r: by_hand(l, o, a, m, clip(0.1, 0.5), over_tokens)),
    ("gspo", {}, lambda l, o, a, m, r: gspo_by_hand(l, o, a, m, 3e-4, 4e-4)),
    ("gspo", {"epsilon": 0.1, "epsilon_high": 0.2}, lambda l, o, a, m, r: gspo_by_hand(l, o, a, m, 0.1, 0.2)),
    ("cispo", {}, lambda l, o, a, m, r: by_hand(l, o, a, m, cispo_by_hand(1.0, 4.0), over_tokens)),
    ("cispo", {"epsilon": 0.2, "epsilon_high": 0.3}, lambda l, o, a, m, r: by_hand(l, o, a, m, cispo_by_hand(0.2, 0.3), over_tokens)),
]  # fmt: skip


@pytest.fixture
def batch(suite_seed):
    """A ragged batch in float64: log-probabilities now, when sampled and under the reference, advantages, mask."""
    draw = torch.Generator().manual_seed(suite_seed)
    logps = -1 - torch.rand(4, 5, generator=draw, dtype=torch.float64)
    old, ref = (logps + torch.randn(4, 5, generator=draw, dtype=torch.float64) / 3 for _ in range(2))
    advantages = torch.tensor([1.0, -1.0, 0.5, -2.0], dtype=torch.float64)[:, None].expand(4, 5)
    return logps, old, advantages, torch.arange(5) < torch.tensor([[5], [2], [3], [1]]), ref


def same_with_gradient(computed, expected, *inputs):
    assert computed.shape == ()
    torch.testing.assert_close(computed, torch.as_tensor(expected), rtol=1e-9, atol=1e-12)
    for ours, theirs in zip(*(torch.autograd.grad(x, inputs) for x in (computed, expected)), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize(("name", "keywords", "hand"), POLICY, ids=lambda x: x if isinstance(x, str) else "")
def test_policy_loss_of_the_door_is_its_formula(name, keywords, hand, batch):
    """Also with NaN behind the mask, and with no gradient but through the policy's log-probabilities."""
    logps, old, advantages, mask, ref = batch
    given = {**keywords, **({"ref_logps": ref} if "beta" in keywords else {})}
    x = logps.clone().requires_grad_()
    inputs = (x, advantages, mask) if name == "reinforce" else (x, old, advantages, mask)
    same_with_gradient(getattr(rl, f"{name}_loss")(*inputs, **given), hand(x, old, advantages, mask, ref), x)
    dirty = [t.masked_fill(~mask, math.nan).requires_grad_() for t in (logps, old, ref)]
    given |= {"ref_logps": dirty[2]} if "beta" in keywords else {}
    inputs = (dirty[0], advantages, mask) if name == "reinforce" else (*dirty[:2], advantages, mask)
    getattr(rl, f"{name}_loss")(*inputs, **given).backward()
    assert dirty[0].grad.isfinite().all() and dirty[1].grad is None and dirty[2].grad is None


def test_policy_loss_takes_estimator_and_entropy_bonus(batch):
    logps, old, advantages, mask, ref = batch
    x, entropies = logps.clone().requires_grad_(), old.abs().requires_grad_()
    plain = rl.policy_loss(x, old, advantages, mask)
    weights = mask.double() / (4 * mask.sum(-1, keepdim=True))
    computed = rl.policy_loss(
        x, old, advantages, mask, ref_logps=ref, beta=0.3, estimator=rl.k1, entropies=entropies, entropy_coef=0.2
    )
    same_with_gradient(computed, plain + (weights * (0.3 * (x - ref) - 0.2 * entropies)).sum(), x, entropies)


@pytest.mark.parametrize("keywords", [{}, {"epsilon": 0.1, "cliprange_value": 0.05, "vf_coef": 0.3}])
def test_ppo_loss_is_its_formula(keywords, batch):
    logps, old, advantages, mask, old_values = batch
    epsilon, cliprange, coef = (
        keywords.get(k, d) for k, d in (("epsilon", 0.2), ("cliprange_value", 0.2), ("vf_coef", 0.5))
    )
    x, values, returns = logps.clone().requires_grad_(), (old_values + 0.3).requires_grad_(), old_values.abs()
    near = old_values + (values - old_values).clamp(-cliprange, cliprange)
    error = 0.5 * torch.maximum((values - returns) ** 2, (near - returns) ** 2)[mask].mean()
    expected = by_hand(x, old, advantages, mask, clip(epsilon, epsilon), over_tokens) + coef * error
    same_with_gradient(
        rl.ppo_loss(x, old, advantages, values, old_values, returns, mask, **keywords), expected, x, values
    )
    same_with_gradient(rl.value_loss(values, old_values, returns, mask), 0.5 * torch.maximum(
        (values - returns) ** 2, (old_values + (values - old_values).clamp(-0.2, 0.2) - returns) ** 2)[mask].mean(), values)  # fmt: skip


def log_odds(mean):
    return mean - torch.log1p(-mean.exp())


#: name, keywords -> the same by hand of (chosen, rejected, ref_chosen, ref_rejected) or lengths in place of the references.
PREFERENCE = [
    ("dpo", {}, lambda c, r, rc, rr: softplus(-0.1 * (c - rc - r + rr))),
    ("dpo", {"beta": 0.7}, lambda c, r, rc, rr: softplus(-0.7 * (c - rc - r + rr))),
    ("ipo", {}, lambda c, r, rc, rr: (c - rc - r + rr - 5) ** 2),
    ("ipo", {"beta": 0.5}, lambda c, r, rc, rr: (c - rc - r + rr - 1) ** 2),
    ("simpo", {}, lambda c, r, n, m: softplus(-(2 * c / n - 2 * r / m - 1))),
    ("simpo", {"beta": 0.5, "gamma": 0.3}, lambda c, r, n, m: softplus(-(0.5 * c / n - 0.5 * r / m - 0.3))),
    ("orpo", {}, lambda c, r, n, m: -c / n + 0.1 * softplus(log_odds(r / m) - log_odds(c / n))),
    ("orpo", {"beta": 0.6}, lambda c, r, n, m: -c / n + 0.6 * softplus(log_odds(r / m) - log_odds(c / n))),
]


@pytest.mark.parametrize(("name", "keywords", "hand"), PREFERENCE, ids=lambda x: x if isinstance(x, str) else "")
def test_preference_loss_of_the_door_is_its_formula(name, keywords, hand, batch):
    chosen, rejected = (3 * batch[0][:, i].clone().requires_grad_() for i in range(2))
    beside = [3 * batch[4][:, i] for i in range(2)] if name in ("dpo", "ipo") else [torch.tensor([3, 5, 4, 6]), torch.tensor([2, 7, 1, 3])]  # fmt: skip
    loss = getattr(rl, f"{name}_loss")
    same_with_gradient(
        loss(chosen, rejected, *beside, **keywords), hand(chosen, rejected, *beside).mean(), chosen, rejected
    )
    parts = [
        loss(chosen[p], rejected[p], *(b[p] for b in beside), **keywords, batch_size=4) for p in (slice(1), slice(1, 4))
    ]
    assert sum(parts).item() == pytest.approx(loss(chosen, rejected, *beside, **keywords).item(), rel=1e-12)


@pytest.mark.parametrize("keywords", [{}, {"beta": 0.7, "desirable_weight": 1.3, "undesirable_weight": 0.6}])
def test_kto_loss_is_its_formula(keywords, batch):
    logps, ref, up = batch[0][:, 0].clone().requires_grad_(), batch[4][:, 0], torch.tensor([True, False, True, True])
    beta, good, bad = (
        keywords.get("beta", 0.1),
        keywords.get("desirable_weight", 1),
        keywords.get("undesirable_weight", 1),
    )
    excess = beta * (logps - ref - 0.3)
    expected = torch.where(up, good * torch.sigmoid(-excess), bad * torch.sigmoid(excess)).mean()
    same_with_gradient(rl.kto_loss(logps, ref, up, 0.3, **keywords), expected, logps)
    parts = [
        rl.kto_loss(logps[p], ref[p], up[p], torch.tensor(0.3, dtype=torch.float64), batch_size=4, **keywords)
        for p in (slice(1), slice(1, 4))
    ]
    assert float(sum(parts)) == pytest.approx(float(expected), rel=1e-12)


def test_sft_and_reward_loss_are_their_formulas(batch):
    logps, other, _, mask, _ = batch
    x, y = logps.clone().requires_grad_(), other.clone().requires_grad_()
    same_with_gradient(rl.sft_loss(x, mask), -x[mask].mean(), x)
    margin, weights = torch.tensor([0.0, 1.0, 0.5, 2.0]), torch.tensor([0.5, 1.5, 1.0, 1.0])
    computed = rl.reward_loss(
        x[:, 0], y[:, 0], margin=margin, label_smoothing=0.1, center_rewards_coefficient=0.2, weights=weights
    )
    kept, flipped = softplus(-(x - y)[:, 0] + margin), softplus((x - y)[:, 0] + margin)
    expected = (weights * (0.9 * kept + 0.1 * flipped + 0.2 * (x + y)[:, 0] ** 2)).mean()
    same_with_gradient(computed, expected, x, y)
    wants = margin.requires_grad_()
    rl.reward_loss(x[:, 0], y[:, 0], margin=wants).backward()
    assert wants.grad is None


@pytest.mark.parametrize(
    "name", ["policy", "reinforce", "grpo", "dr_grpo", "dapo", "gspo", "cispo", "value", "ppo", "sft"]
)
def test_loss_of_tokens_adds_up_over_parts_with_weights_of_the_whole(name, batch):
    logps, old, advantages, mask, ref = batch
    more = {"max_completion_length": 7} if name == "dr_grpo" else {}
    inputs = {
        "sft": (logps, mask), "reinforce": (logps, advantages, mask), "value": (logps, old, ref, mask),
        "ppo": (logps, old, advantages, ref, old, logps, mask),
    }.get(name, (logps, old, advantages, mask))  # fmt: skip
    loss = getattr(rl, f"{name}_loss")
    weights = torch.rand(4, 5, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    whole = float(loss(*inputs, weights=weights, **more))
    parts = [loss(*(x[p] for x in inputs), weights=weights[p], **more) for p in (slice(1), slice(1, 4))]
    assert float(sum(parts)) == pytest.approx(whole, rel=1e-12) != float(loss(*inputs, **more))


@pytest.mark.parametrize(
    ("call", "facts"),
    [
        (lambda x, m: rl.grpo_loss(x, x, x, m, beta=0.1), {"argument": "ref_logps", "problem": "missing"}),
        (lambda x, m: rl.policy_loss(x, x, x, m, entropy_coef=0.1), {"argument": "entropies", "problem": "missing"}),
        (lambda x, m: rl.policy_loss(x, x, x, m, entropies=x[:, :1], entropy_coef=1.0), {"argument": "entropies"}),
        (lambda x, m: rl.grpo_loss(x, x, x, m, ref_logps=x, beta=-1.0), {"argument": "beta", "value": -1.0}),
        (lambda x, m: rl.ppo_loss(x, x, x, x, x, x, m, vf_coef=math.nan), {"argument": "vf_coef"}),
        (
            lambda x, m: rl.dr_grpo_loss(x, x, x, m, max_completion_length=-1, weights=x),
            {"argument": "max_completion_length"},
        ),
        (lambda x, m: rl.reward_loss(x[:, 0], x[:, 1], weights=x[:, :1]), {"argument": "weights"}),
        (lambda x, m: rl.mean_loss(x.mean()), {"argument": "losses", "value": (), "expected": "(B,)"}),
        (lambda x, m: rl.dpo_loss(x[:, 0], x[:, 1], x[:, 0], None), {"argument": "ref_chosen"}),
    ],
)
def test_loss_refuses(call, facts):
    x, mask = torch.zeros(3, 2), torch.ones(3, 2, dtype=torch.bool)
    with raises(ArgumentError, **facts):
        call(x, mask)


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


def squared(pair, *, beta=0.1):
    """A loss of a reader's own: half the squared distance of the scaled margin from 1."""
    return 0.5 * (beta * pair.margins - 1) ** 2


@pytest.mark.slow
def test_train_own_preference_loss_beside_dpo(untrained, suite_seed):
    pairs = rl.sample_pairs(rl.task("assistant"), 32, seed=suite_seed)
    model, tokenizer = untrained
    runs = {
        name: rl.train(copy.deepcopy(model), tokenizer, pairs, recipe, max_steps=4, batch_size=32, quiet=True)
        for name, recipe in {"DPO": rl.DPO, "mine": own(squared)}.items()
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
    before = rl.evaluate(model, tokenizer, prompts, reward=says_cats, max_completion_length=6)
    history = rl.train(model, tokenizer, prompts, rl.GRPO, reward=says_cats, num_generations=16, quiet=True, **settings)
    assert len(history) == 12 and before.rewards.shape == (2,)
    assert sum(history["reward"][-3:]) / 3 > 0.5 > history["reward"][0]


@pytest.mark.parametrize(
    ("recipe", "data"),
    [
        (rl.sft_loss, [{"prompt": "say dogs", "completion": "dogs"}]),
        (rl.SIMPO.with_(beta=1.0), [{"prompt": "say dogs", "chosen": "dogs", "rejected": "cats"}]),
        (rl.KTO, [{"prompt": "say dogs", "completion": w, "label": w == "dogs"} for w in ("dogs", "cats")]),
        (rl.DPO, [Comparison(*([{"role": r, "content": t}] for r, t in (("user", "say"), ("assistant", "a"), ("assistant", "i"))))]),
        (rl.DPO, [{"prompt": "say dogs", "chosen": "dogs", "rejected": "cats"}, PreferencePair("say cats", "cats", "dogs")]),
        (rl.GRPO, ASSISTANT),
        (rl.RLOO.with_(beta=0.1), ASSISTANT),
    ],
    ids=["sft_loss", "SimPO", "KTO", "DPO", "rows and pairs", "GRPO", "RLOO"],
)  # fmt: skip
def test_train_takes_recipe_and_data(recipe, data, untrained):
    settings = {} if isinstance(data, list) else {"num_generations": 2}
    history = rl.train(*untrained, data, recipe, max_steps=1, batch_size=2, quiet=True, **settings)
    assert len(history) == 1


def test_train_takes_a_table_by_rows(untrained):
    """As pandas has it, whose iteration gives the columns' names."""

    class Table:
        columns = ("prompt", "chosen", "rejected")
        __iter__ = lambda self: iter(self.columns)
        to_dict = lambda self, orient: ROWS if orient == "records" else None

    assert len(rl.train(*untrained, Table(), rl.DPO, max_steps=1, quiet=True)) == 1


def test_train_writes_its_run(untrained, tmp_path):
    rl.train(
        *untrained, [{"prompt": "say dogs", "completion": "dogs"}], rl.sft_loss, max_steps=1, out=tmp_path, quiet=True
    )
    assert (tmp_path / "metrics.jsonl").is_file()


def averaged(pair):
    """A reader's mistake: the mean is taken twice."""
    return pair.margins.mean()


def returns_nothing(pair):
    """Another: the return is forgotten."""
    pair.margins.sum()


ROWS = [{"prompt": "say dogs", "chosen": "dogs", "rejected": "cats"}]


@pytest.mark.parametrize(
    ("given", "more", "error", "facts"),
    [
        ((["say dogs"], rl.GRPO), {}, UserError, {"argument": "reward", "problem": "missing"}),
        ((ASSISTANT, rl.DPO), {}, UserError, {"argument": "data", "value": "assistant"}),
        ((ROWS, rl.DPO), {"reward": len}, UserError, {"argument": "reward", "value": "dpo"}),
        ((ROWS, rl.sft_loss), {"reward": len}, UserError, {"argument": "reward"}),
        ((ROWS, rl.SIMPO), {"ref_model": "x"}, UserError, {"argument": "ref_model", "value": "simpo"}),
        ((ROWS, rl.DPO), {"beta": 0.3}, UserError, {"argument": "beta", "value": 0.3, "expected": "with_"}),
        ((ROWS, "dpo"), {}, ArgumentError, {"argument": "recipe", "value": "dpo", "expected": "DPO"}),
        ((ROWS, rl.dpo_loss), {}, ArgumentError, {"argument": "recipe", "expected": "DPO"}),
        (
            (ROWS, partial(rl.dr_grpo_loss, epsilon=0.1)),
            {},
            ArgumentError,
            {"argument": "recipe", "expected": "DR_GRPO"},
        ),
        ((ROWS, rl.reward_loss), {}, ArgumentError, {"argument": "recipe", "expected": None}),
        ((ROWS, torch.mean), {}, ArgumentError, {"argument": "loss", "problem": "not declared"}),
        ((ROWS, averaged), {}, UserError, {"argument": "loss", "value": (), "expected": (2,)}),
        ((ROWS, returns_nothing), {}, UserError, {"argument": "loss", "value": None}),
        ((ROWS, squared), {"beta": 0.3}, UserError, {"argument": "beta", "expected": "with_"}),
        (({"train": ROWS}, rl.DPO), {}, UserError, {"argument": "data", "value": ["train"]}),
        ((ASSISTANT, rl.GRPO), {"reward": "numeric"}, UserError, {"argument": "reward", "problem": "not callable"}),
        (
            (ASSISTANT, rl.GRPO),
            {"reward": lambda p, c: [1.0]},
            UserError,
            {"argument": "reward", "value": 1, "expected": 128},
        ),
        (([{"prompt": "say dogs", "chosen": "dogs"}], rl.DPO), {}, UserError, {"argument": "format"}),
        (([], rl.DPO), {}, UserError, {"argument": "rows", "problem": "empty"}),
    ],
)
def test_train_says_what_is_wrong(given, more, error, facts, untrained):
    data, recipe = given
    recipe = own(recipe) if recipe in (squared, averaged, returns_nothing) else recipe
    with raises(error, **facts):
        rl.train(*untrained, data, recipe, quiet=True, **more)


def test_train_unknown_setting_names_the_nearest(untrained):
    with raises(UserError, value="max_step", expected="max_steps"):
        rl.train(*untrained, ROWS, rl.DPO, max_step=3)
    with raises(UserError, value="temperatur", expected="temperature"):
        rl.generate(*untrained, "say dogs", temperatur=0.5)


def test_generate_gives_a_list_for_each_prompt(untrained):
    one = rl.generate(*untrained, "say dogs", num_generations=3, max_completion_length=4, seed=1)
    several = rl.generate(*untrained, ["say dogs", "say cats"], num_generations=3, max_completion_length=4, seed=1)
    assert len(one) == 3 and several[0] == one and len(several) == 2
    said = [{"role": "user", "content": "say dogs"}]
    again = rl.generate(*untrained, said, num_generations=3, max_completion_length=4, seed=1)
    assert again == one == rl.generate(*untrained, [said], num_generations=3, max_completion_length=4, seed=1)[0]
    with raises(UserError, argument="prompts", problem="empty"):
        rl.generate(*untrained, [])


def test_evaluate_task_measures_test_prompts(untrained):
    model, tokenizer = untrained
    measured = rl.evaluate(model, tokenizer, rl.task("assistant"), limit=5, ref_model=model)
    assert [problem.prompt[0]["content"] for problem in measured.problems] == ASSISTANT.prompts("test")[:5]
    assert measured.divergence.mean == pytest.approx(0.0, abs=1e-6)
    with raises(UserError, argument="limit", value=0):
        rl.evaluate(model, tokenizer, ASSISTANT, limit=0)
    with raises(UserError, argument="reward", problem="missing"):
        rl.evaluate(model, tokenizer, [Problem([{"role": "user", "content": "say dogs"}])])


def test_plot_takes_one_run_seeds_or_labels():
    one, other = (History(rows=[{"step": k, "reward": k * slope} for k in range(3)]) for slope in (1, 2))
    for runs, bands in ((one, 0), ([one, other], 1), ({"a": one, "b": [one, other]}, 1)):
        [ax] = rl.plot(runs, "reward").axes
        assert len(ax.collections) == bands
    with raises(UserError, argument="runs", problem="empty"):
        rl.plot({})
    with raises(UserError, value="rewards", expected="reward"):
        rl.plot(one, "rewards")


def test_verify_unknown_label_names_the_nearest():
    with raises(UserError, value="eq:k33"):
        rl.verify("eq:k33")
