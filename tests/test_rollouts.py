"""What a step learns from: refilled batches, greedy baselines, graded steps, filtered completions, a sampler that lags behind."""

import copy
import dataclasses
import math

import pytest
import torch
from facts import raises

from minirlhf import recipes
from minirlhf.core.errors import UserError
from minirlhf.core.exact import ToyLM
from minirlhf.data import tasks
from minirlhf.data.chat import conversation
from minirlhf.data.formats import Problem
from minirlhf.data.types import Rollout
from minirlhf.equations.aggregation import sequence_sum, token_mean
from minirlhf.models.sampling import Sampling, sample
from minirlhf.models.tiny import tiny_model
from minirlhf.models.tokenizers import word_tokenizer
from minirlhf.recipes import (
    DAPO,
    DECOUPLED_PPO,
    DR_GRPO,
    GRPO,
    REMAX,
    DynamicSampling,
    GroupAdvantage,
    ProcessSupervision,
    RewardToGo,
)
from minirlhf.recipes.parts import (
    AdvantageEstimator,
    RolloutExtras,
    ScoredRollout,
    gfpo_reward_per_token,
    gfpo_shortest,
    mask_truncated_completions,
    off_policy_sequence_mask,
    truncated_importance,
)
from minirlhf.trainers.loop import TrainingLoop
from minirlhf.trainers.online import OnlineConfig, compute_metrics, train_online
from minirlhf.trainers.policy_update import policy_losses
from minirlhf.trainers.rollouts import BehaviorPolicy, add_ref_logps_and_values, collect_rollouts, recompute_old_logps
from minirlhf.trainers.toy import EnumerableEnv, train_toy

WORDS = word_tokenizer(("go", "stop", "one", "two"))
PROBLEMS = [Problem(conversation(text)) for text in ("go", "stop", "go one", "go two")]
CONFIG = OnlineConfig(max_steps=2, batch_size=4, num_generations=4, max_completion_length=3, seed=3)


def rows_of(lm: ToyLM, rows: list[int], num_generations: int, old: ToyLM | None = None) -> Rollout:
    """A rollout of these responses; sampled by ``old``, if it is given."""
    batch, index = lm.batch(), torch.tensor(rows)
    mask, logps = batch["mask"][index], (old or lm).completion_token_logps()[0][index].detach()
    return Rollout(
        batch["input_ids"][index],
        batch["attention_mask"][index],
        mask,
        logps,
        logps,
        torch.where(mask, 0, -1),
        lm.completions().terminated[index],
        num_generations,
    )


def graded_rows(lm, rows, rewards, num_generations, old=None):
    rollout = rows_of(lm, rows, num_generations, old)
    grades = rollout.grouped(rewards[torch.tensor(rows)])
    return ScoredRollout(rollout, grades, torch.ones_like(grades, dtype=torch.bool))


def step_on(lm, graded, recipe):
    """Gradient of the loss of one whole step."""
    rollout = graded.rollout
    config = OnlineConfig(batch_size=1, num_generations=rollout.num_generations, max_completion_length=lm.max_len)
    weights = recipe.update.token_weights(rollout)
    rows = torch.arange(len(rollout))
    losses = list(policy_losses(lm, graded, recipe.advantages(graded), recipe, config, rows, weights, []))
    return torch.autograd.grad(sum(losses), lm.table)[0]


@pytest.fixture
def world():
    lm, ref = ToyLM(3, 2, seed=1), ToyLM(3, 2, seed=2)
    count = lm.distribution().shape[1]
    return lm, ref, torch.randn(count, dtype=torch.float64, generator=torch.Generator().manual_seed(3))


# -- credit ------------------------------------------------------------------------------------------------------


