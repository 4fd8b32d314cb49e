"""A linear reward on the frozen features of a pretrained model, on real pairs.

The pretrained model reads each completion once and is not trained. Only a linear head is fitted to its hidden states.
Two rules are fitted to the same training pairs: length alone, and a list of words (:mod:`.real_pairs`).
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from minirlhf.core.calling import evaluating
from minirlhf.core.errors import UserError
from minirlhf.data import loaders
from minirlhf.data.chat import encode
from minirlhf.data.collate import collate
from minirlhf.data.records import Comparison
from minirlhf.data.types import PreferenceExample, Tokens, pair
from minirlhf.engine import reading
from minirlhf.equations.reward_losses import bradley_terry_loss
from minirlhf.models.loading import load_model
from minirlhf_course.chapters.ch08_reward_models.real_pairs import (
    credit,
    length_differences,
    linear_reward,
    split,
    word_scores,
)
from minirlhf_course.evidence.claims import Record, StatedClaim, measure_claims

MODEL = "smollm2"
POOLINGS = ("last", "mean")


@dataclass(frozen=True)
class FrozenPlan:
    """How the pairs are read and the head is fitted.

    Attributes:
        folds: parts of the pairs, each held out once.
        prompt_tokens, completion_tokens: the last tokens of a prompt and the first of a completion, at most.
        penalties: L2 penalties of the head. One of them, and the pooling, are chosen by the loss in ``inner`` folds of
            the training pairs.
    """

    folds: int = 5
    prompt_tokens: int = 64
    completion_tokens: int = 64
    penalties: tuple[float, ...] = (0.01, 0.1, 1.0)
    inner: int = 3


def shortened(tokenizer: Any, pairs: Sequence[Comparison], plan: FrozenPlan) -> list[PreferenceExample]:
    """Encode the end of each prompt and the beginning of both completions."""

    def encode_part(p: Comparison, completion: Any) -> Tokens:
        whole = encode(tokenizer, [*p.prompt, *completion], first_turn=len(p.prompt))
        begin = whole.loss_mask.index(True)
        part = slice(max(0, begin - plan.prompt_tokens), begin + plan.completion_tokens)
        return Tokens(whole.input_ids[part], whole.loss_mask[part])

    return [pair(encode_part(p, p.chosen), encode_part(p, p.rejected)) for p in pairs]


@torch.no_grad()
def features(
    backbone: nn.Module, pairs: Sequence[PreferenceExample], pad_token_id: int, batch_size: int = 8
) -> dict[str, Tensor]:
    """Return the features of the chosen minus the features of the rejected completion, ``(P, D)`` for each pooling.

    They are the last hidden states, at the last token or averaged over the completion's tokens.
    """
    parts: dict[str, list[Tensor]] = {name: [] for name in POOLINGS}
    with evaluating(backbone):
        for start in range(0, len(pairs), batch_size):
            chunk = pairs[start : start + batch_size]
            batch = collate([p.chosen for p in chunk] + [p.rejected for p in chunk], pad_token_id)
            prompts = torch.tensor([p.chosen.loss_mask.index(True) for p in chunk]).repeat(2)
            hidden, index = reading.states(backbone, batch.input_ids, batch.attention_mask, prompts)
            states = hidden[index].double()  # (2b, S, D)
            inside = batch.loss_mask.double().unsqueeze(-1)
            last = batch.attention_mask.sum(1) - 1
            pooled = {
                "last": states[torch.arange(len(states)), last],
                "mean": (states * inside).sum(1) / inside.sum(1),
            }
            for name, rows in pooled.items():
                chosen, rejected = rows.split(len(chunk))
                parts[name].append(chosen - rejected)
    return {name: torch.cat(rows) for name, rows in parts.items()}


def fitted(train: Tensor, held: Tensor, penalty: float) -> Tensor:
    """Return the chosen minus the rejected reward of the held pairs, ``(P,)``; features are scaled by the training
    pairs."""
    scale = train.square().mean(0).sqrt().clamp(min=1e-12)
    return held / scale @ linear_reward(train / scale, penalty)


def chosen_by_loss(train: Mapping[str, Tensor], plan: FrozenPlan) -> tuple[str, float]:
    """Return the pooling and the penalty with the smallest loss in inner folds of the training pairs."""

    def loss(name: str, penalty: float) -> float:
        x = train[name]
        folds = torch.arange(len(x)) % plan.inner
        margins = [fitted(x[folds != i], x[folds == i], penalty) for i in range(plan.inner)]
        return float(torch.cat([bradley_terry_loss(m, torch.zeros_like(m)) for m in margins]).mean())

    return min(((name, penalty) for name in train for penalty in plan.penalties), key=lambda choice: loss(*choice))


def cross_validate(pairs: Sequence[Comparison], differences: Mapping[str, Tensor], plan: FrozenPlan) -> dict[str, Any]:
    """Hold out each fold once.

    Returns:
        The record: for each pair, whether the head and each rule prefer the chosen completion (½ for a tie), and the
        pairs of each prompt.
    """
    place = {id(p): i for i, p in enumerate(pairs)}
    record: dict[str, Any] = {name: [0.0] * len(pairs) for name in ("frozen", "length", "words")}
    poolings = []
    for fold in range(plan.folds):
        train, held = split(pairs, fold, plan.folds)
        seen, asked = ([place[id(p)] for p in part] for part in (train, held))
        name, penalty = chosen_by_loss({key: x[seen] for key, x in differences.items()}, plan)
        poolings.append(name)
        sign = 1.0 if credit(length_differences(train)).mean() >= 0.5 else -1.0
        margins = {
            "frozen": fitted(differences[name][seen], differences[name][asked], penalty),
            "length": sign * length_differences(held),
            "words": word_scores(train, held),
        }
        for key, values in margins.items():
            for i, right in zip(asked, credit(values).tolist(), strict=True):
                record[key][i] = right
    prompts: dict[str, list[int]] = {}
    for i, p in enumerate(pairs):
        prompts.setdefault(repr(p.prompt), []).append(i)
    return record | {"prompts": list(prompts.values()), "poolings": poolings}


def evaluate(pairs: Sequence[Comparison], plan: FrozenPlan, model: Any, tokenizer: Any) -> dict[str, float]:
    """Return the accuracies of the head and of both rules, and the effects of all claims; equal completions are left
    out.

    Raises:
        UserError: there are too few prompts for the folds.
    """
    different = [p for p in pairs if p.chosen != p.rejected]
    prompts = len({repr(p.prompt) for p in different})
    if prompts < plan.folds * plan.inner:
        raise UserError(
            f"the pairs have {prompts} different prompts; expected at least {plan.folds * plan.inner}, for {plan.folds} folds",
            argument="pairs",
            value=prompts,
            expected=plan.folds * plan.inner,
        )
    examples = shortened(tokenizer, different, plan)
    record = cross_validate(different, features(model.base_model, examples, tokenizer.pad_token_id), plan)
    return measure_claims(FROZEN, record) | describe_frozen(record)


# -- claims ------------------------------------------------------------------------------------------------------


def _accuracy(record: Record, name: str, some: Sequence[int]) -> float:
    right = [record[name][i] for prompt in some for i in record["prompts"][prompt]]
    return sum(right) / len(right)


def _above(rule: str) -> Callable[[Record, Sequence[int]], float]:
    return lambda record, some: _accuracy(record, "frozen", some) - _accuracy(record, rule, some)


def _prompts(record: Record) -> int:
    return len(record["prompts"])


FROZEN: dict[str, StatedClaim] = {
    "chance": StatedClaim(
        "a linear head on frozen features predicts human preferences better than chance",
        8,
        lambda record, some: _accuracy(record, "frozen", some),
        floor=0.5,
        clusters=_prompts,
    ),
    "beats_length": StatedClaim("it is more accurate than length alone", 8, _above("length"), clusters=_prompts),
    "beats_words": StatedClaim("it is more accurate than a list of words", 8, _above("words"), clusters=_prompts),
}


def describe_frozen(record: Record) -> dict[str, float]:
    """Return the accuracies, the number of pairs and prompts, and the fraction of folds that chose the mean."""
    everything = range(_prompts(record))
    numbers = {f"{name}_right": _accuracy(record, name, everything) for name in ("frozen", "length", "words")}
    means = sum(name == "mean" for name in record["poolings"]) / len(record["poolings"])
    return numbers | {"pairs": float(len(record["frozen"])), "prompts": float(len(everything)), "means": means}


def main() -> None:
    """Print the numbers for a reader's own file of pairs."""
    parser = argparse.ArgumentParser(description="Compare a linear head on frozen features with length and words.")
    parser.add_argument("file", help="pairs in any format that minirlhf reads, for example JSONL of chosen, rejected")
    parser.add_argument("--model", default=MODEL, help=f"folder or name of a pretrained model (default: {MODEL})")
    args = parser.parse_args()
    try:
        pairs = loaders.load(args.file).comparisons()
        numbers = evaluate(pairs, FrozenPlan(), *load_model(args.model, complete_tokenizer=True))
    except UserError as error:
        parser.error(str(error))
    for name, value in numbers.items():
        print(f"{name:24} {value:8.3f}")


if __name__ == "__main__":
    main()
