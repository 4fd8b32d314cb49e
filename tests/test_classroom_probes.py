"""The machine's own questions: each kind finds its mistake in an exercise whose author wrote one test, and accuses nobody else."""

from collections import Counter
from dataclasses import replace

import pytest
import torch
from facts import raises

from minirlhf.core.errors import UserError
from minirlhf_course.classroom import derivation, nested, probes, proof, release, side_by_side
from minirlhf_course.classroom import exercise as sources
from minirlhf_course.classroom.grading import run_tests
from minirlhf_course.classroom.runner import Limits, Local, SandboxedSubmission, Server

SOURCE = """# ---
# title: A loss
# kind: implement
# minutes: 5
# ---

# %% [statement]
# Write `loss(logps, mask, scale)` and `best(x)`.

# %% [given]
import torch

# %% [stub]
def loss(logps, mask, scale=2.0):
    raise NotImplementedError


def best(x):
    raise NotImplementedError

# %% [solution]
def loss(logps, mask, scale=2.0):
    kept = torch.where(mask, logps, 0.0)
    return -scale * kept.sum() / mask.sum()


def best(x):
    return x.argmax(-1)

# %% [tests]
from minirlhf_course.classroom.testing import expect, test

@test(points=2, hints=("One.", "Two."))
def the_loss(sub, draw):
    "`loss` is a mean."
    logps = draw.normal(3, 4)
    mask = draw.mask(3, 4)
    mask[0, 2:] = False
    expect(sub.loss(logps, mask), -2 * logps[mask].mean())

@test(points=1, hints=("Three.", "Four."))
def the_best(sub, draw):
    "`best` finds it."
    x = draw.permutation(3).double()[None]
    expect(sub.best(x), x.argmax(-1))

# %% [mutant] no minus
# caught by: the_loss
def loss(logps, mask, scale=2.0):
    return scale * logps[mask].mean()

# %% [mutant] a sum
# caught by: the_loss
def loss(logps, mask, scale=2.0):
    return -scale * logps[mask].sum()

# %% [mutant] the worst
# caught by: the_best
def best(x):
    return x.argmin(-1)

# %% [partial] 2: the loss
def best(x):
    return None
"""


@pytest.fixture
def exercise(tmp_path):
    path = tmp_path / "07_name" / "ex_07_3.py"
    path.parent.mkdir()
    path.write_text(SOURCE, encoding="utf-8")
    return sources.read(path)


def graded(exercise, code, seed):
    return run_tests(exercise, proof.answer(exercise, exercise.solution, code), seed)


WRONG = {
    "gradient": [
        "def loss(logps, mask, scale=2.0): return -scale * logps.detach()[mask].mean()",
        "def loss(logps, mask, scale=2.0): return float(-scale * logps[mask].mean())",
        "def loss(logps, mask, scale=2.0):\n    with torch.no_grad(): return -scale * logps[mask].mean()",
        "def loss(logps, mask, scale=2.0): return -scale * (logps[mask].mean() + 0.5 * (logps[mask] - logps[mask].detach()).sum())",
    ],
    "nan": ["def loss(logps, mask, scale=2.0): return -scale * (logps * mask).sum() / mask.sum()"],
    "inputs": [
        "def loss(logps, mask, scale=2.0):\n    logps[~mask] = 0\n    return -scale * logps.sum() / mask.sum()",
        "def loss(logps, mask, scale=2.0):\n    m = -scale * logps[mask].mean()\n    mask.fill_(True)\n    return m",
    ],
    "random": [
        "def loss(logps, mask, scale=2.0):\n    torch.manual_seed(0)\n    return -scale * logps[mask].mean()",
        "import numpy\ndef best(x):\n    numpy.random.rand()\n    return x.argmax(-1)",
        "import random\ndef best(x):\n    random.seed(3)\n    return x.argmax(-1)",
    ],
    "keywords": [
        "def loss(logps, mask, scale=2.0): return -2 * logps[mask].mean()",
        "def loss(logps, mask, scale=2.0): return -(scale or 2.0) * logps[mask].mean()",
    ],
    "size": [
        "def loss(logps, mask, scale=2.0): return -scale * torch.stack([logps[i][mask[i]].sum() for i in range(3)]).sum() / mask.sum()",
        "def best(x): return (x == 2).long().argmax(-1) if x.shape[-1] == 3 else x.argmin(-1)",
    ],
    "values": ["def best(x): return (x == x.shape[-1] - 1).long().argmax(-1)"],
    "float32": [
        "def loss(logps, mask, scale=2.0): return -scale * (logps.reshape(-1) @ mask.double().reshape(-1)) / mask.sum()",
        "def loss(logps, mask, scale=2.0): return -scale * logps.nan_to_num().reshape(-1) @ mask.double().reshape(-1) / mask.sum()",
    ],
    "integers": ["def best(x): return x.argmax(-1).double()"],
    "again": ["OUT = torch.zeros(1).long()\ndef best(x): return OUT.resize_(x.shape[:-1]).copy_(x.argmax(-1))"],
}