def test_remax_expected_step_is_exact_gradient(world):
    lm, ref, rewards = world
    probs, config = lm.distribution()[0], OnlineConfig()
    likeliest = sample(
        lm,
        [[lm.vocab_size]],
        sampling=Sampling(max_completion_length=lm.max_len, greedy=True),
        eos_token_id=lm.eos_token_id,
        pad_token_id=lm.pad_token_id,
        seed=0,
        use_cache=False,
    )
    greedy = ScoredRollout(likeliest, torch.full((1, 1), 0.7, dtype=torch.float64), torch.ones(1, 1, dtype=torch.bool))
    total = torch.zeros_like(lm.table)
    for i in range(len(probs)):
        graded = dataclasses.replace(graded_rows(lm, [i], rewards, 1), greedy=greedy)
        step = step_on(lm, add_ref_logps_and_values(graded, ref, None, config.temperature), REMAX.with_(beta=0.3))
        total += probs[i].detach() * step
    q = ref.distribution()[0].detach()
    exact = torch.autograd.grad((probs * rewards).sum() - 0.3 * (probs * (probs / q).log()).sum(), lm.table)[0]
    torch.testing.assert_close(-total, exact, atol=1e-6, rtol=1e-6)


def test_remax_ignores_prompts_with_ungraded_greedy_completion(world):
    lm, _, rewards = world
    graded = graded_rows(lm, [0, 1, 2, 3], rewards, 2)
    firsts = dataclasses.replace(graded.rollout.select(torch.tensor([0, 2])), num_generations=1)
    known = torch.tensor([[True], [False]])
    graded = dataclasses.replace(graded, greedy=ScoredRollout(firsts, torch.zeros(2, 1).double(), known))
    advantages = REMAX.with_(kl=None).advantages(graded)
    assert advantages[:2].any() and not advantages[2:].any()


def test_reinforce_pp_expected_step_is_exact_gradient(world):
    lm, ref, rewards = world
    recipe = recipes.REINFORCE_PP.with_(whiten_advantages=False, weights=sequence_sum, beta=0.3)
    probs, total = lm.distribution()[0], torch.zeros_like(lm.table)
    for i in range(len(probs)):
        graded = add_ref_logps_and_values(graded_rows(lm, [i], rewards, 1), ref, None, 1.0)
        total += probs[i].detach() * step_on(lm, graded, recipe)
    q = ref.distribution()[0].detach()
    exact = torch.autograd.grad((probs * rewards).sum() - 0.3 * (probs * (probs / q).log()).sum(), lm.table)[0]
    torch.testing.assert_close(-total, exact)


def test_to_go_whitens_over_tokens(world):
    lm, _, rewards = world
    graded = graded_rows(lm, [0, 3, 5, 6], rewards, 1)
    tokens = RewardToGo()(graded, None)[graded.rollout.mask]
    assert float(tokens.mean()) == pytest.approx(0, abs=1e-9) and float(tokens.var()) == pytest.approx(1, abs=1e-6)


def test_process_supervision_of_one_step_is_grpo(world):
    lm, _, rewards = world
    graded = graded_rows(lm, [0, 3, 5, 6], rewards, 4)
    last = torch.full_like(graded.rollout.old_logps, math.nan)
    last[torch.arange(4), graded.rollout.mask.sum(-1) - 1] = graded.rewards.flatten()
    process = ProcessSupervision()(dataclasses.replace(graded, step_rewards=last), None)
    torch.testing.assert_close(process, GroupAdvantage(GRPO.credit.advantage)(graded, None))
    with raises(UserError, argument="step_rewards", problem="missing"):
        recipes.GRPO_PROCESS.advantages(graded)


def test_credit_complete_samples_only_what_recipe_needs(world):
    lm, _, rewards = world
    graded, asked = graded_rows(lm, [0, 3, 5, 6], rewards, 2), []
    greedy, steps = graded_rows(lm, [0, 1], rewards, 1), torch.zeros_like(graded.rollout.old_logps)
    more = RolloutExtras(lambda: asked.append("greedy") or greedy, lambda: asked.append("steps") or steps)
    for name, recipe in recipes.RECIPES.items():
        asked.clear()
        complete = recipe.credit.complete(graded, more)
        wanted = {"remax": ["greedy"], "grpo_process": ["steps"]}.get(name, [])
        assert asked == wanted
        assert complete.greedy is (greedy if "greedy" in wanted else None)
        assert complete.step_rewards is (steps if "steps" in wanted else None)


