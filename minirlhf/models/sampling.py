"""Batched sampling with a KV cache: prompts in, a :class:`~minirlhf.data.types.Rollout` out.

The model processes each prompt once, and all completions of the prompt share its cache. Log-probabilities are recorded
while sampling, which saves a forward pass later. Rows that have ended are removed from the batch in chunks.

A token is sampled by inverting the cumulative distribution, in the order of the token ids, at a uniform number that
depends only on (seed, step, prompt, sample, position). A row is therefore the same in any batch, up to rounding in the
model's own arithmetic: where a uniform number lies within this rounding error of a boundary, a neighbouring token can
be sampled instead.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from minirlhf.core.calling import context_length, evaluating
from minirlhf.core.errors import ArgumentError, UserError
from minirlhf.core.masking import zero_where_masked
from minirlhf.core.randomness import derive_seed, keyed_uniforms
from minirlhf.data.types import Rollout
from minirlhf.engine.decoding import Reader, reader
from minirlhf.equations import language


@dataclass(frozen=True)
class Sampling:
    """Options for sampling tokens. The temperature divides the logits first; then top-k, top-p and min-p truncate the
    distribution.

    Attributes:
        max_completion_length: tokens at most, EOS included.
        temperature: > 0; 1 is the model's own distribution.
        top_k: keep the ``k`` likeliest tokens; 0 keeps all.
        top_p: keep the smallest set of likeliest tokens with at least this mass, in (0, 1]; 1 keeps all.
        min_p: keep tokens at least this fraction as likely as the likeliest, in [0, 1]; 0 keeps all.
        greedy: take the likeliest token (the lowest id on a tie). Neither temperature nor truncation changes the
            choice; ``behavior_logps`` are 0, as the choice is certain, and ``old_logps`` stay those of the policy at
            ``temperature``.

    Raises:
        UserError: a setting outside its range.
    """

    max_completion_length: int = 64
    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    greedy: bool = False

    def __post_init__(self) -> None:
        if not 0.0 < self.temperature < math.inf:
            raise UserError(
                f"temperature = {self.temperature!r}; expected a finite number > 0 (or greedy for the limit 0)",
                argument="temperature",
                value=self.temperature,
                expected="> 0",
            )
        if not 0.0 < self.top_p <= 1.0:
            raise UserError(
                f"top_p = {self.top_p!r}; expected a number in (0, 1]",
                argument="top_p",
                value=self.top_p,
                expected="(0, 1]",
            )
        if not 0.0 <= self.min_p <= 1.0:
            raise UserError(
                f"min_p = {self.min_p!r}; expected a number in [0, 1]",
                argument="min_p",
                value=self.min_p,
                expected="[0, 1]",
            )
        if self.top_k < 0:
            raise UserError(
                f"top_k = {self.top_k!r}; expected a whole number of at least 0",
                argument="top_k",
                value=self.top_k,
                expected=0,
            )
        if self.max_completion_length < 1:
            message = f"max_completion_length = {self.max_completion_length!r}; expected at least 1"
            raise UserError(message, argument="max_completion_length", value=self.max_completion_length, expected=1)

    @property
    def truncates(self) -> bool:
        """Whether top-k, top-p or min-p truncates the distribution."""
        return self.top_k > 0 or self.top_p < 1.0 or self.min_p > 0.0


def sample(
    model: nn.Module,
    prompts: Sequence[Sequence[int]],
    *,
    sampling: Sampling,
    num_generations: int = 1,
    eos_token_id: int | Sequence[int],
    pad_token_id: int,
    seed: int,
    step: int = 0,
    stop_sequences: Sequence[Sequence[int]] = (),
    limits: Sequence[int] | None = None,
    prompt_keys: Sequence[int | str] | None = None,
    policy_version: int = 0,
    use_cache: bool = True,
    uniforms: Tensor | None = None,
    open_reader: Callable[..., Reader] | None = None,
) -> Rollout:
    """Sample ``num_generations`` completions of every prompt.

    Args:
        model: a causal LM; it is put in ``eval`` mode during sampling.
        prompts: ``P`` lists of token ids, none empty.
        num_generations: ``G``.
        eos_token_id: a row ends after this token, or after any of these tokens.
        pad_token_id: pads the shorter rows.
        stop_sequences: a row also ends when its last tokens equal one of these sequences, which stays part of the
            completion.
        limits: for each prompt, the maximum length of its completions, 1 to ``max_completion_length``; None: the latter
            for all.
        seed, step: with the prompt's key and the index of the sample, they determine the uniform numbers of a row.
        prompt_keys: ``P`` distinct names; None: the names that :func:`default_prompt_keys` gives.
        policy_version: the number of updates that the model has received; stored with every token.
        use_cache: False for a model that has no KV cache; each token then costs a full forward pass.
        uniforms: ``(P·G, L)`` in [0, 1), used in place of the keyed ones; ``L`` is the largest of ``limits``, without
            them ``max_completion_length``.
        open_reader: makes the reader of the prompts; None: :func:`~minirlhf.engine.decoding.reader`.

    Returns:
        ``P·G`` rows, prompt-major. ``T`` is the length of the longest sampled completion, at most
        ``max_completion_length``.

    Raises:
        UserError: a prompt together with the maximum length of its completions exceeds the model's context.
        ValueError: empty prompts or stop sequences, wrong shapes, duplicate keys, or a model whose logits are not
            finite.
    """
    if num_generations < 1:
        message = f"{num_generations=}; expected at least 1"
        raise ArgumentError(message, argument="num_generations", value=num_generations, expected=1)
    if not all(len(stop) for stop in stop_sequences):
        message = f"{stop_sequences=}; expected at least one token in each"
        raise ArgumentError(message, argument="stop_sequences", value=stop_sequences, problem="empty")
    prompt_ids, prompt_mask = left_pad(prompts, pad_token_id, next(model.parameters()).device)  # (P, W)
    max_lengths = [sampling.max_completion_length] * len(prompts) if limits is None else list(limits)
    if len(max_lengths) != len(prompts) or not all(1 <= n <= sampling.max_completion_length for n in max_lengths):
        raise ArgumentError(
            f"{limits=}; expected 1 to {sampling.max_completion_length} tokens for each of {len(prompts)} prompts",
            argument="limits",
            value=limits,
            expected=(1, sampling.max_completion_length),
        )
    width = max(max_lengths)
    _require_room(model, prompts, max_lengths)
    if uniforms is None:
        keys = default_prompt_keys(prompts) if prompt_keys is None else prompt_keys
        if len(keys) != len(prompts) or len(set(keys)) != len(keys):
            raise ArgumentError(
                f"prompt_keys holds {len(set(keys))} distinct keys; expected {len(prompts)}, one per prompt",
                argument="prompt_keys",
                value=len(set(keys)),
                expected=len(prompts),
            )
        seeds = [derive_seed("sample", seed, step, key, g) for key in keys for g in range(num_generations)]
        uniforms = keyed_uniforms(seeds, width)  # (B, T)
    rows = len(prompts) * num_generations
    if uniforms.shape != (rows, width):
        message = f"uniforms has shape {tuple(uniforms.shape)}; expected {(rows, width)}"
        raise ArgumentError(message, argument="uniforms", value=tuple(uniforms.shape), expected=(rows, width))
    eos = torch.as_tensor(eos_token_id, device=prompt_ids.device).reshape(-1)
    stops = [eos.new_tensor(stop) for stop in stop_sequences]
    caps = eos.new_tensor(max_lengths).repeat_interleave(num_generations)  # (B,)
    with torch.no_grad(), evaluating(model):
        make = open_reader or reader
        decoder = make(model, prompt_ids, prompt_mask, repeats=num_generations, width=width, use_cache=use_cache)
        tokens, old_logps, behavior_logps, lengths, terminated = _decode(decoder, sampling, uniforms, eos, stops, caps)
    longest = int(lengths.max())
    mask = torch.arange(longest, device=lengths.device) < lengths[:, None]  # (B, T)
    old_logps = zero_where_masked(old_logps[:, :longest], mask)
    if not bool(old_logps.isfinite().all()):
        raise ArgumentError("the model's logits are NaN or infinite", argument="logits", problem="not finite")
    completion = torch.where(mask, tokens[:, :longest], pad_token_id)
    return Rollout(
        input_ids=torch.cat([prompt_ids.repeat_interleave(num_generations, 0), completion], 1),
        attention_mask=torch.cat([prompt_mask.repeat_interleave(num_generations, 0), mask.long()], 1),
        mask=mask,
        old_logps=old_logps,
        behavior_logps=zero_where_masked(behavior_logps[:, :longest], mask),
        policy_version=torch.where(mask, policy_version, -1),
        terminated=terminated,
        num_generations=num_generations,
    )


def left_pad(
    prompts: Sequence[Sequence[int]], pad_token_id: int, device: torch.device | str = "cpu"
) -> tuple[Tensor, Tensor]:
    """Pad the prompts on the left to one batch: ids and attention mask, both ``(P, W)``."""
    if not prompts or not all(map(len, prompts)):
        empty = [i for i, prompt in enumerate(prompts) if len(prompt) == 0]
        raise ArgumentError(
            f"prompts holds {len(prompts)} prompts, of which {empty[:5]} are empty; expected tokens in each",
            argument="prompts",
            value=empty,
            problem="empty",
        )
    width = max(len(prompt) for prompt in prompts)
    ids = [[pad_token_id] * (width - len(prompt)) + list(prompt) for prompt in prompts]
    mask = [[0] * (width - len(prompt)) + [1] * len(prompt) for prompt in prompts]
    return torch.tensor(ids, device=device), torch.tensor(mask, device=device)


def default_prompt_keys(prompts: Sequence[Sequence[int]]) -> list[str]:
    """Return ``P`` distinct names: each prompt's tokens and the number of its earlier occurrences.

    If you sample many prompts in several batches, name all of them in one call. With separate names for each batch, a
    prompt that occurs again in another batch would receive the same random numbers.
    """
    counts: Counter[str] = Counter()
    names = []
    for prompt in prompts:
        text = " ".join(str(token) for token in prompt)
        names.append(f"{text} #{counts[text]}")
        counts[text] += 1
    return names


def invert_cdf(log_probs: Tensor, uniforms: Tensor) -> Tensor:
    """Return the token at which the cumulative distribution, summed in the order of the ids, first exceeds
    ``uniforms``.

    It is never a token of probability 0. The sum is in float64: in float32 a large vocabulary would distort its tail.

    Args:
        log_probs: ``(R, V)``, may hold −inf; a common factor of the probabilities does not matter.
        uniforms: ``(R,)`` in [0, 1).

    Returns:
        ``(R,)`` token ids.
    """
    cumulative = log_probs.exp().cumsum(-1, dtype=torch.float64)  # (R, V)
    total = cumulative[:, -1:]
    point = torch.minimum(uniforms[:, None] * total, torch.nextafter(total, torch.zeros_like(total)))
    return torch.searchsorted(cumulative, point, right=True).squeeze(-1).clamp(max=log_probs.shape[-1] - 1)


# -- inside ------------------------------------------------------------------------------------------------------


def _require_room(model: nn.Module, prompts: Sequence[Sequence[int]], max_lengths: Sequence[int]) -> None:
    context = context_length(model)
    longest, width = max(((len(prompt), n) for prompt, n in zip(prompts, max_lengths, strict=True)), key=sum)
    if context is not None and longest + width > context:
        raise UserError(
            f"the longest prompt has {longest} tokens; with max_completion_length={width} that exceeds the model's context of "
            f"{context}: drop or shorten prompts of more than {max(context - width, 0)} tokens, or lower max_completion_length",
            argument="max_completion_length",
            value=longest + width,
            expected=context,
            problem="too long",
        )


def _decode(
    decoder: Reader, sampling: Sampling, uniforms: Tensor, eos: Tensor, stops: Sequence[Tensor], caps: Tensor
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Return tokens, old and behaviour log-probs ``(B, T)``, lengths and terminated ``(B,)``. Entries after a row's end
    are arbitrary."""
    num_rows, width = uniforms.shape
    device = decoder.logits.device
    uniforms = uniforms.to(device)
    tokens = torch.zeros(num_rows, width, dtype=torch.long, device=device)
    dtype = torch.promote_types(decoder.logits.dtype, torch.float32)
    old_logps = torch.zeros(num_rows, width, dtype=dtype, device=device)
    behavior_logps = torch.zeros_like(old_logps)
    lengths = torch.zeros(num_rows, dtype=torch.long, device=device)
    terminated = torch.zeros(num_rows, dtype=torch.bool, device=device)
    rows = torch.arange(num_rows, device=device)  # the index in the result of each row of the batch
    ended = torch.zeros_like(terminated)
    for t in range(width):
        token, old, behavior = _draw(decoder.logits.to(dtype), sampling, uniforms[rows, t])
        tokens[rows, t], old_logps[rows, t], behavior_logps[rows, t] = token, old, behavior
        lengths[rows] += ~ended
        at_end = torch.isin(token, eos)
        for stop in stops:
            if len(stop) <= t + 1:
                at_end |= (tokens[rows, t + 1 - len(stop) : t + 1] == stop).all(-1)
        terminated[rows] |= at_end & ~ended
        ended |= at_end | (t + 1 >= caps[rows])
        ended_fraction = float(ended.float().mean())
        if ended_fraction == 1.0 or t + 1 == width:
            break
        if ended_fraction > decoder.drop_at:
            active = _without_holes(ended)
            decoder.keep(active)
            rows, token, ended = rows[active], token[active], ended[active]
        decoder.read(token)
    return tokens, old_logps, behavior_logps, lengths, terminated


