"""Train graders from files: a reward model, an outcome or process reward model, or a judge that writes verdicts."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from minirlhf.core.errors import UserError
from minirlhf.data.chat import encode_steps
from minirlhf.data.examples import Messages, answer, completions_of, conversations, judged, pairs, rankings
from minirlhf.data.loaders import Records
from minirlhf.data.records import Ranking
from minirlhf.data.types import PreferenceExample, Stepped, ranked
from minirlhf.feedback.judge import Judge, judge_training_examples
from minirlhf.models.heads import RewardModel, ScalarModel, ValueModel
from minirlhf.trainers.config import unused_options
from minirlhf.trainers.evaluation import wilson_interval
from minirlhf.trainers.likelihood import mean_nll
from minirlhf.trainers.reward import CUSTOM, RewardConfig, pair_accuracy, pairs_of, rating_predictions, train_reward
from minirlhf.trainers.sft import SFTConfig, train_sft
from minirlhf.trainers.verifiers import OutcomeConfig, ProcessConfig, token_scores, train_outcome, train_process
from minirlhf_cli.files import custom_losses, start
from minirlhf_cli.files.prepared import Prepared, prepare, read
from minirlhf_cli.files.sources import EMPTY, RewardSource, Source


class _Head:
    """The trained head on the backbone of a causal LM; the LM is kept if the loss has a likelihood term."""

    def __init__(self, kind: type[ScalarModel], source: Source, coefficient: float, **options: Any) -> None:
        if coefficient and source.lora_r:
            raise UserError(
                f"nll_coefficient = {coefficient}: not available with adapters; expected --lora-r 0",
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
        Held-out accuracy with its 95 % interval, and the accuracy of "the longer completion wins".
    """
    head = _Head(RewardModel, source, config.nll_coefficient, pooling=source.pooling, seed=config.seed)
    encode = {"bradley_terry": pairs, "plackett_luce": rankings, "regression": _rated, CUSTOM: pairs}
    needed: dict[Any, Callable[[Records], object]] = {pairs: Records.comparisons, rankings: Records.rankings}
    require = needed.get(encode[config.fitted], _ratings_of)
    run = prepare(
        source, read(source, config.seed), completions_of(require), encode[config.fitted], config, given=given, resume=resume,
        asks={"pooling": source.pooling, "loss": custom_losses.identity(config.loss or "")}, head=head,
    )  # fmt: skip
    start.log_unused_options(unused_options(config, _idle(run.train), given))
    if config.fitted == "regression":
        return _finish_regression(run)
    held_out = pairs_of(run.held)
    with run.computing():
        accuracy_on = partial(pair_accuracy, run.model, pad_token_id=run.pad, batch_size=run.eval_rows)
        kwargs = run.watching(lambda: {"accuracy": accuracy_on(held_out)})
        train_reward(
            run.model, run.train, run.config, pad_token_id=run.pad, language_model=head.language_model, **kwargs
        )
        train_accuracy = accuracy_on(pairs_of(run.train))
        accuracy = accuracy_on(held_out) if held_out else 0.0
    if not held_out:
        return run.finish(train_accuracy=train_accuracy)
    count = len(held_out)
    gaps = [len(p.chosen) - len(p.rejected) for p in held_out]
    longer_wins = sum(0.5 if gap == 0 else float(gap > 0) for gap in gaps) / count
    low, high = wilson_interval(accuracy * count, count)
    print(
        f"held-out accuracy on {count} pairs: {accuracy:.3f} [{low:.3f}, {high:.3f}]; "
        f"'the longer reply wins': {longer_wins:.3f}"
    )
    return run.finish(accuracy=accuracy, interval=[low, high], longer_wins=longer_wins, train_accuracy=train_accuracy)


