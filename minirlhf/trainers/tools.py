"""Multi-turn training with tools: the policy calls, an environment answers, and only policy tokens are trained on."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor, nn

from minirlhf.core.errors import ArgumentError
from minirlhf.data.calls import AssistantTurn, Form, opening, read_calls
from minirlhf.data.chat import encode_prompt, encode_untrusted, end_tokens
from minirlhf.data.collate import batch_indices
from minirlhf.data.types import Rollout
from minirlhf.feedback.tools import Environment, Toolbox, ToolResult
from minirlhf.models.turns import sample_turns
from minirlhf.recipes.parts import ScoredRollout
from minirlhf.trainers.config import SamplingConfig
from minirlhf.trainers.rollouts import RolloutEnv

#: ``(example, text of the last turn) -> grade``, added to the environment's own reward if it has one.
Grade = Callable[[Mapping[str, Any], str], float]


@dataclass
class Episode:
    """One episode with its environment.

    Attributes:
        turns: the turns of the policy.
        tool_results: the results of its calls, in order.
        turn_rewards: the environment's reward after each turn but the last; empty if it has no ``get_reward``.
    """

    environment: Any
    toolbox: Toolbox
    turns: list[AssistantTurn] = field(default_factory=list)
    tool_results: list[ToolResult] = field(default_factory=list)
    turn_rewards: list[float] = field(default_factory=list)

    def append_observation(self, text: str) -> list[ToolResult]:
        """Add a turn of the policy, make its calls and return the tool results; empty if there was no call."""
        self.turns.append(read_calls(text, self.toolbox.schemas, first_id=len(self.tool_results)))
        results = [self.toolbox.execute(call) for call in self.turns[-1].calls]
        self.tool_results += results
        if results and hasattr(self.environment, "get_reward"):
            self.turn_rewards.append(float(self.environment.get_reward()))
        return results


class ToolEnv(RolloutEnv):
    """Examples for multi-turn episodes with the tools of an environment.

    Args:
        examples: each with ``prompt`` (messages) and the other arguments of the environment's ``reset``. Schemas are
            not added: a prompt that should show them begins with a system message of
            :func:`~minirlhf.data.calls.describe_tools`.
        factory: makes an environment; every row of a rollout has its own. The text that ``reset`` returns must be a
            function of the example, because the rows of a group share a prompt.
        tokenizer: its template must support the role ``tool``.
        grade: grader of the last turn's text; None if ``get_reward`` is the only reward. Both rewards are added.
        max_turns: largest number of policy turns.
        call_cost: subtracted from the reward for each call, including calls that could not be executed.
        tool_choice: ``auto``, ``any`` or ``none``, or the name of a tool: see :func:`~minirlhf.data.calls.opening`. It
            applies to the first turn; with ``none`` no call is made in any turn.
        form: format of the call that is opened for the policy.

    Attributes:
        episodes: the episodes of the last rollout, one per row.

    Raises:
        ValueError: there is neither ``grade`` nor ``get_reward``; or, when a rollout begins, ``reset`` returns another
            text than before.
    """

    def __init__(
        self,
        examples: Sequence[Mapping[str, Any]],
        factory: Callable[[], Environment],
        tokenizer: Any,
        *,
        grade: Grade | None = None,
        max_turns: int = 2,
        call_cost: float = 0.0,
        tool_choice: str = "auto",
        form: Form = "json",
    ) -> None:
        self._owns_reward = hasattr(factory(), "get_reward")
        if grade is None and not self._owns_reward:
            raise ArgumentError(
                "grade is None, and the environment has no get_reward; expected one of them",
                argument="grade",
                expected="get_reward",
                problem="missing",
            )
        self._opening = opening(tool_choice, form)
        opening_ids = tokenizer(self._opening, add_special_tokens=False)["input_ids"] if self._opening else []
        self._shown = [factory().reset(**example) or "" for example in examples]
        conversations = map(_with, examples, self._shown)
        prompts = [encode_prompt(tokenizer, messages) + list(opening_ids) for messages in conversations]
        self._ends = end_tokens(tokenizer).ids
        super().__init__(prompts, eos_token_id=self._ends, pad_token_id=tokenizer.pad_token_id)
        self.examples, self.factory, self.tokenizer, self.episodes = examples, factory, tokenizer, list[Episode]()
        self._grade, self._max_turns, self._cost = grade, max_turns, call_cost
        self._calls = tool_choice != "none"
        self._heard: dict[tuple[ToolResult, ...], list[int]] = {}
        self._called = list[bool]()  # for every episode of a step, whether it made a call

    def sample_prompts(self, count: int, step: int, seed: int) -> list[int]:
        """Return the example indices of a step; every epoch takes each example once."""
        return [int(i) for i in batch_indices(len(self.examples), count, step, seed)]

    def generate_and_score(
        self, policy: nn.Module, config: SamplingConfig, picked: Sequence[int], *, step: int, seed: int, version: int,
        greedy: bool = False,
    ) -> ScoredRollout:  # fmt: skip
        """Sample episodes of the ``picked`` examples and grade them."""
        start = time.perf_counter()
        num_generations = 1 if greedy else config.num_generations
        self.episodes = [self._episode(i) for i in picked for _ in range(num_generations)]
        num_read = [0] * len(self.episodes)

        def environment(rows: Sequence[int], completions: Sequence[Sequence[int]]) -> list[list[int] | None]:
            observations: list[list[int] | None] = []
            for row, tokens in zip(rows, completions, strict=True):
                results = self._hear(row, tokens[num_read[row] :])
                observations.append(self._encoded(results) if results else None)
                num_read[row] = len(tokens) + len(observations[-1] or ())
            return observations

        rollout = sample_turns(
            policy,
            [self.prompts[i] for i in picked],
            environment,
            max_turns=self._max_turns,
            sampling=replace(config.sampling(), greedy=greedy),
            num_generations=num_generations,
            eos_token_id=self.eos_token_id,
            pad_token_id=self.pad_token_id,
            seed=seed,
            step=step,
            policy_version=version,
        )
        attended = rollout.attention_mask[:, rollout.prompt_width :].bool()
        for row, episode in enumerate(self.episodes):
            if len(episode.turns) < turns_of(rollout.mask[row], attended[row]):  # truncated, or the last turn allowed
                self._hear(row, rollout.completion_ids[row][attended[row]][num_read[row] :].tolist(), asks=False)
        self.seconds += time.perf_counter() - start
        return ScoredRollout(rollout, *self.grade(picked, rollout, not greedy))

    def _episode(self, index: int) -> Episode:
        environment = self.factory()
        observation = environment.reset(**self.examples[index]) or ""
        if observation != self._shown[index]:
            raise ArgumentError(
                f"reset of example {index} returned {observation[:60]!r}, but {self._shown[index][:60]!r} before; a "
                "group shares its prompt, so reset must return the same text for the same example",
                argument="reset",
                value=observation,
                expected=self._shown[index],
            )
        return Episode(environment, Toolbox.of(environment))

    def _hear(self, row: int, tokens: Sequence[int], asks: bool = True) -> list[ToolResult]:
        """Add a turn of the policy; ``asks``: whether to make its calls."""
        episode = self.episodes[row]
        ended = len(tokens) and tokens[-1] in self._ends
        text = self.tokenizer.decode(tokens[:-1] if ended else tokens)  # other special tokens stay visible
        text = text if episode.turns else self._opening + text
        if asks and self._calls:
            return episode.append_observation(text)
        episode.turns.append(read_calls(text, episode.toolbox.schemas, first_id=len(episode.tool_results)))
        return []

    def _encoded(self, results: Sequence[ToolResult]) -> list[int]:
        key = tuple(results)  # the key includes the call ids, because a template may write them
        if key not in self._heard:
            self._heard[key] = encode_untrusted(self.tokenizer, [result.message() for result in results])
        return self._heard[key]

    def grade(self, picked: Sequence[int], rollout: Rollout, watch: bool) -> tuple[Tensor, Tensor]:
        """Return the rewards of environment and grader, less the cost of all calls, also of those not executed."""
        examples = [self.examples[i] for i in picked for _ in range(rollout.num_generations)]
        rewards = [
            (float(episode.environment.get_reward()) if self._owns_reward else 0.0)
            + (self._grade(example, episode.turns[-1].text) if self._grade else 0.0)
            - self._cost * len(episode.tool_results)
            for example, episode in zip(examples, self.episodes, strict=True)
        ]
        if watch:
            self._called += [bool(episode.tool_results) for episode in self.episodes]
        grouped = rollout.grouped(torch.tensor(rewards))
        return grouped, torch.ones_like(grouped, dtype=torch.bool)

    def metrics(self) -> dict[str, float]:
        """Return the fraction of a step's episodes with a call, executed or not."""
        called, self._called = self._called, []
        return {"frac_called": statistics.fmean(called)}

    def grade_steps(self, picked: Sequence[int], rollout: Rollout) -> Tensor:
        """Return the increase of the environment's reward in each turn, at the last token of the turn.

        Raises:
            ValueError: the environment has no ``get_reward``.
        """
        if not self._owns_reward:
            raise ArgumentError(
                "the environment has no get_reward, so single turns have no rewards",
                argument="get_reward",
                problem="missing",
            )
        grades = torch.full(rollout.mask.shape, torch.nan)
        for row, episode in enumerate(self.episodes):
            ends = turn_ends(rollout.mask[row]).nonzero().flatten()
            cumulative = torch.tensor(
                [0.0, *episode.turn_rewards[: len(ends) - 1], float(episode.environment.get_reward())]
            )
            grades[row, ends] = cumulative.diff()
        return grades.to(rollout.old_logps)


def _with(example: Mapping[str, Any], observation: str) -> list[dict[str, str]]:
    """Return the prompt's messages, with the text of ``reset`` appended to the last message."""
    *before, last = example["prompt"]
    return [*before, {**last, "content": last["content"] + observation}]


def turn_ends(mask: Tensor) -> Tensor:
    """Return the mask ``(..., T)`` of each turn's last token, from the mask ``(..., T)`` of the policy's tokens."""
    following = torch.cat([mask[..., 1:], torch.zeros_like(mask[..., :1])], -1)
    return mask & ~following


def turns_of(mask: Tensor, real: Tensor) -> int:
    """Return the number of policy turns in a row ``(T,)``."""
    return int(turn_ends(mask & real).sum())
