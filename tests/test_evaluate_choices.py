"""`minirlhf evaluate`: answers to choose from, and replies that vote; each against its definition, and bad input."""

import itertools
import json
import math
import random
import re
import string
from dataclasses import replace

import pytest
import torch
from facts import raises

from minirlhf.core.errors import UserError
from minirlhf.data import loaders
from minirlhf.data.chat import conversation, encode
from minirlhf.data.records import Problem
from minirlhf.feedback import graders
from minirlhf.models import checkpoints
from minirlhf.models.sampling import Sampling
from minirlhf.models.tiny import tiny_model
from minirlhf.models.tokenizers import word_tokenizer
from minirlhf_cli import dispatch
from minirlhf_cli.files.choices import WAYS, choose
from minirlhf_cli.files.measure import (
    SampledCompletions,
    as_json,
    chosen,
    compare,
    majorities,
    measure,
    sample_completions,
)
from minirlhf_cli.files.tasks import EvaluationRequest

SAID = ("cats", "dogs", "birds", "purr", "élan")
LETTERED = word_tokenizer([*SAID, "say", *(f"{letter}." for letter in "ABCD"), *"ABCD"])
MODEL, OTHER = (tiny_model("nano", LETTERED, seed=seed).eval() for seed in (0, 1))


def problems(seed, count=12):
    """Answers of one to three words."""
    rng = random.Random(seed)
    everything = [" ".join(words) for size in (1, 2, 3) for words in itertools.product(SAID, repeat=size)]
    found = []
    for _ in range(count):
        listed = tuple(rng.sample(everything, rng.choice((2, 3, 4))))
        found.append(Problem(conversation(f"say {rng.choice(SAID)}"), rng.choice(listed), choices=listed))
    return found


def likelihood(model, prompt, reply):
    """Of the reply and its end: one plain pass, one row, token by token."""
    tokens = encode(LETTERED, [*prompt, {"role": "assistant", "content": reply}], first_turn=len(prompt))
    with torch.no_grad():
        logps = model(input_ids=torch.tensor([tokens.input_ids])).logits[0].double().log_softmax(-1)
    return sum(float(logps[t - 1, tokens.input_ids[t]]) for t, marked in enumerate(tokens.loss_mask) if marked)


def scores_of(model, problem, way):
    [asked] = problem.prompt
    if way == "letter":
        letters = string.ascii_uppercase[: len(problem.choices)]
        lines = [f"{letter}. {choice}" for letter, choice in zip(letters, problem.choices, strict=True)]
        prompt = conversation("\n".join([asked["content"], *lines]))
        return [likelihood(model, prompt, letter) for letter in letters]
    scores = [likelihood(model, problem.prompt, choice) for choice in problem.choices]
    if way == "pmi":
        return [s - likelihood(model, conversation(""), c) for s, c in zip(scores, problem.choices, strict=True)]
    sizes = {
        "sum": lambda text: 1, "token": lambda text: len(text.split()) + 1, "character": len, "byte": lambda text: len(text.encode()),
    }  # fmt: skip
    return [s / sizes[way](c) for s, c in zip(scores, problem.choices, strict=True)]


# -- answers to choose from ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("way", WAYS)
def test_choose_picks_largest_score_of_every_way(way, suite_seed):
    asked = problems(suite_seed)
    found = choose(MODEL, LETTERED, asked, batch_size=7)
    for problem, picked, right in zip(asked, found.picked, found.right[way].tolist(), strict=True):
        scores = scores_of(MODEL, problem, way)
        assert scores[problem.choices.index(picked[way])] == pytest.approx(max(scores), abs=1e-4)
        assert right == float(picked[way] == problem.reference)


def test_choose_ways_differ():
    """Else the test before would see no difference between them."""
    found = choose(MODEL, LETTERED, problems(1, 300))
    for one, other in itertools.combinations(WAYS, 2):
        assert any(picked[one] != picked[other] for picked in found.picked), (one, other)


def test_choose_is_independent_of_batch_size():
    asked = problems(2)
    assert choose(MODEL, LETTERED, asked, batch_size=1).picked == choose(MODEL, LETTERED, asked, batch_size=64).picked


