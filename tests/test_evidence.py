"""Evidence: what makes a study stale and what does not, and that a claim holds only by three deviations between seeds."""

import ast
import functools
import inspect
import json
import math
import re
import shutil
import sys
import time
import types
from dataclasses import dataclass
from itertools import combinations

import pytest
import torch
from plan import of_chapter

from minirlhf import evidence
from minirlhf.cli import main
from minirlhf.core import provenance
from minirlhf.core.errors import UserError
from minirlhf.core.randomness import generator
from minirlhf.equations import aggregation, policy_losses
from minirlhf.equations.preference_losses import pairs
from minirlhf.evidence import code, probe, student, study
from minirlhf.recipes import GRPO, RECIPES, spelling
from minirlhf.stages.pipeline import ASSISTANT_PPO, SFTPlan
from minirlhf.trainers.sft import SFTConfig

# -- claims ------------------------------------------------------------------------------------------------------

NUMBERS = {0: {"high": 1.0, "low": 0.1}, 1: {"high": 1.1, "low": 0.0}, 2: {"high": 0.9, "low": -0.1}}


@pytest.fixture
def seen(tmp_path):
    path = tmp_path / "made_up.json"
    evidence.write(path, {"command": "c"}, NUMBERS)
    return evidence.Seen(evidence.read(path))


def test_a_claim_holds_by_three_standard_deviations(seen):  # the deviation of both is 0.1
    assert seen.values("high") == [1.0, 1.1, 0.9]
    assert seen.holds("high", above=0.69) and not seen.holds("high", above=0.71)
    assert seen.holds("high", below=1.31) and not seen.holds("high", below=1.29)
    assert not seen.holds("high", above=0.69, below=1.29)
    with pytest.raises(ValueError, match="neither above nor below"):
        seen.holds("high")


def test_two_numbers_are_compared_seed_by_seed(seen):  # differences 0.9, 1.1, 1.0
    assert seen.exceeds("high", "low") and not seen.exceeds("low", "high")
    assert not seen.exceeds("high", "high")


def test_a_tail_of_students_t_is_the_integral_of_its_density():
    for degrees in (1, 2, 4, 9, 19):
        scale = math.gamma((degrees + 1) / 2) / math.gamma(degrees / 2) / math.sqrt(degrees * math.pi)
        for t in (0.3, 2.0, 7.0):
            x = torch.linspace(-t, t, 20_001, dtype=torch.float64)
            inside = torch.trapezoid(scale * (1 + x**2 / degrees) ** (-(degrees + 1) / 2), x)
            assert student.two_sided(t, degrees) == pytest.approx(1 - float(inside), abs=1e-7)
            assert student.quantile(student.two_sided(t, degrees), degrees) == pytest.approx(t)


def test_a_difference_that_is_called_detectable_is_found_in_four_of_five_studies():
    rng = generator("studies")
    for count, alpha in ((5, 0.05), (5, 0.005), (20, 0.05)):
        error = 1 / math.sqrt(count)
        shift = student.detectable(alpha, count - 1) * error
        noise = torch.randn(40_000, count, generator=rng, dtype=torch.float64) + shift
        t = noise.mean(1) / (noise.std(1) * error)
        assert float((t > student.quantile(alpha, count - 1)).double().mean()) == pytest.approx(0.8, abs=0.01)


def test_the_interval_covers_the_difference_in_95_of_100_studies():
    rng, covered = generator("intervals"), 0
    for _ in range(2000):
        a, b = torch.randn(2, 5, generator=rng).tolist()
        low, high = evidence.differences({"a": a, "b": b})["a", "b"].interval
        covered += low <= 0 <= high
    assert covered / 2000 == pytest.approx(0.95, abs=0.02)


def test_holm_asks_more_where_more_pairs_were_looked_at():
    """Sorted, the k-th smallest of m p-values is multiplied by m − k + 1, and is no smaller than the one before."""
    rng = generator("pairs")
    columns = {name: torch.randn(5, generator=rng).tolist() for name in "abcd"} | {"far": [9.0, 9.1, 8.9, 9.2, 8.8]}
    alone = {pair: evidence.differences(columns, [pair])[pair] for pair in combinations(columns, 2)}
    family = evidence.differences(columns)
    ordered = sorted(alone, key=lambda pair: alone[pair].p)
    steps = [min(1.0, (10 - k) * alone[pair].p) for k, pair in enumerate(ordered)]
    assert [family[pair].p for pair in ordered] == pytest.approx([max(steps[: k + 1]) for k in range(10)])
    assert all(family[pair].pairs == 10 and family[pair].detectable > alone[pair].detectable for pair in family)
    assert family["a", "far"].apart and family["a", "far"].below == 5 and (-family["a", "far"]).above == 5


