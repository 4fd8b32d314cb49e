"""What stands behind the tables of `minirlhf evaluate`: intervals of hand-made replies, number by number, and how replies are drawn."""

import dataclasses
import math

import pytest
import torch
from facts import raises

from minirlhf.core.errors import UserError
from minirlhf.data.chat import conversation
from minirlhf.data.records import Problem
from minirlhf.equations.evaluation import win_rate_interval
from minirlhf.models.sampling import Sampling
from minirlhf.models.tiny import tiny_model
from minirlhf.models.tokenizers import word_tokenizer
from minirlhf.trainers.evaluation import Estimate, wilson_interval
from minirlhf_cli.files.answering import GenerationRequest, Generator, best_of
from minirlhf_cli.files.measure import (
    Measurement,
    SampledCompletions,
    as_json,
    compare,
    majorities,
    measure,
    sample_completions,
)

WORDS = word_tokenizer(["cats", "dogs", "birds", "say", "purr"])
POLICY = tiny_model("nano", WORDS, seed=0)
SAMPLING = Sampling(max_completion_length=5)


def long(problems, completions):
    return [float(len(c)) for c in completions]


def replied(rewards, *, said=None, ended=None, clusters=None):
    """Replies of which only the grades matter: ``rewards`` are ``P`` lists of ``G``."""
    rewards = torch.tensor(rewards, dtype=torch.float64)
    ones = torch.ones_like(rewards)
    ended = ones.bool() if ended is None else torch.tensor(ended).bool()
    clusters = None if clusters is None else torch.tensor(clusters)
    return SampledCompletions(
        [["a"] * rewards.shape[1]] * len(rewards), rewards, ones.long(), ended, None, clusters, said
    )


def ends(found, name):
    return found[name]["low"], found[name]["high"]


# -- intervals of shares ---------------------------------------------------------------------------------------------

#: Four problems that are nearly alike, eight replies each: less spread than independent draws would have.
EVEN = [[1.0] * 4 + [0.0] * 4] * 3 + [[1.0] * 3 + [0.0] * 5]


def test_measure_share_intervals_are_no_narrower_than_independent_draws():
    """Of k replies at once a problem with eight has ⌊8/k⌋ that share none."""
    said = [["right" if grade else "wrong" for grade in row] for row in EVEN]
    replies = replied(EVEN, said=said, ended=EVEN)
    found = as_json(measure(replies))
    for name, draws in (
        ("accuracy", 32), ("ended", 32), ("pass@1", 32), ("pass@2", 16), ("pass@4", 8), ("pass@8", 4), ("pass^2", 16), ("pass^4", 8), ("maj@4", 8), ("maj@8", 4),
    ):  # fmt: skip
        mean = found[name]["value"]
        assert 0 < mean <= 1
        assert ends(found, name) == pytest.approx(wilson_interval(draws * mean, draws)), name
    assert found["maj@4"]["value"] == pytest.approx(float(majorities(replies, 4).mean()))


def test_measure_win_rate_has_one_vote_per_problem_and_ties_narrow_it():
    """By the means of the replies: three ties and a win. The interval is of three kinds of votes, not of a share of .625."""
    ours, theirs = [[1.0, 1.0, 0.0, 0.0]] * 4, [[1.0, 0.0, 0.0, 1.0]] * 3 + [[0.0] * 4]
    found = as_json(measure(replied(ours), against=replied(theirs)))
    assert found["win rate"]["value"] == 0.625 and found["reward of the other"]["value"] == 0.375
    votes = (torch.tensor([float(count)]) for count in (1, 3, 0))
    assert ends(found, "win rate") == pytest.approx([float(end) for end in win_rate_interval(*votes)])
    low, high = ends(found, "win rate")
    wide = wilson_interval(2.5, 4)
    assert wide[0] < low < 0.5 < high < wide[1]
    assert ends(as_json(measure(replied(ours), against=replied([[0.0] * 4] * 4))), "win rate") == pytest.approx(
        wilson_interval(4, 4)
    )


def test_measure_win_rate_of_clusters_has_error_of_clusters():
    ours, theirs = [[1.0], [1.0], [0.0], [0.0], [1.0], [1.0]], [[0.0], [0.0], [1.0], [1.0], [0.0], [1.0]]
    found = as_json(measure(replied(ours, clusters=[0, 0, 1, 1, 2, 2]), against=replied(theirs)))
    value = found["win rate"]["value"]
    assert value == pytest.approx(3.5 / 6)
    sums = torch.tensor([2 - 2 * value, -2 * value, 1.5 - 2 * value])
    worth = value * (1 - value) / (float((sums**2).sum()) / 36 * 3 / 2)
    assert ends(found, "win rate") == pytest.approx(wilson_interval(value * worth, worth))


