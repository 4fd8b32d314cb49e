"""Layer 7: post-training end to end on a tiny world, stage by stage: pretrain, SFT, preferences, reward model, RL.

The tour, the zoo and the studies all run these stages; a stage is a few lines that name its data and its trainer.
A stage never changes the model that it starts from.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from torch import nn

from minirlhf import recipes
from minirlhf.core.randomness import numpy_generator
from minirlhf.data.chat import conversation, encode, encode_prompt
from minirlhf.data.preferences import Labeller, label_pairs
from minirlhf.data.tasks.base import Task
from minirlhf.data.types import PreferencePair, Tokens
from minirlhf.feedback.rewards import Reward, task_problems, task_reward
from minirlhf.models.heads import RewardModel
from minirlhf.models.sampling import Sampling, sample
from minirlhf.models.texts import completion_texts
from minirlhf.models.tiny import tiny_model
from minirlhf.models.tokenizers import word_tokenizer
from minirlhf.recipes.offline import get_preference
from minirlhf.trainers.history import History
from minirlhf.trainers.offline import OfflineConfig, pair, train_offline
from minirlhf.trainers.online import OnlineConfig, train_online
from minirlhf.trainers.reward import PairTokens, RewardConfig, train_reward
from minirlhf.trainers.sft import SFTConfig, train_sft


@dataclass(frozen=True)
class Trained:
    """A model, its tokenizer and the metrics of its training."""

    model: Any
    tokenizer: Any
    history: History


@dataclass(frozen=True)
class PretrainPlan:
    """Pretraining on the raw text of a world."""

    preset: str = "nano"
    documents: int = 4000
    training: SFTConfig = SFTConfig(max_steps=300, batch_size=64, learning_rate=3e-3, lr_scheduler_type="linear")


@dataclass(frozen=True)
class SFTPlan:
    """Supervised fine-tuning on a world's demonstrations."""

    demonstrations: int = 2000
    training: SFTConfig = SFTConfig(max_steps=200, batch_size=64, learning_rate=2e-3, lr_scheduler_type="linear")


@dataclass(frozen=True)
class RewardPlan:
    """A reward model trained on pairs of the policy's own replies, labelled with the gold reward and some noise."""

    pairs: int = 4000
    held_out: int = 500
    temperature: float = 0.25
    flip: float = 0.0
    training: RewardConfig = RewardConfig(max_steps=400, batch_size=32, learning_rate=1e-3, lr_scheduler_type="linear")


@dataclass(frozen=True)
class RLPlan:
    """Reinforcement learning; ``options`` are changes to the recipe by name. The task sets ``max_completion_length``."""

    recipe: str = "grpo"
    options: tuple[tuple[str, Any], ...] = (("beta", 0.5),)
    training: OnlineConfig = OnlineConfig(max_steps=60, batch_size=8, num_generations=16, learning_rate=2e-4)


#: PPO with a critic of its own, against the same reward model as :class:`RLPlan`'s GRPO. Its KL is charged token by token.
ASSISTANT_PPO = RLPlan(
    recipe="ppo",
    options=(("beta", 0.3), ("num_iterations", 1), ("num_minibatches", 2), ("critic_learning_rate_ratio", 3.0)),
    training=OnlineConfig(max_steps=40, batch_size=8, num_generations=16, learning_rate=2e-4),
)


@dataclass(frozen=True)
class AlignPlan:
    """Direct alignment on labelled pairs; ``options`` are changes to the loss's row by name."""

    loss: str = "dpo"
    options: tuple[tuple[str, Any], ...] = (("beta", 0.2),)
    training: OfflineConfig = OfflineConfig(max_steps=80, batch_size=32, learning_rate=3e-4, lr_scheduler_type="linear")


#: The shell game: one demonstration in five thinks aloud. Fewer steps leave the chain of thought half learned.
SHELL_GAME_SFT = SFTPlan(demonstrations=6400, training=SFTConfig(max_steps=400, batch_size=64, learning_rate=3e-3))
SHELL_GAME_RL = RLPlan(
    recipe="dr_grpo",
    options=(),
    training=OnlineConfig(max_steps=60, batch_size=16, num_generations=8, learning_rate=5e-4),
)
SORT_DIGITS_SFT = SFTPlan(demonstrations=5120, training=SFTConfig(max_steps=80, batch_size=64, learning_rate=3e-3))


def with_seed(plan: Any, seed: int) -> Any:
    """The plan with another seed."""
    return replace(plan, training=replace(plan.training, seed=seed))


def pretrain(task: Any, plan: PretrainPlan, **run: Any) -> Trained:
    """A language model of the world's raw text; ``run`` goes to the trainer (``out``, ``resume``, ``quiet``)."""
    tokenizer = word_tokenizer(task.words)
    rng = numpy_generator("documents", plan.training.seed)
    texts = [task.document(rng) for _ in range(plan.documents)]
    examples = []
    for text in texts:
        ids = [*tokenizer(text, add_special_tokens=False).input_ids, tokenizer.eos_token_id]
        examples.append(Tokens(ids, [True] * len(ids)))
    model = tiny_model(plan.preset, tokenizer, seed=plan.training.seed)
    run = {"name": "pretrain", **run}
    history = train_sft(model, examples, plan.training, pad_token_id=tokenizer.pad_token_id, tokenizer=tokenizer, **run)
    return Trained(model, tokenizer, history)


