"""What packing saves on real conversations: tokens, and seconds of a forward and a backward pass.

    python benchmarks/packing.py --gsm8k FILE

Writes ``benchmarks/packing.json``. The file is 1,000 problems of openai/grade-school-math, which are not part of this repository.

Four ways to the same loss and the same gradient: one conversation a row with its padding, packed rows with a mask in blocks, and both as
they are read here, without padding. Every repetition goes through the four in turn; the shortest of each counts, as whatever else the
machine does can only make one longer. One thread.
"""

import argparse
import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import torch

from minirlhf.data import loaders
from minirlhf.data.collate import batch_indices, collate
from minirlhf.data.examples import conversations
from minirlhf.data.packing import Packing, collate_packed
from minirlhf.data.types import PackedBatch, TokenBatch
from minirlhf.engine import reading
from minirlhf.models.packed import packed_logps, require_packable
from minirlhf.models.tiny import tiny_model
from minirlhf.models.tokenizers import train_tokenizer
from minirlhf.trainers.likelihood import marked_logps, nll_losses
from minirlhf.trainers.sft import prediction_weights

RESULT = Path(__file__).with_suffix(".json")
CONTEXT, VOCABULARY, ROWS, REPEATS = 512, 1024, 8, 7
MODELS = ("nano", "micro")


@contextmanager
def plainly() -> Iterator[None]:
    """Within the block padding is read, and packed rows go by their mask, as with a model whose attention cannot be replaced."""
    usual = reading.packs
    reading.packs = lambda *_: False  # type: ignore[assignment]
    try:
        yield
    finally:
        reading.packs = usual  # type: ignore[assignment]


def step(
    model: torch.nn.Module, batch: TokenBatch | PackedBatch, read: Callable[..., torch.Tensor]
) -> tuple[float, float, float]:
    """Processor seconds, loss and norm of the gradient of one pass there and back."""
    model.zero_grad()
    start = time.process_time()
    [loss] = nll_losses(model, batch, prediction_weights(batch.loss_mask), None, read=read)
    loss.backward()
    seconds = time.process_time() - start
    norm = torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None]).norm()
    return seconds, loss.item(), norm.item()


def main() -> None:
    """Count, then measure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gsm8k", required=True, help="GSM8K problems, JSONL")
    args = parser.parse_args()
    torch.set_num_threads(1)
    records = loaders.load(args.gsm8k)
    texts = ("\n".join(m["content"] for m in c.messages) for c in records.conversations())
    tokenizer = train_tokenizer(texts, VOCABULARY)
    every = conversations(tokenizer, records)
    examples = [e for e in every if len(e) <= CONTEXT]
    packing = Packing.of([len(e) for e in examples], CONTEXT)
    found = {
        "command": "python benchmarks/packing.py --gsm8k FILE", "torch": torch.__version__, "context": CONTEXT, "rows_of_a_batch": ROWS,
        "conversations": len(examples), "too_long": len(every) - len(examples), "rows": len(packing.rows),
        "filled": packing.filled, "saved": {str(size): packing.saved(size, 0) for size in (8, 16, 32)}, "seconds": {},
    }  # fmt: skip
    rows = [[examples[i] for i in packing.rows[r]] for r in batch_indices(len(packing.rows), ROWS, 0, 0)]
    held = [e for row in rows for e in row]
    packed = collate_packed(rows, int(tokenizer.pad_token_id), length=CONTEXT)
    padded = collate(held, int(tokenizer.pad_token_id))
    found["tokens_of_the_batch"] = {
        "needed": sum(map(len, held)), "padded": padded.input_ids.numel(), "packed": packed.input_ids.numel()
    }  # fmt: skip
    for name in MODELS:
        model = tiny_model(name, tokenizer, context=CONTEXT)
        require_packable(model, CONTEXT)
        ways = {"padded": (padded, marked_logps), "packed": (packed, packed_logps)}
        seen: dict[str, list[tuple[float, float, float]]] = {}
        for _ in range(REPEATS):
            for way, asked in ways.items():
                with plainly():
                    seen.setdefault(way, []).append(step(model, *asked))
                seen.setdefault(f"{way}, without its padding", []).append(step(model, *asked))
        _, loss, norm = seen["padded"][0]
        for way, steps in seen.items():
            assert all(abs(a - loss) < 1e-4 * loss and abs(b - norm) < 1e-3 * norm for _, a, b in steps), way
        found["seconds"][name] = {way: min(seconds for seconds, _, _ in steps) for way, steps in seen.items()}
        print(name, found["seconds"][name], flush=True)
    RESULT.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
