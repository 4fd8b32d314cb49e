"""The laboratories of chapter 08: damage, labels of two kinds, aspects, real pairs, and what a judge's verdicts add up to."""

import json
import math

import pytest
import torch
from facts import raises

from minirlhf.core.errors import UserError
from minirlhf.data import tasks
from minirlhf.data.chat import conversation
from minirlhf.data.preferences import SimulatedAnnotator, sample_pairs
from minirlhf.data.records import Comparison
from minirlhf.data.tasks.assistant import features, gold
from minirlhf.data.tasks.running_sum import RUNNING_SUM, STEPS
from minirlhf.data.types import PreferencePair
from minirlhf.equations.reward_losses import (
    bradley_terry_loss,
    centring_penalty,
    gated_reward,
    pair_weights,
    plackett_luce_logp,
    regression_loss,
)
from minirlhf.feedback.judge import Verdicts
from minirlhf.models.tiny import tiny_model
from minirlhf.models.tokenizers import word_tokenizer
from minirlhf.stages import pipeline
from minirlhf.stages.judging import WORDS, add_judge_tokens
from minirlhf_course.chapters.ch08_reward_models import aspects, frozen, judging, real_pairs, step_labels
from minirlhf_course.chapters.ch08_reward_models.assistant_rewards import (
    DAMAGES,
    GradersPlan,
    best_replies,
    damaged_pairs,
    relabelled,
    with_margins,
)
from minirlhf_course.chapters.ch08_reward_models.per_token import write

WORLD = tasks.get("assistant")
SUMS = word_tokenizer(RUNNING_SUM.words)
NOISY = sample_pairs(WORLD, 120, labeller=SimulatedAnnotator(temperature=1.0), seed=3)


# -- the page ----------------------------------------------------------------------------------------------------


def test_reward_losses_give_the_numbers_worked_by_hand():
    """One pair, many losses: from the logarithm, and by the library."""
    one = lambda x: torch.tensor([x], dtype=torch.float64)
    chosen, rejected, margin = one(1.2), one(0.4), one(5.0 - 2.0)
    surprise = math.log(1 + math.exp(-0.8))
    by_hand = {
        ".371101": (surprise, bradley_terry_loss(chosen, rejected)),
        ".371101 less 5": (surprise, bradley_terry_loss(chosen - 5, rejected - 5)),
        "2.305083": (math.log(1 + math.exp(3 - 0.8)), bradley_terry_loss(chosen, rejected, margin=margin)),
        ".451101": (0.9 * surprise + 0.1 * (surprise + 0.8), bradley_terry_loss(chosen, rejected, label_smoothing=0.1)),
        ".396701": (
            surprise + 0.01 * 1.6**2,
            bradley_terry_loss(chosen, rejected) + 0.01 * centring_penalty(chosen, rejected),
        ),
        ".427101": (
            surprise + 0.1 * 0.4 + 0.01 * (1.2**2 + 0.4**2),
            bradley_terry_loss(chosen, rejected)
            + 0.1 * (torch.relu(-chosen) + torch.relu(rejected))
            + 0.01 * (chosen.square() + rejected.square()),
        ),
        "8.5": (
            (3.8**2 + 1.6**2) / 2,
            regression_loss(torch.cat([chosen, rejected]), torch.tensor([5.0, 2.0], dtype=torch.float64)).mean(),
        ),
        ".720868": (
            -math.log(math.e**2 / (math.e**2 + math.e + 1) * math.e / (math.e + 1)),
            -plackett_luce_logp(torch.tensor([2.0, 1.0, 0.0], dtype=torch.float64)),
        ),
    }
    for printed, (hand, library) in by_hand.items():
        assert float(printed.split()[0]) == pytest.approx(hand, abs=5e-7)
        assert float(library) == pytest.approx(hand, abs=1e-9)
    assert math.exp(-0.720868) == pytest.approx(0.486330, abs=1e-6) and math.log(0.9 / 0.1) == pytest.approx(
        2.197, abs=5e-4
    )
    assert [math.comb(k, 2) for k in (4, 9)] == [6, 36]
    assert [1 / w for w in pair_weights(torch.tensor([4, 9])).tolist()] == pytest.approx([6, 36])
    helpful, safe = torch.tensor([0.95, 0.40]), torch.tensor([0.05, 0.50])
    assert (helpful + safe).tolist() == pytest.approx([1.0, 0.9])
    assert gated_reward(helpful, safe, threshold=0.15).tolist() == pytest.approx([0.05, 0.40])


