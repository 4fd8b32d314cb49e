"""A language model as the judge of the assistant world: what it likes, and what policies become that learn from its labels.

The judge starts from the policy's weights, is schooled on pairs that people have labelled, and is then asked for the log-odds of its two letters.
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
from minirlhf.equations.ai_feedback import self_preference, split_position_bias
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

WORLD = tasks.get("assistant")
Triple = tuple[str, str, str]  # a prompt and two replies

#: Who labels: people are noisy, and turn a fifth of their labels round when they are paid by the pair; the judge's teachers took their time.
PEOPLE = SimulatedAnnotator(temperature=0.25, flip=0.2)
TEACHERS = SimulatedAnnotator(temperature=0.25)


@dataclass(frozen=True)
class JudgesPlan:
    """The judge's school, and one budget of labels spent in several ways.

    Attributes:
        looks: how often the judge is looked at while it learns.
        tested: pairs for each test prompt that it is looked at with.
        budget: in labels of the judge; ``price`` of them cost as much as one of people.
        aligned, beta: DPO, measured after every ``every`` updates on ``replies`` to each test prompt.
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
    """So many replies to each prompt."""
    found: list[list[str]] = []
    for at in range(0, len(prompts), 256):
        some = [Problem(conversation(p)) for p in prompts[at : at + 256]]
        found += candidates(
            writer.model, some, task_reward(WORLD), tokenizer=writer.tokenizer, num_generations=count,
            sampling=Sampling(max_completion_length=WORLD.max_completion_length), seed=derive_seed("replies", seed, at),
        ).completions  # fmt: skip
    return found


def two_replies(writer: Trained, prompts: Sequence[str], seed: int) -> list[Triple]:
    """Two replies of a writer to each of these prompts, without those that are equal."""
    said = _sampled(writer, prompts, 2, seed)
    return [(p, a, b) for p, (a, b) in zip(prompts, said, strict=True) if a != b]


def training_replies(writer: Trained, count: int, seed: int) -> list[Triple]:
    """About ``count`` pairs of replies to training prompts."""
    prompts = WORLD.prompts("train")
    return two_replies(writer, [prompts[i % len(prompts)] for i in range(count)], seed)


# -- a judge and what it likes -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Leans:
    """What a judge leans to on pairs, ``(N,)`` each, in nats: the first reply of each triple against its second, and the place."""

    triples: list[Triple]
    given: Tensor
    exchanged: Tensor

    @property
    def prefers(self) -> Tensor:
        """For the first reply, both orders together: eq:both-orders."""
        return split_position_bias(self.given, self.exchanged)[0]

    @property
    def place(self) -> Tensor:
        """For whatever is shown first: eq:place-bias."""
        return split_position_bias(self.given, self.exchanged)[1]


def leans(judge: Trained, triples: Sequence[Triple]) -> Leans:
    """Ask it about every pair in both orders."""
    asked = judge_pairs([PreferencePair(*triple) for triple in triples])
    found = Judge.of(judge.model, judge.tokenizer, batch_size=256).verdict_log_odds(
        [c.prompt for c in asked], [c.chosen for c in asked], [c.rejected for c in asked]
    )
    return Leans(list(triples), *found)


def gold_gaps(triples: Sequence[Triple]) -> Tensor:
    """``(N,)``: gold of the first reply less that of the second."""
    return torch.tensor([WORLD.grade(p, a) - WORLD.grade(p, b) for p, a, b in triples], dtype=torch.float64)


