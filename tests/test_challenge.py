"""The challenge: exact scores that replay, and submissions that cheat, which earn nothing."""

import re
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from facts import raises, require
from torch import Tensor

from minirlhf.core import exact
from minirlhf.core.errors import ArgumentError, UserError
from minirlhf.sandbox import isolation, server
from minirlhf_cli import dispatch
from minirlhf_course.challenge import board, entries, scoring, world
from minirlhf_course.challenge.scoring import ChallengeScore, WorldScore
from minirlhf_course.classroom.testing import Failure

pytestmark = pytest.mark.slow

ENTRIES = sorted(p for p in Path(entries.__file__).parent.glob("*.py") if p.name != "__init__.py")


@pytest.fixture(scope="module")
def servers():
    with scoring.Servers() as running:
        yield running


@pytest.fixture(scope="module")
def drawn():
    return world.draw_world(7, 0)


def scored(servers, body, seed=7, num_worlds=1):
    """The result of a submission of which this is the body of ``train``."""
    code = "import torch\ndef train(*, ref_logps, counts, proxy, label, num_labels, kl_limit, seed):\n"
    return scoring.score(servers, "cheat", code + re.sub("(?m)^", "    ", body), seed, num_worlds=num_worlds)


# -- worlds ------------------------------------------------------------------------------------------------------------


def test_challenge_world_gold_is_the_documented_sum(drawn):
    u = torch.rand(9, 7, dtype=torch.float64, generator=world.generator("challenge gold", 7, 0))
    first, repeat, pair = 1.5 * u[0] - 0.3, 0.5 + u[1], 0.8 * u[2:] - 0.4
    for counts, gold in zip(drawn.counts.tolist(), drawn.gold.tolist(), strict=True):
        occur = [w for w in range(7) if counts[w]]
        total = sum(float(first[w]) - float(repeat[w]) * (counts[w] - 1) - 0.15 * counts[w] for w in occur)
        total += sum(float(pair[v, w]) for v in occur for w in occur if v < w)
        assert gold == pytest.approx(total, abs=2e-6)


def test_challenge_world_position_is_the_oracles_expectation_and_divergence(drawn):
    logits = drawn.ref_logps + 0.7 * drawn.proxy
    probs, ref = logits.softmax(-1), drawn.ref_logps.softmax(-1)
    position = drawn.position(logits)
    assert position.gold == pytest.approx(float(exact.expectation(probs, drawn.gold)), abs=1e-12)
    assert position.kl == pytest.approx(float(exact.divergence(probs, ref)), abs=1e-12)


def test_challenge_world_no_policy_within_the_limit_beats_the_best(drawn):
    best = drawn.best()
    assert best.kl == pytest.approx(world.KL_LIMIT, abs=1e-9)
    ref, generator = drawn.ref_logps.softmax(-1), torch.Generator().manual_seed(0)
    tilted = (drawn.ref_logps + 3 * drawn.gold).softmax(-1)
    for _ in range(50):  # of all mixtures and noisy tilts, each moved towards the reference until it is allowed
        noise = torch.randn(len(ref), dtype=torch.float64, generator=generator)
        probs = (tilted.log() + 0.3 * noise).softmax(-1)
        while float(exact.divergence(probs, ref)) > world.KL_LIMIT:
            probs = 0.95 * probs + 0.05 * ref
        assert float(exact.expectation(probs, drawn.gold)) < best.gold
    assert drawn.score(best.gold) == 1.0 and drawn.score(drawn.position(drawn.ref_logps).gold) == 0.0


def test_challenge_world_proxy_overstates_repeats_and_every_seed_differs(drawn):
    for number in range(5):
        drawn = world.draw_world(7, number)
        repeats = (drawn.counts - 1).clamp(min=0).sum(-1) >= 3
        assert float((drawn.proxy - drawn.gold)[repeats].mean()) > float((drawn.proxy - drawn.gold)[~repeats].mean())
    others = [world.draw_world(*key).gold for key in ((7, 1), (8, 0))]
    assert not any(torch.equal(world.draw_world(7, 0).gold, gold) for gold in others)


