"""Several sequences in one row: what each is predicted from, what a step learns, what is saved, and who cannot be read so."""

import dataclasses
import re
from functools import partial

import architectures
import numpy as np
import pytest
import torch
import transformers
from facts import raises

from minirlhf.core.errors import UserError
from minirlhf.data.chat import conversation, encode
from minirlhf.data.collate import batch_indices, collate
from minirlhf.data.packing import Packing, best_fit_decreasing, collate_packed
from minirlhf.data.types import Tokens
from minirlhf.models import packed
from minirlhf.models.packed import packed_logits, packed_logps, require_packable, row_length
from minirlhf.models.tiny import tiny_model
from minirlhf.models.tokenizers import word_tokenizer
from minirlhf.trainers import sft
from minirlhf.trainers.likelihood import nll_losses
from minirlhf.trainers.sft import LOSSES, SFTConfig, prediction_weights, train_sft
from minirlhf_cli import dispatch
from minirlhf_cli.export.trl import NOT_BY_POSITION

WORDS = ("one", "two", "three", "go", "stop")
#: Beside those of ``architectures``: positions that are learned with an offset, slopes in place of positions, one head of keys, a router.
MORE = {
    "OPT": {"ffn_dim": 24, "word_embed_proj_dim": 16, "dropout": 0.0},
    "GPTNeoX": {"intermediate_size": 24},
    "Falcon": {"hidden_dropout": 0.0, "attention_dropout": 0.0},
    "Mpt": {"d_model": 16, "n_layers": 2, "n_heads": 2, "max_seq_len": 64},
    "Mixtral": {"intermediate_size": 24, "num_local_experts": 2, "num_key_value_heads": 1},
    "Mamba": {"state_size": 4},
    "Rwkv": {"attention_hidden_size": 16, "num_hidden_layers": 2, "context_length": 64},
    "Bloom": {"n_layer": 2, "n_head": 2},
    "RecurrentGemma": {"num_hidden_layers": 3, "intermediate_size": 24, "lru_width": 16, "attention_window_size": 4},
}
SIZES = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "max_position_embeddings": 64}
PACKED = ("Llama", "GPT2", "Qwen2", "Qwen3", "Gemma", "Phi", "Phi3", "OPT", "GPTNeoX", "Falcon", "Mpt", "Mixtral")
REFUSED = ("Mistral", "Gemma2", "Mamba", "Rwkv", "RecurrentGemma", "Bloom")


def build(name):
    """A random model with weights so large that a token more or less before another one is clearly seen."""
    if name in architectures.ARCHITECTURES:
        return architectures.build(name)
    known = set(vars(getattr(transformers, f"{name}Config")()))
    shared = {key: value for key, value in SIZES.items() if key in known}
    config = getattr(transformers, f"{name}Config")(**{"vocab_size": architectures.VOCAB, **shared, **MORE[name]})
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = getattr(transformers, f"{name}ForCausalLM")(config).eval()
        for weight in model.parameters():
            if weight.dim() > 1:
                torch.nn.init.normal_(weight, std=0.3)
    return model


def sequences(lengths, vocabulary=architectures.VOCAB, seed=0):
    """Of these lengths, with about half of the tokens marked."""
    draw = np.random.default_rng(seed)
    return [Tokens(draw.integers(2, vocabulary, n).tolist(), (draw.random(n) < 0.5).tolist()) for n in lengths]


ROWS = [sequences([3, 9, 8], seed=1), sequences([11, 5], seed=2), sequences([20], seed=3)]


def alone(model, sequence):
    """The logits that a sequence has by itself, ``(S, V)``."""
    with torch.no_grad():
        return model(input_ids=torch.tensor([sequence.input_ids]), use_cache=False).logits[0]


def apart_by(model):
    """The largest difference between the logits of packed rows and those of their sequences alone; some are above 3, all in float32."""
    batch = collate_packed(ROWS, 0, length=20)
    with torch.no_grad():
        found = packed_logits(model, batch.input_ids, batch.documents, width=20)
    return max(
        float((found[b, : sum(map(len, row))] - torch.cat([alone(model, e) for e in row])).abs().max())
        for b, row in enumerate(ROWS)
    )


