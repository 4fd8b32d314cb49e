"""Printed is proved: the reader reads what mathematicians mean, refuses what it cannot know, and no formula of the book is false."""

import inspect
import math
import re
import sys
from collections import Counter
from pathlib import Path

import pytest
import torch
from facts import raises

from minirlhf_course.chapters import chapters, load_checks, load_legends
from minirlhf_course.ledger import pages
from minirlhf_course.ledger.formulas import misprints, proof
from minirlhf_course.ledger.formulas.displays import displays, fences
from minirlhf_course.ledger.formulas.items import FormulaError, digest, tokens
from minirlhf_course.ledger.formulas.reader import FormulaParser

BOOK = Path(__file__).resolve().parent.parent / "book"
PRINTED = {
    found.label: found.latex
    for page in sorted(BOOK.glob("*.md"))
    for found in displays(page.read_text(encoding="utf-8"))
    if found.label
}
KNOWN = load_legends()
SEED = 20240607


def worst(latex, legend, linear=False):
    return proof.worst(tokens(latex), legend, linear)[0]


def batch(*numbers):
    return torch.tensor(numbers, dtype=torch.float64)


# -- reading -----------------------------------------------------------------------------------------------------

X = batch(0.3, 1.7, 2.9)
P = batch(0.2, 0.5, 0.3)


@pytest.mark.parametrize(
    ("latex", "expected"),
    [
        (r"-a^2 + \frac12 b", -4 + 1.5),
        (r"a - b - 1", -2),
        (r"2 a b/4", 3),
        (r"\tfrac{a+1}{b}^2", 1),
        (r"\log a\,b", 3 * math.log(2)),
        (r"a\cos b - \sin a", 2 * math.cos(3) - math.sin(2)),
        (r"-\log\sigma(-a)", math.log(1 + math.exp(2))),
        (r"e^{-a b}", math.exp(-6)),
        (r"\big|a - b\big|", 1),
        (r"\sum_i x_i", 4.9),
        (r"\sum_{i=1}^{2} x_i + 1", 3),
        (r"\sum_{i < 3} i\, x_i", 0.3 + 3.4),
        (r"\sum_{i \ne j}\cdot x_j", None),
        (r"\max_i x_i - \min_i x_i", 2.6),
        (r"\prod_{i} x_i", 0.3 * 1.7 * 2.9),
        (r"x_{\argmax_i x_i}", 2.9),
        (r"\E_p[x]", float(P @ X)),
        (r"\E_{i \sim p}\big[x_i^2\big]", float(P @ X**2)),
        (r"\operatorname{Var}_p(x)", float(P @ X**2 - (P @ X) ** 2)),
        (r"\operatorname{Cov}_p(x, -x)", -float(P @ X**2 - (P @ X) ** 2)),
        (r"\max(0, 1 - a) + \min(a, b, 7)", 2),
        (r"\operatorname{clip}(b, 1-\epsilon, 1+\epsilon)", 1.25),
        (r"[a = 2] + \mathbb{1}[a > b]", 1),
        (r"\begin{cases} a & \text{if } a > b, \\ 10\,b & \text{otherwise.}\end{cases}", 30),
        (r"x_1 + x_2 + \dots + x_n", 4.9),
        (r"\underbrace{a + b}_{\text{five}} a", 10),
        (r"\big|\{ i : x_i > 1 \}\big|", None),
        (r"\frac{\partial}{\partial \theta}\, \theta^3", 12),
        (r"f(a + 1)", 9),
    ],
)
def test_ink_reader_evaluates_each_construction(latex, expected):
    """Every construction against a number worked out by hand; None stands for ink that is refused."""
    theta = torch.tensor(2.0, dtype=torch.float64, requires_grad=True)
    legend = {"i": range(1, 4), "j": range(1, 4), "a": 2, "b": 3, "n": 3, "x_i": X, "x": X, "p": P, "p(i)": P}
    legend |= {r"\epsilon": 0.25, r"\theta": theta, "f(#)": lambda y: y**2, "y": expected, r"\dots": ("n", 1)}
    if expected is None:
        with pytest.raises((FormulaError, TypeError)):
            worst(f"y = {latex}", legend | {"y": 0})
    else:
        assert worst(f"y = {latex}", legend) < 1e-12
        assert worst(f"y = {latex}", legend | {"y": expected + 0.01}) > 1e-4


