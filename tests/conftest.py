"""Settings of every test run: one thread, no network, an empty cache, one seed (tests/plan.py)."""

import ast
import contextlib
import functools
import json
import os
import re
import resource
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import hypothesis
import plan
import pytest
from hypothesis.internal.conjecture import providers

# Workers of pytest-xdist are started by this process and inherit its environment, so all of them share what is set here.
os.environ["OMP_NUM_THREADS"] = "1"
os.environ["TOKENIZERS_PARALLELISM"] = "false"
os.environ["MPLBACKEND"] = "Agg"
os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["HF_DATASETS_OFFLINE"] = "1"
import torch

torch.set_num_threads(1)
# A busy machine fails nothing: neither a deadline nor "input generation is slow".
# No example is remembered from an earlier run: the outcome would depend on it.
slow_input = [hypothesis.HealthCheck.too_slow]
hypothesis.settings.register_profile("suite", deadline=None, database=None, suppress_health_check=slow_input)
hypothesis.settings.load_profile("suite")
# Nor are the constants of the modules that a process has imported taken as examples: the inputs would depend on the other tests, and to
# collect them takes each process seconds.
providers._get_local_constants = lambda: providers._local_constants

OWN_FOLDER = pytest.StashKey[str]()
CLOCK = pytest.StashKey[float]()
ELSEWHERE = {"site", "browser", "replay", "server"}  # what these fixtures start is no child that a test waits for


def pytest_addoption(parser: pytest.Parser) -> None:
    """What the targets of the Makefile pass on."""
    group = parser.getgroup("minirlhf")
    group.addoption("--chapter", type=int, metavar="N", help="only what belongs to chapter N")
    group.addoption("--all", action="store_true", help="also what only a release needs (marked release)")
    group.addoption("--random-inputs", action="store_true", help="only the tests whose inputs follow from the seed")
    group.addoption("--shuffle", type=int, metavar="SEED", help="run units and tests in a random order")
    group.addoption(
        "--touched", metavar="FILE", help="write which test runs which function, for tools/library_mutants.py"
    )
    group.addoption("--costs", metavar="FILE", help="write what each test took, for tools/costs.py")


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Give the run its own cache: the zoo trains each checkpoint once per run. ``MINIRLHF_CACHE`` keeps one between runs."""
    if config.getoption("hypothesis_seed", None) is None:
        config.option.hypothesis_seed = plan.seed()
    if config.getoption("touched"):
        config.pluginmanager.register(Touched(Path(config.getoption("touched")).resolve()))
    if hasattr(config, "workerinput"):
        return
    costs = config.getoption("costs")
    config.pluginmanager.register(Costs(Path(costs).resolve() if costs else None))
    if "MINIRLHF_CACHE" not in os.environ:
        folder = config.stash[OWN_FOLDER] = tempfile.mkdtemp(prefix="minirlhf-tests-")
        os.environ["MINIRLHF_CACHE"] = os.path.join(folder, "zoo")
        os.environ["HF_HOME"] = os.path.join(folder, "huggingface")


def pytest_unconfigure(config: pytest.Config) -> None:
    """Remove that folder; only the process that made it has it in its stash."""
    folder = config.stash.get(OWN_FOLDER, None)
    if folder is not None:
        shutil.rmtree(folder, ignore_errors=True)


def pytest_report_header() -> str:
    """How to repeat the random inputs of this run."""
    return f"MINIRLHF_TEST_SEED={plan.seed()}"


# -- which tests, and in which order -----------------------------------------------------------------------------


def chapter_of(item: pytest.Item) -> int | None:
    """The chapter that a test belongs to, by its mark or its file's name; none for what is all chapters'."""
    if marker := item.get_closest_marker("chapter"):
        return marker.args[0]
    named = re.match(r"test_ch(\d\d)_", item.path.name)
    return int(named[1]) if named else None


def is_wanted(item: pytest.Item, config: pytest.Config) -> bool:
    """Whether the options ask for a test."""
    if item.get_closest_marker("release") and not config.getoption("all"):
        return False
    if config.getoption("random_inputs") and not is_random(item):
        return False
    return config.getoption("chapter") in (None, chapter_of(item))


def is_random(item: pytest.Item) -> bool:
    """Whether the inputs of a test follow from the seed of the run; not what draws by its own name, which `make chance` asks on many seeds."""
    return "suite_seed" in item.fixturenames or hypothesis.is_hypothesis_test(getattr(item, "obj", None))  # type: ignore[attr-defined]


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what is not asked for. On a worker of pytest-xdist, order the tests by the plan."""
    config.hook.pytest_deselected(items=[item for item in items if not is_wanted(item, config)])
    items[:] = [item for item in items if is_wanted(item, config)]
    if config.getoption("chapter") is not None and not items:
        raise pytest.UsageError(f"no test belongs to chapter {config.getoption('chapter')}")
    named = {item.nodeid: item for item in items}
    if config.getoption("shuffle") is not None:
        units = plan.shuffled(named, config.getoption("shuffle"))
    elif hasattr(config, "workerinput"):
        units = plan.longest_first(named, plan.committed_costs() | Costs.kept(config))
    else:
        return
    items[:] = [named[nodeid] for nodeids in units.values() for nodeid in nodeids]


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Hand out the units of :mod:`plan`, in the order in which the tests were collected."""
    from xdist.scheduler import LoadScopeScheduling

    class Units(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return plan.unit(nodeid)

    config.option.loadscopereorder = False
    return Units(config, log)


# -- what each test takes ----------------------------------------------------------------------------------------


def processor_seconds() -> float:
    """Of this process and of the children that it has waited for."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(u.ru_utime + u.ru_stime for u in used)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """Start a test's clock."""
    item.stash[CLOCK] = processor_seconds()
    return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Iterator[None]:
    """Put into each report (set-up, call, tear-down) what this phase took; pytest-xdist carries it to the main process."""
    report = yield
    now = processor_seconds()
    report.processor_seconds, item.stash[CLOCK] = now - item.stash[CLOCK], now
    if ELSEWHERE & set(item.fixturenames):
        report.processor_seconds = max(report.processor_seconds, report.duration)
    return report


