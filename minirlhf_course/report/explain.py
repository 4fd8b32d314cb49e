"""The effect of one step of online training on one sample, token by token, as a table, a figure and a page."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

from minirlhf.core.errors import UserError
from minirlhf.core.folders import write_text_atomic
from minirlhf.trainers.samples import Sample, StepSamples
from minirlhf_course.report import templates
from minirlhf_course.report.plotting import PALETTE, data_uri, png

#: Column and its explanation, for the page's legend.
COLUMNS = {
    "token": "the token that was sampled",
    "p": "its probability when it was sampled",
    "reward": "the reward of the completion at its last token, minus the KL penalty of each token if the recipe puts it into the reward",
    "value": "the value model's estimate before the token",
    "advantage": "the advantage; above 0 the update makes the token more probable",
    "ratio": "its probability before the last update of the step, divided by its probability when it was sampled",
    "clipped": "yes if clipping sets the gradient of this token to 0",
    "weight": "the weight of the token in the aggregation of the loss",
    "share": "its share of the gradient: |weight · derivative of the objective with respect to the log-probability|, divided by the sum over the batch",
}


def rows(sample: Sample) -> list[dict[str, str]]:
    """Return one row per token, with the cells as text; the column of values is omitted in runs without a critic."""
    table_rows = []
    for t, token in enumerate(sample.tokens):
        cells = {
            "token": repr(token)[1:-1],
            "p": f"{math.exp(sample.old_logps[t]):.3f}",
            "reward": f"{sample.rewards[t]:+z.3f}",
            "advantage": f"{sample.advantages[t]:+z.3f}",
            "ratio": f"{math.exp(sample.logps[t] - sample.old_logps[t]):.3f}",
            "clipped": "yes" if sample.clipped[t] else "",
            "weight": f"{sample.weights[t]:.5f}",
            "share": f"{100 * sample.shares[t]:.2f} %",
        }
        if sample.values is not None:
            cells["value"] = f"{sample.values[t]:+.3f}"
        table_rows.append({name: cells[name] for name in COLUMNS if name in cells})
    return table_rows


def select_sample(step: StepSamples, number: int) -> Sample:
    """Return a sample by its number, counted from 0; raise ``UserError`` if this sample was not kept."""
    if not 0 <= number < len(step.samples):
        raise UserError(
            f"step {step.step} has {len(step.samples)} samples kept, numbered from 0; sample {number} does not exist",
            argument="--sample",
            value=number,
            expected=(0, len(step.samples) - 1),
        )
    return step.samples[number]


def summary(step: StepSamples, number: int) -> str:
    """Return a short description of the sample as a whole."""
    sample = select_sample(step, number)
    grade = f"reward {sample.reward:g}" if sample.valid else "not graded, or excluded from its group: no gradient"
    end = "terminated" if sample.terminated else "truncated"
    group = [s.reward for s in step.samples[number // step.num_generations * step.num_generations :]]
    group = group[: step.num_generations]
    peers = (
        f"; rewards of the recorded samples of its prompt: {', '.join(f'{r:g}' for r in group)}"
        if len(group) > 1
        else ""
    )
    return (
        f"Step {step.step}, recipe {step.recipe}, sample {number} of {step.batch}: {grade}, {len(sample.tokens)} tokens, {end}"
        f"{peers}. Its tokens have {100 * sum(sample.shares):.2f} % of the batch's gradient; an equal share would be "
        f"{100 / step.batch:.2f} %."
    )


def table(step: StepSamples, number: int) -> str:
    """Return the sample as a text table for a terminal."""
    sample = select_sample(step, number)
    cells = rows(sample)
    widths = {name: max(len(name), *(len(row[name]) for row in cells)) for name in cells[0]}
    largest = max(sample.shares) or 1.0
    lines = [summary(step, number), f"prompt: {sample.prompt}", ""]
    lines.append("  ".join(name.ljust(w) if name == "token" else name.rjust(w) for name, w in widths.items()))
    for row, share, advantage in zip(cells, sample.shares, sample.advantages, strict=True):
        text = "  ".join(row[name].ljust(w) if name == "token" else row[name].rjust(w) for name, w in widths.items())
        bar = ("+" if advantage > 0 else "-") * round(20 * share / largest)
        lines.append(f"{text}  {bar}".rstrip())
    return "\n".join(lines)


def figure(step: StepSamples, number: int) -> Any:
    """Draw advantage, ratio and fraction of the batch's gradient weight for each token of the sample."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    sample = select_sample(step, number)
    positions = list(range(len(sample.tokens)))
    fig = Figure(figsize=(max(6.0, 0.42 * len(positions) + 1.5), 6.0), layout="constrained")
    FigureCanvasAgg(fig)
    top, middle, bottom = fig.subplots(3, 1, sharex=True)
    colours = [PALETTE["green"] if a > 0 else PALETTE["red"] for a in sample.advantages]
    top.bar(positions, sample.advantages, color=colours)
    top.axhline(0, color="black", lw=0.8)
    top.set_ylabel("advantage")
    if sample.values is not None:
        top.plot(positions, sample.values, color=PALETTE["blue"], marker=".", label="value before the token")
        top.legend(frameon=False, fontsize=8)
    ratios = [math.exp(new - old) for new, old in zip(sample.logps, sample.old_logps, strict=True)]
    middle.axhline(1, color="black", lw=0.8)
    middle.plot(positions, ratios, color=PALETTE["blue"], marker="o", ls="none")
    clip = [t for t in positions if sample.clipped[t]]
    middle.plot(
        clip, [ratios[t] for t in clip], color=PALETTE["orange"], marker="x", ms=10, mew=2, ls="none", label="clipped"
    )
    if clip:
        middle.legend(frameon=False, fontsize=8)
    middle.set_ylabel("ratio")
    bottom.bar(positions, [100 * share for share in sample.shares], color=colours)
    bottom.set_ylabel("share of the gradient (%)")
    bottom.set_xticks(positions, [repr(token)[1:-1] for token in sample.tokens], rotation=60, ha="right")
    for ax in (top, middle, bottom):
        ax.spines[["top", "right"]].set_visible(False)
        ax.grid(axis="y", alpha=0.25, lw=0.6)
    top.set_title(f"{step.recipe}, step {step.step}: green: more probable after the update; red: less probable")
    return fig


def write_page(path: Path, step: StepSamples, number: int) -> None:
    """Write one self-contained HTML page."""
    sample = select_sample(step, number)
    largest = max(sample.shares) or 1.0
    cells = rows(sample)
    text = templates.render(
        "explain",
        step=step,
        sample=sample,
        summary=summary(step, number),
        columns={name: COLUMNS[name] for name in cells[0]},
        rows=[
            (row, "up" if a > 0 else "down" if a < 0 else "", round(100 * share / largest, 1))
            for row, a, share in zip(cells, sample.advantages, sample.shares, strict=True)
        ],
        image=data_uri(png(figure(step, number))),
    )
    write_text_atomic(path, text)
