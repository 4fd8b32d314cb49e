"""Lint, format and types, with the settings of pyproject.toml."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]


@pytest.mark.parametrize(
    "command",
    [
        pytest.param("ruff check --no-fix .", id="lint"),
        pytest.param("ruff format --check .", id="format"),
        pytest.param("mypy", id="types"),
    ],
)
def test_tool_finds_nothing(command):
    done = subprocess.run([sys.executable, "-m", *command.split()], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"


@pytest.mark.parametrize("package", ["core", "equations"])
def test_untyped_functions_are_refused_in(package, tmp_path):
    """Guards the strictness itself: an untyped function placed in these packages would be an error."""
    for folder in ("minirlhf", f"minirlhf/{package}"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "__init__.py").write_text("")
    (tmp_path / "minirlhf" / package / "planted.py").write_text("def f(x: list):\n    return x\n")
    command = [sys.executable, "-m", "mypy", "--config-file", str(ROOT / "pyproject.toml")]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 1, done.stderr
    assert "[no-untyped-def]" in done.stdout
    assert "[type-arg]" in done.stdout
