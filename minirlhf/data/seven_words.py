"""Seven words: a world small enough to be summed over, with a gold reward that no simple proxy can express.

A reply is one to five of the words *ok, um, please, thanks, fact, detail, great*: 19,607 replies. The reference policy is a
Markov chain that seldom repeats itself. What a reply is worth is known exactly:

    gold = 1.2·√(facts) + 0.7·min(polite, 1) − 0.6·(polite − 1)₊ + 0.6·min(great, 1) − 0.6·(great − 1)₊
           − 0.3·um − 0.5·repeats − 0.15·length

Facts are *fact* and *detail*, polite words *please* and *thanks*; a word said before is a repeat. As in the assistant
world, facts pay less and less, and one kind word is welcome while two are flattery.
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
STOP = len(WORDS)  # the action that ends a reply; as a context, "nothing said yet"
#: Chance that a reply ends after its 1st … 5th word.
HAZARD = (0.15, 0.3, 0.35, 0.4, 1.0)
_SELDOM = {"please": -0.7, "thanks": -0.7, "great": -0.7}


def gold(reply: str) -> float:
    """What a reply is worth: the formula at the head of this module."""
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
    """Everything that can be said, or classes of it that no reward here tells apart.

    Attributes:
        texts: of each outcome; of a class, one member.
        ref_logps: ``(N,)`` under the reference policy, normalised.
        gold: ``(N,)``.
        counts: ``(N, 7)``, how often each word is said.
    """

    texts: tuple[str, ...]
    ref_logps: Tensor
    gold: Tensor
    counts: Tensor

    @property
    def probs(self) -> Tensor:
        """``(N,)`` probabilities under the reference."""
        return self.ref_logps.exp()

    def __len__(self) -> int:
        return len(self.texts)

    def grade(self, function: Callable[[str, str], float], name: str) -> Tensor:
        """``(N,)``: a function ``(prompt, reply) -> number`` on every outcome; the prompt here is empty.

        Raises:
            UserError: it raises, gives something else than finite numbers, or the same to every reply.
        """
        values = [grade(function, name, "", text) for text in self.texts]
        require_preferences(values, name)
        return torch.tensor(values, dtype=torch.float64)


@dataclass(frozen=True)
class Decisions:
    """Every reply as a row of decisions, for policies that speak word by word.

    Attributes:
        actions: ``(N, 6)`` words, then STOP; 0 behind it.
        contexts: ``(N, 6)``, the word before each action; STOP at the start.
        prefixes: ``(N, 6)``, the number of the text so far; equal texts have one number, and full ones, which can only
            stop, have 0.
        mask: ``(N, 6)`` bool.
        ref_table: ``(6, 8, 8)`` log-probability of an action by place and context, −inf if impossible.
    """

    actions: Tensor
    contexts: Tensor
    prefixes: Tensor
    mask: Tensor
    ref_table: Tensor

    @property
    def num_prefixes(self) -> int:
        """How many different unfinished texts there are."""
        return int(self.prefixes.max()) + 1


def _sequences() -> list[tuple[int, ...]]:
    return [s for n in range(1, MAX_WORDS + 1) for s in itertools.product(range(len(WORDS)), repeat=n)]


@functools.cache
def decisions(seed: int = 0) -> Decisions:
    """The replies as decisions, and the reference's probability of each decision. ``seed`` draws the Markov chain."""
    rng = numpy_generator("seven words", seed)
    seldom = np.array([_SELDOM.get(word, 0.0) for word in WORDS])
    logits = rng.normal(0, 0.6, (STOP + 1, len(WORDS))) + seldom - 1.5 * np.eye(STOP + 1, len(WORDS))
    next_word = torch.tensor(logits).log_softmax(-1)  # (8, 7)
    hazard = torch.tensor((0.0, *HAZARD), dtype=torch.float64)  # nothing is not a reply
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
    numbers: dict[tuple[int, ...], int] = {}
    for i, s in enumerate(sequences):
        taken = [*s, STOP]
        actions[i, : len(taken)] = torch.tensor(taken)
        contexts[i, : len(taken)] = torch.tensor([STOP, *s])
        prefixes[i, : len(taken)] = torch.tensor(
            [numbers.setdefault(s[:t], len(numbers)) if t < MAX_WORDS else 0 for t in range(len(taken))]
        )
        mask[i, : len(taken)] = True
    return Decisions(actions, contexts, prefixes, mask, table)


@functools.cache
def replies(seed: int = 0) -> Outcomes:
    """All 19,607 replies."""
    choice = decisions(seed)
    place = torch.arange(MAX_WORDS + 1).expand_as(choice.actions)
    step = choice.ref_table[place, choice.contexts, choice.actions]  # (N, 6)
    logps = torch.where(choice.mask, step, 0.0).sum(-1)
    texts = tuple(" ".join(WORDS[w] for w in s) for s in _sequences())
    counts = torch.tensor([[s.count(w) for w in range(len(WORDS))] for s in _sequences()], dtype=torch.float64)
    return Outcomes(texts, logps, torch.tensor([gold(t) for t in texts], dtype=torch.float64), counts)


@functools.cache
def bags(seed: int = 0) -> Outcomes:
    """The 791 bags of words: replies that differ in order only are one outcome, with the sum of their probabilities.

    Exact for all that looks at counts alone: what the optimum of such a reward does within a bag is what the reference
    did, so expectations and KL are the same.
    """
    everything = replies(seed)
    bag, member = np.unique(everything.counts.numpy(), axis=0, return_inverse=True)
    index = torch.from_numpy(member.reshape(-1))
    first = [int((index == b).nonzero()[0]) for b in range(len(bag))]
    mass = torch.zeros(len(bag), dtype=torch.float64).index_add(0, index, everything.probs)
    return Outcomes(
        tuple(everything.texts[i] for i in first), mass.log(), everything.gold[first], torch.from_numpy(bag)
    )


def lifted(values: Tensor) -> Tensor:
    """``(791,)`` numbers of the bags as ``(19607,)`` of the replies."""
    key = lambda counts: (counts.long() * 6 ** torch.arange(counts.shape[1])).sum(-1)
    known = key(bags().counts)
    order = known.argsort()
    return values[order[torch.searchsorted(known[order], key(replies().counts))]]
