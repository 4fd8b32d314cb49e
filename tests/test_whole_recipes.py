"""Every row of the online table, whole: loss and gradient of an optimizer batch against the paper's objective, written out.

The objectives below are transcribed from the papers as loops over replies and tokens. They use nothing of the library but the
toy policy's table. The batch is ragged: two prompts with eight replies each, of one to five tokens, some cut off, one that could
not be graded. Where a row declares a deviation, the transcription has the row's way, and says so.

What no paper says and holds for all rows: a reply that could not be graded has advantage 0 and is part of no statistic of
rewards; its tokens count in the means over tokens and replies.
"""

import copy
import math
from dataclasses import dataclass, replace

import pytest
import torch

from minirlhf.core.exact import ToyLM
from minirlhf.data.types import Rollout
from minirlhf.equations.aggregation import high_entropy_weights
from minirlhf.recipes import RECIPES
from minirlhf.recipes.parts import RolloutExtras, ScoredRollout, masked_importance, sequence_importance
from minirlhf.trainers import policy_update, rollouts
from minirlhf.trainers.loop import TrainingLoop
from minirlhf.trainers.online import OnlineConfig, train_in_env
from minirlhf.trainers.rollouts import RolloutEnv

LIMIT, GROUP = 5, 8
BETA_REWARD, BETA_LOSS, EPS = 0.05, 0.04, 0.2


@dataclass
class Reply:
    """One completion; lists have an entry per token. ``logps`` are 0-d tensors with a gradient, the rest are numbers."""

    logps: list
    old: list
    ref: list
    behavior: list
    values: list
    steps: dict
    reward: float
    valid: bool
    ended: bool

    def __len__(self):
        return len(self.logps)

    def ratios(self):
        return [torch.exp(new - old) for new, old in zip(self.logps, self.old, strict=True)]

    def kl(self):
        """log π_old/π_ref of each token."""
        return [a - b for a, b in zip(self.old, self.ref, strict=True)]


