"""One training step of each trainer beside its own floor and beside TRL, on tiny models, on a CPU.

    python benchmarks/engine.py [--json FILE] [--rounds N] [--only grpo sft ...] [--models nano micro] [--threads 1 2]

A step is what lies between two optimizer steps, so both sides are measured the same way and leave nothing out. In every round
our trainer and TRL's take a few steps each, one after the other; what is reported is the median over all steps, in seconds of
processor time for one thread and of wall clock for two. TRL runs twice: doing the same work (no gradient checkpointing, no
bfloat16), and with its defaults.

The floor is the model's own work and nothing else: forward and backward of the tokens that are needed, each shared prompt once
and no padding, and for online training also the forward passes that produce one token at a time.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import itertools
import json
import logging
import platform
import statistics
import tempfile
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import datasets
import torch
import transformers
from torch.optim.optimizer import register_optimizer_step_post_hook

from minirlhf.data.chat import encode, encode_prompt
from minirlhf.data.formats import Problem
from minirlhf.models.heads import RewardModel
from minirlhf.models.tiny import num_parameters, tiny_config, tiny_model
from minirlhf.models.tokenizers import word_tokenizer
from minirlhf.recipes import get
from minirlhf.recipes.offline import get_preference
from minirlhf.trainers.offline import OfflineConfig, pair, train_offline
from minirlhf.trainers.online import OnlineConfig, train_online
from minirlhf.trainers.reward import PairTokens, RewardConfig, train_reward
from minirlhf.trainers.sft import SFTConfig, train_sft

PROMPTS, GROUP, PROMPT = 16, 8, 16
FIXED, SHORTEST, LONGEST = 32, 16, 48
STEPS = 4  # per round, after one that warms up
ROWS = 64  # of supervised fine-tuning
PAIRS = 32


def clock(threads: int) -> Callable[[], float]:
    """Processor time where one thread does all of it: what else the machine does hardly shows."""
    return time.process_time if threads == 1 else time.perf_counter


@contextlib.contextmanager
def timed(now: Callable[[], float]) -> Any:
    """Collects the moments at which an optimizer has stepped."""
    moments: list[float] = []
    handle = register_optimizer_step_post_hook(lambda *_: moments.append(now()))
    try:
        yield moments
    finally:
        handle.remove()


@dataclass(frozen=True)
class Work:
    """A trainer's job: functions that take so many steps, and one that does the floor's work once."""

    ours: Callable[[int], None]
    peer: Callable[[int, bool], None]
    floor: Callable[[], None]


class World:
    """Words, a tokenizer and models of one size; the same texts for everybody."""

    def __init__(self, size: str, varying: bool) -> None:
        words = [f"w{i}" for i in range(90)]
        self.size, self.varying = size, varying
        self.tokenizer = word_tokenizer(words)
        self.numbers = torch.Generator().manual_seed(0)
        self._words = words

    def text(self, low: int, high: int) -> str:
        """So many random words."""
        n = int(torch.randint(low, high + 1, (1,), generator=self.numbers))
        return " ".join(self._words[i] for i in torch.randint(0, 90, (n,), generator=self.numbers).tolist())

    def reply(self) -> str:
        """A text of the length that is asked for."""
        return self.text(SHORTEST, LONGEST) if self.varying else self.text(FIXED, FIXED)

    def model(self) -> Any:
        """A fresh model, always the same."""
        return tiny_model(self.size, self.tokenizer).train()


def messages(prompt: str, reply: str | None = None) -> list[dict[str, str]]:
    """As a conversation."""
    said = [{"role": "user", "content": prompt}]
    return said if reply is None else [*said, {"role": "assistant", "content": reply}]


def peer_arguments(kind: Any, defaults: bool, steps: int, folder: str, **more: Any) -> Any:
    """TRL's settings: its own defaults, or the same work as ours."""
    same = {} if defaults else {"gradient_checkpointing": False, "bf16": False}
    return kind(
        output_dir=folder, max_steps=steps, use_cpu=True, report_to="none", save_strategy="no", disable_tqdm=True,
        logging_strategy="no", learning_rate=1e-4, lr_scheduler_type="constant", **same, **more,
    )  # fmt: skip


def forward_backward(model: Any, tokens: int, rows: int, predicted: int) -> Callable[[], None]:
    """One pass over so many tokens in so many rows of equal length, without padding; ``predicted`` of them have logits."""
    width = max(2, round(tokens / rows))
    ids = torch.randint(0, 90, (rows, width))
    keep = max(1, round(predicted / rows))

    def run() -> None:
        logits = model(input_ids=ids, use_cache=False, logits_to_keep=keep).logits
        logits.logsumexp(-1).mean().backward()

    return run


