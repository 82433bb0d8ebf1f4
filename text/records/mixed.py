"""Reads the records of several sources, mixed in fixed shares; see text/records/mixture.py.

Each source has an order of its own, which its content and the seed determine, and begins
anew where it ends. Rows of a mixture name their source: `source`, int32 [rows].
"""

import functools
import hashlib
from collections.abc import Mapping, Sequence

import numpy as np
import tensorflow as tf

from text.records import mixture, reading
from text.records.mixture import Mixture

# For each source: with hundreds of them, 16 would take gigabytes.
_LANES = 4
_ROWS_AT_ONCE = 1024


class MixedRecords(reading.Records):
    """The records of a mixture under one schema; see `reading.Records`.

    `places` and `training` mix them. An evaluation reads each once, in the order of the
    files, and if that is too many, the first of each source, in proportion to its records.

    Args:
        mixed: the sources.
        names: of all sources that batches may name, by which `source` counts.
    Attributes:
        begun: int64 [sources], how many rows of each source an earlier run has read.
    """

    def __init__(
        self,
        mixed: Mixture,
        names: Sequence[str],
        schema: reading.Schema,
        sizes: Mapping[str, int] | None = None,
    ):
        files = [file for those in mixed.files for file in those]
        super().__init__(files, schema, sizes)
        self.mixture = mixed
        self.sources = {
            name: reading.Records(those, schema, sizes, lanes=_LANES)
            for name, those in zip(mixed.names, mixed.files, strict=True)
        }
        self.begun = np.zeros(len(self.sources), np.int64)
        self._numbers = [names.index(name) for name in self.sources]

    def begin_at(self, rows_read: Mapping[str, int]) -> None:
        """Begins behind what earlier runs have read: digest of a source -> its rows."""
        sources = self.sources.values()
        self.begun = np.array([rows_read.get(x.digest, 0) for x in sources], np.int64)

    def order(self, seed: int) -> mixture.SourceOrder:
        return mixture.SourceOrder(self.mixture.counts, seed)

    def rows_before(self, row: int, seed: int) -> dict[str, int]:
        """How many rows of each source were read before this one of the run."""
        before = self.begun + self.order(seed).before(row)
        return dict(zip(self.sources, before.tolist(), strict=True))

    # --- Training --------------------------------------------------------------------

    def _batches(self, size, seed, first, part):
        # Every host reads all records, but parses only its own.
        pattern = self.order(seed).pattern
        pattern = np.tile(pattern, -(-_ROWS_AT_ONCE // len(pattern)))
        period, starts = len(pattern), np.arange(0, len(pattern), _ROWS_AT_ONCE)
        begun, place = divmod(first, period)
        entered = place // _ROWS_AT_ONCE
        rows = self.rows_before(begun * period + int(starts[entered]), seed)
        each = []
        for number, (name, data) in enumerate(self.sources.items()):
            counts = np.add.reduceat(pattern == number, starts, dtype=np.int64)
            records = data.serialized_records(rows[name], _key(data, seed))
            each.append(records.rebatch(np.roll(counts, -entered)))
        # Records come sorted by source; this is where each of the order is then.
        order = [_places_in_sorted(x) for x in np.split(pattern, starts[1:])]
        order, starts = tf.constant(np.concatenate(order)), tf.constant(starts)

        def mix(number, records):
            start = starts[number % len(starts)]
            turn = order[start : start + _ROWS_AT_ONCE]
            at = number // len(starts) * period + start
            skipped = (part.host - at) % part.hosts
            passed = -((at + skipped - first) // part.hosts)
            skipped += part.hosts * tf.maximum(passed, 0)
            return tf.gather(tf.concat(records, axis=0), turn[skipped :: part.hosts])

        numbers = tf.data.Dataset.range(begun * len(starts) + entered, tf.int64.max)
        pieces = tf.data.Dataset.zip((numbers, tuple(each)))
        return pieces.map(mix).rebatch(size)

    def _more_features(self, seed):
        pattern = self.order(seed).pattern
        sources = tf.constant(np.array(self._numbers, np.int32)[pattern])
        return lambda numbers: {"source": tf.gather(sources, numbers % len(pattern))}

    def places_from(self, first, count, seed):
        rows = self.rows_before(first, seed)
        ends = self.rows_before(first + count, seed)
        places = [
            iter(
                data.places_from(rows[name], ends[name] - rows[name], _key(data, seed))
            )
            for name, data in self.sources.items()
        ]
        pattern = self.order(seed).pattern
        order = pattern[np.arange(first, first + count) % len(pattern)]
        return [next(places[source]) for source in order.tolist()]

    # --- Evaluation ------------------------------------------------------------------

    def _evaluation_counts(self, most):
        """How many records of each source an evaluation of at most so many reads."""
        totals = np.array([data.total for data in self.sources.values()])
        ends = np.cumsum(totals) * min(most, self.total) // self.total
        return np.diff(ends, prepend=0)

    def in_file_order(self, most):
        counts = self._evaluation_counts(most).tolist()
        each = [
            data.in_file_order(count).take(count)
            for data, count in zip(self.sources.values(), counts, strict=True)
        ]
        return functools.reduce(tf.data.Dataset.concatenate, each)

    def _more_held_out_features(self, most):
        ends = tf.constant(np.cumsum(self._evaluation_counts(most)))
        sources = tf.constant(np.array([*self._numbers, 0], np.int32))
        return lambda numbers: {
            "source": tf.gather(sources, tf.searchsorted(ends, numbers, "right"))
        }


def _places_in_sorted(sources):
    """int [n] -> int64 [n]: the place of each if all were sorted by source."""
    return np.argsort(np.argsort(sources, kind="stable")).astype(np.int64)


def _key(data, seed):
    """The seed of a source's order: no other source has the same."""
    return int(hashlib.sha256(f"{seed} {data.digest}".encode()).hexdigest()[:7], 16)
