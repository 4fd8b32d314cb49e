# ---
# title: A grader that no completion can crash
# kind: implement
# minutes: 30
# ---

# %% [statement]
# A completion ends in `\boxed{…}`, and the reference is only a number, such as `1,250` or `3/4`. Write the grader.
#
# 1. `boxed(reply)`: the content of the **last** `\boxed{…}` of the completion, without the outer braces; it may contain further braces, in pairs. An empty text if there is no `\boxed{`, or if the last one is never closed.
# 2. `amount(text)`: the value of a text as a float, or NaN if the text is not a number. Blanks, tabs, line ends and `$` around it are ignored, in any order. A number is an optional sign `+` or `-`, then digits `0` to `9`, either without commas or with commas that
#    cut groups of exactly three from the right, then optionally a point with at least one digit after it. A fraction is two such whole numbers with `/` between them; only the first may have a sign, and the second is not zero. No whole number has more than 300 digits. Nothing else is a number: no exponent, no underscore, no word.
# 3. `grade(reply, reference)`: 1.0 if the boxed answer of the completion is the same float as the reference, 0.0 if not, and NaN if the *reference* is not a number, so that no completion can be graded.
#
# The model is rewarded by this grader and may write anything. For every completion `grade` returns a number and raises nothing.

# %% [given]
import math
import re


# %% [stub]
def boxed(reply):
    """reply: a string. Returns a string."""
    raise NotImplementedError


def amount(text):
    """text: a string. Returns a float."""
    raise NotImplementedError


def grade(reply, reference):
    """Two strings. Returns 0.0, 1.0 or NaN."""
    raise NotImplementedError


# %% [solution]
WHOLE = r"(?:[0-9]{1,3}(?:,[0-9]{3})+|[0-9]+)"
NUMBER = re.compile(rf"([+-]?)({WHOLE})(?:(\.[0-9]+)|/({WHOLE}))?")


def boxed(reply):
    _, found, rest = reply.rpartition("\\boxed{")
    depth = 1
    for i, letter in enumerate(rest if found else ""):
        depth += (letter == "{") - (letter == "}")
        if depth == 0:
            return rest[:i]
    return ""


def amount(text):
    found = NUMBER.fullmatch(text.strip(" \t\r\n$"))
    if found is None:
        return math.nan
    sign, whole, after, below = found.groups()
    over, under = whole.replace(",", ""), (below or "1").replace(",", "")
    if len(over) > 300 or len(under) > 300 or int(under) == 0:
        return math.nan
    value = float(over + (after or "")) if after else int(over) / int(under)  # int by int is the nearest float
    return -value if sign == "-" else value


def grade(reply, reference):
    wanted = amount(reference)
    return math.nan if math.isnan(wanted) else float(amount(boxed(reply)) == wanted)


# %% [tests]
from minirlhf_course.classroom.testing import fail, test


def same(sub, function, inputs, want, say=""):
    """The answer of a function on texts is ``want``, and of its type."""
    got = getattr(sub, function)(*inputs)
    if isinstance(want, str):
        alike = isinstance(got, str) and got == want
    else:
        number = isinstance(got, int | float) and not isinstance(got, bool)
        alike = number and (got != got if want != want else abs(got - want) <= 1e-12 * max(1.0, abs(want)))
    if not alike:
        shown = ", ".join(repr(x if len(x) < 90 else x[:87] + "...") for x in inputs)
        fail(f"`{function}({shown})` is {got!r}; expected {want!r}{': ' + say if say else ''}")


def some(draw):
    """A whole number with few digits."""
    return draw.integer(2, 97)


