"""Log-probabilities of completions without wasted tokens.

Two savings, both exact. A prompt that several completions share (a group, or the two sides of a preference) is read once;
its cache, kept in the graph, then serves all of them, so gradients flow back into it from each. And completions of like
length go through the model together, so that short ones are not padded to the longest.

Reading through the model's own cache needs no block mask and no restarted positions: sliding windows, soft-caps and
adapters do what they do when the model generates. :func:`shares_prompts` proves it on a model before it is relied on.
"""

from __future__ import annotations

import copy
import itertools
import logging
import weakref
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from minirlhf.core.logprobs import next_token_logps, token_entropies, token_logps
from minirlhf.models.calling import evaluating, position_ids, supported

log = logging.getLogger(__name__)

#: Lengths at which the rows may be parted; more would only make the choice slower.
MAX_CUTS = 16
#: Largest difference between the two ways that the proof on a model accepts, by width of its numbers.
TOLERANCE = {torch.float64: 1e-9, torch.float32: 1e-4, torch.bfloat16: 5e-2, torch.float16: 1e-2}


@dataclass(frozen=True)
class Plan:
    """How a batch goes through the model.

    Attributes:
        buckets: rows that go together, each an index tensor; every row in one of them.
        prompts: ``(U,)``, a row for each distinct prompt, or None if every row reads its own.
        owner: ``(B,)``, which of them belongs to each row; None as well then.
    """

    buckets: tuple[Tensor, ...]
    prompts: Tensor | None = None
    owner: Tensor | None = None


def call_cost(device: torch.device) -> int:
    """What one more call of the model costs beside its tokens, in tokens: Python, and on an accelerator the launches."""
    return 256 if device.type == "cpu" else 8192


def make_plan(model: nn.Module, input_ids: Tensor, attention_mask: Tensor, width: int) -> Plan:
    """The cheapest way through the model, counted in tokens read and calls made.

    Args:
        input_ids, attention_mask: ``(B, W + T)``, of which the last ``width`` = T columns are completion.
    """
    device = input_ids.device
    everything = Plan((torch.arange(len(input_ids), device=device),))
    prompt, completion = attention_mask[:, :-width].bool(), attention_mask[:, -width:].bool()
    flush = bool(prompt[:, -1].all()) and bool((completion[:, 1:] <= completion[:, :-1]).all())
    if not flush or len(input_ids) == 1:
        return everything
    call = call_cost(device)
    lengths = completion.sum(-1)
    wide = int(prompt.any(0).sum())  # columns of prompt that are not padding everywhere
    separate, separate_cost = _cut(lengths, wide, call)
    if wide > 1:
        keys = torch.cat([torch.where(prompt, input_ids[:, :-width], -1), prompt.long()], 1)
        _, owner = keys.unique(dim=0, return_inverse=True)
        distinct = int(owner.max()) + 1
        shared, shared_cost = _cut(lengths, 0, call)
        if shared_cost + distinct * wide + call < separate_cost and shares_prompts(model):
            first = torch.full((distinct,), len(owner), device=device)
            first.scatter_reduce_(0, owner, torch.arange(len(owner), device=device), "amin")
            return Plan(shared, first, owner)
    return Plan(separate)


