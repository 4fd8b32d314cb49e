"""The seven-word world, its proxies and optimisers, remedies, tampering, detectors, the report and its command line."""

import json
import math
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch
from facts import raises

from minirlhf.core.errors import ArgumentError, UserError
from minirlhf.data import tasks
from minirlhf.data.functions import load_function
from minirlhf.data.seven_words import bags, decisions, gold, lifted, replies
from minirlhf.equations.overoptimization import coupled_approval, decoupled_approval
from minirlhf.feedback.proxies import compare, fit, rescale_to_gold, with_flipped_tail, with_noise
from minirlhf.stages import pipeline
from minirlhf_cli import dispatch
from minirlhf_course.chapters.ch20_overoptimization import habits, leash, networks, remedies, tampering
from minirlhf_course.chapters.ch20_overoptimization.assistant import overrated
from minirlhf_course.chapters.ch20_overoptimization.curves import (
    POLICY_SIZES,
    Curve,
    WordPolicy,
    along,
    best_of_n_curve,
    optimise,
    policy_gradient,
    tilt_curve,
)
from minirlhf_course.chapters.ch20_overoptimization.detector import detection
from minirlhf_course.chapters.ch20_overoptimization.equations import gold_best_of_n
from minirlhf_course.chapters.ch20_overoptimization.errors import decompose
from minirlhf_course.chapters.ch20_overoptimization.fits import FORMS, fit_form, judge
from minirlhf_course.chapters.ch20_overoptimization.language_dpo import believed, dpo
from minirlhf_course.chapters.ch20_overoptimization.language_model import LanguagePlan, calibrated, language_world
from minirlhf_course.chapters.ch20_overoptimization.report import overopt
from minirlhf_course.evidence import initial_models

# -- the world ---------------------------------------------------------------------------------------------------


def test_seven_words_replies_and_bags_are_one_distribution():
    every, classes = replies(), bags()
    assert len(every) == sum(7**n for n in range(1, 6)) and len(classes) == math.comb(12, 5) - 1
    assert every.probs.sum().item() == pytest.approx(1) and classes.probs.sum().item() == pytest.approx(1)
    torch.testing.assert_close(every.probs @ every.gold, classes.probs @ classes.gold)
    torch.testing.assert_close(lifted(classes.gold), every.gold)


def test_seven_words_gold_by_hand():
    assert gold("fact") == pytest.approx(1.2 - 0.15)
    assert gold("please fact detail great") == pytest.approx(1.2 * math.sqrt(2) + 0.7 + 0.6 - 0.6)
    assert gold("thanks thanks um") == pytest.approx(0.7 - 0.6 - 0.5 - 0.3 - 0.45)


def test_word_policy_starts_as_the_reference_and_stays_normalised():
    every = replies()
    for size in POLICY_SIZES:
        policy = WordPolicy(decisions(), size)
        torch.testing.assert_close(policy.reply_logps().detach(), every.ref_logps)
        with torch.no_grad():
            policy.table.normal_(generator=torch.Generator().manual_seed(0))
        assert policy.reply_logps().exp().sum().item() == pytest.approx(1)


# -- optimisers --------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def learned():
    return fit(bags(), compare(bags(), 400, seed=0), "counts")


def test_tilt_and_best_of_n_curves_are_the_same_on_bags_and_replies(learned):
    for make in (tilt_curve, best_of_n_curve):
        coarse = make(bags().ref_logps, learned, bags().gold)
        fine = make(replies().ref_logps, lifted(learned), replies().gold)
        torch.testing.assert_close(coarse.gold, fine.gold, atol=1e-6, rtol=0)
        torch.testing.assert_close(coarse.distance, fine.distance, atol=1e-6, rtol=0)


