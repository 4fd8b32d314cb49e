"""Several replies per prompt: the same replies as one by one, and what is picked from them; samples that cannot be graded."""

import math

import pytest
import torch
from facts import raises

from minirlhf.core.errors import UserError
from minirlhf.data import tasks
from minirlhf.feedback.rewards import task_problems, task_reward
from minirlhf.models.sampling import Sampling
from minirlhf.models.tiny import tiny_model
from minirlhf.models.tokenizers import word_tokenizer
from minirlhf.trainers.evaluation import Candidates, candidates, evaluate, win_rate


@pytest.fixture(scope="module")
def drawn():
    world = tasks.get("assistant")
    tokenizer = word_tokenizer(world.words)
    model = tiny_model("nano", tokenizer, seed=3)
    problems, reward = task_problems(world, "test")[:5], task_reward(world)
    sampling = Sampling(max_completion_length=6)
    both = {"tokenizer": tokenizer, "sampling": sampling, "seed": 4}
    return (
        world,
        problems,
        candidates(model, problems, reward, num_generations=3, **both),
        evaluate(model, problems, reward, **both),
    )


def test_candidates_rewards_are_grades_of_completions(drawn):
    world, problems, many, _ = drawn
    for problem, texts, rewards in zip(problems, many.completions, many.rewards.tolist(), strict=True):
        prompt = problem.prompt[-1]["content"]
        assert rewards == pytest.approx([world.grade(prompt, text) for text in texts])


def test_candidates_first_reply_equals_evaluate(drawn):
    _, _, many, single = drawn
    assert [texts[0] for texts in many.completions] == single.completions
    torch.testing.assert_close(many.rewards[:, 0], single.rewards)


def test_candidates_best_average_gap_and_distinct():
    rollout = None  # not looked at
    two = Candidates(rollout, [["a", "a", "b"], ["a", "b", "c"]], torch.tensor([[1.0, 1.0, 4.0], [0.0, -2.0, 2.0]]))
    assert two.best.mean == 3.0 and two.average.mean == 1.0 and two.gap.mean == 3.5
    assert two.distinct.mean == pytest.approx(5 / 6)
    assert two.average.stderr == pytest.approx(1.0)  # of the prompts' means, 2 and 0


# -- samples that cannot be graded -------------------------------------------------------------------------------

NAN = math.nan


@pytest.fixture(scope="module")
def ask():
    """Evaluate one policy on one set of prompts by any reward."""
    world = tasks.get("assistant")
    tokenizer = word_tokenizer(world.words)
    model = tiny_model("nano", tokenizer, seed=3)
    problems = task_problems(world, "test")[:6]
    fixed = {"tokenizer": tokenizer, "sampling": Sampling(max_completion_length=6), "seed": 4}
    return lambda reward, function=evaluate, **more: function(model, problems, reward, **fixed, **more)


def one_in_three_fails(problems, completions):
    return [NAN if i % 3 == 0 else float(i) for i in range(len(completions))]


def test_evaluate_leaves_out_ungraded_samples_and_counts_them(ask, caplog):
    found = ask(one_in_three_fails)
    assert found.rewards.isnan().tolist() == [True, False, False] * 2
    assert found.reward.mean == 3.0 and found.frac_invalid == pytest.approx(1 / 3)  # of 1, 2, 4, 5
    assert found.reward.stderr == pytest.approx(math.sqrt(10 / 3 / 4))
    assert found.length.mean == float(found.lengths.double().mean())  # what needs no grade is of all six
    [logged] = caplog.records
    assert logged.args[:2] == (2, 6) and "nan" in logged.args[2]


@pytest.mark.parametrize("grade", [NAN, math.inf, -math.inf])
def test_evaluate_no_graded_sample_raises_user_error(ask, grade):
    with raises(UserError, argument="rewards", problem="not graded") as caught:
        ask(lambda problems, completions: [grade] * len(completions))
    assert f" {grade} " in caught.value.value


def test_candidates_broken_grader_raises_user_error(ask):
    with raises(UserError, argument="rewards", problem="not graded") as caught:
        ask(broken, candidates, num_generations=2)
    assert "ZeroDivisionError: oh no" in caught.value.value


def broken(problems, completions):
    raise ZeroDivisionError("oh no")


def test_candidates_summaries_skip_ungraded_replies_and_prompts():
    rewards = torch.tensor([[1.0, NAN, 4.0], [NAN, NAN, NAN], [NAN, -2.0, -4.0]])
    few = Candidates(None, [["a", "b", "c"]] * 3, rewards)
    assert few.best.mean == 1.0  # of 4 and -2, where a failure that counts 0 would be the best of the last prompt
    assert few.average.mean == pytest.approx(-0.25) and few.gap.mean == 2.5
    assert few.average.stderr == pytest.approx(2.75)  # of 2.5 and -3
    assert few.frac_invalid == pytest.approx(5 / 9) and few.distinct.mean == 1.0


def test_win_rate_counts_only_prompts_graded_for_both():
    ours, theirs = torch.tensor([1.0, NAN, 0.0, 2.0, 3.0]), torch.tensor([0.0, -1.0, NAN, 2.0, 4.0])
    assert win_rate(ours, theirs).mean == 0.5  # a win, a tie, a loss
    assert win_rate(ours, theirs).stderr == pytest.approx(0.5 / math.sqrt(3))
    assert win_rate(theirs, ours).mean == 0.5
    assert win_rate(ours[:1], theirs[:1]).mean == 1.0
    neither = win_rate(ours[1:3], theirs[1:3])
    assert math.isnan(neither.mean) and math.isnan(neither.stderr)
    with raises(ValueError, argument="candidate", problem="shape"):
        win_rate(ours, theirs[:3])
