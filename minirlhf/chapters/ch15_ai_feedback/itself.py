"""A language model that rewards itself: the same weights write replies, judge them, and learn by DPO from what they judged, round after round.

Beside it two controls: the judge is kept as it was before the first round, and careful people label the pairs in its place.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from minirlhf.chapters.ch15_ai_feedback import judges
from minirlhf.chapters.ch15_ai_feedback.judges import TEACHERS, WORLD, Leans, Triple
from minirlhf.core.randomness import derive_seed
from minirlhf.data.preferences import label_pairs
from minirlhf.data.types import PreferencePair
from minirlhf.recipes.offline import PREFERENCES, PreferenceRecipe
from minirlhf.stages import pipeline
from minirlhf.stages.judging import ASK, WrittenJudgePlan, add_judge_tokens, finetune_judge
from minirlhf.stages.pipeline import Trained
from minirlhf.trainers.offline import OfflineConfig, train_offline
from minirlhf.trainers.sft import SFTConfig, train_sft

#: Who labels the pairs of the newest policy: it does itself; the first weights do; people do.
WAYS = ("itself", "kept", "people")


@dataclass(frozen=True)
class ItselfPlan:
    """A school for weights that write and judge, and rounds.

    Attributes:
        school: lessons on pairs that people labelled, each in both orders; beside every four pairs one reply of the start, so that it goes on writing.
        rounds, pairs: so many rounds, and in each about so many pairs of the newest policy's replies.
        aligned, beta: DPO in each round, against the weights that it begins with.
        replies: to each test prompt, for measuring the policy.
        tested: pairs of the start's replies for each test prompt, for measuring the judge.
    """

    school: WrittenJudgePlan = field(
        default_factory=lambda: WrittenJudgePlan(
            training=SFTConfig(
                max_steps=900, batch_size=64, learning_rate=2e-3, lr_scheduler_type="linear", warmup_steps=20
            )
        )
    )
    rounds: int = 6
    pairs: int = 640
    aligned: OfflineConfig = OfflineConfig(max_steps=20, batch_size=32, learning_rate=1e-4)
    beta: float = 0.1
    replies: int = 8
    tested: int = 8

    @property
    def recipe(self) -> PreferenceRecipe:
        """DPO."""
        return PREFERENCES["dpo"].with_(beta=self.beta)


def both(start: Trained, plan: ItselfPlan, seed: int) -> Trained:
    """Weights that write as the start does, and judge."""
    triples = judges.training_replies(start, plan.school.pairs, seed)
    said = label_pairs(WORLD, triples, labeller=TEACHERS, seed=seed)
    model = add_judge_tokens(WORLD.words, start, seed)
    model.model.config.judge_ask = ASK
    written = [
        pipeline.reply_tokens(model.tokenizer, prompt, reply) for prompt, reply, _ in triples[: len(triples) // 4]
    ]
    lessons, config = [*finetune_judge(model.tokenizer, said), *written], replace(plan.school.training, seed=seed)
    history = train_sft(model.model, lessons, config, pad_token_id=model.tokenizer.pad_token_id, quiet=True)
    return Trained(model.model, model.tokenizer, history)


def _judged(found: Leans) -> dict[str, float]:
    """``right``: labels by both orders together that name the better reply, a tie is half; ``agree``: both orders name the same one."""
    return {
        "right": judges.agreement(judges.by_judge(found, found.prefers)),
        "agree": float(((found.given > 0) == (found.exchanged < 0)).double().mean()),
    }


def rounds(first: Trained, tested: Sequence[Triple], plan: ItselfPlan, seed: int, way: str) -> dict[str, float]:
    """Write, judge, learn, again, with labels by one of the :data:`WAYS`.

    Args:
        tested: pairs of the start's replies, on which the newest weights are tried as a judge.

    Returns:
        After each round ``gold`` and ``kl`` (nats from the first weights) of the policy; ``right`` and ``agree`` of the judge that labels on the policy's
        own pairs (with people, of the newest weights, which label nothing); and ``tested``, what the newest weights get right of the given pairs.
    """
    policy, found = first, dict[str, float]()
    for number in range(plan.rounds + 1):
        triples = judges.training_replies(policy, plan.pairs, derive_seed("round", number, seed))
        seen = judges.leans(first if way == "kept" else policy, triples)
        place = judges.where(policy.model, first, plan.replies)
        numbers = {"gold": place.gold, "kl": place.kl, "words": place.length} | _judged(seen)
        numbers["tested"] = _judged(judges.leans(policy, tested))["right"]
        found |= {f"{way}_{key}_{number}": value for key, value in numbers.items()}
        if number < plan.rounds:
            by_people = label_pairs(WORLD, triples, labeller=TEACHERS, seed=derive_seed("people", number, seed))
            labels = by_people if way == "people" else judges.by_judge(seen, seen.prefers)
            policy = _aligned(policy, labels, plan, derive_seed("learn", number, seed))
    return found


def _aligned(policy: Trained, labels: Sequence[PreferencePair], plan: ItselfPlan, seed: int) -> Trained:
    model, pad = copy.deepcopy(policy.model), policy.tokenizer.pad_token_id
    history = train_offline(
        model, pipeline.pair_tokens(policy.tokenizer, labels), plan.recipe, replace(plan.aligned, seed=seed),
        pad_token_id=pad, ref_model=policy.model, quiet=True,
    )  # fmt: skip
    return Trained(model, policy.tokenizer, history)
