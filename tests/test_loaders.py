"""Real files: every format in every container, what is dropped and why, and one clear error for whatever is wrong."""

import csv
import gzip
import json
from collections import Counter
from pathlib import Path

import datasets
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from minirlhf.core.errors import UserError
from minirlhf.data import formats, readers
from minirlhf.data.chat import conversation
from minirlhf.data.loaders import Scan, load
from minirlhf.data.records import (
    Comparison,
    Conversation,
    Identical,
    Judgement,
    Problem,
    Ranking,
    SteppedReply,
    Unusable,
)

SAMPLES = Path(__file__).parent / "samples"


def write(path, *rows):
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows), encoding="utf-8")
    return path


def said(role, content):
    return {"role": role, "content": content}


PAIR = {"prompt": "p", "chosen": "good", "rejected": "bad"}
HUMAN, ASSISTANT = "\n\nHuman: ", "\n\nAssistant:"


# -- formats ----------------------------------------------------------------------------------------------------------


def test_hh_rlhf():
    records = load(SAMPLES / "hh_rlhf.jsonl")
    egg, plant, colour = records.comparisons()
    assert records.format == "hh-rlhf"
    assert egg == Comparison(
        [said("user", "How do I boil an egg?")],
        [said("assistant", "Eight minutes in boiling water, then cold water.")],
        [said("assistant", "Eggs are eggs.")],
    )
    assert plant.prompt == conversation("Hi there", "Hello! What can I do for you?", "My plant looks sad.")
    # Two turns of the assistant in a row are one, so the whole of it is compared.
    assert colour.chosen == [said("assistant", "Blue.\n\nOr green, as you like.")]
    assert colour.rejected == [said("assistant", "Blue.")]
    [dropped] = records.dropped
    assert dropped.where.endswith("hh_rlhf.jsonl, line 3")
    assert dropped.reason == "the last reply of chosen is empty"
    assert "3 rows in format hh-rlhf; dropped 1 × 'the last reply of chosen is empty'" in str(records)


def test_transcripts_that_part_early(tmp_path):
    """The prompt ends where the two are last the same at a user turn; the rest, user turns and all, is compared."""
    longer = f"{HUMAN}a{ASSISTANT} b{HUMAN}c{ASSISTANT} d"
    shorter = f"{HUMAN}a{ASSISTANT} b"
    parting = f"{HUMAN}a{ASSISTANT} b{HUMAN}x{ASSISTANT} y"
    file = write(tmp_path / "a.jsonl", {"chosen": longer, "rejected": shorter}, {"chosen": longer, "rejected": parting})
    for row, tail in zip(load(file).comparisons(), (["b"], ["b", "x", "y"]), strict=True):
        assert row.prompt == [said("user", "a")]
        assert [m["content"] for m in row.chosen] == ["b", "c", "d"]
        assert [m["content"] for m in row.rejected] == tail


def test_transcripts_as_messages(tmp_path):
    shared = conversation("a", "b", "c")
    row = {"chosen": [*shared, said("assistant", "d")], "rejected": [*shared, said("assistant", "e")]}
    [pair] = load(write(tmp_path / "a.jsonl", row)).comparisons()
    assert pair == Comparison(shared, [said("assistant", "d")], [said("assistant", "e")])


def test_preference_plain_and_conversational():
    bees, sky = load(SAMPLES / "preference.jsonl").comparisons()
    assert bees.prompt == [said("user", "Where do bees live?")]
    assert bees.chosen == [said("assistant", "In a hive, many thousands together.")]
    assert (bees.margin, sky.margin) == (1.5, None)
    tea, owls = load(SAMPLES / "preference_conversational.jsonl").comparisons()
    assert [m["role"] for m in tea.prompt] == ["system", "user"]
    assert owls.prompt == [said("user", "Do owls sleep?")]
    assert owls.rejected == [said("assistant", "Never.")]  # the repeated prompt is taken off


