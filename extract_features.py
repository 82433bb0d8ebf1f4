"""Extracts vectors from an encoder: one for each token, or one for each text.

    python extract_features.py --input_file=input.txt --output_file=output.jsonl \\
        --vocab_file=$BERT_BASE_DIR/vocab.txt \\
        --bert_config_file=$BERT_BASE_DIR/bert_config.json \\
        --init_checkpoint=$BERT_BASE_DIR/bert_model.ckpt --layers=-1,-2,-3,-4

Each input line is a text, or a pair written as `A ||| B`. --pooling=mean gives one vector
per text. --output_format=hdf5 takes less than half the space of JSON lines, and less time.
Memory does not grow with the number of texts.

An HDF5 file holds a float32 dataset per layer, with names such as layer_-1. With pooling,
it has one row per text. Without pooling, it has one row per token, and the file also holds
token_ids, vocabulary (tokens by id) and offsets: text i has rows offsets[i] to
offsets[i + 1].
"""

import contextlib
import dataclasses
import functools
import itertools
import json
import os
import re
import sys
from collections.abc import Iterable, Iterator
from typing import NamedTuple

import h5py
import numpy as np

import options
import training  # noqa: F401  TensorFlow before Keras, so that it is quiet
from modeling.encoders.architectures import make_encoder
from modeling.encoders.config import EncoderConfig
from text.errors import UserError
from text.files import inputs, local
from text.instances import packing
from text.progress import Progress
from text.records.rows import static_lengths
from text.tokenizers.vocabulary import Vocabulary
from text.tokenizers.wordpiece import Tokenizer, TokenizerOptions
from training import checkpoint, distribution, run

# isort: split
import tensorflow as tf

# Rows are sorted by length among so many batches, or as many as so many bytes of features
# come from; features wait until those of the rows before them are there.
_BATCHES_SORTED = 64
_BYTES_WAITING = 1 << 28
_HDF5_CHUNK = 1 << 17  # bytes
_STANDARD_OUTPUT = "-"


@dataclasses.dataclass(frozen=True)
class Options(TokenizerOptions):
    """The release's flags, then ours."""

    input_file: str = options.field(
        help="One text per line, UTF-8, plain or .gz; - reads standard input."
    )
    output_file: str = options.field(
        help="Where to write the features; - is standard output, for JSON lines."
    )
    init_checkpoint: str = options.field(
        help="The weights: a checkpoint prefix, a directory, or a Hugging Face model."
    )
    vocab_file: str | None = options.field(
        None, help="The vocabulary; by default, vocab.txt next to the weights."
    )
    bert_config_file: str | None = options.field(
        None,
        help="The architecture; by default, bert_config.json next to the weights, or the "
        "config.json of a Hugging Face model.",
    )
    layers: list[int] | None = options.field(
        None,
        help="Layers to write: 0 is the first, -1 the last. By default -1,-2,-3,-4, and "
        "-1 with pooling.",
    )
    max_seq_length: int = options.field(
        128, help="Maximum number of tokens per row, including special tokens."
    )
    batch_size: int = options.field(32, help="Rows per batch, over all replicas.")
    use_tpu: bool = options.field(False, help="The same as --distribution=tpu.")
    master: str | None = options.field(None, help="The TPU's address.")
    num_tpu_cores: int = options.field(
        8, help="Has no effect: the TPU reports its number of cores."
    )
    use_one_hot_embeddings: bool = options.field(
        False, help="Has no effect: lookups are fast on every device."
    )

    output_format: str = options.field(
        "json", choices=("json", "hdf5"), help="The release's JSON lines, or HDF5."
    )
    pooling: str = options.field(
        "none",
        choices=("none", "mean", "cls"),
        help="none: a vector per token. mean: their mean, including [CLS] and [SEP]. cls: "
        "the vector of [CLS]; over windows, their mean.",
    )
    doc_stride: int = options.field(
        0,
        help="Read longer texts in windows that begin this many tokens apart; a token "
        "gets its features from the window in which it is farthest from an end. 0 cuts "
        "longer texts off; pairs are always cut off.",
    )
    distribution: str = options.field(
        "one",
        choices=("one", "mirrored", "tpu"),
        help="one device; mirrored: all GPUs of this host; tpu.",
    )

    def __post_init__(self):
        if self.max_seq_length < packing.NUM_SPECIAL_TOKENS:
            raise UserError(
                f"--max_seq_length={self.max_seq_length}: must be at least "
                f"{packing.NUM_SPECIAL_TOKENS}, [CLS] and two [SEP]"
            )
        if self.batch_size < 1:
            raise UserError(f"--batch_size={self.batch_size}: must be at least 1")
        if not 0 <= self.doc_stride <= self.max_seq_length - 2:
            raise UserError(
                f"--doc_stride={self.doc_stride}: must be from 1 to "
                f"{self.max_seq_length - 2}, the tokens of a window (--max_seq_length "
                "less [CLS] and [SEP]), so that none is left out; 0: no windows"
            )

    @property
    def chosen_layers(self) -> list[int]:
        if self.layers is not None:
            return self.layers
        return [-1, -2, -3, -4] if self.pooling == "none" else [-1]


