"""Judging two files: leans are what the logits say, both orders cancel a liking for a place, answers meet by their prompt."""

import json
import math
from dataclasses import dataclass

import pytest
import torch

from minirlhf.cli import main
from minirlhf.core.errors import UserError
from minirlhf.data import loaders, tasks
from minirlhf.data.chat import conversation, encode_prompt
from minirlhf.data.records import Comparison
from minirlhf.equations.ai_feedback import both_orders, letter_preference
from minirlhf.feedback.judge import ASK, Judge, question, require_ask, verdicts_of
from minirlhf.models import checkpoints
from minirlhf.models.tiny import tiny_model
from minirlhf.models.tokenizers import train_tokenizer, word_tokenizer
from minirlhf.stages import judging, pipeline, zoo
from minirlhf.stages.judge_files import Pair, compare, match
from minirlhf.stages.pipeline import RewardPlan, Trained
from minirlhf.trainers.reward import RewardConfig

WORLD = ("say", "ask", "cats", "dogs", "bees", "purr", "bark", "buzz")
WORDS = word_tokenizer((*WORLD, *judging.WORDS))
BYTES = train_tokenizer([ASK] * 3, 400)


def said(text):
    return [{"role": "assistant", "content": text}]


def pair(prompt, ours, theirs):
    return Pair(conversation(prompt), said(ours), said(theirs))


def asked(pairs):
    return [p.prompt for p in pairs], [p.ours for p in pairs], [p.theirs for p in pairs]


PAIRS = [
    pair("say cats", "cats purr", "cats bark"),
    pair("ask dogs", "dogs", "dogs bark purr buzz"),
    pair("say", "bees", "cats"),
]


# -- what is read ------------------------------------------------------------------------------------------------


def test_a_lean_is_the_difference_of_the_letters_logits():
    judge = Judge(tiny_model("nano", WORDS, seed=1), WORDS, ask=judging.ASK)
    letters = [WORDS(f"[[{x}]]", add_special_tokens=False)["input_ids"] for x in "AB"]
    assert judge.verdict_length == 1 == len(letters[0])
    for order, leans in zip((1, -1), judge.leans(*asked(PAIRS)), strict=True):
        for p, lean in zip(PAIRS, leans.tolist(), strict=True):
            replies = (p.ours, p.theirs)[::order]
            ids = encode_prompt(WORDS, question(p.prompt, *replies, ask=judging.ASK))
            with torch.no_grad():
                logits = judge.model(input_ids=torch.tensor([ids])).logits[0, -1].double()
            expected = letter_preference(logits, first=letters[0][0], second=letters[1][0])
            assert 1 / (1 + math.exp(-lean)) == pytest.approx(float(expected), abs=1e-5)


def test_a_verdict_of_several_tokens_has_the_probability_of_all_of_them():
    judge = Judge(tiny_model("nano", BYTES, seed=2), BYTES, batch_size=2)
    letters = [BYTES(f"[[{x}]]", add_special_tokens=False)["input_ids"] for x in "AB"]
    assert judge.verdict_length > 1
    given, _ = judge.leans(*asked(PAIRS))
    for p, lean in zip(PAIRS, given.tolist(), strict=True):
        start = encode_prompt(BYTES, question(p.prompt, p.ours, p.theirs))
        chances = []
        for letter in letters:
            total = 0.0
            for i, token in enumerate(letter):
                with torch.no_grad():
                    logits = judge.model(input_ids=torch.tensor([[*start, *letter[:i]]])).logits[0, -1]
                total += float(logits.double().log_softmax(-1)[token])
            chances.append(total)
        assert lean == pytest.approx(chances[0] - chances[1], abs=1e-4)


def test_the_batch_size_changes_nothing():
    model = tiny_model("nano", WORDS, seed=3)
    one, many = (Judge(model, WORDS, ask=judging.ASK, batch_size=n).leans(*asked(PAIRS)) for n in (1, 64))
    for a, b in zip(one, many, strict=True):
        torch.testing.assert_close(a, b, atol=1e-5, rtol=0)


def test_leans_name_the_reply_of_the_given_order():
    found = verdicts_of(torch.tensor([1.0, 1.0, -1.0, 0.0]), torch.tensor([-1.0, 1.0, 1.0, 0.0]))
    assert found.given == ("A", "A", "B", "C") and found.exchanged == ("A", "B", "B", "C")
    assert found.scores == [1.0, 0.5, 0.0, 0.5]


def test_a_judge_is_asked_as_it_was_taught():
    model = tiny_model("nano", WORDS)
    assert Judge.of(model, WORDS).ask == ASK
    model.config.judge_ask = judging.ASK
    assert Judge.of(model, WORDS).ask == judging.ASK
    assert Judge.of(model, WORDS, ask="{question} {first} {second}").ask == "{question} {first} {second}"


def test_a_tiny_judge_is_taught_both_orders_of_every_pair():
    compared = judging.compared(
        [type("P", (), {"prompt": "say cats", "chosen": "cats purr", "rejected": "cats bark"})()]
    )
    assert compared == [Comparison(conversation("say cats"), said("cats purr"), said("cats bark"))]


