"""Whatever is thrown at them, the loaders, the template parser, the settings, the graders and the reader of tool calls read it or refuse it with one clear line.

    python tests/fuzz.py                     100,000 inputs for each (20,000 formulas, 200 programs), and the evidence in benchmarks/fuzz.json
    python tests/fuzz.py --count 300 --seed 7 --only settings     repeats one run
    python tests/fuzz.py --only graders --keep                    one target anew, with the seed of the evidence, into it

An input is a good one that was damaged: bytes cut out, doubled, swapped or replaced, or a value of its JSON replaced by
another. Input n of a target depends on the seed and n alone. An exception that is no ``UserError``, a message of more than one
line or without the file's name, and five seconds of computing without an answer are crashes; the first ones are printed.
"""

import argparse
import contextlib
import gzip
import io
import json
import math
import random
import signal
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import ClassVar

import datasets

from minirlhf.core.errors import UserError
from minirlhf.data import calls, chat, inspection, rendering
from minirlhf.data.loaders import load
from minirlhf.feedback import graders
from minirlhf.models.tokenizers import train_tokenizer
from minirlhf_cli import Parser
from minirlhf_cli.commands import train
from minirlhf_cli.settings import from_mapping, read_yaml
from minirlhf_course import evidence

datasets.disable_progress_bars()

ROOT = Path(__file__).resolve().parent.parent
SAMPLES = ROOT / "tests" / "samples"
RESULT = ROOT / "benchmarks" / "fuzz.json"
SECONDS = 5

JUNK = (None, True, False, 0, -1, 1e308, float("nan"), float("inf"), "", " ", "\ud800", "\x00", "a" * 500, "ß你", "1", "true", [], {}, [[]])  # fmt: skip
JUNK += (
    [{}],
    {"role": "user"},
    [{"role": "assistant", "content": ""}],
    "\n\nHuman:",
    "\n\nHuman: a\n\nAssistant: b",
    "#### 1",
)
SCRAPS = (b"{", b"}", b"[", b"]", b'"', b"\\", b",", b":", b"\n", b"\r\n", b"\x00", b"\xff", b"\xef\xbb\xbf", b"\xff\xfe", b"null", b"NaN")  # fmt: skip
SCRAPS += (
    b"1e999",
    b"\\ud800",
    b"{{",
    b"}}",
    b"{%",
    b"%}",
    b"- ",
    b"? ",
    b"!!",
    b"&a",
    b"*a",
    b"|",
    b">",
    b"'",
    b"#",
    b"  ",
    b"\t",
)
SCRAPS += (b"9" * 400, b"2001-99-99", b"0x_", b"!!python/object:a", b"=", b"<<: ", b"..", b".inf", b"~")


def damage(rng: random.Random, data: bytes) -> bytes:
    """One to four random cuts, copies, swaps, bytes and scraps."""
    for _ in range(rng.randint(1, 4)):
        a, b = sorted(rng.randrange(len(data) + 1) for _ in range(2))
        b = min(b, a + rng.choice((1, 4, 40, 4000)))
        match rng.randrange(6):
            case 0:
                data = data[:a] + data[b:]
            case 1:
                data = data[:b] + data[a:b] * rng.randint(1, 3) + data[b:]
            case 2:
                data = data[:a]
            case 3:
                data = data[:a] + bytes(rng.randrange(256) for _ in range(rng.randint(1, 4))) + data[a + 1 :]
            case 4:
                data = data[:a] + rng.choice(SCRAPS) + data[a:]
            case 5:
                data = data[b:] + data[:b]
    return data


def mangle(rng: random.Random, value: object) -> object:
    """A JSON value in which something was replaced, left out or renamed."""
    if rng.random() < 0.15 or not isinstance(value, dict | list) or not value:
        return rng.choice(JUNK)
    if isinstance(value, list):
        value = list(value)
        i = rng.randrange(len(value))
        if rng.random() < 0.2:
            return value[:i] + value[i + 1 :] * 2
        value[i] = mangle(rng, value[i])
        return value
    value = dict(value)
    key = rng.choice(list(value))
    match rng.randrange(5):
        case 0:
            del value[key]
        case 1:
            value[rng.choice((key.upper(), key + "s", "", "prompt", "label", "scores"))] = value.pop(key)
        case _:
            value[key] = mangle(rng, value[key])
    return value


