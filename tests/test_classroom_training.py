"""Exercises that train: paired runs, what stands in for an earlier answer, and what a bar lets through."""

import itertools
import math

import pytest
import torch
from facts import raises

from minirlhf.core.errors import UserError
from minirlhf.data import nano_shell
from minirlhf_course.classroom import chance, checker, grading, proof, side_by_side, training
from minirlhf_course.classroom import exercise as sources
from minirlhf_course.classroom.runner import Limits, Local, Server
from minirlhf_course.classroom.submission import Section, StudentSubmission
from minirlhf_course.classroom.testing import Asked, Failure

pytestmark = pytest.mark.slow

EARLIER = """# ---
# title: A coin
# kind: implement
# minutes: 5
# ---
# %% [statement]
# Write `toss(u)`: whether u is below a half.
# %% [stub]
def toss(u):
    raise NotImplementedError
# %% [solution]
def toss(u):
    return u < 0.5
# %% [tests]
from minirlhf_course.classroom.testing import fail, test
@test(points=2, hints=("Compare.", "With a half."))
def tosses(sub, draw):
    "`toss` compares."
    if sub.toss(0.25) is not True or sub.toss(0.75) is not False:
        fail("wrong side")
# %% [mutant] the other side
# caught by: tosses
def toss(u):
    return u >= 0.5
# %% [mutant] never
# caught by: tosses
def toss(u):
    return False
# %% [mutant] a number
# caught by: tosses
def toss(u):
    return u
"""
# A climb: each step goes up by what `climb` gives, for heads only.
TRAINING = """# ---
# title: A climb
# kind: implement
# minutes: 5
# uses: 91.1
# ---
# %% [statement]
# Write `climb(height)`, the height after heads.
# %% [stub]
def climb(height):
    raise NotImplementedError
# %% [solution]
def climb(height):
    return height + 1.0
# %% [tests]
from minirlhf_course.classroom.training import trains
@trains(points=3, hints=("Up.", "By one."), seeds=4, bar=2.0, what="the height")
def rises(sub, draw):
    "The height rises."
    heights = [0.0]
    for u in draw.uniform(12).tolist():
        heights.append(sub.climb(heights[-1]) if sub.part("91.1").toss(u) else heights[-1])
    return heights
# %% [mutant] half a step
# caught by: rises
def climb(height):
    return height + 0.4
# %% [mutant] down
# caught by: rises
def climb(height):
    return height - 1.0
# %% [mutant] nowhere
# caught by: rises
def climb(height):
    return height
"""


@pytest.fixture
def course(tmp_path):
    """A course of two exercises, of which the second uses the first."""
    folder = tmp_path / "91_coins"
    folder.mkdir()
    (folder / "ex_91_1.py").write_text(EARLIER)
    (folder / "ex_91_2.py").write_text(TRAINING)
    return sources.load(tmp_path)


def grade(exercise, code, seed, earlier=None):
    return grading.run_tests(exercise, proof.answer(exercise, exercise.solution, code), seed, earlier=earlier)


def test_training_solution_passes_and_mutants_fail_by_kind(course, suite_seed):
    climb = course[1]
    assert grade(climb, "", suite_seed).reason == ""
    for mutant, problem in zip(climb.mutants, ("below", "worse", "flat"), strict=True):
        assert proof.mutant(climb, mutant, suite_seed, 2) == ""
        failed = grade(climb, mutant.code, suite_seed).first_failure
        assert failed.problem == problem and bool(failed.named) == (problem != "below")


@pytest.mark.parametrize(("gap", "passes"), [(-1.9, True), (-2.1, False), (5.0, True)])
def test_training_judge_fails_below_bar(gap, passes):
    ours = [[0.0, float(k)] for k in range(5)]
    mine = [[0.0, k + gap] for k in range(5)]  # the same distance on every seed: no width, so the bar itself is asked
    if passes:
        training.judge(mine, ours, 2.0, "the height")
    else:
        with raises(Failure, value=pytest.approx(gap), expected=-2.0, problem="below"):
            training.judge(mine, ours, 2.0, "the height")


def test_training_judge_fails_where_seeds_leave_more_open():
    ours = [[0.0, 0.0]] * 4
    with raises(Failure, value=0.0, problem="below"):
        training.judge([[0.0, x] for x in (-4.0, 4.0, -3.0, 3.0)], ours, 2.0, "the height")


@pytest.mark.parametrize(
    ("mine", "worse"),
    [([[0.0, math.nan]] * 3, None), ([[0.0, -math.inf], [0.0, -9.0], [0.0, -9.0]], "worse")],
)
def test_training_judge_names_run_that_is_not_finite(mine, worse):
    with raises(Failure, value=worse, problem="not finite") as caught:
        training.judge(mine, [[0.0, 1.0]] * 3, 2.0, "the height")
    assert bool(caught.value.named) == bool(worse)


def test_beside_reference_runs_once_for_class(course, suite_seed, monkeypatch):
    climb = course[1]
    grade(climb, "", suite_seed)
    monkeypatch.setattr(side_by_side.Beside, "solution", lambda self: pytest.fail("computed again"))
    assert grade(climb, "", suite_seed).reason == ""