class Costs:
    """Adds up what the tests of a run took; keeps it for the next run, and writes it where ``--costs`` says."""

    KEPT = "minirlhf/costs"

    def __init__(self, path: Path | None) -> None:
        self.path, self.started, self.tests = path, time.perf_counter(), {}

    @classmethod
    def kept(cls, config: pytest.Config) -> dict[str, float]:
        """Processor seconds by unit, from earlier runs in this clone."""
        return config.cache.get(cls.KEPT, {}) if hasattr(config, "cache") else {}

    def pytest_runtest_logreport(self, report: Any) -> None:
        """One phase of one test. Of a test that ended its process there is no more than that it failed."""
        if not hasattr(report, "processor_seconds"):
            return
        test = self.tests.setdefault(report.nodeid, {"cpu": 0.0, "wall": 0.0, "outcome": "passed"})
        if report.outcome != "passed":
            test["outcome"] = report.outcome
        test["cpu"] += report.processor_seconds
        test["wall"] += report.duration

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """All tests, the time from start to end, and the number of processes."""
        config = session.config
        partial = ("keyword", "markexpr", "chapter", "random_inputs")
        whole = not any(map(config.getoption, partial)) and not any("::" in argument for argument in config.args)
        if hasattr(config, "cache") and whole:
            units = {}
            for nodeid, test in self.tests.items():
                units[plan.unit(nodeid)] = units.get(plan.unit(nodeid), 0.0) + test["cpu"]
            config.cache.set(self.KEPT, self.kept(config) | units)
        if self.path is not None:
            workers = config.getoption("numprocesses", None) or 1
            run = {"workers": workers, "wall": time.perf_counter() - self.started, "tests": self.tests}
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self.path.write_text(json.dumps(run, indent=0) + "\n", encoding="utf-8")


