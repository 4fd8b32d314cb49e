"""Measure a saved reward model on comparisons: accuracy, loss and calibration, overall and per subset."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from minirlhf.core.errors import UserError
from minirlhf.data.examples import answer
from minirlhf.data.records import Comparison
from minirlhf.data.types import pair
from minirlhf.equations.reward_losses import bradley_terry_loss, expected_calibration_error
from minirlhf.models import classifiers
from minirlhf.models.heads import HEAD_JSON
from minirlhf.stages import named
from minirlhf.trainers.evaluation import Estimate
from minirlhf.trainers.reward import pair_differences
from minirlhf_cli.files.measure import Measurement


def is_reward_model(name: str) -> bool:
    """Return whether this is a model folder, or a run's folder, that holds a reward model."""
    path = Path(name).expanduser()
    if not path.is_dir():
        return False
    file = named.model_folder(path) / HEAD_JSON
    return file.is_file() or classifiers.is_classifier(named.model_folder(path))


def measure_reward(
    model: Any, tokenizer: Any, comparisons: Sequence[Comparison], *, batch_size: int = 64, draws: int = 1000
) -> list[Measurement]:
    """Measure a reward model on pairs.

    Returns:
        ``accuracy`` (a tie counts one half); ``loss``, nats per pair (ln 2 at chance level); ``calibration error`` of
        σ(difference); ``longer wins``, the accuracy of choosing the longer completion. If the data name subsets, also
        the accuracy on each subset and ``mean of subsets``. 95 % intervals over pairs; the calibration error has a
        bootstrap interval.
    """
    if not comparisons:
        raise UserError("no pairs to compare")
    pairs = [pair(answer(tokenizer, c.prompt, c.chosen), answer(tokenizer, c.prompt, c.rejected)) for c in comparisons]
    difference = pair_differences(model, pairs, pad_token_id=tokenizer.pad_token_id, batch_size=batch_size)
    right = (difference.sign() + 1) / 2
    lengths = torch.tensor([float(len(p.chosen) - len(p.rejected)) for p in pairs])
    longer = (lengths.sign() + 1) / 2
    losses = bradley_terry_loss(difference, torch.zeros_like(difference))
    numbers = [
        Measurement.share("accuracy", float(right.sum()), len(right)),
        Measurement.of("loss (nats)", Estimate.of(losses), len(losses)),
        _calibration(difference, draws),
        Measurement.share("longer wins", float(longer.sum()), len(longer)),
    ]
    indices: dict[str, list[int]] = defaultdict(list)
    for i, comparison in enumerate(comparisons):
        if comparison.subset is not None:
            indices[comparison.subset].append(i)
    subsets = {name: right[torch.tensor(indices[name])] for name in sorted(indices)}
    numbers += [
        Measurement.share(f"accuracy: {name}", float(correct.sum()), len(correct)) for name, correct in subsets.items()
    ]
    if len(subsets) > 1:
        mean = sum(float(correct.mean()) for correct in subsets.values()) / len(subsets)
        stderr = sum(float(correct.var(correction=0)) / len(correct) for correct in subsets.values()) ** 0.5 / len(
            subsets
        )
        numbers.append(Measurement.of("mean of subsets", Estimate(mean, stderr)))
    return numbers


def _calibration(difference: Tensor, draws: int) -> Measurement:
    """Return the calibration error, with both orders of every pair: each probability p has its 1 − p in the bins."""

    def error(rows: Tensor) -> float:
        probabilities = torch.sigmoid(torch.cat([rows, -rows]).double())
        labels = torch.cat([torch.ones_like(rows), torch.zeros_like(rows)]).double()
        return float(expected_calibration_error(probabilities, labels))

    rng = torch.Generator().manual_seed(0)
    resampled = [
        error(difference[torch.randint(len(difference), (len(difference),), generator=rng)]) for _ in range(draws)
    ]
    low, high = torch.tensor(resampled).quantile(torch.tensor([0.025, 0.975])).tolist()
    return Measurement("calibration error", error(difference), low, high)
