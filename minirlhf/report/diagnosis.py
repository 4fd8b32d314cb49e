"""What the metrics of a run say is wrong with it: rules, each with its evidence.

A rule looks at the numbers that trainers log and at nothing else. It is a suspicion that names its evidence; what it does not see,
it does not acquit. Thresholds are stated where they are used; how often the rules are right on runs that are broken on purpose, and
how often they accuse healthy ones, is measured by the study of the failure gallery.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise

from minirlhf.report.metrics import METRICS
from minirlhf.trainers.history import History

LN2 = math.log(2)


@dataclass(frozen=True)
class Finding:
    """A suspicion.

    Attributes:
        name: of the rule.
        title: what is likely wrong.
        evidence: the numbers that say so.
        metrics: what they are numbers of.
    """

    name: str
    title: str
    evidence: str
    metrics: tuple[str, ...]


class Curves:
    """The finite values of a run's metrics, and the ends of each curve."""

    def __init__(
        self, history: History, *, reference_free: bool = False, alone: bool = False, max_grad_norm: float | None = None
    ) -> None:
        self.reference_free, self.max_grad_norm = reference_free, max_grad_norm
        self.from_start = not len(history) or history.rows[0].get("step", 0) <= 1
        self.names = [name for name in dict.fromkeys(key for row in history for key in row) if name != "step"]
        self._values = {name: [x for x in history[name] if math.isfinite(x)] for name in self.names}
        # A metric that does not apply to a row is NaN; the loss and the norm of its gradient always apply.
        nan = {name for row in history for name in ("loss", "grad_norm") if math.isnan(row.get(name, 0.0))}
        self.lost = [name for name in self.names if name in nan or any(math.isinf(x) for x in history[name])]
        if dead := self._values.get("frac_reward_zero_std"):
            # A reply that is alone with its prompt differs from no other, and its group is not dead. Where the log alone is known: nothing
            # is learned from groups that are dead in every row, so that what learns has none.
            learns = self.has("reward", "reward_std") and max(self["reward_std"]) > 0 and self.rises("reward")
            if alone or (min(dead) == 1 and learns):
                self._values["frac_reward_zero_std"] = [0.0] * len(dead)

    def has(self, *names: str) -> bool:
        """Whether all are logged, at least five times."""
        return all(len(self._values.get(name, ())) >= 5 for name in names)

    def __getitem__(self, name: str) -> list[float]:
        return self._values[name]

    def part(self, name: str, start: float, end: float) -> list[float]:
        """The values from a share of the run to another."""
        values = self._values[name]
        return values[int(start * len(values)) : max(math.ceil(end * len(values)), int(start * len(values)) + 1)]

    def first(self, name: str) -> float:
        """The mean of the first tenth."""
        return statistics.fmean(self.part(name, 0.0, 0.1))

    def last(self, name: str) -> float:
        """The mean of the last fifth."""
        return statistics.fmean(self.part(name, 0.8, 1.0))

    def change(self, name: str) -> tuple[float, float]:
        """The last fifth less the first fifth, and its standard error; the noise is that of neighbouring rows, so that a trend is none."""
        values, early, late = self._values[name], self.part(name, 0.0, 0.2), self.part(name, 0.8, 1.0)
        noise = statistics.fmean((y - x) ** 2 for x, y in pairwise(values)) / 2
        return statistics.fmean(late) - statistics.fmean(early), math.sqrt(noise * (1 / len(early) + 1 / len(late)))

    def rises(self, name: str) -> bool:
        """By more than three standard errors."""
        by, error = self.change(name)
        return by > 3 * error and by > 0

    def falls(self, name: str) -> bool:
        """By more than three standard errors."""
        by, error = self.change(name)
        return -by > 3 * error and by < 0

    def path(self, name: str) -> str:
        """First → last, as text."""
        return f"{name} {self.first(name):.3g} → {self.last(name):.3g}"


@dataclass(frozen=True)
class DiagnosisRule:
    """A suspicion and when it is raised.

    Attributes:
        needs: metrics without which it says nothing.
        evidence: ``(curves) -> text``, empty if there is none.
        doubts: names of rules that explain more; where one of them has spoken, this one is silent.
    """

    name: str
    title: str
    needs: tuple[str, ...]
    evidence: Callable[[Curves], str]
    doubts: tuple[str, ...] = ()