def demonstrations(task: Task, tokenizer: Any, count: int, seed: int) -> list[Tokens]:
    """Tokenised demonstrations on the training prompts, the loss on the reply only."""
    rng, prompts = numpy_generator("demonstrations", seed), task.prompts("train")
    return [
        reply_tokens(tokenizer, p, task.demonstration(p, rng))
        for p in (prompts[i % len(prompts)] for i in range(count))
    ]


def reply_tokens(tokenizer: Any, prompt: str, reply: str) -> Tokens:
    """One exchange as tokens; the loss lies on the reply and its end."""
    return encode(tokenizer, conversation(prompt, reply))


def sft(task: Task, base: Trained, plan: SFTPlan, **run: Any) -> Trained:
    """Imitate the demonstrations."""
    model = copy.deepcopy(base.model)
    examples = demonstrations(task, base.tokenizer, plan.demonstrations, plan.training.seed)
    run = {"name": "sft", **run}
    history = train_sft(
        model, examples, plan.training, pad_token_id=base.tokenizer.pad_token_id, tokenizer=base.tokenizer, **run
    )
    return Trained(model, base.tokenizer, history)


def sft_from_scratch(task: Task, plan: SFTPlan, preset: str = "nano", **run: Any) -> Trained:
    """Imitate the demonstrations, starting from random weights (for worlds without raw text)."""
    tokenizer = word_tokenizer(task.words)
    fresh = Trained(tiny_model(preset, tokenizer, seed=plan.training.seed), tokenizer, History())
    return sft(task, fresh, plan, **run)


def preferences(task: Task, policy: Trained, plan: RewardPlan) -> tuple[list[PreferencePair], list[PreferencePair]]:
    """Labelled pairs of the policy's own replies to training prompts: for training and held out.

    Two replies that are equal say nothing, so there may be fewer than asked for.
    """
    count, prompts = plan.pairs + plan.held_out, task.prompts("train")
    asked = [prompts[i % len(prompts)] for i in range(count)]
    triples: list[tuple[str, str, str]] = []
    for start in range(0, count, 256):
        chunk = asked[start : start + 256]
        rollout = sample(
            policy.model,
            [encode_prompt(policy.tokenizer, conversation(p)) for p in chunk],
            sampling=Sampling(max_completion_length=task.max_completion_length),
            num_generations=2,
            eos_token_id=policy.tokenizer.eos_token_id,
            pad_token_id=policy.tokenizer.pad_token_id,
            prompt_keys=[f"pair {start + i}" for i in range(len(chunk))],
            seed=plan.training.seed,
        )
        texts = completion_texts(rollout, policy.tokenizer)
        triples += zip(chunk, texts[::2], texts[1::2], strict=True)
    labeller = Labeller(temperature=plan.temperature, flip=plan.flip)
    cut = plan.pairs
    return (
        label_pairs(task, triples[:cut], labeller=labeller, seed=plan.training.seed),
        label_pairs(task, triples[cut:], labeller=labeller, seed=plan.training.seed + 1),
    )


def pair_tokens(tokenizer: Any, pairs: Sequence[PreferencePair]) -> list[PairTokens]:
    """Tokenised comparisons, without margins."""
    return [
        PairTokens(reply_tokens(tokenizer, p.prompt, p.chosen), reply_tokens(tokenizer, p.prompt, p.rejected))
        for p in pairs
    ]


def reward_model(start: Trained, pairs: Sequence[PreferencePair], plan: RewardPlan, **run: Any) -> Trained:
    """A reward model that starts from the weights of a language model."""
    model = RewardModel.from_causal_lm(start.model, seed=plan.training.seed)
    run = {"name": "reward", **run}
    history = train_reward(
        model,
        pair_tokens(start.tokenizer, pairs),
        plan.training,
        pad_token_id=start.tokenizer.pad_token_id,
        tokenizer=start.tokenizer,
        **run,
    )
    return Trained(model, start.tokenizer, history)


def align(start: Trained, pairs: Sequence[PreferencePair], plan: AlignPlan, **run: Any) -> Trained:
    """Learn from labelled pairs directly; the reference is the policy as it starts."""
    model = copy.deepcopy(start.model)
    examples = [pair(p.chosen, p.rejected, p.margin) for p in pair_tokens(start.tokenizer, pairs)]
    recipe = get_preference(plan.loss).with_(**dict(plan.options))
    history = train_offline(
        model,
        examples,
        recipe,
        plan.training,
        pad_token_id=start.tokenizer.pad_token_id,
        tokenizer=start.tokenizer,
        **run,
    )
    return Trained(model, start.tokenizer, history)


def reinforce(
    task: Task,
    start: Trained,
    plan: RLPlan,
    *,
    reward: Reward | None = None,
    ref_model: nn.Module | None = None,
    **run: Any,
) -> Trained:
    """Improve a policy on the training prompts; the task grades unless another ``reward`` is given."""
    model = copy.deepcopy(start.model)
    recipe = recipes.get(plan.recipe).with_(**dict(plan.options))
    training = replace(plan.training, max_completion_length=task.max_completion_length)
    history = train_online(
        model,
        task_problems(task, "train"),
        reward or task_reward(task),
        recipe,
        training,
        tokenizer=start.tokenizer,
        ref_model=ref_model,
        **run,
    )
    return Trained(model, start.tokenizer, history)
