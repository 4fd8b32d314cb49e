"""Reward models of every kind against their definitions: lists, ratings, balance, outcome, process, judges; and from files."""

import json
import math

import pytest
import torch
from facts import raises

from minirlhf.core.errors import UserError
from minirlhf.data import loaders
from minirlhf.data.chat import conversation, encode, encode_steps
from minirlhf.data.collate import collate
from minirlhf.data.records import Comparison, Problem, StepLabeledCompletion
from minirlhf.data.types import Stepped, labelled, pair, ranked
from minirlhf.equations.overoptimization import worst_case
from minirlhf.feedback.judge import Judge, Verdicts, judge_training_examples, question, verdict
from minirlhf.feedback.rewards import combined_reward
from minirlhf.models.forward import completion_logps
from minirlhf.models.heads import RewardModel, ValueModel
from minirlhf.models.tiny import tiny_model
from minirlhf.models.tokenizers import train_tokenizer, word_tokenizer
from minirlhf.trainers.reward import RewardConfig, completion_rewards, pair_accuracy, pairs_of, train_reward
from minirlhf.trainers.sft import SFTConfig, train_sft
from minirlhf.trainers.verifiers import OutcomeConfig, ProcessConfig, token_scores, train_outcome, train_process
from minirlhf_cli import dispatch
from minirlhf_cli.files.measure import as_json
from minirlhf_cli.files.measure_reward import measure_reward

WORDS = word_tokenizer(("one", "two", "three", "go", "stop"))
SMALL = ["--max-steps", "2", "--batch-size", "3", "--vocab-size", "300", "--context", "256", "--eval-fraction", "0.25"]


def said(text, prompt="go"):
    return encode(WORDS, conversation(prompt, text))


def start(kind=RewardModel, **options):
    return kind.from_causal_lm(tiny_model("nano", WORDS, seed=1), **options)


def first(model, examples, train=train_reward, config=RewardConfig, size=None, **settings):
    given = {k: settings.pop(k) for k in ("language_model",) if k in settings}
    whole = config(max_steps=1, batch_size=len(examples), micro_batch_size=size, **settings)
    return train(model, examples, whole, pad_token_id=0, quiet=True, **given).rows[0]


def rewards_of(model, *answers):
    with torch.no_grad():
        return [
            float(model(*(x for x in (torch.tensor([a.input_ids]), torch.ones(1, len(a)).long())))) for a in answers
        ]


# -- lists, ratings, balance, likelihood -------------------------------------------------------------------------


@pytest.mark.parametrize("size", [None, 1])
def test_train_reward_plackett_luce_loss(size):
    model = start()
    lists = [ranked([said("one"), said("two two"), said("three")]), ranked([said("two"), said("one")])]
    expected = 0.0
    for example in lists:
        worth = [math.exp(r) for r in rewards_of(model, *example.completions)]
        expected -= sum(math.log(worth[k] / sum(worth[k:])) for k in range(len(worth))) / len(lists)
    assert first(model, lists, loss="plackett_luce", size=size)["loss"] == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("size", [None, 1])
def test_train_reward_regression_loss(size):
    model = start()
    lists = [ranked([said("one"), said("two"), said("three")], [5.0, 3.0, 3.0]), ranked([said("two two")], [1.0])]
    squares = [[(r - s) ** 2 for r, s in zip(rewards_of(model, *e.completions), e.scores, strict=True)] for e in lists]
    expected = sum(sum(row) / len(row) for row in squares) / 2
    assert first(model, lists, loss="regression", size=size)["loss"] == pytest.approx(expected, rel=1e-5)
    with raises(UserError, argument="scores", problem="missing"):
        first(start(), [ranked([said("one"), said("two")])], loss="regression")


def test_pairs_of_list_are_all_pairs_but_tied():
    four = pairs_of([ranked([said("one"), said("two"), said("three"), said("go")])])
    assert len(four) == 6 and {p.num_ranked for p in four} == {4}
    tied = pairs_of([ranked([said("one"), said("two"), said("three")], [5.0, 2.0, 2.0])])
    assert [p.margin for p in tied] == [3.0, 3.0]
    assert pairs_of([pair(said("one"), said("two"), 1.5)]) == [pair(said("one"), said("two"), 1.5)]