def test_measure_counts_ungraded_by_replies():
    nan = math.nan
    found = as_json(measure(replied([[1.0, 1.0, nan, nan]] * 3 + [[1.0, 0.0, 0.0, nan]])))
    assert found["not graded"]["value"] == 0.4375
    assert ends(found, "not graded") == pytest.approx(wilson_interval(7, 16))
    shares = Estimate.of(torch.tensor([1, 1, 1, 1 / 3]))
    worth = shares.mean * (1 - shares.mean) / shares.stderr**2
    assert ends(found, "accuracy") == pytest.approx(wilson_interval(shares.mean * worth, worth))
    assert not [name for name in found if name.startswith("pass")], "no problem of which all replies could be graded"


def test_measure_ungraded_reply_counts_for_means_and_not_for_pass_and_maj():
    """Three problems, the last with one grade: the accuracy is over all three, pass@2 over two."""
    said = [["a", "b", "c"]] * 3
    found = as_json(measure(replied([[1.0, 1.0, 0.0], [0.0, 0.0, 0.0], [1.0, math.nan, math.nan]], said=said)))
    assert found["accuracy"]["value"] == pytest.approx((2 / 3 + 0 + 1) / 3)
    assert found["pass@2"]["value"] == pytest.approx(1 / 2)
    assert found["pass^2"]["value"] == pytest.approx(1 / 6)
    assert found["maj@3"]["value"] == pytest.approx(1 / 2)
    for name in ("pass@2", "maj@3"):  # one right and one wrong are worth one draw
        assert ends(found, name) == pytest.approx(wilson_interval(0.5, 1))


def test_number_of_shares_two_opposite_problems_are_one_draw():
    """By rounding it may be a hair less than one, of which there is no interval."""
    for stderr in (0.5, math.nextafter(0.5, 1.0)):
        number = Measurement.of_shares("x", Estimate(0.5, stderr), 2, 2)
        assert (number.low, number.high) == pytest.approx(wilson_interval(0.5, 1))


def test_number_of_shares_of_no_problem_is_unknown():
    number = Measurement.of_shares("x", Estimate(math.nan, math.nan), 0, 0)
    assert math.isnan(number.value) and not number.known
    assert Measurement("x", 0.5, 0.4, 0.6).known and not Measurement("x", 0.5, math.nan, 0.6).known


def test_measure_accuracy_counts_clusters():
    """Six problems in three clusters that are alike within: as three problems, but a reply each is a draw."""
    values = [1.0, 1.0, 0.0, 0.0, 1.0, 1.0]
    found = as_json(measure(replied([[v] for v in values], clusters=[0, 0, 1, 1, 2, 2])))
    mean, stderr = 2 / 3, Estimate.of(torch.tensor([1.0, 0.0, 1.0])).stderr
    worth = mean * (1 - mean) / stderr**2
    assert ends(found, "accuracy") == pytest.approx(wilson_interval(mean * worth, worth))
    assert worth < 3 and found["length (tokens)"]["low"] is None
    alike = as_json(measure(replied([[1.0]] * 6, clusters=[0, 0, 1, 1, 2, 2])))
    assert ends(alike, "accuracy") == wilson_interval(3, 3)


def test_measure_unbounded_reward_is_mean_of_problem_means():
    found = as_json(measure(replied([[1.0, 3.0], [7.0, math.nan], [math.nan, math.nan]])))
    assert found["reward"]["value"] == 4.5 and found["not graded"]["value"] == 0.5
    assert not {"accuracy", "pass@1", "pass@2"} & set(found)


def test_measure_ways_of_choosing_are_shares_of_problems_or_clusters():
    right = torch.tensor([1.0, 1.0, 0.0, 0.5, 1.0, 1.0], dtype=torch.float64)
    for clusters in (None, [0, 0, 1, 1, 2, 2]):
        found = as_json(
            measure(dataclasses.replace(replied(right[:, None].tolist(), clusters=clusters), ways={"sum": right}))
        )
        assert found["accuracy (sum)"]["value"] == 0.75
        if clusters is None:
            assert ends(found, "accuracy (sum)") == pytest.approx(wilson_interval(4.5, 6))
        else:
            spread = Estimate.of(torch.tensor([1.0, 0.25, 1.0])).stderr
            worth = 0.75 * 0.25 / spread**2
            assert ends(found, "accuracy (sum)") == pytest.approx(wilson_interval(0.75 * worth, worth))


