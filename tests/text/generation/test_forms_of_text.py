"""The same documents give the same records, in whatever form their files are."""

import json

import pytest

from errors import UserError
from tests.packed import pack
from tests.text.corpus.dumps import multistream, page
from tests.text.corpus.tables_of_texts import arrow, parquet
from tests.text.generation.settings import TEXT, make_settings
from text.corpus import formats, text_format
from text.generation.generate import generate

DOCUMENTS = TEXT.split("\n\n") * 20
MANY = "\n\n".join(DOCUMENTS)


def json_lines():
    return "\n".join(json.dumps({"text": each}) for each in DOCUMENTS).encode()


def wiki():
    pytest.importorskip("mwparserfromhell")
    # A line break within a paragraph is a space there.
    pages = [page(each.replace("\n", "\n\n")) for each in DOCUMENTS]
    return multistream(pages, every=20)


FORMS = {
    "text.gz": ("sentences", lambda: pack(MANY.encode(), "gz")),
    "text.bz2": ("sentences", lambda: pack(MANY.encode(), "bz2")),
    "text.zst": ("paragraphs", lambda: pack(MANY.encode(), "zst")),
    "text.jsonl": ("jsonl", json_lines),
    "text.jsonl.bz2": ("jsonl", lambda: pack(json_lines(), "bz2")),
    "text.parquet": ("parquet", lambda: parquet(DOCUMENTS, rows=50)),
    "text.arrow": ("arrow", lambda: arrow(DOCUMENTS, rows=50)),
    "dump.xml.bz2": ("wikipedia", wiki),
}


@pytest.fixture
def expected(folder):
    """The records of plain text."""
    (folder / "text.txt").write_text(MANY)
    generate(make_settings(folder, dupe_factor=1))
    return (folder / "out.tfrecord").read_bytes()


@pytest.mark.parametrize(
    ("name", "workers"),
    [*((name, 1) for name in FORMS), ("dump.xml.bz2", 3)],
)
def test_each_form_gives_the_same_records(folder, expected, monkeypatch, name, workers):
    monkeypatch.setattr(text_format, "PIECE_BYTES", 1_000)  # so that there are several
    input_format, content = FORMS[name]
    path = folder / name
    path.write_bytes(content())
    files = [(str(path), formats.sources.status(str(path)))]
    assert len(list(formats.pieces(files, input_format, files[0][1].size))) > 2
    settings = make_settings(
        folder,
        dupe_factor=1,
        input_format=input_format,
        input_files=(str(path),),
        output_files=(str(folder / "found"),),
    )
    generate(settings, num_workers=workers)
    assert (folder / "found").read_bytes() == expected


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("text.gz", "the compressed data is damaged"),
        ("text.zst", "the compressed data is damaged"),
        ("text.parquet", "is not a Parquet file that can be read"),
        ("dump.xml.bz2", "the compressed data is damaged"),
    ],
)
def test_what_was_cut_off_leaves_nothing(folder, monkeypatch, name, message):
    monkeypatch.setattr(text_format, "PIECE_BYTES", 1_000)
    input_format, content = FORMS[name]
    (folder / name).write_bytes(content()[:-40])
    before = sorted(folder.iterdir())
    settings = make_settings(
        folder, input_format=input_format, input_files=(str(folder / name),)
    )
    with pytest.raises(UserError, match=f"{name}.*: {message}"):
        generate(settings, num_workers=2)
    assert sorted(folder.iterdir()) == before
