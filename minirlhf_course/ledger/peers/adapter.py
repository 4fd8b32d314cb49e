"""Run TRL's own code on given tensors.

Each ``trl_*`` function builds one of TRL's trainers without its constructor, sets the attributes that the method needs,
and calls TRL's method to compute the loss. The model is a stub that returns the log-probabilities (or logits) under
test; ``answers``, ``texts`` and ``batch`` draw them.
"""

from __future__ import annotations

import importlib
import warnings
from collections import defaultdict, deque
from types import SimpleNamespace
from typing import Any, NamedTuple

import torch
from torch import Tensor

from minirlhf.core.errors import UserError
from minirlhf.core.logprobs import sequence_logps, token_logps
from minirlhf.equations.preference_losses import PairLogps
from minirlhf_course.ledger.registry import Draw

TRL_VERSION = "1.16"

# -- TRL without its constructors --------------------------------------------------------------------------------


def require_trl() -> None:
    """Raise ``UserError`` unless TRL is installed in the version whose private methods this module calls."""
    try:
        version = importlib.import_module("trl").__version__
    except ImportError as error:
        raise UserError(
            "peers need trl: install minirlhf with the extra 'peers'",
            argument="trl",
            expected="peers",
            problem="missing",
        ) from error
    if not version.startswith(f"{TRL_VERSION}."):
        raise UserError(
            f"peers call private methods of trl {TRL_VERSION}, but {version} is installed",
            argument="trl",
            value=version,
            expected=TRL_VERSION,
        )


def _class(module: str, name: str) -> Any:
    """A trainer class of TRL. The warning on importing an experimental class is suppressed."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return getattr(importlib.import_module(f"trl.{module}"), name)


class _OneProcess:
    """A stub for accelerate's ``Accelerator`` on a single process; stores the loss passed to ``backward``."""

    device = torch.device("cpu")
    num_processes, process_index, sync_gradients = 1, 0, True

    def gather(self, x: Tensor) -> Tensor:
        return x

    def gather_for_metrics(self, x: Tensor) -> Tensor:
        return x

    def reduce(self, x: Tensor, reduction: str) -> Tensor:
        return x

    def backward(self, loss: Tensor) -> None:
        self.loss = loss


class _Model:
    """A stub model that returns fixed outputs, whatever its arguments are."""

    training, is_gradient_checkpointing = True, False

    def __init__(self, **outputs: Any) -> None:
        self.outputs = SimpleNamespace(**outputs)

    def __call__(self, *_: Any, **__: Any) -> SimpleNamespace:
        return self.outputs

    def train(self) -> None:
        """Called by some training steps."""


def _trainer(module: str, name: str, **attributes: Any) -> Any:
    """An instance of a trainer class with these attributes; its constructor is not called."""
    cls = _class(module, name)
    trainer = object.__new__(cls)
    common = {
        "accelerator": _OneProcess(),
        "model": _Model(),
        "aux_loss_enabled": False,
        "_metrics": {"train": defaultdict(list)},
        "_total_train_tokens": 0,
        "_tp_size": 1,
        "label_smoothing": 0.0,
    }
    vars(trainer).update(common | attributes)
    return trainer


# -- preference losses -------------------------------------------------------------------------------------------


class Answers(NamedTuple):
    """``2B`` completions, the chosen ones first: token log-probabilities, their mask, sums under the reference."""

    leaf: Tensor
    mask: Tensor
    ref: Tensor

    def record(self) -> PairLogps:
        """The record that the losses of this library take."""
        chosen, rejected = sequence_logps(self.leaf, self.mask).chunk(2)
        return PairLogps(chosen, rejected, *self.ref.chunk(2), *self.mask.sum(-1).chunk(2))


LENGTHS = torch.tensor([1, 3, 4, 2, 4, 3])  # uneven, so that means over tokens and over completions differ