def test_differences_without_noise_are_certain_and_columns_must_fit():
    found = evidence.differences({"a": [1.0, 2.0, 3.0], "b": [0.0, 1.0, 2.0], "c": [1.0, 2.0, 3.0]})
    assert found["a", "b"].apart and found["a", "b"].interval == (1.0, 1.0)
    assert not found["a", "c"].apart and found["a", "c"].p == 1.0
    assert found["a", "b"].exact and found["a", "b"].chance == "exact, the same in every seed"
    # a last digit is no noise: without this its t is about 10^16, and a p of 0 would pass for a test
    almost = evidence.differences({"a": [0.1 + 0.2, 0.3, 0.7 - 0.4], "b": [0.0, 0.0, 0.0]})["a", "b"]
    assert almost.exact and almost.apart and almost.interval == (almost.mean, almost.mean)
    none = evidence.differences({"a": [0.1 + 0.2, 0.3, 0.7 - 0.4], "b": [0.3, 0.3, 0.3]})["a", "b"]
    assert none.exact and none.mean == 0.0 and not none.apart
    noisy = evidence.differences({"a": [1.0, 1.0, 1.0 + 1e-9], "b": [0.0, 0.0, 0.0]})["a", "b"]
    assert not noisy.exact and noisy.p < 1e-12 and noisy.chance.startswith("p < 1e-12 after")
    with pytest.raises(ValueError, match="2 seeds; expected at least 3"):
        evidence.differences({"a": [1.0, 2.0], "b": [1.0, 2.0]})
    with pytest.raises(ValueError, match="shorter"):
        evidence.differences({"a": [1.0, 2.0, 3.0], "b": [1.0, 2.0]})


def test_a_notebook_asks_for_a_difference(seen):
    found = seen.difference("high", "low")  # .9, 1.1, 1.0
    assert (found.mean, found.above, found.seeds) == (pytest.approx(1.0), 3, 3)
    assert found.error == pytest.approx(0.1 / math.sqrt(3)) and found.apart
    assert seen.differences(["high", "low"])["high", "low"] == found


def test_results_come_with_the_package_and_are_found_by_name(tmp_path):
    assert {"ch05", "ch20_exact", "ch20_language", "tour"} <= set(evidence.results())
    assert evidence.Seen("ch05").values("rloo_2_gap") == evidence.values(evidence.result("ch05"), "rloo_2_gap")
    with pytest.raises(UserError, match="unknown study 'ch20_exct': did you mean 'ch20_exact'"):
        evidence.Seen("ch20_exct")
    with pytest.raises(UserError, match="no such evidence"):
        evidence.read(tmp_path / "another.json")


# -- a chapter that is made up -----------------------------------------------------------------------------------

FILES = {
    "__init__.py": "",
    "losses.py": '''
"""Equations."""

def squared(x, mask):
    """The loss."""
    kept = [a * a for a, m in zip(x, mask) if m]
    return sum(kept) / len(kept)
''',
    "training.py": '''
from madeup.losses import squared

def train(start, steps, rate=0.25):
    """Walk towards 0."""
    x, losses = start, []
    for _ in range(steps):
        losses.append(squared([x, 9.0], [True, False]))
        x -= rate * 2 * x
    return x, losses

def largest(values):
    return max(values)

def smallest(values):
    return min(values)
''',
    "chapters/__init__.py": "",
    "chapters/ch01_walk/__init__.py": "",
    "chapters/ch01_walk/lab.py": '''
"""The runs of the chapter."""

from madeup import training

RUN = {"steps": 60}

def walk(seed, run=RUN, *, rate=0.25):
    """One run."""
    if seed < 0:
        raise ValueError(f"seed = {seed}; expected none below 0")
    return training.train(1.0 + seed, rate=rate, **run)
''',
    "chapters/ch01_walk/study.py": '''
"""Several walks."""

from madeup.chapters.ch01_walk import lab
from madeup.training import largest, smallest
from minirlhf.evidence import Study

TAIL = 10

def one_seed(seed):
    """A walk."""
    end, losses = lab.walk(seed)
    return {"end": end, "late": sum(losses[-TAIL:]) / TAIL, "most": largest(losses), "least": smallest(losses)}

def probe():
    """Two steps."""
    end, losses = lab.walk(0, {"steps": 2})
    return {"end": end, "loss_1": losses[1]}

STUDY = Study(one_seed, probe, seeds=3)

if __name__ == "__main__":
    STUDY.main(__file__)
''',
}  # fmt: skip


class MadeUp:
    """A package with one chapter, whose study has been run."""

    def __init__(self, root):
        self.root, self.chapter = root, root / "chapters" / "ch01_walk"
        for name, text in FILES.items():
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).write_text(text)

    def script(self):
        """The study as a new process would find it."""
        for cached in (provenance.source, provenance.imports):
            cached.cache_clear()
        for name in [name for name in sys.modules if name.split(".")[0] == "madeup"]:
            del sys.modules[name]
        for folder in self.root.rglob("__pycache__"):  # an edit within a second leaves a size and a time that look old
            shutil.rmtree(folder)
        [script] = study.discover(self.chapter).values()
        return script

    def edit(self, name, *pairs):
        """Replace texts in a file."""
        text = (self.root / name).read_text()
        for old, new in pairs:
            assert old in text
            text = text.replace(old, new)
        (self.root / name).write_text(text)

    def run(self, monkeypatch, *arguments):
        """Run the script."""
        script = self.script()
        monkeypatch.setattr("sys.argv", ["study.py", *arguments])
        script.load().main(str(script.path))
        return json.loads(script.result.read_text())


