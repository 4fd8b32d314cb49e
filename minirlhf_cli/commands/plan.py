"""Memory and time of a training run, computed from its settings before anything is loaded.

  minirlhf plan configs/0.5b.yaml --machine 24gb             every trainer that has a section in the file
  minirlhf plan configs/0.5b.yaml grpo ppo --memory 16GB     these trainers
  minirlhf plan mine.yaml sft --completion-length 700        a file without sections

The plan shows the phase of a step that needs most memory, part by part, and what to change if it does not fit. Memory
follows from the sizes of the model; tests of small models on a CPU find it within 10 %. Times follow from an assumed
speed, which is printed. The exit status is 1 if a run does not fit.
"""

from __future__ import annotations

import argparse
import re
from typing import TYPE_CHECKING, Any

from minirlhf_cli.settings import read_yaml, require_at_least

if TYPE_CHECKING:
    from minirlhf_cli.files.planning import Machine, RunPlan

MACHINE_NAMES = ("cpu", "24gb", "80gb")
PARTS = {
    "weights": "weights",
    "gradients": "gradients",
    "optimizer": "optimizer (Adam's moments)",
    "activations": "activations",
    "temporary": "logits and other temporary tensors",
    "reference": "reference model",
    "critic": "critic, with its gradients and optimizer",
    "reward model": "reward model (if it is as large as the policy)",
    "keys and values": "keys and values while sampling",
}


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments: the file of settings, the trainers, the machine, and the lengths of the data."""
    parser.add_argument("config", metavar="FILE", help="YAML file of settings, as for minirlhf train --config")
    parser.add_argument(
        "trainers", nargs="*", metavar="TRAINER", help="trainers (default: those with a section in FILE)"
    )
    parser.add_argument(
        "--machine", default="cpu", choices=MACHINE_NAMES,
        help="cpu (16 GB), 24gb or 80gb (a GPU with this memory) (default: cpu)",
    )  # fmt: skip
    parser.add_argument(
        "--memory", metavar="SIZE", help="memory of the machine, such as 40GB (default: as its name says)"
    )
    default = "default: half of max_length, or 256"
    parser.add_argument("--prompt-length", type=int, metavar="INT", help=f"tokens of a prompt ({default})")
    parser.add_argument(
        "--completion-length", type=int, metavar="INT",
        help=f"tokens of a completion in the data ({default}); a sampled one has max_completion_length",
    )  # fmt: skip
    parser.add_argument("--examples", type=int, metavar="INT", help="training examples, for a run with epochs")


def run(args: argparse.Namespace) -> int:
    """Print one table of all plans; return 1 if a run does not fit."""
    import dataclasses

    from minirlhf.core.errors import UserError
    from minirlhf_cli.commands.train import sections, settings_for
    from minirlhf_cli.files import planning

    require_at_least(1, args, "prompt_length", "completion_length", "examples")
    machine = planning.MACHINES[args.machine]
    if args.memory is not None:
        machine = dataclasses.replace(machine, memory=parse_memory(args.memory))
    values = read_yaml(args.config)
    names = args.trainers or sections(values)
    if not names:
        raise UserError(
            f"{args.config}: has no section for a trainer; expected TRAINER after FILE, such as sft",
            argument="TRAINER",
            problem="missing",
            file=args.config,
        )
    data = planning.DataSize(args.prompt_length, args.completion_length, args.examples)
    settings = {name: settings_for(name, values, args.config) for name in names}
    context = machine, data, args.config
    plans = {name: planning.plan(name, settings[name], *context) for name in names}
    print("\n".join(assumptions(args, machine, settings)))
    print("\n".join(table(plans, machine)))
    for name, plan in plans.items():
        if plan.fits(machine):
            continue
        change = planning.remedy(name, settings[name], *context)
        text = "no change of batch, adapter, dtype and length that the plan tries makes it fit; take a smaller model"
        if change is not None:
            text = "to fit, set " + ", ".join(f"{key}: {value}" for key, value in change.items())
        print(f"{name}: does not fit, because its {plan.peak_phase} needs {plan.peak / 1e9:.1f} GB; {text}")
    return 0 if all(plan.fits(machine) for plan in plans.values()) else 1


def parse_memory(text: str) -> float:
    """Return the bytes of a size such as 24GB.

    Raises:
        UserError: it is no such size.
    """
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*(GB|MB)?", text.strip(), re.IGNORECASE)
    size = float(match[1]) * (1e6 if (match[2] or "").upper() == "MB" else 1e9) if match else 0.0
    if size <= 0:
        from minirlhf.core.errors import UserError

        raise UserError(
            f"--memory {text}: expected a size such as 24GB", argument="--memory", value=text, expected="24GB"
        )
    return size


def assumptions(args: argparse.Namespace, machine: Machine, settings: dict[str, dict[str, Any]]) -> list[str]:
    """Return the lines on the machine and on what the plan assumes."""
    usable = machine.usable * machine.memory / 1e9
    models = dict.fromkeys(str(values.get("model", "nano")) for values in settings.values())
    return [
        f"{args.config}: {', '.join(models)}; machine {args.machine}, of whose {machine.memory / 1e9:g} GB a run may use {usable:g}",
        f"assumed speed: {machine.flops / 1e12:g} TFLOP/s, {machine.bandwidth / 1e9:g} GB/s, {machine.overhead * 1e3:g} ms "
        f"for each layer of a sampled token ({machine.source})",
        "",
    ]


def table(plans: dict[str, RunPlan], machine: Machine) -> list[str]:
    """Return the table of the plans, one column each."""
    from minirlhf_cli.files.start import PRETRAINED

    first = next(iter(plans.values()))
    digits = 1 if first.sizes.parameters() >= PRETRAINED else 3
    rows: dict[str, list[str]] = {"parameters": [f"{plan.sizes.parameters() / 1e6:,.1f} M" for plan in plans.values()]}
    rows["assumed tokens of a prompt"] = [f"{plan.prompt:,}" for plan in plans.values()]
    rows["assumed tokens of a completion"] = [f"{plan.completion:,}" for plan in plans.values()]
    rows["phase with most memory"] = [plan.peak_phase for plan in plans.values()]
    for part, label in PARTS.items():
        sizes = [plan.phases[plan.peak_phase].get(part, 0) / 1e9 for plan in plans.values()]
        if any(sizes):
            rows[f"  {label}, GB"] = [f"{size:.{digits}f}" if size else "-" for size in sizes]
    rows["memory, GB"] = [f"{plan.peak / 1e9:.{digits}f}" for plan in plans.values()]
    rows["fits"] = ["yes" if plan.fits(machine) else "no" for plan in plans.values()]
    rows["tokens read per step"] = [f"{plan.tokens:,}" for plan in plans.values()]
    rows["tokens sampled per step"] = [f"{plan.sampled:,}" if plan.sampled else "-" for plan in plans.values()]
    rows["seconds per step"] = [f"{plan.seconds:.3g}" for plan in plans.values()]
    rows["steps"] = ["give --examples" if plan.steps is None else f"{plan.steps:,}" for plan in plans.values()]
    rows["hours"] = [
        "-" if plan.steps is None else f"{plan.steps * plan.seconds / 3600:.3g}" for plan in plans.values()
    ]
    label_width = max(map(len, rows))
    widths = [max(len(name), *(len(cells[i]) for cells in rows.values())) for i, name in enumerate(plans)]
    lines = [("", list(plans)), *rows.items()]
    return [
        f"{label:<{label_width}}" + "".join(f"  {cell:>{width}}" for cell, width in zip(cells, widths, strict=True))
        for label, cells in lines
    ]
