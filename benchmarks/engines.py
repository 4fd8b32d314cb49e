"""The equations of verl and OpenRLHF beside ours, on shared tensors: what the maps of ``minirlhf export`` say is the same, is it?

    pip download verl==0.9.1 openrlhf==0.11.2 --no-deps -d wheels && (cd wheels && for w in *.whl; do unzip -qo $w; done)
    python benchmarks/engines.py wheels --json benchmarks/engines.json

Neither package is imported (they want GPUs): the functions that compute advantages, losses and KL terms are taken out of their files and
run by themselves. Two groups of four ragged replies, the policy away from the one that sampled. A row is the distance of the two gradients
with respect to the log-probabilities, over the length of ours. What happens around a step (minibatches, schedules, sampling) is not seen.
"""

from __future__ import annotations

import argparse
import ast
import json
from collections import defaultdict
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from minirlhf import recipes
from minirlhf.data.types import Rollout
from minirlhf.equations.aggregation import aggregate
from minirlhf.recipes.parts import RolloutExtras, ScoredRollout
from minirlhf_cli.export.mapped import NoCounterpartError
from minirlhf_cli.export.write import ENGINES

P, G, T = 2, 4, 6
ACTOR = "actor_rollout_ref.actor."


def taken(file: Path, *, into: dict[str, Any]) -> dict[str, Any]:
    """The plain functions and classes of a file, without their decorators; what they import is given in ``into``."""
    tree = ast.parse(file.read_text(encoding="utf-8"))
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            node.decorator_list = []
            source = ast.Module([ast.parse("from __future__ import annotations").body[0], node], [])
            try:
                exec(compile(ast.fix_missing_locations(source), str(file), "exec"), into)
            except NameError:  # a class of something that is not here
                continue
    return into


def shared(seed: int) -> SimpleNamespace:
    """One made-up rollout, graded, and the log-probabilities of a policy that has moved."""
    draw = torch.Generator().manual_seed(seed)
    uniform = lambda *shape: torch.rand(*shape, generator=draw, dtype=torch.float64)
    lengths = torch.tensor([6, 3, 5, 1, 2, 6, 4, 6])
    mask = torch.arange(T) < lengths[:, None]
    old, ref, values = (torch.where(mask, -0.2 - uniform(P * G, T), 0.0) for _ in range(3))
    logps = torch.where(mask, old + 0.6 * (uniform(P * G, T) - 0.5), 0.0)
    rewards = torch.randint(0, 5, (P, G), generator=draw).double() / 4
    ids = torch.zeros(P * G, T, dtype=torch.long)
    rollout = Rollout(ids, ids + 1, mask, old, old, ids, torch.ones(P * G, dtype=torch.bool), G)
    graded = ScoredRollout(rollout, rewards, torch.ones(P, G, dtype=torch.bool), ref, values)
    greedy = replace(rollout.select(torch.arange(0, P * G, G)), num_generations=1)
    best = ScoredRollout(greedy, rewards[:, :1] * 0.5, graded.valid[:, :1], ref[::G])
    return SimpleNamespace(
        mask=mask, old=old, ref=ref, values=values, logps=logps, rewards=rewards, graded=graded, greedy=best
    )


def ours(recipe: Any, at: SimpleNamespace, logps: Tensor) -> Tensor:
    """The loss as the trainer composes it."""
    update = recipe.update
    graded = recipe.credit.complete(at.graded, RolloutExtras(lambda: at.greedy, lambda: None))
    weights = update.token_weights(graded.rollout)
    loss = -aggregate(update.objective(logps, at.old, recipe.advantages(graded), at.mask), weights, at.mask)
    return loss if update.kl is None else loss + update.kl.penalty(logps, at.ref, weights, at.mask)


def token_rewards(at: SimpleNamespace, charge: Tensor) -> Tensor:
    """Rewards on each reply's last token, less a charge for every token."""
    last = at.mask.sum(1) - 1
    rewards = torch.zeros_like(at.old)
    rewards[torch.arange(P * G), last] = at.rewards.flatten()
    return rewards - charge * at.mask


