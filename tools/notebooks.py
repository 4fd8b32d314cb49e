"""The notebooks: ``notebooks/NN_name.py`` (py:percent, what authors write) becomes ``NN_name.ipynb``, executed.

    tools/notebooks.py build [05 …]     execute those whose text has changed (--force: all; --print-anew: keep nothing printed)
    tools/notebooks.py check [05 …]     run them again under nbval and hold time and memory against the budget

A cell that draws begins with ``# figure: name`` and ``# alt: what a reader who cannot see it should know``; the book shows
the figure by that name. A cell whose last line is ``Markdown(…)`` may begin with ``# table: name``; the book shows what it printed. Cells run on one thread; what they load from the zoo is trained before the clock starts.

What a reader sees is questions, equations, short code and figures. Cells that draw and cells of nothing but asserts are folded
away, by the rules of :func:`fold`, in JupyterLab, on Colab and on the site; the comments above and ``# NBVAL_CHECK_OUTPUT``
become metadata. What comes out between a prediction (``x = predict(…)``) and the text after its ``x.reveal(…)`` is folded until
the reader runs the cell, or on the site opens it.

A training ends in other digits on another processor. So what a cell has printed is kept, as the committed notebook has it, for as
long as its code and the code before it stay the same (:func:`keep_printed`): the pages that quote it do not change with the machine.
After a change of the library that changes what is printed, ``--force --print-anew`` writes it anew.

Budgets are in processor seconds, of the kernel and all other processes of the run, so that waiting for a busy machine costs
nothing. They are those of a reference: one core of the shared two-core server on which they were set, otherwise idle. A run that
takes more is looked at twice: a fixed piece of work, timed before and after, says how much slower the machine is just then (caches
and cores are shared); on a faster one nothing is corrected.
"""

import argparse
import ast
import base64
import functools
import hashlib
import io
import os
import re
import subprocess
import symtable
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "book" / "_ext"))

from repository import REPOSITORY  # noqa: E402

from minirlhf.core.errors import Facts  # noqa: E402

LONG = ("04", "12", "13", "14", "16", "20")
MEGABYTES = 2048
PATIENCE = (
    1800  # seconds that one cell, or a kernel's start, may take on a busy machine; a budget is no matter of waiting
)
SETUP = f"""\
import importlib.util

if importlib.util.find_spec("minirlhf") is None:  # on Colab
    %pip install -q "minirlhf @ git+{REPOSITORY}"
%matplotlib inline
%config InlineBackend.figure_formats = ["retina"]"""
# Linux counts a process's largest memory from that of the process that started it, which may be a large test run. VmHWM is its own.
MEASURE = """\
import pathlib as _pathlib
import resource as _resource

_used = _resource.getrusage(_resource.RUSAGE_SELF)
_status = _pathlib.Path("/proc/self/status")
_peak = int(_status.read_text().split("VmHWM:")[1].split()[0]) if _status.is_file() else _used.ru_maxrss
print(_used.ru_utime + _used.ru_stime, _peak)"""
WORK = """\
import time
import torch

torch.manual_seed(0)
torch.set_num_threads(1)
layers = torch.nn.Sequential(torch.nn.Linear(64, 192), torch.nn.SiLU(), torch.nn.Linear(192, 64))
x = torch.randn(512, 64)
start = None
for step in range(600):
    if step == 100:
        start = time.process_time()
    loss = (layers(x).softmax(-1) - x).square().mean()
    loss.backward()
    counts = {}
    for i in range(3000):
        counts[i % 97] = counts.get(i % 97, 0) + i
print(time.process_time() - start)"""
WORK_SECONDS = 1.15  # of processor time, for WORK on the reference (four runs: 2.29 to 2.40 for twice of it)
RSS_PER_MEGABYTE = 2**20 if sys.platform == "darwin" else 2**10  # bytes on macOS, kilobytes on Linux
HEADER = re.compile(r"# (figure|alt|table): (.*)")
CHECKED = "# NBVAL_CHECK_OUTPUT"
SLOW = 3.0  # seconds of a cell from which on a reader should see a bar
KERNEL = {"display_name": "Python 3", "language": "python", "name": "python3"}


