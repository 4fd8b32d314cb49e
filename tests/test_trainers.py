"""The training loops: the loss they minimise, resume to the same bits, Ctrl-C, non-finite losses, settings."""

import copy
import dataclasses
import subprocess
import sys
import textwrap

import pytest
import torch
from patience import finished

from minirlhf import recipes
from minirlhf.cli.settings import from_mapping
from minirlhf.core.errors import UserError
from minirlhf.data.chat import conversation, encode
from minirlhf.data.collate import batch_indices, collate
from minirlhf.data.formats import Problem
from minirlhf.data.types import Tokens, pair, ranked
from minirlhf.feedback.rewards import model_reward, reference_reward
from minirlhf.models.heads import RewardModel, ValueModel
from minirlhf.models.sampling import Sampling
from minirlhf.models.tiny import tiny_model
from minirlhf.models.tokenizers import word_tokenizer
from minirlhf.recipes.offline import get_preference
from minirlhf.trainers.config import TrainerConfig
from minirlhf.trainers.evaluation import candidates, evaluate
from minirlhf.trainers.history import History
from minirlhf.trainers.likelihood import mean_nll, nll_losses
from minirlhf.trainers.loop import Loop, NonFiniteLoss
from minirlhf.trainers.offline import HeldOut
from minirlhf.trainers.online import OnlineConfig, train_online
from minirlhf.trainers.reward import RewardConfig, pair_accuracy, train_reward
from minirlhf.trainers.sft import SFTConfig, prediction_weights, train_sft
from minirlhf.trainers.verifiers import token_scores

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


def test_every_epoch_takes_each_example_once():
    for count, size in ((10, 3), (4, 4), (3, 7)):
        taken = [int(i) for step in range(count) for i in batch_indices(count, size, step, seed=5)]
        for epoch in range(size):
            assert sorted(taken[epoch * count : (epoch + 1) * count]) == list(range(count))
    assert list(batch_indices(10, 3, 7, 1)) == list(batch_indices(10, 3, 7, 1))
    assert list(batch_indices(10, 10, 0, 1)) != list(batch_indices(10, 10, 0, 2))


def test_collate_pads_on_the_right_and_never_predicts_the_first_token():
    batch = collate([Tokens([5, 6, 7], [True, True, False]), Tokens([8], [True])], pad_token_id=0)
    assert batch.input_ids.tolist() == [[5, 6, 7], [8, 0, 0]]
    assert batch.attention_mask.tolist() == [[1, 1, 1], [1, 0, 0]]
    assert batch.loss_mask.tolist() == [[False, True, False], [False, False, False]]
    with pytest.raises(ValueError, match="2 ids, 1 loss flags"):
        Tokens([1, 2], [True])


# -- supervised fine-tuning ---------------------------------------------------------------------------------------


def test_sft_loss_is_the_mean_over_the_assistants_tokens(model, tokenizer, chats):
    """Against transformers' own loss, whose labels hold −100 where nothing is predicted."""
    batch = collate(chats, tokenizer.pad_token_id)
    labels = torch.where(batch.loss_mask, batch.input_ids, -100)
    peer = model(input_ids=batch.input_ids, attention_mask=batch.attention_mask, labels=labels).loss
    ours = sum(nll_losses(model, batch, prediction_weights(batch.loss_mask), None))
    torch.testing.assert_close(ours, peer, rtol=1e-5, atol=1e-6)
    assert mean_nll(model, chats, pad_token_id=tokenizer.pad_token_id) == pytest.approx(peer.item(), rel=1e-5)


@pytest.mark.parametrize("size", [1, 2, 3])
def test_accumulation_does_not_change_the_sft_gradient(model, tokenizer, chats, size):
    batch = collate(chats, tokenizer.pad_token_id)
    weights = prediction_weights(batch.loss_mask)
    grads = []
    for micro in (None, size):
        model.zero_grad()
        for loss in nll_losses(model, batch, weights, micro):
            loss.backward()
        grads.append(torch.cat([p.grad.flatten() for p in model.parameters()]))
    torch.testing.assert_close(grads[0], grads[1], rtol=1e-4, atol=1e-6)


