"""One-line functions for notebooks: load, train, generate, evaluate.

Each function is short: it converts what a reader has (texts, rows, a tiny task) to the inputs of the trainers and calls
the trainers, which are in :mod:`minirlhf.trainers`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any, TypeAlias, TypeVar, get_args

from torch import nn

from minirlhf import losses
from minirlhf.core.errors import ArgumentError, UserError, unknown
from minirlhf.data import loaders, tasks
from minirlhf.data.chat import conversation, encode_prompt, end_tokens
from minirlhf.data.examples import compared, conversations
from minirlhf.data.loaders import Records
from minirlhf.data.records import Example, Message, Problem
from minirlhf.data.tasks import Task
from minirlhf.data.types import PreferencePair
from minirlhf.feedback.rewards import Reward, task_problems, task_reward
from minirlhf.models.reference import require_same_vocabulary
from minirlhf.models.sampling import Sampling, sample
from minirlhf.models.texts import completion_texts
from minirlhf.recipes import GRPO, RECIPES, Recipe
from minirlhf.recipes.offline import PREFERENCES, PreferenceRecipe
from minirlhf.stages.named import model_by_name
from minirlhf.trainers import evaluation
from minirlhf.trainers.config import OnlineConfig
from minirlhf.trainers.evaluation import Evaluation
from minirlhf.trainers.history import History
from minirlhf.trainers.offline import OfflineConfig, train_offline
from minirlhf.trainers.online import train_online
from minirlhf.trainers.sft import SFTConfig, train_sft

__all__ = ["evaluate", "generate", "load", "task", "train"]

#: A file, a folder or a name on the hub; a tiny task; or rows: texts, dictionaries as in TRL, records, pairs.
Data: TypeAlias = "str | Path | Task | Records | Sequence[str | Mapping[str, Any] | Example | PreferencePair]"
C = TypeVar("C")


def load(model: str = "assistant-sft") -> tuple[Any, Any]:
    """Load a language model and its tokenizer.

    Args:
        model: the name of a trained tiny model (``minirlhf models`` lists them; the first use trains it, within a minute),
            a folder written by a run or by ``save_pretrained``, or a name on the hub.

    Raises:
        UserError: nothing has this name, or it is not a language model.

    >>> model, tokenizer = load("assistant-sft")
    >>> type(model).__name__
    'LlamaForCausalLM'
    """
    return model_by_name(model)


def task(name: str) -> Task:
    """Return a tiny task of the project: prompts, and a grader that knows the right answers.

    Args:
        name: ``assistant``, ``shell_game``, ``sort_digits``, …; any other name raises a ``UserError`` that lists the
            tasks.

    >>> task("sort_digits").prompts("test")[0].split()[0]
    'sort'
    """
    return tasks.get(name)


def train(
    model: nn.Module,
    tokenizer: Any,
    data: Data,
    recipe: Recipe | PreferenceRecipe | Callable[..., Any] = GRPO,
    *,
    reward: Reward | None = None,
    ref_model: nn.Module | None = None,
    out: Path | str | None = None,
    quiet: bool = False,
    **settings: Any,
) -> History:
    """Train ``model`` in place, with a progress bar.

    Args:
        data: for an online recipe prompts (texts, rows with ``prompt``, or a tiny task); for a preference loss rows with
            ``prompt``, ``chosen`` and ``rejected`` (or a ``label``, or ``responses``); for ``sft_loss`` rows with
            ``messages`` or with ``prompt`` and ``completion``. Also the name of a file or of a data set on the hub.
        recipe: ``GRPO``, ``DAPO``, ``GRPO.with_(beta=0.1)``, …; ``DPO``, ``DPO.with_(beta=0.3)``, ``KTO``, …;
            ``sft_loss``; or a preference loss of your own, a function that is declared by ``@Needs(PairLogps)`` and
            returns ``(B,)``, one loss per pair.
        reward: reward function of an online recipe, ``(problems, completions) -> numbers``. ``problem.prompt`` holds
            the messages, ``problem.reference`` the reference answer of the data; a completion is a text. None: the
            grader of the tiny task. A function that fails on a batch is called again for each completion alone; NaN
            marks a completion that cannot be graded.
        ref_model: the reference policy; None: a copy of the initial ``model``, if the recipe needs a reference.
        out: a folder for metrics and checkpoints; None: nothing is written.
        quiet: no progress bar, and no notes about settings without effect.
        settings: fields of the trainer's settings, by name: ``max_steps``, ``batch_size``, ``learning_rate``, ``seed``, … of
            :class:`~minirlhf.trainers.config.OnlineConfig` (also ``num_generations``, ``max_completion_length``, …;
            ``batch_size`` counts prompts), :class:`~minirlhf.trainers.offline.OfflineConfig` or
            :class:`~minirlhf.trainers.sft.SFTConfig` (``batch_size`` counts rows). Hyperparameters of the algorithm
            (``beta``, ``epsilon``, …) belong to the recipe: ``DPO.with_(beta=0.3)``, or for your own loss
            ``functools.partial(loss, beta=0.3)``.

    Returns:
        The metrics of each step: ``history["reward"]``, ``plot(history)``.

    Raises:
        UserError: data of a kind that the recipe cannot use, no reward, or an unknown setting (the message names the
            nearest).

    >>> model, tokenizer = load("assistant-sft")
    >>> def short(problems, completions):
    ...     return [-len(text.split()) for text in completions]
    >>> history = train(model, tokenizer, task("assistant"), GRPO, reward=short, max_steps=2, batch_size=4, quiet=True)
    >>> len(history["reward"])
    2
    >>> pairs = [{"prompt": "say dogs", "chosen": "dogs", "rejected": "dogs dogs"}]
    >>> history = train(model, tokenizer, pairs, DPO, max_steps=2, batch_size=1, quiet=True)
    >>> round(history["loss"][0], 4)  # at first the policy is the reference
    0.6931
    """
    extra = {"tokenizer": tokenizer, "out": out, "quiet": quiet}
    if ref_model is not None:
        extra["ref_model"] = ref_model
    return _train(recipe, model, data, reward, settings, extra)


@functools.singledispatch
def _train(recipe: Any, model: Any, data: Data, reward: Reward | None, settings: Any, extra: dict[str, Any]) -> History:
    """Train with a function: ``sft_loss``, or a declared preference loss."""
    if recipe is losses.sft_loss:
        for argument, value in {"reward": reward, "ref_model": extra.get("ref_model")}.items():
            _unused(argument, value, "supervised fine-tuning")
        examples = conversations(extra["tokenizer"], _records(data))
        config = _made(SFTConfig, settings)
        return train_sft(model, examples, config, pad_token_id=extra["tokenizer"].pad_token_id, **extra)
    function = recipe.func if isinstance(recipe, functools.partial) else recipe
    name = getattr(function, "__name__", "")
    if not callable(recipe) or function is getattr(losses, name, None):  # such as "grpo" or grpo_loss
        title = str(name or recipe).removesuffix("_loss").upper()
        exists = title in {row.name.upper() for row in (*RECIPES.values(), *PREFERENCES.values())}
        raise ArgumentError(
            f"recipe = {name or repr(recipe)}; expected {title if exists else 'a recipe such as GRPO or DPO'}, sft_loss, or a "
            "preference loss of your own, declared by @Needs(PairLogps)",
            argument="recipe",
            value=recipe,
            expected=title if exists else None,
        )
    return _train(PreferenceRecipe(name, recipe), model, data, reward, settings, extra)


@_train.register
def _(recipe: Recipe, model: Any, data: Any, reward: Reward | None, settings: Any, extra: dict[str, Any]) -> History:
    problems, reward_fn = _problems(data, reward, "train")
    if isinstance(data, Task):
        settings = {"max_completion_length": data.max_completion_length, **settings}
    return train_online(model, problems, reward_fn, recipe, _made(OnlineConfig, settings, recipe), **extra)


@_train.register
def _(
    recipe: PreferenceRecipe, model: Any, data: Any, reward: Reward | None, settings: Any, extra: dict[str, Any]
) -> History:
    _unused("reward", reward, recipe.name)
    if not recipe.needs.reference:
        _unused("ref_model", extra.get("ref_model"), recipe.name)
    examples = compared(extra["tokenizer"], _records(data), recipe.needs.record)
    config = _made(OfflineConfig, settings, recipe)
    return train_offline(model, examples, recipe, config, pad_token_id=extra["tokenizer"].pad_token_id, **extra)


def generate(
    model: nn.Module,
    tokenizer: Any,
    prompts: str | Sequence[str] | Sequence[Message] | Sequence[Sequence[Message]],
    *,
    num_generations: int = 1,
    seed: int = 0,
    **sampling: Any,
) -> Any:
    """Sample completions.

    Args:
        prompts: a text, which becomes a turn of the user, or messages ``{"role": …, "content": …}``; or a list of such
            prompts.
        num_generations: number of completions per prompt.
        seed: seed of the random numbers; the same seed gives the same completions.
        sampling: fields of :class:`~minirlhf.models.sampling.Sampling`: ``max_completion_length`` (64), ``temperature`` (1.0),
            ``top_k``, ``top_p``, ``min_p``, ``greedy``.

    Returns:
        The completions of one prompt, ``num_generations`` texts; for several prompts a list of such lists.

    >>> model, tokenizer = load("assistant-sft")
    >>> completions = generate(model, tokenizer, "say dogs", num_generations=4, max_completion_length=8)
    >>> len(completions)
    4
    """
    single = isinstance(prompts, str) or (len(prompts) > 0 and isinstance(prompts[0], Mapping))
    batch: Any = [prompts] if single else prompts
    if not batch:
        raise UserError("no prompts; expected a text or a list of texts", argument="prompts", problem="empty")
    rollout = sample(
        model,
        [encode_prompt(tokenizer, conversation(p) if isinstance(p, str) else p) for p in batch],
        sampling=_made(Sampling, sampling),
        num_generations=num_generations,
        eos_token_id=end_tokens(tokenizer, model).ids,
        pad_token_id=tokenizer.pad_token_id,
        seed=seed,
    )
    texts = completion_texts(rollout, tokenizer)
    completions = [texts[start : start + num_generations] for start in range(0, len(texts), num_generations)]
    return completions[0] if single else completions


def evaluate(
    model: nn.Module,
    tokenizer: Any,
    data: Data,
    *,
    reward: Reward | None = None,
    ref_model: nn.Module | None = None,
    limit: int | None = 256,
    seed: int = 0,
    **sampling: Any,
) -> Evaluation:
    """Sample one completion per prompt and grade it.

    Args:
        data: prompts, as for :func:`train`; a tiny task gives its test prompts.
        reward: as for :func:`train`.
        ref_model: the reference policy of the KL divergence; None: the KL divergence is not measured.
        limit: at most this many prompts, ≥ 1; None: all.
        seed: two models with the same seed use the same random numbers.
        sampling: as for :func:`generate`.

    Returns:
        ``.reward``, ``.length`` and ``.divergence`` are means with their standard errors; ``.rewards`` and ``.completions`` hold
        one entry per prompt.

    >>> model, tokenizer = load("assistant-sft")
    >>> measured = evaluate(model, tokenizer, task("assistant"), limit=8)
    >>> len(measured.completions), measured.rewards.shape
    (8, torch.Size([8]))
    """
    problems, reward_fn = _problems(data, reward, "test")
    if isinstance(data, Task):
        sampling = {"max_completion_length": data.max_completion_length, **sampling}
    if limit is not None and limit < 1:
        raise UserError(f"limit = {limit}; expected at least 1", argument="limit", value=limit, expected=1)
    if ref_model is not None:
        require_same_vocabulary(model, ref_model)
    config = _made(Sampling, sampling)
    return evaluation.evaluate(
        model, problems[:limit], reward_fn, tokenizer=tokenizer, sampling=config, ref_model=ref_model, seed=seed
    )


# -- from arguments to the inputs of the trainers --------------------------------------------------------------


def _records(data: Data) -> Records:
    if isinstance(data, Records):
        return data
    if isinstance(data, Task):
        text = f"the tiny task {data.name} has prompts only; expected rows, e.g. sample_pairs(task({data.name!r}), 500)"
        raise UserError(text, argument="data", value=data.name, expected="rows")
    if isinstance(data, str | Path):
        return loaders.load(data)
    if isinstance(data, Mapping):
        text = f"the data are one object with the keys {', '.join(map(str, data))}; expected a list of rows, or one split of it"
        raise UserError(text, argument="data", value=list(data), expected="rows")
    table: Any = data
    if hasattr(table, "to_dict") and hasattr(table, "columns"):  # pandas: iteration would give the names of the columns
        table = table.to_dict("records")
    rows = [_row(row) for row in table]
    if rows and all(isinstance(row, get_args(Example)) for row in rows):
        return Records(loaders.IN_MEMORY, "records", tuple(rows))
    return loaders.load(rows)


def _row(row: Any) -> Any:
    if isinstance(row, PreferencePair):
        return {key: value for key, value in asdict(row).items() if value is not None}
    return {"prompt": row} if isinstance(row, str) else row


def _problems(data: Data, reward: Reward | None, split: Any) -> tuple[list[Problem], Reward]:
    if reward is not None and not callable(reward):
        text = f"reward = {reward!r}; expected a function (problems, completions) -> numbers"
        raise UserError(text, argument="reward", value=reward, problem="not callable")
    if isinstance(data, Task):
        return task_problems(data, split), reward or task_reward(data)
    if reward is None:
        text = "no reward; expected a function (problems, completions) -> numbers, as only a tiny task grades by itself"
        raise UserError(text, argument="reward", problem="missing")
    return _records(data).problems(), reward


def _unused(argument: str, value: Any, by: str) -> None:
    if value is not None:
        raise UserError(f"{by} does not use {argument}; leave it out", argument=argument, value=by, problem="not used")


def _made(kind: type[C], settings: Mapping[str, Any], recipe: Recipe | PreferenceRecipe | None = None) -> C:
    """Return the dataclass with these settings.

    Raises:
        UserError: an unknown setting (the message names the nearest), or a hyperparameter of the recipe (it says where
            that goes).
    """
    known = [field.name for field in fields(kind)]  # type: ignore[arg-type]
    for name in settings:
        if recipe is not None and name not in known and name in recipe.options():
            row = {**RECIPES, **PREFERENCES}.get(recipe.name)
            remedy = f"{recipe.name}, {name}=" if row is None else f"{recipe.name.upper()}.with_({name}="
            text = f"{name} is a number of the recipe, not of the run: {'' if row else 'functools.partial('}{remedy}{settings[name]!r})"
            raise UserError(text, argument=name, value=settings[name], expected="with_", problem="of the recipe")
        if name not in known:
            raise unknown("setting", name, known)
    return kind(**settings)
