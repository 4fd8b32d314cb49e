"""Two tokens: what k1, k2 and k3 are on average, and where each pulls when it is minimised."""

from asking import Ask
from figures import Figure, Mark, Panel, Reading, Slider

LOGITS = [round(-4 + 0.1 * i, 1) for i in range(81)]
REFS = [round(0.05 * i, 2) for i in range(4, 17)]


def data():
    """The policy's logits at which the curves are computed."""
    return {"logits": LOGITS}


def measured(ref, logits):
    """Of the KL and of each estimate, by the library: mean and deviation of its value, and of its slope on given samples, at each logit."""
    import torch

    from minirlhf.equations import kl

    logits = torch.tensor(logits, dtype=torch.float64, requires_grad=True)
    pair = torch.nn.functional.logsigmoid(torch.stack([logits, -logits], -1))  # (N, 2)
    share = torch.tensor(ref, dtype=torch.float64)
    other = torch.stack([share, 1 - share]).log().expand_as(pair)
    probs = pair.exp().detach()

    def slope(value):
        return torch.autograd.grad(value.sum(), logits, retain_graph=True)[0]

    def over_samples(each):
        mean = (probs * each).sum(-1)
        return mean, (probs * (each - mean[:, None]) ** 2).sum(-1).sqrt()

    truth, forward = kl.reverse_kl(pair, other), kl.forward_kl(pair, other)
    found = {"kl": {"value": truth.detach(), "slope": slope(truth)}, "other": {"slope": slope(forward)}}
    for name, estimator in (("k1", kl.k1), ("k2", kl.k2), ("k3", kl.k3)):
        each = estimator(pair, other)
        value, noise = over_samples(each.detach())
        pull, jerk = over_samples(torch.stack([slope(each[:, 0]), slope(each[:, 1])], -1))
        found[name] = {"value": value, "noise": noise, "slope": pull, "jerk": jerk}
    return {name: {what: x.tolist() for what, x in columns.items()} for name, columns in found.items()}


def oracle(data, state):
    """The curves, and what stands at the policy's logit."""
    xs = data["logits"]
    all_of = measured(state["ref"], [*xs, state["logit"]])
    found = {
        f"{name}_{what}": [xs, y[:-1]]
        for name, of in all_of.items()
        for what, y in of.items()
        if what in ("value", "slope")
    }
    here = {name: {what: y[-1] for what, y in of.items()} for name, of in all_of.items()}
    found |= {f"{name}_{what}_here": here[name][what] for name in ("k1", "k2", "k3") for what in ("noise", "jerk")}
    return found | {
        "kl_here": here["kl"]["value"],
        "k2_here": here["k2"]["value"],
        "kl_slope_here": here["kl"]["slope"],
        "k3_slope_here": here["k3"]["slope"],
        "value_here": [[state["logit"]] * 2, [here[n]["value"] for n in ("kl", "k2")]],
        "slope_here": [[state["logit"]] * 4, [here[n]["slope"] for n in ("kl", "k1", "k2", "k3")]],
    }


def crossing(ref, low, high):
    """The logit between two at which the mean of k2 is the KL."""

    def over(z):
        found = measured(ref, [z])
        return found["k2"]["value"][0] - found["kl"]["value"][0]

    assert (over(low) > 0) != (over(high) > 0)
    rising = over(high) > 0
    while high - low > 1e-6:
        middle = (low + high) / 2
        low, high = (low, middle) if (over(middle) > 0) == rising else (middle, high)
    return low


def predicted(at):
    """Who moves a policy that is its reference; and what is said of the curves, at every reference."""
    import math

    moved = set()
    for ref in REFS:
        home = measured(ref, [math.log(ref / (1 - ref))])
        moved.add(tuple(k for k in ("k1", "k2", "k3") if home[k]["jerk"][0] > 1e-9))
        curves = measured(ref, LOGITS)
        for z, *row in zip(LOGITS, *(curves[n]["slope"] for n in ("kl", "other", "k1", "k2", "k3")), strict=True):
            truth, other, k1, k2, k3 = row
            assert abs(k1) < 1e-12 and abs(k2 - truth) < 1e-12 and abs(k3 - other) < 1e-12
            assert abs(k3 - (1 / (1 + math.exp(-z)) - ref)) < 1e-12
        for name in ("k1", "k3"):
            assert all(abs(a - b) < 1e-9 for a, b in zip(curves[name]["value"], curves["kl"]["value"], strict=True))
    [pushing] = moved
    start, home = 0.8, math.log(0.8 / 0.2)
    low = crossing(start, -3.9, -1.0)
    values = [measured(start, LOGITS)[name]["value"] for name in ("k2", "kl")]
    for z, k2, truth in zip(LOGITS, *values, strict=True):  # k2 is larger between two logits and smaller beyond
        assert (k2 > truth) == (low < z < home), z
    half, far = at(ref=0.5, logit=0.0), at(ref=0.8, logit=-4.0)
    assert far["k1_noise_here"] < far["k2_noise_here"] < far["k3_noise_here"]
    found = {
        "jerk": half["k1_jerk_here"],
        "low": low,
        "high": home,
        "pull": far["k3_slope_here"],
        "truth": far["kl_slope_here"],
    }
    found |= {k: far[f"{k}_noise_here"] for k in ("k1", "k2", "k3")} | {
        f"{k}_jerk": far[f"{k}_jerk_here"] for k in ("k2", "k3")
    }
    names = " and ".join(pushing).translate(str.maketrans("123", "₁₂₃"))
    return names + " alone" * (len(pushing) == 1) or "none of them", found


