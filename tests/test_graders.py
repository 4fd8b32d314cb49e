"""Each grader is graded: replies that must pass, that must fail, and hostile ones that must neither break nor hold it up."""

import json
import math
import random
import time
from fractions import Fraction
from typing import ClassVar

import pytest
import torch
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from minirlhf.core.errors import UserError
from minirlhf.data.records import Problem
from minirlhf.equations.shaping import composite_reward
from minirlhf.feedback import graders, rewards
from minirlhf.feedback.graders import answers
from minirlhf.sandbox import algebra

DOUBLE = json.dumps(
    {
        "prompt": 'def double(x):\n    """Twice x."""\n',
        "entry_point": "double",
        "test": "def check(candidate):\n    assert candidate(2) == 4\n    assert candidate(-1) == -2\n",
    }
)

NOT_SEVEN = (
    "negative 7", "cannot be 7", "six or 7", "7 or eight", "7 or any other number", "7 is wrong", "I doubt it is 7", "anything but 7",
    "never 7", "neither 7", "less than 7", "at least 7", "half of 7", "two thirds of 7", "twice 7", "the square root of 7", "7 squared",
    "7 factorial", "7 thousand", "7 dozen", "7 and a half", "7 times nine",
)  # fmt: skip

#: Words behind a number or a formula that make another one of it, or take it back.
BEHIND = (
    "and", "billion", "but", "cubed", "dozen", "dozens", "factorial", "fewer", "half", "halves", "hundred", "if", "is", "isn't", "less", "million", "minus",
    "more", "nor", "not", "no", "only", "or", "plus", "quarter", "quarters", "squared", "than", "third", "thirds", "thousand", "times", "to",
    "trillion", "was", "wrong",
)  # fmt: skip
#: The same, of which the first list named none.
BEHIND += (
    "divided by two", "over two", "multiplied by two", "doubled", "tenths", "fifths", "sixths", "hundredths", "below zero", "percent of x", "mod three",
    "choose three", "false", "never", "approximately",
)  # fmt: skip
#: Behind a number without a blank: units, and products.
GLUED_UNITS = (
    "Hz", "kHz", "kW", "kWh", "kJ", "GB", "MB", "Mb", "ms", "eV", "Pa", "kPa", "dB", "rpm", "cal", "USD", "yr", "yrs", "mo", "wk", "cc", "deg", "mol", "px", "fps", "gal", "qt", "pt", "tsp", "hp", "psi", "mph", "-day",
    "nm", "um", "us", "GPa", "Nm", "MN", "rad", "ha", "atm", "bar", "ppm", "mpg", "KB", "GiB", "mAh", "kA", "Sv", "pcs", "ct", "CHF", "CAD", "kph", "AD", "CE", "-ft", "-in", "-lb", "-yr",
)  # fmt: skip
GLUED_PRODUCTS = (
    "pq", "uv", "dx", "rh", "gh", "ij", "pqr", "kw", "kj", "mb", "ab", "bc", "abc", "BX", "t", "r", "-m", "-pq",
)  # fmt: skip
#: As chat models write 18.
BOLD = (
    "The answer is **18**.", "**Answer: 18**", "#### **18**", "**#### 18**", "#### 18**", "So she makes **$18** every day.", "It is *18*", "It is `18`",
    "***18***", "__18__", "**The answer is 18**",
)  # fmt: skip
#: The same, before it.
BEFORE = (
    "at least", "at most", "anything but", "I doubt it is", "I doubt that it is", "half of", "two halves of", "a quarter of", "three quarters of",
    "the root of", "the square of", "a third of", "two thirds of", "minus", "negative", "neither", "nor", "or", "less than", "twice", "never",
    "It is not", "It isn't", "It isn’t", "It can't be", "It cannot be", "It is not equal", "It is not equal to", "It never is",
)  # fmt: skip

#: What makes a 7 that stands before it a part of something, or one of two.
GOES_ON = (
    "k", "K", "M", "B", " bn", "mn", " hundred", " thousand", " million", " billions", " trillion", " dozen", " + 2", " - 2", "^{2}", "^(2)", r"\times2",
    r" \cdot 2", "÷2", " ÷ 2", "/x", "x", "½", "⅓", "⁵", "⁻¹", " times 2", "(2)", " or 8", " or eight", ", 8, 9", " 8 9", " squared", " tenths", "-tenths",
    " over 2", " divided by two",
)  # fmt: skip
OTHER_SEVENS = ("minus 7", "negative 7", "log 7", "－7", "‐7", "±7", "not 7", "It isn't 7", "less than 7", r"\sqrt{7}")

