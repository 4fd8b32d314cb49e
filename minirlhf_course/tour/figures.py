"""The tour's figures."""

from __future__ import annotations

from typing import Any

from minirlhf_course.report.plotting import PALETTE, panels, smooth
from minirlhf_course.tour.stages import Tour


def overview(tour: Tour) -> Any:
    """Plot the gold reward after each stage, and the shell game during RL."""
    figure, (left, right) = panels(2, 4.2, 3.2)
    names = [stage.name for stage in tour.assistant]
    means = [stage.gold.mean for stage in tour.assistant]
    errors = [1.96 * stage.gold.stderr for stage in tour.assistant]
    colours = [PALETTE[c] for c in ("orange", "sky", "green", "blue", "purple")]
    left.bar(names, means, yerr=errors, color=colours, capsize=4, width=0.6)
    left.axhline(0, color="black", lw=0.8)
    left.set(title="How well each stage answers", ylabel="gold reward per reply (95 % interval)")
    steps = tour.histories["game_rl"]["step"]
    right.plot(steps, tour.histories["game_rl"]["reward"], color=PALETTE["green"], label="correct answers")
    right.plot(
        steps, tour.histories["game_rl"]["thinks"], color=PALETTE["orange"], ls="--", label="with a chain of thought"
    )
    right.set(title="Shell game: what RL discovers", xlabel="RL step", ylabel="fraction of samples", ylim=(0, 1.03))
    right.legend(frameon=False, loc="lower right")
    return figure


def stages(tour: Tour) -> Any:
    """Plot the losses of pretraining and SFT and the accuracy of the reward model."""
    figure, axes = panels(3, 3.4, 2.6)
    for ax, name, title in zip(axes, ("pretrain", "sft"), ("Pretraining", "Supervised fine-tuning"), strict=False):
        history = tour.histories[name]
        ax.plot(history["step"], history["loss"], color=PALETTE["blue"])
        ax.set(title=title, xlabel="step", ylabel="loss (nats per token)")
    history = tour.histories["reward"]
    axes[2].plot(history["step"], smooth(history["accuracy"], 20), color=PALETTE["purple"])
    axes[2].axhline(0.5, color="black", lw=0.8, ls=":")
    axes[2].set(title="Reward model", xlabel="step", ylabel="accuracy (mean of 20 steps)", ylim=(0.4, 1))
    return figure


def reinforcement(tour: Tour) -> Any:
    """Plot gold reward and KL during GRPO and PPO, and the log-probabilities of the pairs during DPO."""
    figure, (left, middle, right) = panels(3, 3.6, 2.8)
    for name, colour, style in (("grpo", "green", "-"), ("ppo", "blue", "--")):
        history = tour.histories[name]
        style_options = {"color": PALETTE[colour], "ls": style, "label": name.upper()}
        left.plot(history["step"], smooth(history["gold"], 5), **style_options)
        middle.plot(history["step"], history["kl"], **style_options)
    left.set(title="Gold reward, which is not optimised", xlabel="RL step", ylabel="mean reward (mean of 5 steps)")
    middle.set(title="KL divergence from the SFT model", xlabel="RL step", ylabel="KL (nats per reply)", ylim=(0, None))
    history = tour.histories["dpo"]
    right.plot(history["step"], smooth(history["chosen_logp"], 5), color=PALETTE["purple"], label="chosen")
    right.plot(history["step"], smooth(history["rejected_logp"], 5), color=PALETTE["red"], ls="--", label="rejected")
    right.set(title="Log-probabilities during DPO", xlabel="DPO step", ylabel="log-probability (nats per reply)")
    for ax in (left, middle, right):
        ax.legend(frameon=False)
    return figure


def game(tour: Tour) -> Any:
    """Plot accuracy, chain-of-thought rate and length in the shell game during RL."""
    figure, (left, right) = panels(2, 4.2, 2.8)
    history = tour.histories["game_rl"]
    left.plot(history["step"], history["reward"], color=PALETTE["green"], label="correct answers (rewarded)")
    left.plot(
        history["step"], history["thinks"], color=PALETTE["orange"], ls="--", label="chain of thought (not rewarded)"
    )
    left.set(title="What is rewarded, and what is not", xlabel="RL step", ylabel="fraction of samples", ylim=(0, 1.03))
    left.legend(frameon=False, loc="lower right")
    right.plot(history["step"], history["completion_length"], color=PALETTE["blue"])
    right.set(title="Length of completions", xlabel="RL step", ylabel="tokens per completion", ylim=(0, None))
    return figure
