"""Layer 7: direct alignment on a tiny world, from a model to a measured one: offline, in rounds, with a discriminator, by a tag.

Each function is a few stages of :mod:`minirlhf.stages.pipeline` and calls of the offline trainer. Models that are given are not changed.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass, replace
from difflib import SequenceMatcher
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch

from minirlhf.data.chat import conversation, encode_prompt
from minirlhf.data.collate import collate_completions
from minirlhf.data.formats import Problem
from minirlhf.data.preferences import SimulatedAnnotator, label_pairs
from minirlhf.data.tasks.base import Task
from minirlhf.data.types import PreferenceExample, PreferencePair, Tokens, pair
from minirlhf.feedback.rewards import model_reward, task_problems, task_reward
from minirlhf.models.reference import preference_logps
from minirlhf.models.sampling import Sampling
from minirlhf.recipes.offline import PreferenceRecipe, get_preference
from minirlhf.stages import pipeline
from minirlhf.stages.pipeline import RewardPlan, Trained
from minirlhf.trainers.evaluation import Candidates, candidates, evaluate
from minirlhf.trainers.offline import EvalPreferences, OfflineConfig
from minirlhf.trainers.reward import RewardConfig
from minirlhf.trainers.sft import SFTConfig, train_sft

#: Pairs of the policy's own replies, labelled by the true reward with noise. The training is that of D2PO's discriminator.
PAIRS = RewardPlan(
    pairs=1600,
    held_out=200,
    temperature=0.5,
    training=RewardConfig(max_steps=150, batch_size=32, learning_rate=1e-3, lr_scheduler_type="linear"),
)
TRAINING = OfflineConfig(max_steps=120, batch_size=32, learning_rate=2e-4)
TAGGING = SFTConfig(max_steps=200, batch_size=32, learning_rate=1e-3, lr_scheduler_type="linear")

#: Numbers other than the table's own. Per token, β grows by the length of a reply, a dozen tokens at most. The others are weaker leashes: with
#: the table's, a run of :data:`TRAINING` stays within a nat of the reference (seen with seed 0), where nothing can be compared.
OPTIONS: dict[str, dict[str, float]] = {
    "dpo_length_normalised": {"beta": 1.0},
    "simpo": {"gamma": 0.5},
    "ipo": {"beta": 0.02},
    "sppo": {"beta": 0.02},
    "cal_dpo": {"beta": 0.02},
    "dpo_nll": {"nll_weight": 0.1},
    "dpo_positive": {"penalty": 0.1},
    "orpo": {"beta": 10.0},
    "cpo": {"nll_weight": 0.01},
    "likelihood_contrast": {"weight": 0.9},
}

#: The rows of the chapter's table.
COMPARED = (
    "dpo",
    "ipo",
    "cdpo",
    "robust_dpo",
    "hinge",
    "rebel",
    "dpo_nll",
    "dpo_positive",
    "cal_dpo",
    "sppo",
    "apo_zero",
    "nca_pair",
    "bco_pair",
    "exo_pair",
    "dpo_length_normalised",
    "simpo",
    "orpo",
    "cpo",
    "slic",
    "likelihood_contrast",
    "kto",
    "bco",
)

GOOD, BAD = "great", "hmm"  # quality tags: words of the assistant world that no question begins with


@dataclass(frozen=True)
class PolicyMetrics:
    """Where a policy stands on test prompts: mean gold reward, nats per reply from the reference, tokens per reply."""

    gold: float
    kl: float
    length: float


def compared(policy: Trained, pairs: Sequence[PreferencePair], task: Task | None = None) -> list[PreferenceExample]:
    """Tokenised comparisons. With a ``task`` the margins are its true ones, negative where the label is wrong."""
    tokens = pipeline.pair_tokens(policy.tokenizer, pairs)
    gaps = [
        p.margin if task is None else task.grade(p.prompt, p.chosen) - task.grade(p.prompt, p.rejected) for p in pairs
    ]
    return [pair(t.chosen, t.rejected, gap) for t, gap in zip(tokens, gaps, strict=True)]


def row(loss: str, **options: Any) -> PreferenceRecipe:
    """A row of the chapter's table: the loss with the numbers of :data:`OPTIONS`, or others."""
    return get_preference(loss).with_(**{**OPTIONS.get(loss, {}), **options})


def learn(
    start: Trained,
    examples: Sequence[PreferenceExample],
    loss: str,
    config: OfflineConfig = TRAINING,
    *,
    reference: Trained | None = None,
    out: Path | None = None,
    resume: bool = False,
    quiet: bool = True,
    **options: Any,
) -> Trained:
    """``start`` after an offline run; the reference is ``start`` unless another is given.

    With ``out`` a run can go on: the same call with more steps and ``resume`` continues it to the same bits.
    """
    reference, plan = reference or start, pipeline.AlignPlan(row(loss, **options), config)
    return pipeline.align(start, examples, plan, ref_model=reference.model, out=out, resume=resume, quiet=quiet)


