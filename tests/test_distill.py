"""Distillation: every row learns, one step is TRL's, the batch may be split, whose answers are taken, and every kind of wrong input."""

import dataclasses
import json

import pytest
import torch
from facts import raises

from minirlhf.core.errors import UserError
from minirlhf.core.exact import ToyLM, divergence
from minirlhf.data.chat import conversation, encode
from minirlhf.data.collate import collate_completions
from minirlhf.equations.distillation import reverse_kl_distillation
from minirlhf.models import checkpoints
from minirlhf.models.forward import completion_logits
from minirlhf.models.tiny import tiny_model
from minirlhf.models.tokenizers import word_tokenizer
from minirlhf.recipes.distill import DISTILLATIONS, DistillationBatch, describe_distillation
from minirlhf.trainers.distill import (
    DistillConfig,
    _losses,
    both,
    divergence_on_batch,
    sampled_completions,
    train_distill,
)
from minirlhf.trainers.sft import SFTConfig, train_sft
from minirlhf_cli import dispatch, main
from minirlhf_course.ledger.peers.adapter import trl_jsd

WORDS = ("one", "two", "three", "go", "stop")
SHORT = {"max_steps": 2, "batch_size": 3, "max_completion_length": 6}


@pytest.fixture(scope="module")
def tokenizer():
    return word_tokenizer(WORDS)


@pytest.fixture(scope="module")
def examples(tokenizer):
    said = [("go", "two"), ("stop", "three"), ("go go", "two two"), ("stop go", "three one"), ("one", "go stop one")]
    return [encode(tokenizer, conversation(prompt, answer)) for prompt, answer in said]


@pytest.fixture(scope="module")
def teacher(tokenizer, examples):
    """Of another size than the student; it knows the examples."""
    model = tiny_model("micro", tokenizer, seed=9)
    train_sft(
        model, examples, SFTConfig(max_steps=40, batch_size=5, learning_rate=3e-3), pad_token_id=tokenizer.pad_token_id,
        quiet=True,
    )  # fmt: skip
    return model


@pytest.fixture
def student(tokenizer):
    return tiny_model("nano", tokenizer, seed=3)


def train(student, teacher, examples, recipe, tokenizer, *, seen_by_teacher=None, **settings):
    config = DistillConfig(**{**SHORT, **settings})
    return train_distill(
        student, teacher, examples, recipe, config, seen_by_teacher=seen_by_teacher, eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id, quiet=True,
    )  # fmt: skip


@torch.no_grad()
def reverse_kl(student, teacher, examples, tokenizer):
    """Mean over 100 of the student's own answers of the sum over tokens."""
    pad, end = tokenizer.pad_token_id, tokenizer.eos_token_id
    batch = sampled_completions(student, examples * 20, DistillConfig(**SHORT), 0, eos_token_id=end, pad_token_id=pad)
    seen = both(student, teacher, batch, batch)
    per_token = reverse_kl_distillation(seen.student_logits, seen.teacher_logits, seen.mask)
    return float(per_token.sum(-1).mean())


@pytest.mark.slow
@pytest.mark.parametrize("name", DISTILLATIONS)
def test_distillation_comes_closer_to_the_teacher(name, student, teacher, examples, tokenizer):
    """By the forward KL on given answers or, where all answers are the student's, by the reverse KL on those."""
    recipe = DISTILLATIONS[name].with_(k=3) if name == "top_k_kd" else DISTILLATIONS[name]

    def measure():
        if recipe.own_answers == 1:
            return reverse_kl(student, teacher, examples, tokenizer)
        return divergence_on_batch(student, teacher, examples, pad_token_id=tokenizer.pad_token_id)["forward_kl"]

    before, weights = measure(), [p.detach().clone() for p in teacher.parameters()]
    train(student, teacher, examples, recipe, tokenizer, max_steps=25, batch_size=5, learning_rate=3e-3)
    assert measure() < 0.7 * before
    assert all(torch.equal(a, b) for a, b in zip(weights, teacher.parameters(), strict=True))


