"""Layer 7: a training run from names: data by file or hub name, a model by preset, folder or hub name, results in a folder.

``out`` then holds ``config.json``, ``metrics.jsonl``, ``checkpoints/``, ``result.json`` and, at the end, ``model/``.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from minirlhf import recipes
from minirlhf.core.errors import UserError
from minirlhf.core.randomness import numpy_generator
from minirlhf.data import loaders, tasks
from minirlhf.data.chat import Message, conversation, encode, encode_prompt
from minirlhf.data.records import Comparison, Judgement, Ranking
from minirlhf.data.types import Tokens
from minirlhf.equations.preference_losses import ListLogps, UnpairedLogps
from minirlhf.evaluation import Evaluation, evaluate, wilson_interval
from minirlhf.feedback import graders
from minirlhf.feedback.rewards import (
    Reward,
    model_reward,
    reference_reward,
    task_problems,
    task_reward,
)
from minirlhf.models import adapters, checkpoints, tiny
from minirlhf.models.heads import RewardModel
from minirlhf.models.loading import load_model
from minirlhf.models.tokenizers import load_tokenizer, train_tokenizer, word_tokenizer
from minirlhf.recipes.offline import describe_preference, get_preference
from minirlhf.trainers.config import setting
from minirlhf.trainers.offline import Compared, HeldOut, OfflineConfig, labelled, pair, ranked, train_offline
from minirlhf.trainers.online import OnlineConfig, for_run, train_online
from minirlhf.trainers.reward import PairTokens, RewardConfig, pair_accuracy, train_reward
from minirlhf.trainers.sft import SFTConfig, mean_nll, train_sft


@dataclass(frozen=True)
class Source:
    """Where data and model come from, and where results go."""

    out: str = setting("", "folder of the run")
    data: str | None = setting(None, "file (.jsonl, .json, .csv, .parquet), folder, or hub name")
    format: str | None = setting(None, "format of the data; None: detected from its fields")
    split: str | None = setting(None, "split of a folder or hub data set")
    limit: int | None = setting(None, "read this many rows at most")
    model: str = setting("nano", "tiny preset (nano, micro, small), model folder, or hub name")
    vocab_size: int = setting(2048, "for a preset: size of the tokenizer that is trained on the data")
    context: int = setting(512, "for a preset: tokens that the model can read")
    held_out: float = setting(0.1, "share of the prompts kept for the evaluation")
    lora_r: int = setting(0, "rank of LoRA adapters, which are then all that is trained; 0: train every weight")
    lora_alpha: float | None = setting(
        None, "LoRA: the adapter counts alpha / rank times; None: alpha is twice the rank"
    )
    lora_dropout: float = setting(0.0, "LoRA: dropout of the adapter's input (SFT and reward model only)")
    drop_identical: bool = setting(False, "leave out pairs of equal replies, and count them; else they are an error")
    drop_long: bool = setting(
        False, "leave out examples longer than the context, and count them; else they are an error"
    )

    def __post_init__(self) -> None:
        if not self.out:
            raise UserError("no output folder; give --out FOLDER")


@dataclass(frozen=True)
class SFTSource(Source):
    """For supervised fine-tuning; a tiny world's demonstrations may take the place of data."""

    task: str | None = setting(None, "a tiny world in place of data: assistant, shell_game, sort_digits")
    demonstrations: int = setting(2000, "for a tiny world: how many demonstrations")


@dataclass(frozen=True)
class RewardSource(Source):
    """For a reward model."""


@dataclass(frozen=True)
class OfflineSource(Source):
    """For learning from given preferences."""

    loss: str = setting("dpo", "the preference loss")
    ref_model: str | None = setting(None, "frozen reference: model folder or hub name; None: the model as it starts")


@dataclass(frozen=True)
class OnlineSource(Source):
    """For online reinforcement learning."""

    task: str | None = setting(None, "a tiny world in place of data: assistant, shell_game, sort_digits")
    recipe: str = setting("grpo", "the algorithm")
    grader: str | None = setting(None, "compare with the reference by: exact, contains, numeric, gsm8k")
    reward_model: str | None = setting(None, "grade by the reward model in this folder")
    ref_model: str | None = setting(None, "frozen reference: model folder or hub name; None: the model as it starts")
    ptx_data: str | None = setting(None, "texts that --ptx-coef keeps likely: conversations, as for sft")


@dataclass(frozen=True)
class Start:
    """A model to train and its tokenizer."""

    model: Any
    tokenizer: Any
    context: int


