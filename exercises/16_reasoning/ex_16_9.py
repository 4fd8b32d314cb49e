# ---
# title: Rewards for form and language
# kind: implement
# minutes: 25
# ---

# %% [statement]
# R1 was rewarded for a right answer, for its format, and for staying in one language. Write the rewards for format and language, and the reward of the whole completion.
#
# 1. `parts(completion)`: the thought and the answer of a completion of the form `<think>…</think><answer>…</answer>`, two strings without white space at their ends; two empty strings if the completion is not of this form. Each of the four tags occurs
#    exactly once, in this order, neither part is empty or white space only, and there is only white space before, between and after the parts (all that `str.strip` removes; line ends are white space). The opening `<think>` may be missing, because many chat
#    templates write it before the completion begins: then the thought begins where the completion begins. Tags are in lower case; anything else, `<b>` or `<THINK>`, is ordinary text.
# 2. `language(text, target)`: the fraction of the letters of the text that belong to the script `target`, such as `"LATIN"`. Letters are the characters for which `str.isalpha` is true; `script(letter)` is given. A letter that occurs
#    twice counts twice. A text without letters has nothing in a foreign script and gets 1.0.
# 3. `reward(completion, reference, target, fine, weight)`: the gate of the chapter's format reward with $p$ = `fine`. The $g$ of a well-formed completion is the sum of two graders as in the chapter's composite reward: 1 if the answer equals the reference, character by
#    character, and 0 otherwise, with the weight 1; and `language` of the *thought* with the weight `weight`. The reference has no white space at its ends.
#
# Completions are written by a model that is rewarded for them, and may have twenty thousand characters. Whatever they are, `reward` returns a number and raises nothing.

# %% [given]
import re
import unicodedata


def script(letter):
    """The script of a letter, such as LATIN, CYRILLIC or CJK: the first word of its name in Unicode."""
    return unicodedata.name(letter, "?").partition(" ")[0]


# %% [stub]
def parts(completion):
    """completion: a string. Returns two strings: thought and answer, or twice the empty string."""
    raise NotImplementedError


def language(text, target):
    """text, target: strings. Returns a number from 0 to 1."""
    raise NotImplementedError


def reward(completion, reference, target, fine, weight):
    """completion, reference, target: strings. fine, weight: numbers. Returns a number."""
    raise NotImplementedError


# %% [solution]
TAGS = ("</think>", "<answer>", "</answer>")


def parts(completion):
    text = completion.strip().removeprefix("<think>")
    if "<think>" in text or any(text.count(tag) != 1 for tag in TAGS):
        return "", ""
    thought, _, rest = text.partition("</think>")
    between, _, rest = rest.partition("<answer>")
    answer, closing, behind = rest.partition("</answer>")
    thought, answer = thought.strip(), answer.strip()
    well_formed = closing and thought and answer and not between.strip() and not behind
    return (thought, answer) if well_formed else ("", "")


def language(text, target):
    letters = [letter for letter in text if letter.isalpha()]
    return sum(script(letter) == target for letter in letters) / len(letters) if letters else 1.0


def reward(completion, reference, target, fine, weight):
    thought, answer = parts(completion)
    if not thought:
        return -fine
    return float(answer == reference) + weight * language(thought, target)


# %% [tests]
from minirlhf_course.classroom.testing import expect, fail, test

LATIN = ("one cup moves", "left then right", "déjà vu, naïve", "swap the first two")
CYRILLIC = ("потом направо", "две чашки", "ещё раз")
HAN = ("交换两个杯子", "第一个", "最后")


def pick(draw, texts):
    return texts[draw.integer(0, len(texts) - 1)]


def asked(sub, completion, want, say):
    """`parts` of a completion is what it should be."""
    got = sub.parts(completion)
    if not isinstance(got, list | tuple) or len(got) != 2 or not all(isinstance(x, str) for x in got):
        fail("`parts` does not return two strings", completion=repr(completion[:120]))
    if tuple(got) != want:
        shown = completion if len(completion) < 160 else completion[:80] + " … " + completion[-60:]
        fail(f"`parts({shown!r})` is {tuple(x[:80] for x in got)!r}; expected {want!r}: {say}")


