"""Models that learn from models: a table of counts, a normal distribution, and a small language model of documents."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from minirlhf.core.errors import ArgumentError
from minirlhf.core.randomness import derive_seed, generator, numpy_generator
from minirlhf.data import tasks
from minirlhf.models.sampling import Sampling, sample
from minirlhf.models.texts import completion_texts
from minirlhf.stages import pipeline
from minirlhf.trainers.distill import divergence_on_batch
from minirlhf.trainers.sft import SFTConfig, train_sft
from minirlhf_course.chapters.ch18_synthetic_data_and_distillation.documents import as_tokens, likelihoods

#: Samples per generation, generations, independent families, and outcomes; outcome v has a probability ∝ 1/v.
DRAWS, GENERATIONS, FAMILIES, OUTCOMES = 100, 20, 200, 50
WAYS = ("replace", "accumulate", "fresh")
FRESH = 0.1


def truth(outcomes: int = OUTCOMES) -> Tensor:
    """Return the true distribution, Zipf's law ``(V,)``."""
    weights = 1 / torch.arange(1, outcomes + 1, dtype=torch.float64)
    return weights / weights.sum()


def families(way: str, *, seed: int, generations: int = GENERATIONS, count: int = FAMILIES) -> Tensor:
    """Return each family's model after every generation, ``(generations, count, V)``, fitted to ``DRAWS`` samples.

    Args:
        way: what the samples come from. "replace": the last generation's model; "fresh": a mixture of that model and
            the true distribution; "accumulate": the pool of all earlier samples, to which the new samples are added.
    """
    if way not in WAYS:
        raise ArgumentError(f"way = {way!r}; expected one of {WAYS}", argument="way", value=way, expected=WAYS)
    rng, real = generator("ch18", "families", way, seed), truth()
    model, models = real.expand(count, -1), []
    for g in range(1, generations + 1):
        source = FRESH * real + (1 - FRESH) * model if way == "fresh" else model
        samples = torch.multinomial(source, DRAWS, True, generator=rng)  # (count, DRAWS)
        freqs = torch.zeros(model.shape, dtype=torch.float64).scatter_add_(1, samples, torch.ones_like(source[:, :1]).expand(samples.shape)) / DRAWS  # fmt: skip
        model = model + (freqs - model) / g if way == "accumulate" else freqs
        models.append(model)
    return torch.stack(models)


def diversity(models: Tensor) -> Tensor:
    """Return the probability that two samples differ, ``(..., V) -> (...)``."""
    return 1 - (models**2).sum(-1)


def variances(*, seed: int, draws: int = 20, generations: int = 50, count: int = 400) -> Tensor:
    """Fit a normal distribution to its own samples repeatedly and return its variances ``(generations, count)``.

    The first samples come from a variance of 1.
    """
    rng = generator("ch18", "variances", seed)
    mean, variance, history = torch.zeros(count, 1, dtype=torch.float64), torch.ones(count, 1, dtype=torch.float64), []
    for _ in range(generations):
        samples = mean + variance.sqrt() * torch.randn(count, draws, dtype=torch.float64, generator=rng)
        mean, variance = samples.mean(1, keepdim=True), samples.var(1, keepdim=True)
        history.append(variance[:, 0])
    return torch.stack(history)


# -- a language model ----------------------------------------------------------------------------------------------

WORLD: Any = tasks.get("assistant")
#: Documents per generation, most tokens of a document, and held-out real documents.
PAGES, LONGEST, HELD_OUT = 400, 32, 200
#: Training data of the next model; "typical" keeps one of this many pages, the most probable ones.
LINES, TYPICAL = ("replace", "accumulate", "larger", "typical"), 3
GENERATIONS_OF_MODELS = 8
#: Training of each model, from new weights; steps and learning rate are the best of ``study_rates``.
TRAINING = SFTConfig(max_steps=100, batch_size=32, learning_rate=1.2e-2, lr_scheduler_type="linear")


@dataclass(frozen=True)
class Generation:
    """Statistics of one generation's model, on real documents and on the documents that it writes.

    Attributes:
        real_nats: nats per token of held-out real documents.
        triples: distinct word trigrams in the documents that it hands on, relative to as many real documents.
        pages: the documents that it hands on: those that it wrote, or those of them that a filter selects.
    """

    real_nats: float
    triples: float
    pages: list[str]


def real_pages(count: int, name: str, seed: int) -> list[str]:
    """Sample real documents of the task."""
    rng = numpy_generator("ch18", name, seed)
    return [WORLD.document(rng) for _ in range(count)]


def triples(pages: list[str]) -> int:
    """Count the distinct word trigrams."""
    words = [page.split() for page in pages]
    return len({tuple(page_words[i : i + 3]) for page_words in words for i in range(len(page_words) - 2)})


def typical(model: Any, tokenizer: Any, pages: list[str], keep: int) -> list[str]:
    """Return the ``keep`` pages with the highest mean log-probability under a model, in their original order."""
    selected = likelihoods(model, tokenizer, pages, LONGEST).topk(min(keep, len(pages))).indices
    return [pages[i] for i in selected.sort().values]


def lineage(
    way: str, *, seed: int, generations: int, plan: SFTConfig = TRAINING, pages: int = PAGES
) -> list[Generation]:
    """Train a sequence of models, each with the same number of steps.

    The first model is trained on real documents, each later model on documents that the previous model wrote.

    Args:
        way: "replace": only the last model's pages; "accumulate": all pages written so far and the real documents;
            "larger": only the last model's pages, as many as "accumulate" has; "typical": the last model writes three
            times as many pages, and the pages that it finds most probable are kept.
    """
    if way not in LINES:
        raise ArgumentError(f"way = {way!r}; expected one of {LINES}", argument="way", value=way, expected=LINES)
    held_out = real_pages(HELD_OUT, "held out", seed)
    corpus, models = real_pages(pages, "real", seed), []
    num_real = triples(real_pages(pages, "compared", seed))
    for g in range(generations):
        initial = pipeline.fresh(WORLD, seed=derive_seed("ch18", "model", seed, g) % 2**31)
        model, tokenizer = initial.model, initial.tokenizer
        end, pad = tokenizer.eos_token_id, tokenizer.pad_token_id
        train_sft(model, as_tokens(tokenizer, corpus, LONGEST), replace(plan, seed=seed), pad_token_id=pad, quiet=True)
        nats = divergence_on_batch(model, model, as_tokens(tokenizer, held_out, LONGEST), pad_token_id=pad)["loss"]
        count = pages * {"typical": TYPICAL, "larger": g + 2}.get(way, 1)
        rollout = sample(
            model, [[end]] * count, sampling=Sampling(max_completion_length=LONGEST), eos_token_id=end, pad_token_id=pad,
            seed=derive_seed("ch18", "pages", seed), step=g,
        )  # fmt: skip
        new_pages = [page for page in completion_texts(rollout, tokenizer) if page.split()]
        if way == "typical":
            new_pages = typical(model, tokenizer, new_pages, pages)
        models.append(Generation(nats, triples(new_pages[:pages]) / num_real, new_pages))
        corpus = corpus + new_pages if way == "accumulate" else new_pages
    return models
