# ---
# title: A reader of calls
# kind: implement
# minutes: 35
# ---

# %% [statement]
# A policy writes calls such as `<call>find(key="red", count=3)</call>`. Write the reader. Here `reply` is the policy's completion.
#
# 1. `bodies(reply)`: the texts between `<call>` and the next `</call>`, in their order. A `<call>` that is never closed runs to the end of the completion, since the sampler stopped there. If the completion begins with `<think>` (white space before it does not count), everything up to
#    the first `</think>` is a thought, and no call is read from it; without a `</think>` the whole completion is a thought.
# 2. `parse(body)`: `(name, arguments)`, the arguments as a dictionary, or `()` if the text is no call. A call is a name, `(`, arguments separated by commas (there may be none), and `)`. An argument is a key, `=` and a value. Names and keys consist of the letters `a` to `z` and `_`.
#    A value is one of two things. It is a whole number, that is, at most twelve digits `0` to `9` with or without a `-` before them, returned as an int. Or it is a text in double quotes, in which `\"` is a quote, `\\` is a backslash, a backslash before anything else makes the text no call, and every other character is itself.
#    Blanks (only `" "`) are allowed around each of these parts, not within. No key may occur twice, and no comma may be left over.
# 3. `calls(reply, tools)`: for each body, `(name, arguments)` if the tool exists and gets exactly its arguments, else `()`. `tools` maps the name of a tool to the list of its keys.
#
# Completions are written by a model. On any completion nothing is evaluated and no exception is raised, and the time grows with the length of the text, not with its square.

# %% [given]
import re


# %% [stub]
def bodies(reply):
    """reply: a string. Returns a list of strings."""
    raise NotImplementedError


def parse(body):
    """body: a string. Returns (name, dictionary) or ()."""
    raise NotImplementedError


def calls(reply, tools):
    """reply: a string. tools: {name: [key, ...]}. Returns a list of (name, dictionary) and ()."""
    raise NotImplementedError


# %% [solution]
ARGUMENT = re.compile(r' *([a-z_]+) *= *(?:(-?[0-9]{1,12})|"((?:[^"\\]|\\["\\])*)") *([,)])')


def bodies(reply):
    if reply.lstrip().startswith("<think>"):
        _, _, reply = reply.partition("</think>")
    return re.findall(r"<call>(.*?)(?:</call>|\Z)", reply, re.DOTALL)


def parse(body):
    head = re.match(r" *([a-z_]+) *\(", body)
    if head is None:
        return ()
    if re.compile(r" *\) *").fullmatch(body, head.end()):
        return head[1], {}
    arguments, at, sign = {}, head.end(), ","
    while sign == ",":
        one = ARGUMENT.match(body, at)
        if one is None or one[1] in arguments:
            return ()
        key, number, text, sign = one.groups()
        arguments[key] = re.sub(r"\\(.)", r"\1", text, flags=re.DOTALL) if number is None else int(number)
        at = one.end()
    return (head[1], arguments) if not body[at:].strip(" ") else ()


def calls(reply, tools):
    found = [parse(body) for body in bodies(reply)]
    return [one if one and one[0] in tools and sorted(one[1]) == sorted(tools[one[0]]) else () for one in found]


# %% [tests]
import itertools

from minirlhf_course.classroom.testing import fail, test


def same(sub, function, inputs, want, say=""):
    """The answer of a function on texts is ``want``, types included."""
    got = getattr(sub, function)(*inputs)
    if plain(got) != plain(want):
        shown = ", ".join(repr(x) if len(repr(x)) < 90 else repr(x)[:87] + "..." for x in inputs)
        told = repr(got) if len(repr(got)) < 200 else repr(got)[:197] + "..."
        fail(f"`{function}({shown})` is {told}; expected {want!r}{': ' + say if say else ''}")


def plain(x):
    """With the types beside the values; a list stands for a tuple."""
    if isinstance(x, list | tuple):
        return [plain(each) for each in x]
    if isinstance(x, dict):
        return {key: plain(each) for key, each in x.items()}
    return type(x).__name__, x


def word(draw):
    return "".join("abcdefghij"[i] for i in draw.permutation(10)[:4].tolist())


