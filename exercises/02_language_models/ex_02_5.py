# ---
# title: Bug hunt: the model that never stops
# kind: bughunt
# minutes: 25
# ---

# %% [statement]
# A team fine-tunes a model on prompts and completions. The loss falls to a surprisingly low value. But the model
# repeats the last word of its input, its completions start one word late, and it never stops: it writes
# until the length limit truncates it.
#
# The team's tokenizer has no padding token, so they used the end-of-sequence token for padding, as is common. Below is the part
# of their code that makes labels and loss. `labels` are the tokens to be learned, in place. The value −100 means "no label here",
# which is right for the prompt and for padding and wrong for everything else.
#
# A prompt of several turns may hold end-of-sequence tokens, too.
#
# **There are three bugs. Find and fix them.** Keep both functions and their arguments.

# %% [given]
import torch
import torch.nn.functional as F


# %% [stub]
def sft_labels(input_ids, attention_mask, prompt_lengths, eos_id):
    """Return labels for fine-tuning: the completion's tokens, its end-of-sequence token too; −100 elsewhere.

    input_ids: (B, S), prompt and completion, padded on the right with eos_id. attention_mask: (B, S), 1 on real tokens.
    prompt_lengths: (B,), tokens of the prompt. Returns (B, S).
    """
    labels = input_ids.clone()
    labels[labels == eos_id] = -100
    for row, length in zip(labels, prompt_lengths.tolist()):
        row[: length + 1] = -100
    return labels


def sft_loss(logits, labels):
    """Return the mean negative log-probability of the labelled tokens. logits: (B, S, V). labels: (B, S). Returns one number."""
    return F.cross_entropy(logits.flatten(0, 1), labels.flatten(), ignore_index=-100)


# %% [solution]
def sft_labels(input_ids, attention_mask, prompt_lengths, eos_id):
    labels = input_ids.clone()
    labels[attention_mask == 0] = -100
    for row, length in zip(labels, prompt_lengths.tolist()):
        row[:length] = -100
    return labels


def sft_loss(logits, labels):
    return F.cross_entropy(logits[:, :-1].flatten(0, 1), labels[:, 1:].flatten(), ignore_index=-100)


# %% [tests]
import math

import torch
from minirlhf_course.classroom.testing import expect, test, tidy

EOS = 7


def batch(draw):
    """Return three rows of a prompt, a completion that ends in EOS, and padding by EOS, with the right labels."""
    ids, mask = torch.full((3, 7), EOS), torch.zeros(3, 7, dtype=torch.long)
    prompts, want = torch.zeros(3, dtype=torch.long), torch.full((3, 7), -100)
    lengths = torch.tensor([1, 2, draw.integer(1, 2)])[draw.permutation(3)].tolist()
    replies = torch.tensor([2, 3, draw.integer(2, 3)])[draw.permutation(3)].tolist()
    for i, prompt in enumerate(lengths):
        end = prompt + replies[i] + 1
        ids[i, : end - 1] = (draw.uniform(end - 1) * 6).long() + 1
        mask[i, :end], prompts[i] = 1, prompt
        want[i, prompt:end] = ids[i, prompt:end]
    return ids, mask, prompts, want


def at(labels, columns):
    """Return each row's label at its own column: ``(B, S), (B,) -> (B,)``."""
    return labels.gather(1, columns[:, None])[:, 0]


def shaped(got, want):
    """Return the answer if it has the shape of labels; otherwise `expect` reports what is wrong."""
    if not isinstance(got, torch.Tensor) or got.shape != want.shape:
        expect(got, want, what="the result of `sft_labels`")
    return got


@test(
    points=2,
    hints=(
        "Which label does the last token of each completion have? This token tells the model to stop.",
        "When padding and end-of-sequence are the same token, the id cannot distinguish them. `attention_mask` can.",
    ),
)
def learns_to_stop(sub, draw):
    "The completion's end-of-sequence token is learned, padding is not."
    ids, mask, prompts, want = batch(draw)
    got = shaped(sub.sft_labels(ids, mask, prompts, EOS), want)
    given = {"input_ids": ids, "attention_mask": mask, "prompt_lengths": prompts, "eos_id": EOS}
    end = mask.sum(-1) - 1
    expect(
        at(got, end),
        at(want, end),
        what="the label of each completion's end-of-sequence token",
        given=given,
        mistakes={"end-of-sequence is masked because padding looks like it": torch.full((3,), -100)},
    )
    padding = mask == 0
    expect(
        got[padding],
        want[padding],
        what="the label of padding",
        given=given,
        mistakes={"padding is learned": ids[padding]},
    )


