"""Reward models of every kind against their definitions: lists, ratings, balance, outcome, process, judges; and from files."""

import json
import math

import pytest
import torch

from minirlhf.cli import main
from minirlhf.core.errors import UserError
from minirlhf.data import loaders
from minirlhf.data.chat import conversation, encode, encode_steps
from minirlhf.data.collate import collate
from minirlhf.data.records import Comparison, Problem, SteppedReply
from minirlhf.data.types import Stepped, labelled, pair, ranked
from minirlhf.equations.overoptimization import worst_case
from minirlhf.equations.reward_losses import (
    bradley_terry_loss,
    centring_penalty,
    plackett_luce_logp,
    regression_loss,
)
from minirlhf.feedback.judge import Judge, Verdicts, lessons, question, verdict
from minirlhf.feedback.rewards import combined_reward
from minirlhf.models.forward import completion_logps
from minirlhf.models.heads import RewardModel, ValueModel
from minirlhf.models.tiny import tiny_model
from minirlhf.models.tokenizers import train_tokenizer, word_tokenizer
from minirlhf.stages.measure import as_json
from minirlhf.stages.measure_reward import measure_reward
from minirlhf.trainers.reward import RewardConfig, answer_rewards, pair_accuracy, pairs_of, train_reward
from minirlhf.trainers.sft import SFTConfig, train_sft
from minirlhf.trainers.verifiers import OutcomeConfig, ProcessConfig, token_scores, train_outcome, train_process

WORDS = word_tokenizer(("one", "two", "three", "go", "stop"))
SMALL = ["--max-steps", "2", "--batch-size", "3", "--vocab-size", "300", "--context", "256", "--held-out", "0.25"]


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
def test_the_listwise_loss_is_the_surprise_at_the_ranking(size):
    model = start()
    lists = [ranked([said("one"), said("two two"), said("three")]), ranked([said("two"), said("one")])]
    expected = 0.0
    for example in lists:
        worth = [math.exp(r) for r in rewards_of(model, *example.answers)]
        expected -= sum(math.log(worth[k] / sum(worth[k:])) for k in range(len(worth))) / len(lists)
    assert first(model, lists, loss="plackett_luce", size=size)["loss"] == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("size", [None, 1])
def test_the_regression_loss_is_the_mean_square_over_replies_then_prompts(size):
    model = start()
    lists = [ranked([said("one"), said("two"), said("three")], [5.0, 3.0, 3.0]), ranked([said("two two")], [1.0])]
    squares = [[(r - s) ** 2 for r, s in zip(rewards_of(model, *e.answers), e.scores, strict=True)] for e in lists]
    expected = sum(sum(row) / len(row) for row in squares) / 2
    assert first(model, lists, loss="regression", size=size)["loss"] == pytest.approx(expected, rel=1e-5)
    with pytest.raises(UserError, match="no scores"):
        first(start(), [ranked([said("one"), said("two")])], loss="regression")


def test_pairs_of_a_list_are_all_pairs_but_the_tied():
    four = pairs_of([ranked([said("one"), said("two"), said("three"), said("go")])])
    assert len(four) == 6 and {p.num_ranked for p in four} == {4}
    tied = pairs_of([ranked([said("one"), said("two"), said("three")], [5.0, 2.0, 2.0])])
    assert [p.margin for p in tied] == [3.0, 3.0]
    assert pairs_of([pair(said("one"), said("two"), 1.5)]) == [pair(said("one"), said("two"), 1.5)]


def test_balanced_every_prompt_counts_once_however_many_replies_were_ranked():
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


def test_margins_are_scaled_or_left_out():
    example = pair(said("one"), said("two"), 3.0)
    chosen, rejected = rewards_of(start(), said("one"), said("two"))
    for coefficient in (0.0, 0.5, 1.0):
        expected = math.log1p(math.exp(rejected - chosen + 3.0 * coefficient))
        assert first(start(), [example], margin_coefficient=coefficient)["loss"] == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("size", [None, 1])
