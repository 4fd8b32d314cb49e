"""Export a run as a folder for another engine: model, data, grader, script, and a list of the differences."""

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
from minirlhf.data.chat import assistant_spans, conversation, declare_ends, encode, encode_prompt, is_marked
from minirlhf.data.examples import of_last_completion
from minirlhf.data.loaders import Records
from minirlhf.data.messages import FOR_TEMPLATE
from minirlhf.data.records import Comparison, Conversation, Problem, UnpairedPreference
from minirlhf.data.rendering import is_verbatim
from minirlhf.equations.preference_losses import UnpairedLogps
from minirlhf.feedback import custom_rewards, graders
from minirlhf.feedback.graders.thoughts import THOUGHTS, parse_tags
from minirlhf.feedback.rewards import task_problems, with_references
from minirlhf.models import adapters, checkpoints, tiny
from minirlhf.models.classifiers import as_classifier, save_adapter
from minirlhf.models.heads import HEAD_WEIGHTS, RewardModel
from minirlhf.models.loading import load_folder
from minirlhf.models.packed import row_length
from minirlhf.models.tokenizers import load_tokenizer
from minirlhf.recipes import Recipe
from minirlhf.recipes.offline import PreferenceRecipe
from minirlhf.recipes.options import name_of
from minirlhf.stages import named
from minirlhf.trainers.sft import SFTConfig
from minirlhf_cli.export import grader as grading
from minirlhf_cli.export import openrlhf, trl, verl
from minirlhf_cli.export.mapped import ExportPlan, NoCounterpartError, RunSpec, refuse_settings
from minirlhf_cli.export.scripts import SCRIPTS, Data
from minirlhf_cli.files import grading as graded_by
from minirlhf_cli.files import prepared, sources, start
from minirlhf_cli.files.sources import Source

Row = Conversation | Comparison | Problem | UnpairedPreference

#: The file name of the user's grader in the exported folder; a fixed name cannot collide with another file.
OWN = "own_grader.py"

#: A difference of a run that kept its best checkpoint.
BEST = ("the weights of the last step are kept there, and here those that measured best (load_best_model_at_end)",)
#: Differences of a run in any other engine, for every recipe.
ELSEWHERE = (
    "random numbers: other prompts meet in a batch, and other replies are sampled, in each process by its own random numbers",
    "a batch ends with its epoch there; here it goes on with the rows of the next epoch",
)
#: Further differences of the two engines that sample with vLLM and that we never started.
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
    """An engine to which a run can be exported.

    Attributes:
        title, version: name and version of the engine for which the maps were written.
        online, offline: the maps of recipes.
        others: the maps of the trainers without a recipe.
        always: the differences for every recipe, one sentence each.
        rows: ``(folder, records)``: writes the data in the engine's format.
        grader: source code of the function through which the engine calls the run's grader.
    """

    title: str
    version: str
    online: Callable[..., ExportPlan]
    offline: Callable[..., ExportPlan]
    others: Mapping[str, Callable[..., ExportPlan]]
    always: tuple[str, ...]
    rows: Callable[[Path, list[Row]], None]
    grader: str

    def mapped(self, spec: RunSpec) -> ExportPlan:
        """Map the run to the engine's options.

        Raises:
            NoCounterpartError: a part of the run has no counterpart.
        """
        dtype = getattr(spec.source, "dtype", "float32")
        refuse_settings(self.title, spec.name, dtype="" if dtype == "float32" else dtype)
        if getattr(spec.source, "truncation_mode", None) is not None:
            raise UserError(
                f"{spec.name}: its examples were truncated, and the export writes whole rows; expected a run without "
                "--truncation-mode",
                argument="truncation_mode",
                value=spec.source.truncation_mode,
                problem="no counterpart",
            )
        match spec.recipe:
            case Recipe():
                return self.online(spec.recipe, staleness=getattr(spec.config, "staleness", 0))
            case PreferenceRecipe():
                return self.offline(spec.recipe)
        if spec.trainer not in self.others:
            raise NoCounterpartError(self.title, spec.trainer, "its loss", argument="trainer", value=spec.trainer)
        if getattr(spec.source, "pooling", "last") != "last":
            raise NoCounterpartError(
                self.title, spec.trainer, "a mean over the tokens (pooling)", argument="pooling", value="mean"
            )
        return self.others[spec.trainer](spec)


