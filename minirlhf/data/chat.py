"""Chat templates, and which tokens of a conversation the assistant wrote.

A conversation is a list of messages ``{"role": ..., "content": ...}``. A template (Jinja, as ``transformers`` tokenizers
carry it) turns it into one text; ``{% generation %}`` marks what the assistant writes. The loss of a trainer lies on the
assistant's tokens: its words and the token that ends its turn, in *every* turn, and nothing else.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from minirlhf.core.errors import UserError

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

Message: TypeAlias = dict[str, str]
ROLES = ("system", "user", "assistant")

# Special tokens of the tokenizers made here, in the order of their ids. Padding is not the end of a sequence.
PAD, EOS, USER, ASSISTANT, SYSTEM, UNK = "<pad>", "<eos>", "<user>", "<assistant>", "<system>", "<unk>"
SPECIAL_TOKENS = (PAD, EOS, USER, ASSISTANT, SYSTEM, UNK)

_BAD_ROLE = "{{ raise_exception('unknown role ' ~ message['role']) }}"


def _role_tokens(gap: str) -> str:
    """A template in which a token announces each speaker and the end-of-sequence token ends the assistant's turns."""
    return (
        "{% for message in messages %}"
        f"{{{{ '{gap}' if not loop.first }}}}"
        "{% if message['role'] == 'assistant' %}"
        f"<assistant>{gap}{{% generation %}}{{{{ message['content'] }}}}{gap}{{{{ eos_token }}}}{{% endgeneration %}}"
        "{% elif message['role'] in ('user', 'system') %}"
        f"{{{{ '<' ~ message['role'] ~ '>' }}}}{gap}{{{{ message['content'] }}}}"
        f"{{% else %}}{_BAD_ROLE}{{% endif %}}"
        "{% endfor %}"
        f"{{{{ '{gap}<assistant>' if add_generation_prompt }}}}"
    )


#: ``<user> tell me about cats <assistant> cats sleep a lot <eos>``: for word-level tokenizers, which split at spaces.
WORDS = _role_tokens(" ")

#: The same without spaces around the special tokens: for tokenizers that keep spaces (trained on data, byte-level).
TURNS = _role_tokens("")

#: ChatML: for tokenizers that have ``<|im_start|>`` and ``<|im_end|>``.
CHATML = (
    "{% for message in messages %}"
    "{{ '<|im_start|>' ~ message['role'] ~ '\n' }}"
    "{% if message['role'] == 'assistant' %}"
    "{% generation %}{{ message['content'] ~ '<|im_end|>' }}{% endgeneration %}"
    "{% elif message['role'] in ('user', 'system') %}{{ message['content'] ~ '<|im_end|>' }}"
    f"{{% else %}}{_BAD_ROLE}{{% endif %}}"
    "{{ '\n' }}"
    "{% endfor %}"
    "{{ '<|im_start|>assistant\n' if add_generation_prompt }}"
)

#: ``User: ...`` / ``Assistant: ...`` in plain words: for a pretrained tokenizer that has no template of its own.
TRANSCRIPT = (
    "{% for message in messages %}"
    "{{ '\n\n' if not loop.first }}"
    "{% if message['role'] == 'assistant' %}"
    "Assistant:{% generation %}{{ ' ' ~ message['content'] ~ eos_token }}{% endgeneration %}"
    "{% elif message['role'] in ('user', 'system') %}{{ message['role'] | capitalize ~ ': ' ~ message['content'] }}"
    f"{{% else %}}{_BAD_ROLE}{{% endif %}}"
    "{% endfor %}"
    "{{ '\n\nAssistant:' if add_generation_prompt }}"
)
