"""Layer 8: completions per prompt against prompts per batch, on the sorting task of :mod:`.two_worlds`.

The parts of the variance of a batch's gradient are estimated from the gradients of single completions of the initial model.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from minirlhf.core.logprobs import sequence_logps
from minirlhf.data.chat import encode_prompt
from minirlhf.data.types import Rollout
from minirlhf.equations import advantages as adv
from minirlhf.feedback.rewards import task_problems, task_reward
from minirlhf.models.forward import completion_logps
from minirlhf.models.sampling import Sampling, sample
from minirlhf.models.texts import completion_texts
from minirlhf.stages.pipeline import Trained
from minirlhf_course.chapters.ch13_group_relative_methods.two_worlds import MIXED


def variances(begin: Trained, *, seed: int, prompts: int, samples: int) -> dict[str, float]:
    """Estimate V, S and W of eq:group-size for a policy, from ``samples`` completions of each of some prompts.

    Products of independent estimates are unbiased where the square of one estimate is not: the two halves of a prompt's
    completions for the squared norm of its gradient, different prompts for the squared norm of the mean gradient.
    """
    problems = task_problems(MIXED.task, "train")[seed * prompts : (seed + 1) * prompts]
    rollout = sample(
        begin.model,
        [encode_prompt(begin.tokenizer, problem.prompt) for problem in problems],
        sampling=Sampling(max_completion_length=MIXED.task.max_completion_length),
        num_generations=samples,
        eos_token_id=begin.tokenizer.eos_token_id,
        pad_token_id=begin.tokenizer.pad_token_id,
        seed=seed,
        step=0,
        policy_version=0,
    )
    texts = completion_texts(rollout, begin.tokenizer)
    repeated = [problem for problem in problems for _ in range(samples)]
    rewards = torch.tensor(task_reward(MIXED.task)(repeated, texts)).double().view(prompts, samples)
    halves, own, noise = [], [], []
    for row, r in enumerate(rewards):
        scores = [_score(begin.model, rollout, row * samples + i) for i in range(samples)]
        s = torch.stack(scores).view(2, samples // 2, -1)
        r, squares = r.view(2, samples // 2), (s**2).sum(-1)
        gap = adv.leave_one_out(r)
        halves.append((gap[..., None] * s).mean(1))
        noise.append((r.var(-1) * squares.mean(-1).flip(0)).mean())  # Var(r) E|s|², each factor from another half
        # The leave-one-out mean adds Var(r)/(n − 1) to the squared gap.
        own.append((gap**2 * squares).mean() - noise[-1] / (samples // 2 - 1))
    first, second = torch.stack(halves).unbind(1)
    square = (first * second).sum(-1).mean()  # E|g(x)|²
    total = (first + second).sum(0) / 2
    cross = (total @ total - ((first + second) / 2).pow(2).sum()) / (prompts * (prompts - 1))  # |E g(x)|²
    return {
        "prompt_variance": float(square - cross),
        "own_variance": float(torch.stack(own).mean() - square),
        "baseline_variance": float(torch.stack(noise).mean() + square),
    }


def _score(model: nn.Module, rollout: Rollout, row: int) -> Tensor:
    """Return ∇log π of one completion in all parameters, as one vector."""
    ids, attention, mask = (x[row : row + 1] for x in (rollout.input_ids, rollout.attention_mask, rollout.mask))
    logp = sequence_logps(completion_logps(model, ids, attention, mask.shape[1]), mask).sum()
    parts = torch.autograd.grad(logp, list(model.parameters()), allow_unused=True)
    return torch.cat([part.flatten().double() for part in parts if part is not None])
