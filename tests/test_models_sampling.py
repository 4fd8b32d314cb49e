"""Sampling against the exact oracle, by inversion instead of by luck; and cached against plain forward passes."""

import itertools
import math

import pytest
import torch
import transformers
from architectures import ARCHITECTURES, VOCAB, build
from facts import raises
from hypothesis import given, settings
from hypothesis import strategies as st

from minirlhf.core.errors import UserError
from minirlhf.core.exact import ToyLM
from minirlhf.engine import decoding
from minirlhf.models import sampling as module
from minirlhf.models.forward import completion_logps
from minirlhf.models.sampling import Sampling, invert_cdf, left_pad, sample

PROMPTS = [[5, 6, 7], [8], [9, 10, 11, 12, 13], [5, 6]]
EOS, PAD = 1, 0


def draw(model, prompts=PROMPTS, *, length=12, generations=3, seed=0, **changes):
    options = {key: changes.pop(key) for key in list(changes) if key in Sampling.__dataclass_fields__}
    return sample(
        model,
        prompts,
        sampling=Sampling(max_completion_length=length, **options),
        num_generations=generations,
        **{"eos_token_id": EOS, "pad_token_id": PAD, "seed": seed, **changes},
    )


def toy_draw(toy, uniforms, prompt=0, **options):
    """One completion of the prompt for every row of ``uniforms (B, L)``."""
    return sample(
        toy,
        [[toy.vocab_size + prompt]],
        sampling=Sampling(max_completion_length=toy.max_len, **options),
        num_generations=len(uniforms),
        eos_token_id=toy.eos_token_id,
        pad_token_id=toy.pad_token_id,
        seed=0,
        use_cache=False,
        uniforms=uniforms,
    )


def texts(rollout):
    """The completions as lists of ids, without padding."""
    return [ids[mask].tolist() for ids, mask in zip(rollout.completion_ids, rollout.mask, strict=True)]


# -- the exact distribution ---------------------------------------------------------------------------------------


def boxes(toy, prompt, temperature):
    """For every response the interval of uniforms that each of its tokens owns: lows and highs ``(N, L)``."""
    responses = toy.completions()
    lows, highs = torch.zeros(responses.mask.shape), torch.ones(responses.mask.shape)
    lows, highs = lows.double(), highs.double()
    for i, (row, kept) in enumerate(zip(responses.tokens.tolist(), responses.mask.tolist(), strict=True)):
        for t in range(sum(kept)):
            weights = (toy.table[prompt, toy._prefix_index(row[:t])] / temperature).exp().detach()
            shares = weights / weights.sum()
            lows[i, t], highs[i, t] = shares[: row[t]].sum(), shares[: row[t] + 1].sum()
    return lows, highs


@pytest.mark.parametrize("temperature", [1.0, 0.6, 2.5])
@pytest.mark.parametrize("where", [1e-6, 0.5, 1 - 1e-6], ids=["low end", "middle", "high end"])
def test_sample_maps_uniforms_to_responses_exactly(temperature, where, suite_seed):
    """The map from uniforms to responses is the exact one, up to a millionth of each interval at its ends."""
    toy = ToyLM(3, 3, 2, seed=suite_seed)
    for prompt in range(2):
        responses = toy.completions()
        lows, highs = boxes(toy, prompt, temperature)
        rollout = toy_draw(toy, lows + where * (highs - lows), prompt, temperature=temperature)
        assert torch.equal(rollout.mask, responses.mask)
        assert torch.equal(rollout.completion_ids, responses.tokens)
        assert torch.equal(rollout.terminated, responses.terminated)


