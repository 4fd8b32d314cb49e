"""Chapter 12 on several seeds: ``python -m minirlhf_course.chapters.ch12_policy_gradients.study`` (about five minutes).

A rollout of the poem critic used sixteen times, with four objectives; PPO on the shell game with and without a warm-up of its critic,
and without a critic; a sampler that is eight steps behind. All seeds start from the zoo's fine-tuned model.
"""

import copy
from dataclasses import replace

import torch

from minirlhf.data import tasks
from minirlhf.data.toys import poem_critic
from minirlhf.equations import policy_losses
from minirlhf.feedback.rewards import task_problems, task_reward
from minirlhf.models.critics import new_critic
from minirlhf.models.sampling import Sampling
from minirlhf.recipes import DR_GRPO, PPO, RLOO, get
from minirlhf.stages import zoo
from minirlhf.trainers.evaluation import evaluate
from minirlhf.trainers.online import OnlineConfig, train_online
from minirlhf.trainers.toy import TOY_RUN, train_toy
from minirlhf_course.chapters.ch12_policy_gradients.critic_probe import CriticProbe
from minirlhf_course.evidence import Study, initial_models, settings, trace

WARMUP, LAG = 8, 8


def maximum(logps, old_logps, advantages, mask, *, epsilon=0.2):
    """PPO's objective with the maximum in place of the minimum."""
    return -policy_losses.ppo_clip(logps, old_logps, -advantages, mask, epsilon=epsilon)


OBJECTIVES = {
    "clip": policy_losses.ppo_clip,
    "no_clip": policy_losses.importance_weighted,
    "no_ratio": policy_losses.reinforce,
    "maximum": maximum,
}


def reused(name: str, seed: int, steps: int):
    """The history of a run that uses each rollout of the poem critic 16 times."""
    world = poem_critic()
    config = replace(TOY_RUN, max_steps=steps, learning_rate=0.3, lr_scheduler_type="constant", seed=seed)
    recipe = RLOO.with_(kl=None, objective=OBJECTIVES[name], num_iterations=16)
    return train_toy(copy.deepcopy(world.reference), world.rewards[None], recipe, config, ref_model=world.reference)


def reuse(seed: int) -> dict[str, float]:
    """Ten steps with each objective."""
    numbers = {}
    for name in OBJECTIVES:
        history = reused(name, seed, 10)
        numbers[f"reuse_{name}_after_5"], numbers[f"reuse_{name}_after_10"] = (
            history["exact_reward"][i] for i in (4, 9)
        )
        numbers[f"reuse_{name}_log_ratio"] = max(history["policy_log_ratio_max"])
    return numbers


RUN = OnlineConfig(batch_size=16, num_generations=8, learning_rate=5e-4)

BASE = PPO.with_(kl=None, num_iterations=1, num_minibatches=4, critic_learning_rate_ratio=3.0)
WITH_CRITICS = {
    "warm": BASE.with_(critic_warmup=WARMUP),
    "cold": BASE,
    "lambda_1": BASE.with_(critic_warmup=WARMUP, lam=1.0),
    "no_critic": get("reinforce_pp").with_(kl=None, num_minibatches=4),
}
BEHIND = {
    "fresh": DR_GRPO,
    "ignored": DR_GRPO.with_(objective=policy_losses.reinforce),
    "clip": DR_GRPO,
    "truncated": get("decoupled_ppo"),
}


class ShellGameRuns:
    """The shell game from a fine-tuned model on, by default with all of its training prompts."""

    def __init__(self, seed: int, sft, tokenizer, games: int | None = None) -> None:
        self.world, self.seed, self.sft, self.tokenizer = tasks.get("shell_game"), seed, sft, tokenizer
        self.problems = task_problems(self.world, "train")[:games]

    def play(self, model, count: int = 400):
        """How a policy does on held-out games, sampled."""
        return evaluate(
            model,
            task_problems(self.world, "test")[:count],
            task_reward(self.world),
            tokenizer=self.tokenizer,
            sampling=Sampling(max_completion_length=self.world.max_completion_length),
            seed=1000 + self.seed,
        )

    def train(self, recipe, steps, staleness=0, config=RUN, **more):
        """A policy, its history, and how it does."""
        policy = copy.deepcopy(self.sft)
        config = replace(
            config,
            max_steps=steps,
            max_completion_length=self.world.max_completion_length,
            staleness=staleness,
            seed=self.seed,
        )
        history = train_online(
            policy,
            self.problems,
            task_reward(self.world),
            recipe,
            config,
            tokenizer=self.tokenizer,
            quiet=True,
            **more,
        )
        return history, self.play(policy)


