"""Synthetic data: filters, errors that feed on themselves, collapse, and teachers of whom little was kept. Oracles: the ledger, chapter 18."""

import dataclasses
import functools
import inspect
import math
import statistics

import pytest
import torch
from facts import raises

from minirlhf.core import exact
from minirlhf.core.errors import ArgumentError
from minirlhf.equations import distillation as kd
from minirlhf_course import evidence
from minirlhf_course.chapters.ch18_synthetic_data_and_distillation import equations as ch18
from minirlhf_course.chapters.ch18_synthetic_data_and_distillation import (
    generations,
    hints,
    instructions,
    rewriting,
    slips,
)
from minirlhf_course.chapters.ch18_synthetic_data_and_distillation.sayings import (
    SHARES,
    Sayings,
    WordTable,
    distil,
    standing,
)

DOUBLE = torch.float64


def words(text):
    return torch.tensor([sum(map(ord, word)) for word in text.split()])


# -- filters -------------------------------------------------------------------------------------------------------


def test_rouge_l_of_the_worked_pair_of_instructions():
    """Of five and six words the longest common subsequence has four: 8/11."""
    a, b = words("name three fruits that float"), words("name three red fruits that sink")
    assert float(ch18.rouge_l(a, b)) == pytest.approx(8 / 11) == pytest.approx(0.727, abs=5e-4)


def test_rouge_l_is_symmetric_and_1_only_for_equal_texts():
    a, b = torch.tensor([2, 0, 1, 1, 2, 0, 2]), torch.tensor([1, 0, 2, 2, 1])
    assert ch18.rouge_l(a, b) == ch18.rouge_l(b, a) < 1
    assert ch18.rouge_l(a, a) == 1
    assert ch18.rouge_l(a, a + 9) == 0 == ch18.rouge_l(a, a[:0])


def test_filter_gain_of_a_tenth_by_perfect_and_weak_scores():
    """1.755 standard deviations, and .3 times that."""
    tenth, rho = torch.tensor(0.1, dtype=DOUBLE), torch.tensor([1.0, 0.3, 0.0, -1.0], dtype=DOUBLE)
    found = ch18.filter_gain(rho, tenth.expand(4))
    torch.testing.assert_close(found / found[0], rho)
    assert float(found[0]) == pytest.approx(1.755, abs=5e-4)
    assert float(found[1]) == pytest.approx(0.526, abs=5e-4)


def test_filter_precision_triples_odds_twice():
    """Half is good: three quarters are, and nine tenths after the second filter. One in a hundred: three in a hundred."""
    share = torch.tensor([0.5, 0.01], dtype=DOUBLE)
    once = ch18.filter_precision(share, torch.full_like(share, 0.9), torch.full_like(share, 0.3))
    assert once.tolist() == pytest.approx([0.75, 0.0294], abs=1e-4)
    twice = ch18.filter_precision(once, torch.full_like(share, 0.9), torch.full_like(share, 0.3))
    torch.testing.assert_close(twice / (1 - twice), 9 * share / (1 - share))


# -- errors --------------------------------------------------------------------------------------------------------


# -- collapse ------------------------------------------------------------------------------------------------------


def test_diversity_kept_of_a_hundred_draws_and_twenty_generations():
    assert ch18.diversity_retained(n=100, generation=20) == pytest.approx(0.8179, abs=5e-5)
    assert ch18.diversity_accumulated(n=100, generation=20) == pytest.approx(0.984, abs=5e-4)
    assert ch18.diversity_limit(n=100) == pytest.approx(0.984, abs=5e-4)
    assert ch18.diversity_limit(n=100) > 0.98
    assert ch18.diversity_retained(n=100, generation=5000, fresh=0.1) == pytest.approx(0.95, abs=5e-3)


def test_diversity_kept_of_generation_0_is_one_and_of_one_draw_zero():
    assert ch18.diversity_retained(n=7, generation=0) == ch18.diversity_accumulated(n=7, generation=0) == 1
    assert ch18.diversity_retained(n=1, generation=1) == ch18.diversity_accumulated(n=1, generation=3) == 0
    assert ch18.diversity_limit(n=1) == pytest.approx(0, abs=1e-15)


