"""`minirlhf evaluate spec`: rules in a file, what they say of sampled replies, what got worse, and which files are refused."""

import itertools
import json
from pathlib import Path

import pytest
import torch
from facts import raises

from minirlhf.core.errors import UserError
from minirlhf.core.statistics import holm, sign_flips, sign_test
from minirlhf.data.chat import conversation
from minirlhf.data.records import Problem
from minirlhf.data.tasks.assistant import ASSISTANT
from minirlhf.models import checkpoints
from minirlhf.models.tiny import tiny_model
from minirlhf.models.tokenizers import word_tokenizer
from minirlhf.trainers.evaluation import wilson_interval
from minirlhf_cli import dispatch
from minirlhf_cli.files.measure import Measurement, ModelPair
from minirlhf_cli.files.specification import RuleResult, RulesRequest, Specification, SpecRule, check
from minirlhf_cli.settings import read_yaml

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


def test_spec_must_that_fails_returns_1_and_names_rule(place):
    file, out = written(place, RULES), place / "found.json"
    assert (
        dispatch(
            ["evaluate", "spec", file, str(place / "m1"), "--json", str(out), "--report", str(place / "page.html")]
        )
        == 1
    )
    found = json.loads(out.read_text())
    assert found["stops"] == ["never barks"]
    six, barks, never = found["rules"]
    assert (six["must"], six["verdict"], six["kept"]["value"]) == (0.5, "holds", 1.0)
    assert barks["should"] == 0.9 and never["kept"]["value"] < 1
    assert six["kept"]["low"] == pytest.approx(wilson_interval(10, 10)[0]), "ten prompts, whatever is drawn of each"
    page = (place / "page.html").read_text()
    assert "never barks" in page and "http" not in page.split("</style>")[1]


def test_spec_against_compares_on_same_prompts_and_random_numbers(place):
    file = written(place, RULES)
    found, digests = _checked(_read(file, place), place)
    chances = []
    for held in found:
        alone = _checked(_only(file, place, held.clause.name), place)[0][0]
        assert alone.rate == held.rate
        assert (alone.change.better, alone.change.worse) == (held.change.better, held.change.worse)
        assert 0 < alone.change.p_value <= 1
        chances.append(alone.change.p_value)
    assert [held.change.p_value for held in found] == holm(chances)
    before = digests[str(place / "rules.py")]
    assert len(digests) == 5
    with (place / "rules.py").open("a") as rules:
        rules.write("# another grader\n")
    assert _checked(_only(file, place, "barks"), place)[1][str(place / "rules.py")] != before
    with raises(UserError, argument="--baseline-model", value="a"):
        dispatch(["evaluate", "spec", file, "a", "--baseline-model", "a"])


def _read(file, place):
    return Specification.of(read_yaml(file), place / "rules.yaml")


def _checked(spec, place):
    request = RulesRequest(model=str(place / "m1"), seed=3, **spec.settings)
    return check(spec, request, against=str(place / "m2"))


def _only(file, place, name):
    spec = _read(file, place)
    return Specification(spec.where, tuple(c for c in spec.clauses if c.name == name), spec.settings)


def held(value, low, high, *, level="must", bar=0.9, better=0, worse=0, chance=1.0, ungraded=0):
    clause = SpecRule("r", level, bar, "d", grader="exact")
    change = ModelPair("a", "b", Measurement("a − b", (better - worse) / 100, -0.2, 0.2), better, worse, chance)
    return RuleResult(clause, Measurement("kept", value, low, high), ungraded, (), change)


@pytest.mark.slow
def test_spec_of_linked_run_and_checkpoints_repeats(place, tmp_path, capsys):
    """As chapter 22 prints it: a new run leaves the old one alone, a link says which is served, the last two checkpoints can be named."""
    rules, old, new, served = written(place, RULES), place / "m1", tmp_path / "new", tmp_path / "served"
    pairs = str(Path(__file__).parent / "samples" / "preference.jsonl")
    files = {path: path.read_bytes() for path in old.rglob("*") if path.is_file()}
    told = lambda model: (
        dispatch(["evaluate", "spec", rules, str(model)]),
        capsys.readouterr().out.replace(str(model), ""),
    )
    before = told(old)
    given = ["--data", pairs, "--model", "nano", "--max-steps", "3", "--save-steps", "1", "--out", str(new)]
    assert dispatch(["train", "dpo", *given]) == 0
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
    with raises(UserError, file=str(weights.parent)):
        dispatch(["evaluate", "spec", rules, str(weights.parent)])


