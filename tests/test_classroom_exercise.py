"""Reading an exercise's source, and what its tests are written with."""

import math

import pytest
import torch
from facts import raises

import minirlhf_cli as cli
from minirlhf.core import provenance
from minirlhf.core.errors import UserError
from minirlhf_course.classroom import exercise as sources
from minirlhf_course.classroom import grading, proof, testing
from minirlhf_course.classroom.grading import run_tests
from minirlhf_course.classroom.runner import Limits, Local
from minirlhf_course.classroom.testing import Failure, expect, show, tidy_distribution
from minirlhf_course.ledger.registry import Draw

ROOT = provenance.ROOT / "exercises"

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
from minirlhf_course.classroom.testing import expect, test

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


def test_exercise_read_splits_source_into_parts(tmp_path):
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


def test_exercise_read_accepts_example_of_exercises_readme(tmp_path, suite_seed):
    text = (ROOT / "README.md").read_text(encoding="utf-8").split("```python\n")[1].split("```")[0]
    e = sources.read(write(tmp_path, text))
    for code, passed in ((e.solution, True), (e.mutants[0].code, False), (e.stub, False)):
        space = {}
        exec(f"{e.given}\n{code}", space)
        outcome = run_tests(e, Local(space, "ada"), suite_seed)
        assert (outcome.reason == "") == passed
    assert e.mutants[0].caught_by == e.tests[0].name


def test_exercise_library_is_what_public_blocks_import(tmp_path):
    library = sources.read(write(tmp_path)).library
    assert set(library) == {"minirlhf/__init__.py", "minirlhf/core/__init__.py", "minirlhf/core/masking.py"}


def test_exercise_hidden_test_that_raises_keeps_its_line(tmp_path):
    path = write(tmp_path, SOURCE.replace("    x = draw.normal(3)\n", "    x = 1 / 0\n"))
    (found,) = sources.read(path).tests
    with pytest.raises(ZeroDivisionError) as caught:
        found.run(None, Draw(0))
    frame = caught.traceback[-1]
    assert path.read_text().splitlines()[frame.lineno].strip() == "x = 1 / 0"


@pytest.mark.parametrize(
    ("old", "new", "facts"),
    [
        ("# ---\n# title", "# title", {"argument": "header", "problem": "missing"}),
        ("# title: Twice: a first step\n", "", {"argument": "title, minutes", "value": "5"}),
        ("# minutes: 5", "# minutes: some", {"argument": "title, minutes", "value": "some"}),
        ("# minutes: 5", "# minuts: 5", {"value": "minuts", "expected": "minutes"}),
        ("# minutes: 5", "#minutes", {"argument": "header", "value": "#minutes"}),
        ("kind: implement", "kind: implment", {"value": "implment", "expected": "implement"}),
        ("# %% [stub]", "# %% [stup]", {"value": "stup", "expected": "stub"}),
        ("# %% [solution]", "# %% [stub]", {"argument": "stub", "problem": "duplicate"}),
        ("# %% [solution]\ndef twice(x):\n    return 2 * x\n", "", {"argument": "solution", "problem": "missing"}),
        ("# caught by: doubles\n", "", {"argument": "mutant", "line": 35}),
        ("[partial] 1.5: nearly", "[partial] nearly", {"argument": "partial", "value": "nearly"}),
        ("hints=(", "hint=(", {"argument": "tests", "value": "TypeError", "line": 28}),
        ('hints=("Add.", "x + x.")', 'hints=("Add.",)', {"argument": "tests", "value": "ValueError", "line": 28}),
        ("import expect, test", "import expects, test", {"argument": "tests", "value": "ImportError", "line": 26}),
        ("import torch\n", "import torhc\n", {"argument": "given", "value": "ModuleNotFoundError", "line": 13}),
        ("    return 2 * x", "    return 2 *", {"argument": "solution", "problem": "syntax", "line": 23}),
        ("    return x * x\n", "    return x x\n", {"argument": "mutant", "problem": "syntax", "line": 38}),
        ("# minutes: 5", "# minutes: 5\n# seconds: 0", {"argument": "seconds", "value": "0", "expected": 1}),
        ("def twice(x):\n    raise", "def gradient(x):\n    raise", {"value": "gradient", "problem": "reserved"}),
        (SOURCE[SOURCE.index("@test") : SOURCE.index("# %% [mutant]")], "", {"argument": "tests", "problem": "empty"}),
    ],
)
def test_exercise_read_of_malformed_source_raises(old, new, facts, tmp_path):
    assert old in SOURCE
    path = write(tmp_path, SOURCE.replace(old, new, 1))
    with raises(UserError, **facts) as caught:
        sources.read(path)
    assert str(path) in str(caught.value)


