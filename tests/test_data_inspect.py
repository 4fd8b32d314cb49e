"""`minirlhf data inspect`: what it counts, what it shows of every token, and what it says of rows that cannot be used."""

import json
from pathlib import Path

import pytest

from minirlhf.cli import main
from minirlhf.cli.data import columns, visible
from minirlhf.data import chat, formats, inspection
from minirlhf.data.loaders import Scan, load
from minirlhf.models.tokenizers import train_tokenizer, word_tokenizer

SAMPLES = Path(__file__).parent / "samples"
WORDS = word_tokenizer(["hi", "cats", "sleep", "much"])


def write(path, *rows):
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows), encoding="utf-8")
    return str(path)


@pytest.mark.parametrize("sample", sorted(SAMPLES.glob("*.jsonl")), ids=lambda path: path.stem)
def test_every_format_is_read_as_the_loader_reads_it(sample):
    found, records = inspection.survey(Scan(sample)), load(sample)
    assert found.sound
    assert (found.format, found.ignored) == (records.format, records.ignored)
    assert tuple(example for _, example in found.rows) == records.examples
    dropped = {(where, reason) for reason, wheres in found.dropped.items() for where in wheres}
    assert dropped == {(d.where, d.reason) for d in records.dropped}


def test_tokens_have_the_role_of_their_turn_and_the_mask_of_the_trainers():
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
def test_tokens_together_are_the_whole_text(template):
    tokenizer = train_tokenizer(["hello there, tell me more", "user assistant"], 300, chat_template=template)
    messages = chat.conversation("hello", "more there", "tell me", "no")
    shown = inspection.tokens(tokenizer, messages, 0)
    assert "".join(t.text for t in shown) == chat.render(tokenizer, messages)
    assert {t.role for t in shown} == {"user", "assistant"}
    said = "".join(t.text for t in shown if t.trained)
    assert "more there" in said and "no" in said and "tell me" not in said


def test_a_prompt_alone_ends_with_what_announces_the_assistant():
    shown = inspection.tokens(WORDS, chat.conversation("hi"), 1)
    assert [(t.text, t.role, t.trained) for t in shown][-1] == ("<assistant>", "assistant", False)
    assert [t.id for t in shown] == chat.encode_prompt(WORDS, chat.conversation("hi"))


def test_counts(tmp_path):
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


def test_ranked_replies_are_counted_by_rank():
    found = inspection.survey(Scan(SAMPLES / "ranking.jsonl"))
    names = [part.name for part in inspection.count(WORDS, found.rows, 512).lengths]
    assert names == ["rank 1", "rank 2", "rank 3"]


def test_places():
    lines = [f"a.jsonl, line {n}" for n in range(1, 16)]
    assert inspection.places(lines[:1]) == "line 1"
    assert inspection.places(lines, shown=2) == "lines 1, 2 and 13 more"
    assert inspection.places(["a.jsonl, line 1", "b.jsonl, row 2"]) == "a.jsonl, line 1; b.jsonl, row 2"


def test_the_report(capsys, tmp_path):
    page = tmp_path / "out.html"
    flags = ["--vocab-size", "300", "--html", str(page), "--context", "20"]
    assert main(["data", "inspect", str(SAMPLES / "hh_rlhf.jsonl"), *flags]) == 0
    out = capsys.readouterr().out
    assert "hh-rlhf, read as Comparison" in out and "3 used, 1 dropped, 0 refused" in out
    assert "1 × the last reply of chosen is empty (line 3)" in out
    assert "3 rows are longer than the context of 20 tokens (lines 1, 2, 4)" in out
    assert "\033[" not in out  # not a terminal
    html = page.read_text(encoding="utf-8")
    assert 'class="assistant on"' in html and "http" not in html
    assert html.count('class="tokens"') == 6


def test_colour_and_row(capsys):
    file = str(SAMPLES / "messages.jsonl")
    assert main(["data", "inspect", file, "--vocab-size", "300", "--color", "always", "--row", "2"]) == 0
    out = capsys.readouterr().out
    assert "messages.jsonl, line 2" in out and "\033[30;42m" in out and "\033[34m" in out
    assert main(["data", "inspect", file, "--row", "3"]) == 2
    assert "row 3: cannot be shown: no assistant turn" in capsys.readouterr().err
    assert main(["data", "inspect", file, "--row", "77"]) == 2
    assert "there is no row 77" in capsys.readouterr().err


def test_broken_rows_are_all_named_and_the_exit_status_says_so(capsys, tmp_path):
    good = {"messages": chat.conversation("a", "b")}
    robot = {"messages": [{"role": "robot", "content": "c"}]}
    file = write(tmp_path / "a.jsonl", good, robot, {"messages": 3}, robot)
    Path(file).write_text(Path(file).read_text() + '{"messages": [', encoding="utf-8")
    assert main(["data", "inspect", file, "--vocab-size", "300"]) == 1
    out = capsys.readouterr().out
    assert "1 used, 0 dropped, 3 refused" in out
    assert (
        "2 × messages[0] has the role 'robot'; expected one of system, user, assistant, tool, developer (lines 2, 4)"
        in out
    )
    assert "a.jsonl, line 5: not valid JSON" in out and "nothing after it was read" in out


@pytest.mark.parametrize("content", ["", "{", '{"messages": 3}\n', '{"a": 1}\n'])
def test_nothing_to_read_is_one_line(content, capsys, tmp_path):
    (tmp_path / "a.jsonl").write_text(content)
    assert main(["data", "inspect", str(tmp_path / "a.jsonl")]) == 2
    assert len(capsys.readouterr().err.splitlines()) == 1


def test_bad_flags(capsys):
    file = str(SAMPLES / "messages.jsonl")
    assert main(["data", "inspect", file, "--tokenizer", "a/b", "--model", "assistant-sft"]) == 2
    assert "do not go together" in capsys.readouterr().err
    assert main(["data", "inspect", file, "--vocab-size", "3"]) == 2
    assert main(["data", "inspct", file]) == 2
    assert main(["data", "inspect", file, "--tokenizer", str(SAMPLES)]) == 2
    assert "no tokenizer can be loaded" in capsys.readouterr().err


def test_formats_are_listed(capsys):
    assert main(["data", "formats"]) == 0
    out = capsys.readouterr().out
    assert all(name in out for name in formats.FORMATS)


def test_white_space_is_visible_and_wide_characters_count_twice():
    assert visible("a b\n\tc\x07") == "a·b⏎⇥c�"
    assert columns("a你b") == 4