@pytest.mark.parametrize(
    ("name", "changes", "beta"),
    [("gkd", {"beta": beta}, beta) for beta in (0.1, 0.5, 0.9)] + [("kd", {}, 0.0), ("on_policy_kd", {}, 1.0)],
)
def test_distillation_step_has_the_gradient_of_trl(name, changes, beta, student, teacher, examples, tokenizer):
    """TRL's generalised divergence is the forward KL at β = 0 and the reverse KL at 1."""
    pytest.importorskip("trl")
    recipe = DISTILLATIONS[name].with_(**changes)
    batch = collate_completions(examples, tokenizer.pad_token_id)
    ours = next(
        _losses(student, teacher, batch, batch, recipe.weights(batch.mask), recipe.compared, DistillConfig(**SHORT))
    )
    inputs = batch.input_ids, batch.attention_mask, batch.mask.shape[1]
    logits = [completion_logits(model, *inputs)[:, :-1] for model in (student, teacher)]
    theirs = trl_jsd(logits[0], logits[1].detach(), batch.mask, beta=beta)
    torch.testing.assert_close(ours, theirs)
    for a, b in zip(*(torch.autograd.grad(x, list(student.parameters())) for x in (ours, theirs)), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-7)


@pytest.mark.parametrize("name", DISTILLATIONS)
def test_distillation_micro_batches_change_nothing(name, student, teacher, examples, tokenizer):
    recipe = DISTILLATIONS[name].with_(k=3) if name == "top_k_kd" else DISTILLATIONS[name]
    whole = train(student, teacher, examples, recipe, tokenizer)
    parts = train(tiny_model("nano", tokenizer, seed=3), teacher, examples, recipe, tokenizer, micro_batch_size=2)
    for key in ("loss", "grad_norm"):
        assert parts[key] == pytest.approx(whole[key], rel=1e-4)


def test_distillation_of_equal_models_has_loss_0(student, examples, tokenizer):
    same = tiny_model("nano", tokenizer, seed=3)
    for name in ("kd", "gkd", "on_policy_kd", "minillm"):
        history = train(student, same, examples, DISTILLATIONS[name], tokenizer, learning_rate=1e-9)
        assert max(map(abs, history["loss"])) < 1e-5 and max(history["grad_norm"]) < 1e-4


@pytest.mark.slow
def test_gkd_share_of_own_answers_is_that_of_the_steps(student, teacher, examples, tokenizer):
    for share in (0.0, 1.0, 0.3):
        recipe = DISTILLATIONS["gkd"].with_(own_answers=share)
        own = train(student, teacher, examples, recipe, tokenizer, max_steps=60, learning_rate=1e-6)["own_answers"]
        assert set(own) <= {0.0, 1.0}
        assert sum(own) == 60 * share or (share == 0.3 and 6 <= sum(own) <= 30)


def test_sampled_answers_depend_on_writer_and_step(student, teacher, examples, tokenizer):
    config = DistillConfig(**SHORT)
    ends = {"eos_token_id": tokenizer.eos_token_id, "pad_token_id": tokenizer.pad_token_id}
    asked = lambda model, step: sampled_completions(model, examples, config, step, **ends)
    first, again, later, other = asked(student, 0), asked(student, 0), asked(student, 1), asked(teacher, 0)
    assert torch.equal(first.input_ids, again.input_ids)
    assert first.input_ids.tolist() != later.input_ids.tolist() and first.input_ids.tolist() != other.input_ids.tolist()
    for row, mask, example in zip(first.input_ids, first.attention_mask, examples, strict=True):
        prompt = example.input_ids[: example.loss_mask.index(True)]
        assert row[mask.bool()].tolist()[: len(prompt)] == prompt


