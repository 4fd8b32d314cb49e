"""Post-training on a toy task, stage by stage: pretrain, sft, preferences, reward_model, rl, align.

The tour, the zoo and the studies all run these stages. A stage defines its data and its trainer, takes a plan with all
its numbers, and never changes its initial model. ``run`` is passed to the trainer: ``out``, ``resume``, ``quiet``,
``name``.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from minirlhf.core.errors import UserError
from minirlhf.core.progress import progress
from minirlhf.core.randomness import numpy_generator
from minirlhf.data.chat import conversation, encode, encode_prompt, end_tokens
from minirlhf.data.preferences import SimulatedAnnotator, label_pairs
from minirlhf.data.tasks.base import HasDocuments, Task
from minirlhf.data.types import PreferenceExample, PreferencePair, Tokens, pair
from minirlhf.feedback.rewards import Reward, task_problems, task_reward
from minirlhf.models.heads import RewardModel
from minirlhf.models.sampling import Sampling, sample
from minirlhf.models.texts import completion_texts
from minirlhf.models.tiny import tiny_model
from minirlhf.models.tokenizers import word_tokenizer
from minirlhf.recipes import DR_GRPO, GRPO, PPO, Recipe
from minirlhf.recipes.offline import PREFERENCES, PreferenceRecipe
from minirlhf.trainers.history import History
from minirlhf.trainers.offline import OfflineConfig, train_offline
from minirlhf.trainers.online import OnlineConfig, train_online
from minirlhf.trainers.reward import RewardConfig, train_reward
from minirlhf.trainers.sft import SFTConfig, train_sft

P = TypeVar("P", "PretrainPlan", "SFTPlan", "RewardPlan", "RLPlan", "AlignPlan")


@dataclass(frozen=True)
class Trained:
    """A model, its tokenizer and the metrics of its training."""

    model: Any
    tokenizer: Any
    history: History = field(default_factory=History)


@dataclass(frozen=True)
class PretrainPlan:
    """Pretraining on the raw text of a toy task, from random weights."""

    preset: str = "nano"
    documents: int = 4000
    training: SFTConfig = SFTConfig(max_steps=300, batch_size=64, learning_rate=3e-3, lr_scheduler_type="linear")


@dataclass(frozen=True)
class SFTPlan:
    """Supervised fine-tuning on a task's demonstrations."""

    demonstrations: int = 2000
    training: SFTConfig = SFTConfig(max_steps=200, batch_size=64, learning_rate=2e-3, lr_scheduler_type="linear")


@dataclass(frozen=True)
class RewardPlan:
    """A reward model trained on pairs of on-policy completions, labelled with the gold reward and some noise."""

    pairs: int = 4000
    held_out: int = 500
    temperature: float = 0.25
    flip: float = 0.0
    training: RewardConfig = RewardConfig(max_steps=400, batch_size=32, learning_rate=1e-3, lr_scheduler_type="linear")


@dataclass(frozen=True)
class RLPlan:
    """Reinforcement learning on the first ``prompts`` training prompts (None: all).

    The maximum completion length is that of the task, unless ``max_completion_length`` is given.
    """

    recipe: Recipe = GRPO.with_(beta=0.5)
    training: OnlineConfig = OnlineConfig(max_steps=60, batch_size=8, num_generations=16, learning_rate=2e-4)
    prompts: int | None = None
    max_completion_length: int | None = None


@dataclass(frozen=True)
class AlignPlan:
    """Direct alignment on labelled pairs."""

    recipe: PreferenceRecipe = PREFERENCES["dpo"].with_(beta=0.2)
    training: OfflineConfig = OfflineConfig(max_steps=80, batch_size=32, learning_rate=3e-4, lr_scheduler_type="linear")


