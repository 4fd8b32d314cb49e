"""The figures of chapter 07, each with one message."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from minirlhf.equations import comparisons
from minirlhf.feedback.biases import LinearReward
from minirlhf_course.chapters.ch07_preference_data import equations
from minirlhf_course.chapters.ch07_preference_data.labellers import INJECTED
from minirlhf_course.report.plotting import PALETTE


def weights(ax: Any, names: Sequence[str], reward: LinearReward) -> None:
    """Plot weights with 95 % confidence intervals."""
    rows = range(len(names))[::-1]
    ax.axvline(0, color="0.6", lw=0.8)
    ax.errorbar(reward.weights, list(rows), xerr=1.96 * reward.errors, fmt="o", color=PALETTE["blue"], capsize=2)
    ax.set_yticks(list(rows), names)
    ax.set_xlabel("weight in nats (length and markup: per doubling)")


def _grouped(ax: Any, columns: Mapping[str, Sequence[float]], colours: Sequence[str]) -> None:
    for k, ((name, values), colour) in enumerate(zip(columns.items(), colours, strict=True)):
        positions = [i + 0.26 * (k - (len(columns) - 1) / 2) for i in range(len(values))]
        ax.bar(positions, values, width=0.24, color=PALETTE[colour], label=name)
    labels = ["first position" if name == "place" else name for name in INJECTED]
    ax.set_xticks(range(len(labels)), [label.replace(" ", "\n") for label in labels])
    ax.set_ylim(0, 1.05)


def alarms(ax: Any, found: Mapping[str, Sequence[float]]) -> None:
    """Plot false alarms: the fraction of data sets without a bias in which a suspected trait was flagged."""
    names = {"alone": "alone", "beside_counts": "beside right, facts", "beside_gold": "beside gold reward"}
    _grouped(ax, {names[control]: values for control, values in found.items()}, ("orange", "sky", "blue"))
    ax.axhline(0.05, color="0.3", lw=0.8, ls=":")
    ax.set(title="no bias: false alarms at 5 %, 1,000 labels")
    ax.legend(frameon=False, fontsize=8)


def power(ax: Any, found: Mapping[int, Sequence[tuple[float, float]]]) -> None:
    """Plot the fraction of data sets in which an injected bias was detected, and the power predicted by the formula."""
    _grouped(ax, {f"{n:,} labels": [rate for rate, _ in rows] for n, rows in found.items()}, ("green", "purple"))
    for k, rows in enumerate(found.values()):
        positions = [i + 0.26 * (k - 0.5) for i in range(len(rows))]
        ax.plot(
            positions,
            [predicted for _, predicted in rows],
            "_",
            color="black",
            ms=11,
            mew=1.6,
            label="predicted" if k == 0 else None,
        )
    ax.set(title="one bias: detected beside gold reward")
    ax.legend(frameon=False, fontsize=8, loc="upper center", bbox_to_anchor=(0.5, -0.18), ncols=3)


def worth(axes: Any, sizes: Tensor) -> None:
    """Plot the information in a ranking, in separate comparisons, and in one label on a graded scale."""
    left, right = axes
    left.plot(sizes, sizes * (sizes - 1) / 2, "o--", color=PALETTE["orange"], label="its pairs, C(K, 2)")
    left.plot(sizes, comparisons.ranking_worth(sizes), "o-", color=PALETTE["blue"], label="information, Plackett–Luce")
    left.plot(
        sizes,
        comparisons.all_pairs_worth(sizes),
        "s:",
        color=PALETTE["green"],
        label="information, fitted as pairs",
        ms=4,
    )
    left.set(
        xlabel="ranked completions, K", ylabel="separate comparisons", title="a ranking of equally good completions"
    )
    left.legend(frameon=False, fontsize=8)
    gap = torch.linspace(0, 4, 81, dtype=torch.float64)
    for levels, colour in ((2, "blue"), (3, "sky"), (5, "green"), (8, "purple")):
        cuts = torch.arange(levels - 1, dtype=torch.float64) - (levels - 2) / 2
        right.plot(gap, comparisons.graded_information(gap, cuts), color=PALETTE[colour], label=f"{levels} levels")
    flipped = equations.flipped_information(gap, flip=0.2)
    right.plot(gap, flipped, "--", color=PALETTE["red"], label="2 levels, 20 % flipped")
    right.set(xlabel="gap between the two completions, nats", ylabel="information", title="one label", ylim=(0, 0.46))
    right.legend(frameon=False, fontsize=8, ncols=2, loc="upper right")


def teams(ax: Any, found: Mapping[str, tuple[Sequence[float], Sequence[float]]]) -> None:
    """Plot the fraction of labels recovered by majority and by Dawid and Skene, one dot per resampled data set."""
    for k, accuracies in enumerate(found.values()):
        for side, (values, colour) in enumerate(zip(accuracies, ("orange", "blue"), strict=True)):
            label = ("majority", "Dawid–Skene")[side] if k == 0 else None
            ax.plot(
                [k + 0.2 * (side - 0.5)] * len(values), values, "o", ms=4, alpha=0.7, color=PALETTE[colour], label=label
            )
    ax.set_xticks(range(len(found)), list(found))
    ax.set(ylabel="labels recovered", ylim=(0.6, 1.0))
    ax.legend(frameon=False, fontsize=8, loc="lower left")
