"""An encoder in one file: its config, its network, and Hugging Face's layout of it."""

import dataclasses
import math

from keras import ops

from modeling import layers
from modeling.architectures.config import EncoderConfig
from modeling.architectures.encoder import Encoder
from modeling.architectures.table import Architecture
from training.interchange.adapter import Adapter


@dataclasses.dataclass(frozen=True)
class WindowsConfig(EncoderConfig):
    """Sizes of a network in which each layer sees a token and its two neighbours."""

    architecture = "windows"
    has_segments = False

    vocab_size: int
    hidden_size: int = 16
    num_hidden_layers: int = 2
    hidden_dropout_prob: float = 0.1
    initializer_range: float = 0.02

    @property
    def hidden_act(self):
        return "gelu"

    @property
    def max_position_embeddings(self):
        return math.inf  # rows may have any length

    def multiplications(self, seq_length):
        return 3 * seq_length * self.num_hidden_layers * self.hidden_size**2


class WindowsEncoder(Encoder):
    def __init__(self, config, *, seed=0, dtype="float32"):
        super().__init__(name=config.scope, dtype=dtype, autocast=False)
        self.config = config
        self._initializers = layers.weight_initializers(
            config.initializer_range, f"encoder {seed}"
        )
        self.build()

    def build(self, input_shape=None):
        config = self.config
        shape = (config.vocab_size, config.hidden_size)
        self.table = self.add_weight(shape, next(self._initializers), name="table")
        self.blocks = []
        for number in range(config.num_hidden_layers):
            with layers.name_scopes(f"layer_{number}"):
                dense = layers.Dense(
                    config.hidden_size,
                    next(self._initializers),
                    self.dtype_policy.name,
                    layers.activation(config.hidden_act),
                )
                dense.build((None, None, 3 * config.hidden_size))
            self.blocks.append(dense)
        self.built = True

    @property
    def hidden_size(self):
        return self.config.hidden_size

    @property
    def word_embeddings(self):
        return self.table

    @property
    def stages(self):
        return [[self.table], *(layer.weights for layer in self.blocks), []]

    def pool(self, outputs, input_mask=None):
        return layers.mean_of_tokens(outputs["sequence_output"], input_mask)

    def encode(self, inputs, dropouts=layers.no_dropout, return_all=False):
        hidden = layers.look_up(self.table, inputs["input_ids"])
        hidden = ops.cast(hidden, self.compute_dtype)
        is_token = ops.ones(ops.shape(hidden)[:2], hidden.dtype)
        if "input_mask" in inputs:
            is_token = ops.cast(inputs["input_mask"], hidden.dtype)
        outputs = {"embedding_output": hidden, "layer_outputs": []}
        for layer in self.blocks:
            row = ops.pad(hidden * is_token[..., None], ((0, 0), (1, 1), (0, 0)))
            window = ops.concatenate([row[:, :-2], row[:, 1:-1], row[:, 2:]], axis=-1)
            hidden += dropouts(layer(window), self.config.hidden_dropout_prob)
            outputs["layer_outputs"].append(hidden)
        outputs["sequence_output"] = hidden
        return outputs if return_all else {"sequence_output": hidden}


class WindowsAdapter(Adapter):
    architecture = model_type = "windows"
    modules = (
        ("windows/table", "windows.words", "embedding"),
        ("windows/layer_#/dense", "windows.layer.#.dense", "dense"),
        ("cls/predictions/transform/dense", "head.dense", "dense"),
        ("cls/predictions/transform/LayerNorm", "head.LayerNorm", "norm"),
        ("cls/predictions", "head", "bias"),
        ("", "classifier", "head"),
    )
    layer = "windows/layer_#"
    encoder = ("windows", ("words", "layer"))
    masked_lm = "cls/predictions/output_bias"
    heads = {"classification": "WindowsForSequenceClassification"}
    classes = {(masked_lm,): "WindowsForMaskedLM", (): "WindowsModel"}

    def from_hugging_face(self, values):
        known = (field.name for field in dataclasses.fields(self.config))
        return self.config(**{name: values[name] for name in known if name in values})

    def to_hugging_face(self, config):
        return dataclasses.asdict(config) | {"model_type": self.model_type}


ARCHITECTURE = Architecture(f"{__name__}:WindowsConfig", f"{__name__}:WindowsEncoder")
