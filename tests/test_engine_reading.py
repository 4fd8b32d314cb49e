"""Packed log-probabilities and gradients against the plain forward pass, over many architectures."""

import logging
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
import transformers
from architectures import ARCHITECTURES, VOCAB, build

from minirlhf.core.calling import position_ids
from minirlhf.core.exact import ToyLM
from minirlhf.engine import attention, packing
from minirlhf.engine.decoding import is_written_out
from minirlhf.engine.packing import Packed, bucket_by_length, can_share_prefixes, packs
from minirlhf.models.forward import completion_logits, completion_logps
from minirlhf.models.heads import RewardModel, ValueModel
from minirlhf.models.sampling import Sampling, sample

WIDTH = 9


@pytest.fixture(scope="module", params=list(ARCHITECTURES))
def model(request):
    return build(request.param)


@pytest.fixture
def free_calls(monkeypatch):
    """A call costs nothing beside its tokens, so that whatever can be saved is."""
    monkeypatch.setattr(packing, "call_cost", lambda device: 0)
    monkeypatch.setattr(packing, "WORTH_SHARING", 0.0)


@pytest.fixture
def laid_out(monkeypatch):
    """What went through the models as one long row: number of tokens, and of segments."""
    seen = []
    read = attention.read

    def watched(model, ids, where, layout, **options):
        seen.append((len(ids), len(layout.segments)))
        return read(model, ids, where, layout, **options)

    monkeypatch.setattr(attention, "read", watched)
    return seen


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


def right_padded(ids, mask):
    """The same rows flush left."""
    order = mask.argsort(dim=1, descending=True, stable=True)
    return ids.gather(1, order), mask.gather(1, order)


@pytest.mark.parametrize("order", [None, [4, 0, 8, 3, 1]], ids=["groups", "shuffled"])
@pytest.mark.parametrize("temperature", [1.0, 0.7])
def test_completion_logps_shared_prompts_equal_plain_pass(model, free_calls, laid_out, temperature, order):
    ids, mask = batch(order=order)
    assert packs(model, ids)
    laid_out.clear()
    expected, got = plain(model, ids, mask, temperature), completion_logps(model, ids, mask, WIDTH, temperature)
    prompts, completions = 15, int(mask[:, -WIDTH:].sum())
    ((tokens, segments),) = laid_out
    assert tokens == prompts + completions - len(ids), "each prompt once, no padding, no token that predicts nothing"
    assert segments > 3
    inside = mask[:, -WIDTH:].bool()
    torch.testing.assert_close(got[inside], expected[inside], rtol=0, atol=1e-5)
    want, have = gradients(model, expected, mask), gradients(model, got, mask)
    torch.testing.assert_close(have / want.abs().max(), want / want.abs().max(), rtol=0, atol=1e-5)


@pytest.mark.parametrize("side", ["left", "right"])
def test_completion_logps_all_tokens_with_padding_on_either_side(model, free_calls, laid_out, side):
    """As in supervised fine-tuning: all but the first column is completion, and nothing is shared."""
    ids, mask = batch(prompts=(4, 7, 2), group=2)
    if side == "right":
        ids, mask = right_padded(ids, mask)
    width = ids.shape[1] - 1
    inside = (mask[:, 1:] * mask.cumsum(1)[:, :-1].clamp(max=1)).bool()  # but the first token of a row
    logits = completion_logits(model, ids, mask, width)[:, :-1]
    expected = logits.log_softmax(-1).gather(-1, ids[:, 1:, None]).squeeze(-1)
    assert packs(model, ids)
    got = completion_logps(model, ids, mask, width)
    assert laid_out[-1][0] <= int(mask.sum()) - len(ids)
    torch.testing.assert_close(got[inside], expected[inside], rtol=0, atol=1e-5)
    weights = torch.arange(1.0, width + 1) * inside
    found = [
        torch.autograd.grad((x * weights).sum(), [p for p in model.parameters() if p.requires_grad])
        for x in (expected, got)
    ]
    for want, have in zip(*found, strict=True):
        torch.testing.assert_close(have, want, rtol=1e-4, atol=1e-4)


