"""Chapter 10: the cases that its text works by hand, and its equations on a transformer of ours."""

import math
from collections import Counter

import pytest
import torch

from minirlhf.core.randomness import numpy_generator
from minirlhf.data import tasks
from minirlhf.data.tasks.assistant import FACTS
from minirlhf.equations import tuning
from minirlhf.stages import pipeline
from minirlhf_course.chapters.ch10_instruction_tuning import translator


def close(got, want, digits=9):
    torch.testing.assert_close(
        torch.as_tensor(got, dtype=torch.float64),
        torch.as_tensor(want, dtype=torch.float64),
        atol=0.6 * 10**-digits,
        rtol=0,
    )


# -- several documents in one row --------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def model():
    found = pipeline.fresh(tasks.get("assistant"), seed=3).model.double().eval()
    for parameter in found.parameters():
        parameter.requires_grad_(False)
    return found


def packed_logits(model, row, documents, positions):
    hidden = ~tuning.packed_mask(documents)[:, None]  # (1, 1, S, S)
    bias = torch.zeros(hidden.shape, dtype=torch.float64).masked_fill(hidden, -math.inf)
    return model(input_ids=row, attention_mask=bias, position_ids=positions).logits


def test_packed_mask_gives_the_logits_of_single_documents(model):
    lengths, vocab = (4, 1, 6), model.config.vocab_size
    row = (torch.arange(11) * 7 % vocab)[None]
    documents = torch.tensor([[5] * 4 + [2] + [9] * 6])
    positions = tuning.packed_positions(documents)
    assert positions.tolist() == [[0, 1, 2, 3, 0, 0, 1, 2, 3, 4, 5]]
    alone = torch.cat([model(input_ids=part).logits for part in row.split(lengths, 1)], 1)
    torch.testing.assert_close(packed_logits(model, row, documents, positions), alone, atol=1e-12, rtol=0)
    # rotary positions: only distances count, so that positions through the row do as well, but for angles of single precision
    through = packed_logits(model, row, documents, torch.arange(11)[None])
    torch.testing.assert_close(through, alone, atol=1e-6, rtol=0)
    # without the mask only the first document is what it was
    leaking = model(input_ids=row).logits
    torch.testing.assert_close(leaking[:, :4], alone[:, :4], atol=1e-12, rtol=0)
    assert (leaking[:, 4:] - alone[:, 4:]).abs().amax(-1).min() > 1e-3


def test_packed_mask_joins_documents_of_one_number():
    """A number says which document, wherever it stands: nothing asks that numbers ascend or that a document is not interrupted."""
    documents = torch.tensor([[1, 0, 1]])
    assert tuning.packed_mask(documents).tolist() == [[[True, False, False], [False, True, False], [True, False, True]]]
    assert tuning.packed_positions(documents).tolist() == [[0, 0, 1]]


def test_packed_floor_of_six_documents_in_one_of_three_languages():
    prior = torch.full((3,), 1 / 3, dtype=torch.float64)
    spoken = torch.eye(3, dtype=torch.float64)  # each language has its own word
    close(tuning.packed_floor(prior, spoken, documents=1), math.log(3))
    close(tuning.packed_floor(prior, spoken, documents=6), math.log(3) / 6)
    close(math.log(3) / 6, 0.183, 3)


# -- adapters ----------------------------------------------------------------------------------------------------


def test_lora_mean_first_step_at_rank_16():
    """(α²σ²/r) with σ² = 1/(3i), α = 2r: 4r/(3i)."""
    rank, inputs = 16, 4096
    share = (2 * rank) ** 2 / (3 * inputs) / rank
    assert share == pytest.approx(4 * rank / (3 * inputs)) and 1 / share == pytest.approx(192)


# -- four bits ---------------------------------------------------------------------------------------------------


def test_absmax_quantised_block_in_four_bits():
    levels = tuning.nf4_levels()
    assert len(levels) == 16 and levels[7] == 0 and (levels.diff() > 0).all()
    block = torch.tensor([[0.5, -2.0, 0.0, 1.3]], dtype=torch.float64)
    close(
        tuning.absmax_quantised(block, levels), [[2 * 0.24611, -2.0, 0.0, 2 * 0.72296]], 4
    )  # .65 lies between .563 and .723
    assert (block - tuning.absmax_quantised(block, levels)).abs().max() <= 2.0 * levels.diff().max() / 2
    close(tuning.absmax_quantised(3 * block, levels), 3 * tuning.absmax_quantised(block, levels))
    again = tuning.absmax_quantised(tuning.absmax_quantised(block, levels), levels)
    close(again, tuning.absmax_quantised(block, levels))


def test_nf4_memory_of_65_billion_weights():
    """Four bits a weight and one 32-bit scale for every block of 64: 4.5 bits; the text's 36.6 GB against 130 in 16 bits."""
    bits = 4 + 32 / 64
    assert bits == 4.5 and 65e9 * bits / 8 / 1e9 == pytest.approx(36.6, abs=0.05) and 65e9 * 16 / 8 / 1e9 == 130
    twice = 4 + 8 / 64 + 32 / (64 * 256)  # scales in eight bits, theirs in 32
    assert twice == pytest.approx(4.127, abs=5e-4)


# -- imitation ---------------------------------------------------------------------------------------------------


def test_imitation_time_from_one_in_ten_thousand_to_one_half():
    start, half = torch.tensor(1e-4, dtype=torch.float64), torch.tensor(0.5, dtype=torch.float64)
    close(tuning.imitation_time(start, half), 10.2, 1)
    assert round(float(tuning.dynamic_imitation_time(start, half))) == 10_017


def test_demonstrations_go_on_after_a_fact_more_often_than_they_end():
    """Why a loss that rests at the likeliest token does not stop in the assistant world."""
    world, rng = tasks.get("assistant"), numpy_generator("after a fact")
    replies = [world.demonstration(prompt, rng).split() for prompt in world.prompts("train")]
    facts, behind = {word for said in FACTS.values() for word in said}, Counter()
    for reply in replies:
        for word, following in zip(reply, [*reply[1:], "the end"], strict=True):
            behind.update([following] if word in facts else [])
    assert behind["and"] > 1.2 * behind["the end"] > 0


# -- the instruction hierarchy ------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(3))
def test_translator_conflicts_have_no_held_out_word(seed):
    trained_words, held_out = translator.split_words(seed)
    assert sorted(trained_words + held_out) == list(range(len(translator.ENGLISH)))
    tokenizer = translator.fresh(seed).tokenizer
    counts = Counter()
    for example in translator.exchanges(tokenizer, 200, 60, seed):
        words = tokenizer.decode(example.input_ids).split()
        names = {word for word in words if word in translator.NAMES}
        [english] = {word for word in words[: words.index("<assistant>")] if word in translator.ENGLISH}
        if len(names) == 2:
            counts[translator.ENGLISH.index(english)] += 1
    assert counts.total() == 60
    assert set(counts) == set(trained_words)


def test_translator_system_last_swaps_the_messages():
    roles = [message["role"] for message in translator.asked("cat", "French", "German", system_last=True)]
    assert roles == ["user", "system"]
