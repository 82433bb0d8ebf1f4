"""Batches of texts for Keras's `fit`, as arrays of a few lengths."""

from collections.abc import Callable, Sequence

import numpy as np

from training.backend import keras
from text.records.rows import Layout, Row, static_lengths

_WINDOW = 64  # batches whose rows are sorted by length


class TextBatches(keras.utils.PyDataset):
    """Batches of texts and labels, tokenized when they are needed.

    Args:
        texts: strings, and pairs of strings.
        labels: an array [texts, ...], or None.
        make_row: (text, number, max_seq_length) -> Row.
        layout: of the rows.
        seed: of the order of each epoch; None for the order of the texts.
        has_buckets: whether rows of similar length share a batch, which is padded to one of
            a few lengths instead of the layout's; the texts are tokenized now. Not without
            a seed.
    """

    def __init__(
        self,
        texts: Sequence,
        labels: np.ndarray | None,
        make_row: Callable[[object, int, int], Row],
        layout: Layout,
        *,
        batch_size: int,
        seed: int | None,
        has_buckets: bool,
    ):
        super().__init__()
        self._texts, self._labels = texts, labels
        self._make_row, self._layout = make_row, layout
        self._batch_size = batch_size
        self._random = None if seed is None else np.random.default_rng(seed)
        self._rows = None  # all of them, if their lengths are needed
        if has_buckets:
            self._rows = [self._row(number) for number in range(len(texts))]
            lengths = static_lengths(layout.max_seq_length)
            padded = np.array(lengths)
            sizes = [len(row.input_ids) for row in self._rows]
            self._lengths = padded[np.searchsorted(padded, sizes)]
        self._order = np.arange(len(texts))
        self.on_epoch_end()

    def __len__(self):
        return -(-len(self._texts) // self._batch_size)

    def __getitem__(self, index):
        chosen = self._batches[index]
        layout = self._layout
        if self._rows is None:
            rows = [self._row(number) for number in chosen]
        else:
            rows = [self._rows[number] for number in chosen]
            layout = Layout(self._length(chosen), pad_id=layout.pad_id)
        packed = layout.pack(rows)
        batch = {name: values.astype(np.int32) for name, values in packed.items()}
        return batch if self._labels is None else (batch, self._labels[chosen])

    def _row(self, number):
        return self._make_row(self._texts[number], number, self._layout.max_seq_length)

    def _length(self, chosen):
        return int(self._lengths[chosen].max())

    def on_epoch_end(self):
        if self._random is not None:
            self._random.shuffle(self._order)
        batches = self._cut(self._order)
        if self._rows is not None:
            batches = self._bucket(batches)
        self._batches = batches

    def _cut(self, order):
        size = self._batch_size
        return [order[i : i + size] for i in range(0, len(order), size)]

    def _bucket(self, batches):
        """The same number of batches, of rows of similar length."""
        bucketed = []
        for first in range(0, len(batches), _WINDOW):
            rows = np.concatenate(batches[first : first + _WINDOW])
            order = np.argsort(self._lengths[rows], kind="stable")
            bucketed += self._cut(rows[order])
        bucketed = [bucketed[i] for i in self._random.permutation(len(bucketed))]
        # Keras takes what the first two batches have in common for the shape of all.
        first = self._length(bucketed[0])
        others = [i for i, rows in enumerate(bucketed) if self._length(rows) != first]
        if others:
            bucketed[1], bucketed[others[0]] = bucketed[others[0]], bucketed[1]
        return bucketed
