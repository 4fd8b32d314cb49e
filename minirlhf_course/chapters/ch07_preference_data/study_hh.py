"""The bias battery on 800 real pairs: ``MINIRLHF_HH=FILE python -m minirlhf_course.chapters.ch07_preference_data.study_hh`` (seconds).

It needs a file that is no part of this repository: 800 rows of the harmless part of anthropics/hh-rlhf (MIT licence), JSONL with ``chosen`` and
``rejected``. Only numbers are written down, no texts. A seed draws the pairs again, with replacement; the numbers that are called
``all`` are those of the file as it is. Writes ``study_hh.json``.
"""

import math
import os
from collections.abc import Sequence

import torch
from torch import Tensor

from minirlhf.core.errors import UserError
from minirlhf.core.randomness import generator
from minirlhf.data import loaders
from minirlhf.data.elicitation import as_completion, as_prompt
from minirlhf.data.records import Comparison
from minirlhf.feedback.biases import TRAITS, differences, run_bias_tests
from minirlhf_course.chapters.ch07_preference_data.bank import QUESTIONS, written
from minirlhf_course.evidence import Study


def measure(pairs: Sequence[Comparison], seed: int) -> dict[str, float]:
    """The battery on these pairs, and on as many drawn from them with replacement."""
    apart = differences(pairs)
    again = torch.randint(len(pairs), (len(pairs),), generator=generator("ch07 hh", seed))
    numbers: dict[str, float] = {"pairs": float(len(pairs))}
    for name, x, looked_at in (("all", apart, list(TRAITS)), ("drawn", apart[again], ["length", "apology"])):
        numbers |= {f"{name}_{key}": value for key, value in _numbers(x, looked_at).items()}
    length = apart[:, list(TRAITS).index("length")]  # in doublings
    for name, some in (("near", (length != 0) & (length.abs() <= 0.5)), ("far", length.abs() > 2)):
        numbers |= {f"{name}_differ": float(some.sum()), f"{name}_share": float((length[some] > 0).double().mean())}
    return numbers


def _numbers(x: Tensor, looked_at: Sequence[str]) -> dict[str, float]:
    found = {}
    for one in (row for row in run_bias_tests(x, list(TRAITS)) if row.attribute in looked_at):
        name = one.attribute.replace(" ", "_")
        found[f"{name}_differ"] = float(one.differ)
        if one.differ:
            found[f"{name}_share"], found[f"{name}_p_alone"] = one.fraction, one.p_value
        if math.isfinite(one.weight):
            found[f"{name}_weight"], found[f"{name}_p_beside"] = one.weight, one.joint_p_value
            found[f"{name}_odds"] = float(torch.tensor(one.weight).exp())
            found[f"{name}_smallest_odds"] = float(torch.tensor(one.smallest).exp())
    return found


def one_seed(seed: int) -> dict[str, float]:
    """The file of ``MINIRLHF_HH``.

    Raises:
        UserError: the variable does not name a file.
    """
    file = os.environ.get("MINIRLHF_HH")
    if file is None:
        raise UserError("MINIRLHF_HH is not set; expected 800 rows of anthropics/hh-rlhf (harmless), a JSONL file")
    return measure(loaders.load(file).comparisons(), seed)


def probe() -> dict[str, float | str]:
    """The same on sixty pairs of the chapter's own replies."""
    pairs = []
    for n in range(60):
        question = QUESTIONS[n % len(QUESTIONS)]
        replies = written(question)
        a, b = replies[7 * n % len(replies)], replies[(11 * n + 5) % len(replies)]
        pairs.append(Comparison(as_prompt(question.asks), as_completion(a.text), as_completion(b.text)))
    return dict(measure(pairs, 0))


STUDY = Study(one_seed, probe, seeds=10)

if __name__ == "__main__":
    STUDY.main(__file__)