@pytest.mark.parametrize("temperature", [1.0, 0.6, 2.5])
def test_sample_old_logps_are_exact(temperature, suite_seed):
    toy = ToyLM(3, 3, 2, seed=suite_seed)
    tempered = ToyLM(3, 3, 2, seed=suite_seed)
    tempered.table.data /= temperature
    for prompt in range(2):
        lows, highs = boxes(toy, prompt, temperature)
        rollout = toy_draw(toy, (lows + highs) / 2, prompt, temperature=temperature)
        exact = tempered.completion_token_logps()[prompt].detach()
        torch.testing.assert_close(rollout.old_logps, exact, rtol=0, atol=1e-12)
        assert torch.equal(rollout.behavior_logps, rollout.old_logps), "nothing truncated"


def test_sample_frequencies_over_grid_of_uniforms(suite_seed):
    """``n`` evenly spaced numbers hit an interval of length p between n·p − 1 and n·p + 1 times: no statistics needed."""
    toy, n = ToyLM(3, 2, 1, seed=suite_seed), 60
    points = (torch.arange(n, dtype=torch.float64) + 0.5) / n
    grid = torch.cartesian_prod(points, points)
    found = texts(toy_draw(toy, grid))
    responses = toy.completions()
    for row, kept, p in zip(responses.tokens, responses.mask, toy.distribution()[0].tolist(), strict=True):
        share = found.count(row[kept].tolist()) / n**2
        assert abs(share - p) <= 2 / n + 1 / n**2


def test_sample_keyed_draws_follow_distribution():
    """One fixed seed, 20,000 completions: the total variation is what sampling noise makes it."""
    toy, n = ToyLM(3, 2, 1, seed=7), 20_000
    rollout = sample(
        toy,
        [[3]],
        sampling=Sampling(max_completion_length=2),
        num_generations=n,
        eos_token_id=0,
        pad_token_id=toy.pad_token_id,
        seed=0,
        use_cache=False,
    )
    responses = toy.completions()
    shares = torch.stack([(rollout.completion_ids == response).all(1).double().mean() for response in responses.tokens])
    assert 0.5 * (shares - toy.distribution()[0].detach()).abs().sum() < 0.02


# -- truncation ---------------------------------------------------------------------------------------------------


def cut_by_hand(p, temperature, top_k, top_p, min_p):
    """Plain lists: temperature, then the likeliest k, then the smallest set with mass top_p of that, then min_p of that."""
    p = [x ** (1 / temperature) for x in p]
    ranked = sorted(range(len(p)), key=lambda i: (-p[i], i))
    kept = ranked[: top_k or len(p)]
    total, reached, nucleus = sum(p[i] for i in kept), 0.0, []
    for i in kept:
        nucleus.append(i)
        reached += p[i] / total
        if reached >= top_p:
            break
    nucleus = [i for i in nucleus if p[i] >= min_p * p[nucleus[0]]]
    mass = sum(p[i] for i in nucleus)
    return {i: p[i] / mass for i in nucleus}


@pytest.mark.parametrize(
    "temperature, top_k, top_p, min_p",
    [(1.0, 2, 1.0, 0.0), (1.0, 0, 0.7, 0.0), (1.0, 0, 1.0, 0.4), (2.0, 3, 0.8, 0.0), (0.7, 4, 0.9, 0.2)],
)
def test_sample_truncated_support_and_behavior_logps(temperature, top_k, top_p, min_p, suite_seed):
    """Support, behaviour log-probabilities and the untruncated old ones, over a grid of uniforms at the first token."""
    toy = ToyLM(5, 1, 1, seed=suite_seed)
    p = toy.distribution()[0].tolist()
    grid = ((torch.arange(500, dtype=torch.float64) + 0.5) / 500)[:, None]
    rollout = toy_draw(toy, grid, temperature=temperature, top_k=top_k, top_p=top_p, min_p=min_p)
    expected = cut_by_hand(p, temperature, top_k, top_p, min_p)
    tempered = [x ** (1 / temperature) for x in p]
    tokens = [x[0] for x in texts(rollout)]
    assert set(tokens) <= set(expected)
    assert {i for i in expected if expected[i] > 1 / 500} <= set(tokens)
    for token, old, behavior in zip(
        tokens, rollout.old_logps[:, 0].tolist(), rollout.behavior_logps[:, 0].tolist(), strict=True
    ):
        assert old == pytest.approx(math.log(tempered[token] / sum(tempered)), abs=1e-12)
        assert behavior == pytest.approx(math.log(expected[token]), abs=1e-12)