def test_exercise_read_of_file_without_number_raises(tmp_path):
    with raises(UserError, value="ex_7.py"):
        sources.read(write(tmp_path, name="ex_7.py"))


@pytest.mark.parametrize(
    ("wanted", "facts"),
    [
        (["99"], {"argument": "chapter", "value": "99"}),
        (["chapter"], {"argument": "chapter"}),
        (["05.77"], {"argument": "exercise", "value": "05.77"}),
    ],
)
def test_exercise_load_of_unknown_exercise_raises(wanted, facts):
    with raises(UserError, problem="unknown", **facts):
        sources.load(ROOT, wanted)


def test_exercise_load_finds_by_chapter_and_number():
    assert [e.id for e in sources.load(ROOT, ["05.2", "05.1"])] == ["05.2", "05.1"]
    assert [e.id for e in sources.load(ROOT, ["prerequisites"])] == [e.id for e in sources.load(ROOT, ["00"])]
    assert [e.id for e in sources.load(ROOT, ["5"])] == [e.id for e in sources.load(ROOT, ["05"])]


def test_exercise_folder_that_is_missing_raises(tmp_path, monkeypatch):
    monkeypatch.setenv("MINIRLHF_EXERCISES", str(tmp_path / "nowhere"))
    with raises(UserError, file=str(tmp_path / "nowhere")):
        sources.folder()
    monkeypatch.setenv("MINIRLHF_EXERCISES", str(ROOT))
    assert sources.folder() == ROOT


# -- expect ------------------------------------------------------------------------------------------------------

WANT = torch.tensor([1.0, 2.0])


@pytest.mark.parametrize(
    ("got", "want"),
    [
        *((got, WANT) for got in (WANT, WANT.float(), WANT + 1e-7, torch.tensor([1, 2]))),
        *((2, 2.0), (2.0, torch.tensor(2.0)), (torch.tensor(2), 2.0), (float("inf"), float("inf"))),
    ],
)
def test_expect_accepts_right_answer(got, want):
    expect(got, want)


@pytest.mark.parametrize(
    ("got", "facts", "mistakes"),
    [
        (None, {"problem": "none"}, ()),
        ([1.0, 2.0], {"problem": "type", "value": "list"}, ()),
        ("text", {"problem": "type", "value": "str"}, ()),
        (torch.zeros(3), {"problem": "shape", "value": (3,), "expected": (2,)}, ()),
        (torch.zeros(2, 1), {"problem": "shape", "value": (2, 1)}, ()),
        (torch.zeros(()), {"problem": "shape", "value": ()}, ()),
        (torch.tensor([1.0, float("nan")]), {"problem": "not finite"}, ()),
        (torch.tensor([1.0, float("inf")]), {"problem": "not finite"}, ()),
        (torch.tensor([2.0, 1.0]), {"problem": "mistake"}, ("it is turned round",)),
        (torch.tensor([2.0, 4.0]), {"problem": "mistake"}, ("that is twice as much",)),
        (torch.tensor([2.0, 2.0]), {"problem": "wrong"}, ()),
    ],
)
def test_expect_recognises_mistake(got, facts, mistakes):
    known = {"it is turned round": WANT.flip(0), "nothing was done": WANT, "that is twice as much": 2 * WANT}
    with raises(Failure, **facts) as caught:
        expect(got, WANT, mistakes=known)
    assert caught.value.named == mistakes and all(name in caught.value.message for name in mistakes)


def test_expect_failure_shows_inputs_and_answers_unless_hidden():
    with pytest.raises(Failure) as caught:
        expect(torch.tensor([2.0, 2.0]), WANT, given={"x": torch.tensor([0.5])})
    assert caught.value.lines == ("x = [0.5]", "yours:    [2, 2]", "expected: [1, 2]")
    with pytest.raises(Failure) as caught:
        expect(torch.tensor([2.0, 2.0]), WANT, reveal=False)
    assert caught.value.lines == ("yours: [2, 2]",)


