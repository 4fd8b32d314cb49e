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
    "The reward is .9 for a right answer plus .1 for a well-formed completion. All eight completions of a group are right, two of them are well formed, and the method divides by the group's standard deviation. What is the advantage of a well-formed completion?",
    Typed(
        within=0.15,
        low="{reward:.1f} is its reward, which is only {above:.3f} above the group's mean. But this is divided by a smaller number, the standard deviation of {deviation:.3f}: in such a group the weight of .1 cancels.",
        high="The mean lies a quarter of the way from the six completions up to the two, so the two are {above:.3f} above it. The standard deviation is a little under half of .1, {deviation:.3f}.",
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
    "Stage 3 fine-tunes the base on samples of stage 2 and on general data, here rows of digits to reverse. The second skill is then back at {base:.2f}. Suppose that we fine-tune the model of stage 2 instead, which has {before:.2f} of the skill, on the same samples and rows. How much of the skill does it have afterwards?",
    {
        "no more than before": "A model can learn a lost skill again. The rows show how digits are reversed, and the model of stage 2 learns from them too.",
        "more, but less than from the base": "The model of stage 2 starts with less of the skill than the base. But the rows compensate: it ends at {on:.2f}, and the minimum detectable difference was {seen:.2f}. So close to 1 two starts can hardly differ.",
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
    answer = {1: "the rule's", -1: "the trained models'", 0: "neither's: no significant difference"}[signs.pop()]
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
    "Four, eight or 32 completions of a game vote. Either a trained model, outcome or process, weights each completion by its probability to be right, or an untrained rule counts only completions with a chain of thought (if there are none, the first completion counts). Which vote has the higher accuracy, on average over the three numbers of completions?",
    {
        "the trained models'": "They could weight good chains above bad ones. But here {thinks_right:.2f} of the completions with a chain of thought are right, and {blurts_right:.2f} of the direct answers. So there is little to learn beyond the presence of a chain, and the rule detects that without error.",
        "the rule's": "",
        "neither's: no significant difference": "Nearly: {outcome:.3f} and {process:.3f} with the models, {thinks:.3f} with the rule. But paired over seeds the rule is better, in {seeds} of 5, probably because a trained model gives some weight to direct answers. With four completions alone the difference is not significant (minimum detectable difference {seen:.2f}).",
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
    "Nothing is clipped, so the coin does not move the mean logit of the first habit. What is the mean probability of this habit after 400 rollouts?",
    {
        "still about .8": "The mean of the logits stays, but their variance grows. From .8 a step up of the logit adds less probability than a step down removes. The mean probability is {after:.2f} here, and {slow:.2f} at a quarter of the rate, where the variance is smaller.",
        "above .8": "With the clip the mean rises, to {clipped:.2f}. Without it only the median run does, to {median:.2f}. The mean also counts the smaller number of runs that have lost nearly all of the habit.",
        "below .8": "",
    },
    _coin,
)


def _eight_tries():
    one, eight = mean("ch16_narrowing", "pass_rl_1"), mean("ch16_narrowing", "pass_rl_8")
    before = {f"before_{k}": mean("ch16_narrowing", f"pass_before_{k}") for k in (1, 8)}
    return eight, before | {"one": one, "rest": 1 - one}


eight_tries = Ask(
    "The policy before RL chooses each strategy with equal probability; it has a pass@1 of {before_1:.2f} and a pass@8 of {before_8:.2f}. RL on right answers, with one softmax over the strategies for all problems, raises pass@1 to {one:.2f}. What is its pass@8?",
    Typed(
        within=0.02,
        low="More tries cannot solve fewer problems: pass@8 is at least pass@1, {one:.2f}.",
        high="Before RL eight tries mostly used different strategies and solved {before_8:.2f}. After RL nearly all of them use one strategy, and eight tries do not solve what this strategy does not solve (about {rest:.2f}). If every try had an independent probability of {one:.2f}, eight would solve nearly all problems.",
    ),
    _eight_tries,
)


def _online():
    columns = [f"{pool}_{rate}" for pool in ("none", "half") for rate in ("slow", "quick")]
    times = {
        one: mean("ch16_filters", f"{one}_online_samples") / mean("ch16_filters", f"{one}_all_samples")
        for one in columns
    }
    answer = (
        "far fewer"
        if max(times.values()) < 0.7
        else "far more"
        if min(times.values()) > 1.4
        else "about the same number"
    )
    if answer == "about the same number" and not all(0.85 < one < 1.15 for one in times.values()):
        raise ValueError(f"online over all: {times}")
    for one in columns:
        said = compared("ch16_filters", f"{one}_online_samples", f"{one}_all_samples")
        if said != ("larger" if one.endswith("quick") else "alike"):
            raise ValueError(f"{one}: online is {said}")
    more = sorted(100 * (times[f"{pool}_quick"] - 1) for pool in ("none", "half"))
    dead = 100 * mean("ch16_filters", "half_slow_all_dead")
    return answer, {"dead": dead, "prompts": Pool().prompts, "less": more[0], "more": more[1]}


online_filter = Ask(
    "At the lower rate, with half of the pool impossible and without a filter, {dead:.0f} % of the groups are zero-variance groups. Without a filter each step takes {prompts} groups; the online filter samples until {prompts} groups are mixed. A step is the sum of its groups' plain gradients times one rate, the same for both. How many samples does the filter need until the goal, compared with no filter?",
    {
        "far fewer": "It needs fewer steps. But the zero-variance groups are sampled before the filter can drop them, and these samples count.",
        "about the same number": "",
        "far more": "It drops many groups. But these would not have moved the model in any case, and the same number of samples contains the same number of mixed groups. At four times the rate it does need {less:.0f} to {more:.0f} % more, probably because it can stop only after a larger step.",
    },
    _online,
)
