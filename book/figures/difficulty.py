"""By how much each method multiplies a prompt's gradient, exactly, for groups of any size."""

from figures import Ask, Figure, Mark, Panel, Reading, Slider

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
        found[f"{name}_here"] = float(weight[-1])
    alike = float(rates[-1] ** size + (1 - rates[-1]) ** size)
    return found | {
        "alike": alike,
        "here": [[state["rate"]] * 3, [found[f"{n}_here"] for n in ("grpo", "dr", "maxrl")]],
    }


ASKED = ["the rarely solved ones", "the rarely missed ones", "none: the ratio of the two is the same everywhere"]


def predicted(at):
    """Where GRPO's weight is more than Dr. GRPO's, beyond a common factor."""
    ratios = {}
    for size in (2, 64):
        values = at(size=size)
        rows = (values["grpo_weight"][1], values["dr_weight"][1])
        ratios[size] = [a / b for a, b in zip(*rows, strict=True)]
    two, many = ratios[2], ratios[64]
    middle = RATES.index(0.5)
    even = max(two) < 1.001 * min(two)
    answer = ASKED[2] if even else ASKED[0] if two[0] > two[-1] else ASKED[1]
    return answer, {"factor": two[middle], "edge": many[0], "middle": many[middle]}


FIGURE = Figure(
    title="Which prompts does a method listen to?",
    alt="Left, over the pass rate, for groups of eight: GRPO's weight is 2.6 for prompts that are almost never or almost always solved, and 1.9 in the middle;"
    " Dr. GRPO's is .88 everywhere; MaxRL's falls from 6.8 to 1. Right: the speed at which the logit of the pass rate rises.",
    controls=[
        Slider("size", "replies per prompt, G", [2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64], start=8),
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
                Mark("grpo_weight", "GRPO", "line", 1),
                Mark("dr_weight", "Dr. GRPO, RLOO but for a factor", "line", 0, dashed=True),
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
                Mark("grpo_speed", "", "line", 1),
                Mark("dr_speed", "", "line", 0, dashed=True),
                Mark("maxrl_speed", "", "line", 2),
            ],
        ),
    ],
    readings=[
        Reading("grpo_here", "weight in GRPO", 2),
        Reading("dr_here", "Dr. GRPO", 2),
        Reading("maxrl_here", "MaxRL", 2),
        Reading("alike", "groups that are all alike"),
    ],
    data=data,
    oracle=oracle,
    ask=Ask(
        "Two replies per prompt. To which prompts does GRPO listen more than Dr. GRPO, beyond a factor that all have in common?",
        ASKED,
        predicted,
        "A group of two that is not all alike has one right and one wrong reply, so that there is one deviation to divide by, and a factor of {factor:.1f} is all. With 64 the"
        " ratio is {edge:.1f} at a pass rate of .01 (and of .99) and {middle:.1f} at one half.",
    ),
)
