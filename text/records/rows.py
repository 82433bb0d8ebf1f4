"""Writes a fine-tuning set as rows of a TFRecord file and reads them in any order.

While batches are drawn, memory holds the serialized rows: about 600 bytes per row of 128
tokens. So a set is shuffled as a whole, and rows of similar length share a batch, which
then needs little padding. Order and batches depend only on the seed, on every host. They
come from graph operations, which also run outside this process: on the hosts of a remote
TPU, which read the file themselves.
"""

import contextlib
import dataclasses
import functools
import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from errors import UserError
from files import anywhere
from text.records import encoding, framing, reading
from text.records.schema import Feature

_WRITTEN_TOGETHER = 1024
_PARSED_TOGETHER = 4096
_WINDOW = 64  # batches whose rows are sorted by length together
_REBUILT = "delete it and run the command again, which rebuilds it"
_INPUTS = ("input_ids", "input_mask", "segment_ids")
# Few, because XLA compiles each separately.
LENGTHS = (8, 12, 16, 20, 24, 32, 40, 48, 56, 64)
LENGTHS += (80, 96, 128, 160, 192, 256, 320, 384, 448)


def static_lengths(max_seq_length: int, lengths: Iterable[int] = LENGTHS) -> list[int]:
    """The lengths to which batches are padded, ascending; the last is max_seq_length."""
    return [*(n for n in lengths if n < max_seq_length), max_seq_length]


def cheapest_lengths(
    lengths: Sequence[int], counts: Sequence[int], cost: int
) -> list[int]:
    """Chooses the lengths to pad sequences to where each length in use costs something.

    Every sequence is padded to the shortest chosen length that fits.

    Args:
        lengths: ascending.
        counts: for each of them, how many sequences need it; positive.
        cost: of each chosen length, in tokens.
    Returns:
        Those of `lengths` with the least sum of padded tokens and costs, ascending.
    """
    number = np.cumsum([0, *counts])
    # For the first 0, 1, ... of the lengths: the least sum, and those chosen.
    best = [(0, [])]
    for end, length in enumerate(lengths, 1):
        choices = []
        for begin, (least, chosen) in enumerate(best):
            padded = length * int(number[end] - number[begin])
            choices.append((least + padded + cost, [*chosen, length]))
        best.append(min(choices))
    return best[-1][1]


class Field(NamedTuple):
    """What a task adds to a row; None in the shape is the sequence's length.

    Integers are int64 in the record and int32 in the batch, and never negative.
    """

    dtype: str = "int64"
    shape: tuple[int | None, ...] = ()


@dataclasses.dataclass(frozen=True)
class Row:
    """One input of the model, unpadded.

    Attributes:
        input_ids, segment_ids: lists of int; one list per choice if the model takes several
            sequences at once.
        labels: values of the task's fields, unpadded: arrays may be shorter.
        notes: what scoring needs to know about the row; never written.
        blanks: how many of its tokens are [UNK] because they are spaces.
    """

    input_ids: list
    segment_ids: list
    labels: Mapping[str, object] = dataclasses.field(default_factory=dict)
    notes: object = None
    blanks: int = 0


@dataclasses.dataclass(frozen=True)
class Layout:
    """The arrays of a row and their record.

    Attributes:
        max_seq_length: the length to which sequences are padded in the record.
        num_choices: sequences per row; 0 if there is one, without an axis for it.
        labels: the task's fields.
        pad_id: the id with which sequences are padded; another vocabulary's rows differ
            anyway, so it is not part of their repr.
    """

    max_seq_length: int
    num_choices: int = 0
    labels: Mapping[str, Field] = dataclasses.field(default_factory=dict)
    pad_id: int = dataclasses.field(default=0, repr=False)

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
    def schema(self) -> tuple[Feature, ...]:
        return tuple(
            Feature(name, field.dtype, int(np.prod(self.shape(name), dtype=int)))
            for name, field in self.fields.items()
        )

    def pack(self, rows: list[Row]) -> dict[str, np.ndarray]:
        """Pads rows to arrays [rows, ...]; ValueError if one is longer than
        max_seq_length.
        """
        batch = {
            name: np.zeros((len(rows), *self.shape(name)), field.dtype)
            for name, field in self.fields.items()
        }
        batch["input_ids"] += self.pad_id
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
            for name in self.labels:
                value = row.labels[name]
                # An array may be shorter than its field; a number fills it.
                at = (i, slice(len(value))) if np.ndim(value) else (i,)
                batch[name][at] = value
        return batch