@dataclasses.dataclass(frozen=True)
class Both(AdvantageEstimator):
    """A credit that the library does not know: steps, and the whole against the greedy completion."""

    def complete(self, graded, more):
        return dataclasses.replace(graded, greedy=more.greedy(), step_rewards=more.steps())

    def __call__(self, graded, kl):
        rollout = graded.rollout
        assert graded.step_rewards.shape == rollout.mask.shape
        gained = graded.rewards - graded.greedy.rewards  # (P, G) - (P, 1)
        return torch.where(rollout.mask, gained.flatten()[:, None] + graded.step_rewards.nan_to_num(), 0.0)


def test_train_online_accepts_new_credit():
    asked = []

    def every_token(problems, completions):
        asked.append([len(words) for words in completions])
        return [[0.5] * len(words) for words in completions]

    recipe, policy = DR_GRPO.with_(credit=Both()), tiny_model("nano", WORDS, seed=0)
    options = {"tokenizer": WORDS, "quiet": True}
    history = train_online(policy, PROBLEMS, Stepwise(every_token), recipe, CONFIG, **options)
    assert [len(rows) for rows in asked] == [16, 16]  # the greedy completions have no graded steps
    longer = [n > sum(rows) for n, rows in zip(history["sampled_tokens"], asked, strict=True)]
    assert all(longer)  # they are counted
    with raises(UserError, argument="steps", problem="missing"):
        train_online(policy, PROBLEMS, likes_one, recipe, CONFIG, **options)


def test_train_toy_refuses_step_rewards(world):
    lm, ref, rewards = world
    with raises(UserError, argument="steps", problem="missing"):
        train_toy(lm, rewards[None], recipes.GRPO_PROCESS, CONFIG, ref_model=ref)


def test_shell_game_grades_steps_in_order():
    game = tasks.get("shell_game")
    prompt = game.prompts("train")[0]
    right = game.reference(prompt).split()
    cups = [word in "abcd" for word in right]
    assert [g == 1.0 for g in game.grade_steps(prompt, right)] == cups
    assert [math.isnan(g) for g in game.grade_steps(prompt, right)] == [not cup for cup in cups]
    wrong = list(right)
    wrong[3] = next(cup for cup in "abcd" if cup != right[3])
    assert game.grade_steps(prompt, wrong)[3] == 0.0 and game.grade_steps(prompt, wrong)[4] == 1.0
    assert game.grade_steps(prompt, ["answer", right[-1]])[1] == 1.0
    assert all(math.isnan(g) for g in game.grade_steps("no game", right))


# -- which samples count -----------------------------------------------------------------------------------------


def test_collect_retains_shortest_and_most_per_token(world):
    lm, _, _ = world
    lengths = lm.completions().mask.sum(-1)
    short, long = (lengths == 1).nonzero().flatten().tolist(), (lengths == 2).nonzero().flatten().tolist()
    rewards = torch.arange(float(len(lengths)), dtype=torch.float64)
    graded = graded_rows(lm, [long[0], short[0], long[1], *long[2:3]], rewards, 4)
    shaped = GRPO.with_(sample_filter=gfpo_shortest, num_kept=2, kl=None).collect(graded)
    assert shaped.valid.tolist() == [[True, True, False, False]]  # of equally long ones the earlier
    advantages = GRPO.with_(kl=None).advantages(shaped)[:, 0]
    assert float(advantages[0]) == pytest.approx(-float(advantages[1])) and not advantages[2:].any()
    per_token = gfpo_reward_per_token(graded.rewards, graded.rollout, graded.valid, num_kept=1 + 1)
    best = (graded.rewards / graded.rollout.grouped(graded.rollout.mask.sum(-1))).topk(2).indices
    assert sorted(per_token[0].nonzero().flatten().tolist()) == sorted(best[0].tolist())