@test(
    points=2,
    hints=(
        "Which characters may occur between the tags, and where may white space occur? A thought has several lines.",
        "Remove white space at both ends first, then the opening tag if the text begins with it. Cut the rest at `</think>`, `<answer>` and `</answer>`, and strip the pieces. In a regular expression the dot does not match a line end without `re.DOTALL`.",
    ),
)
def of_the_form(sub, draw):
    "`parts` finds thought and answer."
    a, thought, more = draw.integer(2, 97), pick(draw, LATIN), pick(draw, CYRILLIC)
    plain = f"<think>{thought}</think><answer>{a}</answer>"
    asked(sub, plain, (thought, f"{a}"), "this is the form itself")
    asked(sub, f"\n {plain}\t\n", (thought, f"{a}"), "white space around it does not matter")
    asked(
        sub,
        f"<think>\n {thought}\n\n{more} \n</think>\n\n<answer>\n{a}\n</answer>\n",
        (f"{thought}\n\n{more}", f"{a}"),
        "white space at the ends of a part goes, and line ends inside of it stay",
    )
    asked(sub, f"{thought}\n</think>\n<answer>{a}</answer>", (thought, f"{a}"), "the opening tag may be missing")
    asked(
        sub,
        f"<think>{a} < {a + 1} > <b> <THINK> <think </ think></think><answer>x<y></answer>",
        (f"{a} < {a + 1} > <b> <THINK> <think </ think>", "x<y>"),
        "anything but the four tags is ordinary text",
    )
    asked(
        sub,
        f"<think>{thought}</think>\u2003<answer>{a}</answer>\u00a0",
        (thought, f"{a}"),
        "all that `str.strip` removes is white space",
    )


@test(
    points=2,
    hints=(
        "A model that is rewarded for the format tries everything. What if a tag occurs twice, or in the wrong position, or with nothing in it?",
        "Count each tag: the three others exactly once, and `<think>` at most once and only at the beginning. Then look at what is left before, between and after the parts.",
    ),
)
def not_of_the_form(sub, draw):
    "`parts` refuses everything else."
    a, thought = draw.integer(2, 97), pick(draw, LATIN)
    think, answer = f"<think>{thought}</think>", f"<answer>{a}</answer>"
    refused = {
        "": "it is empty",
        f"{thought} {a}": "there is no tag",
        think: "there is no answer",
        answer: "there is no thought",
        f"{answer}{think}": "the parts are in the wrong order",
        f"<think></think>{answer}": "the thought is empty",
        f"<think> \n</think>{answer}": "the thought is white space only",
        f"</think>{answer}": "the thought is empty",
        f"{think}<answer></answer>": "the answer is empty",
        f"{think}<answer>\n\t</answer>": "the answer is white space only",
        f"so {think}{answer}": "there are words before the opening tag",
        f"{think} so {answer}": "there are words between the parts",
        f"{think}{answer} so": "there are words after the answer",
        f"{think}\u200b{answer}": "`str.strip` does not remove a zero-width space, so it is a character like others",
        f"{think}{answer}{answer}": "there are two answers",
        f"{think}{think}{answer}": "there are two thoughts",
        f"{thought}<think>{thought}</think>{answer}": "there are words before the opening tag",
        f"<think>{thought}{answer}</think>{answer}": "an answer is in the thought",
        f"{think}<answer>{a}": "the answer is not closed",
        f"<think>{thought}{answer}": "the thought is not closed",
        f"{think}</answer>{a}<answer>": "the tags of the answer are in the wrong order",
        f"<answer>{thought}</think></answer>{a}": "the tags are in the wrong order",
        f"<think>{thought}</answer></think><answer>{a}": "the tags are in the wrong order",
        f"<THINK>{thought}</THINK>{answer}": "tags are in lower case",
    }
    pieces = ["<think>", thought, "</think>", "<answer>", f"{a}", "</answer>"]
    for tag in ("<think>", "</think>", "<answer>", "</answer>"):
        for place in range(len(pieces) + 1):
            refused["".join([*pieces[:place], tag, *pieces[place:]])] = f"`{tag}` occurs twice"
    for completion, say in refused.items():
        asked(sub, completion, ("", ""), say)