def test_choose_shares_credit_of_tie():
    """To a model without a preference answers of one length are alike."""
    flat = tiny_model("nano", LETTERED, seed=0).eval()
    with torch.no_grad():
        [parameter.zero_() for parameter in flat.parameters()]
    asked = [
        Problem(conversation("say cats"), "cats", choices=("dogs", "cats", "birds")),
        Problem(conversation("say cats"), "cats dogs", choices=("cats dogs", "cats")),
    ]
    found = choose(flat, LETTERED, asked)
    assert found.right["sum"].tolist() == pytest.approx([1 / 3, 0.0])
    assert found.right["letter"].tolist() == pytest.approx([1 / 3, 1 / 2])
    assert found.tokens.tolist() == [2, 2]


def test_chosen_is_measured_by_way_and_compared_in_pairs():
    asked = problems(3, 40)
    ours, theirs = (chosen(choose(model, LETTERED, asked), asked, by="pmi") for model in (MODEL, OTHER))
    numbers = as_json(measure(ours))
    assert list(numbers) == ["accuracy (pmi)", *(f"accuracy ({way})" for way in WAYS if way != "pmi")]
    assert numbers["accuracy (pmi)"]["value"] == pytest.approx(float(ours.rewards.mean()))
    assert all(0 <= n["low"] < n["value"] < n["high"] <= 1 for n in numbers.values())
    [pair] = compare({"a": ours, "b": theirs})
    assert pair.difference.value == pytest.approx(float((ours.rewards - theirs.rewards).mean()))


def test_chosen_in_clusters_has_wider_interval():
    """Each problem five times, as one cluster: five times the items, and no more is known."""
    alone = [problem for problem in problems(4, 10) for _ in range(5)]
    asked = [replace(p, cluster=f"{p.prompt} {p.choices}") for p in alone]
    many, few = (
        as_json(measure(chosen(choose(MODEL, LETTERED, some), some, by="sum")))["accuracy (sum)"]
        for some in (alone, asked)
    )
    assert few["value"] == many["value"] and few["high"] - few["low"] > 1.5 * (many["high"] - many["low"])


def test_choose_leaves_out_letters_that_are_one_token():
    plain = word_tokenizer([*SAID, "say"])
    model, asked = tiny_model("nano", plain, seed=0).eval(), problems(5)
    found = choose(model, plain, asked)
    assert set(found.right) == set(WAYS) - {"letter"}
    with raises(UserError, argument="--scoring", value="letter"):
        chosen(found, asked, by="letter")
    blind = [Problem(conversation("say cats"), "lions", choices=("cats", "lions", "tigers"))]
    with raises(UserError, argument="choices", problem="duplicate"):
        choose(model, plain, blind)


def test_choose_longest_answer_fits_and_one_token_more_raises_user_error():
    plain = word_tokenizer([*SAID, "say"])  # without letters, whose questions list all answers
    model = tiny_model("nano", plain, seed=0).eval()
    room = model.config.max_position_embeddings - len(encode(plain, conversation("say cats", "dogs"), first_turn=1)) + 1
    asked = lambda size: [Problem(conversation("say cats"), "cats", choices=("cats", " ".join(["dogs"] * size)))]
    assert choose(model, plain, asked(room)).picked[0]["sum"] == "cats"
    context = model.config.max_position_embeddings
    with raises(UserError, argument="choices", value=context + 1, expected=context):
        choose(model, plain, asked(room + 1))


# -- rows with choices ---------------------------------------------------------------------------------------------


def row(**fields):
    return {"prompt": "say cats", "choices": ["cats", "dogs", "2"], "answer": "cats", **fields}


def read(folder, *rows, **how):
    (folder / "d.jsonl").write_text("".join(json.dumps(one) + "\n" for one in rows))
    return loaders.load(folder / "d.jsonl", choices="choices", **how)