def _finish_regression(run: Prepared[PreferenceExample]) -> dict[str, Any]:
    """Train on ratings; return the held-out mean squared error, that of the mean rating, and the accuracy on pairs."""
    held_pairs = pairs_of(run.held)

    def measure() -> dict[str, float]:
        rows: dict[str, int] = {"pad_token_id": run.pad, "batch_size": run.eval_rows}
        predicted, rating = rating_predictions(run.model, run.held, **rows).unbind(-1)
        measured = {"loss": float((predicted - rating).square().mean())}
        return measured | ({"accuracy": pair_accuracy(run.model, held_pairs, **rows)} if held_pairs else {})

    with run.computing():
        train_reward(run.model, run.train, run.config, pad_token_id=run.pad, **run.watching(measure))
        if not run.held:
            return run.finish()
        after = measure()
    mean = statistics.fmean(score for e in run.train for score in e.scores or ())
    ratings = [score for e in run.held for score in e.scores or ()]
    constant = statistics.fmean((score - mean) ** 2 for score in ratings)
    print(
        f"held-out squared error on {len(ratings)} ratings: {after['loss']:.3f}; the training ratings' mean for all: {constant:.3f}"
    )
    count = len(held_pairs)
    if not count:
        return run.finish(squared_error=after["loss"], constant=constant)
    low, high = wilson_interval(after["accuracy"] * count, count)
    print(f"held-out accuracy on {count} pairs: {after['accuracy']:.3f} [{low:.3f}, {high:.3f}]")
    return run.finish(squared_error=after["loss"], constant=constant, accuracy=after["accuracy"], interval=[low, high])


def _idle(examples: Sequence[PreferenceExample]) -> dict[str, str]:
    """Return the settings that have no effect on these examples, each with the reason."""
    unused = {}
    if all(len(e.completions) == 2 and e.margin is None for e in examples):
        unused["margin_coefficient"] = "no pair has a margin"
    if len({e.num_ranked for e in examples}) == 1:
        unused["balance_prompts"] = "every pair is from equally many replies, and counts as much already"
    return unused


def _ratings_of(records: Records) -> list[Ranking]:
    """Return the ratings; an error names the formats that have them."""
    if not all(isinstance(example, Ranking) and example.scores for example in records.examples):
        raise UserError(
            f"{records.source}: its rows, in format {records.format}, have no score for each completion; regression "
            "needs scores (formats rated, scored, ranking with 'scores', or ultrafeedback)",
            argument="scores",
            problem="missing",
            file=records.source,
        )
    return records.ratings()


def _rated(tokenizer: Any, records: Records) -> list[PreferenceExample]:
    """Return every completion with its score, including ties."""
    examples = []
    for ranking in _ratings_of(records):
        scored = zip(ranking.tiers, ranking.scores or (), strict=True)
        rated = [(reply, score) for tier, score in scored for reply in tier]
        examples.append(
            ranked([answer(tokenizer, ranking.prompt, reply) for reply, _ in rated], [score for _, score in rated])
        )
    return examples


def run_orm(
    source: Source, config: OutcomeConfig, *, resume: bool = False, given: Mapping[str, Any] = EMPTY
) -> dict[str, Any]:
    """Train an outcome reward model on completions that are right or wrong.

    Returns:
        Held-out accuracy of the last token's logit with its 95 % interval, and the fraction of right completions.
    """
    head = _Head(ValueModel, source, config.nll_coefficient)
    texts = completions_of(Records.judgements)
    run = prepare(source, read(source, config.seed), texts, judged, config, given=given, resume=resume, head=head)

    def accuracy() -> float:
        completions = [e.chosen for e in run.held]
        scores = token_scores(run.model, completions, pad_token_id=run.pad, batch_size=run.eval_rows)
        return sum((float(s[-1]) > 0) == e.desirable for s, e in zip(scores, run.held, strict=True)) / len(run.held)

    with run.computing():
        kwargs = run.watching(lambda: {"accuracy": accuracy()})
        train_outcome(
            run.model, run.train, run.config, pad_token_id=run.pad, language_model=head.language_model, **kwargs
        )
        if not run.held:
            return run.finish()
        final_accuracy = accuracy()
    desirable = sum(bool(e.desirable) for e in run.held) / len(run.held)
    return _finish(run, "replies", final_accuracy, len(run.held), max(desirable, 1 - desirable), desirable=desirable)


