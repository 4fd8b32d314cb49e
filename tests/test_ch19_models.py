"""Chapter 19's trained models: what their worlds promise, before anything is trained, and what they refuse."""

import math
from collections import Counter

import pytest
import torch
from facts import raises

from minirlhf.core.errors import ArgumentError
from minirlhf.core.randomness import numpy_generator
from minirlhf.models.tiny import tiny_model
from minirlhf.trainers.sft import SFTConfig
from minirlhf_course import evidence
from minirlhf_course.chapters.ch19_evaluation import answer_formats, facts, leaks, word_models
from minirlhf_course.chapters.ch19_evaluation import examples_in_prompt as pages


def untrained(of, seed=0):
    return tiny_model("nano", of, seed=seed).eval()


# -- one word after a prompt ---------------------------------------------------------------------------------------


def test_next_word_does_not_depend_on_the_batch():
    """Prompts of other lengths stand beside it, padded; each row is a distribution."""
    of = leaks.tokenizer()
    model, prompts = untrained(of), ["max 1 2 3 4", "sum 5", "<user> max 7 8 9 1 <assistant>"]
    together = word_models.next_word(model, of, prompts)
    alone = torch.cat([word_models.next_word(model, of, [prompt]) for prompt in prompts])
    torch.testing.assert_close(together, alone, atol=1e-5, rtol=0)
    torch.testing.assert_close(together.exp().sum(-1), torch.ones(3), atol=1e-5, rtol=0)


def test_loss_mask_of_a_page_and_of_an_answer():
    of = leaks.tokenizer()
    assert all(word_models.page(of, "max 1 2").loss_mask)
    found = word_models.answered(of, "max 1 2", "2")
    assert found.loss_mask == [False] * 3 + [True] * 2 and found.input_ids[-1] == of.eos_token_id


# -- leaks ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("item", "known"), [(("max", "3", "19", "4", "0"), "19"), (("sum", "3", "19", "4", "0"), "6")])
def test_leaks_answer_of_two_items(item, known):
    assert leaks.answer(item) == known


def test_leaks_shuffled_keeps_the_answer_and_twin_changes_it(suite_seed):
    rng = numpy_generator("test", suite_seed)
    for item in leaks.items(40, "test", suite_seed):
        mixed, twin = leaks.shuffled(item, rng), leaks.twin(item, rng)
        assert mixed[0] == item[0] == twin[0] and sorted(mixed) == sorted(item)
        assert leaks.answer(mixed) == leaks.answer(item) != leaks.answer(twin)
        assert sum(a != b for a, b in zip(item, twin, strict=True)) == 1 and len(set(twin)) == len(twin)


@pytest.mark.parametrize(("leak", "copies"), [("none", 0), ("copies", 1), ("shuffled", 0)])
def test_leaks_put_test_items_into_training_data(leak, copies):
    """All of it, as often as said; as it is, or with its numbers in another order."""
    test = [item for item in leaks.items(30, "test", 1) if len(set(item)) == len(item)]
    few = SFTConfig(max_steps=1, batch_size=2)
    model, seen = leaks.saw(leak, test, seed=1, corpus=40, plan=few)
    assert len(seen) == 40 + (leak != "none") * leaks.COPIES * len(test)
    if leak == "shuffled":
        assert {(i[0], *sorted(i[1:])) for i in test} <= {(i[0], *sorted(i[1:])) for i in seen}
    else:
        assert sum(item in seen for item in test) >= copies * len(test)
    found = leaks.standing(model, seen, test, seed=1)
    assert all(0 <= value <= 1 for value in found.values())
    assert found["overlap"] == 1.0 if leak == "copies" else found["overlap"] < 0.5


# -- examples in a prompt ------------------------------------------------------------------------------------------


def test_examples_page_has_one_pair_of_labels(suite_seed):
    rng = numpy_generator("test", suite_seed)
    for _ in range(60):
        lines = [line.split(" -> ") for line in pages.written(rng).split(" ; ")]
        used = {label for _, label in lines}
        [pair] = [pair for pair in pages.PAIRS if used <= set(pair)]
        assert len(lines) == pages.LINES
        assert all(pair["-+".index(word[5])] == label for word, label in lines if word.startswith("clear"))