def export(
    run: Path, spec: RunSpec, out: Path, *, to: str = "trl", allow_differences: bool = False, model: str = "start"
) -> str:
    """Write the folder ``out``, and return the text of ``DIFFERENCES.md``.

    Args:
        to: one of :data:`ENGINES`.
        model: ``start``, the initial model (the reference of its KL term); ``end``, the trained model; or ``adapter``,
            the initial model with the adapter of a LoRA run beside it.

    Raises:
        UserError: the recipe has no counterpart, or differences that were not accepted; the folder exists; or an input
            of the run is missing or has changed.
    """
    engine = ENGINES[to]
    plan = engine.mapped(spec)
    reference_source = _anchor(spec, plan, to, model)
    if reference_source is None:
        plan = dataclasses.replace(plan, differs=(*plan.differs, MOVED))
    if plan.differs and not allow_differences:
        description = "; ".join(plan.differs)
        raise UserError(
            f"{spec.name}: differs in {engine.title}: {description} (use --allow-differences to export it anyway)",
            argument="--allow-differences",
            value=plan.differs,
        )
    if out.exists():
        raise UserError(
            f"{out}: exists already; expected a new folder in --out", argument="--out", value=str(out), problem="exists"
        )
    if model == "adapter" and not spec.source.lora_r:
        raise UserError(
            f"{run}: has no adapter, because it was trained without --lora-r; use --model end",
            argument="--model",
            value=model,
        )
    policy, tokenizer = _model(run, spec, model)
    reference = _model(run, spec, reference_source)[0] if reference_source else None
    records = _fitting(spec, _templated(_records(spec)), policy, tokenizer)
    file, write = SCRIPTS[to]
    data = _measured(records, tokenizer, adapter=model == "adapter", reference=bool(reference))
    if to == "trl" and (spec.trainer == "sft" or isinstance(spec.recipe, PreferenceRecipe)) and not data.several:
        _end_at_closing_token(tokenizer, spec)
    script = write(spec, plan, dataclasses.replace(data, row=_row_of(spec, policy)))
    partial = out.with_name(f".{out.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    try:
        with checkpoints.quietly():
            for name, module in (("model", policy), ("reference", reference)):
                if module is not None:
                    module.save_pretrained(partial / name)
                    tokenizer.save_pretrained(partial / name)
        if model == "adapter":
            _adapter(run, policy, partial / "adapter")
        engine.rows(partial, records)
        if isinstance(spec.recipe, Recipe):
            (partial / "grader.py").write_text(_grader(spec, partial, engine.grader), encoding="utf-8")
        (partial / file).write_text(script, encoding="utf-8")
        text = differences(spec, plan, engine, model)
        (partial / "DIFFERENCES.md").write_text(text, encoding="utf-8")
        partial.rename(out)
    except BaseException:
        shutil.rmtree(partial, ignore_errors=True)
        raise
    return text


def differences(spec: RunSpec, plan: ExportPlan, engine: Engine, model: str) -> str:
    """Return the text of ``DIFFERENCES.md``: what is the same in the engine, and what differs."""
    states = {"start": " as the run began", "end": " as the run ended", "adapter": " as the run began, and its adapter"}
    same = ["data, in the order of the file", "model weights and tokenizer" + states[model]]
    if isinstance(spec.recipe, Recipe):
        same += ["advantage, objective, aggregation and KL term of a step, on the same completions", "grader"]
    else:
        same += ["the loss of a step, on the same rows"]
    sections = {
        "The same": tuple(same),
        "Not the same": plan.differs or ("nothing in an optimizer step",),
        "Only so long": plan.notes,
        "Always different": ELSEWHERE + engine.always + (BEST if spec.source.load_best_model_at_end else ()),
    }
    heading = f"# {spec.name}, in {engine.title} {engine.version}\n"
    return heading + "".join(
        f"\n## {title}\n\n" + "".join(f"* {item}\n" for item in items) for title, items in sections.items() if items
    )


# -- data --------------------------------------------------------------------------------------------------------


def _lines(folder: Path, records: list[Row]) -> None:
    """Write ``data.jsonl`` with the fields of TRL; OpenRLHF gets their names as options."""
    row = _conversation if _several(records) else _row
    lines = (json.dumps(_with_columns(row(record)), ensure_ascii=False) for record in records)
    (folder / "data.jsonl").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


def _parquet(folder: Path, records: list[Row]) -> None:
    """Write ``data.parquet`` with the fields of verl.

    The grader gets the whole problem as JSON text, because a column has one type.
    """
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


#: The difference for an engine that cannot take the reference model of the run.
MOVED = "the reference is the exported model; here it was another one"


def _anchor(spec: RunSpec, plan: ExportPlan, to: str, which: str) -> str | None:
    """Return which model is the reference (see :func:`_model`).

    "" is the exported model. None: it would have to be another model, which the engine cannot take.

    Raises:
        NoCounterpartError: the run has a ``ref_model``, and the engine cannot take one.
    """
    has_ref_model = getattr(spec.source, "ref_model", None) is not None
    if not spec.compares or not (has_ref_model or which == "end"):
        return ""
    if not spec.source.lora_r and (to == "trl" or plan.trainer == openrlhf.TRAINERS["dpo"]):
        return "reference" if has_ref_model else "start"
    if has_ref_model:
        raise NoCounterpartError(
            ENGINES[to].title,
            spec.name,
            "a reference that is not the model to begin with (ref_model)",
            argument="ref_model",
        )
    return None


def _model(run: Path, spec: RunSpec, which: str) -> tuple[Any, Any]:
    """Return the model to export and its tokenizer; for "reference" the model of ``--ref-model``.

    The model's configuration declares its end tokens.

    Raises:
        UserError: the initial model has changed since the run.
    """
    source, seed, folder = spec.source, spec.config.seed, named.model_folder(run)
    tokenizer = load_tokenizer(folder)
    if which == "end" and spec.trainer == "reward":
        return as_classifier(RewardModel.from_pretrained(folder), tokenizer)[0], tokenizer
    if which == "end":
        model = load_folder(folder)[0]
    elif which == "reference":
        model = named.model_by_name(source.ref_model)[0]  # type: ignore[attr-defined]
        _unchanged(spec, "reference", start.model_digest(model), source.ref_model)  # type: ignore[attr-defined]
    else:
        if source.model in tiny.PRESETS:
            model = tiny.tiny_model(source.model, tokenizer, seed=seed, context=source.context)
        else:
            model = named.model_by_name(source.model)[0]
        _unchanged(spec, "model", start.model_digest(model), source.model)
    if spec.trainer == "reward":
        return as_classifier(RewardModel.from_causal_lm(model, seed=seed), tokenizer)[0], tokenizer
    declare_ends(model, tokenizer)
    return model, tokenizer


def _unchanged(spec: RunSpec, part: str, actual: Any, location: Any) -> None:
    """Refuse an input that changed since the run; runs of older versions have no digest, so nothing is checked.

    Raises:
        UserError: names the input.
    """
    expected = spec.depends.get(part, actual)
    if actual != expected:
        raise UserError(
            f"{location}: changed since the run: the digest of its {part} was {expected}, now it is {actual}; the "
            "export needs the same input",
            argument=part,
            value=actual,
            expected=expected,
        )


def _adapter(run: Path, base: Any, folder: Path) -> None:
    """Write the adapter of a LoRA run as a ``peft`` folder, with the ``model`` beside it as its base."""
    checkpoint = checkpoints.step_folder(run, checkpoints.steps(run)[-1])
    if (checkpoint / HEAD_WEIGHTS).is_file():
        save_adapter(base, checkpoint, folder)
    else:
        adapters.copy_files(checkpoint, folder)
    adapters.rename_base(folder, "model")


def _records(spec: RunSpec) -> list[Row]:
    """Return the training records of the run."""
    source = spec.source
    task_name = getattr(source, "task", None)
    if task_name is not None and isinstance(source, sources.OnlineSource):
        task = tasks.get(task_name)
        records: Iterable[Any] = task_problems(task, "train")
        if source.grader is not None or source.reward_model is not None:
            records = with_references(task, list(records))
        _unchanged(spec, "data", {**spec.depends.get("data", {}), "train": start.digest(records)}, task_name)
    elif task_name is not None:
        raise UserError(f"{spec.trainer}: demonstrations of a toy task are generated anew for every run; give --data")
    else:
        train, held_out = prepared.read(source, spec.config.seed)
        digests = {"train": start.digest(train.examples), "held out": start.digest(held_out.examples)}
        _unchanged(spec, "data", digests, source.data)
        readers: dict[str, Any] = {"sft": lambda: _learned(source, train), "reward": train.comparisons}
        single = isinstance(spec.recipe, PreferenceRecipe) and spec.recipe.needs.record is UnpairedLogps
        default = (
            train.problems if isinstance(spec.recipe, Recipe) else train.judgements if single else train.comparisons
        )
        records = readers.get(spec.trainer, default)()
        if spec.trainer == "reward" and len({record.margin is None for record in records}) == 2:
            raise UserError(
                f"{source.data}: only some pairs have a margin; the export needs a margin in all pairs or in none"
            )
    return list(records)


def _templated(records: list[Row]) -> list[Row]:
    """Return the records, which the exported data hold as messages.

    Raises:
        UserError: one is a plain text, around which the engine would write a chat template.
    """
    if any(isinstance(record, Conversation) and is_verbatim(record.messages) for record in records):
        raise UserError(
            "rows in the format text are trained without a chat template, and the export writes messages; expected rows "
            "with messages, or the engine's own reading of the same file (TRL reads the column text)",
            argument="format",
            value="text",
            problem="no counterpart",
        )
    return records


def _learned(source: Source, train: Records) -> list[Conversation]:
    """Return the conversations with ``context`` set such that exactly the learned turns follow it."""
    conversations = train.conversations()
    match getattr(source, "train_on", "assistant"):
        case "last":
            return [of_last_completion(c) for c in conversations]
        case "all":
            return [dataclasses.replace(c, context=0) for c in conversations]
    return conversations


def _fitting(spec: RunSpec, records: list[Row], model: Any, tokenizer: Any) -> list[Row]:
    """Return the records without those that the run left out because they exceed the model's context."""
    room = getattr(spec.config, "max_completion_length", 0)
    limit = context_length(model) if room else prepared.limit_of(spec.source, model)
    if not spec.source.drop_long or limit is None:
        return records
    return [record for record in records if _sizes(record, tokenizer)[1] + room <= limit]


def _sizes(record: Row, tokenizer: Any) -> tuple[int, int]:
    """Return the number of tokens of the prompt, and of the prompt with its longest completion."""
    row = _row(record)
    prompt_length = len(encode_prompt(tokenizer, row["prompt"])) if row["prompt"] else 0
    completions = [row[name] for name in ("completion", "chosen", "rejected") if name in row]
    lengths = (
        len(encode(tokenizer, [*row["prompt"], *completion], first_turn=len(row["prompt"])))
        for completion in completions
    )
    return prompt_length, max([prompt_length, *lengths])


def _measured(records: list[Row], tokenizer: Any, *, adapter: bool, reference: bool) -> Data:
    """Return the properties of the data that a script needs."""
    prompts, totals = zip(*(_sizes(record, tokenizer) for record in records), strict=True)
    return Data(len(records), max(prompts), max(totals), adapter, reference, _several(records), is_marked(tokenizer))


#: A template that writes no white space behind the token that closes the last turn.
ENDING = "{%% set text %%}%s{%% endset %%}{{ text if add_generation_prompt else text.rstrip() }}"


def _end_at_closing_token(tokenizer: Any, spec: RunSpec) -> None:
    """Change the exported chat template such that a completion ends with its closing token, as it does here.

    Most templates write a newline behind that token. TRL takes all text behind the prompt as the completion, so it would
    learn and score the newline too.
    """
    if getattr(spec.source, "train_on", "") == "all" or not isinstance(tokenizer.chat_template, str):
        return
    text, [(_, end)] = assistant_spans(tokenizer, conversation("qzx question", "qzx answer"))
    if text[end:] and not text[end:].strip():
        tokenizer.chat_template = ENDING % tokenizer.chat_template


def _row_of(spec: RunSpec, model: Any) -> int | None:
    """Return the tokens of a packed row; None if rows are not packed."""
    config = spec.config
    return row_length(model, config.max_length) if isinstance(config, SFTConfig) and config.packing else None


def _several(records: list[Row]) -> bool:
    """Return whether some conversation has several learned turns, or no prompt."""
    conversations = (c for c in records if isinstance(c, Conversation))
    return any(
        len(c.messages) == 1 or sum(m["role"] == "assistant" for m in c.messages[c.context :]) > 1
        for c in conversations
    )


def _conversation(record: Row) -> dict[str, Any]:
    """Return a record in which every assistant turn is learned.

    Raises:
        UserError: its context has assistant turns too.
    """
    assert isinstance(record, Conversation)
    if any(message["role"] == "assistant" for message in record.messages[: record.context]):
        raise UserError(
            "a conversation has several turns to learn after a context with assistant turns; the engine would "
            "learn the context, too (--train-on last or all can be exported)",
            argument="train_on",
        )
    return {"messages": record.messages}


def _row(record: Row) -> dict[str, Any]:
    """Return a record in TRL's fields."""
    match record:
        case Conversation(messages, context):
            turns = context or len(messages) - 1
            return {"prompt": messages[:turns], "completion": messages[turns:]}
        case Comparison(prompt, chosen, rejected, margin):
            return {
                "prompt": prompt,
                "chosen": chosen,
                "rejected": rejected,
                **({"margin": margin} if margin is not None else {}),
            }
        case UnpairedPreference(prompt, completion, desirable):
            return {"prompt": prompt, "completion": completion, "label": desirable}
        case Problem(alternatives=(_, *_)):
            raise UserError(
                "a row has several right answers, of which the export could write only one",
                argument="answer",
                problem="several",
            )
        case Problem(prompt, reference):
            return {"prompt": prompt, "reference": reference}


def _with_columns(row: dict[str, Any]) -> dict[str, Any]:
    """Return the row with what its template gets (tools, chat_template_kwargs) in columns, where other libraries look."""
    field = "messages" if "messages" in row else "prompt"
    columns = {key: message[key] for message in row[field] for key in FOR_TEMPLATE if key in message}
    if not columns:
        return row
    plain = [{key: value for key, value in message.items() if key not in FOR_TEMPLATE} for message in row[field]]
    return {**row, field: plain, **columns}


def _named_reward(name: str, thought_tags: str) -> str:
    """Return the code of a grader by name."""
    tags = parse_tags(thought_tags)
    more = "" if tags == THOUGHTS else f", {tags!r}"
    return f"rewards.reference_reward(graders.get({name!r}{more}){more})"


def _own_reward(source: sources.OnlineSource, folder: Path) -> str:
    """Return the code of a user-defined grader, or of a weighted sum with one, and copy its files."""
    expression = str(source.grader)
    is_sum = "+" in expression or "*" in expression
    copies: dict[Path, str] = {}
    parts = []
    for term, weight in graders.terms(expression) if is_sum else [(expression, 1.0)]:
        if custom_rewards.is_named(term):
            file, name = custom_rewards.parse_location(term)
            copy = copies.setdefault(file, OWN if not copies else f"more_{len(copies)}_{OWN}")
            code = f'custom_rewards.custom_reward(f"{{HERE}}/{copy}:{name}", seconds={source.grader_timeout})'
        else:
            code = _named_reward(term, source.thought_tags)
        parts.append((term.rpartition(":")[2], code, weight))
    for file, copy in copies.items():
        shutil.copy(file, folder / copy)
    if not is_sum:
        return parts[0][1]
    each = ", ".join(f"rewards.Part({name!r}, {code}, {weight})" for name, code, weight in parts)
    return f"rewards.WeightedReward(({each},))"


def _grader(spec: RunSpec, folder: Path, engine_code: str) -> str:
    """Return ``grader.py``: the run's grader, and the function through which the engine calls it."""
    source, recipe = spec.source, spec.recipe
    assert isinstance(source, sources.OnlineSource) and isinstance(recipe, Recipe)
    own = source.grader is not None or source.reward_model is not None
    if source.task is None or own:
        device = start.device_of("cpu")
        identity = graded_by.grading(
            source.grader,
            source.reward_model,
            seconds=source.grader_timeout,
            device=device,
            reward_aggregation=source.reward_aggregation,
            thoughts=parse_tags(source.thought_tags),
        )[1]
        _unchanged(spec, "grader", identity, source.grader or source.reward_model)
    if source.task is not None and not own:
        reward_code = f"rewards.task_reward(tasks.get({source.task!r}))"
    elif source.reward_model is not None:
        if "," in source.reward_model:
            raise UserError(
                f"reward_model = {source.reward_model!r}: the exported folder holds one reward model; expected one"
            )
        judge, tokenizer = RewardModel.load_with_tokenizer(named.model_folder(Path(source.reward_model)))
        checkpoints.save(folder / "reward_model", judge, tokenizer)
        reward_code = 'rewards.model_reward(*RewardModel.load_with_tokenizer(HERE / "reward_model"))'
    elif custom_rewards.is_named(str(source.grader)):
        reward_code = _own_reward(source, folder)
    elif str(source.grader).startswith(graded_by.BY_FIELD):
        raise UserError(
            f"grader = {source.grader!r}: the export has one grader for all rows; expected a grader by name",
            argument="grader",
            value=source.grader,
            problem="several",
        )
    else:
        reward_code = _named_reward(str(source.grader), source.thought_tags)
    shape = ", ".join(
        f"partial(parts.{name_of(f).partition('(')[0]}, **{getattr(f, 'keywords', {})!r})" for f in recipe.collect.shape
    )
    shapes = f"({shape},)" if shape and engine_code == grading.TRL else "()"  # the others have an option for it
    return grading.GRADER.format(made=reward_code, shape=shapes) + engine_code