def test_completion_logps_skips_unwanted_tokens(free_calls, laid_out):
    model = build("Llama")
    ids, mask = batch()
    wanted = mask[:, -WIDTH:].bool()
    wanted[:, 4:] = False  # the rest of each row says nothing about these
    wanted[::2, 1] = False  # a gap, as where a tool has answered
    expected, got = plain(model, ids, mask), completion_logps(model, ids, mask, WIDTH, wanted=wanted)
    torch.testing.assert_close(got[wanted], expected[wanted], rtol=0, atol=1e-5)
    assert not got[~wanted].any()
    assert laid_out[-1][0] <= 15 + 3 * len(ids)


@pytest.mark.parametrize("call", [0, 10**6], ids=["packed", "plain"])
def test_completion_logps_padding_between_prompt_and_completion(call, monkeypatch, model):
    """Positions count real tokens, and what predicts a token is the one before it: a hole changes nothing."""
    if call and getattr(model.config, "sliding_window", None):
        pytest.skip("the model's own mask counts the columns of a window, holes included")
    monkeypatch.setattr(packing, "call_cost", lambda device: call)
    ids, mask = batch()
    gap = torch.zeros(len(ids), 2, dtype=torch.long)
    holes = [torch.cat([x[:, :-WIDTH], gap, x[:, -WIDTH:]], 1) for x in (ids, mask)]
    inside = mask[:, -WIDTH:].bool()
    expected, got = plain(model, ids, mask), completion_logps(model, *holes, WIDTH + 2)[:, 2:]
    torch.testing.assert_close(got[inside], expected[inside], rtol=0, atol=1e-5)


def test_completion_logps_nothing_wanted_is_zero(free_calls):
    model = build("Llama")
    ids, mask = batch()
    nothing = completion_logps(model, ids, mask, WIDTH, wanted=torch.zeros(len(ids), WIDTH, dtype=torch.bool))
    nothing.sum().backward()
    assert not nothing.any() and not any(p.grad.any() for p in model.parameters() if p.grad is not None)
    model.zero_grad()


def test_attention_scales_scores_before_softcap(free_calls):
    config = {**ARCHITECTURES["Gemma2"], "query_pre_attn_scalar": 3, "attn_logit_softcapping": 0.5}
    torch.manual_seed(0)
    model = transformers.Gemma2ForCausalLM(transformers.Gemma2Config(**config)).eval()
    ids, mask = batch()
    assert packs(model, ids)
    inside = mask[:, -WIDTH:].bool()
    expected, got = plain(model, ids, mask), completion_logps(model, ids, mask, WIDTH)
    torch.testing.assert_close(got[inside], expected[inside], rtol=0, atol=1e-5)


@pytest.mark.parametrize("temperature", [1.0, 0.7])
def test_completion_logps_packed_entropies(free_calls, temperature):
    model = build("Llama")
    ids, mask = batch()
    logps, entropies = completion_logps(model, ids, mask, WIDTH, temperature, return_entropy=True)
    probs = (completion_logits(model, ids, mask, WIDTH)[:, :-1] / temperature).softmax(-1)
    inside = mask[:, -WIDTH:].bool()
    torch.testing.assert_close(entropies[inside], -(probs * probs.log()).sum(-1)[inside], rtol=0, atol=1e-5)
    assert logps.shape == entropies.shape == inside.shape


@pytest.mark.parametrize("kind", [RewardModel, ValueModel])
def test_heads_with_shared_prompts_equal_plain_backbone(kind, model, free_calls, laid_out):
    """Rewards, values and their gradients, with the prompts read once, with all rows apart, and with the plain backbone."""
    head = kind.from_causal_lm(model, seed=1).eval()
    torch.nn.init.normal_(head.head.weight, generator=torch.Generator().manual_seed(0))
    ids, mask = right_padded(*batch())
    prefix = torch.tensor([5] * 3 + [8] * 3 + [2] * 3)

    def outcome(*inputs):
        scores = head(*inputs)
        head.zero_grad()
        (scores * torch.arange(1.0, 1 + len(scores)).view(-1, *[1] * (scores.dim() - 1))).sum().backward()
        return scores.detach(), torch.cat([p.grad.flatten() for p in head.parameters() if p.grad is not None])

    together, apart = outcome(ids, mask, prefix), outcome(ids, mask)
    assert [tokens for tokens, _ in laid_out[-2:]] == [int(mask.sum()) - 2 * 15, int(mask.sum())]
    hidden = head.backbone(input_ids=ids, attention_mask=mask, position_ids=position_ids(mask)).last_hidden_state
    scores = head.head(hidden).squeeze(-1)
    plainly = scores * mask if kind is ValueModel else scores.gather(1, mask.sum(1, keepdim=True) - 1).squeeze(1)
    torch.testing.assert_close(together[0], plainly, rtol=0, atol=1e-5)
    torch.testing.assert_close(apart[0], plainly, rtol=0, atol=1e-5)
    size = apart[1].abs().max()
    torch.testing.assert_close(together[1] / size, apart[1] / size, rtol=0, atol=1e-5)


