# ---
# title: PPO on a pole
# kind: implement
# minutes: 60
# seconds: 30
# ---

# %% [statement]
# Write a whole PPO: rollouts, GAE, a critic, the clipped objective and the loop around them. The environment is the cart with a pole (Barto, Sutton and Anderson 1983), with many carts in parallel.
# `start(n, rng)` gives `n` states `(n, 4)`, and `push(states, actions)` returns the next states and which poles have fallen. Every step with a standing pole gives the reward 1. The policy
# is a small network whose weights are a list of three tensors; `logits(weights, states)` computes it, `(…, 4) -> (…, 2)`.
#
# 1. (five minutes) `advantages(rewards, values, over, last_values, gamma, lam)`: GAE for `T` steps of `n` carts, all `(T, n)`; `over` is True where the pole fell in that step, so
#    the next row belongs to a new episode. `last_values`, `(n,)`, holds the critic's values of the states after the last step.
# 2. `train(iterations, seed)`: begin with `beginning(rng)`, train by PPO, and return the policy's three tensors. In each iteration 32 carts take 64 steps; a cart whose pole fell
#    starts again. You choose the number of passes, the optimiser and the critic. Ours has six passes over all steps with Adam at 0.02, $\gamma = 0.98$, $\lambda = 0.95$, $\varepsilon = 0.2$, advantages with mean
#    0 and standard deviation 1, and a critic of the same size as the policy. Take all random numbers from the seed.
#
# Grading: eight iterations, four seeds. The test environment has the same functions `start` and `push`, but it differs from yours: in some runs the two actions are exchanged, and forces are a little
# larger or smaller. Your policy can learn this only by trying. In one further run the pole falls only after one of the two actions, whatever the state, and six iterations must find the other one. The environment counts the calls: 64 calls of `push` with 32 carts per iteration. With no iteration `train` returns the beginning, and the same seed gives the same policy.
# The score is the number of steps, of 200, for which the pole stands under the more probable action, averaged over 32 starts. It is compared with our run
# on the same seed. You pass if the lower end of the 95 % interval of (your score − ours) is above −100. A policy that has learned nothing keeps the pole up for about ten steps.

# %% [given]
import math

import torch

SCALE = torch.tensor([1.0, 1.0, 5.0, 1.0])


def start(n, rng):
    """Return n states (n, 4): position, speed, angle and angular speed, all near 0."""
    return (torch.rand(n, 4, generator=rng) - 0.5) * 0.1


def push(states, actions):
    """Push to the left (0) or to the right (1) for 0.02 s. Returns the next states (n, 4), and which poles have fallen (n,)."""
    speed, angle, turn = states[:, 1:].unbind(-1)
    sine, cosine = angle.sin(), angle.cos()
    drive = (torch.where(actions == 1, 10.0, -10.0) + 0.05 * turn**2 * sine) / 1.1
    bend = (9.8 * sine - cosine * drive) / (0.5 * (4 / 3 - 0.1 * cosine**2 / 1.1))
    speeding = drive - 0.05 * bend * cosine / 1.1
    rates = torch.stack([speed, speeding, turn, bend], -1)
    states = states + 0.02 * rates
    return states, (states[:, 0].abs() > 2.4) | (states[:, 2].abs() > 12 * math.pi / 180)


def beginning(rng, outputs=2):
    """Return the weights of a network with 16 hidden units."""
    return [0.5 * torch.randn(4, 16, generator=rng), torch.zeros(16), torch.zeros(16, outputs)]


def logits(weights, states):
    return torch.tanh(states * SCALE @ weights[0] + weights[1]) @ weights[2]


# %% [stub]
def advantages(rewards, values, over, last_values, gamma, lam):
    """All (T, n), except last_values, (n,). Returns (T, n)."""
    raise NotImplementedError


def train(iterations, seed):
    """Returns the policy's weights: three tensors, (4, 16), (16,) and (16, 2)."""
    raise NotImplementedError


# %% [solution]
def advantages(rewards, values, over, last_values, gamma, lam):
    found, later, following = torch.zeros_like(values), torch.zeros_like(last_values), last_values
    for t in reversed(range(len(rewards))):
        goes_on = torch.where(over[t], 0.0, 1.0).to(values.dtype)
        later = rewards[t] + gamma * following * goes_on - values[t] + gamma * lam * goes_on * later
        found[t], following = later, values[t]
    return found


