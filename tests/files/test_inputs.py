"""Names and globs to files, files to lines."""

import re
import sys

import pytest

from errors import UserError
from files import inputs, memory
from tests.packed import pack


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "sub").mkdir()
    for name in ("b.txt", "a.txt", "a[1].txt", "sub/c.txt"):
        (tmp_path / name).write_text(name)
    return tmp_path


def test_globs_are_sorted_and_files_come_once(folder):
    assert inputs.expand(["b.txt", "*.txt"]) == ["b.txt", "a.txt", "a[1].txt"]
    assert inputs.expand(["**/c.txt"]) == ["sub/c.txt"]
    assert inputs.expand(["a[1].txt"]) == ["a[1].txt"]  # a name, because it exists


def test_a_folder_among_the_matches_is_left_out(folder):
    (folder / "sums.txt").write_text("x")
    assert inputs.expand(["su*"]) == ["sums.txt"]
    (folder / "sums.txt").unlink()
    with pytest.raises(UserError, match="no file matches 's\\*'"):
        inputs.expand(["s*"])


@pytest.mark.parametrize(
    ("pattern", "message"),
    [("x*.txt", r"no file matches 'x\*.txt'"), ("sub", r"sub: is a folder")],
)
def test_what_is_no_file_is_refused(folder, pattern, message):
    with pytest.raises(UserError, match=message):
        inputs.expand(["a.txt", pattern])


def test_a_comma_in_a_name_is_explained(folder):
    (folder / "odd,real.txt").write_text("a\n")
    message = r"odd,real.txt: a comma separates names; .* as in 'odd\?real.txt'"
    with pytest.raises(UserError, match=message):
        inputs.expand(["odd", "real.txt"])
    assert inputs.expand(["odd?real.txt"]) == ["odd,real.txt"]


@pytest.mark.parametrize("name", ["a.txt", "a.txt.gz", "a.bz2", "a.zst"])
def test_only_a_line_feed_ends_a_line(tmp_path, name):
    content = b"\xef\xbb\xbfone\r\ntwo\x0c\xe2\x80\xa8x\n\nlast"
    path = tmp_path / name
    path.write_bytes(content if name == "a.txt" else pack(content, path.suffix[1:]))
    assert list(inputs.lines(str(path))) == ["one\r", "two\x0c\u2028x", "", "last"]


def test_part_of_a_file_is_the_lines_that_begin_in_it(tmp_path):
    path = tmp_path / "a.txt"
    path.write_bytes(b"one\ntwo\nthree\nfour\n")
    assert list(inputs.lines(str(path), 4, 9)) == ["two", "three"]
    assert list(inputs.lines(str(path), 8)) == ["three", "four"]


def test_a_line_that_is_not_utf8_is_named(tmp_path):
    path = tmp_path / "a.txt"
    path.write_bytes(b"one\ntwo\ncaf\xe9\n")
    for start in (0, 4):
        with pytest.raises(UserError, match="a.txt:3: not UTF-8 .byte 0xe9 after 3"):
            list(inputs.lines(str(path), start))


@pytest.mark.parametrize("suffix", ["gz", "bz2", "zst"])
@pytest.mark.parametrize(
    "damage", [lambda b: b[:-12], lambda b: b"plain text\n", lambda b: b + b"more"]
)
def test_damaged_packed_data_is_named(tmp_path, damage, suffix):
    path = tmp_path / f"a.{suffix}"
    path.write_bytes(damage(pack(b"one\ntwo\n" * 100, suffix)))
    where = rf"a.{suffix}:\d+: the compressed data is damaged"
    with pytest.raises(UserError, match=where):
        list(inputs.lines(str(path)))


@pytest.mark.parametrize("suffix", ["gz", "bz2", "zst"])
def test_packed_files_may_be_joined(tmp_path, suffix):
    path = tmp_path / f"a.{suffix}"
    path.write_bytes(pack(b"one\ntw", suffix) + pack(b"o\n", suffix) * 2)
    assert list(inputs.lines(str(path))) == ["one", "two", "o"]


