"""A tokenizer.json of an ALBERT is a SentencePiece model, and back."""

import base64

import pytest

from tests.tokenizer_json import (
    ACCENTS,
    LOWER,
    PIECES,
    QUOTES,
    TEXT,
    check_refused,
    check_unigram,
    check_written,
    unigram,
    write,
)
from text.tokenizers import sentencepiece_files
from text.tokenizers.table import TokenizerOptions


def albert(steps=(*QUOTES, *ACCENTS, *LOWER)) -> dict:
    layout = "[CLS] A [SEP]", "[CLS] A [SEP] B [SEP]"
    return unigram("tiny", layout, list(steps))


@pytest.mark.parametrize(
    ("parts", "flags"),
    [
        (albert(), {}),
        (albert(QUOTES + LOWER), {"strip_accents": False}),
        (albert(QUOTES + ACCENTS), {"do_lower_case": False}),
    ],
)
def test_unigram_is_sentencepiece(tmp_path, parts, flags):
    check_unigram(tmp_path, parts, "tiny", flags)


@pytest.mark.parametrize(
    ("parts", "said"),
    [
        (albert([*QUOTES, *LOWER, *ACCENTS]), "normalizer has the steps"),
        (albert([*QUOTES, ACCENTS[0], *LOWER]), "normalizer has the steps"),
        (albert([{"type": "NFKC"}]), "steps NFKC, but"),
    ],
)
def test_what_is_not_done_exactly_is_refused_by_name(tmp_path, parts, said):
    check_refused(tmp_path, parts, said)


@pytest.mark.parametrize(
    "flags", [{}, {"do_lower_case": False}, {"strip_accents": False}]
)
def test_what_is_written_gives_our_ids_and_is_read_back(tmp_path, flags):
    path = str(PIECES / "tiny.model")
    ours = TokenizerOptions(**flags).load_tokenizer(path)
    check_written(ours, tmp_path, keeps_sigma=True)


def test_the_map_of_characters_goes_along(tmp_path):
    content = (PIECES / "tiny.model").read_bytes()
    parts = albert([*QUOTES, *ACCENTS, *LOWER, {"type": "Precompiled"}])
    parts["normalizer"]["normalizers"][-1]["precompiled_charsmap"] = charsmap(content)
    ours = TokenizerOptions().load_tokenizer(str(write(tmp_path, **parts)))
    same = TokenizerOptions().load_tokenizer(str(PIECES / "tiny.model"))
    for text in (TEXT, "½ ﬁ ™ \u3000x\u200b", "\u1112\u1161\u11ab 한국어"):
        assert ours.encode(text) == same.encode(text)


def charsmap(model: bytes) -> str:
    """The map of characters of a SentencePiece model, as a tokenizer.json has it."""
    sentencepiece_files.library()  # which imports it without its warnings
    from sentencepiece import sentencepiece_model_pb2

    content = sentencepiece_model_pb2.ModelProto.FromString(model)
    charsmap = content.normalizer_spec.precompiled_charsmap
    return base64.b64encode(charsmap).decode()