def measure(task: Task, policy: Trained, reference: Trained, *, replies: int = 4, seed: int = 1000) -> PolicyMetrics:
    """Sample so many replies to every test prompt and grade them. All policies meet the same random numbers."""
    found = evaluate(
        policy.model,
        task_problems(task, "test") * replies,
        task_reward(task),
        tokenizer=policy.tokenizer,
        sampling=Sampling(max_completion_length=task.max_completion_length),
        ref_model=reference.model,
        seed=seed,
    )
    return PolicyMetrics(found.reward.mean, found.divergence.mean, found.length.mean)


def path(
    task: Task,
    start: Trained,
    examples: Sequence[PreferenceExample],
    loss: str,
    config: OfflineConfig,
    stops: Sequence[int],
    out: Path,
    *,
    first: PolicyMetrics | None = None,
    **options: Any,
) -> tuple[list[PolicyMetrics], Trained]:
    """One run, measured at the start (unless ``first`` is known) and after each of ``stops`` steps; and the policy at its end.

    ``config`` needs a constant learning rate: the run is stopped and resumed.
    """
    places, policy = [first or measure(task, start, start)], start
    for k, stop in enumerate(stops):
        policy = learn(start, examples, loss, replace(config, max_steps=stop), out=out, resume=k > 0, **options)
        places.append(measure(task, policy, start))
    return places, policy


def at_kl(places: Sequence[PolicyMetrics], kl: float) -> PolicyMetrics:
    """Where a run first passes a KL, by linear interpolation; its end if it never does."""
    for before, after in pairwise(places):
        if before.kl <= kl < after.kl:
            share = (kl - before.kl) / (after.kl - before.kl)
            between = lambda name, a=before, b=after, t=share: (
                getattr(a, name) + t * (getattr(b, name) - getattr(a, name))
            )
            return PolicyMetrics(between("gold"), kl, between("length"))
    return places[-1]


def last_mean(policy: Trained, metric: str, steps: int = 20) -> float:
    """Mean of a metric over the last steps of the training."""
    values = policy.history[metric][-steps:]
    return sum(values) / len(values)


def moved(policy: Trained, start: Trained, examples: Sequence[PreferenceExample]) -> dict[str, float]:
    """What became of the pairs: by how many nats the log-probability of ``chosen`` and ``rejected`` replies has changed, and ``accuracy``,
    the share of pairs whose chosen reply gained more."""
    pairs = EvalPreferences(examples, get_preference("dpo"), start.model, pad_token_id=start.tokenizer.pad_token_id)
    before, after = pairs.measure(start.model), pairs.measure(policy.model)
    changes = {name: after[f"{name}_logp"] - before[f"{name}_logp"] for name in ("chosen", "rejected")}
    return {**changes, "accuracy": after["accuracy"]}


def labelled_pairs(
    task: Task, policy: Trained, count: int, labeller: SimulatedAnnotator, *, seed: int = 0
) -> list[PreferencePair]:
    """Pairs of the policy's replies to training prompts, by any labeller."""
    prompts = task.prompts("train")
    asked = [prompts[(i + seed) % len(prompts)] for i in range(count)]
    return label_pairs(task, _twice(task, policy, asked, seed), labeller=labeller, seed=seed)