def test_without_what_unpacks_zst_the_requirements_are_named(tmp_path, monkeypatch):
    for name in ("compression.zstd", "backports.zstd"):
        monkeypatch.setitem(sys.modules, name, None)
    (tmp_path / "a.zst").write_bytes(b"")
    message = r"a\.zst: .*backports\.zstd.*requirements/corpus\.txt"
    with pytest.raises(UserError, match=message):
        list(inputs.lines(str(tmp_path / "a.zst")))


@pytest.mark.parametrize("name", ["a.txt", "a.gz", "a.bz2", "a.zst"])
def test_a_line_longer_than_the_limit_is_named(tmp_path, monkeypatch, name):
    monkeypatch.setattr(inputs, "MB", 4)
    path = tmp_path / name

    def write(content):
        path.write_bytes(content if name == "a.txt" else pack(content, path.suffix[1:]))

    write(b"four\nmany\n\nends")
    found = list(inputs.lines(str(path), max_line_mb=1))
    assert found == ["four", "many", "", "ends"]
    write(b"four\nfives\nends")
    for start in (0, 5):
        with pytest.raises(UserError, match=f"{name}:2: .*--max_line_mb=1;"):
            list(inputs.lines(str(path), start, max_line_mb=1))
    assert list(inputs.lines(str(path)))[1] == "fives"
    monkeypatch.setattr(inputs, "MAX_LINE_MB", 1)
    with pytest.raises(
        UserError, match=f"{name}:2: the line is longer than 1 MB; break"
    ):
        list(inputs.lines(str(path)))


def test_the_limit_of_a_container_counts(monkeypatch):
    whole = memory.total.__wrapped__()
    files = {"/sys/fs/cgroup/memory.max": "5000000\n"}
    monkeypatch.setattr(memory, "_content", lambda path: files.get(path, ""))
    assert memory.total.__wrapped__() == 5_000_000
    files["/sys/fs/cgroup/memory.max"] = "max\n"
    assert 5_000_000 < memory.total.__wrapped__() <= whole


def test_lines_that_fill_the_memory_are_refused(tmp_path, monkeypatch):
    path = tmp_path / "a.bz2"
    path.write_bytes(pack(b"ab\n" * 1000, "bz2"))
    monkeypatch.setattr(inputs, "_CHECK_BYTES", 1 << 10)
    assert len(list(inputs.lines(str(path)))) == 1000
    monkeypatch.setattr(memory, "total", lambda: 1 << 20)
    with pytest.raises(
        UserError, match="a.bz2: reading it has filled .* 1.05 MB of mem"
    ):
        list(inputs.lines(str(path)))
    assert list(inputs.lines(str(path), stop=1)) == ["ab"]


@pytest.mark.parametrize(
    "encoded, is_korean",
    [
        ("id\t꿀잼 영화!\t1\n".encode("cp949"), True),
        ("똠방각하 펲시콜라\n".encode("cp949"), True),  # not in EUC-KR
        ("我们在这里看了一部很好的电影\n".encode("gbk"), False),
        ("Zürich, café\n".encode("latin-1"), False),
        ("日本語の文\n".encode("shift_jis"), False),
    ],
)
def test_a_korean_file_of_windows_is_named_with_its_remedy(
    tmp_path, encoded, is_korean
):
    path = tmp_path / "a.txt"
    path.write_bytes(b"first\n" + encoded)
    with pytest.raises(UserError, match="a.txt:2: not UTF-8") as error:
        list(inputs.lines(str(path)))
    remedy = f"probably CP949 (EUC-KR).*iconv -f CP949 -t UTF-8 '{path}' > NEW_FILE"
    found = re.search(re.escape(remedy).replace(r"\.\*", ".*"), str(error.value))
    assert bool(found) == is_korean