@test(
    points=2,
    hints=(
        "Which of several boxes counts, and where does it end if there are braces inside?",
        "Look for the last `\\boxed{`, then count braces: +1 at each that opens, −1 at each that closes; at zero it ends.",
    ),
)
def boxes(sub, draw):
    "`boxed` finds the last box."
    a, b, c = (3 + draw.permutation(90)[:3]).tolist()
    same(sub, "boxed", (f"First \\boxed{{{a}}}, no: \\boxed{{{b}}}.",), f"{b}", "the last box counts")
    same(
        sub,
        "boxed",
        (f"so \\boxed{{\\frac{{{a}}}{{{b}}}}} {{{c}}}",),
        f"\\frac{{{a}}}{{{b}}}",
        "count the braces inside",
    )
    same(sub, "boxed", (f"\\boxed{{{{{a}}}_{{{b}}}}} and }} more }}",), f"{{{a}}}_{{{b}}}", "count the braces inside")
    same(sub, "boxed", (f"the answer is {a}",), "", "there is no box")
    same(sub, "boxed", (f"\\boxed{{{a}}} or \\boxed{{{b}",), "", "the last box is never closed")
    same(sub, "boxed", ("\\boxed{}",), "", "the box is empty")
    same(sub, "boxed", (f"\\boxed{{\\boxed{{{a}}}}}",), f"{a}", "the last `\\boxed{` is inside the first")
    deep = f"\\frac{{\\sqrt{{{a}}}}}{{{b}}}"
    same(sub, "boxed", (f"so \\boxed{{{deep}}} {{{c}}}",), deep, "braces inside may have braces inside")
    same(sub, "boxed", (f"boxed{{{a}}}",), "", "a box begins with a backslash")
    same(sub, "boxed", (f"\\boxed{{ {a} }}",), f" {a} ", "the content of the box includes its blanks")
    same(sub, "boxed", (f"\\boxed {{{a}}}",), "", "a box begins with `\\boxed{`, without a blank")
    same(sub, "boxed", (f"\\fbox{{{a}}}",), "", "a box begins with `\\boxed{`")
    same(sub, "boxed", ("",), "")


@test(
    points=2,
    hints=(
        "Which parts does a number have, if it may be written as 1,250 or as 3/4?",
        "Strip white space and `$` at both ends, match the whole text with one regular expression, then remove the commas and divide.",
    ),
)
def numbers(sub, draw):
    "`amount` reads numbers."
    a, b, c = some(draw), some(draw), draw.integer(100, 989)
    same(sub, "amount", (f"{a}",), float(a))
    same(sub, "amount", (f" ${a},{c} ",), float(a * 1000 + c), "commas cut groups of three")
    same(sub, "amount", (f"-{a},{c},{c}",), -float(a * 1_000_000 + c * 1000 + c))
    same(sub, "amount", (f"+{a}.{c}",), float(f"{a}.{c}"))
    same(sub, "amount", (f"-{a}/{b}",), -a / b, "a fraction is a number")
    same(sub, "amount", (f"{a},{c}/{b}",), (a * 1000 + c) / b)
    same(sub, "amount", (f"{c}{c}{c}",), float(f"{c}{c}{c}"), "digits without commas are a number")
    same(sub, "amount", (f"{a}/{b},{c}",), a / (b * 1000 + c), "the number below may have commas")
    same(
        sub,
        "amount",
        (f"$ {a}.{c}\t$\r\n",),
        float(f"{a}.{c}"),
        "blanks, tabs, line ends and `$` around it are ignored",
    )
    same(sub, "amount", (f"$ ${a}",), float(a), "blanks and `$` around it are ignored, in any order")
    same(sub, "amount", (f"-0.{c}",), -float(f"0.{c}"), "the sign counts, before a zero as well")
    same(sub, "amount", (f"+{a}/{b}",), a / b, "the sign may be a plus, before a fraction as well")
    same(sub, "amount", (f"-{a},{c}.{b}",), -float(f"{a}{c}.{b}"), "a number may have a sign, commas and a point")
    same(
        sub,
        "amount",
        (f"{a}." + f"{c}" * 9,),
        float(f"{a}." + f"{c}" * 9),
        "after the point any number of digits is allowed",
    )
    grouped = f"{a}" + f",{c}" * 90
    same(sub, "amount", (grouped,), float(grouped.replace(",", "")), "a whole number may have up to 300 digits")
    for times in (7, 40, 100):
        same(sub, "amount", (f"{c}" * times,), float(f"{c}" * times), "a whole number may have up to 300 digits")
    same(sub, "amount", (f"{a}/" + f"{c}" * 40,), a / int(f"{c}" * 40), "a whole number may have up to 300 digits")
    same(sub, "amount", ("007",), 7.0)
    same(sub, "amount", (f"0,{c}",), float(c), "a zero is a digit like others, before a comma as well")
    same(sub, "amount", (f"00,{c}.5",), c + 0.5, "a zero is a digit like others, before a comma as well")