# -- which go together ---------------------------------------------------------------------------------------------


def by_looking_at_every_row(lengths, capacity):
    """Best-fit decreasing as it is defined."""
    rows = []
    for index in sorted(range(len(lengths)), key=lambda i: -lengths[i]):
        room = [capacity - sum(lengths[i] for i in row) for row in rows]
        fits = [(left, row) for row, left in enumerate(room) if left >= lengths[index]]
        if fits:
            rows[min(fits)[1]].append(index)
        else:
            rows.append([index])
    return rows


@pytest.mark.parametrize("seed", range(5))
def test_best_fit_decreasing_uses_fullest_row_with_room(seed):
    lengths = np.random.default_rng(seed).integers(1, 21, 60).tolist()
    rows = best_fit_decreasing(lengths, 20)
    assert rows == by_looking_at_every_row(lengths, 20)
    assert sorted(i for row in rows for i in row) == list(range(60))
    assert all(sum(lengths[i] for i in row) <= 20 for row in rows)


def test_best_fit_decreasing_sequence_longer_than_row_is_error():
    assert best_fit_decreasing([4, 4], 4) == [[0], [1]]
    with raises(ValueError, argument="lengths", value=5, expected=4):
        best_fit_decreasing([4, 5], 4)


def test_packing_saved_counts_batches_of_run():
    examples = sequences(np.random.default_rng(0).integers(2, 21, 30))
    packing = Packing.of([len(e) for e in examples], 20)
    one_a_row = [collate([examples[i] for i in batch_indices(30, 5, s, seed=3)], 0).input_ids.numel() for s in range(6)]
    rows = collate_packed([[examples[i] for i in row] for row in packing.rows], 0, length=20)
    assert packing.saved(batch_size=5, seed=3) == pytest.approx(1 - rows.input_ids.numel() / sum(one_a_row))
    assert packing.filled == pytest.approx(float((rows.documents >= 0).double().mean()))


# -- what stands in a row ------------------------------------------------------------------------------------------


def test_collate_packed_predicts_no_first_token():
    first, second = Tokens([5, 6, 7], [True, False, True]), Tokens([8, 9], [True, True])
    batch = collate_packed([[first, second], [second]], 0, length=6)
    assert batch.input_ids.tolist() == [[5, 6, 7, 8, 9, 0], [8, 9, 0, 0, 0, 0]]
    assert batch.documents.tolist() == [[0, 0, 0, 1, 1, -1], [0, 0, -1, -1, -1, -1]]
    assert batch.loss_mask.int().tolist() == [[0, 0, 1, 0, 1, 0], [0, 1, 0, 0, 0, 0]]


def test_packed_batch_apart_equals_collate():
    unpacked, again = collate([e for row in ROWS for e in row], 0), collate_packed(ROWS, 7, length=23).unpack()
    for name in ("input_ids", "attention_mask", "loss_mask"):
        assert torch.equal(getattr(again, name), getattr(unpacked, name)), name


# -- what each is predicted from -------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", PACKED)
def test_packed_logits_equal_each_sequence_alone(name):
    model = build(name)
    require_packable(model, 20)
    assert apart_by(model) < 1e-4


def without_blocks(documents):
    length = documents.shape[1]
    return torch.ones(length, length, dtype=torch.bool).tril().expand(len(documents), -1, -1)


@pytest.mark.parametrize("name", ["Llama", "GPT2", "Qwen3", "OPT"])
@pytest.mark.parametrize(
    ("what", "wrong"),
    [
        ("packed_mask", without_blocks),
        ("packed_positions", lambda documents: torch.arange(documents.shape[1]).expand_as(documents)),
    ],
)
def test_require_packable_sees_wrong_mask_and_wrong_positions(name, what, wrong, monkeypatch):
    model = build(name)
    monkeypatch.setattr(packed, what, wrong)
    if (name, what) in [("Llama", "packed_positions"), ("Qwen3", "packed_positions")]:
        assert apart_by(model) < 1e-4  # an angle between two positions depends on their distance alone
    else:
        assert apart_by(model) > 0.1
        with raises(UserError, argument="--packing", value=20):
            require_packable(model, 20)


