"""Reading an exercise's source, and what its tests are written with."""

import pytest
import torch

from minirlhf import cli
from minirlhf.classroom import exercise as sources
from minirlhf.classroom import grading, testing
from minirlhf.classroom.grading import run_tests
from minirlhf.classroom.runner import Limits, Local
from minirlhf.classroom.testing import Failure, expect, show, tidy_distribution
from minirlhf.core import provenance
from minirlhf.core.errors import UserError
from minirlhf.ledger.registry import Draw

ROOT = provenance.PACKAGE.parent / "exercises"

SOURCE = """# ---
# title: Twice: a first step
# kind: implement
# minutes: 5
# ---

# %% [statement]
# Write `twice(x)`, which doubles
#
# $$x.$$

# %% [given]
import torch

from minirlhf.core.masking import masked_mean

# %% [stub]
def twice(x):
    raise NotImplementedError

# %% [solution]
def twice(x):
    return 2 * x

# %% [tests]
from minirlhf.classroom.testing import expect, test

@test(points=2, hints=("Add.", "x + x."))
def doubles(sub, draw):
    "`twice` doubles."
    x = draw.normal(3)
    expect(sub.twice(x), x + x, given={"x": x}, mistakes={"x is squared": x * x})

# %% [mutant] squares
# caught by: doubles
# says: x is squared
def twice(x):
    return x * x

# %% [partial] 1.5: nearly
def twice(x):
    return x
"""


def write(folder, text=SOURCE, name="ex_07_3.py"):
    path = folder / "07_name" / name
    path.parent.mkdir(exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


def test_a_source_is_read_into_its_parts(tmp_path):
    e = sources.read(write(tmp_path))
    assert (e.id, e.chapter, e.title, e.kind, e.minutes, e.points) == (
        "07.3",
        "07",
        "Twice: a first step",
        "implement",
        5,
        2,
    )
    assert e.statement == "Write `twice(x)`, which doubles\n\n$$x.$$"
    assert e.stub == "def twice(x):\n    raise NotImplementedError"
    assert e.asks == {"twice": "function"}
    assert not e.is_personal
    (mutant,) = e.mutants
    assert (mutant.note, mutant.caught_by, mutant.says) == ("squares", "doubles", "x is squared")
    (partial,) = e.partials
    assert (partial.points, partial.note) == (1.5, "nearly")


def test_the_example_in_the_guide_is_an_exercise(tmp_path, fresh_seed):
    text = (ROOT / "README.md").read_text(encoding="utf-8").split("```python\n")[1].split("```")[0]
    e = sources.read(write(tmp_path, text))
    for code, passed in ((e.solution, True), (e.mutants[0].code, False), (e.stub, False)):
        space = {}
        exec(f"{e.given}\n{code}", space)
        outcome = run_tests(e, Local(space, "ada"), fresh_seed)
        assert (outcome.reason == "") == passed
    assert e.mutants[0].caught_by == e.tests[0].name


def test_the_library_is_what_the_public_blocks_import(tmp_path):
    library = sources.read(write(tmp_path)).library
    assert set(library) == {"minirlhf/__init__.py", "minirlhf/core/__init__.py", "minirlhf/core/masking.py"}


def test_a_test_that_fails_by_itself_names_its_line(tmp_path):
    path = write(tmp_path, SOURCE.replace("    x = draw.normal(3)\n", "    x = 1 / 0\n"))
    (found,) = sources.read(path).tests
    with pytest.raises(ZeroDivisionError) as caught:
        found.run(None, Draw(0))
    frame = caught.traceback[-1]
    assert path.read_text().splitlines()[frame.lineno].strip() == "x = 1 / 0"


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("# ---\n# title", "# title", "expected a header"),
        ("# title: Twice: a first step\n", "", "needs a title and minutes"),
        ("# minutes: 5", "# minutes: some", "needs a title and minutes"),
        ("# minutes: 5", "# minuts: 5", "did you mean 'minutes'"),
        ("# minutes: 5", "#minutes", "expected '# name: value'"),
        ("kind: implement", "kind: implment", "did you mean 'implement'"),
        ("# %% [stub]", "# %% [stup]", "did you mean 'stub'"),
        ("# %% [solution]", "# %% [stub]", "a second [stub]"),
        ("# %% [given]", "# %% [solution]", "a second [solution]"),
        ("# caught by: doubles\n", "", "'caught by:' on the next"),
        ("[partial] 1.5: nearly", "[partial] nearly", "a partial answer begins like"),
        ("@test(points=2", "other = dict(points=2", "defines no @test"),
        (
            "hints=(",
            "hint=(",
            "line 28: [tests] stops with TypeError: test() got an unexpected keyword argument 'hint'",
        ),
        ('hints=("Add.", "x + x.")', 'hints=("Add.",)', "line 28: [tests] stops with ValueError: test doubles"),
        ("points=2", "points=-2", "expected points > 0"),
        ('    "`twice` doubles."\n', "", "has no docstring"),
        ("import expect, test", "import expects, test", "line 26: [tests] stops with ImportError"),
        ("import torch\n", "import torhc\n", "line 13: [given] stops with ModuleNotFoundError"),
        ("    return 2 * x", "    return 2 *", "line 23: [solution] is no Python"),
        ("    return x * x\n", "    return x x\n", "line 38: [mutant] is no Python"),
        ("# minutes: 5", "# minutes: 5\n# seconds: 0", "expected a whole number of seconds"),
    ],
)
def test_a_malformed_source_says_what_is_wrong(old, new, says, tmp_path):
    assert old in SOURCE
    text = SOURCE.replace(old, new, 1)
    if says == "defines no @test":
        text = (
            text.split("@test")[0].split("@dict")[0].split("other = dict")[0]
            + "\n# %% [mutant] squares\n# caught by: x\n"
        )
    with pytest.raises(UserError, match="07_name") as caught:
        sources.read(write(tmp_path, text))
    assert says in str(caught.value)


