"""What the parsers of verl and OpenRLHF make of the scripts that export writes, and which of their code reads each option.

    python engine_parsers.py FOLDER < commands.json

FOLDER holds verl, openrlhf, hydra-core and omegaconf (``make engines``). Nothing of an engine is started: what a parser
imports and the folder lacks, such as Ray and vLLM, is replaced by empty modules.
"""

from __future__ import annotations

import argparse
import ast
import importlib.abc
import importlib.machinery
import importlib.util
import json
import re
import sys
import types
from collections import defaultdict
from pathlib import Path
from typing import ClassVar

STUBS = (
    *("ray", "tensordict", "vllm", "torchdata", "codetiming", "deepspeed", "flash_attn", "pylatexenc", "cachetools"),
    *("orjson", "zmq", "uvicorn", "fastapi", "aiohttp", "wandb"),
)
#: Modules of verl that ask for an installed vLLM.
VLLM = ("verl.third_party.vllm", "verl.workers.rollout.vllm_rollout", "verl.workers.rollout.vllm_rollout.utils")


class Stub(types.ModuleType):
    """A module that has every name."""

    __path__: ClassVar[list[str]] = []

    def __getattr__(self, name: str) -> type:
        if name.startswith("__"):
            raise AttributeError(name)
        item = classmethod(lambda kind, _: kind)
        return type(name, (), {"__init__": lambda self, *_, **__: None, "__class_getitem__": item})