@pytest.mark.parametrize("name", REFUSED)
def test_require_packable_refuses_recurrent_state_and_short_window(name):
    with raises(UserError, argument="--packing", value=20):
        require_packable(build(name), 20)


@pytest.mark.parametrize(
    ("name", "apart"),
    [
        ("Llama", True),
        ("GPT2", True),
        ("Qwen3", True),
        ("OPT", False),
        ("Falcon", False),
        ("Mpt", False),
        ("Bloom", False),
    ],
)
def test_not_by_position_names_models_that_ignore_positions(name, apart):
    """What an exported run is told of packed rows (``minirlhf_cli/export/trl.py``)."""
    model, row = build(name), ROWS[0]
    batch = collate_packed([row], 0, length=20)
    positions = torch.cat([torch.arange(len(e)) for e in row])[None]
    with torch.no_grad():
        found = model(input_ids=batch.input_ids, position_ids=positions, use_cache=False).logits[0]
    away = float((found - torch.cat([alone(model, e) for e in row])).abs().max())
    assert away < 1e-4 if apart else away > 0.1
    assert (name.lower() in map(str.lower, NOT_BY_POSITION)) is not apart


def test_require_packable_accepts_window_as_long_as_row():
    model = build("Mistral")
    with raises(UserError, argument="--packing", value=5, expected=4):
        require_packable(model, 5)
    require_packable(model, 4)


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("name", ["Llama", "GPT2", "Qwen3"])
def test_packed_logps_and_gradients_equal_each_sequence_alone(name, masked, monkeypatch):
    """Both ways of reading: row by row with a mask, and, where the model allows it, one by one."""
    model = build(name).double()
    rows = [
        sequences([30, 17, 13], seed=4),
        sequences([40, 19], seed=5),
        sequences([2, 3], seed=6),
        sequences([60], seed=7),
        sequences([50], seed=8),
    ]
    batch = collate_packed(rows, 0, length=60)
    if masked:
        monkeypatch.setattr(packed.reading, "packs", lambda *_: False)
    else:
        assert packed.reading.packs(model, batch.input_ids)
    found = packed_logps(model, batch)
    assert not found[~batch.mask].any()
    weight = torch.rand(found.shape, generator=torch.Generator().manual_seed(0), dtype=torch.double)
    (found * weight).sum().backward()
    ours = {key: p.grad.clone() for key, p in model.named_parameters() if p.grad is not None}
    model.zero_grad()
    total = 0.0
    for b, row in enumerate(rows):
        start = 0
        for e in row:
            ids = torch.tensor(e.input_ids)
            logps = model(input_ids=ids[None]).logits[0, :-1].log_softmax(-1).gather(1, ids[1:, None])[:, 0]
            place = slice(start, start + len(e) - 1)  # of what is predicted, a place to the left
            mask = torch.tensor(e.loss_mask[1:])
            torch.testing.assert_close(found[b, place][mask], logps[mask], rtol=1e-9, atol=1e-9)
            total = total + (logps * mask * weight[b, place]).sum()
            start += len(e)
    total.backward()
    for key, p in model.named_parameters():
        if p.grad is not None:
            torch.testing.assert_close(ours[key], p.grad, rtol=1e-7, atol=1e-9)


def test_require_packable_under_bfloat16_autocast():
    """As ``--bf16`` computes: the trial is made in the weights' own numbers, and the mask survives the cast."""
    model = build("OPT")
    batch = collate_packed(ROWS, 0, length=20)
    with torch.autocast("cpu", torch.bfloat16):
        require_packable(model, 20)
        found = packed_logits(model, batch.input_ids, batch.documents, width=20).float()
    exact = packed_logits(model, batch.input_ids, batch.documents, width=20)
    assert found.isfinite().all() and float((found - exact).detach().abs().max()) < 0.5


