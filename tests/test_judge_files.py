"""Judging two files: leans are what the logits say, both orders cancel a liking for a place, answers meet by their prompt."""

import json
import math
from dataclasses import dataclass

import pytest
import torch
from facts import raises

from minirlhf.core.errors import UserError
from minirlhf.data import loaders, tasks
from minirlhf.data.chat import conversation, encode_prompt
from minirlhf.data.records import Comparison
from minirlhf.equations.ai_feedback import split_position_bias
from minirlhf.feedback.judge import ASK, Judge, question, require_ask, verdicts_of
from minirlhf.models import checkpoints
from minirlhf.models.tiny import tiny_model
from minirlhf.models.tokenizers import train_tokenizer, word_tokenizer
from minirlhf.stages import judging, pipeline, zoo
from minirlhf.stages.pipeline import RewardPlan, Trained
from minirlhf.trainers.reward import RewardConfig
from minirlhf_cli import dispatch
from minirlhf_cli.files.judge_files import AGREEMENT, PLACE, PREFERENCE, WIN_RATE, Pair, compare, match
from minirlhf_course.chapters.ch15_ai_feedback.equations import letter_preference

WORLD = ("say", "ask", "cats", "dogs", "bees", "purr", "bark", "buzz")
WORDS = word_tokenizer((*WORLD, *judging.WORDS))
BYTES = train_tokenizer([ASK] * 3, 400)


def said(text):
    return [{"role": "assistant", "content": text}]


def pair(prompt, ours, theirs):
    return Pair(conversation(prompt), said(ours), said(theirs))


def asked(pairs):
    return [p.prompt for p in pairs], [p.candidate for p in pairs], [p.baseline for p in pairs]


PAIRS = [
    pair("say cats", "cats purr", "cats bark"),
    pair("ask dogs", "dogs", "dogs bark purr buzz"),
    pair("say", "bees", "cats"),
]


# -- what is read ------------------------------------------------------------------------------------------------


def test_judge_lean_is_difference_of_letter_logits():
    judge = Judge(tiny_model("nano", WORDS, seed=1), WORDS, ask=judging.ASK)
    letters = [WORDS(f"[[{x}]]", add_special_tokens=False)["input_ids"] for x in "AB"]
    assert judge.verdict_length == 1 == len(letters[0])
    for order, leans in zip((1, -1), judge.verdict_log_odds(*asked(PAIRS)), strict=True):
        for p, lean in zip(PAIRS, leans.tolist(), strict=True):
            replies = (p.candidate, p.baseline)[::order]
            ids = encode_prompt(WORDS, question(p.prompt, *replies, ask=judging.ASK))
            with torch.no_grad():
                logits = judge.model(input_ids=torch.tensor([ids])).logits[0, -1].double()
            expected = letter_preference(logits, first=letters[0][0], second=letters[1][0])
            assert 1 / (1 + math.exp(-lean)) == pytest.approx(float(expected), abs=1e-5)


def test_judge_lean_of_long_verdict_sums_its_tokens():
    judge = Judge(tiny_model("nano", BYTES, seed=2), BYTES, batch_size=2)
    letters = [BYTES(f"[[{x}]]", add_special_tokens=False)["input_ids"] for x in "AB"]
    assert judge.verdict_length > 1
    given, _ = judge.verdict_log_odds(*asked(PAIRS))
    for p, lean in zip(PAIRS, given.tolist(), strict=True):
        start = encode_prompt(BYTES, question(p.prompt, p.candidate, p.baseline))
        chances = []
        for letter in letters:
            total = 0.0
            for i, token in enumerate(letter):
                with torch.no_grad():
                    logits = judge.model(input_ids=torch.tensor([[*start, *letter[:i]]])).logits[0, -1]
                total += float(logits.double().log_softmax(-1)[token])
            chances.append(total)
        assert lean == pytest.approx(chances[0] - chances[1], abs=1e-4)