def test_sample_applies_top_k_before_top_p():
    """Top-p is taken of what top-k left: with .5 .3 .2, k = 2 leaves .625 .375, of which .6 needs one token only."""
    toy = ToyLM(3, 1, 1)
    toy.set_distribution(torch.tensor([0.5, 0.3, 0.2], dtype=torch.float64))
    late = torch.tensor([[0.999]], dtype=torch.float64)
    assert texts(toy_draw(toy, late, top_p=0.6)) == [[1]]
    assert texts(toy_draw(toy, late, top_p=0.6, top_k=2)) == [[0]]


# -- limits -------------------------------------------------------------------------------------------------------


def test_sample_temperature_limits_are_greedy_and_uniform():
    model, uniforms = build("Llama"), torch.rand(12, 12, generator=torch.Generator().manual_seed(0)).double()
    cold, greedy = draw(model, temperature=1e-5, uniforms=uniforms), draw(model, greedy=True)
    assert texts(cold) == texts(greedy)
    assert cold.old_logps.abs().max() < 1e-3
    hot = draw(model, temperature=1e7, uniforms=uniforms, eos_token_id=VOCAB + 1)
    assert torch.equal(hot.completion_ids, (uniforms * VOCAB).long())
    torch.testing.assert_close(hot.old_logps, torch.full((12, 12), -math.log(VOCAB)), rtol=0, atol=1e-5)


@pytest.mark.parametrize("options", [{}, {"temperature": 3.0}, {"top_k": 2, "temperature": 0.1}])
def test_sample_greedy_takes_likeliest_token(options):
    """The likeliest token whatever the temperature; certain, so the behaviour log-probability is 0."""
    model = build("Llama")
    rollout = draw(model, greedy=True, generations=1, **options)
    assert texts(rollout) == texts(draw(model, greedy=True, generations=1))
    assert (rollout.behavior_logps == 0).all()
    for i, completion in enumerate(texts(rollout)):
        ids = torch.tensor([PROMPTS[i] + completion])
        scores = model(ids).logits[0, len(PROMPTS[i]) - 1 : -1]
        assert scores.argmax(-1).tolist() == completion
        logps = (scores / options.get("temperature", 1.0)).log_softmax(-1)
        n = len(completion)
        torch.testing.assert_close(rollout.old_logps[i, :n], logps[range(n), completion], rtol=0, atol=1e-5)


def test_sample_greedy_tie_takes_lowest_id():
    toy = ToyLM(4, 1, 1)
    toy.set_distribution(torch.tensor([0.1, 0.4, 0.1, 0.4], dtype=torch.float64))
    assert texts(toy_draw(toy, torch.full((1, 1), 0.99), greedy=True)) == [[1]]


# -- cache, padding, dropping -------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", list(ARCHITECTURES))
@pytest.mark.parametrize("temperature", [1.0, 0.7])
def test_sample_old_logps_equal_forward_pass(name, temperature, monkeypatch):
    """With a cache that is copied to the group, prompts of four lengths, and rows that leave on the way."""
    drops = []
    keep = decoding._Cached.keep
    monkeypatch.setattr(decoding._Cached, "keep", lambda self, rows: (drops.append(len(rows)), keep(self, rows))[1])
    model = build(name)
    rollout = draw(model, generations=8, length=16, temperature=temperature, eos_token_id=[1, 2, 3])
    again = completion_logps(model, rollout.input_ids, rollout.attention_mask, rollout.mask.shape[1], temperature)
    torch.testing.assert_close(rollout.old_logps, torch.where(rollout.mask, again.detach(), 0.0), rtol=0, atol=1e-5)
    assert drops, "no row left before the end: this test shows nothing about dropping"
    assert rollout.terminated.any()