def train(iterations, seed):
    rng = torch.Generator().manual_seed(seed)
    policy, critic = beginning(rng), beginning(rng, 1)
    for w in policy + critic:
        w.requires_grad_()
    adam, states = torch.optim.Adam(policy + critic, lr=0.02), start(32, rng)
    for _ in range(iterations):
        steps = []
        with torch.no_grad():
            for _ in range(64):
                logps = logits(policy, states).log_softmax(-1)
                actions = torch.multinomial(logps.exp(), 1, generator=rng)
                after, fell = push(states, actions[:, 0])
                steps.append((states, actions, logps.gather(1, actions)[:, 0], fell))
                states = torch.where(fell[:, None], start(32, rng), after)
            seen, acted, old, over = (torch.stack(column) for column in zip(*steps))
            values = logits(critic, seen)[..., 0]
            a = advantages(torch.ones(64, 32), values, over, logits(critic, states)[:, 0], 0.98, 0.95)
            goals, a = a + values, (a - a.mean()) / (a.std() + 1e-6)
        for _ in range(6):
            ratio = (logits(policy, seen).log_softmax(-1).gather(-1, acted)[..., 0] - old).exp()
            gain = torch.minimum(ratio * a, ratio.clamp(0.8, 1.2) * a).mean()
            error = (logits(critic, seen)[..., 0] - goals).square().mean()
            adam.zero_grad()
            (0.005 * error - gain).backward()
            adam.step()
    return [w.detach() for w in policy]


# %% [tests]
import math

import torch
from minirlhf_course.classroom.testing import expect, fail, test, tidy
from minirlhf_course.classroom.training import trains
from minirlhf_course.ledger.registry import Draw


@test(
    points=2,
    hints=(
        "Go backwards. What is the future of a cart whose pole fell in this step?",
        "Where `over` is True, neither the next value nor the next advantage belongs to this episode. Both count 0.",
    ),
)
def looks_back(sub, draw):
    "`advantages` is GAE, and nothing crosses the end of an episode."
    rewards, values = (tidy(draw.uniform(5, 3, low=0.2, high=2.0)) for _ in range(2))
    last, gamma, lam = tidy(draw.uniform(3, low=0.5, high=2.0)), 0.9, 0.8
    over = torch.zeros(5, 3, dtype=torch.bool)
    over[draw.integer(1, 3), 0] = over[4, 1] = True

    def summed(gamma, lam, ends, keeps_value=0.0):
        """Return the definition: the discounted sum of the TD residuals up to the end of the episode."""
        found = torch.zeros(5, 3, dtype=torch.float64)
        for i in range(3):
            following = [*values[1:, i].tolist(), float(last[i])]
            for t in range(5):
                weight = 1.0
                for k in range(t, 5):
                    stays = keeps_value if ends[k, i] else 1.0
                    found[t, i] += weight * (float(rewards[k, i]) + gamma * stays * following[k] - float(values[k, i]))
                    weight *= gamma * lam
                    if ends[k, i]:
                        break
        return found

    forwards, later, following = [], torch.zeros(3, dtype=torch.float64), last
    for t in range(5):
        stays = (~over[t]).double()
        later = rewards[t] + gamma * stays * following - values[t] + gamma * lam * stays * later
        forwards.append(later)
        following = values[t]
    expect(
        sub.advantages(rewards, values, over, last, gamma, lam),
        summed(gamma, lam, over),
        what="the advantages",
        given={"rewards": rewards, "values": values, "over": over, "last_values": last, "gamma": gamma, "lam": lam},
        mistakes={
            "the ends of episodes are ignored": summed(gamma, lam, torch.zeros_like(over)),
            "the value after the end counts": summed(gamma, lam, over, 1.0),
            "it goes forwards through the steps": torch.stack(forwards),
            "λ is 1": summed(gamma, 1.0, over),
            "λ is 0": summed(gamma, 0.0, over),
            "the TD residuals are weighted by powers of λ, without γ": summed(gamma, lam / gamma, over),
        },
    )


def stands(weights, states, push):
    """Return for how many of 200 steps the poles stand, on average, under the more probable action."""
    scale, standing, steps = torch.tensor([1.0, 1.0, 5.0, 1.0]), torch.ones(len(states), dtype=torch.bool), 0.0
    for _ in range(200):
        actions = (torch.tanh(states * scale @ weights[0] + weights[1]) @ weights[2]).argmax(-1)
        states, fell = push(states, actions)
        steps += float(standing.sum())
        standing &= ~fell
        if not bool(standing.any()):
            break
    return steps / len(states)


