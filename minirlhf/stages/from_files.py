"""A training run from files: data by file or hub name, a model by preset, folder or hub name, results in a folder.

The four kinds go one way: :func:`prepare` (read, hold out, start a model, tokenise), train and measure, :meth:`Prepared.finish`.
``out`` then holds ``config.json``, ``metrics.jsonl``, ``checkpoints/``, ``result.json`` and ``model/``.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any, Generic, TypeAlias, TypeVar, get_args

import torch
from torch import nn

from minirlhf import recipes
from minirlhf.core.calling import context_length, evaluating
from minirlhf.core.errors import UserError, unknown
from minirlhf.core.randomness import numpy_generator
from minirlhf.data import loaders, tasks
from minirlhf.data.chat import Message, conversation, declare_ends, encode, encode_prompt, ends_of, stepwise
from minirlhf.data.loaders import Records
from minirlhf.data.records import Comparison, Conversation, Example, Judgement, Problem, Ranking, SteppedReply
from minirlhf.data.tasks.base import Split, Task
from minirlhf.data.types import Compared, Tokens, labelled, pair, ranked
from minirlhf.equations.preference_losses import ListLogps, UnpairedLogps
from minirlhf.feedback import graders, own
from minirlhf.feedback.rewards import (
    COMBINATIONS,
    Reward,
    combined_reward,
    model_reward,
    reference_reward,
    task_problems,
    task_reward,
)
from minirlhf.models import adapters, checkpoints, tiny
from minirlhf.models.heads import RewardModel
from minirlhf.models.tokenizers import load_tokenizer, train_tokenizer, word_tokenizer
from minirlhf.recipes.offline import Preference, describe_preference
from minirlhf.report import live
from minirlhf.stages import named, start
from minirlhf.trainers.config import RejectionConfig, SamplingConfig, TrainerConfig, setting
from minirlhf.trainers.evaluation import Evaluation, evaluate
from minirlhf.trainers.loop import Origin, Watch
from minirlhf.trainers.offline import HeldOut, OfflineConfig, train_offline
from minirlhf.trainers.online import OnlineConfig, for_run, train_online
from minirlhf.trainers.rejection import train_rejection
from minirlhf.trainers.sft import SFTConfig, mean_nll, train_sft

E = TypeVar("E")
Messages: TypeAlias = list[Message]

#: Settings of a run that somebody chose: none.
NOTHING: Mapping[str, Any] = MappingProxyType({})

TASK = f"a tiny world in place of data: {', '.join(tasks.TASKS)}"
REFERENCE = "frozen reference: model folder or hub name; None: the model as it starts"


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
    chat_template: str | None = setting(None, "file with a chat template, in place of the model's own")
    dtype: str = setting("float32", "number format of the weights: float32, bfloat16, float16, float64")
    device: str | None = setting(None, "where to compute: cpu, cuda, cuda:1, mps; None: the first GPU, else the CPU")
    bf16: bool | None = setting(None, "compute in bfloat16, weights stay as they are; None: on a GPU only")
    held_out: float = setting(0.1, "share of the prompts kept for the evaluation")
    eval_data: str | None = setting(None, "what to evaluate on, in place of a share of the data; read like them")
    eval_steps: int = setting(0, "evaluate every so many steps as well; 0: at the end only")
    report_to: str | None = setting(None, "tensorboard: write the metrics for it while the run goes on (--logdir OUT)")
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
        if self.eval_steps < 0:
            raise UserError(f"eval_steps = {self.eval_steps}; expected at least 0")
        live.require(self.report_to)


@dataclass(frozen=True)
class SFTSource(Source):
    """For supervised fine-tuning; a tiny world's demonstrations may take the place of data."""

    task: str | None = setting(None, TASK)
    demonstrations: int = setting(2000, "for a tiny world: how many demonstrations")


@dataclass(frozen=True)
class OfflineSource(Source):
    """For learning from given preferences."""

    ref_model: str | None = setting(None, REFERENCE)