def of_verl(f: dict[str, Any], options: dict[str, Any], at: SimpleNamespace, logps: Tensor) -> Tensor:
    """verl's loss for these options."""
    actor = {name.removeprefix(ACTOR): value for name, value in options.items() if name.startswith(ACTOR)}
    info = {
        "dp_size": 1,
        "batch_num_tokens": at.mask.sum(),
        "global_batch_size": P * G,
        "loss_scale_factor": actor.get("loss_scale_factor"),
    }

    class Config(SimpleNamespace):
        get = lambda self, name, default=None: getattr(self, name, default)

    numbers = ("clip_ratio_low", "clip_ratio_high", "clip_ratio_c", "tau_pos", "tau_neg")
    config = Config(clip_ratio=0.2, global_batch_info=info, **{n: actor[n] for n in numbers if n in actor})
    f["ActorConfig"], f["AlgoConfig"] = Config, type("AlgoConfig", (), {})
    kl = f["kl_penalty"](at.old, at.ref, options.get("algorithm.kl_penalty", "kl"))
    charge = options.get("algorithm.kl_ctrl.kl_coef", 0.0) * kl if options["algorithm.use_kl_in_reward"] else 0.0 * kl
    mask, groups = at.mask.double(), np.repeat(np.arange(P), G)
    given = {"token_level_rewards": token_rewards(at, charge), "response_mask": mask}
    own = Config(gamma=options.get("algorithm.gamma", 1.0))
    norm = {"norm_adv_by_std_in_grpo": options.get("algorithm.norm_adv_by_std_in_grpo", True)}
    estimators = {
        "grpo": lambda: f["compute_grpo_outcome_advantage"](**given, index=groups, **norm),
        "rloo": lambda: f["compute_rloo_outcome_advantage"](**given, index=groups),
        "reinforce_plus_plus": lambda: f["compute_reinforce_plus_plus_outcome_advantage"](**given, config=own),
        "reinforce_plus_plus_baseline": lambda: f["compute_reinforce_plus_plus_baseline_outcome_advantage"](
            **given, index=groups
        ),
        "remax": lambda: f["compute_remax_outcome_advantage"](
            **given, reward_baselines=at.greedy.rewards.flatten().repeat_interleave(G)
        ),
        "gae": lambda: f["compute_gae_advantage_return"](
            given["token_level_rewards"], at.values, mask, own.gamma, options.get("algorithm.lam")
        ),
    }
    advantages = estimators[options["algorithm.adv_estimator"]]()[0]
    losses = {
        "vanilla": "vanilla",
        "gspo": "gspo",
        "sapo": "sapo",
        "gpg": "gpg",
        "geo_mean": "geo_mean",
        "cispo": "cispo",
    }
    compute = f[f"compute_policy_loss_{losses[actor['policy_loss.loss_mode']]}"]
    loss = compute(at.old, logps, advantages, mask, actor["loss_agg_mode"], config)[0]
    if actor["use_kl_loss"]:
        kl = f["kl_penalty"](logps, at.ref, actor["kl_loss_type"])
        loss = loss + actor["kl_loss_coef"] * f["agg_loss"](kl, mask, actor["loss_agg_mode"], **info)
    return loss


def of_openrlhf(f: dict[str, Any], options: dict[str, Any], at: SimpleNamespace, logps: Tensor) -> Tensor:
    """OpenRLHF's loss for these options."""
    estimator, coef = options["algo.advantage.estimator"], float(options["algo.kl.init_coef"])
    in_loss, kind = options.get("algo.kl.use_loss", False), options.get("algo.kl.estimator", "k1")
    kl = torch.zeros_like(at.old) if in_loss or not coef else f["compute_approx_kl"](at.old, at.ref, kl_estimator=kind)
    algo = SimpleNamespace(
        advantage=SimpleNamespace(
            estimator=estimator, gamma=options.get("algo.advantage.gamma", 1.0), lambd=options.get("algo.advantage.lambd", 1.0),
            no_std_norm=options.get("algo.advantage.no_std_norm", False),
        )
    )  # fmt: skip
    args = SimpleNamespace(
        algo=algo, reward=SimpleNamespace(clip_range=options["reward.clip_range"]), rollout=SimpleNamespace(n_samples_per_prompt=G)
    )  # fmt: skip
    maker = f["RemoteExperienceMaker"].__new__(f["RemoteExperienceMaker"])
    maker.strategy, maker.advantage_estimator = SimpleNamespace(args=args), estimator
    maker.kl_ctl = SimpleNamespace(value=coef)
    one = SimpleNamespace(
        rewards=at.rewards.flatten(),
        index=list(range(P * G)),
        kl=kl,
        values=at.values,
        action_mask=at.mask.double(),
        info={},
    )
    maker.compute_advantages_and_returns([one])
    mask, info = at.mask.double(), {"dp_size": 1, "batch_num_tokens": at.mask.sum(), "global_batch_size": P * G}
    low, high = options.get("actor.eps_clip_low_high", (0.2, 0.2))
    policy = f["PolicyLoss"](
        clip_eps_low=low, clip_eps_high=high, dual_clip=options.get("actor.dual_clip"),
        token_level_loss=options["actor.loss_agg_mode"] == "token-mean", policy_loss_type=options["actor.policy_loss_type"],
    )  # fmt: skip
    loss = policy(logps, at.old, one.advantages, mask, **info)[0]
    if in_loss:
        loss = loss + coef * f["aggregate_loss"](f["compute_approx_kl"](logps, at.ref, kl_estimator=kind), mask, **info)
    return loss


