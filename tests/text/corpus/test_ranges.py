"""Ranges of whole documents: wherever files are cut, each document has one reader."""

import bz2
import gzip
import json

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.text.corpus.dumps import dump, multistream, page
from tests.text.corpus.readers import documents
from tests.text.corpus.tables_of_texts import arrow, parquet
from text.corpus import formats, wikipedia
from text.corpus.store import Corpus, FlatFile
from text.corpus.text_format import FileSpan

LINE = st.sampled_from(["", "", " \t", "One.", "x" * 90 + ". Y", "of it.", "\u3000"])


def read(spans, input_format):
    """The documents of some spans, each a list of sentences."""
    found = documents(spans, input_format=input_format)
    assert not found[-1]  # a span ends with a document
    return list(filter(None, found))


@pytest.mark.parametrize("input_format", ["sentences", "paragraphs", "files", "jsonl"])
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    texts=st.lists(st.lists(LINE, max_size=40), min_size=1, max_size=3),
    most=st.integers(1, 300),
    is_ended=st.booleans(),
)
def test_each_document_is_read_once(tmp_path, input_format, texts, most, is_ended):
    paths = []
    for number, lines in enumerate(texts):
        if input_format == "jsonl":
            lines = [json.dumps({"text": line}) for line in lines]
        path = tmp_path / f"{number}.txt"
        path.write_bytes("\n".join(lines + [""] * is_ended).encode())
        paths.append(str(path))
    whole = [FileSpan(path, 0, None, 0) for path in paths]
    expected = read(whole, input_format)
    found = []
    for listed in formats.ranges(paths, input_format, most):
        spans = [formats.whole_documents(span, input_format) for span in listed]
        found += read(filter(None, spans), input_format)
    assert found == expected


TITLES = [f"Text {number}." for number in range(60)]


def _dump_pages():
    return [
        page(f"{title}\n\n{'It is so. ' * (n % 7)}") for n, title in enumerate(TITLES)
    ]


OTHERS = {
    "dump.xml": ("wikipedia", lambda: dump(*_dump_pages())),
    "dump-multistream.xml.bz2": ("wikipedia", lambda: multistream(_dump_pages(), 3)),
    "dump.xml.bz2": ("wikipedia", lambda: bz2.compress(dump(*_dump_pages()))),
    "text.parquet": ("parquet", lambda: parquet(TITLES, rows=7)),
    "text.arrow": ("arrow", lambda: arrow(TITLES, rows=7)),
}


@pytest.mark.parametrize("most", [1, 17, 100, 128, 500, 1500, 1 << 20])
@pytest.mark.parametrize("name", OTHERS)
def test_each_document_of_other_formats_is_read_once(tmp_path, monkeypatch, name, most):
    pytest.importorskip("mwparserfromhell")
    monkeypatch.setattr(wikipedia, "_CHUNK", 50)
    input_format, content = OTHERS[name]
    (tmp_path / name).write_bytes(content())
    listed = list(formats.ranges([str(tmp_path / name)], input_format, most))
    found = [
        formats.whole_documents(x, input_format) for spans in listed for x in spans
    ]
    found = list(filter(None, found))
    assert [each[0] for each in read(found, input_format)] == TITLES
    is_cut = most < 1 << 20 and name != "dump.xml.bz2"
    assert len(found) >= (2 if is_cut else 1) and (is_cut or len(found) == 1)


def test_ranges_have_about_the_given_size(tmp_path):
    for number in range(20):
        (tmp_path / f"{number:02d}").write_text("A line.\n\n" * 10)
    (tmp_path / "large").write_text("A line.\n\n" * 1000)
    with gzip.open(tmp_path / "large.gz", "wt", compresslevel=0) as file:
        file.write("A line.\n\n" * 1000)
    paths = sorted(map(str, tmp_path.iterdir()))
    found = list(formats.ranges(paths, "sentences", 300))
    assert max(len(spans) for spans in found) == 4
    packed = [spans for spans in found if spans[-1].path.endswith(".gz")]
    assert [len(spans) for spans in packed] == [1]  # is not cut
    sizes = [sum(span.size for span in spans) for spans in found if spans not in packed]
    assert 270 <= min(sizes[:-1]) and max(sizes) <= 600


def test_a_long_document_is_read_through_by_its_own_reader_alone(tmp_path, monkeypatch):
    path = tmp_path / "text"
    path.write_text("A line.\n" * 10_000)
    read = []

    def opened(path, original=formats.sources.open_file):
        file = original(path)
        counted = type("", (), {})()
        counted.seek, counted.tell = file.seek, file.tell
        counted.readline = lambda most: read.append(1) or file.readline(most)
        counted.__class__.__enter__ = lambda self: self
        counted.__class__.__exit__ = lambda self, *_: file.close()
        return counted

    monkeypatch.setattr(formats.sources, "open_file", opened)
    ((first, *others),) = [
        [formats.whole_documents(span, "sentences") for span in spans]
        for spans in [sum(formats.ranges([str(path)], "sentences", 1000), [])]
    ]
    assert (first.start, first.stop) == (0, None) and not any(others)
    assert len(read) < 30_000  # three times, not once for each of 80 ranges


def test_a_corpus_in_memory_reads_like_one_on_disk(tmp_path):
    held = Corpus.in_memory(
        np.arange(7, dtype=np.uint16), np.array([2, 1, 4]), np.array([1, 2])
    )
    assert held.num_documents == 2 and held.word_starts is None
    assert held.sentences[0:4].tolist() == [0, 2, 3, 7]
    assert held.documents[0:3].tolist() == [0, 1, 3]
    (tmp_path / "ids").write_bytes(np.arange(7, dtype=np.uint16).tobytes())
    flat = FlatFile(str(tmp_path / "ids"), np.uint16)
    for starts, lengths in [([], []), ([3], [2]), ([5, 0, 1, 1], [2, 1, 3, 0])]:
        found = held.ids.gather(starts, lengths)
        assert found.dtype == np.uint16
        assert found.tolist() == flat.gather(starts, lengths).tolist()
