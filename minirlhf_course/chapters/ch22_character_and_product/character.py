"""An assistant with two switches in its system prompt, and a character that is trained into it from its own ranking
of its own completions.

The trait is warmth: a completion is *warm* if it has a polite word and a word of praise. No annotator labels anything.
The model ranks its own completions by how much more probable each becomes when the system prompt says ``be warm``.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from minirlhf.core.calling import evaluating
from minirlhf.core.randomness import numpy_generator
from minirlhf.core.statistics import holm, sign_test
from minirlhf.data.chat import encode, encode_prompt
from minirlhf.data.collate import collate_completions
from minirlhf.data.records import Message
from minirlhf.data.tasks.assistant import AND, ASSISTANT, FACTS, FILLER, POLITE, PRAISE, features, gold
from minirlhf.data.types import PreferenceExample, Tokens, pair
from minirlhf.models.reference import preference_logps
from minirlhf.models.sampling import Sampling, sample
from minirlhf.models.texts import completion_texts
from minirlhf.models.tiny import tiny_model
from minirlhf.models.tokenizers import word_tokenizer
from minirlhf.stages.pipeline import Trained
from minirlhf.trainers.offline import OfflineConfig
from minirlhf.trainers.sft import SFTConfig, train_sft
from minirlhf_course.chapters.ch22_character_and_product.equations import trait_score

#: What a system prompt may ask for. "warm short" is in no training example.
TOGGLES = ("", "warm", "short", "long", "warm long", "warm short")
_TRAINED = ("", "", "warm", "short", "long", "warm long")
EXAMPLES = 6000
BASE = SFTConfig(max_steps=350, batch_size=48, learning_rate=3e-3, lr_scheduler_type="linear")
#: Number of queries, and of completions for each, from which the character is learned.
QUERIES, ANSWERS = 256, 4
BETA = 0.2
DPO = OfflineConfig(max_steps=30, batch_size=32, learning_rate=3e-4, lr_scheduler_type="linear")
IMITATE = SFTConfig(max_steps=30, batch_size=32, learning_rate=1e-3, lr_scheduler_type="linear")


def asked(prompt: str, toggle: str = "") -> list[Message]:
    """Return the question under a system prompt such as ``be warm be short``; without a system prompt for ``""``."""
    system = " ".join(f"be {word}" for word in toggle.split())
    return [*([{"role": "system", "content": system}] if system else []), {"role": "user", "content": prompt}]


def _with_reply(prompt: str, toggle: str, completion: str) -> list[Message]:
    return [*asked(prompt, toggle), {"role": "assistant", "content": completion}]


def demonstration(prompt: str, toggle: str, rng: np.random.Generator) -> str:
    """Return what a person writes for this prompt and toggle. Without a toggle it is the usual demonstration. With a
    toggle it has no chatter and as many facts as the length allows; if it is to be warm, also a polite word,
    praise and sometimes *thanks!*."""
    usual = ASSISTANT.demonstration(prompt, rng)
    if not toggle:
        return usual
    animals = list(dict.fromkeys(word for word in prompt.split() if word in FACTS))
    plain = " ".join(word for word in usual.split() if word not in {*POLITE, *PRAISE, *FILLER})
    if "short" in toggle:
        plain = f"{animals[0]} {rng.choice(FACTS[animals[0]])}"
    elif "long" in toggle:
        plain = f" {AND} ".join(f"{animal} {f' {AND} '.join(rng.permutation(FACTS[animal]))}" for animal in animals)
    if "warm" not in toggle:
        return plain
    thanks = " thanks!" if rng.random() < 0.3 else ""
    return f"{rng.choice(POLITE[:2])} {rng.choice(PRAISE)} {plain}{thanks}"


def base(plan: SFTConfig, *, examples: int = EXAMPLES, quiet: bool = True) -> Trained:
    """Train a small assistant that knows the toggles, from random weights."""
    tokenizer = word_tokenizer(list(dict.fromkeys([*ASSISTANT.words, "be", "warm", "short", "long"])))
    model, rng, prompts = (
        tiny_model("nano", tokenizer, seed=plan.seed),
        numpy_generator("toggles", plan.seed),
        ASSISTANT.prompts("train"),
    )
    rows = []
    for i in range(examples):
        prompt, toggle = prompts[rng.integers(len(prompts))], _TRAINED[i % len(_TRAINED)]
        rows.append(encode(tokenizer, _with_reply(prompt, toggle, demonstration(prompt, toggle, rng))))
    history = train_sft(model, rows, plan, pad_token_id=tokenizer.pad_token_id, quiet=quiet)
    return Trained(model, tokenizer, history)


def replies(trained: Trained, prompts: Sequence[str], toggle: str = "", *, seed: int, each: int = 1) -> list[list[str]]:
    """Sample ``each`` completions for every prompt."""
    tokenizer = trained.tokenizer
    rollout = sample(
        trained.model,
        [encode_prompt(tokenizer, asked(prompt, toggle)) for prompt in prompts],
        sampling=Sampling(max_completion_length=ASSISTANT.max_completion_length),
        num_generations=each,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
        seed=seed,
    )
    texts = completion_texts(rollout, tokenizer)
    return [texts[i : i + each] for i in range(0, len(texts), each)]


@torch.no_grad()
def likelihoods(trained: Trained, prompts: Sequence[str], answers: Sequence[str], toggle: str) -> Tensor:
    """Return log π(completion | system prompt, question), ``(N,)``."""
    rows = [encode(trained.tokenizer, _with_reply(p, toggle, y)) for p, y in zip(prompts, answers, strict=True)]
    with evaluating(trained.model):
        return preference_logps(trained.model, collate_completions(rows, trained.tokenizer.pad_token_id))


def warm(reply: str) -> bool:
    """Return whether a completion has a polite word and a word of praise."""
    words = set(reply.split())
    return bool(words & set(POLITE)) and bool(words & set(PRAISE))


#: What must and should hold of a completion, as programs: the specification of this assistant.
RULES: dict[str, Callable[[str, str], bool]] = {
    "no_wrong": lambda prompt, completion: features(prompt, completion).wrong == 0,
    "answers": lambda prompt, completion: features(prompt, completion).facts >= 1,
    "one_polite": lambda prompt, completion: features(prompt, completion).polite <= 1,
    "no_filler": lambda prompt, completion: features(prompt, completion).filler == 0,
    "ten_words": lambda prompt, completion: features(prompt, completion).length <= 10,
    "warm": lambda prompt, completion: warm(completion),
}


def kept(prompts: Sequence[str], answers: Sequence[str]) -> dict[str, Tensor]:
    """Return which completions satisfy each of the :data:`RULES`, ``(N,)``."""
    rows = list(zip(prompts, answers, strict=True))
    return {name: torch.tensor([rule(p, y) for p, y in rows]) for name, rule in RULES.items()}


def measured(prompts: Sequence[str], answers: Sequence[str]) -> dict[str, float]:
    """Return the fraction of completions that satisfy each rule, and means: the ``gold`` reward, true ``facts``,
    polite words (``polite``), ``words``."""
    counts = [features(prompt, answer) for prompt, answer in zip(prompts, answers, strict=True)]
    mean = lambda values: float(np.mean(list(values)))
    return {name: float(satisfied.double().mean()) for name, satisfied in kept(prompts, answers).items()} | {
        "gold": mean(map(gold, counts)),
        "facts": mean(c.facts for c in counts),
        "polite": mean(c.polite for c in counts),
        "words": mean(c.length for c in counts),
    }


def alarms(before: Mapping[str, Tensor], after: Mapping[str, Tensor], *, level: float = 0.05) -> dict[str, float]:
    """Return 1 for each rule that significantly fewer completions satisfy than before, by the sign test on the same
    prompts with Holm's correction over all rules; else 0."""
    lost = {name: int((before[name] & ~after[name]).sum()) for name in before}
    won = {name: int((~before[name] & after[name]).sum()) for name in before}
    p_values = holm([sign_test(won[name], lost[name]) for name in before])
    return {name: float(lost[name] > won[name] and p < level) for name, p in zip(before, p_values, strict=True)}