def answers(draw: Draw, *, dtype: torch.dtype = torch.float64, contrary: bool = False) -> Answers:
    """Three pairs of up to four tokens. ``contrary``: margins 1, 2, 3 under the policy, −1, −2, −3 under the reference."""
    mask, leaf = torch.arange(4) < LENGTHS[:, None], draw.logps(6, 4).to(dtype)
    if contrary:
        chosen, rejected = sequence_logps(leaf, mask).chunk(2)
        leaf[:3, 0] += torch.tensor([1.0, 2.0, 3.0]) - (chosen - rejected)
    policy = sequence_logps(leaf, mask)
    ref = policy.roll(3) if contrary else policy + draw.uniform(6, low=-1.5, high=1.5).to(dtype)
    return Answers(leaf.requires_grad_(), mask, ref)


def _scored(a: Answers) -> _Model:
    """The output of TRL's fused language-model head: log-probabilities, 0 at unlabelled tokens, and statistics."""
    zeros = torch.zeros(a.mask.shape)
    return _Model(log_probs=a.leaf * a.mask, entropy=zeros, mean_logits=zeros, is_top1=zeros.bool())


def _token_inputs(a: Answers) -> dict[str, Tensor]:
    """Ids of one prompt token and the completion; TRL's masks cover both."""
    completion = torch.cat([torch.zeros(len(a.mask), 1, dtype=torch.long), a.mask.long()], 1)
    return {
        "input_ids": torch.ones_like(completion),
        "attention_mask": torch.ones_like(completion),
        "completion_mask": completion,
    }


def trl_dpo(a: Answers, loss_type: str | list[str], *, beta: float, **settings: Any) -> Tensor:
    """``DPOTrainer._compute_loss``: the mean loss of the batch."""
    types = [loss_type] if isinstance(loss_type, str) else loss_type
    attributes = {
        "loss_types": types,
        "loss_weights": [1.0] * len(types),
        "beta": beta,
        "ld_alpha": None,
        "precompute_ref_logps": True,
        "f_divergence_type": "reverse_kl",
        "use_weighting": False,
    }
    trainer = _trainer("trainer.dpo_trainer", "DPOTrainer", **(attributes | settings))
    ref_chosen, ref_rejected = a.ref.chunk(2)
    inputs = _token_inputs(a) | {"ref_chosen_logps": ref_chosen, "ref_rejected_logps": ref_rejected}
    return trainer._compute_loss(_scored(a), inputs, False)


def trl_online_dpo(a: Answers, loss_type: str, *, beta: float) -> Tensor:
    """``OnlineDPOTrainer.training_step``; the first half of the completions wins."""
    half = len(a.leaf) // 2
    ref_tokens = a.ref[:, None] * a.mask / a.mask.sum(-1, keepdim=True)
    reference = object()
    ids = torch.ones_like(a.mask, dtype=torch.long)
    args = SimpleNamespace(
        loss_type=loss_type, use_vllm=False, missing_eos_penalty=None, torch_empty_cache_steps=None,
        optim="adamw_torch", n_gpu=1, gradient_accumulation_steps=1, beta=[beta],
    )  # fmt: skip
    trainer = _trainer(
        "experimental.online_dpo.online_dpo_trainer",
        "OnlineDPOTrainer",
        args=args,
        _beta=[beta],
        state=SimpleNamespace(epoch=0, global_step=0),
        eos_token_ids=[1],
        ref_model=reference,
        reward_funcs=None,
        processing_class=SimpleNamespace(batch_decode=lambda ids, **_: [""] * len(ids)),
        stats=defaultdict(list),
        _generate=lambda *_: (ids, ids, ids, a.mask.long(), None),
        _forward=lambda model, *_: (ref_tokens if model is reference else a.leaf) * a.mask,
        _calculate_rewards_from_functions=lambda **_: (torch.arange(2 * half) < half).double(),
    )
    trainer.training_step(_Model(), {"prompt": ["?"] * half})
    return trainer.accelerator.loss


