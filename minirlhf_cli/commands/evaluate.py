"""Measure saved models on files of problems: accuracy or reward, pass@k, win rate, KL, length; with 95 % intervals.

  minirlhf evaluate runs/grpo --data test.jsonl --grader numeric
  minirlhf evaluate runs/grpo --data test.jsonl --grader my.py:fn --num-generations 8 --json result.json
  minirlhf evaluate runs/dpo  --data prompts.jsonl --reward-model runs/rm --baseline-model runs/sft --ref-model runs/sft
  minirlhf evaluate runs/sft runs/grpo runs/dpo --data test.jsonl --grader numeric --report page.html
  minirlhf evaluate runs/sft runs/grpo --task shell_game
  minirlhf evaluate runs/sft runs/grpo --task sums.yaml words.yaml --report page.html --json pilot.json

MODEL is a run, a model folder, a zoo entry or a hub name. A task is a toy task by its name, or a YAML file of these flags, for example `data:
sums.jsonl`, `grader: numeric`, `num_generations: 4`, `num_fewshot: 3`; its `data` are looked for beside the YAML file first. With
`output_type: multiple_choice` nothing is generated: the model chooses the most probable of the answers that each row
lists under `choices`, and every usual way of comparing them is reported.

Several models answer the same problems with the same random numbers, and every two of them are compared in pairs. For
a difference of means, read its confidence interval. p is the sign test's: is one model better on more problems (with
--cluster: clusters)? This is the same question only if the problems are independent and each has one completion, right
or wrong. p is corrected for all pairs of a task; intervals are not. `minirlhf evaluate power --results pilot.json` tells how
many problems the next comparison needs.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from minirlhf_cli.settings import add_answering, from_mapping, read_yaml

if TYPE_CHECKING:
    from minirlhf_cli.files.measure import EvaluationResult
    from minirlhf_cli.files.tasks import EvaluationRequest


#: Settings of a request that describe the measurement and not the task; a task file cannot set them.
OF_MACHINE = ("world", "model", "device", "batch_size", "seed")

#: Settings in task files of the LM Evaluation Harness, and their counterparts here.
OF_THE_HARNESS = {
    "task": "a task is called as its file is",
    "dataset_path": "data, a file or hub name",
    "dataset_name": "data, a file or hub name",
    "test_split": "split",
    "validation_split": "split",
    "repeats": "num_generations",
    "doc_to_text": "the prompt is a field of the rows",
    "doc_to_target": "the reference is a field of the rows",
    "doc_to_choice": "choices, the field of the rows that lists the answers",
    "generation_kwargs": "max_completion_length, temperature and top_p",
    "metric_list": "grader",
    "filter_list": "grader, which extracts the answer as well",
}


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments: models, problems, a grader and sampling options."""
    add_answering(parser, data="problems, or pairs for a reward model", num_generations=1, several=True)
    parser.add_argument(
        "--task", type=Path, nargs="+", metavar="TASK", help="toy tasks by name, or YAML files of data and settings"
    )
    parser.add_argument("--cluster", metavar="FIELD", help="problems with the same value of this field form a cluster")
    parser.add_argument(
        "--num-fewshot", type=int, default=0, metavar="N", help="few-shot examples before each problem (default: 0)"
    )
    parser.add_argument("--fewshot-data", metavar="DATA", help="conversations or solved problems as few-shot examples")
    parser.add_argument("--fewshot-split", metavar="NAME", help="split of that data")
    parser.add_argument("--fewshot-seed", type=int, default=0, metavar="N", help="seed of their choice (default: 0)")
    parser.add_argument(
        "--output-type",
        default="generate_until",
        metavar="TYPE",
        help="generate_until or multiple_choice (default: generate_until)",
    )
    parser.add_argument(
        "--choices", default="choices", metavar="FIELD", help="field of the rows that lists the answers"
    )
    parser.add_argument(
        "--scoring",
        default="sum",
        metavar="WAY",
        help="compare models by the accuracy of sum, token, character, byte, pmi or letter (default: sum)",
    )
    parser.add_argument("--baseline-model", metavar="MODEL", help="baseline model for the win rate")
    parser.add_argument("--ref-model", metavar="MODEL", help="measure the KL to this model")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the numbers and their provenance as JSON")
    parser.add_argument("--report", type=Path, metavar="FILE", help="write an HTML page: numbers, pairs, completions")