def test_expect_failure_of_large_tensor_shows_worst_entry():
    want = torch.zeros(4, 5)
    got = want.clone()
    got[2, 3] = 7.0
    with pytest.raises(Failure) as caught:
        expect(got, want)
    assert caught.value.lines == ("at [2, 3]: yours 7, expected 0",)


def test_show_shortens_long_values():
    assert show(torch.zeros(100)) == "(a tensor of shape (100,))"
    assert len(show("x" * 1000)) == 200


def test_tidy_distribution_is_positive_and_sums_to_one(suite_seed):
    draw = Draw(suite_seed)
    for size in (2, 4, 20):
        probs = tidy_distribution(draw, size)
        assert probs.shape == (size,)
        assert bool((probs > 0.049).all())
        assert float(probs.sum()) == pytest.approx(1.0)
    with pytest.raises(ValueError, match="21"):
        tidy_distribution(draw, 21)


@pytest.mark.parametrize(
    ("asks", "arguments"),
    [
        ("asks", {"points": 0, "hints": ("a", "b")}),
        ("asks", {"points": 1, "hints": ("a",)}),
        ("asks", {"points": 1, "hints": ("a", "")}),
        ("", {"points": 1, "hints": ("a", "b")}),
    ],
)
def test_testing_test_without_points_hints_or_docstring_raises(asks, arguments):
    def named(sub, draw):
        return None

    named.__doc__ = asks
    with pytest.raises(ValueError, match="named"):
        testing.test(**arguments)(named)


@pytest.mark.parametrize(("got", "problem"), [(-0.5, "sign"), (50.0, "percent"), (0.52, "near"), (0.7, "wrong")])
def test_expect_of_wrong_number_names_kind(got, problem):
    with raises(Failure, problem=problem):
        expect(got, 0.5, what="`x`", tolerance=0.01, reveal=False)


@pytest.mark.parametrize(
    ("got", "right", "problem"),
    [
        (0.33, 1 / 3, "rounded"),
        (0.3, 1 / 3, "wrong"),  # one digit may come from anywhere
        ([0.3, 0.7, 0.1], [0.312, 0.68, 0.11], "rounded"),
        ([[0.3, 0.3], [0.6, 0.4]], [[0.2, 0.8], [0.6, 0.4]], "sum"),
        ([-0.2, 1.2], [0.2, 0.8], "negative"),
        ([0.3, 0.7], [0.2, 0.8], "wrong"),
        ([0.3, 0.3], [0.0, 1.0], "wrong"),  # one hot is a choice as often as a distribution
        ([0.3, 0.3], [0.2, 0.9], "wrong"),
        (0.9, 0.3, "multiple"),
        (0.1, 0.3, "fraction"),
        (4.0, 0.25, "reciprocal"),
        (0.09, 0.3, "square"),
        (0.3, 0.09, "root"),
        (math.log(0.3), 0.3, "exponential"),
        (math.exp(0.3), 0.3, "logarithm"),
        (0.3 / math.log(2), 0.3, "bits"),
        (0.3 * math.log(2), 0.3, "nats"),
        ([[1.0, 5.0], [7.0, 4.0]], [[1.0, 7.0], [5.0, 4.0]], "transposed"),
        ([1.5, 3.5, 9.5], [1.0, 3.0, 9.0], "shifted"),
        ([3.0, 9.0, 1.0], [1.0, 3.0, 9.0], "reordered"),
    ],
)
def test_expect_names_relation_to_right_answer(got, right, problem):
    got = torch.tensor(got, dtype=torch.float64)
    with raises(Failure, problem=problem):
        expect(got, torch.tensor(right, dtype=torch.float64), what="`x`")


def test_tidy_and_expect_show_no_rounding_noise():
    assert show(testing.tidy(torch.tensor([-0.01]))) == "[0]"
    with pytest.raises(Failure) as caught:
        expect(torch.ones(2), torch.tensor([-1e-14, 0.3]))
    assert caught.value.lines[-1] == "expected: [0, 0.3]"


# -- what authors use --------------------------------------------------------------------------------------------


@pytest.fixture
def course(tmp_path, monkeypatch):
    (tmp_path / "07_name").mkdir()
    monkeypatch.setenv("MINIRLHF_EXERCISES", str(tmp_path))
    return tmp_path