# --- Texts to rows -------------------------------------------------------------------


class Row(NamedTuple):
    """One input of the encoder: a text, a pair, or a window of a text.

    Attributes:
        input_ids, segment_ids: lists of int, unpadded.
        kept: the positions whose features are the text's; windows overlap.
        ends_text: whether the text has no further row.
    """

    input_ids: list[int]
    segment_ids: list[int]
    kept: slice
    ends_text: bool


@dataclasses.dataclass
class Counts:
    """What is said of the texts in the end."""

    texts: int = 0
    tokens: int = 0
    cut: int = 0
    windowed: int = 0


def make_rows(
    lines: Iterable[str], tokenizer: Tokenizer, given: Options, counts: Counts
) -> Iterator[Row]:
    """Tokenizes texts and lays them out, in their order; counts them on the way.

    Source: google-research/bert@eedf571 extract_features.py, read_examples and
        convert_examples_to_features.
    """
    for line in lines:
        line = line.strip()
        pair = re.fullmatch(r"(.*) \|\|\| (.*)", line)
        ids = tokenizer.encode(pair[1] if pair else line)
        pair_ids = tokenizer.encode(pair[2]) if pair else []
        counts.texts += 1
        if pair_ids:
            rows = [_pair_row(ids, pair_ids, tokenizer.vocabulary, given, counts)]
        else:
            rows = _text_rows(ids, tokenizer.vocabulary, given, counts)
        for row in rows:
            counts.tokens += row.kept.stop - row.kept.start
            yield row


def _pair_row(a_ids, b_ids, vocabulary, given, counts):
    room = given.max_seq_length - packing.NUM_SPECIAL_TOKENS
    counts.cut += len(a_ids) + len(b_ids) > room
    (a_length,), (b_length,) = packing.truncated_lengths(
        np.array([len(a_ids)]), np.array([len(b_ids)]), room
    )
    a_side = [vocabulary.cls_id, *a_ids[:a_length], vocabulary.sep_id]
    b_side = [*b_ids[:b_length], vocabulary.sep_id]
    ids = a_side + b_side
    return Row(ids, [0] * len(a_side) + [1] * len(b_side), slice(0, len(ids)), True)


def _text_rows(ids, vocabulary, given, counts) -> Iterator[Row]:
    room = given.max_seq_length - 2
    if len(ids) > room and not given.doc_stride:
        counts.cut += 1
        ids = ids[:room]
    counts.windowed += len(ids) > room
    last = max(len(ids) - room, 0)  # where the last window begins; it is a whole one
    starts = [*range(0, last, given.doc_stride or room), last]
    first = 0
    for start, following in itertools.zip_longest(starts, starts[1:]):
        is_last = following is None
        window = ids[start : start + room]
        # Two windows share what both hold: each has the half that lies deeper in it.
        stop = len(ids) if is_last else (following + start + room + 1) // 2
        kept = slice(first - start + (start > 0), stop - start + 1 + is_last)
        row_ids = [vocabulary.cls_id, *window, vocabulary.sep_id]
        yield Row(row_ids, [0] * len(row_ids), kept, is_last)
        first = stop


# --- Rows to features ----------------------------------------------------------------