class Cart:
    """Carts that count their pushes; the actions may be exchanged, and the force differs a little."""

    def __init__(self, draw):
        self.exchanged, self.force = draw.integer(0, 1) == 1, float(draw.uniform(1, low=0.85, high=1.15))
        self.pushes, self.problem = 0, ""

    def push(self, states, actions):
        self.pushes += 1
        if tuple(states.shape) != (32, 4) or tuple(actions.shape) != (32,):
            self.problem = (
                f"`push` got states {tuple(states.shape)} and actions {tuple(actions.shape)}; expected 32 carts"
            )
        return self.answer(states, actions)

    def answer(self, states, actions):
        right = (actions == 1) != self.exchanged
        speed, angle, turn = states[:, 1:].unbind(-1)
        sine, cosine = angle.sin(), angle.cos()
        drive = (self.force * torch.where(right, 10.0, -10.0) + 0.05 * turn**2 * sine) / 1.1
        bend = (9.8 * sine - cosine * drive) / (0.5 * (4 / 3 - 0.1 * cosine**2 / 1.1))
        states = states + 0.02 * torch.stack([speed, drive - 0.05 * bend * cosine / 1.1, turn, bend], -1)
        return states, (states[:, 0].abs() > 2.4) | (states[:, 2].abs() > 12 * math.pi / 180)


def trained(sub, cart, iterations, seed):
    """Return the policy, if it used the expected number of pushes."""
    weights = sub.in_world(push=cart.push).train(iterations, seed)
    shapes = [(4, 16), (16,), (16, 2)]
    if not isinstance(weights, list | tuple) or [getattr(w, "shape", None) for w in weights] != shapes:
        fail(f"expected the policy's weights, three tensors of shapes {shapes}")
    weights = [w.detach().float() for w in weights]
    if not all(bool(w.isfinite().all()) for w in weights):
        fail("the weights contain NaN or infinity")
    if cart.problem:
        fail(cart.problem)
    if cart.pushes != 64 * iterations:
        fail(f"`push` was called {cart.pushes} times; expected {64 * iterations} calls in {iterations} iterations")
    return weights


def begins(sub, draw):
    """Check that zero iterations learn nothing, and that the seed alone decides the result."""
    seed, same = draw.integer(0, 2**28), draw.integer(0, 2**28)
    if any(bool((w != 0).any()) for w in trained(sub, Cart(draw), 0, seed)[1:]):
        fail(
            "with no iteration `train` should return the result of `beginning`: a policy with equal probabilities for both actions"
        )
    one, again, other = (trained(sub, Cart(Draw("04.6", same)), 1, s) for s in (seed, seed, seed + 1))
    if not all(torch.allclose(a, b, atol=1e-4) for a, b in zip(one, again, strict=True)):
        fail(
            "the same seed gives different policies in the same environment: a random number does not come from the seed"
        )
    if all(torch.allclose(a, b, atol=1e-4) for a, b in zip(one, other, strict=True)):
        fail("a different seed gives the same policy: the seed is not used")


def learns_anything(sub, draw):
    """Check that `train` learns from what happens: here the pole falls after one action only, whatever the state."""
    good, rng = draw.integer(0, 1), torch.Generator().manual_seed(draw.integer(0, 2**28))
    cart = Cart(draw)

    def answer(states, actions):
        falls = (actions != good) & (torch.rand(len(states), generator=rng) < 0.5)
        return (states + 0.01 * torch.randn(states.shape, generator=rng)).clamp(-0.2, 0.2), falls

    cart.answer = answer
    first, shift, last = trained(sub, cart, 6, draw.integer(0, 2**28))
    states = 0.2 * (draw.uniform(64, 4).float() - 0.5)
    chosen = (torch.tanh(states * torch.tensor([1.0, 1.0, 5.0, 1.0]) @ first + shift) @ last).softmax(-1)[:, good]
    if float(chosen.mean()) < 0.75:
        fail(
            f"in another environment only one action keeps the pole up; after six iterations its probability is {float(chosen.mean()):.2f}"
        )


@trains(
    points=4,
    hints=(
        "The advantage decides whether an action becomes more or less probable, and by how much. Which number of the rollout do the ratio, the clip and the critic each use?",
        "Old log-probabilities, advantages and the critic's targets (advantage plus value) come from the rollout, without gradient. Minimise minus the minimum of the two terms.",
    ),
    seeds=4,
    bar=100.0,
    what="the number of steps with a standing pole",
    also=(begins, learns_anything),
)
def balances(sub, draw):
    "`train` finds a policy that keeps the pole up, in four runs, each paired with ours."
    seed, states = draw.integer(0, 2**28), 0.1 * (draw.uniform(32, 4).float() - 0.5)
    cart = Cart(draw)
    weights = trained(sub, cart, 8, seed)
    return [10.0, stands(weights, states, cart.answer)]


