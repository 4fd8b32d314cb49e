"""The text adventure, played by a language model that learns from its own courses: the credit of turns against that of whole courses.

    play You are in the hall. A door to the east is locked.
    <tool_call> go("west") </tool_call>         the policy
    You are in the cellar. A key lies here.     the tool
    …
    <tool_call> take() </tool_call>
    You have the treasure.
    done                                        the policy

The environment is :class:`~minirlhf.chapters.ch17_tools.adventure.Adventure` as it stands. A lab of chapter 17.
"""

from __future__ import annotations

import copy
import statistics
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from minirlhf.chapters.ch17_tools.adventure import ACTIONS, BONUS, ROOMS, TURNS, Adventure, played, taught
from minirlhf.core.randomness import generator
from minirlhf.data import calls
from minirlhf.data.chat import WORDS_AND_TOOLS, conversation, encode
from minirlhf.data.types import Tokens
from minirlhf.equations.tools import turn_advantages, turn_returns
from minirlhf.models.tiny import tiny_model
from minirlhf.models.tokenizers import word_tokenizer
from minirlhf.recipes import DR_GRPO, ProcessSupervision
from minirlhf.stages.pipeline import Trained
from minirlhf.trainers.config import OnlineConfig
from minirlhf.trainers.online import train_in_env
from minirlhf.trainers.sft import SFTConfig, train_sft
from minirlhf.trainers.tools import ToolEnv

#: How each action is called.
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
    """``(B, T)``: every token of turn k has the return from turn k on, less the mean of the group's conversations that have a turn k.

    Every conversation must have a turn that ends (``ends`` has a True in each row).
    """
    number = ends.long().cumsum(-1) - ends.long()  # (B, T), the turn of each sampled token, from 0
    most = int(ends.sum(-1).max())
    returns = torch.where(ends, turn_returns(steps, mask), 0.0)
    column = number.clamp(max=most - 1)
    table = returns.new_zeros(len(returns), most)
    found = turn_advantages(
        table.scatter_add(1, column, returns), table.scatter_add(1, column, ends.to(table)) > 0,
        num_generations=num_generations,
    )  # fmt: skip
    return torch.where(mask, found.gather(1, column), 0.0)


#: The whole course's reward less the mean of the group, and the credit of turns.
COURSE = DR_GRPO
TURN = DR_GRPO.with_(credit=ProcessSupervision(credit_of_turns))


class Played(ToolEnv):
    """The one adventure, with bonuses, played by every conversation of a group."""

    def __init__(self, tokenizer: Any) -> None:
        example = {"prompt": conversation("play "), "bonus": BONUS}
        super().__init__([example], Adventure, tokenizer, form="python", max_turns=TURNS + 1)

    def metrics(self) -> dict[str, float]:
        """``frac_won``: the share of a step's courses that found the treasure."""
        won = [any(answer.content == WON for answer in episode.answers) for episode in self.episodes]
        return super().metrics() | {"frac_won": statistics.fmean(won)}


def demonstration(tokenizer: Any, actions: list[str]) -> Tokens:
    """A course as a conversation; the tool's words are not learned."""
    game = Adventure()
    talk = conversation("play " + game.reset())
    for number, action in enumerate(actions, 1):
        talk.append({"role": "assistant", "content": f"{calls.OPEN} {CALLS[action]} {calls.CLOSE}"})
        said = game.go(action) if action in ("west", "east") else game.take() if action == "take" else game.open_door()
        if said == WON:
            talk += [{"role": "tool", "content": said}, {"role": "assistant", "content": "done"}]
        elif number < len(actions):
            talk.append({"role": "tool", "content": said})
    return encode(tokenizer, talk)


def imitator(seed: int, plan: SFTConfig = IMITATE, count: int = 3200) -> Trained:
    """Fine-tuned on the courses of a table that has heard of the way: at each place it takes the right action in about half of the cases, else any other."""
    tokenizer = word_tokenizer(WORDS, chat_template=WORDS_AND_TOOLS)
    some = played(taught(), count, 0.0, generator("shown adventure", seed))
    courses = [[ACTIONS[a] for a, going in zip(row, mask, strict=True) if going] for row, mask in zip(some.actions.tolist(), some.mask.tolist(), strict=True)]  # fmt: skip
    model = tiny_model("nano", tokenizer, seed=seed)
    examples = [demonstration(tokenizer, course) for course in courses]
    history = train_sft(model, examples, replace(plan, seed=seed), pad_token_id=tokenizer.pad_token_id, quiet=True)
    return Trained(model, tokenizer, history)


def improved(start: Trained, by_turn: bool, plan: OnlineConfig) -> Trained:
    """A copy, trained on its own courses."""
    model = copy.deepcopy(start.model)
    history = train_in_env(model, Played(start.tokenizer), TURN if by_turn else COURSE, plan, quiet=True)
    return Trained(model, start.tokenizer, history)
