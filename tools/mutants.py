"""Which mistakes in the equations does the ledger see? ``python tools/mutants.py`` (make mutants), with results in
``benchmarks/mutants.json``.

Every mutant of :mod:`mutations` is run in a forked process that shares one imported torch: it imports the library anew with the
changed module, and runs the checks that touch the changed function, on fixed seeds, then the generic claims about them. A mutant is
killed by the first that fails. What survives the ledger meets the tests that name the function. What survives those too stands, with
the reason why it is harmless, in ``benchmarks/survivors.toml``; that list is held to the run in both directions.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.abc
import importlib.util
import json
import os
import re
import resource
import signal
import sys
import time
import tomllib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from mutations import ROOT, Mutant, modules, mutants

RESULT = ROOT / "benchmarks" / "mutants.json"
SURVIVORS = ROOT / "benchmarks" / "survivors.toml"
SEEDS = (0, 1)
#: Processor seconds after which a mutant counts as killed: one that never ends.
LEDGER_LIMIT, TEST_LIMIT = 60, 300

Place = tuple[str, str]  # module, and the function or class at its top
Key = tuple[str, str]  # label and claim


# -- the library with one module changed -------------------------------------------------------------------------


class _Changed(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Imports one module from a text that is not in its file."""

    def __init__(self, module: str, source: str) -> None:
        self.module, self.source = module, source

    def find_spec(self, fullname: str, path: Any, target: Any = None) -> Any:
        """The changed module, and nothing else."""
        return importlib.util.spec_from_loader(fullname, self) if fullname == self.module else None

    def exec_module(self, module: Any) -> None:
        """Run the changed text under the name of the file, so that pages and traces find it."""
        path = ROOT / Path(*self.module.split(".")).with_suffix(".py")
        module.__file__ = str(path)
        exec(compile(self.source, str(path), "exec"), module.__dict__)


def change(mutant: Mutant) -> None:
    """Let every later import in this process see the mutant; of the library only ``core`` is kept, if it is not changed itself."""
    kept = "minirlhf.core" if not mutant.module.startswith("minirlhf.core") else "no module"
    for name in [
        name for name in sys.modules if name.startswith(("minirlhf.", "minirlhf_")) and not name.startswith(kept)
    ]:
        del sys.modules[name]
    sys.meta_path.insert(0, _Changed(mutant.module, mutant.source))


# -- what touches what -------------------------------------------------------------------------------------------


def touched(call: Callable[[], object]) -> set[Place]:
    """The functions of the equations that ran during a call."""
    files, seen = {str(path) for path in modules()}, set()

    def note(frame: Any, event: str, _: object) -> None:
        if event == "call" and frame.f_code.co_filename in files:
            seen.add(frame.f_code)

    sys.setprofile(note)
    try:
        call()
    finally:
        sys.setprofile(None)
    dotted = {code: Path(code.co_filename).relative_to(ROOT).with_suffix("") for code in seen}
    return {(".".join(path.parts), code.co_qualname.split(".")[0]) for code, path in dotted.items()}


def trace() -> dict[str, Any]:
    """Of every check: the functions that it touches, its own module, and the seconds that it takes."""
    from minirlhf_course.chapters import load_checks
    from minirlhf_course.ledger import registry

    found = []
    for key, entry in load_checks().checks.items():
        start = time.process_time()
        registry.run(entry, SEEDS[0])
        seconds = time.process_time() - start
        places = sorted(touched(lambda entry=entry: registry.run(entry, SEEDS[0])))
        found.append({"key": key, "module": entry.compare.__module__, "seconds": seconds, "places": places})
    return {"checks": found}