def test_spec_check_shows_reply_that_breaks_rule(place, monkeypatch):
    """The first two replies to each prompt keep it, the third does not."""
    drawn = []

    def keeps(self, problems, completions, seconds, thoughts):
        drawn.extend(completions)
        return torch.tensor([[1.0, 1.0, 0.0]] * len(problems), dtype=torch.float64)

    monkeypatch.setattr(SpecRule, "complies", keeps)
    [held], _ = check(
        _only(written(place, RULES), place, "never barks"),
        RulesRequest(model=str(place / "m1"), num_generations=3, max_completion_length=6),
    )
    assert [text for _, text in held.broken] == [texts[2] for texts in drawn[: len(held.broken)]] and held.broken


def test_spec_verdict_is_about_whole_interval():
    assert held(0.95, 0.91, 0.98).verdict == "holds" and not held(0.95, 0.91, 0.98).blocks_release
    assert held(0.95, 0.89, 0.98).verdict == "open" and held(0.95, 0.89, 0.98).blocks_release
    assert held(0.7, 0.6, 0.8).verdict == "fails"
    assert not held(0.7, 0.6, 0.8, level="should").blocks_release


def test_spec_must_that_got_worse_stops():
    assert held(0.95, 0.92, 0.98, better=1, worse=15, chance=0.001).blocks_release
    assert not held(0.95, 0.92, 0.98, better=15, worse=1, chance=0.001).regressed
    assert not held(0.95, 0.92, 0.98, better=3, worse=5, chance=0.7).blocks_release


def test_sign_flips_equals_enumeration_of_signs():
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


def test_sign_flips_keeps_level_where_sign_test_does_not():
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


def test_spec_must_with_ungraded_reply_stops():
    assert held(0.95, 0.92, 0.98, ungraded=1).blocks_release and held(0.95, 0.92, 0.98, ungraded=1).verdict == "holds"
    assert not held(0.95, 0.92, 0.98, level="should", ungraded=1).blocks_release


def test_spec_grader_that_crashes_returns_1(place):
    (place / "half.py").write_text(
        "def half(completion):\n    if 'bark' in completion:\n        raise ValueError('no')\n    return 1\n"
    )
    file = written(
        place,
        RULES.replace("{should: 0.9, grader: rules.py:barks, data: few.jsonl}", "{must: 0.1, grader: half.py:half}"),
    )
    out = place / "crashed.json"
    assert dispatch(["evaluate", "spec", file, str(place / "m1"), "--json", str(out)]) == 1
    found = json.loads(out.read_text())
    assert found["stops"] == ["barks", "never barks"] and found["rules"][1]["not graded"] > 0


def test_spec_example_is_specification_of_assistant(tmp_path):
    folder = Path(__file__).parents[1] / "examples" / "specification"
    words = word_tokenizer(ASSISTANT.words)
    checkpoints.save(tmp_path / "m", model=tiny_model("nano", words, seed=1), tokenizer=words)
    rows = [json.loads(line)["prompt"] for line in (folder / "prompts.jsonl").read_text().splitlines()]
    assert [content["content"] for [content] in rows] == ASSISTANT.prompts("test")
    assert (
        dispatch(
            [
                "evaluate",
                "spec",
                str(folder / "rules.yaml"),
                str(tmp_path / "m"),
                "--json",
                str(tmp_path / "found.json"),
            ]
        )
        == 1
    )
    found = {rule["rule"]: rule for rule in json.loads((tmp_path / "found.json").read_text())["rules"]}
    assert found["answers the question"]["verdict"] == "fails", "a model that was never trained"
    assert all(rule["not graded"] == 0 for rule in found.values()) and len(found) == 5


