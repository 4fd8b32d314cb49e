"""Chapter 13's comparison: runs are compared at equal sampled tokens; and the book's table of recipes."""

import sys
from pathlib import Path

import pytest
import torch
from docutils import nodes
from facts import raises

from minirlhf.core.errors import ArgumentError
from minirlhf.data.formats import Problem
from minirlhf.recipes import RECIPES, get, summary
from minirlhf.trainers.history import History
from minirlhf_course.chapters.ch13_group_relative_methods import group_family

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "book" / "_ext"))


def history(tokens, rewards):
    rows = History()
    for step, (count, reward) in enumerate(zip(tokens, rewards, strict=True)):
        rows.append(step, sampled_tokens=count, reward=reward)
    return rows


def test_group_family_tokens_add_up():
    assert group_family.tokens(history([10, 20, 30], [0, 0, 0])).tolist() == [10, 30, 60]


def test_group_family_curve_compares_runs_at_equal_tokens():
    slow, fast = history([20] * 4, [0.0, 1.0, 2.0, 3.0]), history([10] * 8, [float(x) for x in range(8)])
    assert group_family.curve(slow, [20, 40, 80], window=1) == [0.0, 1.0, 3.0]
    assert group_family.curve(fast, [20, 40, 80], window=1) == [1.0, 3.0, 7.0]


def test_group_family_curve_is_a_mean_over_a_window():
    run = history([10] * 4, [0.0, 2.0, 4.0, 6.0])
    assert group_family.curve(run, [10, 30, 40], window=2) == [0.0, 3.0, 5.0]
    with raises(ArgumentError, argument="at", value=41, expected=40):
        group_family.curve(run, [30, 41], window=2)


def test_group_family_thinks_looks_at_the_beginning_of_a_reply():
    assert group_family.thinks([Problem("x")] * 2, ["think a answer a", "answer think"]) == [1.0, 0.0]


def test_group_family_recipes_differ_in_one_choice():
    """Every row of the clip comparison can use a rollout four times, has no KL and weighs tokens alike."""
    for name, recipe in group_family.off_policy().items():
        assert recipe.update.num_iterations == 4 and recipe.update.kl is None, name
        weights = recipe.update.weights(torch.tensor([[1, 1, 0], [1, 1, 1]]).bool())
        assert weights.sum(-1).tolist() == pytest.approx([0.5, 0.5]), name
    assert all(r.update.num_iterations == r.update.num_minibatches == 1 for r in group_family.on_policy().values())


# -- the table in the book ---------------------------------------------------------------------------------------


def cells(frame):
    return [
        [entry.astext().replace("\u200b", "") for entry in row.findall(nodes.entry)] for row in frame.findall(nodes.row)
    ]


def test_recipe_table_has_a_row_for_each_recipe():
    from recipe_table import COLUMNS, table

    head, *rows = cells(table(list(RECIPES.values())))
    assert head == list(COLUMNS)
    assert [row[0] for row in rows] == list(RECIPES)
    for row, recipe in zip(rows, RECIPES.values(), strict=True):
        wanted = [summary(recipe)[column] for column in COLUMNS]
        assert row == ["–" if text == "none" else text for text in wanted]


def test_recipe_table_follows_a_changed_grpo_recipe():
    from recipe_table import table

    _, row = cells(table([get("grpo").with_(name="mine", kl=None, epsilon_high=0.5)]))
    assert row[0] == "mine" and "epsilon_high=0.5" in row[2] and row[4] == "–"