@test(
    points=2,
    hints=(
        "What counts: words, characters, letters? Which of é, 7, an accent and 杯 are letters?",
        "Keep the characters for which `isalpha()` is true, and take the fraction for which `script(letter)` equals the target. Think of a text without letters.",
    ),
)
def letters(sub, draw):
    "`language` is the fraction of letters in the target script."
    latin, cyrillic, han = (pick(draw, texts) for texts in (LATIN, CYRILLIC, HAN))
    number = draw.integer(10_000, 99_999)
    count = lambda text: sum(map(str.isalpha, text))
    a, b, c = map(count, (latin, cyrillic, han))
    text = f"{latin}: {number} + éx² = {cyrillic}?! {han} {number}"
    extra = 2  # éx
    ascii_only = sum(x.isascii() and x.isalpha() for x in text)
    marks = len(text)
    scripts = {"LATIN": a + extra, "CYRILLIC": b, "CJK": c, "GREEK": 0}
    for target, some in scripts.items():
        total = a + b + c + extra
        words = [w for w in text.split() if any(map(str.isalpha, w))]
        within = {"LATIN": latin.split(), "CYRILLIC": cyrillic.split(), "CJK": han.split(), "GREEK": []}[target]
        distinct = len({x for x in text if x.isalpha()})
        own = {"LATIN": latin + "éx", "CYRILLIC": cyrillic, "CJK": han, "GREEK": ""}[target]
        mistakes = {
            "all characters are counted, and not the letters alone": some / marks,
            "all characters but white space are counted": some / sum(not x.isspace() for x in text),
            "words are counted, not letters": (len(within) + (target == "LATIN")) / len(words),
            "each letter is counted once, however often it occurs": len({x for x in own if x.isalpha()}) / distinct,
        }
        if target == "LATIN":
            mistakes["only letters of ASCII are Latin, and é is Latin, too"] = ascii_only / total
        expect(
            sub.language(text, target),
            some / total,
            what=f"the fraction of {target}",
            given={"text": text},
            mistakes={say: value for say, value in mistakes.items() if abs(value - some / total) > 1e-4},
        )
    for empty in ("", f"{number} + 7 = …"):
        expect(
            sub.language(empty, pick(draw, tuple(scripts))),
            1.0,
            what="the fraction in a text without letters",
            given={"text": repr(empty)},
            mistakes={"it gets 0, but it has nothing in a foreign script": 0.0},
        )
    # a letter without a name, one of KATAKANA-HIRAGANA, and an accent, which is no letter
    for odd, want in (("a\U00017000", 0.5), ("\u30fca", 0.5), ("e\u0301\u044f", 0.5)):
        expect(
            sub.aside.language(odd, "LATIN"), want, what="the fraction of LATIN", given={"text": repr(odd)}
        )  # fmt: skip
    expect(sub.aside.language("\u30fc", "KATAKANA"), 0.0, what="the fraction of KATAKANA", given={"text": "'\u30fc'"})


@test(
    points=2,
    hints=(
        "What does a completion get that is not well formed, and is anything else added to it? Which part of a completion is in which language?",
        "−fine and nothing else if `parts` finds nothing. Otherwise 1 or 0 for the answer, plus the weight times `language` of the thought alone.",
    ),
)
def gated(sub, draw):
    "`reward` gates by the form, and adds the two graders."
    a, number = draw.integer(2, 97), draw.integer(1000, 9999)
    fine, weight = (round(float(draw.uniform(low=low, high=high)), 2) for low, high in ((0.3, 0.6), (0.1, 0.25)))
    mixed, other = f"{pick(draw, LATIN)} {pick(draw, HAN)}", pick(draw, CYRILLIC)
    fraction = lambda text: sum(x.isascii() or x in "éàï" for x in text if x.isalpha()) / sum(map(str.isalpha, text))
    share, reference = fraction(mixed), f"{other} {a}"
    form = lambda answer: f"<think>{mixed}, {number}</think>\n<answer> {answer} </answer>"
    whole = fraction(form(reference))
    both = fraction(mixed + reference)
    for answer, right in (
        (reference, 1.0),
        (f"{other} {a + 1}", 0.0),
        (f"{other}  {a}", 0.0),
        (reference.upper(), 0.0),
    ):
        expect(
            sub.reward(form(answer), reference, "LATIN", fine, weight),
            right + weight * share,
            what="the reward of a well-formed completion",
            given={"completion": form(answer), "reference": reference, "fine": fine, "weight": weight},
            mistakes={
                "the language of the whole completion counts, tags and all": right + weight * whole,
                "the language of the answer counts, too": right + weight * both,
                "the language is left out": right,
                "the weight is left out": right + share,
                "the language multiplies the answer": right * (1 + weight * share),
                "the answer has the weight 1 − weight": right * (1 - weight) + weight * share,
                "the answers are compared without their case or their blanks": 1.0 + weight * share,
                "the well-formed completion pays the fine": right + weight * share - fine,
            },
        )
    expect(
        sub.aside.reward(form(reference), reference, "CJK", fine, weight),
        1.0 + weight * (1 - share),
        what="the reward of a well-formed completion with the target CJK",
        given={"completion": form(reference), "reference": reference, "fine": fine, "weight": weight},
    )
    bad = f"<think>{mixed}</think>{reference}"
    expect(
        sub.reward(bad, reference, "LATIN", fine, weight),
        -fine,
        what="the reward of a completion without form",
        given={"completion": bad, "reference": reference, "fine": fine, "weight": weight},
        mistakes={
            "it gets 0, but it should pay the fine": 0.0,
            "the fine is added instead of subtracted": fine,
            "its language is rewarded too": weight * share - fine,
            "an empty thought has no foreign letter, and its language is rewarded": weight - fine,
        },
    )