@pytest.mark.parametrize(("kind", "code"), [(kind, code) for kind, codes in WRONG.items() for code in codes])
def test_probe_finds_its_mistake_and_gives_its_hint(kind, code, exercise, suite_seed):
    outcome = graded(exercise, code, suite_seed)
    failed = outcome.first_failure
    assert failed is not None, "a wrong answer earned all points"
    if kind in ("values", "size") and "best" in code:  # a hard-coded 2 may be caught as either
        assert failed.probe in ("values", "size")
    elif kind == "float32":
        assert failed.probe in ("float32", "nan")  # 0 · NaN as well
    else:
        assert failed.probe == kind
        assert failed.hints == probes.HINTS[kind]
    assert outcome.points == exercise.points - failed.test.points, "one mistake costs one test"


@pytest.mark.parametrize(
    "code",
    [
        "def loss(logps, mask, scale=2.0): return -scale * logps[mask].mean()",
        "def loss(logps, mask, scale=2.0): return -scale * torch.cat([a[b] for a, b in zip(logps, mask)]).mean()",
        "def loss(logps, mask, scale=2.0): return (-scale * logps[mask]).sum().double() / int(mask.sum())",
        "def best(x): return x.max(-1).indices.int()",
        "def best(x): return torch.tensor([row.index(max(row)) for row in x.tolist()])",
        "import numpy\ndef best(x): return numpy.argmax(x.numpy(), -1)",
    ],
)
def test_probes_accept_right_answers(code, exercise, suite_seed):
    outcome = graded(exercise, code, suite_seed)
    assert outcome.reason == ""


NESTED = """
def twice(world):
    {line}
    return 2.0
"""


@pytest.mark.parametrize(
    ("line", "is_changed"),
    [
        ("world['rows'][1].append(3)", True),
        ("world['table'][1] += 1", True),
        ("world['table'].unsqueeze_(0)", True),
        ("world['pair'][0].pop('a')", True),
        ("world.update(more=1)", True),
        ("world['rows'][0][0] = True", True),
        ("sum(world['rows'][1]); world['table'] + 1", False),
        ("world['table'] *= 1", False),
    ],
)
def test_side_effects_note_nested_input_that_a_call_changes(line, is_changed):
    world = {"rows": [[1], [2]], "table": torch.tensor([float("nan"), 1.0]), "pair": ({"a": 1}, float("nan"))}
    namespace = {}
    exec(NESTED.format(line=line), namespace)
    submission = Local(namespace, "ada")
    assert submission.call("twice", (world,), {}) == 2.0
    assert ("twice" in submission.effects()) == is_changed
    if is_changed:
        noted = submission.effects()["twice"]["inputs"]
        assert noted["argument"] == "world" and repr(noted["before"]) != repr(noted["after"])


