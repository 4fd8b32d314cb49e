"""Whoever judges, trained from files: a reward model, an outcome or a process reward model, a language model that writes verdicts."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from minirlhf.core.errors import UserError
from minirlhf.data.chat import encode_steps
from minirlhf.data.loaders import Records
from minirlhf.data.types import PreferenceExample, Stepped, ranked
from minirlhf.feedback.judge import Judge, judge_training_examples
from minirlhf.models.heads import RewardModel, ScalarModel, ValueModel
from minirlhf.stages import start
from minirlhf.stages.examples import Messages, answer, conversations, judged, pairs, rankings, replies_of
from minirlhf.stages.prepared import prepare, read
from minirlhf.stages.sources import EMPTY, RewardSource, Source
from minirlhf.trainers.config import unused_options
from minirlhf.trainers.evaluation import wilson_interval
from minirlhf.trainers.likelihood import mean_nll
from minirlhf.trainers.reward import RewardConfig, pair_accuracy, pairs_of, train_reward
from minirlhf.trainers.sft import SFTConfig, train_sft
from minirlhf.trainers.verifiers import OutcomeConfig, ProcessConfig, token_scores, train_outcome, train_process


class _Head:
    """What is trained, on the backbone of a causal LM; the LM is kept if its likelihood is a part of the loss."""

    def __init__(self, kind: type[ScalarModel], source: Source, coefficient: float, **options: Any) -> None:
        if coefficient and source.lora_r:
            raise UserError(
                f"nll_coefficient = {coefficient}: not with adapters; expected --lora-r 0",
                argument="nll_coefficient",
                value=coefficient,
                expected="--lora-r",
            )
        self.kind, self.keep, self.options = kind, bool(coefficient), options
        self.language_model: Any = None

    def __call__(self, model: Any) -> ScalarModel:
        if self.keep:
            self.language_model = model
        return self.kind.from_causal_lm(model, share=self.keep, **self.options)


def run_reward(
    source: RewardSource, config: RewardConfig, *, resume: bool = False, given: Mapping[str, Any] = EMPTY
) -> dict[str, Any]:
    """Train a reward model on comparisons, rankings or ratings.

    Returns:
        Held-out accuracy with its 95 % interval, beside the accuracy of "the longer reply wins".
    """
    head = _Head(RewardModel, source, config.nll_coefficient, pooling=source.pooling, seed=config.seed)
    encoded = {"bradley_terry": pairs, "plackett_luce": rankings, "regression": _rated}
    needed: Callable[[Records], object] = Records.comparisons if config.fitted == "bradley_terry" else Records.rankings
    run = prepare(
        source, read(source, config.seed), replies_of(needed), encoded[config.fitted], config, given=given, resume=resume,
        asks={"pooling": source.pooling}, head=head,
    )  # fmt: skip
    start.log_unused_options(unused_options(config, _idle(run.train), given))
    held = pairs_of(run.held)
    with run.computing():
        right = partial(pair_accuracy, run.model, pad_token_id=run.pad)
        keep = run.watching(lambda: {"accuracy": right(held)})
        train_reward(run.model, run.train, run.config, pad_token_id=run.pad, language_model=head.language_model, **keep)
        accuracy, train_accuracy = right(held), right(pairs_of(run.train))
    count = len(held)
    gaps = [len(p.chosen) - len(p.rejected) for p in held]
    longer = sum(0.5 if gap == 0 else float(gap > 0) for gap in gaps) / count
    low, high = wilson_interval(accuracy * count, count)
    print(
        f"held-out accuracy on {count} pairs: {accuracy:.3f} (95 % interval {low:.3f} to {high:.3f}); "
        f"'the longer reply wins': {longer:.3f}"
    )
    return run.finish(accuracy=accuracy, interval=[low, high], longer_wins=longer, train_accuracy=train_accuracy)


def _idle(examples: Sequence[PreferenceExample]) -> dict[str, str]:
    """What the data give a reward model nothing to do with, and why."""
    found = {}
    if all(len(e.answers) == 2 and e.margin is None for e in examples):
        found["margin_coefficient"] = "no pair has a margin"
    if len({e.num_ranked for e in examples}) == 1:
        found["balance_prompts"] = "every pair is from equally many replies, and counts as much already"
    return found


def _rated(tokenizer: Any, records: Records) -> list[PreferenceExample]:
    """Every reply with its score, ties too."""
    found = []
    for r in records.rankings():
        if r.scores is None:
            raise UserError(
                f"{records.source}: its rows, in format {records.format}, have no score for each reply, which regression needs "
                "(format ranking with 'scores', or ultrafeedback)",
                argument="scores",
                problem="missing",
                file=records.source,
            )
        rated = [(reply, score) for tier, score in zip(r.tiers, r.scores, strict=True) for reply in tier]
        found.append(ranked([answer(tokenizer, r.prompt, reply) for reply, _ in rated], [score for _, score in rated]))
    return found


def run_orm(
    source: Source, config: OutcomeConfig, *, resume: bool = False, given: Mapping[str, Any] = EMPTY
) -> dict[str, Any]:
    """Train an outcome reward model on replies that are right or wrong.

    Returns:
        Held-out accuracy of the last token's logit with its 95 % interval, beside the share of right replies.
    """
    head = _Head(ValueModel, source, config.nll_coefficient)
    texts = replies_of(Records.judgements)
    run = prepare(source, read(source, config.seed), texts, judged, config, given=given, resume=resume, head=head)

    def accuracy() -> float:
        scores = token_scores(run.model, [e.chosen for e in run.held], pad_token_id=run.pad)
        return sum((float(s[-1]) > 0) == e.desirable for s, e in zip(scores, run.held, strict=True)) / len(run.held)

    with run.computing():
        keep = run.watching(lambda: {"accuracy": accuracy()})
        train_outcome(
            run.model, run.train, run.config, pad_token_id=run.pad, language_model=head.language_model, **keep
        )
        right = accuracy()
    desirable = sum(bool(e.desirable) for e in run.held) / len(run.held)
    return _finish(run, "replies", right, len(run.held), max(desirable, 1 - desirable), desirable=desirable)


def run_prm(
    source: Source, config: ProcessConfig, *, resume: bool = False, given: Mapping[str, Any] = EMPTY
) -> dict[str, Any]:
    """Train a process reward model on replies whose steps are labelled.

    Returns:
        Held-out accuracy on the steps that are right or wrong with its 95 % interval, beside that of one answer for all.
    """
    run = prepare(
        source, read(source, config.seed), replies_of(Records.stepped), _stepped, config, given=given, resume=resume,
        head=lambda model: ValueModel.from_causal_lm(model),
    )  # fmt: skip

    if all(label for e in run.train for label in e.labels):
        start.log_unused_options(unused_options(config, {"neutral": "every step is right or wrong"}, given))

    def told() -> list[tuple[bool, bool]]:
        scores = token_scores(run.model, [e.tokens for e in run.held], pad_token_id=run.pad)
        steps = zip(scores, run.held, strict=True)
        return [
            (float(s[end]) > 0, label > 0)
            for s, e in steps
            for end, label in zip(e.ends, e.labels, strict=True)
            if label
        ]

    def accuracy() -> float:
        found = told()
        return sum(said == true for said, true in found) / len(found)

    if not any(any(e.labels) for e in run.held):
        raise UserError(f"{source.eval_data or source.data}: no held-out step is right or wrong; hold out more")
    with run.computing():
        keep = run.watching(lambda: {"accuracy": accuracy()})
        train_process(run.model, run.train, run.config, pad_token_id=run.pad, **keep)
        found = told()
    valid = sum(true for _, true in found) / len(found)
    right = sum(said == true for said, true in found) / len(found)
    return _finish(run, "steps", right, len(found), max(valid, 1 - valid), valid=valid)


def _stepped(tokenizer: Any, records: Records) -> list[Stepped]:
    return [Stepped(*encode_steps(tokenizer, s.prompt, s.steps), s.labels) for s in records.stepped()]


def _finish(run: Any, what: str, right: float, count: int, constant: float, **measured: float) -> dict[str, Any]:
    low, high = wilson_interval(right * count, count)
    print(
        f"held-out accuracy on {count} {what}: {right:.3f} (95 % interval {low:.3f} to {high:.3f}); "
        f"the same answer for all: {constant:.3f}"
    )
    found: dict[str, Any] = run.finish(accuracy=right, interval=[low, high], constant=constant, **measured)
    return found


def run_judge(
    source: Source, config: SFTConfig, *, resume: bool = False, given: Mapping[str, Any] = EMPTY
) -> dict[str, Any]:
    """Teach a language model to write [[A]] or [[B]], from comparisons in both orders.

    Returns:
        On held-out pairs: the accuracy over both orders with its 95 % interval (a pair on which the two disagree counts one
        half), the share of pairs on which they agree, and of verdicts for the reply shown first.
    """

    def taught(records: Records) -> Iterator[Messages]:
        return (lesson.messages for lesson in judge_training_examples(records.comparisons()))

    def encoded(tokenizer: Any, records: Records) -> list[Any]:
        return conversations(
            tokenizer, Records(records.source, records.format, tuple(judge_training_examples(records.comparisons())))
        )

    training, held_out = read(source, config.seed)
    run = prepare(source, (training, held_out), taught, encoded, config, given=given, resume=resume)
    held = held_out.comparisons()
    with run.computing():
        keep = run.watching(lambda: {"loss": mean_nll(run.model, run.held, pad_token_id=run.pad)})
        train_sft(run.model, run.train, run.config, pad_token_id=run.pad, name="judge", **keep)
        judge = Judge(run.model, run.tokenizer)
        found = judge([c.prompt for c in held], [c.chosen for c in held], [c.rejected for c in held])
    accuracy = sum(found.scores) / len(held)
    low, high = wilson_interval(accuracy * len(held), len(held))
    print(
        f"held-out accuracy on {len(held)} pairs, both orders: {accuracy:.3f} (95 % interval {low:.3f} to {high:.3f}); the same "
        f"verdict in both orders: {found.consistency:.3f}; for the reply shown first: {found.first_position_rate:.3f}"
    )
    return run.finish(
        accuracy=accuracy, interval=[low, high], consistency=found.consistency, first_position_rate=found.first_position_rate,
        unreadable=found.unreadable,
    )  # fmt: skip
