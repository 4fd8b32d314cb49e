"""Measure saved models on files of problems: accuracy or reward, pass@k, win rate, KL, length; with 95 % intervals, and in pairs.

  minirlhf evaluate runs/grpo --data test.jsonl --grader numeric
  minirlhf evaluate runs/grpo --data test.jsonl --grader my.py:fn --num-generations 8 --json result.json
  minirlhf evaluate runs/dpo  --data prompts.jsonl --reward-model runs/rm --against runs/sft --ref-model runs/sft
  minirlhf evaluate runs/sft runs/grpo runs/dpo --data test.jsonl --grader numeric --report page.html
  minirlhf evaluate runs/sft runs/grpo --task sums.yaml words.yaml --report page.html --json pilot.json

MODEL is a run, a model folder, a zoo entry or a hub name. A task is a YAML file of these flags, for example `data: sums.jsonl`, `grader:
numeric`, `num_generations: 4`, `num_fewshot: 3`; its data lie beside it. With `output_type: multiple_choice` nothing is generated: of the
answers that each row lists under `choices` the likeliest counts, by every usual way of comparing them. Several models answer the same
problems with the same random numbers; every two are then compared in pairs. Of a difference in the mean its interval speaks. p is of the
number of problems, or with --cluster of clusters, on which one is better: the same question only where each problem stands alone and has
one reply, right or wrong. It is corrected for all pairs of its task; intervals are not. `minirlhf power --results pilot.json` says how many
problems the next comparison needs.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from minirlhf.cli.settings import add_answering, from_mapping, read_yaml

if TYPE_CHECKING:
    from minirlhf.stages.measure import EvaluationResult
    from minirlhf.stages.tasks import EvaluationRequest


#: Settings of a request that belong to the one who measures and not to what is measured.
OF_MACHINE = ("model", "device", "batch_size", "seed")

#: What tasks of the LM Evaluation Harness say, and what says it here.
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
    """Models, problems, a grader, and how to sample."""
    add_answering(parser, data="problems, or pairs for a reward model", num_generations=1, several=True)
    parser.add_argument("--task", type=Path, nargs="+", metavar="FILE", help="what to answer, and how, from YAML files")
    parser.add_argument("--cluster", metavar="FIELD", help="problems with one value of this field belong together")
    parser.add_argument(
        "--num-fewshot", type=int, default=0, metavar="N", help="examples before each problem (default: 0)"
    )
    parser.add_argument("--fewshot-data", metavar="DATA", help="conversations or worked problems to draw examples from")
    parser.add_argument("--fewshot-split", metavar="NAME", help="split of that data")
    parser.add_argument("--fewshot-seed", type=int, default=0, metavar="N", help="other examples (default: 0)")
    parser.add_argument(
        "--output-type",
        default="generate_until",
        metavar="TYPE",
        help="generate_until, or multiple_choice among given answers",
    )
    parser.add_argument(
        "--choices", default="choices", metavar="FIELD", help="field of the rows that lists the answers"
    )
    parser.add_argument(
        "--choose-by",
        default="sum",
        metavar="WAY",
        help="compare models that choose by sum, token, character, byte, pmi or letter (default: sum)",
    )
    parser.add_argument("--against", metavar="MODEL", help="another model on the same problems, for the win rate")
    parser.add_argument("--ref-model", metavar="MODEL", help="measure the KL to this one")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the numbers, and what they were measured on")
    parser.add_argument("--report", type=Path, metavar="FILE", help="write one HTML page: numbers, pairs, replies")


def run(args: argparse.Namespace) -> int:
    """Print the tables; write what is asked for."""
    import json

    from minirlhf.core.errors import UserError
    from minirlhf.core.folders import require_writable, write_text_atomic
    from minirlhf.report import evaluation as page
    from minirlhf.stages.measure_reward import is_reward_model

    for file in (args.json, args.report):
        if file is not None:
            require_writable(file)
    if twice := sorted({name for name in args.models if args.models.count(name) > 1}):
        raise UserError(
            f"{twice[0]}: named twice; expected different models",
            argument="models",
            value=twice[0],
            problem="duplicate",
        )
    rewarding = [name for name in args.models if is_reward_model(name)]
    if rewarding:
        return _of_reward_model(args, rewarding[0])
    tasks = [_answer(args, name, asked) for name, asked in _asked(args).items()]
    if args.json is not None:
        [first, *more] = tasks
        alone = not more and len(args.models) == 1
        found = first.as_json()["models"][args.models[0]] if alone else {"tasks": {t.name: t.as_json() for t in tasks}}
        write_text_atomic(args.json, json.dumps(found, indent=2) + "\n")
        print(f"{args.json}: written")
    if args.report is not None:
        page.write(args.report, tasks)
        print(f"{args.report}: written")
    return 0


def _asked(args: argparse.Namespace) -> dict[str, list[EvaluationRequest]]:
    """Of each task by its name, what is asked of each model."""
    import dataclasses

    from minirlhf.core.errors import UserError
    from minirlhf.stages.tasks import EvaluationRequest

    flags = {f.name: getattr(args, f.name) for f in dataclasses.fields(EvaluationRequest) if f.name != "model"}
    if args.task is None:
        if args.data is None:
            raise UserError(
                "expected --data, problems to answer, or --task, files that name them",
                argument="--data",
                problem="missing",
            )
        return {args.data: [EvaluationRequest(**{**flags, "model": name}) for name in args.models]}
    tasks: dict[str, list[EvaluationRequest]] = {}
    for file in args.task:
        if file.stem in tasks:
            raise UserError(
                f"{file}: a task called {file.stem} was named before; expected different names",
                argument="--task",
                value=file.stem,
                problem="duplicate",
            )
        tasks[file.stem] = [_of_task(file, {**flags, "model": name}) for name in args.models]
    return tasks


def _of_task(file: Path, flags: Mapping[str, Any]) -> EvaluationRequest:
    """What a task's file asks for: its settings, and for the others these flags. The data that it names lie beside it."""
    import dataclasses

    from minirlhf.core.errors import UserError, unknown
    from minirlhf.stages.tasks import EvaluationRequest

    settings = read_yaml(str(file))
    known = {f.name: f for f in dataclasses.fields(EvaluationRequest) if f.name not in OF_MACHINE}
    for name in settings:
        if name in OF_THE_HARNESS:
            raise UserError(
                f"{file}: {name} is a setting of the LM Evaluation Harness; here: {OF_THE_HARNESS[name]}",
                argument=name,
                expected=OF_THE_HARNESS[name],
                problem="unknown",
                file=file,
            )
        if name not in known:
            raise unknown(f"setting in {file}", name, known)
        if flags[name] != (None if name == "data" else known[name].default):
            raise UserError(
                f"{file}: sets {name}, and so does --{name.replace('_', '-')}; expected one of the two",
                argument=name,
                problem="duplicate",
                file=file,
            )
    if "data" not in settings:
        raise UserError(
            f"{file}: does not say data, the problems to answer", argument="data", problem="missing", file=file
        )
    for name in ("data", "fewshot_data"):
        if name in settings and (beside := file.parent / str(settings[name])).exists():
            settings[name] = str(beside)
    return from_mapping(EvaluationRequest, {**flags, **settings}, str(file))


