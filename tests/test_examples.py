"""One page per algorithm: each takes the very steps of its trainer, stands by itself, and learns."""

import ast
import copy
import importlib
import statistics
import sys
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch

from minirlhf import policy_loss
from minirlhf.data.chat import conversation, encode, encode_prompt
from minirlhf.data.collate import collate
from minirlhf.data.preferences import sample_pairs
from minirlhf.data.tasks.assistant import ASSISTANT
from minirlhf.data.types import Tokens, pair
from minirlhf.equations.aggregation import sequence_mean, token_mean
from minirlhf.equations.kl import k1
from minirlhf.equations.policy_losses import importance_weighted, ppo_clip, reinforce
from minirlhf.feedback.rewards import task_problems, task_reward
from minirlhf.models import heads
from minirlhf.models.tiny import tiny_model
from minirlhf.models.tokenizers import train_tokenizer, word_tokenizer
from minirlhf.recipes import GRPO, PPO
from minirlhf.recipes.offline import get_preference
from minirlhf.trainers import samples
from minirlhf.trainers.offline import OfflineConfig, train_offline
from minirlhf.trainers.online import OnlineConfig, train_online
from minirlhf.trainers.reward import RewardConfig, train_reward
from minirlhf.trainers.sft import SFTConfig, train_sft

FOLDER = Path(__file__).parents[1] / "examples"
PAGES = ("sft", "reward_model", "dpo", "ppo", "grpo")
RATE = 1e-3


@pytest.fixture
def pages(monkeypatch):
    """The pages by name, freshly imported."""
    monkeypatch.syspath_prepend(FOLDER)
    yield {name: importlib.import_module(name) for name in PAGES}
    for name in PAGES:
        del sys.modules[name]


@pytest.fixture(scope="module")
def tokenizer():
    return word_tokenizer(ASSISTANT.words)


# -- what a page may be ------------------------------------------------------------------------------------------


def test_examples_are_the_five_pages():
    own = {"own_loss", "own_reward"}  # which tests/test_door.py runs
    assert {path.stem for path in FOLDER.glob("*.py")} == {*PAGES, *own}


@pytest.mark.parametrize("name", PAGES)
def test_examples_page_is_short_and_imports_equations_only(name):
    """Its loss from the door, equations, data, and what makes an ordinary model: neither the engine nor recipes nor trainers."""
    text = (FOLDER / f"{name}.py").read_text(encoding="utf-8")
    assert len(text.splitlines()) <= 150
    assert "\nSource" in text and "\nDeviations: " in text
    tree = ast.parse(text)
    used = {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)} | {
        alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names
    }
    ours = {module for module in used if module.split(".")[0] == "minirlhf"}
    door = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and node.module == "minirlhf"]
    [loss] = [alias.name for node in door for alias in node.names if alias.name.endswith("_loss")]
    assert loss == {"reward_model": "reward_loss"}.get(name, f"{name}_loss")
    allowed = ("minirlhf.core.", "minirlhf.equations.", "minirlhf.data.")
    makers = {"minirlhf.models.loading", "minirlhf.models.tiny", "minirlhf.models.tokenizers"}
    assert [module for module in ours - makers - {"minirlhf"} if not module.startswith(allowed)] == []


# -- a page takes the steps of its trainer -----------------------------------------------------------------------


@dataclass
class Ran:
    """What whole steps left behind: the mean loss of each step's updates, and the model with its last gradient."""

    losses: list[float]
    model: Any


def watch(monkeypatch, page, name):
    """The losses that a page computes from now on."""
    seen, compute = [], getattr(page, name)

    def watched(*args, **options):
        loss = compute(*args, **options)
        seen.append(float(loss.detach()))
        return loss

    monkeypatch.setattr(page, name, watched)
    return seen


