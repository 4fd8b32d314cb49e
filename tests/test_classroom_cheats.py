"""Trainings are judged by what they do: handles, one exact step, cheats; and hidden data share nothing with what is read."""

from dataclasses import replace

import pytest
import torch
from facts import raises

from minirlhf.core import provenance
from minirlhf.sandbox.server import Limits
from minirlhf_course.classroom import cheats, exercise, grading, proof, training
from minirlhf_course.classroom.runner import Local, Missing, SandboxedSubmission
from minirlhf_course.classroom.testing import Asked, Failure

ROOT = provenance.ROOT / "exercises"

CODE = """
def push(x):
    return -x

def play(world, n):
    return [world["walk"](i) for i in range(n)], world["size"]

def uses(n):
    return [push(i) for i in range(n)]

def loops(n):
    return sum(i * i for i in range(n))

def clumsy(world):
    try:
        world["walk"]("no number")
    except Exception as problem:
        return type(problem).__name__
"""


@pytest.fixture(params=["local", "boxed"])
def submission(request, server):
    if request.param == "local":
        namespace = {}
        exec(CODE, namespace)
        yield Local(namespace, "ada")
    else:
        boxed = SandboxedSubmission(server, [("cell 1", CODE)], {}, "ada", Limits())
        yield boxed
        boxed.close()


# -- worlds that answer ------------------------------------------------------------------------------------------


def test_handle_answers_and_counts_and_cannot_be_read(submission):
    asked = []

    def walk(step):
        asked.append(step)
        return torch.tensor([10.0 + step])

    answers, size = Asked(submission).play({"walk": walk, "size": 3}, 4)
    assert asked == [0, 1, 2, 3] and [float(x) for x in answers] == [10, 11, 12, 13] and size == 3


def test_handle_returns_error_of_bad_question(submission):
    def walk(step):
        return 1 / step

    assert Asked(submission).clumsy({"walk": walk}) in ("TypeError", "RuntimeError")
    assert Asked(submission).play({"walk": lambda step: step, "size": 0}, 2) == ([0, 1], 0)


def test_in_world_replaces_global_function_during_the_call_only(submission):
    sub = Asked(submission)
    assert sub.in_world(push=lambda x: 100 + x).uses(3) == [100, 101, 102]
    assert sub.uses(3) == [0, -1, -2]


def test_seconds_measure_the_process_of_the_answer(submission):
    short, long = (Asked(submission).seconds("loops", (n,), (n + 1,)) for n in (1000, 1_000_000))
    assert long > 20 * short and long > 0.01
    with raises(Missing, argument="nothing"):
        Asked(submission).seconds("nothing", (1,), (2,))


def test_seconds_are_those_of_inputs_that_differ(submission):
    """A cache of the last answer saves nothing."""
    with pytest.raises(ValueError, match="other inputs"):
        Asked(submission).seconds("loops", (1000,), (1000,))


@pytest.mark.parametrize("trick", ["time.thread_time = time.process_time = lambda: 0.0", "pass"])
def test_seconds_are_measured_by_a_clock_that_a_boxed_answer_cannot_reach(trick, server):
    code = f"import time\n{trick}\ndef loops(n):\n    return sum(range(n))"
    boxed = SandboxedSubmission(server, [("cell", code)], {}, "ada", Limits())
    try:
        short, long = (Asked(boxed).seconds("loops", (n,), (n + 1,)) for n in (1000, 3_000_000))
    finally:
        boxed.close()
    assert long > 0.01 and long > 5 * short


def test_aside_is_not_recorded_for_probes():
    from minirlhf_course.classroom.derivation import Recorder

    recorder = Recorder({"double": lambda x: 2 * x}, "ada")
    sub = Asked(recorder)
    assert sub.double(1.0) == 2.0 and sub.aside.double(2.0) == 4.0
    assert [call.args for call in recorder.calls] == [(1.0,)]


# -- one step -------------------------------------------------------------------------------------------------------

WEIGHTS = torch.linspace(-1, 1, 12, dtype=torch.float64).reshape(3, 4)
GOAL = torch.eye(3, 4, dtype=torch.float64)


def descent(weights, lr):
    return weights + lr * (GOAL - weights.softmax(-1))


def five_times(lr):
    weights = WEIGHTS
    for _ in range(5):
        weights = descent(weights, lr)
    return weights


def test_steps_by_accepts_one_step():
    training.steps_by(lambda lr: descent(WEIGHTS, lr), WEIGHTS, 0.7)
    training.steps_by(lambda lr: descent(WEIGHTS, lr) + 3.0, WEIGHTS, 0.7)  # a constant per row changes no probability