@pytest.fixture
def made_up(tmp_path, monkeypatch):
    root = tmp_path / "madeup"
    monkeypatch.setattr(provenance, "PACKAGE", root)
    monkeypatch.setattr(provenance, "ROOT_NAME", "madeup")
    monkeypatch.setenv("MINIRLHF_CACHE", str(tmp_path / "cache"))
    monkeypatch.syspath_prepend(str(tmp_path))
    repository = MadeUp(root)
    repository.run(monkeypatch)
    yield repository
    for cached in (provenance.source, provenance.imports):
        cached.cache_clear()


def test_a_study_writes_every_seed_and_how_its_code_behaves(made_up, monkeypatch, capsys):
    found = made_up.run(monkeypatch)
    assert found["seeds"] == {
        str(seed): {"end": n / 2**60, "late": pytest.approx(0), "most": n**2, "least": (n / 2**59) ** 2}
        for seed, n in enumerate((1, 2, 3))
    }
    assert found["names"] == [
        "madeup.chapters.ch01_walk.lab.walk",
        "madeup.training.largest",
        "madeup.training.smallest",
    ]
    assert found["probe"] == {"end": 0.25, "loss_1": 0.25}
    assert found["sizes"] == ["0.25", "0", "1.0", "'steps'", "60"]
    assert "late" in capsys.readouterr().out and made_up.script().stale() == []
    assert len(made_up.run(monkeypatch, "--seeds", "2")["seeds"]) == 2
    assert made_up.script().stale() == ["2 of 3 seeds were measured"]
    before = made_up.script().result.read_text()
    capsys.readouterr()
    made_up.run(monkeypatch, "--probe")
    assert json.loads(capsys.readouterr().out) == found["probe"] and made_up.script().result.read_text() == before


def move_the_lab(house):
    (house.chapter / "lab.py").rename(house.chapter / "runs.py")
    house.edit("chapters/ch01_walk/study.py", ("import lab", "import runs as lab"))


def move_an_equation(house):
    (house.root / "equations").mkdir()
    (house.root / "equations" / "__init__.py").write_text("")
    (house.root / "losses.py").rename(house.root / "equations" / "losses.py")
    house.edit("training.py", ("madeup.losses", "madeup.equations.losses"))


def move_the_chapter(house):
    house.chapter = house.chapter.rename(house.chapter.with_name("ch09_walk"))
    house.edit("chapters/ch09_walk/study.py", ("ch01_walk", "ch09_walk"))


