"""Each grader is graded: replies that must pass, that must fail, and hostile ones that must neither break nor hold it up."""

import json
import math
import random
import time
from fractions import Fraction
from typing import ClassVar

import pytest
import torch
from facts import raises
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from minirlhf.core.errors import UserError
from minirlhf.data.records import Problem
from minirlhf.feedback import graders, rewards
from minirlhf.feedback.graders import answers
from minirlhf.sandbox import algebra
from minirlhf_course.chapters.ch16_reasoning.equations import composite_reward

DOUBLE = json.dumps(
    {
        "prompt": 'def double(x):\n    """Twice x."""\n',
        "entry_point": "double",
        "test": "def check(candidate):\n    assert candidate(2) == 4\n    assert candidate(-1) == -2\n",
    }
)

# Two or three strings of each class: where a grader holds a list of words, the table asks for the class and not for each word.
#: Words about a 7 that make another number of it, or take it back: a sign, a doubt, a choice, a bound, a part, a power, a magnitude.
NOT_SEVEN = (
    "negative 7", "I doubt it is 7", "6 or 7", "7 or eight", "7 is wrong", "at least 7", "two thirds of 7", "7 squared", "7 and a half", "7 times nine",
)  # fmt: skip
#: The same behind a number or a formula, and before it.
BEHIND = (
    "and",
    "billion",
    "halves",
    "isn't",
    "only",
    "squared",
    "than",
    "divided by two",
    "hundredths",
    "percent of x",
    "false",
)
BEFORE = ("at least", "I doubt that it is", "two halves of", "the root of", "minus", "nor", "twice", "never", "It isn’t", "It cannot be", "It is not equal to")  # fmt: skip
#: Behind a number without a blank: units, and products.
GLUED_UNITS = ("Hz", "kWh", "MB", "ms", "kPa", "USD", "yrs", "-day", "mph", "CHF", "-ft")
GLUED_PRODUCTS = ("pq", "dx", "pqr", "kw", "mb", "ab", "BX", "t", "-m", "-pq")
#: As chat models write 18.
BOLD = ("The answer is **18**.", "#### **18**", "**#### 18**", "#### 18**", "So she makes **$18** every day.", "It is `18`", "***18***", "__18__")  # fmt: skip
#: What makes a 7 that stands before it a part of something, or one of two.
GOES_ON = (
    "k", " bn", " hundred", " billions", " + 2", "^{2}", r"\times2", "÷2", "/x", "½", "⁻¹", " times 2", "(2)", " or 8", ", 8, 9", " 8 9", " squared",
    "-tenths", " divided by two",
)  # fmt: skip
OTHER_SEVENS = ("minus 7", "log 7", "－7", "±7", "It isn't 7", "less than 7", r"\sqrt{7}")


def rows(reference, reward, *completions):
    """Completions that earn the same with one reference."""
    return [(completion, reference, reward) for completion in completions]


def boxed(reward, *pairs):
    """What stands in a box, and its reference."""
    return [(rf"\boxed{{{text}}}", reference, reward) for text, reference in pairs]