def test_a_name_that_the_test_s_own_view_has_cannot_be_asked_for(tmp_path):
    with pytest.raises(UserError, match=r"sub\.gradient is something else"):
        sources.read(write(tmp_path, SOURCE.replace("def twice(x):\n    raise", "def gradient(x):\n    raise")))


def test_missing_blocks_and_names_are_named(tmp_path):
    with pytest.raises(UserError, match=r"no block \[solution\]"):
        sources.read(write(tmp_path, SOURCE.replace("# %% [solution]\ndef twice(x):\n    return 2 * x\n", "")))
    with pytest.raises(UserError, match=r"a name like ex_05_2\.py"):
        sources.read(write(tmp_path, name="ex_7.py"))


@pytest.mark.parametrize(
    ("wanted", "says"),
    [(["99"], "unknown chapter '99'"), (["chapter"], "unknown chapter"), (["05.77"], "unknown exercise '05.77'")],
)
def test_unknown_exercises_get_the_nearest_name(wanted, says):
    with pytest.raises(UserError, match=says):
        sources.load(ROOT, wanted)


def test_exercises_are_found_by_chapter_and_number():
    assert [e.id for e in sources.load(ROOT, ["05.2", "05.1"])] == ["05.2", "05.1"]
    assert [e.id for e in sources.load(ROOT, ["prerequisites"])] == [e.id for e in sources.load(ROOT, ["00"])]
    assert [e.id for e in sources.load(ROOT, ["5"])] == [e.id for e in sources.load(ROOT, ["05"])]


def test_a_missing_folder_says_so(tmp_path, monkeypatch):
    monkeypatch.setenv("MINIRLHF_EXERCISES", str(tmp_path / "nowhere"))
    with pytest.raises(UserError, match="nowhere"):
        sources.folder()
    monkeypatch.setenv("MINIRLHF_EXERCISES", str(ROOT))
    assert sources.folder() == ROOT


# -- expect ------------------------------------------------------------------------------------------------------

WANT = torch.tensor([1.0, 2.0])


@pytest.mark.parametrize("got", [WANT, WANT.float(), WANT + 1e-7, torch.tensor([1, 2])])
def test_expect_accepts_what_is_right(got):
    expect(got, WANT)


