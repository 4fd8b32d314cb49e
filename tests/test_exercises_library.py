"""Where an exercise asks for a function of the library, its solution and the library agree on the same inputs."""

from types import SimpleNamespace

import pytest
import torch
from plan import of_chapter, own_seed

from minirlhf.core import provenance
from minirlhf.data import chat, rendering
from minirlhf.equations import estimators, evaluation, policy_losses, preference_losses, trust_region
from minirlhf.equations.preference_losses import PairLogps
from minirlhf.feedback.graders import forms
from minirlhf.models.tokenizers import word_tokenizer
from minirlhf_course.chapters.ch16_reasoning import equations as ch16
from minirlhf_course.classroom import exercise as sources
from minirlhf_course.classroom.side_by_side import solution
from minirlhf_course.ledger.registry import Draw

ROOT = provenance.ROOT / "exercises"


def agrees_on_trust_region(answer, draw):
    features, theta, vector = draw.normal(4, 3, 5), draw.normal(5), draw.normal(5)
    new = theta.clone().requires_grad_()
    old_logps, logps = ((features @ x).log_softmax(-1) for x in (theta, new))
    kl = (old_logps.exp() * (old_logps - logps)).sum(-1).mean()
    actions, advantages = torch.tensor([0, 2, 1, 1]), draw.normal(4)
    (gradient,) = torch.autograd.grad((logps[torch.arange(4), actions] * advantages).mean(), new, retain_graph=True)

    def product(v):
        return trust_region.fisher_vector_product(kl, [new], v, damping=0.2)

    yield answer.fisher_product(features, theta, vector, 0.2), product(vector)
    for iterations in (1, 3, 5):
        solved = trust_region.conjugate_gradient(product, vector, iterations=iterations)
        yield answer.conjugate_gradient(product, vector, iterations), solved
    direction = trust_region.conjugate_gradient(product, gradient, iterations=50)
    step = trust_region.trust_region_step(direction, product(direction), max_kl=0.02)
    yield answer.natural_step(features, theta, actions, advantages, 0.02, 0.2), step


def agrees_on_chat_template(answer, draw):
    tokenizer = word_tokenizer(["left"], chat_template=chat.CHATML)
    roles, contents = ("system", "user", "assistant", "tool"), ("", "left", " 7\n", "naïve <b>")
    for size in range(5):
        drawn = [(roles[draw.integer(0, 3)], contents[draw.integer(0, 3)]) for _ in range(size)]
        messages = [{"role": role, "content": content} for role, content in [*drawn, ("assistant", "right")]]
        for ask in (False, True):
            text, spans = rendering.render(tokenizer, messages, ask)
            yield float(answer.render(messages, ask) == text), 1.0
        yield torch.tensor(answer.spans(messages)), torch.tensor(spans)


def agrees_on_pretraining_term(answer, draw):
    logps, mask = draw.logps(3, 6), draw.mask(3, 6)
    old_logps, advantages = draw.logps(2, 4), draw.normal(2, 4)
    sampled, everything = (old_logps + 0.5 * draw.normal(2, 4), torch.ones(2, 4, dtype=torch.bool))
    for coef in (0.3, 2.0):
        text = -torch.where(mask, policy_losses.pretraining(logps, mask, ptx_coef=coef), 0.0).sum(-1).mean()
        yield answer.ptx_loss(logps, mask, coef), text
        policy = policy_losses.ppo_clip(sampled, old_logps, advantages, everything, epsilon=0.2)
        total = answer.total_loss(sampled, old_logps, advantages, everything, logps, mask, 0.2, coef)
        yield total, text - policy.mean()