# -- what a step learns ----------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def tokenizer():
    return word_tokenizer(WORDS)


@pytest.fixture(scope="module")
def chats(tokenizer):
    texts = [("go one", "one two"), ("go two", "two three stop"), ("stop", "stop"), ("go three", "three one two stop"),
             ("one two three go", "go go go stop"), ("three", "two"), ("stop go", "one two three go stop one two")]  # fmt: skip
    return [encode(tokenizer, conversation(*text)) for text in texts]


def fresh(tokenizer):
    return tiny_model("nano", tokenizer, seed=3, context=32).double()


def after(tokenizer, chats, config, **more):
    model = fresh(tokenizer)
    history = train_sft(model, chats, config, pad_token_id=0, quiet=True, **more)
    return torch.cat([p.detach().flatten() for p in model.parameters()]), history


ALL_ROWS = {"max_steps": 3, "packing": True, "max_length": 16}


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("masked", [False, True])
def test_train_sft_packed_steps_equal_unpacked_steps(loss, masked, tokenizer, chats, monkeypatch):
    """The mean is over the tokens of the batch, however they are laid out; all of them here, in three steps of AdamW."""
    monkeypatch.setattr(packed.reading, "packs", lambda *_: not masked)
    rows = len(Packing.of([len(e) for e in chats], 16).rows)
    assert 1 < rows < len(chats)
    ours, history = after(tokenizer, chats, SFTConfig(batch_size=rows, **ALL_ROWS), of=LOSSES[loss])
    theirs, unpacked = after(tokenizer, chats, SFTConfig(batch_size=len(chats), max_steps=3), of=LOSSES[loss])
    torch.testing.assert_close(ours, theirs, rtol=1e-8, atol=1e-8)
    assert history["tokens"] == unpacked["tokens"] == [sum(sum(e.loss_mask[1:]) for e in chats)] * 3
    assert history["loss"] == pytest.approx(unpacked["loss"], rel=1e-9)


@pytest.mark.parametrize("size", [1, 2, 3])
def test_train_sft_packed_micro_batches_change_nothing(size, tokenizer, chats):
    config = SFTConfig(batch_size=4, **ALL_ROWS)
    whole, _ = after(tokenizer, chats, config)
    split, _ = after(tokenizer, chats, dataclasses.replace(config, micro_batch_size=size))
    torch.testing.assert_close(split, whole, rtol=1e-8, atol=1e-8)


def test_dft_loss_gradient_is_that_of_mean_probability(tokenizer, chats):
    """Its gradient is that of the mean probability of the marked tokens."""
    model, batch = fresh(tokenizer), collate(chats, 0)
    for loss in nll_losses(model, batch, prediction_weights(batch.loss_mask), 3, LOSSES["dft"]):
        loss.backward()
    ours = {key: p.grad.clone() for key, p in model.named_parameters()}
    model.zero_grad()
    logits = model(input_ids=batch.input_ids, attention_mask=batch.attention_mask).logits[:, :-1]
    chances = logits.softmax(-1).gather(2, batch.input_ids[:, 1:, None])[..., 0]
    (-chances[batch.mask].mean()).backward()
    for key, p in model.named_parameters():
        torch.testing.assert_close(ours[key], p.grad, rtol=1e-8, atol=1e-10)


def test_train_sft_packed_run_resumes_to_same_bits(tokenizer, chats, tmp_path):
    config = SFTConfig(max_steps=5, batch_size=2, packing=True, max_length=16, save_steps=1)
    run = partial(train_sft, examples=chats, pad_token_id=0, tokenizer=tokenizer, quiet=True)
    new = lambda: tiny_model("nano", tokenizer, seed=3, context=32)
    run(new(), config=config, out=tmp_path / "whole")
    run(new(), config=dataclasses.replace(config, max_steps=2), out=tmp_path / "parts")
    run(new(), config=config, out=tmp_path / "parts", resume=True)
    whole, parts = (
        (tmp_path / f / "checkpoints/step-000005/model.safetensors").read_bytes() for f in ("whole", "parts")
    )
    assert whole == parts
    with raises(UserError, argument="packing", value=False, expected=True):
        run(new(), config=dataclasses.replace(config, packing=False), out=tmp_path / "parts", resume=True)


