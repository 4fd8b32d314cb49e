"""Asking a submission, in this process and in a box: the same questions, the same answers."""

import time

import pytest
import torch
from facts import raises

from minirlhf.core import provenance
from minirlhf_course.classroom import exercise as sources
from minirlhf_course.classroom import grading
from minirlhf_course.classroom.runner import Limits, Local, SandboxedSubmission, Server
from minirlhf_course.classroom.submission import Section, StudentSubmission
from minirlhf_course.classroom.testing import Asked, Failure

ROOT = provenance.ROOT / "exercises"
X = torch.tensor([1.0, 2.0], dtype=torch.float64)

CODE = """
import numpy
import torch
from minirlhf_course.classroom import check

letter, count, nothing, many = " B", 3, None, [1, 2]

def double(x, *, plus=0):
    return 2 * x + plus

def square(x, y):
    return (x * x * y).sum()

def array(x):
    return numpy.asarray(x) * 2

def spoil(x):
    x.zero_()
    return x

def fails(x):
    return {}["key"]

def later(x):
    raise NotImplementedError

def strange(x):
    return lambda: x

calls = 0

def counts():
    global calls
    calls += 1
    return calls

check("05.1", double)
"""


@pytest.fixture(scope="module")
def server():
    with Server([ROOT]) as running:
        yield running


@pytest.fixture(params=["here", "boxed"])
def sub(request, server):
    """The submission, asked in either way."""
    if request.param == "here":
        space = {}
        exec(CODE.replace("from minirlhf_course.classroom import check", "check = print"), space)
        yield Asked(Local(space, "ada"))
    else:
        boxed = SandboxedSubmission(server, [("cell 1", CODE)], {}, "ada", Limits())
        yield Asked(boxed)
        boxed.close()


def test_submission_answers_calls_values_and_gradients(sub):
    assert sub.student == "ada"
    assert torch.equal(sub.double(X, plus=1), 2 * X + 1)
    assert torch.equal(sub.array(X), 2 * X)
    assert sub.value("count") == 3 and sub.number("count") == 3.0
    assert sub.choice("letter", "abc") == "b"
    assert torch.equal(sub.gradient("square", X, 3 * X), 6 * X * X)
    assert torch.equal(sub.gradient("square", X, 3 * X, wrt=1), X * X)
    assert [sub.counts(), sub.counts()] == [1, 2]


def test_submission_gets_copies_of_inputs(sub):
    x = X.clone()
    assert torch.equal(sub.spoil(x), torch.zeros(2, dtype=torch.float64))
    assert torch.equal(x, X)


@pytest.mark.parametrize(
    ("ask", "facts"),
    [
        (lambda sub: sub.absent(X), {"argument": "absent", "problem": "missing"}),
        (lambda sub: sub.value("nothing"), {"argument": "nothing", "problem": "none"}),
        (lambda sub: sub.number("letter"), {"argument": "letter", "expected": float}),
        (lambda sub: sub.number("many"), {"argument": "many", "expected": float}),
        (lambda sub: sub.choice("letter", "cd"), {"argument": "letter", "value": " B", "expected": "cd"}),
        (lambda sub: sub.choice("count", "abc"), {"argument": "count", "value": 3}),
        (lambda sub: sub.later(X), {"problem": "unwritten"}),
        (lambda sub: sub.strange(X), {"problem": "type"}),
        (lambda sub: sub.gradient("counts"), {"problem": "raised"}),
        (lambda sub: sub.gradient("array", X), {"problem": "raised"}),
    ],
)
def test_submission_failure_carries_facts(sub, ask, facts):
    with raises(Failure, **facts):
        ask(sub)


@pytest.mark.parametrize(
    ("ask", "error"), [(lambda sub: sub.fails(X), "KeyError: 'key'"), (lambda sub: sub.double(), "TypeError")]
)
def test_submission_failure_names_error_of_answer(sub, ask, error):
    with raises(Failure, problem="raised") as caught:
        ask(sub)
    assert caught.value.value.startswith(error) and caught.value.value in caught.value.message