# -- what is made of it ------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class LikesLength(Judge):
    """A reply is worth a nat for every word; the first place is liked, too."""

    place: float = 0.0

    def leans(self, prompts, firsts, seconds):
        gap = torch.tensor(
            [len(a[0]["content"].split()) - len(b[0]["content"].split()) for a, b in zip(firsts, seconds, strict=True)]
        )
        return gap.double() + self.place, -gap.double() + self.place


def likes_length(place):
    return LikesLength(tiny_model("nano", WORDS), WORDS, ask=judging.ASK, place=place)


def test_both_orders_take_the_liking_for_a_place_out_and_say_how_large_it_is():
    found = compare(likes_length(1.5), PAIRS)  # gaps 0, −3, 0 words
    prefers, place = both_orders(*found.leans)
    assert prefers.tolist() == [0.0, -3.0, 0.0] and place.tolist() == [1.5] * 3
    numbers = {n.name: n for n in found.numbers()}
    assert numbers["liking for place 1, nats"].value == pytest.approx(1.5)
    assert numbers["win rate of OURS"].value == pytest.approx((0.5 + 0.0 + 0.5) / 3)
    assert numbers["same verdict both ways"].value == pytest.approx(1 / 3)
    assert (found.won, found.lost) == (0, 1) and found.chance == 1.0


def test_a_prompt_counts_once_however_many_answers_it_has():
    pairs = [pair("say cats", "cats purr", "cats")] * 3 + [pair("say dogs", "dogs", "dogs bark")]
    found = compare(likes_length(0.0), [Pair(p.prompt, list(p.ours), list(p.theirs)) for p in pairs])
    assert (found.won, found.lost) == (3, 1) and found.chance == 1.0, "of two prompts each side wins one"
    [rate, *_] = found.numbers()
    assert rate.name == "win rate of OURS" and rate.value == 0.5 and rate.low < 0.5 < rate.high


def test_equal_answers_are_ties_that_nobody_is_asked_about():
    found = compare(likes_length(0.0), [pair("say cats", "cats purr", "cats"), pair("say dogs", "dogs", "dogs")])
    assert len(found.pairs) == 1 and len(found.equal) == 1 and found.numbers()[0].value == 0.75
    with pytest.raises(UserError, match="all 1 pairs have two equal answers"):
        compare(likes_length(0.0), [pair("say dogs", "dogs", "dogs")])


def test_what_the_judge_cannot_read_is_named():
    with pytest.raises(UserError, match="does not know the word 'zebras'"):
        compare(likes_length(0.0), [pair("say cats", "cats", "zebras purr")])
    judge = likes_length(0.0)
    judge.model.config.max_position_embeddings = 12
    with pytest.raises(UserError, match="the judge reads 12 tokens; a question has"):
        compare(judge, [pair("say cats", "cats purr " * 4, "cats")])


# -- files -------------------------------------------------------------------------------------------------------


