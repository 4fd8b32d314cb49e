"""The whole ledger: every check holds on drawn inputs, every wrong variant is rejected, every derivation is unbroken.

``tests/chance.py equations`` tries many draws.
"""

import functools
import itertools
import json
import re
import secrets

import pytest
import torch
from facts import raises
from plan import of_chapter

from minirlhf.core import provenance
from minirlhf.core.errors import UserError
from minirlhf.core.randomness import derive_seed
from minirlhf_cli import dispatch, main
from minirlhf_course import chapters
from minirlhf_course.chapters import load_checks
from minirlhf_course.ledger import claims
from minirlhf_course.ledger import pages as reader
from minirlhf_course.ledger.registry import Ledger, chain, check, run

LEDGER = load_checks()
CHECKS = list(LEDGER.checks.values())
CHAINS = list(LEDGER.chains.values())
each_check = pytest.mark.parametrize("entry", [of_chapter(c.chapter, c, id=f"{c.label}-{c.claim}") for c in CHECKS])
each_label = pytest.mark.parametrize(
    "label", [of_chapter(LEDGER.select([label])[0].chapter, label, id=label) for label in LEDGER.labels()]
)


@pytest.fixture(scope="module")
def seeds(suite_seed):
    """A fixed one, and one that the run's own seed gives; ``make explore`` gives others."""
    return [0, derive_seed("ledger", suite_seed) % 2**31]


@functools.cache
def proved(key, seed):
    return reader.outcome(LEDGER.checks[key], seed)


def prove(entry, seed):
    """A check and its wrong variants on a seed: run once, by the first of the tests that ask."""
    return proved(entry.key, seed)


def errors(outcome):
    return {"": outcome.result.error} | {name: result.error for name, result in outcome.wrong.items()}


# -- the checks --------------------------------------------------------------------------------------------------


@each_check
def test_ledger_check_holds(entry, seeds):
    for result in (prove(entry, seed).result for seed in seeds):
        assert result.passed, reader.failure(result)


@each_check
def test_ledger_check_rejects_its_wrong_variants(entry, seeds):
    """By far, on each seed or the two after it, and because they compute something else: one that raises would reject itself."""
    for seed in seeds:
        accepted = {name: prove(entry, seed).wrong[name] for name in prove(entry, seed).accepted}
        assert not accepted, f"{entry.key} accepts {accepted}"


@pytest.mark.slow
@each_check
def test_ledger_check_depends_on_its_seed_alone(entry):
    """Nothing is drawn behind the back of the seed, and nothing is left behind for the next check.

    The errors of a check that holds are rounding, whose last bits depend on where the memory lies: those of its wrong
    variants tell other inputs.
    """
    torch.manual_seed(secrets.randbits(60))
    again = reader.outcome(entry, 0)
    assert errors(again) == pytest.approx(errors(prove(entry, 0)), rel=1e-6, abs=entry.tolerance / 100, nan_ok=True)
    assert torch.get_default_dtype() == torch.float32


@pytest.mark.slow
@each_label
def test_ledger_page_shows_statement_claims_and_variants(label):
    text, passed = reader.page(LEDGER, label, seed=0, prove=prove)
    assert passed, text
    for entry in LEDGER.select([label]):
        for part in (entry.statement.split()[0], entry.claim, *entry.wrong):
            assert part in text


# -- the derivations ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("derivation", [pytest.param(c, id=c.name) for c in CHAINS])
def test_ledger_chain_is_unbroken(derivation):
    """Each step has a check that equates it with the step before, and no check but this one does."""
    assert len(derivation.labels) >= 2
    assert len(set(derivation.labels)) == len(derivation.labels)
    assert derivation.labels[0] in LEDGER.labels()
    for before, step in itertools.pairwise(derivation.labels):
        assert [c for c in LEDGER.select([step]) if c.follows == before], f"{step} is not equated with {before}"


def test_ledger_steps_belong_to_a_chain():
    pairs = {pair for c in CHAINS for pair in itertools.pairwise(c.labels)}
    assert [c.key for c in CHECKS if c.follows is not None and (c.follows, c.label) not in pairs] == []