def start(source: Source, texts: Iterable[str], seed: int, task: str | None = None) -> Start:
    """The model of ``source``; a preset gets the task's tokenizer, or one trained on ``texts``."""
    if source.model in tiny.PRESETS:
        if task is not None:
            tokenizer = word_tokenizer(tasks.get(task).words)
        else:
            tokenizer = train_tokenizer(texts, source.vocab_size)
        model = tiny.tiny_model(source.model, tokenizer, seed=seed, context=source.context)
    else:
        model, tokenizer = load_model(source.model, complete_tokenizer=True)
    return Start(model, tokenizer, model.config.get_text_config().max_position_embeddings)


def _adapted(source: Source, model: Any, seed: int) -> Any:
    """The model, with LoRA adapters if they are asked for."""
    if source.lora_r == 0:
        return model
    return adapters.add_lora(
        model, lora_r=source.lora_r, lora_alpha=source.lora_alpha, lora_dropout=source.lora_dropout, seed=seed
    )


def _reference(name: str | None, tokenizer: Any) -> Any:
    """The reference model of this name, which must know the same tokens; None if there is no name."""
    if name is None:
        return None
    model, its_tokenizer = load_model(name, complete_tokenizer=True)
    if its_tokenizer.get_vocab() != tokenizer.get_vocab():
        raise UserError(f"{name}: its tokenizer is not that of the policy; a reference must know the same tokens")
    return model


def _fits(source: Source, context: int, lengths: list[int], room: int = 0) -> list[bool]:
    """Which examples leave ``room`` tokens in the context; an error, or a printed count, if some do not."""
    fits = [n + room <= context for n in lengths]
    where = source.data or "the task"
    if all(fits):
        return fits
    worst = max(range(len(lengths)), key=lengths.__getitem__)
    if not source.drop_long or not any(fits):
        needed = f"{lengths[worst]} tokens" + (f" and {room} for the completion" if room else "")
        raise UserError(
            f"{where}: example {worst + 1} has {needed}, the model reads {context}: raise --context, use another model, or "
            f"leave out the {fits.count(False)} long examples with --drop-long true"
        )
    print(f"{where}: left out {fits.count(False)} of {len(fits)} examples longer than {context} tokens")
    return fits


def _keep(items: list[Any], fits: list[bool]) -> list[Any]:
    return [item for item, fit in zip(items, fits, strict=True) if fit]


def _text(messages: Iterable[Message]) -> str:
    return "\n".join(message["content"] for message in messages)


def _records(source: Source, seed: int) -> tuple[loaders.Records, loaders.Records]:
    if source.data is None:
        raise UserError("no data; give --data FILE, FOLDER or a hub name")
    records = loaders.load(
        source.data, split=source.split, format=source.format, limit=source.limit, drop_identical=source.drop_identical
    )
    print(records)
    return records.hold_out(source.held_out, seed)


def _finish(source: Source, model: Any, tokenizer: Any, result: dict[str, Any]) -> dict[str, Any]:
    out = Path(source.out)
    checkpoints.save(out / "model", adapters.merged(model), tokenizer)
    checkpoints.write_text_atomic(out / "result.json", json.dumps(result, indent=2) + "\n")
    return result


# -- supervised fine-tuning --------------------------------------------------------------------------------------


def run_sft(source: SFTSource, config: SFTConfig, *, resume: bool = False) -> dict[str, Any]:
    """Fine-tune on conversations. Returns held-out nats per token before and after, also written to ``result.json``."""
    if source.task is not None:
        train, held, begun = _demonstrations(source, config.seed)
    else:
        kept, held_out = _records(source, config.seed)
        texts = (_text(c.messages) for c in kept.conversations())
        begun = start(source, texts, config.seed)
        train, held = (
            [encode(begun.tokenizer, c.messages, first_turn=c.context) for c in part.conversations()]
            for part in (kept, held_out)
        )
    fits = _fits(source, begun.context, [len(t) for t in train + held])
    train, held = _keep(train, fits[: len(train)]), _keep(held, fits[len(train) :])
    pad, model = begun.tokenizer.pad_token_id, _adapted(source, begun.model, config.seed)
    before = mean_nll(model, held, pad_token_id=pad)
    train_sft(model, train, config, pad_token_id=pad, out=source.out, tokenizer=begun.tokenizer, resume=resume)
    after = mean_nll(model, held, pad_token_id=pad)
    print(f"held-out loss on {len(held)} conversations: {before:.3f} -> {after:.3f} nats per token")
    result = {"train": len(train), "held_out": len(held), "held_out_loss_before": before, "held_out_loss": after}
    return _finish(source, model, begun.tokenizer, result)