def test_asked_private_name_raises(sub):
    with pytest.raises(AttributeError):
        sub._private(X)


def test_boxed_error_names_cell_and_line(server):
    boxed = SandboxedSubmission(
        server, [("cell 1", "x = 1"), ("cell 2", "def f():\n    y = 2\n    return y / 0")], {}, "ada", Limits()
    )
    with raises(Failure, value="ZeroDivisionError: division by zero (cell 2, line 3)"):
        boxed.call("f", (), {})
    boxed.close()


def test_boxed_student_is_defined_before_cells_run(server):
    boxed = SandboxedSubmission(server, [("cell 1", "mine = STUDENT + '!'")], {}, "ada", Limits())
    assert boxed.value("mine") == "ada!"
    boxed.close()


@pytest.mark.parametrize(("code", "imported"), [("torch.optim", True), ("torch", False)])
def test_boxed_finds_compiler_of_optimisers_imported_only_where_it_optimises(code, imported):
    """Else every submission pays seconds of its own time for it."""
    cell = f"import sys, torch\nimported = 'torch._dynamo' in sys.modules\nuses = {code}"
    with Server([ROOT]) as fresh:
        boxed = SandboxedSubmission(fresh, [("cell 1", cell)], {}, "ada", Limits())
        assert boxed.value("imported") is imported
        boxed.close()


def test_boxed_has_library_of_exercise_only(server):
    library = sources.load(ROOT, ["05.5"])[0].library
    code = "from minirlhf_course.ledger.registry import Draw\nfirst = Draw('x').normal(2)\ntry:\n    import minirlhf.equations\nexcept ImportError:\n    other = 1"
    boxed = SandboxedSubmission(server, [("cell 1", code)], library, "ada", Limits())
    from minirlhf_course.ledger.registry import Draw

    assert torch.equal(boxed.value("first"), Draw("x").normal(2))
    assert boxed.value("other") == 1
    boxed.close()


def section(exercise, code):
    return StudentSubmission({exercise.id: [Section("a.py", [], [("cell 1", f"{exercise.given}\n{code}")])]})


def test_grade_answer_crash_costs_only_its_tests(server, suite_seed):
    (exercise,) = sources.load(ROOT, ["05.1"])
    code = f"{exercise.solution}\nimport os\n\ndef best_policy(ref, rewards, beta):\n    os._exit(1)\n"
    outcome = grading.grade_answer(server, exercise, section(exercise, code), "ada", suite_seed)
    assert [r.passed for r in outcome.results] == [False, True, False]
    assert [r.problem for r in outcome.results] == ["ended", "", "ended"]


def test_grade_answer_endless_loop_ends_exercise(server, suite_seed):
    (exercise,) = sources.load(ROOT, ["05.1"])
    code = f"{exercise.solution}\ndef best_policy(ref, rewards, beta):\n    while True: pass\n"
    limits = Limits(cpu=1, wall=120)
    outcome = grading.grade_answer(server, exercise, section(exercise, code), "ada", suite_seed, limits)
    assert outcome.points == 0
    assert outcome.results[0].problem == "timeout" and len({r.message for r in outcome.results}) == 1


@pytest.mark.slow
def test_boxed_counts_time_of_submission_only(server):
    boxed = SandboxedSubmission(
        server, [("cell 1", "import time\ndef f(seconds):\n    time.sleep(seconds)\n    return 1")], {}, "ada", Limits()
    )
    assert boxed.call("f", (0.0,), {}) == 1
    before = boxed._box._left
    time.sleep(0.3)
    assert boxed._box._left == before, "the grader slept, and the submission paid"
    assert boxed.call("f", (0.3,), {}) == 1
    assert before - boxed._box._left >= 0.3, "the submission slept, and paid nothing"
    boxed.close()