STUDY, LAB = "chapters/ch01_walk/study.py", "chapters/ch01_walk/lab.py"
HARMLESS = {
    "the lab is moved": move_the_lab,
    "an equation is moved": move_an_equation,
    "the chapter is moved, with its result": move_the_chapter,
    "a function of the lab has another name": lambda house: (
        house.edit(LAB, ("def walk", "def stroll")),
        house.edit(STUDY, ("lab.walk", "lab.stroll")),
    ),
    "an equation has another name": lambda house: (
        house.edit("losses.py", ("def squared", "def mean_squared")),
        house.edit("training.py", ("squared", "mean_squared")),
    ),
    "a function that the probe does not see has another name": lambda house: (
        house.edit("training.py", ("largest", "greatest")),
        house.edit(STUDY, ("largest", "greatest")),
    ),
    "names of the script": lambda house: house.edit(STUDY, ("one_seed", "measure"), ("losses", "path"), ("TAIL", "END")),
    "a name is imported another way": lambda house: house.edit(
        STUDY, ("from madeup.chapters.ch01_walk import lab", "from madeup.chapters.ch01_walk.lab import walk"), ("lab.walk", "walk")
    ),
    "a function that the probe does not see is moved": lambda house: (
        (house.root / "ends.py").write_text("def largest(values):\n    return max(values)\n"),
        house.edit("training.py", ("def largest(values):\n    return max(values)\n", "")),
        house.edit(STUDY, ("import largest, smallest", "import smallest\nfrom madeup.ends import largest")),
    ),
    "functions of the lab change places": lambda house: house.edit(
        LAB, ('RUN = {"steps": 60}\n', ""), ("rate=rate, **run)\n", 'rate=rate, **run)\n\nRUN = {"steps": 60}\n'), ("run=RUN", "run=None"), ("    if seed", "    run = run or RUN\n    if seed")
    ),
    "nobody calls it, in the lab": lambda house: house.edit(LAB, ("def walk", "def idle(n=7):\n    return 8\n\ndef walk")),
    "nobody calls it, in the library": lambda house: house.edit("losses.py", ("def squ", "def idle():\n    return 8\n\ndef squ")),
    "nobody calls it, in the script": lambda house: house.edit(STUDY, ("def probe", "def idle():\n    return 8\n\ndef probe")),
    "docstrings and comments": lambda house: (
        house.edit("losses.py", ("The loss.", "Mean square.")),
        house.edit(LAB, ('"""One run."""', '"""A run."""  # short')),
        house.edit(STUDY, ('"""Two steps."""', "# two steps"), ('"""A walk."""', '"""One walk."""')),
    ),
    "types": lambda house: house.edit(STUDY, ("(seed):", "(seed: int) -> dict:"), ("TAIL = 10", "TAIL: int = 10")),
    "the message of an error": lambda house: house.edit(LAB, ("expected none", "none may lie")),
    "the same sum, otherwise": lambda house: house.edit("training.py", ("x -= rate * 2 * x", "x = x * (1 - 2 * rate)")),
}  # fmt: skip
DECISIVE = {
    "steps in the lab": (lambda house: house.edit(LAB, ("60", "6")), "sizes have changed: 60 → 6"),
    "a default in the lab": (lambda house: house.edit(LAB, ("rate=0.25", "rate=0.5")), "sizes have changed: 0.25 → 0.5"),
    "steps in the script": (lambda house: house.edit(STUDY, ("TAIL = 10", "TAIL = 20")), "its script has changed"),
    "what the script computes": (lambda house: house.edit(STUDY, ("sum(", "max(")), "its script has changed"),
    "two functions that the probe does not see are exchanged": (
        lambda house: house.edit(STUDY, ("largest(losses)", "?"), ("smallest(losses)", "largest(losses)"), ("?", "smallest(losses)")),
        "its script names others: madeup.training.largest → madeup.training.smallest, madeup.training.smallest → madeup.training.largest",
    ),
    "another function in the place of one that the probe does not see": (
        lambda house: (
            house.edit("training.py", ("def largest(values):\n    return max(values)", "def longest(values):\n    return len(values)")),
            house.edit(STUDY, ("largest", "longest")),
        ),
        "its script names others: madeup.training.largest → madeup.training.longest",
    ),
    "another function of the same name, elsewhere": (
        lambda house: (
            (house.root / "ends.py").write_text("def largest(values):\n    return sum(values)\n"),
            house.edit("training.py", ("def largest(values):\n    return max(values)\n", "")),
            house.edit(STUDY, ("import largest, smallest", "import smallest\nfrom madeup.ends import largest")),
        ),
        "its script names others: madeup.training.largest → madeup.ends.largest",
    ),
    "what is imported, under a name that stands for something else too": (
        lambda house: house.edit(STUDY, ("import largest, smallest", "import smallest as largest, smallest as end"), ("smallest(losses)", "end(losses)")),
        "its script has changed",
    ),
    "two sizes are exchanged": (
        lambda house: house.edit(LAB, ("60", "?"), ("seed < 0", "seed < 60"), ("?", "0")),
        "sizes stand in another order: 0 → 60, 60 → 0",
    ),
    "more seeds": (lambda house: house.edit(STUDY, ("seeds=3", "seeds=4")), "its script has changed; 3 of 4 seeds were measured"),
    "the sign of the gradient": (
        lambda house: house.edit("training.py", ("x -=", "x +=")),
        "its probe has moved: end 0.25 → 2.25, loss_1 0.25 → 2.25",
    ),
    "the sign of a loss": (lambda house: house.edit("losses.py", ("return sum", "return -sum")), "its probe has moved: loss_1 0.25 → -0.25"),
    "a mask": (lambda house: house.edit("losses.py", (" if m]", "]")), "its probe has moved: loss_1 0.25 → 40.625"),
    "no result": (lambda house: (house.chapter / "study.json").unlink(), "it has never run"),
}  # fmt: skip


@pytest.mark.parametrize("edit", HARMLESS)
def test_what_changes_nothing_leaves_the_study_fresh(edit, made_up):
    before = {path: path.read_text() for path in made_up.root.rglob("*.py")}
    HARMLESS[edit](made_up)
    assert {path: path.read_text() for path in made_up.root.rglob("*.py")} != before
    assert made_up.script().stale() == []


@pytest.mark.parametrize("edit", DECISIVE)
def test_what_changes_the_numbers_makes_it_stale_and_is_named(edit, made_up):
    change, why = DECISIVE[edit]
    change(made_up)
    assert "; ".join(made_up.script().stale()) == why


def test_the_probe_runs_only_where_the_code_has_changed(made_up, monkeypatch):
    assert made_up.script().stale() == []
    loaded = []
    load = study.Script.load
    monkeypatch.setattr(study.Script, "load", lambda self: loaded.append(self.name) or load(self))
    made_up.edit("losses.py", ('"""Equations."""', '"""Words."""'))
    assert made_up.script().stale() == [] and loaded == []
    made_up.edit("losses.py", ("def squ", "def idle():\n    return 8\n\ndef squ"))
    assert made_up.script().stale() == [] and loaded == ["ch01"]
    assert made_up.script().stale() == [] and loaded == ["ch01"]
    made_up.edit("losses.py", (" if m]", "]"))
    assert made_up.script().stale() and made_up.script().stale(), "what failed is not remembered"