def test_side_effects_of_inputs_cannot_be_switched_off(exercise):
    with raises(UserError, value="inputs"):
        switched_off(exercise, "# no inputs: it may")


def test_side_effects_of_random_numbers_can_be_switched_off(exercise, suite_seed):
    allowed = switched_off(exercise, "# no random of loss: it draws")
    assert graded(allowed, WRONG["random"][0], suite_seed).reason == ""
    assert graded(allowed, WRONG["random"][1], suite_seed).first_failure.probe == "random"


def test_side_effects_of_function_that_only_a_training_calls_are_noted(exercise, suite_seed):
    text = exercise.path.read_text()
    text = text.replace(
        "import expect, test", "import expect, test\nfrom minirlhf_course.classroom.training import trains"
    )
    text = text.replace(
        '@test(points=1, hints=("Three.", "Four."))', '@trains(points=1, hints=("Three.", "Four."), bar=0.1)'
    )
    text = text.replace("    expect(sub.best(x), x.argmax(-1))", "    return [float(sub.best(x))]")
    exercise.path.write_text(text)
    trained = sources.read(exercise.path)
    assert not derivation.plan(trained, suite_seed, "ada").calls["best"]
    spoiling = "def best(x):\n    y = x.argmax(-1)\n    x.zero_()\n    return y"
    for kind, code in (("inputs", spoiling), ("random", WRONG["random"][2])):
        failed = graded(trained, code, suite_seed).first_failure
        assert failed.probe == kind and failed.test.name == "the_best"
    assert graded(trained, "", suite_seed).reason == ""


def test_probes_skip_function_that_fails_its_test(exercise, suite_seed):
    outcome = graded(exercise, "def loss(logps, mask, scale=2.0): return float(scale * logps[mask].mean())", suite_seed)
    assert [r.passed for r in outcome.results] == [False, True]
    assert outcome.first_failure.probe == "" and outcome.first_failure.hints == ("One.", "Two.")


@pytest.mark.slow
def test_probe_plan_asks_until_answers_differ(exercise):
    """Else a wrong answer that is this constant would earn all points, once in 27 draws."""
    lucky, right = 0, side_by_side.solution(exercise, "ada")
    alone = replace(exercise, tests=tuple(t for t in exercise.tests if t.name == "the_best"))  # `loss` has many probes
    for seed in range(80):
        calls = derivation.plan(alone, seed, "ada").calls["best"]
        said = [right["best"](*c.args).item() for c in calls]
        assert len(set(said)) > 1
        lucky += len(calls) > 3
    assert lucky > 0, "of 80 draws, some have the largest number three times at one place"


def switched_off(exercise, line):
    text = exercise.path.read_text()
    exercise.path.write_text(text.replace("# %% [mutant] no minus", f"# %% [probes]\n{line}\n\n# %% [mutant] no minus"))
    return sources.read(exercise.path)


@pytest.mark.parametrize(
    "line", ["# no gradient: data", "# no gradient, float32 of loss: data", "# no gradient of loss.logps, best: data"]
)
def test_probe_is_switched_off_by_exercise(line, exercise, suite_seed):
    allowed = switched_off(exercise, line)
    assert graded(allowed, WRONG["gradient"][0], suite_seed).reason == ""
    assert graded(allowed, WRONG["nan"][0], suite_seed).first_failure.probe == "nan"


@pytest.mark.parametrize(
    ("line", "facts"),
    [
        ("# no gradient", {"argument": "probes", "value": "# no gradient"}),
        ("# no gradients: data", {"value": "gradients", "expected": "gradient"}),
        ("off = 1", {"argument": "probes", "value": "off = 1"}),
        ("# no gradient of lose: data", {"value": "lose", "expected": "loss"}),
        ("# no gradient of loss.logp: data", {"value": "logp", "expected": "logps"}),
    ],
)
def test_probe_switch_that_is_malformed_raises(line, facts, exercise):
    with raises(UserError, **facts) as caught:
        switched_off(exercise, line)
    assert "ex_07_3.py" in str(caught.value)


