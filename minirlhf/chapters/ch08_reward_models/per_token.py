"""Five readings of one reply, token by token: reward, outcome, process, value and the policy's own log-probability.

The world is the running sum. A transformer this small does not learn by itself to check a sum of two written numbers: heads on its hidden
states stay near the base rate (see the chapter). So every head is told how surprised the frozen policy is at each token, which is added
to the token's embedding along a learned direction.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from minirlhf.core.masking import last_index, zero_where_masked
from minirlhf.core.randomness import generator, numpy_generator
from minirlhf.data.chat import conversation, encode_steps
from minirlhf.data.collate import batch_indices, collate
from minirlhf.data.tasks.running_sum import CARELESS, MODULUS, RUNNING_SUM, STEPS
from minirlhf.data.types import PreferenceExample, Stepped, labelled, pair
from minirlhf.equations.aggregation import aggregate, token_mean
from minirlhf.equations.value_losses import value_mse
from minirlhf.models.forward import completion_logps
from minirlhf.models.heads import RewardModel, ScalarModel, ValueModel
from minirlhf.stages.pipeline import Trained
from minirlhf.trainers.config import TrainerConfig
from minirlhf.trainers.loop import TrainingLoop
from minirlhf.trainers.reward import RewardConfig, train_reward
from minirlhf.trainers.verifiers import OutcomeConfig, ProcessConfig, token_scores, train_outcome, train_process

#: The length of a direction in the space of embeddings that is as long as an embedding, roughly.
SCALE = 0.06


@dataclass(frozen=True)
class HeadsPlan:
    """How much is trained on."""

    prompts: int = 1500
    steps: int = 120
    batch_size: int = 64
    learning_rate: float = 3e-3
    seed: int = 0


@dataclass(frozen=True)
class Written:
    """One reply: its tokens and steps, whether each step is valid, whether the answer is right."""

    prompt: str
    lines: tuple[str, ...]
    stepped: Stepped
    right: bool


def write(tokenizer: Any, prompt: str, slips: tuple[int, ...]) -> Written:
    """The working of a prompt with these slips, labelled by the world."""
    lines = RUNNING_SUM.working(prompt, slips)
    tokens, ends = encode_steps(tokenizer, conversation(prompt), lines)
    labels = tuple(-1 if slip else 1 for slip in slips)
    return Written(prompt, tuple(lines), Stepped(tokens, ends, labels), RUNNING_SUM.grade(prompt, " ".join(lines)) == 1)


def careless(tokenizer: Any, prompts: list[str], seed: int) -> list[Written]:
    """Two replies of the careless writer to every prompt, one after the other."""
    rng = numpy_generator("careless", seed)
    wrong = rng.random((2 * len(prompts), STEPS)) < CARELESS
    slips = wrong * rng.integers(1, MODULUS, size=wrong.shape)
    return [write(tokenizer, prompts[i // 2], tuple(map(int, row))) for i, row in enumerate(slips)]


def planted(tokenizer: Any, prompts: list[str], seed: int) -> list[tuple[int, Written, Written]]:
    """For every prompt one place, a reply with a slip there and nowhere else, and a reply without."""
    rng = numpy_generator("planted", seed)
    found = []
    for prompt in prompts:
        place, slip = int(rng.integers(STEPS)), int(rng.integers(1, MODULUS))
        slips = tuple(slip if step == place else 0 for step in range(STEPS))
        found.append((place, write(tokenizer, prompt, slips), write(tokenizer, prompt, (0,) * STEPS)))
    return found


class Surprised(nn.Module):
    """A head whose backbone is told the frozen policy's surprise, −log π in nats, at each token of the reply.

    Called like the head itself; ``direction`` is learned.
    """

    def __init__(self, policy: nn.Module, head: ScalarModel, *, seed: int) -> None:
        super().__init__()
        self.head = head
        self._policy = (policy,)  # in a tuple: it is read, not trained
        embedding: Any = head.backbone.get_input_embeddings()
        start = torch.randn(embedding.embedding_dim, generator=generator("surprise", seed))
        self.direction = nn.Parameter(SCALE * start)

    def forward(self, input_ids: Tensor, attention_mask: Tensor, prefix: Tensor | None = None) -> Tensor:
        """``(B, S)``, or ``(B,)`` for a reward model."""
        surprise = policy_surprise(self._policy[0], input_ids, attention_mask)
        embedding: Any = self.head.backbone.get_input_embeddings()
        embedded = embedding(input_ids) + surprise[..., None] * self.direction
        backbone: Any = self.head.backbone
        hidden = backbone(inputs_embeds=embedded, attention_mask=attention_mask, use_cache=False).last_hidden_state
        scores = zero_where_masked(self.head.head(hidden).squeeze(-1), attention_mask)
        if isinstance(self.head, RewardModel):
            return scores.gather(1, last_index(attention_mask)[:, None]).squeeze(1)
        return scores


@torch.no_grad()
def policy_surprise(policy: nn.Module, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
    """``(B, S)``: −log π of every token, 0 for the first and at padding."""
    logps = completion_logps(policy, input_ids, attention_mask, input_ids.shape[1] - 1)
    surprise = torch.cat([torch.zeros_like(logps[:, :1]), -logps], 1)
    return zero_where_masked(surprise, attention_mask)


def train_heads(
    policy: Trained,
    plan: HeadsPlan,
    *,
    only: Sequence[str] = ("reward", "outcome", "process", "value"),
    told: bool = True,
    quiet: bool = True,
) -> dict[str, nn.Module]:
    """The heads, all from the policy's weights and on the same replies with another label each; ``told`` the policy's surprise or not."""
    written = careless(policy.tokenizer, RUNNING_SUM.prompts("train")[: plan.prompts], plan.seed)
    common: dict[str, Any] = {
        "max_steps": plan.steps, "batch_size": plan.batch_size, "learning_rate": plan.learning_rate, "warmup_steps": 20,
        "lr_scheduler_type": "linear", "seed": plan.seed,
    }  # fmt: skip
    run: dict[str, Any] = {"pad_token_id": policy.tokenizer.pad_token_id, "quiet": quiet}

    def fresh(kind: type[ScalarModel]) -> nn.Module:
        head = kind.from_causal_lm(policy.model, seed=plan.seed)
        return Surprised(policy.model, head, seed=plan.seed) if told else head

    found: dict[str, nn.Module] = {}
    if "reward" in only:
        found["reward"] = fresh(RewardModel)
        half = replace(RewardConfig(**common), batch_size=plan.batch_size // 2)
        train_reward(found["reward"], compared(written), half, **run)
    if "outcome" in only:
        found["outcome"] = fresh(ValueModel)
        train_outcome(
            found["outcome"], [labelled(w.stepped.tokens, w.right) for w in written], OutcomeConfig(**common), **run
        )
    if "process" in only:
        found["process"] = fresh(ValueModel)
        train_process(found["process"], [w.stepped for w in written], ProcessConfig(**common), **run)
    if "value" in only:
        found["value"] = fresh(ValueModel)
        train_value(found["value"], written, TrainerConfig(**common), **run)
    return found


def compared(written: list[Written]) -> list[PreferenceExample]:
    """The prompts of whose two replies one is right."""
    both = zip(written[::2], written[1::2], strict=True)
    ordered = [(a, b) if a.right else (b, a) for a, b in both if a.right != b.right]
    return [pair(good.stepped.tokens, bad.stepped.tokens) for good, bad in ordered]


def train_value(
    model: nn.Module, written: list[Written], config: TrainerConfig, *, pad_token_id: int, quiet: bool
) -> None:
    """Squared error of every token's value against what the whole reply earned: a critic fitted to Monte-Carlo returns."""
    loop = TrainingLoop("value", model, config, quiet=quiet)
    for step in loop:
        part = [written[i] for i in batch_indices(len(written), config.batch_size, step, config.seed)]
        batch = collate([w.stepped.tokens for w in part], pad_token_id)
        earned = torch.tensor([float(w.right) for w in part])
        values = model(batch.input_ids, batch.attention_mask)
        losses = value_mse(values, earned[:, None].expand_as(values), batch.loss_mask)
        loop.log(**loop.update([aggregate(losses, token_mean(batch.loss_mask), batch.loss_mask)]))


