"""Evidence: what makes a study stale and what does not, and that a claim holds only by three deviations between seeds."""

import ast
import contextlib
import functools
import inspect
import json
import math
import re
import shutil
import sys
import types
from dataclasses import dataclass
from itertools import combinations

import pytest
import torch
from facts import raises
from plan import of_chapter

from minirlhf.control import policy_optimisation, trpo
from minirlhf.core import provenance
from minirlhf.core.errors import UserError
from minirlhf.core.randomness import generator
from minirlhf.equations import aggregation, policy_losses
from minirlhf.equations.preference_losses import pairs
from minirlhf.recipes import GRPO, RECIPES, spelling
from minirlhf.stages.pipeline import ASSISTANT_PPO, SFTPlan
from minirlhf.trainers import offline, online, rejection, reward
from minirlhf.trainers.sft import SFTConfig
from minirlhf_cli import dispatch
from minirlhf_course import evidence
from minirlhf_course.evidence import probe, study, t_distribution

# -- claims ------------------------------------------------------------------------------------------------------

NUMBERS = {0: {"high": 1.0, "low": 0.1}, 1: {"high": 1.1, "low": 0.0}, 2: {"high": 0.9, "low": -0.1}}


@pytest.fixture
def seen(tmp_path):
    path = tmp_path / "made_up.json"
    evidence.write(path, {"command": "c"}, NUMBERS)
    return evidence.StudyResults(evidence.read(path))


def test_seen_holds_by_three_standard_deviations(seen):  # the deviation of both is 0.1
    assert seen.values("high") == [1.0, 1.1, 0.9]
    assert seen.holds("high", above=0.69) and not seen.holds("high", above=0.71)
    assert seen.holds("high", below=1.31) and not seen.holds("high", below=1.29)
    assert not seen.holds("high", above=0.69, below=1.29)
    with raises(ValueError, argument="above", problem="missing"):
        seen.holds("high")


def test_seen_exceeds_compares_seed_by_seed(seen):  # differences 0.9, 1.1, 1.0
    assert seen.all_exceed("high", "low") and not seen.all_exceed("low", "high")
    assert not seen.all_exceed("high", "high")


def test_student_two_sided_is_integral_of_density():
    for degrees in (1, 2, 4, 9, 19):
        scale = math.gamma((degrees + 1) / 2) / math.gamma(degrees / 2) / math.sqrt(degrees * math.pi)
        for t in (0.3, 2.0, 7.0):
            x = torch.linspace(-t, t, 20_001, dtype=torch.float64)
            inside = torch.trapezoid(scale * (1 + x**2 / degrees) ** (-(degrees + 1) / 2), x)
            assert t_distribution.two_sided(t, degrees) == pytest.approx(1 - float(inside), abs=1e-7)
            assert t_distribution.quantile(t_distribution.two_sided(t, degrees), degrees) == pytest.approx(t)


def test_student_detectable_is_found_with_stated_power():
    rng = generator("studies")
    for count, alpha in ((5, 0.05), (5, 0.005), (20, 0.05)):
        error = 1 / math.sqrt(count)
        shift = t_distribution.detectable(alpha, count - 1) * error
        noise = torch.randn(40_000, count, generator=rng, dtype=torch.float64) + shift
        t = noise.mean(1) / (noise.std(1) * error)
        assert float((t > t_distribution.quantile(alpha, count - 1)).double().mean()) == pytest.approx(0.8, abs=0.01)


def test_differences_interval_covers_95_percent():
    rng, covered = generator("intervals"), 0
    for _ in range(2000):
        a, b = torch.randn(2, 5, generator=rng).tolist()
        low, high = evidence.differences({"a": a, "b": b})["a", "b"].interval
        covered += low <= 0 <= high
    assert covered / 2000 == pytest.approx(0.95, abs=0.02)