# (completion, reference, reward)
TABLE = {
    "exact": [
        ("cafe\u0301", "caf\u00e9", 1),  # the same letter, in one sign or two
        (" 1 2  3\n", "1 2 3", 1),
        ("1 2", "1 2 3", 0),
        ("a", "A", 0),
        ("", "", 1),
    ],
    "contains": [
        ("a cafe\u0301", "caf\u00e9", 1),
        ("The capital is  PARIS.", "paris", 1),
        ("in New\nYork City", "new york", 1),
        ("is it (a|b)?", "(a|b)", 1),  # no regular expressions
        *rows("7", 0, "72", "it is 0,7", "it is -7", "it is 7/2", "it is 1/7", "it is 2^7", "it is 7*3"),
        *rows("7", 0, "it is 7 .5", "it is ~7"),
        *rows("7", 0, "3 - 7", "3- 7", "7 - 3", "7 + 2 = 9"),
        *rows("7", 1, "- 7", "3 + 4 = 7", "3 - 7 = -4, but here it is 7", "7 - so", "it is 7, or so.", "it is 7."),
        *rows("18", 1, *BOLD),
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
        ("#### $1080.00 a day", "#### 1,080", 1),
        ("it is .5", "1/2", 1),
        ("#### −3", "-3", 1),
        ("3 then 4", "4.0", 1),
        ("first #### 5, no: #### 6", "6", 1),
        ("#### 20%", "0.2", 0),  # what stands around a number is not compared
        ("it takes 1 1/2 hours", "1.5", 1),
        ("2e3 people", "2000", 1),
        ("€1,000,000", "1e6", 1),
        ("-$5", "-5", 1),
        ("#### - 7", "-7", 1),
        ("7 - 3 = 4", "4", 1),
        *rows("18", 1, *BOLD, *(f"The area is 18 {unit}." for unit in ("cm^2", "m2", r"\text{cm}^2", "ft**2"))),
        *rows("7", 1, "#### 7 because 3 + 4", "#### 7m", "#### 7 km", "#### 7/hour", r"#### 7^\circ"),
        *rows("7", 1, "#### 7 (7 kg)", "#### 7 times a day"),
        *rows("7", 1, "#### 7\n8 is wrong", "#### 7 Bees", "of 3 thousand #### 7", r"\boxed{7\text{ km}}"),
        *rows("7", 1, r"\boxed{\text{about }7}"),
        # a part of something, or one of two
        *rows("7", 0, *(f"#### 7{text}" for text in GOES_ON), *(f"#### {text}" for text in OTHER_SEVENS)),
        *rows("7", 0, "it is minus 7", "it is not 7", "it is 7 million", r"it is \sqrt{7}", "#### - 7", "7-3"),
        *rows("7", 0, "#### 7!", "#### √7"),
        *rows("7", 0, *(f"#### {text}" for text in (r"7\pi", "7√2", "7 x", "7·x", "7*x", "7 x 10^3"))),
        *rows(
            "7",
            0,
            *(
                rf"\boxed{{{text}}}"
                for text in (r"\frac{1}{7}", r"0.\overline{7}", r"\text{minus }7", r"7\text{ million}", r"x\neq 7")
            ),
        ),
        *rows("3", 0, "7-3", "2**3", "#### 10^3"),
        *rows("1", 0, "#### 1_000", "#### 1 000", "#### 1,0000", "#### 1.000,50", "#### 1,23", "1e999999999"),
        *rows("1", 0, "1e" + "9" * 1000),
        *rows("2", 0, "**2**3", "7*3*2", "#### 2**3", "The area is 18 cm^2."),
        ("#### 7:30", "30", 0),
        ("#### 12/ 5", "12", 0),
        ("3 + 4 = 7²", "4", 0),
        ("72 #### no idea", "72", 0),  # marked, and no number there
        ("٧٢", "72", 0),  # digits of another script
        *rows("0", 0, "", "nan", "#### 0x10", "#### 1/0"),
        ("#### 72", "no number", math.nan),
        ("1", "1/0", math.nan),
    ],
    "gsm8k": [
        *rows("72", 1, "#### **72**", "**#### 72**"),
        *rows("72", 0, "The answer is **72**", "72"),
        *rows("none", math.nan, "#### 72", "72"),
    ],
    "partial": [("#### 72", "72", 1), ("72", "72", 0.5), ("#### 73", "72", 0), ("72", "none", math.nan)],
    "maths": [
        # numbers and formulas of one value
        *rows("7", 1, "So the result is 7 apples.", "Therefore x = 7", "#### 7\nso that is it"),
        *rows("7", 1, "I add 3 and 4\nThe answer is 7.\n\n"),
        *rows("5", 1, r"\boxed{5\text{ cm}}", r"\boxed{\$5.00}", r"\boxed{€ 5}", r"\boxed{ 5 .}", "$x = 5$"),
        *rows("5", 1, r"\boxed{5\text{ cm}^2}"),
        *rows("0.5", 1, r"so \boxed{\frac{1}{2}}", r"\boxed{\displaystyle\frac12}"),
        *rows("1.5", 1, r"\boxed{1\frac12}", "1 1/2"),
        *rows("0.75", 1, "<think>3</think><answer>$\\frac{3}{4}$</answer>", "The answer is 3/4."),
        *rows("6", 1, r"\boxed{2\times 3}", r"\boxed{2·3}"),
        *rows("2", 1, r"\boxed{6\div 3}", r"\boxed{6÷3}"),
        *rows("2x", 1, r"\boxed{2\,x}", r"\boxed{2~x}"),
        *rows("90", 1, r"\boxed{90^\circ}", r"\boxed{90°}"),
        *rows("-7", 1, r"\boxed{−7}", r"\boxed{–7}"),
        *rows("10000", 1, r"\boxed{10{,}000}", r"\boxed{10\,000}", r"\boxed{10,000}"),
        *rows("18", 1, *(text for text in BOLD if "she" not in text), r"Thus, \(18\).", r"\[\boxed{18}\]"),
        *rows("18", 1, r"Thus, \[18.\]", "The answer is\n$$\n18\n$$"),
        *rows("18", 1, r"\boxed{18\,\text{cm}^2}", r"\boxed{18\ \text{cm}}", r"\boxed{18\,\mathrm{m/s}}"),
        (r"\boxed{\dfrac{\frac{1}{2}}{3}}", "1/6", 1),
        (r"\boxed{\frac12}", r"$\frac{2}{4}$", 1),
        (r"\boxed{\frac{1,000}{2}}", "500", 1),
        (r"\boxed{(2)*1,234}", "2468", 1),
        (r"\boxed{x^2\frac{1}{2}}", "x^2/2", 1),
        (r"\boxed{2\dfrac{x}{2}}", "x", 1),
        (r"\boxed{(x+1)^2}", "x^2+2x+1", 1),
        (r"\boxed{\frac{x^2-1}{x-1}}", "x+1", 1),
        (r"\boxed{2\sqrt 2}", r"\sqrt{8}", 1),
        (r"\boxed{√8}", r"2\sqrt2", 1),
        (r"\boxed{\sqrt[3]{27}}", "3", 1),
        (r"\boxed{\sqrt{5+2\sqrt6}}", r"\sqrt2+\sqrt3", 1),
        (r"\boxed{2\pi r}", r"r\cdot\pi\cdot 2", 1),
        (r"\boxed{2π}", r"2\pi", 1),
        (r"\boxed{36\pi\,\text{cm}^2}", r"36\pi", 1),
        (r"\boxed{e^{x+y}}", r"\exp(x)\exp(y)", 1),
        (r"\boxed{x^{y}x^{z}}", "x^{y+z}", 1),
        (r"\boxed{\log 8}", r"3\ln 2", 1),
        (r"\boxed{ln(2)}", r"\log 2", 1),
        ("(2)**3", "8", 1),
        *(
            (rf"\boxed{{\{f}{x}}}", f"{f}(x)", 1)
            for f in ("sqrt", "sin", "cos", "tan", "exp", "log")
            for x in (" x", "{x}")
        ),
        ("1.41421356237309504880168872421", r"\sqrt{2}", 0),
        (r"\boxed{\sin^{2}(x)}", "x", 0),
        (r"\boxed{\sin 2x}", r"\sin(2)x", 0),  # of what is it the sine?
        (r"\boxed{9^{9^{9^{9}}}}", "3", 0),  # takes too long, in the box
        (r"\boxed{__import__('os').getpid()}", "3", 0),
        ("x.real", "x", 0),
        # where the answer stands
        *rows("4", 1, r"\boxed{3} no: \boxed{4}", r"<think>I tried \boxed{3}</think><answer>4</answer>"),
        *rows("4", 1, r"<answer>\boxed{4}</answer>"),
        *rows("7", 1, r"#### 8, or rather \boxed{7}", "I first had $8$ but it is $7$"),
        *rows("7", 1, "The final answer is $7$. I hope it is correct."),
        *rows("7", 0, r"<think>maybe \boxed{7}</think><answer>8</answer>", r"\boxed{7} no wait, it is #### 8"),
        *rows("7", 0, "$7$. No, 8."),
        *rows("8", 0, "$7$ is wrong; it is 8"),  # it names two numbers
        # words about a number: units, and what makes another one of it
        *rows("7", 1, "The area is $7$ cm", "a total of $7$ apples", r"\boxed{7\text{ square inches}}"),
        *rows("7", 1, r"\boxed{7\mbox{ cm}}", r"\boxed{\mathbf{7}}"),
        *rows("7", 0, *NOT_SEVEN, *(rf"\boxed{{{words}}}" for words in NOT_SEVEN)),
        *rows("7", 0, *(rf"\boxed{{\text{{{words}}}}}" for words in NOT_SEVEN)),
        *rows("7", 0, *(rf"\boxed{{7\text{{ {word}}}}}" for word in BEHIND)),
        *rows("7", 0, *(f"The answer is 7 {word}" for word in BEHIND)),
        *rows("7", 0, *(f"$7$ {word}" for word in BEHIND), *(f"{words} $7$" for words in BEFORE)),
        *rows("7", 0, "The answer is not 7"),
        *rows("7", 1, *(f"7{unit}" for unit in ("km", " km", " men", " am", "pm", " a day", "th", *GLUED_UNITS))),
        *rows("7", 1, "7BC"),
        *rows("7", 1, *(rf"\boxed{{7\text{{{unit}}}}}" for unit in (" K", " kW", " m")), r"\boxed{7~\text{K}}"),
        *rows("7", 1, r"\boxed{7\,\mathrm{K}}"),
        *rows("7", 0, *(f"7{product}" for product in GLUED_PRODUCTS)),
        *rows("7", 0, *(rf"\boxed{{7\text{{{letter}}}}}" for letter in ("K", " k", " M", " x", " e"))),
        *rows(
            "7",
            0,
            *(
                rf"\boxed{{7{factor}}}"
                for factor in (
                    r"\pi",
                    "xy",
                    "ab",
                    "-xy",
                    "=xy",
                    " xy",
                    r"\,\pi",
                    r"~\pi",
                    r"\sin",
                    r"\,xy",
                    r"\mathrm{e}",
                )
            ),
        ),
        *rows("7", 0, r"The answer is $7\pi$.", "7π", r"\boxed{7\% \text{ of } x}", "7 bc"),
        *rows("5", 0, r"\$5 \text{K}", r"\boxed{\$5 \text{ K per year}}"),
        (r"\boxed{\$5\text{ cash}}", "5", 1),
        (r"\boxed{36\pi \text{ cm}^2}", "36", 0),
        (r"\boxed{5\text{ cm}^2}", "25", 0),
        (r"\boxed{x+1\text{ or }}", "x+1", 0),
        # mixed numbers, thousands and blanks
        *rows("0.5", 0, r"\boxed{1\frac12}", "1 1/2"),
        *rows("15", 0, r"\boxed{5\,3}", "5 3"),
        (r"\boxed{2\frac{1}{2}}", "1", 0),
        (r"\boxed{12\,000}", "0", 0),
        (r"\boxed{1,23}", "123", 0),
        (r"\boxed{5\,3}", "53", 0),
        *rows("12345", 0, r"\boxed{1\,2345}", r"\boxed{1,2345}"),
        (r"\boxed{x,123}", "123x", 0),
        ("x > 1 2", "x > 12", 0),
        ("x < 12", "x < 1 2", 0),
        ("x > 1 0000", "x > 10000", 0),
        ("x > 1. 2", "x > 1.2", 0),
        (r"\boxed{x \ge 10 000}", r"x \ge 10000", 1),
        ("x > .5", "x>.5", 1),
        (r"x\le 3", r"x \le  3", 1),
        (r"\begin{pmatrix}1\\2\end{pmatrix}", r"\begin{pmatrix} 1 \\ 2 \end{pmatrix}", 1),
        (r"\boxed{x\le 3}", "3", 0),
        # tuples, intervals, sets
        *rows("(1,2)", 1, r"\boxed{\left(1, 2\right)}", r"\boxed{\big(1, 2\big)}", r"\boxed{\Big(1, 2\Big)}"),
        (r"\boxed{(1, \frac{1}{2})}", "(1,0.5)", 1),
        (r"\boxed{(5\text{ cm}, 2\mathrm{s})}", "(5,2)", 1),
        (r"\boxed{((1, 2), 6/2)}", "((1,2),3)", 1),
        (r"\boxed{(1, 234)}", "(1,234)", 1),
        *rows("(1,234)", 0, "1234", r"\boxed{(1, 235)}"),
        (r"\boxed{1, 234}", "1234", 0),
        *rows("(2,1)", 0, r"\boxed{(1, 2)}", r"\boxed{(,1)}"),
        *rows("[0,1]", 0, r"\boxed{[0,1)}", r"\boxed{(0,1]}"),
        (r"\boxed{\{2, 1\}}", r"\{1,2\}", 1),
        (r"\boxed{\{\}}", r"\{ \}", 1),
        *rows(r"\{1,2\}", 0, r"\boxed{\{1, 3\}}", r"\boxed{\{1, 1\}}"),
        # letters: words and rows of capitals are text, others are products
        *(
            (rf"\boxed{{{text}}}", value, 0)
            for text, value in (("listen", "silent"), ("BAC", "ABC"), ("B A C", "ABC"), ("2A7", "7A2"), ("X", "x"))
        ),
        *(
            (rf"\boxed{{{text}}}", value, 0)
            for text, value in ((r"\text{evil}", "live"), ("on", r"\text{no}"), (r"x \text{ or } y", "xy"))
        ),
        *(
            (rf"\boxed{{{text}}}", value, 1)
            for text, value in (("yx", "xy"), ("2A7", "2A7"), ("No", r"\text{no}"), ("x^2yz", "x^2zy"), ("AB", "ab"))
        ),
        *(
            (rf"\boxed{{{text}}}", value, 1)
            for text, value in ((r"\textbf{(A)}", r"\text{(A)}"), ("x or y", "X or Y"), ("abc", "a b c"))
        ),
        *(
            (rf"\boxed{{{text}}}", value, 0)
            for text, value in ((r"\text{(A)}", r"\text{(B)}"), (r"\text{}", r"\text{even}"), ("another", "an other"))
        ),
        # a command goes up to its last letter
        *(
            (rf"\boxed{{{text}}}", value, 0)
            for text, value in ((r"\bigx", "x"), (r"2\cdotx", "2x"), (r"6\divx", "6/x"), (r"\pix", r"\pi x"))
        ),
        *(
            (rf"\boxed{{{text}}}", value, 0)
            for text, value in ((r"\lnx", r"\log x"), (r"\sinx", r"\sin x"), (r"\dfracx2", "x/2"))
        ),
        *(
            (rf"\boxed{{{text}}}", value, 1)
            for text, value in ((r"7\quad", "7"), (r"\qquad 7", "7"), (r"7\%", "7"), ("x**{2}", "x^2"))
        ),
        ("", "1", 0),
        ("1", "", math.nan),
        ("1", r"\text{}", math.nan),
        ("1" * 300, "1" * 300, 1),
        ("1" * 301, "1" * 301, math.nan),  # too long to be an answer
    ],
    "think": [
        *rows("", 1, "<think>2 and 2</think><answer>4</answer>", "\n<think>\na\n</think>\n\n<answer>4</answer> "),
        *rows(
            "", 1, "2 and 2</think><answer>4</answer>", "\n a\n</think>\n<answer>4</answer>"
        ),  # the template opened it
        *rows("", 0, "</think><answer>4</answer>", "a<think></think><answer>4</answer>", "a<answer>4</answer>"),
        *rows("", 0, "<think>a</think>4", "<think></think><answer>4</answer>", "<think>a</think><answer> </answer>"),
        *rows("", 0, "<think>a<think>b</think></think><answer>4</answer>"),
        *rows("", 0, "<think>a</think><answer>4</answer><answer>5</answer>"),
        *rows("", 0, "so <think>a</think><answer>4</answer>", "<think>a</think> so <answer>4</answer>"),
        *rows("", 0, "<think>a</think><answer>4</answer> done"),
        *rows("", 0, "<THINK>a</THINK><answer>4</answer>", "<think>a<answer></think>4</answer>"),
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
        ("Yours we are", '{"ends_with": "Yours"}', 0),
        ("a wasp", '{"forbidden": ["bee", "wasp"]}', 0),
        ("One. Two! Three?", '{"sentences": 3, "no_commas": true}', 1),
        ("Dear all,\n\nYours", '{"starts_with": "Dear", "ends_with": "Yours", "no_commas": true}', 2 / 3),
        ("", '{"lower_case": true, "no_commas": true, "json": true, "min_words": 1}', 0),
        *rows(
            '{"each_sentence": {"starts_with": "g"}}',
            1,
            "Gold fish swim. Good!",
            "go",
            '"Go on," he said. Gone?\n\n- gills',
        ),
        *rows('{"each_sentence": {"starts_with": "g"}}', 0, "Gold fish swim. They do.", "", "Gone.\n\nAway", "Go! so"),
        *rows('{"each_line": {"starts_with": "g", "max_words": 3}}', 1, "Gold fish swim\n\n* gone. So", "g"),
        *rows('{"each_line": {"starts_with": "g", "max_words": 3}}', 0, "Gold fish swim\nin it", "go on and on", "\n"),
        *rows('{"each_line": {"ends_with": "."}, "lines": 2}', 1, "One.\nTwo."),
        *rows('{"each_line": {"ends_with": "."}, "lines": 2}', 0.5, "One.\nTwo", "One."),
        *rows('{"each_line": {"min_words": 2}, "each_sentence": {"keywords": ["so"]}}', 0.5, "so\nit is."),
        *(
            ("a", json.dumps({"each_line": value}), math.nan)
            for value in ({}, "g", {"starts": "g"}, {"min_words": "two"}, {"each_sentence": {"min_words": 1}}, None)
        ),
        ("a", "{}", math.nan),
        ("a", '{"min_words": "three"}', math.nan),
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
        ("Bees", "the bees 一", 1),  # the script of most of its letters
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
    "x+sin(pi*x)",
    "x+abs(x-1000)+x-1000",
    "x+abs(x/10**50-10**50)+x/10**50-10**50",
    "x+abs(log(x)-1000)+log(x)-1000",
    "x+abs(x^{1/100}-1000)+x^{1/100}-1000",
    "x+0*abs(x)+abs(exp(x)-10^9)+exp(x)-10^9",
    f"x^{{{2**127 - 1}}}",
    f"x+{2**127 - 1}",
    "x+1/10^{40}",
    "x*1.000000000000000000000000000000001",
    "x+0*(1/(x-x))",
]
TABLE["maths"] += [(formula, "x", 0) for formula in MADE_TO_AGREE]
#: Pairs that differ in their first digit, and by less than 10⁻⁴⁵.
TINY = [
    ("0", r"\exp(-200)"), (r"\exp(-300)", r"\exp(-200)"), (r"2\exp(-105)", r"\exp(-105)"), (r"\sqrt{2}*10^{-50}", r"\sqrt{3}*10^{-50}"),
    ("0", r"\sqrt{3}*10^{-50}"), (r"\exp(-x-200)", r"\exp(-x-300)"), (r"7+\exp(-105)", "7"), (r"\sqrt{2}\sqrt{3}+\exp(-300)", r"\sqrt{6}"),
    ("0", r"\exp(-10^6)"), (r"\sqrt{2}*10^{-900}", "0"),
]  # fmt: skip
TABLE["maths"] += [(text, reference, 0) for pair in TINY for text, reference in (pair, pair[::-1])]
#: Equal for positive letters alone.
TABLE["maths"] += [(r"\sqrt{x^2}", "x", 0), (r"\sqrt{x}\sqrt{y}", r"\sqrt{xy}", 1), (r"\log(x^2)", r"2\log(x)", 1)]
TABLE["maths"] += [("x", formula, 0) for formula in MADE_TO_AGREE[:4]]

#: Pairs that are the same in both directions: capitals that are names, half of the day, named values, holes, degrees, units.
TABLE["maths"] += [
    (rf"\boxed{{{one}}}", other, reward)
    for reward, pairs in {
        0: (
            ("v_0", "V_0"), (r"2\pi R", r"2\pi r"), ("R-r", "r-R"), (r"\frac{mg}{M}", r"\frac{Mg}{m}"), ("mgh", "Mgh"), ("5m", "5M"),
            (r"\Delta", r"\delta"), (r"\text{g}", "G"), ("PV = nRT", "pV = nRT"),
            (r"8\text{ am}", r"8\text{ pm}"), ("8:00 a.m.", r"8:00\text{ p.m.}"), (r"20^\circ\text{C}", r"20^\circ\text{F}"),
            (r"300\text{ K}", r"300^\circ C"), (r"30^\circ", r"30\text{ rad}"), (r"\sin 30^\circ", r"\sin 30"),
            ("x=1, y=2", "x=2, y=1"), ("x=1, y=2", "2, 1"), ("a=1, b=2", "a=1, c=2"),
            (r"x \ne 1", r"x \ne 2"), (r"\mathbb{R}\setminus\{1\}", r"\mathbb{R}"), (r"\text{all real numbers except } 1", r"\mathbb{R}"),
            (r"x \ge 1 \text{ and } x < 3", "(1,3)"), (r"x > 1 \text{ and } x < 3", r"x > 1 \text{ or } x < 3"),
            (r"60\text{ mph}", r"60\text{ km/h}"), (r"5\text{ mW}", r"5\text{ MW}"), (r"60\text{ Hz}", r"60\text{ kHz}"),
            (r"\vec{a}\cdot\vec{b}", r"\vec{a}\times\vec{b}"), (r"\text{(C) } 15", "(D)"),
            (r"\left|\begin{array}{cc}1&2\\3&4\end{array}\right|", r"\begin{pmatrix}1&2\\3&4\end{pmatrix}"),
        ),
        1: (
            ("No solution", "no solution"), ("(a)", "(A)"), (r"\text{No.}", "no"), (r"8\text{ a.m.}", "8 am"), ("3:30 pm", r"3:30\text{ PM}"),
            (r"\sin 60^\circ", r"\frac{\sqrt3}{2}"), (r"\cos(60^\circ)", r"\frac12"), (r"60^\circ", r"60\text{ degrees}"),
            ("y=2, x=1", "x=1, y=2"), (r"x=1 \text{ and } y=2", "x=1, y=2"), ("1, 2", "x=1, y=2"), ("(1, 2)", "x=1, y=2"),
            (r"x \ne 1", r"\mathbb{R}\setminus\{1\}"), (r"(-\infty,0)\cup(0,\infty)", r"x \neq 0"), (r"\text{all real numbers}", r"\mathbb{R}"),
            (r"x < 3 \text{ and } x \ge 1", "[1,3)"), (r"3\text{ kN}", r"3000\text{ N}"), (r"12\text{ V}", "12"), ("12{:}30", "12:30"),
            (r"\left[\begin{array}{c}1\\2\end{array}\right]", r"\begin{pmatrix}1\\2\end{pmatrix}"), ("C", r"\text{(C) } 15"), ("6", r"\text{6 ways}"),
        ),
    }.items()
    for pair in pairs
    for one, other in (pair, pair[::-1])
]  # fmt: skip

CASES = [pytest.param(name, *case, id=f"{name}-{i}") for name, cases in TABLE.items() for i, case in enumerate(cases)]
NOT_IN_A_BOX = [name for name in graders.GRADERS if name not in ("maths", "tests", "tests_share")]


@pytest.mark.slow
@pytest.mark.parametrize(("name", "completion", "reference", "reward"), CASES)
def test_graders_reward_of_table(name, completion, reference, reward):
    assert graders.get(name)(completion, reference) == pytest.approx(reward, nan_ok=True)


def test_graders_table_has_pass_and_fail_of_every_grader():
    assert TABLE.keys() == graders.GRADERS.keys()
    for name, cases in TABLE.items():
        values = [reward for *_, reward in cases if not math.isnan(reward)]
        assert min(values) < max(values), name


@given(st.integers(-(10**12), 10**12), st.integers(0, 10**6))
def test_answer_number_reads_any_notation(whole, millionths):
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


def test_algebra_same_value_draws_secret_key(monkeypatch):
    monkeypatch.setattr(algebra, "Sandbox", Recorder)
    for _ in range(20):
        random.seed(0)
        torch.manual_seed(0)
        algebra.same_value("x", "2*x")
    keys = [question["key"] for question in Recorder.asked]
    assert len(set(keys)) == 20 and max(keys) > 2**120


@pytest.mark.parametrize("formula", ["x", "sin(x)"])
def test_algebra_points_differ_between_keys(formula, monkeypatch):
    """A formula that is made to agree at the points of one key is refused with every other."""
    seen = []
    for name in ("_near", "_far_out"):
        drawn = getattr(algebra, name)
        monkeypatch.setattr(algebra, name, lambda *given, drawn=drawn: seen.append(drawn(*given)) or seen[-1])
    randrange = random.Random.randrange
    monkeypatch.setattr(
        random.Random, "randrange", lambda self, *given: seen.append(randrange(self, *given)) or seen[-1]
    )
    assert algebra._same(formula, formula, 1)
    first = [str(point) for point in seen if point > 0]
    seen.clear()
    assert algebra._same(formula, formula, 2)
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
def test_algebra_same_compares_coefficients_of_polynomials(one, other, third, key):
    """By the definition of a polynomial's product, in fractions."""
    factors = f"({_written(one)})*({_written(other)})"
    assert algebra._same(factors, _written(_times(one, other)), key)
    alike = {p: c for p, c in one.items() if c} == {p: c for p, c in third.items() if c}
    assert algebra._same(_written(one), _written(third), key) == alike
    assert algebra._same(f"sqrt(2)*({_written(one)})", f"sqrt(2)*({_written(third)})", key) == alike


def _by_definition(one, other):
    if not one or not other:
        return len(one) + len(other)
    replaced = _by_definition(one[1:], other[1:]) + (one[0] != other[0])
    return min(replaced, _by_definition(one[1:], other) + 1, _by_definition(one, other[1:]) + 1)


@settings(max_examples=50, deadline=None)
@given(st.text(alphabet="abc", max_size=5), st.text(alphabet="abc", max_size=5))
def test_edit_distance_equals_definition(one, other):
    assert answers.distance(one, other) == _by_definition(one, other)


def test_graders_weighted_sum_equals_composite_reward():
    grade = graders.get("gsm8k*0.7+think*0.2+repetition")
    for completion in ("#### 72", "<think>a</think><answer>#### 72</answer>", "a a a a a #### 72"):
        parts = [graders.get(name)(completion, "72") for name in ("gsm8k", "think", "repetition")]
        expected = composite_reward(torch.tensor([parts]), torch.tensor([0.7, 0.2, 1.0]))
        assert grade(completion, "72") == pytest.approx(expected.item())
    assert math.isnan(grade("#### 72", "no number"))


@pytest.mark.parametrize(
    ("name", "facts"),
    [
        ("numerik", {"value": "numerik", "expected": "numeric"}),
        ("numeric+thing", {"value": "thing", "expected": "think"}),
        ("numeric*x", {"argument": "grader", "value": "numeric*x"}),
        ("numeric*-1", {"argument": "grader", "value": "numeric*-1"}),
        ("numeric++think", {"argument": "grader", "value": "numeric++think"}),
        ("*", {"argument": "grader", "value": "*"}),
    ],
)
def test_graders_get_unknown_name_raises_user_error(name, facts):
    with raises(UserError, **facts):
        graders.get(name)


def test_reference_reward_needs_reference_unless_grader_is_of_form():
    problem = Problem([{"role": "user", "content": "2 + 2?"}])
    text = "<think>a</think><answer>4</answer>"
    assert rewards.reference_reward(graders.get("think"))([problem], [text]) == [1.0]
    with raises(UserError, argument="reference"):
        rewards.reference_reward(graders.get("exact"))([problem], [text])


# -- hostile texts ------------------------------------------------------------------------------------------------------

texts = st.one_of(st.text(), st.text(alphabet="0123456789.,-/#$eE \n−", max_size=60), st.text(alphabet="<>/thinkaswer\\{}", max_size=60))  # fmt: skip


@settings(max_examples=300)
@given(texts, texts, st.sampled_from(NOT_IN_A_BOX))
def test_graders_survive_any_text(completion, reference, name):
    value = graders.get(name)(completion, reference)
    assert -1 <= value <= 1 or math.isnan(value)
    assert math.isnan(value) == math.isnan(graders.get(name)("", reference)), "NaN is the reference's fault alone"


mathematical = st.text(alphabet="012xy+-*/^(){},.= \\", max_size=24) | st.lists(
    st.sampled_from((r"\frac", r"\text{cm}", r"\boxed{", "{", "}", "sqrt", "1,000", "12", "x", "^", " ", "(", ")", "e", "$")), max_size=9
).map("".join)  # fmt: skip


@settings(max_examples=60, deadline=None, phases=NO_SHRINKING)
@given(mathematical, mathematical)
def test_maths_grader_survives_any_formula(completion, reference):
    value = graders.maths(completion, reference)
    assert value in (0, 1) or math.isnan(value)
    assert math.isnan(value) == math.isnan(graders.maths("", reference)), "NaN is the reference's fault alone"
    assert graders.maths("", reference) != 1


@settings(max_examples=25, deadline=None, phases=NO_SHRINKING)
@given(
    st.text() | st.text(alphabet="def oubl(x):=\n `2*+return'[]{}", max_size=80),
    st.sampled_from(["tests", "tests_share"]),
)
def test_tests_grader_survives_any_program(completion, name):
    assert 0 <= graders.get(name)(completion, DOUBLE) <= 1
    assert math.isnan(graders.get(name)("    return 2 * x\n", completion))


HOSTILE = {
    "long": "1" * 10**6,
    "groups": "1,111" * 20_000,
    "marks": "#" * 10**6,
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
    "surrogates": "\ud800" * 1000,
    "combining": "a" + "\u0301" * 100_000,
    "white": " " * 10**6,
    "lines": "\n" * 10**6,
}


@pytest.mark.slow
@pytest.mark.parametrize("name", graders.GRADERS)
@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE)
def test_graders_hostile_text_earns_nothing_within_seconds(name, text):
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
