"""What chapter 12 asks its readers to predict; see ``book/_ext/asking.py``."""

import math

import torch
from asking import Ask, Typed, mean, seeds

from minirlhf.data.toys import poem_critic
from minirlhf.equations import advantages, aggregation, rlhf, shaping
from minirlhf_course import evidence
from minirlhf_course.chapters.ch12_policy_gradients import many_decisions


def _mask(*lengths: int) -> torch.Tensor:
    return torch.arange(max(lengths))[None, :] < torch.tensor(lengths)[:, None]


def _over_tokens():
    mask, rewards = _mask(11, 3, 3, 3), torch.tensor([[1.0, 0.0, 0.0, 0.0]], dtype=torch.float64)
    right, wrong = advantages.batch_zscore(rewards)[0, :2].tolist()
    token = advantages.whiten(advantages.broadcast_to_tokens(rewards, mask), mask)
    praise, blame = float(token[0, 0]), float(token[1, 0])
    share = float((rewards.T * mask).sum() / mask.sum())  # of the tokens, those with a reward of 1
    found = {
        "right": right,
        "wrong": wrong,
        "share": share,
        "spread": (1 - share) / praise,  # what the library has divided by
        "before": (1 - float(rewards.mean())) / right,
    }
    if abs(praise - right) < 0.05 and abs(blame - wrong) < 0.05:
        return "the same", found
    size, penalty = "larger" if praise > right else "smaller", "larger" if blame < wrong else "smaller"
    return f"a {size} advantage for the right one, and a {penalty} penalty for the wrong ones", found


long_and_right = Ask(
    "One right completion has 11 tokens, and three wrong ones have 3 each. With mean and standard deviation over completions, each token of the right one gets {right:.1f} and each token of a wrong one {wrong:.1f}. How do these advantages change with mean and standard deviation over tokens?",
    {
        "a smaller advantage for the right one, and a larger penalty for the wrong ones": "",
        "the same": "Each token carries the reward of its completion. Eleven tokens have a 1 and nine have a 0; of the completions, one has a 1 and three have a 0.",
        "a larger advantage for the right one, and a smaller penalty for the wrong ones": "The long completion counts more, also in the mean. The mean is {share:.2f} now: a reward of 1 lies less far above it, and a reward of 0 further below it, than with .25. The standard deviation, by which both are divided, hardly changes: it is {spread:.2f} in place of {before:.2f}.",
    },
    _over_tokens,
)


def _critic():
    rows = [
        f"ppo_{name}_right" for name in ("warm", "cold", "lambda_1", "no_critic")
    ]  # all pairs of them are one family
    pair = evidence.differences({row: seeds("ch12", row) for row in rows})["ppo_warm_right", "ppo_no_critic_right"]
    found = {
        "with": mean("ch12", "ppo_warm_right"),
        "without": mean("ch12", "ppo_no_critic_right"),
        "room": 1 - mean("ch12", "ppo_no_critic_right"),
        "seen": pair.minimum_detectable_effect,
    }
    return (
        "no significant difference" if not pair.significant else "more often" if pair.mean > 0 else "less often"
    ), found


with_a_critic = Ask(
    "PPO with λ = .95 has a critic that was trained alone for eight of the 28 rollouts. A run without a critic has the same learning rate, which was tuned for neither. Is its final policy right more often than the final policy of this other run, over five seeds?",
    {
        "more often": "The critic assigns credit to the first word. But nearly everything depends on this one word, and over many completions the reward alone also shows which word is better. Without a critic {without:.3f} of the completions are right at the end, so no gain can exceed {room:.3f}.",
        "no significant difference": "",
        "less often": "In rollouts 13 to 16 its policy scores lower, because its training began eight rollouts later. At the end the means are {with:.2f} and {without:.2f}; the minimum detectable loss was {seen:.2f} (80 % power).",
    },
    _critic,
)


def _others():
    weights = many_decisions.with_exact_critic(2000, 0.95)[0, 1:]  # of the first token: all that comes after it
    return float(weights.square().sum()), {
        "sum": float(weights.sum()),
        "tenth": 0.95**20,
        "own": 1 + float(weights.square().sum()),
    }


terms_of_others = Ask(
    "With the whole reward the ω² of the first token of a completion add up to T − 1. What do they add up to with exact values and λ = .95, if the completion is very long?",
    Typed(
        within=0.6,
        form=".0f",
        low="The weights fall slowly. Ten tokens later ω is still .60 and its square {tenth:.2f}, so many of them matter.",
        high="The weights themselves, .95 and .95² and so on, add up to {sum:.0f}. The variance contains their squares, which add up to less, however long the completion is. With the token's own 1, which is not among the T − 1, the sum would be {own:.1f}.",
    ),
    _others,
)


def _cut_off():
    world = poem_critic()
    ends = world.reference.completions().terminated
    ref_logps = world.reference.distribution()[0].detach().log()

    def share(penalty: float) -> float:
        rewards = shaping.missing_eos_penalty(world.rewards, ends, penalty=penalty)
        return 100 * float(rlhf.optimal_logps(ref_logps, rewards, beta=0.5).exp()[~ends].sum())

    free, charged = share(0.0), share(1.0)
    odds = free / (100 - free) / math.e
    return charged, {
        "free": free,
        "quotient": free / math.e**2,
        "once": 100 * odds / (1 + odds),
        "share": free / math.e,
    }


cut_off_less = Ask(
    "Without a penalty the optimum for β = ½ is truncated in {free:.0f} % of its completions. Truncation now costs p = 1. In what percentage of completions is the new optimum truncated?",
    Typed(
        within=3.0,
        unit="%",
        form=".0f",
        low="Relative to the other completions, every truncated one loses a factor of e². Divide the {free:.0f} % by it, and {quotient:.0f} % are left. But probabilities must add up to 1, so the factor divides the odds.",
        high="A factor of e, from the penalty itself, would leave {once:.0f} % (or {share:.0f} %, if it divides the percentage). The optimum has the reward divided by β in its exponent, so with β = ½ a penalty of 1 is 2 nats.",
    ),
    _cut_off,
)


def _one_each():
    mask = _mask(4, 7)
    done = torch.cat([aggregation.token_mean(row[None]) for row in mask]) / len(mask)
    rules = {
        "the mean over all tokens": aggregation.token_mean,
        "the mean over completions of each completion's mean": aggregation.sequence_mean,
        "the mean over completions of each completion's sum": aggregation.sequence_sum,
    }
    [answer] = [name for name, rule in rules.items() if torch.allclose(done, rule(mask))]
    return answer, {}


one_reply_each = Ask(
    "Each micro-batch holds one completion and takes the mean over its tokens. The losses are averaged. Which rule does the whole batch follow?",
    {
        "the mean over all tokens": "It would if each mean were weighted by its number of tokens. Here all means have the same weight, so a token of a short completion counts more.",
        "the mean over completions of each completion's mean": "",
        "the mean over completions of each completion's sum": "With two completions a token of either would have the weight ½. Here it is divided by the length of its completion first: with 4 and 7 tokens, ¼ and ⅐ of this are left.",
    },
    _one_each,
)
