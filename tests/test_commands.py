"""Every command that a page or the README prints can be run as it stands: it parses, and a run knows its data and its folder."""

import re
from pathlib import Path

import pytest
from commands import complaint, printed

from minirlhf.core.errors import UserError
from minirlhf.core.provenance import PACKAGES
from minirlhf_cli import find_command

ROOT = Path(__file__).resolve().parents[1]
TEXTS = [ROOT / "README.md", *sorted((ROOT / "book").glob("*.md")), *sorted((ROOT / "book" / "slides").glob("*.md"))]


@pytest.mark.slow
def test_commands_of_pages_parse_as_printed():
    found = [(path.name, command) for path in TEXTS for command in printed(path.read_text(encoding="utf-8"))]
    assert len(found) > 100
    assert [command for _, command in found if command.endswith(" .")] == [], (
        "the point would be read as the sentence's"
    )
    wrong = {(name, command): why for name, command in found if (why := complaint(command)) is not None}
    assert wrong == {}, "complete it, or say `--flag` of `minirlhf command`"


def test_commands_of_makefile_and_code_exist():
    lines = re.findall(r"bin/(minirlhf [^\n]*)", (ROOT / "Makefile").read_text(encoding="utf-8"))
    wrong = {line: why for line in lines if (why := complaint(line.replace("$(ARGS)", ""))) is not None}
    for folder in (*PACKAGES, "tools", "examples"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            for command in re.findall(r"`(minirlhf [a-z][^`\n]*)`", path.read_text(encoding="utf-8")):
                try:
                    find_command(command.split()[1:])
                except UserError as problem:
                    wrong[f"{path.name}: {command}"] = str(problem)
    assert len(lines) >= 3 and wrong == {}


@pytest.mark.parametrize(
    ("command", "name"),
    [
        ("minirlhf train online --recipe dapo --epsilon-high 0.3", "--out"),
        ("minirlhf train online --recipe dapo --out runs/dapo", "--task"),
        ("minirlhf train online --recipe dappo --task shell_game --out runs/dapo", "dappo"),
        ("minirlhf evaluate judge --length-controlled", "BASELINE"),
        ("minirlhf class release --chapter", "--chapter"),
        ("minirlhf check 05 --wach", "--wach"),
        ("minirlhf chek 05", "chek"),
        ("minirlhf data inspekt", "inspekt"),
    ],
)
def test_commands_complaint_names_what_is_wrong_or_missing(command, name):
    assert name in (complaint(command) or "")


def test_commands_are_read_from_lines_and_blocks():
    text = "Say `minirlhf\nrecipes` or\n```shell\nls && minirlhf check \\\n  05 || echo no\n```\nand ``minirlhf no``."
    assert list(printed(text)) == ["minirlhf recipes", "minirlhf check 05"]
