"""Measure a saved model on a file of problems: accuracy or reward, pass@k, win rate, KL, length; with 95 % intervals.

  minirlhf evaluate runs/grpo --data test.jsonl --grader numeric
  minirlhf evaluate runs/grpo --data test.jsonl --grader my.py:fn --num-generations 8 --json result.json
  minirlhf evaluate runs/dpo  --data prompts.jsonl --reward-model runs/rm --against runs/sft --ref-model runs/sft

MODEL is a run, a model folder, a zoo entry or a hub name.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from minirlhf.cli.settings import add_answering

if TYPE_CHECKING:
    from minirlhf.stages.answering import Request


def configure(parser: argparse.ArgumentParser) -> None:
    """A model, problems, a grader, and how to sample."""
    add_answering(parser, data="problems, or pairs for a reward model", num_generations=1)
    parser.add_argument("--against", metavar="MODEL", help="another model on the same problems, for the win rate")
    parser.add_argument("--ref-model", metavar="MODEL", help="measure the KL to this one")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the numbers, and what they were measured on")


def run(args: argparse.Namespace) -> int:
    """Print the table; write what is asked for."""
    import dataclasses

    from minirlhf.models.checkpoints import require_writable
    from minirlhf.stages import named
    from minirlhf.stages.answering import Answering, Request
    from minirlhf.stages.measure import measure
    from minirlhf.stages.measure_reward import is_reward_model

    if args.json is not None:
        require_writable(args.json)
    asked = Request(**{field.name: getattr(args, field.name) for field in dataclasses.fields(Request)})
    if is_reward_model(args.model):
        return _of_reward_model(args, asked)
    found = Answering.load(asked)
    others = [
        None if name is None else named.model_by_name(name)[0].to(found.device)
        for name in (args.against, args.ref_model)
    ]
    numbers = measure(
        found.model, found.tokenizer, found.problems, found.reward, asked.sampling, against=others[0], ref_model=others[1],
        num_generations=asked.num_generations, seed=asked.seed, batch_size=asked.batch_size,
    )  # fmt: skip
    print(f"\n{len(found.problems)} problems, {asked.num_generations} replies each; 95 % intervals over problems")
    print("\n".join(f"  {number}" for number in numbers))
    more = {"problems": len(found.problems), "grader": found.grader}
    _write(args, numbers, found.problems, found.model, more)
    return 0


def _of_reward_model(args: argparse.Namespace, asked: Request) -> int:
    """A reward model is measured on comparisons; nothing is sampled and nobody else grades."""
    from minirlhf.core.errors import UserError
    from minirlhf.data import loaders
    from minirlhf.models.heads import RewardModel
    from minirlhf.models.tiny import num_parameters
    from minirlhf.stages import named, start
    from minirlhf.stages.answering import OF_SAMPLING
    from minirlhf.stages.measure_reward import measure_reward
    from minirlhf.trainers.config import idle_of

    for name in ("grader", "reward_model", "against", "ref_model"):
        if getattr(args, name) is not None:
            raise UserError(
                f"--{name.replace('_', '-')}: {args.model} is a reward model, which is measured on pairs alone"
            )
    start.announce(
        idle_of(asked, dict.fromkeys(OF_SAMPLING, "a reward model is measured on pairs, and samples nothing"))
    )
    records = loaders.load(args.data, split=args.split, format=args.format, limit=args.limit)
    print(records)
    pairs = records.comparisons()
    model, tokenizer = RewardModel.load_with_tokenizer(named.model_folder(Path(args.model).expanduser()))
    device = start.device_of(args.device)
    model = model.to(device).eval()
    print(f"{args.model}: a reward model, {num_parameters(model):,} parameters on {device}")
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
