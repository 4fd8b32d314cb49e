"""`minirlhf spec`: rules in a file, what they say of sampled replies, what got worse, and which file is refused with which words."""

import itertools
import json
from pathlib import Path

import pytest
import torch

from minirlhf.cli import main
from minirlhf.core.errors import UserError
from minirlhf.core.statistics import holm, sign_flips, sign_test
from minirlhf.data.chat import conversation
from minirlhf.data.records import Problem
from minirlhf.data.tasks.assistant import ASSISTANT
from minirlhf.models import checkpoints
from minirlhf.models.tiny import tiny_model
from minirlhf.models.tokenizers import word_tokenizer
from minirlhf.stages.measure import ModelPair, Number
from minirlhf.stages.specification import Clause, Held, RulesRequest, Specification, check
from minirlhf.trainers.evaluation import wilson_interval

WORDS = word_tokenizer(("say", "ask", "cats", "dogs", "bees", "purr", "bark", "buzz"))


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """Two untrained models, prompts, and a grader of one's own."""
    folder = tmp_path_factory.mktemp("spec")
    for seed in (1, 2):
        model = tiny_model("nano", WORDS, seed=seed)
        checkpoints.save(folder / f"m{seed}", model=model, tokenizer=WORDS)
    rows = [
        {"prompt": [{"role": "user", "content": f"{a} {b}"}]}
        for a in ("say", "ask")
        for b in ("cats", "dogs", "bees", "purr", "bark")
    ]
    (folder / "prompts.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (folder / "few.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows[:3]))
    (folder / "rules.py").write_text(
        "def barks(completion):\n    return 'bark' in completion.split()\n\ndef fails(completion):\n    raise ValueError('no')\n"
    )
    return folder


def written(place, text, name="rules.yaml"):
    (place / name).write_text(text)
    return str(place / name)


RULES = """
data: prompts.jsonl
num_generations: 3
max_completion_length: 6
rules:
  six words: {must: 0.5, constraints: {max_words: 6}}
  barks: {should: 0.9, grader: rules.py:barks, data: few.jsonl}
  never barks: {must: 0.99, constraints: {forbidden: [bark]}}
"""


def test_each_rule_is_checked_on_its_own_prompts_and_a_must_that_does_not_hold_is_status_1(place, capsys):
    file, out = written(place, RULES), place / "found.json"
    assert main(["spec", file, str(place / "m1"), "--json", str(out), "--report", str(place / "page.html")]) == 1
    printed = capsys.readouterr().out
    assert "not fit to ship: never barks" in printed
    found = json.loads(out.read_text())
    assert found["stops"] == ["never barks"]
    six, barks, never = found["rules"]
    assert (six["must"], six["verdict"], six["kept"]["value"]) == (0.5, "holds", 1.0)
    assert barks["should"] == 0.9 and never["kept"]["value"] < 1
    assert six["kept"]["low"] == pytest.approx(wilson_interval(10, 10)[0]), "ten prompts, whatever is drawn of each"
    page = (place / "page.html").read_text()
    assert "not fit to ship" in page and "must: never barks" in page and "http" not in page.split("</style>")[1]


def test_a_model_is_compared_on_the_same_prompts_with_the_same_random_numbers(place, capsys):
    file = written(place, RULES)
    found, digests = _checked(_read(file, place), place)
    chances = []
    for held in found:
        alone = _checked(_only(file, place, held.clause.name), place)[0][0]
        assert (alone.rate, alone.change.better, alone.change.worse) == (
            held.rate,
            held.change.better,
            held.change.worse,
        )
        assert 0 < alone.change.chance <= 1
        chances.append(alone.change.chance)
    assert [held.change.chance for held in found] == holm(chances)
    before = digests[str(place / "rules.py")]
    assert len(digests) == 5
    with (place / "rules.py").open("a") as rules:
        rules.write("# another grader\n")
    assert _checked(_only(file, place, "barks"), place)[1][str(place / "rules.py")] != before
    with pytest.raises(UserError, match="the model itself"):
        _refused(["spec", file, "a", "--against", "a"])
    capsys.readouterr()


def _refused(argv):
    from minirlhf.cli import dispatch

    return dispatch(argv)