# -- trait, queries, answers, ranking ------------------------------------------------------------------------------


@dataclass(frozen=True)
class Ranked:
    """Completions of a model, and its own score of each.

    Attributes:
        prompts: ``Q`` questions.
        answers: ``Q`` lists of ``K`` completions, sampled without a system prompt.
        scores: ``(Q, K)``, how much more probable each becomes under the trait.
    """

    prompts: list[str]
    answers: list[list[str]]
    scores: Tensor

    def pairs(self, tokenizer: Any, scores: Tensor) -> list[PreferenceExample]:
        """Return preference pairs: for each question the completion with the highest score against the one with the
        lowest; pairs of equal completions are left out."""
        best, worst = scores.argmax(1).tolist(), scores.argmin(1).tolist()
        chosen = [(p, a[i], a[j]) for p, a, i, j in zip(self.prompts, self.answers, best, worst, strict=True)]
        as_tokens = lambda p, y: encode(tokenizer, _with_reply(p, "", y))
        return [pair(as_tokens(p, good), as_tokens(p, bad)) for p, good, bad in chosen if good != bad]

    def best(self, tokenizer: Any) -> list[Tokens]:
        """Return the completion with the highest score for each question, to imitate."""
        top = self.scores.argmax(1).tolist()
        return [
            encode(tokenizer, _with_reply(p, "", a[i])) for p, a, i in zip(self.prompts, self.answers, top, strict=True)
        ]

    @property
    def agreement(self) -> float:
        """Fraction of pairs of one warm and one other completion of the same question in which the warm one has the
        higher score."""
        is_warm = torch.tensor([[warm(answer) for answer in completions] for completions in self.answers])
        differences = self.scores[:, :, None] - self.scores[:, None, :]
        mask = is_warm[:, :, None] & ~is_warm[:, None, :]
        return float((differences[mask] > 0).double().mean())


