"""Files to pieces: wherever they are cut, the same sentences and documents come out."""

import itertools
import json

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from errors import UserError
from files import inputs, sources
from tests.packed import pack
from tests.text.corpus.readers import documents
from text.corpus import formats, line_formats, text_format
from text.corpus.text_format import FileSpan

LINE_FORMATS = ["sentences", "paragraphs", "files", "jsonl"]


@pytest.fixture
def small_pieces(monkeypatch):
    monkeypatch.setattr(text_format, "PIECE_BYTES", 64)
    monkeypatch.setattr(line_formats, "_PARAGRAPH_CHARACTERS", 200)


def cut(*paths, input_format):
    total = sum(path.stat().st_size for path in paths)
    files = [(str(path), sources.status(str(path))) for path in paths]
    return list(formats.pieces(files, input_format, total))


def read(pieces, input_format):
    """What documents hold, in the order of the pieces: lists of sentences."""
    spans = itertools.chain.from_iterable(pieces)
    return list(filter(None, documents(spans, input_format=input_format)))


def write(folder, name, content):
    path = folder / name
    _, dot, suffix = name.rpartition("text.")
    path.write_bytes(pack(content, suffix) if dot else content)
    return path


LINE = st.sampled_from(
    ["", "", " \t", "The first one. And a second", "x" * 90 + ". Y", "of it.", "\u3000"]
)
TEXT = st.lists(LINE, max_size=60)


@pytest.mark.parametrize("name", ["text", "text.gz", "text.bz2", "text.zst"])
@pytest.mark.parametrize("input_format", LINE_FORMATS)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
# How lines end matters to formats, and not to what unpacks.
@given(lines=TEXT, ending=st.sampled_from(["\n", "\r\n"]))
def test_pieces_hold_what_the_whole_files_hold(
    tmp_path, small_pieces, input_format, name, ending, lines
):
    if input_format == "jsonl":
        lines = [line.strip() and json.dumps({"text": line}) for line in lines]
    contents = ending.join(lines), ending.join(lines[:3]), ending.join(lines) + ending
    paths = [
        write(tmp_path, f"{number}.{name}", content.encode("utf-8-sig"))
        for number, content in enumerate(contents)
    ]
    whole = [[FileSpan(str(path), 0, None, path.stat().st_size)] for path in paths]
    pieces = cut(*paths, input_format=input_format)
    assert read(pieces, input_format) == read(whole, input_format)
    size = sum(span.size for piece in pieces for span in piece)
    assert size == sum(path.stat().st_size for path in paths)


@pytest.mark.parametrize("name", ["text", "text.gz", "text.bz2", "text.zst"])
@pytest.mark.parametrize("input_format", LINE_FORMATS)
def test_a_large_file_is_read_by_many(tmp_path, small_pieces, name, input_format):
    line = '{"text": "One."}' if input_format == "jsonl" else "The one."
    path = write(tmp_path, name, f"{line}\n\n".encode() * 200)
    pieces = cut(path, input_format=input_format)
    assert len(pieces) > 10
    for piece in pieces:
        assert sum((s.stop or path.stat().st_size) - s.start for s in piece) < 200


def test_a_paragraph_too_long_to_hand_out_is_left_to_its_reader(tmp_path, small_pieces):
    text = "Some one.\n\n" * 9 + "The one line.\n" * 50 + "\nThe end.\n\n" * 9
    path = write(tmp_path, "text.gz", text.encode())
    pieces = cut(path, input_format="files")
    spans = [span for piece in pieces for span in piece]
    assert [span for span in spans if span.block is None]
    assert max(len(span.block or b"") for span in spans) <= 128
    assert len(spans) > 3
    whole = [[FileSpan(str(path), 0, None, path.stat().st_size)]]
    assert read(pieces, "files") == read(whole, "files")


def test_many_packed_files_are_unpacked_by_those_who_read_them(tmp_path, small_pieces):
    paths = [write(tmp_path, f"{i:02d}.text.gz", b"The one.\n" * 50) for i in range(12)]
    pieces = cut(*paths, input_format="sentences")
    assert [[s.path for s in piece] for piece in pieces] == [[str(p)] for p in paths]
    assert len(cut(*paths[:2], input_format="sentences")) > 4


def test_small_files_share_a_piece(tmp_path, monkeypatch):
    paths = [write(tmp_path, f"{i}.txt", b"The one.\n") for i in range(9)]
    (piece,) = cut(*paths, input_format="files")
    assert len(piece) == 9
    monkeypatch.setattr(formats, "_PIECE_FILES", 4)
    assert list(map(len, cut(*paths, input_format="files"))) == [4, 4, 1]


@pytest.mark.parametrize("name", ["text", "text.gz", "text.bz2", "text.zst"])
def test_a_mistake_in_a_later_piece_is_named_by_its_line(tmp_path, small_pieces, name):
    path = write(tmp_path, name, b"The one.\n\n" * 40 + b"caf\xe9\n" + b"It is.\n" * 40)
    for input_format in ("sentences", "paragraphs", "files"):
        pieces = cut(path, input_format=input_format)
        with pytest.raises(UserError, match=rf"{name}:81: not UTF-8 .byte 0xe9"):
            read(pieces, input_format)
    line = b'{"text": "One. Two."}\n'
    path = write(tmp_path, name, line * 40 + b'\n{"text"\n' + line * 40)
    with pytest.raises(UserError, match=rf"{name}:42: not JSON"):
        read(cut(path, input_format="jsonl"), "jsonl")


DAMAGES = {
    "half": lambda packed: packed[: len(packed) // 2],
    "cut": lambda packed: packed[:-2],
    "checksum": lambda packed: packed[:-6] + b"xx" + packed[-4:],
    "more": lambda packed: packed + b"another text",
}
# Each damage of each kind of file once, and so each format several times.
DAMAGED = [
    (damage, suffix, LINE_FORMATS[(i + j) % len(LINE_FORMATS)])
    for i, damage in enumerate(DAMAGES)
    for j, suffix in enumerate(("gz", "bz2", "zst"))
]


@pytest.mark.exhaustive
@pytest.mark.parametrize(("damage", "suffix", "input_format"), DAMAGED)
def test_damage_in_a_later_piece_is_named_by_its_line(
    tmp_path, monkeypatch, damage, suffix, input_format
):
    monkeypatch.setattr(text_format, "PIECE_BYTES", 20_000)
    line = b'{"text": "%05d. Two."}\n' if input_format == "jsonl" else b"%05d. Two.\n\n"
    numbers = np.random.default_rng(0).integers(0, 99_999, 50_000).tolist()
    text = b"".join(line % number for number in numbers)
    path = write(tmp_path, f"text.{suffix}", text)
    path.write_bytes(DAMAGES[damage](path.read_bytes()))
    with pytest.raises(UserError) as expected:
        list(inputs.lines(str(path)))
    where = rf"text\.{suffix}:(\d+): the compressed data is damaged"
    pieces = cut(path, input_format=input_format)
    assert len(pieces) > 3
    with pytest.raises(UserError, match=where) as error:
        read(pieces, input_format)
    named, as_a_whole = (int(str(e.value).split(":")[1]) for e in (error, expected))
    assert abs(named - as_a_whole) <= 2 * (1 << 17) // len(line)  # buffers
