"""Direct alignment on a built-in toy task: offline, in rounds, with a discriminator, or with quality tags.

Each function combines stages of :mod:`minirlhf.stages.pipeline` and calls of the offline trainer. No function changes a
model that it is given.
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

#: Pairs of the policy's completions, labelled by the gold reward with noise. ``training`` is for D2PO's discriminator.
PAIRS = RewardPlan(
    pairs=1600,
    held_out=200,
    temperature=0.5,
    training=RewardConfig(max_steps=150, batch_size=32, learning_rate=1e-3, lr_scheduler_type="linear"),
)
TRAINING = OfflineConfig(max_steps=120, batch_size=32, learning_rate=2e-4)
TAGGING = SFTConfig(max_steps=200, batch_size=32, learning_rate=1e-3, lr_scheduler_type="linear")

#: Options that differ from the recipes' defaults. A loss per token needs a β larger by the length of a completion, at
#: most a dozen tokens. The other options weaken the pull to the reference: with the defaults a run of
#: :data:`TRAINING` stays within a nat of the reference (observed with seed 0), where nothing can be compared.
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

GOOD, BAD = "great", "hmm"  # quality tags: words of the assistant task that begin no question


@dataclass(frozen=True)
class PolicyMetrics:
    """A policy on the test prompts: mean gold reward, KL from the reference in nats and tokens, both per completion."""

    gold: float
    kl: float
    length: float


def compared(policy: Trained, pairs: Sequence[PreferencePair], task: Task | None = None) -> list[PreferenceExample]:
    """Tokenise pairs. With a ``task`` the margins are its gaps in gold reward, negative where the label is wrong."""
    tokens = pipeline.pair_tokens(policy.tokenizer, pairs)
    margins = [
        p.margin if task is None else task.grade(p.prompt, p.chosen) - task.grade(p.prompt, p.rejected) for p in pairs
    ]
    return [pair(t.chosen, t.rejected, margin) for t, margin in zip(tokens, margins, strict=True)]


def row(loss: str, **options: Any) -> PreferenceRecipe:
    """Return a row of the chapter's table: the loss with its :data:`OPTIONS`, which ``options`` override."""
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
    """Train a copy of ``start`` offline; the reference is ``start`` unless another is given.

    With ``out`` a run can be resumed: the same call with more steps and ``resume`` continues it with identical bits.
    """
    reference, plan = reference or start, pipeline.AlignPlan(row(loss, **options), config)
    return pipeline.align(start, examples, plan, ref_model=reference.model, out=out, resume=resume, quiet=quiet)


def measure(task: Task, policy: Trained, reference: Trained, *, replies: int = 4, seed: int = 1000) -> PolicyMetrics:
    """Sample ``replies`` completions of every test prompt and grade them. All policies use the same random numbers."""
    result = evaluate(
        policy.model,
        task_problems(task, "test") * replies,
        task_reward(task),
        tokenizer=policy.tokenizer,
        sampling=Sampling(max_completion_length=task.max_completion_length),
        ref_model=reference.model,
        seed=seed,
    )
    return PolicyMetrics(result.reward.mean, result.divergence.mean, result.length.mean)


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
    """Measure one run at the start (unless ``first`` is known) and after each of ``stops`` steps.

    Return the metrics and the final policy. ``config`` needs a constant learning rate, because the run is stopped and
    resumed.
    """
    metrics, policy = [first or measure(task, start, start)], start
    for k, stop in enumerate(stops):
        policy = learn(start, examples, loss, replace(config, max_steps=stop), out=out, resume=k > 0, **options)
        metrics.append(measure(task, policy, start))
    return metrics, policy


def at_kl(places: Sequence[PolicyMetrics], kl: float) -> PolicyMetrics:
    """Return the metrics where a run first passes a KL, by linear interpolation; those of its end if it never does."""
    for before, after in pairwise(places):
        if before.kl <= kl < after.kl:
            weight = (kl - before.kl) / (after.kl - before.kl)
            interpolate = lambda name, a=before, b=after, t=weight: (
                getattr(a, name) + t * (getattr(b, name) - getattr(a, name))
            )
            return PolicyMetrics(interpolate("gold"), kl, interpolate("length"))
    return places[-1]