def test_proof_probed_requires_answer_or_switch(exercise, suite_seed):
    text = exercise.path.read_text()
    exercise.path.write_text(text.replace("kept = torch.where(mask, logps, 0.0)", "kept = logps * mask"))
    careless = sources.read(exercise.path)
    assert "'nan'" in proof.probed(careless, suite_seed, 1)
    assert proof.probed(switched_off(careless, "# no nan: no padding"), suite_seed, 1) == ""


def test_proof_machine_mutants_are_found(exercise, suite_seed):
    found = dict(proof.machine(exercise, suite_seed))
    assert {p for p in found.values() if p} == set()
    mutants = Counter(what.split("`")[1] for what in found)  # the function that a mutant is of
    assert mutants["loss"] >= 6 and mutants["best"] >= 3


@pytest.mark.parametrize(("kinds", "named"), [("nan", ""), ("keywords", "loss.scale"), ("keywords, varied", "")])
def test_proof_requires_two_values_of_every_number(kinds, named, exercise, suite_seed):
    switches = f"# no {kinds} of loss.scale: data\n# no varied of best.x: one row"
    problem = proof.varied(switched_off(exercise, switches), suite_seed)
    assert (named in problem) if named else problem == ""


@pytest.mark.parametrize(
    ("width", "shape", "off", "named"),
    [
        ("3", "x: (N, D)", "", "f.x"),
        ("draw.integer(2, 9)", "x: (N, D)", "", ""),
        ("3", "x: (N, 3)", "", ""),
        ("3", "x: (N, D)", "\n# no varied of f.x: as the statement says", ""),
    ],
)
def test_proof_requires_two_sizes_of_every_axis(width, shape, off, named, exercise, suite_seed):
    solution = f'def f(x):\n    """{shape}"""\n    return x.mean(-1)'
    test = f"for n in (2, 4):\n        x = draw.normal(n, {width})\n        expect(sub.f(x), x.sum(-1) / x.shape[1])"
    sized = rewritten(exercise, solution, test, f"# no size, single, gradient: data{off}")
    text = sized.path.read_text().replace("raise NotImplementedError", f'"""{shape}"""\n    raise NotImplementedError')
    sized.path.write_text(text)
    problem = proof.varied(sources.read(sized.path), suite_seed)
    assert (named in problem) if named else problem == ""


def test_probe_kinds_have_hints_and_order():
    assert set(probes.HINTS) == {"inputs", *sources.PROBES} == set(probes.ORDER) == set(probes.ASKS)


SPREAD = {
    "right": "def f(x):\n    c = x - x.mean(-1, keepdim=True)\n    live = x.amax(-1, keepdim=True) > x.amin(-1, keepdim=True)\n"
    "    return torch.where(live, c / torch.where(live, x.std(-1, keepdim=True), 1.0), 0.0)",
    "ties": "def f(x):\n    c, s = x - x.mean(-1, keepdim=True), x.std(-1, keepdim=True)\n"
    "    return torch.where(s > 0, c / torch.where(s > 0, s, 1.0), 0.0)",
    "gaps": "def f(x):\n    c, s = x - x.mean(-1, keepdim=True), x.std(-1, keepdim=True)\n"
    "    return torch.where(s > 1e-3, c / torch.where(s > 1e-3, s, 1.0), 0.0)",
    "single": "_own = f\ndef f(x): return _own(x).squeeze()",
    "scale, small": "_own = f\ndef f(x): return torch.where(x.abs() < 0.05, 0.0, _own(x)) if x.abs().max() < 0.05 else _own(x)",
    "scale, an epsilon": "_own = f\ndef f(x): return _own(x) * x.std(-1, keepdim=True) / (x.std(-1, keepdim=True) + 1e-7)",
    "scale, a clamp": "_own = f\ndef f(x): return _own(x.clamp(-100, 100))",
    "offset": "_own = f\ndef f(x):\n    m = x.mean(-1, keepdim=True)\n    v = (x * x).mean(-1, keepdim=True) - m * m\n"
    "    n = x.shape[-1]\n    s = (v.clamp(min=0) * n / max(n - 1, 1)).sqrt()\n    return torch.where(_own(x) == 0, 0.0, (x - m) / torch.where(s > 0, s, 1.0))",
    "size": "_own = f\ndef f(x): return torch.cat([_own(x[:64]), torch.zeros_like(x[64:])])",
}


