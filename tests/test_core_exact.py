"""The oracle against loops that are written out here, and its numerical tools against known answers."""

import itertools
import math

import pytest
import torch
from facts import raises

from minirlhf.core import exact
from minirlhf.core.errors import ArgumentError
from minirlhf.core.exact import ToyLM
from minirlhf.core.logprobs import sequence_logps, token_logps
from minirlhf_course.ledger.registry import Draw

SIZES = [(2, 1, 1), (2, 4, 1), (3, 3, 2), (4, 2, 3)]


@pytest.fixture
def draw(suite_seed):
    return Draw("exact", suite_seed)


def close(a, b, atol=1e-12):
    a, b = (torch.as_tensor(x, dtype=torch.float64) for x in (a, b))
    torch.testing.assert_close(a, b, rtol=0, atol=atol)


def all_responses(vocab, length):
    """Every word over the vocabulary that ends at its first EOS (0) or at the full length."""
    found = []
    for n in range(1, length + 1):
        for word in itertools.product(range(vocab), repeat=n):
            if 0 not in word[:-1] and (word[-1] == 0 or n == length):
                found.append(word)
    return sorted(found)


# -- the toy model -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("vocab", "length", "prompts"), SIZES)
def test_toylm_responses_are_all_words_once(vocab, length, prompts):
    model = ToyLM(vocab, length, prompts)
    responses = model.completions()
    rows = [tuple(row[:n]) for row, n in zip(responses.tokens.tolist(), responses.lengths.tolist(), strict=True)]
    assert rows == all_responses(vocab, length)
    assert responses.terminated.tolist() == [row[-1] == 0 for row in rows]
    assert (responses.tokens[~responses.mask] == model.pad_token_id).all()


@pytest.mark.parametrize(("vocab", "length", "prompts"), SIZES)
def test_toylm_called_as_a_language_model_gives_the_enumerated_probabilities(draw, vocab, length, prompts):
    model = draw.toy(vocab, length, prompts)
    for prompt in range(prompts):
        batch = model.batch(prompt)
        logps = token_logps(
            model(batch["input_ids"], batch["attention_mask"]).logits, batch["input_ids"].clamp(max=vocab - 1)
        )
        close(torch.where(batch["mask"], logps, 0.0), model.completion_token_logps()[prompt])
        close(sequence_logps(logps, batch["mask"]).exp(), model.distribution()[prompt])
    close(model.distribution().sum(-1), torch.ones(prompts))


def test_toylm_distribution_by_hand():
    model = ToyLM(3, 2)
    with torch.no_grad():
        model.table[0, 0] = torch.tensor([0.2, 0.3, 0.5]).log() + 7.0  # logits are free up to a constant
        model.table[0, 1] = torch.tensor([1.0, 1.0, 1.0])  # after EOS: never read
        model.table[0, 2] = torch.tensor([0.1, 0.6, 0.3]).log()  # after token 1
        model.table[0, 3] = torch.tensor([0.9, 0.05, 0.05]).log()  # after token 2
    rows = all_responses(3, 2)
    probs = dict(zip(rows, model.distribution()[0].tolist(), strict=True))
    expected = {(0,): 0.2, (1, 0): 0.03, (1, 1): 0.18, (1, 2): 0.09, (2, 0): 0.45, (2, 1): 0.025, (2, 2): 0.025}
    assert probs == pytest.approx(expected)


def test_toylm_ignores_left_padding(draw):
    model = draw.toy(3, 3, 2)
    ids = model.batch(1)["input_ids"]
    padded = torch.cat([torch.full((len(ids), 2), model.pad_token_id), ids], 1)
    close(model(padded).logits[:, 2:], model(ids).logits)
    assert (model(padded).logits[:, :2] == 0).all()