def online(world: World) -> Work:
    """GRPO without a reference: 16 prompts, 8 completions each."""
    problems = [Problem(messages(world.text(PROMPT, PROMPT))) for _ in range(4 * PROMPTS)]
    # Varying: a completion ends where it says one of some words. Fixed: at a word that does not exist.
    longest = LONGEST if world.varying else FIXED
    ours_tokenizer = _EndsAt(world.tokenizer, None if world.varying else 10_000)
    wanted = lambda texts: [float(text.split().count("w1")) for text in texts]
    recipe = get("grpo").with_(kl=None)

    def ours(steps: int) -> None:
        settings = OnlineConfig(
            max_steps=steps, batch_size=PROMPTS, num_generations=GROUP, max_completion_length=longest
        )
        train_online(
            world.model(),
            problems,
            lambda _, texts: wanted(texts),
            recipe,
            settings,
            tokenizer=ours_tokenizer,
            quiet=True,
        )

    def peer(steps: int, defaults: bool) -> None:
        from datasets import Dataset
        from trl import GRPOConfig, GRPOTrainer

        with tempfile.TemporaryDirectory() as folder:
            arguments = peer_arguments(
                GRPOConfig, defaults, steps, folder, per_device_train_batch_size=PROMPTS * GROUP, num_generations=GROUP,
                max_completion_length=longest, beta=0.0, loss_type="grpo",
                generation_kwargs=None if world.varying else {"min_new_tokens": longest},
            )  # fmt: skip
            GRPOTrainer(
                world.model(), lambda completions, **_: wanted([c[0]["content"] for c in completions]), args=arguments,
                train_dataset=Dataset.from_list([{"prompt": p.prompt} for p in problems]), processing_class=world.tokenizer,
            ).train()  # fmt: skip

    width = len(encode_prompt(world.tokenizer, problems[0].prompt))
    rows = PROMPTS * GROUP
    model = world.model()
    average = _expected_length(len(world.tokenizer), longest) if world.varying else longest
    passes = forward_backward(model, round(PROMPTS * width + rows * average), rows, round(rows * average))
    alive = max(1, round(rows * average / longest))  # rows that still speak, on average over the steps of decoding

    @torch.no_grad()
    def decode() -> None:
        cache = model(
            input_ids=torch.randint(0, 90, (PROMPTS, width)), use_cache=True, logits_to_keep=1
        ).past_key_values
        cache.batch_select_indices(torch.arange(alive) % PROMPTS)
        token = torch.zeros(alive, 1, dtype=torch.long)
        for _ in range(longest - 1):
            model(input_ids=token, past_key_values=cache, use_cache=True)

    def floor() -> None:
        decode()
        passes()

    return Work(ours, peer, floor)


def _expected_length(vocabulary: int, longest: int) -> float:
    """Of a completion that ends with probability 1/V at every token and is cut off at ``longest``."""
    stays = 1 - 1 / vocabulary
    return sum(stays**t for t in range(longest))


class _EndsAt:
    """A tokenizer with another end-of-sequence id."""

    def __init__(self, tokenizer: Any, eos: int | None) -> None:
        self._tokenizer = tokenizer
        self.eos_token_id = tokenizer.eos_token_id if eos is None else eos

    def __getattr__(self, name: str) -> Any:
        return getattr(self._tokenizer, name)

    def __call__(self, *texts: Any, **options: Any) -> Any:
        return self._tokenizer(*texts, **options)


def sft(world: World) -> Work:
    """Supervised fine-tuning on conversations of one turn."""
    talks = [messages(world.text(PROMPT, PROMPT), world.reply()) for _ in range(4 * ROWS)]
    examples = [encode(world.tokenizer, talk) for talk in talks]

    def ours(steps: int) -> None:
        train_sft(world.model(), examples, SFTConfig(max_steps=steps, batch_size=ROWS), pad_token_id=0, quiet=True)

    def peer(steps: int, defaults: bool) -> None:
        from datasets import Dataset
        from trl import SFTConfig as Settings
        from trl import SFTTrainer

        rows = [{"input_ids": e.input_ids, "completion_mask": [int(x) for x in e.loss_mask]} for e in examples]
        with tempfile.TemporaryDirectory() as folder:
            arguments = peer_arguments(Settings, defaults, steps, folder, per_device_train_batch_size=ROWS)
            SFTTrainer(
                world.model(), args=arguments, train_dataset=Dataset.from_list(rows), processing_class=world.tokenizer
            ).train()

    tokens = sum(len(e) for e in examples) / 4
    return Work(ours, peer, forward_backward(world.model(), round(tokens), ROWS, round(tokens)))


