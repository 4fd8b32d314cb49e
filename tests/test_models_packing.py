"""Packed log-probabilities and gradients against the plain forward pass, over many architectures."""

import logging

import pytest
import torch
from architectures import ARCHITECTURES, VOCAB, build

from minirlhf.core.exact import ToyLM
from minirlhf.models import packing
from minirlhf.models.forward import completion_logits, completion_logps
from minirlhf.models.packing import make_plan, packed_logps, shares_prompts

WIDTH = 9


@pytest.fixture(scope="module", params=list(ARCHITECTURES))
def model(request):
    return build(request.param)


@pytest.fixture
def free_calls(monkeypatch):
    """A call costs nothing beside its tokens, so that whatever can be saved is."""
    monkeypatch.setattr(packing, "call_cost", lambda device: 0)


def batch(prompts=(5, 8, 2), group=3, seed=0, order=None):
    """Groups of completions of all lengths behind left-padded prompts: ``(B, W + T)``, prompts in the order given."""
    numbers = torch.Generator().manual_seed(seed)
    before = max(prompts)
    rows = []
    for place, n in enumerate(prompts):
        prompt = torch.randint(2, VOCAB, (n,), generator=numbers)
        for g in range(group):
            length = 1 + (2 * place + 4 * g) % WIDTH
            completion = torch.randint(2, VOCAB, (length,), generator=numbers)
            pad = [0] * (before - n), [0] * (WIDTH - length)
            rows.append(
                ([*pad[0], *prompt, *completion, *pad[1]], [*pad[0], *[1] * (n + length), *pad[1]])
            )  # fmt: skip
    rows = [rows[i] for i in order] if order else rows
    return torch.tensor([r[0] for r in rows]), torch.tensor([r[1] for r in rows])


def plain(model, ids, mask, temperature=1.0):
    """The definition: one forward pass over everything, log-softmax, pick."""
    logits = completion_logits(model, ids, mask, WIDTH)[:, :-1] / temperature
    return logits.log_softmax(-1).gather(-1, ids[:, -WIDTH:, None]).squeeze(-1)


def gradients(model, logps, mask):
    model.zero_grad()
    weights = torch.arange(1.0, WIDTH + 1)  # so that no two tokens count the same
    (logps * weights * mask[:, -WIDTH:]).sum().backward()
    found = torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None])
    model.zero_grad()
    return found


@pytest.mark.parametrize("order", [None, [4, 0, 8, 3, 1]], ids=["groups", "shuffled"])
@pytest.mark.parametrize("temperature", [1.0, 0.7])
def test_shared_prompts_give_the_same_numbers_and_gradients(model, free_calls, temperature, order):
    ids, mask = batch(order=order)
    plan = make_plan(model, ids, mask, WIDTH)
    assert plan.prompts is not None and len(plan.prompts) == 3 and len(plan.buckets) > 1
    expected, got = plain(model, ids, mask, temperature), completion_logps(model, ids, mask, WIDTH, temperature)
    inside = mask[:, -WIDTH:].bool()
    torch.testing.assert_close(got[inside], expected[inside], rtol=0, atol=1e-5)
    want, have = gradients(model, expected, mask), gradients(model, got, mask)
    torch.testing.assert_close(have / want.abs().max(), want / want.abs().max(), rtol=0, atol=1e-5)


def test_prompts_of_their_own_go_by_length(model, free_calls):
    ids, mask = batch(prompts=(4,) * 7, group=1)
    plan = make_plan(model, ids, mask, WIDTH)
    assert plan.prompts is None and len(plan.buckets) > 1
    inside = mask[:, -WIDTH:].bool()
    expected, got = plain(model, ids, mask), completion_logps(model, ids, mask, WIDTH)
    torch.testing.assert_close(got[inside], expected[inside], rtol=0, atol=1e-5)
    torch.testing.assert_close(gradients(model, got, mask), gradients(model, expected, mask), rtol=1e-4, atol=1e-4)


def test_entropies_too(free_calls):
    model = build("Llama")
    ids, mask = batch()
    logps, entropies = completion_logps(model, ids, mask, WIDTH, return_entropy=True)
    probs = completion_logits(model, ids, mask, WIDTH)[:, :-1].softmax(-1)
    inside = mask[:, -WIDTH:].bool()
    torch.testing.assert_close(entropies[inside], -(probs * probs.log()).sum(-1)[inside], rtol=0, atol=1e-5)
    assert logps.shape == entropies.shape == inside.shape


# -- the plan ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("call", [0, 10, 1000])
def test_the_plan_holds_every_row_once(call, monkeypatch):
    monkeypatch.setattr(packing, "call_cost", lambda device: call)
    ids, mask = batch(prompts=(3, 6, 6, 2), group=4)
    plan = make_plan(build("Llama"), ids, mask, WIDTH)
    assert sorted(torch.cat(plan.buckets).tolist()) == list(range(16))
    assert (len(plan.buckets) == 1) == (call == 1000)
    longest = [max(mask[rows, -WIDTH:].sum(-1).tolist()) for rows in plan.buckets]
    shortest = [min(mask[rows, -WIDTH:].sum(-1).tolist()) for rows in plan.buckets]
    assert all(low > high for low, high in zip(shortest, longest[1:], strict=False)), "parted by length, longest first"