def test_dapo_row_weights_leave_out_truncated_completions(world):
    lm, _, rewards = world
    terminated = lm.completions().terminated
    ends, cut = terminated.nonzero().flatten().tolist(), (~terminated).nonzero().flatten().tolist()
    graded = graded_rows(lm, [ends[0], cut[0], ends[1], cut[1]], rewards, 2)
    weights = DAPO.update.token_weights(graded.rollout)
    assert not weights[[1, 3]].any()
    torch.testing.assert_close(weights[[0, 2]], token_mean(graded.rollout.mask[[0, 2]]))


def test_train_online_skips_update_without_finished_completions():
    policy = tiny_model("nano", WORDS, seed=0)
    before = {k: v.clone() for k, v in policy.state_dict().items()}
    recipe = DR_GRPO.with_(keep=lambda rollout: torch.zeros(len(rollout), dtype=torch.bool))
    history = train_online(policy, PROBLEMS, likes_one, recipe, CONFIG, tokenizer=WORDS, quiet=True)
    assert history["skipped_updates"] == [1.0, 1.0]
    assert all(torch.equal(before[k], v) for k, v in policy.state_dict().items())
    assert mask_truncated_completions(rows_of(ToyLM(3, 2), [0, 1], 2)).dtype == torch.bool


def likes_one(problems, completions):
    return [float("one" in text.split()) for text in completions]


class Stepwise:
    """The same, and a grade for every token."""

    def __init__(self, steps):
        self.steps = steps

    def __call__(self, problems, completions):
        return likes_one(problems, completions)


def test_positive_coef_adds_likelihood_of_positive_completions(world):
    lm, _, rewards = world
    graded = graded_rows(lm, [0, 3, 5, 6], rewards.abs() * torch.tensor([1, -1] * len(rewards))[: len(rewards)], 4)
    good = (graded.rewards.flatten() > 0).nonzero().flatten()
    assert len(good) > 1
    graded.valid.view(-1)[good[0]] = False  # what could not be graded is not imitated
    without, with_them = (
        step_on(lm, graded, DR_GRPO.with_(max_completion_length=2, positive_coef=c)) for c in (0, 0.5)
    )
    logps = lm.completion_token_logps()[0][torch.tensor([0, 3, 5, 6])[good[1:]]][graded.rollout.mask[good[1:]]]
    expected = torch.autograd.grad(-0.5 * logps.mean(), lm.table)[0]
    torch.testing.assert_close(with_them - without, expected)


# -- refilling ---------------------------------------------------------------------------------------------------


def drawing(lm, groups_per_seed):
    """Draws groups of two with the rewards that are written down for each round."""
    seeds: list[int] = []

    def draw(seed):
        seeds.append(seed)
        rewards = torch.tensor(groups_per_seed[len(seeds) - 1], dtype=torch.float64)
        rows = [0, 1, 2, 3][: rewards.numel()]
        return ScoredRollout(rows_of(lm, rows, 2), rewards, torch.ones_like(rewards, dtype=torch.bool))

    return draw, seeds


MIXED, DEAD = [0.0, 1.0], [1.0, 1.0]


def test_collect_refills_until_batch_is_full(world):
    lm, _, _ = world
    draw, seeds = drawing(lm, [[MIXED, DEAD], [DEAD, DEAD], [MIXED, MIXED]])
    everything, graded, share = collect_rollouts(draw, DAPO, CONFIG.seed, pad_token_id=lm.pad_token_id)
    assert len(everything.rewards) == 6 and share == pytest.approx(2 / 6)
    assert graded.rewards.tolist() == [MIXED, MIXED] and len(graded.rollout) == 4
    assert seeds[0] == CONFIG.seed and len(set(seeds)) == 3


def test_collect_stops_at_max_refills(world):
    lm, _, _ = world
    draw, seeds = drawing(lm, [[DEAD, MIXED], [DEAD, DEAD], [DEAD, DEAD]])
    _, graded, share = collect_rollouts(
        draw, DAPO.with_(max_resampling_rounds=2), CONFIG.seed, pad_token_id=lm.pad_token_id
    )
    assert len(seeds) == 3 and graded.rewards.tolist() == [MIXED] and share == pytest.approx(1 / 6)
    draw, _ = drawing(lm, [[DEAD, DEAD]] * 2)
    assert (
        collect_rollouts(draw, DAPO.with_(max_resampling_rounds=1), CONFIG.seed, pad_token_id=lm.pad_token_id)[2] == 0.0
    )