def test_sft_learns_the_replies(model, tokenizer, chats):
    config = SFTConfig(max_steps=60, batch_size=4, learning_rate=5e-3)
    history = train_sft(model, chats, config, pad_token_id=tokenizer.pad_token_id, quiet=True)
    assert history["loss"][0] > 1.5 and history["loss"][-1] < 0.05


# -- reward model -------------------------------------------------------------------------------------------------


def test_reward_model_learns_a_rule_and_keeps_its_prediction_on_new_pairs(tokenizer):
    good, bad = "one two", "two one"
    prompts = ("go", "stop", "go go", "stop go", "go stop", "three")
    pairs = [pair(encode(tokenizer, conversation(p, good)), encode(tokenizer, conversation(p, bad))) for p in prompts]
    model = RewardModel.from_causal_lm(tiny_model("nano", tokenizer, seed=1))
    config = RewardConfig(max_steps=40, batch_size=5, learning_rate=3e-3)
    history = train_reward(model, pairs[:5], config, pad_token_id=tokenizer.pad_token_id, quiet=True)
    assert history["loss"][-1] < 0.1
    assert pair_accuracy(model, pairs[5:], pad_token_id=tokenizer.pad_token_id) == 1.0


def test_margin_centring_and_smoothing_enter_the_reward_loss(tokenizer):
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
    with pytest.raises(UserError, match=r"label_smoothing = 0\.6; expected a probability of at most 0.5"):
        RewardConfig(label_smoothing=0.6)


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


@pytest.mark.parametrize("name", sorted(recipes.RECIPES))
def test_every_recipe_raises_the_reward(name, tokenizer):
    gains = []
    for seed in range(3):
        policy = tiny_model("nano", tokenizer, seed=seed)
        config = OnlineConfig(
            max_steps=25, batch_size=4, num_generations=8, max_completion_length=5, learning_rate=2e-3, seed=seed
        )
        recipe = recipes.get(name)
        # Sixteen minibatches of the 32 completions here would be two each; the papers' hold hundreds.
        recipe = recipe.with_(num_minibatches=min(2, recipe.update.num_minibatches))
        history = train_online(
            policy,
            PROBLEMS,
            BeginsWithTwo(),
            recipe,
            config,
            tokenizer=tokenizer,
            quiet=True,
        )
        gains.append(sum(history["reward"][-5:]) / 5 - sum(history["reward"][:5]) / 5)
    assert min(gains) > 0.3, gains


def test_ungraded_samples_are_counted_and_ignored(model, tokenizer):
    def sometimes(problems, completions):
        return [float("nan") if i % 3 == 0 else 1.0 for i, _ in enumerate(completions)]

    config = OnlineConfig(max_steps=1, batch_size=2, num_generations=6, max_completion_length=3)
    history = train_online(model, PROBLEMS, sometimes, recipes.get("grpo"), config, tokenizer=tokenizer, quiet=True)
    row = history.last
    assert row["frac_invalid"] == pytest.approx(1 / 3) and row["reward"] == 1.0 and row["frac_reward_zero_std"] == 1.0


def test_a_grader_that_raises_costs_one_sample_and_too_many_stop_the_run(model, tokenizer, caplog):
    config = OnlineConfig(max_steps=1, batch_size=4, num_generations=8, max_completion_length=4)
    seen = []

    def breaks(problems, completions):
        seen.append(len(completions))
        if any("three" in text for text in completions):
            raise ZeroDivisionError("three is too many")
        return likes_two(problems, completions)

    history = train_online(model, PROBLEMS, breaks, recipes.get("grpo"), config, tokenizer=tokenizer, quiet=True)
    assert seen == [32] + [1] * 32  # the batch, then each by itself
    assert 0 < history["frac_invalid"][0] < 0.5
    assert "samples could not be graded; first: ZeroDivisionError: three is too many on the completion" in caplog.text
    strict = dataclasses.replace(config, max_invalid=0.0)
    for grader in (breaks, lambda problems, texts: [float("nan")] * len(texts)):
        with pytest.raises(
            UserError, match=r"the grader failed on \d+ of 32 samples, more than max_invalid = 0 of them"
        ):
            train_online(model, PROBLEMS, grader, recipes.get("grpo"), strict, tokenizer=tokenizer, quiet=True)
    with pytest.raises(UserError, match="no reference to grade against"):
        reward = reference_reward(lambda text, reference: 1.0)
        train_online(model, PROBLEMS, reward, recipes.get("grpo"), config, tokenizer=tokenizer, quiet=True)
    with pytest.raises(UserError, match="the policy knows 11 tokens, the reference 8"):
        other = tiny_model("nano", word_tokenizer(("one", "two")))
        train_online(model, PROBLEMS, likes_two, recipes.get("grpo"), config, tokenizer=tokenizer, ref_model=other)