def _answer(args: argparse.Namespace, task: str, requests: list[EvaluationRequest]) -> EvaluationResult:
    """Let every model answer one task; print its tables."""
    from minirlhf.core.errors import UserError
    from minirlhf.feedback.graders import ANSWER_OF
    from minirlhf.models.reference import require_same_vocabulary
    from minirlhf.stages import named, start
    from minirlhf.stages.answering import Generator
    from minirlhf.stages.choices import choose
    from minirlhf.stages.measure import EvaluationResult, answers, chosen, compare, measure

    replies, numbers, on = {}, {}, {}
    for asked in requests:
        for flag in ("against", "ref_model"):
            if asked.chooses and getattr(args, flag) is not None:
                raise UserError(
                    f"--{flag.replace('_', '-')}: needs replies; expected none with output_type = multiple_choice",
                    argument=f"--{flag.replace('_', '-')}",
                    problem="no replies",
                )
        found = Generator.load(asked)
        against, ref_model = (
            None if name is None else named.model_by_name(name)[0].to(found.device)
            for name in (args.against, args.ref_model)
        )
        if against is not None:
            require_same_vocabulary(found.model, against)
        how: dict[str, Any] = {
            "num_generations": asked.num_generations, "seed": asked.seed, "batch_size": asked.batch_size,
        }  # fmt: skip
        inputs = found.tokenizer, found.problems, found.reward, asked.sampling
        if asked.chooses:
            picked = choose(found.model, found.tokenizer, found.problems, batch_size=asked.batch_size)
            ours = chosen(picked, found.problems, by=asked.choose_by)
        else:
            ours = answers(found.model, *inputs, ref_model=ref_model, extract=ANSWER_OF.get(asked.grader or ""), **how)
        other = None if against is None else answers(against, *inputs, **how)
        replies[asked.model], numbers[asked.model] = ours, measure(ours, against=other)
        groups = "problems" if ours.clusters is None else f"{len(ours.clusters.unique())} clusters"
        given = "multiple choice" if asked.chooses else f"{asked.num_generations} replies each"
        print(f"\n{len(found.problems)} problems, {given}; 95 % intervals over {groups}")
        print("\n".join(f"  {number}" for number in numbers[asked.model]))
        flags = {name: value for name, value in vars(args).items() if name not in ("json", "report", "models")}
        on[asked.model] = {
            "problems": len(found.problems), "grader": found.grader, "data": start.digest(found.problems),
            "model": start.model_digest(found.model), "asked": {**flags, **vars(asked), "task": task}, "versions": start.versions(),
        }  # fmt: skip
    pairs = compare(replies) if len(replies) > 1 else []
    if pairs:
        print(
            "\nin pairs, on the same problems; p by the sign test: better on more problems than by chance? (Holm, all pairs)"
        )
        print("\n".join(f"  {pair}" for pair in pairs))
    return EvaluationResult(task, found.grader, found.problems, replies, numbers, pairs, on)


