"""From votes, grades, trees, constraints and sessions to records."""

import re
from math import comb
from pathlib import Path

import pytest
import torch

from minirlhf.core.errors import UserError
from minirlhf.data.elicitation import (
    Branching,
    asked,
    from_constraint,
    from_grade,
    from_session,
    from_vote,
    said,
    unroll,
)
from minirlhf.data.records import Comparison, Judgement, Ranking
from minirlhf.equations.comparisons import graded_preference

PAGE = (Path(__file__).parents[1] / "book" / "07-preference-data.md").read_text(encoding="utf-8")

Q = asked("why?")


def test_a_vote_is_what_it_says_and_no_more():
    assert from_vote(Q, "x", "y", "a") == [Comparison(Q, said("x"), said("y"))]
    assert from_vote(Q, "x", "y", "b") == [Comparison(Q, said("y"), said("x"))]
    assert from_vote(Q, "x", "y", "tie") == []
    assert from_vote(Q, "x", "y", "both bad") == [Judgement(Q, said("x"), False), Judgement(Q, said("y"), False)]
    with pytest.raises(UserError, match="unknown vote 'c'"):
        from_vote(Q, "x", "y", "c")


def test_a_scale_of_five_has_a_tie_and_one_of_eight_has_none():
    five = [from_grade(Q, "x", "y", level, levels=5) for level in range(1, 6)]
    assert [pair and (pair.chosen[0]["content"], pair.margin) for pair in five] == [
        ("x", 2.0),
        ("x", 1.0),
        None,
        ("y", 1.0),
        ("y", 2.0),
    ]
    eight = [from_grade(Q, "x", "y", level, levels=8) for level in range(1, 9)]
    assert [pair.margin for pair in eight] == [3.5, 2.5, 1.5, 0.5, 0.5, 1.5, 2.5, 3.5]
    with pytest.raises(ValueError, match="level = 9"):
        from_grade(Q, "x", "y", 9, levels=8)


@pytest.mark.parametrize(("replies", "pairs"), [(2, 1), (4, 6), (9, 36)])
def test_a_ranking_of_k_gives_all_its_pairs(replies, pairs):
    ranking = Ranking(Q, [[said(str(n))] for n in range(replies)])
    assert len(ranking.comparisons()) == comb(replies, 2) == pairs


def test_a_tree_is_unrolled_along_its_best_replies():
    tree = Branching("one", ("good", "bad"), Branching("two", ("fine", "poor", "worse")))
    first, second = unroll(tree)
    assert first.prompt == asked("one") and second.prompt == [*asked("one"), *said("good"), *asked("two")]
    assert [len(r.comparisons()) for r in (first, second)] == [1, 3]


def test_the_prompt_of_a_constraint_pair_asks_for_it():
    pair = from_constraint("Name a fruit.", "Use capitals.", "PEAR", "pear")
    assert pair == Comparison(asked("Name a fruit. Use capitals."), said("PEAR"), said("pear"))


@pytest.mark.parametrize(
    ("shown", "expected"),
    [
        ([("x", "closed")], []),
        ([("x", "regenerated"), ("y", "closed")], []),
        ([("x", "thumb down")], [Judgement(Q, said("x"), False)]),
        ([("x", "regenerated"), ("y", "copied")], [Judgement(Q, said("y"), True), Comparison(Q, said("y"), said("x"))]),
        (
            [("x", "regenerated"), ("y", "regenerated"), ("z", "thumb up")],
            [Judgement(Q, said("z"), True), Comparison(Q, said("z"), said("y"))],
        ),
        ([("x", "regenerated"), ("x", "copied")], [Judgement(Q, said("x"), True)]),
        ([("x", "regenerated"), ("y", "thumb down")], [Judgement(Q, said("y"), False)]),
    ],
)
def test_a_session_gives_only_what_is_certain(shown, expected):
    assert from_session(Q, shown) == expected


def test_an_unknown_action_is_named():
    with pytest.raises(UserError, match="unknown action 'stared at'"):
        from_session(Q, [("x", "stared at")])


def test_the_page_names_levels_in_the_order_of_its_equation():
    levels = re.search(r"On five levels \(([^)]*)\)", PAGE)[1].split(", ")
    cuts = torch.tensor([-3.0, -1.0, 1.0, 3.0])
    likeliest = [levels[int(graded_preference(torch.tensor(lead), cuts).argmax())] for lead in (-9.0, 0.0, 9.0)]
    assert likeliest == ["B much better", "tie", "A much better"]
    assert "is A's lead in reward, $\\Delta$" in PAGE and "the upper four of eight levels become" in PAGE