def test_reward_model_row_that_is_prefix_of_another(free_calls):
    """A rejected reply that is the chosen one cut short: its last token stands in what both share."""
    head = RewardModel.from_causal_lm(build("Llama"))
    ids = torch.tensor([[3, 4, 5, 6, 7], [3, 4, 5, 0, 0]])
    mask = (ids > 0).long()
    got = head(ids, mask, torch.tensor([3, 3]))
    torch.testing.assert_close(
        got, torch.cat([head(ids[:1], mask[:1]), head(ids[1:, :3], mask[1:, :3])]), rtol=0, atol=1e-6
    )


# -- the layout --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("call", [0, 10, 1000])
def test_packed_layout_gives_every_token_its_place(call, monkeypatch):
    monkeypatch.setattr(packing, "call_cost", lambda device: call)
    ids, mask = batch(prompts=(3, 6, 6, 2), group=4)
    packed = Packed(ids, mask, prefix=mask[:, :-WIDTH].sum(1))
    inside = mask.bool()
    assert torch.equal(packed.input_ids[packed.place[inside]], ids[inside])
    assert torch.equal(packed.position_ids[packed.place[inside]], position_ids(mask)[inside])
    assert set(packed.place[inside].tolist()) == set(range(len(packed.input_ids))), (
        "and no token stands there for nothing"
    )
    assert sum(len(s.own.flatten() if s.inside is None else s.inside) for s in packed.segments) == len(packed.input_ids)


@pytest.mark.parametrize("call", [0, 3, 8, 30])
def test_packing_cut_is_cheapest(call, suite_seed):
    """Against all ways to part the sorted rows."""
    lengths = torch.randint(1, 12, (8,), generator=torch.Generator().manual_seed(suite_seed))
    price = lambda groups: sum(call + len(g) * max(g) for g in groups)
    buckets = bucket_by_length(lengths, call)
    assert sorted(torch.cat(buckets).tolist()) == list(range(8))
    rows = sorted(lengths.tolist())
    assert [n for part in buckets for n in lengths[part].tolist()] == rows, "shortest first"
    ways = []
    for cuts in range(2 ** (len(rows) - 1)):
        groups = [[rows[0]]]
        for i, n in enumerate(rows[1:]):
            groups.append([n]) if cuts >> i & 1 else groups[-1].append(n)
        ways.append(price(groups))
    assert price([lengths[part].tolist() for part in buckets]) == min(ways)


def test_packed_layout_does_not_share_rare_prompts():
    ids, mask = batch(prompts=(2,) * 30, group=1)
    assert all(s.prompt is None for s in Packed(ids, mask, prefix=mask[:, :-WIDTH].sum(1)).segments)


def test_completion_logps_small_batch_is_read_plainly(laid_out):
    model = build("Llama")
    ids, mask = batch()
    completion_logps(model, ids, mask, WIDTH)
    assert not laid_out


@pytest.mark.parametrize("window", [4, 12])
@pytest.mark.parametrize("name", ["Gemma2", "Mistral", "Phi3", "Qwen2", "Qwen3"])
def test_attention_windows_follow_positions(name, window, free_calls):
    """Every architecture whose windows we trust, with one that is shorter than a completion; without it the numbers differ."""
    config = {**ARCHITECTURES[name], "sliding_window": window, "use_sliding_window": True, "max_window_layers": 1}
    torch.manual_seed(0)
    kind = getattr(transformers, f"{name}ForCausalLM")
    model = kind(kind.config_class(**config)).eval()
    ids, mask = batch()
    inside = mask[:, -WIDTH:].bool()
    assert packs(model, ids)
    expected, got = plain(model, ids, mask), completion_logps(model, ids, mask, WIDTH)
    torch.testing.assert_close(got[inside], expected[inside], rtol=0, atol=1e-5)
    wide = kind(kind.config_class(**{**config, "sliding_window": 64})).eval()
    wide.load_state_dict(model.state_dict())
    assert (plain(wide, ids, mask) - expected)[inside].abs().max() > (0.01 if window == 4 else 1e-4)
    assert sorted(attention.WINDOWED) == ["gemma2", "mistral", "phi3", "qwen2", "qwen3"], "each has its test here"