def _read(file, place):
    from minirlhf.cli.settings import read_yaml

    return Specification.of(read_yaml(file), place / "rules.yaml")


def _checked(spec, place):
    asked = RulesRequest(model=str(place / "m1"), seed=3, **spec.asked)
    return check(spec, asked, against=str(place / "m2"))


def _only(file, place, name):
    spec = _read(file, place)
    return Specification(spec.where, tuple(c for c in spec.clauses if c.name == name), spec.asked)


def held(value, low, high, *, level="must", bar=0.9, better=0, worse=0, chance=1.0, ungraded=0):
    clause = Clause("r", level, bar, "d", grader="exact")
    change = ModelPair("a", "b", Number("a − b", (better - worse) / 100, -0.2, 0.2), better, worse, chance)
    return Held(clause, Number("kept", value, low, high), ungraded, (), change)


@pytest.mark.slow
def test_the_way_back_is_a_link_and_what_it_leads_to_is_what_was_written(place, tmp_path, capsys):
    """As chapter 22 prints it: a new run leaves the old one alone, a link says which is served, the last two checkpoints can be named."""
    rules, old, new, served = written(place, RULES), place / "m1", tmp_path / "new", tmp_path / "served"
    pairs = str(Path(__file__).parent / "samples" / "preference.jsonl")
    files = {path: path.read_bytes() for path in old.rglob("*") if path.is_file()}
    before, told = (
        [],
        lambda model: (main(["spec", rules, str(model)]), capsys.readouterr().out.replace(str(model), "")),
    )
    before = told(old)
    given = ["--data", pairs, "--model", "nano", "--max-steps", "3", "--save-steps", "1", "--out", str(new)]
    assert main(["train", "dpo", *given]) == 0
    assert checkpoints.steps(new) == [2, 3]
    capsys.readouterr()
    at_step, at_end = (told(where) for where in (new / "checkpoints" / "step-000003", new))
    assert at_step == at_end != before
    served.symlink_to(new)
    assert told(served) == at_end
    served.unlink()
    served.symlink_to(old)
    assert told(served) == before and {path: path.read_bytes() for path in files} == files
    weights = new / "checkpoints" / "step-000002" / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1] + b"!")
    assert main(["spec", rules, str(weights.parent)]) == 2
    assert "damaged checkpoint" in capsys.readouterr().err


def test_a_reply_that_breaks_a_rule_is_shown_whichever_of_a_prompts_replies_it_is(place, monkeypatch):
    """The first two replies to each prompt keep it, the third does not."""
    drawn = []

    def keeps(self, problems, completions, seconds):
        drawn.extend(completions)
        return torch.tensor([[1.0, 1.0, 0.0]] * len(problems), dtype=torch.float64)

    monkeypatch.setattr(Clause, "keeps", keeps)
    [held], _ = check(
        _only(written(place, RULES), place, "never barks"),
        RulesRequest(model=str(place / "m1"), num_generations=3, max_completion_length=6),
    )
    assert [text for _, text in held.broken] == [texts[2] for texts in drawn[: len(held.broken)]] and held.broken


def test_a_verdict_is_about_the_whole_interval():
    assert held(0.95, 0.91, 0.98).verdict == "holds" and not held(0.95, 0.91, 0.98).stops
    assert held(0.95, 0.89, 0.98).verdict == "open" and held(0.95, 0.89, 0.98).stops
    assert held(0.7, 0.6, 0.8).verdict == "fails"
    assert not held(0.7, 0.6, 0.8, level="should").stops


def test_a_must_that_got_worse_stops_although_it_holds():
    assert held(0.95, 0.92, 0.98, better=1, worse=15, chance=0.001).stops
    assert not held(0.95, 0.92, 0.98, better=15, worse=1, chance=0.001).worse
    assert not held(0.95, 0.92, 0.98, better=3, worse=5, chance=0.7).stops


