"""T5: an encoder that reads a text, and a decoder that writes another one.

Axes: b batch, s inputs, t targets, h hidden_size, v vocab_size.
"""

import keras
from keras import ops

from family.t5.config import T5Config
from family.t5.encoder import Stack, padding_scores
from family.t5.layers import dense, unseen_scores
from modeling import layers, losses
from modeling.architectures.network import Network
from modeling.architectures.table import make_encoder

# The factor of the square of the logarithm of the softmax's denominator in training.
Z_LOSS = 1e-4


class TextToTextModel(Network):
    """The encoder of a T5 and its decoder.

    Every variable exists once the object does, and its `path` is the name that the
    released checkpoints give it.

    Args:
        config: a T5Config.
        seed: the same seed gives the same initial weights.
        dtype: "float32" or "mixed_bfloat16"; logits are float32 under both.
    Source: tensorflow/mesh@da90793 mesh_tensorflow/transformer/transformer.py,
        Bitransformer.
    """

    def __init__(self, config: T5Config, *, seed: int = 0, dtype: str = "float32"):
        super().__init__(name="text_to_text", dtype=dtype, autocast=False)
        self.config = config
        self.encoder = make_encoder(config, seed=seed, dtype=dtype)
        self.decoder = Decoder(config, self.encoder.embeddings, seed=seed, dtype=dtype)
        self.built = True

    @property
    def backbone(self):
        return (self.encoder, self.decoder)

    @property
    def scope(self):
        return (*super().scope, f"{self.decoder.name}/")

    def decode(
        self,
        encoded,
        batch,
        decoder_input_ids,
        dropouts=layers.no_dropout,
        return_all=False,
    ) -> dict:
        """What the decoder makes of the tokens so far, at each of their positions.

        Args:
            encoded: what `encode` returned.
            batch: what `encode` read; its input_mask is used.
            decoder_input_ids: int [b, t]; see `decoder_inputs`.
            return_all: also return the outputs below the last layer.
        Returns:
            dict of sequence_output [b, t, h], from which `logits` come; with return_all
            also embedding_output and layer_outputs, as for `Encoder.call`.
        """
        return self.decoder(
            decoder_input_ids,
            encoded["sequence_output"],
            unseen=padding_scores(batch),
            dropouts=dropouts,
            return_all=return_all,
        )

    def decoder_inputs(self, target_ids):
        """int [b, t] -> what the decoder reads: padding, and all targets but the last."""
        padded = ops.pad(
            target_ids, ((0, 0), (1, 0)), constant_values=self.config.pad_token_id
        )
        return padded[:, :-1]

    def logits(self, hidden):
        """[..., h] -> float32 [..., v]: the scores of the next token."""
        hidden = self.decoder.for_logits(hidden)
        table = ops.cast(self.decoder.table, hidden.dtype)
        return ops.cast(ops.matmul(hidden, ops.transpose(table)), "float32")

    def outputs_of(self, batch, dropouts) -> dict:
        """Compares the targets with what the decoder expects.

        Args:
            batch: dict of int tensors input_ids, input_mask [b, s], target_ids and
                target_mask [b, t], and optionally is_real_example [b].
            dropouts: in training, the `layers.Dropouts` of this pass.
        Returns:
            dict of float32 scalars, sums over the real targets: target_loss, which is
            cross entropy and a penalty on large logits; z_loss, the penalty alone, without
            a gradient; and target_correct, how many have the highest logit.
        """
        encoded = self.encode(batch, dropouts)
        decoded = self.decode(
            encoded, batch, self.decoder_inputs(batch["target_ids"]), dropouts
        )
        hidden = self.decoder.for_logits(decoded["sequence_output"])
        loss, z_loss, correct = losses.vocabulary_cross_entropy_with_z_loss(
            ops.reshape(hidden, (-1, hidden.shape[-1])),
            ops.cast(self.decoder.table, hidden.dtype),
            ops.reshape(batch["target_ids"], (-1,)),
            ops.reshape(target_weights(batch), (-1,)),
            Z_LOSS,
        )
        return {"target_loss": loss, "z_loss": z_loss, "target_correct": correct}

    def multiplications(self, seq_length, predictions):
        """As for `Network`; the predictions are those of the decoder."""
        config = self.config
        of_decoder = config.decoder_multiplications(seq_length, predictions)
        of_logits = predictions * config.hidden_size * config.vocab_size
        return config.multiplications(seq_length) + of_decoder + of_logits

    def greedy(self, batch, length: int):
        """Writes the most probable token after each other; see `greedy`."""
        return greedy(self, batch, length)


def target_weights(batch):
    """float32 [b, t]: 1 for the targets of rows that count."""
    weights = ops.cast(batch["target_mask"], "float32")
    if "is_real_example" in batch:
        weights *= ops.cast(batch["is_real_example"], "float32")[:, None]
    return weights