# -- labels ------------------------------------------------------------------------------------------------------------


def test_challenge_labels_are_gold_plus_noise_in_the_order_of_asking(drawn):
    together, one_by_one = drawn.labeller(), drawn.labeller()
    indices = list(range(world.LABELS))
    labels = together(indices)
    assert labels == [one_by_one([i])[0] for i in indices] and together.used == one_by_one.used == world.LABELS
    noise = torch.tensor(labels, dtype=torch.float64) - drawn.gold[indices]
    assert abs(float(noise.mean())) < 4 * world.LABEL_NOISE / world.LABELS**0.5
    assert 0.6 < float(noise.std()) / world.LABEL_NOISE < 1.4
    same = drawn.labeller()([3, 3])
    assert same[0] != same[1]


@pytest.mark.parametrize(
    "asked", [3, None, "3", [791], [-1], [True], [1.0], [[1]], torch.tensor(3), torch.tensor([0.5])], ids=repr
)
def test_challenge_labels_refuse_what_is_no_index_and_charge_nothing(asked, drawn):
    labeller = drawn.labeller()
    with raises(ArgumentError, argument="completions", expected="[0, 790]"):
        labeller(asked)
    assert labeller.used == 0


def test_challenge_labels_end_with_the_budget(drawn):
    labeller = drawn.labeller()
    labeller([0] * 60)
    with raises(ArgumentError, value=5, expected=4, problem="budget"):
        labeller([0] * 5)
    assert len(labeller([0] * 4)) == 4 and labeller.used == world.LABELS


# -- scores ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", ENTRIES, ids=lambda p: p.stem)
def test_challenge_entries_score_and_replay(path, servers):
    source = scoring.read_source(path)
    first, second = (scoring.score(servers, path.stem, source, 3, num_worlds=1) for _ in range(2))
    assert first == second and first.problem is None and re.fullmatch("[0-9a-f]{16}", first.digest)
    assert all(0.4 < row.kl <= world.KL_LIMIT + scoring.KL_SLACK for row in first.worlds)
    assert scoring.score(servers, path.stem, source, 4, num_worlds=1).digest != first.digest
    assert scoring.score(servers, path.stem, source + "\n", 3, num_worlds=1).digest != first.digest


def test_challenge_score_is_the_same_with_other_instructions_of_the_processor(servers, monkeypatch):
    source = scoring.read_source(ENTRIES[-1])
    here = scoring.score(servers, "x", source, 9, num_worlds=1)
    for name, value in {"ATEN_CPU_CAPABILITY": "default", "MKL_CBWR": "COMPATIBLE"}.items():
        monkeypatch.setitem(server.ENVIRONMENT, name, value)
    with scoring.Servers() as plainer:
        assert scoring.score(plainer, "x", source, 9, num_worlds=1) == here


def test_challenge_score_is_computed_from_the_returned_policy(servers, drawn):
    result = scored(servers, "return ref_logps + 0.5 * proxy")
    position = drawn.position(world.rounded(drawn.ref_logps + 0.5 * drawn.proxy))
    (row,) = result.worlds
    assert (row.gold, row.kl, row.labels) == (round(position.gold, 6), round(position.kl, 6), 0)
    assert row.score == pytest.approx(drawn.score(position.gold), abs=1e-6)


def test_challenge_score_rises_with_gold_labels(servers):
    body = """
chosen = torch.multinomial(ref_logps.exp(), num_labels, replacement=True, generator=torch.Generator().manual_seed(seed))
once = counts.clamp(max=1)
inputs = torch.cat([once, counts - once], 1)
known, target = inputs[chosen], torch.tensor(label(chosen), dtype=torch.float64) - proxy[chosen]
weights = torch.linalg.solve(known.T @ known + 4 * torch.eye(14, dtype=torch.float64), known.T @ target)
reward, low, high = proxy + inputs @ weights, 0.0, 100.0
for _ in range(50):
    middle = (low + high) / 2
    logps = torch.log_softmax(ref_logps + middle * reward, -1)
    inside = float((logps.exp() * (logps - ref_logps)).sum()) <= kl_limit
    low, high = (middle, high) if inside else (low, middle)
return ref_logps + low * reward
"""
    corrected = scored(servers, body, num_worlds=8)
    uncorrected = scored(servers, body.replace("inputs @ weights", "0"), num_worlds=8)
    gains = [a.score - b.score for a, b in zip(corrected.worlds, uncorrected.worlds, strict=True)]
    assert sum(gains) / 8 > 0.1 and {row.labels for row in corrected.worlds} == {world.LABELS}