def test_the_command_names_reasons_runs_what_is_stale_and_records_a_new_probe(made_up, monkeypatch, capfd):
    made_up.script()
    assert main(["studies"]) == 0 and "ch01 " in capfd.readouterr().out
    result = made_up.script().result
    made_up.edit(STUDY, ('"loss_1": losses[1]', '"first": losses[0]'))
    made_up.script()
    assert main(["studies"]) == 1
    assert "stale: its probe has moved: loss_1 0.25 → nothing, first nothing → 1" in capfd.readouterr().out
    measured = json.loads(result.read_text())["seeds"]
    # a number that is gone may have moved under its new name: it is given up by name, or not at all
    assert main(["studies", "--record", "ch01"]) == 2
    assert "moved: loss_1 0.25 → nothing; if the probe's own change is why" in capfd.readouterr().err
    assert main(["studies", "--record", "ch01", "--accept", "loss_1"]) == 0
    said = capfd.readouterr().out
    assert "Taken on trust" in said and "3 seeds stay" in said and "1 numbers of the probe are new" in said
    assert "accepted: loss_1 0.25 → nothing" in said
    assert json.loads(result.read_text())["probe"] == {"end": 0.25, "first": 1.0}
    assert json.loads(result.read_text())["seeds"] == measured

    # a probe that was rewritten may move a number of before only if somebody names it
    made_up.edit(STUDY, ('"first": losses[0]', '"first": losses[0] / 2'))
    made_up.script()
    before = result.read_text()
    assert main(["studies", "--record", "ch01"]) == 2
    assert "moved: first 1 → 0.5; if the probe's own change is why" in capfd.readouterr().err
    assert main(["studies", "--record", "ch01", "--accept", "first", "--accept", "end"]) == 2
    assert "did not move: end" in capfd.readouterr().err and result.read_text() == before
    assert main(["studies", "--accept", "first"]) == 2
    capfd.readouterr()
    assert main(["studies", "--record", "ch01", "--accept", "first"]) == 0
    assert "accepted: first 1 → 0.5" in capfd.readouterr().out
    assert json.loads(result.read_text())["probe"] == {"end": 0.25, "first": 0.5}

    # a new setting is accepted by name also where the probe is the same, a number that moved is not
    said = json.loads(result.read_text())
    del_setting = {**said, "probe": {**said["probe"], "run: width": 4.0}}
    result.write_text(json.dumps(del_setting))
    assert main(["studies", "--record", "ch01", "--accept", "run: width"]) == 2, "it is gone, not new"
    result.write_text(json.dumps(said))
    with monkeypatch.context() as patch:
        patch.setattr(study, "probed", lambda _: {**said["probe"], "run: loss": "squared"})
        assert main(["studies", "--record", "ch01"]) == 2 and "run: loss nothing → squared" in capfd.readouterr().err
        assert main(["studies", "--record", "ch01", "--accept", "run: loss"]) == 0
        assert "accepted: run: loss = squared" in capfd.readouterr().out
    result.write_text(json.dumps(said))

    commands = []
    monkeypatch.setattr(
        "subprocess.run", lambda command: commands.append(command) or types.SimpleNamespace(returncode=0)
    )
    assert main(["studies", "--run"]) == 0 and commands == []
    made_up.edit(LAB, ("60", "6"))
    made_up.script()
    assert main(["studies", "--run"]) == 0
    assert commands == [[sys.executable, "-P", str(made_up.chapter / "study.py")]]
    assert main(["studies", "ch99"]) == 2 and "unknown study 'ch99'" in capfd.readouterr().err
    assert main(["studies", "--record"]) == 2


def test_sizes_in_another_order_are_accepted_by_name_and_other_sizes_never(made_up, capfd):
    made_up.edit(LAB, ("def walk", "EARLY = 3.5\n\ndef walk"), ("rate=0.25", "rate=EARLY * 0 + 0.25"))
    made_up.script()
    assert main(["studies", "--record", "ch01", "--accept", "sizes"]) == 2 and "run it" in capfd.readouterr().err
    made_up.edit(
        LAB,
        ("EARLY = 3.5\n\n", ""),
        ("rate=EARLY * 0 + 0.25", "rate=None"),
        ("    if seed", "    rate = rate or 0.25\n    if seed"),
    )
    made_up.edit(LAB, ("seed < 0", "0 > seed"))
    made_up.edit(
        LAB,
        ("    rate = rate or 0.25\n    if 0 > seed", "    if 0 > seed"),
        ("rate=rate, **run", "rate=rate or 0.25, **run"),
    )
    assert "another order" in made_up.script().stale()[0]
    assert main(["studies", "--record", "ch01"]) == 2
    capfd.readouterr()
    assert main(["studies", "--record", "ch01", "--accept", "sizes"]) == 0
    assert "accepted: sizes stand in another order" in capfd.readouterr().out and made_up.script().stale() == []


@pytest.mark.parametrize(
    ("name", "edit", "why"),
    [
        (LAB, ("60", "6"), "sizes have changed: 60 → 6"),
        (STUDY, ("sum(", "max("), "its script has changed"),
        ("training.py", ("x -=", "x +="), "its probe has moved and is the same that it was: end 0.25 → 2.25"),
    ],
)
def test_nothing_is_recorded_where_the_study_itself_has_changed(name, edit, why, made_up, capfd):
    made_up.edit(name, edit)
    before = made_up.script().result.read_text()
    assert main(["studies", "--record", "ch01"]) == 2
    said = capfd.readouterr().err
    assert why in said and "run it" in said
    assert made_up.script().result.read_text() == before


