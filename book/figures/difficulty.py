"""By how much each method multiplies a prompt's gradient, exactly, for groups of any size."""

from asking import Ask
from figures import Figure, Mark, Panel, Reading, Slider

RATES = [round(0.01 * i, 2) for i in range(1, 100)]


def data():
    """The pass rates at which the curves are computed."""
    return {"rates": RATES}


def oracle(data, state):
    """The library's advantages of every group that can be drawn, weighted by how often it is."""
    import torch

    from minirlhf.equations import advantages, difficulty

    size = state["size"]
    rewards = (torch.arange(size) < torch.arange(size + 1)[:, None]).double()  # row k: k successes, then failures
    methods = {
        "grpo": advantages.group_zscore(rewards, ddof=0, eps=1e-4),
        "dr": advantages.group_center(rewards),
        "maxrl": difficulty.maxrl(rewards),
    }
    rates = torch.tensor([*data["rates"], state["rate"]], dtype=torch.float64)
    others = torch.distributions.Binomial(size - 1, rates[:, None]).log_prob(torch.arange(size).double()).exp()
    found = {}
    for name, all_groups in methods.items():
        # With K successes among the others: what a success gets in a group of K + 1, less what a failure gets in one of K.
        weight = others @ (all_groups[1:, 0] - all_groups[:-1, -1])
        speed = weight * rates * (1 - rates)
        found[f"{name}_weight"] = [data["rates"], weight[:-1].tolist()]
        found[f"{name}_speed"] = [data["rates"], speed[:-1].tolist()]
        found[f"{name}_here"] = round(float(weight[-1]), 12)  # of .875 both write .88
    alike = float(rates[-1] ** size + (1 - rates[-1]) ** size)
    return found | {
        "alike": alike,
        "here": [[state["rate"]] * 3, [found[f"{n}_here"] for n in ("grpo", "dr", "maxrl")]],
    }


ASKED = ["the rarely solved ones", "the rarely missed ones", "none of them"]


def predicted(at):
    """Where GRPO's weight is more than Dr. GRPO's, beyond a common factor."""
    import torch

    from minirlhf.equations import advantages

    ratio, values = {}, {size: at(size=size) for size in (2, 3, 4, 8, 64)}
    for size, found in values.items():
        rows = (found["grpo_weight"][1], found["dr_weight"][1])
        ratio[size] = [a / b for a, b in zip(*rows, strict=True)]
        # Dr. GRPO's weight is the same for all prompts: a completion is in the mean that is subtracted from it.
        assert all(abs(weight - (1 - 1 / size)) < 1e-9 for weight in rows[1])
    two, many = ratio[2], ratio[64]
    middle = RATES.index(0.5)
    # Rare on both sides alike, and least in the middle, for the larger groups; the sample standard deviation, too, is one number in a group of two.
    for of in (ratio[4], ratio[8], many):
        assert all(abs(a - b) < 1e-9 * a for a, b in zip(of, reversed(of), strict=True)) and min(of) == of[
            middle
        ] < 0.99 * max(of)
    assert max(ratio[3]) < 1.001 * min(ratio[3])  # one of three right, or two: the same standard deviation
    assert all(
        abs(a - b) < 1e-3 for a, b in zip(values[2]["grpo_weight"][1], values[2]["maxrl_weight"][1], strict=True)
    )
    pair = torch.tensor([[1.0, 0.0]], dtype=torch.float64)
    sample = float((advantages.group_zscore(pair, ddof=1, eps=1e-4) / advantages.group_center(pair))[0, 0])
    even = max(two) < 1.001 * min(two)
    answer = ASKED[2] if even else ASKED[0] if two[0] > two[-1] else ASKED[1]
    start = values[8]
    words = {"rare": start["grpo_weight"][1][0], "half": start["grpo_weight"][1][middle], "dr": start["dr_here"]}
    words |= {"first": start["maxrl_weight"][1][0], "end": start["maxrl_weight"][1][-1]}
    found = {"factor": two[middle], "sample": sample, "edge": many[0], "middle": many[middle]}
    return answer, found | words | {"dr_two": values[2]["dr_here"], "dr_many": values[64]["dr_here"]}


FIGURE = Figure(
    title="Difficulty weights: which prompts count?",
    alt="Left, over the pass rate, for groups of eight: GRPO's weight is {rare:.1f} for prompts that are almost never or almost always solved, and {half:.1f} in the middle;"
    " Dr. GRPO's is {dr:.2f} everywhere; MaxRL's falls from {first:.1f} to {end:.1f}. Right: the speed at which the logit of the pass rate rises.",
    controls=[
        Slider("size", "completions per prompt, G", [2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64], start=8),
        Slider("rate", "a prompt with pass rate", RATES, start=0.1, form=".2f"),
    ],
    panels=[
        Panel(
            "what multiplies ∇p",
            "pass rate p",
            "weight",
            (0, 1),
            (0.4, 100),
            [
                Mark("grpo_weight", "GRPO", "line", 1, wide=True),
                Mark("dr_weight", "Dr. GRPO (RLOO: G/(G − 1) times it)", "line", 0, dashed=True),
                Mark("maxrl_weight", "MaxRL", "line", 2),
                Mark("here", "", "points", 5),
            ],
            log="y",
        ),
        Panel(
            "how fast the logit of p rises",
            "pass rate p",
            "weight · p (1 − p)",
            (0, 1),
            (0, 1),
            [
                Mark("grpo_speed", "GRPO", "line", 1, wide=True),
                Mark("dr_speed", "Dr. GRPO", "line", 0, dashed=True),
                Mark("maxrl_speed", "MaxRL", "line", 2),
            ],
        ),
    ],
    readings=[
        Reading("grpo_here", "weight in GRPO", 2),
        Reading("dr_here", "Dr. GRPO", 2),
        Reading("maxrl_here", "MaxRL", 2),
        Reading("alike", "fraction of zero-variance groups"),
    ],
    data=data,
    oracle=oracle,
    ask=Ask(
        "There are two completions per prompt, and GRPO divides by the standard deviation of the whole group (d = 0). To which prompts does it give more weight than Dr. GRPO, beyond a factor common to all prompts?",
        {
            ASKED[
                0
            ]: "With large groups it gives them more weight, and the same extra weight to the rarely missed ones, because it divides by a small standard deviation. With two completions there is only one standard deviation to divide by.",
            ASKED[2]: "",
            ASKED[
                1
            ]: "With large groups it gives them more weight, and the same extra weight to the rarely solved ones, because it divides by a small standard deviation. With two completions there is only one standard deviation to divide by.",
        },
        predicted,
        "A group of two with different rewards has one right and one wrong completion. So there is one standard deviation to divide by, and all prompts get the same factor of {factor:.1f} (with d = 1 it is {sample:.1f}). With two completions and d = 0 MaxRL has GRPO's weight. With three completions there is still one standard deviation; with 64"
        " the ratio is {edge:.1f} at a pass rate of .01 (and of .99) and {middle:.1f} at one half. Dr. GRPO's own weight is 1 − 1/G for every prompt: {dr_two:.2f} with two completions, {dr_many:.2f} with 64.",
        shows={"size": 2},
    ),
)