def test_labels():
    records = load(SAMPLES / "kto.jsonl")
    assert records.format == "kto"
    assert records.judgements() == [
        Judgement([said("user", "How many legs has a spider?")], [said("assistant", "Eight.")], True),
        Judgement([said("user", "How many legs has a spider?")], [said("assistant", "It depends.")], False),
        Judgement([said("user", "Name a river.")], [said("assistant", "The Danube.")], True),
    ]
    # What is imitated is what was found good; every prompt is one to answer.
    assert [c.messages[-1]["content"] for c in records.conversations()] == ["Eight.", "The Danube."]
    assert len(records.problems()) == 3
    with pytest.raises(UserError, match="a chosen and a rejected reply"):
        records.comparisons()


def test_a_comparison_is_two_labels_and_a_list_of_two():
    records = load(SAMPLES / "preference.jsonl")
    [bees, _] = records.comparisons()
    assert records.judgements()[:2] == [
        Judgement(bees.prompt, bees.chosen, True),
        Judgement(bees.prompt, bees.rejected, False),
    ]
    assert records.rankings()[0].strict() == [bees.chosen, bees.rejected]


def test_rankings():
    records = load(SAMPLES / "ranking.jsonl")
    wet, snow, cats = records.rankings()
    assert [r[0]["content"] for r in wet.strict()] == ["It makes other things wet.", "Yes.", "Water is dry."]
    assert [r[0]["content"] for r in snow.strict()] == ["Ice crystals that fall.", "Frozen rain, roughly.", "Cold."]
    assert [len(tier) for tier in cats.tiers] == [2, 1]  # a tie
    assert (wet.scores, snow.scores, cats.scores) == (None, None, (3.5, 1.0))
    assert [(len(r.comparisons()), r.comparisons()[0].margin) for r in (wet, snow, cats)] == [
        (3, None),
        (3, None),
        (2, 2.5),
    ]
    assert len(records.comparisons()) == 8
    assert [d.reason for d in records.dropped] == ["all replies are tied"]
    assert records.conversations()[1].messages == conversation("What is snow?", "Ice crystals that fall.")
    four, nine = (Ranking([], [[[said("assistant", str(n))]] for n in range(k)]) for k in (4, 9))
    assert (len(four.comparisons()), len(nine.comparisons())) == (6, 36)


def test_ultrafeedback():
    records = load(SAMPLES / "ultrafeedback.jsonl")
    prime, spell = records.rankings()
    assert prime.scores == (4.75, 1.0)  # not the overall score of 10
    assert [[r[0]["content"] for r in tier] for tier in prime.tiers] == [["11", "Eleven (11)."], ["There is none."]]
    assert spell.scores == (9.0, 2.0)
    assert [(c.chosen[0]["content"], c.margin) for c in records.comparisons()] == [
        ("11", 3.75),
        ("Eleven (11).", 3.75),
        ("C-A-T", 7.0),
    ]
    assert [d.reason for d in records.dropped] == ["fewer than two replies"]


def test_ultrafeedback_binarized(tmp_path):
    """Replies repeat the prompt, with other white space around it; the scores give the margin."""
    chosen, rejected = (conversation("say a\n", text) for text in ("a", "b"))
    row = {"prompt": "say a\n\n", "chosen": chosen, "rejected": rejected, "score_chosen": 8.5, "score_rejected": 6.0}
    row |= {"messages": chosen, "prompt_id": "7"}
    records = load(write(tmp_path / "a.jsonl", row))
    [pair] = records.comparisons()
    assert (pair.chosen, pair.rejected, pair.margin) == ([said("assistant", "a")], [said("assistant", "b")], 2.5)
    assert records.ignored == ("messages", "prompt_id")


def test_scan_goes_on_after_a_broken_row(tmp_path):
    equal, blank = PAIR | {"chosen": "bad"}, PAIR | {"prompt": ""}
    scan = Scan(write(tmp_path / "a.jsonl", PAIR, {"prompt": 3}, equal, blank, PAIR))
    kinds = [(where.rsplit(" ")[-1], type(outcome)) for where, outcome in scan]
    assert kinds == [("1", Comparison), ("2", UserError), ("3", Identical), ("4", Unusable), ("5", Comparison)]
    assert scan.form is formats.FORMATS["preference"]


def test_messages():
    records = load(SAMPLES / "messages.jsonl")
    count, frog = records.conversations()
    assert [m["role"] for m in count.messages] == ["user", "assistant"] * 2
    assert frog.messages[-1] == said("assistant", "The frog.")  # the unanswered question is taken off
    assert [row.reason for row in records.dropped] == ["no assistant turn"]


