"""Fine-tuning: a head on an encoder, and the losses and metrics of each task.

A head is one linear layer, with BiLSTM layers below it if asked for.
"""

import contextlib
import copy

import keras
from keras import ops

from errors import UserError, setting
from modeling import bilstm, layers, losses
from modeling.architectures.config import EncoderConfig
from modeling.architectures.network import Network
from modeling.architectures.table import make_encoder
from modeling.objectives.frozen import FrozenFeatures
from modeling.objectives.objective import Comparison, Objective, row_weights


class TaskModel(Network):
    """An encoder with one linear layer on its pooled or on its sequence output.

    With BiLSTM layers in between, which read the sequence output, the linear layer reads
    their states. (The paper's table 5, arXiv:1810.04805, has such models; it gives neither
    the size nor the number of layers, and does not say what a classifier reads.)

    If the encoder is frozen, these read other outputs of it, or a mix. Then it applies no
    dropout, which would make the features of a text vary, nor do the BiLSTM layers.

    Args:
        config: the architecture.
        num_outputs: logits for each row or token.
        lstm: the BiLSTM layers, or None.
        frozen: what is read of a frozen encoder, one of FEATURES; None trains the encoder.
        scope: where the linear layer's output_weights [num_outputs, hidden_size, or the
            width of the BiLSTM] and output_bias [num_outputs] are saved; in the release,
            at the top for classification and under cls/squad for spans.
        use_bias: False leaves out output_bias.
        seed: the same seed gives the same initial weights.
        dtype: "float32" or "mixed_bfloat16"; logits are float32 under both.
    Source: google-research/bert@eedf571 run_classifier.py:577-618, run_squad.py:549-586.
    """

    def __init__(
        self,
        config: EncoderConfig,
        num_outputs: int,
        *,
        lstm: bilstm.BiLstm | None = None,
        frozen: str | None = None,
        scope: tuple[str, ...] = (),
        use_bias: bool = True,
        seed: int = 0,
        dtype: str = "float32",
    ):
        super().__init__(name="task", dtype=dtype, autocast=False)
        self.config = config
        self.encoder = make_encoder(config, seed=seed, dtype=dtype)
        width, self.frozen = self.encoder.hidden_size, None
        if frozen:
            self.encoder.trainable = False
            self.frozen = FrozenFeatures(frozen, config)
            width = self.frozen.width
        self.lstm = lstm
        self.lstms = lstm.make(width, seed) if lstm else []
        draw = layers.glorot_uniform if config.glorot_heads else next
        initializer = draw(
            layers.weight_initializers(
                config.initializer_range, f"task head {seed}", config.truncated_weights
            )
        )
        # Plain variables, because a layer would prefix the released names with its own.
        with contextlib.ExitStack() as scopes:
            for name in scope:
                scopes.enter_context(keras.name_scope(name))
            self.output_weights = keras.Variable(
                initializer,
                (num_outputs, lstm.width if lstm else width),
                dtype="float32",
                name="output_weights",
            )
            self.output_bias = (
                keras.Variable("zeros", (num_outputs,), "float32", name="output_bias")
                if use_bias
                else None
            )
        self.built = True

    @property
    def description_suffix(self) -> str:
        return f"; its head reads {self.lstm}" if self.lstm else ""

    def encode(self, batch, dropouts=layers.no_dropout, return_all=False) -> dict:
        """What `answer` needs: the encoder's outputs; arguments as for `Encoder.call`."""
        if self.frozen:
            return self.encoder(batch, return_all=True)
        return self.encoder(batch, dropouts=dropouts, return_all=return_all)

    def states(self, encoded, input_mask, dropouts=layers.no_dropout):
        """What the linear layer reads of every token, [b, s, ...].

        Args:
            encoded: what `encode` returned.
        """
        if not (self.frozen or self.lstms):
            return self.encoder.token_vectors(encoded)
        hidden = encoded["sequence_output"]
        if self.frozen:
            hidden = self.frozen(encoded["embedding_output"], encoded["layer_outputs"])
            dropouts = layers.no_dropout
        if not self.lstms:
            return hidden
        rate = self.config.hidden_dropout_prob
        return bilstm.states(
            self.lstms, hidden, input_mask, lambda x: dropouts(x, rate)
        )

    def logits(self, hidden, dropouts=layers.no_dropout):
        """What the linear layer reads -> its float32 [..., num_outputs]."""
        hidden = dropouts(hidden, self.config.head_dropout_prob)
        weights = ops.cast(self.output_weights, hidden.dtype)
        logits = ops.cast(ops.matmul(hidden, ops.transpose(weights)), "float32")
        if self.output_bias is None:
            return logits
        return logits + ops.cast(self.output_bias, "float32")


