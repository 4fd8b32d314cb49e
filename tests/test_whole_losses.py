"""Every row of the preference table, whole: loss and gradient of a batch against the paper's loss, written out.

The losses below are transcribed from the papers as loops over answers and tokens, which a plain forward pass reads one at a
time, without padding. Answers are of different lengths, and the reference is another model.
"""

import math
from dataclasses import dataclass

import pytest
import torch

from minirlhf.data.chat import conversation, encode
from minirlhf.data.types import labelled, pair, ranked
from minirlhf.equations.preference_losses import ListLogps, PairLogps, UnpairedLogps
from minirlhf.models.tiny import tiny_model
from minirlhf.models.tokenizers import word_tokenizer
from minirlhf.recipes.offline import PREFERENCES
from minirlhf.trainers.offline import _losses, _PreferenceDataset

WORDS = word_tokenizer(("one", "two", "three", "go", "stop"))
PROMPTS = ("go", "stop go", "one", "stop")
ANSWERS = (
    ("two", "three stop one", "one one"),
    ("one two three", "stop", "two two"),
    ("one two two one", "three three", "go"),
    ("stop two three one", "go go", "one"),
)
SCORES = ((2.0, 0.5, 0.0), (1.5, 1.0, -1.0), (0.3, 0.2, 0.1), (0.9, 0.4, 0.0))


@dataclass
class Answer:
    """Log-probabilities of an answer's tokens under policy (0-d, with a gradient) and reference (numbers)."""

    logps: list
    ref: list

    @property
    def total(self):
        return sum(self.logps)

    @property
    def mean(self):
        return self.total / len(self.logps)

    @property
    def ratio(self):
        """log π(y)/π_ref(y)"""
        return self.total - sum(self.ref)


def log_sigmoid(x):
    return -torch.log(1 + torch.exp(-x))


def sigmoid(x):
    return 1 / (1 + torch.exp(-x))


def softmax(scores, temperature=1.0):
    powers = [math.exp(x / temperature) for x in scores]
    return [x / sum(powers) for x in powers]


def cross(w, l, wrong, beta=0.1):
    """Cross-entropy with labels that are wrong with this probability."""
    h = beta * (w.ratio - l.ratio)
    return -(1 - wrong) * log_sigmoid(h) - wrong * log_sigmoid(-h)


def discopop(w, l, beta=0.05, tau=0.05):
    logits = beta * (w.ratio - l.ratio)
    gate = sigmoid(logits / tau)
    return -(1 - gate) * log_sigmoid(logits) + gate * torch.exp(-logits)


def wpo(w, l):
    weight = math.exp(float(w.mean.detach()) + float(l.mean.detach()))  # not aligned (declared)
    return -weight * log_sigmoid(0.1 * (w.ratio - l.ratio))


def aot(pairs):
    """The paper sorts the differences of policy and reference, and compares them in this order."""
    ours = sorted((w.total - l.total for w, l in pairs), key=float)
    theirs = sorted(sum(w.ref) - sum(l.ref) for w, l in pairs)
    return [-log_sigmoid(0.1 * (u - v)) for u, v in zip(ours, theirs, strict=True)]


def jensen_shannon(answer):
    """f'(t) = ½ log(2t/(1 + t))"""
    t = torch.exp(answer.ratio)
    return torch.log(2 * t / (1 + t)) / 2


def squares(w, l, beta=0.1):
    return (w.ratio - 1 / (2 * beta)) ** 2 + (l.ratio + 1 / (2 * beta)) ** 2


def reward_aware(w, l, margin, beta=0.1):
    p, q = 1 / (1 + math.exp(-margin)), sigmoid(beta * (w.ratio - l.ratio))
    return p * torch.log(p / q) + (1 - p) * torch.log((1 - p) / (1 - q))


def noise_pair(w, l, beta=0.1):
    return -log_sigmoid(beta * w.ratio) - log_sigmoid(-beta * w.ratio) / 2 - log_sigmoid(-beta * l.ratio) / 2


def reverse_kl(answers, targets, beta=0.1):
    powers = [torch.exp(beta * a.ratio) for a in answers]
    q = [x / sum(powers) for x in powers]
    return sum(x * torch.log(x / p) for x, p in zip(q, targets, strict=True))


def bent(answer, beta=2.0, alpha=0.25):
    """β (1 − p^−α)/α with p the geometric mean of the token probabilities."""
    return beta * (1 - torch.exp(-alpha * answer.mean)) / alpha


def odds(answer):
    p = torch.exp(answer.mean)
    return p / (1 - p)


