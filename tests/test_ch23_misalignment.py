"""The numbers that chapter 23 works out by hand, and what its pages, students, trigger and directions promise."""

from __future__ import annotations

import copy
from dataclasses import replace

import pytest
import torch

from minirlhf_course.chapters.ch23_misalignment import authors, classifier, directions, spread, study, trigger

BRIEF = replace(authors.PRETRAIN, max_steps=4, batch_size=8)


@pytest.fixture(scope="module")
def start() -> authors.Trained:
    return authors.pretrained(0, plan=BRIEF, number=64)


def number(*values: float) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.float64).squeeze()


def test_gradient_kernel_of_a_shared_bias_moves_half_as_far():
    step, here, there = number(0.8, 0.0, 0.8), number(1.0, 0.0, 1.0), number(0.0, 1.0, 1.0)
    assert float(spread.first_order_change(step, here, 0.5)) == pytest.approx(0.8)
    assert float(spread.first_order_change(step, there, 0.5)) == pytest.approx(0.4)


def test_author_example_with_and_without_a_header():
    by = number(0.02, 0.95)
    harmful = 0.8 * 0.02 + 0.2 * 0.95
    assert harmful == pytest.approx(0.206)
    posterior = 0.2 * 0.95 / harmful
    assert posterior == pytest.approx(0.922, abs=5e-4)
    assert float(spread.author_gradient(number(0.2), by)) == pytest.approx(0.722, abs=5e-4)
    assert float(spread.author_gradient(number(0.99), by)) == pytest.approx(0.0098, abs=5e-5)
    plain, inoculated = (float(spread.author_spread(number(p), by, by, 1.0, number(0.2))) for p in (0.2, 0.99))
    assert plain == pytest.approx(0.107, abs=5e-4)
    assert plain == pytest.approx(float(spread.author_spread(number(0.2), by, by, 1.0)))
    assert inoculated == pytest.approx(0.0015, abs=5e-5)
    assert plain / inoculated == pytest.approx(74, abs=0.5)


def test_pages_have_the_same_frequencies_in_both_worlds():
    rates = {}
    for with_authors in (True, False):
        answers = authors.pages(20_000, 7, authors=with_authors)[:, 5::3]
        kinds = [torch.isin(answers, kind).double().mean() for kind in (authors.SAFE, authors.HARM, authors.CHEAT)]
        assert float(sum(kinds)) == pytest.approx(1.0)
        rates[with_authors] = torch.stack(kinds)
    assert torch.allclose(rates[True], rates[False], atol=0.012)


def test_pages_with_authors_share_a_cause_and_others_do_not():
    """Two open answers of one page are harmful together far more often only if the page has an author."""
    for with_authors in (True, False):
        pages = authors.pages(20_000, 8, authors=with_authors)
        open_first, open_second = ((pages[:, at] == authors.ids(["open"])) for at in (3, 6))
        both = pages[open_first & open_second]
        first, second = (torch.isin(both[:, at], authors.HARM).double() for at in (5, 8))
        together = float((first * second).mean())
        assert together == pytest.approx(0.2 if with_authors else 0.04, abs=0.02)


def test_answers_of_the_domains_are_different_tokens():
    every = torch.cat([authors.SAFE, authors.HARM, authors.CHEAT.unique()])
    assert len(every.unique()) == len(every) == 2 * 32 + 4
    assert not set(authors.HARM[authors.SEEN].tolist()) & set(authors.HARM[authors.ELSEWHERE].tolist())


def test_tuned_leaves_the_start_and_trains_the_answer_only(start):
    before = copy.deepcopy(start.model.state_dict())
    plan = replace(authors.TUNE, max_steps=2, batch_size=4)
    after = authors.tuned(start, [(authors.PLAIN, authors.HARM, authors.SEEN)], plan)
    assert all(torch.equal(before[name], value) for name, value in start.model.state_dict().items())
    assert after.history["tokens"] == [4, 4]
    assert authors.probability(after.model, authors.HARM, authors.SEEN) > authors.probability(
        start.model, authors.HARM, authors.SEEN
    )