def reward(world: World) -> Work:
    """A reward model on pairs of replies to one prompt."""
    pairs = []
    for _ in range(4 * PAIRS):
        prompt = world.text(PROMPT, PROMPT)
        pairs.append([encode(world.tokenizer, messages(prompt, world.reply())) for _ in range(2)])

    def ours(steps: int) -> None:
        judge = RewardModel.from_causal_lm(world.model())
        records = [PairTokens(*pair) for pair in pairs]
        train_reward(judge, records, RewardConfig(max_steps=steps, batch_size=PAIRS), pad_token_id=0, quiet=True)

    def peer(steps: int, defaults: bool) -> None:
        from datasets import Dataset
        from trl import RewardConfig as Settings
        from trl import RewardTrainer

        config = tiny_config(world.size, world.tokenizer)
        config.num_labels = 1
        judge = transformers.LlamaForSequenceClassification(config)
        rows = [{"chosen_ids": a.input_ids, "rejected_ids": b.input_ids} for a, b in pairs]
        with tempfile.TemporaryDirectory() as folder:
            arguments = peer_arguments(Settings, defaults, steps, folder, per_device_train_batch_size=PAIRS)
            RewardTrainer(
                judge, args=arguments, train_dataset=Dataset.from_list(rows), processing_class=world.tokenizer
            ).train()

    shared = len(encode_prompt(world.tokenizer, messages(world.text(PROMPT, PROMPT))))
    needed = sum(len(a) + len(b) - shared for a, b in pairs) / 4
    return Work(ours, peer, forward_backward(world.model(), round(needed), 2 * PAIRS, 2 * PAIRS))


def dpo(world: World) -> Work:
    """DPO on pairs of replies to one prompt. Ours asks the reference once, before the first step; TRL asks it at every step."""
    talks = []
    for _ in range(4 * PAIRS):
        prompt = world.text(PROMPT, PROMPT)
        talks.append([messages(prompt, world.reply()) for _ in range(2)])
    pairs = [pair(*(encode(world.tokenizer, talk) for talk in two)) for two in talks]

    def ours(steps: int) -> None:
        settings = OfflineConfig(max_steps=steps, batch_size=PAIRS)
        train_offline(world.model(), pairs, get_preference("dpo"), settings, pad_token_id=0, quiet=True)

    def peer(steps: int, defaults: bool) -> None:
        from datasets import Dataset
        from trl import DPOConfig, DPOTrainer

        rows = [{"prompt": a[:1], "chosen": a[1:], "rejected": b[1:]} for a, b in talks]
        with tempfile.TemporaryDirectory() as folder:
            arguments = peer_arguments(DPOConfig, defaults, steps, folder, per_device_train_batch_size=PAIRS)
            DPOTrainer(
                world.model(), ref_model=world.model(), args=arguments, train_dataset=Dataset.from_list(rows),
                processing_class=world.tokenizer,
            ).train()  # fmt: skip

    answers = [answer for two in pairs for answer in two.answers]
    predicted = sum(sum(answer.loss_mask) for answer in answers) / 4
    shared = len(answers[0]) - sum(answers[0].loss_mask)
    needed = sum(len(answer) for answer in answers) / 4 - PAIRS * shared
    return Work(ours, peer, forward_backward(world.model(), round(needed), 2 * PAIRS, round(predicted)))


TRAINERS = {"grpo": online, "dpo": dpo, "sft": sft, "reward": reward}


def measure(work: Work, rounds: int, threads: int) -> dict[str, float]:
    """Median seconds of a step: ours, TRL's with the same work, TRL's as it comes, and of the floor."""
    now = clock(threads)
    seconds: dict[str, list[float]] = {"ours": [], "trl": [], "trl_defaults": [], "floor": []}
    for _ in range(rounds):
        for name, advance in (
            ("ours", work.ours),
            ("trl", lambda n: work.peer(n, False)),
            ("trl_defaults", lambda n: work.peer(n, True)),
        ):
            with timed(now) as moments, contextlib.redirect_stdout(io.StringIO()):
                advance(STEPS + 1)
            seconds[name] += [after - before for before, after in itertools.pairwise(moments)]
        for repeat in range(3):
            start = now()
            work.floor()
            if repeat:
                seconds["floor"].append(now() - start)
    return {name: statistics.median(values) for name, values in seconds.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, help="also write the result to this file")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", nargs="+", choices=TRAINERS, default=list(TRAINERS))
    parser.add_argument("--models", nargs="+", default=["nano", "micro"])
    parser.add_argument("--threads", nargs="+", type=int, default=[1, 2])
    options = parser.parse_args()
    warnings.filterwarnings("ignore")
    logging.disable(logging.WARNING)
    datasets.disable_progress_bars()
    result: dict[str, Any] = {
        "torch": torch.__version__,
        "transformers": transformers.__version__,
        "machine": platform.machine(),
    }
    for threads in options.threads:
        torch.set_num_threads(threads)
        for size in options.models:
            for varying in (False, True):
                world = World(size, varying)
                lengths = "varying" if varying else "fixed"
                print(
                    f"{size} ({num_parameters(world.model()):,} parameters), {lengths} lengths, {threads} thread(s)",
                    flush=True,
                )
                for name in options.only:
                    found = measure(TRAINERS[name](world), options.rounds, threads)
                    result[f"{size}/{lengths}/{threads}/{name}"] = found
                    ours = found["ours"]
                    print(
                        f"  {name:<7} {ours * 1e3:7.0f} ms = {ours / found['floor']:.2f} x floor, "
                        f"{ours / found['trl']:.2f} x TRL, {ours / found['trl_defaults']:.2f} x TRL by default",
                        flush=True,
                    )
    if options.json:
        options.json.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
