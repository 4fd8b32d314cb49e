"""What ``engine.py`` times: each trainer's job as we do it, as TRL does it, and its floor.

**The same work.** Both sides get a model of the same class and weights (the reward models differ in their last layer, ours has a
bias), the same texts, the same batch, the same learning rate, float32, one optimizer step per batch, and for online training one
generation per step. Online, the end-of-sequence logit depends on the position alone (:class:`Ends`), so the lengths have the same distribution whoever samples: always ``completion``, or uniform between half of it
and one and a half. TRL counts the tokens that it reads (prompts included, padding not); a test compares that with ours.

**What differs** and cannot be switched off, or is what each library does: TRL computes entropies and accuracies for its log at every step, we log probability ratios. We ask the reference of DPO once, before
the first step; TRL asks it at every step unless it is told to do as we do (``trl_cached``). In neither case is the time of asking
beforehand part of a step. TRL 1.16 has no PPO trainer.

**The floor** is the model's own work and nothing else, by the plain ``transformers`` model: forward and backward of the tokens that
are needed, in rows of equal length without padding or mask. A prompt that several rows share counts once; a row's last token
counts only where it is read (in a reward model) and not merely predicted; logits are computed for the predicted tokens only.
Online, there are also the forward passes that produce one token at a time: as many as the longest completion has tokens, less the
one that the prompt gives, each with the mean number of rows that still speak (a pass costs the same plus so much per row, so
the sum is right), with the model's usual cache (one that does not copy itself for every token takes as long). Drawing tokens,
grading, losses and the optimizer are not in it, nor the attention of completions to their prompt while training, so no trainer
that calls the model for these tokens can be much below it.
"""

from __future__ import annotations

import contextlib
import math
import os
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

os.environ.setdefault("HF_HUB_OFFLINE", "1")  # TRL reports each run to its makers: no network within the clock
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

import torch
import transformers
from torch import Tensor

from minirlhf.data.chat import encode, encode_prompt
from minirlhf.data.formats import Problem
from minirlhf.data.types import pair
from minirlhf.models import sampling as ours_of
from minirlhf.models.heads import RewardModel
from minirlhf.models.sampling import Sampling
from minirlhf.models.tiny import tiny_config, tiny_model
from minirlhf.models.tokenizers import word_tokenizer
from minirlhf.recipes import get
from minirlhf.recipes.offline import get_preference
from minirlhf.trainers.history import History
from minirlhf.trainers.offline import OfflineConfig, train_offline
from minirlhf.trainers.online import OnlineConfig, train_online
from minirlhf.trainers.reward import RewardConfig, train_reward
from minirlhf.trainers.sft import SFTConfig, train_sft

WORDS = [f"w{i}" for i in range(90)]
GENERATIONS = 8
BATCHES = 4  # different ones, of offline training
RATE = 1e-4


@dataclass(frozen=True)
class Job:
    """Functions that take so many optimizer steps, and one that does a step's floor once.

    Attributes:
        ours: returns the metrics.
        peers: TRL's variants; each returns the tokens that it says it has read, prompts included and padding not.
        tokens: such tokens of a step, the mean over the batches; where they are sampled at varying lengths, the expected number.
        spoken: those of them that belong to completions.
    """

    ours: Callable[[int], History]
    peers: Mapping[str, Callable[[int], int]]
    floor: Callable[[], None]
    tokens: float
    spoken: float