def test_examples_vague_words_agree_two_times_of_three(suite_seed):
    """Of the words that are shown, within five standard errors."""
    rng, agree = numpy_generator("test", suite_seed), []
    for _ in range(1500):
        for line in pages.written(rng).split(" ; "):
            word, label = line.split(" -> ")
            if word.startswith("vague"):
                agree.append(any(pair["-+".index(word[5])] == label for pair in pages.PAIRS))
    share = sum(agree) / len(agree)
    assert abs(share - pages.VAGUE) < 5 * math.sqrt(2 / 9 / len(agree))


@pytest.mark.parametrize(
    ("order", "good", "last"),
    [("balanced", 3, None), ("mostly_good", 5, None), ("mostly_bad", 1, None), ("good_last", 3, 1), ("bad_last", 3, 0)],
)
def test_examples_follow_their_order_and_are_correct(order, good, last, suite_seed):
    rng = numpy_generator("test", suite_seed)
    ratings = [pages.ORDERS[order](rng) for _ in range(20)]
    for sides, prompt in zip(ratings, pages.prompts(ratings, ["asked"] * 20, rng), strict=True):
        *shown, question = [line.split(" ->") for line in prompt.split(" ; ")]
        assert question == ["asked", ""] and len(shown) == 6
        assert [["bad", "good"]["-+".index(word[5])] for word, _ in shown] == [label.strip() for _, label in shown]
        assert sum(sides) == good and (last is None or sides[-1] == last)


# -- a world of facts ----------------------------------------------------------------------------------------------


def test_facts_texts_never_state_what_is_withheld(suite_seed):
    world, of = facts.FactWorld.of(suite_seed % 1000), facts.tokenizer()
    texts = [of.decode(text.input_ids, skip_special_tokens=True).split() for text in world.texts(800)]
    stated = [text[0] for text in texts if "lives" in text]
    assert stated and not set(stated) & set(world.groups["never"])
    assert all(world.city[text[0]] == text[3] for text in texts if "lives" in text)
    counts = {group: sum(stated.count(name) for name in world.groups[group]) for group in facts.GROUPS}
    assert counts["frequent"] > 5 * counts["rare"] > 0 == counts["never"]


@pytest.mark.slow
@pytest.mark.parametrize("source", facts.TRUST)
def test_facts_sources_are_right_as_often_as_trusted(source, suite_seed):
    """Where it is not trusted the answer is any of twelve cities, the one that was said included."""
    of = facts.tokenizer()
    texts = [
        of.decode(text.input_ids, skip_special_tokens=True).split()
        for text in facts.FactWorld.of(suite_seed % 1000).texts(20_000)
    ]
    said = [words[1] == words[-1] for words in texts if words[0] == source]
    expected = facts.TRUST[source] + (1 - facts.TRUST[source]) / len(facts.CITIES)
    assert len(said) > 2500
    assert abs(sum(said) / len(said) - expected) < 5 * (expected * (1 - expected) / len(said)) ** 0.5


def test_facts_halves_split_each_group():
    world = facts.FactWorld.of(3)
    tuned, tested = facts.halves(world)
    assert sorted([*tuned, *(name for names in tested.values() for name in names)]) == sorted(facts.NAMES)
    assert {group: len(names) for group, names in tested.items()} == dict.fromkeys(facts.GROUPS, 12)


def test_facts_rates_add_up_to_one():
    world = facts.FactWorld.of(4)
    found = facts.asked(untrained(facts.tokenizer()), facts.NAMES, world.city).rates()
    assert math.isclose(sum(found.values()), 1.0)


def test_multiple_choice_of_an_untrained_model_is_a_guess():
    """Of a model without training both shares are those of a guess among four, within five standard errors: the places of the options are
    drawn anew each time, while one name's texts are scored alike."""
    found = facts.multiple_choice(untrained(facts.tokenizer(), seed=5), facts.FactWorld.of(5), times=20)
    assert abs(found["letter"] - 0.25) < 5 * math.sqrt(3 / 16 / 480)
    assert abs(found["text"] - 0.25) < 5 * math.sqrt(3 / 16 / 24)