@pytest.mark.parametrize("call", [0, 3, 8, 30])
def test_the_cut_is_the_cheapest(call, fresh_seed):
    """Against all ways to part the sorted rows."""
    lengths = torch.randint(1, 12, (8,), generator=torch.Generator().manual_seed(fresh_seed))
    buckets, cost = packing._cut(lengths, 2, call)
    price = lambda groups: sum(call + len(g) * (2 + max(g)) for g in groups)
    assert cost == price([lengths[rows].tolist() for rows in buckets])
    rows = sorted(lengths.tolist())
    ways = []
    for cuts in range(2 ** (len(rows) - 1)):
        groups = [[rows[0]]]
        for i, n in enumerate(rows[1:]):
            groups.append([n]) if cuts >> i & 1 else groups[-1].append(n)
        ways.append(price(groups))
    assert cost == min(ways)


def test_dear_calls_leave_a_small_batch_whole():
    ids, mask = batch()
    plan = make_plan(build("Llama"), ids, mask, WIDTH)
    assert plan.prompts is None and len(plan.buckets) == 1


def test_padding_inside_the_completion_leaves_the_batch_whole(free_calls):
    ids, mask = batch()
    mask[1, -WIDTH] = 0  # this completion begins with padding
    assert len(make_plan(build("Llama"), ids, mask, WIDTH).buckets) == 1


# -- which models share ------------------------------------------------------------------------------------------


def test_dropout_and_checkpointing_do_not_share():
    gpt2 = build("GPT2")
    assert shares_prompts(gpt2.eval()) and not shares_prompts(gpt2.train())
    llama = build("Llama").train()
    assert shares_prompts(llama)
    llama.activation_checkpointing_enable()
    assert not shares_prompts(llama)


def test_a_model_without_cache_does_not_share(free_calls):
    toy = ToyLM(3, 3, 1)
    rows = toy.batch()
    assert not shares_prompts(toy)
    logps = completion_logps(toy, rows["input_ids"], rows["attention_mask"], 3)
    torch.testing.assert_close(logps[rows["mask"]], toy.response_token_logps()[0][rows["mask"]], rtol=0, atol=1e-12)


def test_a_model_whose_cache_misleads_is_found_out(free_calls, monkeypatch, caplog):
    """A cache that serves the wrong prompt: numbers come out that are finite and wrong."""
    right = packing._select
    monkeypatch.setattr(packing, "_select", lambda cache, rows: right(cache, rows.flip(0)))
    model = build("Llama")
    ids, mask = batch()
    with caplog.at_level(logging.WARNING):
        for _ in range(2):
            assert make_plan(model, ids, mask, WIDTH).prompts is None
    assert [r.message for r in caplog.records] == [
        "LlamaForCausalLM: prompts are read once per completion, its cache does not allow less"
    ]


@pytest.mark.parametrize(
    "name", ["MptForCausalLM", "GPTNeoForCausalLM", "BloomForCausalLM", "RwkvForCausalLM", "MambaForCausalLM"]
)
def test_unusual_architectures_come_out_right_either_way(name, free_calls):
    """Models that ignore masks or keep another kind of state: shared if that is exact, plain if not."""
    transformers = pytest.importorskip("transformers")
    small = {
        "MptForCausalLM": {"d_model": 16, "n_heads": 2, "n_layers": 2, "expansion_ratio": 2, "max_seq_len": 64},
        "GPTNeoForCausalLM": {"hidden_size": 16, "num_layers": 2, "num_heads": 2, "attention_types": [[["global", "local"], 1]], "window_size": 4, "max_position_embeddings": 64},
        "BloomForCausalLM": {"hidden_size": 16, "n_layer": 2, "n_head": 2},
        "RwkvForCausalLM": {"hidden_size": 16, "num_hidden_layers": 2, "attention_hidden_size": 16, "context_length": 64},
        "MambaForCausalLM": {"hidden_size": 16, "num_hidden_layers": 2, "state_size": 4},
    }[name]  # fmt: skip
    kind = getattr(transformers, name)
    torch.manual_seed(0)
    model = kind(kind.config_class(vocab_size=VOCAB, initializer_range=0.3, **small)).eval()
    ids, mask = batch(prompts=(5, 5))  # of one length: some of these models cannot do left padding
    inside = mask[:, -WIDTH:].bool()
    expected, got = plain(model, ids, mask), completion_logps(model, ids, mask, WIDTH)
    torch.testing.assert_close(got[inside], expected[inside], rtol=0, atol=1e-4)


def test_bad_plan_options():
    with pytest.raises(TypeError):
        packed_logps(ToyLM(), torch.zeros(2, 5).long(), torch.ones(2, 5), 2)  # no plan
