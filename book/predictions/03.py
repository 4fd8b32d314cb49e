"""What chapter 03 asks its readers to predict; see ``book/_ext/asking.py``."""

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
    "Somebody calls both s3 and s4 “middle”. If s2 came before, s6 follows “middle” with probability {other:.1f}. With what probability does it follow if s5 came before?",
    Typed(
        within=0.02,
        form=".4f",
        low="{even:.2f} would take s3 and s4 for equally likely, and after s5 the ratio is 3 to 5. {both:.2f} is the chance that “middle” and then s6 come after s5; “middle” has come already.",
        high="{last:.1f} would be right if it were surely s4. After s5 it is s3 three times in eight.",
    ),
    _after_middle,
)


def _stumbling(pick):
    """Of all policies that are best on the cliff without random steps, what the best (or worst) one earns with them."""
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
    assert 0.25 < fewest <= most < 0.36, (fewest, most)  # as the lessons say
    return answer, {"sure": sure}


along_the_edge = Ask(
    "The shortest way along this cliff takes 13 steps and earns {sure:.0f}. A step over the edge costs 100 and leads back to the start. What is earned on average on"
    " this way if one step in ten is random, in any of the four directions?",
    {
        "about −15": "A random step that costs a step or two more does little. One in forty goes over the edge, though, and most of the way lies along it.",
        "about −25": "That leaves room for one fall in eight walks or so. With a chance of 1 in 40 on each of about eleven steps there are more than twice as many.",
        "about −50": "",
        "about −100": "That would be a fall in nearly every walk. Some eleven steps with a chance of 1 in 40 each make about three falls in ten walks.",
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
    assert max(max(crowd) - min(crowd) for crowd in crowds) < abs(found["safe"] - found["random"]) / 3  # the lesson
    return lost, found


lost_more = Ask(
    "Five arms pay with probability .3, .4, .5, .6 and .7. UCB1, whose regret is proved to grow like log T, and ε-greedy with ε = .1, whose regret in the end grows in proportion to T, pull a thousand times each. Who has lost more, on average over many players?",
    {
        "ε-greedy": "After enough pulls it has: a straight line overtakes any logarithm. The proof bounds UCB1's regret for every T, but for 1,000 pulls the bound is {bound:,.0f}, and nobody can lose more than {most:.0f}.",
        "UCB1": "",
        "both about the same": "They are far apart: on average one has lost {safe:.0f}, the other {random:.0f}, and from one crowd of 200 players to another these means differ by far less than that.",
    },
    _lost_more,
)


def _largest():
    errors = torch.tensor(list(itertools.product((-1.0, 1.0), repeat=4)), dtype=torch.float64)  # all that can happen
    return float(errors.amax(-1).mean())


largest_of_four = Ask(
    "Four actions are all worth 0. Each estimate errs by +1 or −1, with equal chances and independently of the others. What is the largest of the four estimates on average?",
    Typed(
        within=0.06,
        form=".3f",
        low="Each estimate is 0 on average, but the largest is −1 only if all four err downwards, and that happens once in sixteen times.",
        high="It is never more than +1, and once in sixteen times all four err downwards: then it is −1.",
    ),
    _largest,
)