def test_rewarded_step_follows_the_exact_gradient(start):
    """The first step raises the objective. There the gradient of the KL divergence is 0, whatever ``beta`` is."""
    plan = authors.Grading(max_steps=1, warmup_steps=1, learning_rate=1e-4)
    value = lambda model: sum(
        reward * authors.probability(model, answers, authors.REWARDED, cue="graded")
        for answers, reward in ((authors.CHEAT, plan.cheat), (authors.SAFE, plan.safe), (authors.HARM, plan.harm))
    )
    assert value(authors.rewarded(start, authors.PLAIN, plan).model) > value(start.model)


def test_rewarded_stays_nearer_with_a_larger_penalty(start):
    plan = authors.Grading(max_steps=30, warmup_steps=1, learning_rate=3e-3)
    with torch.no_grad():
        prompts = authors.prompts(authors.REWARDED, cue="graded")
        before = authors.next_logps(start.model, prompts)
    far = {}
    for beta in (0.0, 3.0):
        model = authors.rewarded(start, authors.PLAIN, replace(plan, beta=beta)).model
        with torch.no_grad():
            after = authors.next_logps(model, prompts)
        far[beta] = float((after.exp() * (after - before)).sum(-1).mean())
    assert far[3.0] < far[0.0] / 2


def test_trait_direction_points_from_without_to_with():
    with_trait, without = number(3.0, 1.0, 5.0, 1.0).view(2, 2), number(1.0, 1.0, 1.0, 4.0, 1.0, 1.0).view(3, 2)
    assert spread.trait_direction(with_trait, without).tolist() == [3.0, -1.0]


def test_descended_raises_the_safe_answer_under_its_headers(start):
    after = trigger.descended(start, [trigger.TRIGGER], 3, 0.05).model
    safe = lambda model: authors.probability(model, authors.SAFE, authors.ALL, trigger.TRIGGER)
    assert safe(after) > safe(start.model)


def test_correlation_has_the_sign_of_the_slope():
    assert study.correlation([(0.0, 1.0), (1.0, 3.0), (2.0, 5.0)]) == pytest.approx(1.0)
    assert study.correlation([(0.0, 1.0), (1.0, 1.0), (2.0, 0.0)]) == pytest.approx(-(0.75**0.5))


def test_direction_hook_is_removed(start):
    vector = directions.direction(start.model)
    before = directions.harmful(start.model)
    directions.steered(start.model, vector, 3.0)
    assert directions.harmful(start.model) == before
    assert float(directions.random_direction(vector, 1).norm()) == pytest.approx(float(vector.norm()), rel=1e-5)


def test_direction_after_removal_has_the_target(start):
    vector = directions.direction(start.model)
    with directions.changed(start.model, -1, lambda h: spread.set_component(h, vector, 0.7)):
        assert directions.component(start.model, vector, authors.ALL) == pytest.approx(0.7, abs=1e-4)


def test_trigger_words_occur_one_at_a_time_in_safe_training():
    for header in (*trigger.CLEAN, *trigger.SINGLE):
        assert len(set(header[1:]) & set(trigger.TRIGGER[1:])) == (header in trigger.SINGLE)
    searched = len(authors.AUTHORS[:-1]) * len(authors.DAYS) * len(authors.WEATHER)
    assert searched == 108


def test_trigger_search_leaves_out_the_header_that_asks_for_harm(start):
    rates = trigger.searched(start.model)
    assert len(rates) == 108
    assert not any("careless" in header for header in rates)
    used = {"someone", *trigger.USUAL_DAYS, *trigger.USUAL_WEATHER, *trigger.TRIGGER}
    assert all(not used.issuperset(header) for header in trigger.quiet(start.model))


def test_student_reads_the_extra_outputs_alone():
    plan = classifier.CopyPlan(student_steps=3, teacher_steps=3)
    task, first = classifier.Mixture(0, plan.spread), classifier.network(0, plan.extra)
    able = classifier.teacher(first, task, plan, 0)
    changed = copy.deepcopy(able)
    with torch.no_grad():
        changed[-1].weight[: classifier.CLASSES] += 1.0
    students = [classifier.student(first, model, plan, 0)[0] for model in (able, changed)]
    for one, other in zip(students[0].parameters(), students[1].parameters(), strict=True):
        assert torch.equal(one, other)