def test_the_likelihood_term_is_the_chosen_replies_mean_surprise_per_token(size):
    lm = tiny_model("nano", WORDS, seed=1)
    pairs = [pair(said("one two three"), said("two")), pair(said("two"), said("one"))]
    batch = collate([p.chosen for p in pairs], 0)
    with torch.no_grad():
        logps = completion_logps(lm, batch.input_ids, batch.attention_mask, batch.input_ids.shape[1] - 1)
    nll = -float(logps[batch.loss_mask[:, 1:]].mean())
    plain = first(start(), pairs)["loss"]
    row = first(RewardModel.from_causal_lm(lm, share=True), pairs, nll_coefficient=0.3, language_model=lm, size=size)
    assert row["nll"] == pytest.approx(nll, rel=1e-4) and row["loss"] == pytest.approx(plain + 0.3 * nll, rel=1e-4)
    with pytest.raises(ValueError, match="go together"):
        first(start(), pairs, nll_coefficient=0.3)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"loss": "bradly_terry"}, "bradley_terry"),
        ({"loss": "regression", "center_rewards_coefficient": 0.1}, "center_rewards_coefficient is for pairs"),
        ({"loss": "plackett_luce", "balance_prompts": True}, "balance_prompts is for pairs"),
        ({"margin_coefficient": -1.0}, "margin_coefficient = -1.0"),
        ({"nll_coefficient": math.nan}, "nll_coefficient = nan"),
    ],
)
def test_settings_that_make_no_sense_are_one_line(settings, message):
    with pytest.raises(UserError, match=message):
        RewardConfig(**settings)


def test_lists_are_not_taken_for_pairs():
    with pytest.raises(ValueError, match="expected pairs"):
        first(start(), [ranked([said("one"), said("two"), said("go")])])


def test_rewards_of_lists_and_pairs_are_those_of_each_answer_alone():
    model = start()
    for examples in (
        [ranked([said("one two"), said("two"), said("three go go")])],
        [pair(said("one two"), said("two"))],
    ):
        alone = rewards_of(model, *examples[0].answers)
        assert answer_rewards(model, examples, 0).tolist() == pytest.approx(alone, abs=1e-5)


# -- verifiers ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [None, 1])
def test_an_outcome_model_is_asked_at_every_token_of_the_reply_and_at_no_other(size):
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


def test_steps_end_at_their_last_token():
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
def test_a_process_model_is_asked_where_labelled_steps_end(neutral, kept, size):
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


def test_a_reply_without_a_judged_step_is_refused():
    unjudged = Stepped(*encode_steps(WORDS, conversation("go"), ["one", "two"]), (0, 0))
    with pytest.raises(UserError, match="1 of 1 replies have no step"):
        first(start(ValueModel), [unjudged], train_process, ProcessConfig)
    with pytest.raises(UserError, match="left out"):
        ProcessConfig(neutral="left-out")


# -- judges ------------------------------------------------------------------------------------------------------


def test_a_verdict_is_the_last_one_in_brackets():
    assert [verdict(t) for t in ("[[A]]", "first [[A]], no: [[ C ]]", "A", "[B]", "[[D]]")] == [
        "A",
        "C",
        None,
        None,
        None,
    ]


def test_both_orders_must_agree():
    found = Verdicts(("A", "A", "B", "C", None, "A"), ("A", "B", "B", "C", "A", "C"))
    assert found.scores == [1.0, 0.5, 0.0, 0.5, 0.5, 0.5]
    assert found.consistency == 3 / 6 and found.unreadable == 1 / 12
    # shown first and named: A as given; B exchanged, as the first reply of that order is the second one
    assert found.first_place == (3 + 2) / (4 + 4)