def run_sft(pages, tokenizer, monkeypatch, folder, seed, steps):
    page, model = pages["sft"], tiny_model("nano", tokenizer, seed=1).double()
    examples = page.demonstrations(tokenizer, seed, 12)
    assert len({len(example) for example in examples}) > 1
    config = SFTConfig(max_steps=steps, batch_size=12, learning_rate=RATE, lr_scheduler_type="linear")
    theirs = copy.deepcopy(model)
    history = train_sft(theirs, examples, config, pad_token_id=tokenizer.pad_token_id, quiet=True)
    monkeypatch.setattr(page, "demonstrations", lambda *_: examples)
    losses = watch(monkeypatch, page, "sft_loss")
    page.sft(model, tokenizer, steps=steps, learning_rate=RATE, seed=0, batch_size=12)
    return Ran(history["loss"], theirs), Ran(losses, model)


def made_pairs(tokenizer, seed):
    """Twelve pairs as text, and as the tokens of both sides."""
    pairs = sample_pairs(ASSISTANT, 12, seed=seed)
    sides = [[encode(tokenizer, conversation(p.prompt, reply)) for reply in (p.chosen, p.rejected)] for p in pairs]
    return pairs, sides


def run_reward_model(pages, tokenizer, monkeypatch, folder, seed, steps):
    page, (pairs, sides) = pages["reward_model"], made_pairs(tokenizer, seed)
    theirs = heads.RewardModel.from_causal_lm(tiny_model("nano", tokenizer, seed=1)).double()
    model = page.RewardModel(tiny_model("nano", tokenizer, seed=2)).double()
    model.load_state_dict(theirs.state_dict())
    config = RewardConfig(max_steps=steps, batch_size=12, learning_rate=RATE, lr_scheduler_type="linear")
    tokens = [pair(*both) for both in sides]
    history = train_reward(theirs, tokens, config, pad_token_id=tokenizer.pad_token_id, quiet=True)
    losses = watch(monkeypatch, page, "reward_loss")
    page.train(model, tokenizer, pairs, steps=steps, learning_rate=RATE, seed=0, batch_size=12)
    return Ran(history["loss"], theirs), Ran(losses, model)


def run_dpo(pages, tokenizer, monkeypatch, folder, seed, steps):
    page, (pairs, sides) = pages["dpo"], made_pairs(tokenizer, seed)
    model, ref_model = (tiny_model("nano", tokenizer, seed=s).double() for s in (1, 2))
    theirs = copy.deepcopy(model)
    config = OfflineConfig(max_steps=steps, batch_size=12, learning_rate=RATE, lr_scheduler_type="linear")
    history = train_offline(
        theirs,
        [pair(*both) for both in sides],
        get_preference("dpo"),
        config,
        pad_token_id=tokenizer.pad_token_id,
        ref_model=ref_model,
        quiet=True,
    )
    losses = watch(monkeypatch, page, "dpo_loss")
    page.train(model, ref_model, tokenizer, pairs, steps=steps, learning_rate=RATE, seed=0, batch_size=12, beta=0.1)
    return Ran(history["loss"], theirs), Ran(losses, model)


def train_and_replay(page, recipe, model, tokenizer, monkeypatch, folder, seed, steps):
    """Train a copy of the model online; let the page meet the same completions and the same grades.

    Returns:
        The trained copy and its history.
    """
    config = OnlineConfig(
        max_steps=steps, batch_size=3, num_generations=4, learning_rate=RATE, max_completion_length=9, seed=seed,
        num_logged_samples=12,
    )  # fmt: skip
    by_length = {len(problem.prompt[0]["content"].split()): problem for problem in task_problems(ASSISTANT, "train")}
    problems, reward = list(by_length.values())[:3], task_reward(ASSISTANT)
    with torch.no_grad():
        model.get_input_embeddings().weight[tokenizer.eos_token_id] *= 3  # so that some completions end early
    theirs = copy.deepcopy(model)
    history = train_online(theirs, problems, reward, recipe, config, tokenizer=tokenizer, out=folder, quiet=True)
    kept_of = iter([samples.read(folder, step).samples for step in range(1, steps + 1)])
    graded = []

    def sample(*_):
        kept = next(kept_of)
        graded.append(torch.tensor([completion.reward for completion in kept]))
        both = [(completion.prompt.split(), completion.tokens) for completion in kept]
        assert len({len(prompt) for prompt, _ in both}) == 3
        rows = [
            Tokens(
                tokenizer.convert_tokens_to_ids([*prompt, *completion]),
                [False] * len(prompt) + [True] * len(completion),
            )
            for prompt, completion in both
        ]
        batch = collate(rows, tokenizer.pad_token_id)
        return batch.input_ids, batch.attention_mask, batch.loss_mask[:, 1:]

    monkeypatch.setattr(page, "sample", sample)
    monkeypatch.setattr(page, "grade", lambda *_: graded[-1])
    return theirs, history


