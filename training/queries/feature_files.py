"""Writes features to files: the release's JSON lines, or HDF5."""

import json

import h5py
import numpy as np

from text.tokenizers.vocabulary import Vocabulary
from training.queries.text_features import TextRow

_HDF5_CHUNK = 1 << 17  # bytes


class FeatureLines:
    """The release's JSON lines; pooled, a line has "layers" instead of "features".

    Source: google-research/bert@eedf571 extract_features.py, main.
    """

    mode = "w"

    def __init__(self, file, layers: list[int], vocabulary: Vocabulary):
        self._file = file
        self._layers = layers
        self._tokens = vocabulary.tokens
        self._texts = 0
        self._begun = False

    def write_tokens(self, row: TextRow, values: np.ndarray) -> None:
        """Args: values: float32 [layers, kept, h]."""
        if not self._begun:
            self._file.write(f'{{"linex_index": {self._texts}, "features": [')
        rounded = _round(values)
        features = [
            {
                "token": self._tokens[id],
                "layers": self._by_layer([layer[i] for layer in rounded]),
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
        layers = self._by_layer(_round(values))
        line = json.dumps({"linex_index": self._texts, "layers": layers})
        self._file.write(line + "\n")
        self._texts += 1

    def _by_layer(self, vectors):
        return [
            {"index": index, "values": values}
            for index, values in zip(self._layers, vectors, strict=True)
        ]

    def close(self) -> None:
        pass


def _round(values):
    """Six decimals, as in the release; in float64, since float32 would print more."""
    return np.round(values.astype(np.float64), 6).tolist()


class Hdf5:
    """The datasets that extract_features.py describes."""

    mode = "w+b"

    def __init__(self, file, layers: list[int], vocabulary: Vocabulary):
        self._file = h5py.File(file, "w")
        self._layers = layers
        self._vocabulary = vocabulary
        self._columns = {}
        self._rows = 0

    def write_tokens(self, row: TextRow, values: np.ndarray) -> None:
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


WRITERS = {"json": FeatureLines, "hdf5": Hdf5}