def likings(found: Leans, writer: Trained) -> dict[str, float]:
    """Accuracy by ways of asking; the place; and what a word, and a nat of familiarity, is worth to the judge in gold, by least squares.

    Familiarity is the mean log-probability of a reply's tokens under the writer that the judge was made from.
    """
    gaps = gold_gaps(found.triples)
    kept = gaps.abs() > 1e-9
    sign, given, exchanged = gaps[kept].sign(), found.given[kept], found.exchanged[kept]
    first, second = sign * given, -sign * exchanged  # for the better reply, shown in its own place and in the other
    prefers = sign * found.prefers[kept]
    agree = (first > 0) == (second > 0)
    right = lambda x: float((x > 0).double().mean())
    slopes = torch.linalg.lstsq(_explained(found.triples, writer), found.prefers[:, None]).solution[:, 0]
    return {
        "one_draw": float(torch.sigmoid(torch.cat([first, second])).mean()),
        "one_order": right(torch.cat([first, second])),
        "both_draw": float(torch.sigmoid(prefers).mean()),
        "both": right(prefers),
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
    """``(N, 3)``: differences of gold, of words, and of the mean log-probability of a token."""
    said = [(p, reply) for p, a, b in triples for reply in (a, b)]
    tokens = [pipeline.reply_tokens(writer.tokenizer, *one) for one in said]
    pad, logps = writer.tokenizer.pad_token_id, []
    with torch.no_grad():
        for at in range(0, len(tokens), 256):
            logps.append(preference_logps(writer.model, collate_completions(tokens[at : at + 256], pad)))
    each = torch.cat(logps).double() / torch.tensor([sum(t.loss_mask) for t in tokens])
    words = torch.tensor([len(reply.split()) for _, reply in said], dtype=torch.float64)
    apart = lambda x: x[::2] - x[1::2]
    return torch.stack([gold_gaps(triples), apart(words), apart(each)], -1)


def own_or_not(judge: Trained, writer: Trained, tested: int, seed: int) -> dict[str, float]:
    """A reply by the weights that it was made from against one of a person: how often its own wins, is better, and eq:self-preference."""
    prompts, rng = WORLD.prompts("test") * tested, numpy_generator("a person beside the judge", seed)
    own = _sampled(writer, prompts, 1, seed)
    triples = [(p, a, WORLD.demonstration(p, rng)) for p, (a,) in zip(prompts, own, strict=True)]
    gaps = gold_gaps(triples)
    kept = gaps.abs() > 1e-9
    better, won = gaps[kept] > 0, leans(judge, triples).prefers[kept] > 0
    seen = (better == won).double()
    return {
        "own_wins": float(won.double().mean()),
        "own_better": float(better.double().mean()),
        "self_preference": float(self_preference(seen, torch.ones_like(seen), better.double())),
    }


# -- a judge's school --------------------------------------------------------------------------------------------


def schooled(
    writer: Trained, tested: Sequence[Triple], plan: JudgesPlan, seed: int
) -> tuple[Trained, list[dict[str, float]]]:
    """A judge taught on labels, and its :func:`likings` on some pairs at each look."""
    said = label_pairs(WORLD, training_replies(writer, plan.school.pairs, seed), labeller=TEACHERS, seed=seed)
    judge, looks = add_judge_tokens(WORLD.words, writer, seed), list[dict[str, float]]()
    judge.model.config.judge_ask = ASK

    def look() -> dict[str, float]:
        looks.append(likings(leans(judge, tested), writer))
        return {}

    config = replace(plan.school.training, seed=seed)
    watch = TrainerCallback(max(1, config.max_steps // plan.looks), look)
    pad = judge.tokenizer.pad_token_id
    history = train_sft(
        judge.model, finetune_judge(judge.tokenizer, said), config, pad_token_id=pad, watch=watch, quiet=True
    )
    return Trained(judge.model, judge.tokenizer, history), looks


# -- one budget --------------------------------------------------------------------------------------------------


def by_judge(found: Leans, prefers: Tensor, kept: Tensor | None = None) -> list[PreferencePair]:
    """Its labels: ``prefers`` ``(N,)`` for the first reply of each pair; where ``kept`` is False there is none."""
    keeps = [True] * len(prefers) if kept is None else kept.tolist()
    return [
        PreferencePair(p, a, b) if lean > 0 else PreferencePair(p, b, a)
        for (p, a, b), lean, keep in zip(found.triples, prefers.tolist(), keeps, strict=True)
        if keep
    ]


def spent(judge: Trained, triples: Sequence[Triple], plan: JudgesPlan, seed: int) -> dict[str, list[PreferencePair]]:
    """One budget spent on people, on the judge, on both; and, for more money, all pairs labelled by people."""
    found = leans(judge, triples[: plan.budget])
    people = label_pairs(WORLD, triples[: plan.budget], labeller=PEOPLE, seed=seed)
    bought, half = plan.budget // plan.price, plan.budget // 2
    ai = by_judge(found, found.prefers)
    return {
        "people": people[:bought],
        "ai": ai,
        "ai_agreed": by_judge(found, found.prefers, (found.given > 0) == (found.exchanged < 0)),
        "mixed": people[: bought // 2] + ai[half:],
        "people_all": people,
    }


def agreement(labels: Sequence[PreferencePair]) -> float:
    """Share of labels that name the better reply; a tie is half."""
    gaps = gold_gaps([(p.prompt, p.chosen, p.rejected) for p in labels])
    return float(((gaps.sign() + 1) / 2).mean())


@dataclass(frozen=True)
class Milestone:
    """Where a policy is: gold, nats from the start, and words of a reply."""

    gold: float
    kl: float
    length: float


def where(policy: torch.nn.Module, start: Trained, replies: int) -> Milestone:
    """Measured on test prompts; all policies meet the same random numbers."""
    found = evaluate(
        policy, task_problems(WORLD, "test") * replies, task_reward(WORLD), tokenizer=start.tokenizer,
        sampling=Sampling(max_completion_length=WORLD.max_completion_length), ref_model=start.model, seed=1000,
    )  # fmt: skip
    return Milestone(found.reward.mean, found.divergence.mean, found.length.mean)


def align(start: Trained, labels: Sequence[PreferencePair], plan: JudgesPlan, seed: int) -> list[Milestone]:
    """DPO on the labels, measured at the start and after every ``plan.every`` updates; without labels the policy stays where it is."""
    model, places = copy.deepcopy(start.model), [where(start.model, start, plan.replies)]
    if not labels:
        return places

    def look() -> dict[str, float]:
        places.append(where(model, start, plan.replies))
        return {}

    pad = start.tokenizer.pad_token_id
    train_offline(
        model, pipeline.pair_tokens(start.tokenizer, labels), plan.recipe, replace(plan.aligned, seed=seed),
        pad_token_id=pad, ref_model=start.model, watch=TrainerCallback(plan.every, look), quiet=True,
    )  # fmt: skip
    return places


def at_kl(places: Sequence[Milestone], kl: float) -> Milestone:
    """Where a run first passes a KL, by linear interpolation; its end if it never does."""
    for before, after in pairwise(places):
        if before.kl <= kl < after.kl:
            share = (kl - before.kl) / (after.kl - before.kl)
            mixed = lambda x, y, t=share: x + t * (y - x)
            return Milestone(mixed(before.gold, after.gold), kl, mixed(before.length, after.length))
    return places[-1]
