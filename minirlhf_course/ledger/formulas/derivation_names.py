"""A reader's own derivation: the part that runs beside the reader's code, in the sandbox for students' answers.

Each block of Python is run on several small models, the smallest first, so that a counterexample is small. It can use

======================================  ==========================================================================
``lm``, ``theta``                       a language model with enumerable completions, and its parameters
``policy``, ``reference``, ``old``      ``(N,)``, probabilities of all completions; only ``policy`` depends on ``theta``
``rewards``, ``beta``                   ``(N,)`` and a number
``logps``, ``ref_logps``, ``mask``      ``(N, T)``, log-probabilities of the tokens (0 behind the end), and their mask
``expectation(f, under=policy)``        the exact mean of ``f (N,)``
``gradient(x)``                         ``∇x`` in ``theta``: ``(D,)`` of a number, ``(D, N)`` of ``(N,)``
``draw``, ``torch``                     further inputs (``draw.normal(3)``), and PyTorch
======================================  ==========================================================================

and sets ``left`` and ``right``, or a ``legend`` that defines the printed symbols which :func:`signs` does not, or both.
It may set ``tolerance`` and ``linear``. Without a block the formula is evaluated with the symbols of :func:`signs`.
"""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from minirlhf.core.exact import ToyLM
from minirlhf.core.randomness import derive_seed
from minirlhf.equations.rlhf import optimal_logps
from minirlhf_course.ledger.formulas import derivation_signs, misprints, proof
from minirlhf_course.ledger.formulas import values as v
from minirlhf_course.ledger.formulas.items import FormulaError, nested, show, tokens
from minirlhf_course.ledger.formulas.reader import FormulaParser
from minirlhf_course.ledger.formulas.spellings import spelled
from minirlhf_course.ledger.registry import Draw, discrepancy

# Vocabulary size and maximal length of the models: 2, 3, 3 and 7 completions.
SIZES = ((2, 1), (3, 1), (2, 2), (3, 2))
TOLERANCE = 1e-9
# Results of the blocks of one step; they are removed before the next step.
_RESULTS = ("left", "right", "legend", "tolerance", "linear")
BLOCK = "a block of the derivation"


def objects(seed: int, vocab_size: int, max_len: int) -> dict[str, Any]:
    """The names that a block can use, on the inputs of this seed."""
    draw = Draw(seed, "own derivation")
    lm, ref = draw.toy(vocab_size, max_len), draw.toy(vocab_size, max_len)
    policy, reference = lm.distribution()[0], ref.distribution()[0].detach()
    names = {"torch": torch, "draw": draw, "lm": lm, "theta": lm.table, "policy": policy, "reference": reference}
    names |= {"old": draw.distribution(len(policy)), "rewards": draw.normal(len(policy))}
    names |= {"beta": float(draw.uniform(low=0.4, high=0.9)), "mask": lm.completions().mask}
    names |= {"logps": lm.completion_token_logps()[0], "ref_logps": ref.completion_token_logps()[0].detach()}
    names["_inputs"] = derivation_signs.inputs(Draw(seed, "signs of a derivation"), lm)
    names["expectation"] = lambda f, under=policy: (under * f).sum(-1)
    names["gradient"] = lambda x: _gradient(x, lm)
    return names


def _gradient(x: Tensor, lm: ToyLM) -> Tensor:
    return v.derivative(x, lm.table).reshape(lm.table.numel(), *x.shape)


def signs(space: Mapping[str, Any]) -> dict[str, Any]:
    """The symbols that every formula may use: ``y, y', π, π_ref, π_old, π*, Z, r, β, θ, |y|``.

    π* is the optimal policy of the objective with a KL term, and Z its normaliser.
    """
    symbols: dict[str, Any] = {"y": range(len(space["policy"])), "y'": range(len(space["policy"]))}
    for name, key in ((r"\pi", "policy"), (r"\piref", "reference"), (r"\piold", "old"), ("r", "rewards")):
        symbols |= {name: space[key], f"{name}(y)": space[key]}
    best = optimal_logps(space["reference"].log(), space["rewards"], beta=space["beta"]).exp()
    partition = (space["reference"] * (space["rewards"] / space["beta"]).exp()).sum()
    symbols |= {r"\pi^*": best, r"\pi^*(y)": best, "Z": partition}
    return symbols | {r"\beta": space["beta"], r"\theta": space["theta"], "|y|": space["mask"].sum(-1)}


class _Broken(Exception):
    """A block that cannot be run or a formula that cannot be parsed, with the line of the file and its facts."""

    def __init__(
        self,
        message: str,
        line: int,
        *,
        argument: str,
        value: Any = None,
        problem: str | None = None,
        expected: str | None = None,
    ) -> None:
        super().__init__(message)
        self.line = line
        self.facts = {"argument": argument, "value": value, "problem": problem, "expected": expected}