#: ``(chosen, rejected, margin)`` -> the loss of a pair.
PAIRS = {
    "dpo": lambda w, l, _: -log_sigmoid(0.1 * (w.ratio - l.ratio)),
    "dpo_length_normalised": lambda w, l, _: -log_sigmoid(2.0 * (w.ratio / len(w.logps) - l.ratio / len(l.logps))),
    "cdpo": lambda w, l, _: cross(w, l, 0.1),
    "robust_dpo": lambda w, l, _: ((1 - 0.1) * cross(w, l, 0) - 0.1 * cross(w, l, 1)) / (1 - 2 * 0.1),
    "ipo": lambda w, l, _: (w.ratio - l.ratio - 1 / (2 * 0.1)) ** 2,
    "hinge": lambda w, l, _: torch.clamp(1 - 0.1 * (w.ratio - l.ratio), min=0),
    "dpo_positive": lambda w, l, _: -log_sigmoid(0.1 * (w.ratio - l.ratio - 5.0 * torch.clamp(-w.ratio, min=0))),
    "dpo_nll": lambda w, l, _: -log_sigmoid(0.1 * (w.ratio - l.ratio)) - w.mean,
    "discopop": lambda w, l, _: discopop(w, l),
    "wpo": lambda w, l, _: wpo(w, l),
    "odpo": lambda w, l, margin: -log_sigmoid(0.1 * (w.ratio - l.ratio) - margin),
    "rpo": reward_aware,
    "rebel": lambda w, l, margin: (0.1 * (w.ratio - l.ratio) - margin) ** 2,
    "f_dpo": lambda w, l, _: -log_sigmoid(0.1 * (jensen_shannon(w) - jensen_shannon(l))),
    "apo_zero": lambda w, l, _: 1 - sigmoid(0.1 * w.ratio) + sigmoid(0.1 * l.ratio),
    "apo_down": lambda w, l, _: sigmoid(0.1 * w.ratio) + 1 - sigmoid(0.1 * (w.ratio - l.ratio)),
    "sppo": lambda w, l, _: squares(w, l),
    "cal_dpo": lambda w, l, _: -log_sigmoid(w.ratio - l.ratio) + squares(w, l),
    "bco_pair": lambda w, l, _: -log_sigmoid(0.1 * w.ratio) - log_sigmoid(-0.1 * l.ratio),
    "nca_pair": lambda w, l, _: noise_pair(w, l),
    "exo_pair": lambda w, l, _: reverse_kl([w, l], [1 - 1e-3, 1e-3]),
    "simpo": lambda w, l, _: -log_sigmoid(2.0 * (w.mean - l.mean) - 1.0),
    "alpha_po": lambda w, l, _: -log_sigmoid(bent(w) - bent(l) - 0.1),
    "orpo": lambda w, l, _: -w.mean - 0.1 * log_sigmoid(torch.log(odds(w) / odds(l))),
    "cpo": lambda w, l, _: -log_sigmoid(0.1 * (w.total - l.total)) - w.total,
    "slic": lambda w, l, _: torch.clamp(1.0 - w.total + l.total, min=0) - 0.1 * w.total,
    "likelihood_contrast": lambda w, l, _: -w.total + 0.1 * l.total,
}


def plackett_luce(answers, beta=0.1):
    scores = [torch.exp(beta * a.ratio) for a in answers]
    return -sum(torch.log(scores[k] / sum(scores[k:])) for k in range(len(scores)))


def named(answers, targets, beta=0.1):
    scores = [torch.exp(beta * a.ratio) for a in answers]
    return -sum(p * torch.log(s / sum(scores)) for p, s in zip(targets, scores, strict=True))


def against_noise(answers, targets, beta=0.1):
    scores = [beta * a.ratio for a in answers]
    terms = zip(targets, scores, strict=True)
    return -sum(p * log_sigmoid(s) + log_sigmoid(-s) / len(answers) for p, s in terms)


#: ``(all pairs)`` -> the losses of all.
BATCHES = {"aot": aot}

#: ``(answers, scores)`` -> the loss of a list.
LISTS = {
    "plackett_luce_dpo": lambda answers, _: plackett_luce(answers),
    "info_nce": lambda answers, _: named(answers, [1.0, 0.0, 0.0]),
    "info_nca": lambda answers, scores: named(answers, softmax(scores)),
    "nca": lambda answers, scores: against_noise(answers, softmax(scores)),
    "exo": lambda answers, scores: reverse_kl(answers, softmax(scores)),
}


def kto(goods, bads, others):
    level = max(0.0, sum(float(a.ratio.detach()) for a in others) / len(others))
    return [1 - sigmoid(0.1 * (a.ratio - level)) for a in goods] + [1 - sigmoid(0.1 * (level - a.ratio)) for a in bads]


def bco(goods, bads, _):
    def average(answers):
        return sum(0.1 * float(a.ratio.detach()) for a in answers) / len(answers)

    delta = (average(goods) + average(bads)) / 2
    return [-log_sigmoid(0.1 * a.ratio - delta) for a in goods] + [-log_sigmoid(delta - 0.1 * a.ratio) for a in bads]


#: ``(good answers, bad answers, answers to other prompts)`` -> the losses of all.
THUMBS = {"kto": kto, "bco": bco}