def rounds(
    task: Task,
    start: Trained,
    plan: RewardPlan,
    loss: str,
    config: OfflineConfig = TRAINING,
    *,
    count: int = 4,
    moving: bool = False,
    **options: Any,
) -> Trained:
    """Online in ``count`` rounds, each of which labels replies of the policy as it then is.

    The labels and the steps are divided among the rounds. The reference is ``start``; with ``moving`` it is the policy at the beginning of the round.
    """
    policy, labeller = start, SimulatedAnnotator(temperature=plan.temperature, flip=plan.flip)
    for k in range(count):
        seed = 1000 * plan.training.seed + k
        pairs = labelled_pairs(task, policy, plan.pairs // count, labeller, seed=seed)
        share = replace(config, max_steps=config.max_steps // count, seed=seed)
        policy = learn(policy, compared(policy, pairs), loss, share, reference=policy if moving else start, **options)
    return policy


def with_discriminator(
    task: Task,
    start: Trained,
    plan: RewardPlan,
    loss: str,
    config: OfflineConfig = TRAINING,
    *,
    count: int = 4,
    gold_share: float = 0.25,
    **options: Any,
) -> Trained:
    """D2PO: as :func:`rounds`, but people label only ``gold_share`` of the pairs; a reward model, trained anew in each round on all of
    their labels so far, labels the rest.

    Source: Singhal et al. (2024), "D2PO: discriminator-guided DPO with response evaluation models".
    """
    policy, labeller = start, SimulatedAnnotator(temperature=plan.temperature, flip=plan.flip)
    known: list[PreferencePair] = []
    for k in range(count):
        seed = 1000 * plan.training.seed + k
        per_round = plan.pairs // count
        known += labelled_pairs(task, policy, int(gold_share * per_round), labeller, seed=seed)
        judge = pipeline.reward_model(start, known, plan, quiet=True)
        silver = _by_judge(task, policy, judge, per_round - int(gold_share * per_round), seed=seed + 500)
        share = replace(config, max_steps=config.max_steps // count, seed=seed)
        policy = learn(policy, compared(policy, [*known, *silver]), loss, share, reference=start, **options)
    return policy


def tagged(start: Trained, pairs: Sequence[PreferencePair], config: SFTConfig = TAGGING) -> Trained:
    """Quality conditioning: imitate every reply with its tag in front of the prompt. Ask the result with :data:`GOOD` in front."""
    model, tokenizer = copy.deepcopy(start.model), start.tokenizer
    examples = [
        pipeline.reply_tokens(tokenizer, f"{tag} {p.prompt}", reply)
        for p in pairs
        for tag, reply in ((GOOD, p.chosen), (BAD, p.rejected))
    ]
    history = train_sft(model, examples, config, pad_token_id=tokenizer.pad_token_id, quiet=True)
    return Trained(model, tokenizer, history)


def measure_tagged(
    task: Task, policy: Trained, reference: Trained, tag: str, *, replies: int = 4, seed: int = 1000
) -> PolicyMetrics:
    """As :func:`measure`, with a tag in front of each prompt. The KL is to a reference that is asked without it: the mean log-ratio of
    what was sampled."""
    asked = task_problems(task, "test") * replies
    tagged_ones = [Problem(conversation(f"{tag} {p.prompt[-1]['content']}".strip())) for p in asked]
    drawn = _sampled(task, policy, tagged_ones, 1, seed)
    said = drawn.rollout.input_ids[:, drawn.rollout.prompt_width :]  # (B, T)
    untagged = [
        _after(encode_prompt(reference.tokenizer, problem.prompt), ids[kept].tolist())
        for problem, ids, kept in zip(asked, said, drawn.rollout.mask, strict=True)
    ]
    with torch.no_grad():
        theirs = preference_logps(reference.model, collate_completions(untagged, reference.tokenizer.pad_token_id))
    kl = (drawn.rollout.old_logps.sum(-1) - theirs).mean()
    return PolicyMetrics(float(drawn.rewards.mean()), float(kl), float(drawn.rollout.mask.sum(-1).double().mean()))


def alike(pairs: Sequence[PreferencePair], share: float = 0.25) -> tuple[list[PreferencePair], list[PreferencePair]]:
    """Of all pairs those whose two replies share most words in the same order, and those that share fewest: ``share`` of them each."""
    common = lambda p: SequenceMatcher(None, p.chosen.split(), p.rejected.split(), autojunk=False).ratio()
    ordered, size = sorted(pairs, key=common, reverse=True), int(share * len(pairs))
    return ordered[:size], ordered[-size:]


def reply(task: Task, policy: Trained, *, seed: int = 0) -> str:
    """What a policy says to the first test prompt."""
    return _sampled(task, policy, task_problems(task, "test")[:1], 1, seed).completions[0][0]


def _after(prompt: list[int], answer: list[int]) -> Tokens:
    return Tokens([*prompt, *answer], [False] * len(prompt) + [True] * len(answer))


def _sampled(task: Task, policy: Trained, problems: Sequence[Problem], count: int, seed: int) -> Candidates:
    return candidates(
        policy.model,
        problems,
        task_reward(task),
        tokenizer=policy.tokenizer,
        sampling=Sampling(max_completion_length=task.max_completion_length),
        num_generations=count,
        seed=seed,
    )


def _twice(task: Task, policy: Trained, asked: Sequence[str], seed: int) -> list[tuple[str, str, str]]:
    """Two replies to each prompt."""
    found: list[tuple[str, str, str]] = []
    for start in range(0, len(asked), 256):
        chunk = asked[start : start + 256]
        drawn = _sampled(task, policy, [Problem(conversation(p)) for p in chunk], 2, seed + start)
        found += [(prompt, a, b) for prompt, (a, b) in zip(chunk, drawn.completions, strict=True)]
    return found


def _by_judge(task: Task, policy: Trained, judge: Trained, count: int, *, seed: int) -> list[PreferencePair]:
    """Pairs of the policy's replies in the order of a reward model."""
    prompts, score = task.prompts("train"), model_reward(judge.model, judge.tokenizer)
    asked = [prompts[(i + seed) % len(prompts)] for i in range(count)]
    triples = [t for t in _twice(task, policy, asked, seed) if t[1] != t[2]]
    problems = [Problem(conversation(prompt)) for prompt, _, _ in triples]
    first, second = (score(problems, [t[k] for t in triples]) for k in (1, 2))
    return [
        PreferencePair(prompt, *((a, b) if x >= y else (b, a)), margin=abs(x - y))
        for (prompt, a, b), x, y in zip(triples, first, second, strict=True)
    ]
