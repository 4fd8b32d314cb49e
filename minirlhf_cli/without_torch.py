"""Stand-ins for the packages that compute, for a process that only prints names.

``minirlhf train grpo --help`` shows the options of functions whose modules import torch and transformers. That takes
seconds, and help needs the functions' names and defaults only. After :func:`install` these imports succeed at once and give
placeholders; nothing can be computed in the process any more.
"""

from __future__ import annotations

import sys
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

PACKAGES = frozenset({"datasets", "peft", "safetensors", "tokenizers", "torch", "transformers"})


class _Kind(type):
    """The type of placeholders: each attribute, item, union and call of one is a placeholder; as a decorator it does nothing."""

    def __getattr__(cls, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return Placeholder

    def __call__(cls, *args: Any, **_: Any) -> Any:
        return args[0] if len(args) == 1 and callable(args[0]) else Placeholder

    def __getitem__(cls, _: Any) -> Any:
        return Placeholder

    def __or__(cls, _: Any) -> Any:
        return Placeholder

    __ror__ = __or__


class Placeholder(metaclass=_Kind):
    """What stands for a class or function of these packages."""


class _Module(ModuleType):
    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return Placeholder


class _Finder(MetaPathFinder, Loader):
    def find_spec(self, fullname: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        """Find the packages' modules here."""
        return ModuleSpec(fullname, self, is_package=True) if fullname.partition(".")[0] in PACKAGES else None

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        """Return an empty module."""
        return _Module(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        """Leave it empty."""


def install() -> None:
    """Let imports of :data:`PACKAGES` give placeholders, unless torch is there already."""
    if "torch" not in sys.modules:
        sys.meta_path.insert(0, _Finder())
