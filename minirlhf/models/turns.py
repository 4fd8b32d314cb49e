"""Multi-turn sampling: the policy and an environment write in turns. Each completion consists of several segments."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from minirlhf.core.errors import ArgumentError
from minirlhf.core.randomness import derive_seed
from minirlhf.data.types import Rollout
from minirlhf.engine.decoding import ChatSession
from minirlhf.models.sampling import Sampling, left_pad, sample

#: ``(rows, completions) -> observations``: the environment receives the indices of rows of the rollout and, for each of
#: them, all tokens after the prompt so far. For each row it returns the tokens that come next (a tool's output, a
#: user's next message, and the text that the chat template puts around them), or None if the conversation is over.
Environment = Callable[[Sequence[int], Sequence[Sequence[int]]], Sequence[Sequence[int] | None]]


@dataclass
class _Row:
    """A completion that grows turn by turn; each list has one entry per token."""

    prompt: list[int]
    ids: list[int] = field(default_factory=list)
    sampled: list[bool] = field(default_factory=list)
    old_logps: list[float] = field(default_factory=list)
    behavior_logps: list[float] = field(default_factory=list)
    terminated: bool = False

    def append_observation(self, answer: Sequence[int]) -> None:
        """Append tokens that the policy did not sample."""
        self.ids += answer
        self.sampled += [False] * len(answer)
        self.old_logps += [0.0] * len(answer)
        self.behavior_logps += [0.0] * len(answer)

    def append_completion(self, turn: Rollout, row: int) -> None:
        """Append the completion tokens of one row of a turn's rollout."""
        inside = turn.mask[row]
        self.ids += turn.completion_ids[row][inside].tolist()
        self.sampled += [True] * int(inside.sum())
        self.old_logps += turn.old_logps[row][inside].tolist()
        self.behavior_logps += turn.behavior_logps[row][inside].tolist()
        self.terminated = bool(turn.terminated[row])


def sample_turns(
    model: nn.Module,
    prompts: Sequence[Sequence[int]],
    environment: Environment,
    *,
    max_turns: int,
    sampling: Sampling,
    num_generations: int = 1,
    eos_token_id: int | Sequence[int],
    pad_token_id: int,
    seed: int,
    step: int = 0,
    stop_sequences: Sequence[Sequence[int]] = (),
    policy_version: int = 0,
    read_again: bool = False,
) -> Rollout:
    """Sample ``num_generations`` completions of every prompt, in turns.

    A turn ends like a completion of :func:`~minirlhf.models.sampling.sample`. Then the environment is called, and its
    observation is appended to the completion with ``mask`` False: the policy conditions on these tokens and is not
    trained on them. A conversation ends when the environment returns None, after ``max_turns`` turns, or when it has
    used up ``max_completion_length`` tokens, the environment's included. An observation that does not fit is left out.

    Where the model's cache allows it (:func:`~minirlhf.engine.decoding.can_continue`), a turn reuses the cache of the
    previous turn; otherwise it reads the conversation from its start. The first turn reads each prompt once per group.

    Args:
        environment: see :data:`Environment`.
        max_turns: the maximum number of the policy's turns, at least 1.
        read_again: do not reuse caches; every turn reads the conversation from its start.

    Returns:
        ``P·G`` rows, prompt-major. ``terminated`` is True where the last turn ended by itself and no observation was
        left out.

    Raises:
        ValueError: ``max_turns`` below 1, or an environment that does not return one entry per row.
        UserError: as for :func:`~minirlhf.models.sampling.sample`.
    """
    if max_turns < 1:
        raise ArgumentError(f"{max_turns=}; expected at least 1", argument="max_turns", value=max_turns, expected=1)
    rows = [_Row(list(prompt)) for prompt in prompts for _ in range(num_generations)]
    active, session = list(range(len(rows))), ChatSession()
    for turn in range(max_turns):
        limits = [
            sampling.max_completion_length - len(rows[i].ids)
            for i in (active if turn else range(0, len(rows), num_generations))
        ]
        rollout = sample(
            model,
            prompts if turn == 0 else [rows[i].prompt + rows[i].ids for i in active],
            sampling=sampling,
            limits=limits,
            num_generations=num_generations if turn == 0 else 1,
            eos_token_id=eos_token_id,
            pad_token_id=pad_token_id,
            seed=seed if turn == 0 else derive_seed("turn", seed, turn),
            step=step,
            stop_sequences=stop_sequences,
            open_reader=None if read_again or max_turns == 1 else session.read,
        )
        for row, i in enumerate(active):
            rows[i].append_completion(rollout, row)
        ended = [i for i in active if rows[i].terminated]
        continuing = (
            _answered(rows, ended, environment, sampling.max_completion_length)
            if turn + 1 < max_turns and ended
            else []
        )
        if not continuing:
            break
        session.continue_turn([active.index(i) for i in continuing], rollout.mask.sum(1))
        active = continuing
    return _assemble(rows, num_generations, pad_token_id, policy_version, rollout.old_logps)


def _answered(rows: Sequence[_Row], indices: Sequence[int], environment: Environment, limit: int) -> list[int]:
    """Append the environment's observations and return the rows whose conversation continues."""
    observations = environment(indices, [list(rows[i].ids) for i in indices])
    if len(observations) != len(indices):
        message = (
            f"the environment returned {len(observations)} observations for {len(indices)} rows; expected one per row"
        )
        raise ArgumentError(message, argument="answers", value=len(observations), expected=len(indices))
    continuing = []
    for i, observation in zip(indices, observations, strict=True):
        if observation is None:
            continue
        if len(rows[i].ids) + len(observation) >= limit:  # no room for a token of the policy after it
            rows[i].terminated = False
            continue
        rows[i].append_observation([int(token) for token in observation])
        continuing.append(i)
    return continuing


def _assemble(
    rows: Sequence[_Row], num_generations: int, pad_token_id: int, policy_version: int, like: Tensor
) -> Rollout:
    device = like.device
    prompt_ids, prompt_mask = left_pad([row.prompt for row in rows], pad_token_id, device)
    width = max(len(row.ids) for row in rows)

    def padded(name: str, fill: int | float | bool, dtype: torch.dtype | None = None) -> Tensor:
        values = [getattr(row, name) + [fill] * (width - len(row.ids)) for row in rows]
        return torch.tensor(values, device=device, dtype=dtype)

    mask = padded("sampled", False)
    completion_mask = torch.tensor([[1] * len(row.ids) + [0] * (width - len(row.ids)) for row in rows], device=device)
    return Rollout(
        input_ids=torch.cat([prompt_ids, padded("ids", pad_token_id)], 1),
        attention_mask=torch.cat([prompt_mask, completion_mask], 1),
        mask=mask,
        old_logps=padded("old_logps", 0.0, like.dtype),
        behavior_logps=padded("behavior_logps", 0.0, like.dtype),
        policy_version=torch.where(mask, policy_version, -1),
        terminated=torch.tensor([row.terminated for row in rows], device=device),
        num_generations=num_generations,
    )
