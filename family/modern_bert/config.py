"""The config of a ModernBERT."""

import dataclasses
import math

from modeling.architectures.config import EncoderConfig, MaskedLMNames

ACTIVATIONS = ("gelu", "gelu_erf", "relu")
_FEWEST_WINDOWS = (
    4  # of a row; in a shorter one, whole attention costs less than blocks
)


@dataclasses.dataclass(frozen=True)
class ModernBertConfig(EncoderConfig):
    """Sizes, rates and constants of one encoder; the defaults are those of Base.

    The first layer and every `global_attn_every_n_layers`th after it attend to the whole
    row, and the others to the nearest tokens: `local_attention`, half of them on each side.
    Rotary positions have one base for each kind of layer.

    The keys of a file are those of the older config.json of Hugging Face, whose newer ones
    have a list and objects in place of three numbers; but `pooling` is "first" where they
    have classifier_pooling "cls". `initializer_range` there is `weights_range` here,
    because the first weights of heads have another deviation.

    `pad_token_id` may be any id if it is absent.

    Source: arXiv:2412.13663; huggingface/transformers v5.24.0
    models/modernbert/configuration_modernbert.py.
    """

    architecture = "modern_bert"
    choices = {
        "hidden_act": ACTIVATIONS,
        "head_act": ACTIVATIONS,
        "pooling": ("first", "mean"),
    }
    file_keys = {
        "hidden_act": "hidden_activation",
        "head_act": "classifier_activation",
        "layer_norm_eps": "norm_eps",
        "weights_range": "initializer_range",
        "embedding_dropout_prob": "embedding_dropout",
        "attention_dropout_prob": "attention_dropout",
        "hidden_dropout_prob": "mlp_dropout",
        "head_dropout_prob": "classifier_dropout",
    }
    keys_without_shape = (
        "num_attention_heads",
        "hidden_act",
        "head_act",
        "layer_norm_eps",
        "global_attn_every_n_layers",
        "local_attention",
        "global_rope_theta",
        "local_rope_theta",
        "pad_token_id",
    )
    has_segments = False
    capabilities = frozenset({"documents"})
    low_rank_targets = ("Wqkv",)

    vocab_size: int
    hidden_size: int = 768
    num_hidden_layers: int = 22
    num_attention_heads: int = 12
    intermediate_size: int = 1152
    hidden_act: str = "gelu_erf"
    head_act: str = "gelu_erf"
    max_position_embeddings: int = 8192
    global_attn_every_n_layers: int = 3
    local_attention: int = 128
    global_rope_theta: float = 160000.0
    local_rope_theta: float = 10000.0
    layer_norm_eps: float = 1e-5
    attention_bias: bool = False
    mlp_bias: bool = False
    norm_bias: bool = False
    classifier_bias: bool = False
    decoder_bias: bool = True
    embedding_dropout_prob: float = 0.0
    attention_dropout_prob: float = 0.0
    hidden_dropout_prob: float = 0.0
    head_dropout_prob: float = 0.0
    weights_range: float = 0.02
    initializer_cutoff_factor: float = 2.0
    pooling: str = "first"
    pad_token_id: int | None = None

    def __post_init__(self):
        super().__post_init__()
        head_size, rest = divmod(self.hidden_size, self.num_attention_heads)
        if rest or head_size % 2:
            raise ValueError(
                f"hidden_size is {self.hidden_size}, and {self.num_attention_heads} "
                "attention heads cannot have the same even number each; make it a multiple "
                "of twice num_attention_heads"
            )
        if self.pad_token_id is not None and self.pad_token_id >= self.vocab_size:
            raise ValueError(
                f"pad_token_id is {self.pad_token_id}; it must be below "
                f"vocab_size={self.vocab_size}"
            )

    @property
    def masked_lm(self) -> MaskedLMNames:
        """Before the product with the table is what all heads share."""
        bias = "output_bias" if self.decoder_bias else None
        return MaskedLMNames(transform=None, bias=bias)

    @property
    def initializer_range(self) -> float:
        """Of heads: what makes their outputs as large as their inputs."""
        return self.hidden_size**-0.5

    @property
    def embedding_range(self) -> float:
        return self.weights_range

    @property
    def output_range(self) -> float:
        """The deviation of the first weights of what is added to the inputs of a layer."""
        return self.weights_range / math.sqrt(2.0 * self.num_hidden_layers)

    @property
    def masked_lm_activation(self) -> str:
        return self.head_act

    @property
    def row_pooling(self) -> str:
        return self.pooling

    @property
    def head_size(self) -> int:
        """The width of an attention head."""
        return self.hidden_size // self.num_attention_heads

    @property
    def reach(self) -> int:
        """How far a local layer sees on each side."""
        return self.local_attention // 2

    def is_global(self, layer: int) -> bool:
        """Whether a layer, from 0, attends to the whole row."""
        return layer % self.global_attn_every_n_layers == 0

    def is_in_blocks(self, seq_length: int | None) -> bool:
        """Whether local layers compute only what they see, and the next few.

        Args:
            seq_length: None if it varies by batch.
        """
        longest = seq_length or self.max_position_embeddings
        return longest > _FEWEST_WINDOWS * max(self.local_attention, 1)

    def kept_numbers(self, seq_length: int) -> int:
        return seq_length * (6 * self.hidden_size + 3 * self.intermediate_size)

    def multiplications(self, seq_length: int) -> int:
        width, count = self.hidden_size, self.num_hidden_layers
        num_global = sum(map(self.is_global, range(count)))
        near = min(seq_length, 2 * self.reach + 1)
        seen = num_global * seq_length + (count - num_global) * near
        dense = count * width * (4 * width + 3 * self.intermediate_size)
        return seq_length * (dense + 2 * seen * width)
