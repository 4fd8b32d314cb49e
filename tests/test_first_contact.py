"""The README's commands run, in order, in an empty folder, as a newcomer pastes them; trainings are cut to two steps."""

import ast
import re
import shlex
from pathlib import Path

import pytest
from facts import raises

from minirlhf.core.errors import UserError
from minirlhf_cli import dispatch
from minirlhf_cli.commands.train import TRAINERS

README = Path(__file__).resolve().parents[1] / "README.md"
BLOCKS = re.findall(r"```bash\n(.*?)```", README.read_text(encoding="utf-8"), re.S)
#: `check` ends with 1 where answers are still missing.
STATUS = {"minirlhf check 05": 1}


def commands():
    """Every line of every block without its comment; ``make`` is what runs the tests."""
    for block in BLOCKS:
        for line in block.splitlines():
            command = re.split(r"\s+#\s", line)[0].strip()
            if command and not command.startswith("make "):
                yield block, " ".join(command.split())


def test_first_contact_readme_has_commands_to_run():
    assert len({block for block, _ in commands()}) >= 4 and len(list(commands())) >= 15


@pytest.mark.slow
def test_first_contact_readme_commands_run_in_order_in_an_empty_folder(tmp_path, monkeypatch):
    folder, entered = tmp_path, BLOCKS[0]
    for block, command in commands():
        if block != entered:  # each block is pasted into the folder where the reader began
            folder, entered = tmp_path, block
        name, *given = shlex.split(command)
        if name == "cd":
            folder = folder / given[0]
            continue
        assert name == "minirlhf", command
        monkeypatch.chdir(folder)
        if given[0] == "train" and given[1] in TRAINERS:
            given += ["--max-steps", "2", "--batch-size", "16"]
        if given[0] == "explain":
            given[given.index("--step") + 1] = "1"
        assert dispatch(given) == STATUS.get(command, 0), command
    assert {p.name for p in tmp_path.iterdir()} >= {
        "mine",
        "runs",
        "big",
        "page.html",
        "spec.html",
        "curves.png",
        "my.py",
    }


def test_data_samples_overwrites_nothing(tmp_path):
    assert dispatch(["data", "samples", "--out", str(tmp_path / "new")]) == 0
    (tmp_path / "sums.jsonl").write_text("mine", encoding="utf-8")
    with raises(UserError, argument="--out", problem="exists"):
        dispatch(["data", "samples", "--out", str(tmp_path)])
    assert [p.name for p in tmp_path.iterdir() if p.is_file()] == ["sums.jsonl"]


def lines_of(path, names):
    """The number of lines of a file's top-level definitions of these names, or of the whole file for none."""
    tree = ast.parse((README.parent / path).read_text(encoding="utf-8"))
    if not names:
        return tree.body[-1].end_lineno
    lines = {}
    for node in tree.body:
        targets = node.targets if isinstance(node, ast.Assign) else [node]
        for name in (getattr(target, "id", getattr(target, "name", None)) for target in targets):
            lines[name] = node.end_lineno - node.lineno + 1
    return sum(lines[name] for name in names)  # a KeyError names what is not there


def test_first_contact_reading_has_six_stops_and_at_most_1200_lines():
    stops = (README.parent / "READING.md").read_text(encoding="utf-8").partition("## From here")[0]
    stops = re.split(r"(?m)^\*\*\d\. ", stops)[1:]
    places = [
        (path, re.findall(r"`(\w+)`", names))
        for stop in stops
        for path, names in re.findall(r"`([\w/]+\.py)`(:(?: `\w+`,?)+)?", stop.partition("\n\n")[0].replace("\n", " "))
    ]
    assert len(stops) == 6 and all(any(f"`{path}`" in stop for path, _ in places) for stop in stops)
    assert sum(lines_of(path, names) for path, names in places) <= 1200
