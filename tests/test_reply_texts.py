"""From tokens to the text that a grader reads: the indentation of a program's first line is a part of the reply."""

import pytest
import torch
from test_graders import DOUBLE

from minirlhf.data.records import Problem
from minirlhf.data.tasks import TASKS
from minirlhf.data.types import Rollout
from minirlhf.feedback import graders, rewards
from minirlhf.models.texts import completion_text, completion_texts
from minirlhf.models.tokenizers import train_tokenizer


@pytest.mark.parametrize(
    ("decoded", "reply"),
    [
        ("    return 2 * x\n", "    return 2 * x"),
        ("\n  \n\t\n    y = x\n    return x + y\n\n", "    y = x\n    return x + y"),
        ("\tpass", "\tpass"),
        ("42", "42"),
        ("one\n\n two ", "one\n\n two"),
        (" \n ", ""),
        ("", ""),
    ],
)
def test_reply_text_strips_blank_lines_before_and_space_behind(decoded, reply):
    assert completion_text(decoded) == reply


@pytest.mark.parametrize("ended", [True, False])
@pytest.mark.parametrize(
    ("said", "pay"), [("    return 2 * x\n", 1), ("\n    y = x\n    return x + y", 1), ("    return None", 0)]
)
def test_completion_texts_keep_indentation_for_graders(said, pay, ended):
    """It earned nothing while the white space around every reply was taken away."""
    tokenizer = train_tokenizer([said] * 3, 300)
    row = [*tokenizer(said, add_special_tokens=False)["input_ids"], *([tokenizer.eos_token_id] if ended else [])]
    ids = torch.tensor([[*row, tokenizer.pad_token_id]])
    real = torch.tensor([[True] * len(row) + [False]])
    nothing = torch.zeros(ids.shape)
    rollout = Rollout(ids, real, real, nothing, nothing, ids, torch.tensor([ended]), 1)
    [text] = completion_texts(rollout, tokenizer)
    for name in ("tests", "tests_share"):
        reward = rewards.reference_reward(graders.get(name))
        problem = Problem([{"role": "user", "content": "double"}], DOUBLE)
        assert graders.get(name)(said, DOUBLE) == pay
        assert reward([problem], [text]) == [pay]


@pytest.mark.parametrize("name", TASKS)
def test_task_reward_ignores_space_around_reply(name):
    task = TASKS[name]
    [problem] = rewards.task_problems(task, "train")[:1]
    right = task.reference(problem.prompt[-1]["content"])
    plain, wide = rewards.task_reward(task)([problem] * 2, [right, f" {right}\n"])
    assert wide == plain > 0
