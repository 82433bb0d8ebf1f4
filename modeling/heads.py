"""What stands on an encoder: its heads, their logits, losses and metrics.

Losses and metrics are pairs (sum, weight) of float32 scalars. Pairs of replicas and of
micro-batches add up, and `mean` of the total is the number to minimize or to report, so
that it does not depend on how a batch was divided.
"""

import contextlib

import keras
from keras import ops

from modeling import layers
from modeling.config import BertConfig
from modeling.encoder import BertEncoder


class PretrainingModel(keras.layers.Layer):
    """An encoder with the masked-LM and the next-sentence head.

    Args:
        config: the architecture.
        seed: the same seed gives the same initial weights.
        dtype: "float32" or "mixed_bfloat16"; logits are float32 under both.
    Source: google-research/bert@eedf571 run_pretraining.py.
    """

    def __init__(self, config: BertConfig, *, seed: int = 0, dtype: str = "float32"):
        super().__init__(name="pretraining", dtype=dtype, autocast=False)
        initializers = layers.weight_initializers(config, f"pretraining heads {seed}")
        # Built here, outside this layer's own name scope: the released names start
        # with "bert" and "cls".
        self.encoder = BertEncoder(config, seed=seed, dtype=dtype)
        self.masked_lm = MaskedLMHead(config, initializers, dtype=dtype)
        self.next_sentence = NextSentenceHead(config, initializers, dtype=dtype)
        with keras.name_scope("cls"):
            self.masked_lm.build()
            self.next_sentence.build()
        self.built = True

    def call(self, batch, dropouts=layers.no_dropout):
        """Predicts the masked tokens and whether the second segment is the next.

        Args:
            batch: dict of the encoder's inputs and masked_lm_positions [b, p].
            dropouts: as `BertEncoder.call` takes them.
        Returns:
            dict of masked_lm_logits [b, p, vocab_size], next_sentence_logits [b, 2], and
            the encoder's sequence_output [b, s, h] and pooled_output [b, h]; float32.
        """
        outputs = self.encoder(batch, dropouts=dropouts)
        return {
            **{name: ops.cast(value, "float32") for name, value in outputs.items()},
            "masked_lm_logits": self.masked_lm(
                outputs["sequence_output"],
                positions=batch["masked_lm_positions"],
                word_embeddings=ops.convert_to_tensor(self.encoder.word_embeddings),
            ),
            "next_sentence_logits": self.next_sentence(outputs["pooled_output"]),
        }


class MaskedLMHead(keras.layers.Layer):
    """Logits over the vocabulary, at the masked positions only.

    The output matrix is the encoder's table of word embeddings.
    """

    def __init__(self, config, initializers, dtype):
        super().__init__(name="predictions", dtype=dtype)
        self.config = config
        self.dense = keras.layers.Dense(
            config.hidden_size,
            activation=layers.activation(config.hidden_act),
            kernel_initializer=next(initializers),
            dtype=dtype,
            name="dense",
        )
        self.norm = layers.layer_norm(dtype)

    def build(self, input_shape=None):
        hidden_shape = (None, None, self.config.hidden_size)
        with keras.name_scope("transform"):
            self.dense.build(hidden_shape)
            self.norm.build(hidden_shape)
        self.output_bias = self.add_weight(
            (self.config.vocab_size,), "zeros", name="output_bias"
        )
        self.built = True

    def call(self, sequence_output, positions=None, word_embeddings=None):
        # A product with one-hot rows picks positions; its gradient needs no scatter.
        picks = ops.one_hot(
            positions, ops.shape(sequence_output)[1], dtype=sequence_output.dtype
        )
        hidden = ops.matmul(picks, sequence_output)  # [b, p, h]
        hidden = self.norm(self.dense(hidden))
        logits = ops.matmul(hidden, ops.transpose(word_embeddings))
        return ops.cast(logits, "float32") + ops.cast(self.output_bias, "float32")


class NextSentenceHead(keras.layers.Layer):
    """Logits [b, 2]: the second segment follows the first, or is a random one."""

    def __init__(self, config, initializers, dtype):
        super().__init__(name="seq_relationship", dtype=dtype)
        self.hidden_size = config.hidden_size
        self.initializer = next(initializers)

    def build(self, input_shape=None):
        # [out, in], unlike a kernel: the release multiplies by the transpose.
        self.output_weights = self.add_weight(
            (2, self.hidden_size), self.initializer, name="output_weights"
        )
        self.output_bias = self.add_weight((2,), "zeros", name="output_bias")
        self.built = True

    def call(self, pooled_output):
        logits = ops.matmul(pooled_output, ops.transpose(self.output_weights))
        return ops.cast(logits + self.output_bias, "float32")


