"""Memory and time of a training run, computed from its settings before anything is loaded.

:func:`plan` returns the memory of each phase of a step by part, and the time of a step under assumptions that
:data:`MACHINES` states. :func:`remedy` looks for a change of the settings with which the run fits.
"""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from minirlhf.core.errors import UserError, unknown
from minirlhf.core.hub import offline_if_unreachable
from minirlhf.equations.preference_losses import UnpairedLogps
from minirlhf.models import pretrained, tiny
from minirlhf.models.memory_estimate import FULL, HALF, MemoryEstimate, ModelSizes, Numerics, Rows
from minirlhf.stages.named import model_folder
from minirlhf.trainers.online import generation_settings
from minirlhf_cli.commands.train import TRAINERS, parse_settings
from minirlhf_cli.files import start
from minirlhf_cli.files.sources import OfflineSource, OnlineSource, RewardSource, SFTSource, Source


@dataclass(frozen=True)
class Machine:
    """A machine, and the speed that the plan assumes.

    Attributes:
        memory: bytes.
        usable: fraction of the memory that a run may use; the allocator and other programs need the rest. On a CPU the
            peak of the resident memory in two steps of SFT with smollm2 was 1.18 times the estimate.
        flops: operations per second in a training step.
        bandwidth: bytes per second at which the sampler reads weights and keys and values.
        overhead: seconds that each layer takes for one token of all rows, however few they are.
        source: where these numbers come from.
    """

    memory: float
    usable: float
    flops: float
    bandwidth: float
    overhead: float
    gpu: bool
    source: str


MACHINES = {
    "cpu": Machine(16e9, 0.8, 50e9, 6e9, 0.0, False, "measured with smollm2 on one core of a shared server"),
    "24gb": Machine(24e9, 0.9, 0.4 * 125e12, 600e9, 1e-3, True, "40 % of an NVIDIA A10's data sheet; not measured"),
    "80gb": Machine(80e9, 0.9, 0.4 * 312e12, 2.04e12, 1e-3, True, "40 % of an NVIDIA A100's data sheet; not measured"),
}

#: The sizes of some models on the hub, so that a plan needs no network.
QWEN = {"model_type": "qwen2", "vocab_size": 151936, "num_key_value_heads": 2, "tie_word_embeddings": True}
KNOWN: Mapping[str, Mapping[str, Any]] = {
    "HuggingFaceTB/SmolLM2-135M-Instruct": {
        "model_type": "llama",
        "hidden_size": 576,
        "intermediate_size": 1536,
        "num_hidden_layers": 30,
        "num_attention_heads": 9,
        "num_key_value_heads": 3,
        "vocab_size": 49152,
        "tie_word_embeddings": True,
    },
    "Qwen/Qwen2.5-0.5B-Instruct": QWEN
    | {"hidden_size": 896, "intermediate_size": 4864, "num_hidden_layers": 24, "num_attention_heads": 14},
    "Qwen/Qwen2.5-1.5B-Instruct": QWEN
    | {"hidden_size": 1536, "intermediate_size": 8960, "num_hidden_layers": 28, "num_attention_heads": 12},
    "Qwen/Qwen2.5-7B-Instruct": QWEN
    | {"hidden_size": 3584, "intermediate_size": 18944, "num_hidden_layers": 28, "num_attention_heads": 28}
    | {"num_key_value_heads": 4, "vocab_size": 152064, "tie_word_embeddings": False},
}


