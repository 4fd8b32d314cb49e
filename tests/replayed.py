"""The code cells of a committed notebook, run in order without Jupyter, in a process that is forked with its imports done.

A kernel and nbval take longer to start than many notebooks take to run. They run the notebooks before a release.
"""

import contextlib
import io
import json
import linecache
import multiprocessing
import os
import resource
import sys
import traceback
from multiprocessing.connection import Connection
from pathlib import Path
from types import ModuleType

IMPORTS = [
    "torch",
    "matplotlib.pyplot",
    "IPython.display",
    "minirlhf.stages.zoo",
    "minirlhf_course.classroom.predictions",
]
CHECKED = "nbval-check-output"


def replay(notebook: Path) -> tuple[float, float, str]:
    """Processor seconds, the largest memory in the units of ``getrusage``, and what is wrong with the notebook; empty if nothing is."""
    forking = multiprocessing.get_context("forkserver")
    forking.set_forkserver_preload(IMPORTS)
    receiver, sender = forking.Pipe(duplex=False)
    child = forking.Process(target=_serve, args=(notebook, sender))
    child.start()
    sender.close()  # so that the end of the child is seen
    try:
        return receiver.recv()
    except EOFError:
        child.join()
        return 0.0, 0.0, f"the process has ended with {child.exitcode}"
    finally:
        child.join()


def _serve(notebook: Path, sender: Connection) -> None:
    """Run the cells and say what they took."""
    problem = _run(notebook)
    used = resource.getrusage(resource.RUSAGE_SELF)
    sender.send((used.ru_utime + used.ru_stime, used.ru_maxrss, problem))


def _run(notebook: Path) -> str:
    """The first thing that is wrong. The first code cell holds IPython's commands, which choose how figures are shown."""
    os.environ["MINIRLHF_NO_BAR"] = "1"
    os.chdir(notebook.parent)
    main = sys.modules["__main__"] = ModuleType("__main__")  # where the classes of a cell look for their module
    cells = [c for c in json.loads(notebook.read_text(encoding="utf-8"))["cells"] if c["cell_type"] == "code"]
    for cell in cells[1:]:
        code, printed = "".join(cell["source"]), io.StringIO()
        name = f"{notebook.name}, cell {cell['id']}"
        linecache.cache[name] = len(code), None, code.splitlines(keepends=True), name
        try:
            with contextlib.redirect_stdout(printed):
                exec(compile(code, name, "exec"), vars(main))
                _draw_figures()
        except BaseException:
            return f"{name}:\n{traceback.format_exc()}"
        wanted = "".join("".join(out.get("text", "")) for out in cell["outputs"])
        if CHECKED in cell["metadata"].get("tags", []) and printed.getvalue() != wanted:
            return f"{name} prints\n{printed.getvalue()}\nin place of\n{wanted}"
    return ""


def _draw_figures() -> None:
    """Draw the figures of a cell, as a notebook does at its end: a formula in a label fails only then."""
    from matplotlib import pyplot as plt

    for number in plt.get_fignums():
        plt.figure(number).canvas.draw()
    plt.close("all")