class Decoder(Stack, keras.layers.Layer):
    """Reads what is encoded and the tokens so far; shares the encoder's embeddings."""

    def __init__(self, config, embeddings, *, seed, dtype):
        super().__init__(name="decoder", dtype=dtype, autocast=False)
        self.config = config
        self.embeddings = embeddings
        initializers = layers.weight_initializers(
            config.initializer_range, f"decoder {seed}", config.truncated_weights
        )
        self.make_stack(initializers, dtype, config.decoder_layers, reads_encoder=True)
        self.own_logits = None
        if not config.tie_word_embeddings:
            sizes = config.hidden_size, config.vocab_size
            self.own_logits = dense(config, initializers, dtype, *sizes, name="logits")
        self.build()

    def build(self, input_shape=None):
        self.build_stack()
        if self.own_logits:
            self.own_logits.build((None, self.config.hidden_size))
        self.built = True

    @property
    def table(self):
        """[v, h]: what logits are products with."""
        if self.own_logits:
            return ops.transpose(self.own_logits.kernel)
        return ops.convert_to_tensor(self.embeddings.embedding)

    def for_logits(self, hidden):
        """[..., h], scaled if the config says so."""
        if not self.config.scales_outputs:
            return hidden
        return hidden * ops.cast(self.config.hidden_size**-0.5, hidden.dtype)

    def bias(self, length):
        """float32 [1, n, t, t], which also hides what follows a position."""
        places = ops.arange(length)
        seen = places[:, None] >= places[None, :]
        bias = self.blocks[0].attention.bias.of_distances(length, length)
        return bias + unseen_scores(seen)[None, None]

    def call(
        self, ids, encoded, unseen=None, dropouts=layers.no_dropout, return_all=False
    ):
        """See `TextToTextModel.decode`."""
        hidden = self.embeddings(ids, dropouts=dropouts)
        bias = self.bias(ops.shape(ids)[1])
        outputs = self.run_stack(hidden, bias, encoded, unseen, dropouts=dropouts)
        if return_all:
            return {"embedding_output": hidden, **outputs}
        return {"sequence_output": outputs["sequence_output"]}

    def step(self, ids, place, number, bias, caches, memories, unseen):
        """The next position of rows whose earlier positions are in the caches.

        Args:
            ids: int [b], the tokens there.
            place: bool [t], true at this position.
            number: int scalar, the same.
            bias: what `bias` returned.
            caches, memories: by block; see `Block.step`.
        Returns:
            [b, h], what logits come from, and the caches with this position.
        """
        hidden = self.embeddings(ids[:, None])
        bias = ops.take(bias, [number], axis=2)
        extended = []
        for block, cache, memory in zip(self.blocks, caches, memories, strict=True):
            hidden, cache = block.step(hidden, place, cache, bias, memory, unseen)
            extended.append(cache)
        return self.norm(hidden)[:, 0], extended


def greedy(model: TextToTextModel, batch, length: int):
    """Writes the most probable token after each other, until all rows have ended.

    The keys and values of earlier positions are kept, in tensors of a static shape.

    Args:
        model: the network.
        batch: dict of int tensors input_ids and, optionally, input_mask [b, s].
        length: the most tokens of a row.
    Returns:
        int32 [b, length]: tokens, the one that ends a row, and padding.
    """
    config, decoder = model.config, model.decoder
    encoded = model.encode(batch)["sequence_output"]
    rows = ops.shape(encoded)[0]
    heads, size = config.num_attention_heads, config.attention_head_size
    memories = [block.parts[1].layer.keys_values(encoded) for block in decoder.blocks]
    empty = ops.zeros((rows, heads, length, size), encoded.dtype)
    mask, bias = padding_scores(batch), decoder.bias(length)

    def follow(number, ids, ended, written, *flat):
        place = ops.arange(length) == number
        caches = list(zip(flat[::2], flat[1::2], strict=True))
        hidden, caches = decoder.step(ids, place, number, bias, caches, memories, mask)
        ids = ops.cast(ops.argmax(model.logits(hidden), axis=-1), "int32")
        ids = ops.where(ended, config.pad_token_id, ids)
        written = ops.where(place[None], ids[:, None], written)
        ended = ops.logical_or(ended, ids == config.eos_token_id)
        return number + 1, ids, ended, written, *(x for c in caches for x in c)

    def goes_on(number, ids, ended, *_):
        return ops.logical_and(number < length, ops.logical_not(ops.all(ended)))

    start = ops.full((rows,), config.pad_token_id, "int32")
    state = (
        ops.zeros((), "int32"),
        start,
        ops.zeros((rows,), "bool"),
        ops.full((rows, length), config.pad_token_id, "int32"),
        *[empty] * (2 * len(decoder.blocks)),
    )
    return ops.while_loop(goes_on, follow, state)[3]