def trl_kto(a: Answers, kl_logratios: Tensor, *, beta: float, loss_type: str = "kto", **weights: float) -> Tensor:
    """``KTOTrainer._compute_loss``: the chosen completions are the desirable ones."""
    attributes = {"desirable_weight": 1.0, "undesirable_weight": 1.0} | weights
    trainer = _trainer(
        "trainer.kto_trainer",
        "KTOTrainer",
        loss_type=loss_type,
        beta=beta,
        calculate_KL=loss_type == "kto",
        precompute_ref_logps=True,
        _compute_kl_logps=lambda *_: kl_logratios,
        **attributes,
    )
    label = torch.arange(len(a.leaf)) < len(a.leaf) // 2
    inputs = _token_inputs(a) | {"label": label, "ref_logps": a.ref, "ref_KL_logps": torch.zeros_like(kl_logratios)}
    return trainer._compute_loss(_scored(a), inputs, False)


class Texts(NamedTuple):
    """``2B`` prompts with completions: logits ``(2B, S, V)`` and ids, for trainers that shift and gather themselves."""

    leaf: Tensor
    ids: Tensor
    prompt: int
    attention: Tensor

    @property
    def mask(self) -> Tensor:
        """``(2B, S − 1)``, the completion tokens among the predicted tokens."""
        return self.attention[:, 1:] & (torch.arange(1, self.ids.shape[1]) >= self.prompt)

    def record(self) -> PairLogps:
        """The record that the losses of this library take, without a reference."""
        chosen, rejected = sequence_logps(token_logps(self.leaf, self.ids), self.mask).chunk(2)
        lengths = self.mask.sum(-1).chunk(2)
        return PairLogps(chosen, rejected, chosen_lengths=lengths[0], rejected_lengths=lengths[1])


def texts(draw: Draw, *, prompt: int = 2, one_length: bool = False) -> Texts:
    """Three pairs: a prompt of ``prompt`` tokens, completions of up to four tokens, a vocabulary of five."""
    attention = torch.arange(prompt + 4) < prompt + (4 if one_length else LENGTHS[:, None])
    leaf = draw.normal(6, prompt + 4, 5).requires_grad_()
    return Texts(leaf, (draw.uniform(6, prompt + 4) * 5).long(), prompt, attention.expand(6, -1))


def _trl_reference_free(t: Texts, module: str, name: str, **attributes: Any) -> Tensor:
    """``get_batch_loss_metrics`` of the trainers that still take logits."""
    labels = torch.where(torch.cat([torch.zeros(len(t.ids), 1, dtype=torch.bool), t.mask], 1), t.ids, -100)
    sides: dict[str, Tensor] = {}
    for half, side in enumerate(("chosen", "rejected")):
        parts = {"input_ids": t.ids, "attention_mask": t.attention.long(), "labels": labels}
        sides |= {f"{side}_{key}": value.chunk(2)[half] for key, value in parts.items()}
    trainer = _trainer(module, name, is_encoder_decoder=False, pad_token_id=0, padding_value=0, **attributes)
    return trainer.get_batch_loss_metrics(_Model(logits=t.leaf), sides)[0]


def trl_cpo(t: Texts, loss_type: str, *, beta: float, **settings: float) -> Tensor:
    """``CPOTrainer``, which is also SimPO and AlphaPO."""
    attributes = {"cpo_alpha": 0.0, "alpha": 0.0, "simpo_gamma": 0.0} | settings
    module = "experimental.cpo.cpo_trainer"
    return _trl_reference_free(t, module, "CPOTrainer", loss_type=loss_type, beta=beta, **attributes)


def trl_orpo(t: Texts, *, beta: float) -> Tensor:
    """``ORPOTrainer``."""
    return _trl_reference_free(t, "experimental.orpo.orpo_trainer", "ORPOTrainer", beta=beta)


def trl_reward(scores: Tensor, *, margin: Tensor | None = None, coefficient: float | None = None) -> Tensor:
    """``RewardTrainer.compute_loss`` on scores ``(2B,)``, the chosen completions first."""
    args = SimpleNamespace(center_rewards_coefficient=coefficient)
    trainer = _trainer("trainer.reward_trainer", "RewardTrainer", args=args)
    inputs = {"attention_mask": torch.ones(len(scores), 1)} | ({} if margin is None else {"margin": margin})
    return trainer.compute_loss(_Model(logits=scores[:, None]), inputs)


