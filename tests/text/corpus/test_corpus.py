"""A tokenized corpus on disk: pieces, joining, reading it back."""

import os

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from text.corpus import store
from text.tokenizers.vocabulary import SPECIAL_TOKENS, Vocabulary

UINT16 = np.dtype(np.uint16)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("corpus")


def write(folder, pieces, id_type=UINT16, with_words=False):
    """Pieces are lists of sentences, None where a document ends."""
    prefixes = []
    for number, piece in enumerate(pieces):
        prefixes.append(f"{folder}/piece-{number}")
        with store.PieceWriter(prefixes[-1], id_type, with_words) as writer:
            for sentence in piece:
                if sentence is None:
                    writer.end_document()
                else:
                    words = bytes(i % 2 for i in range(len(sentence)))
                    packed = np.array(sentence, id_type).tobytes()
                    writer.add(packed, words if with_words else None)
    store.join(prefixes, f"{folder}/corpus", with_words)
    store.remove_pieces(prefixes)
    return store.Corpus(f"{folder}/corpus", id_type, with_words)


def documents_in(whole):
    """The corpus as lists of documents, of sentences, of ids."""
    offsets = whole.sentences[0 : len(whole.sentences)].tolist()
    ends = whole.documents[0 : len(whole.documents)].tolist()
    return [
        [whole.ids[offsets[s] : offsets[s + 1]].tolist() for s in range(first, last)]
        for first, last in zip(ends[:-1], ends[1:], strict=True)
    ]


SENTENCE = st.lists(st.integers(0, 99), max_size=4)
PIECES = st.lists(st.lists(st.none() | SENTENCE, max_size=8), min_size=1, max_size=4)


@given(PIECES)
def test_pieces_are_joined_to_documents(folder, pieces):
    expected = [[]]
    for item in (item for piece in pieces for item in piece):
        if item is None:
            expected.append([])
        elif item:
            expected[-1].append(item)
    whole = write(folder, pieces)
    assert documents_in(whole) == [sentences for sentences in expected if sentences]
    assert whole.num_documents == len(documents_in(whole))
    assert sorted(os.listdir(folder)) == [
        f"corpus.{name}" for name in ("documents", "sentences", "tokens")
    ]


@pytest.mark.parametrize("size, dtype", [(65536, np.uint16), (65537, np.uint32)])
def test_ids_are_as_wide_as_the_vocabulary_needs(tmp_path, size, dtype):
    vocabulary = Vocabulary([*SPECIAL_TOKENS, *map(str, range(size - 5))])
    whole = write(tmp_path, [[[0, size - 1]]], vocabulary.id_type)
    assert vocabulary.id_type == whole.ids.dtype == dtype
    assert documents_in(whole) == [[[0, size - 1]]]


def test_words_go_along_with_the_tokens(tmp_path):
    whole = write(tmp_path, [[[1, 2, 3]], [[4, 5]]], with_words=True)
    assert whole.word_starts[0:5].tolist() == [0, 1, 0, 0, 1]
    assert write(tmp_path, [[[1]]]).word_starts is None


def test_more_than_a_buffer_of_tokens(tmp_path, monkeypatch):
    monkeypatch.setattr(store, "_FLUSHED_TOKENS", 3)
    sentences = [[i, i + 1] for i in range(10)]
    assert documents_in(write(tmp_path, [sentences])) == [sentences]


def test_a_piece_that_fails_leaves_nothing(tmp_path):
    with pytest.raises(ZeroDivisionError):
        with store.PieceWriter(f"{tmp_path}/piece", UINT16, True) as writer:
            writer.add(b"\1\0", b"\1")
            raise ZeroDivisionError
    assert os.listdir(tmp_path) == []


@given(st.lists(st.tuples(st.integers(0, 40), st.integers(0, 9)), max_size=12))
def test_runs_are_gathered_wherever_they_are(folder, runs):
    path = folder / "flat"
    np.arange(100, dtype=np.int64).tofile(path)
    ends = np.cumsum([length for _, length in runs])
    # Each begins where the one before it ends, or a few elements later.
    starts = [int(e) - n + (s > 35) for e, (s, n) in zip(ends, runs, strict=True)]
    starts = [s if 0 <= s <= 90 else 0 for s in starts]
    lengths = [length for _, length in runs]
    flat = store.FlatFile(str(path), np.int64)
    assert len(flat) == 100 and flat[7] == 7 and flat[5:8].tolist() == [5, 6, 7]
    whole = np.arange(100)
    expected = [
        x for s, n in zip(starts, lengths, strict=True) for x in whole[s : s + n]
    ]
    assert flat.gather(starts, lengths).tolist() == expected
    path.unlink()