FIGURE = Figure(
    title="The same estimate as a value and as a loss",
    alt="Left, over the policy's logit: the mean of k₁ and that of k₃ lie on the KL. That of k₂ is larger between {low:.1f} and {high:.1f}, and smaller on both sides beyond."
    " Right, the mean gradient of each as a loss: k₂'s is the KL's own, k₁'s is 0 everywhere, k₃'s is that of the other KL, from the reference to the policy:"
    " everywhere the policy's probability of “yes” less the reference's.",
    controls=[
        Slider("ref", "reference says “yes” with", REFS, start=0.8, form=".2f"),
        Slider("logit", "policy's logit of “yes”", LOGITS, start=-1.0, form=".1f"),
    ],
    panels=[
        Panel(
            "as a value: the mean over samples",
            "policy's logit of “yes”",
            "nats",
            (-4, 4),
            (0, 1.6),
            [
                Mark("kl_value", "the KL, from policy to reference", "line", 5, wide=True),
                Mark("k2_value", "k₂", "line", 1),
                Mark("k3_value", "k₃", "line", 2),
                Mark("k1_value", "k₁", "line", 3, dashed=True),
                Mark("value_here", "", "points", 5),
            ],
        ),
        Panel(
            "as a loss: the mean gradient",
            "policy's logit of “yes”",
            "slope in the logit",
            (-4, 4),
            (-0.8, 0.8),
            [
                Mark("kl_slope", "slope of the KL", "line", 5, wide=True),
                Mark("other_slope", "of the other KL, from reference to policy", "line", 4, wide=True),
                Mark("k2_slope", "k₂", "line", 1),
                Mark("k3_slope", "k₃", "line", 2),
                Mark("k1_slope", "k₁", "line", 3, dashed=True),
                Mark("slope_here", "", "points", 5),
            ],
        ),
    ],
    readings=[
        Reading("kl_here", "KL, mean of k₁ and of k₃"),
        Reading("k2_here", "mean of k₂"),
        Reading("k1_noise_here", "standard deviation of k₁ over samples"),
        Reading("k2_noise_here", "standard deviation of k₂ over samples"),
        Reading("k3_noise_here", "standard deviation of k₃ over samples"),
        Reading("kl_slope_here", "mean slope of the KL and of k₂"),
        Reading("k3_slope_here", "mean slope of k₃"),
        Reading("k1_jerk_here", "standard deviation of k₁'s slope"),
        Reading("k2_jerk_here", "standard deviation of k₂'s slope"),
        Reading("k3_jerk_here", "standard deviation of k₃'s slope"),
    ],
    data=data,
    oracle=oracle,
    ask=Ask(
        "The policy is still its reference, and both say “yes” half of the time. The estimate itself stands in the loss. With which estimates does a single sample push the policy away?",
        {
            "none of them": "On average none does. But a single sample of k₁ has the slope of its own log-probability, which is not 0: it pushes down the token that was drawn, whichever it is.",
            "k₁ alone": "",
            "k₁ and k₂": "k₂ is the square of the log-ratio, halved. Where the log-ratio is 0 a square is flat.",
            "k₁ and k₃": "k₃ is the distance of an exponential from its tangent. Where they touch, at a log-ratio of 0, it is flat.",
        },
        predicted,
        "k₁ alone: each sample pushes its own token down, with a slope of {jerk:.2f} in the logit, up or down, and only the mean is 0. So k₁ in the loss holds nothing and shakes the policy."
        " k₂ and k₃ are flat where policy and reference agree. Far away k₃ may be the loudest. Where the reference says “yes” with .8 and the policy's logit is −4.0, one sample's"
        " standard deviation is {k1:.1f} for k₁, {k2:.1f} for k₂ and {k3:.1f} for k₃. In the loss k₃ pulls back there with {pull:.2f} and a deviation of {k3_jerk:.1f}; the KL's own pull,"
        " and k₂'s, has died down to {truth:.2f}; k₂'s has a deviation of {k2_jerk:.1f}.",
        shows={"ref": 0.5, "logit": 0.0},
    ),
)