@pytest.mark.parametrize(
    ("got", "want"), [(2, 2.0), (2.0, torch.tensor(2.0)), (torch.tensor(2), 2.0), (float("inf"), float("inf"))]
)
def test_expect_accepts_numbers(got, want):
    expect(got, want)


@pytest.mark.parametrize(
    ("got", "says"),
    [
        (None, "is a `return` missing"),
        ([1.0, 2.0], "is a list; expected a tensor of shape (2,)"),
        ("text", "is a str"),
        (torch.zeros(3), "has shape (3,); expected (2,)"),
        (torch.zeros(2, 1), "has shape (2, 1)"),
        (torch.zeros(()), "has shape ()"),
        (torch.tensor([1.0, float("nan")]), "NaN or an infinity"),
        (torch.tensor([1.0, float("inf")]), "NaN or an infinity"),
        (torch.tensor([2.0, 1.0]), "the result is what comes out when it is turned round"),
        (torch.tensor([2.0, 4.0]), "the result is wrong: that is twice as much"),
        (torch.tensor([2.0, 2.0]), "the result is wrong"),
    ],
)
def test_expect_says_what_is_wrong(got, says):
    with pytest.raises(Failure) as caught:
        expect(
            got,
            WANT,
            mistakes={"it is turned round": WANT.flip(0), "nothing was done": WANT, "that is twice as much": 2 * WANT},
        )
    assert says in caught.value.message


def test_a_counterexample_shows_inputs_and_both_answers_or_hides_the_right_one():
    with pytest.raises(Failure) as caught:
        expect(torch.tensor([2.0, 2.0]), WANT, given={"x": torch.tensor([0.5])})
    assert caught.value.lines == ("x = [0.5]", "yours:    [2, 2]", "expected: [1, 2]")
    with pytest.raises(Failure) as caught:
        expect(torch.tensor([2.0, 2.0]), WANT, reveal=False)
    assert caught.value.lines == ("yours: [2, 2]",)


def test_a_large_answer_is_shown_at_its_worst_entry():
    want = torch.zeros(4, 5)
    got = want.clone()
    got[2, 3] = 7.0
    with pytest.raises(Failure) as caught:
        expect(got, want)
    assert caught.value.lines == ("at [2, 3]: yours 7, expected 0",)


def test_long_values_are_shortened():
    assert show(torch.zeros(100)) == "(a tensor of shape (100,))"
    assert len(show("x" * 1000)) == 200


def test_tidy_distributions_are_positive_and_sum_to_one(fresh_seed):
    draw = Draw(fresh_seed)
    for size in (2, 4, 20):
        probs = tidy_distribution(draw, size)
        assert probs.shape == (size,)
        assert bool((probs > 0.049).all())
        assert float(probs.sum()) == pytest.approx(1.0)
    with pytest.raises(ValueError, match="size = 21"):
        tidy_distribution(draw, 21)


@pytest.mark.parametrize(
    "arguments", [{"points": 0, "hints": ("a", "b")}, {"points": 1, "hints": ("a",)}, {"points": 1, "hints": ("a", "")}]
)
def test_a_hidden_test_needs_points_and_two_hints(arguments):
    def named(sub, draw):
        "asks"

    with pytest.raises(ValueError, match="named"):
        testing.test(**arguments)(named)


def test_a_hidden_test_needs_a_docstring():
    with pytest.raises(ValueError, match="docstring"):
        testing.test(points=1, hints=("a", "b"))(lambda sub, draw: None)


@pytest.mark.parametrize(
    ("got", "says"),
    [
        (-0.5, "has the wrong sign"),
        (50.0, "a hundred times too large: is it in percent?"),
        (0.52, "near, but not near enough"),
        (0.7, "is wrong"),
    ],
)
def test_what_can_be_said_of_any_wrong_number_is_said(got, says):
    with pytest.raises(testing.Failure, match=says):
        testing.expect(got, 0.5, what="`x`", tolerance=0.01, reveal=False)


