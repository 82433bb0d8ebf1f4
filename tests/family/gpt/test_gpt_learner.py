"""A learned vocabulary for GPT is laid out like the release's."""

import json

import pytest

from errors import UserError
from tests.learning import TEXT, check_same_bytes, learn
from text.tokenizers.table import TokenizerOptions


def test_a_vocabulary_for_gpt_is_laid_out_like_the_release(tmp_path, capsys):
    file = tmp_path / "gpt" / "encoder_bpe_190.json"
    chosen = {"output_file": str(file), "heldout_share": 0.1}
    learn(tmp_path, TEXT + "漢\n", vocab_size=190, **chosen)
    tokens = list(json.loads(file.read_text("utf-8")))
    assert tokens[0] == "<unk>" and len(tokens) == 158  # no others occur together
    characters = [token for token in tokens[1:] if len(token) == 1]
    assert "我" in characters and "漢" not in characters and "Z" not in characters
    ends = [f"{character}</w>" for character in ["\n", *characters]]
    assert tokens[1 : 1 + len(characters) + len(ends)] == [*characters, *ends]
    merges = (file.parent / "vocab_190.bpe").read_text("utf-8").splitlines()
    assert [m.replace(" ", "") for m in merges[1:]] == tokens[2 * len(characters) + 2 :]
    tokenizer = TokenizerOptions().load_tokenizer(str(file))
    assert tokenizer.tokenize("Newest, 漢") == ["newest</w>", ",</w>", "<unk>"]
    out = capsys.readouterr().out
    assert "left out: 1 characters" in out and "0.000% are [UNK], 1.000 pieces" in out
    for wrong in (
        {"vocab_size": 20},
        {"kind": "gpt_bpe", "output_file": "a/vocab.json"},
    ):
        with pytest.raises(UserError, match="two tokens for each|be"):
            learn(tmp_path, TEXT, **chosen | {"vocab_size": 190} | wrong)


def test_every_process_writes_the_same_bytes(tmp_path):
    check_same_bytes(tmp_path, "encoder_bpe.json", size=190)
