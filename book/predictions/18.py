"""What chapter 18 asks its readers to predict; see ``book/_ext/asking.py``."""

import math

import torch
from asking import Ask, Typed, compared, mean, seeds

from minirlhf.equations import distillation
from minirlhf.models.tokenizers import word_tokenizer
from minirlhf_course.chapters.ch18_synthetic_data_and_distillation import equations as ch18
from minirlhf_course.chapters.ch18_synthetic_data_and_distillation.generations import WORLD

# -- making data


def _new_questions():
    every, new = seeds("ch18_instructions", "valid"), seeds("ch18_instructions", "valid_novel")
    said = compared("ch18_instructions", "valid_novel", "valid")
    # All that is dropped may be valid; then this share of it is dropped, and if not, a larger one.
    dropped = [(v - n) / (1 - n) for v, n in zip(every, new, strict=True)]
    numbers = {
        "every": 100 * sum(every) / len(every),
        "new": 100 * sum(new) / len(new),
        "dropped": 100 * sum(dropped) / len(dropped),
    }
    if said == "smaller":
        answer = "less than half" if max(new) < 0.5 else "between half and {every:.0f} %"
    else:
        answer = "more than {every:.0f} %" if said == "larger" else "about {every:.0f} %"
    return answer.format(**numbers), numbers


new_questions = Ask(
    "A model that was trained on forty questions of a toy task writes 150 of its own. {every:.0f} % of these are valid: the task has an answer to them. Questions that are already in the pool are dropped. What fraction of the rest is valid?",
    {
        "more than 82 %": "Without the copies, only the model's own inventions are left. It has learned little from forty questions: it is mostly right where it repeats one of them.",
        "about 82 %": "This would hold if copies were valid as often as the rest. But a copy of one of the forty is always valid.",
        "between half and 82 %": "A copy of one of the forty is always valid, so the rest is valid less often. Averaged over the seeds, at least {dropped:.0f} % of its questions are already in the pool, and only {new:.0f} % of the rest are valid.",
        "less than half": "",
    },
    _new_questions,
)

# -- what a teacher can say


def _squared():
    """What a student learns from a teacher's samples that are weighted by the teacher's probability."""
    teacher, logits = torch.tensor([0.5, 0.3, 0.2], dtype=torch.float64), torch.zeros(3, dtype=torch.float64)
    logits.requires_grad_()
    steps = torch.optim.LBFGS([logits], max_iter=100, tolerance_grad=1e-10, line_search_fn="strong_wolfe")

    def loss():
        steps.zero_grad()
        each = distillation.sequence_level(logits.log_softmax(-1)[:, None], torch.ones(3, 1, dtype=torch.bool))[:, 0]
        drawn = teacher @ (teacher * each)
        drawn.backward()
        return drawn

    steps.step(loss)
    return float(logits.detach().softmax(-1)[0]), {"first": float(teacher[0])}


weighed_draws = Ask(
    "The teacher's distribution is .5, .3, .2. Tokens y are sampled from the teacher, and the loss is the student's −log p(y) times the teacher's probability of y. What probability does the student learn for the first token?",
    Typed(
        within=0.06,
        low="It would be {first:.1f} if each sample had the weight 1, or if the sum ran over the vocabulary. The first token is sampled more often than the others, and each time it has more weight. The teacher's probability counts twice.",
        high="The weights favour the more probable tokens, but the others are sampled and weighted, too. Their probabilities are proportional to the squares .25, .09 and .04, and do not vanish.",
    ),
    _squared,
)

# -- whose answers


def _wrong_words():
    error, length = 0.01, 20
    wrong = ch18.compounded_errors(
        torch.tensor(error, dtype=torch.float64), torch.tensor(0.0, dtype=torch.float64), length=length
    )
    clean = (1 - error) ** length
    return float(wrong), {"alone": error * length, "clean": 100 * clean}


wrong_words = Ask(
    "A student errs in one word of a hundred while all words before are right. After its first error it is never right again (δ = 0). It writes 20 words. How many of them are wrong on average?",
    Typed(
        within=1.35,
        factor=True,
        unit="words",
        form=".1f",
        low="Isolated errors would give {alone:.1f}. But the first error makes all later words wrong as well, on average about half of the 20.",
        high="A sequence with an error loses about half of its words. But {clean:.0f} % of the sequences have no error.",
    ),
    _wrong_words,
)


def _price():
    before, after = mean("ch18", "kd_forward"), mean("ch18", "minillm_forward")
    said = compared("ch18", "minillm_forward", "kd_forward")
    times = after / before
    if said == "smaller" and times < 2 / 3:
        answer = "nearer"
    else:
        answer = "several times as far" if said == "larger" and times > 2 else "about as far"
    return answer, {"before": before, "after": after}