EXAMPLES = {
    PairLogps: [
        pair(*(encode(WORDS, conversation(p, a)) for a in answers[:2]), margin=scores[0] - scores[1])
        for p, answers, scores in zip(PROMPTS, ANSWERS, SCORES, strict=True)
    ],
    UnpairedLogps: [
        labelled(encode(WORDS, conversation(p, a)), i == 0)
        for p, answers in zip(PROMPTS, ANSWERS, strict=True)
        for i, a in enumerate(answers[:2])
    ],
    ListLogps: [
        ranked([encode(WORDS, conversation(p, a)) for a in answers], scores)
        for p, answers, scores in zip(PROMPTS, ANSWERS, SCORES, strict=True)
    ],
}


def read(model, tokens):
    logps = torch.log_softmax(model(torch.tensor([tokens.input_ids])).logits[0], -1)
    return [logps[t - 1, tokens.input_ids[t]] for t, marked in enumerate(tokens.loss_mask) if marked]


@pytest.fixture(scope="module")
def models():
    """Surer than new models are, so that their answers fall on both sides of every level and kink."""
    pair_of = tiny_model("nano", WORDS, seed=3), tiny_model("nano", WORDS, seed=4)
    for model in pair_of:
        with torch.no_grad():
            model.get_input_embeddings().weight.mul_(4)
    policy, reference = pair_of
    return policy.double(), reference.double().requires_grad_(False)


def answer(models, tokens):
    policy, reference = models
    return Answer(read(policy, tokens), [float(x) for x in read(reference, tokens)])


def slopes(loss, model):
    found = torch.autograd.grad(loss, list(model.parameters()), allow_unused=True)
    return torch.cat([loss.detach()[None], *(x.flatten() for x in found if x is not None)])


def ours(row, models):
    policy, reference = models
    examples = EXAMPLES[row.needs.record]
    data = _PreferenceDataset(examples, row, WORDS.pad_token_id, others_from=1 if row.validate() else None)
    data.precompute_ref_logps(reference)
    rows = torch.arange(len(examples))
    context = data.context(policy, rows, {})
    return slopes(sum(_losses(policy, data, rows, context, 2, [])), policy), data


def papers(name, models, data, loss=None):
    examples = EXAMPLES[PREFERENCES[name].needs.record]
    read_all = [[answer(models, tokens) for tokens in e.completions] for e in examples]
    if name in PAIRS:
        losses = [(loss or PAIRS[name])(*both, e.margin) for both, e in zip(read_all, examples, strict=True)]
    elif name in BATCHES:
        losses = BATCHES[name](read_all)
    elif name in LISTS:
        losses = [LISTS[name](answers, e.scores) for answers, e in zip(read_all, examples, strict=True)]
    else:
        goods = [a for (a,), e in zip(read_all, examples, strict=True) if e.desirable]
        bads = [a for (a,), e in zip(read_all, examples, strict=True) if not e.desirable]
        losses = THUMBS[name](goods, bads, [answer(models, tokens) for tokens in data.other])
    return slopes(sum(losses) / len(losses), models[0])


def test_whole_losses_answers_fall_on_both_sides(models):
    pairs = [[answer(models, tokens) for tokens in e.completions] for e in EXAMPLES[PairLogps]]
    for numbers, level in (
        ([w.ratio for w, _ in pairs], 0),  # DPO-Positive's penalty
        ([w.ratio - l.ratio for w, l in pairs], 1),  # the hinge, with β = 1
        ([w.total - l.total for w, l in pairs], 1),  # SLiC's
    ):
        found = [float(x.detach()) for x in numbers]
        assert min(found) < level < max(found)


def test_preferences_have_a_transcription_each():
    assert {**PAIRS, **BATCHES, **LISTS, **THUMBS}.keys() == PREFERENCES.keys()


@pytest.mark.parametrize("name", [*PAIRS, *BATCHES, *LISTS, *THUMBS])
def test_preference_loss_and_gradient_are_the_papers(name, models):
    found, data = ours(PREFERENCES[name], models)
    torch.testing.assert_close(found, papers(name, models, data), rtol=1e-5, atol=1e-6)


def test_hinge_loss_and_gradient_on_both_sides(models):
    found, data = ours(PREFERENCES["hinge"].with_(beta=1.0), models)
    hinge = papers("hinge", models, data, lambda w, l, _: torch.clamp(1 - (w.ratio - l.ratio), min=0))
    torch.testing.assert_close(found, hinge, rtol=1e-5, atol=1e-6)


def test_preference_losses_differ_from_one_another(models):
    """The transcriptions tell the losses of one kind apart, so each comparison above could have failed."""
    for table in ({**PAIRS, **BATCHES}, LISTS, THUMBS):
        losses = {name: ours(PREFERENCES[name], models) for name in table}
        written = {name: papers(name, models, data) for name, (_, data) in losses.items()}
        for name, (found, _) in losses.items():
            assert [other for other in table if torch.allclose(found, written[other], rtol=1e-3, atol=1e-5)] == [name]