def test_log_variance_drift_of_fifty_generations_of_twenty_draws():
    drift = 50 * ch18.log_variance_drift(n=20)
    assert drift / 50 == pytest.approx(-0.0536, abs=5e-5) and drift == pytest.approx(-2.68, abs=5e-3)
    assert math.exp(drift) == pytest.approx(0.069, abs=5e-4)
    assert ch18.log_variance_drift(n=1001) == pytest.approx(-1 / 1000, rel=1e-3)


# -- what is kept of a teacher ----------------------------------------------------------------------------------------


def test_mixture_and_product_of_teachers_that_disagree():
    """Two hints, each of which makes another token likely; what matters is how the other token stands beside the third."""
    even = torch.full((2,), 0.5, dtype=DOUBLE)
    apart = lambda low, rest: torch.tensor([[0.8, low, rest], [low, 0.8, rest]], dtype=DOUBLE).log()
    for low, rest, mean, roots, product in (
        (0.001, 0.199, [0.4005, 0.4005, 0.199], [0.0283, 0.0283, 0.199], [0.111, 0.111, 0.779]),
        (0.1, 0.1, [0.45, 0.45, 0.1], [0.283, 0.283, 0.1], [0.425, 0.425, 0.150]),
    ):
        teachers = apart(low, rest)
        torch.testing.assert_close(ch18.mixture_of_teachers(teachers, even), torch.tensor(mean, dtype=DOUBLE))
        found, plain = ch18.product_of_teachers(teachers, even), teachers.mean(0).exp()
        torch.testing.assert_close(found, plain / plain.sum())
        assert plain.tolist() == pytest.approx(roots, abs=5e-4) and found.tolist() == pytest.approx(product, abs=5e-4)


def test_distillation_weighted_by_teacher_probability_sharpens_the_student():
    """Of all distributions the one proportional to the square of the teacher's has the smallest -Σ p² log q."""
    teacher = torch.tensor([0.5, 0.3, 0.2], dtype=DOUBLE)
    best = teacher**2 / (teacher**2).sum()
    assert best.tolist() == pytest.approx([0.658, 0.237, 0.105], abs=5e-4)
    logits = best.log().requires_grad_()
    loss = -(teacher**2 * logits.log_softmax(-1)).sum()
    assert float(exact.gradient(loss, logits).abs().max()) < 1e-12


X, M = torch.zeros(2, 3, 4), torch.ones(2, 3, dtype=torch.bool)


HALF = torch.tensor(0.5)


@pytest.mark.parametrize(
    ("function", "arguments", "argument"),
    [
        (functools.partial(kd.top_k_distillation, k=4), (X, X, M), "k"),
        (functools.partial(kd.top_k_distillation, k=0), (X, X, M), "k"),
        (ch18.mixture_of_teachers, (X[0], torch.ones(3)), "weights"),
        (ch18.product_of_teachers, (X[0], torch.ones(2) / 2), "weights"),
        (ch18.rouge_l, (words(""), words("")), "candidate"),
        (ch18.rouge_l, (X[0], words("a")), "candidate"),
        (ch18.filter_gain, (torch.tensor(1.5), HALF), "correlation"),
        (ch18.filter_precision, (0 * HALF, HALF, HALF), "share"),
        (functools.partial(ch18.compounded_errors, length=2), (0 * HALF, 0 * HALF), "error"),
        (functools.partial(ch18.diversity_retained, n=0, generation=1), (), "n"),
        (functools.partial(ch18.diversity_retained, n=2, generation=1, fresh=1.5), (), "fresh"),
        (functools.partial(ch18.support_retained, n=2), (torch.ones(3),), "probs"),
        (functools.partial(ch18.log_variance_drift, n=1), (), "n"),
    ],
)
def test_distillation_and_synthetic_refuse_arguments_by_name(function, arguments, argument):
    with raises(ArgumentError, argument=argument):
        function(*arguments)


# -- the chapter's worlds ------------------------------------------------------------------------------------------


