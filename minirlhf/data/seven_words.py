"""Seven words: a task small enough to be summed over, with a gold reward that no simple proxy can express.

A completion is one to five of the words *ok, um, please, thanks, fact, detail, great*: 19,607 completions. The
reference policy is a Markov chain that seldom repeats itself. The gold reward of a completion is known exactly:

    gold = 1.2·√(facts) + 0.7·min(polite, 1) − 0.6·(polite − 1)₊ + 0.6·min(great, 1) − 0.6·(great − 1)₊
           − 0.3·um − 0.5·repeats − 0.15·length

Facts are *fact* and *detail*, polite words *please* and *thanks*; a word that occurred before is a repeat. As in
the assistant task, facts have diminishing returns, and one kind word is welcome while two are flattery.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from minirlhf.core.randomness import numpy_generator
from minirlhf.data.functions import grade, require_preferences

WORDS = ("ok", "um", "please", "thanks", "fact", "detail", "great")
MAX_WORDS = 5
STOP = len(WORDS)  # the action that ends a completion; as a context, the start
#: Probability that a completion ends after its 1st … 5th word.
HAZARD = (0.15, 0.3, 0.35, 0.4, 1.0)
_SELDOM = {"please": -0.7, "thanks": -0.7, "great": -0.7}


def gold(reply: str) -> float:
    """Return the gold reward of a completion, by the formula at the head of this module."""
    words = reply.split()
    count = {word: words.count(word) for word in WORDS}
    polite = count["please"] + count["thanks"]
    return (
        1.2 * math.sqrt(count["fact"] + count["detail"])
        + (0.7 * min(polite, 1) - 0.6 * max(polite - 1, 0))
        + (0.6 * min(count["great"], 1) - 0.6 * max(count["great"] - 1, 0))
        - 0.3 * count["um"]
        - 0.5 * (len(words) - len(set(words)))
        - 0.15 * len(words)
    )


@dataclass(frozen=True)
class Outcomes:
    """All completions, or classes of completions that no reward here distinguishes.

    Attributes:
        texts: the text of each outcome; for a class, of one member.
        ref_logps: ``(N,)`` log-probabilities under the reference policy, normalised.
        gold: ``(N,)`` gold rewards.
        counts: ``(N, 7)``, how often each word occurs.
    """

    texts: tuple[str, ...]
    ref_logps: Tensor
    gold: Tensor
    counts: Tensor

    @property
    def probs(self) -> Tensor:
        """``(N,)`` probabilities under the reference policy."""
        return self.ref_logps.exp()

    def __len__(self) -> int:
        return len(self.texts)

    def grade(self, function: Callable[[str, str], float], name: str) -> Tensor:
        """Return the ``(N,)`` values of a function ``(prompt, completion) -> number``; the prompt here is empty.

        Raises:
            UserError: it raises, returns values that are not finite numbers, or returns the same for every completion.
        """
        values = [grade(function, name, "", text) for text in self.texts]
        require_preferences(values, name)
        return torch.tensor(values, dtype=torch.float64)


@dataclass(frozen=True)
class Decisions:
    """All completions as rows of decisions, for policies that sample word by word.

    Attributes:
        actions: ``(N, 6)`` words, then STOP; 0 after it.
        contexts: ``(N, 6)``, the word before each action; STOP at the start.
        prefixes: ``(N, 6)``, the index of the text so far; equal texts have the same index, and full texts, which can
            only stop, have 0.
        mask: ``(N, 6)`` bool.
        ref_table: ``(6, 8, 8)`` log-probability of an action by position and context, −inf if impossible.
    """

    actions: Tensor
    contexts: Tensor
    prefixes: Tensor
    mask: Tensor
    ref_table: Tensor

    @property
    def num_prefixes(self) -> int:
        """The number of different unfinished texts."""
        return int(self.prefixes.max()) + 1


def _sequences() -> list[tuple[int, ...]]:
    return [s for n in range(1, MAX_WORDS + 1) for s in itertools.product(range(len(WORDS)), repeat=n)]


@functools.cache
def decisions(seed: int = 0) -> Decisions:
    """Return the completions as decisions with their reference log-probabilities; ``seed`` samples the Markov chain."""
    rng = numpy_generator("seven words", seed)
    log_bias = np.array([_SELDOM.get(word, 0.0) for word in WORDS])
    logits = rng.normal(0, 0.6, (STOP + 1, len(WORDS))) + log_bias - 1.5 * np.eye(STOP + 1, len(WORDS))
    next_word = torch.tensor(logits).log_softmax(-1)  # (8, 7)
    hazard = torch.tensor((0.0, *HAZARD), dtype=torch.float64)  # a completion is never empty
    table = torch.cat(
        [
            (1 - hazard).log()[:, None, None] + next_word[None],
            hazard.log()[:, None, None].expand(-1, STOP + 1, 1),
        ],
        -1,
    )  # (6, 8, 8)
    sequences = _sequences()
    shape = (len(sequences), MAX_WORDS + 1)
    actions, contexts, prefixes = (torch.zeros(shape, dtype=torch.long) for _ in range(3))
    mask = torch.zeros(shape, dtype=torch.bool)
    prefix_ids: dict[tuple[int, ...], int] = {}
    for i, s in enumerate(sequences):
        chosen = [*s, STOP]
        actions[i, : len(chosen)] = torch.tensor(chosen)
        contexts[i, : len(chosen)] = torch.tensor([STOP, *s])
        prefixes[i, : len(chosen)] = torch.tensor(
            [prefix_ids.setdefault(s[:t], len(prefix_ids)) if t < MAX_WORDS else 0 for t in range(len(chosen))]
        )
        mask[i, : len(chosen)] = True
    return Decisions(actions, contexts, prefixes, mask, table)


@functools.cache
def replies(seed: int = 0) -> Outcomes:
    """Return all 19,607 completions."""
    table = decisions(seed)
    position = torch.arange(MAX_WORDS + 1).expand_as(table.actions)
    step = table.ref_table[position, table.contexts, table.actions]  # (N, 6)
    logps = torch.where(table.mask, step, 0.0).sum(-1)
    texts = tuple(" ".join(WORDS[w] for w in s) for s in _sequences())
    counts = torch.tensor([[s.count(w) for w in range(len(WORDS))] for s in _sequences()], dtype=torch.float64)
    return Outcomes(texts, logps, torch.tensor([gold(t) for t in texts], dtype=torch.float64), counts)


@functools.cache
def bags(seed: int = 0) -> Outcomes:
    """Return the 791 bags of words: completions that differ only in order are one outcome with their total probability.

    This is exact for every reward that depends only on counts: within a bag, the optimum of such a reward has the
    proportions of the reference policy, so expectations and KL are the same.
    """
    outcomes = replies(seed)
    bag, bag_of = np.unique(outcomes.counts.numpy(), axis=0, return_inverse=True)
    index = torch.from_numpy(bag_of.reshape(-1))
    first = [int((index == b).nonzero()[0]) for b in range(len(bag))]
    mass = torch.zeros(len(bag), dtype=torch.float64).index_add(0, index, outcomes.probs)
    return Outcomes(tuple(outcomes.texts[i] for i in first), mass.log(), outcomes.gold[first], torch.from_numpy(bag))


def lifted(values: Tensor) -> Tensor:
    """Expand ``(791,)`` values of the bags to ``(19607,)`` values of the completions."""
    key = lambda counts: (counts.long() * 6 ** torch.arange(counts.shape[1])).sum(-1)
    bag_keys = key(bags().counts)
    order = bag_keys.argsort()
    return values[order[torch.searchsorted(bag_keys[order], key(replies().counts))]]