def test_a_folder_without_studies_and_a_script_without_one_are_errors(tmp_path):
    with pytest.raises(UserError, match="no studies in"):
        study.discover(tmp_path)
    (tmp_path / "study.py").write_text("STUDY = Study()\n")
    with pytest.raises(UserError, match=r"study\.py: declares no study"):
        study.discover(tmp_path)


# -- numbers of a probe ------------------------------------------------------------------------------------------


def test_numbers_move_by_more_than_a_change_of_machine_explains():
    stored = {"a": 1.0, "b": math.nan, "c": "grpo", "tiny": 1e-8}
    assert probe.moved(stored, {**stored, "a": 1.002, "tiny": -5e-6}, {}) == []
    assert probe.moved(stored, {**stored, "a": 1.005}, {}) == ["a 1 → 1.005"]
    assert probe.moved(stored, {**stored, "b": 0.0, "c": "ppo"}, {}) == ["b nan → 0", "c grpo → ppo"]
    assert probe.moved({"a": 1.0}, {"b": 1.0}, {}) == ["a 1 → nothing", "b nothing → 1"]


def test_settings_say_all_that_a_plan_does_and_no_names_that_it_goes_by():
    found = probe.settings(sft=SFTPlan(7, SFTConfig(max_steps=400)), ppo=ASSISTANT_PPO)
    assert found["sft: demonstrations"] == 7 and found["sft: training.max_steps"] == 400
    assert found["sft: training.max_grad_norm"] == 1.0 and found["ppo: recipe.update.kl.beta"] == 0.3
    assert found["ppo: recipe.update.objective"] == "minirlhf.equations.policy_losses.ppo_clip"
    assert found["ppo: recipe.update.objective.epsilon"] == 0.2, "a default of an equation"
    assert found["ppo: recipe.credit.lam"] == 0.95, "a default of a part"
    assert probe.settings(sft=probe.brief(SFTPlan(), 3, demonstrations=5)) == {
        **probe.settings(sft=SFTPlan()),
        "sft: training.max_steps": 3,
        "sft: demonstrations": 5,
    }
    assert probe.settings(a=GRPO) == probe.settings(a=GRPO.with_(name="mine", source="me", beta=0.04))
    with pytest.raises(TypeError, match="is no setting"):
        probe.settings(broken=[1, 2])


def test_every_option_of_every_recipe_is_a_setting():
    for row in RECIPES.values():
        said = probe.settings(a=row)
        for name, option in row.choices().items():
            if name not in spelling.WORDS and (option.is_number or option.value is None):
                found = [value for key, value in said.items() if re.search(rf"[. ]{name}$", key)]
                assert (probe.NOTHING if option.value is None else option.value) in found, (row.name, name)
                if option.is_number and not isinstance(option.value, bool | None):
                    changed = row.with_(**{name: option.value + 1})
                    assert probe.moved(said, probe.settings(a=changed), {}), (row.name, name)
    assert probe.moved(probe.settings(a=GRPO), probe.settings(a=GRPO.with_(kl=None)), {})[0] == (
        "a: update.kl minirlhf.recipes.parts.InLoss → none"
    )


def test_a_new_setting_is_forgiven_where_it_is_neutral_and_a_new_default_never():
    def loss(logps, *, epsilon=0.2):
        return logps

    def with_an_option(logps, *, epsilon=0.2, floor=None, factor=1.0, shift=0.0, strict=False):
        return logps

    def with_a_limit(logps, *, epsilon=0.2, limit=2.0):
        return logps

    def with_another_default(logps, *, epsilon=0.3):
        return logps

    for function in (loss, with_an_option, with_a_limit, with_another_default):
        function.__module__ = "__main__"  # as in a script that is run
    stored = probe.settings(loss=loss)
    assert stored == {"loss: ": "the study's own", "loss: epsilon": 0.2}
    assert probe.moved(stored, probe.settings(loss=with_an_option), {}) == []
    assert probe.moved(probe.settings(loss=with_an_option), stored, {}) == [], "nor where it goes again"
    assert probe.moved(stored, probe.settings(loss=with_a_limit), {}) == ["loss: limit nothing → 2"]
    assert probe.moved(stored, probe.settings(loss=with_another_default), {}) == ["loss: epsilon 0.2 → 0.3"]
    assert probe.moved({}, {"loss_0": 0.0}, {}) == ["loss_0 nothing → 0"], "a number of a run is no setting"


def test_a_function_is_another_setting_unless_it_was_renamed():
    clip, gone = "minirlhf.equations.policy_losses.ppo_clip", "minirlhf.equations.policy_losses.clipped"
    here, defined = {"a: objective": clip}, {gone: code.definition(clip)}
    assert probe.moved({"a: objective": gone}, here, defined) == []
    assert (
        probe.moved(
            {"a: objective": "minirlhf.losses.ppo_clip"}, here, {"minirlhf.losses.ppo_clip": code.definition(clip)}
        )
        == []
    )
    others = {gone: code.definition("minirlhf.equations.policy_losses.gspo")}
    assert probe.moved({"a: objective": gone}, here, others) != [], "in its place, and something else"
    assert probe.moved({"a: objective": gone}, here, {}) != [], "nobody knows what it was"
    assert probe.moved({"a: objective": "minirlhf.recipes.ppo_clip"}, here, {}) == [], "imported there from its home"
    assert probe.moved({"a: objective": "minirlhf.equations.policy_losses.gspo"}, here, defined) != []