def last_mean(policy: Trained, metric: str, steps: int = 20) -> float:
    """Return the mean of a metric over the last steps of training."""
    values = policy.history[metric][-steps:]
    return sum(values) / len(values)


def moved(policy: Trained, start: Trained, examples: Sequence[PreferenceExample]) -> dict[str, float]:
    """Return the changes in the log-probabilities of the pairs' completions.

    ``chosen`` and ``rejected`` are the mean changes in nats; ``accuracy`` is the fraction of pairs whose chosen
    completion gained more.
    """
    pairs = EvalPreferences(examples, get_preference("dpo"), start.model, pad_token_id=start.tokenizer.pad_token_id)
    before, after = pairs.measure(start.model), pairs.measure(policy.model)
    changes = {name: after[f"{name}_logp"] - before[f"{name}_logp"] for name in ("chosen", "rejected")}
    return {**changes, "accuracy": after["accuracy"]}


def labelled_pairs(
    task: Task, policy: Trained, count: int, labeller: SimulatedAnnotator, *, seed: int = 0, first: int | None = None
) -> list[PreferencePair]:
    """Label pairs of the policy's completions of training prompts with any annotator.

    The prompts are consecutive, from number ``first`` on; by default ``seed`` is this number too.
    """
    prompts, first = task.prompts("train"), seed if first is None else first
    pair_prompts = [prompts[(i + first) % len(prompts)] for i in range(count)]
    return label_pairs(task, _twice(task, policy, pair_prompts, seed), labeller=labeller, seed=seed)