def test_spec_clause_keeps_only_replies_with_all_constraints(place):
    clause = SpecRule.of("r", {"must": 0.9, "constraints": {"max_words": 2, "keywords": ["bee"]}}, "d", "f", place)
    problems = [Problem(conversation("say")), Problem(conversation("ask"))]
    kept = clause.complies(problems, [["bee", "bee bee bee"], ["ant", "a bee"]], 10.0)
    torch.testing.assert_close(kept, torch.tensor([[1.0, 0.0], [0.0, 1.0]], dtype=torch.float64))


DATA = "data: prompts.jsonl\n"


@pytest.mark.parametrize(
    ("text", "facts"),
    [
        (DATA, {"argument": "rules", "problem": "missing"}),
        (f"{DATA}rules: [a]", {"argument": "rules", "problem": "missing"}),
        (f"{DATA}rules: {{a: 3}}", {"value": 3, "expected": dict}),
        (f"{DATA}rules: {{a: {{must: 0.9, shoud: 1, grader: exact}}}}", {"value": "shoud", "expected": "should"}),
        (
            f"{DATA}rules: {{a: {{must: 0.9, should: 0.8, grader: exact}}}}",
            {"argument": "must", "value": ["must", "should"]},
        ),
        (f"{DATA}rules: {{a: {{must: 0.9}}}}", {"argument": "grader", "value": []}),
        (f"{DATA}rules: {{a: {{must: 95, grader: exact}}}}", {"argument": "must", "value": 95}),
        (f"{DATA}rules: {{a: {{must: 1, grader: exact}}}}", {"argument": "must", "value": 1}),
        (f"{DATA}rules: {{a: {{must: true, grader: exact}}}}", {"argument": "must", "value": True}),
        (f"{DATA}rules:\n  a: {{must: 0.9, grader: exact}}\n  a: {{should: 0.1, grader: exact}}", {"line": 4}),
        ("rules: {a: {must: 0.9, grader: exact}}", {"argument": "data", "problem": "missing"}),
        (f"{DATA}rules: {{a: {{must: 0.9, grader: 3}}}}", {"argument": "grader", "value": 3}),
        (f"{DATA}rules: {{a: {{must: 0.9, constraints: 3}}}}", {"argument": "constraints", "value": 3}),
        (f"{DATA}rules: {{a: {{must: 0.9, grader: exat}}}}", {"value": "exat", "expected": "exact"}),
        (f"{DATA}rules: {{a: {{must: 0.9, grader: rules.py:bark}}}}", {"expected": "barks"}),
        (f"{DATA}rules: {{a: {{must: 0.9, grader: rules.py:fails}}}}", {"problem": "not graded"}),
        (f"{DATA}rules: {{a: {{must: 0.9, constraints: {{max_wrds: 3}}}}}}", {"expected": "max_words"}),
        (f"{DATA}rules: {{a: {{must: 0.9, constraints: {{max_words: -3}}}}}}", {"argument": "max_words", "value": -3}),
        (f"{DATA}rules: {{a: {{must: 0.9, constraints: {{forbidden: bee}}}}}}", {"argument": "forbidden"}),
        (f"{DATA}num_generation: 3\nrules: {{a: {{must: 0.9, grader: exact}}}}", {"expected": "num_generations"}),
        (f"{DATA}num_generations: many\nrules: {{a: {{must: 0.9, grader: think}}}}", {"argument": "num_generations"}),
    ],
)
def test_spec_bad_file_raises_user_error(place, text, facts):
    file = written(place, text, "bad.yaml")
    with raises(UserError, **facts) as caught:
        dispatch(["evaluate", "spec", file, str(place / "m1")])
    assert len(str(caught.value).splitlines()) == 1


def test_spec_without_must_returns_0(place, capsys):
    rules = "{short: {should: 0.125, constraints: {max_words: 9}}}"
    file = written(place, f"data: few.jsonl\nmax_completion_length: 3\nrules: {rules}", "should.yaml")
    assert dispatch(["evaluate", "spec", file, str(place / "m1")]) == 0
    assert "0.125" in capsys.readouterr().out
