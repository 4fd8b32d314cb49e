"""The text adventure, played by a language model that is trained on its own episodes.

The lab compares turn-level credit with trajectory-level credit.

    play You are in the hall. A door to the east is locked.
    <tool_call> go("west") </tool_call>         the policy
    You are in the cellar. A key lies here.     the tool
    …
    <tool_call> take() </tool_call>
    You have the treasure.
    done                                        the policy

The environment is :class:`~minirlhf_course.chapters.ch17_tools.adventure.Adventure`, unchanged. A lab of chapter 17.
"""

from __future__ import annotations

import copy
import statistics
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from minirlhf.core.randomness import generator
from minirlhf.data import calls
from minirlhf.data.chat import WORDS_AND_TOOLS, conversation, encode
from minirlhf.data.types import Tokens
from minirlhf.models.tiny import tiny_model
from minirlhf.models.tokenizers import word_tokenizer
from minirlhf.recipes import DR_GRPO, ProcessSupervision
from minirlhf.stages.pipeline import Trained
from minirlhf.trainers.config import OnlineConfig
from minirlhf.trainers.online import train_in_env
from minirlhf.trainers.sft import SFTConfig, train_sft
from minirlhf.trainers.tools import ToolEnv
from minirlhf_course.chapters.ch17_tools.adventure import ACTIONS, BONUS, ROOMS, TURNS, Adventure, played, taught
from minirlhf_course.chapters.ch17_tools.equations import turn_advantages, turn_returns

#: The tool call of each action.
CALLS = {"west": 'go("west")', "east": 'go("east")', "take": "take()", "open": "open_door()"}
WON = "You have the treasure."
SENTENCES = (
    "You are in the", *(f"{room}." for room in ROOMS), "A key lies here.", "A door to the east is locked.", "open.",
    "A treasure lies here.", "You have a key.", WON, "Nothing happens.", "error:",
)  # fmt: skip
WORDS = (
    *dict.fromkeys(" ".join(SENTENCES).split()),
    "play",
    "done",
    "<tool>",
    calls.OPEN,
    calls.CLOSE,
    *CALLS.values(),
)

IMITATE = SFTConfig(max_steps=100, batch_size=32, learning_rate=3e-3)
IMPROVE = OnlineConfig(max_steps=24, batch_size=1, num_generations=32, learning_rate=1e-3, max_completion_length=160)


def credit_of_turns(steps: Tensor, ends: Tensor, mask: Tensor, *, num_generations: int) -> Tensor:
    """Return turn-level advantages ``(B, T)``.

    Every token of turn k gets the return from turn k on, minus its mean over the group's conversations with a turn k.

    Every conversation must have a turn that ends (``ends`` has a True in each row).
    """
    turn = ends.long().cumsum(-1) - ends.long()  # (B, T), the turn of each sampled token, from 0
    max_turns = int(ends.sum(-1).max())
    returns = torch.where(ends, turn_returns(steps, mask), 0.0)
    column = turn.clamp(max=max_turns - 1)
    zeros = returns.new_zeros(len(returns), max_turns)
    advantages = turn_advantages(
        zeros.scatter_add(1, column, returns), zeros.scatter_add(1, column, ends.to(zeros)) > 0,
        num_generations=num_generations,
    )  # fmt: skip
    return torch.where(mask, advantages.gather(1, column), 0.0)


#: Trajectory-level credit (the episode's reward minus the mean of the group), and turn-level credit.
COURSE = DR_GRPO
TURN = DR_GRPO.with_(credit=ProcessSupervision(credit_of_turns))


class Played(ToolEnv):
    """The adventure with bonuses; it is the only example, so every conversation of a group plays it."""

    def __init__(self, tokenizer: Any) -> None:
        example = {"prompt": conversation("play "), "bonus": BONUS}
        super().__init__([example], Adventure, tokenizer, form="python", max_turns=TURNS + 1)

    def metrics(self) -> dict[str, float]:
        """Add ``frac_won``: the fraction of a step's episodes that found the treasure."""
        won = [any(answer.content == WON for answer in episode.tool_results) for episode in self.episodes]
        return super().metrics() | {"frac_won": statistics.fmean(won)}


def demonstration(tokenizer: Any, actions: list[str]) -> Tokens:
    """Return an episode as a conversation; the loss excludes the tool's words."""
    env = Adventure()
    messages = conversation("play " + env.reset())
    for number, action in enumerate(actions, 1):
        messages.append({"role": "assistant", "content": f"{calls.OPEN} {CALLS[action]} {calls.CLOSE}"})
        text = env.go(action) if action in ("west", "east") else env.take() if action == "take" else env.open_door()
        if text == WON:
            messages += [{"role": "tool", "content": text}, {"role": "assistant", "content": "done"}]
        elif number < len(actions):
            messages.append({"role": "tool", "content": text})
    return encode(tokenizer, messages)


def imitator(seed: int, plan: SFTConfig = IMITATE, count: int = 3200) -> Trained:
    """Fine-tune a model on the episodes of a tabular policy that prefers the shortest way.

    On the way the tabular policy takes the right action in about half of the cases, otherwise any other action.
    """
    tokenizer = word_tokenizer(WORDS, chat_template=WORDS_AND_TOOLS)
    episodes = played(taught(), count, 0.0, generator("shown adventure", seed))
    action_lists = [[ACTIONS[a] for a, active in zip(row, mask, strict=True) if active] for row, mask in zip(episodes.actions.tolist(), episodes.mask.tolist(), strict=True)]  # fmt: skip
    model = tiny_model("nano", tokenizer, seed=seed)
    examples = [demonstration(tokenizer, actions) for actions in action_lists]
    history = train_sft(model, examples, replace(plan, seed=seed), pad_token_id=tokenizer.pad_token_id, quiet=True)
    return Trained(model, tokenizer, history)


def improved(start: Trained, by_turn: bool, plan: OnlineConfig) -> Trained:
    """Train a copy on its own episodes."""
    model = copy.deepcopy(start.model)
    history = train_in_env(model, Played(start.tokenizer), TURN if by_turn else COURSE, plan, quiet=True)
    return Trained(model, start.tokenizer, history)