# -- the command -----------------------------------------------------------------------------------------------------


def test_row_length_is_context_or_max_length(tokenizer, monkeypatch):
    model = tiny_model("nano", tokenizer, context=32)
    assert (row_length(model, None), row_length(model, 16)) == (32, 16)
    with raises(UserError, argument="max_length", value=33, expected=32):
        row_length(model, 33)
    monkeypatch.setattr(packed, "LONGEST", 24)
    assert row_length(model, None) == 24


def test_train_sft_example_longer_than_packed_row_is_error(tokenizer, chats):
    with raises(UserError, argument="--max-length", value=12, expected=10):
        train_sft(fresh(tokenizer), chats, SFTConfig(packing=True, max_length=10), pad_token_id=0, quiet=True)


def test_train_sft_command_reports_what_packing_saves(tmp_path, capsys):
    rows = [f'{{"prompt": "say {"a " * n}", "completion": "{"b " * n}now"}}\n' for n in range(1, 21)]
    (tmp_path / "d.jsonl").write_text("".join(rows))
    argv = ["train", "sft", "--data", f"{tmp_path}/d.jsonl", "--max-steps", "1", "--batch-size", "4", "--vocab-size", "270"]  # fmt: skip
    assert dispatch([*argv, "--context", "128", "--packing", "true", "--out", f"{tmp_path}/run"]) == 0
    assert re.search(r"\b18 \w+ in \d \w+ \w+ 128 .*\d% .*\d% .* 4\b", capsys.readouterr().out)
    assert dispatch([*argv, "--context", "256", "--max-length", "64", "--out", f"{tmp_path}/plain"]) == 0
    with raises(UserError, argument="max_length", value=1, expected=2):
        dispatch([*argv, "--packing", "true", "--max-length", "1", "--out", f"{tmp_path}/no"])


@pytest.mark.parametrize(("option", "other", "fact"), [("train_on", "all", "train on"), ("loss_type", "dft", "loss")])
def test_train_sft_resume_with_other_train_on_or_loss_type_is_error(option, other, fact, tmp_path):
    rows = [f'{{"prompt": "say {n}", "completion": "{n} it is"}}\n' for n in range(8)]
    (tmp_path / "d.jsonl").write_text("".join(rows))
    argv = ["train", "sft", "--data", f"{tmp_path}/d.jsonl", "--batch-size", "2", "--vocab-size", "270", "--out", f"{tmp_path}/run"]  # fmt: skip
    assert dispatch([*argv, "--max-steps", "1"]) == 0
    flag, longer = f"--{option.replace('_', '-')}", [*argv, "--max-steps", "2", "--resume"]
    with raises(UserError, argument=fact, file=f"{tmp_path}/run/config.json"):
        dispatch([*longer, flag, other])
    assert dispatch(longer) == 0
    with raises(UserError, argument=option, value="other", problem="unknown"):
        dispatch([*argv, flag, "other"])


def test_train_sft_refuses_unpackable_model_before_writing(tokenizer, chats, tmp_path, monkeypatch):
    def refuse(model, length):
        raise UserError("cannot", argument="packing")

    monkeypatch.setattr(sft, "require_packable", refuse)
    config = SFTConfig(max_steps=1, packing=True, max_length=16)
    with raises(UserError, argument="packing"):
        train_sft(
            fresh(tokenizer), chats, config, pad_token_id=0, out=tmp_path / "run", tokenizer=tokenizer, quiet=True
        )
    assert not (tmp_path / "run").exists()
