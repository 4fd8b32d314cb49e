"""Grids and the people who teach on them."""

import pytest
import torch
from facts import raises

from minirlhf.core import exact_mdp
from minirlhf.core.randomness import generator
from minirlhf.equations.mdp import greedy_policy
from minirlhf.tabular.grid import ARROWS, GARDEN, GARDEN_WISHES, Grid, arrival_rewards
from minirlhf_course.chapters.ch01_introduction import human_feedback as hf

STILL, WINDY = GARDEN.transitions(), GARDEN.transitions(0.2)
WISHES = GARDEN.values_of(GARDEN_WISHES)
REWARDS = arrival_rewards(STILL, WISHES)
WANTED = hf.best_action_values(STILL, REWARDS)
BEST = greedy_policy(WANTED)


def worth(policy, transitions=STILL):
    """What the people get in 20 steps from the start."""
    rewards = arrival_rewards(transitions, WISHES)
    return float(exact_mdp.expected_return(GARDEN.start(), transitions, rewards, policy, gamma=1.0, steps=20))


# -- the grid ----------------------------------------------------------------------------------------------------


def test_grid_moves_match_arrows():
    grid = Grid.parse("""
        . . .
        . S .
        . . G
    """)
    to = {ARROWS[a]: int(grid.transitions()[4, a].argmax()) for a in range(4)}
    assert to == {"↑": 1, "→": 5, "↓": 7, "←": 3}


def test_grid_walls_and_goal_hold():
    grid = Grid.parse("S G")
    moves = grid.transitions()
    assert moves[0].argmax(-1).tolist() == [0, 1, 0, 0]
    assert bool((moves[1, :, 1] == 1).all())
    assert grid.goal == 1 and grid.start().tolist() == [1.0, 0.0]


def test_grid_slip_keeps_probabilities():
    moves = GARDEN.transitions(0.2)
    torch.testing.assert_close(moves.sum(-1), torch.ones(GARDEN.size, 4, dtype=torch.float64))
    assert float(moves[0, 1, 1]) == pytest.approx(0.8 + 0.2 / 4)


@pytest.mark.parametrize(
    ("drawing", "facts"),
    [
        ("S .\nG", {"argument": "drawing", "value": [2, 1]}),
        ("S .", {"argument": "G", "value": 0, "expected": 1}),
        ("S G S", {"argument": "S", "value": 2, "expected": 1}),
    ],
)
def test_grid_parse_refuses_bad_map(drawing, facts):
    with raises(ValueError, **facts):
        Grid.parse(drawing)


def test_grid_transitions_refuse_bad_slip():
    with raises(ValueError, argument="slip", value=1.5):
        GARDEN.transitions(1.5)


def test_garden_best_way_goes_around_flowers():
    """Six steps around them, then fourteen and the one of arrival on the bench."""
    assert worth(BEST) == 30.0
    straight = BEST.clone()
    straight[GARDEN.cells.index("S") : GARDEN.goal] = torch.tensor([0.0, 1.0, 0.0, 0.0], dtype=torch.float64)
    assert worth(straight) == 2 * 17 - 6


# -- comparisons -------------------------------------------------------------------------------------------------


def test_best_action_values_equal_enumeration():
    grid = Grid.parse("S *\n. G")
    rewards = arrival_rewards(grid.transitions(), grid.values_of(GARDEN_WISHES))
    _, best = exact_mdp.best_values(grid.transitions(), rewards, gamma=0.8)
    torch.testing.assert_close(hf.best_action_values(grid.transitions(), rewards, gamma=0.8), best)


def test_fit_cell_values_is_minimum():
    answers = hf.ask_for_comparisons(STILL, WISHES, 60, rng=generator("fit"))
    values = hf.fit_cell_values(answers, GARDEN.size, ridge=0.3).requires_grad_()
    won = torch.where(answers.first_wins[:, None], answers.first, answers.second)
    lost = torch.where(answers.first_wins[:, None], answers.second, answers.first)
    margin = values[won].sum(-1) - values[lost].sum(-1)
    loss = -torch.nn.functional.logsigmoid(margin).sum() + 0.15 * (values**2).sum()
    (slope,) = torch.autograd.grad(loss, values)
    torch.testing.assert_close(slope, torch.zeros_like(slope), atol=1e-7, rtol=0)


def test_fit_cell_values_recovers_wishes_up_to_constant():
    answers = hf.ask_for_comparisons(STILL, WISHES, 20_000, rng=generator("many"))
    found = hf.fit_cell_values(answers, GARDEN.size)
    error = found - found.mean() - (WISHES - WISHES.mean())
    assert float(error.abs().max()) < 0.6  # of a scale from −6 to 2
    assert worth(hf.plan(STILL, found)) == 30.0


def test_plan_and_comparisons_ignore_constant():
    torch.testing.assert_close(hf.plan(STILL, WISHES), hf.plan(STILL, WISHES + 3.0))
    one, other = (hf.ask_for_comparisons(STILL, WISHES + c, 50, rng=generator("shift")) for c in (0.0, 3.0))
    assert torch.equal(one.first_wins, other.first_wins)


def test_comparisons_head_takes_first():
    answers = hf.ask_for_comparisons(STILL, WISHES, 10, rng=generator("head"))
    assert torch.equal(answers.head(4).second, answers.second[:4]) and len(answers.head(4).first_wins) == 4


# -- judgements --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("learner", [hf.tamer, hf.coach])
def test_judgement_learners_find_way(learner):
    about = WANTED if learner is hf.tamer else REWARDS
    policies = learner(STILL, about, GARDEN.start(), [10, 800], rng=generator("teach", 1))
    assert policies.shape == (2, GARDEN.size, 4)
    torch.testing.assert_close(policies.sum(-1), torch.ones(2, GARDEN.size, dtype=torch.float64))
    assert worth(policies[1]) > 24 > worth(policies[0])


def test_approval_as_reward_is_harvested():
    """With a long view the best plan for praise is to earn it again and again, and never to arrive."""
    praise = hf.approval(WANTED, praise=1.0, blame=-0.5)
    praise[GARDEN.goal] = 0.0
    short, long = (greedy_policy(hf.best_action_values(STILL, praise, gamma=gamma)) for gamma in (0.0, 0.9))
    assert worth(short) == 30.0
    stay = exact_mdp.visits(GARDEN.start(), STILL, long, gamma=1.0, steps=20).sum(-1)
    assert float(stay[GARDEN.goal]) == 0.0


# -- imitation ---------------------------------------------------------------------------------------------------


def test_clone_knows_only_shown_states():
    copy = hf.clone(BEST, {0, 3})
    assert torch.equal(copy[3], BEST[3])
    assert copy[1].tolist() == [0.25] * 4


def test_visited_without_wind_is_one_path():
    path = hf.visited(STILL, BEST, GARDEN.start(), 5, generator("path"))
    assert len(path) == 7  # six cells and the goal


def test_clone_and_correct_beats_clone():
    expert = greedy_policy(hf.best_action_values(WINDY, arrival_rewards(WINDY, WISHES)))
    shown = hf.visited(STILL, expert, GARDEN.start(), 8, generator("demonstrations"))
    copied = worth(hf.clone(expert, shown), WINDY)
    corrected = worth(hf.clone_and_correct(WINDY, expert, GARDEN.start(), 8, generator("corrections")), WINDY)
    assert copied < corrected <= worth(expert, WINDY) + 1e-9
