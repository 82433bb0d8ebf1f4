"""A learned byte-level vocabulary is laid out like RoBERTa's."""

import json

import pytest

from errors import UserError
from tests.learning import TEXT, check_same_bytes, learn
from text.tokenizers.bpe import byte_characters
from text.tokenizers.table import TokenizerOptions


@pytest.fixture
def byte_level(tmp_path):
    """Learns vocab.json; returns its folder."""

    def build_from(text, **chosen):
        chosen = {"output_file": str(tmp_path / "bpe" / "vocab.json")} | chosen
        learn(tmp_path, text, **{"vocab_size": 285} | chosen)
        return tmp_path / "bpe"

    return build_from


def test_a_byte_level_vocabulary_is_laid_out_like_robertas(byte_level, capsys):
    folder = byte_level(TEXT + "한국어 漢字\n", heldout_share=0.1)
    tokens = list(json.loads((folder / "vocab.json").read_text("utf-8")))
    assert tokens[:4] == ["<s>", "<pad>", "</s>", "<unk>"] and tokens[-1] == "<mask>"
    assert len(tokens) == 285 and set(byte_characters()) == set(tokens[4:260])
    merges = (folder / "merges.txt").read_text("utf-8").splitlines()
    assert merges[0].startswith("#version")
    assert [m.replace(" ", "") for m in merges[1:]] == tokens[260:-1]
    tokenizer = TokenizerOptions().load_tokenizer(str(folder))
    # The words of the text are learned with their space; none is [UNK].
    assert "\u0120newest" in tokens
    pieces = tokenizer.tokenize("newest newest")
    assert len(pieces) > 2 and pieces[-1] == "\u0120newest"
    out = capsys.readouterr().out
    assert "vocab.json: 285 tokens" in out and "0.000% are [UNK]" in out
    assert "left out" not in out


@pytest.mark.parametrize(
    ("chosen", "message"),
    [
        ({"vocab_size": 261}, "=261: must be above 261, .* plus all bytes"),
        ({"output_file": "other.json"}, "other.json: a byte-level .* named vocab.json"),
    ],
)
def test_refusals_of_byte_level_vocabularies(byte_level, tmp_path, chosen, message):
    with pytest.raises(UserError, match=message):
        byte_level(TEXT, **chosen)
    assert list(tmp_path.glob("bpe/*")) == []


def test_every_process_writes_the_same_bytes(tmp_path):
    check_same_bytes(tmp_path, "vocab.json", size=320)