def test_attention_window_one_short_of_row(free_calls):
    """Nothing shared, so that only the window needs a mask."""
    model = transformers.MistralForCausalLM(
        transformers.MistralConfig(**{**ARCHITECTURES["Mistral"], "sliding_window": WIDTH - 2})
    ).eval()
    ids = torch.randint(2, VOCAB, (4, WIDTH), generator=torch.Generator().manual_seed(0))
    mask = torch.ones_like(ids)
    expected = completion_logits(model, ids, mask, WIDTH - 1)[:, :-1].log_softmax(-1).gather(-1, ids[:, 1:, None])
    got = completion_logps(model, ids, mask, WIDTH - 1)
    torch.testing.assert_close(got, expected.squeeze(-1), rtol=0, atol=1e-5)


@pytest.mark.parametrize("rope_type", ["default", "linear", "llama3", "yarn", "dynamic", "longrope"])
def test_packs_refuses_rope_that_depends_on_longest_row(rope_type, free_calls, laid_out):
    """Packing leaves out last tokens, so it must not be used where these change the positions of all others."""
    more = {
        "linear": {"factor": 2.0},
        "dynamic": {"factor": 2.0},
        "yarn": {"factor": 2.0, "original_max_position_embeddings": 8},
        "llama3": {
            "factor": 2.0,
            "low_freq_factor": 1.0,
            "high_freq_factor": 4.0,
            "original_max_position_embeddings": 8,
        },
        "longrope": {
            "factor": 2.0,
            "short_factor": [1.0] * 4,
            "long_factor": [3.0] * 4,
            "original_max_position_embeddings": 8,
        },
    }.get(rope_type, {})
    rope = {"rope_type": rope_type, "rope_theta": 1e4, **more}
    torch.manual_seed(0)
    small = {**ARCHITECTURES["Llama"], "max_position_embeddings": 16, "rope_parameters": rope}
    model = transformers.LlamaForCausalLM(transformers.LlamaConfig(**small)).eval()
    ids, mask = batch(prompts=(8, 7, 6))
    inside = mask[:, -WIDTH:].bool()
    expected, got = plain(model, ids, mask), completion_logps(model, ids, mask, WIDTH)
    torch.testing.assert_close(got[inside], expected[inside], rtol=0, atol=1e-5)
    assert bool(laid_out) == (rope_type not in ("dynamic", "longrope"))


def test_packs_refuses_windows_of_unknown_architecture(free_calls):
    model = transformers.Starcoder2ForCausalLM(
        transformers.Starcoder2Config(**ARCHITECTURES["Mistral"], use_sliding_window=True)
    )
    assert not packs(model, batch()[0])


# -- which models may --------------------------------------------------------------------------------------------


def test_shares_refuses_dropout_and_packs_refuses_checkpointing(free_calls):
    ids, _ = batch()
    gpt2 = build("GPT2")
    assert can_share_prefixes(gpt2.eval()) and not can_share_prefixes(gpt2.train())
    assert packs(gpt2, ids), "every token with its own random mask is what it is without packing"
    llama = build("Llama").train()
    assert can_share_prefixes(llama) and packs(llama, ids)
    llama.activation_checkpointing_enable()
    assert not packs(llama, ids)


def test_completion_logps_dropout_keeps_prompts_apart(free_calls, laid_out):
    """Each row with its own random mask, in the log-probabilities and in a head."""
    gpt2 = build("GPT2").train()
    ids, mask = batch()
    completion_logps(gpt2, ids, mask, WIDTH)
    read_apart = int(mask.sum()) - len(ids)
    assert laid_out[-1][0] == read_apart
    ValueModel.from_causal_lm(gpt2).train()(ids, mask, mask[:, :-WIDTH].sum(1))
    assert laid_out[-1][0] == int(mask.sum())
    opt = transformers.OPTForCausalLM(
        transformers.OPTConfig(vocab_size=VOCAB, hidden_size=16, ffn_dim=16, num_hidden_layers=1, num_attention_heads=2)
    ).train()
    assert not can_share_prefixes(opt), "its dropout is a function, not a module"


