"""Turns texts into an encoder's features: windows, batches of similar length, pooling."""

import abc
import dataclasses
import functools
import itertools
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple, Protocol

import numpy as np

from training import backend
from training.backend import jax, keras, tf
from training.queries import arguments
from training.run import capacity
from errors import UserError, setting
from modeling.architectures.config import EncoderConfig
from modeling.architectures.encoder import Encoder
from modeling.architectures.features import EMBEDDINGS, MIX
from modeling.architectures.table import make_encoder
from modeling.layers import last_token
from modeling.pooling import pool_tokens
from text.instances import packing
from text.records.rows import static_lengths
from text.tokenizers.tokenizer import Tokenizer
from training.queries.arguments import Text

# Rows are sorted by length within this many batches, or within as many as yield this many
# bytes of features, which are kept until those of all rows before them are ready.
_BATCHES_SORTED = 64
_BYTES_WAITING = 1 << 28
OUTPUT = "output"  # in the place of layers: what heads for tokens read
# What is made of whole rows, not of the kept positions; windows count alike.
_OF_WHOLE_ROWS = ("last", "max", "weighted_mean")
_BATCH = ("input_ids", "input_mask", "segment_ids", "kept")


# --- Texts to rows -------------------------------------------------------------------


class TextRow(NamedTuple):
    """One input of the encoder: a text, a pair, or a window of a text.

    Attributes:
        input_ids, segment_ids: lists of int, unpadded.
        kept: the positions whose features to use; windows overlap.
        ends_text: whether this is the last row of the text.
    """

    input_ids: list[int]
    segment_ids: list[int]
    kept: slice
    ends_text: bool


@dataclasses.dataclass
class Counts:
    """What is reported about the texts at the end."""

    texts: int = 0
    tokens: int = 0
    cut: int = 0
    windowed: int = 0


class LayoutFlags(Protocol):
    """The flags that say how texts are laid out as rows."""

    max_seq_length: int
    doc_stride: int


def make_rows(
    lines: Iterable[str], tokenizer: Tokenizer, flags: LayoutFlags, counts: Counts
) -> Iterator[TextRow]:
    """Tokenizes texts and lays them out as rows, in order; counts them on the way.

    Source: google-research/bert@eedf571 extract_features.py, read_examples and
        convert_examples_to_features.
    """
    for line in lines:
        line = line.strip()
        pair = re.fullmatch(r"(.*) \|\|\| (.*)", line)
        texts = (pair[1], pair[2]) if pair else (line, "")
        yield from rows_of(*texts, tokenizer, flags, counts)


def rows_of(
    text: str, pair: str, tokenizer: Tokenizer, flags: LayoutFlags, counts: Counts
) -> Iterator[TextRow]:
    """The rows of a text, or the row of a pair unless its second text is empty."""
    ids, pair_ids = tokenizer.encode(text), tokenizer.encode(pair) if pair else []
    counts.texts += 1
    if pair_ids:
        rows = [_pair_row(ids, pair_ids, tokenizer.vocabulary, flags, counts)]
    else:
        rows = _text_rows(ids, tokenizer.vocabulary, flags, counts)
    for row in rows:
        counts.tokens += row.kept.stop - row.kept.start
        yield row


def rows_of_texts(
    texts: Iterable[Text], tokenizer: Tokenizer, flags: LayoutFlags, prompt: str = ""
) -> Iterator[TextRow]:
    """The rows of texts and pairs of texts from Python, after a prompt."""
    counts = Counts()
    for number, text in enumerate(texts):
        first, second = arguments.parts(text, number)
        yield from rows_of(prompt + first, second or "", tokenizer, flags, counts)


def _pair_row(a_ids, b_ids, vocabulary, flags: LayoutFlags, counts):
    room = flags.max_seq_length - vocabulary.num_special_tokens
    counts.cut += len(a_ids) + len(b_ids) > room
    (a_length,), (b_length,) = packing.truncated_lengths(
        np.array([len(a_ids)]), np.array([len(b_ids)]), room
    )
    ids, segments = packing.join(vocabulary, a_ids[:a_length], b_ids[:b_length])
    return TextRow(ids, segments, slice(0, len(ids)), True)


