"""A run as a folder for another engine: model, data, grader, a script, and what is the same and what is not, in words."""

from __future__ import annotations

import dataclasses
import json
import shutil
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from minirlhf.core.calling import context_length
from minirlhf.core.errors import UserError
from minirlhf.data import tasks
from minirlhf.data.chat import declare_ends, encode, encode_prompt, is_marked
from minirlhf.data.loaders import Records
from minirlhf.data.records import Comparison, Conversation, Problem
from minirlhf.feedback import custom_rewards
from minirlhf.feedback.rewards import task_problems
from minirlhf.models import adapters, checkpoints, tiny
from minirlhf.models.classifiers import as_classifier, save_adapter
from minirlhf.models.heads import HEAD_WEIGHTS, RewardModel
from minirlhf.models.loading import load_folder
from minirlhf.models.packed import row_length
from minirlhf.models.tokenizers import load_tokenizer
from minirlhf.recipes import Recipe
from minirlhf.recipes.binding import name_of
from minirlhf.recipes.offline import PreferenceRecipe
from minirlhf.stages import grading as graded_by
from minirlhf.stages import named, prepared, sources, start
from minirlhf.stages.bridge import grader as grading
from minirlhf.stages.bridge import openrlhf, trl, verl
from minirlhf.stages.bridge.mapped import ExportPlan, NoCounterpartError, RunSpec, refuse_settings
from minirlhf.stages.bridge.scripts import SCRIPTS, Data
from minirlhf.stages.examples import of_last_reply
from minirlhf.stages.sources import Source
from minirlhf.trainers.sft import SFTConfig

Row = Conversation | Comparison | Problem

#: The file of a grader of one's own, over there: whatever it was called, it takes no other file's name.
OWN = "own_grader.py"

#: What a run anywhere else does otherwise, whatever the recipe.
ELSEWHERE = ("random numbers: other prompts meet in a batch, and other replies are sampled",)
#: And on the two engines that sample with vLLM and that we never started.
NOT_STARTED = (
    "it was never started by us: the names of its options are held to the version above, its equations were compared on shared tensors",
    "weights are kept in float32 and computed with in bfloat16",
    "vLLM samples the replies, and its log-probabilities differ a little from those of the model that learns",
    "k3 is cut at 10 nats a token, and ratios at e^20",
    "a reply that could not be graded earns 0; here it is left out of its group",
    "the grader is asked in threads, where its time limit does not hold",
)


@dataclass(frozen=True)
class Engine:
    """Where a run can go.

    Attributes:
        title, version: of the engine that the maps were made for.
        online, offline: the maps of recipes.
        others: the maps of the trainers without a recipe.
        always: what differs whatever the recipe is, a sentence each.
        rows: ``(folder, records)``: writes the data in the engine's format.
        grader: the function by which the engine asks the run's grader.
    """

    title: str
    version: str
    online: Callable[..., ExportPlan]
    offline: Callable[..., ExportPlan]
    others: Mapping[str, Callable[..., ExportPlan]]
    always: tuple[str, ...]
    rows: Callable[[Path, list[Row]], None]
    grader: str

    def mapped(self, told: RunSpec) -> ExportPlan:
        """What the run is in the engine's words.

        Raises:
            NoCounterpartError: a part of it has no counterpart.
        """
        dtype = getattr(told.source, "dtype", "float32")
        refuse_settings(self.title, told.name, dtype="" if dtype == "float32" else dtype)
        match told.recipe:
            case Recipe():
                return self.online(told.recipe, staleness=getattr(told.config, "staleness", 0))
            case PreferenceRecipe():
                return self.offline(told.recipe)
        if told.trainer not in self.others:
            raise NoCounterpartError(self.title, told.trainer, "its loss", argument="trainer", value=told.trainer)
        if getattr(told.source, "pooling", "last") != "last":
            raise NoCounterpartError(
                self.title, told.trainer, "a mean over the tokens (pooling)", argument="pooling", value="mean"
            )
        return self.others[told.trainer](told)