class Refused(Facts, Exception):
    """A notebook that cannot be published as it is; its facts say why."""


@dataclass(frozen=True)
class Cost:
    """What a run took: processor seconds, the largest process, and how many times slower than the reference the machine was then."""

    seconds: float
    megabytes: float
    slowness: float = 1.0

    @property
    def reference(self) -> float:
        """Seconds of the reference."""
        return self.seconds / self.slowness


def budget(path: Path) -> float:
    """Processor seconds that a notebook may take, imports included."""
    return 90.0 if path.name[:2] in LONG else 40.0


def sources(wanted: list[str]) -> list[Path]:
    """The sources, of these chapters if any are named."""
    found = [p for p in sorted((ROOT / "notebooks").glob("[0-9][0-9]_*.py")) if not wanted or p.name[:2] in wanted]
    if missing := sorted(set(wanted) - {p.name[:2] for p in found}):
        sys.exit(f"notebooks: no notebooks/{missing[0]}_*.py")
    return found


def digest(text: str) -> str:
    """Sixteen digits that change with the text."""
    return hashlib.sha256(text.encode()).hexdigest()[:16]


# -- from text to cells ------------------------------------------------------------------------------------------


def headers(code: str) -> tuple[dict[str, str], str]:
    """``{"figure": name, "alt": text}`` or ``{"table": name}`` from a cell's first comment lines (lines with deeper indent go on), and the
    cell without them.
    """
    found: dict[str, str] = {}
    last = ""
    lines = code.splitlines()
    while lines:
        match = HEADER.fullmatch(lines[0])
        if match:
            last = match[1]
            found[last] = match[2].strip()
        elif last and lines[0].startswith("#   "):
            found[last] += " " + lines[0][1:].strip()
        else:
            break
        lines.pop(0)
    return found, "\n".join(lines)


def only_asserts(body: list[ast.stmt]) -> bool:
    """Nothing but asserts, under conditions and in loops too."""
    return bool(body) and all(
        isinstance(part, ast.Assert)
        or (
            isinstance(part, ast.If | ast.For)
            and only_asserts(part.body)
            and (not part.orelse or only_asserts(part.orelse))
        )
        for part in body
    )


def names(code: str) -> tuple[set[str], set[str]]:
    """Names that a cell binds, and names that it takes from cells before it."""
    table = symtable.symtable(code, "cell", "exec")
    bound = {s.get_name() for s in table.get_symbols() if s.is_assigned() or s.is_imported() or s.is_namespace()}
    used = {s.get_name() for s in table.get_symbols() if s.is_referenced()}
    inner = table.get_children()
    while inner:
        part = inner.pop()
        used |= {s.get_name() for s in part.get_symbols() if s.is_global() and s.is_referenced()}
        inner += part.get_children()
    return bound, used - bound


def calls(tree: ast.AST, name: str) -> list[str]:
    """Variables ``x`` of ``x = name(…)``, or of ``x.name(…)``."""
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call):
            if isinstance(node.value.func, ast.Name) and node.value.func.id == name:
                found += [target.id for target in node.targets if isinstance(target, ast.Name)]
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == name:
            found += [node.func.value.id] if isinstance(node.func.value, ast.Name) else []
    return found


def prompts(cell, closed: str, opened: str) -> None:
    """What the site says on the fold of a cell."""
    cell.metadata.setdefault("mystnb", {}).update(code_prompt_show=closed, code_prompt_hide=opened)