def readings(policy: Trained, heads: Mapping[str, nn.Module], replies: list[Written]) -> dict[str, Tensor]:
    """What each head says at the end of each step, ``(N, K)``: probabilities, values, rewards, nats.

    ``policy`` is the log-probability of the sum that ends the step, ``exact`` the chance of a right answer.
    """
    pad = policy.tokenizer.pad_token_id
    tokens = [w.stepped.tokens for w in replies]
    ends = torch.tensor([w.stepped.ends for w in replies])
    found: dict[str, Tensor] = {}
    for name, model in heads.items():
        read = _Everywhere(model) if name == "reward" else model
        scores = torch.stack([s[at] for s, at in zip(token_scores(read, tokens, pad_token_id=pad), ends, strict=True)])
        found[name] = scores.sigmoid() if name in ("outcome", "process") else scores
    batch = collate(tokens, pad)
    found["policy"] = -policy_surprise(policy.model, batch.input_ids, batch.attention_mask).gather(1, ends)
    chance = [[RUNNING_SUM.chance(w.prompt, w.lines[: k + 1]) for k in range(STEPS)] for w in replies]
    return found | {"exact": torch.tensor(chance)}


class _Everywhere(nn.Module):
    """A reward model asked after every token, as if the reply ended there: it was never trained to answer that."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        """``(B, S)``"""
        columns = []
        for width in range(1, input_ids.shape[1] + 1):
            ids, mask = input_ids[:, :width], attention_mask[:, :width]
            columns.append(self.model(ids, mask) if width > 1 else torch.zeros(len(ids)))
        return torch.stack(columns, 1)


def largest_drop(scores: Tensor) -> Tensor:
    """``(N, K) -> (N,)``: the step at which the reading falls most from the one before (from the mean of all at the first)."""
    before = torch.cat([scores[:, :1] * 0 + scores[:, 0].mean(), scores[:, :-1]], 1)
    return (scores - before).argmin(1)