def diagnose(
    history: History, *, reference_free: bool = False, alone: bool = False, max_grad_norm: float | None = None
) -> list[Finding]:
    """Everything that the rules see, the gravest first; empty for a run of fewer than five rows.

    Args:
        reference_free: the loss has no reference (SimPO, ORPO, CPO): its implicit rewards are not 0 at the start, and need not be.
        alone: there was one reply per prompt, and so no group that could be dead.
        max_grad_norm: where the norm of a gradient was cut, if that is known.
    """
    curves = Curves(history, reference_free=reference_free, alone=alone, max_grad_norm=max_grad_norm)
    found: dict[str, Finding] = {}
    for rule in RULES:
        if not curves.has(*rule.needs) or any(other in found for other in rule.doubts):
            continue
        text = rule.evidence(curves)
        if text:
            found[rule.name] = Finding(rule.name, rule.title, text, rule.needs)
    return list(found.values())


def _monitors(curves: Curves) -> list[str]:
    """Rewards of one's own that were watched and not optimised."""
    return [
        name
        for name in curves.names
        if name not in METRICS and name != "shaped_reward" and not name.startswith("held_out_") and curves.has(name)
    ]


def _online(curves: Curves) -> bool:
    return curves.has("reward", "frac_reward_zero_std")


# -- the rules ---------------------------------------------------------------------------------------------------


def not_a_number(c: Curves) -> str:
    return f"infinite values, or none, of {', '.join(c.lost)}" if c.lost else ""


def never_ends(c: Curves) -> str:
    """From the start, but for what a blank model says until it learns; or, where examples teach it, in the end: a policy that earns by being long is
    another fault."""
    never = c["frac_terminated"][0] <= 0.1 and max(c.part("frac_terminated", 0.1, 1.0)) <= 0.05
    unlearned = not c.has("reward") and c.last("frac_terminated") <= 0.05
    return c.path("frac_terminated") if never or unlearned else ""


def grader_fails(c: Curves) -> str:
    share = statistics.fmean(c["frac_invalid"])
    return f"{share:.0%} of the samples could not be graded" if share > 0.03 else ""


def start_disagrees(c: Curves) -> str:
    """Rounding in bfloat16 moves the log-probability of a token by a few hundredths; what is more, is another distribution."""
    if c.reference_free or not c.from_start:
        return ""
    if c.has("chosen_reward", "rejected_reward"):
        start = max(abs(c[name][0]) for name in ("chosen_reward", "rejected_reward"))
        nats = max((abs(c[name][0]) for name in ("chosen_logp", "rejected_logp") if c.has(name)), default=0.0)
        return (
            f"an implicit reward of {start:.2g} at the start, where the policy should be its reference"
            if start > max(1e-3, 1e-4 * nats)
            else ""
        )
    if c.has("kl"):
        start, tokens = c["kl"][0], c["completion_length"][0] if c.has("completion_length") else 1.0
        return (
            f"kl {start:.2g} at the start, where the policy should be its reference"
            if start > max(1e-3, 5e-4 * tokens)
            else ""
        )
    return ""


def reference_moves(c: Curves) -> str:
    moved = abs(c.change("neg_logp")[0]) > 0.1
    return f"kl below 1e-9 in every row, while {c.path('neg_logp')}" if max(c["kl"]) < 1e-9 and moved else ""


def no_signal(c: Curves) -> str:
    early = statistics.median(c.part("frac_reward_zero_std", 0.0, 0.25))
    spread = max(c["reward_std"])
    if spread == 0:
        return "reward_std is 0 in every row: the grader gives one number to everything"
    if c.has("explained_variance"):  # a critic's advantages are not 0 where all replies of a prompt earn the same
        return ""
    return (
        f"{early:.0%} of the groups are dead in the first quarter of the run"
        if early >= 0.6 and c.first("frac_reward_zero_std") >= 0.6
        else ""
    )


def steps_too_large(c: Curves) -> str:
    early = max(c.part("approx_kl", 0.0, 0.1))
    return f"approx_kl {early:.2g} within the first tenth of the run" if early > 0.15 else ""


