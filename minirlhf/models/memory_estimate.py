"""Memory of a decoder in a training step of this library, computed from the sizes in its ``config.json``.

This module is arithmetic only: it loads no model and does not import PyTorch. It covers decoders with a gated
feed-forward layer and root-mean-square norms (:data:`FAMILIES`). A test compares its results with real steps.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Self

from minirlhf.core.errors import UserError

#: Values of ``model_type`` whose layers are counted here.
FAMILIES = ("llama", "mistral", "qwen2")
#: Bytes of a number in 16 and in 32 bits.
HALF, FULL = 2, 4
#: The sampler copies a part of the weights of a model with at most this many parameters (:mod:`minirlhf.engine`).
COPIED = 100_000_000
#: Bytes per row and vocabulary entry while a token is sampled: three tensors in 32 bits, one more and its sum in 64.
SAMPLING = 3 * FULL + FULL + 8


@dataclass(frozen=True)
class ModelSizes:
    """The sizes of a decoder, under the names of ``config.json``."""

    hidden_size: int
    intermediate_size: int
    num_hidden_layers: int
    num_attention_heads: int
    num_key_value_heads: int
    head_dim: int
    vocab_size: int
    tie_word_embeddings: bool
    bias: bool  # of the projections to queries, keys and values

    _REQUIRED: ClassVar = ("hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads", "vocab_size")

    @classmethod
    def from_config(cls, config: Mapping[str, Any], name: str) -> Self:
        """Read the sizes from the contents of ``config.json``.

        Raises:
            UserError: the model belongs to no family of :data:`FAMILIES`, or a size is missing.
        """
        family = config.get("model_type")
        if family not in FAMILIES:
            raise UserError(
                f"{name}: model type {family!r}; expected one of {', '.join(FAMILIES)}, whose memory can be estimated",
                argument="model_type",
                value=family,
                expected=FAMILIES,
            )
        try:
            sizes = {key: int(config[key]) for key in cls._REQUIRED}
            heads = sizes["num_attention_heads"]
            return cls(
                **sizes,
                num_key_value_heads=int(config.get("num_key_value_heads") or heads),
                head_dim=int(config.get("head_dim") or sizes["hidden_size"] // heads),
                tie_word_embeddings=bool(config.get("tie_word_embeddings", False)),
                bias=family == "qwen2",
            )
        except (KeyError, TypeError, ValueError) as error:
            raise UserError(
                f"{name}: config.json lacks a size ({error}); expected the configuration of a language model",
                argument="config.json",
                problem="missing",
            ) from None

    @property
    def query(self) -> int:
        """Width of the queries of all heads."""
        return self.num_attention_heads * self.head_dim

    @property
    def key(self) -> int:
        """Width of the keys of all heads; the values have the same."""
        return self.num_key_value_heads * self.head_dim

    @property
    def linear_layers(self) -> tuple[tuple[int, int], ...]:
        """Inputs and outputs of the matrices of one layer."""
        hidden, mlp = self.hidden_size, self.intermediate_size
        attention = ((hidden, self.query), (hidden, self.key), (hidden, self.key), (self.query, hidden))
        return (*attention, (hidden, mlp), (hidden, mlp), (mlp, hidden))

    @property
    def matrices(self) -> int:
        """Parameters of the matrices of all layers."""
        return self.num_hidden_layers * sum(inputs * outputs for inputs, outputs in self.linear_layers)

    @property
    def embedding(self) -> int:
        """Parameters of the embedding table, and of the output layer if it is not tied to the table."""
        return self.vocab_size * self.hidden_size

    def parameters(self, *, output_layer: bool = True) -> int:
        """Number of parameters; without the output layer those of a reward or value model, except its head."""
        biases = self.query + 2 * self.key if self.bias else 0
        others = self.num_hidden_layers * (2 * self.hidden_size + biases) + self.hidden_size
        tables = 2 if output_layer and not self.tie_word_embeddings else 1
        return self.matrices + tables * self.embedding + others

    def adapter(self, rank: int) -> int:
        """Number of parameters of LoRA adapters of this rank on all matrices of the layers."""
        return self.num_hidden_layers * rank * sum(inputs + outputs for inputs, outputs in self.linear_layers)


@dataclass(frozen=True)
class Numerics:
    """How a model is trained.

    Attributes:
        weight_bytes: bytes of a weight of the model, 2 or 4.
        autocast: whether matrix products are computed in bfloat16.
        lora_r: rank of the adapters, or 0 if all weights are trained.
        gpu: whether the kernels are those of a GPU.
    """

    weight_bytes: int = FULL
    autocast: bool = False
    lora_r: int = 0
    gpu: bool = False

    @property
    def product_bytes(self) -> int:
        """Bytes of a number in a matrix product."""
        return HALF if self.autocast else self.weight_bytes

    @property
    def casts_weights(self) -> bool:
        """Whether each matrix product makes a copy of its weights in 16 bits."""
        return self.autocast and self.weight_bytes == FULL


@dataclass(frozen=True)
class Rows:
    """The rows of a forward pass; prompts that several rows share are read once.

    Attributes:
        count: number of rows.
        prompts: number of distinct prompts.
        prompt_length, completion_length: tokens of each prompt and of each completion.
    """

    count: int
    prompts: int
    prompt_length: int
    completion_length: int

    @property
    def completion_tokens(self) -> int:
        """Tokens of all completions."""
        return self.count * self.completion_length

    @property
    def tokens(self) -> int:
        """Tokens that the model reads."""
        return self.prompts * self.prompt_length + self.completion_tokens


#: Numbers per token that a layer saves for its backward pass, as multiples of widths: of ``hidden_size`` in 16 and 32
#: bits, of the queries in 16 and 32 bits, of ``intermediate_size`` in 16 and 32 bits. By what is trained and by the
#: precision. With all weights trained in 32 bits these are: input, normalised input and output of two norms; queries
#: and two copies of the attention's output; gate, its activation, up projection and their product.
_SAVED = {
    ("all", "32"): (0, 6, 0, 3, 0, 4),
    ("all", "autocast"): (5, 4, 3, 0, 4, 0),
    ("all", "16"): (4, 2, 3, 0, 4, 0),
    ("adapter", "32"): (0, 4, 0, 3, 0, 4),
    ("adapter", "autocast"): (5, 2, 3, 0, 4, 0),
    ("adapter", "16"): (0, 7, 2, 1, 3, 1),
}


@dataclass(frozen=True)
class MemoryEstimate:
    """Bytes of the parts of a run of one model."""

    sizes: ModelSizes
    numerics: Numerics
    output_layer: bool = True

    @property
    def trained(self) -> int:
        """Number of trained parameters."""
        rank = self.numerics.lora_r
        return self.sizes.adapter(rank) if rank else self.sizes.parameters(output_layer=self.output_layer)

    @property
    def weights(self) -> int:
        """Weights of the model, with its adapters, which are kept in 32 bits."""
        base = self.numerics.weight_bytes * self.sizes.parameters(output_layer=self.output_layer)
        return base + (FULL * self.trained if self.numerics.lora_r else 0)

    @property
    def gradients(self) -> int:
        """Gradients of the trained parameters."""
        return (FULL if self.numerics.lora_r else self.numerics.weight_bytes) * self.trained

    @property
    def optimizer(self) -> int:
        """Adam's two moments, each as large as the gradients."""
        return 2 * self.gradients

    def activations(self, rows: Rows) -> int:
        """Tensors that the layers save for the backward pass, with the 16-bit copies of 32-bit weights."""
        sizes, numerics = self.sizes, self.numerics
        precision = "autocast" if numerics.autocast else "16" if numerics.weight_bytes == HALF else "32"
        saved = _SAVED["adapter" if numerics.lora_r else "all", precision]
        widths = (sizes.hidden_size,) * 2 + (sizes.query,) * 2 + (sizes.intermediate_size,) * 2
        per_token = sum(
            count * width * size for count, width, size in zip(saved, widths, (HALF, FULL) * 3, strict=True)
        )
        per_token += FULL * (sizes.num_attention_heads + 2)  # sums of the attention's heads, scales of the two norms
        per_token += 7 * numerics.lora_r * (HALF if numerics.autocast else FULL)
        last_norm = rows.tokens * sizes.hidden_size * (HALF * saved[0] + FULL * saved[1]) // 2
        shared = rows.prompts < rows.count
        row_length = rows.prompt_length + rows.completion_length
        keys = rows.prompts * rows.prompt_length + rows.count * row_length if shared else rows.tokens
        key_width = (
            sizes.query if shared and numerics.gpu else sizes.key
        )  # with a mask, a GPU copies keys for all heads
        layer = per_token * rows.tokens + 2 * numerics.product_bytes * key_width * keys
        casts = HALF * sizes.matrices if numerics.casts_weights else 0
        return sizes.num_hidden_layers * layer + last_norm + casts

    def temporary(self, rows: Rows, *, copies: int = 0) -> int:
        """The largest tensors that exist for a moment while all activations do: at the loss the logits in 32 bits with
        their gradients, at the output layer also the gradient of its weights, or gradients in the last layer.

        ``copies``: further tensors of the size of the logits that the loss saves, such as the logits divided by a
        temperature.
        """
        sizes, numerics = self.sizes, self.numerics
        widths = numerics.product_bytes * sizes.intermediate_size + FULL * sizes.hidden_size
        last_layer = 2 * rows.tokens * widths
        if not self.output_layer:
            return last_layer
        logits = FULL * rows.completion_tokens * sizes.vocab_size
        gradient_of_weights = 0 if numerics.lora_r else numerics.weight_bytes * sizes.embedding
        casts = HALF * sizes.embedding if numerics.casts_weights else 0
        return casts + max((4 + copies) * logits, logits + gradient_of_weights, gradient_of_weights + last_layer)

    def forward(self, rows: Rows, *, logits: bool) -> int:
        """Temporary tensors of a forward pass without gradient: the widest layer, and the logits with their
        exponentials."""
        layer = rows.tokens * (3 * self.sizes.intermediate_size + 4 * self.sizes.hidden_size)
        numbers = rows.completion_tokens * self.sizes.vocab_size if logits else 0
        return max(self.numerics.product_bytes * layer, 2 * FULL * numbers)

    def cache(self, rows: int, length: int) -> int:
        """Keys and values of ``rows`` rows of this length; under autocast the rotated keys have 32 bits."""
        key_bytes = (
            FULL if self.numerics.autocast and self.numerics.weight_bytes == FULL else self.numerics.product_bytes
        )
        per_token = (key_bytes + self.numerics.product_bytes) * self.sizes.key
        return rows * length * self.sizes.num_hidden_layers * per_token

    def sampling(self, rows: int) -> int:
        """The distribution of one token of each row, and the sampler's own copy of a small model's weights."""
        copied = 0
        if self.sizes.parameters() <= COPIED and not self.numerics.lora_r:
            inputs_of = self.sizes.query + 2 * self.sizes.key + 2 * self.sizes.intermediate_size
            copied = self.numerics.weight_bytes * self.sizes.num_hidden_layers * self.sizes.hidden_size * inputs_of
        return copied + SAMPLING * rows * self.sizes.vocab_size
