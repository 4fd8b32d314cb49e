"""The prediction questions of chapter 03; see ``book/_ext/asking.py``."""

import itertools
import math

import torch
from asking import Ask, Typed, compared, mean, seeds

from minirlhf.equations import mdp
from minirlhf.equations.value_learning import epsilon_greedy
from minirlhf.tabular import planning, worlds

CHAIN = worlds.SIX_STATES


def _after_middle():
    both = CHAIN[:, 2:4] @ CHAIN[2:4, 5]  # to s3 or s4 now and to s6 next
    ends = both / CHAIN[:, 2:4].sum(-1)
    return float(ends[4]), {
        "other": float(ends[1]),
        "both": float(both[4]),
        "even": float(CHAIN[2:4, 5].mean()),
        "last": float(CHAIN[3, 5]),
    }


middle = Ask(
    "An observer calls both s3 and s4 “middle”. If s2 came before, s6 follows “middle” with probability {other:.1f}. With what probability does s6 follow if s5 came before?",
    Typed(
        within=0.02,
        form=".4f",
        low="{even:.2f} would be right if s3 and s4 were equally probable, but after s5 the ratio is 3 to 5. {both:.2f} is the probability that “middle” and then s6 follow s5. Here “middle” has already occurred.",
        high="{last:.1f} would be right if the state were certainly s4. After s5 it is s3 with probability 3/8.",
    ),
    _after_middle,
)


def _stumbling(pick):
    """Return the returns of the best (or worst) policy with random steps, among all that are optimal without them."""
    cliff = worlds.cliff_walking().process
    tables = cliff.transitions, cliff.expected_rewards
    policy = planning.policy_iteration(cliff, gamma=1.0).policy
    value = mdp.policy_values(*tables, policy, gamma=1.0)
    worth = mdp.action_values(*tables, value, gamma=1.0)
    optimal = worth > worth.amax(-1, keepdim=True) - 1e-9
    for _ in range(50):
        stumbles = epsilon_greedy(policy, epsilon=0.1)
        now = mdp.policy_values(*tables, stumbles, gamma=1.0)
        choice = torch.where(optimal, pick * mdp.action_values(*tables, now, gamma=1.0), -1e6)
        better = choice.amax(-1) > (choice * policy).sum(-1) + 1e-9
        if not better.any():
            break
        policy = torch.where(better[:, None], mdp.greedy_policy(choice), policy)
    falls = (tables[1] <= -100).double()
    return float(value[36]), float(now[36]), float(mdp.policy_values(tables[0], falls, stumbles, gamma=1.0)[36])


EDGE = {"about −15": -15, "about −25": -25, "about −50": -50, "about −100": -100}


def _edge():
    (sure, best, fewest), (_, worst, most) = _stumbling(1), _stumbling(-1)
    [answer] = {min(EDGE, key=lambda words: abs(EDGE[words] - earned)) for earned in (best, worst)}
    assert 0.25 < fewest <= most < 0.36, (fewest, most)  # as the explanations say
    return answer, {"sure": sure}


along_the_edge = Ask(
    "The shortest path along this cliff takes 13 steps and has a return of {sure:.0f}. A step over the edge costs 100 and leads back to the start. What is the mean return of"
    " this path if one step in ten is random, in any of the four directions?",
    {
        "about −15": "Most random steps cost only a step or two. But one step in forty goes over the edge, and most of the path is along it.",
        "about −25": "That would be about one fall in eight walks. With a probability of 1/40 on each of about eleven steps there are more than twice as many falls.",
        "about −50": "",
        "about −100": "That would be a fall in nearly every walk. About eleven steps with a probability of 1/40 each give about three falls in ten walks.",
    },
    _edge,
)


def _lost_more():
    safe, random = "regret UCB, c = √2", "regret ε-greedy, ε = .1"
    lost = {"larger": "UCB1", "smaller": "ε-greedy", "alike": "both about the same"}[compared("ch03", safe, random)]
    gaps = [0.7 - paid for paid in (0.3, 0.4, 0.5, 0.6)]
    # Auer, Cesa-Bianchi and Fischer (2002), theorem 1: for every T
    bound = 8 * math.log(1_000) * sum(1 / gap for gap in gaps) + (1 + math.pi**2 / 3) * sum(gaps)
    found = {"safe": mean("ch03", safe), "random": mean("ch03", random), "bound": bound, "most": 1_000 * max(gaps)}
    crowds = [seeds("ch03", name) for name in (safe, random)]
    assert (
        max(max(crowd) - min(crowd) for crowd in crowds) < abs(found["safe"] - found["random"]) / 3
    )  # the explanation
    return lost, found


lost_more = Ask(
    "Five arms pay with probability .3, .4, .5, .6 and .7. UCB1 has a regret that provably grows like log T. ε-greedy with ε = .1 has a regret that eventually grows linearly in T. Each pulls a thousand times. Which has lost more, on average over many players?",
    {
        "ε-greedy": "After enough pulls it has, because a straight line overtakes any logarithm. The proof bounds UCB1's regret for every T. But for 1,000 pulls the bound is {bound:,.0f}, and no player can lose more than {most:.0f}.",
        "UCB1": "",
        "both about the same": "They differ clearly: on average UCB1 has lost {safe:.0f} and ε-greedy {random:.0f}. Across groups of 200 players each mean varies by far less than this difference.",
    },
    _lost_more,
)


def _largest():
    errors = torch.tensor(list(itertools.product((-1.0, 1.0), repeat=4)), dtype=torch.float64)  # all that can happen
    return float(errors.amax(-1).mean())


largest_of_four = Ask(
    "Four actions all have the value 0. Each estimate has an error of +1 or −1, with equal probability and independently of the others. What is the mean of the largest of the four estimates?",
    Typed(
        within=0.06,
        form=".3f",
        low="Each estimate is 0 on average, but the largest is −1 only if all four errors are negative. That has probability 1/16.",
        high="It is never more than +1. With probability 1/16 all four errors are negative, and then it is −1.",
    ),
    _largest,
)