@pytest.mark.parametrize(
    ("latex", "facts"),
    [
        (r"y = a/b c", {"problem": "ambiguous"}),
        (r"y = z", {"value": "z", "problem": "no legend"}),
        (r"y = x_t", {"problem": "no legend"}),
        (r"y = \sum_i a", {"argument": "i", "problem": "unused index"}),
        (r"y = (a", {"value": "(", "problem": "not closed"}),
        (r"y = a]", {"value": "]", "problem": "not opened"}),
        (r"y = a +", {"problem": "missing"}),
        (r"y = a.b", {"problem": "unread rest"}),
        (r"a b", {"problem": "no relation"}),
        (r"y = a,\qquad q = b", {"argument": "legend", "value": "q"}),
        (r"y = \begin{cases} a & a > b, \\ b & a > 2 b \end{cases}", {"problem": "no case"}),
        (r"y = \E[a]", {"value": r"\E", "problem": "no legend"}),
        (r"y = \nabla a", {"problem": "no variable"}),
        (r"y = x_7", {"value": 7, "problem": "no entry"}),
        (r"y = \sigma a", {"value": r"\sigma", "problem": "no bracket"}),
    ],
)
def test_ink_reader_refuses_what_is_ambiguous_or_unknown(latex, facts):
    with raises(FormulaError, **facts):
        worst(latex, {"i": range(1, 4), "x_i": X, "a": 2, "b": 3, "c": 4, "y": 2})


def test_ink_proof_compares_chains_side_by_side_and_uses_definitions():
    legend = {"i": range(1, 4), "x_i": X, "m": X.mean(), "y_i": X - X.mean()}
    latex = r"y_i = x_i - q = x_i - m, \qquad q = \tfrac13 \sum_i x_i"
    assert worst(latex, legend) < 1e-15
    assert worst(latex.replace("- m", "+ m"), legend) > 1
    assert worst(latex.replace("q = x_i", "q + 1 = x_i"), legend) > 0.1
    reader = FormulaParser(legend)
    assert len(list(proof.comparisons(tokens(latex), legend, reader))) == 2


def test_ink_proof_compares_stopped_gradients_by_gradient():
    """sg[θ] θ and θ²/2 differ in value; sg[θ] θ and θ² only in the gradient."""
    theta = torch.tensor(2.0, dtype=torch.float64, requires_grad=True)
    assert worst(r"y = \mathrm{sg}[\theta]\,\theta", {r"\theta": theta, "y": theta.detach() * theta}) == 0
    assert worst(r"y = \mathrm{sg}[\theta]\,\theta", {r"\theta": theta, "y": theta**2}) == 1.0


def test_ink_proof_holds_a_claim_where_its_condition_holds():
    legend = {"i": range(1, 4), "x_i": X, "y_i": X.clamp(max=2.0)}
    assert worst(r"y_i = x_i \qquad (x_i < 2)", legend) == 0
    assert worst(r"y_i = x_i", legend) > 0.1


@pytest.mark.parametrize(("relation", "holds"), [(r"\ge", True), (r"\le", False), (">", True), ("<", False)])
def test_ink_proof_of_inequalities(relation, holds):
    assert (worst(rf"a {relation} b", {"a": 2, "b": 1}) == 0) == holds


def test_ink_reader_multiplies_vectors_and_matrices_of_linear_legends():
    m, u = torch.tensor([[2.0, 1.0], [0.0, 3.0]], dtype=torch.float64), batch(1.0, -1.0)
    legend = {"M": m, "u": u, "y": batch(1.0, -3.0), "z": 4.0}
    assert worst(r"y = M u", legend, linear=True) == 0
    assert worst(r"z = u^{\mathsf T} M u", legend, linear=True) == 0
    assert worst(r"u = M^{-1} y", legend, linear=True) < 1e-15


def test_ink_digest_ignores_spaces_and_sizes():
    assert digest(r"a = \Big(b\,+ c\Big)") == digest("a=(b+c)") != digest("a=(b-c)")


# -- misprints ---------------------------------------------------------------------------------------------------


def test_ink_misprints_generate_each_kind():
    kinds = Counter(
        kind for kind, _ in misprints.generate(tokens(r"y_i = -\frac{a_w}{\beta} \sum_{j\ge 1} x_j^2"), ["i", "j"])
    )
    assert kinds == {
        "sign": 2,
        "roles": 1,
        "fraction": 1,
        "bound": 1,
        "sum or product": 1,
        "exponent": 1,
        "factor": 1,
        "number": 2,
        "index": 3,
    }