def test_beside_failure_of_earlier_answer_names_its_exercise(course, suite_seed):
    class Stops:
        student = "ada"

        def call(self, name, args, kwargs):
            raise Failure("stopped", value="ZeroDivisionError", problem="raised")

    failed = grade(course[1], "", suite_seed, {"91.1": Stops()}).first_failure
    assert failed.facts["argument"] == "91.1" and failed.problem == "raised"
    assert "91.1" in failed.message and "stopped" in failed.message


def test_beside_part_outside_of_header_raises(course):
    with pytest.raises(ValueError, match=r"02\.6"):
        side_by_side.Beside(course[1], "ada", {}).part("02.6")


def section(exercise, code):
    return [Section("mine.py", [], [("cell 1", f"# exercise {exercise.id}\n{code}")])]


@pytest.mark.parametrize(
    ("toss", "used", "fact"),
    [
        (None, set(), "91.1 (A coin)"),
        ("def toss(u):\n    return u >= 0.5", set(), "0 of 2"),
        ("def toss(u):\n    raise NotImplementedError", set(), "91.1 (A coin)"),
        ("def toss(u):\n    return not u >= 0.5", {"91.1"}, "91.1 (A coin)"),
    ],
)
def test_grade_answer_replaces_missing_or_wrong_earlier_answer(course, toss, used, fact, suite_seed):
    coin, climb = course
    handed = StudentSubmission({climb.id: section(climb, climb.solution)})
    if toss:
        handed.sections[coin.id] = section(coin, toss)
    with Server([coin.path.parent]) as server:
        earlier, _ = grading.earlier_answers(server, climb, handed, "ada", suite_seed, Limits())
        assert set(earlier) == used
        for boxed in earlier.values():
            boxed.close()
        outcome = grading.grade_answer(server, climb, handed, "ada", suite_seed)
    assert outcome.points == climb.points
    (remark,) = outcome.remarks
    assert fact in remark
    assert remark in grading.feedback(grading.Report("ada", (outcome,), ()))
    assert remark in repr(checker.Verdict(outcome))


def test_check_takes_earlier_functions_along(course, suite_seed, monkeypatch):
    monkeypatch.setenv("MINIRLHF_EXERCISES", str(course[0].path.parents[1]))

    def toss(u):
        return u < 0.5

    def climb(height):
        return height + 1

    verdict = checker.check_here("91.2", [climb, toss], {})
    alone = checker.check_here("91.2", [climb], {})
    assert verdict.passed and alone.passed
    assert set(checker.earlier_here(course[1], [climb, toss], "ada", suite_seed)[0]) == {"91.1"}
    assert (
        all("91.1" in v.outcome.remarks[0] for v in (verdict, alone))
        and verdict.outcome.remarks != alone.outcome.remarks
    )
    with raises(UserError, value="grade", problem="unknown"):
        checker.check_here("91.2", [climb, grade], {})


def test_training_bars_measure_against_other_seeds(course, suite_seed):
    measured = {bar.answer: bar for bar in training.bars(course[1], suite_seed, runs=40, comparisons=200)}
    assert measured["down"].passes == measured["nowhere"].passes == 0
    assert 0 < measured["solution"].passes < 1  # twelve coins differ by more than the bar: that is what is measured


@pytest.mark.parametrize("uses", ["2.6", "02.6 03.1", "02"])
def test_exercise_read_with_bad_uses_raises(course, uses):
    path = course[1].path
    path.write_text(TRAINING.replace("# uses: 91.1", f"# uses: {uses}"))
    with raises(UserError, argument="uses"):
        sources.read(path)


@pytest.mark.parametrize(("seeds", "bar"), [(2, 0.1), (5, 0.0)])
def test_trains_with_few_seeds_or_no_bar_raises(seeds, bar):
    with raises(ValueError, value=(seeds, bar)):
        training.trains(points=1, hints=("a", "b"), seeds=seeds, bar=bar)


# -- draws -------------------------------------------------------------------------------------------------------


def test_chance_tails_are_sums_of_definition():
    for trials, p in ((1, 0.3), (7, 0.2), (20, 0.93)):
        chances = [math.comb(trials, k) * p**k * (1 - p) ** (trials - k) for k in range(trials + 1)]
        for count in range(trials + 1):
            below, above = chance.tails(count, trials, p)
            assert below == pytest.approx(sum(chances[: count + 1])) and above == pytest.approx(sum(chances[count:]))
    assert chance.tails(0, 5, 0.0) == (1.0, 1.0) and chance.tails(1, 5, 0.0) == (1.0, 0.0)
    assert chance.tails(5, 5, 1.0) == (1.0, 1.0) and chance.tails(4, 5, 1.0) == (0.0, 1.0)