# (completion, reference, reward)
TABLE = {
    "exact": [
        (" 1 2  3\n", "1 2 3", 1),
        ("1 2", "1 2 3", 0),
        ("2 1", "1 2", 0),
        ("a", "A", 0),
        ("", "", 1),
    ],
    "contains": [
        ("The capital is  PARIS.", "paris", 1),
        ("in New\nYork City", "new york", 1),
        ("is it (a|b)?", "(a|b)", 1),  # no regular expressions
        ("72", "7", 0),
        ("concatenate", "cat", 0),
        ("it is 7.5", "7", 0),
        ("it is 0,7", "7", 0),
        ("it is -7", "7", 0),
        ("it is 7/2", "7", 0),
        *((f"it is {text}", "7", 0) for text in ("–7", "1/7", "2^7", "7^2", "7*3", "7 .5", "~7")),
        *((text, "7", 0) for text in ("3 - 7", "3- 7", "7 - 3", "7 -3", "3 × 7", "7 + 2 = 9", "2 ^ 7", "7 ^ 2")),
        ("- 7", "7", 1),  # the sign of a list
        ("3 + 4 = 7", "7", 1),
        ("3 - 7 = -4, but here it is 7", "7", 1),
        ("7 - so", "7", 1),
        *((text, "18", 1) for text in BOLD),
        ("it is 7, or so.", "7", 1),
        ("it is 7.", "7", 1),
        ("text", "", math.nan),
    ],
    "edit": [
        ("kitten", "sitting", 1 - 3 / 7),
        ("ab", "ba", 0),
        ("", "abc", 0),
        ("a  b", "a b", 1),
        ("", "", 1),
        ("x" * 4000, "x" * 2000, 0.5),
    ],
    "numeric": [
        ("so 36 + 36 = 72.\n#### 72", "72", 1),
        ("#### 1,080", "1080", 1),
        ("#### $1080.00 a day", "#### 1,080", 1),
        ("it is .5", "1/2", 1),
        ("#### −3", "-3", 1),
        ("3 then 4", "4.0", 1),
        ("#### 7 because 3 + 4", "7", 1),
        ("1,2,3", "3", 1),
        ("first #### 5, no: #### 6", "6", 1),
        ("#### 20%", "20", 1),
        ("#### 20%", "0.2", 0),  # what stands around a number is not compared
        ("it takes 1 1/2 hours", "1.5", 1),
        ("-1 1/2", "-3/2", 1),
        ("2e3 people", "2000", 1),
        ("7-3", "3", 0),
        ("7-3", "7", 0),
        ("#### 10^3", "3", 0),
        ("#### 10^3", "10", 0),
        ("7.5*3", "7", 0),
        ("1,234-5", "1", 0),
        ("7-3=4", "4", 1),
        ("7 - 3 = 4", "4", 1),
        ("a range of 5-7: 6", "6", 1),
        ("#### - 7", "-7", 1),
        ("#### - 7", "7", 0),
        ("#### –7", "-7", 1),
        ("#### – 7", "7", 0),
        ("#### 2**3", "2", 0),
        ("#### √7", "7", 0),
        ("#### 7²", "7", 0),
        ("#### 7!", "7", 0),
        ("#### 7 ** 2", "7", 0),
        ("#### 10 ^ 3", "10", 0),
        ("#### 12/ 5", "12", 0),
        ("#### 12/ 5", "5", 0),
        ("#### 7 x 10^3", "7", 0),
        ("#### 0x10", "0", 0),
        ("#### 1_000", "1", 0),
        ("#### 1 000", "1", 0),
        ("#### 1 000", "0", 0),
        ("#### 1,0000", "1", 0),
        ("#### 1.000,50", "1", 0),
        ("#### 1,23", "1", 0),
        ("#### 1,23", "23", 0),
        ("#### 7:30", "7", 0),
        ("#### 7:30", "30", 0),
        *((f"#### 7{text}", "7", 0) for text in GOES_ON),
        *((f"#### {text}", "7", 0) for text in OTHER_SEVENS),
        *((f"it is {text}", "7", 0) for text in ("minus 7", "negative 7", "not 7", "7 million", r"\sqrt{7}")),
        *((text, "18", 1) for text in BOLD),
        *(
            (f"#### 7{text}", "7", 1)
            for text in (" times a day", "/hour", r"^\circ", " (7 kg)", " months", " slices of pizza", "\n8 is wrong")
        ),
        ("**2**3", "2", 0),
        ("2**3", "3", 0),
        ("7*3*2", "2", 0),
        ("#### 7m", "7", 1),  # seven metres
        ("#### 7 km", "7", 1),
        *((f"#### {text}", "7", 0) for text in (r"7\pi", "7π", "7√2", "7 x", "7·x", "7 pi", "7*x")),
        *((f"The area is 18 {unit}.", "18", 1) for unit in ("cm^2", "m^3", "m2", r"\text{cm}^2", "ft**2", "cm")),
        *((f"The area is 18 {unit}.", power, 0) for unit, power in (("cm^2", "2"), ("m^3", "3"), ("m2", "2"))),
        ("5 in 3 days", "3", 1),
        *(
            (rf"\boxed{{{text}}}", "7", 0)
            for text in (
                r"\frac{1}{7}",
                r"0.\overline{7}",
                r"\text{minus }7",
                r"\text{negative }7",
                r"7\text{ million}",
                r"7\text{ squared}",
                r"x\neq 7",
                r"\pm 7",
            )
        ),
        (r"\boxed{7\text{ km}}", "7", 1),
        (r"\boxed{\text{about }7}", "7", 1),
        ("#### 7 Bees", "7", 1),
        ("of 3 thousand #### 7", "7", 1),
        ("3 + 4 = 7²", "4", 0),
        ("#### 7 kg", "7", 1),
        ("#### 7.", "7", 1),
        ("#### 7, as 3 + 4", "7", 1),
        ("x-3", "-3", 1),
        ("#### 12 km", "12", 1),
        ("€1,000,000", "1e6", 1),
        ("#### 72", "73", 0),
        ("72 #### no idea", "72", 0),  # marked, and no number there
        ("seventy-two", "72", 0),
        ("#### 720", "72", 0),
        ("#### 1/0", "0", 0),
        ("3", "-3", 0),
        ("-$5", "-5", 1),
        ("1e999999999", "1", 0),  # at once: a number with so many digits is never written out
        ("", "0", 0),
        ("1e999", "1", 0),
        ("1e" + "9" * 1000, "1", 0),
        ("nan", "0", 0),
        ("٧٢", "72", 0),  # digits of another script
        ("７２", "72", 0),
        ("#### 72", "no number", math.nan),
        ("9" * 31, "9" * 31, math.nan),  # too long to be a number
        ("1", "1/0", math.nan),
    ],
    "gsm8k": [
        ("#### **72**", "72", 1),
        ("**#### 72**", "72", 1),
        ("The answer is **72**", "72", 0),
        ("72", "72", 0),
        ("#### 72", "72", 1),
        ("#### 72", "none", math.nan),
        ("72", "none", math.nan),
    ],
    "partial": [("#### 72", "72", 1), ("72", "72", 0.5), ("#### 73", "72", 0), ("72", "none", math.nan)],
    "maths": [
        (r"so \boxed{\frac{1}{2}}", "0.5", 1),
        (r"\boxed{\frac12}", r"$\frac{2}{4}$", 1),
        (r"\boxed{\dfrac{\frac{1}{2}}{3}}", "1/6", 1),
        (r"\boxed{(x+1)^2}", "x^2+2x+1", 1),
        (r"\boxed{2\sqrt 2}", r"\sqrt{8}", 1),
        (r"\boxed{\sqrt[3]{27}}", "3", 1),
        (r"\boxed{\{2, 1\}}", r"\{1,2\}", 1),
        (r"\boxed{(1, \frac{1}{2})}", "(1,0.5)", 1),
        (r"\boxed{10{,}000}", "10000", 1),
        (r"\boxed{5\text{ cm}}", "5", 1),
        (r"\boxed{90^\circ}", "90", 1),
        (r"\boxed{\$5.00}", "5", 1),
        (r"\boxed{€ 5}", "5", 1),
        (r"\boxed{ 5 .}", "5", 1),
        ("$x = 5$", "5", 1),
        ("<think>3</think><answer>$\\frac{3}{4}$</answer>", "0.75", 1),
        ("The answer is 7.", "7", 1),
        (r"\boxed{3} no: \boxed{4}", "4", 1),
        (r"\boxed{3} no: \boxed{4}", "3", 0),
        ("1.4142", r"\sqrt{2}", 0),
        ("1.41421356237309504880168872421", r"\sqrt{2}", 0),
        (r"\boxed{\frac{x^2-1}{x-1}}", "x+1", 1),
        (r"\boxed{2\pi r}", r"r\cdot\pi\cdot 2", 1),
        (r"\boxed{e^{x+y}}", r"\exp(x)\exp(y)", 1),
        (r"\boxed{\sqrt{5+2\sqrt6}}", r"\sqrt2+\sqrt3", 1),
        (r"\boxed{\sin^{2}(x)}", "x", 0),
        (r"\boxed{x^{y}x^{z}}", "x^{y+z}", 1),
        (r"\boxed{\text{even}}", r"\text{odd}", 0),
        (r"\boxed{\text{Even}}", "even", 1),
        (r"\boxed{\text{Evelyn}}", r"\text{Briana}", 0),
        (r"\boxed{\text{(A)}}", r"\text{(B)}", 0),
        (r"\boxed{\textbf{(A)}}", r"\text{(A)}", 1),
        (r"\boxed{\text{}}", r"\text{even}", 0),
        (r"\boxed{x \text{ or } y}", "xy", 0),
        (r"\boxed{5\text{ cm}^2}", "5", 1),
        (r"\boxed{5\text{ cm}^2}", "25", 0),
        (r"\boxed{(5\text{ cm}, 2\mathrm{s})}", "(5,2)", 1),
        ("1234", "(1,234)", 0),
        (r"\boxed{(1, 234)}", "(1,234)", 1),
        (r"\boxed{\frac{1,000}{2}}", "500", 1),
        (r"\boxed{1,234}", "1234", 1),
        (r"\boxed{1,23}", "123", 0),
        (r"\boxed{6 or 7}", "7", 0),
        ("The answer is 6 or 7", "7", 0),
        ("The answer is not 7", "7", 0),
        *((rf"\boxed{{{words}}}", "7", 0) for words in NOT_SEVEN),
        *((words, "7", 0) for words in NOT_SEVEN),
        *((rf"\boxed{{\text{{{words}}}}}", "7", 0) for words in NOT_SEVEN),
        (r"\boxed{7\text{ is wrong}}", "7", 0),
        (r"\boxed{7\text{ thousand}}", "7", 0),
        (r"\boxed{x+1\text{ or }}", "x+1", 0),
        (r"\boxed{\text{minus }7}", "7", 0),
        (r"\boxed{7\text{ square inches}}", "7", 1),
        ("So the result is 7 apples.", "7", 1),
        ("Therefore x = 7", "7", 1),
        ("So she has 7 apples", "7", 1),
        ("It takes 7 hours.", "7", 1),
        (r"<think>maybe \boxed{7}</think><answer>8</answer>", "7", 0),
        (r"<think>I tried \boxed{3}</think><answer>7</answer>", "7", 1),
        (r"<answer>\boxed{7}</answer>", "7", 1),
        (r"\boxed{7} no wait, it is #### 8", "7", 0),
        (r"#### 8, or rather \boxed{7}", "7", 1),
        ("It isn't 7", "7", 0),
        ("The answer is 3/4.", "0.75", 1),
        (r"\boxed{1\frac12}", "3/2", 1),
        (r"\boxed{1\frac12}", "0.5", 0),
        (r"\boxed{-2\frac{1}{2}}", "-2.5", 1),
        (r"\boxed{2\frac{1}{2}}", "1", 0),
        (r"\boxed{x^2\frac{1}{2}}", "x^2/2", 1),
        (r"\boxed{2\dfrac{x}{2}}", "x", 1),
        ("1 1/2", "1.5", 1),
        ("1 1/2", "1/2", 0),
        (r"\boxed{12\,000}", "12000", 1),
        (r"\boxed{12\,000}", "0", 0),
        (r"\boxed{5\,3}", "15", 0),
        ("5 3", "15", 0),
        ("1", r"\text{}", math.nan),
        (r"\boxed{e^{e^{x}}}", r"\exp(\exp(x))", 1),
        (r"\boxed{(1, 2)}", "(2, 1)", 0),
        (r"\boxed{[0,1)}", "[0,1]", 0),
        (r"\boxed{x\le 3}", "3", 0),
        (r"\boxed{\sin^2 x}", "x", 0),
        (r"\boxed{9^{9^{9^{9}}}}", "3", 0),  # takes too long, in the box
        (r"\boxed{__import__('os').getpid()}", "3", 0),
        ("x.real", "x", 0),
        ("", "1", 0),
        ("1", "", math.nan),
        *((rf"\boxed{{7\text{{ {word}}}}}", "7", 0) for word in BEHIND),
        *((f"The answer is 7 {word}", "7", 0) for word in BEHIND),
        *((f"$7$ {word}", "7", 0) for word in BEHIND),
        *((f"{words} $7$", "7", 0) for words in BEFORE),
        *((text, "18", 1) for text in BOLD if "she" not in text),
        *((text, "18", 1) for text in (r"Thus, \(18\).", r"\[18\]", r"\[\boxed{18}\]", r"Thus, \[18.\]")),
        (r"\boxed{1, 2}", "1,2", 1),
        (r"\boxed{1, 234}", "1234", 0),
        ("(2)**3", "8", 1),
        *(
            (rf"\boxed{{{text}}}", value, 0)
            for text, value in (
                (r"\text{listen}", r"\text{silent}"),
                ("listen", "silent"),
                ("BAC", "ABC"),
                ("(BAC)", "ABC"),
                ("B A C", "ABC"),
                ("DA", "AD"),
                ("2A7", "7A2"),
                ("1A", "A1"),
                ("DOG", "GOD"),
                (r"\text{evil}", "live"),
                ("on", r"\text{no}"),
                ("zyx", "xyz"),
            )
        ),
        *(
            (rf"\boxed{{{text}}}", value, 1)
            for text, value in (
                ("yx", "xy"),
                ("c*b*a", "abc"),
                ("2yx", "2xy"),
                ("2A7", "2A7"),
                ("No", r"\text{no}"),
                (r"\text{x}", r"\text{x}"),
                ("x^2yz", "x^2zy"),
            )
        ),
        (r"\boxed{((1, 2), 6/2)}", "((1,2),3)", 1),
        *(
            (text, reference, 0)  # π and letters are factors, no units
            for text, reference in (
                (r"\boxed{7\pi}", "7"),
                (r"\boxed{0.5\pi}", "0.5"),
                (r"The answer is $7\pi$.", "7"),
                ("7π", "7"),
                (r"\boxed{2\pi r}", "2"),
                (r"\boxed{36\pi \text{ cm}^2}", "36"),
                *((rf"\boxed{{{product}}}", "7") for product in ("7xy", "7ab", "7xyz", "7-xy", "7=xy", "7 xy", "7x")),
                ("7", r"7\pi"),
                *((rf"\boxed{{7{factor}}}", "7") for factor in (r"\,\pi", r"~\pi", r"\sin", r"\,xy")),
                *((rf"\boxed{{7\mathrm{{{letter}}}}}", "7") for letter in "eik"),
                (r"\boxed{7\% \text{ of } x}", "7"),
            )
        ),
        *((f"7{unit}", "7", 1) for unit in ("km", " km", "cm", " men", " cups", " am", "pm", " a day", " ml", "th")),
        *((f"7{unit}", "7", 1) for unit in GLUED_UNITS),
        *((f"7{product}", "7", 0) for product in GLUED_PRODUCTS),
        *((f"44 {era}", "44", right) for era, right in (("BC", 1), ("AD", 1), ("bc", 0))),
        ("44BC", "44", 1),
        *((rf"\boxed{{7\text{{{unit}}}}}", "7", 1) for unit in (" K", " kW", "kW", " m")),
        (r"\$5 \text{K}", "5", 0),
        (r"\boxed{\$5\text{ K}}", "5", 0),
        (r"\$-5 \text{K}", "-5", 0),
        (r"\boxed{\$5 \text{ K per year}}", "5", 0),
        (r"\boxed{\$5\text{ cash}}", "5", 1),
        *((rf"\boxed{{300{kelvin}}}", "300", 1) for kelvin in (r"\,\mathrm{K}", r"~\text{K}", r" \text{K}")),
        *((rf"\boxed{{7\text{{{letter}}}}}", "7", 0) for letter in ("K", " k", " M", " B", " x", " e")),
        (r"\boxed{7\pi}", r"7\pi", 1),
        *(
            (text, reference, 1)
            for text, reference in (
                (r"\boxed{18\,\text{cm}^2}", "18"),
                (r"\boxed{18\ \text{cm}^2}", "18"),
                (r"\boxed{18\ \text{cm}}", "18"),
                (r"\boxed{5\sqrt{3}\,\text{cm}}", r"5\sqrt{3}"),
                (r"\boxed{36\pi\,\text{cm}^2}", r"36\pi"),
                (r"\boxed{\frac{1}{2}\,\text{hours}}", r"\frac12"),
                (r"\boxed{18\,\mathrm{m/s}}", "18"),
                ("The answer is\n$$\n18\n$$", "18"),
                ("Thus\n$$\n\\frac{1}{2}\n$$", "1/2"),
                (r"Thus $$\frac{1}{2}$$", "1/2"),
                ("x>3", "x > 3"),
                (r"x\le 3", r"x \le  3"),
                (r"\begin{pmatrix}1\\2\end{pmatrix}", r"\begin{pmatrix} 1 \\ 2 \end{pmatrix}"),
                (r"\boxed{abc}", "a b c"),
            )
        ),
        ("another", "an other", 0),
        *(
            (text, reference, 0)  # a blank between digits parts two numbers
            for text, reference in (
                ("x > 1 2", "x > 12"),
                ("x < 12", "x < 1 2"),
                ("x < 1 2 3", "x<123"),
                (r"\boxed{x_{1 2}}", "x_{12}"),
                (r"\boxed{x_1 2}", "x_12"),
                ("x > 1. 2", "x > 1.2"),
            )
        ),
        ("x>12", "x > 12", 1),
        (r"\boxed{x \ge 10 000}", r"x \ge 10000", 1),
        ("x > 1 0000", "x > 10000", 0),
        ("x > .5", "x>.5", 1),
        (r"\boxed{x or y}", "X or Y", 1),
        ("$7$ is wrong; it is 8", "7", 0),
        ("$7$ is wrong; it is 8", "8", 0),  # it names two numbers
        ("$7$. No, 8.", "7", 0),
        ("The area is $7$ cm", "7", 1),
        ("I first had $8$ but it is $7$", "7", 1),
        ("The final answer is $7$. I hope it is correct.", "7", 1),
        ("a total of $7$ apples", "7", 1),
        ("#### 7\nso that is it", "7", 1),
        ("I add 3 and 4\nThe answer is 7.\n\n", "7", 1),
        *((rf"\boxed{{\{f} x}}", f"{f}(x)", 1) for f in ("sqrt", "sin", "cos", "tan", "exp", "log")),
        *((rf"\boxed{{\{f}{{x}}}}", f"{f}(x)", 1) for f in ("sqrt", "sin", "cos", "tan", "exp", "log")),
        (r"\boxed{\sin 2x}", r"\sin(2)x", 0),  # of what is it the sine?
        *(
            (rf"\boxed{{{text}}}", value, 1)
            for text, value in (
                (r"\mbox{even}", "even"),
                (r"\mathbf{7}", "7"),
                (r"7\mbox{ cm}", "7"),
                (r"\left(1, 2\right)", "(1,2)"),
                (r"\displaystyle\frac12", "0.5"),
                (r"\big(1, 2\big)", "(1,2)"),
                (r"\Big(1, 2\Big)", "(1,2)"),
                (r"7\quad", "7"),
                (r"\qquad 7", "7"),
                (r"2\,x", "2x"),
                ("2~x", "2x"),
                (r"7\%", "7"),
                ("90°", "90"),
                (r"2\times 3", "6"),
                ("2·3", "6"),
                ("2×3", "6"),
                (r"6\div 3", "2"),
                ("6÷3", "2"),
                ("2π", r"2\pi"),
                (r"\ln 2", r"\log 2"),
                (r"\log 8", r"3\log 2"),
                ("ln(2)", r"\ln 2"),
                ("x=7", "7"),
                ("−7", "-7"),
                ("–7", "-7"),
                ("√8", r"2\sqrt2"),
                ("x**{2}", "x^2"),
                ("AB", "ab"),
                ("even", r"\text{Even}"),
                ("((1, 2), 3)", "((1,2),3)"),
                (r"\{\}", r"\{ \}"),
                ("(2)*1,234", "2468"),
                ("1" * 300, "1" * 300),
            )
        ),
        *(
            (rf"\boxed{{{text}}}", value, 0)
            for text, value in (
                (r"\bigx", "x"),
                (r"2\cdotx", "2x"),
                (r"6\divx", "6/x"),
                (r"\pix", r"\pi x"),
                (r"\lnx", r"\log x"),
                (r"\sinx", r"\sin x"),
                (r"\dfracx2", "x/2"),
                (r"5\,3", "53"),
                (r"1\,2345", "12345"),
                ("1,2345", "12345"),
                ("x,123", "123x"),
                ("X", "x"),
                ("(1, 3)", "(1,2)"),
                (r"\{1, 3\}", r"\{1,2\}"),
                (r"\{1, 1\}", r"\{1,2\}"),
                ("[0,1)", "(0,1)"),
                ("(,1)", "(2,1)"),
            )
        ),
        ("1" * 301, "1" * 301, math.nan),  # too long to be an answer
    ],
    "think": [
        ("<think>2 and 2</think><answer>4</answer>", "", 1),
        ("\n<think>\na\n</think>\n\n<answer>4</answer> ", "", 1),
        ("<think>a</think>4", "", 0),
        ("<answer>4</answer><think>a</think>", "", 0),
        ("<think></think><answer>4</answer>", "", 0),
        ("<think>a</think><answer> </answer>", "", 0),
        ("<think>a<think>b</think></think><answer>4</answer>", "", 0),
        ("<think>a</think><answer>4</answer><answer>5</answer>", "", 0),
        ("so <think>a</think><answer>4</answer>", "", 0),
        ("<think>a</think> so <answer>4</answer>", "", 0),
        ("<think>a</think><answer>4</answer> done", "", 0),
        ("<THINK>a</THINK><answer>4</answer>", "", 0),
        ("<think>a<answer></think>4</answer>", "", 0),
    ],
    "constraints": [
        ("bees dance here", '{"min_words": 3, "max_words": 3, "keywords": ["bees"], "lower_case": true}', 1),
        ("Bees dance", '{"keywords": ["bee"], "max_words": 2}', 0.5),
        ("Bees dance", '{"lower_case": true}', 0),
        ("BEES", '{"upper_case": true, "forbidden": ["wasps"]}', 1),
        ('```json\n{"a": 1}\n```', '{"json": true}', 1),
        ('{"a": NaN}', '{"json": true}', 0),
        ("One. Two! Three?", '{"sentences": 2}', 0),
        ("bees dance", '{"keywords": ["bees", "wasps"]}', 0),
        ("we are Dear", '{"starts_with": "Dear"}', 0),
        ("Yours we are", '{"ends_with": "Yours"}', 0),
        ("a wasp", '{"forbidden": ["bee", "wasp"]}', 0),
        ("{'a': 1}", '{"json": true}', 0),
        ("One. Two! Three?", '{"sentences": 3, "no_commas": true}', 1),
        ("Dear all,\n\nYours", '{"starts_with": "Dear", "ends_with": "Yours", "no_commas": true}', 2 / 3),
        ("", '{"lower_case": true, "no_commas": true, "json": true, "min_words": 1}', 0),
        ("a", "{}", math.nan),
        ("a", '{"colour": "red"}', math.nan),
        ("a", '{"min_words": "three"}', math.nan),
        ("a", '{"min_words": true}', math.nan),
        ("a", '{"keywords": []}', math.nan),
        ("a", "no object", math.nan),
        ("a", "[" * 100_000, math.nan),
    ],
    "language": [
        ("all in English", "the bees", 1),
        ("half 一二三四", "the bees", 0.5),
        ("пчёлы", "мёд", 1),
        ("bees", "мёд", 0),
        ("12 + 3", "the bees", 1),
        ("bees", "the bees 一", 1),  # the script of most of its letters
        ("", "the bees", 1),
        ("bees", "12", math.nan),
        ("今日は天気がいいですね。散歩に行きましょう。", "これは日本語のテキストです", 1),
        ("東京大学経済学部の入学試験問題", "これは日本語のテキストです", 1),
        ("这是中文", "これは日本語のテキストです", 1),  # the same characters
        ("これは", "这是中文", 0),
        ("The area is π r², so α = 2π.", "the bees", 1),
        ("𝑥 is a bee", "the bees", 1),
        ("αβγδ bees", "the bees", 0.5),
        ("its length is 2πr, its area πr²", "the bees", 1),
        ("これはペンです", "我喜欢喝の茶今天天气很好", 0),  # one kana does not make it Japanese
    ],
    "repetition": [
        ("every word is new here", "", 0),
        ("one two three", "", 0),
        ("", "", 0),
        ("a a a a a", "", -1 / 2),  # two 4-grams, one of them new
        ("so " * 103, "", 1 / 100 - 1),
    ],
    "tests": [
        ("    return 2 * x\n", DOUBLE, 1),
        ("```python\ndef double(x):\n    return x + x\n```", DOUBLE, 1),
        ("First\n```\ndef double(x):\n    return 0\n```\nno:\n```py\ndouble = lambda x: 2 * x\n```", DOUBLE, 1),
        *(
            (text.format("def double(x):\n    return 2 * x"), DOUBLE, 1)
            for text in (
                "```Python\n{}\n```",
                "```python3\n{}\n```",
                "``` python\n{}\n```",
                "~~~python\n{}\n~~~",
                "```python title=a\n{}\n```",
                "<answer>{}</answer>",
                "<think>```python\ndef double(x):\n    return 3\n```</think><answer>\n```python\n{}\n```\n</answer>",
                "so\n```\n{}",
            )
        ),
        ("- so:\n  ```python\n  def double(x):\n      return 2 * x\n  ```\n", DOUBLE, 1),
        ("```python\r\ndef double(x):\r\n    return 2 * x\r\n```\r\n", DOUBLE, 1),
        ("```python\n    return 2 * x\n```", DOUBLE, 1),
        ("<answer>def double(x):\n    return 3</answer>", DOUBLE, 0),
        ("    return 4\n", DOUBLE, 0),
        ("    return x * '2'\n", DOUBLE, 0),
        ("", DOUBLE, 0),
        ("I cannot do this.", DOUBLE, 0),
        ("    return 2 * x\n", "72", math.nan),
        ("    return 2 * x\n", DOUBLE.replace("def check", "def chekc"), math.nan),
        ("    return 2 * x\n", DOUBLE.replace("assert", "asert"), math.nan),
        ("    return 2 * x\n", DOUBLE.replace("candidate(", "abs("), math.nan),  # asks the program nothing
    ],
    "tests_share": [("    return 4\n", DOUBLE, 0.5), ("    return 2 * x\n", DOUBLE, 1), ("    1 / 0\n", DOUBLE, 0)],
}