def test_minillm_student_leaves_a_mode_and_on_policy_kd_does_not(examples):
    """A teacher of two equally likely answers, each sure of itself, and a student that cannot tell them apart at the second token.

    The teacher says 1 1 or 2 2; the student has one distribution for the second token, whatever the first was. Token by token the
    best is a coin each time; with credit for what comes later one answer wins.
    """
    target = ToyLM(3, 2)
    probs = torch.full((len(target.completions().tokens),), 1e-3, dtype=torch.float64)
    for row, tokens in enumerate(target.completions().tokens.tolist()):
        if tokens in ([1, 1], [2, 2]):
            probs[row] = 1.0
    target.set_distribution(probs / probs.sum())
    recipes = {name: DISTILLATIONS[name].compared for name in ("on_policy_kd", "minillm")}
    found = {}
    for name, compared in recipes.items():
        model = ToyLM(3, 2)
        batch = model.batch()
        ids, mask = batch["input_ids"], batch["mask"]
        said = target(ids).logits[:, :-1].detach()
        leaf = torch.tensor([[-2.0, 0.1, 0.0], [-2.0, 0.05, 0.0]], dtype=torch.float64, requires_grad=True)
        steps = torch.optim.Adam([leaf], lr=0.05)
        for _ in range(400):
            logits = leaf.expand(len(ids), -1, -1)  # (N, 2, V): a row for each place
            logps = logits.log_softmax(-1).gather(-1, torch.where(mask, ids[:, 1:], 0)[..., None])[..., 0]
            chance = torch.where(mask, logps, 0.0).sum(-1).exp()
            loss = (chance.detach() * compared(DistillationBatch(logits, said, ids[:, 1:], mask)).sum(-1)).sum()
            steps.zero_grad()
            loss.backward()
            steps.step()
        final = chance.detach() / chance.detach().sum()
        found[name] = (
            float(divergence(final, target.distribution()[0].detach())),
            float(leaf.detach()[0].softmax(-1)[1:].max()),
        )
    assert found["minillm"][0] < 0.75 and found["minillm"][1] > 0.95
    assert found["on_policy_kd"][0] > 2 * found["minillm"][0]


# -- a teacher that is shown more ----------------------------------------------------------------------------------


def with_more(tokenizer, examples, word):
    """The same answers; every prompt begins with one more word of the user's."""
    [extra] = tokenizer(word, add_special_tokens=False).input_ids
    return [
        dataclasses.replace(
            e, input_ids=[e.input_ids[0], extra, *e.input_ids[1:]], loss_mask=[False, False, *e.loss_mask[1:]]
        )
        for e in examples
    ]


def test_kd_teacher_reads_its_own_prompts_and_the_same_answers(student, teacher, examples, tokenizer):
    """The first loss is the forward KL from the teacher after its prompt to the student after its own, row by row without padding."""
    hinted = with_more(tokenizer, examples, "three")
    found = train(
        student, teacher, examples, DISTILLATIONS["kd"], tokenizer, max_steps=1, batch_size=5, seen_by_teacher=hinted
    )
    fresh, total, count = tiny_model("nano", tokenizer, seed=3), 0.0, 0
    for plain, more in zip(examples, hinted, strict=True):
        said = []
        for model, one in ((fresh, plain), (teacher, more)):
            ids, first = torch.tensor([one.input_ids]), one.loss_mask.index(True)
            with torch.no_grad():
                said.append(model(input_ids=ids).logits[0, first - 1 : -1].log_softmax(-1))
        total += float((said[1].exp() * (said[1] - said[0])).sum())
        count += len(said[0])
    assert found["loss"][0] == pytest.approx(total / count, rel=1e-4)


@pytest.mark.parametrize("name", ["kd", "sequence_kd", "minillm"])
def test_distillation_with_a_teacher_shown_the_same_is_the_ordinary_one(name, teacher, examples, tokenizer):
    runs = [
        train(tiny_model("nano", tokenizer, seed=3), teacher, examples, DISTILLATIONS[name], tokenizer, **more)
        for more in ({}, {"seen_by_teacher": list(examples)})
    ]
    assert runs[0]["loss"] == runs[1]["loss"]