def test_collect_draws_once_when_full_or_without_refill(world):
    lm, _, _ = world
    draw, seeds = drawing(lm, [[MIXED, MIXED]])
    assert collect_rollouts(draw, DAPO, CONFIG.seed, pad_token_id=lm.pad_token_id)[2] == 1.0 and len(seeds) == 1
    draw, seeds = drawing(lm, [[DEAD, DEAD]])
    assert collect_rollouts(draw, GRPO, CONFIG.seed, pad_token_id=lm.pad_token_id)[2] is None and len(seeds) == 1


def test_train_online_dapo_without_mixed_groups_keeps_policy():
    policy = tiny_model("nano", WORDS, seed=0)
    before = {k: v.clone() for k, v in policy.state_dict().items()}
    recipe = DAPO.with_(shape=(), max_resampling_rounds=1)
    history = train_online(policy, PROBLEMS, lambda p, c: [1.0] * len(c), recipe, CONFIG, tokenizer=WORDS, quiet=True)
    assert history["frac_kept"] == [0.0, 0.0] and history["sampled_tokens"][0] > 32
    assert all(torch.equal(before[k], v) for k, v in policy.state_dict().items())


def test_observe_counts_greedy_tokens_of_dropped_groups(world):
    lm, _, _ = world
    draw, _ = drawing(lm, [[MIXED, DEAD], [DEAD, MIXED]])

    def with_greedy(seed):
        graded = draw(seed)
        first = rows_of(lm, [0, 5], 1)
        return dataclasses.replace(graded, greedy=ScoredRollout(first, graded.rewards[:, :1], graded.valid[:, :1]))

    everything, graded, share = collect_rollouts(
        with_greedy, REMAX.with_(refill=DynamicSampling()), CONFIG.seed, pad_token_id=lm.pad_token_id
    )
    lengths_of = [int(lm.completions().mask[i].sum()) for i in range(6)]
    assert compute_metrics(everything, graded, share)["sampled_tokens"] == 2 * (
        sum(lengths_of[:4]) + lengths_of[0] + lengths_of[5]
    )


def test_observe_equals_computation_by_hand(world):
    lm, ref, rewards = world
    graded = add_ref_logps_and_values(graded_rows(lm, [0, 3, 5, 6], rewards, 2), ref, None, 1.0)
    metrics, rollout = compute_metrics(graded, graded, None), graded.rollout
    logps = [row[kept] for row, kept in zip(rollout.old_logps, rollout.mask, strict=True)]
    refs = [row[kept] for row, kept in zip(graded.ref_logps, rollout.mask, strict=True)]
    kl = [float(((b - a).exp() - 1 - (b - a)).sum()) for a, b in zip(logps, refs, strict=True)]
    assert metrics["kl"] == pytest.approx(sum(kl) / 4)
    assert metrics["neg_logp"] == pytest.approx(-float(torch.cat(logps).mean()))
    assert metrics["completion_length"] == sum(map(len, logps)) / 4
    assert "frac_most_common" not in metrics  # all of one prompt
    rollout.input_ids[0, 0] += 1
    assert compute_metrics(graded, graded, None)["frac_most_common"] == 0.25
    same = dataclasses.replace(rollout, input_ids=rollout.input_ids.clone(), mask=rollout.mask.clone())
    same.completion_ids[1:3], same.mask[1:3] = same.completion_ids[0], same.mask[0]
    assert compute_metrics(dataclasses.replace(graded, rollout=same), graded, None)["frac_most_common"] == 0.75


def test_improve_caps_minibatches_at_completions(world):
    lm, ref, rewards = world
    policies = []
    for many in (4, 9):
        policy, config = copy.deepcopy(lm), OnlineConfig(max_steps=2, batch_size=2, num_generations=2, seed=1)
        train_toy(policy, rewards[None], DR_GRPO.with_(num_minibatches=many), config, ref_model=ref)
        policies.append(policy.table)
    assert torch.equal(*policies)