def test_tilt_curve_is_the_frontier(learned):
    """No policy has more proxy at the same KL."""
    frontier = tilt_curve(bags().ref_logps, learned, bags().gold)
    as_gold = Curve(frontier.distance, frontier.proxy, frontier.proxy)
    path = policy_gradient(replies(), decisions(), lifted(learned), steps=40)
    for curve in (
        along(path, replies().ref_logps, lifted(learned), replies().gold),
        best_of_n_curve(bags().ref_logps, learned, bags().gold),
    ):
        best = torch.tensor([as_gold.gold_at(d) for d in curve.distance.tolist()], dtype=torch.float64)
        known = ~best.isnan()
        assert (
            curve.proxy[known] <= best[known] + 0.01
        ).all()  # 0.01: straight lines between points of a concave curve


def test_policy_gradient_with_a_strong_kl_ends_at_the_tilt(learned):
    path = policy_gradient(replies(), decisions(), lifted(learned), size="text", beta=2.0, steps=300)
    best = torch.log_softmax(replies().ref_logps + lifted(learned) / 2, -1)
    assert float((path[-1].exp() * (path[-1] - best)).sum()) < 1e-3


def test_tilt_curve_of_gold_does_not_fall_and_of_a_flipped_tail_does():
    world = bags()
    assert tilt_curve(world.ref_logps, world.gold, world.gold).fall < 1e-9
    flipped = tilt_curve(world.ref_logps, with_flipped_tail(world), world.gold)
    assert flipped.gold[-1] < -4 < 0 < flipped.fall
    noisy = tilt_curve(replies().ref_logps, with_noise(replies(), std=0.8), replies().gold)
    near = noisy.gold[noisy.distance <= 2]
    assert (near.diff() > -0.02).all() and near[-1] > near[0] + 0.5


def test_in_gold_units_has_the_moments_of_gold(learned):
    world = bags()
    for values in (learned, rescale_to_gold(3 * learned - 7, world)):
        mean = world.probs @ values
        torch.testing.assert_close(mean, world.probs @ world.gold)
        torch.testing.assert_close(
            world.probs @ (values - mean) ** 2, world.probs @ (world.gold - world.probs @ world.gold) ** 2
        )
    with raises(ArgumentError, argument="rewards", problem="all alike"):
        rescale_to_gold(torch.zeros(len(world), dtype=torch.float64), world)


# -- DPO's own proxy -------------------------------------------------------------------------------------------


def test_dpo_believed_of_the_tilt_by_gold_is_true():
    """Whatever β and whatever is added per prompt; one that has not moved believes in the reference's mean."""
    rng = torch.Generator().manual_seed(0)
    worth = torch.randn(
        3, 400, dtype=torch.float64, generator=rng
    )  # three prompts, 400 replies each, which are all there is
    shifted = worth + torch.tensor([[0.0], [5.0], [-2.0]])
    for strength in (0.3, 1.0):
        logs = (strength * shifted).log_softmax(-1)
        ratios = logs + math.log(400)  # against the uniform reference
        kl = (logs.exp() * ratios).sum(-1)
        earned = (logs.exp() * worth).sum(-1)
        got = believed(kl, ratios, worth) - float(worth.mean())
        assert got == pytest.approx(float((earned - worth.mean(-1)).mean()), rel=1e-9)
    assert believed(torch.zeros(3), torch.zeros(3, 400), worth) == float(worth.mean())


@pytest.mark.slow
def test_dpo_curve_does_not_depend_on_its_stops():
    task, (_, sft, _) = tasks.get("assistant"), initial_models.assistant()
    plan = replace(LanguagePlan().reward, pairs=24, held_out=0)
    pairs, _ = pipeline.preferences(task, sft, plan)
    often, once = (dpo(task, sft, pairs, stops=stops, batch_size=8, replies=1) for stops in ((1, 2, 4), (4,)))
    assert len(often.gold) == 4 and float(often.distance[0]) == 0
    for name in ("distance", "proxy", "gold"):
        assert float(getattr(often, name)[-1]) == float(getattr(once, name)[-1])


# -- fits --------------------------------------------------------------------------------------------------------