class _PooledModel(TaskModel):
    """Of a row with several sequences, [b, n, s], the vectors are added."""

    @property
    def description_suffix(self):
        reads = {
            "last": "the last token",
            "mean": "the mean of all tokens",
            "ends": "the forward state at the last token and the backward state at the "
            "first",
        }
        pooling = self.config.row_pooling
        if self.lstm or pooling not in reads:
            return super().description_suffix
        return f"; its head reads {reads[pooling]}"

    def pool(self, encoded, input_mask, dropouts):
        """What the linear layer reads of every row: [b, ...]."""
        if not self.lstms:
            return self.encoder.pool(encoded, input_mask)
        states = self.states(encoded, input_mask, dropouts)
        return bilstm.last_states(states, input_mask)

    def encode(self, batch, dropouts=layers.no_dropout, return_all=False):
        if len(batch["input_ids"].shape) == 3:
            names = ("input_ids", "input_mask", "segment_ids")
            batch = {name: sequences(batch[name]) for name in names}
        return super().encode(batch, dropouts, return_all)

    def answer(self, encoded, batch, dropouts=layers.no_dropout):
        """-> dict of logits [b, num_outputs]."""
        mask = batch.get("input_mask")
        if mask is None or len(mask.shape) == 2:
            return {"logits": self.logits(self.pool(encoded, mask, dropouts), dropouts)}
        pooled = self.pool(encoded, sequences(mask), dropouts)
        pooled = ops.reshape(pooled, (*ops.shape(mask)[:2], pooled.shape[-1]))
        return {"logits": self.logits(ops.sum(pooled, axis=1), dropouts)}


class _SpanModel(TaskModel):
    sequence_outputs = ("start_logits", "end_logits")

    def answer(self, encoded, batch, dropouts=layers.no_dropout):
        """-> dict of start_logits and end_logits [b, s]."""
        hidden = self.states(encoded, batch.get("input_mask"), dropouts)
        logits = self.logits(hidden)  # as in the release, no dropout here
        return {"start_logits": logits[..., 0], "end_logits": logits[..., 1]}


class _ChoiceModel(_PooledModel):
    """The inputs are [b, choices, s]; every choice is a sequence for the encoder."""

    def answer(self, encoded, batch, dropouts=layers.no_dropout):
        """-> dict of logits [b, choices], very low for missing choices."""
        shape = ops.shape(batch["input_mask"])
        input_mask = sequences(batch["input_mask"])
        logits = self.logits(self.pool(encoded, input_mask, dropouts), dropouts)
        logits = ops.reshape(logits, shape[:2])
        exists = ops.any(ops.cast(batch["input_mask"], "bool"), axis=-1)
        return {"logits": ops.where(exists, logits, _NO_CHOICE)}


def sequences(x):
    """[b, s] or [b, choices, s] -> [sequences, s]"""
    return ops.reshape(x, (-1, ops.shape(x)[-1]))


class _TokenModel(TaskModel):
    sequence_outputs = ("logits",)

    def answer(self, encoded, batch, dropouts=layers.no_dropout):
        """-> dict of logits [b, s, num_outputs]."""
        hidden = self.states(encoded, batch.get("input_mask"), dropouts)
        return {"logits": self.logits(hidden, dropouts)}


# Finite, so that its product with a weight of 0 is 0.
_NO_CHOICE = -1e9


class TaskObjective(Objective):
    """One loss, named "loss", over the rows of a batch.

    Attributes:
        lstm: BiLSTM layers of the networks that it makes, or None.
        frozen: what these read of a frozen encoder, one of FEATURES, or None.
    """

    lstm: bilstm.BiLstm | None = None
    frozen: str | None = None
    loss_weights = {"loss": 1.0}
    metric_names = ("accuracy",)
    comparison = Comparison.of("logits")

    def with_layers(self, lstm: bilstm.BiLstm, frozen: str | None) -> "TaskObjective":
        """The same task with BiLSTM layers."""
        changed = copy.copy(self)
        changed.lstm, changed.frozen = lstm, frozen
        return changed

    @property
    def _reading(self) -> dict:
        """What all networks are told of what their heads read."""
        return {"lstm": self.lstm, "frozen": self.frozen}

    def weights(self, batch) -> dict:
        return {"loss": ops.sum(row_weights(batch))}


class Classification(TaskObjective):
    """One of `num_labels` classes; label_ids int [b].

    Source: google-research/bert@eedf571 run_classifier.py, create_model.
    """

    def __init__(self, num_labels: int):
        self.num_labels = num_labels

    def network(self, config, *, seed=0, dtype="float32") -> TaskModel:
        return _PooledModel(
            config, self.num_labels, **self._reading, seed=seed, dtype=dtype
        )

    def losses(self, batch, outputs) -> dict:
        labels, weights = batch["label_ids"], row_weights(batch)
        return {"loss": losses.cross_entropy(outputs["logits"], labels, weights)}

    def metrics(self, batch, outputs) -> dict:
        labels, weights = batch["label_ids"], row_weights(batch)
        return {"accuracy": losses.accuracy(outputs["logits"], labels, weights)}