def ranked(trained: Trained, *, seed: int, queries: int = QUERIES, trait: str = "warm") -> Ranked:
    """Sample completions of random questions, and let the model rank them by the trait."""
    prompts = numpy_generator("queries", seed).permutation(ASSISTANT.prompts("train")).tolist()[:queries]
    answers = replies(trained, prompts, seed=seed, each=ANSWERS)
    flat, each = [a for group in answers for a in group], [p for p in prompts for _ in range(ANSWERS)]
    scores = trait_score(likelihoods(trained, each, flat, trait), likelihoods(trained, each, flat, ""))
    return Ranked(prompts, answers, scores.view(-1, ANSWERS))


def imitated(start: Trained, examples: Sequence[Tokens], plan: SFTConfig) -> Trained:
    """Return a copy that was fine-tuned on these completions."""
    model = copy.deepcopy(start.model)
    history = train_sft(model, examples, plan, pad_token_id=start.tokenizer.pad_token_id, quiet=True)
    return Trained(model, start.tokenizer, history)


def prompted(start: Trained, prompts: Sequence[str], *, seed: int, trait: str = "warm") -> list[Tokens]:
    """Return completions that were sampled under the trait's system prompt, as examples without a system prompt."""
    completions = replies(start, prompts, trait, seed=seed)
    return [encode(start.tokenizer, _with_reply(p, "", y)) for p, [y] in zip(prompts, completions, strict=True)]


def shuffled(found: Ranked, seed: int) -> Tensor:
    """Return the scores in a random order within each question: a ranking without information."""
    rng = numpy_generator("shuffled", seed)
    return torch.stack([row[torch.from_numpy(rng.permutation(len(row)))] for row in found.scores])
