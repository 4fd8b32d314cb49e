"""Value-guided decoding in the shell game: a verifier that is asked at every token, in place of once at the end."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from minirlhf.chapters.ch16_reasoning.shell import WORLD
from minirlhf.core.calling import evaluating
from minirlhf.core.errors import ArgumentError
from minirlhf.core.randomness import generator
from minirlhf.data.chat import conversation, encode_prompt, ends_of
from minirlhf.stages.pipeline import Trained

#: From the logit of a value to the logarithm of a weight.
Weigh = Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class Guided:
    """One reply to each prompt.

    Attributes:
        texts: the replies.
        kl: nats by which the draws differ from the policy's own, in the mean over the replies; a sum over the tokens of each.
    """

    texts: list[str]
    kl: float


def by_value(logits: Tensor) -> Tensor:
    """log V, of logits of any shape: the policy given that the reply will be right."""
    return torch.nn.functional.logsigmoid(logits)


def by_exponential(beta: float) -> Weigh:
    """V/β."""
    return lambda logits: logits.sigmoid() / beta


@torch.no_grad()
def guided(
    policy: Trained, head: nn.Module, prompts: Sequence[str], weigh: Weigh, *, seed: int, top: int = 6
) -> Guided:
    """One reply to each prompt: every token is drawn from the policy's ``top`` likeliest, by π(a) times its weight.

    ``head`` is a :class:`~minirlhf.models.heads.ValueModel`; the sigmoid of its last logit is the chance that a reply which begins like this,
    with the token at its end, is right. The prompts have as many tokens each, as those of the shell game do.

    Raises:
        ValueError: prompts of several lengths.
    """
    tokenizer, draws = policy.tokenizer, generator("guided", seed)
    given = [encode_prompt(tokenizer, conversation(prompt)) for prompt in prompts]
    if len({len(row) for row in given}) != 1:
        raise ArgumentError("prompts of several lengths; expected one", argument="prompts", problem="several lengths")
    ids, ends = torch.tensor(given), torch.tensor(ends_of(tokenizer, policy.model).ids)
    ended, width, paid = torch.zeros(len(given), dtype=torch.bool), ids.shape[1], torch.zeros(len(given))
    with evaluating(policy.model), evaluating(head):
        for _ in range(WORLD.max_completion_length):
            likeliest = policy.model(ids).logits[:, -1].log_softmax(-1).topk(top)  # (P, top)
            longer = torch.cat([ids.repeat_interleave(top, 0), likeliest.indices.view(-1, 1)], 1)
            said = head(longer, torch.ones_like(longer))[:, -1].view(-1, top)
            logps = (likeliest.values + weigh(said)).log_softmax(-1)
            paid += (logps.exp() * (logps - likeliest.values)).sum(-1) * ~ended
            drawn = logps.exp().multinomial(1, generator=draws)
            token = likeliest.indices.gather(-1, drawn)[:, 0].masked_fill(ended, tokenizer.pad_token_id)
            ids, ended = torch.cat([ids, token[:, None]], 1), ended | torch.isin(token, ends)
            if bool(ended.all()):
                break
    texts = tokenizer.batch_decode(ids[:, width:], skip_special_tokens=True)
    return Guided([str(text) for text in texts], float(paid.mean()))
