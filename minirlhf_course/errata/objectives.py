"""Errata of formulas and of claims about them."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F

from minirlhf.core import exact
from minirlhf.equations import advantages, aggregation, policy_losses, rlhf
from minirlhf_course.errata.erratum import Found, erratum


@erratum("clipped_example")
def _() -> Found:
    ratios, advantages = torch.tensor([[2.0, 0.4]]), torch.ones(1, 2)
    printed = (min(2.0, 1.2) + 0.8) / 2  # the text sets the second token to the edge of the interval
    right = policy_losses.ppo_clip(ratios.log(), torch.zeros(1, 2), advantages, torch.ones(1, 2, dtype=torch.bool))
    by_cases = [ratio if ratio < 1.2 else 1.2 for ratio in (2.0, 0.4)]  # A > 0 is clipped from above only
    return Found("mean of the two tokens' objectives", printed, float(right.mean()), sum(by_cases) / 2)


@erratum("squared_error")
def _() -> Found:
    scores, predictions = torch.tensor([1.0, 2.0, 4.0]), torch.linspace(0, 6, 19)
    errors = ((predictions[:, None] - scores) ** 2).mean(1)
    printed, right = predictions[(-errors).argmin()], predictions[errors.argmin()]
    return Found(
        "reward for a completion scored 1, 2 and 4, from 0 to 6", float(printed), float(right), sum((1, 2, 4)) / 3
    )


@erratum("moving_reference")
def _() -> Found:
    rewards, ref, beta = torch.tensor([1.0, 0.0]), torch.tensor([0.5, 0.5]), 1.0
    logps = ref.log()
    for _ in range(5):  # the policy of each round becomes the reference of the next
        logps = rlhf.optimal_logps(logps, rewards, beta=beta)
    fixed = rlhf.optimal_logps(ref.log(), rewards, beta=beta)
    best = exact.maximise(lambda p: exact.regularised_value(p, ref, rewards, beta), 2)
    printed, right = (float(x.exp()[0]) for x in (logps, fixed))
    return Found("probability of the better of two completions after five rounds", printed, right, float(best[0]))


@erratum("best_of_n_inside")
def _() -> Found:
    logit, n = torch.tensor(math.log(0.3 / 0.7), requires_grad=True), 4  # a right completion has probability .3
    p = logit.sigmoid()
    best_is_right = 1 - (1 - p.detach()) ** n
    imitated = best_is_right * p.log() + (1 - best_is_right) * (1 - p).log()
    right = p.detach() * p.log() * (1 - p.detach()) + (1 - p.detach()) * (1 - p).log() * (0 - p.detach())
    a, b = (float(exact.gradient(x, logit)) for x in (imitated, right))
    return Found("expected gradient of a right completion's logit, probability .3, four samples", a, b, float(exact.gradient(p, logit)))  # fmt: skip


@erratum("mean_for_advantage")
def _() -> Found:
    rewards = torch.tensor([[1.0, 0.0, 0.0, 0.0]])
    printed = rewards.mean(-1, keepdim=True).expand_as(rewards)
    right = advantages.group_center(rewards)
    differences = [
        (float(rewards[0, 1]) - float(r)) / 4 for r in rewards[0]
    ]  # its reward minus the reward of each completion, itself included
    return Found("advantage of a wrong completion among one right and three wrong", float(printed[0, 1]), float(right[0, 1]), sum(differences))  # fmt: skip


@erratum("clip_or_penalty")
def _() -> Found:
    old, mask = torch.zeros(1, 1), torch.ones(1, 1, dtype=torch.bool)
    logps = torch.full((1, 1), math.log(1.5), requires_grad=True)  # the probability has increased by 50 %
    good = torch.ones(1, 1)
    clip = policy_losses.ppo_clip(logps, old, good, mask).sum()
    penalty = policy_losses.ppo_penalty(logps, old, good, mask, beta=1.0).sum()
    a, b = (float(exact.gradient(x, logps)) for x in (penalty, clip))
    by_cases = lambda x: min(math.exp(float(x)), 1.2)
    slope = (by_cases(math.log(1.5) + 1e-4) - by_cases(math.log(1.5) - 1e-4)) / 2e-4
    return Found("gradient of a good completion's log-probability at a ratio of 1.5", a, b, slope)


@erratum("unequal_betas")
def _() -> Found:
    margins, beta = (
        torch.tensor([0.3, -0.2], requires_grad=True),
        0.1,
    )  # log-ratios of the chosen and the rejected completion
    printed = -F.logsigmoid(beta * margins[0] - beta * beta * margins[1])
    right = -F.logsigmoid(beta * margins[0] - beta * margins[1])
    grads = [exact.gradient(loss, margins) for loss in (printed, right)]
    a, b = (float(-g[1] / g[0]) for g in grads)
    # A preference is a statement about a difference: adding a constant to both log-ratios must change nothing.
    return Found("gradient of the rejected completion divided by the gradient of the chosen one", a, b, 1.0)


@erratum("losses_hurt")
def _() -> Found:
    value = lambda loss: (
        2.25 * loss**0.88
    )  # disutility of a loss, with the parameters that Tversky and Kahneman estimated
    first, second = value(100), value(200) - value(100)
    slope = exact.integrate(lambda x: 2.25 * 0.88 * x ** (0.88 - 1), 100, 200)
    # The weakest reading of "more and more" in numbers: the second hundred has the same weight as the first.
    return Found("weight of the second hundred lost", first, second, float(slope))


@erratum("sampled_teacher")
def _() -> Found:
    teacher = torch.tensor([0.5, 0.3, 0.2])
    # The printed formula weights the log-probability of the sampled token by the teacher's probability of that token.
    printed = exact.maximise(lambda p: (teacher * teacher * p.log()).sum(), 3)
    right = exact.maximise(lambda p: (teacher * p.log()).sum(), 3)
    return Found(
        "student's probability of the most probable token", float(printed[0]), float(right[0]), float(teacher[0])
    )


@erratum("lost_reward")
def _() -> Found:
    reward, gamma, value_here, value_next = 1.0, 0.9, 2.0, 3.0
    printed = value_next - value_here
    right = reward + gamma * value_next - value_here
    rollouts = [
        sum(gamma**t * r for t, r in enumerate(path)) for path in ((1, 2, 0), (1, 4, 0))
    ]  # the value of the next state is 3
    means = sum(rollouts) / len(rollouts)
    return Found(
        "advantage of an action that is paid 1 on the way to a state worth 3", printed, right, means - value_here
    )


@erratum("one_term_more")
def _() -> Found:
    objectives = [1.0, 1.0, 1.0, 1.0]  # a completion of four tokens; t = 0 … |a| has five terms
    printed = sum([*objectives, 1.0]) / len(objectives)
    mask = torch.ones(1, 4, dtype=torch.bool)
    right = (aggregation.sequence_mean(mask) * torch.tensor([objectives])).sum()
    return Found("mean over a completion whose tokens all have the objective 1", printed, float(right), 1.0)


@erratum("std_scales_up")
def _() -> Found:
    rewards = torch.tensor([1.0, 0.0, 0.0, 0.0])
    centred = (rewards - rewards.mean())[0]
    grpo = centred / rewards.std()
    # The source says "up"; the smallest factor that this may mean is 1.
    return Found(
        "factor by which the advantage of the right completion changes without the division",
        1.0,
        float(centred / grpo),
        0.5,
    )


@erratum("ratio_bound")
def _() -> Found:
    logit, rate = torch.zeros(1, requires_grad=True), 6.0  # two completions, p = σ(logit); both start at p = ½
    old = torch.tensor([0.5]).log()
    objective = policy_losses.ppo_clip(
        F.logsigmoid(logit)[None], old[None], torch.ones(1, 1), torch.ones(1, 1, dtype=torch.bool)
    )
    new_logit = logit.detach() + rate * exact.gradient(objective.sum(), logit)
    ratio = new_logit.sigmoid() / 0.5
    by_hand = 2 / (1 + math.exp(-rate * 0.5))  # at ratio 1 nothing is clipped: the gradient is 1 − p
    return Found("ratio after one step of a clipped update, ε = .2", 1.2, float(ratio), by_hand)


@erratum("which_psi")
def _() -> Found:
    rewards, tau = torch.tensor([2.0, 0.0, -1.0]), 1.0
    ref = torch.full((3,), 1 / 3)
    preferred = (rewards[:, None] - rewards).sigmoid()  # p(y ≻ y'), Bradley–Terry
    logit = preferred.logit() @ ref  # Ψ = logit, mean over y' of the reference
    printed = (ref.log() + logit / tau).softmax(0)
    right = (ref.log() + preferred @ ref / tau).softmax(0)  # Ψ = identity

    def squares(p: torch.Tensor) -> torch.Tensor:
        """Minus the population loss of IPO over all pairs, with labels drawn by ``preferred``; to be maximised."""
        h = (p.log() - ref.log())[:, None] - (p.log() - ref.log())
        return -(
            ref[:, None] * ref * (preferred * (h - 1 / (2 * tau)) ** 2 + (1 - preferred) * (h + 1 / (2 * tau)) ** 2)
        ).sum()

    best = exact.maximise(squares, 3)
    return Found(
        "probability of the best of three completions under IPO's policy",
        float(printed[0]),
        float(right[0]),
        float(best[0]),
    )


@erratum("static_distance")
def _() -> Found:
    ref = torch.tensor([0.5, 0.5])
    rewards = torch.tensor([1.0, 0.0])
    distance = lambda beta: float(exact.divergence(rlhf.optimal_logps(ref.log(), rewards, beta=beta).exp(), ref))

    def trained_kl(beta: float) -> float:
        """KL after 200,000 steps of gradient descent on one pair with one label."""
        scaled = 0.0  # β times the difference of the two logits
        for _ in range(200_000):
            scaled += 1 / (1 + math.exp(scaled))
        return float(exact.divergence(torch.tensor([scaled / beta, 0.0]).softmax(0), ref))

    claimed, right = distance(1.0) - distance(0.5), trained_kl(1.0) - trained_kl(0.5)
    return Found("KL of DPO after training on one labelled pair, β = 1 minus β = .5", claimed, right, 0.0)


@erratum("logit_is_no_chance")
def _() -> Found:
    chosen, rejected, shift = torch.tensor(1.5), torch.tensor(0.5), -5.0
    printed = (chosen + shift).sigmoid()  # the logit of one completion, read as a probability
    right = ((chosen + shift) - (rejected + shift)).sigmoid()
    exps = [math.exp(float(chosen)), math.exp(float(rejected))]
    return Found(
        "probability that the first completion is chosen, by a reward model with a shifted zero",
        float(printed),
        float(right),
        exps[0] / sum(exps),
    )


@erratum("equal_rewards")
def _() -> Found:
    rewards = torch.ones(4)
    centred = rewards - rewards.mean()
    printed, right = centred / rewards.std(), centred / (rewards.std() + 1e-4)
    # With equal rewards the policy gradient, the mean of Σ (r − b) ∇ log π with r = b, is zero.
    return Found("advantage in a group of equal rewards", float(printed[0]), float(right[0]), 0.0)


@erratum("who_dilutes")
def _() -> Found:
    mask = torch.zeros(2, 10, dtype=torch.bool)
    mask[0, :2], mask[1] = True, True  # completions of two and of ten tokens
    by_sequence, by_token = aggregation.sequence_mean(mask)[1, 0], aggregation.token_mean(mask)[1, 0]
    # Printed: in DAPO a token of a long completion weighs less than under a mean over completions.
    return Found(
        "weight of a token of the long completion under DAPO's mean over tokens",
        float(by_sequence),
        float(by_token),
        1 / 12,
    )


@erratum("sign_of_distance")
def _() -> Found:
    policy, ref = torch.tensor([0.7, 0.2, 0.1]), torch.tensor([0.2, 0.3, 0.5])
    printed = (policy * (ref.log() - policy.log())).sum()  # "the smaller, the more similar"
    right = (policy * (policy.log() - ref.log())).sum()
    return Found(
        "mean log-ratio of a policy far from its reference",
        float(printed),
        float(right),
        float(exact.divergence(policy, ref)),
    )


@erratum("full_temperature")
def _() -> Found:
    logits = torch.tensor([2.0, 1.0, 0.0, 0.0])
    uniform = 1 / 4  # "completely random"
    probs = (logits / 1.0).softmax(0)  # temperature 1, and top-p of 1 drops nothing
    odds = [math.exp(x) for x in logits.tolist()]
    return Found("probability of the most probable of four tokens", uniform, float(probs[0]), odds[0] / sum(odds))