class Encoder:
    """The encoder on the devices of a strategy.

    Args:
        strategy: see `distribution.make`.
        config: the architecture.
        layers: which layers' outputs are wanted; as `Options.layers`.
        pooling: see `Options`.
    """

    def __init__(
        self, strategy, config: EncoderConfig, layers: list[int], pooling: str
    ):
        self.strategy = strategy
        self.layers = layers
        self.pooling = pooling
        self.token_bytes = len(layers) * config.hidden_size * np.float32().nbytes
        with strategy.scope():
            self.model = make_encoder(config)
        # One function for each shape of a batch; there are few.
        self._compiled = functools.cache(lambda shape: tf.function(self._of_replicas))

    def __call__(self, batch: dict[str, np.ndarray]) -> np.ndarray:
        """Features of a batch.

        Args:
            batch: input_ids, input_mask, segment_ids, kept: int32 [rows, s]; rows are a
                multiple of the replicas.
        Returns:
            float32 [layers, rows, s, h]; pooled, [layers, rows, h]: for "mean" the sum
            over kept positions, for "cls" the first position's.
        """
        replicas = self.strategy.num_replicas_in_sync

        def share(context):
            index = context.replica_id_in_sync_group
            return {
                k: tf.constant(np.split(v, replicas)[index]) for k, v in batch.items()
            }

        shares = self.strategy.experimental_distribute_values_from_function(share)
        outputs = self._compiled(batch["input_ids"].shape)(shares)
        outputs = self.strategy.experimental_local_results(outputs)
        return np.concatenate([output.numpy() for output in outputs], axis=1)

    def _of_replicas(self, shares):
        return self.strategy.run(self._of_one_replica, args=(shares,))

    def _of_one_replica(self, batch):
        outputs = self.model(batch, return_all=True)["layer_outputs"]
        features = tf.stack([outputs[layer] for layer in self.layers])  # [l, b, s, h]
        if self.pooling == "cls":
            return features[:, :, 0]
        if self.pooling == "mean":
            kept = tf.cast(batch["kept"], features.dtype)
            return tf.einsum("lbsh,bs->lbh", features, kept)
        return features


def encode(
    rows: Iterator[Row], encoder: Encoder, max_seq_length: int, batch_size: int
) -> Iterator[tuple[Row, np.ndarray]]:
    """Features of rows, in their order; rows of like length share a batch.

    Yields:
        a row and its features: float32 [layers, kept, h]; pooled, [layers, h] as
        `Encoder` has them.
    """
    while some := _take(rows, encoder, batch_size):
        order = sorted(range(len(some)), key=lambda i: len(some[i].input_ids))
        features = [None] * len(some)
        for start in range(0, len(order), batch_size):
            chosen = order[start : start + batch_size]
            batch = _pad([some[i] for i in chosen], encoder, max_seq_length)
            values = encoder(batch)
            if not np.isfinite(values).all():
                raise UserError(
                    "the features are not finite; the checkpoint is of a run that "
                    "diverged, or damaged, so use another one"
                )
            for position, i in enumerate(chosen):
                features[i] = values[:, position]
                if encoder.pooling == "none":
                    # A copy, so that the padding of the batch need not wait as well.
                    features[i] = features[i][:, some[i].kept].copy()
        yield from zip(some, features, strict=True)


def _take(rows, encoder, batch_size):
    """The next rows, which are sorted among themselves."""
    some, waiting = [], 0
    for batch in _batched(rows, batch_size):
        some += batch
        if encoder.pooling == "none":
            waiting += encoder.token_bytes * sum(len(row.input_ids) for row in batch)
        if len(some) >= _BATCHES_SORTED * batch_size or waiting >= _BYTES_WAITING:
            break
    return some


def _batched(rows, size):
    while some := list(itertools.islice(rows, size)):
        yield some