# -- the report card ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", DAMAGES)
def test_damaged_pairs_have_the_cost_as_margin(kind):
    replies = best_replies(GradersPlan())
    pairs = damaged_pairs(kind, replies, seed=1)
    assert len(pairs) == len(replies) > 100
    for pair in pairs:
        cost = WORLD.grade(pair.prompt, pair.chosen) - WORLD.grade(pair.prompt, pair.rejected)
        assert cost > 0 and pair.margin == pytest.approx(cost)


def test_damaged_pairs_leave_out_harmless_damage():
    [(prompt, _), *_] = best_replies(GradersPlan())
    assert damaged_pairs("gibberish", [(prompt, "cats")], seed=0) == []


def test_relabelled_follows_gold_whatever_the_labels_were():
    clean = relabelled(NOISY, seed=0)
    turned = relabelled([PreferencePair(p.prompt, p.rejected, p.chosen) for p in NOISY], seed=0)
    assert clean == turned  # not even a tie remembers the old label
    gaps = [WORLD.grade(p.prompt, p.chosen) - WORLD.grade(p.prompt, p.rejected) for p in clean]
    assert min(gaps) >= 0 and [p.chosen for p in clean] != [p.chosen for p in NOISY]


def test_with_margins_is_the_gap_that_the_annotator_saw():
    tokenizer = word_tokenizer(WORLD.words)
    made = with_margins(pipeline.pair_tokens(tokenizer, NOISY), NOISY)
    for one, p in zip(made, NOISY, strict=True):
        assert one.margin == pytest.approx(abs(WORLD.grade(p.prompt, p.chosen) - WORLD.grade(p.prompt, p.rejected)))


# -- aspects -----------------------------------------------------------------------------------------------------


def test_aspects_add_up_to_gold():
    for p in NOISY:
        counts = features(p.prompt, p.chosen)
        assert sum(worth(counts) for worth in aspects.ASPECTS.values()) == pytest.approx(gold(counts))


def test_told_adds_the_word_of_the_aspect_only():
    tokenizer = word_tokenizer(WORLD.words)
    [silent], [told] = (aspects.told(tokenizer, NOISY[:1], word) for word in (None, "about"))
    word = tokenizer.convert_tokens_to_ids("about")
    extra = list(told.chosen.input_ids)
    for token in silent.chosen.input_ids:
        extra.remove(token)
    assert word in extra and len(extra) <= 3 and sum(told.chosen.loss_mask) == sum(silent.chosen.loss_mask)


# -- labels of steps ---------------------------------------------------------------------------------------------


def test_so_far_is_right_where_slips_cancel():
    prompt = RUNNING_SUM.prompts("test")[0]
    slips = (0, 2, 0, 3, 0, 1)  # the second cancels the first, modulo 5
    [row] = step_labels.so_far([write(SUMS, prompt, slips)]).tolist()
    assert row == [True, False, False, True, True, False]


def test_step_labels_relabelled_changes_labels_only():
    written = [write(SUMS, prompt, (0,) * STEPS) for prompt in RUNNING_SUM.prompts("test")[:3]]
    good = torch.rand(3, STEPS, generator=torch.Generator().manual_seed(0)) < 0.5
    for was, now, row in zip(written, step_labels.relabelled(written, good), good.tolist(), strict=True):
        assert now.tokens == was.stepped.tokens and now.ends == was.stepped.ends
        assert [label > 0 for label in now.labels] == row and set(now.labels) <= {-1, 1}


def test_completed_goes_on_from_each_step():
    plan = pipeline.RUNNING_SUM_SFT
    start = pipeline.fresh(RUNNING_SUM, seed=0)
    prompts = RUNNING_SUM.prompts("test")[:4]
    written = [write(start.tokenizer, p, (0,) * 5 + (slip,)) for p, slip in zip(prompts, (0, 1, 0, 2), strict=True)]
    found = step_labels.completed(start, written, 3, seed=0)
    assert found.shape == (4, STEPS, 3) and plan.demonstrations > 0
    assert found[:, -1].tolist() == [[True] * 3, [False] * 3, [True] * 3, [False] * 3]


