"""The critics of actor-critic training: a value model beside the policy, or a value head on its backbone."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import TYPE_CHECKING, Any

from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from minirlhf.models import adapters
from minirlhf.models.heads import HEAD_WEIGHTS, RewardModel, ValueModel, head_scores

if TYPE_CHECKING:
    from transformers import PreTrainedModel


class ValueHead(nn.Module):
    """A head that computes one number per token from the last hidden states of a policy, whose parameters it does not
    own.

    Its initial outputs are exactly 0. ``forward`` has the signature of :class:`~minirlhf.models.heads.ValueModel`.
    """

    def __init__(self, policy: nn.Module) -> None:
        super().__init__()
        self._policy = (policy,)  # in a tuple, so that it is not registered as a part of this module
        config: Any = policy.config
        weight = next(policy.parameters())
        self.head = nn.Linear(config.get_text_config().hidden_size, 1, dtype=weight.dtype, device=weight.device)
        nn.init.zeros_(self.head.weight)
        nn.init.zeros_(self.head.bias)

    def forward(self, input_ids: Tensor, attention_mask: Tensor, prefix: Tensor | None = None) -> Tensor:
        """Return the values ``(B, S)`` of the prefixes that end in each token; 0 at padding."""
        return head_scores(_causal_lm(self._policy[0]).base_model, self.head, input_ids, attention_mask, prefix)

    def save_pretrained(self, folder: str | Path) -> None:
        """Write the head's weights; the policy is saved separately."""
        Path(folder).mkdir(parents=True, exist_ok=True)
        save_file({name: w.detach().cpu() for name, w in self.head.state_dict().items()}, Path(folder, HEAD_WEIGHTS))

    def restore(self, folder: str | Path) -> None:
        """Read what :meth:`save_pretrained` wrote."""
        self.head.load_state_dict(load_file(Path(folder, HEAD_WEIGHTS)))


def new_critic(policy: nn.Module, *, shared: bool) -> nn.Module:
    """Return a critic whose values are initially 0: a head on the policy's backbone (``shared``), or a model that
    starts as a copy.

    If only adapters of the policy are trained, the critic gets adapters of its own.
    """
    if shared:
        return ValueHead(policy)
    if not adapters.is_adapted(policy):
        return ValueModel.from_causal_lm(_causal_lm(policy))
    critic = ValueModel.from_causal_lm(adapters.without(policy), share=True)
    return adapters.like(policy, critic)


def critic_from_reward_model(judge: RewardModel) -> ValueModel:
    """Return a critic that starts as a reward model: the value of a prefix is its reward as a complete completion."""
    critic = ValueModel(copy.deepcopy(judge.backbone))
    critic.head.load_state_dict(judge.head.state_dict())
    return critic


def completion_values(critic: nn.Module, input_ids: Tensor, attention_mask: Tensor, width: int) -> Tensor:
    """Return the critic's values before each of the last ``width`` tokens, ``(B, T)``: each is read one position to the
    left."""
    return critic(input_ids, attention_mask, attention_mask[:, :-width].sum(1))[:, -width - 1 : -1]


def _causal_lm(policy: nn.Module) -> PreTrainedModel:
    """Return the causal LM itself, also from inside a ``peft`` wrapper."""
    from transformers import PreTrainedModel

    unwrap = getattr(policy, "get_base_model", None)
    model = unwrap() if unwrap else policy
    if not isinstance(model, PreTrainedModel):
        raise TypeError(f"policy is a {type(model).__name__}; a critic needs a transformers causal LM")
    return model
