"""The tool's tokens in the loss and outside it: ``python -m minirlhf_course.chapters.ch17_tools.study`` (three minutes).

Five seeds. A policy that calls the calculator for 25 % of the products is measured with each ``tool_choice``. Then Dr. GRPO trains it for 36 steps, with the tool's tokens
masked, and with the mistake that they count as the policy's own. Each step records the fractions of its 80 conversations with a right answer and with a call. The learning rate is the best of 2.5e-4, 5e-4, 1e-3 and 2e-3 for either arm, by the mean
reward of the run on seeds 100 and 101: .67 and .55 at 1e-3, .66 and .48 at 5e-4. Writes ``study.json``.
"""

from dataclasses import replace

from minirlhf.recipes import DR_GRPO
from minirlhf.trainers.config import OnlineConfig
from minirlhf.trainers.sft import SFTConfig
from minirlhf_course.chapters.ch17_tools.calculators import IMITATE, IMPROVE, imitator, improved, measured, products
from minirlhf_course.evidence import Study, settings

EARLY = 12  # steps, of which the mean reward is taken beside that of all


def one_seed(seed: int, plan: SFTConfig = IMITATE, run: OnlineConfig = IMPROVE, count: int = 200) -> dict[str, float]:
    """Return the measurements of both arms from one initial model."""
    train, test = products()
    start = imitator(seed, plan)
    numbers = {f"sft_{name}": value for name, value in measured(start, test[:count]).items()}
    for choice in ("any", "none"):
        found = measured(start, test[:count], choice=choice)
        numbers |= {f"{choice}_right": found["right"], f"{choice}_call": found["call"]}
    for name, masked in (("masked", True), ("all", False)):
        trained = improved(start, train, replace(run, seed=seed), masked=masked)
        rewards = trained.history["reward"]
        numbers |= {
            f"{name}_early": sum(rewards[:EARLY]) / len(rewards[:EARLY]),
            f"{name}_mean": sum(rewards) / len(rewards),
        }
        for step, (right, called) in enumerate(zip(rewards, trained.history["frac_called"], strict=True), 1):
            numbers |= {f"{name}_right_{step}": right, f"{name}_call_{step}": called}
        numbers |= {f"{name}_{key}": value for key, value in measured(trained, test[:count]).items()}
    return numbers


def probe() -> dict[str, float | str]:
    """Run a few steps of each arm, with a price on calls: so early nothing is right, and only a price makes rewards differ."""
    few, short = replace(IMITATE, max_steps=40), replace(IMPROVE, max_steps=3, batch_size=3)
    numbers, start = one_seed(0, few, short, count=40), imitator(0, few)
    for name, masked in (("masked", True), ("all", False)):
        history = improved(start, products()[0], short, masked=masked, cost=0.5).history
        numbers |= {f"{name}_priced_{i}": norm for i, norm in enumerate(history["grad_norm"])}
    return numbers | settings(plan=IMITATE, run=IMPROVE, recipe=DR_GRPO)


STUDY = Study(one_seed, probe, seeds=5)

if __name__ == "__main__":
    STUDY.main(__file__)
