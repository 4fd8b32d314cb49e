"""Rules that diagnose a run from its metrics, each with its evidence.

A rule uses only the numbers that trainers log. A finding is a suspicion with its evidence; a run without findings is
not proven healthy. Thresholds are stated where they are used. The study of the failure gallery measures how often the
rules are right on runs that are broken on purpose, and how often they raise false alarms on healthy runs.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise

from minirlhf.trainers.history import History
from minirlhf_course.report.metrics import HELD_OUT, METRICS

LN2 = math.log(2)
#: The prefix of a logged rate of something unwanted: lower is better. Without it, a custom metric is a reward.
COST = "cost_"


@dataclass(frozen=True)
class Finding:
    """A suspicion.

    Attributes:
        name: the name of the rule.
        title: what is probably wrong.
        evidence: the numbers that support it, as text.
        metrics: the metrics of these numbers.
    """

    name: str
    title: str
    evidence: str
    metrics: tuple[str, ...]


class Curves:
    """The finite values of a run's metrics, with statistics of the start and the end of each curve."""

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
        if zero_std := self._values.get("frac_reward_zero_std"):
            # With one completion per prompt, frac_reward_zero_std is always 1 and no sign of zero-variance groups. If
            # only the log is known: nothing can be learned from zero-variance groups, so a run that learns while the
            # metric is 1 in every row has one completion per prompt.
            learns = self.has("reward", "reward_std") and max(self["reward_std"]) > 0 and self.rises("reward")
            if alone or (min(zero_std) == 1 and learns):
                self._values["frac_reward_zero_std"] = [0.0] * len(zero_std)

    def has(self, *names: str, rows: int = 5) -> bool:
        """Return whether all these metrics are logged, at least ``rows`` times."""
        return all(len(self._values.get(name, ())) >= rows for name in names)

    def __getitem__(self, name: str) -> list[float]:
        return self._values[name]

    def part(self, name: str, start: float, end: float) -> list[float]:
        """Return the values between two fractions of the run."""
        values = self._values[name]
        return values[int(start * len(values)) : max(math.ceil(end * len(values)), int(start * len(values)) + 1)]

    def first(self, name: str) -> float:
        """Return the mean of the first tenth."""
        return statistics.fmean(self.part(name, 0.0, 0.1))

    def last(self, name: str) -> float:
        """Return the mean of the last fifth."""
        return statistics.fmean(self.part(name, 0.8, 1.0))

    def change(self, name: str) -> tuple[float, float]:
        """Return the mean of the last fifth minus the mean of the first fifth, and the standard error of this
        difference.

        The variance is estimated from differences of neighbouring rows, so that it does not include a trend.
        """
        values, early, late = self._values[name], self.part(name, 0.0, 0.2), self.part(name, 0.8, 1.0)
        variance = statistics.fmean((y - x) ** 2 for x, y in pairwise(values)) / 2
        return statistics.fmean(late) - statistics.fmean(early), math.sqrt(variance * (1 / len(early) + 1 / len(late)))

    def rises(self, name: str) -> bool:
        """Return whether the metric rises by more than three standard errors."""
        change, error = self.change(name)
        return change > 3 * error and change > 0

    def falls(self, name: str) -> bool:
        """Return whether the metric falls by more than three standard errors."""
        change, error = self.change(name)
        return -change > 3 * error and change < 0

    def path(self, name: str) -> str:
        """Return "first → last" as text."""
        return f"{name} {self.first(name):.3g} → {self.last(name):.3g}"


@dataclass(frozen=True)
class DiagnosisRule:
    """A rule that raises a suspicion.

    Attributes:
        needs: metrics that the rule requires; without them it is not evaluated.
        evidence: ``(curves) -> text``, empty if there is no evidence.
        doubts: names of rules with a better explanation; if one of them has a finding, this rule is not evaluated.
        rows: how many values of its metrics the rule requires.
    """

    name: str
    title: str
    needs: tuple[str, ...]
    evidence: Callable[[Curves], str]
    doubts: tuple[str, ...] = ()
    rows: int = 5


