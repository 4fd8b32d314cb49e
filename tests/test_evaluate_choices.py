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

from minirlhf.cli import main
from minirlhf.core.errors import UserError
from minirlhf.data import loaders
from minirlhf.data.chat import conversation, encode
from minirlhf.data.records import Problem
from minirlhf.feedback import graders
from minirlhf.models import checkpoints
from minirlhf.models.sampling import Sampling
from minirlhf.models.tiny import tiny_model
from minirlhf.models.tokenizers import word_tokenizer
from minirlhf.stages.choices import WAYS, choose
from minirlhf.stages.measure import Replies, answers, as_json, chosen, compare, majorities, measure
from minirlhf.stages.tasks import EvaluationRequest

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
def test_every_way_picks_the_largest_of_its_scores(way, fresh_seed):
    asked = problems(fresh_seed)
    found = choose(MODEL, LETTERED, asked, batch_size=7)
    for problem, picked, right in zip(asked, found.picked, found.right[way].tolist(), strict=True):
        scores = scores_of(MODEL, problem, way)
        assert scores[problem.choices.index(picked[way])] == pytest.approx(max(scores), abs=1e-4)
        assert right == float(picked[way] == problem.reference)


def test_the_ways_do_not_agree():
    """Else the test before would see no difference between them."""
    found = choose(MODEL, LETTERED, problems(1, 300))
    for one, other in itertools.combinations(WAYS, 2):
        assert any(picked[one] != picked[other] for picked in found.picked), (one, other)


def test_the_size_of_a_batch_changes_nothing():
    asked = problems(2)
    assert choose(MODEL, LETTERED, asked, batch_size=1).picked == choose(MODEL, LETTERED, asked, batch_size=64).picked


def test_a_tie_is_shared():
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


def test_choices_are_numbers_of_their_own_and_compared_in_pairs():
    asked = problems(3, 40)
    ours, theirs = (chosen(choose(model, LETTERED, asked), asked, by="pmi") for model in (MODEL, OTHER))
    numbers = as_json(measure(ours))
    assert list(numbers) == ["accuracy (pmi)", *(f"accuracy ({way})" for way in WAYS if way != "pmi")]
    assert numbers["accuracy (pmi)"]["value"] == pytest.approx(float(ours.rewards.mean()))
    assert all(0 <= n["low"] < n["value"] < n["high"] <= 1 for n in numbers.values())
    [pair] = compare({"a": ours, "b": theirs})
    assert pair.difference.value == pytest.approx(float((ours.rewards - theirs.rewards).mean()))


def test_of_choices_in_clusters_the_interval_is_wider():
    """Each problem five times, as one cluster: five times the items, and no more is known."""
    alone = [problem for problem in problems(4, 10) for _ in range(5)]
    asked = [replace(p, cluster=f"{p.prompt} {p.choices}") for p in alone]
    many, few = (
        as_json(measure(chosen(choose(MODEL, LETTERED, some), some, by="sum")))["accuracy (sum)"]
        for some in (alone, asked)
    )
    assert few["value"] == many["value"] and few["high"] - few["low"] > 1.5 * (many["high"] - many["low"])


def test_letters_that_the_tokenizer_cannot_tell_apart_are_left_out():
    plain = word_tokenizer([*SAID, "say"])
    model, asked = tiny_model("nano", plain, seed=0).eval(), problems(5)
    found = choose(model, plain, asked)
    assert set(found.right) == set(WAYS) - {"letter"}
    with pytest.raises(UserError, match="--choose-by letter: the letters are the same token"):
        chosen(found, asked, by="letter")
    blind = [Problem(conversation("say cats"), "lions", choices=("cats", "lions", "tigers"))]
    with pytest.raises(UserError, match="two choices of the problem 'say cats' are the same tokens"):
        choose(model, plain, blind)


def test_a_choice_that_does_not_fit_is_told():
    long = [Problem(conversation("say cats"), "cats", choices=("cats", " ".join(["dogs"] * 3000)))]
    with pytest.raises(UserError, match=r"the longest question with its answer has 30.. tokens, the model reads"):
        choose(MODEL, LETTERED, long)