def test_prompt_completion():
    france, four = load(SAMPLES / "prompt_completion.jsonl").conversations()
    assert france == Conversation(conversation("The capital of France is", " Paris."), context=1)
    assert four == Conversation(conversation("2 + 2?", "4"), context=1)


def test_gsm8k():
    records = load(SAMPLES / "gsm8k.jsonl")
    pens, mill = records.problems()
    assert (pens.reference, mill.reference) == ("30", "1,080")
    assert pens.solution == "She has 3*12 = 36 pens.\nShe keeps 36-6 = 30 pens.\n#### 30"
    assert records.conversations()[0].messages == [*pens.prompt, said("assistant", pens.solution)]


def test_problem_and_the_fields_it_does_not_use():
    records = load(SAMPLES / "problem.jsonl")
    assert [p.reference for p in records.problems()] == ["56", "5"]
    assert records.ignored == ("level",)
    assert "fields not used: level" in str(records)


def test_one_record_as_another():
    """Preferences serve as demonstrations and as prompts; prompts without replies serve as neither."""
    preferences = load(SAMPLES / "preference.jsonl")
    assert preferences.conversations()[1].messages == conversation(
        "Why is the sky blue?", "Air scatters blue light more than red."
    )
    assert preferences.problems()[0] == Problem([said("user", "Where do bees live?")])
    assert load(SAMPLES / "prompt_completion.jsonl").problems()[1] == Problem([said("user", "2 + 2?")], "4")
    with pytest.raises(UserError, match=r"messages\.jsonl: .* chosen and a rejected"):
        load(SAMPLES / "messages.jsonl").comparisons()
    with pytest.raises(UserError, match="reply to imitate"):
        load(SAMPLES / "problem.jsonl").conversations()


def test_the_first_format_that_fits_is_taken():
    for name, form in formats.FORMATS.items():
        assert formats.detect(form.fields).name == name
        assert formats.detect([*form.fields, *form.optional, "id"]).name == name
    assert formats.detect(["messages", "prompt", "chosen", "rejected"]).name == "preference"
    assert formats.detect(["prompt", "messages"]).name == "messages"


def test_format_by_name(tmp_path):
    file = write(tmp_path / "a.jsonl", {"prompt": "p", "completion": "c", "reference": "r"})
    assert load(file).format == "prompt-completion"
    assert load(file, format="problem").problems() == [Problem([said("user", "p")], "r")]
    with pytest.raises(UserError, match="did you mean 'problem'"):
        load(file, format="problems")


# -- containers -------------------------------------------------------------------------------------------------------


def test_csv():
    red, fruits = load(SAMPLES / "preference.csv").comparisons()
    assert red.chosen == [said("assistant", "A colour, like blue")]
    assert (red.margin, fruits.margin) == (0.5, None)
    assert fruits.prompt == [said("user", "Name two\nfruits")]


@pytest.mark.parametrize("sample", sorted(SAMPLES.glob("*.jsonl")), ids=lambda path: path.stem)
def test_every_container_gives_the_same(sample, tmp_path):
    expected = load(sample)
    rows = [json.loads(line) for line in sample.read_text(encoding="utf-8").splitlines()]
    texts = {
        "list.json": json.dumps(rows, indent=1),
        "lines.json": sample.read_text(encoding="utf-8"),
        "mark.jsonl": "\ufeff" + sample.read_text(encoding="utf-8"),
        "blank.jsonl": "\n" + sample.read_text(encoding="utf-8").replace("\n", "\r\n\n"),
    }
    for name, text in texts.items():
        (tmp_path / name).write_bytes(text.encode())
    with gzip.open(tmp_path / "zip.jsonl.gz", "wt", encoding="utf-8") as file:
        file.write(sample.read_text(encoding="utf-8"))
    uniform = len({json.dumps([type(v).__name__ for v in row.values()]) for row in rows}) == 1
    if uniform:  # a table has one type per column
        table = datasets.Dataset.from_list(rows)
        table.to_parquet(str(tmp_path / "table.parquet"))
        table.save_to_disk(str(tmp_path / "saved"))
    for path in sorted(tmp_path.iterdir()):
        got = load(path)
        assert (got.format, got.examples, len(got.dropped)) == (
            expected.format,
            expected.examples,
            len(expected.dropped),
        )
    assert len(list(tmp_path.iterdir())) == (7 if uniform else 5)