#: PPO with a separate critic, with the same reward model as :class:`RLPlan`'s GRPO. Its KL penalty is per token.
ASSISTANT_PPO = RLPlan(
    PPO.with_(beta=0.3, num_iterations=1, num_minibatches=2, critic_learning_rate_ratio=3.0),
    OnlineConfig(max_steps=40, batch_size=8, num_generations=16, learning_rate=2e-4),
)
#: The shell game: 20 % of the demonstrations have a chain of thought. With fewer steps it is only half learned.
SHELL_GAME_SFT = SFTPlan(demonstrations=6400, training=SFTConfig(max_steps=400, batch_size=64, learning_rate=3e-3))
SHELL_GAME_RL = RLPlan(DR_GRPO, OnlineConfig(max_steps=60, batch_size=16, num_generations=8, learning_rate=5e-4))
RUNNING_SUM_SFT = SFTPlan(
    demonstrations=6400,
    training=SFTConfig(max_steps=400, batch_size=64, learning_rate=3e-3, lr_scheduler_type="linear"),
)
SORT_DIGITS_SFT = SFTPlan(demonstrations=5120, training=SFTConfig(max_steps=80, batch_size=64, learning_rate=3e-3))
#: The phrasebook: no page occurs twice, so memorising is useless; the model must infer the language from each page.
PHRASEBOOK_PRETRAIN = PretrainPlan(
    documents=20_000,
    training=SFTConfig(max_steps=300, batch_size=64, learning_rate=3e-3, lr_scheduler_type="linear"),
)


def with_seed(plan: P, seed: int) -> P:
    """The plan with another seed."""
    return replace(plan, training=replace(plan.training, seed=seed))


# -- data --------------------------------------------------------------------------------------------------------


def completion_tokens(tokenizer: Any, prompt: str, reply: str) -> Tokens:
    """Tokenise one exchange; the loss is computed on the completion and its end token."""
    return encode(tokenizer, conversation(prompt, reply))


def pair_tokens(tokenizer: Any, pairs: Sequence[PreferencePair]) -> list[PreferenceExample]:
    """Return tokenised comparisons, without margins."""
    return [
        pair(completion_tokens(tokenizer, p.prompt, p.chosen), completion_tokens(tokenizer, p.prompt, p.rejected))
        for p in pairs
    ]


def demonstrations(task: Task, tokenizer: Any, count: int, seed: int) -> list[Tokens]:
    """Return tokenised demonstrations on the training prompts, with the loss on the completion only."""
    rng = numpy_generator("demonstrations", seed)
    return [completion_tokens(tokenizer, p, task.demonstration(p, rng)) for p in _in_turn(task.prompts("train"), count)]


def _in_turn(prompts: Sequence[str], count: int) -> list[str]:
    return [prompts[i % len(prompts)] for i in range(count)]


def preferences(task: Task, policy: Trained, plan: RewardPlan) -> tuple[list[PreferencePair], list[PreferencePair]]:
    """Return labelled pairs of on-policy completions for training prompts: for training, and held out.

    Pairs of equal completions carry no information and are dropped, so there may be fewer pairs than requested.
    """
    prompts = _in_turn(task.prompts("train"), plan.pairs + plan.held_out)
    triples: list[tuple[str, str, str]] = []
    for start in progress(range(0, len(prompts), 256), "preferences"):
        batch = prompts[start : start + 256]
        rollout = sample(
            policy.model,
            [encode_prompt(policy.tokenizer, conversation(p)) for p in batch],
            sampling=Sampling(max_completion_length=task.max_completion_length),
            num_generations=2,
            eos_token_id=end_tokens(policy.tokenizer, policy.model).ids,
            pad_token_id=policy.tokenizer.pad_token_id,
            prompt_keys=[f"pair {start + i}" for i in range(len(batch))],
            seed=plan.training.seed,
        )
        texts = completion_texts(rollout, policy.tokenizer)
        triples += zip(batch, texts[::2], texts[1::2], strict=True)
    labeller, seed = SimulatedAnnotator(temperature=plan.temperature, flip=plan.flip), plan.training.seed
    train, held_out = triples[: plan.pairs], triples[plan.pairs :]
    return (
        label_pairs(task, train, labeller=labeller, seed=seed),
        label_pairs(task, held_out, labeller=labeller, seed=seed + 1),
    )