def run_grpo(pages, tokenizer, monkeypatch, folder, seed, steps):
    page, model = pages["grpo"], tiny_model("nano", tokenizer, seed=1).double()
    recipe = GRPO.with_(num_iterations=steps)
    theirs, history = train_and_replay(page, recipe, model, tokenizer, monkeypatch, folder, seed, steps)
    losses = watch(monkeypatch, page, "grpo_loss")
    page.grpo(model, tokenizer, steps=steps, learning_rate=RATE, num_prompts=3, num_generations=4, num_iterations=steps)
    means = [statistics.fmean(losses[i : i + steps]) for i in range(0, len(losses), steps)]
    return Ran(history["loss"], theirs), Ran(means, model)


def run_ppo(pages, tokenizer, monkeypatch, folder, seed, steps):
    page, model = pages["ppo"], tiny_model("nano", tokenizer, seed=1).double()
    # One minibatch, as which rows share one is random.
    recipe = PPO.with_(num_iterations=steps, num_minibatches=1, critic_learning_rate_ratio=3.0)
    theirs, history = train_and_replay(page, recipe, model, tokenizer, monkeypatch, folder, seed, steps)
    losses = watch(monkeypatch, page, "ppo_loss")
    sizes = {"batch_size": 12, "num_iterations": steps, "num_minibatches": 1}
    page.ppo(model, tokenizer, steps=steps, learning_rate=RATE, **sizes)
    means = [statistics.fmean(losses[i : i + steps]) for i in range(0, len(losses), steps)]
    return Ran(history["loss"], theirs), Ran(means, model)


RUNS = {"sft": run_sft, "reward_model": run_reward_model, "dpo": run_dpo, "ppo": run_ppo, "grpo": run_grpo}


def require_same(trainer, page, tolerance):
    """Losses and last gradient agree to a share ``tolerance`` of their size, the weights to as much or 1e-5."""
    assert page.losses == pytest.approx(trainer.losses, rel=tolerance, abs=1e-9)
    mine = dict(page.model.named_parameters())
    for name, theirs in trainer.model.named_parameters():
        # The bias of a reward model has a gradient of 0, but for rounding: it shifts both rewards of a pair.
        assert theirs.grad.norm() > 1e-6 or name == "head.bias"
        assert (theirs.grad - mine[name].grad).norm() <= tolerance * theirs.grad.norm() + 1e-11, name
        assert (theirs - mine[name]).norm() <= max(tolerance, 1e-5) * theirs.norm() + 1e-11, name


#: Steps, with as many updates in each where GRPO and PPO make several; and how exactly page and trainer agree. The model is in
#: float64, but transformers computes its norms and rotations in float32, and Adam divides by the size of the gradient.
EXACT = {1: 1e-6, 2: 1e-5}