def test_ledger_checks_belong_to_a_chapter():
    assert [c.key for c in CHECKS + CHAINS if c.chapter == 0] == []


# -- the command, on a ledger of our own ------------------------------------------------------------------------


def double(x):
    """Twice ``x``."""
    return 2 * x


@pytest.fixture
def small(monkeypatch):
    """A ledger with a sound check, a second claim, and a chain; ``small(broken=True)`` adds a check that fails."""

    def build(broken=False):
        ledger = Ledger()
        options = {"against": "addition", "wrong": {"tripled": lambda x: 3 * x}, "ledger": ledger}

        @check("eq:double", "value", "Doubling is adding to itself.", of=double, **options)
        def _(f, draw):
            x = draw.normal(3)
            return f(x), x + x

        @check(
            "eq:half", "step", "Half of the double is the number.", of=lambda x: 2 * x, follows="eq:double", **options
        )
        def _(f, draw):
            x = draw.uniform(3, low=1, high=2)
            return f(x) / 2, x

        chain("halving", "From the double to the half", ["eq:double", "eq:half"], module=__name__, ledger=ledger)
        if broken:

            @check("eq:broken", "value", "Doubling adds a half.", of=lambda x: 2 * x + 0.5, **options)
            def _(f, draw):
                x = draw.uniform(3, low=-0.5, high=0.5)
                return f(x), x + x

        monkeypatch.setattr(chapters, "load_checks", lambda: ledger)
        monkeypatch.setattr(chapters, "read_labels", ledger.labels)
        return ledger

    return build


@pytest.mark.parametrize("label", ["eq:dpo", "eq:ppo-clip"])
def test_source_names_the_file_of_a_function_under_its_decorators(label):
    for function in reader.homes()[label]:
        path, line = reader.source(function)[0].split(":")
        definition = "\n".join((provenance.ROOT / path).read_text(encoding="utf-8").splitlines()[int(line) - 1 :])
        assert definition.startswith("@") and f"\ndef {function.__name__}(" in definition.partition('"""')[0]


def test_labels_read_from_the_text_of_the_checks_are_the_ledgers():
    assert chapters.read_labels() == sorted(LEDGER.labels())


def test_verify_prints_a_line_per_check(small, capsys):
    small()
    assert main(["verify", "--seed", "12"]) == 0
    head, first, second, blank, last = capsys.readouterr().out.splitlines()
    assert first.split()[:3] == ["eq:double", "value", "addition"] and second.split()[:2] == ["eq:half", "step"]
    assert first.endswith("✓") and second.endswith("✓")
    assert len(head.split()) == 8 and first.index("value") == second.index("step")
    assert blank == "" and "12" in last


def test_verify_draws_a_seed_unless_one_is_given(small, capsys):
    small(broken=True)
    outputs = []
    for arguments in ([], [], ["--seed", "3"], ["--seed", "3"]):
        assert main(["verify", "--json", *arguments]) == 1
        result = json.loads(capsys.readouterr().out)
        outputs.append((result["seed"], [c["error"] for c in result["checks"]]))
    assert outputs[0] != outputs[1]
    assert outputs[2] == outputs[3]


def test_verify_failure_prints_the_command_that_repeats_it(small, capsys):
    small(broken=True)
    assert main(["verify"]) == 1
    text = capsys.readouterr().out
    [(label, seed)] = re.findall(r"minirlhf verify (\S+) --seed (\d+)", text)
    assert main(["verify", label, "--seed", seed]) == 1
    again = capsys.readouterr().out
    error = re.compile(r"^eq:broken +value +addition +(\S+) ", re.MULTILINE)
    assert error.findall(again) == error.findall(text) != []