# Five of each kind, written down before any of them was tried: (label, what is printed, the misprint).
PLANTED = {
    "sign": [
        ("eq:dpo-gradient", r"\hat r_l - \hat r_w", r"\hat r_w - \hat r_l"),
        ("eq:gae", r"\delta_t + \gamma", r"\delta_t - \gamma"),
        ("eq:rlhf-regrouped", r"- \log Z\Big) - \log Z", r"- \log Z\Big) + \log Z"),
        ("eq:tilt", r"e^{\lambda r(y)}, \qquad", r"e^{-\lambda r(y)}, \qquad"),
        ("eq:missing-eos", r"r(y) - p", r"r(y) + p"),
    ],
    "lost factor": [
        ("eq:q-from-v", r"\gamma \sum_{s'}", r"\sum_{s'}"),
        ("eq:returns-to-go", r"\gamma^t\, G_t", r"G_t"),
        ("eq:sapo", r"\frac{4}{\tau}", r"\frac{1}{\tau}"),
        ("eq:luspo", r"|y|\,\min", r"\min"),
        ("eq:kl-shaped-rewards", r"- \beta\,\KL", r"- \KL"),
    ],
    "roles swapped": [
        ("eq:dpo-positive", r"\tfrac{\piref(y_w)}{\pi(y_w)}", r"\tfrac{\pi(y_w)}{\piref(y_w)}"),
        ("eq:ppo-penalty", r"\KL(\piold\|\pi)", r"\KL(\pi\|\piold)"),
        ("eq:off-policy-mask", r"\frac{\mu(y_t)}{\pi(y_t)}", r"\frac{\pi(y_t)}{\mu(y_t)}"),
        ("eq:kto", r"\lambda_U", r"\lambda_D"),
        ("eq:ipo-target", r"p(y\succ\mu) - p(y'\succ\mu)", r"p(y'\succ\mu) - p(y\succ\mu)"),
    ],
    "index": [
        ("eq:rloo-advantage", r"\sum_{j\ne i} r_j", r"\sum_{j} r_j"),
        ("eq:importance-weights", r"k\le t", r"k < t"),
        ("eq:pl-dpo", r"j\ge k", r"j > k"),
        ("eq:n-step-advantage", r"\gamma^n V(s_{t+n})", r"\gamma^n V(s_{t+n-1})"),
        ("eq:softmax-derivative", r"\pi(v)\,\big([u = v] - \pi(u)\big)", r"\pi(u)\,\big([u = v] - \pi(u)\big)"),
    ],
    "bound or case": [
        ("eq:gmpo", r"\min(\log\rho_t,\, \epsilon) & A > 0", r"\min(\log\rho_t,\, \epsilon) & A < 0"),
        ("eq:adaptive-penalty", r"\KL < \kappa/1.5", r"\KL < \kappa"),
        ("eq:dapo-overlong", r"|y| - (L-L_c)", r"|y| - L"),
        ("eq:constrained-tilt", r"\E_\pi[c_k] \le \theta_k", r"\E_\pi[c_k] \ge \theta_k"),
        ("eq:ppo-clip-gradient", r"\rho_t < 1-\epsilon", r"\rho_t < 1+\epsilon"),
    ],
    "function": [
        ("eq:bellman-optimality", r"\max_a", r"\sum_a"),
        ("eq:value-clip", r"\max\big(", r"\min\big("),
        ("eq:perplexity", r"\exp\Big(-", r"\Big(-"),
        ("eq:ucb", r"\sqrt{\frac{\log t}{n_i}}", r"\frac{\log t}{n_i}"),
        ("eq:merged-distribution", r"\prod_k \pi_k(y)^{w_k}", r"\sum_k w_k \pi_k(y)"),
    ],
    "normaliser": [
        ("eq:drgrpo-advantage", r"\frac{G-1}{G}", r"\frac{G}{G-1}"),
        ("eq:grpo-advantage", r"\frac{1}{G - d}", r"\frac{1}{G}"),
        ("eq:simpo", r"\tfrac{\beta}{|y_l|}", r"\tfrac{\beta}{|y_w|}"),
        ("eq:robust-dpo", r"{1-2\varepsilon}", r"{1-\varepsilon}"),
        ("eq:token-mean", r"\frac{1}{\sum_j |y_j|}", r"\frac{1}{B\,|y_i|}"),
    ],
    "sign for another": [
        ("eq:temperature", r"\pi(v)^{1/T}", r"\pi(v)^{T}"),
        ("eq:gspo-token", r"\mathrm{sg}[s]\;", r"s\;"),
        ("eq:gold-rl", r"\beta \log d", r"\beta d"),
        ("eq:frontier-slope", r"}{\beta^3}", r"}{\beta^2}"),
        ("eq:rlhf-optimum", r"e^{r(y)/\beta}", r"e^{\beta\, r(y)}"),
    ],
}