@dataclass(frozen=True)
class GradedSource(Source):
    """For learning from graded replies of its own; a tiny world may take the place of data and grader."""

    task: str | None = setting(None, TASK)
    grader: str | None = setting(
        None, f"compare with the reference by: {', '.join(graders.GRADERS)}, or by your own function: FILE.py:NAME"
    )
    grader_seconds: float = setting(10.0, "time that your own function has for a completion")
    reward_model: str | None = setting(None, "grade by the reward model in this folder; A,B: by several")
    combine: str = setting("mean", f"what several reward models say together: {', '.join(COMBINATIONS)}")


@dataclass(frozen=True)
class OnlineSource(GradedSource):
    """For online reinforcement learning."""

    ref_model: str | None = setting(None, REFERENCE)
    ptx_data: str | None = setting(None, "texts that --ptx-coef keeps likely: conversations, as for sft")


# -- the way they share ------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Reference:
    """A frozen reference with the name it was given by."""

    name: str
    model: Any
    tokenizer: Any

    @classmethod
    def load(cls, name: str | None) -> Reference | None:
        """The model of this name; None if there is no name."""
        return None if name is None else cls(name, *named.model_by_name(name))


def _digest(reference: Reference | None) -> str | None:
    return None if reference is None else start.model_digest(reference.model)


@dataclass(frozen=True)
class Prepared(Generic[E]):
    """A run that is ready to start: a model, and examples that fit into its context.

    Attributes:
        config: the trainer's settings, where nobody gave them fit for the model's size.
        keep: where a trainer keeps its state.
        computing: gives a context in which models compute in bfloat16, and metrics are reported, if that was asked for.
        eval_steps: measure every so many steps; 0: not.
    """

    model: Any
    tokenizer: Any
    train: list[E]
    held: list[E]
    config: Any
    keep: dict[str, Any]
    computing: Callable[[], AbstractContextManager[Any]]
    eval_steps: int = 0

    @property
    def pad(self) -> int:
        """The token that fills rows up."""
        return int(self.tokenizer.pad_token_id)

    def reference(self, given: Reference | None) -> Any:
        """The reference model, where there is one, on the policy's device; it must know the same tokens."""
        if given is None:
            return None
        if given.tokenizer.get_vocab() != self.tokenizer.get_vocab():
            raise UserError(
                f"{given.name}: its tokenizer is not that of the policy; a reference must know the same tokens"
            )
        return given.model.to(next(self.model.parameters()).device)

    def watching(self, measure: Callable[[], Mapping[str, float]]) -> dict[str, Any]:
        """``keep``, with this measurement on what is held out every so many steps, where that was asked for."""

        def quietly() -> dict[str, float]:
            with evaluating(self.model):
                return {f"held_out_{name}": value for name, value in measure().items()}

        return {**self.keep, "watch": Watch(self.eval_steps, quietly) if self.eval_steps else None}

    def finish(self, **measured: Any) -> dict[str, Any]:
        """Write the model and ``result.json``, which is also returned."""
        result = {"train": len(self.train), "held_out": len(self.held), **measured}
        out = Path(self.keep["out"])
        plain = adapters.merged(self.model)
        declare_ends(plain, self.tokenizer)
        checkpoints.save(out / "model", plain, self.tokenizer)
        checkpoints.write_text_atomic(out / "result.json", json.dumps(result, indent=2) + "\n")
        return result


def read(source: Source, seed: int) -> tuple[Records, Records]:
    """The records to train on, and those held out."""
    if source.data is None:
        raise UserError("no data; give --data FILE, FOLDER or a hub name")
    load = partial(loaders.load, format=source.format, limit=source.limit, drop_identical=source.drop_identical)
    records = load(source.data, split=source.split)
    print(records)
    if source.eval_data is None:
        return records.hold_out(source.held_out, seed)
    held = load(source.eval_data)
    print(held)
    if type(held.examples[0]) is not type(records.examples[0]):
        raise UserError(f"{source.eval_data}: in format {held.format}, the data to train on in {records.format}")
    return records, held


def of_world(task: Task, given: Callable[[Task, Split], Iterable[Example]]) -> tuple[Records, Records]:
    """The same from a tiny world: what is ``given`` for each split."""
    train, test = (Records(task.name, "tiny world", tuple(given(task, split))) for split in get_args(Split))
    return train, test


