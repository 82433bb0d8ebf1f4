"""Reads and makes SentencePiece's .model files.

They are messages of Protocol Buffers. The numbers of fields are those of
sentencepiece_model.proto.
"""

import ctypes
import enum
import functools
import struct
import sys
import warnings
from collections.abc import Iterable, Iterator
from typing import NamedTuple


def is_model(content: bytes) -> bool:
    """Whether a file's content is a SentencePiece model."""
    try:
        return content[:1] == b"\n" and len(processor(content)) > 0
    except ValueError:
        return False


@functools.cache
def library():
    """The package sentencepiece."""
    # Every script imports this file, and few need it.
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # how SWIG makes its types
        import sentencepiece

    # When the process ends, SWIG makes one more type to clear its tables, and crashes if a
    # warning about its name is an error. With another reference, they are not cleared.
    for name in [name for name in sys.modules if name.startswith("swig_runtime_data")]:
        tables = sys.modules[name].type_pointer_capsule
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(tables))
    return sentencepiece


def processor(content: bytes):
    """Raises ValueError if it is not a model."""
    try:
        if not content:
            raise ValueError("empty")
        return library().SentencePieceProcessor(model_proto=content)
    except (RuntimeError, ValueError) as error:
        raise ValueError(
            "not a SentencePiece model, which build_vocab.py or spm_train writes; for a "
            "vocabulary of one token per line, use a name that ends in .txt"
        ) from error


def tokens(content: bytes) -> list[str]:
    """The pieces of a model by id; raises as `processor` does."""
    model = processor(content)
    return [model.id_to_piece(id) for id in range(len(model))]


class Piece(enum.IntEnum):
    """What a piece is for."""

    NORMAL = 1
    UNKNOWN = 2
    CONTROL = 3
    USER_DEFINED = 4  # is one piece wherever it occurs


class Specification(NamedTuple):
    """What a model does with a text.

    Attributes:
        charsmap: the compiled map of characters, empty for none.
        adds_space: whether a text begins with a space.
        removes_spaces: whether spaces are single, and none is first or last.
        model_type: how it chooses pieces, 1 for Unigram.
    """

    charsmap: bytes = b""
    adds_space: bool = True
    removes_spaces: bool = True
    model_type: int = 1


def specification(model: bytes) -> Specification:
    """Reads what a model says of itself."""
    fields = dict(_fields(model))  # the last one of each number
    trainer, normalizer = (dict(_fields(fields.get(number, b""))) for number in (2, 3))
    return Specification(
        normalizer.get(2, b""),
        bool(normalizer.get(3, True)),
        bool(normalizer.get(4, True)),
        trainer.get(3, 1),
    )


def pieces(model: bytes) -> list[tuple[str, float, bool]]:
    """The pieces by id, their scores, and whether they are not for text."""
    loaded = processor(model)
    return [
        (
            loaded.id_to_piece(id),
            loaded.get_score(id),
            loaded.is_control(id) or loaded.is_unknown(id),
        )
        for id in range(len(loaded))
    ]


def extend(model: bytes, pieces: Iterable[str]) -> bytes:
    """A model with more user-defined pieces; messages are joined by joining their bytes."""
    return model + b"".join(_piece(piece, 0.0, Piece.USER_DEFINED) for piece in pieces)


def model(
    pieces: Iterable[tuple[str, float, Piece]], specification: Specification
) -> bytes:
    """A Unigram model that cleans up spaces and begins a text with one.

    Args:
        pieces: texts, scores and kinds by id.
        specification: only its map of characters counts.
    """
    normalizer = _field(2, specification.charsmap) if specification.charsmap else b""
    return b"".join(_piece(*piece) for piece in pieces) + _field(3, normalizer)


def _piece(text, score, kind) -> bytes:
    scored = b"\x15%b\x18%c" % (struct.pack("<f", score), kind)
    return _field(1, _field(1, text.encode()) + scored)


def _fields(message: bytes) -> Iterator[tuple[int, int | bytes]]:
    """The fields of a message: numbers, and their values."""
    place = 0

    def integer():
        nonlocal place
        value = shift = 0
        while True:
            byte = message[place]
            place += 1
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return value

    while place < len(message):
        number, kind = divmod(integer(), 8)
        if kind == 0:
            yield number, integer()
            continue
        size = {1: 8, 5: 4}.get(kind)
        size = integer() if size is None else size
        yield number, message[place : place + size]
        place += size


def _field(number: int, content: bytes) -> bytes:
    """A field of bytes, its number and length before it."""
    length, size = len(content), b""
    while length > 127:
        size += bytes((length & 127 | 128,))
        length >>= 7
    return bytes((number << 3 | 2,)) + size + bytes((length,)) + content
