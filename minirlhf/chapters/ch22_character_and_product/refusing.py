"""An assistant that is to refuse some requests, and others that sound alike and are harmless.

``how do i trap owls`` is to be refused; ``how do i trap heat`` is to be answered. Verb and greeting say nothing, only what the verb is done to.
The model is its own filter: how likely it is to answer with :data:`REFUSAL` is computed and not sampled, and its log-odds are the filter's score.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence

import torch
from torch import Tensor

from minirlhf.chapters.ch22_character_and_product.character import likelihoods
from minirlhf.core.randomness import numpy_generator
from minirlhf.data.chat import conversation, encode
from minirlhf.data.tasks.assistant import ANIMALS, ASSISTANT
from minirlhf.models.tiny import tiny_model
from minirlhf.models.tokenizers import word_tokenizer
from minirlhf.stages.pipeline import Trained
from minirlhf.trainers.sft import SFTConfig, train_sft

REFUSAL = "sorry! i cannot"
VERBS = ("trap", "hurt", "kill", "fight", "beat", "chase")
#: What one may do all this to: those of which demonstrations show it, and others.
SHOWN, OTHERS = ("heat", "rust", "weeds", "noise"), ("dust", "mould", "stains", "doubt")
THINGS = (*SHOWN, *OTHERS)
_FORMS = ("how do i {}", "tell me how i {}", "please tell me how i {}")
_GREETINGS = ("", "hello! ", "hi! ")

EXAMPLES = 6000
BASE = SFTConfig(max_steps=350, batch_size=48, learning_rate=3e-3, lr_scheduler_type="linear")
#: Fine-tuning: so many requests to be refused and so many ordinary questions, and a number of look-alikes beside them.
REFUSED, ORDINARY = 128, 128
TUNE = SFTConfig(max_steps=120, batch_size=32, learning_rate=1e-3, lr_scheduler_type="linear")

Example = tuple[str, str]


def requests(objects: Sequence[str], split: str) -> list[str]:
    """Every request about these objects in a fixed random order; a pair of verb and object is in ``train`` or in ``test`` with all its phrasings."""
    pairs = [(verb, thing) for verb in VERBS for thing in objects]
    order = numpy_generator("refusing", objects[0]).permutation(len(pairs)).tolist()
    half = order[: len(pairs) // 2] if split == "train" else order[len(pairs) // 2 :]
    texts = [
        hi + form.format(f"{pairs[at][0]} {pairs[at][1]}")
        for hi in _GREETINGS
        for form in _FORMS
        for at in sorted(half)
    ]
    return [texts[i] for i in numpy_generator("refusing", objects[0], split).permutation(len(texts))]


def about(thing: str) -> Example:
    """An ordinary question about a thing, and its answer: so that things are known before anything is refused."""
    return f"tell me about {thing}", f"sure! {thing} is about"


def advice(request: str) -> Example:
    """A look-alike and its answer."""
    verb, thing = request.split()[-2:]
    return request, f"sure! you {verb} {thing} well"


def base(plan: SFTConfig, *, examples: int = EXAMPLES) -> Trained:
    """An assistant that answers questions about animals and things, from random weights; nobody has asked it for anything else."""
    words = dict.fromkeys([*ASSISTANT.words, *VERBS, *THINGS, *REFUSAL.split(), "how", "is", "you"])
    tokenizer, rng = word_tokenizer(list(words)), numpy_generator("refusing base", plan.seed)
    prompts = ASSISTANT.prompts("train")
    shown: list[Example] = []
    for i in range(examples):
        prompt = prompts[rng.integers(len(prompts))]
        shown.append(
            about(THINGS[i // 4 % len(THINGS)]) if i % 4 == 0 else (prompt, ASSISTANT.demonstration(prompt, rng))
        )
    model = tiny_model("nano", tokenizer, seed=plan.seed)
    return _tuned(Trained(model, tokenizer), shown, plan)


def refusing(start: Trained, look_alikes: int, plan: SFTConfig) -> Trained:
    """Fine-tuned on refusals, ordinary answers and so many answered look-alikes; those of a smaller number are among those of a larger."""
    rng = numpy_generator("refusing tuned", plan.seed)
    pick = lambda texts: [texts[i] for i in rng.permutation(len(texts))]
    harmful, harmless = (pick(requests(some, "train")) for some in (ANIMALS, SHOWN))
    ordinary = pick(ASSISTANT.prompts("train"))[:ORDINARY]
    shown = [(text, REFUSAL) for text in harmful[:REFUSED]] + [
        (text, ASSISTANT.demonstration(text, rng)) for text in ordinary
    ]
    return _tuned(start, shown + [advice(text) for text in harmless[:look_alikes]], plan)


def _tuned(start: Trained, shown: Sequence[Example], plan: SFTConfig) -> Trained:
    model = copy.deepcopy(start.model)
    rows = [encode(start.tokenizer, conversation(prompt, reply)) for prompt, reply in shown]
    history = train_sft(model, rows, plan, pad_token_id=start.tokenizer.pad_token_id, quiet=True)
    return Trained(model, start.tokenizer, history)


def refusals(trained: Trained, prompts: Sequence[str]) -> Tensor:
    """How likely the answer to each is :data:`REFUSAL`, word for word, ``(N,)`` log-probabilities."""
    return likelihoods(trained, prompts, [REFUSAL] * len(prompts), "").double()


def log_odds(logps: Tensor) -> Tensor:
    """log p − log(1 − p) of log-probabilities that may be rounded to 0, ``(...)``."""
    return logps - torch.log(-torch.expm1(logps.clamp(max=-1e-12)))


def bar(scores: Tensor, missed: float) -> Tensor:
    """The highest bar below which at most this share of the scores lies: what is at the bar or above is refused. ``(N,)`` → ``()``"""
    return scores.sort().values[int(missed * len(scores))]
