"""The template of ``grader.py``: the grader of a run as a file that each engine loads through its own function."""

GRADER = '''"""The run's grader, for any engine: ``grade(messages, text, reference) -> float``, NaN where it could not be graded.

Needs the package minirlhf (``pip install minirlhf``) beside the engine.
"""

import json
from functools import partial
from pathlib import Path

import torch
from minirlhf.data import tasks
from minirlhf.data.chat import end_tokens
from minirlhf.data.records import Problem
from minirlhf.data.types import Rollout
from minirlhf.feedback import custom_rewards, graders, rewards
from minirlhf.models.heads import RewardModel
from minirlhf.models.texts import completion_text
from minirlhf.recipes import parts
from transformers import AutoTokenizer

HERE = Path(__file__).resolve().parent
REWARD = {made}
SHAPE = {shape}  # what the recipe does to rewards, where the engine does not do it
TOKENIZER = AutoTokenizer.from_pretrained(HERE / "model")
ENDS = set(end_tokens(TOKENIZER).ids)


def grade(messages, text, reference=None):
    problems = rewards.with_generation_prompts(TOKENIZER, [Problem(messages, reference)])
    return rewards.score_completions(REWARD, problems, [text])[0][0]
'''

TRL = '''

def shaped(values, completion_ids):
    """The rewards with what the recipe charges for length."""
    width = max(map(len, completion_ids))
    mask = torch.tensor([[i < len(ids) for i in range(width)] for ids in completion_ids])
    nothing = torch.zeros(mask.shape)
    ended = torch.tensor([ids[-1] in ENDS for ids in completion_ids])
    rollout = Rollout(mask.long(), mask.long(), mask, nothing, nothing, mask.long(), ended, len(completion_ids))
    found = torch.tensor(values)
    for function in SHAPE:
        found = function(found, rollout)
    return found.tolist()


def trl_reward(prompts, completion_ids, reference=None, **_):
    """For TRL: it takes special tokens out of the text, so the text is made from the tokens."""
    texts = [completion_text(TOKENIZER.decode(ids[:-1] if ids[-1] in ENDS else ids)) for ids in completion_ids]
    asked = zip(prompts, texts, reference or [None] * len(texts))
    values = shaped([grade(*one) for one in asked], completion_ids)
    return [None if value != value else value for value in values]
'''

VERL = '''

def compute_score(data_source, solution_str, ground_truth, extra_info=None, **_):
    """For verl: one reply, whose special tokens are gone. A reply that could not be graded earns 0: there is no other word for it."""
    problem = json.loads(extra_info["problem"])
    value = grade(problem["prompt"], completion_text(solution_str), problem["reference"])
    return 0.0 if value != value else value
'''

OPENRLHF = '''

def problems():
    """By the text that OpenRLHF makes of a prompt: it hands over this text, not the messages."""
    rows = map(json.loads, (HERE / "data.jsonl").read_text(encoding="utf-8").splitlines())
    text = lambda row: TOKENIZER.apply_chat_template(row["prompt"], tokenize=False, add_generation_prompt=True)
    return {text(row): row for row in rows}


PROBLEMS = problems()


def reply(query, prompt):
    """The reply in a text of prompt and reply, without its end token."""
    before = TOKENIZER.decode(TOKENIZER(prompt, add_special_tokens=False)["input_ids"], skip_special_tokens=False)
    if not query.startswith(before):
        raise ValueError(f"a reply that does not begin with its prompt: {query[:60]!r}")
    text = query[len(before) :]
    for end in (TOKENIZER.decode([token]) for token in ENDS):
        text = text.removesuffix(end)
    return completion_text(text)


def reward_func(queries, prompts, labels):
    """For OpenRLHF: texts of prompt and reply, special tokens included. A reply that could not be graded earns 0."""
    asked = ((PROBLEMS[prompt], reply(query, prompt)) for query, prompt in zip(queries, prompts))
    values = torch.tensor([grade(row["prompt"], text, row["reference"]) for row, text in asked]).nan_to_num(0.0)
    return {"rewards": values, "scores": values, "extra_logs": {}}
'''