def _demonstrations(source: SFTSource, seed: int) -> tuple[list[Tokens], list[Tokens], Start]:
    assert source.task is not None
    task = tasks.get(source.task)
    begun = start(source, (), seed, source.task)

    def examples(split: Any, count: int) -> list[Tokens]:
        prompts, rng = task.prompts(split), numpy_generator("demonstrations", split, seed)
        chosen = (prompts[i % len(prompts)] for i in range(count))
        return [encode(begun.tokenizer, conversation(p, task.demonstration(p, rng))) for p in chosen]

    return examples("train", source.demonstrations), examples("test", max(1, source.demonstrations // 10)), begun


# -- reward model ------------------------------------------------------------------------------------------------


def run_reward(source: RewardSource, config: RewardConfig, *, resume: bool = False) -> dict[str, Any]:
    """Train a reward model on comparisons.

    Returns:
        Held-out accuracy with its 95 % interval, beside the accuracy of "the longer reply wins".
    """
    kept, held_out = _records(source, config.seed)
    texts = (_text([*c.prompt, *side]) for c in kept.comparisons() for side in (c.chosen, c.rejected))
    begun = start(source, texts, config.seed)
    train, held = ([_pair(begun.tokenizer, c) for c in part.comparisons()] for part in (kept, held_out))
    fits = _fits(source, begun.context, [max(len(p.chosen), len(p.rejected)) for p in train + held])
    train, held = _keep(train, fits[: len(train)]), _keep(held, fits[len(train) :])
    model = _adapted(source, RewardModel.from_causal_lm(begun.model, seed=config.seed), config.seed)
    pad = begun.tokenizer.pad_token_id
    train_reward(model, train, config, pad_token_id=pad, out=source.out, tokenizer=begun.tokenizer, resume=resume)
    accuracy = pair_accuracy(model, held, pad_token_id=pad)
    longer = sum(
        0.5 if len(p.chosen) == len(p.rejected) else float(len(p.chosen) > len(p.rejected)) for p in held
    ) / len(held)
    low, high = wilson_interval(accuracy * len(held), len(held))
    print(
        f"held-out accuracy on {len(held)} pairs: {accuracy:.3f} (95 % interval {low:.3f} to {high:.3f}); "
        f"'the longer reply wins': {longer:.3f}"
    )
    result = {
        "train": len(train),
        "held_out": len(held),
        "accuracy": accuracy,
        "interval": [low, high],
        "longer_wins": longer,
        "train_accuracy": pair_accuracy(model, train, pad_token_id=pad),
    }
    return _finish(source, model, begun.tokenizer, result)


def _pair(tokenizer: Any, comparison: Comparison) -> PairTokens:
    chosen, rejected = (
        encode(tokenizer, [*comparison.prompt, *side], first_turn=len(comparison.prompt))
        for side in (comparison.chosen, comparison.rejected)
    )
    return PairTokens(chosen, rejected, comparison.margin)


# -- learning from given preferences -----------------------------------------------------------------------------


def run_offline(
    source: OfflineSource, config: OfflineConfig, changes: Mapping[str, Any] | None = None, *, resume: bool = False
) -> dict[str, Any]:
    """Learn from comparisons, labels or rankings by the loss of this name. Returns the held-out metrics."""
    recipe = get_preference(source.loss).with_(**(changes or {}))
    recipe.try_out()
    kept, held_out = _records(source, config.seed)
    kind = recipe.needs.record
    begun = start(source, (_text(reply) for reply in _replies(kept)), config.seed)
    train, held = (_compared(begun.tokenizer, part, kind) for part in (kept, held_out))
    fits = _fits(source, begun.context, [max(map(len, e.answers)) for e in train + held])
    train, held = _keep(train, fits[: len(train)]), _keep(held, fits[len(train) :])
    model, pad = _adapted(source, begun.model, config.seed), begun.tokenizer.pad_token_id
    ref_model = _reference(source.ref_model, begun.tokenizer)
    measure = HeldOut(held, recipe, ref_model or adapters.reference_of(model), pad_token_id=pad)
    print(describe_preference(recipe))
    history = train_offline(
        model,
        train,
        recipe,
        config,
        pad_token_id=pad,
        ref_model=ref_model,
        out=source.out,
        tokenizer=begun.tokenizer,
        resume=resume,
    )
    metrics = measure.measure(model)
    print(f"held-out on {len(measure)} examples: " + ", ".join(f"{k} {v:.3f}" for k, v in metrics.items()))
    result = {"train": len(train), "held_out": len(measure), "steps": len(history), **metrics}
    return _finish(source, model, begun.tokenizer, result)


def _replies(records: loaders.Records) -> Iterator[list[Message]]:
    """Every reply with its prompt, whether it is a good one or not."""
    for example in records.examples:
        match example:
            case Comparison(prompt, chosen, rejected):
                yield from ([*prompt, *chosen], [*prompt, *rejected])
            case Judgement(prompt, completion):
                yield [*prompt, *completion]
            case Ranking(prompt, tiers):
                yield from ([*prompt, *reply] for tier in tiers for reply in tier)


def _compared(tokenizer: Any, records: loaders.Records, kind: type[Any]) -> list[Compared]:
    """The records as the examples that come closest to what a loss of this kind compares."""

    def answer(prompt: list[Message], reply: list[Message]) -> Tokens:
        return encode(tokenizer, [*prompt, *reply], first_turn=len(prompt))

    if kind is UnpairedLogps or any(isinstance(example, Judgement) for example in records.examples):
        return [labelled(answer(j.prompt, j.completion), j.desirable) for j in records.judgements()]
    if kind is ListLogps:
        return [ranked([answer(r.prompt, reply) for reply in r.strict()], r.scores) for r in records.rankings()]
    return [pair(answer(c.prompt, c.chosen), answer(c.prompt, c.rejected), c.margin) for c in records.comparisons()]


# -- online reinforcement learning -------------------------------------------------------------------------------


def run_online(
    source: OnlineSource, config: OnlineConfig, changes: Mapping[str, Any] | None = None, *, resume: bool = False
) -> dict[str, Any]:
    """Improve a policy on a task or on problems with a grader. Returns the held-out reward before and after."""
    recipe = for_run(recipes.get(source.recipe).with_(**(changes or {})), config)
    if source.task is not None:
        task = tasks.get(source.task)
        problems, held = task_problems(task, "train"), task_problems(task, "test")
        reward = task_reward(task)
        begun = start(source, (), config.seed, source.task)
    else:
        kept, held_out = _records(source, config.seed)
        problems, held = kept.problems(), held_out.problems()
        reward = _reward(source)
        begun = start(source, (_text(p.prompt) for p in problems), config.seed)
    sizes = [len(encode_prompt(begun.tokenizer, p.prompt)) for p in problems + held]
    fits = _fits(source, begun.context, sizes, room=config.max_completion_length)
    problems, held = _keep(problems, fits[: len(problems)]), _keep(held, fits[len(problems) :])[:256]
    model = _adapted(source, begun.model, config.seed)
    ref_model = _reference(source.ref_model, begun.tokenizer)
    pretraining = None
    if source.ptx_data is not None:
        texts = loaders.load(source.ptx_data).conversations()
        pretraining = [encode(begun.tokenizer, c.messages, first_turn=c.context) for c in texts]

    def score() -> Evaluation:
        return evaluate(model, held, reward, tokenizer=begun.tokenizer, sampling=config.sampling(), seed=config.seed)

    print(recipes.describe(recipe))
    before = score()
    train_online(
        model,
        problems,
        reward,
        recipe,
        config,
        tokenizer=begun.tokenizer,
        ref_model=ref_model,
        pretraining=pretraining,
        out=source.out,
        resume=resume,
    )
    after = score()
    print(f"held-out reward on {len(held)} prompts: {before.reward.mean:.3f} -> {after.reward.mean:.3f}")
    if before.frac_invalid or after.frac_invalid:
        print(
            f"left out, as they could not be graded: {before.frac_invalid:.1%} -> {after.frac_invalid:.1%} of the replies"
        )
    result = {
        "train": len(problems),
        "held_out": len(held),
        "held_out_reward_before": before.reward.mean,
        "held_out_reward": after.reward.mean,
        "held_out_frac_invalid_before": before.frac_invalid,
        "held_out_frac_invalid": after.frac_invalid,
    }
    return _finish(source, model, begun.tokenizer, result)


def _reward(source: OnlineSource) -> Reward:
    if (source.grader is None) == (source.reward_model is None):
        raise UserError("give either --grader NAME, to compare with the references, or --reward-model FOLDER")
    if source.grader is not None:
        return reference_reward(graders.get(source.grader))
    assert source.reward_model is not None
    return model_reward(RewardModel.from_pretrained(source.reward_model), load_tokenizer(source.reward_model))