def fold(notebook, path: Path) -> None:
    """Fold away what a reader need not see, or not yet; by the syntax of the cells alone.

    * The first code cell (imports and settings): folded on the site.
    * A cell that draws: its code is folded everywhere. It may bind nothing that a visible cell uses.
    * A cell of nothing but asserts: folded, and not on the site. No visible cell asserts, nor silences what trains.
    * From a prediction to the text after its answer: output folded; on the site behind "Predict first, then open".

    Raises:
        Refused: a cell breaks one of these rules, or a prediction has no answer or more than one.
    """
    drawn: set[str] = set()  # names bound last by a cell that draws
    opened: set[str] = set()  # predictions without an answer yet
    hidden = False  # are outputs folded?
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    for cell in notebook.cells:
        if cell.cell_type != "code":
            hidden = bool(opened)
            continue
        tree = ast.parse(cell.source)
        bound, used = names(cell.source)
        draws, asserts = cell.id.startswith("figure-"), only_asserts(tree.body)
        tags = cell.metadata["tags"]
        if draws or asserts:
            cell.metadata.update({"jupyter": {"source_hidden": True}, "cellView": "form"})
        elif any(isinstance(node, ast.Assert) for node in ast.walk(tree)):
            message = f"{path.name}, cell {cell.id}: asserts stand in a cell of their own, which is folded away"
            raise Refused(message, argument=cell.id, problem="assert")
        elif any(isinstance(node, ast.keyword) and ast.unparse(node) == "quiet=True" for node in ast.walk(tree)):
            message = f"{path.name}, cell {cell.id}: quiet=True hides the bar that a reader waits for"
            raise Refused(message, argument="quiet", value=True)
        elif strays := sorted(used & drawn):
            message = f"{path.name}, cell {cell.id} uses {strays[0]!r} of a cell that draws, which is folded away"
            raise Refused(message, value=strays[0], problem="drawn")
        drawn = drawn | bound if draws else drawn - bound
        asked, revealed = set(calls(tree, "predict")), set(calls(tree, "reveal"))
        if wrong := asked & opened | asked & revealed | revealed - opened:
            raise Refused(
                f"{path.name}, cell {cell.id}: {min(wrong)!r} is not first asked in one cell and then revealed in another",
                value=min(wrong),
                problem="order",
            )
        if asked and len(tree.body) > 1:  # its code is not on the site
            message = f"{path.name}, cell {cell.id}: the prediction {min(asked)!r} stands in a cell of its own"
            raise Refused(message, value=min(asked), problem="shared cell")
        opened = (opened | asked) - revealed
        if asserts:
            tags.append("remove-cell")
        elif asked:
            tags += ["prediction", "remove-input"]
        elif hidden:
            tags += ["predicted", "hide-output", *(["remove-input"] if draws else [])]
            cell.metadata.setdefault("jupyter", {})["outputs_hidden"] = True
            cell.metadata["collapsed"] = True
            prompts(cell, "Predict first, then open" + " the figure" * draws, "What came out")
        elif draws or cell is code[0]:
            tags.append("hide-input")
            prompts(cell, *["How it is drawn" if draws else "Imports and settings"] * 2)
        hidden = hidden or bool(opened)
    if opened:
        raise Refused(
            f"{path.name}: the prediction {min(opened)!r} has no answer", value=min(opened), problem="unanswered"
        )


def cells(path: Path):
    """The notebook of a source, not executed, with ids that stay the same as long as their cell does.

    Raises:
        Refused: a figure without a name or alt text, a name used twice, or what :func:`fold` refuses.
    """
    import jupytext
    import nbformat

    text = path.read_text(encoding="utf-8")
    notebook = jupytext.reads(text, fmt="py:percent")
    seen: dict[str, int] = {}
    for cell in notebook.cells:
        head, rest = headers(cell.source) if cell.cell_type == "code" else ({}, cell.source)
        if head and set(head) not in ({"figure", "alt"}, {"table"}):
            message = f"{path.name}: a cell that draws needs both '# figure:' and '# alt:'; found {head}"
            raise Refused(message, value=head, expected=["figure", "alt"])
        kind = next(iter(head), "")
        name = f"{kind}-{head[kind]}" if head else digest(cell.source)[:8]
        seen[name] = seen.get(name, 0) + 1
        if head and (seen[name] > 1 or not re.fullmatch(r"[a-z0-9-]{1,50}", head[kind])):
            message = f"{path.name}: {kind} name {head[kind]!r}; expected one of its own, like 'kl-frontier'"
            raise Refused(message, argument=kind, value=head[kind])
        cell["id"] = name if seen[name] == 1 else f"{name}-{seen[name]}"
        if cell.cell_type != "code":
            continue
        cell.metadata["tags"] = ["nbval-check-output"] if CHECKED in rest.splitlines() else []
        cell.source = "\n".join(line for line in rest.splitlines() if line != CHECKED).strip("\n")
        if "alt" in head:
            cell.metadata["mystnb"] = {"image": {"alt": head["alt"]}}
    fold(notebook, path)
    setup = nbformat.v4.new_code_cell(SETUP, id=digest(SETUP)[:8], metadata={"tags": ["remove-cell"]})
    at = 1 if notebook.cells and notebook.cells[0].cell_type == "markdown" else 0
    notebook.cells.insert(at, setup)
    notebook.metadata = {"kernelspec": KERNEL, "minirlhf": {"source": digest(text)}}
    notebook.nbformat, notebook.nbformat_minor = 4, 5
    return notebook