@test(
    points=2,
    hints=(
        "Where does a body end, and what comes before the first call?",
        "Remove the thought first. Then continue after the `</call>` just found, while there is another `<call>`.",
    ),
)
def finds(sub, draw):
    "`bodies` finds the texts between the marks."
    a, b = word(draw), word(draw)
    same(sub, "bodies", (f"so <call>{a}</call> and <call> {b} </call>.",), [a, f" {b} "])
    same(sub, "bodies", (f"no call {a}",), [])
    same(sub, "bodies", ("",), [])
    same(sub, "bodies", (f"<call>{a}</call><call>{b}",), [a, b], "a call that is not closed runs to the end")
    same(sub, "bodies", ("<call>",), [""], "a call that is not closed runs to the end")
    same(sub, "bodies", (f"<call>{a}\n",), [f"{a}\n"], "a call that is not closed runs to the end, line ends too")
    same(
        sub, "bodies", (f"<think>or <call>{a}</call>?</think> <call>{b}</call>",), [b], "no call is read from a thought"
    )
    same(sub, "bodies", (f"\n <think>or <call>{a}</call>",), [], "a thought that does not end is all there is")
    for space in ("\t", "\u00a0", "\r\n "):
        same(
            sub.aside,
            "bodies",
            (f"{space}<think><call>{a}</call></think>",),
            [],
            "white space before `<think>` does not count",
        )
    same(sub, "bodies", (f"well <think><call>{a}</call></think>",), [a], "the completion does not begin with a thought")
    same(
        sub,
        "bodies",
        (f"<think></think><think><call>{a}</call></think>",),
        [a],
        "only the first thought is at the beginning",
    )
    same(sub, "bodies", (f"</call> {a} <call>{b}</call>",), [b])
    same(sub, "bodies", (f"<call>{a}\n{b}</call>",), [f"{a}\n{b}"], "a body may have several lines")
    same(sub, "bodies", (f"<call>{a}<call>{b}</call>",), [f"{a}<call>{b}"], "a body ends at `</call>` and nowhere else")


@test(
    points=2,
    hints=(
        "Which parts does a call have, and where are blanks allowed?",
        "Read from the left: name, bracket, then one argument after the other, each with its end, a comma or the closing bracket.",
    ),
)
def reads(sub, draw):
    "`parse` reads calls."
    a, b, n = word(draw), word(draw), draw.integer(11, 97)
    same(sub, "parse", (f"{a}()",), (a, {}))
    same(sub, "parse", (f"  {a}  (  )  ",), (a, {}), "blanks are allowed around each part")
    same(sub, "parse", (f"{a}(key={n})",), (a, {"key": n}))
    same(sub, "parse", (f"{a}(key=-{n})",), (a, {"key": -n}))
    same(
        sub,
        "parse",
        (f' {a} ( key = {n} , other_key = "{b}" ) ',),
        (a, {"key": n, "other_key": b}),
        "blanks are allowed around each part",
    )
    same(
        sub,
        "parse",
        (f'{a}(k="{b}, {a}(x=1)")',),
        (a, {"k": f"{b}, {a}(x=1)"}),
        "commas and brackets in quotes are characters like others",
    )
    same(sub, "parse", (f'{a}(k="")',), (a, {"k": ""}))
    same(
        sub,
        "parse",
        (f'{a}(k="say \\"{b}\\" \\\\")',),
        (a, {"k": f'say "{b}" \\'}),
        "a backslash before a quote or a backslash",
    )
    same(sub, "parse", (f'{a}(k="{b}\n{n}", j=0{n})',), (a, {"k": f"{b}\n{n}", "j": n}))
    same(sub, "parse", (f'{a}(k="\\\\n")',), (a, {"k": "\\n"}), "two backslashes are one, and the n is an n")
    same(sub, "parse", (f"{a}(k=123456789012)",), (a, {"k": 123456789012}))


@test(
    points=2,
    hints=(
        "What does Python accept that the statement does not allow?",
        "Digits of other scripts, an empty argument after the last comma, a key twice, words as values, single quotes: none of them is a call.",
    ),
)
def refuses(sub, draw):
    "`parse` refuses a text that is no call."
    a, n = word(draw), draw.integer(11, 97)
    refused = {
        "": "there is no name", a: "there is no bracket", f"{a}(": "the bracket is not closed", f"{a})": "there is no opening bracket",
        f"{a}(k={n},)": "a comma is left over", f"{a}(,)": "a comma is left over", f"{a}({n})": "there is no key", f"{a}(k={n} j=1)": "a comma is missing",
        f"{a}(k={n}, k=1)": "a key occurs twice", f"{a}(k=True)": "a word is no value", f"{a}(k='{n}')": "single quotes are no quotes here", f"{a}(k={n}.5)": "whole numbers only",
        f"{a}(k=--{n})": "one sign is enough", f"{a}(k=- {n})": "blanks stand around a number, not within", f"{a}(k=+{n})": "there is no plus sign", f'{a}(k="x)': "the quotes are not closed",
        f'{a}(k="\\n")': "a backslash before anything else", f"{a}(k={n}) {a}()": "something is left over", f"{a.upper()}()": "names have lower-case letters", f"{a}{n}()": "names have letters",
        f"{a}(k=\u0664\u0662)": "digits are 0 to 9", f"{a}(k=1234567890123)": "at most twelve digits", f"{a}(k=)": "there is no value", f"{a}(k={n})\n": "only blanks are allowed around a part", f'{a}(k="x"y")': "the quote ends at the second mark",
        f"{a}(k = {n}, j\t= 1)": "only blanks are allowed around a part", f"{a}(\nk={n})": "only blanks are allowed around a part", f"{a}(k={n}\u00a0)": "only blanks are allowed around a part", f"{a}(k={n},\tj=1)": "only blanks are allowed around a part",
        f"{a}(K={n})": "keys have lower-case letters", f"{a}(k1={n})": "keys have letters", f"{a}(k\u00e9={n})": "the letters are a to z", f"{a}\u00df()": "the letters are a to z", f"{a}(k j={n})": "blanks stand around a key, not within", f"{a} {a}()": "blanks stand around a name, not within", f"{a}(=1)": "there is no key", f"{a}(k=-)": "a sign is no number", f"{a}(k=1_0)": "digits are 0 to 9",
        f"{a}(k={n} {n})": "blanks stand around a number, not within",
        f"{a}\t()": "only blanks are allowed around a part", f"{a}(k={a}())": "a call is no value", f"{a}\n()": "only blanks are allowed around a part",
    }  # fmt: skip
    for text, say in refused.items():
        same(sub, "parse", (text,), (), say)