def test_the_share_of_replies_decides_and_not_how_many_prompts_lost_a_little():
    """With four replies to a prompt many may lose one, and few win so many that more replies keep the rule."""
    for lost, won in ((0, 0), (8, 0), (7, 3), (30, 41)):
        some = [-1.0] * lost + [1.0] * won + [0.0] * 20
        assert sign_flips(some) == pytest.approx(sign_test(won, lost), abs=1e-12)
    of_alike = [[-0.25, 0.5, 0.75, -1.0, 1 / 3, 0.0]]
    of_alike += [[k / replies for k in (-3, 1, 2, -1, 3, 1, 2, 3, -2, 2)] for replies in (9, 11, 16, 32)]
    for values in of_alike:
        sums = [
            abs(sum(s * x for s, x in zip(signs, values, strict=True)))
            for signs in itertools.product((1, -1), repeat=len(values))
        ]
        wanted = sum(x >= abs(sum(values)) - 1e-9 for x in sums) / len(sums)
        assert sign_flips(values) == pytest.approx(wanted, abs=1e-12)
    for parts in ([-3, 1, 2, -1, 3, 1, 2, 3, -2, 2], [300, -100, 200, 100, -300, 200, 100, 100, 300, -100]):
        for replies in (907, 977, 1009, 1103):  # on no grid: rounding must not break a tie in favour of a small p
            sums = [abs(sum(s * x for s, x in zip(signs, parts, strict=True))) for signs in itertools.product((1, -1), repeat=10)]  # fmt: skip
            wanted = sum(x >= abs(sum(parts)) for x in sums) / len(sums)
            found = sign_flips([x / replies for x in [*parts, *[0] * 500]])  # what does not differ costs nothing
            assert found >= wanted - 1e-12 and (max(parts) == 3 or found <= wanted + 0.001)
    assert 0 <= sign_flips([1.0] * 300) < 1e-12
    many = [-0.25] * 40 + [1.0] * 12  # 10 replies in four lost, 12 won
    assert sign_test(12, 40) < 0.001 and sign_flips(many) > 0.5
    assert sign_flips([-x for x in many]) == sign_flips(many) and sign_flips([]) == 1


def test_a_rule_that_as_many_replies_keep_turns_red_in_few_of_many_pairs():
    """One model keeps it in .9 of the replies to 112 prompts and in .1 to 16, the other in .8 to all."""
    draws = torch.Generator().manual_seed(0)
    chance = torch.tensor([0.9] * 112 + [0.1] * 16)
    red = by_signs = 0
    for _ in range(400):
        old, new = (
            torch.binomial(torch.full((128,), 4.0), p, generator=draws) / 4 for p in (chance, torch.full((128,), 0.8))
        )
        apart = new - old
        red += float(apart.mean()) < 0 and sign_flips(apart.tolist()) < 0.05
        by_signs += sign_test(int((apart > 0).sum()), int((apart < 0).sum())) < 0.05
    assert red < 400 * 0.05 and by_signs > 400 * 0.15


def test_a_must_stops_where_a_reply_could_not_be_graded():
    assert held(0.95, 0.92, 0.98, ungraded=1).stops and held(0.95, 0.92, 0.98, ungraded=1).verdict == "holds"
    assert not held(0.95, 0.92, 0.98, level="should", ungraded=1).stops


def test_a_grader_that_crashes_on_some_replies_stops_a_release(place, capsys):
    (place / "half.py").write_text(
        "def half(completion):\n    if 'bark' in completion:\n        raise ValueError('no')\n    return 1\n"
    )
    file = written(
        place,
        RULES.replace("{should: 0.9, grader: rules.py:barks, data: few.jsonl}", "{must: 0.1, grader: half.py:half}"),
    )
    assert main(["spec", file, str(place / "m1")]) == 1
    printed = capsys.readouterr().out
    assert "replies not graded" in printed and "not fit to ship: barks; never barks" in printed


def test_the_example_is_a_specification_of_the_assistant(tmp_path, capsys):
    folder = Path(__file__).parents[1] / "examples" / "specification"
    words = word_tokenizer(ASSISTANT.words)
    checkpoints.save(tmp_path / "m", model=tiny_model("nano", words, seed=1), tokenizer=words)
    rows = [json.loads(line)["prompt"] for line in (folder / "prompts.jsonl").read_text().splitlines()]
    assert [content["content"] for [content] in rows] == ASSISTANT.prompts("test")
    assert main(["spec", str(folder / "rules.yaml"), str(tmp_path / "m"), "--json", str(tmp_path / "found.json")]) == 1
    capsys.readouterr()
    found = {rule["rule"]: rule for rule in json.loads((tmp_path / "found.json").read_text())["rules"]}
    assert found["answers the question"]["verdict"] == "fails", "a model that was never trained"
    assert all(rule["not graded"] == 0 for rule in found.values()) and len(found) == 5