def test_train_reward_balance_prompts_counts_each_prompt_once():
    model = start()
    alone, four = (
        pair(said("one"), said("two")),
        pairs_of([ranked([said(t, "stop") for t in ("one", "two", "go", "three")])]),
    )

    def loss(pairs):
        return first(start(), pairs)["loss"]

    by_prompt = (loss([alone]) + loss(four)) / 2
    assert first(model, [alone, *four], balance_prompts=True)["loss"] == pytest.approx(by_prompt, rel=1e-5)
    assert loss([alone, *four]) == pytest.approx((loss([alone]) + 6 * loss(four)) / 7, rel=1e-5)


def test_train_reward_margin_coefficient_scales_margins():
    example = pair(said("one"), said("two"), 3.0)
    chosen, rejected = rewards_of(start(), said("one"), said("two"))
    for coefficient in (0.0, 0.5, 1.0):
        expected = math.log1p(math.exp(rejected - chosen + 3.0 * coefficient))
        assert first(start(), [example], margin_coefficient=coefficient)["loss"] == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("size", [None, 1])
def test_train_reward_nll_term_is_mean_over_chosen_tokens(size):
    lm = tiny_model("nano", WORDS, seed=1)
    pairs = [pair(said("one two three"), said("two")), pair(said("two"), said("one"))]
    batch = collate([p.chosen for p in pairs], 0)
    with torch.no_grad():
        logps = completion_logps(lm, batch.input_ids, batch.attention_mask, batch.input_ids.shape[1] - 1)
    nll = -float(logps[batch.loss_mask[:, 1:]].mean())
    plain = first(start(), pairs)["loss"]
    row = first(RewardModel.from_causal_lm(lm, share=True), pairs, nll_coefficient=0.3, language_model=lm, size=size)
    assert row["nll"] == pytest.approx(nll, rel=1e-4) and row["loss"] == pytest.approx(plain + 0.3 * nll, rel=1e-4)
    with raises(ValueError, argument="language_model"):
        first(start(), pairs, nll_coefficient=0.3)


@pytest.mark.parametrize(
    ("settings", "facts"),
    [
        ({"loss": "bradly_terry"}, {"value": "bradly_terry", "expected": "bradley_terry"}),
        ({"loss": "regression", "center_rewards_coefficient": 0.1}, {"argument": "center_rewards_coefficient"}),
        ({"loss": "plackett_luce", "balance_prompts": True}, {"argument": "balance_prompts", "value": "plackett_luce"}),
        ({"margin_coefficient": -1.0}, {"argument": "margin_coefficient", "value": -1.0}),
        ({"nll_coefficient": math.nan}, {"argument": "nll_coefficient"}),
    ],
)
def test_reward_config_bad_setting_raises_user_error(settings, facts):
    with raises(UserError, **facts):
        RewardConfig(**settings)


def test_train_reward_lists_for_pairs_raise_value_error():
    with raises(ValueError, argument="examples", expected=2):
        first(start(), [ranked([said("one"), said("two"), said("go")])])


def test_answer_rewards_equal_rewards_alone():
    model = start()
    for examples in (
        [ranked([said("one two"), said("two"), said("three go go")])],
        [pair(said("one two"), said("two"))],
    ):
        alone = rewards_of(model, *examples[0].completions)
        assert completion_rewards(model, examples, 0).tolist() == pytest.approx(alone, abs=1e-5)


# -- verifiers ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [None, 1])
def test_train_outcome_loss_is_over_reply_tokens(size):
    model = start(ValueModel)
    with torch.no_grad():
        model.head.weight.copy_(torch.linspace(-1, 1, model.head.weight.numel()))
    replies = [labelled(said("one two three"), True), labelled(said("two", "stop go"), False)]
    scores = token_scores(model, [e.chosen for e in replies], pad_token_id=0)
    terms = [
        math.log1p(math.exp(float(-s if e.desirable else s)))
        for e, row in zip(replies, scores, strict=True)
        for s, marked in zip(row, e.chosen.loss_mask, strict=True)
        if marked
    ]
    row = first(model, replies, train_outcome, OutcomeConfig, size)
    assert row["loss"] == pytest.approx(sum(terms) / len(terms), rel=1e-5)
    right = [(float(s[-1]) > 0) == e.desirable for s, e in zip(scores, replies, strict=True)]
    assert row["accuracy"] == pytest.approx(sum(right) / 2)


