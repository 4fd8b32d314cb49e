"""Measure a saved model on a file of problems: accuracy or reward, pass@k, win rate, KL, length; with 95 % intervals.

  minirlhf evaluate runs/grpo --data test.jsonl --grader numeric
  minirlhf evaluate runs/grpo --data test.jsonl --grader my.py:fn --num-generations 8 --json result.json
  minirlhf evaluate runs/dpo  --data prompts.jsonl --reward-model runs/rm --against runs/sft --ref-model runs/sft

MODEL is a run, a model folder, a zoo entry or a hub name.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any


def configure(parser: argparse.ArgumentParser) -> None:
    """A model, problems, a grader, and how to sample."""
    parser.add_argument("model", metavar="MODEL", help="what to measure")
    parser.add_argument(
        "--data", required=True, help="problems, or pairs for a reward model: file, folder, or hub name"
    )
    parser.add_argument("--format", help="format of the data (default: detected from its fields)")
    parser.add_argument("--split", help="split of a folder or hub data set")
    parser.add_argument("--limit", type=int, metavar="N", help="read this many rows at most")
    parser.add_argument("--grader", help="exact, contains, numeric, gsm8k, or your own function: FILE.py:NAME")
    parser.add_argument("--grader-seconds", type=float, default=10.0, help="time that your function has for a reply")
    parser.add_argument("--reward-model", metavar="FOLDER", help="grade by this reward model; A,B: by several")
    parser.add_argument(
        "--combine", default="mean", help="several reward models: mean, worst_case, uncertainty_weighted"
    )
    parser.add_argument(
        "--num-generations", type=int, default=1, metavar="G", help="replies to each problem (default: 1)"
    )
    parser.add_argument("--against", metavar="MODEL", help="another model on the same problems, for the win rate")
    parser.add_argument("--ref-model", metavar="MODEL", help="measure the KL to this one")
    parser.add_argument(
        "--max-completion-length", type=int, default=256, metavar="N", help="tokens of a reply at most (default: 256)"
    )
    parser.add_argument("--temperature", type=float, default=1.0, help="0 takes the likeliest token (default: 1)")
    parser.add_argument("--top-p", type=float, default=1.0, help="sample from the smallest set with this probability")
    parser.add_argument("--seed", type=int, default=0, help="the same seed gives the same replies (default: 0)")
    parser.add_argument("--device", help="where to compute (default: the first GPU, else the CPU)")
    parser.add_argument("--batch-size", type=int, default=64, help="problems answered at once (default: 64)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the numbers, and what they were measured on")


def run(args: argparse.Namespace) -> int:
    """Print the table; write what is asked for."""
    from minirlhf.core.calling import context_length
    from minirlhf.core.errors import UserError
    from minirlhf.data import loaders
    from minirlhf.data.chat import encode_prompt, ends_of
    from minirlhf.models.sampling import Sampling
    from minirlhf.stages import named, start
    from minirlhf.stages.from_files import grading
    from minirlhf.stages.measure import measure
    from minirlhf.stages.measure_reward import is_reward_model

    for name in ("num_generations", "batch_size", "max_completion_length"):
        if getattr(args, name) < 1:
            raise UserError(f"--{name.replace('_', '-')} {getattr(args, name)}: expected at least 1")
    if args.temperature == 0 and args.num_generations > 1:
        raise UserError("--temperature 0 gives the same reply every time; expected --num-generations 1")
    sampling = Sampling(
        temperature=args.temperature or 1.0, greedy=args.temperature == 0, top_p=args.top_p,
        max_completion_length=args.max_completion_length,
    )  # fmt: skip
    device = start.device_of(args.device)
    if is_reward_model(args.model):
        return _of_reward_model(args, device)
    reward, grader = grading(
        args.grader, args.reward_model, seconds=args.grader_seconds, device=device, combine=args.combine
    )
    records = loaders.load(args.data, split=args.split, format=args.format, limit=args.limit)
    print(records)
    problems = records.problems()
    model, tokenizer = named.model_by_name(args.model)
    longest, context = max(len(encode_prompt(tokenizer, p.prompt)) for p in problems), context_length(model)
    if context is not None and longest + args.max_completion_length > context:
        raise UserError(
            f"the longest prompt has {longest} tokens and a reply may have {args.max_completion_length}, the model reads "
            f"{context}: lower --max-completion-length"
        )
    others = [
        None if name is None else named.model_by_name(name)[0].to(device) for name in (args.against, args.ref_model)
    ]
    model = model.to(device)
    print(
        f"{args.model}: {start.parameters(model):,} parameters on {device}; replies end at {ends_of(tokenizer, model)}"
    )
    numbers = measure(
        model, tokenizer, problems, reward, sampling, num_generations=args.num_generations, against=others[0],
        ref_model=others[1], seed=args.seed, batch_size=args.batch_size,
    )  # fmt: skip
    print(f"\n{len(problems)} problems, {args.num_generations} replies each; 95 % intervals over problems")
    print("\n".join(f"  {number}" for number in numbers))
    _write(args, numbers, problems, model, {"problems": len(problems), "grader": grader})
    return 0


def _of_reward_model(args: argparse.Namespace, device: Any) -> int:
    """A reward model is measured on comparisons; nothing is sampled and nobody else grades."""
    from minirlhf.core.errors import UserError
    from minirlhf.data import loaders
    from minirlhf.models.heads import RewardModel
    from minirlhf.stages import named, start
    from minirlhf.stages.measure_reward import measure_reward

    for name in ("grader", "reward_model", "against", "ref_model"):
        if getattr(args, name) is not None:
            raise UserError(
                f"--{name.replace('_', '-')}: {args.model} is a reward model, which is measured on pairs alone"
            )
    records = loaders.load(args.data, split=args.split, format=args.format, limit=args.limit)
    print(records)
    pairs = records.comparisons()
    model, tokenizer = RewardModel.load_with_tokenizer(named.model_folder(Path(args.model).expanduser()))
    model = model.to(device).eval()
    print(f"{args.model}: a reward model, {start.parameters(model):,} parameters on {device}")
    numbers = measure_reward(model, tokenizer, pairs, batch_size=args.batch_size)
    print(f"\n{len(pairs)} pairs; 95 % intervals over pairs")
    print("\n".join(f"  {number}" for number in numbers))
    _write(args, numbers, pairs, model, {"pairs": len(pairs)})
    return 0


def _write(args: argparse.Namespace, numbers: Any, data: Any, model: Any, more: dict[str, Any]) -> None:
    """The file that ``--json`` asks for."""
    import json

    from minirlhf.models.checkpoints import write_text_atomic
    from minirlhf.stages import start
    from minirlhf.stages.measure import as_json

    if args.json is not None:
        asked = {name: value for name, value in vars(args).items() if name != "json"}
        on = {
            **more, "data": start.digest(data), "model": start.model_digest(model), "asked": asked, "versions": start.versions(),
        }  # fmt: skip
        write_text_atomic(args.json, json.dumps({"numbers": as_json(numbers), "measured on": on}, indent=2) + "\n")
        print(f"{args.json}: written")