@pytest.mark.parametrize("name", list(ARCHITECTURES))
def test_sample_cache_changes_nothing(name):
    model = build(name)
    cached, plain = (draw(model, eos_token_id=[1, 2], use_cache=use) for use in (True, False))
    assert torch.equal(cached.input_ids, plain.input_ids) and torch.equal(cached.mask, plain.mask)
    torch.testing.assert_close(cached.old_logps, plain.old_logps, rtol=0, atol=1e-5)


@pytest.mark.parametrize(("name", "reader"), [("Llama", "_Llama"), ("GPT2", "_Cached"), ("GPT2", "_Rereading")])
def test_sample_dropping_rows_changes_nothing(name, reader, monkeypatch):
    model = build(name)
    results = []
    for threshold in (0.0, 0.4, 2.0):  # at every end, at some, never
        monkeypatch.setattr(getattr(decoding, reader), "drop_at", threshold)
        use_cache = reader != "_Rereading"
        results.append(draw(model, generations=6, length=20, eos_token_id=[1, 2, 3], use_cache=use_cache))
    for other in results[1:]:
        assert torch.equal(results[0].input_ids, other.input_ids)
        assert torch.equal(results[0].mask, other.mask) and torch.equal(results[0].terminated, other.terminated)
        torch.testing.assert_close(results[0].old_logps, other.old_logps, rtol=0, atol=1e-5)


def test_sampling_without_holes_moves_last_rows(suite_seed):
    numbers = torch.Generator().manual_seed(suite_seed)
    for share in (0.1, 0.5, 0.9):
        ended = torch.rand(20, generator=numbers) < share
        left = module._without_holes(ended)
        assert sorted(left.tolist()) == (~ended).nonzero().squeeze(-1).tolist()
        assert all(i == j or (j >= len(left) and ended[i]) for i, j in enumerate(left.tolist()))


def test_sample_switches_dropout_off_and_restores_mode():
    model = build("GPT2").train()
    rollout = draw(model)
    assert model.training
    again = completion_logps(model.eval(), rollout.input_ids, rollout.attention_mask, rollout.mask.shape[1])
    torch.testing.assert_close(rollout.old_logps, torch.where(rollout.mask, again.detach(), 0.0), rtol=0, atol=1e-5)


def test_sample_rollout_can_be_trained_on():
    model = build("Llama")
    rollout = draw(model)
    assert not rollout.old_logps.requires_grad and not rollout.old_logps.is_inference()
    logps = completion_logps(model, rollout.input_ids, rollout.attention_mask, rollout.mask.shape[1])
    (torch.exp(logps - rollout.old_logps) * rollout.mask).sum().backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in model.parameters())


# -- keyed randomness ---------------------------------------------------------------------------------------------


def of_prompt(rollout, p):
    group = slice(p * rollout.num_generations, (p + 1) * rollout.num_generations)
    return texts(rollout)[group]


def test_sample_of_prompt_does_not_depend_on_batch():
    model = build("Llama")
    together = draw(model, eos_token_id=[1, 2])
    for p, prompt in enumerate(PROMPTS):
        assert of_prompt(draw(model, [prompt], eos_token_id=[1, 2]), 0) == of_prompt(together, p)
    turned = draw(model, PROMPTS[::-1], eos_token_id=[1, 2])
    for p in range(4):
        assert of_prompt(turned, 3 - p) == of_prompt(together, p)
    fewer = draw(model, generations=2, eos_token_id=[1, 2])
    for p in range(4):
        assert of_prompt(fewer, p) == of_prompt(together, p)[:2]


def test_sample_longer_completions_begin_with_shorter_ones():
    model = build("Llama")
    long, short = draw(model, length=12), draw(model, length=5)
    for a, b in zip(texts(long), texts(short), strict=True):
        assert a[:5] == b