def test_the_longest_answer_that_fits_is_compared_and_one_token_more_is_told():
    plain = word_tokenizer([*SAID, "say"])  # without letters, whose questions list all answers
    model = tiny_model("nano", plain, seed=0).eval()
    room = model.config.max_position_embeddings - len(encode(plain, conversation("say cats", "dogs"), first_turn=1)) + 1
    asked = lambda size: [Problem(conversation("say cats"), "cats", choices=("cats", " ".join(["dogs"] * size)))]
    assert choose(model, plain, asked(room)).picked[0]["sum"] == "cats"
    with pytest.raises(UserError, match=f"has {model.config.max_position_embeddings + 1} tokens, the model reads"):
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
def test_the_right_answer_by_its_text_number_or_letter(answer, meant, tmp_path):
    records = read(tmp_path, row(answer=answer))
    [problem] = records.problems()
    assert problem.reference == meant and problem.choices == ("cats", "dogs", "2") and records.ignored == ()


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"choices": None}, "field 'choices', its choices, is 'None'; expected a list of texts"),
        ({"choices": "cats"}, "expected a list of texts"),
        ({"choices": {"text": ["cats"]}}, "expected a list of texts"),
        ({"choices": ["cats", 2]}, "expected a list of texts"),
        ({"choices": ["cats", " "]}, "expected a list of texts"),
        ({"choices": ["cats"]}, "lists 1 choices; expected 2 to 26 different ones"),
        ({"choices": ["cats", "cats"]}, "different ones"),
        ({"choices": [str(i) for i in range(27)]}, "expected 2 to 26"),
        ({"answer": None}, "no answer beside the choices"),
        ({"answer": "lions"}, "the answer 'lions' is none of the choices"),
        ({"answer": 3}, "the answer '3' is none"),
        ({"answer": -1}, "the answer '-1' is none"),
        ({"answer": "D"}, "the answer 'D' is none"),
        (
            {"choices": ["2", "1", "0"], "answer": 2},
            "the answer '2' is one of the choices, and the number or the letter of another ('0')",
        ),
        ({"choices": ["B", "A"], "answer": "B"}, "the number or the letter of another ('A')"),
    ],
)
def test_a_row_that_cannot_be_asked_is_named(fields, words, tmp_path):
    with pytest.raises(UserError, match=r"d.jsonl, line 2: ") as found:
        read(tmp_path, row(), row(**fields))
    assert words in str(found.value) and "\n" not in str(found.value)


@pytest.mark.parametrize("answer", [2, "2", "C", "both"])
def test_rows_of_mmlu_are_read_as_they_are(answer, tmp_path):
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


@pytest.mark.parametrize(
    ("fields", "meant"),
    [
        ({"answer": 1}, "7"),  # a number counts, whatever the choices are called
        ({"answer": "1"}, "is one of the choices, and the number or the letter of another ('7')"),
        ({"answer": "7"}, "7"),
        ({"answer": 3}, "field 'answer' is 3; expected the number of one of 3 choices"),
        ({"answer": -1}, "field 'answer' is -1; expected the number of one of 3 choices"),
        ({"answer": True}, "field 'answer' is a truth value"),
        ({"answer": [1]}, "field 'answer' is a list"),
        ({"answer": 0, "question": " "}, "question is empty"),
        ({"answer": 0, "choices": {"text": ["2"]}}, "expected a list of texts"),
    ],
)
def test_numbers_that_are_choices_and_rows_of_mmlu_that_are_broken(fields, meant, tmp_path):
    mmlu = {"question": "how many?", "choices": ["2", "7", "1"], **fields}
    if meant in mmlu["choices"]:
        assert read(tmp_path, mmlu).problems()[0].reference == meant
    else:
        with pytest.raises(UserError, match=r"d.jsonl, line 1: ") as found:
            read(tmp_path, mmlu)
        assert meant in str(found.value) and "\n" not in str(found.value)


def test_what_is_no_problem_has_no_choices(tmp_path):
    with pytest.raises(UserError, match="no answer beside the choices"):
        read(tmp_path, {"prompt": "a", "chosen": "b", "rejected": "c", "choices": ["b", "c"]})
    with pytest.raises(UserError, match="the row is not a problem"):
        read(tmp_path, {"messages": [{"role": "assistant", "content": "b"}], "choices": ["b", "c"]})


# -- the command ---------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def course(tmp_path_factory):
    folder = tmp_path_factory.mktemp("choices")
    for name, model in (("one", MODEL), ("other", OTHER)):
        checkpoints.save(folder / name, model, LETTERED)
    rows = [{"prompt": p.prompt[0]["content"], "choices": p.choices, "answer": p.reference} for p in problems(6, 9)]
    (folder / "pets.jsonl").write_text("".join(json.dumps(one) + "\n" for one in rows))
    (folder / "pets.yaml").write_text("data: pets.jsonl\noutput_type: multiple_choice\nchoose_by: token\n")
    return folder


def test_a_task_of_choices_fills_table_page_and_file(course, capsys):
    models, out, page = [str(course / name) for name in ("one", "other")], course / "all.json", course / "page.html"
    assert (
        main(["evaluate", *models, "--task", str(course / "pets.yaml"), "--json", str(out), "--report", str(page)]) == 0
    )
    shown, found, text = capsys.readouterr().out, json.loads(out.read_text())["tasks"]["pets"], page.read_text()
    assert "9 problems, multiple choice; 95 % intervals over problems" in shown
    assert shown.count("accuracy (token)") == 2 and "no effect" not in shown
    for name, model in zip(models, (MODEL, OTHER), strict=True):
        right = choose(model, LETTERED, problems(6, 9)).right
        numbers = found["models"][name]["numbers"]
        assert {f"accuracy ({way})" for way in WAYS} == set(numbers)
        assert all(numbers[f"accuracy ({way})"]["value"] == pytest.approx(float(right[way].mean())) for way in WAYS)
        assert sum(map(sum, found["models"][name]["grades"])) == pytest.approx(float(right["token"].sum()))
    assert "; ".join(problems(6, 9)[0].choices) in text
    assert "likelihood (token)" in text and "accuracy (letter)" in text and not re.search(r"\bnan\b", text)