class MultiLabel(Classification):
    """Any number of `num_labels` classes at once; label_ids int [b, num_labels], 0 or 1.

    The loss of a row is the mean over its labels of the binary cross entropies; the
    accuracy the share of labels that are right.
    """

    comparison = Comparison.of("logits", kind="sides")

    def losses(self, batch, outputs) -> dict:
        labels = ops.cast(batch["label_ids"], "float32")
        entropy = ops.binary_crossentropy(labels, outputs["logits"], from_logits=True)
        weights = row_weights(batch)
        return {"loss": losses.weighted_sum(ops.mean(entropy, axis=-1), weights)}

    def metrics(self, batch, outputs) -> dict:
        right = ops.equal(outputs["logits"] > 0, batch["label_ids"] > 0)
        share = ops.mean(ops.cast(right, "float32"), axis=-1)
        return {"accuracy": losses.weighted_sum(share, row_weights(batch))}


class Regression(TaskObjective):
    """A number; label_values float32 [b]. The loss is the squared error."""

    metric_names = ("absolute_error",)
    comparison = Comparison.of("logits", kind="numbers")

    def network(self, config, *, seed=0, dtype="float32") -> TaskModel:
        return _PooledModel(config, 1, **self._reading, seed=seed, dtype=dtype)

    def losses(self, batch, outputs) -> dict:
        error = outputs["logits"][:, 0] - batch["label_values"]
        return {"loss": losses.weighted_sum(ops.square(error), row_weights(batch))}

    def metrics(self, batch, outputs) -> dict:
        error = ops.abs(outputs["logits"][:, 0] - batch["label_values"])
        return {"absolute_error": losses.weighted_sum(error, row_weights(batch))}


def _logits_of_tokens(batch, outputs):
    is_token = ops.cast(batch["input_mask"], "bool")
    return [ops.where(is_token, logits, _NO_CHOICE) for logits in outputs.values()]


class Span(TaskObjective):
    """Where an answer begins and ends; start_positions and end_positions int [b].

    The accuracy is the share of rows where both are right.

    Source: google-research/bert@eedf571 run_squad.py, create_model and model_fn.
    """

    comparison = Comparison.of("start_logits", "end_logits", logits=_logits_of_tokens)

    def check(self, config) -> None:
        super().check(config)
        if self.lstm:
            return
        if config.attention_direction == "right_to_left":
            raise UserError(
                "read from right to left, no token of a text sees the question before it; "
                "use another attention_direction, or BiLSTM layers"
            )
        if config.attention_direction == "none":
            raise UserError(
                f"with the architecture {config.architecture!r}, no token of a text sees "
                f"the question; add BiLSTM layers ({setting('lstm_layers')})"
            )

    def network(self, config, *, seed=0, dtype="float32") -> TaskModel:
        return _SpanModel(
            config, 2, **self._reading, scope=("cls", "squad"), seed=seed, dtype=dtype
        )

    def losses(self, batch, outputs) -> dict:
        weights = row_weights(batch)
        (start, weight), (end, _) = (
            losses.cross_entropy(
                outputs[f"{side}_logits"], batch[f"{side}_positions"], weights
            )
            for side in ("start", "end")
        )
        return {"loss": ((start + end) / 2.0, weight)}

    def metrics(self, batch, outputs) -> dict:
        right = [
            ops.equal(
                ops.argmax(outputs[f"{side}_logits"], axis=-1),
                ops.cast(batch[f"{side}_positions"], "int32"),
            )
            for side in ("start", "end")
        ]
        both = ops.cast(ops.logical_and(*right), "float32")
        return {"accuracy": losses.weighted_sum(both, row_weights(batch))}


class Choice(Classification):
    """One of several sequences; label_ids int [b]. One learned vector, no bias.

    Source: the paper, section 4.4 (arXiv:1810.04805).
    """

    def __init__(self):
        super().__init__(num_labels=1)

    def network(self, config, *, seed=0, dtype="float32") -> TaskModel:
        return _ChoiceModel(
            config, 1, **self._reading, use_bias=False, seed=seed, dtype=dtype
        )


def _token_weights(batch):
    weights = ops.cast(batch["label_weights"], "float32")
    return weights * row_weights(batch)[:, None]


class Tagging(TaskObjective):
    """A label for each token that has one; label_ids int [b, s], label_weights [b, s].

    A weight of 1 marks the tokens that count: the first piece of each word.

    Source: the paper, section 5.3.
    """

    comparison = Comparison.of("logits", weights=_token_weights)

    def __init__(self, num_labels: int):
        self.num_labels = num_labels

    def network(self, config, *, seed=0, dtype="float32") -> TaskModel:
        return _TokenModel(
            config, self.num_labels, **self._reading, seed=seed, dtype=dtype
        )

    def weights(self, batch) -> dict:
        return {"loss": ops.sum(_token_weights(batch))}

    def losses(self, batch, outputs) -> dict:
        weights = _token_weights(batch)
        return {
            "loss": losses.cross_entropy(outputs["logits"], batch["label_ids"], weights)
        }

    def metrics(self, batch, outputs) -> dict:
        weights = _token_weights(batch)
        return {
            "accuracy": losses.accuracy(outputs["logits"], batch["label_ids"], weights)
        }