def write(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


def answers(path, *rows):
    return write(path, [{"messages": conversation(*row)} for row in rows])


def test_answers_meet_by_their_prompt_and_in_turn(tmp_path):
    ours = answers(tmp_path / "a.jsonl", ("p", "one"), ("q", "two"), ("p", "three"), ("only here", "four"))
    theirs = answers(tmp_path / "b.jsonl", ("q", "zwei"), ("p", "eins"), ("p", "drei"), ("p", "mehr"))
    found = match(loaders.load(ours), loaders.load(theirs))
    assert [(p.ours[0]["content"], p.theirs[0]["content"]) for p in found.pairs] == [
        ("one", "eins"), ("two", "zwei"), ("three", "drei"),
    ]  # fmt: skip
    assert found.alone == 2


def test_the_last_answer_of_a_talk_is_judged_and_what_came_before_belongs_to_the_prompt(tmp_path):
    ours = answers(tmp_path / "a.jsonl", ("hi", "hello", "p", "one"))
    theirs = answers(tmp_path / "b.jsonl", ("hi", "hello", "p", "eins"), ("p", "zwei"))
    [found] = match(loaders.load(ours), loaders.load(theirs)).pairs
    assert [m["content"] for m in found.prompt] == ["hi", "hello", "p"] and found.theirs == said("eins")


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
    return main(["judge", *names, "--judge", str(folder / "model"), "--device", "cpu", *more])


def test_the_command_judges_two_files(folder, tmp_path, capsys):
    out, numbers = tmp_path / "pairs.jsonl", tmp_path / "numbers.json"
    assert judge(folder, "--out", str(out), "--json", str(numbers)) == 0
    printed = capsys.readouterr().out
    assert "3 pairs; 95 % intervals over prompts" in printed and "equal answers 1" in printed
    rows = [json.loads(line) for line in out.read_text().splitlines()]
    assert [row["ours"] for row in rows] == ["cats purr", "bees"]
    for row in rows:  # the model that was saved, with the question in its config, says the same
        assert row["given"] == ("A" if row["lean_given"] > 0 else "B")
        assert row["exchanged"] == ("B" if row["lean_exchanged"] > 0 else "A")
    written = json.loads(numbers.read_text())
    scores = [row["score"] for row in rows]
    assert written["numbers"]["win rate of OURS"]["value"] == pytest.approx((sum(scores) + 0.5) / 3)
    assert written["pairs"] == {
        "won": scores.count(1.0), "lost": scores.count(0.0), "tied": scores.count(0.5), "equal": 1, "alone": 0,
    }  # fmt: skip
    assert written["measured on"]["question"] == judging.ASK


def test_files_exchanged_exchange_who_wins(folder, tmp_path):
    found = []
    for k, files in enumerate((("ours.jsonl", "theirs.jsonl"), ("theirs.jsonl", "ours.jsonl"))):
        assert judge(folder, "--json", str(tmp_path / f"{k}.json"), files=files) == 0
        found.append(json.loads((tmp_path / f"{k}.json").read_text())["numbers"])
    one, other = found
    assert one["win rate of OURS"]["value"] == pytest.approx(1 - other["win rate of OURS"]["value"])
    assert one["preference for OURS, nats"]["value"] == pytest.approx(
        -other["preference for OURS, nats"]["value"], abs=1e-5
    )
    assert one["liking for place 1, nats"]["value"] == pytest.approx(
        other["liking for place 1, nats"]["value"], abs=1e-5
    )


@pytest.mark.parametrize(
    ("more", "says"),
    [
        (("--batch-size", "0"), "--batch-size 0: expected at least 1"),
        (("--max-completion-length", "9"), "expected --written with it"),
        (("--ask", "nowhere.txt"), "nowhere.txt: cannot be read"),
        (("--judge", "assistant-reward"), "it gives scores, a language model is needed"),
    ],
)
def test_bad_input_is_one_line(folder, capsys, more, says):
    assert judge(folder, *more) == 2
    error = capsys.readouterr().err
    assert says in error and len(error.strip().splitlines()) == 1


def test_a_model_that_knows_no_verdicts_is_no_judge(folder, capsys):
    words = word_tokenizer((*WORLD, "first:", "second:", "better?"))
    model = tiny_model("nano", words)
    model.config.judge_ask = judging.ASK
    checkpoints.save(folder / "mute", model, words)
    for more, says in (
        ((), "does not know the words [[A]] and [[B]]"),
        (("--written",), "gave no [[A]], [[B]] or [[C]] on any of 2"),
    ):
        assert judge(folder, "--judge", str(folder / "mute"), *more) == 2
        assert says in capsys.readouterr().err


def test_bad_files_are_one_line(folder, tmp_path, capsys):
    answers(folder / "other.jsonl", ("ask cats", "cats"))
    write(folder / "problems.jsonl", [{"prompt": "say cats"}])
    for files, says in (
        (("ours.jsonl", "missing.jsonl"), "there is no such file"),
        (("ours.jsonl", "other.jsonl"), "have no prompt in common"),
        (("ours.jsonl", "problems.jsonl"), "a reply to imitate"),
        (("ours.jsonl", "ours.jsonl"), "all 3 pairs have two equal answers"),
    ):
        assert judge(folder, "--json", str(tmp_path / "none.json"), files=files) == 2
        error = capsys.readouterr().err
        assert says in error and len(error.strip().splitlines()) == 1 and not (tmp_path / "none.json").exists()


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("{question} {first}", "it has the places first, question; expected"),
        ("which?", r"it has the places \(none\)"),
        ("{question} {first} {second} {third}", "third"),
        ("{question} {first} {second", "a brace that is no place is written twice"),
    ],
)
def test_a_question_has_three_places(tmp_path, text, says):
    (tmp_path / "ask.txt").write_text(text)
    with pytest.raises(UserError, match=says):
        require_ask(tmp_path / "ask.txt")


def test_a_question_of_ones_own_is_asked(folder, tmp_path):
    (tmp_path / "ask.txt").write_text("say {question} first: {first} second: {second}")
    assert judge(folder, "--ask", str(tmp_path / "ask.txt"), "--json", str(tmp_path / "n.json")) == 0
    assert json.loads((tmp_path / "n.json").read_text())["measured on"]["question"].startswith("say {question}")


def test_the_tiny_judge_of_the_assistant_world_is_right_more_often_than_not():
    """About two of three pairs that it has not seen; its seed and theirs are fixed."""
    start, world = Trained(*zoo.load("assistant-sft", quiet=True)), tasks.get("assistant")
    _, held = pipeline.preferences(world, start, RewardPlan(8, 400, training=RewardConfig(seed=77)))
    gaps = torch.tensor([world.grade(p.prompt, p.chosen) - world.grade(p.prompt, p.rejected) for p in held])
    judge, pairs = Judge.of(*zoo.load("assistant-judge", quiet=True)), judging.compared(held)
    prefers, _ = both_orders(
        *judge.leans([c.prompt for c in pairs], [c.chosen for c in pairs], [c.rejected for c in pairs])
    )
    assert float((prefers * gaps > 0)[gaps != 0].double().mean()) > 0.58