def test_a_judge_learns_from_pairs_in_both_orders():
    words = word_tokenizer(("go", "one", "two", "[[A]]", "[[B]]", "/"))
    ask = "{question} / {first} / {second}"
    reply = lambda text: [{"role": "assistant", "content": text}]
    pairs = [
        Comparison(conversation("go"), reply("one"), reply("two")),
        Comparison(conversation("go go"), reply("one"), reply("two")),
    ]
    taught = lessons(pairs, ask=ask)
    assert [lesson.messages[-1]["content"] for lesson in taught] == ["[[A]]", "[[B]]"] * 2
    assert taught[1].messages[:-1] == question(pairs[0].prompt, reply("two"), reply("one"), ask=ask)
    model = tiny_model("nano", words, seed=0)
    tokens = [encode(words, lesson.messages, first_turn=1) for lesson in taught]
    train_sft(model, tokens, SFTConfig(max_steps=60, batch_size=4, learning_rate=5e-3), pad_token_id=0, quiet=True)
    found = Judge(model, words, ask=ask)(
        [p.prompt for p in pairs], [p.chosen for p in pairs], [p.rejected for p in pairs]
    )
    assert found.scores == [1.0, 1.0] and found.consistency == 1.0 and found.first_place == 0.5
    mute = Judge(
        tiny_model("nano", word_tokenizer(("go", "one", "two", "/")), seed=0),
        word_tokenizer(("go", "one", "two", "/")),
        ask=ask,
    )
    with pytest.raises(UserError, match="no \\[\\[A\\]\\]"):
        mute([pairs[0].prompt], [pairs[0].chosen], [pairs[0].rejected])


def test_rewards_combined_are_the_combination_of_what_each_says():
    length = lambda problems, texts: [float(len(t)) for t in texts]
    dislikes_two = lambda problems, texts: [math.nan if "two" in t else 4.0 for t in texts]
    both = combined_reward([length, dislikes_two], worst_case)
    found = both([Problem(conversation("go"))] * 3, ["one", "two", "three"])
    assert found[0] == 3.0 and math.isnan(found[1]) and found[2] == 4.0


# -- measured ----------------------------------------------------------------------------------------------------


def test_a_measured_reward_model_against_its_definitions():
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


def test_the_table_of_chapter_08_holds():
    """One pair with the rewards 1.2 and 0.4, rated 5 and 2, under every loss of the chapter."""
    chosen, rejected = torch.tensor([1.2], dtype=torch.float64), torch.tensor([0.4], dtype=torch.float64)
    plain = bradley_terry_loss(chosen, rejected)
    found = {
        ".371101": plain,
        "2.305083": bradley_terry_loss(chosen, rejected, margin=torch.tensor([3.0], dtype=torch.float64)),
        ".451101": bradley_terry_loss(chosen, rejected, label_smoothing=0.1),
        ".396701": plain + 0.01 * centring_penalty(chosen, rejected),
        "8.500000": regression_loss(torch.tensor([1.2, 0.4]), torch.tensor([5.0, 2.0])).mean(),
        ".720868": -plackett_luce_logp(torch.tensor([2.0, 1.0, 0.0], dtype=torch.float64)),
    }
    for text, value in found.items():
        assert float(value) == pytest.approx(float(text), abs=6e-7), text
    torch.testing.assert_close(bradley_terry_loss(chosen - 5, rejected - 5), plain)


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
def test_train_from_a_file(argv, rows, tmp_path, capsys):
    out = tmp_path / "run"
    assert main(["train", *argv, "--data", write(tmp_path / "d.jsonl", rows), "--out", str(out), *SMALL]) == 0
    found = json.loads((out / "result.json").read_text())
    assert found["interval"][0] <= found["accuracy"] <= found["interval"][1]
    assert "held-out accuracy" in capsys.readouterr().out
    kind = RewardModel if argv[0] == "reward" else ValueModel
    model = kind.from_pretrained(out / "model")
    if "--pooling" in argv:
        assert model.pooling == "mean"


def test_a_judge_from_a_file_says_that_it_gives_no_verdict_yet(tmp_path, capsys):
    data, out = write(tmp_path / "d.jsonl", PAIRS), tmp_path / "run"
    assert main(["train", "judge", "--data", data, "--out", str(out), *SMALL]) == 2
    assert "the judge gave no [[A]]" in capsys.readouterr().err