#: Formulas made to agree with ``x`` where a grader might look: at a few points, at whole numbers, up to a large number or down to a small
#: one, modulo a prime that somebody knows, nearly.
MADE_TO_AGREE = [
    "x+(4x-7)(5x-12)(6x-17)(7x-22)(8x-27)",  # at the five points that once were fixed
    "x+(x-1)(x-2)(x-3)(x-4)(x-5)(x-6)(x-7)(x-8)(x-9)(x-10)",
    "x+sin(pi*x)",
    "x+abs(x-1000)+x-1000",
    "x+abs(x-10**50)+x-10**50",
    "x+abs(x/10**50-10**50)+x/10**50-10**50",
    "x+sqrt((x-1/1000)^2)-(x-1/1000)",
    "x+abs(log(x)-1000)+log(x)-1000",
    "x+abs(x^{1/100}-1000)+x^{1/100}-1000",
    "x+0*abs(x)+abs(exp(x)-10^9)+exp(x)-10^9",
    f"x^{{{2**127 - 1}}}",
    f"x^{{{2**61 - 1}}}",
    f"x+{2**61 - 1}",
    f"x+{2**127 - 1}",
    "x+1/10^{40}",
    "x*1.000000000000000000000000000000001",
    "x+0/0",
    "x+0*(1/(x-x))",
]
TABLE["maths"] += [(formula, "x", 0) for formula in MADE_TO_AGREE]
TABLE["maths"] += [("x", formula, 0) for formula in MADE_TO_AGREE[:4]]

