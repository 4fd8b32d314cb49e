"""``minirlhf verify mine.md``: what is true gets its marks, what is false a counterexample that is one, and bad input one line."""

from pathlib import Path

import pytest
import torch
from facts import raises

from minirlhf.core.errors import UserError
from minirlhf_cli import dispatch, main
from minirlhf_course.ledger.formulas import derivation, derivation_names

BOOK = Path(__file__).resolve().parent.parent / "book" / "derivations"
SEED = 20240607


def checked(path, seed=SEED):
    """The steps of a file and what came of them, in this process."""
    _, steps = derivation.read(path)
    return steps, derivation_names.check([step.as_data() for step in steps], seed)


def reported(path, seed=SEED):
    return derivation.report(path, *checked(path, seed), seed)


def holds(path):
    """Whether each step that was tried holds; all of them are reported."""
    steps, verdicts = checked(path)
    assert all(step.label in derivation.report(path, steps, verdicts, SEED) for step in steps[: len(verdicts)])
    return [verdict["holds"] for verdict in verdicts]


@pytest.fixture
def mine(tmp_path):
    """Write a file of one's own."""

    def write(text):
        path = tmp_path / "mine.md"
        path.write_text(text, encoding="utf-8")
        return path

    return write


def step(latex, code="", label="one"):
    block = f"```python\n{code}\n```\n" if code else ""
    return f"$$\n{latex}\n$$ ({label})\n\n{block}\n"


# -- the book's two files ----------------------------------------------------------------------------------------


def test_derivation_that_is_true_holds_to_rounding():
    steps, verdicts = checked(BOOK / "chi-squared.md")
    assert [step.label for step in steps] == ["objective", "on-policy", "gradient", "baseline", "optimum"]
    assert all(v["holds"] and v["error"] < 1e-12 and v["printed"] for v in verdicts) and len(verdicts) == 5
    # A constant in the bracket is a baseline: these four misprints are true, and no others go unnoticed.
    assert [len(v["missed"]) for v in verdicts] == [0, 0, 0, 4, 0]


def test_derivation_with_planted_error_has_a_counterexample_that_is_one():
    """Both sides of the counterexample, worked out anew from its policy, reference, rewards and β alone."""
    steps, verdicts = checked(BOOK / "chi-squared-slip.md")
    assert [v["holds"] for v in verdicts] == [True, False] and steps[1].label == "gradient"
    found = verdicts[1]["counterexample"]
    p, q, r = (torch.tensor(found[name], dtype=torch.float64) for name in ("policy", "reference", "rewards"))
    assert len(p) == 2
    scores = torch.eye(2, dtype=torch.float64) - p  # of the logits of two replies, one row each
    true = (p * (r - found["beta"] * p / q)) @ scores
    slip = (p * (r - found["beta"] / 2 * p / q)) @ scores
    assert any(
        torch.allclose(torch.tensor([float(found["left"]), float(found["right"])]).double(), pair, atol=1e-4)
        for pair in torch.stack([true, slip], -1)
    )
    [failed] = [line for line in derivation.report(Path("slip.md"), steps, verdicts, SEED).splitlines() if "✗" in line]
    assert "gradient" in failed and "17" in failed and len(steps) == 3  # the third was not tried


@pytest.mark.slow
def test_verify_runs_blocks_in_a_box_and_writes_a_page(capsys, tmp_path):
    page = tmp_path / "page.html"
    assert main(["verify", str(BOOK / "chi-squared.md"), "--seed", "3", "--html", str(page)]) == 0
    assert capsys.readouterr().out.count("✓") == 5
    text = page.read_text(encoding="utf-8")
    assert text.count("✓ (") == 5 and text.count("<svg") >= 5 and "<script" not in text
    assert main(["verify", str(BOOK / "chi-squared-slip.md"), "--seed", "3"]) == 1
    assert capsys.readouterr().out.count("✗") == 1


@pytest.mark.slow
def test_verify_block_cannot_write_outside_its_box(mine, tmp_path):
    goal = tmp_path / "written"
    path = mine(step("1 = 1", f"open({str(goal)!r}, 'w').write('x')\nleft = right = 1"))
    with raises(UserError, file=str(path), line=6, argument="block"):
        dispatch(["verify", str(path)])
    assert not goal.exists()


# -- what a block may say ----------------------------------------------------------------------------------------