@pytest.mark.parametrize(("name", "writes_after"), [("sequence_kd", "three"), ("on_policy_kd", None)])
def test_distillation_writer_reads_its_own_prompts(name, writes_after, student, examples, tokenizer, monkeypatch):
    """A teacher that writes has read what it is shown, a student has not; in every step anew, and in another run otherwise."""
    drawn = []

    def spied(writer, asked, *more, **ends):
        drawn.append((writer, list(asked), sampled_completions(writer, asked, *more, **ends)))
        return drawn[-1][-1]

    monkeypatch.setattr("minirlhf.trainers.distill.sampled_completions", spied)
    hinted, teacher = with_more(tokenizer, examples, "three"), tiny_model("micro", tokenizer, seed=9)
    for seed in (0, 1):
        train(
            student, teacher, examples, DISTILLATIONS[name], tokenizer, seen_by_teacher=hinted, batch_size=5, seed=seed,
            learning_rate=1e-9,
        )  # fmt: skip
    for writer, asked, _ in drawn:
        assert writer is (teacher if writes_after else student)
        assert all(one in (hinted if writes_after else examples) for one in asked) and len(asked) == 5
    texts = {tuple(sorted(map(tuple, answers.input_ids[:, -6:].tolist()))) for *_, answers in drawn}
    assert len(drawn) == len(texts) == 4


def test_distillation_temperature_is_that_of_distributions_and_credit(student, teacher, examples, tokenizer):
    """The first loss: whole distributions at the run's temperature, and with credit the gradient of what was sampled there."""
    found = train(
        student, teacher, examples, DISTILLATIONS["kd"], tokenizer, max_steps=1, batch_size=5, temperature=2.5
    )
    batch = collate_completions(examples, tokenizer.pad_token_id)
    seen = both(tiny_model("nano", tokenizer, seed=3), teacher, batch, batch, 2.5)
    s, t = (x[seen.mask].log_softmax(-1) for x in (seen.student_logits / 2.5, seen.teacher_logits / 2.5))
    assert found["loss"][0] == pytest.approx(float((t.exp() * (t - s)).sum(-1).mean().detach()), rel=1e-4)
    assert found["tokens"] == [float(batch.mask.sum())]
    config = DistillConfig(**{**SHORT, "temperature": 2.5})
    recipe = DISTILLATIONS["minillm"].resolved(temperature=2.5)
    fresh = tiny_model("nano", tokenizer, seed=3)
    loss = next(_losses(fresh, teacher, batch, batch, recipe.weights(batch.mask), recipe.compared, config))
    got = torch.autograd.grad(loss, list(fresh.parameters()))
    seen = both(fresh, teacher, batch, batch)
    s, t = (x.log_softmax(-1) for x in (seen.student_logits / 2.5, seen.teacher_logits / 2.5))
    apart = torch.where(seen.mask, (s.exp() * (s - t)).sum(-1), 0.0)
    said = torch.where(seen.mask, s.gather(-1, torch.where(seen.mask, seen.ids, 0)[..., None])[..., 0], 0.0)
    later = (apart.sum(-1, keepdim=True) - apart.cumsum(-1)).detach()
    want = torch.autograd.grad((apart + later * said).sum(-1).mean(), list(fresh.parameters()))
    for a, b in zip(got, want, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-3, atol=1e-5)


def test_divergence_on_weighs_by_tokens_however_it_is_batched(student, teacher, examples, tokenizer):
    whole, parts = (
        divergence_on_batch(student, teacher, examples, pad_token_id=tokenizer.pad_token_id, batch_size=size)
        for size in (64, 2)
    )
    assert parts == pytest.approx(whole, rel=1e-4)


def test_distillation_refuses_another_number_of_teachers_prompts(student, teacher, examples, tokenizer):
    with raises(ValueError, argument="seen_by_teacher", value=4, expected=5):
        train(student, teacher, examples, DISTILLATIONS["kd"], tokenizer, seen_by_teacher=examples[:4])


# -- wrong input, and the command ----------------------------------------------------------------------------------


def test_distill_with_a_teacher_of_another_vocabulary_is_refused(student, examples, tokenizer):
    stranger = tiny_model("nano", word_tokenizer((*WORDS, "more")), seed=0)
    with raises(UserError, argument="teacher", value=stranger.config.vocab_size, expected=student.config.vocab_size):
        train(student, stranger, examples, DISTILLATIONS["kd"], tokenizer)