# -- judges ------------------------------------------------------------------------------------------------------


def test_judging_measured_counts_both_orders():  # the chosen reply is the first of the given order
    found = judging.measured(Verdicts(given=("A", "A", "B", "B"), exchanged=("A", "B", "A", "B")))
    assert found["both_right"] == 0.25 and found["consistency"] == 0.5
    assert found["accuracy"] == found["single"] == 0.5  # a pair with two verdicts counts one half


def test_judge_grown_keeps_the_start_and_draws_new_words():
    start = pipeline.fresh(WORLD, seed=0)
    one, other = add_judge_tokens(WORLD.words, start, 0), add_judge_tokens(WORLD.words, start, 1)
    weights = [m.get_input_embeddings().weight for m in (start.model, one.model, other.model)]
    known = len(weights[0])
    assert torch.equal(weights[1][:known], weights[0]) and torch.equal(weights[1][:known], weights[2][:known])
    assert len(weights[1]) == known + len(WORDS) and not torch.equal(weights[1][known:], weights[2][known:])


# -- real pairs --------------------------------------------------------------------------------------------------


def talk(prompt, chosen, rejected):
    said = [[{"role": "assistant", "content": text}] for text in (chosen, rejected)]
    return Comparison(conversation(prompt), *said)


def test_real_pairs_split_holds_out_every_pair_once_by_prompt():
    pairs = [talk(f"prompt {n // 2}", f"yes {n}", f"no {n}") for n in range(40)]
    parts = [real_pairs.split(pairs, fold, 5) for fold in range(5)]
    assert sorted(p.chosen[0]["content"] for _, held in parts for p in held) == sorted(
        p.chosen[0]["content"] for p in pairs
    )
    for train, held in parts:
        assert len(train) + len(held) == 40
        assert not {repr(p.prompt) for p in train} & {repr(p.prompt) for p in held}


def test_real_pairs_tokenised_keeps_the_end():
    [made] = real_pairs.tokenised(word_tokenizer(WORLD.words), [talk("what do cats do?", "cats purr", "cats nap")], 3)
    [whole] = real_pairs.tokenised(word_tokenizer(WORLD.words), [talk("what do cats do?", "cats purr", "cats nap")], 99)
    assert made.chosen.input_ids == whole.chosen.input_ids[-3:] and made.chosen.loss_mask == whole.chosen.loss_mask[-3:]


def test_real_pairs_by_words_finds_the_word_that_decides():
    rng = torch.Generator().manual_seed(0)
    noise = [f"w{i}" for i in torch.randint(30, (400,), generator=rng).tolist()]
    pairs = [talk(f"p {n}", f"good {noise[2 * n]}", f"bad {noise[2 * n + 1]}") for n in range(200)]
    assert real_pairs.by_words(pairs[:100], pairs[100:]) == 1.0
    turned = [talk(f"p {n}", p.rejected[0]["content"], p.chosen[0]["content"]) for n, p in enumerate(pairs[100:])]
    assert real_pairs.by_words(pairs[:100], turned) == 0.0


def test_real_pairs_longer_counts_a_tie_one_half():
    assert real_pairs.longer([talk("p", "abcd", "ab"), talk("p", "ab", "cd"), talk("p", "a", "bcd")]) == 0.5


# -- frozen features ---------------------------------------------------------------------------------------------


def noisy_talks(count):
    """Pairs in which one word decides; lengths and prompts do not."""
    words = torch.randint(30, (count, 2), generator=torch.Generator().manual_seed(0)).tolist()
    return [talk(f"p {n}", f"good w{a}", f"bad w{b}") for n, (a, b) in enumerate(words)]


def test_frozen_shortened_keeps_end_of_prompt_and_begin_of_completions():
    tokenizer = word_tokenizer(WORLD.words)
    pairs = [talk("what do cats do?", "cats purr", "cats nap")]
    plan = frozen.FrozenPlan(prompt_tokens=2, completion_tokens=1)
    [whole] = real_pairs.tokenised(tokenizer, pairs, 99)
    [short] = frozen.shortened(tokenizer, pairs, plan)
    for before, after in zip(whole.completions, short.completions, strict=True):
        begin = before.loss_mask.index(True)
        assert after.input_ids == before.input_ids[begin - 2 : begin + 1] and after.loss_mask == [False, False, True]