def test_encode_steps_end_at_last_token():
    tokenizer = train_tokenizer(["first step 1 second , step 2 the end"], 300)
    steps = ["first step 1", "second , step", "2 the end"]
    tokens, ends = encode_steps(tokenizer, conversation("first"), steps)
    decoded = [tokenizer.decode(tokens.input_ids[: end + 1]) for end in ends]
    assert [text.endswith(step) for text, step in zip(decoded, steps, strict=True)] == [True] * 3
    assert all(tokens.loss_mask[end] for end in ends)


@pytest.mark.parametrize(
    ("neutral", "kept"), [("left out", [1.0, None, 0.0]), ("right", [1.0, 1.0, 0.0]), ("wrong", [1.0, 0.0, 0.0])]
)
@pytest.mark.parametrize("size", [None, 1])
def test_train_process_loss_is_over_ends_of_labelled_steps(neutral, kept, size):
    model = start(ValueModel)
    with torch.no_grad():
        model.head.weight.copy_(torch.linspace(-1, 1, model.head.weight.numel()))
    replies = [
        Stepped(*encode_steps(WORDS, conversation("go"), ["one two", "two", "three one"]), (1, 0, -1)),
        Stepped(*encode_steps(WORDS, conversation("stop go"), ["three"]), (1,)),
    ]
    scores = token_scores(model, [e.tokens for e in replies], pad_token_id=0)
    asked = [(float(scores[0][end]), y) for end, y in zip(replies[0].ends, kept, strict=True) if y is not None]
    asked.append((float(scores[1][replies[1].ends[0]]), 1.0))
    expected = sum(math.log1p(math.exp(-z if y else z)) for z, y in asked) / len(asked)
    row = first(model, replies, train_process, ProcessConfig, size, neutral=neutral)
    assert row["loss"] == pytest.approx(expected, rel=1e-5)
    assert row["accuracy"] == pytest.approx(sum((z > 0) == (y > 0.5) for z, y in asked) / len(asked))


def test_train_process_unlabelled_reply_raises_user_error():
    unjudged = Stepped(*encode_steps(WORDS, conversation("go"), ["one", "two"]), (0, 0))
    with raises(UserError, argument="labels", value=1, expected=1):
        first(start(ValueModel), [unjudged], train_process, ProcessConfig)
    with raises(UserError, value="left-out", expected="left out"):
        ProcessConfig(neutral="left-out")


# -- judges ------------------------------------------------------------------------------------------------------


def test_judge_verdict_is_last_in_brackets():
    texts = {"[[A]]": "A", "first [[A]], no: [[ C ]]": "C", "A": None, "[B]": None, "[[D]]": None}
    assert {text: verdict(text) for text in texts} == texts


def test_judge_verdicts_score_both_orders():
    found = Verdicts(("A", "A", "B", "C", None, "A"), ("A", "B", "B", "C", "A", "C"))
    assert found.scores == [1.0, 0.5, 0.0, 0.5, 0.5, 0.5]
    assert found.consistency == 3 / 6 and found.unreadable == 1 / 12
    # shown first and named: A as given; B exchanged, as the first reply of that order is the second one
    assert found.first_position_rate == (3 + 2) / (4 + 4)


def test_judge_learns_from_lessons_in_both_orders():
    words = word_tokenizer(("go", "one", "two", "[[A]]", "[[B]]", "/"))
    ask = "{question} / {first} / {second}"
    reply = lambda text: [{"role": "assistant", "content": text}]
    pairs = [
        Comparison(conversation("go"), reply("one"), reply("two")),
        Comparison(conversation("go go"), reply("one"), reply("two")),
    ]
    taught = judge_training_examples(pairs, ask=ask)
    assert [lesson.messages[-1]["content"] for lesson in taught] == ["[[A]]", "[[B]]"] * 2
    assert taught[1].messages[:-1] == question(pairs[0].prompt, reply("two"), reply("one"), ask=ask)
    model = tiny_model("nano", words, seed=0)
    tokens = [encode(words, lesson.messages, first_turn=1) for lesson in taught]
    train_sft(model, tokens, SFTConfig(max_steps=60, batch_size=4, learning_rate=5e-3), pad_token_id=0, quiet=True)
    found = Judge(model, words, ask=ask)(
        [p.prompt for p in pairs], [p.chosen for p in pairs], [p.rejected for p in pairs]
    )
    assert found.scores == [1.0, 1.0] and found.consistency == 1.0 and found.first_position_rate == 0.5
    few = word_tokenizer(("go", "one", "two", "/"))
    mute = Judge(tiny_model("nano", few, seed=0), few, ask=ask)
    with raises(UserError, argument="verdicts", value=1, problem="missing"):
        mute([pairs[0].prompt], [pairs[0].chosen], [pairs[0].rejected])