def test_verify_shows_an_exception_inside_a_check(small, capsys):
    ledger = small()

    @check(
        "eq:raises", "value", "Cannot be computed.", of=double, against="nothing", wrong={"x": double}, ledger=ledger
    )
    def _(f, draw):
        raise RuntimeError("no such thing")

    assert main(["verify", "eq:raises"]) == 1
    assert "RuntimeError: no such thing" in capsys.readouterr().out
    assert main(["verify", "eq:raises", "--json"]) == 1
    [entry] = json.loads(capsys.readouterr().out)["checks"]
    assert entry["error"] is None
    assert not entry["passed"]


def test_verify_json_holds_what_the_table_holds(small, capsys):
    small(broken=True)
    assert main(["verify", "--json", "--seed", "4"]) == 1
    result = json.loads(capsys.readouterr().out)
    assert (result["seed"], result["passed"], result["failed"]) == (4, 2, 1)
    entry = result["checks"][1]
    assert (entry["label"], entry["claim"], entry["follows"]) == ("eq:half", "step", "eq:double")
    assert (entry["against"], entry["wrong"], entry["passed"]) == ("addition", ["tripled"], True)
    assert entry["statement"] == "Half of the double is the number."
    assert entry["error"] <= entry["tolerance"] == 1e-9
    assert entry["seconds"] > 0


def test_verify_show_prints_code_check_run_and_neighbours(small, capsys):
    small()
    assert main(["verify", "--show", "eq:double", "--seed", "9"]) == 0
    text = capsys.readouterr().out
    own = ("value: Doubling is adding to itself.", "addition", "def double(x):", "return f(x), x + x", "tripled")
    chained = ("From the double to the half", " ▸ 1. eq:double", "   2. eq:half")
    for part in (*own, *chained, " 9\n", *claims.PROMISES):
        assert part in text
    small(broken=True)
    assert main(["verify", "--show", "eq:broken"]) == 1


@pytest.mark.parametrize("width", [40, 80, 146, 147, 200])
def test_ledger_pages_keep_to_their_width(width):
    left, right = ["def f(x):", "    return " + "x + " * 60 + "x", ""], ["def g(y):", "", "    return y"]
    lines = reader.beside(left, right, width)
    assert max(map(len, lines)) <= width
    assert any("def f" in line and "def g" in line for line in lines) == (width >= 147)
    words = " ".join(lines).replace("↪", "").replace("│", "").split()
    assert sorted(words) == sorted(" ".join(left + right).split())


@pytest.mark.parametrize("width", [None, 60, 100])
def test_ledger_table_keeps_to_its_width_as_far_as_names_allow(width):
    table = reader.Table.fit(CHECKS, width)
    row = table.row(run(CHECKS[0], 0))
    assert len(row) <= max(table.label + table.claim + 46 + 15, width or 10**6)
    assert CHECKS[0].label in row and CHECKS[0].claim in row


def test_verify_chains_lists_steps(small, capsys):
    small()
    assert main(["verify", "--chains"]) == 0
    assert "halving" in (text := capsys.readouterr().out)
    assert "eq:double → eq:half" in text


@pytest.mark.parametrize(
    ("arguments", "facts"),
    [
        (["eq:doubel"], {"argument": "label", "value": "eq:doubel", "expected": "eq:double"}),
        (["--show", "eq:halv"], {"argument": "label", "value": "eq:halv", "expected": "eq:half"}),
        (
            ["--chapter", "99"],
            {"argument": "--chapter", "value": 99, "expected": sorted({c.chapter for c in LEDGER.checks.values()})},
        ),
        (["eq:double", "--all"], {"argument": "LABEL --all"}),
        (["--chapter", "5", "--chains"], {"argument": "--chapter --chains"}),
        (["--chains", "--json"], {"argument": "--json", "value": "--chains"}),
    ],
)
def test_verify_with_bad_arguments_names_them(small, capsys, arguments, facts):
    small()
    with raises(UserError, **facts):
        dispatch(["verify", *arguments])
    assert capsys.readouterr().out == ""


def test_scientific_numbers_are_short():
    numbers = [0.0, 1e-9, 2.22e-16, 1.0, 123.456, float("inf")]
    assert [reader.scientific(x) for x in numbers] == ["0", "1e-9", "2.2e-16", "1e0", "1.2e2", "inf"]
