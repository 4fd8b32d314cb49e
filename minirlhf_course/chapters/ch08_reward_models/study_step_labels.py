"""What do Monte-Carlo labels teach? Five seeds: ``python -m minirlhf_course.chapters.ch08_reward_models.study_step_labels`` (about four minutes of one core).

The running sum. Three process heads learn from the same replies: from labels of the steps, from one completion of each step, and from whether any of
four completions ends right. They read replies with one planted slip. Writes ``study_step_labels.json``.
"""

from __future__ import annotations

import torch
from torch import Tensor

from minirlhf.data import tasks
from minirlhf.data.tasks.running_sum import RUNNING_SUM, STEPS
from minirlhf.stages import pipeline, zoo
from minirlhf.stages.pipeline import Trained
from minirlhf_course.chapters.ch08_reward_models.per_token import careless, planted, readings
from minirlhf_course.chapters.ch08_reward_models.step_labels import (
    LabelsPlan,
    completed,
    process_head,
    relabelled,
    so_far,
)
from minirlhf_course.evidence import Study, brief, settings, trace

REPLIES = 200


def one_seed(
    seed: int, plan: LabelsPlan | None = None, policy: Trained | None = None, count: int = REPLIES
) -> dict[str, float]:
    """Labels, three heads, and what they say at a slip and one step later."""
    policy = policy or Trained(*zoo.load("running-sum-sft", quiet=True))
    plan = plan or LabelsPlan()
    written = careless(policy.tokenizer, RUNNING_SUM.prompts("train")[: plan.prompts], seed)
    ended = completed(policy, written, plan.completions, seed)
    valid = torch.tensor([[label > 0 for label in w.stepped.labels] for w in written])
    labels = {"steps": valid, "one": ended[..., 0], "any": ended.any(-1)}
    right = so_far(written)
    numbers = {"replies": float(len(written))}
    for name in ("one", "any"):
        numbers |= {
            f"{name}_is_valid": _share(labels[name] == valid),
            f"{name}_is_so_far": _share(labels[name] == right),
        }
    astray = valid & ~right  # a valid step after a slip
    numbers |= {"astray": _share(astray), "one_astray": _share(labels["one"][astray])}
    numbers["any_astray"] = _share(labels["any"][astray])

    heads = {name: process_head(policy, relabelled(written, good), plan, seed) for name, good in labels.items()}
    found = planted(policy.tokenizer, RUNNING_SUM.prompts("test")[:count], seed)
    place = torch.tensor([at for at, _, _ in found])
    inner = (place < STEPS - 1).nonzero().flatten()
    bad = readings(policy, heads, [wrong for _, wrong, _ in found])
    usual = readings(policy, heads, careless(policy.tokenizer, RUNNING_SUM.prompts("test")[:count], 1000 + seed))
    for name in heads:
        said = bad[name].sigmoid()
        numbers[f"{name}_at"] = float(said[inner, place[inner]].mean())
        numbers[f"{name}_after"] = float(said[inner, place[inner] + 1].mean())
    numbers["exact_at"] = float(bad["exact"][inner, place[inner]].mean())
    numbers["exact_after"] = float(bad["exact"][inner, place[inner] + 1].mean())
    exact = usual["exact"]
    aims = {"one": exact, "any": 1 - (1 - exact) ** plan.completions}
    for name, aim in aims.items():
        numbers[f"{name}_error"] = float((usual[name].sigmoid() - aim).square().mean().sqrt())
    return numbers


def _share(found: Tensor) -> float:
    return float(found.double().mean())


def probe() -> dict[str, float | str]:
    """The three heads for three steps, on a policy of twenty."""
    plan = brief(pipeline.RUNNING_SUM_SFT, 20, batch_size=16, demonstrations=320)
    policy = pipeline.sft_from_scratch(tasks.get("running_sum"), plan, quiet=True)
    short = brief(LabelsPlan(), 3, batch_size=16, prompts=30, completions=3)
    numbers = one_seed(0, short, policy, count=12)
    return numbers | trace("sft", policy.history) | settings(plan=LabelsPlan(), sft=pipeline.RUNNING_SUM_SFT)


STUDY = Study(one_seed, probe)

if __name__ == "__main__":
    STUDY.main(__file__)
