"""Reads SentencePiece's .model files."""

import ctypes
import functools
import sys
import warnings
from collections.abc import Iterable

from text.files import sources


def is_model(content: bytes) -> bool:
    """Whether a file's content is a SentencePiece model."""
    try:
        return content[:1] == b"\n" and len(processor(content)) > 0
    except ValueError:
        return False


def content(path: str) -> bytes:
    with sources.opened(path) as file:
        return file.read()


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
    """Raises:
    ValueError: it is not a model.
    """
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


def extended(model: bytes, pieces: Iterable[str]) -> bytes:
    """A model with more pieces, each of which is one wherever it occurs.

    Messages of Protocol Buffers are joined by joining their bytes. The numbers are those of
    sentencepiece_model.proto: ModelProto.pieces is 1; piece 1, score 2, type 3, of which
    USER_DEFINED is 4.
    """
    for piece in pieces:
        text = piece.encode()
        message = b"\x0a%c%b\x15\0\0\0\0\x18\x04" % (len(text), text)
        model += b"\x0a%c%b" % (len(message), message)
    return model