@test(
    points=2,
    hints=(
        "What does Python's own `float` accept that the statement does not?",
        "float reads nan, inf, 1e9, 1_000 and digits of other scripts. Match `[0-9]` yourself, and think of a zero below a fraction.",
    ),
)
def no_numbers(sub, draw):
    "`amount` refuses texts that are not numbers."
    a, b = some(draw), some(draw)
    refused = {
        f"{a}e{b}": "there is no exponent", f"{a}_000": "there is no underscore", "nan": "that is a word", "infinity": "that is a word",
        f"{a}/0": "the number below is zero", f"{a}/00": "the number below is zero", "": "there is no digit", "$": "there is no digit", "-": "there is no digit",
        f"{a},{b % 10}": "commas cut groups of exactly three", f"{a}{a}{a}{a},000": "commas cut groups of exactly three", f"{a},": "commas cut groups of exactly three",
        f"{a}.2,5": "commas occur only before the point", f"\u00a0{a}": "only blanks, tabs, line ends and `$` are ignored", f"\v{a}": "only blanks, tabs, line ends and `$` are ignored",
        f"{a}.": "a point has digits after it", f".{a}": "a number begins with a digit", f"{a} {b}": "these are two numbers", f"{a}/-{b}": "only the first may have a sign",
        f"{a}${b}": "blanks and `$` are ignored only around the number", f"{a} /{b}": "blanks and `$` are ignored only around the number", f"- {a}": "blanks and `$` are ignored only around the number",
        f"{a}/{b},{a % 10}": "commas cut groups of exactly three", f"{a}/{b}/{b}": "that is not a fraction", "\u0664\u0662": "digits are 0 to 9", f"--{a}": "one sign is enough", f"{a} apples": "there is a word after it", f"{a}.5/{b}": "a fraction has two whole numbers",
        "9" * 301: "no whole number has more than 300 digits", "0" * 301: "no whole number has more than 300 digits", "9" * 400: "no whole number has more than 300 digits",
        f"{a}/" + "9" * 301: "no whole number has more than 300 digits",
    }  # fmt: skip
    for text, say in refused.items():
        same(sub, "amount", (text,), float("nan"), say)


@test(
    points=2,
    hints=(
        "Which of the two texts decides between 0 and NaN?",
        "NaN if `amount(reference)` is NaN. Otherwise 0 or 1 for every completion; NaN equals no number.",
    ),
)
def grades(sub, draw):
    "`grade` is 0, 1 or NaN."
    a, b = some(draw), draw.integer(100, 989)
    same(sub, "grade", (f"so it is \\boxed{{{a},{b}.0}}", f"{a}{b}"), 1.0)
    same(sub, "grade", (f"so it is \\boxed{{{2 * a}/{2 * b}}}", f"{a}/{b}"), 1.0)
    same(sub, "grade", ("so it is \\boxed{0}", "0"), 1.0, "zero is an answer like any other")
    same(sub, "grade", (f"so it is \\boxed{{{a}}}", "0"), 0.0)
    same(
        sub,
        "grade",
        ("so it is \\boxed{1/3}", repr(1 / 3)),
        1.0,
        "the two must be the same float, not the same fraction",
    )
    same(
        sub,
        "grade",
        ("\\boxed{" + "9" * 400 + "}", "8" * 400),
        float("nan"),
        "the reference has too many digits, so no completion can be graded",
    )
    same(sub, "grade", (f"so it is {a}", f"{a}"), 0.0, "there is no box")
    same(sub, "grade", (f"{a}", f"{a}"), 0.0, "there is no box")
    same(sub, "grade", (f"\\boxed{{{a}}} \\boxed{{{a + 1}}}", f"{a}"), 0.0, "the last box counts")
    same(sub, "grade", (f"\\boxed{{{a}}} \\boxed{{}}", f"{a}"), 0.0, "the last box counts, and it is empty")
    same(sub, "grade", (f"\\boxed{{{a}.000000000001}}", f"{a}"), 0.0, "near is not the same")
    same(sub, "grade", (f"\\boxed{{{a} or {a + 1}}}", f"{a}"), 0.0)
    same(sub, "grade", (f"\\boxed{{-{a}}}", f"{a}"), 0.0, "the sign counts")
    same(sub, "grade", (f"\\boxed{{{a}.4}}", f"{a}"), 0.0, "the digits after the point count")
    same(sub, "grade", (f"\\boxed{{{a}.0000001}}", f"{a}"), 0.0, "near is not the same")
    same(sub, "grade", (f"\\boxed{{{a},001}}", f"{a},000"), 0.0, "near is not the same")
    same(
        sub,
        "grade",
        (f"\\boxed{{{a}}}", "about ten"),
        float("nan"),
        "the reference is not a number, so no completion can be graded",
    )
    same(
        sub,
        "grade",
        (f"\\boxed{{{a}}}", f"\\boxed{{{a}}}"),
        float("nan"),
        "a reference with other text is not a number",
    )
    same(sub, "grade", ("no box", "1/0"), float("nan"), "the reference is not a number, so no completion can be graded")
    for reply in (
        "\\boxed{1/0}",
        "\\boxed{" * 50,
        "\\boxed{nan}",
        "\\boxed{" + "9" * 6000 + "}",
        "\\boxed{" + "{" * 3000 + "}" * 3000 + "}",
        "\\boxed{1/" + "9" * 6000 + "}",
        "\0",
        "",
    ):
        same(sub, "grade", (reply, f"{a}"), 0.0, "every completion gets a number")