CASES = [pytest.param(name, *case, id=f"{name}-{i}") for name, cases in TABLE.items() for i, case in enumerate(cases)]
NOT_IN_A_BOX = [name for name in graders.GRADERS if name not in ("maths", "tests", "tests_share")]


@pytest.mark.parametrize(("name", "completion", "reference", "reward"), CASES)
def test_the_table(name, completion, reference, reward):
    assert graders.get(name)(completion, reference) == pytest.approx(reward, nan_ok=True)


def test_every_grader_stands_in_the_table_with_what_passes_and_what_fails():
    assert TABLE.keys() == graders.GRADERS.keys()
    for name, cases in TABLE.items():
        values = [reward for *_, reward in cases if not math.isnan(reward)]
        assert min(values) < max(values), name


@given(st.integers(-(10**12), 10**12), st.integers(0, 10**6))
def test_any_way_to_write_a_number(whole, millionths):
    value = abs(whole) + Fraction(millionths, 10**6)
    value = -value if whole < 0 else value
    sign = "-" if whole < 0 else ""
    for text in (f"{sign}{abs(whole):,}.{millionths:06d}", f"{sign}{abs(whole)}.{millionths:06d}0"):
        if millionths < 10**6:
            assert answers.answer_number(f"we get #### {text} in all") == value
    assert answers.answer_number(f"#### {whole:,}") == whole