@pytest.mark.parametrize(
    ("answer", "meant"), [("dogs", "dogs"), (1, "dogs"), (0, "cats"), ("B", "dogs"), ("C", "2"), ("2", "2"), (2, "2")]
)
def test_loaders_read_right_choice_by_text_number_or_letter(answer, meant, tmp_path):
    records = read(tmp_path, row(answer=answer))
    [problem] = records.problems()
    assert problem.reference == meant and problem.choices == ("cats", "dogs", "2") and records.ignored == ()


@pytest.mark.parametrize(
    ("fields", "facts"),
    [
        ({"choices": None}, {"argument": "choices", "value": None}),
        ({"choices": {"text": ["cats"]}}, {"argument": "choices", "value": {"text": ["cats"]}}),
        ({"choices": ["cats", 2]}, {"argument": "choices", "value": ["cats", 2]}),
        ({"choices": ["cats", " "]}, {"argument": "choices", "value": ["cats", " "]}),
        ({"choices": ["cats"]}, {"argument": "choices", "value": 1, "expected": (2, 26)}),
        ({"choices": ["cats", "cats"]}, {"argument": "choices", "expected": (2, 26)}),
        ({"choices": [str(i) for i in range(27)]}, {"argument": "choices", "value": 27}),
        ({"answer": None}, {"argument": "answer", "problem": "missing"}),
        ({"answer": "lions"}, {"argument": "answer", "value": "lions", "expected": ["cats", "dogs", "2"]}),
        ({"answer": 3}, {"argument": "answer", "value": "3"}),
        ({"answer": -1}, {"argument": "answer", "value": "-1"}),
        ({"answer": "D"}, {"argument": "answer", "value": "D"}),
        ({"choices": ["2", "1", "0"], "answer": 2}, {"argument": "answer", "problem": "ambiguous"}),
        ({"choices": ["B", "A"], "answer": "B"}, {"argument": "answer", "problem": "ambiguous"}),
    ],
)
def test_loaders_bad_row_of_choices_raises_user_error(fields, facts, tmp_path):
    with raises(UserError, line=2, **facts):
        read(tmp_path, row(), row(**fields))


@pytest.mark.parametrize("answer", [2, "2", "C", "both"])
def test_loaders_read_mmlu_rows(answer, tmp_path):
    mmlu = {
        "question": " who purrs? ",
        "choices": ["cats", "dogs", "both", "none"],
        "answer": answer,
        "subject": "pets",
    }
    records = read(tmp_path, mmlu)
    [problem] = records.problems()
    assert problem == Problem(conversation("who purrs?"), "both", choices=("cats", "dogs", "both", "none"))
    assert records.format == "mmlu" and records.ignored == ("subject",)
    assert loaders.load(tmp_path / "d.jsonl").problems() == [problem], (
        "where the answer is generated, a grader sees its text"
    )


@pytest.mark.parametrize("answer", [1, "7"])
def test_loaders_mmlu_choices_that_are_numbers(answer, tmp_path):
    mmlu = {"question": "how many?", "choices": ["2", "7", "1"], "answer": answer}
    assert read(tmp_path, mmlu).problems()[0].reference == "7"


@pytest.mark.parametrize(
    ("fields", "facts"),
    [
        ({"answer": "1"}, {"argument": "answer", "problem": "ambiguous"}),
        ({"answer": 3}, {"argument": "answer", "value": 3, "expected": 3, "line": 1}),
        ({"answer": -1}, {"argument": "answer", "value": -1, "expected": 3}),
        ({"answer": True}, {"argument": "answer", "value": True}),
        ({"answer": [1]}, {"argument": "answer", "value": [1]}),
        ({"answer": 0, "question": " "}, {"argument": "question", "problem": "empty"}),
        ({"answer": 0, "choices": {"text": ["2"]}}, {"argument": "choices"}),
    ],
)
def test_loaders_bad_mmlu_row_raises_user_error(fields, facts, tmp_path):
    with raises(UserError, **facts):
        read(tmp_path, {"question": "how many?", "choices": ["2", "7", "1"], **fields})