@pytest.fixture
def spread(exercise):
    """An exercise about the standardised rows of a matrix, in which equal rows become zeros."""
    test = "x = 2.0 + draw.normal(2, 4)\n    expect(sub.f(x), (x - x.mean(-1, keepdim=True)) / x.std(-1, keepdim=True))"
    return rewritten(exercise, SPREAD["right"], test, "# no gradient: data")


def rewritten(exercise, solution, test, off):
    """Make an exercise of one function and one test."""
    head, _, _ = SOURCE.partition("# %% [statement]")
    definition = next(line for line in solution.splitlines() if line.startswith("def "))
    blocks = {"statement": f"# Write `{definition}`.", "given": "import torch", "solution": solution, "probes": off}
    blocks["stub"] = f"{definition}\n    raise NotImplementedError"
    blocks["tests"] = (
        "from minirlhf_course.classroom.testing import expect, test\n\n"
        f'@test(points=2, hints=("One.", "Two."))\ndef right(sub, draw):\n    "It is right."\n    {test}'
    )
    exercise.path.write_text(head + "\n".join(f"# %% [{name}]\n{text}\n" for name, text in blocks.items()))
    return sources.read(exercise.path)


@pytest.mark.parametrize(("kind", "code"), [(kind, code) for kind, code in SPREAD.items() if kind != "right"])
def test_probe_of_awkward_numbers_finds_its_mistake(kind, code, spread, suite_seed):
    failed = graded(spread, code, suite_seed).first_failure
    assert failed is not None, "a wrong answer earned all points"
    assert failed.probe == kind.split(",")[0]


@pytest.mark.parametrize(
    ("line", "is_caught"), [("# range 1e-4 to 50: why", False), ("# range 1e-4 to 500 of f.x: why", True)]
)
def test_probe_of_scale_keeps_to_the_range_that_is_stated(line, is_caught, spread, suite_seed):
    text = spread.path.read_text()
    spread.path.write_text(text.replace("# no gradient: data", f"# no gradient, offset: data\n{line}"))
    ranged = sources.read(spread.path)
    failed = graded(ranged, SPREAD["scale, a clamp"], suite_seed).first_failure
    assert (failed is not None) == is_caught
    said = release.cells([ranged])[2].text
    assert f"between 0.0001 and {500 if is_caught else 50} in size" in said


@pytest.mark.parametrize("target", ["g", "f.y"])
def test_range_of_unknown_function_or_argument_raises(target, spread):
    text = spread.path.read_text()
    spread.path.write_text(text.replace("# no gradient: data", f"# range 1e-4 to 50 of {target}: why"))
    with raises(UserError, value=target.rpartition(".")[2]):
        sources.read(spread.path)


COUNTED = """
def total(n, start=0.0, share=0.5):
    return start + sum(share**k for k in range({least}))
"""


def test_probe_of_large_integers_finds_hard_coded_limit(exercise, suite_seed):
    """Where a power has vanished before the limit, the limit is seen at another value of the other number."""
    test = (
        "n = draw.integer(4, 6)\n    expect(sub.total(n), sum(0.5**k for k in range(n)))\n"
        "    share = float(draw.uniform(1, low=0.2, high=0.6))\n    expect(sub.total(n, 1.0, share), 1 + (1 - share**n) / (1 - share))"
    )
    counted = rewritten(exercise, COUNTED.format(least="n"), test, "# no gradient: data")
    assert graded(counted, "", suite_seed).reason == ""
    failed = graded(counted, COUNTED.format(least="min(n, 100)"), suite_seed).first_failure
    assert failed is not None and failed.probe == "keywords"


