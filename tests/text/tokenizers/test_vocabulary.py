"""Vocabulary files: read as the release reads them, or refused by file and line."""

import hashlib

import pytest

from errors import UserError
from text.tokenizers.vocabulary import Vocabulary

SPECIALS = b"[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\n"


@pytest.fixture
def load(tmp_path):
    def write_and_load(content):
        (tmp_path / "vocab.txt").write_bytes(content)
        return Vocabulary.load(str(tmp_path / "vocab.txt"))

    return write_and_load


def test_ids_are_line_numbers(load):
    vocabulary = load(b"the\n" + SPECIALS + "##é\n".encode())
    assert len(vocabulary) == 7
    assert vocabulary.tokens[6] == "##é" and vocabulary.ids["##é"] == 6
    assert vocabulary.pad_id == 1 and vocabulary.unk_id == 2 and vocabulary.cls_id == 3
    assert vocabulary.sep_id == 4 and vocabulary.mask_id == 5


def test_the_digest_is_that_of_the_bytes(load):
    content = SPECIALS.replace(b"\n", b"\r\n")
    assert load(content).digest == hashlib.sha256(content).hexdigest()


@pytest.mark.parametrize(
    "content",
    [
        SPECIALS + b"a",
        SPECIALS.replace(b"\n", b"\r\n") + b"a\r\n",
        SPECIALS + b" a \t\n",
        b"\xef\xbb\xbf" + SPECIALS + b"a\n",
        SPECIALS + b"a\n\n \r\n\n",
    ],
    ids=["no last newline", "CRLF", "spaces", "byte order mark", "blank lines at end"],
)
def test_odd_files_are_read_rightly(load, content):
    assert load(content).tokens == ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a"]


def test_a_blank_line_inside_moves_no_id(load):
    vocabulary = load(SPECIALS + b"\na\n")
    assert vocabulary.ids["a"] == 6 and len(vocabulary) == 7


def test_of_a_repeated_token_the_later_id_counts(load, caplog):
    vocabulary = load(SPECIALS + b"a\nb\na\n")
    assert vocabulary.ids["a"] == 7 and len(vocabulary) == 8
    assert "vocab.txt:6: 'a' is repeated in line 8" in caplog.text


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "vocab.txt:1: the vocabulary is empty"),
        (b"\n\r\n", "vocab.txt:1: the vocabulary is empty"),
        (b"[PAD]\n[UNK]\n[CLS]\na\n", r"vocab.txt: no line is \[SEP\] or \[MASK\]"),
        (SPECIALS + b"caf\xe9\n", "vocab.txt:6: not UTF-8 .byte 0xe9 after 3 bytes"),
        ("[PAD]\n".encode("utf-16"), "vocab.txt:1: not UTF-8"),
        (SPECIALS + b"a\0b\n", "vocab.txt:6: contains a NUL character"),
    ],
    ids=["empty", "blank", "missing specials", "latin-1", "utf-16", "NUL"],
)
def test_broken_files_are_refused(load, content, message):
    with pytest.raises(UserError, match=message):
        load(content)
