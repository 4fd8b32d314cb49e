"""What chapter 24 asks its readers to predict; see ``book/_ext/asking.py``."""

import torch
from asking import Ask, Typed, compared, mean

from minirlhf_course.chapters.ch24_oversight import debate, monitors, weak


def _larger_fine():
    ref = torch.tensor([0.799, 0.2, 0.001], dtype=torch.float64).log()
    rewards = torch.tensor([0.6, 1.0, 1.0], dtype=torch.float64)
    flags = torch.tensor([0.05, 0.9, 0.05], dtype=torch.float64)
    at = lambda fine: float(monitors.monitored_policy(ref, rewards, flags, fine=fine, beta=0.05)[2].exp())
    values = {"one": at(1.0), "large": at(32.0)}
    if abs(at(1.0) - at(32.0)) < 1e-3:
        return "nothing", values
    return "it ends the cheating" if at(32.0) < 0.05 else "it halves the cheating", values


larger_fine = Ask(
    "With a fine of 1 the optimal policy cheats silently with probability {one:.2f}. What does a fine of 32 do?",
    {
        "it ends the cheating": "A fine is paid for a flag. This monitor flags a silent cheat exactly as often as honest work, so both pay the same fine, and the larger fine changes neither's advantage.",
        "it halves the cheating": "The spoken cheat pays more, but it has disappeared already. The silent cheat and honest work pay the same fine at every size.",
        "nothing": "",
    },
    _larger_fine,
)


def _what_is_left():
    silent = mean("ch24", "thought_silent")
    return 100 * silent, {
        "before": 100 * mean("ch24", "before_silent"),
        "free": 100 * mean("ch24", "free_spoken"),
        "silent": 100 * silent,
    }


what_is_left = Ask(
    "Before RL, {before:.0f} % of the completions are silent cheats. Without a fine, {free:.0f} % are spoken cheats after RL. Now each flag of the thought monitor costs 1. What percentage of the completions is a silent cheat after 40 steps?",
    Typed(
        within=12,
        unit="%",
        form=".0f",
        low="A silent cheat is rare at the beginning. But it always passes and is hardly ever flagged, so it has the largest reward of all three kinds. The word that ends a spoken cheat ends a silent one too.",
        high="No more than all completions can be silent cheats, and a few are not well formed or mention the hack.",
    ),
    _what_is_left,
)


def _too_late():
    late, early = mean("ch24", "never_40_action_cheats"), mean("ch24", "never_0_action_cheats")
    values = {"early": 100 * early, "late": 100 * late}
    if compared("ch24", "never_40_action_cheats", "never_0_action_cheats") != "larger":
        return "as few as from the start", values
    return "nearly all" if late > 0.9 else "about half", values


too_late = Ask(
    "An action monitor that begins at once leaves {early:.1f} % cheats after its 40 steps. The same monitor begins after 40 steps without a fine, when nearly all completions are spoken cheats. How many cheats does it leave?",
    {
        "as few as from the start": "The fine would make honest work the better choice. But a policy gradient only reinforces what is sampled, and honest work has almost disappeared.",
        "about half": "At the beginning almost no completion is honest, so most groups contain no honest completion that the update could favour.",
        "nearly all": "",
    },
    _too_late,
)


def _bigger_student():
    _, few = weak.linear_accuracies(inside=0.25, outside=0.75)
    _, many = weak.linear_accuracies(inside=1.0, outside=0.0)
    values = {"few": few, "many": many}
    return "a smaller part" if many < few else "the same part" if many == few else "a larger part", values


bigger_student = Ask(
    "One student can represent a quarter of the supervisor's error, a larger one all of it. How large a part of the gap does the larger student recover, compared with the smaller one?",
    {
        "a larger part": "More features help to learn the true rule only if the labels are true. These labels contain the error, and the larger student learns it: its accuracy is {many:.2f}, and the smaller student's is {few:.2f}.",
        "the same part": "The part depends on how much of the error the student can represent. The smaller student's accuracy is {few:.2f}, the larger one's {many:.2f}.",
        "a smaller part": "",
    },
    _bigger_student,
)


def _one_leaf():
    inputs, probs = debate.all_inputs(4), debate.input_probabilities(4)
    debated = float(probs @ debate.debate_value(inputs))
    alone = debate.best_fixed_leaves(4, 4)
    values = {"four": alone, "one": debate.best_fixed_leaves(4, 1)}
    return "1.00" if debated > 0.999 else f"{debated:.2f}", values


one_leaf = Ask(
    "A judge without debaters who reads four of the sixteen leaves is right with probability {four:.2f}. With debaters who both choose perfectly the judge reads one leaf. How often is the judge right?",
    {
        "0.57": "This is a judge who reads one leaf without debaters ({one:.2f}). The debaters choose which leaf is read, and their choice carries information.",
        "0.69": "This is a judge who reads four leaves alone. One leaf that two opponents selected is more informative than four leaves that no one selected.",
        "1.00": "",
    },
    _one_leaf,
)
