"""The encoder of ModernBERT.

Axes: b batch, s seq_length, h hidden_size.
"""

import keras
from keras import ops

from family.modern_bert.config import ModernBertConfig
from family.modern_bert.layers import (
    CutNormal,
    ModernBertLayer,
    PredictionHead,
    norm,
    sights,
)
from modeling import layers
from modeling.architectures.encoder import Encoder
from modeling.architectures.masked_lm_head import MaskedLMHead


class ModernBertEncoder(Encoder):
    """Embeddings, layers, a final norm, and the head that all tasks share.

    The head is a dense layer with its activation and a norm. It is pre-trained, below the
    table that predicts tokens, and each task has one linear layer of its own after it, for
    whole rows as for tokens.

    Every variable exists once the object does. Released files have Hugging Face's names;
    ours are BERT's with the scope "modern_bert" where it has the same.

    In the last of `layer_outputs`, as in Hugging Face's class, the final norm is applied.

    Args:
        config: a ModernBertConfig.
        seed: the same seed gives the same initial weights.
        dtype: "float32" or "mixed_bfloat16". Softmax, norms and positions compute in
            float32 under both.
    Source: huggingface/transformers v5.24.0 models/modernbert/modeling_modernbert.py.
    """

    optional_parts = ("head/",)  # an encoder alone lacks it

    def __init__(
        self, config: ModernBertConfig, *, seed: int = 0, dtype: str = "float32"
    ):
        super().__init__(name=config.scope, dtype=dtype)
        self.config = config
        seeds = layers.weight_initializers(config.weights_range, f"encoder {seed}")

        def draw(deviation):
            cutoff = config.initializer_cutoff_factor
            return CutNormal(deviation, cutoff, next(seeds).seed)

        self.embeddings = _Embeddings(config, draw(config.embedding_range), dtype)
        self.transformer_layers = [
            ModernBertLayer(config, draw, dtype, index)
            for index in range(config.num_hidden_layers)
        ]
        self.norm = norm(config, dtype)
        self.head = PredictionHead(config, draw, dtype)
        self.build()

    def build(self, input_shape=None):
        self.embeddings.build()
        with keras.name_scope("encoder"):
            for layer in self.transformer_layers:
                layer.build()
            self.norm.build((None, None, self.config.hidden_size))
        self.head.build()
        self.built = True

    @property
    def hidden_size(self) -> int:
        return self.config.hidden_size

    @property
    def word_embeddings(self):
        return self.embeddings.word_embeddings

    @property
    def stages(self):
        *below, top = (layer.weights for layer in self.transformer_layers)
        above = [*top, *self.norm.weights]
        return [self.embeddings.weights, *below, above, self.head.weights]

    def make_head(self, name, initializers):
        """See `Encoder.make_head`; it shares `head`, and nothing is drawn for it."""
        assert name == "masked_lm", name
        made = _MaskedLMHead(self, initializers)
        with layers.name_scopes(self.config.masked_lm.scope.rpartition("/")[0]):
            made.build()
        return made

    def pool(self, outputs, input_mask=None):
        hidden = outputs["sequence_output"]
        if self.config.pooling == "mean":
            return self.head(layers.mean_of_tokens(hidden, input_mask))
        return self.head(hidden[:, 0])

    def token_vectors(self, outputs):
        return self.head(outputs["sequence_output"])

    def encode(self, inputs, dropouts=layers.no_dropout, return_all=False):
        """See `Encoder.encode`; segment_ids have no effect.

        Raises:
            ValueError: the sequence is too long.
        """
        hidden = embedded = self.embeddings(inputs["input_ids"], dropouts=dropouts)
        kinds = self._sights(inputs["input_ids"], inputs)
        outputs = []
        for index, layer in enumerate(self.transformer_layers):
            sight = kinds[not self.config.is_global(index)]
            hidden = layers.apply_layer(layer, hidden, dropouts=dropouts, sight=sight)
            outputs.append(hidden)
        outputs[-1] = self.norm(hidden)
        made = {"sequence_output": outputs[-1]}
        if return_all:
            made |= {"embedding_output": embedded, "layer_outputs": outputs}
        return made

    def attention_scores(self, number, layer_input):
        kinds = self._sights(layer_input, {})
        sight = kinds[not self.config.is_global(number)]
        return self.transformer_layers[number].scores(layer_input, sight)

    def _sights(self, tokens, inputs):
        """What layers of both kinds see of [b, s, ...]."""
        length, most = tokens.shape[1], self.config.max_position_embeddings
        if (length or 0) > most:
            raise ValueError(
                f"the sequence has {length} tokens, but the model reads at most {most} "
                "(max_position_embeddings); shorten the sequence"
            )
        return sights(self.config, tokens, inputs)


class _Embeddings(keras.layers.Layer):
    """Token ids [b, s] -> the normalized vectors [b, s, h] of the tokens."""

    def __init__(self, config, initializer, dtype):
        # In float32, in which the gradients of a frequent token add up; see
        # `bert.Embeddings`.
        super().__init__(name="embeddings", dtype=dtype, autocast=False)
        self.config, self.initializer = config, initializer
        self.norm = norm(config, "float32")

    def build(self, input_shape=None):
        shape = (self.config.vocab_size, self.config.hidden_size)
        self.word_embeddings = self.add_weight(
            shape, self.initializer, name="word_embeddings"
        )
        self.norm.build((None, None, self.config.hidden_size))
        self.built = True

    def call(self, ids, dropouts=layers.no_dropout):
        hidden = self.norm(layers.look_up(self.word_embeddings, ids))
        hidden = ops.cast(hidden, self.compute_dtype)
        return dropouts(hidden, self.config.embedding_dropout_prob)


class _MaskedLMHead(MaskedLMHead):
    """The encoder's head, the product with its table, and a bias."""

    def __init__(self, encoder, initializers):
        super().__init__(encoder.config, initializers, encoder.dtype_policy.name)
        self.head = encoder.head

    def transform(self, hidden):
        return self.head(hidden)
