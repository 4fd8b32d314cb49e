"""Sampling in turns: what the policy said, what it heard, and where it ends."""

import numpy as np
import pytest
import torch
from architectures import ARCHITECTURES, build
from facts import raises

from minirlhf.engine import decoding
from minirlhf.engine.decoding import can_continue
from minirlhf.models.forward import completion_logps
from minirlhf.models.sampling import Sampling, sample
from minirlhf.models.turns import sample_turns

PROMPTS = [[5, 6, 7], [8, 9, 10, 11, 12]]
EOS, PAD = [1, 2, 3], 0
ANSWER = [13, 14]


def talk(environment, *, turns=3, length=24, generations=4, **options):
    return sample_turns(
        build("Llama"), PROMPTS, environment, max_turns=turns, sampling=Sampling(max_completion_length=length),
        num_generations=generations, eos_token_id=EOS, pad_token_id=PAD, seed=0, **options,
    )  # fmt: skip


def always(rows, completions):
    return [ANSWER] * len(rows)


def segments(row, mask):
    """Lists of tokens, each with who said them."""
    found = []
    for token, said in zip(row.tolist(), mask.tolist(), strict=True):
        if not found or found[-1][0] != said:
            found.append((said, []))
        found[-1][1].append(token)
    return found


def test_sample_turns_alternate_and_end_at_end_tokens():
    rollout = talk(always, length=40)
    real = rollout.attention_mask[:, rollout.prompt_width :].bool()
    several = 0
    for i in range(len(rollout)):
        parts = segments(rollout.completion_ids[i][real[i]], rollout.mask[i][real[i]])
        assert [said for said, _ in parts] == [n % 2 == 0 for n in range(len(parts))], "the policy begins, then turns"
        assert len(parts) <= 5, "three turns of the policy, two answers"
        assert all(tokens == ANSWER for said, tokens in parts if not said)
        for _, tokens in parts[:-1:2]:
            assert tokens[-1] in EOS and not set(tokens[:-1]) & set(EOS)
        several += len(parts) > 1
    assert several > 2 and rollout.terminated.any()
    assert not rollout.old_logps[~rollout.mask].any() and (rollout.policy_version[~rollout.mask] == -1).all()


def test_sample_turns_logps_are_those_of_whole_conversation():
    """Also of the second turn, given the prompt, the first turn and the answer."""
    rollout = talk(always, length=40)
    logps = completion_logps(
        build("Llama"), rollout.input_ids, rollout.attention_mask, rollout.mask.shape[1], wanted=rollout.mask
    )
    torch.testing.assert_close(rollout.old_logps, torch.where(rollout.mask, logps, 0).detach(), rtol=0, atol=1e-5)


def test_sample_turns_of_one_turn_equals_sample():
    plain = sample(
        build("Llama"), PROMPTS, sampling=Sampling(max_completion_length=24), num_generations=4, eos_token_id=EOS,
        pad_token_id=PAD, seed=0,
    )  # fmt: skip
    for rollout in (talk(always, turns=1), talk(lambda rows, completions: [None] * len(rows))):
        for name in ("input_ids", "attention_mask", "mask", "old_logps", "terminated"):
            assert torch.equal(getattr(rollout, name), getattr(plain, name)), name


def test_sample_turns_max_completion_length_counts_both_sides():
    heard = []

    def environment(rows, completions):
        heard.extend(len(c) for c in completions)
        return always(rows, completions)

    rollout = talk(environment, turns=50, length=12)
    real = rollout.attention_mask[:, rollout.prompt_width :].bool()
    assert real.shape[1] <= 12
    assert rollout.mask.gather(1, real.sum(1, keepdim=True) - 1).all(), "an answer nobody can reply to is left out"
    assert not rollout.terminated.any(), "with an environment that never ends, every conversation is cut off"
    assert heard and max(heard) <= 12


def test_sample_turns_room_is_per_row():
    """Prompts of 30 and 3 tokens in a context of 64: both have room for 32 more, however long the other gets."""
    for seed in range(6):
        rollout = sample_turns(
            build("Llama"), [[5] * 30, [6] * 3], always, max_turns=9, sampling=Sampling(max_completion_length=32),
            num_generations=4, eos_token_id=EOS, pad_token_id=PAD, seed=seed,
        )  # fmt: skip
        assert rollout.attention_mask[:, -rollout.mask.shape[1] :].sum(1).max() <= 32


