"""The training loops: the loss they minimise, resume to the same bits, Ctrl-C, non-finite losses, settings."""

import copy
import dataclasses
import os
import signal

import pytest
import torch
from facts import raises

from minirlhf import recipes
from minirlhf.core.errors import UserError
from minirlhf.data.chat import conversation, encode
from minirlhf.data.collate import batch_indices, collate
from minirlhf.data.formats import Problem
from minirlhf.data.types import Tokens, pair, ranked
from minirlhf.feedback.rewards import model_reward, reference_reward, score_completions
from minirlhf.models.heads import RewardModel, ValueModel
from minirlhf.models.sampling import Sampling
from minirlhf.models.tiny import tiny_model
from minirlhf.models.tokenizers import train_tokenizer, word_tokenizer
from minirlhf.recipes.offline import get_preference
from minirlhf.recipes.parts import penalize_missing_eos
from minirlhf.trainers.config import TrainerConfig
from minirlhf.trainers.evaluation import candidates, evaluate
from minirlhf.trainers.history import History
from minirlhf.trainers.likelihood import mean_nll, nll_losses
from minirlhf.trainers.loop import NonFiniteLoss, TrainerCallback, TrainingLoop
from minirlhf.trainers.offline import EvalPreferences
from minirlhf.trainers.online import OnlineConfig, train_online
from minirlhf.trainers.reward import RewardConfig, pair_accuracy, pairs_of, train_reward
from minirlhf.trainers.sft import SFTConfig, prediction_weights, train_sft
from minirlhf.trainers.verifiers import token_scores
from minirlhf_cli.settings import from_mapping

WORDS = ("one", "two", "three", "go", "stop")


@pytest.fixture(scope="module")
def tokenizer():
    return word_tokenizer(WORDS)


@pytest.fixture
def model(tokenizer):
    return tiny_model("nano", tokenizer, seed=3)


@pytest.fixture(scope="module")
def chats(tokenizer):
    texts = [("go one", "one two"), ("go two", "two three stop"), ("stop", "stop"), ("go three", "three one two stop")]
    return [encode(tokenizer, conversation(*text)) for text in texts]


def weights_of(model):
    return torch.cat([p.detach().flatten() for p in model.parameters()])


# -- data ---------------------------------------------------------------------------------------------------------


def test_batch_indices_take_each_example_once_an_epoch():
    for count, size in ((10, 3), (4, 4), (3, 7)):
        taken = [int(i) for step in range(count) for i in batch_indices(count, size, step, seed=5)]
        for epoch in range(size):
            assert sorted(taken[epoch * count : (epoch + 1) * count]) == list(range(count))
    assert list(batch_indices(10, 3, 7, 1)) == list(batch_indices(10, 3, 7, 1))
    assert list(batch_indices(10, 10, 0, 1)) != list(batch_indices(10, 10, 0, 2))


def test_collate_pads_right_and_masks_first_token():
    batch = collate([Tokens([5, 6, 7], [True, True, False]), Tokens([8], [True])], pad_token_id=0)
    assert batch.input_ids.tolist() == [[5, 6, 7], [8, 0, 0]]
    assert batch.attention_mask.tolist() == [[1, 1, 1], [1, 0, 0]]
    assert batch.loss_mask.tolist() == [[False, True, False], [False, False, False]]
    with raises(ValueError, argument="loss_mask", value=1, expected=2):
        Tokens([1, 2], [True])


# -- supervised fine-tuning ---------------------------------------------------------------------------------------


def test_sft_loss_equals_transformers(model, tokenizer, chats):
    """Against transformers' own loss, whose labels hold −100 where nothing is predicted."""
    batch = collate(chats, tokenizer.pad_token_id)
    labels = torch.where(batch.loss_mask, batch.input_ids, -100)
    peer = model(input_ids=batch.input_ids, attention_mask=batch.attention_mask, labels=labels).loss
    ours = sum(nll_losses(model, batch, prediction_weights(batch.loss_mask), None))
    torch.testing.assert_close(ours, peer, rtol=1e-5, atol=1e-6)
    assert mean_nll(model, chats, pad_token_id=tokenizer.pad_token_id) == pytest.approx(peer.item(), rel=1e-5)


