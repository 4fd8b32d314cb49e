"""Initial models of studies, each stage trained for a few steps only, for probes.

Probes need only that the rewards of such models vary.
"""

from __future__ import annotations

from minirlhf.data import tasks
from minirlhf.stages import pipeline
from minirlhf.stages.pipeline import PretrainPlan, RewardPlan, SFTPlan, Trained
from minirlhf_course.evidence.probe import brief, settings, trace

#: A short plan: few pairs of completions of a short-trained model, and a reward model trained on them.
FEW_PAIRS = brief(RewardPlan(), batch_size=16, pairs=48, held_out=8)


def assistant() -> tuple[Trained, Trained, dict[str, float | str]]:
    """Return the models of the assistant task after pretraining and SFT, and both stages' numbers and settings."""
    world, plans = tasks.get("assistant"), {"pretrain": PretrainPlan(), "sft": SFTPlan()}
    base = pipeline.pretrain(world, brief(plans["pretrain"], documents=64), quiet=True)
    sft = pipeline.sft(world, base, brief(plans["sft"], demonstrations=64), quiet=True)
    numbers = trace("pretrain", base.history) | trace("sft", sft.history)
    return base, sft, settings(**plans) | numbers


def shell_game() -> tuple[Trained, dict[str, float | str]]:
    """Return a model of the shell game after enough fine-tuning that some answers are right."""
    plan = pipeline.SHELL_GAME_SFT
    sft = pipeline.sft_from_scratch(
        tasks.get("shell_game"), brief(plan, 20, batch_size=16, demonstrations=320), quiet=True
    )
    return sft, settings(game_sft=plan) | {f"game_sft_{key}": sft.history.last[key] for key in ("loss", "grad_norm")}