def run(args: argparse.Namespace) -> int:
    """Print the tables; write the files that are requested."""
    import json

    from minirlhf.core.errors import UserError
    from minirlhf.core.folders import require_writable, write_text_atomic
    from minirlhf_cli.files.measure_reward import is_reward_model
    from minirlhf_cli.reports import evaluation as page

    for file in (args.json, args.report):
        if file is not None:
            require_writable(file)
    if duplicates := sorted({name for name in args.models if args.models.count(name) > 1}):
        raise UserError(
            f"{duplicates[0]}: named twice; expected different models",
            argument="models",
            value=duplicates[0],
            problem="duplicate",
        )
    reward_models = [name for name in args.models if is_reward_model(name)]
    if reward_models:
        return _of_reward_model(args, reward_models[0])
    tasks = [_answer(args, name, requests) for name, requests in _asked(args).items()]
    if args.json is not None:
        [first, *others] = tasks
        single = not others and len(args.models) == 1
        data = first.as_json()["models"][args.models[0]] if single else {"tasks": {t.name: t.as_json() for t in tasks}}
        write_text_atomic(args.json, json.dumps(data, indent=2) + "\n")
        print(f"saved to {args.json}")
    if args.report is not None:
        page.write(args.report, tasks)
        print(f"saved to {args.report}")
    return 0


def _asked(args: argparse.Namespace) -> dict[str, list[EvaluationRequest]]:
    """Return the requests of each task, one per model, by the task's name."""
    import dataclasses

    from minirlhf.core.errors import UserError
    from minirlhf_cli.files.tasks import EvaluationRequest

    fields = [f.name for f in dataclasses.fields(EvaluationRequest) if f.name not in ("model", "world")]
    flags = {name: getattr(args, name) for name in fields}
    if args.task is None:
        if args.data is None:
            raise UserError(
                "expected --data with problems, or --task with files that name them",
                argument="--data",
                problem="missing",
            )
        return {args.data: [EvaluationRequest(**{**flags, "model": name}) for name in args.models]}
    tasks: dict[str, list[EvaluationRequest]] = {}
    for file in args.task:
        if file.stem in tasks:
            raise UserError(
                f"{file}: another task is called {file.stem} too; expected different names",
                argument="--task",
                value=file.stem,
                problem="duplicate",
            )
        request = _of_world if is_world(file) else _of_task
        tasks[file.stem] = [request(file, {**flags, "model": name}) for name in args.models]
    return tasks


def is_world(task: Path) -> bool:
    """Return whether this is the name of a toy task and not of a file."""
    from minirlhf.data.tasks import TASKS

    return not task.exists() and str(task).replace("-", "_") in TASKS


def _of_world(task: Path, flags: Mapping[str, Any]) -> EvaluationRequest:
    """Return the request of a toy task: the length of its completions, and ``flags`` for the other settings."""
    from minirlhf.core.errors import UserError
    from minirlhf.data import tasks
    from minirlhf_cli.files.tasks import EvaluationRequest

    if flags["data"] is not None:
        raise UserError(
            f"--data: the toy task {task} has its own prompts; give one of the two",
            argument="--data",
            value=flags["data"],
            problem="exclusive",
        )
    world = tasks.get(str(task))
    default = EvaluationRequest(model="", data="").max_completion_length
    length = flags["max_completion_length"]
    length = world.max_completion_length if length == default else length
    return EvaluationRequest(**{**flags, "data": world.name, "world": world.name, "max_completion_length": length})