@pytest.mark.parametrize("size", [1, 2, 3])
def test_sft_gradient_is_same_for_micro_batches(model, tokenizer, chats, size):
    batch = collate(chats, tokenizer.pad_token_id)
    weights = prediction_weights(batch.loss_mask)
    grads = []
    for micro in (None, size):
        model.zero_grad()
        for loss in nll_losses(model, batch, weights, micro):
            loss.backward()
        grads.append(torch.cat([p.grad.flatten() for p in model.parameters()]))
    torch.testing.assert_close(grads[0], grads[1], rtol=1e-4, atol=1e-6)


# -- reward model -------------------------------------------------------------------------------------------------


def test_pair_accuracy_counts_ties_half(chats, tokenizer):
    judge = RewardModel.from_causal_lm(tiny_model("nano", tokenizer, seed=1), seed=5)
    one, other, *_ = chats
    better = pair_accuracy(judge, [pair(one, other)], pad_token_id=0)
    assert {better, pair_accuracy(judge, [pair(other, one)], pad_token_id=0)} == {0.0, 1.0}
    pairs = [pair(one, other)] * 2 + [pair(other, one), pair(one, one)]
    assert pair_accuracy(judge, pairs, pad_token_id=0, batch_size=3) == (2 * better + (1 - better) + 0.5) / 4


def test_reward_loss_has_margin_centring_and_smoothing(tokenizer):
    example = pair(encode(tokenizer, conversation("go", "one")), encode(tokenizer, conversation("go", "two")))
    start = RewardModel.from_causal_lm(tiny_model("nano", tokenizer, seed=1))

    def first_loss(pair, **settings):
        config = RewardConfig(max_steps=1, batch_size=1, **settings)
        return train_reward(copy.deepcopy(start), [pair], config, pad_token_id=0, quiet=True)["loss"][0]

    plain = first_loss(example)
    batch = collate([example.chosen, example.rejected], tokenizer.pad_token_id)
    chosen, rejected = start(batch.input_ids, batch.attention_mask).detach().double().tolist()
    softplus = torch.nn.functional.softplus
    assert plain == pytest.approx(float(softplus(torch.tensor(rejected - chosen))), rel=1e-5)
    with_margin = first_loss(dataclasses.replace(example, margin=1.5))
    assert with_margin == pytest.approx(float(softplus(torch.tensor(rejected - chosen + 1.5))), rel=1e-5)
    centred = first_loss(example, center_rewards_coefficient=0.5)
    assert centred == pytest.approx(plain + 0.5 * (chosen + rejected) ** 2, rel=1e-5)
    smoothed = first_loss(dataclasses.replace(example, margin=1.5), label_smoothing=0.2)
    flipped = float(softplus(torch.tensor(chosen - rejected + 1.5)))
    assert smoothed == pytest.approx(0.8 * with_margin + 0.2 * flipped, rel=1e-5)
    with raises(UserError, argument="label_smoothing", value=0.6, expected=(0, 0.5)):
        RewardConfig(label_smoothing=0.6)


@pytest.mark.parametrize("size", [1, 2])
def test_train_reward_loss_is_same_for_micro_batches(size, chats, tokenizer):
    pairs = [pair(chats[i], chats[i + 1], num_ranked=count) for i, count in enumerate((2, 3, 4))]

    def first(pairs, **settings):
        judge = RewardModel.from_causal_lm(tiny_model("nano", tokenizer, seed=1), seed=5)
        config = RewardConfig(max_steps=1, batch_size=3, **settings)
        return train_reward(judge, pairs, config, pad_token_id=0, quiet=True).last

    whole = first(pairs, balance_prompts=True)
    assert first(pairs, balance_prompts=True, micro_batch_size=size) == pytest.approx(whole, rel=1e-5)
    alike = [dataclasses.replace(p, num_ranked=4) for p in pairs]  # the weights have mean 1
    assert first(alike, balance_prompts=True)["loss"] == pytest.approx(first(pairs)["loss"], rel=1e-6)
    assert whole["loss"] != pytest.approx(first(pairs)["loss"], rel=1e-4)


def test_pairs_of_takes_every_pair_of_ranking_but_ties(chats):
    found = pairs_of([ranked(chats[:3], (3.0, 2.0, 0.0)), ranked(chats[:2], (1.0, 1.0))])
    assert [(chats.index(p.chosen), chats.index(p.rejected), p.margin) for p in found] == [
        (0, 1, 1),
        (0, 2, 3),
        (1, 2, 2),
    ]