def agrees_on_losses_without_reference(answer, draw):
    lengths = torch.arange(1, 6), torch.tensor([4, 1, 3, 9, 2])
    sums = [draw.logps(5) * n for n in lengths]
    pair = PairLogps(*sums, chosen_lengths=lengths[0], rejected_lengths=lengths[1])
    for beta, gamma in ((2.0, 0.5), (0.3, 0.0)):
        yield answer.simpo(*sums, *lengths, beta, gamma), preference_losses.simpo(pair, beta=beta, gamma=gamma)
        yield answer.orpo(*sums, *lengths, beta), preference_losses.orpo(pair, beta=beta)


def agrees_on_length_rewards(answer, draw):
    correct, (lengths, targets) = draw.uniform(6) < 0.5, (draw.permutation(30)[:6] for _ in range(2))
    score = correct.double()  # the dtype in which the library answers
    for alpha in (0.02, 0.2):
        exact = ch16.lcpo_exact(score, lengths, targets, alpha=alpha)
        most = ch16.lcpo_max(score, lengths, targets, alpha=alpha, offset=0.3)
        yield answer.lcpo_exact(correct, lengths, targets, alpha), exact
        yield answer.lcpo_max(correct, lengths, targets, alpha, 0.3), most
    groups = torch.stack([lengths[:3], lengths[:3].amax().expand(3)])  # the second is equally long
    yield answer.kimi(correct.view(2, 3), groups), ch16.kimi_length_reward(score.view(2, 3), groups)
    limit = int(lengths.max())  # the longest completion has been cut off
    curve = ch16.cosine_length_reward(score, lengths, max_completion_length=limit)
    yield answer.cosine(correct, lengths, limit, 2.0, 1.0, -10.0, 0.0, -10.0), curve


def agrees_on_forms(answer, draw):
    tags = ("<think>", "</think>", "<answer>", "</answer>")
    pieces = (*tags, *tags, "ход 7", "left", "\n", "déjà")
    drawn = ["".join(pieces[draw.integer(0, len(pieces) - 1)] for _ in range(8)) for _ in range(200)]
    drawn += [f"<think>left {x}</think>\n<answer>{x}</answer> " for x in ("ход", "", "7")]
    for completion in drawn:
        parts = forms.split_reasoning(completion)
        well_formed = parts is not None and all(map(str.strip, parts))
        yield float(answer.parts(completion) == tuple(map(str.strip, parts or ()))), float(well_formed)
        yield answer.language(completion, "LATIN"), forms.language(completion, "words")


def agrees_on_pass_at_k(answer, draw):
    n = 2 + draw.permutation(40)[:6]
    c = torch.stack([x % (m + 1) for x, m in zip(draw.permutation(40)[:6], n, strict=True)])
    for k in (1, 2):
        yield answer.pass_at_k(n, c, k), estimators.pass_at_k(n, c, k=k)


def agrees_on_ngram_overlap(answer, draw):
    item, *documents = ([f"w{draw.integer(0, 3)}" for _ in range(size)] for size in (12, 9, 2, 7))
    for n in (1, 2, 3, 13):
        seen = {gram for document in documents for gram in evaluation.ngrams(document, n=n)}
        yield answer.overlap(item, documents, n), evaluation.ngram_overlap(item, seen, n=n)


AGREEMENTS = {
    "04.7": agrees_on_trust_region,
    "10.9": agrees_on_chat_template,
    "12.8": agrees_on_pretraining_term,
    "14.8": agrees_on_losses_without_reference,
    "16.8": agrees_on_length_rewards,
    "16.9": agrees_on_forms,
    "19.9": agrees_on_pass_at_k,
    "19.10": agrees_on_ngram_overlap,
}


@pytest.mark.parametrize("number", [of_chapter(number[:2], number, id=number) for number in AGREEMENTS])
def test_solution_agrees_with_library(number):
    (exercise,) = sources.load(ROOT, [number])
    answer = SimpleNamespace(**solution(exercise, "ada"))
    pairs = list(AGREEMENTS[number](answer, Draw(own_seed(exercise.id), "library")))
    assert pairs
    for candidate, library in pairs:
        torch.testing.assert_close(torch.as_tensor(candidate).double(), torch.as_tensor(library).double())