@test(
    points=1,
    rounds=1,
    hints=(
        "What takes your function long, or makes it raise, on a text that no person would write?",
        "One `count` and one cut for each tag look at every character once. Several lazy groups in a regular expression, one after the other, may look at each position from every other position. A character without a name has no script: `script` is safe to call.",
    ),
)
def hostile(sub, draw):
    "`reward` of long and odd completions."
    size = 20_000
    thought = "</think" * (size // 8)
    completions = {
        "<" * size: -1.0,
        "<answer>" * (size // 8): -1.0,
        "</think><answer>" * (size // 16): -1.0,
        f"<think>{' ' * size}</think>": -1.0,
        f"<think>a{' ' * size}a</think>{' ' * size}<answer>7</answer>{chr(10) * size}": 2.0,
        f"<think>{thought}</think><answer>7</answer>": 2.0,
        "\ud800\x00\U000e0001</think><answer>7</answer>": 2.0,
        f"<think>{'杯' * size}</think><answer>7</answer>": 1.0,
    }
    for completion, want in completions.items():
        got = sub.aside.reward(completion, "7", "LATIN", 1.0, 1.0)
        shown = repr(completion[:24]) + f" … ({len(completion)} characters)"
        expect(got, want, what="the reward of a hostile completion", given={"completion": shown})
    blanks = lambda many, letter: (" " * many + letter + " " * many + "</answer></think><answer>",)
    short, long = (sub.seconds("parts", *(blanks(many, letter) for letter in "abc")) for many in (200, 1600))
    if long > 24 * short + 0.1:
        fail(f"`parts` needs {long / short:.0f} times as long for 8 times as many blanks; expected about 8 times")


# %% [edges]
# of_the_form: The opening `<think>` may be missing
# of_the_form: Tags are in lower case
# not_of_the_form: neither part is empty or white space only
# letters: A text without letters has nothing in a foreign script
# hostile: may have twenty thousand characters
# hostile: Whatever they are, `reward` returns a number and raises nothing


# %% [probes]
# no size, integers, values, float32, gradient: texts, not tensors


# %% [mutant] the tags anywhere in the text
# caught by: not_of_the_form
def parts(completion):
    thought, closing, rest = completion.strip().removeprefix("<think>").partition("</think>")
    _, opening, rest = rest.partition("<answer>")
    answer, end, _ = rest.partition("</answer>")
    thought, answer = thought.strip(), answer.strip()
    return (thought, answer) if closing and opening and end and thought and answer else ("", "")


# %% [mutant] one line only
# caught by: of_the_form
# says: line ends inside
def parts(completion):
    match = re.fullmatch(r"(?:<think>)?(.+)</think>\s*<answer>(.+)</answer>", completion.strip())
    return (match[1].strip(), match[2].strip()) if match else ("", "")


# %% [mutant] the opening tag must be there
# caught by: of_the_form
# says: may be missing
def parts(completion):
    text = completion.strip()
    if not text.startswith("<think>") or any(text.count(tag) != 1 for tag in ("<think>", *TAGS)):
        return "", ""
    thought, _, rest = text.removeprefix("<think>").partition("</think>")
    between, _, rest = rest.partition("<answer>")
    answer, closing, behind = rest.partition("</answer>")
    good = closing and thought.strip() and answer.strip() and not between.strip() and not behind
    return (thought.strip(), answer.strip()) if good else ("", "")


# %% [mutant] empty parts are parts
# caught by: not_of_the_form
def parts(completion):
    text = completion.strip().removeprefix("<think>")
    if "<think>" in text or any(text.count(tag) != 1 for tag in TAGS):
        return "", ""
    thought, _, rest = text.partition("</think>")
    between, _, rest = rest.partition("<answer>")
    answer, closing, behind = rest.partition("</answer>")
    return (thought.strip(), answer.strip()) if closing and not between.strip() and not behind else ("", "")


# %% [mutant] all characters
# caught by: letters
# says: not the letters alone
def language(text, target):
    return sum(script(x) == target for x in text if x.isalpha()) / len(text) if text else 1.0


# %% [mutant] nothing for no letters
# caught by: letters
# says: it gets 0
def language(text, target):
    letters = [x for x in text if x.isalpha()]
    return sum(script(x) == target for x in letters) / max(len(letters), 1)


# %% [mutant] the language of everything
# caught by: gated
# says: tags and all
def reward(completion, reference, target, fine, weight):
    thought, answer = parts(completion)
    return float(answer == reference) + weight * language(completion, target) if thought else -fine


# %% [mutant] no fine
# caught by: gated
# says: it should pay the fine
def reward(completion, reference, target, fine, weight):
    thought, answer = parts(completion)
    return float(answer == reference) + weight * language(thought, target) if thought else 0.0


# %% [mutant] a name is asked of every character
# caught by: hostile
def language(text, target):
    letters = [x for x in text if x.isalpha() or unicodedata.name(x) == ""]
    return sum(script(x) == target for x in letters) / len(letters) if letters else 1.0


# %% [partial] 4: the parts alone
def language(text, target):
    return 0.5


def reward(completion, reference, target, fine, weight):
    raise NotImplementedError
