"""Five token-level scores of one completion: reward, outcome, process, value and the policy's own log-probability.

The task is the running sum. A transformer this small does not learn by itself to check a sum of two written numbers:
heads on its hidden states stay near the base rate (see the chapter). Every head therefore receives the frozen policy's
surprise at each token. The surprise is added to the token's embedding along a learned direction.
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

#: Standard deviation of the initial direction's components; with it the direction is about as long as an embedding.
SCALE = 0.06


@dataclass(frozen=True)
class HeadsPlan:
    """The amount of training."""

    prompts: int = 1500
    steps: int = 120
    batch_size: int = 64
    learning_rate: float = 3e-3
    seed: int = 0


@dataclass(frozen=True)
class Written:
    """One completion: its tokens and steps, whether each step is valid, whether the answer is right."""

    prompt: str
    lines: tuple[str, ...]
    stepped: Stepped
    right: bool


def write(tokenizer: Any, prompt: str, slips: tuple[int, ...]) -> Written:
    """Write the working of a prompt with these slips, and label its steps."""
    lines = RUNNING_SUM.working(prompt, slips)
    tokens, ends = encode_steps(tokenizer, conversation(prompt), lines)
    labels = tuple(-1 if slip else 1 for slip in slips)
    return Written(prompt, tuple(lines), Stepped(tokens, ends, labels), RUNNING_SUM.grade(prompt, " ".join(lines)) == 1)


def careless(tokenizer: Any, prompts: list[str], seed: int) -> list[Written]:
    """Return two completions of the careless writer for every prompt, one after the other."""
    rng = numpy_generator("careless", seed)
    has_slip = rng.random((2 * len(prompts), STEPS)) < CARELESS
    slips = has_slip * rng.integers(1, MODULUS, size=has_slip.shape)
    return [write(tokenizer, prompts[i // 2], tuple(map(int, row))) for i, row in enumerate(slips)]


def planted(tokenizer: Any, prompts: list[str], seed: int) -> list[tuple[int, Written, Written]]:
    """Return for every prompt a random step, a completion with a slip only at that step, and one without slips."""
    rng = numpy_generator("planted", seed)
    triples = []
    for prompt in prompts:
        slip_step, slip = int(rng.integers(STEPS)), int(rng.integers(1, MODULUS))
        slips = tuple(slip if step == slip_step else 0 for step in range(STEPS))
        triples.append((slip_step, write(tokenizer, prompt, slips), write(tokenizer, prompt, (0,) * STEPS)))
    return triples


class Surprised(nn.Module):
    """A head whose backbone receives the frozen policy's surprise, −log π in nats, at each token.

    It is called like the head itself. The surprise is added along ``direction``, which is learned.
    """

    def __init__(self, policy: nn.Module, head: ScalarModel, *, seed: int) -> None:
        super().__init__()
        self.head = head
        self._policy = (policy,)  # the tuple hides it from nn.Module, so that it is not trained
        embedding: Any = head.backbone.get_input_embeddings()
        initial = torch.randn(embedding.embedding_dim, generator=generator("surprise", seed))
        self.direction = nn.Parameter(SCALE * initial)

    def forward(self, input_ids: Tensor, attention_mask: Tensor, prefix: Tensor | None = None) -> Tensor:
        """Return the scores, ``(B, S)``, or ``(B,)`` for a reward model."""
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
    """Return −log π of every token, ``(B, S)``; 0 for the first token and at padding."""
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
    """Train the heads, each with its own labels on the same completions, all from the policy's weights.

    Args:
        told: whether the heads receive the policy's surprise.
    """
    samples = careless(policy.tokenizer, RUNNING_SUM.prompts("train")[: plan.prompts], plan.seed)
    settings: dict[str, Any] = {
        "max_steps": plan.steps, "batch_size": plan.batch_size, "learning_rate": plan.learning_rate, "warmup_steps": 20,
        "lr_scheduler_type": "linear", "seed": plan.seed,
    }  # fmt: skip
    kwargs: dict[str, Any] = {"pad_token_id": policy.tokenizer.pad_token_id, "quiet": quiet}

    def new_head(kind: type[ScalarModel]) -> nn.Module:
        head = kind.from_causal_lm(policy.model, seed=plan.seed)
        return Surprised(policy.model, head, seed=plan.seed) if told else head

    heads: dict[str, nn.Module] = {}
    if "reward" in only:
        heads["reward"] = new_head(RewardModel)
        pair_config = replace(RewardConfig(**settings), batch_size=plan.batch_size // 2)
        train_reward(heads["reward"], compared(samples), pair_config, **kwargs)
    if "outcome" in only:
        heads["outcome"] = new_head(ValueModel)
        train_outcome(
            heads["outcome"],
            [labelled(w.stepped.tokens, w.right) for w in samples],
            OutcomeConfig(**settings),
            **kwargs,
        )
    if "process" in only:
        heads["process"] = new_head(ValueModel)
        train_process(heads["process"], [w.stepped for w in samples], ProcessConfig(**settings), **kwargs)
    if "value" in only:
        heads["value"] = new_head(ValueModel)
        train_value(heads["value"], samples, TrainerConfig(**settings), **kwargs)
    return heads


def compared(written: list[Written]) -> list[PreferenceExample]:
    """Pair the right with the wrong completion of each prompt that has one of each."""
    pairs = zip(written[::2], written[1::2], strict=True)
    ordered = [(a, b) if a.right else (b, a) for a, b in pairs if a.right != b.right]
    return [pair(good.stepped.tokens, bad.stepped.tokens) for good, bad in ordered]


def train_value(
    model: nn.Module, written: list[Written], config: TrainerConfig, *, pad_token_id: int, quiet: bool
) -> None:
    """Fit a critic to Monte-Carlo returns: the squared error of each token's value against the completion's reward."""
    loop = TrainingLoop("value", model, config, quiet=quiet)
    for step in loop:
        minibatch = [written[i] for i in batch_indices(len(written), config.batch_size, step, config.seed)]
        batch = collate([w.stepped.tokens for w in minibatch], pad_token_id)
        returns = torch.tensor([float(w.right) for w in minibatch])
        values = model(batch.input_ids, batch.attention_mask)
        losses = value_mse(values, returns[:, None].expand_as(values), batch.loss_mask)
        loop.log(**loop.update([aggregate(losses, token_mean(batch.loss_mask), batch.loss_mask)]))


def readings(policy: Trained, heads: Mapping[str, nn.Module], replies: list[Written]) -> dict[str, Tensor]:
    """Return each head's output at the end of each step, ``(N, K)``: probabilities, values, rewards or nats.

    ``policy`` is the log-probability of the sum that ends the step, ``exact`` the probability of a right answer.
    """
    pad = policy.tokenizer.pad_token_id
    tokens = [w.stepped.tokens for w in replies]
    ends = torch.tensor([w.stepped.ends for w in replies])
    outputs: dict[str, Tensor] = {}
    for name, model in heads.items():
        head = _Everywhere(model) if name == "reward" else model
        scores = torch.stack([s[at] for s, at in zip(token_scores(head, tokens, pad_token_id=pad), ends, strict=True)])
        outputs[name] = scores.sigmoid() if name in ("outcome", "process") else scores
    batch = collate(tokens, pad)
    outputs["policy"] = -policy_surprise(policy.model, batch.input_ids, batch.attention_mask).gather(1, ends)
    exact = [[RUNNING_SUM.chance(w.prompt, w.lines[: k + 1]) for k in range(STEPS)] for w in replies]
    return outputs | {"exact": torch.tensor(exact)}


class _Everywhere(nn.Module):
    """A reward model applied after every token, as if the completion ended there; it is not trained on prefixes."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        """Return the reward after each token, ``(B, S)``; 0 after the first."""
        columns = []
        for width in range(1, input_ids.shape[1] + 1):
            ids, mask = input_ids[:, :width], attention_mask[:, :width]
            columns.append(self.model(ids, mask) if width > 1 else torch.zeros(len(ids)))
        return torch.stack(columns, 1)


def largest_drop(scores: Tensor) -> Tensor:
    """Return the step at which the score falls most from the step before, ``(N, K) -> (N,)``.

    The first step is compared with the mean score of all first steps.
    """
    previous = torch.cat([scores[:, :1] * 0 + scores[:, 0].mean(), scores[:, :-1]], 1)
    return (scores - previous).argmin(1)