# %% [edges]
# numbers: with commas that cut groups of exactly three from the right
# numbers: No whole number has more than 300 digits
# grades: For every completion `grade` returns a number and raises nothing
# boxes: An empty text if there is no `\boxed{`


# %% [probes]
# no integers, keywords, size, values, float32, gradient: texts, not tensors


# %% [mutant] the first box
# caught by: boxes
# says: last box counts
def boxed(reply):
    _, found, rest = reply.partition("\\boxed{")
    depth = 1
    for i, letter in enumerate(rest if found else ""):
        depth += (letter == "{") - (letter == "}")
        if depth == 0:
            return rest[:i]
    return ""


# %% [mutant] up to the first closing brace
# caught by: boxes
# says: count the braces
def boxed(reply):
    found = re.findall(r"\\boxed\{([^}]*)\}", reply)
    return found[-1] if found else ""


# %% [mutant] whatever float can read
# caught by: no_numbers
# says: no exponent
def amount(text):
    over, line, below = text.strip(" \t\r\n$").replace(",", "").partition("/")
    try:
        return float(over) / float(below) if line else float(over)
    except (ValueError, ZeroDivisionError):
        return math.nan


# %% [mutant] commas anywhere
# caught by: no_numbers
# says: groups of exactly three
def amount(text):
    found = re.fullmatch(r"([+-]?)([0-9][0-9,]*)(?:(\.[0-9]+)|/([0-9][0-9,]*))?", text.strip(" \t\r\n$"))
    if found is None:
        return math.nan
    sign, whole, after, below = found.groups()
    over, under = whole.replace(",", ""), (below or "1").replace(",", "")
    if len(over) > 300 or len(under) > 300 or int(under) == 0:
        return math.nan
    return float(sign + over + (after or "")) / int(under)


# %% [mutant] a reference that is not a number
# caught by: grades
# says: no completion can be graded
def grade(reply, reference):
    return float(amount(boxed(reply)) == amount(reference))


# %% [mutant] NaN for an answer that is not a number
# caught by: grades
# says: expected 0.0
def grade(reply, reference):
    given, wanted = amount(boxed(reply)), amount(reference)
    return math.nan if math.isnan(given + wanted) else float(given == wanted)


# %% [mutant] zero taken for nothing
# caught by: grades
# says: zero is an answer
def grade(reply, reference):
    given, wanted = amount(boxed(reply)), amount(reference)
    return math.nan if math.isnan(wanted) else 1.0 if given and given == wanted else 0.0


# %% [mutant] no zero before a comma
# caught by: numbers
# says: like others
def amount(text):
    found = re.fullmatch(
        r"([+-]?)([1-9][0-9]{0,2}(?:,[0-9]{3})+|[0-9]+)(?:(\.[0-9]+)|/([1-9][0-9]{0,2}(?:,[0-9]{3})+|[0-9]+))?",
        text.strip(" \t\r\n$"),
    )
    if found is None:
        return math.nan
    sign, whole, after, below = found.groups()
    over, under = whole.replace(",", ""), (below or "1").replace(",", "")
    if len(over) > 300 or len(under) > 300 or int(under) == 0:
        return math.nan
    value = float(over + (after or "")) / int(under)
    return -value if sign == "-" else value


# %% [partial] 4: reads boxes and numbers, and believes in float
def amount(text):
    over, line, below = text.strip(" \t\r\n$").replace(",", "").partition("/")
    try:
        return float(over) / float(below) if line else float(over)
    except (ValueError, ZeroDivisionError):
        return math.nan


def grade(reply, reference):
    return 0.0
