"""What chapter 20 asks its readers to predict; see ``book/_ext/asking.py``."""

import itertools
import math

import torch
from asking import Ask, Typed, compared, mean, seeds

from minirlhf.data import seven_words
from minirlhf.equations import overoptimization
from minirlhf.feedback import proxies
from minirlhf_course import evidence
from minirlhf_course.chapters.ch20_overoptimization import curves, habits
from minirlhf_course.chapters.ch20_overoptimization import equations as ch20


def _all_counts():
    world = seven_words.bags()
    proxy = proxies.fit_everything(world, "counts")
    end = float(world.gold[int(proxy.argmax())])  # as far as it goes: nothing is left but the reply with the most proxy
    peak, later = mean("ch20_exact", "all_counts_peak"), mean("ch20_exact", "all_counts_end")
    start = float(world.probs @ world.gold)
    found = {"start": start, "peak": peak, "end": end, "best": world.texts[int(proxy.argmax())]}
    if peak < start + 0.1:
        return "it hardly changes", found
    if later >= peak - 0.1:
        return "it rises to the end", found
    assert end < later  # where the study stops it still falls
    assert len(set(found["best"].split())) == 1
    return "it rises, peaks and falls", found


all_comparisons = Ask(
    "A reward model can only count words. It is trained on all possible comparisons, not on 400, and a policy is optimised for it as far as possible. How does the gold reward of the completions change?",
    {
        "it rises to the end": "More comparisons remove the estimation error. But a count cannot express that each further good word adds less: the counting proxy ranks “{best}” highest, and the policy ends there, at a gold reward of {end:.2f}.",
        "it rises, peaks and falls": "",
        "it hardly changes": "A count of words does predict much of what is good in the reference policy's completions, such as facts. So the gold reward rises at first, from {start:.2f} to {peak:.2f}.",
    },
    _all_counts,
)


def _rare_tail():
    start = mean("ch21", "reference_gold")  # of the same world
    end, best = mean("ch20_exact", "all_flipped_end"), mean("ch20_exact", "all_gold_end")
    worth = [
        seven_words.gold(" ".join(said))
        for n in range(1, 6)
        for said in itertools.combinations_with_replacement(seven_words.WORDS, n)
    ]
    found = {"peak": mean("ch20_exact", "all_flipped_peak"), "worst": min(worth), "most": max(worth)}
    world = seven_words.bags()
    proxy = proxies.with_flipped_tail(world)
    assert float(world.gold[int(proxy.argmax())]) == min(worth)
    shares, order = overoptimization.tilt(world.ref_logps, proxy, strength=33.0).exp().sort(descending=True)
    left = order[: int((shares.cumsum(0) < 0.999).sum()) + 1]
    assert set(left.tolist()) == set(proxy.topk(len(left)).indices.tolist())
    assert set(left.tolist()) == set(world.gold.topk(len(left), largest=False).indices.tolist())
    assert all(len(set(world.texts[i].split())) == 1 and len(world.texts[i].split()) == 5 for i in left.tolist())
    found["left"] = ["one", "two", "three", "four", "five"][len(left) - 1]
    if end > best - 0.1:
        return "about as high as with the gold reward as the proxy", found
    if start < end:
        return "lower than with the gold reward as the proxy, but above the reference policy", found
    return "far below the reference policy" if end < start - 1 else "a little below the reference policy", found


rare_tail = Ask(
    "The gold reward of a completion lies between {worst:.2f} and {most:.2f}. A proxy is the gold reward itself, with its sign flipped for the worst one per cent of the reference policy's completions. A policy is optimised for it strongly, to 1/β = 33. What is its gold reward at that point?",
    {
        "about as high as with the gold reward as the proxy": "The proxy is right about 99 of 100 of the reference policy's completions. But the completion that it now rewards most is one of the rest: a very bad completion counts as a very good one.",
        "lower than with the gold reward as the proxy, but above the reference policy": "On the way the gold reward does rise, to {peak:.2f}. At 1/β = 33 nearly all probability is on {left} completions, each of them one word five times. They have the most proxy reward and are the worst of all. In the limit only the worst one remains.",
        "far below the reference policy": "",
    },
    _rare_tail,
)


def _second_form():
    (parabola, _), (place, _) = (peak(alpha=1.0, beta=0.25) for peak in (ch20.gold_best_of_n_peak, ch20.gold_rl_peak))
    return place, {
        "parabola": parabola,
        "nats": parabola**2,
        "nothing": math.exp(4.0),
        "slope": 1 - 0.25 * (math.log(2.0) + 1),
    }


second_form = Ask(
    "With α = 1 and β = ¼ the parabola is highest at d = {parabola:.0f}, at a KL of {nats:.0f} nats. At which d is the second form, d (α − β log d), highest with the same numbers?",
    Typed(
        within=2,
        factor=True,
        unit="√nats",
        form=".0f",
        low="The slope of the second form is 1 − ¼ · (log d + 1). At d = {parabola:.0f} it is still {slope:.2f}, and it decreases more and more slowly.",
        high="At d = e⁴ = {nothing:.0f} the whole gain is lost again, since α = β log d there. The peak comes before, where the derivative is 0 and not the gain.",
    ),
    _second_form,
)


