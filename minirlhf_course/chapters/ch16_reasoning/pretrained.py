"""Additions asked of a pretrained model: the questions, the runs, and their recorded completions.

Every run samples completions of held-out questions before and after its training. A record holds these completions with
their grades and log-probabilities, so that all measurements can be computed again without the model.
"""

from __future__ import annotations

import copy
import hashlib
import json
import resource
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

import torch

from minirlhf.core.folders import write_text_atomic
from minirlhf.core.randomness import numpy_generator
from minirlhf.data.chat import conversation, encode, encode_prompt, end_tokens
from minirlhf.data.records import Problem
from minirlhf.data.types import PreferenceExample, Rollout, Tokens, pair
from minirlhf.feedback import graders
from minirlhf.feedback.rewards import reference_reward
from minirlhf.models import pretrained
from minirlhf.models.forward import completion_logps
from minirlhf.models.loading import load_model
from minirlhf.models.reference import reference_logps
from minirlhf.models.sampling import Sampling, sample
from minirlhf.models.texts import completion_texts
from minirlhf.models.tiny import tiny_model
from minirlhf.models.tokenizers import word_tokenizer
from minirlhf.recipes import DR_GRPO
from minirlhf.recipes.offline import PREFERENCES
from minirlhf.trainers.config import TrainerConfig
from minirlhf.trainers.history import History
from minirlhf.trainers.loop import TrainerCallback
from minirlhf.trainers.offline import OfflineConfig, train_offline
from minirlhf.trainers.online import OnlineConfig, train_online
from minirlhf.trainers.sft import SFTConfig, train_sft
from minirlhf_course.evidence.probe import moved, settings

C = TypeVar("C", bound=TrainerConfig)

MODEL = "smollm2"
LENGTH = 12  # tokens of a completion, at most
CHUNK = 8  # questions in one batch of sampling; more do not save time on one core


@dataclass(frozen=True)
class Calculation:
    """A sum or a difference of two numbers; ``hard``: one of them has two digits."""

    a: int
    b: int
    sign: str = "+"
    hard: bool = False

    @property
    def text(self) -> str:
        """The user's turn."""
        return f"What is {self.a} {self.sign} {self.b}? Answer with the number only."

    @property
    def answer(self) -> str:
        """The right answer."""
        return str(self.a + self.b if self.sign == "+" else self.a - self.b)

    @property
    def repeated(self) -> str:
        """The beginning of a completion that repeats the question."""
        return f"{self.a} {self.sign} {self.b} ="

    @property
    def problem(self) -> Problem:
        """The question with its answer, for a trainer."""
        return Problem(conversation(self.text), self.answer)


@dataclass(frozen=True)
class PretrainedPlan:
    """The sizes and settings of one seed.

    Attributes:
        train, held_out: numbers of additions, half of them hard.
        transfer: number of subtractions, half of them hard, which no run trains on.
        completions: completions of a question, for the large and the small measurements.
        easy, hard: least and greatest first number of a question, and second number.
        curve: steps after which RL and SFT are also measured, by a quarter of the completions.
        pairs: at most so many DPO pairs of one question.
    """

    train: int = 48
    held_out: int = 40
    transfer: int = 20
    completions: int = 16
    easy: tuple[int, int, int, int] = (1, 10, 1, 10)
    hard: tuple[int, int, int, int] = (11, 59, 2, 9)
    curve: int = 4
    pairs: int = 3
    rl: OnlineConfig = OnlineConfig(
        max_steps=12, batch_size=4, num_generations=8, max_completion_length=LENGTH, learning_rate=2e-5
    )
    sft: SFTConfig = SFTConfig(max_steps=12, batch_size=4, learning_rate=2e-5)
    dpo: OfflineConfig = OfflineConfig(max_steps=8, batch_size=8, learning_rate=2e-5)
    beta: float = 0.1


PLAN = PretrainedPlan()


