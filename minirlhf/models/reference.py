"""Log-probabilities of given completions under a frozen reference model, computed once and cached on disk.

The cache key is a hash of the model's weights and of the completions.
"""

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
    """Return the log-probability of each completion, the sum over its tokens: ``(B,)``, differentiable."""
    inputs = batch.input_ids, batch.attention_mask, batch.mask.shape[1]
    return sequence_logps(completion_logps(model, *inputs, wanted=batch.mask), batch.mask)


def require_same_vocabulary(
    model: nn.Module, ref_model: nn.Module, ours_is: str = "policy", theirs_is: str = "reference"
) -> None:
    """Raise :class:`UserError` if the vocabularies of two models, called ``ours_is`` and ``theirs_is``, differ in size."""
    vocab_size, ref_vocab_size = (getattr(getattr(m, "config", None), "vocab_size", None) for m in (model, ref_model))
    if vocab_size != ref_vocab_size:
        raise UserError(
            f"the {ours_is} has a vocabulary of {vocab_size} tokens and the {theirs_is} of {ref_vocab_size}; expected one tokenizer",
            argument=theirs_is,
            value=ref_vocab_size,
            expected=vocab_size,
        )


@torch.no_grad()
def reference_logps(model: nn.Module, answers: Sequence[Tokens], *, pad_token_id: int, batch_size: int = 64) -> Tensor:
    """Return the log-probabilities ``(N,)`` of the completions ``answers``, sums over their tokens, on the CPU.

    They are read from the cache if they were computed before with the same weights and tokens. If a cached file was
    truncated or altered, they are computed again.
    """
    digest = hashlib.sha256()
    for completion in answers:
        digest.update(repr((completion.input_ids, completion.loss_mask)).encode())
    folder = cache.folder_of("reference", {"weights": weights_hash(model), "answers": digest.hexdigest()})
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(folder.parent / f"{folder.name}.lock"):
            if folder.is_dir() and checkpoints.find_corruption(folder) is None:
                return checkpoints.load(folder).tensors["logps"]
            with evaluating(model):
                chunks = (answers[i : i + batch_size] for i in range(0, len(answers), batch_size))
                batches = (collate_completions(chunk, pad_token_id).to(_device(model)) for chunk in chunks)
                logps = torch.cat([preference_logps(model, batch) for batch in batches]).cpu()
            checkpoints.save(folder, extra_tensors={"logps": logps})
            return logps
    except OSError as error:
        raise UserError(
            f"{folder.parent}: the cache cannot be written ({error.strerror}); set MINIRLHF_CACHE"
        ) from None


def weights_hash(model: nn.Module) -> str:
    """Return a hash of a model's configuration and of all its weights."""
    digest = hashlib.sha256(repr(getattr(model, "config", "")).encode())
    for name, tensor in sorted(model.state_dict().items()):
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        digest.update(tensor.detach().cpu().contiguous().view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()


def _device(model: nn.Module) -> torch.device:
    return next(model.parameters()).device
