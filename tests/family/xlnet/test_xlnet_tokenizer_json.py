"""A tokenizer.json of an XLNet is a SentencePiece model, and back."""

import pytest
import tokenizers

from tests.tokenizer_json import (
    ACCENTS,
    LOWER,
    PIECES,
    QUOTES,
    added,
    changed,
    check_refused,
    check_unigram,
    check_written,
    replace,
    unigram,
)
from text.tokenizers.table import TokenizerOptions


def xlnet(steps=(*QUOTES, *ACCENTS)) -> dict:
    layout = "A <sep> <cls>", "A <sep> B <sep> <cls>"
    return unigram("xlnet", layout, list(steps))


@pytest.mark.parametrize(
    ("parts", "flags"),
    [
        (xlnet(), {}),
        (xlnet((*QUOTES, *ACCENTS, *LOWER)), {"do_lower_case": True}),
    ],
)
def test_unigram_is_sentencepiece(tmp_path, parts, flags):
    check_unigram(tmp_path, parts, "xlnet", flags)


@pytest.mark.parametrize(
    ("parts", "said"),
    [
        (xlnet(ACCENTS), "normalizer has the steps"),
        (xlnet([replace("``", "''"), QUOTES[1]]), "normalizer has the steps"),
        (changed(xlnet(), "model", unk_id=1), "unk_id is 1"),
        (changed(xlnet(), "model", byte_fallback=True), "byte_fallback is true"),
        (xlnet() | {"pre_tokenizer": None}, "pre_tokenizer is"),
        (xlnet() | {"added_tokens": added({".": 9}, False)}, r"added_tokens has '\.'"),
    ],
)
def test_what_is_not_done_exactly_is_refused_by_name(tmp_path, parts, said):
    check_refused(tmp_path, parts, said)


@pytest.mark.parametrize("flags", [{}, {"do_lower_case": True}])
def test_what_is_written_gives_our_ids_and_is_read_back(tmp_path, flags):
    path = str(PIECES / "xlnet.model")
    ours = TokenizerOptions(**flags).load_tokenizer(path)
    check_written(ours, tmp_path, keeps_sigma=True)


def test_what_cannot_be_written_is_said():
    digits = TokenizerOptions().load_tokenizer(str(PIECES / "xlnet_digits.model"))
    assert "a number and a comma" in digits.hugging_face().difference
    theirs = tokenizers.Tokenizer.from_str(digits.hugging_face().json)
    # A piece like 5, is never chosen there: mostly, that is the same.
    text = "a 1,000 or 12."
    encoded = theirs.encode(text, add_special_tokens=False)
    assert encoded.ids == digits.encode(text)
    xlnet = TokenizerOptions().load_tokenizer(str(PIECES / "xlnet.model"))
    assert xlnet.hugging_face().difference is None