class Recorder:
    """A box that writes down what it is asked, and answers no."""

    asked: ClassVar[list[dict]] = []

    def __init__(self, *boxes_and_limits):
        pass

    def __enter__(self):
        return self

    def __exit__(self, *problem):
        pass

    def ask(self, question):
        self.asked.append(question)
        return {"ok": False}


def test_formulas_are_compared_at_points_that_nobody_can_know(monkeypatch):
    monkeypatch.setattr(algebra, "Box", Recorder)
    for _ in range(20):
        random.seed(0)
        torch.manual_seed(0)
        algebra.same_value("x", "2*x")
    keys = [question["key"] for question in Recorder.asked]
    assert len(set(keys)) == 20 and max(keys) > 2**120


@pytest.mark.parametrize(("near_it", "kink"), [("x", "(x-{})"), ("sin(x)", "(x-{})")])
def test_each_key_has_points_of_its_own(near_it, kink, monkeypatch):
    """A formula that is made to agree at the points of one key is refused with every other."""
    seen = []
    for name in ("_near", "_far_out"):
        drawn = getattr(algebra, name)
        monkeypatch.setattr(algebra, name, lambda *given, drawn=drawn: seen.append(drawn(*given)) or seen[-1])
    randrange = random.Random.randrange
    monkeypatch.setattr(
        random.Random, "randrange", lambda self, *given: seen.append(randrange(self, *given)) or seen[-1]
    )
    assert algebra._same(near_it, near_it, 1)
    first = [str(point) for point in seen if point > 0]
    seen.clear()
    assert algebra._same(near_it, near_it, 2)
    assert not set(first) & {str(point) for point in seen}


