"""Programs in the sandbox: right ones pass, and no trick earns what a right one does."""

import json
import os
import threading
from pathlib import Path

import pytest

from minirlhf.data.loaders import load
from minirlhf.feedback import graders
from minirlhf.sandbox import isolation
from minirlhf.sandbox.programs import Desk, examine, shared_boxes
from minirlhf.sandbox.server import Limits, SandboxPool

SAMPLES = Path(__file__).parent / "samples" / "human_eval.jsonl"
LIMITS = Limits(cpu=1, wall=60.0, memory=128 << 20, file=1 << 20)
SHORT = Limits(cpu=1, wall=2.0, memory=128 << 20, file=1 << 20)
TESTS = """
SECRET = 1234567
def check(candidate):
    for x in (3, 5, 8):
        assert candidate(x) == x * SECRET
"""
RIGHT = "def f(x):\n    return x * 1234567\n"


@pytest.fixture(scope="module")
def weak():
    """The weakest level of isolation, which every system has."""
    with SandboxPool("minirlhf.sandbox.programs", at_most="limits") as boxes:
        yield boxes


@pytest.fixture(params=["best", "limits"])
def boxes(request, weak):
    return weak if request.param == "limits" else shared_boxes()


def asked(program, boxes, *, tests=TESTS, setup="", limits=LIMITS):
    return examine(program, "f", setup=setup, tests=tests, boxes=boxes, limits=limits)


def test_examine_passes_right_program(boxes):
    verdict = asked(RIGHT, boxes)
    assert (verdict.held, verdict.failed, verdict.problem, verdict.pass_rate) == (3, 0, "", 1.0)


def test_examine_counts_assertions(boxes):
    verdict = asked("def f(x):\n    return x * 1234567 if x < 4 else 1 / 0\n", boxes)
    assert (verdict.held, verdict.failed, verdict.pass_rate) == (1, 2, pytest.approx(1 / 3))


# -- escapes: each tries to pass, or to hurt, without being right -------------------------------------------------------

ESCAPES = {
    "loops for ever": "def f(x):\n    while True: pass",
    "loops while loading": "while True: pass",
    "forks for ever": "import os\ndef f(x):\n    while True: os.fork()",
    "starts threads": "import threading\ndef f(x):\n    for _ in range(999): threading.Thread(target=f, args=(x,)).start()",
    "takes all memory": "def f(x):\n    return len('a' * (1 << 40)) and [0] * (1 << 33)",
    "takes memory bit by bit": "def f(x):\n    a = []\n    while True: a.append(bytearray(1 << 20))",
    "answers too much": "def f(x):\n    return 'a' * (9 << 20)",
    "a number without end": "def f(x):\n    return 10 ** 10000",
    "fills the disk": "def f(x):\n    open('a', 'wb').write(b'0' * (2 << 20))",
    "runs a program": "import subprocess\ndef f(x):\n    return subprocess.run(['python3', '-c', '1']).returncode",
    "replaces itself": "import os, sys\ndef f(x):\n    os.execv(sys.executable, ['python3', '-c', '1'])",
    "connects": "import socket\ndef f(x):\n    socket.create_connection(('192.0.2.1', 80))",
    "exits": "import sys\ndef f(x):\n    sys.exit(0)",
    "exits while loading": "import sys\nsys.exit(0)",
    "leaves at once": "import os\ndef f(x):\n    os._exit(0)",
    "leaves while loading": "import os\nos._exit(0)",
    "kills itself": "import os, signal\ndef f(x):\n    os.kill(os.getpid(), signal.SIGKILL)",
    "kills its group": "import os, signal\ndef f(x):\n    os.killpg(0, signal.SIGKILL)",
    "crashes": "import ctypes\ndef f(x):\n    ctypes.string_at(0)",
    "recurses": "import sys\nsys.setrecursionlimit(10**9)\ndef f(x):\n    return f(x)",
    "equals everything": "class A(int):\n    def __eq__(self, other): return True\n    __hash__ = None\ndef f(x):\n    return A(1)",
    "an object that equals everything": "class A:\n    def __eq__(self, other): return True\ndef f(x):\n    return A()",
    "patches the assertions": (
        "import builtins\nbuiltins.AssertionError = ValueError\nbuiltins.__build_class__ = None\n"
        "def f(x):\n    import sys\n    for module in list(sys.modules.values()):\n"
        "        for name in ('_held', '_broke', 'examine', 'Program'):\n"
        "            if hasattr(module, name): setattr(module, name, lambda *a, **k: True)\n    return x"
    ),
    "patches the counter": (
        "import gc\ndef f(x):\n    for o in gc.get_objects():\n"
        "        if type(o).__name__ == 'Program': o.counts = [9, 0]; o._on_call = lambda q: [9, 0]\n    return x"
    ),
    "prints a verdict": 'def f(x):\n    print(\'{"ok": [3, 0]}\')\n    return x',
    "sends a verdict": (
        "import json, os, struct\ndef f(x):\n    raw = json.dumps({'ok': [3, 0]}).encode()\n    for fd in range(3, 64):\n"
        "        try: os.write(fd, (struct.pack('!I', len(raw)) + raw) * 20)\n        except OSError: pass\n    return x"
    ),
    "sends a question": (
        "import json, os, struct\ndef f(x):\n    raw = json.dumps({'call': {'tuple': [[3], {'dict': []}]}}).encode()\n"
        "    for fd in range(3, 64):\n"
        "        try: os.write(fd, (struct.pack('!I', len(raw)) + raw) * 20)\n        except OSError: pass\n    return x"
    ),
    "sends no message": (
        "import os\ndef f(x):\n    for fd in range(3, 64):\n"
        "        try: os.write(fd, b'\\xff' * 99)\n        except OSError: pass\n    return x"
    ),
    "closes everything": "import os\ndef f(x):\n    os.closerange(0, 64)\n    return x",
    "reads the frames": (
        "import sys\ndef f(x):\n    frame = sys._getframe()\n    while frame:\n"
        "        for space in (frame.f_locals, frame.f_globals):\n"
        "            if 'SECRET' in space: return x * space['SECRET']\n"
        "            for value in list(space.values()):\n"
        "                if 'SECRET' in str(value): return x * int(str(value).split('SECRET = ')[1].split()[0])\n"
        "        frame = frame.f_back"
    ),
    "reads the heap": (
        "import gc, re\ndef f(x):\n    for o in gc.get_objects():\n        if isinstance(o, dict):\n"
        "            for v in list(o.values()):\n                if isinstance(v, str) and 'SECRET = ' in v:\n"
        "                    found = re.search(r'SECRET = ([0-9]+)', v)\n                    if found: return x * int(found[1])"
    ),
    "is no Python": "this is no program",
    "defines something else": "def g(x):\n    return x * 1234567",
    "is no function": "f = 3",
}  # fmt: skip
# At the weakest level a program may start others of its own, and its group is not its own: tried in a box only.
NEEDS_A_BOX = ("forks for ever", "starts threads", "kills its group", "replaces itself", "runs a program")