def test_sample_depends_on_every_key_and_not_on_global_generator():
    model = build("Llama")
    base = draw(model)
    torch.manual_seed(3)
    state = torch.get_rng_state()
    assert torch.equal(draw(model).input_ids, base.input_ids)
    assert torch.equal(torch.get_rng_state(), state)
    for other in ({"seed": 1}, {"step": 1}, {"prompt_keys": ["a", "b", "c", "d"]}):
        changed = draw(model, **other)
        assert sum(a != b for a, b in zip(texts(changed), texts(base), strict=True)) > 6, other
    groups = [of_prompt(base, p) for p in range(4)]
    assert all(len({tuple(x) for x in group}) == 3 for group in groups), "samples of a group differ"


def test_sample_prompt_keys_replace_prompts():
    model = build("Llama")
    named = draw(model, prompt_keys=[0, 1, 2, 3])
    alone = draw(model, [PROMPTS[2]], prompt_keys=[2])
    assert of_prompt(alone, 0) == of_prompt(named, 2)


def test_sample_repeated_prompt_gets_different_samples():
    twice = draw(build("Llama"), [[5, 6, 7], [8], [5, 6, 7]], length=12)
    assert of_prompt(twice, 0) == of_prompt(draw(build("Llama"), [[5, 6, 7]]), 0)
    assert of_prompt(twice, 0) != of_prompt(twice, 2)


# -- the record ---------------------------------------------------------------------------------------------------


def test_sample_rollout_fields_are_consistent():
    rollout = draw(build("Llama"), policy_version=7, eos_token_id=[1, 2])
    assert rollout.num_generations == 3 and len(rollout) == 12 and rollout.prompt_width == 5
    prompt, mask = left_pad([p for p in PROMPTS for _ in range(3)], PAD)
    assert torch.equal(rollout.input_ids[:, :5], prompt) and torch.equal(rollout.attention_mask[:, :5], mask)
    assert torch.equal(rollout.attention_mask[:, 5:], rollout.mask.long())
    assert (rollout.completion_ids[~rollout.mask] == PAD).all()
    for value in (rollout.old_logps, rollout.behavior_logps):
        assert (value[~rollout.mask] == 0).all() and (value[rollout.mask] < 0).all()
    assert torch.equal(rollout.policy_version, torch.where(rollout.mask, 7, -1))
    assert rollout.mask.any(1).all() and rollout.mask[:, -1].any(), "no empty row, no column too many"
    for ids, ended in zip(texts(rollout), rollout.terminated.tolist(), strict=True):
        assert (ids[-1] in (1, 2)) == ended and not {1, 2} & set(ids[:-1])
        assert ended or len(ids) == 12


@pytest.mark.parametrize("length", [1, 2])
def test_sample_max_completion_length_of_one_and_two(length):
    rollout = draw(build("Llama"), length=length, eos_token_id=VOCAB + 1)
    assert rollout.mask.shape == (12, length) and rollout.mask.all() and not rollout.terminated.any()


def test_sample_all_rows_end_at_once():
    toy = ToyLM(3, 3, 1)
    toy.set_distribution(torch.tensor([1 - 1e-9, *([1e-9 / 14] * 14)], dtype=torch.float64))
    rollout = toy_draw(toy, torch.full((4, 3), 0.3))
    assert rollout.mask.shape == (4, 1) and rollout.terminated.all() and (rollout.completion_ids == 0).all()


# -- inversion ----------------------------------------------------------------------------------------------------