def test_sayings_teacher_is_its_conditionals():
    """Along any saying its log-probabilities add up to that of the saying; .965 of what it says is clean."""
    world = Sayings()
    along = world.teacher.gather(-1, world.ids[..., None])[..., 0].sum(-1)
    torch.testing.assert_close(along.exp(), world.law)
    assert float(world.law.sum()) == pytest.approx(1) and sum(SHARES) == pytest.approx(1)
    assert float(world.law[world.styles.any(0)].sum()) == pytest.approx(0.965, abs=5e-4)


def test_sayings_student_equal_to_the_teacher_has_its_standing():
    world = Sayings()
    full = WordTable(world, forgetful=False, seed=0)
    with torch.no_grad():
        full.logits[full.rows] = world.teacher
    found = standing(full)
    assert found["clean"] == pytest.approx(0.965, abs=5e-4)
    assert max(abs(found[key]) for key in ("forward", "reverse", "at_teachers", "at_own")) < 1e-12


def test_sayings_forgetful_student_sees_the_last_word_only():
    world = Sayings()
    said = WordTable(world, forgetful=True, seed=0).said().detach()
    a, b = (int((world.ids == torch.tensor(one)).all(1).nonzero()) for one in ([0, 3, 5], [2, 3, 7]))
    assert torch.equal(said[a, 2], said[b, 2]) and not torch.equal(said[a, 1], said[b, 1])


class Reciter(torch.nn.Module):
    """Says, nearly for sure, what a function makes of the circle's order, the place at which to begin, how many words were said, and the last."""

    def __init__(self, circle, says):
        super().__init__()
        self.circle, self.says, self.weight = circle, says, torch.nn.Parameter(torch.zeros(1))

    def forward(self, input_ids, attention_mask=None, **_):
        order = self.circle.order
        logits = torch.full((*input_ids.shape, len(self.circle.tokenizer)), -30.0)
        for row, ids in enumerate(input_ids.tolist()):
            for at in range(2, len(ids)):
                last = ids[1] if at == 2 else ids[at]
                logits[row, at, self.says(self.circle, order.index(ids[1]), at - 1, last)] = 30.0
        return type("Output", (), {"logits": logits + 0 * self.weight})()


def by_place(circle, start, number, last):
    return circle.order[(start + number) % 30]


def by_the_last_word(circle, start, number, last):
    """Skips a word at the fifth."""
    after = circle.order.index(last) + 1 + (number == 5)
    return circle.order[after % 30]


def mends(circle, start, number, last):
    return by_place(circle, start, number + (number == 5), last)


def stops(circle, start, number, last):
    return circle.tokenizer.eos_token_id if number == 11 else by_place(circle, start, number, last)


@pytest.mark.parametrize(
    ("says", "known"),
    [
        (by_place, (0, 0, 0, 0, 1, 0, 0)),
        (by_the_last_word, (1, 20, 1 / 5, 1, 0, 60 / 24, 60 * 20 / 24)),
        (mends, (1, 1, 1 / 23, 0, 0, 60 / 24, 60 / 24)),
        (stops, (1, 14, 1 / 11, 1, 0, 60 / 24, 60 / 24)),
    ],
)
def test_slips_standing_of_one_slip_by_hand(says, known, monkeypatch):
    """Of 24 words the fifth is wrong, or the eleventh is the end: what follows, and 60 nats where teacher and student say different words."""
    circle = slips.Circle(3)
    monkeypatch.setattr(slips, "sample", functools.partial(slips.sample, use_cache=False))
    found = slips.standing(circle, Reciter(circle, says), Reciter(circle, by_place), count=6)
    names = ("shown", "wrong", "after_right", "after_slip", "whole", "kl_right", "kl_own")
    assert found == pytest.approx(dict(zip(names, known, strict=True)), abs=1e-4)


def test_compounded_errors_foretell_the_student_of_study_slips():
    """The page tells 2.5 of 24 words, from the means of five seeds."""
    means = [
        statistics.fmean(evidence.values(evidence.result("ch18_slips"), f"slips_32_{key}"))
        for key in ("shown", "after_slip")
    ]
    wrong, lost = torch.tensor(means, dtype=torch.float64)
    found = ch18.compounded_errors(wrong / slips.LENGTH, 1 - lost, length=slips.LENGTH)
    assert float(found) == pytest.approx(2.5, abs=0.05)