def stale_data(c: Curves) -> str:
    share = max(statistics.fmean(c.part("clip_fraction", 0.0, end)) for end in (0.1, 0.5))
    ratio = statistics.fmean(c.part("policy_log_ratio_max", 0.0, 0.5))
    return (
        f"clip_fraction {share:.2f}, policy_log_ratio_max {ratio:.1f} in the first half"
        if share > 0.25 and ratio > 0.5
        else ""
    )


def _flat(c: Curves) -> bool:
    by, error = c.change("reward")
    return abs(by) <= 3 * error


def _tokens(c: Curves) -> float:
    return statistics.fmean(c["completion_length"]) if c.has("completion_length") else 1.0


def _live(c: Curves) -> bool:
    return statistics.fmean(c["frac_reward_zero_std"]) < 0.9


def steps_too_small(c: Curves) -> str:
    """Steps of this size, all in one direction, would not have moved a reply by a tenth of a nat; nor has kl. Of pairs the margin says so, unless it is
    small by its beta: then the log-probabilities have moved. Of examples, the loss of those kept apart, if it is the same from the first row to the last."""
    if c.has("chosen_reward", "margin"):
        moved = any(c.rises(name) or c.falls(name) for name in ("chosen_logp", "rejected_logp") if c.has(name))
        small = max(map(abs, c["margin"])) < 3e-3 and not moved
        return f"margin {c.last('margin'):.1g} at the end" if small else ""
    if c.has("held_out_loss") and c.from_start and not _online(c):
        low, high = min(c["held_out_loss"]), max(c["held_out_loss"])
        return f"held_out_loss {low:.4f} to {high:.4f} in all rows" if high - low < 1e-3 else ""
    if not _online(c) or not c.has("approx_kl") or not _flat(c) or not _live(c):
        return ""
    step = statistics.median(c["approx_kl"])  # rounding error, where a rollout has one update: then kl must say it
    far = len(c["approx_kl"]) ** 2 * step * _tokens(c)
    near = c.last("kl") < 0.1 if c.has("kl") else step > 1e-10
    return (
        f"the reward is flat ({c.path('reward')}), and approx_kl is {step:.1g}"
        if near and step > 0 and far < 0.1
        else ""
    )


def held_back(c: Curves) -> str:
    """Steps without a direction would have led as far as they add up to, and others further: something has pulled the policy back."""
    went, stays = math.fsum(c["approx_kl"]) * _tokens(c), c.last("kl")
    return (
        f"the reward is flat ({c.path('reward')}), and kl stays at {stays:.2g}, after steps of {went:.2g} nats together"
        if stays < 0.02 and went > 3 * stays and _live(c) and _flat(c)
        else ""
    )


def reward_falls(c: Curves) -> str:
    return c.path("reward") if c.falls("reward") and c.last("reward") < c.first("reward") else ""


def gold_falls(c: Curves) -> str:
    if not c.rises("reward"):
        return ""
    worse = [name for name in _monitors(c) if c.falls(name)]
    fall = ", ".join(c.path(name) for name in worse)
    return f"{c.path('reward')}, while {fall}, which was watched as a reward: more of it is better" if worse else ""


def length_runs_away(c: Curves) -> str:
    grows = c.rises("completion_length") and c.last("completion_length") > 1.3 * c.first("completion_length")
    cut = c.last("frac_terminated") < min(0.6, c.first("frac_terminated") - 0.2)
    return f"{c.path('completion_length')}, {c.path('frac_terminated')}" if grows and cut else ""


def kl_runs_away(c: Curves) -> str:
    high = statistics.fmean(c.part("kl", 0.3, 1.0))
    gained = c.last("reward") - c.first("reward")
    return (
        f"kl {high:.1f} nats on the mean, for a change of {gained:+.2f} in reward"
        if high - min(c.part("kl", 0.0, 0.1)) > 3 and not c.rises("reward")
        else ""
    )


def moves_without_reward(c: Curves) -> str:
    by, _ = c.change("reward")
    spread = statistics.fmean(c["reward_std"])
    moved = max(c["kl"]) > 0.2
    return (
        f"{c.path('reward')}, while kl reaches {max(c['kl']):.2f}"
        if moved and abs(by) < 0.5 * spread and spread > 0 and not c.rises("reward")
        else ""
    )


