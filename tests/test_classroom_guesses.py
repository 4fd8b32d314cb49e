"""What somebody earns in an exercise of choices who knows nothing."""

import random
import re

import pytest
from graded import EXERCISES
from plan import of_chapter

from minirlhf_course.classroom import grading, proof

CHOICES = [e for e in EXERCISES.values() if e.kind == "choice"]
GUESSERS = 60


def letters(exercise):
    """The letters of the exercise's answers."""
    asked = re.findall(r'sub\.choice\([^)]*"([a-z]+)"\)', exercise.path.read_text(encoding="utf-8"))
    return max(asked, key=len)


def earned(exercise, student, picks):
    code = "\n".join(f"{name} = {pick!r}" for name, pick in zip(exercise.asks, picks, strict=True))
    outcome = grading.run_tests(exercise, proof.answer(exercise, code, student=f"student-{student}"), student)
    return outcome.points / exercise.points


@pytest.mark.parametrize("exercise", [of_chapter(e.chapter, e, id=e.id) for e in CHOICES])
def test_random_letters_earn_at_most_an_eighth(exercise):
    rng, once = random.Random(f"guess {exercise.id}"), "each used once" in exercise.statement
    options = letters(exercise)
    shares = []
    for student in range(GUESSERS):
        picks = rng.sample(options, len(exercise.asks)) if once else rng.choices(options, k=len(exercise.asks))
        shares.append(earned(exercise, student, picks))
    assert sum(shares) / GUESSERS <= 0.125


@pytest.mark.parametrize("exercise", [of_chapter(e.chapter, e, id=e.id) for e in CHOICES])
def test_one_letter_everywhere_earns_little(exercise):
    most = 0.0 if "each used once" in exercise.statement else 0.25
    for letter in letters(exercise):
        shares = [earned(exercise, student, [letter] * len(exercise.asks)) for student in range(10)]
        assert sum(shares) / 10 <= most


def test_open_answer_of_choice_costs_nothing():
    exercise = next(e for e in CHOICES if e.id == "00.1")
    outcome = grading.run_tests(exercise, proof.answer(exercise, exercise.solution, "q1 = None"), 1)
    assert outcome.points == exercise.points - exercise.tests[0].points
    outcome = grading.run_tests(exercise, proof.answer(exercise, exercise.solution, "q1 = 'd'"), 1)
    assert outcome.points == exercise.points - (1 + grading.WRONG_PICK) * exercise.tests[0].points
