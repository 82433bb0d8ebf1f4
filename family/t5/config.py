"""The config of a T5."""

import dataclasses
import math
import typing
from collections.abc import Mapping

from modeling.architectures.config import POOLINGS, EncoderConfig, MaskedLMNames

FEED_FORWARD = ("relu", "gated-gelu")
_FARTHEST = 2**20  # there is a table of all distances up to the largest


@dataclasses.dataclass(frozen=True)
class T5Config(EncoderConfig):
    """Sizes, rates and constants of an encoder and the decoder that reads it.

    The defaults are those of v1.0's small model. v1.1 has `feed_forward_proj` "gated-gelu"
    and `tie_word_embeddings` false: its logits have a matrix of their own, and what they
    are computed from is not scaled.

    `vocab_size` counts the rows of the table. The released models have 32,128: 32,000
    tokens, 100 sentinels and 28 rows that no token uses.

    `hidden_dropout_prob` is one rate for all dropouts. v1.1 was pre-trained with 0 and is
    fine-tuned with 0.1.

    `pad_token_id` also begins what the decoder reads; `eos_token_id` ends its targets.

    Source: arXiv:1910.10683; tensorflow/mesh@da90793 mesh_tensorflow/transformer;
    huggingface/transformers v5.23.0 models/t5/configuration_t5.py.
    """

    architecture = "t5"
    choices = {"feed_forward_proj": FEED_FORWARD, "pooling": POOLINGS}
    keys_without_shape = (
        "relative_attention_max_distance",
        "layer_norm_eps",
        "scale_decoder_outputs",
        "pad_token_id",
        "eos_token_id",
    )
    has_segments = False
    pretraining_model = "family.t5.decoder:TextToTextModel"
    capabilities = frozenset({"decoder"})
    masked_lm = MaskedLMNames(transform=None)
    low_rank_targets = ("q", "v")
    truncated_weights = False

    vocab_size: int
    hidden_size: int = 512
    num_hidden_layers: int = 6
    num_decoder_layers: int | None = None
    num_attention_heads: int = 8
    attention_head_size: int = 64
    intermediate_size: int = 2048
    feed_forward_proj: str = "relu"
    hidden_dropout_prob: float = 0.1
    relative_attention_num_buckets: int = 32
    relative_attention_max_distance: int = 128
    layer_norm_eps: float = 1e-6
    initializer_factor: float = 1.0
    tie_word_embeddings: bool = True
    scale_decoder_outputs: bool | None = None
    pad_token_id: int = 0
    eos_token_id: int = 1
    pooling: str = "mean"

    @property
    def scope(self) -> str:
        return "encoder"

    @property
    def decoder_layers(self) -> int:
        """As many as the encoder has, unless the config says otherwise."""
        return self.num_decoder_layers or self.num_hidden_layers

    @property
    def scales_outputs(self) -> bool:
        """Whether the decoder's outputs are divided by sqrt(hidden_size) for logits."""
        if self.scale_decoder_outputs is None:
            return self.tie_word_embeddings
        return self.scale_decoder_outputs

    @property
    def is_gated(self) -> bool:
        """Whether half of the inner layer multiplies the other half."""
        return self.feed_forward_proj.startswith("gated-")

    @property
    def hidden_act(self) -> str:
        """Of the layers; by the names of `layers.activation`."""
        return self.feed_forward_proj.removeprefix("gated-")

    @property
    def initializer_range(self) -> float:
        """Of heads: what makes their outputs as large as their inputs."""
        return self.initializer_factor * self.hidden_size**-0.5

    @property
    def embedding_range(self) -> float:
        return self.initializer_factor

    @property
    def token_axes(self) -> dict[str, int]:
        return {"decoder/logits/kernel": 1}

    @property
    def max_position_embeddings(self) -> float:
        """Rows may have any length: only distances have embeddings."""
        return math.inf

    @property
    def row_pooling(self) -> str:
        return self.pooling

    def multiplications(self, seq_length: int) -> int:
        return self.num_hidden_layers * self._multiplications(seq_length, seq_length)

    def decoder_multiplications(self, input_length: int, target_length: int) -> int:
        """Of the products of matrices in the decoder's pass over one row of targets."""
        inner = self.num_attention_heads * self.attention_head_size
        of_memory = 2 * self.hidden_size * inner * input_length
        of_queries = 2 * inner * target_length * (self.hidden_size + input_length)
        of_self = self._multiplications(target_length, target_length)
        return self.decoder_layers * (of_self + of_memory + of_queries)

    def _multiplications(self, length, seen):
        inner = self.num_attention_heads * self.attention_head_size
        matrices = 3 if self.is_gated else 2
        dense = 4 * inner + matrices * self.intermediate_size
        return length * (self.hidden_size * dense + 2 * seen * inner)

    def _check(self, name, kind, value):
        super()._check(name, kind, value)
        if name == "relative_attention_num_buckets" and (value < 4 or value % 2):
            raise ValueError(f"{name} is {value}; it must be even and at least 4")

    def __post_init__(self):
        super().__post_init__()
        exact = self.relative_attention_num_buckets // 2
        if not exact < self.relative_attention_max_distance <= _FARTHEST:
            raise ValueError(
                f"relative_attention_max_distance is "
                f"{self.relative_attention_max_distance}; it must be more than half of "
                f"relative_attention_num_buckets, {exact}, and at most {_FARTHEST}"
            )
        for name in ("pad_token_id", "eos_token_id"):
            if getattr(self, name) >= self.vocab_size:
                raise ValueError(
                    f"{name} is {getattr(self, name)}; it must be below "
                    f"vocab_size={self.vocab_size}"
                )

    @classmethod
    def from_dict(cls, values: Mapping) -> typing.Self:
        """Builds a config from the keys of a file.

        Raises:
            ValueError: vocab_size is absent, a key is unknown, or a value is wrong or
                describes another network.
        """
        if values.get("scale_decoder_outputs") is values.get(
            "tie_word_embeddings", True
        ):
            values = values | {"scale_decoder_outputs": None}  # the same config
        return super().from_dict(values)