def test_challenge_score_accepts_optimisers_of_torch(servers):
    body = """
weights = torch.zeros(7, dtype=torch.float64, requires_grad=True)
optimiser = torch.optim.Adam([weights], lr=0.1)
logps = torch.log_softmax(ref_logps + counts @ weights, -1)
(-(logps.exp() * proxy).sum()).backward()
optimiser.step()
return torch.log_softmax(ref_logps + counts @ weights, -1)
"""
    assert scored(servers, body).worlds[0].score != 0


# -- what is refused ---------------------------------------------------------------------------------------------------

REFUSED = {
    "beyond the KL limit": ("return ref_logps + 100 * proxy", {"argument": "kl", "expected": 2.0}),
    "randomness of the system": (
        "import os\nreturn ref_logps + 0.1 * (os.urandom(1)[0] + 256 * os.urandom(1)[0]) / 65536 * proxy",
        {"argument": "seed", "problem": "not replayable"},
    ),
    "unseeded randomness": (
        "import random\nreturn ref_logps + 0.1 * random.random() * proxy",
        {"problem": "not replayable"},
    ),
    "unseeded NumPy": (
        "import numpy\nreturn ref_logps + 0.1 * numpy.random.rand() * proxy",
        {"problem": "not replayable"},
    ),
    "the order of a set": (
        "order = sum(n * int(s) for n, s in enumerate({*map(str, range(99))}))\nreturn ref_logps + order / 1e7 * proxy",
        {"problem": "not replayable"},
    ),
    "an address": ("return ref_logps + 0.1 * proxy * (id(label) % 2**40) / 2**40", {"problem": "not replayable"}),
    "other numbers of labels in two runs": (
        "import os\nlabel([0] * (os.urandom(1)[0] // 4))\nreturn ref_logps",
        {"problem": "not replayable"},
    ),
    "more labels than the budget": ("label([0] * 65)\nreturn ref_logps", {"problem": "raised"}),
    "an object with an answer of its own": (
        "class Policy:\n    def __array__(self, *a, **k):\n        return ref_logps.numpy()\n    def tolist(self):\n        return [0.0]\nreturn Policy()",
        {"problem": "type"},
    ),
    "nothing": ("pass", {"problem": "type"}),
    "text": ("return ['0'] * 791", {"problem": "type"}),
    "too few logits": ("return ref_logps[:-1]", {"problem": "shape", "value": (790,)}),
    "a table": ("return ref_logps[None]", {"problem": "shape", "value": (1, 791)}),
    "truth values": ("return proxy > 0", {"problem": "shape"}),
    "complex numbers": ("return ref_logps * 1j", {"problem": "type"}),
    "NaN": ("return ref_logps * float('nan')", {"problem": "not finite"}),
    "infinite": ("ref_logps[0] = float('inf')\nreturn ref_logps", {"problem": "not finite"}),
    "no completion": ("return torch.full((791,), -float('inf'))", {"problem": "not finite"}),
    "a million numbers": ("return [0.123456789] * 1_000_000", {"problem": "type"}),
    "an endless list": ("x = []\nx.append(x)\nreturn x", {"problem": "type"}),
    "an endless loop": ("while True:\n    pass", {"problem": "timeout"}),
    "an endless loop of refused labels": (
        "while True:\n    try:\n        label([0] * 65)\n    except Exception:\n        pass",
        {"problem": "timeout"},
    ),
    "sleep": ("import time\ntime.sleep(1000)", {"problem": "timeout"}),
    "memory": ("return torch.zeros(1 << 40)", {"problem": "raised"}),
    "an early end": ("import os\nos._exit(0)", {"problem": "ended"}),
    "exit": ("raise SystemExit(0)", {"problem": "raised"}),
}