def test_evaluate_measures_a_reward_model_on_pairs(tmp_path, capsys):
    data, out = write(tmp_path / "d.jsonl", PAIRS), tmp_path / "run"
    assert main(["train", "reward", "--data", data, "--out", str(out), *SMALL]) == 0
    capsys.readouterr()
    file = tmp_path / "found.json"
    assert main(["evaluate", str(out), "--data", data, "--json", str(file)]) == 0
    numbers = json.loads(file.read_text())["numbers"]
    assert {"accuracy", "loss (nats)", "calibration error", "accuracy: odd", "mean of subsets"} <= set(numbers)
    for argv in (["--grader", "exact"], ["--against", "nano"]):
        assert main(["evaluate", str(out), "--data", data, *argv]) == 2
        assert "is a reward model, which is measured on pairs alone" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("argv", "rows", "words"),
    [
        (["prm"], PAIRS, ["steps with labels"]),
        (["orm"], STEPS, ["label for each reply"]),
        (["reward", "--loss", "regression"], PAIRS, ["no score for each reply", "ultrafeedback"]),
        (["reward", "--loss", "hinge"], PAIRS, ["unknown loss 'hinge'"]),
        (["reward", "--pooling", "first"], PAIRS, ["pooling", "last"]),
        (["judge"], LABELS, ["a chosen and a rejected reply"]),
        (["prm"], [{**STEPS[0], "labels": [1, 2, 0]}], ["line 1", "labels[1]", "expected true, false, 1, 0 or -1"]),
        (["prm"], [{**STEPS[0], "labels": [1]}], ["line 1", "1 labels for 3 steps"]),
        (["reward", "--nll-coefficient", "0.1", "--lora-r", "2"], PAIRS, ["not with adapters"]),
    ],
)
def test_bad_input_is_one_line(argv, rows, words, tmp_path, capsys):
    out = tmp_path / "run"
    assert main(["train", *argv, "--data", write(tmp_path / "d.jsonl", rows), "--out", str(out), *SMALL]) == 2
    error = capsys.readouterr().err.strip()
    assert "\n" not in error and all(word in error for word in words), error
    assert not out.exists()


def test_steps_are_read(tmp_path):
    records = loaders.load(
        write(tmp_path / "s.jsonl", [{"prompt": "p", "completions": [" a ", "b"], "labels": [True, False]}])
    )
    assert records.format == "stepwise"
    assert records.stepped() == [SteppedReply([{"role": "user", "content": "p"}], ["a", "b"], (1, -1))]


def test_several_reward_models_grade_together(tmp_path):
    data, runs = write(tmp_path / "d.jsonl", PAIRS), [tmp_path / "a", tmp_path / "b"]
    for seed, out in enumerate(runs):
        assert main(["train", "reward", "--data", data, "--out", str(out), "--seed", str(seed), *SMALL]) == 0
    chats = write(tmp_path / "c.jsonl", [{"prompt": f"q{n}", "completion": f"good {n}"} for n in range(8)])
    assert main(["train", "sft", "--data", chats, "--out", str(tmp_path / "sft"), *SMALL]) == 0
    file, found = tmp_path / "found.json", []
    together = ",".join(map(str, runs))
    for judges, how in ((together, "mean"), (together, "worst_case"), (str(runs[0]), "mean"), (str(runs[1]), "mean")):
        argv = ["evaluate", str(tmp_path / "sft"), "--data", chats, "--reward-model", judges, "--combine", how]
        assert main([*argv, "--max-completion-length", "4", "--json", str(file)]) == 0
        found.append(json.loads(file.read_text())["numbers"]["reward"]["value"])
    mean, worst, first, second = found  # of the same replies: the random numbers are the same
    assert first != second and mean == pytest.approx((first + second) / 2, abs=1e-5)
    assert worst <= min(first, second) + 1e-5