def test_model_reward_ignores_space_around_reply():
    tokenizer = train_tokenizer(["go one", "one two"])
    reward = model_reward(RewardModel.from_causal_lm(tiny_model("nano", tokenizer, seed=1), seed=5), tokenizer)
    alone, spaced, other = reward([Problem(conversation("go"))] * 3, ["one", " one\n", "two"])
    assert alone == pytest.approx(spaced) and alone != pytest.approx(other)


# -- online -------------------------------------------------------------------------------------------------------

PROBLEMS = [Problem(conversation(text)) for text in ("go", "stop", "go one", "go two")]


def likes_two(problems, completions):
    return [float(text.split().count("two")) for text in completions]


class BeginsWithTwo:
    """A reward that grades steps too."""

    def __call__(self, problems, completions):
        return [float(text.split()[:1] == ["two"]) for text in completions]

    def steps(self, problems, completions):
        """Every word is a step."""
        return [[float(word.strip() == "two") for word in words] for words in completions]


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.release) for seed in (1, 2))])
@pytest.mark.parametrize("name", sorted(recipes.RECIPES))
def test_train_online_raises_reward(name, seed, tokenizer):
    config = OnlineConfig(
        max_steps=25, batch_size=4, num_generations=8, max_completion_length=5, learning_rate=2e-3, seed=seed
    )
    recipe = recipes.get(name)
    # Sixteen minibatches of the 32 completions here would be two each; the papers' hold hundreds.
    recipe = recipe.with_(num_minibatches=min(2, recipe.update.num_minibatches))
    policy = tiny_model("nano", tokenizer, seed=seed)
    history = train_online(policy, PROBLEMS, BeginsWithTwo(), recipe, config, tokenizer=tokenizer, quiet=True)
    assert sum(history["reward"][-5:]) / 5 - sum(history["reward"][:5]) / 5 > 0.3


def test_train_online_ignores_and_counts_ungraded_samples(model, tokenizer):
    def every_second(problems, completions):
        return [float("nan") if i % 2 == 0 else 1.0 if i < 6 else float(i % 3) for i, _ in enumerate(completions)]

    config = OnlineConfig(
        max_steps=1, batch_size=2, num_generations=6, max_completion_length=3, max_invalid_fraction=0.5
    )
    recipe = recipes.get("grpo").with_(shape=(penalize_missing_eos,), missing_eos_penalty=0.0)
    row = train_online(model, PROBLEMS, every_second, recipe, config, tokenizer=tokenizer, quiet=True).last
    assert row["frac_invalid"] == row["frac_reward_zero_std"] == 0.5  # 1, 1, 1 and 1, 0, 2
    assert row["reward"] == row["shaped_reward"] == 1.0 and row["reward_std"] == pytest.approx((2 / 6) ** 0.5)


@pytest.mark.parametrize("count", [0, 1, 3])
def test_ask_refuses_reward_that_returns_another_count(count):
    """One completion at a time it may return the right number, and mean something else."""
    with raises(UserError, argument="reward", value=count, expected=2):
        score_completions(
            lambda problems, texts: [2.0] * (1 if len(texts) == 1 else count), PROBLEMS[:2], ["one", "two"]
        )


def test_train_online_reports_grader_failures_and_stops_at_max_invalid(model, tokenizer, caplog):
    config = OnlineConfig(max_steps=1, batch_size=4, num_generations=8, max_completion_length=4)
    run = {"tokenizer": tokenizer, "quiet": True}
    grpo, asked, failed = recipes.get("grpo"), [], []

    def breaks(problems, completions):
        asked.append(len(completions))
        if any("three" in text for text in completions):
            failed.append(len(asked))
            raise ZeroDivisionError(f"call {len(asked)}")
        return likes_two(problems, completions)

    history = train_online(model, PROBLEMS, breaks, grpo, config, **run)
    assert asked == [32] + [1] * 32  # the batch, then each by itself
    count = round(32 * history["frac_invalid"][0])
    assert 0 < count < 16
    [warned] = [record.args for record in caplog.records if record.levelname == "WARNING"]
    assert str(count) in warned[0] and f"ZeroDivisionError: call {failed[1]} " in warned[1]
    strict = dataclasses.replace(config, max_invalid_fraction=0.0)
    for grader in (breaks, lambda problems, texts: [float("nan")] * len(texts)):
        with raises(UserError, argument="max_invalid_fraction", expected=0.0) as caught:
            train_online(model, PROBLEMS, grader, grpo, strict, **run)
        assert 0 < caught.value.value <= 32
    with raises(UserError, argument="reference", problem="missing"):
        train_online(model, PROBLEMS, reference_reward(lambda text, reference: 1.0), grpo, config, **run)
    other = tiny_model("nano", word_tokenizer(("one", "two")))
    with raises(UserError, argument="reference", value=8, expected=11):
        train_online(model, PROBLEMS, likes_two, grpo, config, ref_model=other, **run)