class MaskedLMNextSentence:
    """The release's pre-training objective: both tasks, summed with equal weight.

    An objective names its losses and metrics, makes its model, and turns a batch with
    the model's outputs into losses and metrics; the training loop knows no more of it.

    A batch holds masked_lm_ids and masked_lm_weights [b, p], next_sentence_labels [b, 1]
    (0 = really the next) and optionally is_real_example [b], 0 for rows that only fill
    up a batch and count for nothing.
    """

    loss_names = ("masked_lm_loss", "next_sentence_loss")
    metric_names = ("masked_lm_accuracy", "next_sentence_accuracy")

    def model(
        self, config: BertConfig, *, seed: int = 0, dtype: str = "float32"
    ) -> PretrainingModel:
        """Makes the network; see `PretrainingModel`."""
        return PretrainingModel(config, seed=seed, dtype=dtype)

    def weights(self, batch) -> dict:
        """Loss name -> its weight, known before the network runs.

        A step that accumulates divides every micro-batch by the weight of all of them.
        """
        return {
            f"{task}_loss": ops.sum(weights)
            for task, (_, weights) in _targets(batch).items()
        }

    def losses(self, batch, outputs) -> dict:
        """Loss name -> (sum, weight).

        Args:
            batch: see the class.
            outputs: what the model returned for the batch.
        Source: google-research/bert@eedf571 run_pretraining.py, get_masked_lm_output
            and get_next_sentence_output.
        """
        return {
            f"{task}_loss": cross_entropy(outputs[f"{task}_logits"], *target)
            for task, target in _targets(batch).items()
        }

    def metrics(self, batch, outputs) -> dict:
        """Accuracy name -> (correct, weight); arguments as for `losses`."""
        return {
            f"{task}_accuracy": accuracy(outputs[f"{task}_logits"], *target)
            for task, target in _targets(batch).items()
        }


def _targets(batch):
    """Task -> its labels and their float32 weights."""
    next_sentences = ops.squeeze(batch["next_sentence_labels"], axis=1)
    predictions = ops.cast(batch["masked_lm_weights"], "float32")
    rows = ops.ones_like(next_sentences, dtype="float32")
    if "is_real_example" in batch:
        rows = ops.cast(batch["is_real_example"], "float32")
        predictions *= rows[:, None]
    return {
        "masked_lm": (batch["masked_lm_ids"], predictions),
        "next_sentence": (next_sentences, rows),
    }


def cross_entropy(logits, labels, weights) -> tuple:
    """Weighted sum of -log p(label), and the weights' sum.

    Args:
        logits: float32 tensor [..., classes].
        labels: int tensor [...].
        weights: float32 tensor [...].
    Returns:
        two float32 scalars.
    """
    losses = ops.sparse_categorical_crossentropy(labels, logits, from_logits=True)
    return ops.sum(losses * weights), ops.sum(weights)


def accuracy(logits, labels, weights) -> tuple:
    """Weighted count of labels with the highest logit, and the weights' sum.

    Arguments and results as for `cross_entropy`.
    """
    predictions = ops.argmax(logits, axis=-1)
    correct = ops.equal(predictions, ops.cast(labels, predictions.dtype))
    return ops.sum(ops.cast(correct, "float32") * weights), ops.sum(weights)


def mean(total, weight):
    """Divides a sum by its weight; a batch without predictions gives 0.

    Differs from the release: it adds 1e-5 for masked LM only; beside a batch's size that
    is lost in rounding.
    """
    return total / (weight + 1e-5)


# === Fine-tuning =====================================================================