@pytest.mark.slow
@pytest.mark.parametrize("name", ESCAPES)
def test_examine_gives_escape_nothing(name, boxes):
    if name in NEEDS_A_BOX and not isolation.isolated(boxes.level):
        pytest.skip(f"level {boxes.level} has no process space of its own")
    verdict = asked(ESCAPES[name], boxes)
    assert verdict is not None, "a program must not be able to make itself ungradable"
    assert (verdict.held, verdict.pass_rate) == (0, 0.0)
    assert verdict.failed or verdict.problem
    assert asked(RIGHT, boxes).pass_rate == 1.0, "the next program suffers"


@pytest.mark.slow
@pytest.mark.parametrize("code", ["import time\ndef f(x):\n    time.sleep(999)", "import time\ntime.sleep(999)"])
def test_examine_ends_sleeping_program(code, boxes):
    verdict = asked(code, boxes, limits=SHORT)
    assert verdict.pass_rate == 0.0 and "2" in verdict.problem.split()


def test_sandbox_keeps_files_apart(tmp_path):
    boxes = shared_boxes()
    if not isolation.isolated(boxes.level):
        pytest.skip(f"level {boxes.level} has no file system of its own")
    secret, target = tmp_path / "secret.txt", tmp_path / "written.txt"
    secret.write_text("42")
    os.chmod(tmp_path, 0o777)
    here = "def check(candidate):\n    assert candidate(0) == 42\n"
    assert asked(f"def f(x):\n    return int(open({str(secret)!r}).read())", boxes, tests=here).pass_rate == 0.0
    for place in (target, Path("/tmp/minirlhf-escape"), Path(__file__).parent / "escape.txt"):
        assert (
            asked(f"def f(x):\n    open({str(place)!r}, 'w').write('x')\n    return 42", boxes, tests=here).pass_rate
            == 0.0
        )
        assert not place.exists()
    own = "def f(x):\n    open('mine.txt', 'w').write('42')\n    return int(open('mine.txt').read())"
    assert asked(own, boxes, tests=here).pass_rate == 1.0, "its own small folder it may use"