def test_loaders_choices_of_row_that_is_no_problem_raise_user_error(tmp_path):
    with raises(UserError, argument="answer", problem="missing"):
        read(tmp_path, {"prompt": "a", "chosen": "b", "rejected": "c", "choices": ["b", "c"]})
    with raises(UserError, argument="choices", expected="Problem"):
        read(tmp_path, {"messages": [{"role": "assistant", "content": "b"}], "choices": ["b", "c"]})


# -- the command ---------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def course(tmp_path_factory):
    folder = tmp_path_factory.mktemp("choices")
    for name, model in (("one", MODEL), ("other", OTHER)):
        checkpoints.save(folder / name, model, LETTERED)
    rows = [{"prompt": p.prompt[0]["content"], "choices": p.choices, "answer": p.reference} for p in problems(6, 9)]
    (folder / "pets.jsonl").write_text("".join(json.dumps(one) + "\n" for one in rows))
    (folder / "pets.yaml").write_text("data: pets.jsonl\noutput_type: multiple_choice\nscoring: token\n")
    return folder


def test_evaluate_multiple_choice_fills_table_page_and_file(course, capsys):
    models, out, page = [str(course / name) for name in ("one", "other")], course / "all.json", course / "page.html"
    argv = ["evaluate", *models, "--task", str(course / "pets.yaml"), "--json", str(out), "--report", str(page)]
    assert dispatch(argv) == 0
    shown, found, text = capsys.readouterr().out, json.loads(out.read_text())["tasks"]["pets"], page.read_text()
    assert shown.count("accuracy (token)") == 2
    for name, model in zip(models, (MODEL, OTHER), strict=True):
        right = choose(model, LETTERED, problems(6, 9)).right
        numbers = found["models"][name]["numbers"]
        assert {f"accuracy ({way})" for way in WAYS} == set(numbers)
        assert all(numbers[f"accuracy ({way})"]["value"] == pytest.approx(float(right[way].mean())) for way in WAYS)
        assert sum(map(sum, found["models"][name]["grades"])) == pytest.approx(float(right["token"].sum()))
    assert "; ".join(problems(6, 9)[0].choices) in text
    assert "(token)" in text and "accuracy (letter)" in text and not re.search(r"\bnan\b", text)


@pytest.mark.parametrize(
    ("more", "facts"),
    [
        (["--output-type", "multiple"], {"value": "multiple", "expected": "multiple_choice"}),
        (["--scoring", "sums"], {"value": "sums", "expected": "sum"}),
        (["--choices", "options"], {"argument": "options", "line": 1}),
        (["--baseline-model", "zoo"], {"argument": "--baseline-model"}),
        (["--ref-model", "zoo"], {"argument": "--ref-model"}),
    ],
)
def test_evaluate_multiple_choice_bad_input_raises_user_error(more, facts, course):
    argv = ["evaluate", str(course / "one"), "--data", str(course / "pets.jsonl"), "--output-type", "multiple_choice"]
    with raises(UserError, **facts):
        dispatch([*argv, *more])


def test_evaluate_multiple_choice_ignores_max_completion_length(course, caplog):
    argv = ["evaluate", str(course / "one"), "--data", str(course / "pets.jsonl"), "--output-type", "multiple_choice"]
    assert dispatch([*argv, "--max-completion-length", "5000"]) == 0
    assert "max_completion_length" in caplog.text and "5000" in caplog.text


def test_evaluation_request_announces_settings_without_effect():
    asked = EvaluationRequest(model="m", data="d", output_type="multiple_choice", grader="exact", temperature=0.5)
    assert {"grader", "temperature", "num_generations"} <= asked.unused_options().keys()
    assert not {"choices", "scoring", "fewshot_data"} & (asked.unused_options().keys() - {"fewshot_data"})
    assert {"choices", "scoring"} <= EvaluationRequest(model="m", data="d", grader="exact").unused_options().keys()


# -- votes ---------------------------------------------------------------------------------------------------------


def voted(said, rewards):
    rewards = torch.tensor(rewards, dtype=torch.float64)
    return SampledCompletions(
        [["a"] * rewards.shape[1]] * len(rewards), rewards, rewards, rewards >= 0, None, answers=said
    )


