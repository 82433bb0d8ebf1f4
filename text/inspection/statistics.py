"""Counts the contents of records, and judges whether the counts are plausible."""

import hashlib
from collections.abc import Iterator

import numpy as np

from text.inspection import figures
from text.inspection.inspector import Batch, Inspector, Unmasked
from text.instances.table import RowOptions

_MOST_REPEATED = 0.01
# Two passes over a text are unlikely to choose the same tokens if there are this many; with
# fewer, a record may well occur twice.
_MANY_PREDICTIONS = 5
_REMEMBERED = 1 << 19


class Repeats:
    """Counts records that occur more than once, in bounded memory.

    It remembers 64-bit hashes. When there are half a million, it forgets every other one,
    and from then on counts only records whose hashes it would keep: `kept_share`, a half, a
    quarter ... of all records, but every copy of these.
    """

    def __init__(self, most_remembered: int = _REMEMBERED):
        self.kept_share = 1.0
        self._most_remembered = most_remembered
        self._copies = {}  # (hash, whether it has many predictions) -> how many

    def __len__(self) -> int:
        return len(self._copies)

    def add(self, example: bytes, num_predictions: int) -> None:
        """Adds a serialized record."""
        digest = hashlib.blake2b(example, digest_size=8).digest()
        value = int.from_bytes(digest, "little")
        if not self._keeps(value):
            return
        key = value, num_predictions >= _MANY_PREDICTIONS
        self._copies[key] = self._copies.get(key, 0) + 1
        if len(self._copies) > self._most_remembered:
            self.kept_share /= 2
            self._copies = {k: n for k, n in self._copies.items() if self._keeps(k[0])}

    def _keeps(self, value):
        return value < self.kept_share * (1 << 64)

    def share(self, only_many_predictions: bool = False) -> float:
        """The share of records that repeat an earlier one."""
        counts = [
            count
            for (_, has_many), count in self._copies.items()
            if has_many or not only_many_predictions
        ]
        return 1 - len(counts) / max(1, sum(counts)) if counts else 0.0


class Statistics:
    """Sums over records, whose size does not depend on the number of records."""

    def __init__(self, inspector: Inspector):
        self.records = 0
        self.repeats = Repeats()
        self.parts = [
            _Text(inspector.options.max_seq_length, inspector.vocabulary),
            *inspector.masks.figures(),
            *inspector.figures(),
        ]

    def add(
        self, batch: Batch, text: Unmasked, examples: list[bytes], options: RowOptions
    ) -> None:
        """Adds records that break no rule, both decoded and serialized."""
        self.records += len(examples)
        for part in self.parts:
            part.add(batch, text, options)
        counts = text.is_predicted.sum(axis=1).tolist()
        for example, count in zip(examples, counts, strict=True):
            self.repeats.add(example, count)

    def implausible(self) -> Iterator[tuple[str, str]]:
        """Yields (rule, what was found) for sums that chance does not explain."""
        for part in self.parts:
            yield from part.implausible()
        share = self.repeats.share(only_many_predictions=True)
        if share > _MOST_REPEATED:
            yield (
                "records must not repeat others",
                f"{share:.1%} of those with {_MANY_PREDICTIONS} or more "
                "predictions do; check whether a file was copied",
            )

    def lines(self) -> list[tuple[str, str]]:
        """The sums in words: (name, value)."""
        looked_at = ""
        if self.repeats.kept_share < 1:
            looked_at = f", estimated from {self.repeats.kept_share:.2%} of them"
        return [
            ("Records", f"{self.records:,} that break no rule"),
            *(line for part in self.parts for line in part.lines()),
            ("Repeated", f"{self.repeats.share():.2%} of the records{looked_at}"),
        ]

    def plots(self) -> list[figures.Histogram | figures.Bars]:
        """Histograms first."""
        plots = [plot for part in self.parts for plot in part.plots()]
        return sorted(plots, key=lambda plot: isinstance(plot, figures.Bars))


class _Text(figures.RunningSums):
    """Counts tokens of the text, which all records have."""

    def __init__(self, max_seq_length, vocabulary):
        self._vocabulary = vocabulary
        self._lengths = np.zeros(max_seq_length + 1, np.int64)
        self._unknown_percents = np.zeros(101, np.int64)  # by the share in a record
        self._tokens = np.zeros(len(vocabulary), np.int64)

    def add(self, batch, text, options) -> None:
        is_text = text.words(self._vocabulary)
        is_unknown = is_text & (text.ids == self._vocabulary.unk_id)
        shares = is_unknown.sum(axis=1) / is_text.sum(axis=1)
        figures.count(self._lengths, text.lengths)
        figures.count(self._unknown_percents, np.rint(100 * shares))
        figures.count(self._tokens, text.ids[is_text])

    @property
    def _unknown_share(self):
        return self._tokens[self._vocabulary.unk_id] / max(1, self._tokens.sum())

    def lines(self) -> list[tuple[str, str]]:
        counts = self._lengths
        return [
            (
                "Tokens",
                f"{figures.mean(counts):.1f} per record, median "
                f"{figures.median(counts)}, {counts[-1] / max(1, counts.sum()):.1%} full "
                f"({len(counts) - 1})",
            ),
            ("[UNK]", f"{self._unknown_share:.2%} of the text's tokens"),
        ]

    def plots(self) -> list[figures.Histogram | figures.Bars]:
        return [
            figures.lengths("Tokens per record, with [CLS] and [SEP]", self._lengths),
            figures.Histogram(
                "Share of [UNK] in a record's text",
                self._unknown_percents,
                "% of its tokens",
                f"{self._unknown_share:.3%} of all; much more than 1% means that the "
                "vocabulary does not suit the text",
            ),
            figures.most_frequent_tokens(
                "Most frequent tokens",
                self._tokens,
                self._vocabulary,
                f"of {self._tokens.sum():,} tokens of the text, "
                f"{np.count_nonzero(self._tokens):,} different ones",
            ),
        ]