def test_sandbox_probe_finds_no_gap():
    boxes = shared_boxes()
    found = boxes.probe([Path(__file__), Path("/etc/passwd")])
    assert found["no new processes"]
    if not isolation.isolated(boxes.level):
        pytest.skip(f"level {boxes.level} has no file system of its own")
    assert {name for name, holds in found.items() if not holds} <= {"a user without rights"}


# -- whose fault it is --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "tests",
    ["def check(candidate)\n    pass", "def chek(candidate):\n    pass", "def check(candidate):\n    assert 1 == 1",
     "raise ValueError", "def check(candidate):\n    raise KeyError", "def check(candidate):\n    while True: pass", "",
     "import sys\nsys.exit(0)"],
)  # fmt: skip
def test_examine_gives_none_for_tests_without_question(tests):
    def verdict(program):
        return asked(program, shared_boxes(), tests=tests)

    if "while" in tests:
        assert verdict(RIGHT).pass_rate == 0.0  # that they never end by themselves cannot be known
    else:
        for program in (RIGHT, "not a program", "import os\nos._exit(0)", "raise SystemExit"):
            assert verdict(program) is None


@pytest.mark.parametrize(
    ("tests", "program"),
    [
        ("def check(candidate):\n    for y in candidate(1):\n        assert y == 1", "def f(x):\n    return []"),
        ("def check(candidate):\n    assert len(candidate(1)) == 1\n    y = candidate(1)[0]\n    assert y == 1", "def f(x):\n    return 7"),
    ],
)  # fmt: skip
def test_examine_fails_answer_that_disarms_tests(tests, program):
    verdict = asked(program, shared_boxes(), tests=tests)
    assert verdict.pass_rate == 0.0 and verdict.problem


def test_examine_carries_expected_errors():
    tests = (
        "def check(candidate):\n    try:\n        candidate(-1)\n        found = 'none'\n"
        "    except ValueError as problem:\n        found = 'value'\n    except Exception:\n        found = 'other'\n"
        "    assert found == 'value'\n"
    )
    for kind, share in (("ValueError('no')", 1.0), ("KeyError('no')", 0.0), ("UnicodeDecodeError", 0.0)):
        assert asked(f"def f(x):\n    raise {kind}", shared_boxes(), tests=tests).pass_rate == share


def test_examine_works_from_several_threads():
    shares = []
    workers = [threading.Thread(target=lambda: shares.append(asked(RIGHT, shared_boxes()).pass_rate)) for _ in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert shares == [1.0] * 4


def test_desk_asks_again_in_a_new_box_where_the_old_one_has_ended():
    """Its time is up after some minutes; that is no fault of the next program. One that ends a new box has failed."""
    desk = Desk(shared_boxes())
    assert desk.outputs("def f(x):\n    return x + 1\n", "f", [(1,), (2,)]) == [2, 3]
    desk._box.close()
    assert desk.outputs("def f(x):\n    return x + 2\n", "f", [(1,)]) == [3]
    assert desk.outputs("import os\ndef f(x):\n    os._exit(1)\n", "f", [(1,)]) == [None]
    assert desk.outputs("def f(x):\n    return 2 * x\n", "f", [(3,)]) == [6]


# -- HumanEval's format -------------------------------------------------------------------------------------------------


def problems(path):
    rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    records = load(path)
    assert records.format == "human-eval"
    return list(zip(rows, records.problems(), strict=True))


def assert_solutions_pass(path):
    """Reference solutions pass, as what goes on from the prompt and as a reply; an empty body passes nothing."""
    for row, problem in problems(path):
        assert problem.prompt[-1]["content"] == row["prompt"].strip() or problem.prompt[-1]["content"] == row["prompt"]
        assert graders.tests(row["canonical_solution"], problem.reference) == 1.0, row["task_id"]
        assert graders.tests(f"Here it is:\n\n{problem.solution}\n", problem.reference) == 1.0, row["task_id"]
        assert graders.tests("    return None\n", problem.reference) == 0.0, row["task_id"]


def test_human_eval_sample_solutions_pass():
    assert len(problems(SAMPLES)) == 10
    assert_solutions_pass(SAMPLES)


def test_human_eval_file_solutions_pass():
    """MINIRLHF_HUMAN_EVAL=HumanEval.jsonl python -m pytest tests/test_sandbox_programs.py -k human_eval_file"""
    named = os.environ.get("MINIRLHF_HUMAN_EVAL")
    if not named:
        pytest.skip("MINIRLHF_HUMAN_EVAL names no file")
    assert_solutions_pass(Path(named))