def test_frozen_features_are_differences_of_own_hidden_states():
    tokenizer = word_tokenizer(WORLD.words)
    model = tiny_model("nano", tokenizer, seed=0)
    pairs = [talk("what do cats do?", "cats purr", "cats nap a lot"), talk("why?", "so it is", "no")]
    examples = frozen.shortened(tokenizer, pairs, frozen.FrozenPlan())
    found = frozen.features(model.base_model, examples, tokenizer.pad_token_id)
    for i, example in enumerate(examples):
        states = []
        for one in example.completions:
            with torch.no_grad():
                hidden = model.base_model(torch.tensor([one.input_ids])).last_hidden_state[0].double()
            states.append({"last": hidden[-1], "mean": hidden[torch.tensor(one.loss_mask)].mean(0)})
        for name in frozen.POOLINGS:
            torch.testing.assert_close(found[name][i], states[0][name] - states[1][name], rtol=1e-4, atol=1e-5)


def test_frozen_cross_validation_finds_feature_that_decides():
    pairs = noisy_talks(60)
    noise = torch.randn(60, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    decisive = torch.cat([noise, torch.ones(60, 1, dtype=torch.float64) + 0.1 * noise[:, :1]], 1)
    record = frozen.cross_validate(pairs, {"last": noise, "mean": decisive}, frozen.FrozenPlan())
    assert record["poolings"] == ["mean"] * 5 and record["frozen"] == [1.0] * 60 and record["words"] == [1.0] * 60
    assert sorted(i for group in record["prompts"] for i in group) == list(range(60))


def test_frozen_length_rule_learns_its_sign():
    pairs = [talk(f"p {n}", "short", "a long completion") for n in range(40)]
    flat = {"last": torch.zeros(40, 1, dtype=torch.float64)}
    record = frozen.cross_validate(pairs, flat, frozen.FrozenPlan())
    assert record["length"] == [1.0] * 40 and record["frozen"] == [0.5] * 40


def test_frozen_effects_count_pairs_of_some_prompts():
    record = {"frozen": [1, 1, 0.5], "length": [0, 1, 0], "words": [1, 0, 0], "prompts": [[0, 2], [1]]}
    effects = {name: claim.effect(record, [0]) for name, claim in frozen.FROZEN.items()}
    assert effects == {"chance": 0.75, "beats_length": 0.75, "beats_words": 0.25}


def test_frozen_command_reads_own_file(tmp_path, monkeypatch, capsys):
    file = tmp_path / "pairs.jsonl"
    rows = [{"prompt": p.prompt[0]["content"], "chosen": p.chosen[0]["content"], "rejected": p.rejected[0]["content"]}
            for p in noisy_talks(30)]  # fmt: skip
    file.write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    tokenizer = word_tokenizer(WORLD.words)
    monkeypatch.setattr(frozen, "load_model", lambda name, **_: (tiny_model("nano", tokenizer, seed=0), tokenizer))
    monkeypatch.setattr("sys.argv", ["frozen", str(file)])
    frozen.main()
    printed = dict(line.split() for line in capsys.readouterr().out.splitlines())
    assert float(printed["pairs"]) == 30 and float(printed["words_right"]) == 1.0


def test_frozen_needs_prompts_for_its_folds():
    with raises(UserError, argument="pairs", value=14, expected=15):
        frozen.evaluate(noisy_talks(14), frozen.FrozenPlan(), None, None)


def test_frozen_command_refuses_missing_file_in_one_line(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("sys.argv", ["frozen", str(tmp_path / "missing.jsonl")])
    with pytest.raises(SystemExit) as stopped:
        frozen.main()
    assert stopped.value.code == 2 and "missing.jsonl" in capsys.readouterr().err.splitlines()[-1]


def test_frozen_choice_is_made_on_pairs_that_were_held_out():
    drawn = torch.Generator().manual_seed(2)
    noise = torch.randn(
        60, 100, dtype=torch.float64, generator=drawn
    )  # separates its own training pairs, and no others
    helpful = 1 + torch.randn(60, 1, dtype=torch.float64, generator=drawn)
    assert frozen.chosen_by_loss({"last": noise, "mean": helpful}, frozen.FrozenPlan())[0] == "mean"
