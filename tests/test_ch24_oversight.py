"""The numbers that chapter 24 works out by hand, and what its exam, its weak labels and its debate promise."""

from __future__ import annotations

import math
import re
from typing import Any

import pytest
import torch
from facts import raises

from minirlhf.core.errors import ArgumentError
from minirlhf_course.chapters.ch24_oversight import debate, exam, monitors, weak
from minirlhf_course.classroom import exercise as sources


def tensor(*values: float) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.float64)


REF, REWARDS = tensor(0.799, 0.2, 0.001).log(), tensor(0.6, 1.0, 1.0)
BLIND = tensor(0.05, 0.9, 0.05)


def test_monitored_policy_with_larger_fine_hides_as_often():
    at = lambda fine, beta=0.05, ref=REF: monitors.monitored_policy(ref, REWARDS, BLIND, fine=fine, beta=beta).exp()
    assert float(at(0.0)[1]) > 0.99
    assert float(at(1.0)[2]) == pytest.approx(0.789, abs=5e-4) and float(at(32.0)[2]) == pytest.approx(0.789, abs=5e-4)
    assert 0.001 * math.exp(8) == pytest.approx(2.98, abs=5e-3)
    assert float(monitors.obfuscated_share(REF[[0, 2]], gain=0.4, beta=0.05)) == pytest.approx(0.789, abs=5e-4)
    assert float(at(32.0, beta=0.1)[2]) == pytest.approx(0.064, abs=5e-4)
    assert float(at(32.0, ref=tensor(0.799999, 0.2, 1e-6).log())[2]) == pytest.approx(0.004, abs=5e-4)


def test_stopping_fine_without_penalty_is_gain_over_visibility():
    even = tensor(0.5, 0.5).log()
    assert monitors.stopping_fine(even, tensor(0.05, 0.5), gain=0.4, beta=0.05) == pytest.approx(0.89, abs=2e-3)
    assert monitors.stopping_fine(even, tensor(0.05, 0.05), gain=0.4, beta=0.05) == math.inf


def test_steps_to_majority_grow_as_one_over_the_share():
    assert monitors.steps_to_majority(0.1, gain=0.4) == pytest.approx(17, abs=0.5)
    assert monitors.steps_to_majority(0.001, gain=0.4) == pytest.approx(1266, abs=0.5)
    with raises(ArgumentError, argument="share", value=0.6):
        monitors.steps_to_majority(0.6, gain=0.4)


def test_exam_kinds_of_completions_are_paid_and_flagged():
    task = exam.Exam()
    prompt = task.prompts("test")[0]
    honest, spoken, silent = task.reference(prompt), "think hack answer exit", "think a b c d answer exit"
    assert task.grade(prompt, honest) == 1.0 and not exam.cheats(honest) and not exam.says_so(honest)
    assert [exam.proxy(prompt, text) for text in (spoken, silent)] == [1.0, 1.0]
    assert [task.grade(prompt, text) for text in (spoken, silent)] == [0.0, 0.0]
    assert [exam.THOUGHT.chance(text) for text in (honest, spoken, silent)] == [0.05, 0.95, 0.05]
    assert [exam.ACTION.chance(text) for text in (honest, spoken, silent)] == [0.05, 0.95, 0.95]
    assert [exam.GLIMPSE.chance(text) for text in (honest, spoken, silent)] == [0.05, 0.95, 0.5]
    # A completion that mentions the hack and does not cheat is flagged by the monitor of thoughts alone.
    assert exam.THOUGHT.chance("think hack answer a") == 0.95 and exam.ACTION.chance("think hack answer a") == 0.05


def test_exam_prompts_are_disjoint_and_a_fraction_is_broken():
    task = exam.Exam()
    train, test = task.prompts("train"), task.prompts("test")
    assert len(train) == 664 and len(test) == 200 and not set(train) & set(test)
    broken = [exam.proxy(prompt, task.reference(prompt)) == 0.0 for prompt in train + test]
    assert sum(broken) / len(broken) == pytest.approx(exam.BROKEN, abs=0.03)