NO_SHRINKING = (Phase.explicit, Phase.generate)  # which takes minutes with such slow examples
terms = st.dictionaries(st.tuples(st.integers(0, 3), st.integers(0, 3)), st.fractions(-20, 20, max_denominator=9), max_size=4)  # fmt: skip


def _written(polynomial):
    return "+".join(f"({c.numerator})*x**{i}*y**{j}/{c.denominator}" for (i, j), c in polynomial.items()) or "0"


def _times(one, other):
    product = {}
    for (i, j), c in one.items():
        for (k, m), d in other.items():
            product[i + k, j + m] = product.get((i + k, j + m), 0) + c * d
    return {powers: c for powers, c in product.items() if c}


@settings(max_examples=30, deadline=None, phases=NO_SHRINKING)
@given(terms, terms, terms, st.integers(0, 2**128))
def test_polynomials_are_the_same_if_their_coefficients_are(one, other, third, key):
    """By the definition of a polynomial's product, in fractions."""
    factors = f"({_written(one)})*({_written(other)})"
    assert algebra._same(factors, _written(_times(one, other)), key)
    alike = {p: c for p, c in one.items() if c} == {p: c for p, c in third.items() if c}
    assert algebra._same(_written(one), _written(third), key) == alike
    assert algebra._same(f"sqrt(2)*({_written(one)})", f"sqrt(2)*({_written(third)})", key) == alike


