"""A language model as the judge of the assistant task: its biases, and the policies that learn from its labels.

The judge starts from the policy's weights, is fine-tuned on human-labelled pairs, and is then asked for the log-odds of
its two letters.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise

import torch
from torch import Tensor

from minirlhf.core.randomness import derive_seed, numpy_generator
from minirlhf.data import tasks
from minirlhf.data.chat import conversation
from minirlhf.data.collate import collate_completions
from minirlhf.data.formats import Problem
from minirlhf.data.preferences import SimulatedAnnotator, label_pairs
from minirlhf.data.types import PreferencePair
from minirlhf.equations.ai_feedback import split_position_bias
from minirlhf.feedback.judge import Judge
from minirlhf.feedback.rewards import task_problems, task_reward
from minirlhf.models.reference import preference_logps
from minirlhf.models.sampling import Sampling
from minirlhf.recipes.offline import PREFERENCES, PreferenceRecipe
from minirlhf.stages import pipeline
from minirlhf.stages.judging import ASK, WrittenJudgePlan, add_judge_tokens, finetune_judge, judge_pairs
from minirlhf.stages.pipeline import Trained
from minirlhf.trainers.evaluation import candidates, evaluate
from minirlhf.trainers.loop import TrainerCallback
from minirlhf.trainers.offline import OfflineConfig, train_offline
from minirlhf.trainers.sft import train_sft
from minirlhf_course.chapters.ch15_ai_feedback.equations import self_preference

WORLD = tasks.get("assistant")
Triple = tuple[str, str, str]  # a prompt and two completions

#: The annotators are noisy. ``PEOPLE`` are paid per pair and also flip 20 % of their labels; ``TEACHERS``, who label
#: the judge's training pairs, flip none.
PEOPLE = SimulatedAnnotator(temperature=0.25, flip=0.2)
TEACHERS = SimulatedAnnotator(temperature=0.25)


@dataclass(frozen=True)
class JudgesPlan:
    """The judge's training, and one budget of labels that is spent in several ways.

    Attributes:
        looks: number of evaluations of the judge during its training.
        tested: pairs per test prompt in each of these evaluations.
        budget: in labels of the judge; ``price`` of them cost as much as one human label.
        aligned, beta: DPO, measured after every ``every`` updates on ``replies`` completions per test prompt.
    """

    school: WrittenJudgePlan = field(default_factory=WrittenJudgePlan)
    looks: int = 3
    tested: int = 4
    budget: int = 2000
    price: int = 10
    aligned: OfflineConfig = OfflineConfig(max_steps=80, batch_size=32, learning_rate=1e-4)
    beta: float = 0.1
    every: int = 10
    replies: int = 2

    @property
    def recipe(self) -> PreferenceRecipe:
        """DPO."""
        return PREFERENCES["dpo"].with_(beta=self.beta)


def _sampled(writer: Trained, prompts: Sequence[str], count: int, seed: int) -> list[list[str]]:
    """Sample ``count`` completions of each prompt."""
    completions: list[list[str]] = []
    for i in range(0, len(prompts), 256):
        problems = [Problem(conversation(p)) for p in prompts[i : i + 256]]
        completions += candidates(
            writer.model, problems, task_reward(WORLD), tokenizer=writer.tokenizer, num_generations=count,
            sampling=Sampling(max_completion_length=WORLD.max_completion_length), seed=derive_seed("replies", seed, i),
        ).completions  # fmt: skip
    return completions


def two_replies(writer: Trained, prompts: Sequence[str], seed: int) -> list[Triple]:
    """Sample two completions of each prompt; pairs of equal completions are left out."""
    completions = _sampled(writer, prompts, 2, seed)
    return [(p, a, b) for p, (a, b) in zip(prompts, completions, strict=True) if a != b]


def training_replies(writer: Trained, count: int, seed: int) -> list[Triple]:
    """Sample about ``count`` pairs of completions of training prompts."""
    prompts = WORLD.prompts("train")
    return two_replies(writer, [prompts[i % len(prompts)] for i in range(count)], seed)


# -- a judge and its biases --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Leans:
    """The log-odds of a judge's verdicts on pairs, ``(N,)`` each, in nats: ``given`` of the first completion of each
    triple, shown first; ``exchanged`` of the second completion, shown first."""

    triples: list[Triple]
    given: Tensor
    exchanged: Tensor

    @property
    def prefers(self) -> Tensor:
        """Log-odds of the first completion, from both presentation orders: eq:both-orders."""
        return split_position_bias(self.given, self.exchanged)[0]

    @property
    def place(self) -> Tensor:
        """Position bias, for the completion that is shown first: eq:place-bias."""
        return split_position_bias(self.given, self.exchanged)[1]


def leans(judge: Trained, triples: Sequence[Triple]) -> Leans:
    """Return the log-odds of the judge's verdicts on every pair in both presentation orders."""
    comparisons = judge_pairs([PreferencePair(*triple) for triple in triples])
    log_odds = Judge.of(judge.model, judge.tokenizer, batch_size=256).verdict_log_odds(
        [c.prompt for c in comparisons], [c.chosen for c in comparisons], [c.rejected for c in comparisons]
    )
    return Leans(list(triples), *log_odds)