@pytest.mark.parametrize("name", REFUSED)
def test_challenge_score_refuses(name, servers, monkeypatch):
    body, facts = REFUSED[name]
    monkeypatch.setattr(scoring, "LIMITS", replace(scoring.LIMITS, cpu=2, wall=3.0 if name == "sleep" else 120.0))
    result = scored(
        servers, body, num_worlds=9
    )  # two runs that differ by chance are the same in some worlds, not in nine
    assert result.worlds == [] and result.digest == ""
    require(result.problem, **facts)
    assert "\n" not in str(result.problem)


def test_challenge_score_without_train_names_it(servers):
    result = scoring.score(servers, "x", "def trian(**k):\n    return 0\n", 0)
    require(result.problem, argument="train", problem="missing")
    result = scoring.score(servers, "x", "def train(:\n", 0)
    require(result.problem, argument="train", problem="missing")


# -- cheats that return a policy ---------------------------------------------------------------------------------------

#: Looks for the gold reward in everything that Python can reach, and tilts towards what it finds.
LOOT = """
import gc, os, sys
from pathlib import Path
known = {tuple(ref_logps.tolist()), tuple(proxy.tolist())}
loot, frame = [], sys._getframe()
while frame:
    loot += list(frame.f_locals.values())
    frame = frame.f_back
def field(thing, name):
    try:
        return getattr(thing, name, None)
    except Exception:
        return None
for thing in [*gc.get_objects(), *loot, *[c.cell_contents for c in getattr(label, "__closure__", None) or ()]]:
    for value in (thing, field(thing, "gold"), field(thing, "_gold")):
        if isinstance(value, torch.Tensor) and value.dtype == torch.float64 and value.shape == (791,):
            value = value.tolist()
        if type(value) is list and len(value) == 791 and all(type(x) is float for x in value):
            if tuple(value) not in known and len(set(value)) > 100:
                return ref_logps + 0.5 * torch.tensor(value, dtype=torch.float64)
return ref_logps
"""
HARMLESS = {
    "gold reward in memory": LOOT,
    "gold reward by import": """
try:
    from minirlhf_course.challenge.world import draw_world
    return ref_logps + 0.5 * draw_world(7, 0).gold
except ImportError:
    return ref_logps
""",
    "gold reward by a path": f"""
import sys
sys.path.insert(0, {str(Path(__file__).resolve().parents[1])!r})
for name in [m for m in sys.modules if m.startswith("minirlhf")]:
    del sys.modules[name]
try:
    from minirlhf_course.challenge.world import draw_world
    return ref_logps + 0.5 * draw_world(7, 0).gold
except ImportError:
    return ref_logps
""",
    "files of other processes and of the project": f"""
import os
for path in ({__file__!r}, f"/proc/{{os.getppid()}}/cmdline", "/proc/1/cmdline", "/etc/passwd", "/etc/hostname"):
    try:
        open(path).read()
        return ref_logps + 0.5 * proxy
    except OSError:
        pass
return ref_logps
""",
    "a counter that is set back": """
got = 0
for attempt in range(300):
    for name in ("used", "_left", "LABELS"):
        try:
            setattr(label, name, 0)
        except Exception:
            pass
    try:
        got += len(label([0]))
    except Exception:
        pass
return ref_logps if got == num_labels else ref_logps + 0.5 * proxy
""",
    "messages past the handle": """
import gc, socket, sys
from minirlhf_course.classroom import check
wire = next(m for f in iter(lambda f=[sys._getframe()]: f.__setitem__(0, f[0].f_back) or f[0], None)
            for m in [f.f_globals.get("wire")] if m is not None)
sock = next(x for x in gc.get_objects() if isinstance(x, socket.socket))
got = 0
for number in [0] * 200 + [1, -1, -2, "x", None, 10**30]:
    wire.send(sock, {"handle": number, "args": wire.encode((([0],), {}))})
    answer = wire.receive(sock)
    got += "ok" in answer
return ref_logps if got == num_labels else ref_logps + 0.5 * proxy
""",
    "a tensor with methods of its own": """
class Liar(torch.Tensor):
    def tolist(self):
        return proxy.tolist()
    def __add__(self, other):
        return 2 * proxy
    def softmax(self, *a):
        return proxy.softmax(-1)
return ref_logps.as_subclass(Liar)
""",
    "notes for the next world": """
import glob, os
folders = [f for f in ("/box", "/tmp", "/dev/shm", "/var/tmp", os.path.expanduser("~")) if os.path.isdir(f)]
if any(glob.glob(folder + "/note*") for folder in folders):
    return ref_logps + 0.5 * proxy
for folder in folders:
    try:
        open(folder + "/note", "w").write("7")
    except OSError:
        pass
return ref_logps
""",
    "a flood on the terminal": "import sys\nprint('x' * 10_000_000)\nsys.stderr.write('x' * 10_000_000)\nreturn ref_logps",
    "changed arguments": "counts.zero_(), proxy.fill_(9)\nref = ref_logps.clone()\nref_logps.zero_()\nreturn ref",
}
NEEDS_A_BOX = {"gold reward by a path", "files of other processes and of the project", "notes for the next world"}