def _of_task(file: Path, flags: Mapping[str, Any]) -> EvaluationRequest:
    """Return the request of a task file: its settings, and ``flags`` for the others. ``data`` and ``fewshot_data`` are looked for
    beside the file first, other paths are relative to the working folder."""
    import dataclasses

    from minirlhf.core.errors import UserError, unknown
    from minirlhf.data.tasks import TASKS
    from minirlhf_cli.files.tasks import EvaluationRequest

    if not file.exists() and not file.suffix:
        raise unknown("task", str(file), TASKS)
    settings = read_yaml(str(file))
    allowed = {f.name: f for f in dataclasses.fields(EvaluationRequest) if f.name not in OF_MACHINE}
    for name in settings:
        if name in OF_THE_HARNESS:
            raise UserError(
                f"{file}: {name} is a setting of the LM Evaluation Harness; here: {OF_THE_HARNESS[name]}",
                argument=name,
                expected=OF_THE_HARNESS[name],
                problem="unknown",
                file=file,
            )
        if name not in allowed:
            raise unknown(f"setting in {file}", name, allowed)
        if flags[name] != (None if name == "data" else allowed[name].default):
            raise UserError(
                f"{file}: sets {name}, and so does --{name.replace('_', '-')}; expected one of the two",
                argument=name,
                problem="duplicate",
                file=file,
            )
    if "data" not in settings:
        raise UserError(
            f"{file}: data, the problems to answer, is missing", argument="data", problem="missing", file=file
        )
    for name in ("data", "fewshot_data"):
        if name in settings and (relative := file.parent / str(settings[name])).exists():
            settings[name] = str(relative)
    return from_mapping(EvaluationRequest, {**flags, **settings}, str(file))


def _answer(args: argparse.Namespace, task: str, requests: list[EvaluationRequest]) -> EvaluationResult:
    """Evaluate every model on one task; print its tables."""
    from minirlhf.core.errors import UserError
    from minirlhf.feedback import graders
    from minirlhf.models.reference import require_same_vocabulary
    from minirlhf.stages import named
    from minirlhf_cli.files import start
    from minirlhf_cli.files.answering import Generator
    from minirlhf_cli.files.choices import choose
    from minirlhf_cli.files.measure import EvaluationResult, chosen, compare, measure, sample_completions

    completions, numbers, meta = {}, {}, {}
    for request in requests:
        for flag in ("baseline_model", "ref_model"):
            if request.chooses and getattr(args, flag) is not None:
                raise UserError(
                    f"--{flag.replace('_', '-')}: needs completions; output_type = multiple_choice samples none",
                    argument=f"--{flag.replace('_', '-')}",
                    problem="no replies",
                )
        loaded = Generator.load(request)
        against, ref_model = (
            None if name is None else named.model_by_name(name)[0].to(loaded.device)
            for name in (args.baseline_model, args.ref_model)
        )
        if against is not None:
            require_same_vocabulary(loaded.model, against)
        options: dict[str, Any] = {
            "num_generations": request.num_generations, "seed": request.seed, "batch_size": request.batch_size,
        }  # fmt: skip
        inputs = loaded.tokenizer, loaded.problems, loaded.reward, request.sampling
        if request.chooses:
            choices = choose(loaded.model, loaded.tokenizer, loaded.problems, batch_size=request.batch_size)
            answered = chosen(choices, loaded.problems, by=request.scoring)
        else:
            answered = sample_completions(
                loaded.model,
                *inputs,
                ref_model=ref_model,
                extract=graders.votes(request.grader or "", request.thoughts),
                **options,
            )
        baseline = None if against is None else sample_completions(against, *inputs, **options)
        completions[request.model], numbers[request.model] = answered, measure(answered, against=baseline)
        groups = "problems" if answered.clusters is None else f"{len(answered.clusters.unique())} clusters"
        mode = "multiple choice" if request.chooses else f"{request.num_generations} replies each"
        print(f"\n{len(loaded.problems)} problems, {mode}; 95 % intervals over {groups}")
        print("\n".join(f"  {number}" for number in numbers[request.model]))
        flags = {name: value for name, value in vars(args).items() if name not in ("json", "report", "models")}
        meta[request.model] = {
            "problems": len(loaded.problems), "grader": loaded.grader, "data": start.digest(loaded.problems),
            "model": start.model_digest(loaded.model), "asked": {**flags, **vars(request), "task": task}, "versions": start.versions(),
        }  # fmt: skip
    pairs = compare(completions) if len(completions) > 1 else []
    if pairs:
        print(
            "\npairs, on the same problems; p of the sign test (is one model better on more problems?), Holm-corrected"
        )
        print("\n".join(f"  {pair}" for pair in pairs))
    return EvaluationResult(task, loaded.grader, loaded.problems, completions, numbers, pairs, meta)