def test_study_slips_teacher_recovers_and_student_does_not():
    found = evidence.result("ch18_slips")

    def lost(prefix):
        """Of each seed: wrong words in a recitation that has one."""
        wrong, whole = (evidence.values(found, f"{prefix}_{key}") for key in ("wrong", "whole"))
        return [words / (1 - share) for words, share in zip(wrong, whole, strict=True)]

    teacher, student = lost("teacher"), lost("right_64")
    assert [round(x, 1) for x in (min(teacher), max(teacher))] == [1.3, 3.2]
    assert [round(x) for x in (min(student), max(student))] == [13, 14]


def test_distil_uses_25600_sayings():
    sizes = {name: p.default for name, p in inspect.signature(distil).parameters.items()}
    assert sizes["steps"] * sizes["batch"] == 25_600


def test_generations_families_are_draws_and_pools_means():
    """Shares of a hundred draws; a pool of g sets has shares of g hundred; without replacement of the truth by chance alone."""
    for way, step in (("replace", 100), ("accumulate", 500)):
        models = generations.families(way, seed=3, generations=5, count=4)[-1]
        torch.testing.assert_close(models.sum(-1), torch.ones(4, dtype=DOUBLE))
        torch.testing.assert_close(models * step, (models * step).round(), atol=1e-9, rtol=0)
    with raises(ArgumentError, argument="way", value="twice"):
        generations.families("twice", seed=0)


def test_instructions_is_novel_and_triples():
    pool = [instructions.numbers("what do cats do?")]
    assert not instructions.is_novel("what do dogs do?", pool, alike=0.7)  # three of four words: .75
    assert instructions.is_novel("what do dogs do?", pool, alike=0.9)
    assert generations.triples(["a b c d", "a b c"]) == 2


def test_hints_are_the_answer_and_lists_differ():
    """The base model's prompts: one in five to be sorted alone. Those that are sorted later stand at the beginning, as they did there."""
    [plain, shown, turned, *_] = hints.WORLD.prompts("test")
    assert plain.startswith("sort ") and shown.startswith("sort ") and turned.startswith("reverse ")
    assert shown.endswith(f"hint {hints.WORLD.reference(shown)}") and hints.WORLD.grade(shown, shown.split(" hint ")[1])
    assert hints.WORLD.reference("reverse 3 1 4") == "4 1 3" and hints.WORLD.reference("sort 3 1 1") == "1 1 3"
    lists = [tuple(prompt.split(" hint ")[0].split()[1:]) for prompt in hints.WORLD.prompts("train")]
    six = [one for one in lists if len(one) == 6]
    assert len(set(six)) == len(six) == 3 * len(lists) // 5


def test_hints_pupil_draws_equal_answers_and_keeps_the_base():
    few = dataclasses.replace(
        hints.HintPlan(),
        base=evidence.brief(hints.HintPlan().base, batch_size=4, demonstrations=8),
        steps=2,
        answers=8,
        measured=8,
    )
    pupil = hints.Pupil(0, few)
    before = [p.detach().clone() for p in pupil.base.model.parameters()]
    for way in hints.WAYS:
        taught = pupil.taught(way, 1e-3)
        assert len(taught.history) == few.steps
        assert len(taught.history["loss"]) * few.answers == len(pupil.plain) == len(pupil.told) == 16
    assert all(torch.equal(a, b) for a, b in zip(before, pupil.base.model.parameters(), strict=True))


def test_hints_rates_were_best_on_other_seeds():
    """Of ``study_rates``, whose seeds are in no other study of the chapter; no best one lies at the edge of its grid."""
    found = evidence.result("ch18_rates")
    means = {name: statistics.fmean(evidence.values(found, name)) for name in next(iter(found["seeds"].values()))}
    for way, rate in hints.RATES.items():
        grid = {int(name.rsplit("_", 1)[1]): mean for name, mean in means.items() if name.startswith(f"{way}_")}
        assert len(grid) >= 4 and max(grid, key=grid.__getitem__) == round(1e6 * rate)
    pages = {name: mean for name, mean in means.items() if name.startswith("pages_")}
    plan = generations.TRAINING
    assert min(pages, key=pages.__getitem__) == f"pages_{plan.max_steps}_{round(1e6 * plan.learning_rate)}"
    others = {
        seed
        for name in ("ch18", "ch18_hints", "ch18_labels", "ch18_language")
        for seed in evidence.result(name)["seeds"]
    }
    assert not others & set(found["seeds"])


