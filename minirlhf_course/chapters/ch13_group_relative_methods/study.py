"""The group-relative family on the shell game: ``python -m minirlhf_course.chapters.ch13_group_relative_methods.study`` (about ten minutes).

Five seeds, each with a fresh policy from supervised fine-tuning. Dr. GRPO learns to think; sixteen other recipes get the same
prompts and the same number of sampled tokens; four objectives get four updates on every rollout; and one run is punished for the length of its
thoughts. Writes ``study.json``.
"""

from dataclasses import replace

from minirlhf.recipes import DR_GRPO
from minirlhf.recipes.parts import penalize_overlong
from minirlhf.stages import pipeline
from minirlhf_course.chapters.ch13_group_relative_methods import group_family
from minirlhf_course.evidence import Study, brief, initial_models, settings, trace

ONE_UPDATE, FOUR_UPDATES = (
    range(2_000, 12_001, 2_000),
    range(1_000, 6_001, 1_000),
)  # sampled tokens at which runs are compared
PUNISHED = DR_GRPO.with_(shape=(penalize_overlong,), soft_punish_cache=4)


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
        reached = int((group_family.tokens(history) < at[-1]).sum()) + 1
        known = [
            x for x in history["clip_fraction"][:reached] if x == x
        ]  # a step without a single mixed group has no update
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
            # Short replies take more rollouts to as many tokens.
            run(name, recipe, ONE_UPDATE, 40 if name in ("gfpo", "vapo") else 24)
    for name, recipe in group_family.off_policy().items():
        run(f"four_{name}", recipe, FOUR_UPDATES, 14)
    played("punished_end", run("punished", PUNISHED, FOUR_UPDATES, 18, length=11))
    return numbers


def probe() -> dict[str, float | str]:
    """Two steps of every recipe, from a brief start."""
    begin, numbers = initial_models.shell_game()
    fresh = group_family.start(1, plan=brief(pipeline.SHELL_GAME_SFT, demonstrations=128))
    numbers |= trace("fresh", fresh.history)
    recipes = group_family.on_policy() | {f"four_{name}": x for name, x in group_family.off_policy().items()}
    recipes["punished"] = PUNISHED
    for name, recipe in recipes.items():
        config = replace(group_family.RUN, max_steps=2, batch_size=4, num_generations=4)
        if recipe.credit.critic is not None:  # the second step teaches the policy
            recipe = recipe.with_(critic_warmup=min(recipe.credit.critic.critic_warmup, 1))
        history = group_family.train(begin, recipe, config, games=16).history
        told = (key for key in ("loss", "critic_loss", "grad_norm", "reward") if any(key in row for row in history))
        numbers |= trace(name, history, *told)
        sampled = group_family.tokens(history).tolist()
        numbers[f"{name}_curve"] = group_family.curve(history, sampled[-1:], window=2)[0]
    played = {f"start_{key}": x for key, x in group_family.play(begin, games=64).items()}
    return numbers | played | settings(run=group_family.RUN, **recipes)


STUDY = Study(one_seed, probe)

if __name__ == "__main__":
    STUDY.main(__file__)