def write(path: str, rows: Iterable[Row], layout: Layout) -> int:
    """Writes rows in order, and returns their number; the file appears when it is
    complete.
    """
    number = 0
    with anywhere.replacing(path) as file:
        file.write(b"")  # otherwise a remote file without rows would not be created
        rows = iter(rows)
        while some := list(itertools.islice(rows, _WRITTEN_TOGETHER)):
            batch = layout.pack(some)
            batch = {name: x.reshape(len(some), -1) for name, x in batch.items()}
            file.write(framing.frame(encoding.encode(batch, layout.schema)))
            number += len(some)
    return number


class Rows:
    """The rows of a file that `write` wrote with this layout, in batches.

    Args:
        lengths: pad a batch to the length of its longest row, rounded up to one of these,
            and let rows of similar length share one; without any, pad to
            layout.max_seq_length.
        tokens_per_length: what each length to which batches are padded costs, in tokens.
            If not 0, batches are the same, but padded to the few of `lengths` that cost
            least; see `cheapest_lengths`.
    """

    def __init__(
        self,
        path: str,
        layout: Layout,
        *,
        lengths: Iterable[int] = LENGTHS,
        tokens_per_length: int = 0,
    ):
        self.path = path
        self.layout = layout
        self._tokens_per_length = tokens_per_length
        self.lengths = self._count_tokens()
        self._lengths = np.array(static_lengths(layout.max_seq_length, lengths))
        # For each row, the shortest of the static lengths that fits it.
        self._buckets = np.searchsorted(self._lengths, self.lengths).astype(np.int16)

    def __len__(self) -> int:
        return len(self.lengths)

    @property
    def longest(self) -> int:
        """The length to which the batch with the longest row is padded."""
        return int(self._lengths[self._buckets.max()])

    def _count_tokens(self):
        """int [rows]: tokens per row; of its longest sequence if it has several."""
        shape = self.layout.shape("input_mask")
        spec = {"input_mask": tf.io.FixedLenFeature(shape, tf.int64)}
        counts = [np.zeros(0, np.int64)]
        serialized = tf.data.TFRecordDataset(self.path).batch(_PARSED_TOGETHER)
        with _reading(self.path):
            for some in serialized.with_options(reading.options()):
                mask = tf.io.parse_example(some, spec)["input_mask"].numpy()
                counts.append(mask.sum(axis=-1).reshape(len(mask), -1).max(axis=1))
        return np.concatenate(counts)

    # --- Which rows share a batch ----------------------------------------------------

    def _batches(self, batch_size, seed, first_batch, num_batches):
        """Yields the rows of each batch.

        Every epoch has every row once, whatever the lengths: rows move only between the
        batches of a window.
        """

        @functools.lru_cache(2)  # a batch may have rows of two epochs
        def order(epoch):
            return np.random.default_rng((seed, epoch)).permutation(len(self))

        def shuffled_rows(start, stop):
            """Rows `start` to `stop` of an endless sequence of shuffled epochs."""
            return np.concatenate(
                [
                    order(i)[max(0, start - i * len(self)) : stop - i * len(self)]
                    for i in range(start // len(self), -(-stop // len(self)))
                ]
            )

        for begin, end in self._windows(batch_size, num_batches):
            if end <= first_batch:
                continue
            rows = shuffled_rows(begin * batch_size, end * batch_size)
            if len(self._lengths) > 1:
                rows = rows[np.argsort(self._buckets[rows], kind="stable")]
            batches = rows.reshape(-1, batch_size)
            if len(self._lengths) > 1:
                # A different key from any epoch's.
                rng = np.random.default_rng((seed, begin, 1))
                batches = batches[rng.permutation(len(batches))]
            yield from batches[max(0, first_batch - begin) :]

    def _windows(self, batch_size, num_batches):
        """Yields where windows of batches begin and end, up to num_batches.

        All rows of a window are from one epoch; a batch with rows of two epochs is its own
        window.
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

        The rows of all batches are computed at once. They take 5 bytes per row, 160 MB for
        a million batches of 32, and three times that during the computation.

        Args:
            batch_size: rows of all hosts together, a multiple of part.replicas.
            num_batches: of the whole run.
            first_batch: how many of them to skip.
        Returns:
            Dataset of dicts [batch_size / replicas, ...], one for each of this host's
            replicas in turn.
        """
        # All batches determine few lengths, so that a resumed run keeps them.
        begin = 0 if self._tokens_per_length else first_batch
        rows = self._of_run(batch_size, seed, num_batches, begin)
        lengths = self._padded_lengths(rows)[first_batch - begin :]
        rows = rows[first_batch - begin :]
        return self._dataset(rows, np.ones(rows.shape, bool), lengths, part)

    def training_lengths(
        self, batch_size: int, *, seed: int, num_batches: int
    ) -> list[int]:
        """The lengths to which the batches of `training` are padded, ascending."""
        rows = self._of_run(batch_size, seed, num_batches)
        return np.unique(self._padded_lengths(rows)).tolist()

    def places(
        self, batch_size: int, *, seed: int, num_batches: int, batch: int
    ) -> list[int]:
        """Which rows are in one batch of `training`, from 0."""
        return next(self._batches(batch_size, seed, batch, num_batches)).tolist()

    def in_order(self, batch_size: int) -> np.ndarray:
        """int32 [batches, batch_size]: rows of each batch of `evaluation`.

        The last batch is filled up with -1.
        """
        order = np.argsort(self._buckets, kind="stable")
        filled = np.full(-(-len(self) // batch_size) * batch_size, -1, np.int32)
        filled[: len(self)] = order
        return filled.reshape(-1, batch_size)

    def evaluation(
        self, batch_size: int, *, part: reading.Part = reading.WHOLE
    ) -> tf.data.Dataset:
        """Every row once, shortest first; `in_order` says which rows are where.

        The last batch is filled up with copies of a row. `is_real_example` [batch] is 0.0
        for these and 1.0 for all others.
        """
        rows = self.in_order(batch_size)
        real = rows >= 0
        rows = np.where(real, rows, rows[:, :1])
        return self._dataset(rows, real, self._padded_lengths(rows), part)

    # --- Batches ---------------------------------------------------------------------

    def _of_run(self, batch_size, seed, num_batches, begin=0):
        """int32 [batches, batch_size]: the rows of each batch of `training` from one on."""
        return np.fromiter(
            self._batches(batch_size, seed, begin, num_batches),
            np.dtype((np.int32, batch_size)),
            num_batches - begin,
        )

    def _padded_lengths(self, rows):
        """int [batches]: the length to which each batch of rows [batches, batch_size] is
        padded.
        """
        needed = self._lengths[self._buckets[rows].max(axis=1, initial=0)]
        if not self._tokens_per_length:
            return needed
        lengths, batches = np.unique(needed, return_counts=True)
        sequences = batches * rows.shape[1] * (self.layout.num_choices or 1)
        chosen = cheapest_lengths(
            lengths.tolist(), sequences.tolist(), self._tokens_per_length
        )
        return np.array(chosen)[np.searchsorted(chosen, needed)]

    @reading.as_written
    def _dataset(self, rows, real, lengths, part):
        """Dataset of rows [batches, batch_size], each batch padded to one of `lengths`;
        rows that are not `real` are filler.
        """
        local = part.replicas // part.hosts
        replicas = slice(part.host * local, (part.host + 1) * local)

        def of_host(x):
            x = x.reshape(len(x), part.replicas, -1)[:, replicas]
            return x.reshape(-1, x.shape[-1])

        elements = of_host(rows), of_host(real), lengths.repeat(local).astype(np.int32)
        content = self._read()
        parsed = tf.data.Dataset.from_tensor_slices(elements).map(
            lambda rows, real, length: self._parse(
                tf.gather(content, rows), tf.cast(real, tf.float32), length
            ),
            num_parallel_calls=tf.data.AUTOTUNE,
        )
        return reading.prefetch(parsed)

    def _read(self):
        """string [rows]: the serialized rows, on the device where a dataset is made."""
        with _reading(self.path):
            batches = tf.data.TFRecordDataset(self.path).batch(len(self) + 1)
            content = batches.take(1).get_single_element()
        if len(content) != len(self):
            raise UserError(
                f"{self.path}: no longer contains the {len(self)} rows of this run; run "
                "the command again when no other command writes there"
            )
        return content

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
            batch[name] = self._crop(values, fields[name].shape, length)
        return batch | {"is_real_example": real}

    def _crop(self, values, shape, length):
        """Cuts the padding after `length` off the sequence's axis."""
        if None not in shape or len(self._lengths) == 1:
            return values
        axis = 1 + shape.index(None)
        return values[(*[slice(None)] * axis, slice(length))]


@contextlib.contextmanager
def _reading(path) -> Iterator[None]:
    """Names a file that turns out to be damaged; TensorFlow verifies all checksums."""
    with anywhere.access(path):
        try:
            yield
        except tf.errors.DataLossError as error:
            raise UserError(f"{path}: is damaged; {_REBUILT}") from error
        except tf.errors.InvalidArgumentError as error:
            raise UserError(
                f"{path}: contains rows of a different kind; {_REBUILT}"
            ) from error