@pytest.mark.parametrize(("kind", "at"), [(kind, at) for kind in PLANTED for at in range(5)])
def test_ink_proof_notices_planted_misprints(kind, at):
    """By a wrong value on the inputs of one of two seeds, or by the reader."""
    label, piece, misprint = PLANTED[kind][at]
    assert piece in PRINTED[label]
    wrong = tokens(PRINTED[label].replace(piece, misprint, 1))
    legend = KNOWN.legends[label]
    worlds = [legend.values(seed) for seed in (SEED, SEED + 1)]
    assert proof.noticed(wrong, worlds, legend.linear, legend.tolerance) in ("value", "refused")


# -- the book ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("label", [label for label in PRINTED if label in KNOWN.legends])
def test_ink_printed_formula_holds_and_its_legend_notices_misprints(label):
    """At another seed than the book's; the misprints are sampled."""
    found = proof.prove(PRINTED[label], KNOWN.legends[label], SEED, misprinted=12)
    assert found.passed, found
    assert [wrong for wrong in found.misprints if wrong.how == "missed"] == []


# Formulas in which no function of the library stands: identities between expressions, a limit, a bound, and what minimises a loss.
WITHOUT_A_FUNCTION = {
    *("eq:baseline-identity", "eq:own-mean-shrinkage", "eq:quadratic-kl", "eq:rloo-sum-form", "eq:rloo-scaled-center"),
    *("eq:dpo-gradient", "eq:bco-bound", "eq:decoupled-approval", "eq:entropy-gradient", "eq:spin", "eq:dno"),
    *("eq:reward-shift", "eq:best-of-n-kl-bound", "eq:estimator-gradient", "eq:kl-in-reward"),
}


def calls_its_function(legend, checks):
    """Does building the legend call a function that the checks prove (or, where they prove their own, any equation)?"""
    proved = [inspect.unwrap(f) for f in pages.implementations(checks)]
    own = re.compile(r"minirlhf_course\.chapters\.\w+\.checks")
    codes = {f.__code__ for f in proved if inspect.isfunction(f) and not own.match(f.__module__)}
    called = set()
    sys.setprofile(lambda frame, event, _: called.add(frame.f_code) if event == "call" else None)
    try:
        legend.values(SEED)
    finally:
        sys.setprofile(None)
    return bool(codes & called) if codes else any("equations" in code.co_filename for code in called)


def test_ink_legends_call_the_function_that_the_ledger_proves():
    """So that print, function and oracle are three views of one thing; the exceptions are listed."""
    ledger = load_checks()
    without = {
        label for label, legend in KNOWN.legends.items() if not calls_its_function(legend, ledger.select([label]))
    }
    assert without == WITHOUT_A_FUNCTION


def test_ink_pins_match_the_formulas_that_are_not_evaluated():
    edited = {
        label: digest(PRINTED[label]) for label, pin in KNOWN.pins.items() if digest(PRINTED[label]) != pin.digest
    }
    assert edited == {}, "read these again; if they are right, pin these digests"


def test_ink_formulas_have_a_legend_or_a_pin():
    """And each has its formula, but for legends of a chapter that has no page yet."""
    unwritten = {f".ch{c.number:02}_" for c in chapters() if not (BOOK / f"{c.page}.md").is_file()}
    early = {label for label, one in KNOWN.legends.items() if any(name in one.build.__module__ for name in unwritten)}
    labels = (KNOWN.legends.keys() | KNOWN.pins.keys()) - early
    assert labels - PRINTED.keys() == set(), "these have a legend or a pin, but no formula on a page of book/"
    assert PRINTED.keys() - labels == set(), "these are on a page of book/, but have neither legend nor pin"
    assert len(KNOWN.legends.keys() - early) >= 0.9 * len(PRINTED)


def test_ink_displays_and_fences_inside_predict_blocks():
    """Its formulas are read, a block of code inside it is code, and what stands behind it is found at its own lines."""
    page = "````{predict} up\nSo\n\n$$\na = 1\n$$ (eq:a)\n\n```python\n$$\nb = 2\n$$ (eq:b)\n```\n````\n\n$$\nc = 3\n$$ (eq:c)\n"
    assert [(found.label, found.line) for found in displays(page)] == [("eq:a", 4), ("eq:c", 15)]
    assert [(found.info, found.line, found.last) for found in fences(page)] == [("python", 8, 12)]
    with raises(FormulaError, value="````", problem="not closed", line=1):
        list(fences("````{predict} up\nSo\n```python\nx\n```\n"))