@test(
    points=2,
    hints=(
        "Print prompt, completion and labels of one row in three lines. Which is the first token with a label?",
        "A prompt of n tokens fills positions 0 … n − 1, and the slice `[:n]` selects exactly these. Only the loss "
        "shifts by one.",
    ),
)
def first_word(sub, draw):
    "The completion's first token is learned, the prompt is not."
    ids, mask, prompts, want = batch(draw)
    got = shaped(sub.sft_labels(ids, mask, prompts, EOS), want)
    given = {"input_ids": ids, "prompt_lengths": prompts}
    first = "the first prompt's length is used for all rows"
    cut = torch.where((mask == 1) & (torch.arange(7) >= prompts[0]), ids, -100)
    expect(
        at(got, prompts),
        at(want, prompts),
        what="the label of each completion's first token",
        given=given,
        mistakes={"one token too many is masked": torch.full((3,), -100), first: at(cut, prompts)},
    )
    expect(
        at(got, prompts - 1),
        at(want, prompts - 1),
        what="the label of each prompt's last token",
        given=given,
        mistakes={"the prompt's last token is learned": at(ids, prompts - 1), first: at(cut, prompts - 1)},
    )
    turns = torch.tensor([[1, EOS, 2, 3, 4, EOS, EOS], [5, 6, EOS, 1, EOS, EOS, EOS]])
    real, lengths = torch.tensor([[1] * 6 + [0], [1] * 5 + [0, 0]]), torch.tensor([3, 3])
    right = torch.tensor([[-100] * 3 + [3, 4, EOS, -100], [-100] * 3 + [1, EOS, -100, -100]])
    expect(
        sub.aside.sft_labels(turns, real, lengths, EOS),
        right,
        what="the labels, with end-of-sequence tokens in the prompt",
        given={"input_ids": turns, "attention_mask": real, "prompt_lengths": lengths},
    )
    full = torch.tensor([[1, 2, 3, EOS], [4, 5, 6, EOS]])
    expect(
        sub.sft_labels(full, torch.ones_like(full), torch.tensor([1, 2]), EOS),
        torch.tensor([[-100, 2, 3, EOS], [-100, -100, 6, EOS]]),
        what="the labels of a batch without padding",
        given={"input_ids": full},
    )


@test(
    points=2,
    hints=(
        "Suppose that the logits at position t predict the token at position t. The model has read this token already. What does it learn?",
        "The logits at position t are for the label at t + 1: drop the last position of the logits and the first label.",
    ),
)
def looks_ahead(sub, draw):
    "In the loss each position predicts the next token."
    _, _, _, labels = batch(draw)
    logits = tidy(draw.normal(3, 7, 8))

    def mean_loss(shift, rows=(0, 1, 2)):
        losses = []
        for row, wanted in zip(logits[list(rows)].tolist(), labels[list(rows)].tolist()):
            for t, label in enumerate(wanted):
                if label != -100 and 0 <= t - shift < len(row):
                    scores = row[t - shift]
                    losses.append(math.log(sum(math.exp(s) for s in scores)) - scores[label])
        return sum(losses) / len(losses)

    expect(
        sub.sft_loss(logits, labels),
        mean_loss(1),
        what="the loss",
        given={"labels": labels},
        mistakes={
            "the losses are added, not averaged": mean_loss(1) * int((labels != -100).sum()),
            "each completion is averaged separately, so that a short one has the same weight as a long one": sum(
                mean_loss(1, [i]) for i in range(3)
            )
            / 3,
            "each position predicts the token it has just read": mean_loss(0),
            "each position predicts the token before it": mean_loss(-1),
        },
    )


# %% [edges]
# learns_to_stop: its end-of-sequence token too
# first_word: A prompt of several turns may hold end-of-sequence tokens, too


# %% [probes]
# no gradient of sft_labels: integers
# no keywords, varied of sft_labels.eos_id: a right answer does not use it


# %% [mutant] end-of-sequence is masked with the padding
# caught by: learns_to_stop
# says: padding looks like it
def sft_labels(input_ids, attention_mask, prompt_lengths, eos_id):
    labels = input_ids.masked_fill(input_ids == eos_id, -100)
    for row, length in zip(labels, prompt_lengths.tolist()):
        row[:length] = -100
    return labels


# %% [mutant] padding is learned as well
# caught by: learns_to_stop
# says: padding is learned
def sft_labels(input_ids, attention_mask, prompt_lengths, eos_id):
    labels = input_ids.clone()
    for row, length in zip(labels, prompt_lengths.tolist()):
        row[:length] = -100
    return labels


# %% [mutant] the first word of the completion is masked
# caught by: first_word
# says: one token too many
def sft_labels(input_ids, attention_mask, prompt_lengths, eos_id):
    labels = input_ids.masked_fill(attention_mask == 0, -100)
    for row, length in zip(labels, prompt_lengths.tolist()):
        row[: length + 1] = -100
    return labels


# %% [mutant] the prompt is learned
# caught by: first_word
# says: is learned
def sft_labels(input_ids, attention_mask, prompt_lengths, eos_id):
    return input_ids.masked_fill(attention_mask == 0, -100)


# %% [mutant] the shift goes the wrong way
# caught by: looks_ahead
# says: the token before it
def sft_loss(logits, labels):
    return F.cross_entropy(logits[:, 1:].flatten(0, 1), labels[:, :-1].flatten(), ignore_index=-100)


# %% [mutant] all is over with the first end of sequence
# caught by: first_word
# says: in the prompt
def sft_labels(input_ids, attention_mask, prompt_lengths, eos_id):
    labels = input_ids.clone()
    for row, length in zip(labels, prompt_lengths.tolist()):
        end = (row == eos_id).nonzero()[0, 0]
        row[end + 1 :] = -100
        row[:length] = -100
    return labels


# %% [partial] 4: the labels are repaired, the loss is as it was
def sft_loss(logits, labels):
    return F.cross_entropy(logits.flatten(0, 1), labels.flatten(), ignore_index=-100)


# %% [partial] 2: only the loss is repaired
def sft_labels(input_ids, attention_mask, prompt_lengths, eos_id):
    labels = input_ids.masked_fill(input_ids == eos_id, -100)
    for row, length in zip(labels, prompt_lengths.tolist()):
        row[: length + 1] = -100
    return labels