def test_folder_and_its_splits(tmp_path):
    for name, count in (("train-00000-of-00002", 2), ("train-00001-of-00002", 3), ("test", 4), ("retrained", 5)):
        write(tmp_path / f"{name}.jsonl", *({**PAIR, "prompt": f"{name} {n}"} for n in range(count)))
    (tmp_path / "README.md").write_text("not data")
    write(tmp_path / ".hidden.jsonl", {"x": 1})
    assert len(load(tmp_path)) == 5  # train, where there is one
    assert len(load(tmp_path, split="test")) == 4
    with pytest.raises(UserError, match=r"no file for the split 'dev'; found retrained\.jsonl"):
        load(tmp_path, split="dev")
    for file in tmp_path.glob("train-*"):
        file.unlink()
    assert len(load(tmp_path)) == 9  # else everything
    assert len(load(tmp_path, limit=5)) == 5


def test_folder_with_a_folder_per_split(tmp_path):
    for name in ("train", "test"):
        (tmp_path / name).mkdir()
        write(tmp_path / name / "0.jsonl", {**PAIR, "prompt": name})
    assert load(tmp_path, split="test").problems()[0].prompt == [said("user", "test")]
    assert load(tmp_path).problems()[0].prompt == [said("user", "train")]


def test_saved_splits(tmp_path):
    table = datasets.Dataset.from_list([PAIR])
    datasets.DatasetDict({"dev": table, "test": table}).save_to_disk(str(tmp_path))
    assert len(load(tmp_path, split="test")) == 1
    with pytest.raises(UserError, match="no split 'train'; it has dev, test"):
        load(tmp_path, split="train")
    (tmp_path / "dataset_dict.json").write_text("{")
    with pytest.raises(UserError, match="cannot be read"):
        load(tmp_path)


def test_hub_name(monkeypatch):
    asked = []

    def load_dataset(name, config):
        asked.append((name, config))
        return datasets.DatasetDict({"train": datasets.Dataset.from_list([PAIR, PAIR | {"chosen": "bad"}])})

    monkeypatch.setattr(datasets, "load_dataset", load_dataset)
    records = load("someone/pairs:small", drop_identical=True)
    assert asked == [("someone/pairs", "small")]
    assert len(records) == 1
    assert [(d.where, d.reason) for d in records.dropped] == [
        ("someone/pairs:small (train), row 2", "chosen and rejected are equal")
    ]
    load("pairs", drop_identical=True)
    assert asked[-1] == ("pairs", None)
    with pytest.raises(UserError, match="no split 'test'; it has train"):
        load("pairs", split="test")


def test_hub_that_does_not_answer(monkeypatch):
    def load_dataset(name, config):
        raise ConnectionError("no\n network")

    monkeypatch.setattr(datasets, "load_dataset", load_dataset)
    with pytest.raises(
        UserError, match=r"^someone/pairs: there is no such file .* hub it cannot be loaded: no network$"
    ):
        load("someone/pairs")


# -- held-out rows ----------------------------------------------------------------------------------------------------


def test_hold_out_is_by_prompt_and_stable(tmp_path):
    rows = [{**PAIR, "prompt": f"p{n % 200}", "chosen": f"c{n}"} for n in range(400)]
    records = load(write(tmp_path / "all.jsonl", *rows))
    train, held = records.hold_out(0.2)
    prompts = [{row.prompt[0]["content"] for row in side.comparisons()} for side in (train, held)]
    assert not prompts[0] & prompts[1]
    assert len(train) + len(held) == 400
    assert 20 <= len(prompts[1]) <= 60  # 200 · 0.2 ± 3.5 standard deviations
    assert records.hold_out(0.2) == (train, held)
    assert records.hold_out(0.2, seed=1)[1] != held
    half = load(write(tmp_path / "half.jsonl", *rows[:100])).hold_out(0.2)[1]
    assert {row.prompt[0]["content"] for row in half.comparisons()} == prompts[1] & {f"p{n}" for n in range(100)}