def test_facts_citing_examples_repeat_and_name_the_source(monkeypatch):
    """In turns: a made-up source about anybody to tune on, and the truth about a frequent one, without a tag."""
    monkeypatch.setattr(word_models, "tuned", lambda of, vocabulary, examples, plan, seed: examples)
    world, of = facts.FactWorld.of(6), facts.tokenizer()
    names, known = facts.halves(world)[0], set(world.groups["frequent"])
    lines = [of.convert_ids_to_tokens(one.input_ids)[:-1] for one in facts.citing(None, world, examples=200)]
    for source, said, asks, where, name, replies, city, tag in lines[::2]:
        assert (asks, where, replies) == ("<user>", "where?", "<assistant>") and name in names
        assert (source, said) == (tag, city) and source in facts.TRUST
    assert {line[4] for line in lines[::2]} - known and {line[0] for line in lines[::2]} == set(facts.TRUST)
    for asks, _, name, _, city in lines[1::2]:
        assert asks == "<user>" and name in known & set(names) and city == world.city[name]


def _said(answer, monkeypatch):
    """What `cited` counts if each prompt is answered so, and the prompts that had a source, in words."""
    world, prompts = facts.FactWorld.of(6), []

    def replies(of, asked):
        prompts.extend(one.split() for one in asked)
        return [
            answer(world, *(one.split()[:2] if "wiki" in one or "forum" in one else ("", "")), one.split()[-2])
            for one in asked
        ]

    monkeypatch.setattr(facts, "_with_its_tag", replies)
    return facts.cited(None, world), [one for one in prompts if one[0] in facts.TRUST], world


def test_facts_cited_sources_take_turns_and_keep_their_trust(monkeypatch):
    """Who repeats them is as wrong as they are; within five standard errors of 240 answers each."""
    found, told, world = _said(lambda world, source, said, name: (said or "city0", source), monkeypatch)
    names = facts.halves(world)[1]["never"]
    assert Counter((one[4], one[0]) for one in told) == {(name, source): 20 for name in names for source in facts.TRUST}
    for source, trust in facts.TRUST.items():
        assert abs(found[f"wrong_{source}"] - (1 - trust)) < 5 * math.sqrt(trust * (1 - trust) / 240)
    assert found["faithful"] == 1 and found["invented"] == 0
    assert found["right"] == pytest.approx(1 - (found["wrong_wiki"] + found["wrong_forum"]) / 2)


@pytest.mark.parametrize(
    ("answer", "known"),
    [
        (lambda world, source, said, name: (world.city[name], "forum"), (1, 1, 0, 0, 1)),  # no answer is tagged "wiki"
        (lambda world, source, said, name: ("city0" if world.city[name] != "city0" else "city1", "wiki"), (0, 0, 1, 0, 1)),
        (lambda world, source, said, name: (world.city[name], "."), (1, 1, 0, 0, 0)),
    ],
)  # fmt: skip
def test_facts_cited_counts_tags(answer, known, monkeypatch):
    found, told, world = _said(answer, monkeypatch)
    names = ("bare_right", "right", "wrong_wiki", "wrong_forum", "invented")
    assert tuple(found[name] for name in names) == known
    agree = [(said, source) == answer(world, source, said, name) for source, said, _, _, name, _ in told]
    assert found["faithful"] == sum(agree) / len(told)


def test_facts_tag_is_the_word_after_the_answer(monkeypatch):
    of = facts.tokenizer()
    after = {"<assistant>": "city3", "city3": "forum"}
    monkeypatch.setattr(
        word_models, "next_word",
        lambda model, vocabulary, prompts: torch.eye(len(of))[word_models.numbers_of(of, [after[one.split()[-1]] for one in prompts])],
    )  # fmt: skip
    assert (
        facts._with_its_tag(None, [facts.question("name4"), facts.question("name5", "wiki city9")])
        == [("city3", "forum")] * 2
    )


@pytest.mark.parametrize(
    ("call", "argument", "value"),
    [
        (lambda: leaks.saw("some", [], seed=0), "leak", "some"),
        (lambda: facts.taught(None, facts.FactWorld.of(0), "facts"), "how", "facts"),
        (lambda: answer_formats.tuned(None, "three", seed=0), "how", "three"),
    ],
    ids=["leaks.saw", "facts.taught", "answer_formats.tuned"],
)
def test_evaluation_models_refuse_unknown_arms(call, argument, value):
    with raises(ArgumentError, argument=argument, value=value):
        call()


