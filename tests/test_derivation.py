"""``minirlhf verify mine.md``: what is true gets its marks, what is false a counterexample that is one, and bad input one line."""

import re
from pathlib import Path

import pytest
import torch

from minirlhf.cli import main
from minirlhf.core.errors import UserError
from minirlhf.ledger.ink import derivation, desk

BOOK = Path(__file__).resolve().parent.parent / "book" / "derivations"
SEED = 20240607


def checked(path, seed=SEED):
    """The steps of a file and what came of them, in this process."""
    _, steps = derivation.read(path)
    return steps, desk.check([step.as_data() for step in steps], seed)


def told(path, seed=SEED):
    return derivation.report(path, *checked(path, seed), seed)


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


def test_the_true_derivation_holds_to_rounding():
    steps, verdicts = checked(BOOK / "chi-squared.md")
    assert [step.label for step in steps] == ["objective", "on-policy", "gradient", "baseline", "optimum"]
    assert all(v["holds"] and v["error"] < 1e-12 and v["printed"] for v in verdicts) and len(verdicts) == 5
    # A constant in the bracket is a baseline: these four misprints are true, and no others go unnoticed.
    assert [len(v["missed"]) for v in verdicts] == [0, 0, 0, 4, 0]


def test_the_planted_error_is_found_where_it_is_with_a_counterexample_that_is_one():
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
    said = derivation.report(Path("slip.md"), steps, verdicts, SEED)
    assert "✗ gradient   does not hold (line 17)" in said and "1 later step was not tried" in said


@pytest.mark.slow
def test_the_command_runs_the_blocks_in_a_box_and_writes_a_page(capsys, tmp_path):
    page = tmp_path / "page.html"
    assert main(["verify", str(BOOK / "chi-squared.md"), "--seed", "3", "--html", str(page)]) == 0
    assert "5 of 5 steps hold, seed 3" in capsys.readouterr().out
    text = page.read_text(encoding="utf-8")
    assert text.count("✓ (") == 5 and text.count("<svg") >= 5 and "<script" not in text
    assert main(["verify", str(BOOK / "chi-squared-slip.md"), "--seed", "3"]) == 1
    assert "counterexample with 2 replies" in capsys.readouterr().out


@pytest.mark.slow
def test_a_block_cannot_write_outside_its_box(capsys, mine, tmp_path):
    goal = tmp_path / "written"
    path = mine(step("1 = 1", f"open({str(goal)!r}, 'w').write('x')\nleft = right = 1"))
    assert main(["verify", str(path)]) == 2
    assert re.search(r"mine\.md:6: \(one\) \w+Error", capsys.readouterr().err)
    assert not goal.exists()


# -- what a block may say ----------------------------------------------------------------------------------------


def test_sides_are_compared_entry_by_entry(mine):
    good = mine(
        step("words", "left = gradient(expectation(rewards))\nright = expectation(rewards * gradient(policy.log()))")
    )
    assert "both sides computed" in told(good) and "printed" not in told(good)
    bad = mine(step("words", "left = policy\nright = policy + 1e-6 * (rewards > 10)"))
    assert "1 of 1 steps hold" in told(bad)  # no reward is that large
    bad = mine(step("words", "left = policy\nright = policy + 1e-6"))
    assert "does not hold" in told(bad)


def test_a_formula_of_known_signs_needs_no_block(mine):
    assert "1 of 1 steps hold" in told(mine(step(r"\sum_y \pi(y) = 1")))
    assert "1 of 1 steps hold" in told(mine(step(r"\mathbb{E}_\pi\Big[\frac{\pi_{\mathrm{ref}}}{\pi}\Big] = 1")))
    assert "does not hold" in told(mine(step(r"\KL(\pi\|\piref) = \KL(\piref\|\pi)")))


def test_an_identity_that_holds_for_two_replies_only_fails_on_more(mine):
    """With two replies Σ π² = 1 − 2 π(y₁) π(y₂); the worlds grow until it breaks."""
    found = checked(mine(step("words", "left = (policy**2).sum()\nright = 1 - 2 * policy[0] * policy[1]")))[1][0]
    assert not found["holds"] and len(found["counterexample"]["policy"]) == 3


def test_names_pass_from_block_to_block_and_results_do_not(mine):
    text = step("words", "f = rewards**2\nleft, right = f, f", "one") + step(
        "words", "left, right = f, rewards * rewards", "two"
    )
    assert "2 of 2 steps hold" in told(mine(text))
    with pytest.raises(UserError, match=r"mine\.md:\d+: \(two\) the block sets right only"):
        told(mine(step("words", "left, right = 1, 1", "one") + step("words", "right = 1", "two")))


def test_the_library_may_be_imported(mine):
    code = "from minirlhf.equations import kl\nleft, right = kl.k1(policy, policy), torch.zeros_like(policy)"
    assert "1 of 1 steps hold" in told(mine(step("words", code)))


# -- bad input ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("words only", r"mine\.md: no labelled equation"),
        ("$$\na = 1\n", r"mine\.md:1: \$\$ is never closed"),
        (step("1 = 1") + "```python\nx\n", r"mine\.md:6: ``` is never closed"),
        (step("1 = 1") + step("2 = 2"), r"mine\.md:6: the label one is used twice"),
        (step("1 = 1", "left ="), r"mine\.md:6: \(one\) SyntaxError"),
        (step("1 = 1", "x = 1\nleft = polcy"), r"mine\.md:7: \(one\) NameError: name 'polcy'"),
        (step("1 = 1", "raise SystemExit"), r"mine\.md:6: \(one\) SystemExit"),
        (step("1 = 1", "left = 1"), r"mine\.md:1: \(one\) the block sets left only"),
        (step("1 = 1", "left, right = policy, 1"), r"mine\.md:1: \(one\) left has shape \(2,\) and right \(\)"),
        (step("1 = 1", "left, right = 'a', 'b'"), r"mine\.md:1: \(one\) left and right are not both numbers"),
        (step("1 = 1", "legend = 3"), r"mine\.md:1: \(one\) legend is no dictionary"),
        (
            step("h = 1"),
            r"mine\.md:1: \(one\) the formula cannot be evaluated: h is defined, but nothing uses it; it needs a legend",
        ),
        (step(r"\pi(y) = a/b c", "legend = {'a': 1, 'b': 1, 'c': 1}"), r"mine\.md:1: .* two ways"),
        (step("r(y"), r"mine\.md:1: .* never closed"),
    ],
)
def test_bad_input_is_one_line_with_file_and_line(mine, text, said):
    with pytest.raises(UserError, match=said) as raised:
        told(mine(text))
    assert "\n" not in str(raised.value)


def test_bad_arguments_are_one_line(capsys, mine, tmp_path):
    assert main(["verify", str(tmp_path / "none.md")]) == 2
    assert "none.md: No such file" in capsys.readouterr().err
    assert main(["verify", "--html", "x.html"]) == 2
    assert "--html goes with a file of your own" in capsys.readouterr().err
    path = mine(step("1 = 1"))
    for arguments in (["eq:dpo"], ["--json"]):
        assert main(["verify", str(path), *arguments]) == 2
        assert "give it alone" in capsys.readouterr().err
