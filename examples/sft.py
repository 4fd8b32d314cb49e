"""Supervised fine-tuning (SFT): imitate demonstrations, token by token.

Show a language model a prompt x with the reply y that a person wrote, and make this reply more likely: the loss is the
mean of −log π(y_t | x, y_<t) over the reply's tokens. The prompt is read but not learned. The end-of-sequence token is
learned, otherwise the model never stops; padding is a token of its own and is neither.

    python examples/sft.py                                        # a tiny model from random weights, on a CPU
    python examples/sft.py --model FOLDER_OR_HUB_NAME --out mine  # a model of yours; then dpo.py --model mine ...

Source: Ouyang et al. (2022), "Training language models to follow instructions with human feedback", step 1,
arXiv:2203.02155.
Deviations: the tiny model has not been pretrained; no dropout, three epochs for their 16, a learning rate that falls
in a straight line for their cosine; the mean is over all reply tokens of a batch, so that a long reply counts more.

The world of all five pages: questions about animals, demonstrations by a hurried person, and a gold reward for which
true facts and one polite word count, against flattery, filler, false claims and length (data/tasks/assistant.py).
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor
from tqdm import tqdm

from minirlhf import sft_loss
from minirlhf.core.errors import UserError
from minirlhf.core.logprobs import token_logps
from minirlhf.data.chat import conversation, encode
from minirlhf.data.collate import collate
from minirlhf.data.tasks.assistant import ASSISTANT as WORLD
from minirlhf.data.types import TokenBatch, Tokens
from minirlhf.models.loading import load_model
from minirlhf.models.tokenizers import word_tokenizer

DEMONSTRATIONS, WARM_START = 4000, 150  # replies to imitate; steps in which the other pages make a tiny model ready


def demonstrations(tokenizer: Any, seed: int, count: int) -> list[Tokens]:
    """Prompt and reply as one row of ids each, in the chat template, with a mask of what the assistant wrote."""
    rng, prompts = np.random.default_rng(seed), WORLD.prompts("train")
    asked = [prompts[i % len(prompts)] for i in range(count)]
    return [encode(tokenizer, conversation(prompt, WORLD.demonstration(prompt, rng))) for prompt in asked]


def logps_of(model: Any, batch: TokenBatch) -> Tensor:
    """Log-probability of every token but the first: ``(B, S-1)``. The logits at t are about the token at t + 1."""
    return token_logps(model(batch.input_ids, attention_mask=batch.attention_mask).logits, batch.input_ids)


def sft(model: Any, tokenizer: Any, *, steps: int, learning_rate: float, seed: int, batch_size: int = 64) -> None:
    """Train ``model`` in place."""
    examples, rng = demonstrations(tokenizer, seed, DEMONSTRATIONS), np.random.default_rng(seed)
    optimizer = torch.optim.AdamW(model.parameters(), lr=learning_rate, weight_decay=0.0)
    for step in (bar := tqdm(range(steps), desc="sft")):
        picked = rng.choice(len(examples), batch_size, replace=False)
        batch = collate([examples[i] for i in picked], tokenizer.pad_token_id).to(model.device)  # padded on the right
        mask = batch.loss_mask[:, 1:]  # (B, S-1): reply and EOS, neither prompt nor padding
        loss = sft_loss(logps_of(model, batch), mask)  # nats per token
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.param_groups[0]["lr"] = learning_rate * (1 - step / steps)
        optimizer.step()
        bar.set_postfix(loss=f"{loss.item():.3f}", refresh=False)


# -- what the other pages share --------------------------------------------------------------------------------------


def load(args: argparse.Namespace, *, warm_start: bool = True) -> tuple[Any, Any]:
    """An ordinary ``transformers`` model and tokenizer. The tiny one is made and, with ``warm_start``, taught a bit."""
    torch.manual_seed(args.seed)
    tiny = args.model == "tiny"
    try:
        options = {"tokenizer": word_tokenizer(WORLD.words) if tiny else None, "complete_tokenizer": not tiny}
        model, tokenizer = load_model("nano" if tiny else args.model, seed=args.seed, **options)
    except UserError as problem:
        sys.exit(f"error: {problem}")
    if tiny:
        torch.set_num_threads(1)  # so small that more of them only get into each other's way
    model.float().to(args.device).eval()  # eval: no dropout
    tokenizer.padding_side = "left"  # for `generate`, which goes on at the right
    if tiny and warm_start:
        sft(model, tokenizer, steps=WARM_START, learning_rate=3e-3, seed=args.seed)
    return model, tokenizer


@torch.no_grad()
def replies(model: Any, tokenizer: Any, prompts: Sequence[str]) -> list[str]:
    """One sampled reply to each prompt, temperature 1."""
    chats = [conversation(prompt) for prompt in prompts]
    options = {"padding": True, "return_dict": True, "return_tensors": "pt"}
    inputs = tokenizer.apply_chat_template(chats, add_generation_prompt=True, **options).to(model.device)  # (B, W)
    sampling = {"do_sample": True, "temperature": 1.0, "top_k": 0, "top_p": 1.0}
    ids = model.generate(**inputs, max_new_tokens=WORLD.max_completion_length, **sampling)  # (B, W + T)
    return tokenizer.batch_decode(ids[:, inputs["input_ids"].shape[1] :], skip_special_tokens=True)


def show(when: str, model: Any, tokenizer: Any) -> float:
    """Print three replies to held-out prompts and the mean gold reward of four to each of the 128; return the mean."""
    prompts = WORLD.prompts("test") * 4
    said = replies(model, tokenizer, prompts)
    gold = [WORLD.grade(prompt, reply) for prompt, reply in zip(prompts, said, strict=True)]
    print(f"{when}: mean gold reward {np.mean(gold):+.2f} (demonstrations +1.18, best possible +2.72)")
    for prompt, reply, grade in list(zip(prompts, said, gold, strict=True))[:3]:
        print(f"  {prompt}\n    {grade:+.2f}  {reply}")
    return float(np.mean(gold))


def arguments(argv: Sequence[str] | None, doc: str | None, *, steps: int, learning_rate: float) -> argparse.Namespace:
    """The options that every page has."""
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="tiny", help="a model folder or hub name; by default a tiny one is made")
    parser.add_argument("--steps", type=int, default=steps, help="default: %(default)s")
    parser.add_argument("--learning-rate", type=float, help=f"default: {learning_rate:g} if tiny, else 1e-5")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--out", help="folder for the trained model")
    args = parser.parse_args(argv)
    if args.learning_rate is None:
        args.learning_rate = learning_rate if args.model == "tiny" else 1e-5
    return args


def main(argv: Sequence[str] | None = None) -> tuple[float, float]:
    """Train and print; returns the mean gold reward before and after."""
    args = arguments(argv, __doc__, steps=200, learning_rate=3e-3)
    model, tokenizer = load(args, warm_start=False)
    [example] = demonstrations(tokenizer, args.seed, 1)
    words = zip(tokenizer.convert_ids_to_tokens(example.input_ids), example.loss_mask, strict=True)
    print("a demonstration, what is learned in brackets:", " ".join(f"[{w}]" if learned else w for w, learned in words))
    before = show("before", model, tokenizer)
    sft(model, tokenizer, steps=args.steps, learning_rate=args.learning_rate, seed=args.seed)
    after = show("after", model, tokenizer)
    if args.out:
        model.save_pretrained(args.out)
        tokenizer.save_pretrained(args.out)
    return before, after


if __name__ == "__main__":
    main()
