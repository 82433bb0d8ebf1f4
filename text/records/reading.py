"""Reads TFRecord files in batches, in an order determined by seed and epoch.

One replica, two replicas and two hosts see the same batches. Plain files are read in
blocks, so a run can be resumed anywhere and a host reads only its own share. Files
compressed with gzip can only be read from their beginning; see `Records.packed`.
"""

import dataclasses
import functools
import hashlib
import itertools
from collections.abc import Callable, Mapping

import numpy as np
import tensorflow as tf

from errors import UserError, count
from text.records import blocks, encoding
from text.records.record_set import RecordFile
from text.records.schema import Feature

# What reading a damaged file raises, somewhere within a training step.
ERRORS = (
    tf.errors.DataLossError,
    tf.errors.FailedPreconditionError,
    tf.errors.InvalidArgumentError,
)

# AutoGraph, which nothing here needs, takes half a second to read these functions.
as_written = tf.autograph.experimental.do_not_convert

_SHUFFLED_RECORDS = 10_000  # 15 MB of records at 128 tokens
_OPEN_FILES = 16
_CHECKED_TOGETHER = 2048
_AHEAD = 4  # batches, besides those that are being parsed

Schema = tuple[Feature, ...]


# --- Batches -------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Part:
    """Which part of every batch this host reads, and for how many replicas."""

    host: int = 0
    hosts: int = 1
    replicas: int = 1  # of all hosts together

    def of(self, batch):
        """[batch, ...] -> [replicas of this host, batch / replicas, ...]."""
        local = self.replicas // self.hosts
        shape = tf.concat([[self.replicas, -1], tf.shape(batch)[1:]], 0)
        return tf.reshape(batch, shape)[self.host * local : (self.host + 1) * local]


WHOLE = Part()


