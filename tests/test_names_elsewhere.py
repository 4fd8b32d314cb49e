"""The options and programs of OpenRLHF, TRL and verl that the tables "Names elsewhere" tell are those of the versions the book speaks of."""

import importlib.util
import json
import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
KNOWN = json.loads((ROOT / "tests/samples/engine_options.json").read_text(encoding="utf-8"))
PROGRAMS = {engine: {name for name in KNOWN[engine] if name.startswith(engine)} for engine in ("verl", "openrlhf")}
OPTIONS = {engine: set().union(*(KNOWN[engine][name] for name in PROGRAMS[engine])) for engine in PROGRAMS}

#: Page and name: why it is not on the list.
ALLOWED = {
    ("11", "verl.trainer.main_generation_server"): "a program of verl 0.9.1 whose options are those of main_ppo",
}


def told(text: str) -> Iterator[tuple[str, str]]:
    """Engine and name of all in a page's table that looks like an option or a program: ``--a.b``, ``a.b``, ``a=b``, ``a_b.c``."""
    section = text.partition("\n## Names elsewhere\n")[2].partition("\n## ")[0]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in section.splitlines() if line[:1] == "|"]
    for column, title in enumerate(rows[0] if rows else []):
        engine = title.split(" ")[0].lower()
        for row in rows[2:] if engine in KNOWN else []:
            for name in re.findall(r"`([^`]+)`", row[column]):
                if re.search(r"^--|^\w+(\.\w+)*=|\w\.\w", name):
                    yield engine, name


def is_known(engine: str, name: str) -> bool:
    """Whether it is a program, or the end of an option's name, as the pages leave ``actor_rollout_ref.`` out."""
    option = re.split(r"[= ]", name.removeprefix("--"))[0]
    if engine == "openrlhf":
        return option in (OPTIONS[engine] if name.startswith("--") else PROGRAMS[engine])
    return option in PROGRAMS[engine] or any(f".{known}.".find(f".{option}.") >= 0 for known in OPTIONS[engine])


PAGES = {path.name[:2]: path for path in sorted((ROOT / "book").glob("[0-9][0-9]-*.md"))}


@pytest.mark.parametrize("page", PAGES)
def test_names_are_those_of_the_versions(page: str) -> None:
    names = set(told(PAGES[page].read_text(encoding="utf-8")))
    strange = {name for engine, name in names if not is_known(engine, name)}
    assert strange == {name for number, name in ALLOWED if number == page}


#: Names of TRL that a page calls those of an older version.
OLDER = {("08", "PRMTrainer")}


def of_trl(text: str) -> set[str]:
    """What a page calls a name of TRL: all in a column of its table that TRL heads, and what follows "TRL's"."""
    section = text.partition("\n## Names elsewhere\n")[2].partition("\n## ")[0]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in section.splitlines() if line[:1] == "|"]
    columns = [column for column, title in enumerate(rows[0] if rows else []) if title.startswith("TRL")]
    cells = [row[column] for row in rows[2:] for column in columns]
    said = [name for cell in cells for name in re.findall(r"`([^`]+)`", cell)]
    said += re.findall(r"TRL's `([^`]+)`", text)
    return {word for name in said for word in re.findall(r"…\w+|[A-Za-z]\w+", name)}


def test_what_a_page_calls_a_name_of_trl():
    page = "TRL's `RewardTrainer`.\n\n## Names elsewhere\n\n| here | TRL 1.16 |\n|---|---|\n| `a` | `beta`, `…_min` |\n\n## End\n"
    assert of_trl(page) == {"RewardTrainer", "beta", "…_min"}


@pytest.mark.skipif(
    importlib.util.find_spec("trl") is None and not os.environ.get("MINIRLHF_CI"),
    reason="the extra 'peers' is not installed",
)
def test_names_of_trl_occur_in_its_code() -> None:
    spec = importlib.util.find_spec("trl")
    assert spec is not None and spec.origin is not None
    code = {
        word
        for path in Path(spec.origin).parent.rglob("*.py")
        for word in re.findall(r"\w+", path.read_text(encoding="utf-8"))
    }
    names = {(page, name) for page, path in PAGES.items() for name in of_trl(path.read_text(encoding="utf-8"))}
    code |= {f"…{name[1:]}" for _, name in names if name[0] == "…" and any(word.endswith(name[1:]) for word in code)}
    strange = {(page, name) for page, name in names if name not in code}
    assert strange == OLDER


@pytest.mark.skipif(
    importlib.util.find_spec("trl") is None and not os.environ.get("MINIRLHF_CI"),
    reason="the extra 'peers' is not installed",
)
def test_the_kl_that_trl_adds_by_default_stands_in_the_row_of_its_gradient() -> None:
    from trl import GRPOConfig

    rows = [line.split("|") for line in PAGES["09"].read_text(encoding="utf-8").splitlines() if "GRPOConfig" in line]
    of = {row[1].strip(): row[2] for row in rows}
    assert GRPOConfig.use_bias_correction_kl is True  # the estimate times the ratio: on policy, the gradient of k2
    assert "use_bias_correction_kl=False" in of["$k_3$ in the loss"]
    assert "by default" in of["$k_3$ as the value, $k_2$'s gradient"]