# -- running -----------------------------------------------------------------------------------------------------


def fill_zoo(path: Path) -> None:
    """Train what the notebook loads, so that neither its clock nor its output depends on the cache."""
    text = path.read_text(encoding="utf-8")
    if "zoo" not in text:
        return
    from minirlhf.stages import zoo

    for name in sorted(set(re.findall(r'"([a-z0-9-]+)"', text)) & set(zoo.ENTRIES)):
        zoo.load(name)


def prepare_images(notebook) -> None:
    """Make images small in bytes, and tell the book how wide each is meant to be.

    They have twice as many pixels as that, for sharp screens and print; 256 colours are enough for a plot.
    """
    for cell in notebook.cells:
        for out in cell.get("outputs", []):
            if "image/png" not in out.get("data", {}):
                continue
            out.data["image/png"] = with_fewer_colours(out.data["image/png"])
            width = out.get("metadata", {}).get("image/png", {}).get("width")
            if width and "image" in cell.metadata.get("mystnb", {}):
                cell.metadata["mystnb"]["image"]["width"] = f"{width}px"


def with_fewer_colours(png: str) -> str:
    """An image in base64 with a palette of 256 colours, or as it was if that is no smaller."""
    from PIL import Image

    found = Image.open(io.BytesIO(base64.b64decode(png))).convert("RGB")
    smaller = io.BytesIO()
    found.quantize(256, dither=Image.Dither.NONE).save(smaller, "png", optimize=True)
    return min(png.strip(), base64.b64encode(smaller.getvalue()).decode(), key=len)


def without_bars(notebook) -> list[str]:
    """Take the progress bars out of the outputs; the ids of cells that took longer than SLOW seconds and showed none (imports aside)."""
    silent = []
    for cell in notebook.cells:
        if cell.cell_type != "code":
            continue
        imports = any(line.startswith("from minirlhf") for line in cell.source.splitlines())
        took = cell.metadata.pop("execution", {})
        begun, ended = (took.get(key) for key in ("iopub.execute_input", "shell.execute_reply"))
        seconds = (
            (datetime.fromisoformat(ended) - datetime.fromisoformat(begun)).total_seconds() if begun and ended else 0.0
        )
        kept, bars = [], False
        for out in cell.outputs:
            if out.get("name") == "stderr" and "\r" in out.text:
                bars = True
                out.text = re.sub(r"\r[^\r\n]*", "", out.text)
                if not out.text.strip():
                    continue
            if kept and out.output_type == "stream" and kept[-1].get("name") == out.name:
                kept[-1].text += out.text
            else:
                kept.append(out)
        cell.outputs = kept
        if seconds > SLOW and not bars and not imports:
            silent.append(f"{cell.id} ({seconds:.0f} s)")
    return silent