def test_half_of_the_constraints_is_not_the_rule(place):
    clause = Clause.of("r", {"must": 0.9, "constraints": {"max_words": 2, "keywords": ["bee"]}}, "d", "f", place)
    problems = [Problem(conversation("say")), Problem(conversation("ask"))]
    kept = clause.keeps(problems, [["bee", "bee bee bee"], ["ant", "a bee"]], 10.0)
    torch.testing.assert_close(kept, torch.tensor([[1.0, 0.0], [0.0, 1.0]], dtype=torch.float64))


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("data: prompts.jsonl", "no rules"),
        ("data: prompts.jsonl\nrules: [a]", "no rules"),
        ("data: prompts.jsonl\nrules: {a: 3}", "holds 3; expected settings"),
        ("data: prompts.jsonl\nrules: {a: {must: 0.9, shoud: 1, grader: exact}}", "did you mean 'should'"),
        ("data: prompts.jsonl\nrules: {a: {must: 0.9, should: 0.8, grader: exact}}", "says must and should"),
        ("data: prompts.jsonl\nrules: {a: {must: 0.9}}", "says neither; expected either grader or constraints"),
        ("data: prompts.jsonl\nrules: {a: {must: 95, grader: exact}}", "between 0 and 1"),
        ("data: prompts.jsonl\nrules: {a: {must: 1, grader: exact}}", "no number of replies shows that every reply keeps it"),
        ("data: prompts.jsonl\nrules: {a: {must: true, grader: exact}}", "between 0 and 1"),
        ("data: prompts.jsonl\nrules:\n  a: {must: 0.9, grader: exact}\n  a: {should: 0.1, grader: exact}", "line 4: not YAML ('a' stands twice)"),
        ("data: prompts.jsonl\nrules: {a: {must: 0.9, must: 0.1, grader: exact}}", "'must' stands twice"),
        ("rules: {a: {must: 0.9, grader: exact}}", "no prompts"),
        ("data: prompts.jsonl\nrules: {a: {must: 0.9, grader: 3}}", "expected a name"),
        ("data: prompts.jsonl\nrules: {a: {must: 0.9, constraints: 3}}", "expected an object"),
        ("data: prompts.jsonl\nrules: {a: {must: 0.9, grader: exat}}", "did you mean 'exact'"),
        ("data: prompts.jsonl\nrules: {a: {must: 0.9, grader: rules.py:bark}}", "did you mean 'barks'"),
        ("data: prompts.jsonl\nrules: {a: {must: 0.9, grader: rules.py:fails}}", "none of the replies could be graded"),
        ("data: prompts.jsonl\nrules: {a: {must: 0.9, constraints: {max_wrds: 3}}}", "did you mean 'max_words'"),
        ("data: prompts.jsonl\nrules: {a: {must: 0.9, constraints: {max_words: -3}}}", "max_words -3; expected a count"),
        ("data: prompts.jsonl\nrules: {a: {must: 0.9, constraints: {forbidden: bee}}}", "forbidden 'bee'; expected a count"),
        ("data: prompts.jsonl\nnum_generation: 3\nrules: {a: {must: 0.9, grader: exact}}", "did you mean 'num_generations'"),
        ("data: prompts.jsonl\nnum_generations: many\nrules: {a: {must: 0.9, grader: think}}", "num_generations"),
    ],
)  # fmt: skip
def test_a_file_that_is_no_specification_is_one_line_that_says_so(place, text, complaint, capsys):
    file = written(place, text, "bad.yaml")
    assert main(["spec", file, str(place / "m1")]) == 2
    said = capsys.readouterr().err
    assert complaint in said and len(said.strip().splitlines()) == 1


def test_a_specification_without_a_must_says_that_nothing_can_stop_a_release(place, capsys):
    file = written(place, "data: few.jsonl\nmax_completion_length: 3\nrules: {short: {should: 0.125, constraints: {max_words: 9}}}", "should.yaml")  # fmt: skip
    assert main(["spec", file, str(place / "m1")]) == 0
    said = capsys.readouterr().out
    assert "no rule is a must" in said and "asked for 0.125" in said