@pytest.mark.parametrize("name", ["grpo", "decoupled_ppo", "remax"])
def test_train_online_first_update_is_on_policy_and_logs_monitors(name, model, tokenizer):
    """Also at another temperature. The monitors see each sample once, and nothing of the greedy completions."""
    config = OnlineConfig(max_steps=2, batch_size=2, num_generations=4, max_completion_length=3, temperature=0.6)
    recipe, counts = recipes.get(name).with_(num_iterations=1, num_minibatches=1), []

    def words(problems, texts):
        counts.append([len(text.split()) for text in texts])
        return counts[-1]

    run = {"tokenizer": tokenizer, "monitors": {"words": words}, "quiet": True}
    history = train_online(model, PROBLEMS, likes_two, recipe, config, **run)
    assert history["policy_log_ratio_max"][0] < 1e-5  # log-probabilities taken while sampling are the model's own
    if recipe.update.kl is not None:
        assert history["kl"][0] == pytest.approx(0, abs=1e-6)
    assert [len(seen) for seen in counts] == [8, 8]
    assert history["words"] == [sum(seen) / 8 for seen in counts]


def test_train_reward_takes_margins_of_all_pairs_or_none(chats, tokenizer):
    def trained(margins, coefficient=1.0):
        judge = RewardModel.from_causal_lm(tiny_model("nano", tokenizer, seed=3), seed=0)
        pairs = [pair(chats[1], chats[0], margin) for margin in margins]
        config = RewardConfig(max_steps=2, batch_size=2, margin_coefficient=coefficient)
        return train_reward(judge, pairs, config, pad_token_id=tokenizer.pad_token_id, quiet=True)["loss"]

    with raises(UserError, argument="margin", value=1, problem="missing"):
        trained([2.0, 2.0, 2.0, None])
    without = trained([None] * 4)
    assert trained([2.0, 2.0, 2.0, None], 0.0) == without == trained([0.0] * 4)
    assert all(loss > plain + 0.1 for loss, plain in zip(trained([2.0] * 4), without, strict=True))


def test_train_reward_regression_requires_scores_before_first_step(chats, tokenizer):
    judge = RewardModel.from_causal_lm(tiny_model("nano", tokenizer, seed=3), seed=0)
    rated = [ranked(chats[:2], (2.0, 1.0)), ranked(chats[:2], None)]
    before = weights_of(judge)
    with raises(UserError, argument="scores", problem="missing"):
        config = RewardConfig(loss="regression", max_steps=2, batch_size=1)
        train_reward(judge, rated, config, pad_token_id=tokenizer.pad_token_id, quiet=True)
    assert torch.equal(weights_of(judge), before)


def test_measurements_switch_dropout_off_and_restore_mode(chats, tokenizer):
    pad = tokenizer.pad_token_id
    policy = tiny_model("nano", tokenizer, seed=3)
    judge = RewardModel.from_causal_lm(tiny_model("nano", tokenizer, seed=4), seed=0)
    critic = ValueModel.from_causal_lm(tiny_model("nano", tokenizer, seed=5))
    pairs, problems = [pair(chats[1], chats[0])], [Problem([{"role": "user", "content": "go one"}], "one")]
    held = EvalPreferences(pairs, get_preference("dpo"), tiny_model("nano", tokenizer, seed=6), pad_token_id=pad)
    exact = reference_reward(lambda completion, reference: 1.0)
    run = {"tokenizer": tokenizer, "sampling": Sampling(max_completion_length=3)}
    measures = {
        "mean_nll": (policy, lambda: mean_nll(policy, chats, pad_token_id=pad)),
        "pair_accuracy": (judge, lambda: pair_accuracy(judge, pairs, pad_token_id=pad)),
        "token_scores": (critic, lambda: token_scores(critic, chats, pad_token_id=pad)),
        "EvalPreferences": (policy, lambda: held.measure(policy)),
        "evaluate": (policy, lambda: evaluate(policy, problems, exact, **run)),
        "evaluate with a reference": (policy, lambda: evaluate(policy, problems, exact, ref_model=policy, **run)),
        "candidates": (policy, lambda: candidates(policy, problems, exact, num_generations=2, **run)),
        "model_reward": (judge, lambda: model_reward(judge, tokenizer)(problems, ["one"])),
    }
    for name, (model, measure) in measures.items():
        called = []
        hooks = [
            m.register_forward_pre_hook(lambda m, _, seen=called: seen.append(m.training)) for m in model.modules()
        ]
        for mode in (True, False):
            model.train(mode)
            measure()
            assert called and not any(called), name
            assert all(m.training is mode for m in model.modules()), name
        for hook in hooks:
            hook.remove()


