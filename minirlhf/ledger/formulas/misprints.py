"""Misprints of a formula, made by rule at the level of its tokens: what a typesetter, or an author, gets wrong."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

Misprint = tuple[str, list[str]]

# One sign printed for another.
_SWAPS = {
    "sign": {"+": "-", "-": "+", "/": r"\cdot"},
    "roles": {r"\piref": r"\pi", r"\piold": r"\pi"},
    "bound": {r"\ge": "<", r"\le": ">", r"\ne": "=", "<": ">", ">": "<", r"\min": r"\max", r"\max": r"\min"},
    "sum or product": {r"\sum": r"\prod", r"\prod": r"\sum"},
}
_GREEK = {
    rf"\{name}" for name in ["alpha", "beta", "gamma", "delta", "epsilon", "varepsilon", "eta", "lambda", "mu", "tau"]
}
_FUNCTIONS = {r"\log", r"\sqrt", r"\exp", r"\cosh", r"\cos", r"\sin", r"\sigma"}


def _argument_end(signs: Sequence[str], at: int) -> int:
    """Where the argument that starts here ends: one token, or a group in braces."""
    depth = 0
    for end in range(at, len(signs)):
        depth += (signs[end] == "{") - (signs[end] == "}")
        if depth == 0:
            return end + 1
    return len(signs)


def _subscripted(signs: Sequence[str], at: int) -> bool:
    """Is this token part of a name: a sub- or superscript, or the base of one?"""
    return signs[at - 1 : at] in (["_"], ["^"]) or signs[at + 1 : at + 2] in (["_"], ["^"])


def _swapped(signs: list[str]) -> Iterator[Misprint]:
    for kind, pairs in _SWAPS.items():
        for at, sign in enumerate(signs):
            if sign in pairs:
                yield kind, [*signs[:at], pairs[sign], *signs[at + 1 :]]


def _roles(signs: list[str]) -> Iterator[Misprint]:
    for at in range(1, len(signs)):
        if signs[at - 1] == "_" and signs[at] in "wl":
            yield "roles", [*signs[:at], "l" if signs[at] == "w" else "w", *signs[at + 1 :]]


def _fractions(signs: list[str]) -> Iterator[Misprint]:
    for at, sign in enumerate(signs):
        if sign == r"\frac":
            middle = _argument_end(signs, at + 1)
            end = _argument_end(signs, middle)
            if signs[at + 1] != "d" and signs[at + 2 : at + 3] not in (["d"], [r"\partial"]):
                yield "fraction", [*signs[: at + 1], *signs[middle:end], *signs[at + 1 : middle], *signs[end:]]


def _lost(signs: list[str]) -> Iterator[Misprint]:
    for at, sign in enumerate(signs):
        if sign == "-" and (at == 0 or signs[at - 1] in ("=", "(", "{", "[", "&")):
            yield "sign", signs[:at] + signs[at + 1 :]
        if sign == "^" and (signs[at + 1] == "2" or signs[at + 1] == "{"):
            yield "exponent", signs[:at] + signs[_argument_end(signs, at + 1) :]
        if sign in _FUNCTIONS and signs[at + 1 : at + 2] not in (["_"], ["^"]):
            yield "function", signs[:at] + signs[at + 1 :]
        if sign in _GREEK and not _subscripted(signs, at) and signs[at + 1 : at + 2] != ["("]:
            yield "factor", signs[:at] + signs[at + 1 :]
        if sign in "+-" and signs[at + 1 : at + 2] == ["1"] and signs[at + 2 : at + 3] in (["}"], [")"], ["]"]):
            yield "shift", signs[:at] + signs[at + 2 :]


def _numbers(signs: list[str]) -> Iterator[Misprint]:
    for at, sign in enumerate(signs):
        if sign.isdigit() and sign != "0":
            yield "number", [*signs[:at], str(int(sign) % 9 + 1), *signs[at + 1 :]]


def _indices(signs: list[str], indices: Sequence[str]) -> Iterator[Misprint]:
    printed = [name for name in indices if name in signs]
    for at, sign in enumerate(signs):
        if sign in printed:
            others = [name for name in printed if name != sign]
            if others:
                yield "index", [*signs[:at], others[at % len(others)], *signs[at + 1 :]]


def generate(signs: Sequence[str], indices: Sequence[str]) -> list[Misprint]:
    """Every misprint of these tokens that the rules make, each once; ``indices`` are what may be confused with one another."""
    rules: list[Callable[[list[str]], Iterator[Misprint]]] = [_swapped, _roles, _fractions, _lost, _numbers]
    made = [misprint for rule in rules for misprint in rule(list(signs))] + list(_indices(list(signs), indices))
    once: dict[tuple[str, ...], Misprint] = {}
    for kind, wrong in made:
        if wrong != list(signs):
            once.setdefault(tuple(wrong), (kind, wrong))
    return list(once.values())