def functions(folder: Path) -> dict[str, tuple[Any, dict[str, Any]]]:
    """How each engine's loss is computed, and by which of its functions."""
    import itertools

    import torch.nn as nn
    import torch.nn.functional as F

    typing = {
        name: getattr(__import__("typing"), name) for name in ("Any", "Optional", "Tuple", "Union", "List", "Callable")
    }
    names: dict[str, Any] = {
        "torch": torch,
        "np": np,
        "defaultdict": defaultdict,
        "nn": nn,
        "F": F,
        "itertools": itertools,
        **typing,
    }
    verl = dict(names)
    verl["verl_F"] = SimpleNamespace(**taken(folder / "verl/utils/torch_functional.py", into=dict(names)))
    taken(folder / "verl/trainer/ppo/core_algos.py", into=verl)
    root = next(folder.glob("openrlhf*.data/purelib/openrlhf"), folder / "openrlhf")
    theirs = {**names, "apply_length_penalties": lambda experiences, args: None, "ray": None}
    for file in ("models/utils.py", "models/loss.py", "trainer/ppo_utils/experience_maker.py"):
        taken(root / file, into=theirs)
    return {"verl": (of_verl, verl), "openrlhf": (of_openrlhf, theirs)}


def gradient(compute: Callable[[Tensor], Tensor], start: Tensor, mask: Tensor) -> Tensor:
    """With respect to the log-probabilities, where a token was sampled."""
    x = start.clone().requires_grad_()
    return torch.where(mask, torch.autograd.grad(compute(x), x)[0], 0.0)


def compared(folder: Path, seeds: int) -> dict[str, dict[str, float]]:
    """The largest distance of the gradients over the seeds, for every recipe that goes."""
    found: dict[str, dict[str, float]] = {}
    for engine, (loss, given) in functions(folder).items():
        found[engine] = {}
        for name, recipe in recipes.RECIPES.items():
            row = recipe.resolved(max_completion_length=T)
            try:
                options = dict(ENGINES[engine].online(row).options)
            except NoCounterpartError:
                continue
            worst = 0.0
            for seed in range(seeds):
                at = shared(seed)
                # One update per rollout: the policy is the one that sampled. Else it has moved.
                start = at.old if row.update.num_iterations * row.update.num_minibatches == 1 else at.logps
                mine = gradient(partial(ours, row, at), start, at.mask)
                other = gradient(partial(loss, given, options, at), start, at.mask)
                worst = max(worst, float((mine - other).norm() / mine.norm()))
            found[engine][name] = worst
    return found


def main() -> None:
    """Print the table; write it with --json."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path, help="where both wheels were unpacked")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    found = compared(args.folder, args.seeds)
    for engine, rows in found.items():
        for name, distance in rows.items():
            differs = ENGINES[engine].online(recipes.get(name)).differs
            print(f"{engine:9} {name:22} {distance:.1e}  {'; '.join(differs)}")
    if args.json:
        versions = {name: ENGINES[name].version for name in found}
        args.json.write_text(json.dumps({"versions": versions, "gradient": found}, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
