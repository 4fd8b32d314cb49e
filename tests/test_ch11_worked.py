"""The worked numbers of chapter 11's page, from the definitions: by counting, by summing over the forty replies, by plain quadrature."""

import copy
import math

import pytest
import torch
from facts import raises

from minirlhf.core.errors import ArgumentError
from minirlhf.data.toys import poem_critic
from minirlhf.equations.selection import best_of_several_cdf, select_top_per_prompt, top_overall
from minirlhf_course.chapters.ch11_rejection_sampling.equations import top_k_density_ratio

MATRIX = torch.tensor(
    [[0.7, 0.3, 0.5, 0.2], [0.4, 0.8, 0.6, 0.5], [0.9, 0.3, 0.4, 0.7], [0.2, 0.5, 0.8, 0.6], [0.5, 0.4, 0.3, 0.6]]
)


def test_top_per_prompt_and_top_overall_on_the_matrix_of_the_chapter():
    """Replies, mean reward, prompts left."""
    flat = MATRIX.flatten()
    ways = {
        "best of each": select_top_per_prompt(MATRIX) + 4 * torch.arange(5),
        "best five": top_overall(MATRIX, k=5),
        "threshold": (flat >= 0.6).nonzero().flatten(),
    }
    table = {way: (len(x), round(float(flat[x].mean()), 2), len((x // 4).unique())) for way, x in ways.items()}
    assert table == {"best of each": (5, 0.76, 5), "best five": (5, 0.78, 4), "threshold": (8, 0.71, 5)}
    assert round(float(flat.mean()), 2) == 0.51
    assert 5 * (1 - math.comb(16, 5) / math.comb(20, 5)) == pytest.approx(3.6, abs=0.01)  # prompts left by chance
    assert (
        float(MATRIX[4].max()) == pytest.approx(0.6) and [int(i) // 4 for i in top_overall(MATRIX, k=5)].count(2) == 2
    )
    assert (flat[0] == flat[11]) and float(flat[0]) == pytest.approx(0.7)
    assert (flat[5] == flat[14]) and float(flat[5]) == pytest.approx(0.8)


def test_best_of_n_kl_of_a_coin_is_below_the_formula():
    right, wrong = 0.9375, 0.0625
    assert wrong == 0.5**4 and right == 1 - wrong
    distance = right * math.log(1.875) + wrong * math.log(0.125)
    assert distance == pytest.approx(0.459356, abs=1e-6)
    formula = {n: math.log(n) - (n - 1) / n for n in (4, 16, 64, 256)}
    assert formula[4] == pytest.approx(0.636294, abs=1e-6) and formula[64] == pytest.approx(3.175, abs=5e-4)
    assert formula[256] - formula[16] == pytest.approx(2.714, abs=5e-4)
    assert math.log(16) == pytest.approx(2.77, abs=5e-3) and 1 / 16 - 1 / 256 == 15 / 256
    assert math.log(2) == pytest.approx(0.693, abs=5e-4)
    turning = 4 ** (-1 / 3)  # below this quantile the advantage of the best of four is negative
    assert turning == pytest.approx(0.63, abs=5e-3) and 4 * turning**3 == pytest.approx(1.0)


def mean(f, steps=200_000):
    """∫₀¹ f(u) du by the midpoint rule."""
    u = (torch.arange(steps, dtype=torch.float64) + 0.5) / steps
    return float(f(u).mean())


def test_top_k_density_ratio_of_two_of_eight_is_more_selective_than_one_of_four():
    found = {}
    for n, k in ((4, 1), (8, 2), (64, 16)):

        def ratio(u, n=n, k=k):
            return top_k_density_ratio(u, n=n, k=k)

        distance = mean(lambda u, ratio=ratio: torch.special.xlogy(ratio(u), ratio(u)))
        found[n] = (distance, mean(lambda u, ratio=ratio: u * ratio(u)))
    assert found[4] == pytest.approx((0.636, 0.800), abs=5e-4)
    assert found[8] == pytest.approx((0.832, 0.833), abs=5e-4)
    assert found[4][0] < found[8][0] < found[64][0] < math.log(4) == pytest.approx(1.386, abs=5e-4)
    assert mean(lambda u: u * 4 * (u >= 0.75)) == pytest.approx(0.875, abs=5e-4)  # the limit: the best quarter


def test_verifier_finds_a_right_answer_that_the_vote_does_not():
    """The right answer has probability .4, one wrong answer .45: a vote of many samples gives the wrong one."""
    within_eight = 1 - 0.6**8
    assert within_eight == pytest.approx(0.983, abs=5e-4)

    def vote(n):
        """Probability that the right answer has the most of n votes, ties shared; the rest of .15 is a third answer."""
        total = 0.0
        for right in range(n + 1):
            for wrong in range(n - right + 1):
                third = n - right - wrong
                ways = math.comb(n, right) * math.comb(n - right, wrong)
                votes = [right, wrong, third]
                if right == max(votes):
                    total += ways * 0.4**right * 0.45**wrong * 0.15**third / votes.count(right)
        return total

    assert vote(1) == pytest.approx(0.4) and vote(1) > vote(100) > vote(400)


@pytest.mark.parametrize(("n", "k", "argument"), [(4, 5, "k"), (4, 0, "k"), (0, 1, "n")])
def test_top_k_density_ratio_refuses_more_kept_than_drawn(n, k, argument):
    with raises(ArgumentError, argument=argument, value={"n": n, "k": k}[argument]):
        top_k_density_ratio(torch.tensor([0.5]), n=n, k=k)


def test_tilt_at_the_kl_of_best_of_four_wins_more_often():
    def tilted(c):
        """Distance and win rate of the density e^(cu) over its mean."""
        size = mean(lambda u: torch.exp(c * u), 20_000)
        win = mean(lambda u: u * torch.exp(c * u), 20_000) / size
        return c * win - math.log(size), win

    low, high = 0.1, 20.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if tilted(middle)[0] < math.log(4) - 0.75 else (low, middle)
    assert tilted(low)[1] == pytest.approx(0.804, abs=5e-4) and tilted(low)[1] > 0.800


def test_best_of_several_cdf_of_two_models_that_fail_on_other_questions():
    """Sums and riddles: F at "wrong" is .1 and .9."""
    one = 1 - (0.1**4 + 0.9**4) / 2
    both = 1 - 0.1**2 * 0.9**2
    assert (one, both) == pytest.approx((0.672, 0.992), abs=5e-4)
    cdfs = torch.tensor([[[0.1], [0.9]], [[0.9], [0.1]]], dtype=torch.float64)
    for tries, solved in (((4, 0), one), ((2, 2), both)):
        assert float(
            1 - torch.stack([best_of_several_cdf(kind, counts=tries) for kind in cdfs]).mean()
        ) == pytest.approx(solved)


# -- the poem ----------------------------------------------------------------------------------------------------------


class Poem:
    """The forty replies: probabilities, rewards and true worth as plain lists, π_n by adding up."""

    def __init__(self):
        self.world = poem_critic()
        self.reward, self.gold = self.world.rewards.tolist(), self.world.gold.tolist()
        self.start = self.probs(1.0)

    def probs(self, temperature):
        model = copy.deepcopy(self.world.reference)
        with torch.no_grad():
            model.table.copy_(model.table.log_softmax(-1) / temperature)
        return model.distribution()[0].detach().double().tolist()

    def best_of(self, n, probs=None):
        probs, law, below = probs or self.start, [0.0] * len(self.reward), 0.0
        for value in sorted(set(self.reward)):
            tied = [i for i, r in enumerate(self.reward) if r == value]
            mass = sum(probs[i] for i in tied)
            for i in tied:
                law[i] = ((below + mass) ** n - below**n) * probs[i] / mass
            below += mass
        return law

    def mean(self, law, values):
        return sum(p * v for p, v in zip(law, values, strict=True))

    def distance(self, law):
        return sum(p * math.log(p / q) for p, q in zip(law, self.start, strict=True) if p > 0)

    def entropy(self, law):
        return -sum(p * math.log(p) for p in law if p > 0)


@pytest.fixture(scope="module")
def poem():
    return Poem()


def test_best_of_n_poems_have_reward_gold_and_kl(poem):
    assert len(poem.start) == 40 and poem.mean(poem.start, poem.reward) == pytest.approx(0.69, abs=5e-3)
    said = {1: (0.692, 0.476), 4: (1.460, 0.898), 16: (2.012, 0.611), 256: (2.699, -0.117)}
    for n, (reward, gold) in said.items():
        law = poem.best_of(n)
        assert poem.mean(law, poem.reward) == pytest.approx(reward, abs=6e-4)
        assert poem.mean(law, poem.gold) == pytest.approx(gold, abs=6e-4)
    too_large = {n: math.log(n) - (n - 1) / n - poem.distance(poem.best_of(n)) for n in (4, 16, 256)}
    assert too_large == pytest.approx({4: 0.05, 16: 0.11, 256: 0.44}, abs=5e-3)
    assert poem.entropy(poem.best_of(64)) == pytest.approx(1.81, abs=6e-3)
    assert poem.entropy(poem.start) == pytest.approx(2.30, abs=6e-3)
    assert poem.entropy(poem.best_of(8)) == pytest.approx(2.49, abs=6e-3)
    assert poem.mean(poem.best_of(4096), poem.reward) == pytest.approx(3.0, abs=1e-3)


def test_best_of_four_poems_lie_below_the_frontier(poem):
    far, low, high = poem.distance(poem.best_of(4)), 0.05, 50.0
    for _ in range(80):
        beta = math.sqrt(low * high)
        weights = [p * math.exp(r / beta) for p, r in zip(poem.start, poem.reward, strict=True)]
        law = [w / sum(weights) for w in weights]
        low, high = (beta, high) if poem.distance(law) > far else (low, beta)
    assert poem.mean(law, poem.reward) == pytest.approx(1.509, abs=6e-4)
    assert poem.mean(law, poem.gold) == pytest.approx(0.714, abs=6e-4)


def test_best_of_n_poems_at_low_temperature_have_more_gold(poem):
    said = {0.5: (1.473, 1.305), 1.0: (2.012, 0.611), 2.0: (2.310, 0.224)}
    for temperature, (reward, gold) in said.items():
        law = poem.best_of(16, poem.probs(temperature))
        assert (poem.mean(law, poem.reward), poem.mean(law, poem.gold)) == pytest.approx((reward, gold), abs=6e-4)