def gold_gaps(triples: Sequence[Triple]) -> Tensor:
    """Return ``(N,)``: the gold reward of the first completion minus the gold reward of the second."""
    return torch.tensor([WORLD.grade(p, a) - WORLD.grade(p, b) for p, a, b in triples], dtype=torch.float64)


def likings(found: Leans, writer: Trained) -> dict[str, float]:
    """Return the judge's accuracy for each way of asking, its position bias, and the value to the judge of a word and
    of a nat of familiarity.

    Both values are in units of gold reward, by least squares. Familiarity is the mean log-probability of a completion's
    tokens under the writer, from whose weights the judge was made.
    """
    gaps = gold_gaps(found.triples)
    unequal = gaps.abs() > 1e-9
    sign, given, exchanged = gaps[unequal].sign(), found.given[unequal], found.exchanged[unequal]
    first, second = sign * given, -sign * exchanged  # of the better completion, in the given and in the exchanged order
    prefers = sign * found.prefers[unequal]
    agree = (first > 0) == (second > 0)
    accuracy = lambda x: float((x > 0).double().mean())
    slopes = torch.linalg.lstsq(_explained(found.triples, writer), found.prefers[:, None]).solution[:, 0]
    return {
        "one_draw": float(torch.sigmoid(torch.cat([first, second])).mean()),
        "one_order": accuracy(torch.cat([first, second])),
        "both_draw": float(torch.sigmoid(prefers).mean()),
        "both": accuracy(prefers),
        "agree": float(agree.double().mean()),
        "agreed_right": float((agree & (first > 0)).double().mean()),
        "place": float(found.place.mean()),
        "place_spread": float(found.place.std()),
        "says_first": float((torch.cat([found.given, found.exchanged]) > 0).double().mean()),
        "size": float(found.prefers.abs().mean()),
        "gold_slope": float(slopes[0]),
        "word_worth": float(slopes[1] / slopes[0]),
        "familiar_worth": float(slopes[2] / slopes[0]),
    }


def _explained(triples: Sequence[Triple], writer: Trained) -> Tensor:
    """Return ``(N, 3)``: the differences in gold reward, in words, and in mean token log-probability."""
    examples = [(p, text) for p, a, b in triples for text in (a, b)]
    tokens = [pipeline.completion_tokens(writer.tokenizer, *example) for example in examples]
    pad, logps = writer.tokenizer.pad_token_id, []
    with torch.no_grad():
        for start in range(0, len(tokens), 256):
            logps.append(preference_logps(writer.model, collate_completions(tokens[start : start + 256], pad)))
    mean_logps = torch.cat(logps).double() / torch.tensor([sum(t.loss_mask) for t in tokens])
    words = torch.tensor([len(text.split()) for _, text in examples], dtype=torch.float64)
    difference = lambda x: x[::2] - x[1::2]
    return torch.stack([gold_gaps(triples), difference(words), difference(mean_logps)], -1)


def own_or_not(judge: Trained, writer: Trained, tested: int, seed: int) -> dict[str, float]:
    """Compare a completion by the writer, from whose weights the judge was made, with a human demonstration.

    Return how often the judge prefers the writer's completion, how often the writer's completion is better, and
    eq:self-preference.
    """
    prompts, rng = WORLD.prompts("test") * tested, numpy_generator("a person beside the judge", seed)
    completions = _sampled(writer, prompts, 1, seed)
    triples = [(p, a, WORLD.demonstration(p, rng)) for p, (a,) in zip(prompts, completions, strict=True)]
    gaps = gold_gaps(triples)
    unequal = gaps.abs() > 1e-9
    better, won = gaps[unequal] > 0, leans(judge, triples).prefers[unequal] > 0
    correct = (better == won).double()
    return {
        "own_wins": float(won.double().mean()),
        "own_better": float(better.double().mean()),
        "self_preference": float(self_preference(correct, torch.ones_like(correct), better.double())),
    }


# -- the training of a judge -------------------------------------------------------------------------------------