@pytest.mark.parametrize(
    ("got", "right", "says"),
    [
        (0.33, 1 / 3, "rounded to 2 decimals"),
        (0.3, 1 / 3, "is wrong"),  # one digit may come from anywhere
        ([0.3, 0.7, 0.1], [0.312, 0.68, 0.11], "rounded to 1 decimal,"),
        ([[0.3, 0.3], [0.6, 0.4]], [[0.2, 0.8], [0.6, 0.4]], "does not sum to 1"),
        ([-0.2, 1.2], [0.2, 0.8], "negative probability"),
        ([0.3, 0.7], [0.2, 0.8], "is wrong"),
        ([0.3, 0.3], [0.0, 1.0], "is wrong"),  # one hot is a choice as often as a distribution
        ([0.3, 0.3], [0.2, 0.9], "is wrong"),
    ],
)
def test_what_an_answer_has_to_do_with_the_right_one_is_said(got, right, says):
    got = torch.tensor(got, dtype=torch.float64)
    with pytest.raises(testing.Failure, match=says):
        testing.expect(got, torch.tensor(right, dtype=torch.float64), what="`x`")


def test_a_counterexample_has_no_noise_in_it():
    assert testing.show(testing.tidy(torch.tensor([-0.01]))) == "[0]"
    with pytest.raises(testing.Failure) as caught:
        testing.expect(torch.ones(2), torch.tensor([-1e-14, 0.3]))
    assert caught.value.lines[-1] == "expected: [0, 0.3]"


# -- what authors use --------------------------------------------------------------------------------------------


@pytest.fixture
def course(tmp_path, monkeypatch):
    (tmp_path / "07_name").mkdir()
    monkeypatch.setenv("MINIRLHF_EXERCISES", str(tmp_path))
    return tmp_path


@pytest.mark.parametrize("kind", sources.KINDS)
def test_a_new_exercise_proves_itself(kind, course, capsys):
    assert cli.main(["new-exercise", "7.2", "--kind", kind, "--title", "One more"]) == 0
    assert cli.main(["prove", "07.2", "--all"]) == 0
    shown = capsys.readouterr().out
    assert "✓ 07.2 One more" in shown and "✗" not in shown
    assert sources.read(course / "07_name" / "ex_07_2.py").kind == kind


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["7"], "expected one like 14.7"),
        (["7.0"], "expected one like 14.7"),
        (["8.1"], "unknown chapter '08'"),
        (["7.1", "--kind", "numerical"], "did you mean 'numeric'"),
        (["7.1", "--title", " "], "--title is empty"),
        (["7.3"], "is there already"),
    ],
)
def test_a_new_exercise_that_cannot_be_made_says_why(arguments, says, course, capsys):
    write(course)
    assert cli.main(["new-exercise", *arguments]) == 2
    assert says in capsys.readouterr().err
    assert [p.name for p in (course / "07_name").iterdir()] == ["ex_07_3.py"]


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        (
            "    return 2 * x",
            "    return 3 * x",
            "the solution earns everything: the solution fails a test: the result is wrong",
        ),
        ("    return 2 * x", "    return 1 / 0", "the solution earns everything: its code raised ZeroDivisionError"),
        ("    raise NotImplementedError", "    return x + x", "the stub earns nothing: it earns 2"),
        ("    return x * x", "    return x + x", "mutant: squares: a wrong answer earned all points"),
        ("# says: x is squared", "# says: x is cubed", "it does not say 'x is cubed'"),
        ("# caught by: doubles", "# caught by: halves", "no test 'halves'; there are doubles"),
        ("[partial] 1.5", "[partial] 1", "partial: nearly: it earns 0, not 1"),
        ("def twice(x):\n    return x * x", "1 / 0", "its code raised ZeroDivisionError"),
    ],
)
def test_a_proof_says_what_does_not_hold(old, new, says, course, capsys):
    assert old in SOURCE
    write(course, SOURCE.replace(old, new, 1))
    assert cli.main(["prove", "07.3", "--rounds", "1"]) == 1
    assert says in capsys.readouterr().out


def test_a_time_limit_of_its_own(tmp_path):
    e = sources.read(write(tmp_path, SOURCE.replace("# minutes: 5", "# minutes: 5\n# seconds: 30")))
    assert grading.exercise_limits(e).cpu == 30 and grading.exercise_limits(e).wall == 180
    assert grading.exercise_limits(sources.read(write(tmp_path))) == Limits()
