"""Knows a fine-tuning set as rows in a TFRecord file, any of which is at hand.

Rows stay in the file; memory holds where each begins and how many tokens it has. So a
set is shuffled as a whole, and rows of like length share a batch, which then needs little
padding. Order and batches follow from the seed alone, on every host.
"""

import dataclasses
import itertools
import mmap
import os
import struct
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from text import anywhere, packing, reading, records
from text.errors import UserError

_WRITTEN_TOGETHER = 1024
_PARSED_TOGETHER = 4096
_WINDOW = 64  # batches among which rows are sorted by length
_INPUTS = ("input_ids", "input_mask", "segment_ids")


class Field(NamedTuple):
    """What a task adds to a row; None in the shape stands for the sequence.

    Integers are int64 in the record and int32 in the batch; no negative ones.
    """

    dtype: str = "int64"
    shape: tuple[int | None, ...] = ()


@dataclasses.dataclass(frozen=True)
class Row:
    """One input of the model, unpadded.

    Attributes:
        input_ids, segment_ids: lists of int; one list for each choice where the model
            takes several sequences at once.
        labels: values of the task's fields, unpadded.
        notes: what scoring needs to know of the row; never written.
    """

    input_ids: list
    segment_ids: list
    labels: Mapping[str, object] = dataclasses.field(default_factory=dict)
    notes: object = None


@dataclasses.dataclass(frozen=True)
class Layout:
    """The arrays of a row and their record.

    Attributes:
        max_seq_length: to which sequences are padded in the record.
        num_choices: sequences of one row; 0 where it has one, without an axis for it.
        labels: the task's fields.
    """

    max_seq_length: int
    num_choices: int = 0
    labels: Mapping[str, Field] = dataclasses.field(default_factory=dict)

    @property
    def fields(self) -> dict[str, Field]:
        choices = (self.num_choices,) if self.num_choices else ()
        return {
            **{name: Field("int64", (*choices, None)) for name in _INPUTS},
            **self.labels,
        }

    def shape(self, name: str) -> tuple[int, ...]:
        sizes = self.fields[name].shape
        return tuple(self.max_seq_length if n is None else n for n in sizes)

    @property
    def schema(self) -> tuple[records.Feature, ...]:
        return tuple(
            records.Feature(
                name, field.dtype, int(np.prod(self.shape(name), dtype=int))
            )
            for name, field in self.fields.items()
        )

    def pack(self, rows: list[Row]) -> dict[str, np.ndarray]:
        """Pads rows to arrays [rows, ...].

        Raises:
            ValueError: a row is longer than max_seq_length.
        """
        batch = {
            name: np.zeros((len(rows), *self.shape(name)), field.dtype)
            for name, field in self.fields.items()
        }
        for i, row in enumerate(rows):
            if self.num_choices:
                sequences = zip(row.input_ids, row.segment_ids, strict=True)
            else:
                sequences = [(row.input_ids, row.segment_ids)]
            for j, (ids, segments) in enumerate(sequences):
                if len(ids) > self.max_seq_length:
                    raise ValueError(
                        f"row {i} has {len(ids)} ids, more than {self.max_seq_length=}"
                    )
                at = (i, j) if self.num_choices else (i,)
                batch["input_ids"][(*at, slice(len(ids)))] = ids
                batch["segment_ids"][(*at, slice(len(ids)))] = segments
                batch["input_mask"][(*at, slice(len(ids)))] = 1
            for name, field in self.labels.items():
                if field.shape == (None,):
                    batch[name][i, : len(row.labels[name])] = row.labels[name]
                else:
                    batch[name][i] = row.labels[name]
        return batch


def write(path: str, rows: Iterable[Row], layout: Layout) -> int:
    """Writes rows in their order, as a file that appears when it is whole.

    Returns:
        how many there were.
    Raises:
        UserError: the disk is full or not writable.
    """
    directory, name = os.path.split(path)
    temporary = os.path.join(directory, f"writing-{name}")
    number = 0
    with anywhere.access(path):
        tf.io.gfile.makedirs(directory or ".")
        with tf.io.gfile.GFile(temporary, "wb") as file:
            file.write(b"")  # else there were no file without a row
            for some in _chunks(rows, _WRITTEN_TOGETHER):
                batch = layout.pack(some)
                batch = {name: x.reshape(len(some), -1) for name, x in batch.items()}
                file.write(records.frame(records.encode(batch, layout.schema)))
                number += len(some)
        tf.io.gfile.rename(temporary, path, overwrite=True)
    return number