def thinks(texts) -> list[float]:
    """1 for each completion that begins with a chain of thought."""
    return [float(text.startswith("think")) for text in texts]


def with_critics(game: ShellGameRuns) -> dict[str, float]:
    """PPO with a warm-up of the critic, without; and without any critic."""
    start = game.play(game.sft)
    thinking = torch.tensor(thinks(start.completions)).bool()
    pairs = [(p.prompt, text) for p, text in zip(start.problems, start.completions, strict=True)]
    numbers = {
        "sft_right": float(start.rewards.mean()),
        "sft_thinks": float(thinking.float().mean()),
        "sft_right_thinking": float(start.rewards[thinking].mean()),
        "sft_right_blurting": float(start.rewards[~thinking].mean()),
    }
    for name, recipe in WITH_CRITICS.items():
        key, more = f"ppo_{name}", {}
        if recipe.credit.critic is not None:
            more["critic"] = new_critic(game.sft, shared=False)
            replies = {
                kind: [pair for pair, one in zip(pairs, thinking.tolist(), strict=True) if one == wanted][:24]
                for kind, wanted in (("think", True), ("blurt", False))
            }
            probe = CriticProbe(more["critic"], game.tokenizer, replies)

            def watch(problems, completions, probe=probe):
                probe.look()
                return thinks(completions)

            more["monitors"] = {"thinks": watch}
        history, after = game.train(recipe, 28, **more)
        numbers[f"{key}_right"] = float(after.rewards.mean())
        numbers[f"{key}_thinks"] = sum(thinks(after.completions)) / len(after.completions)
        numbers[f"{key}_right_after_12"] = sum(history["reward"][12:16]) / 4
        if recipe.credit.critic is not None:
            numbers[f"{key}_explained"] = sum(history["explained_variance"][4:WARMUP]) / (WARMUP - 4)
            numbers |= {f"{key}_value_{place}": value for place, value in probe.seen[WARMUP].items()}
    return numbers


def behind(game: ShellGameRuns) -> dict[str, float]:
    """A sampler that is :data:`LAG` steps behind the learner; and, for comparison, one that is not."""
    numbers = {}
    for name, recipe in BEHIND.items():
        history, after = game.train(recipe, 40, staleness=0 if name == "fresh" else LAG)
        numbers[f"stale_{name}_right"] = float(after.rewards.mean())
        numbers[f"stale_{name}_best"] = max(sum(history["reward"][i : i + 4]) / 4 for i in range(0, 40, 4))
    return numbers


def one_seed(seed: int) -> dict[str, float]:
    """Every run of the chapter with one seed."""
    game = ShellGameRuns(seed, *zoo.load("shell-game-sft", quiet=True))
    return {**reuse(seed), **with_critics(game), **behind(game)}


def probe() -> dict[str, float | str]:
    """Two steps of every run, from a brief start; of the stale ones three, behind by one."""
    sft, numbers = initial_models.shell_game()
    for name in OBJECTIVES:
        numbers |= trace(f"reuse_{name}", reused(name, 0, 2), "loss", "grad_norm", "exact_reward")
    game, few = ShellGameRuns(0, sft.model, sft.tokenizer, games=16), replace(RUN, batch_size=4, num_generations=4)
    prompt = task_problems(game.world, "test")[0].prompt
    for name, recipe in WITH_CRITICS.items():
        if recipe.credit.critic is None:
            history, _ = game.train(recipe, 2, config=few)
        else:
            critic = new_critic(game.sft, shared=False)
            warm = recipe.with_(critic_warmup=min(recipe.credit.critic.critic_warmup, 1))
            history, _ = game.train(warm, 3, config=few, critic=critic)
            seen = CriticProbe(critic, game.tokenizer, {"think": [(prompt, "think")], "blurt": [(prompt, "answer")]})
            seen.look()
            numbers |= {f"{name}_value_{place}": value for place, value in seen.seen[0].items()}
        numbers |= {f"{name}_{key}": history.last[key] for key in ("loss", "grad_norm", "reward")}
    for name, recipe in BEHIND.items():
        history, after = game.train(recipe, 3, staleness=int(name != "fresh"), config=few)
        numbers |= trace(f"stale_{name}", history) | {f"stale_{name}_right": float(after.rewards.mean())}
    behind = {f"stale_{name}": recipe for name, recipe in BEHIND.items()}
    return numbers | settings(toy=TOY_RUN, run=RUN, reuse=RLOO, **WITH_CRITICS, **behind)


STUDY = Study(one_seed, probe)

if __name__ == "__main__":
    STUDY.main(__file__)
