"""Learning in turns with tools: the policy calls, an environment answers, and only what the policy said is learned from."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor, nn

from minirlhf.core.errors import ArgumentError
from minirlhf.data.calls import Form, Reply, opening, read_calls
from minirlhf.data.chat import encode_prompt, encode_untrusted, ends_of
from minirlhf.data.collate import batch_indices
from minirlhf.data.types import Rollout
from minirlhf.feedback.tools import Environment, Toolbox, ToolResult
from minirlhf.models.turns import sample_turns
from minirlhf.recipes.parts import ScoredRollout
from minirlhf.trainers.config import SamplingConfig
from minirlhf.trainers.rollouts import RolloutEnv

#: ``(example, text of the last turn) -> grade``, beside or in place of the environment's own reward.
Grade = Callable[[Mapping[str, Any], str], float]


@dataclass
class Episode:
    """One conversation with its environment.

    Attributes:
        replies: of the policy, one for each of its turns.
        answers: of the tools, in their order.
        earned: the environment's reward after each turn but the last; empty if it has no ``get_reward``.
    """

    environment: Any
    toolbox: Toolbox
    replies: list[Reply] = field(default_factory=list)
    answers: list[ToolResult] = field(default_factory=list)
    earned: list[float] = field(default_factory=list)

    def append_observation(self, text: str) -> list[ToolResult]:
        """Take a turn of the policy, make its calls and return what the tools said; nothing if there was no call."""
        self.replies.append(read_calls(text, self.toolbox.schemas, first_id=len(self.answers)))
        said = [self.toolbox.answer(call) for call in self.replies[-1].calls]
        self.answers += said
        if said and hasattr(self.environment, "get_reward"):
            self.earned.append(float(self.environment.get_reward()))
        return said


class ToolEnv(RolloutEnv):
    """Examples whose prompts are answered in turns, with the tools of an environment.

    Args:
        examples: each with ``prompt`` (messages) and what the environment's ``reset`` takes beside it. Schemas are not added: a prompt that
            should show them begins with a system message of :func:`~minirlhf.data.calls.describe_tools`.
        factory: makes an environment; every row of a rollout has its own. What its ``reset`` says has to follow from the example, since
            the rows of a group share a prompt.
        tokenizer: its template must know the role ``tool``.
        grade: of the last turn's text; None where the environment's ``get_reward`` is all. Both are added.
        max_turns: of the policy.
        call_cost: taken off the reward for each call, those that could not be made included.
        tool_choice: ``auto``, ``any`` or ``none``, or the name of a tool: see :func:`~minirlhf.data.calls.opening`. It holds for the first turn;
            with ``none`` no call is made in any.
        form: in which a call is opened for the policy.

    Attributes:
        episodes: of the last rollout, row by row.

    Raises:
        ValueError: neither ``grade`` nor ``get_reward``; or, when a rollout begins, ``reset`` says something else than before.
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
        begun = tokenizer(self._opening, add_special_tokens=False)["input_ids"] if self._opening else []
        self._shown = [factory().reset(**example) or "" for example in examples]
        shown = map(_with, examples, self._shown)
        prompts = [encode_prompt(tokenizer, messages) + list(begun) for messages in shown]
        self._ends = ends_of(tokenizer).ids
        super().__init__(prompts, eos_token_id=self._ends, pad_token_id=tokenizer.pad_token_id)
        self.examples, self.factory, self.tokenizer, self.episodes = examples, factory, tokenizer, list[Episode]()
        self._grade, self._max_turns, self._cost = grade, max_turns, call_cost
        self._calls = tool_choice != "none"
        self._heard: dict[tuple[ToolResult, ...], list[int]] = {}
        self._called = list[bool]()  # of every conversation of a step, whether it made a call

    def sample_prompts(self, count: int, step: int, seed: int) -> list[int]:
        """Every epoch takes each example once."""
        return [int(i) for i in batch_indices(len(self.examples), count, step, seed)]

    def generate_and_score(
        self, policy: nn.Module, config: SamplingConfig, picked: Sequence[int], *, step: int, seed: int, version: int,
        greedy: bool = False,
    ) -> ScoredRollout:  # fmt: skip
        """Conversations of the picked examples, graded."""
        start = time.perf_counter()
        group = 1 if greedy else config.num_generations
        self.episodes = [self._episode(i) for i in picked for _ in range(group)]
        heard_until = [0] * len(self.episodes)

        def environment(rows: Sequence[int], completions: Sequence[Sequence[int]]) -> list[list[int] | None]:
            found: list[list[int] | None] = []
            for row, tokens in zip(rows, completions, strict=True):
                said = self._hear(row, tokens[heard_until[row] :])
                found.append(self._encoded(said) if said else None)
                heard_until[row] = len(tokens) + len(found[-1] or ())
            return found

        rollout = sample_turns(
            policy,
            [self.prompts[i] for i in picked],
            environment,
            max_turns=self._max_turns,
            sampling=replace(config.sampling(), greedy=greedy),
            num_generations=group,
            eos_token_id=self.eos_token_id,
            pad_token_id=self.pad_token_id,
            seed=seed,
            step=step,
            policy_version=version,
        )
        real = rollout.attention_mask[:, rollout.prompt_width :].bool()
        for row, episode in enumerate(self.episodes):
            if len(episode.replies) < turns_of(rollout.mask[row], real[row]):  # cut off, or the last that was allowed
                self._hear(row, rollout.completion_ids[row][real[row]][heard_until[row] :].tolist(), asks=False)
        self.seconds += time.perf_counter() - start
        return ScoredRollout(rollout, *self.grade(picked, rollout, not greedy))

    def _episode(self, number: int) -> Episode:
        environment = self.factory()
        said = environment.reset(**self.examples[number]) or ""
        if said != self._shown[number]:
            raise ArgumentError(
                f"reset of example {number} says {said[:60]!r} and said {self._shown[number][:60]!r} before; a group shares its "
                "prompt: what reset says has to follow from the example",
                argument="reset",
                value=said,
                expected=self._shown[number],
            )
        return Episode(environment, Toolbox.of(environment))

    def _hear(self, row: int, tokens: Sequence[int], asks: bool = True) -> list[ToolResult]:
        """A turn of the policy; ``asks``: whether its calls are made."""
        episode = self.episodes[row]
        ended = len(tokens) and tokens[-1] in self._ends
        text = self.tokenizer.decode(tokens[:-1] if ended else tokens)  # other special tokens stay visible
        text = text if episode.replies else self._opening + text
        if asks and self._calls:
            return episode.append_observation(text)
        episode.replies.append(read_calls(text, episode.toolbox.schemas, first_id=len(episode.answers)))
        return []

    def _encoded(self, said: Sequence[ToolResult]) -> list[int]:
        key = tuple(said)  # a template may write a call's id, too
        if key not in self._heard:
            self._heard[key] = encode_untrusted(self.tokenizer, [answer.message() for answer in said])
        return self._heard[key]

    def grade(self, picked: Sequence[int], rollout: Rollout, watch: bool) -> tuple[Tensor, Tensor]:
        """What the environment and the grader give, less the cost of the calls, those that could not be made included."""
        examples = [self.examples[i] for i in picked for _ in range(rollout.num_generations)]
        rewards = [
            (float(episode.environment.get_reward()) if self._owns_reward else 0.0)
            + (self._grade(example, episode.replies[-1].text) if self._grade else 0.0)
            - self._cost * len(episode.answers)
            for example, episode in zip(examples, self.episodes, strict=True)
        ]
        if watch:
            self._called += [bool(episode.answers) for episode in self.episodes]
        found = rollout.grouped(torch.tensor(rewards))
        return found, torch.ones_like(found, dtype=torch.bool)

    def metrics(self) -> dict[str, float]:
        """The share of a step's conversations with a call, those that could not be made included."""
        called, self._called = self._called, []
        return {"frac_called": statistics.fmean(called)}

    def grade_steps(self, picked: Sequence[int], rollout: Rollout) -> Tensor:
        """Turn by turn: by how much the environment's reward rose in it, on the turn's last token. ``ValueError`` without ``get_reward``."""
        if not self._owns_reward:
            raise ArgumentError(
                "the environment has no get_reward, so its turns have no rewards of their own",
                argument="get_reward",
                problem="missing",
            )
        grades = torch.full(rollout.mask.shape, torch.nan)
        for row, episode in enumerate(self.episodes):
            ends = turn_ends(rollout.mask[row]).nonzero().flatten()
            after = torch.tensor([0.0, *episode.earned[: len(ends) - 1], float(episode.environment.get_reward())])
            grades[row, ends] = after.diff()
        return grades.to(rollout.old_logps)


def _with(example: Mapping[str, Any], shown: str) -> list[dict[str, str]]:
    """The prompt's messages, the last with what ``reset`` says."""
    *before, last = example["prompt"]
    return [*before, {**last, "content": last["content"] + shown}]


def turn_ends(mask: Tensor) -> Tensor:
    """``(..., T) -> (..., T)``: the last token of each turn, of a mask that is True where the policy spoke."""
    following = torch.cat([mask[..., 1:], torch.zeros_like(mask[..., :1])], -1)
    return mask & ~following


def turns_of(mask: Tensor, real: Tensor) -> int:
    """How many turns of the policy a row ``(T,)`` has."""
    return int(turn_ends(mask & real).sum())