short = st.text(alphabet="abc", max_size=7)


@given(short, short, short)
def test_the_edit_distance_is_a_distance(one, other, third):
    distance = answers.distance
    assert distance(one, other) == distance(other, one)
    assert (distance(one, other) == 0) == (one == other)
    assert distance(one, third) <= distance(one, other) + distance(other, third)
    assert abs(len(one) - len(other)) <= distance(one, other) <= max(len(one), len(other))


def _by_definition(one, other):
    if not one or not other:
        return len(one) + len(other)
    replaced = _by_definition(one[1:], other[1:]) + (one[0] != other[0])
    return min(replaced, _by_definition(one[1:], other) + 1, _by_definition(one, other[1:]) + 1)


@settings(max_examples=50, deadline=None)
@given(st.text(alphabet="abc", max_size=5), st.text(alphabet="abc", max_size=5))
def test_the_edit_distance_by_its_definition(one, other):
    assert answers.distance(one, other) == _by_definition(one, other)


def test_a_weighted_sum_is_that_of_the_equation():
    grade = graders.get("gsm8k*0.7+think*0.2+repetition")
    for completion in ("#### 72", "<think>a</think><answer>#### 72</answer>", "a a a a a #### 72"):
        parts = [graders.get(name)(completion, "72") for name in ("gsm8k", "think", "repetition")]
        expected = composite_reward(torch.tensor([parts]), torch.tensor([0.7, 0.2, 1.0]))
        assert grade(completion, "72") == pytest.approx(expected.item())
    assert math.isnan(grade("#### 72", "no number"))


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("numerik", "numeric"),
        ("numeric+thing", "think"),
        ("numeric*x", "expected names with weights"),
        ("numeric*-1", "expected names with weights"),
        ("numeric++think", "expected names with weights"),
        ("*", "expected names with weights"),
    ],
)
def test_unknown_graders(name, says):
    with pytest.raises(UserError, match=says):
        graders.get(name)