@pytest.mark.parametrize(
    ("name", "changes", "expected"),
    [
        ("gkd", {"beta": 1.0}, "(0, 1)"),
        ("gkd", {"own_answers": 1.5}, "[0, 1]"),
        ("minillm", {"own_answers": 0.5}, 1),
        ("sequence_kd", {"own_answers": 0.5}, 0),
        ("top_k_kd", {"k": 0}, 1),
    ],
)
def test_distillation_try_out_refuses_numbers_that_make_no_sense(name, changes, expected):
    [(argument, value)] = changes.items()
    with raises(UserError, argument=argument, value=value, expected=expected):
        DISTILLATIONS[name].with_(**changes).validate()


def test_describe_distillation_names_row_changes_and_deviations():
    for name, row in DISTILLATIONS.items():
        text = describe_distillation(row)
        assert text.startswith(f"{name}: ") and all(deviation in text for deviation in row.deviations)
    assert "own_answers=1.0" in describe_distillation(DISTILLATIONS["gkd"].with_(own_answers=1.0))
    with raises(UserError, value="beta", problem="unknown"):
        DISTILLATIONS["kd"].with_(beta=0.5)


@pytest.fixture(scope="module")
def files(tmp_path_factory, tokenizer, teacher):
    folder = tmp_path_factory.mktemp("files")
    rows = [
        {"messages": [{"role": "user", "content": p}, {"role": "assistant", "content": a}]}
        for p in WORDS
        for a in WORDS
    ]
    (folder / "chats.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    checkpoints.save(folder / "teacher", teacher, tokenizer)
    other = word_tokenizer((*WORDS, "more"))
    checkpoints.save(folder / "stranger", tiny_model("nano", other, seed=1), other)
    checkpoints.save(folder / "student", tiny_model("nano", tokenizer, seed=1), tokenizer)
    return folder


def command(files, out, *more, model="nano"):
    settings = {"data": files / "chats.jsonl", "model": model, "teacher": files / "teacher", "out": out}
    flags = [str(part) for key, value in settings.items() for part in (f"--{key}", value)]
    return ["train", "distill", *flags, "--max-steps", "2", "--batch-size", "4", "--max-completion-length", "4", *more]


def test_distill_command_trains_a_preset_with_the_teachers_tokenizer(files, tmp_path, capsys):
    assert main(command(files, tmp_path / "run", "--recipe", "gkd", "--own-answers", "1")) == 0
    result = json.loads((tmp_path / "run" / "result.json").read_text())
    assert result["held_out_forward_kl"] != result["held_out_forward_kl_before"]
    assert "GKD" in capsys.readouterr().out
    settings = json.loads((tmp_path / "run" / "config.json").read_text())
    assert settings["recipe.own_answers"] == 1 and settings["depends"]["teacher"]


def test_distill_command_refuses_a_teacher_of_another_tokenizer(files, tmp_path):
    flags = command(files, tmp_path / "run", model=files / "student")
    flags[flags.index("--teacher") + 1] = str(files / "stranger")
    with raises(UserError, argument="teacher", problem="tokenizer"):
        dispatch(flags)
    assert not (tmp_path / "run" / "metrics.jsonl").exists()


def test_distill_command_refuses_more_tokens_of_the_teacher_than_there_are(files, tmp_path):
    with raises(UserError, argument="k", value=100):
        dispatch(command(files, tmp_path / "run", "--recipe", "top_k_kd", "--k", "100"))
    assert not (tmp_path / "run" / "metrics.jsonl").exists()


def test_distill_command_without_a_teacher_is_refused(files, tmp_path):
    flags = command(files, tmp_path / "run")
    at = flags.index("--teacher")
    with raises(UserError, argument="--teacher", problem="missing"):
        dispatch(flags[:at] + flags[at + 2 :])


def test_distill_config_has_the_settings_of_sampling():
    names = {field.name for field in dataclasses.fields(DistillConfig)}
    assert {"temperature", "max_completion_length"} <= names and "num_generations" not in names