def _of_reward_model(args: argparse.Namespace, name: str) -> int:
    """A reward model is measured on comparisons; nothing is sampled and nobody else grades."""
    import dataclasses
    import json

    from minirlhf.core.errors import UserError
    from minirlhf.core.folders import write_text_atomic
    from minirlhf.data import loaders
    from minirlhf.models.heads import RewardModel
    from minirlhf.models.tiny import num_parameters
    from minirlhf.stages import named, start
    from minirlhf.stages.answering import OF_SAMPLING, GenerationRequest
    from minirlhf.stages.measure import as_json
    from minirlhf.stages.measure_reward import measure_reward
    from minirlhf.trainers.config import unused_options

    for flag in (
        "grader",
        "reward_model",
        "against",
        "ref_model",
        "task",
        "report",
        "cluster",
        "num_fewshot",
        "fewshot_data",
    ):
        if getattr(args, flag):
            raise UserError(
                f"--{flag.replace('_', '-')}: {name} is a reward model, which is measured on pairs alone",
                argument=f"--{flag.replace('_', '-')}",
                problem="reward model",
                file=name,
            )
    if args.output_type != "generate_until":
        raise UserError(
            f"--output-type: {name} is a reward model, which is measured on pairs alone",
            argument="--output-type",
            value=args.output_type,
            expected="generate_until",
        )
    if len(args.models) > 1:
        raise UserError(f"{name}: a reward model, which is measured by itself; expected no other model beside it")
    if args.data is None:
        raise UserError("expected --data, the pairs to compare")
    asked = GenerationRequest(
        **{f.name: getattr(args, f.name) for f in dataclasses.fields(GenerationRequest) if f.name != "model"},
        model=name,
    )
    start.log_unused_options(
        unused_options(asked, dict.fromkeys(OF_SAMPLING, "a reward model is measured on pairs, and samples nothing"))
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
        on = {
            "pairs": len(pairs), "data": start.digest(pairs), "model": start.model_digest(model), "asked": vars(asked),
            "versions": start.versions(),
        }  # fmt: skip
        write_text_atomic(args.json, json.dumps({"numbers": as_json(numbers), "measured on": on}, indent=2) + "\n")
        print(f"{args.json}: written")
    return 0