def export(
    run: Path, told: RunSpec, out: Path, *, to: str = "trl", accept_differences: bool = False, model: str = "start"
) -> str:
    """Write the folder ``out``; returns ``DIFFERENCES.md``.

    Args:
        to: one of :data:`ENGINES`.
        model: ``start``, what the run began with (the reference of its KL term), ``end``, what came out of it, or ``adapter``, the
            first with what a LoRA run learned beside it.

    Raises:
        UserError: the recipe has no counterpart, differs in a way that was not accepted, the folder exists, or something that the
            run was given is gone.
    """
    engine = ENGINES[to]
    found = engine.mapped(told)
    anchor = _anchor(told, found, to, model)
    if anchor is None:
        found = dataclasses.replace(found, differs=(*found.differs, MOVED))
    if found.differs and not accept_differences:
        listed = "; ".join(found.differs)
        raise UserError(
            f"{told.name}: not the same in {engine.title}: {listed} (--accept-differences exports it all the same)",
            argument="--accept-differences",
            value=found.differs,
        )
    if out.exists():
        raise UserError(
            f"{out}: exists already; --out names a new folder", argument="--out", value=str(out), problem="exists"
        )
    if model == "adapter" and not told.source.lora_r:
        raise UserError(
            f"{run}: has no adapter (it was trained without --lora-r); take --model end",
            argument="--model",
            value=model,
        )
    policy, tokenizer = _model(run, told, model)
    reference = _model(run, told, anchor)[0] if anchor else None
    records = _fitting(told, _records(told), policy, tokenizer)
    file, write = SCRIPTS[to]
    measured = _measured(records, tokenizer, adapter=model == "adapter", reference=bool(reference))
    started = write(told, found, dataclasses.replace(measured, row=_row_of(told, policy)))
    partial = out.with_name(f".{out.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    try:
        with checkpoints.quietly():
            for name, kept in (("model", policy), ("reference", reference)):
                if kept is not None:
                    kept.save_pretrained(partial / name)
                    tokenizer.save_pretrained(partial / name)
        if model == "adapter":
            _adapter(run, policy, partial / "adapter")
        engine.rows(partial, records)
        if isinstance(told.recipe, Recipe):
            (partial / "grader.py").write_text(_grader(told, partial, engine.grader), encoding="utf-8")
        (partial / file).write_text(started, encoding="utf-8")
        text = differences(told, found, engine, model)
        (partial / "DIFFERENCES.md").write_text(text, encoding="utf-8")
        partial.rename(out)
    except BaseException:
        shutil.rmtree(partial, ignore_errors=True)
        raise
    return text


def differences(told: RunSpec, found: ExportPlan, engine: Engine, model: str) -> str:
    """What is the same over there, and what is not."""
    states = {"start": " as the run began", "end": " as the run ended", "adapter": " as the run began, and its adapter"}
    kept = ["data, in the order of the file", "model weights and tokenizer" + states[model]]
    if isinstance(told.recipe, Recipe):
        kept += ["advantage, objective, aggregation and KL term of a step, on the same completions", "grader"]
    else:
        kept += ["the loss of a step, on the same rows"]
    what = {
        "The same": tuple(kept),
        "Not the same": found.differs or ("nothing in an optimizer step",),
        "Only so long": found.notes,
        "Always different": ELSEWHERE + engine.always,
    }
    first = f"# {told.name}, in {engine.title} {engine.version}\n"
    return first + "".join(
        f"\n## {title}\n\n" + "".join(f"* {item}\n" for item in items) for title, items in what.items() if items
    )


# -- data --------------------------------------------------------------------------------------------------------


def _lines(folder: Path, records: list[Row]) -> None:
    """``data.jsonl``, with the fields of TRL, which OpenRLHF can be told."""
    row = _conversation if _several(records) else _row
    lines = (json.dumps(row(record), ensure_ascii=False) for record in records)
    (folder / "data.jsonl").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


def _parquet(folder: Path, records: list[Row]) -> None:
    """``data.parquet``, with the fields of verl. Its grader is told the whole problem, as text: a column has one type."""
    from datasets import Dataset

    rows = []
    for i, record in enumerate(records):
        row = _row(record)
        if isinstance(record, Problem):
            rows.append(
                {
                    "data_source": "minirlhf",
                    "prompt": row["prompt"],
                    "ability": "minirlhf",
                    "reward_model": {"style": "rule", "ground_truth": row["reference"] or ""},
                    "extra_info": {"index": i, "problem": json.dumps(row, ensure_ascii=False)},
                }
            )
        else:
            rows.append({"messages": [*row["prompt"], *row["completion"]]})
    Dataset.from_list(rows).to_parquet(str(folder / "data.parquet"))


ENGINES: dict[str, Engine] = {
    "trl": Engine(
        trl.ENGINE, trl.VERSION, trl.online, trl.offline, {"sft": trl.sft, "reward": trl.reward},
        (
            "warm-up begins at learning rate 0 there, at one step's share here",
            "weight decay leaves out norms and biases there",
            "a learning-rate schedule counts optimizer steps there, and rollouts here",
        ), _lines, grading.TRL,
    ),
    "verl": Engine(
        verl.ENGINE, verl.VERSION, verl.online, verl.offline, {"sft": verl.sft, "reward": verl.reward},
        (*NOT_STARTED, "weight decay is for norms and biases too, like here"), _parquet, grading.VERL,
    ),
    "openrlhf": Engine(
        openrlhf.ENGINE, openrlhf.VERSION, openrlhf.online, openrlhf.offline, {"sft": openrlhf.sft, "reward": openrlhf.reward},
        (*NOT_STARTED, "its runs are counted in passes over the data: the script asks for at least as many steps"),
        _lines, grading.OPENRLHF,
    ),
}  # fmt: skip


# -- inside ------------------------------------------------------------------------------------------------------


#: What is said of an engine that cannot be given the reference of the run.
MOVED = "the reference is the exported model; here it was another one"


def _anchor(told: RunSpec, found: ExportPlan, to: str, which: str) -> str | None:
    """Which model the reference is (see :func:`_model`): "" for the exported one, None where it would have to be another one and cannot.

    Raises:
        NoCounterpartError: the run was given one, and the engine cannot be.
    """
    named_one = getattr(told.source, "ref_model", None) is not None
    if not told.compares or not (named_one or which == "end"):
        return ""
    if not told.source.lora_r and (to == "trl" or found.trainer == openrlhf.TRAINERS["dpo"]):
        return "reference" if named_one else "start"
    if named_one:
        raise NoCounterpartError(
            ENGINES[to].title,
            told.name,
            "a reference that is not the model to begin with (ref_model)",
            argument="ref_model",
        )
    return None


def _model(run: Path, told: RunSpec, which: str) -> tuple[Any, Any]:
    """The model to go on from (or that of ``--ref-model``, for "reference"), and its tokenizer; it says itself what ends a reply.

    Raises:
        UserError: the model that the run began with is not what it was.
    """
    source, seed, folder = told.source, told.config.seed, named.model_folder(run)
    tokenizer = load_tokenizer(folder)
    if which == "end" and told.trainer == "reward":
        return as_classifier(RewardModel.from_pretrained(folder), tokenizer)[0], tokenizer
    if which == "end":
        model = load_folder(folder)[0]
    elif which == "reference":
        model = named.model_by_name(source.ref_model)[0]  # type: ignore[attr-defined]
        _unchanged(told, "reference", start.model_digest(model), source.ref_model)  # type: ignore[attr-defined]
    else:
        if source.model in tiny.PRESETS:
            model = tiny.tiny_model(source.model, tokenizer, seed=seed, context=source.context)
        else:
            model = named.model_by_name(source.model)[0]
        _unchanged(told, "model", start.model_digest(model), source.model)
    if told.trainer == "reward":
        return as_classifier(RewardModel.from_causal_lm(model, seed=seed), tokenizer)[0], tokenizer
    declare_ends(model, tokenizer)
    return model, tokenizer


def _unchanged(told: RunSpec, part: str, now: Any, where: Any) -> None:
    """Refuse what is no longer what the run was given; a run of an older version did not write down what that was.

    Raises:
        UserError: naming it.
    """
    before = told.depends.get(part, now)
    if now != before:
        raise UserError(
            f"{where}: not what the run was given: its {part} was {before}, now it is {now}; expected the same, to export it",
            argument=part,
            value=now,
            expected=before,
        )


def _adapter(run: Path, base: Any, folder: Path) -> None:
    """What a LoRA run learned, as a folder of ``peft`` whose base is ``model`` beside it."""
    newest = checkpoints.step_folder(run, checkpoints.steps(run)[-1])
    if (newest / HEAD_WEIGHTS).is_file():
        save_adapter(base, newest, folder)
    else:
        adapters.copy_files(newest, folder)
    adapters.rename_base(folder, "model")


def _records(told: RunSpec) -> list[Row]:
    """What the run trained on."""
    source = told.source
    world = getattr(source, "task", None)
    if world is not None and isinstance(source, sources.OnlineSource):
        records: Iterable[Any] = task_problems(tasks.get(world), "train")
        _unchanged(told, "data", {**told.depends.get("data", {}), "train": start.digest(records)}, world)
    elif world is not None:
        raise UserError(f"{told.trainer}: demonstrations of a tiny world are made anew for every run; give --data")
    else:
        train, held = prepared.read(source, told.config.seed)
        digests = {"train": start.digest(train.examples), "held out": start.digest(held.examples)}
        _unchanged(told, "data", digests, source.data)
        kinds: dict[str, Any] = {"sft": lambda: _learned(source, train), "reward": train.comparisons}
        of_recipe = train.problems if isinstance(told.recipe, Recipe) else train.comparisons
        records = kinds.get(told.trainer, of_recipe)()
        if told.trainer == "reward" and len({record.margin is None for record in records}) == 2:
            raise UserError(f"{source.data}: some of its pairs have a margin; expected all or none, to export them")
    return list(records)


def _learned(source: Source, train: Records) -> list[Conversation]:
    """What is imitated, with no more context than is not learned."""
    found = train.conversations()
    match getattr(source, "train_on", "assistant"):
        case "last":
            return [of_last_reply(c) for c in found]
        case "all":
            return [dataclasses.replace(c, context=0) for c in found]
    return found


def _fitting(told: RunSpec, records: list[Row], model: Any, tokenizer: Any) -> list[Row]:
    """Without those that the run left out, as they are longer than what the model reads."""
    context, room = context_length(model), getattr(told.config, "max_completion_length", 0)
    if not told.source.drop_long or context is None:
        return records
    return [record for record in records if _sizes(record, tokenizer)[1] + room <= context]


def _sizes(record: Row, tokenizer: Any) -> tuple[int, int]:
    """The tokens of a prompt, and of the longest text that begins with it."""
    row = _row(record)
    before = len(encode_prompt(tokenizer, row["prompt"])) if row["prompt"] else 0
    replies = [row[name] for name in ("completion", "chosen", "rejected") if name in row]
    whole = (len(encode(tokenizer, [*row["prompt"], *reply], first_turn=len(row["prompt"]))) for reply in replies)
    return before, max([before, *whole])


def _measured(records: list[Row], tokenizer: Any, *, adapter: bool, reference: bool) -> Data:
    """What a script must know of the data."""
    prompts, whole = zip(*(_sizes(record, tokenizer) for record in records), strict=True)
    return Data(len(records), max(prompts), max(whole), adapter, reference, _several(records), is_marked(tokenizer))


def _row_of(told: RunSpec, model: Any) -> int | None:
    """Tokens of a packed row; None if rows are not packed."""
    config = told.config
    return row_length(model, config.max_length) if isinstance(config, SFTConfig) and config.packing else None


def _several(records: list[Row]) -> bool:
    """Is more than the last reply of some conversation learned, or all of one that has no prompt?"""
    found = (r for r in records if isinstance(r, Conversation))
    return any(
        len(r.messages) == 1 or sum(m["role"] == "assistant" for m in r.messages[r.context :]) > 1 for r in found
    )


def _conversation(record: Row) -> dict[str, Any]:
    """A record of which every reply is learned.

    Raises:
        UserError: its context has replies too.
    """
    assert isinstance(record, Conversation)
    if any(message["role"] == "assistant" for message in record.messages[: record.context]):
        raise UserError(
            "several replies to learn from behind a prompt in which the assistant speaks: there it would learn those, too "
            "(--train-on last or all can be exported)",
            argument="train_on",
        )
    return {"messages": record.messages}


def _row(record: Row) -> dict[str, Any]:
    """A record in TRL's fields."""
    match record:
        case Conversation(messages, context):
            before = context or len(messages) - 1
            return {"prompt": messages[:before], "completion": messages[before:]}
        case Comparison(prompt, chosen, rejected, margin):
            return {
                "prompt": prompt,
                "chosen": chosen,
                "rejected": rejected,
                **({"margin": margin} if margin is not None else {}),
            }
        case Problem(prompt, reference):
            return {"prompt": prompt, "reference": reference}


def _grader(told: RunSpec, folder: Path, asked: str) -> str:
    """``grader.py``: the run's grader, and how the engine asks it."""
    source, recipe = told.source, told.recipe
    assert isinstance(source, sources.OnlineSource) and isinstance(recipe, Recipe)
    if source.task is None:
        device = start.device_of("cpu")
        asks = graded_by.grading(
            source.grader, source.reward_model, seconds=source.grader_seconds, device=device, combine=source.combine
        )[1]
        _unchanged(told, "grader", asks, source.grader or source.reward_model)
    if source.task is not None:
        made = f"rewards.task_reward(tasks.get({source.task!r}))"
    elif source.reward_model is not None:
        if "," in source.reward_model:
            raise UserError(
                f"reward_model = {source.reward_model!r}: one reward model goes with the folder; expected one"
            )
        judge, words = RewardModel.load_with_tokenizer(named.model_folder(Path(source.reward_model)))
        checkpoints.save(folder / "reward_model", judge, words)
        made = 'rewards.model_reward(*RewardModel.load_with_tokenizer(HERE / "reward_model"))'
    elif custom_rewards.is_named(str(source.grader)):
        file, name = custom_rewards.place(str(source.grader))
        shutil.copy(file, folder / OWN)
        made = f'custom_rewards.custom_reward(f"{{HERE}}/{OWN}:{name}", seconds={source.grader_seconds})'
    else:
        made = f"rewards.reference_reward(graders.get({source.grader!r}))"
    shape = ", ".join(
        f"partial(parts.{name_of(f).partition('(')[0]}, **{getattr(f, 'keywords', {})!r})" for f in recipe.collect.shape
    )
    shaped = f"({shape},)" if shape and asked == grading.TRL else "()"  # the other two do it by an option
    return grading.GRADER.format(made=made, shape=shaped) + asked
