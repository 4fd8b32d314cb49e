"""What a reader meets on the way of one algorithm: the files, functions and lines of the library that two steps pass through.

    python benchmarks/path.py            # both runs
    python benchmarks/path.py grpo -v    # one of them, with every function

Counted is what is executed between the call of the trainer and its return, imports before it excluded: files of the package;
functions with a name (a comprehension or lambda belongs to the function that holds it, a method that a dataclass writes by
itself to nobody); and lines on which something ran. A test holds the sums below :data:`BOUNDS`.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import CodeType, FrameType
from typing import Any
from unittest import mock

import minirlhf

#: What a run may pass through in a fresh process: files, functions, lines. They are to fall. GRPO's rose once, from (35, 162, 911):
#: replies end where the chat template ends them, a run's origin is kept, and metrics show while it goes on.
#: By one function and a line more: a reply keeps the indentation of its first line by the same code as in an exported grader.
#: GRPO's lines were 954 before its loss had a name: the rest are those of `losses.policy_loss`, which readers are sent to first.
#: By seven lines more: a step measures how alike its completions are, and says if the grader applies to none of them.
#: By two lines more: a reference reads no more rows at once than the update, and fast paths are compared without autocast.
BOUNDS = {"grpo": (36, 185, 1065), "dpo": (27, 110, 585)}

ROOT = Path(minirlhf.__file__).parent


@dataclass(frozen=True)
class Passed:
    """What a call passed through.

    Attributes:
        functions: to the file of each, as seen from the package, the names of its functions.
        lines: to each file the numbers of its lines.
    """

    functions: dict[str, set[str]]
    lines: dict[str, set[int]]

    def sums(self, folder: str = "") -> tuple[int, int, int]:
        """Files, functions and lines, of all or of one folder of the package."""
        files = [file for file in self.lines if file.startswith(folder)]
        return (
            len(files),
            sum(len(self.functions.get(file, ())) for file in files),
            sum(len(self.lines[file]) for file in files),
        )


def passed(call: Callable[[], object]) -> Passed:
    """Run ``call`` and write down what of the package it passes through."""
    functions: defaultdict[str, set[str]] = defaultdict(set)
    lines: defaultdict[str, set[int]] = defaultdict(set)
    known: dict[CodeType, str] = {}  # "" for code that is not of the package

    def file_of(code: CodeType) -> str:
        if code not in known:
            path = Path(code.co_filename)
            known[code] = path.relative_to(ROOT).as_posix() if path.is_relative_to(ROOT) else ""
        return known[code]

    def trace(frame: FrameType, event: str, argument: Any) -> Any:
        file = file_of(frame.f_code)
        if not file or frame.f_code.co_name == "<module>":  # an import within a function
            return None
        if event == "call" and not frame.f_code.co_name.startswith("<"):
            functions[file].add(frame.f_code.co_qualname)
        if event == "line":
            lines[file].add(frame.f_lineno)
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        call()
    finally:
        sys.settrace(before)
    return Passed(dict(functions), dict(lines))


def grpo() -> Passed:
    """Two steps of GRPO from a fresh tiny model on a tiny world, with the settings as they come, in memory."""
    from minirlhf.data import tasks
    from minirlhf.feedback.rewards import task_problems, task_reward
    from minirlhf.models.tiny import tiny_model
    from minirlhf.models.tokenizers import word_tokenizer
    from minirlhf.recipes import GRPO
    from minirlhf.trainers.online import OnlineConfig, train_online

    task = tasks.get("sort_digits")
    tokenizer = word_tokenizer(task.words)
    model, config = tiny_model("nano", tokenizer, seed=0), OnlineConfig(max_steps=2)
    problems, reward = task_problems(task, "train"), task_reward(task)
    return passed(lambda: train_online(model, problems, reward, GRPO, config, tokenizer=tokenizer, quiet=True))


def dpo() -> Passed:
    """Two steps of DPO from a fresh tiny model on a tiny world, likewise; nobody has asked the reference before."""
    from minirlhf.data import tasks
    from minirlhf.data.chat import conversation, encode
    from minirlhf.models.tiny import tiny_model
    from minirlhf.models.tokenizers import word_tokenizer
    from minirlhf.recipes.offline import get_preference
    from minirlhf.trainers.offline import OfflineConfig, pair, train_offline

    task = tasks.get("sort_digits")
    tokenizer = word_tokenizer(task.words)
    model, config, row = tiny_model("nano", tokenizer, seed=0), OfflineConfig(max_steps=2), get_preference("dpo")
    right = [(prompt, task.reference(prompt)) for prompt in task.prompts("train")[:64]]
    sides = [(encode(tokenizer, conversation(p, a)), encode(tokenizer, conversation(p, f"{a} {a}"))) for p, a in right]
    pairs, pad = [pair(*two) for two in sides], tokenizer.pad_token_id
    with tempfile.TemporaryDirectory() as folder, mock.patch.dict("os.environ", {"MINIRLHF_CACHE": folder}):
        return passed(lambda: train_offline(model, pairs, row, config, pad_token_id=pad, quiet=True))


RUNS: dict[str, Callable[[], Passed]] = {"grpo": grpo, "dpo": dpo}


def main() -> None:
    """Print the sums, whole and by folder."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="*", choices=[*RUNS, []], help="which; by default all")
    parser.add_argument("-v", "--verbose", action="store_true", help="every file with its functions")
    arguments = parser.parse_args()
    for name in arguments.runs or RUNS:
        found = RUNS[name]()
        print(f"{name:20} {'files':>6} {'functions':>10} {'lines':>6}")
        for folder in ("", *sorted({file.split("/")[0] for file in found.lines})):
            print(f"  {folder or 'all':18} {'{:6} {:10} {:6}'.format(*found.sums(folder))}")
        for file in sorted(found.lines) if arguments.verbose else ():
            print(f"  {file} ({len(found.lines[file])}): {', '.join(sorted(found.functions.get(file, ())))}")


if __name__ == "__main__":
    main()
