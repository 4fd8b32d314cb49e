"""Quantities with units: ``1.5 h`` is 90 minutes, ``5 ft 3 in`` is 63 inches, and 7 km is not 7 m."""

from __future__ import annotations

import re
from fractions import Fraction

from minirlhf.feedback.graders.answers import answer_number
from minirlhf.feedback.graders.notation import TEXT

_LENGTHS = (
    "mm millimet(?:er|re)s?=1/1000;cm centimet(?:er|re)s?=1/100;dm decimet(?:er|re)s?=1/10;km kilomet(?:er|re)s?=1000;m met(?:er|re)s?=1;"
    "in inch(?:es)?=254/10000;ft foot feet=3048/10000;yd yds yards?=9144/10000;mi miles?=1609344/1000"
)
_OTHERS = {
    "time": "ms milliseconds?=1/1000;s secs? seconds?=1;mins? minutes?=60;h hrs? hours?=3600;days?=86400;weeks?=604800",
    "mass": "mg milligrams?=1/1000;kg kilograms?=1000;g grams?=1;tons? tonnes?=1000000;oz ounces?=28349523125/1000000000;lbs? pounds?=45359237/100000",
    "volume": "ml mL millilit(?:er|re)s?=1/1000;cl centilit(?:er|re)s?=1/100;dl=1/10;l L lit(?:er|re)s?=1",
    "money": "cents? ¢=1/100;dollars? USD=1",
    "turn": "degrees?=1",
    "angle": "rad radians?=1",
    "length/time": "mph=1609344/3600000;kph=1000/3600",
    "power": "mW=1/1000;W watts?=1;kW kilowatts?=1000;MW=1000000;GW=1000000000",
    "energy": "J joules?=1;kJ=1000;MJ=1000000;Wh=3600;kWh=3600000",
    "work on a charge": "eV=1;keV=1000;MeV=1000000;GeV=1000000000",
    "heat": "cal calories?=1;kcal=1000",
    "force": "mN=1/1000;N newtons?=1;kN=1000;MN=1000000",
    "voltage": "mV=1/1000;V volts?=1;kV=1000",
    "current": "mA=1/1000;A amp(?:ere)?s?=1;kA=1000",
    "pressure": "Pa pascals?=1;hPa=100;kPa=1000;MPa=1000000",
    "frequency": "Hz hertz=1;kHz=1000;MHz=1000000;GHz=1000000000",
    "amount": "mmol=1/1000;mol moles?=1",
    "memory": "B bytes?=1;KB kB=1000;MB=1000000;GB=1000000000;TB=1000000000000",
}  # fmt: skip


def _table() -> list[tuple[str, str, Fraction]]:
    """The pattern, the dimension and the size of every unit."""
    rows = []
    for dimension, text in {"length": _LENGTHS, **_OTHERS}.items():
        for entry in text.split(";"):
            names, _, size = entry.partition("=")
            rows.append((f"(?:{'|'.join(names.split())})", dimension, Fraction(size)))
    return rows


_UNITS = _table()
_ANY = "|".join(pattern for pattern, _, _ in _UNITS)
_POWER = r"(?:\s*(?:\^|\*\*)\s*\{?\s*([23])\s*\}?|([²³]))?"
_SQUARE = r"(?:(sq(?:uare)?|cu(?:bic)?)\.?\s+)?"
#: A value, and a unit with its power and a unit that divides it.
_PAIR = re.compile(
    rf"(?P<value>.*?[0-9)}}])\s*-?\s*{_SQUARE}(?P<unit>{_ANY}){_POWER}(?:\s*(?:/|per)\s*(?P<below>{_ANY}))?\.?"
)
_NUMBER_FIRST = re.compile(
    rf"\s*(?:and\s+|,\s*)?(-?[0-9][0-9,]*(?:\.[0-9]+)?(?:/[0-9]+)?)\s*({_ANY})(?![a-zA-Z0-9])\.?"
)


def quantity(text: str) -> tuple[str, Fraction, str] | None:
    """Return the value, the size of its unit and what it measures; None for a text that does not end in a known unit.

    Of several units (*5 ft 3 in*) it is the sum in the first dimension, and what it measures ends in ``+``.
    """
    text = re.sub(r"\\[,;: ]|~|\\(?:left|right)(?![a-zA-Z])", " ", text)
    text = re.sub(r"(?:\^\s*\{?\s*\\circ\s*\}?|°)(?!\s*(?:\\[a-z]+\{)?\s*[CF])", " degrees ", text)
    text = " ".join(re.sub(TEXT, r" \1 ", text).split())
    money = re.fullmatch(r"\\?\$\s*([0-9][0-9,]*(?:\.[0-9]+)?)", text)
    if money:
        return money[1], Fraction(1), "money"
    pairs = list(_NUMBER_FIRST.finditer(text))
    if len(pairs) > 1 and "".join(pair[0] for pair in pairs) == text:
        units = [_unit(pair[2]) for pair in pairs]
        if len({dimension for dimension, _ in units}) == 1:
            numbers = [answer_number(pair[1]) for pair in pairs]
            total = sum(
                (number * size for number, (_, size) in zip(numbers, units, strict=True) if number is not None),
                Fraction(0),
            )
            return str(total), Fraction(1), f"{units[0][0]}+"
        return None
    match = _PAIR.fullmatch(text)
    if match is None or re.search(r"[a-zA-Z]{2}", re.sub(r"\\[a-zA-Z]+", "", match["value"])):
        return None
    dimension, size = _unit(match["unit"])
    power = int(
        (match[4] or match[5] or "").translate(str.maketrans("²³", "23"))
        or {"s": 2, "c": 3}.get((match[2] or " ")[0], 1)
    )
    if power > 1 and dimension == "length":
        dimension, size = ("volume", 1000 * size**3) if power == 3 else (f"length^{power}", size**power)
    if match["below"]:
        below, divisor = _unit(match["below"])
        dimension, size = f"{dimension}/{below}", size / divisor
    return match["value"], size, dimension


def _unit(name: str) -> tuple[str, Fraction]:
    return next((dimension, size) for pattern, dimension, size in _UNITS if re.fullmatch(pattern, name))
