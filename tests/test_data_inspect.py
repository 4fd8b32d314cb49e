"""`minirlhf data inspect`: what it counts, what it shows of every token, and what it says of rows that cannot be used."""

import json
import re
from pathlib import Path

import pytest
from facts import raises

from minirlhf.core.errors import UserError
from minirlhf.data import chat, formats, inspection
from minirlhf.data.loaders import Scan, load
from minirlhf.models.tokenizers import train_tokenizer, word_tokenizer
from minirlhf_cli import dispatch, main
from minirlhf_cli.commands.data import columns, visible

SAMPLES = Path(__file__).parent / "samples"
WORDS = word_tokenizer(["hi", "cats", "sleep", "much"])


def write(path, *rows):
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows), encoding="utf-8")
    return str(path)


@pytest.mark.parametrize("sample", sorted(SAMPLES.glob("*.jsonl")), ids=lambda path: path.stem)
def test_inspection_survey_reads_as_load(sample):
    found, records = inspection.survey(Scan(sample)), load(sample)
    assert found.sound
    assert (found.format, found.ignored) == (records.format, records.ignored)
    assert tuple(example for _, example in found.rows) == records.examples
    dropped = {(where, reason) for reason, wheres in found.dropped.items() for where in wheres}
    assert dropped == {(d.where, d.reason) for d in records.dropped}


def test_inspection_tokens_have_role_and_mask_of_chat_encode():
    messages = [{"role": "system", "content": "much"}, *chat.conversation("hi cats", "cats", "hi", "sleep much")]
    shown = inspection.tokens(WORDS, messages, context=4)
    assert [(t.text, t.role, t.trained) for t in shown] == [
        ("<system>", "system", False),
        ("much", "system", False),
        ("<user>", "user", False),
        ("hi", "user", False),
        ("cats", "user", False),
        ("<assistant>", "assistant", False),
        ("cats", "assistant", False),
        ("<eos>", "assistant", False),
        ("<user>", "user", False),
        ("hi", "user", False),
        ("<assistant>", "assistant", False),
        ("sleep", "assistant", True),
        ("much", "assistant", True),
        ("<eos>", "assistant", True),
    ]
    coded = chat.encode(WORDS, messages, first_turn=4)
    assert ([t.id for t in shown], [t.trained for t in shown]) == (coded.input_ids, coded.loss_mask)


@pytest.mark.parametrize("template", [chat.TURNS, chat.CHATML, chat.TRANSCRIPT], ids=["turns", "chatml", "transcript"])
def test_inspection_tokens_join_to_whole_text(template):
    tokenizer = train_tokenizer(["hello there, tell me more", "user assistant"], 300, chat_template=template)
    messages = chat.conversation("hello", "more there", "tell me", "no")
    shown = inspection.tokens(tokenizer, messages, 0)
    assert "".join(t.text for t in shown) == chat.render(tokenizer, messages)
    assert {t.role for t in shown} == {"user", "assistant"}
    said = "".join(t.text for t in shown if t.trained)
    assert "more there" in said and "no" in said and "tell me" not in said


def test_inspection_tokens_of_prompt_end_with_generation_prompt():
    shown = inspection.tokens(WORDS, chat.conversation("hi"), 1)
    assert [(t.text, t.role, t.trained) for t in shown][-1] == ("<assistant>", "assistant", False)
    assert [t.id for t in shown] == chat.encode_prompt(WORDS, chat.conversation("hi"))


def test_inspection_count_lengths_and_unknown_tokens(tmp_path):
    rows = [{"prompt": "hi", "completion": " ".join(["cats"] * n)} for n in (1, 2, 3, 30)] + [
        {"prompt": "hi", "completion": "dogs"}
    ]
    found = inspection.survey(Scan(write(tmp_path / "a.jsonl", *rows)))
    counted = inspection.count(WORDS, found.rows, context=10)
    [part] = counted.lengths
    assert part.counts.tolist() == [5, 6, 7, 34, 5]  # <user> hi <assistant> ... <eos>
    assert part.trained == 1 + 2 + 3 + 30 + 1 + 5
    assert [(where.rpartition(" ")[2], size) for where, size in counted.too_long] == [("4", 34)]
    assert counted.unknown == 1
    assert counted.histogram()[0].sum() == 5


def test_inspection_count_ranked_replies_by_rank():
    found = inspection.survey(Scan(SAMPLES / "ranking.jsonl"))
    names = [part.name for part in inspection.count(WORDS, found.rows, 512).lengths]
    assert names == ["rank 1", "rank 2", "rank 3"]