def test_fit_form_and_judge_find_the_form():
    distance = torch.linspace(0, 3, 31, dtype=torch.float64)
    found = fit_form(distance, gold_best_of_n(distance, alpha=1.1, beta=0.3), "d(α − β d)")
    assert (found.alpha, found.beta, found.r2) == pytest.approx((1.1, 0.3, 1.0))
    assert found.peak == pytest.approx((1.1 / 0.6, 1.1**2 / 1.2))
    curves = [Curve(distance, distance, gold_best_of_n(distance, alpha=1 + s / 10, beta=0.3)) for s in range(4)]
    verdict = judge(curves)
    best, other = FORMS
    assert verdict.difference[1] > 0 and best in verdict.sentence and other not in verdict.sentence
    rising = fit_form(distance, distance**2, "d(α − β d)")
    assert rising.peak == (math.inf, math.inf)
    with raises(ArgumentError, argument="curves", value=2):
        judge(curves[:2])


# -- remedies, errors, detector ----------------------------------------------------------------------------------


def test_constrained_curve_keeps_its_limits():
    world = bags()
    case = remedies.Evidence(world, compare(world, 400, seed=1), "counts", 1)
    limits = remedies.proxy_points(world)
    loose = remedies.constrained_curve(case, limits + 100)
    free = remedies.curve_of("one reward model", case)
    assert loose.gold[-1].item() == pytest.approx(free.gold_at(float(loose.distance[-1])), abs=0.02)
    assert remedies.constrained_curve(case).distance.max() < free.distance.max()


def test_decompose_adds_up_to_the_total(learned):
    world = bags()
    trained = optimise("tilt", world, learned)
    parts = decompose(world, world.gold, learned, trained, distance=1.5)
    assert parts.approximation == pytest.approx(0) and parts.optimisation == pytest.approx(0, abs=1e-9)
    best = tilt_curve(world.ref_logps, world.gold, world.gold).gold_at(1.5)
    assert parts.total == pytest.approx(best - trained.gold_at(1.5))


def test_detector_roc_curve_has_the_stated_area():
    world = bags()
    alarm = detection(remedies.Evidence(world, compare(world, 400, seed=0), "counts", 0))
    for name in alarm.scores:
        false, true = alarm.curve(name)
        assert float(torch.trapezoid(true, false)) == pytest.approx(alarm.auc(name), abs=1e-9)
    assert alarm.auc("proxy reward") == pytest.approx(alarm.auc("log π / π_ref"), abs=1e-6)


@pytest.mark.slow
def test_leashed_policy_leads_in_proxy_below_the_frontier(learned):
    every = replies()
    free = along(policy_gradient(every, decisions(), lifted(learned)), every.ref_logps, lifted(learned), every.gold)
    held = leash.leashed(every, lifted(learned), betas=(1.0, 0.5))
    assert held.distance[0] == 0 and (held.distance.diff() > 0.1).all()
    assert (leash.lead(held, free)[0] > 0).all()
    best = tilt_curve(bags().ref_logps, learned, bags().gold)
    assert all(p <= best.proxy_at(float(d)) + 1e-3 for d, p in zip(held.distance, held.proxy, strict=True))


def test_stop_where_another_turns_is_its_peak(learned):
    every = replies()
    path = policy_gradient(every, decisions(), lifted(learned), steps=60)
    place, gold_there = leash.stop_where_another_turns(path, every, every.gold)  # an onlooker that knows the truth
    curve = along(path, every.ref_logps, every.gold, every.gold)
    assert (place, gold_there) == pytest.approx(curve.peak)


@pytest.mark.slow
def test_ensemble_members_that_share_more_differ_less():
    world = bags()
    case = remedies.Evidence(world, compare(world, 100, seed=3), "counts", 3)
    apart = [float(world.probs @ networks.members(case, kind, 3).std(0)) for kind in networks.DIFFERENCES]
    assert 0 < apart[0] < min(apart[1:])
    same = [networks.network(world, case.pairs, start=(1,), order=(2,)) for _ in range(2)]
    torch.testing.assert_close(*same, rtol=0, atol=0)


# -- tampering and habits ----------------------------------------------------------------------------------------