def test_differences_correct_p_by_holm():
    """Sorted, the k-th smallest of m p-values is multiplied by m − k + 1, and is no smaller than the one before."""
    rng = generator("pairs")
    columns = {name: torch.randn(5, generator=rng).tolist() for name in "abcd"} | {"far": [9.0, 9.1, 8.9, 9.2, 8.8]}
    alone = {pair: evidence.differences(columns, [pair])[pair] for pair in combinations(columns, 2)}
    family = evidence.differences(columns)
    ordered = sorted(alone, key=lambda pair: alone[pair].p)
    steps = [min(1.0, (10 - k) * alone[pair].p) for k, pair in enumerate(ordered)]
    assert [family[pair].p for pair in ordered] == pytest.approx([max(steps[: k + 1]) for k in range(10)])
    assert all(
        family[pair].pairs == 10 and family[pair].minimum_detectable_effect > alone[pair].minimum_detectable_effect
        for pair in family
    )
    assert family["a", "far"].significant and family["a", "far"].below == 5 and (-family["a", "far"]).above == 5


def test_differences_without_noise_are_exact():
    found = evidence.differences({"a": [1.0, 2.0, 3.0], "b": [0.0, 1.0, 2.0], "c": [1.0, 2.0, 3.0]})
    assert found["a", "b"].significant and found["a", "b"].interval == (1.0, 1.0)
    assert not found["a", "c"].significant and found["a", "c"].p == 1.0
    assert found["a", "b"].exact
    # a last digit is no noise: without this its t is about 10^16, and a p of 0 would pass for a test
    almost = evidence.differences({"a": [0.1 + 0.2, 0.3, 0.7 - 0.4], "b": [0.0, 0.0, 0.0]})["a", "b"]
    assert almost.exact and almost.significant and almost.interval == (almost.mean, almost.mean)
    none = evidence.differences({"a": [0.1 + 0.2, 0.3, 0.7 - 0.4], "b": [0.3, 0.3, 0.3]})["a", "b"]
    assert none.exact and none.mean == 0.0 and not none.significant
    noisy = evidence.differences({"a": [1.0, 1.0, 1.0 + 1e-9], "b": [0.0, 0.0, 0.0]})["a", "b"]
    assert not noisy.exact and noisy.p < 1e-12 and "1e-12" in noisy.p_value
    with raises(ValueError, argument="columns", value=2, expected=3):
        evidence.differences({"a": [1.0, 2.0], "b": [1.0, 2.0]})
    with pytest.raises(ValueError):
        evidence.differences({"a": [1.0, 2.0, 3.0], "b": [1.0, 2.0]})


def test_seen_difference_of_two_numbers(seen):
    found = seen.difference("high", "low")  # .9, 1.1, 1.0
    assert (found.mean, found.above, found.seeds) == (pytest.approx(1.0), 3, 3)
    assert found.error == pytest.approx(0.1 / math.sqrt(3)) and found.significant
    assert seen.differences(["high", "low"])["high", "low"] == found


def test_evidence_results_are_found_by_name(tmp_path):
    assert {"ch05", "ch20_exact", "ch20_language", "tour"} <= set(evidence.results())
    assert evidence.StudyResults("ch05").values("rloo_2_gap") == evidence.values(evidence.result("ch05"), "rloo_2_gap")
    with raises(UserError, value="ch20_exct", expected="ch20_exact"):
        evidence.StudyResults("ch20_exct")
    with raises(UserError, problem="missing"):
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
from minirlhf_course.evidence import Study

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


def kinds(made_up):
    """The kinds of reasons for which its study is stale."""
    return [reason.kind for reason in made_up.script().stale()]


@pytest.fixture
def made_up(tmp_path, monkeypatch):
    root = tmp_path / "madeup"
    monkeypatch.setattr(provenance, "ROOT", tmp_path)
    monkeypatch.setattr(provenance, "PACKAGES", ("madeup",))
    monkeypatch.setenv("MINIRLHF_CACHE", str(tmp_path / "cache"))
    monkeypatch.syspath_prepend(str(tmp_path))
    repository = MadeUp(root)
    repository.run(monkeypatch)
    yield repository
    for cached in (provenance.source, provenance.imports):
        cached.cache_clear()


def test_study_writes_seeds_and_probe(made_up, monkeypatch, capsys):
    found = made_up.run(monkeypatch)
    assert found["seeds"] == {
        str(seed): {"end": n / 2**60, "late": pytest.approx(0), "most": n**2, "least": (n / 2**59) ** 2}
        for seed, n in enumerate((1, 2, 3))
    }
    assert found["probe"] == {"end": 0.25, "loss_1": 0.25}
    assert "late" in capsys.readouterr().out and made_up.script().stale() == []
    assert len(made_up.run(monkeypatch, "--seeds", "2")["seeds"]) == 2
    assert kinds(made_up) == ["seeds"]
    before = made_up.script().result.read_text()
    capsys.readouterr()
    made_up.run(monkeypatch, "--probe")
    assert json.loads(capsys.readouterr().out) == found["probe"] and made_up.script().result.read_text() == before


