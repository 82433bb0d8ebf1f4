"""A tokenizer.json of GPT as transformers 5 writes it, and as we do."""

import pytest

import tests
from errors import UserError
from tests.tokenizer_json import (
    bert,
    bpe,
    changed,
    check_same_files,
    check_written,
    write,
)
from text.tokenizers.table import TokenizerOptions

GPT = tests.GOLDEN / "gpt_bpe"
VOCABULARY = GPT / "encoder_bpe_40000.json"


def gpt() -> dict:
    flags = {"unk_token": "<unk>", "end_of_word_suffix": "</w>"}
    parts = bpe(GPT, "encoder_bpe_40000.json", "vocab_40000.bpe", **flags)
    return bert() | {"post_processor": None, "added_tokens": []} | parts


def test_it_is_the_vocabulary_of_the_two_files(tmp_path):
    check_same_files(gpt(), VOCABULARY, tmp_path)


def test_what_is_written_gives_our_ids_and_is_read_back(tmp_path):
    ours = TokenizerOptions().load_tokenizer(str(VOCABULARY))
    check_written(ours, tmp_path, has_rows=False)


def test_text_that_is_not_lowercased_is_refused(tmp_path):
    folder = write(tmp_path, **changed(gpt(), "normalizer", lowercase=False))
    with pytest.raises(UserError, match="tokenizer.json: .*lowercase is false"):
        TokenizerOptions().load_tokenizer(str(folder))
