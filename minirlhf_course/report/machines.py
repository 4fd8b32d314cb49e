"""The numbers of the page on distributed training, from memory profiles of models and the data sheet of one
accelerator."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import torch
from transformers import LlamaConfig

from minirlhf.equations import machines as equations
from minirlhf.models import memory_profile, tiny
from minirlhf.models.memory_profile import MemoryProfile

Table = list[list[str]]

# The data sheet of the page's accelerator (NVIDIA H100 SXM): bytes of memory, bytes per second from memory, dense
# bfloat16 FLOP/s.
MEMORY, BANDWIDTH, PEAK = 80e9, 3.35e12, 989e12
LINK, NETWORK = 450e9, 50e9  # bytes/s in each direction: between the eight GPUs of a node; between nodes (400 Gbit/s)
USED = 0.4  # the fraction of PEAK that a training step reaches
WIDTH, ROWS, REPLIES, BATCH = (
    1024,
    8,
    512,
    256,
)  # tokens of a completion, rows of a training batch, completions of a rollout, completions sampled at once
GROUP = 8  # machines that share a model


def _shape(hidden: int, mlp: int, layers: int, heads: int, kv_heads: int, *, vocab: int, tied: bool) -> LlamaConfig:
    return LlamaConfig(
        hidden_size=hidden,
        intermediate_size=mlp,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        num_key_value_heads=kv_heads,
        vocab_size=vocab,
        tie_word_embeddings=tied,
    )


@cache
def models() -> dict[str, MemoryProfile]:
    """Return the profiles of the tiny preset ``micro`` and of three shapes of Llama 3 and 3.2."""
    micro = tiny.PRESETS["micro"]
    sizes = (micro.hidden_size, micro.intermediate_size, micro.layers, micro.heads, micro.heads)
    shapes = {
        "micro": _shape(*sizes, vocab=100, tied=True),
        "1 B": _shape(2048, 8192, 16, 32, 8, vocab=128256, tied=True),
        "8 B": _shape(4096, 14336, 32, 32, 8, vocab=128256, tied=False),
        "70 B": _shape(8192, 28672, 80, 64, 8, vocab=128256, tied=False),
    }
    return {name: memory_profile.profile_memory(shape, width=WIDTH) for name, shape in shapes.items()}


def size(count: float) -> str:
    """Format bytes with two or three digits: "131 kB", "16.1 GB"."""
    units = ((1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB"))
    unit, name = next((pair for pair in units if count >= 0.9995 * pair[0]), units[-1])
    scaled = count / unit
    return f"{scaled:.0f}\u00a0{name}" if scaled >= 99.95 else f"{scaled:.1f}\u00a0{name}"


def duration(seconds: float) -> str:
    """Format a duration in seconds or milliseconds with two or three digits."""
    scaled, name = (seconds, "s") if seconds >= 0.9995 else (seconds * 1e3, "ms")
    return f"{scaled:.0f}\u00a0{name}" if scaled >= 99.95 else f"{scaled:.1f}\u00a0{name}"


# -- tables --------------------------------------------------------------------------------------------------------


def step() -> Table:
    """Return the memory of a training step and of a rollout, for each model."""
    tokens = ROWS * WIDTH
    lines = {
        "parameters": lambda m: f"{m.parameters / 1e9:.2f}\u00a0B" if m.parameters > 1e8 else f"{m.parameters / 1e6:.1f}\u00a0M",
        "weights": lambda m: size(equations.WEIGHTS * m.parameters),
        "gradients": lambda m: size(equations.GRADIENTS * m.parameters),
        "master copy and Adam's moments": lambda m: size(equations.OPTIMIZER * m.parameters),
        f"activations of {tokens:,} tokens": lambda m: size(tokens * m.activations),
        "… and attention's tables, if they are written out": lambda m: size(tokens * m.tables),
        "… or the layers' inputs, and one layer (checkpointing)": lambda m: size(tokens * m.checkpointed),
        "logits of these tokens": lambda m: size(tokens * m.logits),
        f"keys and values of {REPLIES} replies": lambda m: size(REPLIES * WIDTH * m.cache),
    }  # fmt: skip
    return [["", *models()], *([name, *map(cell, models().values())] for name, cell in lines.items())]


def sharded() -> Table:
    """Return the bytes per machine by sharding stage and number of machines, and the relative traffic of a step."""
    table = [["what is divided", *(f"{name}, N\u00a0=\u00a0{n}" for name in ("8 B", "70 B") for n in (8, 64)), "sent"]]
    for stage, name in enumerate(("nothing", "master copy and moments", "… and gradients", "… and weights")):
        cells = [size(held(model, count, stage)) for model in ("8 B", "70 B") for count in (8, 64)]
        table.append([name, *cells, "× 1.5" if stage == 3 else "× 1"])
    return table


def held(model: str, count: int, stage: int) -> float:
    """Return the bytes of training state per machine."""
    return float(equations.training_bytes(_number(models()[model].parameters), machines=count, stage=stage))


def bubbles() -> Table:
    """Return the idle fraction of a pipeline."""
    table = [["micro-batches", *(f"{stages} stages" for stages in (2, 4, 8, 16))]]
    for count in (1, 4, 16, 64):
        table.append([str(count), *(f"{equations.pipeline_bubble(stages, count):.2f}" for stages in (2, 4, 8, 16))])
    return table


@dataclass(frozen=True)
class Decoding:
    """Decoding of completions in one batch, with half of each written on average: the minimum time per step, and the
    maximum rate."""

    replies: int

    @property
    def seconds(self) -> float:
        """The minimum seconds per step: all multiplied weights are read once, and the keys and values of every
        completion."""
        model = models()["8 B"]
        return (equations.WEIGHTS * model.multiplied + self.replies * WIDTH / 2 * model.cache) / BANDWIDTH

    @property
    def rate(self) -> float:
        """Tokens per second, over all completions."""
        return self.replies / self.seconds

    @property
    def busy(self) -> float:
        """The used fraction of the accelerator's peak: two operations per multiplied weight and token."""
        return 2 * models()["8 B"].multiplied * self.rate / PEAK


