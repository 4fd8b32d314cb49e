"""A linear reward on a pretrained model's features: ``MINIRLHF_HH=FILE python -m minirlhf_course.chapters.ch08_reward_models.study_frozen`` (about seven minutes of one core).

The file is that of ``study_real``, whose folds it uses: 800 rows of the harmless part of anthropics/hh-rlhf (MIT licence), not part of this
repository. The model is SmolLM2-135M-Instruct (``make real``). Only numbers are stored, no texts; ``digest`` is the
number in the first twelve hex digits of the file's SHA-256. Writes ``study_frozen.json``.
"""

import hashlib

from minirlhf.core.randomness import threads
from minirlhf.data import loaders, tasks
from minirlhf.models.loading import load_model
from minirlhf.models.tiny import tiny_model
from minirlhf.models.tokenizers import word_tokenizer
from minirlhf_course.chapters.ch08_reward_models.frozen import MODEL, FrozenPlan, evaluate
from minirlhf_course.chapters.ch08_reward_models.real_pairs import toy_pairs
from minirlhf_course.evidence import Study, real_file, settings


def one_seed(seed: int) -> dict[str, float]:
    """The file of ``MINIRLHF_HH``; nothing is drawn at random, so there is one run."""
    file = real_file("MINIRLHF_HH")
    digest = hashlib.sha256(file.read_bytes()).hexdigest()
    with threads(1):
        numbers = evaluate(loaders.load(file).comparisons(), FrozenPlan(), *load_model(MODEL, complete_tokenizer=True))
    return numbers | {"digest": float(int(digest[:12], 16))}


def probe() -> dict[str, float | str]:
    """The same with an untrained tiny model, on forty pairs of the assistant world."""
    task = tasks.get("assistant")
    tokenizer = word_tokenizer(task.words)
    return evaluate(toy_pairs(40), FrozenPlan(), tiny_model("nano", tokenizer, seed=0), tokenizer) | settings(
        plan=FrozenPlan()
    )


STUDY = Study(one_seed, probe, seeds=1)

if __name__ == "__main__":
    STUDY.main(__file__)