class TaskModel(keras.layers.Layer):
    """An encoder with one linear layer on its pooled or on its sequence output.

    Args:
        config: the architecture.
        num_outputs: logits for each row or token.
        num_inputs: width of what the layer stands on; hidden_size where it is None.
        scope: under which the layer's output_weights [num_outputs, num_inputs] and
            output_bias [num_outputs] are saved; the release has them at the top for
            classification, and under cls/squad for spans.
        use_bias: False leaves out output_bias.
        seed: the same seed gives the same initial weights.
        dtype: "float32" or "mixed_bfloat16"; logits are float32 under both.
    Source: google-research/bert@eedf571 run_classifier.py:577-618, run_squad.py:549-586.
    """

    def __init__(
        self,
        config: BertConfig,
        num_outputs: int,
        *,
        num_inputs: int | None = None,
        scope: tuple[str, ...] = (),
        use_bias: bool = True,
        seed: int = 0,
        dtype: str = "float32",
    ):
        super().__init__(name="task", dtype=dtype, autocast=False)
        self.config = config
        self.encoder = BertEncoder(config, seed=seed, dtype=dtype)
        initializer = next(layers.weight_initializers(config, f"task head {seed}"))
        # Plain variables: a layer would put its own name before the released ones.
        with contextlib.ExitStack() as scopes:
            for name in scope:
                scopes.enter_context(keras.name_scope(name))
            self.output_weights = keras.Variable(
                initializer,
                (num_outputs, num_inputs or config.hidden_size),
                dtype="float32",
                name="output_weights",
            )
            self.output_bias = (
                keras.Variable("zeros", (num_outputs,), "float32", name="output_bias")
                if use_bias
                else None
            )
        self.built = True

    def logits(self, hidden, dropouts=layers.no_dropout):
        """[..., num_inputs] -> float32 [..., num_outputs]."""
        hidden = dropouts(hidden, self.config.hidden_dropout_prob)
        weights = ops.cast(self.output_weights, hidden.dtype)
        logits = ops.cast(ops.matmul(hidden, ops.transpose(weights)), "float32")
        if self.output_bias is None:
            return logits
        return logits + ops.cast(self.output_bias, "float32")


class _PooledModel(TaskModel):
    def call(self, batch, dropouts=layers.no_dropout):
        """-> dict of logits [b, num_outputs]; arguments as `BertEncoder.call`'s."""
        outputs = self.encoder(batch, dropouts=dropouts)
        return {"logits": self.logits(outputs["pooled_output"], dropouts)}


class _SpanModel(TaskModel):
    def call(self, batch, dropouts=layers.no_dropout):
        """-> dict of start_logits and end_logits [b, s]."""
        outputs = self.encoder(batch, dropouts=dropouts)
        # As in the release, no dropout here.
        logits = self.logits(outputs["sequence_output"])
        return {"start_logits": logits[..., 0], "end_logits": logits[..., 1]}


class _ChoiceModel(TaskModel):
    def call(self, batch, dropouts=layers.no_dropout):
        """-> dict of logits [b, choices], very low where there is no such choice.

        The inputs are [b, choices, s]; every choice is a sequence for the encoder.
        """
        shape = ops.shape(batch["input_ids"])  # [b, choices, s]
        inputs = {
            name: ops.reshape(batch[name], (shape[0] * shape[1], shape[2]))
            for name in ("input_ids", "input_mask", "segment_ids")
        }
        outputs = self.encoder(inputs, dropouts=dropouts)
        logits = ops.reshape(self.logits(outputs["pooled_output"], dropouts), shape[:2])
        exists = ops.any(ops.cast(batch["input_mask"], "bool"), axis=-1)
        return {"logits": ops.where(exists, logits, _NO_CHOICE)}


class _TokenModel(TaskModel):
    def call(self, batch, dropouts=layers.no_dropout):
        """-> dict of logits [b, s, num_outputs]."""
        outputs = self.encoder(batch, dropouts=dropouts)
        return {"logits": self.logits(outputs["sequence_output"], dropouts)}


# Finite, so that its product with a weight of 0 is 0.
_NO_CHOICE = -1e9


class _TaskObjective:
    """One loss, named "loss", over the rows of a batch.

    As `MaskedLMNextSentence`; a subclass makes the model and says what `pairs` are.
    Outputs named in `sequence_outputs` have the sequence as their second axis.
    """

    loss_names = ("loss",)
    metric_names = ("accuracy",)
    sequence_outputs = ()

    def weights(self, batch) -> dict:
        return {"loss": ops.sum(self.row_weights(batch))}

    def row_weights(self, batch):
        """float32 [b]: 0.0 for rows that only fill up a batch."""
        real = batch.get("is_real_example")
        if real is None:
            return ops.ones(ops.shape(batch["input_ids"])[:1], "float32")
        return ops.cast(real, "float32")


