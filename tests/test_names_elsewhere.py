"""The options and programs of OpenRLHF, TRL and verl that the tables "Names elsewhere" tell are those of the versions the book speaks of."""

import importlib.util
import json
import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from minirlhf.recipes import RECIPES

ROOT = Path(__file__).resolve().parents[1]
KNOWN = json.loads((ROOT / "tests/samples/engine_options.json").read_text(encoding="utf-8"))
PROGRAMS = {engine: {name for name in KNOWN[engine] if name.startswith(engine)} for engine in ("verl", "openrlhf")}
OPTIONS = {engine: set().union(*(KNOWN[engine][name] for name in PROGRAMS[engine])) for engine in PROGRAMS}

#: Page and name: why it is not on the list.
ALLOWED = {
    ("11", "verl.trainer.main_generation_server"): "a program of verl 0.9.1 whose options are those of main_ppo",
    (
        "16",
        "reward.reward_kwargs.overlong_buffer_cfg",
    ): "a key of a free dictionary, which the reward manager dapo reads",
}


def table(text: str) -> list[list[str]]:
    """The cells of a page's table "Names elsewhere"; none if it has no such section."""
    section = text.partition("\n## Names elsewhere\n")[2].partition("\n## ")[0]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in section.splitlines() if line[:1] == "|"]


def names_of_engines(text: str) -> Iterator[tuple[str, str]]:
    """Engine and name of all in a page's table that looks like an option or a program: ``--a.b``, ``a.b``, ``a=b``, ``a_b.c``."""
    rows = table(text)
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
    return option in PROGRAMS[engine] or any(f".{option}." in f".{known}." for known in OPTIONS[engine])


PAGES = {path.name[:2]: path for path in sorted((ROOT / "book").glob("[0-9][0-9]-*.md"))}


@pytest.mark.parametrize("page", PAGES)
def test_names_elsewhere_of_verl_and_openrlhf_are_those_of_the_versions(page: str) -> None:
    names = set(names_of_engines(PAGES[page].read_text(encoding="utf-8")))
    strange = {name for engine, name in names if not is_known(engine, name)}
    assert strange == {name for number, name in ALLOWED if number == page}


needs_trl = pytest.mark.skipif(
    importlib.util.find_spec("trl") is None and not os.environ.get("MINIRLHF_CI"),
    reason="the extra 'peers' is not installed",
)


def test_names_elsewhere_called_ours_are_in_the_library() -> None:
    """And what a row says is not here is no option of a recipe."""
    library = "\n".join(path.read_text(encoding="utf-8") for path in ROOT.glob("minirlhf*/**/*.py"))
    words = set(re.findall(r"\w+", library))
    options = {name for recipe in RECIPES.values() for name in recipe.choices()}
    seen = set()
    for page in PAGES.values():
        for ours, *theirs in table(page.read_text(encoding="utf-8"))[2:]:
            names = set(re.findall(r"`([a-z]\w+)", ours))
            if "not here" in ours:
                assert not options & set(re.findall(r"[a-z]\w+", " ".join([ours, *theirs]))), page.name
            else:
                assert names <= words, page.name
            seen |= names
    assert {"top_entropy_quantile", "group_zscore"} <= seen


#: Names of TRL that a page calls those of an older version.
OLDER = {("08", "PRMTrainer")}


def of_trl(text: str) -> set[str]:
    """What a page calls a name of TRL: all in a column of its table that TRL heads, and what follows "TRL's"."""
    rows = table(text)
    columns = [column for column, title in enumerate(rows[0] if rows else []) if title.startswith("TRL")]
    cells = [row[column] for row in rows[2:] for column in columns]
    said = [name for cell in cells for name in re.findall(r"`([^`]+)`", cell)]
    said += re.findall(r"TRL's `([^`]+)`", text)
    return {word for name in said for word in re.findall(r"…\w+|[A-Za-z]\w+", name)}


def test_of_trl_finds_names_in_table_and_text():
    page = "TRL's `RewardTrainer`.\n\n## Names elsewhere\n\n| here | TRL 1.16 |\n|---|---|\n| `a` | `beta`, `…_min` |\n\n## End\n"
    assert of_trl(page) == {"RewardTrainer", "beta", "…_min"}


@needs_trl
def test_names_elsewhere_of_trl_occur_in_its_code() -> None:
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


@needs_trl
def test_names_elsewhere_of_grpo_kl_are_trls_default() -> None:
    from trl import GRPOConfig

    rows = [line.split("|") for line in PAGES["09"].read_text(encoding="utf-8").splitlines() if "GRPOConfig" in line]
    of = {row[1].strip(): row[2] for row in rows}
    assert GRPOConfig.use_bias_correction_kl is True  # the estimate times the ratio: on policy, the gradient of k2
    assert "use_bias_correction_kl=False" in of["$k_3$ in the loss"]
    assert "by default" in of["$k_3$ as the value, $k_2$'s gradient"]
