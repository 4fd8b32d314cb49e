"""Models that learn from models: a table of counts, a normal distribution, and a small language model that writes documents."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from minirlhf.chapters.ch18_synthetic_data_and_distillation.documents import as_tokens, likelihoods
from minirlhf.core.errors import ArgumentError
from minirlhf.core.randomness import derive_seed, generator, numpy_generator
from minirlhf.data import tasks
from minirlhf.models.sampling import Sampling, sample
from minirlhf.models.texts import completion_texts
from minirlhf.stages import pipeline
from minirlhf.trainers.distill import divergence_on_batch
from minirlhf.trainers.sft import SFTConfig, train_sft

#: Draws of a generation, generations, families that are followed, and outcomes, the v-th with a probability like 1/v.
DRAWS, GENERATIONS, FAMILIES, OUTCOMES = 100, 20, 200, 50
WAYS = ("replace", "accumulate", "fresh")
FRESH = 0.1


def truth(outcomes: int = OUTCOMES) -> Tensor:
    """Zipf's law ``(V,)``."""
    weights = 1 / torch.arange(1, outcomes + 1, dtype=torch.float64)
    return weights / weights.sum()


def families(way: str, *, seed: int, generations: int = GENERATIONS, count: int = FAMILIES) -> Tensor:
    """What each family's model says after every generation, ``(generations, count, V)``; each generation is ``DRAWS`` draws.

    Args:
        way: "replace": of the last generation; "fresh": of a mixture of that with the truth; "accumulate": of the pool of all draws
            before, which they join.
    """
    if way not in WAYS:
        raise ArgumentError(f"way = {way!r}; expected one of {WAYS}", argument="way", value=way, expected=WAYS)
    rng, real = generator("ch18", "families", way, seed), truth()
    model, found = real.expand(count, -1), []
    for g in range(1, generations + 1):
        source = FRESH * real + (1 - FRESH) * model if way == "fresh" else model
        drawn = torch.multinomial(source, DRAWS, True, generator=rng)  # (count, DRAWS)
        shares = torch.zeros(model.shape, dtype=torch.float64).scatter_add_(1, drawn, torch.ones_like(source[:, :1]).expand(drawn.shape)) / DRAWS  # fmt: skip
        model = model + (shares - model) / g if way == "accumulate" else shares
        found.append(model)
    return torch.stack(found)


def diversity(models: Tensor) -> Tensor:
    """That two draws differ, ``(..., V) -> (...)``."""
    return 1 - (models**2).sum(-1)


def variances(*, seed: int, draws: int = 20, generations: int = 50, count: int = 400) -> Tensor:
    """Of a normal distribution that is fitted to its own draws again and again: ``(generations, count)``, at first 1."""
    rng = generator("ch18", "variances", seed)
    mean, variance, found = torch.zeros(count, 1, dtype=torch.float64), torch.ones(count, 1, dtype=torch.float64), []
    for _ in range(generations):
        drawn = mean + variance.sqrt() * torch.randn(count, draws, dtype=torch.float64, generator=rng)
        mean, variance = drawn.mean(1, keepdim=True), drawn.var(1, keepdim=True)
        found.append(variance[:, 0])
    return torch.stack(found)


# -- a language model ----------------------------------------------------------------------------------------------

WORLD: Any = tasks.get("assistant")
#: Documents that each generation has, tokens of a document at most, and the training of each model, from new weights.
PAGES, LONGEST, HELD_OUT = 400, 32, 200
#: What the next model reads; and of how many pages one stays, where the likeliest do.
LINES, TYPICAL = ("replace", "accumulate", "larger", "typical"), 3
GENERATIONS_OF_MODELS = 8
#: Steps and rate are the best of ``study_rates``.
TRAINING = SFTConfig(max_steps=100, batch_size=32, learning_rate=1.2e-2, lr_scheduler_type="linear")


@dataclass(frozen=True)
class Generation:
    """A model of some generation, judged by real documents and by what it writes.

    Attributes:
        real_nats: nats per token of real documents that nobody was trained on.
        triples: different runs of three words in what it hands on, as a share of those in as many real documents.
        pages: the documents that it hands on: those that it wrote, or what a filter keeps of them.
    """

    real_nats: float
    triples: float
    pages: list[str]


def real_pages(count: int, name: str, seed: int) -> list[str]:
    """Documents of the world."""
    rng = numpy_generator("ch18", name, seed)
    return [WORLD.document(rng) for _ in range(count)]


def triples(pages: list[str]) -> int:
    """Different runs of three words."""
    words = [page.split() for page in pages]
    return len({tuple(one[i : i + 3]) for one in words for i in range(len(one) - 2)})


def typical(model: Any, tokenizer: Any, pages: list[str], keep: int) -> list[str]:
    """The pages whose tokens a model finds likeliest on average, in their order."""
    kept = likelihoods(model, tokenizer, pages, LONGEST).topk(min(keep, len(pages))).indices
    return [pages[i] for i in kept.sort().values]


def lineage(
    way: str, *, seed: int, generations: int, plan: SFTConfig = TRAINING, pages: int = PAGES
) -> list[Generation]:
    """Model after model, the first on real documents, each later one on what the model before wrote, with as many training steps.

    Args:
        way: "replace": the last model's pages only; "accumulate": all that was ever written, the real documents, too; "larger": the last
            model's pages only, as many as "accumulate" has; "typical": the last model writes three times as many, and those stay that it
            finds likeliest.
    """
    if way not in LINES:
        raise ArgumentError(f"way = {way!r}; expected one of {LINES}", argument="way", value=way, expected=LINES)
    held_out = real_pages(HELD_OUT, "held out", seed)
    corpus, found = real_pages(pages, "real", seed), []
    seen = triples(real_pages(pages, "compared", seed))
    for g in range(generations):
        start = pipeline.fresh(WORLD, seed=derive_seed("ch18", "model", seed, g) % 2**31)
        model, tokenizer = start.model, start.tokenizer
        end, pad = tokenizer.eos_token_id, tokenizer.pad_token_id
        train_sft(model, as_tokens(tokenizer, corpus, LONGEST), replace(plan, seed=seed), pad_token_id=pad, quiet=True)
        nats = divergence_on_batch(model, model, as_tokens(tokenizer, held_out, LONGEST), pad_token_id=pad)["loss"]
        count = pages * {"typical": TYPICAL, "larger": g + 2}.get(way, 1)
        rollout = sample(
            model, [[end]] * count, sampling=Sampling(max_completion_length=LONGEST), eos_token_id=end, pad_token_id=pad,
            seed=derive_seed("ch18", "pages", seed), step=g,
        )  # fmt: skip
        written = [page for page in completion_texts(rollout, tokenizer) if page.split()]
        if way == "typical":
            written = typical(model, tokenizer, written, pages)
        found.append(Generation(nats, triples(written[:pages]) / seen, written))
        corpus = corpus + written if way == "accumulate" else written
    return found