@pytest.mark.parametrize(
    ("step", "value"),
    [
        (lambda lr: descent(WEIGHTS, 0.7), 0.0),
        (lambda lr: 5 * GOAL, 0.0),
        (lambda lr: WEIGHTS, 0.7),
        (five_times, None),
        (lambda lr: descent(WEIGHTS, lr**2), None),
    ],
    ids=["pinned", "overwritten", "nothing", "five times", "squared"],
)
def test_steps_by_refuses(step, value):
    with raises(Failure, argument="lr", problem="rate", **({} if value is None else {"value": value})):
        training.steps_by(step, WEIGHTS, 0.7)


def test_points_along_holds_direction_and_length():
    right = training.moved(descent(WEIGHTS, 1.0), WEIGHTS)
    training.points_along(1.2 * right, right, times=(0.8, 1.25))
    training.points_along(7.0 * right, right)
    with raises(Failure, problem="length", expected=(0.8, 1.25)):
        training.points_along(2.0 * right, right, times=(0.8, 1.25))
    with raises(Failure, problem="sign"):
        training.points_along(-right, right)
    other = right.flip(0)
    with raises(Failure, problem="mistake"):
        training.points_along(3 * other, right, mistakes={"the rows are exchanged": other})


# -- cheats -------------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_bar_alone_lets_cheats_pass():
    """Without the checks beside the bar, cheats of 09.6 earn the points (random centres stop one): what `prove` then says."""
    (source,) = exercise.load(ROOT, ["09.6"])
    keeps = next(t for t in source.tests if isinstance(t, training.Training))
    plain = training.trains(points=2, hints=("a", "b"), bar=keeps.bar, seeds=keeps.seeds)(keeps.curve)
    weak = replace(source, tests=tuple(plain if t is keeps else t for t in source.tests))
    found = [what for what, problem in cheats.tried(weak, 3) if problem]
    assert len(found) >= 2 and any("pinned" in what for what in found)
    assert not [what for what, problem in cheats.tried(source, 3) if problem]


def test_every_training_with_a_rate_asks_more_than_its_bar():
    for source in exercise.load(ROOT):
        for test in source.tests:
            if isinstance(test, training.Training) and {"lr", "seed"} & set(source.stub.replace(",", " ").split()):
                assert test.also, f"{source.id}: {test.name}"


# -- what students read ---------------------------------------------------------------------------------------------------


def test_published_names_constant_of_hidden_data():
    (source,) = exercise.load(ROOT, ["07.7"])
    assert not proof.published(source)
    assert "1.5" in proof.published(replace(source, hidden=f"{source.hidden}\nfelt = 1.5 * length"))
    assert not proof.published(replace(source, hidden=f"{source.hidden}\nfar = x > 1.5"))
    assert not proof.published(replace(source, hidden=f"{source.hidden}\nf = trains(bar=1.5)"))
    shared = replace(source, hidden=f"{source.hidden}\nfelt = 1.5 * length", shared={1.5: "a reason"})
    assert not proof.published(shared)


def test_edge_needs_a_test_and_the_words_of_the_statement():
    (source,) = exercise.load(ROOT, ["13.2"])
    assert source.edges and not [e for e in source.edges if proof.edge(source, *e)]
    assert proof.edge(source, "no_such_test", source.edges[0][1])
    assert proof.edge(source, source.edges[0][0], "words that nobody said")


def test_world_of_corridor_refuses_jumps_and_counts_episodes():
    """03.5: an answer that asks about a state where the agent is not, or walks five times as long, earns nothing."""
    (source,) = exercise.load(ROOT, ["03.5"])
    learns = next(t for t in source.tests if isinstance(t, training.Training))
    right = Local(proof.answer(source, source.solution).namespace, "ada")
    assert not cheats.caught(source, learns, right, 5)
    for cheat in source.cheats:
        namespace = proof.answer(source, source.solution, cheat.code).namespace
        assert cheats.caught(source, learns, Local(namespace, "ada"), 5), cheat.note


def test_boxed_learner_earns_everything(server):
    (source,) = exercise.load(ROOT, ["03.5"])
    cells = [("cell 1", source.given), ("cell 2", source.solution)]
    boxed = SandboxedSubmission(server, cells, source.library, "ada", grading.exercise_limits(source))
    assert grading.run_tests(source, boxed, 7).reason == ""
    boxed.close()