def questions(plan: PretrainedPlan, seed: int) -> tuple[list[Calculation], list[Calculation], list[Calculation]]:
    """Return the additions for training, the held-out additions, and the subtractions.

    Training and held-out additions share no pair of numbers, in either order.
    """
    rng = numpy_generator("real additions", seed)
    train: list[Calculation] = []
    held_out: list[Calculation] = []
    transfer: list[Calculation] = []
    for hard, (low, high, least, most) in enumerate((plan.easy, plan.hard)):
        numbers = ((a, b) for a in range(low, high + 1) for b in range(least, most + 1))
        pairs = sorted({(max(a, b), min(a, b)) for a, b in numbers})
        asked = []
        for i in rng.permutation(len(pairs))[: (plan.train + plan.held_out) // 2]:
            a, b = pairs[i] if rng.random() < 0.5 else pairs[i][::-1]
            asked.append(Calculation(a, b, hard=bool(hard)))
        held_out += asked[: plan.held_out // 2]
        train += asked[plan.held_out // 2 :]
        others = [pairs[i] for i in rng.permutation(len(pairs))[: plan.transfer // 2]]
        transfer += [Calculation(a, b, sign="-", hard=bool(hard)) for a, b in others]
    return train, held_out, transfer


@dataclass(frozen=True)
class Policy:
    """A model with its tokenizer, and the model that log-probabilities are compared with (None: itself)."""

    model: Any
    tokenizer: Any
    base: Any = None


def ask(
    policy: Policy, asked: Sequence[Calculation], count: int, seed: int, *, repeat: bool = False
) -> tuple[list[dict[str, Any]], list[Rollout]]:
    """Sample ``count`` completions of each question; with ``repeat`` each begins with the repeated question, ``7 + 9 =``.

    Returns:
        One record per question: ``text`` (the given beginning included), ``grade``, ``length`` (sampled tokens),
        ``logp`` and ``base`` (log-probability of the sampled tokens under the model and under the base model, in nats)
        of each completion; and the rollouts.
    """
    rows: list[dict[str, Any]] = []
    rollouts = []
    begun = [q.repeated if repeat else "" for q in asked]
    given = [list(policy.tokenizer(text, add_special_tokens=False)["input_ids"]) for text in begun]
    prompts = [encode_prompt(policy.tokenizer, conversation(q.text)) + ids for q, ids in zip(asked, given, strict=True)]
    length = LENGTH - max(map(len, given))  # so that no completion, with its beginning, is longer than LENGTH
    for start in range(0, len(asked), CHUNK):
        part = slice(start, start + CHUNK)
        rollout = sample(
            policy.model,
            prompts[part],
            sampling=Sampling(max_completion_length=length),
            num_generations=count,
            eos_token_id=end_tokens(policy.tokenizer, policy.model).ids,
            pad_token_id=policy.tokenizer.pad_token_id,
            prompt_keys=[f"{start + i} {q.text}" for i, q in enumerate(asked[part])],
            seed=seed,
        )
        rollouts.append(rollout)
        logps = (rollout.old_logps * rollout.mask).sum(1)
        base = logps if policy.base is None else _base_logps(policy.base, rollout)
        texts = completion_texts(rollout, policy.tokenizer)
        lengths = rollout.mask.sum(1).tolist()
        for i, question in enumerate(asked[part]):
            own = slice(i * count, (i + 1) * count)
            written = [begun[start + i] + text for text in texts[own]]
            rows.append(
                {
                    "question": f"{question.a} {question.sign} {question.b}",
                    "hard": question.hard,
                    "text": written,
                    "grade": [int(graders.numeric(text, question.answer)) for text in written],
                    "length": lengths[own],
                    "logp": logps[own].tolist(),
                    "base": base[own].tolist(),
                }
            )
    return rows, rollouts


@torch.no_grad()
def _base_logps(base: Any, rollout: Rollout) -> torch.Tensor:
    logps = completion_logps(
        base, rollout.input_ids, rollout.attention_mask, rollout.mask.shape[1], wanted=rollout.mask
    )
    return (logps * rollout.mask).sum(1)


def own_pairs(
    rollouts: Sequence[Rollout], rows: Sequence[dict[str, Any]], most: int, seed: int
) -> tuple[list[PreferenceExample], list[int]]:
    """Return pairs of a right and a wrong completion of the model's own, and the question of each pair."""
    rng = numpy_generator("real pairs", seed)
    pairs, owners, first = [], [], 0
    for rollout in rollouts:
        count = rollout.num_generations
        for group in range(len(rollout.mask) // count):
            grades = rows[first + group]["grade"]
            right = [i for i in rng.permutation(count).tolist() if grades[i]]
            wrong = [i for i in rng.permutation(count).tolist() if not grades[i]]
            for good, bad in list(zip(right, wrong, strict=False))[:most]:
                pairs.append(pair(tokens_of(rollout, group * count + good), tokens_of(rollout, group * count + bad)))
                owners.append(first + group)
        first += len(rollout.mask) // count
    return pairs, owners


def tokens_of(rollout: Rollout, row: int) -> Tokens:
    """Return a sampled completion with its prompt, as a sequence to train on."""
    real = rollout.attention_mask[row].bool()
    ids = rollout.input_ids[row][real].tolist()
    length = int(rollout.mask[row].sum())
    return Tokens(ids, [False] * (len(ids) - length) + [True] * length)


# -- the runs ----------------------------------------------------------------------------------------------------


def train_rl(start: Policy, train: Sequence[Calculation], config: OnlineConfig, **run: Any) -> tuple[Policy, History]:
    """Train a copy of the model by Dr. GRPO on right answers."""
    return _trained(start, lambda model, watch: train_online(
        model, [q.problem for q in train], reference_reward(graders.numeric), DR_GRPO, config,
        tokenizer=start.tokenizer, watch=watch, quiet=True,
    ), **run)  # fmt: skip


def train_answers(start: Policy, train: Sequence[Calculation], config: SFTConfig, **run: Any) -> tuple[Policy, History]:
    """Train a copy of the model by SFT on the right answers, each a number alone."""
    examples = [encode(start.tokenizer, conversation(q.text, q.answer)) for q in train]
    return train_examples(start, examples, config, **run)


def train_examples(start: Policy, examples: Sequence[Tokens], config: SFTConfig, **run: Any) -> tuple[Policy, History]:
    """Train a copy of the model by SFT on examples."""
    return _trained(start, lambda model, watch: train_sft(
        model, examples, config, pad_token_id=start.tokenizer.pad_token_id, watch=watch, quiet=True
    ), **run)  # fmt: skip


def train_pairs(start: Policy, pairs: Sequence[PreferenceExample], config: OfflineConfig, beta: float) -> Policy:
    """Train a copy of the model by DPO on pairs."""
    return _trained(start, lambda model, watch: train_offline(
        model, pairs, PREFERENCES["dpo"].with_(beta=beta), config, pad_token_id=start.tokenizer.pad_token_id, quiet=True
    ))[0]  # fmt: skip


def _trained(
    start: Policy,
    train: Callable[[Any, TrainerCallback | None], History],
    every: int = 0,
    measure: Callable[[Policy], Any] | None = None,
) -> tuple[Policy, History]:
    policy = Policy(copy.deepcopy(start.model), start.tokenizer, start.model)
    watch = None

    def read() -> dict[str, float]:
        assert measure is not None
        measure(policy)
        return {}

    if measure is not None:
        watch = TrainerCallback(every, read)
    return policy, train(policy.model, watch)


def run_seed(start: Policy, plan: PretrainedPlan, seed: int) -> dict[str, Any]:
    """Return the record of one seed: completions of the base model, of RL and of SFT, and DPO's log-probabilities."""
    clock: dict[str, float] = {}
    last = time.perf_counter()

    def lap(name: str) -> None:
        nonlocal last
        now = time.perf_counter()
        clock[name], last = round(now - last, 1), now

    train, held_out, transfer = questions(plan, seed)
    few = plan.completions // 4
    record: dict[str, Any] = {"data": digest(train, held_out, transfer), "train": [[q.a, q.b] for q in train]}
    record["base"], rollouts = ask(start, held_out, plan.completions, seed)
    record["base_transfer"], _ = ask(start, transfer, 2 * few, seed)
    lap("base")
    curves: dict[str, list[Any]] = {"rl": [], "sft": []}

    def reading(name: str, last_step: int) -> dict[str, Any]:
        def measure(policy: Policy) -> None:
            if len(curves[name]) < last_step // plan.curve - 1:  # the last point is measured by more completions
                curves[name].append(ask(policy, held_out, few, seed)[0])

        return {"every": plan.curve, "measure": measure}

    rl, history = train_rl(start, train, replace(plan.rl, seed=seed), **reading("rl", plan.rl.max_steps))
    record["rl_metrics"] = {k: history[k] for k in ("reward", "frac_reward_zero_std", "completion_length", "grad_norm")}
    lap("rl")
    record["rl"], _ = ask(rl, held_out, plan.completions, seed)
    record["rl_transfer"], _ = ask(rl, transfer, 2 * few, seed)
    del rl
    lap("rl_samples")
    sft, history = train_answers(start, train, replace(plan.sft, seed=seed), **reading("sft", plan.sft.max_steps))
    record["sft_metrics"] = {k: history[k] for k in ("loss", "grad_norm")}
    record["sft"], _ = ask(sft, held_out, 2 * few, seed)
    del sft
    lap("sft")
    pairs, owners = own_pairs(rollouts, record["base"], plan.pairs, seed)
    dpo = train_pairs(start, pairs, replace(plan.dpo, seed=seed), plan.beta)
    sides = {"chosen": [p.completions[0] for p in pairs], "rejected": [p.completions[1] for p in pairs]}
    record["dpo"] = {"question": owners} | {
        f"{side}_{name}": _given(policy, tokens)
        for side, tokens in sides.items()
        for name, policy in (("base", start), ("dpo", dpo))
    }
    lap("dpo")
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    return record | {"curves": curves, "seconds": clock, "memory": round(memory, 1)}


def _given(policy: Policy, tokens: Sequence[Tokens]) -> list[float]:
    logps = reference_logps(policy.model, tokens, pad_token_id=policy.tokenizer.pad_token_id, batch_size=16)
    return list(logps.tolist())


def _at_rate(config: C, seed: int, factor: float) -> C:
    return replace(config, seed=seed, learning_rate=factor * config.learning_rate)


def run_rate(start: Policy, plan: PretrainedPlan, seed: int, factor: float) -> dict[str, Any]:
    """Return the record of RL, SFT and DPO with ``factor`` times the plan's learning rates, with half of the
    completions."""
    train, held_out, _ = questions(plan, seed)
    rows, rollouts = ask(start, held_out, plan.completions, seed)
    pairs, _ = own_pairs(rollouts, rows, plan.pairs, seed)
    rl, sft = _at_rate(plan.rl, seed, factor), _at_rate(plan.sft, seed, factor)
    dpo = _at_rate(plan.dpo, seed, factor)
    record: dict[str, Any] = {}
    runs = {"rl": lambda: train_rl(start, train, rl)[0], "sft": lambda: train_answers(start, train, sft)[0]}
    for name, run in runs.items():
        asked, _ = ask(run(), held_out, plan.completions // 2, seed)
        record[name] = [{key: row[key] for key in ("grade", "length", "logp", "base")} for row in asked]
    after = train_pairs(start, pairs, dpo, plan.beta)
    chosen = [p.completions[0] for p in pairs]
    return record | {"dpo": {"chosen_base": _given(start, chosen), "chosen_dpo": _given(after, chosen)}}


def run_repeated(start: Policy, plan: PretrainedPlan, seed: int) -> dict[str, Any]:
    """Return the record of the control without training: the base model completes the repeated held-out questions."""
    train, held_out, transfer = questions(plan, seed)
    rows, _ = ask(start, held_out, plan.completions // 2, seed, repeat=True)
    return {"data": digest(train, held_out, transfer), "repeated": rows}


def digest(*parts: Sequence[Calculation]) -> str:
    """Return a hash (16 hex digits) of the questions."""
    return hashlib.sha256(repr([[asdict(q) for q in part] for part in parts]).encode()).hexdigest()[:16]


def beginner(plan: PretrainedPlan) -> Policy:
    """Return a tiny model of the same architecture, after a few steps of SFT on sums that it is not asked, for probes."""
    numbers = [str(n) for n in range(25)]
    words = ["What", "is", "+", "-", "Answer", "with", "the", "number", "only.", *numbers, *(f"{n}?" for n in numbers)]
    tokenizer = word_tokenizer(words)
    lessons = [Calculation(a, b) for a in range(6) for b in range(6)]
    start = Policy(tiny_model("nano", tokenizer, seed=0), tokenizer)
    after, _ = train_answers(start, lessons, replace(plan.sft, max_steps=40, batch_size=16, learning_rate=3e-3))
    return Policy(after.model, tokenizer)


def brief_plan() -> PretrainedPlan:
    """Return a plan of two steps for each run, for probes."""
    return replace(
        PLAN,
        train=8,
        held_out=8,
        transfer=4,
        completions=32,
        easy=(1, 5, 1, 5),
        hard=(6, 11, 2, 5),
        curve=1,
        rl=replace(PLAN.rl, max_steps=2, learning_rate=1e-3),
        sft=replace(PLAN.sft, max_steps=2, learning_rate=1e-3),
        dpo=replace(PLAN.dpo, max_steps=2, learning_rate=1e-3),
    )


# -- records -----------------------------------------------------------------------------------------------------


def model() -> Policy:
    """Load the pretrained model.

    Raises:
        UserError: its package is not installed.
    """
    return Policy(*load_model(MODEL, complete_tokenizer=True))


#: What a record keeps of each question, besides its grades.
KEPT = {
    "base": ("question", "hard", "text", "length", "logp"),
    "rl": ("question", "hard", "text", "length", "logp", "base"),
    "sft": ("question", "hard", "text", "length", "logp", "base"),
    "repeated": ("question", "hard", "text", "length", "logp"),
    "base_transfer": ("question", "text"),
    "rl_transfer": ("question", "text"),
    "own": ("question", "hard", "text", "length", "logp", "base"),
    "curves": ("logp", "base"),
}


def compact(record: dict[str, Any]) -> dict[str, Any]:
    """Return a record without what no measurement reads, and with log-probabilities of two decimals."""

    def part(name: str, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
        return [{key: _rounded(row[key]) for key in (*KEPT[name], "grade") if key in row} for row in rows]

    smaller: dict[str, Any] = {name: part(name, record[name]) for name in KEPT.keys() & record.keys() - {"curves"}}
    if "curves" in record:
        smaller["curves"] = {k: [part("curves", point) for point in curve] for k, curve in record["curves"].items()}
    if "dpo" in record:
        smaller["dpo"] = {name: _rounded(values) for name, values in record["dpo"].items()}
    return record | smaller


def _rounded(values: Any) -> Any:
    return [round(x, 2) if isinstance(x, float) else x for x in values] if isinstance(values, list) else values


def recorded(name: str, plan: PretrainedPlan, make: Callable[[Policy], dict[str, Any]]) -> dict[str, Any]:
    """Return the record ``name`` from the file beside this module; make and write it first if it has other settings or
    another model, or does not exist."""
    path = Path(__file__).with_name(f"pretrained_{name}.json")
    made_by = settings(plan=plan) | {"model": pretrained.WHEELS[MODEL].sha256}
    if path.is_file():
        stored: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        if not moved(stored["made_by"], made_by):
            return stored
    record = {"made_by": made_by, "torch": torch.__version__, **compact(make(model()))}
    write_text_atomic(path, json.dumps(record, ensure_ascii=False, separators=(",", ":")) + "\n")
    return record
