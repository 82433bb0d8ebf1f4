"""Packs bytes as the suffix of a file's name says."""

import bz2
import gzip

import pytest

# bzip2 packs blocks; those of level 1 are the smallest, so that a text has several.
_PACK = {
    "gz": lambda content: gzip.compress(
        content, compresslevel=0
    ),  # as large as the text
    "bz2": lambda content: bz2.compress(content, compresslevel=1),
}


def pack(content: bytes, suffix: str) -> bytes:
    """Skips the test if Python lacks the packing."""
    if suffix == "zst":
        zstd = pytest.importorskip("backports.zstd")
        # With a checksum, as the command zstd writes it.
        options = {zstd.CompressionParameter.checksum_flag: 1}
        return zstd.compress(content, options=options)
    return _PACK[suffix](content)