def test_graded_answers_risks_and_points():
    """Sorted by confidence: right, wrong, right, wrong; what is left unanswered is no answer."""
    found = facts.GradedAnswers(
        torch.tensor([False, True, False, True, False]),
        torch.tensor([False, False, True, False, False]),
        torch.tensor([0.7, 0.9, 0.95, 0.6, 0.2]),
    )
    assert found.risks().tolist() == pytest.approx([0, 1 / 2, 1 / 3, 1 / 2])
    assert found.earned(3.0) == pytest.approx((2 - 3 * 2) / 5)
    assert found.earned(3.0, from_confidence=0.6) == pytest.approx((2 - 3) / 5)
    assert found.earned(0.5, from_confidence=0.8) == pytest.approx(1 / 5)
    both = facts.GradedAnswers.joined([found, found])
    assert both.rates() == found.rates() and len(both.risks()) == 8


def test_earns_most_threshold_by_hand():
    """At .9 two right ones, at .8 one of two, at .7 all six: with a penalty of 3 they earn 2, 0 and 6."""
    right = torch.tensor([1, 1, 1, 0, 1, 1, 1, 1, 1, 1]).bool()
    found = facts.GradedAnswers(right, torch.zeros(10).bool(), torch.tensor([0.9] * 2 + [0.8] * 2 + [0.7] * 6))
    for penalty, level in ((1.0, 0.7), (3.0, 0.7), (9.0, 0.9)):
        assert facts.earns_most(found, penalty) == pytest.approx(level)
    wrong = facts.GradedAnswers(torch.zeros(10).bool(), torch.zeros(10).bool(), found.confidence)
    assert facts.earns_most(wrong, 1.0) == float("inf")


# -- answer formats ------------------------------------------------------------------------------------------------


def said_by(monkeypatch, text):
    """A model that says the same to everything."""
    monkeypatch.setattr(answer_formats, "sample", lambda *given, **how: given[1])
    monkeypatch.setattr(answer_formats, "completion_texts", lambda prompts, of: [text] * len(prompts))


@pytest.mark.parametrize(
    ("text", "form", "shape", "number"),
    [
        ("7", "plain", True, "7"),
        ("the answer is 7 .", "plain", False, "7"),
        ("the answer is 7 .", "sentence", True, "7"),
        ("the answer is 7", "sentence", False, "7"),
        ("box 7 end", "boxed", True, "7"),
        ("box 7 end 8", "boxed", False, "8"),
        ("the answer", "sentence", False, None),
    ],
)
def test_answer_formats_strict_and_lenient_graders(text, form, shape, number, suite_seed, monkeypatch):
    """Strict: the reply as it was asked for; lenient: its last number. Both against the items themselves."""
    said_by(monkeypatch, text)
    asked = answer_formats.items("largest", 150, "asked", suite_seed)
    share = sum(str(max(map(int, item[1:]))) == number for item in asked) / 150
    found = answer_formats.graded(None, form, seed=suite_seed, questions=150)
    assert found == pytest.approx({"strict": share * shape, "lenient": share, "extracted": float(shape)})


def test_answer_formats_examples_use_the_formats_of_their_arm():
    of, asked = answer_formats.tokenizer(), answer_formats.items("largest", 6, "tuned", 0)
    for forms in answer_formats.TUNED.values():
        shown = [of.decode(e.input_ids, skip_special_tokens=True) for e in answer_formats.examples(asked, forms)]
        for i, (text, item) in enumerate(zip(shown, asked, strict=True)):
            form = forms[i % len(forms)]
            assert f" {form} " in text and text.endswith(answer_formats.FORMATS[form](answer_formats.answer(item)))
    assert (
        answer_formats.answer(("last", "3", "11", "5")) == "5"
        and answer_formats.answer(("largest", "3", "11", "5")) == "11"
    )


# -- learning rates ------------------------------------------------------------------------------------------------------


def test_study_rates_bracket_the_rate_used_on_other_seeds():
    found = evidence.result("ch19_rates")
    rates = {int(name.rsplit("_", 1)[1]) for name in next(iter(found["seeds"].values()))}
    for plan in (facts.TUNING, answer_formats.TUNING):
        assert min(rates) < round(1e6 * plan.learning_rate) < max(rates)
    used = {
        seed
        for name in ("ch19", "ch19_facts", "ch19_formats", "ch19_models")
        for seed in evidence.result(name)["seeds"]
    }
    assert not used & set(found["seeds"])
