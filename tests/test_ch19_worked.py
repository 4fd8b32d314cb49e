"""Numbers that chapter 19 and its slides work out by hand, computed from the library and from the study."""

import math
import re
from pathlib import Path
from statistics import fmean

import pytest
import torch

from minirlhf import evidence
from minirlhf.chapters.ch19_evaluation import experiments
from minirlhf.equations import evaluation
from minirlhf.equations.estimators import pass_at_k

ROOT = Path(__file__).resolve().parents[1]
PAGE = (ROOT / "book" / "19-evaluation.md").read_text(encoding="utf-8")
NOTEBOOK = re.sub(r"\n#\s+", " ", (ROOT / "notebooks" / "19_evaluation.py").read_text(encoding="utf-8"))
SLIDES = (ROOT / "book" / "slides" / "19.md").read_text(encoding="utf-8")


def two(number):
    """As the book prints a share: two digits, no leading zero."""
    return f"{number:.2f}".removeprefix("0")


def test_pass_at_5_of_ten_replies_of_which_three_are_right():
    assert (math.comb(7, 5), math.comb(10, 5)) == (21, 252) and "21/252 = 1/12" in PAGE
    assert float(pass_at_k(10, 3, k=5)) == pytest.approx(1 - 1 / 12) and "u_5 = .9167" in PAGE
    assert round(1 - 1 / 12, 4) == 0.9167


def test_ten_of_ten_says_above_72_hundredths():
    low, high = evaluation.wilson_interval(
        torch.tensor(10.0, dtype=torch.float64), torch.tensor(10.0, dtype=torch.float64)
    )
    assert two(float(low)) == ".72" and float(high) == 1.0 and '"above .72"' in PAGE


def test_what_ten_ties_say_and_the_variance_of_a_vote():
    ten, none = torch.tensor(10.0, dtype=torch.float64), torch.tensor(0.0, dtype=torch.float64)
    ties, votes = evaluation.win_rate_interval(none, ten, none), evaluation.wilson_interval(ten / 2, ten)
    said = [two(float(end)) for end in (*ties, *votes)]
    assert "Ten ties say {} to {}, not {} to {}.".format(*said) in PAGE
    vote = torch.tensor([1.0] * 3 + [0.5] * 4 + [0.0] * 3)
    assert (
        float(vote.var(correction=0)) == pytest.approx(0.15)
        and "of 30 % wins and 40 % ties .15, where a share has .25" in PAGE
    )


def test_the_figure_of_coverages_is_what_its_alt_text_says():
    at_the_end, at_ninety = experiments.coverages(30, 0.995), experiments.coverages(30, 0.9)
    assert two(at_the_end["wilson"]) == ".86" and max(at_the_end["wald"], at_the_end["bootstrap"]) < 0.2
    assert min(at_ninety["wald"], at_ninety["bootstrap"]) > 0.8
    assert "has .86 at the right end" in NOTEBOOK and "from .9 on, to below .2 at the right end" in NOTEBOOK


def test_150_items_in_fives_are_worth_58():
    effect = float(evaluation.design_effect(torch.tensor(5.0), torch.tensor(0.4)))
    assert effect == pytest.approx(2.6) and round(150 / effect) == 58
    for text in (PAGE, SLIDES):
        assert "150 items are worth 58" in text


def test_how_many_items_tell_70_from_75():
    noise = 0.70 * 0.30 + 0.75 * 0.25
    assert noise == pytest.approx(0.3975) and "= .3975$" in PAGE
    needed = evaluation.items_needed(0.05, item=noise, reply=0.0)
    assert math.ceil(needed) == 1248 and "That gives 1,248 items." in PAGE and "needs 1,248 items" in SLIDES
    assert noise / needed == pytest.approx(0.0025 / 7.85, rel=1e-3)
    assert evaluation.items_needed(0.025, item=noise, reply=0.0) == pytest.approx(4 * needed)


def test_three_rules_choose_three_answers():
    """The table: each row as it is printed, each column's largest in bold."""
    rows = {"yes": (-2.0, 1, -1.0), "in the spring": (-4.5, 3, -5.0), "photosynthesis": (-7.0, 4, -10.0)}
    logps, lengths, priors = (torch.tensor(column, dtype=torch.float64) for column in zip(*rows.values(), strict=True))
    columns = [
        evaluation.normalised_scores(logps, lengths, exponent=0.0),
        evaluation.normalised_scores(logps, lengths, exponent=1.0),
        evaluation.pointwise_information(logps, priors),
    ]
    assert [int(column.argmax()) for column in columns] == [0, 1, 2]
    minus = lambda text: text.replace("-", "−")
    for i, name in enumerate(rows):
        told = [minus(f"{columns[0][i]:.1f}"), minus(f"{columns[1][i]:.2f}"), minus(f"{columns[2][i]:+.1f}")]
        told[i] = f"**{told[i]}**"
        line = f'| "{name}" | {told[0]} | {int(lengths[i])} | {told[1]} | {minus(f"{priors[i]:.1f}")} | {told[2]} |'
        assert line in PAGE


def test_the_slides_tell_what_the_study_has_measured():
    found = evidence.result("ch19")
    mean = lambda name: fmean(evidence.values(found, name))
    rows = {"A: half at .95, half at .01": "A", "B: all at .40": "B"}
    for title, model in rows.items():
        cells = [two(mean(f"{model}_{name}")) for name in ("pass_1", "pass_8", "all_8", "vote_9")]
        cells[2] = cells[2] if model == "A" else f"{mean('B_all_8'):.3f}".removeprefix("0")
        assert f"| {title} | " + " | ".join(cells) + " |" in SLIDES
    wald, bootstrap, wilson = (two(mean(f"coverage_{name}")) for name in ("wald", "bootstrap", "wilson"))
    assert f"in {wald} (Wald), {bootstrap} (bootstrap), {wilson} (Wilson)" in SLIDES
    assert two(mean("climb_500_private")) == ".50" and "stays at .50 on the hidden half" in SLIDES