@dataclass(frozen=True)
class World:
    """Models of one size and texts; everything that decides how much work there is.

    Attributes:
        size: a preset of ``minirlhf.models.tiny``, or ``half``: the shape of half a billion parameters, less the vocabulary.
        varying: lengths of completions uniform from ``completion`` / 2 to 3/2 of it, rather than all the same.
        prompt: words of a prompt; the chat template adds two tokens.
        groups: prompts of an online step; offline, half of the conversations or pairs go by this number too.
        completion: tokens of a completion, on average.
    """

    size: str
    varying: bool = False
    prompt: int = 16
    groups: int = 16
    completion: int = 32
    device: str = "cpu"
    bf16: bool = False
    numbers: torch.Generator = field(default_factory=lambda: torch.Generator().manual_seed(0), compare=False)

    @cached_property
    def tokenizer(self) -> Any:
        """One id per word."""
        return word_tokenizer(WORDS)

    @property
    def lengths(self) -> range:
        """Of completions, all equally likely."""
        half = self.completion // 2 if self.varying else 0
        return range(self.completion - half, self.completion + half + 1)

    @property
    def width(self) -> int:
        """Tokens of a prompt."""
        return len(encode_prompt(self.tokenizer, [{"role": "user", "content": " ".join(WORDS[:1] * self.prompt)}]))

    def words(self, n: int) -> str:
        """So many random ones."""
        return " ".join(WORDS[i] for i in torch.randint(0, len(WORDS), (n,), generator=self.numbers).tolist())

    def ask(self) -> list[dict[str, str]]:
        """A conversation that waits for its answer."""
        return [{"role": "user", "content": self.words(self.prompt)}]

    def answer(self, asked: list[dict[str, str]]) -> list[dict[str, str]]:
        """The conversation with an answer; its end-of-sequence token is one of the tokens of its length."""
        n = self.lengths[int(torch.randint(0, len(self.lengths), (1,), generator=self.numbers))]
        return [*asked, {"role": "assistant", "content": self.words(n - 1)}]

    @property
    def config(self) -> transformers.LlamaConfig:
        """Of the model."""
        config = tiny_config("nano" if self.size == "half" else self.size, self.tokenizer)
        if self.size == "half":
            config.update({"hidden_size": 896, "intermediate_size": 4864, "num_hidden_layers": 24, "head_dim": 64,
                           "num_attention_heads": 14, "num_key_value_heads": 2, "initializer_range": 0.02})  # fmt: skip
        return config

    def place(self, model: Any) -> Any:
        """On the device, in the precision that is asked for, ready to be trained."""
        return model.to(self.device, torch.bfloat16 if self.bf16 else torch.float32).train()

    def model(self) -> Any:
        """A fresh one, always the same."""
        if self.size != "half":
            return self.place(tiny_model(self.size, self.tokenizer))
        torch.manual_seed(0)
        return self.place(transformers.LlamaForCausalLM(self.config))

    def speaker(self) -> Any:
        """A fresh model whose completions have the lengths that are asked for."""
        model = self.model()
        model.register_forward_hook(Ends(self, model), with_kwargs=True)
        return model


class Ends:
    """Sets the end-of-sequence logit by the position alone, so that all lengths come out equally often and no others do.

    For TRL and ``generate`` a hook on the model, for us :class:`Ended`; the lengths are the same. Where all lengths are the same nothing ever ends, and the
    largest number of tokens cuts it off.
    """

    def __init__(self, world: World, model: Any) -> None:
        self.eos: int = world.tokenizer.eos_token_id
        lengths, start = world.lengths, world.width
        with torch.no_grad():
            logits = model(torch.arange(len(WORDS), device=world.device)[None]).logits.float()
        logits[..., self.eos] = -math.inf
        others = float(logits.logsumexp(-1).mean())
        table = torch.full((model.config.max_position_embeddings,), -30.0)
        for ended in lengths if world.varying else ():
            chance = 1 / (lengths.stop - ended)  # of ending here, for a completion that has come so far
            odds = math.log(chance / (1 - chance)) if chance < 1 else 30.0
            table[start + ended - 2] = others + odds  # the position after which the last of its tokens is drawn
        self.table = table.to(world.device)

    def __call__(self, module: Any, args: Any, options: dict[str, Any], output: Any) -> None:
        logits = getattr(output, "logits", None)
        positions = options.get("position_ids")
        if logits is None or positions is None:  # TRL's loss: log-probabilities, of its own making
            return
        keep = options.get("logits_to_keep", 0)
        positions = positions[:, keep] if isinstance(keep, Tensor) else positions[:, -logits.shape[1] :]
        logits[..., self.eos] = self.table[positions].to(logits.dtype)


