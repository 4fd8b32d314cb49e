"""Sampling in turns: the policy speaks, an environment answers, the policy goes on. One completion, of several segments."""

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

#: ``(rows, completions) -> answers``: of these rows of the rollout, given all tokens behind the prompt so far, the tokens with which
#: the environment goes on (a tool's output, a user's next message, and what the chat template puts around them), or None where all
#: has been said.
Environment = Callable[[Sequence[int], Sequence[Sequence[int]]], Sequence[Sequence[int] | None]]


@dataclass
class _Row:
    """A completion as it grows; one entry per token in each list."""

    prompt: list[int]
    ids: list[int] = field(default_factory=list)
    sampled: list[bool] = field(default_factory=list)
    old_logps: list[float] = field(default_factory=list)
    behavior_logps: list[float] = field(default_factory=list)
    terminated: bool = False

    def append_observation(self, answer: Sequence[int]) -> None:
        """Append what the policy did not say."""
        self.ids += answer
        self.sampled += [False] * len(answer)
        self.old_logps += [0.0] * len(answer)
        self.behavior_logps += [0.0] * len(answer)

    def append_completion(self, turn: Rollout, row: int) -> None:
        """Append a row of a turn."""
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

    A turn ends like a completion of :func:`~minirlhf.models.sampling.sample`. Then the environment is asked, and what it
    answers stands in the completion with ``mask`` False: the policy reads it and is not trained on it. A conversation is over
    when the environment has nothing to add, after ``max_turns`` turns, or when it has used up ``max_completion_length``
    tokens, the environment's included; an answer that does not fit any more is left out.

    A turn goes on with what the turn before has read, where the model's cache allows that (:func:`~minirlhf.engine.decoding.can_continue`), else it
    reads the conversation from its start; the first one reads a prompt once per group.

    Args:
        environment: see :data:`Environment`.
        max_turns: of the policy, at least 1.
        read_again: every turn reads the conversation from its start.

    Returns:
        ``P·G`` rows, prompt-major. ``terminated`` where the last turn ended by itself and nothing was left out.

    Raises:
        ValueError: ``max_turns`` below 1, or an environment that does not answer every row.
        UserError: as for :func:`~minirlhf.models.sampling.sample`.
    """
    if max_turns < 1:
        raise ArgumentError(f"{max_turns=}; expected at least 1", argument="max_turns", value=max_turns, expected=1)
    rows = [_Row(list(prompt)) for prompt in prompts for _ in range(num_generations)]
    going, talk = list(range(len(rows))), ChatSession()
    for turn in range(max_turns):
        room = [
            sampling.max_completion_length - len(rows[i].ids)
            for i in (going if turn else range(0, len(rows), num_generations))
        ]
        rollout = sample(
            model,
            prompts if turn == 0 else [rows[i].prompt + rows[i].ids for i in going],
            sampling=sampling,
            limits=room,
            num_generations=num_generations if turn == 0 else 1,
            eos_token_id=eos_token_id,
            pad_token_id=pad_token_id,
            seed=seed if turn == 0 else derive_seed("turn", seed, turn),
            step=step,
            stop_sequences=stop_sequences,
            open_reader=None if read_again or max_turns == 1 else talk.read,
        )
        for row, i in enumerate(going):
            rows[i].append_completion(rollout, row)
        ended = [i for i in going if rows[i].terminated]
        left = (
            _answered(rows, ended, environment, sampling.max_completion_length)
            if turn + 1 < max_turns and ended
            else []
        )
        if not left:
            break
        talk.continue_turn([going.index(i) for i in left], rollout.mask.sum(1))
        going = left
    return _assemble(rows, num_generations, pad_token_id, policy_version, rollout.old_logps)


def _answered(rows: Sequence[_Row], going: Sequence[int], environment: Environment, limit: int) -> list[int]:
    """Let the environment speak; the rows that go on."""
    answers = environment(going, [list(rows[i].ids) for i in going])
    if len(answers) != len(going):
        said = f"the environment gave {len(answers)} answers to {len(going)} rows; expected one each"
        raise ArgumentError(said, argument="answers", value=len(answers), expected=len(going))
    left = []
    for i, answer in zip(going, answers, strict=True):
        if answer is None:
            continue
        if len(rows[i].ids) + len(answer) >= limit:  # no room to say a word after it
            rows[i].terminated = False
            continue
        rows[i].append_observation([int(token) for token in answer])
        left.append(i)
    return left


def _assemble(
    rows: Sequence[_Row], num_generations: int, pad_token_id: int, policy_version: int, like: Tensor
) -> Rollout:
    device = like.device
    prompt_ids, prompt_mask = left_pad([row.prompt for row in rows], pad_token_id, device)
    width = max(len(row.ids) for row in rows)

    def table(name: str, fill: int | float | bool, dtype: torch.dtype | None = None) -> Tensor:
        lists = [getattr(row, name) + [fill] * (width - len(row.ids)) for row in rows]
        return torch.tensor(lists, device=device, dtype=dtype)

    mask = table("sampled", False)
    real = torch.tensor([[1] * len(row.ids) + [0] * (width - len(row.ids)) for row in rows], device=device)
    return Rollout(
        input_ids=torch.cat([prompt_ids, table("ids", pad_token_id)], 1),
        attention_mask=torch.cat([prompt_mask, real], 1),
        mask=mask,
        old_logps=table("old_logps", 0.0, like.dtype),
        behavior_logps=table("behavior_logps", 0.0, like.dtype),
        policy_version=torch.where(mask, policy_version, -1),
        terminated=torch.tensor([row.terminated for row in rows], device=device),
        num_generations=num_generations,
    )