def test_hold_out_leaves_something_on_each_side(tmp_path):
    records = load(write(tmp_path / "a.jsonl", PAIR, {**PAIR, "prompt": "q"}))
    for fraction in (1e-9, 0.5, 1 - 1e-9):
        assert [len(side) for side in records.hold_out(fraction)] == [1, 1]
    with pytest.raises(UserError, match="nothing to hold out"):
        load(write(tmp_path / "b.jsonl", PAIR, {**PAIR, "chosen": "c"})).hold_out()
    with pytest.raises(UserError, match="between 0 and 1"):
        records.hold_out(1.0)


# -- bad input --------------------------------------------------------------------------------------------------------

BROKEN_ROWS = {
    "missing": ({"prompt": "p", "chosen": "c"}, r"line 2: field 'rejected' is missing; found prompt, chosen"),
    "null": ({**PAIR, "chosen": None}, r"line 2: field 'chosen' is missing; found prompt, rejected"),
    "number": ({**PAIR, "chosen": 3}, r"line 2: field 'chosen' is a number: '3'; expected text or a list of messages"),
    "object": ({**PAIR, "prompt": {"a": 1}}, r"line 2: field 'prompt' is an object.*; expected text or a list"),
    "margin": ({**PAIR, "margin": "much"}, r"line 2: field 'margin' is text: 'much'; expected a finite number"),
    "infinite": ({**PAIR, "margin": float("inf")}, r"line 2: field 'margin' is a number"),
    "truth": ({**PAIR, "margin": True}, r"line 2: field 'margin' is a truth value"),
    "role": (
        {**PAIR, "chosen": [said("robot", "x")]},
        r"line 2: chosen\[0\] has the role 'robot'; expected one of system, user, assistant",
    ),
    "content": (
        {**PAIR, "chosen": [{"role": "user"}]},
        r"line 2: chosen\[0\] is an object.*; expected a message with role",
    ),
    "typed content": ({**PAIR, "chosen": [said("assistant", 5)]}, r"line 2: field 'chosen\[0\].content' is a number"),
    "surrogate": ({**PAIR, "prompt": "\ud800"}, r"line 2: field 'prompt' holds half of a surrogate pair"),
    "mixed": (
        {"messages": conversation("a", "b")},
        r"line 2: field 'prompt' is missing; found messages, but the format is preference \(prompt, chosen, rejected\)",
    ),
    "no object": ([1, 2], r"line 2: expected an object with named fields, found '\[1, 2\]'"),
}


@pytest.mark.parametrize(("row", "message"), BROKEN_ROWS.values(), ids=BROKEN_ROWS)
def test_broken_row(row, message, tmp_path):
    file = write(tmp_path / "data.jsonl", PAIR, row)
    with pytest.raises(UserError, match=message) as caught:
        load(file)
    assert str(caught.value).startswith(f"{file}, line 2: ")
    assert "\n" not in str(caught.value)


LABELLED = {"prompt": "p", "completion": "c", "label": True}
RANKED = {"prompt": "p", "responses": ["a", "b"]}
RATED = {"instruction": "p", "completions": [{"response": t, "overall_score": n} for n, t in enumerate("ab")]}
BROKEN_REPLIES = {
    "label": (LABELLED | {"label": "good"}, r"field 'label' is text: 'good'; expected true or false"),
    "number as label": (LABELLED | {"label": 2}, r"field 'label' is a number: '2'; expected true or false"),
    "no list": (RANKED | {"responses": "a"}, r"field 'responses' is text: 'a'; expected a list of replies"),
    "odd reply": (
        RANKED | {"responses": ["a", 1]},
        r"field 'responses\[1\]' is a number: '1'; expected text or a list",
    ),
    "too few scores": (RANKED | {"scores": [1]}, r"field 'scores' has 1 numbers for 2 replies; expected as many"),
    "no score": (RANKED | {"scores": [1, None]}, r"field 'scores\[1\]' is missing \(null\); expected a finite number"),
    "both": (RANKED | {"scores": [1, 2], "ranks": [2, 1]}, r"fields 'scores' and 'ranks' are both there"),
    "equal": (
        RANKED | {"responses": ["a", "b", "a"]},
        r"two replies of different rank are equal; expected two different",
    ),
    "completion": (RATED | {"completions": ["a"]}, r"completions\[0\] is text: 'a'; expected an object with response"),
    "score": (
        RATED | {"completions": [{"response": "a", "overall_score": "ten"}]},
        r"field 'completions\[0\].overall_score' is text: 'ten'; expected a finite number",
    ),
}