def _without_holes(ended: Tensor) -> Tensor:
    """Return the indices of the rows that have not ended, ``(R,) -> (N,)``. The last of these rows take the positions
    of ended rows among the first ``N``; all other rows keep their position."""
    active = torch.arange(int((~ended).sum()), device=ended.device)
    active[ended[: len(active)]] = len(active) + (~ended[len(active) :]).nonzero().squeeze(-1)
    return active


def _draw(logits: Tensor, sampling: Sampling, uniforms: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Sample one token per row, with its log-prob before and after truncation: ``(R, V), (R,) -> (R,)`` each."""
    log_probs = torch.log_softmax(logits / sampling.temperature, -1)  # (R, V)
    if sampling.greedy:
        token = logits.argmax(-1)
        return token, log_probs.gather(-1, token[:, None]).squeeze(-1), torch.zeros_like(log_probs[:, 0])
    truncated = _truncated(log_probs, sampling) if sampling.truncates else log_probs
    token = invert_cdf(truncated, uniforms)
    old, behavior = (x.gather(-1, token[:, None]).squeeze(-1) for x in (log_probs, truncated))
    return token, old, behavior


def _truncated(log_probs: Tensor, sampling: Sampling) -> Tensor:
    """Return the log-probabilities after top-k, top-p and min-p, renormalised: ``(R, V) -> (R, V)``."""
    filtered = log_probs
    if sampling.top_k > 0:
        filtered = language.top_k_logits(filtered, top_k=sampling.top_k)
    if sampling.top_p < 1.0:
        filtered = language.top_p_logits(filtered, top_p=sampling.top_p)
    if sampling.min_p > 0.0:
        filtered = language.min_p_logits(filtered, min_p=sampling.min_p)
    return torch.log_softmax(filtered, -1)