def decoding() -> Table:
    """Return the speed of sampling from the 8 B model on one machine, limited by memory reads, by batch size."""
    table = [["replies at once", "a step", "tokens/s, each", "tokens/s, all", "arithmetic used"]]
    for count in (1, 16, 64, BATCH):
        d = Decoding(count)
        table.append([str(count), duration(d.seconds), f"{d.rate / count:.0f}", f"{d.rate:,.0f}", f"{d.busy:.1%}"])
    return table


def longest() -> Table:
    """Return the relative length of the longest of n completions, and the utilisation of a batch that waits for it."""
    counts = (1, 8, 64, BATCH, REPLIES)
    lengths = [equations.expected_max_over_mean(n) for n in counts]
    return [
        ["replies", *map(str, counts)],
        ["longest over mean", *(f"{x:.1f}" for x in lengths)],
        ["places in use", *(f"{1 / x:.0%}" for x in lengths)],
    ]


def staleness_table() -> Table:
    """Return the effective fraction of samples, by a token's standard deviation and a completion's length."""
    lengths = (10, 100, 1_000, 10_000)
    table = [["σ of a token", *(f"{n:,} tokens" for n in lengths)]]
    for std in (0.003, 0.01, 0.03, 0.1):
        fractions = (float(equations.effective_share(_number(std), tokens=n)) for n in lengths)
        table.append([f"{std:g}", *map(_share, fractions)])
    return table


def _share(value: float) -> str:
    if value >= 0.005:
        return f"{value:.2f}"
    return f"1 in {1 / value:,.0f}" if value > 1e-9 else "none"


TABLES = {
    "step": step,
    "sharded": sharded,
    "bubbles": bubbles,
    "decoding": decoding,
    "longest": longest,
    "old": staleness_table,
}


# -- single numbers ------------------------------------------------------------------------------------------------


def _number(value: float) -> torch.Tensor:
    return torch.tensor(float(value), dtype=torch.float64)


def facts() -> dict[str, str]:
    """Return the numbers in the page's sentences, by name."""
    eight, seventy = models()["8 B"], models()["70 B"]
    weights = equations.WEIGHTS * eight.parameters
    tokens = REPLIES * WIDTH
    training = 6 * eight.multiplied * tokens / (USED * PEAK)
    sampling = tokens / Decoding(BATCH).rate
    gradients = float(equations.all_reduce_bytes(_number(equations.GRADIENTS * eight.parameters), machines=GROUP))
    layer = float(equations.all_reduce_bytes(_number(tokens * eight.inputs), machines=GROUP))
    split = float(equations.sampling_share(_number(sampling), _number(training)))
    single = Decoding(1)
    return {
        "state-8": size(held("8 B", 1, 0)),
        "state-70": size(held("70 B", 1, 0)),
        "weights": size(weights),
        "cache": size(eight.cache),
        "caches": size(tokens * eight.cache),
        "caches-batch": size(BATCH * WIDTH * eight.cache),
        "together": size(weights + tokens * eight.cache),
        "memory": size(MEMORY),
        "kept": size(eight.activations),
        "kept-numbers": f"{eight.activations / eight.inputs:.0f}",
        "replies": str(REPLIES),
        "batch": str(BATCH),
        "width": f"{WIDTH:,}",
        "bandwidth": f"{BANDWIDTH / 1e12:g}\u00a0TB/s",
        "peak": f"{PEAK / 1e12:.0f}",
        "used": f"{USED:.0%}".replace("%", "\u00a0%"),
        "link": f"{LINK / 1e9:.0f}\u00a0GB/s",
        "network": f"{NETWORK / 1e9:.0f}\u00a0GB/s",
        "tables-ratio": f"{eight.tables / eight.activations:.1f}",
        "inputs-ratio": f"{eight.activations / eight.checkpointed:.0f}",
        "fewest-70": str(next(n for n in range(1, 1000) if held("70 B", n, 3) < MEMORY)),
        "cache-ratio": f"{seventy.cache / eight.cache:.1f}",
        "gradients": size(gradients),
        "gradient-seconds": duration(gradients / NETWORK),
        "tensor": size(4 * layer),
        "tensor-network": duration(4 * layer / NETWORK),
        "tensor-link": duration(4 * layer / LINK),
        "training": duration(training),
        "training-group": duration(training / GROUP),
        "sampling": duration(sampling),
        "sampling-group": duration(sampling / GROUP),
        "rollout": f"{tokens:,}",
        "speedup": f"{Decoding(BATCH).rate / single.rate:.0f}",
        "idle": f"{single.busy:.1%}",
        "split": f"{split:.2f}",
        "sync": duration(weights / NETWORK),
        "sync-share": f"{weights / NETWORK / ((training + sampling) / GROUP):.1%}",
        "longest-batch": f"{equations.expected_max_over_mean(BATCH):.1f}",
    }