def move_an_equation(house):
    (house.root / "equations").mkdir()
    (house.root / "equations" / "__init__.py").write_text("")
    (house.root / "losses.py").rename(house.root / "equations" / "losses.py")
    house.edit("training.py", ("madeup.losses", "madeup.equations.losses"))


STUDY, LAB = "chapters/ch01_walk/study.py", "chapters/ch01_walk/lab.py"
HARMLESS = {
    "an equation is moved": move_an_equation,
    "an equation has another name": lambda house: (
        house.edit("losses.py", ("def squared", "def mean_squared")),
        house.edit("training.py", ("squared", "mean_squared")),
    ),
    "nobody calls it, in the library": lambda house: house.edit("losses.py", ("def squ", "def idle():\n    return 8\n\ndef squ")),
    "docstrings and comments": lambda house: (
        house.edit("losses.py", ("The loss.", "Mean square.")),
        house.edit(LAB, ('"""One run."""', '"""A run."""  # short')),
        house.edit(STUDY, ('"""A walk."""', '"""One walk."""')),
    ),
    "the same sum, otherwise": lambda house: house.edit("training.py", ("x -= rate * 2 * x", "x = x * (1 - 2 * rate)")),
}  # fmt: skip
DECISIVE = {
    "steps in the lab": (lambda house: house.edit(LAB, ("60", "6")), {"code": "study.py, "}),
    "what the script computes": (lambda house: house.edit(STUDY, ("sum(", "max(")), {"code": "lab.py"}),
    "more seeds": (lambda house: house.edit(STUDY, ("seeds=3", "seeds=4")), {"code": "", "seeds": "3 of 4"}),
    "the sign of the gradient": (
        lambda house: house.edit("training.py", ("x -=", "x +=")),
        {"probe": "end 0.25 → 2.25, loss_1 0.25 → 2.25"},
    ),
    "the sign of a loss": (lambda house: house.edit("losses.py", ("return sum", "return -sum")), {"probe": "loss_1 0.25 → -0.25"}),
    "a mask": (lambda house: house.edit("losses.py", (" if m]", "]")), {"probe": "loss_1 0.25 → 40.625"}),
    "no result": (lambda house: (house.chapter / "study.json").unlink(), {"result": ""}),
}  # fmt: skip


@pytest.mark.parametrize("edit", HARMLESS)
def test_study_stays_fresh_after_harmless_edit(edit, made_up):
    before = {path: path.read_text() for path in made_up.root.rglob("*.py")}
    HARMLESS[edit](made_up)
    assert {path: path.read_text() for path in made_up.root.rglob("*.py")} != before
    assert made_up.script().stale() == []


@pytest.mark.parametrize("edit", DECISIVE)
def test_study_is_stale_after_decisive_edit(edit, made_up):
    change, reasons = DECISIVE[edit]
    change(made_up)
    found = made_up.script().stale()
    assert [reason.kind for reason in found] == list(reasons)
    assert all(data in reason for reason, data in zip(found, reasons.values(), strict=True))


def test_study_probe_runs_only_after_code_change(made_up, monkeypatch):
    assert made_up.script().stale() == []
    loaded = []
    load = study.StudyScript.load
    monkeypatch.setattr(study.StudyScript, "load", lambda self: loaded.append(self.name) or load(self))
    made_up.edit("losses.py", ('"""Equations."""', '"""Words."""'))
    assert made_up.script().stale() == [] and loaded == []
    made_up.edit("losses.py", ("def squ", "def idle():\n    return 8\n\ndef squ"))
    assert made_up.script().stale() == [] and loaded == ["ch01"]
    assert made_up.script().stale() == [] and loaded == ["ch01"]
    made_up.edit("losses.py", (" if m]", "]"))
    assert made_up.script().stale() and made_up.script().stale(), "what failed is not remembered"


