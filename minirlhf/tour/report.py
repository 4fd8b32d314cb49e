"""The tour's report: a table on the terminal, and one HTML page that holds its figures in itself."""

from __future__ import annotations

from pathlib import Path

import jinja2

from minirlhf.models.checkpoints import write_text_atomic
from minirlhf.plotting import data_uri, png
from minirlhf.tour import figures
from minirlhf.tour.stages import Tour

SHOWN = 6
PARTS = {
    "pretrain": "pretraining",
    "sft": "supervised fine-tuning",
    "reward": "preferences and reward model",
    "rl": "reinforcement learning",
    "evaluation": "evaluation",
    "game_sft": "shell game: supervised fine-tuning",
    "game_rl": "shell game: reinforcement learning",
    "game_evaluation": "shell game: evaluation",
}
CAPTIONS = {
    "stages": "Pretraining and fine-tuning lower the loss; the reward model learns to rank pairs better than a coin.",
    "reinforcement": "RL raises the reward model's score and with it the true reward, while the KL penalty holds the policy "
    "near the SFT model.",
    "game": "In the shell game only right answers are rewarded; the share of samples that think aloud rises with them, and "
    "so does the length.",
}


def table(tour: Tour) -> str:
    """The results as plain text."""
    lines = [f"{'':8}{'true reward':>16}{'wins vs SFT':>16}{'KL from SFT':>16}{'length':>16}"]
    for s in tour.assistant:
        wins = "-" if s.name == "SFT" else str(s.wins)
        kl = str(s.kl) if s.name == "RL" else "-"
        lines.append(f"{s.name:8}{s.gold!s:>16}{wins:>16}{kl:>16}{s.length!s:>16}")
    lines += ["", f"{'game':8}{'right, sampled':>16}{'right, greedy':>16}{'thinks aloud':>16}{'length':>16}"]
    for g in tour.game:
        lines.append(f"{g.name:8}{g.sampled!s:>16}{g.greedy!s:>16}{g.thinks!s:>16}{g.length!s:>16}")
    return "\n".join(lines)


def answers(tour: Tour, count: int = 3) -> str:
    """The first test prompts with the reply of each model."""
    lines = []
    for i in range(count):
        lines.append(f"\n{tour.assistant[0].evaluation.problems[i].prompt[-1]['content']}")
        for s in tour.assistant:
            reply = s.evaluation.completions[i] or "(says nothing)"
            lines.append(f"  {s.name:5} {reply}  [{float(s.evaluation.rewards[i]):.1f}]")
    return "\n".join(lines)


def page(tour: Tour) -> str:
    """The HTML report."""
    source = Path(__file__).with_name("report.html.jinja").read_text(encoding="utf-8")
    images = {name: data_uri(png(getattr(figures, name)(tour))) for name in CAPTIONS}
    environment = jinja2.Environment(autoescape=True, undefined=jinja2.StrictUndefined)
    return environment.from_string(source).render(
        tour=tour, images=images, alt=CAPTIONS, shown=range(SHOWN), names=PARTS
    )


def write(tour: Tour, out: Path) -> Path:
    """Write ``report.html`` and ``overview.png`` into ``out``; returns the report's path."""
    out.mkdir(parents=True, exist_ok=True)
    write_text_atomic(out / "report.html", page(tour))
    (out / "overview.png").write_bytes(png(figures.overview(tour)))
    return out / "report.html"