def check(steps: Sequence[Mapping[str, Any]], seed: int) -> list[dict[str, Any]]:
    """Check the steps up to the first that fails.

    Args:
        steps: each has ``latex``, ``line``, and ``blocks``, pairs of code and the line before the code.

    Returns:
        Plain data per step: ``holds`` with what was compared, or a ``counterexample``, or
        ``broken`` with ``line`` and ``facts``.
    """
    spaces = [objects(derive_seed(seed, k), *size) for k, size in enumerate(SIZES)]
    verdicts = []
    for step in steps:
        try:
            verdicts.append(_step(step, spaces))
        except _Broken as error:
            verdicts.append({"holds": False, "broken": str(error), "line": error.line, "facts": error.facts})
        if not verdicts[-1]["holds"]:
            return verdicts
    used = set().union(*(space.get("_used", ()) for space in spaces))
    for verdict in verdicts:
        verdict["unused"] = bool(verdict["defines"]) and not used & set(verdict["defines"])
    return verdicts


def _step(step: Mapping[str, Any], spaces: Sequence[dict[str, Any]]) -> dict[str, Any]:
    worst, printed, before = 0.0, [], set[str]()
    for space in spaces:
        for name in _RESULTS:
            space.pop(name, None)
        for code, line in step["blocks"]:
            _run(code, line, space)
        tolerance = float(space.get("tolerance", TOLERANCE))
        claims = _sides(space, step["line"])
        sides = bool(claims)
        if "legend" in space or not claims:
            printed.append(_values(space, step))
            before = set(space.setdefault("_defined", {}))
            claims += _read(step, printed[-1], bool(space.get("linear", False)), space)
        for claim in claims:
            worst = max(worst, claim.error)
            if not claim.error <= tolerance:
                return {"holds": False, "counterexample": _counterexample(space, claim)}
    defined = sorted(spaces[-1].get("_defined", {}).keys() - before) if not sides and not claims else []
    verdict = {
        "defines": defined,
        "holds": True,
        "error": worst,
        "sides": sides,
        "printed": bool(printed),
        "misprints": 0,
        "missed": [],
    }
    if printed and not defined:
        indices = [key for key, meaning in printed[-1].items() if isinstance(meaning, range | list)]
        variants = misprints.generate(tokens(spelled(step["latex"])), indices)
        linear = bool(spaces[-1].get("linear", False))
        outcomes = [(variant, proof.noticed(variant, printed[-2:], linear, tolerance)) for _, variant in variants]
        verdict["misprints"] = len(outcomes)
        verdict["missed"] = [" ".join(variant) for variant, outcome in outcomes if outcome == "missed"]
    return verdict


def _run(code: str, line: int, space: dict[str, Any]) -> None:
    try:
        exec(compile("\n" * line + code, BLOCK, "exec"), space)
    except SyntaxError as error:
        raise _Broken(
            f"SyntaxError: {error.msg}", error.lineno or line, argument="block", problem="SyntaxError"
        ) from None
    except BaseException as error:
        trace, error_line = error.__traceback__, line
        while trace:
            error_line = trace.tb_lineno if trace.tb_frame.f_code.co_filename == BLOCK else error_line
            trace = trace.tb_next
        kind = type(error).__name__
        raise _Broken(
            f"{kind}: {' '.join(str(error).split())[:200]}", error_line, argument="block", problem=kind
        ) from None


def _sides(space: Mapping[str, Any], line: int) -> list[proof.Claim]:
    sides = [name for name in ("left", "right") if name in space]
    if not sides:
        return []
    if len(sides) == 1:
        raise _Broken(
            f"the block sets only {sides[0]}; set both left and right",
            line,
            argument="block",
            value=sides[0],
            problem="missing",
        )
    try:
        left, right = (torch.as_tensor(space[name], dtype=torch.float64).detach() for name in sides)
    except (TypeError, ValueError, RuntimeError):
        raise _Broken(
            "left and right must both be numbers or tensors", line, argument="left, right", problem="type"
        ) from None
    if left.shape != right.shape:
        shapes = tuple(left.shape), tuple(right.shape)
        message = f"left has shape {shapes[0]} and right {shapes[1]}; the same is needed"
        raise _Broken(message, line, argument="left, right", value=shapes, problem="shape")
    return [proof.Claim("left = right", "=", left, right)] if discrepancy(left, right) >= 0 else []


def _values(space: Mapping[str, Any], step: Mapping[str, Any]) -> dict[str, Any]:
    legend = space.get("legend", {})
    if not isinstance(legend, dict) or not all(isinstance(key, str) for key in legend):
        message = "legend must be a dictionary {symbol in LaTeX: value}"
        raise _Broken(message, step["line"], argument="legend", problem="type")
    known = signs(space) | derivation_signs.signs(space, tokens(spelled(step["latex"])))
    return known | space.get("_defined", {}) | {spelled(key): meaning for key, meaning in legend.items()}


