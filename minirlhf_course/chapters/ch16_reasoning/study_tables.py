"""Narrowing, and a coin as reward: ``python -m minirlhf_course.chapters.ch16_reasoning.study_tables`` (three minutes).

Twenty seeds. pass@k before and after RL over 48 strategies, without and with a KL term, and with pay for a group's only success; a policy of two
habits that is paid by a coin, with and without the clip, each coin used once or again. Writes ``study_tables.json``.
"""

from dataclasses import replace

import torch

from minirlhf_course.chapters.ch16_reasoning.tables import (
    Coin,
    Narrowing,
    improve,
    paid_by_a_coin,
    pass_at,
    solved_by,
)
from minirlhf_course.evidence import Study, settings

TRIES = (1, 4, 8, 64, 256)
SHARES = (0.2, 0.8)
CLIPS = {"clip": 0.2, "free": None}
#: How often a reply and its coin are learned from: in one of the updates of its rollout, or in all four.
USES = ("once", "again")
#: Learning rates: at the first hardly a ratio of a batch reaches the clip, at the second about one in eighty does.
RATES = {"slow": 0.5, "fast": 2.0}
NARROWING, COIN = Narrowing(), Coin()


def one_seed(seed: int, narrowing: Narrowing = NARROWING, coin: Coin = COIN) -> dict[str, float]:
    """Everything with one seed."""
    table = solved_by(seed, narrowing)
    policies = {
        "before": torch.zeros(narrowing.strategies, dtype=torch.float64),
        "rl": improve(table, seed, narrowing),
        "kl": improve(table, seed, narrowing, beta=0.05),
        "sole": improve(table, seed, narrowing, sole=True),
    }
    numbers = {f"pass_{name}_{k}": pass_at(logits, table, k) for name, logits in policies.items() for k in TRIES}
    numbers["pass_any"] = float((table.sum(-1) > 0).double().mean())
    for share in SHARES:
        for name, epsilon in CLIPS.items():
            for pace, rate in RATES.items():
                for use in USES:
                    plan = replace(coin, learning_rate=rate)
                    left = paid_by_a_coin(share, epsilon, seed, plan, reused=use == "again")
                    key = f"coin_{name}_{use}_{pace}_{round(10 * share)}"
                    numbers |= {key: float(left.mean()), f"{key}_median": float(left.median())}
    return numbers


def probe() -> dict[str, float | str]:
    """Little of each."""
    small = Narrowing(problems=30, strategies=6, steps=20, prompts=4, group=4)
    few = Coin(runs=4, steps=5, batch=8)
    return one_seed(1, small, few) | settings(narrowing=NARROWING, coin=COIN)


STUDY = Study(one_seed, probe, seeds=20)

if __name__ == "__main__":
    STUDY.main(__file__)