def diagnose(
    history: History, *, reference_free: bool = False, alone: bool = False, max_grad_norm: float | None = None
) -> list[Finding]:
    """Return the findings of all rules, the most serious first. With fewer than five rows only ``not_a_number``,
    ``unknown_words`` and ``one_reward`` apply.

    Args:
        reference_free: the loss has no reference (SimPO, ORPO, CPO): its implicit rewards are not 0 at the start, and
            need not be.
        alone: one completion was sampled per prompt, so there are no zero-variance groups to report.
        max_grad_norm: the norm to which gradients were clipped, if it is known.
    """
    curves = Curves(history, reference_free=reference_free, alone=alone, max_grad_norm=max_grad_norm)
    findings: dict[str, Finding] = {}
    for rule in RULES:
        if not curves.has(*rule.needs, rows=rule.rows) or any(other in findings for other in rule.doubts):
            continue
        text = rule.evidence(curves)
        if text:
            findings[rule.name] = Finding(rule.name, rule.title, text, rule.needs)
    return list(findings.values())


def _monitors(curves: Curves) -> list[str]:
    """Return the names of custom rewards that were logged and not optimised: no costs, and no parts of the reward."""
    return [
        name
        for name in curves.names
        if name not in METRICS
        and name != "shaped_reward"
        and not name.startswith((HELD_OUT, "rewards/", COST))
        and curves.has(name)
    ]


def _costs(curves: Curves) -> list[str]:
    """Return the names of the logged costs, also of held-out ones."""
    return [name for name in curves.names if name.removeprefix(HELD_OUT).startswith(COST) and curves.has(name)]


def _online(curves: Curves) -> bool:
    return curves.has("reward", "frac_reward_zero_std")


# -- the rules ---------------------------------------------------------------------------------------------------


def not_a_number(c: Curves) -> str:
    return f"infinite or NaN values of {', '.join(c.lost)}" if c.lost else ""


def unknown_words(c: Curves) -> str:
    share = statistics.fmean(c["frac_unknown"])
    return f"{share:.0%} of the tokens are unknown to the tokenizer" if share > 0.1 else ""


def one_reward(c: Curves) -> str:
    rows = len(c["reward_std"])
    return f"reward_std is 0 in all {rows} rows, reward {c.first('reward'):g}" if max(c["reward_std"]) == 0 else ""


def never_ends(c: Curves) -> str:
    """Almost no completion ends, either from the start of the run or, in training on examples, at its end.

    The rest of the first tenth is not counted: it may hold the random ends of an untrained model. A policy that is
    rewarded for length is another fault.
    """
    never = c["frac_terminated"][0] <= 0.1 and max(c.part("frac_terminated", 0.1, 1.0)) <= 0.05
    unlearned = not c.has("reward") and c.last("frac_terminated") <= 0.05
    return c.path("frac_terminated") if never or unlearned else ""


def grader_fails(c: Curves) -> str:
    share = statistics.fmean(c["frac_invalid"])
    return f"{share:.0%} of the samples could not be graded" if share > 0.03 else ""