def test_judge_leans_are_independent_of_batch_size():
    model = tiny_model("nano", WORDS, seed=3)
    one, many = (Judge(model, WORDS, ask=judging.ASK, batch_size=n).verdict_log_odds(*asked(PAIRS)) for n in (1, 64))
    for a, b in zip(one, many, strict=True):
        torch.testing.assert_close(a, b, atol=1e-5, rtol=0)


def test_verdicts_of_leans_name_reply_of_given_order():
    found = verdicts_of(torch.tensor([1.0, 1.0, -1.0, 0.0]), torch.tensor([-1.0, 1.0, 1.0, 0.0]))
    assert found.given == ("A", "A", "B", "C") and found.exchanged == ("A", "B", "B", "C")
    assert found.scores == [1.0, 0.5, 0.0, 0.5]


def test_judge_of_model_asks_as_it_was_taught():
    model = tiny_model("nano", WORDS)
    assert Judge.of(model, WORDS).ask == ASK
    model.config.judge_ask = judging.ASK
    assert Judge.of(model, WORDS).ask == judging.ASK
    assert Judge.of(model, WORDS, ask="{question} {first} {second}").ask == "{question} {first} {second}"


def test_judging_compared_keeps_order_of_preferences():
    compared = judging.judge_pairs(
        [type("P", (), {"prompt": "say cats", "chosen": "cats purr", "rejected": "cats bark"})()]
    )
    assert compared == [Comparison(conversation("say cats"), said("cats purr"), said("cats bark"))]


# -- what is made of it ------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class LikesLength(Judge):
    """A reply is worth a nat for every word; the first place is liked, too."""

    place: float = 0.0

    def verdict_log_odds(self, prompts, firsts, seconds):
        gap = torch.tensor(
            [len(a[0]["content"].split()) - len(b[0]["content"].split()) for a, b in zip(firsts, seconds, strict=True)]
        )
        return gap.double() + self.place, -gap.double() + self.place


def likes_length(place):
    return LikesLength(tiny_model("nano", WORDS), WORDS, ask=judging.ASK, place=place)


def test_judge_files_compare_removes_and_measures_place_preference():
    found = compare(likes_length(1.5), PAIRS)  # gaps 0, −3, 0 words
    prefers, place = split_position_bias(*found.log_odds)
    assert prefers.tolist() == [0.0, -3.0, 0.0] and place.tolist() == [1.5] * 3
    numbers = {n.name: n for n in found.numbers()}
    assert numbers[PLACE].value == pytest.approx(1.5)
    assert numbers[WIN_RATE].value == pytest.approx((0.5 + 0.0 + 0.5) / 3)
    assert numbers[AGREEMENT].value == pytest.approx(1 / 3)
    assert (found.won, found.lost) == (0, 1) and found.sign_test_p == 1.0


def test_judge_files_compare_counts_each_prompt_once():
    pairs = [pair("say cats", "cats purr", "cats")] * 3 + [pair("say dogs", "dogs", "dogs bark")]
    found = compare(likes_length(0.0), [Pair(p.prompt, list(p.candidate), list(p.baseline)) for p in pairs])
    assert (found.won, found.lost) == (3, 1) and found.sign_test_p == 1.0, "of two prompts each side wins one"
    [rate, *_] = found.numbers()
    assert rate.name == WIN_RATE and rate.value == 0.5 and rate.low < 0.5 < rate.high


def test_judge_files_compare_counts_equal_answers_as_ties():
    found = compare(likes_length(0.0), [pair("say cats", "cats purr", "cats"), pair("say dogs", "dogs", "dogs")])
    assert len(found.pairs) == 1 and len(found.equal) == 1 and found.numbers()[0].value == 0.75
    with raises(UserError, argument="answers", value=1, problem="duplicate"):
        compare(likes_length(0.0), [pair("say dogs", "dogs", "dogs")])


def test_judge_files_compare_unreadable_question_raises_user_error():
    with raises(UserError, argument="word", value="zebras"):
        compare(likes_length(0.0), [pair("say cats", "cats", "zebras purr")])
    judge = likes_length(0.0)
    judge.model.config.max_position_embeddings = 12
    with raises(UserError, argument="question", expected=12):
        compare(judge, [pair("say cats", "cats purr " * 4, "cats")])


