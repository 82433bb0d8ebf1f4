"""Parquet, and what datasets saves: how rows are shared, and what is refused."""

import json
import pathlib
import re

import pytest

from errors import UserError
from files import sources
from tests.text.corpus.readers import documents
from text.corpus import formats, text_format
from text.corpus.formats import TextOptions

pyarrow = pytest.importorskip("pyarrow")
from pyarrow import ipc, parquet  # noqa: E402

from text.corpus import arrow_files  # noqa: E402

TEXTS = [f"The {n}. It is so.\n\nAnd more.\n" for n in range(40)]


@pytest.fixture
def write(tmp_path):
    """Writes columns, and returns the file."""

    def write(columns, **options):
        path = tmp_path / "text.parquet"
        parquet.write_table(pyarrow.table(columns), path, **options)
        return str(path)

    return write


@pytest.fixture
def save(tmp_path):
    """Saves columns as datasets.save_to_disk does, in two files; returns the folder."""

    def save(columns, rows=7):
        table = pyarrow.table(columns)
        folder = tmp_path / "saved"
        folder.mkdir(exist_ok=True)
        names = [f"data-{number:05d}-of-00002.arrow" for number in range(2)]
        half = len(table) // 2
        for name, part in zip(names, (table[:half], table[half:]), strict=True):
            with ipc.new_stream(folder / name, table.schema) as stream:
                stream.write_table(part, max_chunksize=rows)
        state = {"_data_files": [{"filename": name} for name in names]}
        (folder / "state.json").write_text(json.dumps(state | {"_split": "train"}))
        (folder / "dataset_info.json").write_text("{}")
        (folder / "cache-0123.arrow").write_bytes(b"not of the dataset")
        return str(folder)

    return save


@pytest.fixture
def write_packed(tmp_path):
    """Writes columns as an Arrow stream that is compressed, and returns the file."""

    def write_packed(columns, compression):
        path, table = tmp_path / "a.arrow", pyarrow.table(columns)
        options = ipc.IpcWriteOptions(compression=compression)
        with ipc.new_stream(path, table.schema, options=options) as stream:
            stream.write_table(table)
        return str(path)

    return write_packed


def spans(path, input_format="parquet"):
    paths = formats.expand([path], input_format)
    files = [(path, sources.status(path)) for path in paths]
    cut = formats.pieces(files, input_format, sum(map(sources.size, paths)))
    return [span for piece in cut for span in piece]


def read(path, input_format="parquet", **given):
    """The documents, each a list of sentences."""
    found = documents(spans(path, input_format), input_format=input_format, **given)
    assert not found.pop()
    return found


def test_each_row_is_a_document(write):
    path = write({"text": TEXTS})
    assert read(path) == [[f"The {n}.", "It is so.", "And more."] for n in range(40)]
    categories = pyarrow.array(["One.", "Two.", "One."]).dictionary_encode()
    assert read(write({"text": categories})) == [["One."], ["Two."], ["One."]]
    large = pyarrow.array(["One."], pyarrow.large_string())
    assert read(write({"body": large}), text_column="body") == [["One."]]


def test_row_groups_are_shared(write, monkeypatch):
    path = write({"text": TEXTS}, row_group_size=7)
    whole = read(path)
    assert len(spans(path)) == 1
    monkeypatch.setattr(text_format, "PIECE_BYTES", 100)
    found = spans(path)
    assert [(span.start, span.stop) for span in found] == [
        *((n, n + 1) for n in range(5)),
        (5, None),
    ]
    assert sum(span.size for span in found) == sources.size(path)
    assert read(path) == whole


def test_other_columns_stay_unread(write):
    path = write({"text": TEXTS, "other": ["x" * 999 + str(n) for n in range(40)]})
    place = parquet.read_metadata(path).row_group(0).column(1).data_page_offset
    with open(path, "r+b") as file:
        file.seek(place)
        file.write(b"\xff" * 200)
    assert len(read(path)) == 40
    with pytest.raises(UserError, match="is not a Parquet file that can be read"):
        read(path, text_column="other")


REFUSED = {
    "another column": (
        {"body": ["a"], "id": ["b"]},
        "no column 'text', only 'body', 'id'",
    ),
    "bytes": ({"text": [b"a"]}, "column 'text' is of type binary, not text"),
    "numbers": ({"text": [1]}, "column 'text' is of type int64, not text"),
    "nested": (
        {"text": [{"a": "b"}]},
        "column 'text' is of type struct<a: string>, not",
    ),
    "lists": ({"text": [["a"]]}, "column 'text' is of type list<.*>, not text"),
    "no text": ({"text": ["a", None, "a", None]}, "row 2 has no text in column"),
}


