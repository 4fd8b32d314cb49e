"""What chapter 16 asks its readers to predict; see ``book/_ext/asking.py``."""

import torch
from asking import Ask, Typed, compared, mean, seeds

from minirlhf.equations.advantages import group_zscore
from minirlhf_course import evidence
from minirlhf_course.chapters.ch16_reasoning.tables import Pool


def _small_weight():
    right, formed = torch.ones(1, 8, dtype=torch.float64), torch.tensor([[1.0] * 2 + [0.0] * 6], dtype=torch.float64)
    rewards = 0.9 * right + 0.1 * formed
    numbers = {"above": float(rewards[0, 0] - rewards.mean()), "deviation": float(rewards.std())}
    return float(group_zscore(rewards)[0, 0]), numbers | {"reward": float(rewards[0, 0])}


small_weight = Ask(
    "The reward is .9 for a right answer plus .1 for a well-formed reply. All eight replies of a group are right, two of them are well formed, and the method divides by the group's standard deviation. What is the advantage of a well-formed reply?",
    Typed(
        within=0.15,
        low="{reward:.1f} is its reward, which lies only {above:.3f} above the group's mean. But the standard deviation, by which that is divided, is smaller still, {deviation:.3f}: in such a group the weight of .1 cancels.",
        high="The mean lies a quarter of the way from the six replies up to the two, so that these are {above:.3f} above it. The standard deviation is a little under half of .1, {deviation:.3f}.",
    ),
    _small_weight,
)


def _general_data():
    before, base, on = (mean("ch16_stages", f"{name}_skill") for name in ("first", "kept", "kept_on"))
    ends = {name: seeds("ch16_stages", f"{name}_skill") for name in ("kept_on", "kept")}
    [apart] = evidence.differences(ends).values()
    gained = compared("ch16_stages", "kept_on_skill", "first_skill") == "larger"
    answer = "more, but less than from the base" if apart.significant else "as much as from the base"
    return answer if gained else "no more than before", {
        "before": before,
        "base": base,
        "on": on,
        "seen": apart.minimum_detectable_effect,
    }


general_data = Ask(
    "Stage 3 fine-tunes the base on samples of stage 2 and on general data, here rows of digits that are to be reversed, and the second skill is back at {base:.2f}. Suppose that one fine-tuned the model of stage 2, which keeps {before:.2f}, on the same samples and rows instead. How much of the skill would that model have?",
    {
        "no more than before": "What a model has lost it can learn again: it is shown how rows are reversed, and a model of stage 2 learns from that, too.",
        "more, but less than from the base": "The model of stage 2 begins with less of the skill than the base. But the rows are enough to make up for that: it ends at {on:.2f}, and a difference of {seen:.2f} would have been found. So near to 1 two starts can hardly differ.",
        "as much as from the base": "",
    },
    _general_data,
)


def _rule_of_one_word():
    """The rule less each model, seed by seed in the mean of the table's counts; both pairs are one family."""
    counts = (4, 8, 32)
    votes = {
        name: [sum(of) / 3 for of in zip(*(seeds("ch16_inference", f"vote_{name}_{n}") for n in counts), strict=True)]
        for name in ("thinks", "outcome", "process")
    }
    pairs = evidence.differences(votes, [("thinks", "outcome"), ("thinks", "process")]).values()
    signs = {(one.mean > 0) - (one.mean < 0) if one.significant else 0 for one in pairs}
    if len(signs) > 1:
        raise ValueError(f"the rule is not to both models what it is to one: {list(pairs)}")
    answer = {1: "the rule's", -1: "the trained models'", 0: "neither's: they cannot be told apart"}[signs.pop()]
    numbers = {name: mean("ch16_inference", name) for name in ("thinks_right", "blurts_right")}
    few = {name: seeds("ch16_inference", f"vote_{name}_4") for name in votes}
    alike = evidence.differences(few, [("thinks", "outcome"), ("thinks", "process")]).values()
    if any(one.significant for one in alike):
        raise ValueError(f"with four replies: {list(alike)}")
    return answer, numbers | {
        "seeds": min(one.above for one in pairs),
        "seen": max(one.minimum_detectable_effect for one in alike),
        **{name: sum(found) / len(found) for name, found in votes.items()},
    }