def test_studies_command_lists_stale_study_and_runs_it(made_up, monkeypatch, capfd):
    made_up.script()
    assert dispatch(["verify", "studies"]) == 0 and "ch01 " in capfd.readouterr().out
    commands = []
    run = lambda command: commands.append(command) or types.SimpleNamespace(returncode=0)
    monkeypatch.setattr("subprocess.run", run)
    assert dispatch(["verify", "studies", "--run"]) == 0 and commands == []
    made_up.edit(LAB, ("60", "6"))
    made_up.script()
    assert dispatch(["verify", "studies"]) == 1 and "lab.py" in capfd.readouterr().out
    assert dispatch(["verify", "studies", "--run"]) == 0
    assert commands == [[sys.executable, "-P", str(made_up.chapter / "study.py")]]


@pytest.mark.parametrize(
    ("argv", "facts"),
    [
        (["ch99"], {"value": "ch99", "problem": "unknown"}),
        (["--record"], {"argument": "--record"}),
        (["--accept", "first"], {"argument": "--accept", "expected": "--record"}),
    ],
)
def test_studies_command_bad_input_raises_user_error(argv, facts, made_up):
    made_up.script()
    with raises(UserError, **facts):
        dispatch(["verify", "studies", *argv])


def test_studies_record_takes_accepted_numbers_of_new_probe_only(made_up, monkeypatch, capfd):
    def record(*accepted):
        made_up.script()
        return dispatch(
            ["verify", "studies", "--record", "ch01", *(word for name in accepted for word in ("--accept", name))]
        )

    result = made_up.script().result
    measured = json.loads(result.read_text())["seeds"]
    made_up.edit(STUDY, ('"loss_1": losses[1]', '"first": losses[0]'))
    # A number that is gone may have moved under its new name: it is given up by name, or not at all.
    with raises(UserError, argument="ch01", value=["loss_1"], problem="moved"):
        record()
    assert record("loss_1") == 0
    assert "loss_1 0.25 →" in capfd.readouterr().out
    found = json.loads(result.read_text())
    assert found["probe"] == {"end": 0.25, "first": 1.0} and found["seeds"] == measured

    # A probe that was rewritten may move a number of before only if somebody names it.
    made_up.edit(STUDY, ('"first": losses[0]', '"first": losses[0] / 2'))
    before = result.read_text()
    with raises(UserError, value=["first"], problem="moved"):
        record()
    with raises(UserError, value=[], expected=["end"], problem="moved"):
        record("first", "end")
    assert result.read_text() == before
    assert record("first") == 0
    said = json.loads(result.read_text())
    assert said["probe"] == {"end": 0.25, "first": 0.5}

    # A new setting is accepted by name also where the probe is the same; one that is gone is not, nor a number that moved.
    result.write_text(json.dumps({**said, "probe": {**said["probe"], "run: width": 4.0}}))
    with raises(UserError, argument="ch01"):
        record("run: width")
    result.write_text(json.dumps(said))
    monkeypatch.setattr(study, "run_probe", lambda _: {**said["probe"], "run: loss": "squared"})
    with raises(UserError, argument="ch01"):
        record()
    assert record("run: loss") == 0
    assert "run: loss nothing → squared" in capfd.readouterr().out


def test_studies_record_takes_edit_of_own_code_that_moves_no_number(made_up, capfd):
    made_up.edit(LAB, ("def walk", "EARLY = 3.5\n\ndef walk"))
    assert kinds(made_up) == ["code"]
    assert dispatch(["verify", "studies", "--record", "ch01"]) == 0
    assert "without effect on its numbers" in capfd.readouterr().out
    assert made_up.script().stale() == []


def test_studies_record_of_moved_probe_raises_user_error(made_up):
    made_up.edit("training.py", ("x -=", "x +="))
    before = made_up.script().result.read_text()
    with raises(UserError, argument="ch01", value=["probe"], problem="changed"):
        dispatch(["verify", "studies", "--record", "ch01"])
    assert made_up.script().result.read_text() == before


def test_study_discover_without_studies_raises_user_error(tmp_path):
    with raises(UserError, argument="studies", problem="missing", file=str(tmp_path)):
        study.discover(tmp_path)


def test_study_script_without_one_seed_and_probe_raises_user_error(tmp_path):
    (tmp_path / "study.py").write_text("STUDY = Study()\n")
    with raises(UserError, argument="STUDY", problem="missing"):
        study.discover(tmp_path)


# -- numbers of a probe ------------------------------------------------------------------------------------------