@pytest.mark.parametrize(("row", "message"), BROKEN_REPLIES.values(), ids=BROKEN_REPLIES)
def test_broken_labels_and_lists(row, message, tmp_path):
    good = next(g for g in (LABELLED, RANKED, RATED) if set(g) <= set(row))
    file = write(tmp_path / "data.jsonl", good, row)
    with pytest.raises(UserError, match=rf"data\.jsonl, line 2: {message}"):
        load(file)


def test_labels_in_csv(tmp_path):
    (tmp_path / "a.csv").write_text("prompt,completion,label\np,c,True\np,d,0\n")
    assert [j.desirable for j in load(tmp_path / "a.csv").judgements()] == [True, False]


def test_only_bad_replies_leave_nothing_to_imitate(tmp_path):
    with pytest.raises(UserError, match="none of its rows, in format kto, has a reply to imitate"):
        load(write(tmp_path / "a.jsonl", LABELLED | {"label": False})).conversations()


USELESS_ROWS = {
    "blank prompt": (PAIR | {"prompt": " "}, "prompt is empty"),
    "blank reply": (PAIR | {"chosen": [said("assistant", "")]}, "last reply of chosen is empty"),
    "no messages": ({"messages": []}, "messages is empty"),
    "nobody answers": ({"messages": conversation("a")}, "no assistant turn"),
    "reply by the user": (PAIR | {"chosen": [said("user", "me")]}, "chosen has no assistant turn"),
    "prompt by the assistant": (PAIR | {"prompt": conversation("a", "b")}, "does not end with a user turn"),
    "nothing in common": ({"chosen": f"{HUMAN}a{ASSISTANT} b", "rejected": f"{HUMAN}c{ASSISTANT} b"}, "in common"),
    "ends with the user": (
        {"chosen": f"{HUMAN}a{ASSISTANT} b{HUMAN}c", "rejected": f"{HUMAN}a{ASSISTANT} d"},
        "chosen has",
    ),
    "no completion": ({"prompt": "p", "completion": [said("user", "q")]}, "no assistant turn"),
}


@pytest.mark.parametrize(("row", "reason"), USELESS_ROWS.values(), ids=USELESS_ROWS)
def test_useless_row_is_dropped_and_counted_and_alone_an_error(row, reason, tmp_path):
    with pytest.raises(UserError, match=rf"line 1: .*{reason}.*; none of the 1 rows"):
        load(write(tmp_path / "alone.jsonl", row))
    good = {
        frozenset(PAIR): PAIR,
        frozenset(["messages"]): {"messages": conversation("a", "b")},
        frozenset(["prompt", "completion"]): {"prompt": "p", "completion": "c"},
        frozenset(["chosen", "rejected"]): {"chosen": f"{HUMAN}a{ASSISTANT} b", "rejected": f"{HUMAN}a{ASSISTANT} c"},
    }[frozenset(row)]
    records = load(write(tmp_path / "some.jsonl", row, good, row))
    assert len(records) == 1
    assert Counter(d.reason for d in records.dropped).total() == 2
    assert all(reason in d.reason for d in records.dropped)


@pytest.mark.parametrize(
    "row",
    [
        PAIR | {"rejected": " good"},
        {"chosen": f"{HUMAN}a{ASSISTANT} b", "rejected": f"{HUMAN}a{ASSISTANT} b "},
    ],
    ids=["pair", "transcripts"],
)
def test_equal_replies_are_an_error_unless_asked_to_drop_them(row, tmp_path):
    good = PAIR if "prompt" in row else {"chosen": f"{HUMAN}a{ASSISTANT} b", "rejected": f"{HUMAN}a{ASSISTANT} c"}
    file = write(tmp_path / "data.jsonl", good, row)
    with pytest.raises(UserError, match="line 2: chosen and rejected are equal; expected two different replies"):
        load(file)
    records = load(file, drop_identical=True)
    assert (len(records), len(records.dropped)) == (1, 1)