def test_sample_turns_turn_cut_off_has_not_terminated():
    """Nor is the environment asked about it."""
    asked = []

    def environment(rows, completions):
        asked.extend(c[-1] for c in completions)
        return always(rows, completions)

    rollout = talk(environment, turns=2, length=6)
    assert set(asked) <= set(EOS)
    real = rollout.attention_mask[:, -rollout.mask.shape[1] :].sum(1)
    last = rollout.completion_ids.gather(1, real[:, None] - 1).squeeze(1)
    assert torch.equal(rollout.terminated, torch.isin(last, torch.tensor(EOS)) & rollout.terminated)
    assert (~rollout.terminated).any()


def test_sample_turns_takes_answers_of_any_sequence_type():
    kinds = [lambda x: x, tuple, np.array, torch.tensor]
    found = [talk(lambda rows, _, kind=kind: [kind(ANSWER)] * len(rows), length=40).input_ids for kind in kinds]
    assert all(torch.equal(ids, found[0]) for ids in found)


def test_sample_turns_asks_environment_about_continuing_rows_only():
    asked = []

    def environment(rows, completions):
        asked.append(list(rows))
        return [ANSWER if i % 2 else None for i in rows]

    talk(environment, turns=3, length=40)
    assert len(asked) == 2 and all(i % 2 for i in asked[1])


# -- going on with the cache -------------------------------------------------------------------------------------------------


def ragged(rows, completions):
    """Answers of one to four tokens, and no answer at all to some rows: both follow from what was said."""
    said = [sum(tokens) + len(tokens) for tokens in completions]
    return [None if number % 5 == 0 else [13 + k % 7 for k in range(1 + number % 4)] for number in said]


def both_ways(model, **options):
    """Rollouts that go on with the cache, and that read again."""
    return [
        sample_turns(
            model, PROMPTS, ragged, max_turns=4, sampling=Sampling(max_completion_length=40), num_generations=8,
            eos_token_id=EOS, pad_token_id=PAD, seed=3, read_again=again, **options,
        )
        for again in (False, True)
    ]  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("name", list(ARCHITECTURES))
def test_sample_turns_with_cache_equals_reading_again(name):
    """The same tokens by seed, and log-probabilities to 1e-5, in every architecture, whether or not its cache can be gone on with."""
    on, again = both_ways(build(name))
    for part in ("input_ids", "attention_mask", "mask", "terminated"):
        assert torch.equal(getattr(on, part), getattr(again, part)), part
    torch.testing.assert_close(on.old_logps, again.old_logps, rtol=0, atol=1e-5)
    assert max(len(segments(row, mask)) for row, mask in zip(on.completion_ids, on.mask, strict=True)) >= 3


def test_sample_turns_reads_each_token_once():
    """Of a Llama, by what goes through its own forward pass: prompts once, then each turn's last token and what was heard."""
    model, read = build("Llama"), []
    assert can_continue(model)
    watched = model.model.embed_tokens.register_forward_hook(lambda _, given, __: read.append(given[0].shape))
    with watched:
        on, again = both_ways(model)
    assert torch.equal(on.input_ids, again.input_ids)
    blocks = [shape for shape in read if len(shape) == 2 and shape[1] > 1]  # what is read before a turn is written
    middle = next(i for i, shape in enumerate(blocks) if i and shape == blocks[0])
    assert blocks[0] == (len(PROMPTS), max(map(len, PROMPTS)))
    assert all(columns <= 5 for _, columns in blocks[1:middle]), "one token said, four heard at most"
    assert all(columns > 5 for _, columns in blocks[middle + 1 :])


def test_sample_turns_dropping_rows_changes_nothing(monkeypatch):
    """Also if rows leave the batch at every chance, and if none ever does."""
    for share in (0.0, 1.0):
        model = build("Llama")
        monkeypatch.setattr(decoding._Llama, "drop_at", share)
        on, again = both_ways(model)
        assert torch.equal(on.input_ids, again.input_ids)
        torch.testing.assert_close(on.old_logps, again.old_logps, rtol=0, atol=1e-5)


def test_decoding_goes_on_refuses_unusable_cache():
    """A model that counts positions by the cache's columns, holes included: it is found out, and reads again."""
    model = build("Llama")
    forward = model.model.rotary_emb.forward
    model.model.rotary_emb.forward = lambda x, position_ids: forward(
        x, (position_ids - position_ids[:, :1]).clamp(min=0)
    )
    assert not can_continue(model)


@pytest.mark.parametrize(
    ("environment", "options", "argument"),
    [(lambda rows, completions: [], {}, "answers"), (always, {"turns": 0}, "max_turns")],
)
def test_sample_turns_bad_arguments_are_errors(environment, options, argument):
    with raises(ValueError, argument=argument, value=0):
        talk(environment, **options)