def test_graders_of_the_form_alone_need_no_reference():
    problem = Problem([{"role": "user", "content": "2 + 2?"}])
    text = "<think>a</think><answer>4</answer>"
    assert rewards.reference_reward(graders.get("think"))([problem], [text]) == [1.0]
    with pytest.raises(UserError, match="no reference"):
        rewards.reference_reward(graders.get("exact"))([problem], [text])


# -- hostile texts ------------------------------------------------------------------------------------------------------

texts = st.one_of(st.text(), st.text(alphabet="0123456789.,-/#$eE \n−", max_size=60), st.text(alphabet="<>/thinkaswer\\{}", max_size=60))  # fmt: skip


@settings(max_examples=300)
@given(texts, texts, st.sampled_from(NOT_IN_A_BOX))
def test_no_text_breaks_a_grader(completion, reference, name):
    value = graders.get(name)(completion, reference)
    assert -1 <= value <= 1 or math.isnan(value)
    assert math.isnan(value) == math.isnan(graders.get(name)("", reference)), "NaN is the reference's fault alone"


mathematical = st.text(alphabet="012xy+-*/^(){},.= \\", max_size=24) | st.lists(
    st.sampled_from((r"\frac", r"\text{cm}", r"\boxed{", "{", "}", "sqrt", "1,000", "12", "x", "^", " ", "(", ")", "e", "$")), max_size=9
).map("".join)  # fmt: skip


@settings(max_examples=60, deadline=None, phases=NO_SHRINKING)
@given(mathematical, mathematical)
def test_no_text_breaks_the_grader_of_formulas(completion, reference):
    value = graders.maths(completion, reference)
    assert value in (0, 1) or math.isnan(value)
    assert math.isnan(value) == math.isnan(graders.maths("", reference)), "NaN is the reference's fault alone"
    assert graders.maths("", reference) != 1


@settings(max_examples=25, deadline=None, phases=NO_SHRINKING)
@given(
    st.text() | st.text(alphabet="def oubl(x):=\n `2*+return'[]{}", max_size=80),
    st.sampled_from(["tests", "tests_share"]),
)
def test_no_program_breaks_its_tests(completion, name):
    assert 0 <= graders.get(name)(completion, DOUBLE) <= 1
    assert math.isnan(graders.get(name)("    return 2 * x\n", completion))


HOSTILE = {
    "long": "1" * 10**6,
    "words": "ab " * 333_333,
    "groups": "1,111" * 20_000,
    "marks": "#" * 10**6,
    "signs": "-." * 50_000,
    "slashes": "1/" * 50_000,
    "exponents": "1e" * 50_000,
    "tags": "<think>" * 100_000,
    "nested": "<think><answer>" * 1000 + "</answer></think>" * 1000,
    "boxes": "\\boxed{" * 50_000,
    "fractions": "\\boxed{" + "\\frac{" * 40 + "}" * 90,
    "roots": "\\boxed{" + "sqrt{" * 55,
    "dollars": "$" * 100_001,
    "tower": "\\boxed{" + "9^" * 60 + "9}",
    "brackets": "\\boxed{" + "(" * 280 + "}",
    "commas": "\\boxed{(" + "1," * 140 + ")}",
    "fences": "```python\n" * 50_000,
    "deep program": "    return " + "(" * 50_000,
    "nul": "\x00" * 1000,
    "surrogates": "\ud800" * 1000,
    "right to left": "\u202e" * 1000,
    "combining": "a" + "\u0301" * 100_000,
    "white": " " * 10**6,
    "lines": "\n" * 10**6,
}


@pytest.mark.parametrize("name", graders.GRADERS)
@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE)
def test_hostile_texts(name, text):
    """None earns a mark as if it were right, none takes long."""
    reference = {
        "constraints": '{"keywords": ["bee"], "json": true}', "tests": DOUBLE, "tests_share": DOUBLE, "language": "the bees",
    }.get(name, "7")  # fmt: skip
    start = time.process_time()
    value = graders.get(name)(text, reference)
    assert time.process_time() - start < 5
    least = {"repetition": 0.0, "language": 1.0}.get(name, 0.01)
    assert -1 <= value <= least
    assert isinstance(graders.get(name)("7", text), float)
