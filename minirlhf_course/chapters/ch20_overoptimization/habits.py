"""Two failure modes of assistants that are trained on a wrong proxy: refusing too much, and agreeing too much.

Both are small enough to write down: a few kinds of prompt, three completions. In the first the reward model cannot see
what matters and guesses from a word. In the second it sees everything, and the labels themselves are biased.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from minirlhf.equations.kl import reverse_kl
from minirlhf.equations.reward_losses import bradley_terry_loss
from minirlhf.feedback.proxies import TEMPERATURE, labelled_better, minimise
from minirlhf_course.chapters.ch20_overoptimization.curves import tilted


@dataclass(frozen=True)
class Habit:
    """Some kinds of prompt and three completions for each.

    Attributes:
        kinds, replies: their names.
        share: ``(K,)``, the fraction of each kind among the prompts after deployment.
        ref_logps: ``(K, 3)``.
        gold, proxy: ``(K, 3)``.
    """

    kinds: tuple[str, ...]
    replies: tuple[str, ...]
    share: Tensor
    ref_logps: Tensor
    gold: Tensor
    proxy: Tensor

    def path(self) -> tuple[Tensor, Tensor, Tensor]:
        """Optimise the proxy; return √KL ``(S,)`` and gold reward ``(S,)``, both averaged over the prompts after
        deployment, and the policies ``(S, K, 3)``."""
        policies = torch.stack(
            [tilted(ref, proxy) for ref, proxy in zip(self.ref_logps, self.proxy, strict=True)], 1
        )  # (S, K, 3)
        kl = reverse_kl(policies, self.ref_logps.expand_as(policies)) @ self.share
        return kl.clamp(min=0).sqrt(), (policies.exp() * self.gold).sum(-1) @ self.share, policies.exp()


def _double(rows: object) -> Tensor:
    return torch.tensor(rows, dtype=torch.float64)


def over_refusal(*, harmful_in_training: float = 0.9, harmful_in_use: float = 0.1) -> Habit:
    """A reward model that knows the word *kill* but not what is meant.

    Prompts ask how to kill a process or how to kill a neighbour, or do not contain the word. The annotators saw prompts
    from a red team, where the word mostly meant harm (``harmful_in_training``); users mostly mean processes
    (``harmful_in_use``). The proxy has one number per completion and word, fitted to all possible comparisons.
    """
    completions = ("answer", "answer with a warning", "refuse")
    harmless, harmful = [1.0, 0.6, -1.0], [-2.0, -1.0, 1.0]
    gold = _double([harmless, harmless, harmful])
    # Kind 0 has no such word; kinds 1 and 2 look the same to the reward model.
    mixture = _double([1 - harmful_in_training, harmful_in_training])
    a, b = torch.triu_indices(3, 3, offset=1)
    wins = mixture @ labelled_better(gold[1:, a], gold[1:, b])  # (pairs,)

    def loss(r: Tensor) -> Tensor:
        return (wins * bradley_terry_loss(r[a], r[b]) + (1 - wins) * bradley_terry_loss(r[b], r[a])).mean()

    learned = TEMPERATURE * minimise(loss, 3)
    return Habit(
        kinds=("no such word", "harmless, with the word", "harmful, with the word"),
        replies=completions,
        share=_double([0.7, 0.3 * (1 - harmful_in_use), 0.3 * harmful_in_use]),
        ref_logps=_double([0.7, 0.2, 0.1]).log().expand(3, 3),
        gold=gold,
        proxy=torch.stack([gold[0], learned, learned]),
    )


def sycophancy(*, bias: float = 2.5) -> Habit:
    """An annotator who prefers agreement: ``bias`` is added to the gold reward of a completion that agrees.

    A user states something, half of the time correctly. The reward model is perfect: it has learned exactly the labels.
    """
    gold = _double([[1.0, 0.3, -1.0], [-1.0, 0.0, 1.0]])
    return Habit(
        kinds=("the user is right", "the user is wrong"),
        replies=("agree", "say nothing", "contradict"),
        share=_double([0.5, 0.5]),
        ref_logps=_double([[0.6, 0.25, 0.15], [0.35, 0.3, 0.35]]).log(),
        gold=gold,
        proxy=gold + bias * _double([1.0, 0.0, 0.0]),
    )
