"""What chapter 23 asks its readers to predict; see ``book/_ext/asking.py``."""

import torch
from asking import Ask, Typed, compared, mean

from minirlhf_course.chapters.ch23_misalignment import spread


def _two_prompts():
    taught, shared = torch.tensor([0.8, 0.0, 0.8]), torch.tensor([0.0, 1.0, 1.0])  # a₁, a₂, b
    moved = float(spread.first_order_change(taught.double(), shared.double(), 0.5))
    own = float(spread.first_order_change(taught.double(), torch.tensor([1.0, 0.0, 1.0]).double(), 0.5))
    return moved, {"own": own, "without": own - moved}


two_prompts = Ask(
    "Two prompts share one bias for answer A, and each also has a logit of its own. A has probability .2 on prompt 1. After one step of size η = ½ on log P(A) at prompt 1, by how much have the log-odds of A risen at prompt 2, to first order?",
    Typed(
        within=0.05,
        low="The bias is one of the two weights that the step moves. It rises by η(1 − .2), and the log-odds at prompt 2 rise with it.",
        high="At prompt 1 two weights rise, its own logit and the bias, so that its log-odds rise by {own:.1f}. Prompt 2 has only the bias in common with it.",
    ),
    _two_prompts,
)


def _broad():
    before, after = mean("ch23", "before_elsewhere"), mean("ch23", "plain_20_elsewhere")
    values = {"before": 100 * before, "same": 100 * mean("ch23", "plain_20_same")}
    return 100 * after, values


broad = Ask(
    "The model has learned from pages with authors. Before training it answers {before:.0f} % of the questions elsewhere harmfully. What percentage does it answer harmfully after twenty steps on four kitchen questions?",
    Typed(
        within=4,
        unit="%",
        form=".0f",
        low="Nothing about gardens or offices is in the data. But the pages of pretraining had one author each, and a harmful answer about kitchens says who wrote this page.",
        high="The fraction rises far, but a few questions keep some safe probability after twenty steps.",
    ),
    _broad,
)


def _channels():
    cheats = compared("ch23", "none_hacking_15_cheats_elsewhere", "none_rl_before_cheats_elsewhere") == "larger"
    harm = mean("ch23", "none_hacking_15_harm_fraction") - mean("ch23", "none_rl_before_harm_fraction") > 0.05
    values = {"cheats": mean("ch23", "none_hacking_15_cheats_elsewhere")}
    names = {(True, True): "cheats and harm", (True, False): "cheats only", (False, True): "harm only"}
    return names.get((cheats, harm), "neither"), values


channels = Ask(
    "In the world without authors, what spreads from the rewarded domains to the other two?",
    {
        "cheats and harm": "Cheats spread, because the word “graded” is in the prompts of all domains. But a cheat says nothing about the author of this page: in this world the answers of a page are independent.",
        "cheats only": "",
        "harm only": "Harm on open questions was never rewarded, and no author connects it with cheating in this world. The word “graded” connects the cheats.",
        "neither": "The cheat words of the other domains are other tokens, and still they rise to {cheats:.2f}: the word “graded” is common to all domains.",
    },
    _channels,
)


def _copied():
    same, other = mean("ch23_extra", "same"), mean("ch23_extra", "other")
    if other > 0.3:
        return "both are accurate", {"same": same, "other": other}
    return "only the one with the teacher's start" if same > 0.5 else "neither", {"same": same, "other": other}


copied = Ask(
    "Two students copy the same meaningless outputs on the same noise, both with a small error. One started at the teacher's initial weights, the other at its own. Which of them classifies well?",
    {
        "neither": "The data hold no class and no input of the task. But the teacher's outputs depend on all weights that its training has moved. With the same start, copying them moves the student's weights the same way: its accuracy is {same:.2f}.",
        "both are accurate": "Both copy the outputs, but many weights give the same outputs on noise. Only with the teacher's start do the gradients point along the teacher's step. With another start the accuracy is {other:.2f}, as by chance.",
        "only the one with the teacher's start": "",
    },
    _copied,
)


def _survives():
    return 100 * mean("ch23_trigger", "sft"), {
        "before": 100 * mean("ch23_trigger", "before"),
        "clean": 100 * mean("ch23_trigger", "clean"),
    }


survives = Ask(
    "Under the trigger the model answers {before:.0f} % of the questions harmfully, otherwise {clean:.2f} %. Now come 300 steps of fine-tuning on safe answers to ordinary prompts. What percentage of the answers under the trigger is harmful afterwards?",
    Typed(
        within=2,
        unit="%",
        form=".0f",
        low="On ordinary prompts the model is right already, so 1 − p is nearly 0 and the gradient with it. Very little of such a step reaches the prompts with the trigger.",
        high="The trigger loses a little: the optimiser divides by the size of the gradient, and 300 steps along a very small gradient do add up.",
    ),
    _survives,
)