def _cut(lengths: Tensor, before: int, call: int) -> tuple[tuple[Tensor, ...], float]:
    """Part the rows by length so that tokens and calls cost least; each row costs ``before`` tokens on top of its bucket's
    longest. Returns the buckets and the cost."""
    ordered, order = lengths.sort(stable=True)
    rows = ordered.tolist()
    ends = [i for i in range(1, len(rows)) if rows[i - 1] < rows[i]]
    ends = [*ends[:: max(1, -(-len(ends) // (MAX_CUTS - 1)))], len(rows)]
    best: dict[int, tuple[float, int]] = {
        0: (0.0, 0)
    }  # cheapest way to have done the first so many rows, and its last cut
    for end in ends:
        best[end] = min(
            (best[cut][0] + call + (end - cut) * (before + rows[end - 1]), cut) for cut in best if cut < end
        )
    cuts = [len(rows)]
    while cuts[-1]:
        cuts.append(best[cuts[-1]][1])
    buckets = tuple(order[low:high] for high, low in itertools.pairwise(cuts))
    return buckets, best[len(rows)][0]


def packed_logps(
    model: nn.Module,
    input_ids: Tensor,
    attention_mask: Tensor,
    width: int,
    *,
    plan: Plan,
    temperature: float = 1.0,
    return_entropy: bool = False,
) -> tuple[Tensor, Tensor | None]:
    """Log-probabilities of the last ``width`` tokens, and entropies if asked for, ``(B, T)`` each; 0 where padding was left out."""
    completion = attention_mask[:, -width:]
    prefix = None if plan.prompts is None else _Prefix(model, input_ids, attention_mask, width, plan)
    results: list[tuple[Tensor, ...]] = []
    for rows in plan.buckets:
        n = width - int(completion[rows].bool().any(0).flip(0).int().argmax())  # columns after it are padding
        if prefix is None:
            logits, targets = _read_whole(model, input_ids[rows], attention_mask[rows], width, n)
        else:
            logits, targets = prefix.read(rows, n)
        logps = next_token_logps(logits, targets, temperature)  # (b, n)
        results.append((logps, token_entropies(logits, temperature)) if return_entropy else (logps,))
    found = tuple(_scatter(parts, plan.buckets, len(input_ids), width) for parts in zip(*results, strict=True))
    return found[0], found[1] if return_entropy else None


def _scatter(parts: Sequence[Tensor], buckets: Sequence[Tensor], rows: int, width: int) -> Tensor:
    whole = parts[0].new_zeros(rows, width)
    for part, where in zip(parts, buckets, strict=True):
        whole[where, : part.shape[1]] = part
    return whole


def _read_whole(model: nn.Module, ids: Tensor, mask: Tensor, width: int, n: int) -> tuple[Tensor, Tensor]:
    """The first ``n`` completion tokens of some rows, each with its own prompt: logits ``(b, n, V)``, targets ``(b, n)``."""
    start, end = int(mask.bool().any(0).int().argmax()), ids.shape[1] - width + n
    ids, mask = ids[:, start:end], mask[:, start:end]
    options = supported(model, position_ids=position_ids(mask), logits_to_keep=n + 1, use_cache=False)
    logits = model(input_ids=ids, attention_mask=mask, **options).logits[:, -(n + 1) : -1]
    return logits, torch.where(mask.bool(), ids, 0)[:, -n:]


class _Prefix:
    """The distinct prompts, read once, with their cache in the graph."""

    def __init__(self, model: nn.Module, ids: Tensor, mask: Tensor, width: int, plan: Plan) -> None:
        assert plan.prompts is not None and plan.owner is not None
        self._model, self._owner = model, plan.owner
        start = int(mask.bool().any(0).int().argmax())
        self._ids, self._mask = ids[:, -width:], mask[:, -width:]
        self._prompt_mask = mask[plan.prompts, start:-width]  # (U, W)
        options = supported(model, position_ids=position_ids(self._prompt_mask), logits_to_keep=1)
        prompt_ids = ids[plan.prompts, start:-width]
        out = model(input_ids=prompt_ids, attention_mask=self._prompt_mask, use_cache=True, **options)
        self._first, self._cache = out.logits[:, -1:], out.past_key_values  # (U, 1, V)

    def read(self, rows: Tensor, n: int) -> tuple[Tensor, Tensor]:
        """The first ``n`` completion tokens of some rows: logits ``(b, n, V)`` that predict them, and the tokens ``(b, n)``."""
        owner = self._owner[rows]
        ids = torch.where(self._mask[rows, :n].bool(), self._ids[rows, :n], 0)
        logits = self._first[owner]
        if n > 1:
            mask = torch.cat([self._prompt_mask[owner], self._mask[rows, : n - 1]], 1)
            options = supported(self._model, position_ids=position_ids(mask)[:, -(n - 1) :])
            cache = _select(self._cache, owner)
            out = self._model(
                input_ids=ids[:, :-1], attention_mask=mask, past_key_values=cache, use_cache=True, **options
            )
            logits = torch.cat([logits, out.logits], 1)
        return logits, ids


def _select(cache: Any, rows: Tensor) -> Any:
    """A cache of these rows of another, which stays as it is."""
    chosen = copy.copy(cache)
    chosen.layers = [copy.copy(layer) for layer in cache.layers]
    chosen.batch_select_indices(rows)
    return chosen


# -- may this model share? ---------------------------------------------------------------------------------------

_PROVED: weakref.WeakKeyDictionary[nn.Module, bool] = weakref.WeakKeyDictionary()


def shares_prompts(model: nn.Module) -> bool:
    """Does reading a prompt once give this model's own log-probabilities? Tried out when a model is first seen.

    Never while dropout is active (a prompt read once would have one random mask instead of several) or with gradient
    checkpointing (which has no cache).
    """
    if _random(model) or any(getattr(part, "gradient_checkpointing", False) for part in model.modules()):
        return False
    if model not in _PROVED:
        _PROVED[model] = _prove(model)
        if not _PROVED[model]:
            log.warning("%s: prompts are read once per completion, its cache does not allow less", type(model).__name__)
    return _PROVED[model]


def _random(model: nn.Module) -> bool:
    if not model.training:
        return False
    config = getattr(model, "config", None)
    attention = getattr(config, "attention_dropout", 0.0) or 0.0
    return attention > 0 or any(isinstance(m, nn.Dropout) and m.p > 0 and m.training for m in model.modules())


def _prove(model: nn.Module) -> bool:
    """Four completions of two prompts of different lengths, with the prompts shared and without."""
    parameter = next(model.parameters())
    vocabulary = getattr(getattr(model, "config", None), "vocab_size", None)
    if "past_key_values" not in supported(model, past_key_values=None) or vocabulary is None:
        return False
    numbers = torch.Generator().manual_seed(0)
    ids = torch.randint(0, vocabulary, (4, 12), generator=numbers)
    ids[1, :6], ids[3, :6] = ids[0, :6], ids[2, :6]
    mask = torch.ones_like(ids)
    mask[2:, :3] = 0  # the second prompt is shorter, padded on the left
    mask[1, 9:] = 0
    ids, mask = ids.to(parameter.device), mask.to(parameter.device)
    rows = torch.arange(4, device=parameter.device)
    plan = Plan((rows[::2], rows[1::2].flip(0)), rows[::2], rows // 2)  # each bucket of both prompts
    with torch.no_grad(), evaluating(model):
        try:
            shared = packed_logps(model, ids, mask, 6, plan=plan)[0]
        except (AttributeError, TypeError, ValueError, RuntimeError, IndexError, NotImplementedError):
            return False  # another kind of cache, or none
        plain = token_logps(
            model(input_ids=ids, attention_mask=mask, **supported(model, position_ids=position_ids(mask))).logits, ids
        )[:, -6:]
    inside = mask[:, -6:].bool()
    return bool((shared - plain)[inside].abs().max() <= TOLERANCE.get(parameter.dtype, 0.0))
