"""Lint, format and types, with the settings of pyproject.toml: what `make lint` and `make types` run."""

import sys
from pathlib import Path

import pytest
from patience import finished

ROOT = Path(__file__).resolve().parents[1]
STRICT = ("core", "equations", "recipes", "trainers")


@pytest.mark.parametrize(
    ("command", "usually"),
    [
        pytest.param("ruff check --no-fix .", 1, id="lint"),
        pytest.param("ruff format --check .", 1, id="format"),
        pytest.param("mypy", 60, id="types", marks=pytest.mark.slow),  # 2 s once .mypy_cache is there
    ],
)
def test_ruff_and_mypy_find_nothing(command, usually):
    done = finished([sys.executable, "-m", *command.split()], cwd=ROOT, usually=usually)
    assert done.returncode == 0, f"{command}\n{done.stdout}"


@pytest.mark.release
@pytest.mark.slow
def test_mypy_refuses_untyped_functions(tmp_path):
    """Guards the strictness itself: an untyped function placed in these packages would be an error."""
    (tmp_path / "minirlhf").mkdir()
    (tmp_path / "minirlhf" / "__init__.py").write_text("")
    for package in STRICT:
        (tmp_path / "minirlhf" / package).mkdir()
        (tmp_path / "minirlhf" / package / "__init__.py").write_text("")
        (tmp_path / "minirlhf" / package / "planted.py").write_text("def f(x: list):\n    return x\n")
    command = [sys.executable, "-m", "mypy", "--config-file", str(ROOT / "pyproject.toml")]
    done = finished(command, cwd=tmp_path, usually=5)
    assert done.returncode == 1
    for package in STRICT:
        said = "".join(line for line in done.stdout.splitlines() if line.startswith(f"minirlhf/{package}/planted.py"))
        assert "[no-untyped-def]" in said and "[type-arg]" in said, done.stdout