def lineage(notebook) -> dict[str, str]:
    """``{cell id: digest}`` of the code cells: of a cell's code and of that before it which draws nothing.

    Comments do not count, nor do lines that import: a function that has moved to another module prints what it did. Cells of IPython's
    commands, which Python cannot parse, are taken by their text.
    """
    found, before = {}, ""
    for cell in notebook.cells:
        if cell.cell_type != "code":
            continue
        try:
            body = ast.parse(cell.source).body
            code = "".join(ast.dump(line) for line in body if not isinstance(line, ast.Import | ast.ImportFrom))
        except SyntaxError:
            code = cell.source
        found[cell.id] = digest(before + code)
        if not cell.id.startswith("figure-"):
            before = found[cell.id]
    return found


def keep_printed(notebook, committed) -> list[str]:
    """Give the cells the outputs that they have in ``committed``, where their lineage is the same; the ids of those that printed otherwise.

    Text and figure of a cell go together. Predictions are kept too: nobody was there. A cell whose outputs were cleared has nothing to keep.
    A cell whose output is compared exactly is the same on every machine, so it takes what it prints today.
    """
    known = {mark: cell_id for cell_id, mark in lineage(committed).items()}
    were = {cell.id: cell for cell in committed.cells}
    other = []
    for cell_id, mark in lineage(notebook).items():
        if mark not in known or not (kept := were[known[mark]].outputs):
            continue
        [cell] = [cell for cell in notebook.cells if cell.id == cell_id]
        if "nbval-check-output" in cell.metadata.get("tags", []):
            continue
        if _texts(cell.outputs) != _texts(kept):
            other.append(cell_id)
        cell.outputs = [
            type(out)(out, execution_count=cell.execution_count) if "execution_count" in out else out for out in kept
        ]
    return other


def _texts(outputs) -> list[str]:
    """What outputs say, without their pictures."""
    return [out.get("text") or out.get("data", {}).get("text/plain", "") for out in outputs]


def examine(notebook, path: Path) -> None:
    """Refuse what a reader should not see.

    Raises:
        Refused: an error, output on stderr, or an image without alt text.
    """
    for cell in notebook.cells:
        for out in cell.get("outputs", []):
            if out.output_type == "error":
                raise Refused(
                    f"{path.name}, cell {cell.id}: {out.ename}: {out.evalue}", value=out.ename, problem="raised"
                )
            if out.get("name") == "stderr":
                message = f"{path.name}, cell {cell.id} writes to stderr: {out.text[:300]!r}"
                raise Refused(message, argument=cell.id, problem="stderr")
            if "image/png" in out.get("data", {}) and "image" not in cell.metadata.get("mystnb", {}):
                message = f"{path.name}, cell {cell.id} draws; it needs '# figure: name' and '# alt: text'"
                raise Refused(message, argument=cell.id, expected=["figure", "alt"])


def execute(path: Path, anew: bool = False) -> Cost:
    """Run a source from top to bottom and write its ``.ipynb``; what cells of unchanged code printed before is kept, unless ``anew``.

    Raises:
        Refused: it cannot be published.
    """
    import nbformat
    from nbclient import NotebookClient

    notebook = cells(path)
    resources = {"metadata": {"path": path.parent}}
    client = NotebookClient(
        notebook, timeout=PATIENCE, startup_timeout=PATIENCE, record_timing=True, resources=resources
    )
    notebook.cells.append(nbformat.v4.new_code_cell(MEASURE, id="measure"))
    client.execute(env={**os.environ, "OMP_NUM_THREADS": "1"})
    seconds, peak = map(float, "".join(o.text for o in notebook.cells.pop().outputs).split())
    if silent := without_bars(notebook):
        print(f"{path.stem:<40} more than {SLOW:.0f} s without a bar: {', '.join(silent)}")
    examine(notebook, path)
    prepare_images(notebook)
    notebook.metadata.pop("language_info", None)
    target = path.with_suffix(".ipynb")
    if target.is_file() and not anew:
        other = keep_printed(notebook, nbformat.read(target, as_version=4))
        if other:
            print(f"{path.stem:<40} prints otherwise here, and was kept (--print-anew takes it): {', '.join(other)}")
        examine(notebook, path)
    target.write_text(nbformat.writes(notebook, indent=1).rstrip() + "\n", encoding="utf-8")
    return Cost(seconds, peak / RSS_PER_MEGABYTE)


