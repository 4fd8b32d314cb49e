"""The group-relative family on the shell game: ``python studies/ch13_family.py`` (about ten minutes).

Five seeds, each with a fresh policy from supervised fine-tuning. Dr. GRPO learns to think; sixteen other recipes get the same
prompts and the same number of sampled tokens; four objectives get four updates on every rollout; and one run is punished for the length of its
thoughts. Writes ``studies/ch13_family.json``.
"""

from dataclasses import replace
from pathlib import Path

from minirlhf import evidence
from minirlhf.chapters.ch13_group_relative_methods import group_family
from minirlhf.recipes import DR_GRPO
from minirlhf.recipes.parts import soft_overlong

RESULT = Path(__file__).with_suffix(".json")
ONE_UPDATE, FOUR_UPDATES = (
    range(2_000, 12_001, 2_000),
    range(1_000, 6_001, 1_000),
)  # sampled tokens at which runs are compared


def one_seed(seed: int) -> dict[str, float]:
    """Every run of the chapter with one seed."""
    begin = group_family.start(seed)
    numbers: dict[str, float] = {}

    def run(name, recipe, at, steps, length=group_family.RUN.max_completion_length):
        config = replace(group_family.RUN, max_steps=steps, max_completion_length=length)
        policy = group_family.train(begin, recipe, config, seed=seed)
        history = policy.history
        reward = group_family.curve(history, at)
        numbers[f"{name}_area"] = sum(reward) / len(reward)
        for key in ("reward", "neg_logp", "completion_length", "frac_reward_zero_std", "thinks"):
            numbers[f"{name}_{key}"] = group_family.curve(history, at[-1:], key=key)[0]
        known = [x for x in history["clip_fraction"] if x == x]  # a step without a single mixed group has no update
        numbers[f"{name}_clip_fraction"] = sum(known) / len(known)
        return policy

    def played(name, policy):
        numbers.update({f"{name}_{key}": x for key, x in group_family.play(policy).items()})

    played("start", begin)
    think = run("dr_grpo", DR_GRPO, ONE_UPDATE, 60)
    played("end", think)
    for key in ("reward", "thinks", "completion_length", "neg_logp", "frac_reward_zero_std"):
        for step in range(0, 60, 3):
            numbers[f"dr_grpo_{key}_{step}"] = sum(think.history[key][step : step + 3]) / 3
    for name, recipe in group_family.on_policy().items():
        if name != "dr_grpo":
            # Dynamic sampling draws about two batches for one, and short replies take more rollouts.
            run(name, recipe, ONE_UPDATE, 10 if name == "dapo" else 20)
    for name, recipe in group_family.off_policy().items():
        run(f"four_{name}", recipe, FOUR_UPDATES, 6)
    punished = DR_GRPO.with_(shape=(soft_overlong,), soft_punish_cache=4)
    played("punished_end", run("punished", punished, ONE_UPDATE, 18, length=11))
    return numbers


if __name__ == "__main__":
    evidence.run_study(one_seed, RESULT, modules=["minirlhf.chapters.ch13_group_relative_methods.group_family"])