# -- pairs -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("turned", [False, True])
def test_compare_unbounded_rewards_with_equal_differences_have_no_interval(turned):
    """All differences are alike; of a length nothing says that another problem could not be far off."""
    both = {"a": replied([[1.0], [1.0], [1.0]]), "b": replied([[3.0], [3.0], [3.0]])}
    [pair] = compare(dict(reversed(both.items())) if turned else both)
    assert pair.difference.value == (2 if turned else -2) and not pair.difference.known
    assert pair.difference.name == ("b − a" if turned else "a − b")
    [shares] = compare({"a": both["a"], "c": replied([[0.0], [0.0], [0.0]])})
    assert (shares.first, shares.second, shares.difference.name, shares.difference.value) == ("a", "c", "a − c", 1)
    assert (shares.difference.low, shares.difference.high) == (pytest.approx(1 - 2 * wilson_interval(0, 3)[1]), 1)


def test_compare_counts_each_cluster_once():
    """Three clusters, one of which is better on two problems by less than it is worse on the third."""
    ours = [[1.0], [1.0], [0.0], [1.0], [1.0], [0.0]]
    theirs = [[0.0], [1.0], [1.0], [0.0], [0.0], [0.0]]
    clusters = [0, 0, 0, 1, 1, 2]
    [pair] = compare({"a": replied(ours, clusters=clusters), "b": replied(theirs)})
    assert (pair.better, pair.worse) == (1, 0)
    alone = compare({"a": replied(ours), "b": replied(theirs)})[0]
    assert (alone.better, alone.worse) == (3, 1)
    same = compare({"a": replied([[1.0]] * 6, clusters=clusters), "b": replied([[1.0]] * 6)})[0]
    assert same.difference.high == pytest.approx(wilson_interval(0, 3)[1])
    uneven = {"a": [[1.0], [1.0], [1.0], [0.0], [1.0]], "b": [[0.0], [0.0], [0.0], [1.0], [1.0]]}
    wide, narrow = (
        compare({name: replied(rewards, clusters=clusters) for name, rewards in uneven.items()})[0].difference
        for clusters in ([0, 0, 0, 1, 2], None)
    )
    assert wide.value == narrow.value and wide.high - wide.low > narrow.high - narrow.low


# -- how replies are drawn -------------------------------------------------------------------------------------------


def asked(*names):
    return [Problem(conversation(f"say {name}"), name) for name in names]


def test_answers_repeat_with_seed():
    some = asked("cats", "dogs", "birds", "purr")
    first, again, other = (
        sample_completions(POLICY, WORDS, some, long, SAMPLING, seed=seed).completions for seed in (3, 3, 4)
    )
    assert first == again != other


@pytest.mark.parametrize("batch_size", [1, 2, 3])
def test_answers_of_equal_problems_differ_and_ignore_batch_size(batch_size):
    """Eight times the same question and two others between them: by draws that are shared, every batch would say the same."""
    some = [*asked("cats") * 3, *asked("dogs"), *asked("cats") * 5, *asked("birds")]
    whole = sample_completions(POLICY, WORDS, some, long, SAMPLING, num_generations=2)
    parts = sample_completions(POLICY, WORDS, some, long, SAMPLING, num_generations=2, batch_size=batch_size)
    assert parts.completions == whole.completions and torch.equal(parts.rewards, whole.rewards)
    alike = [
        text for problem, texts in zip(some, parts.completions, strict=True) for text in texts if problem == some[0]
    ]
    assert len(alike) == 16 and len(set(alike)) > 8


def test_best_of_n_is_independent_of_batch_size():
    some = asked("cats") * 6
    how = {"num_generations": 2, "max_completion_length": 5}
    best = lambda size: best_of(
        Generator(GenerationRequest("m", "d", **how, batch_size=size), POLICY, WORDS, some, long, "long")
    )
    rows = best(2).rows
    assert rows == best(64).rows and len({row["messages"][-1]["content"] for row in rows}) > 2


def test_answers_no_problems_raise_user_error():
    with raises(UserError, argument="problems", problem="empty"):
        sample_completions(POLICY, WORDS, [], long, SAMPLING)