def test_decoupled_approval_does_not_tamper_and_coupled_does():
    world = tampering.score_sheet()
    coupled, decoupled = (
        tampering.train_on_approval(world, f, steps=150) for f in (coupled_approval, decoupled_approval)
    )
    assert coupled.edits[-1] > 1.5 and coupled.worth[-1] < 1.2 < 2.5 < coupled.grade[-1]
    assert decoupled.edits[-1] < 0.1 and decoupled.worth[-1] > 1.8
    fooled = tampering.train_on_approval(tampering.score_sheet("grades of edits"), decoupled_approval, steps=150)
    assert fooled.edits[-1] > 2.5


def test_habits_rise_and_fall_along_the_tilt():
    for habit in (habits.over_refusal(), habits.sycophancy()):
        distance, worth, policies = habit.path()
        assert distance[0] < 1e-6 and worth.max() > worth[0] + 0.02 and worth[-1] < worth[0]
        torch.testing.assert_close(policies.sum(-1), torch.ones_like(policies[..., 0]))
    refusal = habits.over_refusal().path()[2][-1, :, 2]
    assert refusal[0] < 0.01 and refusal[1] == refusal[2] and refusal[2] > 0.99
    _, worth, policies = habits.over_refusal().path()
    told = [worth[0], worth.max(), worth[-1], policies[0, 1, 2], policies[-1, 1, 2]]  # what the chapter says of it
    assert [round(float(x), 2) for x in told] == [0.65, 0.71, 0.46, 0.10, 1.00]
    assert habits.sycophancy(bias=0.0).path()[2][-1, 1, 0] < 0.01


# -- the language model, without one -----------------------------------------------------------------------------


def test_calibrated_reward_keeps_units_of_gold_on_new_replies():
    raw = lambda problems, completions: [float(len(c)) for c in completions]
    scores, worth = torch.tensor([[1.0, 2.0], [3.0, 6.0]]), torch.tensor([[0.0, 4.0], [-2.0, 6.0]])
    reward, same = calibrated(raw, scores, worth)
    torch.testing.assert_close(torch.stack([same.mean(), same.std()]), torch.stack([worth.mean(), worth.std()]))
    assert reward([None, None], ["a", "abcdef"]) == pytest.approx([same[0, 0].item(), same[1, 1].item()])


def test_overrated_lists_replies_once():
    drawn = (torch.tensor([[5.0, 5.0], [2.0, 0.0]]), torch.tensor([[0.0, 0.0], [1.0, 3.0]]))
    world = SimpleNamespace(drawn=drawn, texts=["so so", "so so", "well", "no"])
    assert overrated(world, most=2) == [("so so", 5.0, 0.0, None), ("well", 2.0, 1.0, None)]


def test_language_world_refuses_a_failing_gold_before_training():
    with raises(UserError, argument="gold", value="sure!", problem="NoneType"):
        language_world(tasks.get("assistant"), None, LanguagePlan(), gold=lambda prompt, reply: None)


# -- the report and the command ----------------------------------------------------------------------------------

MINE = """
def kindness(prompt, reply):
    return reply.split().count("thanks") + 0.1 * reply.split().count("fact")

def broken(prompt, reply):
    return float("nan") if reply == "um" else len(reply)

def alone(reply):
    return 0.0

def flat(prompt, reply):
    return 1.0

def raises(prompt, reply):
    return {}["tone"]

def several(prompt, reply):
    return [1.0, 2.0]

def nothing(prompt, reply):
    return None

def words(prompt, reply):
    return "good"
"""


@pytest.fixture
def mine(tmp_path):
    path = tmp_path / "mine.py"
    path.write_text(MINE, encoding="utf-8")
    return path