@functools.cache
def bodies(file: str) -> list[tuple[int, int, str]]:
    """First and last line of the body of every function of a file, with the function's or its class's name at the top of the file."""
    return [
        (inner.body[0].lineno, inner.end_lineno or 0, outer.name)
        for outer in ast.parse(Path(file).read_text(encoding="utf-8")).body
        if isinstance(outer, ast.FunctionDef | ast.ClassDef)
        for inner in ast.walk(outer)
        if isinstance(inner, ast.FunctionDef)
    ]


class Touched:
    """Records which functions of the library a test runs, in itself (``tests``) or in its fixtures (``files``); quickest first."""

    ROOT = Path(__file__).resolve().parents[1]

    def __init__(self, path: Path) -> None:
        import coverage

        self.coverage = coverage.Coverage(data_file=None, include=[f"{self.ROOT}/minirlhf*/*"])
        self.coverage.set_option("run:disable_warnings", ["no-data-collected"])
        self.path, self.found, self.seconds = path, {"setup": {}, "call": {}}, {}

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> Iterator[None]:
        yield from self._measured()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Iterator[None]:
        yield from self._measured()

    def _measured(self) -> Iterator[None]:
        self.coverage.erase()
        self.coverage.start()
        try:
            return (yield)
        finally:
            self.coverage.stop()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self) -> Iterator[None]:
        report = yield
        if report.when != "teardown":
            data, names = self.coverage.get_data(), set()
            for file in filter(re.compile(r"\.py$").search, data.measured_files()):  # and no templates
                lines = set(data.lines(file) or ())
                module = ".".join(Path(file).relative_to(self.ROOT).with_suffix("").parts)
                touched = {name for first, last, name in bodies(file) if not lines.isdisjoint(range(first, last + 1))}
                names |= {f"{module.removesuffix('.__init__')}.{name}" for name in touched}
            report.touched = sorted(names)
        return report

    def pytest_runtest_logreport(self, report: Any) -> None:
        """Add one phase of a test, under the function and under its module."""
        self.seconds[report.nodeid] = self.seconds.get(report.nodeid, 0.0) + getattr(report, "processor_seconds", 0.0)
        for name in getattr(report, "touched", []):
            for key in (name, name.rpartition(".")[0]):
                self.found[report.when].setdefault(key, set()).add(report.nodeid)

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Write function or module -> its quickest tests, and the quickest files whose fixtures run it."""
        if hasattr(session.config, "workerinput"):
            return
        files: dict[str, float] = {}
        for nodeid, seconds in self.seconds.items():
            files[nodeid.partition("::")[0]] = files.get(nodeid.partition("::")[0], 0.0) + seconds
        setup, call = self.found["setup"], self.found["call"]
        touched = {
            name: {
                "tests": sorted(call.get(name, ()), key=self.seconds.__getitem__)[:30],
                "files": sorted({t.partition("::")[0] for t in setup.get(name, ())}, key=files.__getitem__)[:5],
            }
            for name in sorted({*setup, *call})
        }
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self.path.write_text(json.dumps(touched, indent=0) + "\n", encoding="utf-8")


# -- fixtures ----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="session")
def suite_seed() -> int:
    """The seed of the run (:func:`plan.seed`); a test that draws takes it, so that ``make explore`` finds the test."""
    return plan.seed()


@pytest.fixture(scope="session")
def server() -> Iterator[Any]:
    """The process that forks the boxes in which answers to the exercises are graded; its start takes seconds."""
    from minirlhf_course.classroom import exercise
    from minirlhf_course.classroom.runner import Server

    with Server([exercise.folder()]) as running:
        yield running


@pytest.fixture
def shared_server(server: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let ``minirlhf check`` and ``class grade`` take that process; a test of what a box hides lets them start their own."""
    for command in ("check", "grade"):
        monkeypatch.setattr(f"minirlhf_cli.commands.{command}.Server", lambda *hidden: contextlib.nullcontext(server))


@pytest.fixture(scope="session")
def system_tool() -> Callable[[str], str]:
    """``system_tool("chromium")`` is its path. Without it a test skips, but fails in continuous integration."""

    def find(name: str) -> str:
        path = shutil.which(name)
        if path is None:
            (pytest.fail if os.environ.get("MINIRLHF_CI") else pytest.skip)(f"needs {name}, which is not installed")
        return path

    return find
