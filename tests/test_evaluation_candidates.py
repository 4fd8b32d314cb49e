"""Several replies per prompt: the same replies as one by one, and what is picked from them."""

import pytest
import torch

from minirlhf.data import tasks
from minirlhf.evaluation import Candidates, candidates, evaluate
from minirlhf.feedback.rewards import task_problems, task_reward
from minirlhf.models.sampling import Sampling
from minirlhf.models.tiny import tiny_model
from minirlhf.models.tokenizers import word_tokenizer


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


def test_rewards_are_those_of_the_texts(drawn):
    world, problems, many, _ = drawn
    for problem, texts, rewards in zip(problems, many.completions, many.rewards.tolist(), strict=True):
        prompt = problem.prompt[-1]["content"]
        assert rewards == pytest.approx([world.grade(prompt, text) for text in texts])


def test_the_first_reply_is_the_one_of_a_single_evaluation(drawn):
    _, _, many, single = drawn
    assert [texts[0] for texts in many.completions] == single.completions
    torch.testing.assert_close(many.rewards[:, 0], single.rewards)


def test_summaries_by_hand():
    rollout = None  # not looked at
    two = Candidates(rollout, [["a", "a", "b"], ["a", "b", "c"]], torch.tensor([[1.0, 1.0, 4.0], [0.0, -2.0, 2.0]]))
    assert two.best.mean == 3.0 and two.average.mean == 1.0 and two.gap.mean == 3.5
    assert two.distinct.mean == pytest.approx(5 / 6)
    assert two.average.stderr == pytest.approx(1.0)  # of the prompts' means, 2 and 0