# -- runs: resume, interruption, failure --------------------------------------------------------------------------


def test_loop_finishes_step_and_saves_on_interrupt(model, tokenizer, chats, tmp_path, monkeypatch):
    log = TrainingLoop.log

    def interrupted(self, **metrics):
        log(self, **metrics)
        if self.step == 4:
            os.kill(os.getpid(), signal.SIGINT)

    monkeypatch.setattr(TrainingLoop, "log", interrupted)
    config = SFTConfig(max_steps=9, batch_size=1, save_steps=3)
    with pytest.raises(KeyboardInterrupt):
        train_sft(model, chats, config, pad_token_id=0, out=tmp_path, tokenizer=tokenizer, quiet=True)
    saved = {path.parent.name for path in tmp_path.glob("checkpoints/*/manifest.json")}
    assert saved == {"step-000003", "step-000005"}


def test_loop_dropout_depends_on_seed_and_step_only(model):
    class Noisy(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = torch.nn.Parameter(torch.ones(100))

    def drawn(seed, steps):
        noise = []
        for _ in TrainingLoop("test", Noisy(), SFTConfig(max_steps=steps, seed=seed), quiet=True):
            noise.append(torch.nn.functional.dropout(torch.ones(100), 0.5))
        return noise

    torch.manual_seed(5)
    wanted = torch.rand(3)
    torch.manual_seed(5)
    first = drawn(0, 3)
    assert torch.equal(torch.rand(3), wanted)
    assert all(torch.equal(a, b) for a, b in zip(first, drawn(0, 3), strict=True))
    assert not torch.equal(first[0], first[1]) and not torch.equal(first[0], drawn(1, 1)[0])


def test_loop_resume_skips_damaged_checkpoint(model, tokenizer, chats, tmp_path):
    """Truncated, altered, a file too many, and no manifest: each time the run ends with the same bits as one undisturbed."""
    config = SFTConfig(max_steps=4, batch_size=2, save_steps=1)
    run = {"pad_token_id": 0, "tokenizer": tokenizer, "quiet": True}

    def fresh():
        return tiny_model("nano", tokenizer, seed=3)

    train_sft(fresh(), chats, config, out=tmp_path / "whole", **run)
    wanted = (tmp_path / "whole/checkpoints/step-000004/model.safetensors").read_bytes()

    def damages():
        yield lambda folder: (folder / "model.safetensors").write_bytes(b"short")
        yield lambda folder: (folder / "state.safetensors").write_bytes(
            (folder / "state.safetensors").read_bytes()[:-1] + b"!"
        )
        yield lambda folder: (folder / "extra.bin").write_bytes(b"pickle")
        yield lambda folder: (folder / "manifest.json").unlink()

    for number, damage in enumerate(damages()):
        out = tmp_path / str(number)
        train_sft(fresh(), chats, dataclasses.replace(config, max_steps=3), out=out, **run)
        damage(out / "checkpoints/step-000003")
        with pytest.warns(UserWarning, match="step-000003"):
            history = train_sft(fresh(), chats, config, out=out, resume=True, **run)
        assert (out / "checkpoints/step-000004/model.safetensors").read_bytes() == wanted
        assert history["step"] == [1, 2, 3, 4]


def test_loop_resume_rewrites_half_written_metrics_line(model, tokenizer, chats, tmp_path):
    config = SFTConfig(max_steps=2, batch_size=2, save_steps=1)
    run = {"pad_token_id": 0, "tokenizer": tokenizer, "quiet": True, "out": tmp_path}
    train_sft(model, chats, config, **run)
    with (tmp_path / "metrics.jsonl").open("a") as file:
        file.write('{"step": 3, "lo')
    longer = dataclasses.replace(config, max_steps=4)
    train_sft(tiny_model("nano", tokenizer, seed=3), chats, longer, resume=True, **run)
    assert History.read(tmp_path)["step"] == [1, 2, 3, 4]


def test_history_resume_renumbers_rows_of_older_versions(tmp_path):
    file = tmp_path / "metrics.jsonl"
    file.write_text('{"step": 0, "loss": 3.0}\n{"step": 1, "loss": 2.0}\n{"step": 2, "loss": 1.0}\n')
    assert History.resume(file, 2).rows == [{"step": 1, "loss": 3.0}, {"step": 2, "loss": 2.0}]


def test_loop_stops_unchanged_at_non_finite_loss_or_gradient(model, tokenizer, tmp_path):
    out = tmp_path / "run"
    loop = TrainingLoop("test", model, SFTConfig(max_steps=3), out=out, tokenizer=tokenizer, quiet=True)
    before = weights_of(model)
    with raises(NonFiniteLoss, argument="loss", problem="not finite", file=str(out / "checkpoints")):
        for step in loop:
            loss = sum(p.sum() for p in model.parameters())
            loop.log(**loop.update([loss * (float("nan") if step == 1 else 0.0)]))
    assert loop.step == 1
    torch.testing.assert_close(weights_of(model), before, rtol=0, atol=0)
    zero = next(model.parameters()).sum() * 0  # a finite loss whose gradient is not: the root at 0
    with raises(NonFiniteLoss, argument="grad_norm", problem="not finite"):
        TrainingLoop("test", model, SFTConfig(), quiet=True).update([zero.sqrt()])


def test_loop_refuses_used_folder_missing_run_and_changed_settings(model, tokenizer, chats, tmp_path):
    config = SFTConfig(max_steps=1, batch_size=2)
    run = {"pad_token_id": 0, "tokenizer": tokenizer, "quiet": True}
    train_sft(model, chats, config, out=tmp_path / "run", **run)
    assert not model.training
    with raises(UserError, argument="out", value=str(tmp_path / "run"), problem="exists"):
        train_sft(model, chats, config, out=tmp_path / "run", **run)
    with raises(UserError, argument="resume", problem="missing"):
        train_sft(model, chats, config, out=tmp_path / "none", resume=True, **run)
    changed = dataclasses.replace(config, learning_rate=0.5)
    with raises(UserError, argument="learning_rate", value=0.5, expected=0.001):
        train_sft(model, chats, changed, out=tmp_path / "run", resume=True, **run)


def test_loop_update_clips_gradient_and_decays_weights():
    """The first step of AdamW is the rate times the sign of the gradient, after the decay; clipped to nearly nothing, it is less."""

    class Weights(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = torch.nn.Parameter(torch.full((3,), 2.0))

    def moved(**settings):
        module = Weights()
        loop = TrainingLoop("test", module, SFTConfig(learning_rate=0.1, **settings), quiet=True)
        metrics = loop.update([module.weight.sum(), 3 * module.weight.sum()])
        assert metrics["loss"] == 24.0 and metrics["grad_norm"] == pytest.approx(4 * 3**0.5)
        return 2.0 - module.weight[0].item()

    assert moved() == pytest.approx(0.1)
    assert moved(weight_decay=0.5) == pytest.approx(0.1 + 0.1 * 0.5 * 2.0)
    assert moved(max_grad_norm=1e-9) < 0.099


def test_loop_watch_is_measured_every_so_many_steps(model):
    measured = iter([7.0, 8.0])
    loop = TrainingLoop(
        "test", model, SFTConfig(max_steps=5), watch=TrainerCallback(2, lambda: {"watched": next(measured)}), quiet=True
    )
    for _ in loop:
        loop.log(loss=0.0)
    assert [row.get("watched") for row in loop.history] == [None, 7.0, None, 8.0, None]


# -- settings -----------------------------------------------------------------------------------------------------


def test_learning_rate_at_warms_up_then_follows_schedule():
    config = TrainerConfig(max_steps=10, learning_rate=1.0, warmup_steps=2, lr_scheduler_type="linear")
    assert [config.learning_rate_at(s) for s in (0, 1, 2, 6)] == pytest.approx([0.5, 1.0, 1.0, 0.5])
    cosine = dataclasses.replace(config, lr_scheduler_type="cosine")
    assert cosine.learning_rate_at(6) == pytest.approx(0.5)
    assert dataclasses.replace(config, lr_scheduler_type="constant").learning_rate_at(9) == 1.0


@pytest.mark.parametrize(
    ("values", "facts"),
    [
        ({"learning_rate": "fast"}, {"argument": "learning_rate", "value": "fast", "expected": float}),
        ({"learning_rate": -1}, {"argument": "learning_rate", "value": -1.0, "expected": "> 0"}),
        ({"learning_rate": float("nan")}, {"argument": "learning_rate", "expected": "> 0"}),
        ({"max_steps": 2.5}, {"argument": "max_steps", "value": 2.5, "expected": int}),
        ({"max_steps": True}, {"argument": "max_steps", "value": True, "expected": int}),
        ({"max_steps": [1]}, {"argument": "max_steps", "expected": int}),
        ({"batchsize": 3}, {"value": "batchsize", "expected": "batch_size", "problem": "unknown"}),
        ({"lr_scheduler_type": "cosin"}, {"argument": "lr_scheduler_type", "expected": "cosine"}),
        ({"batch_size": 0}, {"argument": "batch_size", "value": 0, "expected": 1}),
        ({"num_generations": 0}, {"argument": "num_generations", "expected": 1}),
        ({"max_invalid_fraction": 1.5}, {"argument": "max_invalid_fraction", "expected": (0, 1)}),
        ({"temperature": 0}, {"argument": "temperature", "expected": "> 0"}),
        ({"top_p": 1.5}, {"argument": "top_p", "expected": "(0, 1]"}),
    ],
)
def test_from_mapping_refuses_bad_settings(values, facts):
    with raises(UserError, **facts) as caught:
        from_mapping(OnlineConfig, values, "file.yaml")
    assert "\n" not in str(caught.value)


def test_from_mapping_reads_text_and_yaml_values_alike():
    from_flags = from_mapping(SFTConfig, {"max_steps": "7", "learning_rate": "1e-4", "micro_batch_size": "none"})
    from_yaml = from_mapping(SFTConfig, {"max_steps": 7, "learning_rate": 1e-4, "micro_batch_size": None})
    assert from_flags == from_yaml == SFTConfig(max_steps=7, learning_rate=1e-4)


# -- history ------------------------------------------------------------------------------------------------------


def test_history_reads_what_it_wrote_and_plots_it(tmp_path):
    history = History(tmp_path / "metrics.jsonl")
    for step in range(1, 5):
        history.append(step, loss=1 / step, **({"kl": 0.5} if step == 3 else {}))
    again = History.read(tmp_path)
    assert again.rows == history.rows and len(again) == 4
    assert again["loss"] == pytest.approx([1, 0.5, 1 / 3, 0.25])
    assert again["kl"] == pytest.approx([float("nan")] * 2 + [0.5, float("nan")], nan_ok=True)
    again.truncate(2)
    assert History.read(tmp_path)["step"] == [1, 2]
    axes = history.plot("loss")
    assert axes.flat[0].lines[0].get_ydata().tolist() == pytest.approx(history["loss"])
    with pytest.raises(KeyError) as missing:
        history["los"]
    assert all(name in str(missing.value) for name in ("'los'", "kl", "loss", "step"))


def test_history_repr_has_first_and_last_values():
    history = History(rows=[{"step": 0, "loss": 2.0, "lr": 0.1}, {"step": 1, "loss": 1.5, "lr": 0.1}])
    assert all(part in repr(history) for part in ("2", "loss 2 -> 1.5", "lr"))
    assert "loss" not in repr(History())


def test_history_names_broken_line_or_missing_file(tmp_path):
    (tmp_path / "metrics.jsonl").write_text('{"step": 0}\n{"step": \n')
    with raises(UserError, file=str(tmp_path / "metrics.jsonl"), line=2):
        History.read(tmp_path)
    with raises(UserError, problem="missing", file=str(tmp_path / "missing")):
        History.read(tmp_path / "missing")


@pytest.mark.parametrize(
    ("line", "problem"),
    [(b"\xff\xfe", "not JSON"), (b"[" * 100_000, "not JSON"), (b"1", "not metrics"), (b'{"loss": 1}', "not metrics"),
     (b'{"step": 1, "prompt": "q"}', "not metrics")],
)  # fmt: skip
def test_history_refuses_file_of_another_kind(line, problem, tmp_path):
    file = tmp_path / "data.jsonl"
    file.write_bytes(b'{"step": 1, "loss": 2.0}\n' + line + b"\n")
    with raises(UserError, problem=problem, line=2):
        History.read(file)