class Stubs(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds an empty module for what is in :data:`STUBS`."""

    def find_spec(self, name, path, target=None):
        if name.split(".")[0] in STUBS:
            return importlib.machinery.ModuleSpec(name, self, is_package=True)
        return None

    def create_module(self, spec):
        return Stub(spec.name)

    def exec_module(self, module):
        pass


def compose(folder: Path, module: str, words: list[str]) -> dict[str, object]:
    """Compose verl's configuration with these overrides and validate it as verl does before it starts.

    Returns:
        The value of every option that is set, after composition.
    """
    from hydra import compose, initialize_config_dir
    from omegaconf import OmegaConf

    sft = module.endswith("sft_trainer")
    with initialize_config_dir(str(folder / "verl/trainer/config"), version_base=None):
        config = compose("sft_trainer_engine" if sft else "ppo_trainer", words)
    OmegaConf.to_container(config, resolve=True)
    from verl.utils.config import omega_conf_to_dataclass, validate_config

    if sft:
        for part in ("engine", "optim", "checkpoint"):
            omega_conf_to_dataclass(config[part])
    else:
        from verl.trainer.ppo.utils import need_critic, need_reference_policy

        uses = {"use_reference_policy": need_reference_policy(config), "use_critic": need_critic(config)}
        validate_config(config, **uses)
        omega_conf_to_dataclass(config.algorithm)
    names = [word.split("=", 1)[0].lstrip("+") for word in words]
    found = {name: OmegaConf.select(config, name) for name in [*names, "data.use_dynamic_bsz"]}
    return {name: OmegaConf.to_container(v) if OmegaConf.is_config(v) else v for name, v in found.items()}


def parse(folder: Path, module: str, words: list[str]) -> dict[str, object]:
    """Run the part of a command of OpenRLHF that parses and validates its arguments.

    Returns:
        The arguments, each under its dotted name.
    """
    path = folder / (module.replace(".", "/") + ".py")
    [main] = [node for node in ast.parse(path.read_text()).body if isinstance(node, ast.If)]
    taken: list[argparse.Namespace] = []
    before, sys.argv = sys.argv, [str(path), *words]
    spec = importlib.util.spec_from_file_location(
        "openrlhf.utils.config", folder / "openrlhf/utils/config.py"
    )  # alone: its package imports DeepSpeed
    for name in ("openrlhf", "openrlhf.utils"):
        sys.modules.setdefault(name, Stub(name))
    sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(sys.modules[spec.name])
    import datetime
    import os

    space = {
        "argparse": argparse,
        "os": os,
        "datetime": datetime.datetime,
        "train": taken.append,
        "__name__": "__main__",
    }
    try:
        exec(compile(ast.Module([main], []), str(path), "exec"), space)
    finally:
        sys.argv = before
    [args] = taken
    return flat(args)


def flat(args: argparse.Namespace, prefix: str = "") -> dict[str, object]:
    """Nested arguments under their dotted names."""
    found: dict[str, object] = {}
    for name, value in vars(args).items():
        found |= flat(value, f"{prefix}{name}.") if hasattr(value, "__dict__") else {prefix + name: value}
    return found


def reachable(folder: Path, module: str) -> list[Path]:
    """The files of the engine that the module imports, directly or not, also inside functions."""
    package = module.split(".")[0]
    todo, seen = [module], set[Path]()
    while todo:
        place = folder / todo.pop().replace(".", "/")
        path = place / "__init__.py" if place.is_dir() else place.with_suffix(".py")
        if not path.exists() or path in seen:
            continue
        seen.add(path)
        here = path.relative_to(folder).parts[:-1]
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                todo += [name.name for name in node.names]
            elif isinstance(node, ast.ImportFrom):
                start = [*here[: len(here) - node.level + 1]] if node.level else []
                base = ".".join([*start, *filter(None, [node.module])])
                todo += [base, *(f"{base}.{name.name}" for name in node.names)]
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                # classes that a table names in words
                todo += [node.value.rpartition(".")[0]] if node.value.startswith(f"{package}.") else []
    return sorted(seen)


class Reads(ast.NodeVisitor):
    """How a file reads options: ``group.leaf``, ``group["leaf"]``, ``group.get("leaf")`` or ``getattr(group, "leaf")``."""

    def __init__(self) -> None:
        self.pairs: set[tuple[str, str]] = set()

    def visit(self, node: ast.AST) -> None:
        base, leaf = None, None
        match node:
            case ast.Attribute(value=base, attr=leaf, ctx=ast.Load()):
                pass
            case ast.Subscript(value=base, slice=ast.Constant(value=str(leaf)), ctx=ast.Load()):
                pass
            case ast.Call(func=ast.Attribute(value=base, attr="get"), args=[ast.Constant(value=str(leaf)), *_]):
                pass
            case ast.Call(func=ast.Name(id="getattr"), args=[base, ast.Constant(value=str(leaf)), *_]):
                pass
        if leaf is not None:
            self.pairs.add((_last(base), leaf))
        self.generic_visit(node)


def _last(node: ast.AST | None) -> str:
    """The last name of an expression: ``b`` for ``a.b``, ``a["b"]`` and ``a.get("b")``."""
    match node:
        case ast.Name(id=name) | ast.Attribute(attr=name) | ast.Subscript(slice=ast.Constant(value=str(name))):
            return name
        case ast.Call(func=ast.Attribute(attr="get"), args=[ast.Constant(value=str(name)), *_]):
            return name
        case ast.Call(func=function):
            return _last(function)
        case ast.BoolOp(values=[first, *_]):
            return _last(first)
    return ""


#: What code calls the group of an option that it was handed, and where (read in verl 0.9.1).
HANDED: dict[str, tuple[tuple[str, str], ...]] = {
    "actor": (("config", "verl/trainer/ppo/core_algos.py"), ("config", "verl/workers/utils/losses.py")),
    "critic": (("config", "verl/workers/utils/losses.py"),),
    "optim": (("optim_config", "verl/workers/engine/"), ("optimizer_config", "verl/workers/engine/"), ("config", "verl/workers/config/optimizer.py")),
    "checkpoint": (("checkpoint_config", "verl/utils/checkpoint/"),),
    "rollout_correction": (("rollout_corr_config", "verl/trainer/ppo/rollout_corr_helper.py"),),
    "model": (("model_config", "verl/workers/engine/"),),
    "rollout": (("config", "verl/trainer/ppo/v1/"), ("config", "verl/workers/rollout/")),
    "reward_manager": (("reward_manager_cfg", "verl/trainer/ppo/reward.py"),),
    "custom_reward_function": (("reward_fn_config", "verl/trainer/ppo/reward.py"),),
    "data": (("config", "verl/utils/dataset/"), ("data_config", "verl/trainer/ppo/utils.py")),
}  # fmt: skip


def unread(folder: Path, module: str, options: list[str]) -> list[str]:
    """The options that no code reads which the command can reach.

    A reader names the option and its group: ``config.data.seed``, ``config["data"].get("seed")``, another option of the
    configuration whose value is ``${data.seed}``, or one of :data:`HANDED`.
    """
    readers: dict[str, set[tuple[str, str]]] = defaultdict(set)
    for path in reachable(folder, module):
        reads = Reads()
        reads.visit(ast.parse(path.read_text()))
        for group, leaf in reads.pairs:
            readers[leaf].add((group, str(path.relative_to(folder))))
    interpolated = set()
    for file in (folder / module.split(".")[0]).rglob("*.yaml"):
        interpolated |= set(re.findall(r"\$\{(?:oc\.select:)?([\w.]+)", file.read_text()))
    silent = []
    for option in options:
        *groups, leaf = option.split(".")
        group = groups[-1] if groups else "args"
        handed = HANDED.get(group, ())
        read = any(
            name == group or any(name == called and path.startswith(place) for called, place in handed)
            for name, path in readers[leaf]
        )
        silent += [] if read or option in interpolated else [option]
    return silent


if __name__ == "__main__":
    place = Path(sys.argv[1]).resolve()
    sys.path.insert(0, str(place))
    sys.meta_path.append(Stubs())
    for vllm in VLLM:
        sys.modules[vllm] = Stub(vllm)
    out, used = [], defaultdict(set)
    for case in json.load(sys.stdin):
        run = compose if case["module"].startswith("verl.") else parse
        try:
            values, problem = run(place, case["module"], case["words"]), ""
        except (Exception, SystemExit) as error:
            values, problem = {}, f"{type(error).__name__}: {error}"
        out.append({"name": case["name"], "module": case["module"], "values": values, "problem": problem})
        used[case["module"]] |= set(case["options"])
    silent = {module: unread(place, module, sorted(options)) for module, options in used.items()}
    json.dump({"cases": out, "unread": silent}, sys.stdout, default=str)