class Ended:
    """One of our readers with :class:`Ends` on it. A hook on the model would show us the slow way: the fast one steps aside for hooks."""

    def __init__(self, reader: Any, ends: Ends, width: int) -> None:
        self._reader, self._ends, self._last = reader, ends, width - 1
        self.drop_at: float = reader.drop_at
        self._end()

    def _end(self) -> None:
        self.logits = self._reader.logits
        self.logits[:, self._ends.eos] = self._ends.table[self._last].to(self.logits.dtype)

    def read(self, tokens: Tensor) -> None:
        self._reader.read(tokens)
        self._last += 1
        self._end()

    def keep(self, rows: Tensor) -> None:
        self._reader.keep(rows)


@contextlib.contextmanager
def ending(world: World) -> Iterator[None]:
    """Within the block we sample completions of the lengths that are asked for."""
    ends, usual = Ends(world, world.model()), ours_of.reader
    ours_of.reader = lambda *inputs, **options: Ended(usual(*inputs, **options), ends, world.width)
    try:
        yield
    finally:
        ours_of.reader = usual


def reading(world: World, model: Any, tokens: float, rows: int, predicted: float) -> Callable[[], None]:
    """The floor of training: so many tokens in so many rows, of which ``predicted`` have logits."""
    width = max(1, round(tokens / rows))
    ids = torch.randint(0, len(WORDS), (rows, width), device=world.device)
    keep = min(width, max(1, round(predicted / rows)))

    def run() -> None:
        model.zero_grad(set_to_none=True)
        model(input_ids=ids, use_cache=False, logits_to_keep=keep).logits.logsumexp(-1).mean().backward()

    return run


def decoding(world: World, model: Any) -> Callable[[], None]:
    """The floor of sampling: prompts once, then one token at a time."""
    rows, longest, width = world.groups * GENERATIONS, world.lengths[-1], world.width
    alive = max(1, round(rows * (world.completion - 1) / (longest - 1)))
    prompts = torch.randint(0, len(WORDS), (world.groups, width), device=world.device)
    token = torch.zeros(alive, 1, dtype=torch.long, device=world.device)
    owner = torch.arange(alive, device=world.device) % world.groups

    @torch.no_grad()
    def run() -> None:
        cache = model(input_ids=prompts, use_cache=True, logits_to_keep=1).past_key_values
        cache.batch_select_indices(owner)
        for _ in range(longest - 1):
            model(input_ids=token, past_key_values=cache, use_cache=True)

    return run


def settings_of_trl(world: World, kind: Any, defaults: bool, steps: int, folder: str, **more: Any) -> Any:
    """TRL's own defaults, or the same work as ours."""
    same = {} if defaults else {"gradient_checkpointing": False, "bf16": False}
    return kind(
        output_dir=folder, max_steps=steps, use_cpu=world.device == "cpu", report_to="none", save_strategy="no",
        logging_strategy="no", disable_tqdm=True, learning_rate=RATE, lr_scheduler_type="constant", **same, **more,
    )  # fmt: skip


def sampling(world: World) -> Job:
    """Nothing but completions, beside ``generate`` of ``transformers``."""
    model, plain = world.speaker(), world.model()
    prompts = [encode_prompt(world.tokenizer, world.ask()) for _ in range(world.groups)]
    ids = torch.tensor([prompt for prompt in prompts for _ in range(GENERATIONS)], device=world.device)
    eos, pad, longest = world.tokenizer.eos_token_id, world.tokenizer.pad_token_id, world.lengths[-1]
    settings = transformers.GenerationConfig(
        do_sample=True, top_k=0, max_new_tokens=longest, eos_token_id=eos, pad_token_id=pad
    )
    done = torch.optim.SGD([torch.zeros(1)], lr=0.0)  # steps are what the clock waits for

    def ours(steps: int) -> History:
        history = History()
        with ending(world):
            for step in range(steps):
                rollout = ours_of.sample(
                    plain, prompts, sampling=Sampling(max_completion_length=longest), num_generations=GENERATIONS,
                    eos_token_id=eos, pad_token_id=pad, seed=0, step=step,
                )  # fmt: skip
                done.step()
                history.append(step, sampled_tokens=int(rollout.mask.sum()))
        return history

    def peer(steps: int) -> int:
        tokens = 0
        for _ in range(steps):
            with torch.no_grad():
                out = model.generate(input_ids=ids, attention_mask=torch.ones_like(ids), generation_config=settings)
            done.step()
            ends = out == eos
            tokens += int((ends.cumsum(1) - ends.long() == 0).sum())
        return tokens

    return Job(ours, {"generate": peer}, decoding(world, world.model()), *_online_tokens(world))


