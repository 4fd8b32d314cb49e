"""What it saves to go on with a conversation's cache instead of reading it again: tokens per second of sampling in turns.

    python benchmarks/turns.py

Writes ``benchmarks/turns.json``. Untrained models whose turns end by chance after a dozen tokens, eight prompts of 32 tokens, four conversations of each, and an
environment that answers every turn with twelve tokens. Both ways sample the same conversations; every repetition goes through both, and the shortest of each
counts, as whatever else the machine does can only make one longer. Processor seconds of one thread; tokens are those that the policy said.
"""

import json
import time
from pathlib import Path

import torch

from minirlhf.models.sampling import Sampling
from minirlhf.models.tiny import tiny_model
from minirlhf.models.tokenizers import word_tokenizer
from minirlhf.models.turns import sample_turns

RESULT = Path(__file__).with_suffix(".json")
TURNS, MODELS, REPEATS = (2, 4, 8), ("nano", "micro"), 3
PROMPTS, GENERATIONS, PROMPT, HEARD = 8, 4, 32, 12


def measure(name: str, turns: int, repeats: int = REPEATS) -> dict[str, float]:
    """Tokens per second both ways, and how many conversations are the same."""
    tokenizer = word_tokenizer([f"w{i}" for i in range(58)])
    model = tiny_model(name, tokenizer, seed=0)
    ends = list(range(1, 7))  # of 64 tokens
    prompts = [[7 + (i * j) % 50 for j in range(1, PROMPT + 1)] for i in range(1, PROMPTS + 1)]
    seconds: dict[bool, list[float]] = {False: [], True: []}
    found = {}
    for repeat in range(repeats):
        for again in seconds:
            start = time.process_time()
            found[again] = sample_turns(
                model, prompts, lambda rows, said: [[7] * HEARD for _ in rows], max_turns=turns, sampling=Sampling(72 * turns),
                num_generations=GENERATIONS, eos_token_id=ends, pad_token_id=0, seed=repeat, read_again=again,
            )  # fmt: skip
            seconds[again].append(time.process_time() - start)
    same = (found[False].mask.shape == found[True].mask.shape) and torch.equal(
        found[False].input_ids, found[True].input_ids
    )
    said = float(found[True].mask.sum())
    return {
        "tokens_per_second": said / min(seconds[False]),
        "tokens_per_second_read_again": said / min(seconds[True]),
        "times": min(seconds[True]) / min(seconds[False]),
        "same": float(same),
    }


def main() -> None:
    """Measure, write and print."""
    torch.set_num_threads(1)
    found = {name: {str(turns): measure(name, turns) for turns in TURNS} for name in MODELS}
    RESULT.write_text(
        json.dumps({"command": "python benchmarks/turns.py", "torch": torch.__version__, "found": found}, indent=1)
        + "\n",
        encoding="utf-8",
    )
    for name, by_turns in found.items():
        for turns, numbers in by_turns.items():
            print(name, turns, {key: round(value, 2) for key, value in numbers.items()})


if __name__ == "__main__":
    main()