def schooled(
    writer: Trained, tested: Sequence[Triple], plan: JudgesPlan, seed: int
) -> tuple[Trained, list[dict[str, float]]]:
    """Train a judge on labels; return it with its :func:`likings` on the pairs ``tested`` at each evaluation."""
    labels = label_pairs(WORLD, training_replies(writer, plan.school.pairs, seed), labeller=TEACHERS, seed=seed)
    judge, measurements = add_judge_tokens(WORLD.words, writer, seed), list[dict[str, float]]()
    judge.model.config.judge_ask = ASK

    def record() -> dict[str, float]:
        measurements.append(likings(leans(judge, tested), writer))
        return {}

    config = replace(plan.school.training, seed=seed)
    callback = TrainerCallback(max(1, config.max_steps // plan.looks), record)
    pad = judge.tokenizer.pad_token_id
    history = train_sft(
        judge.model, finetune_judge(judge.tokenizer, labels), config, pad_token_id=pad, watch=callback, quiet=True
    )
    return Trained(judge.model, judge.tokenizer, history), measurements


# -- one budget --------------------------------------------------------------------------------------------------


def by_judge(found: Leans, prefers: Tensor, kept: Tensor | None = None) -> list[PreferencePair]:
    """Return the judge's labels: ``prefers`` ``(N,)`` are the log-odds of the first completion of each pair; a pair
    whose ``kept`` is False gets no label."""
    mask = [True] * len(prefers) if kept is None else kept.tolist()
    return [
        PreferencePair(p, a, b) if log_odds > 0 else PreferencePair(p, b, a)
        for (p, a, b), log_odds, selected in zip(found.triples, prefers.tolist(), mask, strict=True)
        if selected
    ]


def spent(judge: Trained, triples: Sequence[Triple], plan: JudgesPlan, seed: int) -> dict[str, list[PreferencePair]]:
    """Spend one budget on human labels, on the judge, or on both; at a higher cost, also label all pairs by people."""
    verdicts = leans(judge, triples[: plan.budget])
    human = label_pairs(WORLD, triples[: plan.budget], labeller=PEOPLE, seed=seed)
    num_human, half = plan.budget // plan.price, plan.budget // 2
    ai = by_judge(verdicts, verdicts.prefers)
    return {
        "people": human[:num_human],
        "ai": ai,
        "ai_agreed": by_judge(verdicts, verdicts.prefers, (verdicts.given > 0) == (verdicts.exchanged < 0)),
        "mixed": human[: num_human // 2] + ai[half:],
        "people_all": human,
    }


def agreement(labels: Sequence[PreferencePair]) -> float:
    """Return the fraction of labels that name the better completion; a tie counts ½."""
    gaps = gold_gaps([(p.prompt, p.chosen, p.rejected) for p in labels])
    return float(((gaps.sign() + 1) / 2).mean())


@dataclass(frozen=True)
class Milestone:
    """The state of a policy: gold reward, KL from the initial model in nats, and length of a completion in tokens
    (words and EOS)."""

    gold: float
    kl: float
    length: float


def where(policy: torch.nn.Module, start: Trained, replies: int) -> Milestone:
    """Measure a policy on test prompts; all policies get the same random numbers."""
    evaluation = evaluate(
        policy, task_problems(WORLD, "test") * replies, task_reward(WORLD), tokenizer=start.tokenizer,
        sampling=Sampling(max_completion_length=WORLD.max_completion_length), ref_model=start.model, seed=1000,
    )  # fmt: skip
    return Milestone(evaluation.reward.mean, evaluation.divergence.mean, evaluation.length.mean)


def align(start: Trained, labels: Sequence[PreferencePair], plan: JudgesPlan, seed: int) -> list[Milestone]:
    """Train by DPO on the labels; measure at the start and after every ``plan.every`` updates. Without labels the
    policy stays the initial model."""
    model, milestones = copy.deepcopy(start.model), [where(start.model, start, plan.replies)]
    if not labels:
        return milestones

    def record() -> dict[str, float]:
        milestones.append(where(model, start, plan.replies))
        return {}

    pad = start.tokenizer.pad_token_id
    train_offline(
        model, pipeline.pair_tokens(start.tokenizer, labels), plan.recipe, replace(plan.aligned, seed=seed),
        pad_token_id=pad, ref_model=start.model, watch=TrainerCallback(plan.every, record), quiet=True,
    )  # fmt: skip
    return milestones


def at_kl(places: Sequence[Milestone], kl: float) -> Milestone:
    """Return the milestone at which a run first passes a KL, by linear interpolation; the last milestone if it never
    does."""
    for before, after in pairwise(places):
        if before.kl <= kl < after.kl:
            fraction = (kl - before.kl) / (after.kl - before.kl)
            interpolate = lambda x, y, t=fraction: x + t * (y - x)
            return Milestone(interpolate(before.gold, after.gold), kl, interpolate(before.length, after.length))
    return places[-1]
