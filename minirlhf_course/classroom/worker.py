"""The process in the sandbox that runs a submission. Started by :class:`minirlhf_course.classroom.runner.Server`."""

from __future__ import annotations

import base64
import socket
import sys
import time
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from minirlhf.core import provenance
from minirlhf.core.errors import UserError
from minirlhf.sandbox import wire
from minirlhf.sandbox.inside import SandboxWorker, describe
from minirlhf_course.classroom import cells, handles


class Student(SandboxWorker):
    """The sandboxed process: runs the submission's cells, then answers the grader's requests with data."""

    def __init__(self, sock: socket.socket, box: Path) -> None:
        from minirlhf_course.classroom.side_effects import SideEffects

        super().__init__(sock, box)
        self.module, self.effects = types.ModuleType("__main__"), SideEffects()

    @staticmethod
    def prepare() -> None:
        """Import torch once for all submissions, because the import takes seconds."""
        import numpy  # noqa: F401
        import torch

        import minirlhf_course.classroom.side_effects  # noqa: F401

        torch.set_num_threads(1)

    @staticmethod
    def prepare_more() -> None:
        """Import the compiler that the first step of an optimiser imports, once for all submissions: it takes seconds."""
        import torch._dynamo  # noqa: F401

    def _on_load(self, question: dict[str, Any]) -> list[str]:
        """Write the library, run the cells as in a notebook, and return the errors that they raised."""
        library = self.box / "library"
        for relative, text in question["library"].items():
            path = library / relative
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        for name in [m for m in sys.modules if provenance.is_ours(m)]:
            del sys.modules[name]
        sys.meta_path[:] = [f for f in sys.meta_path if "editable" not in repr(f)]
        sys.path.insert(0, str(library))
        sys.modules["__main__"] = self.module
        self.module.__dict__.update(question["preset"], display=print)
        errors = []
        for name, code in question["cells"]:
            try:
                exec(compile(code, name, "exec"), self.module.__dict__)
            except BaseException as problem:
                errors.append(describe(problem))
        return errors

    def _on_cut(self, question: dict[str, Any]) -> Any:
        """Split a file into cells without running them."""
        text = base64.b64decode(question["text"]).decode("utf-8")
        try:
            return {"cells": cells.code_cells(text, question["name"])}
        except UserError as problem:
            return {"problem": str(problem)}

    def _find(self, name: str) -> Any:
        if name not in self.module.__dict__:
            raise LookupError(name)
        return self.module.__dict__[name]

    def _watched(self, name: str) -> Any:
        return self.effects.watched(name, self._find(name))

    def _on_effects(self, question: dict[str, Any]) -> Any:
        return self.effects.noted

    def _on_value(self, question: dict[str, Any]) -> Any:
        return self._find(question["name"])

    def _on_call(self, question: dict[str, Any]) -> Any:
        args, kwargs, world = (
            handles.unpacked(wire.decode(question[part]), self._stand_in) for part in ("args", "kwargs", "world")
        )
        with handles.replaced(self._find(question["name"]), world):
            return self._watched(question["name"])(*args, **kwargs)

    def _stand_in(self, number: int) -> handles.Handle:
        """Return the function that asks the grader's handle of this number."""

        def ask(*args: Any, **kwargs: Any) -> Any:
            wire.send(self.sock, {"handle": number, "args": wire.encode((args, kwargs))})
            answer = wire.receive(self.sock)
            if answer is None or "error" in answer:
                raise RuntimeError(answer["error"] if answer else "nobody answers")
            return wire.decode(answer["ok"])

        return ask

    def _on_seconds(self, question: dict[str, Any]) -> Any:
        args, kwargs = wire.decode(question["args"]), wire.decode(question["kwargs"])
        return seconds(self._find(question["name"]), args, kwargs)

    def _on_gradient(self, question: dict[str, Any]) -> Any:
        args, kwargs = wire.decode(question["args"]), wire.decode(question["kwargs"])
        return gradient(self._watched(question["name"]), args, kwargs, question["wrt"])

    def _on_examine(self, question: dict[str, Any]) -> Any:
        args, kwargs = wire.decode(question["args"]), wire.decode(question["kwargs"])
        return examine(self._watched(question["name"]), args, kwargs, question["wrt"])


def seconds(f: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> float:
    """Return the seconds of computing of ``f(*args)``."""
    start = time.thread_time()
    f(*args, **kwargs)
    return time.thread_time() - start


def gradient(f: Any, args: tuple[Any, ...], kwargs: dict[str, Any], wrt: int) -> Any:
    """Return d(sum of ``f(*args)``)/d(``args[wrt]``) by autograd; zeros if the result does not depend on it."""
    import torch

    leaf = args[wrt].detach().clone().requires_grad_()
    result = f(*args[:wrt], leaf, *args[wrt + 1 :], **kwargs)
    if not isinstance(result, torch.Tensor) or not result.requires_grad:
        raise TypeError("the result does not depend on the input in a way that autograd can follow")
    (grad,) = torch.autograd.grad(result.sum(), leaf, allow_unused=True)
    return torch.zeros_like(leaf) if grad is None else grad


def examine(f: Any, args: tuple[Any, ...], kwargs: dict[str, Any], wrt: list[int | str]) -> dict[str, Any]:
    """Return the result of ``f``, and gradients.

    ``gradients[i]`` is the derivative with respect to argument ``wrt[i]`` (a position or a keyword) of a weighted sum
    of all floating-point entries of the result. Every entry has its own weight, so that no two derivatives cancel.
    The gradient is zero if the result does not depend on the argument.
    """
    import torch

    inputs: dict[Any, Any] = {**dict(enumerate(args)), **kwargs}
    leaves = [inputs[key].detach().clone().requires_grad_() for key in wrt]
    inputs.update((key, leaf.clone()) for key, leaf in zip(wrt, leaves, strict=True))  # f may write into them
    positional, keyword = [inputs[i] for i in range(len(args))], {name: inputs[name] for name in kwargs}
    result = f(*positional, **keyword)
    total, num_entries = torch.zeros((), dtype=torch.float64), 0
    for leaf in _tensors(result):
        if leaf.is_floating_point():
            weights = torch.cos(0.7 * torch.arange(num_entries, num_entries + leaf.numel(), dtype=torch.float64))
            total, num_entries = total + (weights * leaf.reshape(-1)).sum(), num_entries + leaf.numel()
    grads = (
        torch.autograd.grad(total, leaves, allow_unused=True)
        if leaves and total.requires_grad
        else [None] * len(leaves)
    )
    gradients = [torch.zeros_like(x) if g is None else g for x, g in zip(leaves, grads, strict=True)]
    return {"result": result, "gradients": gradients}


def _tensors(value: Any) -> Iterator[Any]:
    """Yield the tensors in nested lists, tuples and dictionaries."""
    import torch

    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, list | tuple | dict):
        for v in value.values() if isinstance(value, dict) else value:
            yield from _tensors(v)


GUEST = Student