# -- files -------------------------------------------------------------------------------------------------------


def write(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


def answers(path, *rows):
    return write(path, [{"messages": conversation(*row)} for row in rows])


def test_judge_files_match_answers_by_prompt_in_order(tmp_path):
    ours = answers(tmp_path / "a.jsonl", ("p", "one"), ("q", "two"), ("p", "three"), ("only here", "four"))
    theirs = answers(tmp_path / "b.jsonl", ("q", "zwei"), ("p", "eins"), ("p", "drei"), ("p", "mehr"))
    found = match(loaders.load(ours), loaders.load(theirs))
    assert [(p.candidate[0]["content"], p.baseline[0]["content"]) for p in found.pairs] == [
        ("one", "eins"), ("two", "zwei"), ("three", "drei"),
    ]  # fmt: skip
    assert found.alone == 2


def test_judge_files_match_takes_last_answer_of_conversation(tmp_path):
    ours = answers(tmp_path / "a.jsonl", ("hi", "hello", "p", "one"))
    theirs = answers(tmp_path / "b.jsonl", ("hi", "hello", "p", "eins"), ("p", "zwei"))
    [found] = match(loaders.load(ours), loaders.load(theirs)).pairs
    assert [m["content"] for m in found.prompt] == ["hi", "hello", "p"] and found.baseline == said("eins")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A judge that was taught nothing, and two files."""
    where = tmp_path_factory.mktemp("judge")
    model = tiny_model("nano", WORDS, seed=0)
    model.config.judge_ask = judging.ASK
    checkpoints.save(where / "model", model, WORDS)
    answers(where / "ours.jsonl", ("say cats", "cats purr"), ("say dogs", "dogs bark"), ("say bees", "bees"))
    answers(where / "theirs.jsonl", ("say cats", "cats"), ("say dogs", "dogs bark"), ("say bees", "bees buzz purr"))
    return where


def judge(folder, *more, files=("ours.jsonl", "theirs.jsonl")):
    names = [str(folder / name) for name in files]
    return dispatch(["evaluate", "judge", *names, "--judge", str(folder / "model"), "--device", "cpu", *more])


def test_judge_command_writes_verdicts_and_numbers(folder, tmp_path):
    out, numbers = tmp_path / "pairs.jsonl", tmp_path / "numbers.json"
    assert judge(folder, "--out", str(out), "--json", str(numbers)) == 0
    rows = [json.loads(line) for line in out.read_text().splitlines()]
    assert [row["ours"] for row in rows] == ["cats purr", "bees"]
    for row in rows:  # the model that was saved, with the question in its config, says the same
        assert row["given"] == ("A" if row["lean_given"] > 0 else "B")
        assert row["exchanged"] == ("B" if row["lean_exchanged"] > 0 else "A")
    written = json.loads(numbers.read_text())
    scores = [row["score"] for row in rows]
    assert written["numbers"][WIN_RATE]["value"] == pytest.approx((sum(scores) + 0.5) / 3)
    assert written["pairs"] == {
        "won": scores.count(1.0), "lost": scores.count(0.0), "tied": scores.count(0.5), "equal": 1, "alone": 0,
    }  # fmt: skip
    assert written["measured on"]["question"] == judging.ASK


def test_judge_command_exchanged_files_exchange_win_rate(folder, tmp_path):
    found = []
    for k, files in enumerate((("ours.jsonl", "theirs.jsonl"), ("theirs.jsonl", "ours.jsonl"))):
        assert judge(folder, "--json", str(tmp_path / f"{k}.json"), files=files) == 0
        found.append(json.loads((tmp_path / f"{k}.json").read_text())["numbers"])
    one, other = found
    assert one[WIN_RATE]["value"] == pytest.approx(1 - other[WIN_RATE]["value"])
    for name, sign in ((PREFERENCE, -1), (PLACE, 1)):
        assert one[name]["value"] == pytest.approx(sign * other[name]["value"], abs=1e-5)


@pytest.mark.parametrize(
    ("more", "facts"),
    [
        (("--batch-size", "0"), {"argument": "--batch-size", "value": 0, "expected": 1}),
        (("--max-completion-length", "9"), {"argument": "--max-completion-length", "expected": "--generate-verdict"}),
        (("--ask", "nowhere.txt"), {"problem": "unreadable", "file": "nowhere.txt"}),
        (("--judge", "assistant-reward"), {"argument": "model", "value": "assistant-reward"}),
    ],
)
def test_judge_command_bad_input_raises_user_error(folder, more, facts):
    with raises(UserError, **facts):
        judge(folder, *more)


def test_judge_command_model_without_verdicts_raises_user_error(folder):
    words = word_tokenizer((*WORLD, "first:", "second:", "better?"))
    model = tiny_model("nano", words)
    model.config.judge_ask = judging.ASK
    checkpoints.save(folder / "mute", model, words)
    for more, facts in (
        ((), {"argument": "--judge", "expected": ("[[A]]", "[[B]]")}),
        (("--generate-verdict",), {"argument": "verdicts", "value": 2, "problem": "missing"}),
    ):
        with raises(UserError, **facts):
            judge(folder, "--judge", str(folder / "mute"), *more)


def test_judge_command_bad_files_raise_user_error_and_write_nothing(folder, tmp_path):
    answers(folder / "other.jsonl", ("ask cats", "cats"))
    write(folder / "problems.jsonl", [{"prompt": "say cats"}])
    for files, facts in (
        (("ours.jsonl", "missing.jsonl"), {"file": str(folder / "missing.jsonl")}),
        (("ours.jsonl", "other.jsonl"), {"argument": "prompt", "problem": "mismatch"}),
        (("ours.jsonl", "problems.jsonl"), {"argument": "format", "value": "problem"}),
        (("ours.jsonl", "ours.jsonl"), {"argument": "answers", "value": 3, "problem": "duplicate"}),
    ):
        with raises(UserError, **facts):
            judge(folder, "--json", str(tmp_path / "none.json"), files=files)
        assert not (tmp_path / "none.json").exists()


@pytest.mark.parametrize(
    ("text", "facts"),
    [
        ("{question} {first}", {"argument": "places", "value": ["first", "question"]}),
        ("which?", {"argument": "places", "value": []}),
        ("{question} {first} {second} {third}", {"argument": "places"}),
        ("{question} {first} {second", {"problem": "brace"}),
    ],
)
def test_require_ask_other_places_raise_user_error(tmp_path, text, facts):
    (tmp_path / "ask.txt").write_text(text)
    with raises(UserError, file=str(tmp_path / "ask.txt"), **facts):
        require_ask(tmp_path / "ask.txt")


def test_judge_command_ask_file_is_used(folder, tmp_path):
    (tmp_path / "ask.txt").write_text("say {question} first: {first} second: {second}")
    assert judge(folder, "--ask", str(tmp_path / "ask.txt"), "--json", str(tmp_path / "n.json")) == 0
    assert json.loads((tmp_path / "n.json").read_text())["measured on"]["question"].startswith("say {question}")


@pytest.mark.slow
def test_judge_of_zoo_agrees_with_gold_reward():
    """About two of three pairs that it has not seen; its seed and theirs are fixed."""
    start, world = Trained(*zoo.load("assistant-sft", quiet=True)), tasks.get("assistant")
    _, held = pipeline.preferences(world, start, RewardPlan(8, 400, training=RewardConfig(seed=77)))
    gaps = torch.tensor([world.grade(p.prompt, p.chosen) - world.grade(p.prompt, p.rejected) for p in held])
    judge, pairs = Judge.of(*zoo.load("assistant-judge", quiet=True)), judging.judge_pairs(held)
    prefers, _ = split_position_bias(
        *judge.verdict_log_odds([c.prompt for c in pairs], [c.chosen for c in pairs], [c.rejected for c in pairs])
    )
    assert float((prefers * gaps > 0)[gaps != 0].double().mean()) > 0.58
