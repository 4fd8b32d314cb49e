"""Log-probabilities of completions against one unpadded row at a time, over many architectures."""

import math

import pytest
import torch
from architectures import ARCHITECTURES, VOCAB, build
from facts import raises

from minirlhf.core.calling import context_length, evaluating, position_ids, supported
from minirlhf.core.exact import ToyLM
from minirlhf.models.forward import completion_logits, completion_logps


@pytest.fixture(scope="module", params=list(ARCHITECTURES))
def model(request):
    return build(request.param)


def rows(lengths, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return [torch.randint(2, VOCAB, (n,), generator=generator) for n in lengths]


def padded(sequences, side):
    width = max(len(s) for s in sequences)
    ids, mask = (
        torch.zeros(len(sequences), width, dtype=torch.long),
        torch.zeros(len(sequences), width, dtype=torch.long),
    )
    for i, s in enumerate(sequences):
        place = slice(0, len(s)) if side == "right" else slice(width - len(s), width)
        ids[i, place], mask[i, place] = s, 1
    return ids, mask


def alone(model, sequence, temperature=1.0):
    """The log-probabilities of a row's tokens but the first: no padding, no options, one number at a time."""
    scores = model(sequence[None]).logits[0].double() / temperature
    return torch.stack([scores[t, sequence[t + 1]] - scores[t].exp().sum().log() for t in range(len(sequence) - 1)])


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("temperature", [1.0, 0.6])
def test_completion_logps_equal_one_row_at_a_time(model, side, temperature):
    sequences = rows([12, 5, 9, 2])
    ids, mask = padded(sequences, side)
    logps = completion_logps(model, ids, mask, ids.shape[1] - 1, temperature)
    for i, sequence in enumerate(sequences):
        n = len(sequence)
        got = logps[i, : n - 1] if side == "right" else logps[i, len(logps[i]) - n + 1 :]
        torch.testing.assert_close(got.double(), alone(model, sequence, temperature), rtol=0, atol=1e-5)


@pytest.mark.parametrize("side", ["left", "right"])
def test_completion_logps_gradients_equal_one_row_at_a_time(model, side):
    sequences = rows([7, 3, 5], seed=1)
    ids, mask = padded(sequences, side)
    model.zero_grad()
    logps = completion_logps(model, ids, mask, ids.shape[1] - 1)
    inside = (mask[:, 1:] * mask[:, :-1]).bool()
    torch.where(inside, logps, 0.0).sum().backward()
    ours = {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}
    assert all(g.isfinite().all() for g in ours.values())
    model.zero_grad()
    sum(alone(model, s).sum() for s in sequences).backward()
    scale = max(p.grad.abs().max() for p in model.parameters() if p.grad is not None)
    for name, p in model.named_parameters():
        if p.grad is not None:
            torch.testing.assert_close(ours[name] / scale, p.grad / scale, rtol=0, atol=1e-5, msg=name)
    model.zero_grad()


def test_completion_logps_width_selects_last_columns(model):
    ids, mask = padded(rows([10, 8]), "left")
    everything = completion_logps(model, ids, mask, 9)
    torch.testing.assert_close(completion_logps(model, ids, mask, 4), everything[:, -4:], rtol=0, atol=1e-6)
    assert completion_logits(model, ids, mask, 4).shape == (2, 5, VOCAB)


def test_completion_logps_computes_needed_logits_only(model):
    """The output layer sees ``width + 1`` positions, not all of them."""
    seen = []
    hook = model.get_output_embeddings().register_forward_hook(lambda layer, args, out: seen.append(args[0].shape[1]))
    ids, mask = padded(rows([10, 8]), "left")
    completion_logps(model, ids, mask, 3)
    hook.remove()
    assert seen == [4]


# -- against the oracle ------------------------------------------------------------------------------------------


def test_completion_logps_of_toy_model_are_exact(suite_seed):
    toy = ToyLM(3, 3, 2, seed=suite_seed)
    exact = toy.completion_token_logps()
    for prompt in range(2):
        batch = toy.batch(prompt)
        logps = completion_logps(toy, batch["input_ids"], batch["attention_mask"], 3)
        got = torch.where(batch["mask"], logps, 0.0)
        torch.testing.assert_close(got, exact[prompt], rtol=0, atol=1e-12)


@pytest.mark.parametrize("temperature", [1.0, 0.5, 3.0])
def test_completion_logps_entropies_of_toy_model_are_exact(temperature, suite_seed):
    toy = ToyLM(4, 2, 1, seed=suite_seed)
    batch = toy.batch()
    logps, entropies = completion_logps(
        toy, batch["input_ids"], batch["attention_mask"], 2, temperature, return_entropy=True
    )
    probs = (toy.table / temperature).softmax(-1)[0]
    for i, response in enumerate(batch["input_ids"][:, 1:].tolist()):
        for t in range(int(batch["mask"][i].sum())):
            p = probs[0 if t == 0 else 1 + response[0]]
            assert entropies[i, t].item() == pytest.approx(-sum(x * math.log(x) for x in p.tolist()), abs=1e-12)
            assert logps[i, t].item() == pytest.approx(math.log(p[response[t]].item()), abs=1e-12)


# -- pieces ------------------------------------------------------------------------------------------------------


def test_position_ids_count_real_tokens():
    mask = torch.tensor([[0, 0, 1, 1, 1], [1, 1, 1, 0, 0], [0, 1, 1, 1, 0]])
    assert position_ids(mask).tolist() == [[0, 0, 0, 1, 2], [0, 1, 2, 2, 2], [0, 0, 1, 2, 2]]


def test_supported_leaves_out_options_model_does_not_name():
    toy = ToyLM()
    assert supported(toy, position_ids=1, logits_to_keep=2, attention_mask=3) == {"attention_mask": 3}
    assert supported(build("Llama"), position_ids=1, logits_to_keep=2, nonsense=3) == {
        "position_ids": 1,
        "logits_to_keep": 2,
    }


def test_supported_reads_options_through_adapter():
    peft = pytest.importorskip("peft")
    plain = build("Llama")
    ids, mask = padded(rows([6, 9]), "left")
    before = completion_logps(plain, ids, mask, 4)
    wrapped = peft.get_peft_model(plain, peft.LoraConfig(r=2, target_modules=["q_proj"]))
    assert supported(wrapped, position_ids=1, logits_to_keep=2) == {"position_ids": 1, "logits_to_keep": 2}
    assert torch.equal(completion_logps(wrapped, ids, mask, 4), before), "a fresh adapter changes nothing"


def test_evaluating_restores_mode():
    model = build("GPT2")
    ids, mask = padded(rows([12, 12]), "left")
    for mode in (True, False):
        model.train(mode)
        with pytest.raises(KeyError), evaluating(model):
            first, second = (completion_logps(model, ids, mask, 11) for _ in range(2))
            assert torch.equal(first, second), "no dropout inside"
            raise KeyError
        assert model.training is mode


def test_context_length_is_read_from_config():
    assert context_length(build("Llama")) == context_length(build("GPT2")) == 64
    assert context_length(ToyLM()) is None


@pytest.mark.parametrize("width", [0, 5, -1])
def test_completion_logps_width_outside_row_is_error(width):
    with raises(ValueError, argument="width", value=width, expected=(1, 4)):
        completion_logps(ToyLM(), torch.zeros(2, 5).long(), torch.ones(2, 5), width)


def test_completion_logps_mask_of_other_shape_is_error():
    with raises(ValueError, argument="attention_mask", value=(2, 4), expected=(2, 5)):
        completion_logps(ToyLM(), torch.zeros(2, 5).long(), torch.ones(2, 4), 2)