@test(
    points=2,
    hints=(
        "When does a call fit a tool?",
        "Its name is a key of `tools`, and it has exactly the tool's keys, in any order.",
    ),
)
def fits(sub, draw):
    "`calls` passes only calls that fit a tool."
    a, b, n = word(draw), word(draw), draw.integer(11, 97)
    tools = {a: ["key", "count"], f"{b}_": []}
    good = (a, {"key": b, "count": n})
    same(sub, "calls", (f'<call>{a}(key="{b}", count={n})</call>', tools), [good])
    same(
        sub,
        "calls",
        (f'<call>{a}(count={n}, key="{b}")</call> <call>{b}_()</call>', tools),
        [good, (f"{b}_", {})],
        "the order of keys does not count",
    )
    same(sub, "calls", (f"<call>{a}(count={n})</call>", tools), [()], "an argument is missing")
    same(sub, "calls", (f'<call>{a}(count={n}, key="", more=1)</call>', tools), [()], "the tool has no such argument")
    same(
        sub,
        "calls",
        (f"<call>{b}()</call><call>{b}_()</call><call>", tools),
        [(), (f"{b}_", {}), ()],
        "there is no such tool, and an empty body is no call",
    )
    same(sub, "calls", ("nothing", tools), [])


@test(
    points=1,
    hints=(
        "What does your reader do with ten thousand brackets, backslashes or quotes?",
        "No recursion, no `eval`, no pattern that can match the same text in many ways.",
    ),
)
def survives(sub, draw):
    "Any completion is read, and quickly."
    a, many = word(draw), 20_000
    for body in (
        "(" * many, f"{a}(" * 3000, f'{a}(k="' + "\\" * (2 * many + 1), f'{a}(k="' + "\\\\" * many, " " * many, f"{a}(" + " " * many, "a" * many, f"{a}(k=" + "9" * many + ")",
        f"{a}(" + "k=1," * 5000, f'{a}(k="' + "x" * many, "\0", "\ud800", f'{a}(k="\ud800',
    ):  # fmt: skip
        same(sub, "parse", (body,), (), "that is no call")
    same(sub, "calls", ("<call>" * 3000, {a: []}), [()])
    same(sub, "calls", (f"<call>{a}()</call>" * 3000, {a: []}), [(a, {})] * 3000)
    same(sub, "bodies", ("<think>" * 3000,), [])
    for function, text in (
        ("parse", " "), ("parse", a), ("parse", f"{a} "), ("parse", f"{a}("), ("parse", '"'), ("parse", "\\"), ("bodies", "<call>"), ("bodies", "<"), ("bodies", " <think>"),
    ):  # fmt: skip
        lengths = [[size + size // 50 * k for k in range(3)] for size in (5_000, 40_000)]
        short, long = (sub.seconds(function, *((text * (n // len(text)),) for n in three)) for three in lengths)
        if long > 24 * short + 0.02:
            fail(
                f"`{function}` needs {long / short:.0f} times as long for {text!r} repeated 8 times as often; expected about 8 times"
            )
    # a text that is cut off behind each part is copied once for each part: that shows where texts are long
    keys = ["".join(key) for key in itertools.product("abcdefghijkl", repeat=5)]
    for function, longest, made in (
        ("bodies", 1_500_000, lambda n: f"<call>{a}</call>" * (n // 17)),
        ("parse", 600_000, lambda n: f"{a}(" + ",".join(f"{key}=1" for key in keys[: n // 8]) + ")"),
    ):
        short, long = (
            sub.seconds(function, (made(length),), (made(length - length // 50),))
            for length in (longest // 10, longest)
        )
        if long > 25 * short + 0.3:
            fail(
                f"`{function}` needs {long / short:.0f} times as long for a text that is ten times as long; expected about ten times"
            )


# %% [edges]
# survives: the time grows with the length of the text, not with its square
# survives: On any completion nothing is evaluated and no exception is raised
# refuses: no comma may be left over
# refuses: No key may occur twice
# reads: at most twelve digits


# %% [probes]
# no integers, keywords, size, values, float32, gradient, nan: texts, not tensors


# %% [mutant] calls that were only thought of
# caught by: finds
# says: from a thought
def bodies(reply):
    found = []
    while "<call>" in reply:
        _, _, reply = reply.partition("<call>")
        body, _, reply = reply.partition("</call>")
        found.append(body)
    return found


# %% [mutant] only what is closed
# caught by: finds
# says: runs to the end
def bodies(reply):
    if reply.lstrip().startswith("<think>"):
        _, _, reply = reply.partition("</think>")
    return re.findall(r"<call>(.*?)</call>", reply, re.DOTALL)


# %% [mutant] cut at every comma
# caught by: reads
# says: in quotes
def parse(body):
    found = re.fullmatch(r" *([a-z_]+) *\((.*)\) *", body, re.DOTALL)
    if found is None:
        return ()
    arguments = {}
    for part in found[2].split(",") if found[2].strip(" ") else []:
        one = re.fullmatch(r' *([a-z_]+) *= *(?:(-?[0-9]{1,12})|"((?:[^"\\]|\\["\\])*)") *', part)
        if one is None or one[1] in arguments:
            return ()
        arguments[one[1]] = re.sub(r"\\(.)", r"\1", one[3]) if one[2] is None else int(one[2])
    return found[1], arguments


# %% [mutant] Python reads it
# caught by: reads
def parse(body):
    import ast

    try:
        node = ast.parse(body.strip(" "), mode="eval").body
        if node.args or any(one.arg is None for one in node.keywords):
            return ()
        arguments = {one.arg: ast.literal_eval(one.value) for one in node.keywords}
        return (node.func.id, arguments) if len(arguments) == len(node.keywords) else ()
    except Exception:
        return ()


# %% [mutant] the last of two keys
# caught by: refuses
# says: twice
def parse(body):
    head = re.match(r" *([a-z_]+) *\(", body)
    if head is None:
        return ()
    if re.compile(r" *\) *").fullmatch(body, head.end()):
        return head[1], {}
    arguments, at, sign = {}, head.end(), ","
    while sign == ",":
        one = ARGUMENT.match(body, at)
        if one is None:
            return ()
        key, number, text, sign = one.groups()
        arguments[key] = re.sub(r"\\(.)", r"\1", text, flags=re.DOTALL) if number is None else int(number)
        at = one.end()
    return (head[1], arguments) if not body[at:].strip(" ") else ()


# %% [mutant] a pattern that may begin anywhere
# caught by: survives
# says: times as long
def parse(body):
    head = re.match(r" *([a-z_]+) *\(", body)
    if not re.search(r" *\) *$", body) or head is None:
        return ()
    if re.compile(r" *\) *").fullmatch(body, head.end()):
        return head[1], {}
    arguments, at, sign = {}, head.end(), ","
    while sign == ",":
        one = ARGUMENT.match(body, at)
        if one is None or one[1] in arguments:
            return ()
        key, number, text, sign = one.groups()
        arguments[key] = re.sub(r"\\(.)", r"\1", text, flags=re.DOTALL) if number is None else int(number)
        at = one.end()
    return (head[1], arguments) if not body[at:].strip(" ") else ()


# %% [mutant] too many arguments do no harm
# caught by: fits
# says: no such argument
def calls(reply, tools):
    found = [parse(body) for body in bodies(reply)]
    return [one if one and one[0] in tools and set(tools[one[0]]) <= set(one[1]) else () for one in found]


# %% [mutant] the rest is cut off behind each call
# caught by: survives
# says: ten times as long
def bodies(reply):
    if reply.lstrip().startswith("<think>"):
        _, _, reply = reply.partition("</think>")
    found = []
    while "<call>" in reply:
        reply = reply[reply.index("<call>") + 6 :]
        end = reply.find("</call>")
        found.append(reply if end < 0 else reply[:end])
        reply = "" if end < 0 else reply[end + 7 :]
    return found


# %% [partial] 4: finds them, and takes none for a call
def parse(body):
    return ()


def calls(reply, tools):
    return []