def trl_jsd(student: Tensor, teacher: Tensor, mask: Tensor, **settings: float) -> Tensor:
    """``GKDTrainer.generalized_jsd_loss``: the mean over the tokens of the mask."""
    labels = torch.where(mask, 0, -100)
    return _class("experimental.gkd.gkd_trainer", "GKDTrainer").generalized_jsd_loss(
        student, teacher, labels, **settings
    )


def _sdpo(name: str, *inputs: Tensor, mask: Tensor, **settings: Any) -> Tensor:
    """Mean over tokens of a loss of the SDPO trainer, which the SDFT trainer has too."""
    return _class("experimental.sdpo.loss_utils", name)(*inputs, **settings)[mask].mean()


def trl_top_k(student: Tensor, teacher: Tensor, mask: Tensor, *, k: int) -> Tensor:
    """Forward KL over the *student's* k most probable tokens and the tail."""
    settings = {"distillation_topk": k, "distillation_alpha": 0.0, "distillation_add_tail": True}
    return _sdpo("compute_topk_self_distillation_loss", student, teacher, mask=mask, **settings)


def trl_sampled_token(student: Tensor, teacher: Tensor, ids: Tensor, mask: Tensor) -> Tensor:
    """Log-ratio of a sampled token, held constant, times its log-probability."""
    name = "compute_sampled_token_self_distillation_loss"
    return _sdpo(name, student, teacher, ids, mask=mask, distillation_alpha=1.0)


# -- policy objectives and advantages ----------------------------------------------------------------------------