# -- stages ------------------------------------------------------------------------------------------------------


def fresh(task: Task, *, preset: str = "nano", seed: int = 0) -> Trained:
    """Return an untrained model with the vocabulary of a task."""
    tokenizer = word_tokenizer(task.words)
    return Trained(tiny_model(preset, tokenizer, seed=seed), tokenizer)


def pretrain(task: Task, plan: PretrainPlan, **run: Any) -> Trained:
    """Train a language model on the task's raw text; a :class:`UserError` if the task has none."""
    if not isinstance(task, HasDocuments):
        raise UserError(f"the task {task.name} has no raw text for pretraining")
    start = fresh(task, preset=plan.preset, seed=plan.training.seed)
    rng, tokenizer = numpy_generator("documents", plan.training.seed), start.tokenizer
    rows = [
        [*tokenizer(task.document(rng), add_special_tokens=False).input_ids, tokenizer.eos_token_id]
        for _ in range(plan.documents)
    ]
    return _imitate(start, [Tokens(ids, [True] * len(ids)) for ids in rows], plan, **{"name": "pretrain", **run})


def sft(task: Task, start: Trained, plan: SFTPlan, **run: Any) -> Trained:
    """Imitate the demonstrations."""
    return _imitate(start, demonstrations(task, start.tokenizer, plan.demonstrations, plan.training.seed), plan, **run)


def sft_from_scratch(task: Task, plan: SFTPlan, preset: str = "nano", **run: Any) -> Trained:
    """Imitate the demonstrations, starting from random weights (for tasks without raw text)."""
    return sft(task, fresh(task, preset=preset, seed=plan.training.seed), plan, **run)


def _imitate(start: Trained, examples: Sequence[Tokens], plan: PretrainPlan | SFTPlan, **run: Any) -> Trained:
    model, tokenizer = copy.deepcopy(start.model), start.tokenizer
    history = train_sft(model, examples, plan.training, pad_token_id=tokenizer.pad_token_id, tokenizer=tokenizer, **run)
    return Trained(model, tokenizer, history)


def reward_model(start: Trained, pairs: Sequence[PreferencePair], plan: RewardPlan, **run: Any) -> Trained:
    """Train a reward model from the weights of a language model."""
    model, tokenizer = RewardModel.from_causal_lm(start.model, seed=plan.training.seed), start.tokenizer
    tokens = pair_tokens(tokenizer, pairs)
    history = train_reward(
        model, tokens, plan.training, pad_token_id=tokenizer.pad_token_id, tokenizer=tokenizer, **run
    )
    return Trained(model, tokenizer, history)


def align(start: Trained, examples: Sequence[PreferenceExample], plan: AlignPlan, **run: Any) -> Trained:
    """Learn from preferences directly; the reference is the initial policy, unless ``ref_model`` is given."""
    model, tokenizer = copy.deepcopy(start.model), start.tokenizer
    history = train_offline(
        model, examples, plan.recipe, plan.training, pad_token_id=tokenizer.pad_token_id, tokenizer=tokenizer, **run
    )
    return Trained(model, tokenizer, history)


def rl(task: Task, start: Trained, plan: RLPlan, *, reward: Reward | None = None, **run: Any) -> Trained:
    """Train a policy on the training prompts; the task is the grader unless another ``reward`` is given."""
    model = copy.deepcopy(start.model)
    length = plan.max_completion_length or task.max_completion_length
    history = train_online(
        model,
        task_problems(task, "train")[: plan.prompts],
        reward or task_reward(task),
        plan.recipe,
        replace(plan.training, max_completion_length=length),
        tokenizer=start.tokenizer,
        **run,
    )
    return Trained(model, start.tokenizer, history)