def sizes_of(name: str, vocab_size: int) -> ModelSizes:
    """Return the sizes of a model by name: a preset, a folder, a run, or a hub name; no weights are read.

    Args:
        vocab_size: of a preset, whose tokenizer is not yet trained.

    Raises:
        UserError: there is no model of this name, or its memory cannot be estimated.
    """
    if name in tiny.PRESETS:
        sizes = tiny.PRESETS[name]
        heads = sizes.heads
        shape = (sizes.hidden_size, sizes.intermediate_size, sizes.layers, heads, heads, sizes.hidden_size // heads)
        return ModelSizes(*shape, vocab_size, True, False)
    hub_name = pretrained.WHEELS[name].hub if name in pretrained.WHEELS else name
    if hub_name in KNOWN and not Path(name).is_dir():
        return ModelSizes.from_config(KNOWN[hub_name], name)
    if Path(name).is_dir():
        file = model_folder(Path(name)) / "config.json"
        try:
            return ModelSizes.from_config(json.loads(file.read_text(encoding="utf-8")), name)
        except (OSError, ValueError):
            raise UserError(
                f"{file}: cannot be read; expected the configuration of a language model",
                argument="config.json",
                problem="unreadable",
                file=file,
            ) from None
    from transformers import AutoConfig

    try:
        with offline_if_unreachable():
            return ModelSizes.from_config(AutoConfig.from_pretrained(name).to_dict(), name)
    except (OSError, ValueError) as error:
        known = unknown("model", name, [*tiny.PRESETS, *pretrained.WHEELS, *KNOWN])
        raise UserError(
            f"{known}; there is no folder of this name, and the hub did not answer", **known.facts
        ) from error


@dataclass(frozen=True)
class DataSize:
    """What a plan assumes of the data.

    Attributes:
        prompt, completion: tokens; None: half of the run's ``max_length`` each, or 256. A sampled completion has
            ``max_completion_length`` tokens.
        examples: number of training examples, None if it is not known.
    """

    prompt: int | None = None
    completion: int | None = None
    examples: int | None = None


@dataclass(frozen=True)
class RunPlan:
    """What a run needs.

    Attributes:
        prompt, completion: assumed tokens.
        phases: bytes of each part, by phase of a step.
        tokens: tokens per step that the trained model reads; sampled: tokens per step that it writes.
        seconds: time of a step.
        steps: number of steps, None if it depends on the unknown number of examples.
    """

    sizes: ModelSizes
    prompt: int
    completion: int
    phases: Mapping[str, Mapping[str, float]]
    tokens: int
    sampled: int
    seconds: float
    steps: int | None

    @property
    def peak_phase(self) -> str:
        """The phase that needs most memory."""
        return max(self.phases, key=lambda name: sum(self.phases[name].values()))

    @property
    def peak(self) -> float:
        """Bytes of the phase that needs most memory."""
        return sum(self.phases[self.peak_phase].values())

    def fits(self, machine: Machine) -> bool:
        """Return whether the machine's usable memory is sufficient."""
        return self.peak <= machine.usable * machine.memory


def plan(trainer: str, values: Mapping[str, Any], machine: Machine, data: DataSize, where: str) -> RunPlan:
    """Return the plan of ``minirlhf train TRAINER`` with these settings.

    Raises:
        UserError: invalid settings, a trainer that is not planned, or a model whose memory cannot be estimated.
    """
    if trainer not in TRAINERS or TRAINERS[trainer].source not in _PLANNED:
        raise unknown("trainer", trainer, planned_trainers(), file=where)
    source, config, recipe = parse_settings(TRAINERS[trainer], {"out": "runs", **values}, where)
    dtypes = {"float32": FULL, "bfloat16": HALF, "float16": HALF}
    if source.dtype not in dtypes:
        raise unknown("dtype", source.dtype, dtypes, file=where)
    autocast = machine.gpu if source.bf16 is None else source.bf16
    numerics = Numerics(dtypes[source.dtype], autocast, source.lora_r, machine.gpu)
    sizes = sizes_of(source.model, source.vocab_size)
    if sizes.parameters() >= start.PRETRAINED and "max_completion_length" not in values:
        defaults = start.FIT[type(config).__name__]
        config = dataclasses.replace(config, **{k: v for k, v in defaults.items() if k == "max_completion_length"})
    if data.examples is not None:
        config = config.for_examples(data.examples)
    steps = None if config.epochs is not None and data.examples is None else config.max_steps
    samples = hasattr(config, "max_completion_length")
    half = 256 if samples or source.max_length is None else source.max_length // 2
    prompt = data.prompt or half
    completion = config.max_completion_length if samples else data.completion or half
    row = Rows(1, 1, prompt, completion)
    work = _PLANNED[TRAINERS[trainer].source](source, config, recipe, MemoryEstimate(sizes, numerics), machine, row)
    return RunPlan(sizes, prompt, completion, *work, steps)


def planned_trainers() -> list[str]:
    """Return the names of the trainers that can be planned."""
    return [name for name, trainer in TRAINERS.items() if trainer.source in _PLANNED]


def remedy(
    trainer: str, values: Mapping[str, Any], machine: Machine, data: DataSize, where: str
) -> dict[str, Any] | None:
    """Return the settings to change so that the run fits, the fewest changes first; None if none of ours is enough.

    Splitting the batch changes no result. A smaller batch, adapters, weights in 16 bits and shorter texts change the
    training.
    """
    for change in _changes(trainer, values):
        if plan(trainer, {**values, **change}, machine, data, where).fits(machine):
            return change
    return None


def _changes(trainer: str, values: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    _, config, _ = parse_settings(TRAINERS[trainer], {"out": "runs", **values}, "the settings")
    rows = config.batch_size * getattr(config, "num_generations", 1)
    micro = config.micro_batch_size or rows
    adapter = {} if values.get("lora_r") else {"lora_r": 16}
    half = {} if values.get("dtype", "float32") != "float32" else {"dtype": "bfloat16"}
    batches = [{}, *({"batch_size": config.batch_size // n} for n in (2, 4, 8) if config.batch_size >= n)]
    length = "max_completion_length" if hasattr(config, "max_completion_length") else "max_length"
    shorter = {length: int(values[length]) // 2} if values.get(length) else {}
    for weights in ({}, adapter, {**adapter, **half}, {**adapter, **half, **shorter}):
        for batch in batches if hasattr(config, "num_generations") else batches[:1]:
            yield {**weights, **batch}
            yield from ({**weights, **batch, "micro_batch_size": size} for size in _halves(micro))


def _halves(size: int) -> Iterator[int]:
    """Yield the powers of two below ``size``, from the largest."""
    power = 2 ** (math.ceil(math.log2(size)) - 1) if size > 1 else 0
    while power >= 1:
        yield power
        power //= 2


# -- one step of each kind of trainer ------------------------------------------------------------------------------

#: Phases, tokens read, tokens sampled, seconds per step.
Work = tuple[dict[str, dict[str, float]], int, int, float]


def _passes(estimate: MemoryEstimate, rows: Rows, *, train: bool) -> float:
    """Operations of a forward pass, or of a forward and a backward pass, over these rows."""
    per_weight = 2 if not train else 4 if estimate.numerics.lora_r else 6
    head = estimate.sizes.embedding * rows.completion_tokens if estimate.output_layer else 0
    return per_weight * (estimate.sizes.matrices * rows.tokens + head)


def _update(
    estimate: MemoryEstimate, rows: Rows, *, split: bool, others: Mapping[str, float], copies: int = 0
) -> dict[str, dict[str, float]]:
    """Return the phases of an update: the backward pass of one micro-batch, and the optimizer's step."""
    resident = {"weights": estimate.weights, "optimizer": estimate.optimizer, **others}
    backward = {
        "gradients": estimate.gradients if split else 0,
        "activations": estimate.activations(rows),
        "temporary": estimate.temporary(rows, copies=copies),
    }
    return {"update": resident | backward, "optimizer step": resident | {"gradients": estimate.gradients}}


def _fixed_data(estimate: MemoryEstimate, config: Any, machine: Machine, per_example: Rows, **others: float) -> Work:
    """Return the work of training on fixed examples, each with these rows."""
    size = min(config.micro_batch_size or config.batch_size, config.batch_size)
    batch, part = (_times(per_example, count) for count in (config.batch_size, size))
    phases = _update(estimate, part, split=size < config.batch_size, others=others)
    return phases, batch.tokens, 0, _passes(estimate, batch, train=True) / machine.flops


def _times(rows: Rows, count: int) -> Rows:
    return dataclasses.replace(rows, count=rows.count * count, prompts=rows.prompts * count)


def _sft(source: Any, config: Any, recipe: Any, estimate: MemoryEstimate, machine: Machine, row: Rows) -> Work:
    if config.packing:  # source.max_length is the length of a packed row
        row = _times(row, max(1, (source.max_length or 4096) // row.tokens))
    if source.train_on == "all":
        row = dataclasses.replace(row, prompt_length=0, completion_length=row.prompt_length + row.completion_length)
    return _fixed_data(estimate, config, machine, row)


def _reward(source: Any, config: Any, recipe: Any, estimate: MemoryEstimate, machine: Machine, row: Rows) -> Work:
    return _fixed_data(
        dataclasses.replace(estimate, output_layer=False), config, machine, dataclasses.replace(row, count=2)
    )


def _offline(source: Any, config: Any, recipe: Any, estimate: MemoryEstimate, machine: Machine, row: Rows) -> Work:
    rows = row if recipe.needs.record is UnpairedLogps else dataclasses.replace(row, count=2)
    named = source.ref_model is not None and recipe.needs.reference
    reference = FULL * estimate.sizes.parameters() if named else 0
    phases, tokens, sampled, seconds = _fixed_data(estimate, config, machine, rows, reference=reference)
    if recipe.needs.reference:  # its log-probabilities are computed before the first step; here spread over one epoch
        part = _times(rows, config.micro_batch_size or 32)
        phases["reference"] = {
            "weights": estimate.weights,
            "reference": reference,
            "temporary": estimate.forward(part, logits=True),
        }
        seconds += _passes(estimate, _times(rows, config.batch_size), train=False) / machine.flops
    return phases, tokens, sampled, seconds


def _online(source: Any, config: Any, recipe: Any, estimate: MemoryEstimate, machine: Machine, row: Rows) -> Work:
    recipe = generation_settings(recipe, config)
    prompt, completion, group = row.prompt_length, row.completion_length, config.num_generations
    rollout = Rows(config.batch_size * group, config.batch_size, prompt, completion)
    critic = dataclasses.replace(estimate, output_layer=False)
    separate = recipe.credit.critic is not None and not recipe.credit.critic.shared
    others: dict[str, float] = {}
    if recipe.update.kl is not None and source.ref_model is not None:
        others["reference"] = FULL * estimate.sizes.parameters()
    elif recipe.update.kl is not None and not source.lora_r:
        others["reference"] = estimate.weights  # with adapters, the model without them is the reference
    if separate:
        others["critic"] = critic.weights + critic.gradients + critic.optimizer
    if source.reward_model is not None:  # assumed to be as large as the policy
        others["reward model"] = (
            len(source.reward_model.split(",")) * FULL * critic.sizes.parameters(output_layer=False)
        )

    minibatch = math.ceil(rollout.count / recipe.update.num_minibatches)
    size = min(config.micro_batch_size or minibatch, minibatch)
    groups = math.ceil(size / group) if recipe.update.num_minibatches == 1 else size
    part = Rows(size, min(groups, config.batch_size), prompt, completion)
    copies = (config.temperature != 1) + 3 * bool(recipe.update.entropy_coef)
    phases = _update(estimate, part, split=size < minibatch, others=others, copies=copies)
    trained = phases["optimizer step"]
    if recipe.credit.critic is not None:
        phases["critic's update"] = trained | {
            "activations": critic.activations(part),
            "temporary": critic.temporary(part),
        }
    reading = config.micro_batch_size or rollout.count
    if "reference" in others or separate or source.lora_r:
        rows = Rows(reading, min(math.ceil(reading / group), config.batch_size), prompt, completion)
        phases["reference"] = trained | {"temporary": estimate.forward(rows, logits=recipe.update.kl is not None)}
    measures = source.eval_fraction or source.eval_data or source.task
    held_out = (
        256 if measures and config.micro_batch_size is None else 0
    )  # a run that splits its batch splits these too
    sampled_rows = max(rollout.count, held_out)
    prompts = max(rollout.prompts, held_out)
    phases["sampling"] = trained | {
        "keys and values": estimate.cache(sampled_rows, prompt + completion),
        "temporary": max(
            estimate.sampling(sampled_rows), estimate.forward(Rows(prompts, prompts, prompt, 0), logits=False)
        ),
    }

    frozen = ("reference" in others or (source.lora_r and recipe.update.kl is not None)) + separate
    operations = frozen * _passes(estimate, rollout, train=False)
    passes = Rows(
        rollout.count, rollout.count if recipe.update.num_minibatches > 1 else rollout.prompts, prompt, completion
    )
    operations += recipe.update.num_iterations * _passes(estimate, passes, train=True)
    if separate:
        operations += recipe.update.num_iterations * _passes(critic, passes, train=True)
    if source.reward_model is not None:
        operations += _passes(critic, rollout, train=False)
    seconds = operations / machine.flops + sampling_seconds(estimate, rollout, machine)
    return phases, passes.tokens * recipe.update.num_iterations, rollout.completion_tokens, seconds


def sampling_seconds(estimate: MemoryEstimate, rows: Rows, machine: Machine) -> float:
    """Return the time to sample the completions: for each token the time to read all weights, and the keys and values
    of all rows, and the time to compute with them."""
    read_bytes = estimate.numerics.product_bytes
    if estimate.numerics.casts_weights:
        read_bytes = FULL + 2 * HALF  # read, written in 16 bits, and read again
    weights = read_bytes * estimate.sizes.parameters()
    cache = estimate.cache(rows.count, rows.prompt_length + rows.completion_length // 2)
    operations = 2 * estimate.sizes.parameters() * rows.count
    token = (weights + cache) / machine.bandwidth + operations / machine.flops
    prompts = Rows(rows.prompts, rows.prompts, rows.prompt_length, 0)
    overhead = machine.overhead * estimate.sizes.num_hidden_layers
    return rows.completion_length * (token + overhead) + _passes(estimate, prompts, train=False) / machine.flops


_PLANNED: Mapping[type[Source], Callable[..., Work]] = {
    SFTSource: _sft,
    RewardSource: _reward,
    OfflineSource: _offline,
    OnlineSource: _online,
}