def is_current(path: Path) -> bool:
    """Whether the ``.ipynb`` was made from the source as it is now."""
    import nbformat

    target = path.with_suffix(".ipynb")
    if not target.is_file():
        return False
    made = nbformat.read(target, as_version=4).metadata.get("minirlhf", {})
    return made.get("source") == digest(path.read_text(encoding="utf-8"))


def rerun(path: Path) -> Cost:
    """Run the committed notebook under nbval, in processes of its own.

    Raises:
        Refused: a cell fails, or a cell marked ``nbval-check-output`` prints something else.
    """
    patience = [f"--nbval-cell-timeout={PATIENCE}", f"--nbval-kernel-startup-timeout={PATIENCE}"]
    options = ["--nbval-lax", "--nbval-current-env", *patience, "-q", "-p", "no:cacheprovider", "-o", "addopts="]
    command = [sys.executable, "-m", "pytest", *options, str(path.with_suffix(".ipynb"))]
    process = subprocess.Popen(
        command,
        cwd=ROOT,
        env={**os.environ, "OMP_NUM_THREADS": "1", "MINIRLHF_NO_BAR": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    said = process.stdout.read().decode(errors="replace")
    _, status, usage = os.wait4(process.pid, 0)  # its peak is that of the kernel, or of this process if that is larger
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode != 0:
        raise Refused(f"{path.name} under nbval:\n{said[-4000:]}", problem="nbval")
    return Cost(usage.ru_utime + usage.ru_stime, usage.ru_maxrss / RSS_PER_MEGABYTE)


def work() -> float:
    """Processor seconds that :data:`WORK` takes here and now."""
    return float(subprocess.run([sys.executable, "-c", WORK], capture_output=True, text=True, check=True).stdout)


def slowness() -> float:
    """How many times longer :data:`WORK` takes here and now than on the reference; at least 1."""
    return max(1.0, work() / WORK_SECONDS)


def measured(run: Callable[[Path], Cost], path: Path) -> Cost:
    """What a run took. One that takes too long goes again, between two looks at how fast the machine is; the shorter one counts,
    as of two timings it says more about the notebook."""
    cost = run(path)
    if cost.seconds <= budget(path):
        return cost
    before = slowness()
    again = run(path)
    now = (before + slowness()) / 2
    return min(replace(cost, slowness=before), replace(again, slowness=now), key=lambda cost: cost.reference)


def report(path: Path, cost: Cost) -> bool:
    """Print what a run took; whether that is within the budget."""
    within = cost.reference <= budget(path) and cost.megabytes <= MEGABYTES
    allowed = "" if within else f"  OVER BUDGET: {budget(path):.0f} s, {MEGABYTES} MB"
    corrected = f", {cost.reference:.1f} of the reference" if cost.slowness > 1 else ""
    took = f"{cost.seconds:6.1f} processor seconds{corrected} {cost.megabytes:7.0f} MB"
    print(f"{path.stem:<40} {took}{allowed}", flush=True)
    return within


def main() -> int:
    """Parse the arguments and run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("command", choices=("build", "check"))
    parser.add_argument("chapters", nargs="*", metavar="NN")
    parser.add_argument("--force", action="store_true", help="build also what has not changed")
    parser.add_argument(
        "--print-anew", action="store_true", help="keep nothing that the committed notebook has printed"
    )
    args = parser.parse_intermixed_args()
    fine = True
    for path in sources(args.chapters):
        try:
            if args.command == "check":
                if not is_current(path):
                    raise Refused(f"{path.name} has changed; run tools/notebooks.py build {path.name[:2]}")
                fill_zoo(path)
                fine &= report(path, measured(rerun, path))
            elif args.force or not is_current(path):
                fill_zoo(path)
                fine &= report(path, measured(functools.partial(execute, anew=args.print_anew), path))
            else:
                print(f"{path.stem:<40} unchanged")
        except Refused as problem:
            print(f"notebooks: {problem}", file=sys.stderr)
            fine = False
    return 0 if fine else 1


if __name__ == "__main__":
    sys.exit(main())
