"""From votes, grades, trees, constraints and sessions to records."""

from math import comb

import pytest
import torch
from facts import raises

from minirlhf.core.errors import ArgumentError, UserError
from minirlhf.data.elicitation import (
    Branching,
    as_completion,
    as_prompt,
    from_constraint,
    from_grade,
    from_session,
    from_vote,
    unroll,
)
from minirlhf.data.records import Comparison, Ranking, UnpairedPreference
from minirlhf.equations.comparisons import graded_preference

Q = as_prompt("why?")


def test_from_vote_gives_pairs_or_judgements():
    assert from_vote(Q, "x", "y", "a") == [Comparison(Q, as_completion("x"), as_completion("y"))]
    assert from_vote(Q, "x", "y", "b") == [Comparison(Q, as_completion("y"), as_completion("x"))]
    assert from_vote(Q, "x", "y", "tie") == []
    assert from_vote(Q, "x", "y", "both bad") == [
        UnpairedPreference(Q, as_completion("x"), False),
        UnpairedPreference(Q, as_completion("y"), False),
    ]
    with raises(UserError, argument="vote", value="c", problem="unknown"):
        from_vote(Q, "x", "y", "c")


def test_from_grade_on_five_levels_has_a_tie_and_on_eight_none():
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
    with raises(ArgumentError, argument="level", value=9, expected="[1, 8]"):
        from_grade(Q, "x", "y", 9, levels=8)


@pytest.mark.parametrize(("replies", "pairs"), [(2, 1), (4, 6), (9, 36)])
def test_ranking_of_k_gives_all_its_comparisons(replies, pairs):
    ranking = Ranking(Q, [[as_completion(str(n))] for n in range(replies)])
    assert len(ranking.comparisons()) == comb(replies, 2) == pairs


def test_unroll_follows_the_best_replies_of_a_tree():
    tree = Branching("one", ("good", "bad"), Branching("two", ("fine", "poor", "worse")))
    first, second = unroll(tree)
    assert first.prompt == as_prompt("one") and second.prompt == [
        *as_prompt("one"),
        *as_completion("good"),
        *as_prompt("two"),
    ]
    assert [len(r.comparisons()) for r in (first, second)] == [1, 3]


def test_from_constraint_asks_for_it_in_the_prompt():
    pair = from_constraint("Name a fruit.", "Use capitals.", "PEAR", "pear")
    assert pair == Comparison(as_prompt("Name a fruit. Use capitals."), as_completion("PEAR"), as_completion("pear"))


@pytest.mark.parametrize(
    ("shown", "expected"),
    [
        ([("x", "closed")], []),
        ([("x", "regenerated"), ("y", "closed")], []),
        ([("x", "thumb down")], [UnpairedPreference(Q, as_completion("x"), False)]),
        (
            [("x", "regenerated"), ("y", "copied")],
            [UnpairedPreference(Q, as_completion("y"), True), Comparison(Q, as_completion("y"), as_completion("x"))],
        ),
        (
            [("x", "regenerated"), ("y", "regenerated"), ("z", "thumb up")],
            [UnpairedPreference(Q, as_completion("z"), True), Comparison(Q, as_completion("z"), as_completion("y"))],
        ),
        ([("x", "regenerated"), ("x", "copied")], [UnpairedPreference(Q, as_completion("x"), True)]),
        ([("x", "regenerated"), ("y", "thumb down")], [UnpairedPreference(Q, as_completion("y"), False)]),
    ],
)
def test_from_session_gives_only_what_is_certain(shown, expected):
    assert from_session(Q, shown) == expected


def test_from_session_with_unknown_action_names_it():
    with raises(UserError, argument="action", value="stared at", problem="unknown"):
        from_session(Q, [("x", "stared at")])


def test_graded_preference_counts_levels_from_the_second_reply_to_the_first():
    """The level in which the lead of the first reply is likeliest, of five: 0 is "B much better"."""
    cuts = torch.tensor([-3.0, -1.0, 1.0, 3.0])
    assert [int(graded_preference(torch.tensor(lead), cuts).argmax()) for lead in (-9.0, 0.0, 9.0)] == [0, 2, 4]