@pytest.mark.slow
def test_overopt_command_with_own_proxy_writes_figures(mine, tmp_path, capsys):
    out = tmp_path / "over"
    assert dispatch(["tour", "overopt", "--proxy", f"{mine}:kindness", "--optimizer", "tilt", "--out", str(out)]) == 0
    assert "thanks thanks thanks thanks thanks" in capsys.readouterr().out
    assert (out / "curves.png").stat().st_size > 5000
    (curve,) = json.loads((out / "curves.json").read_text())["tilt"]
    assert curve["gold"][0] == pytest.approx(float(replies().probs @ replies().gold))
    assert curve["gold"][-1] < curve["gold"][0] and curve["proxy"][-1] > curve["proxy"][0]
    assert {path.stem for path in out.glob("*.png")} == {"curves", "detector", "leash"}
    table = (out / "table.txt").read_text(encoding="utf-8")
    assert all(form in table for form in FORMS)


@pytest.mark.slow
def test_overopt_measures_own_gold():
    length = lambda prompt, reply: float(len(reply.split()))
    report = overopt(proxy=length, gold=length, optimizer="tilt")
    (curve,) = report.curves["tilt"]
    assert curve.fall == pytest.approx(0, abs=1e-9) and curve.gold[-1] > 4.9


@pytest.mark.slow
def test_overopt_learns_a_proxy_from_own_gold():
    """A gold that looks at the order of words: bags of words are not enough for it."""
    first = lambda prompt, reply: float(reply.startswith("please")) + 0.1 * len(reply.split())
    report = overopt(gold=first, optimizer="tilt", pairs=200, seeds=1)
    assert set(report.figures) == {"curves", "data", "remedies", "ensembles", "leash", "errors", "detector"}
    assert float(report.curves["tilt"][0].gold[0]) == pytest.approx(
        float(replies().probs @ replies().grade(first, "gold"))
    )


def wrong(function, name="proxy", **facts):
    """A case of a user's own function."""
    return [f"--{name}", f"{{mine}}:{function}"], {"argument": name} | facts


@pytest.mark.parametrize(
    ("arguments", "facts"),
    [
        (["--proxy", "conts"], {"value": "conts", "expected": "counts"}),
        (["--optimizer", "tlit"], {"value": "tlit", "expected": "tilt"}),
        (["--task", "word"], {"value": "word", "expected": "words"}),
        (["--proxy", "nowhere.py:f"], {"argument": "function", "problem": "missing", "file": "nowhere.py"}),
        (["--proxy", "{mine}:kindnes"], {"value": "kindnes", "expected": "kindness"}),
        (["--proxy", "{mine}:alone"], {"argument": "function", "problem": "signature"}),
        wrong("broken", value="um", problem="float"),
        wrong("raises", value="ok", problem="KeyError"),
        wrong("several", value="ok", problem="list"),
        wrong("nothing", "gold", value="ok", problem="NoneType"),
        wrong("words", "gold", value="ok", problem="str"),
        wrong("flat", value=1, problem="all alike"),
        wrong("flat", "gold", value=1, problem="all alike"),
        (["--gold", "{mine}"], {"argument": "function", "problem": None}),
        (["--pairs", "0"], {"argument": "pairs, seeds"}),
        (["--task", "assistant", "--optimizer", "tilt"], {"value": "tilt"}),
        (["--task", "assistant", "--proxy", "pairs"], {"value": "pairs"}),
        (
            ["--task", "assistant", "--proxy", "{mine}:kindness", "--optimizer", "dpo"],
            {"argument": "optimizer", "value": "dpo", "problem": "conflict"},
        ),
    ],
    ids=lambda case: " ".join(case).replace("{mine}", "") if isinstance(case, list) else "",
)
def test_overopt_refuses_input_before_it_writes(arguments, facts, mine, tmp_path):
    filled = [a.replace("{mine}", str(mine)) for a in arguments]
    with raises(UserError, **facts):
        dispatch(["tour", "overopt", *filled, "--out", str(tmp_path / "over")])
    assert not (tmp_path / "over").exists()


def test_load_function_refuses_a_file_that_fails(tmp_path):
    (tmp_path / "bad.py").write_text("1/0", encoding="utf-8")
    with raises(UserError, argument="function", problem="ZeroDivisionError", file=str(tmp_path / "bad.py")):
        load_function(f"{tmp_path}/bad.py:f")