def run_prm(
    source: Source, config: ProcessConfig, *, resume: bool = False, given: Mapping[str, Any] = EMPTY
) -> dict[str, Any]:
    """Train a process reward model on completions with labelled steps.

    Returns:
        Held-out accuracy on the steps labelled right or wrong with its 95 % interval, and the accuracy of the best
        constant prediction.
    """
    run = prepare(
        source, read(source, config.seed), completions_of(Records.stepped), _stepped, config, given=given, resume=resume,
        head=lambda model: ValueModel.from_causal_lm(model),
    )  # fmt: skip

    if all(label for e in run.train for label in e.labels):
        start.log_unused_options(unused_options(config, {"neutral": "every step is right or wrong"}, given))

    def predictions() -> list[tuple[bool, bool]]:
        completions = [e.tokens for e in run.held]
        scores = token_scores(run.model, completions, pad_token_id=run.pad, batch_size=run.eval_rows)
        steps = zip(scores, run.held, strict=True)
        return [
            (float(s[end]) > 0, label > 0)
            for s, e in steps
            for end, label in zip(e.ends, e.labels, strict=True)
            if label
        ]

    def accuracy() -> float:
        results = predictions()
        return sum(predicted == label for predicted, label in results) / len(results)

    if run.held and not any(any(e.labels) for e in run.held):
        raise UserError(
            f"{source.eval_data or source.data}: no held-out step is labelled right or wrong; hold out more data"
        )
    with run.computing():
        kwargs = run.watching(lambda: {"accuracy": accuracy()})
        train_process(run.model, run.train, run.config, pad_token_id=run.pad, **kwargs)
        if not run.held:
            return run.finish()
        results = predictions()
    valid = sum(label for _, label in results) / len(results)
    final_accuracy = sum(predicted == label for predicted, label in results) / len(results)
    return _finish(run, "steps", final_accuracy, len(results), max(valid, 1 - valid), valid=valid)


def _stepped(tokenizer: Any, records: Records) -> list[Stepped]:
    return [Stepped(*encode_steps(tokenizer, s.prompt, s.steps), s.labels) for s in records.stepped()]


def _finish(run: Any, unit: str, accuracy: float, count: int, constant: float, **measured: float) -> dict[str, Any]:
    low, high = wilson_interval(accuracy * count, count)
    print(
        f"held-out accuracy on {count} {unit}: {accuracy:.3f} [{low:.3f}, {high:.3f}]; "
        f"the same answer for all: {constant:.3f}"
    )
    result: dict[str, Any] = run.finish(accuracy=accuracy, interval=[low, high], constant=constant, **measured)
    return result


def run_judge(
    source: Source, config: SFTConfig, *, resume: bool = False, given: Mapping[str, Any] = EMPTY
) -> dict[str, Any]:
    """Train a language model to write [[A]] or [[B]], on comparisons in both orders.

    Returns:
        On held-out pairs: the accuracy over both orders with its 95 % interval (a pair with two different verdicts
        counts one half), the fraction of pairs with the same verdict in both orders, and the fraction of verdicts for
        the completion shown first.
    """

    def texts(records: Records) -> Iterator[Messages]:
        return (example.messages for example in judge_training_examples(records.comparisons()))

    def encode_all(tokenizer: Any, records: Records) -> list[Any]:
        return conversations(
            tokenizer, Records(records.source, records.format, tuple(judge_training_examples(records.comparisons())))
        )

    train, held_out = read(source, config.seed)
    run = prepare(source, (train, held_out), texts, encode_all, config, given=given, resume=resume)
    comparisons = held_out.comparisons() if len(held_out) else []
    with run.computing():
        kwargs = run.watching(
            lambda: {"loss": mean_nll(run.model, run.held, pad_token_id=run.pad, batch_size=run.eval_rows)}
        )
        train_sft(run.model, run.train, run.config, pad_token_id=run.pad, name="judge", **kwargs)
        if not comparisons:
            return run.finish()
        judge = Judge(run.model, run.tokenizer)
        verdicts = judge(
            [c.prompt for c in comparisons], [c.chosen for c in comparisons], [c.rejected for c in comparisons]
        )
    accuracy = sum(verdicts.scores) / len(comparisons)
    low, high = wilson_interval(accuracy * len(comparisons), len(comparisons))
    print(
        f"held-out accuracy on {len(comparisons)} pairs, both orders: {accuracy:.3f} (95 % interval {low:.3f} to "
        f"{high:.3f}); the same verdict in both orders: {verdicts.consistency:.3f}; for the completion shown first: "
        f"{verdicts.first_position_rate:.3f}"
    )
    return run.finish(
        accuracy=accuracy, interval=[low, high], consistency=verdicts.consistency,
        first_position_rate=verdicts.first_position_rate, unreadable=verdicts.unreadable,
    )  # fmt: skip
