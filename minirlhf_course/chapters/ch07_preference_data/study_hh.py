"""The bias battery on 800 real pairs: ``MINIRLHF_HH=FILE python -m minirlhf_course.chapters.ch07_preference_data.study_hh`` (seconds).

It needs a file that is not part of this repository: 800 rows of the harmless part of anthropics/hh-rlhf (MIT licence), JSONL with ``chosen`` and
``rejected``. How these rows were chosen is not known. The SHA-256 digest of the file is
dfabb8cb321b647b06f7dc97e9eeb21de738f3880654bd1cf788b8628915457f. Only numbers are stored, no texts. A seed draws the resamples of the
bootstrap; all other numbers are equal for all seeds. Writes ``study_hh.json``.
"""

import itertools
import math
from collections.abc import Sequence

import torch
from torch import Tensor

from minirlhf.core.randomness import generator
from minirlhf.core.statistics import holm, sign_test
from minirlhf.data import loaders
from minirlhf.data.elicitation import as_completion, as_prompt
from minirlhf.data.records import Comparison
from minirlhf.feedback.biases import FEWEST, TRAITS, differences, fit_pairs, run_bias_tests
from minirlhf_course.chapters.ch07_preference_data.bank import QUESTIONS, written
from minirlhf_course.evidence import Study, real_file

QUARTERS = 4
LENGTH = list(TRAITS).index("length")
NAMES = [name.replace(" ", "_") for name in TRAITS if name != "length"]
#: Standard deviation of the prior in the fits of the bootstrap, in units of a column's root mean square. It keeps a weight finite
#: when a resample separates a rare trait.
PRIOR_STD = 10.0


def split_length(traits: Tensor) -> tuple[Tensor, list[float]]:
    """Split the difference in length into one column per quarter of its size ``(N, 4)``; also return the edges, in doublings."""
    length = traits[:, LENGTH]
    sizes = length[length != 0].abs()
    edges = [0.0, *torch.quantile(sizes, torch.arange(1, QUARTERS + 1, dtype=sizes.dtype) / QUARTERS).tolist()]
    within = [(length.abs() > low) & (length.abs() <= high) for low, high in itertools.pairwise(edges)]
    return torch.stack([torch.where(here, length, 0.0) for here in within], -1), edges


def measure(pairs: Sequence[Comparison], seed: int, resamples: int) -> dict[str, float]:
    """Run the battery on these pairs, with percentile intervals from resampled pairs."""
    traits = differences(pairs)
    quarters, edges = split_length(traits)
    others = torch.cat([traits[:, :LENGTH], traits[:, LENGTH + 1 :]], -1)
    x, names = torch.cat([quarters, others], -1), [*(f"length_{k + 1}" for k in range(QUARTERS)), *NAMES]
    numbers = {"pairs": float(len(pairs))} | {f"edge_{k}": edge for k, edge in enumerate(edges)}
    numbers |= _findings(x, names) | _overall(traits[:, LENGTH], quarters)
    kept = [j for j in range(x.shape[1]) if int((x[:, j] != 0).sum()) >= FEWEST]
    draws: dict[str, list[float]] = {}
    rng = generator("ch07 hh", seed)
    for _ in range(resamples):
        again = x[torch.randint(len(x), (len(x),), generator=rng)]
        odds = fit_pairs(again[:, kept], prior_std=PRIOR_STD).weights.exp().tolist()
        for j, value in zip(kept, odds, strict=True):
            draws.setdefault(f"{names[j]}_odds", []).append(value)
        for j in range(QUARTERS):
            draws.setdefault(f"{names[j]}_share", []).append(_share(again[:, j]))
    levels = torch.tensor([0.025, 0.975], dtype=torch.float64)
    for name, values in draws.items():
        low, high = torch.quantile(torch.tensor(values, dtype=torch.float64), levels).tolist()
        numbers |= {f"{name}_low": low, f"{name}_high": high}
    return numbers


def _share(column: Tensor) -> float:
    """Return the fraction of the pairs that differ in which the chosen completion has more."""
    return float((column[column != 0] > 0).double().mean())


def _overall(length: Tensor, quarters: Tensor) -> dict[str, float]:
    """Return the fraction of pairs that the longer completion wins, and p of each quarter, by Holm over the quarters."""
    p_values = holm([sign_test(int((q > 0).sum()), int((q < 0).sum())) for q in quarters.T])
    overall = {"length_differ": float((length != 0).sum()), "length_share": _share(length)}
    return overall | {f"length_{k + 1}_p_quarters": p for k, p in enumerate(p_values)}


def _findings(x: Tensor, names: Sequence[str]) -> dict[str, float]:
    numbers = {}
    for finding in run_bias_tests(x, names):
        name = finding.attribute
        numbers[f"{name}_differ"] = float(finding.differ)
        if finding.differ:
            numbers[f"{name}_share"], numbers[f"{name}_p_alone"] = finding.fraction, finding.p_value
        if math.isfinite(finding.weight):
            numbers[f"{name}_odds"], numbers[f"{name}_p_beside"] = math.exp(finding.weight), finding.joint_p_value
            numbers[f"{name}_smallest_odds"] = math.exp(finding.smallest)
    return numbers


def one_seed(seed: int) -> dict[str, float]:
    """Measure the file of ``MINIRLHF_HH``."""
    return measure(loaders.load(real_file("MINIRLHF_HH")).comparisons(), seed, 1000)


def probe() -> dict[str, float | str]:
    """Measure sixty pairs of the chapter's own completions."""
    pairs = []
    for n in range(60):
        question = QUESTIONS[n % len(QUESTIONS)]
        completions = written(question)
        a, b = (completions[k % len(completions)] for k in (7 * n, 11 * n + 5))
        pairs.append(Comparison(as_prompt(question.asks), as_completion(a.text), as_completion(b.text)))
    return dict(measure(pairs, 0, 20))


STUDY = Study(one_seed, probe, seeds=5)

if __name__ == "__main__":
    STUDY.main(__file__)