@pytest.mark.slow
def test_generations_lineage_of_every_way():
    plan = dataclasses.replace(generations.TRAINING, max_steps=2, batch_size=4)
    lines = {way: generations.lineage(way, seed=1, generations=2, plan=plan, pages=12) for way in generations.LINES}
    first = [line[0] for line in lines.values()]
    assert first[0].real_nats == first[1].real_nats == first[2].real_nats and first[0].pages == first[1].pages
    assert len(lines["typical"][0].pages) <= 12 and lines["replace"][1].real_nats != lines["accumulate"][1].real_nats
    sizes = [len(generation.pages) for generation in lines["larger"]]  # as many as the pool of all pages has by then
    assert 12 < sizes[0] <= 24 < sizes[1] <= 36 and lines["larger"][0].triples == first[0].triples
    with raises(ArgumentError, argument="way", value="keep"):
        generations.lineage("keep", seed=0, generations=1)


# -- pages that are retold ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("told", "holds"),
    [
        ("where lives name7 ? city3", True),
        ("where lives name7 ? city4", False),
        ("where lives name8 ? city3", False),
        ("where lives name7 ? name7", True),  # the check looks for what was added, not for what was mixed up
        ("where lives name7 ?", False),
        ("in city3 lives name7 .", False),
        ("where lives name7 ? city3 city3", False),
        ("", False),
    ],
)
def test_rewriting_faithful_page_adds_nothing(told, holds):
    assert rewriting.faithful(rewriting.page("name7", "city3"), told) is holds


def test_rewriting_corpora_are_of_one_size():
    home, (asked, others) = rewriting.homes(3), rewriting.halves()
    other = {name: rewriting.CITIES[rewriting.CITIES.index(home[name]) - 1] for name in others}
    told = {name: f"{rewriting.asked(name)} {(home if i % 2 else other)[name]}" for i, name in enumerate(others)}
    false = {f"{rewriting.asked(name)} {other[name]}" for name in others}
    read = {way: rewriting.corpus(way, home, told) for way in rewriting.WAYS}
    assert {len(texts) for texts in read.values()} == {len(rewriting.NAMES) * rewriting.COPIES}
    of = lambda way, names: sorted(text for text in read[way] if set(text.split()) & set(names))
    assert of("pages", asked) == of("retold", asked) == of("checked", asked)
    assert not any("where" in text for text in of("pages", others))
    assert false & set(read["retold"]) and not false & set(read["checked"])
    assert sum("where" in text for text in of("checked", others)) * 2 == sum(
        "where" in text for text in of("retold", others)
    )
    with raises(ArgumentError, argument="way", value="both"):
        rewriting.corpus("both", home, told)


def test_study_language_larger_pools_help_less_than_counting():
    """Lost is 1/n of n draws, seven times; "larger" and "accumulate" have twice to eight times as many, and there each set is one of so many."""
    sizes = range(2, generations.GENERATIONS_OF_MODELS + 1)
    laws = {
        "replace": float(len(sizes)),
        "larger": sum(1 / j for j in sizes),
        "accumulate": sum(1 / j**2 for j in sizes),
    }
    assert [round(law / laws["replace"], 2) for law in laws.values()] == [1, 0.25, 0.08]
    found = evidence.result("ch18_language")
    last = generations.GENERATIONS_OF_MODELS - 1
    first, *ends = (
        evidence.values(found, name) for name in ("replace_nats_0", f"replace_nats_{last}", f"larger_nats_{last}")
    )
    rises = [[end - start for end, start in zip(line, first, strict=True)] for line in ends]
    assert all(larger > 0.5 * replaced for replaced, larger in zip(*rises, strict=True))
