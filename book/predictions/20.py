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
    "A reward model can only count words. It is trained on all comparisons that there could be, and not on 400, and a policy is pushed towards it as far as it goes. What becomes of what the replies are worth?",
    {
        "it rises to the end": "More comparisons take away the errors of luck. But a count cannot say that more of a good word is worth less, whatever their number: the count likes “{best}” best, and the policy ends there, at a worth of {end:.2f}.",
        "it rises, peaks and falls": "",
        "it hardly changes": "A count of words does tell much of what is good in the reference's replies, such as facts. So the first part of the way is a gain, from {start:.2f} to {peak:.2f}.",
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
        return "about as high as if gold itself had been the proxy", found
    if start < end:
        return "lower than with gold as the proxy, but above the reference", found
    return "far below the reference" if end < start - 1 else "a little below the reference", found


rare_tail = Ask(
    "Gold reaches from {worst:.2f} to {most:.2f}. A proxy is gold itself, but with the sign turned round for the worst one per cent of the reference's replies. A policy is pushed towards it far, to 1/β = 33. Where is gold then?",
    {
        "about as high as if gold itself had been the proxy": "The proxy is right about 99 of 100 of the reference's replies. But the one that it now pays most is among the others: a very bad reply has become a very good one.",
        "lower than with gold as the proxy, but above the reference": "On the way gold does rise, to {peak:.2f}. At 1/β = 33 hardly more than {left} replies are left, each of them one word five times: those with the most proxy, and the worst of all. In the limit the worst one is left alone.",
        "far below the reference": "",
    },
    _rare_tail,
)


def _second_form():
    (parabola, _), (place, _) = (
        peak(alpha=1.0, beta=0.25) for peak in (overoptimization.gold_best_of_n_peak, overoptimization.gold_rl_peak)
    )
    return place, {
        "parabola": parabola,
        "nats": parabola**2,
        "nothing": math.exp(4.0),
        "slope": 1 - 0.25 * (math.log(2.0) + 1),
    }


second_form = Ask(
    "With α = 1 and β = ¼ the parabola is highest at d = {parabola:.0f}, {nats:.0f} nats away. At which d is the second form, d (α − β log d), highest with the same numbers?",
    Typed(
        within=2,
        factor=True,
        unit="√nats",
        form=".0f",
        low="The slope of the second form is 1 − ¼ · (log d + 1). At d = {parabola:.0f} it is still {slope:.2f}, and it falls ever more slowly.",
        high="At d = e⁴ = {nothing:.0f} all that was gained is lost again, since α = β log d there. The peak comes before: where the derivative is 0, and not the gain.",
    ),
    _second_form,
)


def _alone() -> float:
    """What one of the five earns, on average over the members and the study's twenty draws; fitted by Newton's method, which is quick."""
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
    "Too few comparisons are the trouble: 200, for a reward model that knows products of two counts. Five such models, each from a bootstrap sample of the 200, are averaged, and the mean is optimised to d = 2. At that distance one of the five by itself earns {alone:.2f} of gold on average. What does their mean earn, compared with the {one:.2f} of one model that learned from all 200?",
    {
        "more": "A mean does even out what each member has wrong by itself, from {alone:.2f} to {five:.2f}. But a bootstrap sample holds about {different:.0f} % of the comparisons, some of them more than once, and five members make up for only a part of that.",
        "about as much": "Nearly all comparisons are somewhere among the five, but each member learned from fewer different ones. The mean of five earns {five:.2f}, less by {gap:.2f}, with a 95 % interval from {from:.2f} to {to:.2f}.",
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
    "The policy is the tilt of the reference by the proxy. Two detectors score each reply, one by the proxy, one by the log-ratio of policy and reference. Which of them ranks a hack above an honest reply more often?",
    {
        "the proxy": "The proxy is a good score: it ranks the hack higher in about {area:.0f} % of such pairs. But the log-ratio of this policy is λ times the proxy, less a constant, and so puts any two replies in the same order.",
        "the log-ratio": "It says what the optimiser has made likelier. But this optimiser went by nothing but the proxy: the log-ratio is λ times the proxy, less a constant, and so puts any two replies in the same order.",
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
    "A user is wrong. To contradict is worth 1, to say nothing 0, to agree −1; the people who label pay b on top of that for agreeing. A policy is pushed to the end towards a reward model that has learned just this. From which b on does it agree in the end?",
    Typed(
        within=0.3,
        form=".0f",
        low="A smaller liking bends the labels, too. But in the end only the reply with the most reward is left, and that is to contradict as long as −1 + b is below 1. With b = 1 agreeing only catches up with saying nothing.",
        high="It is enough that agreeing has more reward than contradicting, −1 + b more than 1. By how much it is ahead decides how soon the end comes, and not which one.",
    ),
    _liking_that_decides,
)