def test_names_with_line_breaks_stay_on_one_line(tmp_path):
    with pytest.raises(UserError, match="unknown format: found the fields a b;") as caught:
        load(write(tmp_path / "a.jsonl", {"a\nb": 1}))
    assert "\n" not in str(caught.value)


def test_unknown_format_says_what_was_found_and_what_is_known(tmp_path):
    file = write(tmp_path / "a.jsonl", {"Question": "q", "solution": "s"})
    with pytest.raises(
        UserError, match=r"line 1: unknown format: found the fields Question, solution; known are"
    ) as caught:
        load(file)
    for form in formats.FORMATS.values():
        assert f"{form.name}: {', '.join(form.fields)}" in str(caught.value)


def test_no_transcript(tmp_path):
    with pytest.raises(UserError, match=r"field 'chosen' is no transcript: it should begin with '\\n\\nHuman:'"):
        load(write(tmp_path / "a.jsonl", {"chosen": "hello", "rejected": "bye"}))


@pytest.mark.parametrize("answer", ["no mark", "#### 3\nand more", "####"])
def test_gsm8k_without_an_answer(answer, tmp_path):
    with pytest.raises(UserError, match="line 1: field 'answer' has no '#### number' at its end"):
        load(write(tmp_path / "a.jsonl", {"question": "q", "answer": answer}))


BROKEN_FILES = {
    "empty.jsonl": (b"", "it holds no rows"),
    "blank.jsonl": (b"\n \n", "it holds no rows"),
    "empty.json": (b"", "it holds no rows"),
    "none.json": (b"[]", "it holds no rows"),
    "cut.jsonl": (b'{"prompt": "p"}\n{"prompt": "p', r"cut.jsonl, line 2: not valid JSON: Unterminated string"),
    "cut.json": (b'[{"prompt": "p"},\n{"prompt": "q"}', "cut.json, line 2: not valid JSON: Expecting ',' delimiter"),
    "two.jsonl": (b'{"prompt": "p"} {"prompt": "q"}', "line 1: not valid JSON: Extra data at column 17"),
    "twice.csv": (b"prompt,chosen,prompt\na,b,c\n", "line 1: the column 'prompt' is there twice"),
    "number.json": (b"5", "expected a list of rows or one row on each line"),
    "deep.jsonl": (b"[" * 100_000, "line 1: not usable JSON"),
    "long.jsonl": (b'{"a": ' + b"1" * 10_000 + b"}", "line 1: not usable JSON"),
    "latin.jsonl": ('{"prompt": "p"}\n{"prompt": "é"}'.encode("latin-1"), r"latin.jsonl, line 2: not UTF-8 text"),
    "latin.csv": ("prompt\nß".encode("latin-1"), r"latin.csv, line 2: not UTF-8 text"),
    "latin.jsonl.gz": (gzip.compress(b'{"prompt": "\xff"}'), r"latin.jsonl.gz, line 1: not UTF-8 text"),
    "torn.jsonl.gz": (gzip.compress(b'{"prompt": "\xff"}')[:-4], r"torn.jsonl.gz: not UTF-8 text"),
    "wide.jsonl": (
        '{"prompt": "p"}'.encode("utf-16"),
        r"line 1: not UTF-8 text.* it looks like UTF-16; save it as UTF-8",
    ),
    "binary.jsonl": (bytes(range(256)), "not UTF-8 text"),
    "header.csv": (b"prompt,chosen,rejected\n", "it holds no rows"),
    "empty.csv": (b"", "it holds no rows"),
    "ragged.csv": (b"prompt,chosen,rejected\na,b,c\na,b\n", "line 3: expected 3 columns"),
    "wide.csv": (b"prompt,chosen,rejected\na,b,c,d\n", "line 2: expected 3 columns"),
    "quote.csv": (b'prompt,reference\n"a,b\n', "not valid CSV"),
    "bad.parquet": (b"PAR1 nothing PAR1", "not a readable Parquet file"),
    "empty.parquet": (b"", "not a readable Parquet file"),
    "bad.jsonl.gz": (b"no gzip", "cannot be read"),
    "cut.jsonl.gz": (gzip.compress(b'{"prompt": "p"}' * 1000)[:40], "cannot be read"),
    "notes.txt": (b"hello", r"cannot read \.txt; known are \.jsonl, \.json, \.csv, \.parquet"),
    "noending": (b"hello", "cannot read a file without an ending"),
}