DECAY = """
def decay(x, steps, rate, fee):
    level, stays = x.sum() / {rows}, (1 - rate) * (1 - fee)
    for _ in range({steps}):
        level = stays * level + fee
    return {result}
"""
DECAYS = {
    "": {},
    "single": {"rows": "max(len(x), 2)"},
    "keywords, small at once": {"result": "level if steps < 20 else level * 0 + fee / (1 - stays)"},
}


@pytest.mark.parametrize(("kind", "wrong"), DECAYS.items())
def test_probe_asks_for_one_row_and_small_numbers_at_once(kind, wrong, exercise, suite_seed):
    """One row also beside a number of steps that a length may have, since it is none."""
    right = {"rows": "len(x)", "steps": "steps", "result": "level"}
    test = (
        "x, rate, fee = draw.normal(4), *draw.uniform(2, low=0.2, high=0.4).tolist()\n"
        "    stays = (1 - rate) * (1 - fee)\n"
        "    expect(sub.decay(x, 3, rate, fee), stays**3 * x.mean() + fee * (1 - stays**3) / (1 - stays))"
    )
    decaying = rewritten(exercise, DECAY.format(**right), test, "# no gradient: data")
    failed = graded(decaying, DECAY.format(**{**right, **wrong}), suite_seed).first_failure
    assert (failed.probe if failed else "") == kind.split(",")[0]


REMEMBERS = {
    "a second time": "N = [0]\ndef f(x):\n    N[0] += 1\n    return N[0]",
    "before all other calls": "SEEN = set()\ndef f(x):\n    new = x not in SEEN\n    SEEN.add(x)\n    return new",
    "": "SEEN = {}\ndef f(x):\n    return SEEN.setdefault(x, x * x)",
}


@pytest.mark.parametrize(("how", "code"), REMEMBERS.items())
def test_probe_of_repeated_calls_finds_what_an_answer_remembers(how, code):
    def run():
        namespace = {}
        exec(code, namespace)
        return namespace

    submission = Local(run(), "ada", run)
    calls = tuple(probes.ProbeCall("f", (x,), {}, parameters=("x",)) for x in (3, 4))
    for call in calls:
        submission.call("f", call.args, {})
    if how:
        with pytest.raises(probes.Probed, match=how):
            probes.again(calls, submission, submission.fresh())
    else:
        probes.again(calls, submission, submission.fresh())


def test_boxed_submission_starts_afresh(exercise):
    with Server([exercise.path.parent]) as server:
        code = REMEMBERS["before all other calls"]
        old = SandboxedSubmission(server, [("cell", code)], {}, "ada", Limits())
        new = old.fresh()
        try:
            assert [old.call("f", (3,), {}) for _ in range(2)] == [True, False]
            assert new.call("f", (3,), {}) is True
        finally:
            old.close()
            new.close()


@pytest.mark.parametrize("eps", [0.0, 1e-8])
def test_probe_of_awkward_numbers_accepts_right_answers(eps, spread, suite_seed):
    code = f"def f(x): return torch.where(x == x[:, :1], 0.0, 1.0).amax(-1, True) * (x - x.mean(-1, True)) / (x.std(-1, keepdim=True) + {eps or 1e-12})"
    assert graded(spread, code, suite_seed).reason == ""


def test_probe_of_ties_is_not_made_where_solution_picks_one_of_equal_numbers(exercise, suite_seed):
    made = derivation.plan(exercise, suite_seed, "ada").by_function
    assert not [p for p in made["best"] if p.kind == "ties"]
    first = "def best(x): return torch.tensor([row.index(max(row)) for row in x.tolist()])"
    last = "def best(x): return x.shape[-1] - 1 - x.flip(-1).argmax(-1)"
    for code in (first, last):
        assert graded(exercise, code, suite_seed).reason == ""