def test_toylm_prompts_have_their_own_rows(draw):
    model = draw.toy(3, 2, 2)
    gradient = exact.gradient(model.distribution()[1, 0], model.table).view_as(model.table)
    assert (gradient[0] == 0).all()
    assert (gradient[1, 0] != 0).all()


def test_toylm_rejects_rows_without_a_prompt_and_sizes_too_small():
    with raises(ArgumentError, argument="input_ids", problem="missing"):
        ToyLM(3, 2)(torch.tensor([[0, 1]]))
    with raises(ArgumentError, value=(1, 2, 1), expected=(2, 1, 1)):
        ToyLM(1, 2)


@pytest.mark.parametrize(("vocab", "length", "prompts"), SIZES)
def test_toylm_set_distribution_is_met(draw, vocab, length, prompts):
    model = draw.toy(vocab, length, prompts)
    before = model.distribution()
    probs = draw.distribution(before.shape[1])
    model.set_distribution(probs, prompt=prompts - 1)
    close(model.distribution()[prompts - 1], probs)
    close(model.distribution()[: prompts - 1], before[: prompts - 1])


def test_toylm_action_values_satisfy_the_bellman_equations(draw):
    """V(s) = Σ_a π(a|s) Q(s, a), and Q(s, a) is the value of the next prefix, or the reward where the response ends."""
    model = draw.toy(3, 3, 2)
    responses = model.completions()
    rewards = draw.normal(len(responses.tokens), scale=2.0)
    state, action = model.action_values(rewards, prompt=1)
    rows = all_responses(3, 3)
    v = {row[:t]: state[i, t] for i, row in enumerate(rows) for t in range(len(row))}
    q = {row[: t + 1]: action[i, t] for i, row in enumerate(rows) for t in range(len(row))}
    ends = dict(zip(rows, rewards, strict=True))
    for prefix, value in v.items():
        logits = model.table[1, model._prefix_index(prefix)]
        policy = torch.softmax(logits, -1)
        close(value, sum(policy[a] * q[(*prefix, a)] for a in range(3)))
    for taken, value in q.items():
        close(value, ends[taken] if taken in ends else v[taken])
    close(v[()], exact.expectation(model.distribution()[1], rewards))
    assert (state[~responses.mask] == 0).all()
    assert (action[~responses.mask] == 0).all()


# -- distributions -----------------------------------------------------------------------------------------------


def test_entropy_divergence_and_regularised_value_by_hand():
    p, q = torch.tensor([0.5, 0.5, 0.0]).double(), torch.tensor([0.25, 0.5, 0.25]).double()
    assert exact.entropy(p).item() == pytest.approx(math.log(2))
    assert exact.divergence(p, q).item() == pytest.approx(0.5 * math.log(2))
    assert exact.divergence(q, p).item() == math.inf
    assert exact.divergence(p, p).item() == 0
    assert exact.expectation(q, torch.tensor([4.0, 2.0, 8.0]).double()).item() == 4
    assert exact.regularised_value(p, q, torch.tensor([1.0, 3.0, 9.0]).double(), 2.0).item() == pytest.approx(
        2 - math.log(2)
    )


@pytest.mark.parametrize("beta", [0.2, 1.0, 5.0])
def test_maximise_finds_the_known_optimum(draw, beta):
    ref, rewards = draw.distribution(6), draw.uniform(6, low=-1, high=1)
    found = exact.maximise(lambda p: exact.regularised_value(p, ref, rewards, beta), 6)
    close(found, torch.softmax(ref.log() + rewards / beta, -1), atol=1e-7)


@pytest.mark.parametrize("lead", [0.82, 0.88, 0.94])
def test_maximise_comes_back_from_a_corner(lead):
    """A step of L-BFGS into a corner of the simplex leaves hardly a gradient on logits; these are rewards where that happens."""
    ref = torch.tensor([0.15, 0.15, 0.7], dtype=torch.float64)
    for other in (0.91, 0.93, 0.95):
        rewards = torch.tensor([0.35 + 0.05 * lead + 0.045, 0.06 + 0.25 * other, 0.699], dtype=torch.float64)
        found = exact.maximise(lambda p, r=rewards: exact.regularised_value(p, ref, r, 0.08), 3)
        close(found, torch.softmax(ref.log() + rewards / 0.08, -1), atol=1e-6)