def _read(step: Mapping[str, Any], values: Mapping[str, Any], linear: bool, space: dict[str, Any]) -> list[proof.Claim]:
    """Return the claims of a printed formula.

    ``space["_defined"]`` gets the symbol that it defines for the steps behind it, ``space["_used"]`` the symbols used.
    """
    reader = FormulaParser(values, linear)
    space.setdefault("_used", set())
    claims: list[proof.Claim] = []
    printed = tokens(spelled(step["latex"]))
    try:
        for claim in proof.comparisons(printed, values, reader):
            claims.append(claim)
        space["_used"] |= reader.used
        return claims
    except proof.STUMBLES as error:
        if isinstance(error, FormulaError) and error.problem == "not used":
            new = _defined(printed, values, linear, str(error.value))
            space["_defined"].update(new)
            space["_used"] |= reader.used
            if new:
                return claims
        if isinstance(error, FormulaError) and error.problem in ("not used", "no legend"):
            error = _reason(printed, values, linear, error)
        near = _nearest(error, values)
        message = f"the formula cannot be evaluated: {' '.join(str(error).split())[:300]}"
        if near:
            message += (
                f"; the nearest known sign is {near}; the page own-derivation lists the signs, and a legend adds more"
            )
        value = (
            error.value if isinstance(error, FormulaError) else None
        )  # the value of another kind of error may not be plain data
        kind = type(error).__name__
        raise _Broken(message, step["line"], argument="formula", value=value, problem=kind, expected=near) from None


def _defined(printed: list[str], values: Mapping[str, Any], linear: bool, name: str) -> dict[str, Any]:
    """Return ``{symbol: value}`` for the symbol that a formula defines: a number, or one number per completion.

    Empty if ``name``, the left side of the formula, is no symbol.
    """
    symbol = _SYMBOL.fullmatch(name)
    if symbol is None or symbol[1] in (*v.FUNCTIONS, *v.BIG, r"\E", r"\nabla", r"\frac", r"\sqrt"):
        return {}
    reader = FormulaParser(values, linear)
    for clause in proof.clauses_of(nested(printed), []):
        if clause.signs[:1] == ["="] and show(clause.sides[0]) == name:
            term = reader.term(clause.sides[1])
            if not term.free:
                return {name: term.value({})}
            if term.free == {"y"} and name.endswith("( y )"):
                each = torch.stack([v.tensor(term.value({"y": y})) for y in values["y"]])
                return {name: each, name.removesuffix("( y )").strip(): each}
            return {name: term}
    return {}


#: A sign with its scripts, and perhaps the completion on which it depends, as :func:`show` writes it.
_SYMBOL = re.compile(
    r"(?:\\(?:hat|tilde|bar) )?(\\text\{[^{}]*\}|\\?[A-Za-z]+(?:\{[A-Za-z]\})?)(?: [_^] (?:\{[^{}]*\}|\( \S+ \)|\S+))*(?: [A-Za-z])?(?: \( \S+ \))?"
)


def _reason(printed: list[str], values: Mapping[str, Any], linear: bool, error: FormulaError) -> FormulaError:
    """Return why a formula cannot be read in which ``error`` blames a left side that is only a name for the right one."""
    for clause in proof.clauses_of(nested(printed), []):
        left = show(clause.sides[0])
        if left == error.value or (
            clause.signs[:1] == ["="] and left.startswith(str(error.value)[:4]) and _SYMBOL.fullmatch(left)
        ):
            for side in clause.sides[::-1]:
                try:
                    FormulaParser(values, linear).term(side)
                except FormulaError as reason:
                    return reason
    return error


def _nearest(error: BaseException, values: Mapping[str, Any]) -> str | None:
    """Return the known sign that is nearest to the one that the reader did not know; None if that was not the trouble."""
    if not isinstance(error, FormulaError) or error.problem != "no legend" or not error.value:
        return None
    unknown = str(error.value).split()
    known = {" ".join(tokens(key)): key for key in values}
    known |= {sign: sign for sign in (*v.FUNCTIONS, *v.BIG, *v.RELATIONS)}
    for length in (1, 3):  # a sign alone, or with its subscript
        close = difflib.get_close_matches(" ".join(unknown[:length]), known, n=1, cutoff=0.5)
        if close:
            return known[close[0]]
    return next((key for sign, key in known.items() if sign.startswith(unknown[0])), r"\pi")


def _counterexample(space: Mapping[str, Any], claim: proof.Claim) -> dict[str, Any]:
    """The inputs on which a claim fails, and both of its sides where they differ most."""
    left, right = (x.flatten() for x in torch.broadcast_tensors(claim.left, claim.right))
    index = int(((left - right).abs().nan_to_num(math.inf)).argmax())
    numbers = lambda x: [round(float(y), 6) for y in x.detach().flatten()]
    inputs = {name: numbers(space[name]) for name in ("policy", "reference", "rewards")}
    sides = {"left": f"{float(left[index]):.6g}", "right": f"{float(right[index]):.6g}"}
    return inputs | {"beta": round(space["beta"], 6), "claim": claim.clause, "relation": claim.relation, **sides}