def prepare(
    source: Source,
    data: tuple[Records, Records],
    texts: Callable[[Records], Iterable[Messages]],
    encoded: Callable[[Any, Records], list[E]],
    config: TrainerConfig,
    *,
    given: Mapping[str, Any],
    resume: bool,
    asks: Mapping[str, Any] | None = None,
    task: Task | None = None,
    size: Callable[[Any, Any], int] = lambda tokenizer, example: len(example),
    room: Callable[[Any], int] = lambda config: 0,
    head: Callable[[Any], Any] = lambda model: model,
) -> Prepared[E]:
    """Start the model, and tokenise what fits into its context.

    Args:
        data: for training and held out.
        texts: ``records -> messages each``: a preset's tokenizer is trained on them, if it is not a ``task`` that has the words.
        encoded: ``(tokenizer, records) -> examples`` of the trainer.
        config: the trainer's settings, of which ``given`` were chosen by somebody.
        asks: what else the run depends on, for its record.
        size: ``(tokenizer, example) -> tokens``; a completion needs ``room(config)`` more.
        head: what is trained, from a causal LM.
    """
    out, device, dtype = Path(source.out), start.device_of(source.device), start.dtype_of(source.dtype)
    if not resume and (out / "metrics.jsonl").exists():
        raise UserError(f"{out}: holds a run already; resume it, or name another folder")
    texts_of_preset = texts(data[0])
    if source.model not in tiny.PRESETS:
        model, tokenizer = named.model_by_name(source.model, dtype=dtype)
    else:
        joined = ("\n".join(message["content"] for message in text) for text in texts_of_preset)
        tokenizer = train_tokenizer(joined, source.vocab_size) if task is None else word_tokenizer(task.words)
        model = tiny.tiny_model(source.model, tokenizer, seed=config.seed, context=source.context)
    if source.chat_template is not None:
        tokenizer.chat_template = _template(source.chat_template)
    model = nn.Module.to(model, device, dtype)
    config, sources = start.fit(config, given, model, adapter=bool(source.lora_r))
    train, held = (encoded(tokenizer, part) for part in data)
    fits = _fits(source, model, [size(tokenizer, example) for example in train + held], room(config))
    train, held = ([e for e in part if next(fits)] for part in (train, held))
    depends = {
        "data": {"train": start.digest(data[0].examples), "held out": start.digest(data[1].examples)},
        "tokenizer": start.digest([tokenizer.get_vocab(), tokenizer.chat_template]),
        "model": start.model_digest(model),
        "adapter": [source.lora_r, source.lora_alpha, source.lora_dropout] if source.lora_r else None,
        "numbers": [source.dtype, source.bf16],
        **(asks or {}),
    }
    model = head(model)
    print(start.first_line(source.model, model, ends_of(tokenizer, model), config, sources))
    if source.lora_r:
        r, alpha, dropout = source.lora_r, source.lora_alpha, source.lora_dropout
        model = adapters.add_lora(model, lora_r=r, lora_alpha=alpha, lora_dropout=dropout, seed=config.seed)
    noted = {"given": dict(given), "source": dataclasses.asdict(source), "versions": start.versions()}
    keep = {"out": source.out, "tokenizer": tokenizer, "resume": resume, "origin": Origin(depends, noted)}
    halved = device.type == "cuda" if source.bf16 is None else source.bf16
    # Without a cache: weights that were cast once would stay as they were before the first step.
    computing = partial(
        _computing, source, partial(torch.autocast, device.type, torch.bfloat16, enabled=halved, cache_enabled=False)
    )
    return Prepared(model, tokenizer, train, held, config, keep, computing, source.eval_steps)


@contextmanager
def _computing(source: Source, autocast: Callable[[], AbstractContextManager[Any]]) -> Iterator[None]:
    with live.reporting(source.report_to, Path(source.out)), autocast():
        yield


def _template(path: str) -> str:
    """The chat template in a file."""
    file = Path(path).expanduser()
    if not file.is_file():
        raise UserError(f"chat_template = {path!r}: no such file; expected one with a Jinja template")
    try:
        return file.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise UserError(f"chat_template = {path!r}: not UTF-8 text") from None