class PolicyBatch(NamedTuple):
    """Six completions of up to five tokens: what the policy objectives take, with one advantage per completion."""

    leaf: Tensor
    old: Tensor
    ref: Tensor
    advantages: Tensor
    mask: Tensor

    @property
    def inputs(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """The four arguments of an objective."""
        return self.leaf, self.old, self.advantages[:, None].expand(self.mask.shape), self.mask


def batch(draw: Draw) -> PolicyBatch:
    """Ratios inside and outside the usual clip ranges; the first tokens are outside, on both sides for both signs of A."""
    mask, old = draw.mask(6, 5), draw.logps(6, 5)
    log_ratio = draw.uniform(6, 5, low=-0.6, high=0.6)
    log_ratio[:4, 0] = torch.tensor([0.5, -0.5, -0.5, 0.5])
    signs = torch.tensor([1.0, -1.0] * 3, dtype=torch.float64)
    leaf = (old + log_ratio).requires_grad_()
    return PolicyBatch(leaf, old, old + draw.normal(6, 5, scale=0.5), signs * draw.uniform(6, low=0.5, high=2.0), mask)


def trl_policy(
    b: PolicyBatch, loss_type: str, module: str = "trainer.grpo_trainer", name: str = "GRPOTrainer", **settings: Any
) -> Tensor:
    """``_compute_loss`` of ``GRPOTrainer`` (or of the GMPO trainer, a subclass), with all completions in one micro-batch."""
    args = {"delta": None, "use_bias_correction_kl": False, "steps_per_generation": 1}
    args |= {
        key: settings.pop(key)
        for key in list(settings)
        if key in ("delta", "sapo_temperature_pos", "sapo_temperature_neg") or key.startswith("vespo_")
    }
    attributes = {
        "loss_type": loss_type,
        "importance_sampling_level": "token",
        "epsilon_low": 0.2,
        "epsilon_high": 0.2,
        "beta": 0.0,
        "max_completion_length": 5,
        "top_entropy_quantile": 1.0,
        "off_policy_mask_threshold": None,
        "use_vllm": False,
        "current_gradient_accumulation_steps": 1,
        "_entropy_bonus_enabled": False,
        "_get_per_token_logps_and_entropies": lambda *_, **__: (b.leaf, torch.zeros(b.mask.shape), None),
    }
    trainer = _trainer(module, name, args=SimpleNamespace(**args), **(attributes | settings))
    return trainer._compute_loss(None, _policy_inputs(b) | {"old_per_token_logps": b.old})


def trl_rloo(b: PolicyBatch) -> Tensor:
    """``RLOOTrainer._compute_loss``."""
    trainer = _trainer(
        "trainer.rloo_trainer",
        "RLOOTrainer",
        epsilon_low=0.2,
        epsilon_high=0.2,
        _get_per_token_logps_and_entropies=lambda *_, **__: (b.leaf, torch.zeros(b.mask.shape), None),
    )
    return trainer._compute_loss(None, _policy_inputs(b) | {"old_logps": sequence_logps(b.old, b.mask)})


def _policy_inputs(b: PolicyBatch) -> dict[str, Any]:
    ids = torch.ones(b.mask.shape, dtype=torch.long)
    return {
        "prompt_ids": ids[:, :1],
        "prompt_mask": ids[:, :1],
        "completion_ids": ids,
        "completion_mask": b.mask.long(),
        "advantages": b.advantages,
        "num_items_in_batch": b.mask.sum(),
        "ref_per_token_logps": b.ref,
    }


def trl_scores(
    rewards: Tensor, b: PolicyBatch | None = None, *, rloo: bool = False, **settings: Any
) -> dict[str, Tensor]:
    """``_generate_and_score_completions`` of ``GRPOTrainer`` or ``RLOOTrainer`` on given rewards ``(P, G)``.

    Nothing is generated: the completions are those of the batch (one token each without a batch). A reward of NaN means
    that no reward function could score the completion.
    """
    flat = rewards.reshape(-1)
    mask = torch.ones(len(flat), 1, dtype=torch.bool) if b is None else b.mask
    completions = [[1] * int(n) for n in mask.sum(-1)]
    old = torch.zeros(mask.shape) if b is None else b.old
    reference = _Model()
    sampling = settings.pop("sampling_logps", None)
    sampling_lists = None if sampling is None else [x[m].tolist() for x, m in zip(sampling, mask, strict=True)]
    prompts, texts_out = [[1]] * len(flat), [""] * len(flat)
    generated: tuple[Any, ...] = (prompts, completions, None, texts_out, sampling_lists, {}, None, None)
    if rloo:
        generated = prompts, completions, texts_out
    attributes: dict[str, Any] = {
        "args": SimpleNamespace(
            per_device_train_batch_size=len(flat), gradient_checkpointing_kwargs=None,
            steps_per_generation=1, gradient_accumulation_steps=1,
        ),
        "environment_factories": None,
        "environments": None,
        "tools": None,
        "num_iterations": 1,
        "num_generations": rewards.shape[1],
        "_tokenizer": SimpleNamespace(pad_token_id=0),
        "pad_to_multiple_of": None,
        "mask_truncated_completions": False,
        "use_vllm": False,
        "beta": 0.0,
        "ref_model": reference,
        "reward_clip_range": None,
        "normalize_advantages": False,
        "scale_rewards": "group",
        "multi_objective_aggregation": "sum_then_normalize",
        "reward_weights": torch.ones(1, dtype=rewards.dtype),
        "reward_func_names": ["reward"],
        "reward_funcs": [None],
        "log_multimodal": False,
        "_pending_extra_logs": {},
        "_pending_metrics": {},
        "_logs": defaultdict(deque) | {"rewards": defaultdict(deque), "extra": defaultdict(deque)},
        "_generate": lambda *_: generated,
        "_calculate_rewards": lambda *_: flat[:, None],
        "_get_per_token_logps_and_entropies": lambda model, *_, **__: (b.ref if b and model is reference else old, None, None),
    }  # fmt: skip
    module, name = ("rloo_trainer", "RLOOTrainer") if rloo else ("grpo_trainer", "GRPOTrainer")
    trainer = _trainer(f"trainer.{module}", name, **(attributes | settings))
    return trainer._generate_and_score_completions([{"prompt": "?"}] * len(flat))