@dataclass
class Batch:
    """The same batch for the library and for the transcriptions.

    ``rows``: which of the policy's responses the replies are; ``learned``: numbers of the replies in the optimizer batch;
    ``prompts``: of the groups.
    """

    policy: ToyLM
    graded: ScoredRollout
    groups: list
    greedy: list
    rows: list
    learned: list
    prompts: tuple = (0, 1)

    @property
    def replies(self):
        return [reply for group in self.groups for reply in group]

    def of(self, per_reply):
        """What an optimizer batch sums: the entries of its own replies, but for those that are None."""
        return [per_reply[i] for i in self.learned if per_reply[i] is not None]

    def entropy(self, i, t):
        """Of the distribution that token t of reply i comes from, by the probabilities of the table's row."""
        prefix = self.policy.completions().tokens[self.rows[i]][:t].tolist()
        logits = self.policy.table[self.prompts[i // GROUP], self.policy._prefix_index(prefix)].detach()
        chances = [math.exp(float(x)) for x in logits]
        return -sum(p / sum(chances) * math.log(p / sum(chances)) for p in chances)

    def now(self, learned, old=None):
        """This batch where the policy stands now, its old log-probabilities replaced, if others are given."""
        table = self.policy.completion_token_logps()
        at = lambda x, i, reply: [x[self.prompts[i // GROUP]][self.rows[i]][t] for t in range(len(reply))]
        replies = [
            replace(r, logps=at(table, i, r), old=r.old if old is None else [float(x) for x in at(old, i, r)])
            for i, r in enumerate(self.replies)
        ]
        return replace(self, groups=[replies[:GROUP], replies[GROUP:]], learned=learned)


def tables(seed=0):
    """Policy, sampler, reference and behaviour: near enough that ratios fall on both sides of every clip."""
    make = lambda s: ToyLM(3, LIMIT, num_prompts=2, seed=s)
    old = make(seed)
    others = [make(seed) for _ in range(3)]
    for number, other in enumerate(others, 1):
        with torch.no_grad():
            other.table.add_(0.35 * make(seed + 10 * number).table)
    return others[0], old, others[1], others[2]


def build(seed=0, drawn=None):
    """``drawn``: seed of the replies, where it is another one."""
    policy, old, ref, behavior = tables(seed)
    draw = torch.Generator().manual_seed(seed if drawn is None else drawn)
    every = policy.completions()
    lengths = every.mask.sum(-1)
    # one reply of each kind: (length, ended by itself)
    kinds = [
        [(1, True), (3, True), (5, False), (2, True), (4, True), (5, True), (5, False), (3, True)],
        [(5, False), (2, True), (4, True), (3, True), (5, False), (1, True), (2, True), (5, True)],
    ]
    rows = []
    for group in kinds:
        for length, ended in group:
            fits = ((lengths == length) & (every.terminated == ended)).nonzero().flatten()
            rows.append(int(fits[torch.randint(len(fits), (), generator=draw)]))
    rewards = torch.tensor(
        [[1.0, 0.0, 0.75, 0.25, 0.0, 1.0, 0.5, 0.75], [0.0, 0.5, 1.0, 0.0, 0.25, 0.5, 0.75, 0.0]], dtype=torch.float64
    )
    # The last token of one long reply was far less likely when it was sampled: a ratio above every cap.
    with torch.no_grad():
        *prefix, last = every.tokens[rows[5]].tolist()
        old.table[0, old._prefix_index(prefix), last] -= 3.0
        behavior.table[0, old._prefix_index(prefix), last] -= 1.5
    valid = torch.ones(2, GROUP, dtype=torch.bool)
    valid[1, 2] = False

    def logps_of(model, at=None):
        """``(B, T)`` of the chosen rows, or of one row per prompt."""
        table = model.completion_token_logps()
        if at is not None:
            return torch.stack([table[prompt][at[prompt]] for prompt in range(2)])
        return torch.stack([table[i // GROUP][row] for i, row in enumerate(rows)])

    mask = every.mask[rows]
    number = {key: logps_of(model).detach() for key, model in (("old", old), ("ref", ref), ("behavior", behavior))}
    values = torch.randn(mask.shape, dtype=torch.float64, generator=draw)
    steps = torch.full(mask.shape, math.nan, dtype=torch.float64)
    for i, length in enumerate(mask.sum(-1).tolist()):
        for t in {length - 1, length // 2}:
            steps[i, t] = float(torch.rand((), generator=draw))

    def rollout_of(picked, logps, behaved, group):
        batches = [policy.batch(prompt) for prompt in range(2)]
        ids, attention = (
            torch.stack([batches[i // group][key][row] for i, row in enumerate(picked)])
            for key in ("input_ids", "attention_mask")
        )
        inside = every.mask[picked]
        version = torch.where(inside, 0, -1)
        clean = [torch.where(inside, x, 0.0) for x in (logps, behaved)]
        return Rollout(ids, attention, inside, *clean, version, every.terminated[picked], group)

    best = [rows[2], rows[GROUP + 3]]  # which replies are called greedy does not matter
    greedy_old, greedy_ref = (logps_of(model, best).detach() for model in (old, ref))
    greedy_rewards = torch.tensor([[0.4], [0.7]], dtype=torch.float64)
    greedy = ScoredRollout(
        rollout_of(best, greedy_old, greedy_old, 1), greedy_rewards, torch.ones(2, 1) > 0, greedy_ref
    )
    rollout = rollout_of(rows, number["old"], number["behavior"], GROUP)
    graded = ScoredRollout(rollout, rewards, valid, number["ref"], values, steps, greedy)

    current = logps_of(policy)
    replies = []
    for i in range(len(rows)):
        inside = range(int(mask[i].sum()))
        lists = {key: [float(x[i, t]) for t in inside] for key, x in number.items()}
        ends = {t: float(steps[i, t]) for t in inside if not math.isnan(steps[i, t])}
        said = [float(values[i, t]) for t in inside]
        own = rewards.flatten()[i], valid.flatten()[i], every.terminated[rows[i]]
        replies.append(
            Reply(
                [current[i, t] for t in inside], lists["old"], lists["ref"], lists["behavior"], said, ends,
                float(own[0]), bool(own[1]), bool(own[2]),
            )
        )  # fmt: skip
    charged = []
    for prompt, row in enumerate(best):
        inside = range(int(lengths[row]))
        charge = sum(float(greedy_old[prompt, t] - greedy_ref[prompt, t]) for t in inside)
        charged.append(float(greedy_rewards[prompt, 0]) - BETA_REWARD * charge)
    return Batch(policy, graded, [replies[:GROUP], replies[GROUP:]], charged, rows, list(range(len(rows))))


# -- statistics ------------------------------------------------------------------------------------------------------


def mean(numbers):
    return sum(numbers) / len(numbers)


def deviation(numbers):
    """With divisor n − 1."""
    centre = mean(numbers)
    return math.sqrt(sum((x - centre) ** 2 for x in numbers) / (len(numbers) - 1))


def of_group(advantage):
    """Advantages of the valid replies of each group, from ``(rewards of the valid, own reward)``; 0 for the others."""

    def found(batch, reward=lambda reply: reply.reward, part=lambda group, reply: reply.valid):
        result = []
        for group in batch.groups:
            counted = [reward(reply) for reply in group if part(group, reply)]
            result += [advantage(counted, reward(reply)) if part(group, reply) else 0.0 for reply in group]
        return result

    return found


centred = of_group(lambda rewards, own: own - mean(rewards))
zscore = of_group(lambda rewards, own: (own - mean(rewards)) / (deviation(rewards) + 1e-4))
others = of_group(lambda rewards, own: own - (sum(rewards) - own) / (len(rewards) - 1))
over_rate = of_group(lambda rewards, own: (own - mean(rewards)) / mean(rewards))


def whitened(tokens, counted):
    """Lists of numbers per reply, scaled over all tokens of the replies that are counted; 0 for the others."""
    every = [x for row, ok in zip(tokens, counted, strict=True) if ok for x in row]
    centre, spread = mean(every), math.sqrt(deviation(every) ** 2 + 1e-8)
    return [[(x - centre) / spread if ok else 0.0 for x in row] for row, ok in zip(tokens, counted, strict=True)]


def token_rewards(reply, beta):
    rewards = [-beta * k for k in reply.kl()]
    rewards[-1] += reply.reward
    return rewards


def gae(rewards, values, lam):
    """γ = 1; nothing follows the last token."""
    advantage, result = 0.0, []
    for t in reversed(range(len(rewards))):
        after = values[t + 1] if t + 1 < len(values) else 0.0
        advantage = rewards[t] + after - values[t] + lam * advantage
        result.insert(0, advantage)
    return result


# -- what a token may earn -------------------------------------------------------------------------------------------


def clipped(ratio, advantage, low=EPS, high=EPS):
    return torch.minimum(ratio * advantage, ratio.clamp(1 - low, 1 + high) * advantage)


def clipped_tokens(reply, advantages, low=EPS, high=EPS):
    pairs = zip(reply.ratios(), advantages, strict=True)
    return [clipped(ratio, advantage, low, high) for ratio, advantage in pairs]


def same(reply, advantage):
    return [advantage] * len(reply)


def k3(reply):
    """The estimate that GRPO's paper prints, of each token."""
    logs = [ref - new for new, ref in zip(reply.logps, reply.ref, strict=True)]
    return [torch.exp(x) - x - 1 for x in logs]


def per_reply_mean(rows):
    """1/B Σ_i 1/|o_i| Σ_t"""
    return sum(sum(row) / len(row) for row in rows) / len(rows)


def per_reply_sum(rows):
    return sum(sum(row) for row in rows) / len(rows)


def per_token_mean(rows):
    """0 without any token."""
    return sum(sum(row) for row in rows) / max(1, sum(len(row) for row in rows))


def sequence_ratio(reply):
    return torch.exp(sum(new - old for new, old in zip(reply.logps, reply.old, strict=True)) / len(reply))


# -- the papers' objectives, to be maximised -------------------------------------------------------------------------


def reinforce(b):
    baseline = mean([r.reward for r in b.replies if r.valid])
    rows = [[(r.reward - baseline) * r.valid * x for x in r.logps] for r in b.replies]
    return per_token_mean(b.of(rows))


def remax(b):
    rows = []
    for group, baseline in zip(b.groups, b.greedy, strict=True):
        for r in group:  # the charge of the whole reply, on both (declared)
            advantage = (r.reward - BETA_REWARD * sum(r.kl()) - baseline) * r.valid
            rows.append([advantage * x for x in r.logps])
    return per_reply_sum(b.of(rows))


def reinforce_pp(b):
    to_go = []
    for r in b.replies:
        rewards = token_rewards(r, 0.01)
        to_go.append([sum(rewards[t:]) for t in range(len(r))])
    advantages = whitened(to_go, [r.valid for r in b.replies])  # over tokens (declared)
    return per_token_mean(b.of([clipped_tokens(r, a) for r, a in zip(b.replies, advantages, strict=True)]))


def reinforce_pp_baseline(b):
    left = centred(b)
    counted = [a for a, r in zip(left, b.replies, strict=True) if r.valid]
    scale = math.sqrt(sum(a * a for a in counted) / (len(counted) - 1)) + 1e-8
    clip = [clipped_tokens(r, same(r, a / scale)) for r, a in zip(b.replies, left, strict=True)]
    k2 = [[(new - ref) ** 2 / 2 for new, ref in zip(r.logps, r.ref, strict=True)] for r in b.replies]
    return per_token_mean(b.of(clip)) - 0.01 * per_token_mean(b.of(k2))


def ppo(b):
    estimates = [gae(token_rewards(r, BETA_REWARD), r.values, 0.95) for r in b.replies]
    advantages = whitened(estimates, [r.valid for r in b.replies])
    return per_token_mean(b.of([clipped_tokens(r, a) for r, a in zip(b.replies, advantages, strict=True)]))


def vapo(b, alpha=0.05):
    estimates = []
    for r in b.replies:
        lam = max(0.0, 1 - 1 / (alpha * len(r)))  # the clamp is declared
        estimates.append(gae(token_rewards(r, 0.0), r.values, lam))
    advantages = whitened(estimates, [r.valid for r in b.replies])
    clip = [clipped_tokens(r, a, EPS, 0.28) for r, a in zip(b.replies, advantages, strict=True)]
    right = [r.logps if r.valid and r.reward > 0 else None for r in b.replies]
    return per_token_mean(b.of(clip)) + 0.1 * per_token_mean(b.of(right))


def rloo(b):
    advantages = others(b, lambda r: r.reward - BETA_REWARD * sum(r.kl()))
    return per_reply_sum(b.of([[a * x for x in r.logps] for r, a in zip(b.replies, advantages, strict=True)]))


def grpo(b, weight=lambda reply, advantage: 1.0):
    rows = []
    for r, a in zip(b.replies, zscore(b), strict=True):
        clip = clipped_tokens(r, same(r, a))
        rows.append([weight(r, a) * c - BETA_LOSS * k for c, k in zip(clip, k3(r), strict=True)])
    return per_reply_mean(b.of(rows))


def grpo_process(b):
    rows = []
    for group in b.groups:
        graded = [grade for r in group if r.valid for grade in r.steps.values()]
        for r in group:
            scaled = {t: (grade - mean(graded)) / (deviation(graded) + 1e-4) for t, grade in r.steps.items()}
            scaled = scaled if r.valid else {}
            advantages = [sum(x for end, x in scaled.items() if end >= t) for t in range(len(r))]
            clip = clipped_tokens(r, advantages)
            rows.append([c - BETA_LOSS * k for c, k in zip(clip, k3(r), strict=True)])
    return per_reply_mean(b.of(rows))


def over_constant(b, advantages, weight=lambda reply, t: 1.0):
    """Dr. GRPO's aggregation of PPO's clip: Σ_i Σ_t / (B · L)."""
    pairs = zip(b.replies, advantages, strict=True)
    rows = [[weight(r, t) * c for t, c in enumerate(clipped_tokens(r, same(r, a)))] for r, a in pairs]
    return per_reply_sum(b.of(rows)) / LIMIT


def punished(r):
    free = LIMIT - 4  # the last four tokens cost up to 1
    return r.reward - min(1.0, max(0.0, (len(r) - free) / 4))


def dapo(b):
    rows = []
    for r, a in zip(b.replies, zscore(b, punished), strict=True):
        rows.append(clipped_tokens(r, same(r, a), EPS, 0.28) if r.ended else None)  # no part of the mean either
    return per_token_mean(b.of(rows))


def high_entropy(b):
    """DAPO without its filter, on the fifth of the minibatch's tokens whose distributions have the largest entropies."""
    entropies = {}
    for i in b.learned:
        for t in range(len(b.replies[i])):
            entropies[i, t] = b.entropy(i, t)
    kept = sorted(entropies, key=entropies.get, reverse=True)[: math.ceil(0.2 * len(entropies))]
    rows = []
    for i, (r, a) in enumerate(zip(b.replies, zscore(b, punished), strict=True)):
        clip = clipped_tokens(r, same(r, a), EPS, 0.28)
        rows.append([clip[t] for t in range(len(r)) if (i, t) in kept])
    return per_token_mean(b.of(rows))


def gspo(b):
    pairs = zip(b.replies, zscore(b), strict=True)
    return mean(b.of([clipped(sequence_ratio(r), a, 3e-4, 4e-4) for r, a in pairs]))


def luspo(b):
    pairs = zip(b.replies, zscore(b), strict=True)
    return mean(b.of([len(r) * clipped(sequence_ratio(r), a, 3e-4, 4e-4) for r, a in pairs]))


def cispo(b):
    rows = []
    for r, a in zip(b.replies, zscore(b), strict=True):
        weights = [min(float(ratio.detach()), 1 + 4.0) for ratio in r.ratios()]  # the bound is declared
        rows.append([w * a * x for w, x in zip(weights, r.logps, strict=True)])
    return per_token_mean(b.of(rows))


def vespo(b):
    rows = []
    for r, a in zip(b.replies, zscore(b), strict=True):
        k, rate = (2.0, 3.0) if a >= 0 else (3.0, 2.0)
        w = math.exp(sum(float(new.detach()) - old for new, old in zip(r.logps, r.old, strict=True)))
        rows.append([w**k * math.exp(rate * (1 - w)) * a * x for x in r.logps])
    return per_token_mean(b.of(rows))


def sapo(b):
    rows = []
    for r, a in zip(b.replies, zscore(b), strict=True):
        tau = 1.0 if a > 0 else 1.05
        rows.append([4 / tau / (1 + torch.exp(-tau * (ratio - 1))) * a for ratio in r.ratios()])
    return per_reply_mean(b.of(rows))


def gmpo(b):
    found = []
    for r, a in zip(b.replies, zscore(b), strict=True):
        product = 1.0
        for ratio in r.ratios():  # (min[(ρ|A|)·sgn A, clip(ρ)|A|·sgn A]) without |A|, which leaves the root as a factor
            bounded = ratio.clamp(math.exp(-0.4), math.exp(0.4))
            product = product * (torch.minimum(ratio, bounded) if a > 0 else torch.maximum(ratio, bounded))
        found.append(a * product ** (1 / len(r)))
    return mean(b.of(found))


def bnpo(b):
    rates = [mean([r.reward for r in group if r.valid]) for group in b.groups]
    average, variance = mean(rates), deviation(rates) ** 2
    total = average * (1 - average) / variance - 1
    shape = 1 + total * average / 3, 1 + total * (1 - average) / 3
    norm = math.gamma(sum(shape)) / math.gamma(shape[0]) / math.gamma(shape[1])
    density = of_group(
        lambda rewards, own: (
            (own - mean(rewards)) / (norm * mean(rewards) ** (shape[0] - 1) * (1 - mean(rewards)) ** (shape[1] - 1))
        )
    )
    return per_reply_mean(b.of([clipped_tokens(r, same(r, a)) for r, a in zip(b.replies, density(b), strict=True)]))


def gfpo(b):
    def kept(group, reply):  # the four shortest of those that could be graded, the earlier one of equals
        order = sorted((r for r in group if r.valid), key=len)
        return any(reply is r for r in order[:4])

    rows = []
    for r, a in zip(b.replies, zscore(b, part=kept), strict=True):
        clip = clipped_tokens(r, same(r, a))
        rows.append([c - BETA_LOSS * k for c, k in zip(clip, k3(r), strict=True)])
    return per_token_mean(b.of(rows))  # over all tokens, as in eq. 2


def lite_ppo(b):
    scale = deviation([r.reward for r in b.replies if r.valid]) + 1e-4
    pairs = zip(b.replies, centred(b), strict=True)
    return per_token_mean(b.of([clipped_tokens(r, same(r, a / scale)) for r, a in pairs]))


def not_too_far(reply, advantage):
    """DeepSeek-V3.2's M: 0 where A < 0 and the mean of log μ/π is above δ."""
    drift = mean([mu - float(new.detach()) for mu, new in zip(reply.behavior, reply.logps, strict=True)])
    return 0.0 if advantage < 0 and drift > 0.1 else 1.0


def capped(reply, t):
    return min(math.exp(reply.old[t] - reply.behavior[t]), 2.0)


OBJECTIVES = {
    "reinforce": reinforce,
    "remax": remax,
    "reinforce_pp": reinforce_pp,
    "reinforce_pp_baseline": reinforce_pp_baseline,
    "ppo": ppo,
    "vapo": vapo,
    "rloo": rloo,
    "grpo": grpo,
    "grpo_process": grpo_process,
    "dr_grpo": lambda b: over_constant(b, centred(b)),
    "dapo": dapo,
    "high_entropy": high_entropy,
    "gspo": gspo,
    "gspo_token": gspo,  # with one advantage per reply it is GSPO, says the paper
    "luspo": luspo,
    "cispo": cispo,
    "vespo": vespo,
    "sapo": sapo,
    "gmpo": gmpo,
    "bnpo": bnpo,
    "maxrl": lambda b: over_constant(b, over_rate(b)),
    "gfpo": gfpo,
    "lite_ppo": lite_ppo,
    "masked_grpo": lambda b: grpo(b, not_too_far),
    "decoupled_ppo": lambda b: over_constant(b, centred(b), capped),
}


# -- the library's -----------------------------------------------------------------------------------------------


def trained(recipe, batch):
    """Loss of one optimizer batch as the trainer composes it, in two micro-batches."""
    recipe = recipe.resolved(max_completion_length=LIMIT)
    shaped = recipe.collect(batch.graded)
    everything = torch.arange(len(shaped.rollout))
    config = OnlineConfig(batch_size=2, num_generations=GROUP, max_completion_length=LIMIT, micro_batch_size=7)
    weights = recipe.update.token_weights(shaped.rollout)
    if recipe.update.top_entropy_quantile < 1:
        entropies = policy_update.policy_token_entropies(batch.policy, shaped.rollout, config)
        quantile = recipe.update.top_entropy_quantile
        weights = high_entropy_weights(weights, entropies, shaped.rollout.mask, top_entropy_quantile=quantile)
    return sum(
        policy_update.policy_losses(
            batch.policy, shaped, recipe.advantages(shaped), recipe, config, everything, weights, []
        )
    )


def with_gradient(loss, policy):
    (slope,) = torch.autograd.grad(loss, policy.table, retain_graph=True)
    return torch.cat([loss.detach()[None], slope.flatten()])


@pytest.fixture(scope="module")
def batch():
    return build()


def test_whole_recipes_batch_is_one_on_which_recipes_differ(batch):
    ratios = [float(x.detach()) for r in batch.replies for x in r.ratios()]
    assert min(ratios) < 1 - EPS and max(ratios) > 1.28 and any(1 + EPS < x < 1.28 for x in ratios)
    assert any(abs(math.log(x)) < 0.1 for x in ratios)
    assert {r.ended for r in batch.replies} == {True, False} and sum(not r.valid for r in batch.replies) == 1
    assert {not_too_far(r, -1) for r in batch.replies} == {0.0, 1.0}
    weights = [math.exp(r.old[t] - r.behavior[t]) for r in batch.replies for t in range(len(r))]
    assert max(weights) > 2 > min(weights)
    assert sum(x > 1 + 4.0 for x in ratios) == 1  # CISPO's bound


def test_recipes_have_a_transcription_each():
    assert OBJECTIVES.keys() == RECIPES.keys()


@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize("name", OBJECTIVES)
def test_recipe_loss_and_gradient_are_the_papers(name, seed):
    batch = build(seed)
    ours = with_gradient(trained(RECIPES[name], batch), batch.policy)
    paper = with_gradient(-OBJECTIVES[name](batch), batch.policy)
    torch.testing.assert_close(ours, paper, rtol=1e-9, atol=1e-12)


def test_recipes_differ_from_one_another(batch):
    """The transcriptions tell all rows apart, so each comparison above could have failed."""
    ours = {name: with_gradient(trained(row, batch), batch.policy) for name, row in RECIPES.items()}
    papers = {name: with_gradient(-objective(batch), batch.policy) for name, objective in OBJECTIVES.items()}
    alike = {
        (a, b) for a in ours for b in papers if a != b and torch.allclose(ours[a], papers[b], rtol=1e-3, atol=1e-6)
    }
    assert alike == {("gspo", "gspo_token"), ("gspo_token", "gspo")}


def test_vapo_lambda_where_replies_are_long_enough(batch):
    recipe = RECIPES["vapo"].with_(alpha=0.6)
    ours = with_gradient(trained(recipe, batch), batch.policy)
    torch.testing.assert_close(ours, with_gradient(-vapo(batch, alpha=0.6), batch.policy), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize(("name", "beta", "lam"), [("ppo", BETA_REWARD, 0.95), ("vapo", 0.0, 1.0)])
def test_recipe_critic_loss_and_gradient_are_the_papers(batch, name, beta, lam, monkeypatch):
    """½ max((V' − R)², (clip(V', V ± .2) − R)²), the mean over the tokens of graded replies, half as heavy."""
    recipe = RECIPES[name]
    rows = torch.arange(len(batch.graded.rollout))
    noise = torch.randn(batch.graded.values.shape, dtype=torch.float64, generator=torch.Generator().manual_seed(5))
    values = (batch.graded.values + 0.3 * noise).requires_grad_()
    monkeypatch.setattr(policy_update, "completion_values", lambda *_: values)
    targets = recipe.credit.targets(batch.graded, recipe.update.kl)
    config = OnlineConfig(batch_size=2, num_generations=GROUP)
    ours = sum(policy_update.value_losses(None, batch.graded, targets, recipe.credit.critic, config, rows))
    losses = []
    for i, reply in enumerate(batch.replies):
        if reply.valid:
            advantages = gae(token_rewards(reply, beta), reply.values, lam)
            for t, (advantage, old) in enumerate(zip(advantages, reply.values, strict=True)):
                target, new = advantage + old, values[i, t]
                near = new.clamp(old - 0.2, old + 0.2)
                losses.append(torch.maximum((new - target) ** 2, (near - target) ** 2) / 2)
    expected = 0.5 * mean(losses)
    torch.testing.assert_close(ours, expected)
    torch.testing.assert_close(*(torch.autograd.grad(loss, values)[0] for loss in (ours, expected)))


@pytest.mark.parametrize("name", ["gfpo", "ppo"])
def test_recipe_entropy_bonus_is_aggregated_like_the_objective(batch, name):
    """GFPO with the two numbers of its paper; and the bonus of Schulman et al."""
    changes = {"beta": 0.001, "entropy_coef": 0.001} if name == "gfpo" else {"entropy_coef": 0.01}
    ours = with_gradient(trained(RECIPES[name].with_(**changes), batch), batch.policy)

    def entropies(reply, i):
        """Sums over the distribution's support, with their gradient."""
        found = []
        for t in range(len(reply)):
            prefix = batch.policy.completions().tokens[batch.rows[i]][:t].tolist()
            logits = batch.policy.table[i // GROUP, batch.policy._prefix_index(prefix)]
            p = logits.exp() / logits.exp().sum()
            found.append(-sum(x * x.log() for x in p))
        return found

    bonus = per_token_mean([entropies(reply, i) for i, reply in enumerate(batch.replies)])
    if name == "gfpo":
        kl = per_token_mean([k3(r) for r in batch.replies])
        objective = gfpo(batch) + (BETA_LOSS - 0.001) * kl + 0.001 * bonus
    else:
        objective = ppo(batch) + 0.01 * bonus
    torch.testing.assert_close(ours, with_gradient(-objective, batch.policy), rtol=1e-9, atol=1e-12)


def of_the_reply(reply, t):
    return min(math.exp(sum(reply.old) - sum(reply.behavior)), 2.0)


def within(reply, t):
    weight = math.exp(reply.old[t] - reply.behavior[t])
    return weight if 0.7 <= weight <= 1.4 else 0.0


@pytest.mark.parametrize(
    ("changes", "weight"),
    [
        ({"corrections": (sequence_importance,)}, of_the_reply),
        (
            {
                "corrections": (masked_importance,),
                "importance_sampling_cap": 1.4,
                "importance_sampling_floor": 0.7,
            },
            within,
        ),
    ],
    ids=["sequence", "masked"],
)
def test_decoupled_ppo_corrections_are_importance_weights(batch, changes, weight):
    assert len({weight(r, t) > 1 for r in batch.replies for t in range(len(r))}) == 2
    ours = with_gradient(trained(RECIPES["decoupled_ppo"].with_(**changes), batch), batch.policy)
    paper = with_gradient(-over_constant(batch, centred(batch), weight), batch.policy)
    torch.testing.assert_close(ours, paper, rtol=1e-9, atol=1e-12)


# -- a whole step: what is drawn, and every update -----------------------------------------------------------------

#: Passes over a rollout and optimizer steps per pass: of the papers, or declared.
UPDATES = dict.fromkeys(OBJECTIVES, (1, 1)) | {
    "ppo": (2, 2),  # (declared)
    "vapo": (1, 16),
    "dapo": (1, 16),
    "high_entropy": (1, 16),
    "gspo": (1, 4),
    "gspo_token": (1, 4),
    "luspo": (1, 4),
    "cispo": (1, 16),
    "vespo": (1, 8),
    "sapo": (1, 4),
    "gmpo": (1, 8),
    "lite_ppo": (1, 8),
}


class Given(RolloutEnv):
    """Hands out graded rollouts one after the other, which somebody else has drawn."""

    timed = False

    def __init__(self, batches):
        policy = batches[0].policy
        super().__init__([[0]], eos_token_id=policy.eos_token_id, pad_token_id=policy.pad_token_id)
        self.batches = iter(batches)

    def rollout(self, policy, recipe, config, **_):
        graded = next(self.batches).graded
        return recipe.credit.complete(graded, RolloutExtras(lambda: graded.greedy, lambda: graded.step_rewards))

    def sample_prompts(self, *_):
        raise AssertionError

    grade = sample_prompts


def whole_step(recipe, batches, monkeypatch):
    """One step of the trainer on what is drawn: for every update its replies and gradient, and the policy it began with."""
    batch, taken = batches[0], []
    policy = copy.deepcopy(batch.policy)
    losses_of, update = policy_update.policy_losses, TrainingLoop.update

    def noted(model, graded, advantages, recipe, config, rows, *rest):
        taken.append([rows.tolist(), copy.deepcopy(model)])
        return losses_of(model, graded, advantages, recipe, config, rows, *rest)

    def watched(loop, losses, only=None):
        losses = list(losses)
        (slope,) = torch.autograd.grad(sum(losses), policy.table, retain_graph=True)
        taken[-1].append(slope)
        return update(loop, iter(losses), only=only)

    critic = torch.nn.Linear(1, 1).double()
    with monkeypatch.context() as patch:
        patch.setattr(policy_update, "policy_losses", noted)
        patch.setattr(TrainingLoop, "update", watched)
        patch.setattr(rollouts, "completion_values", lambda *_: batch.graded.values)
        patch.setattr(policy_update, "completion_values", lambda _, ids, *__: critic.weight.expand(len(ids), LIMIT))
        config = OnlineConfig(
            max_steps=1, batch_size=2, num_generations=GROUP, max_completion_length=LIMIT, learning_rate=0.05
        )
        reference = tables()[2]
        train_in_env(policy, Given(batches), recipe, config, ref_model=reference, critic=critic, quiet=True)
    return taken


def chunks(items, count):
    size = len(items) // count
    return [items[k * size : (k + 1) * size] for k in range(count - 1)] + [items[(count - 1) * size :]]


def agrees(name, recipe, batches, monkeypatch, learned_from=None):
    """Whether the trainer's updates are those of the paper, in number, in their replies, and in every gradient."""
    taken = whole_step(recipe, batches, monkeypatch)
    batch, (passes, steps) = learned_from or batches[0], UPDATES[name]
    # DAPO skips minibatches that it learns nothing from; with 16 of them they have one reply each.
    everyone = [i for i, reply in enumerate(batch.replies) if name != "dapo" or reply.ended]
    every_pass = [sorted(i for rows, *_ in part for i in rows) for part in chunks(taken, passes)]
    if every_pass != [everyone] * passes or {len(rows) for rows, *_ in taken} != {len(batch.replies) // steps}:
        return False
    start = taken[0][1].completion_token_logps().detach()
    for rows, policy, slope in taken:
        # decoupled: the old policy is the learner at the start of the step
        now = replace(batch, policy=policy).now(rows, old=start if name == "decoupled_ppo" else None)
        (expected,) = torch.autograd.grad(-OBJECTIVES[name](now) + 0 * policy.table.sum(), policy.table)
        if not torch.allclose(slope, expected, rtol=1e-8, atol=1e-11):
            return False
    return True


def updating(name):
    """The row, teaching its policy from the first rollout on."""
    return RECIPES[name].with_(critic_warmup=0) if name == "vapo" else RECIPES[name]


@pytest.mark.parametrize("name", OBJECTIVES)
def test_recipe_updates_of_a_step_are_the_papers(name, monkeypatch):
    assert agrees(name, updating(name), [build()], monkeypatch)


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("cispo", {"epsilon_high": 3.0}),
        ("cispo", {"num_minibatches": 8}),
        ("decoupled_ppo", {"decoupled": False}),
        ("decoupled_ppo", {"importance_sampling_cap": 2.5}),
        ("masked_grpo", {"decoupled": True}),
        ("gspo", {"num_minibatches": 2}),
        ("gspo", {"num_iterations": 2}),
        ("grpo", {"num_minibatches": 2}),
        ("ppo", {"num_iterations": 1}),
        ("ppo", {"num_minibatches": 4, "num_iterations": 1}),
        ("vespo", {"vespo_k_pos": 2.5}),
        ("rloo", {"num_iterations": 2}),
        ("high_entropy", {"top_entropy_quantile": 0.8}),
        ("high_entropy", {"num_minibatches": 4}),
    ],
)
def test_recipe_updates_of_a_changed_row_differ(name, changes, monkeypatch):
    assert not agrees(name, updating(name).with_(**changes), [build()], monkeypatch)


def test_dapo_refills_its_batch_with_groups_that_teach(monkeypatch):
    """Groups whose rewards are all alike are replaced by those of the next draws, in their order, until there are two."""
    first, second = build(), build(drawn=1)
    alike = first.graded.rewards.clone()
    alike[0] = 1.0
    same = [replace(reply, reward=1.0) for reply in first.groups[0]]
    first = replace(first, graded=replace(first.graded, rewards=alike), groups=[same, first.groups[1]])
    groups, rows = [first.groups[1], second.groups[0]], first.rows[GROUP:] + second.rows[:GROUP]
    filled = replace(first, groups=groups, rows=rows, prompts=(1, 0))
    check = lambda recipe: agrees("dapo", recipe, [first, second], monkeypatch, learned_from=filled)
    dapo = RECIPES["dapo"]
    assert check(dapo)
    assert not check(dapo.with_(refill=None)) and not check(dapo.with_(max_resampling_rounds=0))
    assert not check(dapo.with_(keep=None)) and not check(dapo.with_(shape=()))