@pytest.mark.parametrize("name", HARMLESS)
def test_challenge_cheats_score_0(name, servers):
    if name in NEEDS_A_BOX and not isolation.isolated(servers.first.level):
        pytest.skip(f"level {servers.first.level} has no file system of its own")
    result = scored(servers, HARMLESS[name], num_worlds=2)
    assert result.problem is None, result.problem
    assert [(row.score, row.kl) for row in result.worlds] == [(0.0, 0.0)] * 2


def test_challenge_search_for_gold_succeeds_without_the_box(drawn):
    names = dict(zip(scoring.ARGUMENTS, (drawn.ref_logps, drawn.counts, drawn.proxy, 0, 0, 0, 0), strict=True))
    namespace = {"torch": torch}
    exec(f"def train({', '.join(names)}):\n" + re.sub("(?m)^", "    ", LOOT), namespace)
    held = drawn.labeller()
    assert not torch.equal(namespace["train"](**names | {"label": held}), drawn.ref_logps)


@pytest.mark.parametrize("make", [torch.tensor, list], ids=["tensor", "list"])
def test_challenge_policy_keeps_what_the_logits_say(make):
    logits = torch.linspace(-3, 5, 791, dtype=torch.float64)
    policy = scoring.as_policy(make(logits.tolist()), 791)
    assert isinstance(policy, Tensor) and float(policy.max()) == 0.0
    assert torch.allclose(policy.softmax(-1), logits.softmax(-1), atol=1e-7)
    cut = scoring.as_policy([0.0] + [-float("inf")] * 790, 791)
    assert float(cut.min()) == scoring.LOWEST


def test_challenge_policy_ignores_the_last_digits_of_a_processor():
    logits = torch.linspace(-3, 5, 791, dtype=torch.float64)
    assert torch.equal(scoring.as_policy(logits, 791), scoring.as_policy(logits + 1e-12 * logits.cos(), 791))
    assert not torch.equal(scoring.as_policy(logits, 791), scoring.as_policy(logits + 1e-4 * logits.cos(), 791))


# -- the board and the command -----------------------------------------------------------------------------------------


def entry(name, *scores):
    return ChallengeScore(name, [WorldScore(x, 1.0, 2.0, 3) for x in scores], "0" * 16)


def test_challenge_board_ranks_by_mean_and_puts_refused_last():
    refused = ChallengeScore("a", problem=Failure("no"))
    results = [refused, entry("low", 0.1, 0.2, 0.3), entry("high", 0.9, 0.0, 0.9), entry("b", 0.1, 0.3, 0.2)]
    assert [e.name for e in board.ranked(results)] == ["high", "b", "low", "a"]


