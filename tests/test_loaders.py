"""Loading data: every format in every container, which rows are dropped and why, and errors that name file, line and field."""

import csv
import gzip
import json
from pathlib import Path

import datasets
import pytest
from facts import raises
from hypothesis import given, settings
from hypothesis import strategies as st

from minirlhf.core.errors import UserError
from minirlhf.data import formats, readers
from minirlhf.data.chat import conversation
from minirlhf.data.loaders import Scan, load
from minirlhf.data.records import (
    Comparison,
    Conversation,
    IdenticalPairError,
    InvalidRecordError,
    Problem,
    Ranking,
    StepLabeledCompletion,
    UnpairedPreference,
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


def test_load_hh_rlhf_gives_comparisons():
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
    assert (dropped.where.file, dropped.where.line) == (str(SAMPLES / "hh_rlhf.jsonl"), 3)
    assert (dropped.argument, dropped.problem) == ("chosen", "empty")
    report = str(records)
    assert all(fact in report for fact in ("hh-rlhf", dropped.where, dropped.reason)) and {"3", "1"} <= set(
        report.split()
    )


def test_load_hh_rlhf_splits_prompt_at_last_common_user_turn(tmp_path):
    """The prompt ends where the two are last the same at a user turn; the rest, user turns and all, is compared."""
    longer = f"{HUMAN}a{ASSISTANT} b{HUMAN}c{ASSISTANT} d"
    shorter = f"{HUMAN}a{ASSISTANT} b"
    parting = f"{HUMAN}a{ASSISTANT} b{HUMAN}x{ASSISTANT} y"
    file = write(tmp_path / "a.jsonl", {"chosen": longer, "rejected": shorter}, {"chosen": longer, "rejected": parting})
    for row, tail in zip(load(file).comparisons(), (["b"], ["b", "x", "y"]), strict=True):
        assert row.prompt == [said("user", "a")]
        assert [m["content"] for m in row.chosen] == ["b", "c", "d"]
        assert [m["content"] for m in row.rejected] == tail


def test_load_hh_rlhf_reads_messages(tmp_path):
    shared = conversation("a", "b", "c")
    row = {"chosen": [*shared, said("assistant", "d")], "rejected": [*shared, said("assistant", "e")]}
    [pair] = load(write(tmp_path / "a.jsonl", row)).comparisons()
    assert pair == Comparison(shared, [said("assistant", "d")], [said("assistant", "e")])


def test_load_preference_reads_texts_and_messages():
    bees, sky = load(SAMPLES / "preference.jsonl").comparisons()
    assert bees.prompt == [said("user", "Where do bees live?")]
    assert bees.chosen == [said("assistant", "In a hive, many thousands together.")]
    assert (bees.margin, sky.margin) == (1.5, None)
    tea, owls = load(SAMPLES / "preference_conversational.jsonl").comparisons()
    assert [m["role"] for m in tea.prompt] == ["system", "user"]
    assert owls.prompt == [said("user", "Do owls sleep?")]
    assert owls.rejected == [said("assistant", "Never.")]  # the repeated prompt is taken off


def test_load_kto_gives_judgements():
    records = load(SAMPLES / "kto.jsonl")
    assert records.format == "kto"
    assert records.judgements() == [
        UnpairedPreference([said("user", "How many legs has a spider?")], [said("assistant", "Eight.")], True),
        UnpairedPreference([said("user", "How many legs has a spider?")], [said("assistant", "It depends.")], False),
        UnpairedPreference([said("user", "Name a river.")], [said("assistant", "The Danube.")], True),
    ]
    # What is imitated is what was found good; every prompt is one to answer.
    assert [c.messages[-1]["content"] for c in records.conversations()] == ["Eight.", "The Danube."]
    assert len(records.problems()) == 3
    with raises(UserError, value="kto", expected="Comparison"):
        records.comparisons()


def test_records_of_comparisons_convert_to_judgements_and_rankings():
    records = load(SAMPLES / "preference.jsonl")
    [bees, _] = records.comparisons()
    assert records.judgements()[:2] == [
        UnpairedPreference(bees.prompt, bees.chosen, True),
        UnpairedPreference(bees.prompt, bees.rejected, False),
    ]
    assert records.rankings()[0].strict() == [bees.chosen, bees.rejected]


def test_load_ranking_gives_tiers_and_pairs():
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
    assert [(d.argument, d.problem) for d in records.dropped] == [("responses", "tied")]
    assert records.conversations()[1].messages == conversation("What is snow?", "Ice crystals that fall.")
    four, nine = (Ranking([], [[[said("assistant", str(n))]] for n in range(k)]) for k in (4, 9))
    assert (len(four.comparisons()), len(nine.comparisons())) == (6, 36)


def test_load_ultrafeedback_ranks_by_fine_grained_score():
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
    assert [(d.argument, d.problem) for d in records.dropped] == [("responses", "too few")]


def test_load_ultrafeedback_binarized_takes_margin_of_scores(tmp_path):
    """Replies repeat the prompt, with other white space around it; the scores give the margin."""
    chosen, rejected = (conversation("say a\n", text) for text in ("a", "b"))
    row = {"prompt": "say a\n\n", "chosen": chosen, "rejected": rejected, "score_chosen": 8.5, "score_rejected": 6.0}
    row |= {"messages": chosen, "prompt_id": "7"}
    records = load(write(tmp_path / "a.jsonl", row))
    [pair] = records.comparisons()
    assert (pair.chosen, pair.rejected, pair.margin) == ([said("assistant", "a")], [said("assistant", "b")], 2.5)
    assert records.ignored == ("messages", "prompt_id")


def test_scan_continues_after_broken_row(tmp_path):
    equal, blank = PAIR | {"chosen": "bad"}, PAIR | {"prompt": ""}
    scan = Scan(write(tmp_path / "a.jsonl", PAIR, {"prompt": 3}, equal, blank, PAIR))
    kinds = [(where.line, type(outcome)) for where, outcome in scan]
    assert kinds == [(1, Comparison), (2, UserError), (3, IdenticalPairError), (4, InvalidRecordError), (5, Comparison)]
    assert scan.form is formats.FORMATS["preference"]


def test_load_messages_gives_conversations():
    records = load(SAMPLES / "messages.jsonl")
    count, frog = records.conversations()
    assert [m["role"] for m in count.messages] == ["user", "assistant"] * 2
    assert frog.messages[-1] == said("assistant", "The frog.")  # the unanswered question is taken off
    assert [(row.argument, row.problem) for row in records.dropped] == [("assistant", "missing")]


def test_load_prompt_completion_gives_conversations():
    france, four = load(SAMPLES / "prompt_completion.jsonl").conversations()
    assert france == Conversation(conversation("The capital of France is", " Paris."), context=1)
    assert four == Conversation(conversation("2 + 2?", "4"), context=1)


def test_load_gsm8k_separates_answer_and_solution():
    records = load(SAMPLES / "gsm8k.jsonl")
    pens, mill = records.problems()
    assert (pens.reference, mill.reference) == ("30", "1,080")
    assert pens.solution == "She has 3*12 = 36 pens.\nShe keeps 36-6 = 30 pens.\n#### 30"
    assert records.conversations()[0].messages == [*pens.prompt, said("assistant", pens.solution)]


def test_load_problem_lists_ignored_fields():
    records = load(SAMPLES / "problem.jsonl")
    assert [p.reference for p in records.problems()] == ["56", "5"]
    assert records.ignored == ("level",)
    assert "level" in str(records)


def test_records_convert_where_that_makes_sense():
    """Preferences serve as demonstrations and as prompts; prompts without replies serve as neither."""
    preferences = load(SAMPLES / "preference.jsonl")
    assert preferences.conversations()[1].messages == conversation(
        "Why is the sky blue?", "Air scatters blue light more than red."
    )
    assert preferences.problems()[0] == Problem([said("user", "Where do bees live?")])
    assert load(SAMPLES / "prompt_completion.jsonl").problems()[1] == Problem([said("user", "2 + 2?")], "4")
    with raises(UserError, expected="Comparison", file=str(SAMPLES / "messages.jsonl")):
        load(SAMPLES / "messages.jsonl").comparisons()
    with raises(UserError, expected="Conversation"):
        load(SAMPLES / "problem.jsonl").conversations()


def test_formats_detect_takes_first_that_fits():
    for name, form in formats.FORMATS.items():
        assert formats.detect(form.fields).name == name
        assert formats.detect([*form.fields, *form.optional, "id"]).name == name
    assert formats.detect(["messages", "prompt", "chosen", "rejected"]).name == "preference"
    assert formats.detect(["prompt", "messages"]).name == "messages"


def test_load_format_by_name_overrides_detection(tmp_path):
    file = write(tmp_path / "a.jsonl", {"prompt": "p", "completion": "c", "reference": "r"})
    assert load(file).format == "prompt-completion"
    assert load(file, format="problem").problems() == [Problem([said("user", "p")], "r")]
    with raises(UserError, argument="format", value="problems", expected="problem"):
        load(file, format="problems")


# -- containers -------------------------------------------------------------------------------------------------------


def test_load_csv_reads_quoted_cells():
    red, fruits = load(SAMPLES / "preference.csv").comparisons()
    assert red.chosen == [said("assistant", "A colour, like blue")]
    assert (red.margin, fruits.margin) == (0.5, None)
    assert fruits.prompt == [said("user", "Name two\nfruits")]


@pytest.mark.parametrize("sample", sorted(SAMPLES.glob("*.jsonl")), ids=lambda path: path.stem)
def test_load_gives_same_records_from_every_container(sample, tmp_path):
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


def test_load_table_leaves_out_what_only_other_objects_of_a_list_have(tmp_path):
    calls = [{"function": {"name": "f", "arguments": {key: "x"}}} for key in ("place", "city")]
    tools = [
        {"name": n, "parameters": {"type": "object", "properties": {n: {"type": "string"}}}} for n in ("place", "city")
    ]
    messages = [said("user", "q"), {"role": "assistant", "content": None, "tool_calls": calls}]
    table = datasets.Dataset.from_list([{"messages": messages, "tools": tools}])
    table.to_parquet(str(tmp_path / "table.parquet"))
    table.save_to_disk(str(tmp_path / "saved"))
    expected = load([{"messages": messages, "tools": tools}]).examples
    assert load(tmp_path / "table.parquet").examples == load(tmp_path / "saved").examples == expected


def test_load_folder_selects_split_by_file_name(tmp_path):
    for name, count in (("train-00000-of-00002", 2), ("train-00001-of-00002", 3), ("test", 4), ("retrained", 5)):
        write(tmp_path / f"{name}.jsonl", *({**PAIR, "prompt": f"{name} {n}"} for n in range(count)))
    (tmp_path / "README.md").write_text("not data")
    write(tmp_path / ".hidden.jsonl", {"x": 1})
    assert len(load(tmp_path)) == 5  # train, where there is one
    assert len(load(tmp_path, split="test")) == 4
    found = [f"{name}.jsonl" for name in ("retrained", "test", "train-00000-of-00002", "train-00001-of-00002")]
    with raises(UserError, argument="split", value="dev", expected=found):
        load(tmp_path, split="dev")
    with raises(UserError, argument="split", value="dev", file=str(tmp_path / "test.jsonl")):
        load(tmp_path / "test.jsonl", split="dev")
    for file in tmp_path.glob("train-*"):
        file.unlink()
    assert len(load(tmp_path)) == 9  # else everything
    assert len(load(tmp_path, limit=5)) == 5


def test_load_folder_selects_split_by_folder_name(tmp_path):
    for name in ("train", "test"):
        (tmp_path / name).mkdir()
        write(tmp_path / name / "0.jsonl", {**PAIR, "prompt": name})
    assert load(tmp_path, split="test").problems()[0].prompt == [said("user", "test")]
    assert load(tmp_path).problems()[0].prompt == [said("user", "train")]


def test_load_saved_dataset_selects_split(tmp_path):
    table = datasets.Dataset.from_list([PAIR])
    datasets.DatasetDict({"dev": table, "test": table}).save_to_disk(str(tmp_path))
    assert len(load(tmp_path, split="test")) == 1
    with raises(UserError, argument="split", value="train", expected=["dev", "test"]):
        load(tmp_path, split="train")
    (tmp_path / "dataset_dict.json").write_text("{")
    with raises(UserError, file=str(tmp_path), problem="unreadable"):
        load(tmp_path)


def test_load_hub_name_passes_configuration(monkeypatch):
    asked = []

    def load_dataset(name, config):
        asked.append((name, config))
        return datasets.DatasetDict({"train": datasets.Dataset.from_list([PAIR, PAIR | {"chosen": "bad"}])})

    monkeypatch.setattr(datasets, "load_dataset", load_dataset)
    records = load("someone/pairs:small", drop_identical=True)
    assert asked == [("someone/pairs", "small")]
    assert len(records) == 1
    assert [(d.where, d.argument, d.problem) for d in records.dropped] == [
        ("someone/pairs:small (train), row 2", "rejected", "duplicate")
    ]
    load("pairs", drop_identical=True)
    assert asked[-1] == ("pairs", None)
    with raises(UserError, argument="split", value="test", expected=["train"]):
        load("pairs", split="test")


def test_load_hub_failure_is_one_line(monkeypatch):
    def load_dataset(name, config):
        raise ConnectionError("no\n network")

    monkeypatch.setattr(datasets, "load_dataset", load_dataset)
    with raises(UserError, file="someone/pairs", problem="missing") as caught:
        load("someone/pairs")
    assert str(caught.value).endswith("no network")


# -- held-out rows ----------------------------------------------------------------------------------------------------


def test_records_hold_out_is_by_prompt_and_stable(tmp_path):
    rows = [{**PAIR, "prompt": f"p{n % 200}", "chosen": f"c{n}"} for n in range(400)]
    records = load(write(tmp_path / "all.jsonl", *rows))
    train, held = records.hold_out(0.2)
    prompts = [{row.prompt[0]["content"] for row in side.comparisons()} for side in (train, held)]
    assert not prompts[0] & prompts[1]
    assert (len(train), len(held)) == (320, 80)
    assert records.hold_out(0.2) == (train, held)
    assert records.hold_out(0.2, seed=1)[1] != held
    less = {row.prompt[0]["content"] for row in records.hold_out(0.1)[1].comparisons()}
    assert less < prompts[1], "the order of the prompts depends on the seed only"


def test_records_hold_out_leaves_rows_on_each_side(tmp_path):
    records = load(write(tmp_path / "a.jsonl", PAIR, {**PAIR, "prompt": "q"}))
    for fraction in (1e-9, 0.5, 1 - 1e-9):
        assert [len(side) for side in records.hold_out(fraction)] == [1, 1]
    for fraction in (-0.1, 1.0):
        with raises(UserError, argument="fraction", value=fraction):
            records.hold_out(fraction)


@pytest.mark.parametrize("fraction", [0.0, 0.1, 0.9])
def test_records_hold_out_of_one_prompt_or_none_trains_on_all(fraction, tmp_path):
    one = load(write(tmp_path / "b.jsonl", PAIR, {**PAIR, "chosen": "c"}))
    several = load(write(tmp_path / "c.jsonl", *({**PAIR, "prompt": f"p{n}"} for n in range(5))))
    for records in [one] if fraction else [one, several]:
        train, held = records.hold_out(fraction)
        assert (train.examples, held.examples) == (records.examples, ())


TALK = [("user", "hi"), ("assistant", "what is it?")]
#: What stands before question ``i``: the same for many rows, it must not decide on which side they are.
BEFORE = {
    "nothing": lambda i: [],
    "one system message": lambda i: [("system", "be kind")],
    "two system messages": lambda i: [("system", "be kind" if i < 36 else "be short")],
    "a greeting": lambda i: TALK,
    "system message and greeting": lambda i: [("system", f"be {i % 3}"), *TALK],
}


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("name", BEFORE)
def test_records_hold_out_of_conversations_keeps_share(name, seed):
    said = lambda turns: [{"role": role, "content": content} for role, content in turns]
    rows = [{"messages": said([*BEFORE[name](i), ("user", f"q {i // 2}"), ("assistant", "a")])} for i in range(40)]
    train, held = load(rows).hold_out(0.1, seed)
    questions = [{c.messages[-2]["content"] for c in side.conversations()} for side in (train, held)]
    assert (len(train), len(held)) == (36, 4) and not questions[0] & questions[1]


@pytest.mark.parametrize("seed", range(6))
def test_records_hold_out_keeps_share_within_a_group(seed):
    sizes = [36, 4, 9, 1, 1, 1, 8]
    rows = [{**PAIR, "prompt": f"p{k}", "chosen": f"c{i}"} for k, size in enumerate(sizes) for i in range(size)]
    for fraction in (0.1, 0.3, 0.6):
        train, held = load(rows).hold_out(fraction, seed)
        groups = {row.prompt[0]["content"] for row in held.comparisons()}
        left = [size for k, size in enumerate(sizes) if f"p{k}" not in groups]
        assert len(held) == sum(sizes) - sum(left) and len(held) + len(train) == 60
        # Of the groups that were left out none would bring the share closer.
        assert all(abs(len(held) + size - 60 * fraction) >= abs(len(held) - 60 * fraction) for size in left)


# -- bad input --------------------------------------------------------------------------------------------------------

LABELLED = {"prompt": "p", "completion": "c", "label": True}
RANKED = {"prompt": "p", "responses": ["a", "b"]}
RATED = {"instruction": "p", "completions": [{"response": t, "overall_score": n} for n, t in enumerate("ab")]}
STEPPED = {"prompt": "p", "completions": ["a", "b"], "labels": [1, 0]}
#: A row, and (argument, value, expected) of the error about it.
BROKEN_ROWS = {
    "missing": ({"prompt": "p", "chosen": "c"}, ("rejected", None, "preference")),
    "null": ({**PAIR, "chosen": None}, ("chosen", None, "preference")),
    "other format": ({"messages": conversation("a", "b")}, ("prompt", None, "preference")),
    "number": ({**PAIR, "chosen": 3}, ("chosen", 3, "messages")),
    "object": ({**PAIR, "prompt": {"a": 1}}, ("prompt", {"a": 1}, "messages")),
    "margin": ({**PAIR, "margin": "much"}, ("margin", "much", "number")),
    "infinite": ({**PAIR, "margin": float("inf")}, ("margin", float("inf"), "number")),
    "truth": ({**PAIR, "margin": True}, ("margin", True, "number")),
    "role": (
        {**PAIR, "chosen": [said("robot", "x")]},
        (
            "chosen[0]",
            "robot",
            ["system", "user", "assistant", "tool", "developer", "function", "environment", "ipython"],
        ),
    ),
    "content": ({**PAIR, "chosen": [{"role": "user"}]}, ("chosen[0]", {"role": "user"}, ["role", "content"])),
    "typed content": ({**PAIR, "chosen": [said("assistant", 5)]}, ("chosen[0].content", 5, "text")),
    "surrogate": ({**PAIR, "prompt": "\ud800"}, ("prompt", None, None)),
    "no object": ([1, 2], (None, None, "object")),
    "label": (LABELLED | {"label": "good"}, ("label", "good", "bool")),
    "number as label": (LABELLED | {"label": 2}, ("label", 2, "bool")),
    "no list": (RANKED | {"responses": "a"}, ("responses", "a", "list")),
    "odd reply": (RANKED | {"responses": ["a", 1]}, ("responses[1]", 1, "messages")),
    "too few scores": (RANKED | {"scores": [1]}, ("scores", 1, 2)),
    "no score": (RANKED | {"scores": [1, None]}, ("scores[1]", None, "number")),
    "both": (RANKED | {"scores": [1, 2], "ranks": [2, 1]}, ("ranks", None, "scores")),
    "equal": (RANKED | {"responses": ["a", "b", "a"]}, ("responses", None, None)),
    "completion": (RATED | {"completions": ["a"]}, ("completions[0]", "a", ["response", "score"])),
    "score": (
        RATED | {"completions": [{"response": "a", "overall_score": "ten"}]},
        ("completions[0].overall_score", "ten", "number"),
    ),
    "too few labels": (STEPPED | {"labels": [1]}, ("labels", 1, 2)),
    "label of a step": (STEPPED | {"labels": [1, 2]}, ("labels[1]", 2, "label")),
}


@pytest.mark.parametrize(("row", "facts"), BROKEN_ROWS.values(), ids=BROKEN_ROWS)
def test_load_broken_row_names_line_and_field(row, facts, tmp_path):
    good = next((g for g in (LABELLED, RANKED, RATED, STEPPED) if set(g) <= set(row)), PAIR)
    file = write(tmp_path / "data.jsonl", good, row)
    with raises(
        UserError, **dict(zip(("argument", "value", "expected"), facts, strict=True)), file=str(file), line=2
    ) as caught:
        load(file)
    assert str(caught.value).startswith(f"{file}, line 2: ")
    assert "\n" not in str(caught.value)


def test_load_kto_reads_labels_of_csv(tmp_path):
    (tmp_path / "a.csv").write_text("prompt,completion,label\np,c,True\np,d,0\n")
    assert [j.desirable for j in load(tmp_path / "a.csv").judgements()] == [True, False]


def test_records_conversations_of_bad_replies_only_is_error(tmp_path):
    with raises(UserError, value="kto", expected="Conversation", problem="empty"):
        load(write(tmp_path / "a.jsonl", LABELLED | {"label": False})).conversations()


#: A row, and (argument, problem) of why nothing is learned from it.
USELESS_ROWS = {
    "blank prompt": (PAIR | {"prompt": " "}, ("prompt", "empty")),
    "blank reply": (PAIR | {"chosen": [said("assistant", "")]}, ("chosen", "empty")),
    "no messages": ({"messages": []}, ("messages", "empty")),
    "nobody answers": ({"messages": conversation("a")}, ("assistant", "missing")),
    "empty last reply": ({"messages": conversation("a", " ")}, ("assistant", "empty")),
    "reply by the user": (PAIR | {"chosen": [said("user", "me")]}, ("chosen", "missing")),
    "prompt by the assistant": (PAIR | {"prompt": conversation("a", "b")}, ("prompt", "last turn")),
    "nothing in common": (
        {"chosen": f"{HUMAN}a{ASSISTANT} b", "rejected": f"{HUMAN}c{ASSISTANT} b"},
        ("prompt", "missing"),
    ),
    "ends with the user": (
        {"chosen": f"{HUMAN}a{ASSISTANT} b{HUMAN}c", "rejected": f"{HUMAN}a{ASSISTANT} d"},
        ("chosen", "missing"),
    ),
    "no completion": ({"prompt": "p", "completion": [said("user", "q")]}, ("assistant", "missing")),
}


@pytest.mark.parametrize(("row", "facts"), USELESS_ROWS.values(), ids=USELESS_ROWS)
def test_load_useless_row_is_dropped_and_alone_is_error(row, facts, tmp_path):
    argument, problem = facts
    with raises(UserError, argument=argument, value=1, problem=problem) as caught:
        load(write(tmp_path / "alone.jsonl", row))
    assert str(caught.value).startswith(f"{tmp_path / 'alone.jsonl'}, line 1: ")
    good = {
        frozenset(PAIR): PAIR,
        frozenset(["messages"]): {"messages": conversation("a", "b")},
        frozenset(["prompt", "completion"]): {"prompt": "p", "completion": "c"},
        frozenset(["chosen", "rejected"]): {"chosen": f"{HUMAN}a{ASSISTANT} b", "rejected": f"{HUMAN}a{ASSISTANT} c"},
    }[frozenset(row)]
    records = load(write(tmp_path / "some.jsonl", row, good, row))
    assert len(records) == 1
    assert [(d.where.line, d.argument, d.problem) for d in records.dropped] == [(1, *facts), (3, *facts)]


@pytest.mark.parametrize(
    "row",
    [
        PAIR | {"rejected": " good"},
        {"chosen": f"{HUMAN}a{ASSISTANT} b", "rejected": f"{HUMAN}a{ASSISTANT} b "},
    ],
    ids=["pair", "transcripts"],
)
def test_load_equal_replies_are_error_unless_drop_identical(row, tmp_path):
    good = PAIR if "prompt" in row else {"chosen": f"{HUMAN}a{ASSISTANT} b", "rejected": f"{HUMAN}a{ASSISTANT} c"}
    file = write(tmp_path / "data.jsonl", good, row)
    with raises(UserError, argument="rejected", line=2, problem="duplicate"):
        load(file)
    records = load(file, drop_identical=True)
    assert (len(records), len(records.dropped)) == (1, 1)


def test_formats_detect_of_unknown_fields_names_the_nearest(tmp_path):
    with raises(UserError, argument="format", value=["a\nb"], line=1) as caught:
        load(write(tmp_path / "a.jsonl", {"a\nb": 1}))
    assert "\n" not in str(caught.value)
    with raises(UserError, value=["Question", "solution"], expected={"Question": "question"}) as caught:
        load(write(tmp_path / "b.jsonl", {"Question": "q", "solution": "s"}))
    assert "worked-solution: problem, solution" in str(caught.value), "the nearest format"


@pytest.mark.parametrize(
    ("row", "argument", "expected"),
    [
        ({"chosen": "hello", "rejected": "bye"}, "chosen", "transcript"),
        *(({"question": "q", "answer": answer}, "answer", "####") for answer in ("#### 3\nand more", "####")),
    ],
    ids=["transcript", "text after", "nothing after"],
)
def test_load_text_of_wrong_form_names_field(row, argument, expected, tmp_path):
    with raises(UserError, argument=argument, expected=expected, line=1):
        load(write(tmp_path / "a.jsonl", row))


#: The content of a file, and the facts of the error about it.
EMPTY, UTF_8 = {"argument": "rows", "problem": "empty"}, {"expected": "UTF-8"}
BROKEN_FILES = {
    "empty.jsonl": (b"", EMPTY),
    "blank.jsonl": (b"\n \n", EMPTY),
    "empty.json": (b"", EMPTY),
    "none.json": (b"[]", EMPTY),
    "header.csv": (b"prompt,chosen,rejected\n", EMPTY),
    "empty.csv": (b"", EMPTY),
    "cut.jsonl": (b'{"prompt": "p"}\n{"prompt": "p', {"line": 2, "problem": "json"}),
    "cut.json": (b'[{"prompt": "p"},\n{"prompt": "q"}', {"line": 2, "problem": "json"}),
    "two.jsonl": (b'{"prompt": "p"} {"prompt": "q"}', {"line": 1, "value": 17, "problem": "json"}),
    "several.jsonl": (b'{\n"prompt": "p"}', {"line": 1, "expected": ".json", "problem": "json"}),
    "objects.json": (b'{"prompt": "p"}\n{"prompt": ', {"line": 2, "problem": "json"}),
    "list.jsonl": (b'[{"prompt": "p"}]', {"line": 1, "expected": ".json", "problem": "list"}),
    "twice.csv": (b"prompt,chosen,prompt\na,b,c\n", {"line": 1, "argument": "prompt", "problem": "duplicate"}),
    "twice.jsonl": (b'{"prompt": "p"}\n{"prompt": "p", "a": {"b": 1, "b": 2}}', {"line": 2, "problem": "json"}),
    "twice.json": (b'{"prompt": "p"}\n{"prompt": "p", "prompt": "q"}', {"line": 2, "problem": "json"}),
    "number.json": (b"5", {"value": 5, "expected": "list"}),
    "deep.jsonl": (b"[" * 100_000, {"line": 1, "value": None, "problem": "json"}),
    "long.jsonl": (b'{"a": ' + b"1" * 10_000 + b"}", {"line": 1, "value": None, "problem": "json"}),
    "latin.jsonl": ('{"prompt": "p"}\n{"prompt": "é"}'.encode("latin-1"), UTF_8 | {"line": 2}),
    "latin.csv": ("prompt\nß".encode("latin-1"), UTF_8 | {"line": 2}),
    "latin.jsonl.gz": (gzip.compress(b'{"prompt": "\xff"}'), UTF_8 | {"line": 1}),
    "torn.jsonl.gz": (gzip.compress(b'{"prompt": "\xff"}')[:-4], UTF_8 | {"line": None}),
    "wide.jsonl": ('{"prompt": "p"}'.encode("utf-16"), UTF_8 | {"line": 1, "value": "UTF-16"}),
    "binary.jsonl": (bytes(range(256)), UTF_8 | {"value": None}),
    "ragged.csv": (b"prompt,chosen,rejected\na,b,c\na,b\n", {"line": 3, "argument": "columns", "expected": 3}),
    "wide.csv": (b"prompt,chosen,rejected\na,b,c,d\n", {"line": 2, "argument": "columns", "expected": 3}),
    "quote.csv": (b'prompt,reference\n"a,b\n', {"problem": "csv"}),
    "bad.parquet": (b"PAR1 nothing PAR1", {"problem": "parquet"}),
    "empty.parquet": (b"", {"problem": "parquet"}),
    "bad.jsonl.gz": (b"no gzip", {"problem": "unreadable"}),
    "cut.jsonl.gz": (gzip.compress(b'{"prompt": "p"}' * 1000)[:40], {"problem": "unreadable"}),
    "notes.txt": (b"hello", {"value": ".txt", "expected": [".jsonl", ".json", ".csv", ".parquet"]}),
    "noending": (b"hello", {"value": "", "problem": "ending"}),
}


@pytest.mark.parametrize("name", BROKEN_FILES)
def test_load_broken_file_names_file_line_and_problem(name, tmp_path):
    content, facts = BROKEN_FILES[name]
    (tmp_path / name).write_bytes(content)
    with raises(UserError, file=str(tmp_path / name), **facts) as caught:
        load(tmp_path / name)
    assert name in str(caught.value)
    assert "\n" not in str(caught.value)


def test_load_refuses_line_longer_than_limit(tmp_path, monkeypatch):
    """A file that is one endless line is refused before all of it is in memory; long rows are read."""
    monkeypatch.setattr(readers, "LONGEST_LINE", 1000)
    file = write(tmp_path / "a.jsonl", PAIR, PAIR | {"prompt": "p" * 900})
    assert len(load(file)) == 2
    with raises(UserError, expected=1000, file=str(file), line=2, problem="length"):
        load(write(file, PAIR, PAIR | {"prompt": "p" * 1000}))


def test_load_missing_source_names_nearest(tmp_path):
    write(tmp_path / "preferences.jsonl", PAIR)
    with raises(UserError, expected=str(tmp_path / "preferences.jsonl"), problem="missing"):
        load(tmp_path / "preference.jsonl")
    for source in ("nowhere.jsonl", "./nowhere", "/no/such/folder/at.all", "what is this?"):
        with raises(UserError, file=source, expected=None, problem="missing"):
            load(source)
    (tmp_path / "bare").mkdir()
    with raises(UserError, file=str(tmp_path / "bare"), problem="empty"):
        load(tmp_path / "bare")
    with raises(UserError, argument="limit", value=0, expected=1):
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
def test_load_any_row_is_read_or_refused(row, tmp_path_factory):
    file = write(tmp_path_factory.getbasetemp() / "row.jsonl", row)
    try:
        records = load(file)
    except UserError:
        return
    [example] = records.examples
    assert type(example) in (Conversation, Comparison, UnpairedPreference, Ranking, StepLabeledCompletion, Problem)


@settings(max_examples=200, deadline=None)
@given(content=st.binary(max_size=60), name=st.sampled_from(["a.jsonl", "a.json", "a.csv", "a.parquet", "a.jsonl.gz"]))
def test_load_any_bytes_are_read_or_refused(content, name, tmp_path_factory):
    file = tmp_path_factory.getbasetemp() / name
    file.write_bytes(content)
    with pytest.raises(UserError):  # no 60 random bytes are data
        load(file)


def test_load_csv_of_spreadsheet_keeps_cells(tmp_path):
    """Quotes, line breaks and commas inside a cell survive; an empty cell of an optional field is no value."""
    cells = ['He said "no", twice' + " or more" * 20_000, "two\r\nlines", "", "1"]
    with open(tmp_path / "a.csv", "w", newline="", encoding="utf-8-sig") as file:
        writer = csv.writer(file)
        writer.writerow(["prompt", "reference"])
        writer.writerows([[cells[0], cells[2]], [cells[1], cells[3]]])
    first, second = load(tmp_path / "a.csv").problems()
    assert (first.prompt[0]["content"], first.reference) == (cells[0], None)
    assert (second.prompt[0]["content"], second.reference) == (cells[1], "1")
