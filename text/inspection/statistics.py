"""Counts the contents of records, and judges whether the counts are plausible."""

from collections.abc import Iterator

import numpy as np

from text.inspection import figures
from text.inspection.inspector import Batch, Inspector, Unmasked
from text.instances.table import RowOptions


class Statistics:
    """Sums over records, whose size does not depend on the number of records."""

    def __init__(self, inspector: Inspector):
        self.records = 0
        self.parts = [
            _TextStatistics(inspector.options.max_seq_length, inspector.vocabulary),
            *inspector.masks.figures(),
            *inspector.figures(),
        ]

    def add(self, batch: Batch, text: Unmasked, options: RowOptions) -> None:
        """Adds decoded records that break no rule."""
        self.records += len(text.ids)
        for part in self.parts:
            part.add(batch, text, options)

    def find_implausible(self) -> Iterator[tuple[str, str]]:
        """Yields (rule, what was found) for sums that chance does not explain."""
        for part in self.parts:
            yield from part.find_implausible()

    def lines(self) -> list[tuple[str, str]]:
        """The sums in words: (name, value)."""
        return [
            ("Records", f"{self.records:,} that break no rule"),
            *(line for part in self.parts for line in part.lines()),
        ]

    def plots(self) -> list[figures.Histogram | figures.Bars]:
        """Histograms first."""
        plots = [plot for part in self.parts for plot in part.plots()]
        return sorted(plots, key=lambda plot: isinstance(plot, figures.Bars))


class _TextStatistics(figures.RunningSums):
    """Counts tokens of the text, which all records have."""

    def __init__(self, max_seq_length, vocabulary):
        self._vocabulary = vocabulary
        self._lengths = np.zeros(max_seq_length + 1, np.int64)
        self._unknown_percents = np.zeros(101, np.int64)  # by the share in a record
        self._num_tokens = self._num_unknown = 0

    def add(self, batch, text, options) -> None:
        is_text = text.words(self._vocabulary)
        is_unknown = is_text & (text.ids == self._vocabulary.unk_id)
        shares = is_unknown.sum(axis=1) / is_text.sum(axis=1)
        figures.count(self._lengths, text.lengths)
        figures.count(self._unknown_percents, np.rint(100 * shares))
        self._num_tokens += int(is_text.sum())
        self._num_unknown += int(is_unknown.sum())

    @property
    def _unknown_share(self):
        return self._num_unknown / max(1, self._num_tokens)

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
        ]