def test_hints_of_probe_for_result_that_is_not_finite_do_not_ask_for_unused_argument():
    assert probes.hints("keywords", "not finite") == probes.UNUSABLE["not finite"] != probes.hints("keywords", "wrong")
    assert probes.hints("nan", "not finite") == probes.HINTS["nan"]


@pytest.mark.parametrize(("n", "m"), [(3, 4), (3, 6)])
def test_nested_stretch_keeps_kind_of_input(n, m):
    probs = torch.tensor([[0.2, 0.3, 0.5], [0.1, 0.1, 0.8]]).double()
    wide = nested.stretch(probs, n, m)
    assert wide.shape == (2, m) and torch.allclose(wide.sum(-1), torch.ones(2).double()) and bool((wide > 0).all())
    assert torch.allclose(nested.stretch(probs.log(), n, m).exp().sum(-1), torch.ones(2).double())
    rising = nested.stretch(torch.tensor([1.0, 2.0, 4.0]), n, n + 1)
    assert bool((rising.diff() > 0).all())
    mask = nested.stretch(torch.tensor([[True, True, False]]), n, m)
    assert mask.dtype == torch.bool and bool((mask.long().diff() <= 0).all())
    fewer = nested.select(probs, n, range(2))
    assert torch.allclose(fewer.sum(-1), torch.ones(2).double())
    assert nested.select([[1, 2, 3], [4, 5, 6]], n, [2]) == [[3], [6]]
    assert nested.select(([[7, 8]], [7, 8], "a"), 2, [1], first_axis=True) == ([[7, 8]], [8], "a")
    wins = torch.tensor([[0.5, 0.7, 0.2], [0.3, 0.5, 0.6], [0.8, 0.4, 0.5]]).double()
    larger = nested.stretch(wins, n, n + 1)
    assert torch.allclose(larger + larger.T, torch.ones(n + 1, n + 1).double())
    assert nested.stretch([torch.zeros(2), torch.ones(2), torch.ones(2)], n, m)[0].shape == (2,)
    assert len(nested.stretch([1, 2, 3], n, m)) == m and nested.stretch((1, 2, 3), n, m) == (1, 2, 3)


CHANCE = """@test(points=1, hints=("Three.", "Four."))
def the_best(sub, draw):
    "`best` finds it."
    x = draw.permutation(3).double()[None]
    mistakes = {"it is the worst": x.argmin(-1)}
    expect(sub.best(x), x.argmax(-1), what="`best`", mistakes=mistakes)"""


def test_mistake_is_named_only_if_answer_makes_it_on_other_inputs_too(exercise):
    text = exercise.path.read_text()
    start, end = text.index("@test(points=1"), text.index("# %% [mutant] no minus")
    exercise.path.write_text(f"{text[:start]}{CHANCE}\n\n{text[end:]}")
    named = sources.read(exercise.path)
    by_chance = 0
    for seed in range(12):
        worst = graded(named, "def best(x): return x.argmin(-1)", seed).first_failure
        assert worst.named == ("it is the worst",) and worst.problem == "mistake"
        first = graded(named, "def best(x): return torch.zeros(1).long()", seed).first_failure
        by_chance += bool(first.named)
    assert by_chance <= 4, "0 is the worst once in three draws, and here in three draws out of three"


def test_release_names_probes_that_functions_have(exercise):
    def text(source):
        return " ".join(cell.text for cell in release.cells([source]) if cell.kind == "markdown")

    words = {kind: said for kind, said in release.PROBED.items() if kind in ("size", "single", "nan")}
    assert all(said in text(exercise) for said in words.values())
    assert words["nan"] not in text(switched_off(exercise, "# no nan: no padding"))