def test_inspection_places_joins_numbers_of_one_file():
    lines = [f"a.jsonl, line {n}" for n in range(1, 16)]
    assert inspection.places(lines[:1]) == "line 1"
    assert inspection.places(lines, shown=2) == "lines 1, 2 and 13 more"
    assert inspection.places(["a.jsonl, line 1", "b.jsonl, row 2"]) == "a.jsonl, line 1; b.jsonl, row 2"


def numbers(line):
    """The whole numbers of a line."""
    return [int(number) for number in re.findall(r"\b\d+\b", line)]


def beginning(text, head):
    """The one line that begins with this word."""
    [line] = [line for line in text.splitlines() if line.split()[:1] == [head]]
    return line


def test_data_inspect_report_holds_counts(capsys, tmp_path):
    page = tmp_path / "out.html"
    flags = ["--vocab-size", "300", "--html", str(page), "--context", "20"]
    assert main(["data", "inspect", str(SAMPLES / "hh_rlhf.jsonl"), *flags]) == 0
    out = capsys.readouterr().out
    assert "hh-rlhf" in out and "Comparison" in out and "\033[" not in out  # not a terminal
    assert numbers(beginning(out, "rows")) == [3, 1, 0]
    assert numbers(beginning(out, "dropped")) == [1, 3], "one row, line 3"
    assert [3, 20, 1, 2, 4] in [numbers(line) for line in out.splitlines()], "three rows longer than 20: 1, 2, 4"
    html = page.read_text(encoding="utf-8")
    assert 'class="assistant on"' in html and "http" not in html
    assert html.count('class="tokens"') == 6


def test_data_inspect_color_and_row(capsys):
    file = str(SAMPLES / "messages.jsonl")
    assert main(["data", "inspect", file, "--vocab-size", "300", "--color", "always", "--row", "2"]) == 0
    out = capsys.readouterr().out
    assert "messages.jsonl, line 2" in out and "\033[30;42m" in out and "\033[34m" in out
    for row, problem in ((3, "dropped"), (77, "missing")):
        with raises(UserError, argument="--row", value=row, problem=problem):
            dispatch(["data", "inspect", file, "--row", str(row)])


def test_data_inspect_names_all_broken_rows_and_returns_1(capsys, tmp_path):
    good = {"messages": chat.conversation("a", "b")}
    robot = {"messages": [{"role": "robot", "content": "c"}]}
    file = write(tmp_path / "a.jsonl", good, robot, {"messages": 3}, robot)
    Path(file).write_text(Path(file).read_text() + '{"messages": [', encoding="utf-8")
    assert main(["data", "inspect", file, "--vocab-size", "300"]) == 1
    out = capsys.readouterr().out
    assert numbers(beginning(out, "rows")) == [1, 0, 3]
    assert [2, 0, 2, 4] in [numbers(line) for line in out.splitlines() if "'robot'" in line], "twice, messages[0]"
    found = inspection.survey(Scan(file))
    assert [[where.line for where in wheres] for wheres in found.refused.values()] == [[2, 4], [3]]
    assert found.broken is not None and found.broken in out and f"{file}, line 5: " in found.broken


@pytest.mark.parametrize("content", ["", "{", '{"messages": 3}\n', '{"a": 1}\n'])
def test_data_inspect_nothing_to_read_is_one_line(content, capsys, tmp_path):
    (tmp_path / "a.jsonl").write_text(content)
    assert main(["data", "inspect", str(tmp_path / "a.jsonl")]) == 2
    assert len(capsys.readouterr().err.splitlines()) == 1


def test_data_inspect_bad_flags_are_errors():
    file = str(SAMPLES / "messages.jsonl")
    inspect = ["data", "inspect", file]
    with raises(UserError, argument="--tokenizer", problem="exclusive"):
        dispatch([*inspect, "--tokenizer", "a/b", "--model", "assistant-sft"])
    with raises(UserError, argument="vocab_size", value=3):
        dispatch([*inspect, "--vocab-size", "3"])
    with raises(UserError, argument="tokenizer", file=str(SAMPLES), problem="missing"):
        dispatch([*inspect, "--tokenizer", str(SAMPLES)])
    with raises(UserError, problem="usage"):
        dispatch(["data", "inspct", file])


def test_data_formats_lists_all(capsys):
    assert main(["data", "formats"]) == 0
    out = capsys.readouterr().out
    assert all(name in out for name in formats.FORMATS)


def test_data_inspect_visible_and_columns():
    assert visible("a b\n\tc\x07") == "a·b⏎⇥c�"
    assert columns("a你b") == 4
