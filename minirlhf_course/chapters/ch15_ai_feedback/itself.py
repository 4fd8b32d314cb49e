"""A self-rewarding language model: the same weights write completions, judge them, and learn by DPO from their own
verdicts, round after round.

Two controls: the judge is frozen before the first round, or low-noise human labels replace the judge's labels.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from minirlhf.core.randomness import derive_seed
from minirlhf.data.preferences import label_pairs
from minirlhf.data.types import PreferencePair
from minirlhf.recipes.offline import PREFERENCES, PreferenceRecipe
from minirlhf.stages import pipeline
from minirlhf.stages.judging import ASK, WrittenJudgePlan, add_judge_tokens, finetune_judge
from minirlhf.stages.pipeline import Trained
from minirlhf.trainers.offline import OfflineConfig, train_offline
from minirlhf.trainers.sft import SFTConfig, train_sft
from minirlhf_course.chapters.ch15_ai_feedback import judges
from minirlhf_course.chapters.ch15_ai_feedback.judges import TEACHERS, WORLD, Leans, Triple

#: The annotator of the current policy's pairs: the current weights, the initial weights, or people.
WAYS = ("itself", "kept", "people")


@dataclass(frozen=True)
class ItselfPlan:
    """The training of weights that write and judge, and the rounds.

    Attributes:
        school: training examples from human-labelled pairs, each in both presentation orders; for every four pairs, one
            completion of the initial model is added, so that the model still writes.
        rounds, pairs: the number of rounds, and about how many pairs of the current policy's completions in each.
        aligned, beta: DPO in each round; the reference is the policy at the start of the round.
        replies: completions per test prompt, for measuring the policy.
        tested: pairs of the initial model's completions per test prompt, for measuring the judge.
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
    """Return weights that write as the initial model does, and judge."""
    triples = judges.training_replies(start, plan.school.pairs, seed)
    labels = label_pairs(WORLD, triples, labeller=TEACHERS, seed=seed)
    model = add_judge_tokens(WORLD.words, start, seed)
    model.model.config.judge_ask = ASK
    tokens = [
        pipeline.completion_tokens(model.tokenizer, prompt, text) for prompt, text, _ in triples[: len(triples) // 4]
    ]
    examples, config = [*finetune_judge(model.tokenizer, labels), *tokens], replace(plan.school.training, seed=seed)
    history = train_sft(model.model, examples, config, pad_token_id=model.tokenizer.pad_token_id, quiet=True)
    return Trained(model.model, model.tokenizer, history)


def _judged(verdicts: Leans) -> dict[str, float]:
    """Return ``right``, the fraction of labels by both presentation orders together that name the better completion (a
    tie counts ½), and ``agree``, the fraction of pairs for which both orders name the same completion."""
    return {
        "right": judges.agreement(judges.by_judge(verdicts, verdicts.prefers)),
        "agree": float(((verdicts.given > 0) == (verdicts.exchanged < 0)).double().mean()),
    }


def rounds(first: Trained, tested: Sequence[Triple], plan: ItselfPlan, seed: int, way: str) -> dict[str, float]:
    """Sample, judge and learn, round after round, with labels by one of the :data:`WAYS`.

    Args:
        tested: pairs of the initial model's completions, on which the current weights are tested as a judge.

    Returns:
        After each round ``gold``, ``kl`` (nats from the first weights) and ``words`` of the policy; ``right`` and
        ``agree`` of the labelling judge on the policy's own pairs (with human labels: of the current weights, which
        label nothing); and ``tested``, the accuracy of the current weights on the given pairs.
    """
    policy, results = first, dict[str, float]()
    for number in range(plan.rounds + 1):
        triples = judges.training_replies(policy, plan.pairs, derive_seed("round", number, seed))
        verdicts = judges.leans(first if way == "kept" else policy, triples)
        milestone = judges.where(policy.model, first, plan.replies)
        metrics = {"gold": milestone.gold, "kl": milestone.kl, "words": milestone.length} | _judged(verdicts)
        metrics["tested"] = _judged(judges.leans(policy, tested))["right"]
        results |= {f"{way}_{key}_{number}": value for key, value in metrics.items()}
        if number < plan.rounds:
            human_labels = label_pairs(WORLD, triples, labeller=TEACHERS, seed=derive_seed("people", number, seed))
            labels = human_labels if way == "people" else judges.by_judge(verdicts, verdicts.prefers)
            policy = _aligned(policy, labels, plan, derive_seed("learn", number, seed))
    return results


def _aligned(policy: Trained, labels: Sequence[PreferencePair], plan: ItselfPlan, seed: int) -> Trained:
    model, pad = copy.deepcopy(policy.model), policy.tokenizer.pad_token_id
    history = train_offline(
        model, pipeline.pair_tokens(policy.tokenizer, labels), plan.recipe, replace(plan.aligned, seed=seed),
        pad_token_id=pad, ref_model=policy.model, quiet=True,
    )  # fmt: skip
    return Trained(model, policy.tokenizer, history)