def test_combined_reward_worst_case_of_two():
    length = lambda problems, texts: [float(len(t)) for t in texts]
    dislikes_two = lambda problems, texts: [math.nan if "two" in t else 4.0 for t in texts]
    both = combined_reward([length, dislikes_two], worst_case)
    found = both([Problem(conversation("go"))] * 3, ["one", "two", "three"])
    assert found[0] == 3.0 and math.isnan(found[1]) and found[2] == 4.0


# -- measured ----------------------------------------------------------------------------------------------------


def test_measure_reward_equals_definitions():
    model = start()
    reply = lambda text: [{"role": "assistant", "content": text}]
    texts = [("one", "two two", "easy"), ("go", "one", "easy"), ("two two", "three", "hard"), ("one", "go", "hard")]
    comparisons = [Comparison(conversation("go"), reply(a), reply(b), subset=s) for a, b, s in texts]
    numbers = as_json(measure_reward(model, WORDS, comparisons, draws=50))
    gaps = [a - b for a, b in (rewards_of(model, said(a), said(b)) for a, b, _ in texts)]
    right = [float(g > 0) for g in gaps]
    assert numbers["accuracy"]["value"] == sum(right) / 4
    assert numbers["loss (nats)"]["value"] == pytest.approx(sum(math.log1p(math.exp(-g)) for g in gaps) / 4, rel=1e-5)
    assert numbers["accuracy: easy"]["value"] == sum(right[:2]) / 2
    assert numbers["mean of subsets"]["value"] == pytest.approx((sum(right[:2]) / 2 + sum(right[2:]) / 2) / 2)
    assert numbers["longer wins"]["value"] == (0 + 0.5 + 1 + 0.5) / 4
    assert 0 <= numbers["calibration error"]["low"] <= numbers["calibration error"]["value"] + 0.5
    pairs = [pair(said(a), said(b)) for a, b, _ in texts]
    assert pair_accuracy(model, pairs, pad_token_id=0) == sum(right) / 4


# -- from files --------------------------------------------------------------------------------------------------

LISTS = [
    {"prompt": f"q{n}", "responses": [f"good {n}", f"fair {n}", f"bad {n}"], "scores": [3, 2, 1]} for n in range(12)
]
LABELS = [{"prompt": f"q{n}", "completion": f"reply {n}", "label": n % 2 == 0} for n in range(12)]
STEPS = [{"prompt": f"q{n}", "completions": [f"so {n}", "then 2", "end"], "labels": [1, 0, -1]} for n in range(12)]
PAIRS = [
    {"prompt": f"q{n}", "chosen": f"good answer {n}", "rejected": f"bad {n}", "subset": "odd" if n % 2 else "even"}
    for n in range(12)
]


