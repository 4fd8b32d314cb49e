"""Who finds the one wrong step of a reply? Five seeds: ``python -m minirlhf_course.chapters.ch08_reward_models.study_per_token`` (about five minutes of one core).

The running sum. A reward, an outcome, a process and a value head learn from the same 3,000 replies of the careless writer and read 200
replies with one planted slip. One more process head is not told the policy's surprise. Writes ``study_per_token.json``.
"""

from __future__ import annotations

import torch
from torch import Tensor

from minirlhf.data import tasks
from minirlhf.data.tasks.running_sum import RUNNING_SUM
from minirlhf.stages import pipeline, zoo
from minirlhf.stages.pipeline import Trained
from minirlhf.trainers.reward import RewardConfig
from minirlhf_course.chapters.ch08_reward_models.per_token import (
    HeadsPlan,
    careless,
    largest_drop,
    planted,
    readings,
    train_heads,
)
from minirlhf_course.evidence import Study, brief, settings, trace

REPLIES = 200


def one_seed(
    seed: int, plan: HeadsPlan | None = None, policy: Trained | None = None, count: int = REPLIES
) -> dict[str, float]:
    """Six heads and the policy itself; the exact chance of a right answer is what they are held against."""
    policy = policy or Trained(*zoo.load("running-sum-sft", quiet=True))
    plan = plan or HeadsPlan(seed=seed)
    heads = train_heads(policy, plan)
    plain = train_heads(policy, plan, only=("process",), told=False)
    prompts = RUNNING_SUM.prompts("test")[:count]
    found = planted(policy.tokenizer, prompts, seed)
    place = torch.tensor([at for at, _, _ in found])
    bad = readings(policy, heads, [wrong for _, wrong, _ in found])
    good = readings(policy, heads, [right for _, _, right in found])
    numbers: dict[str, float] = {}
    for name in ("reward", "outcome", "process", "value", "policy", "exact"):
        numbers[f"{name}_found"] = _share(largest_drop(bad[name]) == place)
    for name, scores in readings(policy, plain, [wrong for _, wrong, _ in found]).items():
        if name in plain:
            numbers[f"plain_{name}_found"] = _share(largest_drop(scores) == place)
    inner = (place < 5).nonzero().flatten()
    for name in ("outcome", "process", "value", "exact"):
        numbers[f"{name}_at"] = float(bad[name][inner, place[inner]].mean())
        numbers[f"{name}_after"] = float(bad[name][inner, place[inner] + 1].mean())
    for name in ("reward", "outcome", "value"):
        numbers[f"{name}_ranked"] = _share(good[name][:, -1] > bad[name][:, -1])
    usual = readings(policy, heads, careless(policy.tokenizer, prompts, 1000 + seed))
    for name in ("outcome", "value"):
        numbers[f"{name}_error"] = float((usual[name] - usual["exact"]).square().mean().sqrt())
    numbers["outcome_value_apart"] = float((usual["outcome"] - usual["value"]).square().mean().sqrt())
    numbers["process_product_apart"] = float((usual["process"].prod(1) - usual["exact"][:, -1]).abs().mean())
    return numbers


def _share(found: Tensor) -> float:
    return float(found.float().mean())


def probe() -> dict[str, float | str]:
    """All heads for three steps, on a policy of twenty."""
    plan = brief(pipeline.RUNNING_SUM_SFT, 20, batch_size=16, demonstrations=320)
    policy = pipeline.sft_from_scratch(tasks.get("running_sum"), plan, quiet=True)
    numbers = one_seed(0, HeadsPlan(prompts=60, steps=3, batch_size=16), policy, count=12)
    return (
        numbers
        | trace("sft", policy.history)
        | settings(plan=HeadsPlan(), sft=pipeline.RUNNING_SUM_SFT, reward=RewardConfig())
    )


STUDY = Study(one_seed, probe)

if __name__ == "__main__":
    STUDY.main(__file__)
