"""Training runs from files: data by file or hub name, a model by preset, folder or hub name, results in a folder.

Every run here is prepared by :mod:`.prepared`. Reward models and judges are trained in :mod:`.judges_from_files`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from minirlhf import recipes
from minirlhf.core.randomness import numpy_generator
from minirlhf.data import loaders, tasks
from minirlhf.data.chat import conversation, encode_prompt, end_tokens
from minirlhf.data.examples import TRAIN_ON, compared, completions_of, conversations, kind_for
from minirlhf.data.loaders import Records
from minirlhf.data.records import Conversation, Problem
from minirlhf.data.tasks.base import Split, Task
from minirlhf.equations.preference_losses import ListLogps, UnpairedLogps
from minirlhf.feedback.custom_losses import is_custom
from minirlhf.feedback.graders.thoughts import parse_tags
from minirlhf.feedback.rewards import Reward, task_problems, task_reward, with_references
from minirlhf.models import adapters
from minirlhf.recipes.distill import Distillation, describe_distillation
from minirlhf.recipes.offline import PreferenceRecipe, describe_preference
from minirlhf.trainers.config import OnlineConfig, RejectionConfig, SamplingConfig, unused_options
from minirlhf.trainers.distill import DistillConfig, divergence_on_batch, train_distill, unused_sampling_options
from minirlhf.trainers.evaluation import Evaluation, evaluate
from minirlhf.trainers.likelihood import mean_nll
from minirlhf.trainers.offline import EvalPreferences, OfflineConfig, train_offline
from minirlhf.trainers.online import generation_settings, train_online
from minirlhf.trainers.rejection import train_rejection
from minirlhf.trainers.sft import SFTConfig, train_sft
from minirlhf_cli.files import custom_losses, start
from minirlhf_cli.files.grading import grading
from minirlhf_cli.files.prepared import Prepared, Reference, dataset_from_task, prepare, read
from minirlhf_cli.files.sources import EMPTY, DistillSource, GradedSource, OfflineSource, OnlineSource, SFTSource

# -- supervised fine-tuning --------------------------------------------------------------------------------------


def run_sft(
    source: SFTSource, config: SFTConfig, *, resume: bool = False, given: Mapping[str, Any] = EMPTY
) -> dict[str, Any]:
    """Fine-tune on conversations. Returns the held-out loss in nats per token, before and after.

    The result is also written to ``result.json``. ``given`` names the settings that the user chose.
    """
    task = None if source.task is None else tasks.get(source.task)
    objective = custom_losses.token_objective(source.loss_type)
    demonstrations = partial(_demonstrations, count=source.demonstrations, seed=config.seed)
    run = prepare(
        source,
        read(source, config.seed) if task is None else dataset_from_task(task, demonstrations),
        lambda records: (c.messages for c in records.conversations()),
        partial(conversations, learned=TRAIN_ON[source.train_on]),
        config,
        given=given,
        resume=resume,
        asks={"train on": source.train_on, "loss": custom_losses.identity(source.loss_type)},
        task=task,
    )
    with run.computing():
        measure = lambda: {"loss": mean_nll(run.model, run.held, pad_token_id=run.pad, batch_size=run.eval_rows)}
        before, kwargs = run.measured(measure), run.watching(measure)
        train_sft(run.model, run.train, run.config, pad_token_id=run.pad, of=objective, **kwargs)
        after = run.measured(measure)
    for key, value in after.items():
        print(f"held-out {key} on {len(run.held)} conversations: {before[key]:.3f} -> {value:.3f} nats per token")
    return run.finish(**_before_and_after(before, after))


def _before_and_after(before: Mapping[str, float], after: Mapping[str, float]) -> dict[str, float]:
    """Return the entries of ``result.json`` for measurements on the held-out examples."""
    return {
        **{f"held_out_{key}_before": value for key, value in before.items()},
        **{f"held_out_{key}": value for key, value in after.items()},
    }


# -- distillation --------------------------------------------------------------------------------------------------


def run_distill(
    source: DistillSource,
    config: DistillConfig,
    recipe: Distillation,
    *,
    resume: bool = False,
    given: Mapping[str, Any] = EMPTY,
) -> dict[str, Any]:
    """Learn from a teacher on conversations. Returns the held-out loss and forward KL in nats per token, before and after."""
    recipe.validate()
    teacher = Reference.load(source.teacher)
    task = None if source.task is None else tasks.get(source.task)
    demonstrations = partial(_demonstrations, count=source.demonstrations, seed=config.seed)
    start.log_unused_options(unused_options(config, unused_sampling_options(recipe), given))
    run = prepare(
        source,
        read(source, config.seed) if task is None else dataset_from_task(task, demonstrations),
        lambda records: (c.messages for c in records.conversations()),
        conversations,
        config,
        given=given,
        resume=resume,
        asks={"teacher": Reference.digest(teacher)},
        task=task,
        like=teacher,
    )
    teacher_model = run.reference(teacher, "teacher")
    print(describe_distillation(recipe))
    with run.computing():
        measure = partial(
            divergence_on_batch, run.model, teacher_model, run.held, pad_token_id=run.pad, batch_size=run.eval_rows
        )
        before, kwargs = run.measured(measure), run.watching(measure)
        eos_ids = end_tokens(run.tokenizer, run.model).ids
        train_distill(
            run.model,
            teacher_model,
            run.train,
            recipe,
            run.config,
            eos_token_id=eos_ids,
            pad_token_id=run.pad,
            **kwargs,
        )
        after = run.measured(measure)
    changes = ", ".join(f"{key} {before[key]:.3f} -> {after[key]:.3f}" for key in after)
    if changes:
        print(f"held-out on {len(run.held)} conversations, nats per token: {changes}")
    return run.finish(**_before_and_after(before, after))


# -- demonstrations of a toy task ----------------------------------------------------------------------------------


def _demonstrations(task: Task, split: Split, count: int, seed: int) -> Iterator[Conversation]:
    """Yield ``count`` demonstrations on training prompts, or ``count // 10`` (at least 1) on held-out prompts."""
    prompts, rng = task.prompts(split), numpy_generator("demonstrations", split, seed)
    for i in range(count if split == "train" else max(1, count // 10)):
        prompt = prompts[i % len(prompts)]
        yield Conversation(conversation(prompt, task.demonstration(prompt, rng)))


# -- learning from given preferences -----------------------------------------------------------------------------


def run_offline(
    source: OfflineSource,
    config: OfflineConfig,
    recipe: PreferenceRecipe,
    *,
    resume: bool = False,
    given: Mapping[str, Any] = EMPTY,
) -> dict[str, Any]:
    """Learn from comparisons, labels or rankings. Returns the held-out metrics."""
    recipe.validate()
    encode = lambda tokenizer, records: compared(tokenizer, records, recipe.needs.record)
    data = read(source, config.seed)
    unused = {} if recipe.needs.reference else {"ref_model": f"{recipe.name} needs no reference"}
    reference = None if unused else Reference.load(source.ref_model)
    dependencies = {"reference": Reference.digest(reference)}
    if is_custom(loss := str(given.get("loss", ""))):
        dependencies["loss"] = custom_losses.identity(loss)
    texts = completions_of(lambda records: _examples(records, recipe.needs.record))
    run = prepare(source, data, texts, encode, config, given=given, resume=resume, asks=dependencies, idle=unused)
    ref_model = run.reference(reference)
    fixed = ref_model or adapters.reference_of(run.model)
    options: dict[str, Any] = {"pad_token_id": run.pad, "micro_batch_size": run.config.micro_batch_size}
    evaluation = EvalPreferences(run.held, recipe, fixed, **options) if run.held else None
    measure = lambda: {} if evaluation is None else evaluation.measure(run.model)
    print(describe_preference(recipe))
    with run.computing():
        history = train_offline(
            run.model, run.train, recipe, run.config, pad_token_id=run.pad, ref_model=ref_model,
            **run.watching(measure),
        )  # fmt: skip
        metrics = measure()
    if metrics:
        print(f"held-out on {len(run.held)} examples: " + ", ".join(f"{k} {v:.3f}" for k, v in metrics.items()))
    return run.finish(steps=len(history), **metrics)


def _examples(records: Records, kind: type[Any]) -> object:
    """Return the records in the form that a loss of this kind compares; an error if they cannot be converted."""
    readers: dict[type[Any], Callable[[], object]] = {UnpairedLogps: records.judgements, ListLogps: records.rankings}
    return readers.get(kind_for(records, kind), records.comparisons)()


# -- from graded on-policy completions ------------------------------------------------------------------------------


@dataclass(frozen=True)
class GradedRun:
    """A prepared run whose completions for its problems are graded by ``reward``."""

    run: Prepared[Problem]
    reward: Reward

    @classmethod
    def of(
        cls,
        source: GradedSource,
        config: SamplingConfig,
        *,
        resume: bool,
        given: Mapping[str, Any],
        asks: Mapping[str, Any] = EMPTY,
        idle: Mapping[str, str] = EMPTY,
    ) -> GradedRun:
        """Prepare a run from files or from a toy task.

        ``asks`` and ``idle`` are those of :func:`~minirlhf_cli.files.prepared.prepare`.
        """
        task = None if source.task is None else tasks.get(source.task)
        own = source.grader is not None or source.reward_model is not None
        if task is not None and not own:
            reward, grader = task_reward(task), task.name
        else:
            device = start.device_of(source.device)
            reward, grader = grading(
                source.grader,
                source.reward_model,
                seconds=source.grader_timeout,
                device=device,
                reward_aggregation=source.reward_aggregation,
                thoughts=parse_tags(source.thought_tags),
                batch_size=config.micro_batch_size or 256,
            )
        problems_for = (lambda task, split: with_references(task, task_problems(task, split))) if own else task_problems
        run: Prepared[Problem] = prepare(
            source,
            read(source, config.seed) if task is None else dataset_from_task(task, problems_for),
            lambda records: (p.prompt for p in records.problems()),
            lambda tokenizer, records: records.problems(),
            config,
            given=given,
            resume=resume,
            asks={"grader": grader, **asks},
            idle=idle,
            task=task,
            size=lambda tokenizer, problem: len(encode_prompt(tokenizer, problem.prompt)),
            room=lambda config: config.max_completion_length,
        )
        return cls(run, reward)

    def trained(self, train: Callable[..., Any]) -> dict[str, Any]:
        """Measure, call ``train(model, problems, reward, config, **run)``, measure again; return both measurements."""
        run, reward = self.run, self.reward
        config, held = run.config, run.held[:256]

        def score() -> Evaluation:
            # If the memory is so scarce that the user splits the batch, no more rows are sampled than in training.
            size = None if config.micro_batch_size is None else config.batch_size * config.num_generations
            options: dict[str, Any] = {"tokenizer": run.tokenizer, "sampling": config.sampling(), "seed": config.seed}
            return evaluate(run.model, held, reward, **options, batch_size=size)

        with run.computing():
            before = score() if held else None
            train(run.model, run.train, reward, config, **run.watching(lambda: {"reward": score().reward.mean}))
            after = score() if held else None
        if before is None or after is None:
            return run.finish()
        print(f"held-out reward on {len(held)} prompts: {before.reward.mean:.3f} -> {after.reward.mean:.3f}")
        frac_invalid = {
            "held_out_frac_invalid_before": before.frac_invalid,
            "held_out_frac_invalid": after.frac_invalid,
        }
        if any(frac_invalid.values()):
            print("completions left out because grading failed: {:.1%} -> {:.1%}".format(*frac_invalid.values()))
        rewards = {"held_out_reward_before": before.reward.mean, "held_out_reward": after.reward.mean}
        return run.finish(held_out=len(held), **rewards, **frac_invalid)


def run_online(
    source: OnlineSource,
    config: OnlineConfig,
    recipe: recipes.Recipe,
    *,
    resume: bool = False,
    given: Mapping[str, Any] = EMPTY,
) -> dict[str, Any]:
    """Train a policy on a task or on problems with a grader. Returns the held-out reward before and after."""
    generation_settings(recipe, config)  # raises its errors before anything is loaded
    reference = Reference.load(source.ref_model)
    unused = {} if recipe.update.ptx_coef else {"ptx_data": f"the texts weigh ptx_coef = 0 in {recipe.name}"}
    texts = loaders.load(source.ptx_data) if source.ptx_data and not unused else None
    texts_digest = None if texts is None else start.digest(texts.examples)
    dependencies = {"reference": Reference.digest(reference), "texts": texts_digest}
    graded_run = GradedRun.of(source, config, resume=resume, given=given, asks=dependencies, idle=unused)
    run = graded_run.run
    recipe = generation_settings(recipe, run.config)
    print(recipes.describe(recipe, defaults=False))

    def train(model: Any, problems: list[Problem], reward: Reward, config: OnlineConfig, **kwargs: Any) -> None:
        pretraining = None if texts is None else conversations(run.tokenizer, texts)
        models = {"ref_model": run.reference(reference), "pretraining": pretraining}
        train_online(model, problems, reward, recipe, config, **models, **kwargs)

    return graded_run.trained(train)


def run_rejection(
    source: GradedSource, config: RejectionConfig, *, resume: bool = False, given: Mapping[str, Any] = EMPTY
) -> dict[str, Any]:
    """Sample completions and imitate the best ones, in rounds. Returns the held-out reward before and after."""
    return GradedRun.of(source, config, resume=resume, given=given).trained(train_rejection)