def test_first_update_is_on_policy_and_monitors_are_logged(model, tokenizer):
    config = OnlineConfig(max_steps=2, batch_size=2, num_generations=4, max_completion_length=3)
    history = train_online(
        model,
        PROBLEMS,
        likes_two,
        recipes.get("grpo"),
        config,
        tokenizer=tokenizer,
        monitors={"words": lambda problems, texts: [len(t.split()) for t in texts]},
        quiet=True,
    )
    assert history["policy_log_ratio_max"][0] < 1e-5  # log-probabilities taken while sampling are the model's own
    assert history["kl"][0] == pytest.approx(0, abs=1e-6)
    assert all(0 <= n <= 3 for n in history["words"])


def test_margins_are_those_of_all_pairs_of_a_run_or_of_none(chats, tokenizer):
    def trained(margins, coefficient=1.0):
        judge = RewardModel.from_causal_lm(tiny_model("nano", tokenizer, seed=3), seed=0)
        pairs = [pair(chats[1], chats[0], margin) for margin in margins]
        config = RewardConfig(max_steps=2, batch_size=2, margin_coefficient=coefficient)
        return train_reward(judge, pairs, config, pad_token_id=tokenizer.pad_token_id, quiet=True)["loss"]

    with pytest.raises(UserError, match="1 of 4 pairs have no margin"):
        trained([2.0, 2.0, 2.0, None])
    without = trained([None] * 4)
    assert trained([2.0, 2.0, 2.0, None], 0.0) == without == trained([0.0] * 4)
    assert all(loss > plain + 0.1 for loss, plain in zip(trained([2.0] * 4), without, strict=True))


def test_scores_are_asked_for_before_the_first_step(chats, tokenizer):
    judge = RewardModel.from_causal_lm(tiny_model("nano", tokenizer, seed=3), seed=0)
    rated = [ranked(chats[:2], (2.0, 1.0)), ranked(chats[:2], None)]
    before = weights_of(judge)
    with pytest.raises(UserError, match="no scores"):
        config = RewardConfig(loss="regression", max_steps=2, batch_size=1)
        train_reward(judge, rated, config, pad_token_id=tokenizer.pad_token_id, quiet=True)
    assert torch.equal(weights_of(judge), before)