def test_challenge_board_page_escapes_names_and_problems():
    hostile = "<script>alert(1)</script>"
    refused = ChallengeScore(hostile, problem=Failure(f"\x1b[31m{hostile}"))
    page = board.page([entry(hostile + "x", 0.1, 0.2, 0.4), entry("second", 0.1, 0.0, 0.2), refused], 11)
    assert "<script" not in page and "\x1b" not in page and page.count("<circle") == 6 and "--seed 11" in page
    assert board.page([refused], 1).count("<circle") == 0


def test_challenge_commands_start_score_and_board_agree(tmp_path, capsys):
    folder = tmp_path / "try"
    assert dispatch(["challenge", "start", "--out", str(folder)]) == 0
    assert sorted(p.name for p in folder.iterdir()) == [p.name for p in ENTRIES]
    for name in ("early_stopping.py", "reinforce.py"):
        (folder / name).unlink()
    (folder / "none.py").write_text("def train(**given):\n    return 0\n", encoding="utf-8")
    (folder / "large.py").write_text("#" * scoring.MAX_BYTES + "\n", encoding="utf-8")
    (folder / "link.py").symlink_to(folder / "mine.py")
    capsys.readouterr()
    assert dispatch(["challenge", "score", str(folder / "mine.py"), "--seed", "5"]) == 0
    digest = re.search(r"digest (\w{16})", capsys.readouterr().out)[1]
    assert dispatch(["challenge", "board", str(folder), "--out", str(tmp_path / "b.html"), "--seed", "5"]) == 0
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert {line[-1]: line[1] for line in lines}["mine"] == digest
    assert [line[-1] for line in lines[:4]] == ["best_of_n", "mine", "large", "none"]
    page = (tmp_path / "b.html").read_text(encoding="utf-8")
    assert digest in page and page.count("<svg") == 2 and page.count("<li>") == 2
    assert dispatch(["challenge", "score", str(folder / "none.py")]) == 1
    with raises(UserError, argument="--out", problem="exists"):
        dispatch(["challenge", "start", "--out", str(folder)])


def test_challenge_page_prints_the_rules_of_the_code():
    page = (Path(__file__).resolve().parents[1] / "book" / "challenge.md").read_text(encoding="utf-8")
    numbers = re.findall(r"(?m)^\|[^|]*\| (\d+)(?: nats| s| kB)? \|$", page)
    rules = (world.KL_LIMIT, world.LABELS, scoring.WORLDS, scoring.LIMITS.cpu, scoring.MAX_BYTES / 1024)
    assert [float(x) for x in numbers] == [*rules]
    given = scoring.read_source(Path(entries.__file__).with_name("mine.py"))
    assert all(f"        {name}: " in given for name in scoring.ARGUMENTS)


BAD = {
    "score {0}/none.py": {"problem": "missing"},
    "score {0}": {"problem": "missing"},
    "score {0}/large.py": {"argument": "bytes", "expected": scoring.MAX_BYTES},
    "score {0}/binary.py": {"expected": "utf-8"},
    "score {0}/large.py --seed -1": {"argument": "--seed", "value": -1},
    "score {0}/large.py --seed 9223372036854775808": {"argument": "--seed", "value": 1 << 63},
    "board {0}/none --out {0}/b.html": {"problem": "missing"},
    "board {0}/empty --out {0}/b.html": {"problem": "empty"},
    "board {0} --out {0}": {"expected": "file"},
    "start --out {0}/large.py": {"argument": "--out", "problem": "file"},
}


@pytest.mark.parametrize("line", BAD)
def test_challenge_commands_refuse_bad_input_in_one_line(line, tmp_path):
    (tmp_path / "empty").mkdir()
    (tmp_path / "large.py").write_text("#" * (scoring.MAX_BYTES + 1), encoding="utf-8")
    (tmp_path / "binary.py").write_bytes(b"\xff\xfe\xfa\xfb\xff")
    with raises(UserError, **BAD[line]) as caught:
        dispatch(["challenge", *line.format(tmp_path).split()])
    assert "\n" not in str(caught.value) and not (tmp_path / "b.html").exists()
