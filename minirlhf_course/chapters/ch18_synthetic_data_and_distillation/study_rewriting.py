"""Pages retold as questions: ``python -m minirlhf_course.chapters.ch18_synthetic_data_and_distillation.study_rewriting`` (about two minutes).

Five seeds, each with its own names, rewriter and readers, the readers at two learning rates. Writes ``study_rewriting.json``.
"""

from dataclasses import replace

from minirlhf.trainers.sft import SFTConfig
from minirlhf_course.chapters.ch18_synthetic_data_and_distillation import rewriting
from minirlhf_course.evidence import Study, settings

#: Of the readers, in millionths, as in the names of the numbers.
RATES = (1000, 3000)


def one_seed(
    seed: int, rewriter: SFTConfig = rewriting.REWRITER, reader: SFTConfig = rewriting.READER
) -> dict[str, float]:
    """Return the quality of the rewriter, and the readers' accuracy on names with and without people's questions."""
    home = rewriting.homes(seed)
    told = rewriting.retold(rewriting.rewriter(seed=seed, plan=rewriter), home, seed=seed)
    share = lambda hits: sum(hits) / len(told)
    numbers = {
        "faithful": share(rewriting.faithful(rewriting.page(name, home[name]), text) for name, text in told.items()),
        "true": share(text == f"{rewriting.asked(name)} {home[name]}" for name, text in told.items()),
    }
    for way in rewriting.WAYS:
        texts = rewriting.corpus(way, home, told)
        for rate in RATES:
            model = rewriting.reader(texts, seed=seed, plan=replace(reader, learning_rate=rate / 1e6))
            for name, half in zip(("asked", "others"), rewriting.halves(), strict=True):
                numbers[f"{way}_{name}_{rate}"] = rewriting.right(model, home, half)
    return numbers


def probe() -> dict[str, float | str]:
    """Train a rewriter on some pages, and readers for a few steps."""
    few = replace(rewriting.REWRITER, max_steps=90), replace(rewriting.READER, max_steps=20)
    return one_seed(1, *few) | settings(rewriter=rewriting.REWRITER, reader=rewriting.READER)


STUDY = Study(one_seed, probe, seeds=5)

if __name__ == "__main__":
    STUDY.main(__file__)