def relevant(mutant: Mutant, traced: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """The checks that touch the mutant's function, or its module if it is a constant; the quickest first."""

    def touches(check: dict[str, Any]) -> bool:
        places = {tuple(place) for place in check["places"]}
        return (mutant.module, mutant.place) in places

    chosen = [check for check in traced if touches(check)]
    if not chosen:  # a constant, a decorator's helper or a record's rule: everything that touches the module
        chosen = [check for check in traced if any(module == mutant.module for module, _ in check["places"])]
    return sorted(chosen, key=lambda check: check["seconds"])


# -- one mutant --------------------------------------------------------------------------------------------------


def by_ledger(mutant: Mutant, checks: Sequence[dict[str, Any]]) -> str:
    """What kills the mutant: a check, a generic claim, an exception; ``""`` if nothing does. For a forked process."""
    change(mutant)
    try:
        for module in {check["module"] for check in checks}:
            importlib.import_module(module)
    except Exception as problem:
        return f"import: {type(problem).__name__}"
    from minirlhf_course.ledger import registry

    for seed in SEEDS:
        for check in checks:
            result = registry.run(registry.LEDGER.checks[tuple(check["key"])], seed)
            if not result.passed:
                return f"{' '.join(check['key'])}{': ' + result.message.split(':')[0] if result.message else ''}"
    entries = [registry.LEDGER.checks[tuple(check["key"])] for check in checks]
    own = [entry for entry in entries if entry.of.__name__ == mutant.place and entry.of.__module__ == mutant.module]
    return next((f"promise of {problem}" for problem in broken_promises(own or entries)), "")


def broken_promises(entries: Sequence[Any]) -> Iterator[str]:
    """Which generic claims fail on the inputs that these checks draw."""
    from minirlhf_course.ledger import claims

    for calls in claims.record(entries, SEEDS).values():
        yield from claims.violated_claims(calls, SEEDS[0])


def by_tests(mutant: Mutant, files: Sequence[str | Path]) -> str:
    """The test that kills the mutant, or ``""``. For a forked process."""
    import pytest

    if not files:
        return ""
    signal.alarm(10 * TEST_LIMIT)  # what waits for ever uses no processor

    class Failed:
        first = ""

        def pytest_runtest_logreport(self, report: Any) -> None:
            if report.failed and not self.first:
                self.first = report.nodeid

        def pytest_collectreport(self, report: Any) -> None:
            if report.failed and not self.first:
                self.first = f"import of {report.nodeid}"

    change(mutant)
    found = Failed()
    options = ["-x", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", "--hypothesis-seed=0", "--no-header"]
    with open(os.devnull, "w") as nothing:
        os.dup2(nothing.fileno(), 1), os.dup2(nothing.fileno(), 2)
        pytest.main([*options, *map(str, files)], plugins=[found])
    return found.first


def tests_of(mutant: Mutant) -> list[Path]:
    """The equations' test file of the mutant's module; without one, that which names its function most often."""
    files = sorted((ROOT / "tests").glob("test_equations_*.py"))
    parts = mutant.module.split(".")[2:]
    own = [path for path in files if path.stem.removeprefix("test_equations_") in parts]
    named = {path: len(re.findall(rf"\b{mutant.place}\b", path.read_text(encoding="utf-8"))) for path in files}
    most = max(files, key=lambda path: named[path])
    return own or ([most] if named[most] else [])


# -- all of them -------------------------------------------------------------------------------------------------


def start(work: Callable[[], str], limit: int | None = None) -> Callable[[], str]:
    """Begin in a forked process; the result waits for it: what it returned, or ``"time"`` past so many processor seconds."""
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(read)
        if limit is not None:
            resource.setrlimit(resource.RLIMIT_CPU, (limit, limit + 5))
        try:
            told = work()
        except BaseException as problem:  # whatever it was, the parent is told, and this process ends here
            told = f"crash: {type(problem).__name__}: {problem}"
        with os.fdopen(write, "w", encoding="utf-8") as pipe:
            pipe.write(told)
        os._exit(0)
    os.close(write)

    def wait() -> str:
        with os.fdopen(read, encoding="utf-8") as pipe:
            told = pipe.read()
        _, status = os.waitpid(pid, 0)
        if os.WIFSIGNALED(status):
            ended = os.WTERMSIG(status)
            return "time" if ended in (signal.SIGXCPU, signal.SIGKILL, signal.SIGALRM) else f"signal {ended}"
        return told

    return wait


@dataclass(frozen=True)
class Outcome:
    """What became of a mutant: what of the ledger killed it, else which test; both empty if it survived."""

    name: str
    kind: str
    ledger: str
    test: str


def judge(mutant: Mutant, traced: Sequence[dict[str, Any]], tests: bool) -> Outcome:
    """Run one mutant, in processes of its own."""
    ledger = start(lambda: by_ledger(mutant, relevant(mutant, traced)), LEDGER_LIMIT)()
    test = start(lambda: by_tests(mutant, tests_of(mutant)), TEST_LIMIT)() if tests and not ledger else ""
    return Outcome(mutant.name, mutant.kind, ledger, test)


def judge_all(
    chosen: Sequence[Mutant], traced: Sequence[dict[str, Any]], *, tests: bool, jobs: int, tell: bool = False
) -> list[Outcome]:
    """Run mutants in so many processes at a time; the order of the results is theirs."""

    def part(first: int) -> str:
        done = []
        for mutant in chosen[first::jobs]:
            done.append(vars(judge(mutant, traced, tests)))
            if tell and not done[-1]["ledger"]:
                print(f"{done[-1]['test'] or 'SURVIVES'}  {mutant.kind}  {mutant.name}", flush=True)
        return json.dumps(done)

    told = [wait() for wait in [start(lambda first=first: part(first)) for first in range(jobs)]]
    found = {done["name"]: Outcome(**done) for text in told for done in json.loads(text)}
    return [found[mutant.name] for mutant in chosen]


def traced_checks() -> list[dict[str, Any]]:
    """What every check touches, found in a process of its own, so that this one stays fit to be forked."""
    import minirlhf_course.chapters

    minirlhf_course.chapters.load_checks()  # and with it all that no mutant changes: sympy, core, the standard library
    return json.loads(start(lambda: json.dumps(trace()))())["checks"]


def explained() -> dict[str, str]:
    """Survivor -> why it is equivalent or harmless."""
    return tomllib.loads(SURVIVORS.read_text(encoding="utf-8")) if SURVIVORS.is_file() else {}


def disagreements(outcomes: Iterable[Outcome], reasons: dict[str, str]) -> list[str]:
    """Survivors that nobody has explained, and explained ones that are killed."""
    problems = []
    for o in outcomes:
        survived = not o.ledger and not o.test
        if survived and o.name not in reasons:
            problems.append(f"survives and is not explained: {o.name}")
        if not survived and o.name in reasons:
            problems.append(f"is explained and yet killed by {o.ledger or o.test}: {o.name}")
    return problems


def report(outcomes: Sequence[Outcome], reasons: dict[str, str], minutes: float, every: int = 1) -> dict[str, Any]:
    """The evidence: of each N-th mutant, what killed it. Those that compute the same as the library count in no share."""
    survivors = {o.name: reasons.get(o.name, "not explained") for o in outcomes if not o.ledger and not o.test}
    same = sum(reason.startswith("equivalent") for reason in survivors.values())

    def count(chosen: Sequence[Outcome]) -> dict[str, int]:
        ledger = sum(bool(o.ledger) for o in chosen)
        return {"mutants": len(chosen), "ledger": ledger, "ledger or tests": ledger + sum(bool(o.test) for o in chosen)}

    counts = count(outcomes)
    return {
        **counts,
        "every": every,
        "equivalent": same,
        "share, ledger": round(counts["ledger"] / (len(outcomes) - same), 4),
        "share, ledger or tests": round(counts["ledger or tests"] / (len(outcomes) - same), 4),
        "minutes": minutes,
        "seeds": list(SEEDS),
        "torch": torch.__version__,
        "kinds": {kind: count([o for o in outcomes if o.kind == kind]) for kind in sorted({o.kind for o in outcomes})},
        "killed by the ledger": {o.name: o.ledger[:100] for o in outcomes if o.ledger},
        "killed by tests only": {o.name: o.test for o in outcomes if o.test},
        "survivors": survivors,
    }


def outcomes_of(result: dict[str, Any]) -> list[Outcome]:
    """What the evidence holds, of the mutants that there still are."""
    ledger, test = result["killed by the ledger"], result["killed by tests only"]
    known = [m for m in mutants() if m.name in {*ledger, *test, *result["survivors"]}]
    return [Outcome(m.name, m.kind, ledger.get(m.name, ""), test.get(m.name, "")) for m in known]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run mutants, write the evidence, and say where run and explanations disagree."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--only", metavar="REGEX", help="mutants whose name matches; nothing is written")
    parser.add_argument("--every", type=int, default=1, metavar="N", help="each N-th mutant only")
    parser.add_argument("--ledger", action="store_true", help="no tests; nothing is written")
    parser.add_argument(
        "--explain", action="store_true", help="run nothing: put survivors.toml into the evidence as it is"
    )
    parser.add_argument("--again", action="store_true", help="run again what survived the run in the evidence")
    parser.add_argument("--jobs", type=int, default=1, metavar="N", help="processes at a time")
    args = parser.parse_args(arguments)
    torch.set_num_threads(1)
    sys.path[:0] = [str(ROOT), str(ROOT / "tests")]
    begun = time.monotonic()
    if args.explain or args.again:
        before = json.loads(RESULT.read_text(encoding="utf-8"))
        outcomes, minutes, args.every = outcomes_of(before), before["minutes"], before["every"]
        survivors = [m for m in mutants() if args.again and m.name in before["survivors"]]
        again = judge_all(survivors, traced_checks(), tests=True, jobs=args.jobs, tell=True) if survivors else []
        outcomes = [next((new for new in again if new.name == old.name), old) for old in outcomes]
    else:
        chosen = mutants(lambda m: args.only is None or re.search(args.only, m.name) is not None)[:: args.every]
        outcomes = judge_all(chosen, traced_checks(), tests=not args.ledger, jobs=args.jobs, tell=True)
        minutes = round((time.monotonic() - begun) / 60, 1)
    result = report(outcomes, explained(), minutes, args.every)
    print(json.dumps({key: value for key, value in result.items() if not isinstance(value, dict)}, indent=1))
    if args.only or args.ledger:
        return 0
    RESULT.write_text(json.dumps(result, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    problems = disagreements(outcomes, explained())
    problems += [f"is explained and was not run: {n}" for n in explained().keys() - {o.name for o in outcomes}]
    print("\n".join(problems))
    return bool(problems)


if __name__ == "__main__":
    sys.exit(main())