def no_baseline(c: Curves) -> str:
    far = [
        abs(loss + reward) <= 0.2 * abs(reward)
        for loss, reward in zip(c["loss"], c["reward"], strict=False)
        if abs(reward) > 0.05
    ]
    return (
        f"loss is minus the reward: {c.path('loss')}, {c.path('reward')}"
        if len(far) > 4 and statistics.fmean(far) > 0.8
        else ""
    )


def noise_rises(c: Curves) -> str:
    by, _ = c.change("neg_logp")
    # Who gains more than rewards differ by within a prompt does not pay for the variety.
    pays = c.has("reward", "reward_std") and c.change("reward")[0] > statistics.fmean(c["reward_std"])
    return c.path("neg_logp") if c.rises("neg_logp") and by > 0.2 and not pays else ""


def certain_before_right(c: Curves) -> str:
    dead, spread = statistics.fmean(c.part("frac_reward_zero_std", 0.8, 1.0)), c.last("reward_std")
    if dead < 0.85 or spread < 0.3 * max(c["reward_std"]) or c.last("neg_logp") > 0.3:
        return ""
    return f"{dead:.0%} of the groups are dead at the end although rewards differ (reward_std {spread:.2f}): some prompts are never answered right"


def critic_useless(c: Curves) -> str:
    learned = statistics.median(c.part("explained_variance", 0.15, 0.6))
    gap = abs(statistics.fmean(c.part("value", 0.15, 1.0)) - statistics.fmean(c.part("reward", 0.15, 1.0)))
    scale = max(c["reward_std"])
    far = gap > scale
    return f"explained_variance {learned:.2g}, and value is {gap:.2g} from the reward" if learned < 0.05 and far else ""


def critic_clipped(c: Curves) -> str:
    norm = statistics.median(c["critic_grad_norm"])
    cut, unless = (1.0, " unless max_grad_norm was set") if c.max_grad_norm is None else (c.max_grad_norm, "")
    return f"critic_grad_norm {norm:.0f}, where everything above {cut:g} is cut{unless}" if norm > 10 * cut else ""


def loss_jumps(c: Curves) -> str:
    if _online(c) or c.has("margin") or c.has("own_answers"):
        return ""
    early, late = c.part("loss", 0.0, 0.15), c.part("loss", 0.5, 1.0)
    noise = math.sqrt(statistics.fmean((y - x) ** 2 for x, y in pairwise(late)) / 2)  # of one batch
    return (
        f"loss {early[0]:.2f} at the start and {max(early[1:]):.2f} within the first steps"
        if len(early) > 1 and max(early[1:]) > max(1.08 * early[0], early[0] + 5 * noise)
        else ""
    )


def memorises(c: Curves) -> str:
    """What is learned by heart gets likelier while the rest gets less likely: the training loss still falls when the other has turned,
    and after the first tenth, in which every loss falls; or it is far below the best that was had on the rest. Where the end is missing from the
    labels, the rest gets less likely too, and the training loss stops at about a half of that best (.47 to .50 in the gallery)."""
    held, late = c["held_out_loss"], c.last("held_out_loss")
    lowest, turned = min(held), max(held.index(min(held)) / len(held), 0.1)
    then = statistics.fmean(c.part("loss", turned, min(turned + 0.1, 1.0)))
    return (
        f"held_out_loss {lowest:.2f} at best, {late:.2f} at the end; {c.path('loss')}"
        if late > 1.1 * lowest and (c.last("loss") < min(0.8 * late, 0.9 * then) or c.last("loss") < 0.45 * lowest)
        else ""
    )


def labels_swapped(c: Curves) -> str:
    """Something was learned in training, and it goes against the pairs kept apart. Labels that say nothing, learned by heart, leave a half of those
    in the mean, and below .45 chance leaves them more seldom the more pairs there are: were each pair a coin of its own, once in four times of 20 pairs,
    in nine of 150, in twenty of 270, in a hundred of 540. Pairs that are much alike (three prompts, a few replies) are fewer coins than pairs; and how many
    there are the log does not say. Where training accuracy stays near a half as well, no label was learned, and its direction on other pairs says nothing.
    """
    learned, held = c.last("accuracy"), c.last("held_out_accuracy")
    against = learned > 0.6 and held < min(0.45, learned - 0.2)
    return f"held_out_accuracy {held:.2f}, accuracy {learned:.2f}" if against else ""