def _fits(source: Source, model: Any, lengths: list[int], room: int) -> Iterator[bool]:
    """Which examples leave ``room`` tokens in the context; an error, or a printed count, if some do not."""
    context = context_length(model)
    fits = [context is None or n + room <= context for n in lengths]
    where, long = source.data or "the task", fits.count(False)
    if long and (long == len(fits) or not source.drop_long):
        worst = max(range(len(lengths)), key=lengths.__getitem__)
        needed = f"{lengths[worst]} tokens" + (f" and {room} for the completion" if room else "")
        raise UserError(
            f"{where}: example {worst + 1} has {needed}, the model reads {context}: raise --context, use another model, or "
            f"leave out the {long} long examples with --drop-long true"
        )
    if long:
        print(f"{where}: left out {long} of {len(fits)} examples longer than {context} tokens")
    return iter(fits)


def answer(tokenizer: Any, prompt: Messages, reply: Messages) -> Tokens:
    try:
        return encode(tokenizer, [*prompt, *reply], first_turn=len(prompt))
    except UserError as problem:
        first = " ".join((prompt or reply)[0]["content"].split())
        raise UserError(f"the conversation that begins {first[:60]!r}: {problem}") from problem


def conversations(tokenizer: Any, records: Records) -> list[Tokens]:
    return [answer(tokenizer, c.messages[: c.context], c.messages[c.context :]) for c in records.conversations()]


def pairs(tokenizer: Any, records: Records) -> list[Compared]:
    return [
        pair(answer(tokenizer, c.prompt, c.chosen), answer(tokenizer, c.prompt, c.rejected), c.margin, c.num_ranked)
        for c in records.comparisons()
    ]


# -- supervised fine-tuning --------------------------------------------------------------------------------------


def run_sft(
    source: SFTSource, config: SFTConfig, *, resume: bool = False, given: Mapping[str, Any] = NOTHING
) -> dict[str, Any]:
    """Fine-tune on conversations; ``given`` names the settings that somebody chose. Returns held-out nats per token before and after, also written to ``result.json``."""
    task = None if source.task is None else tasks.get(source.task)
    shown = partial(_demonstrations, count=source.demonstrations, seed=config.seed)
    run = prepare(
        source,
        read(source, config.seed) if task is None else of_world(task, shown),
        lambda records: (c.messages for c in records.conversations()),
        conversations,
        config,
        given=given,
        resume=resume,
        task=task,
    )
    with run.computing():
        loss = partial(mean_nll, run.model, run.held, pad_token_id=run.pad)
        before, keep = loss(), run.watching(lambda: {"loss": loss()})
        train_sft(run.model, run.train, run.config, pad_token_id=run.pad, **keep)
        after = loss()
    print(f"held-out loss on {len(run.held)} conversations: {before:.3f} -> {after:.3f} nats per token")
    return run.finish(held_out_loss_before=before, held_out_loss=after)