def test_rollout_join_keeps_rows_of_different_width():
    model = tiny_model("nano", WORDS, seed=0)
    kinds = {"eos_token_id": WORDS.eos_token_id, "pad_token_id": WORDS.pad_token_id, "seed": 1, "num_generations": 2}
    parts = [
        sample(model, [[3, 4], [5]], sampling=Sampling(max_completion_length=2), **kinds),
        sample(model, [[3, 4, 5, 6]], sampling=Sampling(max_completion_length=5), **kinds),
    ]
    whole = Rollout.concatenate(parts, WORDS.pad_token_id)
    assert whole.prompt_width == 4 and len(whole) == 6 and whole.num_generations == 2
    rows = [(part, i) for part in parts for i in range(len(part))]
    for row, (part, i) in enumerate(rows):
        kept, width = part.mask[i], part.mask.shape[1]
        assert whole.completion_ids[row][whole.mask[row]].tolist() == part.completion_ids[i][kept].tolist()
        assert whole.old_logps[row, :width].tolist() == part.old_logps[i].tolist()
        seen, known = whole.attention_mask[row].bool(), part.attention_mask[i].bool()
        assert whole.input_ids[row][seen].tolist() == part.input_ids[i][known].tolist()
    with raises(ValueError, argument="num_generations", value=[1, 2]):
        Rollout.concatenate([parts[0], dataclasses.replace(parts[1], num_generations=1)], 0)


# -- a sampler that lags behind ----------------------------------------------------------------------------------


def test_enumerable_world_prompts_take_turns():
    lm = ToyLM(3, 2, num_prompts=3, seed=1)
    world = EnumerableEnv(lm, lm, {"reward": torch.zeros(lm.distribution().shape)})
    assert [world.sample_prompts(2, step, 0) for step in range(3)] == [[0, 1], [2, 0], [1, 2]]


def test_sampler_lags_by_staleness():
    model = tiny_model("nano", WORDS, seed=0)
    loop = TrainingLoop("lag", model, dataclasses.replace(CONFIG, max_steps=5), quiet=True)
    sampler, marks = BehaviorPolicy(loop, staleness=2), []
    weight = model.get_input_embeddings().weight
    for step in loop:
        policy, version = sampler.policy()
        marks.append((version, policy.get_input_embeddings().weight[0, 0].item()))
        with torch.no_grad():
            weight[0, 0] = float(step + 1)
        kept = {name.split(".")[1] for name in loop.memory}
        assert len(kept) <= 3
    assert [version for version, _ in marks] == [0, 0, 0, 1, 2] and [mark for _, mark in marks][3:] == [1.0, 2.0]
    assert BehaviorPolicy(loop, staleness=0).policy()[0] is model


def test_train_online_with_staleness_resumes_to_same_bits(tmp_path):
    config = dataclasses.replace(CONFIG, max_steps=6, save_steps=1, staleness=2, learning_rate=1e-2)

    def run(out, steps, resume=False):
        policy = tiny_model("nano", WORDS, seed=0)
        settings = dataclasses.replace(config, max_steps=steps)
        train_online(
            policy, PROBLEMS, likes_one, DECOUPLED_PPO, settings, tokenizer=WORDS, out=out, resume=resume, quiet=True
        )
        return policy.state_dict()

    whole = run(tmp_path / "whole", 6)
    run(tmp_path / "parts", 3)
    resumed = run(tmp_path / "parts", 6, resume=True)
    assert all(torch.equal(whole[key], resumed[key]) for key in whole)