def _online_tokens(world: World) -> tuple[float, float]:
    rows = world.groups * GENERATIONS
    return rows * (world.width + world.completion), rows * world.completion


def grpo(world: World) -> Job:
    """Groups of 8 completions, one optimizer step on all of them, no reference."""
    problems = [Problem(world.ask()) for _ in range(BATCHES * world.groups)]
    wanted = lambda texts: [float(text.split().count("w1")) for text in texts]
    recipe = get("grpo").with_(kl=None)
    rows, longest = world.groups * GENERATIONS, world.lengths[-1]

    def ours(steps: int) -> History:
        settings = OnlineConfig(
            max_steps=steps, batch_size=world.groups, num_generations=GENERATIONS, max_completion_length=longest,
            learning_rate=RATE,
        )  # fmt: skip
        with ending(world):
            return train_online(
                world.model(), problems, lambda _, texts: wanted(texts), recipe, settings, tokenizer=world.tokenizer, quiet=True
            )  # fmt: skip

    def peer(steps: int, defaults: bool) -> int:
        from datasets import Dataset
        from trl import GRPOConfig, GRPOTrainer

        grader: Any = lambda completions, **_: wanted([c[0]["content"] for c in completions])
        with tempfile.TemporaryDirectory() as folder:
            settings = settings_of_trl(
                world, GRPOConfig, defaults, steps, folder, per_device_train_batch_size=rows, num_generations=GENERATIONS,
                max_completion_length=longest, beta=0.0, loss_type="grpo", num_iterations=1, steps_per_generation=1,
            )  # fmt: skip
            trainer = GRPOTrainer(
                world.speaker(), grader, args=settings, processing_class=world.tokenizer,
                train_dataset=Dataset.from_list([{"prompt": p.prompt} for p in problems]),
            )  # fmt: skip
            trainer.train()
        return int(trainer.state.num_input_tokens_seen)

    model, average = world.model(), world.completion
    decode = decoding(world, model)
    train = reading(world, model, world.groups * world.width + rows * (average - 1), rows, rows * average)

    def floor() -> None:
        decode()
        train()

    return Job(ours, _variants(peer), floor, *_online_tokens(world))


def _variants(peer: Callable[[int, bool], int]) -> dict[str, Callable[[int], int]]:
    return {"trl": lambda steps: peer(steps, False), "trl_defaults": lambda steps: peer(steps, True)}


def _offline_peer(
    world: World, trainer: Any, settings: Any, model: Any, rows: Sequence[Mapping[str, Any]], **options: Any
) -> int:
    from datasets import Dataset

    run = trainer(
        model, args=settings, train_dataset=Dataset.from_list(list(rows)), processing_class=world.tokenizer, **options
    )
    run.train()
    return int(run._total_train_tokens)


def sft(world: World) -> Job:
    """Conversations of one turn, of which the answer is imitated."""
    size = 4 * world.groups
    examples = [encode(world.tokenizer, world.answer(world.ask())) for _ in range(BATCHES * size)]

    def ours(steps: int) -> History:
        settings = SFTConfig(max_steps=steps, batch_size=size, learning_rate=RATE)
        return train_sft(world.model(), examples, settings, pad_token_id=world.tokenizer.pad_token_id, quiet=True)

    def peer(steps: int, defaults: bool) -> int:
        from trl import SFTConfig as Settings
        from trl import SFTTrainer

        rows = [{"input_ids": e.input_ids, "completion_mask": [int(x) for x in e.loss_mask]} for e in examples]
        with tempfile.TemporaryDirectory() as folder:
            settings = settings_of_trl(world, Settings, defaults, steps, folder, per_device_train_batch_size=size)
            return _offline_peer(world, SFTTrainer, settings, world.model(), rows)

    tokens = sum(len(e) for e in examples) / BATCHES
    predicted = sum(sum(e.loss_mask) for e in examples) / BATCHES
    floor = reading(world, world.model(), tokens - size, size, predicted)
    return Job(ours, _variants(peer), floor, tokens, predicted)