def _alone() -> float:
    """Return the gold reward of one of the five members, averaged over members and the study's twenty data sets. The fit is by Newton's method, which is fast."""
    world = seven_words.bags()
    known = proxies.standardised(world, "pairs")
    drawn = [proxies.compare(world, 200, seed=seed) for seed in range(20)]
    members = [pairs.resampled(seed, member) for seed, pairs in enumerate(drawn) for member in range(5)]
    apart = torch.stack([known[pairs.chosen] - known[pairs.rejected] for pairs in members])  # (100, 200, 35)
    decay = 2 * proxies.L2 * torch.eye(known.shape[1], dtype=torch.float64)
    weights = known.new_zeros(len(members), known.shape[1], 1)
    for _ in range(10):
        missed = torch.sigmoid(-apart @ weights) / 200
        curved = apart.mT @ (missed * torch.sigmoid(apart @ weights) * apart) + decay
        weights = weights + torch.linalg.solve(curved, apart.mT @ missed - decay @ weights)
    earned = [
        curves.tilt_curve(world.ref_logps, proxies.rescale_to_gold(known @ one, world), world.gold).gold_by(2.0)
        for one in weights[..., 0]
    ]
    return sum(earned) / len(earned)


def _mean_of_five():
    one, five = (mean("ch20_exact", f"pairs_{name}_gold") for name in ("one_reward_model", "ensemble_mean"))
    words = {"larger": "more", "smaller": "less", "alike": "about as much"}
    said = words[compared("ch20_exact", "pairs_ensemble_mean_gold", "pairs_one_reward_model_gold")]
    [less] = evidence.differences(
        {name: seeds("ch20_exact", f"pairs_{name}_gold") for name in ("one_reward_model", "ensemble_mean")}
    ).values()
    found = {"one": one, "five": five, "alone": _alone(), "different": 100 * (1 - (1 - 1 / 200) ** 200)}
    return said, found | {"gap": less.mean, "from": less.interval[0], "to": less.interval[1]}


mean_of_five = Ask(
    "A reward model that knows products of two counts has too few comparisons, 200. Five such models, each fitted to a bootstrap sample of the 200, are averaged, and the mean is optimised to d = 2. Optimising one of the five alone gives a gold reward of {alone:.2f} at that distance, on average. One model fitted to all 200 gives {one:.2f}. What does the mean of the five give, compared with that one model?",
    {
        "more": "A mean does reduce the errors of the single members, from {alone:.2f} to {five:.2f}. But a bootstrap sample holds about {different:.0f} % of the comparisons, some of them more than once, and five members compensate only a part of that loss.",
        "about as much": "Nearly all comparisons occur in one of the five samples, but each member learned from fewer different ones. The mean of five gives {five:.2f}, lower by {gap:.2f} (95 % interval from {from:.2f} to {to:.2f}).",
        "less": "",
    },
    _mean_of_five,
)


def _which_ranks_better():
    proxy, ratio = (seeds("ch20_exact", f"auc_{name}") for name in ("proxy_reward", "log_pi_over_pi_ref"))
    found = {"area": 100 * sum(proxy) / len(proxy)}
    if max(abs(a - b) for a, b in zip(proxy, ratio, strict=True)) < 1e-12:
        return "both exactly as often", found
    return "the proxy" if sum(proxy) > sum(ratio) else "the log-ratio", found


which_ranks_better = Ask(
    "The policy is the tilt of the reference policy by the proxy. Two detectors score each completion, one by the proxy, one by the log-ratio of the two policies. Which of them ranks a hack above an honest completion more often?",
    {
        "the proxy": "The proxy is a good score: it ranks the hack higher in about {area:.0f} % of such pairs. But the log-ratio of this policy is λ times the proxy, less a constant, so it ranks any two completions in the same order.",
        "the log-ratio": "It measures what the optimiser has made more probable. But this optimiser used only the proxy: the log-ratio is λ times the proxy, less a constant, so it ranks any two completions in the same order.",
        "both exactly as often": "",
    },
    _which_ranks_better,
)


def _ends_agreeing(bias: float) -> bool:
    world = habits.sycophancy(bias=bias)
    return world.replies[int(world.proxy[world.kinds.index("the user is wrong")].argmax())] == "agree"


def _liking_that_decides():
    low, high = 0.0, 10.0
    for _ in range(30):
        middle = (low + high) / 2
        low, high = (low, middle) if _ends_agreeing(middle) else (middle, high)
    return round(low, 6), {}


liking_that_decides = Ask(
    "A user is wrong. The gold reward is 1 for contradicting, 0 for saying nothing and −1 for agreeing. The annotators add a bias b for agreeing. A reward model has learned exactly these labels, and a policy is optimised for it to the end. Above which b does the policy agree in the end?",
    Typed(
        within=0.3,
        form=".0f",
        low="A smaller bias changes the labels, too. But at the end only the completion with the most reward remains, and this is to contradict while −1 + b is below 1. With b = 1 agreeing has only the reward of saying nothing.",
        high="It is enough that agreeing has more reward than contradicting, −1 + b more than 1. The size of the lead decides how fast the policy gets there, and not where it ends.",
    ),
    _liking_that_decides,
)
