"""Speed of sampling and of a training step on tiny models, one thread, beside ``generate`` of ``transformers``.

    python benchmarks/sampling.py [--json FILE] [--repeats N]

Every round runs all variants one after the other, and the median over the rounds is reported, in CPU seconds (equal to the
wall clock on an idle machine). Lengths are either fixed or vary: then two of the 96 tokens end a row, of a random model.
"""

from __future__ import annotations

import argparse
import json
import platform
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import torch
import transformers

from minirlhf.data.types import Rollout
from minirlhf.models.forward import completion_logps
from minirlhf.models.sampling import Sampling, left_pad, sample
from minirlhf.models.tiny import num_parameters, tiny_model
from minirlhf.models.tokenizers import word_tokenizer

PROMPTS, GROUP, PROMPT, COMPLETION = 16, 8, 16, 48
NEVER, OFTEN = [10_000], [1, 2]


def variants(name: str, lengths: str) -> dict[str, Callable[[], int]]:
    """What is timed; each returns the number of completion tokens that it sampled or trained on."""
    tokenizer = word_tokenizer([f"w{i}" for i in range(90)])
    model = tiny_model(name, tokenizer)
    numbers = torch.Generator().manual_seed(0)
    spread = [PROMPT] * PROMPTS if lengths == "fixed" else [PROMPT // 2 + i % (PROMPT // 2 + 1) for i in range(PROMPTS)]
    prompts = [torch.randint(6, 96, (n,), generator=numbers).tolist() for n in spread]
    eos = NEVER if lengths == "fixed" else OFTEN
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.0)
    step = 0

    def rollout(**options: bool) -> Rollout:
        nonlocal step
        step += 1
        sampling = Sampling(max_completion_length=COMPLETION)
        return sample(
            model, prompts, sampling=sampling, num_generations=GROUP, eos_token_id=eos, pad_token_id=0, seed=0, step=step,
            **options,
        )  # fmt: skip

    ids, mask = left_pad([prompt for prompt in prompts for _ in range(GROUP)], 0)
    settings = transformers.GenerationConfig(
        do_sample=True, top_k=0, max_new_tokens=COMPLETION, eos_token_id=eos, pad_token_id=0
    )

    def ours() -> int:
        return int(rollout().mask.sum())

    def theirs() -> int:
        with torch.no_grad():
            out = model.generate(input_ids=ids, attention_mask=mask, generation_config=settings)[:, ids.shape[1] :]
        ended = torch.isin(out, torch.tensor(eos)).int()
        return int((ended.cumsum(1) - ended == 0).sum())

    fixed_batch = rollout()

    def train() -> int:
        model.train()
        logps = completion_logps(
            model, fixed_batch.input_ids, fixed_batch.attention_mask, fixed_batch.mask.shape[1], return_entropy=False
        )
        loss = -(torch.exp(logps - fixed_batch.old_logps) * fixed_batch.mask).sum() / fixed_batch.mask.sum()
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        return int(fixed_batch.mask.sum())

    print(f"{name}, {lengths} lengths: {num_parameters(model):,} parameters", flush=True)
    return {"sample": ours, "generate": theirs, "train step": train}


def measure(functions: dict[str, Callable[[], int]], repeats: int) -> dict[str, dict[str, float]]:
    """Medians over ``repeats`` rounds, after one that does not count."""
    seconds: dict[str, list[float]] = {key: [] for key in functions}
    rates: dict[str, list[float]] = {key: [] for key in functions}
    for repeat in range(repeats + 1):
        for key, function in functions.items():
            start = time.process_time()
            tokens = function()
            spent = time.process_time() - start
            if repeat:
                seconds[key].append(spent)
                rates[key].append(tokens / spent)
    return {
        key: {"seconds": statistics.median(seconds[key]), "tokens_per_second": statistics.median(rates[key])}
        for key in functions
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, help="also write the result to this file")
    parser.add_argument("--repeats", type=int, default=9)
    options = parser.parse_args()
    torch.set_num_threads(1)
    result: dict[str, object] = {
        "prompts": PROMPTS, "num_generations": GROUP, "prompt_tokens": PROMPT, "max_completion_length": COMPLETION,
        "threads": 1, "torch": torch.__version__, "transformers": transformers.__version__, "machine": platform.machine(),
    }  # fmt: skip
    for name in ("nano", "micro"):
        for lengths in ("fixed", "varying"):
            found = measure(variants(name, lengths), options.repeats)
            result[f"{name}/{lengths}"] = found
            for key, numbers in found.items():
                print(f"  {key:<11} {numbers['seconds'] * 1e3:7.0f} ms {numbers['tokens_per_second']:9,.0f} tokens/s")
            gain = found["sample"]["tokens_per_second"] / found["generate"]["tokens_per_second"]
            print(f"  sampling is {gain:.2f} x as fast as generate")
    if options.json:
        options.json.write_text(json.dumps(result, indent=1), encoding="utf-8")


if __name__ == "__main__":
    main()
