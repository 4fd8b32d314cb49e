"""What chapter 04 asks its readers to predict; see ``book/_ext/asking.py``."""

import dataclasses
import itertools

import torch
from asking import Ask, Typed

from minirlhf.equations import mdp, policy_losses
from minirlhf_course.chapters.ch04_policy_gradients_to_ppo import estimates, steps


def _variances(cost):
    hill = estimates.hill()  # where a step costs 1
    hill = dataclasses.replace(hill, rewards=torch.where(hill.terminal[:, None, None], 0.0, hill.rewards + 1 - cost))
    listed = estimates.list_episodes(hill, torch.zeros(4, 2, dtype=torch.float64), horizon=5)
    choices, steps_of = listed.choices(), listed.probs[:, None] * listed.mask

    def over_steps(name, power):
        return float((steps_of * choices[name] ** power).sum() / steps_of.sum())

    names = "Q", "reward-to-go − V"
    variances = [listed.bias_and_variance(choices[name])[1] for name in names]
    return *variances, *(over_steps(name, 1) for name in names), *(over_steps(name, 2) ** 0.5 for name in names)


def _exact_q():
    exact, noisy, center, none, far, spread = _variances(1.0)
    exact_half, noisy_half, center_half, _, far_half, _ = _variances(0.5)
    assert abs(none) < 1e-9  # as stated in the question
    assert exact_half < noisy_half and abs(center_half) < abs(center) and far_half < far  # as stated in its explanation
    answer = (
        "the noisy returns less the value"
        if noisy < 0.9 * exact
        else "the exact Q"
        if exact < 0.9 * noisy
        else "both are equal, as their means are"
    )
    return answer, {
        "exact": exact,
        "noisy": noisy,
        "center": center,
        "spread": spread,
        "exact_half": exact_half,
        "noisy_half": noisy_half,
    }


exact_q = Ask(
    "On this hill Q(s, a) is exact and has no noise, but its mean over the steps is {center:.1f}. The reward-to-go less the value has all the noise of the later steps: its mean is 0, and its root mean square is {spread:.1f}."
    " Which of the two gives the estimate the smaller variance?",
    {
        "the exact Q": "Q has no noise, but it multiplies a random score. The common part of all Q stays in each sample; subtracting the value removes it. If a step cost half as much, this part would be smaller, and Q would have the smaller variance: {exact_half:.1f} against {noisy_half:.1f}.",
        "the noisy returns less the value": "",
        "both are equal, as their means are": "A mean carries no information about the distance of the samples from it. Here the variances are {exact:.1f} and {noisy:.1f}.",
    },
    _exact_q,
)


def _corridor():
    process = steps.corridor(3, {1})

    def expected_return(p):
        policy = torch.tensor([1 - p, p], dtype=torch.float64).expand(process.num_states, 2)
        return float(mdp.policy_values(process.transitions, process.expected_rewards, policy, gamma=1.0)[0])

    low, high = 0.05, 0.95
    for _ in range(40):  # J has one maximum
        left, right = low + (high - low) / 3, high - (high - low) / 3
        low, high = (left, high) if expected_return(left) < expected_return(right) else (low, right)
    return (low + high) / 2, {
        "best": expected_return(low),
        "half": expected_return(0.5),
        "thirds": expected_return(2 / 3),
    }


mixed_corridor = Ask(
    "The policy must go right with the same probability p in all three cells. With which p does it arrive fastest on average?",
    Typed(
        within=0.07,
        form=".3f",
        low="The shortest path goes right twice and left once, and a p somewhat above one half makes it more probable. With p = ½ the return is {half:.1f}, with the best p {best:.1f}.",
        high="In two of three cells right is correct. But the middle cell is between them, and going right there leads back. With p = ⅔ the return is {thirds:.1f}, with the best p {best:.1f}.",
    ),
    _corridor,
)


def _climbs(corridor, features, every):
    """Return the surrogate's final promise along its own ascent, and the true gains on the way."""
    world, start = steps.Exact(corridor, features, 0.95), torch.zeros(features.shape[-1], dtype=torch.float64)
    path = world.ascend(start, policy_losses.importance_weighted, passes=300, learning_rate=0.03)
    gains = [float(world.value(theta) - world.value(start)) for theta in path[::every]]
    return float(world.surrogate(start, path[-1])), gains


def _no_limit():
    corridor = steps.corridor(7, {2, 5})
    promise, gains = _climbs(corridor, steps.place(corridor, scale=3.0), 2)
    own = torch.zeros(*corridor.expected_rewards.shape, 7, dtype=torch.float64)
    own[:7, -1] = torch.eye(7, dtype=torch.float64)  # a logit for each cell
    promise_own, gains_own = _climbs(corridor, own, 20)
    assert all(later > earlier for earlier, later in itertools.pairwise(gains_own))  # as stated on the page
    last = gains[-1]
    fell = "lower" if last < 0 else "higher, but by less"
    return "higher by about as much" if abs(last / promise - 1) < 0.2 else fell, {
        "promise": promise,
        "peak": max(gains),
        "promise_own": promise_own,
        "own": gains_own[-1],
    }


no_limit = Ask(
    "In two of a corridor's seven cells left and right are exchanged. The policy cannot treat these two separately, because its logit is a linear function of the position. It climbs the surrogate pass after pass without a constraint, until the surrogate promises a gain of {promise:.1f}. How does its true return then compare with the start?",
    {
        "higher by about as much": "The two agree in value and slope at the old policy. Further away the new policy visits other states, and the surrogate ignores this. With a separate logit for each cell the return rises, by {own:.1f} where the surrogate promises {promise_own:.1f}. But this policy has two numbers for seven cells.",
        "higher, but by less": "This is right on the way: at its best the return has risen by {peak:.2f}. The surrogate does not show this point, and the policy continues.",
        "lower": "",
    },
    _no_limit,
)


def _clipped():
    logits = torch.tensor([[0.6, 0.4]], dtype=torch.float64).log()
    old, mask, ratio = logits.log_softmax(-1)[:, 1:], torch.ones(1, 1, dtype=torch.bool), [1.0]
    for _ in range(20):
        at = logits.clone().requires_grad_()
        chosen = at.log_softmax(-1)[:, 1:]
        (slope,) = torch.autograd.grad(
            policy_losses.ppo_clip(chosen, old, torch.full_like(chosen, 2.0), mask).sum(), at
        )
        logits = logits + 0.1 * slope
        ratio.append(float((logits.log_softmax(-1)[:, 1:] - old).exp()))
    still = abs(ratio[-1] - ratio[-2]) < 1e-9
    where = "at 1.2" if abs(ratio[-1] - 1.2) < 0.01 else "above 1.2" if ratio[-1] > 1.2 else "below 1.2"
    return where if still else "nowhere: it oscillates around 1.2", {"first": ratio[1], "last": ratio[-1]}


past_the_clip = Ask(
    "PPO-clip with ε = .2 makes many passes over the one sample of the REINFORCE step above: probability .4, A = 2, plain gradient steps with η = .1. The first step moves the ratio to {first:.3f}. At which ratio does it stop?",
    {
        "below 1.2": "Inside the range the gradient is the full gradient of ρA, so nothing slows the second step down.",
        "at 1.2": "It would stop there if the clip shortened the step. The clip only sets the gradient to zero, and the gradient is computed where the step begins.",
        "above 1.2": "",
        "nowhere: it oscillates around 1.2": "For this, something must pull it back. For A > 0 and a ratio above the range the gradient is zero.",
    },
    _clipped,
)
