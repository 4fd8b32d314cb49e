"""Sampling in turns: what the policy said, what it heard, and where it ends."""

import numpy as np
import pytest
import torch
from architectures import build

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


def test_turns_alternate_and_end_where_they_should():
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


def test_log_probs_are_those_of_the_whole_conversation():
    """Also of the second turn, given the prompt, the first turn and the answer."""
    rollout = talk(always, length=40)
    logps = completion_logps(
        build("Llama"), rollout.input_ids, rollout.attention_mask, rollout.mask.shape[1], wanted=rollout.mask
    )
    torch.testing.assert_close(rollout.old_logps, torch.where(rollout.mask, logps, 0).detach(), rtol=0, atol=1e-5)


def test_one_turn_is_ordinary_sampling():
    plain = sample(
        build("Llama"), PROMPTS, sampling=Sampling(max_completion_length=24), num_generations=4, eos_token_id=EOS,
        pad_token_id=PAD, seed=0,
    )  # fmt: skip
    for rollout in (talk(always, turns=1), talk(lambda rows, completions: [None] * len(rows))):
        for name in ("input_ids", "attention_mask", "mask", "old_logps", "terminated"):
            assert torch.equal(getattr(rollout, name), getattr(plain, name)), name


def test_the_budget_counts_both_sides():
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


def test_each_row_has_its_own_room():
    """Prompts of 30 and 3 tokens in a context of 64: both have room for 32 more, however long the other gets."""
    for seed in range(6):
        rollout = sample_turns(
            build("Llama"), [[5] * 30, [6] * 3], always, max_turns=9, sampling=Sampling(max_completion_length=32),
            num_generations=4, eos_token_id=EOS, pad_token_id=PAD, seed=seed,
        )  # fmt: skip
        assert rollout.attention_mask[:, -rollout.mask.shape[1] :].sum(1).max() <= 32


def test_a_turn_that_is_cut_off_has_not_terminated():
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


def test_answers_of_any_kind_of_sequence():
    kinds = [lambda x: x, tuple, np.array, torch.tensor]
    found = [talk(lambda rows, _, kind=kind: [kind(ANSWER)] * len(rows), length=40).input_ids for kind in kinds]
    assert all(torch.equal(ids, found[0]) for ids in found)


def test_only_rows_that_go_on_are_asked():
    asked = []

    def environment(rows, completions):
        asked.append(list(rows))
        return [ANSWER if i % 2 else None for i in rows]

    talk(environment, turns=3, length=40)
    assert len(asked) == 2 and all(i % 2 for i in asked[1])


@pytest.mark.parametrize(
    ("environment", "options", "message"),
    [(lambda rows, completions: [], {}, "0 answers"), (always, {"turns": 0}, "max_turns=0")],
)
def test_refusals(environment, options, message):
    with pytest.raises(ValueError, match=message):
        talk(environment, **options)