def test_probe_moved_tolerates_rounding_of_machines():
    stored = {"a": 1.0, "b": math.nan, "c": "grpo", "tiny": 1e-8}
    assert probe.moved(stored, {**stored, "a": 1.002, "tiny": -5e-6}) == {}
    assert probe.moved(stored, {**stored, "a": 1.005}) == {"a": "a 1 → 1.005"}
    assert probe.moved(stored, {**stored, "b": 0.0, "c": "ppo"}) == {"b": "b nan → 0", "c": "c grpo → ppo"}
    assert probe.moved({"a": 1.0}, {"b": 1.0}) == {"a": "a 1 → nothing", "b": "b nothing → 1"}


def test_probe_settings_list_options_of_plan():
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
    with pytest.raises(TypeError):
        probe.settings(broken=[1, 2])


def another(row, name, value):
    """The row with another value of an option, the first that it accepts."""
    for other in (value + 1, value - 1, value / 2):
        with contextlib.suppress(UserError):
            return row.with_(**{name: other})
    raise AssertionError(f"{row.name}: no other value of {name} is accepted")


def test_probe_settings_list_every_option_of_recipes():
    for row in RECIPES.values():
        said = probe.settings(a=row)
        for name, option in row.choices().items():
            if name not in spelling.WORDS and (option.is_number or option.value is None):
                found = [value for key, value in said.items() if re.search(rf"[. ]{name}$", key)]
                assert (probe.NONE_VALUE if option.value is None else option.value) in found, (row.name, name)
                if option.is_number and not isinstance(option.value, bool | None):
                    changed = another(row, name, option.value)
                    assert probe.moved(said, probe.settings(a=changed)), (row.name, name)
    assert probe.moved(probe.settings(a=GRPO), probe.settings(a=GRPO.with_(kl=None)))["a: update.kl"] == (
        "a: update.kl minirlhf.recipes.parts.KLInLoss → none"
    )


def test_probe_moved_tolerates_neutral_new_setting():
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
    assert probe.moved(stored, probe.settings(loss=with_an_option)) == {}
    assert probe.moved(probe.settings(loss=with_an_option), stored) == {}, "nor where it goes again"
    assert probe.moved(stored, probe.settings(loss=with_a_limit)) == {"loss: limit": "loss: limit nothing → 2"}
    assert probe.moved(stored, probe.settings(loss=with_another_default)) == {
        "loss: epsilon": "loss: epsilon 0.2 → 0.3"
    }
    assert probe.moved({}, {"loss_0": 0.0}) == {"loss_0": "loss_0 nothing → 0"}, "a number of a run is no setting"


def test_probe_settings_differ_for_different_plans():
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

    differing = {
        "a value that a function closes over": (scaled(1.5), scaled(2.5)),
        "a value given by position": (functools.partial(by_position, 1.5), functools.partial(by_position, 2.5)),
        "the part whose method it is": (Part(1.5).loss, Part(2.5).loss),
        "a function in a function": (scaled(1.5), other),
        "a function of another library": (torch.nn.functional.relu, torch.nn.functional.silu),
        "a class of another library": (torch.nn.ReLU, torch.nn.Tanh),
    }
    for what, (one, another) in differing.items():
        assert probe.moved(probe.settings(a=one), probe.settings(a=another)), what


# -- the studies of the repository -------------------------------------------------------------------------------

STUDIES = study.discover()
#: One study of each chapter runs its probe in every test run, the first or a quicker one; the probes of the others run before a release.
QUICKER = {name[:4]: name for name in ("ch12_decisions", "ch14_displacement", "ch17_turns")}
PROBED = {name[:4]: name for name in reversed(STUDIES) if name.startswith("ch")} | QUICKER


def rows(names, *marks):
    """Studies as cases of a test, each of its chapter."""
    for name in names:
        if chapter := re.match(r"ch(\d\d)_?(.*)", name):
            yield of_chapter(chapter[1], name, id=chapter[2] or "study", marks=marks)
        else:
            yield pytest.param(name, id=name, marks=marks)


each_study = pytest.mark.parametrize("name", [*rows(STUDIES)])
each_probe = pytest.mark.parametrize(
    "name", [*rows(PROBED.values()), *rows([n for n in STUDIES if n not in PROBED.values()], pytest.mark.release)]
)


