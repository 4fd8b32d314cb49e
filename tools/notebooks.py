"""The notebooks: ``notebooks/NN_name.py`` (py:percent, what authors write) becomes ``NN_name.ipynb``, executed.

    tools/notebooks.py build [05 …]     execute those whose text has changed (--force: all)
    tools/notebooks.py check [05 …]     run them again under nbval and hold time and memory against the budget

A cell that draws begins with ``# figure: name`` and ``# alt: what a reader who cannot see it should know``; the book shows
the figure by that name. Cells run on one thread; what they load from the zoo is trained before the clock starts.

Budgets are in seconds of a reference: one core of the shared two-core server on which they were set, otherwise idle. On a slower or
busier machine a fixed piece of work, timed before and after a run, says how much slower; on a faster one nothing is corrected.
"""

import argparse
import base64
import hashlib
import io
import os
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "book" / "_ext"))

from repository import REPOSITORY  # noqa: E402

LONG = ("04", "12", "13", "14", "20")
MEGABYTES = 2048
SETUP = f"""\
import importlib.util

if importlib.util.find_spec("minirlhf") is None:  # on Colab
    %pip install -q "minirlhf @ git+{REPOSITORY}"
%matplotlib inline
%config InlineBackend.figure_formats = ["retina"]"""
MEASURE = """\
import resource as _resource

_used = _resource.getrusage(_resource.RUSAGE_SELF)
print(_used.ru_utime + _used.ru_stime, _used.ru_maxrss)"""
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
HEADER = re.compile(r"# (figure|alt): (.*)")
KERNEL = {"display_name": "Python 3", "language": "python", "name": "python3"}


class Refused(Exception):
    """A notebook that cannot be published as it is."""


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


def headers(code: str) -> dict[str, str]:
    """``{"figure": name, "alt": text}`` from a cell's first comment lines; lines with deeper indent go on."""
    found: dict[str, str] = {}
    last = ""
    for line in code.splitlines():
        match = HEADER.fullmatch(line)
        if match:
            last = match[1]
            found[last] = match[2].strip()
        elif last and line.startswith("#   "):
            found[last] += " " + line[1:].strip()
        else:
            break
    return found


def cells(path: Path):
    """The notebook of a source, not executed, with ids that stay the same as long as their cell does.

    Raises:
        Refused: a figure without a name or alt text, or a name used twice.
    """
    import jupytext
    import nbformat

    text = path.read_text(encoding="utf-8")
    notebook = jupytext.reads(text, fmt="py:percent")
    setup = nbformat.v4.new_code_cell(SETUP, metadata={"tags": ["remove-cell"]})
    at = 1 if notebook.cells and notebook.cells[0].cell_type == "markdown" else 0
    notebook.cells.insert(at, setup)
    notebook.metadata = {"kernelspec": KERNEL, "minirlhf": {"source": digest(text)}}
    notebook.nbformat, notebook.nbformat_minor = 4, 5
    seen: dict[str, int] = {}
    for cell in notebook.cells:
        head = headers(cell.source) if cell.cell_type == "code" else {}
        if head and set(head) != {"figure", "alt"}:
            raise Refused(f"{path.name}: a cell that draws needs both '# figure:' and '# alt:'; found {head}")
        name = f"figure-{head['figure']}" if head else digest(cell.source)[:8]
        seen[name] = seen.get(name, 0) + 1
        if head and (seen[name] > 1 or not re.fullmatch(r"[a-z0-9-]{1,50}", head["figure"])):
            raise Refused(f"{path.name}: figure name {head['figure']!r}; expected one of its own, like 'kl-frontier'")
        cell["id"] = name if seen[name] == 1 else f"{name}-{seen[name]}"
        if head:
            cell.metadata["mystnb"] = {"image": {"alt": head["alt"]}}
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
            if width and "mystnb" in cell.metadata:
                cell.metadata["mystnb"]["image"]["width"] = f"{width}px"


def with_fewer_colours(png: str) -> str:
    """An image in base64 with a palette of 256 colours, or as it was if that is no smaller."""
    from PIL import Image

    found = Image.open(io.BytesIO(base64.b64decode(png))).convert("RGB")
    smaller = io.BytesIO()
    found.quantize(256, dither=Image.Dither.NONE).save(smaller, "png", optimize=True)
    return min(png.strip(), base64.b64encode(smaller.getvalue()).decode(), key=len)


