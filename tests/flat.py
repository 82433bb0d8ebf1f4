"""Corpora; only their lengths matter."""

from itertools import accumulate

import numpy as np
import pytest

from text.corpus.store import FlatFile


@pytest.fixture(scope="module")
def flat(tmp_path_factory):
    """Builds the two offset arrays for documents given as lists of sentence lengths."""
    folder = tmp_path_factory.mktemp("corpus")

    def build(documents):
        lengths = [length for document in documents for length in document]
        for name, sizes in (("s", lengths), ("d", map(len, documents))):
            np.array([0, *accumulate(sizes)], np.int64).tofile(folder / name)
        return tuple(FlatFile(str(folder / name), np.int64) for name in "sd")

    return build