def rounds(
    task: Task,
    start: Trained,
    plan: RewardPlan,
    loss: str,
    config: OfflineConfig = TRAINING,
    *,
    count: int = 4,
    moving: bool = False,
    disjoint: bool = False,
    **options: Any,
) -> Trained:
    """Train online in ``count`` rounds; each round labels completions of the current policy.

    The labels and the steps are divided among the rounds. The reference is ``start``; with ``moving`` it is the policy
    at the beginning of the round. All rounds use nearly the same prompts; with ``disjoint`` each continues where the
    last one ended.
    """
    policy, annotator = start, SimulatedAnnotator(temperature=plan.temperature, flip=plan.flip)
    per_round = plan.pairs // count
    for k in range(count):
        seed = 1000 * plan.training.seed + k
        first = k * per_round if disjoint else None
        pairs = labelled_pairs(task, policy, per_round, annotator, seed=seed, first=first)
        setup = replace(config, max_steps=config.max_steps // count, seed=seed)
        policy = learn(policy, compared(policy, pairs), loss, setup, reference=policy if moving else start, **options)
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
    disjoint: bool = False,
    **options: Any,
) -> Trained:
    """D2PO: as :func:`rounds`, but the annotator labels only ``gold_share`` of the pairs.

    A reward model labels the rest. In each round it is trained anew on all of the annotator's labels so far.

    Source: Singhal et al. (2024), "D2PO: discriminator-guided DPO with response evaluation models".
    """
    policy, annotator = start, SimulatedAnnotator(temperature=plan.temperature, flip=plan.flip)
    gold_pairs: list[PreferencePair] = []
    for k in range(count):
        seed = 1000 * plan.training.seed + k
        per_round = plan.pairs // count
        num_gold = int(gold_share * per_round)
        first = k * per_round if disjoint else None
        rest = None if first is None else first + num_gold
        gold_pairs += labelled_pairs(task, policy, num_gold, annotator, seed=seed, first=first)
        judge_model = pipeline.reward_model(start, gold_pairs, plan, quiet=True)
        silver_pairs = _by_judge(task, policy, judge_model, per_round - num_gold, seed=seed + 500, first=rest)
        setup = replace(config, max_steps=config.max_steps // count, seed=seed)
        policy = learn(policy, compared(policy, [*gold_pairs, *silver_pairs]), loss, setup, reference=start, **options)
    return policy


def tagged(start: Trained, pairs: Sequence[PreferencePair], config: SFTConfig = TAGGING) -> Trained:
    """Quality conditioning: imitate every completion with its tag in front of the prompt.

    At test time :data:`GOOD` stands in front of the prompt.
    """
    model, tokenizer = copy.deepcopy(start.model), start.tokenizer
    examples = [
        pipeline.completion_tokens(tokenizer, f"{tag} {p.prompt}", completion)
        for p in pairs
        for tag, completion in ((GOOD, p.chosen), (BAD, p.rejected))
    ]
    history = train_sft(model, examples, config, pad_token_id=tokenizer.pad_token_id, quiet=True)
    return Trained(model, tokenizer, history)


def measure_tagged(
    task: Task, policy: Trained, reference: Trained, tag: str, *, replies: int = 4, seed: int = 1000
) -> PolicyMetrics:
    """Measure as :func:`measure`, with a tag in front of each prompt.

    The KL is the mean log-ratio of the sampled completions to a reference whose prompt has no tag.
    """
    problems = task_problems(task, "test") * replies
    tagged_problems = [Problem(conversation(f"{tag} {p.prompt[-1]['content']}".strip())) for p in problems]
    samples = _sampled(task, policy, tagged_problems, 1, seed)
    completion_ids = samples.rollout.input_ids[:, samples.rollout.prompt_width :]  # (B, T)
    tokens = [
        _after(encode_prompt(reference.tokenizer, problem.prompt), ids[mask].tolist())
        for problem, ids, mask in zip(problems, completion_ids, samples.rollout.mask, strict=True)
    ]
    with torch.no_grad():
        ref_logps = preference_logps(reference.model, collate_completions(tokens, reference.tokenizer.pad_token_id))
    kl = (samples.rollout.old_logps.sum(-1) - ref_logps).mean()
    return PolicyMetrics(float(samples.rewards.mean()), float(kl), float(samples.rollout.mask.sum(-1).double().mean()))


def alike(pairs: Sequence[PreferencePair], share: float = 0.25) -> tuple[list[PreferencePair], list[PreferencePair]]:
    """Return the pairs whose two completions share most words in the same order, and those that share fewest.

    Each list has a fraction ``share`` of all pairs.
    """
    similarity = lambda p: SequenceMatcher(None, p.chosen.split(), p.rejected.split(), autojunk=False).ratio()
    ordered, size = sorted(pairs, key=similarity, reverse=True), int(share * len(pairs))
    return ordered[:size], ordered[-size:]


def reply(task: Task, policy: Trained, *, seed: int = 0) -> str:
    """Return a policy's completion of the first test prompt."""
    return _sampled(task, policy, task_problems(task, "test")[:1], 1, seed).completions[0][0]


def _after(prompt: list[int], completion: list[int]) -> Tokens:
    return Tokens([*prompt, *completion], [False] * len(prompt) + [True] * len(completion))


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


def _twice(task: Task, policy: Trained, prompts: Sequence[str], seed: int) -> list[tuple[str, str, str]]:
    """Sample two completions of each prompt; return (prompt, first, second) triples."""
    triples: list[tuple[str, str, str]] = []
    for start in range(0, len(prompts), 256):
        chunk = prompts[start : start + 256]
        samples = _sampled(task, policy, [Problem(conversation(p)) for p in chunk], 2, seed + start)
        triples += [(prompt, a, b) for prompt, (a, b) in zip(chunk, samples.completions, strict=True)]
    return triples


def _by_judge(
    task: Task, policy: Trained, judge: Trained, count: int, *, seed: int, first: int | None = None
) -> list[PreferencePair]:
    """Return pairs of the policy's completions, ordered by a reward model; ``first`` as in :func:`labelled_pairs`."""
    prompts, score = task.prompts("train"), model_reward(judge.model, judge.tokenizer)
    offset = seed if first is None else first
    pair_prompts = [prompts[(i + offset) % len(prompts)] for i in range(count)]
    triples = [t for t in _twice(task, policy, pair_prompts, seed) if t[1] != t[2]]
    problems = [Problem(conversation(prompt)) for prompt, _, _ in triples]
    scores = [score(problems, [t[k] for t in triples]) for k in (1, 2)]
    return [
        PreferencePair(prompt, *((a, b) if x >= y else (b, a)), margin=abs(x - y))
        for (prompt, a, b), x, y in zip(triples, *scores, strict=True)
    ]