rule_of_one_word = Ask(
    "Four, eight or 32 replies to a game vote. Either a trained model, outcome or process, weighs each by how sure it is of the reply, or a rule without any training lets only those vote that begin to think aloud (if none does, the first reply counts). Whose vote is right more often, on average over the three numbers of replies?",
    {
        "the trained models'": "They might weigh good chains above bad ones. But here {thinks_right:.2f} of the replies that think aloud are right, and {blurts_right:.2f} of the others, so that there is hardly more to see than whether a reply thinks, and that the rule sees without error.",
        "the rule's": "",
        "neither's: they cannot be told apart": "Nearly so: {outcome:.3f} and {process:.3f} with the models, {thinks:.3f} by the rule. But in the runs that share a seed the rule is ahead, in {seeds} of 5, probably because a trained model gives some weight to replies that have not thought. With four replies alone no difference was found, where one of {seen:.2f} would have been.",
    },
    _rule_of_one_word,
)


def _coin():
    start, after = 0.8, seeds("ch16_tables", "coin_free_once_fast_8")
    kept = mean("ch16_tables", "coin_clip_once_fast_8")
    answer = "below .8" if max(after) < start else "above .8" if min(after) > start else "still about .8"
    return answer, {
        "clipped": kept,
        "median": mean("ch16_tables", "coin_free_once_fast_8_median"),
        "after": mean("ch16_tables", "coin_free_once_fast_8"),
        "slow": mean("ch16_tables", "coin_free_once_slow_8"),
    }


paid_by_a_coin = Ask(
    "Nothing is clipped, so that the coin moves the logit of the first habit by nothing on average. Where is its probability after 400 rollouts, on average over the runs?",
    {
        "still about .8": "The mean of the logits stays. But they spread, and from .8 a step up of the logit adds less to the probability than a step down takes away. The mean is {after:.2f} here, and {slow:.2f} at a quarter of the rate, where they spread less.",
        "above .8": "With the clip the mean goes there, to {clipped:.2f}, and without it the median run does, to {median:.2f}. The mean also counts the fewer runs that have lost nearly all of the habit.",
        "below .8": "",
    },
    _coin,
)


def _eight_tries():
    one, eight = mean("ch16_narrowing", "pass_rl_1"), mean("ch16_narrowing", "pass_rl_8")
    before = {f"before_{k}": mean("ch16_narrowing", f"pass_before_{k}") for k in (1, 8)}
    return eight, before | {"one": one, "rest": 1 - one}


eight_tries = Ask(
    "The policy before RL chooses each way equally often; it has a pass@1 of {before_1:.2f} and a pass@8 of {before_8:.2f}. RL on right answers, one softmax over the ways for all problems, raises pass@1 to {one:.2f}. What is its pass@8?",
    Typed(
        within=0.02,
        low="More tries cannot solve fewer problems: pass@8 is at least pass@1, {one:.2f}.",
        high="Before, eight tries went mostly different ways and solved {before_8:.2f}. After RL nearly all of them go one way, and what that way does not solve (about {rest:.2f}) eight tries in it do not solve either. If every try had a chance of {one:.2f} by itself, eight would solve nearly all.",
    ),
    _eight_tries,
)


def _online():
    columns = [f"{pool}_{rate}" for pool in ("none", "half") for rate in ("slow", "quick")]
    times = {
        one: mean("ch16_filters", f"{one}_online_samples") / mean("ch16_filters", f"{one}_all_samples")
        for one in columns
    }
    answer = "far fewer" if max(times.values()) < 0.7 else "far more" if min(times.values()) > 1.4 else "about as many"
    if answer == "about as many" and not all(0.85 < one < 1.15 for one in times.values()):
        raise ValueError(f"online over all: {times}")
    for one in columns:
        said = compared("ch16_filters", f"{one}_online_samples", f"{one}_all_samples")
        if said != ("larger" if one.endswith("quick") else "alike"):
            raise ValueError(f"{one}: online is {said}")
    more = sorted(100 * (times[f"{pool}_quick"] - 1) for pool in ("none", "half"))
    dead = 100 * mean("ch16_filters", "half_slow_all_dead")
    return answer, {"dead": dead, "prompts": Pool().prompts, "less": more[0], "more": more[1]}


online_filter = Ask(
    "At the lower rate {dead:.0f} % of the groups teach nothing where half of the pool is impossible and all prompts are asked. Asking all takes {prompts} groups a step as they come; the online filter samples until {prompts} groups teach. A step is the sum of its groups' plain gradients times one rate, the same for both. How many samples does the filter need until the goal, compared with asking all?",
    {
        "far fewer": "It needs fewer steps. But the groups that teach nothing have been sampled before one can see that, and they are counted.",
        "about as many": "",
        "far more": "It throws many groups away. But these would not have moved the model in any case, and among equally many samples there are equally many groups that teach. At four times the rate it does need {less:.0f} to {more:.0f} % more, probably because it can stop only after a larger step.",
    },
    _online,
)