@given(st.lists(st.floats(0, 1), min_size=1, max_size=30).filter(any), st.floats(0, 1, exclude_max=True))
@settings(deadline=None, max_examples=300)
def test_invert_cdf_finds_token_whose_interval_holds_number(weights, u):
    token = int(invert_cdf(torch.tensor([weights], dtype=torch.float64).log(), torch.tensor([u], dtype=torch.float64)))
    rounded = torch.tensor(weights, dtype=torch.float64).log().exp()
    sums = [0.0, *itertools.accumulate(rounded.tolist())]
    assert weights[token] > 0
    slack = 1e-12 * sums[-1]
    assert sums[token] <= u * sums[-1] + slack and u * sums[-1] <= sums[token + 1] + slack


@pytest.mark.parametrize("u", [0.0, 1 - 2.0**-53])
def test_invert_cdf_never_returns_impossible_token(u):
    logits = torch.tensor([[-math.inf, -1.0, -math.inf, 0.0, -math.inf]])
    assert int(invert_cdf(logits, torch.tensor([u], dtype=torch.float64))) == (1 if u == 0 else 3)


def test_invert_cdf_is_exact_over_large_vocabulary():
    size = 200_000
    points = (torch.arange(0, size, 9973, dtype=torch.float64) + 0.5) / size
    logits = torch.zeros(1, size).expand(len(points), size)
    assert torch.equal(invert_cdf(logits, points), torch.arange(0, size, 9973))


# -- bad input ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "options",
    [
        {"temperature": 0.0},
        {"temperature": math.nan},
        {"top_p": 0.0},
        {"top_p": 1.5},
        {"min_p": -0.1},
        {"top_k": -1},
        {"max_completion_length": 0},
    ],
    ids=str,
)
def test_sampling_settings_outside_range_are_errors(options):
    [(name, value)] = options.items()
    with raises(UserError, argument=name, value=value):
        Sampling(**options)


def test_sample_prompt_longer_than_context_is_error():
    with raises(UserError, argument="max_completion_length", value=65, expected=64):
        draw(build("Llama"), [[5] * 60, [5]], length=5)
    assert len(draw(build("Llama"), [[5] * 59], length=5)) == 3, "exactly full is allowed"


@pytest.mark.parametrize(
    "changes, argument, value, expected",
    [
        ({"prompts": []}, "prompts", [], None),
        ({"prompts": [[5], []]}, "prompts", [1], None),
        ({"generations": 0}, "num_generations", 0, 1),
        ({"prompt_keys": ["a", "a", "b", "c"]}, "prompt_keys", 3, 4),
        ({"prompt_keys": ["a"]}, "prompt_keys", 1, 4),
        ({"uniforms": torch.zeros(3, 12)}, "uniforms", (3, 12), (12, 12)),
        ({"stop_sequences": [[]]}, "stop_sequences", [[]], None),
        ({"limits": [0] * len(PROMPTS)}, "limits", [0] * len(PROMPTS), (1, 12)),
    ],
)
def test_sample_bad_arguments_are_errors(changes, argument, value, expected):
    with raises(ValueError, argument=argument, value=value, expected=expected):
        draw(build("Llama"), **changes)


@pytest.mark.parametrize("options", [{}, {"top_p": 0.5}, {"greedy": True}])
def test_sample_logits_not_finite_are_error(options):
    model = build("Llama")
    model.model.embed_tokens.weight.data.fill_(math.nan)
    with raises(ValueError, argument="logits", problem="not finite"):
        draw(model, **options)


# -- stop sequences -----------------------------------------------------------------------------------------------


def test_sample_stop_sequence_ends_row():
    """Against cutting by hand what is sampled without it: the same tokens up to the first place where it is complete."""
    model, stops = build("Llama"), [[4, 5], [7], [9, 9, 9]]
    free = draw(model, generations=32, length=16, eos_token_id=10_000)
    stopped = draw(model, generations=32, length=16, eos_token_id=10_000, stop_sequences=stops)

    def ends(row):
        return any(row[-len(stop) :] == stop for stop in stops)

    found = 0
    for row, mask, terminated, whole in zip(
        stopped.completion_ids, stopped.mask, stopped.terminated, free.completion_ids.tolist(), strict=True
    ):
        cut = next((t for t in range(1, len(whole) + 1) if ends(whole[:t])), None)
        assert row[mask].tolist() == whole[:cut] and bool(terminated) == (cut is not None)
        found += cut is not None
    assert 0 < found < len(free)