def test_decoupled_ppo_corrected_step_is_exact_gradient():
    lm, old = ToyLM(4, 1, seed=1), ToyLM(4, 1, seed=2)  # one token: a token's ratio is the response's
    count = lm.distribution().shape[1]
    rewards = torch.randn(count, dtype=torch.float64, generator=torch.Generator().manual_seed(3))
    plain = {"credit": RewardToGo(whiten_advantages=False), "weights": sequence_sum}
    corrected = DECOUPLED_PPO.with_(**plain, importance_sampling_cap=1e9)
    probs = lm.distribution()[0]
    for wanted, recipe in ((True, corrected), (False, DECOUPLED_PPO.with_(**plain, corrections=()))):
        total = torch.zeros_like(lm.table)
        for i in range(count):
            graded = recompute_old_logps(graded_rows(lm, [i], rewards, 1, old), lm, 1.0)
            assert graded.rollout.behavior_logps[0, 0] != graded.rollout.old_logps[0, 0]
            chance = old.distribution()[0, i].detach()
            total += chance * step_on(lm, graded, recipe)
        exact = torch.autograd.grad((probs * rewards).sum(), lm.table, retain_graph=True)[0]
        assert torch.allclose(-total, exact) is wanted
    assert corrected.update.corrections[0].keywords == {"importance_sampling_cap": 1e9}
    assert truncated_importance in DECOUPLED_PPO.update.corrections


def test_not_left_behind_masks_bad_distant_completions(world):
    lm, _, rewards = world
    far = ToyLM(3, 2, seed=7)
    graded = graded_rows(lm, [0, 3, 5, 6], rewards, 4, far)
    recipe = DR_GRPO.with_(max_completion_length=2)
    advantages = recipe.advantages(graded)
    drift = torch.stack(
        [
            (far.completion_token_logps()[0] - lm.completion_token_logps()[0])
            .detach()[n][lm.completions().mask[n]]
            .mean()
            for n in (0, 3, 5, 6)
        ]
    )
    threshold = float(drift.detach().sort().values[1:3].mean())
    logps = lm.completion_token_logps()[0][[0, 3, 5, 6]].detach()
    factors = off_policy_sequence_mask(
        logps, graded.rollout, advantages, off_policy_mask_threshold=max(threshold, 1e-3)
    )
    expected = (advantages[:, 0] >= 0) | (drift <= max(threshold, 1e-3))
    assert factors.flatten().bool().tolist() == expected.tolist()
    weights = recipe.with_(corrections=(off_policy_sequence_mask,)).update.token_weights(graded.rollout)
    torch.testing.assert_close(weights, recipe.update.token_weights(graded.rollout))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["grpo", "dapo", "remax", "decoupled_ppo"])
def test_train_toy_raises_exact_reward_with_staleness(name):
    recipe = recipes.get(name)
    if recipe is DAPO:
        recipe = recipe.with_(shape=(), keep=None)  # two of two tokens would be overlong
    lm, ref = ToyLM(3, 2, seed=1), ToyLM(3, 2, seed=1)
    start = lm.distribution().detach()
    good = (start <= start.median()).double()  # the unlikelier half
    config = dataclasses.replace(CONFIG, max_steps=30, batch_size=8, num_generations=8, learning_rate=0.1, staleness=2)
    history = train_toy(lm, good, recipe, config, ref_model=ref)
    assert history["exact_reward"][-1] > float((start * good).sum()) + 0.2


def test_train_online_refuses_bad_settings_and_grades():
    with raises(UserError, argument="staleness", value=-1):
        OnlineConfig(staleness=-1)
    with raises(UserError, argument="max_resampling_rounds", value=-1):
        DR_GRPO.with_(refill=DynamicSampling(max_resampling_rounds=-1), max_completion_length=3).validate()

    def train(reward, recipe):
        train_online(tiny_model("nano", WORDS, seed=0), PROBLEMS, reward, recipe, CONFIG, tokenizer=WORDS, quiet=True)

    with raises(UserError, argument="steps", problem="missing"):
        train(likes_one, recipes.GRPO_PROCESS)
    with raises(UserError, argument="steps", value=1) as caught:
        train(Stepwise(lambda problems, completions: [[1.0] for _ in completions]), recipes.GRPO_PROCESS)
    assert caught.value.expected > 1
    with raises(UserError, argument="rewards", expected="[0, 1]"):
        train(lambda problems, completions: [2.0 * (i % 2) for i in range(len(completions))], recipes.BNPO)
