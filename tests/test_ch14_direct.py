"""Direct alignment on the assistant world: every way runs, gives what it says, and leaves what it starts from alone."""

import math
from dataclasses import replace

import pytest
import torch

from minirlhf.data import tasks
from minirlhf.data.preferences import SimulatedAnnotator
from minirlhf.data.toys import poem_critic
from minirlhf.data.types import PreferencePair
from minirlhf.equations.kl import reverse_kl
from minirlhf.equations.rlhf import beta_for_kl, optimal_logps
from minirlhf.stages import pipeline
from minirlhf.stages.pipeline import PretrainPlan, SFTPlan, with_seed
from minirlhf.trainers.sft import SFTConfig
from minirlhf_course.chapters.ch09_regularisation.equations import forward_kl_optimal_logps
from minirlhf_course.chapters.ch14_direct_alignment import direct, displacement

SHORT = SFTConfig(max_steps=8, batch_size=16, learning_rate=3e-3)
PLAN = replace(direct.PAIRS, pairs=24, held_out=8, training=replace(direct.PAIRS.training, max_steps=2))
FEW = replace(direct.TRAINING, max_steps=4, batch_size=8)


@pytest.fixture(scope="module")
def world():
    return tasks.get("assistant")


@pytest.fixture(scope="module")
def sft(world):
    base = pipeline.pretrain(world, PretrainPlan(documents=64, training=SHORT), quiet=True)
    return pipeline.sft(world, base, SFTPlan(demonstrations=64, training=SHORT), quiet=True)


@pytest.fixture(scope="module")
def pairs(world, sft):
    return pipeline.preferences(world, sft, PLAN)[0]


def weights(policy):
    return torch.cat([p.detach().flatten() for p in policy.model.parameters()])


def test_at_kl_reads_a_run_where_it_passes_the_kl():
    places = [
        direct.PolicyMetrics(gold, kl, length)
        for gold, kl, length in ((0.0, 0.0, 4.0), (1.0, 2.0, 6.0), (0.5, 4.0, 10.0))
    ]
    assert direct.at_kl(places, 1.0) == direct.PolicyMetrics(pytest.approx(0.5), 1.0, pytest.approx(5.0))
    assert direct.at_kl(places, 3.0) == direct.PolicyMetrics(pytest.approx(0.75), 3.0, pytest.approx(8.0))
    assert direct.at_kl(places, 9.0) == places[-1]  # never reached: the end


def test_compared_has_negative_true_margins_where_labels_are_wrong(world, sft, pairs):
    noisy = direct.labelled_pairs(world, sft, 64, SimulatedAnnotator(temperature=0.0, flip=1.0))  # every label wrong
    gaps = [example.margin for example in direct.compared(sft, noisy, world)]
    assert max(gaps) <= 0 < max(example.margin for example in direct.compared(sft, noisy))


@pytest.mark.slow
def test_dpo_path_is_one_run_stopped_and_resumed(world, sft, pairs, tmp_path):
    start = weights(sft)
    places, policy = direct.path(world, sft, direct.compared(sft, pairs), "dpo", FEW, (2, 4), tmp_path / "run")
    whole = direct.learn(sft, direct.compared(sft, pairs), "dpo", FEW)
    assert torch.equal(weights(policy), weights(whole))
    assert len(places) == 3 and places[0].kl == pytest.approx(0.0, abs=1e-6) and places[-1].kl > 0
    assert torch.equal(weights(sft), start)


@pytest.mark.parametrize("moving", [False, True])
def test_dpo_rounds_start_from_the_policy_of_the_last(world, sft, moving):
    one = direct.rounds(world, sft, with_seed(PLAN, 1), "dpo", FEW, count=2, moving=moving)
    two = direct.rounds(world, sft, with_seed(PLAN, 1), "dpo", FEW, count=2, moving=moving)
    assert torch.equal(weights(one), weights(two)) and not torch.equal(weights(one), weights(sft))


def test_dpo_with_discriminator_moves_the_policy(world, sft):
    policy = direct.with_discriminator(world, sft, PLAN, "dpo", FEW, count=2)
    assert not torch.equal(weights(policy), weights(sft))


