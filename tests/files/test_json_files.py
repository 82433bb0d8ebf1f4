"""JSON of strangers: read, or refused in one line and in little memory."""

import json
import os

import pytest

from errors import UserError
from files import json_files, sources

DEEP = json_files.MAX_DEPTH + 1
HOSTILE = {
    "not JSON": (b'{\n"a": 1,\n}', "file.json:[23]: not JSON"),
    "not UTF-8": (b"\xff\xfe\x00", "not UTF-8 .byte 0"),
    "deep lists": (b"[" * 100_000, "nested too deeply"),
    "deep objects": (b'{"a": ' * 100_000, "nested too deeply"),
    "whole but deep": (b"[" * DEEP + b"]" * DEEP, "nested too deeply"),
    "digits": (b'{"a": %s}' % (b"1" * 10**6), "1,000,000 digits"),
    "beyond floats": (b"-1" + b"0" * 400, "402 digits"),
    "surrogate": (b'{"a": ["\\ud800"]}', "half of a surrogate pair"),
}


@pytest.mark.parametrize(("content", "message"), HOSTILE.values(), ids=HOSTILE)
def test_what_no_program_can_use_is_refused_in_one_line(content, message, tmp_path):
    path = tmp_path / "file.json"
    path.write_bytes(content)
    with pytest.raises(UserError, match=message) as error:
        json_files.read(str(path))
    assert str(error.value).startswith(str(path)) and "\n" not in str(error.value)
    with pytest.raises(UserError, match=f"{message}.*; do that"):
        json_files.read_object(str(path), "do that")
    assert json_files.read_own(str(path)) == {}


def test_what_is_read_is_what_is_there(tmp_path):
    path = tmp_path / "file.json"
    flat = {"a": [1, -2.5, None, True, "\U0001f600 " + "9" * 400], "b": 10**30, "": {}}
    nested = json.loads("[" * (DEEP - 1) + "]" * (DEEP - 1))
    for value in (flat, nested, []):
        for ascii in (True, False):
            path.write_text(json.dumps(value, ensure_ascii=ascii), encoding="utf-8-sig")
            assert json_files.read(str(path)) == value


def test_only_an_object_is_read_where_one_is_wanted(tmp_path):
    path = tmp_path / "file.json"
    path.write_text("[1]")
    with pytest.raises(UserError, match="file.json: is a JSON list .*; do that"):
        json_files.read_object(str(path), "do that")
    assert json_files.read_own(str(path)) == {}
    assert json_files.read_own(str(path), list) == [1]
    for absent in (tmp_path / "other.json", tmp_path):
        assert json_files.read_own(str(absent)) == {}
        with pytest.raises(UserError, match=f"{absent}: cannot be read"):
            json_files.read_object(str(absent), "do that")


def test_a_huge_file_is_not_read(tmp_path):
    path = tmp_path / "file.json"
    path.touch()
    os.truncate(path, 20 * 10**9)  # it takes no place on the disk
    with pytest.raises(
        UserError, match=f"file.json: is larger than {sources.MAX_CONTENT_MB} MB"
    ):
        json_files.read(str(path))
    assert json_files.read_own(str(path)) == {}