class Records:
    """The records of several files under one schema.

    Args:
        files: those that contain nothing, as their description says, are left out.
        schema: the features of a record; integers are read as int32. The limits of
            integers are checked whenever a batch is read, the others by `check`.
        sizes: the values of the schema's named limits, as in a config.
        rows_per_batch: if not 0, row k of a batch of this many continues row k of the batch
            before; training reads the records in order.
        lanes: how many blocks of plain files are read together; see `Blocks.order`.
    """

    def __init__(
        self,
        files: list[RecordFile],
        schema: Schema,
        sizes: Mapping[str, int] | None = None,
        rows_per_batch: int = 0,
        lanes: int | None = None,
    ):
        self.rows_per_batch, self.lanes = rows_per_batch, lanes
        for file in files:
            if not (file.total or file.description):
                raise UserError(f"{file.path}: no records; write them again")
        self.files = [file for file in files if file.total]
        if not self.files:
            others = f" and {count(len(files) - 1, 'more file')}" if files[1:] else ""
            raise UserError(f"{files[0].path}{others}: no records; write them again")
        self.total = sum(file.total for file in self.files)
        # Whether any file is packed: then every host reads all of them from the beginning
        # of the epoch.
        self.packed = any(file.beginning.compression for file in self.files)
        self._schema = schema
        limits = {feature.name: feature.limit(sizes or {}) for feature in schema}
        self._limits = {name: n for name, n in limits.items() if n is not None}
        # Our name of a feature -> its name in these files, None if it is always 1.
        self._names = {}
        for file in self.files:
            self._check_kind(file)

    @functools.cached_property
    def digest(self) -> str:
        """Of the beginning and the size of each file."""
        hasher = hashlib.sha256()
        for file in self.files:
            hasher.update(file.beginning.digest)
            hasher.update(b"%d\n" % file.beginning.size)
        return hasher.hexdigest()

    def _check_kind(self, file: RecordFile) -> None:
        first = next(iter(file.beginning.records), b"")
        try:
            features = encoding.features_of(first)
        except ValueError as error:
            raise UserError(
                f"{file.path}: record 1 is not a tf.train.Example"
            ) from error
        names = {name: encoding.name_in(features, name) for name, *_ in self._schema}
        if self._names not in ({}, names):
            raise UserError(
                f"{file.path}: its features are named {', '.join(sorted(features))}, "
                "unlike those of the files before it; use files of one kind"
            )
        self._names = names
        _, faults = encoding.decode([first], self._schema)
        for fault in faults.values():
            raise UserError(
                f"{file.path}: record 1 {fault}; check the lengths and the kind of record"
            )

    def check_beginnings(self) -> None:
        """Checks the first records of every file, once, and keeps only the first."""
        for file in self.files:
            self._check_records(file, file.beginning.records)
            del file.beginning.records[1:]  # there may be thousands of files

    def check(self) -> None:
        """Reads and checks all records."""
        self._check_layout()
        for file in self.files:
            file.check_unchanged(self._check_records(file, file.scan()))

    def _check_records(self, file, records):
        """Checks records of a file, from its first on; returns how many they are."""
        records, number = iter(records), 0
        while examples := list(itertools.islice(records, _CHECKED_TOGETHER)):
            if fault := self._fault(examples):
                row, what = fault
                raise UserError(f"{file.path}: record {number + row + 1} {what}")
            number += len(examples)
        return number

    def _check_layout(self):
        """Checks where the records of plain files begin, without parsing them."""
        for file in self.files:
            if file.offsets is None:
                continue
            number, offsets = file.count()
            file.check_unchanged(number)
            for block in np.flatnonzero(offsets != file.offsets)[:1]:
                raise UserError(
                    f"{file.path}: record {block * blocks.BLOCK + 1} begins at byte "
                    f"{offsets[block]}, not {file.offsets[block]} as its description "
                    "says; copy both again, or write the records again"
                )

    def _fault(self, examples):
        """The first row that does not fit and what is wrong with it, or None."""
        batch, faults = encoding.decode(examples, self._schema)
        for name, *_, below in self._schema:
            if name not in self._limits:
                continue
            values, limit = batch[name], self._limits[name]
            fits = (values >= 0) & (values < limit)
            fits &= values == np.floor(values)
            for row in np.flatnonzero(~fits.all(axis=1))[:1].tolist():
                why = f" by the config's {below}={limit}" if below != limit else ""
                faults.setdefault(
                    row,
                    f"has {values[row][~fits[row]][0]} in {name}; whole numbers from 0 "
                    f"to {limit - 1} are allowed{why}; check that records and config "
                    "belong together",
                )
        return min(faults.items(), default=None)

    def _parse(self, serialized):
        spec = {
            self._names[name]: tf.io.FixedLenFeature([length], dtype)
            for name, dtype, length, _ in self._schema
        }
        parsed = tf.io.parse_example(serialized, spec)
        features = {name: parsed[self._names[name]] for name, *_ in self._schema}
        return {name: self._as_int32(name, v) for name, v in features.items()}

    def _as_int32(self, name, values):
        if values.dtype != tf.int64:
            return values
        # Checked here, with 64 bits and on a CPU, because a GPU looks up any id it gets.
        checks = []
        if limit := self._limits.get(name):
            inside = tf.reduce_all((values >= 0) & (values < limit))
            checks = [tf.debugging.Assert(inside, [f"{name} out of range"])]
        with tf.control_dependencies(checks):
            return tf.cast(values, tf.int32)

    def _open(self, index):
        """Dataset of (file, record number, serialized record) of one file."""
        paths = tf.constant([file.path for file in self.files])
        compressions = tf.constant([file.beginning.compression for file in self.files])
        dataset = tf.data.TFRecordDataset(paths[index], compressions[index])
        return dataset.enumerate(start=1).map(lambda number, x: (index, number, x))

    def _sequence(self, seed: int, first: int) -> tf.data.Dataset:
        """Endless (file, record number, record), read from the beginning of each epoch.

        Files are shuffled and read together, and records are shuffled as they are read.
        """

        def epoch(number):
            order = tf.random.experimental.stateless_shuffle(
                tf.range(len(self.files)), tf.stack([key, number])
            )
            dataset = tf.data.Dataset.from_tensor_slices(order).interleave(
                self._open,
                cycle_length=min(_OPEN_FILES, len(self.files)),
                num_parallel_calls=tf.data.AUTOTUNE,
                deterministic=True,
            )
            # A file that lost records would shift the order of every later epoch.
            dataset = dataset.apply(tf.data.experimental.assert_cardinality(self.total))
            return dataset.shuffle(
                min(_SHUFFLED_RECORDS, self.total),
                seed=key * 2**32 + number,
                reshuffle_each_iteration=False,
            )

        key = tf.constant(seed, tf.int64)
        begun, inside = divmod(first, self.total)
        return tf.data.Dataset.range(begun, tf.int64.max).flat_map(epoch).skip(inside)

    def _read_in_order(self, first: int) -> tf.data.Dataset:
        """Endless records in the order of the files, from one of all epochs on."""
        inside = first % self.total
        if not self.packed:
            return blocks.in_order(*self._files(), inside)
        files = tf.data.Dataset.range(len(self.files))
        epoch = files.flat_map(self._open).map(lambda file, number, x: x)
        return epoch.repeat().skip(inside)

    def _blocks(self) -> blocks.Blocks:
        return blocks.Blocks(*self._files())

    def _files(self):
        """The paths, the offsets and the numbers of records of all files."""
        return (
            [file.path for file in self.files],
            [file.offsets for file in self.files],
            [file.total for file in self.files],
        )

    @as_written
    def training(
        self, batch_size: int, *, seed: int, first_batch: int = 0, part: Part = WHOLE
    ) -> tf.data.Dataset:
        """Endless batches, with the same records for every division into hosts.

        Batches straddle the ends of epochs, so none is short. Host h of H has every H-th
        record of a batch, starting at the h-th. For the order, see text/records/blocks.py.

        Args:
            batch_size: records of all hosts together, a multiple of part.replicas.
            first_batch: how many batches to skip.
        Returns:
            Dataset of dicts [batch_size / replicas, ...], one for each of this host's
            replicas in turn. `row_numbers` are the numbers of the records in the run,
            from 0, which do not depend on the division; int32, their lowest 32 bits.
        """
        first, size = first_batch * batch_size, batch_size // part.replicas
        batches = self._batches(size, seed, first, part)
        more_features = self._more_features(seed)

        def parse(number, x):
            places = number * size + tf.range(size, dtype=tf.int64)
            numbers = first + part.host + part.hosts * places
            features = self._parse(tf.ensure_shape(x, [size])) | more_features(numbers)
            return {**features, "row_numbers": _lowest_bits(numbers)}

        parsed = batches.enumerate().map(parse, num_parallel_calls=tf.data.AUTOTUNE)
        return prefetch(parsed)

    def _batches(self, size: int, seed: int, first: int, part: Part) -> tf.data.Dataset:
        """Endless batches of serialized records, string [size], from one of them on."""
        if self.rows_per_batch:
            share = self._read_in_order(first).shard(part.hosts, part.host)
            return share.batch(size)
        if self.packed:
            share = self._sequence(seed, first).shard(part.hosts, part.host)
            return share.map(lambda file, number, x: x).batch(size)
        return self._shuffle(seed, first, part).rebatch(size)

    def _shuffle(self, seed, first, part):
        """Endless tensors of serialized records of plain files."""
        plain = self._blocks()
        return plain.order(
            plain.reader(),
            seed=seed,
            first=first,
            host=part.host,
            hosts=part.hosts,
            lanes=self.lanes,
        )

    def serialized_records(self, first: int, seed: int) -> tf.data.Dataset:
        """Endless serialized records in the order of training, string [any number]."""
        if self.packed:
            records = self._sequence(seed, first).map(lambda file, number, x: x)
            return records.batch(_OPEN_FILES)
        return self._shuffle(seed, first, WHOLE)

    def _more_features(self, seed: int) -> Callable[[tf.Tensor], dict]:
        """Numbers of rows of the run, int64 [size] -> what is known of each by that."""
        del seed
        return lambda numbers: {}

    @as_written
    def places(
        self, batch_size: int, *, seed: int, batch: int
    ) -> list[tuple[str, int]]:
        """The file and record number of every record in one batch of `training`."""
        return self.places_from(batch * batch_size, batch_size, seed)

    @as_written
    def places_from(self, first: int, count: int, seed: int) -> list[tuple[str, int]]:
        """`places`, of so many records from one on."""
        if self.rows_per_batch:
            ends = np.cumsum([file.total for file in self.files])
            numbers = np.arange(first, first + count) % self.total
            files = np.searchsorted(ends, numbers, "right")
            numbers += 1 + np.array([file.total for file in self.files])[files]
            numbers -= ends[files]
            return [
                (self.files[file].path, number)
                for file, number in zip(files, numbers.tolist(), strict=True)
            ]
        if self.packed:
            dataset = self._sequence(seed, first).take(count)
            return [
                (self.files[file].path, int(number))
                for file, number, _ in dataset.as_numpy_iterator()
            ]
        plain = self._blocks()
        order = plain.order(plain.numbers, seed=seed, first=first, lanes=self.lanes)
        return [plain.place(i) for i in next(iter(order.rebatch(count))).numpy()]

    @as_written
    def evaluation(
        self, batch_size: int, *, max_batches: int, part: Part = WHOLE
    ) -> tf.data.Dataset:
        """The first `max_batches` batches, every record at most once, in file order.

        A short last batch is filled up; `is_real_example` [batch] is 1.0 for records
        and 0.0 for filler rows. `row_numbers` count from the first record.
        """
        dataset = self.in_file_order(max_batches * batch_size)

        def fill(number, x):
            real = tf.size(x)
            rows = tf.minimum(tf.range(batch_size), real - 1)
            weights = tf.cast(tf.range(batch_size) < real, tf.float32)
            numbers = number * batch_size + tf.range(batch_size, dtype=tf.int64)
            return part.of(tf.gather(x, rows)), part.of(weights), part.of(numbers)

        size = batch_size // part.replicas
        more_features = self._more_held_out_features(max_batches * batch_size)

        def parse(x, weights, numbers):
            numbers = tf.ensure_shape(numbers, [size])
            return {
                **self._parse(tf.ensure_shape(x, [size])),
                **more_features(numbers),
                "is_real_example": tf.ensure_shape(weights, [size]),
                "row_numbers": _lowest_bits(numbers),
            }

        batches = dataset.batch(batch_size).take(max_batches).enumerate().map(fill)
        batches = batches.unbatch()
        parsed = batches.map(parse, num_parallel_calls=tf.data.AUTOTUNE)
        return prefetch(parsed)

    def in_file_order(self, most: int) -> tf.data.Dataset:
        """The serialized records of an evaluation, which takes at most so many."""
        del most
        paths = tf.data.Dataset.range(len(self.files))
        return paths.flat_map(self._open).map(lambda file, number, x: x)

    def _more_held_out_features(self, most: int) -> Callable[[tf.Tensor], dict]:
        """`_more_features`, by numbers in an evaluation of at most so many."""
        del most
        return lambda numbers: {}


def _lowest_bits(numbers):
    """int64 -> int32, with which devices compute."""
    return tf.bitcast(tf.cast(numbers, tf.uint32), tf.int32)


def prefetch(batches: tf.data.Dataset) -> tf.data.Dataset:
    """Batches in their order, some of them ahead of what the devices compute."""
    return batches.with_options(options()).prefetch(_AHEAD)


def options() -> tf.data.Options:
    """How datasets are read: in their order, and as each host divides them itself."""
    options = tf.data.Options()
    options.deterministic = True
    # The thread that tunes may miss the end of an iterator, which then waits for it, one in
    # five for as long as it was used, up to a minute (TensorFlow 2.21). Without tuning,
    # num_parallel_calls=AUTOTUNE means as many as there are cores, 16 at most.
    options.autotune.enabled = False
    # Every host slices batches itself (Part).
    options.experimental_distribute.auto_shard_policy = (
        tf.data.experimental.AutoShardPolicy.OFF
    )
    return options
