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
    return f"{'more' if praise > right else 'less'} praise, and {'more' if blame < wrong else 'less'} blame", found


long_and_right = Ask(
    "One right reply has 11 tokens, three wrong ones have 3 each. With mean and deviation taken over replies, each token of the right one gets {right:.1f} and each token of a wrong one {wrong:.1f}. What do they get with mean and deviation taken over tokens?",
    {
        "less praise, and more blame": "",
        "the same": "Each token carries the reward of its reply, but there are eleven with a 1 and nine with a 0, and not one with a 1 and three with a 0.",
        "more praise, and less blame": "The long reply counts more, and so it does in the mean. That is {share:.2f} now: a reward of 1 lies less far above it, and one of 0 further below it, than with .25. The deviation, by which both are divided, hardly changes: it is {spread:.2f} in place of {before:.2f}.",
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
        "no difference was found" if not pair.significant else "more often" if pair.mean > 0 else "less often"
    ), found


with_a_critic = Ask(
    "PPO with λ = .95 has a critic that learned alone for eight of the 28 rollouts. What do five seeds say of its policy in the end: is it right more often than the policy of a run without a critic?",
    {
        "more often": "The critic brings credit to the first word. But nearly everything hangs on this one word, and over many replies the reward alone shows, too, which word is better: without a critic {without:.3f} of the replies are right in the end, so that no lead can exceed {room:.3f}.",
        "no difference was found": "",
        "less often": "In rollouts 13 to 16 its policy is behind, since it began to learn eight rollouts later. At the end the means are {with:.2f} and {without:.2f}, where a loss of {seen:.2f} would have been found in four of five such studies.",
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
    "With the whole reward the ω² of the first token of a reply add up to T − 1. What do they add up to with exact values and λ = .95, if the reply is very long?",
    Typed(
        within=0.6,
        form=".0f",
        low="The weights fall slowly. Ten tokens later ω is still .60 and its square {tenth:.2f}, so that many of them matter.",
        high="The weights themselves, .95 and .95² and so on, add up to {sum:.0f}. In the variance their squares stand, and they add up to less, however long the reply is. With the token's own 1, which is not among the T − 1, they would make {own:.1f}.",
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
    "Without a penalty the optimum for β = ½ is cut off in {free:.0f} % of its replies. Being cut off now costs p = 1. What is the percentage of the new optimum?",
    Typed(
        within=3.0,
        unit="%",
        form=".0f",
        low="Against the others every reply that is cut off loses a factor of e². If one divides the {free:.0f} % by it, {quotient:.0f} % are left; but all shares must add up to 1, so that it is the odds that are divided.",
        high="A factor of e, from the penalty itself, would leave {once:.0f} % (or {share:.0f} %, if the share itself is divided). The optimum has the reward divided by β in its exponent, and ½ makes a penalty of 1 a matter of 2 nats.",
    ),
    _cut_off,
)


def _one_each():
    mask = _mask(4, 7)
    done = torch.cat([aggregation.token_mean(row[None]) for row in mask]) / len(mask)
    rules = {
        "the mean over all tokens": aggregation.token_mean,
        "the mean over replies of each reply's mean": aggregation.sequence_mean,
        "the mean over replies of each reply's sum": aggregation.sequence_sum,
    }
    [answer] = [name for name, rule in rules.items() if torch.allclose(done, rule(mask))]
    return answer, {}


one_reply_each = Ask(
    "Each micro-batch holds one reply and takes the mean over its tokens; the losses are averaged. Which rule does the whole batch follow?",
    {
        "the mean over all tokens": "It would if each mean counted by how many tokens are in it. Here all means count the same, and a token of a short reply counts more.",
        "the mean over replies of each reply's mean": "",
        "the mean over replies of each reply's sum": "With two replies a token of either would weigh ½. Here it is divided by the length of its reply first: with 4 and 7 tokens, ¼ and ⅐ of that are left.",
    },
    _one_each,
)
