"""Two tokens: what k1, k2 and k3 are on average, and where each pulls when it is minimised."""

from figures import Ask, Figure, Mark, Panel, Reading, Slider

LOGITS = [round(-4 + 0.1 * i, 1) for i in range(81)]


def data():
    """The policy's logits at which the curves are computed."""
    return {"logits": LOGITS}


def oracle(data, state):
    """By the library's estimators, summed over both tokens; slopes by automatic differentiation of what stands in a loss."""
    import torch

    from minirlhf.equations import kl

    logits = torch.tensor([*data["logits"], state["logit"]], dtype=torch.float64, requires_grad=True)
    pair = torch.nn.functional.logsigmoid(torch.stack([logits, -logits], -1))  # (N, 2)
    share = torch.tensor(state["ref"], dtype=torch.float64)
    ref = torch.stack([share, 1 - share]).log().expand_as(pair)
    probs = pair.exp()
    truth = (probs * (pair - ref)).sum(-1)

    def slope(value):
        return torch.autograd.grad(value.sum(), logits, retain_graph=True)[0].tolist()

    values, slopes = {"kl": truth.tolist()}, {"kl": slope(truth)}
    for name, estimator in (("k1", kl.k1), ("k2", kl.k2), ("k3", kl.k3)):
        each = estimator(pair, ref)
        values[name] = (probs * each).sum(-1).tolist()
        slopes[name] = slope(
            (probs.detach() * each).sum(-1)
        )  # the samples are given; only the estimate is differentiated
    xs = data["logits"]
    found = {f"{n}_value": [xs, v[:-1]] for n, v in values.items()} | {
        f"{n}_slope": [xs, v[:-1]] for n, v in slopes.items()
    }
    found |= {f"{n}_slope_here": v[-1] for n, v in slopes.items()}
    found |= {"kl_here": values["kl"][-1], "k2_here": values["k2"][-1]}
    other = share * (ref[0, 0] - pair[:, 0]) + (1 - share) * (
        ref[0, 1] - pair[:, 1]
    )  # KL from the reference to the policy
    found["other_slope"] = [xs, slope(other)[:-1]]
    found["value_here"] = [[state["logit"]] * 2, [values["kl"][-1], values["k2"][-1]]]
    found["slope_here"] = [[state["logit"]] * 4, [slopes[n][-1] for n in ("kl", "k1", "k2", "k3")]]
    return found


def predicted(at):
    """Which estimate pulls as the KL does, on average."""
    values = at()
    slopes = {k: values[f"{k}_slope"][1] for k in ("k1", "k2", "k3")}
    truth = values["kl_slope"][1]
    apart = {k: max(abs(a - b) for a, b in zip(slope, truth, strict=True)) for k, slope in slopes.items()}
    [answer] = [k for k, gap in apart.items() if gap < 1e-9]
    assert max(abs(slope) for slope in slopes["k1"]) < 1e-9
    return answer, {"pull": values["k3_slope_here"], "truth": values["kl_slope_here"]}


FIGURE = Figure(
    title="The same estimate as a value and as a loss",
    alt="Left, over the policy's logit: the mean of k1 and that of k3 are the KL itself, that of k2 is larger far away. Right, the mean gradient of each as a"
    " loss: k2's is the KL's own, k1's is 0 everywhere, k3's is that of the other KL, from the reference to the policy, which ends at the difference of probabilities.",
    controls=[
        Slider("ref", "reference says “yes” with", [round(0.05 * i, 2) for i in range(1, 20)], start=0.8, form=".2f"),
        Slider("logit", "policy's logit of “yes”", LOGITS, start=-1.0, form=".1f"),
    ],
    panels=[
        Panel(
            "as a value: the mean over samples",
            "policy's logit of “yes”",
            "nats",
            (-4, 4),
            (0, 5),
            [
                Mark("kl_value", "KL(π‖π_ref)", "line", 5, wide=True),
                Mark("k2_value", "k2", "line", 1),
                Mark("k3_value", "k3", "line", 2),
                Mark("k1_value", "k1", "line", 3, dashed=True),
                Mark("value_here", "", "points", 5),
            ],
        ),
        Panel(
            "as a loss: the mean gradient",
            "policy's logit of “yes”",
            "slope in the logit",
            (-4, 4),
            (-1, 1),
            [
                Mark("kl_slope", "slope of KL(π‖π_ref)", "line", 5, wide=True),
                Mark("other_slope", "slope of KL(π_ref‖π)", "line", 4, wide=True),
                Mark("k2_slope", "k2", "line", 1),
                Mark("k3_slope", "k3", "line", 2),
                Mark("k1_slope", "k1", "line", 3, dashed=True),
                Mark("slope_here", "", "points", 5),
            ],
        ),
    ],
    readings=[
        Reading("kl_here", "KL = mean of k1 = mean of k3"),
        Reading("k2_here", "mean of k2"),
        Reading("kl_slope_here", "slope: of the KL"),
        Reading("k1_slope_here", "of k1"),
        Reading("k2_slope_here", "of k2"),
        Reading("k3_slope_here", "of k3"),
    ],
    data=data,
    oracle=oracle,
    ask=Ask(
        "The samples are given, and the estimate itself is put into the loss. Which one pulls, on average, as the KL does?",
        ["k1", "k2", "k3"],
        predicted,
        "k2, at every logit, though as a value it is not the KL. k1 pulls nowhere. k3 pulls as the other KL does: it comes to rest at the same place and pulls otherwise on"
        " the way, {pull:.2f} for {truth:.2f} at the start.",
    ),
)