def test_who_measures_switches_dropout_off_and_leaves_the_model_as_it_was(chats, tokenizer):
    pad = tokenizer.pad_token_id
    policy = tiny_model("nano", tokenizer, seed=3)
    judge = RewardModel.from_causal_lm(tiny_model("nano", tokenizer, seed=4), seed=0)
    critic = ValueModel.from_causal_lm(tiny_model("nano", tokenizer, seed=5))
    pairs, problems = [pair(chats[1], chats[0])], [Problem([{"role": "user", "content": "go one"}], "one")]
    held = HeldOut(pairs, get_preference("dpo"), tiny_model("nano", tokenizer, seed=6), pad_token_id=pad)
    exact = reference_reward(lambda completion, reference: 1.0)
    run = {"tokenizer": tokenizer, "sampling": Sampling(max_completion_length=3)}
    measures = {
        "mean_nll": (policy, lambda: mean_nll(policy, chats, pad_token_id=pad)),
        "pair_accuracy": (judge, lambda: pair_accuracy(judge, pairs, pad_token_id=pad)),
        "token_scores": (critic, lambda: token_scores(critic, chats, pad_token_id=pad)),
        "HeldOut": (policy, lambda: held.measure(policy)),
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

INTERRUPTED = textwrap.dedent(
    """
    import os, sys
    import torch
    torch.set_num_threads(1)
    from minirlhf.data.chat import conversation, encode
    from minirlhf.models.tiny import tiny_model
    from minirlhf.models.tokenizers import word_tokenizer
    from minirlhf.trainers.loop import Loop
    from minirlhf.trainers.sft import SFTConfig, train_sft

    log = Loop.log
    def interrupted(self, **metrics):
        log(self, **metrics)
        if self.step == 4:
            os.kill(os.getpid(), 2)
    Loop.log = interrupted
    tokenizer = word_tokenizer(("one", "two", "go"))
    chats = [encode(tokenizer, conversation("go", "one two"))]
    config = SFTConfig(max_steps=9, batch_size=1)
    model = tiny_model("nano", tokenizer, seed=3)
    train_sft(model, chats, config, pad_token_id=0, out=sys.argv[1], tokenizer=tokenizer, quiet=True)
    """
)


@pytest.mark.slow
def test_ctrl_c_finishes_the_step_and_saves(tmp_path):
    command = [sys.executable, "-c", INTERRUPTED, str(tmp_path / "run")]
    stopped = finished(command, usually=6, stderr=subprocess.PIPE)
    assert stopped.returncode != 0
    assert "sft: stopped after step 5 of 9" in stopped.stderr
    assert (tmp_path / "run/checkpoints/step-000005/manifest.json").is_file()


def test_dropout_is_keyed_by_the_step_and_leaves_the_processs_randomness_alone(model):
    class Noisy(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = torch.nn.Parameter(torch.ones(100))

    def drawn(seed, steps):
        noise = []
        for _ in Loop("test", Noisy(), SFTConfig(max_steps=steps, seed=seed), quiet=True):
            noise.append(torch.nn.functional.dropout(torch.ones(100), 0.5))
        return noise

    torch.manual_seed(5)
    wanted = torch.rand(3)
    torch.manual_seed(5)
    first = drawn(0, 3)
    assert torch.equal(torch.rand(3), wanted)
    assert all(torch.equal(a, b) for a, b in zip(first, drawn(0, 3), strict=True))
    assert not torch.equal(first[0], first[1]) and not torch.equal(first[0], drawn(1, 1)[0])


def test_a_damaged_checkpoint_is_passed_over_and_the_one_before_is_used(model, tokenizer, chats, tmp_path):
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
        with pytest.warns(UserWarning, match="step-000003: damaged checkpoint .* using the one before"):
            history = train_sft(fresh(), chats, config, out=out, resume=True, **run)
        assert (out / "checkpoints/step-000004/model.safetensors").read_bytes() == wanted
        assert history["step"] == [0, 1, 2, 3]


def test_a_half_written_line_of_metrics_is_written_again(model, tokenizer, chats, tmp_path):
    config = SFTConfig(max_steps=2, batch_size=2, save_steps=1)
    run = {"pad_token_id": 0, "tokenizer": tokenizer, "quiet": True, "out": tmp_path}
    train_sft(model, chats, config, **run)
    with (tmp_path / "metrics.jsonl").open("a") as file:
        file.write('{"step": 2, "lo')
    longer = dataclasses.replace(config, max_steps=4)
    train_sft(tiny_model("nano", tokenizer, seed=3), chats, longer, resume=True, **run)
    assert History.read(tmp_path)["step"] == [0, 1, 2, 3]


def test_a_non_finite_loss_stops_and_changes_nothing(model, tokenizer, tmp_path):
    loop = Loop("test", model, SFTConfig(max_steps=3), out=tmp_path / "run", tokenizer=tokenizer, quiet=True)
    before = weights_of(model)
    with pytest.raises(NonFiniteLoss, match=r"the loss is nan at step 1.*last good checkpoint is kept in .*run"):
        for step in loop:
            loss = sum(p.sum() for p in model.parameters())
            loop.log(**loop.update([loss * (float("nan") if step == 1 else 0.0)]))
    torch.testing.assert_close(weights_of(model), before, rtol=0, atol=0)
    zero = next(model.parameters()).sum() * 0  # a finite loss whose gradient is not: the root at 0
    with pytest.raises(NonFiniteLoss, match="the gradient norm is"):
        Loop("test", model, SFTConfig(), quiet=True).update([zero.sqrt()])


def test_a_folder_with_a_run_is_not_overwritten(model, tokenizer, chats, tmp_path):
    config = SFTConfig(max_steps=1, batch_size=2)
    train_sft(model, chats, config, pad_token_id=0, out=tmp_path / "run", tokenizer=tokenizer, quiet=True)
    with pytest.raises(UserError, match="holds a run already"):
        train_sft(model, chats, config, pad_token_id=0, out=tmp_path / "run", tokenizer=tokenizer, quiet=True)
    with pytest.raises(UserError, match="no run to resume"):
        train_sft(model, chats, config, pad_token_id=0, out=tmp_path / "none", tokenizer=tokenizer, resume=True)
    changed = dataclasses.replace(config, learning_rate=0.5)
    with pytest.raises(UserError, match=r"learning_rate was 0\.001"):
        train_sft(model, chats, changed, pad_token_id=0, out=tmp_path / "run", tokenizer=tokenizer, resume=True)


# -- settings -----------------------------------------------------------------------------------------------------


def test_learning_rate_schedules():
    config = TrainerConfig(max_steps=10, learning_rate=1.0, warmup_steps=2, lr_scheduler_type="linear")
    assert [config.learning_rate_at(s) for s in (0, 1, 2, 6)] == pytest.approx([0.5, 1.0, 1.0, 0.5])
    cosine = dataclasses.replace(config, lr_scheduler_type="cosine")
    assert cosine.learning_rate_at(6) == pytest.approx(0.5)
    assert dataclasses.replace(config, lr_scheduler_type="constant").learning_rate_at(9) == 1.0


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"learning_rate": "fast"}, "learning_rate = 'fast'; expected a number"),
        ({"learning_rate": -1}, "learning_rate = -1.0; expected a finite number > 0"),
        ({"learning_rate": float("nan")}, "learning_rate = nan"),
        ({"max_steps": 2.5}, "max_steps = 2.5; expected a whole number"),
        ({"max_steps": True}, "max_steps = True; expected a whole number"),
        ({"max_steps": [1]}, "expected a whole number"),
        ({"batchsize": 3}, "unknown setting in file.yaml 'batchsize': did you mean 'batch_size'"),
        ({"lr_scheduler_type": "cosin"}, "did you mean 'cosine'"),
        ({"batch_size": 0}, "batch_size = 0; expected at least 1"),
        ({"temperature": 0}, "temperature"),
        ({"top_p": 1.5}, "top_p"),
        ({"num_generations": 0}, "num_generations"),
    ],
)
def test_bad_settings_are_one_clear_error(values, message):
    with pytest.raises(UserError) as caught:
        from_mapping(OnlineConfig, values, "file.yaml")
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_flags_and_yaml_give_the_same_config():
    from_flags = from_mapping(SFTConfig, {"max_steps": "7", "learning_rate": "1e-4", "micro_batch_size": "none"})
    from_yaml = from_mapping(SFTConfig, {"max_steps": 7, "learning_rate": 1e-4, "micro_batch_size": None})
    assert from_flags == from_yaml == SFTConfig(max_steps=7, learning_rate=1e-4)


# -- history ------------------------------------------------------------------------------------------------------


def test_history_reads_what_it_wrote_and_plots_itself(tmp_path):
    history = History(tmp_path / "metrics.jsonl")
    for step in range(4):
        history.append(step, loss=1 / (step + 1), **({"kl": 0.5} if step == 2 else {}))
    again = History.read(tmp_path)
    assert again.rows == history.rows and len(again) == 4
    assert again["loss"] == pytest.approx([1, 0.5, 1 / 3, 0.25])
    again.truncate(2)
    assert History.read(tmp_path)["step"] == [0, 1]
    axes = history.plot("loss")
    assert axes.flat[0].lines[0].get_ydata().tolist() == pytest.approx(history["loss"])
    with pytest.raises(KeyError, match="no metric 'los'; this history has kl, loss, step"):
        history["los"]


def test_a_broken_history_names_its_line(tmp_path):
    (tmp_path / "metrics.jsonl").write_text('{"step": 0}\n{"step": \n')
    with pytest.raises(UserError, match=r"metrics.jsonl line 2: not JSON"):
        History.read(tmp_path)
    with pytest.raises(UserError, match="no such file"):
        History.read(tmp_path / "missing")