def test_packs_sees_hooks_and_patches_added_later(free_calls):
    model = build("Llama")
    ids, _ = batch()
    assert packs(model, ids)
    handle = model.model.layers[0].register_forward_hook(lambda *_: None)
    assert not packs(model, ids)
    handle.remove()
    assert packs(model, ids)
    mlp = model.model.layers[0].mlp
    mlp.forward = mlp.forward
    assert not packs(model, ids) and not is_written_out(model)
    del mlp.forward
    assert packs(model, ids) and is_written_out(model)


def test_attention_refuses_mask_and_options_of_model():
    layer = torch.nn.Identity()
    states = torch.zeros(1, 2, 3, 4)
    with pytest.raises(TypeError, match="Identity"):
        attention._attend(layer, states, states, states, torch.zeros(1, 1, 3, 3), layout=None)
    with pytest.raises(TypeError, match="s_aux"):
        attention._attend(layer, states, states, states, None, layout=None, s_aux=torch.zeros(2))


def test_completion_logps_in_threads(free_calls):
    model = build("Llama")
    ids, mask = batch()
    before, expected = model.config._attn_implementation, completion_logps(model, ids, mask, WIDTH)
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda _: completion_logps(model, ids, mask, WIDTH), range(16)))
    assert model.config._attn_implementation == before
    for logps in found:
        torch.testing.assert_close(logps, expected)


@pytest.mark.parametrize("spread", [0.02, 0.3])
def test_packs_in_bfloat16(free_calls, spread):
    """Rounding is judged by the size of the numbers."""
    big = {**ARCHITECTURES["Llama"], "vocab_size": 32_000, "hidden_size": 64, "initializer_range": spread}
    torch.manual_seed(0)
    assert packs(transformers.LlamaForCausalLM(transformers.LlamaConfig(**big)).bfloat16(), batch()[0])


def test_fast_paths_hold_under_autocast_with_weights_in_32_bits(free_calls):
    model = build("Llama")
    with torch.autocast("cpu", torch.bfloat16, cache_enabled=False):
        assert packs(model, batch()[0]) and is_written_out(model)
        sampling = Sampling(max_completion_length=8)
        rollout = sample(model, [[2, 3, 4], [5]], sampling=sampling, eos_token_id=0, pad_token_id=1, seed=0)
        logps = completion_logps(model, rollout.input_ids, rollout.attention_mask, rollout.mask.shape[1])
    torch.testing.assert_close(logps[rollout.mask], rollout.old_logps[rollout.mask], rtol=0, atol=0.1)


def test_attention_ours_restores_attention_of_model(free_calls):
    model = build("Llama")
    before = model.config._attn_implementation
    ids, mask = batch()
    completion_logps(model, ids, mask, WIDTH)
    with pytest.raises(RuntimeError, match="inside"), attention.use_project_attention(model):
        assert model.config._attn_implementation != before
        raise RuntimeError("inside")
    assert model.config._attn_implementation == before


def test_packs_refuses_model_with_other_interface_and_logs_once(free_calls, caplog):
    toy = ToyLM(3, 3, 1)
    rows = toy.batch()
    with caplog.at_level(logging.INFO):
        for _ in range(2):
            assert not packs(toy, rows["input_ids"])
    assert [(r.levelname, "ToyLM" in r.getMessage()) for r in caplog.records] == [("INFO", True)]
    logps = completion_logps(toy, rows["input_ids"], rows["attention_mask"], 3)
    torch.testing.assert_close(logps[rows["mask"]], toy.completion_token_logps()[0][rows["mask"]], rtol=0, atol=1e-12)


def test_packs_sees_wrong_attention_and_warns_once(free_calls, monkeypatch, caplog):
    """Attention that looks at the wrong keys: numbers come out that are finite and wrong."""
    right = Packed.attend
    monkeypatch.setattr(Packed, "attend", lambda self, layer, q, k, v, how: right(self, layer, q, k.flip(0), v, how))
    model = build("Llama")
    ids, _ = batch()
    with caplog.at_level(logging.WARNING):
        for _ in range(2):
            assert not packs(model, ids)
    assert [(r.levelname, "LlamaForCausalLM" in r.getMessage()) for r in caplog.records] == [("WARNING", True)]


@pytest.mark.parametrize(
    "name", ["MptForCausalLM", "GPTNeoForCausalLM", "BloomForCausalLM", "RwkvForCausalLM", "MambaForCausalLM"]
)
def test_completion_logps_unusual_architectures(name, free_calls):
    """Models that ignore masks or keep another kind of state: shared if that is exact, plain if not."""
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