def _compared(world: World) -> tuple[int, list[list[list[dict[str, str]]]]]:
    """Pairs of a batch, and pairs of answers to the same question."""
    size = 2 * world.groups
    asked = [world.ask() for _ in range(BATCHES * size)]
    return size, [[world.answer(question), world.answer(question)] for question in asked]


def reward(world: World) -> Job:
    """A reward model on pairs of answers to one prompt."""
    size, talks = _compared(world)
    pairs = [pair(encode(world.tokenizer, a), encode(world.tokenizer, b)) for a, b in talks]

    def ours(steps: int) -> History:
        settings = RewardConfig(max_steps=steps, batch_size=size, learning_rate=RATE)
        judge = RewardModel.from_causal_lm(world.model(), share=True)
        return train_reward(judge, pairs, settings, pad_token_id=world.tokenizer.pad_token_id, quiet=True)

    def peer(steps: int, defaults: bool) -> int:
        from trl import RewardConfig as Settings
        from trl import RewardTrainer

        config = world.config
        config.num_labels = 1
        judge = world.place(transformers.LlamaForSequenceClassification(config))
        judge.model.load_state_dict(world.model().model.state_dict())
        rows = [{"chosen_ids": p.chosen.input_ids, "rejected_ids": p.rejected.input_ids} for p in pairs]
        with tempfile.TemporaryDirectory() as folder:
            settings = settings_of_trl(world, Settings, defaults, steps, folder, per_device_train_batch_size=size)
            return _offline_peer(world, RewardTrainer, settings, judge, rows)

    tokens = sum(len(p.chosen) + len(p.rejected) for p in pairs) / BATCHES
    floor = reading(world, world.model(), tokens - size * world.width, 2 * size, 2 * size)
    return Job(ours, _variants(peer), floor, tokens, tokens - 2 * size * world.width)


def dpo(world: World) -> Job:
    """DPO on pairs of answers to one prompt."""
    size, talks = _compared(world)
    pairs = [pair(encode(world.tokenizer, a), encode(world.tokenizer, b)) for a, b in talks]

    def ours(steps: int) -> History:
        settings = OfflineConfig(max_steps=steps, batch_size=size, learning_rate=RATE)
        pad = world.tokenizer.pad_token_id
        return train_offline(world.model(), pairs, get_preference("dpo"), settings, pad_token_id=pad, quiet=True)

    def peer(steps: int, defaults: bool, cached: bool = False) -> int:
        from trl import DPOConfig, DPOTrainer

        rows = [{"prompt": a[:1], "chosen": a[1:], "rejected": b[1:]} for a, b in talks]
        with tempfile.TemporaryDirectory() as folder:
            settings = settings_of_trl(
                world, DPOConfig, defaults, steps, folder, per_device_train_batch_size=size, precompute_ref_log_probs=cached,
            )  # fmt: skip
            return _offline_peer(world, DPOTrainer, settings, world.model(), rows, ref_model=world.model())

    answers = [answer for two in pairs for answer in two.completions]
    tokens = sum(len(answer) for answer in answers) / BATCHES
    predicted = sum(sum(answer.loss_mask) for answer in answers) / BATCHES
    floor = reading(world, world.model(), tokens - size * world.width - 2 * size, 2 * size, predicted)
    peers = {**_variants(peer), "trl_cached": lambda steps: peer(steps, False, True)}
    return Job(ours, peers, floor, tokens, predicted)


JOBS: dict[str, Callable[[World], Job]] = {
    "sampling": sampling, "grpo": grpo, "dpo": dpo, "sft": sft, "reward": reward,
}  # fmt: skip