@pytest.mark.parametrize("name", BROKEN_FILES)
def test_broken_file(name, tmp_path):
    content, message = BROKEN_FILES[name]
    (tmp_path / name).write_bytes(content)
    with pytest.raises(UserError, match=message) as caught:
        load(tmp_path / name)
    assert name in str(caught.value)
    assert "\n" not in str(caught.value)


def test_huge_line(tmp_path, monkeypatch):
    """A file that is one endless line is refused before all of it is in memory; long rows are read."""
    monkeypatch.setattr(readers, "LONGEST_LINE", 1000)
    file = write(tmp_path / "a.jsonl", PAIR, PAIR | {"prompt": "p" * 900})
    assert len(load(file)) == 2
    with pytest.raises(
        UserError, match=r"a\.jsonl, line 2: longer than 1,000 characters; expected one row on each line"
    ):
        load(write(file, PAIR, PAIR | {"prompt": "p" * 1000}))


def test_missing_file_names_the_nearest(tmp_path):
    write(tmp_path / "preferences.jsonl", PAIR)
    with pytest.raises(UserError, match=r"no such file or folder; did you mean '.*preferences\.jsonl'"):
        load(tmp_path / "preference.jsonl")
    for source in ("nowhere.jsonl", "./nowhere", "/no/such/folder/at.all"):
        with pytest.raises(UserError, match=r"no such file or folder$"):
            load(source)
    with pytest.raises(UserError, match="neither a file or folder that exists nor a name on the hub"):
        load("what is this?")
    (tmp_path / "bare").mkdir()
    with pytest.raises(UserError, match="no file in it ends in"):
        load(tmp_path / "bare")
    with pytest.raises(UserError, match="limit 0"):
        load(tmp_path, limit=0)


# -- any rows and any bytes -------------------------------------------------------------------------------------------

some_text = st.sampled_from(
    ["", "a", " a ", "#### 1", "####", f"{HUMAN}a{ASSISTANT} b", f"{HUMAN}a{ASSISTANT}", "\ud800"]
)
junk = st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=8), st.just({"role": "user"}))
turns = st.builds(said, st.sampled_from(["user", "assistant", "system", "tool", None]), st.one_of(some_text, junk))
values = st.one_of(some_text, some_text, st.lists(st.one_of(turns, turns, junk), max_size=3), junk)
names = sorted({field for form in formats.FORMATS.values() for field in (*form.fields, *form.optional)})


@settings(max_examples=300, deadline=None)
@given(row=st.dictionaries(st.sampled_from(names), values, max_size=4))
def test_any_row_is_read_or_refused(row, tmp_path_factory):
    file = write(tmp_path_factory.getbasetemp() / "row.jsonl", row)
    try:
        records = load(file)
    except UserError:
        return
    [example] = records.examples
    assert type(example) in (Conversation, Comparison, Judgement, Ranking, SteppedReply, Problem)


@settings(max_examples=200, deadline=None)
@given(content=st.binary(max_size=60), name=st.sampled_from(["a.jsonl", "a.json", "a.csv", "a.parquet", "a.jsonl.gz"]))
def test_any_bytes_are_read_or_refused(content, name, tmp_path_factory):
    file = tmp_path_factory.getbasetemp() / name
    file.write_bytes(content)
    with pytest.raises(UserError):  # no 60 random bytes are data
        load(file)


def test_csv_written_by_a_spreadsheet(tmp_path):
    """Quotes, line breaks and commas inside a cell survive; an empty cell of an optional field is no value."""
    cells = ['He said "no", twice', "two\r\nlines", "", "1"]
    with open(tmp_path / "a.csv", "w", newline="", encoding="utf-8-sig") as file:
        writer = csv.writer(file)
        writer.writerow(["prompt", "reference"])
        writer.writerows([[cells[0], cells[2]], [cells[1], cells[3]]])
    first, second = load(tmp_path / "a.csv").problems()
    assert (first.prompt[0]["content"], first.reference) == (cells[0], None)
    assert (second.prompt[0]["content"], second.reference) == (cells[1], "1")
