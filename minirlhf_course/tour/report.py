"""The tour's report: a table on the terminal, and one HTML page with embedded figures."""

from __future__ import annotations

from pathlib import Path

from minirlhf.core.folders import write_text_atomic
from minirlhf_course.report import templates
from minirlhf_course.report.plotting import data_uri, png
from minirlhf_course.tour import figures
from minirlhf_course.tour.stages import IMPROVED, Tour

SHOWN = 6
PARTS = {
    "pretrain": "pretraining",
    "sft": "supervised fine-tuning",
    "reward": "preferences and reward model",
    "grpo": "reinforcement learning: GRPO",
    "ppo": "reinforcement learning: PPO",
    "dpo": "direct alignment: DPO",
    "evaluation": "evaluation",
    "game_sft": "shell game: supervised fine-tuning",
    "game_rl": "shell game: reinforcement learning",
    "game_evaluation": "shell game: evaluation",
}
FIGURES = ("stages", "reinforcement", "game")


def captions(tour: Tour) -> dict[str, str]:
    """Return the caption of each figure with the numbers of this run; it is also the alt text."""
    curves = {name: tour.histories[name]["loss"] for name in ("pretrain", "sft")}
    grpo, ppo, dpo, game = (tour.histories[name] for name in ("grpo", "ppo", "dpo", "game_rl"))

    def ends(values: list[float]) -> str:
        """Return the means of the first and last 20 %, as ``a to b``."""
        n = max(1, len(values) // 5)
        return f"{sum(values[:n]) / n:.2f} to {sum(values[-n:]) / n:.2f}"

    return {
        "stages": f"Loss of pretraining (from {curves['pretrain'][0]:.2f} to {curves['pretrain'][-1]:.2f} nats per token) and of "
        f"fine-tuning (from {curves['sft'][0]:.2f} to {curves['sft'][-1]:.2f}); fraction of training pairs that the reward model "
        f"ranks like their labels (from {ends(tour.histories['reward']['accuracy'])}, mean of the first and last fifth).",
        "reinforcement": f"GRPO moves the gold reward from {ends(grpo['gold'])} and PPO from {ends(ppo['gold'])} (mean of the first "
        f"and last fifth of their steps), while both are trained on the reward model only; they end {grpo['kl'][-1]:.1f} and "
        f"{ppo['kl'][-1]:.1f} nats per reply from the SFT model. DPO moves the log-probability of the chosen replies from "
        f"{ends(dpo['chosen_logp'])} and of the rejected ones from {ends(dpo['rejected_logp'])} nats.",
        "game": f"Only correct answers are rewarded (from {ends(game['reward'])}); the fraction of samples with a chain of thought goes "
        f"from {ends(game['thinks'])}, their length from {ends(game['completion_length'])} tokens.",
    }


def table(tour: Tour) -> str:
    """Return the results as a plain-text table."""
    lines = [f"{'':8}{'gold reward':>16}{'wins vs SFT':>16}{'KL from SFT':>16}{'length':>16}"]
    for s in tour.assistant:
        wins = "-" if s.name == "SFT" else str(s.wins)
        kl = str(s.kl) if s.name in IMPROVED else "-"
        lines.append(f"{s.name:8}{s.gold!s:>16}{wins:>16}{kl:>16}{s.length!s:>16}")
    lines += ["", f"{'correct':8}{'sampled':>16}{'greedy':>16}{'with thought':>16}{'length':>16}"]
    for g in tour.game:
        lines.append(f"{g.name:8}{g.sampled!s:>16}{g.greedy!s:>16}{g.thinks!s:>16}{g.length!s:>16}")
    return "\n".join(lines)


def answers(tour: Tour, count: int = 3) -> str:
    """Return the first test prompts with the completion of each model."""
    lines = []
    for i in range(count):
        lines.append(f"\n{tour.assistant[0].evaluation.problems[i].prompt[-1]['content']}")
        for stage in tour.assistant:
            completion = stage.evaluation.completions[i] or "(empty)"
            lines.append(f"  {stage.name:5} {completion}  [{float(stage.evaluation.rewards[i]):z.1f}]")
    return "\n".join(lines)


def page(tour: Tour) -> str:
    """Return the HTML report."""
    images = {name: data_uri(png(getattr(figures, name)(tour))) for name in FIGURES}
    return templates.render(
        "tour", tour=tour, improved=IMPROVED, images=images, alt=captions(tour), shown=range(SHOWN), names=PARTS
    )


def write(tour: Tour, out: Path) -> Path:
    """Write ``report.html`` and ``overview.png`` into ``out``; returns the report's path."""
    out.mkdir(parents=True, exist_ok=True)
    write_text_atomic(out / "report.html", page(tour))
    (out / "overview.png").write_bytes(png(figures.overview(tour)))
    return out / "report.html"