def _pad(rows, encoder, max_seq_length):
    """Rows as arrays of one of a few lengths, as many as the replicas can share."""
    longest = max(len(row.input_ids) for row in rows)
    length = next(n for n in static_lengths(max_seq_length) if n >= longest)
    replicas = encoder.strategy.num_replicas_in_sync
    shape = (-(-len(rows) // replicas) * replicas, length)
    names = ("input_ids", "input_mask", "segment_ids", "kept")
    batch = {name: np.zeros(shape, np.int32) for name in names}
    for index, row in enumerate(rows):
        tokens = slice(len(row.input_ids))
        batch["input_ids"][index, tokens] = row.input_ids
        batch["segment_ids"][index, tokens] = row.segment_ids
        batch["input_mask"][index, tokens] = 1
        batch["kept"][index, row.kept] = 1
    return batch


def pool(
    encoded: Iterable[tuple[Row, np.ndarray]], pooling: str
) -> Iterator[tuple[Row, np.ndarray]]:
    """One vector for each text and layer: float32 [layers, h], with the text's last row."""
    total, weight = 0.0, 0
    for row, values in encoded:
        total = total + values
        weight += row.kept.stop - row.kept.start if pooling == "mean" else 1
        if row.ends_text:
            yield row, total / weight
            total, weight = 0.0, 0


# --- Features to a file --------------------------------------------------------------


class JsonLines:
    """The release's JSON lines; pooled, a line has "layers" in the place of "features".

    Source: google-research/bert@eedf571 extract_features.py, main.
    """

    mode = "w"

    def __init__(self, file, layers: list[int], vocabulary: Vocabulary):
        self._file = file
        self._layers = layers
        self._tokens = vocabulary.tokens
        self._texts = 0
        self._begun = False

    def write_tokens(self, row: Row, values: np.ndarray) -> None:
        """Args: values: float32 [layers, kept, h]."""
        if not self._begun:
            self._file.write(f'{{"linex_index": {self._texts}, "features": [')
        rounded = _rounded(values)
        features = [
            {
                "token": self._tokens[id],
                "layers": self._named([layer[i] for layer in rounded]),
            }
            for i, id in enumerate(row.input_ids[row.kept])
        ]
        comma = ", " if self._begun else ""
        self._file.write(comma + json.dumps(features)[1:-1])
        self._begun = not row.ends_text
        if row.ends_text:
            self._file.write("]}\n")
            self._texts += 1

    def write_text(self, values: np.ndarray) -> None:
        """Args: values: float32 [layers, h]."""
        layers = self._named(_rounded(values))
        line = json.dumps({"linex_index": self._texts, "layers": layers})
        self._file.write(line + "\n")
        self._texts += 1

    def _named(self, vectors):
        return [
            {"index": index, "values": values}
            for index, values in zip(self._layers, vectors, strict=True)
        ]

    def close(self) -> None:
        pass


def _rounded(values):
    """As in the release, six decimals; in float64, or more digits would come out."""
    return np.round(values.astype(np.float64), 6).tolist()


class Hdf5:
    """The datasets that the head of this file describes."""

    mode = "w+b"

    def __init__(self, file, layers: list[int], vocabulary: Vocabulary):
        self._file = h5py.File(file, "w")
        self._layers = layers
        self._vocabulary = vocabulary
        self._columns = {}
        self._rows = 0

    def write_tokens(self, row: Row, values: np.ndarray) -> None:
        if not self._columns:
            self._file["vocabulary"] = self._vocabulary.tokens
            self._append("offsets", np.zeros(1, np.int64))
        self._append("token_ids", np.array(row.input_ids[row.kept], np.int32))
        for layer, vectors in zip(self._layers, values, strict=True):
            self._append(f"layer_{layer}", vectors)
        self._rows += values.shape[1]
        if row.ends_text:
            self._append("offsets", np.array([self._rows]))

    def write_text(self, values: np.ndarray) -> None:
        for layer, vector in zip(self._layers, values, strict=True):
            self._append(f"layer_{layer}", vector[None])

    def _append(self, name, rows):
        if name not in self._columns:
            self._columns[name] = _Column(self._file, name, rows)
        self._columns[name].append(rows)

    def close(self) -> None:
        for column in self._columns.values():
            column.flush()
        self._file.close()


class _Column:
    """A dataset that grows by whole chunks."""

    def __init__(self, file, name, rows):
        row_bytes = rows.nbytes // len(rows)
        self._chunk = max(1, _HDF5_CHUNK // row_bytes)
        shape = rows.shape[1:]
        self._dataset = file.create_dataset(
            name,
            (0, *shape),
            rows.dtype,
            maxshape=(None, *shape),
            chunks=(self._chunk, *shape),
        )
        self._waiting, self._number = [], 0

    def append(self, rows) -> None:
        self._waiting.append(rows)
        self._number += len(rows)
        if self._number >= self._chunk:
            self.flush()

    def flush(self) -> None:
        if self._waiting:
            begin = len(self._dataset)
            self._dataset.resize(begin + self._number, axis=0)
            self._dataset[begin:] = np.concatenate(self._waiting)
            self._waiting, self._number = [], 0


WRITERS = {"json": JsonLines, "hdf5": Hdf5}


# --- The run -------------------------------------------------------------------------


def main(given: Options) -> None:
    """Runs what the flags ask for.

    Raises:
        UserError: flags, texts, vocabulary and weights do not fit each other.
    """
    _check_paths(given)
    # Before anything that makes TensorFlow look for devices.
    strategy = distribution.make(
        "tpu" if given.use_tpu else given.distribution, tpu=given.master
    )
    run.check_division("batch_size", given.batch_size, strategy.num_replicas_in_sync)
    prefix = checkpoint.resolve(given.init_checkpoint)
    beside = checkpoint.folder_of(prefix) or "."
    config = checkpoint.read_config(given.bert_config_file or beside)
    _check_sizes(given, config)
    tokenizer = _tokenizer(given, prefix, config)
    # A line that cannot be read is found now, not in an hour.
    is_file = given.input_file != inputs.STANDARD_INPUT
    total = sum(1 for _ in inputs.lines(given.input_file)) if is_file else None
    encoder = Encoder(strategy, config, given.chosen_layers, given.pooling)
    weights = {v.path: v for v in encoder.model.variables}
    _say(checkpoint.load(weights, prefix, encoder.model.required, encoder.model.scope))

    lines = inputs.lines(given.input_file)
    counts = Counts()
    rows = make_rows(lines, tokenizer, given, counts)
    encoded = encode(rows, encoder, given.max_seq_length, given.batch_size)
    progress = Progress("encoding", total, "texts")
    mode = WRITERS[given.output_format].mode
    with _output(given.output_file, mode) as file:
        with progress:
            _write(given, file, encoded, tokenizer.vocabulary, progress)
        if not counts.texts:
            raise UserError(f"{given.input_file}: holds no text; write one a line")
    _report(given, counts)


def _output(path, mode):
    if path == _STANDARD_OUTPUT:
        return contextlib.nullcontext(sys.stdout)
    local.remove_temporaries(os.path.realpath(path))
    return local.replacing(path, mode)


def _write(given, file, encoded, vocabulary, progress):
    writer = WRITERS[given.output_format](file, given.chosen_layers, vocabulary)
    if given.pooling != "none":
        encoded = pool(encoded, given.pooling)
    with contextlib.closing(writer):
        for row, values in encoded:
            if given.pooling == "none":
                writer.write_tokens(row, values)
            else:
                writer.write_text(values)
            if row.ends_text:
                progress.advance(1)


def _report(given, counts):
    _say(
        f"{given.output_file}: features of {counts.texts} texts, "
        f"{counts.tokens} tokens with [CLS] and [SEP]"
    )
    if counts.windowed:
        _say(f"{counts.windowed} texts were longer than a row and read in windows")
    if counts.cut:
        hint = " (pairs have no windows)" if given.doc_stride else ""
        remedy = "" if given.doc_stride else "; --doc_stride reads them in windows"
        _say(
            f"warning: {counts.cut} texts were cut off at "
            f"--max_seq_length={given.max_seq_length}{hint}{remedy}"
        )


def _say(message):
    print(message, file=sys.stderr, flush=True)


# --- What is given -------------------------------------------------------------------


def _check_paths(given):
    """Refuses now what would otherwise fail in the end."""
    read = [path for path in (given.vocab_file, given.bert_config_file) if path]
    if given.input_file != inputs.STANDARD_INPUT:
        found = inputs.expand([given.input_file])
        if found != [given.input_file]:
            raise UserError(f"{given.input_file}: matches {len(found)} files; name one")
        read += found
    path = given.output_file
    if os.path.isdir(path):
        raise UserError(f"{path}: is a folder; name a file in it")
    is_stream = path == _STANDARD_OUTPUT or local.is_stream(path)
    if is_stream and given.output_format == "hdf5":
        raise UserError(f"{path}: HDF5 is written to files alone; name one")
    if path == _STANDARD_OUTPUT:
        return
    local.refuse_inputs([path], read)
    folder = os.path.dirname(path) or "."
    if not os.path.isdir(folder):
        raise UserError(
            f"{path}: there is no folder {folder}; make it, or choose another "
            "--output_file"
        )


def _check_sizes(given, config):
    if given.max_seq_length > config.max_position_embeddings:
        raise UserError(
            f"--max_seq_length={given.max_seq_length}: the model has only "
            f"max_position_embeddings={config.max_position_embeddings}"
        )
    number = config.num_hidden_layers
    layers = given.chosen_layers
    for layer in layers:
        if not -number <= layer < number:
            raise UserError(
                f"--layers={','.join(map(str, layers))}: there is no layer {layer}; the "
                f"model has {number}, from 0 to {number - 1}, or from -1 back to -{number}"
            )
    if len(set(layers)) < len(layers) or not layers:
        raise UserError(
            f"--layers={','.join(map(str, layers))}: give layers, and each once"
        )


def _tokenizer(given, prefix, config):
    path = given.vocab_file or os.path.join(checkpoint.folder_of(prefix), "vocab.txt")
    if not os.path.isfile(path):
        raise UserError(f"{path}: no such file; give the model's --vocab_file")
    tokenizer = run.make_tokenizer(dataclasses.replace(given, vocab_file=path))
    if len(tokenizer.vocabulary) > config.vocab_size:
        raise UserError(
            f"{path}: {len(tokenizer.vocabulary)} tokens, but the model has "
            f"vocab_size={config.vocab_size}; another vocabulary?"
        )
    return tokenizer


if __name__ == "__main__":
    options.run(main, Options)
