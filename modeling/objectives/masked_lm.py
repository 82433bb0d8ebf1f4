"""Masked words alone: the objective of RoBERTa, and of the paper's "no NSP"."""

import keras
from keras import ops

from modeling import layers, losses
from modeling.architectures.config import EncoderConfig
from modeling.architectures.table import make_encoder
from modeling.objectives.objective import Objective


class MaskedLMModel(keras.layers.Layer):
    """An encoder with the masked-LM head.

    Args:
        config: the architecture.
        seed: the same seed gives the same initial weights.
        dtype: "float32" or "mixed_bfloat16"; logits are float32 under both.
    Source: google-research/bert@eedf571 run_pretraining.py.
    """

    def __init__(self, config: EncoderConfig, *, seed: int = 0, dtype: str = "float32"):
        super().__init__(name="pretraining", dtype=dtype, autocast=False)
        self.config = config
        initializers = layers.weight_initializers(
            config.initializer_range, f"pretraining heads {seed}"
        )
        # Built here, outside this layer's own name scope: the released names start
        # with "bert" and "cls", for example.
        self.encoder = make_encoder(config, seed=seed, dtype=dtype)
        self.masked_lm = MaskedLMHead(config, initializers, dtype=dtype)
        with layers.name_scopes(config.masked_lm_scope.rpartition("/")[0]):
            self.masked_lm.build()
        with keras.name_scope("cls"):
            self.build_heads(config, initializers, dtype)
        self.built = True

    def build_heads(self, config, initializers, dtype) -> None:
        """Makes and builds more heads, in a subclass."""

    def leave_pooler(self) -> None:
        """Keeps the pooler as it is.

        No loss reaches it, and weight decay alone would shrink it to nothing. The release
        also leaves variables without a gradient unchanged.
        """
        for variable in self.encoder.weights:
            if variable.path not in self.encoder.required:
                variable.trainable = False

    def encode(self, batch, dropouts=layers.no_dropout, return_all=False) -> dict:
        """What `answer` needs: the encoder's outputs; arguments as for `Encoder.call`."""
        return self.encoder(batch, dropouts=dropouts, return_all=return_all)

    def answer(self, encoded, batch, dropouts=layers.no_dropout) -> dict:
        """What `encode` returned -> the outputs; see `call`."""
        del dropouts
        known = [n for n in ("sequence_output", "pooled_output") if n in encoded]
        return {
            **{name: ops.cast(encoded[name], "float32") for name in known},
            "masked_lm_logits": self.masked_lm(
                encoded["sequence_output"],
                positions=batch["masked_lm_positions"],
                word_embeddings=ops.convert_to_tensor(self.encoder.word_embeddings),
            ),
        }

    def call(self, batch, dropouts=layers.no_dropout) -> dict:
        """Predicts the masked tokens.

        Args:
            batch: dict of the encoder's inputs and masked_lm_positions [b, p].
            dropouts: as for `Encoder.call`.
        Returns:
            dict of masked_lm_logits [b, p, vocab_size] and the encoder's sequence_output
            [b, s, h] and, if it has a pooler, pooled_output [b, h]; float32.
        """
        return self.answer(self.encode(batch, dropouts), batch, dropouts)


class MaskedLMHead(keras.layers.Layer):
    """Logits over the vocabulary, at the masked positions only.

    The output matrix is the encoder's table of word embeddings. If the config's
    `masked_lm_transform` is None, nothing comes before it, and without a `masked_lm_bias`
    nothing after it.
    """

    def __init__(self, config, initializers, dtype):
        name = config.masked_lm_scope.rpartition("/")[2]
        super().__init__(name=name, dtype=dtype)
        self.config = config
        self.transforms = config.masked_lm_transform is not None
        if not self.transforms:
            return
        self.dense = layers.Dense(
            config.embedding_size,
            next(initializers),
            dtype,
            layers.activation(config.masked_lm_activation),
        )
        self.norm = layers.LayerNorm(config.layer_norm_eps, dtype)

    def build(self, input_shape=None):
        self.built = True
        if self.transforms:
            with layers.name_scopes(self.config.masked_lm_transform):
                self.dense.build((None, None, self.config.hidden_size))
                self.norm.build((None, None, self.config.embedding_size))
        shape, name = (self.config.vocab_size,), self.config.masked_lm_bias
        if name is None:
            self.output_bias = ops.zeros(shape, "float32")
        else:
            self.output_bias = self.add_weight(
                shape, "zeros", name=name, autocast=False
            )

    def transform(self, hidden):
        """[..., h] -> [..., embedding_size]: what is multiplied by the table."""
        if not self.transforms:
            return hidden
        return self.norm(self.dense(hidden))

    def at(self, sequence_output, positions):
        """[b, s, h], [b, p] -> what `transform` makes of these positions."""
        # A product with one-hot rows picks positions; its gradient needs no scatter.
        picks = ops.one_hot(
            positions, ops.shape(sequence_output)[1], dtype=sequence_output.dtype
        )
        return self.transform(ops.matmul(picks, sequence_output))

    def call(self, sequence_output, positions=None, word_embeddings=None):
        hidden = self.at(sequence_output, positions)
        logits = ops.matmul(hidden, ops.transpose(word_embeddings))
        return layers.add_wide(logits, ops.copy(self.output_bias))


def check_context(config: EncoderConfig) -> None:
    """Refuses an encoder that does not predict tokens from their neighbours.

    Raises:
        ValueError: its positions do not see each other, or its decoder predicts tokens.
    """
    if config.has_decoder:
        raise ValueError(
            f"with the architecture {config.architecture!r}, a decoder predicts tokens; "
            "use --objective=span_corruption"
        )
    if config.attention_direction == "none":
        raise ValueError(
            f"with the architecture {config.architecture!r}, every position sees only its "
            "own token, so no token can be predicted from its neighbours; pre-train "
            "another architecture, or start fine-tuning from random weights"
        )


class MaskedLM(Objective):
    """The masked tokens, without the next sentence.

    A batch contains masked_lm_ids and masked_lm_weights [b, p], and optionally
    is_real_example [b], 0 for rows that only pad a batch and do not count.

    Source: google-research/bert@eedf571 run_pretraining.py, get_masked_lm_output.
    """

    loss_weights = {"masked_lm_loss": 1.0}
    metric_names = ("masked_lm_accuracy",)
    features = ("masked_lm_positions", "masked_lm_ids", "masked_lm_weights")
    compared = ("masked_lm_logits",)

    def check(self, config) -> None:
        check_context(config)

    def network(self, config, *, seed=0, dtype="float32") -> MaskedLMModel:
        model = MaskedLMModel(config, seed=seed, dtype=dtype)
        model.leave_pooler()
        return model

    def targets(self, batch) -> dict:
        """Task -> its labels and their float32 weights."""
        weights = ops.cast(batch["masked_lm_weights"], "float32")
        return {
            "masked_lm": (
                batch["masked_lm_ids"],
                weights * self.row_weights(batch)[:, None],
            )
        }

    def weights(self, batch) -> dict:
        return {
            f"{task}_loss": ops.sum(weights)
            for task, (_, weights) in self.targets(batch).items()
        }

    def losses(self, batch, outputs) -> dict:
        return {
            f"{task}_loss": losses.cross_entropy(outputs[f"{task}_logits"], *target)
            for task, target in self.targets(batch).items()
        }

    def metrics(self, batch, outputs) -> dict:
        return {
            f"{task}_accuracy": losses.accuracy(outputs[f"{task}_logits"], *target)
            for task, target in self.targets(batch).items()
        }

    def comparison_weights(self, batch):
        return self.targets(batch)["masked_lm"][1]
