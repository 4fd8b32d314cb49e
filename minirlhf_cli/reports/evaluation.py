"""The results of ``minirlhf evaluate`` as one self-contained HTML page: scores, paired comparisons, and completions to
read."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import matplotlib.pyplot as plt

from minirlhf.core.folders import write_text_atomic
from minirlhf.data.records import Problem
from minirlhf_cli.files.measure import EvaluationResult, Measurement
from minirlhf_course.report import templates
from minirlhf_course.report.plotting import PALETTE, data_uri, png

SHOWN = 20


def write(path: Path, tasks: Sequence[EvaluationResult]) -> None:
    """Write the page, with the completions for the first :data:`SHOWN` problems of each task."""
    parts = []
    for task in tasks:
        numbers = {name: {n.name: n for n in results} for name, results in task.numbers.items()}
        columns = list(dict.fromkeys(name for results in numbers.values() for name in results))
        first = {name: results[0] for name, results in task.numbers.items()}
        parts.append(
            {
                "task": task,
                "columns": columns,
                "rows": [(name, [results.get(column) for column in columns]) for name, results in numbers.items()],
                "figure": data_uri(_intervals(first)),
                "alt": "; ".join(
                    f"{name}: {n.value:.3f} " + (f"[{n.low:.3f}, {n.high:.3f}]" if n.known else "(no interval)")
                    for name, n in first.items()
                ),
                "samples": [_sample(task, i, problem) for i, problem in enumerate(task.problems[:SHOWN])],
            }
        )
    write_text_atomic(path, templates.render("evaluate", parts=parts))


def _sample(task: EvaluationResult, index: int, problem: Problem) -> dict[str, object]:
    completions = [
        (name, answers.completions[index][0], f"{float(answers.rewards[index, 0]):g}")
        for name, answers in task.answers.items()
    ]
    return {
        "prompt": problem.prompt, "choices": problem.choices, "reference": problem.reference, "replies": completions,
    }  # fmt: skip


def _intervals(numbers: dict[str, Measurement]) -> bytes:
    """Draw the first score of each model, usually its accuracy, with its interval."""
    fig, ax = plt.subplots(figsize=(7, 0.8 + 0.35 * len(numbers)), layout="constrained")
    for row, number in enumerate(numbers.values()):
        ax.plot([number.low, number.high], [row, row], color=PALETTE["blue"], lw=2)
        ax.plot(number.value, row, "o", color=PALETTE["blue"])
    ax.set(yticks=range(len(numbers)), yticklabels=list(numbers), xlabel=next(iter(numbers.values())).name)
    ax.set_ylim(len(numbers) - 0.5, -0.5)
    ax.spines[["top", "right"]].set_visible(False)
    image = png(fig)
    plt.close(fig)
    return image