def test_tagged_model_is_measured_under_its_tag(world, sft, pairs):
    assert {direct.GOOD, direct.BAD} <= set(world.words)
    assert not any(p.split()[0] in (direct.GOOD, direct.BAD) for p in world.prompts("train") + world.prompts("test"))
    place = direct.measure_tagged(world, direct.tagged(sft, pairs, SHORT), sft, direct.GOOD, replies=1)
    assert math.isfinite(place.gold) and place.kl > 0


def test_measure_tagged_without_a_tag_is_measure(world, sft):
    bare = direct.measure_tagged(world, sft, sft, "", replies=1)
    plain = direct.measure(world, sft, sft, replies=1)
    assert bare.gold == pytest.approx(plain.gold) and bare.length == pytest.approx(plain.length)
    assert bare.kl == pytest.approx(0.0, abs=1e-3)


def test_alike_sorts_pairs_by_their_likeness():
    told = lambda chosen, rejected: PreferencePair("q", chosen, rejected)
    pairs = [told("a b c", "x y z"), told("a b c", "a b d"), told("a b c", "a y z"), told("a b", "c d")]
    near, far = direct.alike(pairs, share=0.25)
    assert [p.rejected for p in near] == ["a b d"] and far[0].rejected in ("x y z", "c d")


def test_dpo_moved_is_measured_against_the_start(world, sft, pairs):
    examples = direct.compared(sft, pairs)
    still = direct.moved(sft, sft, examples)
    assert still["chosen"] == still["rejected"] == 0.0
    policy = direct.learn(sft, examples, "dpo", FEW)
    after = direct.moved(policy, sft, examples)
    assert after["chosen"] > after["rejected"] and 0.5 < after["accuracy"] <= 1.0
    assert direct.last_mean(policy, "loss", 2) == pytest.approx(sum(policy.history["loss"][-2:]) / 2)


def test_ches_of_reads_the_states_that_predict_the_answer(world, sft, pairs):
    """One pair by hand: the states from the prompt's last token to the last but one, averaged; the order of the pairs is nothing."""
    examples = direct.compared(sft, pairs)
    scores = displacement.ches_of(sft, examples, batch_size=5)
    assert len(scores) == len(examples)
    torch.testing.assert_close(displacement.ches_of(sft, examples[::-1]).flip(0), scores, atol=1e-5, rtol=1e-5)

    def mean_state(answer):
        with torch.no_grad():
            found = sft.model(torch.tensor([answer.input_ids]), output_hidden_states=True).hidden_states[-1][0]
        said = [k for k, kept in enumerate(answer.loss_mask) if kept]
        return found[[k - 1 for k in said]].mean(0)

    w, l = mean_state(examples[3].chosen), mean_state(examples[3].rejected)
    assert float(scores[3]) == pytest.approx(float(w @ l - w @ w), rel=1e-4, abs=1e-4)
    high, low = displacement.ends_by(scores, pairs)
    assert len(high) == len(low) == len(pairs) // 4
    assert scores[pairs.index(high[0])] == scores.max() and scores[pairs.index(low[-1])] == scores.min()


def test_dpop_penalty_and_forward_kl_on_the_forty_replies():
    """From which penalty on DPO-Positive stays at the reference, and where the optimum of a forward KL lies below the frontier."""
    world = poem_critic()
    ref, rewards = world.reference.distribution()[0].detach(), world.rewards
    ref_logps, wins = ref.log(), torch.sigmoid(rewards[:, None] - rewards)
    won = wins @ ref  # against a reply of the reference
    assert 2 * (won.max() / won.min() - 1) == pytest.approx(3.1, abs=0.05)
    won = (wins * (1 - torch.eye(len(ref), dtype=ref.dtype))) @ ref  # ... and another one: won, and lost
    pull = won - (1 - ref - won)
    assert ((pull[:, None] - pull) / won).max() == pytest.approx(5.3, abs=0.05)
    covering = forward_kl_optimal_logps(ref_logps, rewards, beta=0.5)
    distance = float(reverse_kl(covering, ref_logps))
    assert distance == pytest.approx(4.1, abs=0.05)
    beta = beta_for_kl(ref_logps, rewards, budget=distance)
    below = optimal_logps(ref_logps, rewards, beta=beta).exp() @ rewards - covering.exp() @ rewards
    assert below == pytest.approx(0.2, abs=0.05)