def test_plans_that_differ_have_settings_that_differ():
    @dataclass(frozen=True)
    class Part:
        width: float

        def loss(self, logps):
            return self.width * logps

    def scaled(factor):
        def function(logps):
            return factor * logps

        return function

    def by_position(factor, logps):
        return factor * logps

    def other(logps):
        return logps

    pairs = {
        "a value that a function closes over": (scaled(1.5), scaled(2.5)),
        "a value given by position": (functools.partial(by_position, 1.5), functools.partial(by_position, 2.5)),
        "the part whose method it is": (Part(1.5).loss, Part(2.5).loss),
        "a function in a function": (scaled(1.5), other),
        "a function of another library": (torch.nn.functional.relu, torch.nn.functional.silu),
        "a class of another library": (torch.nn.ReLU, torch.nn.Tanh),
    }
    for what, (one, another) in pairs.items():
        assert probe.moved(probe.settings(a=one), probe.settings(a=another), {}) != [], what


# -- the studies of the repository -------------------------------------------------------------------------------

STUDIES = study.discover()
each_study = pytest.mark.parametrize(
    "name", [of_chapter(n[2:4], n, id=n[5:] or "study") if re.match(r"ch\d\d", n) else n for n in STUDIES]
)


@each_study
def test_the_script_and_the_sizes_are_those_that_were_measured(name):
    script = STUDIES[name]
    found = evidence.read(script.result)
    assert script.rewritten(found) == [], "run: minirlhf studies"
    assert len(found["seeds"]) >= 5


#: What a lab holds and one_seed does not call: notebooks and commands do. It is reached by its name only, or with its class.
FOR_OTHERS = {
    "gallery": {
        *(f"BrokenRun.{name}" for name in ("cause", "check", "fix", "run", "source", "symptom", "title")),
        "_texts",
    },
    "ch15_itself": {"Leans.place"},
    "ch16_budget": {"SecondThoughts.grade", "SecondThoughts.reference"},
    "ch16_planted": {"SecondThoughts.reference"},
    "ch16_puzzles": {"Puzzles.reference"},  # its demonstrator is another
    "ch16_shorter": {"AskedLength.demonstration", "AskedLength.reference"},  # its demonstrator is another
    "ch16_stages": {"TwoAlphabets.__init__"},
    "ch17_lies": {"Conduct.asks"},
    "ch18_hints": {"Hinted.__init__"},
    "ch18_rates": {"Hinted.__init__", "likelihoods", "typical"},
    "ch19_rates": {"GradedAnswers.risks"},
    "ch20_exact": {
        "Detection.curve",
        "Errors.total",
        "Fit.peak",
        "Outcomes.grade",
        "Decisions.num_prefixes",
        "grade",
        "require_preferences",
    },
    "ch20_language": {"Curve.proxy_at", "_as_reward", "grade"},
    "ch20_language_dpo": {"Curve.gold_by"},
    "ch20_detector": {
        *(f"Curve.{name}" for name in ("_at", "fall", "gold_at", "gold_by", "peak", "proxy_at")),
        "Decisions.num_prefixes",
        "Detection.curve",
        "Outcomes.grade",
        "ProxyComparisons.and_",
        "grade",
        "require_preferences",
    },
    "ch21": {
        *(f"ProxyComparisons.{name}" for name in ("__len__", "and_", "resampled")),
        "Decisions.num_prefixes",
        "Outcomes.grade",
        "grade",
        "require_preferences",
    },
    "ch22_rates": {"Ranked.agreement", "Ranked.best"},
    "ch08_step_labels": {
        "_Everywhere.__init__",
        "_Everywhere.forward",
    },  # reads a reward head; all heads here are process heads
    # each trains in one of the lab's two worlds; no demonstration of sorting differs from the reference
    "ch13_long": {f"MixedLists.{name}" for name in ("prompts", "reference", "demonstration", "grade")}
    | {"_lists", "HesitantGame.reference"},
    "ch13_mixed": {f"HesitantGame.{name}" for name in ("prompts", "reference", "demonstration", "grade")},
}


def forget(paths):
    """Empty the caches of the functions in these files, so that a function is crossed again whatever ran before."""
    for module in [m for m in sys.modules.values() if str(getattr(m, "__file__", "")) in {str(p) for p in paths}]:
        for value in vars(module).values():
            if isinstance(value, functools._lru_cache_wrapper):
                value.cache_clear()


#: Functions that train, and which of their arguments say how.
LOOPS = {
    "train_in_world": ("recipe", "config"),
    "train_offline": ("recipe", "config"),
    "rejection_in_world": ("config",),
    "train_reward": ("config",),
    "train_policy": ("method", "config"),
    "train_trpo": ("config",),
}
#: What a probe shortens, what a toy model's horizon decides, and what every seed has another of.
SHORTENED = {
    "max_steps",
    "total_steps",
    "batch_size",
    "num_generations",
    "num_envs",
    "num_steps",
    "num_prompts",
    "steps_per_round",
    "max_completion_length",
    "seed",
}


