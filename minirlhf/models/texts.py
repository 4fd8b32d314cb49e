"""From sampled tokens back to text."""

from __future__ import annotations

from typing import Any

from minirlhf.data.types import Rollout


def completion_texts(rollout: Rollout, tokenizer: Any) -> list[str]:
    """The completions as text, without the end-of-sequence token.

    Other special tokens stay visible: a policy that writes them must not look as if it had not.
    """
    texts = []
    for ids, mask, terminated in zip(
        rollout.completion_ids.tolist(), rollout.mask.tolist(), rollout.terminated.tolist(), strict=True
    ):
        kept = [token for token, real in zip(ids, mask, strict=True) if real]
        texts.append(tokenizer.decode(kept[:-1] if terminated else kept).strip())
    return texts
