"""What a frozen reference model says of given answers: computed once, and kept on disk under the hash of all that decides it."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import torch
from filelock import FileLock
from torch import Tensor, nn

from minirlhf.core.calling import evaluating
from minirlhf.core.errors import UserError
from minirlhf.core.logprobs import sequence_logps
from minirlhf.data.collate import collate_completions
from minirlhf.data.types import CompletionBatch, Tokens
from minirlhf.models import cache, checkpoints
from minirlhf.models.forward import completion_logps


def preference_logps(model: nn.Module, batch: CompletionBatch) -> Tensor:
    """Log-probability of each answer, the sum over its tokens: ``(B,)``, differentiable."""
    inputs = batch.input_ids, batch.attention_mask, batch.mask.shape[1]
    return sequence_logps(completion_logps(model, *inputs, wanted=batch.mask), batch.mask)


def require_same_vocabulary(
    model: nn.Module, ref_model: nn.Module, ours_is: str = "policy", theirs_is: str = "reference"
) -> None:
    """Raise :class:`UserError` if two models, which are called so, give probabilities to different sets of tokens."""
    ours, theirs = (getattr(getattr(m, "config", None), "vocab_size", None) for m in (model, ref_model))
    if ours != theirs:
        raise UserError(
            f"the {ours_is} knows {ours} tokens, the {theirs_is} {theirs}: they need one tokenizer; start both from the same model",
            argument=theirs_is,
            value=theirs,
            expected=ours,
        )


@torch.no_grad()
def reference_logps(model: nn.Module, answers: Sequence[Tokens], *, pad_token_id: int, batch_size: int = 64) -> Tensor:
    """Log-probabilities ``(N,)`` of answers, sums over their tokens, on the CPU.

    They are read from the cache if the same weights have been asked about the same tokens before. A file there that was
    truncated or altered is computed again.
    """
    text = hashlib.sha256()
    for answer in answers:
        text.update(repr((answer.input_ids, answer.loss_mask)).encode())
    folder = cache.folder_of("reference", {"weights": weights_hash(model), "answers": text.hexdigest()})
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(folder.parent / f"{folder.name}.lock"):
            if folder.is_dir() and checkpoints.find_corruption(folder) is None:
                return checkpoints.load(folder).tensors["logps"]
            with evaluating(model):
                parts = [
                    preference_logps(
                        model, collate_completions(answers[i : i + batch_size], pad_token_id).to(_device(model))
                    )
                    for i in range(0, len(answers), batch_size)
                ]
            logps = torch.cat(parts).cpu()
            checkpoints.save(folder, extra_tensors={"logps": logps})
            return logps
    except OSError as problem:
        raise UserError(
            f"{folder.parent}: the cache cannot be written ({problem.strerror}); set MINIRLHF_CACHE"
        ) from None


def weights_hash(model: nn.Module) -> str:
    """A hash of a model's configuration and of every weight of it."""
    digest = hashlib.sha256(repr(getattr(model, "config", "")).encode())
    for name, tensor in sorted(model.state_dict().items()):
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        digest.update(tensor.detach().cpu().contiguous().view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()


def _device(model: nn.Module) -> torch.device:
    return next(model.parameters()).device