def examine(notebook, path: Path) -> None:
    """Refuse what a reader should not see.

    Raises:
        Refused: an error, output on stderr, or an image without alt text.
    """
    for cell in notebook.cells:
        for out in cell.get("outputs", []):
            if out.output_type == "error":
                raise Refused(f"{path.name}, cell {cell.id}: {out.ename}: {out.evalue}")
            if out.get("name") == "stderr":
                raise Refused(f"{path.name}, cell {cell.id} writes to stderr: {out.text[:300]!r}")
            if "image/png" in out.get("data", {}) and "mystnb" not in cell.metadata:
                raise Refused(f"{path.name}, cell {cell.id} draws; it needs '# figure: name' and '# alt: text'")


def execute(path: Path) -> Cost:
    """Run a source from top to bottom and write its ``.ipynb``.

    Raises:
        Refused: it cannot be published.
    """
    import nbformat
    from nbclient import NotebookClient

    notebook = cells(path)
    client = NotebookClient(notebook, timeout=300, record_timing=False, resources={"metadata": {"path": path.parent}})
    notebook.cells.append(nbformat.v4.new_code_cell(MEASURE, id="measure"))
    client.execute(env={**os.environ, "OMP_NUM_THREADS": "1"})
    seconds, peak = map(float, notebook.cells.pop().outputs[0].text.split())
    examine(notebook, path)
    prepare_images(notebook)
    notebook.metadata.pop("language_info", None)
    target = path.with_suffix(".ipynb")
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
        Refused: a cell fails, or a cell marked ``# NBVAL_CHECK_OUTPUT`` prints something else.
    """
    options = ["--nbval-lax", "--nbval-current-env", "--nbval-cell-timeout=300", "-q", "-p", "no:cacheprovider"]
    command = [sys.executable, "-m", "pytest", *options, "-o", "addopts=", str(path.with_suffix(".ipynb"))]
    process = subprocess.Popen(
        command, cwd=ROOT, env={**os.environ, "OMP_NUM_THREADS": "1"}, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    said = process.stdout.read().decode(errors="replace")
    _, status, usage = os.wait4(process.pid, 0)  # its peak is that of the kernel, the largest process below it
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode != 0:
        raise Refused(f"{path.name} under nbval:\n{said[-4000:]}")
    return Cost(usage.ru_utime + usage.ru_stime, usage.ru_maxrss / RSS_PER_MEGABYTE)


def slowness() -> float:
    """How many times longer :data:`WORK` takes here and now than on the reference; at least 1."""
    done = subprocess.run([sys.executable, "-c", WORK], capture_output=True, text=True, check=True)
    return max(1.0, float(done.stdout) / WORK_SECONDS)


def timed(run: Callable[[Path], Cost], path: Path) -> Cost:
    """What a run took, between two looks at how fast the machine is."""
    before = slowness()
    cost = run(path)
    return replace(cost, slowness=(before + slowness()) / 2)


def report(path: Path, cost: Cost) -> bool:
    """Print what a run took; whether that is within the budget."""
    within = cost.reference <= budget(path) and cost.megabytes <= MEGABYTES
    allowed = "" if within else f"  OVER BUDGET: {budget(path):.0f} s, {MEGABYTES} MB"
    took = f"{cost.seconds:6.1f} s of one core, {cost.reference:6.1f} s of the reference {cost.megabytes:7.0f} MB"
    print(f"{path.stem:<40} {took}{allowed}", flush=True)
    return within


def main() -> int:
    """Parse the arguments and run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("command", choices=("build", "check"))
    parser.add_argument("chapters", nargs="*", metavar="NN")
    parser.add_argument("--force", action="store_true", help="build also what has not changed")
    args = parser.parse_intermixed_args()
    fine = True
    for path in sources(args.chapters):
        try:
            if args.command == "check":
                if not is_current(path):
                    raise Refused(f"{path.name} has changed; run tools/notebooks.py build {path.name[:2]}")
                fill_zoo(path)
                cost = timed(rerun, path)
                if cost.reference > budget(path):  # of two timings the shorter one says more about the notebook
                    cost = min(cost, timed(rerun, path), key=lambda cost: cost.reference)
                fine &= report(path, cost)
            elif args.force or not is_current(path):
                fill_zoo(path)
                fine &= report(path, timed(execute, path))
            else:
                print(f"{path.stem:<40} unchanged")
        except Refused as problem:
            print(f"notebooks: {problem}", file=sys.stderr)
            fine = False
    return 0 if fine else 1


if __name__ == "__main__":
    sys.exit(main())