# %% [shared]
# 0.02, 0.05, 0.1, 1.1, 5.0, 9.8: the dynamics of the cart are public; its force and the order of the actions are hidden


# %% [probes]
# no random of train: it samples by its seed, from any generator
# no gradient: advantages are data, and a training is not differentiated
# no integers, keywords, size, values, float32 of train: any training that balances the pole is right


# %% [mutant] the ends are ignored
# caught by: looks_back
# says: the ends of episodes are ignored
def advantages(rewards, values, over, last_values, gamma, lam):
    found, later, following = torch.zeros_like(values), torch.zeros_like(last_values), last_values
    for t in reversed(range(len(rewards))):
        goes_on = 1.0
        later = rewards[t] + gamma * following * goes_on - values[t] + gamma * lam * goes_on * later
        found[t], following = later, values[t]
    return found


# %% [mutant] the value after the end
# caught by: looks_back
# says: the value after the end
def advantages(rewards, values, over, last_values, gamma, lam):
    found, later, following = torch.zeros_like(values), torch.zeros_like(last_values), last_values
    for t in reversed(range(len(rewards))):
        goes_on = torch.where(over[t], 0.0, 1.0).to(values.dtype)
        later = rewards[t] + gamma * following - values[t] + gamma * lam * goes_on * later
        found[t], following = later, values[t]
    return found


# %% [mutant] λ is forgotten
# caught by: looks_back
# says: λ is 1
def advantages(rewards, values, over, last_values, gamma, lam):
    found, later, following = torch.zeros_like(values), torch.zeros_like(last_values), last_values
    for t in reversed(range(len(rewards))):
        goes_on = torch.where(over[t], 0.0, 1.0).to(values.dtype)
        later = rewards[t] + gamma * following * goes_on - values[t] + gamma * goes_on * later
        found[t], following = later, values[t]
    return found


# %% [mutant] descent
# caught by: balances
# says: below ours
def train(iterations, seed):
    rng = torch.Generator().manual_seed(seed)
    policy, critic = beginning(rng), beginning(rng, 1)
    for w in policy + critic:
        w.requires_grad_()
    adam, states = torch.optim.Adam(policy + critic, lr=0.02), start(32, rng)
    for _ in range(iterations):
        steps = []
        with torch.no_grad():
            for _ in range(64):
                logps = logits(policy, states).log_softmax(-1)
                actions = torch.multinomial(logps.exp(), 1, generator=rng)
                after, fell = push(states, actions[:, 0])
                steps.append((states, actions, logps.gather(1, actions)[:, 0], fell))
                states = torch.where(fell[:, None], start(32, rng), after)
            seen, acted, old, over = (torch.stack(column) for column in zip(*steps))
            values = logits(critic, seen)[..., 0]
            a = advantages(torch.ones(64, 32), values, over, logits(critic, states)[:, 0], 0.98, 0.95)
            goals, a = a + values, (a - a.mean()) / (a.std() + 1e-6)
        for _ in range(6):
            ratio = (logits(policy, seen).log_softmax(-1).gather(-1, acted)[..., 0] - old).exp()
            gain = torch.minimum(ratio * a, ratio.clamp(0.8, 1.2) * a).mean()
            error = (logits(critic, seen)[..., 0] - goals).square().mean()
            adam.zero_grad()
            (0.005 * error + gain).backward()
            adam.step()
    return [w.detach() for w in policy]


# %% [mutant] rewards instead of advantages
# caught by: balances
# says: below ours
def train(iterations, seed):
    rng = torch.Generator().manual_seed(seed)
    policy, critic = beginning(rng), beginning(rng, 1)
    for w in policy + critic:
        w.requires_grad_()
    adam, states = torch.optim.Adam(policy + critic, lr=0.02), start(32, rng)
    for _ in range(iterations):
        steps = []
        with torch.no_grad():
            for _ in range(64):
                logps = logits(policy, states).log_softmax(-1)
                actions = torch.multinomial(logps.exp(), 1, generator=rng)
                after, fell = push(states, actions[:, 0])
                steps.append((states, actions, logps.gather(1, actions)[:, 0], fell))
                states = torch.where(fell[:, None], start(32, rng), after)
            seen, acted, old, over = (torch.stack(column) for column in zip(*steps))
            values = logits(critic, seen)[..., 0]
            a = advantages(torch.ones(64, 32), values, over, logits(critic, states)[:, 0], 0.98, 0.95)
            goals, a = a + values, torch.zeros_like(a)
        for _ in range(6):
            ratio = (logits(policy, seen).log_softmax(-1).gather(-1, acted)[..., 0] - old).exp()
            gain = torch.minimum(ratio * a, ratio.clamp(0.8, 1.2) * a).mean()
            error = (logits(critic, seen)[..., 0] - goals).square().mean()
            adam.zero_grad()
            (0.005 * error - gain).backward()
            adam.step()
    return [w.detach() for w in policy]


