"""The encoder of ELECTRA: BERT's, with embeddings of their own width and no pooler.

Axes: b batch, s seq_length, h hidden_size, e embedding_size.
"""

import dataclasses

import keras

from modeling import layers
from modeling.architectures.bert import BertConfig, BertEncoder
from modeling.architectures.config import MaskedLMNames


@dataclasses.dataclass(frozen=True)
class ElectraConfig(BertConfig):
    """Sizes, rates and activation of one encoder: a discriminator or a generator.

    `embedding_size` is the width of the tables, which a projection makes hidden_size.
    `hidden_act` is the exact GELU, which the release and Hugging Face call "gelu".

    `pooler_act` is for Hugging Face's heads for whole rows, which have a dense layer with
    this activation where the release's have none. It is set where such a model is read;
    set it before fine-tuning to write one.

    The release has no config files, so a file of ours names its architecture. The defaults
    are those of its small model and of Hugging Face.

    Source: google-research/electra@8a46635 configure_pretraining.py and
    util/training_utils.py; huggingface/transformers v5.23.0
    models/electra/configuration_electra.py.
    """

    architecture = "electra"
    choices = BertConfig.choices | {"pooler_act": ("gelu_erf",)}
    own_keys = BertConfig.own_keys | {"pooler_act"}
    masked_lm = MaskedLMNames("generator_predictions", transform="")
    glorot_heads = True

    hidden_size: int = 256
    num_attention_heads: int = 4
    intermediate_size: int = 1024
    hidden_act: str = "gelu_erf"
    type_vocab_size: int = 2
    embedding_size: int = 128
    pooler_act: str | None = None

    @property
    def head_dropout_prob(self) -> float:
        return 0.1  # in the release whatever hidden_dropout_prob is

    def generator(self, width: float, depth: float) -> "ElectraConfig":
        """The config of a generator for this discriminator.

        Args:
            width, depth: its share of hidden_size and of num_hidden_layers.
        Raises:
            ValueError: it would have no units or no layers, or its heads cannot share
                its units equally.
        Source: google-research/electra@8a46635 run_pretraining.py,
        get_generator_config.
        """
        hidden_size = round(self.hidden_size * width)
        return self.of_sizes(hidden_size, round(self.num_hidden_layers * depth))

    def of_sizes(
        self, hidden_size: int, num_hidden_layers: int, **more: int
    ) -> "ElectraConfig":
        """This config with other sizes, and the heads and units that go with them."""
        return dataclasses.replace(
            self,
            hidden_size=hidden_size,
            num_hidden_layers=num_hidden_layers,
            num_attention_heads=max(1, hidden_size // 64),
            **{"intermediate_size": 4 * hidden_size} | more,
        )


class ElectraEncoder(BertEncoder):
    """Embeddings, a projection to hidden_size if that differs, and transformer layers.

    A head for whole rows reads the output of the first token as it is or, if the config
    has pooler_act, after a dense layer.

    Every variable exists once the object does, and its `path` is the name that the
    released checkpoints give it.

    Args:
        config: an ElectraConfig.
        seed, dtype, scope, embeddings: as for `BertEncoder`.
    Source: google-research/electra@8a46635 model/modeling.py, class BertModel.
    """

    draw_projection = staticmethod(layers.glorot_uniform)

    def make_pooler(self, initializers, dtype):
        if not self.config.pooler_act:
            return keras.layers.Identity(dtype=dtype, name="pooler")
        activation = layers.activation(self.config.pooler_act)
        width = self.config.hidden_size
        return layers.Dense(width, next(initializers), dtype, activation)