@pytest.mark.parametrize(
    ("more", "words"),
    [
        (["--output-type", "multiple"], "did you mean 'multiple_choice'"),
        (["--output-type", "multiple_choice", "--choose-by", "sums"], "did you mean 'sum'"),
        (["--output-type", "multiple_choice", "--choices", "options"], "field 'options', its choices, is 'None'"),
        (["--output-type", "multiple_choice", "--against", "zoo"], "--against: needs replies"),
        (["--output-type", "multiple_choice", "--ref-model", "zoo"], "--ref-model: needs replies"),
    ],
)
def test_bad_input_is_one_line(more, words, course, capsys):
    assert main(["evaluate", str(course / "one"), "--data", str(course / "pets.jsonl"), *more]) == 2
    [line] = [line for line in capsys.readouterr().err.splitlines() if line.startswith("minirlhf:")]
    assert words in line


def test_choices_need_no_room_for_a_reply_that_nobody_writes(course, caplog):
    argv = ["evaluate", str(course / "one"), "--data", str(course / "pets.jsonl"), "--output-type", "multiple_choice"]
    assert main([*argv, "--max-completion-length", "5000"]) == 0
    assert "no effect of max_completion_length = 5000" in caplog.text


def test_settings_that_do_nothing_are_announced():
    asked = EvaluationRequest(model="m", data="d", output_type="multiple_choice", grader="exact", temperature=0.5)
    assert {"grader", "temperature", "num_generations"} <= asked.without_effect().keys()
    assert not {"choices", "choose_by", "fewshot_data"} & (asked.without_effect().keys() - {"fewshot_data"})
    assert {"choices", "choose_by"} <= EvaluationRequest(model="m", data="d", grader="exact").without_effect().keys()


# -- votes ---------------------------------------------------------------------------------------------------------


def voted(said, rewards):
    rewards = torch.tensor(rewards, dtype=torch.float64)
    return Replies([["a"] * rewards.shape[1]] * len(rewards), rewards, rewards, rewards >= 0, None, said=said)


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
def test_a_vote_is_that_of_all_choices_of_k_replies(k, fresh_seed):
    rng = random.Random(fresh_seed)
    said = [[rng.choice(("4", "5", "6", None)) for _ in range(6)] for _ in range(8)]
    grades = [[float(answer == "4") for answer in row] for row in said]
    grades[0], said[0] = [1.0, 1.0, 0.0, 0.0, 0.0, 0.0], ["4", "4.0", "5", "5", None, None]
    found = majorities(voted(said, grades), k)
    assert found.tolist() == pytest.approx([by_hand(s, g, k) for s, g in zip(said, grades, strict=True)])


def test_votes_are_measured_from_four_replies_on_and_for_all_of_them():
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


def test_a_problem_with_a_reply_that_cannot_be_graded_has_no_vote():
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
def test_what_a_grader_compares_is_what_votes(grader, texts):
    """Two texts of one answer, one of another or of none; and the grader agrees."""
    one, same, other = map(graders.ANSWER_OF[grader], texts)
    assert one == same != other and hash(one) == hash(same)
    assert graders.get(grader)(texts[1], texts[0]) == 1 and graders.get(grader)(texts[2], texts[0]) == 0


def test_replies_vote_by_the_answer_that_their_grader_compares(course, capsys):
    argv = [
        "evaluate",
        str(course / "one"),
        "--data",
        str(course / "pets.jsonl"),
        "--num-generations",
        "4",
        "--max-completion-length",
        "3",
    ]
    assert main([*argv, "--grader", "exact", "--json", str(course / "votes.json")]) == 0
    found = json.loads((course / "votes.json").read_text())["numbers"]
    reward = lambda some, texts: [graders.get("exact")(t, p.reference) for p, t in zip(some, texts, strict=True)]
    asked = loaders.load(course / "pets.jsonl").problems()
    drawn = answers(
        MODEL,
        LETTERED,
        asked,
        reward,
        Sampling(max_completion_length=3),
        num_generations=4,
        extract=graders.ANSWER_OF["exact"],
    )
    assert found["maj@4"]["value"] == pytest.approx(float(majorities(drawn, 4).mean()))
    assert main([*argv, "--grader", "contains"]) == 0
    assert "maj@" not in capsys.readouterr().out.split("pass@1")[-1]