@pytest.mark.parametrize("kind", sources.KINDS)
def test_new_exercise_of_kind_proves_itself(kind, course, capsys):
    assert cli.dispatch(["class", "new-exercise", "7.2", "--kind", kind, "--title", "One more"]) == 0
    assert cli.dispatch(["class", "check-exercise", "07.2", "--all"]) == 0
    shown = capsys.readouterr().out
    assert "✓ 07.2 One more" in shown and "✗" not in shown
    assert sources.read(course / "07_name" / "ex_07_2.py").kind == kind


@pytest.mark.parametrize(
    ("arguments", "facts"),
    [
        (["7"], {"argument": "exercise", "value": "7"}),
        (["7.0"], {"argument": "exercise", "value": "7.0"}),
        (["8.1"], {"argument": "chapter", "value": "08"}),
        (["7.1", "--kind", "numerical"], {"argument": "kind", "expected": "numeric"}),
        (["7.1", "--title", " "], {"argument": "--title"}),
        (["7.3"], {"problem": "exists"}),
    ],
)
def test_new_exercise_with_bad_arguments_raises(arguments, facts, course):
    write(course)
    with raises(UserError, **facts):
        cli.dispatch(["class", "new-exercise", *arguments])
    assert [p.name for p in (course / "07_name").iterdir()] == ["ex_07_3.py"]


@pytest.mark.parametrize(
    ("old", "new", "claim", "fact"),
    [
        ("    return 2 * x", "    return 3 * x", "solution", ""),
        ("    return 2 * x", "    return 1 / 0", "solution", "ZeroDivisionError"),
        ("    raise NotImplementedError", "    return x + x", "stub", "2"),
        ("    return x * x", "    return x + x", "squares", ""),
        ("# says: x is squared", "# says: x is cubed", "squares", "'x is cubed'"),
        ("# caught by: doubles", "# caught by: halves", "squares", "'halves'"),
        ("[partial] 1.5", "[partial] 1", "nearly", "1"),
        ("def twice(x):\n    return x * x", "1 / 0", "squares", "ZeroDivisionError"),
    ],
)
def test_proof_finds_claim_that_does_not_hold(old, new, claim, fact, course, capsys):
    assert old in SOURCE
    path = write(course, SOURCE.replace(old, new, 1))
    failed = {c.key: c.problem for c in proof.prove(sources.read(path), 1, 1) if c.problem}
    assert fact in failed[claim]
    assert cli.dispatch(["class", "check-exercise", "07.3", "--rounds", "1"]) == 1
    assert fact in capsys.readouterr().out


def test_exercise_limits_follow_header_seconds(tmp_path):
    e = sources.read(write(tmp_path, SOURCE.replace("# minutes: 5", "# minutes: 5\n# seconds: 30")))
    assert grading.exercise_limits(e).cpu == 30 and grading.exercise_limits(e).wall == 180
    assert grading.exercise_limits(sources.read(write(tmp_path))) == Limits()


def test_expect_relates_random_wrong_number_to_right_one_in_less_than_one_of_twenty(suite_seed):
    """Also where the tolerance is wide: relations need a match of their own precision."""
    rng, related, count = torch.Generator().manual_seed(suite_seed), 0, 1000
    for _ in range(count):
        luck = torch.rand(2, generator=rng, dtype=torch.float64).tolist()
        right, factor = 10 ** luck[0], 10 ** (2 * luck[1] - 1)
        try:
            expect(factor * right, right, tolerance=0.05)
        except Failure as problem:
            related += problem.problem != "wrong"
    assert related < count / 20


@pytest.mark.parametrize(
    ("subject", "sentence"),
    [
        ("the loss", "the loss is wrong"),
        ("the row means", "the row means are wrong"),
        ("the weights after a step", "the weights after a step are wrong"),
        ("the size of the penalties", "the size of the penalties is wrong"),
        ("the losses beside NaN", "the losses beside NaN are wrong"),
        ("what follows the prompts", "what follows the prompts is wrong"),
        ("the bias", "the bias is wrong"),
        ("`weights`", "`weights` is wrong"),
    ],
)
def test_sentence_agrees_with_noun_of_subject(subject, sentence):
    assert testing.sentence(subject, "is wrong") == sentence
    assert testing.sentence("the losses", "holds NaN") == "the losses hold NaN"


def test_expect_of_wrong_type_uses_right_article():
    with pytest.raises(Failure) as caught:
        expect(1, torch.ones(2), what="the gradient")
    assert "an int" in caught.value.message