def test_maximise_is_right_to_nine_digits_for_any_price(draw):
    """From prices that leave hardly anything but the best to such as leave nearly the reference."""
    for beta in (0.08, 0.4, 1.0, 2.5, 10.0):
        for _ in range(12):
            ref, rewards = draw.distribution(3), draw.uniform(3, low=-1, high=1)
            found = exact.maximise(lambda p, r=ref, x=rewards, b=beta: exact.regularised_value(p, r, x, b), 3)
            close(found, torch.softmax(ref.log() + rewards / beta, -1), atol=1e-9)


def test_maximise_with_restarts_keeps_the_best():
    """Two peaks: near outcome 0 a low one, near outcome 1 a high one."""
    peaks = lambda p: 5 * p[0] ** 4 + 6 * p[1] ** 4
    assert exact.maximise(peaks, 2, restarts=8)[1].item() > 0.99


# -- derivatives and integrals -----------------------------------------------------------------------------------


def test_gradient_covers_inputs_that_do_not_matter():
    x, y = torch.tensor([2.0, 3.0], requires_grad=True), torch.tensor([[1.0]], requires_grad=True)
    assert exact.gradient((x**2).sum(), x, y).tolist() == [4.0, 6.0, 0.0]


def test_finite_difference_is_of_fourth_order(draw):
    """Half the step, a sixteenth of the error, as long as rounding is far away."""
    x = draw.uniform(2, 3, low=0.5, high=1.5)
    f = lambda z: (z.sin() * z.exp()).sum()
    truth = (x.cos() + x.sin()) * x.exp()
    errors = [(exact.finite_difference(f, x, step) - truth).abs().sum().item() for step in (0.08, 0.04, 0.02)]
    for coarse, fine in itertools.pairwise(errors):
        assert math.log2(coarse / fine) == pytest.approx(4, abs=0.1)
    close(exact.finite_difference(f, x), truth, atol=1e-10)


def test_finite_difference_is_exact_for_polynomials_of_degree_four(draw):
    x = draw.uniform(4, low=-1, high=1)
    close(exact.finite_difference(lambda z: (z**4).sum(), x, step=0.1), 4 * x**3)
    error = exact.finite_difference(lambda z: (z**5).sum(), x, step=0.1) - 5 * x**4
    close(error, torch.full_like(x, -4 * 0.1**4))  # the first term that is left


def test_gaussian_expectation_gives_the_moments():
    mean, std = 0.7, 1.3
    moments = [1, mean, mean**2 + std**2, mean**3 + 3 * mean * std**2, mean**4 + 6 * mean**2 * std**2 + 3 * std**4]
    for power, moment in enumerate(moments):
        close(exact.gaussian_expectation(lambda x, power=power: x**power, mean, std), moment, atol=1e-11)
    close(exact.gaussian_expectation(torch.exp, mean, std), math.exp(mean + std**2 / 2), atol=1e-6)


@pytest.mark.parametrize("nodes", [1, 2, 5, 9])
def test_integrate_is_exact_up_to_its_degree_and_not_beyond(nodes):
    low, high = -0.5, 1.5
    for degree in range(2 * nodes):
        truth = (high ** (degree + 1) - low ** (degree + 1)) / (degree + 1)
        close(exact.integrate(lambda x, degree=degree: x**degree, low, high, nodes), truth, atol=1e-12)
    degree = 2 * nodes
    truth = (high ** (degree + 1) - low ** (degree + 1)) / (degree + 1)
    assert abs(exact.integrate(lambda x: x**degree, low, high, nodes).item() - truth) > 1e-6
