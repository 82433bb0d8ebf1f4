"""Reads plain TFRecord files in a shuffled order that can be entered anywhere.

Files are cut into blocks of 1,024 consecutive records. Every epoch permutes the blocks
again, reads 16 of them together and takes one record from each in turn; the records of a
block are permuted too. So 256 consecutive records are 16 from each of 16 blocks, wherever
these are in the files, and each of the 16 is drawn from 1,024 neighbors. What remains when
fewer than 16 whole blocks are left, fewer than 17,408 records, ends the epoch and is
shuffled as a whole; for a small set that is everything, so each of its epochs is one
uniform permutation.

The order depends only on the seed, the epoch and the sizes of the files. To enter it at any
record, at most 16 blocks must be read.
"""

import dataclasses
import functools
import math
from collections.abc import Callable, Sequence

import numpy as np
import tensorflow as tf

from text.records import descriptions, framing

BLOCK = descriptions.OFFSET_EVERY
_LANES = 16  # blocks that are read together
_LONGEST_READ = 16 << 20  # bytes


class Blocks:
    """The records of several plain TFRecord files, numbered from 0, in blocks.

    Whole blocks are numbered first, file by file, and then each file's remaining records.

    Args:
        offsets: int64 [blocks + 1] for each file: the byte at which each BLOCK-th record
            begins, and the file's size.
        counts: how many records each file has.
    """

    def __init__(
        self,
        paths: Sequence[str],
        offsets: Sequence[np.ndarray],
        counts: Sequence[int],
    ):
        self.total = sum(counts)
        self._number = -(-self.total // BLOCK)
        self._paths = list(paths)
        # A run is the records that one offset covers.
        runs = [len(x) - 1 for x in offsets]
        file = np.repeat(np.arange(len(runs)), runs)
        first = BLOCK * np.concatenate([np.arange(n) for n in runs])
        length = np.minimum(BLOCK, np.asarray(counts)[file] - first)
        order = np.argsort(length < BLOCK, kind="stable")
        self._file, self._first = file[order], first[order]
        self._byte = np.concatenate([x[:-1] for x in offsets])[order]
        self._bytes = np.concatenate([np.diff(x) for x in offsets])[order]
        self._start = np.cumsum(length[order]) - length[order]

    def place(self, record: int) -> tuple[str, int]:
        """A record's file and its number in that file, from 1."""
        run = np.searchsorted(self._start, record, "right") - 1
        number = self._first[run] + record - self._start[run] + 1
        return self._paths[self._file[run]], int(number)

    # --- Reading a block -------------------------------------------------------------

    def numbers(self, block: tf.Tensor) -> tf.Tensor:
        """int64 [records of this block]: their numbers."""
        begin = block * BLOCK
        return tf.range(begin, tf.minimum(begin + BLOCK, self.total))

    def reader(self) -> Callable[[tf.Tensor], tf.Tensor]:
        """A function from a block's number, int64, to its serialized records, string [n].

        Use it within a dataset: TensorFlow cannot copy a dataset that begins at an offset,
        and copies everything outside functions. It raises
        tf.errors.InvalidArgumentError if records are missing or not where they should be,
        and tf.errors.DataLossError if they are damaged.
        """
        # A piece is the intersection of a run and a block.
        starts = np.union1d(self._start, np.arange(0, self.total, BLOCK))
        run = np.searchsorted(self._start, starts, "right") - 1
        edges = np.append(np.arange(0, self.total, BLOCK), self.total)
        with tf.device("CPU"):
            paths = tf.constant(self._paths)
            file, byte, size = (
                tf.constant(x[run]) for x in (self._file, self._byte, self._bytes)
            )
            skipped = tf.constant(starts - self._start[run])
            taken = tf.constant(np.diff(starts, append=self.total))
            pieces = tf.constant(np.searchsorted(starts, edges))

        def piece(i):
            # One request per piece.
            read = tf.minimum(size[i], _LONGEST_READ)
            dataset = _records_from(paths[file[i]], byte[i], read)
            return dataset.skip(skipped[i]).take(taken[i])

        def read(block):
            first, end = pieces[block], pieces[block + 1]
            dataset = tf.data.Dataset.range(first, end).flat_map(piece)
            records = dataset.batch(BLOCK).get_single_element()
            whole = taken[first] == BLOCK
            lengths = tf.cast(tf.strings.length(records), tf.int64) + framing.FRAME
            as_long = tf.reduce_sum(lengths) == size[first]
            complete = tf.size(records) == tf.size(self.numbers(block))
            checks = [
                tf.debugging.Assert(complete, ["records are missing"]),
                tf.debugging.Assert(~whole | as_long, ["records have moved"]),
            ]
            with tf.control_dependencies(checks):
                return tf.identity(records)

        return read

    # --- The order -------------------------------------------------------------------

    def order(
        self,
        read: Callable[[tf.Tensor], tf.Tensor],
        *,
        seed: int,
        first: int = 0,
        host: int = 0,
        hosts: int = 1,
        lanes: int | None = None,
    ) -> tf.data.Dataset:
        """Endless records, epoch after epoch, starting at the `first` of all epochs.

        Args:
            read: `reader()` or `numbers`.
            first: a multiple of hosts.
            host, hosts: a host gets the records whose place in the order is `host`
                modulo `hosts`. If hosts divides 16, it does not read the blocks of others,
                except those that end an epoch.
            lanes: how many blocks are read together; by default, 16.
        Returns:
            Dataset of tensors [any number of records].
        """
        order = _Order(self.total, read, seed, first, host, hosts, lanes or _LANES)
        epochs = tf.data.Dataset.range(first // self.total, tf.int64.max)
        return epochs.flat_map(order.epoch)


def in_order(
    paths: Sequence[str],
    offsets: Sequence[np.ndarray],
    counts: Sequence[int],
    first: int = 0,
) -> tf.data.Dataset:
    """Endless serialized records in the order of the files, string [].

    `paths`, `offsets` and `counts` are those of `Blocks`; `first` is the record of an epoch
    to begin with, to find which at most a block is read.
    """
    files = np.repeat(np.arange(len(paths)), [len(x) - 1 for x in offsets])
    places = np.concatenate([np.arange(len(x) - 1) for x in offsets])
    sizes = np.minimum(BLOCK, np.asarray(counts)[files] - BLOCK * places)
    begins = np.concatenate([x[:-1] for x in offsets])
    names = tf.constant(list(paths))
    file, size, begin = (tf.constant(x) for x in (files, sizes, begins))

    def records(i):
        dataset = _records_from(names[file[i]], begin[i], _LONGEST_READ)
        content = dataset.take(size[i]).batch(BLOCK).get_single_element()
        complete = tf.size(content, tf.int64) == size[i]
        with tf.control_dependencies(
            [tf.debugging.Assert(complete, ["records are missing"])]
        ):
            return tf.data.Dataset.from_tensor_slices(tf.identity(content))

    entered = int(np.searchsorted(np.cumsum(sizes), first, "right"))
    numbers = tf.data.Dataset.range(entered, len(files)).concatenate(
        tf.data.Dataset.range(len(files)).repeat()
    )
    return numbers.flat_map(records).skip(first - int(sizes[:entered].sum()))


def _records_from(path, byte, buffer_size):
    """Dataset of the records of a plain file that begin at a byte or after it."""
    variant = tf.raw_ops.TFRecordDatasetV2(
        filenames=[path],
        compression_type="",
        buffer_size=buffer_size,
        byte_offsets=[byte],
    )
    return tf.data.experimental.from_variant(variant, tf.TensorSpec([], tf.string))


_permute = tf.random.experimental.stateless_shuffle
_fold_in = tf.random.experimental.stateless_fold_in


@dataclasses.dataclass(frozen=True)
class _Order:
    """One host's share of the records, epoch by epoch; see `Blocks.order`."""

    total: int
    read: Callable[[tf.Tensor], tf.Tensor]
    seed: int
    first: int
    host: int
    hosts: int
    lanes: int

    @property
    def shares(self):
        """How many shares there are; hosts with the same share read the same blocks."""
        return math.gcd(self.hosts, self.lanes)

    def epoch(self, number) -> tf.data.Dataset:
        whole = self.total // BLOCK
        rounds = whole // self.lanes
        key = tf.stack([tf.constant(self.seed, tf.int64), number])
        blocks = _permute(tf.range(whole, dtype=tf.int64), key)
        begin = number * self.total
        datasets = []
        if rounds:
            datasets.append(self._rounds(blocks[: rounds * self.lanes], begin, key))
        if self.total > rounds * self.lanes * BLOCK:
            rest = tf.range(whole, -(-self.total // BLOCK), dtype=tf.int64)
            rest = tf.concat([blocks[rounds * self.lanes :], rest], axis=0)
            at = begin + rounds * self.lanes * BLOCK
            datasets.append(self._end(rest, at, key))
        return functools.reduce(tf.data.Dataset.concatenate, datasets)

    def _rounds(self, blocks, begin, key):
        """The records of blocks; `lanes` are read together and take turns."""

        def lane(block):
            return _permute(self.read(block), _fold_in(key, block))

        def take_turns(round_, lanes):
            at = begin + round_ * self.lanes * BLOCK
            return self._own(tf.reshape(tf.transpose(lanes), [-1]), at, self.shares)

        rounds_of_blocks = tf.reshape(blocks, [-1, self.lanes])
        rounds = tf.shape(rounds_of_blocks, tf.int64)[0]
        entered = (self.first - begin) // (self.lanes * BLOCK)
        entered = tf.clip_by_value(entered, 0, rounds)
        share = rounds_of_blocks[
            entered:, (self.host - begin) % self.shares :: self.shares
        ]
        return (
            tf.data.Dataset.from_tensor_slices(tf.reshape(share, [-1]))
            .map(lane, num_parallel_calls=tf.data.AUTOTUNE)
            .batch(self.lanes // self.shares)
            .enumerate(entered)
            .map(take_turns)
            .prefetch(1)
        )

    def _end(self, blocks, at, key):
        """The records of these blocks, shuffled as a whole, from place `at` on."""
        left = self.total % BLOCK + BLOCK * (self.total // BLOCK % self.lanes)
        fold = _fold_in(key, -(-self.total // BLOCK))
        return (
            tf.data.Dataset.from_tensor_slices(blocks)
            .map(self.read, num_parallel_calls=tf.data.AUTOTUNE)
            .rebatch(left)
            .map(lambda records: self._own(_permute(records, fold), at))
        )

    def _own(self, records, at, step=1):
        """This host's share of the records at every step-th place from `at` on.

        Modulo `step`, the places equal the host's, so `before // step` of these records
        precede the first of its own. Those before `first` are left out.
        """
        before = (self.host - at) % self.hosts
        passed = tf.maximum(
            (self.first - at - before + self.hosts - 1) // self.hosts, 0
        )
        return records[before // step :: self.hosts // step][passed:]
