"""What studies start from, in brief: every stage for a few steps, for probes. Rewards of such models vary, which is all that is needed."""

from __future__ import annotations

from minirlhf.data import tasks
from minirlhf.evidence.probe import brief, settings, trace
from minirlhf.stages import pipeline
from minirlhf.stages.pipeline import PretrainPlan, RewardPlan, SFTPlan, Trained

#: Pairs of a brief start's replies, and a reward model that learns from them.
FEW_PAIRS = brief(RewardPlan(), batch_size=16, pairs=48, held_out=8)


def assistant() -> tuple[Trained, Trained, dict[str, float | str]]:
    """The assistant world after pretraining, and after fine-tuning; the numbers of both stages and the settings in full."""
    world, plans = tasks.get("assistant"), {"pretrain": PretrainPlan(), "sft": SFTPlan()}
    base = pipeline.pretrain(world, brief(plans["pretrain"], documents=64), quiet=True)
    sft = pipeline.sft(world, base, brief(plans["sft"], demonstrations=64), quiet=True)
    numbers = trace("pretrain", base.history) | trace("sft", sft.history)
    return base, sft, settings(**plans) | numbers


def shell_game() -> tuple[Trained, dict[str, float | str]]:
    """The shell game after so much fine-tuning that some answers are right."""
    plan = pipeline.SHELL_GAME_SFT
    sft = pipeline.sft_from_scratch(
        tasks.get("shell_game"), brief(plan, 20, batch_size=16, demonstrations=320), quiet=True
    )
    return sft, settings(game_sft=plan) | {f"game_sft_{key}": sft.history.last[key] for key in ("loss", "grad_norm")}
