"""The contract of an objective: the network, its losses and metrics."""

import abc
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import keras
from keras import ops

from modeling.architectures.config import EncoderConfig


class Tokens(NamedTuple):
    """What an objective may need to know of a vocabulary.

    Attributes:
        sentinels: ids that stand for spans of a text, in order.
        end_id: of what ends a text.
        pad_id: of what follows it.
        left_out: ids of what is in a row and not text, such as [CLS] and [SEP].
    """

    sentinels: Sequence[int]
    end_id: int
    pad_id: int
    left_out: Sequence[int]


class Objective(abc.ABC):
    """Makes a network, and turns its outputs for a batch into losses and metrics.

    Attributes:
        loss_weights: loss name -> its factor in the sum that is minimized.
        metric_names: of what `metrics` returns.
        features: what a pre-training record must have besides the encoder's inputs.
        sentence_task: what a record's next_sentence_labels must be about,
            "next_sentence" or "sentence_order"; "" if they are not learned.
        sequence_outputs: outputs of the network whose second axis is the sequence.
        ranked_outputs: outputs in the order of their size, in which rounding may exchange
            neighbours.
        reads_masks: whether a pre-training record's masked tokens are what it learns;
            otherwise, the records must hold none.
        fills_masks: whether the network it trains answers for [MASK] in a text.
        answers: the form of the answers of its export.
        answering: what the names of the variables begin with that give those answers.
        begins_texts: whether its export puts the token before a text with which rows begin.
        fits_masked_records: whether records may hold masks.
        mask_shares: shares of the chosen tokens that become [MASK] or a random token, if
            they are not what the flags of the records say.
        needs_vocabulary: whether it must be told about the vocabulary, by `on_rows`.
        masked_by: the class that draws masks, if it is not `DynamicMasks`.
        num_counts: how many rows `counts` returns.
        compared: the outputs of the network in which a student is compared with its
            teacher; empty if it cannot be.
        compared_as: their kind, a key of `soft_losses.COMPARED`.
        measured: the objective of evaluations and exports, whose network has fewer
            variables or the same; by default, itself.
    """

    loss_weights: Mapping[str, float]
    metric_names: tuple[str, ...]
    features: tuple[str, ...] = ()
    sentence_task: str = ""
    sequence_outputs: tuple[str, ...] = ()
    ranked_outputs: tuple[str, ...] = ()
    reads_masks: bool = True
    fills_masks: bool = True
    answers: str = "masks"
    answering: tuple[str, ...] = ("",)
    begins_texts: bool = False
    fits_masked_records: bool = True
    mask_shares: tuple[float, float] | None = None
    needs_vocabulary: bool = False
    masked_by: type | None = None
    num_counts: int = 0
    compared: tuple[str, ...] = ()
    compared_as: str = "classes"

    @property
    def measured(self) -> "Objective":
        return self

    def check(self, config: EncoderConfig) -> None:
        """Refuses an encoder that cannot learn this.

        Raises:
            ValueError: says why, and what to change.
        """
        del config

    def check_export(self, config: EncoderConfig) -> None:
        """Refuses an encoder whose pre-trained network has no export.

        Raises:
            ValueError: says why.
        """
        del config

    def on_rows(self, tokens: Tokens, width: int) -> "Objective":
        """The same for rows of this width of a vocabulary, if it `needs_vocabulary`.

        Raises:
            ValueError: it cannot learn from them.
        """
        raise NotImplementedError

    def multiplications(
        self, config: EncoderConfig, seq_length: int, predictions: int
    ) -> int:
        """Of the products of matrices in the network's pass over one row.

        Args:
            seq_length: tokens of the row.
            predictions: of these, how many are predicted.
        """
        first, *others = self.encoders(config)
        found = sum(encoder.multiplications(seq_length) for encoder in (first, *others))
        width = first.embedding_size
        found += predictions * width * (first.hidden_size + first.vocab_size)
        return found + seq_length * self.token_head_size(config)

    def encoders(self, config: EncoderConfig) -> tuple[EncoderConfig, ...]:
        """The configs of the encoders that read a row; the first predicts its tokens."""
        return (config,)

    def token_head_size(self, config: EncoderConfig) -> int:
        """The numbers in matrices of heads that read every token, masked or not."""
        del config
        return 0

    def carried(self, config: EncoderConfig) -> Mapping[str, tuple[int, ...]]:
        """What each row of an update hands to the same row of the next, if anything.

        Returns:
            name -> its shape for one row. These names are in the batches and in the outputs
            of the network in training, float32 [b, ...]; at first they are zeros.
        """
        del config
        return {}

    @abc.abstractmethod
    def network(
        self, config: EncoderConfig, *, seed: int = 0, dtype: str = "float32"
    ) -> keras.layers.Layer:
        """Makes the network, which maps (batch, dropouts) to a dict of outputs.

        Its attribute `encoder` is the Encoder that a later training takes from it.

        Args:
            config: the architecture.
            seed: the same seed gives the same initial weights.
            dtype: "float32" or "mixed_bfloat16"; what losses need is float32 under both.
        """

    def required(self, model: keras.layers.Layer) -> tuple[str, ...]:
        """The names of the variables that weights to start from must contain.

        Args:
            model: what `network` returned.
        """
        return model.encoder.required

    def answer(self, model: keras.layers.Layer, batch) -> dict:
        """What evaluations and predictions ask of the network; it does not train.

        Outputs without a batch axis are sums, for `losses` and `metrics`; the others are
        what is predicted for every row.

        Args:
            model: what `network` returned.
            batch: what `prepare` returned.
        """
        return model(batch)

    def prepare(self, batch, seed) -> dict:
        """Changes a batch on the device before anything else sees it, as masking does.

        Random choices must be derived from `batch["row_numbers"]`; see
        modeling/row_random.py.

        Args:
            batch: dict of tensors.
            seed: the run's, an int.
        """
        del seed
        return batch

    def complete(self, batch) -> dict:
        """Adds to a micro-batch what would be large for a whole batch: a teacher's answers.

        Called in training alone, after `prepare` and `weights`.
        """
        return batch

    @staticmethod
    def row_weights(batch):
        """float32 [b]: 0.0 for rows that only pad a batch."""
        if "is_real_example" in batch:
            return ops.cast(batch["is_real_example"], "float32")
        return ops.ones(ops.shape(batch["input_ids"])[:1], "float32")

    @abc.abstractmethod
    def weights(self, batch) -> dict:
        """Loss name -> its weight, known before the network runs.

        With gradient accumulation, every micro-batch is divided by the weight of all.
        """

    @abc.abstractmethod
    def losses(self, batch, outputs) -> dict:
        """Loss name -> (sum, weight); see modeling/losses.py.

        Args:
            batch: what `prepare` returned.
            outputs: what the network returned for the batch.
        """

    @abc.abstractmethod
    def metrics(self, batch, outputs) -> dict:
        """Metric name -> (sum, weight); arguments as for `losses`."""

    def counts(self, batch, outputs):
        """float32 [num_counts, 2]: more sums, for `derived`; arguments as for `losses`."""
        raise NotImplementedError

    def derived(
        self, values: Mapping[str, float], counts: Sequence = ()
    ) -> dict[str, float]:
        """More to report, computed from the mean losses and metrics.

        Args:
            counts: the sums of what `counts` returned.
        """
        del values, counts
        return {}

    def comparable(self, batch, outputs) -> list:
        """What a student is compared in: float32 logits [b, n] or [b, s, n].

        Args:
            batch: what `prepare` returned.
            outputs: `compared` by name, of student or teacher.
        """
        del batch
        return [outputs[name] for name in self.compared]

    def comparison_weights(self, batch):
        """float32, the shape of `comparable` but for the last axis: what counts."""
        return self.row_weights(batch)