#: Studies in which each run has its own test, and how many runs they have.
RUN_BY_RUN = {
    "ch08_frozen": 1,
    "ch16_pretrained": 3,
    "ch16_pretrained_own": 3,
    "ch16_pretrained_rates": 1,
    "ch16_pretrained_selection": 3,
}


@pytest.mark.slow
@each_study
def test_study_code_is_that_measured(name):
    script = STUDIES[name]
    found = evidence.read(script.result)
    assert script.edited(found) == [], "run: minirlhf verify studies"
    # What a tuning study decides is a setting, on seeds that no result uses; no sentence draws an interval from it. The runs of the
    # pretrained model are tested one by one, with their questions as the sample; the page says how many runs there are.
    fewest = 2 if name.endswith("_tuning") else RUN_BY_RUN.get(name, 5)
    assert len(found["seeds"]) >= fewest
    assert callable(script.load().probe)


#: Functions that train, and which of their arguments say how.
LOOPS = {
    online.train_in_env: ("recipe", "config"),
    offline.train_offline: ("recipe", "config"),
    rejection.train_rejection_in_env: ("config",),
    reward.train_reward: ("config",),
    policy_optimisation.train_policy: ("method", "config"),
    trpo.train_trpo: ("config",),
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
    sources = {script.path, *script.own_modules.values()}
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


def wrap(monkeypatch, function, change):
    """Make ``function`` another one wherever it has been imported to: ``change(original, *args, **kwargs)``."""
    function = inspect.unwrap(function)
    original = types.FunctionType(function.__code__, function.__globals__, function.__name__, function.__defaults__)
    original.__kwdefaults__ = function.__kwdefaults__
    monkeypatch.setitem(function.__globals__, "_changed", lambda *args, **kwargs: change(original, *args, **kwargs))
    monkeypatch.setattr(function, "__signature__", inspect.signature(function), raising=False)
    monkeypatch.setattr(function, "__code__", (lambda *args, **kwargs: _changed(*args, **kwargs)).__code__)  # noqa: F821


def noted(plans, arguments, original, *args, **kwargs):
    given = inspect.signature(original).bind(*args, **kwargs)
    given.apply_defaults()
    plans.extend(given.arguments[argument] for argument in arguments)
    return original(*args, **kwargs)


@pytest.mark.slow
@each_probe
def test_study_is_fresh_and_its_probe_says_every_plan(name, monkeypatch):
    script, plans = STUDIES[name], []
    for function, arguments in LOOPS.items():
        wrap(monkeypatch, function, functools.partial(noted, plans, arguments))
    found = study.run_probe(script.load())
    assert probe.moved(evidence.read(script.result)["probe"], found) == {}, "run: minirlhf verify studies --run"
    elsewhere = given(script)
    assert not [plan for plan in plans if not says(found, plan, elsewhere)], (
        "plans that the probe trains by and does not say"
    )


def negated(original, *args, **kwargs):
    return -original(*args, **kwargs)


def unmasked(original, mask, *args, **kwargs):
    return original(mask | True, *args, **kwargs)


@pytest.mark.release
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
def test_study_probe_moves_with_mistake_in_equation(name, function, change, moves, monkeypatch):
    stored = evidence.read(STUDIES[name].result)["probe"]
    wrap(monkeypatch, function, change)
    moved = probe.moved(stored, STUDIES[name].load().probe())
    assert moves in moved and len(moved) < len(stored)


@pytest.mark.parametrize("broken", [float("nan"), float("inf")])
def test_evidence_of_non_finite_numbers_raises_value_error(broken):
    with raises(ValueError, argument="numbers", problem="not finite"):
        evidence.margin([broken, 1.0, 2.0], 0.5)
    with raises(ValueError, argument="columns", problem="not finite"):
        evidence.differences({"a": [broken, 0.5, 0.6], "b": [0.1, 0.2, 0.3]})


def test_real_file_is_the_one_that_the_environment_names(monkeypatch, tmp_path):
    monkeypatch.setenv("MINIRLHF_HH", str(tmp_path))
    assert evidence.real_file("MINIRLHF_HH") == tmp_path
    monkeypatch.delenv("MINIRLHF_HH")
    with raises(UserError, argument="MINIRLHF_HH", problem="missing"):
        evidence.real_file("MINIRLHF_HH")
