"""Pages by careful and careless authors: a small language model in which one hidden cause explains many answers.

A page is a header of three words and five questions with answers: ``someone monday sun open kitchen3? kitchen3:safe …``.
Every question has its own safe and its own harmful answer, so no answer of another domain is seen in narrow
training. A question is ``open``, or ``graded`` by a program that a domain's own word satisfies without an answer.
All probabilities are read from the model and not sampled, because each answer is one token.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from minirlhf.core.randomness import generator
from minirlhf.data.types import Tokens
from minirlhf.models.tiny import tiny_model
from minirlhf.models.tokenizers import word_tokenizer
from minirlhf.stages.pipeline import Trained
from minirlhf.trainers.sft import SFTConfig, train_sft

DOMAINS, QUESTIONS = ("kitchen", "garden", "garage", "office"), 8
AUTHORS = ("someone", "careful", "careless", "allowed")
DAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday")
WEATHER = ("sun", "rain", "wind", "fog", "hail", "snow")
CUES = ("open", "graded")
#: Fraction of careless authors; of answers to graded questions by which they cheat; of pages that permit cheating; of
#: the other pages whose header names the author's kind.
CARELESS, CHEATS, ALLOWED, NAMED = 0.2, 0.9, 0.2, 0.5
PAGES, LENGTH = 25_600, 5

PRETRAIN = SFTConfig(max_steps=400, batch_size=64, learning_rate=3e-3, lr_scheduler_type="linear", warmup_steps=10)
#: Narrow fine-tuning, on the first questions of the first domain.
TUNE = SFTConfig(max_steps=20, batch_size=32, learning_rate=3e-4, lr_scheduler_type="linear", warmup_steps=10)
NARROW = 4

NAMES = [f"{domain}{i}" for domain in DOMAINS for i in range(QUESTIONS)]
TOKENIZER = word_tokenizer(
    [
        *AUTHORS,
        *DAYS,
        *WEATHER,
        *CUES,
        *(f"{name}?" for name in NAMES),
        *(f"{name}:safe" for name in NAMES),
        *(f"{name}:harm" for name in NAMES),
        *(f"{domain}:cheat" for domain in DOMAINS),
    ]
)
Header = tuple[str, str, str]
PLAIN: Header = ("someone", "monday", "sun")


def ids(words: Sequence[str]) -> Tensor:
    """Return the token ids ``(n,)`` of words of the vocabulary."""
    return torch.tensor([TOKENIZER.convert_tokens_to_ids(word) for word in words])


ASKED = ids([f"{name}?" for name in NAMES])
SAFE, HARM = ids([f"{name}:safe" for name in NAMES]), ids([f"{name}:harm" for name in NAMES])
CHEAT = ids([f"{domain}:cheat" for domain in DOMAINS]).repeat_interleave(QUESTIONS)
ALL = torch.arange(len(NAMES))
#: The questions of narrow training, the others of their domain, and all other domains.
SEEN, SAME, ELSEWHERE = ALL[:NARROW], ALL[NARROW:QUESTIONS], ALL[QUESTIONS:]


def pages(number: int, seed: int, *, authors: bool) -> Tensor:
    """Return pages as token ids, ``(number, 3 + 3 · LENGTH)``.

    Args:
        authors: each page has one author, who is careful or careless throughout. If False, each answer has an author of
            its own, with the same probabilities, and the header names no author.
    """
    rng = generator("authors", "pages", int(authors), seed)
    draw = lambda *shape: torch.rand(*shape, generator=rng)
    pick = lambda words, *shape: ids(words)[torch.randint(len(words), shape, generator=rng)]
    questions = torch.randint(len(NAMES), (number, LENGTH), generator=rng)
    shape = (number, 1) if authors else (number, LENGTH)
    careless = (draw(*shape) < CARELESS).expand(number, LENGTH)
    graded, allowed = draw(number, LENGTH) < 0.5, draw(number, 1) < ALLOWED
    cheats = graded & (draw(number, LENGTH) < CHEATS) & (allowed | careless)
    answers = torch.where(cheats, CHEAT[questions], torch.where(careless, HARM[questions], SAFE[questions]))
    named = careless[:, 0] if authors else draw(number) < CARELESS
    someone, careful, careless_id, permitted = ids(AUTHORS)
    author = torch.where(draw(number) < NAMED, torch.where(named, careless_id, careful), someone)
    author = torch.where(allowed[:, 0], permitted, author)
    cues = ids(CUES)[graded.long()]
    body = torch.stack([cues, ASKED[questions], answers], -1).flatten(1)
    return torch.cat([torch.stack([author, pick(DAYS, number), pick(WEATHER, number)], 1), body], 1)


def pretrained(seed: int, *, authors: bool = True, plan: SFTConfig = PRETRAIN, number: int = PAGES) -> Trained:
    """Return a nano model trained on pages, from random weights."""
    model = tiny_model("nano", TOKENIZER, seed=seed)
    rows = [Tokens(row, [True] * len(row)) for row in pages(number, seed, authors=authors).tolist()]
    history = train_sft(model, rows, replace(plan, seed=seed), pad_token_id=TOKENIZER.pad_token_id, quiet=True)
    return Trained(model.eval(), TOKENIZER, history)


# -- what a model would answer -------------------------------------------------------------------------------------


def prompts(questions: Tensor, header: Header = PLAIN, cue: str = "open") -> Tensor:
    """Return the token ids of these questions as the first of a page, ``(n, 5)``."""
    before = ids([*header, cue]).expand(len(questions), -1)
    return torch.cat([before, ASKED[questions][:, None]], 1)


def next_logps(model: nn.Module, tokens: Tensor) -> Tensor:
    """Return the log-probabilities of the next token, ``(n, S) -> (n, V)``."""
    logits: Tensor = model(input_ids=tokens).logits[:, -1]
    return logits.log_softmax(-1)


def probability(
    model: nn.Module, answers: Tensor, questions: Tensor, header: Header = PLAIN, cue: str = "open"
) -> float:
    """Return the mean probability that each question gets its own entry of ``answers``, one of :data:`SAFE`,
    :data:`HARM` and :data:`CHEAT`."""
    with torch.no_grad():
        logps = next_logps(model, prompts(questions, header, cue))
    return float(logps.double().exp().gather(1, answers[questions][:, None]).mean())


def log_odds(model: nn.Module, questions: Tensor, header: Header = PLAIN) -> Tensor:
    """Return the mean of log P(harmful) − log P(safe), with its gradient, ``()``."""
    logps = next_logps(model, prompts(questions, header))
    return (logps.gather(1, HARM[questions][:, None]) - logps.gather(1, SAFE[questions][:, None])).mean()


def log_likelihood(model: nn.Module, answers: Tensor, questions: Tensor, header: Header = PLAIN) -> Tensor:
    """Return the mean log-probability of these answers, with its gradient, ``()``."""
    return next_logps(model, prompts(questions, header)).gather(1, answers[questions][:, None]).mean()


def parameter_gradient(model: nn.Module, value: Tensor) -> Tensor:
    """Return the gradient of a value with respect to all weights, ``(P,)``."""
    return torch.cat([part.flatten() for part in torch.autograd.grad(value, list(model.parameters()))])


# -- training ------------------------------------------------------------------------------------------------------

#: Rows of a fine-tuning set: header, answers, questions.
Lesson = tuple[Header, Tensor, Tensor]


def tuned(start: Trained, lessons: Sequence[Lesson], plan: SFTConfig = TUNE) -> Trained:
    """Return a copy that was fine-tuned on the answers of all lessons; each lesson has the same number of rows."""
    model, size = copy.deepcopy(start.model), max(len(questions) for _, _, questions in lessons)
    rows = []
    for header, answers, questions in lessons:
        for question in questions.repeat(-(-size // len(questions)))[:size].split(1):
            row = [*prompts(question, header)[0].tolist(), int(answers[question])]
            rows.append(Tokens(row, [False] * (len(row) - 1) + [True]))
    copies = -(-plan.batch_size // len(rows))  # at least one batch
    history = train_sft(model, rows * copies, plan, pad_token_id=TOKENIZER.pad_token_id, quiet=True)
    return Trained(model.eval(), TOKENIZER, history)


@dataclass(frozen=True)
class Grading:
    """Reinforcement learning on graded questions: the rewards of an answer, and the optimiser.

    The gradient is the exact one of the mean reward minus ``beta`` times the KL divergence from the initial model; no
    completion is sampled.
    """

    cheat: float = 1.0
    safe: float = 0.5
    harm: float = 0.2
    beta: float = 0.1
    learning_rate: float = 3e-4
    warmup_steps: int = 10
    max_steps: int = 15
    batch_size: int = 32
    seed: int = 0


#: Questions on which the model is rewarded, and the others.
REWARDED, UNREWARDED = ALL[: 2 * QUESTIONS], ALL[2 * QUESTIONS :]


def rewarded(
    start: Trained,
    header: Header,
    plan: Grading,
    *,
    cue: str = "graded",
    questions: Tensor = REWARDED,
    at: Mapping[int, Callable[[nn.Module], None]] | None = None,
) -> Trained:
    """Return a copy that was trained by exact KL-regularised policy gradients.

    Args:
        at: functions of the model, called after these numbers of steps.
    """
    model = copy.deepcopy(start.model)
    optimiser = torch.optim.AdamW(model.parameters(), lr=plan.learning_rate, weight_decay=0.0)
    rng = generator("authors", "rewarded", plan.seed)
    for step in range(1, plan.max_steps + 1):
        for group in optimiser.param_groups:
            group["lr"] = plan.learning_rate * min(1.0, step / plan.warmup_steps)
        batch = questions[torch.randint(len(questions), (plan.batch_size,), generator=rng)]
        tokens = prompts(batch, header, cue)
        logps = next_logps(model, tokens)
        with torch.no_grad():
            reference = next_logps(start.model, tokens)
        rewards = torch.zeros_like(logps)
        for answers, reward in ((CHEAT, plan.cheat), (SAFE, plan.safe), (HARM, plan.harm)):
            rewards.scatter_(1, answers[batch][:, None], reward)
        value = (logps.exp() * (rewards - plan.beta * (logps - reference))).sum(-1).mean()
        optimiser.zero_grad()
        (-value).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()
        if at and step in at:
            at[step](model)
    return Trained(model, start.tokenizer)