# -- the targets: each makes an input and tries it; "read", or the UserError -------------------------------------------

TOOLS = [{"type": "function", "function": {"name": "look", "parameters": {"type": "object", "properties": {}}}}]
CALL = {"id": "c1", "type": "function", "function": {"name": "look", "arguments": {"place": "Rome"}}}
#: Layouts that no file of samples holds, a good row of each.
LAYOUTS: tuple[dict[str, object], ...] = (
    {"prompt": "Is tea healthy?", "completion": "Mostly.", "rating": 4.5},
    {"prompt": [{"role": "user", "content": "Is tea healthy?"}], "completion": "Mostly.", "score": "3"},
    {"prompt": "2 + 2?", "completions": ["2 + 2 is 4.", "So 5."], "labels": [True, False]},
    {"problem": "What is half of 14?", "solution": "14/2 = \\boxed{7}"},
    {"question": "Which is a fish?", "choices": ["wren", "trout"], "answer": "B"},
    {"instruction": "Name a fish.", "input": "in one word", "output": "Trout"},
    {"prompt": "Q 0 yes?", "chosen": "Q 0 yes? Yes.", "rejected": "Q 0 yes? No.", "score_chosen": 2, "score_rejected": 1},
    {"prompt": "Count.", "reference": ["1", "one"], "tools": TOOLS, "chat_template_kwargs": {"enable_thinking": False}},
    {"messages": [{"role": "user", "content": [{"type": "text", "text": "Hi"}]}, {"role": "assistant", "content": [{"type": "text", "text": "Hello"}]}]},
    {"messages": [{"role": "user", "content": "Weather?"}, {"role": "assistant", "content": None, "function_call": {"name": "look", "arguments": "{}"}}, {"role": "function", "name": "look", "content": "sun"}, {"role": "assistant", "content": "Sun."}]},
    {"messages": [{"role": "system", "content": "Call.", "functions": json.dumps(TOOLS)}, {"role": "user", "content": "Go"}, {"role": "assistant", "content": None, "function_calls": "look(place='Rome')\nlook(place='Oslo')"}]},
    {"messages": [{"role": "user", "content": "Go"}, {"role": "assistant", "content": "Yes.", "reasoning": "May I?", "tool_calls": [CALL]}], "tools": json.dumps(TOOLS)},
    {"conversations": [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello", "thinking": "A greeting."}]},
    {"conversations": [{"from": "human", "value": "Hi"}], "chosen": {"from": "gpt", "value": "Hello"}, "rejected": {"from": "gpt", "value": "No"}},
    {"conversations": [{"from": "human", "value": "Hi"}, {"from": "gpt", "value": "Hello", "loss": False}, {"from": "human", "value": "So?"}, {"from": "gpt", "value": "Yes"}], "label": True},
    {"messages": [{"role": "user", "content": "2 + 2?"}, {"role": "assistant", "content": "So 4.", "weight": 1}], "answer": 4.0, "label": False},
    {"instruction": "Name a fish.", "output": "Trout", "system": "Be brief.", "history": [["Hi", "Hello"]]},
    {"prompt": json.dumps([{"role": "user", "content": "Hi"}]), "completion": str([{"role": "assistant", "content": "Hello"}])},
    {"text": "Once upon a time."},
    {"message_id": "1", "parent_id": None, "role": "prompter", "text": "Hi", "prompt": "Hi", "responses": ["Yes", "No"], "ranks": [0, 1]},
    {"message_tree_id": "1", "prompt": {"message_id": "1", "text": "Hi", "role": "prompter", "replies": [{"message_id": "2", "text": "Yes", "role": "assistant", "rank": 0}]}},
    {"history": "Is tea healthy?", "human_ref_A": "Yes.", "human_ref_B": "No.", "labels": 1},
    {"context": [{"role": "user", "content": "Hi"}], "response1": "Yes", "response2": "No", "overall_preference": -2},
    {"conversation_a": [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Yes"}], "conversation_b": [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "No"}], "winner": "model_a"},
    {"prompt": '["Hi"]', "response_a": '["Yes"]', "response_b": '["No"]', "winner_model_a": 1, "winner_model_b": 0, "winner_tie": 0},
    {"info": {"post": "A text.", "title": "T"}, "summaries": [{"text": "Yes"}, {"text": "No"}], "choice": 1},
    {"info": {"article": "A text."}, "summary": {"text": "Yes", "axes": {"overall": 5}}},
    {"question": {"full_text": "Hi"}, "answer_0": "Yes", "answer_1": "No", "score_0": 0.5, "score_1": -0.5},
    {"prompt": "Hi", "answers": [{"answer": "Yes", "rank": 1}, {"answer": "No", "rank": 2}]},
    {"query": "Weather?", "answers": json.dumps([CALL["function"]]), "tools": json.dumps(TOOLS)},
    {"question": [[{"role": "user", "content": "Weather?"}]], "function": TOOLS},
    {"conversation": [{"input": "Hi", "output": "Hello"}]},
    {"question": "Which is a fish?", "choices": {"text": ["wren", "trout"], "label": ["A", "B"]}, "answerKey": "B"},
    {"ctx": "A wren is a", "endings": ["bird", "fish"], "label": 0},
    {"instruction": "Name a fish.", "input": "in one word", "output": "Trout", "kto_tag": True},
    {"prompt": "Hi", "response": "Hello", "helpfulness": 3, "correctness": 4},
)  # fmt: skip


class Loaders:
    """Files of every format in every container; what is read is converted to every record and tokenised."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.rows = [
            [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
            for path in sorted(SAMPLES.glob("*.jsonl"))
        ]
        self.rows += [[row] * 3 for row in LAYOUTS]
        self.files = [(".csv", (SAMPLES / "preference.csv").read_bytes())]
        for rows in self.rows:
            text = "".join(json.dumps(row) + "\n" for row in rows).encode()
            self.files += [(".jsonl", text), (".json", json.dumps(rows).encode()), (".jsonl.gz", gzip.compress(text))]
            with contextlib.suppress(Exception):  # rows of different types fit into no table
                buffer = io.BytesIO()
                datasets.Dataset.from_list(rows).to_parquet(buffer)
                self.files.append((".parquet", buffer.getvalue()))
        self.tokenizer = train_tokenizer(["some text"], 280)

    def make(self, rng: random.Random) -> tuple[str, bytes]:
        """An ending and the bytes of a file."""
        if rng.random() < 0.5:
            rows = [mangle(rng, row) if rng.random() < 0.5 else row for row in rng.choice(self.rows)]
            return ".jsonl", "".join(json.dumps(row) + "\n" for row in rows).encode()
        ending, data = rng.choice(self.files)
        return ending, damage(rng, data)

    def run(self, made: tuple[str, bytes]) -> None:
        """Read the file."""
        ending, data = made
        path = self.folder / f"input{ending}"
        path.write_bytes(data)
        try:
            records = load(path, drop_identical=True)
        except UserError as problem:
            assert str(path) in str(problem), f"does not name the file: {problem}"
            raise
        for convert in ("conversations", "comparisons", "judgements", "rankings", "problems"):
            with contextlib.suppress(UserError):
                getattr(records, convert)()
        for messages, first in inspection.sequences(records.examples[0]).values():
            assert inspection.tokens(self.tokenizer, messages, first)


ZEPHYR = "{% for message in messages %}\n{{ '<|' + message['role'] + '|>\n' + message['content'] + eos_token }}\n{% if loop.last and add_generation_prompt %}\n{{ '<|assistant|>' }}\n{% endif %}\n{% endfor %}"
BRACKETS = "{{ bos_token }}{% for m in messages %}{% if (m['role'] == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('roles must alternate') }}{% endif %}{% if m['role'] == 'user' %}{{ '[INST] ' + m['content'] + ' [/INST]' }}{% else %}{{ m['content'] + eos_token }}{% endif %}{% endfor %}"
HEADERS = "{% set ns = namespace(n=0) %}{%- for m in messages %}{% set ns.n = ns.n + 1 %}{{- '<h>' + m.role + '</h>\n' + m.content | trim + '<e>' }}{%- endfor %}{%- if add_generation_prompt %}{{- '<h>assistant</h>\n' }}{%- endif %}"
MACRO = "{% macro turn(m) %}{{ m['role'] ~ ': ' ~ m['content'] }}{% endmacro %}{% for m in messages %}{{ turn(m) }}{{ messages | length }}{% endfor %}{{ messages[0].content[:3] | upper }}"

#: A thought in a field of its own, tools, calls with arguments as an object, and a thought that the prompt opens or not.
THINKS = "{% if tools %}<t>{{ tools | tojson }}<e>\n{% endif %}{% for m in messages %}<h>{{ m.role }}</h>\n{% if m.role == 'assistant' %}{% if loop.last or m.reasoning_content %}<think>\n{{ (m.reasoning_content or '') | trim }}\n</think>\n\n{% endif %}{{ m.content or '' }}{% for c in m.tool_calls or [] %}\n<tool_call>{{ c.function.name }}{% for k, v in c.function.arguments.items() %} {{ k }}={{ v | tojson }}{% endfor %}</tool_call>{% endfor %}{% else %}{{ m.content }}{% endif %}<e>\n{% endfor %}{% if add_generation_prompt %}<h>assistant</h>\n{{ '<think>\n\n</think>\n\n' if enable_thinking is defined and not enable_thinking else '<think>\n' }}{% endif %}"
#: The content as parts, and two marked blocks in a turn.
PARTS = "{% for m in messages %}{{ m.role }}:{% for part in m.content %}{% if m.role == 'assistant' %}{% generation %}{{ part.text }}{% endgeneration %}{% generation %}{{ eos_token }}{% endgeneration %}{% else %}{{ part['text'] }}{% endif %}{% endfor %}\n{% endfor %}{% if add_generation_prompt %}assistant:{% endif %}"


class Templates:
    """Chat templates, most of them damaged, and conversations, some with odd messages."""

    def __init__(self, folder: Path) -> None:
        self.tokenizer = train_tokenizer(["some text"], 280)
        self.templates = [
            chat.WORDS,
            chat.TURNS,
            chat.CHATML,
            chat.TRANSCRIPT,
            chat.PLAIN,
            ZEPHYR,
            BRACKETS,
            HEADERS,
            MACRO,
            THINKS,
            PARTS,
        ]

    def make(self, rng: random.Random) -> tuple[str, list]:
        """A template and messages."""
        template = (
            damage(rng, rng.choice(self.templates).encode()).decode(errors="replace")
            if rng.random() < 0.9
            else rng.choice(self.templates)
        )
        said = [
            rng.choice(("hello", "", " ", "{{ x }}", "<eos>", "a\n\nb", "ß你", "a" * 200))
            for _ in range(rng.randint(1, 6))
        ]
        messages = chat.conversation(*said)
        if rng.random() < 0.2:
            rng.choice(messages)["role"] = rng.choice(("system", "tool", "", "assistant"))
        if rng.random() < 0.3:
            more = {"reasoning_content": "so", "tool_calls": [CALL], "tools": TOOLS, "function_calls": "look()"}
            field = rng.choice(list(more))
            rng.choice(messages)[field] = more[field]
        if rng.random() < 0.1:
            messages[0]["chat_template_kwargs"] = {"enable_thinking": rng.random() < 0.5}
        return template, messages

    def run(self, made: tuple[str, list]) -> None:
        """Encode as a prompt and as an example."""
        self.tokenizer.chat_template, messages = made
        chat.encode_prompt(self.tokenizer, messages)
        coded = chat.encode(self.tokenizer, messages)
        assert len(coded.loss_mask) == len(coded.input_ids)
        if not any(m["role"] == "assistant" for m in messages) and not rendering.MARKED.search(made[0]):
            assert not any(coded.loss_mask), "a loss without an assistant"


class Settings:
    """Files of settings and flags, for every trainer."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "settings.yaml"
        self.parser = Parser(prog="minirlhf train", allow_abbrev=False)
        train.configure(self.parser)
        self.trainers = {name: (trainer.source, trainer.config) for name, trainer in train.TRAINERS.items()}
        self.names = sorted(
            {name for pair in self.trainers.values() for cls in pair for name in cls.__dataclass_fields__}
        )
        self.values = ("1", "0", "-1", "1e-3", "true", "None", "null", "linear", "nan", "inf", "-inf", "", "9" * 5000, "1_000", "0x10", "nano", "[1]", "{}", "2001-01-01", "1:30", "\x00", "é", "~", "ⅷ", "１")  # fmt: skip

    def make(self, rng: random.Random) -> tuple[str, bytes | list[str]]:
        """A trainer, and a file or flags."""
        trainer = rng.choice(list(self.trainers))
        own = [name for cls in self.trainers[trainer] for name in cls.__dataclass_fields__]
        names = [rng.choice(own if rng.random() < 0.95 else self.names) for _ in range(rng.randint(1, 5))]
        good = ("1", "0.5", "true", "nano", "linear", "none")
        chosen = [(name, rng.choice(good if rng.random() < 0.7 else self.values)) for name in names] + [("out", "x")]
        if rng.random() < 0.6:
            text = "".join(f"{name}: {value}\n" for name, value in chosen).encode()
            return trainer, damage(rng, text) if rng.random() < 0.6 else text
        flags = [part for name, value in chosen for part in (f"--{name.replace('_', '-')}", value)]
        if rng.random() < 0.3:
            flags[rng.randrange(len(flags))] = rng.choice(
                ("--", "-", "--out=", "--seed", "", "--=", "-h5", "x", "--résumé")
            )
        return trainer, flags

    def run(self, made: tuple[str, bytes | list[str]]) -> None:
        """Build the settings that the trainer would get."""
        trainer, given = made
        if isinstance(given, bytes):
            self.path.write_bytes(given)
            try:
                values, where = read_yaml(str(self.path)), str(self.path)
            except UserError as problem:
                assert str(self.path) in str(problem), f"does not name the file: {problem}"
                raise
        else:
            args, extra = self.parser.parse_known_args([trainer, *given])
            if extra:
                raise UserError(f"unknown option {extra[0][:80]!r}")
            values, where = {k: v for k, v in vars(args).items() if k in self.names}, "the flags"
        source, config = self.trainers[trainer]
        for cls in (source, config):
            from_mapping(
                cls,
                {
                    k: v
                    for k, v in values.items()
                    if k in cls.__dataclass_fields__ or (cls is config and k not in source.__dataclass_fields__)
                },
                where,
            )


MARKS = (
    "####",
    "$",
    "\\boxed{",
    "}",
    "<think>",
    "</think>",
    "<answer>",
    "</answer>",
    "1,080",
    "3/4",
    "1e999",
    "-",
    ".",
    "%",
    "\n",
)
MARKS += (
    "```python",
    "٧",
    "你",
    "\u202e",
    "\ud800",
    "\x00",
    "nan",
    '{"min_words": 3}',
    '{"json": true}',
    "9" * 40,
    "ab " * 9,
    "(",
    "[",
)


#: Pieces of formulas, whole and broken; no towers of powers, which take all the time that a box has.
FORMULAS = (
    "x", "y", "7", "-", "+", "*", "/", "(", ")", "^2", "^{", "}", "{", "\\frac{1}{2}", "\\frac", "\\frac12", "\\sqrt{x}", "sqrt", "\\sqrt[3]{8}", "\\pi",
    "sin(x)", "\\log x", "\\text{ cm}", "\\text{not }", "\\boxed{", "$", "####", "<answer>", "</answer>", "x = ", ",", "(1, 2)", "\\{1, 2\\}",
    "[0, 1)", "1,000", "1 1/2", "\\le", "<", "\\in ", "\\cup", "\\infty", "\\pm", "\\alpha", "_1", "_", "_{12}", "!", "\\binom{5}{2}", "\\arctan 1", "\\sin^2 x",
    "\\log_2 8", "0.\\overline{3}", "...", "1e-3", " or ", " and ", "5 ft 3 in", "\\text{ hours}", "\\begin{pmatrix}1&2\\\\3&4\\end{pmatrix}", "&", "\\textbf{(A)}",
    "½", "²", "α", "∪", "i", "\\boxed 7", "\\approx", "]", "|", "\\lfloor", "⟨", "‗", "</think>", "<think>", "0.5", "\\%", "^\\circ", "\\cdot", "≤", "√", "٧", "\x00", "\ud800", "The answer is ", "squared", "e^{x}", "|x|",
)  # fmt: skip
WANTED = (
    "7",
    "-7",
    "1/2",
    "x",
    "x+1",
    "\\sqrt{8}",
    "(1, 2)",
    "\\{1, 2\\}",
    "[0, 1)",
    "\\text{even}",
    "e^{x}",
    "\\pi",
    "x > 3",
    "1, 2",
    "(A)",
    "5\\text{ cm}",
    "50\\%",
    "y = 2x",
    "\\pm 2",
    "|x|",
    "n!",
    "2i",
    "x_1",
)
#: Pieces of programs; none loops for ever.
PROGRAMS = (
    "    return 2 * x\n", "    return x + x\n", "    return 4\n", "def double(x):\n    return x * 2\n", "double = lambda x: 2 * x\n", "```python\n", "```\n",
    "    raise SystemExit(0)\n", "import os\nos._exit(0)\n", "    assert False\n", "class A:\n    pass\n", "print('4')\n", "    yield x\n", "x = 2\n", "(",
    '"""', "\\\n", "\t", "\x00", "\ud800", "    1 / 0\n", "del double\n", "open('answer', 'w').write('4')\n", "check = None\n", "async ",
)  # fmt: skip
EXAM = {
    "prompt": 'def double(x):\n    """Twice x."""\n',
    "entry_point": "double",
    "test": "def check(candidate):\n    assert candidate(2) == 4\n    assert candidate(-1) == -2\n",
}


class Graders:
    """Texts and references for every grader that needs no box; what it gives must be a number of its range."""

    names: ClassVar[list[str]] = [name for name in graders.GRADERS if name not in ("maths", "tests", "tests_share")]
    marks: ClassVar[tuple[str, ...]] = MARKS

    def __init__(self, folder: Path) -> None:
        pass

    def completion(self, rng: random.Random) -> str:
        """Some marks in a row, sometimes damaged."""
        joined = rng.choice(("", " ")).join(rng.choice(self.marks) for _ in range(rng.randint(0, 8)))
        return joined if rng.random() < 0.7 else _damaged(rng, joined)

    def reference(self, rng: random.Random) -> str:
        """What the completion is compared with."""
        return self.completion(rng)

    def make(self, rng: random.Random) -> tuple[str, str, str]:
        """The name of a grader or of a sum, seldom damaged, and two texts."""
        names = [rng.choice(self.names) + rng.choice(("", "", "*0.5")) for _ in range(rng.choice((1, 1, 2)))]
        name = "+".join(names)
        if rng.random() < 0.1:
            name = _damaged(rng, name)
        return name, self.completion(rng), self.reference(rng)

    def run(self, made: tuple[str, str, str]) -> None:
        """Grade, twice."""
        name, completion, reference = made
        grade = graders.get(name)
        value = grade(completion, reference)
        assert isinstance(value, float) and not math.isinf(value), f"{name} gave {value!r}"
        assert math.isnan(value) == math.isnan(grade("", reference)), f"{name}: NaN depends on the completion"


class Formulas(Graders):
    """Answers and references for the grader of formulas, which asks a box where both are expressions."""

    patience = 12
    names: ClassVar[list[str]] = ["maths"]
    marks: ClassVar[tuple[str, ...]] = FORMULAS

    def reference(self, rng: random.Random) -> str:
        """A formula, seldom a text like the completion's."""
        return rng.choice(WANTED) if rng.random() < 0.8 else self.completion(rng)

    def run(self, made: tuple[str, str, str]) -> None:
        """Grade; the mark is 0 or 1, and an empty reply is never paid."""
        super().run(made)
        _, completion, reference = made
        value, nothing = graders.maths(completion, reference), graders.maths("", reference)
        assert value in (0.0, 1.0) or math.isnan(value), f"maths gave {value!r}"
        assert nothing == 0.0 or math.isnan(nothing), "an empty reply is paid"


class Programs(Graders):
    """Programs and tests, damaged or not, for the graders that run them in a box."""

    patience = 12
    names: ClassVar[list[str]] = ["tests", "tests_share"]
    marks: ClassVar[tuple[str, ...]] = PROGRAMS

    def reference(self, rng: random.Random) -> str:
        """Tests of a function that doubles a number; seldom damaged, as text or as JSON."""
        how = rng.random()
        if how < 0.1:
            return _damaged(rng, json.dumps(EXAM))
        return json.dumps(mangle(rng, EXAM) if how < 0.2 else EXAM)

    def run(self, made: tuple[str, str, str]) -> None:
        """Grade; a program that does not speak of its argument does not pass."""
        super().run(made)
        _, completion, reference = made
        value = graders.tests_share(completion, reference)
        assert 0 <= value <= 1 or math.isnan(value), f"tests_share gave {value!r}"
        if reference == json.dumps(EXAM) and value == 1:
            assert "x" in completion, "passes without its argument"


def _damaged(rng: random.Random, text: str) -> str:
    return damage(rng, text.encode(errors="replace")).decode(errors="replace")


#: Pieces of calls in both forms, whole and broken.
WRITTEN = (
    '{"name": "find", "arguments": {"key": "red", "count": 2}}',
    '{"name": "find", "parameters": {"key": "red"}}',
    '{"id": "a", "type": "function", "function": {"name": "find", "arguments": "{\\"key\\": \\"red\\"}"}}',
    'find(key="red", count=2)',
    "[find('red'), find(key='blue', tags=['a', 'b'])]",
    "find(key='red')\nnow()",
    "now()",
    "find(key=",
    '{"name": "find", "arguments": {',
    "find(**{'key': 'red'})",
    "__import__('os').system('true')",
    "(" * 30,
    "[" * 300,
    "{" * 30 + ":",
    "-" * 600 + "1",
    "9**9**9",
    "1+" * 500,
    "a." * 500,
    "f" + "(x)" * 400,
    '"' * 301,
    "'''",
    "lambda: " * 200,
    "f'{" * 40,
    "not " * 300,
)
FRAMES = (
    calls.OPEN,
    calls.CLOSE,
    calls.THOUGHT,
    calls.THOUGHT_ENDS,
    "```json\n",
    "```",
    "so 4",
    " ",
    "\n",
    "<eos>",
    "",
)


class Calls:
    """Replies with calls of tools, damaged: never an exception, the same twice, and what is called can be called."""

    def __init__(self, folder: Path) -> None:
        key = {"type": "string"}
        tags = {"type": "array", "items": {"type": "string"}}
        properties = {"key": key, "count": {"type": "integer", "nullable": True}, "tags": tags}
        find = {"name": "find", "parameters": {"type": "object", "properties": properties, "required": ["key"]}}
        now = {"name": "now", "parameters": {"type": "object", "properties": {}}}
        self.schemas = [{"type": "function", "function": each} for each in (find, now)]
        self.find = find["parameters"]

    def make(self, rng: random.Random) -> str:
        """Frames and calls in any order; a JSON one may have a value replaced."""
        parts: list[str] = []
        for _ in range(rng.randint(1, 5)):
            piece = rng.choice(WRITTEN)
            if piece.endswith("}}") and rng.random() < 0.3:
                piece = json.dumps(mangle(rng, json.loads(piece)))
            parts += [rng.choice(FRAMES), piece if rng.random() < 0.8 else "", rng.choice(FRAMES)]
        text = "".join(parts)
        return damage(rng, text.encode()).decode(errors="replace") if rng.random() < 0.6 else text

    def run(self, made: str) -> None:
        """Read it, and refuse it if one of its calls cannot be made."""
        reply = calls.read_calls(made, self.schemas)
        assert reply == calls.read_calls(made, self.schemas)
        assert calls.OPEN not in reply.text, "a call is left in the text"
        odd = {
            "type": "function",
            "function": {"name": "find", "parameters": mangle(random.Random(len(made)), self.find)},
        }
        calls.read_calls(made, [odd, self.schemas[1]])  # as a server may describe its tool
        for call in reply.calls:
            if isinstance(call, calls.BadCall):
                raise UserError(call.problem)
            assert json.loads(json.dumps(call.arguments)) == call.arguments
            assert call.name in ("find", "now") and (call.name == "now") == (not call.arguments)


TARGETS: dict[str, Callable[[Path], Loaders | Templates | Settings | Graders | Calls]] = {
    "loaders": Loaders,
    "templates": Templates,
    "settings": Settings,
    "graders": Graders,
    "formulas": Formulas,
    "programs": Programs,
    "calls": Calls,
}
#: Of how many inputs in a run, where there are fewer: one of these starts up to six boxes.
SHARE = {"formulas": 0.2, "programs": 0.002}


# -- the run ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Crash:
    """An input that was neither read nor refused properly."""

    target: str
    number: int
    made: object
    problem: str


def fuzz(name: str, count: int, seed: int) -> tuple[Counter[str], list[Crash]]:
    """Try ``count`` inputs; how many were read, refused, crashed, and the crashes."""
    outcomes: Counter[str] = Counter(read=0, refused=0, crashed=0)
    crashes = []
    memory = Path("/dev/shm")  # where there is one: the files need not touch the disk
    with tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None) as folder:
        target = TARGETS[name](Path(folder))
        for number in range(count):
            made = target.make(random.Random(f"{seed} {name} {number}"))
            outcome, problem = attempt(target.run, made, getattr(target, "patience", 1))
            outcomes[outcome] += 1
            if outcome == "crashed":
                crashes.append(Crash(name, number, made, problem))
    return outcomes, crashes


def attempt(run: Callable[[object], None], made: object, patience: int = 1) -> tuple[str, str]:
    """``read``, ``refused`` or ``crashed``, and what was said; ``patience`` multiplies the time that an answer may take."""
    try:
        with limit(patience * SECONDS), contextlib.redirect_stderr(io.StringIO()):
            run(made)
    except UserError as problem:
        clear = str(problem) and "\n" not in str(problem) and len(str(problem)) < 5000
        return ("refused" if clear else "crashed"), str(problem)
    except (Exception, SystemExit) as problem:
        return "crashed", f"{type(problem).__name__}: {problem}"
    return "read", ""


@contextlib.contextmanager
def limit(seconds: int) -> Iterator[None]:
    """Raise ``TimeoutError`` in the block after so many seconds of computing, or a hundred times as many of waiting."""

    def stop(*_: object) -> None:
        raise TimeoutError(f"no answer in {seconds} s")

    before = {number: signal.signal(number, stop) for number in (signal.SIGPROF, signal.SIGALRM)}
    signal.setitimer(signal.ITIMER_PROF, seconds)  # of computing: a busy machine is no crash
    signal.alarm(100 * seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.alarm(0)
        for number, handler in before.items():
            signal.signal(number, handler)


def main() -> int:
    """Run all targets and write the evidence, or one and write nothing."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--count",
        type=int,
        default=100_000,
        help="inputs for each target; a fifth of it for formulas, a five-hundredth for programs",
    )
    parser.add_argument("--seed", type=int, default=None, help="repeats a run; else a fresh one")
    parser.add_argument("--only", choices=list(TARGETS), help="one target; no evidence is written")
    parser.add_argument(
        "--keep", action="store_true", help="with --only: run with the seed of the evidence, and renew this part of it"
    )
    parser.add_argument("--out", type=Path, default=RESULT)
    args = parser.parse_args()
    kept: dict[str, float] = {}
    if args.keep:
        [(known, kept)] = evidence.read(args.out)["seeds"].items()
        args.seed = int(known)
    seed = random.SystemRandom().randrange(2**31) if args.seed is None else args.seed
    numbers = dict(kept)
    failed = False
    start, names = time.perf_counter(), [args.only] if args.only else list(TARGETS)
    with ProcessPoolExecutor(len(names), mp_context=get_context("spawn")) as pool:
        counts = [int(args.count * SHARE.get(name, 1)) for name in names]
        results = list(pool.map(fuzz, names, counts, [seed] * len(names)))
    print(f"seed {seed}, {time.perf_counter() - start:.0f} s")
    for name, count, (outcomes, crashes) in zip(names, counts, results, strict=True):
        print(f"{name}: {count:,} inputs, {dict(outcomes)}")
        for crash in crashes[:10]:
            print(f"  input {crash.number}: {crash.problem[:300]!r}\n    {str(crash.made)[:300]!r}")
        failed |= bool(crashes)
        numbers |= {f"{name}_{outcome}": n for outcome, n in outcomes.items()}
    if (args.keep or not args.only) and not failed:
        evidence.write(args.out, {"command": "python tests/fuzz.py"}, {seed: numbers})
    return 1 if failed else 0


if __name__ == "__main__":
    raise SystemExit(main())
