"""Value-guided decoding in the shell game: a verifier is asked at every token instead of once at the end."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from minirlhf.core.calling import evaluating
from minirlhf.core.errors import ArgumentError
from minirlhf.core.randomness import generator
from minirlhf.data.chat import conversation, encode_prompt, end_tokens
from minirlhf.stages.pipeline import Trained
from minirlhf_course.chapters.ch16_reasoning.shell import WORLD

#: From the logit of a value to the logarithm of a weight.
Weigh = Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class Guided:
    """One completion of each prompt.

    Attributes:
        texts: the completions.
        kl: KL of the sampling distribution from the policy in nats, summed over the tokens of a completion, mean over
            the completions.
    """

    texts: list[str]
    kl: float


def by_value(logits: Tensor) -> Tensor:
    """Return log V, from logits of any shape: the policy conditioned on the completion being right."""
    return torch.nn.functional.logsigmoid(logits)


def by_exponential(beta: float) -> Weigh:
    """Return the weighting V/β."""
    return lambda logits: logits.sigmoid() / beta


@torch.no_grad()
def guided(
    policy: Trained, head: nn.Module, prompts: Sequence[str], weigh: Weigh, *, seed: int, top: int = 6
) -> Guided:
    """Sample one completion of each prompt: every token is sampled from the policy's ``top`` most probable tokens, by
    π(a) times its weight.

    ``head`` is a :class:`~minirlhf.models.heads.ValueModel`; the sigmoid of its last logit is the probability that a
    completion with this prefix, which includes the token, is right. The prompts have the same number of tokens, as the
    prompts of the shell game do.

    Raises:
        ValueError: prompts of several lengths.
    """
    tokenizer, rng = policy.tokenizer, generator("guided", seed)
    prompt_ids = [encode_prompt(tokenizer, conversation(prompt)) for prompt in prompts]
    if len({len(row) for row in prompt_ids}) != 1:
        raise ArgumentError("prompts of several lengths; expected one", argument="prompts", problem="several lengths")
    ids, ends = torch.tensor(prompt_ids), torch.tensor(end_tokens(tokenizer, policy.model).ids)
    finished, width, kl = torch.zeros(len(prompt_ids), dtype=torch.bool), ids.shape[1], torch.zeros(len(prompt_ids))
    with evaluating(policy.model), evaluating(head):
        for _ in range(WORLD.max_completion_length):
            candidates = policy.model(ids).logits[:, -1].log_softmax(-1).topk(top)  # (P, top)
            extended = torch.cat([ids.repeat_interleave(top, 0), candidates.indices.view(-1, 1)], 1)
            value_logits = head(extended, torch.ones_like(extended))[:, -1].view(-1, top)
            logps = (candidates.values + weigh(value_logits)).log_softmax(-1)
            kl += (logps.exp() * (logps - candidates.values)).sum(-1) * ~finished
            choice = logps.exp().multinomial(1, generator=rng)
            token = candidates.indices.gather(-1, choice)[:, 0].masked_fill(finished, tokenizer.pad_token_id)
            ids, finished = torch.cat([ids, token[:, None]], 1), finished | torch.isin(token, ends)
            if bool(finished.all()):
                break
    texts = tokenizer.batch_decode(ids[:, width:], skip_special_tokens=True)
    return Guided([str(text) for text in texts], float(kl.mean()))