@pytest.mark.slow
@pytest.mark.parametrize("steps", EXACT)
@pytest.mark.parametrize("name", PAGES)
def test_examples_page_takes_steps_of_its_trainer(name, steps, pages, tokenizer, monkeypatch, tmp_path, suite_seed):
    """The first update, and then two whole steps, on the same data. A second update of GRPO and PPO has a ratio that is not
    1, a second step a KL and a critic that are not 0."""
    require_same(*RUNS[name](pages, tokenizer, monkeypatch, tmp_path, suite_seed, steps), EXACT[steps])


def of_policy(logps, old_logps, advantages, mask, *, epsilon, ref_logps, beta, weights=sequence_mean, **how):
    """GRPO's loss, one part of it replaced."""
    given = {"objective": partial(ppo_clip, epsilon=epsilon), "ref_logps": ref_logps, "beta": beta, **how}
    return policy_loss(logps, old_logps, advantages, mask, weights=weights(mask), **given)


def over_replies(logps, mask):
    """Supervised fine-tuning's loss, every reply counting the same."""
    return policy_loss(logps, logps.detach(), torch.ones_like(logps), mask, objective=reinforce)


WRONG = {
    "a mean over replies": ("sft", "sft_loss", lambda page: over_replies),
    "the first token's score": ("reward_model", "last_index", lambda page: lambda mask: torch.zeros_like(mask[:, 0])),
    "a reply's mean": ("dpo", "sequence_logps", lambda page: lambda x, mask: (x * mask).sum(-1) / mask.sum(-1)),
    "a mean over tokens": ("grpo", "grpo_loss", lambda page: partial(of_policy, weights=token_mean)),
    "another KL estimate": ("grpo", "grpo_loss", lambda page: partial(of_policy, estimator=k1)),
    "no clip": ("grpo", "grpo_loss", lambda page: partial(of_policy, objective=importance_weighted)),
    "raw advantages": ("ppo", "whiten", lambda page: lambda advantages, mask: advantages),
    "no charge for the KL": ("ppo", "k1", lambda page: lambda logps, ref_logps: 0 * logps),
    "another λ": ("ppo", "gae", lambda page: partial(lambda gae, *given, gamma, lam: gae(*given, lam=1.0), page.gae)),
}


@pytest.mark.release
@pytest.mark.parametrize("what", WRONG)
def test_examples_comparison_rejects_mistake(what, pages, tokenizer, monkeypatch, tmp_path):
    name, attribute, wrong = WRONG[what]
    monkeypatch.setattr(pages[name], attribute, wrong(pages[name]))
    with pytest.raises(AssertionError):
        require_same(*RUNS[name](pages, tokenizer, monkeypatch, tmp_path, 1, 2), 1e-3)


# -- the sampling loop -------------------------------------------------------------------------------------------


def test_examples_sample_draws_from_model(pages, tokenizer, suite_seed):
    """First tokens of two prompts of different lengths: 2,000 draws each against the model's probabilities."""
    torch.manual_seed(suite_seed)
    model, count = tiny_model("nano", tokenizer, seed=3).eval(), 2000
    prompts = [
        encode_prompt(tokenizer, conversation(text)) for text in ("tell me about cats", "hi! what do owls and dogs do?")
    ]
    input_ids, _, _ = pages["grpo"].sample(model, [p for p in prompts for _ in range(count)], 1, tokenizer)
    for i, prompt in enumerate(prompts):
        with torch.no_grad():
            probs = model(torch.tensor([prompt])).logits[0, -1].softmax(-1)
        drawn = input_ids[i * count : (i + 1) * count, len(prompt)].bincount(minlength=len(probs)) / count
        assert ((drawn - probs).abs() <= 5 * (probs * (1 - probs) / count).sqrt() + 1 / count).all()