def _of_reward_model(args: argparse.Namespace, name: str) -> int:
    """Measure a reward model on comparisons: nothing is sampled, and no grader is used."""
    import dataclasses
    import json

    from minirlhf.core.errors import UserError
    from minirlhf.core.folders import write_text_atomic
    from minirlhf.data import loaders
    from minirlhf.models.heads import RewardModel
    from minirlhf.models.tiny import num_parameters
    from minirlhf.stages import named
    from minirlhf.trainers.config import unused_options
    from minirlhf_cli.files import start
    from minirlhf_cli.files.answering import OF_SAMPLING, GenerationRequest
    from minirlhf_cli.files.measure import as_json
    from minirlhf_cli.files.measure_reward import measure_reward

    for flag in (
        "grader",
        "reward_model",
        "baseline_model",
        "ref_model",
        "task",
        "report",
        "cluster",
        "num_fewshot",
        "fewshot_data",
    ):
        if getattr(args, flag):
            raise UserError(
                f"--{flag.replace('_', '-')}: {name} is a reward model, which is measured on pairs only",
                argument=f"--{flag.replace('_', '-')}",
                problem="reward model",
                file=name,
            )
    if args.output_type != "generate_until":
        raise UserError(
            f"--output-type: {name} is a reward model, which is measured on pairs only",
            argument="--output-type",
            value=args.output_type,
            expected="generate_until",
        )
    if len(args.models) > 1:
        raise UserError(f"{name}: a reward model, which is measured separately; expected no other model")
    if args.data is None:
        raise UserError("expected --data, the pairs to compare")
    request = GenerationRequest(
        **{f.name: getattr(args, f.name) for f in dataclasses.fields(GenerationRequest) if f.name != "model"},
        model=name,
    )
    start.log_unused_options(
        unused_options(request, dict.fromkeys(OF_SAMPLING, "a reward model is measured on pairs, and samples nothing"))
    )
    records = loaders.load(args.data, split=args.split, format=args.format, limit=args.limit)
    print(records)
    pairs = records.comparisons()
    model, tokenizer = RewardModel.load_with_tokenizer(named.model_folder(Path(name).expanduser()))
    device = start.device_of(args.device)
    model = model.to(device).eval()
    print(f"{name}: a reward model, {num_parameters(model):,} parameters on {device}")
    numbers = measure_reward(model, tokenizer, pairs, batch_size=args.batch_size)
    print(f"\n{len(pairs)} pairs; 95 % intervals over pairs")
    print("\n".join(f"  {number}" for number in numbers))
    if args.json is not None:
        meta = {
            "pairs": len(pairs), "data": start.digest(pairs), "model": start.model_digest(model), "asked": vars(request),
            "versions": start.versions(),
        }  # fmt: skip
        write_text_atomic(args.json, json.dumps({"numbers": as_json(numbers), "measured on": meta}, indent=2) + "\n")
        print(f"saved to {args.json}")
    return 0