# %% [mutant] ends are ignored in the training
# caught by: balances
# says: below ours
def train(iterations, seed):
    rng = torch.Generator().manual_seed(seed)
    policy, critic = beginning(rng), beginning(rng, 1)
    for w in policy + critic:
        w.requires_grad_()
    adam, states = torch.optim.Adam(policy + critic, lr=0.02), start(32, rng)
    for _ in range(iterations):
        steps = []
        with torch.no_grad():
            for _ in range(64):
                logps = logits(policy, states).log_softmax(-1)
                actions = torch.multinomial(logps.exp(), 1, generator=rng)
                after, fell = push(states, actions[:, 0])
                steps.append((states, actions, logps.gather(1, actions)[:, 0], fell))
                states = torch.where(fell[:, None], start(32, rng), after)
            seen, acted, old, over = (torch.stack(column) for column in zip(*steps))
            values = logits(critic, seen)[..., 0]
            a = advantages(torch.ones(64, 32), values, torch.zeros_like(over), logits(critic, states)[:, 0], 0.98, 0.95)
            goals, a = a + values, (a - a.mean()) / (a.std() + 1e-6)
        for _ in range(6):
            ratio = (logits(policy, seen).log_softmax(-1).gather(-1, acted)[..., 0] - old).exp()
            gain = torch.minimum(ratio * a, ratio.clamp(0.8, 1.2) * a).mean()
            error = (logits(critic, seen)[..., 0] - goals).square().mean()
            adam.zero_grad()
            (0.005 * error - gain).backward()
            adam.step()
    return [w.detach() for w in policy]


# %% [mutant] the actions are those of the next step
# caught by: balances
# says: below ours
def train(iterations, seed):
    rng = torch.Generator().manual_seed(seed)
    policy, critic = beginning(rng), beginning(rng, 1)
    for w in policy + critic:
        w.requires_grad_()
    adam, states = torch.optim.Adam(policy + critic, lr=0.02), start(32, rng)
    for _ in range(iterations):
        steps = []
        with torch.no_grad():
            for _ in range(64):
                logps = logits(policy, states).log_softmax(-1)
                actions = torch.multinomial(logps.exp(), 1, generator=rng)
                after, fell = push(states, actions[:, 0])
                steps.append((states, actions, logps.gather(1, actions)[:, 0], fell))
                states = torch.where(fell[:, None], start(32, rng), after)
            seen, acted, old, over = (torch.stack(column) for column in zip(*steps))
            acted = acted.roll(1, 0)
            values = logits(critic, seen)[..., 0]
            a = advantages(torch.ones(64, 32), values, over, logits(critic, states)[:, 0], 0.98, 0.95)
            goals, a = a + values, (a - a.mean()) / (a.std() + 1e-6)
        for _ in range(6):
            ratio = (logits(policy, seen).log_softmax(-1).gather(-1, acted)[..., 0] - old).exp()
            gain = torch.minimum(ratio * a, ratio.clamp(0.8, 1.2) * a).mean()
            error = (logits(critic, seen)[..., 0] - goals).square().mean()
            adam.zero_grad()
            (0.005 * error - gain).backward()
            adam.step()
    return [w.detach() for w in policy]


# %% [cheat] a controller by hand
def train(iterations, seed):
    weights = beginning(torch.Generator().manual_seed(seed))
    weights[0] = torch.zeros(4, 16)
    weights[0][:, 0] = torch.tensor([0.05, 0.1, 0.4, 0.3])
    weights[2] = torch.zeros(16, 2)
    weights[2][0] = torch.tensor([-5.0, 5.0])
    return weights


# %% [cheat] a controller by hand, after some pushes that nobody looks at
def train(iterations, seed):
    rng = torch.Generator().manual_seed(seed)
    weights, states = beginning(rng), start(32, rng)
    for _ in range(64 * iterations):
        states, _ = push(states, torch.randint(2, (32,), generator=rng))
        states = start(32, rng)
    if iterations:
        weights[0] = torch.zeros(4, 16)
        weights[0][:, 0] = torch.tensor([0.05, 0.1, 0.4, 0.3]) + 1e-3 * torch.randn(4, generator=rng)
        weights[2][0] = torch.tensor([-5.0, 5.0])
    return weights


# %% [partial] 2: the advantages
def train(iterations, seed):
    raise NotImplementedError