def start_disagrees(c: Curves) -> str:
    """Rounding in bfloat16 changes the log-probability of a token by a few hundredths; a larger difference is another
    distribution."""
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
    max_std = max(c["reward_std"])
    if max_std == 0:
        return "reward_std is 0 in every row: the grader gives the same reward to every completion"
    if c.has("explained_variance"):  # a critic's advantages are not 0 where all rewards of a group are equal
        return ""
    return (
        f"{early:.0%} of the groups have zero variance in the first quarter of the run"
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
    change, error = c.change("reward")
    return abs(change) <= 3 * error


def _tokens(c: Curves) -> float:
    return statistics.fmean(c["completion_length"]) if c.has("completion_length") else 1.0


def _live(c: Curves) -> bool:
    return statistics.fmean(c["frac_reward_zero_std"]) < 0.9


def steps_too_small(c: Curves) -> str:
    """Online: updates of this size, all in one direction, would not move a completion by 0.1 nats, and ``kl`` has not
    moved either.

    Preference pairs: the margin stays small. A small beta also makes it small, but then the log-probabilities have
    moved. Examples: the held-out loss is the same from the first row to the last.
    """
    if c.has("chosen_reward", "margin"):
        moved = any(c.rises(name) or c.falls(name) for name in ("chosen_logp", "rejected_logp") if c.has(name))
        small = max(map(abs, c["margin"])) < 3e-3 and not moved
        return f"margin {c.last('margin'):.1g} at the end" if small else ""
    if c.has("held_out_loss") and c.from_start and not _online(c):
        low, high = min(c["held_out_loss"]), max(c["held_out_loss"])
        return f"held_out_loss {low:.4f} to {high:.4f} in all rows" if high - low < 1e-3 else ""
    if not _online(c) or not c.has("approx_kl") or not _flat(c) or not _live(c):
        return ""
    step = statistics.median(c["approx_kl"])  # with one update per rollout this is rounding error; then kl must show it
    reach = len(c["approx_kl"]) ** 2 * step * _tokens(c)
    is_close = c.last("kl") < 0.1 if c.has("kl") else step > 1e-10
    return (
        f"the reward is flat ({c.path('reward')}), and approx_kl is {step:.1g}"
        if is_close and step > 0 and reach < 0.1
        else ""
    )


def held_back(c: Curves) -> str:
    """Updates in random directions would move the policy by the sum of their KLs, and consistent updates further. If
    ``kl`` is far smaller than this sum, something has pulled the policy back."""
    total, kl = math.fsum(c["approx_kl"]) * _tokens(c), c.last("kl")
    return (
        f"the reward is flat ({c.path('reward')}), and kl stays at {kl:.2g}, while the updates sum to {total:.2g} nats"
        if kl < 0.02 and total > 3 * kl and _live(c) and _flat(c)
        else ""
    )


def reward_falls(c: Curves) -> str:
    return c.path("reward") if c.falls("reward") and c.last("reward") < c.first("reward") else ""


def monitor_evaded(c: Curves) -> str:
    """A cost falls, often because its flags are fined, and another cost does not follow: it rises, or it stays at least
    as high as the first one was.

    Two monitors of the same fault fall together where the policy stops. Costs of different faults may part for other
    reasons, and the log does not hold what they count.
    """
    for fined in _costs(c):
        if not c.falls(fined) or c.last(fined) > c.first(fined) / 2:
            continue
        for other in _costs(c):
            stays = not c.falls(other) and c.last(other) >= c.first(fined)
            if c.last(other) > c.last(fined) and (c.rises(other) or stays):
                return f"{c.path(fined)}, while {c.path(other)}"
    return ""


def gold_falls(c: Curves) -> str:
    if not c.rises("reward"):
        return ""
    falling = ", ".join(c.path(name) for name in _monitors(c) if c.falls(name))
    rising = ", ".join(c.path(name) for name in _costs(c) if c.rises(name))
    worse = [f"{falling}, a reward that is logged and not optimised"] if falling else []
    worse += [f"{rising}, where lower is better"] if rising else []
    return f"{c.path('reward')}, while {'; '.join(worse)}" if worse else ""


def length_runs_away(c: Curves) -> str:
    grows = c.rises("completion_length") and c.last("completion_length") > 1.3 * c.first("completion_length")
    truncated = c.last("frac_terminated") < min(0.6, c.first("frac_terminated") - 0.2)
    return f"{c.path('completion_length')}, {c.path('frac_terminated')}" if grows and truncated else ""


def kl_runs_away(c: Curves) -> str:
    mean_kl = statistics.fmean(c.part("kl", 0.3, 1.0))
    gain = c.last("reward") - c.first("reward")
    return (
        f"mean kl {mean_kl:.1f} nats, for a change of {gain:+.2f} in reward"
        if mean_kl - min(c.part("kl", 0.0, 0.1)) > 3 and not c.rises("reward")
        else ""
    )


def moves_without_reward(c: Curves) -> str:
    change, _ = c.change("reward")
    std = statistics.fmean(c["reward_std"])
    moved = max(c["kl"]) > 0.2
    return (
        f"{c.path('reward')}, while kl reaches {max(c['kl']):.2f}"
        if moved and abs(change) < 0.5 * std and std > 0 and not c.rises("reward")
        else ""
    )


def no_baseline(c: Curves) -> str:
    matches = [
        abs(loss + reward) <= 0.2 * abs(reward)
        for loss, reward in zip(c["loss"], c["reward"], strict=False)
        if abs(reward) > 0.05
    ]
    return (
        f"loss is minus the reward: {c.path('loss')}, {c.path('reward')}"
        if len(matches) > 4 and statistics.fmean(matches) > 0.8
        else ""
    )


def one_completion(c: Curves) -> str:
    """Nearly all completions are the same text, which may be empty, although the prompts of a step differ."""
    same = c.last("frac_most_common") > 0.9
    length = f", {c.path('completion_length')}" if c.has("completion_length") else ""
    return f"{c.path('frac_most_common')}{length}" if same else ""


def noise_rises(c: Curves) -> str:
    change, _ = c.change("neg_logp")
    # If the reward gains more than its standard deviation within a prompt, the higher entropy does no harm.
    pays = c.has("reward", "reward_std") and c.change("reward")[0] > statistics.fmean(c["reward_std"])
    return c.path("neg_logp") if c.rises("neg_logp") and change > 0.2 and not pays else ""


def certain_before_right(c: Curves) -> str:
    zero, std = statistics.fmean(c.part("frac_reward_zero_std", 0.8, 1.0)), c.last("reward_std")
    if zero < 0.85 or std < 0.3 * max(c["reward_std"]) or c.last("neg_logp") > 0.3:
        return ""
    return f"{zero:.0%} of the groups have zero variance at the end although rewards differ (reward_std {std:.2f}): some prompts are never answered right"


def critic_useless(c: Curves) -> str:
    median = statistics.median(c.part("explained_variance", 0.15, 0.6))
    gap = abs(statistics.fmean(c.part("value", 0.15, 1.0)) - statistics.fmean(c.part("reward", 0.15, 1.0)))
    scale = max(c["reward_std"])
    far = gap > scale
    return (
        f"explained_variance {median:.2g}, and value differs from the reward by {gap:.2g}"
        if median < 0.05 and far
        else ""
    )


def critic_clipped(c: Curves) -> str:
    norm = statistics.median(c["critic_grad_norm"])
    limit, caveat = (1.0, " unless max_grad_norm was set") if c.max_grad_norm is None else (c.max_grad_norm, "")
    return f"critic_grad_norm {norm:.0f}, clipped to {limit:g}{caveat}" if norm > 10 * limit else ""


def loss_jumps(c: Curves) -> str:
    if _online(c) or c.has("margin") or c.has("own_answers"):
        return ""
    early, late = c.part("loss", 0.0, 0.15), c.part("loss", 0.5, 1.0)
    noise = math.sqrt(statistics.fmean((y - x) ** 2 for x, y in pairwise(late)) / 2)  # standard deviation of one batch
    return (
        f"loss {early[0]:.2f} at the start and {max(early[1:]):.2f} within the first steps"
        if len(early) > 1 and max(early[1:]) > max(1.08 * early[0], early[0] + 5 * noise)
        else ""
    )


def memorises(c: Curves) -> str:
    """Memorised examples become more probable while held-out examples become less probable.

    After the held-out loss has turned, the training loss still falls (the first tenth is not counted, because every
    loss falls in it), or the training loss is far below the lowest held-out loss. If the labels lack the end token,
    held-out examples also become less probable, and the training loss stops at about half of the lowest held-out loss
    (.47 to .50 in the gallery).
    """
    held_out, late = c["held_out_loss"], c.last("held_out_loss")
    lowest, turned = min(held_out), max(held_out.index(min(held_out)) / len(held_out), 0.1)
    at_turn = statistics.fmean(c.part("loss", turned, min(turned + 0.1, 1.0)))
    return (
        f"lowest held_out_loss {lowest:.2f}, {late:.2f} at the end; {c.path('loss')}"
        if late > 1.1 * lowest and (c.last("loss") < min(0.8 * late, 0.9 * at_turn) or c.last("loss") < 0.45 * lowest)
        else ""
    )


def labels_swapped(c: Curves) -> str:
    """The training labels were learned, and they contradict the held-out pairs.

    Memorised random labels give a held-out accuracy of .5 on average. The more held-out pairs there are, the more
    rarely it falls below .45 by chance: if the pairs are independent, once in 4 times for 20 pairs, in 9 for 150, in 20
    for 270 and in 100 for 540. Similar pairs (three prompts, a few completions) count as fewer independent pairs, and
    the log does not hold the number of pairs. If the training accuracy also stays near .5, no label was learned, and
    the held-out accuracy carries no information.
    """
    train, held_out = c.last("accuracy"), c.last("held_out_accuracy")
    contradicts = train > 0.6 and held_out < min(0.45, train - 0.2)
    return f"held_out_accuracy {held_out:.2f}, accuracy {train:.2f}" if contradicts else ""


def coin_toss(c: Curves) -> str:
    """With a small beta or noisy labels, the loss stays near ln 2 although the preferences are learned; accuracy or
    margin shows it."""
    learned = c.has("accuracy") and (c.last("accuracy") > 0.6 or (c.last("accuracy") > 0.55 and c.rises("margin")))
    if learned or not abs(c["loss"][0] - LN2) < 0.01:
        return ""
    return f"{c.path('loss')}, where ln 2 = .693 is chance" if abs(c.last("loss") - LN2) < 0.02 else ""


def pushes_apart(c: Curves) -> str:
    drop = c["rejected_logp"][0] - c.last("rejected_logp")
    down = c.last("chosen_reward") < 0 and c.last("margin") > 3
    return f"{c.path('margin')}, {c.path('rejected_logp')}, {c.path('chosen_reward')}" if down and drop > 30 else ""


RULES = (
    DiagnosisRule("not_a_number", "metrics are NaN or infinite", (), not_a_number),
    DiagnosisRule("unknown_words", "the tokenizer does not know the words of the prompts", ("frac_unknown",), unknown_words, rows=1),
    DiagnosisRule("never_ends", "completions never end", ("frac_terminated",), never_ends),
    DiagnosisRule("grader_fails", "the grader fails on some completions", ("frac_invalid",), grader_fails),
    DiagnosisRule("start_disagrees", "reference, sampler and trainer start from different probabilities", (), start_disagrees),
    DiagnosisRule("reference_moves", "the reference moves with the policy", ("kl", "neg_logp"), reference_moves),
    DiagnosisRule("no_signal", "most groups have zero variance from the start", ("frac_reward_zero_std", "reward_std"), no_signal),
    DiagnosisRule("one_reward", "the grader gives the same reward to every completion", ("reward_std", "reward"), one_reward, ("no_signal",), rows=2),
    DiagnosisRule("steps_too_large", "updates move the policy away from its samples", ("approx_kl",), steps_too_large),
    DiagnosisRule("stale_data", "samples come from an old policy", ("clip_fraction", "policy_log_ratio_max"), stale_data, ("steps_too_large",)),
    DiagnosisRule("no_baseline", "rewards are used without a baseline", ("loss", "reward", "frac_reward_zero_std"), no_baseline),
    DiagnosisRule("monitor_evaded", "a fault that one monitor no longer sees goes on", (), monitor_evaded),
    DiagnosisRule("gold_falls", "the reward is exploited", ("reward",), gold_falls, ("monitor_evaded",)),
    DiagnosisRule("length_runs_away", "length is rewarded", ("completion_length", "frac_terminated"), length_runs_away),
    DiagnosisRule("one_completion", "completions become one text, whatever the prompt", ("frac_most_common",), one_completion, rows=10),
    DiagnosisRule("kl_runs_away", "no constraint keeps the policy near its reference", ("kl", "reward"), kl_runs_away, ("steps_too_large",)),
    DiagnosisRule("reward_falls", "the reward is minimised", ("reward", "frac_reward_zero_std"), reward_falls, ("steps_too_large", "kl_runs_away", "no_signal", "no_baseline")),
    DiagnosisRule("steps_too_small", "steps are too small", (), steps_too_small),
    DiagnosisRule("held_back", "the KL term outweighs the reward", ("kl", "approx_kl", "reward", "frac_reward_zero_std"), held_back, ("steps_too_small", "no_signal")),
    DiagnosisRule("noise_rises", "entropy rises without a gain in reward", ("neg_logp",), noise_rises, ("gold_falls", "length_runs_away", "kl_runs_away")),
    DiagnosisRule("moves_without_reward", "the policy moves without a gain in reward", ("reward", "kl", "reward_std", "frac_reward_zero_std"), moves_without_reward,
         ("reward_falls", "kl_runs_away", "steps_too_large", "gold_falls", "noise_rises", "no_signal", "no_baseline")),
    DiagnosisRule("certain_before_right", "the policy is certain before it is right", ("frac_reward_zero_std", "reward_std", "neg_logp"), certain_before_right),
    DiagnosisRule("critic_useless", "the critic predicts nothing", ("explained_variance", "value", "reward", "reward_std"), critic_useless),
    DiagnosisRule("critic_clipped", "every step of the critic is clipped", ("critic_grad_norm",), critic_clipped),
    DiagnosisRule("loss_jumps", "the loss jumps", ("loss",), loss_jumps),
    DiagnosisRule("memorises", "examples are memorised", ("loss", "held_out_loss"), memorises, ("never_ends",)),
    DiagnosisRule("labels_swapped", "training labels contradict the held-out pairs", ("accuracy", "held_out_accuracy"), labels_swapped),
    DiagnosisRule("coin_toss", "the preferences are not learned", ("loss", "margin"), coin_toss),
    DiagnosisRule("pushes_apart", "the loss falls only because rejected completions become improbable", ("margin", "rejected_logp", "chosen_reward"), pushes_apart),
)  # fmt: skip