@pytest.mark.parametrize("kind", REFUSED)
def test_what_is_not_text_is_refused(write, kind):
    columns, message = REFUSED[kind]
    path = write(columns)
    with pytest.raises(UserError, match=f"^{re.escape(path)}: .*{message}"):
        read(path)


@pytest.mark.parametrize("damage", [lambda x: x[: len(x) // 2], lambda x: b"text\n"])
def test_damage_is_one_line(write, damage):
    path = write({"text": TEXTS})
    with open(path, "r+b") as file:
        content = damage(file.read())
        file.seek(0)
        file.truncate()
        file.write(content)
    with pytest.raises(UserError) as error:
        read(path)
    assert str(error.value).startswith(f"{path}: is not a Parquet file")
    assert "\n" not in str(error.value)


def test_an_empty_table_has_no_documents(write):
    assert read(write({"text": pyarrow.array([], pyarrow.string())})) == []


@pytest.mark.parametrize("piece_bytes", [1, 700, 1 << 23])
def test_a_folder_that_datasets_saved_is_a_text(save, monkeypatch, piece_bytes):
    monkeypatch.setattr(text_format, "PIECE_BYTES", piece_bytes)
    folder = save({"id": list(range(40)), "text": TEXTS})
    found = spans(folder, "arrow")
    assert len(found) == {1: 6, 700: 4}.get(piece_bytes, 2)
    paths = [f"{folder}/data-0000{n}-of-00002.arrow" for n in range(2)]
    assert sum(span.size for span in found) == sum(map(sources.size, paths))
    expected = [[f"The {n}.", "It is so.", "And more."] for n in range(40)]
    assert read(folder, "arrow") == expected
    assert read(paths[1], "arrow") == expected[20:]
    assert read(save({"body": TEXTS}), "arrow", text_column="body") == expected


SAVED = {
    "a set": (
        lambda state: None,
        "has a folder for each split; name one, such as .*/train",
    ),
    "no list": (lambda state: [], "state.json: does not list the files"),
    "no name": (lambda state: {"_data_files": [{}]}, "does not list the files"),
    "not rows": (lambda state: {"_data_files": []}, "is a saved dataset without rows"),
    "a selection": (
        lambda state: state | {"_indices_data_files": [{"filename": "indices.arrow"}]},
        "is a selection of rows, saved by an old release",
    ),
}


@pytest.mark.parametrize("kind", SAVED)
def test_what_datasets_saved_otherwise_is_refused(save, tmp_path, kind):
    folder = save({"text": TEXTS})
    change, message = SAVED[kind]
    path = tmp_path / "saved" / "state.json"
    state = change(json.loads(path.read_text()))
    path.write_text(json.dumps(state))
    if state is None:
        path.rename(path.parent / "dataset_dict.json")
    with pytest.raises(UserError, match=f"^{re.escape(folder)}.*{message}") as error:
        formats.expand([folder], "arrow")
    assert "\n" not in str(error.value)


def test_another_folder_is_refused_as_ever(tmp_path):
    with pytest.raises(UserError, match="is a folder; name its files"):
        formats.expand([str(tmp_path)], "arrow")


STREAMS = {
    "no bytes": (lambda content: b"", "is not an Arrow stream that can be read"),
    "text": (lambda content: b"It is so.\n" * 99, "is not an Arrow stream that can be"),
    "within a batch": (
        lambda content: content[:-500],
        "is not an Arrow stream that can",
    ),
    "between batches": (
        lambda content: content[:-8],
        "ends without the mark of its end",
    ),
    "a file": (
        lambda content: b"ARROW1\0\0" + content,
        "is an Arrow file with a footer",
    ),
}


@pytest.mark.parametrize("kind", STREAMS)
def test_a_damaged_stream_is_one_line(save, kind):
    path = spans(save({"text": TEXTS}), "arrow")[0].path
    change, message = STREAMS[kind]
    with open(path, "rb") as file:
        content = change(file.read())
    with open(path, "wb") as file:
        file.write(content)
    with pytest.raises(UserError, match=f"^{re.escape(path)}: {message}") as error:
        read(path, "arrow")
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("kind", REFUSED)
def test_what_is_not_text_is_refused_in_a_stream(save, kind):
    columns, message = REFUSED[kind]
    folder = save(columns)
    with pytest.raises(UserError, match=f"^{re.escape(folder)}/.*: .*{message}"):
        read(folder, "arrow")


def test_categories_are_refused_in_a_stream(save):
    folder = save(
        {"text": ["a", "b"], "kind": pyarrow.array(["x", "y"]).dictionary_encode()}
    )
    with pytest.raises(UserError, match="column 'kind' has categories .dictionary."):
        read(folder, "arrow")


LARGE = "a b " * 400_000


@pytest.mark.parametrize("input_format", ["parquet", "arrow"])
def test_a_text_longer_than_the_limit_is_named(write, save, input_format):
    columns = {"text": ["It is so.", "And more.", LARGE, "One."]}
    path = write(columns) if input_format == "parquet" else save(columns)
    message = r": row [13]: the text is longer than --max_line_mb=1; break it"
    with pytest.raises(UserError, match=message):
        read(path, input_format, max_line_mb=1)
    (document,) = read(path, input_format)[2:3]
    assert document == [LARGE.strip()]


@pytest.mark.parametrize("input_format", ["parquet", "arrow"])
def test_what_unpacks_to_far_more_than_a_text_is_refused_unread(
    write, write_packed, monkeypatch, input_format
):
    monkeypatch.setattr(arrow_files, "_MOST_UNPACKED", 1 << 20)
    columns = {"text": [LARGE]}
    if input_format == "parquet":
        path = write(columns, compression="zstd", use_dictionary=False)
    else:
        path = write_packed(columns, "zstd")
    before = pyarrow.total_allocated_bytes()
    message = r"(row group|record batch) 0 unpacks to 1.6 MB, over 1,000 times its size"
    with pytest.raises(UserError, match=f"^{re.escape(path)}: {message}"):
        read(path, input_format)
    assert pyarrow.total_allocated_bytes() < before + (1 << 20)


def test_a_name_that_a_nested_column_has_too_is_refused(write):
    path = write({"a": [{"b": 1}], "a.b": ["One."]})
    with pytest.raises(UserError, match="'a.b' is also the name of a column within"):
        read(path, text_column="a.b")
    path = write({"a": [{"b": "Two."}], "b": ["One."]})
    assert read(path, text_column="b") == [["One."]]


def test_a_packed_size_below_nothing_hides_no_other(write_packed, monkeypatch):
    monkeypatch.setattr(arrow_files, "_MOST_UNPACKED", 1 << 20)
    path = pathlib.Path(write_packed({"id": ["x" * 2000], "text": [LARGE]}, "zstd"))
    content = path.read_bytes()
    size, zstd = (2000).to_bytes(8, "little"), b"\x28\xb5\x2f\xfd"
    assert content.count(size + zstd) == 1
    below = (-(10**12)).to_bytes(8, "little", signed=True)
    path.write_bytes(content.replace(size + zstd, below + zstd))
    with pytest.raises(UserError, match="record batch 0 unpacks to 1.6 MB"):
        read(str(path), "arrow")


def test_a_sample_of_long_texts_has_fewer_rows(write, monkeypatch):
    monkeypatch.setattr(arrow_files, "_BYTES", 3 * len(LARGE))
    shared = pyarrow.DictionaryArray.from_arrays(pyarrow.array([0] * 500), [LARGE])
    path = write({"text": shared}, compression="none", store_schema=False)
    size = sources.size(path)
    places = [(0, size // 2), (size // 2, size - 1)]
    chosen = TextOptions(input_format="parquet")
    samples = list(formats.FORMATS["parquet"].windows(path, places, size, chosen))
    for span in samples:  # a batch has three rows
        assert span.stop - span.start <= 5 and len(span.block) < 6 * len(LARGE)
        found = list(filter(None, formats.read(span, chosen)))
        assert len(found) == span.stop - span.start


def test_packed_streams_of_text_are_read(write_packed):
    path = write_packed({"text": TEXTS}, "lz4")
    assert len(read(path, "arrow")) == len(TEXTS)


def test_of_a_text_that_many_rows_share_few_are_in_memory(write):
    shared = pyarrow.DictionaryArray.from_arrays(pyarrow.array([0] * 500), [LARGE])
    path = write({"text": shared}, compression="zstd", store_schema=False)
    with arrow_files.ParquetTable.open(path) as table:
        sizes = [batch.nbytes for batch in table.batches(0, 1, "text")]
    assert sum(sizes) > 400 * len(LARGE) and max(sizes) < 50 * len(LARGE)


def test_offsets_beyond_the_text_are_one_line(save):
    path = spans(save({"text": ["One.", "Two."] * 40}, rows=80), "arrow")[0].path
    with open(path, "rb") as file:
        content = file.read()
    offsets = b"".join((4 * n).to_bytes(4, "little") for n in range(5))
    assert content.count(offsets) == 1
    wild = offsets[:-4] + (1 << 30).to_bytes(4, "little")
    with open(path, "wb") as file:
        file.write(content.replace(offsets, wild))
    with pytest.raises(UserError, match="is not an Arrow stream that can be read"):
        read(path, "arrow")