def _chunks(items, size):
    chunk = []
    for item in items:
        chunk.append(item)
        if len(chunk) == size:
            yield chunk
            chunk = []
    if chunk:
        yield chunk


class Rows:
    """The rows of one file, in batches.

    Args:
        path: what `write` wrote with this layout.
        bucketed: pad a batch to the longest of its rows, out of a few lengths, and let
            rows of like length share one; else to layout.max_seq_length.
    Raises:
        UserError: the file is cut off or holds other rows.
    """

    def __init__(self, path: str, layout: Layout, *, bucketed: bool = True):
        self.path = path
        self.layout = layout
        self._content = _content(path)
        self._starts, self._stops = _spans(path, self._content)
        self.lengths = self._count_tokens()
        longest = layout.max_seq_length
        self._lengths = np.array(
            packing.static_lengths(longest) if bucketed else [longest]
        )
        # Of each row, the shortest of the static lengths that holds it.
        self._buckets = np.searchsorted(self._lengths, self.lengths)

    def __len__(self) -> int:
        return len(self._starts)

    def _records(self, rows) -> list[bytes]:
        return [self._content[self._starts[i] : self._stops[i]] for i in rows]

    def _count_tokens(self):
        """int [rows]: tokens of a row; the longest where it has several sequences."""
        shape = self.layout.shape("input_mask")
        spec = {"input_mask": tf.io.FixedLenFeature(shape, tf.int64)}
        counts = [np.zeros(0, np.int64)]
        for some in _chunks(range(len(self)), _PARSED_TOGETHER):
            try:
                mask = tf.io.parse_example(self._records(some), spec)["input_mask"]
            except tf.errors.InvalidArgumentError as error:
                raise UserError(
                    f"{self.path}: its rows are of another kind; remove it, and it is "
                    "made again"
                ) from error
            longest = mask.numpy().sum(axis=-1).reshape(len(some), -1).max(axis=1)
            counts.append(longest)
        return np.concatenate(counts)

    # --- Which rows share a batch ----------------------------------------------------

    def _shuffled(self, seed: int, start: int, stop: int) -> np.ndarray:
        """Rows `start` to `stop` of an endless sequence of shuffled epochs."""
        parts = []
        for epoch in range(start // len(self), -(-stop // len(self))):
            order = np.random.default_rng((seed, epoch)).permutation(len(self))
            first = epoch * len(self)
            parts.append(order[max(0, start - first) : stop - first])
        return np.concatenate(parts)

    def _batches(self, batch_size, seed, first_batch, num_batches):
        """Yields the rows of each batch.

        Every epoch has every row once, whatever the lengths: rows are exchanged only
        between the batches of a window.
        """
        for begin, end in self._windows(batch_size, num_batches):
            if end <= first_batch:
                continue
            rows = self._shuffled(seed, begin * batch_size, end * batch_size)
            if len(self._lengths) > 1:
                rows = rows[np.argsort(self._buckets[rows], kind="stable")]
            batches = rows.reshape(-1, batch_size)
            if len(self._lengths) > 1:
                # Another key than any epoch's.
                rng = np.random.default_rng((seed, begin, 1))
                batches = batches[rng.permutation(len(batches))]
            yield from batches[max(0, first_batch - begin) :]

    def _windows(self, batch_size, num_batches):
        """Yields where windows of batches begin and end, up to num_batches.

        All rows of a window are of one epoch; a batch with rows of two is one by itself.
        """
        begin = 0
        for epoch in itertools.count(1):
            end = max(begin, epoch * len(self) // batch_size)
            parts = -(-(end - begin) // _WINDOW)
            edges = [begin + (end - begin) * i // parts for i in range(parts)]
            edges.append(end)
            if end * batch_size < epoch * len(self):
                edges.append(end + 1)
            for window in itertools.pairwise(edges):
                if window[0] >= num_batches:
                    return
                yield window[0], min(window[1], num_batches)
            begin = edges[-1]

    def training(
        self,
        batch_size: int,
        *,
        seed: int,
        num_batches: int,
        first_batch: int = 0,
        part: reading.Part = reading.WHOLE,
    ) -> tf.data.Dataset:
        """The batches of a run, epoch after epoch, the same for every division.

        Args:
            batch_size: rows of all hosts together, a multiple of part.replicas.
            num_batches: of the whole run.
            first_batch: how many of them are passed over.
        Returns:
            Dataset of dicts [batch_size / replicas, ...], one for each of this host's
            replicas in turn.
        """

        def batches():
            for rows in self._batches(batch_size, seed, first_batch, num_batches):
                yield rows, np.ones(batch_size, np.float32)

        return self._dataset(batches, batch_size, part)

    def places(
        self, batch_size: int, *, seed: int, num_batches: int, batch: int
    ) -> list[int]:
        """Which rows are in one batch of `training`, from 0."""
        return next(self._batches(batch_size, seed, batch, num_batches)).tolist()

    def in_order(self, batch_size: int) -> np.ndarray:
        """int [batches, batch_size]: rows of each batch of `evaluation`.

        The last batch is filled up with -1.
        """
        order = np.argsort(self._buckets, kind="stable")
        filled = np.full(-(-len(self) // batch_size) * batch_size, -1)
        filled[: len(self)] = order
        return filled.reshape(-1, batch_size)

    def evaluation(
        self, batch_size: int, *, part: reading.Part = reading.WHOLE
    ) -> tf.data.Dataset:
        """Every row once, shortest first; `in_order` says which is where.

        The last batch is filled up with copies of a row for which `is_real_example`
        [batch], else 1.0, is 0.0.
        """

        def batches():
            for rows in self.in_order(batch_size):
                real = rows >= 0
                yield np.where(real, rows, rows[0]), real.astype(np.float32)

        return self._dataset(batches, batch_size, part)

    # --- Batches ---------------------------------------------------------------------

    def _dataset(self, batches, batch_size, part):
        local = part.replicas // part.hosts
        size = batch_size // part.replicas
        mine = slice(part.host * local, (part.host + 1) * local)

        def generate() -> Iterator[tuple]:
            for rows, real in batches():
                length = self._lengths[self._buckets[rows].max()]
                for some in np.split(np.arange(batch_size), part.replicas)[mine]:
                    yield self._records(rows[some]), real[some], length

        signature = (
            tf.TensorSpec([size], tf.string),
            tf.TensorSpec([size], tf.float32),
            tf.TensorSpec([], tf.int32),
        )
        dataset = tf.data.Dataset.from_generator(generate, output_signature=signature)
        parsed = dataset.map(self._parse, num_parallel_calls=tf.data.AUTOTUNE)
        return parsed.with_options(reading.options()).prefetch(tf.data.AUTOTUNE)

    def _parse(self, serialized, real, length):
        fields = self.layout.fields
        spec = {
            name: tf.io.FixedLenFeature(self.layout.shape(name), field.dtype)
            for name, field in fields.items()
        }
        batch = {}
        for name, values in tf.io.parse_example(serialized, spec).items():
            if values.dtype == tf.int64:
                values = tf.cast(values, tf.int32)
            batch[name] = self._cropped(values, fields[name].shape, length)
        return batch | {"is_real_example": real}

    def _cropped(self, values, shape, length):
        """Cuts the padding behind `length` off the sequence's axis."""
        if None not in shape or len(self._lengths) == 1:
            return values
        axis = 1 + shape.index(None)
        return values[(*[slice(None)] * axis, slice(length))]


def _content(path):
    """The bytes of a file: mapped where it is on this machine, else read."""
    with anywhere.access(path):
        if os.path.isfile(path) and os.path.getsize(path):
            with open(path, "rb") as file:
                return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        with tf.io.gfile.GFile(path, "rb") as file:
            return file.read()


def _spans(path, content):
    """Where the record of each row begins and ends."""
    starts, stops, position = [], [], 0
    while position < len(content):
        length = content[position : position + 8]
        size = struct.unpack("<Q", length)[0] if len(length) == 8 else len(content)
        position += 12 + size + 4
        if position > len(content):
            raise UserError(f"{path}: cut off; remove it, and it is made again")
        starts.append(position - 4 - size)
        stops.append(position - 4)
    return np.array(starts, np.int64), np.array(stops, np.int64)