def _text_rows(ids, vocabulary, flags: LayoutFlags, counts) -> Iterator[TextRow]:
    room = flags.max_seq_length - 2
    if len(ids) > room and not flags.doc_stride:
        counts.cut += 1
        ids = ids[:room]
    counts.windowed += len(ids) > room
    last = max(len(ids) - room, 0)  # where the last window begins; it is a full one
    starts = [*range(0, last, flags.doc_stride or room), last]
    first = 0
    for start, following in itertools.zip_longest(starts, starts[1:]):
        is_last = following is None
        window = ids[start : start + room]
        # Two windows share their overlap: each gets the half farther from its own end.
        stop = len(ids) if is_last else (following + start + room + 1) // 2
        begin = len(vocabulary.head)
        end = stop - start + begin
        kept = slice(
            first - start + begin if start else 0,
            end + len(vocabulary.tail) if is_last else end,
        )
        yield TextRow(*packing.join(vocabulary, window), kept, is_last)
        first = stop


# --- Rows to features ----------------------------------------------------------------


class Mix(NamedTuple):
    """A weighted sum of embeddings and layers, as ELMo's.

    Attributes:
        weights: before a softmax; equal ones if there are none.
        scale: what the sum is multiplied by.
    """

    weights: Sequence[float] = ()
    scale: float = 1.0

    def of(self, outputs: list):
        """Tensors [b, s, h], one for each weight -> [b, s, h]"""
        weights = self.weights or [0.0] * len(outputs)
        weights = keras.ops.convert_to_tensor(weights, outputs[0].dtype)
        return self.scale * keras.ops.tensordot(
            keras.ops.softmax(weights), keras.ops.stack(outputs), 1
        )


def check_pooling(pooling: str, config: EncoderConfig) -> None:
    """Refuses the vector of [CLS] of a model in which it says nothing about a text."""
    if pooling == "cls":
        unseeing = ""
        if config.attention_direction in ("left_to_right", "none"):
            unseeing = "[CLS] sees"
        elif "directions" in config.capabilities:
            unseeing = "half of the vector of [CLS] has seen"
        if unseeing:
            raise UserError(
                f"{setting('pooling', 'cls')}: {unseeing} no other token, so it is the "
                f"same for every text; use {setting('pooling', 'mean')}"
            )


def check_layer(layer: int, config: EncoderConfig) -> None:
    """Refuses the number of a layer that the model does not have."""
    number = config.num_hidden_layers
    if not -number <= layer < number:
        raise UserError(
            f"layer={layer}: the model has {number}, from 0 to {number - 1}, or from "
            "-1, the last, down"
        )