def test_sample_limits_cut_rows_of_their_prompt():
    """A row is cut where its prompt's limit says; up to there it is the same, and it has not ended by itself."""
    model = build("Llama")
    free = draw(model, generations=8, length=12)
    limits = [3, 12, 1, 7][: len(PROMPTS)]
    cut = draw(model, generations=8, length=12, limits=limits)
    for row in range(len(free)):
        most = limits[row // 8]
        whole = free.completion_ids[row][free.mask[row]].tolist()
        assert cut.completion_ids[row][cut.mask[row]].tolist() == whole[:most]
        assert bool(cut.terminated[row]) == (bool(free.terminated[row]) and len(whole) <= most)


# -- the Llama written out ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["Llama", "Qwen2"])
def test_decoding_written_out_llama_samples_as_model(name, monkeypatch):
    """Prompts of four lengths in groups, rows that leave: same tokens from the same uniform numbers, same log-probabilities."""
    model = build(name)
    numbers = torch.Generator().manual_seed(1)
    for parameter in model.parameters():  # biases are 0 at first
        if parameter.dim() == 1:
            parameter.data += torch.randn(parameter.shape, generator=numbers) / 4
    assert decoding.is_written_out(model)
    fast = draw(model, generations=8, length=16, eos_token_id=[1, 2, 3])
    monkeypatch.setattr(decoding, "is_written_out", lambda model: False)
    slow = draw(model, generations=8, length=16, eos_token_id=[1, 2, 3])
    assert torch.equal(fast.input_ids, slow.input_ids)
    torch.testing.assert_close(fast.old_logps, slow.old_logps, rtol=0, atol=1e-5)


def test_decoding_is_written_out_refuses_unknown_options(monkeypatch):
    from peft import LoraConfig, get_peft_model

    def llama(**options):
        return transformers.LlamaForCausalLM(transformers.LlamaConfig(**{**ARCHITECTURES["Llama"], **options}))

    assert decoding.is_written_out(llama()) and decoding.is_written_out(llama(num_key_value_heads=1))
    assert not decoding.is_written_out(llama(attention_bias=True)), (
        "the output's bias is 0 before training, and not after"
    )
    assert not decoding.is_written_out(llama(mlp_bias=True))
    assert not decoding.is_written_out(llama(hidden_act="gelu"))
    dynamic = {"rope_type": "dynamic", "factor": 2.0, "rope_theta": 1e4}
    assert not decoding.is_written_out(llama(rope_parameters=dynamic))
    with monkeypatch.context() as patched:
        patched.setattr(decoding, "_LARGEST", 1000)
        assert not decoding.is_written_out(llama()), "a copy of its weights would be large"
    watched = llama()
    assert decoding.is_written_out(watched)
    handle = watched.model.layers[1].register_forward_hook(lambda *_: None)
    assert not decoding.is_written_out(watched), "a hook may steer"
    handle.remove()
    assert decoding.is_written_out(watched)
    torch.nn.utils.parametrizations.weight_norm(watched.model.layers[0].mlp.up_proj)
    assert not decoding.is_written_out(watched)
    adapted = get_peft_model(llama(), LoraConfig(target_modules=["q_proj"]))
    assert not decoding.is_written_out(adapted) and not decoding.is_written_out(adapted.get_base_model())
    assert not decoding.is_written_out(build("Mistral"))
    windows = {**ARCHITECTURES["Qwen2"], "use_sliding_window": True, "sliding_window": 50, "max_window_layers": 1}
    assert not decoding.is_written_out(transformers.Qwen2ForCausalLM(transformers.Qwen2Config(**windows)))