def by_hand(said, grades, k):
    """All choices of k replies; of the answers with most votes one is drawn. Right ones are one answer, and so are those without any."""
    names = ["right" if grade == 1 else answer for answer, grade in zip(said, grades, strict=True)]
    shares = []
    for some in itertools.combinations(names, k):
        counts = {name: some.count(name) for name in some}
        top = [name for name, count in counts.items() if count == max(counts.values())]
        shares.append(("right" in top) / len(top))
    return sum(shares) / len(shares)


@pytest.mark.parametrize("k", [1, 2, 3, 4, 6])
def test_majorities_equal_votes_of_all_k_replies(k, suite_seed):
    rng = random.Random(suite_seed)
    said = [[rng.choice(("4", "5", "6", None)) for _ in range(6)] for _ in range(8)]
    grades = [[float(answer == "4") for answer in row] for row in said]
    grades[0], said[0] = [1.0, 1.0, 0.0, 0.0, 0.0, 0.0], ["4", "4.0", "5", "5", None, None]
    found = majorities(voted(said, grades), k)
    assert found.tolist() == pytest.approx([by_hand(s, g, k) for s, g in zip(said, grades, strict=True)])


def test_measure_maj_at_four_replies_and_more():
    names = lambda generations, said=True: [
        n.name
        for n in measure(voted([["4"] * generations] * 3 if said else None, [[1.0] * generations] * 3))
        if "maj" in n.name
    ]
    assert (
        names(2) == [] and names(3) == ["maj@3"] and names(4) == ["maj@4"] and names(9) == ["maj@4", "maj@8", "maj@9"]
    )
    assert names(9, said=False) == []
    numbers = as_json(measure(voted([["4", "4", "5"]] * 4, [[1.0, 1.0, 0.0]] * 4)))
    assert numbers["maj@3"]["value"] == 1.0 and numbers["accuracy"]["value"] == pytest.approx(2 / 3)
    assert numbers["pass^2"]["value"] == pytest.approx(1 / 3) and "pass^1" not in numbers


def test_measure_maj_skips_problem_with_ungraded_reply():
    numbers = as_json(measure(voted([["4"] * 3, ["5", "5", "4"]], [[1.0] * 3, [0.0, math.nan, 1.0]])))
    assert numbers["maj@3"]["value"] == 1.0


@pytest.mark.parametrize(
    ("grader", "texts"),
    [
        ("exact", ["a b", " a  b ", "ab"]),
        ("numeric", ["it is 1/2", "#### 0.5", "none"]),
        ("gsm8k", ["#### 7", "so 8 #### 7.0", "7"]),
        ("maths", ["\\boxed{x+1}", "$x+1$", "y"]),
    ],
)
def test_graders_answer_of_is_what_grader_compares(grader, texts):
    """Two texts of one answer, one of another or of none; and the grader agrees."""
    one, same, other = map(graders.votes(grader), texts)
    assert one == same != other and hash(one) == hash(same)
    assert graders.get(grader)(texts[1], texts[0]) == 1 and graders.get(grader)(texts[2], texts[0]) == 0


def test_evaluate_maj_votes_by_answer_of_grader(course, capsys):
    data = str(course / "pets.jsonl")
    argv = ["evaluate", str(course / "one"), "--data", data, "--num-generations", "4", "--max-completion-length", "3"]
    assert dispatch([*argv, "--grader", "exact", "--json", str(course / "votes.json")]) == 0
    found = json.loads((course / "votes.json").read_text())["numbers"]
    reward = lambda some, texts: [graders.get("exact")(t, p.reference) for p, t in zip(some, texts, strict=True)]
    asked = loaders.load(course / "pets.jsonl").problems()
    how = {"num_generations": 4, "extract": graders.votes("exact")}
    drawn = sample_completions(MODEL, LETTERED, asked, reward, Sampling(max_completion_length=3), **how)
    assert found["maj@4"]["value"] == pytest.approx(float(majorities(drawn, 4).mean()))
    assert dispatch([*argv, "--grader", "contains"]) == 0
    assert "maj@" not in capsys.readouterr().out.split("pass@1")[-1]