price_of_clean = Ask(
    "The forgetful student that learned by the forward KL has a KL(teacher‖student) of whole sayings of {before:.2f} nats. Another student learned with both parts of the gradient, and nearly all its sayings are clean. How far is it from the teacher by the same KL?",
    {
        "nearer": "Each of its sayings is like one of the teacher's. But this KL measures whether the student says everything that the teacher says. By this measure the student is {after:.1f} nats away.",
        "about as far": "To be clean, a student that forgets the first word has to give up sayings. Sayings that it hardly produces cost much in this KL: it is {after:.1f} nats away.",
        "several times as far": "",
    },
    _price,
)

# -- teaching oneself


def _two_hints():
    hints = torch.tensor([[0.8, 0.001, 0.199], [0.001, 0.8, 0.199]], dtype=torch.float64).log()
    even = torch.tensor([0.5, 0.5], dtype=torch.float64)
    reverse, forward = (teach(hints, even).tolist() for teach in (ch18.product_of_teachers, ch18.mixture_of_teachers))
    numbers = {"mean": forward[0], "each": reverse[0], "third": reverse[2]}
    if abs(reverse[0] - reverse[1]) > 0.1:
        return "the first or the second, one of them alone", numbers
    return "the third" if reverse[2] > reverse[0] else "the first and the second, equally often", numbers


two_hints = Ask(
    "The student learns by the reverse KL from the model that is shown one of the two hints. Which of the three tokens becomes the most probable?",
    {
        "the first or the second, one of them alone": "This can happen where one teacher has both modes. Here the loss is the mean over two teachers. A student that says the first token alone pays log 1/.001, about 7 nats, whenever the other hint was given.",
        "the first and the second, equally often": "That is the mean of the two, {mean:.2f} each, which the forward KL learns. The reverse KL multiplies, and a token that either hint nearly excludes becomes rare: {each:.2f} each.",
        "the third": "",
    },
    _two_hints,
)

# -- again and again


def _kept():
    lost = [100 * (1 - ch18.diversity_accumulated(n=100, generation=sets)) for sets in (1, 1000)]
    return lost[1], {"first": lost[0], "rest": lost[1] - lost[0]}


everything_kept = Ask(
    "Each set has 100 samples, and the first set is real. After a thousand sets 0.1 % of the pool is real. How much of the diversity is lost on average, in percent?",
    Typed(
        within=0.3,
        unit="%",
        low="The first set alone loses {first:.0f} % of the diversity, as any hundred samples do. Each later set loses less, the second 1/4 of that and the third 1/9, but together they lose another {rest:.2f} %.",
        high="Where each set replaces the last one, nearly all diversity is lost. But here the j-th set moves the pool only by 1/j of the way, and the loss shrinks with the square, 1/j².",
    ),
    _kept,
)


def _typical():
    means = {
        f"{way}_{n}": mean("ch18_language", f"{way}_nats_{n}")
        for way, n in (("replace", 7), ("replace", 1), ("typical", 1), ("typical", 2), ("typical", 7))
    }
    means["nothing"] = math.log(len(word_tokenizer(WORLD.words)))
    last = seeds("ch18_language", "typical_nats_7")
    said = compared("ch18_language", "typical_nats_7", "replace_nats_7")
    if said == "smaller" or means["typical_7"] <= 2:
        answer = "less than {replace_7:.2f}" if said == "smaller" else "{replace_7:.2f} to 2"
    elif min(last) > means["nothing"]:
        answer = "more than {nothing:.2f}"
    else:
        answer = "2 to {nothing:.2f}"
    return answer.format(**means), means


typical_pages = Ask(
    "Where pages are replaced, the eighth model has a loss of {replace_7:.2f} nats per token of real pages. A model that has learned nothing, with all tokens equally probable, has {nothing:.2f}. Now each model passes on only those 400 of its 1,200 pages that it finds most probable per token. What is the loss of the eighth model?",
    {
        "less than 1.72": "The most probable pages may contain fewer errors. But they are also more alike, and each model learns only from the last one's selection.",
        "1.72 to 2": "The second model is only slightly worse than the second model without selection, {typical_1:.2f} nats against {replace_1:.2f}. But each model selects again among pages of a model that learned from a selection: the third has {typical_2:.1f} nats, the eighth {typical_7:.1f}.",
        "2 to 4.14": "A model that has learned nothing is not the worst case. A model that is confident of words that real pages do not have has a higher loss on real pages. The third has {typical_2:.1f} nats, the eighth {typical_7:.1f}.",
        "more than 4.14": "",
    },
    _typical,
)