def test_examples_sample_mask_marks_completion(pages, tokenizer, suite_seed):
    torch.manual_seed(suite_seed)
    model = tiny_model("nano", tokenizer, seed=3).eval()
    with torch.no_grad():
        model.get_input_embeddings().weight[tokenizer.eos_token_id] *= 2  # so that some end early
    asked = ASSISTANT.prompts("train")[:40]
    prompts = [encode_prompt(tokenizer, conversation(text)) for text in asked]
    input_ids, attention_mask, mask = pages["grpo"].sample(model, prompts, 12, tokenizer)
    ended = 0
    for prompt, ids, real, sampled in zip(prompts, input_ids, attention_mask, mask, strict=True):
        length, count = int(real.sum()), int(sampled.sum())
        assert real[:length].all() and ids[: len(prompt)].tolist() == prompt
        assert sampled.nonzero().flatten().tolist() == list(range(len(prompt) - 1, length - 1))
        completion = ids[len(prompt) : length].tolist()
        assert tokenizer.eos_token_id not in completion[:-1] and count == len(completion)
        assert completion[-1] == tokenizer.eos_token_id or count == 12
        ended += completion[-1] == tokenizer.eos_token_id
    assert ended > 0
    texts = [tokenizer.decode(ids[1:][m], skip_special_tokens=True) for ids, m in zip(input_ids, mask, strict=True)]
    grades = [ASSISTANT.grade(prompt, text) for prompt, text in zip(asked, texts, strict=True)]
    assert pages["grpo"].grade(input_ids, mask, asked, tokenizer).tolist() == pytest.approx(grades)


# -- whole pages -------------------------------------------------------------------------------------------------


@pytest.mark.release
@pytest.mark.slow
def test_examples_pages_learn(pages, monkeypatch):
    """Fewer steps and pairs than by default, from one short warm start. Beside each page the margin: at most half of
    what it gained with the worst of three seeds."""
    sft = pages["sft"]
    for name in ("reward_model", "dpo"):
        monkeypatch.setattr(pages[name], "PAIRS", 1000)
    found = {}
    before, after = sft.main(["--steps", "60"])
    assert after > before + 1.8, "sft"
    monkeypatch.setattr(sft, "WARM_START", 60)
    start, tokenizer = sft.load(sft.arguments([], "", steps=1, learning_rate=1e-3))
    for name, steps, margin in (("reward_model", 50, 0.075), ("dpo", 50, 0.15), ("grpo", 15, 0.25), ("ppo", 15, 0.4)):
        monkeypatch.setattr(pages[name], "load", lambda args: (copy.deepcopy(start), tokenizer))
        before, after = pages[name].main(["--steps", str(steps)])
        found[name] = (before, after, margin)
    assert all(after > before + margin for before, after, margin in found.values()), found


@pytest.mark.slow
def test_examples_pages_take_model_folder(pages, monkeypatch, tmp_path):
    """A foreign one: GPT-2, whose positions are absolute, with a tokenizer that splits words and has no template."""
    import transformers

    tokenizer = train_tokenizer([ASSISTANT.reference(p) for p in ASSISTANT.prompts("train")], 400)
    tokenizer.chat_template = None
    config = transformers.GPT2Config(
        vocab_size=len(tokenizer), n_embd=16, n_layer=1, n_head=2, n_positions=256, eos_token_id=tokenizer.eos_token_id
    )
    transformers.GPT2LMHeadModel(config).save_pretrained(tmp_path / "foreign")
    tokenizer.save_pretrained(tmp_path / "foreign")
    monkeypatch.setattr(pages["sft"], "DEMONSTRATIONS", 80)
    monkeypatch.setattr(pages["reward_model"], "PAIRS", 40)
    monkeypatch.setattr(pages["dpo"], "PAIRS", 40)
    given = tmp_path / "foreign"
    for name in PAGES:
        pages[name].main(["--model", str(given), "--steps", "1", "--out", str(tmp_path / name)])
        assert (tmp_path / name / "model.safetensors").is_file()
        given = tmp_path / "sft"  # the others begin with what the first one left


def test_examples_page_exits_on_missing_model_folder(pages):
    with pytest.raises(SystemExit) as refused:
        pages["grpo"].main(["--model", "/nowhere"])
    assert "/nowhere" in refused.value.code and "\n" not in refused.value.code