class Extractor(abc.ABC):
    """An encoder, and which of its outputs to return.

    Args:
        model: the encoder.
        layers: which layers' outputs to return; see `Options.layers`.
        pooling: see `Options`.
        mix: which weighted sum the layer MIX is.
        cls_last: whether [CLS] is the last token of a row.
    Attributes:
        replicas: on how many devices it computes.
    """

    replicas = 1

    def __init__(
        self,
        model: Encoder,
        layers: list[int | str],
        pooling: str,
        mix: Mix,
        cls_last: bool,
    ):
        self.model, self.config = model, model.config
        self.layers, self.pooling, self.mix = layers, pooling, mix
        self.cls_last = cls_last
        self.token_bytes = len(layers) * self.config.hidden_size * np.float32().nbytes

    @abc.abstractmethod
    def __call__(self, batch: dict[str, np.ndarray]) -> np.ndarray:
        """Features of a batch.

        Args:
            batch: input_ids, input_mask, segment_ids, kept: int32 [rows, s]; rows are as
                many as `num_rows` returned.
        Returns:
            float32 [layers, rows, s, h]; pooled, [layers, rows, h]: for "mean" the sum
            over kept positions, for "cls" that of [CLS].
        """

    def num_rows(self, number: int, batch_size: int) -> int:
        """To how many rows a batch of this many is padded; a full one has batch_size."""
        del batch_size
        return -(-number // self.replicas) * self.replicas

    def _features(self, batch):
        """What `__call__` returns, as a tensor."""
        features = keras.ops.stack(self._choose_layers(batch))  # [l, b, s, h]
        if self.pooling == "cls" and self.cls_last:
            mask = batch["input_mask"]
            return keras.ops.stack(
                [last_token(x, mask) for x in keras.ops.unstack(features)]
            )
        if self.pooling == "cls":
            return features[:, :, 0]
        if self.pooling in _OF_WHOLE_ROWS:
            mask = batch["input_mask"]
            return keras.ops.stack(
                [
                    pool_tokens(self.pooling, x, mask)
                    for x in keras.ops.unstack(features)
                ]
            )
        if self.pooling == "mean":
            kept = keras.ops.cast(batch["kept"], features.dtype)
            return keras.ops.einsum("lbsh,bs->lbh", features, kept)
        return features

    def _choose_layers(self, batch):
        encoded = self.model(batch, return_all=True)
        outputs = encoded["layer_outputs"]
        if self.layers == [OUTPUT]:
            return [self.model.token_vectors(encoded)]
        if EMBEDDINGS not in self.layers and MIX not in self.layers:
            return [outputs[layer] for layer in self.layers]
        all_outputs = [encoded["embedding_output"], *outputs]
        named = {
            EMBEDDINGS: lambda: all_outputs[0],
            MIX: lambda: self.mix.of(all_outputs),
        }
        return [
            named[layer]() if layer in named else outputs[layer]
            for layer in self.layers
        ]


class FeatureExtractor(Extractor):
    """On the devices of a strategy of TensorFlow.

    Args:
        strategy: see `distribution.make`.
        config: the architecture.
        model: the encoder; by default a new one.
    """

    def __init__(
        self,
        strategy,
        config: EncoderConfig,
        layers: list[int | str],
        pooling: str,
        mix: Mix = Mix(),  # noqa: B008  immutable
        cls_last: bool = False,
        model: Encoder | None = None,
    ):
        self.strategy, self.replicas = strategy, strategy.num_replicas_in_sync
        with strategy.scope():
            model = model or make_encoder(config)
        super().__init__(model, layers, pooling, mix, cls_last)
        # One graph for each length, of any number of rows; there are few lengths.
        self._compiled = functools.cache(self._compile)

    def __call__(self, batch):
        compiled = self._compiled(batch["input_ids"].shape[1])
        outputs = compiled(self._shares(batch))
        outputs = self.strategy.experimental_local_results(outputs)
        return np.concatenate([output.numpy() for output in outputs], axis=1)

    def _shares(self, batch):
        """The rows of each replica."""

        def share(context):
            index = context.replica_id_in_sync_group
            return {
                k: tf.cast(np.split(v, self.replicas)[index], tf.int32)
                for k, v in batch.items()
            }

        return self.strategy.experimental_distribute_values_from_function(share)

    def _compile(self, length):
        """Maps `_shares` of rows of this length to their features.

        It is concrete, because TensorFlow warns of a function that takes many shapes.
        """
        one, two = (self._shares(self._empty(n, length)) for n in (1, 2))
        shares = tf.nest.map_structure(_spec_of_both, one, two)
        compiled = tf.function(self._of_replicas, autograph=False)
        return compiled.get_concrete_function(shares)

    def _empty(self, number, length):
        return {k: np.zeros((number * self.replicas, length), np.int32) for k in _BATCH}

    def _of_replicas(self, shares):
        return self.strategy.run(self._features, args=(shares,))


def _spec_of_both(value, other):
    """The type of tensors, or of those of all replicas, without what differs."""
    spec = tf.type_spec_from_value(value)
    return spec.most_specific_common_supertype([tf.type_spec_from_value(other)])


class JaxExtractor(Extractor):
    """Where Keras runs on JAX, which compiles each shape of a batch."""

    def __init__(self, *arguments):
        super().__init__(*arguments)
        self._compiled = jax.jit(self._of_weights)

    def __call__(self, batch):
        weights = [variable.value for variable in self.model.variables]
        return np.asarray(self._compiled(weights, batch))

    def num_rows(self, number, batch_size):
        # So that there are few shapes.
        return min(1 << (number - 1).bit_length(), batch_size)

    def _of_weights(self, weights, batch):
        with keras.StatelessScope(zip(self.model.variables, weights, strict=True)):
            return self._features(batch)


def make_extractor(
    model: Encoder, layers: list[int], pooling: str, *, cls_last: bool
) -> Extractor:
    """The one of Keras's backend; see `Extractor`."""
    if backend.NAME == "jax":
        return JaxExtractor(model, layers, pooling, Mix(), cls_last)
    strategy = tf.distribute.get_strategy()
    return FeatureExtractor(
        strategy, model.config, layers, pooling, cls_last=cls_last, model=model
    )


def encode(
    rows: Iterator[TextRow],
    encoder: Extractor,
    max_seq_length: int,
    batch_size: int,
    pad_id: int = 0,
) -> Iterator[tuple[TextRow, np.ndarray]]:
    """Features of rows, in order; rows of similar length share a batch.

    Yields:
        a row and its features: float32 [layers, kept, h]; pooled, [layers, h] as
        `Extractor` returns them.
    """
    while some := _take(rows, encoder, batch_size):
        order = sorted(range(len(some)), key=lambda i: len(some[i].input_ids))
        features = [None] * len(some)
        for start in range(0, len(order), batch_size):
            chosen = order[start : start + batch_size]
            batch = _pad(
                [some[i] for i in chosen], encoder, batch_size, max_seq_length, pad_id
            )
            number, length = batch["input_ids"].shape
            capacity.check_batch(
                setting("batch_size", batch_size),
                number // encoder.replicas,
                length,
                encoder.config,
            )
            values = encoder(batch)
            if not np.isfinite(values).all():
                raise UserError(
                    "the features are not finite; the checkpoint is damaged or from a run "
                    "that diverged, so use another one"
                )
            for position, i in enumerate(chosen):
                features[i] = values[:, position]
                if encoder.pooling == "none":
                    # A copy, so that the batch's padding is not kept in memory.
                    features[i] = features[i][:, some[i].kept].copy()
        yield from zip(some, features, strict=True)


def _take(rows, encoder, batch_size):
    """The next rows, to be sorted together."""
    some, waiting = [], 0
    for batch in _batch(rows, batch_size):
        some += batch
        if encoder.pooling == "none":
            waiting += encoder.token_bytes * sum(len(row.input_ids) for row in batch)
        if len(some) >= _BATCHES_SORTED * batch_size or waiting >= _BYTES_WAITING:
            break
    return some


def _batch(rows, size):
    while some := list(itertools.islice(rows, size)):
        yield some


def _pad(rows, encoder, batch_size, max_seq_length, pad_id):
    """Pads rows to one of a few lengths, and their number to what the encoder takes."""
    longest = max(len(row.input_ids) for row in rows)
    length = next(n for n in static_lengths(max_seq_length) if n >= longest)
    shape = (encoder.num_rows(len(rows), batch_size), length)
    batch = {name: np.zeros(shape, np.int32) for name in _BATCH}
    batch["input_ids"] += pad_id
    for index, row in enumerate(rows):
        tokens = slice(len(row.input_ids))
        batch["input_ids"][index, tokens] = row.input_ids
        batch["segment_ids"][index, tokens] = row.segment_ids
        batch["input_mask"][index, tokens] = 1
        batch["kept"][index, row.kept] = 1
    return batch


def pool(
    encoded: Iterable[tuple[TextRow, np.ndarray]], pooling: str
) -> Iterator[tuple[TextRow, np.ndarray]]:
    """One vector for each text and layer: float32 [layers, h], with the text's last row."""
    total, weight = 0.0, 0
    for row, values in encoded:
        total = total + values
        weight += row.kept.stop - row.kept.start if pooling == "mean" else 1
        if row.ends_text:
            yield row, total / weight
            total, weight = 0.0, 0


def vectors_of(
    rows: Iterator[TextRow],
    encoder: Extractor,
    max_seq_length: int,
    batch_size: int,
    pad_id: int,
) -> np.ndarray:
    """float32 [texts, h]: one vector of each text, of the encoder's first layer."""
    encoded = encode(rows, encoder, max_seq_length, batch_size, pad_id)
    vectors = [values[0] for _, values in pool(encoded, encoder.pooling)]
    return np.array(vectors, np.float32).reshape(-1, encoder.model.hidden_size)