def test_derivation_sides_are_compared_entry_by_entry(mine):
    code = "left = gradient(expectation(rewards))\nright = expectation(rewards * gradient(policy.log()))"
    [found] = checked(mine(step("words", code)))[1]
    assert found["holds"] and found["sides"] and not found["printed"]
    shifted = "left = policy\nright = policy + 1e-6"
    assert holds(mine(step("words", f"{shifted} * (rewards > 10)"))) == [True]  # no reward is that large
    assert holds(mine(step("words", shifted))) == [False]


@pytest.mark.parametrize(
    ("latex", "true"),
    [
        (r"\sum_y \pi(y) = 1", True),
        (r"\mathbb{E}_\pi\Big[\frac{\pi_{\mathrm{ref}}}{\pi}\Big] = 1", True),
        (r"\KL(\pi\|\piref) = \KL(\piref\|\pi)", False),
    ],
)
def test_derivation_formula_of_known_signs_needs_no_block(latex, true, mine):
    assert holds(mine(step(latex))) == [true]


def test_derivation_that_holds_for_two_replies_only_fails_on_more(mine):
    """With two replies Σ π² = 1 − 2 π(y₁) π(y₂); the worlds grow until it breaks."""
    found = checked(mine(step("words", "left = (policy**2).sum()\nright = 1 - 2 * policy[0] * policy[1]")))[1][0]
    assert not found["holds"] and len(found["counterexample"]["policy"]) == 3


def test_derivation_names_pass_from_block_to_block_and_results_do_not(mine):
    text = step("words", "f = rewards**2\nleft, right = f, f", "one")
    assert holds(mine(text + step("words", "left, right = f, rewards * rewards", "two"))) == [True, True]
    with raises(UserError, argument="block", value="right", problem="missing"):
        reported(mine(step("words", "left, right = 1, 1", "one") + step("words", "right = 1", "two")))


def test_derivation_block_may_import_the_library(mine):
    code = "from minirlhf.equations import kl\nleft, right = kl.k1(policy, policy), torch.zeros_like(policy)"
    assert holds(mine(step("words", code))) == [True]


# -- bad input ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "facts"),
    [
        ("words only", {"argument": "label", "problem": "missing"}),
        ("$$\na = 1\n", {"line": 1, "problem": "never closed"}),
        (step("1 = 1") + "```python\nx\n", {"line": 6, "problem": "never closed"}),
        (step("1 = 1") + step("2 = 2"), {"line": 6, "argument": "label", "value": "one", "problem": "duplicate"}),
        (step("1 = 1", "left ="), {"line": 6, "problem": "SyntaxError"}),
        (step("1 = 1", "x = 1\nleft = polcy"), {"line": 7, "problem": "NameError"}),
        (step("1 = 1", "raise SystemExit"), {"line": 6, "problem": "SystemExit"}),
        (step("1 = 1", "left = 1"), {"line": 1, "argument": "block", "value": "left", "problem": "missing"}),
        (step("1 = 1", "left, right = policy, 1"), {"line": 1, "value": ((2,), ()), "problem": "shape"}),
        (step("1 = 1", "left, right = 'a', 'b'"), {"line": 1, "argument": "left, right", "problem": "type"}),
        (step("1 = 1", "legend = 3"), {"line": 1, "argument": "legend", "problem": "type"}),
        (step(r"\pi(y) = a/b c", "legend = {'a': 1, 'b': 1, 'c': 1}"), {"line": 1, "argument": "formula"}),
        (step("r(y"), {"line": 1, "argument": "formula"}),
    ],
)
def test_derivation_that_cannot_be_read_names_file_and_line(mine, text, facts):
    path = mine(text)
    with raises(UserError, file=str(path), **facts) as caught:
        reported(path)
    assert "\n" not in str(caught.value)


def test_verify_of_a_file_refuses_other_arguments(mine, tmp_path):
    with raises(UserError, file=str(tmp_path / "none.md")):
        dispatch(["verify", str(tmp_path / "none.md")])
    with raises(UserError, argument="--html", value="x.html"):
        dispatch(["verify", "--html", "x.html"])
    path = mine(step("1 = 1"))
    for arguments in (["eq:dpo"], ["--json"]):
        with raises(UserError, argument="LABEL", value=str(path)):
            dispatch(["verify", str(path), *arguments])