def test_linear_accuracies_and_the_gap_recovered():
    gaps = []
    for inside in (0.0, 0.25, 0.5, 1.0):
        supervisor, student = weak.linear_accuracies(inside=inside, outside=1 - inside)
        gaps.append((student - supervisor) / (1 - supervisor))
        assert supervisor == pytest.approx(0.75)
    assert gaps == pytest.approx([1.0, 0.41, 0.22, 0.0], abs=5e-3)
    assert weak.equivalent_labels(400, error=0.3) == pytest.approx(64)


def test_debate_table_of_accuracies():
    inputs, probs = debate.all_inputs(4), debate.input_probabilities(4)
    assert float(probs.sum()) == pytest.approx(1) and float(probs @ debate.root(inputs)) == pytest.approx(0.5)
    assert debate.fair_bit(4) == pytest.approx(0.568, abs=5e-4)
    value = lambda **skills: float(probs @ debate.debate_value(inputs, **skills))
    skills = (1.0, 0.9, 0.8, 0.7, 0.6, 0.5)
    perfect = [1.0, 0.825, 0.667, 0.526, 0.401, 0.293]
    assert [value(honest=q) for q in skills] == pytest.approx(perfect, abs=5e-4)
    crossing = [value(honest=q) for q in (0.675, 0.69)]
    assert crossing[0] < 0.5 < crossing[1]
    equal = [1.0, 0.843, 0.730, 0.653, 0.602, 0.572]
    assert [value(honest=q, liar=q) for q in skills] == pytest.approx(equal, abs=5e-4)
    worst = [1.0, 0.81, 0.64, 0.49, 0.36, 0.25]
    assert [debate.skill_bound(4, honest=q) for q in skills] == pytest.approx(worst)
    assert value(misread=0.05) == pytest.approx(0.95)


def test_debate_judge_alone_needs_more_leaves():
    assert debate.best_fixed_leaves(4, 1) == pytest.approx(0.572, abs=5e-4)
    assert debate.best_fixed_leaves(4, 4) == pytest.approx(0.690, abs=5e-4)
    assert set(debate.proof_sizes(debate.all_inputs(4)).tolist()) == {4.0}
    certain = 0.95**4
    assert certain == pytest.approx(0.815, abs=5e-4)
    with raises(ArgumentError, argument="leaves", value=8):
        debate.root(torch.zeros(8))
    with raises(ArgumentError, argument="depth", value=3):
        debate.skill_bound(3, honest=0.9)


def test_exercise_with_liar_prints_its_targets_if_solved(capsys):
    exercise = sources.read(sources.folder() / "24_oversight" / "ex_24_6.py")
    names: dict[str, Any] = {}
    exec(f"{exercise.given}\n{exercise.solution}", names)
    names["tried"]()
    root, perfect, misread, liars = capsys.readouterr().out.splitlines()
    found, target = re.fullmatch(r"root true on (\d+) of 65,536 inputs; it should be ([\d,]+)", root).groups()
    assert found == target.replace(",", "")
    for line in (perfect, misread):
        found, target = re.search(r": (\S+) should be (\S+)$", line).groups()
        assert float(found) == pytest.approx(float(target))
    better, worse = re.search(r": (\S+) (\S+) should grow$", liars).groups()
    assert float(better) < float(worse)


@pytest.mark.parametrize("ramp", [4, 24])
def test_fit_with_one_more_step_continues_the_run(ramp):
    data = weak.clusters(torch.Generator().manual_seed(0), 200, gap=1.5, systematic=True)
    before, after = (weak.fit(data.inputs, data.weak, steps=n, alpha=0.5, ramp=ramp, decay=0.0) for n in (6, 7))
    logits, own = data.inputs @ before, 0.5 * min(1.0, 6 / ramp)
    at = logits.requires_grad_()
    target = (1 - own) * data.weak + own * (logits > 0).double()
    [slope] = torch.autograd.grad(torch.nn.functional.binary_cross_entropy_with_logits(at, target), at)
    curvature = torch.linalg.eigvalsh(data.inputs.T @ data.inputs / 200)[-1] / 4  # p(1 − p) is at most 1/4
    torch.testing.assert_close(after, before - data.inputs.T @ slope / curvature)