def write(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return str(path)


@pytest.mark.parametrize(
    ("argv", "rows"),
    [
        (["reward", "--loss", "plackett_luce"], LISTS),
        (["reward", "--loss", "regression", "--pooling", "mean"], LISTS),
        (["reward", "--balance-prompts", "true", "--nll-coefficient", "0.1"], LISTS),
        (["orm", "--nll-coefficient", "0.1"], LABELS),
        (["orm"], PAIRS),
        (["prm", "--neutral", "right"], STEPS),
    ],
)
def test_train_reward_orm_and_prm_from_file(argv, rows, tmp_path):
    out = tmp_path / "run"
    assert dispatch(["train", *argv, "--data", write(tmp_path / "d.jsonl", rows), "--out", str(out), *SMALL]) == 0
    found = json.loads((out / "result.json").read_text())
    assert found["interval"][0] <= found["accuracy"] <= found["interval"][1]
    kind = RewardModel if argv[0] == "reward" else ValueModel
    model = kind.from_pretrained(out / "model")
    if "--pooling" in argv:
        assert model.pooling == "mean"


def test_train_judge_from_file_without_verdicts_raises_user_error(tmp_path):
    data, out = write(tmp_path / "d.jsonl", PAIRS), tmp_path / "run"
    with raises(UserError, argument="verdicts", problem="missing"):
        dispatch(["train", "judge", "--data", data, "--out", str(out), *SMALL])


def test_evaluate_reward_model_on_pairs(tmp_path):
    data, out = write(tmp_path / "d.jsonl", PAIRS), tmp_path / "run"
    assert dispatch(["train", "reward", "--data", data, "--out", str(out), *SMALL]) == 0
    file = tmp_path / "found.json"
    assert dispatch(["evaluate", str(out), "--data", data, "--json", str(file)]) == 0
    numbers = json.loads(file.read_text())["numbers"]
    assert {"accuracy", "loss (nats)", "calibration error", "accuracy: odd", "mean of subsets"} <= set(numbers)
    for argv in (["--grader", "exact"], ["--baseline-model", "nano"]):
        with raises(UserError, argument=argv[0]):
            dispatch(["evaluate", str(out), "--data", data, *argv])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("argv", "rows", "facts"),
    [
        (["prm"], PAIRS, {"argument": "format", "value": "preference"}),
        (["orm"], STEPS, {"argument": "format", "value": "stepwise"}),
        (["reward", "--loss", "regression"], PAIRS, {"argument": "scores", "problem": "missing"}),
        (["reward", "--loss", "hinge"], PAIRS, {"argument": "loss", "value": "hinge", "problem": "unknown"}),
        (["reward", "--pooling", "first"], PAIRS, {"value": "first", "problem": "unknown"}),
        (["judge"], LABELS, {"argument": "format", "value": "kto"}),
        (["prm"], [{**STEPS[0], "labels": [1, 2, 0]}], {"argument": "labels[1]", "value": 2, "line": 1}),
        (["prm"], [{**STEPS[0], "labels": [1]}], {"argument": "labels", "value": 1, "expected": 3, "line": 1}),
        (["reward", "--nll-coefficient", "0.1", "--lora-r", "2"], PAIRS, {"expected": "--lora-r"}),
    ],
)
def test_train_reward_models_bad_input_raises_user_error(argv, rows, facts, tmp_path):
    out = tmp_path / "run"
    with raises(UserError, **facts):
        dispatch(["train", *argv, "--data", write(tmp_path / "d.jsonl", rows), "--out", str(out), *SMALL])
    assert not out.exists()


def test_loaders_read_steps(tmp_path):
    records = loaders.load(
        write(tmp_path / "s.jsonl", [{"prompt": "p", "completions": [" a ", "b"], "labels": [True, False]}])
    )
    assert records.format == "stepwise"
    assert records.stepped() == [StepLabeledCompletion([{"role": "user", "content": "p"}], ["a", "b"], (1, -1))]


def test_evaluate_combines_several_reward_models(tmp_path):
    data, runs = write(tmp_path / "d.jsonl", PAIRS), [tmp_path / "a", tmp_path / "b"]
    for seed, out in enumerate(runs):
        assert dispatch(["train", "reward", "--data", data, "--out", str(out), "--seed", str(seed), *SMALL]) == 0
    chats = write(tmp_path / "c.jsonl", [{"prompt": f"q{n}", "completion": f"good {n}"} for n in range(8)])
    assert dispatch(["train", "sft", "--data", chats, "--out", str(tmp_path / "sft"), *SMALL]) == 0
    file, found = tmp_path / "found.json", []
    together = ",".join(map(str, runs))
    for judges, how in ((together, "mean"), (together, "worst_case"), (str(runs[0]), "mean"), (str(runs[1]), "mean")):
        argv = [
            "evaluate",
            str(tmp_path / "sft"),
            "--data",
            chats,
            "--reward-model",
            judges,
            "--reward-aggregation",
            how,
        ]
        assert dispatch([*argv, "--max-completion-length", "4", "--json", str(file)]) == 0
        found.append(json.loads(file.read_text())["numbers"]["reward"]["value"])
    mean, worst, first, second = found  # of the same replies: the random numbers are the same
    assert first != second and mean == pytest.approx((first + second) / 2, abs=1e-5)
    assert worst <= min(first, second) + 1e-5