class Classification(_TaskObjective):
    """One of `num_labels` classes; label_ids int [b].

    Source: google-research/bert@eedf571 run_classifier.py, create_model.
    """

    def __init__(self, num_labels: int):
        self.num_labels = num_labels

    def model(self, config, *, seed=0, dtype="float32") -> TaskModel:
        return _PooledModel(config, self.num_labels, seed=seed, dtype=dtype)

    def losses(self, batch, outputs) -> dict:
        labels, weights = batch["label_ids"], self.row_weights(batch)
        return {"loss": cross_entropy(outputs["logits"], labels, weights)}

    def metrics(self, batch, outputs) -> dict:
        labels, weights = batch["label_ids"], self.row_weights(batch)
        return {"accuracy": accuracy(outputs["logits"], labels, weights)}


class MultiLabel(Classification):
    """Any number of `num_labels` classes at once; label_ids int [b, num_labels], 0 or 1.

    The loss of a row is the mean over its labels of the binary cross entropies; the
    accuracy the share of labels that are right.
    """

    def losses(self, batch, outputs) -> dict:
        labels = ops.cast(batch["label_ids"], "float32")
        losses = ops.binary_crossentropy(labels, outputs["logits"], from_logits=True)
        weights = self.row_weights(batch)
        return {"loss": _weighted(ops.mean(losses, axis=-1), weights)}

    def metrics(self, batch, outputs) -> dict:
        right = ops.equal(outputs["logits"] > 0, batch["label_ids"] > 0)
        share = ops.mean(ops.cast(right, "float32"), axis=-1)
        return {"accuracy": _weighted(share, self.row_weights(batch))}


class Regression(_TaskObjective):
    """A number; label_values float32 [b]. The loss is the squared error."""

    metric_names = ("absolute_error",)

    def model(self, config, *, seed=0, dtype="float32") -> TaskModel:
        return _PooledModel(config, 1, seed=seed, dtype=dtype)

    def losses(self, batch, outputs) -> dict:
        error = outputs["logits"][:, 0] - batch["label_values"]
        return {"loss": _weighted(ops.square(error), self.row_weights(batch))}

    def metrics(self, batch, outputs) -> dict:
        error = ops.abs(outputs["logits"][:, 0] - batch["label_values"])
        return {"absolute_error": _weighted(error, self.row_weights(batch))}


class Span(_TaskObjective):
    """Where an answer begins and ends; start_positions and end_positions int [b].

    The accuracy is the share of rows where both are right.

    Source: google-research/bert@eedf571 run_squad.py, create_model and model_fn.
    """

    sequence_outputs = ("start_logits", "end_logits")

    def model(self, config, *, seed=0, dtype="float32") -> TaskModel:
        return _SpanModel(config, 2, scope=("cls", "squad"), seed=seed, dtype=dtype)

    def losses(self, batch, outputs) -> dict:
        weights = self.row_weights(batch)
        (start, weight), (end, _) = (
            cross_entropy(
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
        return {"accuracy": _weighted(both, self.row_weights(batch))}


class Choice(Classification):
    """One of several sequences; label_ids int [b]. One learned vector, no bias.

    Source: the paper, section 4.4 (arXiv:1810.04805).
    """

    def __init__(self):
        super().__init__(num_labels=1)

    def model(self, config, *, seed=0, dtype="float32") -> TaskModel:
        return _ChoiceModel(config, 1, use_bias=False, seed=seed, dtype=dtype)


class Tagging(_TaskObjective):
    """A label for each token that has one; label_ids int [b, s], label_weights [b, s].

    A weight of 1 marks the tokens that count: the first piece of each word.

    Source: the paper, section 5.3.
    """

    sequence_outputs = ("logits",)

    def __init__(self, num_labels: int):
        self.num_labels = num_labels

    def model(self, config, *, seed=0, dtype="float32") -> TaskModel:
        return _TokenModel(config, self.num_labels, seed=seed, dtype=dtype)

    def weights(self, batch) -> dict:
        return {"loss": ops.sum(self._token_weights(batch))}

    def losses(self, batch, outputs) -> dict:
        weights = self._token_weights(batch)
        return {"loss": cross_entropy(outputs["logits"], batch["label_ids"], weights)}

    def metrics(self, batch, outputs) -> dict:
        weights = self._token_weights(batch)
        return {"accuracy": accuracy(outputs["logits"], batch["label_ids"], weights)}

    def _token_weights(self, batch):
        weights = ops.cast(batch["label_weights"], "float32")
        return weights * self.row_weights(batch)[:, None]


def _weighted(values, weights) -> tuple:
    """[b], [b] -> the weighted sum and the weights' sum."""
    return ops.sum(values * weights), ops.sum(weights)