def given(script):
    """The names that a study's own code, its script and its lab, gives values to: there they are seen."""
    sources = {script.path, *(path for path, _ in script.code.reached)}
    nodes = [node for path in sources for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))]
    keys = {
        key.value for node in nodes if isinstance(node, ast.Dict) for key in node.keys if isinstance(key, ast.Constant)
    }
    return keys | {node.arg for node in nodes if isinstance(node, ast.keyword)}


def says(said, plan, elsewhere):
    """Whether one of the plans that a probe says holds all of this one, by itself or as a part of it, but for what is seen elsewhere."""
    elsewhere = elsewhere | getattr(plan, "changes", {}).keys() | SHORTENED
    spelled = {k.removeprefix("x: "): v for k, v in probe.settings(x=plan).items()}
    wanted = {k: v for k, v in spelled.items() if k and not elsewhere & set(k.split("."))}
    places = {key.removesuffix(name) for key in said for name in list(wanted)[:1] if key.endswith(name)}
    return any(all(said.get(place + k, object()) == v for k, v in wanted.items()) for place in places)


@pytest.mark.slow
@each_study
def test_the_study_is_fresh_and_its_probe_crosses_the_lab_and_says_every_plan(name):
    script, called, plans = STUDIES[name], set(), []
    forget({path for path, _ in script.code.reached})

    def look(frame, event, arg):
        if event == "call":
            outer, *inner = frame.f_code.co_qualname.split(
                ".<locals>."
            )  # what a call made is that call's, also of an import
            called.add((frame.f_code.co_filename, outer if inner else frame.f_code.co_qualname))
            plans.extend(frame.f_locals[argument] for argument in LOOPS.get(frame.f_code.co_name, ()))

    loaded = script.load()  # before the look: what an import calls is no call of the study's, whoever imported first
    began = time.process_time()
    sys.setprofile(look)
    try:
        found = study.probed(loaded)
    finally:
        sys.setprofile(None)
    print(f"{name}: {time.process_time() - began:.1f} s of the processor")
    stored = evidence.read(script.result)
    assert probe.moved(stored["probe"], found, stored["defined"]) == [], "run: minirlhf studies --run"
    missed = {function for path, function in script.code.reached if (str(path), function) not in called}
    others = FOR_OTHERS.get(name, set())
    assert (missed - others, others - missed) == (set(), set()), (
        f"one_seed may go through {sorted(missed - others)} and the probe does not; it does go through {sorted(others - missed)}"
    )

    elsewhere = given(script)
    assert not [plan for plan in plans if not says(found, plan, elsewhere)], (
        "plans that the probe trains by and does not say"
    )


def wrap(monkeypatch, function, change):
    """Make ``function`` another one wherever it has been imported to: ``change(original, *args, **kwargs)``."""
    function = inspect.unwrap(function)
    original = types.FunctionType(function.__code__, function.__globals__, function.__name__, function.__defaults__)
    original.__kwdefaults__ = function.__kwdefaults__
    monkeypatch.setitem(function.__globals__, "_changed", lambda *args, **kwargs: change(original, *args, **kwargs))
    monkeypatch.setattr(function, "__signature__", inspect.signature(function), raising=False)
    monkeypatch.setattr(function, "__code__", (lambda *args, **kwargs: _changed(*args, **kwargs)).__code__)  # noqa: F821


def negated(original, *args, **kwargs):
    return -original(*args, **kwargs)


def unmasked(original, mask, *args, **kwargs):
    return original(mask | True, *args, **kwargs)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "function", "change", "moves"),
    [
        ("ch12", policy_losses.ppo_clip, negated, "reuse_clip_loss_0"),
        ("ch12", aggregation.token_mean, unmasked, "cold_grad_norm"),
        ("ch13", policy_losses.ppo_clip, negated, "grpo_grad_norm_1"),
        ("ch13", aggregation.token_mean, unmasked, "reinforce_pp_grad_norm_0"),
        ("ch14", pairs.dpo, negated, "dpo_loss_0"),
    ],
    ids=lambda value: value if isinstance(value, str) else value.__name__,
)
def test_a_mistake_in_an_equation_moves_the_probe(name, function, change, moves, monkeypatch):
    stored = evidence.read(STUDIES[name].result)["probe"]
    wrap(monkeypatch, function, change)
    moved = [text.split()[0] for text in probe.moved(stored, STUDIES[name].load().probe(), {})]
    assert moves in moved and len(moved) < len(stored)


@pytest.mark.parametrize("broken", [float("nan"), float("inf")])
def test_a_number_that_is_none_proves_nothing(broken):
    with pytest.raises(ValueError, match="expected finite numbers"):
        evidence.margin([broken, 1.0, 2.0], 0.5)
    with pytest.raises(ValueError, match="expected finite numbers"):
        evidence.differences({"a": [broken, 0.5, 0.6], "b": [0.1, 0.2, 0.3]})