def test_expect_draws_and_expect_independent_find_wrong_draws(suite_seed):
    rng = torch.Generator().manual_seed(suite_seed)
    probs, other = torch.tensor([0.5, 0.3, 0.2, 0.0]), torch.tensor([0.3, 0.5, 0.2, 0.0])
    draws = torch.multinomial(probs, 1000, replacement=True, generator=rng)
    chance.expect_draws(draws, probs, 1000, "draws")
    with raises(Failure, problem="distribution") as caught:
        chance.expect_draws(draws, other, 1000, "draws", {"swapped": probs})
    assert caught.value.named == ("swapped",)
    with raises(Failure, problem="range", expected=3):
        chance.expect_draws(draws + 2, probs, 1000, "draws")
    with raises(Failure, problem="shape", expected=(1000,)):
        chance.expect_draws(draws.double(), probs, 1000, "draws")
    again = torch.multinomial(probs, 1000, replacement=True, generator=rng)
    chance.expect_independent(draws, again, float((probs**2).sum()), "draws")
    with raises(Failure, value=1000, problem="dependent"):
        chance.expect_independent(draws, draws, float((probs**2).sum()), "draws")
    chance.expect_independent_rows(draws, float((probs**2).sum()), "draws")


@pytest.mark.parametrize("distance", [1, 10, 300])
def test_expect_independent_rows_finds_rows_at_a_distance(distance, suite_seed):
    rng = torch.Generator().manual_seed(suite_seed)
    draws = torch.randint(3, (1000,), generator=rng)
    place = torch.arange(1000)
    shared = draws[torch.where(place % (2 * distance) >= distance, place - distance, place)]
    chance.expect_independent_rows(draws, 1 / 3, "draws")
    with raises(Failure, value=distance, problem="dependent"):
        chance.expect_independent_rows(shared, 1 / 3, "draws")


# -- the nano shell game -----------------------------------------------------------------------------------------


def sample(logits, seed):
    return torch.multinomial(logits.softmax(-1), 1, generator=torch.Generator().manual_seed(seed))[:, 0]


def test_nano_shell_accuracy_is_sum_over_replies(suite_seed):
    rng = torch.Generator().manual_seed(suite_seed)
    weights = torch.randn(12, 4, dtype=torch.float64, generator=rng)
    replies = torch.tensor(
        [[c, 0, 0, 0] for c in range(3)] + [[3, a, b, c] for a in range(3) for b in range(3) for c in range(3)]
    )
    right, thinks = 0.0, 0.0
    for game in nano_shell.GAMES:
        games = game.repeat(len(replies), 1)
        logps = nano_shell.logps(weights, games, replies)
        long = replies[:, 0] == nano_shell.THINK
        chances = torch.where(long, logps.sum(-1), logps[:, 0]).exp()
        ball = int(game[0])
        for swap in game[1:].tolist():
            pair = [(0, 1), (0, 2), (1, 2)][swap]
            ball = pair[1 - pair.index(ball)] if ball in pair else ball
        said = torch.where(long, replies[:, -1], replies[:, 0])
        right += float(chances[said == ball].sum()) / 81
        thinks += float(weights[game[0]].softmax(-1)[3]) / 81
    found = nano_shell.accuracy(weights)
    assert float(found[0]) == pytest.approx(right) and float(found[1]) == pytest.approx(thinks)


def test_nano_shell_play_earns_exact_accuracy(suite_seed):
    rng = torch.Generator().manual_seed(suite_seed)
    weights = nano_shell.beginner(0.3 * torch.randn(12, 4, dtype=torch.float64, generator=rng))
    games = nano_shell.GAMES.repeat(100, 1)
    tokens, mask, earned = nano_shell.play(weights, games, sample, suite_seed % 10**6)
    exact = float(nano_shell.accuracy(weights)[0])
    assert abs(float(earned.mean()) - exact) < 6 * math.sqrt(exact * (1 - exact) / len(games))
    assert mask[:, 0].all() and not bool((tokens[~mask] != 0).any())
    lengths = mask.sum(-1)
    assert bool((lengths[tokens[:, 0] != nano_shell.THINK] == 1).all())
    cut = (tokens[:, 1:] == nano_shell.THINK) & mask[:, 1:]
    assert bool((earned[cut.any(-1)] == 0).all())


def test_nano_shell_beginner_follows_swap_as_often_as_given():
    weights = nano_shell.beginner(torch.zeros(12, 4, dtype=torch.float64), thinks=0.4, knows=0.7)
    probs = weights.softmax(-1)
    for cup, swap in itertools.product(range(3), range(3)):
        assert float(probs[3 + 3 * cup + swap, nano_shell.AFTER[swap, cup]]) == pytest.approx(0.7)
    assert probs[:3, 3].tolist() == pytest.approx([0.4] * 3)


def test_nano_shell_play_accepts_solution_of_sampler_exercise(suite_seed):
    (exercise,) = sources.load(sources.folder(), ["02.6"])
    ours = Asked(Local(side_by_side.solution(exercise, "ada"), "ada"))
    weights = nano_shell.beginner(torch.zeros(12, 4, dtype=torch.float64))
    tokens, _, _ = nano_shell.play(weights, nano_shell.GAMES, ours.sample, suite_seed % 10**6)
    assert tokens.shape == (81, 4)