def _demonstrations(task: Task, split: Split, count: int, seed: int) -> Iterator[Conversation]:
    """So many demonstrations on training prompts, or a tenth of that on others."""
    prompts, rng = task.prompts(split), numpy_generator("demonstrations", split, seed)
    for i in range(count if split == "train" else max(1, count // 10)):
        prompt = prompts[i % len(prompts)]
        yield Conversation(conversation(prompt, task.demonstration(prompt, rng)))


# -- learning from given preferences -----------------------------------------------------------------------------


def run_offline(
    source: OfflineSource,
    config: OfflineConfig,
    recipe: Preference,
    *,
    resume: bool = False,
    given: Mapping[str, Any] = NOTHING,
) -> dict[str, Any]:
    """Learn from comparisons, labels or rankings. Returns the held-out metrics."""
    recipe.try_out()
    encoded = lambda tokenizer, records: _compared(tokenizer, records, recipe.needs.record)
    data = read(source, config.seed)
    reference = Reference.load(source.ref_model)
    asks = {"reference": _digest(reference)}
    texts = replies_of(lambda records: _examples(records, recipe.needs.record))
    run = prepare(source, data, texts, encoded, config, given=given, resume=resume, asks=asks)
    ref_model = run.reference(reference)
    held = HeldOut(run.held, recipe, ref_model or adapters.reference_of(run.model), pad_token_id=run.pad)
    print(describe_preference(recipe))
    with run.computing():
        history = train_offline(
            run.model, run.train, recipe, run.config, pad_token_id=run.pad, ref_model=ref_model,
            **run.watching(lambda: held.measure(run.model)),
        )  # fmt: skip
        metrics = held.measure(run.model)
    print(f"held-out on {len(held)} examples: " + ", ".join(f"{k} {v:.3f}" for k, v in metrics.items()))
    return run.finish(held_out=len(held), steps=len(history), **metrics)


def replies(records: Records) -> Iterator[Messages]:
    """Every reply with its prompt, whether it is a good one or not."""
    for example in records.examples:
        match example:
            case Comparison(prompt, chosen, rejected):
                yield from ([*prompt, *chosen], [*prompt, *rejected])
            case Judgement(prompt, completion):
                yield [*prompt, *completion]
            case SteppedReply(prompt, steps):
                yield [*prompt, stepwise(steps)]
            case Ranking(prompt, tiers):
                yield from ([*prompt, *reply] for tier in tiers for reply in tier)


def replies_of(needed: Callable[[Records], object]) -> Callable[[Records], Iterator[Messages]]:
    """:func:`replies`, of records that have what is ``needed``: what they lack is said before a tokenizer is trained on nothing."""

    def texts(records: Records) -> Iterator[Messages]:
        needed(records)
        return replies(records)

    return texts


def _kind_for(records: Records, kind: type[Any]) -> type[Any]:
    """What comes closest to what a loss of this kind compares: single replies stay single."""
    return UnpairedLogps if any(isinstance(example, Judgement) for example in records.examples) else kind


def _examples(records: Records, kind: type[Any]) -> object:
    """The records as what a loss of this kind compares; an error if they cannot be that."""
    given: dict[type[Any], Callable[[], object]] = {UnpairedLogps: records.judgements, ListLogps: records.rankings}
    return given.get(_kind_for(records, kind), records.comparisons)()


def _compared(tokenizer: Any, records: Records, kind: type[Any]) -> list[Compared]:
    """The records as the examples that come closest to what a loss of this kind compares."""
    kind = _kind_for(records, kind)
    if kind is UnpairedLogps:
        return [labelled(answer(tokenizer, j.prompt, j.completion), j.desirable) for j in records.judgements()]
    if kind is ListLogps:
        return [
            ranked([answer(tokenizer, r.prompt, reply) for reply in r.strict()], r.scores) for r in records.rankings()
        ]
    return pairs(tokenizer, records)


# -- from graded replies of its own ------------------------------------------------------------------------------


@dataclass(frozen=True)
class OwnReplies:
    """Problems that are ready to be answered and graded."""

    run: Prepared[Problem]
    reward: Reward

    @classmethod
    def of(
        cls, source: GradedSource, config: SamplingConfig, *, resume: bool, given: Mapping[str, Any], **asks: Any
    ) -> OwnReplies:
        """From files or from a tiny world; ``asks``: what else the run depends on, for its record."""
        task = None if source.task is None else tasks.get(source.task)
        if task is not None:
            reward, grader = task_reward(task), task.name
        else:
            device = start.device_of(source.device)
            reward, grader = grading(
                source.grader, source.reward_model, seconds=source.grader_seconds, device=device, combine=source.combine
            )
        run: Prepared[Problem] = prepare(
            source,
            read(source, config.seed) if task is None else of_world(task, task_problems),
            lambda records: (p.prompt for p in records.problems()),
            lambda tokenizer, records: records.problems(),
            config,
            given=given,
            resume=resume,
            asks={"grader": grader, **asks},
            task=task,
            size=lambda tokenizer, problem: len(encode_prompt(tokenizer, problem.prompt)),
            room=lambda config: config.max_completion_length,
        )
        return cls(run, reward)

    def trained(self, train: Callable[..., Any]) -> dict[str, Any]:
        """Measure, ``train(model, problems, reward, config, **run)``, measure again; returns what was found."""
        run, reward = self.run, self.reward
        config, held = run.config, run.held[:256]

        def score() -> Evaluation:
            sampling = config.sampling()
            return evaluate(run.model, held, reward, tokenizer=run.tokenizer, sampling=sampling, seed=config.seed)

        with run.computing():
            before = score()
            train(run.model, run.train, reward, config, **run.watching(lambda: {"reward": score().reward.mean}))
            after = score()
        print(f"held-out reward on {len(held)} prompts: {before.reward.mean:.3f} -> {after.reward.mean:.3f}")
        lost = {"held_out_frac_invalid_before": before.frac_invalid, "held_out_frac_invalid": after.frac_invalid}
        if any(lost.values()):
            print("left out, as they could not be graded: {:.1%} -> {:.1%} of the replies".format(*lost.values()))
        rewards = {"held_out_reward_before": before.reward.mean, "held_out_reward": after.reward.mean}
        return run.finish(held_out=len(held), **rewards, **lost)


def run_online(
    source: OnlineSource,
    config: OnlineConfig,
    recipe: recipes.Recipe,
    *,
    resume: bool = False,
    given: Mapping[str, Any] = NOTHING,
) -> dict[str, Any]:
    """Improve a policy on a task or on problems with a grader. Returns the held-out reward before and after."""
    for_run(recipe, config)  # an error comes before anything is loaded
    reference = Reference.load(source.ref_model)
    texts = loaders.load(source.ptx_data) if source.ptx_data else None
    likely = None if texts is None else start.digest(texts.examples)
    asked = OwnReplies.of(source, config, resume=resume, given=given, reference=_digest(reference), texts=likely)
    run = asked.run
    recipe = for_run(recipe, run.config)
    print(recipes.describe(recipe))

    def train(model: Any, problems: list[Problem], reward: Reward, config: OnlineConfig, **keep: Any) -> None:
        pretraining = None if texts is None else conversations(run.tokenizer, texts)
        more = {"ref_model": run.reference(reference), "pretraining": pretraining}
        train_online(model, problems, reward, recipe, config, **more, **keep)

    return asked.trained(train)


def run_rejection(
    source: GradedSource, config: RejectionConfig, *, resume: bool = False, given: Mapping[str, Any] = NOTHING
) -> dict[str, Any]:
    """Sample, keep the best, imitate them, round after round. Returns the held-out reward before and after."""
    return OwnReplies.of(source, config, resume=resume, given=given).trained(train_rejection)


def grading(
    grader: str | None, reward_model: str | None, *, seconds: float, device: torch.device, combine: str = "mean"
) -> tuple[Reward, str]:
    """What grades, by the name of a grader, a function in a file, or the folders of reward models; and what tells it from others.

    Raises:
        UserError: neither of the two or both, or one that is not there.
    """
    if (grader is None) == (reward_model is None):
        raise UserError(
            "give either --grader NAME, to compare with the references (or FILE.py:FUNCTION, to grade by your own), or "
            "--reward-model FOLDER"
        )
    if combine not in COMBINATIONS:
        raise unknown("combine", combine[:80], COMBINATIONS)
    if combine != "mean" and "," not in (reward_model or ""):
        raise UserError(f"combine = {combine!r} with less than two reward models; expected --reward-model A,B")
    if reward_model is not None:
        folders = [named.model_folder(Path(name)) for name in reward_model.split(",")]
        models = [RewardModel.from_pretrained(folder).to(device) for folder in folders]
        judges = [model_reward(model, load_tokenizer(folder)) for model, folder in zip(models, folders, strict=True)]
        told = " and ".join(f"reward model {start.model_digest(model)}" for model in models)
        if len(judges) == 1:
            return judges[0], told
        return combined_reward(judges, COMBINATIONS[combine]), f"{combine} of {told}"
    assert grader is not None
    if own.is_named(grader):
        file, function = own.function(grader)
        name = getattr(function, "__name__", type(function).__name__)
        return own.own_reward(grader, seconds=seconds), f"{name} in a file with digest {start.file_digest(file)}"
    return reference_reward(graders.get(grader)), grader