def coin_toss(c: Curves) -> str:
    """With a small beta, or with labels that often disagree, the loss stays there although a good deal is learned: accuracy or the margin shows it."""
    learned = c.has("accuracy") and (c.last("accuracy") > 0.6 or (c.last("accuracy") > 0.55 and c.rises("margin")))
    if learned or not abs(c["loss"][0] - LN2) < 0.01:
        return ""
    return f"{c.path('loss')}, where ln 2 = .693 is a toss" if abs(c.last("loss") - LN2) < 0.02 else ""


def pushes_apart(c: Curves) -> str:
    lost = c["rejected_logp"][0] - c.last("rejected_logp")
    down = c.last("chosen_reward") < 0 and c.last("margin") > 3
    return f"{c.path('margin')}, {c.path('rejected_logp')}, {c.path('chosen_reward')}" if down and lost > 30 else ""


RULES = (
    DiagnosisRule("not_a_number", "numbers overflow", (), not_a_number),
    DiagnosisRule("never_ends", "replies never end", ("frac_terminated",), never_ends),
    DiagnosisRule("grader_fails", "the grader fails on some replies", ("frac_invalid",), grader_fails),
    DiagnosisRule("start_disagrees", "reference, sampler and trainer do not start from the same probabilities", (), start_disagrees),
    DiagnosisRule("reference_moves", "the reference moves with the policy", ("kl", "neg_logp"), reference_moves),
    DiagnosisRule("no_signal", "groups are alike from the start", ("frac_reward_zero_std", "reward_std"), no_signal),
    DiagnosisRule("steps_too_large", "updates leave the data they were computed on", ("approx_kl",), steps_too_large),
    DiagnosisRule("stale_data", "samples are from a policy that is long gone", ("clip_fraction", "policy_log_ratio_max"), stale_data, ("steps_too_large",)),
    DiagnosisRule("no_baseline", "rewards are used without a baseline", ("loss", "reward", "frac_reward_zero_std"), no_baseline),
    DiagnosisRule("gold_falls", "the reward is exploited", ("reward",), gold_falls),
    DiagnosisRule("length_runs_away", "length is what pays", ("completion_length", "frac_terminated"), length_runs_away),
    DiagnosisRule("kl_runs_away", "nothing holds the policy near its reference", ("kl", "reward"), kl_runs_away, ("steps_too_large",)),
    DiagnosisRule("reward_falls", "the reward is made smaller", ("reward", "frac_reward_zero_std"), reward_falls, ("steps_too_large", "kl_runs_away", "no_signal", "no_baseline")),
    DiagnosisRule("steps_too_small", "steps are too small to matter", (), steps_too_small),
    DiagnosisRule("held_back", "the KL term holds the policy where it is", ("kl", "approx_kl", "reward", "frac_reward_zero_std"), held_back, ("steps_too_small", "no_signal")),
    DiagnosisRule("noise_rises", "the policy becomes noise", ("neg_logp",), noise_rises, ("gold_falls", "length_runs_away", "kl_runs_away")),
    DiagnosisRule("moves_without_reward", "the policy moves, and not towards reward", ("reward", "kl", "reward_std", "frac_reward_zero_std"), moves_without_reward,
         ("reward_falls", "kl_runs_away", "steps_too_large", "gold_falls", "noise_rises", "no_signal", "no_baseline")),
    DiagnosisRule("certain_before_right", "certain before right", ("frac_reward_zero_std", "reward_std", "neg_logp"), certain_before_right),
    DiagnosisRule("critic_useless", "the critic predicts nothing", ("explained_variance", "value", "reward", "reward_std"), critic_useless),
    DiagnosisRule("critic_clipped", "every step of the critic is clipped", ("critic_grad_norm",), critic_clipped),
    DiagnosisRule("loss_jumps", "the loss jumps", ("loss",), loss_jumps),
    DiagnosisRule("memorises", "examples are learned by heart", ("loss", "held_out_loss"), memorises, ("never_ends",)),
    DiagnosisRule("labels_swapped", "labels go against those of held-out pairs", ("accuracy", "held_out_accuracy"), labels_swapped),
    DiagnosisRule("coin_toss", "the preferences are not learned", ("loss", "margin"), coin_toss),
    DiagnosisRule("pushes_apart", "the loss is satisfied by forbidding", ("margin", "rejected_logp", "chosen_reward"), pushes_apart),
)  # fmt: skip
